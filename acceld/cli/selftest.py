"""``acceld selftest``: every known attack and honest kernels beside them, tried on this machine's own evaluator."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from acceld import config
from acceld.cli.output import print_json, print_table, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which attacks, how often, and the form of the answer."""
    parser.add_argument("--attacks", metavar="DIR", type=Path, help="a folder of further attacks")
    parser.add_argument("--backend", choices=("simulator", "cpu"), default="simulator", help="whose judge to attack")
    parser.add_argument("--only", metavar="GLOB", default="", help="only attacks whose id matches, such as 'F*'")
    parser.add_argument("--repeats", metavar="N", type=int, default=1, help="try each N times")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the suite; 1 where somebody was fooled, something died or an honest kernel was refused."""
    from acceld.errors import UsageError
    from acceld.evaluate.selftest import Result, run_selftest

    if arguments.repeats < 1:
        raise UsageError(f"--repeats {arguments.repeats} must be at least 1")
    settings = config.load().config
    done, last = 0, time.monotonic()

    def told(result: Result) -> None:
        nonlocal done, last
        done += 1
        bad = result.outcome in ("fooled", "death", "false_reject")
        if bad or time.monotonic() - last > 5:
            last = time.monotonic()
            why = f": {result.status} {result.rule} {result.message}" if bad else ""
            say(f"{done} tried; {result.id} ({result.mode}): {result.outcome.replace('_', ' ')}{why}")

    report = asyncio.run(
        run_selftest(
            settings.evaluate,
            attacks=arguments.attacks,
            repeats=arguments.repeats,
            only=arguments.only,
            backend=arguments.backend,
            on_result=told,
        )
    )
    data = report.plain()
    if arguments.json:
        print_json(data)
        return 0 if report.passed else 1
    names = ("level", "attacks", "honest", "fooled", "rejected", "truthful", "false_rejects", "judge_deaths", "seconds")
    print_table([(name.replace("_", " "), str(data[name])) for name in names], ("what", "value"))
    return 0 if report.passed else 1
