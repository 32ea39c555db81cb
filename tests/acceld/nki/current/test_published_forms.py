"""Forms that published kernels and the documentation of the current API use."""

from __future__ import annotations

import numpy as np
import pytest

from tests.acceld.nki.current.test_current import drawn, ran, traced

COPY = """
{head}
@nki.jit
def kernel(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x{option})
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
{tail}
"""


@pytest.mark.parametrize(
    ("head", "option", "tail"),
    [
        ("from nki.isa import constants", ", dge_mode=constants.dge_mode.hwdge", ""),
        ("", ", name='load'", "kernel = kernel.with_schedule([('store', 'load')])"),
        ("", "", "kernel = nki.jit(kernel.func)"),
    ],
)
def test_a_documented_form_is_traced(head: str, option: str, tail: str) -> None:
    (x,) = drawn((128, 24))
    found = ran(traced(COPY.format(head=head, option=option, tail=tail), x.shape), [x])
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize("axes", [(3,), (2, 3), (1, 2, 3)])
def test_the_last_free_axes_are_reduced(axes: tuple[int, ...]) -> None:
    (x,) = drawn((128, 3, 4, 5))
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    body = f"""
@nki.jit
def kernel(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    total = nl.ndarray({shape}, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_reduce(total, nl.max, tile, axis={axes})
    out = nl.ndarray({shape}, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out
"""
    np.testing.assert_array_equal(ran(traced(body, x.shape), [x]), x.max(axes, keepdims=True))
