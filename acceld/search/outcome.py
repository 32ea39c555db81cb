"""Compute the outcome of a run: the record that ``optimize --json`` prints, and from which the table and the reports
are made. Pure functions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from acceld.gains import PairedSpeedup, Verdict, gain, gain_of, paired_speedup, starts_us, verdict
from acceld.model import Attempt, Candidate, Evaluation, Plan, Profile, Run, Status
from acceld.search.beam import is_selectable, is_validated, rank


@dataclass(frozen=True, slots=True)
class Win:
    """One step on the way from the baseline to the best kernel."""

    candidate: int
    title: str
    rule: str
    change_class: str
    latency_us: float | None
    speedup: float | None
    """Speed-up over the candidate's parent."""
    improved: bool
    """True if the candidate is faster than its parent by more than the noise."""
    verdict: Verdict | None
    tie_band: float | None
    """Half width, in percent, of the band in which the speed-up is a tie; None if the band is not known."""
    partner: int | None = None
    """Id of the second parent; None if the candidate is no crossover."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason for which plans ended without code, such as an unproved precondition of a rule, and the number of
    these plans.
    """

    title: str
    """Title of the first plan that ended for this reason."""
    rule: str
    reason: str
    """The reason as text. Its line numbers count in the source of the candidate ``parent``."""
    count: int
    parent: int
    """Id of the candidate that the first of these plans would have changed."""


@dataclass(frozen=True, slots=True)
class ShapeSpeedup:
    """The speed-up at one of the shapes that a workload lists."""

    shape: str
    weight: float
    baseline_latency_us: float
    best_latency_us: float
    speedup: float


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The figures of a run so far. ``source`` says whether its latencies are ``simulated`` or ``measured``."""

    run: int
    name: str
    workload: str
    state: str
    message: str
    exit_code: int
    """Exit code of commands that wait for the run."""
    chip: str
    api: str
    source: str
    method: str
    proposer: str
    iteration: int
    baseline_latency_us: float | None
    best_latency_us: float | None
    interval_percent: float | None
    """Half width of the confidence interval of the best latency, in percent of the latency."""
    baseline_interval_percent: float | None
    starts_us: float | None
    """Predicted latency in microseconds of the best kernel if each of its transfers waits for the start of the transfer
    before. It is None if the latency is measured, or if more than these starts is uncertain.
    """
    baseline_starts_us: float | None
    speedup: float | None
    """Speed-up of the best kernel over the baseline; None if no candidate passed."""
    improved: bool
    """True if the best kernel is faster than the baseline by more than the noise."""
    paired: PairedSpeedup | None
    """Speed-up of the best kernel over the baseline from interleaved measurements; None if any step has no such
    measurement.
    """
    verdict: Verdict | None
    """Worth of the speed-up: certain, likely, a tie or slower (:data:`acceld.gains.RULE`); None without a speed-up."""
    tie_band: float | None
    """Half width, in percent, of the band in which the speed-up is not certain; None if the band is not known."""
    tie_reason: str
    """Reason why the band is not known, so that the speed-up is a tie, such as ``unvalidated``; empty if the band is
    known.
    """
    model: str
    """Version and calibration of the performance model; empty for measured latencies."""
    timed_again: str
    """Time and reason of timing the run's kernels again, in words; empty if no kernel was timed again."""
    percent_of_peak_before: float | None
    percent_of_peak_after: float | None
    percent_of_attainable_before: float | None
    percent_of_attainable_after: float | None
    bound_before: str
    bound_after: str
    counts: Mapping[str, int]
    """Number of candidates by status; every status is a key."""
    wins: tuple[Win, ...]
    refusals: tuple[Refusal, ...]
    """Plans that ended without code, by reason, the most frequent reason first."""
    baseline: int | None
    best: int | None
    elapsed_s: float
    has_reference: bool | None
    """True if a reference gave the expected values, False if the workload's own kernel in float64 gave them, None if no
    kernel ran.
    """
    screened: Mapping[str, int] | None = None
    """Counts of the candidates that the simulator found clearly slower than their parent; None if no candidate was
    screened.

    ``dropped`` candidates were not measured, ``measured`` candidates were measured nevertheless, and ``wrong``
    candidates were faster than their parent when measured.
    """
    shapes: tuple[ShapeSpeedup, ...] = ()
    """Speed-ups by shape, for a workload that lists several shapes; the latencies and the speed-up of the run are then
    weighted geometric means over the shapes.
    """
    workload_folder: str = ""
    """Absolute path of the workload's folder; empty if the workload was found by name."""
    uncounted: int | None = None
    """Id of the fastest candidate that passed and is predicted faster than the best kernel, but can not become the
    best kernel: its prediction has no uncertainty interval, and that of the best kernel has one. It is None if
    there is no such candidate.
    """

    notes: tuple[str, ...] = ()
    """Notes on lines of the best kernel that the baseline lacks, such as that a compiler refused such a line once."""

    failing: str = ""
    """The failure, with its remedy, that every candidate of the run has; empty if some passed, or if failures differ."""

    baseline_status: str = ""
    """Status of the kernel that the run began with; empty if that kernel was not evaluated."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON-able data."""
        return asdict(self) | {"counts": dict(self.counts)}


@dataclass(frozen=True, slots=True)
class _Side:
    """The figures of one evaluation, that of a run's baseline or of its best kernel. Each figure is None without an
    evaluation.
    """

    latency_us: float | None = None
    percent_of_peak: float | None = None
    percent_of_attainable: float | None = None
    profile: Profile | None = None


def _side(found: Evaluation | None) -> _Side:
    if found is None:
        return _Side()
    return _Side(found.latency_us, found.percent_of_peak, found.percent_of_attainable, found.profile)


def outcome(
    run: Run, candidates: Sequence[Candidate], plans: Mapping[int, Plan], refused: Sequence[Attempt] = ()
) -> RunOutcome:
    """Return the outcome of ``run`` from the run's candidates, plans (by id) and attempts without code."""
    by_id = {candidate.id: candidate for candidate in candidates}
    baseline = by_id.get(run.baseline) if run.baseline else next((c for c in candidates if c.parent is None), None)
    best = by_id.get(run.best) if run.best else None
    counts = Counter(c.evaluation.status for c in candidates if c.evaluation and c.parent is not None)
    before = baseline.evaluation if baseline else None
    after = best.evaluation if best else None
    passed = before is not None and before.status is Status.PASSED
    base, end = _side(before), _side(after)
    base_us = base.latency_us if passed else None
    best_us = end.latency_us
    speedup = base_us / best_us if base_us and best_us else None
    wins = _chain(best, by_id, plans)
    turns = paired_speedup(_line(best, by_id))
    found = gain(before.profile, after.profile, turns) if before and passed and after else None
    profile = end.profile or base.profile
    evaluated = next((e.correctness for e in (after, before) if e and e.correctness), None)
    return RunOutcome(
        run=run.id,
        name=run.spec.name,
        workload=run.spec.workload,
        state=run.state.value,
        message=run.message,
        exit_code=run.exit_code,
        chip=run.spec.chip,
        api=run.spec.api,
        source=profile.source.value if profile else ("simulated" if run.spec.backend == "simulator" else "measured"),
        method=profile.method if profile else "",
        proposer=run.spec.proposer,
        iteration=run.iteration,
        baseline_latency_us=base_us,
        best_latency_us=best_us,
        interval_percent=profile.interval_percent if profile else None,
        baseline_interval_percent=base.profile.interval_percent if base.profile else None,
        starts_us=starts_us(profile),
        baseline_starts_us=starts_us(base.profile),
        speedup=speedup,
        improved=found is not None and found.improved,
        paired=turns,
        verdict=verdict(
            speedup,
            found is not None and found.improved,
            found.band_percent if found else None,
            profile.source if profile else "simulated",
        ),
        tie_band=found.band_percent if found else None,
        tie_reason=found.reason if found else "",
        model=profile.model if profile else "",
        timed_again=run.timed_again,
        percent_of_peak_before=base.percent_of_peak,
        percent_of_peak_after=end.percent_of_peak,
        percent_of_attainable_before=base.percent_of_attainable,
        percent_of_attainable_after=end.percent_of_attainable,
        bound_before=base.profile.bound if base.profile else "",
        bound_after=end.profile.bound if end.profile else "",
        counts={status.value: counts[status] for status in Status},
        wins=wins,
        refusals=_refusals(refused, plans),
        workload_folder=run.spec.workload_folder,
        baseline=baseline.id if baseline else None,
        best=best.id if best else None,
        elapsed_s=max(0.0, (run.ended_at or time.time()) - (run.started_at or run.created_at)),
        has_reference=evaluated.has_reference if evaluated else None,
        screened=_screened(candidates),
        shapes=_by_shape(before, after),
        uncounted=_uncounted(candidates, best),
        notes=_new_notes(base.profile, end.profile),
        failing=_failing(candidates),
        baseline_status=before.status.value if before else "",
    )


def _failing(candidates: Sequence[Candidate]) -> str:
    """Return the failure that all evaluated candidates have in common, with its remedy; "" if they have none in
    common.
    """
    found = {c.evaluation.failure for c in candidates if c.evaluation and c.parent is not None}
    told = {f"{one.message}. {one.hint}".rstrip(". ") if one else "" for one in found}
    return told.pop() if len(told) == 1 else ""


def _new_notes(before: Profile | None, after: Profile | None) -> tuple[str, ...]:
    """Return the notes ``line N: ...`` of the profile ``after`` that the profile ``before`` lacks, whatever the line."""
    known = {note.partition(": ")[2] for note in (before.notes if before else ())}
    found = (note for note in (after.notes if after else ()) if note.startswith("line "))
    return tuple(note for note in found if note.partition(": ")[2] not in known)


def _uncounted(candidates: Sequence[Candidate], best: Candidate | None) -> int | None:
    """Return the id of the fastest candidate that passed but whose gain does not count, because its prediction has no
    interval; None if there is no such candidate.
    """
    if best is None or not is_validated(best):
        return None
    faster = [one for one in candidates if is_selectable(one) and not is_validated(one) and rank(one) < rank(best)]
    return min(faster, key=rank).id if faster else None


def _by_shape(before: Evaluation | None, after: Evaluation | None) -> tuple[ShapeSpeedup, ...]:
    """Return the speed-up at each shape that both evaluations have, in the workload's order."""
    listed = [one.profile.details.get("shapes", ()) if one and one.profile else () for one in (before, after)]
    known = {one["shape"]: one["latency_us"] for one in listed[0]}
    return tuple(
        ShapeSpeedup(one["shape"], one["weight"], first_us, one["latency_us"], first_us / one["latency_us"])
        for one in listed[1]
        if (first_us := known.get(one["shape"])) and one["latency_us"]
    )


def _line(best: Candidate | None, by_id: Mapping[int, Candidate]) -> list[tuple[str, Profile | None]]:
    """Return (program hash, profile) of the best candidate, then of each of its ancestors up to the baseline."""
    found: list[tuple[str, Profile | None]] = []
    while best is not None:
        found.append((best.kernel.sha256, best.evaluation.profile if best.evaluation else None))
        best = by_id.get(best.parent) if best.parent is not None else None
    return found


def _screened(candidates: Sequence[Candidate]) -> Mapping[str, int] | None:
    """Return how many candidates the simulator predicted to be clearly slower: left unmeasured, measured
    nevertheless, and wrongly predicted.

    Return None if no candidate was predicted so.
    """
    profiles = {c.evaluation.source_sha256: c.evaluation.profile for c in candidates if c.evaluation}
    choices = [found for one in profiles.values() if one is not None and (found := one.details.get("screen"))]
    if not choices:
        return None
    measured = [one for one in choices if one["measured"]]
    wrong = sum(bool(one.get("wrong")) for one in measured)
    return {"dropped": len(choices) - len(measured), "measured": len(measured), "wrong": wrong}


def _refusals(attempts: Sequence[Attempt], plans: Mapping[int, Plan]) -> tuple[Refusal, ...]:
    found = [(plans[one.plan], one.reason) for one in attempts if one.plan in plans]
    counts = Counter((plan.rule, reason) for plan, reason in found)
    first = {(plan.rule, reason): plan for plan, reason in reversed(found)}
    return tuple(
        Refusal(first[rule, reason].title, rule, reason, count, first[rule, reason].parent)
        for (rule, reason), count in counts.most_common()
    )


def _chain(best: Candidate | None, by_id: Mapping[int, Candidate], plans: Mapping[int, Plan]) -> tuple[Win, ...]:
    wins: list[Win] = []
    while best is not None and best.parent is not None:
        parent = by_id.get(best.parent)
        plan = plans.get(best.plan) if best.plan else None
        child_us = best.evaluation.latency_us if best.evaluation else None
        parent_us = parent.evaluation.latency_us if parent and parent.evaluation else None
        step = gain_of(best, parent) if parent else None
        wins.append(
            Win(
                candidate=best.id,
                title=plan.title if plan else "",
                rule=plan.rule if plan else "",
                change_class=plan.change_class if plan else "mixed",
                latency_us=child_us,
                speedup=parent_us / child_us if parent_us and child_us else None,
                improved=step is not None and step.improved,
                verdict=verdict(
                    step.ratio if step else None,
                    step is not None and step.improved,
                    step.band_percent if step else None,
                    best.evaluation.profile.source if best.evaluation and best.evaluation.profile else "simulated",
                ),
                tie_band=step.band_percent if step else None,
                partner=plan.partner if plan else None,
            )
        )
        best = parent
    return tuple(reversed(wins))
