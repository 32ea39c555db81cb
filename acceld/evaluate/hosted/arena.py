"""The memory a worker shares with its referee: inputs and outputs as raw arrays, with guard zones between them.

The arena is a sealed memory file, so that the worker can not shrink it under the referee's feet. Every byte that is
no element belongs to a guard zone of random bytes; one that changed was written out of bounds.
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
"""Least size of the zone before, between and after arrays."""
_STEP_BYTES = 64
_SKEW_BYTES = 320
"""Added for each array, so that not all of them fall on the same cache sets."""
_F_ADD_SEALS, _F_SEALS = 1033, 0x1 | 0x2 | 0x4
"""fcntl(2): seal against sealing, shrinking and growing."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One array of the arena: where it begins, in bytes, and what it is."""

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
    """Offsets of the arrays of one kernel."""

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
        """Start and end of every guard zone."""
        cursor = 0
        for slot in sorted((*self.inputs, *self.outputs), key=lambda one: one.offset):
            yield cursor, slot.offset
            cursor = slot.offset + slot.size_bytes
        yield cursor, self.size_bytes

    def plain(self) -> dict[str, Any]:
        """As JSON-able data."""
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
    """Return places for the arrays of a job: ``arguments`` and ``outputs`` as
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
    """Return a memory file of fixed size; nobody can shrink or grow it. OSError where there is no memory."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.truncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, _F_ADD_SEALS, _F_SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return numpy's dtype for a dtype name, from ml_dtypes where numpy has none."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
