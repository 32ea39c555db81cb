"""Do one step of the GPU trial in its own process, and print what it found as one line of JSON.

    python -m scripts.gpu_steps STEP [--highest L3] [words of the step]

``scripts/gpu_trial.py`` starts each step with a deadline. So a step that hangs or crashes does not end the
trial.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import importlib.util
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from acceld.devices.cuda.driver import CudaDriver
from acceld.devices.cuda.libcuda import Driver
from acceld.devices.cuda.plan import Buffer, Code, Launch, LaunchPlan, Pointer, Scalar, encode
from acceld.errors import AcceldError
from acceld.evaluate.case import Failed
from acceld.evaluate.hosted.arena import lay_out
from acceld.evaluate.hosted.bench import Artefact, Bench, Kept, Terms, TimedSession, oracle_jail
from acceld.evaluate.hosted.driver import job_of
from acceld.evaluate.sandbox import linux, seccomp
from acceld.evaluate.sandbox.jail import Level
from acceld.evaluate.sandbox.ladder import probe_level
from acceld.evaluate.sandbox.messages import send
from acceld.evaluate.sandbox.process import Zygote

Found = dict[str, Any]
COUNT, FACTOR, THREADS = 1 << 16, 3.0, 128
PTX = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 source, .param .u64 result, .param .f32 factor, .param .u32 count)
{
    .reg .pred %beyond;
    .reg .b32 %block, %width, %thread, %place, %count;
    .reg .b64 %source, %result, %offset;
    .reg .f32 %value, %factor;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %place, %block, %width, %thread;
    ld.param.u32 %count, [count];
    setp.ge.u32 %beyond, %place, %count;
    @%beyond bra done;
    ld.param.u64 %source, [source];
    ld.param.u64 %result, [result];
    ld.param.f32 %factor, [factor];
    mul.wide.u32 %offset, %place, 4;
    add.u64 %source, %source, %offset;
    add.u64 %result, %result, %offset;
    ld.global.f32 %value, [%source];
    mul.f32 %value, %value, %factor;
    st.global.f32 [%result], %value;
done:
    ret;
}
"""
"""A kernel that multiplies an array by a number: the first steps need nothing else, so they work without Triton."""
_DECODE = ((1, 4096), (8, 16384), (128, 65536))
_PREFILL = ((1, 512, 512), (1, 4096, 4096), (32, 4096, 16384))
POINTS: Mapping[str, tuple[Mapping[str, int], ...]] = {
    "gqa_paged_decode": tuple(
        {"BATCH": batch, "TOKENS": tokens, "PAGES": tokens + tokens // 16} for batch, tokens in _DECODE
    ),
    "gqa_paged_prefill": tuple(
        {"BATCH": batch, "QUERIES": queries, "TOKENS": tokens, "PAGES": tokens + tokens // 16}
        for batch, queries, tokens in _PREFILL
    ),
    "rmsnorm": ({"ROWS": 64},),
}
"""Further batches and lengths at which a workload's best kernel, its baseline and torch's kernels are measured, by the
beginning of its name.
"""
_ANSWER_S = 600.0
"""Longest wait in seconds for the daemon's measurement. The trial's own deadline for the step is shorter."""
_BUILD_S = 60.0
_MEMORY_BYTES = 4 << 30
_DONE_S = 10.0


def check(given: argparse.Namespace) -> Found:
    """Find the GPU, the driver's library, Triton and torch. Raise DeviceError, with what to do, if one is
    missing.
    """
    driver = CudaDriver()
    facts = {
        "gpu": driver.gpus[0].name,
        "gpus": len(driver.gpus),
        "chip": driver.gpu.name if driver.gpu else None,
        "library": driver.library,
        "device_files": driver.running("triton", "", driver.leases()[0]).device_paths,
        "minors": driver.minors,
    }
    driver.check("triton")
    return facts | {"sdk": driver.sdk("triton")}


def unconfined(given: argparse.Namespace) -> Found:
    """Load the driver's library, make a context, and load and run a kernel, with all rights of this process."""
    driver, code = CudaDriver(), device_code()
    found: Found = {"library": driver.library, "code": "assembled" if code[:4] == b"\x7fELF" else "PTX text"}
    return found | _used(driver.library, code)


def confined(given: argparse.Namespace) -> Found:
    """Run the same kernel as an evaluation does: from a plan, in the jail of a worker, timed by a referee
    process.
    """
    return asyncio.run(_confined(Level[given.highest]))


def calls(given: argparse.Namespace) -> Found:
    """Use the GPU under the worker's filter of system calls, but let refused calls pass. Return these calls and
    the open files.
    """
    library, code = CudaDriver().library, device_code()
    with _noted() as refused:
        found = _used(library, code)
        files = sorted({name for one in os.listdir("/proc/self/fd") if (name := _target(one)).startswith("/")})
    counts = {number: refused.count(number) for number in sorted(set(refused))}
    return {"refused_system_calls": counts, "open_files": files, "right": found["right"]}


def torch(given: argparse.Namespace) -> Found:
    """Multiply matrices on the GPU with torch, without a jail. Return the versions."""
    return _torch()


def torch_confined(given: argparse.Namespace) -> Found:
    """Multiply matrices on the GPU with torch, in the jail in which references run. Return the versions."""
    return asyncio.run(_torch_confined(Level[given.highest]))


def triton(given: argparse.Namespace) -> Found:
    """Build the baseline of a workload in the builder's jail."""
    return asyncio.run(_triton(Level[given.highest]))


def clocks(given: argparse.Namespace) -> Found:
    """Return the clock rates, and the time of an empty pair of events and of a small copy by the device's
    clock.
    """
    driver = CudaDriver()
    device, code = Driver(0, driver.library), device_code()
    found: Found = dict(driver.condition(driver.leases()[0]))
    module = device.load(code)
    events = device.event(), device.event()

    def took_us(work: Callable[[], None]) -> float:
        samples = []
        for _ in range(20):
            device.record(events[0])
            work()
            device.record(events[1])
            device.wait()
            samples.append(device.elapsed_us(*events))
        return statistics.median(samples)

    size = int(driver.settings("triton")["flush_bytes"])
    memory = device.allocate(size)
    found["empty_us"] = took_us(lambda: None)
    fill_us = took_us(lambda: device.fill(memory, 1, size))
    found["fill_gb_per_s"] = size / fill_us / 1000 if fill_us else None
    device.unload(module)
    return found


def daemon(given: argparse.Namespace) -> Found:
    """Serve a state folder. Its evaluations use at most the sandbox level that ``--highest`` names."""
    from acceld.config import Config
    from acceld.daemon import build
    from acceld.daemon.parts import Parts
    from acceld.daemon.process import main as serve
    from acceld.evaluate.interface import Workplace
    from acceld.home import Home
    from acceld.store.database import Store

    class Capped(build.SearchBuilder):
        def _workplace(self) -> Workplace:
            return replace(super()._workplace(), highest=Level[given.highest])

    async def parts(config: Config, home: Home, store: Store, keys: Mapping[str, str]) -> Parts:
        return await Capped(config, home, store, keys).parts()

    raise SystemExit(serve(["--home", given.home, "--foreground"], parts))


def shapes(given: argparse.Namespace) -> Found:
    """Write a copy of a workload for each of its further shapes, and return the folders.

    The key of a folder is the text of its shape, or "" for the workload's own folder. ``given.words`` names the
    workload.
    """
    from acceld import config
    from acceld.workloads import workload

    own = workload(given.words[0], config.load().config.paths.workloads).folder.resolve()
    found = {"": str(own)}
    points = next((values for name, values in POINTS.items() if own.name.startswith(name)), ())
    family = Path(given.home) / "shapes" / own.name
    if points and not family.exists():
        shutil.copytree(own.parent, family)  # workload.toml names files in sibling folders by relative paths
    for number, values in enumerate(points, 1):
        shaped = family / f"{own.name}_{number}"
        shutil.copytree(own, shaped, dirs_exist_ok=True)
        lines = (own / "workload.toml").read_text(encoding="utf-8").splitlines()
        (shaped / "workload.toml").write_text("\n".join(_with(lines, shaped.name, values)) + "\n", encoding="utf-8")
        found[", ".join(f"{symbol}={value}" for symbol, value in values.items())] = str(shaped)
    return {"folders": found}


def outcome(given: argparse.Namespace) -> Found:
    """Return the stored outcome of the last run on a workload; empty if there is none. ``words``: the workload."""
    from acceld.cli.connect import reading

    with reading(given.home) as history:
        runs = history.get("/v1/runs", workload=given.words[0], limit=1)["runs"]
        return dict(history.get(f"/v1/runs/{runs[0]['id']}/outcome")) if runs else {}


def point(given: argparse.Namespace) -> Found:
    """Check the best kernel of a run at another shape of the workload, and time it interleaved with the
    baseline.

    ``words``: the run, the folder of the workload in that shape.
    """
    from acceld.cli.connect import connected, reading
    from acceld.cli.kernels import plain, stored_kernel
    from acceld.client import Client
    from acceld.model import Gate

    run, folder = given.words
    with reading(given.home) as history:
        one = history.get(f"/v1/runs/{run}")
        best = stored_kernel(history.get(f"/v1/candidates/{one['best']}"))
        first = stored_kernel(history.get(f"/v1/candidates/{one['baseline']}"))
    client = Client(connected(given.home)[0], timeout_s=_ANSWER_S)
    against = [] if one["best"] == one["baseline"] else [plain(first)]
    asked = {"workload": Path(folder).name, "workload_folder": folder, "backend": one["backend"], "chip": one["chip"]}
    asked |= {"gate": Gate.SEARCH.value, "kernel": plain(best), "against": against}
    got = client.send("POST", "/v1/evaluations", asked)
    if got["status"] != "passed":
        failure = got.get("failure") or {}
        return {"error": f"{got['status']}: {failure.get('message', '')}"}
    best_us = got["profile"]["latency_us"]
    found: Found = {"best_us": best_us, "percent_of_peak": got.get("percent_of_peak"), "baseline_us": best_us}
    if got["paired"]:
        pair = got["paired"][0]
        found["baseline_us"] = best_us * pair["ratio"]
        found["turns"] = {"ratio": pair["ratio"], "low": pair["interval"][0], "high": pair["interval"][1]}
    return found


def torch_kernels(given: argparse.Namespace) -> Found:
    """Time torch's own kernels at each shape of a workload, with a cold cache. ``words``: the folders of the
    shapes.
    """
    from acceld.workloads import load_workload
    from scripts.gpu_torch import timed

    driver = CudaDriver()
    for library in driver.referring().libraries:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    flush_bytes = int(driver.settings("triton")["flush_bytes"])
    return {folder: timed(load_workload(folder), flush_bytes) for folder in given.words}


STEPS: dict[str, Callable[[argparse.Namespace], Found]] = {
    one.__name__: one
    for one in (
        check, unconfined, confined, calls, torch, torch_confined, triton, clocks, daemon, shapes, outcome, point, torch_kernels,
    )
}  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """Do a step, and print what it found. Return 0, or the exit code of the error that it raised."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--highest", choices=[one.name for one in Level], default=Level.L4.name)
    parser.add_argument("--home", default="")
    parser.add_argument("words", nargs="*")
    given = parser.parse_intermixed_args(words)
    try:
        print(json.dumps(STEPS[given.step](given)))
        return 0
    except AcceldError as error:
        print(json.dumps({"error": error.message, "hint": error.hint}))
        return error.exit_code


def device_code() -> bytes:
    """Return the code of the first kernel for this GPU, by Triton's or CUDA's assembler; without an assembler,
    as PTX text.
    """
    capability = CudaDriver().settings("triton")["capability"]
    spec = importlib.util.find_spec("triton")
    own = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "ptxas" if spec and spec.origin else Path("ptxas")
    program = str(own) if own.is_file() else shutil.which("ptxas")
    if program is None or capability is None:
        return PTX.encode() + b"\0"
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "scale.ptx", Path(folder) / "scale.cubin"
        source.write_text(PTX, encoding="ascii")
        command = [program, f"-arch=sm_{capability}", str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DONE_S, check=False)
        return made.read_bytes() if done.returncode == 0 else PTX.encode() + b"\0"


def _used(library: str, code: bytes) -> Found:
    """Run the first kernel on the first GPU. Return whether its result is right, and how long each part took."""
    started = time.monotonic()
    device = Driver(0, library)
    seconds = {"context_s": time.monotonic() - started}
    source, target = device.allocate(4 * COUNT), device.allocate(4 * COUNT)
    given, out = np.arange(COUNT, dtype=np.float32), np.zeros(COUNT, np.float32)
    device.write(source, given.ctypes.data, given.nbytes)
    function = device.function(device.load(code), "scale", 0)
    packed = [struct.pack("<Q", source), struct.pack("<Q", target), struct.pack("<f", FACTOR), struct.pack("<i", COUNT)]
    start, end = device.event(), device.event()
    device.record(start)
    device.launching(function, (COUNT // THREADS, 1, 1), THREADS, 0, packed)()
    device.record(end)
    device.wait()
    device.read(out.ctypes.data, target, out.nbytes)
    right = bool(np.array_equal(out, given * FACTOR))
    if not right:
        raise AcceldError("the first kernel ran, and its result is wrong")
    return {**seconds, "right": right, "kernel_us": device.elapsed_us(start, end), "driver": device.version()}


@asynccontextmanager
async def _benched(highest: Level) -> Any:
    report = await probe_level(highest)
    bench = Bench(CudaDriver(), report.level, report.cgroup_folder, build_s=_BUILD_S, memory_bytes=_MEMORY_BYTES)
    await bench.start()
    try:
        yield bench, report
    finally:
        await bench.stop()


async def _confined(highest: Level) -> Found:
    driver, out = CudaDriver(), Pointer("buffer", 0, 0)
    settings = dict(driver.settings("triton"))
    arguments = (Pointer("input", 0, 0), out, Scalar("fp32", FACTOR), Scalar("i32", COUNT))
    launch, code = Launch(0, (COUNT // THREADS, 1, 1), arguments), Code("scale", device_code(), 0, THREADS // 32)
    plan = LaunchPlan(settings["capability"], (Buffer(4 * COUNT),), (code,), (launch,), (out,))
    array = {"shape": [COUNT], "dtype": "float32"}
    job: Found = {
        "api": "triton", "text": "", "filename": "scale.py", "entry": "", "grid": [], "settings": settings,
        "arguments": [{"name": "source", **array}, {"name": "factor", "value": FACTOR}],
        "outputs": [{"name": "result", **array}],
    }  # fmt: skip
    layout, given = lay_out(job["arguments"], job["outputs"]), np.arange(COUNT, dtype=np.float32)
    async with _benched(highest) as (bench, report):
        with tempfile.NamedTemporaryFile(prefix="acceld-plan-") as file:
            file.write(encode(plan))
            file.flush()
            batches, kept = Kept("acceld-batches", 3 * given.nbytes), Kept("acceld-outputs", 3 * given.nbytes)
            os.pwrite(batches.descriptor, given.tobytes() * 3, 0)
            session = TimedSession(layout, batches, driver.leases()[0], Terms(3, 3, 5.0, _DONE_S))
            (timed,) = await bench.time([Artefact(file.name, "", job)], session, kept)
            written = np.frombuffer(os.pread(kept.descriptor, given.nbytes, 0), np.float32)
    found: Found = {"level": report.level.name, "refused_levels": {k.name: why for k, why in report.refused}}
    if timed.failed is not None:
        failure = timed.failed.failure
        return found | {"error": f"{failure.rule}: {failure.message}"}
    if not np.array_equal(written, given * FACTOR):
        return found | {"error": "the first kernel ran, and its result is wrong"}
    return found | {"kernel_us": statistics.median(filter(None, timed.claimed_us)), "wall_us": min(timed.wall_us)}


async def _triton(highest: Level) -> Found:
    from acceld.evaluate.baselines import baseline_kernel
    from acceld.workloads import workload

    loaded = workload("rmsnorm_h128")
    kernel = baseline_kernel(loaded, "triton")
    job = job_of(kernel, loaded.arguments, loaded.outputs, dict(CudaDriver().settings("triton")))
    async with _benched(highest) as (bench, report):
        built = await bench.build(job)
    if isinstance(built, Failed):
        return {"level": report.level.name, "error": f"{built.failure.rule}: {built.failure.message}"}
    return {"level": report.level.name, "log": built.log, "build_s": built.seconds}


def _torch() -> Found:
    started = time.monotonic()
    import torch as library

    found: Found = {"torch": library.__version__, "cuda": library.version.cuda, "import_s": time.monotonic() - started}
    if not library.cuda.is_available():
        return found | {"error": "torch sees no GPU"}
    started = time.monotonic()
    left = library.randn(512, 512, device="cuda", dtype=library.float64)
    apart = float((left @ left - (left.cpu() @ left.cpu()).to("cuda")).abs().max())
    found |= {"gpu": library.cuda.get_device_name(0), "first_use_s": time.monotonic() - started}
    return found if apart < 1e-9 else found | {"error": f"a product of matrices is wrong by {apart:g}"}


def torch_task(request: bytes, reply: int) -> None:
    """Use torch in a jailed child, and write what was found to the descriptor ``reply``."""
    for library in json.loads(request):
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    try:
        send(reply, _torch())
    except Exception as error:  # noqa: BLE001  # torch may fail in any way, and the trial reports it
        send(reply, {"error": f"{type(error).__name__}: {error}"})


async def _torch_confined(highest: Level) -> Found:
    driver, report = CudaDriver(), await probe_level(highest)
    rights = driver.referring()
    zygote = Zygote({"torch": "scripts.gpu_steps:torch_task"}, level=report.level, cgroup_folder=report.cgroup_folder)
    try:
        jail = oracle_jail(rights, _MEMORY_BYTES)
        request = json.dumps(rights.libraries).encode()
        outcome, reply = await zygote.run("torch", request, jail, modules=["torch"])
        with reply:
            said = reply.read(1 << 16)
    finally:
        await zygote.stop()
    level: Found = {"level": report.level.name}
    try:
        answered: Found = json.loads(said[said.index(b"{") :].decode())
        return level | answered
    except ValueError:
        return level | {"error": f"torch's process {outcome.text}"}


_NEW_LISTENER, _SET_FILTER = 8, 1
_NOTIFY = 0x7FC00000
_REFUSED = (0x06, 0, 0, 0x00050001)
"""The filter's instruction for a call that it refuses."""
_RECEIVE, _ANSWER, _CONTINUE = 0xC0502100, 0xC0182101, 1
_NOTICE, _REPLY = struct.Struct("<QIIiIQ6Q"), struct.Struct("<QqiI")


@contextmanager
def _noted() -> Iterator[list[int]]:
    """Put this thread under the worker's filter of system calls. Yield the numbers of the calls that the filter
    refuses; the calls are done nevertheless.

    A second thread answers the system kernel's notices of such calls (seccomp_unotify(2)). It began before the
    filter, so it is not under the filter.
    """
    refused: list[int] = []
    listener: list[int] = []
    ready = threading.Event()

    def answer() -> None:
        ready.wait()
        notice, reply = bytearray(_NOTICE.size), bytearray(_REPLY.size)
        while True:
            notice[:] = bytes(_NOTICE.size)
            try:
                fcntl.ioctl(listener[0], _RECEIVE, notice)
                identity, _, _, number, *_ = _NOTICE.unpack(notice)
                refused.append(number)
                reply[:] = _REPLY.pack(identity, 0, 0, _CONTINUE)
                fcntl.ioctl(listener[0], _ANSWER, reply)
            except OSError:
                return

    threading.Thread(target=answer, daemon=True).start()
    rules = seccomp.Filter(os.getpid(), fork=True, execute=True, devices=True)
    code = seccomp.assemble(rules, linux.machine())
    noting = b"".join(
        struct.pack("<HBBI", *((*one[:3], _NOTIFY) if one == _REFUSED else one))
        for one in struct.iter_unpack("<HBBI", code)
    )
    instructions = ctypes.create_string_buffer(noting, len(noting))
    program = struct.pack("HxxxxxxP", len(noting) // 8, ctypes.addressof(instructions))
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    buffer = ctypes.create_string_buffer(program, len(program))
    listener.append(linux.syscall(seccomp.NUMBER[linux.machine()], _SET_FILTER, _NEW_LISTENER, buffer))
    ready.set()
    yield refused


def _with(lines: Sequence[str], name: str, values: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of a workload.toml with another workload name, and with other values of some keys."""
    section = ""
    for line in lines:
        section = line.strip() if line.startswith("[") else section
        symbol = line.partition("=")[0].strip()
        if not section and symbol == "name":
            yield f'name = "{name}"'
        elif section == "[values]" and symbol in values:
            yield f"{symbol} = {values[symbol]}"
        else:
            yield line


def _target(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
