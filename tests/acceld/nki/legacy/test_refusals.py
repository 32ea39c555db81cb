"""Messages of refused kernels name the call, the line, and what to do."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.errors import UsageError
from acceld.nki.errors import KernelFailure
from acceld.nki.frontend.tracing import TensorSpec
from acceld.nki.verify.verifier import verify

from .conftest import HEAD_LINES, RunKernel, TraceKernel

BODY = """\
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.load(x)
    {}
    return out
"""
LINE = HEAD_LINES + 5
X = np.ones((64, 24), np.float32)


@pytest.mark.parametrize(
    ("statement", "message", "hint"),
    [
        ("nl.store(out, np.exp(t))", "np.exp can not be applied to a tile", "use nl.exp"),
        ("nl.store(out, np.sum(t, axis=1))", "np.sum", "use nl.sum"),
        ("nl.store(out, np.linalg.norm(t))", "np.norm", "nl and nisa"),
        ("nl.store(out, np.add.reduce(t))", "np.sum", "use nl.sum"),
        ("nl.store(out, np.asarray(t))", "np.array", "nl and nisa"),
        ("nl.store(out, t @ t)", "@ is not defined", "nl.matmul"),
        ("nl.store(out, t // 2)", "// is not defined", "nl.floor"),
        ("nl.store(out, abs(t))", "abs() is not defined", "nl.abs"),
        ("nl.store(out, float(t))", "not known while tracing", "nl or nisa"),
        ("for i in nl.sequential_range(t): pass", "a bound of nl.sequential_range is", "mask"),
        ("nl.store(out, nl.sum(t))", "nl.sum: missing a required argument: 'axis'", "x, axis, *, dtype=None"),
        ("nisa.max8(t)", "nisa.max8: too many positional arguments", "*, src, mask=None"),
        ("nl.store(out, t[:, 0:8])", "can not be stored", "index the destination"),
        ("nl.store(t, t)", "'store' to be in address space 'hbm'", "nl.shared_hbm"),
        ("nl.store(out, nl.where(t, t, t[:, 0:8]))", "'where'", "make sizes equal or 1"),
        ("nl.store(out, t + np.ones((64, 24)))", "must be a number or a tile", "nl.shared_constant"),
        ("nl.all_reduce(t, op=np.add, program_axes=[0])", "nl.all_reduce", "without a grid"),
        ("nisa.tensor_copy_dynamic_src(t)", "nisa.tensor_copy_dynamic_src", "nisa.tensor_copy"),
        ("nl.store(out, t.reshape((7, 9)))", "can not be reshaped", "same number of elements"),
    ],
)
def test_a_refusal_names_the_call_the_line_and_what_to_do(
    trace_kernel: TraceKernel, statement: str, message: str, hint: str
) -> None:
    with pytest.raises(KernelFailure) as caught:
        trace_kernel(BODY.format(statement), X)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.line == LINE


@pytest.mark.parametrize(("name", "instead"), [("T", "nl.transpose(tile)"), ("sum", "nl.sum(tile, axis)")])
def test_the_message_for_an_attribute_that_tiles_lack_names_its_function(
    trace_kernel: TraceKernel, name: str, instead: str
) -> None:
    with pytest.raises(KernelFailure, match="a tile has no attribute") as caught:
        trace_kernel(BODY.format(f"t.{name}"), X)
    assert instead in caught.value.message


def test_a_tile_still_says_what_it_has(trace_kernel: TraceKernel) -> None:
    statement = "assert hasattr(t, 'shape') and not hasattr(t, 'T') and np.shape(t) == (64, 24); nl.store(out, t)"
    assert verify(trace_kernel(BODY.format(statement), X)) == ()


@pytest.mark.parametrize("other", ["t[32:64, :]", "nl.copy(t[32:64, :])"])
def test_both_tiles_of_one_tensor_start_at_one_partition(trace_kernel: TraceKernel, other: str) -> None:
    body = BODY.format(f"nl.store(out[0:32, :], nl.add(t[0:32, :], {other}))")
    found = verify(trace_kernel(body, X))
    assert [finding.rule for finding in found] == ([] if "copy" in other else ["base_partition"])
    assert all(finding.line == LINE and "nl.copy" in finding.hint for finding in found)


def test_a_numpy_number_left_of_an_operator_is_an_operand(run_kernel: RunKernel) -> None:
    given = BODY.format("nl.store(out, np.float32(3) - t * (np.float32(0.5) < t))")
    assert np.array_equal(run_kernel(given, X), 3 - X)


def test_an_argument_without_elements_is_refused(trace_kernel: TraceKernel) -> None:
    with pytest.raises(UsageError, match="no elements"):
        trace_kernel(BODY.format("nl.store(out, t)"), TensorSpec((0, 24), "float32"))


WALK = """
    P, A, B, C, D, E = nl.mgrid[0:64, 0:2, 0:2, 0:2, 0:2, 0:2]
    turned, straight = A + 2 * B + 4 * C + 8 * D + 16 * E, 16 * A + 8 * B + 4 * C + 2 * D + E
    made = nl.ndarray((64, 32), dtype=nl.float32)
    s = nl.load(x)
    {statement}
    nl.store(out, made)
"""


@pytest.mark.parametrize(
    ("statement", "refused"),
    [
        ("made[P, turned] = nisa.activation(nl.exp, s[P, turned])", True),
        ("made[P, turned] = nisa.tensor_copy(s[P, straight])", True),
        ("made[P, straight] = nisa.tensor_copy(s[P, turned])", True),
        ("made[P, straight] = nisa.activation(nl.exp, s[P, straight])", False),
        ("made[P, turned] = nl.exp(s[P, turned])", False),
        ("made[P, turned] = s[P, turned] + s[P, straight]", False),
    ],
)
def test_a_call_of_nisa_walks_four_free_axes_and_an_expression_more(
    trace_kernel: TraceKernel, statement: str, refused: bool
) -> None:
    body = BODY.format(WALK.format(statement=statement).strip())
    x = np.zeros((64, 32), np.float32)
    if not refused:
        assert verify(trace_kernel(body, x)) == ()
        return
    with pytest.raises(KernelFailure, match="5 free axes") as caught:
        trace_kernel(body, x)
    assert caught.value.rule == "access_pattern"
