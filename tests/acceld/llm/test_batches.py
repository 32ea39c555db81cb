"""Batch modes of both providers, through the real SDKs, with a server on loopback: cheaper, sent once, and found again."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from acceld.llm.batches import Batcher, BatchProvider
from acceld.llm.calls import Calls
from acceld.llm.errors import LLMBadRequest, LLMRateLimited
from acceld.llm.ledger import MemoryLedger, question_key
from acceld.llm.pricing import Price
from acceld.llm.providers.anthropic import AnthropicClient
from acceld.llm.providers.anthropic_batches import AnthropicBatches
from acceld.llm.providers.openai import OpenAIClient
from acceld.llm.providers.openai_batches import OpenAIBatches
from acceld.llm.retry import RetryPolicy
from acceld.llm.settings import Api
from acceld.model_calls import OpenBatch
from acceld.search.budget import Budget
from tests.acceld.llm.models import APIS, ask, settings_for, yield_once
from tests.acceld.llm.scripted import ScriptedClient
from tests.acceld.llm.server import Reply, ScriptedServer


class MemoryJournal:
    """A journal in memory, for tests and demonstrations."""

    def __init__(self) -> None:
        self.batches: dict[str, tuple[str, OpenBatch]] = {}

    async def open_batches(self, model: str) -> list[OpenBatch]:
        """Return the batches of a model."""
        return [batch for name, batch in self.batches.values() if name == model]

    async def begin(self, model: str, batch: OpenBatch) -> None:
        """Store the batch."""
        self.batches[batch.token] = (model, batch)

    async def sent(self, token: str, batch: str) -> None:
        """Store the batch's id."""
        model, known = self.batches[token]
        self.batches[token] = (model, replace(known, batch=batch))

    async def collected(self, token: str) -> None:
        """Forget the batch."""
        del self.batches[token]


class WatchedJournal(MemoryJournal):
    """A journal that reports the sending of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sent = asyncio.Event()

    async def sent(self, token: str, batch: str) -> None:
        await super().sent(token, batch)
        self.is_sent.set()


def spoken(body: dict[str, Any]) -> str:
    """Return the user's text in a body of any of the three APIs."""
    if "input" in body:
        return str(body["input"])
    return str(body["messages"][-1]["content"])


def echo(body: dict[str, Any]) -> Reply:
    """Answer with the question. Refuse requests about money."""
    return Reply(kind="rate_limited_bare") if "money" in spoken(body) else Reply(f"you said {spoken(body)}")


def provider_for(server: ScriptedServer, api: Api) -> BatchProvider:
    settings = settings_for(server, api)
    if api == "messages":
        return AnthropicBatches(AnthropicClient(settings, {}), poll_s=0.001)
    return OpenAIBatches(OpenAIClient(settings, {}))


def batcher_for(server: ScriptedServer, api: Api, journal: MemoryJournal) -> Batcher:
    policy = RetryPolicy(max_tries=3, base_s=0.001)
    provider = provider_for(server, api)
    return Batcher("m", provider, journal, quiet_s=0.01, poll_s=0.001, retry=policy)


def calls_for(batcher: Batcher, ledger: MemoryLedger, budget: Budget | None = None) -> Calls:
    price = Price.of("1", "2")
    settings = settings_for(ScriptedServer(), price=price)
    return Calls(
        {"m": (settings, ScriptedClient([]))}, ledger=ledger, purse=budget or Budget(), batchers={"m": batcher}
    )


@pytest.mark.parametrize("api", APIS)
async def test_requests_of_one_moment_go_out_in_one_batch_at_half_the_price(api: Api) -> None:
    async with ScriptedServer(answer=echo) as server:
        journal, ledger, budget = MemoryJournal(), MemoryLedger(), Budget(daemon_usd=1.0)
        calls = calls_for(batcher_for(server, api, journal), ledger, budget)
        asked = [ask(user=f"number {n}", batch=True, tags={"run": 1, "index": n}) for n in range(5)]
        answers = await asyncio.gather(*(calls.complete(request) for request in asked))
        await calls.close()
    assert [answer.text for answer in answers] == [f"you said number {n}" for n in range(5)]
    assert len(server.shelf.batches) == 1 and len(server.shelf.bought) == 5 and not server.seen
    assert answers[0].usage.input_tokens == 100 and answers[0].usage.output_tokens == 20
    assert budget.spent_usd(1) == pytest.approx(5 * 0.5 * (100 * 1 + 20 * 2) / 1e6)
    assert all(outcome.price is not None and "batch" in outcome.price["source"] for outcome in ledger.outcomes.values())
    assert not journal.batches


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_may_hold_separators_of_lines(api: Api) -> None:
    async with ScriptedServer(answer=echo) as server:
        calls = calls_for(batcher_for(server, api, MemoryJournal()), MemoryLedger())
        answer = await calls.complete(ask(user="two\u2028lines\x85and \x1c", batch=True))
        await calls.close()
    assert answer.text == "you said two\u2028lines\x85and \x1c"


@pytest.mark.parametrize("api", APIS)
async def test_one_failed_request_fails_alone(api: Api) -> None:
    async with ScriptedServer(answer=echo) as server:
        calls = calls_for(batcher_for(server, api, MemoryJournal()), MemoryLedger())
        good, bad = await asyncio.gather(
            calls.complete(ask(user="hello", batch=True)),
            calls.complete(ask(user="money", batch=True)),
            return_exceptions=True,
        )
        await calls.close()
    assert not isinstance(good, BaseException) and good.text == "you said hello"
    assert isinstance(bad, LLMBadRequest if api == "messages" else LLMRateLimited)


@pytest.mark.parametrize("api", APIS)
async def test_the_next_daemon_fetches_a_batch_instead_of_buying_it_again(api: Api) -> None:
    request = ask(user="hello", batch=True)
    async with ScriptedServer(answer=echo) as server:
        journal, ledger = WatchedJournal(), MemoryLedger()
        server.shelf.open.clear()
        first = calls_for(batcher_for(server, api, journal), ledger)
        waiting = asyncio.ensure_future(first.complete(request))
        await journal.is_sent.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await first.close()
        assert len(ledger.intents) == 1 and not ledger.outcomes, "the call is still under way"
        server.shelf.open.set()
        second = calls_for(batcher_for(server, api, journal), ledger)
        answer = await second.complete(request)
        await second.close()
    assert answer.text == "you said hello"
    assert server.shelf.bought == [question_key(request)]
    assert not journal.batches


@pytest.mark.parametrize("api", APIS)
async def test_a_batch_of_which_nobody_knows_whether_it_was_sent_is_looked_for_first(api: Api) -> None:
    sent, unsent = ask(user="sent", batch=True), ask(user="unsent", batch=True)
    async with ScriptedServer(answer=echo) as server:
        journal = MemoryJournal()
        provider = provider_for(server, api)
        token = "a" * 32
        batch = OpenBatch(token, (question_key(sent),), time.time())
        await journal.begin("m", batch)
        await provider.send(token, {question_key(sent): sent})
        await provider.close()
        await journal.begin("m", OpenBatch("b" * 32, (question_key(unsent), "other"), time.time()))
        calls = calls_for(batcher_for(server, api, journal), MemoryLedger())
        answers = [await calls.complete(request) for request in (sent, unsent)]
        await calls.close()
    assert [answer.text for answer in answers] == ["you said sent", "you said unsent"]
    assert sorted(server.shelf.bought) == sorted([question_key(sent), question_key(unsent)])


@pytest.mark.parametrize("api", ("chat", "messages"))
async def test_a_lost_reply_does_not_send_a_batch_twice(api: Api) -> None:
    async with ScriptedServer(answer=echo) as server:
        server.shelf.lose_replies = 1
        batcher = batcher_for(server, api, MemoryJournal())
        batcher._sleep = yield_once
        calls = calls_for(batcher, MemoryLedger())
        answer = await calls.complete(ask(user="hello", batch=True))
        await calls.close()
    assert answer.text == "you said hello" and len(server.shelf.batches) == 1


@pytest.mark.parametrize("api", ("chat", "messages"))
async def test_a_clock_that_is_set_forward_gives_no_batch_up(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    days = itertools.count(0.0, 2 * 86_400.0)
    fake = SimpleNamespace(time=lambda: time.time() + next(days), monotonic=time.monotonic)
    monkeypatch.setattr("acceld.llm.batches.time", fake)
    async with ScriptedServer(answer=echo) as server:
        server.shelf.polls = 5
        calls = calls_for(batcher_for(server, api, MemoryJournal()), MemoryLedger())
        answer = await calls.complete(ask(user="hello", batch=True))
        await calls.close()
    assert answer.text == "you said hello"


async def test_a_batch_that_the_provider_can_not_read_fails_every_request_with_its_reason() -> None:
    async with ScriptedServer(answer=echo) as server:
        journal = MemoryJournal()
        calls = calls_for(batcher_for(server, "chat", journal), MemoryLedger())
        server.shelf.unreadable = True
        with pytest.raises(LLMBadRequest, match="line 1 is no request"):
            await calls.complete(ask(user="hello", batch=True))
        await calls.close()
    assert not journal.batches
