"""A forecast counts prompts where that is free, and says which were estimated. What is shown is what a run has."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acceld.cli.dry_run import COUNTED, ESTIMATED, _measured
from acceld.cli.main import main
from acceld.cli.show_prompts import requests_of
from acceld.config import Config, LlmConfig, ModelConfig, RoleConfig
from acceld.home import Home
from acceld.llm.client import CompletionRequest, Role
from acceld.llm.usage import estimated_tokens
from acceld.model import RunSpec, SearchParameters, StrategyName
from acceld.proposers.both import BothProposer
from acceld.proposers.interface import FirstRequest
from acceld.proposers.rules.proposer import TunedRules
from acceld.search.forecast import PromptLength
from acceld.workloads import workload
from tests.acceld.cli.test_costs_check import served
from tests.acceld.llm.models import ask, settings_for
from tests.acceld.llm.server import Reply, ScriptedServer, counted_tokens

KEY = "sk-test-0123456789"
REQUESTS: dict[Role, CompletionRequest] = {
    "planner": ask("s" * 40, "u" * 7, shared_chars=30),
    "summarizer": ask("s" * 40, "u" * 7, role="summarizer"),
}


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """Set the key of Anthropic's models, and return the variable's name."""
    monkeypatch.setenv("TEST_KEY", KEY)
    return "TEST_KEY"


async def test_prompts_are_counted_by_the_provider_and_nothing_is_bought(key: str) -> None:
    async with ScriptedServer() as server:
        settings = settings_for(server, "messages", key_env=key, adaptive=True, effort="high")
        lengths, way = await _measured(settings, REQUESTS)
    assert way == COUNTED
    assert lengths == {"planner": PromptLength(41, 6), "summarizer": PromptLength(0, 47)}
    assert {seen.path for seen in server.seen} == {"/v1/messages/count_tokens"}
    sent: dict[str, Any] = server.seen[0].body
    assert sent["thinking"] == {"type": "adaptive"} and sent["output_config"] == {"effort": "high"}
    assert [len(part["text"]) for part in sent["system"]] == [30, 10] and "max_tokens" not in sent


async def test_a_setting_that_a_count_refuses_is_left_out(key: str) -> None:
    async with ScriptedServer(default=Reply(refuses="thinking", refusal="anthropic")) as server:
        _, way = await _measured(settings_for(server, "messages", key_env=key, adaptive=True), REQUESTS)
    assert way == COUNTED and "thinking" not in server.seen[-1].body


@pytest.mark.parametrize("kind", ["unauthorized_401", "rate_limited_seconds", "error_500", "not_found_404", "reset"])
async def test_a_count_that_fails_is_an_estimate_that_says_why(key: str, kind: str) -> None:
    async with ScriptedServer(default=Reply(kind=kind)) as server:
        lengths, way = await _measured(settings_for(server, "messages", key_env=key), REQUESTS)
    assert lengths["planner"] == PromptLength(estimated_tokens("s" * 40), estimated_tokens("u" * 7))
    assert way.startswith(f"{ESTIMATED}, because the provider did not count them: model 'm': ") and KEY not in way
    assert len(server.seen) == 1, "one failed count is enough"


@pytest.mark.parametrize(("api", "has_key"), [("messages", False), ("chat", True), ("responses", True)])
async def test_without_a_key_or_a_free_count_nothing_is_sent(key: str, api: Any, has_key: bool) -> None:
    async with ScriptedServer() as server:
        settings = settings_for(server, api)
        _, way = await _measured(replace(settings, key_env=key) if has_key else settings, REQUESTS)
    assert way == ESTIMATED and not server.seen


@pytest.mark.usefixtures("untried")
def test_a_dry_run_says_which_models_were_counted(folder: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "config" / "acceld").mkdir(parents=True)
    (folder / "mine.py").write_text("def forward(x):\n    return x + x\n", encoding="utf-8")
    words = ["optimize", "--from-reference", "mine.py", "--arg", "x=128x64:float32", "--proposer", "llm", "--dry-run"]
    prices = "input_usd_per_mtok = 1.0\noutput_usd_per_mtok = 2.0\n"
    with served(Reply()) as server:
        base_url = server.base_url.removesuffix("/v1")
        (folder / "config" / "acceld" / "acceld.toml").write_text(
            f'[models.claude]\nprovider = "anthropic"\nbase_url = "{base_url}"\nkey_env = "{key}"\n{prices}'
            f'[models.local]\nbase_url = "http://127.0.0.1:9/v1"\n{prices}'
            '[llm.planner]\nmodels = ["claude"]\n[llm.executor]\nmodels = ["local"]\n',
            encoding="utf-8",
        )
        assert main([*words, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        planner = next(role for role in answer["roles"] if role["role"] == "planner")
        assert answer["prompt_tokens"] == {"claude": COUNTED, "local": ESTIMATED}
        assert planner["input_tokens"] == planner["calls"] * counted_tokens(server.seen[0].body) > 0
        assert main([*words, "--budget-usd", "0.25"]) == 0
    out = capsys.readouterr().out
    assert f"claude: {COUNTED}; local: {ESTIMATED}" in out
    assert "at worst; the cap ends the run at $0.25" in out and answer["cap_usd"] is None


@pytest.mark.parametrize(
    ("provider", "level", "note"),
    [
        ("anthropic", "calls", "full for NKI, because every model has a Messages API"),
        ("anthropic", "none", None),
        ("openai", "calls", None),
    ],
)
def test_the_configuration_says_where_models_are_shown_more_facts_than_was_set(
    folder: Path, capsys: pytest.CaptureFixture[str], provider: str, level: str, note: str | None
) -> None:
    (folder / "acceld.toml").write_text(
        f'[search]\nknowledge = "{level}"\n[models.m]\nprovider = "{provider}"\n'
        '[llm.planner]\nmodels = ["m"]\n[llm.executor]\nmodels = ["m"]\n',
        encoding="utf-8",
    )
    assert main(["config", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["values"]["search.knowledge"]
    assert shown["value"] == level and shown.get("note") == note
    assert main(["config"]) == 0
    assert ("Messages API" in capsys.readouterr().out) == (note is not None)


@pytest.mark.usefixtures("untried")
def test_prompts_are_shown_before_a_model_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.py").write_text("def forward(x):\n    return x + x\n", encoding="utf-8")
    words = [
        "optimize",
        "--from-reference",
        "mine.py",
        "--arg",
        "x=128x64:float32",
        "--proposer",
        "llm",
        "--show-prompts",
    ]
    assert main([*words, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)["prompts"]
    assert {one["role"] for one in lines} >= {"planner", "executor", "fixer"}
    assert {(one["name"], one["endpoint"], one["key_variable"]) for one in lines} == {("", "", "")}
    assert main(words) == 0
    said = capsys.readouterr()
    assert "==== planner -> no model yet, at most" in said.out and "names no model yet" in said.out + said.err


@pytest.mark.parametrize("strategy", ["beam", "tune"])
def test_prompts_are_shown_with_the_rules_that_a_run_has_beside_its_models(
    folder: Path, strategy: StrategyName, monkeypatch: pytest.MonkeyPatch
) -> None:
    role, given = RoleConfig(models=("m",)), list[BothProposer]()
    settings = Config(models={"m": ModelConfig()}, llm=LlmConfig(planner=role, executor=role))
    spec = RunSpec("silu", proposer="both", search=SearchParameters(strategy=strategy, from_reference=True))

    async def first(both: BothProposer, request: FirstRequest) -> None:
        given.append(both)

    monkeypatch.setattr(BothProposer, "first", first)
    assert asyncio.run(requests_of(spec, settings, Home(folder / ".acceld"), workload("silu")))
    (shown,) = given
    assert isinstance(shown.rules, TunedRules), "as the daemon's, which its own tests look at"
    assert shown.rules._most == 1


def test_an_estimate_and_the_prompts_are_not_asked_for_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", "silu", "--dry-run", "--show-prompts"]) == 2
    assert "--dry-run and --show-prompts print different things" in capsys.readouterr().err
