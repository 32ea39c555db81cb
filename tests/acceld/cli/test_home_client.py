"""The client of a state folder over the coming and going of its daemon."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from acceld.cli.home_client import HomeClient
from acceld.errors import DaemonError
from acceld.home import Home
from tests.faults.harness import client_of, start
from tests.store.records import fill


async def daemon(home: Home) -> subprocess.Popen[str]:
    """A daemon that answers."""
    process = start("tests.acceld.daemon.scripted", "--home", str(home.path), environment=dict(os.environ))
    await asyncio.to_thread(client_of, home)
    return process


async def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    await asyncio.to_thread(process.communicate)


async def test_a_history_becomes_a_daemon_that_may_be_killed_and_start_again(folder: Path) -> None:
    home = Home(folder / ".acceld")
    home.prepare()
    await fill(home.database)
    client = HomeClient(home)
    try:
        assert (await client.get("/v1/hello"))["read_only"]
        waiting = asyncio.create_task(_batches(client))
        first = await daemon(home)
        await asyncio.wait_for(waiting, 20)
        assert not (await client.get("/v1/hello"))["read_only"]
        await killed(first)
        assert (await client.get("/v1/runs"))["runs"]
        assert client.read_only
        second = await daemon(home)
        try:
            assert (await client.get("/v1/status"))["pid"] == second.pid
        finally:
            await killed(second)
    finally:
        await client.close()


async def _batches(client: HomeClient) -> None:
    async for _ in client.events(0):
        pass


async def test_where_there_is_neither_daemon_nor_history_it_says_so_and_finds_one_later(folder: Path) -> None:
    home = Home(folder / ".acceld")
    home.prepare()
    client = HomeClient(home)
    with pytest.raises(DaemonError, match="no daemon runs"):
        await client.get("/v1/hello")
    process = await daemon(home)
    try:
        assert (await client.get("/v1/status"))["pid"] == process.pid
    finally:
        await client.close()
        await killed(process)
