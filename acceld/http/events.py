"""Serve events: as a page, as a page that waits for the first new event, and over a websocket."""

from __future__ import annotations

import asyncio
import math

from aiohttp import WSCloseCode, WSMsgType, web

from acceld.errors import UsageError
from acceld.events import KINDS, EventKind, event_json
from acceld.http.answers import answer, integer, number, page, run_filter
from acceld.http.control import Reading
from acceld.http.keys import CONTROL, HELLO, READING, SOCKETS
from acceld.store.reads import records
from acceld.store.rows import dump

SEND_S = 30.0
PING_S = 20.0
SUBSCRIBERS = 64
WAIT_LIMIT_S = 60.0


async def get_events(request: web.Request) -> web.StreamResponse:
    """Return a page of events. A client that asks for a websocket gets all events there."""
    if request.headers.get("Upgrade", "").lower() == "websocket":
        return await _websocket(request)
    return await _page(request, run_filter(request))


async def get_run_events(request: web.Request) -> web.StreamResponse:
    """Return a page of one run's events."""
    return await _page(request, number(request))


async def _page(request: web.Request, run: int | None) -> web.StreamResponse:
    """Return the events with numbers greater than ``after`` in the query; with ``kind``, only events of that kind.

    If there is no such event yet, wait for one, at most ``wait_s`` seconds.
    """
    reading = request.app[READING]
    after, limit, kind = integer(request, "after", 0), page(request), _kind(request)
    seen = await reading.read(records.last_seq)  # before the page, so that an event between the two is waited for
    found = await reading.read(records.load_events, after, run, limit, kind)
    wait_s = _seconds(request)
    if not found and wait_s:
        try:
            async with asyncio.timeout(wait_s):
                await _first(reading, seen, run, kind)
        except TimeoutError:
            pass
        found = await reading.read(records.load_events, after, run, limit, kind)
    last = await reading.read(records.last_seq)
    return answer({"events": [event_json(event) for event in found], "last_seq": last})


def _seconds(request: web.Request) -> float:
    """Return ``wait_s`` from the query in seconds, at most 60. Raise UsageError if it is not a number of seconds."""
    text = request.query.get("wait_s", "0")
    try:
        value = float(text)
    except ValueError as error:
        raise UsageError(f"wait_s={text!r} is not a number of seconds", hint="such as wait_s=20") from error
    if not 0 <= value < math.inf:
        raise UsageError(f"wait_s={text!r} is not a number of seconds", hint="such as wait_s=20")
    return min(value, WAIT_LIMIT_S)


def _kind(request: web.Request) -> str:
    """Return ``kind`` from the query; "" if the query has none. Raise UsageError if no events have this kind."""
    text = request.query.get("kind", "")
    if text and text not in KINDS:
        raise UsageError(f"kind={text!r} is no kind of event", hint=f"one of {', '.join(EventKind)}")
    return text


async def _first(reading: Reading, after: int, run: int | None, kind: str) -> None:
    async for events in reading.pages(after):
        if any(run in (None, event.run) and kind in ("", event.kind) for event in events):
            return


async def _websocket(request: web.Request) -> web.StreamResponse:
    sockets = request.app[SOCKETS]
    if len(sockets) >= SUBSCRIBERS:
        raise web.HTTPTooManyRequests(
            reason=f"{SUBSCRIBERS} clients listen already: close one of them, or ask without a websocket"
        )
    run, after = run_filter(request), integer(request, "after", 0)
    stream = web.WebSocketResponse(heartbeat=PING_S, max_msg_size=64 << 10)
    await stream.prepare(request)
    control = request.app[CONTROL]
    sockets.add(stream)
    if control is not None:
        control.client_came()
    progress = [after]
    try:
        await stream.send_str(dump({"hello": await request.app[HELLO]()}))
        async with asyncio.TaskGroup() as tasks:
            listener = tasks.create_task(_listen(stream))
            sender = tasks.create_task(_send(stream, request.app[READING], progress, run))
            await asyncio.wait({listener, sender}, return_when=asyncio.FIRST_COMPLETED)
            listener.cancel()
            sender.cancel()
    except* (ConnectionError, TimeoutError):
        pass  # the client left or stopped reading; a client that returns names the last event that it got
    finally:
        sockets.discard(stream)
        if control is not None:
            control.client_left()
        if not stream.closed:
            await stream.close(
                code=WSCloseCode.TRY_AGAIN_LATER, message=f"lagged: reconnect with after={progress[0]}".encode()
            )
    return stream


async def _listen(stream: web.WebSocketResponse) -> None:
    """Answer the client's pings until the client leaves. Its other messages are ignored."""
    async for message in stream:
        if message.type is WSMsgType.TEXT and message.data.startswith('{"ping"'):
            await stream.send_str('{"pong":1}')


async def _send(stream: web.WebSocketResponse, reading: Reading, progress: list[int], run: int | None) -> None:
    """Send events in batches until the daemon stops. ``progress`` holds the number of the last event sent.

    Raise TimeoutError if the client reads nothing for ``SEND_S`` seconds.
    """
    async for batch in reading.pages(progress[0]):
        chosen = [event_json(event) for event in batch if run is None or event.run in (run, None)]
        if chosen:
            async with asyncio.timeout(SEND_S):
                await stream.send_str(dump({"events": chosen}))
        progress[0] = batch[-1].seq
