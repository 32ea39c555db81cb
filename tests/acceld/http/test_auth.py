"""Only the right user with the right token, Host and Origin gets an answer, whatever the method."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from acceld.errors import ConfigError, DaemonError
from acceld.http.client import HttpClient
from acceld.http.server import Server, bind_private, parse_tcp
from acceld.store.database import Store

TOKEN = "a" * 64
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "WS")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """Yield an open store."""
    opened = await asyncio.to_thread(Store.open, tmp_path / "acceld.db")
    yield opened
    await opened.close()


def free_port() -> int:
    """Return a free port."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def ask(session: aiohttp.ClientSession, method: str, headers: dict[str, str]) -> int:
    """Return the status of one request."""
    if method == "WS":
        upgrade = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        async with session.request("GET", "/v1/events", headers=headers | upgrade) as response:
            return response.status
    async with session.request(method, "/v1/hello", headers=headers) as response:
        return response.status


async def test_the_whole_matrix_over_tcp(store: Store, tmp_path: Path) -> None:
    port = free_port()
    server = Server(store, None, socket_path=tmp_path / "s", token=TOKEN, tcp=f"127.0.0.1:{port}")
    await server.start()
    own = f"127.0.0.1:{port}"
    tokens = {"right": f"Bearer {TOKEN}", "wrong": "Bearer " + "b" * 64, "basic": f"Basic {TOKEN}", "none": ""}
    hosts = (own, "127.0.0.1", f"localhost:{port}", "evil.example", f"evil.example:{port}", f"127.0.0.1.evil:{port}")
    origins = ("", f"http://{own}", f"https://{own}", "null", "http://evil.example", f"http://localhost:{port}")
    passed = set()
    try:
        async with aiohttp.ClientSession(f"http://{own}") as session:
            for method, token, host, origin in itertools.product(METHODS, tokens, hosts, origins):
                headers = {"Host": host} | ({"Authorization": tokens[token]} if tokens[token] else {})
                headers |= {"Origin": origin} if origin else {}
                status = await ask(session, method, headers)
                if status not in (401, 403):
                    passed.add((method, token, host, origin))
            crossing = {"Authorization": tokens["right"], "Host": own, "Sec-Fetch-Site": "cross-site"}
            assert await ask(session, "GET", crossing) == 403
    finally:
        await server.stop()
    allowed = {(method, "right", own, origin) for method in METHODS for origin in ("", f"http://{own}")}
    assert passed == allowed


async def test_the_unix_socket_asks_for_the_token_too(store: Store, tmp_path: Path) -> None:
    server = Server(store, None, socket_path=tmp_path / "s", token=TOKEN)
    await server.start()
    try:
        for token, welcome in ((TOKEN, True), ("", False), (TOKEN[:-1], False), (TOKEN + "a", False)):
            client = HttpClient(socket_path=tmp_path / "s", token=token)
            if welcome:
                assert (await client.hello())["name"] == "acceld"
            else:
                with pytest.raises(DaemonError, match="token"):
                    await client.hello()
            await client.close()
    finally:
        await server.stop()
    assert not (tmp_path / "s").exists()


async def test_a_token_that_is_no_ascii_is_a_wrong_one(store: Store, tmp_path: Path) -> None:
    server = Server(store, None, socket_path=tmp_path / "s", token=TOKEN)
    await server.start()
    try:
        for token in ("\xff\xfe".encode("latin-1"), "ключ".encode(), TOKEN.encode() + b"\x80"):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            head = b"GET /v1/hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "
            writer.write(head + token + b"\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"401"
            writer.close()
            await writer.wait_closed()
    finally:
        await server.stop()


def test_the_socket_is_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        listening = bind_private(tmp_path / "s")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    listening.close()


def test_only_loopback_addresses_may_be_listened_on() -> None:
    assert parse_tcp("127.0.0.1:7431") == ("127.0.0.1", 7431)
    assert parse_tcp("[::1]:7431") == ("::1", 7431)
    for text in ("0.0.0.0:7431", "192.168.1.5:7431", "example.org:80", "127.0.0.1", "127.0.0.1:0"):
        with pytest.raises(ConfigError, match="loopback"):
            parse_tcp(text)


async def test_bodies_are_bounded_and_must_be_json(store: Store, tmp_path: Path) -> None:
    server = Server(store, None, socket_path=tmp_path / "s", token=TOKEN)
    await server.start()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    connector = aiohttp.UnixConnector(str(tmp_path / "s"))
    try:
        async with aiohttp.ClientSession("http://localhost", connector=connector, headers=headers) as session:
            large = io.BytesIO(b'{"sql": "' + b"x" * (9 << 20) + b'"}')
            kind = {"Content-Type": "application/json"}
            async with session.post("/v1/query", data=large, headers=kind) as response:
                assert response.status == 413
            async with session.post("/v1/query", data="sql=SELECT 1") as response:
                assert response.status == 415
            async with session.post("/v1/query", json=["SELECT 1"]) as response:
                assert response.status == 400
            deep = b'{"sql": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
            unknown = {"Content-Type": "application/json; charset=none"}
            for data, given in ((deep, kind), (b'{"sql": "\xff"}', kind), (b"{}", unknown)):
                async with session.post("/v1/query", data=data, headers=given) as response:
                    assert response.status == 400
            async with session.post("/v1/query", data=b'{"sql": "SELECT \'\\ud800\'"}', headers=kind) as response:
                assert response.status == 422
                assert "surrogate" in (await response.json())["error"]["message"]
            async with session.post("/v1/runs", json={"workload": "silu"}) as response:
                assert response.status == 409
                assert "read-only" in (await response.json())["error"]["message"]
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        head = f"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        head += "Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n"
        writer.write(head.encode() + b"{}")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 "), "it is not compressed as it says"
        writer.close()
    finally:
        await server.stop()
