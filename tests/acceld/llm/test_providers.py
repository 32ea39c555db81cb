"""Both SDKs and three APIs, with a real server on loopback that answers well or fails in every way."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from acceld.llm.errors import (
    LLMBadRequest,
    LLMContentFiltered,
    LLMContextTooLong,
    LLMEmpty,
    LLMError,
    LLMInterrupted,
    LLMQuotaExceeded,
    LLMRateLimited,
    LLMRefused,
    LLMTimedOut,
    LLMUnavailable,
    LLMUnknownModel,
    LLMUnsupportedParameter,
)
from acceld.llm.limits import Limits
from acceld.llm.model import connect
from acceld.llm.settings import Api, Deadlines, ModelSettings
from tests.acceld.llm.models import APIS, QUICK, ask, model_for, settings_for
from tests.acceld.llm.server import FAULTS, Reply, ScriptedServer

TEXT = "Here is a kernel:\n```python\ndef kernel(x):\n    return x\n```\n"

EXPECTED: dict[str, tuple[type[LLMError], ...]] = {
    "rate_limited_seconds": (LLMRateLimited,),
    "rate_limited_date": (LLMRateLimited,),
    "rate_limited_bare": (LLMRateLimited,),
    "quota": (LLMQuotaExceeded,),
    "timeout_408": (LLMUnavailable,),
    "conflict_409": (LLMUnavailable,),
    "error_500": (LLMUnavailable,),
    "bad_gateway_502": (LLMUnavailable,),
    "unavailable_503": (LLMUnavailable,),
    "overloaded_529": (LLMUnavailable,),
    "unauthorized_401": (LLMRefused,),
    "forbidden_403": (LLMRefused,),
    "bad_request_400": (LLMBadRequest,),
    "not_found_404": (LLMUnknownModel,),
    "too_long_400": (LLMContextTooLong,),
    "too_long_413": (LLMContextTooLong,),
    "reset": (LLMUnavailable,),
    "hang_before_headers": (LLMTimedOut,),
    "slow_first_token": (LLMTimedOut,),
    "idle_stall": (LLMTimedOut,),
    "trickle": (LLMTimedOut,),
    "drop_mid_stream": (LLMInterrupted,),
    "truncated_sse": (LLMInterrupted,),
    "error_mid_stream": (LLMInterrupted,),
    "bad_json": (LLMInterrupted,),
    "bad_utf8": (LLMInterrupted,),
    "html_200": (LLMBadRequest,),
    "credit_400": (LLMQuotaExceeded,),
    "payment_402": (LLMQuotaExceeded,),
    "credit_mid_stream": (LLMQuotaExceeded,),
    "redirect_307": (LLMBadRequest,),
    "effort_400": (LLMUnsupportedParameter,),
    "empty_choices": (LLMInterrupted, LLMUnavailable),
    "empty_answer": (LLMEmpty,),
    "content_filter": (LLMContentFiltered,),
}

ONCE = frozenset(
    "quota credit_400 payment_402 credit_mid_stream redirect_307 effort_400 unauthorized_401 forbidden_403 bad_request_400 not_found_404 too_long_400 too_long_413 idle_stall "
    "drop_mid_stream truncated_sse error_mid_stream bad_json bad_utf8 html_200 empty_answer content_filter".split()
)
"""Faults after which sending the same request again would be useless or would pay twice."""


STALL = Deadlines(connect_s=10.0, first_token_s=20.0, idle_s=0.3, total_s=40.0)

DEADLINES = {"hang_before_headers": QUICK, "slow_first_token": QUICK, "trickle": QUICK, "idle_stall": STALL}
"""Faults that only a deadline ends."""


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_comes_with_its_tokens_model_and_request_id(api: Api, stream: bool) -> None:
    reply = Reply(TEXT, input_tokens=100, cached_tokens=60)
    async with ScriptedServer(default=reply) as server:
        model = model_for(server, api, stream=stream)
        answer = await model.complete(ask())
        await model.close()
    assert answer.text == TEXT
    assert answer.model == "served-model" and answer.request_id
    usage = answer.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (100, 60, 20)
    assert not usage.estimated and answer.retries == 0 and answer.finish_reason == "stop"
    assert answer.first_token_s is not None and answer.first_token_s <= answer.latency_s


@pytest.mark.parametrize("api", APIS)
async def test_reasoning_is_kept_apart_from_the_answer(api: Api) -> None:
    async with ScriptedServer(default=Reply(TEXT, reasoning="hmm, tiles")) as server:
        model = model_for(server, api)
        answer = await model.complete(ask())
        await model.close()
    assert answer.text == TEXT and answer.reasoning == "hmm, tiles"


@pytest.mark.parametrize("api", APIS)
async def test_an_answer_cut_at_its_limit_says_so(api: Api) -> None:
    async with ScriptedServer(default=Reply(TEXT, finish="length")) as server:
        model = model_for(server, api)
        answer = await model.complete(ask())
        await model.close()
    assert answer.finish_reason == "length" and answer.text == TEXT


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_tokens_that_are_not_reported_are_estimated(api: Api) -> None:
    async with ScriptedServer(default=Reply(TEXT, usage=False)) as server:
        model = model_for(server, api)
        answer = await model.complete(ask())
        await model.close()
    assert answer.usage.estimated and answer.usage.output_tokens > 5


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", FAULTS)
async def test_every_fault_becomes_an_error_of_ours(api: Api, kind: str) -> None:
    async with ScriptedServer(default=Reply(TEXT, kind=kind)) as server:
        model = model_for(server, api, deadlines=DEADLINES.get(kind, Deadlines()))
        with pytest.raises(EXPECTED[kind]) as caught:
            await model.complete(ask())
        await model.close()
    error = caught.value
    requests = len(server.seen)
    if kind in ONCE:
        assert requests == 1
    elif isinstance(error, LLMTimedOut):
        assert requests <= 2
    elif not isinstance(error, LLMInterrupted):
        assert requests == model.settings.retry.max_tries == error.tries
    if kind in ("drop_mid_stream", "truncated_sse", "idle_stall", "error_mid_stream"):
        assert error.partial and TEXT.startswith(error.partial)
    assert "sk-test" not in str(error)


@pytest.mark.parametrize("api", APIS)
async def test_a_redirect_sends_neither_prompt_nor_key_elsewhere(api: Api) -> None:
    async with ScriptedServer() as other:
        reply = Reply(kind="redirect_307", location=other.base_url)
        async with ScriptedServer(default=reply) as server:
            model = model_for(server, api)
            with pytest.raises(LLMBadRequest, match=f"redirects to {other.base_url}, and nothing was sent there"):
                await model.complete(ask())
            await model.close()
    assert (len(server.seen), other.seen) == (1, [])


@pytest.mark.parametrize("api", APIS)
async def test_a_server_that_does_not_run_is_named_with_its_address(api: Api) -> None:
    model = model_for(ScriptedServer(), api)  # port 0, on which nobody can listen
    with pytest.raises(LLMUnavailable, match=r"no connection to http://127\.0\.0\.1:0: .") as caught:
        await model.complete(ask())
    await model.close()
    assert "base_url" in caught.value.hint


@pytest.mark.parametrize("api", APIS)
async def test_a_list_of_what_is_wrong_in_a_request_is_shown(api: Api) -> None:
    error = {"detail": [{"loc": ["query"], "msg": "field required"}]}
    async with ScriptedServer(default=Reply(kind="bad_request_400", body=error)) as server:
        model = model_for(server, api)
        with pytest.raises(LLMBadRequest, match="field required"):
            await model.complete(ask())
        await model.close()


def test_there_are_at_least_twenty_kinds_of_fault() -> None:
    assert len(FAULTS) >= 20 and set(FAULTS) == set(EXPECTED)


@pytest.mark.parametrize("api", APIS)
async def test_a_stumbling_provider_is_ridden_out(api: Api) -> None:
    faults = ["rate_limited_seconds", "unavailable_503", "reset"]
    async with ScriptedServer([Reply(kind=kind) for kind in faults], Reply(TEXT)) as server:
        model = model_for(server, api)
        answer = await model.complete(ask())
        await model.close()
    assert answer.text == TEXT and answer.retries == 3 and len(server.seen) == 4


@pytest.mark.parametrize(("kind", "deadline"), [("slow_first_token", "first_token_s"), ("idle_stall", "idle_s")])
async def test_a_passed_deadline_is_named(kind: str, deadline: str) -> None:
    async with ScriptedServer(default=Reply(TEXT, kind=kind)) as server:
        model = model_for(server, deadlines=DEADLINES[kind])
        with pytest.raises(LLMTimedOut, match=deadline) as caught:
            await model.complete(ask())
        await model.close()
    assert caught.value.deadline == deadline


async def test_a_trickling_answer_ends_at_the_total() -> None:
    deadlines = Deadlines(connect_s=2.0, first_token_s=30.0, idle_s=30.0, total_s=0.7)
    async with ScriptedServer(default=Reply(TEXT, kind="trickle")) as server:
        model = model_for(server, deadlines=deadlines)
        with pytest.raises(LLMTimedOut) as caught:
            await model.complete(ask())
        await model.close()
    assert caught.value.deadline == "total_s" and len(server.seen) == 1


async def test_nobody_listening_is_unavailable() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    model = connect(ModelSettings("m", "m", base_url=f"http://127.0.0.1:{port}/v1"), {})
    with pytest.raises(LLMUnavailable):
        await model._client.complete(ask())
    await model.close()


async def test_only_what_was_configured_is_sent() -> None:
    async with ScriptedServer() as server:
        model = model_for(server)
        await model.complete(ask())
        await model.close()
    assert set(server.seen[0].body) == {"model", "messages", "stream", "stream_options", "max_completion_tokens"}


async def test_a_refused_setting_is_left_out_from_then_on() -> None:
    async with ScriptedServer(default=Reply(TEXT, refuses="temperature")) as server:
        model = model_for(server)
        for _ in range(2):
            assert (await model.complete(ask(temperature=0.7))).text == TEXT
        await model.close()
    assert ["temperature" in seen.body for seen in server.seen] == [True, False, False]


async def test_an_older_server_gets_the_older_name_of_the_token_limit() -> None:
    async with ScriptedServer(default=Reply(TEXT, refuses="max_completion_tokens")) as server:
        model = model_for(server)
        await model.complete(ask())
        await model.close()
    assert server.seen[1].body["max_tokens"] == 100


async def test_anthropic_gets_a_cached_system_text_and_no_sampling_parameters() -> None:
    async with ScriptedServer() as server:
        model = model_for(server, "messages", thinking_tokens=50)
        await model.complete(ask(temperature=0.7, seed=3))
        await model.close()
    body = server.seen[0].body
    assert body["system"] == [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}]
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 50}
    assert not {"temperature", "top_p", "top_k", "seed"} & set(body)


def test_a_missing_key_names_the_variable() -> None:
    with pytest.raises(LLMRefused, match="OPENAI_API_KEY") as caught:
        connect(ModelSettings("fast", "gpt-5"), {})
    assert caught.value.exit_code == 4
    with pytest.raises(LLMRefused, match="MY_KEY"):
        connect(ModelSettings("fast", "x", base_url="http://127.0.0.1:1", key_env="MY_KEY"), {})


async def test_the_usual_key_is_not_sent_to_another_endpoint() -> None:
    async with ScriptedServer() as server:
        model = connect(settings_for(server), {"OPENAI_API_KEY": "sk-real"})
        await model.complete(ask())
        await model.close()
    assert "sk-real" not in server.seen[0].headers["authorization"]


async def test_no_more_calls_at_once_than_allowed() -> None:
    async with ScriptedServer() as server:
        model = model_for(server, limits=Limits(concurrency=3))
        await asyncio.gather(*(model.complete(ask(user=f"say {n}")) for n in range(20)))
        await model.close()
    assert len(server.seen) == 20 and server.most_active <= 3


async def test_a_prompt_that_can_not_fit_is_never_sent() -> None:
    async with ScriptedServer() as server:
        model = model_for(server, context_tokens=50)
        with pytest.raises(LLMContextTooLong, match="do not fit 50"):
            await model.complete(ask())
        await model.close()
    assert not server.seen


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_by_the_model_is_no_answer(api: Api, stream: bool) -> None:
    async with ScriptedServer(default=Reply("I can not help with that.", declines=True)) as server:
        model = model_for(server, api, stream=stream)
        with pytest.raises(LLMContentFiltered) as caught:
            await model.complete(ask())
        await model.close()
    assert caught.value.partial == "I can not help with that." and len(server.seen) == 1
    assert caught.value.usage is not None and caught.value.usage.output_tokens == 20


async def test_a_model_that_takes_no_thinking_budget_thinks_adaptively() -> None:
    def answer(body: dict[str, Any]) -> Reply:
        fixed = body.get("thinking", {}).get("type") == "enabled"
        return Reply(TEXT, refuses="thinking" if fixed else "", refusal="anthropic")

    async with ScriptedServer(answer=answer) as server:
        model = model_for(server, "messages", thinking_tokens=50)
        for _ in range(2):
            assert (await model.complete(ask())).text == TEXT
        both = await asyncio.gather(model.complete(ask()), model.complete(ask()))
        await model.close()
    assert [one.text for one in both] == [TEXT, TEXT]
    kinds = [seen.body["thinking"]["type"] for seen in server.seen]
    assert kinds == ["enabled", "adaptive", "adaptive", "adaptive", "adaptive"]
    assert model.dropped == ("thinking_tokens",)


async def test_calls_at_once_learn_of_a_refused_thinking_budget_together() -> None:
    def answer(body: dict[str, Any]) -> Reply:
        fixed = body.get("thinking", {}).get("type") == "enabled"
        return Reply(TEXT, refuses="thinking" if fixed else "", refusal="anthropic")

    async with ScriptedServer(answer=answer) as server:
        model = model_for(server, "messages", thinking_tokens=50)
        await asyncio.gather(*(model.complete(ask()) for _ in range(4)))
        await model.close()
    assert model.dropped == ("thinking_tokens",), "adaptive thinking was never refused"


async def test_an_anthropic_model_without_efforts_is_asked_without() -> None:
    def answer(body: dict[str, Any]) -> Reply:
        has_effort = "effort" in body.get("output_config", {})
        return Reply(TEXT, kind="effort_400" if has_effort else "ok")

    async with ScriptedServer(answer=answer) as server:
        model = model_for(server, "messages", effort="high")
        assert (await model.complete(ask())).text == TEXT
        await model.close()
    assert model.dropped == ("effort",)
