"""Read the processes below a process from /proc: count them, add up their memory, end them."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tree:
    """The processes below one process, and their anonymous and shared memory in bytes."""

    pids: tuple[int, ...]
    memory_bytes: int


def descendants(root: int) -> tuple[int, ...]:
    """Return ids of all processes below ``root``, in no order; those that end meanwhile may be missing."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            parent = _parent(int(name))
            if parent is not None:
                children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    open_ends = [root]
    while open_ends:
        below = children.get(open_ends.pop(), [])
        found += below
        open_ends += below
    return tuple(found)


def tree(root: int) -> Tree:
    """Return the processes below ``root`` and their anonymous and shared memory."""
    pids = descendants(root)
    return Tree(pids, sum(_memory_bytes(pid) for pid in pids))


def end(root: int) -> int:
    """Send SIGKILL to everything below ``root`` until nothing is left. Return the number of processes ended.

    ``root`` must be the caller and a subreaper, so that orphans stay below it.
    """
    ended = 0
    for _ in range(1000):
        if not _has_children():  # so there is nothing below it, and no need to read all of /proc
            return ended
        pids = descendants(root)
        if not pids:
            return ended
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                ended += 1
            except ProcessLookupError:
                pass
    return ended


def _has_children() -> bool:
    """Reap the caller's children that have ended. Return True if there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rsplit(b")", 1)[1].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _memory_bytes(pid: int) -> int:
    total = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith((b"RssAnon:", b"RssShmem:")):
                    total += int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        return 0
    return total
