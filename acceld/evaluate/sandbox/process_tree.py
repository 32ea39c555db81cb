"""Read the descendants of a process from /proc: count them, add up their memory, or end them."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tree:
    """The descendants of a process: their ids, and the bytes of anonymous and shared memory that they use together."""

    pids: tuple[int, ...]
    memory_bytes: int


def descendants(root: int) -> tuple[int, ...]:
    """Return the ids of all descendants of ``root``, in no particular order. A process that ends meanwhile may
    be missing.
    """
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
    """Return the descendants of ``root`` and their anonymous and shared memory."""
    pids = descendants(root)
    return Tree(pids, sum(_memory_bytes(pid) for pid in pids))


def end(root: int) -> int:
    """Send SIGKILL to the descendants of ``root`` until no descendant is left, and return how many processes were
    ended.

    ``root`` must be the caller and a subreaper, so that orphans become its children.
    """
    ended = 0
    for _ in range(1000):
        if not _has_children():  # without children there are no descendants, and /proc need not be read
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
    """Reap the children of the caller that have ended. Return True if other children are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _parent(pid: int) -> int | None:
    """Return the process id of a process's parent; None if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rsplit(b")", 1)[1].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _memory_bytes(pid: int) -> int:
    """Return the bytes of anonymous and shared memory of a process; 0 if the process has ended."""
    total = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith((b"RssAnon:", b"RssShmem:")):
                    total += int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        return 0
    return total
