"""Define the interface of a model, and the records of its requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from acceld.model_calls import Usage as Usage  # noqa: PLC0414  # plug-ins import it from here

Role = Literal["planner", "executor", "fixer", "summarizer"]
ROLES: tuple[Role, ...] = ("planner", "executor", "fixer", "summarizer")


@dataclass(slots=True)
class Received:
    """The part of an answer that has arrived so far."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    usage: Usage | None = None
    """Tokens the provider has reported so far."""
    is_counted: bool = False
    """True once ``usage`` counts the whole answer. A Messages stream first reports the prompt's tokens alone."""
    model: str = ""
    tier: str = ""
    """The tier of service that the provider has reported."""
    request_id: str = ""
    stopped: str = ""
    """``stop``, ``length`` or ``content_filter``; empty if the stream just ended."""
    chars: int = 0
    """Number of characters of text and reasoning that have arrived."""
    pieces: int = 0
    """Number of pieces of text and reasoning that have arrived."""
    refused: bool = False
    """True if the model declined to answer; its text then states the reason."""

    def show(self, text: str) -> str:
        """Add visible text to the answer, and return the text."""
        self.text.append(text)
        self._count_piece(text)
        return text

    def think(self, text: str) -> None:
        """Add reasoning to the answer."""
        self.reasoning.append(text)
        self._count_piece(text)

    def _count_piece(self, text: str) -> None:
        self.chars += len(text)
        self.pieces += bool(text)

    @property
    def begun(self) -> bool:
        """Tell whether any text or reasoning has arrived."""
        return any(self.text) or any(self.reasoning)


class Progress(Protocol):
    """Interface of an object that is told of each request of a call. Where money is counted, that is
    :class:`acceld.llm.meter.Meter`.
    """

    async def sending(self, answer: Received) -> None:
        """Report that a request is about to be sent. The client fills ``answer`` as pieces arrive.

        Raise BudgetError if there is no money for the request.
        """
        ...

    def failed(self, error: Exception) -> None:
        """Report that the last request failed. The client may send another request."""
        ...

    def affords(self, tokens: int) -> bool:
        """Return True if there is money for an answer of ``tokens`` tokens, which may be more than the request allows.
        If the result is False, the client cuts the answer off.
        """
        ...


@dataclass(frozen=True, slots=True)
class Lengths:
    """The usual lengths of answers. If the provider does not report the tokens of a call, they are estimated from
    these lengths.

    Kernel source and English prose have 3 to 4 characters a token, so counting 3 overestimates the tokens.
    """

    prompt_chars_per_token: float = 3.3
    answer_chars_per_token: float = 3.3
    answer_tokens: int = 2000
    """Tokens that are assumed for an answer of which nothing arrived."""
    overrun: float = 1.0
    """Tokens of the model's longest answer by the provider's count, as a multiple of the request's limit; at least 1.
    It is more if the provider does not count reasoning under the limit, or ignores the limit.
    """


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One question to a model: prompt, parameters, and its place in the search."""

    role: Role
    model: str
    system: str
    user: str
    max_output_tokens: int
    temperature: float | None = None
    seed: int | None = None
    tags: Mapping[str, int | str] = field(default_factory=dict)
    """The call's place in a search: run, iteration, parent, plan, attempt, fix."""
    shared_chars: int = 0
    """Number of characters at the beginning of ``system`` that further questions share. Not part of the question's key.
    """
    batch: bool = False
    """True for the provider's batch mode: cheaper, and answered within a day. Not part of the question's key."""
    progress: Progress | None = field(default=None, compare=False, repr=False)
    """Object that is told of each request of the call. Not part of the question's key."""
    lengths: Lengths = field(default=Lengths(), compare=False, repr=False)
    """Lengths that follow from the tokens that the model has reported so far. Not part of the question's key."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer of a model to one call."""

    text: str
    model: str
    """Name of the model in the provider's answer."""
    usage: Usage
    request_id: str = ""
    finish_reason: str = "stop"
    reasoning: str = ""
    first_token_s: float | None = None
    latency_s: float = 0.0
    retries: int = 0
    is_stored: bool = False
    """True if this is the stored answer to an earlier identical question, so that nothing was paid."""


class LLMClient(Protocol):
    """Interface of a model. Its methods raise :class:`acceld.llm.errors.LLMError`, never an SDK's own errors."""

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the answer to one request."""
        ...

    async def close(self) -> None:
        """Close the connections to the model's endpoint."""
        ...
