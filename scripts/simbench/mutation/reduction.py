"""A kernel's program made cheap: the same instructions on the last iterations of its loops and on smaller arrays.

A loop keeps its last two iterations where the others only make other parts of the outputs: nothing that the loop
writes is read outside of it, and its iterations share nothing. What an earlier loop makes for iterations that are gone
goes too, where the outputs stay what they were (tried on data; memory that nobody wrote is NaN). Then each array is
cut to the box that is still used. The result is a program for smaller arguments that computes, bit for bit up to the
blocking of products, a part of the kernel's own results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from acceld.nki.errors import KernelFailure
from acceld.nki.execute import execute
from acceld.nki.flow import all_uses
from acceld.nki.numerics import Array
from acceld.nki.program import (
    Access,
    Affine,
    Instruction,
    Loop,
    LoopKind,
    Node,
    Program,
)
from acceld.nki.verify import verify
from scripts.simbench.mutation.boxes import in_boxes
from scripts.simbench.mutation.editing import mapped

KEPT = 2
"""Iterations that a loop keeps."""
STORES = 4
"""Stores that a program without loops keeps."""
_CLOSE = 1e-4


@dataclass(frozen=True, slots=True)
class Reduced:
    """A smaller program; ``boxes`` are the parts of the kernel's arguments that are its own."""

    program: Program
    boxes: tuple[tuple[slice, ...], ...]
    loops: tuple[str, ...] = ()
    """What was cut, in words."""

    def arguments(self, arrays: Sequence[Array]) -> list[Array]:
        """Its arguments, out of those of the kernel."""
        return [
            np.ascontiguousarray(array.reshape(self._shape(array, box))[box])
            for array, box in zip(arrays, self.boxes, strict=True)
        ]

    @staticmethod
    def _shape(array: Array, box: tuple[slice, ...]) -> tuple[int, ...]:
        return array.shape if box else (array.size,)


def reduced(program: Program, arguments: Callable[[], Sequence[Array]]) -> Reduced:
    """The smaller program; ``arguments`` draws data for the whole one. The program itself where it can not be cut."""
    if _indirect(program):
        return whole(program)
    small = _sliced(program)
    names: list[str] = [] if small is program else [f"{STORES} of its stores"]
    for loop in reversed(list(small.loops.values())):
        if loop.id in small.loops and _independent(small, loop) and not verify(one := _cut(small, loop.id)):
            small = one
            names.append(_named(loop))
    small, more = _without_idle_producers(small, arguments)
    names += more
    boxed, boxes = in_boxes(small)
    return whole(program) if verify(boxed) else Reduced(boxed, boxes, tuple(names))


def whole(program: Program) -> Reduced:
    """The program as it is."""
    return Reduced(program, tuple((slice(None),) * len(program.buffers[n].outer_shape) for n in program.inputs))


def _named(loop: Loop) -> str:
    return f"{loop.trips} at line {loop.line}"


def _indirect(program: Program) -> bool:
    return bool(program.registers) or any(
        access.indirect for instruction, _ in program.walk() for access in instruction.accesses
    )


def _independent(program: Program, loop: Loop) -> bool:
    """Whether dropping iterations leaves the rest of the outputs as they were, whatever the data."""
    if loop.trips <= KEPT or loop.kind in (LoopKind.DYNAMIC, LoopKind.SPMD):
        return False
    outputs = set(program.outputs)
    found = all_uses(program)
    stores = False
    for number, uses in found.items():
        inside = [any(around.id == loop.id for around in use.loops) for use in uses]
        if not any(here and use.writes for here, use in zip(inside, uses, strict=True)):
            continue
        if any(use.reads and not here for here, use in zip(inside, uses, strict=True)):
            return False
        if number in outputs:
            stores = True
            if any(use.reads for use in uses):
                return False
        elif loop.kind is LoopKind.SEQUENTIAL and loop.id not in program.buffers[number].scope:
            return False
    return stores and all(
        any(start.terms and any(term[0] == loop.id for term in start.terms) for start in use.access.start)
        for number in outputs
        for use in found.get(number, ())
        if use.writes and any(around.id == loop.id for around in use.loops)
    )


def _without_idle_producers(program: Program, arguments: Callable[[], Sequence[Array]]) -> tuple[Program, list[str]]:
    """The program without iterations whose results nothing that is left needs."""
    candidates = [
        loop
        for loop in reversed(list(program.loops.values()))
        if loop.trips > KEPT and loop.kind in (LoopKind.AFFINE, LoopKind.SEQUENTIAL) and not _stores(program, loop)
    ]
    if not any(_ends_before_stores(program, loop) for loop in candidates):
        return program, []
    arrays = list(arguments())
    right, names = execute(program, arrays), []
    for loop in candidates:
        if not _ends_before_stores(program, loop):
            continue
        small = _cut(program, loop.id)
        if verify(small):
            continue
        try:
            found = execute(small, arrays)
        except KernelFailure:
            continue
        if all(_alike(a, b) for a, b in zip(found, right, strict=True)):
            program = small
            names.append(_named(loop))
    return program, names


def _stores(program: Program, loop: Loop) -> bool:
    outputs = set(program.outputs)
    return any(
        dst.buffer in outputs
        for instruction, around in program.walk()
        if any(one.id == loop.id for one in around)
        for dst in instruction.dsts
    )


def _ends_before_stores(program: Program, loop: Loop) -> bool:
    """Whether the loop is in a nest of its own that makes what later ones use, rather than inside of theirs."""
    for node in program.body:
        if isinstance(node, Loop) and any(one is loop or one.id == loop.id for one in _nested(node)):
            return not _stores(program, node)
    return False


def _nested(loop: Loop) -> Iterable[Loop]:
    yield loop
    for node in loop.body:
        if isinstance(node, Loop):
            yield from _nested(node)


def _alike(a: Array, b: Array) -> bool:
    left, right = a.astype(np.float64), b.astype(np.float64)
    defined = ~np.isnan(right)
    if not np.array_equal(~np.isnan(left), defined):
        return False
    apart = np.linalg.norm(left[defined] - right[defined])
    return bool(apart <= _CLOSE * np.linalg.norm(right[defined]))


def _cut(program: Program, number: int) -> Program:
    """The program with the last iterations of one loop only."""
    gone = program.loops[number].trips - KEPT

    def affine(value: Affine) -> Affine:
        return value + sum(coef * gone for loop, coef in value.terms if loop == number)

    def loop(one: Loop, body: tuple[Node, ...]) -> Node:
        return replace(one, trips=KEPT if one.id == number else one.trips, body=body)

    return mapped(program, affine, loop=loop)


def _sliced(program: Program) -> Program:
    """A program without loops with the last few of its stores only, and what they need."""
    if program.loops or any(instruction.op == "barrier" for instruction, _ in program.walk()):
        return program
    body = [node for node in program.body if isinstance(node, Instruction)]
    outputs = set(program.outputs)
    stores = [at for at, one in enumerate(body) if any(dst.buffer in outputs for dst in one.dsts)]
    if len(stores) <= STORES:
        return program
    kept, wanted = set(stores[-STORES:]), {a.buffer for at in stores[-STORES:] for a in body[at].accesses} - outputs
    for at in range(len(body) - 1, -1, -1):
        if any(dst.buffer in wanted for dst in body[at].dsts):
            kept.add(at)
            wanted |= {access.buffer for access in body[at].accesses}
    small = replace(program, body=tuple(one for at, one in enumerate(body) if at in kept))
    return _without_unused_buffers(small)


def _without_unused_buffers(program: Program) -> Program:
    used = {access.buffer for instruction, _ in program.walk() for access in instruction.accesses}
    used |= set(program.inputs) | set(program.outputs)
    numbers = {old: new for new, old in enumerate(sorted(used))}

    def access(one: Access) -> Access:
        return replace(one, buffer=numbers[one.buffer])

    small = mapped(program, lambda value: value, access)
    return replace(
        small,
        buffers=tuple(replace(program.buffers[old], id=new) for old, new in numbers.items()),
        inputs=tuple(numbers[one] for one in program.inputs),
        outputs=tuple(numbers[one] for one in program.outputs),
    )
