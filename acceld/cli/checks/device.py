"""Compile, check and time the best kernels of a simulated run on a device, for ``acceld check r12 --on device``.

Each kernel is timed interleaved with the run's baseline. The ratio of the two latencies is its speed-up.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from acceld import figures
from acceld.cli.connect import connected
from acceld.cli.interleaved import Interleaved
from acceld.cli.kernels import NOT_PASSED, plain, stored_kernel
from acceld.cli.output import print_json, print_table, say
from acceld.client import Client
from acceld.errors import UsageError
from acceld.model import Kernel, Source, Status
from acceld.targets import TARGETS

ANSWER_S = 86_400.0


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """A kernel of a simulated run: the simulator's prediction, and the result on the device."""

    candidate: int
    baseline: bool
    status: str
    predicted_us: float
    latency_us: float | None
    source: str | None
    interval_percent: float | None
    speedup: float | None
    improved: bool | None
    """True if the kernel is faster than the baseline beyond a tie; None if the two were not timed together."""
    interleaved: Interleaved | None
    """Speed-up over the baseline; None for the baseline itself, or if the two were not timed together."""
    failure: str | None


def run(arguments: argparse.Namespace) -> int:
    """Check the run's best kernels on a device, and print predictions beside measurements. Return 7 if a kernel
    does not pass.
    """
    if arguments.what is None or not re.fullmatch(r"r\d+", arguments.what):
        raise UsageError(
            "--on device checks the best kernels of a run, and no run is named", hint="acceld check r12 --on device"
        )
    home, client = connected(arguments.home)
    client = Client(home, timeout_s=ANSWER_S)
    record = client.get(f"/v1/runs/{arguments.what[1:]}")
    backend = arguments.backend or device_of(record["api"], record["chip"])
    chosen = _chosen(client, record, arguments.top)
    found = []
    kernels = [stored_kernel(client.get(f"/v1/candidates/{one['id']}")) for one in chosen]
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
                "kernels": [asdict(one) for one in found],
            }
        )
    else:
        _print(found, record["chip"])
        if pairs:
            say(f"{agreed} of {pairs} pairs of kernels are in the order that was predicted")
    return 0 if all(one.status == Status.PASSED for one in found) else NOT_PASSED


def device_of(api: str, chip: str) -> str:
    """Return the backend that measures kernels of an API on a chip. Raise UsageError if there is no such
    backend.
    """
    for target in TARGETS.values():
        if target.source is Source.MEASURED and chip in target.chips.get(api, ()):
            return target.backend
    raise UsageError(f"no device runs {api} kernels for {chip}", hint="acceld doctor shows the devices of this machine")


def agreement(found: list[DeviceResult]) -> tuple[int, int]:
    """Count pairs of passing kernels. Return how many pairs were measured in the predicted order, and how many pairs
    there are.
    """
    timed = [(one.predicted_us, one.latency_us) for one in found if one.latency_us and one.status == Status.PASSED]
    pairs = [(a, b) for a, b in combinations(timed, 2) if a[0] != b[0]]
    return sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs), len(pairs)


def _chosen(client: Client, record: dict[str, Any], top: int) -> list[dict[str, Any]]:
    """Return the baseline and the ``top`` fastest candidates. Of candidates with the same program only one
    counts.
    """
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
        raise UsageError(f"r{record['id']} has no kernel that passed", hint=f"acceld show r{record['id']} says why")
    return [*baseline, *list(distinct.values())[:top]]


def _measured(
    client: Client, record: dict[str, Any], one: dict[str, Any], backend: str, kernel: Kernel, first: Kernel | None
) -> DeviceResult:
    is_baseline = one["id"] == record["baseline"]
    place = {name: record[name] for name in ("workload", "workload_folder", "chip")}
    against = [plain(first)] if first is not None and not is_baseline else []
    asked = {**place, "backend": backend, "gate": "strict", "kernel": plain(kernel), "against": against}
    found = client.send("POST", "/v1/evaluations", asked | {"details": False})
    profile, failure = found["profile"] or {}, found["failure"]
    turns = Interleaved.from_plain(found["paired"][0]) if found["paired"] else None
    return DeviceResult(
        candidate=one["id"],
        baseline=is_baseline,
        status=found["status"],
        predicted_us=one["latency_us"],
        latency_us=profile.get("latency_us"),
        source=profile.get("source"),
        interval_percent=profile.get("interval_percent"),
        speedup=turns.ratio if turns else None,
        improved=turns.win if turns else None,
        interleaved=turns,
        failure=failure["message"] if failure else None,
    )


def _print(found: list[DeviceResult], chip: str) -> None:
    first = next((one for one in found if one.baseline), None)
    rows = []
    for one in found:
        predicted = first.predicted_us / one.predicted_us if first else None
        rows.append(
            (
                f"c{one.candidate}" + (" baseline" if one.baseline else ""),
                figures.status(one.status),
                figures.latency(one.predicted_us, "simulated", chip, None),
                figures.latency(one.latency_us, one.source, chip, one.interval_percent)
                if one.latency_us and one.source
                else "—",
                f"{predicted:.2f}x" if predicted else "—",
                one.interleaved.text if one.interleaved else "—",
                figures.cell(one.failure, 60),
            )
        )
    headers = ("kernel", "status", "predicted", "on the device", "predicted", "interleaved", "")
    print_table(rows, headers, right=frozenset({2, 3, 4, 5}))
