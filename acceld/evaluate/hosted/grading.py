"""Grade the calls of sessions: record the worst call of each variant, and compare it with the tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from acceld.errors import WorkloadError
from acceld.evaluate.case import Case, Failed
from acceld.evaluate.correctness.checks import WORST, bounded, worst_row
from acceld.evaluate.correctness.distributions import OWN, own_inputs_refused
from acceld.evaluate.correctness.errors import Errors
from acceld.evaluate.correctness.gates import Trial, check_errors
from acceld.evaluate.correctness.noise import Floors
from acceld.evaluate.hosted.bench import Artefact, Checked, Draw
from acceld.evaluate.hosted.driver import Lease
from acceld.evaluate.hosted.profiles import Measured
from acceld.model import Check, Failure, Gate, Status
from acceld.workloads import PAPER_SEEDS


@dataclass(slots=True, kw_only=True)
class HostedCase(Case):
    """The state of one evaluation, with its device and the built kernel."""

    lease: Lease
    built: Artefact | None = None
    measured: Measured | None = None

    @property
    def artefact(self) -> Artefact:
        """Return the built kernel. Stages before the build may not ask for it."""
        assert self.built is not None
        return self.built


def grade(
    case: HostedCase,
    floors: Floors,
    ended: Failed | None,
    unwritten: Sequence[int],
    draws: Sequence[Draw],
    checked: Sequence[Checked],
    baseline: dict[str, tuple[Errors, ...]],
) -> Failed | None:
    """Record the worst call of each variant in the case. Return the first failure, or None.

    - ``ended``: the failure that ended the last session early, or None.
    - ``unwritten``: for each call, the number of output elements that the kernel did not write.
    - ``baseline``: the errors of the workload's baseline, by variant.

    Raise WorkloadError if the workload's own distribution can not be used, or if no call was made.
    """
    worst: dict[str, tuple[Check, int]] = {}
    failure: Failure | None = None
    for number, (draw, one) in enumerate(zip(draws, checked, strict=False)):
        trial = Trial(draw.variant, draw.seed, published=draw.seed in PAPER_SEEDS)
        if one.refused:
            if draw.variant == OWN:
                raise own_inputs_refused(case.workload, one.refused)
            case.untried(draw.variant, one.refused)
            continue
        numpy_floor = floors.of_numpy(case.workload, draw.variant)
        assert numpy_floor is not None, "checking learned it"
        noise = baseline.get(draw.variant)
        result = check_errors(case.workload, trial, one.errors, numpy_floor.floors, noise)
        check = result.check
        if draw.again:
            check = _steady(one, numpy_floor.floors)
        if trial.published:
            case.published = (case.published is not False) and check.passed
            continue
        case.worst_row = max(case.worst_row, worst_row(result.errors))
        kept, count = worst.get(check.name, (check, 0))
        worse = (kept.passed and not check.passed) or (
            kept.passed == check.passed and (check.rel_l2 or 0.0) >= (kept.rel_l2 or 0.0)
        )
        worst[check.name] = (check if worse else kept, count + 1)
        if failure is None and not check.passed:
            missing = unwritten[number]
            text = f"{missing} elements of the kernel's outputs were never written" if missing else check.detail
            failure = Failure("unwritten" if missing else "tolerance", f"{check.name}: {text}")
    case.checks += [
        bounded(replace(check, name=f"{name} ({count} calls)" if count > 1 else name))
        for name, (check, count) in worst.items()
    ]
    if ended is not None:
        return ended
    if failure is not None:
        return Failed(Status.INCORRECT_NUMERICAL, failure, case.correctness(Gate.SEARCH))
    if not checked:
        raise WorkloadError(
            f"no call of a kernel for workload {case.workload.name} was completed, so nothing was checked",
            hint="give the workload inputs that the kernel takes, then repeat the command",
        )
    return None


def _steady(one: Checked, floors: Sequence[Errors]) -> Check:
    """Return the check that equal inputs gave equal outputs. Differences as small as rounding are allowed."""
    moved = max((errors.rel_l2 for errors in one.moved), default=0.0)
    limit = max((2 * floor.rel_l2 for floor in floors), default=0.0)
    detail = "" if moved <= limit else f"the same inputs gave outputs that differ by {moved:.3g}"
    return Check("repeated", not detail, min(moved, WORST), limit, detail)
