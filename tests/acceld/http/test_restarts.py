"""Clients find the daemon again: with a new token, after a crash, and if it starts later than they do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from acceld.client import Client
from acceld.errors import DaemonError
from acceld.home import DaemonLock, Home
from acceld.http.client import Address, HttpClient
from acceld.http.server import HistoryServer, Server
from acceld.store.changes.runs import write_notice
from acceld.store.database import Store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a state folder with its own runtime folder."""
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    made = Home(tmp_path / ".acceld")
    made.prepare()
    return made


@contextlib.asynccontextmanager
async def served(home: Home, store: Store, *, crash: bool = False) -> AsyncIterator[None]:
    """Serve the folder as a daemon does, with a new token; a ``crash`` leaves its files behind."""
    lock = DaemonLock(home)
    server = Server(store, None, socket_path=home.socket(), token=lock.new_token())
    await server.start()
    reported = lock.announce(home.socket(), "0")
    try:
        yield
    finally:
        await server.stop()
        lock.release()
        if crash:
            home.daemon_file.write_text(str(reported).replace("'", '"'))


@pytest.mark.parametrize("crash", [False, True], ids=["restart", "crash"])
async def test_requests_go_on_after_a_restart_with_a_new_token(home: Home, crash: bool) -> None:
    store = await asyncio.to_thread(Store.open, home.database)
    client = HttpClient.of(home)
    with pytest.raises(DaemonError, match="no daemon runs"):
        await client.hello()
    async with served(home, store, crash=crash):
        await client.hello()
        blocking = Client(home)
        await asyncio.to_thread(blocking.get, "/v1/hello")
    with pytest.raises(DaemonError):
        await client.hello()
    async with served(home, store):
        await client.hello()
        await asyncio.to_thread(blocking.get, "/v1/hello")
    await client.close()
    await store.close()


async def test_following_goes_on_after_a_restart_with_a_new_token(home: Home) -> None:
    store = await asyncio.to_thread(Store.open, home.database)
    client, seen = HttpClient.of(home), asyncio.Queue[int]()

    async def listen() -> None:
        async for batch in client.follow(0):
            for event in batch:
                seen.put_nowait(event.seq)

    listener = asyncio.create_task(listen())
    for number in (1, 2):
        async with served(home, store):
            await store.change(write_notice, None, "info", str(number))
            assert await asyncio.wait_for(seen.get(), 300) == number
    listener.cancel()
    await client.close()
    await store.close()


async def test_a_history_alone_gives_way_to_a_daemon_that_starts(home: Home) -> None:
    store = await asyncio.to_thread(Store.open, home.database)
    async with HistoryServer(home.database) as history:
        alone = Address(history.token, history.socket_path, where="history", read_only=True)
        client = HttpClient.of(home, otherwise=alone)
        assert client.read_only
        assert (await client.get("/v1/hello"))["read_only"]

        async def listen() -> None:
            async for _ in client.events(0):
                pass

        events = asyncio.create_task(listen())
        await asyncio.sleep(0)
        async with served(home, store):
            with pytest.raises(DaemonError, match="another daemon"):
                await asyncio.wait_for(events, 300)
            await client.get("/v1/hello")
            assert client.where == str(home.path)
        await client.get("/v1/hello")
        assert client.where == "history"
        await client.close()
    await store.close()


async def test_blocking_following_goes_on_after_a_restart_and_ends_where_no_daemon_returns(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await asyncio.to_thread(Store.open, home.database)
    async with served(home, store):
        await store.change(write_notice, None, "info", "1")
        client = await asyncio.to_thread(Client, home)
        events = client.events(0, wait_s=0.2)
        assert (await asyncio.to_thread(next, events))["seq"] == 1
    waiting = asyncio.create_task(asyncio.to_thread(next, events))
    async with served(home, store):
        await store.change(write_notice, None, "info", "2")
        assert (await asyncio.wait_for(waiting, 300))["seq"] == 2
    monkeypatch.setattr("acceld.client.RETURN_S", 0.0)
    with pytest.raises(DaemonError):
        await asyncio.to_thread(next, events)
    told: list[str] = []
    with pytest.raises(DaemonError):
        await asyncio.to_thread(next, client.follow(1, 0.2, told.append))
    (said,) = told
    assert said.startswith("lost the daemon") and "acceld start" in said, "a follower says that it waits"
    await store.close()
