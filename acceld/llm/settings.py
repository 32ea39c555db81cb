"""One model as the configuration describes it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from acceld.config import LlmConfig, ModelConfig
from acceld.llm.breaker import BreakerSettings
from acceld.llm.errors import LLMRefused
from acceld.llm.limits import Limits
from acceld.llm.pricing import Price
from acceld.llm.retry import RetryPolicy

Api = Literal["chat", "responses", "messages"]

KEY_VARIABLES: Mapping[str, str] = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}

NO_KEY = "not-needed"
"""What is sent as a key to an endpoint that asks for none."""


@dataclass(frozen=True)
class Deadlines:
    """The four waits of one request, in seconds."""

    connect_s: float = 10.0
    first_token_s: float = 300.0
    """To the first piece of the answer or of its reasoning; a model that reasons out of sight needs a long one."""
    idle_s: float = 120.0
    """Between two pieces."""
    total_s: float = 900.0

    def __post_init__(self) -> None:
        for name in ("connect_s", "first_token_s", "idle_s", "total_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)}")


@dataclass(frozen=True)
class ModelSettings:
    """How one model is reached and what it may be asked for. Only what is set here is sent."""

    name: str
    """acceld's own name for it: what roles refer to."""
    model: str
    """The provider's name for it."""
    provider: str = "openai"
    """``openai``, ``anthropic``, or the name of a plug-in in ``acceld.providers``."""
    api: Api = "chat"
    base_url: str | None = None
    """None: the provider's own endpoint."""
    key_env: str = ""
    """Environment variable that holds the key; empty: the provider's usual one."""
    price_provider: str = ""
    """The provider's name in the price table; empty: ``provider`` where ``base_url`` is not set."""
    price: Price | None = None
    effort: str | None = None
    """low, medium, high ...: how long a reasoning model thinks."""
    thinking_tokens: int | None = None
    """Anthropic: so many tokens of thinking, part of the answer's tokens; None: off."""
    context_tokens: int = 128_000
    """Longest prompt and answer together."""
    stream: bool = True
    extra_body: Mapping[str, object] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)

    def __post_init__(self) -> None:
        if (self.api == "messages") != (self.provider == "anthropic"):
            raise ValueError(f"provider {self.provider!r} does not speak the {self.api!r} API")

    @classmethod
    def from_config(cls, name: str, model: ModelConfig, llm: LlmConfig) -> ModelSettings:
        """The settings that ``[models.NAME]`` and ``[llm]`` describe."""
        price = None
        if model.input_usd_per_mtok is not None and model.output_usd_per_mtok is not None:
            price = Price.of(model.input_usd_per_mtok, model.output_usd_per_mtok, cached=model.cached_usd_per_mtok)
        return cls(
            name=name,
            model=model.name or name,
            provider=model.provider,
            api="messages" if model.provider == "anthropic" else model.protocol,
            base_url=model.base_url or None,
            key_env=model.key_env,
            price=price,
            thinking_tokens=model.thinking_tokens or None,
            context_tokens=model.context_tokens,
            limits=Limits(model.concurrency, model.requests_per_minute or None, model.tokens_per_minute or None),
            deadlines=Deadlines(llm.connect_s, llm.first_token_s, llm.idle_s, llm.total_s),
            retry=RetryPolicy(max_tries=llm.retries + 1),
        )

    @property
    def pricing_provider(self) -> str:
        """Whose price list applies; empty where only the configuration could know."""
        return self.price_provider or (self.provider if self.base_url is None else "")

    def key(self, environment: Mapping[str, str] | None = None) -> str:
        """The key from the environment.

        An endpoint given by ``base_url`` without ``key_env`` is taken to need none, and the provider's usual key
        is not sent to it.

        :raises LLMRefused: the variable is not set.
        """
        variable = self.key_env or (KEY_VARIABLES.get(self.provider, "") if self.base_url is None else "")
        if not variable:
            return NO_KEY
        key = (os.environ if environment is None else environment).get(variable, "")
        if not key:
            raise LLMRefused(
                f"model {self.name!r}: the environment variable {variable} is not set",
                hint=f"export {variable}=... before `acceld start`, or set key_env in [models.{self.name}].",
            )
        return key
