"""Use any OpenAI-compatible endpoint through the official SDK: the APIs chat and responses, streamed.

This module sends single requests; :mod:`acceld.llm.model` has retries and limits, :mod:`acceld.llm.calls` the money.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType
from typing import Any

from acceld.llm.answer import count, entries, finished, part, record, words
from acceld.llm.client import Completion, CompletionRequest, Received
from acceld.llm.deadlines import DeadlineWatch
from acceld.llm.providers.connection import SdkClient
from acceld.llm.providers.translation import OPENAI, error_from, unstreamed
from acceld.model_calls import Usage

SHOWN = frozenset({"response.output_text.delta", "response.refusal.delta"})
"""Types of the events of a response that carry visible text."""


OPTIONAL = (
    "prompt_cache_key",
    "temperature",
    "seed",
    "stream_options",
    "reasoning_effort",
    "reasoning",
    "store",
    "max_completion_tokens",
)
"""Settings that may be dropped when an endpoint refuses them."""


class OpenAIClient(SdkClient):
    """One model behind an OpenAI-compatible endpoint, such as the endpoints of OpenAI, Azure and Amazon Bedrock."""

    errors = OPENAI
    optional = MappingProxyType({name: name for name in OPTIONAL})
    """Settings that are left out once the endpoint has refused them. ``max_completion_tokens`` is then sent as
    ``max_tokens``.
    """

    def load(self, common: dict[str, Any]) -> Any:
        """Import and set up the SDK."""
        import openai

        settings = self.settings
        # A redirect could carry prompt and key to another host.
        common["http_client"] = openai.DefaultAsyncHttpxClient(timeout=common["timeout"], follow_redirects=False)
        if settings.provider == "bedrock":
            client: Any = openai.AsyncBedrockOpenAI(**self.aws(), **common)
        elif settings.provider == "azure":
            endpoint = common.pop("base_url")
            client = openai.AsyncAzureOpenAI(
                azure_endpoint=endpoint, api_version=settings.api_version, **self.azure(), **common
            )
        else:
            client = openai.AsyncOpenAI(api_key=self.key, **common)
        _ = client.responses if settings.api == "responses" else client.chat.completions
        return client

    def answer(self) -> _Answer:
        """Return an empty record for an answer that will arrive."""
        return _Answer()

    def pieces(self, client: Any, request: CompletionRequest, answer: _Answer) -> AsyncGenerator[str | None]:
        """Send the request, fill ``answer``, and yield the visible text of each event: "" for reasoning, None for a
        keep-alive.
        """
        if self.settings.api == "responses":
            return self._responses(client, request, answer)
        return self._chat(client, request, answer)

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return the JSON body of one request, without the streaming flag and without settings that the endpoint
        refused.
        """
        if self.settings.api == "responses":
            settings: dict[str, Any] = {
                "input": request.user,
                "max_output_tokens": request.max_output_tokens,
                "instructions": request.system or None,
                "temperature": request.temperature,
                "reasoning": {"effort": self.settings.effort} if self.settings.effort else None,
                "store": False,
            }
        else:
            messages = [{"role": "user", "content": request.user}]
            if request.system:
                messages.insert(0, {"role": "system", "content": request.system})
            cap = "max_tokens" if "max_completion_tokens" in self.refused else "max_completion_tokens"
            settings = {
                "messages": messages,
                cap: request.max_output_tokens,
                "temperature": request.temperature,
                "seed": request.seed,
                "reasoning_effort": self.settings.effort,
            }
        if self.settings.provider == "openai" and self.settings.base_url is None and request.system:
            settings["prompt_cache_key"] = hashlib.sha256(request.system.encode()).hexdigest()[:32]
        known = {name: value for name, value in settings.items() if value is not None and name not in self.refused}
        if self.settings.tier is not None:  # service_tier is never left out: without it the price would be another
            known["service_tier"] = self.settings.tier.name
        return {"model": self.settings.model, **known}

    def whole(self, request: CompletionRequest, data: Mapping[str, Any]) -> Completion:
        """Return the completion in a whole, unstreamed answer. Raise LLMError if the answer has no completion."""
        answer = _Answer()
        answer.whole_response(data, self.settings.name) if self.settings.api == "responses" else answer.whole_chat(data)
        return finished(request, DeadlineWatch(self.settings.deadlines, self.settings.name), self.settings.name, answer)

    async def _chat(self, client: Any, request: CompletionRequest, answer: _Answer) -> AsyncGenerator[str | None]:
        settings = self.body(request) | self._extra()
        if not self.settings.stream:
            whole = await client.chat.completions.create(stream=False, **settings)
            yield answer.whole_chat(record(whole))
            return
        if "stream_options" not in self.refused:
            settings["stream_options"] = {"include_usage": True}
        stream = await client.chat.completions.create(stream=True, **settings)
        async with stream:
            answer.request_id = stream.response.headers.get("x-request-id", "")
            data = await unstreamed(stream.response, self.settings.name)
            if data is not None:
                yield answer.whole_chat(data)
                return
            async for chunk in stream:
                data = record(chunk)
                answer.chat_chunk(data)
                yield answer.chat_delta("delta", data)

    async def _responses(self, client: Any, request: CompletionRequest, answer: _Answer) -> AsyncGenerator[str | None]:
        settings = self.body(request) | self._extra()
        if not self.settings.stream:
            whole = await client.responses.create(stream=False, **settings)
            yield answer.whole_response(record(whole), self.settings.name)
            return
        stream = await client.responses.create(stream=True, **settings)
        async with stream:
            answer.request_id = stream.response.headers.get("x-request-id", "")
            data = await unstreamed(stream.response, self.settings.name)
            if data is not None:
                yield answer.whole_response(data, self.settings.name)
                return
            async for event in stream:
                data = record(event)
                kind = str(data.get("type"))
                if kind in ("response.completed", "response.incomplete", "response.failed"):
                    answer.response(part(data.get("response")), self.settings.name)
                    if not answer.begun:  # some gateways send the text with the end alone
                        yield answer.whole_response(part(data.get("response")), self.settings.name)
                elif kind.startswith("response.reasoning") and kind.endswith(".delta"):
                    answer.think(words(data.get("delta")))
                elif kind == "error":
                    raise error_from(None, data, self.settings.name)
                answer.refused = answer.refused or kind == "response.refusal.delta"
                if kind.endswith(".delta"):
                    yield answer.show(words(data.get("delta"))) if kind in SHOWN else ""
                else:
                    yield None

    def _extra(self) -> dict[str, Any]:
        return {"extra_body": dict(self.settings.extra_body)} if self.settings.extra_body else {}


class _Answer(Received):
    """The part of an answer of the chat or the responses API that has arrived so far."""

    def _served(self, data: Mapping[str, Any]) -> None:
        """Record the tier of service that the provider used. ``auto`` names no tier, so it is not recorded."""
        tier = str(data.get("service_tier") or "auto")
        self.tier = self.tier if tier == "auto" else tier

    def whole_chat(self, data: Mapping[str, Any]) -> str:
        """Record a whole, unstreamed answer of the chat API, and return its visible text."""
        self.request_id = str(data.get("id") or self.request_id)
        self.chat_chunk(data)
        return self.chat_delta("message", data)

    def whole_response(self, data: Mapping[str, Any], model: str) -> str:
        """Record a whole, unstreamed answer of the responses API, and return its visible text."""
        self.request_id = str(data.get("id") or self.request_id)
        self.response(data, model)
        messages = [part(entry).get("content") for entry in entries(data.get("output"))]
        parts = [part(one) for message in messages for one in entries(message)]
        self.refused = any(one.get("type") == "refusal" for one in parts)
        field = {"output_text": "text", "refusal": "refusal"}
        return self.show("".join(words(one.get(field.get(str(one.get("type")), ""))) for one in parts))

    def chat_chunk(self, data: Mapping[str, Any]) -> None:
        """Record what a chunk of the chat API, or a whole answer, has besides text: model, tokens, tier."""
        self.model = str(data.get("model") or self.model)
        self._served(data)
        self._count(data, "prompt_tokens", "completion_tokens")

    def _count(self, data: Mapping[str, Any], sent: str, received: str) -> None:
        """Record the token counts of an answer, if the answer has any. ``sent`` names the count of the prompt's tokens,
        ``received`` that of the answer's tokens.
        """
        usage = part(data.get("usage"))
        if not usage:
            return
        prompt, output = part(usage.get(f"{sent}_details")), part(usage.get(f"{received}_details"))
        self.is_counted = True
        self.usage = Usage(
            input_tokens=count(usage.get(sent)),
            cached_tokens=count(prompt.get("cached_tokens")),
            cache_written_tokens=count(prompt.get("cache_write_tokens")),
            output_tokens=count(usage.get(received)),
            reasoning_tokens=count(output.get("reasoning_tokens")),
        )

    def chat_delta(self, field: str, data: Mapping[str, Any]) -> str:
        """Record what the first choice of ``data`` adds: reasoning, a refusal, and the reason why the answer ended. Return
        the choice's visible text.

        ``field`` names the part of the choice that has these: ``delta`` in a chunk, ``message`` in a whole answer.
        """
        known = [part(one) for one in entries(data.get("choices")) if part(one).get("index") in (None, 0)]
        choice = known[0] if known else {}
        delta, reason = part(choice.get(field)), choice.get("finish_reason")
        if reason:
            self.stopped = "" if reason == "error" else str(reason)  # a gateway whose provider broke off
        self.think(words(delta.get("reasoning_content") or delta.get("reasoning")))
        self.refused = self.refused or bool(delta.get("refusal"))
        content = delta.get("content")
        if isinstance(content, list):  # parts of text and of reasoning, as Mistral sends them
            self.think(_told(content, "thinking"))
            content = _told(content, "text")
        return self.show(words(content or delta.get("refusal")))

    def response(self, data: Mapping[str, Any], model: str) -> None:
        """Record what the end of a response of ``model`` says: status, model, tokens. Raise LLMError if it failed."""
        self.model = str(data.get("model") or self.model)
        self._served(data)
        self._count(data, "input_tokens", "output_tokens")
        status = str(data.get("status") or "")
        if status == "failed":
            raise error_from(None, part(data.get("error")), model)
        reason = part(data.get("incomplete_details")).get("reason")
        self.stopped = {"max_output_tokens": "length", "content_filter": "content_filter"}.get(str(reason), "stop")


def _told(parts: list[Any], kind: str) -> str:
    """Return the text of the parts of a message that have the type ``kind``: ``text`` or ``thinking``."""
    found = [part(one).get(kind) for one in parts if part(one).get("type", "text") == kind]
    return "".join(_told(one, "text") if isinstance(one, list) else words(one) for one in found)
