"""The first stage of a loop's next iteration before the rest of this one."""

from __future__ import annotations

import pytest

from tests.acceld.proposers.rules.kernels import applied, arrays, assert_same, legacy, sites

CHAIN = legacy(
    "x, w",
    """
    out = nl.ndarray((4, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    w_tile = nl.load(w[p, f])
    product = nl.zeros((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    power = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(4):
        for part in nl.affine_range(2):
            x_tile = nl.load(x[row, part, p, c])
            product[row, p, f] += nisa.nc_matmul(x_tile, w_tile)
        # what other engines do
        power[row, p, f] = nisa.activation(op=nl.tanh, data=product[row, p, f])
        nl.store(out[row, p, f], value=power[row, p, f])
    return out
""",
)
SHAPES = [(4, 2, 128, 128), (128, 512)]


def test_products_are_made_one_iteration_ahead() -> None:
    after = applied("pipeline_stages", CHAIN, SHAPES)
    assert "for row in nl.sequential_range(3):" in after and "x[(row + 1), part, p, c]" in after
    assert after.count("nc_matmul") == 2 and after.count("nl.tanh") == 2 and "power[3, p, f]" in after
    assert_same(CHAIN, after, *arrays(*SHAPES))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("row in nl.affine_range", "row in nl.sequential_range"),
        ("zeros((4, nl.par_dim(128), 512)", "zeros((nl.par_dim(128), 512)"),  # one place for all iterations
        ("data=product[row, p, f]", "data=product[0, p, f]"),
        ("        # what", "        row_number = row + 1\n        # what"),
        ("    return out", "    nl.store(out[0, p, f], value=product[0, p, f])\n    return out"),
    ],
)
def test_stages_that_share_a_place_stay_together(old: str, new: str) -> None:
    changed = CHAIN.replace(old, new).replace(
        "product[row, p, f]", "product[p, f]" if "zeros((nl" in new else "product[row, p, f]"
    )
    assert changed != CHAIN
    assert sites("pipeline_stages", changed, SHAPES) == []
