"""The limiter is exact over every window and fair between owners, and a cancelled caller frees its place."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.llm.limits import WINDOW_S, Limiter, Limits
from tests.acceld.llm.clock import ManualClock, settle
from tests.properties import examples


async def call(limiter: Limiter, log: list[tuple[float, str]], clock: ManualClock, owner: str, tokens: int = 1) -> None:
    async with limiter.slot(tokens, owner):
        log.append((clock.now_s, owner))
        await clock.sleep(1.0)


@examples(20)
@given(
    calls=st.lists(st.tuples(st.integers(0, 100), st.integers(1, 60)), min_size=1, max_size=25),
    requests=st.integers(1, 6),
    tokens=st.integers(60, 120),
    concurrency=st.integers(1, 4),
)
def test_no_window_holds_more_than_allowed(
    calls: list[tuple[int, int]], requests: int, tokens: int, concurrency: int
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        limiter = Limiter(Limits(concurrency, requests, tokens), clock)
        started: list[tuple[float, int]] = []
        running = most = 0

        async def one(delay_s: float, size: int) -> None:
            nonlocal running, most
            await clock.sleep(delay_s)
            async with limiter.slot(size):
                started.append((clock.now_s, size))
                running += 1
                most = max(most, running)
                await clock.sleep(3.0)
                running -= 1

        tasks = [asyncio.create_task(one(float(delay), size)) for delay, size in calls]
        await clock.advance(100 + WINDOW_S * (len(calls) + 2) * 2)
        assert all(task.done() for task in tasks)
        assert most <= concurrency
        for begin, _ in started:
            window = [size for at, size in started if begin <= at < begin + WINDOW_S]
            assert len(window) <= requests and sum(window) <= tokens

    asyncio.run(scenario())


async def test_owners_take_turns() -> None:
    clock, log = ManualClock(), list[tuple[float, str]]()
    limiter = Limiter(Limits(concurrency=1), clock)
    tasks = [asyncio.create_task(call(limiter, log, clock, "big")) for _ in range(10)]
    await settle()
    tasks += [asyncio.create_task(call(limiter, log, clock, "small")) for _ in range(2)]
    await clock.advance(20)
    assert [owner for _, owner in log][:5] == ["big", "big", "small", "big", "small"]
    assert all(task.done() for task in tasks)


async def test_nobody_overtakes_a_caller_that_waits_for_tokens() -> None:
    clock, log = ManualClock(), list[tuple[float, str]]()
    limiter = Limiter(Limits(concurrency=4, tokens_per_minute=100), clock)
    order = [("first", 60), ("large", 90), ("tiny", 1)]
    tasks = [asyncio.create_task(call(limiter, log, clock, owner, tokens)) for owner, tokens in order]
    await clock.advance(10)
    assert [owner for _, owner in log] == ["first"]
    await clock.advance(WINDOW_S)
    assert [owner for _, owner in log] == ["first", "large", "tiny"]
    assert all(task.done() for task in tasks)


async def test_settling_gives_unused_tokens_back() -> None:
    clock = ManualClock()
    limiter = Limiter(Limits(concurrency=4, tokens_per_minute=100), clock)
    async with limiter.slot(100) as slot:
        slot.settle(10)
    async with limiter.slot(90):
        assert clock.now_s == 0.0, "nobody waited"


async def test_a_pause_holds_everybody() -> None:
    clock, log = ManualClock(), list[tuple[float, str]]()
    limiter = Limiter(Limits(), clock)
    limiter.pause(30.0)
    task = asyncio.create_task(call(limiter, log, clock, "a"))
    await clock.advance(29)
    assert not log
    await clock.advance(5)
    assert log == [(30.0, "a")]
    await task


async def test_a_cancelled_caller_loses_no_slot() -> None:
    clock = ManualClock()
    limiter = Limiter(Limits(concurrency=1), clock)
    log: list[tuple[float, str]] = []
    holder = asyncio.create_task(call(limiter, log, clock, "holder"))
    await settle()
    waiting = asyncio.create_task(call(limiter, log, clock, "gone"))
    after = asyncio.create_task(call(limiter, log, clock, "after"))
    await settle()
    waiting.cancel()
    await clock.advance(5)
    assert [owner for _, owner in log] == ["holder", "after"]
    async with limiter.slot(1):
        assert clock.now_s == 5.0, "the only slot is free"
    await asyncio.gather(holder, after)
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_call_larger_than_the_limit_goes_alone() -> None:
    clock = ManualClock()
    limiter = Limiter(Limits(tokens_per_minute=10), clock)
    async with limiter.slot(5):
        large = asyncio.create_task(call(limiter, [], clock, "large", 50))
        await clock.advance(1)
        assert not large.done()
    await clock.advance(WINDOW_S + 5)
    assert large.done()


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="requests_per_minute must be at least 1"):
        Limits(requests_per_minute=0)
