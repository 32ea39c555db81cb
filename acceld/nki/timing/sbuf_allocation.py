"""Allocation of SBUF, and the machine operations that follow: reloads, spills, recomputation.

The legacy compiler keeps a value from its definition to its last use while there is room. When there is none it drops
loaded values that the kernel loads again anyway, least recently used first; then by worth: the age of the last use
plus what it costs, for each byte, to have the value again (a load, computing it once more where the kernel does so,
or saving it once to HBM and reloading it: a spill). With equal costs this is least recently used.

A repeat (:mod:`acceld.nki.timing.value_numbering`) whose values are still in SBUF costs nothing; otherwise it is executed as written.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice

from acceld.chips import ChipSpec
from acceld.nki.ir.program import Engine, Space
from acceld.nki.timing.cost import Cost, CostModel
from acceld.nki.timing.expansion import Template
from acceld.nki.timing.parameters import TimelineParams
from acceld.nki.timing.value_numbering import Stream

ENGINES = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.DMA, Engine.SYNC)
INDEX = {engine: position for position, engine in enumerate(ENGINES)}
HOPELESS = 4.0
"""A value computed again after this many times SBUF's size was written is not kept for it."""

MAX_PENDING = 100
"""Longest chain of repeats put off; the next one is executed at once."""

SMALL_BYTES = 64.0
"""Of each partition; smaller values are dropped only where nothing else is left to drop: it hardly makes room."""


@dataclass(slots=True)
class Machine:
    """Machine operations in issue order, as parallel lists."""

    engine: list[int] = field(default_factory=list)
    busy_us: list[float] = field(default_factory=list)
    waits: list[tuple[int, ...]] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    choices: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Another engine that may run an operation, and its time there; scheduling chooses."""
    rows: dict[int, float] = field(default_factory=dict)
    """Share of the array's rows that a product occupies, where it is not all."""
    quarters: dict[int, int] = field(default_factory=dict)
    """The quarters of the DMA engines that a transfer uses, as bits, where it is not all."""
    hbm_read_bytes: int = 0
    hbm_write_bytes: int = 0
    spill_save_bytes: int = 0
    spill_reload_bytes: int = 0
    flops: int = 0
    transpose_flops: int = 0
    passes: int = 0
    transfers: int = 0
    sbuf_read_bytes: int = 0
    """Engines count one partition, DMA all of them (as neuron-profile does)."""
    sbuf_write_bytes: int = 0
    psum_read_bytes: int = 0
    psum_write_bytes: int = 0
    sbuf_peak: float = 0.0
    psum_peak: float = 0.0
    spilled_lines: dict[int, int] = field(default_factory=dict)
    """Bytes saved, by the line that computed the value."""
    dropped: tuple[int, ...] = ()
    """Instructions, by their number in program order, none of whose executions reaches a store."""
    became: bytearray = field(default_factory=bytearray)
    """For each event 0 where it is left out, 1 for an operation, 2 where its values are in their place already."""

    def add(self, engine: int, busy: float, waits: tuple[int, ...], line: int, kind: str) -> int:
        """Append an operation and return its number."""
        self.engine.append(engine)
        self.busy_us.append(busy)
        self.waits.append(waits)
        self.line.append(line)
        self.kind.append(kind)
        return len(self.engine) - 1


def plan(stream: Stream, model: CostModel, params: TimelineParams, chip: ChipSpec) -> Machine:
    """Lay the stream's values out in SBUF and emit machine operations."""
    return _Planner(stream, model, params, chip).run()


class _Planner:
    def __init__(self, stream: Stream, model: CostModel, params: TimelineParams, chip: ChipSpec) -> None:
        self.stream, self.model, self.params, self.chip = stream, model, params, chip
        self.machine = Machine()
        self.limit = float(chip.sbuf_bytes_per_partition - params.sbuf_reserved_bytes)
        self.used = 0.0
        values = len(stream.value_bytes)
        self.uses = self._uses()
        self.next = [0] * values
        self.resident = bytearray(values)
        self.saved = [-1] * values
        """The operation that saved each value to HBM."""
        self.maker = [-1] * values
        """The operation after which each value is in its place."""
        self.last = [-1] * values
        """The last operation that read each value."""
        self.pending = [-1] * values
        """The skipped repeat that defines each value again, where it is not in its place."""
        self.depth = [0] * values
        """Length of the chain of pending repeats that yields each pending value."""
        self.pinned = [-1] * values
        self.cold: OrderedDict[int, None] = OrderedDict()
        """Loaded values the kernel loads again before it uses them, least recently used first."""
        self.warm: list[tuple[float, int, int]] = []
        """Heap of (worth, order, value) of the others; entries with an old worth are stale."""
        self.small: OrderedDict[int, None] = OrderedDict()
        """Values of less than :data:`SMALL_BYTES`, least recently used first."""
        self.worth = [-1.0] * values
        self.age = 0.0
        self.order = 0
        self.remake = self._remaking()
        self.written = self._volume()
        self.footprint = self._footprints()
        self.released: deque[list[float]] = deque(
            [[float(chip.sbuf_bytes_per_partition - params.sbuf_kept_bytes), -1.0]]
        )
        self.held: dict[int, float] = {}
        """Freed bytes of loads of which other pieces are still in SBUF."""
        self.owed = 0.0
        """Bytes taken although none were released yet."""
        self.psum_released = self._psum_shares(stream, chip)
        """Space in PSUM that each line may use, by line."""
        self.psum_used = 0.0
        self.now = -1

    def _writer(self, value: int) -> int:
        return self.stream.templates[self.stream.value_event[value]].instruction.line

    def _psum_shares(self, stream: Stream, chip: ChipSpec) -> dict[int, deque[list[float]]]:
        """Space to rotate in for each line that writes PSUM: all of it for one line, half for each of several.

        Lines do not wait for each other's readers: compilers give tiles banks by name, and who allocates PSUM in a
        kernel does too.
        """
        lines = {self._writer(value) for value, space in enumerate(stream.value_space) if space is Space.PSUM}
        banks = max(chip.psum_banks // 2, chip.psum_banks // max(1, len(lines)))
        return {line: deque([[float(banks * chip.psum_bank_bytes), -1.0]]) for line in lines}

    def _uses(self) -> list[list[int]]:
        """For each value its events in order: 2 x event for a use, 2 x event + 1 for a repeat of its definition."""
        uses: list[list[int]] = [[] for _ in self.stream.value_bytes]
        stream = self.stream
        for event, ins in enumerate(stream.inputs):
            repeat = stream.repeat[event]
            if repeat:
                for value in stream.outputs[event]:
                    uses[value].append(2 * event + 1)
            for value in ins:
                found = uses[value]
                if not found or found[-1] != 2 * event:
                    found.append(2 * event)
        return uses

    def run(self) -> Machine:
        stream = self.stream
        needed = self._needed() if self.params.eliminate_dead else None
        if needed is not None:
            dead = {t.number for event, t in enumerate(stream.templates) if not needed[event] and not t.clears}
            kept = {t.number for event, t in enumerate(stream.templates) if needed[event]} if dead else set()
            self.machine.dropped = tuple(sorted(dead - kept))
        resident, pending = self.resident, self.pending
        self.machine.became = became = bytearray(len(stream.inputs))
        for event, ins in enumerate(stream.inputs):
            outs = stream.outputs[event]
            if needed is not None and not needed[event]:
                self._advance(event, ins, outs, -1)
                continue
            self.now = event
            number = -1
            if stream.repeat[event]:
                became[event] = 2
                missing = [value for value in outs if not resident[value] and self.saved[value] < 0]
                if missing:
                    depth = 1 + max((self.depth[v] for v in ins if not resident[v]), default=0)
                    for value in missing:
                        pending[value] = event
                        self.depth[value] = depth
                    if depth > MAX_PENDING:
                        number = self._execute(event)
            else:
                number = self._execute(event)
            self._advance(event, ins, outs, number)
        return self.machine

    def _execute(self, event: int) -> int:
        """Emit the event's operation, after whatever brings its operands back."""
        stream = self.stream
        self.machine.became[event] = 1
        ins, outs = stream.inputs[event], stream.outputs[event]
        resident, space, pinned = self.resident, stream.value_space, self.pinned
        template = stream.templates[event]
        line = template.instruction.line
        now = self.now
        waits: list[int] = []
        for value in ins:
            pinned[value] = now
        for value in ins:
            if not resident[value]:
                self._bring_back(value, line)
            waits.append(self.maker[value])
        # what reads a buffer is done before it is written again
        waits.extend([self.last[value] for value in stream.replaced[event]])
        dying: list[list[float]] = []
        if event == now:
            for value in ins:  # the space of dying operands is used in place
                events, at = self.uses[value], self.next[value]
                if resident[value] and at + 1 >= len(events) and (at >= len(events) or events[at] == 2 * event):
                    pieces = len(self.released)
                    self._release(value, self.last[value])
                    if stream.value_loaded[value]:
                        dying += islice(reversed(self.released), len(self.released) - pieces)
        for value in outs:
            if not resident[value]:
                pinned[value] = now
                if space[value] is Space.SBUF:
                    self._allocate(value, waits)
                elif space[value] is Space.PSUM:
                    self._allocate_psum(value, waits, line)
                else:
                    resident[value] = 1
            self.pending[value] = -1
            self.depth[value] = 0
        number = self._emit(template, template.costs[stream.variants[event]], waits, line)
        if template.other is not None:
            cost = template.other[stream.variants[event]]
            self.machine.choices[number] = (INDEX[cost.engine], cost.busy_us)
        for piece in dying:  # whoever else takes that space waits for this reader
            piece[1] = float(number)
        for value in ins:
            self.last[value] = number
            if event != now:
                self._settle(value)
        for value in outs:
            self.maker[value] = number
            self.last[value] = number
            self.saved[value] = -1
        return number

    def _needed(self) -> bytearray:
        """Return events whose results reach a store (or that have none)."""
        stream = self.stream
        needed = bytearray(len(stream.templates))
        wanted = bytearray(len(stream.value_bytes))
        for event in range(len(stream.templates) - 1, -1, -1):
            outs = stream.outputs[event]
            template = stream.templates[event]
            if template.is_store or not outs or any(wanted[v] for v in outs):
                needed[event] = 1
                for value in stream.inputs[event]:
                    wanted[value] = 1
        return needed

    def _emit(self, template: Template, cost: Cost, waits: list[int], line: int) -> int:
        machine = self.machine
        if template.is_store:
            for engine, us in cost.added:
                waits = [machine.add(INDEX[engine], us, tuple(waits), line, "turn")]
        number = machine.add(INDEX[cost.engine], cost.busy_us, tuple(waits), line, template.instruction.op)
        if cost.rows < 1.0:
            machine.rows[number] = cost.rows
        if cost.quarters:
            machine.quarters[number] = cost.quarters
        machine.flops += cost.flops
        machine.transpose_flops += cost.transpose_flops
        machine.passes += cost.passes
        sbuf_read, sbuf_write, psum_read, psum_write = template.traffic
        machine.sbuf_read_bytes += sbuf_read
        machine.sbuf_write_bytes += sbuf_write
        machine.psum_read_bytes += psum_read
        machine.psum_write_bytes += psum_write
        if cost.bytes_moved:
            machine.transfers += 1
            if template.is_store:
                machine.hbm_write_bytes += cost.bytes_moved
                machine.sbuf_read_bytes += cost.bytes_moved
            else:
                machine.hbm_read_bytes += cost.bytes_moved
                machine.sbuf_write_bytes += cost.bytes_moved
        if not template.is_store:
            for engine, us in cost.added:
                number = machine.add(INDEX[engine], us, (number,), line, "copy")
        return number

    def _advance(self, event: int, ins: tuple[int, ...], outs: tuple[int, ...], number: int) -> None:
        """Move each value's pointer past ``event``; free what has no further use."""
        uses, nxt = self.uses, self.next
        for value in (*ins, *outs):
            events, at = uses[value], nxt[value]
            end = len(events)
            while at < end and events[at] >> 1 <= event:
                at += 1
            nxt[value] = at
            if number >= 0:
                self.last[value] = number
            self._settle(value)

    def _settle(self, value: int) -> None:
        """Free a value without further use; note when the others were used."""
        if not self.resident[value]:
            return
        events, at = self.uses[value], self.next[value]
        space = self.stream.value_space[value]
        if at >= len(events) or (space is Space.PSUM and events[at] & 1):
            self._release(value, self.last[value])
        elif space is Space.SBUF:
            self._touch(value, bool(events[at] & 1))

    def _touch(self, value: int, repeated: bool) -> None:
        """Note a use: a value is worth keeping by the age of its use and by what it costs to have it again."""
        size = self.stream.value_bytes[value]
        if size < SMALL_BYTES:
            self.small[value] = None
            self.small.move_to_end(value)
            return
        if repeated and self.stream.value_loaded[value]:
            self.worth[value] = -1.0
            self.cold[value] = None
            self.cold.move_to_end(value)
            return
        self.cold.pop(value, None)
        worth = self.age + self._cost_to_return(value, repeated) / size
        self.worth[value] = worth
        self.order += 1
        heappush(self.warm, (worth, self.order, value))

    def _hopeless(self, value: int) -> bool:
        """Return True if more is written before the value's next use than SBUF has room for, so that it can not stay."""
        written = self.written
        upcoming = self.uses[value][self.next[value]] >> 1
        return written[upcoming] - written[self.now] > HOPELESS * self.limit

    def _volume(self) -> list[float]:
        """Return bytes of a partition written into SBUF before each event, as the kernel writes them."""
        stream, total = self.stream, 0.0
        volume = []
        for outs in stream.outputs:
            volume.append(total)
            for value in outs:
                if stream.value_space[value] is Space.SBUF:
                    total += stream.value_bytes[value]
        return volume

    def _cost_to_return(self, value: int, repeated: bool) -> float:
        """Microseconds to have a dropped value in SBUF again."""
        transfer = self.stream.value_row[value] * 128 / self.chip.dma_bytes_per_us
        if repeated:
            if self._hopeless(value):
                return transfer
            return self.remake[value] if self._computed_again(value) else min(self.remake[value], 2 * transfer)
        return transfer if self.stream.value_loaded[value] else 2 * transfer

    def _remaking(self) -> list[float]:
        """For each value the time to compute or load it once more, with the loads and PSUM values it needs."""
        stream = self.stream
        cost = [0.0] * len(stream.value_bytes)
        for event, outs in enumerate(stream.outputs):
            if stream.repeat[event] or not outs:
                continue
            price = stream.templates[event].costs[stream.variants[event]]
            total = price.busy_us + price.added_us
            for value in stream.inputs[event]:
                if stream.value_loaded[value] or stream.value_space[value] is Space.PSUM:
                    total += cost[value]
            for value in outs:
                cost[value] = total / len(outs)
        return cost

    def _release(self, value: int, operation: int) -> None:
        self.resident[value] = 0
        size = self.stream.value_bytes[value]
        where = self.stream.value_space[value]
        if where is Space.SBUF:
            self.cold.pop(value, None)
            self.small.pop(value, None)
            self.worth[value] = -1.0
            self.used -= size
            self._give_back(value, size, operation)
        elif where is Space.PSUM:
            self.psum_used -= size
            self.psum_released[self._writer(value)].append([size, float(operation)])

    def _give_back(self, value: int, size: float, operation: int) -> None:
        """Free space for others; that of a load's pieces at once, when the last of them is out."""
        stream = self.stream
        if stream.value_loaded[value]:
            event = stream.value_event[value]
            size += self.held.pop(event, 0.0)
            if any(self.resident[piece] for piece in stream.outputs[event]):
                self.held[event] = size
                return
        if self.owed:
            paid = min(size, self.owed)
            self.owed -= paid
            size -= paid
        if size:
            self.released.append([size, float(operation)])

    def _allocate_psum(self, value: int, waits: list[int], line: int) -> None:
        """Take space in PSUM; where there is none left, what lies there is copied to SBUF and back in between."""
        size = self.stream.value_bytes[value]
        self.psum_used += size
        if self.psum_used > self.chip.psum_bytes_per_partition:
            busy = 2 * self.model.copy_us(self.stream.value_row[value] // 4)
            waits.append(self.machine.add(INDEX[Engine.VECTOR], busy, tuple(waits), line, "psum_spill"))
        self.resident[value] = 1
        self.machine.psum_peak = max(self.machine.psum_peak, self.psum_used)
        _take(self.psum_released[self._writer(value)], size, waits)

    def _allocate(self, value: int, waits: list[int]) -> None:
        size = self.stream.value_bytes[value]
        if self.params.spills:
            while self.used + size > self.limit and self._evict():
                pass
        self.used += size
        self.resident[value] = 1
        self.machine.sbuf_peak = max(self.machine.sbuf_peak, self.used)
        self.owed += _take(self.released, size, waits)

    def _evict(self) -> bool:
        """Drop one value; False if all are in use by the current event."""
        for value in self.cold:
            if self.pinned[value] != self.now:
                self._drop(value)
                return True
        held = []
        found = False
        while self.warm and not found:
            entry = heappop(self.warm)
            worth, _, value = entry
            if not self.resident[value] or self.worth[value] != worth:
                continue
            if self.pinned[value] == self.now:
                held.append(entry)
                continue
            self.age = worth
            self._drop(value)
            found = True
        for entry in held:
            heappush(self.warm, entry)
        last = None if found else next((value for value in self.small if self.pinned[value] != self.now), None)
        if last is not None:
            self._drop(last)
        return found or last is not None

    def _drop(self, value: int) -> None:
        events, at = self.uses[value], self.next[value]
        computed = not self.stream.value_loaded[value]
        if computed and self.saved[value] < 0 and not (events[at] & 1 and self._computed_again(value)):
            self._save(value)
        self._release(value, max(self.last[value], self.saved[value]))

    def _computed_again(self, value: int) -> bool:
        """Return whether a repeated value is computed again rather than spilled: all of its line's would not fit SBUF."""
        total = self.footprint[self.stream.templates[self.stream.value_event[value]].number]
        return total > self.chip.sbuf_bytes_per_partition

    def _footprints(self) -> dict[int, float]:
        """Return bytes of a partition that the distinct values of each instruction node take."""
        stream = self.stream
        totals: dict[int, float] = {}
        for event, outs in enumerate(stream.outputs):
            if not stream.repeat[event]:
                number = stream.templates[event].number
                totals[number] = totals.get(number, 0.0) + sum([stream.value_bytes[v] for v in outs])
        return totals

    def _rows(self, value: int) -> tuple[int, int, int]:
        template = self.stream.templates[self.stream.value_event[value]]
        access = template.instruction.dsts[0]
        partitions = access.shape[0]
        row = self.stream.value_row[value]
        return partitions, row, partitions * row

    def _save(self, value: int) -> None:
        rows, row, size = self._rows(value)
        line = self.stream.templates[self.stream.value_event[value]].instruction.line
        machine = self.machine
        busy = self.model.transfer_us(rows, row)
        self.saved[value] = machine.add(INDEX[Engine.DMA], busy, (self.maker[value],), line, "spill_save")
        machine.transfers += 1
        machine.hbm_write_bytes += size
        machine.sbuf_read_bytes += size
        machine.spill_save_bytes += size
        machine.spilled_lines[line] = machine.spilled_lines.get(line, 0) + size

    def _bring_back(self, value: int, line: int) -> None:
        if self.pending[value] >= 0:
            self._execute(self.pending[value])
            return
        if self.stream.value_space[value] is not Space.SBUF:
            return
        stream, machine = self.stream, self.machine
        loaded = stream.value_loaded[value]
        event = stream.value_event[value]
        waits: list[int] = []
        self._allocate(value, waits)
        partitions, row, size = self._rows(value)
        if loaded:  # at the row length of the load it was part of
            busy = stream.templates[event].costs[stream.variants[event]].busy_us / len(stream.outputs[event])
        else:
            busy = self.model.transfer_us(partitions, row)
            waits.append(self.saved[value])
            machine.spill_reload_bytes += size
        machine.hbm_read_bytes += size
        machine.sbuf_write_bytes += size
        machine.transfers += 1
        number = machine.add(INDEX[Engine.DMA], busy, tuple(waits), line, "reload" if loaded else "spill_reload")
        self.maker[value] = self.last[value] = number


def _take(released: deque[list[float]], size: float, waits: list[int]) -> float:
    """Take ``size`` bytes of the space that was released first; its last readers must be done before.

    Returns the bytes there were none for.
    """
    while size > 0 and released:
        piece = released[0]
        if piece[1] >= 0:
            waits.append(int(piece[1]))
        if piece[0] > size:
            piece[0] -= size
            return 0.0
        size -= piece[0]
        released.popleft()
    return size
