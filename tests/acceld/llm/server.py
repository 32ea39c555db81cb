"""A scripted loopback server that speaks the protocols chat, responses and messages, and fails in each way a provider
can.

``Reply.kind`` is ``ok`` or one of ``FAULTS``. Replies are taken in order; when they run out, ``default`` answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Self

from aiohttp import web

from tests.acceld.llm.batch_server import Shelf

STATUS_FAULTS: dict[str, tuple[int, str, str]] = {
    "rate_limited_seconds": (429, "rate_limit_exceeded", "slow down"),
    "rate_limited_date": (429, "rate_limit_exceeded", "slow down"),
    "rate_limited_bare": (429, "rate_limit_exceeded", "slow down"),
    "quota": (429, "insufficient_quota", "you exceeded your current quota"),
    "credit_400": (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.",
    ),
    "payment_402": (402, "402", "Insufficient credits. Add more."),
    "redirect_307": (307, "", "the endpoint redirects to"),
    "effort_400": (400, "invalid_request_error", "This model does not support the effort parameter."),
    "timeout_408": (408, "timeout_error", "request timed out"),
    "conflict_409": (409, "conflict", "try again"),
    "error_500": (500, "server_error", "it broke"),
    "bad_gateway_502": (502, "server_error", "upstream"),
    "unavailable_503": (503, "server_error", "restarting"),
    "overloaded_529": (529, "overloaded_error", "overloaded"),
    "unauthorized_401": (401, "invalid_api_key", "wrong key: sk-test-0123456789"),
    "forbidden_403": (403, "permission_error", "not yours"),
    "bad_request_400": (400, "invalid_request", "no such thing"),
    "not_found_404": (404, "model_not_found", "no such model"),
    "too_long_400": (400, "context_length_exceeded", "maximum context length is 8 tokens"),
    "too_long_413": (413, "request_too_large", "prompt is too long"),
}
"""Answers with an HTTP status: status, code, message."""

STREAM_FAULTS = (
    "reset",
    "hang_before_headers",
    "slow_first_token",
    "idle_stall",
    "trickle",
    "drop_mid_stream",
    "truncated_sse",
    "error_mid_stream",
    "credit_mid_stream",
    "bad_json",
    "bad_utf8",
    "html_200",
    "empty_choices",
    "empty_answer",
    "content_filter",
)
"""Answers with HTTP status 200 that fail later, or whose content is wrong."""

FAULTS = (*STATUS_FAULTS, *STREAM_FAULTS)


@dataclass(frozen=True)
class Reply:
    """One answer of the script."""

    text: str = "hello"
    kind: str = "ok"
    reasoning: str = ""
    finish: str = "stop"
    usage: bool = True
    input_tokens: int = 100
    cached_tokens: int = 0
    written_tokens: int = 0
    output_tokens: int = 20
    retry_after: str = "0"
    hold: asyncio.Event | None = None
    """Answer only after this is set."""
    refuses: str = ""
    """Answer 400 to a request that sets this parameter."""
    declines: bool = False
    """True: the text is a refusal by the model, in the field that the protocol has for it."""
    refusal: str = "openai"
    """The provider whose form the refusal has: ``openai``, ``azure`` (no ``param``), ``anthropic`` (prose) or
    ``mistral`` (422 with ``detail``).
    """
    tier: str = ""
    """The tier of service that the answer reports; empty: none."""
    body: dict[str, Any] | None = None
    """The body of an answer with an error's status; None: the provider's usual form."""
    location: str = "http://127.0.0.1:0/v1"
    """The address to which a redirect points."""
    frames: Sequence[bytes] | None = None
    """The frames of the stream, in place of those that the protocol makes of the text."""
    pause_s: float = 0.0
    """Time between two frames of the stream."""
    made: Callable[[str], web.Response] | None = None
    """Makes the whole response for the path of a request, in place of that of ``kind``."""
    streams: bool = True
    """False: answer in one piece of JSON although a stream was asked for, as some gateways do."""


@dataclass
class Seen:
    """One request as it arrived."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]


@dataclass
class ScriptedServer:
    """``async with ScriptedServer(replies) as server``; clients connect to ``server.base_url``."""

    replies: Sequence[Reply] = ()
    default: Reply = field(default_factory=Reply)
    answer: Callable[[dict[str, Any]], Reply] | None = None
    seen: list[Seen] = field(default_factory=list)
    active: int = 0
    most_active: int = 0
    frames_sent: int = 0
    port: int = 0
    shelf: Shelf = field(init=False)
    """The server's batches; requests in batches are answered by the same script."""
    _runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        """The address for OpenAI's SDK. Anthropic's SDK wants the address without ``/v1``."""
        return f"http://127.0.0.1:{self.port}/v1"

    def __post_init__(self) -> None:
        self.shelf = Shelf(self._in_batch)

    def _in_batch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.default if self.answer is None else self.answer(body)
        if reply.kind in STATUS_FAULTS:
            status, code, message = STATUS_FAULTS[reply.kind]
            return {"refused": status, "error": {"message": message, "code": code}}
        return whole(path, reply)

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 << 20)
        self.shelf.add_to(app)
        app.router.add_post("/v1/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        server = site._server
        assert isinstance(server, asyncio.Server)
        self.port = server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        position = len(self.seen)
        self.seen.append(Seen(request.path, body, {k.lower(): v for k, v in request.headers.items()}))
        reply = self.replies[position] if position < len(self.replies) else self.default
        if self.answer is not None:
            reply = self.answer(body)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            if reply.hold is not None:
                await reply.hold.wait()
            return await self._reply(request, body, reply)
        finally:
            self.active -= 1

    async def _reply(self, request: web.Request, body: dict[str, Any], reply: Reply) -> web.StreamResponse:
        if reply.refuses and reply.refuses in body:
            return _refusal(reply)
        if reply.made is not None:
            return reply.made(request.path)
        if reply.kind in STATUS_FAULTS:
            return _status_fault(request.path, reply)
        if reply.kind == "hang_before_headers":
            await asyncio.sleep(3600)
        if reply.kind == "reset":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if reply.kind == "html_200":
            return web.Response(text="<html>a proxy's log-in page</html>", content_type="text/html")
        if request.path.endswith("/count_tokens"):
            return web.json_response({"input_tokens": counted_tokens(body)})
        frames = FRAMES[request.path](reply) if reply.frames is None else list(reply.frames)
        if not body.get("stream") or not reply.streams:
            return web.json_response(whole(request.path, reply))
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "x-request-id": "req_1"})
        response.headers["request-id"] = "req_1"
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):  # the client gave up, as it should
            await self._stream(request, response, reply, frames)
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, reply: Reply, frames: list[bytes]
    ) -> None:
        kind = reply.kind
        if kind == "slow_first_token":
            await asyncio.sleep(3600)
        middle = max(2, len(frames) // 2)
        for position, frame in enumerate(frames):
            if position == middle:
                if kind == "idle_stall":
                    await asyncio.sleep(3600)
                if kind == "drop_mid_stream":
                    assert request.transport is not None
                    request.transport.abort()
                    return
                if kind == "truncated_sse":
                    return
                if kind == "error_mid_stream":
                    error = {"type": "overloaded_error", "message": "overloaded", "code": "overloaded_error"}
                    await response.write(b"event: error\n")
                    await response.write(_data({"type": "error", "error": error, "message": "overloaded"}))
                    return
                if kind == "credit_mid_stream":
                    ended = {"message": "Insufficient credits", "type": "billing_error", "code": 402}
                    await response.write(b"event: error\n")
                    await response.write(_data({"type": "error", "error": ended, "message": ended["message"]}))
                    return
                if kind in ("bad_json", "bad_utf8"):
                    name = frame.split(b"data: ")[0]
                    await response.write(
                        name + b"data: " + (b'{"id": ' if kind == "bad_json" else b'"\xff\xfe"') + b"\n\n"
                    )
            if kind == "trickle":
                for byte in range(len(frame)):
                    await response.write(frame[byte : byte + 1])
                    await asyncio.sleep(0.02)
            else:
                await response.write(frame)
                self.frames_sent += 1
                if reply.pause_s:
                    await asyncio.sleep(reply.pause_s)


def counted_tokens(body: dict[str, Any]) -> int:
    """Return the tokens of a Messages prompt by this server's tokenizer: one a character."""
    return sum(len(part["text"]) for part in body.get("system", ())) + len(body["messages"][0]["content"])


def _refusal(reply: Reply) -> web.Response:
    if reply.refusal == "mistral":
        place = {"type": "extra_forbidden", "loc": ["body", reply.refuses], "msg": "Extra inputs are not permitted"}
        return web.json_response({"object": "error", "detail": [place]}, status=422)
    if reply.refusal == "anthropic":
        prose = f'"{reply.refuses}.type.enabled" is not supported for this model. Use "{reply.refuses}.type.adaptive".'
        return web.json_response(
            {"type": "error", "error": {"type": "invalid_request_error", "message": prose}}, status=400
        )
    error = {
        "message": f"Unsupported value: '{reply.refuses}' does not support 0.5 with this model.",
        "type": "invalid_request_error",
        "param": None if reply.refusal == "azure" else reply.refuses,
        "code": "unsupported_value",
    }
    return web.json_response({"error": error}, status=400)


def _status_fault(path: str, reply: Reply) -> web.Response:
    status, code, message = STATUS_FAULTS[reply.kind]
    headers = {"x-request-id": "req_1", "request-id": "req_1"}
    if reply.kind == "rate_limited_seconds":
        headers["retry-after"] = reply.retry_after
    if reply.kind == "redirect_307":
        headers["location"] = reply.location
    if reply.kind == "rate_limited_date":
        headers["retry-after"] = format_datetime(datetime.now(UTC), usegmt=True)
    if "/messages" in path:
        kind = {429: "rate_limit_error", 500: "api_error", 401: "authentication_error"}.get(status, code)
        if reply.kind == "quota":
            kind = "billing_error"
        body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": message}}
    else:
        body = {"error": {"message": message, "type": code, "param": None, "code": code}}
    body = body if reply.body is None else reply.body
    return web.json_response(body, status=status, headers=headers)


def _data(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _pieces(text: str) -> list[str]:
    size = max(1, -(-len(text) // 6))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _text(reply: Reply) -> str:
    return "" if reply.kind in ("empty_answer", "empty_choices") else reply.text


def _finish(reply: Reply) -> str:
    return "content_filter" if reply.kind == "content_filter" else reply.finish


def _stop_reason(reply: Reply) -> str:
    reasons = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}
    return "refusal" if reply.declines else reasons[_finish(reply)]


def _chat_usage(reply: Reply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": reply.written_tokens},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }


def _chat_frames(reply: Reply) -> list[bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data(_chat_head(reply) | {"choices": [] if reply.kind == "empty_choices" else [choice]})

    frames = [chunk({"role": "assistant", "content": ""})]
    frames += [chunk({"reasoning_content": reply.reasoning})] if reply.reasoning else []
    frames += [chunk({"refusal" if reply.declines else "content": piece}) for piece in _pieces(_text(reply))]
    if reply.kind != "empty_choices":
        frames.append(chunk({}, _finish(reply)))
    if reply.usage:
        frames.append(_data(_chat_head(reply) | {"choices": [], "usage": _chat_usage(reply)}))
    return [*frames, b"data: [DONE]\n\n"]


def _chat_head(reply: Reply) -> dict[str, Any]:
    tier = {"service_tier": reply.tier} if reply.tier else {}
    return tier | {"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": "served-model"}


def _response(reply: Reply, status: str) -> dict[str, Any]:
    incomplete = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(_finish(reply))
    content: list[dict[str, Any]] = [{"type": "output_text", "text": _text(reply), "annotations": []}]
    if reply.declines:
        content = [{"type": "refusal", "refusal": _text(reply)}]
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "served-model",
        "status": status,
        "error": None,
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "instructions": None,
        "metadata": {},
        "output": [{"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}],
        "parallel_tool_calls": False,
        "service_tier": reply.tier if status != "in_progress" else "auto",
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": {
            "input_tokens": reply.input_tokens,
            "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": reply.written_tokens},
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 5},
            "total_tokens": reply.input_tokens + reply.output_tokens,
        }
        if reply.usage and status != "in_progress"
        else None,
    }


def _responses_frames(reply: Reply) -> list[bytes]:
    number = 0

    def event(kind: str, **data: Any) -> bytes:
        nonlocal number
        number += 1
        return f"event: {kind}\n".encode() + _data({"type": kind, "sequence_number": number, **data})

    place = {"item_id": "m", "output_index": 0, "content_index": 0, "logprobs": []}
    frames = [event("response.created", response=_response(reply, "in_progress"))]
    if reply.reasoning:
        part = {"item_id": "r", "output_index": 0, "summary_index": 0}
        frames.append(event("response.reasoning_summary_text.delta", delta=reply.reasoning, **part))
    kind = "response.refusal.delta" if reply.declines else "response.output_text.delta"
    frames += [event(kind, delta=piece, **place) for piece in _pieces(_text(reply))]
    if reply.kind != "empty_choices":
        ended = "incomplete" if _finish(reply) != "stop" else "completed"
        frames.append(event(f"response.{ended}", response=_response(reply, ended)))
    return frames


def _message(reply: Reply, text: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "served-model",
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": _stop_reason(reply),
        "stop_sequence": None,
        "usage": {
            "input_tokens": reply.input_tokens - reply.cached_tokens - reply.written_tokens,
            "cache_read_input_tokens": reply.cached_tokens,
            "cache_creation_input_tokens": reply.written_tokens,
            "output_tokens": reply.output_tokens,
        },
    }


def _messages_frames(reply: Reply) -> list[bytes]:
    def event(kind: str, **data: Any) -> bytes:
        return f"event: {kind}\n".encode() + _data({"type": kind, **data})

    start = _message(reply, "") | {"stop_reason": None}
    start["usage"] = start["usage"] | {"output_tokens": 1}  # as the real one does: the answer is counted at its end
    frames = [event("message_start", message=start)]
    if reply.reasoning:
        frames.append(
            event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": reply.reasoning})
        )
    frames.append(event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
    frames += [
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        for piece in _pieces(_text(reply))
    ]
    if reply.kind != "empty_choices":
        delta = {"stop_reason": _message(reply, "")["stop_reason"], "stop_sequence": None}
        frames.append(event("message_delta", delta=delta, usage={"output_tokens": reply.output_tokens}))
    return [*frames, event("message_stop")]


def whole(path: str, reply: Reply) -> dict[str, Any]:
    if path.endswith("/messages"):
        return _message(reply, _text(reply))
    if path.endswith("/responses"):
        return _response(reply, "incomplete" if _finish(reply) != "stop" else "completed")
    message: dict[str, Any] = {"role": "assistant", "content": _text(reply)}
    if reply.declines:
        message = {"role": "assistant", "content": None, "refusal": _text(reply)}
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    head = _chat_head(reply) | {
        "object": "chat.completion",
        "choices": [] if reply.kind == "empty_choices" else [choice],
    }
    return head | ({"usage": _chat_usage(reply)} if reply.usage else {})


FRAMES: dict[str, Callable[[Reply], list[bytes]]] = {
    "/v1/chat/completions": _chat_frames,
    "/v1/responses": _responses_frames,
    "/v1/messages": _messages_frames,
}
