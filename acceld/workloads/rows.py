"""Compute a reference in blocks of rows, to need less memory, and to use a core for each block.

A workload says along which axes this is possible. ``rows = ["M"]`` means that index m of axis M in every output
depends only on index m of the arguments that have M, and on arguments that are given whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acceld.workloads.oracle import called, reference_of
from acceld.workloads.records import Argument, Output, Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST_ELEMENTS = 3 << 20
"""Greatest number of elements of an output's block, unless a single row has more: 24 MiB in float64. For arrays of 32
MiB and more the C library gets new memory from the system each time, and the system has to clear this memory.
"""
_LEAST_ELEMENTS = 1 << 19
"""Number of elements from which on a block is worth a thread of its own: 4 MiB, which a core's caches nearly hold."""
_ROWS = 512
"""Least number of rows of a block. With fewer rows, a matrix product would spend much of its time on packing the other
operand.
"""
_RUNS = 8
"""Greatest number of blocks from which a sample takes rows."""
_LEAST_ROWS = 256
"""Least number of rows of a sample."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """A block of rows: which indices of each row axis belong to it. The indices are the same for every output."""

    slices: Mapping[str, slice]

    def of(self, array: NDArray[Any], axes: Sequence[str]) -> NDArray[Any]:
        """Return the part of an array that belongs to the block; the whole array if none of its ``axes`` is divided
        into blocks.
        """
        index: tuple[Any, ...] = tuple(self.slices.get(axis, slice(None)) for axis in axes)
        return array[(*index, ...)]  # a single value without axes stays an array

    def shape(self, output: Output) -> tuple[int, ...]:
        """Return the shape of the part of an output that belongs to the block."""
        return tuple(
            len(range(extent)[self.slices.get(axis, slice(None))])
            for extent, axis in zip(output.shape, output.axes, strict=True)
        )

    def within(self, outer: RowBlock) -> RowBlock:
        """Return this block with its rows counted from the first row of ``outer``, a block that contains it."""
        return RowBlock(
            {
                axis: slice(part.start - outer.slices[axis].start, part.stop - outer.slices[axis].start)
                for axis, part in self.slices.items()
            }
        )


def row_blocks(workload: Workload, most_elements: int | None = None) -> list[RowBlock]:
    """Return the blocks in which a reference may be computed: a single block if the workload declares no row axes, or
    if its outputs are small.

    An output's part of a block has at most ``most_elements`` elements. By default a block takes little memory, and its
    products are fast.
    """
    largest = max(math.prod(output.shape) for output in workload.outputs)
    *outer, inner = _extents(workload) or [1]
    total = math.prod(outer) * inner
    if most_elements is None:
        most_elements = min(_MOST_ELEMENTS, max(_LEAST_ELEMENTS, _ROWS * (largest // total)))
    if not workload.rows or largest <= most_elements:
        return [RowBlock({})]
    step = math.ceil(inner / math.ceil(inner / max(1, most_elements * total // largest)))
    return [
        RowBlock(
            dict(
                zip(
                    workload.rows,
                    (*(slice(one, one + 1) for one in place), slice(start, min(start + step, inner))),
                    strict=True,
                )
            )
        )
        for place in itertools.product(*map(range, outer))
        for start in range(0, inner, step)
    ]


def sampled(
    workload: Workload, blocks: Sequence[RowBlock], most_elements: int, rng: np.random.Generator
) -> dict[int, RowBlock]:
    """Return consecutive rows at a random position in a few blocks, as a dict by block number: about ``most_elements``
    elements of each output. If the blocks have no more elements than that, return all of them whole.
    """
    every = dict(enumerate(blocks))
    if len(blocks) == 1:
        return every
    total = math.prod(_extents(workload))
    row = max(math.prod(output.shape) for output in workload.outputs) // total
    wanted, inner = max(_LEAST_ROWS, most_elements // row), workload.rows[-1]
    if wanted >= total:
        return every
    innermost = any(output.axes[-1:] == (inner,) for output in workload.outputs)
    # Errors of short parts of a vector differ more than the error of the whole vector.
    runs = 1 if innermost else min(_RUNS, len(blocks))
    length, chosen = math.ceil(wanted / runs), dict[int, RowBlock]()
    for number in sorted(rng.choice(len(blocks), runs, replace=False).tolist()):
        whole = blocks[number].slices[inner]
        first = whole.start + int(rng.integers(max(1, whole.stop - whole.start - length + 1)))
        chosen[number] = RowBlock({**blocks[number].slices, inner: slice(first, min(first + length, whole.stop))})
    return chosen


def _extents(workload: Workload) -> list[int]:
    """Return the length of each row axis."""
    output = workload.outputs[0]
    return [output.shape[output.axes.index(axis)] for axis in workload.rows]


class BlockedReference:
    """A workload's reference on some inputs, computed block by block. Threads may compute blocks at the same time.

    ``convert`` returns an input in the dtype in which the reference computes.
    """

    def __init__(self, workload: Workload, inputs: Sequence[Any], convert: Callable[[Any], Any]) -> None:
        self._workload, self._inputs, self._convert = workload, inputs, convert
        self._forward = reference_of(workload).forward
        self._shared = {
            position: _constant(convert(value))
            for position, (argument, value) in enumerate(zip(workload.arguments, inputs, strict=True))
            if not self._is_cut(argument)
        }

    def _is_cut(self, argument: Argument) -> bool:
        return not argument.whole and bool(set(argument.axes) & set(self._workload.rows))

    def outputs(self, block: RowBlock) -> list[NDArray[Any]]:
        """Return the part of each output that belongs to a block. Raise WorkloadError if the reference raises, or
        returns other shapes.
        """
        given = [
            self._shared[position] if position in self._shared else self._part(block, position)
            for position in range(len(self._inputs))
        ]
        shapes = [block.shape(output) for output in self._workload.outputs]
        return called(self._workload, self._forward, given, shapes)

    def _part(self, block: RowBlock, position: int) -> NDArray[Any]:
        """Return a copy of the part of an input that belongs to a block, because the reference may change it in place."""
        part = block.of(self._inputs[position], self._workload.arguments[position].axes)
        made: NDArray[Any] = self._convert(part)
        return part.copy() if made is part else made


def _constant(value: Any) -> Any:
    """Return an input that all blocks share, as a read-only array: a reference that changes it raises an error."""
    if not hasattr(value, "flags"):
        return value
    shared = value.view()
    shared.flags.writeable = False
    return shared
