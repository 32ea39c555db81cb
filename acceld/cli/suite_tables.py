"""Compare the figures of two suites, for ``acceld compare A.json B.json``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acceld import figures
from acceld.cli.output import print_json, print_table, say
from acceld.errors import UsageError, no_file


def run(arguments: argparse.Namespace) -> int:
    """Print the two latencies of each workload and the geometric mean of their ratios. Return the exit code."""
    from acceld.search.suites import compared, geometric_mean

    one, other = (_figures(place) for place in arguments.runs)
    rows = compared(one, other)
    mean = geometric_mean([here / there for _, here, there in rows])
    if arguments.json:
        listed = [{"workload": name, "a_us": here, "b_us": there} for name, here, there in rows]
        print_json({"rows": listed, "a_over_b": None if mean is None else mean.value})
        return 0
    models = [{row["workload"]: row.get("model") for row in each["rows"]} for each in (one, other)]
    if any(models[0].get(name) != models[1].get(name) for name, _, _ in rows):
        say("The suites were timed by different versions of the performance model: do not compare their latencies.")
    table = [(name, figures.duration(a), figures.duration(b), f"{a / b:.2f}x") for name, a, b in rows]
    print_table(table, ("workload", "A", "B", "A / B"), right=frozenset({1, 2, 3}))
    if mean is not None:
        interval = f"95 % interval {mean.low:.2f} to {mean.high:.2f}"
        print(f"geometric mean of {mean.count} workloads: B is {mean.value:.2f}x as fast as A ({interval})")
    return 0


def _figures(place: str) -> Mapping[str, Any]:
    hint = "acceld suite run NAME --json > FILE writes the figures of a suite"
    try:
        found: Mapping[str, Any] = json.loads(Path(place).read_text("utf-8"))
    except FileNotFoundError as error:
        raise no_file(place, hint=hint) from error
    except OSError as error:
        raise UsageError(f"{place} can not be read: {error.strerror}", hint=hint) from error
    except ValueError as error:
        raise UsageError(f"{place} is not JSON: {error}", hint=hint) from error
    if not isinstance(found, dict) or "rows" not in found:
        raise UsageError(f"{place} does not have the results of a suite", hint=hint)
    return found
