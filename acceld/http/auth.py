"""Authorize requests: a request must have the token, come from the same user, and not come from another site's web
page.

All routes and the websocket use this middleware.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct

from aiohttp import web

from acceld.errors import DaemonError
from acceld.http.answers import Handler, refusal

_CREDENTIALS = struct.Struct("3i")


def authorize(token: str, hosts: frozenset[str]) -> Handler:
    """Return the middleware that refuses unauthorized requests with status 401 or 403.

    Over TCP the header Host must be exactly one of ``hosts``, such as ``127.0.0.1:7431``.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = _stranger(request, hosts)
        if refused:
            return refusal(DaemonError(refused), 403)
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(errors="surrogateescape"), f"Bearer {token}".encode()):
            return refusal(
                DaemonError(
                    "a valid token is missing", hint="the token is in the file named token of the state folder"
                ),
                401,
            )
        return await handler(request)

    return check  # type: ignore[return-value]  # aiohttp's decorator has no type


def _stranger(request: web.Request, hosts: frozenset[str]) -> str:
    """Return the reason to refuse a request because of its sender; "" if the sender is allowed."""
    connection = request.transport.get_extra_info("socket") if request.transport else None
    if connection is None:
        return "the sender can not be identified"
    if connection.family == socket.AF_UNIX:
        uid = peer_uid(connection)
        return "" if uid == os.getuid() else f"user {uid} may not use the daemon of user {os.getuid()}"
    host = request.headers.getall("Host", [])
    if len(host) != 1 or host[0] not in hosts:
        return "the header Host does not name this daemon"
    origins = request.headers.getall("Origin", [])
    if origins and (len(origins) != 1 or origins[0] not in {f"http://{name}" for name in hosts}):
        return "the header Origin does not name this daemon"
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return "requests from another web site are refused"
    return ""


def peer_uid(connection: socket.socket) -> int:
    """Return the uid of the user at the other end of a unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(raw)[1]
    return uid
