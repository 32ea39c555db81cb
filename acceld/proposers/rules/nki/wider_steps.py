"""Rewrite a loop over columns so that one iteration does the work of several former iterations."""

from __future__ import annotations

import ast
from textwrap import dedent

from acceld.editing import Edits, reindent
from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spans import parsed
from acceld.nki.source.spelling import rendered
from acceld.nki.source.syntax import Dim, Statement, assigned, elements, uncached_names_in
from acceld.proposers.rules.nki.column_steps import ColumnSteps


def widened(kernel: KernelModule, steps: ColumnSteps, factor: int) -> str:
    """Return the source in which ``factor`` steps become one; ``factor`` divides the loop's number of iterations.

    ``x[p, 512 * c + f]`` becomes ``x[p, 1024 * c + f_1024]``, and ``half[c, p, f]`` becomes ``half[c, p, f_1024]``. If
    one step is left, the loop and its variable disappear.
    """
    edits, ranges = Edits(kernel.source), _Ranges(kernel, steps.columns, steps.columns * factor)
    whole = kernel.api == "nki" and factor == steps.trips
    columns = kernel.multiple(steps.loop, steps.columns) if whole else str(steps.columns * factor)
    for access in steps.accesses:
        assert access.dims is not None
        for dim, index in zip(access.dims, elements(access.node), strict=True):
            last = dim is access.dims[-1]
            start = _start(steps, dim, factor, ranges, last=last, slot=access.name in steps.slots)
            if start is not None:
                edits.replace(*kernel.span(index), _index(kernel, index, start, columns))
    for view in steps.repeats:
        edits.replace(*kernel.span(view.count_node), columns)
    for pattern in steps.patterns:
        edits.replace(*kernel.span(pattern.count_node), columns)
        if pattern.start_node is not None:
            start = rendered(_moved(pattern.start, steps, factor), {})
            edits.replace(*kernel.span(pattern.start_node), start)
    for name in sorted(steps.slots | steps.tiles):
        _declare(kernel, steps, name, factor, columns, edits)
    for at, line in ranges.new_lines:
        edits.insert(at, line)
    return _with_fewer_iterations(kernel, steps, factor, edits)


def _start(steps: ColumnSteps, dim: Dim, factor: int, ranges: _Ranges, *, last: bool, slot: bool) -> str | None:
    """Return the text of the start of a wider slice, or of a whole index that is no slice; None if the index does not
    change.

    ``last`` is True for the index over columns. An index over partitions never changes, even if the number of
    partitions equals the number of columns in a step.
    """
    assert dim.form is not None
    variable = steps.loop.variable
    coefficient = dim.form.coefficient(variable) or 0
    extents = [symbol.extent for symbol in dim.form.ranges]
    step_wide = last and (extents == [steps.columns] or dim.extent == steps.columns)
    if dim.full or not (coefficient or step_wide):
        return None
    moved = _moved(dim.form, steps, factor, slot=slot)
    in_columns = [symbol.extent for symbol in dim.form.ranges if symbol.in_columns]
    if extents and in_columns != [steps.columns]:
        return rendered(moved, ranges.as_they_are(dim.form)) if coefficient else None
    return rendered(moved, ranges.wider(dim.form))


def _moved(form: Affine, steps: ColumnSteps, factor: int, *, slot: bool = False) -> Affine:
    """Return an index form for wider steps: an iteration advances by ``factor`` times as much as before.

    With ``slot``, an iteration advances by as much as before. If a single step is left, the form is without the
    loop's variable.
    """
    variable = steps.loop.variable
    rest = Affine(form.constant, tuple((symbol, many) for symbol, many in form.terms if symbol.variable != variable))
    if steps.trips == factor:
        return rest
    return rest + Affine.of_variable(variable).times((form.coefficient(variable) or 0) * (1 if slot else factor))


def _index(kernel: KernelModule, index: ast.expr, start: str, columns: str) -> str:
    """Return the text of an index that begins at ``start``, in its original form: a slice, ``nl.ds(start, size)``, or
    an expression.
    """
    if isinstance(index, ast.Slice):
        return f"{start}:{columns}" if start == "0" else f"{start}:{start} + {columns}"
    if isinstance(index, ast.Call) and len(index.args) == 2:
        return f"{kernel.text(index.func)}({start}, {columns})"
    return start


def _declare(kernel: KernelModule, steps: ColumnSteps, name: str, factor: int, columns: str, edits: Edits) -> None:
    """Add to ``edits`` the changes that give the buffer ``name`` wider tiles, and fewer of them."""
    extents = kernel.buffers[name].extents
    if kernel.constant(extents[-1]) == steps.columns:
        edits.replace(*kernel.span(extents[-1]), columns)
    if name in steps.slots:
        dims = next(access.dims for access in steps.accesses if access.name == name)
        for dim, extent in zip(dims or (), extents, strict=True):
            if dim.form is not None and dim.form.coefficient(steps.loop.variable) == 1:
                edits.replace(*kernel.span(extent), kernel.share(steps.loop, factor))


def _with_fewer_iterations(kernel: KernelModule, steps: ColumnSteps, factor: int, edits: Edits) -> str:
    loop, trips = steps.loop, steps.trips // factor
    assert isinstance(loop.node.iter, ast.Call)
    if trips == 1:
        before, text, after = edits.apply_around(kernel.line_start(loop.start), kernel.after_line(loop.end))
        _, body = text.split("\n", 1)
        # a tile's name may still have the loop's variable
        if all(name.id != loop.variable for name in uncached_names_in(parsed(dedent(body)))):
            return before + reindent(body, loop.items[0].indent, loop.indent) + after
    edits.replace(*kernel.span(loop.node.iter.args[0]), kernel.share(loop, factor))
    return edits.apply()


class _Ranges:
    """The texts of index ranges in a rewritten loop, unchanged or wider. If a range has a name, its wider range gets
    a name too.
    """

    def __init__(self, kernel: KernelModule, old_columns: int, columns: int) -> None:
        self._kernel, self._old_columns, self._columns = kernel, old_columns, columns
        self.new_lines: list[tuple[int, str]] = []
        """Definitions of the new names, as (position in the source, line)."""
        self._names: dict[Symbol, str] = {}
        for name in kernel.aliases:
            form = kernel.affine(ast.Name(name))
            if form is not None and len(form.terms) == 1 and form == Affine.of(form.terms[0][0]):
                self._names.setdefault(form.terms[0][0], name)

    def as_they_are(self, form: Affine) -> dict[Symbol, str]:
        """Return the source text of each index range in ``form``."""
        return {symbol: self._names.get(symbol, _text(symbol)) for symbol in form.ranges}

    def wider(self, form: Affine) -> dict[Symbol, str]:
        """Return the source text of each index range in ``form``, where a wider range replaces the range over a step's
        columns.
        """
        texts = self.as_they_are(form)
        for symbol in form.ranges:
            if symbol.extent == self._old_columns and symbol.in_columns:
                wide = Symbol.over(self._columns, symbol.axis, symbol.axes)
                if symbol in self._names and wide not in self._names:
                    self._name(wide, self._names[symbol])
                texts[symbol] = self._names.get(wide, _text(wide))
        return texts

    def _name(self, wide: Symbol, beside: str) -> None:
        statement = next(s for s in self._kernel.statements if s.kind == "alias" and _assigns(s, beside))
        self._names[wide] = self._kernel.fresh(f"{beside}_{self._columns}")
        line = f"{statement.indent}{self._names[wide]} = {_text(wide)}\n"
        self.new_lines.append((self._kernel.after_line(statement.end), line))


def _text(symbol: Symbol) -> str:
    places = ", ".join(":" if axis == symbol.axis else "None" for axis in range(symbol.axes))
    return f"nl.arange({symbol.extent})[{places}]"


def _assigns(statement: Statement, name: str) -> bool:
    found = assigned(statement)
    return found is not None and found[0] == name
