"""Each call stores its intent first and its outcome before use, and books its cost, whatever fails in between."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal

import pytest

from acceld.errors import BudgetError, ConfigError
from acceld.llm.calls import Calls
from acceld.llm.client import Completion, CompletionRequest, LLMClient, Received
from acceld.llm.errors import LLMInterrupted, LLMRefused, LLMUnavailable
from acceld.llm.ledger import MemoryLedger
from acceld.llm.pricing import Price
from acceld.llm.settings import ModelSettings
from acceld.model_calls import CallIntent, CallOutcome, Usage
from acceld.search.budget import Budget
from tests.acceld.llm.models import ask, model_for, settings_for
from tests.acceld.llm.scripted import ScriptedClient
from tests.acceld.llm.server import Reply, ScriptedServer

PRICE = Price.of("1", "2")


class Diary(MemoryLedger):
    """A ledger that records the order of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []
        self.asked = asyncio.Event()

    async def intend(self, intent: CallIntent) -> int:
        self.events.append("intent")
        return await super().intend(intent)

    async def settle(self, call: int, outcome: CallOutcome) -> None:
        await asyncio.sleep(0)
        self.events.append(outcome.outcome)
        await super().settle(call, outcome)


class Provider:
    """A client that answers as instructed and records the requests."""

    def __init__(self, diary: Diary, failure: Exception | None = None, hold: asyncio.Event | None = None) -> None:
        self.diary, self.failure, self.hold = diary, failure, hold
        self.answer = Received()

    async def complete(self, request: CompletionRequest) -> Completion:
        if request.progress is not None:
            await request.progress.sending(self.answer)
        self.diary.events.append("request")
        self.diary.asked.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.failure is not None:
            raise self.failure
        return Completion("text", "served", Usage(input_tokens=1000, output_tokens=500))

    async def close(self) -> None:
        return


def calls(diary: Diary, client: LLMClient, budget: Budget | None = None, price: Price | None = PRICE) -> Calls:
    settings = ModelSettings("m", "some-model", base_url="http://127.0.0.1:1/v1", price=price)
    return Calls({"m": (settings, client)}, ledger=diary, purse=budget or Budget())


async def test_the_intent_is_written_before_the_request_and_the_answer_before_its_use() -> None:
    diary, budget = Diary(), Budget()
    answer = await calls(diary, Provider(diary), budget).complete(ask())
    diary.events.append("used")
    assert diary.events == ["intent", "request", "answered", "used"]
    outcome = diary.outcomes[1]
    assert outcome.text == answer.text == "text"
    assert outcome.cost_usd == 0.002 and outcome.price == PRICE.as_dict()
    assert budget.spent_usd(1) == budget.spent_usd() == 0.002


async def test_a_stored_answer_is_not_bought_again() -> None:
    diary, budget = Diary(), Budget()
    first = await calls(diary, Provider(diary), budget).complete(ask())
    again = await calls(diary, Provider(diary, LLMUnavailable("never asked")), budget).complete(ask())
    assert again.text == first.text and diary.events.count("request") == 1
    assert budget.spent_usd() == 0.002
    other = ask(tags={"run": 1, "attempt": 2})
    await calls(diary, Provider(diary), budget).complete(other)
    assert diary.events.count("request") == 2


async def test_an_interrupted_answer_is_kept_and_paid_for() -> None:
    diary, budget = Diary(), Budget()
    failure = LLMInterrupted("broke off", partial="def kernel(")
    with pytest.raises(LLMInterrupted):
        await calls(diary, Provider(diary, failure), budget).complete(ask())
    outcome = diary.outcomes[1]
    assert outcome.outcome == "interrupted" and outcome.text == "def kernel(" and outcome.usage.estimated
    assert outcome.cost_usd is not None and outcome.cost_usd > 0
    assert budget.spent_usd(1) >= outcome.cost_usd


async def test_a_request_that_never_began_costs_nothing() -> None:
    diary, budget = Diary(), Budget(day_usd=1.0)
    with pytest.raises(LLMRefused):
        await calls(diary, Provider(diary, LLMRefused("401")), budget).complete(ask())
    assert diary.outcomes[1].cost_usd == 0 and budget.spent_usd() == 0


async def test_a_cancelled_call_is_written_down() -> None:
    diary, budget = Diary(), Budget()
    task = asyncio.create_task(calls(diary, Provider(diary, hold=asyncio.Event()), budget).complete(ask()))
    await diary.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert diary.events == ["intent", "request", "cancelled"]
    assert budget.spent_usd() > 0


async def test_an_answer_that_arrives_while_the_call_is_cancelled_is_still_written() -> None:
    diary = Diary()
    task = asyncio.create_task(calls(diary, Provider(diary)).complete(ask()))
    await diary.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert diary.events[-1] == "answered"


async def test_nothing_is_sent_that_the_budget_can_not_pay() -> None:
    diary, budget = Diary(), Budget()
    budget.open_run(1, 0.0001)
    with pytest.raises(BudgetError, match="run r1"):
        await calls(diary, Provider(diary), budget).complete(ask())
    assert diary.events == []


async def test_an_unknown_price_costs_none_and_is_refused_under_a_cap() -> None:
    diary = Diary()
    await calls(diary, Provider(diary), Budget(), price=None).complete(ask())
    assert diary.outcomes[1].cost_usd is None and diary.outcomes[1].price is None
    with pytest.raises(BudgetError, match="price is unknown"):
        await calls(diary, Provider(diary), Budget(day_usd=5), price=None).complete(ask(user="other"))
    lenient = Budget(day_usd=5, allow_unknown_price=True)
    await calls(diary, Provider(diary), lenient, price=None).complete(ask(user="other"))


async def test_fifty_calls_against_one_dollar_overspend_nothing() -> None:
    diary, budget = Diary(), Budget()
    budget.open_run(1, 1.0)
    expensive = Price(Decimal(1000), Decimal(1000), Decimal(1000), Decimal(2000), "config")
    client = ScriptedClient(lambda request: "x" * 200)
    keeper = calls(diary, client, budget, price=expensive)
    results = await asyncio.gather(*(keeper.complete(ask(user=f"say {n}")) for n in range(50)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, BudgetError)]
    answered = [result for result in results if isinstance(result, Completion)]
    assert len(refused) + len(answered) == 50 and refused and answered
    spent = sum(outcome.cost_usd or 0 for outcome in diary.outcomes.values())
    assert 0 < spent <= 1.0 and budget.spent_usd(1) <= 1.0
    assert len(client.requests) == len(answered)


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
async def test_answers_that_ignore_their_limit_do_not_pass_a_cap(field: str) -> None:
    """Three answers at once are 30 times as long as they may be. The money of one cap pays for a part of them."""
    piece = {"choices": [{"index": 0, "delta": {field: "blah " * 2}, "finish_reason": None}]}
    frames = [b"data: " + json.dumps(piece).encode() + b"\n\n"] * 1000
    price = Price.of("1", "1000")
    budget = Budget(daemon_usd=0.5)  # pays for 500 tokens of output; each answer may have 100
    async with ScriptedServer(default=Reply(frames=frames, pause_s=0.002)) as server:
        settings, model = settings_for(server, price=price), model_for(server)
        asked = Calls({"m": (settings, model)}, ledger=MemoryLedger(), purse=budget)
        answers = await asyncio.gather(
            *(asked.complete(ask(tags={"run": 1, "plan": number})) for number in range(3)), return_exceptions=True
        )
        await asked.close()
    assert [type(one).__name__ for one in answers] == (["Completion"] * 3 if field == "content" else ["LLMEmpty"] * 3)
    assert 0.4 <= budget.spent_usd() <= 0.5
    billed = server.frames_sent * len("blah " * 2) / 3.3 * 0.001
    assert billed <= 0.55, "the server's own count, with the frames that were under way when a client left"


async def test_a_model_that_was_billed_for_more_than_its_limit_needs_more_money_from_then_on() -> None:
    budget, price = Budget(daemon_usd=1.0), Price.of("1", "1000")
    async with ScriptedServer(default=Reply(output_tokens=300)) as server:  # the limit is 100
        asked = Calls(
            {"m": (settings_for(server, price=price), model_for(server))}, ledger=MemoryLedger(), purse=budget
        )
        refused = None
        for number in range(5):
            try:
                await asked.complete(ask(tags={"run": 1, "plan": number}))
            except BudgetError as error:
                refused = error
        await asked.close()
    assert 0.9 <= budget.spent_usd() <= 1.0 and len(server.seen) == 3
    assert refused is not None and "the next call could cost 0.300" in refused.message


async def test_a_refusal_says_what_is_set_aside() -> None:
    diary, budget, hold = Diary(), Budget(), asyncio.Event()
    budget.open_run(1, 0.0005)  # a call is set aside at 0.00031
    asked = calls(diary, Provider(diary, hold=hold), budget)
    running = asyncio.create_task(asked.complete(ask()))
    await diary.asked.wait()
    with pytest.raises(BudgetError, match=r"0\.0003 set aside for calls under way, and the next call could cost 0\.0"):
        await asked.complete(ask(user="x" * 500))
    hold.set()
    await running


async def test_an_unknown_model_names_the_nearest() -> None:
    diary = Diary()
    with pytest.raises(ConfigError, match="'n'"):
        await calls(diary, Provider(diary)).complete(ask(model="n"))
