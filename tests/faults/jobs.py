"""Faults of evaluated processes as functions with a number of rounds: killed workers, processes that escape, and
bombs.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from acceld.evaluate.sandbox.jail import Jail, Level
from acceld.evaluate.sandbox.ladder import probe_level
from acceld.evaluate.sandbox.process import Outcome, SandboxError, Zygote
from acceld.evaluate.sandbox.process_tree import descendants

HOSTILE = "tests.acceld.evaluate.hostile"
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)
_BOMBS = {
    "bomb": Jail(wall_s=5, processes=30),
    "allocate_in_children": Jail(wall_s=20, memory_bytes=200 << 20, processes=8),
    "flood": Jail(output_bytes=1 << 20),
    "spin": Jail(wall_s=20, cpu_s=1),
}


@dataclass
class Killed:
    """Effects of kills of the sandbox's processes on its jobs."""

    kills: int = 0
    jobs: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """Ends of jobs as text."""
    wrong: int = 0
    """Jobs that reported success without their answer, or never ended."""
    left: int = 0
    """Processes below the zygote afterwards."""
    descriptors: int = 0
    """Open files of this process that were not open before."""


@asynccontextmanager
async def zygote_with(*tasks: str, level: Level | None = None) -> AsyncIterator[Zygote]:
    """Yield a zygote with hostile tasks, at the level of this machine."""
    report = await probe_level(level or Level.L4)
    made = Zygote({name: f"{HOSTILE}:{name}" for name in tasks}, level=report.level, cgroup_folder=report.cgroup_folder)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def kill_jobs(kills: int, seed: int = 0) -> Killed:
    """Kill zygotes, supervisors and children at random while jobs run."""
    rng, result = random.Random(seed), Killed()
    async with zygote_with("echo", "nap") as zygote:
        before = len(os.listdir("/proc/self/fd"))
        stop = asyncio.Event()

        async def work() -> None:
            while not stop.is_set():
                try:
                    async with asyncio.timeout(300):
                        outcome, reply = await zygote.run("nap", b"right", Jail(wall_s=5))
                except SandboxError as error:
                    result.ends[type(error).__name__] += 1
                except TimeoutError:
                    result.wrong += 1
                else:
                    with reply:
                        result.ends[outcome.text] += 1
                        result.wrong += outcome.ended_well and reply.read(10) != b"right"
                result.jobs += 1

        async with asyncio.TaskGroup() as tasks:
            for _ in range(2):
                tasks.create_task(work())
            while result.kills < kills or result.jobs < kills:
                await asyncio.sleep(rng.uniform(0.02, 0.2))
                if zygote.pid is not None and result.kills < kills:
                    # Rarely kill the zygote: a zygote that is killed again and again while it starts runs no jobs.
                    found = descendants(zygote.pid) if rng.random() < 0.9 else (zygote.pid,)
                    if found and _signal(rng.choice(found), rng.choice(SIGNALS)):
                        result.kills += 1
            stop.set()
        _, reply = await zygote.run("echo", b"still here", Jail())
        with reply:
            result.wrong += reply.read(20) != b"still here"
        assert zygote.pid is not None
        result.left = len(await _gone(lambda: descendants(zygote.pid or 0)))
        result.descriptors = len(os.listdir("/proc/self/fd")) - before
    return result


async def end_trees(rounds: int) -> float:
    """Cancel trees of six processes that ignore signals and leave their session. Return seconds until the slowest was
    gone.
    """
    slowest_s = 0.0
    async with zygote_with("escape") as zygote:
        for _ in range(rounds):
            job = asyncio.create_task(zygote.run("escape", b"stay", Jail(wall_s=60, processes=30)))
            assert zygote.pid is not None
            while len(descendants(zygote.pid)) < 7:  # noqa: ASYNC110 - what the kernel does sets no event
                await asyncio.sleep(0.01)
            tree = descendants(zygote.pid)
            began = time.monotonic()
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
            if await _gone(lambda tree=tree: tree):  # type: ignore[misc]  # by number: orphans are nobody's descendants
                return float("inf")
            slowest_s = max(slowest_s, time.monotonic() - began)
    return slowest_s


@dataclass
class Bombs:
    """Effects of bombs on the process that runs them."""

    ends: dict[str, str] = field(default_factory=dict)
    grown_bytes: int = 0
    neighbor_failures: int = 0
    """Honest jobs beside the bombs that did not end well."""


async def set_off_bombs(rounds: int) -> Bombs:
    """Run jobs that use memory, forks, processor time and output without end, beside honest jobs. Return how the
    bombs ended, the growth of this process, and the failures of honest jobs.
    """
    result = Bombs()
    async with zygote_with("echo", *_BOMBS) as zygote:
        await zygote.run("echo", b"", Jail())
        before = _rss()
        for _ in range(rounds):
            for name, jail in _BOMBS.items():
                bomb = asyncio.create_task(_closed(zygote.run(name, b"", jail)))
                while not bomb.done():
                    outcome, reply = await zygote.run("echo", b"x", Jail())
                    with reply:
                        result.neighbor_failures += not (outcome.ended_well and reply.read(2) == b"x")
                    await asyncio.wait({bomb}, timeout=0.1)
                result.ends[name] = (await bomb).text
        result.grown_bytes = _rss() - before
    return result


async def _closed(running: Awaitable[tuple[Outcome, object]]) -> Outcome:
    outcome, reply = await running
    reply.close()  # type: ignore[attr-defined]  # a Reply
    return outcome


async def _gone(look: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
    """Return the processes that are left after five minutes; empty as soon as all have ended."""
    deadline = time.monotonic() + 300
    while (left := tuple(pid for pid in look() if _lives(pid))) and time.monotonic() < deadline:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.001)
    return left


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
