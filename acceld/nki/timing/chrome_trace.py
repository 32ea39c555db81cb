"""Write a timeline as a Chrome trace (JSON) for Perfetto: one track for each engine, one slice for each operation."""

from __future__ import annotations

from itertools import islice
from typing import Any

from acceld.nki.timing.sbuf_allocation import ENGINES
from acceld.nki.timing.timeline import Timeline

_MOST_SLICES = 200_000


def chrome_trace(line: Timeline) -> dict[str, Any]:
    """Return the trace as data for JSON; times are in microseconds.

    The tracks of an extrapolated timeline are empty, because a timeline that is extrapolated has no single
    operations.
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": f"{line.chip} (simulated, {line.model})"}}
    ]
    for track, engine in enumerate(ENGINES):
        events.append({"ph": "M", "pid": 1, "tid": track, "name": "thread_name", "args": {"name": engine.value}})
        events.append({"ph": "M", "pid": 1, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}})
    machine, times = line.machine, line.schedule
    if machine is not None and times is not None:
        slices = zip(machine.engine, machine.kind, times.start_us, machine.busy_us, machine.line, strict=True)
        events.extend(
            {
                "ph": "X",
                "pid": 1,
                "tid": engine,
                "name": kind,
                "cat": ENGINES[engine].value,
                "ts": round(start, 4),
                "dur": round(busy, 4),
                "args": {"line": line},
            }
            for engine, kind, start, busy, line in islice(slices, _MOST_SLICES)
        )
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"bound": line.bound, "api": line.api}}
