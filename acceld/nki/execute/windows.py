"""Compute the *window* of an instruction: the part of its iteration space that its mask keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from acceld.nki.execute.machine import Env, Machine, affine, pattern_values
from acceld.nki.ir.numerics import Array
from acceld.nki.ir.program import Pattern


@dataclass(frozen=True, slots=True)
class Crop:
    """A window that is a box of the iteration space: ``ranges[axis]`` is (first, end), with ``end`` excluded."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Mask:
    """A window of any form. ``keep`` is a boolean array of the iteration space's shape, True for the points to compute."""

    keep: Array


Window = Crop | Mask | None
"""The part of the iteration space that is computed; None for the whole space."""


class Nothing:
    """The window of a mask that excludes every element."""


NOTHING = Nothing()


def window_function(
    machine: Machine, patterns: tuple[Pattern, ...], shape: tuple[int, ...], *, general: bool
) -> Callable[[Env], Window | Nothing]:
    """Return a function that computes the instruction's window for the current iterations of the loops.

    If each pattern of the mask bounds a single axis, the window is a Crop. Otherwise, or with ``general``, it
    is a Mask.
    """
    single = all(sum(coef != 0 for coef in pattern.coefs) <= 1 for pattern in patterns)
    if general or not single:
        return _boolean(machine, patterns, shape)
    whole = tuple((0, count) for count in shape)
    bounds = []
    for pattern in patterns:
        axis = next((k for k, coef in enumerate(pattern.coefs) if coef), -1)
        bounds.append((affine(machine, pattern.base), axis, pattern.coefs[axis] if axis >= 0 else 0))

    def crop(env: Env) -> Window | Nothing:
        ranges = list(whole)
        for base, axis, coef in bounds:
            value = base(env)
            if axis < 0:
                if value < 0:
                    return NOTHING
                continue
            first, end = ranges[axis]
            if coef > 0:
                first = max(first, -(value // coef))
            else:
                end = min(end, value // -coef + 1)
            if first >= end:
                return NOTHING
            ranges[axis] = (first, end)
        found = tuple(ranges)
        return None if found == whole else Crop(found)

    return crop


def _boolean(
    machine: Machine, patterns: tuple[Pattern, ...], shape: tuple[int, ...]
) -> Callable[[Env], Window | Nothing]:
    values = [pattern_values(machine, pattern, shape) for pattern in patterns]

    def mask(env: Env) -> Window | Nothing:
        keep = np.ones(shape, np.bool_)
        for value in values:
            keep &= value(env) >= 0
        if keep.all():
            return None
        return Mask(keep) if keep.any() else NOTHING

    return mask
