"""docs/protocol.md describes every route, event, action and saved query."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from acceld.daemon.steering import ACTIONS
from acceld.events import EventKind
from acceld.http.application import application
from acceld.store.database import Store
from acceld.store.reader import HistoryFile
from acceld.store.reads.history import SAVED

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()


async def test_every_route_is_described(tmp_path: Path) -> None:
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    await store.close()
    history = await asyncio.to_thread(HistoryFile, tmp_path / "acceld.db")
    described = {re.sub(r"/\d+", "/{id}", route) for route in re.findall(r"/v1/[a-z0-9/{}-]+", PAGE)}
    routes = {route.resource.canonical for route in application(history).router.routes() if route.resource}
    await history.close()
    assert routes - described - {"/v1/history/{name}"} == set()


def test_every_event_action_and_saved_query_is_described() -> None:
    words = set(re.findall(r"`?\"?([a-z_-]+)\"?`?", PAGE))
    assert set(EventKind) - words == set()
    assert set(ACTIONS) - words == set()
    assert set(SAVED) - words == set()
