"""Run the checks of the evaluation's gates on a reduced program, with the gates' data sets, noise floors and
tolerances.

The trials are those of the search gate, and those of the strict gate where a reference is expensive: the fewest
that a winner has to pass. The expected results are those of the program itself in float64, and the floor is its
noise in float32, as for a workload without a reference. Another table shows that each kernel agrees with its
reference. Seeds are fixed, so that a table can be made again.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from acceld.evaluate.correctness.bands import is_banded, pieces_of
from acceld.evaluate.correctness.distributions import OWN, inputs_of
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.correctness.gates import Seeds, Trial, check_errors, search_trial, strict_trials
from acceld.evaluate.correctness.metrics import compare
from acceld.evaluate.correctness.oracle import noise, unfit
from acceld.evaluate.simulated import simulator
from acceld.evaluate.simulated.claims import false_claim
from acceld.nki.errors import KernelFailure
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.ir.numerics import Array
from acceld.nki.ir.program import Program
from acceld.workloads import Workload, kernel_inputs
from scripts.evidence.simbench.mutation.reduction import Reduced

DEADLINE_S = 60.0
_MAX_BYTES = 8 << 30


class FixedSeeds(Seeds):
    """Source of seeds that follow from the trial's name."""

    def seed(self, name: str) -> int:
        """Return the seed of a trial: always the same for the same name."""
        return zlib.crc32(name.encode())


@dataclass(frozen=True, slots=True)
class Result:
    """Result of running one program in one trial."""

    complaint: str = ""
    """Reason why the program does not pass; empty if it passes."""
    same: bool = False
    """True if every bit of the outputs equals that of the kernel."""
    noise: float = 0.0
    """Greatest error, as a multiple of the kernel's own error in float32."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A prepared trial, for programs whose results should equal those of the kernel."""

    workload: Workload
    trial: Trial
    arrays: Sequence[Array]
    expected: Sequence[Array]
    floors: Sequence[Errors]
    written: Sequence[Any]
    bits: tuple[bytes, ...]
    """Bytes of the kernel's own outputs, computed in the program's own order."""

    def result(self, program: Program) -> Result:
        """Run a program in this trial, and return its result."""
        try:
            results = _run(program, self.arrays, self.trial)
        except (KernelFailure, ArithmeticError) as error:
            return Result(f"fails: {error}")
        if tuple(one.tobytes() for one in results) == self.bits:
            return Result(same=True)
        errors = [
            compare(_inside(got, written).reshape(want.shape), want)
            for got, want, written in zip(results, self.expected, self.written, strict=True)
        ]
        check = check_errors(self.workload, self.trial, errors, self.floors, None).check
        noise = max(map(_multiple, errors, self.floors), default=0.0)
        return Result("" if check.passed else check.detail, noise=noise)


def _multiple(error: Errors, floor: Errors) -> float:
    """Return the largest of the error measures, each as a multiple of the same measure of float32 arithmetic."""
    pairs = zip(error.plain(), floor.plain(), strict=True)
    return max(0.0 if not ours else ours / least if least else float("inf") for ours, least in pairs)


class Preparation:
    """Maker of the trials of one reduced kernel."""

    def __init__(self, workload: Workload, kernel: Reduced) -> None:
        """Prepare for the reduced program ``kernel``. The data are drawn as ``workload``, the workload of the whole
        kernel, declares.
        """
        self._workload, self._program = kernel.workload(workload), kernel.program
        self._dtypes = [kernel.program.buffers[number].dtype for number in kernel.program.outputs]
        self._written: list[Any] = []
        """Buffers into which the program writes its outputs; found on the first trial."""

    @property
    def trials(self) -> list[Trial]:
        """Return the trials that a candidate has to pass to be a winner."""
        seeds = FixedSeeds()
        trials = [search_trial(seeds), *strict_trials(self._workload, seeds, expensive=True)]
        return [trial for trial in trials if not is_banded(trial.variant)]

    def bench(self, trial: Trial) -> Bench | str:
        """Return a prepared trial; or, as text, the reason why the trial can not tell right from wrong
        programs.
        """
        with np.errstate(all="ignore"):
            inputs = kernel_inputs(self._workload, inputs_of(self._workload, trial.seed, trial.variant))
            arrays = [one for one in inputs if isinstance(one, np.ndarray)]
            expected = [np.asarray(one, np.float64) for one in self._oracle(arrays, True)]
            if complaint := unfit(expected, trial.variant):
                return complaint
            pieces = pieces_of(self._workload, OWN, 0)  # bands are declared for the whole kernel only
            floors = noise(self._oracle, arrays, expected, self._dtypes, pieces, trial.variant)
        if isinstance(floors, str):
            return floors
        bits = tuple(one.tobytes() for one in _run(self._program, arrays, trial))
        return Bench(self._workload, trial, arrays, expected, floors, tuple(self._written), bits)

    def _oracle(self, inputs: Sequence[Any], float64: bool) -> list[Array]:
        results = execute(self._program, inputs, ExecuteOptions(float64=float64))
        if not self._written:
            self._written = [~np.isnan(one.astype(np.float64)) for one in results]
        return [_inside(one, here) for one, here in zip(results, self._written, strict=True)]


def illegal(program: Program) -> str:
    """Return why a program is refused before it runs; empty if it may run."""
    claim = false_claim(program)
    if claim is not None:
        return claim.message
    try:
        simulator.verify(program, strict=False)
    except KernelFailure as error:
        return error.message
    return ""


def _run(program: Program, arrays: Sequence[Array], trial: Trial) -> list[Array]:
    shuffle = trial.seed if trial.shuffled else None
    return execute(program, arrays, ExecuteOptions(shuffle_affine=shuffle, deadline_s=DEADLINE_S, max_bytes=_MAX_BYTES))


def _inside(result: Array, written: Any) -> Array:
    """Return a result with zeros in place of elements that neither the reduced program nor a mutant of it writes."""
    return np.where(written | ~np.isnan(result.astype(np.float64)), result, np.zeros((), result.dtype))
