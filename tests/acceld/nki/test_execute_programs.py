"""Whole programs on data: loops, masks, contraction, order, run-time indices, limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from acceld.errors import UsageError
from acceld.nki.errors import KernelCrash, LimitExceeded
from acceld.nki.execute.interpreter import ExecuteOptions, _Execution, execute
from acceld.nki.ir.program import Affine, Indirect, LoopKind, Pattern, Program
from tests.acceld.nki.programs import Kernel, Run, at, var
from tests.properties import examples

Array = NDArray[Any]
rng = np.random.default_rng(21)


def reals(*shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def blocked_matmul(blocks: int, m: int, n: int, *, mode: str = "yes", lazy: bool = True) -> Program:
    """x.T @ y with the contraction in ``blocks`` of 16 rows, in block-dimension buffers."""
    kernel = Kernel()
    x, y = kernel.input((blocks * 16, m)), kernel.input((blocks * 16, n))
    xs, ys = kernel.sbuf((blocks, 16, m), axis=1), kernel.sbuf((16, blocks, n))
    dst, out = kernel.psum((2, m, n), axis=1), kernel.sbuf((2, m, n), axis=1)
    result = kernel.output((2, m, n))
    if lazy:
        kernel.op("memset", at(dst), 0.0, lazy=True)
    with kernel.loop(blocks) as k:
        rows = Run(var(k, 16), 16)
        kernel.op("dma_copy", at(xs, var(k), Run(0, 16), Run(0, m)), at(x, rows, Run(0, m)))
        kernel.op("dma_copy", at(ys, Run(0, 16), var(k), Run(0, n)), at(y, rows, Run(0, n)))
    with kernel.loop(2) as i:
        with kernel.loop(blocks) as k:
            kernel.op(
                "matmul",
                at(dst, var(i), Run(0, m), Run(0, n)),
                [at(xs, var(k), Run(0, 16), Run(0, m)), at(ys, Run(0, 16), var(k), Run(0, n))],
                accumulate=mode,
            )
        kernel.op("copy", at(out, var(i), Run(0, m), Run(0, n)), at(dst, var(i), Run(0, m), Run(0, n)))
        kernel.op("dma_copy", at(result, var(i), Run(0, m), Run(0, n)), at(out, var(i), Run(0, m), Run(0, n)))
    return kernel.finish()


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9), st.sampled_from(["yes", "auto"]))
@examples(10)
def test_an_accumulation_loop_is_one_product(blocks: int, m: int, n: int, mode: str) -> None:
    program = blocked_matmul(blocks, m, n, mode=mode, lazy=mode == "yes")
    x, y = reals(blocks * 16, m), reals(blocks * 16, n)
    (out,) = execute(program, [x, y])
    expected = x.astype(np.float64).T @ y
    assert np.allclose(out, np.stack([expected, expected]), rtol=1e-4, atol=1e-4)


def test_an_accumulator_nobody_initialized_stays_undefined() -> None:
    (out,) = execute(blocked_matmul(2, 3, 3, lazy=False), [reals(32, 3), reals(32, 3)])
    assert np.isnan(out).all()


def test_a_tensor_of_blocks_takes_the_memory_of_one_iteration() -> None:
    kernel = Kernel()
    x, result = kernel.input((1000, 128, 64)), kernel.output((1000, 128, 64))
    big = kernel.sbuf((1000, 128, 64), axis=1)
    with kernel.loop(1000) as i:
        tile = at(big, var(i), Run(0, 128), Run(0, 64))
        kernel.op("dma_copy", tile, at(x, var(i), Run(0, 128), Run(0, 64)))
        kernel.op("activation", tile, [tile, 0.0, 2.0], func="square")
        kernel.op("dma_copy", at(result, var(i), Run(0, 128), Run(0, 64)), tile)
    program = kernel.finish()
    run = _Execution(program, ExecuteOptions())
    assert run.stores[big.id].layout.elements == 128 * 64
    data = reals(1000, 128, 64)
    assert np.array_equal(run.run([data])[0], np.square(data * 2))


def test_a_value_that_passes_between_iterations_keeps_its_storage() -> None:
    kernel = Kernel()
    x, result = kernel.input((4, 8, 5)), kernel.output((4, 8, 5))
    held, tile = kernel.sbuf((8, 5)), kernel.sbuf((8, 5))
    kernel.op("memset", at(held), 1.0)
    with kernel.loop(4, LoopKind.SEQUENTIAL) as i:
        kernel.op("dma_copy", at(tile), at(x, var(i), Run(0, 8), Run(0, 5)))
        kernel.op("tensor_tensor", at(held), [at(held), at(tile)], op="add")
        kernel.op("dma_copy", at(result, var(i), Run(0, 8), Run(0, 5)), at(held))
    data = reals(4, 8, 5)
    (out,) = execute(kernel.finish(), [data])
    assert np.allclose(out, 1 + np.cumsum(data, axis=0), rtol=1e-5, atol=1e-6)


def test_a_buffer_declared_in_a_loop_is_undefined_in_each_iteration() -> None:
    kernel = Kernel()
    result = kernel.output((3, 4, 6))
    with kernel.loop(3, LoopKind.SEQUENTIAL) as i:
        tile = kernel.sbuf((4, 6))
        kernel.op("memset", at(tile, Run(0, 4), Run(var(i), 1)), 1.0)
        kernel.op("dma_copy", at(result, var(i), Run(0, 4), Run(0, 6)), at(tile))
    (out,) = execute(kernel.finish(), [])
    for row in range(3):
        assert (out[row, :, row] == 1).all()
        assert np.isnan(np.delete(out[row], row, axis=1)).all()
    (zeros,) = execute(kernel.finish(), [], ExecuteOptions(uninitialized="zero"))
    assert zeros.sum() == 12


def test_output_nobody_wrote_is_nan() -> None:
    kernel = Kernel()
    result = kernel.output((4, 6))
    tile = kernel.sbuf((4, 3))
    kernel.op("memset", at(tile), 2.0)
    kernel.op("dma_copy", at(result, Run(0, 4), Run(0, 3)), at(tile))
    (out,) = execute(kernel.finish(), [])
    assert (out[:, :3] == 2).all()
    assert np.isnan(out[:, 3:]).all()


def edge(rows: int, height: int, width: int) -> Program:
    """Double a tensor of ``rows`` rows in tiles of ``height``, with the last tile masked."""
    kernel = Kernel()
    x, y = kernel.input((rows, width)), kernel.output((rows, width))
    with kernel.loop(-(-rows // height)) as i:
        tile = kernel.sbuf((height, width))
        inside = (Pattern(var(i, -height, rows - 1), (-1, 0)),)
        here = Run(var(i, height), height)
        kernel.op("dma_copy", at(tile), at(x, here, Run(0, width)), mask=inside)
        kernel.op("tensor_scalar", at(tile), [at(tile), 2.0], op0="multiply", mask=inside)
        kernel.op("dma_copy", at(y, here, Run(0, width)), at(tile), mask=inside)
    return kernel.finish()


@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 5))
@examples(10)
def test_a_mask_crops_the_last_tile(rows: int, height: int, width: int) -> None:
    x = reals(rows, width)
    assert np.array_equal(execute(edge(rows, height, width), [x])[0], x * 2)


def test_a_mask_that_is_too_wide_is_caught_at_its_line() -> None:
    kernel = Kernel()
    x, y = kernel.input((10, 4)), kernel.output((12, 4))
    tile = kernel.sbuf((4, 4))
    with kernel.loop(3) as i:
        line = kernel.op(
            "dma_copy", at(tile), at(x, Run(var(i, 4), 4), Run(0, 4)), mask=(Pattern(var(i, -4, 10), (-1, 0)),)
        )
        kernel.op("dma_copy", at(y, Run(var(i, 4), 4), Run(0, 4)), at(tile))
    with pytest.raises(KernelCrash) as caught:
        execute(kernel.finish(), [reals(10, 4)])
    assert (caught.value.rule, caught.value.line) == ("out_of_bounds", line)
    assert "size 10" in caught.value.message


@pytest.mark.parametrize("op", ["copy", "tensor_tensor", "activation"])
def test_a_mask_over_two_axes_leaves_the_other_elements_alone(op: str) -> None:
    kernel = Kernel()
    x, target = kernel.loaded((6, 7)), kernel.loaded((6, 7))
    triangle = (Pattern(Affine(0), (1, -1)),)
    srcs: dict[str, list[Any]] = {
        "copy": [at(x)], "tensor_tensor": [at(x), at(x)], "activation": [at(x), 0.0, 1.0]
    }  # fmt: skip
    attrs: dict[str, dict[str, Any]] = {"copy": {}, "tensor_tensor": {"op": "add"}, "activation": {"func": "square"}}
    kernel.op(op, at(target), srcs[op], mask=triangle, **attrs[op])
    kernel.store(kernel.output((6, 7)), target)
    a, b = reals(6, 7), reals(6, 7)
    (out,) = execute(kernel.finish(), [a, b])
    value = {"copy": a, "tensor_tensor": a + a, "activation": a * a}[op]
    assert np.array_equal(out, np.where(np.tri(6, 7, dtype=bool), value, b))


def test_masked_reductions_and_products_ignore_what_is_outside() -> None:
    kernel = Kernel()
    x = kernel.loaded((6, 7))
    y = kernel.loaded((6, 5))
    total, product, out = kernel.sbuf((6, 1)), kernel.psum((7, 5)), kernel.sbuf((7, 5))
    kernel.op("tensor_reduce", at(total), at(x), op="add", axes=(1,), mask=(Pattern(Affine(0), (1, -1)),))
    kernel.op("memset", at(product), 0.0)
    kernel.op("matmul", at(product), [at(x), at(y)], accumulate="no", mask=(Pattern(Affine(3), (-1, 0, 0)),))
    kernel.op("copy", at(out), at(product))
    kernel.store(kernel.output((6, 1)), total)
    kernel.store(kernel.output((7, 5)), out)
    a, b = reals(6, 7), reals(6, 5)
    sums, products = execute(kernel.finish(), [a, b])
    assert np.allclose(sums[:, 0], np.tril(a).sum(axis=1), rtol=1e-5, atol=1e-6)
    assert np.allclose(products, a[:4].T @ b[:4], rtol=1e-5, atol=1e-6)


def test_a_product_under_a_mask_of_two_axes_drops_single_terms() -> None:
    kernel = Kernel()
    x, y = kernel.loaded((6, 4)), kernel.loaded((6, 5))
    product, out = kernel.psum((4, 5)), kernel.sbuf((4, 5))
    kernel.op("memset", at(product), 7.0)
    kernel.op("matmul", at(product), [at(x), at(y)], accumulate="no", mask=(Pattern(Affine(0), (0, 1, -1)),))
    kernel.op("copy", at(out), at(product))
    kernel.store(kernel.output((4, 5)), out)
    a, b = reals(6, 4), reals(6, 5)
    (result,) = execute(kernel.finish(), [a, b])
    assert np.allclose(result, np.where(np.tri(4, 5, dtype=bool), a.T @ b, 7), rtol=1e-5, atol=1e-5)


def masked_products(least: int) -> Program:
    """Add ``x.T @ y`` twice, under a mask that keeps the columns of each row from the diagonal on, less ``least``."""
    kernel = Kernel()
    x, y = kernel.loaded((1, 4)), kernel.loaded((1, 4))
    product, out = kernel.psum((4, 4)), kernel.sbuf((4, 4))
    with kernel.loop(2):
        mask = (Pattern(Affine(-least), (0, 1, -1)),)
        kernel.op("matmul", at(product), [at(x), at(y)], accumulate="auto", mask=mask)
    kernel.op("copy", at(out), at(product))
    kernel.store(kernel.output((4, 4)), out)
    return kernel.finish()


def test_a_product_under_a_mask_of_two_axes_is_added_to_even_if_it_equals_what_the_memory_held() -> None:
    one, zero = np.ones((1, 4), np.float32), np.zeros((1, 4), np.float32)
    (held,) = execute(masked_products(9), [one, zero], ExecuteOptions(chance=3))
    (result,) = execute(masked_products(0), [one, held[3:]], ExecuteOptions(chance=3))
    assert np.array_equal(result[3], 2 * held[3])
    assert np.array_equal(result[0, 1:], held[0, 1:])


def shifted(kind: LoopKind) -> Program:
    """Copy each row from the row before it. That is wrong in an affine loop, since iterations depend on each other."""
    kernel = Kernel()
    x = kernel.input((9, 4))
    y = kernel.output((9, 4))
    rows = kernel.hbm((9, 4))
    kernel.op("dma_copy", at(rows), at(x))
    with kernel.loop(8, kind) as i:
        kernel.op("dma_copy", at(rows, Run(var(i, 1, 1), 1), Run(0, 4)), at(rows, Run(var(i), 1), Run(0, 4)))
    kernel.op("dma_copy", at(y), at(rows))
    return kernel.finish()


def test_shuffling_affine_loops_exposes_iterations_that_depend_on_each_other() -> None:
    x = reals(9, 4)
    plain = execute(shifted(LoopKind.AFFINE), [x])[0]
    assert np.array_equal(plain, np.repeat(x[:1], 9, axis=0))
    seeds = [execute(shifted(LoopKind.AFFINE), [x], ExecuteOptions(shuffle_affine=seed))[0] for seed in range(3)]
    assert any(not np.array_equal(plain, other) for other in seeds)
    kept = execute(shifted(LoopKind.SEQUENTIAL), [x], ExecuteOptions(shuffle_affine=1))[0]
    assert np.array_equal(kept, plain)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_loop_reduce_starts_in_the_first_iteration_that_runs(seed: int | None) -> None:
    kernel = Kernel()
    x, y = kernel.input((3, 4, 8, 5)), kernel.output((8, 5))
    total = kernel.sbuf((8, 5))
    with kernel.loop(3) as i, kernel.loop(4) as j:
        tile = kernel.sbuf((8, 5))
        kernel.op("dma_copy", at(tile), at(x, var(i), var(j), Run(0, 8), Run(0, 5)))
        kernel.op("loop_reduce", at(total), at(tile), op="max", loops=(i.id, j.id))
    kernel.store(y, total)
    data = reals(3, 4, 8, 5)
    (out,) = execute(kernel.finish(), [data], ExecuteOptions(shuffle_affine=seed))
    assert np.array_equal(out, data.max(axis=(0, 1)))


def gather_rows(index: Array, *, oob: str | None = None, rows: int = 10) -> tuple[Program, int]:
    kernel = Kernel()
    table, where = kernel.input((rows, 6)), kernel.input(index.shape, "int32")
    numbers, tile = kernel.sbuf(index.shape, "int32"), kernel.sbuf((index.shape[0], 6))
    kernel.op("memset", at(tile), -1.0)
    kernel.load(numbers, where)
    access = at(table, Run(0, index.shape[0], 0), Run(0, 6), indirect=(Indirect(0, index=at(numbers), axis=0),))
    line = kernel.op("dma_copy", at(tile), access, oob=oob)
    kernel.store(kernel.output((index.shape[0], 6)), tile)
    return kernel.finish(), line


def test_rows_are_gathered_by_run_time_indices() -> None:
    index = np.array([[3], [0], [9], [3]], np.int32)
    program, _ = gather_rows(index)
    table = reals(10, 6)
    (out,) = execute(program, [table, index])
    assert np.array_equal(out, table[index[:, 0]])


def test_a_run_time_index_outside_raises_at_its_line_or_is_skipped() -> None:
    index = np.array([[3], [-1], [10], [2]], np.int32)
    table = reals(10, 6)
    program, line = gather_rows(index)
    with pytest.raises(KernelCrash) as caught:
        execute(program, [table, index])
    assert (caught.value.rule, caught.value.line) == ("out_of_bounds", line)
    (out,) = execute(gather_rows(index, oob="skip")[0], [table, index])
    assert np.array_equal(out[[0, 3]], table[[3, 2]])
    assert (out[[1, 2]] == -1).all()


@pytest.mark.parametrize("op", ["add", "max"])
def test_read_modify_write_folds_repeated_targets(op: str) -> None:
    kernel = Kernel()
    target = kernel.input((5, 3), written=True)
    values, numbers = kernel.loaded((6, 3)), kernel.loaded((6, 1), "int32")
    access = at(target, Run(0, 6, 0), Run(0, 3), indirect=(Indirect(0, index=at(numbers), axis=0),))
    kernel.op("dma_copy", access, at(values), rmw=op)
    kernel.outputs.append(target.id)
    base, terms, index = reals(5, 3), reals(6, 3), np.array([[0], [2], [0], [4], [0], [2]], np.int32)
    before = base.copy()
    (out,) = execute(kernel.finish(), [base, terms, index])
    expected = base.copy()
    for row, where in enumerate(index[:, 0]):
        expected[where] = expected[where] + terms[row] if op == "add" else np.maximum(expected[where], terms[row])
    assert np.allclose(out, expected, rtol=1e-6)
    assert np.array_equal(base, before)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([1.0, 2.0, 1.0], [1.0, 2.0]),  # the middle one of three differs
        ([2.0, 1.0, 1.0], [1.0, 2.0]),
        ([1.0, 1.0, 1.0], [1.0, 1.0]),
    ],
)
def test_of_several_values_for_one_place_another_one_than_the_last_may_remain(
    rows: list[float], expected: list[float]
) -> None:
    kernel = Kernel()
    target = kernel.output((4, 2))
    kernel.op("memset", at(target), 0.0)
    values, numbers = kernel.loaded((4, 2)), kernel.loaded((4, 1), "int32")
    access = at(target, Run(0, 4, 0), Run(0, 2), indirect=(Indirect(0, index=at(numbers), axis=0),))
    kernel.op("dma_copy", access, at(values))
    program = kernel.finish()
    inputs = [np.repeat(np.array([[*rows, 5.0]], np.float32).T, 2, axis=1), np.array([[2], [2], [2], [0]], np.int32)]
    found = [execute(program, inputs, ExecuteOptions(chance=chance))[0] for chance in (None, 7)]
    assert [one[2].tolist() for one in found] == [[value] * 2 for value in expected]
    assert all((one[0] == 5.0).all() for one in found)


def dynamic(most: int = 8) -> tuple[Program, int]:
    """Copy as many rows as the counter says, each from a row given by a register."""
    kernel = Kernel()
    counter = kernel.loaded((1, 1), "int32")
    x, y = kernel.input((8, 3)), kernel.output((8, 3))
    kernel.builder.register(), kernel.builder.register()
    tile = kernel.sbuf((8, 3))
    kernel.op("memset", at(tile), 0.0)
    kernel.op("register_load", (), at(counter), register=0)
    kernel.op("register_move", (), 7, register=1)
    with kernel.loop(most, LoopKind.DYNAMIC, register=0) as i:
        line = kernel.line
        row = at(x, Run(0, 1), Run(0, 3), indirect=(Indirect(0, register=1),))
        kernel.op("dma_copy", at(tile, Run(var(i), 1), Run(0, 3)), row)
        kernel.op("register_alu", (), 1, register=1, source=1, op="subtract")
    kernel.store(y, tile)
    return kernel.finish(), line


def test_a_dynamic_loop_runs_as_often_as_its_register_says() -> None:
    program, line = dynamic()
    x = reals(8, 3)
    for count in (0, 3, 8):
        (out,) = execute(program, [np.array([[count]], np.int32), x])
        assert np.array_equal(out[:count], x[::-1][:count])
        assert (out[count:] == 0).all()
    with pytest.raises(KernelCrash) as caught:
        execute(program, [np.array([[9]], np.int32), x])
    assert (caught.value.rule, caught.value.line) == ("dynamic_trips", line)


@pytest.mark.parametrize(("value", "rule"), [(2**80, "dynamic_trips"), (float("nan"), "register_value")])
def test_a_register_that_holds_no_count_is_refused(value: float, rule: str) -> None:
    kernel = Kernel()
    kernel.builder.register()
    kernel.op("register_move", (), value, register=0)
    tile = kernel.sbuf((1, 1))
    with kernel.loop(3, LoopKind.DYNAMIC, register=0):
        kernel.op("memset", at(tile), 0.0)
    with pytest.raises(KernelCrash) as caught:
        execute(kernel.finish(), [])
    assert caught.value.rule == rule


def test_a_register_is_stored_and_computed_with() -> None:
    kernel = Kernel()
    for _ in range(2):
        kernel.builder.register()
    kernel.op("register_move", (), 12, register=0)
    kernel.op("register_move", (), 0, register=1, source=0)
    kernel.op("register_alu", (), 5, register=1, source=1, op="bitwise_and")
    tile = kernel.sbuf((1, 1), "int32")
    kernel.op("register_store", at(tile), (), register=1)
    kernel.store(kernel.output((1, 1), "int32"), tile)
    assert execute(kernel.finish(), [])[0][0, 0] == 12 & 5


def test_a_false_hint_of_zeros_and_ones_is_found_in_the_data() -> None:
    kernel = Kernel()
    s, m, dst, out = kernel.loaded((4, 4)), kernel.loaded((4, 4)), kernel.psum((4, 4)), kernel.sbuf((4, 4))
    line = kernel.op("matmul", at(dst), [at(s), at(m)], accumulate="no", moving_onezero=True)
    kernel.op("copy", at(out), at(dst))
    kernel.store(kernel.output((4, 4)), out)
    program, x = kernel.finish(), reals(4, 4)
    fine = (reals(4, 4) > 0).astype(np.float32)
    assert np.allclose(execute(program, [x, fine])[0], x.T @ fine, rtol=1e-5, atol=1e-6)
    with pytest.raises(KernelCrash) as caught:
        execute(program, [x, x])
    assert (caught.value.rule, caught.value.line) == ("onezero_hint", line)
    assert np.allclose(execute(program, [x, x], ExecuteOptions(check_onezero=False))[0], x.T @ x, rtol=1e-4, atol=1e-5)


def test_cores_meet_at_a_barrier() -> None:
    kernel = Kernel("nki", "trn2")
    shared, y = kernel.hbm((2, 4, 3)), kernel.output((2, 4, 3))
    with kernel.loop(2, LoopKind.SPMD) as core:
        tile = kernel.sbuf((4, 3))
        kernel.op("iota", at(tile), (), pattern=Pattern(var(core, 100), (1, 10)))
        kernel.op("dma_copy", at(shared, var(core), Run(0, 4), Run(0, 3)), at(tile))
        kernel.op("barrier")
        other = kernel.sbuf((4, 3))
        kernel.op("dma_copy", at(other), at(shared, var(core, -1, 1), Run(0, 4), Run(0, 3)))
        kernel.op("tensor_tensor", at(other), [at(other), at(tile)], op="subtract")
        kernel.op("dma_copy", at(y, var(core), Run(0, 4), Run(0, 3)), at(other))
    (out,) = execute(kernel.finish(), [])
    assert (out[0] == 100).all()
    assert (out[1] == -100).all()


def test_reading_bits_as_another_type() -> None:
    kernel = Kernel()
    x = kernel.loaded((4, 6))
    bits = kernel.sbuf((4, 6), "int32")
    kernel.op("tensor_scalar", at(bits), [at(x, dtype="int32"), 0x7FFFFFFF], op0="bitwise_and")
    kernel.store(kernel.output((4, 6), "int32"), bits)
    data = reals(4, 6)
    for options in (ExecuteOptions(), ExecuteOptions(float64=True)):
        (out,) = execute(kernel.finish(), [data], options)
        assert np.array_equal(out.view(np.float32), np.abs(data))


def test_inputs_that_do_not_fit_are_refused() -> None:
    program = edge(5, 2, 3)
    with pytest.raises(UsageError, match="takes 1 inputs"):
        execute(program, [])
    with pytest.raises(UsageError, match=r"expects \(5, 3\)"):
        execute(program, [reals(3, 5)])


def test_inputs_of_another_type_are_rounded_to_the_buffers() -> None:
    x = rng.standard_normal((5, 3))
    (out,) = execute(edge(5, 2, 3), [x])
    assert np.array_equal(out, x.astype(np.float32) * 2)


def test_time_and_memory_are_bounded() -> None:
    kernel = Kernel()
    tile = kernel.sbuf((1, 1))
    kernel.op("memset", at(tile), 0.0)
    with kernel.loop(10**9, LoopKind.SEQUENTIAL):
        kernel.op("tensor_scalar", at(tile), [at(tile), 1.0], op0="add")
    kernel.store(kernel.output((1, 1)), tile)
    with pytest.raises(LimitExceeded) as caught:
        execute(kernel.finish(), [], ExecuteOptions(deadline_s=0.3))
    assert caught.value.rule == "deadline"
    huge = Kernel()
    x = huge.sbuf((128, 2**36))
    huge.op("memset", at(x, Run(0, 128), Run(0, 2**36)), 0.0)
    huge.op("memset", at(x, Run(0, 128), Run(0, 2**36)), 1.0)
    huge.output((1,))
    with pytest.raises(LimitExceeded) as caught:
        execute(huge.finish(), [])
    assert caught.value.rule == "memory_limit"


def test_a_constant_reaches_the_chip_as_it_was_given() -> None:
    kernel = Kernel()
    eye = np.eye(4, dtype=np.float32)
    constant, tile = kernel.constant(eye.tobytes(), (4, 4)), kernel.sbuf((4, 4))
    kernel.load(tile, constant)
    kernel.store(kernel.output((4, 4)), tile)
    assert np.array_equal(execute(kernel.finish(), [])[0], eye)
