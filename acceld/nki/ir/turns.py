"""Encode the performance model's treatment of each execution of an instruction as one number (a *turn*).

``OWN``: the execution counts, and no other execution uses its results. ``LEFT_OUT``: it does not count, because its
results reach no output. ``made(value)``: it counts, and its results are kept as ``value``. ``taken(value)``: it does
not count, and reuses the results kept as ``value``.
"""

from __future__ import annotations

OWN, LEFT_OUT = -1, -2


def made(value: int) -> int:
    """Return the turn of an execution whose results others reuse."""
    return 2 * value


def taken(value: int) -> int:
    """Return the turn of an execution that reuses results."""
    return 2 * value + 1


def value_of(turn: int) -> tuple[int, bool]:
    """Return the value of a turn, and True if the turn reuses it. Not for ``OWN`` and ``LEFT_OUT``."""
    return turn >> 1, bool(turn & 1)
