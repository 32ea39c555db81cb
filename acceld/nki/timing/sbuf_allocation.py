"""Allocate SBUF, and emit the resulting machine operations: reloads, spills, recomputation.

The legacy compiler keeps a value from its definition to its last use while there is room. If there is no room, the
compiler first drops loaded values that the kernel loads again anyway, least recently used first. Then the compiler
drops the value that is worth least. A value's worth depends on its last use and on the cost per byte to restore the
value. Between equal costs the least recently used value is dropped.

A dropped value is restored in one of three ways: by a load; by computing the value again, if the kernel computes it
again; or by a spill, which saves the value once to HBM and loads it again.

A repeat (:mod:`acceld.nki.timing.value_numbering`) whose values are still in SBUF costs nothing. Any other
repeat is executed as written.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain, islice
from typing import TypeVar

from acceld.chips import ChipSpec
from acceld.nki.ir.program import Engine, Space
from acceld.nki.timing.cost import Cost, CostModel
from acceld.nki.timing.expansion import Template
from acceld.nki.timing.parameters import TimelineParams
from acceld.nki.timing.value_numbering import Kind, Stream

ENGINES = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.DMA, Engine.SYNC)
INDEX = {engine: position for position, engine in enumerate(ENGINES)}
_DMA, _VECTOR = INDEX[Engine.DMA], INDEX[Engine.VECTOR]
HOPELESS = 4.0
"""A value that the kernel computes again is dropped if the kernel writes more than this many times SBUF's size before
it computes the value again.
"""

MAX_PENDING = 100
"""Longest chain of postponed repeats. A repeat that would make the chain longer is executed at once."""

END = 1 << 62
"""The next use of a value that is not used again, as a number greater than every event's."""

SMALL_BYTES = 64.0
"""Size in bytes of each partition below which a value is dropped only if no larger value can be dropped. Dropping a
small value frees hardly any room.
"""


@dataclass(slots=True)
class Machine:
    """The machine operations in issue order, as parallel lists with one entry for each operation."""

    engine: list[int] = field(default_factory=list)
    busy_us: list[float] = field(default_factory=list)
    waits: list[tuple[int, ...]] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    choices: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Another engine that may run an operation, and the time on that engine, by operation. The schedule chooses between
    the engines.
    """
    rows: dict[int, float] = field(default_factory=dict)
    """The share of the tensor engine's rows that a matrix product occupies, by operation; an operation that occupies
    all rows is missing.
    """
    quarters: dict[int, int] = field(default_factory=dict)
    """The quarters of the DMA engines that a transfer uses, as bits, by operation; a transfer that uses all four is
    missing.
    """
    late_us: dict[int, float] = field(default_factory=dict)
    """Time that readers have to wait after the end of a transfer, by operation, in addition to the latency that every
    transfer has.
    """
    hbm_read_bytes: int = 0
    hbm_write_bytes: int = 0
    spill_save_bytes: int = 0
    spill_reload_bytes: int = 0
    flops: int = 0
    transpose_flops: int = 0
    passes: int = 0
    transfers: int = 0
    sbuf_read_bytes: int = 0
    """Bytes read from SBUF. As in neuron-profile, engines count the bytes of one partition, and DMA those of all
    partitions.
    """
    sbuf_write_bytes: int = 0
    psum_read_bytes: int = 0
    psum_write_bytes: int = 0
    sbuf_peak: float = 0.0
    psum_peak: float = 0.0
    spilled_lines: dict[int, int] = field(default_factory=dict)
    """Spilled bytes by the source line that computed the spilled value."""
    dropped: tuple[int, ...] = ()
    """Numbers, in program order, of the instructions that are left out because their results never reach a store."""
    became: bytearray = field(default_factory=bytearray)
    """The fate of each event: 0 if it is left out, 1 if it became an operation, 2 if its values were already in SBUF or
    PSUM.
    """

    def add(self, engine: int, busy: float, waits: tuple[int, ...], line: int, kind: str) -> int:
        """Append an operation and return its number."""
        self.engine.append(engine)
        self.busy_us.append(busy)
        self.waits.append(waits)
        self.line.append(line)
        self.kind.append(kind)
        return len(self.engine) - 1

    def engine_us(self) -> list[float]:
        """Return the busy time of each engine, in the order of :data:`ENGINES`."""
        busy = [0.0] * len(ENGINES)
        for engine, us in zip(self.engine, self.busy_us, strict=True):
            busy[engine] += us
        return busy

    def line_us(self) -> dict[tuple[int, int], float]:
        """Return the busy time in microseconds of each (line, engine)."""
        busy: dict[tuple[int, int], float] = defaultdict(float)
        for line, engine, us in zip(self.line, self.engine, self.busy_us, strict=True):
            busy[line, engine] += us
        return busy


def plan(stream: Stream, model: CostModel, params: TimelineParams, chip: ChipSpec) -> Machine:
    """Return the machine operations of a stream of events, with the stream's values allocated in SBUF and PSUM."""
    return _Planner(stream, model, params, chip).run()


@dataclass(slots=True)
class _Operation:
    """The properties that all executions of one instruction with the same cost have in common.

    ``count`` says how many of these executions were scheduled.
    """

    template: Template
    cost: Cost
    engine: int
    line: int
    name: str
    added: list[tuple[int, float]]
    """Engine and microseconds of each operation that the compiler adds."""
    choice: tuple[int, float] | None
    """Another engine that may run the operation, and its time on that engine."""
    count: int = 0
    alone: bool = False
    """True if the operation has an engine and a time only, so that nothing else needs to be recorded for it."""

    def __post_init__(self) -> None:
        plain = self.cost.rows >= 1.0 and not self.cost.quarters and not self.cost.late_us
        self.alone = plain and not self.added and self.choice is None


def _operations(template: Template) -> list[_Operation]:
    """Return one record for each cost that the executions of ``template``'s instruction may have."""
    choices: list[tuple[int, float] | None] = [None] * len(template.costs)
    if template.other is not None:
        choices = [(INDEX[other.engine], other.busy_us) for other in template.other]
    return [
        _Operation(
            template, cost, INDEX[cost.engine], template.instruction.line, template.instruction.op,
            [(INDEX[engine], us) for engine, us in cost.added], choice,
        )
        for cost, choice in zip(template.costs, choices, strict=True)
    ]  # fmt: skip


class _Planner:
    def __init__(self, stream: Stream, model: CostModel, params: TimelineParams, chip: ChipSpec) -> None:
        self.stream, self.model, self.params, self.chip = stream, model, params, chip
        self.machine = Machine()
        self.limit = float(chip.sbuf_bytes_per_partition - params.sbuf_reserved_bytes)
        self.psum_limit = chip.psum_bytes_per_partition
        self.used = 0.0
        values, kinds = len(stream.value_kind), stream.kinds
        self.templates = {template.number: template for template in stream.templates}
        self.operations = {number: _operations(template) for number, template in self.templates.items()}
        self.in_sbuf = bytearray(_by_value(stream, [kind.space is Space.SBUF for kind in kinds]))
        self.in_psum = bytearray(_by_value(stream, [kind.space is Space.PSUM for kind in kinds]))
        self.bytes = _by_value(stream, [kind.bytes for kind in kinds])
        self.loaded = _by_value(stream, [kind.loaded for kind in kinds])
        self.line = _by_value(stream, [kind.template.instruction.line for kind in kinds])
        self.keeping = _by_value(stream, [self._cost_to_reload(kind) / (kind.bytes or 1.0) for kind in kinds])
        """Worth of keeping each value: the time per byte to reload it, or to spill and reload it if it was not loaded.
        """
        self.upcoming = [END] * values
        """The next use of each value: twice the number of the event that reads it, or twice the number plus 1 of the
        event that computes it again.
        """
        self.earlier: dict[int, list[int]] = {}
        """Earlier readers of a value that may end after the last reader, by value: another engine runs the last reader,
        or both are transfers.
        """
        self.afterwards, self.needed = self._read_backwards()
        self.resident = bytearray(values)
        self.saved = [-1] * values
        """The operation that saved each value to HBM; -1 if the value was not saved."""
        self.maker = [-1] * values
        """The operation after which each value is in SBUF, PSUM or HBM; -1 if no operation has produced the value yet.
        """
        self.last = [-1] * values
        """The last operation that reads each value; -1 if no operation has read it yet."""
        self.pending = [-1] * values
        """The skipped repeat that computes each value again, for values that are not in place; -1 for other values."""
        self.depth = [0] * values
        """Number of skipped repeats that must run one after another to bring back each pending value."""
        self.pinned = [-1] * values
        self.cold: OrderedDict[int, None] = OrderedDict()
        """Loaded values that the kernel loads again before it uses them, least recently used first."""
        self.warm: list[tuple[float, int, int]] = []
        """Heap of (worth, order, value) of all values that are neither in ``cold`` nor in ``small``. An entry is
        ignored if its worth is no longer the value's worth.
        """
        self.small: OrderedDict[int, None] = OrderedDict()
        """Values of less than :data:`SMALL_BYTES`, least recently used first."""
        self.worth = [-1.0] * values
        self.age = 0.0
        self.order = 0
        self.released: deque[list[float]] = deque(
            [[float(chip.sbuf_bytes_per_partition - params.sbuf_kept_bytes), -1.0]]
        )
        self.held: dict[int, float] = {}
        """Return the space in PSUM for each line that writes there: all of PSUM if there is a single line, half of PSUM
        for each of several lines.

        Lines do not wait for each other's readers, because compilers and kernels alike assign banks to tiles by name.
        """
        self.owed = 0.0
        """Bytes that were allocated although they were not free. Bytes that are released later make up for them first.
        """
        self.psum_released = self._psum_shares()
        """Space in PSUM that the instructions of each source line may use. A piece is (bytes, operation that used it
        last).
        """
        self.psum_used = 0.0
        self.now = -1

    def _psum_shares(self) -> dict[int, deque[list[float]]]:
        """Return the share of PSUM that each line which writes PSUM may use: all of PSUM for a single such line; at
        least half of PSUM for each of several lines.

        Lines do not wait for each other's readers, because compilers and kernels alike assign banks to tiles by name.
        """
        chip = self.chip
        lines = {line for line, inside in zip(self.line, self.in_psum, strict=True) if inside}
        banks = max(chip.psum_banks // 2, chip.psum_banks // max(1, len(lines)))
        return {line: deque([[float(banks * chip.psum_bank_bytes), -1.0]]) for line in lines}

    def run(self) -> Machine:
        stream = self.stream
        everything = not self.params.eliminate_dead
        if not everything:
            kept = {template.number for template, needed in zip(stream.templates, self.needed, strict=True) if needed}
            self.machine.dropped = tuple(sorted(self.templates.keys() - kept))
        resident, pending = self.resident, self.pending
        self.machine.became = became = bytearray(len(stream.inputs))
        for event, (ins, outs, repeat) in enumerate(zip(stream.inputs, stream.outputs, stream.repeat, strict=True)):
            if everything or self.needed[event]:
                self.now = event
                if not repeat:
                    self._execute(event)
                else:
                    became[event] = 2
                    missing = [value for value in outs if not resident[value] and self.saved[value] < 0]
                    if missing:
                        depth = 1 + max((self.depth[v] for v in ins if not resident[v]), default=0)
                        for value in missing:
                            pending[value] = event
                            self.depth[value] = depth
                        if depth > MAX_PENDING:
                            self._execute(event)
            self._advance(ins + outs, self.afterwards[event])
        self._count()
        return self.machine

    def _read_backwards(self) -> tuple[list[tuple[int, ...]], bytearray]:
        """Return, for each event, the next uses of its operands and results, and whether its results reach a
        store.

        An event without results counts as one that reaches a store.
        """
        stream, upcoming = self.stream, self.upcoming[:]
        needed = bytearray(len(stream.templates))
        wanted = bytearray(len(upcoming))
        found: list[tuple[int, ...]] = [()] * len(needed)
        for event in range(len(needed) - 1, -1, -1):
            ins, outs = stream.inputs[event], stream.outputs[event]
            found[event] = tuple([upcoming[value] for value in ins + outs])
            if not outs or stream.templates[event].is_store or any(map(wanted.__getitem__, outs)):
                needed[event] = 1
                for value in ins:
                    wanted[value] = 1
                    upcoming[value] = 2 * event
            else:
                for value in ins:
                    upcoming[value] = 2 * event
            if stream.repeat[event]:
                for value in outs:
                    upcoming[value] = 2 * event + 1
        return found, needed

    def _execute(self, event: int) -> None:
        """Emit operations that bring the operands of ``event`` back to SBUF, and then the operation of ``event``."""
        stream = self.stream
        machine = self.machine
        machine.became[event] = 1
        ins, outs = stream.inputs[event], stream.outputs[event]
        resident, pinned, maker, last = self.resident, self.pinned, self.maker, self.last
        operation = self.operations[stream.templates[event].number][stream.variants[event]]
        line = operation.line
        now = self.now
        for value in ins:
            pinned[value] = now
        waits: list[int] = []
        for value in ins:
            if not resident[value]:
                self._bring_back(value, line)
            waits.append(maker[value])
        if stream.replaced[event]:  # the readers of overwritten values must finish first
            for value in stream.replaced[event]:
                waits += [last[value], *reversed(self.earlier.get(value, ()))]
        dying: list[list[float]] = []
        if event == now and END in self.afterwards[event]:
            # a result may take the space of an operand that is not used again
            for value, after in zip(ins, self.afterwards[event], strict=False):
                if after == END and resident[value]:
                    pieces = len(self.released)
                    self._release(value, last[value])
                    if self.loaded[value]:
                        dying += islice(reversed(self.released), len(self.released) - pieces)
        in_sbuf, in_psum, pending, depth = self.in_sbuf, self.in_psum, self.pending, self.depth
        for value in outs:
            if not resident[value]:
                pinned[value] = now
                if in_sbuf[value]:
                    self._allocate(value, waits)
                elif in_psum[value]:
                    self._allocate_psum(value, waits, line)
                else:
                    resident[value] = 1
            pending[value] = -1
            depth[value] = 0
        number = self._emit(operation, waits)
        for piece in dying:  # whoever takes the freed space next waits for this operation, which still reads there
            piece[1] = float(number)
        engines = machine.engine
        for value in ins:
            before = last[value]
            if (
                before >= 0
                and before != maker[value]
                and (engines[before] != engines[number] or engines[number] == _DMA)
            ):
                self.earlier.setdefault(value, []).append(before)
            last[value] = number
            if event != now:
                self._settle(value)
        saved = self.saved
        for value in outs:
            maker[value] = last[value] = number
            saved[value] = -1

    def _emit(self, operation: _Operation, waits: list[int]) -> int:
        """Append an operation, and the operations that the compiler adds to it.

        Return the number of the operation after which the results are ready.
        """
        machine, cost = self.machine, operation.cost
        operation.count += 1
        add, line = machine.add, operation.line
        if operation.alone:
            return add(operation.engine, cost.busy_us, tuple(waits), line, operation.name)
        before = operation.template.is_store
        if before:
            for engine, us in operation.added:
                waits = [add(engine, us, tuple(waits), line, "turn")]
        number = add(operation.engine, cost.busy_us, tuple(waits), line, operation.name)
        if cost.rows < 1.0:
            machine.rows[number] = cost.rows
        if cost.quarters:
            machine.quarters[number] = cost.quarters
        if cost.late_us:
            machine.late_us[number] = cost.late_us
        if operation.choice is not None:
            machine.choices[number] = operation.choice
        if not before:
            for engine, us in operation.added:
                number = add(engine, us, (number,), line, "copy")
        return number

    def _count(self) -> None:
        """Add the bytes moved and the FLOPs of the program's own instructions to the counters of the machine
        record.
        """
        machine = self.machine
        for operation in chain.from_iterable(self.operations.values()):
            cost, count = operation.cost, operation.count
            machine.flops += cost.flops * count
            machine.transpose_flops += cost.transpose_flops * count
            machine.passes += cost.passes * count
            sbuf_read, sbuf_write, psum_read, psum_write = operation.template.traffic
            machine.sbuf_read_bytes += sbuf_read * count
            machine.sbuf_write_bytes += sbuf_write * count
            machine.psum_read_bytes += psum_read * count
            machine.psum_write_bytes += psum_write * count
            moved = cost.bytes_moved * count
            if not moved:
                continue
            machine.transfers += count
            if operation.template.is_store:
                machine.hbm_write_bytes += moved
                machine.sbuf_read_bytes += moved
            else:
                machine.hbm_read_bytes += moved
                machine.sbuf_write_bytes += moved

    def _advance(self, values: tuple[int, ...], afterwards: tuple[int, ...]) -> None:
        """Record the next use of each value after an event, and free the values that are not used again."""
        upcoming, resident = self.upcoming, self.resident
        for value, after in zip(values, afterwards, strict=True):
            upcoming[value] = after
            if resident[value]:
                if after == END or (after & 1 and self.in_psum[value]):
                    self._release(value, self.last[value])
                elif self.in_sbuf[value]:
                    self._touch(value, after & 1)

    def _settle(self, value: int) -> None:
        """Record the next use of ``value`` after the present event; free it if there is no next use."""
        self._advance((value,), (self.upcoming[value],))

    def _touch(self, value: int, repeated: int) -> None:
        """Record a use of ``value`` now, because a value that was used recently is dropped later than others.

        ``repeated`` is 1 if the kernel loads or computes the value again before the next use.
        """
        if self.bytes[value] < SMALL_BYTES:
            self.small[value] = None
            self.small.move_to_end(value)
            return
        if repeated and self.loaded[value]:
            self.worth[value] = -1.0
            self.cold[value] = None
            self.cold.move_to_end(value)
            return
        if value in self.cold:
            del self.cold[value]
        worth = self.age + (self._cost_to_remake(value) / self.bytes[value] if repeated else self.keeping[value])
        # the heap already has an entry of the value with this worth unless the worth has changed
        if worth != self.worth[value]:
            self.worth[value] = worth
            self.order += 1
            heappush(self.warm, (worth, self.order, value))

    def _hopeless(self, value: int) -> bool:
        """Tell whether SBUF can not hold ``value`` until its next use, because the kernel writes too many other bytes
        before that use.
        """
        written = self.written
        return written[self.upcoming[value] >> 1] - written[self.now] > HOPELESS * self.limit

    @cached_property
    def written(self) -> list[float]:
        """Return, for each event, the bytes per partition that the kernel has written to SBUF before the event, in
        total.
        """
        total = 0.0
        volume = []
        for outs in self.stream.outputs:
            volume.append(total)
            for value in outs:
                if self.in_sbuf[value]:
                    total += self.bytes[value]
        return volume

    def _transfer_us(self, kind: Kind) -> float:
        """Return an estimate of the microseconds to move a value between HBM and SBUF, from which the worth of values
        is computed.
        """
        return kind.row * 128 / self.chip.dma_bytes_per_us

    def _cost_to_reload(self, kind: Kind) -> float:
        """Return the microseconds to load a dropped value again from HBM, where the kernel does not compute it a
        second time.
        """
        transfer = self._transfer_us(kind)
        return transfer if kind.loaded else 2 * transfer

    def _cost_to_remake(self, value: int) -> float:
        """Return the microseconds to restore a dropped value that the kernel computes again."""
        transfer = self._transfer_us(self.stream.kind(value))
        if self._hopeless(value):
            return transfer
        return self.remake[value] if self._computed_again(value) else min(self.remake[value], 2 * transfer)

    @cached_property
    def remake(self) -> list[float]:
        """Return, for each value, the microseconds to compute or load it again, with the loads and PSUM values that
        this needs.
        """
        stream = self.stream
        cost = [0.0] * len(stream.value_kind)
        for event, outs in enumerate(stream.outputs):
            if stream.repeat[event] or not outs:
                continue
            price = stream.templates[event].costs[stream.variants[event]]
            total = price.busy_us + price.added_us
            for value in stream.inputs[event]:
                if self.loaded[value] or self.in_psum[value]:
                    total += cost[value]
            for value in outs:
                cost[value] = total / len(outs)
        return cost

    def _release(self, value: int, operation: int) -> None:
        self.resident[value] = 0
        size = self.bytes[value]
        if self.in_sbuf[value]:
            if size < SMALL_BYTES:
                self.small.pop(value, None)
            else:
                self.cold.pop(value, None)
                self.worth[value] = -1.0
            self.used -= size
            self._give_back(value, size, operation)
        elif self.in_psum[value]:
            self.psum_used -= size
            self.psum_released[self.line[value]].append([size, float(operation)])

    def _give_back(self, value: int, size: float, operation: int) -> None:
        """Release the space of a value.

        The pieces of one load are released together, when the last of them has been dropped.
        """
        if self.loaded[value]:
            event = self.stream.value_event[value]
            pieces = self.stream.outputs[event]
            if len(pieces) > 1:
                size += self.held.pop(event, 0.0)
                if any(map(self.resident.__getitem__, pieces)):
                    self.held[event] = size
                    return
        if self.owed:
            paid = min(size, self.owed)
            self.owed -= paid
            size -= paid
        if size:
            self.released.append([size, float(operation)])

    def _allocate_psum(self, value: int, waits: list[int], line: int) -> None:
        """Allocate space for ``value`` in PSUM. If PSUM is full, emit a copy of another value to SBUF and back."""
        size = self.bytes[value]
        machine = self.machine
        self.psum_used += size
        if self.psum_used > self.psum_limit:
            busy = 2 * self.model.copy_us(self.stream.kind(value).row // 4)
            waits.append(machine.add(_VECTOR, busy, tuple(waits), line, "psum_spill"))
        self.resident[value] = 1
        machine.psum_peak = max(machine.psum_peak, self.psum_used)
        _take(self.psum_released[self.line[value]], size, waits)

    def _allocate(self, value: int, waits: list[int]) -> None:
        size = self.bytes[value]
        if self.params.spills:
            while self.used + size > self.limit and self._evict():
                pass
        self.used += size
        self.resident[value] = 1
        self.machine.sbuf_peak = max(self.machine.sbuf_peak, self.used)
        self.owed += _take(self.released, size, waits)

    def _evict(self) -> bool:
        """Drop one value from SBUF, and return True. Return False if the current event uses every value in SBUF."""
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
        again = self.upcoming[value] & 1
        if not self.loaded[value] and self.saved[value] < 0 and not (again and self._computed_again(value)):
            self._save(value)
        self._release(value, max(self.last[value], self.saved[value]))

    def _computed_again(self, value: int) -> bool:
        """Tell whether a dropped value is computed again and not spilled, because the values of its instruction
        do not fit SBUF.

        In a sequential loop the value is spilled even then. Source: the measured kernels matmul and lora both need a
        transposed operand for twelve blocks of columns. matmul, which has affine loops only, transposes the operand
        twelve times. lora, which has a sequential loop, transposes and saves the operand once, and reloads it eleven
        times; the counted bytes agree exactly.
        """
        template = self.stream.kind(value).template
        return not template.sequential and self.footprint[template.number] > self.chip.sbuf_bytes_per_partition

    @cached_property
    def footprint(self) -> dict[int, float]:
        """Return the bytes of a partition that all distinct values of an instruction take together. The list has one
        entry for each instruction.
        """
        stream = self.stream
        totals: dict[int, float] = defaultdict(float)
        for event, outs in enumerate(stream.outputs):
            if not stream.repeat[event]:
                total = 0.0  # sum() rounds differently from Python 3.12 on
                for value in outs:
                    total += self.bytes[value]
                totals[stream.templates[event].number] += total
        return totals

    def _rows(self, value: int) -> tuple[int, int, int]:
        kind = self.stream.kind(value)
        partitions = kind.template.instruction.dsts[0].dims[0].count
        return partitions, kind.row, partitions * kind.row

    def _save(self, value: int) -> None:
        rows, row, size = self._rows(value)
        line, machine = self.line[value], self.machine
        busy = self.model.transfer_us(rows, row)
        self.saved[value] = machine.add(_DMA, busy, (self.maker[value],), line, "spill_save")
        machine.transfers += 1
        machine.hbm_write_bytes += size
        machine.sbuf_read_bytes += size
        machine.spill_save_bytes += size
        machine.spilled_lines[line] = machine.spilled_lines.get(line, 0) + size

    def _bring_back(self, value: int, line: int) -> None:
        if self.pending[value] >= 0:
            self._execute(self.pending[value])
            return
        if not self.in_sbuf[value]:
            return
        stream, machine = self.stream, self.machine
        loaded = self.loaded[value]
        event = stream.value_event[value]
        waits: list[int] = []
        self._allocate(value, waits)
        partitions, row, size = self._rows(value)
        if loaded:  # the reload moves rows of the same length as the original load
            busy = stream.templates[event].costs[stream.variants[event]].busy_us / len(stream.outputs[event])
        else:
            busy = self.model.transfer_us(partitions, row)
            waits.append(self.saved[value])
            machine.spill_reload_bytes += size
        machine.hbm_read_bytes += size
        machine.sbuf_write_bytes += size
        machine.transfers += 1
        number = machine.add(_DMA, busy, tuple(waits), line, "reload" if loaded else "spill_reload")
        self.maker[value] = self.last[value] = number


def _take(released: deque[list[float]], size: float, waits: list[int]) -> float:
    """Take ``size`` bytes of the released space, oldest first, and add the last readers of that space to ``waits``.

    Return the number of bytes that were not available.
    """
    while size > 0 and released:
        piece = released[0]
        room, reader = piece
        if reader >= 0:
            waits.append(int(reader))
        if room > size:
            piece[0] = room - size
            return 0.0
        size -= room
        released.popleft()
    return size


_Figure = TypeVar("_Figure")


def _by_value(stream: Stream, figures: Sequence[_Figure]) -> list[_Figure]:
    """Return a list with one figure for each value. ``figures`` has one figure for each kind of values."""
    return [figures[kind] for kind in stream.value_kind]
