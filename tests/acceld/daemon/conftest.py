"""Daemons in this process and in their own, on temporary state folders."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from acceld.config import Config
from acceld.daemon.service import Daemon
from acceld.home import DaemonLock, Home
from acceld.http.client import HttpClient
from acceld.store.database import Store
from tests.acceld.daemon.scripted import scripted_parts


@pytest.fixture(autouse=True)
def blocking() -> Iterator[BlockBuster]:
    """Fail a test in which one of our calls blocks the event loop."""
    with blockbuster_ctx(scanned_modules=["acceld.daemon", "acceld.http", "acceld.search", "acceld.store"]) as found:
        yield found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Return a state folder with its own runtime folder."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = Home(tmp_path / ".acceld")
    made.prepare()
    return made


@contextlib.asynccontextmanager
async def serving(
    home: Home, idle_exit_s: float | None = None, keys: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Daemon, HttpClient]]:
    """Yield a daemon in this process, and a client of it."""
    lock = await asyncio.to_thread(DaemonLock, home)
    token = await asyncio.to_thread(lock.new_token)
    socket_path = await asyncio.to_thread(home.socket)
    daemon = Daemon(
        home,
        Config(),
        scripted_parts,
        socket_path=socket_path,
        keys=keys,
        listening=lambda: lock.announce(socket_path, "0"),
        idle_exit_s=idle_exit_s,
    )
    running = asyncio.create_task(daemon.run())
    ready = asyncio.create_task(daemon.ready.wait())
    await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
    client = HttpClient(socket_path=socket_path, token=token)
    try:
        yield daemon, client
    finally:
        ready.cancel()
        await client.close()
        daemon.stop(1.0)
        await running
        await asyncio.to_thread(lock.release)


@contextlib.asynccontextmanager
async def begun_store(folder: Path) -> AsyncIterator[Store]:
    """Yield an open store in a folder."""
    opened = await asyncio.to_thread(Store.open, folder / "acceld.db")
    try:
        yield opened
    finally:
        await opened.close()
