"""Name the objects that an application keeps for its routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from acceld.http.control import Control, Reading

READING: web.AppKey[Reading] = web.AppKey("reading", Reading)
CONTROL: web.AppKey[Control | None] = web.AppKey("control")
HELLO: web.AppKey[Callable[[], Awaitable[dict[str, Any]]]] = web.AppKey("hello")
SOCKETS: web.AppKey[set[web.WebSocketResponse]] = web.AppKey("sockets")
LOG_FILE: web.AppKey[Path | None] = web.AppKey("log_file")
