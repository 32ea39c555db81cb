"""Provide the loop ranges of the legacy API, and reductions over loops.

A loop is traced once, with a symbol as its variable. If the kernel needs the variable's value, the loop is changed in
one of three ways: it is unrolled, split into two nested loops, or cut into loops over parts of its range (*pieces*).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any, cast

from acceld.nki.errors import LegalityError, LimitExceeded
from acceld.nki.frontend.core import dtypes, names
from acceld.nki.frontend.core.context import MAX_TRIPS, LoopContext, refuse
from acceld.nki.frontend.core.elementwise import masked, operand
from acceld.nki.frontend.core.index import Expr
from acceld.nki.frontend.core.placement import fresh, mark_produced
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.session import Site, call_site, loop_variable
from acceld.nki.ir.program import Affine, Engine, LoopKind, Space


class UnrolledIndex(int):
    """The variable of an unrolled loop in one iteration, as an integer."""

    first: bool
    """True in the first iteration of the loop."""


def open_loop(trace: LoopContext, function: str, kind: LoopKind, args: tuple[object, ...]) -> Iterator[object]:
    """Yield the values of a loop variable: one symbol for all iterations, or each number if the loop has to be
    unrolled.

    ``args`` are the arguments of the range function ``function``.
    """
    for arg in args:
        if isinstance(arg, Expr) and not arg.is_constant:
            refuse(
                "symbolic_index",
                f"a bound of {function} depends on a loop variable, and must be known while tracing",
                "loop over the largest bound and mask, or unroll the outer loop with nl.static_range",
            )
        if not hasattr(arg, "__index__"):
            refuse(
                "operand_type",
                f"a bound of {function} is {type(arg).__name__}, not an integer",
                "pass a Python integer; a tile's value is not known while tracing: loop over the largest bound and mask",
            )
    numbers = range(*(operator.index(cast("Any", arg)) for arg in args))
    if len(numbers) > MAX_TRIPS:
        raise LimitExceeded(
            f"{function} has {len(numbers)} iterations; at most {MAX_TRIPS} are allowed",
            rule="trip_limit",
            line=trace.line(),
            hint="use larger tiles, or fewer iterations",
        )
    site, name, line = call_site(), loop_variable(), trace.line()
    name = name or "i"
    if site in trace.unroll:
        trace.builder.notice(line, f"the loop over {name} is unrolled: its variable's value is needed while tracing")
        return _unrolled(trace, numbers, range(len(numbers)))
    return _segments(trace, name, numbers, kind, site, line)


def _unrolled(trace: LoopContext, numbers: range, positions: range) -> Iterator[object]:
    """Yield the numbers at ``positions`` of an unrolled loop over ``numbers``."""
    for position in positions:
        trace.session.check_deadline()
        index = UnrolledIndex(numbers[position])
        index.first = position == 0
        yield index


def _segments(trace: LoopContext, name: str, numbers: range, kind: LoopKind, site: Site, line: int) -> Iterator[object]:
    """Yield the loop variable once for each piece of the loop. In a piece of one iteration the variable is a
    number.
    """
    points = sorted(trace.cuts.get(site, frozenset())) if trace.cuts is not None else []
    edges = [0, *(point for point in points if 0 < point < len(numbers)), len(numbers)]
    if len(edges) > 2:
        text = f"the loop over {name} is traced in {len(edges) - 1} pieces: conditions on its variable change"
        trace.builder.notice(line, text)
    for start, end in itertools.pairwise(edges):
        if end - start == 1 and len(edges) > 2:
            trace.in_later_piece = start > 0
            yield from _unrolled(trace, numbers, range(start, end))
            trace.in_later_piece = False
        elif end > start:
            yield from _symbolic(trace, name, numbers[start:end], kind, site, line, start)


def _symbolic(
    trace: LoopContext, name: str, numbers: range, kind: LoopKind, site: Site, line: int, offset: int
) -> Iterator[object]:
    """Open a loop and yield its variable as one symbol. The loop may be split into two nested ones.

    ``offset`` is the number of iterations before this piece of the loop.
    """
    inner = (trace.splits or {}).get(site, 1)
    outer = trace.open(name, len(numbers) // inner, kind, site, line)
    loops = [outer] if inner == 1 else [outer, trace.open(name, inner, kind, site, line)]
    trace.offsets[outer] = offset
    value = Expr(Affine(numbers.start, ((outer, numbers.step * inner),)))
    if inner > 1:
        value = value + Expr(Affine(0, ((loops[1], numbers.step),)))
    finished = False
    try:
        yield value
        finished = True
    finally:
        if not finished and trace.broken is None:
            trace.broken = LegalityError(
                f"the loop over {name} is left early, but its body is traced once for all iterations",
                rule="loop_exit",
                line=line,
                hint="use nl.static_range where break or return is needed",
            )
    for number in reversed(loops):
        trace.close(number)


def loop_reduce(
    x: object, op: object, loop_indices: object, *, dtype: object = None, mask: object = None, **kwargs: Any
) -> Tensor:
    """Return ``x`` reduced with ``op`` over enclosing loops: ``nl.loop_reduce``. ``loop_indices`` has the variables of
    these loops.

    The result is a new tile outside of these loops.
    """
    trace = current()
    tile = operand(x, "x", "loop_reduce")
    given = loop_indices if isinstance(loop_indices, Sequence) else [loop_indices]
    loops, unrolled = [], []
    for index in given:
        if isinstance(index, UnrolledIndex):
            unrolled.append(index)
        elif isinstance(index, Expr) and index.base.terms and not index.shape:
            loops += [loop for loop, _ in index.base.terms]
        else:
            refuse(
                "loop_indices",
                "loop_indices must be variables of enclosing nl.affine_range or nl.sequential_range loops",
                "pass the loop variable itself, such as loop_indices=[i]",
            )
    if any(loop not in trace.scope for loop in loops):
        refuse("local_scope", "loop_reduce is called after one of its loops has ended", "call it inside of the loop")
    name, site = names.reduce_op(op), call_site()
    patterns = masked(mask, tile.shape)
    first = all(index.first for index in unrolled) and not any(trace.offsets.get(loop) for loop in loops)
    if not first and site in trace.folds:
        known = trace.tensor(trace.folds[site].access, trace.folds[site].scope)
        trace.emit(
            "tensor_tensor", Engine.VECTOR, [known], [known, tile], attrs={"op": name}, mask=patterns, accumulates=True
        )
        return known
    kind = dtypes.result_name(dtype, tile.dtype_name)
    outer = trace.scope[: min((trace.scope.index(loop) for loop in loops), default=len(trace.scope))]
    dst = fresh(trace, tile.shape, kind, Space.SBUF, scope=outer)
    slot = trace.emit(
        "loop_reduce" if loops else "copy",
        Engine.VECTOR,
        [dst],
        [tile],
        attrs={"op": name, "loops": tuple(sorted(loops))} if loops else {},
        mask=patterns,
        reduced=tuple(loops),
        accumulates=True,
    )
    trace.folds[site] = dst
    return mark_produced(trace, dst, slot)
