"""Mutants of the public kernels and of ours: does verification or a comparison of results notice each mistake?

Shapes are the kernels' own, but outermost loops over independent blocks run their last two iterations only, where that
leaves the program legal. A mutant survives where its outputs lie within the workload's tolerance of the program's on its
own inputs and on every other distribution the workload declares (what the strict gate draws); each survivor needs a
written reason in EQUIVALENT. A false alarm is a correct program that verification or another order of independent
iterations refuses.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acceld.nki.errors import KernelFailure
from acceld.nki.execute import ExecuteOptions, execute
from acceld.nki.mutants import mutants
from acceld.nki.program import Access, Affine, Loop, LoopKind, Node, Operand, Pattern, Program
from acceld.nki.verify import verify
from acceld.workloads import Workload
from acceld.workloads.inputs import make_inputs, supported_distributions
from acceld.workloads.oracle import kernel_inputs

Array = NDArray[Any]
DEADLINE_S = 60.0

_ZEROS = "the buffer holds only zeros"
_BEYOND = "rows beyond the edge are computed and never stored"
EQUIVALENT: Mapping[tuple[str, str, str], str] = {
    ("silu", "dtype_lowered", "buffer"): _ZEROS,
    ("rmsnorm_matmul", "dtype_lowered", "buffer"): _ZEROS,
    ("adamw", "dtype_lowered", "buffer"): _ZEROS,
    ("adamw", "mask_edge", "tensor_tensor"): _BEYOND,
}
"""Reasons by kernel, mutant operator and operation (``buffer`` where the mutant changes a declaration)."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of one kernel's mutants."""

    kernel: str
    counts: Counter[str]
    explained: int
    survivors: tuple[tuple[str, int, str], ...]
    """Operator, line and operation of each mutant that nothing noticed and nobody explained."""
    false_alarm: str
    seconds: float


def shortened(program: Program) -> Program:
    """The program with the last two iterations of independent outermost loops only, where it stays legal."""
    cut = {
        node.id: node.trips - 2
        for node in program.body
        if isinstance(node, Loop) and node.kind is LoopKind.AFFINE and node.trips > 2
    }

    def affine(value: Affine) -> Affine:
        return value + sum(coef * cut.get(loop, 0) for loop, coef in value.terms)

    def pattern(value: Pattern) -> Pattern:
        return Pattern(affine(value.base), value.coefs)

    def operand(value: Operand) -> Operand:
        if isinstance(value, Access):
            return replace(value, start=tuple(map(affine, value.start)))
        return pattern(value) if isinstance(value, Pattern) else value

    def visit(node: Node) -> Node:
        if isinstance(node, Loop):
            return replace(node, trips=node.trips - cut.get(node.id, 0), body=tuple(map(visit, node.body)))
        return replace(
            node,
            dsts=tuple(replace(dst, start=tuple(map(affine, dst.start))) for dst in node.dsts),
            srcs=tuple(map(operand, node.srcs)),
            mask=tuple(map(pattern, node.mask)),
            pattern=None if node.pattern is None else pattern(node.pattern),
        )

    if any(access.indirect for instruction, _ in program.walk() for access in instruction.accesses):
        return program
    small = replace(program, body=tuple(map(visit, program.body)))
    return program if verify(small) else small


def same(a: Array, b: Array, tolerance: float) -> bool:
    """Whether a result lies within ``tolerance`` (relative L2) of ``b``, where ``b`` was written, and only there."""
    written = ~np.isnan(b)
    if not np.array_equal(~np.isnan(a), written):
        return False
    left, right = a[written].astype(np.float64), b[written].astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where(left == right, 0.0, left - right)
    return bool(np.linalg.norm(apart) <= tolerance * np.linalg.norm(right))


class _Trial:
    """One program, and its right outputs on each distribution, made when they are needed."""

    def __init__(self, program: Program, workload: Workload) -> None:
        self.program, self.workload = program, workload
        self.names = supported_distributions(workload)
        self.made: dict[str, tuple[list[Array], list[Array]]] = {}

    def data(self, name: str) -> tuple[list[Array], list[Array]]:
        if name not in self.made:
            drawn = kernel_inputs(self.workload, make_inputs(self.workload, 0, name))
            arrays = [np.asarray(value) for value in drawn if isinstance(value, np.ndarray)]
            self.made[name] = (arrays, execute(self.program, arrays))
        return self.made[name]

    def fate(self, mutant: Program) -> str:
        """``illegal``, ``failed`` or ``wrong``; ``alive`` where nothing notices."""
        if verify(mutant):
            return "illegal"
        for name in self.names:
            inputs, right = self.data(name)
            try:
                results = execute(mutant, inputs, ExecuteOptions(deadline_s=DEADLINE_S))
            except KernelFailure:
                return "failed"
            if not all(same(a, b, self.workload.tolerance) for a, b in zip(results, right, strict=True)):
                return "wrong"
        return "alive"


def tally(kernel: str, program: Program, workload: Workload, *, limit: int, seed: int = 1) -> Tally:
    """Make up to ``limit`` mutants of ``program`` and see what notices them."""
    started = time.process_time()
    small = shortened(program)
    trial = _Trial(small, workload)
    alarm = "; ".join(finding.message for finding in verify(program)[:1])
    inputs, right = trial.data("own")
    shuffled = execute(small, inputs, ExecuteOptions(shuffle_affine=3))
    if not alarm and not all(same(a, b, workload.tolerance) for a, b in zip(shuffled, right, strict=True)):
        alarm = "another order of independent iterations changes the result"
    operations = {instruction.line: instruction.op for instruction, _ in small.walk()}
    counts: Counter[str] = Counter()
    explained, survivors = 0, []
    for mutant in mutants(small, seed=seed, limit=limit):
        fate = trial.fate(mutant.program)
        counts[fate] += 1
        if fate != "alive":
            continue
        operation = operations.get(mutant.line, "buffer")
        if (kernel, mutant.name, operation) in EQUIVALENT:
            explained += 1
        else:
            survivors.append((mutant.name, mutant.line, operation))
    return Tally(kernel, counts, explained, tuple(survivors), alarm, time.process_time() - started)
