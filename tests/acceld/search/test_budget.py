"""Caps hold under concurrent calls, and a call is refused only if no money can remain for it."""

from __future__ import annotations

import asyncio
import random
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.errors import BudgetError
from acceld.search.budget import Budget, LevelPassed
from tests.properties import examples


def usd(micro: int) -> Decimal:
    return Decimal(micro) / 1_000_000


@examples(20)
@given(
    calls=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 400), st.integers(0, 100)), max_size=40),
    run_cap=st.integers(1, 1500),
    day_cap=st.integers(1, 2500),
    seed=st.integers(0, 1000),
)
def test_no_cap_is_ever_exceeded_by_calls_that_race(
    calls: list[tuple[int, int, int]], run_cap: int, day_cap: int, seed: int
) -> None:
    """A call is (run, worst case, percent of it that it really costs), all at once, ending in any order."""
    rng = random.Random(seed)
    budget = Budget(day_usd=float(usd(day_cap)))
    for run in (1, 2):
        budget.open_run(run, float(usd(run_cap)))
    spent = {1: 0, 2: 0}
    refused: list[tuple[int, int]] = []

    async def call(run: int, worst: int, percent: int) -> None:
        try:
            reservation = await budget.reserve(run, usd(worst))
        except BudgetError:
            refused.append((run, worst))
            return
        for _ in range(rng.randrange(5)):
            await asyncio.sleep(0)
        cost = worst * percent // 100
        spent[run] += cost
        assert spent[run] <= run_cap and sum(spent.values()) <= day_cap
        reservation.settle(usd(cost))

    async def scenario() -> None:
        async with asyncio.timeout(300), asyncio.TaskGroup() as tasks:
            for run, worst, percent in calls:
                tasks.create_task(call(run, worst, percent))

    asyncio.run(scenario())
    for run, worst in refused:
        assert spent[run] + worst > run_cap or sum(spent.values()) + worst > day_cap
    assert budget.spent_usd() == sum(spent.values()) / 1_000_000


async def test_a_call_waits_for_what_others_return() -> None:
    budget = Budget()
    budget.open_run(1, 1.0)
    first = await budget.reserve(1, Decimal("0.9"))
    waiting = asyncio.create_task(budget.reserve(1, Decimal("0.5")))
    await asyncio.sleep(0)
    assert not waiting.done()
    first.settle(Decimal("0.1"))
    assert (await waiting).amount == 500_000


async def test_a_call_is_refused_when_nothing_can_return_enough() -> None:
    budget = Budget()
    budget.open_run(7, 1.0, spent_usd=0.8)
    with pytest.raises(BudgetError, match=r"run r7: 0.8000 of 1.0000 USD spent.*0.3000") as caught:
        await budget.reserve(7, Decimal("0.3"))
    assert caught.value.exit_code == 5
    budget.open_run(7, 2.0)
    assert (await budget.reserve(7, Decimal("0.3"))).open


async def test_levels_are_reported_once_for_each_scope() -> None:
    reported: list[LevelPassed] = []
    budget = Budget(day_usd=10.0, on_level=reported.append)
    budget.open_run(1, 1.0)
    for _ in range(9):
        (await budget.reserve(1, Decimal("0.1"))).settle(Decimal("0.1"))
    assert [(level.scope, level.percent) for level in reported] == [("run r1", 50), ("run r1", 80)]
    with pytest.raises(BudgetError):
        await budget.reserve(1, Decimal("0.2"))
    assert reported[-1].percent == 100 and reported[-1].run == 1
    assert len(reported) == 3


async def test_a_new_day_has_a_new_account() -> None:
    day = ["2026-11-21"]
    budget = Budget(day_usd=1.0, today=lambda: day[0], spent_today_usd=0.95)
    with pytest.raises(BudgetError, match="day 2026-11-21"):
        await budget.reserve(1, Decimal("0.1"))
    day[0] = "2026-11-22"
    (await budget.reserve(1, Decimal("0.1"))).settle(Decimal("0.1"))


async def test_a_clock_that_is_set_back_to_another_day_opens_no_second_cap() -> None:
    day = ["2026-11-21"]
    budget = Budget(day_usd=1.0, today=lambda: day[0], spent_today_usd=0.95)
    for changed, refused in (("2026-11-20", True), ("2026-11-21", True), ("2026-11-22", False), ("2026-11-21", True)):
        day[0] = changed
        if refused:
            with pytest.raises(BudgetError, match="day 2026-11-21"):
                await budget.reserve(1, Decimal("0.1"))
        else:
            (await budget.reserve(1, Decimal("0.1"))).settle(Decimal("0.1"))


async def test_an_unknown_price_is_refused_only_where_there_is_a_cap() -> None:
    (await Budget().reserve(1, None)).settle(None)
    with pytest.raises(BudgetError, match="price is unknown") as caught:
        await Budget(daemon_usd=1.0).reserve(1, None)
    assert "input_usd_per_mtok" in caught.value.hint


async def test_a_reservation_is_settled_once() -> None:
    reservation = await Budget().reserve(None, Decimal("0.1"))
    reservation.settle(Decimal("0.1"))
    with pytest.raises(RuntimeError, match="once"):
        reservation.settle(Decimal("0.1"))


async def test_a_cancelled_waiter_holds_nothing() -> None:
    budget = Budget(daemon_usd=1.0)
    first = await budget.reserve(None, Decimal("1.0"))
    waiting = asyncio.create_task(budget.reserve(None, Decimal("0.4")))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    first.settle(Decimal(0))
    (await budget.reserve(None, Decimal("1.0"))).settle(Decimal("0.5"))
    assert budget.spent_usd() == 0.5
