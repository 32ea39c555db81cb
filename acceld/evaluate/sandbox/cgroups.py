"""Make a cgroup for each job, if the system delegates one. Version 2 of cgroups is tried first, then version 1.

Version 1 has separate hierarchies for memory and for pids. A path of version 1 is therefore a text with two folders,
separated by a newline.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_NEEDED = frozenset({"memory", "pids"})
_FIRST_VERSION = ("memory", "pids")
_BETWEEN = "\n"
_KILL_ROUNDS = 200
_UNLIMITED = 1 << 62
"""Number of bytes from which on version 1 means no limit. Without a limit, version 1 reports 2 ** 63 less a page."""


@dataclass(frozen=True, slots=True)
class Delegation:
    """The folder in which cgroups with limits on memory and processes can be made, or the reason why no folder allows
    that.
    """

    folder: str = ""
    reason: str = ""


def find() -> Delegation:
    """Return a delegated cgroup of version 2, or else of version 1, or the reasons why no cgroup is delegated."""
    second = find_second()
    if second.folder:
        return second
    first = find_first()
    return first if first.folder else Delegation(reason=f"{second.reason}; {first.reason}")


def find_second(mount: Path | None = None, own: str | None = None) -> Delegation:
    """Return a cgroup of version 2 around this process whose memory and pids controllers are delegated.

    If no such cgroup exists, return the reason. ``mount`` and ``own`` are the mount point of cgroup v2 and this
    process's path in it; None stands for reading these two from the system.
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


def find_first(mounts: str | None = None, places: str | None = None) -> Delegation:
    """Return this process's version 1 cgroups for memory and pids, in which further cgroups can be made.

    If no further cgroups can be made, return the reason. ``mounts`` and ``places`` are the texts of
    /proc/self/mountinfo and /proc/self/cgroup; if they are None, these files are read.
    """
    mounts = _text("/proc/self/mountinfo") if mounts is None else mounts
    places = _text("/proc/self/cgroup") if places is None else places
    folders = []
    for controller in _FIRST_VERSION:
        folder = _first_folder(controller, mounts, places)
        if folder is None:
            return Delegation(reason=f"cgroup v1 has no {controller} hierarchy here")
        if not (folder / "cgroup.procs").exists() or not os.access(folder, os.W_OK):
            return Delegation(reason=f"the {controller} hierarchy of cgroup v1 is not delegated to this process")
        folders.append(str(folder))
    return Delegation(folder=_BETWEEN.join(folders))


def _first_folder(controller: str, mounts: str, places: str) -> Path | None:
    """Return this process's cgroup in the version 1 hierarchy of a controller; None if there is no such hierarchy.

    ``mounts`` is the text of ``/proc/self/mountinfo``, ``places`` that of ``/proc/self/cgroup``.
    """
    own = next(
        (line.split(":", 2)[2] for line in places.splitlines() if controller in line.split(":")[1].split(",")), None
    )
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if own is None or kind != "cgroup" or controller not in options.split()[-1].split(","):
            continue
        root, mount = before.split()[3:5]
        return Path(mount) / own.removeprefix(root if root != "/" else "").lstrip("/")
    return None


def create(folder: str, name: str, *, memory_bytes: int, processes: int) -> str:
    """Make a cgroup with limits, and return its path. Raise OSError if the system refuses."""
    made: list[Path] = []
    try:
        for parent in folder.split(_BETWEEN):
            path = Path(parent) / name
            with contextlib.suppress(FileNotFoundError):
                path.rmdir()  # left by a killed process that had the same process id
            path.mkdir()
            made.append(path)
        memory, pids = made[0], made[-1]
        size = str(memory_bytes)
        (pids / "pids.max").write_text(str(processes))
        if len(made) > 1:
            (memory / "memory.limit_in_bytes").write_text(size)
            optional = [("memory.memsw.limit_in_bytes", size)]
        else:
            (memory / "memory.max").write_text(size)
            optional = [("memory.swap.max", "0"), ("memory.oom.group", "1")]
        for knob, value in optional:
            with contextlib.suppress(OSError):
                (memory / knob).write_text(value)
    except OSError:
        for path in made:
            path.rmdir()
        raise
    return _BETWEEN.join(map(str, made))


def enter(path: str, pid: int) -> None:
    """Move the process ``pid`` into the cgroup."""
    for folder in path.split(_BETWEEN):
        (Path(folder) / "cgroup.procs").write_text(str(pid))


def ran_out_of_memory(path: str) -> bool:
    """Tell whether the system ended a process of the cgroup because of the cgroup's memory limit."""
    memory, *first = path.split(_BETWEEN)
    events = _text(Path(memory) / ("memory.oom_control" if first else "memory.events"))
    counts = dict(line.split()[:2] for line in events.splitlines() if line.count(" "))
    return counts.get("oom_kill", "0").strip("0") != ""


def kill(path: str) -> None:
    """End every process in the cgroup. Raise OSError if version 2 has no cgroup.kill (Linux before 5.14).

    Version 1 has no cgroup.kill: new processes are forbidden first, then the existing processes are ended one by one.
    """
    *memory, pids = map(Path, path.split(_BETWEEN))
    if not memory:
        (pids / "cgroup.kill").write_text("1")
        return
    (pids / "pids.max").write_text("0")
    for _ in range(_KILL_ROUNDS):
        found = {word for folder in (*memory, pids) for word in _words(folder / "cgroup.procs")} - {"0"}
        if not found:
            return
        for word in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(word), signal.SIGKILL)
        time.sleep(0.005)


def remove(path: str, *, wait_s: float = 1.0) -> bool:
    """Wait until the cgroup is empty, and remove it. Return False if processes are left in it after ``wait_s``
    seconds.
    """
    deadline = time.monotonic() + wait_s
    left = [folder for folder in path.split(_BETWEEN) if not _removed(folder, deadline)]
    return not left


def _removed(folder: str, deadline: float) -> bool:
    """Wait until a cgroup's folder is empty, and remove it. Return False if processes are left in it at
    ``deadline``.
    """
    while True:
        try:
            os.rmdir(folder)
            return True
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)


def memory_limit(
    mount: Path | None = None, own: str | None = None, mounts: str | None = None, places: str | None = None
) -> int | None:
    """Return the bytes that all processes of this process's cgroup may use together; None without a limit.

    The result is the smallest limit of the cgroup and of the cgroups above it, in either version. The arguments are
    those of :func:`find_second` and :func:`find_first`.
    """
    mount, own = mount or mounted(), own or membership()
    mounts = _text("/proc/self/mountinfo") if mounts is None else mounts
    places = _text("/proc/self/cgroup") if places is None else places
    first = _first_folder("memory", mounts, places)
    second = mount / own.lstrip("/") if mount is not None and own is not None else None
    files = [
        place / name
        for folder, name in ((second, "memory.max"), (first, "memory.limit_in_bytes"))
        if folder is not None
        for place in (folder, *folder.parents)
    ]
    limits = [int(text) for text in (_text(file).strip() for file in files) if text.isdigit()]
    return min((limit for limit in limits if limit < _UNLIMITED), default=None)


def mounted() -> Path | None:
    """Return the mount point of cgroup v2; None if cgroup v2 is not mounted."""
    for line in _text("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            return Path(before.split()[4])
    return None


def membership() -> str | None:
    """Return the path of this process's cgroup v2, relative to the mount point; None if the process has no such cgroup."""
    for line in _text("/proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return line[3:].strip()
    return None


def _text(path: Path | str) -> str:
    """Return the text of a file; an empty text if the file can not be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _words(path: Path) -> frozenset[str]:
    """Return the words in a file; an empty set if the file can not be read."""
    try:
        return frozenset(path.read_text(encoding="ascii").split())
    except OSError:
        return frozenset()
