"""The legacy compiler of later chips divides an affine loop at its narrow instructions."""

from dataclasses import replace

import numpy as np
import pytest

from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.ir.program import Loop, Program
from acceld.nki.timing.loop_fusion import divide
from acceld.nki.timing.parameters import LEGACY_LATER, default_params
from acceld.nki.timing.timeline import timeline

RESERVED = LEGACY_LATER.sbuf_reserved_bytes
SOFTMAX = """\
from neuronxcc import nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((TILES * 128, WIDTH), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.KIND(TILES):
        row = nl.load(x[i * 128 : (i + 1) * 128, :])
        parts = nl.ndarray((nl.par_dim(128), 2), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(2):
            parts[:, j] = nisa.tensor_reduce(op=nl.max, data=row[:, nl.ds(j * (WIDTH // 2), WIDTH // 2)], axis=1)
        least = nisa.tensor_reduce(op=nl.max, data=parts, axis=1, negate=True)
        power = nisa.activation(op=nl.exp, data=row, bias=least, scale=1.0)
        total = nisa.tensor_reduce(op=nl.add, data=power, axis=1)
        share = nisa.reciprocal(data=total)
        nl.store(out[i * 128 : (i + 1) * 128, :], nisa.tensor_scalar(data=power, op0=nl.multiply, operand0=share))
    return out
"""
"""A softmax in rows of tiles, whose maximum of partial maxima and whose reciprocal are narrow."""
PRODUCT = """\
from neuronxcc import nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((TILES * 128, BANKS * 512), dtype=nl.float32, buffer=nl.shared_hbm)
    weights = nl.load(x[0:128, 0:512])
    for i in nl.affine_range(TILES):
        made = nl.ndarray((nl.par_dim(128), BANKS * 512), dtype=nl.float32, buffer=nl.sbuf)
        parts = nl.ndarray((nl.par_dim(128), BANKS), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(BANKS):
            sums = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
            sums[...] = nisa.nc_matmul(stationary=weights[:, 0:128], moving=weights)
            made[:, nl.ds(j * 512, 512)] = nisa.tensor_copy(sums)
            parts[:, j] = nisa.tensor_reduce(op=nl.max, data=made[:, nl.ds(j * 512, 512)], axis=1)
        most = nisa.tensor_reduce(op=nl.max, data=parts, axis=1)
        nl.store(out[i * 128 : (i + 1) * 128, :], nisa.tensor_scalar(data=made, op0=nl.multiply, operand0=most))
    return out
"""
"""Products in some banks of PSUM for each row of tiles, and a narrow maximum of them."""


def softmax(tiles: int = 8, width: int = 512, kind: str = "affine_range") -> Program:
    text = SOFTMAX.replace("TILES", str(tiles)).replace("WIDTH", str(width)).replace("KIND", kind)
    return trace(text, [TensorSpec((tiles * 128, width), "float32")], api="nki_legacy", chip="trn2")


def product(tiles: int, banks: int) -> Program:
    text = PRODUCT.replace("TILES", str(tiles)).replace("BANKS", str(banks))
    return trace(text, [TensorSpec((tiles * 128, 512), "float32")], api="nki_legacy", chip="trn2")


def groups(program: Program) -> list[tuple[int, list[int]]]:
    """Return the number of groups of each outermost loop, and the iterations of the loops inside of it."""
    return [
        (node.trips, [part.trips for part in node.body if isinstance(part, Loop)])
        for node in divide(program, RESERVED).body
        if isinstance(node, Loop)
    ]


def test_work_before_narrow_instructions_is_done_for_a_group_of_iterations_first() -> None:
    assert groups(softmax()) == [(1, [8, 8, 8, 8, 8])]


def test_a_divided_program_has_the_same_instructions_and_results() -> None:
    program = softmax(4)
    divided = divide(program, RESERVED)
    assert [one.op for one, _ in divided.walk()] == [one.op for one, _ in program.walk()]
    assert {loop for buffer in divided.buffers for loop in buffer.scope} <= set(divided.loops)
    data = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    (before,), (after,) = (execute(one, [data], ExecuteOptions()) for one in (program, divided))
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(("width", "group"), [(4096, 4), (8192, 2), (16384, 1)])
def test_a_group_fits_sbuf(width: int, group: int) -> None:
    ((trips, parts),) = groups(softmax(8, width))
    assert trips * group == 8 and set(parts) <= {group, 2}


@pytest.mark.parametrize(("banks", "group"), [(1, 8), (2, 4), (4, 2), (8, 1)])
def test_results_that_lead_to_a_narrow_instruction_fit_psum(banks: int, group: int) -> None:
    ((trips, _),) = groups(product(8, banks))
    assert trips * group == 8


def test_loops_whose_iterations_depend_on_each_other_stay_whole() -> None:
    program = softmax(kind="sequential_range")
    assert divide(program, RESERVED) is program


def test_a_divided_loop_waits_for_its_narrow_instructions() -> None:
    whole = replace(LEGACY_LATER, divide_loops=False)
    program = softmax(8, 2048)
    apart, together = timeline(program).latency_us, timeline(program, whole).latency_us
    assert apart is not None and together is not None and apart > 1.05 * together


def test_only_the_compiler_of_later_chips_divides_loops() -> None:
    assert default_params("nki_legacy", "trn2").divide_loops
    assert not default_params("nki_legacy", "trn1").divide_loops and not default_params("nki", "trn2").divide_loops
