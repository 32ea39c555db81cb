"""Style sheets that are parsed once for all tests: each test starts the terminal UI, and a fifth of its time is parsing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Let every app take the rules that an earlier one has parsed from the same text with the same variables."""
    parse, known = Stylesheet._parse_rules, dict[Any, list[RuleSet]]()

    def remembered(sheet: Stylesheet, *text_and_place: Any, **options: Any) -> list[RuleSet]:
        key = (text_and_place, *options.items(), *sheet._variables.items())
        if key not in known:
            known[key] = parse(sheet, *text_and_place, **options)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", remembered)
        yield
