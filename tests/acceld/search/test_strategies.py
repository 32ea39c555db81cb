"""Strategies spend the same number of attempts."""

from __future__ import annotations

import pytest

from acceld.errors import UsageError
from acceld.model import SearchParameters, StrategyName
from acceld.search.strategies import STRATEGIES, derived_seed, strategy


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_spends_about_what_a_beam_spends(name: StrategyName) -> None:
    parameters = SearchParameters(beam_width=3, plans=4, attempts=2, iterations=5, strategy=name)
    want = 5 * 24 if name == "best_of_n" else 8 + 4 * 24
    assert strategy(parameters).attempts_in_all == want


def test_random_has_the_schedule_of_the_beam() -> None:
    assert strategy(SearchParameters(strategy="random")) == strategy(SearchParameters(strategy="beam"))


def test_an_unknown_strategy_is_an_error_that_lists_them() -> None:
    with pytest.raises(UsageError, match="best_of_n"):
        strategy(SearchParameters(strategy="best"))  # type: ignore[arg-type]


def test_seeds_depend_on_every_part_and_their_order() -> None:
    seeds = {derived_seed(*parts) for parts in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (0, 1), (0, 1, 2, 0)]}
    assert len(seeds) == 5 and all(0 <= seed < 2**63 for seed in seeds)
