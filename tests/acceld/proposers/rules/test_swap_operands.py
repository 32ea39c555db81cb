"""Products computed transposed, because their result is transposed later."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import rule_named
from tests.acceld.proposers.rules.kernels import Array, applied, arrays, assert_same, legacy, run, sites

SHAPES = [(4, 128, 128), (128, 256), (2, 128, 256)]
GATED = legacy(
    "x, w, v",
    """
    out = nl.ndarray((4, 128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(256)[None, :]
    identity_hbm = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.ndarray((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    x_t = nl.ndarray((4, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    w_tile = nl.ndarray((nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
    v_tile = nl.ndarray((2, nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
    wide = nl.ndarray((4, nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.sbuf)
    identity[p, c] = nl.load(identity_hbm[p, c])
    w_tile[p, f] = nl.load(w[p, f])
    for n in nl.affine_range(2):
        v_tile[n, p, f] = nl.load(v[n, p, f])
    for row in nl.affine_range(4):
        x_t[row, p, c] = nl.load(x[row, p, c])
    for row in nl.affine_range(4):
        product = nl.zeros((nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.psum)
        product += nisa.nc_matmul(x_t[row, p, c], w_tile[p, f])
        gate = nisa.activation(op=nl.tanh, data=product, scale=0.1)
        wide[row, p, f] = nl.multiply(gate, product)
    for block in nl.affine_range(2):
        wide_t = nl.ndarray((2, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
        for row in nl.affine_range(2):
            # for the next product
            for part in nl.affine_range(2):
                turned = nisa.nc_matmul(wide[2 * block + row, p, 128 * part + c], identity[p, c], is_moving_onezero=True, is_transpose=True)
                wide_t[row, part, p, c] = nl.copy(turned)
        for row in nl.affine_range(2):
            total = nl.zeros((nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.psum)
            for n in nl.affine_range(2):
                total += nisa.nc_matmul(wide_t[row, n, p, c], v_tile[n, p, f])
            nl.store(out[2 * block + row, p, f], value=nl.copy(total))
    return out
""",
)
BY_COLUMNS = (
    GATED.replace("x_t = nl.ndarray((4, nl.par_dim(128), 128)", "x_t = nl.ndarray((2, nl.par_dim(128), 256)")
    .replace("x_t[row, p, c] = nl.load", "x_t[row // 2, p, 128 * (row % 2) + c] = nl.load")
    .replace("    for row in nl.affine_range(4):\n        product", "    for pair in nl.affine_range(2):\n      for row in nl.affine_range(2):\n        product")
    .replace("x_t[row, p, c], w_tile", "x_t[pair, p, 128 * row + c], w_tile")
    .replace("wide[row, p, f]", "wide[2 * pair + row, p, f]")
)  # fmt: skip


def small() -> list[Array]:
    """Return inputs whose products stay near one."""
    return [array * np.float32(0.25) for array in arrays(*SHAPES)]


@pytest.mark.parametrize(
    ("before", "moving", "stationary"),
    [
        (GATED, "x_t[row // 2, p, f]", "w_tile[p, 128 * (row % 2) + c]"),
        (BY_COLUMNS, "x_t[pair, p, f]", "w_tile[p, 128 * row + c]"),
    ],
    ids=["tiles laid out anew", "tiles side by side"],
)
def test_a_product_that_is_transposed_again_is_made_transposed(before: str, moving: str, stationary: str) -> None:
    after = applied("swap_operands", before, SHAPES)
    assert f"nc_matmul({stationary}, {moving})" in after
    assert "wide[2 * block + n, p, 128 * row + c], v_tile" in after
    assert "is_transpose" not in after and "wide_t" not in after and "for the next product" not in after
    assert_same(before, after, *small())


def test_a_tile_whose_index_counts_places_and_blocks_is_found_again() -> None:
    before = (
        GATED.replace("wide_t = nl.ndarray((2, 2, nl.par_dim", "wide_t = nl.ndarray((4, nl.par_dim")
        .replace("wide_t[row, part, p, c]", "wide_t[2 * row + part, p, c]")
        .replace("wide_t[row, n, p, c]", "wide_t[2 * row + n, p, c]")
    )
    after = applied("swap_operands", before, SHAPES)
    assert "wide[2 * block + ((2 * row + n) % 2), p, 128 * ((2 * row + n) // 2) + c]" in after
    assert_same(before, after, *small())


def test_two_products_between_which_work_is_element_wise_are_both_exchanged() -> None:
    before = GATED.replace(
        "        gate = nisa",
        "        other = nl.zeros((nl.par_dim(128), 256), dtype=nl.float32, buffer=nl.psum)\n"
        "        other += nisa.nc_matmul(stationary=x_t[row, p, c], moving=w_tile[p, f])\n"
        "        up = nl.copy(other)\n        gate = nisa",
    ).replace("nl.multiply(gate, product)", "nl.multiply(gate, up)")
    after = applied("swap_operands", before, SHAPES)
    assert "stationary=w_tile[p, 128 * (row % 2) + c], moving=x_t[row // 2, p, f]" in after
    assert_same(before, after, *small())


def test_a_bias_of_zeros_is_no_operand() -> None:
    before = GATED.replace("scale=0.1", "scale=0.1, bias=zeros[p, 0]")
    zeros = "    zeros = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)\n"
    filled = "    zeros[p, 0] = nisa.memset(shape=(128, 1), value=0.0, dtype=nl.float32)\n"
    before = before.replace("    identity[p, c] =", zeros + filled + "    identity[p, c] =")
    assert_same(before, applied("swap_operands", before, SHAPES), *small())
    other = before.replace("value=0.0", "value=1.0")
    assert sites("swap_operands", other, SHAPES) == []


def test_nc_transpose_goes_as_well() -> None:
    before = GATED.replace(
        "nisa.nc_matmul(wide[2 * block + row, p, 128 * part + c], identity[p, c], is_moving_onezero=True, is_transpose=True)",
        "nisa.nc_transpose(wide[2 * block + row, p, 128 * part + c])",
    )
    assert before != GATED
    np.testing.assert_allclose(
        run(applied("swap_operands", before, SHAPES), *small()), run(GATED, *small()), rtol=2e-5, atol=2e-6
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("np.identity(128,", "np.ones((128, 128),", ""),  # no transpose
        ("np.identity(128, dtype=np.float32)", "np.identity(128, dtype=np.float32)[::-1]", ""),
        ("data=product, scale=0.1", "data=product, scale=0.1, bias=w_tile[p, 0]", "neither a product nor"),
        ("nl.multiply(gate, product)", "nl.multiply(gate, product[p, 0])", "not a whole tile"),  # one value a row
        ("nl.multiply(gate, product)", "nl.multiply(gate, w_tile[p, f])", "neither a product nor"),  # not a product
        ("data=product, scale=0.1", "data=product, scale=0.1, mask=f < 200", "not a plain operation"),
        (
            "        wide[row, p, f] =",
            "        total_gate = nl.sum(gate, axis=[1])\n        wide[row, p, f] =",
            "also read here",
        ),
        ("    return out", "    nl.store(out[0, p, f], value=wide[0, p, f])\n    return out", "also read here"),
        (
            "wide[row, p, f] = nl.multiply",
            "wide[3 - row, p, f] = nl.multiply",
            "no place for each iteration|another order",
        ),
        (
            "nl.multiply(gate, product)",
            "nl.multiply(gate, wide[row, p, f])",
            "not in the same place",
        ),
        (
            "    for row in nl.affine_range(4):\n        product",
            "    for row in nl.affine_range(3):\n        product",
            "no loop gives",
        ),
        (
            "        product += nisa",
            "        w_tile[p, f] = nl.load(w[p, f])\n        product += nisa",
            "no loop gives",
        ),
        (
            "        product += nisa",
            "        x_t[row, p, c] = nl.load(x[row, p, c])\n        product += nisa",
            "no loop gives",
        ),
        (
            "nc_matmul(x_t[row, p, c], w_tile[p, f])",
            "nc_matmul(x_t[row, p, c], w_tile[p, f], is_moving_onezero=True)",
            "flags",
        ),
        ("    for block in", "    other = x_t\n    for block in", "no loop gives"),  # another name
        (
            "2, 2, nl.par_dim(128), 128), dtype=nl.float32",
            "2, 2, nl.par_dim(128), 128), dtype=nl.bfloat16",
            "another dtype",
        ),
        ("wide_t[row, n, p, c], v", "wide_t[row, n, p, 0:64], v", "does not follow from its index"),
        (
            "wide[2 * block + row, p, 128 * part",
            "wide[block + 2 * row, p, 128 * part",
            "does not follow from its index",
        ),
        ("wide[2 * block + row, p, 128 * part", "wide[block + row, p, 128 * part", "no loop over"),
        ("data=product, scale=0.1", "data=product, scale=0.1 * row", "an operand is an expression"),
        ("    for block in", "    x_t[0, p, c] = nl.load(x[0, p, c])\n    for block in", "no loop gives"),
        ("nl.copy(turned)", "nl.exp(turned)", "not only copied"),
    ],
)
def test_products_whose_values_may_not_change_places_stay(old: str, new: str, reason: str) -> None:
    changed = GATED.replace(old, new)
    assert changed != GATED
    assert sites("swap_operands", changed, SHAPES) == []
    refusals = rule_named("swap_operands").refusals(KernelModule(changed, "nki_legacy", SHAPES))
    reasons = [one.precondition for one in refusals]
    assert any(part in one for part in reason.split("|") for one in reasons) if reason else not reasons, reasons
