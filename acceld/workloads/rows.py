"""Compute a reference block by block of rows: less memory, and a block on each core.

A workload says along which axes that can be done: ``rows = ["M"]`` means that a row of every output depends on no other
row of the arguments that have the axis M.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acceld.cores import THREADS
from acceld.workloads.oracle import called, reference_of
from acceld.workloads.records import Output, Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_ELEMENTS = 3 << 20
"""Greatest number of elements of an output's block, unless a single row has more: 24 MiB in float64. The C library asks
the system for arrays from 32 MiB on each time, and the system clears them.
"""
_LEAST_ELEMENTS = 1 << 19
"""Number of elements from which on a block is worth a thread of its own."""
_BLOCKS_PER_CORE = 2


@dataclass(frozen=True, slots=True)
class RowBlock:
    """A block of rows that is equal for every output: the indices by axis. ``before`` of ``total`` rows come before
    them.
    """

    slices: Mapping[str, slice]
    before: int = 0
    total: int = 1

    def of(self, array: NDArray[Any], axes: Sequence[str]) -> NDArray[Any]:
        """Return the part of an array with these axes that belongs to the block; all of it if it has none of them."""
        return array[tuple(self.slices.get(axis, slice(None)) for axis in axes)]

    def shape(self, output: Output) -> tuple[int, ...]:
        """Return the shape of the block of an output."""
        return tuple(
            len(range(extent)[self.slices.get(axis, slice(None))])
            for extent, axis in zip(output.shape, output.axes, strict=True)
        )

    def first(self, count: int) -> int:
        """Return the first of an output's ``count`` rows or elements that belongs to the block."""
        return count // self.total * self.before


def row_blocks(workload: Workload, most_elements: int | None = None) -> list[RowBlock]:
    """Return the blocks in which the reference may be computed: a single block if no row axes are declared or the
    outputs are small.

    ``most_elements`` bounds an output's block. By default each core gets a few blocks, and each takes little memory.
    """
    largest = max(math.prod(output.shape) for output in workload.outputs)
    if most_elements is None:
        most_elements = min(_MOST_ELEMENTS, max(_LEAST_ELEMENTS, largest // (_BLOCKS_PER_CORE * THREADS)))
    if not workload.rows or largest <= most_elements:
        return [RowBlock({})]
    extents = workload.outputs[0].shape[: len(workload.rows)]
    *outer, inner = extents
    total = math.prod(extents)
    step = math.ceil(inner / math.ceil(inner / max(1, most_elements * total // largest)))
    return [
        RowBlock(
            dict(
                zip(workload.rows, (*(slice(one, one + 1) for one in place), slice(start, start + step)), strict=True)
            ),
            number * inner + start,
            total,
        )
        for number, place in enumerate(itertools.product(*map(range, outer)))
        for start in range(0, inner, step)
    ]


class BlockedReference:
    """The reference of a workload on some inputs, block by block. Threads may compute blocks at the same time.

    ``convert`` changes the dtype of an input.
    """

    def __init__(self, workload: Workload, inputs: Sequence[Any], convert: Callable[[Any], Any]) -> None:
        self._workload, self._inputs, self._convert = workload, inputs, convert
        self._forward = reference_of(workload).forward
        self._shared = {
            position: _constant(convert(value))
            for position, (argument, value) in enumerate(zip(workload.arguments, inputs, strict=True))
            if not set(argument.axes) & set(workload.rows)
        }

    def outputs(self, block: RowBlock) -> list[NDArray[Any]]:
        """Return the block of each output. WorkloadError if the reference raises or returns other shapes."""
        given = [
            self._shared[position]
            if position in self._shared
            else self._convert(block.of(value, self._workload.arguments[position].axes))
            for position, value in enumerate(self._inputs)
        ]
        shapes = [block.shape(output) for output in self._workload.outputs]
        return called(self._workload, self._forward, given, shapes)


def _constant(value: Any) -> Any:
    """Return an input that all blocks share; a reference that changes it in place raises."""
    if hasattr(value, "flags"):
        value.flags.writeable = False
    return value
