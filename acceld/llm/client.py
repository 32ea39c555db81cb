"""Define the interface of a model, and a scripted model for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Role = Literal["planner", "executor", "fixer", "summarizer"]
ROLES: tuple[Role, ...] = ("planner", "executor", "fixer", "summarizer")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call. ``input_tokens`` counts the whole prompt, cached or not."""

    input_tokens: int = 0
    cached_tokens: int = 0
    cache_written_tokens: int = 0
    output_tokens: int = 0
    """All generated tokens, including reasoning."""
    reasoning_tokens: int = 0
    estimated: bool = False
    """True if the provider did not report the tokens, so that they were estimated from the characters."""
    uncertain_output_tokens: int = 0
    """Further output tokens that the provider may have generated, and may bill, although none of them arrived."""
    tier: str = ""
    """The tier of service that the answer reports, which decides its price; empty if none was reported."""


@dataclass(slots=True)
class Received:
    """An answer while its pieces arrive."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    usage: Usage | None = None
    """Tokens the provider has reported so far."""
    is_counted: bool = False
    """True once ``usage`` counts the whole answer: a Messages stream reports the prompt's tokens first."""
    model: str = ""
    tier: str = ""
    """The tier of service that the provider has reported."""
    request_id: str = ""
    stopped: str = ""
    """``stop``, ``length`` or ``content_filter``; empty if the stream just ended."""
    refused: bool = False
    """True if the model declined to answer; its text then states the reason."""

    @property
    def begun(self) -> bool:
        """True once any text or reasoning has arrived."""
        return any(self.text) or any(self.reasoning)


class Progress(Protocol):
    """Interface that follows one call; :class:`acceld.llm.meter.Meter` if money is counted."""

    async def sending(self, answer: Received) -> None:
        """Report that a request is sent now. The client will fill ``answer`` with its answer.

        :raises BudgetError: there is no money for the request.
        """
        ...

    def failed(self, error: Exception) -> None:
        """Report that the newest request failed. Another one may follow."""
        ...


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths by which the tokens of a call are estimated if the provider does not report them.

    Kernel source and English prose have between 3 and 4 characters a token. A low figure overestimates the tokens.
    """

    prompt_chars_per_token: float = 3.3
    answer_chars_per_token: float = 3.3
    answer_tokens: int = 2000
    """Tokens of an answer of which nothing arrived."""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """Prompt and parameters of one call of a model."""

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


class LLMClient(Protocol):
    """Interface of a model. Raises acceld.llm.errors.LLMError, and never an SDK's own errors."""

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the answer to one request."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class ScriptedClient:
    """Answer from a function of the request: deterministic, without network.

    The answer's token counts are its characters divided by four.
    """

    def __init__(self, answer: Callable[[CompletionRequest], str] | Sequence[str]) -> None:
        self._answer = answer
        self.requests: list[CompletionRequest] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        """Return the scripted answer. Raises IndexError when a list of answers is used up."""
        if request.progress is not None:
            await request.progress.sending(Received())
        self.requests.append(request)
        answer = self._answer
        text = answer(request) if callable(answer) else answer[len(self.requests) - 1]
        prompt = request.system + request.user
        return Completion(text, request.model, Usage(input_tokens=len(prompt) // 4, output_tokens=len(text) // 4))

    async def close(self) -> None:
        """Do nothing, because nothing is open."""
