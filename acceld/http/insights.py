"""Answer the routes about the memory of insights."""

from __future__ import annotations

from aiohttp import web

from acceld.errors import UsageError
from acceld.http.answers import answer, body, number, page, run_filter
from acceld.http.keys import READING
from acceld.http.service import control_of
from acceld.store.reads import listing

FLAGS = ("pinned", "muted", "withdrawn")
TEXTS = ("title", "strategy", "slow", "fast")


async def get_insights(request: web.Request) -> web.Response:
    """Return the insights, newest first; with ``q`` in the query, only those that contain its words."""
    found = await request.app[READING].read(
        listing.insight_rows,
        run=run_filter(request),
        chip=request.query.get("chip", ""),
        matching=request.query.get("q", ""),
        limit=page(request, 200),
    )
    return answer({"insights": found})


async def get_insight(request: web.Request) -> web.Response:
    """Return one insight, with the plans whose planner was shown it."""
    return answer(await request.app[READING].read(listing.insight_row, number(request)))


async def patch_insight(request: web.Request) -> web.Response:
    """Pin, mute, withdraw or edit an insight, and return the changed insight."""
    insight, changes = number(request), await body(request)
    for name, value in changes.items():
        if name in FLAGS:
            fits = isinstance(value, bool)
        elif name in TEXTS:
            fits = isinstance(value, str)
        elif name == "tags":
            fits = isinstance(value, list) and all(isinstance(tag, str) for tag in value)
        else:
            raise UsageError(f"an insight has no {name!r} to set", hint=f"one of {', '.join((*FLAGS, *TEXTS, 'tags'))}")
        if not fits:
            raise UsageError(
                f"{name}={value!r} is of the wrong type",
                hint="true or false" if name in FLAGS else "a text" if name in TEXTS else "a list of texts",
            )
    await control_of(request).change_insight(insight, changes)
    return answer(await request.app[READING].read(listing.insight_row, insight))


async def delete_insight(request: web.Request) -> web.Response:
    """Delete an insight."""
    insight = number(request)
    await control_of(request).forget_insight(insight)
    return answer({"deleted": insight})
