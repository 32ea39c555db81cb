"""Compute arithmetic over the symbols of a workload, such as ``2*M*N*K``, for shapes and declared work."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from acceld.errors import did_you_mean
from acceld.parsing import parse_expression

_LARGEST = 1 << 62


def evaluate(expression: str | int, values: Mapping[str, int]) -> int:
    """Return the value of ``expression`` as a whole number, with ``+ - * // **`` and the symbols in ``values``.

    Raise ValueError with a reason for unknown symbols, other syntax, or a result that is not a whole number.
    """
    if isinstance(expression, int):
        return int(expression)
    try:
        tree = parse_expression(expression.strip())
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is not an expression") from error
    result = _value(tree, expression, values)
    if abs(result) > _LARGEST:
        raise ValueError(f"{expression!r} is too large: the greatest magnitude is 2**62")
    return result


def _value(node: ast.expr, expression: str, values: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in values:
            hint = (
                did_you_mean(node.id, values) or f"It defines {', '.join(values) or 'nothing'}; add {node.id} = NUMBER."
            )
            raise ValueError(f"{expression!r} uses {node.id!r}, which [values] does not define. {hint}".rstrip())
        return values[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, expression, values)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, expression, values), _value(node.right, expression, values)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.FloorDiv) and right:
            return left // right
        if isinstance(node.op, ast.Div) and right and left % right == 0:
            return left // right
        if isinstance(node.op, ast.Pow) and 0 <= right <= 8:
            return int(left**right)
    raise ValueError(f"{expression!r} may hold only whole numbers, symbols and + - * // **")
