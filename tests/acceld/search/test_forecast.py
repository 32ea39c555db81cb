"""Forecasts are exact in calls, and honest about prices."""

from __future__ import annotations

import pytest

from acceld.llm.pricing import Price
from acceld.model import PRESETS, SearchParameters, StrategyName
from acceld.proposers.llm.roles import RoleModels, RoleTable
from acceld.search.forecast import TAUGHT, Habits, calls_by_role, forecast

CHEAP, EXPENSIVE = Price.of("0.1", "0.4"), Price.of("3", "15")


def test_the_paper_s_run_makes_the_paper_s_calls() -> None:
    calls = calls_by_role(PRESETS["paper"])
    assert calls["planner"] == 12 + 15 * 72
    assert calls["executor"] == 2 * calls["planner"]
    assert calls["summarizer"] == 16 * 8 * TAUGHT
    assert calls["fixer"] == 0


@pytest.mark.parametrize("strategy", ["beam", "best_of_n", "reflexion", "random"])
def test_strategies_of_equal_budget_make_about_as_many_attempts(strategy: StrategyName) -> None:
    beam = calls_by_role(SearchParameters())["executor"]
    other = calls_by_role(SearchParameters(strategy=strategy))["executor"]
    assert other == pytest.approx(beam, rel=0.2)


def test_repairs_and_insights_are_counted_when_they_are_on() -> None:
    plain = calls_by_role(SearchParameters())
    assert plain["fixer"] == plain["summarizer"] == 0
    rich = calls_by_role(SearchParameters(fixer_steps=2, memory="value"))
    assert 0 < rich["fixer"] < rich["executor"] and rich["summarizer"] == 64 * TAUGHT


def price(name: str, tokens: int) -> Price | None:
    return {"cheap": CHEAP, "dear": EXPENSIVE}.get(name)


def test_money_is_between_nothing_and_the_worst_case() -> None:
    found = forecast(SearchParameters(), RoleTable.single("cheap"), price, kernel_chars=5000, reference_chars=1000)
    assert found.cost_usd is not None and found.worst_usd is not None
    assert 0 < found.cost_usd < found.worst_usd
    assert found.calls == 232 + 464 and found.candidates == 464
    eight = forecast(
        SearchParameters(),
        RoleTable.single("cheap"),
        price,
        kernel_chars=5000,
        reference_chars=1000,
        concurrency={"cheap": 8},
    )
    calls_s = 232 * 30 + 464 * 45
    assert found.wall_s - eight.wall_s == pytest.approx(calls_s * 7 / 8), "calls at once divide the time of calls"


def test_the_worst_case_is_the_most_expensive_model_s() -> None:
    mixed = RoleModels((("cheap", 9.0), ("dear", 1.0)))
    table = RoleTable(mixed, mixed, mixed, mixed)
    both = forecast(SearchParameters(), table, price, kernel_chars=5000, reference_chars=1000)
    expensive = forecast(SearchParameters(), RoleTable.single("dear"), price, kernel_chars=5000, reference_chars=1000)
    assert both.worst_usd == pytest.approx(expensive.worst_usd)
    assert both.cost_usd is not None and expensive.cost_usd is not None and both.cost_usd < expensive.cost_usd / 3


def test_an_unknown_price_makes_an_unknown_sum() -> None:
    found = forecast(SearchParameters(), RoleTable.single("mine"), price, kernel_chars=5000, reference_chars=1000)
    assert found.cost_usd is None and found.worst_usd is None and found.calls > 0


def test_rules_cost_no_calls() -> None:
    habits = Habits(evaluation_s=3600.0, device_usd_per_hour=2.0)
    small = SearchParameters(beam_width=1, plans=1, attempts=1, iterations=3)
    found = forecast(small, None, price, kernel_chars=1, reference_chars=1, habits=habits)
    assert found.calls == 0 and found.cost_usd == 0.0
    assert found.device_hours == 3.0 and found.device_usd == 6.0
