"""Slots of the queue are given by priority, bounded, and returned."""

from __future__ import annotations

import asyncio

import pytest

from acceld.evaluate.interface import Priority
from acceld.evaluate.queue import SlotQueue


async def test_requests_are_served_by_priority_then_arrival() -> None:
    queue = SlotQueue(1, 10)
    order: list[str] = []

    async def visit(name: str, priority: Priority) -> None:
        async with queue.place(priority):
            order.append(name)

    arrivals = (
        ("first search", Priority.SEARCH),
        ("second search", Priority.SEARCH),
        ("baseline", Priority.BASELINE),
        ("person", Priority.PERSON),
    )
    tasks = []
    async with queue.place(Priority.SEARCH):
        for name, priority in arrivals:
            tasks.append(asyncio.create_task(visit(name, priority)))
            await asyncio.sleep(0)
        assert queue.statistics()["waiting"] == 4
        assert not queue.idle
    await asyncio.gather(*tasks)
    assert order == ["person", "baseline", "first search", "second search"]


async def test_a_cancelled_waiter_leaves_its_place_to_the_next() -> None:
    queue = SlotQueue(1, 10)
    entered = asyncio.Event()

    async def visit() -> None:
        async with queue.place(Priority.SEARCH):
            entered.set()

    async with queue.place(Priority.SEARCH):
        cancelled = asyncio.create_task(visit())
        kept = asyncio.create_task(visit())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        assert not entered.is_set()
    await kept
    assert entered.is_set()
    assert queue.statistics()["slots_in_use"] == 0
    assert queue.idle


async def test_a_full_queue_makes_callers_wait_before_the_door() -> None:
    queue = SlotQueue(1, 1)
    tasks = []
    async with queue.place(Priority.SEARCH):
        for _ in range(3):
            tasks.append(asyncio.create_task(_visit(queue)))
            await asyncio.sleep(0)
        assert queue.statistics()["waiting"] == 1
    await asyncio.gather(*tasks)


async def _visit(queue: SlotQueue) -> None:
    async with queue.place(Priority.SEARCH):
        await asyncio.sleep(0)


async def test_a_closed_queue_lets_nobody_in() -> None:
    queue = SlotQueue(1, 5)
    async with queue.place(Priority.SEARCH):
        waiting = asyncio.create_task(_visit(queue))
        await asyncio.sleep(0)
        queue.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    with pytest.raises(asyncio.CancelledError):
        await _visit(queue)
