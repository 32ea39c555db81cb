"""Answer the routes about runs."""

from __future__ import annotations

import os
import sqlite3

from aiohttp import web

from acceld.errors import UsageError
from acceld.http.answers import answer, body, integer, number, page
from acceld.http.control import Control, Json
from acceld.http.keys import CONTROL, READING
from acceld.http.service import control_of
from acceld.model import STOPPED, UNDER_WAY, shown_state
from acceld.private_files import user_name
from acceld.search.outcome import outcome
from acceld.store.reads import listing, records
from acceld.store.rows import dump


async def get_runs(request: web.Request) -> web.Response:
    """Return a page of runs."""
    asked = request.query
    limit, offset = page(request, 100), integer(request, "offset", 0)
    control = request.app[CONTROL]
    live = control is not None

    def look(connection: sqlite3.Connection) -> dict[str, object]:
        found = listing.run_rows(
            connection,
            workload=asked.get("workload", ""),
            chip=asked.get("chip", ""),
            state=stored_states(asked.get("state", ""), live),
            name=asked.get("name", ""),
            sort=asked.get("sort", "id"),
            limit=limit,
            offset=offset,
        )
        found = [shown(row, control) for row in found]
        return {"runs": found, "total": connection.execute("SELECT count(*) FROM runs").fetchone()[0]}

    if asked.get("sort", "id") not in listing.SORTS:
        raise UsageError(
            f"sort={asked['sort']!r} is not a column to sort by", hint=f"one of {', '.join(listing.SORTS)}"
        )
    return answer(await request.app[READING].read(look))


async def post_run(request: web.Request) -> web.Response:
    """Start a run, and return its row."""
    run = await control_of(request).submit(await body(request))
    return answer(await request.app[READING].read(listing.run_row, run), 201)


async def get_run(request: web.Request) -> web.Response:
    """Return one run, with what people have asked of it."""
    return answer(await _shown_run(request, number(request)))


async def _shown_run(request: web.Request, run: int) -> Json:
    """Return a run's row with the state that people see, and with what they have asked of the run.

    The row is read last: a run that was cancelled and ends meanwhile is cancelled in the row, and never shown as running.
    """
    control = request.app[CONTROL]
    steered = control.steering(run) if control else {}
    row = await request.app[READING].read(listing.run_row, run)
    return _with_state(row, control is not None, steered) | {"steering": steered}


def shown(row: Json, control: Control | None) -> Json:
    """Return a run's row with the state that people see.

    A run may be stored as active although no daemon serves it. ``control`` says whether a daemon does.
    """
    return _with_state(row, control is not None, control.steering(row["id"]) if control else {})


def _with_state(row: Json, live: bool, steered: Json) -> Json:
    return {**row, "state": shown_state(row["state"], live, bool(steered.get("cancelling")))}


def stored_states(asked: str, live: bool) -> str:
    """Return the stored states that a row shown in one of the states ``asked`` may have. Commas separate states.

    Rows in the returned states may be shown in another state too: :func:`~acceld.model.shown_state` decides for each
    row.
    """
    if live or not asked:
        return asked
    words = set(asked.split(",")) - set(UNDER_WAY)
    if STOPPED in words:
        words = words - {STOPPED} | set(UNDER_WAY)
    return ",".join(sorted(words)) or "none"


async def get_outcome(request: web.Request) -> web.Response:
    """Return a run's figures as ``optimize --json`` prints them."""
    run, live = number(request), request.app[CONTROL] is not None

    def look(connection: sqlite3.Connection) -> dict[str, object]:
        record = records.load_run(connection, run)
        candidates = records.load_candidates(connection, run, details=True)
        plans = {plan.id: plan for plan in records.load_plans(connection, run)}
        found = outcome(record, candidates, plans, records.load_refusals(connection, run)).to_json()
        return {**found, "state": shown_state(found["state"], live)}

    return answer(await request.app[READING].read(look))


async def get_candidates(request: web.Request) -> web.Response:
    """Return a page of a run's candidates."""
    run, after, limit = number(request), integer(request, "after", 0), page(request)
    status, iteration = request.query.get("status", ""), integer(request, "iteration", -1)

    def look(connection: sqlite3.Connection) -> str:
        found = listing.candidate_rows(connection, run, after=after, limit=limit, status=status, iteration=iteration)
        total = connection.execute("SELECT count(*) FROM candidates WHERE run = ?", (run,)).fetchone()[0]
        return dump({"candidates": found, "total": total})

    return web.Response(text=await request.app[READING].read(look), content_type="application/json")


async def get_tree(request: web.Request) -> web.Response:
    """Return every candidate of a run as a short node of the run's tree."""
    run = number(request)
    text = await request.app[READING].read(lambda connection: dump(listing.tree(connection, run)))
    return web.Response(text=text, content_type="application/json")


async def get_plans(request: web.Request) -> web.Response:
    """Return a page of a run's plans."""
    found = await request.app[READING].read(
        listing.plan_rows, number(request), after=integer(request, "after", 0), limit=page(request)
    )
    return answer({"plans": found})


async def get_calls(request: web.Request) -> web.Response:
    """Return a page of a run's model calls."""
    found = await request.app[READING].read(
        listing.call_rows, run=number(request), after=integer(request, "after", 0), limit=page(request)
    )
    return answer({"calls": found})


async def post_action(request: web.Request) -> web.Response:
    """Apply an action to a run, and return a message about it and the run."""
    run, asked = number(request), await body(request)
    action = asked.pop("action", None)
    if not isinstance(action, str):
        raise UsageError("an action needs a name", hint='Such as {"action": "pause"}.')
    by = str(asked.pop("by", "") or user_name(os.geteuid()))
    result = await control_of(request).act(run, action, asked, by)
    return answer({"action": action, "result": result, "run": await _shown_run(request, run)})
