"""Define the records of a call of a language model. The call layer makes them, the store keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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


@dataclass(frozen=True, slots=True)
class CallIntent:
    """A call that is about to be made, as it is stored before the request is sent."""

    key: str
    """Identity of the question: same place in the same run, same prompt, same settings."""
    role: str
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
    """The call's place in a search: run, iteration, parent, plan, attempt, and others that have no column."""

    def number(self, tag: str) -> int | None:
        """Return the number that a tag of the call has; None if the tag is missing or is not a number."""
        value = self.tags.get(tag)
        return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """Outcome of a call. ``cost_usd`` is None if the price is unknown."""

    outcome: str
    """``answered``, ``cancelled``, ``interrupted``, or an LLMError's ``outcome``."""
    usage: Usage
    cost_usd: float | None = None
    price: Mapping[str, str] | None = None
    """The price as it was at the time of the call (:meth:`acceld.llm.pricing.Price.as_dict`)."""
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


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch of a provider whose answers are not all stored yet."""

    token: str
    """acceld's own id of the batch."""
    keys: tuple[str, ...]
    """Keys of the questions, from :func:`acceld.llm.ledger.question_key`."""
    began_at: float
    """Seconds since the epoch."""
    batch: str = ""
    """The provider's id; empty if the batch may not have been sent."""
