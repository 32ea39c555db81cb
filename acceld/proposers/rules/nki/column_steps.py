"""Prove that the iterations of a loop step over the columns of tiles, and that each works element-wise on its own
columns.

:func:`narrowed` writes an access to part of the columns.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from acceld.nki.ir.operations import OPS, Kind
from acceld.nki.source.affine import Affine
from acceld.nki.source.patterns import Pattern, Repeated, pattern_of, repeated
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix
from acceld.nki.source.syntax import (
    BINARY,
    ELEMENTWISE,
    PRODUCTS,
    TRANSFERS,
    UNARY,
    Access,
    Dim,
    Loop,
    Statement,
    accesses,
    elements,
    names_in,
)

ANY_COLUMNS = ELEMENTWISE | {"tensor_copy", "load", "store", "dma_copy", *BINARY, *UNARY}
"""Operations that work element by element, on any number of columns."""
ONE_COLUMN = frozenset(OPS[name].srcs[at].name for name in ELEMENTWISE for at in OPS[name].sources_of(Kind.SCALAR))
"""Arguments that may be tiles with one number in each partition."""


@dataclass
class ColumnSteps:
    """A loop whose iterations are steps over columns, with the parts of its source that change for larger steps."""

    loop: Loop
    trips: int
    columns: int
    """Number of columns of one step."""
    tiles: set[str]
    """Buffers declared in the loop, one step wide."""
    slots: set[str] = field(default_factory=set)
    """Buffers declared before the loop that have an element for each step."""
    accesses: list[Access] = field(default_factory=list)
    """Accesses that have indices."""
    patterns: list[Pattern] = field(default_factory=list)
    """Access patterns over the columns of a step."""
    repeats: list[Repeated] = field(default_factory=list)
    """Broadcasts to the columns of a step."""
    operations: int = 0
    transfers: int = 0
    psum: bool = False

    @property
    def instructions(self) -> int:
        return max(1, self.operations + self.transfers)


class _Part(Enum):
    """The part of a buffer that an access touches in step ``c`` of a loop over columns. The examples at the members
    have steps of 512 columns.
    """

    STEP = auto()
    """The columns of the step in a wider buffer: ``x[p, 512 * c + f]``."""
    SLOT = auto()
    """All columns at the place of the step: ``half[c, p, f]``."""
    ALL = auto()
    """In every step the whole tile, which is as wide as a step: ``tile[p, f]``."""
    SAME = auto()
    """In every step the same part of the tile, which is not as wide as a step: ``scale[p, 0]``."""


def column_steps(kernel: KernelModule, loop: Loop) -> ColumnSteps | str | None:
    """Return how a loop steps over columns. If one step can not take more columns, return the reason as text.

    Return None if the loop does not step over columns (but over rows, for example), or if its columns are those of a
    matrix product.
    """
    where = f"line {loop.line}:"
    inside = [statement for statement in loop.statements() if statement.kind == "op"]
    found = _columns(kernel, inside, loop)
    if not found or any(one.op in (*PRODUCTS, "nc_transpose") for one in inside):
        return None
    if loop.trips is None:
        return f"{where} the loop's number of iterations is not known: write it with numbers and with shapes of the arguments"
    if loop.trips < 2:
        return f"{where} the loop has only one iteration"
    if loop.kind == "range":
        return f"{where} the loop's iterations are not proved to be independent: write affine_range if they are"
    if loop.kind == "sequential_range":
        return f"{where} the loop's iterations keep their order: write affine_range if they are independent"
    for inner in loop.loops():
        if any(one.id == loop.variable for one in names_in(inner.node.iter)):
            return f"line {inner.line}: the range of {inner.variable} depends on {loop.variable}: give loop {inner.variable} the same range in every iteration"
    statements, ops = loop.statements(), inside
    for statement in statements:
        if statement.kind == "other" or (statement in ops and (statement.op not in ANY_COLUMNS or statement.augmented)):
            what = statement.op or "this statement"
            why = "is not element-wise"
            if statement.op in ANY_COLUMNS:
                why = (
                    "adds to what its tile holds"
                    if statement.augmented
                    else "has a form that the rule does not understand"
                )
            return f"line {statement.line}: {what} {why}: {_APART}"
        if statement.kind == "alias" and any(name.id == loop.variable for name in names_in(statement.node)):
            return f"line {statement.line}: this statement gives a name to an index that depends on {loop.variable}: write the index itself where it is used"
    if len(found) != 1:
        return f"{where} one iteration advances by different numbers of columns in different tiles: divide the loop into one for each number"
    (columns,) = found
    tiles = {s.target.name for s in statements if s.kind == "declaration" and s.target is not None}
    made = {s.target.name for s in ops if s.target is not None and s.target.dims is None}
    own = tiles | (made - kernel.buffers.keys())
    steps = ColumnSteps(loop, loop.trips, columns, tiles)
    for statement in ops:
        problem = _add(kernel, steps, statement, own)
        if problem:
            return f"line {statement.line}: {problem}"
    problem = _buffers(kernel, steps, own)
    return f"{where} {problem}" if problem else steps


_APART = (
    "move it to a loop of its own, and let the tiles that pass between the two loops have the columns of all iterations"
)


def _columns(kernel: KernelModule, ops: Sequence[Statement], loop: Loop) -> set[int]:
    """Return the possible numbers of columns in one step: for each index over columns, the number by which it
    advances in a step.
    """
    found = set()
    for access in (access for statement in ops for access in accesses(statement)):
        pattern = pattern_of(kernel, access)
        coefficient = 0
        if pattern is not None:
            moved = pattern.start.coefficient(loop.variable) or 0
            coefficient = moved // pattern.stride if pattern.stride and moved == pattern.stride * pattern.count else 0
        elif access.dims and (last := access.dims[-1]).form is not None:
            moved = last.form.coefficient(loop.variable) or 0
            coefficient = moved if moved == last.width and not last.is_point else 0
        if coefficient:
            found.add(coefficient)
    return found


def _add(kernel: KernelModule, steps: ColumnSteps, statement: Statement, own: set[str]) -> str:
    """Record in ``steps`` those parts of a statement that change if a step takes more columns.

    Return the reason if a part can not change; empty otherwise. ``own`` has the names of tiles whose values live only
    within an iteration.
    """
    views = [view for node in statement.args.values() if (view := repeated(kernel, node)) is not None]
    if len(statement.mentions) != len(statement.reads) + len(views):
        return _unread(kernel, statement)
    if statement.second is not None:
        return f"this statement also sums its columns: compute the sum by a statement of its own, and {_APART}"
    if statement.op in TRANSFERS:
        steps.transfers += 1
    else:
        steps.operations += 1
    if kernel.mask(statement) and not _only_rows(kernel, steps.loop, statement.args["mask"]):
        return "the mask depends on the columns: process the masked columns in a separate statement after the loop"
    scalars = {id(access.node) for name, access in statement.reads.items() if name in ONE_COLUMN}
    touched = [*statement.reads.values(), *statement.results]
    if not views and all(_is_number_each_row(kernel, steps, access, own) for access in touched):
        return ""
    for view in views:
        problem = _repeat(kernel, steps, view, own)
        if problem:
            return problem
    for access in touched:
        problem = _widen(kernel, steps, access, own, scalar=id(access.node) in scalars)
        if problem:
            return problem
    return ""


def _unread(kernel: KernelModule, statement: Statement) -> str:
    """Return the reason why an operand of ``statement`` is not understood, and what would help."""
    known = {id(node) for node in (one.node for one in statement.reads.values())}
    for node in statement.args.values():
        inside = kernel.text(node)
        if id(node) in known or repeated(kernel, node) is not None or not isinstance(node, ast.Call | ast.BinOp):
            continue
        if isinstance(node, ast.BinOp) or kernel.callee(node) in BINARY + UNARY:
            return f"the operand {inside} is an expression: write its value to a tile first, and use that tile"
        return f"the operand {inside} is a view that the rule does not understand: index the tile itself, or broadcast it by nl.broadcast_to with a shape in numbers"
    return f"an index finds its positions in a tile: {_APART}"


def _is_number_each_row(kernel: KernelModule, steps: ColumnSteps, access: Access, own: set[str]) -> bool:
    """Tell whether an access has one column, the same in every step."""
    if access.name in kernel.ambiguous:
        return False
    if access.name in own and not _has_one_column(kernel, access.name):
        return False  # column 0 of the tile of each step is another column of the wider tile
    if access.dims is None:
        return access.name in own
    fixed = all(one.form is not None and one.form.coefficient(steps.loop.variable) == 0 for one in access.dims)
    return fixed and len(access.dims) > 1 and access.dims[-1].width == 1


def _has_one_column(kernel: KernelModule, name: str) -> bool:
    return name in kernel.buffers and kernel.buffers[name].shape[-1] == 1


def _repeat(kernel: KernelModule, steps: ColumnSteps, view: Repeated, own: set[str]) -> str:
    """Record in ``steps`` the broadcast of a row or of a column. Return the reason if the broadcast can not become
    wider; empty otherwise.
    """
    access, columns = view.access, steps.columns
    if view.count != columns:
        return f"{access.name} is broadcast to {view.count} columns: broadcast it to {columns} columns, as many as a step has"
    steps.repeats.append(view)
    if _is_number_each_row(kernel, steps, access, own):
        return ""
    if access.dims is not None and len(access.dims) == 1:  # along the columns of the view
        (last,) = access.dims
        if (
            last.form is None
            or last.form.coefficient(steps.loop.variable) != columns
            or not is_step_wide(last, columns)
        ):
            return _not_in_steps(steps, access)
        steps.accesses.append(access)
        return ""
    return _widen(kernel, steps, access, own, scalar=False)


def _widen(kernel: KernelModule, steps: ColumnSteps, access: Access, own: set[str], *, scalar: bool) -> str:
    """Record in ``steps`` an access that has to cover more columns. Return the reason if it can not; empty otherwise."""
    if access.name in kernel.ambiguous:
        return f"{access.name} may have a second name, an alias of the same buffer: use one name for each buffer"
    steps.psum |= kernel.space_of(access.name) == "psum"
    if isinstance(access.node, ast.Call):
        return _widen_pattern(kernel, steps, access)
    part = _Part.SAME if access.dims is None else _part(steps, access.dims)
    if part is None:
        return _not_in_steps(steps, access)
    if (
        part is _Part.SAME
        and access.dims is not None
        and access.name in own
        and not _has_one_column(kernel, access.name)
    ):
        return f"a part of {access.name} is used, whose columns move in a wider tile: use all columns of {access.name}, or a tile of its own for the part"
    if part in (_Part.ALL, _Part.SAME) and access.name not in own and not (scalar and part is _Part.SAME):
        columns = steps.columns * steps.trips
        return f"{access.name} has the same columns in every step: before the loop, repeat them in a tile of {columns} columns, and use its columns from {steps.columns} * {steps.loop.variable} on"
    if part is _Part.SLOT:
        if access.name not in kernel.buffers:
            return f"{access.name} is not declared in this kernel: declare it, with one tile for each iteration"
        steps.slots.add(access.name)
    if access.dims is not None:
        steps.accesses.append(access)
    return ""


def _widen_pattern(kernel: KernelModule, steps: ColumnSteps, access: Access) -> str:
    pattern, variable = pattern_of(kernel, access), steps.loop.variable
    if pattern is None or not _is_plain(pattern.start):
        return f"the pattern of {access.name} is not understood: write its strides and counts as numbers, and its offset as a sum of multiples of loop variables"
    moved = pattern.start.coefficient(variable)
    same = moved == 0 == pattern.stride  # one element for each row, repeated
    if pattern.count != steps.columns or not (same or (moved == pattern.stride * pattern.count != 0)):
        return f"the pattern of {access.name} does not advance by the {steps.columns} columns of a step: {_APART}"
    steps.patterns.append(pattern)
    return ""


def _not_in_steps(steps: ColumnSteps, access: Access) -> str:
    return f"the columns of {access.name} are not {steps.columns} from {steps.columns} * {steps.loop.variable} on: {_APART}"


def _is_plain(form: Affine) -> bool:
    """Tell whether a form can be written again: it has no quotient, remainder or minimum of a loop variable."""
    return all(symbol.is_range or symbol.name == symbol.variable for symbol, _ in form.terms)


def _only_rows(kernel: KernelModule, loop: Loop, mask: ast.expr) -> bool:
    """Return True if a mask depends on row numbers alone, so that it is equal in all columns."""
    if not isinstance(mask, ast.Compare) or len(mask.ops) != 1:
        return False
    sides = [kernel.affine(side) for side in (mask.left, mask.comparators[0])]
    return all(
        side is not None and loop.variable not in side.variables and all(symbol.axis == 0 for symbol in side.ranges)
        for side in sides
    )


def _part(steps: ColumnSteps, dims: Sequence[Dim]) -> _Part | None:
    """Return the kind of part that an access with the indices ``dims`` touches in each step; None if such a part can
    not be widened.
    """
    *places, last = dims
    if not places:
        return None  # in a buffer with one dimension the index may run over the partitions
    moving = 0
    for dim in places:
        coefficient = None if dim.form is None else dim.form.coefficient(steps.loop.variable)
        if dim.form is None or coefficient is None:
            return None
        if coefficient:
            if coefficient != 1 or dim.form.constant or len(dim.form.terms) > 1 or dim.extent is not None:
                return None
            moving += 1
    if last.form is None or not all(dim.form is None or _is_plain(dim.form) for dim in dims):
        return None
    coefficient = last.form.coefficient(steps.loop.variable)
    if coefficient:
        in_steps = coefficient == steps.columns and is_step_wide(last, steps.columns) and not moving
        return _Part.STEP if in_steps else None
    if coefficient is None or moving > 1:
        return None
    ranges = [symbol.extent for symbol in last.form.ranges]
    every = last.full or ranges == [steps.columns] or (last.extent == steps.columns and last.form == Affine())
    if moving:
        return _Part.SLOT if every else None
    return _Part.ALL if every else _Part.SAME


def is_step_wide(dim: Dim, columns: int) -> bool:
    """Return True if an index runs over ``columns`` consecutive elements, by a slice or by a range."""
    assert dim.form is not None
    ranges = [(symbol.extent, coefficient) for symbol, coefficient in dim.form.terms if symbol.is_range]
    return ranges == [(columns, 1)] or (dim.extent == columns and not ranges)


def _buffers(kernel: KernelModule, steps: ColumnSteps, own: set[str]) -> str:
    """Return the reason why one of the loop's buffers can not become wider; empty if all buffers can."""
    loop, inside = steps.loop, frozenset(steps.loop.statements())
    for name in sorted(steps.slots | steps.tiles):
        if not kernel.buffers[name].is_written_out:
            return f"the shape of {name} is not written out: write numbers"
    for name in sorted(steps.slots):
        if any(s not in inside for s in (*kernel.writers(name), *kernel.readers(name))):
            return f"{name} has one tile for each iteration, and is also used outside of the loop: use another buffer there"
        if kernel.buffers[name].shape[-1] != steps.columns:
            return f"{name} is not {steps.columns} columns wide: declare it that wide"
        indices = [access.dims for access in steps.accesses if access.name == name]
        if {_slot(dims, loop) for dims in indices} != {place := _slot(indices[0], loop)}:
            return f"{name} has the loop's variable at different positions of its index: use the same position in every access"
        if place is None or kernel.buffers[name].shape[place] != loop.trips:
            return f"{name} is one tile that all iterations use: declare one tile for each iteration"
    for name in sorted(own):
        if any(s not in inside for s in kernel.readers(name)):
            return f"{name} is used after the loop: declare one tile for each iteration"
        if name in steps.tiles and kernel.buffers[name].shape[-1] not in (steps.columns, 1):
            return f"{name} is not {steps.columns} columns wide: declare it that wide"
    return ""


def _slot(dims: Sequence[Dim] | None, loop: Loop) -> int | None:
    """Return the position of the index that is exactly the step's number (0 in ``half[c, p, f]`` for a loop over
    ``c``); None if there is no such index.
    """
    return next((i for i, dim in enumerate(dims or ()) if dim.form and dim.form.coefficient(loop.variable) == 1), None)


def last_index(access: Access) -> Dim | None:
    """Return the index over columns of an access; None if the access uses the whole buffer."""
    return access.dims[-1] if access.dims else None


def covers(access: Access, columns: int) -> bool:
    """Return True if the last index runs over ``columns`` consecutive columns, as a slice or an index range."""
    last = last_index(access)
    if last is None or last.form is None:
        return False
    ranges = [(symbol, coefficient) for symbol, coefficient in last.form.terms if symbol.is_range]
    if last.extent is not None:
        return last.extent == columns and not ranges
    return len(ranges) == 1 and ranges[0][1] == 1 and ranges[0][0].in_columns and ranges[0][0].extent == columns


def columns_in(kernel: KernelModule, access: Access) -> ast.AST | None:
    """Return the node that says which columns an access has: a slice, or a range in an index. Return None if there is
    neither.
    """
    last = elements(access.node)[-1]
    return last if isinstance(last, ast.Slice) or _size_form(kernel, last) else _range_in(kernel, last)


def _size_form(kernel: KernelModule, index: ast.AST) -> ast.Call | None:
    """Return the index itself if it is ``nl.ds(start, size)``; None for any other index."""
    return index if isinstance(index, ast.Call) and kernel.callee(index) == "ds" and len(index.args) == 2 else None


def _range_in(kernel: KernelModule, index: ast.expr) -> ast.expr | None:
    form = kernel.affine(index)
    if form is None or not form.ranges:
        return None
    if form == Affine.of(form.ranges[0]):
        return index
    if not isinstance(index, ast.BinOp) or not isinstance(index.op, ast.Add | ast.Sub):
        return None
    return _range_in(kernel, index.left) or _range_in(kernel, index.right)


def narrowed(kernel: KernelModule, access: Access, first: str, width: int) -> tuple[ast.AST, str]:
    """Return the node in an access that :func:`columns_in` returns, and the text that replaces it.

    With this text the access has only ``width`` columns: of the columns that the access had before, those from number
    ``first`` on.
    """
    place, last = columns_in(kernel, access), last_index(access)
    assert place is not None and last is not None and last.form is not None
    sized = _size_form(kernel, place)
    start = place.lower if isinstance(place, ast.Slice) else sized and sized.args[0]
    if start is not None and kernel.text(start) != "0":
        first = f"{kernel.text(start)} + {first}"
    if sized is not None:
        return place, f"{kernel.text(sized.func)}({first}, {width})"
    if isinstance(place, ast.Slice):
        return place, f"0:{width}" if first == "0" else f"{first}:{first} + {width}"
    axes = ", ".join([*["None"] * (last.form.ranges[0].axes - 1), ":"])
    return place, f"{first} + {prefix(kernel, 'language')}.arange({width})[{axes}]"
