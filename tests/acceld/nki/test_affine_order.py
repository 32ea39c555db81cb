"""Proofs that the order of affine iterations changes only the rounding of sums."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from random import Random

import numpy as np
import pytest

from acceld.evaluate.simulated.simulation import check_iterations, check_order, run
from acceld.nki.errors import KernelCrash, LimitExceeded
from acceld.nki.execute.interpreter import _Execution
from acceld.nki.ir.affine_order import order_changes_only_sums
from acceld.nki.ir.program import Access, Affine, Buffer, Loop, LoopKind, Pattern, Program
from tests.acceld.nki.programs import Kernel, Run, at, var
from tests.properties import one_in

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


def _input(seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((4 * STEPS, 8)).astype(np.float32)


def _connected(program: Program, inputs: Sequence[np.ndarray]) -> bool:
    """Tell whether the program is refused because of the order of its affine iterations."""
    outputs = run(program, inputs, shuffle=None, float64=False, max_bytes=MOST_BYTES)
    try:
        check_iterations(program, inputs, outputs, MOST_BYTES)
    except KernelCrash as crash:
        assert crash.rule == "affine_order"
        return True
    return False


@pytest.mark.parametrize(
    ("program", "refused"),
    [
        (_sums("no"), True),
        (_sums("auto", drains=True), True),  # a sum so far depends on who came before
        (_rows(4), True),
        (_rows(0, stride=3), True),
        (_last(), True),
        (_in_place("subtract"), False),
        (_in_place("max"), False),
        (_in_place(other="copy"), True),
        (_in_place(other="itself"), True),
        (_in_place(dtype="int32"), True),
        (_in_place("max", dtype="int32"), False),
    ],
)
def test_what_is_not_proved_is_followed_through_the_values(program: Program, refused: bool) -> None:
    assert _connected(program, [_input()]) is refused


def _in_launch(shift: int) -> Program:
    """Return a program of a launch of several programs, each of which stores what the program ``shift`` further wrote."""
    kernel = Kernel()
    x, out, scratch = kernel.input((4 * STEPS, 8)), kernel.output((4 * STEPS, 8)), kernel.hbm((8 * STEPS, 8))
    kernel.op("memset", at(scratch), [0.0])
    with kernel.loop(STEPS, LoopKind.SPMD) as step:
        tile = _tile(kernel, x, step)
        kernel.op("dma_copy", at(scratch, Run(var(step, 4), 4), Run(0, 8)), [at(tile)])
        mine = at(scratch, Run(var(step, 4, 4 * shift), 4), Run(0, 8))
        kernel.op("dma_copy", at(out, Run(var(step, 4), 4), Run(0, 8)), [mine])
    return kernel.finish()


@pytest.mark.parametrize("shift", [0, 1])
def test_programs_of_a_launch_on_one_core_have_no_order(shift: int) -> None:
    assert _connected(_in_launch(shift), [_input()]) is bool(shift)


def _accumulators(command: str, shown: str) -> Program:
    """Return a program whose iterations fold rows into an engine's accumulators, and show the result ``in`` the loop or
    ``after`` it.
    """
    kernel = Kernel()
    x, out = kernel.input((4 * STEPS, 8)), kernel.output((4, STEPS))
    result, zero = kernel.sbuf((4, STEPS)), kernel.sbuf((4, 8))
    kernel.op("memset", at(zero), [0.0])

    def fold(dsts: list[Access], tile: Buffer, command: str) -> None:
        kernel.op("activation", dsts, [at(tile), 0.0, 1.0], func="copy", reduce_op="add", reduce_cmd=command)

    def folded(tile: Buffer, column: Affine | int, command: str) -> None:
        fold([at(kernel.sbuf((4, 8))), at(result, Run(0, 4), Run(column, 1))], tile, command)

    kernel.op("memset", at(result), [0.0])
    folded(zero, 0, "reset_reduce")
    with kernel.loop(STEPS) as step:
        tile = _tile(kernel, x, step)
        if shown == "in":
            folded(tile, var(step), command)
        else:
            fold([at(kernel.sbuf((4, 8)))], tile, "reduce")
    if shown == "after":
        folded(zero, 0, command)
    kernel.store(out, result)
    return kernel.finish()


@pytest.mark.parametrize(
    ("command", "shown", "refused"),
    [("reset_reduce", "in", False), ("reduce", "in", True), ("reduce", "after", False)],
)
def test_accumulators_may_collect_the_sum_of_all_iterations_but_no_iteration_may_see_it(
    command: str, shown: str, refused: bool
) -> None:
    assert _connected(_accumulators(command, shown), [_input()]) is refused


def test_records_that_take_too_much_memory_are_an_error_that_names_the_remedy() -> None:
    with pytest.raises(LimitExceeded, match="iterations of affine loops") as refused:
        check_iterations(_rows(4), [_input()], [np.zeros((64, 8), np.float32)], 9000)
    assert "nl.sequential_range" in refused.value.hint or "sequential range" in refused.value.hint


def _random_program(seed: int) -> Program:
    """Return a program with two affine loops around a few random instructions on few tiles, most of them masked."""
    random = Random(seed)
    kernel = Kernel()
    x, out = kernel.input((4 * STEPS, 8)), kernel.output((4, 8))
    tiles = [kernel.sbuf((4, 8)) for _ in range(4)]
    zero = kernel.sbuf((4, 8))
    kernel.op("memset", at(zero), [0.0])
    for tile in tiles:
        kernel.op("memset", at(tile), [float(random.randrange(3))])

    def part() -> tuple[Run, Run]:
        start = random.choice((0, 2))
        return Run(0, 4), Run(start, random.choice((2, 8 - start)) if random.random() < 0.3 else 8 - start)

    def instruction(first: Loop, second: Loop | None) -> None:
        one, other = random.choice(tiles), random.choice(tiles)
        where = part() if random.random() < 0.3 else (Run(0, 4), Run(0, 8))
        mask: tuple[Pattern, ...] = ()
        if random.random() < 0.6:
            loop = second if second is not None and random.random() < 0.5 else first
            sign, bound = random.choice((-1, 1)), random.randrange(loop.trips)
            mask = (Pattern(var(loop, sign, -sign * bound), (0, 0)),)
        kind = random.randrange(5)
        if kind == 0:
            kernel.op("dma_copy", at(one), [at(x, Run(var(first, 4), 4), Run(0, 8))], mask=mask)
        elif kind == 1:
            kernel.op("memset", at(one, *where), [float(random.randrange(2))], mask=mask)
        elif kind == 2 and one is not other:
            kernel.op("copy", at(one, *where), [at(other, *where)], mask=mask)
        else:
            op = random.choice(("add", "add", "max", "max", "multiply", "logical_and", "greater"))
            operands = [at(one, *where), at(other, *where)]
            random.shuffle(operands)
            kernel.op("tensor_tensor", at(one, *where), operands, op=op, mask=mask)

    with kernel.loop(3) as first:
        for _ in range(random.randrange(1, 4)):
            instruction(first, None)
        with kernel.loop(2) as second:
            for _ in range(random.randrange(1, 4)):
                instruction(first, second)
        for _ in range(random.randrange(2)):
            instruction(first, None)
    kernel.store(out, random.choice(tiles))
    return kernel.finish()


@pytest.mark.parametrize("start", one_in(2, [40, 340]))
def test_a_program_whose_outputs_differ_in_some_order_is_refused(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = refused = 0
    for seed in range(start, start + 50):
        program, inputs = _random_program(seed), [_input(seed)]
        connected = _connected(program, inputs)
        passed, refused = passed + (not connected), refused + connected
        if connected:
            continue
        found = []
        for outer in permutations(range(3)):
            for inner in product(permutations(range(2)), repeat=3):
                orders = iter((outer, *inner))
                with monkeypatch.context() as patch:
                    patch.setattr(_Execution, "_permutation", lambda self, loop, orders=orders: next(orders))
                    (values,) = run(program, inputs, shuffle=1, float64=True, max_bytes=MOST_BYTES)
                found.append(values)
        assert all(np.allclose(found[0], other, rtol=1e-9, atol=1e-9, equal_nan=True) for other in found), seed
    assert passed > 5
    assert refused > 5
