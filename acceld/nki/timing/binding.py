"""Explain a latency: divide the time of the busiest engine into work, waits, start and end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from acceld.nki.timing.list_schedule import Schedule
from acceld.nki.timing.sbuf_allocation import ENGINES, Machine

MOST_WAITS, MOST_STEPS = 8, 6
"""Greatest number of waits (``Binding.waits``) and of steps (``Binding.start``) that are listed; the longest ones are
kept.
"""


@dataclass(frozen=True, slots=True)
class Wait:
    """The time that the busiest engine is idle because one source line waits for an operation of another source
    line.
    """

    line: int
    """The source line whose operation starts late."""
    for_line: int
    for_engine: str
    us: float


@dataclass(frozen=True, slots=True)
class Delay:
    """The time that one source line takes in the chain of operations before the first operation of the busiest
    engine.
    """

    line: int
    engine: str
    us: float


@dataclass(frozen=True, slots=True)
class Binding:
    """The parts of a latency, by what the busiest engine does.

    ``start_us + busy_us + waits_us + end_us + margin_us`` is the whole latency.
    """

    engine: str
    start_us: float
    """Time before the engine's first operation."""
    start: tuple[Delay, ...]
    """The chain of operations that the engine's first operation waits for: the longest steps first."""
    busy_us: float
    waits_us: float
    """Sum of all waits between the engine's first and last operation, including waits that ``waits`` does not list."""
    waits: tuple[Wait, ...]
    """The waits summed by source line: the longest first."""
    end_us: float
    """Time after the engine's last operation."""
    cold_us: float
    """Part of ``busy_us`` by which the tensor engine is slower because it had not yet been busy long enough to run at
    its full rate.
    """
    margin_us: float = 0.0
    """Time that the model adds to its schedule, because real schedules are not perfect and two cores share one HBM."""


def binding(machine: Machine, times: Schedule, engine: str) -> Binding | None:
    """Return what ``engine`` does during a schedule; None if no operation runs on that engine."""
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


def _steps(machine: Machine, times: Schedule, first: int) -> tuple[Delay, ...]:
    """Return the steps of the chain of operations for which operation number ``first`` waits, longest first."""
    spent: dict[tuple[int, int], float] = defaultdict(float)
    until, at = times.start_us[first], times.cause[first]
    while at >= 0:
        begin = min(until, times.start_us[at])
        spent[machine.line[at], machine.engine[at]] += until - begin
        until, at = begin, times.cause[at]
    longest: Sequence[tuple[tuple[int, int], float]] = sorted(spent.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Delay(line, ENGINES[engine].value, us) for (line, engine), us in longest[:MOST_STEPS])
