"""Check what happens to buffers over time: uses outside of their scope, reads of undefined elements, and iterations
that overwrite each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from acceld.nki.ir.def_use import Use, accumulation, is_product, reads_destination, reduce_loops
from acceld.nki.ir.numerics import COMMUTATIVE_OPS
from acceld.nki.ir.operations import REDUCE_OPS
from acceld.nki.ir.program import Access, Buffer, Instruction, Loop, LoopKind, Role, Space
from acceld.nki.ir.regions import Box, box, coefficient
from acceld.nki.verify.findings import Report
from acceld.nki.verify.likeness import Uses
from acceld.nki.verify.limits import RuleBook

_PAIRS = 4096
_ELEMENTS = 1 << 18
_BUDGET = 1 << 24


@dataclass(frozen=True, slots=True)
class _Write:
    use: Use
    order: int
    low: tuple[int, ...]
    high: tuple[int, ...]


class State:
    """Check, buffer by buffer, the scope, the order and the overlap of reads and writes."""

    def __init__(self, report: Report, rules: RuleBook, loops: Mapping[int, Loop]) -> None:
        self.report = report
        self.rules = rules
        self.loops = loops
        self.trips = {number: loop.trips for number, loop in loops.items()}
        self.budget = _BUDGET
        self._fine: set[object] = set()

    def check(self, buffer: Buffer, uses: Uses) -> None:
        """Check all uses of ``buffer`` against the rules. A buffer is skipped if another buffer with the same uses was
        already checked.
        """
        self.report.tick()
        form = uses.form(buffer.id) if buffer.space is not Space.HBM else None
        if form is not None and form in self._fine:
            return
        before = self.report.noted, self.budget
        self._check(buffer, uses.of(buffer.id))
        if form is not None and (self.report.noted, self.budget) == before:
            self._fine.add(form)

    def _check(self, buffer: Buffer, uses: Sequence[Use]) -> None:
        scoped = [use for use in uses if self._in_scope(buffer, use) and self._on_its_core(buffer, use)]
        if buffer.role in (Role.INPUT, Role.CONSTANT):
            self._not_written(buffer, scoped)
        if buffer.role in (Role.OUTPUT, Role.SCRATCH):
            self._defined(buffer, scoped)
        if buffer.space is Space.PSUM and not self.rules.accumulates_on_any_value:
            self._accumulation_starts(scoped)
        self._dependencies(buffer, scoped)

    def outputs(self, uses: Uses) -> None:
        """Add a finding for each output that no instruction writes."""
        for number in self.report.program.outputs:
            buffer = self.report.program.buffers[number]
            written = buffer.role is Role.INPUT or any(use.writes for use in uses.of(number))
            if buffer.elements and not written:
                self.report.add(
                    "undefined_output",
                    buffer,
                    f"output {buffer.name or number} is never written",
                    "store the result before returning it",
                )

    def views(self, uses: Mapping[int, Sequence[Use]]) -> None:
        """Check the order of writes to a tile and to its views of another width.

        After a view is taken, neither the tile nor the view may be written before the view is read. On the chip
        a view shares the memory of its tile. In a program the view is a copy, which is taken again after a
        write to the tile. What is written through the view must be written back to the tile by the next
        instruction.
        """
        pairs: dict[int, list[tuple[int, Use, Access]]] = {}
        """The copies between a view and its tile, by the view's buffer: the position in the program, the use that
        writes, and the tile.
        """
        for found in uses.values():
            for use in found:
                source = use.instruction.srcs[0] if use.instruction.op == "bitcast" else None
                if not isinstance(source, Access) or not use.writes:
                    continue
                view, tile = (source, use.access) if use.instruction.attr("back") else (use.access, source)
                pairs.setdefault(view.buffer, []).append((use.position, use, tile))
        reads: dict[int, list[Use]] = {}
        for number, carried in sorted(pairs.items(), key=lambda item: -min(position for position, _, _ in item[1])):
            self.report.tick()
            carried.sort(key=lambda one: one[0])
            tile = carried[0][2]
            mine = [use for use in uses[number] if use.reads] + reads.get(number, [])
            reads.setdefault(tile.buffer, []).extend(mine)
            own = {id(use.instruction) for _, use, _ in carried}
            given = {
                (position, use.loops)
                for position, use, _ in carried
                if use.instruction.attr("back") and self._whole(use.instruction.srcs[0])
            }
            family = {tile.buffer, *(view for view, of in pairs.items() if of[0][2].buffer == tile.buffer)} - {number}
            for use in uses[number]:
                if not use.writes or id(use.instruction) in own:
                    continue
                if (use.position + 1, use.loops) not in given:
                    self._stale(use, "a view of another width")
                if any(isinstance(src, Access) and src.buffer in family for src in use.instruction.srcs):
                    self._stale(use, f"a view of {self.report.name(tile)}, which the instruction reads otherwise,")
            for _, use, other in carried[1:]:
                if other != tile:
                    self._stale(
                        use, f"a view that stands for both {self.report.name(tile)} and {self.report.name(other)}"
                    )
            self._between(tile, carried, mine, uses.get(tile.buffer, ()))

    def _between(
        self,
        tile: Access,
        carried: Sequence[tuple[int, Use, Access]],
        mine: Sequence[Use],
        tile_uses: Sequence[Use],
    ) -> None:
        """Add a finding if ``tile`` is written between the moment when its view is taken and the reads of that view.

        ``carried`` has the copies between tile and view, which may write the tile. ``mine`` has the reads of the view.
        """
        own = {id(use.instruction) for _, use, _ in carried}
        for place, (position, start, _) in enumerate(carried):
            following = carried[place + 1][0] if place + 1 < len(carried) else None
            during = [
                use for use in mine if use.position > position and (following is None or use.position <= following)
            ]
            last = max((use.position for use in during), default=-1)
            around = {loop.id for use in during for loop in use.loops} - {loop.id for loop in start.loops}
            for use in tile_uses:
                later = position < use.position < last or any(loop.id in around for loop in use.loops)
                if use.writes and id(use.instruction) not in own and later and self._meet(tile, use.access):
                    self._stale(use, f"{self.report.name(use.access)}, of which a view of another width is read later,")

    def _whole(self, operand: object) -> bool:
        """Tell whether ``operand`` is an access of all elements of its buffer."""
        return isinstance(operand, Access) and operand.elements == self.report.buffer(operand).elements

    def _stale(self, use: Use, what: str) -> None:
        self.report.add(
            "view_written",
            use.instruction,
            f"{what} is written to",
            "take the view again after the write, or copy the tile first",
        )

    def _meet(self, one: Access, other: Access) -> bool:
        """Tell whether two accesses of a buffer may share an element in the same iteration of the loops around both."""
        if one.indirect or other.indirect:
            return True
        first, second = box(one), box(other)
        if first.empty or second.empty:
            return False
        for start, size, begin, extent in zip(first.starts, first.extents, second.starts, second.extents, strict=True):
            low, high = (begin + start.scale(-1)).bounds(self.trips)
            if low >= size or high + extent <= 0:
                return False
        return True

    def _in_scope(self, buffer: Buffer, use: Use) -> bool:
        around = {loop.id for loop in use.loops}
        if set(buffer.scope) <= around:
            return True
        self.report.add(
            "local_scope",
            use.instruction,
            f"Local variable '{buffer.name or buffer.id}' is referenced outside of its parent scope",
            "declare it before the loop",
        )
        return False

    def _on_its_core(self, buffer: Buffer, use: Use) -> bool:
        """Tell whether ``use`` is legal on its core. A core may use only on-chip tiles that it declares itself."""
        if self.report.program.lnc == 1 or buffer.space is Space.HBM or buffer.role is Role.CONSTANT:
            return True
        if all(loop.kind is not LoopKind.SPMD or loop.id in buffer.scope for loop in use.loops):
            return True
        self.report.add(
            "local_scope",
            use.instruction,
            f"{self.report.name(use.access)} is not declared by the core that uses it: no core reaches the other core's SBUF and PSUM",
            "declare the tile on each core, and exchange values through nl.shared_hbm or nisa.sendrecv",
        )
        return False

    def _not_written(self, buffer: Buffer, uses: Sequence[Use]) -> None:
        if buffer.role is Role.INPUT and buffer.written_input:
            return
        for use in uses:
            if use.writes:
                self.report.add(
                    "input_written",
                    use.instruction,
                    f"{buffer.role.value} {buffer.name or buffer.id} is written",
                    "write to an output of its own, or return the argument to update it in place",
                )

    def _bounds(self, access: Access) -> tuple[tuple[int, ...], tuple[int, ...]]:
        buffer = self.report.buffer(access)
        if access.indirect:
            return (0,) * len(buffer.shape), tuple(size - 1 for size in buffer.shape)
        region = box(access)
        lows, highs = [], []
        for start, extent in zip(region.starts, region.extents, strict=True):
            low, high = start.bounds(self.trips)
            lows.append(low)
            highs.append(high + extent - 1)
        return tuple(lows), tuple(highs)

    def _defined(self, buffer: Buffer, uses: Sequence[Use]) -> None:
        """Add a finding for each read before which no write can have happened. The search does not find every
        undefined read.
        """
        writes = [
            _Write(use, order, *self._bounds(use.access))
            for order, use in enumerate(uses)
            if use.writes and (not _needs_value(use) or use.reduce_loops)
        ]
        reads = [(order, use) for order, use in enumerate(uses) if _needs_value(use)]
        if not reads:
            return
        exact = len(writes) * len(reads) <= _PAIRS
        first = min((write.order for write in writes), default=None)
        for order, use in reads:
            if any(dim.count == 0 for dim in use.access.dims) or use.instruction.op in ("print", "barrier"):
                continue
            if any(_on_another_core(write.use, use) for write in writes):
                # the other core may write first, and only a run of the program shows whether a barrier orders the write
                # and the read
                continue
            low, high = self._bounds(use.access)
            if exact:
                fine = any(self._may_precede(buffer, write, order, use, low, high) for write in writes)
            else:
                fine = first is not None and (first < order or any(loop.id not in buffer.scope for loop in use.loops))
            if not fine:
                self.report.add(
                    "undefined_read",
                    use.instruction,
                    f"{self.report.name(use.access)} is read by {use.instruction.op} but never written before",
                    "write or initialize it first",
                )

    def _accumulation_starts(self, uses: Sequence[Use]) -> None:
        """Add a finding if matrix products add to values of a fill or a copy, which no product has overwritten before."""
        writes = [use for use in uses if use.writes]
        adding = [use for use in writes if _needs_value(use) and is_product(use.instruction)]
        started = any(is_product(use.instruction) and not _needs_value(use) for use in writes)
        filled = any(not is_product(use.instruction) for use in writes)
        if adding and filled and not started:
            self.report.add(
                "psum_accumulate",
                adding[0].instruction,
                "a product is accumulated on data that no product wrote, which is undefined on this chip",
                "write the first product with accumulate=False",
            )

    def _may_precede(
        self, buffer: Buffer, write: _Write, order: int, read: Use, low: tuple[int, ...], high: tuple[int, ...]
    ) -> bool:
        if any(most < least for least, most in zip(low, write.high, strict=True)) or any(
            most < least for least, most in zip(write.low, high, strict=True)
        ):
            return False
        if write.order < order:
            return True
        together = {loop.id for loop in read.loops} & {loop.id for loop in write.use.loops}
        return any(self.trips[loop] > 1 for loop in together - set(buffer.scope))

    def _dependencies(self, buffer: Buffer, uses: Sequence[Use]) -> None:
        for number, use in enumerate(uses):
            if number % 64 == 0:
                self.report.tick()
            if not use.writes or use.indirect or use.access.elements == 0:
                continue
            affine = [
                loop
                for loop in use.loops
                if loop.kind is LoopKind.AFFINE and loop.trips > 1 and loop.id not in buffer.scope
            ]
            if not affine or _accumulates(use.instruction, use.access):
                continue
            folded = set(reduce_loops(use.instruction)) if use.reduce_loops else set()
            guarded = {loop for pattern in use.instruction.mask for loop, _ in pattern.base.terms}
            free = [loop for loop in affine if loop.id not in folded]
            missing = [
                loop
                for loop in free
                if loop.id not in guarded and not any(coefficient(start, loop.id) for start in use.access.start)
            ]
            if missing:
                names = ", ".join(loop.name or f"i{loop.id}" for loop in missing)
                self._overlap(use, f"missing indices in the dst access: {names}")
                continue
            region = box(use.access)
            unproved = [loop for loop in free if loop.id not in guarded and not self._separate(region, loop, use)]
            if unproved and not guarded and not folded and self._collides(buffer, use, unproved):
                names = ", ".join(loop.name or f"i{loop.id}" for loop in unproved)
                self._overlap(use, f"iterations of {names} write the same elements")

    def _overlap(self, use: Use, what: str) -> None:
        self.report.add(
            "output_dependency",
            use.instruction,
            f"Unexpected output dependencies, {what} (writing {self.report.name(use.access)})",
            "index the destination with the loop variable, or use nl.sequential_range",
        )

    def _separate(self, region: Box, loop: Loop, use: Use) -> bool:
        """Tell whether it is proved that, in some dimension, each iteration of ``loop`` writes indices that no other
        iteration writes.
        """
        others = [other for other in use.loops if other.id != loop.id]
        for start, extent in zip(region.starts, region.extents, strict=True):
            coef = abs(coefficient(start, loop.id))
            if not coef:
                continue
            reach, larger = extent, []
            for other in others:
                size = abs(coefficient(start, other.id))
                if size > coef:
                    larger.append((size, other.trips))
                elif size:
                    reach += size * max(0, other.trips - 1)
            if coef < reach:
                continue
            reach += coef * max(0, loop.trips - 1)
            apart = True
            for size, trips in sorted(larger):
                apart = apart and size >= reach
                reach += size * max(0, trips - 1)
            if apart:
                return True
        return False

    def _collides(self, buffer: Buffer, use: Use, loops: Sequence[Loop]) -> bool:
        """Tell whether counting proves that two iterations of ``loops`` write the same element.

        Return False, too, if counting would take too long.
        """
        total = use.access.elements
        for loop in loops:
            total *= loop.trips
        if total > _ELEMENTS or total > self.budget:
            return False
        self.budget -= total
        flat = np.zeros(1, np.int64)
        for loop in loops:
            step = sum(
                coefficient(start, loop.id) * stride
                for start, stride in zip(use.access.start, buffer.strides, strict=True)
            )
            flat = (flat[:, None] + np.arange(loop.trips, dtype=np.int64) * step).reshape(-1)
        tile = np.zeros(1, np.int64)
        for dim in use.access.dims:
            step = sum(s * stride for s, stride in zip(dim.steps, buffer.strides, strict=True))
            tile = (tile[:, None] + np.arange(dim.count, dtype=np.int64) * step).reshape(-1)
        tile = np.unique(tile)
        every = (flat[:, None] + tile).reshape(-1)
        return bool(np.unique(every).size != every.size)


def _on_another_core(one: Use, other: Use) -> bool:
    """Tell whether two uses belong to the programs of different cores."""
    if not one.loops or not other.loops or one.loops[0].id == other.loops[0].id:
        return False
    return all(use.loops[0].kind is LoopKind.SPMD for use in (one, other))


def _needs_value(use: Use) -> bool:
    """Tell whether a use needs the values that the buffer had before.

    A product with accumulate 'auto' does not need them, because its first write to an element overwrites.
    """
    if not use.reads:
        return False
    if use.writes and is_product(use.instruction):
        return accumulation(use.instruction) == "yes"
    return True


def _accumulates(instruction: Instruction, dst: Access) -> bool:
    """Tell whether the write adds to the values of ``dst`` so that the order of iterations does not matter."""
    if is_product(instruction):
        return accumulation(instruction) != "no"
    if any(reads_destination(instruction, number) for number, one in enumerate(instruction.dsts) if one == dst):
        return True
    if instruction.op == "copy_predicated" or instruction.op in ("random", "dropout"):
        return instruction.op == "copy_predicated"
    if dst not in instruction.srcs:
        return False
    ops = [instruction.attr(key) for key in ("op", "op0", "op1")]
    used = [op for op in ops if isinstance(op, str)]
    return bool(used) and all(op in COMMUTATIVE_OPS or op in REDUCE_OPS or op == "bypass" for op in used)
