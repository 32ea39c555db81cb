"""Say what sets a latency: what the busiest engine does from the kernel's start to its end, and for which lines it waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from acceld.nki.timing.list_schedule import Schedule
from acceld.nki.timing.sbuf_allocation import ENGINES, Machine

MOST_WAITS, MOST_STEPS = 8, 6
"""Numbers of waits, and of lines before the first operation, that are listed; the longest ones."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Time that the busiest engine stands idle until an operation of another line ends."""

    line: int
    """The line that waits."""
    for_line: int
    for_engine: str
    us: float


@dataclass(frozen=True, slots=True)
class Step:
    """Time of one line in the chain of operations before the busiest engine starts."""

    line: int
    engine: str
    us: float


@dataclass(frozen=True, slots=True)
class Binding:
    """Time of the busiest engine in parts. ``start_us + busy_us + waits_us + end_us + margin_us`` is the whole time."""

    engine: str
    start_us: float
    """Time before its first operation."""
    start: tuple[Step, ...]
    """The chain of operations that it waits for before its first one, longest first."""
    busy_us: float
    waits_us: float
    """All its waits between its first operation and its last, also those that are not listed."""
    waits: tuple[Wait, ...]
    """Its waits by line, longest first."""
    end_us: float
    """Time after its last operation."""
    cold_us: float
    """Part of the tensor engine's busy time that it needs more because it had not been busy long enough to run at its full
    rate.
    """
    margin_us: float = 0.0
    """Time that the model adds beyond its schedule: schedules are not perfect, and two cores share their HBM."""


def binding(machine: Machine, times: Schedule, engine: str) -> Binding | None:
    """Return what ``engine`` does in a schedule; None if it does nothing."""
    wanted = next(number for number, one in enumerate(ENGINES) if one.value == engine)
    engine_of, line, start_us, end_us = machine.engine, machine.line, times.start_us, times.end_us
    numbers = [number for number, one in enumerate(engine_of) if one == wanted]
    if not numbers:
        return None
    numbers.sort(key=start_us.__getitem__)
    begins = start_us[numbers[0]]
    free, idle = begins, 0.0
    waits: dict[tuple[int, int, int], float] = defaultdict(float)
    for number in numbers:
        gap = start_us[number] - free
        if gap > 0.0:
            idle += gap
            cause = times.cause[number]
            if cause >= 0:
                waits[line[number], line[cause], engine_of[cause]] += gap
        free = max(free, end_us[number])
    longest = sorted(waits.items(), key=lambda item: (-item[1], item[0]))[:MOST_WAITS]
    return Binding(
        engine,
        begins,
        _steps(machine, times, numbers[0]),
        free - begins - idle,
        idle,
        tuple(Wait(at, where, ENGINES[other].value, us) for (at, where, other), us in longest),
        max(0.0, times.total_us - free),
        times.throttled_us,
    )


def _steps(machine: Machine, times: Schedule, first: int) -> tuple[Step, ...]:
    """Return the chain of operations that an operation waits for, by line and engine, longest first."""
    spent: dict[tuple[int, int], float] = defaultdict(float)
    until, at = times.start_us[first], times.cause[first]
    while at >= 0:
        begin = min(until, times.start_us[at])
        spent[machine.line[at], machine.engine[at]] += until - begin
        until, at = begin, times.cause[at]
    longest: Sequence[tuple[tuple[int, int], float]] = sorted(spent.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Step(line, ENGINES[engine].value, us) for (line, engine), us in longest[:MOST_STEPS])
