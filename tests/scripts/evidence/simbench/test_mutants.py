"""Mutants: programs with one mistake each, which checks of rules and results have to notice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from acceld.nki.errors import KernelFailure
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.ir.codec import program_hash
from acceld.nki.ir.program import LoopKind, Pattern, Program
from acceld.nki.verify.verifier import verify
from scripts.evidence.simbench.mutation.mutants import OPERATORS, mutants
from tests.acceld.nki.programs import Kernel, Run, at, var

Array = NDArray[Any]
TOLERANCE = 2e-5
ROWS, DEPTH, WIDTH = 40, 48, 24


def softmax_of_product() -> Program:
    """softmax of (x.T @ w) * scale / 2 over the free axis, less minus its greatest score, in row tiles of 16."""
    kernel = Kernel()
    x, w, bias = kernel.input((DEPTH, ROWS)), kernel.input((DEPTH, WIDTH)), kernel.input((ROWS, 1))
    y = kernel.output((ROWS, WIDTH))
    weights = kernel.sbuf((16, 3, WIDTH))
    with kernel.loop(3) as k:
        kernel.op("dma_copy", at(weights, Run(0, 16), var(k), Run(0, WIDTH)), at(w, Run(var(k, 16), 16), Run(0, WIDTH)))
    with kernel.loop(3) as i:
        edge = var(i, -16, ROWS - 1)
        columns, rows = (Pattern(edge, (0, -1)),), (Pattern(edge, (-1, 0)),)
        left = kernel.sbuf((16, 3, 16))
        shift, product = kernel.sbuf((16, 1)), kernel.psum((16, WIDTH))
        with kernel.loop(3) as k:
            kernel.op(
                "dma_copy",
                at(left, Run(0, 16), var(k), Run(0, 16)),
                at(x, Run(var(k, 16), 16), Run(var(i, 16), 16)),
                mask=columns,
            )
        kernel.op("dma_copy", at(shift), at(bias, Run(var(i, 16), 16), Run(0, 1)), mask=rows)
        kernel.op("memset", at(product), 0.0, lazy=True)
        with kernel.loop(3) as k:
            kernel.op(
                "matmul",
                at(product),
                [at(left, Run(0, 16), var(k), Run(0, 16)), at(weights, Run(0, 16), var(k), Run(0, WIDTH))],
                accumulate="yes",
                mask=(Pattern(edge, (0, -1, 0)),),
            )
        scores, most, total = kernel.sbuf((16, WIDTH)), kernel.sbuf((16, 1)), kernel.sbuf((16, 1))
        kernel.op(
            "tensor_scalar", at(scores), [at(product), at(shift), 0.5], op0="multiply", op1="multiply",
            mask=rows,
        )  # fmt: skip
        kernel.op("tensor_reduce", at(most), at(scores), op="max", axes=(1,), negate=True, mask=rows)
        kernel.op("activation", at(scores), [at(scores), at(most), 1.0], func="exp", mask=rows)
        kernel.op("tensor_reduce", at(total), at(scores), op="add", axes=(1,), negate=False, mask=rows)
        kernel.op("reciprocal", at(total), at(total), mask=rows)
        kernel.op(
            "tensor_scalar", at(scores), [at(scores), at(total), at(most)], op0="multiply", op1="subtract",
            reverse1=False, mask=rows,
        )  # fmt: skip
        kernel.op("dma_copy", at(y, Run(var(i, 16), 16), Run(0, WIDTH)), at(scores), mask=rows)
    return kernel.finish()


def running_mean() -> Program:
    """Subtract from each row the mean of the rows up to it, in a sequential loop that carries a sum."""
    kernel = Kernel()
    x, y = kernel.input((6, 16, 8)), kernel.output((6, 16, 8))
    held, count = kernel.sbuf((16, 8)), kernel.sbuf((16, 1))
    kernel.op("memset", at(held), 0.0)
    kernel.op("memset", at(count), 0.0)
    with kernel.loop(6, LoopKind.SEQUENTIAL) as i:
        tile, mean, inverse = kernel.sbuf((16, 8)), kernel.sbuf((16, 8)), kernel.sbuf((16, 1))
        here = (var(i), Run(0, 16), Run(0, 8))
        kernel.op("dma_copy", at(tile), at(x, *here))
        kernel.op("tensor_tensor", at(held), [at(held), at(tile)], op="add")
        kernel.op("tensor_scalar", at(count), [at(count), 1.0], op0="add")
        kernel.op("reciprocal", at(inverse), at(count))
        kernel.op("tensor_scalar", at(mean), [at(held), at(inverse)], op0="multiply")
        kernel.op("tensor_tensor", at(tile), [at(tile), at(mean)], op="subtract")
        kernel.op("dma_copy", at(y, *here), at(tile))
    return kernel.finish()


PROGRAMS = {"softmax": softmax_of_product(), "mean": running_mean()}


def inputs(program: Program) -> list[Array]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal(program.buffers[number].shape).astype(np.float32) for number in program.inputs]


def test_the_programs_are_legal_and_right() -> None:
    x, w, bias = inputs(PROGRAMS["softmax"])
    assert verify(PROGRAMS["softmax"]) == ()
    scores = (x.astype(np.float64).T @ w) * bias * 0.5
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    (out,) = execute(PROGRAMS["softmax"], [x, w, bias])
    exact = exps / exps.sum(axis=1, keepdims=True) + scores.max(axis=1, keepdims=True)
    assert np.allclose(out, exact, rtol=1e-4, atol=1e-5)
    assert verify(PROGRAMS["mean"]) == ()
    (rows,) = inputs(PROGRAMS["mean"])
    (out,) = execute(PROGRAMS["mean"], [rows])
    means = np.cumsum(rows.astype(np.float64), axis=0) / np.arange(1, 7)[:, None, None]
    assert np.allclose(out, rows - means, rtol=1e-4, atol=1e-5)


COMPUTE = ("matmul", "tensor_scalar", "tensor_reduce", "activation", "reciprocal")
EQUIVALENT = {
    **{("softmax", "mask_removed", op): "rows beyond the edge are computed and never stored" for op in COMPUTE},
    **{("softmax", "mask_edge", op): "one row more beyond the edge is computed and never stored" for op in COMPUTE},
    ("mean", "dtype_lowered", ""): "counts up to six are exact in bfloat16",
}
"""Survivors by program, operator and operation, each with why it means the same."""


def survivors(name: str) -> tuple[list[tuple[str, int]], Counter[str]]:
    program = PROGRAMS[name]
    data = inputs(program)
    right = execute(program, data)
    alive, killed = [], Counter[str]()
    for mutant in mutants(program):
        if verify(mutant.program):
            killed["illegal"] += 1
            continue
        try:
            wrong = execute(mutant.program, data, ExecuteOptions(deadline_s=10))
        except KernelFailure:
            killed["crash"] += 1
            continue
        same = all(
            np.isfinite(a).all() and np.linalg.norm(a - b) <= TOLERANCE * np.linalg.norm(b)
            for a, b in zip(wrong, right, strict=True)
        )
        if same:
            alive.append((mutant.name, mutant.line))
        else:
            killed["wrong"] += 1
    return alive, killed


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_no_mutant_survives_without_a_reason(name: str) -> None:
    alive, killed = survivors(name)
    ops = {instruction.line: instruction.op for instruction, _ in PROGRAMS[name].walk()}
    unexplained = [
        (operator, ops.get(line, ""), line)
        for operator, line in alive
        if not EQUIVALENT.get((name, operator, ops.get(line, "")))
    ]
    assert unexplained == []
    assert killed["wrong"] > 20
    assert killed["illegal"] > 3


def test_operators_take_turns_and_the_seed_decides_the_places() -> None:
    program = PROGRAMS["softmax"]
    first = [(m.name, m.line) for m in mutants(program, seed=1, limit=9)]
    assert len({name for name, _ in first}) == 9
    assert first == [(m.name, m.line) for m in mutants(program, seed=1, limit=9)]
    assert first != [(m.name, m.line) for m in mutants(program, seed=2, limit=9)]
    assert len(list(mutants(program, limit=30))) == 30
    assert list(mutants(program, limit=0)) == []


def test_every_operator_finds_a_place_and_no_mutant_is_the_program_itself() -> None:
    found: Counter[str] = Counter()
    for program in PROGRAMS.values():
        for mutant in mutants(program):
            found[mutant.name] += 1
            assert program_hash(mutant.program) != program_hash(program)
            assert mutant.line > 0
    assert set(found) == set(OPERATORS)
