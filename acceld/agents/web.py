"""Guard the tools over HTTP: require the daemon's token, and refuse requests of other sites' web pages."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from acceld.errors import DaemonError
from acceld.home import Home

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def guarded(app: App, home: Home, host: str) -> App:
    """Return ``app`` behind a check that answers unauthorized requests with status 401 or 403.

    The header Host must be exactly ``host``. The token is read for each request, because a restarted daemon has a new
    one.
    """

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := _refusal(scope, home, host)) is not None:
            await _refuse(send, *refused)
            return
        await app(scope, receive, send)

    return check


def _refusal(scope: Scope, home: Home, host: str) -> tuple[int, str] | None:
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value)
    if headers.get(b"host") != [host.encode()]:
        return 403, "the header Host does not name this server"
    if headers.get(b"origin", [f"http://{host}".encode()]) != [f"http://{host}".encode()]:
        return 403, "the header Origin does not name this server"
    if headers.get(b"sec-fetch-site", [b"none"]) not in ([b"none"], [b"same-origin"]):
        return 403, "requests from another web site are refused"
    try:
        token = home.token()
    except DaemonError:
        token = ""
    given = headers.get(b"authorization", [b""])
    if not token or len(given) != 1 or not hmac.compare_digest(given[0], f"Bearer {token}".encode()):
        return 401, "a valid token is missing; the state folder's file token has it"
    return None


async def _refuse(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
