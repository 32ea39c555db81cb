"""A float32 tile read as tfloat32 is rounded, by every operation and on every way through the executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.ir.numerics import round_tfloat32
from acceld.nki.ir.program import Access, Affine, Buffer, Engine, Indirect, Pattern, Program
from tests.acceld.nki.programs import Kernel, Run, at, var

X, Y = (np.random.default_rng(4).standard_normal((2, 32, 32)) * 3).astype(np.float32)
ROUNDED = [round_tfloat32(values) for values in (X, Y)]
TF32 = "tfloat32"

OPS: dict[str, dict[str, Any]] = {
    "copy": {},
    "transpose": {"engine": Engine.VECTOR},
    "shuffle": {"lanes": tuple(reversed(range(32)))},
    "activation": {"func": "exp", "more": (0.0, 1.0)},
    "activate2": {"func": "exp", "op0": "multiply", "op1": "add", "more": (0.5, 1.0)},
    "reciprocal": {},
    "exponential": {"more": (1.0,)},
    "tensor_scalar": {"op0": "multiply", "more": (2.0,)},
    "tensor_scalar_cumulative": {"op0": "multiply", "op1": "add", "more": (1.0,)},
    "tensor_tensor": {"op": "subtract", "two": True},
    "scalar_tensor_tensor": {"op0": "multiply", "op1": "add", "two": True, "between": (2.0,)},
    "scan": {"op0": "multiply", "op1": "add", "two": True, "more": (0.0,)},
    "select": {"two": True, "before": (1.0,)},
    "affine_select": {"cmp": "greater_equal", "more": (0.0,), "pattern": Pattern(Affine(-20), (1, 1))},
    "range_select": {"cmp0": "greater_equal", "cmp1": "less", "more": (3.0, 9.0)},
    "copy_predicated": {"two": True},
    "tensor_reduce": {"op": "add", "axes": (1,), "shape": (32, 1)},
    "partition_reduce": {"op": "max", "shape": (1, 32)},
    "bn_stats": {"shape": (32, 6)},
    "max8": {"shape": (32, 8)},
    "loop_reduce": {"op": "add", "loops": (0,), "looped": True},
    "dma_copy": {},
    "dma_transpose": {"axes": (1, 0)},
    "dma_compute": {"op": "add", "two": True},
}


def program(op: str, view: str, *, to_view: str = "") -> Program:
    """One operation on two float32 tiles that are read as ``view``."""
    how = dict(OPS[op])
    kernel = Kernel("nki", "trn3")
    one, two = kernel.loaded((32, 32)), kernel.loaded((32, 32))
    shape = how.pop("shape", (32, 32))
    tile, out = kernel.sbuf(shape), kernel.output(shape)
    tiles = [at(one, dtype=view), at(two, dtype=view)][: 1 + how.pop("two", False)]
    srcs = [*how.pop("before", ()), tiles[0], *how.pop("between", ()), *tiles[1:], *how.pop("more", ())]
    kernel.op("memset", at(tile), 0.0)
    target = at(tile, dtype=to_view)
    if how.pop("looped", False):
        with kernel.loop(2):
            kernel.op(op, target, srcs, **how)
    else:
        kernel.op(op, target, srcs, **how)
    kernel.op("dma_copy", at(out), at(tile))
    return kernel.finish()


@pytest.mark.parametrize("op", OPS)
def test_every_operation_reads_rounded_values(op: str) -> None:
    assert not np.array_equal(X, ROUNDED[0])
    (found,) = execute(program(op, TF32), [X, Y][: len(program(op, "").inputs)])
    (expected,) = execute(program(op, ""), ROUNDED)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("op", ["copy", "transpose", "shuffle", "dma_copy", "dma_transpose", "copy_predicated"])
def test_moving_between_two_views_rounds_too(op: str) -> None:
    (found,) = execute(program(op, TF32, to_view=TF32), [X, Y])
    np.testing.assert_array_equal(found, round_tfloat32(found))


def test_in_float64_nothing_is_rounded() -> None:
    (found,) = execute(program("copy", TF32), [X, Y], ExecuteOptions(float64=True))
    np.testing.assert_array_equal(found, X)


def products(view: str, *, buffers: str, mode: str, fused: bool, masked: bool) -> Program:
    """x.T @ y summed over two blocks of 16 rows: the loop holds the product alone, or a copy beside it."""
    kernel = Kernel("nki", "trn2")
    x, y = kernel.input((32, 32)), kernel.input((32, 32))

    def loaded(source: Buffer) -> Buffer:
        tile = kernel.sbuf((16, 2, 32), buffers)
        with kernel.loop(2) as k:
            kernel.op("dma_copy", at(tile, Run(0, 16), var(k), Run(0, 32)), at(source, Run(var(k, 16), 16), Run(0, 32)))
        return tile

    left, right, beside = loaded(x), loaded(y), kernel.sbuf((16, 32))
    acc, result, out = kernel.psum((32, 32)), kernel.sbuf((32, 32)), kernel.output((32, 32))
    if mode == "yes":
        kernel.op("memset", at(acc), 0.0)

    def block(tile: Buffer, index: Affine) -> Access:
        return at(tile, Run(0, 16), index, Run(0, 32), dtype=view)

    with kernel.loop(2) as k:
        if not fused:
            kernel.op("copy", at(beside), block(left, var(k)))
        mask = (Pattern(Affine(20), (-1, -1, 0)),) if masked else ()
        kernel.op("matmul", at(acc), [block(left, var(k)), block(right, var(k))], accumulate=mode, mask=mask)
    kernel.op("copy", at(result), at(acc))
    kernel.op("dma_copy", at(out), at(result))
    return kernel.finish()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("mode", ["yes", "auto"])
def test_products_multiply_rounded_operands(mode: str, fused: bool, masked: bool) -> None:
    how: dict[str, Any] = {"mode": mode, "fused": fused, "masked": masked}
    (found,) = execute(products(TF32, buffers="float32", **how), [X, Y])
    (expected,) = execute(products("", buffers="float32", **how), ROUNDED)
    np.testing.assert_array_equal(found, expected)
    (declared,) = execute(products("", buffers=TF32, **how), [X, Y])
    np.testing.assert_array_equal(declared, expected)


def test_a_tfloat32_tensor_filled_through_a_float32_view_is_read_rounded() -> None:
    kernel = Kernel("nki", "trn2")
    source, narrow = kernel.loaded((32, 32)), kernel.sbuf((32, 32), TF32)
    wide, out = kernel.sbuf((32, 32)), kernel.output((32, 32))
    kernel.op("copy", at(narrow, dtype="float32"), at(source))
    kernel.op("copy", at(wide), at(narrow))
    kernel.op("dma_copy", at(out), at(wide))
    (found,) = execute(kernel.finish(), [X])
    np.testing.assert_array_equal(found, ROUNDED[0])


def test_gathered_rows_are_rounded() -> None:
    kernel = Kernel("nki", "trn2")
    x, rows = kernel.input((32, 32)), kernel.loaded((32, 1), "int32")
    tile, out = kernel.sbuf((32, 32)), kernel.output((32, 32))
    found_rows = at(x, Run(0, 32, 0), Run(0, 32), dtype=TF32, indirect=(Indirect(0, index=at(rows)),))
    kernel.op("dma_copy", at(tile), found_rows, oob="skip")
    kernel.op("dma_copy", at(out), at(tile))
    order: NDArray[np.int32] = np.random.default_rng(1).permutation(32).astype(np.int32).reshape(32, 1)
    (found,) = execute(kernel.finish(), [X, order])
    np.testing.assert_array_equal(found, ROUNDED[0][order[:, 0]])
