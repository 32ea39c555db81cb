"""Compute start and end of each machine operation by list scheduling of five engines and of the DMA engines.

Operations are taken in program order. Each starts when its operands are ready (plus a semaphore if another engine made
them) and its engine is free. GpSimd and the vector engine count as one if they share SBUF's port. An operation may fill
a gap that its engine left within the last ``window`` operations, which is how far the compiler reorders. An engine is
free again before its result can be read: the rest of the pipeline is latency.

The DMA engines are in four quarters of 32 partitions each. A transfer of a narrower tile leaves some of them free. They
serve their rings in turn, so a transfer can start in a gap that is too short for all of it, and continue after the
transfers that were queued before. It is complete a fixed latency after its last byte.

If the tensor engine throttles (:attr:`acceld.chips.ChipSpec.tensor_ramp_us`), it runs at half its rate until its use
over that time, weighted by the occupied rows, is a half. Below that it falls back.
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
"""Shorter gaps are not used."""
MOST_GAPS = 48
"""Number of gaps of one engine that are remembered, the latest ones. It bounds the cost of a wide window."""

_Gap = tuple[float, float, int, int]
"""Begin, end, position in its engine's queue, and the operation before it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Start and end of each machine operation in microseconds, and the operation it waited for last."""

    start_us: list[float]
    end_us: list[float]
    cause: list[int]
    """The operation whose end determined each start; -1 for none."""
    total_us: float
    throttled_us: float = 0.0
    """Additional busy time of the tensor engine at half its rate, in microseconds."""

    def path_us(self, machine: Machine) -> dict[tuple[int, int], float]:
        """Return the time on the chain of operations that ends last, by line and engine."""
        spent: dict[tuple[int, int], float] = defaultdict(float)
        until = max(self.end_us, default=0.0)
        at = self.end_us.index(until) if self.end_us else -1
        while at >= 0:
            begin = self.start_us[at]
            spent[machine.line[at], machine.engine[at]] += until - begin if begin < until else 0.0
            until = min(until, begin)
            at = self.cause[at]
        return spent


def schedule(
    machine: Machine, params: TimelineParams, chip: ChipSpec, not_before: Mapping[int, float] | None = None
) -> Schedule:
    """Compute the start and end of every operation of ``machine``. ``not_before`` gives the earliest start of some
    operations, by number.
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
    """Return the queues of each set of quarters of the DMA engines that a transfer uses; 0 stands for all.

    Quarters that are always used together form one queue. The numbers of queues follow those of the engines.
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
    """Return the alternative engines of operations whose usual engine has more work than any other."""
    work = machine.engine_us()
    busiest = work.index(max(work))
    return {number: choice for number, choice in machine.choices.items() if machine.engine[number] == busiest}


def _note(holes: deque[_Gap], hole: _Gap) -> None:
    """Add the latest gap, and drop the oldest if there are too many."""
    holes.append(hole)
    if len(holes) > MOST_GAPS:
        holes.popleft()


def _fitting(holes: deque[_Gap], ready: float, busy: float) -> int:
    """Return the first gap in which an operation fits; -1 for none.

    The search runs backwards, because most gaps end before an operation is ready.
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
    """Return the earliest start of an operation on an engine."""
    if ready < last:
        position = _fitting(holes, ready, busy)
        return max(ready, holes[position][0]) if position >= 0 else last
    return ready


def _interleave(holes: deque[_Gap], ready: float, busy: float, last: float, why: int) -> tuple[float, float, int]:
    """Return begin, end and cause of a transfer. It uses the gaps from ``ready`` on; its remaining part runs after
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
    """Replace a gap by its remaining parts on either side."""
    del holes[position]
    if after[1] - after[0] > SHORTEST_GAP_US:
        holes.insert(position, after)
    if before[1] - before[0] > SHORTEST_GAP_US and len(holes) < MOST_GAPS:
        holes.insert(position, before)
