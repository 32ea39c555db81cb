"""A runner runs a NEFF on data and times it; a time without proof that the device ran is an error."""

from __future__ import annotations

import array
import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceld.devices.neuron.runtime.cache import Compiled, NeffCache
from acceld.devices.neuron.runtime.requests import CompileRequest, Tensor
from acceld.devices.neuron.runtime.runner import NeuronRunner, size_of
from acceld.devices.neuron.runtime.timing import Measurement, Round, choose, profile_from, read_round
from acceld.errors import DeviceError
from acceld.evaluate.case import Failed
from acceld.model import Kernel, Source, Status
from tests.standin_neuron.machine import tool

STANDIN = Path(__file__).resolve().parents[3] / "standin_neuron"
ADD = (Tensor("a", "float32", (2, 3)), Tensor("b", "float32", (2, 3)))
OUT = (Tensor("output_0", "float32", (2, 3)),)
ONES = array.array("f", [1.0] * 6).tobytes()
REQUEST = CompileRequest(Kernel("", "nki_legacy", "add"), ADD, "trn1", "2.21", "", flags=("--disable-dge",), scalars={})


def _tool(folder: Path, name: str = "neuron-profile") -> str:
    folder.mkdir(exist_ok=True)
    return tool(folder, "neuron-profile", called=name)


def _compiled(tmp_path: Path, version: str = "2.21.0+standin") -> Compiled:
    cache = NeffCache(tmp_path / "cache")
    return cache.put("k", b'{"standin": 1, "inputs": ["a", "b"]}', route="test", compiler_version=version)


def older_pythons() -> list[str]:
    """Return interpreters from 3.8 on that are older than this one: on PATH, or pyenv's."""
    found: dict[str, str] = {}
    for minor in range(8, sys.version_info.minor):
        own = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3.{minor}"))
        if path := next(iter(map(str, own)), None) or shutil.which(f"python3.{minor}"):
            found[f"3.{minor}"] = path
    return list(found.values())


async def _runner(tmp_path: Path, scenario: str = "", runtime: str = "capture", **options: Any) -> NeuronRunner:
    folder = tmp_path / "work"
    folder.mkdir()
    named = {"ACCELD_STANDIN": "1", "STANDIN_SCENARIO": scenario, "PYTHONPATH": str(STANDIN / "runtime")}
    named |= options.pop("named", {})
    profiler = options.pop("profiler", None)
    profiler = _tool(tmp_path / "bin") if profiler is None else profiler
    python = options.pop("python", sys.executable)
    runner = await NeuronRunner.start(
        python, core=3, folder=folder, profiler=profiler, runtime=runtime, named=named, **options
    )
    assert await runner.load(_compiled(tmp_path), ADD, OUT) is None
    return runner


@pytest.mark.parametrize("runtime", ["capture", "nrtpy", "spike"])
async def test_a_neff_is_run_on_data_and_timed(runtime: str, tmp_path: Path) -> None:
    runner = await _runner(tmp_path, runtime=runtime)
    assert await runner.run([ONES, ONES], deadline_s=300) == (array.array("f", [2.0] * 6).tobytes(),)
    measured = await runner.time("trn1", deadline_s=300)
    assert isinstance(measured, Measurement)
    assert measured.steady
    assert len(measured.best.samples_us) == 10
    methods = {"capture": "neuron-profile total_time", "nrtpy": "nrtpy device", "spike": "spike device"}
    assert measured.best.method == methods[runtime]
    assert measured.best.resolution_us == (55.56 if runtime == "capture" else 0.001)
    assert list((_compiled(tmp_path).traces / "core3").glob("*.ntff"))
    assert await runner.close()


def _library(tmp_path: Path) -> dict[str, str]:
    """Compile the stand-in for libnrt; return the variable that makes it the one that is found."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = STANDIN / "runtime" / "libnrt.c", tmp_path / "libnrt.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": ""}


async def test_libnrt_runs_and_the_profiler_times_where_no_package_is_installed(tmp_path: Path) -> None:
    named = _library(tmp_path)
    runner = await _runner(tmp_path, runtime="", named=named)
    assert runner.runtime == "libnrt"
    assert await runner.run([ONES, ONES], deadline_s=300) == (array.array("f", [2.0] * 6).tobytes(),)
    measured = await runner.time("trn1", deadline_s=300, iterations=2)
    assert isinstance(measured, Measurement)
    assert measured.best.method == "neuron-profile total_time"
    await runner.close()
    (tmp_path / "second").mkdir()
    bad = await _runner(tmp_path / "second", "oob", runtime="libnrt", named=named, profiler="")
    result = await bad.run([ONES, ONES], deadline_s=300)
    assert isinstance(result, Failed)
    assert result.failure.rule == "out_of_bounds"
    await bad.close()


async def test_the_runner_works_under_the_oldest_python_there_is(tmp_path: Path) -> None:
    pythons = await asyncio.to_thread(older_pythons)
    if not pythons:
        pytest.skip("no older Python")
    for runtime, named in (("capture", {"PYTHONPATH": ""}), ("libnrt", _library(tmp_path))):
        folder = tmp_path / runtime
        folder.mkdir()
        runner = await _runner(folder, runtime=runtime, python=pythons[0], named=named)
        assert await runner.run([ONES, ONES], deadline_s=300) == (array.array("f", [2.0] * 6).tobytes(),)
        assert isinstance(await runner.time("trn1", deadline_s=300, iterations=1), Measurement)
        await runner.close()


async def test_without_a_profiler_libnrt_has_no_clock(tmp_path: Path) -> None:
    runner = await _runner(tmp_path, runtime="libnrt", named=_library(tmp_path), profiler="")
    await runner.run([ONES, ONES], deadline_s=300)
    with pytest.raises(DeviceError, match="no clock of the device"):
        await runner.time("trn1", deadline_s=300)
    await runner.close()


async def test_a_stand_in_is_never_called_measured_and_its_profile_tells_how_it_was_timed(tmp_path: Path) -> None:
    runner = await _runner(tmp_path)
    await runner.run([ONES, ONES], deadline_s=300)
    measured = await runner.time("trn1", deadline_s=300)
    assert isinstance(measured, Measurement)
    profile = profile_from(measured, _compiled(tmp_path), REQUEST)
    assert profile.source is Source.SIMULATED
    assert profile.method == "stand-in for neuron-profile total_time"
    assert profile.samples_us == measured.best.samples_us
    assert profile.details["throttled_percent"] == pytest.approx(99)
    assert profile.details["dge"] == "disabled"
    assert profile.counters["hbm_read_bytes"] == 4096
    await runner.close()


async def test_the_newer_profiler_is_another_method(tmp_path: Path) -> None:
    runner = await _runner(tmp_path, profiler=_tool(tmp_path / "bin", "neuron-explorer"))
    measured = await runner.time("trn2", deadline_s=300, iterations=2)
    assert isinstance(measured, Measurement)
    assert measured.best.method == "neuron-explorer total_time"
    assert measured.best.resolution_us is None
    assert "resolution of neuron-explorer total_time on trn2 is not known" in measured.notes[-1]
    await runner.close()


async def test_rounds_repeat_until_one_is_steady_and_all_samples_are_kept(tmp_path: Path) -> None:
    runner = await _runner(tmp_path, "settles")
    measured = await runner.time("trn1", deadline_s=300)
    assert isinstance(measured, Measurement)
    assert (len(measured.rounds), measured.chosen, measured.steady) == (3, 2, True)
    assert not measured.rounds[0].steady("trn1")
    await runner.close()


async def test_rounds_end_at_the_most_allowed_and_the_unsteady_result_says_so(tmp_path: Path) -> None:
    runner = await _runner(tmp_path, "noisy")
    measured = await runner.time("trn1", deadline_s=300, max_rounds=2)
    assert isinstance(measured, Measurement)
    assert (len(measured.rounds), measured.steady) == (2, False)
    assert "not steady after 2 rounds" in measured.notes
    await runner.close()


@pytest.mark.parametrize(
    ("scenario", "status", "rule", "clean"),
    [
        ("nan", Status.INCORRECT_NUMERICAL, "not_finite", True),
        ("oob", Status.RUNTIME_ERROR, "out_of_bounds", False),
    ],
)
async def test_a_kernels_own_runtime_error_is_a_result(
    scenario: str, status: Status, rule: str, clean: bool, tmp_path: Path
) -> None:
    runner = await _runner(tmp_path, scenario)
    result = await runner.run([ONES, ONES], deadline_s=300)
    assert isinstance(result, Failed)
    assert (result.status, result.failure.rule) == (status, rule)
    assert await runner.close() is clean


async def test_nrtpys_error_is_the_same_result(tmp_path: Path) -> None:
    runner = await _runner(tmp_path, "oob", "nrtpy")
    result = await runner.run([ONES, ONES], deadline_s=300)
    assert isinstance(result, Failed)
    assert result.failure.rule == "out_of_bounds"
    await runner.close()


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ("idle", "no activity"),
        ("truncated", "no JSON"),
        ("no trace", "no trace of execution 12"),
    ],
)
async def test_a_time_without_proof_that_the_device_ran_is_an_error(scenario: str, said: str, tmp_path: Path) -> None:
    runner = await _runner(tmp_path, scenario)
    with pytest.raises(DeviceError, match=said):
        await runner.time("trn1", deadline_s=300)
    await runner.close()


async def test_device_time_stamps_that_are_missing_are_an_error(tmp_path: Path) -> None:
    runner = await _runner(tmp_path, "lost events", "nrtpy")
    await runner.run([ONES, ONES], deadline_s=300)
    with pytest.raises(DeviceError, match="the device may not have run 10 times"):
        await runner.time("trn2", deadline_s=300)
    await runner.close()


@pytest.mark.parametrize("scenario", ["hardware", "crash"])
async def test_a_device_that_fails_is_an_error_and_leaves_its_core_unclean(scenario: str, tmp_path: Path) -> None:
    runner = await _runner(tmp_path, scenario)
    with pytest.raises(DeviceError):
        await runner.run([ONES, ONES], deadline_s=300)
    assert not await runner.close()


async def test_a_kernel_that_hangs_is_ended_at_its_deadline_with_all_its_processes(tmp_path: Path) -> None:
    runner = await _runner(tmp_path, "hang")
    result = await runner.run([ONES, ONES], deadline_s=0.5)
    assert isinstance(result, Failed)
    assert result.status is Status.TIMEOUT
    assert not runner.clean
    assert not _users_of(tmp_path / "bin")


_DAEMON = """
import asyncio, sys
from pathlib import Path
from acceld.devices.neuron.runtime.cache import Compiled
from acceld.devices.neuron.runtime.requests import Tensor
from acceld.devices.neuron.runtime.runner import NeuronRunner, size_of

async def main(folder, profiler):
    named = {"ACCELD_STANDIN": "1", "STANDIN_SCENARIO": "hang"}
    runner = await NeuronRunner.start(sys.executable, core=0, folder=folder, profiler=profiler, named=named)
    (folder / "kernel.neff").write_text('{"inputs": ["a"]}')
    one = Tensor("a", "float32", (1,))
    await runner.load(Compiled("k", folder / "kernel.neff", "", "", ""), [one], [one])
    await runner.run([b"1234"], deadline_s=300)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


def test_no_child_outlives_a_daemon_that_is_killed(tmp_path: Path) -> None:
    profiler = _tool(tmp_path / "bin")
    with subprocess.Popen([sys.executable, "-c", _DAEMON, str(tmp_path), profiler]) as daemon:
        assert _eventually(lambda: bool(_users_of(tmp_path / "bin", "capture")))
        daemon.kill()
    assert _eventually(lambda: not _users_of(tmp_path / "bin"))


def _eventually(holds: Callable[[], bool]) -> bool:
    for _ in range(6000):
        if holds():
            return True
        time.sleep(0.05)
    return False


def _users_of(folder: Path, *also: str) -> list[str]:
    return [
        pid for pid in os.listdir("/proc") if pid.isdigit() and all(_holds(pid, one) for one in (str(folder), *also))
    ]


def _holds(pid: str, text: str) -> bool:
    try:
        return text in Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return False


async def test_a_busy_core_is_waited_for_and_only_for_so_long(tmp_path: Path) -> None:
    runner = await _runner(tmp_path, "busy")
    assert not isinstance(await runner.run([ONES, ONES], deadline_s=300), Failed)
    assert await runner.close()
    (tmp_path / "second").mkdir()
    stubborn = await _runner(tmp_path / "second", "always busy", busy_s=0.1)
    with pytest.raises(DeviceError, match="stayed busy"):
        await stubborn.run([ONES, ONES], deadline_s=300)
    await stubborn.close()


async def test_without_a_runtime_or_profiler_there_is_no_runner(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="a NEFF can not be run"):
        await NeuronRunner.start(sys.executable, core=0, folder=tmp_path)


def test_a_profile_of_real_software_is_measured() -> None:
    rounds = [Round((100.0, 101.0), "nrtpy device", 0.001, None)]
    compiled = Compiled("k", Path("/x/kernel.neff"), "", "route", "2.28.7631.0")
    profile = profile_from(choose(rounds, "trn2", "nrtpy 2.35.30"), compiled, REQUEST)
    assert (profile.source, profile.latency_us) == (Source.MEASURED, 100.5)
    assert profile.interval_percent == pytest.approx(100 * 0.5 / 100.5)


@pytest.mark.parametrize(
    ("chip", "samples", "resolution", "steady"),
    [
        ("trn1", (100.0, 101.0), 0.0, True),
        ("trn1", (100.0, 101.1), 0.0, False),
        ("trn2", (100.0, 104.0), 0.0, True),
        ("trn2", (100.0, 104.1), 0.0, False),
        ("trn1", (111.12, 166.68), 55.56, True),
        ("trn1", (111.12, 222.24), 55.56, False),
        ("trn2", (100.0, 104.1), None, False),
    ],
)
def test_steady_is_within_the_chips_limit_or_the_methods_resolution(
    chip: str, samples: tuple[float, ...], resolution: float | None, steady: bool
) -> None:
    assert Round(samples, "m", resolution, None).steady(chip) is steady


def test_rounds_by_two_methods_are_never_one_measurement() -> None:
    with pytest.raises(ValueError, match="one method"):
        choose([Round((1.0,), "a", 0.0, None), Round((1.0,), "b", 0.0, None)], "trn1", "")


@pytest.mark.parametrize("samples", [[1.0] * 9, [1.0] * 9 + [0.0], [1.0] * 9 + [float("inf")], [float("nan")] * 10])
def test_too_few_or_impossible_times_are_no_round(samples: list[float]) -> None:
    with pytest.raises(DeviceError, match="may not have run"):
        read_round({"method": "nrtpy device", "samples_us": samples, "resolution_us": 0.001}, 10, "trn2")


def test_sizes_count_the_dtypes_of_ml_dtypes_too() -> None:
    assert size_of(Tensor("x", "bfloat16", (128, 4))) == 1024
    assert size_of(Tensor("x", "float8_e4m3fn", (128, 4))) == 512
    assert size_of(Tensor("x", "int32", ())) == 4
