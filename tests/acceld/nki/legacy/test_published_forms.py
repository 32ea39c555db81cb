"""Forms that published kernels and AWS's own examples use, each against numpy."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from acceld.nki.errors import KernelFailure
from acceld.nki.ir.program import Notice
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
