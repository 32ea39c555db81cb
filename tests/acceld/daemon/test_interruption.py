"""If EC2 takes a spot instance back, its daemon stops in order, and the next daemon continues the runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from acceld.daemon import interruption


class Metadata:
    """A metadata service that answers 404 at first, then an interruption notice."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.notice: object = None
        self.url = ""

    async def token(self, request: web.Request) -> web.Response:
        """Return a token for the documented header."""
        assert request.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        return web.Response(text="t0")

    async def action(self, request: web.Request) -> web.Response:
        """Answer 404 until there is a notice."""
        self.asked.set()
        if request.headers.get("X-aws-ec2-metadata-token") != "t0":
            return web.Response(status=401)
        return web.Response(status=404) if self.notice is None else web.Response(text=json.dumps(self.notice))


@pytest.fixture
async def metadata() -> AsyncIterator[Metadata]:
    """Yield a metadata service on loopback."""
    made, app = Metadata(), web.Application()
    app.router.add_put("/latest/api/token", made.token)
    app.router.add_get("/latest/meta-data/spot/instance-action", made.action)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


async def test_the_notice_is_waited_for_and_reported(metadata: Metadata) -> None:
    waiting = asyncio.create_task(interruption.notice(metadata.url, period_s=0.01))
    async with asyncio.timeout(300):
        await metadata.asked.wait()
        assert not waiting.done()
        metadata.notice = "no object"
        metadata.asked.clear()
        await metadata.asked.wait()
        metadata.notice = {"action": "terminate", "time": "2026-11-22T22:00:00Z"}
        assert await waiting == "EC2 will terminate this spot instance at 2026-11-22T22:00:00Z"


async def test_a_service_that_does_not_answer_is_asked_again() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await interruption.notice("http://127.0.0.1:9", period_s=0.01)
