"""``acceld calibrate``: show how far the simulator's predictions are from this machine's measurements, correct them,
or find cores that disturb each other's times.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from acceld import config, plugins
from acceld.cli.arguments import add_json
from acceld.cli.output import print_json, print_pairs, print_table, say
from acceld.errors import DeviceError
from acceld.home import find_home
from acceld.targets import CHIPS, DEVICE_OF

PAIRS = """
SELECT e.workload AS workload, f.chip AS chip, f.api AS api, f.method AS method, f.sdk AS sdk,
       f.latency_us AS latency_us, json_extract(d.details, '$.simulated_latency_us') AS simulated_us,
       json_extract(d.details, '$.simulated_interval_percent') AS interval_percent, max(e.id) AS evaluation
FROM evaluations e JOIN profiles f ON f.evaluation = e.id JOIN profile_details d ON d.evaluation = e.id
WHERE f.source = 'measured' AND e.status = 'passed'
  AND json_extract(d.details, '$.simulated_latency_us') IS NOT NULL
GROUP BY e.source_sha256, e.workload, f.chip, f.api, f.method, f.sdk
"""
"""SQL: the newest measurement of each kernel by each method, with the simulator's prediction for the kernel."""
LIMIT = 100_000
TIME_LIMIT_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--chip", choices=CHIPS, help="only this chip")
    parser.add_argument(
        "--interference", action="store_true", help="measure which cores must be idle while another one is timed"
    )
    parser.add_argument("--fit", action="store_true", help="correct the simulator by this machine's measurements")
    parser.add_argument(
        "--from",
        dest="file",
        metavar="FILE.jsonl",
        type=Path,
        help="correct the simulator by the measurements in a file",
    )
    parser.add_argument("--forget", action="store_true", help="use the published model again")
    disturbed = [backend for backend, device in DEVICE_OF.items() if device.interference]
    parser.add_argument(
        "--backend", choices=disturbed, default=disturbed[0] if disturbed else None, help="with --interference"
    )
    add_json(parser)


@dataclass(frozen=True, slots=True)
class Pair:
    """Predicted and measured latency of one kernel."""

    workload: str
    simulated_us: float
    latency_us: float
    interval_percent: float | None

    @property
    def error_percent(self) -> float:
        """Return the error of the prediction in percent of the measured latency; negative if the prediction is too
        short.
        """
        return 100.0 * (self.simulated_us / self.latency_us - 1.0)


@dataclass(frozen=True, slots=True)
class ModelError:
    """Errors of the simulator's predictions for one chip, API, method of measuring and SDK."""

    chip: str
    api: str
    method: str
    sdk: str
    kernels: int
    workloads: int
    median_percent: float
    """Median error with its sign: negative if the simulator is too fast."""
    median_absolute_percent: float
    greatest_absolute_percent: float
    scale: float
    """Geometric mean of measured over predicted latencies."""
    inside_percent: float | None
    """Percentage of kernels whose measured latency lies inside the predicted interval; None if no prediction has an
    interval.
    """
    order_agrees: int
    order_pairs: int
    """Number of pairs of kernels of one workload. ``order_agrees`` counts the pairs measured in the predicted order."""


def run(arguments: argparse.Namespace) -> int:
    """Print the simulator's error on this machine, fit a calibration, or find interfering cores, as the options ask."""
    if arguments.interference:
        return _interference(arguments)
    if arguments.fit or arguments.file or arguments.forget:
        from acceld.cli.calibration import learn

        return learn(arguments)
    found = errors([row for row in pairs(find_home(arguments.home).database) if arguments.chip in (None, row["chip"])])
    if not found:
        raise DeviceError(
            "no kernel was both measured and predicted on this machine",
            hint="measure the best kernels of a simulated run: acceld check r12 --on device",
        )
    if arguments.json:
        print_json({"errors": [asdict(one) for one in found]})
        return 0
    print_table(
        [
            (
                one.chip,
                one.api,
                one.method,
                str(one.kernels),
                f"{one.median_percent:+.1f} %",
                f"{one.median_absolute_percent:.1f} %",
                f"{one.greatest_absolute_percent:.1f} %",
                f"{one.scale:.3f}",
                "—" if one.inside_percent is None else f"{one.inside_percent:.0f} %",
                f"{one.order_agrees} of {one.order_pairs}",
            )
            for one in found
        ],
        ("chip", "api", "method", "kernels", "median", "median |error|", "worst", "scale", "inside", "in order"),
        right=frozenset(range(3, 10)),
    )
    say("error: predicted over measured; scale: measured over predicted; inside: within the stated interval")
    return 0


def pairs(database: Path) -> list[dict[str, Any]]:
    """Return the rows of the statement :data:`PAIRS`; an empty list if there is no history yet."""
    from acceld.store.connection import connect_reader
    from acceld.store.reads.history import query

    if not database.is_file():
        return []
    connection = connect_reader(database)
    try:
        table = query(connection, PAIRS, limit=LIMIT, time_limit_s=TIME_LIMIT_S)
    finally:
        connection.close()
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def errors(rows: Sequence[dict[str, Any]]) -> list[ModelError]:
    """Return the errors for each chip, API, method and SDK. Latencies that were measured by different methods
    are never mixed.
    """
    groups: dict[tuple[str, str, str, str], list[Pair]] = defaultdict(list)
    for row in rows:
        pair = Pair(row["workload"], row["simulated_us"], row["latency_us"], row["interval_percent"])
        groups[(row["chip"], row["api"], row["method"], row["sdk"])].append(pair)
    return [_error(where, pairs) for where, pairs in sorted(groups.items())]


def _error(where: tuple[str, str, str, str], pairs: Sequence[Pair]) -> ModelError:
    stated = [one for one in pairs if one.interval_percent is not None]
    inside = [one for one in stated if abs(one.error_percent) <= (one.interval_percent or 0.0)]
    ordered = [
        (a.simulated_us < b.simulated_us) == (a.latency_us < b.latency_us)
        for a, b in combinations(pairs, 2)
        if a.workload == b.workload and a.simulated_us != b.simulated_us
    ]
    return ModelError(
        *where,
        kernels=len(pairs),
        workloads=len({one.workload for one in pairs}),
        median_percent=median(one.error_percent for one in pairs),
        median_absolute_percent=median(abs(one.error_percent) for one in pairs),
        greatest_absolute_percent=max(abs(one.error_percent) for one in pairs),
        scale=math.exp(sum(math.log(one.latency_us / one.simulated_us) for one in pairs) / len(pairs)),
        inside_percent=100.0 * len(inside) / len(stated) if stated else None,
        order_agrees=sum(ordered),
        order_pairs=len(ordered),
    )


def _interference(arguments: argparse.Namespace) -> int:
    import asyncio

    learn = plugins.named(DEVICE_OF[arguments.backend].interference)
    found = asyncio.run(learn(arguments.backend, config.load().config, find_home(arguments.home).prepare()))
    if arguments.json:
        print_json(found.plain())
        return 0
    shown = [(kind, f"{100 * (ratio - 1):+.2f} % while such a core is busy") for kind, ratio in found.slowdown.items()]
    print_pairs([*shown, ("isolation", f"{found.isolation}: idle while a core is timed"), ("written", str(found.path))])
    return 0
