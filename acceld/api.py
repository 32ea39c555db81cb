"""Provide the Python API: ``acceld.optimize``. Its names and the fields of its result are stable.

docs/python.md has examples.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from acceld.errors import AcceldError, UsageError
from acceld.events import Event
from acceld.model import RunState

__all__ = ["Optimized", "optimize"]

WAIT_S = 5.0
"""Longest wait of one request for new events, in seconds."""


@dataclass(frozen=True, slots=True)
class Optimized:
    """Outcome of a run that :func:`optimize` started."""

    run: int
    """Id of the run, as in ``acceld show r12``."""
    state: str
    """``finished``, ``cancelled``, ``failed``, or ``paused`` if the run waits for a higher budget or for its models."""
    message: str
    improved: bool
    """True if the best kernel is faster than the baseline beyond what the model or the measurement can resolve."""
    verdict: str | None
    """Judgement of the speed-up: ``certain``, ``likely``, ``tie`` or ``slower``; None without a speed-up."""
    speedup: float | None
    """Baseline's latency over the best kernel's; None if no kernel passed. The speed-up is a win only if ``improved``.
    """
    tie_band: float | None
    """Half the width, in percent, of the band around 1 in which a speed-up is a tie.

    It is None if the band is not known, as for unvalidated latencies.
    """
    baseline_latency_us: float | None
    best_latency_us: float | None
    interval_percent: float | None
    """Uncertainty of the latencies in percent, plus or minus; None if the uncertainty is not known."""
    source: str
    """``simulated`` or ``measured``."""
    kernel: str | None
    """Text of the best kernel's file; None without a best kernel."""
    record: Mapping[str, Any]
    """The whole outcome, as ``acceld optimize --json`` prints it."""


def optimize(
    target: str | PathLike[str],
    *,
    workload: str | None = None,
    preset: str | None = None,
    proposer: str | None = None,
    backend: str | None = None,
    chip: str | None = None,
    api: str | None = None,
    seed: int | None = None,
    patience: int | None = None,
    budget_usd: float | None = None,
    time_limit_s: float | None = None,
    name: str = "",
    home: str | PathLike[str] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Optimized:
    """Make a kernel faster in a run of the daemon, and return the run's outcome when it has ended.

    ``target`` is a workload, or a kernel file that is checked against ``workload``. Arguments that are None
    come from acceld.toml. If no daemon runs, one is started, which ends when it has been idle for
    ``daemon.idle_exit_s``. ``on_event`` is called with every event of the run. If it raises an exception, this
    call raises that exception, and the run continues in the daemon.

    A run that paused (for example at a cap) is returned in the state ``paused``. Raises an AcceldError if the
    run can not begin; the kind of error says why.
    """
    from acceld.cli.commands.optimize import add_arguments, as_body, specification
    from acceld.cli.connect import connected

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    arguments = parser.parse_args([])
    given = {
        "target": str(target),
        "workload": workload,
        "preset": preset,
        "proposer": proposer,
        "backend": backend,
        "chip": chip,
        "api": api,
        "seed": seed,
        "patience": patience,
        "budget_usd": budget_usd,
        "time_limit_s": time_limit_s,
        "name": name,
    }
    _check_choices(parser, given)
    vars(arguments).update(given)
    spec, _ = specification(arguments)
    _, client = connected(str(home) if home is not None else None)
    run = int(client.send("POST", "/v1/runs", as_body(spec))["id"])
    for event in client.follow(run, WAIT_S):
        if on_event is not None:
            on_event(event)
    return _optimized(client.get(f"/v1/runs/{run}/outcome"), client)


def _check_choices(parser: argparse.ArgumentParser, given: Mapping[str, Any]) -> None:
    """Raise UsageError for a value that ``acceld optimize`` would not accept."""
    for action in parser._actions:
        value = given.get(action.dest)
        if action.choices is not None and value is not None and value not in action.choices:
            raise UsageError(
                f"{action.dest}={value!r} is not a possible value", hint=f"one of {', '.join(map(str, action.choices))}"
            )


def _optimized(record: Mapping[str, Any], client: Any) -> Optimized:
    if record["state"] == RunState.FAILED:
        raise AcceldError(
            f"r{record['run']} failed: {record['message']}", hint=f"acceld show r{record['run']} says more"
        )
    best = record["best"]
    return Optimized(
        run=record["run"],
        state=record["state"],
        message=record["message"],
        improved=record["improved"],
        verdict=record["verdict"],
        speedup=record["speedup"],
        tie_band=record["tie_band"],
        baseline_latency_us=record["baseline_latency_us"],
        best_latency_us=record["best_latency_us"],
        interval_percent=record["interval_percent"],
        source=record["source"],
        kernel=client.get(f"/v1/candidates/{best}")["text"] if best is not None else None,
        record=record,
    )
