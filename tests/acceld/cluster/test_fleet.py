"""A fleet of hosts in this process that are lost, frozen, wrong or out of step. Without Ray, and without waiting for
time to pass.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.cluster import fleet as fleet_module
from acceld.cluster.fleet import SILENT_S
from acceld.cluster.host import Host, HostLostError
from acceld.errors import DeviceError, UsageError
from acceld.evaluate.interface import EvaluationRequest, Evaluator, Priority
from acceld.evaluate.shapes import joined
from acceld.model import Evaluation, Gate, Kernel, Status
from acceld.workloads import WeightedShape
from tests.acceld.cluster.conftest import BASELINE, FakeHost, World, request, until


async def test_an_evaluation_carries_its_host(world: World) -> None:
    await world.add("a")
    kept: Evaluator = world.fleet
    found = await kept.evaluate(request())
    assert found.profile is not None
    assert (found.profile.host, found.profile.instance_type, found.profile.driver) == ("a", "a.large", "7.1")
    assert world.started == [(1, "a")]


async def test_the_baseline_passes_once_on_each_host_before_its_answers_count(world: World) -> None:
    a, b = await world.add("a"), await world.add("b")
    await asyncio.gather(*(world.fleet.evaluate(request(f"latency {90 - n}.0", n)) for n in range(8)))
    assert [host.device.done.count(BASELINE.text) for host in (a, b)] == [1, 1]


async def test_latencies_at_each_shape_are_in_the_runs_units_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = await world.add("slow", clock=1.25)
    evaluate = slow.device.evaluate

    async def at_two_shapes(asked: EvaluationRequest) -> Evaluation:
        one = await evaluate(asked)
        assert one.profile is not None
        one = replace(one, profile=replace(one.profile, details={}))
        other = replace(one, profile=one.profile and replace(one.profile, latency_us=(one.latency_us or 0.0) * 4))
        return joined(asked.kernel, (WeightedShape({"M": 1}), WeightedShape({"M": 2})), [one, other])

    monkeypatch.setattr(slow.device, "evaluate", at_two_shapes)
    found = await world.fleet.evaluate(request("latency 80.0", against_us=(200.0,)))
    assert found.profile is not None and found.latency_us == pytest.approx(160.0)
    assert [one["latency_us"] for one in found.profile.details["shapes"]] == pytest.approx([80.0, 320.0])


async def test_sources_travel_once_and_are_asked_for_again_where_they_are_gone(world: World) -> None:
    a = await world.add("a")
    await world.fleet.evaluate(request())
    kept = world.folder / "a" / "contents"
    names = {path.name for path in kept.iterdir()}
    await world.fleet.evaluate(request(number=2))
    assert {path.name for path in kept.iterdir()} == names
    for path in kept.iterdir():
        if path.is_file():
            path.unlink()
    assert (await world.fleet.evaluate(request(number=3))).status is Status.PASSED
    assert a.asked == 5  # canary, three candidates, and the one that was sent again


async def test_work_of_a_lost_host_goes_elsewhere(world: World) -> None:
    a = await world.add("a")
    a.running.clear()
    evaluating = asyncio.ensure_future(world.fleet.evaluate(request()))
    await until(lambda: a.asked > 0)
    await world.add("b")
    del world.hosts.here["a"]
    a.lost.set()
    found = await evaluating
    assert found.profile is not None
    assert found.profile.host == "b"
    await until(lambda: world.standing("a") == "")
    assert ("a", "sick", "the node is gone") in world.reported


async def test_a_job_whose_host_is_lost_before_it_begins_goes_elsewhere(world: World) -> None:
    broken: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: broken.append(context))
    await world.add("a")
    judging = asyncio.ensure_future(world.fleet.evaluate(request()))
    await asyncio.sleep(0)  # it is placed, and its task is made but has not begun
    assert world.fleet._schedule.seats["a"].running
    del world.hosts.here["a"]
    await world.fleet._leave("a", "the node is gone")
    await world.add("b")
    assert (await judging).status is Status.PASSED
    gc.collect()
    assert broken == []


async def test_the_late_answer_of_a_frozen_host_counts_and_is_not_doubled(world: World) -> None:
    a, b = await world.add("a", 1), await world.add("b", 1)
    a.running.clear()
    b.running.clear()
    evaluating = asyncio.ensure_future(world.fleet.evaluate(request()))
    await until(lambda: a.asked > 0)
    await world.look(1.0)
    await world.look(SILENT_S + 1)  # both are silent: nobody can take it
    assert world.standing("a") == "silent"
    a.running.set()
    found = await evaluating
    assert found.profile is not None
    assert found.profile.host == "a"
    await until(lambda: world.standing("a") == "active")
    b.running.set()
    await world.look(1.0)
    await until(lambda: world.standing("b") == "active")
    assert "latency 90.0" not in b.device.done
    assert world.fleet.statistics()["waiting"] == 0


async def test_a_frozen_hosts_work_is_answered_by_another_and_its_own_answer_is_dropped(world: World) -> None:
    a = await world.add("a", 1)
    a.running.clear()
    evaluating = asyncio.ensure_future(world.fleet.evaluate(request()))
    await until(lambda: a.asked > 0)
    b = await world.add("b", 1)
    await world.look(1.0)
    world.now += SILENT_S + 1
    b_member_beats = world.fleet.look()
    await b_member_beats
    await until(lambda: "latency 90.0" in b.device.done or evaluating.done())
    assert (await evaluating).status is Status.PASSED
    a.running.set()
    await until(lambda: world.fleet.statistics()["slots_in_use"] == 0)
    assert world.fleet.statistics()["waiting"] == 0


async def test_a_host_wrong_in_one_kernel_is_named_and_set_aside_and_the_result_is_the_others(world: World) -> None:
    await world.add("a", wrong="tiled")
    await world.add("b")
    await world.add("c")
    found = await world.fleet.evaluate(request("latency 80.0 # tiled"))
    assert found.status is Status.PASSED
    assert world.standing("a") == "aside"
    assert any(host == "a" and "disagrees with b and c" in why for host, _, why in world.reported)
    assert found.profile is not None
    assert found.profile.host != "a"


async def test_a_kernel_that_wavers_is_wrong_and_costs_no_host_its_place(world: World) -> None:
    await world.add("a", wrong_once="tiled")
    await world.add("b")
    await world.add("c")
    found = await world.fleet.evaluate(request("latency 80.0 # tiled"))
    assert found.status is Status.INCORRECT_NUMERICAL
    assert {world.standing(name) for name in "abc"} == {"active"}


@pytest.mark.parametrize("wrong", ["a", "b"])
async def test_of_two_hosts_that_disagree_the_one_that_refuses_is_believed(world: World, wrong: str) -> None:
    for name in "ab":
        await world.add(name, wrong="tiled" if name == wrong else "")
    found = await world.fleet.evaluate(replace(request("latency 80.0 # tiled"), gate=Gate.STRICT))
    assert found.status is Status.INCORRECT_NUMERICAL
    assert {world.standing(name) for name in "ab"} == {"active"}


@pytest.mark.parametrize("frozen", [False, True])
async def test_a_second_opinion_whose_host_is_lost_is_not_waited_for(world: World, frozen: bool) -> None:
    await world.add("a", 1)
    b = await world.add("b", 1)
    b.running.clear()
    judging = asyncio.ensure_future(world.fleet.evaluate(replace(request("latency 80.0"), gate=Gate.STRICT)))
    await until(lambda: b.asked > 0)
    if frozen:
        await world.look(1.0)
        await world.look(SILENT_S + 1)
    else:
        del world.hosts.here["b"]
        b.lost.set()
    found = await asyncio.wait_for(judging, 300)
    assert found.status is Status.PASSED
    assert found.profile is not None
    assert found.profile.host == "a"


async def test_a_kernel_that_is_wrong_everywhere_is_wrong(world: World) -> None:
    for name in "abc":
        await world.add(name, wrong="tiled")
    assert (await world.fleet.evaluate(request("latency 80.0 # tiled"))).status is Status.INCORRECT_NUMERICAL
    assert {world.standing(name) for name in "abc"} == {"active"}


async def test_a_host_whose_canary_fails_evaluates_nothing(world: World) -> None:
    a = await world.add("a", 8, wrong="baseline")
    await world.add("b", 8)
    await world.add("c", 8)
    found = await asyncio.gather(*(world.fleet.evaluate(request(f"latency {90 - n}.0", n)) for n in range(12)))
    assert {one.profile.host for one in found if one.profile} == {"b", "c"}
    assert world.standing("a") == "aside"
    a.device.wrong = ""
    await world.fleet.undrain("a")
    assert world.standing("a") == "active"


async def test_a_single_host_that_fails_the_canary_is_an_error(world: World) -> None:
    await world.add("a", wrong="baseline")
    with pytest.raises(DeviceError, match="a fails the canary"):
        await world.fleet.evaluate(request())


async def test_latencies_come_in_the_runs_unit_whatever_the_hosts_clock(world: World) -> None:
    await world.add("slow", clock=1.2)
    found = await world.fleet.evaluate(request("latency 90.0"))
    assert found.latency_us == 90.0
    assert found.profile is not None
    assert found.profile.details["host_latency_us"] == pytest.approx(108.0)


async def test_a_kernel_that_was_timed_alone_is_held_against_the_canary(world: World) -> None:
    await world.add("slow", clock=1.2)
    other = Kernel("latency 50.0", "nki_legacy")
    asked = replace(request("latency 90.0"), against=(other,), against_us=(100.0,))
    found = await world.fleet.evaluate(replace(asked, gate=Gate.TIMING, against=(BASELINE,)))
    assert found.latency_us == 90.0


async def test_a_drained_host_ends_what_it_runs_and_gets_nothing_more(world: World) -> None:
    await world.add("a")
    await world.add("b")
    await world.fleet.drain("a")
    found = await asyncio.gather(*(world.fleet.evaluate(request(f"latency {90 - n}.0", n)) for n in range(4)))
    assert {one.profile.host for one in found if one.profile} == {"b"}
    with pytest.raises(UsageError, match="there is no host 'z'"):
        await world.fleet.drain("z")


async def test_a_host_of_other_versions_is_set_aside(world: World) -> None:
    from tests.acceld.cluster.conftest import FakeHost

    host = FakeHost("old", world.folder / "old")
    host.facts = replace(host.facts, versions=(("acceld", "0.0.1"),))
    world.hosts.here["old"] = host
    await world.look()
    await until(lambda: world.standing("old") == "aside")
    assert any("acceld 0.0.1 (here" in why for _, _, why in world.reported)


async def test_who_submits_too_much_is_held_up_but_a_save_is_not(world: World) -> None:
    a = await world.add("a", 1)
    a.running.clear()
    waiting = [asyncio.ensure_future(world.fleet.evaluate(request(f"latency {n}.0", n))) for n in range(100, 200)]
    await until(lambda: a.asked > 0)
    assert world.fleet.statistics()["waiting"] == 64
    saved = asyncio.ensure_future(
        world.fleet.evaluate(replace(request("latency 7.0", 7), run=0, priority=Priority.PERSON, canary=None))
    )
    await until(lambda: world.fleet.statistics()["waiting"] == 65)
    a.running.set()
    await asyncio.gather(*waiting, saved)
    assert a.device.done.index("latency 7.0") <= 3


async def test_work_waits_for_a_cluster_that_does_not_answer(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "FIRST_LOOK_S", 0.01)
    monkeypatch.setattr(fleet_module, "LOOK_S", 0.01)
    found, answers = world.hosts.found, [asyncio.Event(), asyncio.Event()]

    async def silent_then_lost(wanted: int) -> Mapping[str, Host]:
        if not answers[0].is_set():
            await answers[0].wait()  # nobody listens at the address, and Ray goes on trying
        if not answers[1].is_set():
            raise HostLostError("the Ray cluster 10.0.0.1:6379 can not be reached")
        return await found(wanted)

    monkeypatch.setattr(world.hosts, "found", silent_then_lost)
    await world.fleet.start()  # does not wait for the address
    try:
        assert world.fleet.statistics()["waits_for"] == "the cluster has not answered yet"
        waiting = asyncio.create_task(world.fleet.evaluate(request()))
        answers[0].set()
        await until(lambda: "10.0.0.1:6379 can not be reached" in str(world.fleet.statistics()["waits_for"]))
        assert not waiting.done()
        world.hosts.here["a"] = FakeHost("a", tmp_path / "a")
        answers[1].set()
        assert (await waiting).profile is not None
        assert world.fleet.statistics()["waits_for"] == ""
    finally:
        await world.fleet.stop(0.0)
