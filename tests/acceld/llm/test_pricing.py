"""Prices come from the configuration or the table; an unknown price never counts as zero."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from acceld.llm.pricing import Price, PriceBook, micro_usd
from acceld.llm.settings import ModelSettings
from acceld.model_calls import Usage

tokens = st.integers(0, 200_000)


def test_the_table_knows_cached_tokens_and_prompt_sizes() -> None:
    book = PriceBook()
    small = book.price("anthropic", "claude-sonnet-4-5", 1000)
    large = book.price("anthropic", "claude-sonnet-4-5", 300_000)
    assert small is not None and large is not None
    assert small.cached < small.input < small.cache_write < small.output
    assert large.input > small.input
    assert small.source.startswith("genai-prices ")


def test_the_configuration_wins() -> None:
    book = PriceBook({"openai/gpt-5": Price.of("9", "99")})
    price = book.price("openai", "gpt-5")
    assert price is not None and price.input == 9 and price.source == "config"


def test_an_unknown_model_has_no_price() -> None:
    assert PriceBook().price("openai", "my-own-finetune-7b") is None
    local = ModelSettings("local", "qwen", base_url="http://127.0.0.1:8000/v1")
    assert local.pricing_provider == ""


def test_the_cost_of_a_call_with_cached_and_written_tokens() -> None:
    price = Price(Decimal(3), Decimal("0.3"), Decimal("3.75"), Decimal(15), "test")
    usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, cache_written_tokens=100_000, output_tokens=10_000)
    assert price.cost_usd(usage) == Decimal("1.5") + Decimal("0.12") + Decimal("0.375") + Decimal("0.15")


@given(fresh=tokens, cached=tokens, written=tokens, output=tokens)
def test_the_worst_case_is_never_exceeded(fresh: int, cached: int, written: int, output: int) -> None:
    price = Price(Decimal("1.25"), Decimal("0.125"), Decimal("1.5625"), Decimal(10), "test")
    usage = Usage(fresh + cached + written, cached, written, output)
    assert price.cost_usd(usage) <= price.worst_cost_usd(usage.input_tokens, output)


def test_micro_dollars_are_rounded_up() -> None:
    assert micro_usd(Decimal("0.0000001")) == 1
    assert micro_usd(Decimal(1)) == 1_000_000
    assert micro_usd(0) == 0
