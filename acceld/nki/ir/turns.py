"""Turns: the performance model's view of each execution of an instruction, as one number.

``OWN``: an operation whose results nothing else takes. ``LEFT_OUT``: none, its results reach no output. ``made(value)``:
an operation, and what it writes is kept as ``value``. ``taken(value)``: none, it writes what is kept as ``value``.
"""

from __future__ import annotations

OWN, LEFT_OUT = -1, -2


def made(value: int) -> int:
    """Return the turn that makes a value which others take."""
    return 2 * value


def taken(value: int) -> int:
    """Return the turn that takes a value which is there already."""
    return 2 * value + 1


def value_of(turn: int) -> tuple[int, bool]:
    """Return the value that a turn makes or takes, and whether it takes it. Not for ``OWN`` and ``LEFT_OUT``."""
    return turn >> 1, bool(turn & 1)
