"""``acceld ablate``: repeat a search with one setting changed at a time, at equal cost, and show the outcomes
in a table and a plot.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceld import figures
from acceld.cli.arguments import CONFIGURED, add_json, add_target, count, natural
from acceld.cli.commands.costs import usd
from acceld.cli.commands.optimize import add_option, specification
from acceld.cli.output import print_json, print_table, say, write_file
from acceld.errors import UsageError
from acceld.events import RunStateChanged, event_of
from acceld.model import PRESETS, PROPOSERS, waits_for_remedy

if TYPE_CHECKING:
    from acceld.model import RunSpec
    from acceld.search.ablation import Variant, VariantSummary

FORWARDED = ("workload", "entry", "proposer", "preset", "chip", "api", "backend", "seed")
"""Options that are passed on to ``optimize`` unchanged."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("target", metavar="WORKLOAD|KERNEL.py", help="a workload, or a kernel file with --workload")
    parser.add_argument(
        "--vary",
        nargs="+",
        required=True,
        metavar="NAME=VALUE,VALUE",
        help="beam=1,3,5,10 memory=off,fifo,value fixer=0,4 planner=on,off tools=on,off plans=4,8 attempts=1,2 top_k=4,8 "
        "memory_size=8,16 strategy=beam,best_of_n,reflexion,random proposer=rules,llm,both",
    )
    parser.add_argument(
        "--grid", action="store_true", help="every combination of the settings, not one change at a time"
    )
    parser.add_argument(
        "--budget",
        nargs="+",
        default=[],
        metavar="candidates=N|usd=X",
        help="cap of each run; default: the candidates that the preset's schedule makes",
    )
    parser.add_argument(
        "--repeats", type=count, default=1, metavar="N", help="number of runs of each variant, each with its own seed"
    )
    parser.add_argument("--workload", help="the workload that a kernel file is checked against")
    parser.add_argument("--entry", help="name of the kernel function in the file")
    parser.add_argument(
        "--proposer", choices=tuple(PROPOSERS), help="rewrite rules, language models, both, or a program of yours"
    )
    parser.add_argument("--preset", choices=tuple(PRESETS), help="beam width, plans, attempts and iterations")
    add_target(parser, backend=f"backend that evaluates them {CONFIGURED}")
    add_option(parser, "seed", natural, "N")
    parser.add_argument("-o", "--output", metavar="FILE.html|.svg", help="write the plot to this file too")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Submit every run, wait until all have ended, print their outcomes, and return the exit code."""
    from acceld.cli.connect import connected
    from acceld.search.ablation import parse_cost, parse_vary, variants, without_effect

    vary, cost = parse_vary(arguments.vary), parse_cost(arguments.budget)
    place = _place(arguments.output)
    spec = _specification(arguments)
    for name, why in without_effect(vary, spec.proposer).items():
        say(f"{name} has no effect here and is left out: {why}")
        del vary[name]
    if not vary:
        raise UsageError(
            "--vary names no setting that has an effect with these options",
            hint="use --proposer llm, or --vary beam=, plans=, attempts= or strategy=",
        )
    bases = {name: _specification(arguments, name).search for name in vary.get("proposer", ())}
    planned = variants(spec.search, vary, cost, repeats=arguments.repeats, grid=arguments.grid, proposers=bases)
    home, client = connected(arguments.home)
    numbers = [
        _submitted(client, replace(spec, proposer=variant.proposer or spec.proposer), variant) for variant in planned
    ]
    every = [number for row in numbers for number in row]
    say(f"{figures.many(len(every), 'run')} of {figures.many(len(planned), 'variant')}: r{every[0]} to r{every[-1]}")
    try:
        for number in every:
            _wait(client, number)
    except KeyboardInterrupt:
        words = " ".join(f"r{number}" for number in every)
        say(f"detached; the runs continue. Afterwards: acceld compare {words}")
        return 130
    results = _results(home.database, planned, numbers)
    curves = {one.name: one.progress for one in results}
    if place is not None:
        _write_plot(place, spec.workload, curves, results)
    if arguments.json:
        print_json({"workload": spec.workload, "proposer": spec.proposer, "variants": [asdict(one) for one in results]})
        return 0
    _print(results, curves)
    return 0


def _place(text: str | None) -> Path | None:
    if text is None:
        return None
    place = Path(text)
    if place.suffix not in (".html", ".svg"):
        raise UsageError(
            f"the plot can not be written to {text}: its name has to end in .html or .svg",
            hint="-o FILE.html or -o FILE.svg",
        )
    return place


def _specification(arguments: argparse.Namespace, proposer: str | None = None) -> RunSpec:
    """Return the base run: the run that ``optimize`` would start with the same options. Each other run changes one
    setting of the base run.

    ``proposer`` replaces the proposer of the options unless it is None.
    """
    from acceld.cli.main import parser_of

    words = [arguments.target]
    for name in FORWARDED:
        value = proposer if name == "proposer" and proposer else getattr(arguments, name)
        words += [] if value is None else [f"--{name}", str(value)]
    if arguments.home:
        words += ["--home", arguments.home]
    return specification(parser_of("optimize").parse_args(words))[0]


def _submitted(client: Any, spec: RunSpec, variant: Variant) -> list[int]:
    from acceld.cli.commands.optimize import as_body

    numbers = []
    for search in variant.searches:
        body = as_body(replace(spec, search=search, name=f"ablate {variant.name}"[:80]))
        numbers.append(client.send("POST", "/v1/runs", body)["id"])
    return numbers


def _wait(client: Any, number: int) -> None:
    """Wait until a run has ended. A run that pauses because its money is spent or its models fail is cancelled."""
    for row in client.events(0, run=number, wait_s=5.0):
        match event_of(row).data:
            case RunStateChanged(state, message):
                if waits_for_remedy(state, message):
                    say(f"r{number} {state}: {message}")
                    client.send("POST", f"/v1/runs/{number}/actions", {"action": "cancel"})
                if state.ended:
                    say(f"r{number} {state}: {message}")
                    return


def _results(database: Path, planned: Sequence[Variant], numbers: Sequence[Sequence[int]]) -> list[VariantSummary]:
    from acceld.search.ablation import result
    from acceld.search.comparison import compared
    from acceld.store.connection import connect_reader

    with closing(connect_reader(database)) as connection:
        return [
            result(variant.name, row, [compared(connection, number) for number in row])
            for variant, row in zip(planned, numbers, strict=True)
        ]


def _print(results: Sequence[VariantSummary], curves: dict[str, tuple[float, ...]]) -> None:
    from acceld.report.plot import text_plot

    rows = [
        (
            one.name,
            figures.brief_gain(one.speedup, one.verdict),
            "" if one.low is None or one.low == one.high else f"{one.low:.2f} to {one.high:.2f}",
            f"{one.candidates:.0f}",
            f"{one.calls:.0f}",
            usd(one.cost_usd),
            f"{one.device_hours:.3f}",
            f"{one.redundancy:.0%}",
            "—" if one.unruled_wins is None else f"{one.unruled_wins:.0%}",
            " ".join(f"r{number}" for number in one.runs),
        )
        for one in results
    ]
    headers = ("variant", "speed-up", "range", "candidates", "calls", "USD", "device h", "insights alike")
    print_table(rows, (*headers, "wins no rule has", "runs"), right=frozenset(range(1, 9)))
    print()
    print(text_plot(curves, x_title="candidates evaluated: best so far over the baseline"))
    spent = [one.candidates for one in results]
    if min(spent) < 0.9 * max(spent):
        say(
            "Some variants used fewer candidates, because nothing more was proposed. Compare variants only at equal "
            "numbers of candidates."
        )
    for one in results:
        for warning in one.warnings:
            say(f"{one.name}: {warning}")


def _write_plot(
    place: Path, workload: str, curves: dict[str, tuple[float, ...]], results: Sequence[VariantSummary]
) -> None:
    from html import escape

    from acceld.report import svg
    from acceld.report.page import STYLE

    drawing = svg.curves(curves, "candidates evaluated", "best so far over the baseline")
    if place.suffix == ".html":
        rows = "".join(
            f"<tr><td>{escape(one.name)}</td><td class='n'>{figures.brief_gain(one.speedup, one.verdict)}</td>"
            f"<td class='n'>{one.candidates:.0f}</td><td class='n'>{one.calls:.0f}</td><td class='n'>{usd(one.cost_usd)}</td></tr>"
            for one in results
        )
        head = "<tr><th>variant</th><th class='n'>speed-up</th><th class='n'>candidates</th><th class='n'>calls</th><th class='n'>USD</th></tr>"
        text = (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>acceld: {escape(workload)}</title>'
            f"<style>{STYLE}</style></head><body><h1>{escape(workload)}: one thing changed at a time, at equal cost</h1>"
            f"<figure>{drawing}</figure><table>{head}{rows}</table></body></html>\n"
        )
    else:
        text = drawing
    write_file(place, text)
    say(f"wrote {place}")
