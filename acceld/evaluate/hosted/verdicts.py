"""What became of one session of calls: each variant's worst call held against its tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from acceld.errors import WorkloadError
from acceld.evaluate.correctness.checks import WORST, bounded, correctness_of, worst_row
from acceld.evaluate.correctness.distributions import OWN, PAPER_SEEDS
from acceld.evaluate.correctness.gates import Trial, judge_errors
from acceld.evaluate.correctness.metrics import Errors
from acceld.evaluate.correctness.noise import Floors
from acceld.evaluate.hosted.bench import Artefact, Checked, Draw, Timed
from acceld.evaluate.hosted.driver import Lease
from acceld.evaluate.interface import EvaluationRequest
from acceld.model import Check, Correctness, Failure, Gate, Profile, Status
from acceld.workloads import Workload


@dataclass(slots=True)
class Case:
    """One evaluation under way."""

    request: EvaluationRequest
    workload: Workload
    lease: Lease
    artefact: Artefact | None = None
    profile: Profile | None = None
    checks: list[Check] = field(default_factory=list)
    worst_row: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    published: bool | None = None

    def correctness(self, gate: Gate) -> Correctness:
        """What the checks so far say."""
        return correctness_of(gate, self.checks, self.worst_row, self.published)


def grade(
    case: Case,
    floors: Floors,
    timed: Timed,
    draws: Sequence[Draw],
    checked: Sequence[Checked],
    baseline: dict[str, Errors],
) -> tuple[Status, Failure, Correctness | None] | None:
    """Why the kernel does not pass this session; None where every call was right. Adds to the case's checks."""
    worst: dict[str, tuple[Check, int]] = {}
    failure: Failure | None = None
    for number, (draw, one) in enumerate(zip(draws, checked, strict=False)):
        trial = Trial(draw.variant, draw.seed, published=draw.seed in PAPER_SEEDS)
        if one.refused:
            if draw.variant == OWN:
                raise WorkloadError(f"workload {case.workload.name!r} can not be checked: {one.refused}")
            case.checks.append(Check(f"{draw.variant} (not tried: {one.refused})", True))
            continue
        numpy_floor = floors.of_numpy(case.workload, draw.variant)
        assert numpy_floor is not None, "checking learned it"
        noise = baseline.get(draw.variant)
        verdict = judge_errors(case.workload, trial, one.errors, numpy_floor.floors, noise)
        check = verdict.check
        if draw.again:
            check = _steady(one, numpy_floor.floors)
        if trial.published:
            case.published = (case.published is not False) and check.passed
            continue
        case.worst_row = max(case.worst_row, worst_row(verdict.errors))
        kept, count = worst.get(check.name, (check, 0))
        worse = (kept.passed and not check.passed) or (
            kept.passed == check.passed and (check.rel_l2 or 0.0) >= (kept.rel_l2 or 0.0)
        )
        worst[check.name] = (check if worse else kept, count + 1)
        if failure is None and not check.passed:
            missing = timed.unwritten[number]
            text = f"elements of its outputs were never written ({missing})" if missing else check.detail
            failure = Failure("unwritten" if missing else "tolerance", f"{check.name}: {text}")
    case.checks += [
        bounded(replace(check, name=f"{name} ({count} calls)" if count > 1 else name))
        for name, (check, count) in worst.items()
    ]
    if timed.failed is not None:
        return timed.failed.status, timed.failed.failure, None
    if failure is not None:
        return Status.INCORRECT_NUMERICAL, failure, case.correctness(Gate.SEARCH)
    if not checked:
        raise WorkloadError(f"no call of a kernel for {case.workload.name} was made")
    return None


def _steady(one: Checked, floors: Sequence[Errors]) -> Check:
    """Whether the same inputs gave the same outputs, but for rounding."""
    moved = max((errors.rel_l2 for errors in one.moved), default=0.0)
    limit = max((2 * floor.rel_l2 for floor in floors), default=0.0)
    detail = "" if moved <= limit else f"the same inputs gave outputs that differ by {moved:.3g}"
    return Check("repeated", not detail, min(moved, WORST), limit, detail)
