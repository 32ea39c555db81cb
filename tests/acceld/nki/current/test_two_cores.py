"""Kernels on the two cores of a logical core."""

from __future__ import annotations

import numpy as np
import pytest

from tests.acceld.nki.current.test_current import drawn, ran, traced

PRODUCTS = """
@nki.jit
def kernel(x, w):
    S, H = x.shape[0], x.shape[1]
    n = S // {cores}
    out = nl.ndarray((S, 128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    for k in nl.affine_range(n):
        s = {row}
        acc = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum{address})
        for h in nl.affine_range(H):
            tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[s, h])
            weight = nl.ndarray((128, 128), dtype=w.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=weight, src=w[h])
            nisa.nc_matmul(dst=acc, stationary=weight, moving=tile)
        {inside}
        result = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=acc)
        nisa.dma_copy(dst=out[s], src=result)
    {after}
    return out
"""
BARRIER = "nisa.core_barrier(out, (0, 1))"


@pytest.mark.parametrize("address", ["", ", address=(0, 0)"])
@pytest.mark.parametrize(("inside", "after"), [("pass", "pass"), ("pass", BARRIER), (BARRIER, "pass")])
def test_a_psum_tile_of_each_iteration_starts_empty_on_both_cores(address: str, inside: str, after: str) -> None:
    x, w = drawn((8, 3, 128, 64), (3, 128, 128))
    expected = np.einsum("hkm,shkn->smn", w, x)
    places = {"address": address, "inside": inside, "after": after}
    body = PRODUCTS.format(cores=2, row="k + nl.program_id(0) * n", **places)
    found = ran(traced(body, x.shape, w.shape, grid=(2,), lnc=2), [x, w])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
