"""Encode as one number, a *turn*, how the performance model treats one execution of an instruction.

* ``OWN``: the execution takes time, and no other execution uses its results.
* ``LEFT_OUT``: the execution takes no time, because its results reach no output.
* ``made(value)``: the execution takes time, and its results are kept under the number ``value``.
* ``taken(value)``: the execution takes no time, and uses the results that are kept under ``value``.
"""

from __future__ import annotations

OWN, LEFT_OUT = -1, -2


def made(value: int) -> int:
    """Return the turn of an execution whose results later executions use. The results are kept under the number
    ``value``.
    """
    return 2 * value


def taken(value: int) -> int:
    """Return the turn of an execution that takes no time, because it uses the results that are kept under the number
    ``value``.
    """
    return 2 * value + 1


def value_of(turn: int) -> tuple[int, bool]:
    """Return the number in the turn ``turn``, and whether the execution uses the results under this number (True) or
    produces them (False).

    Do not pass ``OWN`` or ``LEFT_OUT``, which have no number.
    """
    return turn >> 1, bool(turn & 1)
