"""Use OpenAI's batches through the official SDK: a file of requests, a batch, a file of answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from acceld.llm.answer import part
from acceld.llm.client import Completion, CompletionRequest
from acceld.llm.errors import LLMBadRequest
from acceld.llm.providers.openai import OpenAIClient
from acceld.llm.providers.translation import OPENAI, error_from, translated
from acceld.model_calls import OpenBatch

TOKEN = "acceld_batch"
"""Key, in a batch's metadata, of the token that acceld gave the batch."""

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}
ENDED = frozenset({"completed", "expired", "cancelled"})


class OpenAIBatches:
    """The batch mode of one OpenAI model."""

    def __init__(self, client: OpenAIClient) -> None:
        self._client = client
        self._name = client.settings.name

    async def send(self, token: str, requests: Mapping[str, CompletionRequest]) -> str:
        """Upload the requests, given by their keys, as a file, and start a batch. Return the batch's id."""
        path: Any = PATHS[self._client.settings.api]
        extra = dict(self._client.settings.extra_body)
        lines = [
            json.dumps(
                {"custom_id": key, "method": "POST", "url": path, "body": self._client.body(request) | extra},
                ensure_ascii=False,
            )
            for key, request in requests.items()
        ]

        async def send() -> str:
            sdk = await self._client.sdk()
            content = ("\n".join(lines) + "\n").encode("utf-8", "replace")
            file = await sdk.files.create(file=(f"{token}.jsonl", content), purpose="batch")
            batch = await sdk.batches.create(
                completion_window="24h", endpoint=path, input_file_id=file.id, metadata={TOKEN: token}
            )
            return str(batch.id)

        return await translated(send, OPENAI, self._name)

    async def find(self, batch: OpenBatch, since: float) -> str | None:
        """Return the id of the batch whose metadata has the given batch's token; None if no batch has that token."""

        async def find() -> str | None:
            async for one in (await self._client.sdk()).batches.list(limit=100):
                if one.created_at < since:
                    return None
                if (one.metadata or {}).get(TOKEN) == batch.token:
                    return str(one.id)
            return None

        return await translated(find, OPENAI, self._name)

    async def answers(self, batch: str) -> Mapping[str, Mapping[str, Any]] | None:
        """Return the raw answers and errors by key; None while the batch still runs."""

        async def answers() -> Mapping[str, Mapping[str, Any]] | None:
            sdk = await self._client.sdk()
            state = await sdk.batches.retrieve(batch)
            if state.status == "failed":
                problems = (state.errors.data if state.errors else None) or []
                text = "; ".join(str(problem.message) for problem in problems) or "it failed"
                raise LLMBadRequest(f"model {self._name!r}: batch {batch}: {text}")
            if state.status not in ENDED:
                return None
            found: dict[str, Mapping[str, Any]] = {}
            for file in filter(None, (state.error_file_id, state.output_file_id)):
                lines = (await sdk.files.content(file)).text.split("\n")  # JSON texts may hold other line separators
                found |= {row["custom_id"]: row for row in map(json.loads, filter(str.strip, lines))}
            return found

        return await translated(answers, OPENAI, self._name)

    def read(self, request: CompletionRequest, raw: Mapping[str, Any]) -> Completion:
        """Return the completion in one raw answer. Raise LLMError if the request failed."""
        response = part(raw.get("response"))
        body, status = part(response.get("body")), response.get("status_code")
        if status == 200:
            return self._client.whole(request, body)
        raise error_from(status, raw.get("error") or body, self._name)

    async def close(self) -> None:
        """Close the connections to the model's endpoint."""
        await self._client.close()
