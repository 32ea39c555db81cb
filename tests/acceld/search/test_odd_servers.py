"""A run whose server keeps to a protocol only nearly, or not at all, ends in the right state with the right exit code
and message, and books what the server counts, on each protocol.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from acceld.llm.retry import RetryPolicy
from acceld.llm.settings import Api, Deadlines
from acceld.model import Run, RunState
from acceld.search.budget import Budget
from acceld.store.database import Store
from tests.acceld.llm.models import APIS
from tests.acceld.llm.server import FRAMES, Reply, ScriptedServer, whole
from tests.acceld.search.model_runs import PLAN, is_plan, new_run, search_on, written

FINISHED, PAUSED = RunState.FINISHED, RunState.PAUSED
ANSWER_USD = (100 * 1 + 20 * 10) / 1e6
"""Cost of an answer of the server, by the tokens that the server reports."""

Maker = Callable[[str, Reply], web.Response]


@dataclass(frozen=True)
class Case:
    """A fault of a server, and the expected end of a run."""

    make: Maker
    words: str = "2 iterations done"
    exit_code: int = 0
    request_usd: float | None = ANSWER_USD
    """Cost that each request is booked at; None: the cost of its prompt."""
    settings: Mapping[str, Any] = field(default_factory=dict)


def stream(frames: list[bytes], kind: str = "text/event-stream", **headers: str) -> web.Response:
    return web.Response(body=b"".join(frames), headers={"content-type": kind, **headers})


def changed(change: Callable[[bytes], bytes], **reply: Any) -> Maker:
    """Return a maker of a stream whose frames are changed."""
    return lambda path, good: stream([change(frame) for frame in FRAMES[path](Reply(**{"text": good.text, **reply}))])


def spelled(path: str, good: Reply, old: str, new: str) -> web.Response:
    """Return the good answer with characters in plan and kernel that JSON may hold as they are."""
    text = good.text.replace("Load", f"Lo{new}ad").replace("return x", f"return x  # {new}")
    return stream([bare(frame) if old == "raw" else frame for frame in FRAMES[path](Reply(text))])


def bare(frame: bytes) -> bytes:
    """Return a frame whose characters are not escaped."""
    head, mark, rest = frame.partition(b"data: ")
    if not rest.startswith(b"{"):
        return frame
    return head + mark + json.dumps(json.loads(rest), ensure_ascii=False).encode() + b"\n\n"


def with_events(path: str, good: Reply) -> web.Response:
    """Return the good answer with events of a later version of the protocol between its own."""
    odd = {"type": "later.event", "sequence_number": 1, "delta": {"sound": [1]}, "choices": [{"delta": {"sound": 1}}]}
    frames = FRAMES[path](good)
    later = b"event: later.event\ndata: " + json.dumps(odd).encode() + b"\n\n: a comment\n\n"
    return stream([frames[0], *(part for frame in frames[1:-1] for part in (later, frame)), frames[-1]])


def counted_in_each(path: str, good: Reply) -> web.Response:
    """Return the good answer with the tokens so far in each piece, as some gateways of the chat API send it."""
    frames = FRAMES[path](good)
    if path.endswith("/completions"):
        for place, frame in enumerate(frames[:-2]):
            usage = {"prompt_tokens": 100, "completion_tokens": place}
            data = json.loads(frame.removeprefix(b"data: ")) | {"usage": usage}
            frames[place] = b"data: " + json.dumps(data).encode() + b"\n\n"
    return stream(frames)


def ended_twice(path: str, good: Reply) -> web.Response:
    ends = (b'"stop"', b"response.completed", b"message_delta", b'"usage"')
    frames = FRAMES[path](good)
    head, tail = frames[:1], frames[1:]
    return stream([*head, *(part for one in tail for part in ([one, one] if any(e in one for e in ends) else [one]))])


def content(value: Any, text: Any) -> Maker:
    """Return a maker of an answer in one piece with ``value`` in place of its content, or ``text`` in place of its
    text.
    """

    def make(path: str, good: Reply) -> web.Response:
        data = whole(path, good)
        if path.endswith("/completions"):
            data["choices"][0]["message"]["content"] = value if text is None else text
        elif path.endswith("/responses"):
            data["output"] = value if text is None else [{"content": [{"type": "output_text", "text": text}]}]
        else:
            data["content"] = value if text is None else [{"type": "text", "text": text}]
        return web.json_response(data)

    return make


def failed(status: int, error: Mapping[str, Any] | None, **headers: str) -> Maker:
    """Return a maker of an error in the protocol's form."""

    def make(path: str, good: Reply) -> web.Response:
        body: dict[str, Any] = {"error": error}
        if path.endswith("/messages"):
            body["type"] = "error"
        return web.json_response(body, status=status, headers=headers)

    return make


def page(status: int) -> Maker:
    return lambda path, good: web.Response(status=status, text="<html>a page</html>", content_type="text/html")


def overloaded_first(path: str, good: Reply) -> web.Response:
    error = {"type": "overloaded_error", "message": "busy now", "code": "overloaded_error"}
    data = json.dumps({"type": "error", "error": error, "message": "busy now"})
    return stream([f"event: error\ndata: {data}\n\n".encode()])


def wild_plan(path: str, good: Reply) -> web.Response:
    title = "\x1b[31mx" * 3000
    text = f"Title: {title}\nClass: nonsense\nInsights: i{'9' * 30}, -3, i1.5\n\n{'plan ' * 2000}"
    return stream(FRAMES[path](Reply(text if good.text == PLAN else good.text)))


LIMIT = "max_tokens is too large: 16384. This model supports at most 4096 completion tokens."
CALLS = {b'"finish_reason": "stop"': b'"finish_reason": "tool_calls"', b'"end_turn"': b'"tool_use"'}


def called(frame: bytes) -> bytes:
    for old, new in CALLS.items():
        frame = frame.replace(old, new)
    return frame


CASES: dict[str, Case] = {
    "half characters": Case(lambda path, good: spelled(path, good, "escaped", "\ud800")),
    "a null character": Case(lambda path, good: spelled(path, good, "escaped", "\x00")),
    "separators of lines": Case(lambda path, good: spelled(path, good, "raw", "\u2028\x85\x1c")),
    "ends of lines of old computers": Case(changed(lambda frame: frame.replace(b"\n", b"\r"))),
    "unknown events": Case(with_events),
    "tokens in each piece": Case(counted_in_each),
    "ended twice": Case(ended_twice),
    "another charset": Case(lambda path, good: stream(FRAMES[path](good), "text/event-stream; charset=iso-8859-1")),
    "a plain text": Case(lambda path, good: stream(FRAMES[path](good), "text/plain")),
    "another model": Case(changed(lambda frame: frame.replace(b"served-model", b"a-later-model"))),
    "150 headers": Case(lambda path, good: stream(FRAMES[path](good), **{f"x-{n}": "y" * 400 for n in range(150)})),
    "a wild plan": Case(wild_plan),
    "not compressed": Case(
        lambda path, good: stream(FRAMES[path](good), **{"content-encoding": "gzip"}),
        "its answer can not be decompressed",
        1,
        None,
    ),
    "no content": Case(lambda path, good: web.Response(status=204), "closed the stream", 1, None),
    "an empty body": Case(
        lambda path, good: web.Response(body=b"", content_type="application/json"), "its answer is not JSON", 1, None
    ),
    "a rate limit in an answer": Case(failed(200, {"message": "free models are slow", "code": 429}), "are slow", 1, 0),
    "no credit in an answer": Case(failed(200, {"message": "No credits left", "code": 402}), "No credits left", 4, 0),
    "a number for the content": Case(content(5, None), "it has no text", 1),
    "true for the content": Case(content(True, None), "it has no text", 1),
    "an object for the text": Case(content(None, {"text": "x"}), "it has no text", 1),
    "a number for the text": Case(content(None, 5), "it has no text", 1),
    "a call of a tool": Case(changed(called, text=""), "it has no text", 1),
    "a half, withheld": Case(changed(bytes, kind="content_filter"), "withheld or declined", 1),
    "too high a limit": Case(
        failed(400, {"message": LIMIT, "type": "invalid_request_error"}), "\n  Lower max_output_tokens", 1, 0
    ),
    "refuses the model's name": Case(
        failed(400, {"message": "Unsupported parameter: 'model'.", "param": "model"}), "Unsupported parameter", 1, 0
    ),
    "an error without words": Case(failed(400, None), "HTTP 400", 1, 0),
    "moved": Case(
        lambda path, good: web.Response(status=302, headers={"location": "http://127.0.0.1:1/"}), "redirects to", 1, 0
    ),
    "forbidden by law": Case(lambda path, good: web.Response(status=451), "HTTP 451", 1, 0),
    "a page of a cloud": Case(page(520), "a web page came instead", 1, 0),
    "come back in an eternity": Case(
        failed(429, {"message": "slow down", "type": "rate_limit_error"}, **{"retry-after": "1e999"}),
        "asks to come back later",
        1,
        0,
    ),
    "overloaded at first": Case(overloaded_first, "busy now", 1, None),
    "encryption for a server without": Case(
        lambda path, good: web.Response(), "no connection to https://", 1, 0, {"scheme": "https"}
    ),
}


def prompts_usd(server: ScriptedServer) -> float:
    """Return the cost of the prompts that arrived, counted as acceld estimates tokens."""
    chars = 0
    for seen in server.seen:
        body = seen.body
        if "input" in body:
            texts = [body["input"], body.get("instructions") or ""]
        else:
            told = [message["content"] for message in body["messages"]]
            texts = [*told, *(block["text"] for block in body.get("system") or ())]
        chars += sum(map(len, texts))
    return (chars / 3.3 + 65 * len(server.seen)) / 1e6


async def ended(store: Store, case: Case, api: Api) -> tuple[Run, ScriptedServer]:
    """Return the record of a small run against a server with this fault, and the server."""
    run, server, settings = await new_run(store, plans=2, iterations=2, patience=0), ScriptedServer(), dict[str, Any]()

    def answer(body: dict[str, Any]) -> Reply:
        good = Reply(PLAN if is_plan(body) else written(99.0 - len(server.seen)))
        return Reply(made=lambda path: case.make(path, good))

    server.answer = answer
    async with server:
        if case.settings.get("scheme"):
            address = server.base_url if api != "messages" else server.base_url.removesuffix("/v1")
            settings["base_url"] = address.replace("http:", f"{case.settings['scheme']}:")
        patient = Deadlines(600, 600, 600, 600)
        retry = RetryPolicy(max_tries=2, base_s=0.01)
        run = await search_on(store, run, server, api, budget=Budget(), deadlines=patient, retry=retry, **settings)
    return run, server


def booked(connection: sqlite3.Connection, run: int) -> tuple[float, float]:
    """Return what the calls of a run cost, and what is uncertain."""
    row = connection.execute("SELECT sum(cost_usd), sum(uncertain_usd) FROM llm_calls WHERE run = ?", (run,))
    cost, uncertain = row.fetchone()
    return cost or 0.0, uncertain or 0.0


@pytest.mark.parametrize("api", APIS)
async def test_a_run_on_an_odd_server_ends_as_it_should_and_books_what_the_server_counts(
    store: Store, api: Api
) -> None:
    found = await asyncio.gather(*(ended(store, case, api) for case in CASES.values()))
    wrong = []
    for (name, case), (run, server) in zip(CASES.items(), found, strict=True):
        cost, uncertain = await store.read(booked, run.id)
        counted = prompts_usd(server) if case.request_usd is None else case.request_usd * len(server.seen)
        state = FINISHED if case.exit_code == 0 else PAUSED
        if (run.state, run.exit_code) != (state, case.exit_code) or case.words not in run.message:
            wrong.append(f"{name}: {run.state}, exit {run.exit_code}, {run.message!r}; expected {case.words!r}")
        elif cost != pytest.approx(counted, rel=0.02) or uncertain:
            wrong.append(f"{name}: booked {cost:.6f} USD, {uncertain:.6f} uncertain; the server counts {counted:.6f}")
    assert not wrong, "\n".join(wrong)
