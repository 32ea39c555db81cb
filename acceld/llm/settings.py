"""Describe one model as the configuration sets it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from acceld.config import LlmConfig, ModelConfig
from acceld.errors import ConfigError
from acceld.llm.breaker import BreakerSettings
from acceld.llm.errors import LLMRefused
from acceld.llm.limits import Limits
from acceld.llm.pricing import Price, PriceBook
from acceld.llm.retry import RetryPolicy

Api = Literal["chat", "responses", "messages"]


@dataclass(frozen=True)
class Provider:
    """One provider of models: its APIs, the default first, and the name of the environment variable with its key ("" if
    the provider needs no key).
    """

    apis: tuple[Api, ...]
    key_variable: str
    prices: str
    """Name of the provider in the price table."""
    base_url: str | None = None
    """The provider's endpoint; None if the SDK knows the endpoint."""
    own_places: bool = False
    """True if each customer has an endpoint, so that the provider's key and prices also hold for a ``base_url``."""


PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider(("chat", "responses"), "OPENAI_API_KEY", "openai"),
    "anthropic": Provider(("messages",), "ANTHROPIC_API_KEY", "anthropic"),
    "bedrock": Provider(("messages", "chat", "responses"), "", "aws", own_places=True),
    "mantle": Provider(("messages",), "", "aws", own_places=True),
    "claude_aws": Provider(("messages",), "", "anthropic", own_places=True),
    "vertex": Provider(("messages",), "", "google", own_places=True),
    "foundry": Provider(("messages",), "ANTHROPIC_FOUNDRY_API_KEY", "azure", own_places=True),
    "azure": Provider(("chat", "responses"), "AZURE_OPENAI_API_KEY", "azure", own_places=True),
    "openrouter": Provider(("chat",), "OPENROUTER_API_KEY", "openrouter", "https://openrouter.ai/api/v1"),
}

HOUR_CACHE_WRITE = 2
"""Price of a token that is kept in the cache for an hour, as a multiple of the input price (Anthropic's price list;
the table has the price for five minutes).
"""

NO_KEY = "not-needed"
"""Key that is sent to an endpoint that needs no key."""


@dataclass(frozen=True)
class Deadlines:
    """The four deadlines of one request, in seconds."""

    connect_s: float = 10.0
    first_token_s: float = 300.0
    """Longest wait for the first piece of the answer or of its reasoning. A model that hides its reasoning needs a long
    deadline.
    """
    idle_s: float = 120.0
    """Longest wait between two pieces of an answer."""
    total_s: float = 900.0

    def __post_init__(self) -> None:
        for name in ("connect_s", "first_token_s", "idle_s", "total_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)}")


@dataclass(frozen=True)
class ServiceTier:
    """A tier of service that requests ask for, with the provider's prices for it."""

    name: str
    price: Price


@dataclass(frozen=True)
class ModelSettings:
    """Endpoint and parameters of one model. Parameters that are not set are not sent."""

    name: str
    """acceld's own name of the model, which roles use."""
    model: str
    """The provider's name of the model."""
    provider: str = "openai"
    """One of ``PROVIDERS``, or the name of a plug-in in ``acceld.providers``."""
    api: Api = "chat"
    base_url: str | None = None
    """The endpoint; None means the provider's own."""
    key_env: str = ""
    """Environment variable with the key; empty means the provider's usual variable."""
    price_provider: str = ""
    """The provider's name in the price table; empty means ``provider``, unless
    ``base_url`` is set.
    """
    price: Price | None = None
    tier: ServiceTier | None = None
    """The tier of service that requests ask for; None means that requests name no tier."""
    effort: str | None = None
    """Effort of a reasoning model: low, medium, high ..."""
    thinking_tokens: int | None = None
    """Tokens of thinking of an Anthropic model, part of the answer's tokens; None means no thinking."""
    adaptive: bool = False
    """True if an Anthropic model decides how long it thinks."""
    region: str = ""
    project: str = ""
    profile: str = ""
    api_version: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers sent with every request."""
    context_tokens: int = 128_000
    """Limit on the tokens of prompt and answer together."""
    cache: Literal["5m", "1h"] = "5m"
    """Time for which a Messages API keeps the beginning of a prompt."""
    stream: bool = True
    extra_body: Mapping[str, object] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    deadlines: Deadlines = field(default_factory=Deadlines)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    breaker: BreakerSettings = field(default_factory=BreakerSettings)

    def __post_init__(self) -> None:
        known = PROVIDERS.get(self.provider)
        if known is not None and self.api not in known.apis:
            raise ValueError(
                f"provider {self.provider!r} has no API {self.api!r}: set api to {' or '.join(known.apis)}"
            )
        if self.tier is not None and self.api == "messages":
            raise ValueError("a model of the API 'messages' has no service_tier: leave service_tier out")
        if self.provider == "foundry" and not self.base_url:
            raise ValueError("provider 'foundry' needs base_url (the resource's endpoint, which ends in /anthropic)")
        if self.provider == "azure" and not (self.base_url and self.api_version):
            raise ValueError("provider 'azure' needs base_url (the resource's endpoint) and api_version")

    @classmethod
    def from_config(cls, name: str, model: ModelConfig, llm: LlmConfig) -> ModelSettings:
        """Return the settings that ``[models.NAME]`` and ``[llm]`` describe."""
        price = None
        if model.input_usd_per_mtok is not None and model.output_usd_per_mtok is not None:
            price = Price.of(
                model.input_usd_per_mtok,
                model.output_usd_per_mtok,
                cached=model.cached_usd_per_mtok,
                cache_write=model.cache_write_usd_per_mtok,
            )
        known = PROVIDERS.get(model.provider)
        api = api_of(model)
        return cls(
            name=name,
            model=model.name or name,
            provider=model.provider,
            api=api,
            base_url=model.base_url or (known.base_url if known else None),
            key_env=model.key_env or (known.key_variable if known and known.base_url and not model.base_url else ""),
            price_provider=known.prices if known and (known.own_places or not model.base_url) else "",
            price=price,
            tier=_tier(name, model),
            effort=model.effort or None,
            thinking_tokens=model.thinking_tokens or None,
            adaptive=_thinks_adaptively(model, api),
            region=model.region,
            project=model.project,
            profile=model.profile,
            api_version=model.api_version,
            headers=_headers(name, model.headers),
            extra_body=_extra_body(name, model.extra_body),
            stream=model.stream,
            context_tokens=model.context_tokens,
            cache=model.cache,
            limits=Limits(model.concurrency, model.requests_per_minute or None, model.tokens_per_minute or None),
            deadlines=Deadlines(llm.connect_s, llm.first_token_s, llm.idle_s, llm.total_s),
            retry=RetryPolicy(max_tries=llm.retries + 1),
        )

    @property
    def pricing_provider(self) -> str:
        """Return the name of the provider in the price table; "" if the table has no such provider and only the
        configuration can give a price.
        """
        return self.price_provider or (self.provider if self.base_url is None else "")

    def price_in(self, book: PriceBook, input_tokens: int = 0, tier: str | None = None) -> Price | None:
        """Return the price of a call whose prompt has ``input_tokens`` tokens; None if the price is unknown.

        ``tier`` is the tier of service in the answer. None means that there is no answer yet: the result is the price
        of the requested tier. "" means that the answer named no tier: each rate of the result is the higher of two
        rates, that of the standard tier and that of the requested tier.
        """
        asked = self.tier
        if asked is not None and tier in (None, asked.name):
            return asked.price
        standard = self._standard_price(book, input_tokens)
        return standard if asked is None or tier or standard is None else asked.price.or_dearer(standard)

    def _standard_price(self, book: PriceBook, input_tokens: int) -> Price | None:
        if self.price is not None or not self.pricing_provider:
            return self.price
        price = book.price(self.pricing_provider, self.model, input_tokens)
        if price is not None and self.cache == "1h":
            return replace(price, cache_write=HOUR_CACHE_WRITE * price.input)
        return price

    @property
    def key_variable(self) -> str:
        """Return the name of the environment variable that holds the key; empty if the endpoint needs none."""
        known = PROVIDERS.get(self.provider)
        usual = known.key_variable if known and (self.base_url is None or known.own_places) else ""
        return self.key_env or usual

    def key(self, environment: Mapping[str, str] | None = None) -> str:
        """Return the key from the environment; NO_KEY if none is needed.

        An endpoint given by ``base_url`` without ``key_env`` is assumed to need no key, and the provider's usual key
        is not sent there. Azure and Foundry are reached by Microsoft Entra ID if their usual key is not set.

        Raise LLMRefused if the key's variable is not set.
        """
        variable = self.key_variable
        if not variable:
            return NO_KEY
        key = (os.environ if environment is None else environment).get(variable, "")
        if not key and self.provider in ("azure", "foundry") and not self.key_env:
            return NO_KEY
        if not key:
            raise LLMRefused(
                f"model {self.name!r}: the environment variable {variable} is not set",
                hint=f"export {variable}=..., then acceld restart; or set key_env in [models.{self.name}]. acceld resume continues a "
                "run that paused for this.",
            )
        return key


def api_of(model: ModelConfig) -> Api:
    """Return the API by which a model is called: the configured one, else the first API of its provider."""
    known = PROVIDERS.get(model.provider)
    return model.protocol or (known.apis[0] if known else "chat")


def _thinks_adaptively(model: ModelConfig, api: Api) -> bool:
    """Return True if the model is asked to choose the length of its thinking itself, as the Messages API's
    documentation advises for current models.
    """
    return api == "messages" and model.thinking != "off" and not model.thinking_tokens


def _tier(name: str, model: ModelConfig) -> ServiceTier | None:
    """Return the tier of service with its price; None if neither is set. Raise ConfigError for a tier without a price,
    and for a price without a tier.
    """
    rates = (model.tier_input_usd_per_mtok, model.tier_output_usd_per_mtok)
    others = (model.tier_cached_usd_per_mtok, model.tier_cache_write_usd_per_mtok)
    if not model.service_tier:
        if any(rate is not None for rate in (*rates, *others)):
            raise ConfigError(
                f"[models.{name}] has prices of a tier, and no service_tier",
                hint='Name the tier, such as service_tier = "flex", or remove its prices.',
            )
        return None
    if rates[0] is None or rates[1] is None:
        raise ConfigError(
            f"[models.{name}] service_tier = {model.service_tier!r} has no price",
            hint="tier_input_usd_per_mtok and tier_output_usd_per_mtok declare the provider's prices of that tier",
        )
    source = f"config, {model.service_tier}"
    price = Price.of(rates[0], rates[1], cached=others[0], cache_write=others[1], source=source)
    return ServiceTier(model.service_tier, price)


def _headers(name: str, lines: tuple[str, ...]) -> dict[str, str]:
    """Return the ``Name: value`` lines of a setting as headers. Raise ConfigError for an invalid line."""
    found: dict[str, str] = {}
    for line in lines:
        header, colon, value = line.partition(":")
        if not colon or not header.strip():
            raise ConfigError(
                f"[models.{name}] headers: {line!r} is not a header", hint='headers = ["X-Team: kernels"]'
            )
        found[header.strip()] = value.strip()
    return found


def _extra_body(name: str, text: str) -> dict[str, object]:
    """Return the text as a JSON object. Raise ConfigError if the text is not a JSON object."""
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigError(f"[models.{name}] extra_body: {error}", hint="extra_body = '{\"top_k\": 40}'") from error
    if not isinstance(found, dict):
        raise ConfigError(f"[models.{name}] extra_body is not a JSON object", hint="extra_body = '{\"top_k\": 40}'")
    return found
