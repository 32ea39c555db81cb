"""Two parts of a prompt are marked for the provider's cache, each long enough, and priced by how long they are kept."""

from __future__ import annotations

from decimal import Decimal

import pytest

from acceld.chips import API_CHIPS
from acceld.cli.show_prompts import Unsent
from acceld.config import LlmConfig, ModelConfig
from acceld.llm.errors import LLMError
from acceld.llm.pricing import Price, PriceBook
from acceld.llm.providers.anthropic import AnthropicClient
from acceld.llm.providers.openai import OpenAIClient
from acceld.llm.settings import ModelSettings
from acceld.model import Candidate, Kernel
from acceld.proposers.interface import PlanRequest, Problem
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleModels, RoleTable
from acceld.resources import prompts_folder
from tests.acceld.llm.models import ask
from tests.acceld.llm.server import Reply, ScriptedServer

LEAST_TOKENS = 4096
"""Length from which all of Anthropic's models cache the beginning of a prompt."""
CHARS_A_TOKEN = 4.0
"""The upper end of what kernels and English prose have, so that the tokens are rather more."""


def client(**changes: object) -> AnthropicClient:
    section = ModelConfig(provider="anthropic", name="claude-sonnet-5-5", **changes)  # type: ignore[arg-type]
    return AnthropicClient(ModelSettings.from_config("m", section, LlmConfig()), {"ANTHROPIC_API_KEY": "k"})


@pytest.mark.parametrize(("cache", "mark"), [("5m", {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"})])
def test_the_language_and_the_problem_are_two_marked_blocks(cache: str, mark: dict[str, str]) -> None:
    body = client(cache=cache).body(ask(system="language, problem", shared_chars=len("language, ")))
    assert [(block["text"], block["cache_control"]) for block in body["system"]] == [
        ("language, ", mark),
        ("problem", mark),
    ]
    (whole,) = client().body(ask(system="one"))["system"]
    assert whole["text"] == "one"


def test_a_token_kept_for_an_hour_costs_twice_the_input_price() -> None:
    book = PriceBook({"claude-sonnet-5-5": Price.of("3", "15", cache_write="3.75")})
    kept = {cache: client(cache=cache).settings.price_in(book) for cache in ("5m", "1h")}
    assert [price.cache_write for price in kept.values() if price] == [Decimal("3.75"), Decimal(6)]


@pytest.mark.parametrize(
    ("changes", "thinking"),
    [
        ({}, {"type": "adaptive"}),
        ({"thinking": "off"}, None),
        ({"thinking_tokens": 50}, {"type": "enabled", "budget_tokens": 50}),
    ],
)
def test_models_think_adaptively_unless_told_otherwise(changes: dict[str, object], thinking: object) -> None:
    assert client(**changes).body(ask()).get("thinking") == thinking


@pytest.mark.parametrize("provider", ["mantle", "claude_aws", "foundry"])
async def test_the_clouds_that_sdks_added_are_reached_by_their_own_clients(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    async with ScriptedServer(default=Reply("hello from there")) as server:
        base_url = server.base_url.removesuffix("/v1")
        section = ModelConfig(provider=provider, name="claude-sonnet-5-5", base_url=base_url, project="w1")
        settings = ModelSettings.from_config("m", section, LlmConfig())
        model = AnthropicClient(settings, {"ANTHROPIC_FOUNDRY_API_KEY": "key-of-foundry"})
        answer = await model.complete(ask())
        await model.close()
    (seen,) = server.seen
    assert answer.text == "hello from there" and settings.api == "messages"
    signed = seen.headers.get("authorization", "").startswith("AWS4-HMAC-SHA256")
    assert signed == (provider != "foundry"), seen.headers


def test_openai_is_told_which_prompts_share_a_beginning() -> None:
    own = ModelSettings.from_config("m", ModelConfig(), LlmConfig())
    first, second, other = (
        OpenAIClient(own, {"OPENAI_API_KEY": "k"}).body(ask(system=system, user=user))["prompt_cache_key"]
        for system, user in (("a", "x"), ("a", "y"), ("b", "x"))
    )
    assert first == second != other
    elsewhere = ModelSettings.from_config("m", ModelConfig(base_url="http://127.0.0.1:9/v1"), LlmConfig())
    assert "prompt_cache_key" not in OpenAIClient(elsewhere).body(ask())


@pytest.mark.parametrize("api", API_CHIPS)
async def test_what_all_problems_share_reaches_the_least_length_that_is_cached(api: str) -> None:
    models = RoleModels((("m", 1.0),))
    sent = Unsent()
    roles = RoleTable(models, models, models, models, frozenset({"m"}))
    proposer = LLMProposer(sent, roles, PromptLibrary([prompts_folder()]), plans=4)
    for description, source in (("one", "a = 1"), ("another", "b = 2")):
        problem = Problem("w", description, "", (), API_CHIPS[api][0], api)
        with pytest.raises(LLMError):
            await proposer.plan(PlanRequest(problem, 1, 1, Candidate(1, 0, Kernel(source, api), None, id=1), 0, 0, 0))
    first, second = sent.requests
    assert first.shared_chars == second.shared_chars >= LEAST_TOKENS * CHARS_A_TOKEN
    assert first.system[: first.shared_chars] == second.system[: second.shared_chars]
    assert first.system != second.system
