"""Models that are withdrawn are named, and the documentation's examples are none of them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from acceld.config import LlmConfig, ModelConfig
from acceld.llm.pricing import PriceBook
from acceld.llm.retirement import anthropic_table, retirement
from acceld.llm.settings import ModelSettings

DOCS = Path(__file__).parents[3] / "docs"


def settings(**section: str) -> ModelSettings:
    return ModelSettings.from_config("m", ModelConfig(**section), LlmConfig())  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("form", ["{}", "us.anthropic.{}-v1:0", "anthropic.{}"])
def test_a_model_in_the_sdk_s_table_is_warned_of_with_its_day(form: str) -> None:
    assert anthropic_table(), "the SDK has moved its table"
    name, day = next(iter(anthropic_table().items()))
    assert f"withdrawn on {day}" in retirement(settings(provider="anthropic", name=form.format(name)))


def test_a_model_of_another_api_is_not_warned_of() -> None:
    name = next(iter(anthropic_table()))
    assert retirement(settings(name=name, base_url="http://127.0.0.1/v1")) == ""


def test_the_examples_in_the_documentation_are_served_and_have_prices() -> None:
    block = re.search(r"```toml\n# acceld.toml\n(.*?)```", (DOCS / "models.md").read_text("utf-8"), re.DOTALL)
    assert block is not None
    models = tomllib.loads(block.group(1))["models"]
    assert len(models) == 3
    for name, section in models.items():
        found = ModelSettings.from_config(name, ModelConfig(**section), LlmConfig())
        assert retirement(found) == "" and found.price_in(PriceBook()) is not None, name
