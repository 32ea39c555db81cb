"""Forms that published kernels and AWS's own examples use, each against numpy."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from acceld.nki.verify.verifier import verify
from tests.acceld.nki.legacy.conftest import Array, RunKernel, TraceKernel


def reals(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_a_tensor_of_one_dimension_is_loaded_with_an_element_a_partition(run_kernel: RunKernel) -> None:
    body = """
@nki.jit
def kernel(b):
    o = nl.ndarray((2, nl.par_dim(128), 1), dtype=b.dtype, buffer=nl.shared_hbm)
    c = nl.ndarray((2, nl.par_dim(128), 1), dtype=b.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(2):
        c[i, :, :] = nl.load(b[i * 128 : (i + 1) * 128])
        nl.store(o[i], c[i])
    return o
"""
    b = np.arange(256, dtype=np.float32)
    np.testing.assert_array_equal(run_kernel(body, b).reshape(-1), b)


@pytest.mark.parametrize("call", ["nisa.tensor_reduce(nl.max, t, axis=(2, 4))", "nl.max(t, axis=[2, 4])"])
def test_any_free_axes_are_reduced(run_kernel: RunKernel, call: str) -> None:
    body = f"""
@nki.jit
def kernel(x):
    o = nl.ndarray((128, 2, 5), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x).reshape((128, 2, 3, 5, 2))
    nl.store(o, {call})
    return o
"""
    x = reals(128, 60)
    np.testing.assert_array_equal(run_kernel(body, x), x.reshape(128, 2, 3, 5, 2).max((2, 4)))


@pytest.mark.parametrize(("left", "right"), [("x", "b"), ("b", "x")])
def test_tensor_tensor_takes_a_column_beside_a_tile_of_more_axes(run_kernel: RunKernel, left: str, right: str) -> None:
    body = f"""
@nki.jit
def kernel(x, b):
    o = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(o, nisa.tensor_tensor(nl.load({left}), nl.load({right}), op=nl.add))
    return o
"""
    x, b = reals(128, 2, 14), reals(128, 1)
    np.testing.assert_array_equal(run_kernel(body, x, b), x + b[:, :, None])


@pytest.mark.parametrize(("left", "right"), [("a", "b"), ("b", "a")])
def test_one_partition_is_broadcast_by_functions_of_the_language(run_kernel: RunKernel, left: str, right: str) -> None:
    body = f"""
@nki.jit
def kernel(a, b):
    o = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(o, nl.subtract(nl.load({left}), nl.load({right})))
    return o
"""
    a, b = reals(128, 64), reals(1, 64)
    np.testing.assert_array_equal(run_kernel(body, a, b), a - b if left == "a" else b - a)


def test_the_compilers_logging_level_is_there_while_a_kernel_is_traced(trace_kernel: TraceKernel) -> None:
    body = """
import logging
logging.disable(logging.OFF)
@nki.jit
def kernel(x):
    o = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(o, nl.load(x))
    return o
"""
    before = logging.root.manager.disable
    trace_kernel(body, reals(128, 64))
    assert logging.root.manager.disable == before
    assert not hasattr(logging, "OFF")


@pytest.mark.parametrize("mask", ["(f >= 3 and f < 40)", "(3 <= f < 40)", "((f >= 3) and (3 <= f < 40 and p < 128))"])
def test_a_mask_may_join_comparisons_with_and(run_kernel: RunKernel, mask: str) -> None:
    body = f"""
@nki.jit
def kernel(x):
    o = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:64]
    tile = nl.load(x)
    tile[p, f] = nl.multiply(tile[p, f], 2.0, mask={mask})
    nl.store(o, tile)
    return o
"""
    x = reals(128, 64)
    expected = x.copy()
    expected[:, 3:40] *= 2
    np.testing.assert_array_equal(run_kernel(body, x), expected)


def test_a_transpose_by_dma_takes_a_descriptor_mode(run_kernel: RunKernel) -> None:
    body = """
@nki.jit
def kernel(x):
    o = nl.ndarray((64, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(o, nisa.dma_transpose(nl.load(x), dge_mode=nisa.dge_mode.swdge))
    return o
"""
    x = reals(128, 64)
    np.testing.assert_array_equal(run_kernel(body, x), x.T)


def test_a_tile_of_the_array_may_depend_on_loops(trace_kernel: TraceKernel) -> None:
    body = """
@nki.jit
def kernel(g_tensor, h_tensor):
    o = nl.ndarray((16, 64, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        for j in nl.affine_range(4):
            g, h = nl.load(g_tensor[i * 4 + j]), nl.load(h_tensor[i * 4 + j])
            p = nisa.nc_matmul(g, h, tile_position=((i % 2) * 64, (j % 2) * 64), tile_size=(64, 64))
            nl.store(o[i * 4 + j], p)
    return o
"""
    program = trace_kernel(body, reals(16, 64, 64), reals(16, 64, 512), chip="trn2")
    places = [node.attr("tile_position") for node, _ in program.walk() if node.op == "matmul"]
    assert set(places) == {(0, 0), (0, 64), (64, 0), (64, 64)}
    assert verify(program) == ()
