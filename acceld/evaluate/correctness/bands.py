"""Draw inputs at the limits of float32: a data set whose rows follow many hard distributions, each measured by itself.

A banded variant names an axis that inputs and outputs share, by the symbol in ``workload.toml``: ``banded/M``. Each
index of that axis belongs to one *band*, in an order that the seed decides. Arguments without the axis stay as the
workload draws them. The bands are:

===============  =========================================================================================
tiny, minute     times 1e-10; times 2^-64, where every epsilon matters
huge             times 3e5
offset-100       plus 100 standard deviations; plus 1000 in ``offset-1000``
below-100        minus 100 standard deviations; minus 1000 in ``below-1000``
spikes           one element of each innermost vector is 30 to 300 standard deviations large
tails            magnitudes from 1e-10 to 3e5, of either sign
zeros            nine of ten elements zero
aligned          a vector is a multiple of a vector that it is multiplied with, plus part of that vector's neighbor
tiny-v, huge-v   the argument v alone
nan              a few elements are NaN, if the workload says what the outputs must then be
===============  =========================================================================================

A band decides nothing if its outputs can not show whether a kernel is right. There are three such cases. The reference
is not finite. The reference's outputs differ by much in float32 arithmetic, or after a change of the inputs as small
as a rounding. Or the outputs are too small for float32.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceld.workloads import Argument, Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PREFIX = "banded/"
_SCALED = {"tiny": 1e-10, "minute": 2.0**-64, "huge": 3e5}
_OFFSETS = {"offset-100": 100.0, "offset-1000": 1000.0}
_BELOW = {"below-100": -100.0, "below-1000": -1000.0}
"""Shifts in standard deviations that make all elements of a band negative. No vector that is drawn around zero is so."""
_SPIKES, _ALIGNED = "spikes", "aligned"
_KEPT = 0.1
_NAN_SHARE = 1 / 256
_WIDE = ("float32", "bfloat16")
"""Dtypes that can hold the magnitudes of all bands."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an output that is measured separately: every ``step``-th index of ``axis``, from ``start`` on."""

    output: int
    axis: int = 0
    start: int = 0
    step: int = 1
    band: str = ""

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return this part of ``array``, which is an output in the reference's layout."""
        if self.step == 1:
            return array
        return array[(slice(None),) * self.axis + (slice(self.start, None, self.step),)]

    @property
    def name(self) -> str:
        """Return what messages call this part: ``output 0``, or ``output 0, band NAME``."""
        return f"output {self.output}, band {self.band}" if self.band else f"output {self.output}"

    def plain(self) -> list[Any]:
        """Return the fields in order, as a list for JSON."""
        return [self.output, self.axis, self.start, self.step, self.band]


def is_banded(variant: str) -> bool:
    """Tell whether the outputs of a variant are measured band by band."""
    return variant.startswith(PREFIX)


@cache
def stored_as(variant: str) -> str:
    """Return the name under which data and noise of a variant are stored. For a banded variant the name changes whenever
    this file does, because other bands lie at other positions.
    """
    if not is_banded(variant):
        return variant
    return f"{variant} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"


def banded_variants(workload: Workload) -> list[str]:
    """Return the names of a workload's banded variants, one for each axis along which an argument is drawn by
    bands.
    """
    if workload.sample is not None:
        return []
    axes = [_axis(workload, argument) for argument in workload.arguments]
    return [PREFIX + axis for axis in dict.fromkeys(filter(None, axes))]


def pieces_of(workload: Workload, variant: str, seed: int) -> list[Piece]:
    """Return the parts of the outputs that are measured separately.

    The parts are the whole outputs, or in a banded variant the bands of each output. The order of the list is the same
    for every seed, the positions of the bands are not.
    """
    if not is_banded(variant):
        return [Piece(number) for number in range(len(workload.outputs))]
    symbol = variant.removeprefix(PREFIX)
    places = _places(workload, symbol, seed)
    pieces: list[Piece] = []
    for number, output in enumerate(workload.outputs):
        if symbol not in output.axes:
            pieces.append(Piece(number))
            continue
        axis = output.axes.index(symbol)
        pieces += [Piece(number, axis, place.start, place.step, band) for band, place in places.items()]
    return pieces


def banded_inputs(workload: Workload, own: Sequence[Any], variant: str, seed: int) -> list[Any]:
    """Return the inputs of a banded variant: the workload's inputs ``own``, changed in each band."""
    import numpy as np

    symbol = variant.removeprefix(PREFIX)
    places, unaligned = _places(workload, symbol, seed), True
    rng = np.random.default_rng([seed % 2**63, 13])
    made = list(own)
    for position, argument in enumerate(workload.arguments):
        if _axis(workload, argument) != symbol:
            continue
        array = np.array(own[position])
        deviation = float(np.std(own[position], dtype=np.float64)) or 1.0
        for band, place in places.items():
            here = _along(argument, symbol, place)
            part = array[here].astype(np.float32)
            if band != _ALIGNED:
                part = _changed(part, band, argument, deviation, rng)
            elif unaligned:  # only one argument is aligned with its partner, which stays unchanged
                part, unaligned = _aligned(workload, own, argument, part, symbol, place, rng), False
            array[here] = part.astype(array.dtype)
        made[position] = array
    return made


def _changed(
    part: NDArray[Any], band: str, argument: Argument, deviation: float, rng: np.random.Generator
) -> NDArray[Any]:
    """Return ``part``, the elements of an argument whose index belongs to one band, changed as that band prescribes."""
    import numpy as np

    never_negative = argument.distribution is not None and argument.distribution.absolute
    kind, _, name = band.partition("-")
    if kind in _SCALED:
        return part * np.float32(_SCALED[kind]) if name in ("", argument.name) else part
    if band in _BELOW and never_negative:
        return part
    if (shift := (_OFFSETS | _BELOW).get(band)) is not None:
        return part + np.float32(shift * deviation)
    if band == "tails":
        sign = 1.0 if never_negative else rng.choice([-1.0, 1.0], part.shape)
        return np.asarray(sign * 10 ** rng.uniform(-10, math.log10(3e5), part.shape), np.float32)
    if band == "zeros":
        return np.asarray(part * (rng.random(part.shape) < _KEPT))
    if band == "nan":
        return np.where(rng.random(part.shape) < _NAN_SHARE, np.float32(np.nan), part)
    spiked = part.reshape(-1, part.shape[-1]).copy()
    rows = len(spiked)
    columns = _strata(rows, spiked.shape[1], rng)[rng.permutation(rows)]
    size = deviation * rng.uniform(30, 300, rows) * (1.0 if never_negative else rng.choice([1.0, 1.0, -1.0], rows))
    spiked[np.arange(rows), columns] = size
    return spiked.reshape(part.shape)


def _aligned(
    workload: Workload,
    own: Sequence[Any],
    argument: Argument,
    part: NDArray[Any],
    symbol: str,
    place: slice,
    rng: np.random.Generator,
) -> NDArray[Any]:
    """Return vectors to put in place of ``part``. They are multiples of the vectors with which ``part`` is multiplied.
    So each of those vectors has its greatest product with one of the returned vectors.
    """
    import numpy as np

    found = _partner(workload, argument, symbol)
    if found is None:
        return part
    position, inner, outer = found
    other = workload.arguments[position]
    theirs = np.asarray(own[position], np.float32)
    if symbol in other.axes:
        theirs = theirs[_along(other, symbol, place)]
    ours, theirs = np.moveaxis(part, inner, -1), np.moveaxis(theirs, outer, -1)
    theirs = theirs.reshape(-1, theirs.shape[-1])
    rows = ours.size // theirs.shape[1]
    spread = float(np.std(part)) / (float(np.std(theirs)) or 1.0)
    # the products are large enough for a softmax to overflow if it leaves out the greatest product
    size = np.exp2(rng.uniform(3, 5, rows)).astype(np.float32) * np.float32(spread)
    first = _strata(rows, len(theirs), rng)
    # a neighbor that is further from the middle, so that a kernel that leaves out the two is wrong by their difference
    second = first + rng.integers(1, 3, rows) * np.where(first < len(theirs) // 2, -1, 1)
    second = np.where((second < 0) | (second >= len(theirs)), first, second)
    made = (theirs[first] + np.float32(0.75) * theirs[second]) * size[:, None]
    return np.moveaxis(made.reshape(ours.shape), -1, inner)


def _along(argument: Argument, symbol: str, place: slice) -> tuple[slice, ...]:
    """Return the index that selects the positions ``place`` on the axis of ``argument`` called ``symbol``."""
    return (slice(None),) * argument.axes.index(symbol) + (place,)


def _strata(count: int, below: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return ``count`` integers below ``below`` in increasing order, each drawn from one of ``count`` equal
    intervals.
    """
    import numpy as np

    return np.minimum(((np.arange(count) + rng.random(count)) * below / count).astype(np.intp), below - 1)


def _partner(workload: Workload, argument: Argument, symbol: str) -> tuple[int, int, int] | None:
    """Return the argument that ``argument`` is multiplied with, and their common axis; None if no argument shares an
    axis.

    The result is the other argument's position, the number of the axis in ``argument``, and its number in the other
    argument. The common axis is the first shared axis that no output has, because a product sums over it. Without such
    an axis it is the last shared axis.
    """
    shown = {axis for output in workload.outputs for axis in output.axes}
    for position, other in enumerate(workload.arguments):
        common = [axis for axis in argument.axes if axis in other.axes and axis != symbol]
        if other is not argument and _changes(other) and common:
            axis = next((one for one in common if one not in shown), common[-1])
            return position, argument.axes.index(axis), other.axes.index(axis)
    return None


def _bands(workload: Workload, symbol: str) -> list[str]:
    """Return the names of the bands on an axis, at most one for each index of the axis."""
    changed = [argument for argument in workload.arguments if _axis(workload, argument) == symbol]
    names = [*_SCALED, *_OFFSETS, _SPIKES, "zeros", "tails"]
    names += [_ALIGNED] if any(_partner(workload, one, symbol) for one in changed) else []
    names += ["nan"] if workload.nan else []
    names += [f"{kind}-{one.name}" for one in changed if len(changed) > 1 for kind in ("tiny", "huge")]
    return [*names, *_BELOW][: _extent(workload, symbol)]


def _axis(workload: Workload, argument: Argument) -> str:
    """Return the axis of an argument along which bands are drawn; empty if bands leave the argument unchanged.

    The axis is one that the argument shares with an output: the first one long enough for all bands, else the
    longest.
    """
    if not _changes(argument):
        return ""
    shared = [axis for output in workload.outputs for axis in output.axes if axis in argument.axes]
    room = {axis: _extent(workload, axis) for axis in shared}
    enough = (axis for axis in room if room[axis] > len(_SCALED) * 4 + 2 * len(workload.arguments))
    return next(enough, max(room, key=lambda axis: room[axis], default=""))


def _places(workload: Workload, symbol: str, seed: int) -> dict[str, slice]:
    """Return the indices of each band on the axis, for one seed. The order of the dict is the same for every
    seed.

    On a long axis every second index belongs to the band whose rows have a peak. A kernel that takes a maximum
    over only a part of a row is wrong only in rows whose peak lies outside of that part.
    """
    import numpy as np

    bands, rng = _bands(workload, symbol), np.random.default_rng([seed % 2**63, 17])
    peaks = _ALIGNED if _ALIGNED in bands else _SPIKES
    if _extent(workload, symbol) < 4 * len(bands):
        order = rng.permutation(len(bands))
        return {band: slice(int(order[number]), None, len(bands)) for number, band in enumerate(bands)}
    odd, others = int(rng.integers(2)), [band for band in bands if band != peaks]
    order = 2 * rng.permutation(len(others)) + 1 - odd
    step = 2 * len(others)
    return {peaks: slice(odd, None, 2), **{band: slice(int(order[n]), None, step) for n, band in enumerate(others)}}


def _changes(argument: Argument) -> bool:
    """Tell whether the values of an argument may be replaced by the values of bands."""
    how = argument.distribution
    return how is not None and not how.fixed and argument.dtype in _WIDE and bool(argument.shape)


def _extent(workload: Workload, symbol: str) -> int:
    """Return the number of indices of an axis."""
    return next(
        extent
        for output in workload.outputs
        for axis, extent in zip(output.axes, output.shape, strict=True)
        if axis == symbol
    )
