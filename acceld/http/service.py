"""Answer the routes about the daemon itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from acceld.errors import DaemonError, UsageError
from acceld.http.answers import ConflictError, answer, body, integer, page, refusal
from acceld.http.control import Control
from acceld.http.keys import CONTROL, HELLO, LOG_FILE, READING
from acceld.store.reads import listing

LEVELS = ("debug", "info", "warning", "error")


def control_of(request: web.Request) -> Control:
    """Return the daemon behind a request. Raise ConflictError on the read-only history server, which has no daemon."""
    control = request.app[CONTROL]
    if control is None:
        raise ConflictError("no daemon runs: the history is read-only", hint="start one with: acceld start")
    return control


async def get_hello(request: web.Request) -> web.Response:
    """Return the daemon's identity and version."""
    return answer(await request.app[HELLO]())


async def get_status(request: web.Request) -> web.Response:
    """Return what the daemon does now; without a daemon, the number of runs in each state."""
    control = request.app[CONTROL]
    if control is not None:
        return answer(await control.status())
    counts = await request.app[READING].read(listing.counts)
    return answer({"state": "not running", "runs": counts, "active": [], "clients": 0, "queue": {}, "cost_usd": None})


async def get_ready(request: web.Request) -> web.Response:
    """Return status 200 if the daemon takes runs, else an error with status 503 and the reasons."""
    reasons = control_of(request).hindrances()
    return (
        refusal(DaemonError(f"not ready: {'; '.join(reasons)}", hint="acceld doctor examines each reason"), 503)
        if reasons
        else answer({"ready": True})
    )


async def get_queue(request: web.Request) -> web.Response:
    """Return the running and the waiting evaluations, the model calls under way, and the devices."""
    control = request.app[CONTROL]
    if control is not None:
        return answer(await control.queue())
    return answer({"queue": {}, "running": [], "waiting": [], "calls": [], "devices": []})


async def post_stop(request: web.Request) -> web.Response:
    """Begin an orderly stop of the daemon."""
    grace = (await body(request)).get("grace_s")
    if grace is not None and not (isinstance(grace, int | float) and grace >= 0):
        raise UsageError(f"grace_s={grace!r} is not a number of seconds", hint="such as 30; 0 stops at once")
    control_of(request).stop(grace)
    return answer({"state": "stopping"}, 202)


async def get_logs(request: web.Request) -> web.Response:
    """Return lines of the daemon's log after a byte position; without ``after``, the newest lines."""
    place = request.app[LOG_FILE]
    level = request.query.get("level", "debug")
    if level not in LEVELS:
        raise UsageError(f"level={level!r} is not a level", hint=f"one of {', '.join(LEVELS)}")
    if place is None:
        return answer({"lines": [], "next": 0})
    after = integer(request, "after", -1) if "after" in request.query else -1
    lines, following = await asyncio.to_thread(log_lines, place, after, page(request, 200), level)
    return answer({"lines": lines, "next": following})


def log_lines(place: Path, after: int, limit: int, level: str = "debug") -> tuple[list[dict[str, Any]], int]:
    """Return lines of the daemon's log, parsed, and the byte position behind them.

    Lines below the ``level`` are left out. Reading begins at the byte position ``after``; -1 stands for the newest
    ``limit`` lines. If the position is beyond the end, the log was rotated, and reading begins at the start.
    """
    least = LEVELS.index(level)
    found: list[dict[str, Any]] = []
    try:
        stream = place.open("rb")
    except FileNotFoundError:
        return [], 0
    with stream:
        end = stream.seek(0, 2)
        start = max(0, end - limit * 1000) if after < 0 else (after if after <= end else 0)
        stream.seek(start)
        if after < 0 and start:
            stream.readline()
        while after < 0 or len(found) < limit:
            raw = stream.readline()
            if not raw.endswith(b"\n"):
                break
            start = stream.tell()
            try:
                line = json.loads(raw)
            except ValueError:
                line = {"at": None, "level": "info", "logger": "", "text": raw.decode("utf-8", "replace").rstrip()}
            if line.get("level") not in LEVELS or LEVELS.index(line["level"]) >= least:
                found.append(line)
    return (found[-limit:] if after < 0 else found), start
