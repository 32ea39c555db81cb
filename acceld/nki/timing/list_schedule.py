"""Compute start and end of each machine operation by list scheduling of five engines and of the DMA engines.

Operations are taken in program order. An operation starts when its engine is free and its operands are ready.
An operand from another engine is ready one semaphore later. GpSimd and the vector engine count as one engine if
they share SBUF's port. An engine is free again before its result can be read: the rest of the pipeline is
latency.

The compiler reorders operations that are at most ``window`` operations apart. So an operation may fill a gap
that its engine left at most ``window`` operations before.

The DMA engines form four quarters, each of which serves 32 partitions. A transfer of a tile with fewer
partitions leaves some quarters free. The DMA engines serve their rings in turn. So a transfer can start in a
gap that is too short for all of it, and continue after the transfers that were queued before. A transfer is
complete a fixed latency after its last byte.

On a chip whose tensor engine throttles (:attr:`acceld.chips.ChipSpec.tensor_ramp_us`), the engine runs at half
its rate while its average use over that time is less than a half. The average is weighted by the share of the
array's rows in use.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp

from acceld.chips import ChipSpec
from acceld.nki.ir.program import Engine
from acceld.nki.timing.cost import ALL_QUARTERS, QUARTERS
from acceld.nki.timing.parameters import TimelineParams
from acceld.nki.timing.sbuf_allocation import ENGINES, INDEX, Machine

SHORTEST_GAP_US = 0.05
"""Least length of a gap that an operation may fill."""
MOST_GAPS = 48
"""Greatest number of gaps of one engine that are remembered, the latest ones. The limit bounds the cost of a wide
window.
"""

_Gap = tuple[float, float, int, int]
"""A time in which an engine is idle: begin, end, position in the engine's queue, and the operation before the gap (-1
for none).
"""


@dataclass(frozen=True, slots=True)
class Use:
    """The time of one engine from its first to its last operation, in microseconds."""

    first: int
    """The operation that starts first."""
    begin_us: float
    end_us: float
    idle_us: float
    """Sum of all times in which no operation runs."""
    waits_us: dict[tuple[int, int, int], float]
    """Idle times by what the engine waits for: the line whose operation starts late, line and engine of the operation
    that it waits for.
    """


@dataclass(frozen=True, slots=True)
class Schedule:
    """Start and end of each machine operation in microseconds, and the operation that it waited for last."""

    start_us: list[float]
    end_us: list[float]
    cause: list[int]
    """For each operation, the operation whose end determined its start; -1 if no operation did."""
    total_us: float
    throttled_us: float = 0.0
    """Additional busy time of the tensor engine because it ran at half its rate, in microseconds."""

    def path_us(self, machine: Machine) -> dict[tuple[int, int], float]:
        """Return the microseconds of each (line, engine) on the critical path: the chain of operations that
        ends last.
        """
        spent: dict[tuple[int, int], float] = defaultdict(float)
        until = max(self.end_us, default=0.0)
        at = self.end_us.index(until) if self.end_us else -1
        while at >= 0:
            begin = self.start_us[at]
            spent[machine.line[at], machine.engine[at]] += until - begin if begin < until else 0.0
            until = min(until, begin)
            at = self.cause[at]
        return spent

    def use_of(self, machine: Machine, engine: int) -> Use | None:
        """Return when an engine works and what it waits for; None if no operation runs on it."""
        numbers = [number for number, one in enumerate(machine.engine) if one == engine]
        if not numbers:
            return None
        numbers.sort(key=self.start_us.__getitem__)
        begin = self.start_us[numbers[0]]
        free, idle = begin, 0.0
        waits: dict[tuple[int, int, int], float] = defaultdict(float)
        for number in numbers:
            gap = self.start_us[number] - free
            if gap > 0.0:
                idle += gap
                cause = self.cause[number]
                if cause >= 0:
                    waits[machine.line[number], machine.line[cause], machine.engine[cause]] += gap
            free = max(free, self.end_us[number])
        return Use(numbers[0], begin, free, idle, waits)

    def before_us(self, machine: Machine, number: int) -> dict[tuple[int, int], float]:
        """Return the microseconds of each (line, engine) in the chain of operations for which an operation waits."""
        spent: dict[tuple[int, int], float] = defaultdict(float)
        until, at = self.start_us[number], self.cause[number]
        while at >= 0:
            begin = min(until, self.start_us[at])
            spent[machine.line[at], machine.engine[at]] += until - begin
            until, at = begin, self.cause[at]
        return spent


def schedule(
    machine: Machine, params: TimelineParams, chip: ChipSpec, not_before: Mapping[int, float] | None = None
) -> Schedule:
    """Return start and end of every operation of ``machine``.

    ``not_before`` has the earliest start of some operations, in microseconds by number. Operations that run on
    another engine than usual are changed in ``machine``.
    """
    held = not_before or {}
    count = len(machine.engine)
    start, end, cause = [0.0] * count, [0.0] * count, [-1] * count
    engines = len(ENGINES)
    tail = [0.0] * engines
    tail_op = [-1] * engines
    gaps: list[deque[_Gap]] = [deque() for _ in range(engines)]
    issued = [0] * engines
    load = [0.0] * engines
    dma, tensor = INDEX[Engine.DMA], INDEX[Engine.TENSOR]
    server = list(range(engines))
    if params.shared_sbuf_port:
        server[INDEX[Engine.GPSIMD]] = INDEX[Engine.VECTOR]
    semaphore, window = params.semaphore_us, params.window
    latency = [0.0] * engines
    latency[dma] = params.dma_latency_us
    ramp = chip.tensor_ramp_us
    quarters = machine.quarters
    queues = _queues(quarters, engines)
    for _ in range(max(map(max, queues.values())) + 1 - engines):
        tail.append(0.0)
        tail_op.append(-1)
        gaps.append(deque())
        issued.append(0)
    use, use_until, throttled = 0.0, 0.0, 0.0
    choices = machine.choices if params.alternates_copies else _of_busiest(machine)
    engine_of, busy_of = machine.engine, machine.busy_us
    for number, waits in enumerate(machine.waits):
        engine = engine_of[number]
        busy = busy_of[number]
        ready, why = 0.0, -1
        for wait in waits:
            if wait >= 0:
                when = end[wait]
                if engine_of[wait] != engine:
                    when += semaphore
                if when > ready:
                    ready, why = when, wait
        if held and number in held and held[number] > ready:
            ready, why = held[number], -1
        if number in choices:
            other, there = choices[number]
            if load[engine] + busy > load[other] + there:
                usual, second = server[engine], server[other]
                here = _earliest(gaps[usual], tail[usual], ready, busy)
                if here > ready and _earliest(gaps[second], tail[second], ready, there) + there < here + busy:
                    engine, busy = other, there
                    engine_of[number], busy_of[number] = other, there
        load[engine] += busy
        if engine == dma:
            first, finish, reason = -1.0, -1.0, why
            for queue in queues[quarters[number]] if number in quarters else queues[0]:
                sequence, last, holes = issued[queue], tail[queue], gaps[queue]
                issued[queue] = sequence + 1
                while holes and holes[0][2] < sequence - window:
                    holes.popleft()
                if ready > last:
                    begin, done, cause_here = ready, ready + busy, why
                    if ready - last > SHORTEST_GAP_US:
                        _note(holes, (last, ready, sequence, tail_op[queue]))
                elif ready < last and holes:
                    begin, done, cause_here = _interleave(holes, ready, busy, last, why)
                else:
                    begin, done, cause_here = last, last + busy, tail_op[queue]
                if done > last:
                    tail[queue], tail_op[queue] = done, number
                if done > finish:
                    finish, reason = done, cause_here
                first = begin if first < 0 else min(first, begin)
            late = machine.late_us.get(number, 0.0)
            start[number], end[number], cause[number] = first, finish + latency[dma] + late, reason
            continue
        port = server[engine]
        sequence = issued[port]
        issued[port] = sequence + 1
        holes = gaps[port]
        while holes and holes[0][2] < sequence - window:
            holes.popleft()
        if engine == tensor and ramp and busy:
            at = max(ready, tail[port])
            if at > use_until:
                use *= exp((use_until - at) / ramp)
            if use < params.half_use:
                throttled += busy
                busy *= 2
            weight = machine.rows.get(number, 1.0)
            use = weight + (use - weight) * exp(-busy / ramp)
            use_until = at + busy
        last = tail[port]
        position = _fitting(holes, ready, busy) if ready < last and holes else -1
        if position >= 0:
            low, high, made, before = holes[position]
            begin = max(ready, low)
            if begin == low and low > 0:
                why = before
            done = begin + busy
            _replace(holes, position, (low, begin, made, before), (done, high, made, number))
        else:
            if ready > last:
                begin = ready
                if ready - last > SHORTEST_GAP_US:
                    _note(holes, (last, ready, sequence, tail_op[port]))
            else:
                begin, why = last, tail_op[port]
            done = begin + busy
            tail[port] = done
            tail_op[port] = number
        start[number] = begin
        end[number] = done + latency[engine]
        cause[number] = why
    return Schedule(start, end, cause, max(end, default=0.0), throttled)


def _queues(quarters: Mapping[int, int], engines: int) -> dict[int, tuple[int, ...]]:
    """Return, for each set of quarters of the DMA engines, the queues that a transfer over the set occupies.

    A set is given as bits; 0 stands for all quarters. Quarters that are always used together form one queue.
    Queues are numbered from ``engines`` on.
    """
    used = sorted({ALL_QUARTERS, *quarters.values()})
    together: dict[tuple[int, ...], int] = {}
    for at in range(QUARTERS):
        together.setdefault(tuple(bits >> at & 1 for bits in used), at)
    found = {
        bits % ALL_QUARTERS: tuple(engines + queue for queue, at in enumerate(together.values()) if bits >> at & 1)
        for bits in used
    }
    return found


def _of_busiest(machine: Machine) -> Mapping[int, tuple[int, float]]:
    """Return the engine choices of those operations whose usual engine has the most work of all engines."""
    work = machine.engine_us()
    busiest = work.index(max(work))
    return {number: choice for number, choice in machine.choices.items() if machine.engine[number] == busiest}


def _note(holes: deque[_Gap], hole: _Gap) -> None:
    """Add a gap that ends later than all others. If there are more than MOST_GAPS, drop the oldest."""
    holes.append(hole)
    if len(holes) > MOST_GAPS:
        holes.popleft()


def _fitting(holes: deque[_Gap], ready: float, busy: float) -> int:
    """Return the index of the first gap in which an operation fits; -1 if it fits in no gap.

    The search runs backwards to the first gap that ends late enough, because most gaps end before the operation
    is ready.
    """
    count = position = len(holes)
    while position and holes[position - 1][1] >= ready:
        position -= 1
    while position < count:
        low, high, _, _ = holes[position]
        if high - max(low, ready) >= busy:
            return position
        position += 1
    return -1


def _earliest(holes: deque[_Gap], last: float, ready: float, busy: float) -> float:
    """Return the earliest time at which an operation of ``busy`` microseconds can start on an engine."""
    if ready < last:
        position = _fitting(holes, ready, busy)
        return max(ready, holes[position][0]) if position >= 0 else last
    return ready


def _interleave(holes: deque[_Gap], ready: float, busy: float, last: float, why: int) -> tuple[float, float, int]:
    """Return begin, end and cause of a transfer that fills the gaps after ``ready``. Its rest runs after
    ``last``.
    """
    later: list[_Gap] = []
    while holes and holes[-1][1] > ready:
        later.append(holes.pop())
    begin, left = -1.0, busy
    while later and left > 0:
        low, high, made, before = later.pop()
        at = max(ready, low)
        if begin < 0:
            begin = at
            if at == low:
                why = before
        if at - low > SHORTEST_GAP_US:
            holes.append((low, at, made, before))
        used = min(left, high - at)
        left -= used
        done = at + used
        if high - done > SHORTEST_GAP_US:
            holes.append((done, high, made, before))
    holes.extend(reversed(later))
    if len(holes) > MOST_GAPS:
        holes.pop()
    if left > 0:
        begin = last if begin < 0 else begin
        done = last + left
    return begin, done, why


def _replace(holes: deque[_Gap], position: int, before: _Gap, after: _Gap) -> None:
    """Replace the gap at ``position`` by the gaps ``before`` and ``after`` that an operation in it leaves."""
    del holes[position]
    if after[1] - after[0] > SHORTEST_GAP_US:
        holes.insert(position, after)
    if before[1] - before[0] > SHORTEST_GAP_US and len(holes) < MOST_GAPS:
        holes.insert(position, before)
