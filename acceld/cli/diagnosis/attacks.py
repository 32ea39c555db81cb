"""Try every known attack, and honest kernels, on the evaluator of this machine: ``acceld doctor selftest``."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import TYPE_CHECKING

from acceld import config
from acceld.cli.output import print_json, print_table, say
from acceld.figures import brief_latency
from acceld.model import Source

if TYPE_CHECKING:
    from acceld.evaluate.selftest.runner import AttackResult


def run(arguments: argparse.Namespace) -> int:
    """Try the attacks and the honest kernels, and print the results.

    Return 1 if the evaluator accepted an attack or refused an honest kernel, if it ended unexpectedly, or if it
    refused an attack by another rule than the attack's file names. Else return 0.
    """
    from acceld.evaluate.selftest.runner import FAILURES, run_selftest

    settings = config.load().config
    done, last = 0, time.monotonic()

    def reported(result: AttackResult) -> None:
        nonlocal done, last
        done += 1
        bad = result.outcome in FAILURES
        if bad or result.outcome == "unlabeled" or time.monotonic() - last > 5:
            last = time.monotonic()
            why = f": {result.status} {result.rule} {result.message}" if bad else ""
            why = why or ": the kernel passed, and its file does not name the expected result" * (
                result.outcome == "unlabeled"
            )
            say(f"{done} tried; {result.id} ({result.mode}): {result.outcome.replace('_', ' ')}{why}")

    report = asyncio.run(
        run_selftest(
            settings.evaluate,
            attacks=arguments.attacks,
            repeats=arguments.repeats,
            only=arguments.only,
            backend=arguments.backend,
            on_result=reported,
        )
    )
    data = report.plain()
    for one in report.broken:
        say(f"not tried: {one.id}: {one.message}")
    if arguments.json:
        print_json(data)
        return 0 if report.passed else 1
    if arguments.attacks is not None:
        rows = [_row(result, arguments.backend) for result in report.results if result.further]
        print_table(rows, ("attack", "as", "on", "expected", "became", "why"))
    data["not_tried"] = len(report.broken)
    names = (
        "level attacks honest fooled rejected caught_by_another_rule truthful unlabeled false_rejects harness_errors "
        "not_tried seconds"
    ).split()
    print_table([(name.replace("_", " "), str(data[name])) for name in names], ("what", "value"))
    return 0 if report.passed else 1


def _row(result: AttackResult, backend: str) -> tuple[str, ...]:
    """Return the table row of one attack."""
    source = Source.SIMULATED if backend == "simulator" else Source.MEASURED
    latency = "" if result.latency_us is None else brief_latency(result.latency_us, source)
    why = " ".join(filter(None, (result.status, latency, result.rule, result.message)))
    workload = f"{result.workload} (guessed)" if result.guessed else result.workload
    return (result.id, result.mode, workload, result.expect, result.outcome.replace("_", " "), why)
