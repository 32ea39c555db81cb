"""Unroll a program into events, and number each result by its value.

An *event* is one execution of an instruction. A *repeat* is an event that performs the same operation on the
same values as an earlier event. A repeat makes no new values: its destination cells take the values of the
earlier event.

The values of a repeat stay where the earlier event wrote them. But one access of several cells needs all their
values side by side. If repeats have left these values scattered, the program is unrolled again, with a stricter
rule for the instructions of those repeats: an event is a repeat only if the earlier event wrote the same cells.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from acceld.nki.ir.program import Engine, Loop, Node, Space
from acceld.nki.timing.buffer_pieces import CellAccess
from acceld.nki.timing.expansion import Prepared, Template

PLACES = 2
"""Number of memory places that a tile alternates between if it is written again while it is in scope (legacy compiler).

Two places agree with the measured limits of nki-samples' pooling kernels, in which a load starts twice in the time of a
load and a reduction. One place does not agree with them, and neither do as many places as fit SBUF.
"""


@dataclass(slots=True)
class Kind:
    """The properties of all values that one access of an instruction writes."""

    template: Template
    bytes: float
    """Bytes of each value in one partition; 0 in HBM."""
    row: int
    """Bytes of each value in each partition that the value spans."""
    space: Space
    loaded: bool


@dataclass(slots=True)
class Stream:
    """The events of a program in order of execution, and their values, as parallel lists."""

    templates: list[Template] = field(default_factory=list)
    variants: list[int] = field(default_factory=list)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    """Values that each event reads, on chip or in HBM that the program writes."""
    outputs: list[tuple[int, ...]] = field(default_factory=list)
    replaced: list[tuple[int, ...]] = field(default_factory=list)
    """Values that each event overwrites in place; () if the compiler puts the event's results at a new address."""
    repeat: list[bool] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    """Number of each event among the executions of its instruction, counting those that a mask excludes."""
    kinds: list[Kind] = field(default_factory=list)
    value_kind: list[int] = field(default_factory=list)
    """The index in ``kinds`` of each value's kind."""
    value_event: list[int] = field(default_factory=list)
    """The event that first computed each value."""

    def kind(self, value: int) -> Kind:
        """Return the kind of ``value``. All values that one access of an instruction writes are of one kind."""
        return self.kinds[self.value_kind[value]]


def expand(prepared: Prepared, *, numbering: bool) -> Stream:
    """Return the events of ``prepared``. With ``numbering``, repeats are found and marked."""
    expander = _Expander(prepared, numbering)
    stream = expander.run()
    if expander.scattered:
        expander = _Expander(prepared, numbering, expander.scattered)
        stream = expander.run()
    # the second pass found more scattered values, which repeats in the first pass had hidden; so number once more
    if expander.scattered:
        stream = _Expander(prepared, numbering, prepared.templates).run()
    return stream


_Moved = dict[int, tuple[int, int, int]]
"""For each cell whose value lies in another cell: the buffer with that other cell, the distance between the two cells,
and the number of the instruction whose repeat gave the cell its value.
"""
_Cells = tuple[dict[int, int], list[int], tuple[int, ...], _Moved]
"""The tables that an access looks up: values by cell, the first cell of each execution, the offsets of further cells,
and the cells whose values lie elsewhere.
"""


@dataclass(slots=True)
class _Site:
    """One instruction in the tree of loops, with what its executions read: their cells and costs."""

    template: Template
    reads: list[_Cells]
    writes: list[_Cells]
    kinds: list[int]
    """Index of the kind of the values that each access writes."""
    signature: int
    """A number that two instructions share if they compute the same results from equal values and equal ``given``; -1
    for an instruction that is never merged.
    """
    given: list[tuple[object, ...]] | None
    """The numbers of each execution that depend on loop variables; None if the instruction has no such numbers."""
    in_place: bool = False
    """True if an execution counts as a repeat only of an execution that wrote the same cells."""
    executed: int = 0


class _Expander:
    def __init__(self, prepared: Prepared, numbering: bool, in_place: Collection[int] = ()) -> None:
        self.prepared = prepared
        self.numbering = numbering
        self.in_place = in_place
        """Numbers of the instructions for which an execution counts as a repeat only if it writes the same cells as the
        earlier one.
        """
        self.scattered: set[int] = set()
        """Numbers of the instructions whose repeated values are not side by side with values that are read together
        with them.
        """
        self.stream = Stream()
        buffers = prepared.program.buffers
        self.cells: list[dict[int, int]] = [{} for _ in buffers]
        self.moved: list[_Moved] = [{} for _ in buffers]
        self.known: dict[object, tuple[int, ...]] = {}
        self.iteration: dict[int, int] = {}
        """Current iteration of each running loop."""
        self.fresh: dict[int, list[dict[int, int]]] = defaultdict(list)
        """The cells of the buffers that are declared in a loop, by the loop."""
        for buffer in buffers:
            if buffer.scope:
                self.fresh[buffer.scope[-1]].append(self.cells[buffer.id])
        self.accumulators: dict[Engine, dict[int, int]] = defaultdict(dict)
        """Values in the accumulators of each engine, by the number of partitions that were accumulated."""
        self.rewritten: set[int] = set()
        """Buffers that were written again while they were in scope."""
        self.places: dict[tuple[int, int], deque[tuple[int, ...]]] = {}
        """The newest values written to each place of a rewritten buffer, oldest first, by (buffer, first cell)."""
        self.outermost = 0
        """Number of the first event of the current outermost loop."""
        self.signatures: dict[object, int] = {}
        self.order = iter(prepared.templates)
        self.tree = self._index(prepared.program.body)

    def _index(self, body: tuple[Node, ...]) -> list[_Site | tuple[int, int, list[Any]]]:
        """Return ``body`` as a tree: a :class:`_Site` for each instruction, and (loop, trips, tree of its body)
        for each loop.
        """
        return [
            (node.id, self.prepared.trips[node.id], self._index(node.body))
            if isinstance(node, Loop)
            else self._site(self.prepared.templates[next(self.order)])
            for node in body
        ]

    def _site(self, template: Template) -> _Site:
        grids, buffers = self.prepared.grids, self.prepared.program.buffers
        kinds = []
        for access in template.writes:
            grid, space = grids[access.buffer], buffers[access.buffer].space
            kinds.append(len(self.stream.kinds))
            self.stream.kinds.append(Kind(template, grid.cell_bytes, grid.row_bytes, space, template.is_load))
        if template.accumulator is not None:
            kinds.append(len(self.stream.kinds))
            self.stream.kinds.append(Kind(template, 0.0, 0, Space.HBM, False))
        signature = -1
        if self.numbering and template.signature >= 0:
            key = template.signature, tuple(buffer for buffer, _ in template.input_bases)
            signature = self.signatures.setdefault(key, len(self.signatures))
        given = None
        if signature >= 0 and (template.input_bases or template.positions):
            given = [*zip(*(bases for _, bases in template.input_bases), *template.positions, strict=True)]
        reads, writes = self._found(template.reads), self._found(template.writes)
        return _Site(template, reads, writes, kinds, signature, given, template.number in self.in_place)

    def _found(self, accesses: list[CellAccess]) -> list[_Cells]:
        return [
            (self.cells[access.buffer], access.bases, access.offsets, self.moved[access.buffer]) for access in accesses
        ]

    def run(self) -> Stream:
        for node in self.tree:
            self.outermost = len(self.stream.templates)
            self._body([node])
        return self.stream

    def _body(self, tree: list[_Site | tuple[int, int, list[Any]]]) -> None:
        for node in tree:
            if isinstance(node, _Site):
                self._execute(node)
                continue
            loop, trips, body = node
            fresh = self.fresh.get(loop, ())
            for trip in range(trips):
                self.iteration[loop] = trip
                for cells in fresh:
                    cells.clear()
                self._body(body)

    def _execute(self, site: _Site) -> None:
        template = site.template
        at = site.executed
        site.executed = at + 1
        if template.clears:
            for dst in template.instruction.dsts:
                self.cells[dst.buffer].clear()
            return
        variant = 0 if template.variants is None else template.variants[at]
        if variant < 0:
            return
        ins = self._values_read(site, at)
        stream = self.stream
        event = len(stream.templates)
        key = self._key(site, at, variant, ins)
        outs = None if key is None else self.known.get(key)
        repeat = outs is not None
        if outs is None:
            outs = self._made(site, event)
            if key is not None:
                self.known[key] = outs
        accumulator = template.accumulator
        if accumulator is not None:
            held = self.accumulators[accumulator.engine]
            for partitions in [span for span in held if span <= accumulator.partitions]:
                del held[partitions]
            held[accumulator.partitions] = outs[-1]
        overwritten = self._written(site, at, outs)
        if repeat:
            self._move(template, at, outs)
        replaced: tuple[int, ...] = ()
        if not self.numbering:
            replaced = tuple(overwritten)
        elif not repeat and template.writes:
            replaced = self._rotated(template, at, ins, outs, overwritten)
        stream.templates.append(template)
        stream.variants.append(variant)
        stream.inputs.append(ins)
        stream.outputs.append(outs)
        stream.replaced.append(replaced)
        stream.repeat.append(repeat)
        stream.turn.append(at)

    def _values_read(self, site: _Site, at: int) -> tuple[int, ...]:
        """Return the values that execution ``at`` reads: those of its operands, of destinations to which it adds, and
        of an accumulator.
        """
        template = site.template
        read: list[int] = []
        for cells, bases, offsets, moved in site.reads:
            base = bases[at]
            for offset in offsets:
                value = cells.get(base + offset)
                if value is not None:
                    read.append(value)
            if moved and len(offsets) > 1:
                self._read_together([base + offset for offset in offsets if base + offset in cells], moved)
        kept = template.keeps is not None and template.keeps[at]
        if template.accumulates or kept or template.first is not None:
            for cells, bases, offsets, _ in site.writes:
                base = bases[at]
                for offset in offsets:
                    value = cells.get(base + offset)
                    if value is not None:
                        read.append(value)
        accumulator = template.accumulator
        if accumulator is not None and (accumulator.reads or kept):
            read.extend(self.accumulators[accumulator.engine].values())
        return tuple(read)

    def _key(self, site: _Site, at: int, variant: int, ins: tuple[int, ...]) -> object | None:
        """Return a key that is equal for execution ``at`` and for the executions that it repeats; None if execution
        ``at`` is never merged.
        """
        template = site.template
        if site.signature < 0:
            return None
        if template.invariant_only:
            made = self.stream.value_event
            if max((made[value] for value in ins), default=-1) >= self.outermost:
                return None
        within = template.merged_within
        return (
            site.signature,
            variant,
            template.first is not None and template.first[at],
            ins,
            site.given[at] if site.given is not None else (),
            tuple([self.iteration[loop] for loop in within]) if within else (),
            tuple([(access.buffer, access.bases[at]) for access in template.writes]) if site.in_place else (),
        )

    @staticmethod
    def _written(site: _Site, at: int, outs: tuple[int, ...]) -> list[int]:
        """Replace the values in the cells of execution ``at`` by ``outs``, and return the replaced values."""
        overwritten: list[int] = []
        position = 0
        for cells, bases, offsets, moved in site.writes:
            base = bases[at]
            for offset in offsets:
                cell = base + offset
                value = cells.get(cell)
                if value is not None:
                    overwritten.append(value)
                cells[cell] = outs[position]
                position += 1
                if moved:
                    moved.pop(cell, None)
        return overwritten

    def _move(self, template: Template, at: int, outs: tuple[int, ...]) -> None:
        """Record where the values that a repeat writes were first written, if a value was first written to another
        cell.
        """
        position = 0
        for access in template.writes:
            base, moved = access.bases[at], self.moved[access.buffer]
            for offset in access.offsets:
                buffer, cell = self._origin(outs[position])
                position += 1
                if (buffer, cell) != (access.buffer, base + offset):
                    moved[base + offset] = buffer, base + offset - cell, template.number

    def _origin(self, value: int) -> tuple[int, int]:
        """Return the buffer and the cell into which a value was first written."""
        stream = self.stream
        event = stream.value_event[value]
        place, turn = value - stream.outputs[event][0], stream.turn[event]
        for access in stream.templates[event].writes:
            if place < len(access.offsets):
                return access.buffer, access.bases[turn] + access.offsets[place]
            place -= len(access.offsets)
        raise ValueError("no cell holds the value of an accumulator")

    def _read_together(self, cells: list[int], moved: _Moved) -> None:
        """Check one access that reads the values of ``cells`` together. If repeats have scattered these values,
        record the instructions of these repeats.
        """
        places = [moved.get(cell) for cell in cells]
        if len({place and place[:2] for place in places}) > 1:
            self.scattered.update(place[2] for place in places if place)

    def _made(self, site: _Site, event: int) -> tuple[int, ...]:
        """Return the numbers of the new values of event number ``event``: one for each cell that it writes,
        and one for its accumulator if it uses an accumulator.
        """
        kinds, events = self.stream.value_kind, self.stream.value_event
        begin = len(kinds)
        for kind, (_, _, offsets, _) in zip(site.kinds, site.writes, strict=False):
            for _ in offsets:
                kinds.append(kind)
                events.append(event)
        if site.template.accumulator is not None:
            kinds.append(site.kinds[-1])
            events.append(event)
        return tuple(range(begin, len(kinds)))

    def _rotated(
        self, template: Template, at: int, ins: tuple[int, ...], outs: tuple[int, ...], overwritten: list[int]
    ) -> tuple[int, ...]:
        """Return the values that this execution overwrites. They were written to the same cells :data:`PLACES` writes
        earlier.

        Only a tile that is written again while it is in scope has :data:`PLACES` copies. For other tiles, which rotate
        through SBUF, the result is ().
        """
        buffer = template.writes[0].buffer
        if buffer not in self.rewritten:
            if template.accumulates or not overwritten or all(value in ins for value in overwritten):
                return ()
            self.rewritten.add(buffer)
        turns = self.places.setdefault((buffer, template.writes[0].bases[at]), deque(maxlen=PLACES))
        found = turns[0] if len(turns) == PLACES else ()
        turns.append(outs)
        return found
