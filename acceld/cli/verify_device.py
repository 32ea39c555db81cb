"""``acceld verify r12 --on device``: compile, check and time the best kernels of a simulated run on a device.

Each is timed by turns with the run's baseline; its speed-up is that ratio.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from acceld import figures
from acceld.cli.by_turns import Turns
from acceld.cli.connect import connected
from acceld.cli.output import print_json, print_table, say
from acceld.client import Client
from acceld.errors import UsageError
from acceld.model import Source, Status
from acceld.targets import TARGETS

FAILED = 7
ANSWER_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One kernel of the run, what the simulator said of it and what the device did."""

    candidate: int
    is_baseline: bool
    predicted_us: float
    status: str
    latency_us: float | None
    source: str
    interval_percent: float | None
    failure: str
    turns: Turns | None
    """With the baseline; None of the baseline itself, and where they took none."""


def run(arguments: argparse.Namespace) -> int:
    """Print predictions beside measurements; 7 where a kernel does not pass on the device."""
    if arguments.what is None or not re.fullmatch(r"r\d+", arguments.what):
        raise UsageError("--on device goes with a run", hint="acceld verify r12 --on device")
    home, client = connected(arguments.home)
    client = Client(home, timeout_s=ANSWER_S)
    record = client.get(f"/v1/runs/{arguments.what[1:]}")
    backend = arguments.backend or device_of(record["api"], record["chip"])
    chosen = _chosen(client, record, arguments.top)
    found = []
    kernels = [_kernel(client, one["id"]) for one in chosen]
    first = next((kernel for kernel, one in zip(kernels, chosen, strict=True) if one["id"] == record["baseline"]), None)
    for kernel, one in zip(kernels, chosen, strict=True):
        say(f"c{one['id']}: on {backend}")
        found.append(_measured(client, record, one, backend, kernel, first))
    agreed, pairs = agreement(found)
    if arguments.json:
        print_json(
            {
                "run": record["id"],
                "backend": backend,
                "order_agrees": agreed,
                "order_pairs": pairs,
                "kernels": [_plain(one) for one in found],
            }
        )
    else:
        _print(found, record["chip"])
        if pairs:
            say(f"{agreed} of {pairs} pairs of kernels are in the order that was predicted")
    return 0 if all(one.status == Status.PASSED for one in found) else FAILED


def device_of(api: str, chip: str) -> str:
    """The backend that measures kernels of an API on a chip. UsageError where there is none."""
    for target in TARGETS.values():
        if target.source is Source.MEASURED and chip in target.chips.get(api, ()):
            return target.backend
    raise UsageError(f"no device runs {api} kernels for {chip}", hint="acceld doctor tells what this machine has")


def agreement(found: list[Measured]) -> tuple[int, int]:
    """Pairs of kernels that passed whose measured order is the predicted one, and how many pairs there are."""
    timed = [(one.predicted_us, one.latency_us) for one in found if one.latency_us and one.status == Status.PASSED]
    pairs = [(a, b) for a, b in combinations(timed, 2) if a[0] != b[0]]
    return sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs), len(pairs)


def _chosen(client: Client, record: dict[str, Any], top: int) -> list[dict[str, Any]]:
    """The baseline and the ``top`` fastest candidates with programs of their own."""
    passed: list[dict[str, Any]] = []
    after = 0
    while page := client.get(f"/v1/runs/{record['id']}/candidates", after=after, status="passed")["candidates"]:
        passed += page
        after = page[-1]["id"]
    baseline = [one for one in passed if one["id"] == record["baseline"]]
    distinct: dict[Any, dict[str, Any]] = {}
    for one in sorted(passed, key=lambda one: (one["latency_us"] or float("inf"), one["id"])):
        if one["id"] != record["baseline"]:
            distinct.setdefault(one.get("program_sha256") or one["id"], one)
    if not distinct and not baseline:
        raise UsageError(f"r{record['id']} has no kernel that passed", hint=f"acceld show r{record['id']}")
    return [*baseline, *list(distinct.values())[:top]]


def _kernel(client: Client, candidate: int) -> dict[str, Any]:
    """A candidate's kernel: the one of a person is trusted, what a run wrote is not."""
    found = client.get(f"/v1/candidates/{candidate}")
    keys = ("text", "api", "entry", "grid", "lnc", "filename", "closure")
    return {key: found[key] for key in keys} | {"trusted": found["parent"] is None}


def _measured(
    client: Client,
    record: dict[str, Any],
    one: dict[str, Any],
    backend: str,
    kernel: dict[str, Any],
    first: dict[str, Any] | None,
) -> Measured:
    is_baseline = one["id"] == record["baseline"]
    told = client.send(
        "POST",
        "/v1/evaluations",
        {
            "workload": record["workload"],
            "workload_folder": record["workload_folder"],
            "backend": backend,
            "chip": record["chip"],
            "gate": "strict",
            "kernel": kernel,
            "against": [first] if first is not None and not is_baseline else [],
            "details": False,
        },
    )
    profile, failure = told["profile"] or {}, told["failure"]
    return Measured(
        candidate=one["id"],
        is_baseline=is_baseline,
        predicted_us=one["latency_us"],
        status=told["status"],
        latency_us=profile.get("latency_us"),
        source=profile.get("source", ""),
        interval_percent=profile.get("interval_percent"),
        failure=failure["message"] if failure else "",
        turns=Turns.from_plain(told["paired"][0]) if told["paired"] else None,
    )


def _plain(one: Measured) -> dict[str, Any]:
    return {
        "candidate": one.candidate,
        "baseline": one.is_baseline,
        "status": one.status,
        "predicted_us": one.predicted_us,
        "latency_us": one.latency_us,
        "source": one.source or None,
        "interval_percent": one.interval_percent,
        "speedup": one.turns.ratio if one.turns else None,
        "by_turns": one.turns.plain() if one.turns else None,
        "failure": one.failure or None,
    }


def _print(found: list[Measured], chip: str) -> None:
    first = next((one for one in found if one.is_baseline), None)
    rows = []
    for one in found:
        predicted = first.predicted_us / one.predicted_us if first else None
        rows.append(
            (
                f"c{one.candidate}" + (" baseline" if one.is_baseline else ""),
                f"{figures.STATUS_GLYPHS[Status(one.status)]} {one.status}",
                figures.latency(one.predicted_us, "simulated", chip, None),
                figures.latency(one.latency_us, one.source, chip, one.interval_percent) if one.latency_us else "—",
                f"{predicted:.2f}x" if predicted else "—",
                one.turns.text if one.turns else "—",
                one.failure[:60],
            )
        )
    headers = ("kernel", "status", "predicted", "on the device", "predicted", "by turns", "")
    print_table(rows, headers, right=frozenset({2, 3, 4, 5}))
