"""Read rows as the records of ``acceld.model``. Every function takes a connection and changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acceld.events import Event, EventKind
from acceld.gains import compared
from acceld.model import Attempt, Candidate, Evaluation, Insight, Kernel, Plan, Run, RunState
from acceld.model_calls import CallOutcome, Usage
from acceld.store import rows
from acceld.store.changes.calls import TOKENS
from acceld.store.errors import unknown
from acceld.store.rows import Row, the_row


@dataclass(frozen=True, slots=True)
class ResumeState:
    """All that a search needs to continue a run after the daemon ended; empty for a new run."""

    baseline: Candidate | None
    best: Candidate | None
    beam: tuple[Candidate, ...]
    """Beam of the last finished iteration, in order."""
    parents: tuple[Candidate, ...]
    """Parents of the iteration that was started and has not ended; empty if there is no such iteration."""
    finished_iterations: int
    """Number of finished iterations."""
    earlier_plans: tuple[Plan, ...]
    """Plans of the finished iterations."""
    plans: tuple[Plan, ...]
    """Plans of the iteration that has not ended; ``attempts`` and ``candidates`` are those of the same iteration."""
    attempts: tuple[Attempt, ...]
    candidates: tuple[Candidate, ...]


def texts(connection: sqlite3.Connection, hashes: Iterable[str]) -> dict[str, str]:
    """Return the stored texts with these hashes, as a dict by hash. Unknown hashes are left out."""
    wanted = list(dict.fromkeys(hashes))
    found: dict[str, str] = {}
    for start in range(0, len(wanted), 500):
        part = wanted[start : start + 500]
        for row in connection.execute(
            f"SELECT sha256, text FROM texts WHERE sha256 IN ({', '.join('?' * len(part))})", part
        ):
            found[row["sha256"]] = rows.text_of(row["text"])
    return found


def load_run(connection: sqlite3.Connection, run: int) -> Run:
    """Return one run. Raise NotFoundError if there is no such run."""
    row = the_row(connection, "run", run, "SELECT * FROM runs WHERE id = ?")
    return rows.run_of(row, _root(connection, row))


def run_state(connection: sqlite3.Connection, run: int) -> RunState:
    """Return the state of one run. Raise NotFoundError if there is no such run."""
    row = the_row(connection, "run", run, "SELECT state FROM runs WHERE id = ?")
    return RunState(row["state"])


def load_runs(
    connection: sqlite3.Connection,
    states: Sequence[RunState] = (),
    workload: str | None = None,
    limit: int = 100,
    before: int | None = None,
) -> list[Run]:
    """Return runs, newest first.

    ``states`` (empty: any), ``workload`` and ``before`` (only runs with smaller ids) narrow the choice.
    """
    where, values = ["1"], list[Any]()
    if states:
        where.append(f"state IN ({', '.join('?' * len(states))})")
        values += states
    if workload is not None:
        where.append("workload = ?")
        values.append(workload)
    if before is not None:
        where.append("id < ?")
        values.append(before)
    found = connection.execute(
        f"SELECT * FROM runs WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?", (*values, limit)
    ).fetchall()
    return [rows.run_of(row, _root(connection, row)) for row in found]


def _root(connection: sqlite3.Connection, row: Row) -> Kernel | None:
    if row["root_sha256"] is None:
        return None
    source = connection.execute(
        "SELECT s.*, ? AS filename, ? AS trusted FROM sources s WHERE sha256 = ?",
        (row["root_filename"], row["root_trusted"], row["root_sha256"]),
    ).fetchone()
    return _kernels(connection, [source])[0]


def _kernels(connection: sqlite3.Connection, found: Sequence[Row]) -> list[Kernel]:
    """Return one kernel for each row, in the same order.

    The rows have the columns of ``sources``, and ``filename`` and ``trusted``.
    """
    closures: list[dict[str, str]] = [rows.load(row["closure"]) for row in found]
    wanted = [row["text_sha256"] for row in found]
    by_hash = texts(connection, wanted + [digest for closure in closures for digest in closure.values()])
    return [
        rows.kernel_of(row, by_hash[row["text_sha256"]], {name: by_hash[digest] for name, digest in closure.items()})
        for row, closure in zip(found, closures, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """One answered model call, with its texts."""

    role: str
    model: str
    system: str
    user: str
    reasoning: str
    answer: str
    tags: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PricedCall:
    """One ended model call, without its texts."""

    role: str
    model: str
    cost_usd: float
    """Cost of the call in USD; 0 if the price is unknown."""
    tags: Mapping[str, Any]


def priced_calls(connection: sqlite3.Connection, run: int) -> list[PricedCall]:
    """Return the ended calls of a run, oldest first."""
    found = connection.execute(
        "SELECT role, model, cost_usd, parameters FROM llm_calls WHERE run = ? AND outcome IS NOT NULL ORDER BY id",
        (run,),
    )
    return [
        PricedCall(row["role"], row["model"], row["cost_usd"] or 0.0, rows.load(row["parameters"]).get("tags", {}))
        for row in found
    ]


def answered_calls(connection: sqlite3.Connection, run: int) -> list[AnsweredCall]:
    """Return the answered calls of a run, oldest first."""
    found = connection.execute(
        "SELECT l.role, l.model, s.text AS system, u.text AS user, l.reasoning, l.answer, l.parameters FROM llm_calls l "
        "JOIN texts s ON s.sha256 = l.system_sha256 JOIN texts u ON u.sha256 = l.user_sha256 "
        "WHERE l.run = ? AND l.outcome = 'answered' ORDER BY l.id",
        (run,),
    )
    return [
        AnsweredCall(
            row["role"], row["model"], row["system"], row["user"], row["reasoning"] or "", row["answer"] or "",
            rows.load(row["parameters"]).get("tags", {}),
        )
        for row in found
    ]  # fmt: skip


def load_evaluations(
    connection: sqlite3.Connection, numbers: Iterable[int], details: bool = True
) -> dict[int, Evaluation]:
    """Return evaluations by id, with checks and profiles. Unknown ids are left out.

    ``details=False`` leaves out details of the profiles that no comparison needs, such as timelines, which are long.
    """
    found: dict[int, Evaluation] = {}
    wanted = list(dict.fromkeys(numbers))
    for start in range(0, len(wanted), 500):
        part = wanted[start : start + 500]
        holes = ", ".join("?" * len(part))
        checks: dict[int, list[Any]] = {}
        for row in connection.execute(
            f"SELECT * FROM checks WHERE evaluation IN ({holes}) ORDER BY evaluation, number", part
        ):
            checks.setdefault(row["evaluation"], []).append(rows.check_of(row))
        samples: dict[int, list[float]] = {}
        for row in connection.execute(
            f"SELECT * FROM samples WHERE evaluation IN ({holes}) ORDER BY evaluation, number", part
        ):
            samples.setdefault(row["evaluation"], []).append(row["latency_us"])
        whole: dict[int, Mapping[str, Any]] = {}
        for row in connection.execute(f"SELECT * FROM profile_details WHERE evaluation IN ({holes})", part):
            kept = rows.mapping(row["details"])
            whole[row["evaluation"]] = kept if details else compared(kept)
        profiles = {
            row["evaluation"]: rows.profile_of(
                row, tuple(samples.get(row["evaluation"], ())), whole.get(row["evaluation"], {})
            )
            for row in connection.execute(f"SELECT * FROM profiles WHERE evaluation IN ({holes})", part)
        }
        for row in connection.execute(f"SELECT * FROM evaluations WHERE id IN ({holes})", part):
            found[row["id"]] = rows.evaluation_of(row, tuple(checks.get(row["id"], ())), profiles.get(row["id"]))
    return found


_CANDIDATES = (
    "SELECT c.*, s.sha256, s.text_sha256, s.api, s.entry, s.grid, s.lnc, s.closure "
    "FROM candidates c JOIN sources s ON s.sha256 = c.source "
)
_ORDER = " ORDER BY c.iteration, c.place, c.plan_number, c.attempt_number, c.fix_number, c.id"


def _candidates(connection: sqlite3.Connection, found: Sequence[Row], details: bool) -> list[Candidate]:
    evaluations = load_evaluations(connection, [row["evaluation"] for row in found if row["evaluation"]], details)
    return [
        rows.candidate_of(row, kernel, evaluations.get(row["evaluation"]))
        for row, kernel in zip(found, _kernels(connection, found), strict=True)
    ]


def load_candidates(
    connection: sqlite3.Connection, run: int, iteration: int | None = None, details: bool = False
) -> list[Candidate]:
    """Return the candidates of a run, or of one iteration, in the order of selection. The baseline comes first.

    ``details`` also includes details of the profiles that no comparison needs, such as timelines.
    """
    where, values = "WHERE c.run = ?", [run]
    if iteration is not None:
        where += " AND c.iteration = ?"
        values.append(iteration)
    return _candidates(connection, connection.execute(_CANDIDATES + where + _ORDER, values).fetchall(), details)


def load_candidates_by_id(
    connection: sqlite3.Connection, numbers: Sequence[int], details: bool = True
) -> list[Candidate]:
    """Return candidates in the order of ``numbers``, which are their ids. Raise NotFoundError if one of them is
    missing.
    """
    found = known_candidates(connection, numbers, details)
    for number in numbers:
        if number not in found:
            raise unknown("candidate", number)
    return [found[number] for number in numbers]


def known_candidates(
    connection: sqlite3.Connection, numbers: Sequence[int], details: bool = False
) -> dict[int, Candidate]:
    """Return, by id, those candidates with the ids ``numbers`` that the history has."""
    found: dict[int, Candidate] = {}
    for start in range(0, len(numbers), 500):
        part = list(numbers[start : start + 500])
        page = connection.execute(_CANDIDATES + f"WHERE c.id IN ({', '.join('?' * len(part))})", part).fetchall()
        found |= {candidate.id: candidate for candidate in _candidates(connection, page, details)}
    return found


def load_candidate(connection: sqlite3.Connection, candidate: int) -> Candidate:
    """Return one candidate with all its fields. Raise NotFoundError if there is no such candidate."""
    return load_candidates_by_id(connection, [candidate])[0]


def load_plans(connection: sqlite3.Connection, run: int, iteration: int | None = None) -> list[Plan]:
    """Return the plans of a run, or of one iteration, in the order in which they were stored."""
    where, values = "run = ?", [run]
    if iteration is not None:
        where += " AND iteration = ?"
        values.append(iteration)
    return [
        rows.plan_of(row)
        for row in connection.execute(f"SELECT * FROM plans WHERE {where} ORDER BY iteration, id", values)
    ]


def load_refusals(connection: sqlite3.Connection, run: int) -> list[Attempt]:
    """Return the attempts of a run that gave no code, oldest first, without their texts."""
    found = connection.execute(
        "SELECT a.* FROM attempts a JOIN plans p ON p.id = a.plan WHERE p.run = ? AND a.text_sha256 IS NULL ORDER BY a.id",
        (run,),
    )
    return [rows.attempt_of(row, None) for row in found]


def load_attempts(connection: sqlite3.Connection, run: int, iteration: int) -> list[Attempt]:
    """Return the attempts at the plans of one iteration, oldest first, with their texts."""
    found = connection.execute(
        "SELECT a.* FROM attempts a JOIN plans p ON p.id = a.plan WHERE p.run = ? AND p.iteration = ? ORDER BY a.id",
        (run, iteration),
    ).fetchall()
    by_hash = texts(connection, [row["text_sha256"] for row in found if row["text_sha256"]])
    return [rows.attempt_of(row, by_hash.get(row["text_sha256"])) for row in found]


def find_evaluation(connection: sqlite3.Connection, key: str) -> Evaluation | None:
    """Return the newest stored evaluation with this key; None if no evaluation has it."""
    row = connection.execute("SELECT last_evaluation FROM evaluation_keys WHERE key = ?", (key,)).fetchone()
    return load_evaluations(connection, [row["last_evaluation"]]).get(row["last_evaluation"]) if row else None


def load_insights(
    connection: sqlite3.Connection,
    *,
    run: int | None = None,
    chip: str | None = None,
    api: str | None = None,
    matching: str = "",
    withdrawn: bool = False,
    limit: int = 1000,
) -> list[Insight]:
    """Return insights, newest first. ``matching`` are words that must all occur in the insight.

    Withdrawn insights are left out unless ``withdrawn`` is True.
    """
    found = insights_found(connection, {"run": run, "chip": chip, "api": api}, matching, withdrawn, limit)
    return [rows.insight_of(row) for row in found]


def insights_found(
    connection: sqlite3.Connection, columns: Mapping[str, Any], matching: str, withdrawn: bool, limit: int
) -> list[Row]:
    """Return rows of ``insights``, newest first. ``columns`` maps columns to the values that they must have; None
    allows any value.
    """
    given = {column: value for column, value in columns.items() if value is not None}
    where, values = ["1", *(f"{column} = ?" for column in given)], list(given.values())
    if not withdrawn:
        where.append("NOT withdrawn")
    if matching:
        where.append("id IN (SELECT rowid FROM insights_search WHERE insights_search MATCH ?)")
        values.append(full_text(matching))
    found = connection.execute(
        f"SELECT * FROM insights WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?", (*values, limit)
    )
    return found.fetchall()


def load_events(
    connection: sqlite3.Connection, after: int = 0, run: int | None = None, limit: int = 500, kind: str = ""
) -> list[Event]:
    """Return up to ``limit`` events after number ``after``, in order: of one run or of one kind, if given."""
    wanted = {"run = ?": run, "kind = ?": kind or None}
    given = {term: value for term, value in wanted.items() if value is not None}
    terms = " AND ".join((*given, "seq > ?"))
    found = connection.execute(
        f"SELECT * FROM events WHERE {terms} ORDER BY seq LIMIT ?", (*given.values(), after, limit)
    )
    return [rows.event_of(row) for row in found]


def last_seq(connection: sqlite3.Connection) -> int:
    """Return the number of the newest event; 0 if there are no events."""
    value: int = connection.execute("SELECT ifnull(max(seq), 0) FROM events").fetchone()[0]
    return value


def newest_at(connection: sqlite3.Connection) -> float:
    """Return the time of the newest event, in seconds since the epoch; 0 if there are no events."""
    row = connection.execute("SELECT at FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    return float(row["at"]) if row else 0.0


def resume_state(connection: sqlite3.Connection, run: int) -> ResumeState:
    """Return all that a search needs to continue a run. Raise NotFoundError if there is no such run."""
    record = load_run(connection, run)
    done = connection.execute(
        "SELECT ifnull(max(iteration), 0) FROM iterations WHERE run = ? AND ended_at IS NOT NULL", (run,)
    ).fetchone()[0]
    begun = connection.execute(
        "SELECT beam FROM iterations WHERE run = ? AND iteration = ? AND ended_at IS NULL", (run, done + 1)
    ).fetchone()
    chosen = [
        row["candidate"]
        for row in connection.execute(
            "SELECT candidate FROM beams WHERE run = ? AND iteration = ? ORDER BY place", (run, done)
        )
    ]
    open_rows = connection.execute(
        _CANDIDATES + "WHERE c.run = ? AND c.iteration > ? AND c.parent IS NOT NULL" + _ORDER, (run, done)
    ).fetchall()
    plans = load_plans(connection, run)
    return ResumeState(
        baseline=load_candidate(connection, record.baseline) if record.baseline else None,
        best=load_candidate(connection, record.best) if record.best else None,
        beam=tuple(load_candidates_by_id(connection, chosen)),
        parents=tuple(load_candidates_by_id(connection, rows.load(begun["beam"]))) if begun else (),
        finished_iterations=done,
        earlier_plans=tuple(plan for plan in plans if plan.iteration <= done),
        plans=tuple(plan for plan in plans if plan.iteration > done),
        attempts=tuple(load_attempts(connection, run, done + 1)),
        candidates=tuple(_candidates(connection, open_rows, details=True)),
    )


def full_text(query: str) -> str:
    """Return a person's words as a query for SQLite's full-text search.

    Each word, or a longer word that begins with it, must occur. No word is read as an operator.
    """
    words = ["".join(c for c in word if c.isalnum() or c == "_") for word in query.split()]
    return " AND ".join(f'("{word}" OR "{word}"*)' for word in words if word) or '""'


def steering_events(connection: sqlite3.Connection, run: int) -> list[Event]:
    """Return the events of a run that report requests of people and starts of iterations, in order."""
    kinds = (EventKind.STEERED, EventKind.ITERATION_STARTED)
    found = connection.execute(
        "SELECT * FROM events WHERE run = ? AND kind IN (?, ?) ORDER BY seq", (run, *(kind.value for kind in kinds))
    )
    return [rows.event_of(row) for row in found]


def stored_answer(connection: sqlite3.Connection, key: str) -> CallOutcome | None:
    """Return the newest stored answer to an identical request (``key``), at no cost; None if there is no such
    answer.
    """
    row = connection.execute(
        "SELECT * FROM llm_calls WHERE key = ? AND outcome = 'answered' ORDER BY id DESC LIMIT 1", (key,)
    ).fetchone()
    if row is None:
        return None
    tokens: dict[str, Any] = {name: row[name] or 0 for name in TOKENS}
    return CallOutcome(
        "answered",
        Usage(**tokens),
        text=row["answer"],
        reasoning=row["reasoning"],
        answered_by=row["answered_by"],
        request_id=row["request_id"],
        finish_reason=row["finish_reason"],
        latency_s=row["latency_s"] or 0.0,
    )


def spent_usd(
    connection: sqlite3.Connection, run: int | None = None, since: float = 0.0, *, settled: bool = False
) -> float:
    """Return the most that model calls can have cost, in USD.

    The calls are those of ``run``, or of all runs, since a time in seconds since the epoch. Amounts reserved
    for calls that are still running count, too, unless ``settled`` is True.
    """
    row = connection.execute(
        "SELECT sum(ifnull(cost_usd + uncertain_usd, CASE WHEN outcome IS NULL AND NOT ? THEN reserved_usd END)) FROM llm_calls "
        "WHERE started_at >= ? AND (? IS NULL OR run = ?)",
        (settled, since, run, run),
    ).fetchone()
    return row[0] or 0.0


def answer_tokens(connection: sqlite3.Connection, role: str, models: Sequence[str]) -> int | None:
    """Return the mean number of output tokens of the newest 64 answers of these models in a role; None without
    answers.
    """
    row = connection.execute(
        "SELECT avg(output_tokens) FROM (SELECT output_tokens FROM llm_calls WHERE role = ? AND outcome = 'answered' "
        f"AND model IN ({', '.join('?' * len(models))}) ORDER BY id DESC LIMIT 64)",
        (role, *models),
    ).fetchone()
    return None if row[0] is None else round(row[0])


def failing_share(connection: sqlite3.Connection, models: Sequence[str], statuses: Collection[str]) -> float | None:
    """Return the share (0 to 1) of these models' newest 64 evaluated attempts that ended with a status in ``statuses``.

    An attempt counts with its first result; a fixer's repairs of it do not count. Return None if no attempt of these
    models was evaluated.
    """
    row = connection.execute(
        f"SELECT avg(status IN ({', '.join('?' * len(statuses))})) FROM (SELECT DISTINCT c.id, c.status FROM llm_calls l "
        "JOIN candidates c ON c.plan = l.plan AND c.attempt_number = l.attempt AND c.fix_number = 0 "
        "WHERE l.role = 'executor' AND l.outcome = 'answered' AND c.status IS NOT NULL "
        f"AND l.model IN ({', '.join('?' * len(models))}) ORDER BY c.id DESC LIMIT 64)",
        (*statuses, *models),
    ).fetchone()
    share: float | None = row[0]
    return share


def summarized_pairs(connection: sqlite3.Connection, run: int) -> set[tuple[int, int]]:
    """Return the pairs (slow candidate, fast candidate) of a run about which a summarizer has answered.

    Answers that gave no insight count, too.
    """
    rows = connection.execute(
        "SELECT json_extract(parameters, '$.tags.slow') AS slow, json_extract(parameters, '$.tags.fast') AS fast "
        "FROM llm_calls WHERE run = ? AND role = 'summarizer' AND outcome = 'answered'",
        (run,),
    )
    return {(row["slow"], row["fast"]) for row in rows}
