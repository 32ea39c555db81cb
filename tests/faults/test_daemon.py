"""Slow listeners, daemons that start at the same moment or on a full disk (quick forms)."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from acceld.home import Home
from acceld.http.client import HttpClient
from acceld.http.keys import SOCKETS
from acceld.http.server import Server
from acceld.store.changes.runs import write_notice
from acceld.store.database import Store
from acceld.store.maintenance import check
from tests.faults.harness import ROOT, client_of, kill_writers, start
from tests.store import records

TOKEN = "t" * 64


async def test_a_listener_that_takes_nothing_costs_nothing_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acceld.http.events.SEND_S", 0.5)
    store = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    server = Server(store, None, socket_path=tmp_path / "s", token=TOKEN)
    await server.start()
    run, _ = await records.begin(store)
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
    writer.write(
        b"GET /v1/events?after=0 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
    )
    assert b"101" in await reader.readline()  # and now it reads no more

    events = 6000

    async def listen() -> int:
        client, seen = HttpClient(socket_path=tmp_path / "s", token=TOKEN), 0
        async for batch in client.events(0):
            assert batch[0].seq == seen + 1
            seen = batch[-1].seq
            if seen >= events:
                break
        await client.close()
        return seen

    listeners = [asyncio.create_task(listen()) for _ in range(3)]
    for _ in range(events // 500):
        await asyncio.gather(*(store.change(write_notice, run.id, "info", "x" * 200) for _ in range(500)))
    assert all(seen >= events for seen in await asyncio.gather(*listeners))
    assert len(store.hub._recent) < 5000  # the rest is read from the database
    async with asyncio.timeout(300):
        while server.app[SOCKETS]:  # noqa: ASYNC110 - it is taken out when its time is up
            await asyncio.sleep(0.05)
    writer.close()
    await server.stop()
    await store.close()


def test_of_daemons_started_together_one_serves(tmp_path: Path) -> None:
    home = Home(tmp_path / ".acceld")
    home.prepare()
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    daemons = {
        daemon.pid: daemon
        for daemon in (
            start("tests.acceld.daemon.scripted", "--home", str(home.path), environment=environment) for _ in range(4)
        )
    }
    client = client_of(home)
    winner = daemons.pop(client.get("/v1/hello")["pid"])
    for loser in daemons.values():
        loser.communicate(timeout=300)
    assert [loser.returncode for loser in daemons.values()] == [3, 3, 3]
    client.send("POST", "/v1/stop")
    winner.communicate(timeout=300)
    assert winner.returncode == 0
    assert not home.is_served()


def test_a_key_is_nowhere_even_where_somebody_writes_it(tmp_path: Path) -> None:
    home, canary = Home(tmp_path / ".acceld"), f"sk-canary-{os.urandom(16).hex()}"
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    environment["OPENAI_API_KEY"] = canary
    daemon = start("tests.acceld.daemon.scripted", "--home", str(home.path), environment=environment)
    client = client_of(home)
    run = client.send("POST", "/v1/runs", {"workload": "silu", "preset": "quick", "name": f"with {canary}"})["id"]
    reported = [client.get(f"/v1/runs/{run}"), Path(f"/proc/{daemon.pid}/cmdline").read_bytes()]
    assert "[key " in str(reported)
    daemon.kill()
    daemon.communicate(timeout=300)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert home.database in files
    assert not any(canary in str(one) for one in (*reported, *(path.read_bytes() for path in files)))


@pytest.mark.parametrize(
    ("limit_bytes", "said"), [(16, "can not write .*token"), (33_000, "acceld.db can not be written")]
)
def test_a_daemon_that_starts_on_a_full_disk_ends_with_a_message(tmp_path: Path, limit_bytes: int, said: str) -> None:
    home = Home(tmp_path / ".acceld")
    home.prepare()
    kill_writers(home.path, 1)  # its log is longer than any file may grow now
    code = (
        "import resource, signal, sys; import acceld.daemon.service as service; service.STORAGE_S = 0.2\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, resource.RLIM_INFINITY))\n"
        "from acceld.daemon.process import main; from tests.acceld.daemon.scripted import scripted_parts\n"
        f"sys.exit(main(['--home', {str(home.path)!r}], make_parts=scripted_parts))"
    )
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (1, 2) and re.search(said, done.stderr), done.stderr
    assert "Traceback" not in done.stderr and "ake room" in done.stderr
    assert not list(home.path.glob("*.part"))
    assert check(home.database).problems == ()
