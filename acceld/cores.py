"""Share work on arrays among threads. Numpy's loops run at the same time, because they release the
interpreter's lock.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_THREADS = 4
"""Greatest number of threads: each needs address space and arrays of its own, and other evaluations run at the same
time.
"""
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Number of processor cores that this process may use."""
THREADS = min(CORES, _MOST_THREADS)
"""Number of threads that share work on arrays."""


_own = threading.local()
"""Data of each thread. ``busy`` is True in the threads of the pool."""


def on_several_cores(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return ``function(item)`` for each item, in the order of ``items``. Calls run at the same time in several
    threads.

    A call from inside ``function`` runs in its own thread alone, so that threads do not wait for each other.
    """
    import numpy as np

    def quietly(item: Item) -> Result:
        with np.errstate(all="ignore"):  # a new thread does not inherit numpy's error state
            return function(item)

    if min(THREADS, len(items)) <= 1 or getattr(_own, "busy", False):
        return [quietly(item) for item in items]
    return list(_pool(os.getpid()).map(quietly, items))


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the thread pool of the process with this id; a forked process has no threads, so it gets a pool of its
    own.

    The threads live as long as the process. New threads for each call could exceed the sandbox's limit on threads,
    because the system counts a thread for a while after its end.
    """
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(THREADS, initializer=_begin)


def _begin() -> None:
    """Mark the current thread as a thread of the pool."""
    _own.busy = True
