"""Build sorting networks: fixed lists of comparisons, each of which puts two elements in order.

The network is Batcher's odd-even merge sort (K. E. Batcher, Sorting networks and their applications, 1968).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

Rectangle = tuple[int, tuple[tuple[int, int], ...]]
"""A pattern of positions at regular distances: the first position, and a pair (step, count) for each axis, the smallest
step last.
"""


def stages(extent: int) -> list[tuple[int, list[int]]]:
    """Return the stages of a network that sorts ``extent`` elements, each as (distance, positions).

    For each of its positions, a stage puts two elements in order: the element at the position, and the element at that
    distance after it. The pairs of a stage share no element.
    """
    found = []
    merged = 1
    while merged < extent:
        distance = merged
        while distance:
            starts = range(distance % merged, extent - distance, 2 * distance)
            every = (start + at for start in starts for at in range(min(distance, extent - start - distance)))
            whole = 2 * merged
            found.append((distance, [at for at in every if at // whole == (at + distance) // whole]))
            distance //= 2
        merged *= 2
    return found


def rectangles(positions: Sequence[int]) -> list[Rectangle]:
    """Return ascending positions as a short list of strided patterns, each with up to three axes."""
    found: list[Rectangle] = [(at, ()) for at in positions]
    for _ in range(3):
        found = [one for _, alike in itertools.groupby(found, key=lambda one: one[1]) for one in _rows(list(alike))]
    return [(start, axes or ((1, 1),)) for start, axes in found]


def _rows(alike: list[Rectangle]) -> list[Rectangle]:
    """Return the patterns, with those joined along one more axis whose first positions are equally spaced. All given
    patterns have the same axes.
    """
    found: list[Rectangle] = []
    at = 0
    while at < len(alike):
        end = at + 1
        step = alike[end][0] - alike[at][0] if end < len(alike) else 0
        while end < len(alike) and alike[end][0] - alike[end - 1][0] == step:
            end += 1
        start, axes = alike[at]
        found.append((start, ((step, end - at), *axes) if end - at > 1 else axes))
        at = end
    return found
