"""``acceld apply``: write the best kernel of a run or workload over a kernel file, or to a new file."""

from __future__ import annotations

import argparse
import asyncio
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from acceld import config
from acceld.cli import best_kernels
from acceld.cli.arguments import add_json
from acceld.cli.connect import connected, records
from acceld.cli.kernels import evaluated, stored_kernel
from acceld.cli.output import print_json, say, write_file
from acceld.client import Client
from acceld.errors import UsageError
from acceld.home import find_home
from acceld.model import Evaluation, Gate, Kernel
from acceld.targets import SIMULATOR
from acceld.watch.apply import check_win

TRYING_S = 600.0
"""Deadline in seconds for the daemon's evaluation of the kernel, including the wait in the queue."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    best_kernels.add_arguments(parser)
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="replace this kernel file, if the kernel has the same signature and imports, passes today and is not slower than the "
        "file's kernel; a copy is kept beside it",
    )
    parser.add_argument(
        "--even-if-tied",
        action="store_true",
        help="with FILE: also a kernel whose gain is neither certain nor likely, or that is slower than the file's",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the kernel to this new file instead")
    parser.add_argument(
        "--export",
        metavar="FILE",
        help="write one new file instead: the kernel with provenance, evidence and a self-check",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the best kernel to the file, and return the exit code."""
    what = arguments.what
    places = [place for place in (arguments.file, arguments.output, arguments.export) if place]
    if len(places) != 1:
        raise UsageError(
            "no file for the kernel is named"
            if not places
            else f"the kernel can be written to one file only, not to {', '.join(places)}",
            hint=f"acceld apply {what} KERNEL.py replaces a file, acceld apply {what} -o NEW.py writes a new one",
        )
    found = best_kernels.best_kernel(arguments.home, what, arguments.chip)
    if arguments.output:
        _write_new(Path(arguments.output), found.candidate["text"], what)
    elif arguments.export:
        _write_new(Path(arguments.export), _exported(found.run, arguments.home), what)
    else:
        if not arguments.even_if_tied:
            check_win(found.run)
        target = Path(arguments.file).absolute()
        say(applied(target, found.candidate, found.run, arguments.home, arguments.even_if_tied))
    if arguments.json:
        print_json(found.record())
    found.say()
    if not arguments.file:
        found.say_needs()
    return 0


def _exported(found: Mapping[str, Any], home: str | None) -> str:
    """Return the text that ``--export`` writes: one Python file with a run's best kernel.

    Raise UsageError if the kernel has not passed the strict gate, or if a later check found it to be broken.
    """
    from acceld.production import exported, stored_kernels

    kept = [one for one in stored_kernels(found["workload"], home) if one.candidate == found["best"]]
    if not kept:
        raise UsageError(
            f"c{found['best']} can not be exported: it has not passed the strict gate, or a later check found it broken",
            hint=f"acceld check r{found['id']} evaluates it again",
        )
    return exported(kept[0])


def applied(
    path: Path, candidate: Mapping[str, Any], found: Mapping[str, Any], home: str | None, even_if_tied: bool
) -> str:
    """Check the best kernel again, write it over a file, and return a message about that.

    If a daemon runs, the daemon checks and writes. A measured kernel needs a daemon, because only a daemon lends
    devices.
    """
    from acceld.watch.apply import apply, backup_of, check_drop_in, holds, seen, written

    expected = seen(path)
    if holds(path, candidate["text"]):
        return f"{path} already is c{candidate['id']}; nothing was written"
    undo = f"\nto undo: {shlex.join(['mv', str(backup_of(path.resolve(), expected)), str(path.resolve())])}"
    check_drop_in(path, _untrusted(candidate), found["id"])
    if found["backend"] == SIMULATOR and find_home(home).daemon() is None:
        gained = asyncio.run(_gained(path, path.read_text(encoding="utf-8-sig"), candidate, found, home, even_if_tied))
        backup = apply(path, candidate["text"], expected)
        return written(candidate["id"], gained, path, backup) + undo
    place, _ = connected(home)
    asked: dict[str, Any] = {"action": "apply", "path": str(path), "expected_sha256": expected}
    asked |= {"even_if_tied": True} if even_if_tied else {}
    reported = Client(place, timeout_s=TRYING_S).send("POST", f"/v1/runs/{found['id']}/actions", asked)
    return f"{reported['result']}{undo}"


async def _gained(
    path: Path,
    text: str,
    candidate: Mapping[str, Any],
    found: Mapping[str, Any],
    home: str | None,
    even_if_tied: bool,
) -> str:
    """Evaluate the kernel and the file that it is to replace, and return the gain in words.

    Raise UsageError if the kernel's text can not be traced or breaks a rule of the chip, or is not faster than the
    file's.
    """
    from acceld.evaluate.interface import started
    from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
    from acceld.watch.apply import compared_with_file, known_as

    known = records(home, *known_as(text))
    place = {"workload": found["workload"], "folder": found["workload_folder"], "chip": found["chip"]}
    best = _untrusted(candidate)
    async with started(SimulatedEvaluator(config.load().config.evaluate, find_home(home).prepare())) as evaluator:

        async def evaluate(kernel: Kernel, gate: Gate) -> Evaluation:
            return await evaluated(evaluator, kernel, gate, **place)

        tried = await evaluate(best, Gate.TIMING)
        if tried.profile is None:
            why = tried.failure.message if tried.failure else tried.status.value
            raise UsageError(
                f"c{candidate['id']} does not pass now: {why}", hint=f"acceld check r{found['id']} evaluates it again"
            )
        return await compared_with_file(path, text, known, found, best, tried, evaluate, even_if_tied=even_if_tied)


def _untrusted(candidate: Mapping[str, Any]) -> Kernel:
    return replace(stored_kernel(candidate), trusted=False)


def _write_new(path: Path, text: str, what: str) -> None:
    if path.exists():
        raise UsageError(f"{path} exists", hint=f"to replace it and keep a copy: acceld apply {what} {path}")
    write_file(path, text, mode="x")
    say(f"wrote {path}")
