"""``acceld compare``: show runs side by side, on request after equal numbers of candidates; or compare two suites."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from acceld import config, figures
from acceld.cli.arguments import add_json
from acceld.cli.commands.costs import usd
from acceld.cli.connect import history_file, run_numbers
from acceld.cli.output import print_json, print_table, say
from acceld.errors import UsageError
from acceld.model import PROPOSERS
from acceld.roofline import peak_source

if TYPE_CHECKING:
    from acceld.search.comparison import Compared
    from acceld.search.outcome import RunOutcome
    from acceld.search.signs import RepairRate

STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""Numbers of candidates after which the speed-up of the best candidate so far is printed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="r12|A.json",
        help="the runs, by id or name, one column each; or the --json files of two suites",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a column for each run; for the files of two suites, a row for each workload. Return the exit code."""
    files = [one for one in arguments.runs if one.endswith(".json")]
    if files:
        if len(files) != 2 or len(arguments.runs) != 2:
            raise UsageError("exactly two result files of acceld suite are needed", hint="acceld compare A.json B.json")
        from acceld.cli import suite_tables

        return suite_tables.run(arguments)
    from acceld.search.comparison import comparable, compared

    numbers = run_numbers(arguments.home, arguments.runs)
    with history_file(arguments.home) as connection:
        found = [compared(connection, number) for number in numbers]
    same = comparable(found)
    if arguments.json:
        lines = [
            {"run": number, "usd_per_percent": one.usd_per_percent} | asdict(one) | {"outcome": one.outcome.to_json()}
            for number, one in zip(numbers, found, strict=True)
        ]
        print_json({"comparable": same, "runs": lines})
        return 0
    price = config.load().config.devices.usd_per_hour
    columns = [_column(one, price) for one in found]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    longest = max(len(one.progress) for one in found)
    for step in (step for step in STEPS if step <= longest):
        best = (one.progress[step - 1] if step <= len(one.progress) else None for one in found)
        rows.append([f"after {figures.many(step, 'candidate')}", *(figures.speedup(value) for value in best)])
    print_table(rows, ["", *(f"r{number}" for number in numbers)], right=frozenset(range(1, len(numbers) + 1)))
    if not same:
        say(
            "The runs differ in workload, chip, API, source or performance model: their latencies and speed-ups are not "
            "comparable."
        )
    for number, one in zip(numbers, found, strict=True):
        for sign in (sign for sign in one.signs if PROPOSERS[one.outcome.proposer].uses_models or not sign.of_models):
            say(f"r{number}: {sign.text}. {sign.hint}")
    return 0


def _column(one: Compared, usd_per_hour: float | None) -> dict[str, str]:
    result = one.outcome
    device_usd = one.device_usd(usd_per_hour)
    total = None if device_usd is None or one.cost_usd is None else one.cost_usd + device_usd
    return {
        "workload": result.workload,
        "proposals by": result.proposer,
        "strategy": f"{one.strategy}, B = {one.beam_width}, memory {one.memory}{'' if one.planner else ', no planner'}",
        "speed-up": figures.gained(result.speedup, result.verdict, result.tie_band, result.tie_reason),
        "best": figures.latency(result.best_latency_us, result.source, result.chip, result.interval_percent),
        "model": result.model or "—",
        "of peak": _peak(result),
        "of attainable": figures.percent(result.percent_of_attainable_after),
        "candidates": str(sum(result.counts.values())),
        "calls": str(one.calls),
        "models USD": usd(one.cost_usd, one.unpriced_calls),
        "USD per percent": "—" if one.usd_per_percent is None else usd(one.usd_per_percent),
        "of that, repairs": usd(one.fixer_usd),
        "repaired": _repaired(one.repairs),
        "device hours": f"{one.device_hours:.3f}",
        "devices USD": "—" if device_usd is None else usd(device_usd),
        "USD in all": "—" if total is None else usd(total, one.unpriced_calls),
        "elapsed": f"{result.elapsed_s:.0f} s",
        "insights alike": f"{one.redundancy:.0%}",
        "wins no rule has": "—" if one.unruled_wins is None else f"{one.unruled_wins:.0%}",
    }


def _peak(result: RunOutcome) -> str:
    """Return the percent of peak with the peak's source. Percentages of peaks from two sources can not be
    compared.
    """
    if result.percent_of_peak_after is None:
        return "—"
    return f"{figures.percent(result.percent_of_peak_after)} ({peak_source(result.chip)})"


def _repaired(rates: Sequence[RepairRate]) -> str:
    """Return how many of the failed candidates that a fixer tried were repaired, as ``3 of 7``, with the class of
    failure that was tried most.
    """
    if not rates:
        return "—"
    tries, repaired = sum(rate.tries for rate in rates), sum(rate.repaired for rate in rates)
    return f"{repaired} of {tries}, most {rates[0].rule or rates[0].status}"
