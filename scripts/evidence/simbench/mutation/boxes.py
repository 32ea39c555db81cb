"""Cut the arrays of a program to the index ranges that the program uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from acceld.nki.ir.def_use import all_uses
from acceld.nki.ir.program import Access, Affine, Buffer, Instruction, Program, Role, Space, TileDim
from scripts.evidence.simbench.mutation.editing import mapped

Box = list[tuple[int, int]]


def in_boxes(program: Program) -> tuple[Program, tuple[tuple[slice, ...], ...]]:
    """Return the program with each array cut to the range that it uses, and these ranges of its arguments."""
    trips = {number: loop.trips for number, loop in program.loops.items()}
    boxes: dict[int, Box] = {}
    for number, uses in all_uses(program).items():
        buffer = program.buffers[number]
        if buffer.argument_shape is not None or buffer.role is Role.CONSTANT or any(u.access.indirect for u in uses):
            continue
        used = [use.access for use in uses if not _fills_all(use.instruction, use.access, buffer)]
        if used:
            boxes[number] = _box(buffer, used, trips)
    for number in program.inputs:
        boxes.setdefault(number, [(0, size) for size in program.buffers[number].shape])

    def access(one: Access) -> Access:
        box = boxes.get(one.buffer)
        if box is None:
            return one
        buffer = program.buffers[one.buffer]
        if _covers(one, buffer):
            dims = tuple(TileDim(_extent(dim, box), dim.steps) for dim in one.dims)
            return replace(one, start=(Affine(),) * len(box), dims=dims)
        return replace(one, start=tuple(s + -low for s, (low, _) in zip(one.start, box, strict=True)))

    def cut(one: Buffer) -> Buffer:
        box = boxes.get(one.id)
        return one if box is None else replace(one, shape=tuple(high - low for low, high in box))

    small = replace(mapped(program, lambda value: value, access), buffers=tuple(map(cut, program.buffers)))
    slices = (
        tuple(slice(low, high) for low, high in boxes[n])
        if program.buffers[n].argument_shape is None
        else (slice(None),) * len(program.buffers[n].outer_shape)
        for n in program.inputs
    )
    return small, tuple(slices)


def _extent(dim: TileDim, box: Box) -> int:
    (at,) = (d for d, step in enumerate(dim.steps) if step)
    return box[at][1] - box[at][0]


def _fills_all(instruction: Instruction, access: Access, buffer: Buffer) -> bool:
    return instruction.op == "memset" and bool(instruction.attr("lazy")) and _covers(access, buffer)


def _covers(access: Access, buffer: Buffer) -> bool:
    """Tell whether a tile is the whole buffer, with one axis for each dimension."""
    if any(start != Affine() for start in access.start):
        return False
    steps = [[(d, step) for d, step in enumerate(dim.steps) if step] for dim in access.dims]
    if sorted(steps) != [[(d, 1)] for d in range(len(buffer.shape))]:
        return False
    return all(dim.count == buffer.shape[one[0][0]] for dim, one in zip(access.dims, steps, strict=True))


def _box(buffer: Buffer, used: Sequence[Access], trips: Mapping[int, int]) -> Box:
    box: Box = []
    for d, size in enumerate(buffer.shape):
        on_chip = buffer.space is not Space.HBM
        if on_chip and d >= buffer.partition_axis % len(buffer.shape):
            box.append((0, size))
            continue
        reached = [extent(access, trips)[d] for access in used]
        box.append((max(0, min(low for low, _ in reached)), min(size, max(high for _, high in reached) + 1)))
    return box


def extent(access: Access, trips: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return the least and the greatest index that a tile reaches in each dimension, over all iterations."""
    found = []
    for d, start in enumerate(access.start):
        low, high = start.bounds(trips)
        reach = [dim.steps[d] * max(0, dim.count - 1) for dim in access.dims]
        found.append((low + sum(min(0, one) for one in reach), high + sum(max(0, one) for one in reach)))
    return found
