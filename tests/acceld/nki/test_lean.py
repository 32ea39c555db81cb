"""What the performance model leaves out is named, priced and tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.timing.timeline import lean, timeline

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


def test_instructions_without_a_use_are_named_priced_and_can_be_left_out() -> None:
    arguments = [TensorSpec((256, 512), "float32")]
    plain = timeline(trace(KERNEL.format("pass"), arguments))
    program = trace(KERNEL.format(IDLE), arguments)
    timed = timeline(program)
    assert plain.dropped == () and plain.with_dropped_us is None and "dropped" not in plain.to_json()
    assert len(timed.dropped) == 2 and timed.latency_us == plain.latency_us
    assert timed.with_dropped_us is not None and timed.latency_us is not None
    assert timed.with_dropped_us > timed.latency_us
    assert "2 instructions whose results reach no output are left out" in timed.warnings[0]
    inputs = [np.linspace(-1, 1, 256 * 512, dtype=np.float32).reshape(256, 512)]
    whole = execute(program, inputs, ExecuteOptions())
    np.testing.assert_array_equal(execute(lean(program, timed.dropped), inputs, ExecuteOptions()), whole)
    needed = next(number for number in range(5) if number not in timed.dropped and number > 0)
    without = execute(lean(program, [*timed.dropped, needed]), inputs, ExecuteOptions())
    assert not np.array_equal(without, whole), "leaving out what is needed shows in the outputs"


def test_an_honest_kernel_gives_every_bit_without_what_is_left_out() -> None:
    source = Path("tests/adversarial/H32_compensated_sum.py").read_text(encoding="utf-8")
    program = trace(source, [TensorSpec((256, 512), "float32")])
    dropped = timeline(program).dropped
    inputs = [np.random.default_rng(5).normal(size=(256, 512)).astype(np.float32)]
    assert dropped, "the rounding error of the last step goes nowhere"
    np.testing.assert_array_equal(
        execute(lean(program, dropped), inputs, ExecuteOptions()), execute(program, inputs, ExecuteOptions())
    )
