"""Answer the routes over all runs: costs, full-text search, saved queries and plain SQL."""

from __future__ import annotations

from textwrap import dedent

from aiohttp import web

from acceld.errors import UsageError
from acceld.http.answers import PAGE_LIMIT, answer, body, page, run_filter
from acceld.http.keys import READING
from acceld.store.reads import history, listing

TIME_LIMIT_S = 60.0


async def get_costs(request: web.Request) -> web.Response:
    """Return the costs of a run, or of all runs."""
    return answer(await request.app[READING].read(listing.costs, run_filter(request)))


async def get_search(request: web.Request) -> web.Response:
    """Return the hits of a full-text search."""
    found = await request.app[READING].read(listing.search, request.query.get("q", ""), page(request, 50))
    return answer({"found": found})


async def get_history(request: web.Request) -> web.Response:
    """Return the saved queries: name, description and SQL of each."""
    return answer(
        {
            "saved": [
                {"name": name, "about": about, "sql": dedent(sql).strip()}
                for name, (about, sql) in history.SAVED.items()
            ]
        }
    )


async def get_saved(request: web.Request) -> web.Response:
    """Return one saved query's rows."""
    name = request.match_info["name"]
    table = await request.app[READING].read(history.saved, name, page(request, 200))
    return answer({"name": name} | table.to_json())


async def get_tables(request: web.Request) -> web.Response:
    """Return the tables and views that a query may read, with their columns."""
    found = await request.app[READING].read(history.tables)
    return answer({"tables": [{"name": name, "columns": list(columns)} for name, columns in found.items()]})


async def post_query(request: web.Request) -> web.Response:
    """Return the rows of one SQL statement that only reads."""
    asked = await body(request)
    sql, limit, time_limit_s = asked.get("sql"), asked.get("limit", 1000), asked.get("time_limit_s", 5)
    if not isinstance(sql, str) or not sql.strip():
        raise UsageError("a query needs sql", hint='Such as {"sql": "SELECT * FROM history"}.')
    if not isinstance(limit, int) or not 0 < limit <= PAGE_LIMIT:
        raise UsageError(f"limit={limit!r} is out of range", hint=f"a number from 1 to {PAGE_LIMIT}")
    if not isinstance(time_limit_s, int | float) or not 0 < time_limit_s <= TIME_LIMIT_S:
        raise UsageError(f"time_limit_s={time_limit_s!r} is out of range", hint=f"seconds, at most {TIME_LIMIT_S:g}")
    table = await request.app[READING].read(history.query, sql, limit=limit, time_limit_s=time_limit_s)
    return answer(table.to_json())
