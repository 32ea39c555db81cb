"""Every engine reads a tile in the dtype of the access, whatever dtype it was written in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acceld.nki.execute.interpreter import execute
from acceld.nki.ir.numerics import NUMPY_DTYPES
from acceld.nki.ir.program import Access, Buffer
from tests.acceld.nki.programs import Kernel, Run, at, var

Array = NDArray[Any]
FORMATS = ("float32", "tfloat32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2")
HOW = ("declared", "viewed", "copied raw", "written through a view")


def values(*shape: int) -> Array:
    return np.random.default_rng(17).standard_normal(shape).astype(np.float32)


def rounded(x: Array, dtype: str) -> Array:
    """Return the nearest values of ``dtype``, one at a time and by arithmetic alone for TF32."""
    if dtype != "tfloat32":
        return x.astype(NUMPY_DTYPES[dtype]).astype(np.float32)
    out = np.empty_like(x)
    for index, value in np.ndenumerate(x.astype(np.float64)):
        mantissa, exponent = np.frexp(value)
        out[index] = np.ldexp(np.rint(mantissa * 2**11), exponent - 11)
    return out


def held(kernel: Kernel, shape: tuple[int, ...], dtype: str, how: str) -> tuple[Buffer, str]:
    """Return a tile that an instruction reads as ``dtype``, filled from an input in one of the ways a kernel has."""
    if how == "declared":
        tile = kernel.sbuf(shape, dtype)
        kernel.load(tile, kernel.input(shape))
        return tile, ""
    wide = kernel.loaded(shape)
    if how == "viewed":
        return wide, dtype
    tile = kernel.sbuf(shape, dtype)
    if how == "copied raw":
        kernel.op("copy", at(tile), at(wide, dtype=dtype))
    else:
        kernel.op("copy", at(tile, dtype="float32"), at(wide))
    return tile, ""


def ways(dtype: str) -> list[str]:
    return list(HOW) if dtype in ("float32", "tfloat32") else ["declared"]


CASES = [(dtype, how) for dtype in FORMATS for how in ways(dtype)]


@pytest.mark.parametrize("mode", ["yes", "auto", "no"])
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("dtype", "how"), CASES)
def test_a_product_multiplies_operands_rounded_to_the_format_it_reads(
    dtype: str, how: str, fused: bool, mode: str
) -> None:
    kernel = Kernel()
    blocks, rows, m, n = 3, 8, 5, 7
    tiles = [held(kernel, (rows, blocks, size), dtype, how) for size in (m, n)]
    product, done = kernel.psum((m, n)), kernel.sbuf((m, n))
    if mode == "yes":
        kernel.op("memset", at(product), 0.0)
    with kernel.loop(blocks) as k:
        operands = [at(tile, Run(0, rows), var(k), Run(0, tile.shape[2]), dtype=view) for tile, view in tiles]
        kernel.op("matmul", at(product), operands, accumulate=mode)
        if not fused:
            kernel.op("copy", at(done), at(product))
    if fused:
        kernel.op("copy", at(done), at(product))
    kernel.store(kernel.output((m, n)), done)
    x, y = values(rows, blocks, m), values(rows, blocks, n) * 3
    (out,) = execute(kernel.finish(), [x, y])
    a, b = rounded(x, dtype).astype(np.float64), rounded(y, dtype).astype(np.float64)
    terms = [a[:, k].T @ b[:, k] for k in range(blocks)]
    expected = terms[-1] if mode == "no" else sum(terms)
    assert np.abs(out - expected).max() < 1e-5
    if dtype != "float32":
        exact = [x[:, k].T.astype(np.float64) @ y[:, k] for k in range(blocks)]
        assert np.abs(out - (exact[-1] if mode == "no" else sum(exact))).max() > 1e-4


OPERATIONS: dict[str, dict[str, Any]] = {
    "copy": {},
    "dma_copy": {},
    "broadcast_partition": {},
    "transpose": {},
    "shuffle": {"lanes": tuple(range(32))},
    "activation": {"func": "copy"},
    "tensor_tensor": {"op": "max"},
    "tensor_scalar": {"op0": "add"},
    "scalar_tensor_tensor": {"op0": "add", "op1": "max"},
    "tensor_reduce": {"op": "add", "axes": (2,)},
    "select": {},
    "gather": {},
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("dtype", "how"), CASES)
def test_an_operation_computes_with_values_of_the_format_it_reads(dtype: str, how: str, name: str) -> None:
    kernel = Kernel()
    shape = (32, 4, 1) if name == "tensor_reduce" else (1, 4) if name == "broadcast_partition" else (32, 4)
    tile, view = held(kernel, shape, dtype, how)
    read: Access = at(tile, dtype=view)
    result = kernel.sbuf((4, 32) if name == "transpose" else (32, 4))
    if name == "broadcast_partition":
        read = replace(read, dims=(replace(read.dims[0], count=32, steps=(0, 0)), read.dims[1]))
    others: dict[str, list[Any]] = {
        "activation": [0.0, 1.0],
        "tensor_tensor": [read],
        "tensor_scalar": [0.0],
        "scalar_tensor_tensor": [0.0, read],
    }
    operands = [read, *others.get(name, [])]
    if name == "select":
        ones = kernel.sbuf((32, 4))
        kernel.op("memset", at(ones), 1.0)
        operands = [at(ones), read, 0.0]
    if name == "gather":
        index = kernel.sbuf((32, 4), "uint32")
        kernel.load(index, kernel.input((32, 4), "uint32"))
        operands = [read, at(index)]
    kernel.op(name, at(result), operands, **OPERATIONS[name])
    kernel.store(kernel.output(result.shape), result)
    x = values(*shape)
    inputs = [x, np.tile(np.arange(4, dtype=np.uint32), (32, 1))] if name == "gather" else [x]
    (out,) = execute(kernel.finish(), inputs)
    expected = rounded(x, dtype).reshape(shape[:2])
    assert np.array_equal(out, expected.T if name == "transpose" else np.broadcast_to(expected, out.shape))


@pytest.mark.parametrize("name", ["copy", "dma_copy", "transpose"])
def test_a_copy_into_a_narrower_format_than_its_storage_keeps_no_bit_too_many(name: str) -> None:
    kernel = Kernel()
    wide = kernel.loaded((16, 16))
    narrow = kernel.sbuf((16, 16), "tfloat32")
    kernel.op(name, at(narrow), at(wide, dtype="tfloat32"))
    kernel.op("dma_copy", at(kernel.output((16, 16))), at(narrow, dtype="float32"))
    (out,) = execute(kernel.finish(), [values(16, 16)])
    assert not (out.view(np.uint32) & 0x1FFF).any()
