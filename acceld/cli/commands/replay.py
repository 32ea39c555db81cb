"""``acceld replay``: repeat a run's decisions from its stored rows, offline. The exit code is 1 if a decision
differs.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from acceld.cli.arguments import add_json
from acceld.cli.connect import history_file, run_number
from acceld.cli.output import print_json, print_pairs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("run", metavar="r12", help="the run, by id or name")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Repeat the decisions of a run, and print the first decision that differs from the stored one. Return 1 if a
    decision differs, else 0.
    """
    from acceld.search.replay import differences, recording

    number = run_number(arguments.home, arguments.run)
    with history_file(arguments.home) as connection:
        found, checked = differences(recording(connection, number))
    first = found[0] if found else None
    if arguments.json:
        print_json(
            {
                "run": number,
                "same": not found,
                **asdict(checked),
                "differences": [asdict(one) for one in found],
            }
        )
    elif first is None:
        decided = f"{checked.beams} beams, {checked.plans} plans, {checked.attempts} attempts"
        print_pairs([("run", f"r{number}: the same decisions"), ("decided", decided)])
    else:
        run = ("run", f"r{number}: {len(found)} differences; the first:")
        print_pairs([run, ("where", first.what), ("stored", first.stored), ("again", first.again)])
    return 1 if found else 0
