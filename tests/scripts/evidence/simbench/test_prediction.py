"""The arithmetic of the benchmark: order, choice, intervals and pairs, on figures that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acceld.model import SIMULATED_LESS_WORK_PERCENT, SIMULATED_LESSON_PERCENT, SIMULATED_TIE_PERCENT
from acceld.nki.timing.parameters import default_params
from acceld.nki.timing.uncertainty import Bound
from scripts.evidence.simbench.accuracy import leave_one_out, rank_correlation
from scripts.evidence.simbench.measured_sets import Measured, Role
from scripts.evidence.simbench.prediction import (
    LEFT_OUT,
    Predicted,
    directions,
    family,
    half_width,
    interval_table,
    paired_table,
    regrets,
    set_tables,
    summary,
)


def predicted(
    ms: float, measured_ms: float, *, chain: str = "a", role: Role = Role.DEVELOPMENT, interval: float | None = 20.0,
    order_only: bool = False, **engines_ms: float,
) -> Predicted:  # fmt: skip
    kernel = Measured(
        "KDA" if chain == "KDA" else "g", chain, "k", role, measured_ms, "", [], order_only=order_only, chip="trn2"
    )
    return Predicted(kernel, ms, interval, Bound.DMA, {name: 1000 * busy for name, busy in engines_ms.items()})


def test_equal_values_share_their_rank() -> None:
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [30, 20, 10]) == pytest.approx(-1.0)
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(0.866, abs=0.001)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_each_kernel_is_left_out_of_its_own_scale() -> None:
    assert leave_one_out([1.0, 1.0, 2.0]) == pytest.approx([1 / 2**0.5 - 1, 1 / 2**0.5 - 1, 1.0])


def test_only_pairs_of_one_chain_that_are_apart_have_a_direction() -> None:
    found = [predicted(1.0, 1.0), predicted(2.0, 1.05), predicted(3.0, 2.0), predicted(9.0, 0.1, chain="b")]
    assert directions(found) == (2, 2)
    assert directions([predicted(1.0, 1.0), predicted(1.0, 2.0)]) == (0, 1)


def test_regret_is_of_the_kernel_predicted_fastest() -> None:
    found = [predicted(1.0, 1.5), predicted(2.0, 1.0), predicted(5.0, 7.0, chain="b"), predicted(6.0, 8.0, chain="b")]
    assert regrets([*found, predicted(1.0, 1.0, chain="alone")]) == [1.5, 1.0]


@pytest.mark.parametrize(
    ("chains", "width"),
    [
        ([[1, 2, 3, 4, 5, 6, 7, 8, 9]], 8),
        ([[5, 1, 4, 2]], 5),
        ([[9], [1] * 100], 9),
        ([[9], [1], [1], [1], [1]], 9),
        ([[9], [3], [1], [1], [1], [1], [1], [1], [1]], 3),
    ],
)
def test_an_interval_holds_four_of_five_kernels_and_chains(chains: list[list[float]], width: float) -> None:
    assert half_width(chains) == width


def test_an_interval_is_as_wide_as_with_any_one_chain_left_out() -> None:
    chains = [[1.0], [1.1], [1.1], [1.1], [1.1], [1.1], [1.1], [1.1], [1.3]]
    found = [predicted(ratio, 1.0, chain=str(at)) for at, (ratio,) in enumerate(chains)]
    (row,) = interval_table(found)
    assert (row["80 % of errors within %"], row["a chain left out, at most %"]) == (10.0, 30.0)


def test_what_rests_on_a_family_is_left_out_for_that_family_alone() -> None:
    params = default_params("nki_legacy", "trn2")
    for values in LEFT_OUT.values():
        assert values and set(values) <= set(params.to_json())
    kda, other = predicted(1.0, 1.0, chain="silu").kernel, predicted(1.0, 1.0).kernel
    assert family(replace(kda, group="KDA")) == "KDA silu" and family(replace(other, group="ladder")) == "ladder"


def test_what_only_validates_widens_no_interval() -> None:
    wrong = predicted(9.0, 1.0, role=Role.VALIDATION)
    (row,) = interval_table([predicted(1.1, 1.0), wrong])
    assert (row["chip"], row["kernels"], row["80 % of errors within %"]) == ("trn2", 1, 10.0)


def test_a_pair_is_called_beyond_a_percentage_and_right_where_it_was_measured_faster() -> None:
    narrow, wide = SIMULATED_LESSON_PERCENT, SIMULATED_TIE_PERCENT
    apart = 1 + (narrow + wide) / 200
    found = [predicted(1.0, 1.0), predicted(apart, 2.0), predicted(1 + 2 * wide / 100, 0.5)]
    likely, flat, win = paired_table(found)
    assert (likely["called faster"], likely["are faster"]) == (3, 1)
    for row in (flat, win):
        assert (row["called faster"], row["are faster"]) == (1, 0)
    assert paired_table([predicted(1.0, 1.0), predicted(1.0, 1.0)]) == [], "nothing was called, and nothing gained"


def test_a_pair_of_less_work_is_called_beyond_its_own_percentage() -> None:
    apart = 1 + (SIMULATED_LESS_WORK_PERCENT + 1) / 100
    fast, slow = predicted(1.0, 1.0, dma=0.8), predicted(apart, 2.0, dma=0.8 * apart)
    _, flat, win = paired_table([fast, slow])
    assert (flat["called faster"], win["called faster"], win["are faster"]) == (0, 1, 1)


def test_kernels_without_an_interval_are_in_no_pair() -> None:
    assert paired_table([predicted(1.0, 1.0), predicted(9.0, 9.0, interval=None)]) == []


def test_a_gain_of_ten_percent_that_is_not_called_is_counted() -> None:
    for row in paired_table([predicted(1.0, 1.0), predicted(1.0, 2.0)]):
        assert (row["called faster"], row["gains of 10 %"], row["within it"]) == (0, 1, 1)


def test_a_set_tells_its_level_its_order_and_its_intervals() -> None:
    row = summary("s", [predicted(1.1, 1.0), predicted(3.0, 2.0), predicted(9.0, 3.0, order_only=True)])
    assert (row["kernels"], row["MAPE %"], row["worst %"], row["direction"]) == (3, 30.0, 50.0, "3 of 3")
    assert row["in the interval %"] == 33.0


def test_development_and_validation_are_reported_apart_and_kdas_operators_too() -> None:
    found = [predicted(1.0, 1.0, chain="KDA"), predicted(1.0, 1.0, role=Role.VALIDATION)]
    tables = set_tables(found)
    assert [row["set"] for row in tables["sets_development"]] == ["KDA", "KDA KDA"]
    assert [row["set"] for row in tables["sets_validation"]] == ["g"]
