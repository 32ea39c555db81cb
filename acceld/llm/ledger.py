"""Define the ledger of paid calls. An intent is stored before a call is sent, its outcome before the answer is used."""

from __future__ import annotations

import hashlib
from typing import Protocol

from acceld.llm.client import CompletionRequest
from acceld.model_calls import CallIntent, CallOutcome


class Ledger(Protocol):
    """Interface of the stored record of calls. Every write is durable when it returns."""

    async def answer(self, key: str) -> CallOutcome | None:
        """Return the stored outcome of an identical question, so that no answer is paid for twice; None if no outcome
        is stored.
        """
        ...

    async def intend(self, intent: CallIntent) -> int:
        """Store the intent to make a call, and return the call's id."""
        ...

    async def sent(self, call: int) -> None:
        """Record that the call's first request is about to be sent. From now on the call may be billed."""
        ...

    async def settle(self, call: int, outcome: CallOutcome) -> None:
        """Store a call's outcome: its answer or its error, tokens and cost."""
        ...


class MemoryLedger:
    """A ledger in memory, for tests and demonstrations."""

    def __init__(self) -> None:
        self.intents: dict[int, CallIntent] = {}
        self.outcomes: dict[int, CallOutcome] = {}
        self.marked: set[int] = set()

    async def answer(self, key: str) -> CallOutcome | None:
        """Return the stored outcome of an identical question; None if no outcome is stored."""
        for call, intent in self.intents.items():
            outcome = self.outcomes.get(call)
            if intent.key == key and outcome is not None and outcome.outcome == "answered":
                return outcome
        return None

    async def intend(self, intent: CallIntent) -> int:
        """Store the intent to make a call, and return the call's id."""
        call = len(self.intents) + 1
        self.intents[call] = intent
        return call

    async def sent(self, call: int) -> None:
        """Record that the call's first request is about to be sent."""
        self.marked.add(call)

    async def settle(self, call: int, outcome: CallOutcome) -> None:
        """Store a call's outcome."""
        self.outcomes[call] = outcome


def prompt_sha256(request: CompletionRequest) -> str:
    """Return the hash (hex) of the prompt."""
    digest = hashlib.sha256()
    for part in (request.system, request.user):
        digest.update(f"{len(part)}\0".encode())
        digest.update(part.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def question_key(request: CompletionRequest) -> str:
    """Return the hash (hex) of a question: its place in the run, the model and the prompt. Equal keys mean equal
    questions.
    """
    digest = hashlib.sha256(prompt_sha256(request).encode())
    for name, value in sorted(request.tags.items()):
        digest.update(f"{name}={value}\0".encode())
    digest.update(f"{request.role}\0{request.model}\0{request.max_output_tokens}\0{request.temperature}\0".encode())
    digest.update(f"{request.seed}".encode())
    return digest.hexdigest()
