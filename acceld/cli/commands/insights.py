"""``acceld insights``: list the optimization memory, or show or change one insight."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from acceld import figures
from acceld.cli.arguments import count, number_of
from acceld.cli.connect import history_file, reading, run_number
from acceld.cli.output import print_json, print_json_lines, print_pairs, print_table, say
from acceld.client import Client
from acceld.home import find_home

TEXTS = {"title": "its title", "strategy": "its strategy", "slow": "its slow kernel", "fast": "its fast kernel"}
"""Fields that a person may rewrite."""

MARKS = {
    "pin": "always show the insight to models",
    "unpin": "show the insight only to runs that it fits",
    "mute": "never show the insight to models",
    "unmute": "show it again",
    "withdraw": "mark the insight as refuted; models are not shown it",
    "delete": "remove the insight from the history",
}

NONE_YET = "no insights yet: runs with models write them (acceld optimize WORKLOAD --proposer llm); rules need none"
NONE_FOUND = "no insight matches; acceld insights lists all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("insight", nargs="?", metavar="i38", help="one insight with its slow and its fast kernel")
    parser.add_argument("--run", metavar="r12", help="insights of this run only")
    parser.add_argument("--chip", help="insights for this chip only")
    parser.add_argument("--search", metavar="WORDS", help="insights with these words")
    parser.add_argument("--limit", type=count, default=50, metavar="N", help="rows at most (default 50)")
    parser.add_argument(
        "--playbook",
        action="store_true",
        help="print the short rules for planners that are distilled from many insights",
    )
    change = parser.add_mutually_exclusive_group()
    for mark, what in MARKS.items():
        change.add_argument(f"--{mark}", dest="mark", action="store_const", const=mark, help=what)
    edit = parser.add_argument_group("edit", "replace a text of the insight")
    for name, what in TEXTS.items():
        edit.add_argument(f"--{name}", metavar="TEXT", help=what)
    edit.add_argument("--tags", metavar="A,B", help="tags of the operators that the insight applies to")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--jsonl", action="store_true", help="one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    """List insights, or show or change one, and return the exit code."""
    edits = {name: getattr(arguments, name) for name in TEXTS if getattr(arguments, name) is not None}
    if arguments.tags is not None:
        edits["tags"] = [tag.strip() for tag in arguments.tags.split(",") if tag.strip()]
    if arguments.mark or edits:
        return _change(arguments, edits)
    if arguments.playbook:
        return _print_playbook(arguments)
    with reading(arguments.home) as history:
        if arguments.insight:
            found = history.get(f"/v1/insights/{number_of(arguments.insight, 'i')}")
        else:
            query = {"chip": arguments.chip, "q": arguments.search, "limit": arguments.limit}
            query["run"] = run_number(arguments.home, arguments.run) if arguments.run else None
            listed = history.get("/v1/insights", **query)["insights"]
    if arguments.insight:
        if arguments.json or arguments.jsonl:
            print_json({"insight": found})
        else:
            print_pairs(_pairs(found))
            print(figures.memory_did(found))
        return 0
    if arguments.json:
        print_json({"insights": listed})
    elif arguments.jsonl:
        print_json_lines(listed)
    else:
        rows = [
            (
                f"i{one['id']}",
                one["title"],
                one["kind"],
                figures.speedup(one["speedup"]),
                str(one["uses"]),
                f"{100 * one['win_rate']:.0f} %" if one.get("win_rate") is not None else "—",
                str(one["confirmations"] or "—"),
                str(one["saved"]["candidates"]) if one.get("saved") else "—",
                _taught_by(one),
                ", ".join(_marks(one)),
            )
            for one in listed
        ]
        if not rows:
            say(NONE_FOUND if arguments.chip or arguments.search or arguments.run else NONE_YET)
            return 0
        headers = ("insight", "title", "kind", "gain", "used", "won", "confirmed", "saved", "from", "")
        print_table(rows, headers, right=frozenset({3, 4, 5, 6, 7}))
    return 0


def _taught_by(insight: Mapping[str, Any]) -> str:
    slow, fast = insight["slow_candidate"], insight["fast_candidate"]
    return f"c{slow} → c{fast}" if slow and fast else "—"


def _marks(insight: Mapping[str, Any]) -> list[str]:
    marks = [mark for mark in ("pinned", "muted", "withdrawn") if insight.get(mark)]
    return [*marks, *(["hypothesis"] if figures.is_hypothesis(insight) else [])]


def _pairs(insight: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts of one insight, in the order in which they are printed."""
    gain, band = figures.speedup(insight["speedup"]), insight.get("tie_percent")
    place = f" in iteration {insight['iteration']} of r{insight['run']}" if insight["run"] else ""
    return [
        ("title", insight["title"]),
        ("kind", insight["kind"]),
        ("gain", f"{gain}, a tie within {band:.0f} %" if band is not None else gain),
        ("from", _taught_by(insight) + place),
        ("held", figures.held_on(insight["held"]).removeprefix("held ") or f"{insight['chip']} {insight['api']}"),
        ("change", insight["change"]),
        ("bound", insight["bound"]),
        ("marks", ", ".join(_marks(insight))),
        *((name, insight[name]) for name in ("strategy", "slow", "fast")),
    ]


def _print_playbook(arguments: argparse.Namespace) -> int:
    """Print the rules that planners read: the rules in the person's file, or, without such a file, the rules derived
    from all insights.
    """
    from acceld.search.memory import playbook
    from acceld.search.teacher import written_playbook
    from acceld.store.reads.records import load_insights

    place = find_home(arguments.home).playbook
    written = written_playbook(place)
    rules = written
    if not written:
        with history_file(arguments.home) as connection:
            rules = playbook(load_insights(connection))
    if arguments.json or arguments.jsonl:
        print_json({"playbook": list(rules), "file": str(place) if written else None})
        return 0
    for rule in rules:
        print(rule)
    if written:
        say(f"these are the rules in {place}; without that file they are distilled from the insights")
    elif rules:
        say(f"distilled from the insights in brackets; to change the rules, save these lines as {place} and edit them")
    else:
        say(
            "no rules yet: a rule needs two rewrites that taught the same lesson, or two plans that won with that lesson"
        )
    return 0


def _change(arguments: argparse.Namespace, edits: dict[str, Any]) -> int:
    from acceld.errors import UsageError

    option = arguments.mark or next(iter(edits))
    if not arguments.insight:
        raise UsageError(
            f"--{option} needs the id of an insight",
            hint=f"acceld insights i38 --{option}; acceld insights lists the ids",
        )
    if arguments.mark and edits:
        raise UsageError(
            f"--{arguments.mark} can not be combined with an edit of the insight",
            hint="run acceld insights once for each change",
        )
    number, client = number_of(arguments.insight, "i"), Client(find_home(arguments.home))
    if arguments.mark == "delete":
        client.send("DELETE", f"/v1/insights/{number}")
        say(f"i{number} is forgotten")
        return 0
    if edits:
        found = client.send("PATCH", f"/v1/insights/{number}", edits)
        if arguments.json:
            print_json({"insight": found})
        say(f"i{number} was edited: {', '.join(edits)}; the change applies from the next iteration on")
        return 0
    name = {"pin": "pinned", "mute": "muted", "withdraw": "withdrawn"}[arguments.mark.removeprefix("un")]
    found = client.send("PATCH", f"/v1/insights/{number}", {name: not arguments.mark.startswith("un")})
    if arguments.json:
        print_json({"insight": found})
    say(f"i{number} {arguments.mark}: the change applies from the next iteration on")
    return 0
