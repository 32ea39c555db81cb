"""``acceld show``: show a run, a candidate, an insight or an evaluation by its id."""

from __future__ import annotations

import argparse
import re
from typing import Any

from acceld import figures
from acceld.cli.arguments import add_json
from acceld.cli.connect import History, reading, run_named
from acceld.cli.outcome import print_outcome
from acceld.cli.output import print_json, print_pairs, print_table
from acceld.errors import UsageError
from acceld.model import RunState, Source
from acceld.roofline import peak_source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "id", metavar="r12|c345|i38|e901", help="a run (by id or name), a candidate, an insight or an evaluation"
    )
    parser.add_argument("--source", action="store_true", help="of a candidate: print the kernel alone")
    parser.add_argument(
        "--diff", metavar="AGAINST", nargs="?", const="parent", help="parent (default), baseline, best, id"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the record with the given id, and return the exit code."""
    match = re.fullmatch(r"([rcie])(\d+)", arguments.id)
    named = None if match or arguments.id.isdigit() else run_named(arguments.home, arguments.id)
    if not match and named is None and not arguments.id.isdigit():
        raise UsageError(
            f"{arguments.id!r} is neither an id nor the name of a run",
            hint="a run r12, a candidate c345, an insight i38 or an evaluation e901; acceld runs lists the runs",
        )
    kind, number = (match[1], int(match[2])) if match else ("r", named or int(arguments.id))
    with reading(arguments.home) as history:
        if kind == "c":
            return _candidate(history, number, arguments)
        path = {"r": f"/v1/runs/{number}/outcome", "i": f"/v1/insights/{number}", "e": f"/v1/evaluations/{number}"}
        found = history.get(path[kind])
        if arguments.json:
            print_json(found)
        elif kind == "r":
            print_outcome(found, None, str(history.database), listed=True)
            _candidates(history, number, ended=RunState(found["state"]).ended)
        elif kind == "i":
            _insight(found)
        else:
            _evaluation(found)
    return 0


def _candidates(history: History, run: int, *, ended: bool) -> None:
    rows = [
        (
            f"c{one['id']}",
            str(one["iteration"]),
            figures.status(one["status"]) if one["status"] else "not evaluated" if ended else one["state"],
            figures.brief_latency(one["latency_us"], one["source"]),
            figures.brief_gain(one["speedup"], one["verdict"]),
            f"{one['title'] or 'baseline'}{figures.crossed(one['partner'])}",
            figures.cell((one["failure_message"] or "").partition("\n")[0], 60),
        )
        for one in history.get(f"/v1/runs/{run}/candidates", limit=500)["candidates"]
    ]
    print()
    headers = ("candidate", "iteration", "status", "latency", "speed-up", "plan", "why not")
    print_table(rows, headers, right=frozenset({1, 3, 4}))


def _candidate(history: History, number: int, arguments: argparse.Namespace) -> int:
    found = history.get(f"/v1/candidates/{number}")
    if arguments.source:
        print(found["text"], end="")
        return 0
    if arguments.diff:
        print(history.get(f"/v1/candidates/{number}/diff", against=arguments.diff)["diff"], end="")
        return 0
    if arguments.json:
        print_json(found)
        return 0
    pairs = [
        ("candidate", f"c{number} of r{found['run']}, iteration {found['iteration']}"),
        ("parent", f"c{found['parent']}" if found["parent"] else "— (baseline)"),
        ("plan", found["title"] or "—"),
    ]
    if found["partner"]:
        pairs.insert(2, ("second parent", f"c{found['partner']} (crossover)"))
    if found.get("plan_text") and found["plan_text"] != found["title"]:
        pairs.append(("", found["plan_text"]))
    print_pairs(pairs)
    if found.get("evaluation_record"):
        _evaluation(found["evaluation_record"])
    if found["lineage"]:
        print()
        rows = [
            (
                f"c{one['id']}",
                figures.brief_latency(one["latency_us"], one["source"]),
                figures.brief_gain(one["parent_speedup"], one["parent_verdict"]) if one["parent_speedup"] else "",
                figures.percent(one["percent_of_peak"]),
                f"{one['title'] or 'baseline'}{figures.crossed(one['partner'])}",
            )
            for one in found["lineage"]
        ]
        print_table(rows, ("lineage", "latency", "step", "of peak", "plan"), right=frozenset({1, 2, 3}))
    if found["parent"]:
        print()
        print(history.get(f"/v1/candidates/{number}/diff", against="parent")["diff"], end="")
    return 0


def _evaluation(found: dict[str, Any]) -> None:
    profile = found.get("profile")
    gate = f", {found['gate']} gate" if found["gate"] else ""
    pairs = [("status", f"{figures.status(found['status'])}{gate}  (sandbox {found['sandbox_level'] or '—'})")]
    if found["failure_message"]:
        where = f"line {found['failure_line']}: " if found["failure_line"] else ""
        pairs.append(("why", f"{where}{found['failure_message']}  [{found['failure_rule']}]"))
        if found["failure_hint"]:
            pairs.append(("what to do", found["failure_hint"]))
    if found["rel_l2"] is not None:
        pairs.append(("error", f"{figures.rel_l2(found['rel_l2'])} relative L2, tolerance {found['tolerance']:.2g}"))
    if profile:
        pairs.append(
            (
                "latency",
                figures.latency(profile["latency_us"], profile["source"], profile["chip"], profile["interval_percent"]),
            )
        )
        if profile["source"] == Source.MEASURED:
            pairs.append(("measured by", ", ".join(filter(None, (profile["method"], profile["sdk"])))))
        if found["percent_of_peak"] is not None:
            pairs.append(("of peak", figures.of_peak(found["percent_of_peak"], peak_source(profile["chip"]))))
        if found["percent_of_attainable"] is not None:
            pairs.append(("of attainable", figures.percent(found["percent_of_attainable"])))
        pairs.append(("bound by", profile["bound"] or "—"))
    failed = [check for check in found.get("checks", []) if not check["passed"]]
    passed = len(found.get("checks", [])) - len(failed)
    if found.get("checks"):
        pairs.append(("checks", f"{passed} passed" + "".join(f"\n✗ {c['name']}: {c['detail']}" for c in failed)))
    print_pairs(pairs)


def _insight(found: dict[str, Any]) -> None:
    print_pairs(
        [
            ("insight", f"i{found['id']}: {found['title']}"),
            ("speed-up", f"{found['speedup']:.2f}x, {found['kind']}, {found['source']} on {found['chip']}"),
            ("used", f"{found['uses']} times, {found['wins']} wins, {found['losses']} losses"),
            ("strategy", found["strategy"]),
            ("slow", found["slow"]),
            ("fast", found["fast"]),
        ]
    )
