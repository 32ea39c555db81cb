"""``acceld dataset make``: draw programs, lower them to kernels, check and rewrite these, and write pairs of a
slow and a fast kernel for training.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from acceld.cli.arguments import add_json, add_target
from acceld.cli.output import print_json, say
from acceld.errors import UsageError

if TYPE_CHECKING:
    from acceld.dataset.records import Program

_EVERY_S = 10.0
"""Seconds between two lines of progress when the output is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("action", choices=("make",), help="make: begin a data set, or go on with it")
    parser.add_argument("folder", metavar="DIR", help="folder of the data set: a new one, or one that was begun")
    parser.add_argument("--programs", type=int, default=1150, metavar="N", help="programs (default 1150)")
    parser.add_argument(
        "--pairs", type=int, default=18000, metavar="N", help="slow-fast pairs of all programs together (default 18000)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="the same seed draws the same programs and data (default 0)"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=0,
        metavar="N",
        help="programs at a time (default: as many as cores and memory allow)",
    )
    add_target(parser, simulated=True)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make those programs of the data set that are not done yet, write its files, and return the exit code."""
    for name, least in (("programs", 1), ("pairs", 0), ("jobs", 0)):
        if getattr(arguments, name) < least:
            raise UsageError(f"--{name} must be at least {least}, not {getattr(arguments, name)}")
    from acceld import config
    from acceld.dataset.files import write
    from acceld.dataset.journal import Journal
    from acceld.dataset.making import basis_of, make
    from acceld.dataset.records import Order
    from acceld.evaluate.queue import slots_of
    from acceld.targets import SIMULATOR, Choice, choose

    where = choose(Choice(SIMULATOR, "nki", "trn2"), backend=SIMULATOR, api=arguments.api, chip=arguments.chip)
    order = Order(arguments.programs, arguments.pairs, arguments.seed, where.api, where.chip)
    settings = config.load().config.evaluate
    settings = replace(settings, slots=arguments.jobs or slots_of(settings))
    folder = Path(arguments.folder).resolve()  # absolute, because the sandbox's processes run in another folder
    basis = basis_of(order)
    with Journal(folder, basis) as journal:
        progress = _Progress(order.programs, sum(journal.numbers().values()))
        try:
            asyncio.run(make(order, journal, folder / ".work", settings, progress.update))
        except KeyboardInterrupt:
            kept = sum(journal.numbers().values())
            say(f"\n{kept} of {order.programs} programs are kept in {folder}; the same command continues with them")
            raise
        finally:
            progress.close()
        written = write(order, journal, folder, basis)
        seconds = journal.seconds()
    if arguments.json:
        print_json(
            {
                "folder": str(folder),
                "programs": written.programs,
                "pairs": written.pairs,
                "rows": written.rows,
                "failed": written.rejected,
                "seconds": {name: round(value, 2) for name, value in seconds.items()},
            }
        )
    else:
        say(f"wrote {folder}: {written.programs} programs, {written.pairs} pairs; README.md describes them")
        if written.pairs < order.pairs:
            say(
                f"{order.pairs} pairs were asked for, and the programs gave fewer: ask for more programs with --programs"
            )
    return 0


class _Progress:
    """Printer of the number of finished programs: one line that is redrawn on a terminal, a line every 10 s
    elsewhere.
    """

    def __init__(self, wanted: int, before: int) -> None:
        self._wanted, self._made, self._before = wanted, before, before
        self._failed = self._pairs = 0
        self._began = self._told = time.monotonic()
        self._terminal = sys.stderr.isatty()
        if before:
            say(f"{before} of {wanted} programs are made already")

    def update(self, program: Program) -> None:
        """Count a finished program, and print the number of finished programs at regular intervals."""
        self._made += program.made
        self._failed += not program.made
        self._pairs += len(program.pairs)
        now = time.monotonic()
        if not self._terminal and now - self._told < _EVERY_S:
            return
        self._told = now
        rate = 3600 * (self._made - self._before) / max(now - self._began, 1e-3)
        line = f"{self._made} of {self._wanted} programs, {self._failed} failed, {self._pairs} pairs, {rate:.0f} programs an hour"
        print(
            f"\r{line}\x1b[K" if self._terminal else line,
            end="" if self._terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        """End the line that was redrawn."""
        if self._terminal and self._told > self._began:
            print(file=sys.stderr)
