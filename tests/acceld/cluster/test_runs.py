"""Runs on a fleet decide what they would on one undisturbed host."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.cluster.fleet import SILENT_S
from tests.acceld.cluster.conftest import World, until
from tests.acceld.cluster.runs import SEARCH, Decisions, decide


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
    """Let the fleet's time pass in steps that every host that lives can answer in."""
    while True:
        await world.look(SILENT_S / 4)
        await asyncio.sleep(0.05)


async def test_a_pinned_run_stays_on_its_host(world: World, undisturbed: Decisions, tmp_path: Path) -> None:
    a, b = await world.add("a", 8), await world.add("b", 8)
    assert await decide(world.fleet, tmp_path / "db", replace(SEARCH, host="b")) == undisturbed
    assert a.device.done == []
    assert b.device.done
