"""Explicit access patterns, views and packed types of the current API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from acceld.nki.errors import LegalityError
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.program import Access, Buffer, Engine, Space
from acceld.nki.verify.verifier import verify
from tests.acceld.nki.current.test_current import PRELUDE, drawn, ran, traced
from tests.acceld.nki.programs import Kernel, at


def test_a_pattern_of_a_reshaped_tensor_counts_in_its_flat_order() -> None:
    (x,) = drawn((256, 32))
    program = traced(
        """
@nki.jit
def kernel(x):
    out = nl.ndarray((64, 32, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((64, 32, 4), dtype=x.dtype, buffer=nl.sbuf)
    blocks = x.reshape((4, 64, 32))
    nisa.dma_copy(dst=tile, src=blocks.ap(pattern=[[32, 64], [1, 32], [64 * 32, 4]], offset=0))
    nisa.dma_copy(dst=out, src=tile)
    return out
""",
        (256, 32),
    )
    assert np.array_equal(ran(program, [x]), x.reshape(4, 64, 32).transpose(1, 2, 0))


def test_a_pattern_may_run_across_axes() -> None:
    (x,) = drawn((64, 6, 10))
    program = traced(
        """
@nki.jit
def kernel(x):
    out = nl.ndarray((64, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((64, 6, 10), dtype=x.dtype, buffer=nl.sbuf)
    part = nl.ndarray((64, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_copy(dst=part, src=tile.ap(pattern=[[60, 64], [5, 12]], offset=0))
    nisa.dma_copy(dst=out, src=part)
    return out
""",
        (64, 6, 10),
    )
    assert np.array_equal(ran(program, [x]), x.reshape(64, 60)[:, ::5])


OVERRUN = """
@nki.jit
def kernel(x):
    out = nl.ndarray((64, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((64, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for i in range(4):
        every_third = tile.ap(pattern=[[12, 64], [3, 4]], offset=i)
        {condition}nisa.dma_copy(dst=out, src=every_third)
    return out
"""


def test_a_pattern_beyond_its_tensor_is_an_error_only_where_it_is_used() -> None:
    (x,) = drawn((64, 12))
    program = traced(OVERRUN.format(condition="if i < 3: "), (64, 12))
    assert np.array_equal(ran(program, [x]), x[:, 2::3])
    with pytest.raises(LegalityError, match=r"index range \[3, 12\] exceed dimension size of 12") as raised:
        traced(OVERRUN.format(condition=""), (64, 12))
    assert raised.value.rule == "out_of_bounds"


def test_the_two_formats_of_four_exponent_bits_are_not_one() -> None:
    x = np.linspace(-448, 448, 64, dtype=np.float32).reshape(2, 32)
    program = traced(
        """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    small = nl.ndarray(x.shape, dtype=nl.float8_e4m3fn, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_copy(dst=small, src=tile)
    nisa.tensor_copy(dst=tile, src=small)
    nisa.dma_copy(dst=out, src=tile)
    return out
""",
        (2, 32),
    )
    assert np.array_equal(ran(program, [x]), x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32))


def test_products_of_float4_unpack_the_lowest_bits_first() -> None:
    rng = np.random.default_rng(3)
    levels = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])

    def packed(columns: int) -> tuple[np.ndarray, np.ndarray]:
        codes = rng.integers(0, 16, (32, columns, 4))
        values = np.where(codes & 8, -1.0, 1.0) * levels[codes & 7]
        return (codes << np.array([0, 4, 8, 12])).sum(axis=2).astype(np.uint16), values

    a, left = packed(16)
    b, right = packed(64)
    scales = [rng.integers(124, 130, (4, n)).astype(np.uint8) for n in (16, 64)]
    body = """
@nki.jit
def kernel(a, b, sa, sb):
    out = nl.ndarray((16, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = []
    for x in (a, b, sa, sb):
        dtype = nl.float4_e2m1fn_x4 if x.dtype == nl.uint16 else x.dtype
        tile = nl.ndarray(x.shape, dtype=dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.view(dtype))
        tiles.append(tile)
    acc = nl.ndarray((16, 64), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(acc, tiles[0], tiles[1], tiles[2], tiles[3])
    done = nl.ndarray((16, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=done, src=acc)
    nisa.dma_copy(dst=out, src=done)
    return out
"""
    arrays = [a, b, *scales]
    program = trace(PRELUDE + body, [TensorSpec(x.shape, x.dtype.name) for x in arrays], api="nki", chip="trn3")
    assert verify(program) == ()
    weights = [np.repeat(2.0 ** (s.astype(np.float64) - 127), 8, axis=0)[..., None] for s in scales]
    expected = np.einsum("kiq,kjq->ij", left * weights[0], right * weights[1])
    np.testing.assert_allclose(execute(program, arrays)[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "kind", "view"),
    [
        (np.uint8, "uint32", "x.view(nl.uint32)"),
        (np.uint8, "uint32", "x.view(nl.uint32).slice(1, 8, 24)"),
        (np.uint8, "uint16", "x[:, 8:24, 4:8].view(nl.uint16)"),
        (np.float32, "uint8", "x[:, 8:24].view(nl.uint8)"),
        (np.uint8, "uint32", "x.view(nl.uint32).reshape((4, 64)).ap([[64, 4], [4, 16], [1, 2]])"),
    ],
)
def test_a_tensor_in_hbm_is_read_as_a_wider_or_narrower_type(dtype: type, kind: str, view: str) -> None:
    x: NDArray[Any] = np.random.default_rng(2).integers(0, 200, (4, 32, 8)).astype(dtype)
    body = f"""
@nki.jit
def kernel(x):
    w = {view}
    tile = nl.ndarray(w.shape, dtype=nl.{kind}, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=w)
    out = nl.ndarray(w.shape, dtype=nl.{kind}, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
    program = trace(PRELUDE + body, [TensorSpec(x.shape, x.dtype.name)], api="nki", chip="trn2")
    assert verify(program) == ()
    (found,) = execute(program, [x])
    wide = x.view(np.uint32) if "slice" in view or "ap(" in view or view == "x.view(nl.uint32)" else x
    if "ap(" in view:
        flat = wide.reshape(-1)
        expected = flat[np.arange(4)[:, None, None] * 64 + np.arange(16)[:, None] * 4 + np.arange(2)]
    elif "slice" in view:
        expected = wide[:, 8:24]
    elif wide is x:
        expected = np.ascontiguousarray(x[:, 8:24, 4:8] if kind == "uint16" else x[:, 8:24]).view(kind)
    else:
        expected = wide
    assert np.array_equal(found, expected)


def test_a_view_in_hbm_has_what_the_tensor_has_when_it_is_read() -> None:
    x = np.random.default_rng(7).standard_normal((32, 8)).astype(np.float32)
    body = """
@nki.jit
def kernel(x, twice):
    kept = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.private_hbm)
    nisa.dma_copy(dst=kept, src=x)
    w = kept.view(nl.uint16)
    LINE
    tile = nl.ndarray(w.shape, dtype=nl.uint16, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=w)
    out = nl.ndarray(w.shape, dtype=nl.uint16, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
    twice = x + x
    for line, kept in (("pass", x), ("nisa.dma_copy(dst=kept, src=twice)", twice)):
        source = PRELUDE + body.replace("LINE", line)
        program = trace(source, [TensorSpec((32, 8), "float32")] * 2, api="nki", chip="trn2")
        assert verify(program) == ()
        assert np.array_equal(execute(program, [x, twice])[0], kept.view(np.uint16))


def test_a_program_can_not_call_a_rearrangement_in_hbm_or_a_result_a_view() -> None:
    def rules(source: Access, *, result: bool = False) -> set[str]:
        kernel = Kernel()
        x = kernel.input((8, 4))
        out = kernel.output((8, 8), "uint16")
        view = out if result else kernel.hbm((8, 8), "uint16")
        kernel.op("bitcast", at(view), replace(source, buffer=x.id), engine=Engine.SYNC)
        return {finding.rule for finding in verify(kernel.finish())}

    whole = at(Buffer(0, "x", Space.HBM, "float32", (8, 4)))
    assert not rules(whole) & {"access_pattern", "address_space", "shape"}
    turned = replace(whole, dims=whole.dims[::-1])
    assert "access_pattern" in rules(turned)
    assert "address_space" in rules(whole, result=True)
