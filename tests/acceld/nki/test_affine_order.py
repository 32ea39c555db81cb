"""Proofs that the order of affine iterations changes only the rounding of sums."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from acceld.evaluate.simulated.simulation import check_order, run
from acceld.nki.ir.affine_order import first_iterations, order_changes_only_sums
from acceld.nki.ir.program import Buffer, Loop, Pattern, Program
from tests.acceld.nki.programs import Kernel, Run, at, var

STEPS = 6
MOST_BYTES = 1 << 30


def _tile(kernel: Kernel, x: Buffer, step: Loop) -> Buffer:
    """Return a tile of four rows, loaded from the rows of an iteration of ``step``."""
    tile = kernel.sbuf((4, 8))
    kernel.op("dma_copy", at(tile), [at(x, Run(var(step, 4), 4), Run(0, 8))])
    return tile


def _sums(mode: str, drains: bool = False) -> Program:
    """Return a program that adds up products over a loop; with ``drains``, the loop also reads the sum so far."""
    kernel = Kernel()
    x, out = kernel.input((4 * STEPS, 8)), kernel.output((8, 8))
    total, copy = kernel.psum((8, 8)), kernel.sbuf((8, 8))
    if mode == "yes":
        kernel.op("memset", at(total), [0.0])
    with kernel.loop(STEPS) as step:
        tile = _tile(kernel, x, step)
        kernel.op("matmul", at(total), [at(tile), at(tile)], accumulate=mode)
        if drains:
            kernel.op("copy", at(copy), [at(total)])
    if not drains:
        kernel.op("copy", at(copy), [at(total)])
    kernel.store(out, copy)
    return kernel.finish()


def _rows(offset: int, height: int = 4, stride: int = 4) -> Program:
    """Return a program that writes ``height`` rows in each iteration, and reads rows ``offset`` further."""
    kernel = Kernel()
    x, out = kernel.input((4 * STEPS, 8)), kernel.output((64, 8))
    held = kernel.sbuf((64, 8))
    kernel.op("memset", at(held), [0.0])
    with kernel.loop(STEPS) as step:
        tile = _tile(kernel, x, step)
        kernel.op("copy", at(held, Run(var(step, stride), height), Run(0, 8)), [at(tile, Run(0, height), Run(0, 8))])
        more = kernel.sbuf((4, 8))
        kernel.op(
            "copy", at(more, Run(0, height), Run(0, 8)), [at(held, Run(var(step, stride, offset), height), Run(0, 8))]
        )
        kernel.op(
            "dma_copy", at(held, Run(var(step, stride), height), Run(0, 8)), [at(more, Run(0, height), Run(0, 8))]
        )
    kernel.store(out, held)
    return kernel.finish()


def _in_place(op: str = "add", other: str = "tile", dtype: str = "float32") -> Program:
    """Return a program that combines a tile with each iteration's tile, or with something that depends on itself."""
    kernel = Kernel()
    x, out = kernel.input((4 * STEPS, 8)), kernel.output((4, 8))
    total = kernel.sbuf((4, 8), dtype)
    kernel.op("memset", at(total), [0.0])
    with kernel.loop(STEPS) as step:
        tile = _tile(kernel, x, step)
        if other == "copy":
            kernel.op("copy", at(tile), [at(total)])
        added = {"tile": at(tile), "copy": at(tile), "itself": at(total)}[other]
        kernel.op("tensor_tensor", at(total), [at(total), added], op=op)
    kernel.store(out, total)
    return kernel.finish()


def _last() -> Program:
    """Return a program that stores, after a loop, what the loop's last iteration loaded into a tile of its own."""
    kernel = Kernel()
    x, out = kernel.input((4 * STEPS, 8)), kernel.output((4, 8))
    with kernel.loop(STEPS) as step:
        tile = _tile(kernel, x, step)
    kernel.store(out, tile)
    return kernel.finish()


@pytest.mark.parametrize(
    ("program", "proved"),
    [
        (_sums("auto"), True),
        (_sums("yes"), True),
        (_sums("no"), False),  # the last iteration decides
        (_sums("auto", drains=True), False),
        (_rows(0), True),
        (_rows(4), False),  # an iteration reads what the next one writes
        (_rows(0, stride=3), False),  # iterations overwrite each other's rows
        (_rows(0, height=3), True),
        (_last(), False),
        (_in_place(), True),
        (_in_place("subtract"), False),
        (_in_place("max"), False),
        (_in_place(other="copy"), False),  # what was added so far is added again
        (_in_place(other="itself"), False),
        (_in_place(dtype="int32"), False),  # a sum of whole numbers may saturate
    ],
)
def test_only_sums_and_rows_of_their_own_are_free_of_order(program: Program, proved: bool) -> None:
    assert order_changes_only_sums(program) is proved


@pytest.mark.parametrize("program", [_sums("auto"), _sums("yes"), _rows(0), _rows(0, height=3), _in_place()])
def test_what_is_proved_holds_in_float64(program: Program) -> None:
    x = np.random.default_rng(3).standard_normal((4 * STEPS, 8)).astype(np.float32)
    ways = [run(program, [x], shuffle=way, float64=True, max_bytes=MOST_BYTES)[0] for way in (None, 5, "reversed")]
    assert all(np.allclose(ways[0], other, rtol=1e-13, atol=1e-13) for other in ways[1:])


def test_a_proof_spares_the_runs_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    program = _sums("auto")
    x = np.random.default_rng(3).standard_normal((4 * STEPS, 8)).astype(np.float32)
    one, other = (run(program, [x], shuffle=way, float64=False, max_bytes=MOST_BYTES) for way in (5, "reversed"))
    assert one[0].tobytes() != other[0].tobytes(), "another order rounds otherwise"
    monkeypatch.setattr("acceld.evaluate.simulated.simulation.run", None)
    check_order(program, [x], one, other, MOST_BYTES)


def test_each_iteration_comes_first_once_and_those_at_a_bound_of_a_mask_before_the_others() -> None:
    kernel = Kernel()
    x, out = kernel.input((4 * STEPS, 8)), kernel.output((4, 8))
    held = kernel.sbuf((4, 8))
    with kernel.loop(STEPS) as step:
        tile = _tile(kernel, x, step)
        kernel.op("copy", at(held), [at(tile)], mask=(Pattern(var(step, 1, -4), (0, 0)),))  # from the fifth on
    kernel.store(out, held)
    program = kernel.finish()
    (loop,) = program.loops
    starts = [order[loop] for order in first_iterations(program, 99, Random(1))]
    assert sorted(starts) == [1, 2, 3, 4, 5]
    assert set(starts[:2]) == {4, 5}
    assert len(first_iterations(program, 2, Random(1))) == 2


def test_a_loop_begins_with_the_iteration_that_an_order_names() -> None:
    x = np.random.default_rng(3).standard_normal((4 * STEPS, 8)).astype(np.float32)
    program = _last()
    (loop,) = program.loops
    (last,) = run(program, [x], shuffle={loop: 3}, float64=False, max_bytes=MOST_BYTES)
    assert np.array_equal(last, x[8:12]), "the iteration before the first one is the last"


def test_iterations_of_two_loops_come_first_together() -> None:
    kernel = Kernel()
    x, out = kernel.input((4 * STEPS, 8)), kernel.output((4, 8))
    with kernel.loop(STEPS) as step, kernel.loop(4):
        kernel.store(out, _tile(kernel, x, step))
    orders = first_iterations(kernel.finish(), 99, Random(1))
    pairs = [tuple(order.values()) for order in orders]
    assert len(pairs) == len(set(pairs)) == STEPS * 4 - 1
