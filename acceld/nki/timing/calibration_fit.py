"""Fit the performance model to one machine's measurements with three factors, regularised towards the published values.

A calibration belongs to a chip, an API and a version of the parameters. Each latency that used it is marked as such.
The fit is done in logarithms. Each kernel's error is taken as linear in the logarithms of the factors. The slopes come
from timing the kernel with one factor raised by a tenth. The fit is the most likely one if kernels have an error of
:data:`NOISE` and machines differ from the published values by :data:`SPREAD`. Kernels with the same arguments form a
chain and have similar errors. A factor is kept only if it lowers the error of chains that it was not fitted on.
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
"""Standard deviations of the logarithm of a kernel's error and of the logarithm of a factor."""
FEWEST = 5
"""The least number of kernels for a calibration."""
FEWEST_CHAINS = 4
"""The least number of chains for a factor."""
CONFIDENCE = 2.0
"""The gain on left-out chains must be at least this many standard errors."""
GREATEST_ERROR = math.log(2.0)
"""A kernel with a greater error counts with this error."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A program and its latency on the machine in microseconds. Kernels that compute the same form one chain."""

    program: Program
    measured_us: float
    chain: str


def fit(samples: Sequence[Sample], *, sdk: str = "") -> Calibration:
    """Fit the factors to kernels of one chip and API.

    A factor that does not lower the error of chains it was not fitted on stays 1. All factors stay 1 if there is only
    one chain or if the mean error does not fall. UsageError for fewer than :data:`FEWEST` kernels with a latency, or
    for several chips or APIs.
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
    """Return the logarithms of the factors; 0 for a factor that does not lower the error of left-out chains.

    ``error`` holds the logarithm of measured over predicted latency of each kernel. ``slopes`` holds the change of that
    logarithm with each factor: one row per kernel, one column per factor. A choice of factors qualifies if its gain
    over the published model is at least :data:`CONFIDENCE` times the gain's standard error over chains. Of those, the
    choice with the least left-out error is taken.
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
    """Return the mean error of each chain when it is predicted by a fit to the other chains."""
    left = []
    for chain in dict.fromkeys(chains):
        mine = chains == chain
        remaining = error[mine] - slopes[mine] @ _most_likely(error[~mine], slopes[~mine])
        left.append(float(np.mean(np.abs(remaining))))
    return np.array(left)


def _most_likely(error: Floats, slopes: Floats) -> Floats:
    """Return the regularised logarithms of the factors that have slopes."""
    pull = (NOISE / SPREAD) ** 2 * np.eye(slopes.shape[1])
    bounded = np.clip(error, -GREATEST_ERROR, GREATEST_ERROR)
    found = np.asarray(np.linalg.solve(slopes.T @ slopes + pull, slopes.T @ bounded), np.float64)
    return np.clip(found, *np.log(RANGE))


def _latency(program: Program, factors: Mapping[str, float]) -> float | None:
    return timeline(program, changed(default_params(program.api, program.chip), factors)).latency_us


def _slope(program: Program, latency_us: float, name: str) -> float:
    """Return the change of the latency's logarithm per change of a factor's logarithm."""
    return math.log((_latency(program, {name: STEP}) or latency_us) / latency_us) / math.log(STEP)


def _mean_error(ratios: Sequence[float]) -> float:
    return 100 * sum(abs(ratio - 1) for ratio in ratios) / len(ratios)
