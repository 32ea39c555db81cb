"""When each machine operation runs: list scheduling of five engines and the DMA engines as one server.

Operations are taken in program order. Each starts when its operands are there (plus a semaphore where another engine
made them) and its engine is free (GpSimd and the vector engine count as one where they share SBUF's port); it may go
into a gap its engine left within the last ``window`` operations, which is how far the compiler reorders. A DMA transfer
occupies the DMA engines for its transfer time and is complete a fixed latency later.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from acceld.nki.ir.program import Engine
from acceld.nki.timing.parameters import TimelineParams
from acceld.nki.timing.sbuf_allocation import ENGINES, INDEX, Machine


@dataclass(frozen=True, slots=True)
class Schedule:
    """Start and end of each machine operation in microseconds, and what each waited for last."""

    start_us: list[float]
    end_us: list[float]
    cause: list[int]
    """The operation whose end set each start; -1 for none."""
    total_us: float


def schedule(machine: Machine, params: TimelineParams) -> Schedule:
    """Place every operation of ``machine`` in time."""
    count = len(machine.engine)
    start, end, cause = [0.0] * count, [0.0] * count, [-1] * count
    engines = len(ENGINES)
    tail = [0.0] * engines
    tail_op = [-1] * engines
    gaps: list[deque[tuple[float, float, int, int]]] = [deque() for _ in range(engines)]
    issued = [0] * engines
    dma = INDEX[Engine.DMA]
    server = list(range(engines))
    if params.shared_sbuf_port:
        server[INDEX[Engine.GPSIMD]] = INDEX[Engine.VECTOR]
    latency, semaphore, window = params.dma_latency_us, params.semaphore_us, params.window
    engine_of, busy_of, waits_of = machine.engine, machine.busy_us, machine.waits
    for number in range(count):
        engine = engine_of[number]
        busy = busy_of[number]
        ready, why = 0.0, -1
        for wait in waits_of[number]:
            if wait < 0:
                continue
            when = end[wait]
            if engine_of[wait] != engine:
                when += semaphore
            if when > ready:
                ready, why = when, wait
        port = server[engine]
        sequence = issued[port]
        issued[port] = sequence + 1
        holes = gaps[port]
        while holes and holes[0][2] < sequence - window:
            holes.popleft()
        begin = -1.0
        if holes and ready < tail[port]:
            for position, (low, high, made, before) in enumerate(holes):
                at = max(low, ready)
                if high - at >= busy:
                    begin = at
                    if at == low:
                        why = before if low > 0 else why
                    del holes[position]
                    rest = []
                    if at - low > 0.05:
                        rest.append((low, at, made, before))
                    if high - at - busy > 0.05:
                        rest.append((at + busy, high, made, number))
                    for item in reversed(rest):
                        holes.insert(position, item)
                    break
        if begin < 0.0:
            last = tail[port]
            if ready > last:
                begin = ready
                if ready - last > 0.05:
                    holes.append((last, ready, sequence, tail_op[port]))
            else:
                begin, why = last, tail_op[port]
            tail[port] = begin + busy
            tail_op[port] = number
        start[number] = begin
        done = begin + busy
        if engine == dma:
            done += latency
        end[number] = done
        cause[number] = why
    return Schedule(start, end, cause, max(end, default=0.0))
