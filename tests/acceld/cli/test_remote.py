"""``acceld attach --remote``: another machine's daemon through ssh, for which a script on PATH stands in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acceld.cli.remote import RemoteDaemon
from acceld.errors import DaemonError, UsageError
from acceld.home import DaemonLock, Home
from acceld.http.client import HttpClient
from acceld.http.server import Server
from acceld.store.reader import HistoryFile
from tests.programs import python_program
from tests.store.records import fill

SSH = '''"""Plays ssh: the host is a folder below REMOTE; a command runs there, and -L forwards one socket to another."""
import os, socket, subprocess, sys, threading, time

words, options, rest = sys.argv[1:], {}, []
while words:
    word = words.pop(0)
    if word in ("-o", "-L"):
        options.setdefault(word, []).append(words.pop(0))
    elif word == "-N":
        options[word] = True
    else:
        rest.append(word)
host = os.path.join(os.environ["REMOTE"], rest[0])
if "BatchMode=yes" not in options["-o"]:
    sys.exit("a password would be asked for")
if not os.path.isdir(host):
    print(f"ssh: Could not resolve hostname {rest[0]}", file=sys.stderr)
    sys.exit(255)
if "-N" not in options:
    sys.exit(subprocess.call(["sh", "-c", rest[1]], cwd=os.path.join(host, "work", "deep")))

def pump(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)

near, _, far = options["-L"][0].partition(":")
listening = socket.socket(socket.AF_UNIX)
listening.bind(near)
time.sleep(0.2)  # the socket's file is there, and nobody listens yet
listening.listen()
while True:
    here, _ = listening.accept()
    there = socket.socket(socket.AF_UNIX)
    there.connect(far)
    for ends in ((here, there), (there, here)):
        threading.Thread(target=pump, args=ends, daemon=True).start()
'''


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder ``work`` with a history on the machine ``box``, and the stand-in first on PATH."""
    folder = tmp_path / "machines" / "box" / "work"
    (folder / "deep").mkdir(parents=True)
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("REMOTE", str(tmp_path / "machines"))
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    python_program(program, SSH)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    home = Home(folder / ".acceld")
    home.prepare()
    await fill(home.database)
    return folder


@pytest.fixture
async def remote(machine: Path) -> AsyncIterator[Path]:
    """Start a daemon's server on the machine, and yield the same folder."""
    async with daemon(machine):
        yield machine


@contextlib.asynccontextmanager
async def daemon(folder: Path) -> AsyncIterator[None]:
    """Serve a folder of the machine as its daemon does, with a new token."""
    home = Home(folder / ".acceld")
    lock, history = DaemonLock(home), HistoryFile(home.database)
    server = Server(history, None, socket_path=home.socket(), token=lock.new_token())
    await server.start()
    lock.announce(home.socket(), "0.1.0")
    try:
        yield
    finally:
        await server.stop()
        await history.close()
        lock.release()


async def first_run(address: str) -> Any:
    """Ask for what the screens show first."""
    with RemoteDaemon(address) as there:
        client = HttpClient.looked_up(there.address)
        assert client.where == "box"
        try:
            return (await client.get("/v1/runs"))["runs"][0]["workload"]
        finally:
            await client.close()


def in_a_thread(address: str) -> Any:
    return asyncio.run(first_run(address))


async def test_the_nearest_state_folder_of_the_host_is_found_and_its_socket_forwarded(remote: Path) -> None:
    assert await asyncio.to_thread(in_a_thread, "ssh://box") == "nkibench/silu"


async def test_a_state_folder_can_be_named(remote: Path) -> None:
    assert await asyncio.to_thread(in_a_thread, f"ssh://box{remote}/.acceld") == "nkibench/silu"


async def test_errors_are_reported(remote: Path) -> None:
    with pytest.raises(DaemonError, match="Could not resolve hostname nowhere"):
        await asyncio.to_thread(in_a_thread, "ssh://nowhere")
    with pytest.raises(DaemonError, match="no daemon could be found"):
        await asyncio.to_thread(in_a_thread, "ssh://box/other/.acceld")
    with pytest.raises(UsageError, match="--remote"):
        await asyncio.to_thread(in_a_thread, "box")
    with pytest.raises(UsageError, match="--remote"):
        await asyncio.to_thread(in_a_thread, "ssh://-V")


async def test_a_daemon_that_was_started_again_is_found_with_its_new_token(machine: Path) -> None:
    there = RemoteDaemon("ssh://box")
    try:
        async with daemon(machine):
            client = await asyncio.to_thread(HttpClient.looked_up, there.address)
            before = (machine / ".acceld" / "token").read_text()
            assert (await client.hello())["read_only"]
        with pytest.raises(DaemonError, match="no daemon could be found there"):
            await client.hello()
        async with daemon(machine):
            assert (machine / ".acceld" / "token").read_text() != before
            with contextlib.suppress(DaemonError):  # the first request may meet the connection of before
                await client.hello()
            assert (await client.hello())["read_only"]
        await client.close()
    finally:
        await asyncio.to_thread(there.__exit__)
