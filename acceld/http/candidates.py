"""Answer the routes about candidates, evaluations and model calls."""

from __future__ import annotations

import asyncio
import difflib
import sqlite3
from collections.abc import Coroutine
from typing import Any

from aiohttp import web

from acceld.errors import AcceldError, UsageError
from acceld.http.answers import answer, body, number
from acceld.http.control import Control
from acceld.http.keys import READING
from acceld.http.service import control_of
from acceld.model import Gate
from acceld.store.errors import unknown
from acceld.store.reads import listing
from acceld.store.rows import dump, the_row
from acceld.targets import DEVICE_OF

LOOK_S = 0.25
"""Seconds between checks that the client of a compilation still waits."""
ITEMS_AT_ONCE = 64
"""Limit on evaluations of one request that run or wait in the queue."""


async def get_candidate(request: web.Request) -> web.Response:
    """Return one candidate with all its fields."""
    return answer(await request.app[READING].read(listing.candidate_row, number(request)))


async def get_diff(request: web.Request) -> web.Response:
    """Return the difference between a candidate's text and that of its parent, the baseline, the best, or another
    candidate.
    """
    candidate, against = number(request), request.query.get("against", "parent")
    return answer(await request.app[READING].read(diff, candidate, against))


def diff(connection: sqlite3.Connection, candidate: int, against: str) -> dict[str, object]:
    """Return the unified diff from ``against`` (parent, baseline, best or an id) to ``candidate``, with both ids.

    Raise NotFoundError for an unknown candidate, UsageError for another word in ``against``.
    """
    row = the_row(
        connection,
        "candidate",
        candidate,
        "SELECT c.parent, r.baseline, r.best FROM candidates c JOIN runs r ON r.id = c.run WHERE c.id = ?",
    )
    digits = against.lstrip("c")
    if against in ("parent", "baseline", "best"):
        other = row[against]
    elif digits.isascii() and digits.isdigit():
        other = int(digits)
    else:
        raise UsageError(
            f"against={against!r} is not a candidate", hint="one of parent, baseline, best, or a candidate's id"
        )
    chosen = connection.execute("SELECT candidate, text FROM kernels WHERE candidate IN (?, ?)", (candidate, other))
    texts: dict[int, str] = dict(chosen.fetchall())
    if other is not None and other not in texts:
        raise unknown("candidate", other)
    old = texts[other] if other is not None else ""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        texts[candidate].splitlines(keepends=True),
        f"c{other}" if other is not None else "nothing",
        f"c{candidate}",
    )
    return {"candidate": candidate, "against": other, "diff": "".join(lines)}


async def get_call(request: web.Request) -> web.Response:
    """Return one model call with its prompt and raw answer."""
    return answer(await request.app[READING].read(listing.call_row, number(request)))


async def get_evaluation(request: web.Request) -> web.Response:
    """Return one stored evaluation."""
    return answer(await request.app[READING].read(listing.evaluation_row, number(request)))


async def post_evaluation(request: web.Request) -> web.StreamResponse:
    """Evaluate one kernel now, and return the evaluation.

    For ``{"items": [...]}``, evaluate every item, and return one line of JSON for each, in the order of the items.
    """
    control, asked = control_of(request), await body(request)
    if "items" not in asked:
        device = DEVICE_OF.get(str(asked.get("backend")))
        if asked.get("gate") == Gate.TIMING and device is not None and device.cancellable_timing:
            return answer(await _while_awaited(request, control.evaluate(asked)))
        return answer(await control.evaluate(asked))
    items = asked["items"]
    if set(asked) != {"items"} or not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise UsageError(
            "the body must have one key, items, with a list of evaluations",
            hint='such as {"items": [{"workload": "softmax"}]}',
        )
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    async with asyncio.TaskGroup() as tasks:
        places = asyncio.Semaphore(ITEMS_AT_ONCE)
        running = [
            tasks.create_task(_evaluated({"id": number} | one, control, places)) for number, one in enumerate(items)
        ]
        for task in running:
            await response.write(dump(await task).encode() + b"\n")
    await response.write_eof()
    return response


async def _while_awaited(request: web.Request, work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Return the result of ``work``. The work is cancelled when the client disconnects, as ``acceld watch`` does when a
    file is saved again.
    """
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
            if request.transport is None or request.transport.is_closing():
                task.cancel()
    finally:
        task.cancel()
    return await task


async def _evaluated(asked: dict[str, Any], control: Control, places: asyncio.Semaphore) -> dict[str, Any]:
    """Return the evaluation of one of many kernels. If the kernel can not be evaluated, return the error instead, so
    that the other kernels are still evaluated.
    """
    async with places:
        try:
            return await control.evaluate(asked)
        except AcceldError as error:
            return {"id": asked["id"], "error": {"message": error.message, "hint": error.hint}}
