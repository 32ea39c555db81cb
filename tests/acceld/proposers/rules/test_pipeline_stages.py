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


FED = legacy(
    "x, w",
    """
    out = nl.ndarray((4, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    w_tile = nl.load(w[p, f])
    x_tile = nl.ndarray((4, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    product = nl.zeros((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    for row in nl.affine_range(4):
        for part in nl.affine_range(2):
            x_tile[row, part, p, c] = nl.load(x[row, part, p, c])
        for part in nl.affine_range(2):
            product[row, p, f] += nisa.nc_matmul(x_tile[row, part, p, c], w_tile)
        nl.store(out[row, p, f], value=nl.copy(product[row, p, f]))
    return out
""",
)


def test_operands_of_products_are_loaded_one_iteration_ahead() -> None:
    loads, products = sites("pipeline_stages", FED, SHAPES)
    assert "waits for the loads before it. Make x_tile" in loads.plan
    assert "waits for the products before it. Make product" in products.plan
    after = applied("pipeline_stages", FED, SHAPES)
    assert "nl.load(x[(row + 1), part, p, c])" in after and "product[(row + 1)" not in after
    assert_same(FED, after, *arrays(*SHAPES))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x_tile[row, part, p, c]", "x_tile[0, part, p, c]"),  # the next load would overwrite what is still read
        ("row in nl.affine_range", "row in nl.sequential_range"),
    ],
)
def test_loads_into_a_place_that_is_still_read_stay_behind(old: str, new: str) -> None:
    changed = FED.replace(old, new)
    assert changed != FED
    assert not [site for site in sites("pipeline_stages", changed, SHAPES) if "for the loads" in site.plan]


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
