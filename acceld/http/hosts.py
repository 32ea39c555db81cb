"""Answer the routes about the hosts of a fleet."""

from __future__ import annotations

from aiohttp import web

from acceld.errors import UsageError
from acceld.http.answers import answer
from acceld.http.service import control_of

ACTIONS = ("drain", "undrain")


async def get_hosts(request: web.Request) -> web.Response:
    """Return every host with its present work and its cost."""
    return answer({"hosts": await control_of(request).hosts()})


async def get_doctor(request: web.Request) -> web.Response:
    """Return what ``acceld doctor`` finds on a host's devices."""
    return answer({"findings": await control_of(request).doctor_of(request.match_info["name"])})


async def post_action(request: web.Request) -> web.Response:
    """Drain a host, or give it work again."""
    name, action = request.match_info["name"], request.match_info["action"]
    if action not in ACTIONS:
        raise UsageError(f"there is no action {action!r}", hint=f"one of {', '.join(ACTIONS)}")
    await control_of(request).change_host(name, action)
    return answer({"host": name, "action": action})
