"""Find constants of a kernel whose only use is the width of its tiles."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from acceld.proposers.rules.nki.column_steps import OPERATIONS
from acceld.proposers.rules.nki.source.reading import KernelModule
from acceld.proposers.rules.nki.source.syntax import Statement, below, names_in


@dataclass(frozen=True)
class TileWidth:
    """A constant such as ``width = 512`` by which a kernel steps over ``length`` columns: ``range(0, length, width)``."""

    name: str
    value: cst.Integer
    columns: int
    line: int
    length: int

    def divides(self, factor: int) -> bool:
        """Return True if tiles ``factor`` times as wide cover the same columns."""
        return self.length % (self.columns * factor) == 0


def tile_widths(kernel: KernelModule) -> list[TileWidth]:
    """Return every name that is one loop's step, and otherwise only an extent of ranges and tiles.

    There is none unless every statement in a loop works element by element.
    """
    inside = [statement for loop in kernel.loops for statement in loop.statements()]
    if not all(_by_element(statement) or _names_a_part(kernel, statement) for statement in inside):
        return []
    found = []
    for name, value in kernel.aliases.items():
        if not isinstance(value, cst.Integer):
            continue
        uses = sum(node.value == name for node in names_in(kernel.function.body))
        lengths, extents = _uses(kernel, kernel.function.body, name)
        if len(lengths) == 1 and lengths[0] is not None and uses == 2 + extents:
            found.append(TileWidth(name, value, int(value.value), kernel.line(value), lengths[0]))
    return found


def _by_element(statement: Statement) -> bool:
    if statement.kind == "op":
        return statement.op in OPERATIONS and statement.second is None and not statement.augmented
    return statement.kind in ("declaration", "alias", "marker")


def _names_a_part(kernel: KernelModule, statement: Statement) -> bool:
    """Return True for ``part = tile[rows, columns]``, where rows and columns are names; ``part`` may get another value
    later.
    """
    match statement.small:
        case cst.Assign(
            targets=[cst.AssignTarget(target=cst.Name())],
            value=cst.Subscript(value=cst.Name(value=tile), slice=elements),
        ):
            indices = [one.slice.value if isinstance(one.slice, cst.Index) else one.slice for one in elements]
            return tile in kernel.buffers and all(isinstance(index, cst.Name) for index in indices)
    return False


def _uses(kernel: KernelModule, node: cst.CSTNode, name: str) -> tuple[list[int | None], int]:
    """Return lengths of loops that step by ``name``, and how many ranges and shapes have it as their extent."""
    lengths: list[int | None] = []
    extents = 0
    if isinstance(node, cst.Call):
        callee = kernel.text(node.func).rsplit(".", 1)[-1]
        values = [argument.value for argument in node.args]
        if callee == "range" and len(values) == 3 and _is(values[2], name):
            lengths.append(kernel.constant(values[1]) if kernel.constant(values[0]) == 0 else None)
        if callee == "arange" and len(values) == 1 and _is(values[0], name):
            extents += 1
        if callee == "ndarray" and values and isinstance(values[0], cst.Tuple):
            extents += sum(_is(element.value, name) for element in values[0].elements[-1:])
    for child in below(node):
        more_lengths, more_extents = _uses(kernel, child, name)
        lengths, extents = lengths + more_lengths, extents + more_extents
    return lengths, extents


def _is(node: cst.BaseExpression, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name
