"""Accumulation: products in PSUM, updates in SBUF, reductions over loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from acceld.nki.errors import LegalityError, UnsupportedCall

PRODUCT = """
@nki.jit
def kernel(a, b):
    out = nl.ndarray((64, 96), dtype=a.dtype, buffer=nl.shared_hbm)
    acc = {declared}
    for k in nl.affine_range(4):
        left = nl.load(a[nl.ds(k * 32, 32), :])
        right = nl.load(b[nl.ds(k * 32, 32), :])
        {step}
    nl.store(out, nl.copy(acc))
    return out
"""
ZEROS = "nl.zeros((64, 96), dtype=nl.float32, buffer=nl.psum)"
RAW = "nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum)"


@pytest.mark.parametrize(
    ("declared", "step", "mode"),
    [
        (ZEROS, "acc += nisa.nc_matmul(left, right)", "yes"),
        (ZEROS, "acc[...] += nl.matmul(left, right, transpose_x=True)", "yes"),
        (ZEROS, "acc[0:64, 0:96] += nisa.nc_matmul(left, right)", "yes"),
        (RAW, "acc[...] += nisa.nc_matmul(left, right)", "auto"),
    ],
)
def test_products_accumulate_in_psum(
    run_kernel: Any, trace_kernel: Any, random: Any, declared: str, step: str, mode: str
) -> None:
    a, b = random(128, 64), random(128, 96)
    source = PRODUCT.format(declared=declared, step=step)
    np.testing.assert_allclose(run_kernel(source, a, b), a.T @ b, rtol=1e-4, atol=1e-4)
    program = trace_kernel(source, a, b)
    products = [i for i, _ in program.walk() if i.op == "matmul"]
    assert [i.attr("accumulate") for i in products] == [mode]
    assert all(i.attr("lazy") for i, _ in program.walk() if i.op == "memset")


def test_zeros_in_psum_that_other_engines_write_are_written(trace_kernel: Any, random: Any) -> None:
    program = trace_kernel(
        """
@nki.jit
def kernel(a):
    out = nl.ndarray((64, 96), dtype=a.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((64, 96), dtype=nl.float32, buffer=nl.psum)
    acc += nl.load(a)
    nl.store(out, acc)
    return out
""",
        random(64, 96),
    )
    assert [i.attr("lazy") for i, _ in program.walk() if i.op == "memset"] == [False]


def test_an_assigned_product_is_no_accumulation(trace_kernel: Any, random: Any) -> None:
    source = PRODUCT.format(declared=ZEROS, step="acc[...] = nisa.nc_matmul(left, right)")
    with pytest.raises(LegalityError) as caught:
        trace_kernel(source, random(128, 64), random(128, 96))
    assert caught.value.rule == "output_dependency"
    assert "missing indices in the dst access: k" in str(caught.value)


def test_updates_in_sbuf_are_vector_operations_in_place(run_kernel: Any, trace_kernel: Any, random: Any) -> None:
    x = random(4, 64, 32)
    source = """
@nki.jit
def kernel(x):
    out = nl.ndarray((64, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((64, 32), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        total += nl.load(x[i])
    total *= 0.25
    total -= nl.load(x[0, :, 0:1])
    nl.store(out, total)
    return out
"""
    np.testing.assert_allclose(run_kernel(source, x), x.mean(0) - x[0, :, :1], rtol=1e-5, atol=1e-6)
    update = next(i for i, loops in trace_kernel(source, x).walk() if i.op == "tensor_tensor")
    assert update.dsts[0] == update.srcs[0]


@pytest.mark.parametrize(("op", "fold"), [("np.add", np.sum), ("nl.max", np.max), ("np.minimum", np.min)])
def test_loop_reduce_folds_over_the_loops_it_names(run_kernel: Any, random: Any, op: str, fold: Any) -> None:
    x = random(3, 5, 2, 64, 16)
    got = run_kernel(
        f"""
@nki.jit
def kernel(x):
    out = nl.ndarray((5, 64, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((5, par_dim(64), 16), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(3):
        for j in nl.affine_range(5):
            for k in nl.sequential_range(2):
                tile = nl.load(x[i, j, k])
                t[j] = nl.loop_reduce(tile, op={op}, loop_indices=[k, i], dtype=np.float32)
    for j in nl.affine_range(5):
        nl.store(out[j], t[j])
    return out
""",
        x,
    )
    np.testing.assert_allclose(got, fold(x, axis=(0, 2)), rtol=1e-5, atol=1e-5)


def test_the_result_of_loop_reduce_outlives_the_loop_without_an_assignment(run_kernel: Any, random: Any) -> None:
    x = random(4, 64, 16)
    got = run_kernel(
        """
@nki.jit
def kernel(x):
    out = nl.ndarray((64, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        total = nl.loop_reduce(nl.load(x[i]), op=np.add, loop_indices=[i])
    nl.store(out, total)
    return out
""",
        x,
    )
    np.testing.assert_allclose(got, x.sum(0), rtol=1e-5, atol=1e-5)


def test_loop_reduce_over_an_unrolled_loop_folds_too(run_kernel: Any, random: Any) -> None:
    x = random(3, 4, 64, 16)
    got = run_kernel(
        """
@nki.jit
def kernel(x):
    out = nl.ndarray((64, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((64, 16), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(3):
        for j in nl.affine_range(4):
            tile = nl.load(x[i, j])
            if i == 1:
                tile = nl.multiply(tile, 2.0)
            t[...] = nl.loop_reduce(tile, op=np.add, loop_indices=[i, j])
    nl.store(out, t)
    return out
""",
        x,
    )
    np.testing.assert_allclose(got, x.sum((0, 1)) + x[1].sum(0), rtol=1e-4, atol=1e-5)


def test_loop_reduce_over_a_loop_it_is_not_in_is_refused(trace_kernel: Any, random: Any) -> None:
    with pytest.raises(LegalityError) as caught:
        trace_kernel(
            """
@nki.jit
def kernel(x):
    out = nl.ndarray((64, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        tile = nl.load(x[0])
    nl.store(out, nl.loop_reduce(nl.load(x[0]), op=np.add, loop_indices=[i]))
    return out
""",
            random(4, 64, 16),
        )
    assert caught.value.rule == "local_scope"


def test_a_double_row_product_sums_both_rows(run_kernel: Any) -> None:
    import ml_dtypes

    a = np.random.default_rng(0).standard_normal((64, 2, 32)).astype(ml_dtypes.float8_e4m3)
    b = np.random.default_rng(1).standard_normal((64, 2, 48)).astype(ml_dtypes.float8_e4m3)
    source = """
@nki.jit
def kernel(a, b):
    out = nl.ndarray((32, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.zeros((32, 48), dtype=nl.float32, buffer=nl.psum)
    left, right = nl.load(a), nl.load(b)
    acc += nisa.nc_matmul(left, right, perf_mode="double_row_gen3")
    nl.store(out, nl.copy(acc))
    return out
"""
    want = np.einsum("kim,kin->mn", a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(run_kernel(source, a, b, chip="trn2"), want, rtol=1e-3, atol=1e-3)
    with pytest.raises(LegalityError, match="chip after trn1"):
        run_kernel(source, a, b)
    with pytest.raises(UnsupportedCall, match="transpose_rows"):
        run_kernel(source.replace("double_row_gen3", "transpose_rows"), a, b, chip="trn2")
