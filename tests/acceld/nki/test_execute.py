"""Programs run on data: each operation against plain numpy, and the guarantees of a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from acceld.nki.errors import KernelCrash
from acceld.nki.execute.activations import CHIP_ERRORS, approximates
from acceld.nki.execute.answers import Answers
from acceld.nki.execute.interpreter import ExecuteOptions, execute, is_settled
from acceld.nki.execute.kernels import BUILDERS
from acceld.nki.execute.tiles import Tile
from acceld.nki.ir.numerics import NUMPY_DTYPES
from acceld.nki.ir.operations import OPS
from acceld.nki.ir.program import Access, Affine, Engine, LoopKind, Pattern, TileDim
from tests.acceld.nki.programs import Kernel, Run, at
from tests.properties import examples

Array = NDArray[Any]

rng = np.random.default_rng(20)


def reals(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def run_op(
    name: str,
    operands: list[Array | float],
    shape: tuple[int, ...],
    *,
    dtype: str = "float32",
    psum: bool = False,
    options: ExecuteOptions | None = None,
    results: tuple[tuple[tuple[int, ...], str], ...] = (),
    **how: Any,
) -> list[Array]:
    """Return one operation on SBUF tiles loaded from inputs, its destinations stored to outputs."""
    kernel = Kernel()
    srcs: list[Any] = []
    inputs = []
    names = {value: key for key, value in NUMPY_DTYPES.items() if key not in ("tfloat32",)}
    for operand in operands:
        if isinstance(operand, np.ndarray):
            srcs.append(at(kernel.loaded(operand.shape, names[operand.dtype])))
            inputs.append(operand)
        else:
            srcs.append(operand)
    wanted = [(shape, dtype), *results]
    tensors = [kernel.psum(s, d) if psum else kernel.sbuf(s, d) for s, d in wanted]
    kernel.op(name, [at(tensor) for tensor in tensors], srcs, **how)
    for tensor, (s, d) in zip(tensors, wanted, strict=True):
        out = kernel.output(s, d)
        copy = kernel.sbuf(s, d)
        kernel.op("copy", at(copy), at(tensor))
        kernel.store(out, copy)
    return execute(kernel.finish(), inputs, options or ExecuteOptions())


def test_every_operation_of_the_schema_has_an_execution_rule() -> None:
    assert BUILDERS.keys() == OPS.keys()


dims = st.integers(1, 6)


@st.composite
def strided(draw: st.DrawFn) -> tuple[tuple[int, int, int], tuple[int, int], tuple[int, int]]:
    """Return a tile shape, and for two operands the steps of its free axes and their start."""
    shape = (draw(dims), draw(dims), draw(dims))
    return shape, (draw(st.integers(1, 3)), draw(st.integers(1, 3))), (draw(st.integers(0, 3)), draw(st.integers(0, 3)))


@given(strided(), st.sampled_from(["add", "subtract", "multiply", "max", "greater", "logical_and"]))
@examples(20)
def test_tensor_tensor_on_strided_tiles_is_numpy_on_strided_slices(
    how: tuple[tuple[int, int, int], tuple[int, int], tuple[int, int]], op: str
) -> None:
    (p, a, b), (step_a, step_b), (start_a, start_b) = how
    wide = (p, start_a + a * step_a, start_b + b * step_b)
    kernel = Kernel()
    one, two = kernel.loaded(wide), kernel.loaded((p, a, b))
    view = (Run(0, p), Run(start_a, a, step_a), Run(start_b, b, step_b))
    kernel.op("tensor_tensor", at(one, *view), [at(one, *view), at(two)], op=op)
    kernel.store(kernel.output(wide), one)
    x, y = reals(*wide), reals(p, a, b)
    expected = x.copy()
    part = expected[:, start_a : start_a + a * step_a : step_a, start_b : start_b + b * step_b : step_b]
    function = {"max": np.maximum}.get(op) or getattr(np, op)
    part[...] = function(part, y)
    (out,) = execute(kernel.finish(), [x, y])
    assert np.array_equal(out, expected)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5), st.permutations([1, 2]))
@examples(10)
def test_copy_between_axes_in_another_order_transposes_the_free_axes(p: int, a: int, b: int, order: list[int]) -> None:
    kernel = Kernel()
    source = kernel.loaded((p, a, b))
    shape = (p, a, b) if order == [1, 2] else (p, b, a)
    target = kernel.sbuf(shape)
    access = at(target)
    dims = (access.dims[0], *(access.dims[axis] for axis in order))
    kernel.op("copy", Access(target.id, access.start, dims), at(source))
    kernel.store(kernel.output(shape), target)
    x = reals(p, a, b)
    (out,) = execute(kernel.finish(), [x])
    assert np.array_equal(out, x if order == [1, 2] else x.transpose(0, 2, 1))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3", "float8_e5m2", "int32", "uint8", "tfloat32"])
def test_results_are_rounded_once_to_the_type_of_the_destination(dtype: str) -> None:
    x, y = np.abs(reals(8, 16)) * 20, np.abs(reals(8, 16)) * 20
    (out,) = run_op("tensor_tensor", [x, y], (8, 16), dtype=dtype, op="multiply")
    exact = x * y
    if dtype == "tfloat32":
        assert np.abs(out - exact).max() <= np.abs(exact).max() * 2.0**-11
        assert not (out.view(np.uint32) & 0x1FFF).any()
    elif dtype in ("int32", "uint8"):
        assert np.array_equal(out, np.clip(np.rint(exact), 0, 255 if dtype == "uint8" else 2**31 - 1))
    else:
        assert np.array_equal(out, exact.astype(NUMPY_DTYPES[dtype]))


def test_float64_mode_computes_and_returns_float64_without_rounding() -> None:
    x, y = reals(4, 8).astype(np.float64), reals(4, 8).astype(np.float64)
    (out,) = run_op(
        "tensor_tensor",
        [x.astype(np.float32), y.astype(np.float32)],
        (4, 8),
        dtype="bfloat16",
        op="multiply",
        options=ExecuteOptions(float64=True),
    )
    assert out.dtype == np.float64
    assert np.array_equal(out, x * y)


def test_bit_operations_work_on_the_integers_themselves() -> None:
    x = rng.integers(-1000, 1000, (4, 6)).astype(np.int32)
    y = rng.integers(-1000, 1000, (4, 6)).astype(np.int32)
    (out,) = run_op("tensor_tensor", [x, y], (4, 6), dtype="int32", op="bitwise_xor")
    assert np.array_equal(out, x ^ y)
    (out,) = run_op("tensor_scalar", [x, 3, 255], (4, 6), dtype="int32", op0="left_shift", op1="bitwise_and")
    assert np.array_equal(out, (x << 3) & 255)
    (out,) = run_op("activation", [x, 0.0, 1.0], (4, 6), dtype="int32", func="invert")
    assert np.array_equal(out, ~x)


def test_gpsimd_adds_large_integers_exactly_and_the_vector_engine_rounds_to_float32() -> None:
    x = np.full((2, 2), 2**24 + 1, np.int32)
    (exact,) = run_op("tensor_tensor", [x, x], (2, 2), dtype="int32", op="add", engine=Engine.GPSIMD)
    assert exact[0, 0] == 2 * (2**24 + 1)
    (rounded,) = run_op("tensor_tensor", [x, x], (2, 2), dtype="int32", op="add", engine=Engine.VECTOR)
    assert rounded[0, 0] == 2 * 2**24
    (unnamed,) = run_op("tensor_scalar", [x, 2], (2, 2), dtype="int32", op0="add", engine=Engine.UNKNOWN)
    assert unnamed[0, 0] == 2**24 + 2, "no engine that runs it has so many digits"


def test_tensor_scalar_takes_numbers_and_columns_in_either_order() -> None:
    x, column = reals(6, 10), reals(6, 1)
    (out,) = run_op("tensor_scalar", [x, column, 2.0], (6, 10), op0="subtract", reverse0=True, op1="multiply")
    assert np.array_equal(out, (column - x) * np.float32(2))
    (out,) = run_op("tensor_scalar", [x, 3.0, column], (6, 10), op0="divide", op1="add")
    assert np.array_equal(out, x / np.float32(3) + column)
    y = reals(6, 10)
    (out,) = run_op("scalar_tensor_tensor", [x, column, y], (6, 10), op0="multiply", op1="subtract", reverse1=True)
    assert np.array_equal(out, y - x * column)


def test_an_operand_inside_the_destination_is_refused() -> None:
    kernel = Kernel()
    tile = kernel.loaded((4, 8))
    column = at(tile, Run(0, 4), Run(0, 1))
    kernel.op("tensor_scalar", at(tile), [at(tile), 2.0, column], op0="multiply", op1="add")
    kernel.store(kernel.output((4, 8)), tile)
    with pytest.raises(KernelCrash, match="4 elements that it reads at other positions"):
        execute(kernel.finish(), [reals(4, 8)])


@pytest.mark.parametrize(("start", "refused"), [(0, False), (1, True), (4, False)])
def test_source_and_destination_are_equal_or_apart(start: int, refused: bool) -> None:
    kernel = Kernel()
    tile = kernel.loaded((4, 8))
    kernel.op("copy", at(tile, Run(0, 4), Run(start, 4)), [at(tile, Run(0, 4), Run(0, 4))])
    kernel.store(kernel.output((4, 8)), tile)
    program, x = kernel.finish(), reals(4, 8)
    if refused:
        with pytest.raises(KernelCrash, match="overwrites 12 elements"):
            execute(program, [x])
    else:
        (out,) = execute(program, [x])
        assert np.array_equal(out[:, start : start + 4], x[:, :4])


def test_memory_never_written_holds_other_values_in_another_run() -> None:
    kernel = Kernel()
    tile, held = kernel.sbuf((4, 8)), kernel.loaded((4, 1))
    kernel.op("copy", at(tile, Run(0, 4), Run(0, 1)), [at(held)])
    kernel.store(kernel.output((4, 8)), tile)
    program, x = kernel.finish(), reals(4, 1)
    assert not is_settled(program)
    (one,), (other,) = (execute(program, [x], ExecuteOptions(chance=seed)) for seed in (1, 2))
    assert np.isfinite(one).all() and np.array_equal(one[:, 0], other[:, 0])
    assert not np.any(one[:, 1:] == other[:, 1:])


@pytest.mark.parametrize(
    ("dtype", "number", "held"),
    [
        ("int32", 7.0, 7),
        ("uint8", 255.0, 255),
        ("uint8", 256.0, None),
        ("int32", 0.5, None),
        ("float32", 0.5, 0.5),
        ("int8", np.inf, 127),
        ("int8", -np.inf, -128),
        ("float32", np.inf, None),
    ],
)
def test_memory_never_written_holds_one_number_if_its_type_has_it(
    dtype: str, number: float, held: float | None
) -> None:
    kernel = Kernel()
    tile, out = kernel.sbuf((4, 8), dtype), kernel.output((4, 8), dtype)
    kernel.op("memset", at(tile, Run(0, 4), Run(0, 1)), [1])
    kernel.store(out, tile)
    (found,) = execute(kernel.finish(), [], ExecuteOptions(chance=1, held=number))
    assert (found[:, 0] == 1).all()
    assert (found[:, 1:] == held).all() if held is not None else len(np.unique(found[:, 1:])) > 10


@pytest.mark.parametrize("written", [8, 7])
def test_a_comparison_says_the_opposite_where_its_operands_were_others_before(written: int) -> None:
    kernel = Kernel()
    tile, answer = kernel.sbuf((4, 8), "int32"), kernel.sbuf((4, 8))
    kernel.op("memset", at(tile, Run(0, 4), Run(0, written)), [7])
    kernel.op("tensor_scalar", at(answer), [at(tile), 7], op0="equal")
    kernel.store(kernel.output((4, 8)), answer)
    program, answers = kernel.finish(), Answers()
    (before,) = execute(program, [], ExecuteOptions(answers=answers))
    answers.begin_again()
    (after,) = execute(program, [], ExecuteOptions(chance=1, answers=answers))
    assert before[:, :written].all() and not before[:, written:].any()
    assert after.all(), "what was never written is said to be seven, too"
    (plain,) = execute(program, [], ExecuteOptions(chance=1))
    assert np.array_equal(plain, before), "random contents are not seven"


@pytest.mark.parametrize("dtype", ["uint32", "uint8"])
def test_a_shift_by_all_bits_of_a_number_leaves_something_undefined(dtype: str) -> None:
    bits = 32 if dtype == "uint32" else 8
    kernel = Kernel()
    one, by, out = kernel.sbuf((4, 8), dtype), kernel.sbuf((4, 8), dtype), kernel.output((4, 8), dtype)
    kernel.op("memset", at(one), [1])
    kernel.op("memset", at(by), [bits - 1])
    kernel.op("memset", at(by, Run(0, 4), Run(0, 3)), [bits])
    kernel.op("tensor_tensor", at(one), [at(one), at(by)], op="left_shift")
    kernel.store(out, one)
    program = kernel.finish()
    assert not is_settled(program)
    (marks,) = execute(program, [], ExecuteOptions(keeps_nan=True))
    assert marks[:, :3].all() and not marks[:, 3:].any()


@pytest.mark.parametrize(("by", "settled"), [(0, True), (31, True), (32, False), (-1, False)])
def test_a_shift_by_a_number_of_bits_is_settled_if_the_word_has_more(by: int, settled: bool) -> None:
    kernel = Kernel()
    tile = kernel.loaded((4, 8), "uint32")
    kernel.op("tensor_scalar", at(tile), [at(tile), by], op0="right_shift")
    kernel.store(kernel.output((4, 8), "uint32"), tile)
    assert is_settled(kernel.finish()) is settled


@pytest.mark.parametrize(("read", "settled"), [(6, True), (7, False)])
def test_a_sum_of_products_decides_by_itself_what_its_memory_held_before(read: int, settled: bool) -> None:
    kernel = Kernel()
    x = kernel.loaded((4, 6))
    total, copy = kernel.psum((6, 8)), kernel.sbuf((6, 8))
    for _ in range(2):
        kernel.op("matmul", at(total, Run(0, 6), Run(0, 6)), [at(x), at(x)])
    kernel.op("copy", at(copy, Run(0, 6), Run(0, read)), [at(total, Run(0, 6), Run(0, read))])
    kernel.op("dma_copy", at(kernel.output((6, read))), [at(copy, Run(0, 6), Run(0, read))])
    program, data = kernel.finish(), reals(4, 6)
    assert is_settled(program) is settled
    one, other = (execute(program, [data], ExecuteOptions(chance=chance))[0] for chance in (None, 1))
    assert np.array_equal(one[:, :6], other[:, :6]) and np.allclose(one[:, :6], 2 * data.T @ data, rtol=1e-5)
    assert (one.tobytes() == other.tobytes()) is settled


def test_activation_scales_adds_applies_and_folds() -> None:
    x, bias, scale = reals(5, 12), reals(5, 1), reals(5, 1)
    out, total = run_op(
        "activation",
        [x, bias, scale],
        (5, 12),
        results=(((5, 1), "float32"),),
        func="exp",
        reduce_op="add",
        reduce_cmd="reset_reduce",
    )
    expected = np.exp(x * scale + bias)
    assert np.allclose(out, expected, rtol=1e-6)
    assert np.allclose(total, expected.sum(axis=1, keepdims=True), rtol=1e-5)


def test_the_accumulator_of_an_engine_is_folded_into_until_it_is_reset() -> None:
    kernel = Kernel()
    x = kernel.loaded((4, 6))
    y, total = kernel.sbuf((4, 6)), kernel.sbuf((4, 1))
    for command in ("reset_reduce", "reduce", "reduce"):
        kernel.op("activation", [at(y), at(total)], [at(x), 0.0, 1.0], func="copy", reduce_op="add", reduce_cmd=command)
    kernel.store(kernel.output((4, 1)), total)
    data = reals(4, 6)
    (out,) = execute(kernel.finish(), [data])
    assert np.allclose(out, 3 * data.sum(axis=1, keepdims=True), rtol=1e-5)


def test_activate2_select_exponential_and_predicated_copy() -> None:
    x, y, p = reals(4, 6), reals(4, 6), (reals(4, 6) > 0).astype(np.uint8)
    (out,) = run_op("activate2", [x, 2.0, 1.0], (4, 6), func="square", op0="multiply", op1="subtract")
    assert np.allclose(out, (x * 2 - 1) ** 2, rtol=1e-6)
    (out,) = run_op("activate2", [x, 1.0, 0.0], (4, 6), func="relu", op0="multiply", op1="add")
    assert np.array_equal(out, np.maximum(x, 0))
    (out,) = run_op("activate2", [x, 1.0, 0.0, 0.5], (4, 6), func="prelu", op0="multiply", op1="add")
    assert np.array_equal(out, np.where(x > 0, x, x * np.float32(0.5)))
    (out,) = run_op("select", [p, x, -1.0], (4, 6))
    assert np.array_equal(out, np.where(p, x, np.float32(-1)))
    (out,) = run_op("select", [p, x, y], (4, 6), reverse=True)
    assert np.array_equal(out, np.where(p, y, x))
    out, total = run_op("exponential", [x, 0.5], (4, 6), results=(((4, 1), "float32"),))
    assert np.allclose(out, np.exp(x - 0.5), rtol=1e-6)
    assert np.allclose(total[:, 0], np.exp(x - 0.5).sum(axis=1), rtol=1e-5)
    kernel = Kernel()
    target, source, where = kernel.loaded((4, 6)), kernel.loaded((4, 6)), kernel.loaded((4, 6), "uint8")
    kernel.op("copy_predicated", at(target), [at(source), at(where)])
    kernel.store(kernel.output((4, 6)), target)
    (out,) = execute(kernel.finish(), [x, y, p])
    assert np.array_equal(out, np.where(p, y, x))


@pytest.mark.parametrize("axes", [(2,), (1, 2)])
@pytest.mark.parametrize("op", ["add", "max", "min", "multiply", "subtract", "logical_or"])
def test_tensor_reduce_folds_its_axes(op: str, axes: tuple[int, ...]) -> None:
    x = reals(4, 3, 5)
    kept = (4,) if axes == (1, 2) else (4, 3)
    (out,) = run_op("tensor_reduce", [x], (*kept, 1) if axes == (1, 2) else kept, op=op, axes=axes)
    flat = x.reshape(*kept, -1)
    expected = {
        "add": flat.sum(axis=-1), "max": flat.max(axis=-1), "min": flat.min(axis=-1), "multiply": flat.prod(axis=-1),
        "subtract": flat[..., 0] * 2 - flat.sum(axis=-1), "logical_or": flat.any(axis=-1),
    }[op]  # fmt: skip
    assert np.allclose(out.reshape(kept), expected, rtol=1e-5, atol=1e-6)


def test_tensor_reduce_negates_and_folds_integers_with_bit_operations() -> None:
    x = reals(4, 7)
    (out,) = run_op("tensor_reduce", [x], (4, 1), op="max", axes=(1,), negate=True)
    assert np.array_equal(out[:, 0], -x.max(axis=1))
    y = rng.integers(0, 255, (4, 7)).astype(np.int32)
    (out,) = run_op("tensor_reduce", [y], (4, 1), dtype="int32", op="bitwise_or", axes=(1,))
    assert np.array_equal(out[:, 0], np.bitwise_or.reduce(y, axis=1))
    (out,) = run_op("partition_reduce", [x], (1, 7), op="add")
    assert np.allclose(out[0], x.sum(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ops", [("multiply", "add"), ("add", "max"), ("min", "subtract")])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_the_recurrence_along_the_free_axis(ops: tuple[str, str], reverse: bool) -> None:
    a, b, start = np.abs(reals(3, 9)) * 0.5 + 0.1, np.abs(reals(3, 9)), np.abs(reals(3, 1)) + 0.2
    (out,) = run_op("scan", [a, b, start], (3, 9), op0=ops[0], op1=ops[1], reverse1=reverse)
    functions: dict[str, Callable[[Any, Any], Any]] = {
        "multiply": np.multiply, "add": np.add, "max": np.maximum, "min": np.minimum, "subtract": np.subtract
    }  # fmt: skip
    state = start[:, 0].astype(np.float64)
    for i in range(9):
        value = functions[ops[0]](a[:, i].astype(np.float64), state)
        state = functions[ops[1]](b[:, i], value) if reverse else functions[ops[1]](value, b[:, i])
        assert np.allclose(out[:, i], state, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_statistics_in_two_steps_give_mean_and_variance() -> None:
    x = reals(4, 33)
    (stats,) = run_op("bn_stats", [x], (4, 6))
    (out,) = run_op("bn_aggr", [stats.astype(np.float32)], (4, 2))
    assert np.allclose(out[:, 0], x.mean(axis=1), atol=1e-6)
    assert np.allclose(out[:, 1], x.var(axis=1), rtol=1e-5)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
@examples(10)
def test_matmul_contracts_the_partitions(k: int, m: int, n: int) -> None:
    s, v = reals(k, m), reals(k, n)
    (out,) = run_op("matmul", [s, v], (m, n), psum=True, accumulate="no")
    assert np.allclose(out, s.T.astype(np.float64) @ v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e5m2])
def test_matmul_of_narrow_floats_accumulates_in_float32(kind: Any) -> None:
    s, v = reals(64, 8).astype(kind), reals(64, 8).astype(kind)
    (out,) = run_op("matmul", [s, v], (8, 8), psum=True, accumulate="no")
    exact = s.astype(np.float64).T @ v.astype(np.float64)
    assert np.allclose(out, exact, rtol=1e-5, atol=1e-5)


def test_a_transpose_through_trn1s_array_is_a_product_with_the_identity() -> None:
    x = reals(5, 7)
    eye = np.eye(5, dtype=np.float32)
    permutation = eye[[1, 0, 2, 3, 4]]
    (out,) = run_op("matmul", [x, permutation], (7, 5), psum=True, accumulate="no", transpose=True)
    assert np.array_equal(out, x.T @ permutation)
    x[2, 3] = np.inf
    spread = x.T.copy()
    spread[3, [0, 1, 3, 4]] = np.nan
    (out,) = run_op("matmul", [x, eye], (7, 5), psum=True, accumulate="no", transpose=True)
    assert np.array_equal(out, spread, equal_nan=True)
    for engine, expected in ((Engine.UNKNOWN, spread), (Engine.TENSOR, spread), (Engine.VECTOR, x.T)):
        (out,) = run_op("transpose", [x], (7, 5), psum=True, engine=engine)
        assert np.array_equal(out, expected, equal_nan=True)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("wrong", [None, np.inf, np.nan])
def test_a_product_with_the_identity_has_the_bits_of_the_product(turned: bool, wrong: float | None) -> None:
    x, eye = reals(128, 128), np.eye(128, dtype=np.float32)
    x[3, :9] = [0.0, -0.0, 1e-45, -1e-45, 2.0**-126, 3.4e38, -3.4e38, 1.0, -1.0]
    if wrong is not None:
        x[5, 7] = wrong
    operands: list[Array | float] = [x, eye] if turned else [eye, x]
    (out,) = run_op("matmul", operands, (128, 128), psum=True, accumulate="no", transpose=True)
    with np.errstate(invalid="ignore"):
        product = np.matmul(operands[0].T, operands[1])  # type: ignore[union-attr]
    assert np.array_equal(out.view(np.uint32), product.view(np.uint32))


@pytest.mark.parametrize(("op", "attrs"), [("transpose", {}), ("matmul", {"accumulate": "no", "transpose": True})])
def test_trn2s_array_turns_a_tile_bit_by_bit(op: str, attrs: dict[str, Any]) -> None:
    x, eye = reals(5, 7), np.eye(5, dtype=np.float32)
    x[2, 3] = np.nan
    kernel = Kernel("nki", "trn2")
    operands = [at(kernel.loaded(one.shape)) for one in (x, eye)]
    turned, moved = kernel.psum((7, 5)), kernel.sbuf((7, 5))
    kernel.op(op, at(turned), operands[: 2 if op == "matmul" else 1], **attrs)
    kernel.op("copy", at(moved), at(turned))
    kernel.store(kernel.output((7, 5)), moved)
    (out,) = execute(kernel.finish(), [x, eye])
    assert np.array_equal(out, x.T, equal_nan=True)


@pytest.mark.parametrize("mode", ["no", "yes", "auto"])
def test_a_judge_refuses_a_product_marked_as_a_transpose_without_an_identity(mode: str) -> None:
    judge = ExecuteOptions(check_transposes=True)
    with pytest.raises(KernelCrash, match="is_transpose is set") as caught:
        run_op("matmul", [reals(5, 7), reals(5, 6)], (7, 6), psum=True, options=judge, accumulate=mode, transpose=True)
    assert caught.value.rule == "transpose_identity"


def test_trn1_has_no_transpose_mode_so_that_a_marked_product_is_one() -> None:
    x, y = reals(5, 7), reals(5, 6)
    (out,) = run_op("matmul", [x, y], (7, 6), psum=True, accumulate="no", transpose=True)
    np.testing.assert_allclose(out, x.T @ y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("command", "expected"), [("reduce", 3.0), ("reset_reduce", 2.0)])
def test_an_accumulator_keeps_its_sum_until_it_is_reset(command: str, expected: float) -> None:
    kernel = Kernel()
    tile, made, total = kernel.loaded((4, 2)), kernel.sbuf((4, 2)), kernel.sbuf((4, 1))
    first = at(tile, Run(0, 4), Run(0, 1))
    for dsts, source, how in (
        ([at(made, Run(0, 4), Run(0, 1))], first, "reset_reduce"),
        ([at(made), at(total)], at(tile), command),
    ):
        kernel.op("activation", dsts, [source, 0.0, 1.0], func="copy", reduce_op="add", reduce_cmd=how)
    kernel.store(kernel.output((4, 1)), total)
    assert np.array_equal(execute(kernel.finish(), [np.ones((4, 2), np.float32)])[0], np.full((4, 1), expected))


def test_an_accumulator_that_nothing_has_reset_holds_no_number() -> None:
    kernel = Kernel()
    tile, made, total = kernel.loaded((4, 2)), kernel.sbuf((4, 2)), kernel.sbuf((4, 1))
    kernel.op(
        "activation", [at(made), at(total)], [at(tile), 0.0, 1.0], func="copy", reduce_op="add", reduce_cmd="reduce"
    )
    kernel.store(kernel.output((4, 1)), total)
    assert np.isnan(execute(kernel.finish(), [reals(4, 2)])[0]).all()


@pytest.mark.parametrize(
    ("rows", "mask", "trips", "settled"),
    [(4, False, 1, True), (4, False, 3, True), (2, False, 1, False), (4, True, 1, False), (0, False, 1, False)],
)
def test_a_sum_is_settled_if_the_accumulators_of_all_its_partitions_were_set(
    rows: int, mask: bool, trips: int, settled: bool
) -> None:
    kernel = Kernel()
    tile, made, total = kernel.loaded((4, 2)), kernel.sbuf((4, 2)), kernel.sbuf((4, 1))
    part = Run(0, rows), Run(0, 2)

    def emit(made: Access, source: Access, command: str, *more: Access, masked: bool = False) -> None:
        pattern = (Pattern(Affine(1), (0, -1)),) if masked else ()
        kernel.op(
            "activation",
            [made, *more],
            [source, 0.0, 1.0],
            mask=pattern,
            func="copy",
            reduce_op="add",
            reduce_cmd=command,
        )

    if rows:
        with kernel.loop(trips):
            emit(at(made, *part), at(tile, *part), "reset", masked=mask)
    emit(at(made), at(tile), "reduce", at(total))
    kernel.store(kernel.output((4, 1)), total)
    assert is_settled(kernel.finish()) is settled


def test_accumulation_modes_overwrite_add_or_start_by_themselves() -> None:
    a, b = reals(8, 4), reals(8, 6)
    product = a.T @ b

    def run(first: str, second: str, *, zero: bool) -> Array:
        kernel = Kernel()
        s, v, dst = kernel.loaded((8, 4)), kernel.loaded((8, 6)), kernel.psum((4, 6))
        if zero:
            kernel.op("memset", at(dst), 0.0, lazy=True)
        for mode in (first, second):
            kernel.op("matmul", at(dst), [at(s), at(v)], accumulate=mode)
        out = kernel.sbuf((4, 6))
        kernel.op("copy", at(out), at(dst))
        kernel.store(kernel.output((4, 6)), out)
        return execute(kernel.finish(), [a, b])[0]

    assert np.allclose(run("no", "yes", zero=False), 2 * product, rtol=1e-5)
    assert np.allclose(run("auto", "auto", zero=False), 2 * product, rtol=1e-5)
    assert np.allclose(run("yes", "yes", zero=True), 2 * product, rtol=1e-5)
    assert np.allclose(run("yes", "no", zero=False), product, rtol=1e-5)
    assert np.isnan(run("yes", "yes", zero=False)).all()


def test_moves_cast_broadcast_shuffle_and_fill() -> None:
    row = reals(1, 6)
    (out,) = run_op("broadcast_partition", [row], (9, 6))
    assert np.array_equal(out, np.repeat(row, 9, axis=0))
    x = reals(64, 3)
    lanes = (*(31 - i for i in range(31)), 255)
    kernel = Kernel()
    src, dst = kernel.loaded((64, 3)), kernel.loaded((64, 3))
    kernel.op("shuffle", at(dst), at(src), lanes=lanes)
    kernel.store(kernel.output((64, 3)), dst)
    before = reals(64, 3)
    (out,) = execute(kernel.finish(), [x, before])
    expected = before.copy()
    for quadrant in (0, 32):
        for lane, source in enumerate(lanes):
            if source != 255:
                expected[quadrant + lane] = x[quadrant + source]
    assert np.array_equal(out, expected)
    (out,) = run_op("memset", [1.5], (3, 4), dtype="bfloat16")
    assert (out == 1.5).all()
    (out,) = run_op("memset", [-1], (3, 4), dtype="uint8")
    assert (out == 255).all()
    a, b = reals(4, 5), reals(4, 5)
    (out,) = run_op("dma_compute", [a, b, a], (4, 5), op="add")
    assert np.array_equal(out, a + b + a)
    (out,) = run_op("dma_transpose", [a], (5, 4), axes=(1, 0))
    assert np.array_equal(out, a.T)


def test_positions_are_written_compared_and_selected_by() -> None:
    pattern = Pattern(Affine(3), (10, 2))
    (out,) = run_op("iota", [], (4, 5), dtype="int32", pattern=pattern)
    assert np.array_equal(out, 3 + 10 * np.arange(4)[:, None] + 2 * np.arange(5))
    x = reals(4, 5)
    triangle = Pattern(Affine(0), (1, -1))
    (out,) = run_op("affine_select", [x, -9.0], (4, 5), cmp="greater_equal", pattern=triangle)
    assert np.array_equal(out, np.where(np.arange(4)[:, None] >= np.arange(5), x, np.float32(-9)))
    low, high = np.array([[0], [1], [2], [3]], np.float32), np.full((4, 1), 4, np.float32)
    out, most = run_op(
        "range_select",
        [x, low, high],
        (4, 5),
        results=(((4, 1), "float32"),),
        cmp0="greater_equal",
        cmp1="less",
        on_false=-100.0,
        reduce_op="max",
        reduce_cmd="reset_reduce",
    )
    index = np.arange(5)
    expected = np.where((index >= low) & (index < high), x, np.float32(-100))
    assert np.array_equal(out, expected)
    assert np.array_equal(most[:, 0], expected.max(axis=1))


def test_searches_find_values_and_places() -> None:
    x = reals(3, 20)
    (top,) = run_op("max8", [x], (3, 8))
    assert np.array_equal(top, -np.sort(-x, axis=1)[:, :8])
    (index,) = run_op("find_index8", [x, top], (3, 8), dtype="uint32")
    assert np.array_equal(np.take_along_axis(x, index.astype(int), axis=1), top)
    replaced, where = run_op("match_replace8", [x, top], (3, 20), results=(((3, 8), "uint32"),), imm=-7.0)
    assert np.array_equal(where, index)
    assert ((replaced == -7).sum(axis=1) == 8).all()
    (flags,) = run_op("nonzero_with_count", [np.array([[0, 3, 0, 5.0]], np.float32)], (1, 5), dtype="int32", padding=-1)
    assert flags.tolist() == [[1, 3, -1, -1, 2]]
    (bounds,) = run_op("sequence_bounds", [np.array([[1, 1, 2, 0.0]], np.float32)], (1, 2, 4), dtype="int32")
    assert bounds.tolist() == [[[0, 0, 2, 4], [2, 2, 3, -1]]]


def test_gathers_take_elements_by_index() -> None:
    x = reals(16, 10)
    index = rng.integers(0, 10, (16, 4)).astype(np.uint32)
    (out,) = run_op("gather", [x, index], (16, 4))
    assert np.array_equal(out, np.take_along_axis(x, index.astype(int), axis=1))
    shared = rng.integers(0, 5, (16, 1)).astype(np.uint16)
    (out,) = run_op("local_gather", [x, shared], (16, 32), elements_per_index=2, engine=Engine.GPSIMD)
    blocks = x.reshape(16, 5, 2)
    assert np.array_equal(out, blocks[:, shared[:, 0].astype(int)].reshape(16, 32))
    with pytest.raises(KernelCrash) as caught:
        run_op("gather", [x, np.full((16, 4), 10, np.uint32)], (16, 4))
    assert caught.value.rule == "out_of_bounds"


def test_topk_gives_the_greatest_of_a_group_ascending() -> None:
    x = reals(32, 4)
    values, index = run_op("topk", [x], (32, 8), results=(((32, 8), "uint32"),), n=50)
    for group in (0, 16):
        snake = x[group : group + 16].T.reshape(-1)[:50]
        order = np.argsort(snake, kind="stable")[-8:]
        assert (index[group : group + 16] == order).all()
        assert (values[group : group + 16] == snake[order]).all()


def test_random_values_follow_the_seed_and_their_range() -> None:
    def draw(seed: int) -> Array:
        kernel = Kernel()
        kernel.op("random_seed", (), float(seed))
        tile = kernel.sbuf((16, 64))
        kernel.op("random", at(tile), [-1.0, 3.0])
        kernel.store(kernel.output((16, 64)), tile)
        return execute(kernel.finish(), [])[0]

    first, again, other = draw(1), draw(1), draw(2)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.min() >= -1 and first.max() < 3 and first.std() > 0.5
    x = np.ones((32, 64), np.float32)
    (dropped,) = run_op("dropout", [x, 0.25], (32, 64))
    assert set(np.unique(dropped)) == {0.0, 1.0}
    assert 0.6 < dropped.mean() < 0.9


def test_cumulative_scalar_operation_is_a_running_fold() -> None:
    x = reals(3, 6)
    (out,) = run_op("tensor_scalar_cumulative", [x, 2.0], (3, 6), op0="multiply", op1="add")
    assert np.allclose(out, np.cumsum(x * 2, axis=1), rtol=1e-5, atol=1e-6)


def test_microscaled_product_is_close_to_the_exact_one() -> None:
    kernel = Kernel("nki", "trn3")
    a, b = kernel.loaded((32, 64)), kernel.loaded((32, 128))
    packed = []
    for tensor, width in ((a, 16), (b, 32)):
        values, scale = kernel.sbuf((32, width), "float8_e4m3fn_x4"), kernel.sbuf((4, width), "uint8")
        kernel.op("quantize_mx", [at(values), at(scale)], at(tensor))
        packed.append((values, scale))
    dst, out = kernel.psum((16, 32)), kernel.sbuf((16, 32))
    (s, s_scale), (m, m_scale) = packed
    kernel.op("matmul_mx", at(dst), [at(s), at(m), at(s_scale), at(m_scale)], accumulate="no")
    kernel.op("copy", at(out), at(dst))
    kernel.store(kernel.output((16, 32)), out)
    x, y = reals(32, 64), reals(32, 128)
    (result,) = execute(kernel.finish(), [x, y])

    def rows(values: Array) -> Array:
        return values.reshape(32, -1, 4).transpose(0, 2, 1).reshape(128, -1)

    exact = rows(x).T @ rows(y)
    assert np.linalg.norm(result - exact) < 0.06 * np.linalg.norm(exact)


@pytest.mark.parametrize("mode", ["no", "auto", "yes"])
def test_the_transpose_mode_of_trn2_needs_an_identity(mode: str) -> None:
    kernel = Kernel("nki", "trn2")
    left, right, acc = kernel.loaded((32, 32)), kernel.loaded((32, 32)), kernel.psum((32, 32))
    tile, out = kernel.sbuf((32, 32)), kernel.output((32, 32))
    kernel.op("memset", at(acc), 0.0)
    with kernel.loop(2, LoopKind.SEQUENTIAL):
        kernel.op("matmul", at(acc), (at(left), at(right)), transpose=True, accumulate=mode)
    kernel.op("copy", at(tile), at(acc))
    kernel.op("dma_copy", at(out), at(tile))
    values = np.arange(1024, dtype=np.float32).reshape(32, 32)
    with pytest.raises(KernelCrash) as raised:
        execute(kernel.finish(), [values, values])
    assert raised.value.rule == "transpose_identity"
    (moved,) = execute(kernel.finish(), [values, np.eye(32, dtype=np.float32)])
    np.testing.assert_array_equal(moved, values.T * (1 if mode == "no" else 2))


def test_a_transfer_that_writes_one_place_twice_is_refused() -> None:
    kernel = Kernel()
    x, out = kernel.loaded((4, 8)), kernel.output((4, 8))
    kernel.store(out, x)
    kernel.op("dma_copy", at(out, Run(0, 4, 0), Run(0, 8)), at(x))
    with pytest.raises(KernelCrash, match="24 of its elements more than once") as caught:
        execute(kernel.finish(), [reals(4, 8)])
    assert (caught.value.rule, caught.value.line) == ("repeated_destination", kernel.line)


@pytest.mark.parametrize(
    ("name", "inside", "beyond"),
    [
        ("sin", [0.0, -3.14159, np.pi], 3.2),
        ("arctan", [-1.57, np.pi / 2], -1.6),
        ("log", [0.0, 2.0**-64, 2.0**64], 2.0**-65),
        ("sqrt", [0.0, 2.0**118], 2.0**119),
        ("rsqrt", [2.0**-87, 2.0**97], 2.0**98),
        ("reciprocal", [-(2.0**-42), 2.0**42], 2.0**43),
    ],
)
def test_an_argument_beyond_a_functions_documented_range_is_refused_where_that_is_asked(
    name: str, inside: list[float], beyond: float
) -> None:
    kernel = Kernel()
    x, y = kernel.loaded((1, 4)), kernel.sbuf((1, 4))
    kernel.op("activation", [at(y)], [at(x), 0.0, 1.0], func=name)
    kernel.store(kernel.output((1, 4)), y)
    program, asked = kernel.finish(), ExecuteOptions(checks_ranges=True)
    data = np.full((1, 4), inside[-1], np.float32)
    data[0, : len(inside)] = inside
    assert np.array_equal(execute(program, [data], asked)[0], execute(program, [data])[0])
    data[0, 0] = beyond
    for beside in (inside[-1], np.nan):  # a value that is not a number hides no other one
        data[0, 3] = beside
        execute(program, [data])
        with pytest.raises(KernelCrash, match=re.escape(f"{name} takes {beyond:.6g}")) as caught:
            execute(program, [data], asked)
        assert caught.value.rule == "activation_range"


@pytest.mark.parametrize("name", sorted(CHIP_ERRORS))
def test_functions_are_as_far_off_as_on_the_chip_where_that_is_asked(name: str) -> None:
    kernel = Kernel()
    x, y = kernel.loaded((64, 256)), kernel.sbuf((64, 256))
    kernel.op("activation", [at(y)], [at(x), 0.0, 1.0], func=name)
    kernel.store(kernel.output((64, 256)), y)
    program = kernel.finish()
    assert approximates(program)
    data = np.abs(reals(64, 256)) + np.float32(0.5)
    exact = execute(program, [data])[0].astype(np.float64)
    modelled = [execute(program, [data], ExecuteOptions(chip_functions=True))[0] for _ in range(2)]
    assert np.array_equal(modelled[0], modelled[1])
    off = np.sqrt(np.mean((modelled[0] / exact - 1) ** 2))
    assert off == pytest.approx(CHIP_ERRORS[name], rel=0.05)
    assert abs(np.mean(modelled[0] / exact - 1)) < CHIP_ERRORS[name] / 20
    wide = ExecuteOptions(float64=True)
    assert np.array_equal(execute(program, [data], replace(wide, chip_functions=True)), execute(program, [data], wide))


def test_functions_that_the_chip_computes_exactly_stay_as_they_are() -> None:
    kernel = Kernel()
    x, y = kernel.loaded((64, 32)), kernel.sbuf((64, 32))
    kernel.op("activation", [at(y)], [at(x), 1.0, 2.0], func="relu")
    kernel.store(kernel.output((64, 32)), y)
    program, data = kernel.finish(), reals(64, 32)
    assert not approximates(program)
    assert np.array_equal(execute(program, [data], ExecuteOptions(chip_functions=True)), execute(program, [data]))


def test_a_tile_seen_with_more_axes_is_not_searched_for_places_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel()
    x, tile, out = kernel.input((4, 2, 3, 5)), kernel.sbuf((4, 30)), kernel.output((4, 30))
    axes = ((4, (1, 0)), (2, (0, 15)), (3, (0, 5)), (5, (0, 1)))  # 30 columns as 2 x 3 x 5
    parts = Access(tile.id, (Affine(0), Affine(0)), tuple(TileDim(count, steps) for count, steps in axes))
    kernel.op("dma_copy", parts, at(x))
    kernel.op("dma_copy", at(out), at(tile))
    monkeypatch.setattr(Tile, "positions", lambda *_: pytest.fail("every position is computed"))
    values = reals(4, 2, 3, 5)
    np.testing.assert_array_equal(execute(kernel.finish(), [values])[0], values.reshape(4, 30))
