"""Explain a latency: divide the time of the busiest engine into work, waits, start and end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from acceld.nki.timing.list_schedule import Schedule
from acceld.nki.timing.sbuf_allocation import ENGINES, Machine

MOST_WAITS, MOST_STEPS = 8, 6
"""Greatest number of waits in ``Binding.waits`` and of steps in ``Binding.start``. The longest ones are kept."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The time that the busiest engine is idle because one source line waits for an operation of another source
    line.
    """

    line: int
    """The source line of the operation that starts late."""
    for_line: int
    for_engine: str
    us: float


@dataclass(frozen=True, slots=True)
class PathStep:
    """The microseconds that one source line spends on one engine, summed over a chain of operations in which each waits
    for the operation before it.

    The chain is the critical path, or the chain before the first operation of the busiest engine.
    """

    line: int
    engine: str
    us: float


@dataclass(frozen=True, slots=True)
class Binding:
    """The parts of a latency, divided by what the busiest engine does: start, work, waits, end.

    ``start_us + busy_us + waits_us + end_us + margin_us`` is the whole latency.
    """

    engine: str
    start_us: float
    """Time before the engine's first operation."""
    start: tuple[PathStep, ...]
    """The steps of the chain of operations for which the engine's first operation waits, longest first."""
    busy_us: float
    waits_us: float
    """Sum of all waits between the engine's first and last operation, including waits that ``waits`` does not list."""
    waits: tuple[Wait, ...]
    """The waits, summed by source line, longest first."""
    end_us: float
    """Time after the engine's last operation."""
    cold_us: float
    """The part of ``busy_us`` that the tensor engine loses because it runs at a lower rate until it has been busy for
    long enough.
    """
    margin_us: float = 0.0
    """Time that the model adds to its schedule, because real schedules are not perfect and two cores share one HBM."""

    def to_json(self) -> dict[str, Any]:
        """Return all parts by name, as data for JSON."""
        return {**plain(self), "start": list(map(plain, self.start)), "waits": list(map(plain, self.waits))}


def plain(record: Any) -> dict[str, Any]:
    """Return the fields of a record as a dict by name. The record's class must have ``__slots__``.

    ``dataclasses.asdict`` would copy each value, which takes a tenth of the time that a small kernel's timeline takes.
    """
    return {name: getattr(record, name) for name in record.__slots__}


def binding(machine: Machine, times: Schedule, engine: str) -> Binding | None:
    """Return the parts of a schedule's latency by what ``engine`` does; None if no operation runs on that engine."""
    wanted = next(number for number, one in enumerate(ENGINES) if one.value == engine)
    use = times.use_of(machine, wanted)
    if use is None:
        return None
    longest = sorted(use.waits_us.items(), key=lambda item: (-item[1], item[0]))[:MOST_WAITS]
    return Binding(
        engine,
        use.begin_us,
        _steps(machine, times, use.first),
        use.end_us - use.begin_us - use.idle_us,
        use.idle_us,
        tuple(Wait(at, where, ENGINES[other].value, us) for (at, where, other), us in longest),
        max(0.0, times.total_us - use.end_us),
        times.throttled_us,
    )


def _steps(machine: Machine, times: Schedule, first: int) -> tuple[PathStep, ...]:
    """Return the steps of the chain of operations for which operation number ``first`` waits, longest first."""
    longest = sorted(times.before_us(machine, first).items(), key=lambda item: (-item[1], item[0]))
    return tuple(PathStep(line, ENGINES[engine].value, us) for (line, engine), us in longest[:MOST_STEPS])
