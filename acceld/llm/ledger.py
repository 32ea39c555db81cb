"""Define the ledger of calls: the intent is stored before a call is made, the outcome before its answer is used."""

from __future__ import annotations

import hashlib
from typing import Protocol

from acceld.llm.client import CompletionRequest
from acceld.model_calls import CallIntent, CallOutcome


class Ledger(Protocol):
    """Record of calls. Both writes are durable when they return."""

    async def answer(self, key: str) -> CallOutcome | None:
        """Return the stored answer to an identical request, so that it is never paid for twice."""
        ...

    async def intend(self, intent: CallIntent) -> int:
        """Store the intent. Return the call's id."""
        ...

    async def sent(self, call: int) -> None:
        """Record that the call's first request is sent now, so that it may be billed from now on."""
        ...

    async def settle(self, call: int, outcome: CallOutcome) -> None:
        """Store the outcome."""
        ...


class MemoryLedger:
    """A ledger in memory, for tests and demonstrations."""

    def __init__(self) -> None:
        self.intents: dict[int, CallIntent] = {}
        self.outcomes: dict[int, CallOutcome] = {}
        self.marked: set[int] = set()

    async def answer(self, key: str) -> CallOutcome | None:
        """Return the stored answer to an identical request."""
        for call, intent in self.intents.items():
            outcome = self.outcomes.get(call)
            if intent.key == key and outcome is not None and outcome.outcome == "answered":
                return outcome
        return None

    async def intend(self, intent: CallIntent) -> int:
        """Store the intent. Return the call's id."""
        call = len(self.intents) + 1
        self.intents[call] = intent
        return call

    async def sent(self, call: int) -> None:
        """Record that the call's first request is sent."""
        self.marked.add(call)

    async def settle(self, call: int, outcome: CallOutcome) -> None:
        """Store the outcome."""
        self.outcomes[call] = outcome


def prompt_sha256(request: CompletionRequest) -> str:
    """Return the hash (hex) of the prompt."""
    digest = hashlib.sha256()
    for part in (request.system, request.user):
        digest.update(f"{len(part)}\0".encode())
        digest.update(part.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def question_key(request: CompletionRequest) -> str:
    """Return the hash (hex) of the question: its place in the run, the model, and the prompt."""
    digest = hashlib.sha256(prompt_sha256(request).encode())
    for name, value in sorted(request.tags.items()):
        digest.update(f"{name}={value}\0".encode())
    digest.update(f"{request.role}\0{request.model}\0{request.max_output_tokens}\0{request.temperature}\0".encode())
    digest.update(f"{request.seed}".encode())
    return digest.hexdigest()
