"""A program unrolled into events, each result numbered by its value.

An event is one execution of an instruction. Where value numbering is on, an execution of the same operation on the
same values as an earlier one is a *repeat*: it defines nothing new, its destination cells take the earlier values.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from acceld.nki.ir.program import Engine, Loop, Node, Space
from acceld.nki.timing.expansion import Prepared, Template

PLACES = 2
"""Places between which the legacy compiler alternates a tile that is written again while it is in scope.

Two, not one and not as many as fit: the limits of nki-samples' pooling say so, whose loads of one tile follow each other
at half of a load's and a reduction's time.
"""


@dataclass(slots=True)
class Stream:
    """Events and values, as parallel lists."""

    templates: list[Template] = field(default_factory=list)
    variants: list[int] = field(default_factory=list)
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    """Values each event reads (on chip, or written HBM)."""
    outputs: list[tuple[int, ...]] = field(default_factory=list)
    replaced: list[tuple[int, ...]] = field(default_factory=list)
    """Values that each event overwrites where they lie; none if the compiler renames."""
    repeat: list[bool] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    """The number of each event among its instruction's executions, masked ones counted."""
    value_bytes: list[float] = field(default_factory=list)
    """Bytes of each value in each partition; 0 in HBM."""
    value_row: list[int] = field(default_factory=list)
    """Bytes of one partition's row."""
    value_space: list[Space] = field(default_factory=list)
    value_event: list[int] = field(default_factory=list)
    """The event that made each value first."""
    value_loaded: list[bool] = field(default_factory=list)


def expand(prepared: Prepared, *, numbering: bool) -> Stream:
    """Unroll ``prepared`` and number its values."""
    return _Expander(prepared, numbering).run()


class _Expander:
    def __init__(self, prepared: Prepared, numbering: bool) -> None:
        self.prepared = prepared
        self.numbering = numbering
        self.stream = Stream()
        buffers = prepared.program.buffers
        self.cells: list[dict[int, int]] = [{} for _ in buffers]
        self.known: dict[object, tuple[int, ...]] = {}
        self.iteration: dict[int, int] = {}
        """Current iteration of each running loop."""
        self.position: list[int] = [0] * len(prepared.templates)
        self.space = [buffer.space for buffer in buffers]
        self.rows = [prepared.grids[b.id].row_bytes if b.id in prepared.grids else 0 for b in buffers]
        self.bytes = [prepared.grids[b.id].cell_bytes if b.id in prepared.grids else 0.0 for b in buffers]
        self.fresh: dict[int, list[int]] = defaultdict(list)
        for buffer in buffers:
            if buffer.scope:
                self.fresh[buffer.scope[-1]].append(buffer.id)
        self.accumulators: dict[Engine, dict[int, int]] = defaultdict(dict)
        """Values in each engine's accumulators, by how many partitions they span."""
        self.rewritten: set[int] = set()
        """Buffers that were written again while they were in scope."""
        self.places: dict[tuple[int, int], deque[tuple[int, ...]]] = {}
        """The last value written to each of those places, by buffer and first cell."""
        self.outermost = 0
        """The first event of the outermost loop now running."""
        self.order = iter(prepared.templates)
        self.tree = self._index(prepared.program.body)

    def _index(self, body: tuple[Node, ...]) -> list[object]:
        tree: list[object] = []
        for node in body:
            if isinstance(node, Loop):
                tree.append((node.id, self.prepared.trips[node.id], self._index(node.body)))
            else:
                tree.append(self.prepared.templates[next(self.order)])
        return tree

    def run(self) -> Stream:
        for node in self.tree:
            self.outermost = len(self.stream.templates)
            self._body([node])
        return self.stream

    def _body(self, tree: list[object]) -> None:
        for node in tree:
            if isinstance(node, tuple):
                loop, trips, body = node
                fresh = self.fresh.get(loop, ())
                for trip in range(trips):
                    self.iteration[loop] = trip
                    for buffer in fresh:
                        self.cells[buffer].clear()
                    self._body(body)
            else:
                self._execute(node)  # type: ignore[arg-type]  # a tree holds tuples and templates

    def _execute(self, template: Template) -> None:
        number = template.number
        at = self.position[number]
        self.position[number] = at + 1
        if template.clears:
            for dst in template.instruction.dsts:
                self.cells[dst.buffer].clear()
            return
        variant = 0
        if template.variants is not None:
            variant = template.variants[at]
            if variant < 0:
                return
        read: list[int] = []
        for access in template.reads:
            cells, base = self.cells[access.buffer], access.bases[at]
            for offset in access.offsets:
                value = cells.get(base + offset)
                if value is not None:
                    read.append(value)
        operands = len(read)
        first = template.first is not None and template.first[at]
        kept = template.keeps is not None and template.keeps[at]
        if template.accumulates or kept or template.first is not None:
            for access in template.writes:
                cells, base = self.cells[access.buffer], access.bases[at]
                for offset in access.offsets:
                    value = cells.get(base + offset)
                    if value is not None:
                        read.append(value)
        if template.accumulates and len(read) == operands and template.instruction.attr("accumulate") == "yes":
            operands = -1
        accumulator = template.accumulator
        held = self.accumulators[accumulator.engine] if accumulator is not None else {}
        if accumulator is not None and (accumulator.reads or kept):
            read.extend(held.values())
        ins = tuple(read)
        stream = self.stream
        event = len(stream.templates)
        outs: tuple[int, ...] | None = None
        repeat = False
        merge = self.numbering and template.signature >= 0
        if merge and template.invariant_only:
            merge = max((stream.value_event[value] for value in ins), default=-1) < self.outermost
        if merge:
            key = (
                template.signature,
                variant,
                first,
                ins,
                tuple([(b, bases[at]) for b, bases in template.input_bases]),
                tuple([given[at] for given in template.positions]),
                tuple([self.iteration[loop] for loop in template.merged_within]),
            )
            outs = self.known.get(key)
            repeat = outs is not None
        if outs is None:
            made = []
            loaded = template.is_load
            for access in template.writes:
                row = self.rows[access.buffer]
                size, space = self.bytes[access.buffer], self.space[access.buffer]
                for _ in access.offsets:
                    made.append(len(stream.value_bytes))
                    stream.value_bytes.append(size)
                    stream.value_row.append(row)
                    stream.value_space.append(space)
                    stream.value_event.append(event)
                    stream.value_loaded.append(loaded)
            if accumulator is not None:
                made.append(self._register(event))
            outs = tuple(made)
            if merge:
                self.known[key] = outs
        if accumulator is not None:
            for partitions in [span for span in held if span <= accumulator.partitions]:
                del held[partitions]
            held[accumulator.partitions] = outs[-1]
        if self.numbering:
            stream.replaced.append(() if repeat else self._rotated(template, at, ins, outs))
        else:
            stream.replaced.append(self._overwritten(template, at))
        position = 0
        for access in template.writes:
            cells, base = self.cells[access.buffer], access.bases[at]
            for offset in access.offsets:
                cells[base + offset] = outs[position]
                position += 1
        stream.templates.append(template)
        stream.variants.append(variant)
        stream.inputs.append(ins)
        stream.outputs.append(outs)
        stream.repeat.append(repeat)
        stream.turn.append(at)

    def _register(self, event: int) -> int:
        """Return a new value of accumulators, which take no room in SBUF."""
        stream = self.stream
        stream.value_bytes.append(0.0)
        stream.value_row.append(0)
        stream.value_space.append(Space.HBM)
        stream.value_event.append(event)
        stream.value_loaded.append(False)
        return len(stream.value_bytes) - 1

    def _rotated(self, template: Template, at: int, ins: tuple[int, ...], outs: tuple[int, ...]) -> tuple[int, ...]:
        """Return the values in whose place this execution writes: those of :data:`PLACES` writes before.

        Only a tile that is written again while it is in scope has so few places; others rotate through SBUF.
        """
        buffer = template.writes[0].buffer if template.writes else -1
        if buffer not in self.rewritten:
            if template.accumulates or not template.writes:
                return ()
            if not any(value not in ins for value in self._overwritten(template, at)):
                return ()
            self.rewritten.add(buffer)
        turns = self.places.setdefault((buffer, template.writes[0].bases[at]), deque(maxlen=PLACES))
        found = turns[0] if len(turns) == PLACES else ()
        turns.append(outs)
        return found

    def _overwritten(self, template: Template, at: int) -> tuple[int, ...]:
        """Return the values that lie where this execution writes."""
        found = []
        for access in template.writes:
            cells, base = self.cells[access.buffer], access.bases[at]
            for offset in access.offsets:
                value = cells.get(base + offset)
                if value is not None:
                    found.append(value)
        return tuple(found)
