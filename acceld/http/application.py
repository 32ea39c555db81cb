"""Build the application with all routes, for a daemon or for a database that no daemon serves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from aiohttp import web

from acceld.client import API_VERSION
from acceld.http import candidates, events, history, hosts, insights, runs, service
from acceld.http.answers import Handler, errors_as_json
from acceld.http.control import Control, Reading
from acceld.http.keys import CONTROL, HELLO, LOG_FILE, READING, SOCKETS
from acceld.store.reads import records
from acceld.store.schema.migrations import SCHEMA_VERSION

BODY_LIMIT = 8 << 20
VERSION = version("acceld")


def application(
    reading: Reading,
    control: Control | None = None,
    *,
    middlewares: Sequence[Handler] = (),
    log_file: Path | None = None,
) -> web.Application:
    """Return the application that answers from ``reading``. Without ``control`` there is no daemon, and routes that
    would change something answer with an error.
    """
    app = web.Application(client_max_size=BODY_LIMIT, middlewares=[errors_as_json, *middlewares, _touch])  # type: ignore[list-item]  # aiohttp's decorator has no type
    app[READING] = reading
    app[CONTROL] = control
    app[SOCKETS] = set[web.WebSocketResponse]()
    app[LOG_FILE] = log_file

    async def hello() -> dict[str, Any]:
        nobody: dict[str, Any] = {"version": VERSION, "pid": None, "started_at": None, "home": None, "models": []}
        reported = control.hello() if control else nobody
        return reported | {
            "name": "acceld",
            "api": API_VERSION,
            "schema": SCHEMA_VERSION,
            "database": str(reading.path),
            "read_only": control is None,
            "last_seq": await reading.read(records.last_seq),
        }

    app[HELLO] = hello
    app.add_routes(
        [
            web.get("/v1/hello", service.get_hello),
            web.get("/v1/ready", service.get_ready),
            web.get("/v1/status", service.get_status),
            web.get("/v1/queue", service.get_queue),
            web.get("/v1/hosts", hosts.get_hosts),
            web.get("/v1/hosts/{name}/doctor", hosts.get_doctor),
            web.post("/v1/hosts/{name}/{action}", hosts.post_action),
            web.get("/v1/logs", service.get_logs),
            web.post("/v1/stop", service.post_stop),
            web.get("/v1/events", events.get_events),
            web.get("/v1/runs", runs.get_runs),
            web.post("/v1/runs", runs.post_run),
            web.get("/v1/runs/{id}", runs.get_run),
            web.get("/v1/runs/{id}/outcome", runs.get_outcome),
            web.get("/v1/runs/{id}/candidates", runs.get_candidates),
            web.get("/v1/runs/{id}/tree", runs.get_tree),
            web.get("/v1/runs/{id}/plans", runs.get_plans),
            web.get("/v1/runs/{id}/calls", runs.get_calls),
            web.get("/v1/runs/{id}/events", events.get_run_events),
            web.post("/v1/runs/{id}/actions", runs.post_action),
            web.get("/v1/candidates/{id}", candidates.get_candidate),
            web.get("/v1/candidates/{id}/diff", candidates.get_diff),
            web.get("/v1/calls/{id}", candidates.get_call),
            web.get("/v1/evaluations/{id}", candidates.get_evaluation),
            web.post("/v1/evaluations", candidates.post_evaluation),
            web.get("/v1/insights", insights.get_insights),
            web.get("/v1/insights/{id}", insights.get_insight),
            web.patch("/v1/insights/{id}", insights.patch_insight),
            web.delete("/v1/insights/{id}", insights.delete_insight),
            web.get("/v1/costs", history.get_costs),
            web.get("/v1/search", history.get_search),
            web.get("/v1/history", history.get_history),
            web.get("/v1/history/{name}", history.get_saved),
            web.get("/v1/tables", history.get_tables),
            web.post("/v1/query", history.post_query),
        ]
    )
    app.on_shutdown.append(_close_sockets)
    return app


@web.middleware
async def _touch(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the daemon of each request, so that the daemon does not count as idle. Requests for its identity and its
    status are left out.
    """
    control = request.app[CONTROL]
    if control is not None and request.path not in ("/v1/hello", "/v1/status"):
        control.touched()
    return await handler(request)


async def _close_sockets(app: web.Application) -> None:
    """Tell every client with a websocket that the daemon stops."""
    sockets = app[SOCKETS]
    closing = [stream.close(code=1001, message=b"the daemon stops") for stream in tuple(sockets)]
    async with asyncio.timeout(2):
        await asyncio.gather(*closing, return_exceptions=True)
