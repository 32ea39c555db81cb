"""Derive metamorphic checks: relations that two runs on related inputs must keep, independent of the reference.

==========  ====================================================================================================
reorder     permuting ``axis`` of ``arguments`` leaves every output alone
permute     permuting ``axis`` of ``arguments`` permutes ``output_axis`` of every output in the same way
scale       multiplying ``arguments`` by 4 multiplies every output by ``4 ** power`` (exact, a power of two)
shift       adding a constant to all elements of ``arguments`` along ``axis`` leaves every output alone
zero        zeroing one index of ``axis`` of ``arguments`` makes that index of ``output_axis`` of every output zero
==========  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acceld.workloads.records import Metamorphic, Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Arrays = Sequence[NDArray[Any]]

METAMORPHIC_KINDS: Mapping[str, str] = {
    "reorder": "permuted inputs, same outputs",
    "permute": "permuted inputs, permuted outputs",
    "scale": "scaled inputs, scaled outputs",
    "shift": "shifted inputs, same outputs",
    "zero": "zero rows, zero outputs",
}

_FACTOR = 4.0


@dataclass(frozen=True, slots=True)
class MetamorphicPair:
    """Inputs for a second run, and the relation to the first run: a function that turns the first run's outputs (in
    the reference's layout) into the outputs that the second run must give.
    """

    inputs: list[Any]
    expected: Callable[[Arrays], list[NDArray[Any]]]


def metamorphic_pair(
    workload: Workload, check: Metamorphic, inputs: Sequence[Any], rng: np.random.Generator
) -> MetamorphicPair:
    """Return the second inputs that ``check`` makes from ``inputs``, and the relation that the two runs' outputs must
    keep.
    """
    import numpy as np

    changed = list(inputs)
    positions = [i for i, argument in enumerate(workload.arguments) if argument.name in check.arguments]
    if check.kind == "scale":
        for position in positions:
            changed[position] = (inputs[position] * _FACTOR).astype(inputs[position].dtype)
        return MetamorphicPair(changed, lambda outputs: [o * _FACTOR**check.power for o in outputs])
    if check.kind == "shift":
        for position in positions:
            array = inputs[position]
            extents = tuple(1 if axis == check.axis else extent for axis, extent in enumerate(array.shape))
            changed[position] = array + rng.integers(-2, 3, extents).astype(array.dtype)
        return MetamorphicPair(changed, lambda outputs: list(outputs))
    extent = inputs[positions[0]].shape[check.axis]
    if check.kind in ("permute", "reorder"):
        order = rng.permutation(extent)
        for position in positions:
            changed[position] = np.ascontiguousarray(np.take(inputs[position], order, check.axis))
        if check.kind == "reorder":
            return MetamorphicPair(changed, lambda outputs: list(outputs))
        return MetamorphicPair(changed, lambda outputs: [np.take(o, order, check.output_axis) for o in outputs])
    victim = int(rng.integers(extent))
    for position in positions:
        array = inputs[position].copy()
        array[(slice(None),) * check.axis + (victim,)] = 0
        changed[position] = array

    def zeroed(outputs: Arrays) -> list[NDArray[Any]]:
        copies = [np.array(o) for o in outputs]
        for copy in copies:
            copy[(slice(None),) * check.output_axis + (victim,)] = 0
        return copies

    return MetamorphicPair(changed, zeroed)
