"""Restrict numpy's matrix products to one thread while a program runs.

Tiles are too small to be divided among threads. With two threads OpenBLAS is up to sixteen times slower on them when
the machine is busy, and simulator slots already use every core. Setting ``OPENBLAS_NUM_THREADS=1`` before numpy is
imported has the same effect on a whole process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")


@cache
def _controls() -> tuple[Callable[[], int], Callable[[int], object]] | None:
    """Return OpenBLAS's functions that get and set the number of threads; None if numpy uses another library."""
    home = Path(np.__file__).parent
    for library in sorted([*home.parent.glob("numpy.libs/*openblas*"), *home.glob(".dylibs/*openblas*")]):
        try:
            loaded = ctypes.CDLL(str(library))
        except OSError:
            continue
        for name in _NAMES:
            get, change = getattr(loaded, name.format("get"), None), getattr(loaded, name.format("set"), None)
            if get is not None and change is not None:
                return get, change
    return None


@contextmanager
def one_thread() -> Iterator[None]:
    """Run matrix products with one thread inside the block, and restore the former number of threads after it."""
    controls = _controls()
    if controls is None:
        yield
        return
    get, change = controls
    before = get()
    change(1)
    try:
        yield
    finally:
        change(before)
