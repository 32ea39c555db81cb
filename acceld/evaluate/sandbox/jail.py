"""Define the limits and rights of an evaluated process (:class:`Jail`), and lock the process in.

The sandbox levels are: L4 namespaces and a cgroup, L3 namespaces, L2 Landlock, L1 seccomp and rlimits, L0
nothing. Each level also has those protections of the lower levels that the system offers.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

from acceld.evaluate.sandbox import landlock, linux, namespaces, seccomp

SLOT_UID = 65_100
"""The first user id for evaluated processes, if the daemon is root."""
SLOTS = 430
"""Number of user ids for evaluated processes. The number is large, so that daemons side by side rarely share an id.

All ids are below 65,534 (nobody), because containers map only such ids.
"""
SHARED_BYTES = 1 << 30
"""Limit on the size of ``/dev/shm`` in a jail with ``wide``."""


class Level(IntEnum):
    """The strength of a sandbox. A higher level includes the protections of the lower levels."""

    L0 = 0
    L1 = 1
    L2 = 2
    L3 = 3
    L4 = 4

    @property
    def summary(self) -> str:
        """Return a line for people that says what the level protects."""
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
    """The limits and rights of one evaluated process and its descendants.

    With ``processes`` = 1 the process can make neither processes nor threads, and RLIMIT_AS limits its whole
    memory. With more processes, a watchdog or the cgroup ends all of them if they use more than
    ``memory_bytes``. ``execute`` allows starting programs in ``read_paths``. Paths are absolute. At level L2
    and above, nothing but these paths can be reached in the file system.
    """

    memory_bytes: int = 2 << 30
    """Limit on the memory that is added to what the process has when it starts."""
    wall_s: float = 60.0
    cpu_s: int = 60
    output_bytes: int = 64 << 20
    """Limit on the size of each file that the process writes, such as its answer."""
    scratch_bytes: int = 64 << 20
    processes: int = 1
    threads: int = 1
    """Number of threads that trusted code with one process may have."""
    open_files: int = 64
    execute: bool = False
    trusted: bool = False
    """True for acceld's own code or a workload's reference. Such code has limits too, but may read files."""
    devices: bool = False
    """True if the process may control the devices among its ``write_paths``. Only for trusted processes."""
    wide: bool = False
    """True for a jail with the system facilities that compilers expect.

    These are ``/proc`` with the jail's own processes, ``/dev/shm``, socket pairs, signals between the jail's processes,
    a user with a name, and unlimited address space. It needs namespaces (L3). A watchdog limits the memory.
    """
    nice: int = 0
    """Number added to the niceness of the process. Only for trusted processes."""
    cores: tuple[int, ...] = ()
    """Processor cores on which the process may run; empty for all."""
    read_paths: tuple[str, ...] = field(default=())
    write_paths: tuple[str, ...] = field(default=())

    def plain(self) -> dict[str, Any]:
        """Return the record as a dict for JSON."""
        return asdict(self)

    @staticmethod
    def from_plain(data: dict[str, Any]) -> Jail:
        """Return the jail from the dict that :meth:`plain` returns."""
        paths = {name: tuple(data[name]) for name in ("cores", "read_paths", "write_paths")}
        return Jail(**(data | paths))


def enter(jail: Jail, level: Level, *, slot: int) -> None:
    """Lock this process in permanently. At level L3 and above it must be the first process of new namespaces.

    Raise OSError if a protection of the level is refused. The caller must then end without running evaluated
    code.
    """
    if jail.cores:
        os.sched_setaffinity(0, jail.cores)
    _end_first()
    if jail.trusted:
        _enter_trusted(jail, level)
        return
    if jail.wide and (level < Level.L3 or jail.processes == 1):
        raise OSError(
            errno.ENOTSUP,
            "a wide jail needs namespaces (sandbox level L3), and a limit of more than one process: it adds /proc and shared memory to the jail",
        )
    base_bytes = _address_space_bytes()
    # Root in a container often lacks these capabilities. Evaluated processes then keep the user id of root, as
    # evaluated processes of an ordinary user keep that user's id.
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
    """Set the limits of a process that runs trusted code, which keeps access to the file system."""
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


def _end_first() -> None:
    """Let the system end this process before the daemon, which may use more memory, where memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def _become(uid: int) -> None:
    """Change this process's user and group permanently."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _address_space_bytes() -> int:
    """Return the size of this process's address space in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _limit(jail: Jail, base_bytes: int, *, own_count: bool) -> None:
    """Set the resource limits (rlimits) of this process to those of ``jail``.

    The address space may grow to ``base_bytes``, what the process has already, and the jail's memory. ``own_count``
    says that the jail has a user id or a user namespace of its own. Only then is the number of processes limited,
    because otherwise the system also counts the other processes of the user.
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
