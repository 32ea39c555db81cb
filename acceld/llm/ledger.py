"""Define the ledger of calls: the intent is stored before a call is made, the outcome before its answer is used."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from acceld.llm.client import Completion, CompletionRequest, Role, Usage
from acceld.llm.pricing import Price


@dataclass(frozen=True, slots=True)
class CallIntent:
    """A call about to be made."""

    key: str
    """Identity of the question: same place in the same run, same prompt, same settings."""
    role: Role
    model: str
    """acceld's name of the model."""
    provider: str
    prompt_sha256: str
    system: str
    user: str
    max_output_tokens: int
    reserved_usd: float | None
    """The highest possible cost of the call in USD; None if the price is unknown."""
    expected_usd: float | None = None
    """The cost in USD if the answer has the usual length; None if the price is unknown."""
    tags: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """Outcome of a call. ``cost_usd`` is None if the price is unknown."""

    outcome: str
    """``answered``, ``cancelled``, or an LLMError's ``outcome``."""
    usage: Usage
    cost_usd: float | None
    price: Price | None = None
    uncertain_usd: float = 0.0
    """Greatest further cost in USD, of requests that were given up before any of their answers arrived."""
    text: str = ""
    """The raw answer, or the part of it that had arrived."""
    reasoning: str = ""
    answered_by: str = ""
    request_id: str = ""
    finish_reason: str = ""
    first_token_s: float | None = None
    latency_s: float = 0.0
    retries: int = 0
    error: str = ""


class Ledger(Protocol):
    """Record of calls. Both writes are durable when they return."""

    async def answer(self, key: str) -> Completion | None:
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

    async def answer(self, key: str) -> Completion | None:
        """Return the stored answer to an identical request."""
        for call, intent in self.intents.items():
            outcome = self.outcomes.get(call)
            if intent.key == key and outcome is not None and outcome.outcome == "answered":
                return Completion(
                    outcome.text,
                    outcome.answered_by,
                    outcome.usage,
                    request_id=outcome.request_id,
                    finish_reason=outcome.finish_reason,
                    reasoning=outcome.reasoning,
                )
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
