"""Restrict the files that a process may use with Landlock, which needs no privileges (Linux >= 5.13).

Versions of the Landlock ABI add rights: 2 rename across folders, 3 truncate, 4 TCP, 5 device ioctl, 6 signals
and abstract sockets, 9 connecting to a socket by its path. Seccomp covers what the system's version lacks.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable

from acceld.evaluate.sandbox import linux

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ = (1 << 2) | (1 << 3)
_EXECUTE = 1 << 0
_FILE_RIGHTS = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15)
"""Rights that apply to a file. All other rights apply to folders only."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """Return the version of the system's Landlock ABI; 0 if the system has no Landlock."""
    try:
        return linux.syscall(_CREATE_RULESET, None, 0, 1)
    except (OSError, AttributeError):
        return 0


def _file_rights(version: int) -> int:
    """Return the rights on files and folders that a version of the ABI knows, as bits."""
    rights = (1 << 13) - 1
    for needs, bit in ((2, 13), (3, 14), (5, 15), (9, 16)):
        if version >= needs:
            rights |= 1 << bit
    return rights


def restrict(*, read: Iterable[str] = (), write: Iterable[str] = (), execute: Iterable[str] = ()) -> None:
    """Restrict this process permanently to the given folders and files. The process must have no_new_privs set.

    Raise OSError if the system has no Landlock or a path can not be opened.
    """
    version = abi()
    if not version:
        raise OSError(errno.ENOSYS, "the kernel has no Landlock")
    handled = _file_rights(version)
    ruleset = _Ruleset(handled, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    buffer = ctypes.create_string_buffer(bytes(ruleset)[:size], size)
    descriptor = linux.syscall(_CREATE_RULESET, buffer, size, 0)
    try:
        for rights, paths in ((_READ, read), (handled, write), (_READ | _EXECUTE, execute)):
            for path in paths:
                _allow(descriptor, path, rights & handled)
        linux.syscall(_RESTRICT_SELF, descriptor, 0)
    finally:
        os.close(descriptor)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Add rights on a path to a Landlock ruleset. ``ruleset`` is the ruleset's file descriptor."""
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        rule = _PathBeneath(rights, parent)
        buffer = ctypes.create_string_buffer(bytes(rule), ctypes.sizeof(rule))
        linux.syscall(_ADD_RULE, ruleset, 1, buffer, 0)
    finally:
        os.close(parent)
