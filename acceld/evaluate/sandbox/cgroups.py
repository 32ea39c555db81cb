"""A cgroup v2 for each evaluated tree, where the system delegates one to us."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_NEEDED = frozenset({"memory", "pids"})


@dataclass(frozen=True, slots=True)
class Delegation:
    """A folder under which cgroups with memory and pids limits can be made; or why there is none."""

    folder: str = ""
    reason: str = ""


def find(mount: Path | None = None, own: str | None = None) -> Delegation:
    """Look for a delegated cgroup: ours, with the memory and pids controllers handed to its children.

    ``mount`` and ``own`` are where cgroup v2 is mounted and our place in it; found out if not given.
    """
    mount = mount or mounted()
    if mount is None:
        return Delegation(reason="cgroup v2 is not mounted")
    own = own or membership()
    if own is None:
        return Delegation(reason="this process is in no cgroup v2")
    for folder in (mount / own.lstrip("/"), (mount / own.lstrip("/")).parent):
        controllers = _words(folder / "cgroup.subtree_control")
        if controllers >= _NEEDED and os.access(folder, os.W_OK):
            return Delegation(folder=str(folder))
        if _words(folder / "cgroup.controllers") >= _NEEDED and os.access(folder / "cgroup.subtree_control", os.W_OK):
            with contextlib.suppress(OSError):
                (folder / "cgroup.subtree_control").write_text("+memory +pids")
                return Delegation(folder=str(folder))
    return Delegation(reason="no cgroup with memory and pids controllers is delegated to this process")


def create(folder: str, name: str, *, memory_bytes: int, processes: int) -> str:
    """Make a cgroup with its limits; its path. OSError if refused."""
    path = Path(folder) / name
    path.mkdir()
    try:
        (path / "memory.max").write_text(str(memory_bytes))
        (path / "pids.max").write_text(str(processes))
        for knob, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            with contextlib.suppress(OSError):
                (path / knob).write_text(value)
    except OSError:
        path.rmdir()
        raise
    return str(path)


def enter(path: str, pid: int) -> None:
    """Move a process into the cgroup."""
    (Path(path) / "cgroup.procs").write_text(str(pid))


def ran_out_of_memory(path: str) -> bool:
    """Return True if the kernel ended a process of the cgroup for its memory limit."""
    with contextlib.suppress(OSError, ValueError), open(Path(path) / "memory.events", encoding="ascii") as file:
        return any(line.split()[0] == "oom_kill" and int(line.split()[1]) for line in file)
    return False


def kill(path: str) -> None:
    """End every process in the cgroup. OSError where the kernel has no cgroup.kill (before 5.14)."""
    (Path(path) / "cgroup.kill").write_text("1")


def remove(path: str, *, wait_s: float = 1.0) -> bool:
    """Remove the cgroup once it is empty; False where it is not within ``wait_s``."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            os.rmdir(path)
            return True
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)


def mounted() -> Path | None:
    """Return the mount point of cgroup v2; None where it is not mounted."""
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 "):
                return Path(before.split()[4])
    return None


def membership() -> str | None:
    """The cgroup v2 of this process, as a path from the mount; None where there is none."""
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            if line.startswith("0::"):
                return line[3:].strip()
    return None


def _words(path: Path) -> frozenset[str]:
    try:
        return frozenset(path.read_text(encoding="ascii").split())
    except OSError:
        return frozenset()
