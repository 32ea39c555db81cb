"""Lay out the *arena*, the memory that a worker shares with its referee: inputs and outputs as raw arrays.

The arena is a sealed memory file, so that the worker can not shrink it while the referee uses it. All bytes
outside of the arrays are guard zones of random bytes. If a byte of a guard zone changes, the kernel has written
out of bounds.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

GUARD_BYTES = 4096
"""Least size of the guard zones before, between and after the arrays."""
_STEP_BYTES = 64
_SKEW_BYTES = 320
"""Bytes that are added for each array, so that not all arrays begin in the same cache sets."""
_F_ADD_SEALS, _F_SEALS = 1033, 0x1 | 0x2 | 0x4
"""Constants of fcntl(2): the command that adds seals, and the seals that forbid further seals, shrinking and growing.
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """The position of one array in the arena: offset in bytes, shape and dtype."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Return the size of the array in bytes."""
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize

    def view(self, memory: Any) -> NDArray[Any]:
        """Return the array as a view of ``memory``, which holds the whole arena."""
        flat = np.frombuffer(memory, numpy_dtype(self.dtype), math.prod(self.shape), self.offset)
        return flat.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of a kernel's arrays in the arena."""

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    size_bytes: int
    closed: tuple[tuple[int, int], ...] = ()
    """Pages that the worker can neither read nor write, each as (start, end)."""
    sealed: tuple[tuple[int, int], ...] = ()
    """Pages that the worker can only read, each as (start, end): the pages of inputs that the kernel may not change."""
    second: Layout | None = None
    """The layout of every second call, if the arrays move between calls; else None."""

    def at(self, number: int) -> Layout:
        """Return the layout of call ``number``. If the arrays move, even and odd calls have different layouts."""
        return self.second if self.second is not None and number % 2 else self

    @property
    def input_bytes(self) -> int:
        """Return the bytes of all inputs of one call, without guard zones."""
        return sum(slot.size_bytes for slot in self.inputs)

    @property
    def output_bytes(self) -> int:
        """Return the bytes of all outputs of one call, without guard zones."""
        return sum(slot.size_bytes for slot in self.outputs)

    def guards(self) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of every guard zone, as offsets in bytes."""
        cursor = 0
        for slot in sorted((*self.inputs, *self.outputs), key=lambda one: one.offset):
            yield cursor, slot.offset
            cursor = slot.offset + slot.size_bytes
        yield cursor, self.size_bytes

    def plain(self) -> dict[str, Any]:
        """Return the record as a dict for JSON."""
        return {
            "inputs": [[s.name, s.offset, s.shape, s.dtype] for s in self.inputs],
            "outputs": [[s.name, s.offset, s.shape, s.dtype] for s in self.outputs],
            "size_bytes": self.size_bytes,
            "closed": self.closed,
            "sealed": self.sealed,
            "second": None if self.second is None else self.second.plain(),
        }

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> Layout:
        """Return the layout from the dict that :meth:`plain` returns."""
        inputs, outputs = (
            tuple(Slot(name, offset, tuple(shape), dtype) for name, offset, shape, dtype in data[which])
            for which in ("inputs", "outputs")
        )
        second = None if data["second"] is None else Layout.from_plain(data["second"])
        closed, sealed = (tuple((start, end) for start, end in data[which]) for which in ("closed", "sealed"))
        return Layout(inputs, outputs, data["size_bytes"], closed, sealed, second)


def lay_out(arguments: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]) -> Layout:
    """Return the layout of a timed call's inputs and outputs in the arena: an offset for each array, with a guard zone
    before, between and after the arrays.

    ``arguments`` and ``outputs`` are those of a job, as :func:`acceld.evaluate.hosted.driver.job_of` describes them.
    """
    cursor = 0
    places: tuple[list[Slot], list[Slot]] = ([], [])
    number = 0
    for slots, described in zip(places, (arguments, outputs), strict=True):
        for one in described:
            if "shape" not in one:
                continue
            start = -(-(cursor + GUARD_BYTES) // _STEP_BYTES) * _STEP_BYTES + number % 8 * _SKEW_BYTES
            slot = Slot(one["name"], start, tuple(one["shape"]), one["dtype"])
            slots.append(slot)
            cursor = start + slot.size_bytes
            number += 1
    size = -(-(cursor + GUARD_BYTES) // GUARD_BYTES) * GUARD_BYTES
    return Layout(tuple(places[0]), tuple(places[1]), size)


def lay_out_apart(
    arguments: Sequence[Mapping[str, Any]],
    outputs: Sequence[Mapping[str, Any]],
    random: np.random.Generator,
    mutates: Sequence[int] = (),
) -> Layout:
    """Return the layout of inputs and outputs in the arena for calls that are checked and not timed, with *closed
    pages* between the arrays. The worker ends when it touches a closed page.

    In even calls each array ends where a closed page begins. In odd calls each array begins an odd number of elements
    behind a closed page, so that it is aligned to its elements only. All distances are random. Inputs are sealed,
    except for those with a number in ``mutates``: a kernel that borrows the memory of an input fails, even if the
    kernel puts everything back.
    """
    page = mmap.PAGESIZE
    closed: list[tuple[int, int]] = []
    sealed: list[tuple[int, int]] = []
    made: list[tuple[list[Slot], list[Slot]]] = []
    cursor = 0
    for moved in (False, True):
        places: tuple[list[Slot], list[Slot]] = ([], [])
        for slots, described in zip(places, (arguments, outputs), strict=True):
            for one in described:
                if "shape" not in one:
                    continue
                start = cursor + page * int(random.integers(1, 8))
                closed.append((cursor, start))
                item = numpy_dtype(one["dtype"]).itemsize
                skip = item * int(random.integers(0, 8) * 2 + 1) if moved else 0
                size = math.prod(one["shape"]) * item
                cursor = start + -(-(size + skip) // page) * page
                offset = start + skip if moved else cursor - size
                if slots is places[0] and len(slots) not in mutates:
                    sealed.append((start, cursor))
                slots.append(Slot(one["name"], offset, tuple(one["shape"]), one["dtype"]))
        made.append(places)
    closed.append((cursor, cursor + page))
    pages = tuple(closed), tuple(sealed)
    first, second = (Layout(tuple(ins), tuple(outs), cursor + page, *pages) for ins, outs in made)
    return replace(first, second=second)


def close_pages(layout: Layout, memory: mmap.mmap) -> None:
    """Protect the closed and the sealed pages of a layout from this process. Raise OSError if the system refuses."""
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for pages, allowed in ((layout.closed, _NO_ACCESS), (layout.sealed, mmap.PROT_READ)):
        for first, end in pages:
            if _libc.mprotect(ctypes.c_void_p(start + first), ctypes.c_size_t(end - first), allowed):
                raise OSError(ctypes.get_errno(), "a page of the arrays can not be protected")


_NO_ACCESS = 0
"""Protection of mprotect(2) that allows nothing."""
_libc = ctypes.CDLL(None, use_errno=True)


def memory_file(name: str, size_bytes: int) -> int:
    """Return the descriptor of a new memory file of fixed size. Raise OSError if there is not enough memory."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, _F_ADD_SEALS, _F_SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of this name, from ml_dtypes if that package has it, else from numpy."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
