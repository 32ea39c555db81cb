"""A factor for each row moves from an operand of a product to its result."""

from __future__ import annotations

import pytest

from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import rule_named
from tests.acceld.proposers.rules.kernels import applied, arrays, assert_same, legacy, sites

SOFTMAX = legacy(
    "x, w",
    """
    out = nl.ndarray((2, 3, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    identity = nl.shared_constant(np.identity(128, dtype=np.float32))
    unit = nl.ndarray((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    unit[p, c] = nl.load(identity[p, c])
    w_tile = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    power = nl.ndarray((2, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((3, 2, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    inverse = nl.ndarray((3, 2, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    scaled = nl.ndarray((2, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    turned = nl.zeros((2, 3, 4, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
    scaled_t = nl.ndarray((4, 2, nl.par_dim(128), 384), dtype=nl.float32, buffer=nl.sbuf)
    sums = nl.zeros((2, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(4):
        w_tile[k, p, f] = nl.load(w[k, p, f])
    for a in nl.affine_range(2):
        for b in nl.affine_range(3):
            tile = nl.load(x[a, b, p, f])
            power[a, b, p, f] = nisa.activation(op=nl.exp, data=tile)
            total[b, a, p, 0] = nisa.tensor_reduce(nl.add, data=power[a, b, p, f], axis=[1])
            inverse[b, a, p, 0] = nisa.reciprocal(data=total[b, a, p, 0])
            scaled[a, b, p, f] = nisa.tensor_scalar(data=power[a, b, p, f], op0=nl.multiply, operand0=inverse[b, a, p, 0])
            for k in nl.affine_range(4):
                turned[a, b, k, p, c] = nisa.nc_matmul(scaled[a, b, p, 128 * k + c], unit[p, c], is_transpose=True)
                scaled_t[k, a, p, 128 * b + c] = nl.copy(turned[a, b, k, p, c])
    for a in nl.affine_range(2):
        for row in nl.affine_range(3):
            for k in nl.affine_range(4):
                sums[a, row, p, f] += nisa.nc_matmul(scaled_t[k, a, p, 128 * row + c], w_tile[k, p, f])
            nl.store(out[a, row, p, f], value=nl.copy(sums[a, row, p, f]))
    return out
""",
)
SOFTMAX = SOFTMAX.replace(
    "            nl.store(out[a, row, p, f], value=nl.copy(sums[a, row, p, f]))\n",
    "            result = nl.copy(sums[a, row, p, f], dtype=nl.float32)\n            nl.store(out[a, row, p, f], value=result)\n",
)
SHAPES = [(2, 3, 128, 512), (4, 128, 512)]


def test_rows_are_scaled_after_the_product_whatever_the_loops_are_called() -> None:
    after = applied("scale_after_product", SOFTMAX, SHAPES)
    assert "scaled[" not in after and "scaled =" not in after
    assert "nisa.nc_matmul(power[a, b, nl.arange(128)[:, None], 128 * k + nl.arange(128)[None, :]], unit" in after
    factor = "operand0=inverse[row, a, nl.arange(128)[:, None], 0], dtype=nl.float32)"
    assert f"result = nisa.tensor_scalar(data=sums[a, row, p, f], op0=nl.multiply, {factor}" in after
    assert_same(SOFTMAX, after, *arrays(*SHAPES))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("inverse[b, a, p, 0])", "inverse[b, a, p, 0], op1=nl.add, operand1=1.0)", None),
        ("inverse[b, a, p, 0]", "inverse[0, a, p, 0]", "has no place for every iteration"),
        ("data=power[a, b, p, f], op0", "data=tile, op0", "is not a tile in SBUF"),
        ("    return out", "    nl.store(out[0, 0, p, f], value=scaled[0, 0, p, f])\n    return out", "not only transposed"),
        ("    return out", "    nl.store(out[0, 0, p, f], value=nl.copy(sums[0, 0, p, f]))\n    return out", "only copied"),
        ("128 * row + c], w", "128 * row + c + 64 * a], w", "depends on b"),
        ("scaled_t[k, a, p, 128 * row", "scaled_t[k, k // 2, p, 128 * row", "depends on"),
        ("128 * row + c], w", "128 * row + 64 + c], w", "depends on b"),
        ("unit[p, c], is_transpose=True", "unit[p, c]", None),
        ("result = nl.copy(sums", "result = nl.exp(sums", "only copied"),
        ("nl.zeros((2, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)",
         "nl.full((2, 3, nl.par_dim(128), 512), 1.0, dtype=nl.float32, buffer=nl.psum)", "begin with zeros"),
        ("scaled[a, b, p, 128 * k + c], unit", "scaled[1 - a, b, p, 128 * k + c], unit", "another tile"),
    ],
)  # fmt: skip
def test_a_factor_stays_where_it_may_not_be_the_row_s(old: str, new: str, reason: str | None) -> None:
    assert old in SOFTMAX
    changed = SOFTMAX.replace(old, new)
    assert sites("scale_after_product", changed, SHAPES) == []
    refused = rule_named("scale_after_product").refusals(KernelModule(changed, "nki_legacy", SHAPES))
    assert len(refused) == (reason is not None)
    assert all((reason or "") in one.precondition for one in refused)
