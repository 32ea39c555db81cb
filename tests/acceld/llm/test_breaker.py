"""The circuit opens, one call probes, and all other calls wait for its result."""

from __future__ import annotations

import asyncio

import pytest

from acceld.llm.breaker import Breaker, BreakerSettings
from acceld.llm.errors import LLMBadRequest, LLMCircuitOpen, LLMRateLimited, LLMUnavailable
from tests.acceld.llm.clock import ManualClock, settle

DOWN = LLMUnavailable("down")


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
    with pytest.raises(LLMCircuitOpen, match="'m' failed 5 times"):
        await circuit.enter()
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
