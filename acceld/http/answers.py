"""Write answers and errors as JSON, and read requests within limits."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from acceld.errors import AcceldError, DeadlineError, StoreError, UsageError
from acceld.store.errors import NotFoundError
from acceld.store.rows import dump

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PAGE_LIMIT = 5000


class ConflictError(AcceldError):
    """The request is valid, but can not be done in the present state of the run or the daemon."""


class NotJsonError(UsageError):
    """The body of a request is not a JSON object, or is nested too deeply."""


def answer(value: Any, status: int = 200) -> web.Response:
    """Return a JSON response. NaN and infinite figures become null."""
    return web.Response(text=dump(value), status=status, content_type="application/json")


def refusal(error: AcceldError, status: int, kind: str = "") -> web.Response:
    """Return an error as a JSON response. ``kind`` is the name of the error's class for clients; with "" it is the
    error's class, or the nearest base class that clients know.
    """
    reported = {
        "kind": kind or _public_kind(error),
        "message": error.message,
        "hint": error.hint,
        "exit_code": error.exit_code,
    }
    return answer({"error": reported}, status)


def _public_kind(error: AcceldError) -> str:
    """Return the name of the error's class, or of the nearest base class that clients know."""
    for kind in type(error).__mro__:
        if kind.__module__ == "acceld.errors":
            return kind.__name__
    return "AcceldError"


def status_of(error: AcceldError) -> int:
    """Return the HTTP status for an error."""
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, ConflictError):
        return 409
    if isinstance(error, NotJsonError):
        return 400
    if isinstance(error, UsageError):
        return 422
    if isinstance(error, DeadlineError):
        return 408
    return 500 if isinstance(error, StoreError) else 422


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every failure of a route as JSON. A defect of the daemon is logged, and the server goes on."""
    try:
        return await handler(request)
    except AcceldError as error:
        return refusal(error, status_of(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        hints = {404: "docs/protocol.md lists the routes.", 405: "docs/protocol.md lists the methods of each route."}
        reported = AcceldError(f"{request.method} {request.path}: {error.reason}", hint=hints.get(error.status, ""))
        return refusal(reported, error.status, "UsageError")
    except (asyncio.CancelledError, ConnectionError):
        raise
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            return refusal(DeadlineError("reading the history took too long", hint="ask for less: limit=..."), 408)
        log.exception("%s %s", request.method, request.path)
        return refusal(
            StoreError(f"the history can not be read now: {error}", hint="acceld doctor database examines it"), 500
        )
    except Exception as error:  # a fault in one route must not end the others
        log.exception("%s %s", request.method, request.path)
        text = f"the daemon failed at this request ({type(error).__name__}: {error})"
        return refusal(AcceldError(text, hint="the details are in the log: acceld logs"), 500)


def number(request: web.Request, name: str = "id") -> int:
    """Return an id in the path as a number, such as 12 for ``12`` or ``r12``. Raise NotFoundError for anything else."""
    text = request.match_info[name]
    digits = text[1:] if text[:1] in "rciep" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
        raise NotFoundError(f"{text!r} is not an id", hint="ids are numbers, such as 12 or r12")
    return int(digits)


def integer(request: web.Request, name: str, default: int, most: int = 2**53) -> int:
    """Return a whole number from the query: at most ``most``; ``default`` if the query has no such number. Raise
    UsageError for anything else.
    """
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise UsageError(f"{name}={text!r} is not a whole number", hint=f"such as {name}=100")
    return min(int(text), most)


def page(request: web.Request, default: int = 500) -> int:
    """Return the greatest number of rows of an answer: ``limit`` in the query, at most :data:`PAGE_LIMIT`."""
    return integer(request, "limit", default, PAGE_LIMIT)


def run_filter(request: web.Request) -> int | None:
    """Return the number of the run that ``run`` in the query names, such as 12 for ``12`` or ``r12``; None without
    ``run``.

    Raise UsageError for anything else.
    """
    text = request.query.get("run", "")
    if not text:
        return None
    digits = text.removeprefix("r")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
        raise UsageError(f"run={text!r} is not the number of a run", hint="such as run=12 or run=r12")
    return int(digits)


async def body(request: web.Request) -> dict[str, Any]:
    """Return the JSON object in a request's body. Raise NotJsonError if the body is no JSON object.

    Another content type than JSON raises HTTPUnsupportedMediaType.
    """
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType
    try:
        value = await request.json()
    except (ValueError, LookupError, RecursionError, web.RequestPayloadError) as error:
        # An unknown charset raises LookupError, a wrong content encoding RequestPayloadError.
        raise NotJsonError(
            f"the request's body is not JSON: {error}",
            hint="send a JSON object with the header Content-Type: application/json",
        ) from error
    if not isinstance(value, dict):
        raise NotJsonError("the request's body is not a JSON object", hint="send an object in braces, such as {}")
    return value
