"""Serve the terminal UI to a browser on this machine.

The server listens on loopback. The page's address holds a token that works once. The browser that uses it gets
a cookie that scripts can not read. Requests that come from other pages are refused by their Host and Origin, so
that no web site can reach the UI. The page is acceld's own, because that of textual-serve loads fonts from
another server.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import shlex
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from textual_serve.server import Server

from acceld.child import PATH, child
from acceld.cli.output import say
from acceld.cli.web_page import page, policy
from acceld.http.server import refuse_taken

COOKIE = "acceld_web"
HOST = "127.0.0.1"
FONT_SIZE = 16
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Door:
    """Check who sends a request. The first request must have the token; later requests must have the cookie that the
    answer to the first request set.
    """

    def __init__(self, port: int) -> None:
        self.token = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        self._used = False
        self._hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    def refusal(self, request: web.Request) -> str:
        """Return why a request's Host or Origin is refused; empty if they are accepted."""
        if request.host not in self._hosts:
            return "foreign Host"
        origin = request.headers.get("Origin")
        if origin is not None and origin.removeprefix("http://") not in self._hosts:
            return "foreign Origin"
        if request.headers.get("Upgrade", "").lower() == "websocket" and origin is None:
            return "no Origin"
        if request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
            return "asked by another site"
        return ""

    @property
    def middleware(self) -> Any:
        """Return the check in the form of a middleware of aiohttp."""

        @web.middleware
        async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
            if why := self.refusal(request):
                raise web.HTTPForbidden(text=f"{why}\n")
            given = request.query.get("token")
            if given is not None:
                if self._used or not hmac.compare_digest(given, self.token):
                    raise web.HTTPForbidden(text="the token has been used; start acceld web again\n")
                self._used = True
                found = web.HTTPSeeOther("/")
                found.set_cookie(COOKIE, self._cookie, httponly=True, samesite="Strict", path="/")
                raise found
            if not hmac.compare_digest(request.cookies.get(COOKIE, ""), self._cookie):
                raise web.HTTPForbidden(text="open the address that acceld web printed\n")
            return await handler(request)

        return check


class GuardedServer(Server):
    """Server of textual-serve that answers only requests that a :class:`Door` lets through."""

    def __init__(self, command: str, port: int) -> None:
        super().__init__(command, host=HOST, port=port, title="acceld", public_url=f"http://{HOST}:{port}")
        self.door = Door(port)
        self._nonce = secrets.token_urlsafe(16)

    async def _make_app(self) -> web.Application:
        app: web.Application = await super()._make_app()
        app.middlewares.append(self.door.middleware)
        app.on_response_prepare.append(self._guard)
        return app

    async def _guard(self, request: web.Request, response: web.StreamResponse) -> None:
        """Set headers that forbid the browser to load anything from other servers, or to tell them the address of the
        page.
        """
        response.headers["Content-Security-Policy"] = policy(request.host, self._nonce)
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["X-Content-Type-Options"] = "nosniff"

    async def handle_index(self, request: web.Request) -> web.Response:
        """Return acceld's page."""
        size = request.query.get("fontsize", "")
        text = page(request.host, int(size) if size.isdecimal() and 6 <= int(size) <= 72 else FONT_SIZE, self._nonce)
        return web.Response(text=text, content_type="text/html")

    def initialize_logging(self) -> None:
        """Log only warnings: a line for each request would contain the token."""
        logging.basicConfig(level=logging.WARNING)

    async def on_startup(self, app: web.Application) -> None:
        """Print the address of the page, with its token."""
        say(f"open http://{HOST}:{self.port}/?token={self.door.token}")
        say("this address works once, in one browser; ctrl+c ends the server")


def serve(home: str | None, port: int, run: str | None) -> int:
    """Serve the terminal UI until interrupted, and return the exit code. Raise UsageError if the port can not be
    used.
    """
    refuse_taken(HOST, port, "--port")
    attach = child("acceld", "attach", *([run] if run else []), *(["--home", home] if home else []))
    path = attach.environment.get(PATH, "")  # textual-serve adds the whole environment of this process
    GuardedServer(shlex.join(("env", f"{PATH}={path}", *attach.command)), port).serve()
    return 0
