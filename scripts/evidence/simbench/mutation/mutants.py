"""Make programs with one mistake each (mutants), to measure whether a check of results notices the mistake.

Each operator makes a small mistake of a kind that people and models make. Mutants that are certainly equivalent
are not made: exchanged instructions that share no buffer, a dropped copy that is never read, a shortened loop
that runs once. Every other mutant breaks a rule (:func:`acceld.nki.verify.verifier.verify`) or should change an
output.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from acceld.nki.ir.codec import program_hash
from acceld.nki.ir.program import Program
from scripts.evidence.simbench.mutation import order, places, values
from scripts.evidence.simbench.mutation.editing import Maker


class Mutant(NamedTuple):
    """A program with one mistake. ``name`` is the operator that made it, ``line`` the line that is now wrong."""

    name: str
    line: int
    program: Program


OPERATORS: Mapping[str, Callable[[Program], list[Maker]]] = {
    "index_shift": places.index_shift,
    "loop_variable_forgotten": places.loop_variable_forgotten,
    "instruction_dropped": order.instruction_dropped,
    "mask_removed": places.mask_removed,
    "mask_edge": places.mask_edge,
    "loop_short": order.loop_short,
    "dtype_lowered": values.dtype_lowered,
    "order_swapped": order.order_swapped,
    "operands_swapped": values.operands_swapped,
    "op_swapped": values.op_swapped,
    "flag_flipped": values.flag_flipped,
    "constant_changed": values.constant_changed,
}


def mutants(program: Program, seed: int = 0, limit: int | None = None) -> Iterator[Mutant]:
    """Yield at most ``limit`` mutants, from the operators in turn, at places in an order that ``seed`` decides."""
    source = random.Random(seed)
    lanes: list[tuple[str, list[Maker]]] = []
    for name, operator in OPERATORS.items():
        changes = operator(program)
        source.shuffle(changes)
        lanes.append((name, changes))
    made = 0
    while any(changes for _, changes in lanes) and (limit is None or made < limit):
        for name, changes in lanes:
            while changes:
                change = changes.pop()()
                if change is not None and program_hash(change[1]) != program_hash(program):
                    yield Mutant(name, *change)
                    made += 1
                    break
            if limit is not None and made >= limit:
                return
