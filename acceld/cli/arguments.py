"""Define arguments that several commands take: groups of options, checked numbers, and ids such as r12."""

from __future__ import annotations

import argparse
import math
import re
from argparse import ArgumentTypeError

from acceld.errors import UsageError
from acceld.store.errors import WHERE_LISTED
from acceld.targets import APIS, CHIPS, SIMULATED_CHIPS, SIMULATOR, TARGETS

KINDS = {"r": "run", "c": "candidate", "i": "insight"}
CONFIGURED = "(default: as acceld.toml says)"


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--json``, which prints the result as JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_forms(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Add ``--json``, ``--jsonl`` and ``--csv`` as alternatives. Return their group, to which further alternatives
    can be added.
    """
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--jsonl", action="store_true", help="one JSON object a line")
    form.add_argument("--csv", action="store_true", help="comma separated")
    return form


def add_target(parser: argparse._ActionsContainer, *, backend: str = "", simulated: bool = False) -> None:
    """Add ``--chip`` and ``--api``; also ``--backend`` if ``backend``, its help text, is not empty."""
    chips, apis = (SIMULATED_CHIPS, TARGETS[SIMULATOR].apis) if simulated else (CHIPS, APIS)
    parser.add_argument(
        "--chip", choices=chips, help="the chip (default: as acceld.toml says, else one that the kernel's API is for)"
    )
    parser.add_argument("--api", choices=apis, help="API of the kernels (default: by a kernel's imports)")
    if backend:
        parser.add_argument("--backend", choices=tuple(TARGETS), help=backend)


def add_launch(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how the kernel is launched: ``--entry``, ``--grid`` and ``--lnc``."""
    parser.add_argument("--entry", default="", help="name of the kernel function, or Class.name")
    parser.add_argument("--grid", type=grid, default=(), metavar="N[,N]", help="launch grid")
    parser.add_argument("--lnc", type=int, choices=(1, 2), default=1, help="physical cores in a logical core")


def number_of(text: str, letter: str) -> int:
    """Return 12 for the text ``r12`` or ``12``, where ``r`` is ``letter``. Raise UsageError for any other text."""
    match = re.fullmatch(rf"{letter}?([0-9]{{1,15}})", text)
    if match is None:
        kind = KINDS[letter]
        article = "an" if kind[0] in "aeiou" else "a"
        raise UsageError(f"{text!r} is not {article} {kind}", hint=f"write it as {letter}12; {WHERE_LISTED[kind]}")
    return int(match[1])


def grid(text: str) -> tuple[int, ...]:
    """Return the launch grid that an option's text gives: ``(2, 4)`` for ``2,4``."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a list of numbers such as 2,4") from error


def count(text: str) -> int:
    """Return the whole number in the text of an option. Raise ArgumentTypeError if the number is below 1."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """Return the whole number in the text of an option. Raise ArgumentTypeError if the number is below 0."""
    return _whole(text, 0)


def amount(text: str) -> float:
    """Return the number in the text of an option. Raise ArgumentTypeError unless it is finite and at least 0."""
    value = _number(text)
    if value < 0:
        raise ArgumentTypeError(f"{text} is less than 0")
    return value


def span(text: str) -> float:
    """Return the number in the text of an option. Raise ArgumentTypeError unless it is finite and above 0."""
    value = _number(text)
    if value <= 0:
        raise ArgumentTypeError(f"{text} is not greater than 0")
    return value


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a whole number") from error
    if value < least:
        raise ArgumentTypeError(f"{value} is less than {least}")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a number") from error
    if not math.isfinite(value):
        raise ArgumentTypeError(f"{text!r} is not a finite number")
    return value
