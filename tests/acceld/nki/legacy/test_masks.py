"""Masks: affine predicates over an instruction's iteration space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from acceld.nki.errors import LegalityError


def test_a_tail_of_rows_is_masked(run_kernel: Any, random: Any) -> None:
    x = random(200, 64)
    got = run_kernel(
        """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    r, c = nl.arange(128)[:, None], nl.arange(64)[None, :]
    for i in nl.affine_range(2):
        inside = i * 128 + r < 200
        tile = nl.load(x[i * 128 + r, c], mask=inside)
        nl.store(out[i * 128 + r, c], nl.multiply(tile, 2.0, mask=inside), mask=inside)
    return out
""",
        x,
    )
    np.testing.assert_array_equal(got, x * 2)


def test_two_conditions_are_joined(run_kernel: Any, random: Any) -> None:
    x = random(16, 16)
    got = run_kernel(
        """
@nki.jit
def kernel(x):
    out = nl.zeros(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    r, c = nl.arange(16)[:, None], nl.arange(16)[None, :]
    tile = nl.load(x)
    nl.store(out[r, c], tile, mask=(r >= c) & (c > 2) & (r != r - 1 if False else r <= 13))
    return out
""",
        x,
    )
    r, c = np.mgrid[0:16, 0:16]
    np.testing.assert_array_equal(got, np.where((r >= c) & (c > 2) & (r <= 13), x, 0))


def test_a_mask_that_always_holds_is_dropped(trace_kernel: Any, random: Any) -> None:
    program = trace_kernel(
        """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    r, c = nl.arange(128)[:, None], nl.arange(8)[None, :]
    for i in nl.affine_range(2):
        nl.store(out[i * 128 + r, c], nl.load(x[i * 128 + r, c], mask=i * 128 + r < 256), mask=None)
    return out
""",
        random(256, 8),
    )
    assert all(instruction.mask == () for instruction, _ in program.walk())


def test_an_instruction_whose_mask_never_holds_is_dropped(run_kernel: Any, trace_kernel: Any, random: Any) -> None:
    source = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((64, 8), dtype=x.dtype, buffer=nl.sbuf)
    t[...] = nl.load(x)
    t[...] = nl.multiply(t, 3.0, mask=False)
    nl.store(out, t)
    return out
"""
    x = random(64, 8)
    np.testing.assert_array_equal(run_kernel(source, x), x)
    assert [i.op for i, _ in trace_kernel(source, x).walk()] == ["dma_copy", "dma_copy"]


def test_the_mask_of_a_product_limits_its_columns(run_kernel: Any, random: Any) -> None:
    a, b = random(64, 32), random(64, 100)
    got = run_kernel(
        """
@nki.jit
def kernel(a, b):
    out = nl.zeros((32, 128), dtype=a.dtype, buffer=nl.shared_hbm)
    k, m, n = nl.arange(64)[:, None], nl.arange(32)[:, None], nl.arange(128)[None, :]
    left = nl.load(a)
    right = nl.load(b[k, n], mask=n < 100)
    res = nisa.nc_matmul(left, right[k, n], mask=n < 100)
    nl.store(out[m, n], nl.copy(res, mask=n < 100), mask=n < 100)
    return out
""",
        a,
        b,
    )
    np.testing.assert_allclose(got[:, :100], a.T @ b, rtol=1e-4, atol=1e-4)
    assert not got[:, 100:].any()


def test_the_mask_of_a_reduction_limits_what_is_folded(run_kernel: Any, random: Any) -> None:
    x = random(32, 64)
    got = run_kernel(
        """
@nki.jit
def kernel(x):
    out = nl.ndarray((32, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    r, c = nl.arange(32)[:, None], nl.arange(64)[None, :]
    tile = nl.load(x)
    nl.store(out, nl.max(tile[r, c], axis=1, mask=c < 40))
    return out
""",
        x,
    )
    np.testing.assert_array_equal(got[:, 0], x[:, :40].max(1))


def test_an_assignment_that_must_copy_keeps_the_mask(run_kernel: Any, random: Any) -> None:
    x = random(64, 16)
    got = run_kernel(
        """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    c = nl.arange(16)[None, :]
    t = nl.load(x)
    half = nl.multiply(t[nl.arange(64)[:, None], c], 0.5, mask=c < 8)
    double = nl.add(half, half, mask=c < 8)
    t[nl.arange(64)[:, None], c] = half
    nl.store(out, t)
    return out
""",
        x,
    )
    np.testing.assert_array_equal(got, np.concatenate([x[:, :8] * 0.5, x[:, 8:]], 1))


@pytest.mark.parametrize(
    ("mask", "rule"),
    [
        ("(r < 4) | (r > 8)", "mask_form"),
        ("r != 3", "mask_form"),
        ("x", "mask_form"),
        ("~((r < 4) & (r > 1))", "mask_form"),
        ("nl.arange(9)[:, None] < 4", "mask_shape"),
    ],
)
def test_a_mask_of_another_form_is_refused(trace_kernel: Any, random: Any, mask: str, rule: str) -> None:
    with pytest.raises(LegalityError) as caught:
        trace_kernel(
            f"""
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    r = nl.arange(16)[:, None]
    nl.store(out, nl.load(x, mask={mask}))
    return out
""",
            random(16, 16),
        )
    assert (caught.value.rule, caught.value.line) == (rule, 12)
