"""Use Anthropic's Messages API through the official SDK: streamed, with prompt caching and thinking.

The system text has two parts, each marked for the prompt cache. All calls of a run share the first part. All calls on
one parent share the second part too. No sampling parameters are sent, because current models take none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType
from typing import Any

from acceld.llm.answer import count, entries, finished, part, record, words
from acceld.llm.client import Completion, CompletionRequest, Received
from acceld.llm.deadlines import DeadlineWatch
from acceld.llm.errors import LLMTimedOut
from acceld.llm.providers.connection import SdkClient
from acceld.llm.providers.translation import ANTHROPIC, translated, unstreamed
from acceld.model_calls import Usage

COUNTING_S = 20.0
"""Longest wait in seconds for a count of tokens. People do not wait longer for a forecast."""


class AnthropicClient(SdkClient):
    """One model behind the Messages API of Anthropic, Amazon, Google's Vertex AI or Microsoft Foundry."""

    errors = ANTHROPIC
    optional = MappingProxyType({"thinking": "thinking", "output_config": "effort", "effort": "effort"})

    def refuse(self, parameter: str) -> None:
        """Leave out, from now on, the setting that the endpoint refused. A model that refuses a fixed thinking budget
        is asked to think adaptively.
        """
        is_thinking, adaptive = parameter.startswith("thinking"), self.settings.adaptive
        if is_thinking and self.settings.thinking_tokens and not adaptive and "thinking_tokens" not in self.refused:
            self.refused.add("thinking_tokens")
        elif (adaptive or self.settings.thinking_tokens) if is_thinking else self.settings.effort:
            super().refuse(parameter)

    def load(self, common: dict[str, Any]) -> Any:
        """Import and set up the SDK."""
        import anthropic

        settings = self.settings
        # A redirect could carry prompt and key to another host.
        common["http_client"] = anthropic.DefaultAsyncHttpxClient(timeout=common["timeout"], follow_redirects=False)
        if settings.provider == "bedrock":
            client: Any = anthropic.AsyncAnthropicBedrock(**self.aws(), **common)
        elif settings.provider == "mantle":
            client = anthropic.AsyncAnthropicBedrockMantle(**self.aws(), **common)
        elif settings.provider == "claude_aws":
            client = anthropic.AsyncAnthropicAWS(workspace_id=settings.project or None, **self.aws(), **common)
        elif settings.provider == "foundry":
            client = anthropic.AsyncAnthropicFoundry(**self.azure(), **common)
        elif settings.provider == "vertex":
            client = anthropic.AsyncAnthropicVertex(**self.google(), **common)
        else:
            client = anthropic.AsyncAnthropic(api_key=self.key, **common)
        _ = client.messages
        return client

    def answer(self) -> _Answer:
        """Return an empty record for an answer that will arrive."""
        return _Answer()

    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return the JSON body of one request, without the streaming flag."""
        settings: dict[str, Any] = {
            "model": self.settings.model,
            "max_tokens": request.max_output_tokens,
            "messages": [{"role": "user", "content": request.user}],
        }
        if request.system:
            cache = {"type": "ephemeral"} | ({"ttl": "1h"} if self.settings.cache == "1h" else {})
            parts = (request.system[: request.shared_chars], request.system[request.shared_chars :])
            settings["system"] = [{"type": "text", "text": part, "cache_control": cache} for part in parts if part]
        if "thinking" in self.refused:
            pass
        elif self.settings.adaptive or "thinking_tokens" in self.refused:
            settings["thinking"] = {"type": "adaptive"}
        elif self.settings.thinking_tokens is not None:
            tokens = min(self.settings.thinking_tokens, request.max_output_tokens - 1)
            settings["thinking"] = {"type": "enabled", "budget_tokens": tokens}
        if self.settings.effort and "effort" not in self.refused:
            settings["output_config"] = {"effort": self.settings.effort}
        return settings

    async def count(self, request: CompletionRequest) -> int:
        """Return the number of tokens of a request's prompt, as the provider counts them free of charge.

        Raise LLMError if the provider gave no number in time.
        """

        async def count() -> int:
            body = {name: value for name, value in self.body(request).items() if name != "max_tokens"}
            extra = {"extra_body": dict(self.settings.extra_body)} if self.settings.extra_body else {}
            async with asyncio.timeout(COUNTING_S):
                return int((await (await self.sdk()).messages.count_tokens(**body, **extra)).input_tokens)

        name = self.settings.name
        try:
            return await self.accepted(lambda: translated(count, ANTHROPIC, name, self.key))
        except TimeoutError as error:
            message = f"model {name!r}: tokens were not counted within {COUNTING_S:g} s"
            raise LLMTimedOut(message, deadline="total_s") from error

    def whole(self, request: CompletionRequest, data: Mapping[str, Any]) -> Completion:
        """Return the completion in a whole, unstreamed answer. Raise LLMError if the answer has no completion."""
        answer = _Answer()
        answer.message(data)
        return finished(request, DeadlineWatch(self.settings.deadlines, self.settings.name), self.settings.name, answer)

    async def pieces(self, client: Any, request: CompletionRequest, answer: _Answer) -> AsyncGenerator[str | None]:
        """Send the request, fill ``answer``, and yield the visible text of each event: "" for reasoning, None for a
        keep-alive.
        """
        settings = self.body(request)
        if self.settings.extra_body:
            settings["extra_body"] = dict(self.settings.extra_body)
        if not self.settings.stream:
            whole = await client.messages.create(stream=False, **settings)
            yield answer.message(record(whole))
            return
        stream = await client.messages.create(stream=True, **settings)
        async with stream:
            answer.request_id = stream.response.headers.get("request-id", "")
            data = await unstreamed(stream.response, self.settings.name)
            if data is not None:
                yield answer.message(data)
                return
            async for event in stream:
                yield answer.event(record(event))


_ENDS = {"refusal": "content_filter", "max_tokens": "length", "model_context_window_exceeded": "length"}


class _Answer(Received):
    """The part of an answer that has arrived so far."""

    def message(self, data: Mapping[str, Any]) -> str:
        """Record a whole, unstreamed answer, and return its visible text."""
        self.request_id = str(data.get("id") or "")
        self._start(data)
        self._stop(data)
        self.is_counted = bool(data.get("usage"))
        for block in entries(data.get("content")):
            self.show(words(part(block).get("text")))
            self.think(words(part(block).get("thinking")))
        return "".join(self.text)

    def event(self, data: Mapping[str, Any]) -> str | None:
        """Record one event, and return its visible text: "" for reasoning, None for a keep-alive."""
        kind = data.get("type")
        if kind == "message_start":
            self._start(part(data.get("message")))
        elif kind == "message_delta":
            self._stop(part(data.get("delta")))
            self._count(part(data.get("usage")))
            self.is_counted = bool(data.get("usage"))
        elif kind == "content_block_delta":
            delta = part(data.get("delta"))
            self.think(words(delta.get("thinking")))
            return self.show(words(delta.get("text")))
        return None

    def _stop(self, data: Mapping[str, Any]) -> None:
        reason = str(data.get("stop_reason") or "")
        self.stopped = _ENDS.get(reason, "stop" if reason else "")

    def _start(self, message: Mapping[str, Any]) -> None:
        self.model = str(message.get("model") or "")
        self._count(part(message.get("usage")))

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Record the token counts of an answer. Anthropic's ``input_tokens`` leave out tokens read from or written to
        the cache; acceld's ``input_tokens`` count the whole prompt.
        """
        before = self.usage or Usage()
        cached = usage.get("cache_read_input_tokens")
        written = usage.get("cache_creation_input_tokens")
        cached = before.cached_tokens if cached is None else count(cached)
        written = before.cache_written_tokens if written is None else count(written)
        fresh = usage.get("input_tokens")
        if fresh is None:
            fresh = before.input_tokens - before.cached_tokens - before.cache_written_tokens
        details = part(usage.get("output_tokens_details"))
        self.usage = Usage(
            input_tokens=count(fresh) + cached + written,
            cached_tokens=cached,
            cache_written_tokens=written,
            output_tokens=count(usage.get("output_tokens")) or before.output_tokens,
            reasoning_tokens=count(details.get("thinking_tokens") or details.get("reasoning_tokens")),
        )
