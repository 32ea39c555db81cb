"""Write runs, iterations, beams, requests of people, notices, and side effects."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from acceld.errors import INTERRUPTED, StoreError
from acceld.events import (
    BeamSelected,
    BestChanged,
    CandidateQueued,
    EventData,
    IterationStarted,
    Notice,
    RunCreated,
    RunStateChanged,
    Steered,
    TimedAgain,
)
from acceld.gains import judged
from acceld.model import Basis, Candidate, Run, RunSpec, RunState
from acceld.store.changes.calls import BATCH, interrupt_call, open_batches
from acceld.store.changes.tree import keep_source, write_evaluation
from acceld.store.errors import NotFoundError
from acceld.store.reads.records import load_run
from acceld.store.rows import clean, columns, dump, load, search_values, the_row
from acceld.store.writer import Transaction


def create_run(tx: Transaction, spec: RunSpec) -> Run:
    """Store a new run in state ``queued``, and return it."""
    root = spec.root
    run = tx.insert(
        "runs",
        columns(spec, "name workload workload_folder chip api backend proposer preset")
        | {
            "seed": spec.search.seed,
            "search": search_values(spec.search),
            "root_sha256": keep_source(tx, root) if root else None,
            "root_filename": clean(root.filename) if root else None,
            "root_trusted": root.trusted if root else None,
            "state": RunState.QUEUED,
            "created_at": tx.at,
        },
    )
    tx.execute("INSERT INTO run_totals (run) VALUES (?)", (run,))
    tx.execute(
        "INSERT INTO workloads (name, definition, registered_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (clean(spec.workload), dump({"name": spec.workload}), tx.at),
    )
    tx.event(
        RunCreated(
            workload=spec.workload,
            chip=spec.chip,
            api=spec.api,
            backend=spec.backend,
            proposer=spec.proposer,
            preset=spec.preset,
            search=load(search_values(spec.search)),
            name=spec.name,
        ),
        run,
    )
    return load_run(tx.connection, run)


def register_workload(tx: Transaction, name: str, definition: Mapping[str, Any]) -> None:
    """Store the definition of a workload, for the SQL views of the database. An older definition is replaced."""
    tx.execute(
        "INSERT INTO workloads (name, definition, registered_at) VALUES (?, ?, ?) "
        "ON CONFLICT (name) DO UPDATE SET definition = excluded.definition",
        (clean(name), dump(definition), tx.at),
    )


def set_run_state(tx: Transaction, run: int, state: RunState, message: str = "", exit_code: int = 0) -> None:
    """Write a run's state. Repeating the present state and message changes nothing.

    The evaluations that the end of a run cut off wait again, as after a restart of the daemon.
    ``exit_code`` is the exit code of commands that wait for the run, if the run failed or paused itself. A failure
    without an exit code gets 1, a cancelled run :data:`~acceld.errors.INTERRUPTED`. Raise NotFoundError if there is no such run.
    """
    row = the_row(tx.connection, "run", run, "SELECT state, message, started_at FROM runs WHERE id = ?")
    if row["state"] == state and row["message"] == message:
        return
    values: dict[str, Any] = {"state": state, "message": clean(message), "ended_at": tx.at if state.ended else None}
    codes = {RunState.FAILED: exit_code or 1, RunState.PAUSED: exit_code, RunState.CANCELLED: INTERRUPTED}
    values["exit_code"] = codes.get(state, 0)
    if state is RunState.RUNNING and row["started_at"] is None:
        values["started_at"] = tx.at
    tx.update("runs", run, **values)
    if state.ended:
        cut = tx.execute("SELECT id FROM candidates WHERE run = ? AND state = 'running'", (run,)).fetchall()
        for row in cut:
            tx.update("candidates", row["id"], state="queued", device="")
            tx.event(CandidateQueued(candidate=row["id"]), run)
    tx.event(RunStateChanged(state=state, message=message), run)


def set_basis(tx: Transaction, run: int, basis: Basis) -> None:
    """Store the basis of a run: the versions on which its latencies depend."""
    tx.update("runs", run, basis=dump(asdict(basis)))


def start_iteration(tx: Transaction, run: int, iteration: int, beam: Sequence[int]) -> None:
    """Begin an iteration; ``beam`` has the ids of its parents. Starting the same iteration again changes nothing."""
    if tx.one("SELECT 1 FROM iterations WHERE run = ? AND iteration = ?", (run, iteration)):
        return
    tx.execute(
        "INSERT INTO iterations (run, iteration, beam, started_at) VALUES (?, ?, ?, ?)",
        (run, iteration, dump(list(beam)), tx.at),
    )
    tx.update("runs", run, iteration=iteration)
    tx.event(IterationStarted(iteration=iteration, beam=tuple(beam)), run)


def select_beam(tx: Transaction, run: int, iteration: int, beam: Sequence[int], best: int) -> None:
    """End an iteration: store its beam, and the best candidate so far. Ending the same iteration again changes
    nothing.

    Raise StoreError if the iteration was not started.
    """
    open_row = tx.one("SELECT ended_at FROM iterations WHERE run = ? AND iteration = ?", (run, iteration))
    if open_row is None:
        raise StoreError(
            f"iteration {iteration} of run r{run} was not started", hint="acceld doctor database examines the history"
        )
    if open_row["ended_at"] is not None:
        return
    set_best(tx, run, best)
    for place, candidate in enumerate(beam):
        tx.execute("INSERT INTO beams VALUES (?, ?, ?, ?)", (run, iteration, place, candidate))
    row = tx.one("SELECT latency_us, speedup FROM candidates WHERE id = ?", (best,))
    latency_us, speedup = (row["latency_us"], row["speedup"]) if row else (None, None)
    tx.execute(
        "UPDATE iterations SET ended_at = ?, best = ?, best_latency_us = ?, speedup = ? WHERE run = ? AND iteration = ?",
        (tx.at, best, latency_us, speedup, run, iteration),
    )
    tx.event(
        BeamSelected(iteration=iteration, beam=tuple(beam), best=best, best_latency_us=latency_us, speedup=speedup), run
    )


def set_best(tx: Transaction, run: int, candidate: int) -> None:
    """Store a run's new best candidate. Raise NotFoundError if the run does not have the candidate."""
    row = tx.one(
        "SELECT c.latency_us, c.speedup, c.improved, c.tie_band, c.parent, e.percent_of_peak, e.percent_of_attainable, f.source FROM candidates c "
        "LEFT JOIN evaluations e ON e.id = c.evaluation LEFT JOIN profiles f ON f.evaluation = c.evaluation "
        "WHERE c.id = ? AND c.run = ?",
        (candidate, run),
    )
    if row is None:
        raise NotFoundError(
            f"there is no candidate c{candidate} in run r{run}", hint=f"acceld tree r{run} lists its candidates"
        )
    known = tx.one("SELECT best FROM runs WHERE id = ?", (run,))
    if known is not None and known["best"] == candidate:
        return
    tx.update(
        "runs",
        run,
        best=candidate,
        best_latency_us=row["latency_us"],
        speedup=row["speedup"],
        improved=row["improved"],
        tie_band=row["tie_band"],
        percent_of_peak_after=row["percent_of_peak"],
        percent_of_attainable_after=row["percent_of_attainable"],
    )
    tx.event(
        BestChanged(
            candidate=candidate,
            latency_us=row["latency_us"],
            speedup=row["speedup"],
            percent_of_peak=row["percent_of_peak"],
            source=row["source"],
            improved=bool(row["improved"]),
            verdict=judged(dict(row)),
        ),
        run,
    )


def write_again(
    tx: Transaction, run: int, basis: Basis, changes: str, found: Sequence[tuple[Candidate, str]], best: int | None
) -> None:
    """Replace all latencies of a run, in one transaction, after its basis changed.

    ``found`` has a pair for every candidate of the run, the baseline first: (candidate with its new evaluation, key of
    that evaluation). ``changes`` says in words what changed. ``best`` is the id of the fastest candidate that passed
    the strict gate; None if no candidate did.
    """
    row = tx.one("SELECT * FROM runs WHERE id = ?", (run,))
    assert row is not None, "its candidates have a run: foreign key"
    told = f"{len(found)} kernels were timed again after iteration {row['iteration']}, because of a change of {changes}"
    tx.event(TimedAgain(candidates=len(found), text=told), run)
    where = {"workload": row["workload"], "backend": row["backend"], "chip": row["chip"]}
    for candidate, key in found:
        assert candidate.evaluation is not None, "each has its new result"
        write_evaluation(tx, candidate, candidate.evaluation, **where, key=key)
    tx.execute(
        "UPDATE iterations SET best_latency_us = c.latency_us, speedup = c.speedup FROM candidates c "
        "WHERE iterations.run = ? AND c.id = iterations.best",
        (run,),
    )
    tx.update("runs", run, basis=dump(asdict(basis)), timed_again=told, best=None)
    if best is not None:
        set_best(tx, run, best)


def write_steering(tx: Transaction, run: int, action: str, arguments: Mapping[str, Any], by: str) -> int:
    """Store a person's request to a run, such as to pause, and return the request's id.

    The daemon reports the outcome with :func:`settle_steering`. Raise NotFoundError if there is no such run.
    """
    the_row(tx.connection, "run", run, "SELECT 1 FROM runs WHERE id = ?")
    return tx.insert(
        "steering",
        {"run": run, "action": action, "arguments": dump(arguments), "by": clean(by), "created_at": tx.at},
    )


def settle_steering(tx: Transaction, steering: int, result: str) -> None:
    """Record that a person's request was carried out or refused, and publish the event. ``result`` says which
    in words.
    """
    row = tx.one("SELECT * FROM steering WHERE id = ?", (steering,))
    if row is None or row["applied_at"] is not None:
        return
    tx.update("steering", steering, applied_at=tx.at, result=clean(result))
    arguments = {key: value for key, value in load(row["arguments"]).items() if key not in ("action", "by", "result")}
    tx.event(Steered(action=row["action"], by=row["by"], result=result, arguments=arguments), row["run"])


def write_steered(tx: Transaction, run: int, action: str, arguments: Mapping[str, Any], by: str, result: str) -> None:
    """Store a person's request to a run together with its result, and publish the event."""
    settle_steering(tx, write_steering(tx, run, action, arguments, by), result)


def write_notice(tx: Transaction, run: int | None, level: str, text: str, hint: str = "") -> int:
    """Store a notice for people, and return the number of its event."""
    return tx.event(Notice(level=level, text=text, hint=hint), run).seq


def write_event(tx: Transaction, data: EventData, run: int | None = None) -> int:
    """Store an event that no row of another table stands for (a device's state, a budget's level, a saved
    file).

    Return the number of the event.
    """
    return tx.event(data, run).seq


def add_note(tx: Transaction, subject: str, text: str, by: str) -> int:
    """Store a person's note, and return its id. ``subject`` is a run, a candidate or an insight: ``r12``,
    ``c345``, ``i38``.
    """
    return tx.insert("notes", {"subject": subject, "text": clean(text), "by": clean(by), "created_at": tx.at})


def intend_effect(tx: Transaction, kind: str, key: str, run: int | None, data: Mapping[str, Any]) -> tuple[int, Any]:
    """Record a side effect before it happens.

    Return the id of its journal entry, and the effect's result: None as long as the effect has not been done.
    The same ``kind`` and ``key`` mean the same effect. Each repeated try is counted.
    """
    row = tx.one("SELECT id, state, result FROM journal WHERE kind = ? AND key = ?", (kind, key))
    if row is None:
        values = {"run": run, "kind": kind, "key": key, "state": "intent", "data": dump(data), "created_at": tx.at}
        return tx.insert("journal", values), None
    if row["state"] == "done":
        return row["id"], load(row["result"])
    tx.execute("UPDATE journal SET state = 'intent', tries = tries + 1 WHERE id = ?", (row["id"],))
    return row["id"], None


def settle_effect(tx: Transaction, entry: int, result: Any) -> None:
    """Record that a side effect has been done. ``entry`` is the id from :func:`intend_effect`."""
    tx.update("journal", entry, state="done", result=dump(result), ended_at=tx.at)


@dataclass(frozen=True, slots=True)
class Spent:
    """Cost and time of one finished iteration."""

    cost_usd: float | None
    """Cost of the iteration's model calls in USD; None if the price of one of them is unknown."""
    evaluation_s: float
    """Sum of the seconds that the evaluations of the iteration's candidates took."""
    speedup: float
    """Speed-up over the baseline of the best candidate so far; 1 without a latency."""


def spending(connection: sqlite3.Connection, run: int) -> list[Spent]:
    """Return the cost and time of each finished iteration of a run, in order."""
    rows = connection.execute(
        "SELECT i.speedup, "
        "(SELECT sum(cost_usd) FROM llm_calls WHERE run = i.run AND iteration = i.iteration) AS cost_usd, "
        "(SELECT count(*) FROM llm_calls WHERE run = i.run AND iteration = i.iteration AND cost_usd IS NULL) AS unpriced, "
        "(SELECT sum(ended_at - started_at) FROM candidates WHERE run = i.run AND iteration = i.iteration) AS evaluation_s "
        "FROM iterations i WHERE i.run = ? AND i.ended_at IS NOT NULL ORDER BY i.iteration",
        (run,),
    )
    return [
        Spent(None if row["unpriced"] else row["cost_usd"] or 0.0, row["evaluation_s"] or 0.0, row["speedup"] or 1.0)
        for row in rows
    ]


def recover_runs(tx: Transaction, reason: str) -> list[int]:
    """Mark interrupted work after the daemon ended without a shutdown, and return the ids of the runs to
    continue.

    Model calls in flight become ``interrupted`` and get an estimated cost (see ``interrupt_call``). Calls that
    a continued run had put in a batch stay open, because the answers of the batch are still fetched.
    """
    batched = {key for batch in open_batches(tx.connection) for key in batch.keys}
    for row in tx.execute(
        "SELECT l.id, l.key, r.ended_at IS NULL AS goes_on FROM llm_calls l LEFT JOIN runs r ON r.id = l.run "
        "WHERE l.outcome IS NULL"
    ).fetchall():
        if not (row["goes_on"] and row["key"] in batched):
            interrupt_call(tx, row["id"], reason)
    tx.execute("UPDATE candidates SET state = 'queued', device = '' WHERE state = 'running'")
    tx.execute("UPDATE journal SET state = 'interrupted' WHERE state = 'intent' AND kind <> ?", (BATCH,))
    rows = tx.execute("SELECT id FROM runs WHERE state IN ('queued', 'running', 'paused') ORDER BY id").fetchall()
    return [row["id"] for row in rows]


def keep_host(tx: Transaction, facts: Mapping[str, Any], usd_per_hour: float | None) -> None:
    """Store a host of a fleet: its facts, and its price in USD per hour, which is None if it is unknown."""
    columns = ("name", "instance_type", "chip", "sdk", "driver")
    values = [*(clean(str(facts[column])) for column in columns), facts["slots"], usd_per_hour, tx.at]
    tx.execute("INSERT OR REPLACE INTO hosts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
