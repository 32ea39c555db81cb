"""Encode as one number, a *turn*, how the performance model treats one execution of an instruction.

* ``OWN``: the execution takes time, and no other execution uses its results.
* ``LEFT_OUT``: the execution takes no time, because its results reach no output.
* ``made(value)``: the execution takes time, and its results are kept under the number ``value``.
* ``taken(value)``: the execution takes no time, and uses the results that are kept under ``value``.
"""

from __future__ import annotations

OWN, LEFT_OUT = -1, -2


def made(value: int) -> int:
    """Return the code (turn) of an execution whose results are kept under the number ``value`` for other executions."""
    return 2 * value


def taken(value: int) -> int:
    """Return the code (turn) of an execution that takes no time, because it uses the results kept under the number
    ``value``.
    """
    return 2 * value + 1


def value_of(turn: int) -> tuple[int, bool]:
    """Return two things about an execution with the code ``turn``: the number under which results are kept, and True if
    the execution uses these results, False if it produces them.

    ``OWN`` and ``LEFT_OUT`` have no such number; do not pass them.
    """
    return turn >> 1, bool(turn & 1)
