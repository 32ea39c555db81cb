"""The circuit opens, one call probes, and all other calls wait for its result."""

from __future__ import annotations

import asyncio

import pytest

from acceld.llm.breaker import Breaker, BreakerSettings
from acceld.llm.client import Completion, CompletionRequest
from acceld.llm.errors import LLMBadRequest, LLMCircuitOpen, LLMError, LLMRateLimited, LLMUnavailable
from acceld.llm.limits import Limiter
from acceld.llm.model import Model
from acceld.llm.retry import RetryPolicy
from acceld.llm.settings import ModelSettings
from tests.acceld.llm.clock import ManualClock, settle
from tests.acceld.llm.models import ask
from tests.acceld.llm.scripted import ScriptedClient

DOWN = LLMUnavailable("down", hint="Start it.")


def breaker(clock: ManualClock) -> Breaker:
    return Breaker("m", BreakerSettings(3, 60.0, 2), now=clock.time, sleep=clock.sleep)


async def open_circuit(circuit: Breaker) -> None:
    for _ in range(3):
        assert not await circuit.enter()
        circuit.failed(DOWN, False)
    assert circuit.state == "open"


async def test_one_probe_goes_and_the_rest_wait_for_it() -> None:
    clock = ManualClock()
    circuit = breaker(clock)
    await open_circuit(circuit)
    callers = [asyncio.create_task(circuit.enter()) for _ in range(5)]
    await clock.advance(59)
    assert not any(caller.done() for caller in callers)
    await clock.advance(2)
    assert [caller.result() for caller in callers if caller.done()] == [True]
    circuit.succeeded()
    await settle()
    assert sorted(caller.result() for caller in callers) == [False, False, False, False, True]


async def test_waiting_calls_fail_after_so_many_failed_probes() -> None:
    clock = ManualClock()
    circuit = breaker(clock)
    await open_circuit(circuit)
    for _ in range(2):
        await clock.advance(60)
        assert await circuit.enter()
        circuit.failed(DOWN, True)
    with pytest.raises(
        LLMCircuitOpen, match="'m' failed 5 times in a row and is still failing; the last time: down"
    ) as refused:
        await circuit.enter()
    assert (
        refused.value.hint == "Start it. The model is asked again in 60 s. Name another model for this role meanwhile."
    )
    await clock.advance(60)
    assert await circuit.enter()


async def test_an_answer_resets_the_count() -> None:
    clock = ManualClock()
    circuit = breaker(clock)
    for _ in range(10):
        circuit.failed(DOWN, False)
        circuit.failed(DOWN, False)
        circuit.succeeded()
    assert circuit.state == "closed"


async def test_rate_limits_and_bad_requests_do_not_open_it() -> None:
    circuit = breaker(ManualClock())
    for _ in range(10):
        circuit.failed(LLMRateLimited("slow"), False)
        circuit.failed(LLMBadRequest("400"), False)
    assert circuit.state == "closed"


async def test_a_cancelled_probe_hands_its_turn_on() -> None:
    clock = ManualClock()
    circuit = breaker(clock)
    await open_circuit(circuit)
    await clock.advance(60)
    assert await circuit.enter()
    waiting = asyncio.create_task(circuit.enter())
    await settle()
    assert not waiting.done()
    circuit.abandoned(True)
    assert await waiting is True


@pytest.mark.parametrize(
    "failure", [LLMUnavailable("down (HTTP 500)"), LLMRateLimited("slow down", retry_after_s=30.0)]
)
async def test_each_run_whose_calls_wait_long_is_told_once_why(failure: LLMError) -> None:
    """Three calls of two runs ask a model that fails nine times and then answers; another failure is told again."""
    told: list[tuple[int, str]] = []
    failures = [failure] * 9

    class Failing(ScriptedClient):
        async def complete(self, request: CompletionRequest) -> Completion:
            if failures:
                raise failures.pop()
            return await super().complete(request)

    async def tell(run: int, text: str) -> None:
        told.append((run, text))

    async def asked(*runs: int) -> None:
        calls = asyncio.gather(*(model.complete(ask(tags={"run": run})) for run in runs))
        while not calls.done():
            await clock.advance(60.0)
        await calls

    clock, patient = ManualClock(), BreakerSettings(1, 60.0, 99)
    settings = ModelSettings("m", "m", "openai", "chat", breaker=patient, retry=RetryPolicy(max_tries=20))
    model = Model(settings, Failing(lambda _: "ok"))
    model.breaker = Breaker("m", patient, now=clock.time, sleep=clock.sleep)
    model.limiter, model._sleep, model.on_wait = Limiter(settings.limits, clock), clock.sleep, tell
    await asked(1, 1, 2)
    assert sorted(run for run, _ in told) == [1, 2]
    assert all(failure.message in text and "the model is asked again in " in text for _, text in told)
    failures.append(failure)
    await asked(1, 1)
    assert len(told) == 3
