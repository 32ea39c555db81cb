"""Costs follow requests and answers: failed tries, interrupted answers, calls that no caller waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from acceld.config import LlmConfig, ModelConfig
from acceld.errors import BudgetError
from acceld.llm.calls import Calls
from acceld.llm.errors import LLMError, LLMInterrupted, LLMTimedOut
from acceld.llm.ledger import MemoryLedger
from acceld.llm.limits import Limits
from acceld.llm.model import connect
from acceld.llm.pricing import Price
from acceld.llm.providers.openai import OpenAIClient
from acceld.llm.retry import RetryPolicy
from acceld.llm.settings import Api, Deadlines, ModelSettings
from acceld.model_calls import CallOutcome
from acceld.search.budget import Budget
from tests.acceld.llm.models import APIS, ask, settings_for
from tests.acceld.llm.server import FAULTS, FRAMES, STATUS_FAULTS, Reply, ScriptedServer

PRICE = Price.of("1000", "2000")
IMPATIENT = Deadlines(connect_s=5, first_token_s=3.0, idle_s=0.4, total_s=10)


async def booked(
    api: Api, replies: Sequence[Reply], budget: Budget, expected: type[Exception] | None = None, *, limit: int = 100
) -> tuple[CallOutcome, ScriptedServer]:
    """Return the amount that was booked for one call."""
    async with ScriptedServer(replies) as server:
        settings = settings_for(server, api, deadlines=IMPATIENT, price=PRICE)
        ledger, model = MemoryLedger(), connect(settings)
        calls = Calls({settings.name: (settings, model)}, ledger=ledger, purse=budget)
        request = ask(model=settings.name, max_output_tokens=limit)
        if expected is None:
            await calls.complete(request)
        else:
            with pytest.raises(expected):
                await calls.complete(request)
        await calls.close()
    assert ledger.marked == {1}
    return ledger.outcomes[1], server


async def test_a_try_that_stayed_silent_is_booked_beside_the_answer_of_the_next() -> None:
    """The APIs wait for their silent servers at the same time."""
    replies = [Reply(kind="slow_first_token"), Reply()]
    for api, (outcome, server) in zip(
        APIS, await asyncio.gather(*(booked(api, replies, Budget()) for api in APIS)), strict=True
    ):
        assert len(server.seen) == 2 and outcome.outcome == "answered" and outcome.retries == 1, api
        assert outcome.usage.output_tokens + outcome.usage.uncertain_output_tokens >= 100 + 20, api
        assert outcome.usage.input_tokens > 100 and outcome.usage.estimated, api


async def test_no_second_try_is_sent_that_the_budget_can_not_pay() -> None:
    budget = Budget()
    budget.open_run(1, 0.40)  # one request could cost 0.2 for its answer and about 0.1 for its prompt
    outcome, server = await booked("chat", [Reply(kind="slow_first_token"), Reply()], budget, BudgetError)
    assert len(server.seen) == 1 and outcome.outcome == "unpaid"
    assert outcome.cost_usd is not None and 0.2 < outcome.cost_usd == budget.spent_usd(1) <= 0.40


@pytest.mark.parametrize("kind", ["idle_stall", "drop_mid_stream", "truncated_sse"])
async def test_reasoning_that_arrived_before_an_answer_broke_off_is_booked(kind: str) -> None:
    long, short = Reply(kind=kind, reasoning="thought " * 400), Reply(kind=kind)
    failure = LLMTimedOut if kind == "idle_stall" else LLMInterrupted
    with_reasoning, _ = await booked("chat", [long], Budget(), failure, limit=4000)
    without, _ = await booked("chat", [short], Budget(), failure, limit=4000)
    assert with_reasoning.usage.output_tokens > without.usage.output_tokens + 800


async def test_a_call_that_is_cancelled_in_the_middle_costs_what_had_arrived() -> None:
    async with ScriptedServer(default=Reply(kind="idle_stall", reasoning="thought " * 400)) as server:
        settings = settings_for(server, "chat", price=PRICE)
        ledger, budget = MemoryLedger(), Budget()
        calls = Calls({settings.name: (settings, connect(settings))}, ledger=ledger, purse=budget)
        task = asyncio.create_task(calls.complete(ask(model=settings.name, max_output_tokens=4000)))
        while not server.active:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await calls.close()
    assert ledger.outcomes[1].outcome == "cancelled" and ledger.outcomes[1].usage.output_tokens > 800


async def test_a_call_that_is_cancelled_before_it_was_sent_costs_nothing() -> None:
    async with ScriptedServer(default=Reply(hold=asyncio.Event())) as server:
        settings = settings_for(server, "chat", price=PRICE, limits=Limits(concurrency=1))
        ledger, budget = MemoryLedger(), Budget()
        calls = Calls({settings.name: (settings, connect(settings))}, ledger=ledger, purse=budget)
        first = asyncio.create_task(calls.complete(ask(model=settings.name)))
        while not server.active:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        second = asyncio.create_task(calls.complete(ask(model=settings.name, user="another")))
        while len(ledger.intents) < 2:  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0.01)
        second.cancel()
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await calls.close()
    assert ledger.marked == {1} and ledger.outcomes[2].cost_usd == 0


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_in_one_piece_is_read_where_a_stream_was_asked_for(api: Api) -> None:
    outcome, server = await booked(api, [Reply("def kernel(x): ...", streams=False)], Budget())
    assert server.seen[0].body["stream"] is True and len(server.seen) == 1
    assert outcome.text == "def kernel(x): ..." and outcome.usage.output_tokens == 20 and not outcome.usage.estimated


@pytest.mark.parametrize("refusal", ["openai", "azure", "mistral"])
async def test_a_setting_that_a_model_refuses_is_dropped_once_whoever_says_it(refusal: str) -> None:
    async with ScriptedServer(default=Reply(refuses="temperature", refusal=refusal)) as server:
        client = OpenAIClient(settings_for(server, "chat"))
        for _ in range(2):
            answer = await client.complete(ask(temperature=0.5))
            assert answer.text == "hello"
        assert client.dropped == ("temperature",)
        assert ["temperature" in seen.body for seen in server.seen] == [True, False, False]
        await client.close()


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", ["idle_stall", "drop_mid_stream", "truncated_sse", "error_mid_stream"])
async def test_the_text_of_an_answer_that_broke_off_is_booked_whatever_was_counted_before(api: Api, kind: str) -> None:
    failure = LLMTimedOut if kind == "idle_stall" else LLMInterrupted
    outcome, _ = await booked(api, [Reply("a word " * 600, kind=kind)], Budget(), failure, limit=4000)
    assert outcome.text and outcome.usage.estimated
    assert outcome.usage.output_tokens >= len(outcome.text) / 4, "a stream of Messages begins with one output token"


ABSURD = {
    "cached beyond the prompt": Reply(cached_tokens=10**9, input_tokens=100),
    "negative answer": Reply(output_tokens=-5),
    "endless prompt": Reply(input_tokens=10**9),
    "endless answer": Reply(output_tokens=10**9),
    "negative cached": Reply(cached_tokens=-(10**6)),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", ABSURD)
async def test_no_report_of_tokens_is_believed_without_bound(api: Api, name: str) -> None:
    outcome, _ = await booked(api, [ABSURD[name]], Budget())
    usage = outcome.usage
    assert usage.estimated and 0 < usage.input_tokens < 20_000 and 0 <= usage.output_tokens <= 10_100
    assert 0 <= usage.cached_tokens + usage.cache_written_tokens <= usage.input_tokens
    assert outcome.cost_usd is not None and 0 < outcome.cost_usd < 40


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("declared", "rate"), [(None, 1.25), (2.0, 2.0)])
async def test_a_declared_price_counts_tokens_written_to_the_cache(
    api: Api, declared: float | None, rate: float
) -> None:
    section = ModelConfig(input_usd_per_mtok=1.0, output_usd_per_mtok=0.0, cache_write_usd_per_mtok=declared)
    price = ModelSettings.from_config("m", section, LlmConfig()).price
    async with ScriptedServer(default=Reply(input_tokens=100, written_tokens=80)) as server:
        settings = settings_for(server, api, price=price)
        ledger = MemoryLedger()
        calls = Calls({"m": (settings, connect(settings))}, ledger=ledger, purse=Budget())
        await calls.complete(ask())
        await calls.close()
    assert ledger.outcomes[1].cost_usd == pytest.approx((20 + 80 * rate) / 1e6)


ANSWER = "a word " * 300
CUT = (
    "idle_stall",
    "drop_mid_stream",
    "truncated_sse",
    "error_mid_stream",
    "credit_mid_stream",
    "bad_json",
    "bad_utf8",
)
"""Faults that end an answer in the middle."""


@pytest.mark.parametrize("api", APIS)
async def test_what_is_booked_over_all_faults_is_what_the_server_counts(api: Api) -> None:
    counted = Counter[str]()
    price = Price.of("1", "10")
    kinds = dict[str, str]()

    def answer(body: dict[str, Any]) -> Reply:
        """Return the reply of the question's kind, counted as a provider does: four characters a token."""
        asked = body["input"] if "input" in body else body["messages"][-1]["content"]
        prompt, whole = (len(asked) + len("be brief")) // 4 + 60, len(ANSWER) // 4
        kind = kinds[asked.split()[0]]
        written = (
            0 if kind in STATUS_FAULTS or kind in ("html_200", "reset", "empty_answer", "empty_choices") else whole
        )
        if kind in CUT:  # the half of its frames that were sent
            frames = FRAMES[server.seen[-1].path](Reply(ANSWER))
            sent = b"".join(frames[1 : max(2, len(frames) // 2)]).count(b"a word ")
            written = sent * len("a word ") // 4
        counted["input"] += 0 if kind in STATUS_FAULTS or kind == "html_200" else prompt
        counted["output"] += written
        return Reply(ANSWER, kind=kind, input_tokens=prompt, output_tokens=written, reasoning="")

    async with ScriptedServer(answer=answer) as server:
        stall = Deadlines(connect_s=5, first_token_s=2.0, idle_s=2.0, total_s=5.0)
        settings = settings_for(server, api, deadlines=stall, price=price, retry=RetryPolicy(max_tries=2, base_s=0.01))
        ledger = MemoryLedger()
        calls = Calls({"m": (settings, connect(settings))}, ledger=ledger, purse=Budget())

        async def one(number: int, kind: str) -> None:
            kinds[f"q{number}"] = kind
            with contextlib.suppress(LLMError):
                await calls.complete(ask(user=f"q{number} " + "say more " * 400, max_output_tokens=4000))

        await one(0, "ok")
        await asyncio.gather(*(one(number, "ok") for number in range(1, 4)))
        await asyncio.gather(*(one(number, kind) for number, kind in enumerate(FAULTS, 4)))
        await calls.close()
    server_usd = (counted["input"] * 1 + counted["output"] * 10) / 1e6
    booked_usd = sum(outcome.cost_usd or 0.0 for outcome in ledger.outcomes.values())
    assert len(ledger.outcomes) == 4 + len(FAULTS)
    assert booked_usd == pytest.approx(server_usd, rel=0.02)
    assert sum(outcome.uncertain_usd for outcome in ledger.outcomes.values()) > 0, "silent requests may have cost more"
