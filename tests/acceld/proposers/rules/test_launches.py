"""Kernels whose programs share the work: rules know the number of programs, and every rewrite is right on two cores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from math import prod

import numpy as np
import pytest

from acceld.model import Kernel
from acceld.nki.errors import KernelCrash, LegalityError
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.source.launches import Launch
from acceld.nki.source.normal import normalized
from acceld.nki.source.reading import KernelModule
from acceld.nki.verify.verifier import verify
from acceld.proposers.rules.proposer import moves
from tests.acceld.proposers.rules.kernels import Array, arrays, current, legacy

SHAPES = ((1024, 512), (1, 512))
SPLIT = current(
    "x, w",
    """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    programs = nl.num_programs(axes=0)
    program = nl.program_id(axis=0)
    rows = x.shape[0] // programs
    for i in range(rows // 128):
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[program * rows + i * 128:program * rows + (i + 1) * 128, :])
        row = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=w.ap(pattern=[[0, 128], [1, 512]], offset=0))
        y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=y, data1=t, data2=row, op=nl.multiply)
        nisa.dma_copy(dst=out[program * rows + i * 128:program * rows + (i + 1) * 128, :], src=y)
    return out
""",
)
ALTERNATE = SPLIT.replace(
    "program * rows + i * 128:program * rows + (i + 1) * 128",
    "(i * programs + program) * 128:(i * programs + program + 1) * 128",
)
GUARDED = SPLIT.replace("nl.num_programs(axes=0)", "nl.num_programs(axes=0) if nl.program_ndim() != 0 else 1").replace(
    "nl.program_id(axis=0)", "nl.program_id(axis=0) if nl.program_ndim() != 0 else 0"
)
EXCHANGE = current(
    "x, w",
    """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    shared = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, program = x.shape[0] // 2, nl.program_id(axis=0)
    for i in range(rows // 128):
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[program * rows + i * 128:program * rows + (i + 1) * 128, :])
        y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=y, data=t, op=nl.exp)
        nisa.dma_copy(dst=shared[program * rows + i * 128:program * rows + (i + 1) * 128, :], src=y)
    nisa.core_barrier(shared, (0, 1))
    other = 1 - program
    for i in range(rows // 128):
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=shared[other * rows + i * 128:other * rows + (i + 1) * 128, :])
        y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y, data=t, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[program * rows + i * 128:program * rows + (i + 1) * 128, :], src=y)
    return out
""",
)
OWN_PART = EXCHANGE.replace("other = 1 - program", "other = program")
KERNELS = {
    "rows by program": SPLIT,
    "tiles in turn": ALTERNATE,
    "also without a grid": GUARDED,
    "each reads what the other wrote": EXCHANGE,
    "each reads what it wrote": OWN_PART,
}


def on_two_cores(source: str, given: list[Array]) -> Array:
    """Return the result of a kernel on two cores; fail if the kernel is not legal there."""
    program = trace(source, [TensorSpec(one.shape, "float32") for one in given], api="nki", chip="trn2", lnc=2)
    assert verify(program) == ()
    return execute(program, given)[0]


@pytest.mark.parametrize("name", KERNELS)
def test_every_rewrite_of_a_kernel_for_two_cores_leaves_the_results_as_they_are(name: str) -> None:
    given = arrays(*SHAPES)
    expected = on_two_cores(KERNELS[name], given)
    found = moves(KERNELS[name], Launch("nki", SHAPES, ("float32",) * 2, programs=(2,)))
    made = {move.step: text for move in found if (text := move.apply()) is not None}
    assert made
    for step, text in made.items():
        np.testing.assert_allclose(on_two_cores(text, given), expected, rtol=2e-5, err_msg=step)


@pytest.mark.parametrize("source", [SPLIT, ALTERNATE, GUARDED])
def test_the_launch_gives_the_number_of_iterations(source: str) -> None:
    def loop(programs: tuple[int, ...] | None) -> tuple[str, int | None]:
        (found,) = KernelModule(normalized(source), Launch("nki", SHAPES, programs=programs)).loops
        return found.kind, found.trips

    assert loop((2,)) == ("affine_range", 4) and loop(()) == ("affine_range", 8)
    assert loop(None) == ("range", None)


@pytest.mark.parametrize(("write", "api", "programs"), [(current, "nki", (2,)), (legacy, "nki_legacy", ())])
def test_rules_count_the_programs_that_the_front_end_launches(
    write: Callable[[str, str], str], api: str, programs: tuple[int, ...]
) -> None:
    assert Kernel("", api, lnc=2).programs == programs

    def launched(count: int) -> None:
        source = write("x", f"    assert nl.num_programs(axes=0) == {count}\n    return x")
        trace(source, [TensorSpec((2, 8), "float32")], api=api, chip="trn2", lnc=2)

    with pytest.raises(KernelCrash, match="AssertionError"):
        launched(prod(programs) + 1)
    with contextlib.suppress(LegalityError):  # a kernel may not return its argument, which is found after the assertion
        launched(prod(programs))


def test_a_load_by_a_pattern_that_is_the_same_in_every_iteration_moves_before_the_loop() -> None:
    found = {
        move.rule: move.apply() or "" for move in moves(SPLIT, Launch("nki", SHAPES, ("float32",) * 2, programs=(2,)))
    }
    head, _, loop = found["hoist_loads"].partition("for i in")
    assert "w.ap(pattern=[[0, 128], [1, 512]], offset=0)" in head and "w.ap" not in loop
    moving = SPLIT.replace("[1, 512]], offset=0", "[1, 512]], offset=0 * i")
    assert not any(move.rule == "hoist_loads" for move in moves(moving, Launch("nki", SHAPES, programs=(2,))))


def test_a_barrier_keeps_the_order_of_what_the_cores_exchange() -> None:
    kernel = KernelModule(normalized(EXCHANGE), Launch("nki", SHAPES, programs=(2,)))
    assert [loop.kind for loop in kernel.loops] == ["affine_range", "affine_range"]
    (barrier,) = (one for one in kernel.statements if one.op == "core_barrier")
    assert [access.name for access in barrier.results] == ["shared"] and "shared" not in kernel.ambiguous


def _loops(body: str, programs: tuple[int, ...]) -> list[str]:
    return [
        loop.kind
        for loop in KernelModule(normalized(current("x", body)), Launch("nki", SHAPES[:1], programs=programs)).loops
    ]


SHIFTED = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    half = 512 * nl.program_id(axis=0)
    for i in range(2):
        p = nl.program_id(axis=0) if TEST else 0
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[128 * i:128 * i + 128, :])
        nisa.dma_copy(dst=out[128 * i + 128 * p:128 * i + 128 * p + 128, :], src=t)
    return out
"""


@pytest.mark.parametrize(
    ("test", "kind"),
    [("nl.program_ndim() != 0", "affine_range"), ("half >= 0", "affine_range"), ("i < 1", "range"), ("x[i]", "range")],
)
def test_a_program_number_that_depends_on_the_iteration_is_not_fixed(test: str, kind: str) -> None:
    assert _loops(SHIFTED.replace("TEST", test), (2,)) == [kind]


@pytest.mark.parametrize(
    "value", ["i if nl.num_programs(axes=0) == 1 else 0", "min(i, 3)", "abs(i)", "3 * i // 3", "+i"]
)
def test_a_number_that_a_loop_leaves_behind_does_not_move_with_the_next_loop(value: str) -> None:
    body = f"""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(4):
        n = {value}
    for i in range(4):
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[128 * i:128 * i + 128, :])
        nisa.dma_copy(dst=out[128 * n:128 * n + 128, :], src=t)
    return out
"""
    assert _loops(body, ())[1] == "range"


def test_a_variable_of_two_loops_inside_each_other_proves_nothing_about_the_outer_loop() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(4):
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[128 * i:128 * i + 128, :])
        for i in range(4):
            nisa.dma_copy(dst=out[128 * i:128 * i + 128, :], src=t)
    return out
"""
    assert _loops(body, ())[0] == "range"
    assert (
        _loops(body.replace("for i in range(4):\n            nisa", "for j in range(1):\n            nisa"), ())[0]
        == "affine_range"
    )


def test_a_tile_that_says_where_a_transfer_reads_or_writes_is_read() -> None:
    body = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.ndarray((128, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(dst=rows, pattern=[[1, 1]], offset=0, channel_multiplier=1)
    t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x.ap(pattern=[[512, 128], [1, 512]], offset=0, vector_offset=rows, indirect_dim=0))
    nisa.dma_copy(dst=out.ap(pattern=[[512, 128], [1, 512]], offset=0, vector_offset=rows, indirect_dim=0), src=t)
    nisa.dma_copy(dst=out[rows[0:128, 0:1], 0:512], src=x[rows[0:128, 0:1], 0:512])
    return out
"""
    kernel = KernelModule(normalized(current("x", body)), Launch("nki", SHAPES[:1]))
    assert [one.op for one in kernel.readers("rows")] == ["dma_copy"] * 3


@pytest.mark.parametrize("used", ["last", "i"])
def test_a_loop_whose_last_number_is_used_behind_the_loop_is_not_parallel(used: str) -> None:
    source = current(
        "x, w",
        f"""
    out = nl.ndarray((640, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(4):
        t = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[i * 128:i * 128 + 128, :])
        nisa.dma_copy(dst=out[i * 128:i * 128 + 128, :], src=t)
        last = min(i, 2)
    y = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=y, src=x[{used} * 128:{used} * 128 + 128, :])
    nisa.dma_copy(dst=out[512:640, :], src=y)
    return out
""",
    )
    (loop,) = KernelModule(normalized(source), Launch("nki", SHAPES)).loops
    assert loop.kind == "range"
    alone = source.replace(f"dst=y, src=x[{used} * 128:{used} * 128 + 128", "dst=y, src=x[0:128")
    (loop,) = KernelModule(normalized(alone), Launch("nki", SHAPES)).loops
    assert loop.kind == "affine_range"
