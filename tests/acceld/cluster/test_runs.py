"""Runs on a fleet make the same decisions as on one undisturbed host."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.cluster.fleet import SILENT_S
from acceld.model import Attempt, RunSpec, RunState
from acceld.proposers.interface import AttemptRequest
from acceld.search.loop import Search
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from tests.acceld.cluster.conftest import World, until
from tests.acceld.cluster.runs import SEARCH, Decisions, decide, search_parts
from tests.acceld.daemon.scripted import TenthFaster


@pytest.fixture
async def undisturbed(tmp_path: Path) -> Decisions:
    world = World(tmp_path / "undisturbed")
    await world.add("a", 8)
    await world.add("b", 8)
    try:
        return await decide(world.fleet, tmp_path / "undisturbed.db")
    finally:
        await world.fleet.stop(0.0)


@pytest.mark.parametrize("clocks", [(1.0, 1.2), (1.2, 1.0)])
async def test_the_beam_of_hosts_whose_clocks_are_20_percent_apart_is_that_of_equal_ones(
    world: World, undisturbed: Decisions, tmp_path: Path, clocks: tuple[float, float]
) -> None:
    fast, slow = await world.add("a", 8, clock=clocks[0]), await world.add("b", 8, clock=clocks[1])
    assert await decide(world.fleet, tmp_path / "db") == undisturbed
    assert len(fast.device.done) > 5
    assert len(slow.device.done) > 5


async def test_a_run_decides_the_same_while_hosts_are_lost_frozen_slow_and_wrong(
    world: World, undisturbed: Decisions, tmp_path: Path
) -> None:
    lost, frozen = await world.add("lost", 2), await world.add("frozen", 2)
    await world.add("slow", 2, delay_s=0.01)
    for name in "xy":
        await world.add(name, 2, delay_s=0.001)
    wrong = await world.add("wrong", 2, wrong="# 2 1 0", delay_s=0.001)
    running = asyncio.ensure_future(decide(world.fleet, tmp_path / "db"))
    await until(lambda: len(lost.device.done) + len(frozen.device.done) > 3)
    del world.hosts.here["lost"]
    lost.lost.set()
    frozen.running.clear()
    await world.look()
    beaten = asyncio.ensure_future(_beat(world))
    try:
        assert await running == undisturbed
    finally:
        beaten.cancel()
    assert wrong.asked > 1
    assert world.standing("frozen") == "silent"


async def _beat(world: World) -> None:
    """Advance the fleet's time in steps that allow every living host to answer."""
    while True:
        await world.look(SILENT_S / 4)
        await asyncio.sleep(0.05)


async def test_no_attempt_is_begun_while_more_waits_than_the_queue_holds(world: World, tmp_path: Path) -> None:
    a = await world.add("a", 2)

    class Counting(TenthFaster):
        begun = 0

        async def attempt(self, request: AttemptRequest) -> Attempt | None:
            if not self.begun:
                a.running.clear()
            self.begun += 1
            return await super().attempt(request)

    proposer, store = Counting(), Store.open(tmp_path / "db")
    search = replace(SEARCH, plans=20, iterations=1)
    run = await store.change(create_run, RunSpec("silu", backend="neuron_legacy", search=search))
    parts = replace(search_parts(store, world.fleet), proposer=proposer, ahead=5)
    running = asyncio.ensure_future(Search(run, parts).run())
    try:
        await until(lambda: world.fleet.statistics()["waiting"] == 5)
        assert proposer.begun == 2 + 5
        a.running.set()
        assert await running is RunState.FINISHED
        assert proposer.begun == 40
    finally:
        running.cancel()
        await store.close()


async def test_a_pinned_run_stays_on_its_host(world: World, undisturbed: Decisions, tmp_path: Path) -> None:
    a, b = await world.add("a", 8), await world.add("b", 8)
    assert await decide(world.fleet, tmp_path / "db", replace(SEARCH, host="b")) == undisturbed
    assert a.device.done == []
    assert b.device.done
