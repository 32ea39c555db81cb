"""Loops, conditions on loop variables, scopes, launch grids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from acceld.nki.errors import KernelCrash, LegalityError, LimitExceeded, UnsupportedCall
from acceld.nki.ir.program import LoopKind

COPY = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
{body}
    return out
"""


def kernel(body: str) -> str:
    return COPY.format(body="\n".join(f"    {line}" for line in body.strip("\n").splitlines()))


def test_loops_stay_loops_with_their_kind_name_and_trips(trace_kernel: Any, random: Any) -> None:
    body = """
for row in nl.affine_range(2):
    for column in nl.sequential_range(4):
        nl.store(out[nl.ds(row * 64, 64), nl.ds(column * 8, 8)], nl.load(x[nl.ds(row * 64, 64), nl.ds(column * 8, 8)]))
for part in nl.static_range(2):
    nl.store(out[nl.ds(part * 64, 64), 0:1], nl.load(x[nl.ds(part * 64, 64), 0:1]))
"""
    program = trace_kernel(kernel(body), random(128, 32))
    loops = [(loop.name, loop.trips, loop.kind) for loop in program.loops.values()]
    assert loops == [("row", 2, LoopKind.AFFINE), ("column", 4, LoopKind.SEQUENTIAL)]
    assert len(program.body) == 5


def test_an_argument_is_true_because_it_is_given(run_kernel: Any, trace_kernel: Any, random: Any) -> None:
    x = random(8, 8)
    body = kernel("nl.store(out, nl.multiply(nl.load(x), 2.0 if x else 3.0))")
    np.testing.assert_array_equal(run_kernel(body, x), 2 * x)
    assert "true because it is given" in trace_kernel(body, x).notices[0].text


def test_a_loop_without_iterations_leaves_nothing(trace_kernel: Any, random: Any) -> None:
    program = trace_kernel(
        kernel("for i in nl.affine_range(0):\n    nl.load(x)\nnl.store(out, nl.load(x))"), random(8, 8)
    )
    assert not program.loops


def test_a_condition_on_a_loop_variable_cuts_that_loop_only(run_kernel: Any, trace_kernel: Any, random: Any) -> None:
    body = """
for i in nl.affine_range(4):
    for j in nl.affine_range(2):
        tile = nl.load(x[nl.ds(i * 32, 32), nl.ds(j * 8, 8)])
        if i > 1:
            tile = nl.multiply(tile, -1.0)
        elif i == 0:
            tile = nl.add(tile, 5.0)
        nl.store(out[nl.ds(i * 32, 32), nl.ds(j * 8, 8)], tile)
"""
    x = random(128, 16)
    want = x.copy()
    want[:32] += 5
    want[64:] *= -1
    np.testing.assert_array_equal(run_kernel(kernel(body), x), want)
    program = trace_kernel(kernel(body), x)
    assert [(loop.name, loop.trips) for loop in program.loops.values()] == [("j", 2), ("j", 2), ("i", 2), ("j", 2)]
    assert any("loop over i is traced in 3 pieces" in notice.text for notice in program.notices)


@pytest.mark.parametrize(
    "condition", ["i == 0", "i == 63", "i != 40", "i >= 17", "64 - 2 * i > 9", "3 * i + 1 < 100", "i % 2 == 1"]
)
def test_first_last_and_middle_iterations_may_differ(
    run_kernel: Any, trace_kernel: Any, random: Any, condition: str
) -> None:
    x = random(128, 64)
    body = f"""
for i in nl.affine_range(64):
    tile = nl.load(x[:, nl.ds(i, 1)])
    nl.store(out[:, nl.ds(i, 1)], nl.multiply(tile, 2.0) if {condition} else tile)
"""
    want = x.copy()
    for i in range(64):
        if eval(condition, {"i": i}):
            want[:, i] *= 2
    np.testing.assert_array_equal(run_kernel(kernel(body), x), want)
    instructions = sum(1 for _ in trace_kernel(kernel(body), x).walk())
    assert instructions <= 10 or "%" in condition


def test_a_condition_on_two_loop_variables_unrolls_both(run_kernel: Any, trace_kernel: Any, random: Any) -> None:
    x = random(128, 16)
    body = """
for i in nl.affine_range(4):
    for j in nl.affine_range(2):
        tile = nl.load(x[nl.ds(i * 32, 32), nl.ds(j * 8, 8)])
        if i > j:
            tile = nl.multiply(tile, -1.0)
        nl.store(out[nl.ds(i * 32, 32), nl.ds(j * 8, 8)], tile)
"""
    want = x.copy()
    want[32:, :8] *= -1
    want[64:, 8:] *= -1
    np.testing.assert_array_equal(run_kernel(kernel(body), x), want)
    program = trace_kernel(kernel(body), x)
    assert not program.loops
    assert any("loop over i is unrolled" in notice.text for notice in program.notices)


def test_a_condition_that_is_known_for_all_iterations_unrolls_nothing(trace_kernel: Any, random: Any) -> None:
    body = """
for i in nl.affine_range(4):
    if i * 32 + 31 < 128 and not i < 0:
        nl.store(out[nl.ds(i * 32, 32)], nl.load(x[nl.ds(i * 32, 32)]))
"""
    assert len(trace_kernel(kernel(body), random(128, 16)).loops) == 1


def test_a_conditional_expression_carries_state_across_a_sequential_loop(run_kernel: Any, random: Any) -> None:
    x = random(64, 32)
    body = """
state = nl.ndarray((64, 1), dtype=x.dtype, buffer=nl.sbuf)
for i in nl.sequential_range(4):
    tile = nl.load(x[:, nl.ds(i * 8, 8)])
    one = nl.full((64, 8), fill_value=1.0, dtype=x.dtype)
    total = nisa.tensor_tensor_scan(one, tile, initial=state if i > 0 else 0, op0=np.multiply, op1=np.add)
    state[...] = total[:, 7:8]
    nl.store(out[:, nl.ds(i * 8, 8)], total)
"""
    np.testing.assert_allclose(run_kernel(kernel(body), x), np.cumsum(x, 1), rtol=1e-5, atol=1e-5)


def test_a_tile_assigned_by_index_carries_across_a_sequential_loop(
    run_kernel: Any, trace_kernel: Any, random: Any
) -> None:
    x = random(64, 32)
    body = """
best = nl.full((64, 1), fill_value=-1e30, dtype=x.dtype, buffer=nl.sbuf)
for i in nl.sequential_range(4):
    best[...] = nl.maximum(best, nl.max(nl.load(x[:, nl.ds(i * 8, 8)]), axis=1))
nl.store(out, nl.broadcast_to(best, shape=(64, 32)))
"""
    np.testing.assert_array_equal(run_kernel(kernel(body), x), np.repeat(x.max(1, keepdims=True), 32, 1))
    assert len(trace_kernel(kernel(body), x).loops) == 1


@pytest.mark.parametrize(
    ("body", "rule", "line", "part"),
    [
        ("for i in nl.affine_range(4):\n    for j in range(i):\n        pass", "symbolic_index", 12, "depends on i"),
        (
            "for i in nl.affine_range(4):\n    for j in nl.affine_range(i + 1):\n        pass",
            "symbolic_index",
            12,
            "a bound of nl.affine_range",
        ),
        ("for i in nl.affine_range(4):\n    t = nl.load(x)\nnl.store(out, t)", "local_scope", 13, "'t'"),
        (
            "for i in nl.affine_range(4):\n    pass\nnl.store(out, nl.load(x[nl.ds(i, 8)]))",
            "local_scope",
            13,
            "used after that loop has ended",
        ),
        ("for i in nl.affine_range(4):\n    break\nnl.store(out, nl.load(x))", "loop_exit", 11, "left early"),
        (
            "for i in nl.affine_range(4):\n    nl.store(out[0:8], nl.load(x[nl.ds(i, 8)]))",
            "output_dependency",
            12,
            "access: i",
        ),
        ("r = nl.arange(8)[:, None]\nif r < 4:\n    pass", "control_flow", 12, "nl.arange"),
        ("if nl.load(x):\n    pass", "control_flow", 11, "tensor's value"),
        ("for row in nl.load(x):\n    pass", "tile_value", 11, "iterated"),
    ],
)
def test_what_tracing_can_not_follow_is_refused_with_its_line(
    trace_kernel: Any, random: Any, body: str, rule: str, line: int, part: str
) -> None:
    with pytest.raises(LegalityError) as caught:
        trace_kernel(kernel(body), random(128, 16))
    assert (caught.value.rule, caught.value.line) == (rule, line)
    assert part in str(caught.value)


def test_writes_of_all_iterations_to_one_place_are_refused_on_chip_too(trace_kernel: Any, random: Any) -> None:
    body = """
t = nl.ndarray((4, par_dim(32), 16), dtype=x.dtype, buffer=nl.sbuf)
for i in nl.affine_range(4):
    t[0] = nl.load(x[nl.ds(i * 32, 32)])
"""
    with pytest.raises(LegalityError, match="missing indices in the dst access: i"):
        trace_kernel(kernel(body), random(128, 16))
    sequential = kernel(body.replace("affine_range", "sequential_range") + "\nnl.store(out[0:32], t[0])")
    assert len(trace_kernel(sequential, random(128, 16)).loops) == 1


def test_a_loop_of_one_iteration_may_write_anywhere(trace_kernel: Any, random: Any) -> None:
    body = "for i in nl.affine_range(1):\n    nl.store(out, nl.load(x))"
    assert len(trace_kernel(kernel(body), random(128, 16)).loops) == 1


SPMD = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.program_id(0), nl.program_id(axis=1)
    assert nl.program_ndim() == 2 and nl.num_programs() == 8 and nl.num_programs(1) == 4
    {body}
    nl.store(out[nl.ds(i * 64, 64), nl.ds(j * 8, 8)], tile)
    return out
"""
LOAD = "tile = nl.load(x[nl.ds(i * 64, 64), nl.ds(j * 8, 8)])"


def test_program_ids_are_loops_over_the_launch_grid(run_kernel: Any, trace_kernel: Any, random: Any) -> None:
    x = random(128, 32)
    source = SPMD.format(body=LOAD)
    np.testing.assert_array_equal(run_kernel(source, x, grid=(2, 4)), x)
    program = trace_kernel(source, x, grid=(2, 4))
    assert [(loop.kind, loop.trips) for loop in program.loops.values()] == [(LoopKind.SPMD, 2), (LoopKind.SPMD, 4)]
    assert program.grid == (2, 4)


@pytest.mark.parametrize(
    "extra", ["tile = nl.add(tile, 1.0) if i == 1 else tile", "tile = nl.add(tile, float([0, 1][i]))"]
)
def test_program_ids_that_python_needs_are_traced_one_after_another(
    run_kernel: Any, trace_kernel: Any, random: Any, extra: str
) -> None:
    x = random(128, 32)
    source = SPMD.format(body=f"{LOAD}\n    {extra}")
    want = x.copy()
    want[64:] += 1
    np.testing.assert_array_equal(run_kernel(source, x, grid=(2, 4)), want)
    program = trace_kernel(source, x, grid=(2, 4))
    assert not program.loops
    assert len(program.outputs) == 1


def test_a_plain_function_may_launch_the_kernel(run_kernel: Any, random: Any) -> None:
    x = random(128, 32)
    source = SPMD.format(body=LOAD) + "\ndef launch(x):\n    return kernel[nl.spmd_dim(1, nl.nc(2)), 4](x)\n"
    np.testing.assert_array_equal(run_kernel(source, x, entry="launch"), x)


def test_a_grid_axis_that_is_not_there_is_refused(trace_kernel: Any, random: Any) -> None:
    with pytest.raises(LegalityError, match="1 axes"):
        trace_kernel(SPMD.format(body=LOAD), random(128, 32), grid=(2,))


def test_an_output_in_the_same_place_for_all_programs_is_refused(trace_kernel: Any, random: Any) -> None:
    source = SPMD.format(body=LOAD).replace("nl.ds(i * 64, 64), nl.ds(j * 8, 8)], tile", "0:64, nl.ds(j * 8, 8)], tile")
    with pytest.raises(LegalityError, match="missing indices"):
        trace_kernel(source, random(128, 32), grid=(2, 4))


def test_outputs_given_as_arguments_are_the_result(run_kernel: Any, random: Any) -> None:
    x = random(64, 8)
    got = run_kernel(
        """
@nki.jit
def kernel(x, doubled, halved):
    tile = nl.load(x)
    nl.store(halved, nl.multiply(tile, 0.5))
    nl.store(doubled, nl.multiply(tile, 2.0))
""",
        x,
        np.zeros_like(x),
        np.zeros_like(x),
    )
    np.testing.assert_array_equal(got[0], x * 2)
    np.testing.assert_array_equal(got[1], x / 2)


def test_several_results_come_in_the_order_they_are_returned(run_kernel: Any, random: Any) -> None:
    x = random(64, 8)
    first, second = run_kernel(
        """
@nki.jit
def kernel(x):
    a = nl.ndarray((64, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    b = nl.ndarray((64, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(a, nl.negative(tile))
    nl.store(b, nl.sum(tile, axis=1))
    return b, a
""",
        x,
    )
    np.testing.assert_allclose(first, x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(second, -x)


@pytest.mark.parametrize(
    ("ending", "part"),
    [
        ("pass", "has no result"),
        ("return nl.load(x)", "nl.shared_hbm"),
        ("return 3", "nl.shared_hbm"),
        ("return out[0:8]", "part of"),
    ],
)
def test_a_kernel_must_return_whole_tensors_in_hbm(trace_kernel: Any, random: Any, ending: str, part: str) -> None:
    source = kernel(f"nl.store(out, nl.load(x))\n{ending}").replace("    return out\n", "")
    with pytest.raises(LegalityError) as caught:
        trace_kernel(source, random(128, 16))
    assert caught.value.rule == "kernel_result"
    assert part in str(caught.value)


def test_an_argument_written_beside_the_result_is_noted(trace_kernel: Any, random: Any) -> None:
    program = trace_kernel(kernel("nl.store(x, nl.multiply(nl.load(x), 2.0))\nnl.store(out, nl.load(x))"), random(8, 8))
    assert any("writes its argument 'x'" in notice.text for notice in program.notices)
    assert program.buffers[program.inputs[0]].written_input


def test_nested_kernels_are_traced_in_place(run_kernel: Any, random: Any) -> None:
    x = random(64, 8)
    source = """
@nki.jit(mode="trace")
def twice(tile, out):
    out[...] = nl.multiply(tile, 2.0)

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    twice(nl.load(x), out=t)
    nl.store(out, t)
    return out
"""
    np.testing.assert_array_equal(run_kernel(source, x), x * 2)


def test_loop_variables_may_be_operands(run_kernel: Any, random: Any) -> None:
    x = random(128, 16)
    body = """
for i in nl.affine_range(4):
    nl.store(out[nl.ds(i * 32, 32)], nl.add(nl.load(x[nl.ds(i * 32, 32)]), 10 * i + 1))
"""
    want = x + np.repeat(np.arange(4, dtype=np.float32) * 10 + 1, 32)[:, None]
    np.testing.assert_array_equal(run_kernel(kernel(body), x), want)


def test_absurd_loops_and_grids_are_limits(trace_kernel: Any, random: Any) -> None:
    with pytest.raises(LimitExceeded) as caught:
        trace_kernel(kernel("for i in nl.affine_range(10**12):\n    nl.load(x)"), random(8, 8))
    assert caught.value.rule == "trip_limit"
    source = (
        SPMD.format(body=f"{LOAD}\n    tile = nl.add(tile, 1.0) if i == 1 else tile")
        .replace("== 8", ">= 8")
        .replace("== 4", ">= 4")
    )
    with pytest.raises(LimitExceeded) as caught:
        trace_kernel(source, random(128 * 1024, 64), grid=(1024, 8))
    assert caught.value.rule == "grid_limit"


def test_an_exception_of_the_kernel_is_a_crash_with_its_line(trace_kernel: Any, random: Any) -> None:
    with pytest.raises(KernelCrash) as caught:
        trace_kernel(kernel("assert x.shape == (1, 2), 'wrong shape'"), random(8, 8))
    assert caught.value.line == 11
    assert "AssertionError: wrong shape" in str(caught.value)


def test_a_tile_exchange_between_programs_is_unsupported_by_name(trace_kernel: Any, random: Any) -> None:
    with pytest.raises(UnsupportedCall, match="all_reduce is not simulated"):
        trace_kernel(kernel("nl.all_reduce(nl.load(x), np.add, program_axes=[0])"), random(8, 8))
