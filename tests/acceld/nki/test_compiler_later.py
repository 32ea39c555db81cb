"""The legacy compiler on chips after trn1: loops whose tiles lie side by side, activations that also reduce."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from acceld.nki.errors import LegalityError
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.program import Engine, Program
from acceld.nki.timing.parameters import LEGACY_LATER
from acceld.nki.timing.sbuf_allocation import INDEX, Machine
from acceld.nki.timing.timeline import Timeline, timeline

HEAD = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w):
    out = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f, wide = nl.arange(128)[:, None], nl.arange(128)[None, :], nl.arange(1024)[None, :]
    rows = nl.load(x[p, wide])
    eye = nl.load(w[p, f])
"""
TURNED = """
    bank = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(8):
        turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        turned[p, f] = nisa.nc_matmul(rows[p, 128 * j + f], eye[p, f], is_transpose=True)
        bank[p, {place} + f] = nl.copy(turned[p, f], dtype=nl.float32)
    nl.store(out[p, wide], value=bank[p, wide])
    return out
"""
USED = """
    bank = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(8):
        turned = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        turned[p, f] = nisa.nc_matmul(rows[p, 128 * j + f], eye[p, f], is_transpose=True)
        alone = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        alone[p, f] = nl.copy(turned[p, f], dtype=nl.float32)
        product = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        product[p, f] = nisa.nc_matmul(alone[p, f], eye[p, f])
        bank[p, 128 * j + f] = nl.copy(product[p, f], dtype=nl.float32)
    nl.store(out[p, wide], value=bank[p, wide])
    return out
"""
FUSED = """
    scaled = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
    scaled[p, wide] = nisa.tensor_scalar(rows[p, wide], np.multiply, 0.5)
    sums = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    powers = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
    powers[p, wide] = nisa.activation(
        op=nl.exp, data=scaled[p, wide], reduce_op=np.add, reduce_res=sums[p, 0], reduce_cmd=nisa.reduce_cmd.reset_reduce
    )
    shares = nisa.tensor_scalar(powers[p, wide], np.multiply, sums[p, 0])
    nl.store(out[p, wide], value=shares)
    return out
"""
APART = FUSED.replace(", reduce_op=np.add, reduce_res=sums[p, 0], reduce_cmd=nisa.reduce_cmd.reset_reduce", "").replace(
    "    shares =",
    "    sums[p, 0] = nisa.tensor_reduce(np.add, powers[p, wide], axis=[1])\n    shares =",
)
ARGUMENTS = [TensorSpec((128, 1024), "float32"), TensorSpec((128, 128), "float32")]


def traced(body: str, chip: str = "trn2") -> Program:
    return trace(HEAD + body, ARGUMENTS, chip=chip)


def machine(line: Timeline) -> Machine:
    assert line.machine is not None
    return line.machine


def of_kind(line: Timeline, kind: str) -> list[float]:
    """Return times of a kind of operation."""
    made = machine(line)
    return [us for us, here in zip(made.busy_us, made.kind, strict=True) if here == kind]


LATER = replace(LEGACY_LATER, alternates_copies=False, scalar_overhead_cycles=90)
"""Copies all on the scalar engine, with an overhead that tells one from many."""


def test_copies_of_transposes_side_by_side_are_one_copy_of_a_bank() -> None:
    beside, apart = (timeline(traced(TURNED.format(place=place)), LATER) for place in ("128 * j", "128 * (7 - j)"))
    assert sum(of_kind(beside, "copy")) == pytest.approx(2 * (512 + 90) / 1200)
    assert sum(of_kind(apart, "copy")) == pytest.approx(8 * (128 + 90) / 1200)


def test_a_copy_that_a_product_of_the_same_loop_reads_stays_one_of_each_iteration() -> None:
    made = machine(timeline(traced(USED), LATER))
    each: dict[int, list[float]] = {}
    for us, line, kind in zip(made.busy_us, made.line, made.kind, strict=True):
        if kind == "copy":
            each.setdefault(line, []).append(us)
    first, second = (each[line] for line in sorted(each))
    assert first == pytest.approx([(128 + 90) / 1200] * 8), "a product's stationary operand can not grow"
    assert sum(second) == pytest.approx(2 * (512 + 90) / 1200)


def test_on_trn1_every_copy_is_made_alone() -> None:
    old = timeline(traced(TURNED.format(place="128 * j"), "trn1"))
    assert of_kind(old, "copy") == pytest.approx([(128 + 90) / 1400] * 8)


def test_an_activation_that_also_reduces_makes_what_leads_to_it_twice() -> None:
    fused, apart = timeline(traced(FUSED)), timeline(traced(APART))
    assert fused.hbm_read_bytes == 2 * apart.hbm_read_bytes
    assert fused.hbm_write_bytes == apart.hbm_write_bytes
    assert len(of_kind(fused, "activation")) == 2 and len(of_kind(apart, "activation")) == 1
    assert fused.instructions["scalar"] == timeline(traced(FUSED, "trn1")).instructions["scalar"], "as written: once"


def test_a_tile_and_sums_of_which_one_is_not_used_stay_one_instruction() -> None:
    unused = FUSED.replace("np.multiply, sums[p, 0])", "np.multiply, 2.0)")
    assert machine(timeline(traced(unused))).kind.count("activation") == 1


def test_what_is_dropped_beside_a_doubled_activation_has_the_number_it_has_as_written() -> None:
    idle = FUSED.replace("    shares =", "    idle = nisa.activation(op=nl.square, data=rows[p, wide])\n    shares =")
    program = traced(idle)
    timed = timeline(program)
    nodes = [node for node, _ in program.walk()]
    assert [(nodes[number].op, nodes[number].attr("func")) for number in timed.dropped] == [
        ("dma_copy", None), ("activation", "square"),
    ]  # fmt: skip


def test_a_float32_transpose_takes_three_passes_and_a_product_four() -> None:
    made = machine(timeline(traced(USED)))
    tensor = [us for us, engine in zip(made.busy_us, made.engine, strict=True) if engine == INDEX[Engine.TENSOR]]
    assert sorted({round(us * 2400) for us in tensor}) == [3 * (128 + 8), 4 * (128 + 8)]


def test_a_result_for_another_part_of_the_tile_it_is_made_from_is_written_in_place() -> None:
    body = """
    both = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
    half = nl.arange(64)[:, None]
    both[half, wide] = nl.load(x[half, wide])
    both[64 + half, wide] = nisa.activation(op=nl.copy, data=both[half, wide], scale=2.0)
    nl.store(out[p, wide], value=both[p, wide])
    return out
"""
    program = traced(body)
    assert [node.op for node, _ in program.walk()].count("copy") == 0
    inputs = [np.linspace(-1, 1, 128 * n, dtype=np.float32).reshape(128, n) for n in (1024, 128)]
    found = execute(program, inputs, ExecuteOptions())
    np.testing.assert_array_equal(found[0][64:], 2 * inputs[0][:64])
    overlapping = body.replace("both[64 + half, wide] =", "both[32 + half, wide] =").replace(
        "both[half, wide] = nl.load(x[half, wide])", "both[p, wide] = nl.load(x[p, wide])"
    )
    with pytest.raises(LegalityError, match="at other positions than it writes it") as caught:
        traced(overlapping)
    assert caught.value.rule == "overlap"


def test_merged_iterations_move_and_compute_what_is_written() -> None:
    streamed = """
    for j in nl.affine_range(8):
        piece = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        piece[p, f] = nl.load(x[p, 128 * j + f])
        done = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        done[p, f] = nisa.activation(op=nl.exp, data=piece[p, f])
        nl.store(out[p, 128 * j + f], value=done[p, f])
    return out
"""
    merged, alone = (timeline(traced(streamed), replace(LEGACY_LATER, merges_beside=on)) for on in (True, False))
    assert (merged.hbm_read_bytes, merged.hbm_write_bytes) == (alone.hbm_read_bytes, alone.hbm_write_bytes)
    assert merged.dma_descriptors == alone.dma_descriptors
    assert merged.engines["dma"] < alone.engines["dma"], "rows of four iterations follow each other"
