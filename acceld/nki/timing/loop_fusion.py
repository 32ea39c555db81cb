"""Fuse loops as the legacy compiler does: a loop that writes values to SBUF and a later loop that uses them become one
loop.

Two affine loops with equal numbers of iterations are fused under one condition. In every buffer that one of the loops
writes, iteration i of the second loop may touch only what iteration i of the first loop touches. Loads between the
loops move before the fused loop. Values are then used soon after they are written, and need not be spilled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from acceld.nki.ir.def_use import reduce_command
from acceld.nki.ir.mapping import mapped
from acceld.nki.ir.places import sharing
from acceld.nki.ir.program import Access, Affine, Instruction, Loop, LoopKind, Node, Program, Space
from acceld.nki.timing.buffer_pieces import extent
from acceld.nki.timing.cost import DMA_OPS
from acceld.nki.timing.expansion import accumulating

MAX_PAIRS = 10_000
"""Greatest number of pairs of accesses that are compared for one buffer. Loops with more pairs are not fused."""


def fuse(program: Program) -> Program:
    """Return the program with fused loops; ``program`` itself if no two loops can be fused.

    A program with tiles that share an address is not changed, because the order of these tiles matters.
    """
    if sharing(program):
        return program
    fuser = _Fuser(program)
    body = fuser.body(program.body)
    if not fuser.renamed:
        return program
    buffers = tuple(replace(b, scope=tuple(fuser.final(loop) for loop in b.scope)) for b in program.buffers)
    return replace(program, body=body, buffers=buffers)


class _Fuser:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.trips = {number: loop.trips for number, loop in program.loops.items()}
        self.folding = accumulating(node for node, _ in program.walk())
        self.renamed: dict[int, int] = {}

    def final(self, loop: int) -> int:
        """Return the id of the loop into which ``loop`` was fused; ``loop`` itself if it was not fused."""
        while loop in self.renamed:
            loop = self.renamed[loop]
        return loop

    def body(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return ``nodes`` with their loops fused. Outer loops are fused before the loops inside them."""
        work = list(nodes)
        at = 0
        while at < len(work):
            node = work[at]
            found = self._partner(work, at) if isinstance(node, Loop) else None
            if found is None:
                at += 1
                continue
            first, second = work[at], work[found]
            assert isinstance(first, Loop) and isinstance(second, Loop)
            between = work[at + 1 : found]
            self.renamed[second.id] = first.id
            moved = tuple(_renamed(child, second.id, first.id) for child in second.body)
            work[at : found + 1] = [*between, replace(first, body=(*first.body, *moved))]
            at += len(between)
        return tuple(replace(n, body=self.body(n.body)) if isinstance(n, Loop) else n for n in work)

    def _partner(self, work: list[Node], at: int) -> int | None:
        """Return the index in ``work`` of a later loop to fuse with the loop at ``at``; None if no later loop can be
        fused.
        """
        first = work[at]
        assert isinstance(first, Loop)
        if first.kind is not LoopKind.AFFINE or first.trips < 2:
            return None
        made = {buffer for buffer in _written(first) if self.program.buffers[buffer].space is Space.SBUF}
        touched = _touched(first)
        for position in range(at + 1, len(work)):
            node = work[position]
            same = isinstance(node, Loop) and node.kind is LoopKind.AFFINE and node.trips == first.trips
            if same and isinstance(node, Loop) and made & _touched(node) and self._legal(first, node):
                return position
            if not _only_loads(node) or _touched(node) & _written(first) or _written(node) & touched:
                return None
        return None

    def _legal(self, first: Loop, second: Loop) -> bool:
        folds = [{i.engine for i in _instructions(loop) if reduce_command(i) != "idle"} for loop in (first, second)]
        if folds[0] & folds[1] & self.folding:
            return False
        shared = (_written(first) & _touched(second)) | (_touched(first) & _written(second))
        for buffer in shared:
            mine = {access for access in _accesses(first) if access.buffer == buffer}
            theirs = {access for access in _accesses(second) if access.buffer == buffer}
            if len(mine) * len(theirs) > MAX_PAIRS:
                return False
            if not all(self._same_iteration(a, first.id, b, second.id) for a in mine for b in theirs):
                return False
        return True

    def _same_iteration(self, a: Access, loop_a: int, b: Access, loop_b: int) -> bool:
        """Tell whether two accesses share elements only where both loops are in the same iteration."""
        if a.indirect or b.indirect:
            return False
        for dim, (start_a, start_b) in enumerate(zip(a.start, b.start, strict=True)):
            coef = dict(start_a.terms).get(loop_a, 0)
            if coef <= 0 or dict(start_b.terms).get(loop_b, 0) != coef:
                continue
            low_a, high_a = self._reach(a, dim, loop_a)
            low_b, high_b = self._reach(b, dim, loop_b)
            if max(high_a, high_b) - min(low_a, low_b) < coef:
                return True
        return False

    def _reach(self, access: Access, dim: int, without: int) -> tuple[int, int]:
        start = access.start[dim]
        rest = Affine(start.const, tuple(term for term in start.terms if term[0] != without))
        low, high = rest.bounds(self.trips)
        covered = extent(access, dim)
        return low + covered.starts[0], high + covered.starts[-1] + covered.run - 1


def _instructions(node: Node) -> Iterator[Instruction]:
    if isinstance(node, Loop):
        for child in node.body:
            yield from _instructions(child)
    else:
        yield node


def _accesses(node: Node) -> Iterator[Access]:
    for instruction in _instructions(node):
        yield from instruction.accesses


def _touched(node: Node) -> set[int]:
    return {access.buffer for access in _accesses(node)}


def _written(node: Node) -> set[int]:
    return {dst.buffer for instruction in _instructions(node) for dst in instruction.dsts}


def _only_loads(node: Node) -> bool:
    return all(instruction.op in DMA_OPS for instruction in _instructions(node))


def _renamed(node: Node, old: int, new: int) -> Node:
    """Return ``node`` with loop ``old`` replaced by loop ``new``: a part of the body of ``old`` becomes a part of the
    body of ``new``.
    """

    def renamed(loop: int) -> int:
        return new if loop == old else loop

    def affine(value: Affine) -> Affine:
        return Affine(value.const, tuple(sorted((renamed(loop), coef) for loop, coef in value.terms)))

    return mapped(node, affine, loop=renamed)
