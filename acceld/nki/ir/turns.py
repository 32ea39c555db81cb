"""Encode as one number (a *turn*) how the performance model treats an execution of an instruction.

``OWN``: the execution counts, and no other execution uses its results. ``LEFT_OUT``: it does not count, because its
results reach no output. ``made(value)``: it counts, and its results are kept under the number ``value``.
``taken(value)``: it does not count, and takes the results kept under ``value``.
"""

from __future__ import annotations

OWN, LEFT_OUT = -1, -2


def made(value: int) -> int:
    """Return the turn of an execution whose results are kept as ``value`` for others."""
    return 2 * value


def taken(value: int) -> int:
    """Return the turn of an execution that takes the results kept as ``value``."""
    return 2 * value + 1


def value_of(turn: int) -> tuple[int, bool]:
    """Return the value of a turn, and True if the execution takes it (False if it makes it). Not for ``OWN`` and
    ``LEFT_OUT``.
    """
    return turn >> 1, bool(turn & 1)
