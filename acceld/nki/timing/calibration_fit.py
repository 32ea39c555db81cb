"""Fit the performance model to one machine's measurements by a few corrections: factors, and constants in
microseconds.

A calibration belongs to a chip, an API and a version of the parameters. Each latency that was predicted with a
calibration is marked as calibrated.

The fit works on logarithms of latencies. A kernel's error is taken as linear in the corrections: in the
logarithms of factors, and in constants. To find the slope of a correction, the kernel is timed again with the
correction changed by its step.

The fit has the greatest likelihood under two assumptions: kernels have an error of :data:`NOISE`, and each
correction differs between machines by its spread. Kernels with the same arguments form a chain and have similar
errors. A correction is used only if it lowers the error of chains that were left out of its fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from acceld.errors import UsageError
from acceld.nki.ir.program import Program
from acceld.nki.timing.calibration import CONSTANT_RANGE, CONSTANTS, FACTORS, RANGE, Calibration, changed
from acceld.nki.timing.parameters import default_params
from acceld.nki.timing.timeline import timeline

Floats = NDArray[np.float64]

NOISE = 0.1
"""Standard deviation of the model's error on a kernel, as the logarithm of measured over predicted latency."""
FEWEST = 5
"""Least number of measured kernels for a calibration."""
FEWEST_CHAINS = 4
"""Least number of chains of kernels with which any correction is kept."""
CONFIDENCE = 2.0
"""Least ratio of the mean gain on left-out chains to its standard error for which a correction is kept."""
GREATEST_ERROR = math.log(2.0)
"""Limit on the model's error on a kernel (as a logarithm) in the fit. A larger error counts as this limit."""


@dataclass(frozen=True, slots=True)
class Correction:
    """One number that a fit may change: the logarithm of a factor, or a constant in microseconds."""

    name: str
    spread: float
    """Standard deviation of ``number`` between machines."""
    step: float
    """The change of ``number`` that is tried to find how much a kernel's predicted latency changes with it."""
    least: float
    greatest: float

    def value(self, number: float) -> float:
        """Return the factor whose logarithm is ``number``. For a constant, return ``number`` itself."""
        return math.exp(number) if self.name in FACTORS else number


CORRECTIONS = (
    *(Correction(name, 0.15, math.log(1.1), math.log(RANGE[0]), math.log(RANGE[1])) for name in FACTORS),
    Correction("launch", 5.0, 1.0, *CONSTANT_RANGE),
    Correction("transfer", 0.2, 0.1, 0.0, CONSTANT_RANGE[1]),
)
"""The corrections that a fit may use, with their spreads. Sources: factors differ by 15 % between machines; launches
differ by 5 us (the launches of trn1 and trn2 differ by 3 us); a transfer takes up to half a microsecond more if its
descriptors are made at run time.
"""
_SPREAD, _LEAST, _GREATEST = (
    np.array([getattr(one, name) for one in CORRECTIONS]) for name in ("spread", "least", "greatest")
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A program and its measured latency in microseconds.

    Kernels of one ``chain`` compute the same function.
    """

    program: Program
    measured_us: float
    chain: str


def fit(samples: Sequence[Sample], *, sdk: str = "") -> Calibration:
    """Return the calibration that fits the measured kernels of one chip and API best.

    A correction that does not lower the error of left-out chains (kernels of one computation) keeps its neutral
    value: 1 for a factor, 0 for a constant. All corrections are neutral if there are fewer than
    :data:`FEWEST_CHAINS` chains, or if the corrections do not lower the mean error.

    Raise UsageError for fewer than :data:`FEWEST` kernels with a latency, or for kernels of several chips or
    APIs.
    """
    targets = {(one.program.chip, one.program.api) for one in samples}
    if len(targets) > 1:
        raise UsageError(
            "the measured kernels are of several chips or APIs", hint="calibrate each chip and API by itself"
        )
    timed = [(one, us) for one in samples if (us := _latency(one.program, {})) is not None]
    if len(timed) < FEWEST:
        raise UsageError(
            f"{len(timed)} kernels could be predicted, and a fit needs at least {FEWEST}: add measured kernels",
            hint="docs/simulator.md says how to record more",
        )
    ((chip, api),) = targets
    error = np.array([math.log(one.measured_us / us) for one, us in timed])
    slopes = np.array([[_slope(one.program, us, each) for each in CORRECTIONS] for one, us in timed])
    numbers = kept_corrections(error, slopes, [one.chain for one, _ in timed])
    found = {one.name: round(one.value(float(number)), 4) for one, number in zip(CORRECTIONS, numbers, strict=True)}
    before = _mean_error([us / one.measured_us for one, us in timed])
    after = _mean_error([(_latency(one.program, found) or us) / one.measured_us for one, us in timed])
    if after >= before:
        found, after = {one.name: one.value(0.0) for one in CORRECTIONS}, before
    factors, constants = ({name: found[name] for name in names} for names in (FACTORS, CONSTANTS))
    return Calibration(chip, api, len(timed), factors, before, after, sdk, constants=constants)


def kept_corrections(error: Floats, slopes: Floats, chains: Sequence[str]) -> Floats:
    """Return the number of each correction; 0 for a correction that is not used.

    - ``error``: for each kernel, the logarithm of measured over predicted latency.
    - ``slopes[kernel, correction]``: the change of the logarithm of the predicted latency per unit of the
      correction.

    A fit is judged by its mean gain over the published model on chains that were left out of the fit. A set of
    corrections qualifies if this gain is more than :data:`CONFIDENCE` times its standard error. Of all
    qualified sets, the set with the least left-out error is used.
    """
    names = np.array(chains)
    published = _left_out_errors(error, slopes, [], names)
    corrections = np.zeros(len(CORRECTIONS))
    if len(published) < FEWEST_CHAINS:
        return corrections
    best, least = [], float(np.mean(published))
    for kept in (
        list(kept) for n in range(1, len(CORRECTIONS) + 1) for kept in combinations(range(len(CORRECTIONS)), n)
    ):
        left = _left_out_errors(error, slopes, kept, names)
        gain = published - left
        if np.mean(left) < least and np.mean(gain) > CONFIDENCE * np.std(gain, ddof=1) / math.sqrt(len(gain)):
            best, least = kept, float(np.mean(left))
    corrections[best] = _most_likely(error, slopes, best)
    return corrections


def _left_out_errors(error: Floats, slopes: Floats, kept: list[int], chains: NDArray[np.str_]) -> Floats:
    """Return, for each chain, the mean absolute error of a fit to all other chains."""
    left = []
    for chain in dict.fromkeys(chains):
        mine = chains == chain
        remaining = error[mine] - slopes[mine][:, kept] @ _most_likely(error[~mine], slopes[~mine], kept)
        left.append(float(np.mean(np.abs(remaining))))
    return np.array(left)


def _most_likely(error: Floats, slopes: Floats, kept: list[int]) -> Floats:
    """Return the most likely numbers of the corrections in ``kept``, within their bounds."""
    mine = slopes[:, kept]
    pull = np.diag((NOISE / _SPREAD[kept]) ** 2)
    bounded = np.clip(error, -GREATEST_ERROR, GREATEST_ERROR)
    found = np.asarray(np.linalg.solve(mine.T @ mine + pull, mine.T @ bounded), np.float64)
    return np.clip(found, _LEAST[kept], _GREATEST[kept])


def _latency(program: Program, values: Mapping[str, float]) -> float | None:
    return timeline(program, changed(default_params(program.api, program.chip), values)).latency_us


def _slope(program: Program, latency_us: float, correction: Correction) -> float:
    """Return the derivative of the logarithm of the predicted latency with respect to the correction's number."""
    changed_us = _latency(program, {correction.name: correction.value(correction.step)}) or latency_us
    return math.log(changed_us / latency_us) / correction.step


def _mean_error(ratios: Sequence[float]) -> float:
    return 100 * sum(abs(ratio - 1) for ratio in ratios) / len(ratios)
