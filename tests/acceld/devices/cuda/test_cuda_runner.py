"""The GPU runner with a stand-in for NVIDIA's library: its calls, their order, and its distrust of the plan."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acceld.devices.cuda.driver import CudaDriver
from acceld.devices.cuda.libcuda import Driver, DriverError
from acceld.devices.cuda.plan import Buffer, Code, Launch, LaunchPlan, PlanRefused, Pointer, Scalar, decode, encode
from acceld.devices.cuda.runner import REPEATS, InputChanged, Replay, WroteBeyond, _Changing, prepare
from acceld.errors import DeviceError
from acceld.evaluate.hosted.driver import BuildRefused

SOURCE = Path(__file__).parents[3] / "standin_cuda" / "cuda.c"
COUNT = 16
SIZES = [4 * COUNT], [4 * COUNT]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in with")
    made = tmp_path_factory.mktemp("standin") / "libcuda-standin.so"
    subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", str(made), str(SOURCE)], check=True)
    return str(made)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # The stand-in opens its log once a process: every test reads the same file from where it began.
    path = Path(tmp_path.parent) / "calls.log"
    monkeypatch.setenv("STANDIN_CUDA_LOG", str(path))
    yield path


def plan(name: str = "scale", **changed: Any) -> LaunchPlan:
    out = Pointer("buffer", 0, 0)
    arguments = (Pointer("input", 0, 0), out, Scalar("fp32", 3.0), Scalar("i32", COUNT))
    values: dict[str, Any] = {
        "capability": 90,
        "buffers": (Buffer(4 * COUNT),),
        "kernels": (Code(name, b"code of it", 0, 4),),
        "launches": (Launch(0, (2, 1, 1), arguments),),
        "outputs": (out,),
    }
    return LaunchPlan(**(values | changed))


def job(library: str) -> dict[str, Any]:
    array = {"name": "x", "shape": [COUNT], "dtype": "float32"}
    settings = {"device": 0, "library": library, "flush_bytes": 8192}
    return {"arguments": [array, {"name": "factor", "value": 3.0}], "outputs": [array], "settings": settings}


def prepared(library: str, folder: Path, one: LaunchPlan) -> Any:
    path = folder / "plan"
    path.write_bytes(encode(one))
    return prepare(job(library), str(path))


def test_a_plan_survives_the_way_to_bytes_and_back() -> None:
    assert decode(encode(plan()), *SIZES) == plan()
    assert encode(plan()) == encode(plan())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"launches": (Launch(3, (1, 1, 1), ()),)}, "kernel 3"),
        ({"launches": (Launch(0, (0, 1, 1), ()),)}, "grid of 0"),
        ({"launches": (Launch(0, (1, 1, 1), (Pointer("input", 4, 0),)),)}, "input 4"),
        ({"launches": (Launch(0, (1, 1, 1), (Pointer("input", 0, 65),)),)}, "behind the end of input 0"),
        ({"buffers": (Buffer(4),)}, "not lie entirely"),
        ({"buffers": (Buffer(1 << 40),)}, "1099511627776 bytes, and"),
        ({"buffers": (Buffer(4, 256),)}, "not a byte"),
        ({"outputs": ()}, "0 outputs"),
        ({"outputs": (Pointer("input", 0, 0),)}, "not lie entirely"),
        ({"kernels": (Code("scale", b"x", 0, 64),)}, "warps"),
        ({"launches": (Launch(0, (1, 1, 1), ()),) * 300}, "more buffers or launches"),
    ],
)
def test_a_forged_plan_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanRefused, match=message):
        decode(encode(plan(**changed)), *SIZES)


@pytest.mark.parametrize("cut", [0, 3, 8, 40, -1])
def test_cut_or_garbled_bytes_are_no_plan(cut: int) -> None:
    with pytest.raises(PlanRefused):
        decode(encode(plan())[:cut], *SIZES)


def test_headers_of_other_types_are_no_plan() -> None:
    headers: tuple[Any, ...] = ([], {"version": 1}, {"version": 2}, {"version": 1, "kernels": [[1, -5, 0, 0]]})
    for header in headers:
        text = json.dumps(header).encode()
        with pytest.raises(PlanRefused):
            decode(struct.pack("<Q", len(text)) + text, *SIZES)


def test_numbers_that_do_not_fit_their_type_are_refused() -> None:
    with pytest.raises(PlanRefused, match="i32"):
        Scalar("i32", 1 << 40).packed()
    assert Scalar("i64", 1 << 40).packed() == struct.pack("<q", 1 << 40)


def test_a_call_runs_on_its_inputs_and_claims_the_devices_time(library: str, tmp_path: Path, log: Path) -> None:
    call = prepared(library, tmp_path, plan())
    for start in (0, 5):
        given, out = np.arange(start, start + COUNT, dtype=np.float32), np.zeros(COUNT, np.float32)
        assert call([given, 3.0], [out]) == pytest.approx(250.0, rel=1e-3)
        assert np.array_equal(out, given * 3)


def test_every_timed_launch_starts_from_worthless_memory_and_a_flushed_cache(
    library: str, tmp_path: Path, log: Path
) -> None:
    call = prepared(library, tmp_path, plan())
    before = len(log.read_text().splitlines())
    call([np.ones(COUNT, np.float32), 3.0], [np.zeros(COUNT, np.float32)])
    calls = log.read_text().splitlines()[before:]
    once = [
        "write",
        "load",
        "fill",
        *["fill"] * 2,  # the guard zones of input and output
        "flush",
        "event",
        "launch scale 2 1 1 threads 128 shared 0",
        "event",
        "wait",
        "read",
        *["read"] * 2,
        "unload",
    ]
    checked = [at for at, one in enumerate(calls) if one == "read" and calls[at - 1] == "unload"]
    assert len(checked) == 1, "the outputs of one sequence are read"
    assert [one for at, one in enumerate(calls) if at not in checked] == once * REPEATS
    assert "no heap" in log.read_text()


def test_a_sequence_that_the_device_had_to_wait_for_is_taken_again_behind_more_work(
    library: str, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = prepared(library, tmp_path, plan())
    before = len(log.read_text().splitlines())
    monkeypatch.setenv("STANDIN_CUDA_IDLE", "2")
    call([np.ones(COUNT, np.float32), 3.0], [np.zeros(COUNT, np.float32)])
    calls = log.read_text().splitlines()[before:]
    sequences = " ".join(calls).split("unload")[:-1]
    assert [one.count("flush") for one in sequences] == [1, 2, *[4] * REPEATS]
    assert all(one.index("flush") < one.index("event") < one.index("launch") for one in sequences)
    assert not any("wait" in one[: one.index("launch")] for one in sequences), "nothing lets the queue run dry"


def test_device_code_is_loaded_before_it_is_timed(library: str, tmp_path: Path, log: Path) -> None:
    prepared(library, tmp_path, plan())
    assert os.environ["CUDA_MODULE_LOADING"] == "EAGER"


def test_device_code_that_keeps_answers_gains_nothing(library: str, tmp_path: Path, log: Path) -> None:
    call = prepared(library, tmp_path, plan("cached"))
    given, out = np.arange(COUNT, dtype=np.float32), np.zeros(COUNT, np.float32)
    call([given, 3.0], [out])
    assert np.array_equal(out, given * 3), "a module loaded once would have idled from the second launch on"
    call([given + 1, 3.0], [out])
    assert np.array_equal(out, (given + 1) * 3)


def test_device_code_that_writes_its_input_is_refused(library: str, tmp_path: Path, log: Path) -> None:
    call = prepared(library, tmp_path, plan("marks"))
    with pytest.raises(InputChanged, match="changes input 0 of the kernel") as caught:
        call([np.arange(COUNT, dtype=np.float32), 3.0], [np.zeros(COUNT, np.float32)])
    assert caught.value.rule == "input_changed"


@pytest.mark.parametrize(("name", "what"), [("beyondin", "input 0"), ("beyondout", "allocation 0")])
def test_device_code_that_writes_behind_an_array_is_refused(
    name: str, what: str, library: str, tmp_path: Path, log: Path
) -> None:
    call = prepared(library, tmp_path, plan(name))
    with pytest.raises(WroteBeyond, match=f"behind the end of {what} of the kernel") as caught:
        call([np.arange(COUNT, dtype=np.float32), 3.0], [np.zeros(COUNT, np.float32)])
    assert caught.value.rule == "guard"


@pytest.mark.parametrize("name", ["recognizes", "remembers"])
def test_no_sequence_finds_the_inputs_of_an_earlier_one(name: str, library: str, tmp_path: Path, log: Path) -> None:
    call = prepared(library, tmp_path, plan(name))
    for given in (np.arange(COUNT, dtype=np.float32), np.eye(1, COUNT, dtype=np.float32)[0]):
        out = np.zeros(COUNT, np.float32)
        assert call([given, 3.0], [out]) == pytest.approx(250.0, rel=1e-3)
        assert np.array_equal(out, given * 3)


@pytest.mark.parametrize("equal", [0, 1, 100_000, 199_999])
def test_an_array_changes_however_few_of_its_elements_differ(equal: int) -> None:
    given = np.zeros(200_000, np.float32)
    given[equal:] = 1 if equal else np.arange(len(given))
    changing = _Changing(given)
    seen = {changing.changed(number).tobytes() for number in range(4)}
    assert len(seen) == 4 and given.tobytes() not in seen
    assert all(np.array_equal(np.sort(np.frombuffer(one, np.float32)), np.sort(given)) for one in seen)


@pytest.mark.parametrize("repeated", [1, 2, 3])
def test_a_repeated_sequence_does_not_find_its_own_inputs_either(
    repeated: int, library: str, tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = prepared(library, tmp_path, plan("recognizes"))
    idle = iter([True] * repeated)
    monkeypatch.setattr(Driver, "happened", lambda _, event: next(idle, False))
    seen: list[bytes] = []
    timed = Replay._timed

    def noted(self: Replay, arrays: Sequence[NDArray[Any]]) -> tuple[float, bool]:
        seen.append(arrays[0].tobytes())
        return timed(self, arrays)

    monkeypatch.setattr(Replay, "_timed", noted)
    given, out = np.arange(COUNT, dtype=np.float32), np.zeros(COUNT, np.float32)
    assert call([given, 3.0], [out]) == pytest.approx(250.0, rel=1e-3)
    assert len(seen) >= REPEATS + repeated and all(one != two for one, two in pairwise(seen))
    assert given.tobytes() in seen and np.array_equal(out, given * 3)


def test_device_code_that_works_in_the_last_of_five_sequences_only_is_wrong(
    library: str, tmp_path: Path, log: Path
) -> None:
    call = prepared(library, tmp_path, plan("counts"))
    given = np.arange(COUNT, dtype=np.float32)
    right = []
    for _ in range(40):
        out = np.zeros(COUNT, np.float32)
        call([given, 3.0], [out])
        right.append(np.array_equal(out, given * 3))
    assert sum(right) < 20, "one sequence of five is checked, and nothing tells which one"


@pytest.mark.parametrize(
    "given",
    [np.arange(COUNT, dtype=np.float32), np.eye(1, COUNT, 5, dtype=np.float32)[0], np.ones((4, 4), np.float32)],
    ids=["different", "two values", "equal"],
)
def test_the_inputs_that_are_checked_differ_from_the_others_as_these_differ_from_each_other(
    given: NDArray[Any],
) -> None:
    changing = _Changing(given)
    all_of_them = [given, *(changing.changed(number).copy() for number in range(1, 9))]
    distances = {int(np.count_nonzero(one != two)) for one in all_of_them for two in all_of_them if one is not two}
    assert len(distances) == 1


def test_what_host_code_fills_is_filled_in_the_measured_time(library: str, tmp_path: Path, log: Path) -> None:
    call = prepared(library, tmp_path, plan("idle", buffers=(Buffer(4 * COUNT, 0), Buffer(64))))
    before = len(log.read_text().splitlines())
    call([np.ones(COUNT, np.float32), 3.0], [np.zeros(COUNT, np.float32)])
    calls = log.read_text().splitlines()[before:]
    first = calls[: calls.index("unload")]
    begin, end = (at for at, one in enumerate(first) if one == "event")
    assert first[begin:end] == ["event", "fill", "launch idle 2 1 1 threads 128 shared 0"]
    assert first[:begin].count("fill") == 2 + 3, "and no allocation or guard zone keeps what an earlier sequence left"


def test_outputs_that_a_kernel_does_not_write_differ_from_call_to_call(library: str, tmp_path: Path, log: Path) -> None:
    call = prepared(library, tmp_path, plan("idle"))
    seen = set()
    for _ in range(12):
        out = np.zeros(COUNT, np.float32)
        call([np.ones(COUNT, np.float32), 3.0], [out])
        seen.add(out.tobytes())
    assert len(seen) > 1


def test_memory_that_host_code_zeroes_is_zero_before_each_launch(library: str, tmp_path: Path, log: Path) -> None:
    call = prepared(library, tmp_path, plan("idle", buffers=(Buffer(4 * COUNT, 0),)))
    out = np.ones(COUNT, np.float32)
    call([np.ones(COUNT, np.float32), 3.0], [out])
    assert not out.any()


def test_large_shared_memory_is_asked_for(library: str, tmp_path: Path, log: Path) -> None:
    prepared(library, tmp_path, plan(kernels=(Code("scale", b"code", 100_000, 8),)))
    assert "shared" in log.read_text().splitlines()


def test_device_code_the_driver_refuses_is_a_kernel_that_can_not_be_built(
    library: str, tmp_path: Path, log: Path
) -> None:
    with pytest.raises(BuildRefused, match="cuModuleLoadData: CUDA_ERROR_STANDIN"):
        prepared(library, tmp_path, plan(kernels=(Code("scale", b"broken", 0, 4),)))


def test_the_driver_starts_once_before_any_worker_or_says_why(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = CudaDriver(lambda _: "0, GPU-1, NVIDIA H100, 9.0, 580, 81559, 1, 1, 1, 0x0, Enabled, Disabled")
    driver.__dict__["library"] = library
    driver.learn(tmp_path)
    monkeypatch.setenv("STANDIN_CUDA_NO_DEVICE", "1")
    with pytest.raises(DeviceError, match=r"does not start: cuInit: CUDA_ERROR_NO_DEVICE \(100\)"):
        driver.learn(tmp_path)
    driver.__dict__["library"] = "libcuda-nowhere.so"
    with pytest.raises(DeviceError, match=r"does not start: .*libcuda-nowhere\.so"):
        driver.learn(tmp_path)


def test_no_device_and_no_library_are_named(library: str, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DriverError, match=r"libcuda-nowhere\.so can not be loaded"):
        Driver(0, "libcuda-nowhere.so")
    monkeypatch.setenv("STANDIN_CUDA_NO_DEVICE", "1")
    code = f"from acceld.devices.cuda.libcuda import Driver\nDriver(0, {library!r})"
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "cuInit: CUDA_ERROR_NO_DEVICE (100)" in done.stderr
