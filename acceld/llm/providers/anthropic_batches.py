"""Use Anthropic's message batches through the official SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from acceld.llm.client import Completion, CompletionRequest
from acceld.llm.errors import LLMTimedOut, LLMUnavailable
from acceld.llm.providers.anthropic import AnthropicClient
from acceld.llm.providers.translation import ANTHROPIC, error_from, translated
from acceld.model_calls import OpenBatch


class AnthropicBatches:
    """The batch mode of one Anthropic model. A question's key is the custom id of its request."""

    def __init__(self, client: AnthropicClient, *, poll_s: float = 30.0) -> None:
        """Prepare the client. :meth:`find` asks every ``poll_s`` seconds whether a batch that may be the wanted one
        has ended.
        """
        self._client = client
        self._name = client.settings.name
        self._poll_s = poll_s

    async def send(self, token: str, requests: Mapping[str, CompletionRequest]) -> str:
        """Send requests, given by their keys, as one batch. Return the batch's id."""
        extra = dict(self._client.settings.extra_body)
        listed: Any = [
            {"custom_id": key, "params": self._client.body(request) | extra} for key, request in requests.items()
        ]

        async def send() -> str:
            batch = await (await self._client.sdk()).messages.batches.create(requests=listed)
            return str(batch.id)

        return await translated(send, ANTHROPIC, self._name)

    async def find(self, batch: OpenBatch, since: float) -> str | None:
        """Return the id of the batch that answers one of the given batch's questions; None if no batch does.

        Batches have no names. So the answers of batches of the same size are read, which is possible only after a batch
        has ended.
        """

        async def find() -> str | None:
            sdk = await self._client.sdk()
            async for one in sdk.messages.batches.list(limit=100):
                if one.created_at.timestamp() < since:
                    return None
                counts = one.request_counts
                size = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
                if size != len(batch.keys):
                    continue
                if not set(batch.keys).isdisjoint(await self._ended(one.id)):
                    return str(one.id)
            return None

        return await translated(find, ANTHROPIC, self._name)

    async def answers(self, batch: str) -> Mapping[str, Mapping[str, Any]] | None:
        """Return the raw results by key; None while the batch still runs."""
        return await translated(lambda: self._results(batch), ANTHROPIC, self._name)

    async def _ended(self, batch: str) -> Mapping[str, Mapping[str, Any]]:
        while True:
            found = await self._results(batch)
            if found is not None:
                return found
            await asyncio.sleep(self._poll_s)

    async def _results(self, batch: str) -> Mapping[str, Mapping[str, Any]] | None:
        batches = (await self._client.sdk()).messages.batches
        if (await batches.retrieve(batch)).processing_status != "ended":
            return None
        return {row.custom_id: row.result.model_dump() async for row in await batches.results(batch)}

    def read(self, request: CompletionRequest, raw: Mapping[str, Any]) -> Completion:
        """Return the completion in one raw result. Raise LLMError if the request failed, expired or was canceled."""
        kind = raw.get("type")
        if kind == "succeeded":
            return self._client.whole(request, raw["message"])
        if kind == "errored":
            raise error_from(400, raw["error"], self._name)
        if kind == "expired":
            raise LLMTimedOut(
                f"model {self._name!r}: the batch ended before this request",
                deadline="total_s",
                hint="resume the run, or set batch = false in acceld.toml",
            )
        raise LLMUnavailable(
            f"model {self._name!r}: the batch was canceled", hint="resume the run: the question is asked again"
        )

    async def close(self) -> None:
        """Close the connections to the model's endpoint."""
        await self._client.close()
