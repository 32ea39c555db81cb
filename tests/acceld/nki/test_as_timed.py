"""Work that the performance model leaves out or merges is named, priced and tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from acceld.evaluate.correctness import distributions
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.program import Program
from acceld.nki.ir.turns import LEFT_OUT, OWN, value_of
from acceld.nki.timing import expansion
from acceld.nki.timing.timeline import as_timed, timeline
from acceld.workloads import kernel_inputs, load_workload

Array = np.ndarray

KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        done = nisa.activation(op=nl.tanh, data=tile)
        {}
        nl.store(out[128 * row + p, f], value=done)
    return out
"""
IDLE = "idle = nisa.activation(op=nl.exp, data=nisa.activation(op=nl.square, data=tile))"
ARGUMENTS = [TensorSpec((256, 512), "float32")]
INPUTS = [np.random.default_rng(5).normal(size=(256, 512)).astype(np.float32)]


def run_as_timed(program: Program) -> Array:
    timed, turns = as_timed(program)
    assert turns, "something is left out or merged"
    (found,) = execute(timed, INPUTS, ExecuteOptions(turns=turns))
    return found


def run(program: Program) -> Array:
    (found,) = execute(program, INPUTS, ExecuteOptions())
    return found


def test_instructions_without_a_use_are_named_priced_and_can_be_left_out() -> None:
    plain = timeline(trace(KERNEL.format("pass"), ARGUMENTS))
    program = trace(KERNEL.format(IDLE), ARGUMENTS)
    timed = timeline(program)
    assert plain.dropped == () and plain.with_dropped_us is None and "dropped" not in plain.to_json()
    assert len(timed.dropped) == 2 and timed.latency_us == plain.latency_us
    assert timed.with_dropped_us is not None and timed.latency_us is not None
    assert timed.with_dropped_us > timed.latency_us
    assert "2 instructions whose results reach no output are left out" in timed.warnings[0]
    same, turns = as_timed(program)
    assert turns == {number: [LEFT_OUT, LEFT_OUT] for number in timed.dropped}
    np.testing.assert_array_equal(run_as_timed(program), run(program))
    needed = next(number for number in range(5) if number not in timed.dropped and number > 0)
    more = {**turns, needed: [OWN, LEFT_OUT]}  # memory that nothing wrote could hold the values of the earlier run
    (without,) = execute(same, INPUTS, ExecuteOptions(turns=more))
    assert not np.array_equal(without, run(program)), "leaving out what is needed shows in the outputs"


def test_an_honest_kernel_gives_every_bit_without_what_is_left_out() -> None:
    source = Path("tests/adversarial/H32_compensated_sum.py").read_text(encoding="utf-8")
    program = trace(source, ARGUMENTS)
    assert timeline(program).dropped, "the rounding error of the last step goes nowhere"
    np.testing.assert_array_equal(run_as_timed(program), run(program))


def test_iterations_whose_results_are_overwritten_are_left_out_one_by_one() -> None:
    again = "\n        ".join(f"done[p, f] = nisa.activation(op=nl.{name}, data=tile)" for name in ("exp", "sin"))
    program = trace(KERNEL.format(again), ARGUMENTS)
    _, turns = as_timed(program)
    assert sorted(turn for one in turns.values() for turn in one) == [LEFT_OUT] * 4
    np.testing.assert_array_equal(run_as_timed(program), run(program))


MERGED = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.load(x[128 * row + p, f])
        shared = nl.load(x[p, f])
        curve = nisa.activation(op=nl.tanh, data=shared)
        total = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
        MORE
        nl.store(out[128 * row + p, f], value=nl.add(tile, curve))
    return out
"""
SUM = """nisa.activation(op=nl.exp, data=shared, reduce_op=nl.add, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        curve = nisa.tensor_scalar(data=curve, op0=nl.add, operand0=total)"""
MASK = "curve[p, f] = nisa.activation(op=nl.exp, data=shared, mask=(f < 300))"
CORNER = "curve[p, f] = nisa.activation(op=nl.exp, data=shared, mask=(p + f < 300))"


@pytest.mark.parametrize("more", ["pass", SUM, MASK, CORNER])
def test_what_is_merged_is_done_once_and_written_where_it_is_taken(more: str) -> None:
    program = trace(MERGED.replace("MORE", more), ARGUMENTS)
    _, turns = as_timed(program)
    taken = [value_of(turn) for one in turns.values() for turn in one if turn >= 0]
    assert {value for value, takes in taken if takes} == {value for value, takes in taken if not takes}
    assert len(taken) >= 4, "the load and the function of the second iteration are those of the first"
    np.testing.assert_array_equal(run_as_timed(program), run(program))


def test_work_that_is_merged_although_it_differs_shows_in_the_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    source = MERGED.replace("MORE", "curve[p, f] = nisa.activation(op=nl.exp, data=shared, scale=1.0 + row)")
    unrolled = source.replace("nl.affine_range(2)", "nl.static_range(2)")
    program = trace(unrolled, ARGUMENTS)
    np.testing.assert_array_equal(run_as_timed(program), run(program))
    monkeypatch.setattr(expansion, "_layout", lambda *_: None)  # the scale is an operand, told apart by its layout
    monkeypatch.setattr(expansion, "repr", lambda _: "", raising=False)
    assert not np.array_equal(run_as_timed(program), run(program))


@pytest.mark.slow  # test_fuzzed_prices.py compares the outputs of small programs
@pytest.mark.parametrize("name", ["adamw", "mamba"])
def test_public_baselines_give_every_bit_as_timed_and_finite_numbers_on_inputs_their_workload_draws(
    name: str,
) -> None:
    workload = load_workload(Path("workloads/nkibench") / name)
    given = [
        np.asarray(one) for one in kernel_inputs(workload, distributions.inputs_of(workload, 5, distributions.OWN))
    ]
    specs = [TensorSpec(one.shape, str(one.dtype)) for one in given]
    program = trace(workload.baselines["nki_legacy"].read_text(encoding="utf-8"), specs)
    timed, turns = as_timed(program)
    assert bool(turns) == (name == "mamba"), "steps of a scan load what earlier ones loaded"
    random = np.random.default_rng(5)
    # Second moments and step sizes are never negative: of normal ones a root and a scan that grows make no numbers.
    impossible = [random.normal(size=one.shape).astype(one.dtype) for one in given]
    for inputs, finite in ((given, True), (impossible, False)):
        with np.errstate(all="ignore"):
            written = execute(program, inputs, ExecuteOptions())
            left = execute(timed, inputs, ExecuteOptions(turns=turns))
        assert all(np.isfinite(one).all() for one in written) == finite
        for one, other in zip(written, left, strict=True):
            np.testing.assert_array_equal(one, other)
