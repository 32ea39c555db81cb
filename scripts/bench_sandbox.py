"""Measure the sandbox: how long a jailed child takes to start, how long a process tree takes to end, and by how
much a memory limit is exceeded.

``python scripts/bench_sandbox.py [--level L3] [--starts 200] [--json]``; ``make bench-sandbox`` runs it. Times
are wall-clock times seen by the daemon, as median and 95th percentile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from acceld.child import PATH
from acceld.evaluate.sandbox.jail import Jail, Level
from acceld.evaluate.sandbox.ladder import probe_level
from acceld.evaluate.sandbox.process import Zygote
from acceld.evaluate.sandbox.process_tree import descendants

HOSTILE = ROOT / "tests" / "acceld" / "evaluate"
TASKS = {
    "echo": "hostile:echo",
    "escape": "hostile:escape",
    "allocate_in_children": "hostile:allocate_in_children",
}
LOADED = (
    "acceld.evaluate.simulated.tracer",
    "acceld.nki.frontend.legacy.frontend",
    "acceld.evaluate.simulated.simulation",
)
"""Modules that an evaluator's zygote has imported after its first evaluation."""
MEMORY_BYTES = 256 << 20


async def main() -> int:
    """Measure and print; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--level", choices=[level.name for level in Level if level > Level.L0])
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report = await probe_level()
    level = Level[arguments.level] if arguments.level else report.level
    os.environ[PATH] = os.pathsep.join([str(HOSTILE), *filter(None, [os.environ.get(PATH)])])
    zygote = Zygote(TASKS, level=level, cgroup_folder=report.cgroup_folder)
    began = time.monotonic()
    _, reply = await zygote.run("echo", b"x", Jail(), modules=LOADED)
    reply.close()
    loaded_s = time.monotonic() - began
    try:
        figures: dict[str, Any] = {
            "level": level.name,
            "zygote_start_ms": 1000 * loaded_s,
            "start": _summary([await _start(zygote) for _ in range(arguments.starts)]),
            "kill": _summary([await _kill(zygote) for _ in range(arguments.kills)]),
            "memory_overshoot_mib": _summary([await _overshoot(zygote) for _ in range(5)]),
        }
    finally:
        await zygote.stop()
    goals = {"start_median_ms": figures["start"]["median"] <= 60, "kill_worst_ms": figures["kill"]["worst"] <= 250}
    figures["goals"] = goals
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        print(f"level {level.name}, zygote with simulator and numpy loaded in {figures['zygote_start_ms']:.0f} ms")
        for name, unit in (("start", "ms"), ("kill", "ms"), ("memory_overshoot_mib", "MiB")):
            found = figures[name]
            print(
                f"{name:22} median {found['median']:7.1f} {unit}, 95 % {found['p95']:7.1f}, worst {found['worst']:7.1f}"
            )
    return 0 if all(goals.values()) else 1


async def _start(zygote: Zygote) -> float:
    """Start a fully jailed child, and return the milliseconds until it has answered and ended."""
    began = time.monotonic()
    outcome, reply = await zygote.run("echo", b"x", Jail())
    took = time.monotonic() - began
    with reply:
        assert outcome.ended_well and reply.read(2) == b"x"
    return 1000 * took


async def _kill(zygote: Zygote) -> float:
    """Cancel a job of six processes that detach and ignore signals. Return the milliseconds until all have
    ended.
    """
    job = asyncio.create_task(zygote.run("escape", b"stay", Jail(wall_s=60, processes=30)))
    assert zygote.pid is not None
    while len(descendants(zygote.pid)) < 7:  # noqa: ASYNC110  # what the kernel does sets no event
        await asyncio.sleep(0.01)
    began = time.monotonic()
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
    while [pid for pid in descendants(zygote.pid) if _alive(pid)]:  # noqa: ASYNC110  # as above
        await asyncio.sleep(0.001)
    return 1000 * (time.monotonic() - began)


async def _overshoot(zygote: Zygote) -> float:
    """Let a tree of four processes allocate beyond its memory limit. Return by how many MiB it exceeded the
    limit at most.
    """
    highest = 0
    job = asyncio.create_task(
        zygote.run("allocate_in_children", b"", Jail(wall_s=30, memory_bytes=MEMORY_BYTES, processes=8))
    )
    assert zygote.pid is not None
    base: dict[int, int] = {}
    while not job.done():
        total = 0
        for pid in descendants(zygote.pid):
            resident = _anonymous_bytes(pid)
            total += max(0, resident - base.setdefault(pid, resident))
        highest = max(highest, total)
        await asyncio.sleep(0.002)
    outcome, reply = job.result()
    reply.close()
    assert outcome.cause == "memory", outcome
    return max(0.0, (highest - MEMORY_BYTES) / 2**20)


def _anonymous_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith((b"RssAnon:", b"RssShmem:")))
    except OSError:
        return 0


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def _summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": statistics.median(ordered),
        "p95": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        "worst": ordered[-1],
        "count": len(ordered),
    }


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(asyncio.run(main()))
