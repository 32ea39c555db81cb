"""Make mistakes in the positions of data: indices, loop variables, masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from acceld.nki.ir.program import Access, Affine, Instruction, Pattern, Program
from scripts.evidence.simbench.mutation.editing import Maker, instructions, tiles, with_instruction, with_operand


def _shifted(access: Access, dim: int, by: int) -> Access:
    start = tuple(one + by if d == dim else one for d, one in enumerate(access.start))
    return replace(access, start=start)


def _moved_dims(access: Access) -> list[int]:
    """Return the dimensions in which a tile has several elements or moves with a loop: a shift there reads
    other data.
    """
    return [
        d
        for d, start in enumerate(access.start)
        if start.terms or any(dim.steps[d] and dim.count > 1 for dim in access.dims)
    ]


def index_shift(program: Program) -> list[Maker]:
    """Return makers of mutants in which the start of an operand is one more or one less in one dimension."""
    return [
        partial(with_operand, program, position, instruction, number, _shifted(tile, dim, by))
        for position, instruction, number, tile in tiles(program)
        for dim in _moved_dims(tile)
        for by in (1, -1)
    ]


def loop_variable_forgotten(program: Program) -> list[Maker]:
    """Return makers of mutants in which one index lacks a loop variable."""
    trips = {number: loop.trips for number, loop in program.loops.items()}
    return [
        partial(with_operand, program, position, instruction, number, _without_term(tile, dim, loop))
        for position, instruction, number, tile in tiles(program)
        for dim, start in enumerate(tile.start)
        for loop, _ in start.terms
        if trips[loop] > 1
    ]


def _without_term(access: Access, dim: int, loop: int) -> Access:
    kept = tuple(
        Affine(start.const, tuple(term for term in start.terms if term[0] != loop)) if d == dim else start
        for d, start in enumerate(access.start)
    )
    return replace(access, start=kept)


def _masked(program: Program) -> Iterator[tuple[int, Instruction, int]]:
    for position, instruction in instructions(program):
        for k in range(len(instruction.mask)):
            yield position, instruction, k


def mask_removed(program: Program) -> list[Maker]:
    """Return makers of mutants in which a mask lacks one condition."""
    return [
        partial(
            with_instruction,
            program,
            position,
            replace(instruction, mask=instruction.mask[:k] + instruction.mask[k + 1 :]),
        )
        for position, instruction, k in _masked(program)
    ]


def mask_edge(program: Program) -> list[Maker]:
    """Return makers of mutants in which a mask is one element too narrow or too wide."""

    def edged(instruction: Instruction, k: int, by: int) -> Instruction:
        mask = tuple(Pattern(one.base + by, one.coefs) if n == k else one for n, one in enumerate(instruction.mask))
        return replace(instruction, mask=mask)

    return [
        partial(with_instruction, program, position, edged(instruction, k, by))
        for position, instruction, k in _masked(program)
        for by in (1, -1)
    ]
