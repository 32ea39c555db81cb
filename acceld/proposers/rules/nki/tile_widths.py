"""Find constants of a kernel that serve only as the width of its tiles."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Statement, assigned, below, elements
from acceld.proposers.rules.nki.column_steps import ANY_COLUMNS


@dataclass(frozen=True)
class TileWidth:
    """A constant such as ``width = 512`` by which a kernel steps over ``length`` columns, as in ``range(0, length,
    width)``.
    """

    name: str
    value: ast.Constant
    columns: int
    line: int
    length: int

    def divides(self, factor: int) -> bool:
        """Return True if tiles that are ``factor`` times as wide cover exactly the same columns."""
        return self.length % (self.columns * factor) == 0


def tile_widths(kernel: KernelModule) -> list[TileWidth]:
    """Return every constant that is the step of one loop, and otherwise only an extent of ranges and tiles.

    The result is [] unless every statement in a loop works element by element.
    """
    inside = [statement for loop in kernel.loops for statement in loop.statements()]
    if not all(_by_element(statement) or _names_a_part(kernel, statement) for statement in inside):
        return []
    found = []
    for name, value in kernel.aliases.items():
        if not isinstance(value, ast.Constant) or type(value.value) is not int:
            continue
        lengths, extents = _uses(kernel, kernel.function, name)
        if len(lengths) == 1 and lengths[0] is not None and kernel.named[name] == 2 + extents:
            found.append(TileWidth(name, value, value.value, value.lineno, lengths[0]))
    return found


def _by_element(statement: Statement) -> bool:
    if statement.kind == "op":
        return statement.op in ANY_COLUMNS and statement.second is None and not statement.augmented
    return statement.kind in ("declaration", "alias", "marker")


def _names_a_part(kernel: KernelModule, statement: Statement) -> bool:
    """Return True for ``part = tile[rows, columns]``, where rows and columns are names."""
    match assigned(statement):
        case (_, ast.Subscript(value=ast.Name(id=tile)) as part):
            return tile in kernel.buffers and all(isinstance(index, ast.Name) for index in elements(part))
    return False


def _uses(kernel: KernelModule, node: ast.AST, name: str) -> tuple[list[int | None], int]:
    """Return (lengths of the loops that step by ``name``, number of ranges and shapes with the extent ``name``). A
    length that is not known is None.
    """
    lengths: list[int | None] = []
    extents = 0
    if isinstance(node, ast.Call):
        callee, values = kernel.callee(node), node.args
        if callee == "range" and len(values) == 3 and _is(values[2], name):
            lengths.append(kernel.constant(values[1]) if kernel.constant(values[0]) == 0 else None)
        if callee == "arange" and len(values) == 1 and _is(values[0], name):
            extents += 1
        if callee == "ndarray" and values and isinstance(values[0], ast.Tuple):
            extents += sum(_is(extent, name) for extent in values[0].elts[-1:])
    for child in below(node):
        more_lengths, more_extents = _uses(kernel, child, name)
        lengths, extents = lengths + more_lengths, extents + more_extents
    return lengths, extents


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
