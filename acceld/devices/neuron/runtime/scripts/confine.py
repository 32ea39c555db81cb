"""Confine the compile worker and the runner when they start.

The pipe to the daemon becomes private, the process ends with its parent, and devices are hidden if the caller asks for
that. Runs on Python >= 3.8 with only the standard library.
"""

from __future__ import annotations

import ctypes
import glob
import os
import signal
from typing import BinaryIO

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18


def take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes behind stdin and stdout as private files.

    From then on stdin is empty, and what code prints to stdout goes to stderr.
    """
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return incoming, outgoing


def end_with_parent(parent: int) -> None:
    """Make the system end this process when its parent ends. If process ``parent`` is no longer the parent, exit at
    once. With ``parent`` 0 the parent is not compared, because a launcher starts such a process on behalf of another
    process.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent and os.getppid() != parent:
        os._exit(1)


def hide(pattern: str) -> list[str]:
    """Mount /dev/null over every file that matches ``pattern``, in this process's own mount namespace.

    Return the files that could not be hidden. The files are device files. They are hidden because compiling runs the
    kernel's own Python code, which with the legacy API executes the kernel on any core that it can open.
    """
    found = sorted(glob.glob(pattern))
    if not found:
        return []
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) != 0:
        return found
    try:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open("/proc/self/" + name, "w", encoding="ascii") as file:
                file.write(text)
    except OSError:
        return found
    libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    null = os.stat(os.devnull).st_rdev
    for path in found:
        libc.mount(os.devnull.encode(), path.encode(), None, _MS_BIND, None)
    return [path for path in found if os.stat(path).st_rdev != null]
