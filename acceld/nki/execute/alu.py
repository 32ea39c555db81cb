"""Choose the functions that compute the engines' arithmetic on reals, by the options of an execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from acceld.nki.execute.answers import Answers
from acceld.nki.execute.context import Context
from acceld.nki.execute.machine import Machine, crash
from acceld.nki.ir.numerics import ALU, Array, combine
from acceld.nki.ir.operations import COMPARISONS, LOGIC

Binary = Callable[[Any, Any, "Array | None"], Array]


def alu(context: Context, op: str) -> Binary:
    """Return the function that computes the ALU operation ``op`` on two reals. Raise KernelCrash for an unknown
    operation.
    """
    found = ALU.get(op)
    if found is None:
        crash(f"{context.op}: {op!r} is not an arithmetic operation", "operation", context.instruction.line)
    machine = context.machine
    if machine.keeps_nan:
        return keeping(op, found, decides=not machine.follows_order)
    return _asking(found, machine.answers) if op in COMPARISONS and machine.answers is not None else found


def _asking(compare: Binary, answers: Answers) -> Binary:
    """Return a function that computes the comparison ``compare`` and gives its result to :meth:`Answers.settled`.

    That method stores the result in the first run, and may reverse it in a later run.
    """

    def settled(a: Any, b: Any, out: Array | None) -> Array:
        result = answers.settled(a, b, compare(a, b, None))
        if out is None:
            return result
        out[...] = result
        return out

    return settled


def keeping(op: str, function: Binary, *, decides: bool) -> Binary:
    """Return ``function``, which computes ``op``, changed so that its result is NaN wherever the result depends on an
    undefined operand (NaN).

    If ``decides`` is True, one defined operand may decide the result: zero in a product, False in an *and*, True in
    an *or*. If ``decides`` is False, no operand decides alone, because in another run the deciding operand may be the
    undefined one.
    """
    if op == "multiply" and not decides:
        return function
    if op not in COMPARISONS | LOGIC | {"multiply"}:
        return function

    def kept(a: Any, b: Any, out: Array | None) -> Array:
        result = np.asarray(function(a, b, None))
        decided: Any = False
        if op == "multiply":
            decided = (np.equal(a, 0) | np.equal(b, 0)) & np.isnan(result)
            return np.where(decided, result.dtype.type(0), result)
        if op == "logical_and" and decides:
            decided = np.equal(a, 0) | np.equal(b, 0)
        if op == "logical_or" and decides:
            decided = (np.not_equal(a, 0) & ~np.isnan(a)) | (np.not_equal(b, 0) & ~np.isnan(b))
        return np.where((np.isnan(a) | np.isnan(b)) & ~np.asarray(decided), np.float32(np.nan), result)

    return kept


def folding(context: Context, op: str) -> Binary:
    """Return the function with which a reduction ``op`` combines two values."""
    if context.machine.keeps_nan and op in LOGIC:
        return keeping(op, ALU[op], decides=not context.machine.follows_order)
    return lambda a, b, out: combine(op, a, b, out)


def chosen(machine: Machine, condition: Any, yes: Any, no: Any, *, reverse: bool = False) -> Array:
    """Return an array with ``yes`` where ``condition`` is not zero, and ``no`` elsewhere; with ``reverse`` the other
    way round.

    If undefined memory is traced, an undefined condition gives NaN.
    """
    holds = np.not_equal(condition, 0)
    result = np.where(~holds if reverse else holds, yes, no)
    if machine.keeps_nan:
        result = np.where(np.isnan(condition), result.dtype.type(np.nan), result)
    return np.asarray(result)
