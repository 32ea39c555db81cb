"""Compute the start and the end of each machine operation by list scheduling of five engines and of the DMA engines.

Operations are taken in program order. An operation starts when its engine is free and its operands are ready. An
operand from another engine is ready later by the time of a semaphore (``semaphore_us``). GpSimd and the vector engine
count as one engine if they share SBUF's port. An engine is free again before its result can be read: the rest of the
pipeline is latency.

The compiler reorders operations that are at most ``window`` operations apart. So an operation may fill a gap
that its engine left at most ``window`` operations before.

The DMA engines form four quarters, each of which serves 32 partitions. A transfer of a tile with fewer
partitions leaves some quarters free. The DMA engines serve their rings in turn. So a transfer can start in a
gap that is too short for all of it, and continue after the transfers that were queued before. A transfer is
complete a fixed latency after its last byte.

On a chip whose tensor engine throttles (:attr:`acceld.chips.ChipSpec.tensor_ramp_us`), the engine runs at half its rate
while its average use over ``tensor_ramp_us`` is less than ``half_use``. The average is weighted by the share of the
array's rows in use.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp

from acceld.chips import ChipSpec
from acceld.nki.ir.program import Engine
from acceld.nki.timing.cost import ALL_QUARTERS, QUARTERS
from acceld.nki.timing.parameters import TimelineParams
from acceld.nki.timing.sbuf_allocation import ENGINES, INDEX, Machine

SHORTEST_GAP_US = 0.05
"""Least length of a gap that an operation may fill."""
MOST_GAPS = 48
"""Greatest number of gaps of one engine that are remembered. Older gaps are forgotten, which bounds the cost of a wide
window.
"""

_Gap = tuple[float, float, int, int]
"""One time in which an engine is idle, as (begin, end, position in the engine's queue, operation before the gap; -1 if
there is no such operation).
"""


@dataclass(frozen=True, slots=True)
class Use:
    """The activity of one engine from its first to its last operation. Times are in microseconds."""

    first: int
    """The operation that starts first."""
    begin_us: float
    end_us: float
    idle_us: float
    """Sum of all times in which no operation runs."""
    waits_us: dict[tuple[int, int, int], float]
    """Idle times by (line, other line, other engine). In this time an operation of ``line`` waits for an operation of
    the other line on the other engine.
    """


@dataclass(frozen=True, slots=True)
class Schedule:
    """The result of scheduling: the start and the end of each machine operation in microseconds, and the operation that
    each one waited for.
    """

    start_us: list[float]
    end_us: list[float]
    cause: list[int]
    """For each operation, the operation whose end determined its start; -1 if it waited for no operation."""
    total_us: float
    throttled_us: float = 0.0
    """Microseconds by which the tensor engine is busy for longer because it ran at half its rate."""

    def path_us(self, machine: Machine) -> dict[tuple[int, int], float]:
        """Return the microseconds of each (line, engine) on the critical path, the chain of operations that ends last."""
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
        """Return the working and waiting times of an engine; None if no operation runs on the engine."""
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
        """Return the microseconds of each (line, engine) in the chain of operations for which operation ``number``
        waits.
        """
        spent: dict[tuple[int, int], float] = defaultdict(float)
        until, at = self.start_us[number], self.cause[number]
        while at >= 0:
            begin = min(until, self.start_us[at])
            spent[machine.line[at], machine.engine[at]] += until - begin
            until, at = begin, self.cause[at]
        return spent


@dataclass(slots=True)
class _Server:
    """The queue of one engine, or of a part of the DMA engines, with the operations that were placed so far."""

    end: float = 0.0
    """The time at which the last operation ends, in microseconds."""
    last: int = -1
    """The operation that ends at ``end``; -1 while the queue is empty."""
    issued: int = 0
    """Number of operations in the queue so far."""
    gaps: deque[_Gap] = field(default_factory=deque)

    def issue(self, window: int) -> int:
        """Count one more operation, and return its position in the queue. Gaps that are more than ``window`` operations
        before it are forgotten.
        """
        position = self.issued
        self.issued = position + 1
        gaps = self.gaps
        while gaps and gaps[0][2] < position - window:
            gaps.popleft()
        return position

    def run(self, number: int, ready: float, busy: float, why: int, issued: int) -> tuple[float, float, int]:
        """Place an operation in the first gap that is long enough, or else at the end; return its begin, end and cause.

        The operation ``number`` takes ``busy`` microseconds. It waits for the operation ``why`` until the time
        ``ready``. ``issued`` is its position in the queue.
        """
        last, gaps = self.end, self.gaps
        position = _fitting(gaps, ready, busy) if ready < last and gaps else -1
        if position >= 0:
            low, high, made, before = gaps[position]
            begin = max(ready, low)
            if begin == low and low > 0:
                why = before
            done = begin + busy
            _replace(gaps, position, (low, begin, made, before), (done, high, made, number))
            return begin, done, why
        if ready > last:
            begin = ready
            if ready - last > SHORTEST_GAP_US:
                _note(gaps, (last, ready, issued, self.last))
        else:
            begin, why = last, self.last
        self.end, self.last = begin + busy, number
        return begin, self.end, why

    def stream(self, number: int, ready: float, busy: float, why: int, issued: int) -> tuple[float, float, int]:
        """Place a transfer, which may fill several gaps; return its begin, end and cause. See :meth:`run`."""
        last, gaps = self.end, self.gaps
        if ready > last:
            begin, done = ready, ready + busy
            if ready - last > SHORTEST_GAP_US:
                _note(gaps, (last, ready, issued, self.last))
        elif ready < last and gaps:
            begin, done, why = _interleave(gaps, ready, busy, last, why)
        else:
            begin, done, why = last, last + busy, self.last
        if done > last:
            self.end, self.last = done, number
        return begin, done, why


@dataclass(slots=True)
class _Throttle:
    """The average use of a tensor engine that throttles. The engine runs at half its rate while the average is low."""

    ramp_us: float
    half_use: float
    use: float = 0.0
    until: float = 0.0
    lost_us: float = 0.0
    """Microseconds by which the engine has been busy for longer because it ran at half its rate."""

    def busy_us(self, at: float, busy: float, rows: float) -> float:
        """Return how long an operation takes that starts at ``at``, would take ``busy`` at the full rate, and uses the
        share ``rows`` of the array's rows.
        """
        if at > self.until:
            self.use *= exp((self.until - at) / self.ramp_us)
        if self.use < self.half_use:
            self.lost_us += busy
            busy *= 2
        self.use = rows + (self.use - rows) * exp(-busy / self.ramp_us)
        self.until = at + busy
        return busy


def schedule(
    machine: Machine, params: TimelineParams, chip: ChipSpec, not_before: Mapping[int, float] | None = None
) -> Schedule:
    """Return the schedule of ``machine``: the start and the end of every operation.

    ``not_before`` has the earliest start of some operations, in microseconds by number. Operations that run on
    another engine than usual are changed in ``machine``.
    """
    held = not_before or {}
    count = len(machine.engine)
    start, end, cause = [0.0] * count, [0.0] * count, [-1] * count
    servers = [_Server() for _ in ENGINES]
    if params.shared_sbuf_port:
        servers[INDEX[Engine.GPSIMD]] = servers[INDEX[Engine.VECTOR]]
    dma, tensor = INDEX[Engine.DMA], INDEX[Engine.TENSOR]
    throttle = _Throttle(chip.tensor_ramp_us, params.half_use) if chip.tensor_ramp_us else None
    quarters, numbers = machine.quarters, _queues(machine.quarters, 0)
    parts = [_Server() for _ in range(max(map(max, numbers.values())) + 1)]
    queues = {bits: [parts[at] for at in each] for bits, each in numbers.items()}
    semaphore, window = params.semaphore_us, params.window
    choices = machine.choices if params.alternates_copies else _of_busiest(machine)
    load = [0.0] * len(ENGINES)
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
            less = load[engine] + busy > load[other] + there
            if less and _is_sooner(servers[other], there, servers[engine], busy, ready):
                engine, busy = engine_of[number], busy_of[number] = other, there
        load[engine] += busy
        if engine == dma:
            begin, done, why = _transferred(queues[quarters.get(number, 0)], number, ready, busy, why, window)
            done = done + params.dma_latency_us + machine.late_us.get(number, 0.0)
        else:
            server = servers[engine]
            issued = server.issue(window)
            if throttle is not None and engine == tensor and busy:
                busy = throttle.busy_us(max(ready, server.end), busy, machine.rows.get(number, 1.0))
            begin, done, why = server.run(number, ready, busy, why, issued)
        start[number], end[number], cause[number] = begin, done, why
    return Schedule(start, end, cause, max(end, default=0.0), 0.0 if throttle is None else throttle.lost_us)


def _is_sooner(one: _Server, busy: float, other: _Server, usual: float, ready: float) -> bool:
    """Tell whether an operation would have to wait for the engine ``other``, and would end sooner on the engine
    ``one``.

    The operation takes ``busy`` microseconds on ``one`` and ``usual`` on ``other``. It can start at the time ``ready``.
    """
    here = _earliest(other.gaps, other.end, ready, usual)
    return here > ready and _earliest(one.gaps, one.end, ready, busy) + busy < here + usual


def _transferred(
    queues: Iterable[_Server], number: int, ready: float, busy: float, why: int, window: int
) -> tuple[float, float, int]:
    """Place a transfer in every one of ``queues``. Return its earliest begin in a queue, its latest end, and the
    cause of the latest end. ``number`` to ``why`` are those of :meth:`_Server.run`.
    """
    first, finish, reason = -1.0, -1.0, why
    for queue in queues:
        begin, done, cause = queue.stream(number, ready, busy, why, queue.issue(window))
        if done > finish:
            finish, reason = done, cause
        first = begin if first < 0 else min(first, begin)
    return first, finish, reason


def _queues(quarters: Mapping[int, int], engines: int) -> dict[int, tuple[int, ...]]:
    """Return the queues that a transfer occupies, as a dict by the set of quarters of the DMA engines that it uses.

    A set is given as bits; 0 stands for all quarters. Quarters that are always used together form one queue. Queues are
    numbered from ``engines`` on.
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
    """Return the alternative engines of operations, but only of operations whose usual engine has more work than all
    other engines.
    """
    work = machine.engine_us()
    busiest = work.index(max(work))
    return {number: choice for number, choice in machine.choices.items() if machine.engine[number] == busiest}


def _note(holes: deque[_Gap], hole: _Gap) -> None:
    """Append ``hole``, which ends later than all gaps in ``holes``. If there are more than MOST_GAPS gaps, drop the
    oldest.
    """
    holes.append(hole)
    if len(holes) > MOST_GAPS:
        holes.popleft()


def _fitting(holes: deque[_Gap], ready: float, busy: float) -> int:
    """Return the index of the first gap with ``busy`` microseconds after the time ``ready``; -1 if there is no such
    gap.

    The search runs backwards to the first gap that ends late enough, because most gaps end before the operation is
    ready.
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
    """Return the earliest time at which an operation of ``busy`` microseconds can start on an engine.

    The operation can not start before ``ready``. ``last`` is the end of the engine's last operation.
    """
    if ready < last:
        position = _fitting(holes, ready, busy)
        return max(ready, holes[position][0]) if position >= 0 else last
    return ready


def _interleave(holes: deque[_Gap], ready: float, busy: float, last: float, why: int) -> tuple[float, float, int]:
    """Return the begin, the end and the cause of a transfer of ``busy`` microseconds that fills the gaps after
    ``ready``. What does not fit there runs after ``last``.
    """
    later: list[_Gap] = []
    while holes and holes[-1][1] > ready:
        later.append(holes.pop())
    begin, left = -1.0, busy
    while later and (left > 0 or begin < 0):  # a transfer that takes no time begins in the first gap, too
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
    if left > 0 or begin < 0:
        begin = last if begin < 0 else begin
        done = last + left
    return begin, done, why


def _replace(holes: deque[_Gap], position: int, before: _Gap, after: _Gap) -> None:
    """Replace the gap at ``position``, in which an operation was placed, by the gaps that remain before and after the
    operation.
    """
    del holes[position]
    if after[1] - after[0] > SHORTEST_GAP_US:
        holes.insert(position, after)
    if before[1] - before[0] > SHORTEST_GAP_US and len(holes) < MOST_GAPS:
        holes.insert(position, before)
