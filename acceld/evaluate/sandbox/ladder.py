"""Find the highest sandbox level that works on this machine, by trying each level.

A jailed child makes twelve attempts to get out, at the highest level first. The first level that blocks all
attempts is used. A protection that the system claims to have, but that does not block an attempt, does not
count.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceld.child import child
from acceld.evaluate.sandbox import cgroups, landlock, seccomp
from acceld.evaluate.sandbox.jail import Jail, Level
from acceld.evaluate.sandbox.probes import PROBES
from acceld.evaluate.sandbox.process import SandboxError, Zygote

TASKS = {"probe": "acceld.evaluate.sandbox.probes:try_all"}
REQUIRED: dict[Level, frozenset[str]] = {
    Level.L4: frozenset(PROBES),
    Level.L3: frozenset(PROBES),
    Level.L2: frozenset(PROBES),
    Level.L1: frozenset(PROBES) - {"write_outside", "read_private", "files"},
    Level.L0: frozenset(),
}
"""Attempts that each level must block. L1 need not block attempts on files, because it can not protect them."""
_VICTIM = """
import ctypes, signal, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
time.sleep(60)
"""
"""Program of a process that stands for the daemon. An attempt to trace that process must fail."""
_MEMORY_BYTES = 256 << 20
_SCRATCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of one attempt to get out of the jail. The attempt was made at the level that was chosen."""

    name: str
    blocked: bool
    detail: str


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """The chosen sandbox level, the attempts that it blocks, and why each higher level does not work."""

    level: Level
    probes: tuple[Probe, ...]
    refused: tuple[tuple[Level, str], ...]
    cgroup_folder: str = ""
    landlock_abi: int = 0

    @property
    def untrusted_allowed(self) -> bool:
        """Tell whether untrusted code may run at this level without a setting that allows it."""
        return self.level >= Level.L1

    def plain(self) -> dict[str, Any]:
        """Return the record as a dict for JSON."""
        return {
            "level": self.level.name,
            "summary": self.level.summary,
            "landlock_abi": self.landlock_abi,
            "probes": {probe.name: {"blocked": probe.blocked, "detail": probe.detail} for probe in self.probes},
            "refused": {level.name: reason for level, reason in self.refused},
        }


async def probe_level(highest: Level = Level.L4, zygote: Zygote | None = None) -> SandboxReport:
    """Try the levels from ``highest`` down, and report the first that works. L0 always works.

    ``zygote`` must offer the tasks :data:`TASKS`. Afterwards ``zygote`` makes jails of the level that was found.
    Without ``zygote``, a temporary zygote is used.
    """
    if zygote is None:
        zygote = Zygote(TASKS, level=Level.L0)
        try:
            return await _highest(highest, zygote)
        finally:
            await zygote.stop()
    report = await _highest(highest, zygote)
    zygote.at(report.level, report.cgroup_folder)
    return report


async def _highest(highest: Level, zygote: Zygote) -> SandboxReport:
    """Try the levels from ``highest`` down with a running zygote, and report the first that works."""
    refused: list[tuple[Level, str]] = []
    delegation = cgroups.find()
    for level in sorted(Level, reverse=True):
        if level > highest or level is Level.L0:
            continue
        reason = _missing(level, delegation)
        if reason:
            refused.append((level, reason))
            continue
        try:
            probes = await _try(level, zygote.at(level, delegation.folder))
        except SandboxError as error:
            refused.append((level, error.message))
            continue
        open_ones = [p for p in probes if not p.blocked and p.name in REQUIRED[level]]
        if not open_ones:
            return SandboxReport(level, probes, tuple(refused), delegation.folder, landlock.abi())
        refused.append((level, "; ".join(f"{p.name}: {p.detail}" for p in open_ones)))
    return SandboxReport(Level.L0, (), tuple(refused))


def _missing(level: Level, delegation: cgroups.Delegation) -> str:
    """Return the parts that a level needs and this machine lacks, as text; empty if no part is missing."""
    if sys.platform != "linux":
        return "needs Linux"
    if level is Level.L4 and not delegation.folder:
        return delegation.reason
    if level >= Level.L2 and not landlock.abi():
        return "the kernel has no Landlock"
    if not seccomp.supported():
        return "there is no seccomp filter for this processor"
    return ""


async def _try(level: Level, zygote: Zygote) -> tuple[Probe, ...]:
    """Let a jailed child make every attempt to get out at one level, and return the results."""
    jail = Jail(memory_bytes=_MEMORY_BYTES, wall_s=20, cpu_s=10, scratch_bytes=_SCRATCH_BYTES)
    async with _scene(level) as scene:
        outcome, reply = await zygote.run("probe", json.dumps(scene).encode(), jail)
        with reply:
            written = reply.read(64_000)
        survivors = not outcome.ended_well
    try:
        results: dict[str, list[str]] = json.loads(written)
    except ValueError as error:
        raise SandboxError(
            f"acceld's own test of the sandbox did not finish: the process that tries to get out {outcome.text}",
            hint="try again; if it happens again, acceld doctor says what this machine lacks",
        ) from error
    probes = [Probe(name, results[name][0] == "blocked", results[name][1]) for name in PROBES]
    if survivors:
        probes.append(Probe("end", False, outcome.text))
    return tuple(probes)


@asynccontextmanager
async def _scene(level: Level) -> AsyncIterator[dict[str, Any]]:
    """Set up what the attempts to get out try to reach, for the duration of the block: servers, a private file, a
    process, an environment.
    """
    canary = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acceld-probe-")))
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(folder / "socket"))
        unix.listen(1)
        private = folder / "private"
        private.write_text("secret", encoding="ascii")
        private.chmod(0o600)
        start = child("-I", "-S", "-c", _VICTIM, environment={"ACCELD_PROBE": canary})
        victim = await asyncio.create_subprocess_exec(
            *start.command,
            env=start.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield {
                "level": int(level),
                "port": tcp.getsockname()[1],
                "socket": str(folder / "socket"),
                "folder": str(folder),
                "private": str(private),
                "scratch": "/tmp" if level >= Level.L3 else str(folder),
                "pid": victim.pid,
                "victim": victim.pid,
                "canary": canary,
                "memory_bytes": 2 * _MEMORY_BYTES,
                "scratch_bytes": _SCRATCH_BYTES,
                "processes": 1,
                "uid": os.getuid(),
            }
        finally:
            with contextlib.suppress(ProcessLookupError):
                victim.kill()
            await victim.wait()
