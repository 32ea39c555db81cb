"""``t[i] = result`` makes the result's instruction write there if that changes nothing, else a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from acceld.nki.errors import LegalityError

KERNEL = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
{body}
    nl.store(out, t)
    return out
"""


def kernel(body: str) -> str:
    return KERNEL.format(body="\n".join(f"    {line}" for line in body.strip().splitlines()))


def operations(program: Any) -> list[str]:
    return [instruction.op for instruction, _ in program.walk()]


def test_a_result_assigned_at_once_is_not_copied(trace_kernel: Any, random: Any) -> None:
    program = trace_kernel(kernel("t[...] = nl.load(x)\nt[0:64, 0:8] = nl.exp(t[0:64, 0:8])"), random(128, 16))
    assert operations(program) == ["dma_copy", "activation", "dma_copy"]
    assert len(program.buffers) == 3


def test_a_result_used_before_it_is_assigned_is_copied(run_kernel: Any, trace_kernel: Any, random: Any) -> None:
    source = kernel("a = nl.load(x)\nb = nl.add(a, 1.0)\nt[...] = a\nt[0:64] = b[0:64]")
    x = random(128, 16)
    assert "copy" in operations(trace_kernel(source, x))
    np.testing.assert_array_equal(run_kernel(source, x), np.concatenate([x[:64] + 1, x[64:]]))


def test_a_result_that_reads_what_it_would_overwrite_elsewhere_is_refused(trace_kernel: Any, random: Any) -> None:
    with pytest.raises(LegalityError, match="at other positions") as refused:
        trace_kernel(kernel("t[...] = nl.load(x)\nt[:, 1:32] = nl.add(t[:, 1:32], t[:, 0:31])"), random(16, 32))
    assert refused.value.rule == "overlap"


def test_a_tensor_read_between_result_and_assignment_keeps_its_old_value(run_kernel: Any, random: Any) -> None:
    x = random(16, 32)
    body = "t[...] = nl.load(x)\na = nl.multiply(t, 10.0)\nb = nl.add(t, 1.0)\nt[...] = a\nt[:, 0:4] = b[:, 0:4]"
    got = run_kernel(kernel(body), x)
    np.testing.assert_array_equal(got, np.concatenate([x[:, :4] + 1, x[:, 4:] * np.float32(10)], 1))


def test_a_renamed_result_read_after_its_place_changes_keeps_its_value(run_kernel: Any, random: Any) -> None:
    x = random(16, 32)
    body = "a = nl.load(x)\nt[...] = a\nt[...] = nl.multiply(t, 2.0)\nt[...] = nl.add(t, a)"
    np.testing.assert_array_equal(run_kernel(kernel(body), x), x * 2 + x)


def test_a_renamed_result_read_in_a_loop_that_changes_its_place_keeps_its_value(run_kernel: Any, random: Any) -> None:
    x = random(16, 32)
    body = "a = nl.load(x)\nt[...] = a\nfor i in nl.sequential_range(3):\n    t[...] = nl.add(a, 1.0)"
    np.testing.assert_array_equal(run_kernel(kernel(body), x), x + 1)


def test_a_view_of_a_result_taken_before_the_assignment_stays_valid(run_kernel: Any, random: Any) -> None:
    x = random(128, 32)
    body = "a = nl.load(x)\nlow = a[0:64]\nt[...] = a\nt[64:128] = nl.copy(low)"
    np.testing.assert_array_equal(run_kernel(kernel(body), x), np.concatenate([x[:64], x[:64]]))


def test_a_result_made_outside_of_a_loop_is_copied_inside(run_kernel: Any, random: Any) -> None:
    x = random(16, 32)
    body = "a = nl.load(x)\nfor i in nl.affine_range(4):\n    t[:, nl.ds(i * 8, 8)] = a[:, nl.ds(24 - i * 8, 8)]"
    got = run_kernel(kernel(body), x)
    np.testing.assert_array_equal(got, x.reshape(16, 4, 8)[:, ::-1].reshape(16, 32))


def test_a_result_in_place_of_an_in_place_update_is_the_updated_one(run_kernel: Any, random: Any) -> None:
    x = random(16, 32)
    np.testing.assert_array_equal(run_kernel(kernel("a = nl.load(x)\na += 1.0\nt[...] = a"), x), x + 1)


def test_assignment_rounds_to_the_type_of_the_tensor(run_kernel: Any, random: Any) -> None:
    x = random(16, 32)
    got = run_kernel(
        """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    t[...] = nl.load(x)
    h = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    h[...] = nl.multiply(t, 1.0, dtype=nl.float16)
    nl.store(out, h)
    return out
""",
        x,
    )
    import ml_dtypes

    np.testing.assert_array_equal(got, x.astype(ml_dtypes.bfloat16).astype(np.float16).astype(np.float32))


def test_numbers_and_single_elements_fill_a_tensor(run_kernel: Any, random: Any) -> None:
    x = random(16, 32)
    body = "t[...] = 0.5\ns = nl.load(x[:, 0:1])\nt[:, 0:8] = s\nt[0:16, 31] = np.float32(2)"
    got = run_kernel(kernel(body), x)
    want = np.full_like(x, 0.5)
    want[:, :8], want[:, 31] = x[:, :1], 2
    np.testing.assert_array_equal(got, want)


def test_a_product_assigned_to_sbuf_is_copied_there(run_kernel: Any, trace_kernel: Any, random: Any) -> None:
    x = random(64, 64)
    source = kernel("a = nl.load(x)\nt[...] = nisa.nc_matmul(a, a)")
    np.testing.assert_allclose(run_kernel(source, x), x.T @ x, rtol=1e-4, atol=1e-4)
    assert operations(trace_kernel(source, x)) == ["dma_copy", "matmul", "copy", "dma_copy"]
