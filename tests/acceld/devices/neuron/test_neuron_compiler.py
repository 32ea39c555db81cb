"""A kernel is compiled once from shapes; the cache's key covers everything that affects the result."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acceld.devices.neuron.runtime import compiler as compiler_module
from acceld.devices.neuron.runtime.cache import Compiled, NeffCache
from acceld.devices.neuron.runtime.compiler import NeuronCompiler
from acceld.devices.neuron.runtime.requests import CompileRequest, Tensor
from acceld.errors import DeviceError
from acceld.evaluate.case import Failed
from acceld.model import Kernel, Status
from tests.acceld.devices.neuron.test_neuron_runner import older_pythons
from tests.standin_neuron import neff_file

STANDIN = Path(__file__).resolve().parents[3] / "standin_neuron"
LEGACY = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def add(a, b, scale=1):
    print("this must not reach the pipe")
    return nl.add(a, b)
"""
CURRENT = """\
import nki

@nki.jit
def add(a, b):
    return a + b
"""


def _request(
    text: str = LEGACY, api: str = "nki_legacy", version: str = "2.21.0+standin", rows: int = 128
) -> CompileRequest:
    target = "trn1" if api == "nki_legacy" else "trn2"
    return CompileRequest(
        kernel=Kernel(text, api, "add"),
        arguments=(Tensor("a", "float32", (rows, 4)), Tensor("b", "float32", (rows, 4))),
        target=target,
        compiler_version=version,
        api_version="",
        flags=("--disable-dge", "--auto-cast=none"),
    )


def _compiler(tmp_path: Path, flavor: str = "legacy", **options: Any) -> NeuronCompiler:
    named = {"PYTHONPATH": str(STANDIN / flavor), "ACCELD_STANDIN": "1", **options.pop("named", {})}
    pattern = options.pop("device_pattern", str(tmp_path / "none*"))
    return NeuronCompiler(sys.executable, NeffCache(tmp_path / "cache"), named=named, device_pattern=pattern, **options)


CHANGES: dict[str, Callable[[CompileRequest], CompileRequest]] = {
    "source": lambda r: _with_kernel(r, text=LEGACY + "\n"),
    "closure": lambda r: _with_kernel(r, closure={"helper.py": "X = 1"}),
    "entry": lambda r: _with_kernel(r, entry="other"),
    "api": lambda r: _with_kernel(r, api="nki"),
    "grid": lambda r: _with_kernel(r, grid=(2,)),
    "lnc": lambda r: _with_kernel(r, lnc=2),
    "shape": lambda r: dataclasses.replace(r, arguments=(Tensor("a", "float32", (128, 8)), r.arguments[1])),
    "dtype": lambda r: dataclasses.replace(r, arguments=(Tensor("a", "bfloat16", (128, 4)), r.arguments[1])),
    "order": lambda r: dataclasses.replace(r, arguments=r.arguments[::-1]),
    "scalar": lambda r: dataclasses.replace(r, scalars={"scale": 1}),
    "scalar's type": lambda r: dataclasses.replace(r, scalars={"scale": 1.0}),
    "target": lambda r: dataclasses.replace(r, target="trn2"),
    "API version": lambda r: dataclasses.replace(r, api_version="0.3.0"),
    "compiler version": lambda r: dataclasses.replace(r, compiler_version="2.22"),
    "flag": lambda r: dataclasses.replace(r, flags=("--auto-cast=none",)),
    "flag order": lambda r: dataclasses.replace(r, flags=r.flags[::-1]),
    "environment": lambda r: dataclasses.replace(r, environment={"NKI_PRECISE_FP": "0"}),
}


def _with_kernel(request: CompileRequest, **changes: Any) -> CompileRequest:
    return dataclasses.replace(request, kernel=dataclasses.replace(request.kernel, **changes))


@pytest.mark.parametrize("what", CHANGES)
def test_each_thing_that_decides_a_neff_alone_makes_a_miss(what: str, tmp_path: Path) -> None:
    cache = NeffCache(tmp_path)
    plain, changed = _request(), CHANGES[what](_request())
    cache.put(plain.key, b"NEFF", route="test", compiler_version="1")
    assert cache.get(plain.key) is not None
    assert cache.get(changed.key) is None
    others = {name: change(_request()).key for name, change in CHANGES.items()}
    assert len({plain.key, *others.values()}) == 1 + len(others)


def test_what_does_not_decide_a_neff_makes_no_miss() -> None:
    assert _request().key == _with_kernel(_request(), filename="other.py", trusted=True).key
    assert dataclasses.replace(_request(), scalars={"a": 1, "b": 2}).key == (
        dataclasses.replace(_request(), scalars={"b": 2, "a": 1}).key
    )


async def test_a_legacy_kernel_becomes_a_neff_once(tmp_path: Path) -> None:
    compiler = _compiler(tmp_path)
    first, second = await asyncio.gather(compiler.compile(_request()), compiler.compile(_request()))
    assert isinstance(first, Compiled)
    assert first == second
    assert compiler.compiled == 1
    written = neff_file.unpack(first.neff)
    assert written["inputs"] == ["a", "b"]
    assert written["flags"].split() == ["--target=trn1", "--logical-nc-config=1", "--disable-dge", "--auto-cast=none"]
    assert first.route == "neuronxcc.nki.baremetal"


@pytest.mark.parametrize(
    ("flavor", "version", "route"),
    [
        ("current", "2.27.0+standin", "nki.framework.compiled"),
        ("driver", "2.27.1+standin", "nki.compiler.frontend"),
        ("tracer", "2.28.7631+standin", "nki.compiler.frontend"),
    ],
)
async def test_a_current_kernel_becomes_a_neff(flavor: str, version: str, route: str, tmp_path: Path) -> None:
    result = await _compiler(tmp_path, flavor).compile(_request(CURRENT, "nki", version))
    assert isinstance(result, Compiled), result
    assert result.route == route


async def test_a_compile_error_is_a_result_with_the_simulators_class_and_the_kernels_line(tmp_path: Path) -> None:
    result = await _compiler(tmp_path).compile(_request(rows=256))
    assert isinstance(result, Failed)
    assert result.status is Status.COMPILE_ERROR
    assert (result.failure.rule, result.failure.line) == ("partition_limit", 7)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("import os; os._exit(0)", Status.COMPILE_ERROR),
        ("import time; time.sleep(60)", Status.TIMEOUT),
        ("raise SystemExit(0)", Status.COMPILE_ERROR),
        ("import os; os.kill(os.getpid(), 11)", Status.COMPILE_ERROR),
    ],
)
async def test_a_kernel_that_ends_or_holds_its_compiler_is_a_result(body: str, status: Status, tmp_path: Path) -> None:
    result = await _compiler(tmp_path, build_s=2.0).compile(_request(body + "\n" + LEGACY))
    assert isinstance(result, Failed)
    assert result.status is status


async def test_an_option_the_compiler_does_not_know_is_an_error_of_the_stand_in_too(tmp_path: Path) -> None:
    result = await _compiler(tmp_path).compile(dataclasses.replace(_request(), flags=("--fastest",)))
    assert isinstance(result, Failed)
    assert "--fastest" in result.failure.message


async def test_a_device_is_hidden_from_the_compiler_or_nothing_is_compiled(tmp_path: Path) -> None:
    device = tmp_path / "neuron0"
    device.write_text("untouched")
    pattern = str(tmp_path / "neuron*")
    compiler = _compiler(tmp_path, named={"STANDIN_DEVICES": pattern}, device_pattern=pattern)
    try:
        result = await compiler.compile(_request())
    except DeviceError as error:
        assert "hidden" in error.message
    else:
        assert isinstance(result, Compiled)
    assert device.read_text() == "untouched"


async def test_a_missing_compiler_is_reported_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="neuronxcc"):
        await NeuronCompiler(sys.executable, NeffCache(tmp_path), device_pattern="").compile(_request())
    with pytest.raises(DeviceError, match="Deep Learning AMI"):
        await NeuronCompiler(sys.executable, NeffCache(tmp_path), device_pattern="").versions()


async def test_a_compiler_that_was_exchanged_is_an_error_and_no_entry(tmp_path: Path) -> None:
    compiler = _compiler(tmp_path)
    assert (await compiler.versions()).compiler == "2.21.0+standin"
    other = _request(version="2.20")
    with pytest.raises(DeviceError, match=r"2\.20"):
        await compiler.compile(other)
    assert compiler.cache.get(other.key) is None


def test_an_entry_whose_bytes_changed_is_a_miss_and_is_deleted(tmp_path: Path) -> None:
    cache = NeffCache(tmp_path)
    entry = cache.put("k", b"NEFF", route="test", compiler_version="1")
    entry.neff.write_bytes(b"FFEN")
    assert cache.get("k") is None
    assert not (tmp_path / "k").exists()
    assert cache.put("k", b"NEFF", route="test", compiler_version="1") == entry
    assert cache.put("k", b"late", route="test", compiler_version="1").sha256 == entry.sha256


async def test_the_stand_in_refuses_to_work_outside_the_tests(tmp_path: Path) -> None:
    compiler = _compiler(tmp_path, named={"ACCELD_STANDIN": "0"})
    with pytest.raises(DeviceError, match="outside"):
        await compiler.compile(_request())


async def test_a_kernel_that_leaves_a_process_behind_does_not_hold_up_its_compile(tmp_path: Path) -> None:
    over = tmp_path / "over"
    wait = f"    while not os.path.exists({str(over)!r}):\n        time.sleep(0.1)\n"
    stray = f"import os, time\nif os.fork() == 0:\n    os.setsid()\n{wait}    os._exit(0)\n"
    try:
        async with asyncio.timeout(300):
            result = await _compiler(tmp_path).compile(_request(stray + LEGACY))
    finally:
        over.touch()
    assert isinstance(result, Compiled)


async def test_devices_are_hidden_where_namespaces_are_allowed(tmp_path: Path) -> None:
    device = tmp_path / "neuron0"
    device.write_text("untouched")
    script = "import sys; sys.path.insert(0, sys.argv[1]); import confine; print(confine.hide(sys.argv[2]))"
    folder = str(Path(compiler_module.__file__).parent / "scripts")
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, folder, str(tmp_path / "neuron*"), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await done.communicate()
    assert out.decode().strip() in ("[]", str([str(device)]))


async def test_the_compile_worker_works_under_the_oldest_python_there_is(tmp_path: Path) -> None:
    pythons = await asyncio.to_thread(older_pythons)
    if not pythons:
        pytest.skip("no older Python")
    named = {"PYTHONPATH": str(STANDIN / "legacy"), "ACCELD_STANDIN": "1"}
    pattern = str(tmp_path / "none*")
    compiler = NeuronCompiler(pythons[0], NeffCache(tmp_path / "cache"), named=named, device_pattern=pattern)
    versions = await compiler.versions()
    assert versions.compiler == "2.21.0+standin"
    try:
        compiled = await compiler.compile(_request())
    except DeviceError as error:
        assert "numpy" in error.message, "an interpreter without numpy says so"
    else:
        assert isinstance(compiled, Compiled)
