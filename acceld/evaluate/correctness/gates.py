"""Choose the data sets on which each gate tries a program, and compare errors with tolerances.

* **search gate**: one secret data set of the run, drawn after the first program of the run was traced.
* **strict gate**: five fresh seeds of the workload's own distribution, and every other declared distribution,
  metamorphic relation and boosted argument with a fresh seed, each in a fresh process. One of the seeds is run
  a second time with loops in another order, which must change nothing beyond rounding.
* **published gate**: five fixed seeds with a fixed tolerance. Its result is reported as ``accelopt_passed`` and
  accepts or refuses no kernel.

If the reference is expensive (:data:`EXPENSIVE_S`), three things differ at the strict gate. The seeds are drawn
once for each run, after its first program was traced. The own distribution keeps the search gate's data set.
Only one metamorphic relation is tried.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from acceld.evaluate.correctness.bands import is_banded, pieces_of
from acceld.evaluate.correctness.distributions import OWN, SPECIAL, strict_variants
from acceld.evaluate.correctness.errors import NONE, Errors
from acceld.evaluate.correctness.tolerance import Tolerance, tolerance_from
from acceld.model import OWN_ORACLE, Check
from acceld.workloads import PAPER_SEEDS, Precision, Workload

FRESH_SEEDS = 5
EXPENSIVE_S = 1.0
"""Processor seconds in float64 from which on a reference is expensive."""

_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a program on one data set, whose inputs follow from ``variant`` and ``seed``.

    With ``shuffled`` the iterations of affine loops run in random order.
    """

    variant: str
    seed: int
    shuffled: bool = False
    published: bool = False
    """True if the trial belongs to the published gate only."""
    kept: bool = False
    """True if the data set stays on disk for later candidates, False if it is removed after the trial."""
    again: bool = False
    """True if the program runs a second time as a chip might run it, which must give the same bits."""
    as_timed: bool = False
    """True if the program runs as the performance model times it. Instructions that the model drops are left out, and
    instructions that it merges run once.
    """

    @property
    def is_plain(self) -> bool:
        """Tell whether the trial runs the program as it is written, with loops in their own order."""
        return not (self.shuffled or self.as_timed)

    @property
    def name(self) -> str:
        """Return what messages call this trial: its variant, such as ``own``, or ``own/shuffled``, ``own/as timed``,
        ``published/seed 0``. The name reveals no secret seed.
        """
        if self.as_timed:
            return f"{self.variant}/as timed"
        if self.published:
            return f"published/seed {self.seed}"
        return f"{self.variant}/shuffled" if self.shuffled else self.variant


def fresh_seed() -> int:
    """Return a random seed that cannot be predicted."""
    return secrets.randbits(63)


class Seeds:
    """The secret seeds of one run. A trial's seed is drawn when it is first asked for, and then stays."""

    def __init__(self, secret: bytes = b"") -> None:
        """Prepare the seeds. If ``secret`` is not empty, the seeds are derived from it, so that another process with
        the same secret gets the same seeds.
        """
        self._secret = secret
        self._drawn: dict[str, int] = {}

    def seed(self, name: str) -> int:
        """Return the run's seed for the trial ``name``. The same name always gives the same seed."""
        if self._secret:
            return int.from_bytes(hmac.digest(self._secret, name.encode(), "sha256")[:8], "big") >> 1
        return self._drawn.setdefault(name, fresh_seed())


class RunSeeds:
    """The secret seeds of each run on each workload. Only the most recently used runs are kept."""

    def __init__(self, secret: bytes = b"") -> None:
        """Prepare the seeds of all runs. The seeds are derived from ``secret``; an empty ``secret`` gives random seeds."""
        self._secret = secret
        self._of: OrderedDict[tuple[int, str], Seeds] = OrderedDict()

    def of(self, run: int, workload: Workload) -> Seeds:
        """Return the seeds of a run on a workload. A request outside of any run (``run`` is 0) gets new seeds
        each time.
        """
        if not run:
            return Seeds()
        key = (run, workload.hash)
        secret = hmac.digest(self._secret, f"{run}\0{workload.hash}".encode(), "sha256") if self._secret else b""
        found = self._of.pop(key, None) or Seeds(secret)
        self._of[key] = found
        while len(self._of) > _REMEMBERED:
            self._of.popitem(last=False)
        return found


def search_trial(seeds: Seeds) -> Trial:
    """Return the only trial of the search gate: the workload's own distribution with the run's secret seed."""
    return Trial(OWN, seeds.seed(OWN), kept=True)


def strict_trials(
    workload: Workload, seeds: Seeds, *, expensive: bool, shared: bool = False, modelled: bool = False
) -> list[Trial]:
    """Return the trials of the strict gate, in the order in which they begin.

    Cheap trials that are likely to fail come first. If the reference is ``expensive``, trials on the search
    gate's data set come first.

    - ``shared``: the seeds are the run's, so that all candidates of the run are tried on the same data sets.
    - ``modelled``: a performance model times the program. The program is then also run as it is timed, on the
      data set that is used for shuffled loops.
    """
    variants = strict_variants(workload)
    if expensive:
        related = [name for name in variants if name.startswith("metamorphic/")]
        tried = [name for name in variants if name not in related[1:]]
        own = search_trial(seeds)
        timed = [replace(own, as_timed=True, again=True)] if modelled else []
        # For trials on the search gate's data set no new data set is made. The trial with shuffled loops takes
        # longest, so it begins early and runs beside the others.
        there = [*timed, replace(own, shuffled=True)]
        return [*there, *(Trial(name, seeds.seed(name), kept=True) for name in tried)]
    own_seeds = [
        seeds.seed(f"{OWN}/{number}") if shared else fresh_seed()
        for number in range(FRESH_SEEDS if workload.sample is None else 1)
    ]
    return [
        *(Trial(name, seeds.seed(name) if shared else fresh_seed(), kept=shared) for name in variants),
        *(Trial(OWN, seed, kept=shared) for seed in own_seeds[:-1]),
        Trial(OWN, own_seeds[-1], kept=True, as_timed=modelled, again=True),
        Trial(OWN, own_seeds[-1], shuffled=True, kept=shared),
    ]


def likely_first(trials: Sequence[Trial], failed: Container[str]) -> list[Trial]:
    """Return the trials in another order: trials whose names are in ``failed`` come first, because an earlier kernel
    failed them.
    """
    return sorted(trials, key=lambda trial: trial.name not in failed)


def published_trials(workload: Workload) -> Iterator[Trial]:
    """Yield the trials of the published gate: its five fixed seeds. A workload whose outputs are sampled has no such
    trials.
    """
    for seed in PAPER_SEEDS if workload.sample is None else ():
        yield Trial(OWN, seed, published=True, kept=True)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of one trial: the check as people see it, and the largest errors of any output."""

    check: Check
    errors: Errors


WHOLE = "integers"
"""Name of the variant whose inputs are small whole numbers."""
REPEATED = (WHOLE, "sparse")
"""Names of the variants whose inputs have few different values."""


def splits(workload: Workload, variant: str, floor: Errors) -> bool:
    """Tell whether a variant's tolerance allows a matrix product to be computed in bfloat16 parts: each float32
    operand is split into two bfloat16 numbers, and the products of the parts are added up.

    Return False for a workload of strict float32. Also return False for small whole numbers on which numpy makes no
    error (``floor`` is zero), because products of parts are exact there too.
    """
    exact = variant == WHOLE and floor.rel_l2 == 0.0
    return workload.precision is not Precision.FP32_STRICT and not exact


def accuracy(workload: Workload, floors: Iterable[Errors]) -> str:
    """Return a sentence for prompts: the errors that the gates allow for each output on the workload's own
    inputs.

    ``floors`` has the noise of numpy in float32, one record for each output.
    """
    found = [tolerance_from(floor, workload.tolerance, split=splits(workload, OWN, floor)) for floor in floors]
    said = [
        f"its relative L2 error against a float64 evaluation is at most {one.rel_l2:.2g}, that of its worst row at most "
        f"{one.worst_row:.2g}, and the relative error of its worst element at most {one.element:.2g}"
        for one in found
    ]
    if len(set(said)) == 1:
        return said[0]
    return "; ".join(f"for output {name}, {text}" for name, text in zip(workload.outputs, said, strict=True))


def check_errors(
    workload: Workload,
    trial: Trial,
    errors: Iterable[Errors],
    floors: Iterable[Errors],
    baseline: Sequence[Errors] | None,
) -> TrialResult:
    """Compare the errors of each output, or of each band of an output, with its tolerance, and return the
    result.

    - ``floors``: the noise of numpy in float32 on these inputs; infinite for a band that is not used.
    - ``baseline``: the errors of the workload's baseline on the same backend and variant; None if unknown.

    On the workload's own inputs the published tolerance is the upper limit. On other inputs, products of
    bfloat16 parts may exceed it by as much as those inputs amplify their error.
    """
    worst, complaint = NONE, ""
    tightest = (NONE.rel_l2, 0.0)
    """Error and limit of the output that used the greatest part of its tolerance."""
    banded = is_banded(trial.variant)
    names = [piece.name for piece in pieces_of(workload, trial.variant, trial.seed)] if banded else []
    for number, (found, floor) in enumerate(zip(errors, floors, strict=True)):
        noise = floor.worst(baseline[number]) if baseline is not None else floor
        if banded and not noise.finite:
            continue
        worst = worst.worst(found)
        tolerance = _tolerance(workload, trial.variant, noise, split=splits(workload, trial.variant, floor))
        if trial.published:
            tolerance = Tolerance(workload.tolerance, float("inf"), float("inf"))
        if not tightest[1] or found.rel_l2 * tightest[1] >= tightest[0] * tolerance.rel_l2:
            tightest = found.rel_l2, tolerance.rel_l2
        words = tolerance.complaint(found)
        if words and not complaint:
            several = f" ({workload.outputs[number].name})" if not banded and len(workload.outputs) > 1 else ""
            name = names[number] if banded else f"output {number}{several}"
            complaint = f"{name}: {words}" + (f"; {found.place}" if found.place else "")
    check = Check(
        name=trial.name,
        passed=not complaint,
        rel_l2=tightest[0],
        tolerance=tightest[1],
        detail=complaint or ("" if workload.reference else OWN_ORACLE),
    )
    return TrialResult(check, worst)


def _tolerance(workload: Workload, variant: str, noise: Errors, *, split: bool) -> Tolerance:
    """Return the tolerance on a variant whose noise is ``noise``. With ``split``, matrix products of bfloat16 parts
    are allowed.
    """
    banded = is_banded(variant)
    published = math.inf if banded or (split and variant != OWN) else workload.tolerance
    return tolerance_from(
        noise, published, split=split, edge=banded, mixed=variant == SPECIAL, repeated=variant in REPEATED
    )


def least_tolerance(workload: Workload, variant: str) -> Tolerance:
    """Return the tightest tolerance for a variant, which applies if the measured noise is zero."""
    return _tolerance(workload, variant, NONE, split=splits(workload, variant, NONE))


Bad = TypeVar("Bad")


async def first_failure(
    trials: Iterable[Trial], try_one: Callable[[Trial], Awaitable[Bad | None]], wide: Callable[[], bool]
) -> Bad | None:
    """Run the trials, at most two at a time, and return the first failure in their order; None if all pass.

    Two trials run at the same time only if ``wide`` returns True. When a trial fails, or this call is cancelled, the
    running trials are cancelled and waited for.
    """
    waiting = deque(trials)
    begun: list[asyncio.Future[Bad | None]] = []
    """Trials that have begun, in order. The first of them still runs."""
    try:
        while waiting or begun:
            active = [one for one in begun if not one.done()]
            while waiting and len(active) < (2 if wide() else 1):
                begun.append(asyncio.ensure_future(try_one(waiting.popleft())))
                active.append(begun[-1])
            await asyncio.wait(active, return_when=asyncio.FIRST_COMPLETED)
            if any(one.done() and (one.exception() or one.result() is not None) for one in begun):
                waiting.clear()
            while begun and begun[0].done():
                if (failed := begun.pop(0).result()) is not None:
                    return failed
    finally:
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
    return None
