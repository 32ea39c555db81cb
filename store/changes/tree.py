"""Write a run's tree: plans, attempts, candidates and their evaluations."""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from acceld.events import (
    AttemptFailed,
    CandidateEvaluated,
    CandidateQueued,
    CandidateStarted,
    CandidateWritten,
    PlanWritten,
)
from acceld.gains import Gain, candidate_verdict, compared, gain, paired_speedup
from acceld.model import Attempt, Candidate, Evaluation, Kernel, Plan, Profile, Source, Status
from acceld.store.changes import rollups
from acceld.store.errors import NotFoundError
from acceld.store.rows import clean, columns, dump, mapping, text_value, the_row
from acceld.store.writer import Transaction

MOST_ANCESTORS = 10_000
_WITH_PROFILE = """
SELECT c.id, c.parent, c.source AS sha256, c.status, c.latency_us, f.source, f.chip, f.api, f.method, f.model, f.interval_percent,
  f.engines_us, f.counters, d.details
FROM candidates c LEFT JOIN profiles f ON f.evaluation = c.evaluation LEFT JOIN profile_details d ON d.evaluation = c.evaluation
WHERE c.id = ?
"""


def keep_text(tx: Transaction, text: str) -> str:
    """Store a text, if it is not stored already, and return its hash."""
    text = tx.redacted(text)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    tx.execute("INSERT INTO texts (sha256, text) VALUES (?, ?) ON CONFLICT DO NOTHING", (digest, text_value(text)))
    return digest


def keep_source(tx: Transaction, kernel: Kernel) -> str:
    """Store a kernel's source, if it is not stored already, and return its hash."""
    closure = {name: tx.redacted(text) for name, text in kernel.closure.items()}
    kernel = replace(kernel, text=tx.redacted(kernel.text), closure=closure)
    digest = kernel.sha256
    if tx.one("SELECT 1 FROM sources WHERE sha256 = ?", (digest,)) is None:
        tx.insert(
            "sources",
            {
                "sha256": digest,
                "text_sha256": keep_text(tx, kernel.text),
                "api": kernel.api,
                "entry": kernel.entry,
                "grid": dump(kernel.grid),
                "lnc": kernel.lnc,
                "closure": dump({name: keep_text(tx, text) for name, text in kernel.closure.items()}),
                "created_at": tx.at,
            },
        )
    return digest


def write_plan(tx: Transaction, plan: Plan) -> Plan:
    """Store a plan, if it is not stored already, and return it with its id."""
    row = tx.one(
        "SELECT id FROM plans WHERE run = ? AND iteration = ? AND parent = ? AND number = ?",
        (plan.run, plan.iteration, plan.parent, plan.index),
    )
    if row is not None:
        return replace(plan, id=row["id"])
    number = tx.insert(
        "plans",
        columns(plan, "run iteration parent title text change_class rule line insights data partner")
        | {"number": plan.index, "created_at": tx.at},
    )
    for insight in dict.fromkeys(plan.insights):
        tx.execute(
            "INSERT INTO insight_uses (insight, plan, run) SELECT id, ?, ? FROM insights WHERE id = ?",
            (number, plan.run, insight),
        )
        tx.execute("UPDATE insights SET uses = uses + 1 WHERE id = ?", (insight,))
    rollups.add(tx, "run_totals", {"run": plan.run}, {"plans": 1})
    tx.event(
        PlanWritten(
            plan=number,
            parent=plan.parent,
            iteration=plan.iteration,
            index=plan.index,
            title=plan.title,
            rule=plan.rule,
            partner=plan.partner,
        ),
        plan.run,
    )
    return replace(plan, id=number)


def write_attempt(tx: Transaction, attempt: Attempt) -> Attempt:
    """Store an attempt, if it is not stored already, and return it with its id.

    Raise NotFoundError if the attempt's plan is not stored.
    """
    plan = tx.one("SELECT run FROM plans WHERE id = ?", (attempt.plan,))
    if plan is None:
        raise NotFoundError(f"there is no plan {attempt.plan}")
    row = tx.one(
        "SELECT id FROM attempts WHERE plan = ? AND number = ? AND ifnull(fix_of, 0) = ?",
        (attempt.plan, attempt.index, attempt.fix_of or 0),
    )
    if row is not None:
        return replace(attempt, id=row["id"])
    number = tx.insert(
        "attempts",
        {
            "plan": attempt.plan,
            "number": attempt.index,
            "fix_of": attempt.fix_of,
            "text_sha256": None if attempt.text is None else keep_text(tx, attempt.text),
            "reason": clean(attempt.reason),
            "created_at": tx.at,
        },
    )
    no_code = attempt.text is None
    rollups.add(tx, "run_totals", {"run": plan["run"]}, {"attempts": 1, "no_code": int(no_code)})
    if no_code:
        reason = attempt.reason[:500]
        tx.event(AttemptFailed(plan=attempt.plan, index=attempt.index, reason=reason), plan["run"])
    return replace(attempt, id=number)


def write_candidate(tx: Transaction, candidate: Candidate) -> Candidate:
    """Store a candidate in state ``queued``, and return it with its id.

    If the same attempt already has a candidate, nothing is stored, and the returned id is the id of that
    candidate.
    """
    if candidate.attempt is not None:
        row = tx.one("SELECT id FROM candidates WHERE attempt = ?", (candidate.attempt,))
        if row is not None:
            return replace(candidate, id=row["id"])
    source = keep_source(tx, candidate.kernel)
    place, plan_number, attempt_number, fix_number = candidate.order
    number = tx.insert(
        "candidates",
        columns(candidate, "run iteration parent plan attempt")
        | columns(candidate.kernel, "filename trusted")
        | {
            "source": source,
            "place": place,
            "plan_number": plan_number,
            "attempt_number": attempt_number,
            "fix_number": fix_number,
            "state": "queued",
            "created_at": tx.at,
        },
    )
    if candidate.parent is None:
        tx.execute(
            "UPDATE runs SET baseline = ? WHERE id = ? AND (baseline IS NULL OR "
            "(SELECT status FROM candidates WHERE id = baseline) <> 'passed')",
            (number, candidate.run),
        )
    else:
        rollups.add(tx, "run_totals", {"run": candidate.run}, {"candidates": 1})
    variant = tx.one(
        "SELECT json_extract(data, ?) AS name FROM plans WHERE id = ?",
        (f"$.variants[{attempt_number}].name", candidate.plan),
    )
    tx.event(
        CandidateWritten(
            candidate=number,
            parent=candidate.parent,
            plan=candidate.plan,
            iteration=candidate.iteration,
            sha256=source,
            change=(variant["name"] or "") if variant else "",
        ),
        candidate.run,
    )
    tx.event(CandidateQueued(candidate=number), candidate.run)
    return replace(candidate, id=number)


def mark_started(tx: Transaction, candidate: int, device: str) -> None:
    """Record that the evaluation of a candidate has begun on ``device``. Raise NotFoundError for an unknown
    candidate.
    """
    row = the_row(tx.connection, "candidate", candidate, "SELECT run FROM candidates WHERE id = ?")
    tx.update("candidates", candidate, state="running", device=clean(device), started_at=tx.at)
    tx.event(CandidateStarted(candidate=candidate, device=device), row["run"])


def write_evaluation(
    tx: Transaction, candidate: Candidate, evaluation: Evaluation, workload: str, backend: str, chip: str, key: str
) -> Candidate:
    """Store the evaluation of a candidate, and return the candidate with it.

    An evaluation that was only looked up (``reused``) is not stored again: the candidate refers to the newest
    stored evaluation with the same ``key``. Raise NotFoundError if the candidate is not stored.
    """
    old = the_row(tx.connection, "candidate", candidate.id, "SELECT * FROM candidates WHERE id = ?")
    number = _known(tx, evaluation, key) or _insert(tx, evaluation, workload, backend, chip, key)
    latency_us = finite(evaluation.latency_us)
    run = tx.one("SELECT baseline, baseline_latency_us, workload, best FROM runs WHERE id = ?", (candidate.run,))
    assert run is not None, "a candidate's run exists: foreign key"
    is_baseline = run["baseline"] == candidate.id
    gate = evaluation.gate
    tx.update(
        "candidates",
        candidate.id,
        state="done",
        evaluation=number,
        status=evaluation.status,
        gate=gate,
        latency_us=latency_us,
        ended_at=tx.at,
    )
    _judge(tx, candidate.id, run["baseline"])
    new = tx.one("SELECT * FROM candidates WHERE id = ?", (candidate.id,))
    assert new is not None, "it was updated a moment ago"
    if is_baseline:
        tx.update(
            "runs",
            candidate.run,
            baseline_latency_us=latency_us,
            percent_of_peak_before=finite(evaluation.percent_of_peak),
            percent_of_attainable_before=finite(evaluation.percent_of_attainable),
        )
        if run["baseline_latency_us"] not in (None, latency_us):
            _compare_again(tx, candidate.run, latency_us)
    if run["best"] == candidate.id:
        tx.update(
            "runs",
            candidate.run,
            best_latency_us=latency_us,
            speedup=new["speedup"],
            improved=new["improved"],
            tie_band=new["tie_band"],
        )
    source = evaluation.profile.source if evaluation.profile else Source.SIMULATED
    rule = tx.one("SELECT rule FROM plans WHERE id = ?", (candidate.plan,))
    rollups.candidate_changed(tx, old, new, rule["rule"] if rule else "", run["workload"])
    tx.event(
        CandidateEvaluated(
            candidate=candidate.id,
            evaluation=number,
            status=evaluation.status,
            latency_us=latency_us,
            percent_of_peak=finite(evaluation.percent_of_peak),
            percent_of_attainable=finite(evaluation.percent_of_attainable),
            speedup=new["speedup"],
            failure=evaluation.failure.message[:500] if evaluation.failure else None,
            gate=gate,
            bound=evaluation.profile.bound if evaluation.profile else "",
            source=evaluation.profile.source if evaluation.profile else None,
            improved=_truth(new["improved"]),
            parent_improved=_truth(new["parent_improved"]),
            verdict=candidate_verdict(dict(new), "", source),
            parent_verdict=candidate_verdict(dict(new), "parent_", source),
        ),
        candidate.run,
    )
    return replace(candidate, evaluation=replace(evaluation, id=number))


def _compare_again(tx: Transaction, run: int, baseline_us: float | None) -> None:
    """Compute all speed-ups of a run again, after its baseline got another latency."""
    found = tx.execute("SELECT c.id, r.baseline FROM candidates c JOIN runs r ON r.id = c.run WHERE r.id = ?", (run,))
    for row in found.fetchall():
        _judge(tx, row["id"], row["baseline"])
    tx.execute(
        "UPDATE iterations SET speedup = CASE WHEN best_latency_us > 0 AND ?1 > 0 THEN ?1 / best_latency_us END "
        "WHERE run = ?2",
        (baseline_us, run),
    )
    tx.execute(
        "UPDATE runs SET speedup = c.speedup, improved = c.improved, tie_band = c.tie_band FROM candidates c "
        "WHERE runs.id = ? AND c.id = runs.best",
        (run,),
    )


def _judge(tx: Transaction, candidate: int, baseline: int | None) -> None:
    """Write a candidate's speed-ups over the baseline and over its parent, and whether each of them is a win."""
    line = _line(tx, candidate)
    known = {one["id"]: one for one in line}
    own = known[candidate]
    root = known.get(baseline or 0) or next(iter(_line(tx, baseline, 1) if baseline else ()), None)
    parent = known.get(own["parent"] or 0)
    over_root, over_parent = (_gain(own, other, line) for other in (root, parent))
    speedup, parent_speedup = (
        ratio(other["latency_us"], own["latency_us"]) if other is not None else None for other in (root, parent)
    )
    tx.update(
        "candidates",
        candidate,
        speedup=speedup,
        improved=None if speedup is None else over_root is not None and over_root.improved,
        tie_band=over_root.band_percent if over_root is not None else None,
        parent_speedup=parent_speedup,
        parent_improved=None if parent_speedup is None else over_parent is not None and over_parent.improved,
    )


def _line(tx: Transaction, candidate: int, most: int = MOST_ANCESTORS) -> list[sqlite3.Row]:
    """Return the row of a candidate with its profile, then the rows of those ancestors through which it may be
    compared, the parent first.

    A measured candidate may be compared through all its ancestors, a simulated candidate only through its parent.
    At most ``most`` rows are returned.
    """
    found: list[sqlite3.Row] = []
    at: int | None = candidate
    while at is not None and len(found) < most:
        row = tx.one(_WITH_PROFILE, (at,))
        assert row is not None, "a parent exists: foreign key"
        found.append(row)
        at = row["parent"] if row["source"] == Source.MEASURED or len(found) < 2 else None
    return found


def _gain(own: sqlite3.Row, other: sqlite3.Row | None, line: Sequence[sqlite3.Row]) -> Gain | None:
    """Return the gain of the candidate ``own`` over ``other``; None unless both candidates passed.

    ``line`` has ``own`` and its ancestors. If ``other`` is one of these ancestors, the measured gains of the steps
    between the two are multiplied.
    """
    if other is None or own["id"] == other["id"] or not own["status"] == other["status"] == Status.PASSED:
        return None
    steps = list(line[: line.index(other) + 1]) if other in line else [own, other]
    profiles = [(one["sha256"], _short_profile(one)) for one in steps]
    return gain(profiles[-1][1], profiles[0][1], paired_speedup(profiles))


def _short_profile(row: sqlite3.Row) -> Profile:
    """Return the parts of a stored profile on which a comparison depends."""
    return Profile(
        source=Source(row["source"]),
        chip=row["chip"],
        api=row["api"],
        latency_us=row["latency_us"],
        method=row["method"],
        model=row["model"],
        interval_percent=row["interval_percent"],
        engines_us=mapping(row["engines_us"]),
        counters=mapping(row["counters"]),
        details=compared(mapping(row["details"])),
    )


def _truth(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def keep_evaluation(tx: Transaction, evaluation: Evaluation, workload: str, backend: str, chip: str, key: str) -> int:
    """Store an evaluation that belongs to no candidate, and return the evaluation's id."""
    return _insert(tx, evaluation, workload, backend, chip, key)


def _known(tx: Transaction, evaluation: Evaluation, key: str) -> int | None:
    if evaluation.id:
        return evaluation.id
    if not evaluation.reused:
        return None
    row = tx.one("SELECT last_evaluation FROM evaluation_keys WHERE key = ?", (key,))
    return row["last_evaluation"] if row else None


def _insert(tx: Transaction, evaluation: Evaluation, workload: str, backend: str, chip: str, key: str) -> int:
    failure, correctness = evaluation.failure, evaluation.correctness
    values = columns(evaluation, "status source_sha256 program_sha256 sandbox_level seconds log reused") | {
        "key": key,
        "workload": clean(workload),
        "backend": backend,
        "chip": chip,
        "gate": correctness.gate if correctness else None,
        "failure_rule": clean(failure.rule) if failure else None,
        "failure_message": clean(failure.message) if failure else None,
        "failure_line": failure.line if failure else None,
        "failure_hint": clean(failure.hint) if failure else None,
        "rel_l2": correctness.rel_l2 if correctness else None,
        "tolerance": correctness.tolerance if correctness else None,
        "worst_row": correctness.worst_row if correctness else None,
        "accelopt_passed": correctness.accelopt_passed if correctness else None,
        "latency_us": finite(evaluation.latency_us),
        "percent_of_peak": finite(evaluation.percent_of_peak),
        "percent_of_attainable": finite(evaluation.percent_of_attainable),
        "created_at": tx.at,
    }
    number = tx.insert("evaluations", values)
    for place, check in enumerate(correctness.checks if correctness else ()):
        tx.execute(
            "INSERT INTO checks VALUES (?, ?, ?, ?, ?, ?, ?)",
            (number, place, clean(check.name), check.passed, check.rel_l2, check.tolerance, clean(check.detail)),
        )
    if evaluation.profile is not None:
        _insert_profile(tx, number, evaluation.profile)
    rollups.evaluation_written(tx, values, number)
    return number


def _insert_profile(tx: Transaction, evaluation: int, profile: Profile) -> None:
    described = columns(profile, "source chip api method model sdk host instance_type driver bound notes")
    figures = columns(profile, "latency_us resolution_us interval_percent engines_us counters")
    tx.insert("profiles", {"evaluation": evaluation} | described | figures)
    if profile.details:
        tx.execute("INSERT INTO profile_details VALUES (?, ?)", (evaluation, dump(profile.details)))
    for place, latency_us in enumerate(profile.samples_us):
        tx.execute("INSERT INTO samples VALUES (?, ?, ?)", (evaluation, place, latency_us))


def finite(value: float | None) -> float | None:
    """Return the number if it is finite, else None."""
    return value if value is not None and math.isfinite(value) else None


def ratio(slow_us: float | None, fast_us: float | None) -> float | None:
    """Return the speed-up ``slow_us / fast_us``; None unless both latencies are known and not 0."""
    return slow_us / fast_us if slow_us and fast_us else None
