"""Find the values that a reduction loop carries from one iteration to the next: sums, or the state of an online
softmax.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from acceld.devices.cuda.rules.reading import FunctionNode, TritonModule, called, constants, names, walk

_POWERS = ("tl.exp2", "tl.exp", "tl.math.exp2", "tl.math.exp")


@dataclass(frozen=True)
class Carried:
    """The loop-carried values of a loop: those that an iteration takes over from the previous one.

    ``peak`` is the running maximum of an online softmax: when the maximum grows, all carried sums are rescaled. For
    plain sums, ``peak`` is empty.
    """

    names: tuple[str, ...]
    shapes: Mapping[str, tuple[str, ...]]
    """Shape of each carried value, as names of constants of the kernel."""
    start: ast.stmt
    """The statement that initializes the peak; for plain sums, the statement that initializes the first carried value.
    """
    peak: str = ""
    power: str = ""
    """The exponential function of the softmax, such as ``tl.exp2``; empty for plain sums."""


def carried(kernel: TritonModule, function: FunctionNode, loop: ast.For) -> Carried | None:
    """Return the loop-carried values of ``loop``.

    Every carried value has to be a sum, or a part of an online softmax. Return None for any other loop, and for a loop
    that stores.
    """
    place = function.body.index(loop)
    starts: dict[str, ast.Assign] = {}
    for statement in function.body[:place]:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            starts[statement.targets[0].id] = statement
    changed: dict[str, list[ast.stmt]] = {}
    for statement in walk(loop.body):
        if not isinstance(statement, ast.Assign | ast.AugAssign):
            return None
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        if not isinstance(target, ast.Name):
            return None
        changed.setdefault(target.id, []).append(statement)
    kept = tuple(name for name in starts if name in changed)
    shapes = {name: _shape(starts[name].value, function) for name in kept}
    known = {name: shape for name, shape in shapes.items() if shape is not None}
    if not kept or len(known) != len(kept) or any(len(changed[name]) != 1 for name in kept):
        return None
    if all(_is_sum(changed[name][0], name, loop) for name in kept):
        zero = all(called(starts[name].value) == "tl.zeros" for name in kept)
        return Carried(kept, known, starts[kept[0]]) if zero else None
    return _softmax(kernel, loop, kept, known, starts, changed)


def _softmax(
    kernel: TritonModule,
    loop: ast.For,
    kept: tuple[str, ...],
    shapes: Mapping[str, tuple[str, ...]],
    starts: Mapping[str, ast.Assign],
    changed: Mapping[str, list[ast.stmt]],
) -> Carried | None:
    for peak in kept:
        moved = changed[peak][0]
        if not (isinstance(moved, ast.Assign) and isinstance(moved.value, ast.Name) and moved is loop.body[-1]):
            continue
        fresh = moved.value.id
        made = changed.get(fresh, [])
        first = made[0] if len(made) == 1 else None
        if not (isinstance(first, ast.Assign) and called(first.value) == "tl.maximum" and peak in names(first.value)):
            continue
        if 'float("-inf")' not in kernel.text(starts[peak]) or called(starts[peak].value) != "tl.full":
            continue
        for name, statements in changed.items():
            shrink = statements[0]
            if len(statements) != 1 or not isinstance(shrink, ast.Assign) or called(shrink.value) not in _POWERS:
                continue
            if not kernel.text(shrink.value).endswith(f"({peak} - {fresh})"):
                continue
            others = [one for one in kept if one != peak]
            scaled = all(_is_scaled_sum(changed[one][0], one, name) for one in others)
            zero = all(called(starts[one].value) == "tl.zeros" for one in others)
            if scaled and zero and _read_only_there(loop, kept, peak, (first, shrink), changed):
                return Carried(kept, shapes, starts[peak], peak, called(shrink.value))
    return None


def _read_only_there(
    loop: ast.For,
    kept: tuple[str, ...],
    peak: str,
    readers: tuple[ast.stmt, ast.stmt],
    changed: Mapping[str, list[ast.stmt]],
) -> bool:
    """Tell whether the loop reads each carried value only in the statement that updates it.

    The peak may also be read by the statements ``readers``.
    """
    for statement in loop.body:
        assert isinstance(statement, ast.Assign | ast.AugAssign)
        for name in names(statement.value) & set(kept):
            own = statement in changed[name]
            if not own and not (name == peak and statement in readers):
                return False
    return True


def _is_sum(statement: ast.stmt, name: str, loop: ast.For) -> bool:
    """Tell whether the statement is ``name += value`` or ``name = name + value``, and the loop reads ``name`` nowhere
    else.
    """
    if isinstance(statement, ast.AugAssign):
        right = isinstance(statement.op, ast.Add) and name not in names(statement.value)
    else:
        assert isinstance(statement, ast.Assign)
        value = statement.value
        right = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)
        right = right and isinstance(value, ast.BinOp) and getattr(value.left, "id", "") == name
        right = right and isinstance(value, ast.BinOp) and name not in names(value.right)
    others = [one for one in walk(loop.body) if one is not statement and isinstance(one, ast.Assign | ast.AugAssign)]
    return right and not any(name in names(one.value) for one in others)


def _is_scaled_sum(statement: ast.stmt, name: str, shrink: str) -> bool:
    """Tell whether the statement is ``name = name * shrink + value``. ``shrink`` may be indexed to add an axis."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.BinOp):
        return False
    total = statement.value
    if not isinstance(total.op, ast.Add) or not isinstance(total.left, ast.BinOp) or name in names(total.right):
        return False
    product = total.left
    factor = product.right.value if isinstance(product.right, ast.Subscript) else product.right
    return (
        isinstance(product.op, ast.Mult)
        and getattr(product.left, "id", "") == name
        and getattr(factor, "id", "") == shrink
    )


def _shape(value: ast.expr, function: FunctionNode) -> tuple[str, ...] | None:
    """Return the extents of a ``tl.zeros`` or ``tl.full``, as names of constants; None for any other expression."""
    if not isinstance(value, ast.Call) or called(value) not in ("tl.zeros", "tl.full") or not value.args:
        return None
    shape = value.args[0]
    if not isinstance(shape, ast.Tuple | ast.List) or not 1 <= len(shape.elts) <= 2:
        return None
    named = tuple(one.id for one in shape.elts if isinstance(one, ast.Name))
    return named if len(named) == len(shape.elts) and set(named) <= set(constants(function)) else None
