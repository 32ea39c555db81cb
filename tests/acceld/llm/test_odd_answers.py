"""Answers of servers that keep to a protocol only nearly: each is read, or is an error with a name, and none is a crash."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from dataclasses import replace
from typing import Any

import pytest

from acceld.llm.client import Completion
from acceld.llm.errors import LLMEmpty, LLMError, LLMInterrupted, LLMQuotaExceeded, LLMRateLimited, LLMUnavailable
from acceld.llm.providers.translation import LINE_BYTES, error_from, translate
from acceld.llm.retry import RetryPolicy
from acceld.llm.settings import Api
from tests.acceld.llm.models import APIS, ask, model_for
from tests.acceld.llm.server import FRAMES, Reply, ScriptedServer

ONCE = RetryPolicy(max_tries=1)


async def answered(server: ScriptedServer, api: Api = "chat", **settings: Any) -> Completion:
    """Return the answer of the server to one request."""
    model = model_for(server, api, **settings)
    try:
        return await model.complete(ask())
    finally:
        await model.close()


def data(value: Any) -> bytes:
    """Return one event of a stream."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> bytes:
    """Return one chunk of the chat API."""
    return data({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})


def event(kind: str, **more: Any) -> bytes:
    """Return one event of the APIs responses and messages."""
    return f"event: {kind}\n".encode() + data({"type": kind, "sequence_number": 1, **more})


def response(status: str = "completed", **more: Any) -> dict[str, Any]:
    """Return the record of a response."""
    return {"id": "r", "model": "served-model", "status": status, "output": [], "usage": None, **more}


HELLO, STOP = chunk({"content": "hello"}), chunk({}, "stop")
WRITTEN = event("response.output_text.delta", delta="hello", item_id="m", output_index=0, content_index=0, logprobs=[])


def counted(usage: Any) -> list[bytes]:
    """Return the frames of an answer with this record of tokens."""
    return [HELLO, STOP, data({"id": "c", "choices": [], "usage": usage})]


READ: dict[str, list[bytes]] = {
    "counts are texts": counted({"prompt_tokens": "100", "completion_tokens": "20"}),
    "counts are broken numbers": counted({"prompt_tokens": 100.0, "completion_tokens": 20.4}),
    "counts of 400 digits": counted({"prompt_tokens": 100, "completion_tokens": 10**400}),
    "counts are texts of 5,000 digits": counted({"prompt_tokens": "9" * 5000, "completion_tokens": "9" * 5000}),
    "counts are no numbers": counted({"prompt_tokens": "many", "completion_tokens": None}),
    "usage is a list": counted([1, 2]),
    "details are a list": counted({"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": [1]}),
    "text in parts": [chunk({"content": [{"type": "text", "text": "hello"}]}), STOP],
    "reasoning in parts": [
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
        HELLO,
        STOP,
    ],
    "no choices": [data({"id": "c", "choices": None}), HELLO, STOP],
    "a choice is null": [data({"id": "c", "choices": [None]}), HELLO, STOP],
    "a delta is null": [chunk(None), HELLO, STOP],
    "another choice first": [
        data({"choices": [{"index": 1, "delta": {"content": "other"}}, {"index": 0, "delta": {"content": "hello"}}]}),
        STOP,
    ],
    "the model is a number": [chunk({"content": "hello"}, "stop", model=5)],
    "a reason of its own": [HELLO, chunk({}, "eos_token")],
}


@pytest.mark.parametrize("name", READ)
async def test_an_answer_that_is_nearly_right_is_read(name: str) -> None:
    async with ScriptedServer([Reply(frames=[*READ[name], b"data: [DONE]\n\n"])]) as server:
        completion = await answered(server, retry=ONCE)
    assert completion.text == "hello"
    assert 0 < completion.usage.input_tokens <= 100 and 0 < completion.usage.output_tokens <= 20


FAILED: dict[str, tuple[Api, list[bytes], type[LLMError], str]] = {
    "a number": ("chat", [HELLO, b"data: 17\n\n", STOP], LLMInterrupted, "int, not a JSON object"),
    "null at first": ("chat", [b"data: null\n\n", HELLO, STOP], LLMEmpty, "NoneType, not a JSON object"),
    "the provider broke off": ("chat", [HELLO, chunk({}, "error")], LLMInterrupted, "in the middle of its answer"),
    "a call of a tool alone": (
        "chat",
        [chunk({"tool_calls": []}), chunk({}, "tool_calls")],
        LLMEmpty,
        "it has no text",
    ),
    "failed for the rate": (
        "responses",
        [
            event(
                "response.failed", response=response("failed", error={"code": "rate_limit_exceeded", "message": "slow"})
            )
        ],
        LLMRateLimited,
        "model 'm': slow",
    ),
    "failed for money": (
        "responses",
        [
            event(
                "response.failed", response=response("failed", error={"code": "insufficient_quota", "message": "none"})
            )
        ],
        LLMQuotaExceeded,
        "model 'm': none",
    ),
    "an event for money": (
        "responses",
        [event("error", code="insufficient_quota", message="none", param=None)],
        LLMQuotaExceeded,
        "model 'm': none",
    ),
    "failed for a fault": (
        "responses",
        [event("response.failed", response=response("failed", error={"code": "server_error", "message": "it broke"}))],
        LLMUnavailable,
        "model 'm': it broke",
    ),
}


@pytest.mark.parametrize("name", FAILED)
async def test_an_answer_that_is_none_is_an_error_with_a_name(name: str) -> None:
    api, frames, kind, words = FAILED[name]
    async with ScriptedServer([Reply(frames=frames)]) as server:
        with pytest.raises(LLMError) as failed:
            await answered(server, api, retry=ONCE)
    assert type(failed.value) is kind and words in failed.value.message and not failed.value.hint.startswith("Raise")


async def test_the_end_of_a_response_may_have_its_text() -> None:
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    message["content"] = [{"type": "output_text", "text": "hello", "annotations": []}]  # type: ignore[assignment]  # a list
    frames = [event("response.completed", response=response(output=[message]))]
    async with ScriptedServer([Reply(frames=frames)]) as server:
        assert (await answered(server, "responses")).text == "hello"


async def test_a_context_that_is_full_cuts_an_answer_off() -> None:
    end = {"stop_reason": "model_context_window_exceeded"}
    frames = [
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hello"}),
        event("message_delta", delta=end, usage={"output_tokens": "20"}),
        event("message_stop"),
    ]
    async with ScriptedServer([Reply(frames=frames)]) as server:
        completion = await answered(server, "messages")
    assert (completion.finish_reason, completion.usage.output_tokens) == ("length", 20)


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
async def test_an_answer_far_beyond_its_limit_is_cut_off(field: str) -> None:
    """A server that ignores max_output_tokens is not read without end, even where no cap counts the answer."""
    frames = [HELLO, *[chunk({field: "blah " * 200}) for _ in range(1000)], STOP]
    async with ScriptedServer([Reply(frames=frames)]) as server:
        completion = await answered(server)
    assert completion.finish_reason == "length" and completion.text.startswith("hello")
    assert completion.usage.estimated and 300 <= completion.usage.output_tokens <= 700


@pytest.mark.parametrize("in_one_piece", [True, False])
@pytest.mark.parametrize("api", APIS)
async def test_a_byte_order_mark_before_the_first_event_loses_nothing(api: Api, in_one_piece: bool) -> None:
    path = {"chat": "chat/completions"}.get(api, api)
    frames = FRAMES[f"/v1/{path}"](Reply("hello"))
    if api == "chat":
        frames = [chunk({"content": "hello"}), *frames[-3:]]  # the text is in the first event
    frames = (
        [BOM_UTF8 + frames[0], *frames[1:]] if in_one_piece else [BOM_UTF8[:1], BOM_UTF8[1:] + frames[0], *frames[1:]]
    )
    async with ScriptedServer([Reply(frames=frames)]) as server:
        completion = await answered(server, api, retry=ONCE)
    assert (completion.text, completion.usage.input_tokens) == ("hello", 100)


async def test_a_wait_that_is_too_long_is_told() -> None:
    reply = replace(Reply(kind="rate_limited_seconds"), retry_after="7200")
    async with ScriptedServer([reply]) as server:
        with pytest.raises(LLMRateLimited) as failed:
            await answered(server)
    assert (
        len(server.seen) == 1
        and failed.value.hint == "The provider asks to come back in 120 minutes: resume the run then."
    )


async def test_an_error_in_a_list_is_read() -> None:
    body: Any = [{"error": {"code": 400, "message": "no such thing", "status": "INVALID_ARGUMENT"}}]
    async with ScriptedServer([Reply(kind="bad_request_400", body=body)]) as server:
        with pytest.raises(LLMError, match=r"model 'm': no such thing \(HTTP 400\)"):
            await answered(server)


DEEP, LONG = b"[" * 200_000, b"9" * 5000
UNDECODABLE = {
    "nested too deep": b"data: " + DEEP + b"\n\n",
    "a number too long": b'data: {"choices": [], "usage": {"completion_tokens": ' + LONG + b"}}\n\n",
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", UNDECODABLE)
async def test_json_that_python_does_not_decode_is_no_crash(name: str, api: Api) -> None:
    first = b"event: message_start\n" if api == "messages" else b""
    async with ScriptedServer([Reply(frames=[first + UNDECODABLE[name]])]) as server:
        with pytest.raises(LLMError, match="its answer is not JSON") as failed:
            await answered(server, api, retry=ONCE)
    assert isinstance(failed.value, LLMEmpty)


@pytest.mark.parametrize("api", APIS)
async def test_a_line_that_does_not_end_fills_no_memory(api: Api) -> None:
    endless = [b"data: ", *[b"a" * LINE_BYTES] * 20]
    async with ScriptedServer([Reply(frames=endless)]) as server:
        with pytest.raises(LLMEmpty, match="a line of its answer is longer than 8 MiB"):
            await answered(server, api, retry=ONCE)
        assert server.frames_sent < len(endless)


async def test_an_error_that_is_a_text_is_told() -> None:
    body = {"error": "the model is loading"}
    assert error_from(None, body, "m").message == "model 'm': the model is loading"


def test_a_web_page_behind_a_status_is_named_and_not_printed() -> None:
    class InternalServerError(Exception):
        status_code, body = 503, "<!DOCTYPE html><html><body>" + "x" * 1000

    class Known(InternalServerError):
        pass

    found = translate(Known(), {"InternalServerError": LLMUnavailable}, "m")
    assert found is not None and found.message == "model 'm': a web page came instead of an answer (HTTP 503)"
