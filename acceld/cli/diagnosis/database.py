"""Check the database of the history: integrity, references, missing event numbers, and every stored total."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from acceld.cli.commands.status import size
from acceld.cli.output import answer, say
from acceld.home import find_home


def run(arguments: argparse.Namespace) -> int:
    """Print what is damaged, and the number of rows. Return 1 if something is damaged."""
    from acceld.store.maintenance import check

    home = find_home(arguments.home)
    report = check(home.database, quick=arguments.quick)
    rows = ", ".join(f"{count} {name}" for name, count in report.rows.items())
    state = f"{'DAMAGED' if report.problems else 'ok'}  {rows}  {size(report.bytes)}  {report.seconds:.1f} s"
    answer(arguments, {"ok": not report.problems} | asdict(report), "\n".join([*report.problems, state]))
    if report.problems and not arguments.json:
        say(f"`acceld db restore FILE` replaces it by a copy and keeps the damaged file; copies are in {home.backups}")
    return 1 if report.problems else 0
