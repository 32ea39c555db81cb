"""Fit the performance model to one machine's measurements: three factors, regularised towards the published values.

A calibration belongs to a chip, an API and a version of the parameters, and each latency it made says so. It is fitted
in logarithms: each kernel's error is taken as linear in the logarithms of the factors, whose slopes come from timing the
kernel with one factor a tenth higher. What is fitted is the most likely where kernels are :data:`NOISE` off and machines
:data:`SPREAD` from the published one. Kernels of one chain (of the same arguments) err alike, so a factor is kept only
where it lowers the error of chains that it was not fitted on.
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
from acceld.nki.timing.calibration import FACTORS, RANGE, Calibration, changed
from acceld.nki.timing.parameters import default_params
from acceld.nki.timing.timeline import timeline

Floats = NDArray[np.float64]

STEP = 1.1
NOISE, SPREAD = 0.1, 0.15
"""Standard deviations of the logarithms of a kernel's error and of a factor."""
FEWEST = 5
"""Kernels that a calibration needs."""
FEWEST_CHAINS = 4
"""Chains that a factor needs."""
CONFIDENCE = 2.0
"""Standard errors that the gain on left-out chains must be from nothing."""
GREATEST_ERROR = math.log(2.0)
"""A kernel that is further off counts as if it were this far off."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A program and its latency on the machine in microseconds. Kernels that compute the same are of one chain."""

    program: Program
    measured_us: float
    chain: str


def fit(samples: Sequence[Sample], *, sdk: str = "") -> Calibration:
    """Fit the factors to kernels of one chip and API.

    UsageError for fewer than :data:`FEWEST` kernels with a latency, or of several chips or APIs. A factor that does not make
    chains it was not fitted on better stays 1; all do for one chain, and where the mean error does not get lower.
    """
    targets = {(one.program.chip, one.program.api) for one in samples}
    if len(targets) > 1:
        raise UsageError("these kernels are of several chips or APIs", hint="calibrate each by itself")
    timed = [(one, us) for one in samples if (us := _latency(one.program, {})) is not None]
    if len(timed) < FEWEST:
        raise UsageError(f"{len(timed)} kernels with a latency are too few; {FEWEST} are needed")
    ((chip, api),) = targets
    error = np.array([math.log(one.measured_us / us) for one, us in timed])
    slopes = np.array([[_slope(one.program, us, name) for name in FACTORS] for one, us in timed])
    found = np.exp(kept_corrections(error, slopes, [one.chain for one, _ in timed]))
    factors = dict(zip(FACTORS, (round(float(one), 4) for one in np.clip(found, *RANGE)), strict=True))
    before = _mean_error([us / one.measured_us for one, us in timed])
    after = _mean_error([(_latency(one.program, factors) or us) / one.measured_us for one, us in timed])
    if after >= before:
        factors, after = dict.fromkeys(FACTORS, 1.0), before
    return Calibration(chip, api, len(timed), factors, before, after, sdk)


def kept_corrections(error: Floats, slopes: Floats, chains: Sequence[str]) -> Floats:
    """Return the logarithms of the factors, 0 for those that do not make left-out chains better.

    ``error`` holds the logarithm of measured over predicted of each kernel, ``slopes`` that of each kernel (row) by factor.
    Of the choices of factors whose gain over the published model is :data:`CONFIDENCE` times its standard error over chains the
    one with the least left-out error is taken, or none.
    """
    names = np.array(chains)
    published = _left_out_errors(error, slopes[:, :0], names)
    corrections = np.zeros(len(FACTORS))
    if len(published) < FEWEST_CHAINS:
        return corrections
    best, least = [], float(np.mean(published))
    for kept in (list(kept) for n in range(1, len(FACTORS) + 1) for kept in combinations(range(len(FACTORS)), n)):
        left = _left_out_errors(error, slopes[:, kept], names)
        gain = published - left
        if np.mean(left) < least and np.mean(gain) > CONFIDENCE * np.std(gain, ddof=1) / math.sqrt(len(gain)):
            best, least = kept, float(np.mean(left))
    corrections[best] = _most_likely(error, slopes[:, best])
    return corrections


def _left_out_errors(error: Floats, slopes: Floats, chains: NDArray[np.str_]) -> Floats:
    """Return the mean error of each chain where it is predicted by a fit to the others."""
    left = []
    for chain in dict.fromkeys(chains):
        mine = chains == chain
        remaining = error[mine] - slopes[mine] @ _most_likely(error[~mine], slopes[~mine])
        left.append(float(np.mean(np.abs(remaining))))
    return np.array(left)


def _most_likely(error: Floats, slopes: Floats) -> Floats:
    """Return the regularised corrections of the factors whose slopes are given."""
    pull = (NOISE / SPREAD) ** 2 * np.eye(slopes.shape[1])
    bounded = np.clip(error, -GREATEST_ERROR, GREATEST_ERROR)
    found = np.asarray(np.linalg.solve(slopes.T @ slopes + pull, slopes.T @ bounded), np.float64)
    return np.clip(found, *np.log(RANGE))


def _latency(program: Program, factors: Mapping[str, float]) -> float | None:
    return timeline(program, changed(default_params(program.api, program.chip), factors)).latency_us


def _slope(program: Program, latency_us: float, name: str) -> float:
    """Return by how much the logarithm of a latency changes with that of a factor."""
    return math.log((_latency(program, {name: STEP}) or latency_us) / latency_us) / math.log(STEP)


def _mean_error(ratios: Sequence[float]) -> float:
    return 100 * sum(abs(ratio - 1) for ratio in ratios) / len(ratios)
