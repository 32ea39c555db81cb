"""Fuse and divide loops as the legacy compiler does.

**Fuse** (:func:`fuse`): a loop that writes values to SBUF and a later loop that uses them become one loop. Two affine
loops with equal numbers of iterations are fused under one condition. In every buffer that one of the loops writes,
iteration i of the second loop may touch only what iteration i of the first loop touches. Loads between the loops move
before the fused loop. Values are then used soon after they are written, and need not be spilled.

**Divide** (:func:`divide`): an affine loop with a narrow instruction, such as the maximum of a row's partial maxima, becomes
several loops: the work before that instruction for a group of iterations, the narrow instructions of the group, and the
work behind them for the group. So the work behind waits until the work before is done for the whole group. Source: ten
profiles of allenkchau/trainium-kernel-fusion (trn2, SDK of early 2026). Where the kernel has one reciprocal for each of 8 or
4 rows of tiles, the profiles have one for all rows, or one for each 4 rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from math import ceil, prod

from acceld.chips import ChipSpec, chip_spec
from acceld.nki.ir.def_use import reduce_command
from acceld.nki.ir.mapping import mapped
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.places import sharing
from acceld.nki.ir.program import Access, Affine, Buffer, Instruction, Loop, LoopKind, Node, Program, Space, TileDim
from acceld.nki.timing.buffer_pieces import extent
from acceld.nki.timing.compiler_legacy import MERGED_OPS
from acceld.nki.timing.cost import DMA_OPS
from acceld.nki.timing.expansion import accumulating

MAX_PAIRS = 10_000
"""Greatest number of pairs of accesses that are compared for one buffer. Loops with more pairs are neither fused nor
divided.
"""
NARROW_ELEMENTS = 64
"""Greatest number of elements of a partition that a narrow instruction reads: the engine needs no longer for them than its
least initiation interval (:attr:`TimelineParams.min_interval_cycles`).
"""


def divide(program: Program, sbuf_reserved_bytes: int) -> Program:
    """Return the program with its loops divided at their narrow instructions; ``program`` itself if there is no such loop.

    A group has as many iterations as divide the loop evenly, under two conditions. The values that pass between the parts
    fit SBUF together, without the ``sbuf_reserved_bytes`` of each partition. The results in PSUM that lead to the narrow
    instructions fit PSUM together. A program with tiles that share an address is not changed.
    """
    if sharing(program):
        return program
    divider = _Divider(program, sbuf_reserved_bytes)
    body = divider.body(program.body)
    return replace(program, body=body, buffers=tuple(divider.buffers)) if divider.divided else program


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
            if not all(self.same_iteration(a, first.id, b, second.id) for a in mine for b in theirs):
                return False
        return True

    def same_iteration(self, a: Access, loop_a: int, b: Access, loop_b: int) -> bool:
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


class _Divider:
    def __init__(self, program: Program, sbuf_reserved_bytes: int) -> None:
        self.chip: ChipSpec = chip_spec(program.chip)
        self.room = self.chip.sbuf_bytes_per_partition - sbuf_reserved_bytes
        self.fuser = _Fuser(program)
        self.buffers: list[Buffer] = list(program.buffers)
        self.next = max(program.loops, default=0) + 1
        self.divided = False

    def body(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return ``nodes`` with their loops divided. Inner loops are divided before the loops around them."""
        return tuple(self._loop(replace(n, body=self.body(n.body))) if isinstance(n, Loop) else n for n in nodes)

    def _loop(self, loop: Loop) -> Loop:
        """Return ``loop`` divided; ``loop`` itself if it can not be divided, or if its groups would have one iteration."""
        parts = [list(part) for _, part in groupby(loop.body, self._is_narrow)]
        if loop.kind is not LoopKind.AFFINE or loop.trips < 2 or len(parts) < 2 or self._folds(loop):
            return loop
        uses = Counter(buffer for part in parts for buffer in set().union(*map(_touched, part)))
        own = {buffer for buffer in uses if loop.id in self.buffers[buffer].scope}
        passed = {buffer for buffer in own if uses[buffer] > 1}
        if not all(map(self._can_grow, passed)) or not self._independent(loop, parts, set(uses) - own):
            return loop
        group = self._group(loop, parts, passed)
        return loop if group < 2 else self._apart(loop, parts, own, passed, group)

    def _is_narrow(self, node: Node) -> bool:
        """Tell whether ``node`` computes one element of each partition from few elements of tiles in SBUF alone."""
        if not isinstance(node, Instruction) or node.op not in MERGED_OPS or node.mask or len(node.dsts) != 1:
            return False
        if any(access.indirect or self.buffers[access.buffer].space is not Space.SBUF for access in node.accesses):
            return False
        widest = max(prod(access.shape[1:]) for access in node.accesses)
        return prod(node.dsts[0].shape[1:]) == 1 and widest <= NARROW_ELEMENTS

    def _folds(self, loop: Loop) -> bool:
        """Tell whether an engine keeps a sum across the loop's instructions, whose order then must not change."""
        nodes = list(_instructions(loop))
        folding = self.fuser.folding
        return any(reduce_command(node) != "idle" and node.engine in folding for node in nodes) or any(
            loop.id in found for node in nodes if isinstance(found := node.attr("loops"), tuple)
        )

    def _can_grow(self, number: int) -> bool:
        """Tell whether buffer ``number`` can have a tile for each iteration of a group: it is on the chip."""
        buffer = self.buffers[number]
        return buffer.space is not Space.HBM and not buffer.places

    def _independent(self, loop: Loop, parts: Sequence[Sequence[Node]], outer: set[int]) -> bool:
        """Tell whether the parts of different iterations touch different elements of the buffers declared outside of the
        loop.
        """
        for buffer in outer & _written(loop):
            found = [{a for node in part for a in _accesses(node) if a.buffer == buffer} for part in parts]
            for one, other in combinations(found, 2):
                if len(one) * len(other) > MAX_PAIRS:
                    return False
                if not all(self.fuser.same_iteration(a, loop.id, b, loop.id) for a in one for b in other):
                    return False
        return True

    def _group(self, loop: Loop, parts: Sequence[Sequence[Node]], passed: set[int]) -> int:
        """Return the number of iterations of a group."""
        last = max(at for at, part in enumerate(parts) if self._is_narrow(part[0]))
        banks = max((ceil(self._psum_bytes(part) / self.chip.psum_bank_bytes) for part in parts[:last]), default=0)
        kept = sum(self._bytes(buffer) for buffer in passed if self.buffers[buffer].space is Space.SBUF)
        most = min(
            loop.trips,
            self.chip.psum_banks // banks if banks else loop.trips,
            self.room // kept if kept else loop.trips,
        )
        return max((count for count in range(1, most + 1) if loop.trips % count == 0), default=1)

    def _psum_bytes(self, part: Sequence[Node]) -> int:
        """Return the bytes of a partition of PSUM that one iteration of ``part`` writes."""
        found: dict[int, int] = {}

        def visit(node: Node, around: dict[int, int]) -> None:
            if isinstance(node, Loop):
                for child in node.body:
                    visit(child, around | {node.id: node.trips})
                return
            for dst in node.dsts:
                buffer = self.buffers[dst.buffer]
                if buffer.space is Space.PSUM:
                    found[dst.buffer] = self._bytes(dst.buffer) * prod(around.get(one, 1) for one in buffer.scope)

        for node in part:
            visit(node, {})
        return sum(found.values())

    def _bytes(self, number: int) -> int:
        """Return the bytes that buffer ``number``, which is on the chip, takes in each partition."""
        buffer = self.buffers[number]
        return buffer.elements // buffer.shape[buffer.partition_axis] * DTYPE_BYTES[buffer.dtype]

    def _apart(self, loop: Loop, parts: Sequence[Sequence[Node]], own: set[int], passed: set[int], group: int) -> Loop:
        """Return a loop over the groups with one loop for each part.

        Buffers of ``own`` are declared in ``loop``. Those of ``passed`` get a tile for each iteration of a group, because
        several parts use them.
        """
        loops = []
        for part in parts:
            number, self.next = self.next, self.next + 1
            body = tuple(self._grown(_strided(node, loop.id, number, group), passed, number) for node in part)
            loops.append(Loop(number, loop.name, group, loop.kind, body, loop.line))
            for buffer in set().union(*map(_touched, part)) & (own - passed):
                scope = self.buffers[buffer].scope
                at = scope.index(loop.id) + 1
                self.buffers[buffer] = replace(self.buffers[buffer], scope=(*scope[:at], number, *scope[at:]))
        for one in passed:
            old = self.buffers[one]
            self.buffers[one] = replace(old, shape=(group, *old.shape), partition_axis=old.partition_axis + 1)
            self.fuser.trips[number] = group
        self.fuser.trips[loop.id] = loop.trips // group
        self.divided = True
        return replace(loop, trips=loop.trips // group, body=tuple(loops))

    def _grown(self, node: Node, passed: set[int], loop: int) -> Node:
        """Return ``node`` with its accesses to the buffers ``passed`` moved to the tile of the iteration of ``loop``."""
        if isinstance(node, Loop):
            return replace(node, body=tuple(self._grown(child, passed, loop) for child in node.body))

        def access(one: Access) -> Access:
            indirect = tuple(i if i.index is None else replace(i, index=access(i.index)) for i in one.indirect)
            if one.buffer not in passed:
                return replace(one, indirect=indirect)
            return replace(
                one,
                start=(Affine(0, ((loop, 1),)), *one.start),
                dims=tuple(TileDim(dim.count, (0, *dim.steps)) for dim in one.dims),
                indirect=tuple(replace(i, dim=i.dim + 1) for i in indirect),
            )

        srcs = tuple(access(src) if isinstance(src, Access) else src for src in node.srcs)
        return replace(node, dsts=tuple(map(access, node.dsts)), srcs=srcs)


def _strided(node: Node, old: int, new: int, group: int) -> Node:
    """Return ``node`` with the variable of loop ``old`` replaced by ``group`` times that variable plus the variable of loop
    ``new``.
    """

    def affine(value: Affine) -> Affine:
        coef = dict(value.terms).get(old, 0)
        return value + Affine(0, ((old, coef * (group - 1)), (new, coef))) if coef else value

    return mapped(node, affine)


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
