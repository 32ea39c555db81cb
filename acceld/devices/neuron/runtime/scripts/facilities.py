"""Try the system facilities that compilers use, such as semaphores, to find those that a jail refuses.

Runs on Python >= 3.8 with only the standard library.
"""

from __future__ import annotations

import getpass
import mmap
import multiprocessing
import os
import re
import signal
import socket
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

RESERVED_BYTES = 16 << 30
_PATIENCE_S = 10


def _one(number: int) -> int:
    return number + 1


def _locks() -> None:
    multiprocessing.get_context("fork").Lock()


def _queues() -> None:
    queue = multiprocessing.get_context("fork").SimpleQueue()
    queue.put(1)
    queue.get()


def _pool() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        list(pool.map(_one, [1]))


def _socket_pairs() -> None:
    for end in socket.socketpair():
        end.close()


def _memfd() -> None:
    os.close(getattr(os, "memfd_create")("acceld"))  # noqa: B009 Python 3.8 has it on Linux only


def _user() -> None:
    import pwd

    pwd.getpwuid(os.getuid())
    getpass.getuser()


def _reserve() -> None:
    mmap.mmap(-1, RESERVED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000).close()


def _shared_memory() -> None:
    path = Path("/dev/shm", f"acceld-{os.getpid()}")
    path.write_bytes(b"x")
    path.unlink()


FACILITIES: dict[str, tuple[Callable[[], object], str]] = {
    "semaphores (multiprocessing locks)": (_locks, r"SemLock|synchronize\.py|sem_open|semaphore"),
    "queues of multiprocessing": (_queues, r"multiprocessing[./]queues"),
    "process pools": (_pool, r"concurrent[./]futures|ProcessPool|multiprocessing[./]pool"),
    "pairs of unix sockets": (_socket_pairs, r"socketpair|AF_UNIX"),
    "memfd_create": (_memfd, r"memfd_create"),
    "a user with a name (/etc/passwd)": (_user, r"getpwuid|getpass|/etc/passwd|uid not found"),
    "the process list (/proc)": (lambda: Path("/proc/self/status").read_bytes(), r"/proc\b"),
    "processor counts (/sys)": (lambda: Path("/sys/devices/system/cpu/online").read_bytes(), r"/sys/"),
    "shared memory (/dev/shm)": (_shared_memory, r"/dev/shm|shared_memory"),
    "16 GiB of address space": (_reserve, r"MemoryError|bad_alloc|mmap|Cannot allocate memory"),
}
"""System facilities by name. Each has a function that tries the facility, and a pattern of the errors that appear where
the facility is missing.
"""


def refused() -> dict[str, str]:
    """Return the facilities that this process can not use, each with its error."""
    found = {}
    for name, (attempt, _) in FACILITIES.items():
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(_PATIENCE_S)
        try:
            attempt()
        except BaseException as error:  # noqa: BLE001 whatever the error is, it is the answer
            found[name] = f"{type(error).__name__}: {error}"[:200]
        finally:
            signal.alarm(0)
    return found


def _too_long(*_: object) -> None:
    raise TimeoutError(f"no answer within {_PATIENCE_S} s")


def missing_in(text: str) -> str:
    """Return the facility that is missing according to an error message; empty if the message is about
    something else.
    """
    return next((name for name, (_, pattern) in FACILITIES.items() if re.search(pattern, text)), "")
