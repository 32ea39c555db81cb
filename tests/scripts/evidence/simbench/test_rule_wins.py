"""The table of gains has a row for each kernel, and names the gains that a wrong constant would take."""

from __future__ import annotations

from scripts.evidence.simbench.rule_wins import Win, win_table

KEPT = Win("silu, trn1", "fold_scalars", 25, 1.12, 1.017, "reciprocal_factor x0.8", 24, 24)
LOST = Win("silu, trn1", "widen_tiles", 15, 1.081, 0.997, "reciprocal_factor x0.8", 24, 24)
PARTLY = Win("bmm, trn1", "place_engine", 27, 1.068, 0.987, "tensor_overhead_cycles x0.8", 1, 24)


def test_a_kernel_has_one_row_with_its_greatest_gain_and_the_gains_that_vanish() -> None:
    silu, bmm, every = win_table([[KEPT.row, LOST.row], [PARTLY.row]])
    assert (silu["gains"], silu["tried in full"], silu["vanished"]) == (2, 2, "widen_tiles 1.081")
    assert (silu["greatest gain"], silu["with the worst constant"]) == ("fold_scalars 1.12", 1.017)
    assert (bmm["tried in full"], bmm["vanished"]) == (0, "place_engine 1.068")
    assert (every["kernel"], every["gains"], every["tried in full"]) == ("all", 3, 2)
    assert every["vanished"] == "widen_tiles 1.081; place_engine 1.068"


def test_a_kernel_without_a_gain_says_so() -> None:
    row, _ = win_table([[{**KEPT.row, "rule": "no win", "line": "", "speed-up": "", "least": "", "survives": ""}]])
    assert (row["gains"], row["greatest gain"], row["vanished"]) == (0, "-", "none")
