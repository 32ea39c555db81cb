"""Define limits and rights of an evaluated process, and lock the process in.

The levels: L4 namespaces and a cgroup, L3 namespaces, L2 Landlock, L1 seccomp and rlimits only, L0 nothing. Every level
also has the layers below it that the system offers.
"""

from __future__ import annotations

import errno
import os
import resource
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

from acceld.evaluate.sandbox import landlock, linux, namespaces, seccomp

SLOT_UID = 65_100
"""First of the uids for evaluated processes if the daemon is root."""
SLOTS = 430
"""Number of user ids to choose from, so that daemons side by side rarely share one. All ids are below 65,534 (nobody),
because containers map those.
"""
SHARED_BYTES = 1 << 30
"""Limit on the size of ``/dev/shm`` in a wide jail."""


class Level(IntEnum):
    """Strength of the sandbox. Each level also has the layers of the levels below it."""

    L0 = 0
    L1 = 1
    L2 = 2
    L3 = 3
    L4 = 4

    @property
    def summary(self) -> str:
        """Return one line for people."""
        return _SUMMARIES[self]


_SUMMARIES = {
    Level.L0: "no isolation of evaluated code: only for sources you trust",
    Level.L1: "seccomp and limits; files of the same user can be read",
    Level.L2: "Landlock, seccomp and limits; the process list is visible",
    Level.L3: "namespaces, Landlock, seccomp and limits",
    Level.L4: "namespaces, a cgroup, Landlock, seccomp and limits",
}


@dataclass(frozen=True, slots=True)
class Jail:
    """Limits and rights of one evaluated process tree.

    With ``processes`` = 1 the process can make neither processes nor threads, so RLIMIT_AS caps its whole memory. With
    more processes, a watchdog (or the cgroup) ends the tree above ``memory_bytes``. ``execute`` lets the tree start
    programs under ``read_paths``. Paths are absolute; nothing else of the file system can be reached from L2 on.
    """

    memory_bytes: int = 2 << 30
    """Memory in addition to what the process has at its start."""
    wall_s: float = 60.0
    cpu_s: int = 60
    output_bytes: int = 64 << 20
    """Size of the largest file that the process may write, its answer included."""
    scratch_bytes: int = 64 << 20
    processes: int = 1
    threads: int = 1
    """Number of threads that trusted code may have in its one process."""
    open_files: int = 64
    execute: bool = False
    trusted: bool = False
    """True for our own code or a workload's reference, which has limits and a process tree, but may read files."""
    devices: bool = False
    """True if the process may drive the devices among its ``write_paths``; for trusted processes only."""
    wide: bool = False
    """True for a jail with the system facilities that compilers expect: a ``/proc`` of its own tree, ``/dev/shm``,
    socket pairs, signals within its tree, a user with a name, and address space without limit. Needs namespaces (L3);
    memory is watched.
    """
    nice: int = 0
    """Amount added to the niceness of the process; for trusted processes only."""
    cores: tuple[int, ...] = ()
    """Processor cores that the process is bound to; empty means any."""
    read_paths: tuple[str, ...] = field(default=())
    write_paths: tuple[str, ...] = field(default=())

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON-able data."""
        return asdict(self)

    @staticmethod
    def from_plain(data: dict[str, Any]) -> Jail:
        """Return the jail that ``plain`` wrote."""
        paths = {name: tuple(data[name]) for name in ("cores", "read_paths", "write_paths")}
        return Jail(**(data | paths))


def enter(jail: Jail, level: Level, *, slot: int) -> None:
    """Lock this process in for good, as the first child of the new namespaces (L3 and L4).

    OSError if a layer of the level is refused; the caller must then end without running evaluated code.
    """
    if jail.cores:
        os.sched_setaffinity(0, jail.cores)
    if jail.trusted:
        _enter_trusted(jail, level)
        return
    if jail.wide and (level < Level.L3 or jail.processes == 1):
        raise OSError(errno.ENOTSUP, "a wide jail needs namespaces (level L3) and a watched tree")
    base_bytes = _address_space_bytes()
    # Root in a container often lacks these capabilities. Its jails then keep the user root, as an ordinary user's jails
    # keep that user.
    others = linux.capable(linux.CAP_SETUID, linux.CAP_SETGID) and os.getuid() == 0
    uid = SLOT_UID + slot % SLOTS if others else os.getuid()
    if level >= Level.L3:
        system = namespaces.System(uid, min(jail.memory_bytes, SHARED_BYTES)) if jail.wide else None
        namespaces.empty_root(
            scratch_bytes=jail.scratch_bytes, read=jail.read_paths, write=jail.write_paths, system=system
        )
    if others and level >= Level.L1:
        _become(uid)
    elif level >= Level.L3:
        linux.drop_capabilities()
    _limit(jail, base_bytes, own_count=others or level >= Level.L3)
    os.umask(0o077)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    linux.prctl(linux.PR_SET_PDEATHSIG, 9)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if level >= Level.L2:
        scratch = ("/tmp",) if level >= Level.L3 else ()
        landlock.restrict(
            read=(*jail.read_paths, *(namespaces.System.READ if jail.wide else ())),
            write=(*jail.write_paths, *scratch, *(namespaces.System.WRITE if jail.wide else ())),
            execute=jail.read_paths if jail.execute else (),
        )
    if level >= Level.L1:
        rules = seccomp.Filter(os.getpid(), fork=jail.processes > 1, execute=jail.execute, wide=jail.wide)
        seccomp.restrict(rules)


def _enter_trusted(jail: Jail, level: Level) -> None:
    os.nice(jail.nice)
    _limit(jail, _address_space_bytes(), own_count=False)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    linux.prctl(linux.PR_SET_PDEATHSIG, 9)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    if level >= Level.L2:
        landlock.restrict(read=("/",), write=jail.write_paths)
    if level >= Level.L1:
        rules = seccomp.Filter(
            os.getpid(), fork=jail.processes > 1 or jail.threads > 1, execute=True, devices=jail.devices
        )
        seccomp.restrict(rules)


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _address_space_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _limit(jail: Jail, base_bytes: int, *, own_count: bool) -> None:
    """Set the rlimits. With ``own_count`` the jail's processes are counted apart from those of the user, because the
    jail has its own uid or user namespace.
    """
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: jail.cpu_s,
        resource.RLIMIT_FSIZE: jail.output_bytes,
        resource.RLIMIT_NOFILE: jail.open_files,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if not jail.wide:
        limits[resource.RLIMIT_AS] = base_bytes + jail.memory_bytes
    if jail.processes > 1 and own_count:
        limits[resource.RLIMIT_NPROC] = jail.processes + 1
    for name, value in limits.items():
        hard = resource.getrlimit(name)[1]
        bounded = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (bounded, bounded))
