"""Write model calls: the request before it is sent, and the outcome before the answer is used."""

from __future__ import annotations

import sqlite3

from acceld.errors import StoreError
from acceld.events import LlmCallFinished, LlmCallStarted
from acceld.model_calls import CallIntent, CallOutcome, OpenBatch, Usage
from acceld.store.changes import rollups
from acceld.store.changes.tree import finite, keep_text
from acceld.store.rows import clean, columns, dump, load
from acceld.store.writer import Transaction

BATCH = "llm_batch"
"""Kind of the journal entry of a batch. The states of an entry are ``intent``, ``sent`` (with the provider's
id) and ``done``.
"""

TOKENS = ("input_tokens", "cached_tokens", "cache_written_tokens", "output_tokens", "reasoning_tokens")
"""Columns of ``llm_calls`` that count tokens. Fields of :class:`Usage` have the same names."""


_USUAL_COST = (
    "SELECT avg(cost_usd) AS usd FROM (SELECT cost_usd FROM llm_calls WHERE model = ? AND role = ? "
    "AND outcome = 'answered' AND cost_usd IS NOT NULL ORDER BY id DESC LIMIT 32)"
)
"""SQL: the mean cost in USD of the newest 32 answers of a model in a role."""


def begin_call(tx: Transaction, call: CallIntent) -> int:
    """Store a request that is about to be sent, and return the id of its row.

    If an identical request has no outcome yet, for example because it waits in a batch, return the id of that
    request.
    """
    open_row = tx.one("SELECT id FROM llm_calls WHERE key = ? AND outcome IS NULL", (call.key,))
    if open_row is not None:
        return int(open_row["id"])
    number = tx.insert(
        "llm_calls",
        columns(call, "key role provider model prompt_sha256 reserved_usd expected_usd")
        | {
            "run": call.number("run"),
            "iteration": call.number("iteration") or 0,
            "parent": call.number("parent"),
            "plan": call.number("plan"),
            "attempt": call.number("attempt"),
            "system_sha256": keep_text(tx, call.system),
            "user_sha256": keep_text(tx, call.user),
            "parameters": dump({"max_output_tokens": call.max_output_tokens, "tags": dict(call.tags)}),
            "started_at": tx.at,
        },
    )
    tx.event(LlmCallStarted(call=number, role=call.role, model=call.model), call.number("run"))
    return number


def call_sent(tx: Transaction, number: int) -> None:
    """Record that the first request of a call is about to be sent, after which the provider may bill the call."""
    tx.update("llm_calls", number, sent_at=tx.at)


def end_call(tx: Transaction, number: int, result: CallOutcome) -> None:
    """Store the outcome of a call. Raise StoreError if there is no such call or if it has an outcome already."""
    row = tx.one("SELECT outcome FROM llm_calls WHERE id = ?", (number,))
    if row is None or row["outcome"] is not None:
        what = "has already ended, and can not be completed twice" if row is not None else "does not exist"
        raise StoreError(f"call {number} {what}", hint="acceld doctor database examines the history")
    tx.update(
        "llm_calls",
        number,
        **columns(result, "outcome error reasoning answered_by request_id finish_reason price"),
        **columns(result, "retries first_token_s latency_s"),
        ended_at=tx.at,
        answer=clean(result.text),
        cost_usd=finite(result.cost_usd),
        uncertain_usd=finite(result.uncertain_usd) or 0.0,
        estimated=result.usage.estimated,
        **columns(result.usage, " ".join(TOKENS)),
    )
    ended = tx.one("SELECT * FROM llm_calls WHERE id = ?", (number,))
    assert ended is not None, "it was updated a moment ago"
    rollups.call_ended(tx, ended)
    tx.event(
        LlmCallFinished(
            call=number,
            role=ended["role"],
            model=ended["model"],
            outcome=result.outcome,
            input_tokens=ended["input_tokens"],
            cached_tokens=ended["cached_tokens"],
            output_tokens=ended["output_tokens"],
            cost_usd=ended["cost_usd"],
            latency_s=result.latency_s,
        ),
        ended["run"],
    )


def begin_batch(tx: Transaction, model: str, batch: OpenBatch) -> None:
    """Store a batch of calls before it is sent."""
    data = {"model": model, "keys": list(batch.keys), "began_at": batch.began_at}
    values = {"kind": BATCH, "key": batch.token, "state": "intent", "data": dump(data), "created_at": tx.at}
    tx.insert("journal", values)


def batch_sent(tx: Transaction, token: str, batch: str) -> None:
    """Record that the batch was sent; ``batch`` is the provider's id."""
    result = dump({"batch": batch})
    tx.execute("UPDATE journal SET state = 'sent', result = ? WHERE kind = ? AND key = ?", (result, BATCH, token))


def batch_collected(tx: Transaction, token: str) -> None:
    """Record that no answer of the batch is missing: all calls have outcomes, or the batch never reached the
    provider.
    """
    tx.execute("UPDATE journal SET state = 'done', ended_at = ? WHERE kind = ? AND key = ?", (tx.at, BATCH, token))


def open_batches(connection: sqlite3.Connection, model: str | None = None) -> list[OpenBatch]:
    """Return the batches whose answers are not all collected, oldest first. ``model=None`` means the batches of
    all models.
    """
    found = connection.execute(
        "SELECT * FROM journal WHERE kind = ? AND state <> 'done' AND (? IS NULL OR json_extract(data, '$.model') = ?) "
        "ORDER BY id",
        (BATCH, model, model),
    ).fetchall()
    return [
        OpenBatch(
            row["key"],
            tuple(load(row["data"])["keys"]),
            load(row["data"])["began_at"],
            load(row["result"])["batch"] if row["result"] else "",
        )
        for row in found
    ]


def spent_by_role(connection: sqlite3.Connection, run: int) -> dict[str, float]:
    """Return an upper limit for the cost of a run's ended calls, in USD by role.

    The limit is the sum of certain and uncertain costs.
    """
    rows = connection.execute(
        "SELECT role, sum(cost_usd + uncertain_usd) AS usd FROM llm_calls WHERE run = ? GROUP BY role", (run,)
    )
    return {row["role"]: row["usd"] or 0.0 for row in rows}


def interrupt_call(tx: Transaction, number: int, reason: str) -> None:
    """End a call for which no caller waits any more.

    A call that was never sent costs nothing. Any other call is given the mean cost of the newest answers of the same
    model in the same role. Without such answers, its cost is the cost that was expected when the call was made. The
    cost is at most the amount that was reserved for the call, and the difference to that amount is stored as uncertain.
    If nothing was reserved, because the price is unknown, the cost stays unknown.
    """
    row = tx.one("SELECT role, model, reserved_usd, expected_usd, sent_at FROM llm_calls WHERE id = ?", (number,))
    assert row is not None, "only rows of the table are interrupted"
    if row["sent_at"] is None:
        end_call(tx, number, CallOutcome("interrupted", Usage(estimated=True), 0.0, error=reason))
        return
    reserved_usd = row["reserved_usd"]
    usual = tx.one(_USUAL_COST, (row["model"], row["role"]))
    known = (usual["usd"] if usual else None, row["expected_usd"], reserved_usd)
    cost_usd, uncertain_usd = None, 0.0
    if reserved_usd is not None:
        cost_usd = min(reserved_usd, next(usd for usd in known if usd is not None))
        uncertain_usd = reserved_usd - cost_usd
    result = CallOutcome("interrupted", Usage(estimated=True), cost_usd, uncertain_usd=uncertain_usd, error=reason)
    end_call(tx, number, result)
