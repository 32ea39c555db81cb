"""The database as the rest of acceld sees it: typed changes through one writer, typed reads, events.

Open it with ``store = await asyncio.to_thread(Store.open, path)`` and end with ``await store.close()``. A change
returns after its commit; the events it wrote are then on their way to subscribers. Changes (all coroutines)::

    create_run(spec) -> Run                     set_run_state(run, state, message="")
    start_iteration(run, iteration, beam)       select_beam(run, iteration, beam, best)
    set_best(run, candidate)                    register_workload(name, definition)
    write_plan(plan) -> Plan                    write_attempt(attempt) -> Attempt
    write_candidate(candidate) -> Candidate     mark_started(candidate, device)
    write_evaluation(candidate, evaluation, *, workload, backend, chip, key) -> Candidate
    write_insight(insight) -> Insight           change_insight(insight, what, **values)
    credit_plan(plan, won, speedup)
    begin_call(NewCall) -> int                  end_call(call, CallResult)
    steer(run, action, arguments, by) -> int    steered(steering, result)
    notice(run, level, text, hint="") -> int    record(kind, run, data) -> int
    intend(kind, key, run, data) -> (entry, result | None)     done(entry, result)
    add_note(subject, text, by) -> int          recover(reason) -> list[int]

Everything that a search writes may be written twice: the second time changes nothing and returns the first row's id.

Reads (coroutines, on reader threads): ``run``, ``runs``, ``candidate``, ``candidates``, ``plans``, ``insights``,
``events``, ``find_evaluation``, ``stored_answer``, ``pending_steering``, ``resume_state``, ``spent_usd``; and
``read(function, *arguments)`` for any function of :mod:`store.queries`, :mod:`store.listing` or :mod:`store.history`,
which is given a read-only connection. ``subscribe(after_seq)`` yields events: the backlog, then live, without a gap.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from acceld.events import Event, EventKind
from acceld.model import Attempt, Candidate, Evaluation, Insight, Plan, Run, RunSpec, RunState
from acceld.store import calls, insights, queries, runs, tree
from acceld.store.calls import CallResult, NewCall
from acceld.store.connection import WriterLock, connect_writer, refuse_damaged, refuse_emptied
from acceld.store.hub import Hub
from acceld.store.migrations import migrate
from acceld.store.queries import ResumeState
from acceld.store.reader import Readers
from acceld.store.rows import load
from acceld.store.writer import Transaction, Writer

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Steering:
    """What a person asked of a run and the daemon has not yet done."""

    id: int
    run: int
    action: str
    arguments: Mapping[str, Any]
    by: str


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A model's answer that has been paid for."""

    call: int
    answer: str
    reasoning: str
    answered_by: str
    request_id: str
    finish_reason: str
    tokens: Mapping[str, int]
    latency_s: float


class Store:
    """One open database."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: WriterLock, writer_options: Any) -> None:
        self.path = path
        self.migrated_from: Path | None = None
        """The copy made before the file was brought to a newer schema, if that was needed."""
        self._connection = connection
        self._lock = lock
        self._readers = Readers(path)
        self.hub = Hub(self._events_after, queries.last_seq(connection))
        self.writer = Writer(path, connection, self.hub.publish, **writer_options)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        reserve_bytes: int = 0,
        redact: Callable[[str], str] | None = None,
    ) -> Store:
        """Open (or make) the database and bring it to this acceld's schema. Blocks; call it off the event loop.

        ``reserve_bytes`` of disk are kept beside it, to be given up when the disk is full. ``redact`` is applied to
        every text that is written. StoreError where it can not be opened, is newer, or is written by another process.
        """
        path = Path(path).absolute()
        refuse_emptied(path)
        lock = WriterLock(path)
        try:
            refuse_damaged(path)
            connection = connect_writer(path)
            try:
                copy = migrate(connection, path)
                reserve = path.with_name(path.name + ".reserve") if reserve_bytes else None
                store = cls(
                    path, connection, lock, {"reserve": reserve, "reserve_bytes": reserve_bytes, "redact": redact}
                )
            except BaseException:
                connection.close()
                raise
        except BaseException:
            lock.release()
            raise
        store.migrated_from = copy
        return store

    async def close(self) -> None:
        """Commit what waits, end subscriptions, close."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """As :meth:`close`, blocking, for use without an event loop."""
        self.writer.close()
        self.hub.close()
        self._readers.close()
        self._connection.close()
        self._lock.release()

    async def change(self, function: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function(transaction, ...)`` as one transaction; its result, after the commit."""
        result: T = await self.writer.submit(lambda tx: function(tx, *args, **kwargs))
        return result

    async def read(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``function(connection, ...)`` on a reader thread with a read-only connection."""
        return await self._readers.read(function, *args, **kwargs)

    async def _events_after(self, after: int, limit: int) -> list[Event]:
        return await self.read(queries.load_events, after, None, limit)

    def pages(self, after_seq: int) -> AsyncIterator[list[Event]]:
        """As :meth:`subscribe`, those that are there at once together."""
        return self.hub.pages(after_seq)

    async def subscribe(self, after_seq: int) -> AsyncIterator[Event]:
        """Every event after ``after_seq``, in order and without a gap: those that exist, then each new one."""
        async for page in self.hub.pages(after_seq):
            for event in page:
                yield event

    # Changes

    async def create_run(self, spec: RunSpec) -> Run:
        """A run that waits for its turn."""
        return await self.change(runs.create_run, spec)

    async def register_workload(self, name: str, definition: Mapping[str, Any]) -> None:
        """Keep what is known of a workload (JSON-able), for the views named as in other tools."""
        await self.change(runs.register_workload, name, definition)

    async def set_run_state(self, run: int, state: RunState, message: str = "") -> None:
        """Where a run stands now."""
        await self.change(runs.set_run_state, run, state, message)

    async def start_iteration(self, run: int, iteration: int, beam: Sequence[int]) -> None:
        """An iteration begins with these parents."""
        await self.change(runs.start_iteration, run, iteration, beam)

    async def select_beam(self, run: int, iteration: int, beam: Sequence[int], best: int) -> None:
        """An iteration ends with these candidates."""
        await self.change(runs.select_beam, run, iteration, beam, best)

    async def set_best(self, run: int, candidate: int) -> None:
        """A run has a new best candidate."""
        await self.change(runs.set_best, run, candidate)

    async def write_plan(self, plan: Plan) -> Plan:
        """The plan with its id."""
        return await self.change(tree.write_plan, plan)

    async def write_attempt(self, attempt: Attempt) -> Attempt:
        """The attempt with its id."""
        return await self.change(tree.write_attempt, attempt)

    async def write_candidate(self, candidate: Candidate) -> Candidate:
        """The candidate with its id, waiting to be judged."""
        return await self.change(tree.write_candidate, candidate)

    async def mark_started(self, candidate: int, device: str) -> None:
        """A candidate is being judged on ``device``."""
        await self.change(tree.mark_started, candidate, device)

    async def write_evaluation(
        self, candidate: Candidate, evaluation: Evaluation, *, workload: str, backend: str, chip: str, key: str
    ) -> Candidate:
        """The candidate with this as its evaluation; ``key`` says what makes two evaluations the same work."""
        return await self.change(tree.write_evaluation, candidate, evaluation, workload, backend, chip, key)

    async def keep_evaluation(self, evaluation: Evaluation, *, workload: str, backend: str, chip: str, key: str) -> int:
        """Store an evaluation that belongs to no candidate, such as one a person asked for; its id."""
        return await self.change(tree.keep_evaluation, evaluation, workload, backend, chip, key)

    async def write_insight(self, insight: Insight) -> Insight:
        """The insight with its id."""
        return await self.change(insights.write_insight, insight)

    async def change_insight(self, insight: int, what: str, **values: Any) -> None:
        """Pin, mute, withdraw, edit or delete an insight (``store.insights.CHANGES``)."""
        await self.change(insights.change_insight, insight, what, values)

    async def credit_plan(self, plan: int, won: bool, speedup: float | None) -> None:
        """Book a plan's outcome on the insights it was shown, once."""
        await self.change(insights.credit_plan, plan, won, speedup)

    async def begin_call(self, call: NewCall) -> int:
        """Write down a model call that is about to be made; its id."""
        return await self.change(calls.begin_call, call)

    async def end_call(self, call: int, result: CallResult) -> None:
        """Write down what became of a model call."""
        await self.change(calls.end_call, call, result)

    async def steer(self, run: int, action: str, arguments: Mapping[str, Any], by: str) -> int:
        """Record what a person asks of a run; its id."""
        return await self.change(runs.steer, run, action, arguments, by)

    async def steered(self, steering: int, result: str) -> None:
        """A person's wish has been carried out or refused."""
        await self.change(runs.steered, steering, result)

    async def notice(self, run: int | None, level: str, text: str, hint: str = "") -> int:
        """Tell a person something (``info``, ``warning``, ``error``); the event's number."""
        return await self.change(runs.notice, run, level, text, hint)

    async def record(self, kind: EventKind, run: int | None, data: Mapping[str, Any]) -> int:
        """An event that has no other row; its number."""
        return await self.change(runs.record, kind, run, data)

    async def intend(self, kind: str, key: str, run: int | None, data: Mapping[str, Any]) -> tuple[int, Any]:
        """Write a side effect down before it is made: its id, and the result where it has already been done."""
        return await self.change(runs.intend, kind, key, run, data)

    async def done(self, entry: int, result: Any) -> None:
        """A side effect has been made."""
        await self.change(runs.done, entry, result)

    async def add_note(self, subject: str, text: str, by: str) -> int:
        """A person's note on ``r12``, ``c345`` or ``i38``."""
        return await self.change(runs.add_note, subject, text, by)

    async def recover(self, reason: str) -> list[int]:
        """After a stop without goodbye: mark what was under way; the runs to go on with."""
        return await self.change(runs.recover, reason)

    # Reads

    async def run(self, run: int) -> Run:
        """One run. StoreError where there is none."""
        return await self.read(queries.load_run, run)

    async def runs(self, states: Sequence[RunState] = (), workload: str | None = None, limit: int = 100) -> list[Run]:
        """Runs, newest first."""
        return await self.read(queries.load_runs, states, workload, limit)

    async def candidate(self, candidate: int) -> Candidate:
        """One candidate with its evaluation. StoreError where there is none."""
        return await self.read(queries.load_candidate, candidate)

    async def candidates(self, run: int, iteration: int | None = None, details: bool = False) -> list[Candidate]:
        """A run's candidates, the baseline first; with ``details`` their profiles are whole."""
        return await self.read(queries.load_candidates, run, iteration, details)

    async def plans(self, run: int, iteration: int | None = None) -> list[Plan]:
        """A run's plans in order."""
        return await self.read(queries.load_plans, run, iteration)

    async def insights(
        self,
        *,
        run: int | None = None,
        chip: str | None = None,
        api: str | None = None,
        matching: str = "",
        withdrawn: bool = False,
        limit: int = 1000,
    ) -> list[Insight]:
        """Insights, newest first."""
        return await self.read(
            queries.load_insights, run=run, chip=chip, api=api, matching=matching, withdrawn=withdrawn, limit=limit
        )

    async def events(self, after: int = 0, run: int | None = None, limit: int = 500) -> list[Event]:
        """Events after number ``after``."""
        return await self.read(queries.load_events, after, run, limit)

    async def find_evaluation(self, key: str) -> Evaluation | None:
        """The newest verdict on the same work."""
        return await self.read(queries.find_evaluation, key)

    async def resume_state(self, run: int) -> ResumeState:
        """Where a run was cut off."""
        return await self.read(queries.resume_state, run)

    async def pending_steering(self, run: int | None = None) -> list[Steering]:
        """What people asked for and is not done, oldest first."""
        return await self.read(_pending_steering, run)

    async def past_steering(self, run: int) -> list[Steering]:
        """What people asked of a run and was done, oldest first."""
        return await self.read(_past_steering, run)

    async def stored_answer(self, key: str) -> StoredAnswer | None:
        """The answer to the same question, where one was paid for."""
        return await self.read(_stored_answer, key)

    async def spent_usd(self, run: int | None = None, since: float = 0.0, *, settled: bool = False) -> float:
        """What calls cost so far: a run's, or all since a time (epoch seconds).

        What is reserved for calls under way counts, unless only ``settled`` ones are asked for.
        """
        return await self.read(_spent_usd, run, since, settled)


def _past_steering(connection: sqlite3.Connection, run: int) -> list[Steering]:
    found = connection.execute(
        "SELECT * FROM steering WHERE applied_at IS NOT NULL AND result NOT LIKE 'refused%' AND run = ? ORDER BY id",
        (run,),
    )
    return [Steering(row["id"], row["run"], row["action"], load(row["arguments"]), row["by"]) for row in found]


def _pending_steering(connection: sqlite3.Connection, run: int | None) -> list[Steering]:
    found = connection.execute(
        "SELECT * FROM steering WHERE applied_at IS NULL AND (? IS NULL OR run = ?) ORDER BY id", (run, run)
    )
    return [Steering(row["id"], row["run"], row["action"], load(row["arguments"]), row["by"]) for row in found]


_TOKENS = ("input_tokens", "cached_tokens", "cache_written_tokens", "output_tokens", "reasoning_tokens")


def _stored_answer(connection: sqlite3.Connection, key: str) -> StoredAnswer | None:
    row = connection.execute(
        "SELECT * FROM llm_calls WHERE key = ? AND outcome = 'answered' ORDER BY id DESC LIMIT 1", (key,)
    ).fetchone()
    if row is None:
        return None
    return StoredAnswer(
        call=row["id"],
        answer=row["answer"],
        reasoning=row["reasoning"],
        answered_by=row["answered_by"],
        request_id=row["request_id"],
        finish_reason=row["finish_reason"],
        tokens={name: row[name] or 0 for name in _TOKENS},
        latency_s=row["latency_s"] or 0.0,
    )


def _spent_usd(connection: sqlite3.Connection, run: int | None, since: float, settled: bool) -> float:
    row = connection.execute(
        "SELECT sum(ifnull(cost_usd, CASE WHEN outcome IS NULL AND NOT ? THEN reserved_usd END)) FROM llm_calls "
        "WHERE started_at >= ? AND (? IS NULL OR run = ?)",
        (settled, since, run, run),
    ).fetchone()
    return row[0] or 0.0
