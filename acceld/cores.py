"""Share work on arrays, whose loops release Python's lock, among a few cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_THREADS = 4
"""Each thread needs address space and blocks of its own, and other evaluations run at the same time."""
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Number of processor cores that this process may use."""
THREADS = min(CORES, _MOST_THREADS)
"""Number of threads that share work on arrays."""


def on_several_cores(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the function's results in order. It must allow several calls at the same time."""
    import numpy as np

    def quietly(item: Item) -> Result:
        with np.errstate(all="ignore"):  # a new thread does not inherit it
            return function(item)

    if min(THREADS, len(items)) <= 1:
        return [quietly(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(THREADS, len(items))) as pool:
        return list(pool.map(quietly, items))
