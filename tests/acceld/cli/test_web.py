"""Access to the terminal UI in a browser, by real HTTP on loopback."""

from __future__ import annotations

import json
import logging
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

pytest.importorskip("textual_serve")

from acceld.cli.web_page import page
from acceld.cli.web_server import COOKIE, HOST, Door, GuardedServer, serve
from acceld.errors import UsageError


@pytest.fixture
async def opened() -> AsyncIterator[tuple[str, Door, aiohttp.ClientSession]]:
    """Yield a guarded page, its door and a browser."""

    async def inside(request: web.Request) -> web.Response:
        return web.Response(text="inside")

    app = web.Application()
    app.router.add_get("/", inside)
    app.router.add_get("/ws", inside)
    runner = web.AppRunner(app)
    site_port = _free_port()
    door = Door(site_port)
    app.middlewares.append(door.middleware)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", site_port).start()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        yield f"http://127.0.0.1:{site_port}", door, browser
    await runner.cleanup()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


Opened = tuple[str, Door, aiohttp.ClientSession]


async def test_the_token_opens_once_and_the_cookie_afterwards(opened: Opened) -> None:
    url, door, browser = opened
    async with browser.get(url) as answer:
        assert answer.status == 403
    async with browser.get(f"{url}/?token={door.token}") as answer:
        assert answer.status == 200 and await answer.text() == "inside"
        set_cookie = answer.history[0].headers["Set-Cookie"]
        assert COOKIE in set_cookie and "HttpOnly" in set_cookie and "SameSite=Strict" in set_cookie
    async with browser.get(url) as answer:
        assert answer.status == 200
    async with aiohttp.ClientSession() as other, other.get(f"{url}/?token={door.token}") as answer:
        assert answer.status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Upgrade": "websocket"},
    ],
)
async def test_other_sites_are_refused_even_with_the_cookie(opened: Opened, headers: dict[str, str]) -> None:
    url, door, browser = opened
    async with browser.get(f"{url}/?token={door.token}"):
        pass
    async with browser.get(f"{url}/ws", headers=headers) as answer:
        assert answer.status == 403


async def test_a_wrong_token_does_not_use_up_the_right_one(opened: Opened) -> None:
    url, door, browser = opened
    async with browser.get(f"{url}/?token=wrong") as answer:
        assert answer.status == 403
    async with browser.get(f"{url}/?token={door.token}") as answer:
        assert answer.status == 200


async def test_the_real_page_stands_behind_the_door_and_asks_no_other_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = _free_port()
    server = GuardedServer("true", port)
    wanted: dict[str, object] = {}
    monkeypatch.setattr(logging, "basicConfig", lambda **more: wanted.update(more))
    server.initialize_logging()
    assert wanted == {"level": logging.WARNING}, "aiohttp logs each request, with its token, as information"
    app = await server._make_app()
    app.on_startup.clear()  # it prints the token
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            host = f"127.0.0.1:{port}"
            async with browser.get(f"http://{host}/") as answer:
                assert answer.status == 403 and "default-src 'none'" in answer.headers["Content-Security-Policy"]
            async with browser.get(f"http://{host}/?token={server.door.token}") as answer:
                html, rules = await answer.text(), answer.headers["Content-Security-Policy"]
            allowed = dict(rule.split(" ", 1) for rule in rules.split("; "))
            assert allowed["connect-src"] == f"'self' ws://{host}" and allowed["default-src"] == "'none'"
            (nonce,) = re.findall(r'<script nonce="([^"]+)">', html)
            assert allowed["script-src"] == f"'self' 'nonce-{nonce}'" and allowed["font-src"] == "'self'"
            urls = re.findall(r"(?:src|href)=\"([^\"]+)\"|url\(\"([^\"]+)\"\)", html)
            loaded = sorted({one or other for one, other in urls} - {"/"})
            assert loaded and all(url.startswith("/static/") for url in loaded)
            for url in loaded:
                async with browser.get(f"http://{host}{url}") as answer:
                    assert answer.status == 200, url
            assert re.findall(r"\w+://[^\"]+", html) == [f"ws://{host}/ws"]
    finally:
        await runner.cleanup()


@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script in node")
def test_keys_typed_before_the_first_picture_are_sent_after_it_in_order() -> None:
    (script,) = re.findall(r'<script nonce="n">(.*?)</script>', page("127.0.0.1:1", 14, "n"), re.DOTALL)
    around = """
        const heard = {}, sent = [], kept = [];
        globalThis.window = globalThis;
        globalThis.addEventListener = (name, does) => { heard[name] = does; };
        globalThis.WebSocket = class {
          addEventListener(name, does) { this.does = does; }
          send(text) { sent.push(JSON.parse(text)[1]); }
        };
        SCRIPT
        const press = (key) => heard.keydown(
          { key, preventDefault() { kept.push(key); }, stopImmediatePropagation() {} });
        const socket = new WebSocket("ws://127.0.0.1:1/ws");
        press("2"); press("Enter"); press("Shift");
        const before = [...sent];
        socket.does(); socket.does(); press("q");
        console.log(JSON.stringify([before, sent, kept]));
    """
    done = subprocess.run(["node", "-e", around.replace("SCRIPT", script)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], ["2", "\r"], ["2", "Enter"]]


def test_a_taken_port_is_refused_with_the_option_that_chooses_another() -> None:
    with socket.create_server((HOST, 0)) as taken, pytest.raises(UsageError, match="Address already in use") as refused:
        serve(None, taken.getsockname()[1], None)
    assert "--port" in refused.value.hint
