"""Divide the program of a launch between the two physical cores of a logical core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from acceld.nki.ir.def_use import uses_of
from acceld.nki.ir.mapping import mapped
from acceld.nki.ir.program import Affine, Loop, LoopKind, Node, Program, Role
from acceld.nki.ir.regions import box

CORES = 2


@dataclass(frozen=True, slots=True)
class Part:
    """The work of one core: the program as that core runs it, and the number of iterations of each loop on that core."""

    program: Program
    trips: Mapping[int, int]


def parts(program: Program) -> tuple[Part, ...]:
    """Return the part of each core for a launch on two cores; () if the program can not be divided.

    A launch loop of two iterations runs one iteration on each core. Launch loops of one iteration alternate:
    the first runs on core 0, the next on core 1.

    A program can not be divided in three cases: its launch is not on two cores, an instruction is outside of the launch
    loops, or one core reads what the other core writes. In the third case the reading core would have to wait for the
    other core.
    """
    loops = [node for node in program.body if isinstance(node, Loop) and node.kind is LoopKind.SPMD]
    lone = [loop for loop in loops if loop.trips == 1]
    if program.lnc != CORES or len(loops) != len(program.body) or len(lone) % CORES or not loops:
        return ()
    if any(loop.trips not in (1, CORES) for loop in loops):
        return ()
    turns = {loop.id: turn % CORES for turn, loop in enumerate(lone)}
    full = {number: loop.trips for number, loop in program.loops.items()}
    found = []
    for core in range(CORES):
        trips = full | {loop.id: int(turns.get(loop.id, core) == core) for loop in loops}
        shared = {loop.id: core for loop in loops if loop.id not in turns}
        body = tuple(_at(node, shared) for node in program.body) if core else program.body
        found.append(Part(replace(program, body=body), trips))
    return tuple(found) if _apart(found) else ()


def _apart(parts: Sequence[Part]) -> bool:
    """Tell whether no core reads elements that another core writes."""
    touched = [_touched(part) for part in parts]
    for mine, reads in enumerate(touched):
        for theirs, writes in enumerate(touched):
            if mine != theirs and any(
                _meet(read.lows, read.highs, write.lows, write.highs)
                for number, found in reads.items()
                for read in found
                if not read.writes
                for write in writes.get(number, ())
                if write.writes
            ):
                return False
    return True


@dataclass(frozen=True, slots=True)
class _Touch:
    """The bounds of the elements that a core may read or write through one access. Both bounds are included."""

    writes: bool
    lows: tuple[int, ...]
    highs: tuple[int, ...]


def _touched(part: Part) -> dict[int, set[_Touch]]:
    """Return the elements that a core reads or writes in memory that both cores can reach, as a dict by the id of the
    buffer.
    """
    program = part.program
    loops = program.loops
    found: dict[int, set[_Touch]] = {}
    for position, (one, around) in enumerate(program.walk()):
        if any(part.trips[loop.id] == 0 for loop in around):
            continue
        for use in uses_of(one, around, position):
            buffer = program.buffers[use.access.buffer]
            own = any(loops[number].kind is LoopKind.SPMD for number in buffer.scope)
            if own or buffer.role is Role.CONSTANT:
                continue
            if use.access.indirect:
                lows, highs = tuple(0 for _ in buffer.shape), tuple(size - 1 for size in buffer.shape)
            else:
                region = box(use.access)
                ends = [start.bounds(part.trips) for start in region.starts]
                lows = tuple(low for low, _ in ends)
                highs = tuple(high + size - 1 for (_, high), size in zip(ends, region.extents, strict=True))
            for writes in {use.writes, not use.reads}:
                found.setdefault(buffer.id, set()).add(_Touch(writes, lows, highs))
    return found


def _meet(lows: tuple[int, ...], highs: tuple[int, ...], others: tuple[int, ...], ends: tuple[int, ...]) -> bool:
    return all(a <= d and c <= b for a, b, c, d in zip(lows, highs, others, ends, strict=True))


def _at(node: Node, places: Mapping[int, int]) -> Node:
    """Return a copy of ``node`` in which some loops start at a given iteration instead of 0.

    ``places`` has that iteration, by the loop's id. It is added to every use of the loop's variable.
    """

    def moved(value: Affine) -> Affine:
        return value + sum(coef * places.get(loop, 0) for loop, coef in value.terms)

    return mapped(node, moved)
