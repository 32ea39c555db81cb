"""A client's request becomes a record, or is refused with the field that does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acceld.config import BudgetConfig, Config, DevicesConfig, SearchConfig
from acceld.daemon import specs
from acceld.errors import UsageError
from acceld.model import PRESETS, SearchParameters

DEFAULTS = Config()


def test_a_preset_is_taken_with_what_is_asked_for() -> None:
    asked = {"seed": 3, "budget_usd": 5, "strategy": "random", "target_percent": None}
    found = specs.search_parameters(asked, PRESETS["paper"])
    assert found == SearchParameters(
        beam_width=6, plans=12, iterations=16, memory="fifo", patience=0, seed=3, budget_usd=5, strategy="random"
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"seed": "3"}, "seed"),
        ({"seed": True}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"planner": 1}, "planner"),
        ({"budget_usd": True}, "budget_usd"),
        ({"strategy": "best"}, "best"),
        ({"beam_width": 0}, "at least 1"),
        ({"beam_widht": 2}, "beam_width"),
        ([], "object"),
    ],
)
def test_a_search_that_does_not_fit_is_refused(asked: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        specs.search_parameters(asked, PRESETS["standard"])


def test_a_kernel_is_launched_as_it_is_asked_for() -> None:
    found = specs.kernel({"text": "x", "grid": [2], "lnc": 2, "closure": {"a.py": "b"}, "entry": "k"}, "nki", "nki")
    assert (found.api, found.grid, found.lnc, found.closure, found.trusted) == ("nki", (2,), 2, {"a.py": "b"}, True)


@pytest.mark.parametrize("trusted", [False, None, 0, 1, "true"])
def test_only_true_makes_a_kernel_trusted(trusted: Any) -> None:
    assert not specs.kernel({"text": "x", "trusted": trusted}, "nki", "nki").trusted


@pytest.mark.parametrize(
    "asked",
    [
        "x",
        {},
        {"text": None},
        {"text": "x", "entry": None},
        {"text": "x", "grid": [0]},
        {"text": "x", "grid": ["2"]},
        {"text": "x", "grid": 2},
        {"text": "x", "lnc": 3},
        {"text": "x", "lnc": True},
        {"text": "x", "closure": {"a.py": 1}},
        {"text": "x", "colour": "red"},
        {"text": "x" * (specs.TEXT_LIMIT + 1)},
    ],
)
def test_a_kernel_that_does_not_fit_is_refused(asked: Any) -> None:
    with pytest.raises(UsageError):
        specs.kernel(asked, "nki", "nki")


def test_a_run_has_a_workload_a_preset_and_no_other_keys() -> None:
    preset = replace(PRESETS["standard"], memory="off", strategy="tune")
    assert specs.run_spec({"workload": "silu"}, DEFAULTS).search == preset
    for asked in ({}, {"workload": "silu", "preset": "slow"}, {"workload": "silu", "chips": "trn1"}, {"workload": 1}):
        with pytest.raises(UsageError):
            specs.run_spec(asked, DEFAULTS)


@pytest.mark.parametrize(
    ("asked", "configured", "taken"),
    [
        ({}, "auto", "tune"),
        ({"proposer": "both"}, "auto", "beam"),
        ({"backend": "neuron"}, "auto", "beam"),
        ({}, "random", "random"),
        ({"search": {"strategy": "beam"}}, "auto", "beam"),
        ({"proposer": "llm", "search": {"strategy": "reflexion"}}, "auto", "reflexion"),
    ],
)
def test_rules_on_the_simulator_tune_sequences_unless_another_strategy_is_set(
    asked: dict[str, Any], configured: Any, taken: str
) -> None:
    settings = replace(DEFAULTS, search=replace(DEFAULTS.search, strategy=configured))
    assert specs.run_spec({"workload": "silu"} | asked, settings, {"search.strategy"}).search.strategy == taken


def test_what_is_not_asked_for_is_as_the_configuration_says() -> None:
    search = SearchConfig(proposer="llm", preset="paper", seed=7, patience=5, strategy="random", time_limit_s=60.0)
    config = Config(search=search, devices=DevicesConfig(screen="simulator"), budget=BudgetConfig(run_usd=2.0))
    set_by_somebody = {"search.seed", "search.patience", "search.strategy", "search.time_limit_s"}
    found = specs.run_spec({"workload": "silu", "search": {"seed": 8}}, config, set_by_somebody).search
    wanted = replace(PRESETS["paper"], patience=5, strategy="random", time_limit_s=60.0, budget_usd=2.0)
    assert found == replace(wanted, seed=8, screen=True, memory="fifo")
    untouched = specs.run_spec({"workload": "silu"}, config).search
    assert (untouched.seed, untouched.patience) == (PRESETS["paper"].seed, PRESETS["paper"].patience)


@pytest.mark.parametrize(
    ("asked", "api", "taken"),
    [
        ({"text": "import nki\n"}, None, "nki"),
        ({"text": "import nki\n"}, "nki_legacy", "nki_legacy"),
        ({"text": "import nki\n", "api": "triton"}, None, "triton"),
        ({"text": "x = 1\n"}, None, "nki_legacy"),
    ],
)
def test_a_kernel_is_of_the_api_it_says_or_imports(asked: dict[str, str], api: str | None, taken: str) -> None:
    assert specs.kernel(asked, api, "nki_legacy").api == taken
