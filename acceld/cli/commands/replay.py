"""``acceld replay``: decide a run again from its rows, offline; exit 1 on the first difference."""

from __future__ import annotations

import argparse

from acceld.cli.history_source import history_file
from acceld.cli.ids import number_of
from acceld.cli.output import print_json, print_pairs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run."""
    parser.add_argument("run", metavar="r12", help="the run")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read the rows, decide again, compare."""
    from acceld.search.replay import differences, recording

    number = number_of(arguments.run, "r")
    with history_file(arguments.home) as connection:
        found, checked = differences(recording(connection, number))
    first = found[0] if found else None
    if arguments.json:
        print_json(
            {
                "run": number,
                "same": not found,
                "beams": checked.beams,
                "plans": checked.plans,
                "attempts": checked.attempts,
                "differences": [{"what": d.what, "stored": d.stored, "again": d.again} for d in found],
            }
        )
    elif first is None:
        print_pairs(
            [
                ("run", f"r{number}: the same decisions"),
                ("decided", f"{checked.beams} beams, {checked.plans} plans, {checked.attempts} attempts"),
            ]
        )
    else:
        print_pairs(
            [
                ("run", f"r{number}: {len(found)} differences; the first:"),
                ("where", first.what),
                ("stored", first.stored),
                ("again", first.again),
            ]
        )
    return 1 if found else 0
