"""Cores are shared fairly, kept idle around a timing, and never used while another program holds them or after a failed
canary.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from acceld import figures
from acceld.devices.neuron.runtime import canary
from acceld.devices.neuron.runtime.cache import NeffCache
from acceld.devices.neuron.runtime.cores import Core, Isolation, cores_of, read_devices
from acceld.devices.neuron.runtime.leases import CoreLeases, Lease
from acceld.devices.neuron.runtime.runner import NeuronRunner
from acceld.devices.neuron.tools.reports import NeuronDevice, NeuronProcess
from acceld.errors import DeviceError
from acceld.evaluate.queue import Occupancy
from acceld.model import Status
from tests.standin_neuron.machine import tool

STANDIN = Path(__file__).resolve().parents[3] / "standin_neuron"
STRANGER = NeuronProcess(1, "python train.py")


def _chip(index: int, cores: int = 2, lnc: int = 1, *processes: NeuronProcess) -> NeuronDevice:
    return NeuronDevice(index, cores, tuple(range(index * cores, (index + 1) * cores)), 1 << 34, lnc, processes)


class Pool:
    """Leases of invented chips; canaries pass on all cores but those in ``bad``."""

    def __init__(self, *chips: NeuronDevice, isolation: Isolation = Isolation.CORE, bad: Sequence[int] = ()) -> None:
        self.chips = list(chips)
        self.bad = set(bad)
        self.canaries: list[int] = []
        self.reported: list[tuple[int, bool]] = []
        self.now = 0.0
        self.leases = CoreLeases(
            cores_of(chips),
            isolation=isolation,
            devices=self._devices,
            canary=self._canary,
            on_change=self._reported,
            clock=lambda: self.now,
        )

    async def _devices(self) -> Sequence[NeuronDevice]:
        return self.chips

    async def _canary(self, core: Core) -> str:
        self.canaries.append(core.id)
        return "it adds wrongly" if core.id in self.bad else ""

    async def _reported(self, core: Core, in_service: bool, reason: str) -> None:
        assert reason
        self.reported.append((core.id, in_service))

    async def spoil(self, candidate: str) -> int:
        """Lease a core, end the lease unclean, and return the core."""
        async with self.leases.lease("r", candidate=candidate) as lease:
            lease.ended_unclean()
        return lease.core.id


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_each_core_is_held_once_and_waiters_get_it_when_it_is_free() -> None:
    pool = Pool(_chip(0))
    async with AsyncExitStack() as stack:
        held = [await stack.enter_async_context(pool.leases.lease("a")) for _ in range(2)]
        assert {lease.core.id for lease in held} == {0, 1}
        waiting = asyncio.create_task(_hold(pool, "b"))
        await _turns()
        assert not waiting.done()
    assert (await waiting) in (0, 1)
    assert pool.leases.statistics()["leased"] == 0


async def _hold(pool: Pool, run: str, order: list[str] | None = None, **options: Any) -> int:
    async with pool.leases.lease(run, **options) as lease:
        if order is not None:
            order.append(run)
        await asyncio.sleep(0)
        return lease.core.id


async def test_a_run_with_many_requests_does_not_starve_another() -> None:
    pool = Pool(_chip(0, 1))
    order: list[str] = []
    async with pool.leases.lease("big"):
        tasks = [asyncio.create_task(_hold(pool, "big", order)) for _ in range(4)]
        await _turns()
        tasks += [asyncio.create_task(_hold(pool, "small", order)) for _ in range(2)]
        await _turns()
    await asyncio.gather(*tasks)
    assert order[:4] == ["small", "big", "small", "big"]


@pytest.mark.parametrize(("isolation", "others"), [(Isolation.CORE, 3), (Isolation.PAIR, 2), (Isolation.CHIP, 0)])
async def test_nothing_else_runs_in_the_group_of_a_core_that_is_timed(isolation: Isolation, others: int) -> None:
    pool = Pool(_chip(0, 4), isolation=isolation)
    async with pool.leases.lease("a", timing=True) as timed:
        tasks = [asyncio.create_task(_hold_until(pool, asyncio.Event())) for _ in range(4)]
        await _turns()
        assert pool.leases.statistics()["leased"] == 1 + others
        group = timed.core.group(isolation)
        held = pool.leases._held.values()
        assert [lease.core.id for lease in held if lease.core.group(isolation) == group] == [timed.core.id]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _hold_until(pool: Pool, event: asyncio.Event) -> None:
    async with pool.leases.lease("b"):
        await event.wait()


async def test_a_timing_that_waits_is_not_starved_by_checks() -> None:
    pool = Pool(_chip(0, 2), isolation=Isolation.CHIP)
    order: list[str] = []
    async with pool.leases.lease("checks"):
        timing = asyncio.create_task(_hold(pool, "timing", order, timing=True))
        await _turns()
        late = asyncio.create_task(_hold(pool, "checks", order))
        await _turns()
        assert order == []
    await asyncio.gather(timing, late)
    assert order == ["timing", "checks"]


async def test_a_strangers_chip_is_left_alone_and_the_stranger_is_named() -> None:
    pool = Pool(_chip(0, 2, 1, STRANGER), _chip(1))
    assert await _hold(pool, "a") in (2, 3)
    pool.chips[1] = _chip(1, 2, 1, STRANGER)
    with pytest.raises(DeviceError, match=r"held by process 1 \(python train.py\)"):
        await _hold(pool, "a")
    pool.chips[0] = _chip(0)
    assert await _hold(pool, "a") in (0, 1)


async def test_our_own_children_are_no_strangers() -> None:
    pool = Pool(_chip(0))
    async with pool.leases.lease("a") as lease:
        lease.owns(os.getsid(0))
        pool.chips[0] = _chip(0, 2, 1, NeuronProcess(os.getpid(), "runner"))
        assert await _hold(pool, "b") == 1 - lease.core.id


async def test_after_an_unclean_end_a_core_is_used_again_only_when_a_canary_passed() -> None:
    pool = Pool(_chip(0), bad=[0])
    assert await pool.spoil("k") == 0
    assert pool.canaries == [0]
    assert pool.leases.statistics()["out_of_service"] == [0]
    assert [await _hold(pool, "a") for _ in range(3)] == [1, 1, 1]
    pool.bad.clear()
    await pool.leases.check_again()
    assert pool.leases.statistics()["out_of_service"] == []
    await pool.spoil("k")
    assert pool.canaries[-1] == 0
    assert await _hold(pool, "a") == 0


async def test_a_core_that_goes_out_of_service_and_comes_back_is_reported() -> None:
    pool = Pool(_chip(0), bad=[0])
    assert await pool.spoil("c1") == 0
    assert pool.leases.sick == (0,)
    await pool.leases.check_again()
    assert pool.reported == [(0, False), (0, False)]
    pool.bad.clear()
    await pool.leases.check_again()
    assert pool.reported[-1] == (0, True)
    assert not pool.leases.sick


async def test_a_core_to_avoid_is_taken_only_where_no_other_is_free() -> None:
    pool = Pool(_chip(0))
    async with pool.leases.lease("r", avoid=[0]) as first, pool.leases.lease("r", avoid=[0]) as second:
        assert (first.core.id, second.core.id) == (1, 0)


async def test_an_exception_or_a_cancellation_counts_as_an_unclean_end() -> None:
    pool = Pool(_chip(0))
    with pytest.raises(ValueError, match="lost"):
        async with pool.leases.lease("a"):
            raise ValueError("lost")
    task = asyncio.create_task(_hold_until(pool, asyncio.Event()))
    await _turns()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await _turns()
    assert pool.canaries == [0, 0]
    assert pool.leases.statistics()["leased"] == 0


async def test_a_candidate_after_which_two_cores_fail_is_at_fault_and_one_core_is_not_enough() -> None:
    pool = Pool(_chip(0, 4), bad=[0, 1])
    await pool.spoil("k")
    assert pool.leases.device_fault("k") is None
    await pool.spoil("k")
    result = pool.leases.device_fault("k")
    assert result is not None
    assert (result.status, result.failure.rule) == (Status.RUNTIME_ERROR, "device_fault")
    assert "0, 1" in result.failure.message
    assert pool.leases.device_fault("other") is None


async def test_when_every_core_is_out_of_service_a_request_is_an_error_and_does_not_wait() -> None:
    pool = Pool(_chip(0, 1), bad=[0])
    await pool.spoil("k")
    with pytest.raises(DeviceError, match="core 0 failed its canary: it adds wrongly"):
        await _hold(pool, "a")


async def test_a_request_that_is_cancelled_while_it_waits_leaves_nothing_behind() -> None:
    pool = Pool(_chip(0, 1))
    async with pool.leases.lease("a"):
        task = asyncio.create_task(_hold(pool, "b"))
        await _turns()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert pool.leases.statistics()["waiting"] == 0
    assert await _hold(pool, "c") == 0


async def test_utilization_is_the_leased_share_of_all_cores_time() -> None:
    pool = Pool(_chip(0, 4))
    async with pool.leases.lease("a"):
        pool.now = 10.0
    pool.now = 20.0
    assert pool.leases.statistics()["utilization"] == pytest.approx(10 / 80)


def test_cores_are_named_as_neuron_ls_does_and_numbered_through_where_it_tells_no_ids() -> None:
    assert [core.id for core in cores_of([_chip(0), _chip(1)])] == [0, 1, 2, 3]
    unnamed = [NeuronDevice(index, 2, (0, 1), 0, 1, ()) for index in (0, 1)]
    assert [(core.id, core.device) for core in cores_of(unnamed)] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert [core.id for core in cores_of([_chip(0), _chip(1)], wanted=(2,))] == [2]
    with pytest.raises(DeviceError, match="no core 9"):
        cores_of([_chip(0)], wanted=(9,))


def test_a_logical_core_of_two_is_an_hbm_pair_of_its_own() -> None:
    assert [core.group(Isolation.PAIR) for core in cores_of([_chip(0, 4, 2)])] == [f"chip0.pair{n}" for n in range(4)]
    assert [core.group(Isolation.PAIR) for core in cores_of([_chip(0, 4, 1)])] == [
        "chip0.pair0",
        "chip0.pair0",
        "chip0.pair1",
        "chip0.pair1",
    ]


async def test_neuron_ls_is_read_and_its_failures_are_reported(tmp_path: Path) -> None:
    program = tool(tmp_path, "neuron-ls")
    devices = await read_devices(program, {"ACCELD_STANDIN": "1"})
    assert [core.id for core in cores_of(devices)] == [0, 1, 2, 3]
    held = json.dumps([{"neuron_device": 0, "nc_count": 2, "memory_size": 1, "neuron_processes": [{"pid": 7}]}])
    (device,) = await read_devices(program, {"ACCELD_STANDIN": "1", "STANDIN_LS": held})
    assert device.processes[0].pid == 7
    with pytest.raises(DeviceError, match="failed"):
        await read_devices(program, {})
    with pytest.raises(DeviceError, match="can not be started"):
        await read_devices(str(tmp_path / "none"))


@pytest.mark.parametrize(("scenario", "said"), [("", ""), ("nan", "NRT 1003")])
async def test_the_canary_runs_on_the_core_compares_its_sum_and_keeps_its_reason(
    scenario: str, said: str, tmp_path: Path
) -> None:
    profiler = tool(tmp_path, "neuron-profile")
    compiled = NeffCache(tmp_path / "cache").put(
        "k", b'{"standin": 1, "inputs": ["a", "b"]}', route="test", compiler_version="2.21.0+standin"
    )

    async def start(core: Core, folder: Path) -> NeuronRunner:
        named = {"ACCELD_STANDIN": "1", "STANDIN_SCENARIO": scenario}
        return await NeuronRunner.start(sys.executable, core=core.id, folder=folder, profiler=profiler, named=named)

    why = await canary.fails(Core(0, 0, 0, 1), compiled, start)
    assert said in why and bool(why) is bool(said)
    assert "canary" in canary.kernel("nki", 2).text


async def test_after_memory_errors_every_core_of_the_chip_needs_a_canary_and_no_candidate_is_blamed() -> None:
    pool = Pool(_chip(0), _chip(1), bad=[0])
    async with pool.leases.lease("a", candidate="k") as lease:
        assert lease.core.id == 0
        pool.leases.doubt(0)
        await _turns()
        assert pool.canaries == [1]
    assert pool.canaries == [1, 0]
    before = pool.leases.sick
    assert before == (0,)
    pool.bad = {2, 3}
    pool.leases.doubt(1)
    await _turns()
    assert list(pool.leases.sick) == [0, 2, 3] and pool.leases.device_fault("k") is None


def test_a_lease_starts_clean() -> None:
    assert Lease(Core(0, 0, 0, 1), "r", False, "").clean


@pytest.mark.parametrize("isolation", [pytest.param(Isolation.CORE, marks=pytest.mark.slow), Isolation.PAIR])
async def test_thirty_two_cores_are_busy_while_kernels_wait(isolation: Isolation) -> None:
    pool = Pool(*(_chip(number) for number in range(16)), isolation=isolation)
    asleep: list[tuple[float, int, asyncio.Future[None]]] = []
    random = Random(0)

    async def job(number: int) -> None:
        timing = number % 4 == 0
        async with pool.leases.lease(f"r{number % 3}", timing=timing):
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(asleep, (pool.now + random.uniform(0.5, 1.5), number, done))
            await done

    jobs = [asyncio.create_task(job(number)) for number in range(128)]
    while not all(one.done() for one in jobs):
        await _turns()
        pool.now, _, done = heapq.heappop(asleep)
        done.set_result(None)
        await _turns()
    share = pool.leases.statistics()["busy_share"]
    assert isinstance(share, float) and 0.95 <= share <= 1.0, share
    text = figures.cores({"devices": pool.leases.statistics()})[0]
    assert "% while kernels waited)" in text


def test_the_busy_share_counts_only_time_in_which_somebody_waits() -> None:
    now = [0.0]
    occupancy = Occupancy(4, lambda: now[0])
    occupancy.note(1, waiting=False)
    now[0] = 10.0
    assert occupancy.share is None
    occupancy.note(3, waiting=True)
    now[0] = 20.0
    occupancy.note(4, waiting=True)
    now[0] = 30.0
    assert occupancy.share == pytest.approx((3 + 4) / 8)
