"""Which data sets each gate tries a program on.

* **search gate**: one secret data set of the run, drawn after the first program of the run was hashed.
* **strict gate**: five fresh seeds of the workload's own distribution, every other declared distribution, every
  metamorphic relation and every boosted argument, each with a fresh seed, each in a fresh process; the first is
  run a second time with loops in another order, which must change nothing beyond rounding.
* The **published gate** (five fixed seeds, fixed tolerance) is reported as ``accelopt_verdict``, and decides nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from acceld.evaluate.correctness import Errors
from acceld.evaluate.distributions import OWN, PAPER_SEEDS, strict_variants
from acceld.evaluate.tolerance import Tolerance, tolerance_from
from acceld.model import Check
from acceld.workloads import Workload

FRESH_SEEDS = 5


@dataclass(frozen=True, slots=True)
class Trial:
    """One data set to try: ``seed`` and ``variant`` decide its inputs; ``shuffled`` runs affine loops out of order."""

    variant: str
    seed: int
    shuffled: bool = False
    published: bool = False
    """Part of the published gate only."""

    @property
    def name(self) -> str:
        """What people read; a fresh seed stays secret while the run goes on."""
        if self.published:
            return f"published/seed {self.seed}"
        return f"{self.variant}/shuffled" if self.shuffled else self.variant


def fresh_seed() -> int:
    """A seed nobody can know beforehand."""
    return secrets.randbits(63)


def strict_trials(workload: Workload) -> Iterator[Trial]:
    """The trials of the strict gate, cheapest to fail first."""
    own = [fresh_seed() for _ in range(FRESH_SEEDS if workload.sample is None else 1)]
    yield Trial(OWN, own[0])
    for variant in strict_variants(workload):
        yield Trial(variant, fresh_seed())
    yield Trial(OWN, own[0], shuffled=True)
    for seed in own[1:]:
        yield Trial(OWN, seed)


def published_trials(workload: Workload) -> Iterator[Trial]:
    """The trials of the published gate."""
    for seed in PAPER_SEEDS if workload.sample is None else ():
        yield Trial(OWN, seed, published=True)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one trial says: the check for people, and the greatest errors over the outputs."""

    check: Check
    errors: Errors


def judge_errors(
    trial: Trial, errors: Iterable[Errors], floors: Iterable[Errors], baseline: Errors | None, published: float
) -> Verdict:
    """Hold each output's errors against its tolerance.

    ``floors`` is the noise of numpy in float32 on the same inputs, ``baseline`` that of the workload's baseline on
    the same backend and distribution, where it is known.
    """
    worst, limit, complaint = Errors(0.0, 0.0, 0.0), None, ""
    for number, (found, floor) in enumerate(zip(errors, floors, strict=True)):
        worst = worst.worst(found)
        tolerance = tolerance_from(floor.worst(baseline) if baseline is not None else floor, published)
        if trial.published:
            tolerance = Tolerance(published, float("inf"), float("inf"))
        if limit is None or tolerance.rel_l2 < limit.rel_l2:
            limit = tolerance
        words = tolerance.complaint(found)
        if words and not complaint:
            complaint = f"output {number}: {words}"
    assert limit is not None, "a workload has at least one output"
    check = Check(
        name=trial.name,
        passed=not complaint,
        rel_l2=worst.rel_l2,
        tolerance=limit.rel_l2,
        detail=complaint,
    )
    return Verdict(check, worst)
