"""Find results that depend on which core of a launch runs faster.

The simulator runs the cores one after another, or in turns. On the chip, what two cores do between two barriers may
happen in any order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from acceld.nki.execute.buffers import BufferMemory
from acceld.nki.execute.context import Context, Step
from acceld.nki.execute.machine import Env, crash
from acceld.nki.execute.tiles import Tile
from acceld.nki.execute.windows import Window
from acceld.nki.ir.def_use import Use, reads_destination, uses_of
from acceld.nki.ir.numerics import COMMUTATIVE_OPS, Array
from acceld.nki.ir.operations import MEETINGS
from acceld.nki.ir.program import Access, Instruction, Loop, LoopKind, Program, Space

_HINT = "let each core use its own part, or put nisa.core_barrier between the two accesses"


@dataclass(frozen=True, slots=True)
class _Touched:
    """The record of what a core has done with each element of a buffer since its last barrier or exchange, as
    boolean arrays.

    - ``read``: the core read the element.
    - ``written``: the core changed the element's value.
    - ``stored``: the core wrote the element, perhaps with the value that was there.
    - ``varied``: the core wrote the element several times, with different values.
    - ``replaced``: the core read the element, and changed the element afterwards.
    - ``ways``: the elements that the core wrote, by the operation that combined the new value with the old one; "" for
      writes that replaced the old value, and for operations whose order matters.
    """

    read: Array
    written: Array
    stored: Array
    varied: Array
    replaced: Array
    ways: dict[str, Array] = field(default_factory=dict)


class Races:
    """Record what each core reads and writes in shared memory between two barriers or exchanges, and refuse conflicts
    between cores.

    A core that writes the value which an element already has changes nothing, so two cores may write equal values. Each
    core may read the value back, because the value is the same whichever core wrote last.
    """

    def __init__(self, program: Program, stores: Sequence[BufferMemory], slots: dict[int, int]) -> None:
        self._program, self._stores, self._slots = program, stores, slots
        spmd = {number for number, loop in program.loops.items() if loop.kind is LoopKind.SPMD}
        written = {dst.buffer for one, _ in program.walk() for dst in one.dsts}
        self._shared = {
            buffer.id
            for buffer in program.buffers
            if buffer.space is Space.HBM and buffer.id in written and not spmd & set(buffer.scope)
        }
        self._folded = {
            dst.buffer
            for one, _ in program.walk()
            for place, dst in enumerate(one.dsts)
            if reads_destination(one, place)
        }
        """Buffers that instructions add to. Two cores may add to one element, because the order of the additions does
        not matter. One core may not add to an element that the other one replaces.
        """
        lone = [node.id for node in program.body if isinstance(node, Loop) and node.id in spmd and node.trips == 1]
        self._turns = {loop: turn % max(1, program.lnc) for turn, loop in enumerate(lone)}
        self._around: dict[int, int] = {}
        """The launch loop around each instruction, by the instruction's ``id()``."""
        for one, loops in program.walk():
            launch = next((loop.id for loop in loops if loop.id in spmd), None)
            if launch is not None:
                self._around[id(one)] = launch
        self._meetings: dict[int, int] = defaultdict(int)
        self._touched: dict[tuple[int, int], dict[int, _Touched]] = {}

    def meet(self, cores: Sequence[int]) -> None:
        """Record that ``cores`` have met at a barrier or in an exchange of tiles."""
        for core in cores:
            self._meetings[core] += 1
            met = self._meetings[core]
            for key in [key for key in self._touched if key[1] < met - 1]:
                del self._touched[key]

    def checked(self, context: Context, step: Step) -> Step:
        """Return ``step`` with a check of the shared elements that the instruction reads or writes. The check raises
        KernelCrash for a conflict between two cores.
        """
        node = context.instruction
        launch = self._around.get(id(node))
        if launch is None:
            return step
        slot, fixed = self._slots[launch], self._turns.get(launch)
        if node.op in MEETINGS:

            def met(env: Env, window: Window) -> None:
                step(env, window)
                self.meet([env[slot] if fixed is None else fixed])

            return met
        uses = [use for use in uses_of(node, ()) if use.access.buffer in self._shared]
        if not uses:
            return step
        tiles = [(use, self._tile(context, use.access)) for use in uses]
        ways = [self._way(node, use) for use in uses]

        def run(env: Env, window: Window) -> None:
            core = env[slot] if fixed is None else fixed
            reached = [(use, tile, tile.positions(env, window)) for use, tile in tiles]
            for use, _, places in reached:
                if use.reads and not use.writes:
                    self._read(core, use.access.buffer, places, node)
            before = [_elements(tile)[places] if use.writes else None for use, tile, places in reached]
            step(env, window)
            for (use, tile, places), old, way in zip(reached, before, ways, strict=True):
                if old is not None:
                    self._write(core, use.access.buffer, places, _elements(tile)[places] != old, way, node)

        return run

    def _tile(self, context: Context, access: Access) -> Tile:
        node = context.instruction
        for number, src in enumerate(node.srcs):
            if src is access:
                return context.src(number, arranged=False)
        for number, dst in enumerate(node.dsts):
            if dst is access:
                return context.dst(number, arranged=False)
        return Tile(context.machine, access, context.trips, line=node.line)

    @staticmethod
    def _way(node: Instruction, use: Use) -> str:
        """Return the operation by which ``node`` combines its values with those in the destination ``use``; "" if the
        values replace the old ones, or if the order of such operations matters.
        """
        op = node.attr("rmw")
        return op if isinstance(op, str) and op in COMMUTATIVE_OPS and use.reads else ""

    def _of(self, core: int, buffer: int) -> tuple[_Touched, list[_Touched]]:
        """Return the record of ``core`` on a buffer since the last barrier or exchange, and the records of the other
        cores.
        """
        by_core = self._touched.setdefault((buffer, self._meetings[core]), {})
        if core not in by_core:
            size = self._stores[buffer].layout.elements
            by_core[core] = _Touched(*np.zeros((5, size), bool))
        return by_core[core], [touched for other, touched in by_core.items() if other != core]

    def _read(self, core: int, buffer: int, places: Array, node: Instruction) -> None:
        mine, others = self._of(core, buffer)
        mine.read[places] = True
        own = mine.stored[places] & (buffer not in self._folded)
        for other in others:
            both = places[other.written[places] & ~(own & ~other.varied[places])]
            if both.size:
                self._refuse(buffer, both, "a core reads {} that another core writes", "which value it reads", node)

    def _write(self, core: int, buffer: int, stored: Array, changed: Array, way: str, node: Instruction) -> None:
        mine, others = self._of(core, buffer)
        places = stored[changed]
        if buffer in self._folded:
            mine.ways.setdefault(way, np.zeros_like(mine.stored))[stored] = True
        mine.varied[places] |= mine.stored[places]
        mine.replaced[places] |= mine.read[places]
        mine.stored[stored] = True
        mine.written[places] = True
        for other in others:
            both = places[other.read[places]]
            if buffer not in self._folded:
                both = np.union1d(both, stored[other.replaced[stored]])
            if both.size:
                self._refuse(
                    buffer, both, "a core writes {} that another core reads", "which value that core reads", node
                )
            both = self._met(other, buffer, stored, places, way)
            if both.size:
                self._refuse(buffer, both, "two cores write different values to {}", "which value stays", node)

    def _met(self, other: _Touched, buffer: int, stored: Array, changed: Array, way: str) -> Array:
        """Return the elements to which a core writes what another core does not write in the same way: another value, or
        by another operation.
        """
        if buffer not in self._folded:
            return changed[other.stored[changed]]
        found = [np.zeros(0, np.int64)]
        for its, wrote in other.ways.items():
            if its != way:
                found.append(stored[wrote[stored]])
            elif not way:
                found.append(changed[wrote[changed]])
        return np.concatenate(found)

    def _refuse(self, buffer: int, places: Array, what: str, unknown: str, node: Instruction) -> NoReturn:
        one, layout = self._program.buffers[buffer], self._stores[buffer].layout
        elements = f"{places.size} elements of {one.name or f'tensor {one.id}'}"
        if layout.strides == one.strides:
            elements += f", the first at {[int(n) for n in np.unravel_index(int(places.min()), one.shape)]},"
        crash(
            f"{what.format(elements)} without a barrier between them: it is undefined {unknown}",
            "race",
            node.line,
            _HINT,
        )


def _elements(tile: Tile) -> Array:
    """Return the storage of a tile's buffer as unsigned integers, so that comparisons compare bits."""
    width = tile.layout.dtype.itemsize
    return tile.store.array.view(f"u{width}")
