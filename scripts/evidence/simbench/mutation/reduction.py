"""Make a kernel's program cheap to execute: the same instructions, for the last iterations of its loops and
smaller arrays.

A loop is cut to its last two iterations if its other iterations only write other parts of the outputs, or
buffers that no remaining instruction reads. Then each array is cut to the index range that is still used. The
result is a program for smaller arguments. It computes a part of the kernel's own results, except that products
may be blocked otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from acceld.nki.ir.def_use import Use, all_uses
from acceld.nki.ir.numerics import Array
from acceld.nki.ir.program import Access, Affine, Instruction, Loop, LoopKind, Node, Program
from acceld.nki.verify.verifier import verify
from acceld.workloads import Workload
from scripts.evidence.simbench.mutation.boxes import extent, in_boxes
from scripts.evidence.simbench.mutation.editing import mapped

KEPT = 2
"""Number of iterations that a loop keeps."""
STORES = 4
"""Number of stores that a program without loops keeps."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """A kernel's program with fewer iterations and smaller arrays, so that it is cheap to execute. Its arguments are
    parts of the kernel's arguments; ``boxes`` has the index ranges of these parts.
    """

    program: Program
    boxes: tuple[tuple[slice, ...], ...]
    loops: tuple[str, ...] = ()
    """Descriptions of the parts that were cut."""

    def arguments(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arguments of the reduced program, cut from the kernel's."""
        return [np.ascontiguousarray(array[box]) for array, box in zip(arrays, self.boxes, strict=True)]

    def workload(self, whole: Workload) -> Workload:
        """Return the kernel's workload with the arguments of the reduced program, drawn in the kernel's layout.

        Relations between inputs are left out if they are stated in another layout.
        """
        boxes = iter(self.boxes)
        arguments = tuple(
            a if a.is_scalar else replace(a, shape=(cut := _shape(next(boxes), a.kernel_shape)), kernel_shape=cut)
            for a in whole.arguments
        )
        moved = {a.name for a in whole.arguments if a.kernel_shape != a.shape}
        related = tuple(one for one in whole.metamorphic if not moved & set(one.arguments))
        return replace(whole, arguments=arguments, metamorphic=related, reshaped=True)


def _shape(box: tuple[slice, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(len(range(*one.indices(size))) for one, size in zip(box, shape, strict=True))


def reduced(program: Program) -> Reduced:
    """Return a kernel's program with loops cut to their last iterations and arrays cut to what is still used; the
    whole program if nothing can be cut.
    """
    if _indirect(program):
        return whole(program)
    small = _sliced(program)
    names = [] if small is program else [f"{STORES} of its stores"]
    shrunk = True
    while shrunk:
        shrunk = False
        for loop in reversed(list(small.loops.values())):
            if _droppable(small, loop) and not verify(one := _cut(small, loop.id)):
                small, shrunk = one, True
                names.append(f"{loop.trips} at line {loop.line}")
    boxed, boxes = in_boxes(small)
    return whole(program) if verify(boxed) else Reduced(boxed, boxes, tuple(names))


def whole(program: Program) -> Reduced:
    """Return the whole program in the form of a reduced one."""
    return Reduced(program, tuple((slice(None),) * len(program.buffers[n].outer_shape) for n in program.inputs))


def _indirect(program: Program) -> bool:
    return bool(program.registers) or any(
        access.indirect for instruction, _ in program.walk() for access in instruction.accesses
    )


def _droppable(program: Program, loop: Loop) -> bool:
    """Tell whether the last iterations of a loop compute the outputs that they write without the other
    iterations, for any data.
    """
    if loop.trips <= KEPT or loop.kind not in (LoopKind.AFFINE, LoopKind.SEQUENTIAL):
        return False
    for number, uses in all_uses(program).items():
        inside = [use for use in uses if any(around.id == loop.id for around in use.loops)]
        writes = [use for use in inside if use.writes]
        if not writes:
            continue
        if number in program.outputs:
            if any(use.reads for use in uses) or not all(map(_moves(loop), writes)):
                return False
        elif (loop.kind is LoopKind.SEQUENTIAL and loop.id not in program.buffers[number].scope) or not _idle(
            program, loop, writes, [use for use in uses if use.reads and use not in inside]
        ):
            return False
    return True


def _moves(loop: Loop) -> Callable[[Use], bool]:
    """Return a function that tells whether an access has a different index in each iteration of the loop."""
    return lambda use: any(coef for start in use.access.start for one, coef in start.terms if one == loop.id)


def _idle(program: Program, loop: Loop, writes: Sequence[Use], reads: Sequence[Use]) -> bool:
    """Tell whether no remaining read sees what an early iteration writes, because their index ranges are
    disjoint in a dimension.
    """
    if not reads:
        return True
    trips = {number: one.trips for number, one in program.loops.items()}
    first = {**trips, loop.id: loop.trips - KEPT}
    wanted, made = ([extent(use.access, t) for use in of] for of, t in ((reads, trips), (writes, first)))
    return any(
        max(box[d][1] for box in made) < min(box[d][0] for box in wanted)
        or min(box[d][0] for box in made) > max(box[d][1] for box in wanted)
        for d in range(len(program.buffers[writes[0].access.buffer].shape))
    )


def _cut(program: Program, number: int) -> Program:
    """Return the program with only the last iterations of the loop with this number."""
    gone = program.loops[number].trips - KEPT

    def affine(value: Affine) -> Affine:
        return value + sum(coef * gone for loop, coef in value.terms if loop == number)

    def loop(one: Loop, body: tuple[Node, ...]) -> Node:
        return replace(one, trips=KEPT if one.id == number else one.trips, body=body)

    return mapped(program, affine, loop=loop)


def _sliced(program: Program) -> Program:
    """Return a program without loops, cut to its last few stores and the instructions that these need."""
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
