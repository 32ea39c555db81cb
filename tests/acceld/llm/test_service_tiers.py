"""A tier of service is asked for as the SDK wants it, and the tier that the answer reports is the one that is booked."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from acceld.config import Config, LlmConfig, ModelConfig, RoleConfig
from acceld.errors import ConfigError
from acceld.llm.calls import Calls
from acceld.llm.errors import LLMError
from acceld.llm.ledger import MemoryLedger
from acceld.llm.pricing import PriceBook
from acceld.llm.settings import Api, ModelSettings
from acceld.model_calls import CallOutcome
from acceld.proposers.llm.roles import RoleTable
from acceld.search.budget import Budget
from tests.acceld.llm.models import ask, model_for
from tests.acceld.llm.server import Reply, ScriptedServer

FLEX = ModelConfig(
    input_usd_per_mtok=10.0,
    output_usd_per_mtok=20.0,
    service_tier="flex",
    tier_input_usd_per_mtok=5.0,
    tier_cached_usd_per_mtok=1.0,
    tier_output_usd_per_mtok=8.0,
)
COUNTED = Reply(input_tokens=1000, cached_tokens=400, output_tokens=100)


async def booked(server: ScriptedServer, api: Api, **changes: object) -> tuple[CallOutcome, MemoryLedger]:
    """Return how one call to a flex model was booked."""
    from_config = ModelSettings.from_config("m", FLEX, LlmConfig())
    model = model_for(server, api, price=from_config.price, tier=from_config.tier, **changes)
    ledger = MemoryLedger()
    calls = Calls({"m": (model.settings, model)}, ledger=ledger, purse=Budget())
    try:
        await calls.complete(ask())
    except LLMError:
        pass  # its outcome is what is asked for
    await calls.close()
    (outcome,) = ledger.outcomes.values()
    return outcome, ledger


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize(
    ("tier", "cost_usd", "source"),
    [
        ("flex", 0.0042, "config, flex"),
        ("default", 0.012, "config"),
        ("", 0.012, "config, flex or config"),
        ("auto", 0.012, "config, flex or config"),
    ],
)
async def test_the_reported_tier_is_booked_and_the_dearer_one_if_none_is_reported(
    api: Api, stream: bool, tier: str, cost_usd: float, source: str
) -> None:
    async with ScriptedServer(default=replace(COUNTED, tier=tier)) as server:
        outcome, _ = await booked(server, api, stream=stream)
    assert server.seen[0].body["service_tier"] == "flex"
    assert outcome.cost_usd == cost_usd and outcome.price is not None and outcome.price["source"] == source


async def test_the_worst_case_is_reserved_at_the_dearer_tier_and_the_tier_asked_for_is_expected() -> None:
    async with ScriptedServer(default=replace(COUNTED, tier="flex")) as server:
        _, ledger = await booked(server, "chat")
    (intent,) = ledger.intents.values()
    assert intent.reserved_usd is not None and intent.expected_usd is not None
    assert intent.reserved_usd >= 100 * 20e-6, "the answer may be served in the standard tier"
    assert intent.expected_usd < 100 * 8e-6 + 100 * 6.25e-6


async def test_a_tier_that_is_refused_is_an_error_and_not_left_out() -> None:
    async with ScriptedServer(default=Reply(refuses="service_tier")) as server:
        outcome, _ = await booked(server, "chat")
    assert outcome.outcome == "unsupported_parameter" and outcome.cost_usd == 0 and "service_tier" in outcome.error
    assert len(server.seen) == 1


async def test_an_answer_that_breaks_off_is_booked_by_the_tier_that_its_pieces_report() -> None:
    async with ScriptedServer(default=replace(COUNTED, text="x" * 600, kind="truncated_sse", tier="flex")) as server:
        outcome, _ = await booked(server, "chat")
    assert outcome.outcome == "interrupted" and outcome.price is not None and outcome.price["source"] == "config, flex"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (ModelConfig(service_tier="flex"), "has no price"),
        (ModelConfig(service_tier="flex", tier_input_usd_per_mtok=1.0), "has no price"),
        (ModelConfig(tier_output_usd_per_mtok=1.0), "no service_tier"),
    ],
)
def test_a_tier_without_prices_and_prices_without_a_tier_are_refused(section: ModelConfig, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ModelSettings.from_config("m", section, LlmConfig())


def test_a_messages_api_and_a_batch_take_no_tier() -> None:
    prices = {"tier_input_usd_per_mtok": 1.0, "tier_output_usd_per_mtok": 1.0}
    with pytest.raises(ValueError, match=r"API .messages. has no service_tier"):
        section = ModelConfig(provider="anthropic", service_tier="flex", **prices)  # type: ignore[arg-type]
        ModelSettings.from_config("m", section, LlmConfig())
    role = RoleConfig(models=("m",), batch=True)
    with pytest.raises(ConfigError, match="a batch has a price of its own"):
        RoleTable.from_config(Config(models={"m": FLEX}, llm=LlmConfig(planner=role, executor=role)))


def test_an_unknown_standard_price_makes_only_other_tiers_unknown() -> None:
    section = ModelConfig(
        base_url="http://127.0.0.1:9/v1",
        service_tier="flex",
        tier_input_usd_per_mtok=5.0,
        tier_output_usd_per_mtok=8.0,
    )
    settings, book = ModelSettings.from_config("m", section, LlmConfig()), PriceBook()
    flex = settings.price_in(book, tier="flex")
    assert flex is not None and flex.output == Decimal(8) and settings.price_in(book) == flex
    assert settings.price_in(book, tier="") is settings.price_in(book, tier="default") is None
