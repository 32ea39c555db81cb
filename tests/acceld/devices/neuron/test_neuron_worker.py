"""Records cross pipes undamaged; the scripts run under old interpreters and end with their parent."""

from __future__ import annotations

import ast
import asyncio
import io
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from acceld.devices.neuron.runtime.scripts import frames
from acceld.devices.neuron.runtime.worker import SCRIPTS, Worker, environment
from acceld.errors import DeadlineError, DeviceError
from tests.standin_neuron.machine import tool


def _old_pythons() -> list[str]:
    found = []
    for version in ("3.8", "3.9"):
        candidates = [str(p / "bin" / "python") for p in Path.home().glob(f".pyenv/versions/{version}.*")]
        candidates.append(shutil.which(f"python{version}") or "")
        for candidate in filter(None, candidates):
            if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
                found.append(candidate)
                break
    return found


STANDIN = Path(__file__).resolve().parents[3] / "standin_neuron"
OLD = _old_pythons()
old_python = pytest.mark.parametrize(
    "python",
    OLD or [pytest.param("", marks=pytest.mark.skip("no python3.8 or python3.9 on PATH or under pyenv"))],
)


@pytest.mark.parametrize("data", [b"", b"\0" * 7, random.Random(0).randbytes(70_000)], ids=["empty", "short", "long"])
def test_a_record_comes_back_as_it_was_written(data: bytes) -> None:
    stream = io.BytesIO(frames.pack({"op": "x", "name": "ä"}, data) + frames.pack({"op": "y"}))
    assert frames.read(stream) == ({"op": "x", "name": "ä"}, data)
    assert frames.read(stream) == ({"op": "y"}, b"")
    assert frames.read(stream) is None


@pytest.mark.parametrize("cut", [1, 15, 17, 25, 30])
def test_a_record_that_was_cut_off_is_an_error_and_never_an_end(cut: int) -> None:
    whole = frames.pack({"op": "run"}, b"12345678")
    with pytest.raises(frames.FrameError):
        frames.read(io.BytesIO(whole[:cut]))


def test_noise_and_lengths_beyond_the_limit_are_errors_before_anything_is_allocated() -> None:
    with pytest.raises(frames.FrameError, match="holds no record"):
        frames.head(b"Traceback (most ")
    with pytest.raises(frames.FrameError, match="allowed"):
        frames.head(frames.HEAD.pack(frames.MAGIC, 10, 1 << 60))
    with pytest.raises(frames.FrameError, match="not a JSON object"):
        frames.read(io.BytesIO(frames.HEAD.pack(frames.MAGIC, 2, 0) + b"[]"))


def test_the_scripts_import_only_the_standard_library_numpy_and_neuron() -> None:
    allowed = set(sys.stdlib_module_names) | {"numpy"} | {path.stem for path in SCRIPTS.glob("*.py")}
    for path in SCRIPTS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 8))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert {name.split(".")[0] for name in names} <= allowed, path.name


@old_python
@pytest.mark.parametrize("script", ["compile_worker.py", "runner.py"])
async def test_the_scripts_answer_under_an_old_interpreter(python: str, script: str, tmp_path: Path) -> None:
    worker = await Worker.start(python, script, folder=tmp_path, named={})
    request = {"op": "hello", "profiler": "/opt/aws/neuron/bin/neuron-profile", "runtime": "capture"}
    record, data = await worker.ask(request, deadline_s=300)
    assert record["ok"]
    assert record["python"].startswith(("3.8.", "3.9."))
    assert data == b""
    assert await worker.close()


async def test_a_request_before_hello_is_refused_and_the_runner_lives_on(tmp_path: Path) -> None:
    worker = await Worker.start(sys.executable, "runner.py", folder=tmp_path, named={})
    record, _ = await worker.ask({"op": "run"}, deadline_s=300)
    assert (record["ok"], record["kind"]) == (False, "protocol")
    record, _ = await worker.ask({"op": "hello", "profiler": ""}, deadline_s=300)
    assert (record["ok"], record["kind"]) == (False, "missing")
    assert "nrtpy" in record["message"]
    assert await worker.close()


async def test_a_worker_that_does_not_answer_is_ended_at_the_deadline(tmp_path: Path) -> None:
    silent = await Worker.start(
        sys.executable, "runner.py", folder=tmp_path, named={}, wrap=lambda command: ("sleep", "60")
    )
    with pytest.raises(DeadlineError, match="hello"):
        await silent.ask({"op": "hello"}, deadline_s=0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(silent.pid, 0)


async def test_a_worker_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    dying = await Worker.start(
        sys.executable,
        "runner.py",
        folder=tmp_path,
        named={},
        wrap=lambda command: (sys.executable, "-c", "import sys; sys.stderr.write('no driver'); sys.exit(3)"),
    )
    with pytest.raises(DeviceError, match="no driver"):
        await dying.ask({"op": "hello"}, deadline_s=300)


async def test_a_missing_interpreter_is_a_device_error(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="can not be started"):
        await Worker.start("/nowhere/python", "runner.py", folder=tmp_path, named={})


async def test_cancelling_a_request_ends_the_process(tmp_path: Path) -> None:
    silent = await Worker.start(
        sys.executable, "runner.py", folder=tmp_path, named={}, wrap=lambda command: ("sleep", "60")
    )
    asking = asyncio.create_task(silent.ask({"op": "hello"}, deadline_s=300))
    await asyncio.sleep(0.05)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(ProcessLookupError):
        os.kill(silent.pid, 0)


def test_a_child_gets_nothing_of_the_daemons_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    made = environment({"NEURON_CC_FLAGS": "--auto-cast=none"}, tmp_path, "/opt/venv/bin/python")
    assert "ANTHROPIC_API_KEY" not in made
    assert "PYTHONPATH" not in made
    assert made["HOME"] == str(tmp_path)
    assert made["NEURON_CC_FLAGS"] == "--auto-cast=none"


@old_python
async def test_an_old_interpreter_without_numpy_runs_a_neff_through_the_profiler(python: str, tmp_path: Path) -> None:
    profiler = tool(tmp_path, "neuron-profile")
    neff = tmp_path / "kernel.neff"
    neff.write_text('{"standin": 1, "inputs": ["a", "b"]}')
    named = {"ACCELD_STANDIN": "1", "NEURON_RT_VISIBLE_CORES": "0"}
    worker = await Worker.start(python, "runner.py", folder=tmp_path, named=named)
    await worker.ask({"op": "hello", "profiler": profiler, "runtime": "capture"}, deadline_s=300)
    specs = [{"name": name, "dtype": "float32", "shape": [1], "nbytes": 4} for name in ("a", "b", "output_0")]
    load = {"op": "load", "neff": str(neff), "folder": str(tmp_path), "traces": str(tmp_path / "traces")}
    record, _ = await worker.ask({**load, "inputs": specs[:2], "outputs": specs[2:]}, deadline_s=300)
    assert record["ok"], record
    record, data = await worker.ask({"op": "run"}, struct.pack("2f", 1.5, 2.5), deadline_s=300)
    assert (record["ok"], data) == (True, struct.pack("f", 4.0))
    record, _ = await worker.ask({"op": "run"}, b"short", deadline_s=300)
    assert (record["ok"], record["kind"]) == (False, "protocol")
    assert await worker.close()
