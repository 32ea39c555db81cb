"""Lay out the memory that a worker shares with its referee: inputs and outputs as raw arrays, with guard zones between
them.

The arena is a sealed memory file, so that the worker can not shrink it while the referee uses it. Every byte outside
the arrays belongs to a guard zone of random bytes. A changed byte there means a write out of bounds.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

GUARD_BYTES = 4096
"""Least size of the guard zone before, between and after arrays."""
_STEP_BYTES = 64
_SKEW_BYTES = 320
"""Bytes added for each array, so that the arrays do not all start on the same cache sets."""
_F_ADD_SEALS, _F_SEALS = 1033, 0x1 | 0x2 | 0x4
"""Constants of fcntl(2): add seals; the seals against sealing, shrinking and growing."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An array of the arena: its offset in bytes, its dtype and its shape."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize

    def view(self, memory: Any) -> NDArray[Any]:
        """Return the array in ``memory``, which is a whole arena."""
        flat = np.frombuffer(memory, numpy_dtype(self.dtype), math.prod(self.shape), self.offset)
        return flat.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """The offsets of a kernel's arrays in the arena."""

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    size_bytes: int

    @property
    def input_bytes(self) -> int:
        """Bytes of one call's inputs, without guards."""
        return sum(slot.size_bytes for slot in self.inputs)

    @property
    def output_bytes(self) -> int:
        """Bytes of one call's outputs, without guards."""
        return sum(slot.size_bytes for slot in self.outputs)

    def guards(self) -> Iterator[tuple[int, int]]:
        """Yield the start and end of every guard zone."""
        cursor = 0
        for slot in sorted((*self.inputs, *self.outputs), key=lambda one: one.offset):
            yield cursor, slot.offset
            cursor = slot.offset + slot.size_bytes
        yield cursor, self.size_bytes

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON-able data."""
        return {
            "inputs": [[s.name, s.offset, s.shape, s.dtype] for s in self.inputs],
            "outputs": [[s.name, s.offset, s.shape, s.dtype] for s in self.outputs],
            "size_bytes": self.size_bytes,
        }

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> Layout:
        """Return the layout that ``plain`` wrote."""
        inputs, outputs = (
            tuple(Slot(name, offset, tuple(shape), dtype) for name, offset, shape, dtype in data[which])
            for which in ("inputs", "outputs")
        )
        return Layout(inputs, outputs, data["size_bytes"])


def lay_out(arguments: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]) -> Layout:
    """Return the layout for a job's arrays: ``arguments`` and ``outputs`` as
    :func:`acceld.evaluate.hosted.driver.job_of` has them.
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


def memory_file(name: str, size_bytes: int) -> int:
    """Return a memory file of fixed size; nobody can shrink or grow it. OSError if there is no memory."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, _F_ADD_SEALS, _F_SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the numpy dtype for a name, from ml_dtypes if numpy has none."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
