"""Use every core for work on arrays, whose loops release Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""Number of threads, this process's own included."""


def on_every_core(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the function's results in order. It must allow several calls at the same time."""

    import numpy as np

    def quietly(item: Item) -> Result:
        with np.errstate(all="ignore"):  # a new thread does not inherit it
            return function(item)

    if min(THREADS, len(items)) <= 1:
        return [quietly(item) for item in items]
    with ThreadPoolExecutor(min(THREADS, len(items))) as pool:
        return list(pool.map(quietly, items))
