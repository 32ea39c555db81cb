"""Look up the prices of calls: first in the configuration, then in the table of the package genai-prices.

A call without a known price has the cost None, shown as ``?``, and is never counted as free. The price is stored with
the call, so that a later change of the table changes no history. Amounts are exact (Decimal). Budgets count whole
micro-dollars, rounded up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from importlib.metadata import version
from typing import TYPE_CHECKING

from acceld.model_calls import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice

MILLION = Decimal(1_000_000)

CACHE_WRITE = Decimal("1.25")
"""Price of a token that is written to the cache, as a multiple of the input price, where only the input price is
declared. That is the rate of Anthropic's models and of OpenAI's current models (genai-prices lists both prices).
"""

BATCH_SHARE = Decimal("0.5")
"""Price of a token in a batch as a share of its usual price: half, at Anthropic and at OpenAI."""


@dataclass(frozen=True)
class Price:
    """The price of one call: USD per million tokens, for each kind of token."""

    input: Decimal
    cached: Decimal
    cache_write: Decimal
    output: Decimal
    source: str
    """``config`` or the price table and its version."""

    def cost_usd(self, usage: Usage) -> Decimal:
        """Return the cost of one call in USD. Tokens read from or written to the prompt cache have their own rates;
        the other tokens of the prompt have the input rate.
        """
        fresh = usage.input_tokens - usage.cached_tokens - usage.cache_written_tokens
        return (
            max(0, fresh) * self.input
            + usage.cached_tokens * self.cached
            + usage.cache_written_tokens * self.cache_write
            + usage.output_tokens * self.output
        ) / MILLION

    def uncertain_usd(self, usage: Usage) -> Decimal:
        """Return the USD that a call may have cost in addition to :meth:`cost_usd`, for tokens that may have been
        generated but were not received.
        """
        return usage.uncertain_output_tokens * self.output / MILLION

    def worst_cost_usd(self, input_tokens: int, output_tokens: int) -> Decimal:
        """Return the greatest cost in USD: the whole prompt at its highest rate, and an answer of full length."""
        return (input_tokens * max(self.input, self.cache_write, self.cached) + output_tokens * self.output) / MILLION

    def or_dearer(self, other: Price) -> Price:
        """Return a price with the higher of the two rates for each kind of token, for a call to which either price may
        apply.
        """
        return Price(
            max(self.input, other.input),
            max(self.cached, other.cached),
            max(self.cache_write, other.cache_write),
            max(self.output, other.output),
            f"{self.source} or {other.source}",
        )

    def batched(self) -> Price:
        """Return the price of the same tokens in the provider's batch mode."""
        return Price(
            self.input * BATCH_SHARE,
            self.cached * BATCH_SHARE,
            self.cache_write * BATCH_SHARE,
            self.output * BATCH_SHARE,
            f"{self.source}, batch",
        )

    def as_dict(self) -> dict[str, str]:
        """Return the price as data for JSON, which is stored with a call."""
        return {
            "input_usd_per_mtok": str(self.input),
            "cached_usd_per_mtok": str(self.cached),
            "cache_write_usd_per_mtok": str(self.cache_write),
            "output_usd_per_mtok": str(self.output),
            "source": self.source,
        }

    @classmethod
    def of(
        cls,
        input: str | float,
        output: str | float,
        *,
        cached: str | float | None = None,
        cache_write: str | float | None = None,
        source: str = "config",
    ) -> Price:
        """Return a price from the two to four figures of a configuration."""
        rate = Decimal(str(input))
        read = rate if cached is None else Decimal(str(cached))
        write = rate * CACHE_WRITE if cache_write is None else Decimal(str(cache_write))
        return cls(rate, read, write, Decimal(str(output)), source)


FREE = Price(Decimal(0), Decimal(0), Decimal(0), Decimal(0), "config")
"""Price of a local model whose calls are declared to cost nothing."""


def micro_usd(usd: Decimal | float) -> int:
    """Return an amount in USD as whole micro-dollars, rounded up."""
    return int((Decimal(str(usd)) * MILLION).to_integral_value(rounding=ROUND_CEILING))


class PriceBook:
    """The prices of all models. ``overrides`` has configured prices by ``provider/model``, or by ``model`` alone."""

    def __init__(self, overrides: Mapping[str, Price] | None = None) -> None:
        self._overrides = dict(overrides or {})
        self._found: dict[tuple[str, str], ModelPrice | None] = {}
        self._source = ""

    def prepare(self) -> None:
        """Load the price table, unless it is loaded. Loading takes half a second, so do not call this on the event
        loop.
        """
        if not self._source:
            import genai_prices

            genai_prices.data_snapshot.get_snapshot()
            self._source = f"genai-prices {version('genai-prices')}"

    def price(self, provider: str, model: str, input_tokens: int = 0) -> Price | None:
        """Return the price of a call whose prompt has ``input_tokens`` tokens; None if the price is unknown.

        Some providers charge another rate for the whole call if the prompt is longer than a limit.
        """
        for key in (f"{provider}/{model}", model):
            if key in self._overrides:
                return self._overrides[key]
        if (provider, model) not in self._found:
            self.prepare()
            self._found[provider, model] = _lookup(provider, model)
        found = self._found[provider, model]
        return None if found is None else _flat(found, input_tokens, self._source)


def _lookup(provider: str, model: str) -> ModelPrice | None:
    from genai_prices import Usage as TableUsage
    from genai_prices import calc_price

    try:
        return calc_price(TableUsage(input_tokens=1, output_tokens=1), model, provider_id=provider).model_price
    except LookupError:
        return None


def _flat(table: ModelPrice, input_tokens: int, source: str) -> Price | None:
    """Return the table's rates for prompts of ``input_tokens`` tokens; None if the table has no rate for input or for
    output.
    """
    from genai_prices.types import TieredPrices

    def rate(name: str) -> Decimal | None:
        value = getattr(table, name, None)
        if isinstance(value, TieredPrices):
            reached = [tier.price for tier in value.tiers if input_tokens > tier.start]
            return reached[-1] if reached else value.base
        return value if isinstance(value, Decimal) else None

    input_rate, output_rate = rate("input_mtok"), rate("output_mtok")
    if input_rate is None or output_rate is None:
        return None
    cached, written = rate("cache_read_mtok"), rate("cache_write_mtok")
    return Price(
        input_rate,
        input_rate if cached is None else cached,
        input_rate if written is None else written,
        output_rate,
        source,
    )
