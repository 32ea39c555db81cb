"""Neuron software that behaves unexpectedly is handled, or reported with every known fact."""

from __future__ import annotations

import array
import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from acceld.config import DevicesConfig
from acceld.devices.neuron.evaluator import NeuronEvaluator
from acceld.devices.neuron.runtime.cache import NeffCache
from acceld.devices.neuron.runtime.compiler import NeuronCompiler
from acceld.devices.neuron.runtime.cores import check_cores, read_devices
from acceld.devices.neuron.runtime.requests import ROUTES, Tensor
from acceld.devices.neuron.runtime.runner import NeuronRunner, ProfilerError
from acceld.devices.neuron.runtime.scripts import neff
from acceld.devices.neuron.runtime.timing import Clock, Measurement, Round, folded, warmups_after
from acceld.devices.neuron.tools.reports import parse_neuron_ls
from acceld.errors import DeviceError
from acceld.evaluate.case import Failed
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.model import Gate, Status
from tests.acceld.devices.neuron.test_neuron_compiler import CURRENT, STANDIN, _compiler, _request
from tests.acceld.devices.neuron.test_neuron_evaluator import ONE, Asking, asking, evaluating  # noqa: F401  asking is a fixture
from tests.standin_neuron import neff_file
from tests.standin_neuron.machine import KERNEL, stand_in_machine, tool

ADD = (Tensor("a", "float32", (2, 3)), Tensor("b", "float32", (2, 3)))
OUT = Tensor("output_0", "float32", (2, 3))
ONES = array.array("f", [1.0] * 6).tobytes()
TWOS = array.array("f", [2.0] * 6).tobytes()


async def running(
    tmp_path: Path, modes: dict[str, str], *, runtime: str, outputs: Sequence[Tensor] = (OUT,), scenario: str = ""
) -> NeuronRunner:
    """Return a runner with a NEFF loaded, on the stand-in in some modes."""
    named = {f"STANDIN_{name}": value for name, value in modes.items()}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in named.items():
            patch.setenv(name, value)
        made = neff_file.pack([("a", 24), ("b", 24)], [("output_0", 24)])
    cache = NeffCache(tmp_path / "cache")
    compiled = cache.put("k", made, route="test", compiler_version="2.21.0+standin")
    work = tmp_path / "work"
    work.mkdir()
    named |= {"ACCELD_STANDIN": "1", "STANDIN_SCENARIO": scenario, "PYTHONPATH": str(STANDIN / "runtime")}
    runner = await NeuronRunner.start(
        sys.executable,
        core=0,
        folder=work,
        profiler=tool(tmp_path, "neuron-profile"),
        runtime=runtime,
        named=named,
    )
    loaded = await runner.load(compiled, ADD, outputs)
    assert loaded is None, loaded
    return runner


@pytest.mark.parametrize("runtime", ["nrtpy", "capture"])
async def test_outputs_with_other_names_are_matched_by_order_and_size_and_the_result_tells_so(
    runtime: str, tmp_path: Path
) -> None:
    runner = await running(tmp_path, {"NAMES": "python"}, runtime=runtime)
    assert await runner.run([ONES, ONES], deadline_s=300) == (TWOS,)
    assert any("result.0_sg00" in one for one in runner.reported)
    await runner.close()


@pytest.mark.parametrize("runtime", ["nrtpy", "capture"])
async def test_outputs_that_do_not_fit_are_reported_with_both_lists(runtime: str, tmp_path: Path) -> None:
    two = (OUT, Tensor("output_1", "bfloat16", (4, 4)))
    runner = await running(tmp_path, {}, runtime=runtime, outputs=two)
    result = await runner.run([ONES, ONES], deadline_s=300)
    assert isinstance(result, Failed)
    assert result.status is Status.INCORRECT_SHAPE
    assert "output_1 bfloat16[4, 4] of 32 bytes; the NEFF has output_0 of 24 bytes" in result.failure.message
    await runner.close()


def test_a_neff_tells_its_tensors_and_its_logical_core_size_and_other_bytes_tell_nothing() -> None:
    made = neff_file.pack([("x", 8)], [("y", 4), ("z", 2)], lnc=2)
    assert neff.facts_of(made) == neff.Facts(2, (("x", 8),), (("y", 4), ("z", 2)))
    assert neff.facts_of(b"\x7fELF" + made) == neff.facts_of(b"") == neff.NOTHING
    assert neff.facts_of(made[:1100]) == neff.Facts(2, (), ())


@pytest.mark.parametrize(
    ("reported", "names"),
    [
        ([("b", 2), ("a", 4)], ["a", "b"]),
        ([("p", 4), ("q", 2)], ["p", "q"]),
        ([("q", 2), ("p", 4)], ["p", "q"]),
        ([("p", 4)], None),
        ([("p", 4), ("q", 4)], None),
    ],
)
def test_tensors_are_paired_by_name_then_order_then_size(
    reported: list[tuple[str, int]], names: list[str] | None
) -> None:
    wanted = [{"name": name, "nbytes": size, "dtype": "u1", "shape": [size]} for name, size in (("a", 4), ("b", 2))]
    if names is not None:
        assert neff.pair(wanted, reported, "outputs") == names
        return
    with pytest.raises(ValueError, match=r"the kernel has a u1.*the NEFF has p of 4 bytes"):
        neff.pair(wanted, reported, "outputs")


@pytest.mark.parametrize("noise", ["warnings", "stderr"])
async def test_tools_that_warn_or_speak_on_stderr_are_understood(noise: str, tmp_path: Path) -> None:
    devices = await read_devices(
        tool(tmp_path, "neuron-ls"), {"ACCELD_STANDIN": "1", "STANDIN_NOISE": noise, "PATH": ""}
    )
    assert [one.index for one in devices] == [0, 1]
    runner = await running(tmp_path, {"NOISE": noise}, runtime="capture")
    assert await runner.run([ONES, ONES], deadline_s=300) == (TWOS,)
    measured = await runner.time("trn1", deadline_s=300, iterations=2)
    assert isinstance(measured, Measurement)
    assert any("saved output" in one for one in runner.reported)
    assert ("older than the tools" in "".join(runner.reported)) is ("warnings" in noise)
    await runner.close()


async def test_the_compilers_output_is_in_the_result(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asking: Asking,  # noqa: F811
) -> None:
    speaking = KERNEL.replace("    out = nl", "    print('a word of the compiler')\n    out = nl")
    async with evaluating(tmp_path, monkeypatch) as evaluator:
        found = await evaluator.evaluate(asking(speaking))
        assert found.status is Status.PASSED and found.profile is not None
        assert any("a word of the compiler" in one for one in found.profile.details["tools"])
        too_wide = await evaluator.evaluate(
            asking(speaking.replace("nl.arange(128)[:, None]", "nl.arange(256)[:, None]"))
        )
        assert too_wide.status is Status.COMPILE_ERROR
        assert "Traceback" in too_wide.log and "a word of the compiler" in too_wide.log


async def test_a_machine_whose_canary_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"did not add two arrays: runtime_error, .*NRT 1006"):
        async with evaluating(tmp_path, monkeypatch, scenario="oob"):
            pass


@pytest.mark.parametrize(("flavor", "lnc"), [("driver", 1), ("driver", 2)])
async def test_a_neff_for_another_logical_core_size_is_refused_with_both_figures(
    flavor: str, lnc: int, tmp_path: Path
) -> None:
    compiler = _compiler(tmp_path, flavor, named={"STANDIN_LNC": str(3 - lnc)})
    request = _request(CURRENT, "nki", "2.27.1+standin")
    request = dataclasses.replace(request, kernel=dataclasses.replace(request.kernel, lnc=lnc))
    with pytest.raises(DeviceError, match=f"for {3 - lnc} physical cores, but the kernel was to be compiled for {lnc}"):
        await compiler.compile(request)


async def test_the_profilers_failure_is_its_own_and_costs_neither_core_nor_kernel(tmp_path: Path) -> None:
    runner = await running(tmp_path, {}, runtime="capture", scenario="view fails")
    assert await runner.run([ONES, ONES], deadline_s=300) == (TWOS,)
    with pytest.raises(ProfilerError, match="the trace's schema is newer"):
        await runner.time("trn1", deadline_s=300, iterations=1)
    assert await runner.close(), "the core is clean"


async def test_device_time_stamps_stand_without_the_profiler(tmp_path: Path) -> None:
    runner = await running(tmp_path, {}, runtime="nrtpy", scenario="view fails")
    assert await runner.run([ONES, ONES], deadline_s=300) == (TWOS,)
    measured = await runner.time("trn2", deadline_s=300)
    assert isinstance(measured, Measurement)
    assert measured.best.method == "nrtpy device"
    assert any("the profiler failed" in one for one in runner.reported)
    await runner.close()


@pytest.mark.parametrize("scenario", ["start-up", "two events"])
async def test_slow_first_executions_and_several_events_an_execution_are_no_measurements(
    scenario: str, tmp_path: Path
) -> None:
    runner = await running(tmp_path, {}, runtime="nrtpy", scenario=scenario)
    assert await runner.run([ONES, ONES], deadline_s=300) == (TWOS,)
    measured = await runner.time("trn1", deadline_s=300)
    assert isinstance(measured, Measurement)
    assert measured.steady
    assert measured.latency_us == pytest.approx(500, rel=0.01)
    assert scenario == "start-up" or "2 events an execution: their sum counts" in measured.notes
    await runner.close()


@pytest.mark.parametrize(
    ("events", "lnc", "samples"),
    [
        ([1.0, 2.0], 1, (1.0, 2.0)),
        ([1.0, 2.0, 3.0, 4.0], 1, (3.0, 7.0)),
        ([1.0, 2.0, 3.0, 4.0], 2, (2.0, 4.0)),
        ([9.0, 1.0, 2.0], 1, (1.0, 2.0)),
        ([9.0, 9.0, 1.0, 2.0, 3.0, 4.0], 2, (2.0, 4.0)),
        ([1.0], 1, (1.0,)),
    ],
)
def test_events_are_folded_into_executions(events: list[float], lnc: int, samples: tuple[float, ...]) -> None:
    assert folded(events, 2, 1, lnc)[0] == samples


@pytest.mark.parametrize(
    ("samples", "warmups"),
    [((1100.0, 100.0, 100.0, 100.0), 4), ((100.0, 100.0, 100.0, 1100.0), 2), ((100.0, 300.0, 200.0, 900.0), 2)],
)
def test_only_a_round_that_begins_slowly_gets_more_warmups(samples: tuple[float, ...], warmups: int) -> None:
    assert warmups_after(Round(samples, "m", 0.0, None), "trn1", 2) == warmups


async def test_routes_are_tried_in_turn_and_calls_take_the_options_that_this_version_has(tmp_path: Path) -> None:
    named = {"STANDIN_API": "no _enable_simulation"}
    compiler = _compiler(tmp_path, "current", named=named)
    found = await compiler.compile(_request(CURRENT, "nki", "2.27.0+standin"))
    assert not isinstance(found, Failed), found.log
    assert found.route == "nki.framework.compiled"
    assert "_enable_simulation" not in compiler.signatures["nki.framework.compiled.CompileKernel"]


@pytest.mark.parametrize("api", ["no CompileKernel", "CompileKernel fails"])
async def test_a_route_that_is_gone_or_broken_leaves_the_next_which_is_remembered(
    api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with evaluating(tmp_path, monkeypatch, backend="neuron", compiler="several", modes={"API": api}) as evaluator:
        assert evaluator.statistics()["compile_route"] == ROUTES["nki"][1]
    kept = json.loads((tmp_path / "state" / "neuron" / "toolchains.json").read_text())
    assert [one["route"] for one in kept.values()] == [ROUTES["nki"][1]]


def test_the_daemon_and_the_worker_name_the_same_routes() -> None:
    script = Path(NeuronCompiler.__module__.replace(".", "/")).parent / "scripts" / "compile_worker.py"
    text = (STANDIN.parents[1] / script).read_text()
    assert all(f'"{name}"' in text for routes in ROUTES.values() for name in routes)


@pytest.mark.parametrize(
    ("reported", "said"),
    [
        ({"nc_count": 8, "neuroncore_ids": [0, 1, 2, 3]}, r"nc_count 8 and 4 core ids: \[0, 1, 2, 3\]"),
        (
            {"nc_count": 8, "logical_neuroncore_config": 2},
            "8 logical cores of 2 physical cores each, which makes 16; a trn2 has 8",
        ),
        ({"nc_count": 4, "logical_neuroncore_config": 2}, ""),
    ],
)
def test_logical_and_physical_cores_have_to_fit_together(reported: dict[str, object], said: str) -> None:
    devices = parse_neuron_ls(json.dumps([{"neuron_device": 0, "memory_size": 1, **reported}]))
    if not said:
        check_cores(devices, "trn2")
        return
    with pytest.raises(DeviceError, match=said):
        check_cores(devices, "trn2")


async def test_a_run_hears_first_how_it_is_timed_and_that_its_wins_could_not_be_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asking: Asking,  # noqa: F811
) -> None:
    heard: list[tuple[int, str, str]] = []

    async def on_notice(run: int, level: str, text: str) -> None:
        heard.append((run, level, text))

    async with evaluating(tmp_path, monkeypatch, on_notice=on_notice) as evaluator:
        assert evaluator.statistics()["clock"] == {
            "method": "nrtpy device",
            "resolution_us": 0.001,
            "least_win_us": 0.002,
        }
        coarse = Clock("neuron-profile total_time", 55.56)
        monkeypatch.setattr(evaluator._machine, "clock", coarse)
        await evaluator.evaluate(asking(KERNEL, Gate.TIMING, run=7))
        await evaluator.evaluate(asking(KERNEL, Gate.TIMING, run=7))
    (_, level, first), (_, warned, second) = (one for one in heard if one[0] == 7)
    assert (level, warned) == ("info", "warning")
    assert "neuron-profile total_time: resolution 55.56 µs, least visible win 111.12 µs" in first
    assert "neuronxcc.nki.baremetal" in first
    assert "a win in this run can not be measured" in second and "111.1 µs" in second


async def test_a_profiler_that_fails_ends_the_start_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = stand_in_machine(tmp_path, scenario="view fails", runtime="")
    tool(machine.folder, "neuron-profile")
    monkeypatch.setenv("PATH", str(machine.folder), prepend=":")
    for name, value in {"ACCELD_STANDIN": "1", "STANDIN_SCENARIO": "view fails"}.items():
        monkeypatch.setenv(name, value)
    (machine.folder / "neuron-profile").write_text(
        f"#!/bin/sh\nACCELD_STANDIN=1 STANDIN_SCENARIO='view fails' exec {shlex.quote(sys.executable)} "
        f'{shlex.quote(str(STANDIN / "bin" / "neuron-profile"))} "$@"\n'
    )
    devices = DevicesConfig(compile_python=machine.compile_python, runner_python=machine.runner_python)

    async def nobody() -> SimulatedEvaluator:
        raise AssertionError

    evaluator = NeuronEvaluator("neuron_legacy", ONE, devices, tmp_path / "state", nobody)
    with pytest.raises(ProfilerError, match="the profiler failed, but not the kernel"):
        await evaluator.start()


async def test_a_package_that_is_not_there_is_asked_for_once_a_jail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DeviceError, match="nki can not be imported") as reported:
        async with evaluating(tmp_path, monkeypatch, backend="neuron", compiler="legacy"):
            pass
    assert 1 < reported.value.message.count("nki can not be imported") <= 3
    assert "backend optimizations disabled" not in reported.value.message
