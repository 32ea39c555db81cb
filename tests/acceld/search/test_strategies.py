"""Strategies spend the same number of attempts."""

from __future__ import annotations

import pytest

from acceld.model import SearchParameters
from acceld.search.strategies import derived_seed, schedule


def attempts(strategy: str, parameters: SearchParameters) -> int:
    """Attempts of a whole run with a full beam from the second iteration on."""
    from dataclasses import replace

    plan = schedule(replace(parameters, strategy=strategy))
    first = plan.plans * plan.attempts
    parents = 1 if plan.from_baseline or plan.latest else plan.width
    return first + (plan.iterations - 1) * parents * plan.plans * plan.attempts


def test_reflexion_spends_what_beam_spends() -> None:
    parameters = SearchParameters(beam_width=3, plans=4, attempts=2, iterations=5)
    assert attempts("reflexion", parameters) == attempts("beam", parameters) == 8 + 4 * 24


def test_random_has_the_schedule_of_the_beam() -> None:
    parameters = SearchParameters(strategy="random")
    assert schedule(parameters) == schedule(SearchParameters(strategy="beam"))


def test_an_unknown_strategy_is_an_error_that_lists_them() -> None:
    with pytest.raises(ValueError, match="best_of_n"):
        schedule(SearchParameters(strategy="best"))


def test_seeds_depend_on_every_part_and_their_order() -> None:
    seeds = {derived_seed(*parts) for parts in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (0, 1), (0, 1, 2, 0)]}
    assert len(seeds) == 5 and all(0 <= seed < 2**63 for seed in seeds)
