"""Tiles are made in the loop that uses them, and not all of them before."""

from __future__ import annotations

import pytest

from tests.acceld.proposers.rules.kernels import applied, arrays, assert_same, legacy, sites

HEADS = legacy(
    "q, k",
    """
    out = nl.ndarray((4, 2, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    wide = nl.ndarray((2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    q_tile = nl.ndarray((2, nl.par_dim(128), 4, 128), dtype=nl.float32, buffer=nl.sbuf)
    k_tile = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(2):
        wide[row, p, f] = nl.load(q[row, p, f])
        # one head
        for one in nl.affine_range(4):
            q_tile[row, p, one, c] = nl.multiply(wide[row, p, 128 * one + c], 2.0)
    for head in nl.affine_range(4):
        k_tile[head, p, f] = nl.load(k[head, p, f])
    for pair in nl.affine_range(2):
        for head in nl.affine_range(2):
            for row in nl.affine_range(2):
                scores = nisa.nc_matmul(q_tile[row, p, 2 * pair + head, c], k_tile[2 * pair + head, p, f])
                nl.store(out[2 * pair + head, row, p, f], value=nl.copy(scores))
    return out
""",
)
SHAPES = [(2, 128, 512), (4, 128, 512)]


def variants(source: str) -> list[str]:
    """Return the moves that the rule offers."""
    return [f"{site.line} {site.variants[0].name}" for site in sites("sink_work", source, SHAPES)]


def test_a_producer_moves_into_each_loop_that_needs_fewer_tiles() -> None:
    assert variants(HEADS) == ["16 into head", "16 into row", "21 into head"]


def test_loops_over_what_an_iteration_does_not_need_disappear() -> None:
    after = applied("sink_work", HEADS, SHAPES, site=1)
    moved = after[after.index("for pair in") :]
    assert "for one in" not in after and "wide[row, p, 128 * (2 * pair + head) + c]" in moved
    assert moved.index("wide = nl.ndarray(") < moved.index("# one head") < moved.index("scores")
    assert_same(HEADS, after, *arrays(*SHAPES))


def test_a_loop_that_stays_gets_a_name_of_its_own() -> None:
    after = applied("sink_work", HEADS, SHAPES, site=0)
    assert "for row_of_q_tile in nl.affine_range(2):" in after[after.index("for head in nl.affine_range(2)") :]
    assert_same(HEADS, after, *arrays(*SHAPES))


def test_a_tile_with_a_place_for_each_iteration_stays_where_it_is_declared() -> None:
    after = applied("sink_work", HEADS, SHAPES, site=2)
    assert (
        after.index("k_tile = ")
        < after.index("for pair in")
        < after.index("k_tile[(2 * pair + head), p, f] = nl.load(")
    )
    assert_same(HEADS, after, *arrays(*SHAPES))


def test_a_tile_without_such_a_place_belongs_to_an_iteration() -> None:
    repeated = HEADS.replace("for pair in", "for again in nl.affine_range(1):\n      for pair in").replace(
        "                nl.store(out[2", "                nl.store(out[2 * again + 2"
    )
    after = applied("sink_work", repeated, SHAPES, site=2)
    assert after.index("for pair in") < after.index("k_tile = nl.ndarray(")
    assert_same(repeated, after, *arrays(*SHAPES))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    for pair in", "    q_tile[0, p, 0, c] = nl.load(q[0, p, c])\n    for pair in"),  # changed in between
        ("for row in nl.affine_range(2):\n        wide", "for row in nl.sequential_range(2):\n        wide"),
        ("    return out", "    nl.store(out[0, 0, p, c], value=q_tile[0, p, 0, c])\n    return out"),  # used elsewhere
        ("q_tile[row, p, one, c] =", "q_tile[row, p, 3 - one, c] ="),  # made in another order
        ("q_tile[row, p, 2 * pair + head, c],", "q_tile[row, p, nl.load(k[0, 0, 0]), c],"),
    ],
)
def test_a_producer_that_is_not_just_for_that_loop_stays(old: str, new: str) -> None:
    changed = HEADS.replace(old, new, 1)
    assert changed != HEADS
    assert not [move for move in variants(changed) if move.startswith("16 into head")]


def test_a_sum_keeps_its_loops() -> None:
    summed = HEADS.replace(
        "q_tile[row, p, one, c] = nl.multiply(wide[row, p, 128 * one + c], 2.0)",
        "q_tile[0, p, one, c] += nl.multiply(wide[row, p, 128 * one + c], 2.0)",
    ).replace("q_tile[row, p, 2", "q_tile[0, p, 2")
    assert "16 into row" not in variants(summed)
