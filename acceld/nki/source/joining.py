"""Join the tiles that several iterations of a loop use into one wider tile.

Two tiles lie *side by side* if the columns of one follow those of the other in the same partitions. Functions here find
out whether tiles lie side by side, or change the buffer's layout so that they do.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from acceld.editing import Edits
from acceld.nki.source.affine import Affine
from acceld.nki.source.nests import all_accesses, without_element
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix, ranges, rendered
from acceld.nki.source.syntax import Access, Dim, Loop, Statement, elements


@dataclass(frozen=True)
class Joined:
    """One access that covers the tiles which ``access`` reaches in all iterations of ``loops``."""

    access: Access
    loops: tuple[Loop, ...]
    folded: tuple[int, ...]
    """Positions of the block indices (before the partition index) that become columns, in the order of their loops from
    the outermost.
    """
    partition: int
    """Position of the partition index in the access."""
    rows: int
    """Number of partitions."""
    widths: tuple[int, ...]
    """Number of elements along each index after the partition index."""
    starts: tuple[Affine, ...]
    """The first element along each index after the partition index. It may depend on the variables of other loops."""

    @property
    def name(self) -> str:
        """Return the name of the buffer."""
        return self.access.name

    @property
    def elements(self) -> int:
        """Return the number of elements in each partition."""
        return prod(self.widths)

    @property
    def axes(self) -> int:
        """Return the number of axes of the joined tile, including the partition axis."""
        return 1 + len(self._axes)

    @property
    def _axes(self) -> list[int]:
        """Return the positions in ``widths`` of the indices that become axes of the joined tile."""
        wide = [at for at, width in enumerate(self.widths) if width > 1]
        return wide or [len(self.widths) - 1]

    def text(self, kernel: KernelModule, parts: tuple[int, int] | None = None) -> str:
        """Return the joined access as source text, for the layout that :func:`laid_beside` gives the buffer.

        With ``parts`` = (number of tiles, columns of each tile) the access has three axes: partitions, tiles,
        columns.
        """
        assert self.access.dims is not None and isinstance(self.access.node, ast.Subscript)
        over_rows, language = self.access.dims[self.partition], prefix(kernel, "language")
        as_slices = (over_rows.extent is not None or over_rows.full) and (parts is None or kernel.api == "nki")
        indices = [
            kernel.text(index)
            for at, index in enumerate(elements(self.access.node)[: self.partition])
            if at not in self.folded
        ]
        assert over_rows.form is not None
        first_row = Affine(over_rows.form.constant)
        along = [(self.rows, first_row), *zip(self.widths, self.starts, strict=True)]
        axes = [0, *(1 + at for at in self._axes)]
        for at, (width, start) in enumerate(along):
            first = rendered(start, {})
            if at not in axes:
                indices.append(first)
            elif as_slices:
                indices.append(f"{first}:{width}" if first == "0" else f"{first}:{first} + {width}")
            elif parts is not None and len(axes) == 2 and at > 0:
                indices.append(ranges(language, start, (parts[0], 1, 3, parts[1]), (parts[1], 2, 3, 1)))
            else:
                count = len(axes) if parts is None else 3
                indices.append(ranges(language, start, (width, axes.index(at), count, 1)))
        return f"{self.name}[{', '.join(indices)}]"


def joined(kernel: KernelModule, access: Access, loops: Sequence[Loop]) -> Joined | str:
    """Return one access that covers the tiles of ``access`` in all iterations of ``loops`` (outermost first).

    If the tiles can not lie side by side, the result is the reason as text.
    """
    buffer = kernel.buffers.get(access.name)
    if buffer is None or access.dims is None or access.name in kernel.ambiguous:
        return f"{access.name} is not a declared buffer, is used as a whole, or has a second name, an alias: declare it before the loop, use one name, and index it"
    axis, shape = buffer.partition_axis, buffer.shape
    if len(access.dims) != len(shape) or any(dim.form is None for dim in access.dims) or None in shape:
        return f"an index of {access.name} or the shape of {access.name} is not understood: write both with loop variables and numbers"
    dims = [replace(dim, extent=extent) if dim.full else dim for dim, extent in zip(access.dims, shape, strict=True)]
    if (dims[axis].extent is None) != all(dim.extent is None for dim in dims[axis:]):
        return f"{access.name} is indexed both by slices and by ranges: use only slices, or only ranges"
    over_rows = dims[axis]
    if over_rows.width is None or over_rows.form is None or over_rows.form.variables:
        return f"the partitions of {access.name} depend on a loop: use the same partitions in every iteration"
    folded: list[int] = []
    for loop in loops:
        places = [at for at, dim in enumerate(dims) if dim.form and loop.variable in dim.form.variables]
        if len(places) != 1 or loop.trips is None:
            return f"{access.name} has no tile of its own for each iteration of {loop.variable}: index it by {loop.variable}"
        if places[0] < axis and places[0] not in folded:
            folded.append(places[0])
    along = list(dims[axis + 1 :])
    if folded:
        if len(along) != 1:
            return f"the tiles of {access.name} have several free axes: write them with one"
        along = [_columns(along[0], [(dims[at], shape[at] or 0) for at in folded], shape[-1] or 0)]
    spans = [span for dim in along if (span := _span(dim, loops)) is not None]
    if len(spans) < len(along) or not along:
        return f"the tiles of {access.name} do not follow each other: let each begin where the one before ends"
    widths, starts = zip(*spans, strict=True)
    return Joined(access, tuple(loops), tuple(folded), axis, over_rows.width, widths, starts)


def _columns(dim: Dim, places: Sequence[tuple[Dim, int]], columns: int) -> Dim:
    """Return the column index in a layout that has all tiles side by side.

    ``dim`` is the index inside one tile, which has ``columns`` columns. Each entry of ``places`` has the index of a
    dimension that becomes columns, and its extent. The last entry varies fastest.
    """
    form = dim.form
    for place, extent in reversed(places):
        assert form is not None and place.form is not None
        form = form + place.form.times(columns)
        columns *= extent
    return Dim(form, dim.extent, dim.text, dim.full)


def _span(dim: Dim, loops: Sequence[Loop]) -> tuple[int, Affine] | None:
    """Return how many consecutive elements an index reaches in all iterations of ``loops``, and the first element. The
    result is None if there are gaps between the elements.
    """
    assert dim.form is not None
    width, trips = dim.extent or 1, {loop.variable: loop.trips or 0 for loop in loops}
    moves = [
        (abs(factor), symbol.extent if symbol.is_range else trips[symbol.name])
        for symbol, factor in dim.form.terms
        if symbol.is_range or symbol.name in trips
    ]
    if any(factor < 0 for symbol, factor in dim.form.terms if symbol.is_range or symbol.variable in trips):
        return None
    if any(symbol.variable in trips and symbol.name not in trips for symbol, _ in dim.form.terms):
        return None
    for step, count in sorted(moves):
        if step != width:
            return None
        width *= count
    rest = [(s, factor) for s, factor in dim.form.terms if not s.is_range and s.variable not in trips]
    if any(symbol.name != symbol.variable for symbol, _ in rest):
        return None  # the range depends on a quotient, which can not be written as text
    return width, Affine(dim.form.constant, tuple(rest))


def obstacle_to_joining(kernel: KernelModule, one: Joined) -> str:
    """Return the empty text if the buffer's tiles can be laid side by side; else the reason."""
    if not one.folded:
        return ""
    found = all_accesses(kernel, one.name)
    if found is None or not kernel.buffers[one.name].is_written_out:
        return f"{one.name} may have a second name (an alias), or its shape is not written out: use one name, and a tuple of numbers as shape"
    for statement, access in found:
        where = f"in line {statement.line}"
        if access.dims is None or len(access.dims) != len(kernel.buffers[one.name].shape):
            return f"{one.name} is used as a whole {where}: index it there"
        for at in one.folded:
            form = access.dims[at].form
            if form is None or form.ranges or access.dims[at].extent is not None:
                return f"several tiles of {one.name} are used at once {where}: use one at a time"
    return ""


def laid_beside(kernel: KernelModule, one: Joined, edits: Edits, without: Sequence[Statement] = ()) -> None:
    """Add to ``edits`` the changes that lay the tiles of the buffer ``one`` side by side. They change the buffer's
    declaration, and its accesses in all statements but ``without``.
    """
    if not one.folded:
        return
    buffer = kernel.buffers[one.name]
    columns = buffer.shape[-1] or 1
    edits.replace(*kernel.span(buffer.extents[-1]), str(columns * prod(buffer.shape[at] or 1 for at in one.folded)))
    for at in one.folded:
        edits.replace(*without_element(kernel, buffer.extents, at), "")
    for statement, access in all_accesses(kernel, one.name) or ():
        if statement in without:
            continue
        assert isinstance(access.node, ast.Subscript) and access.dims is not None
        indices, step = elements(access.node), columns
        pieces: list[str] = []
        for at in reversed(one.folded):
            edits.replace(*without_element(kernel, indices, at), "")
            pieces.insert(0, _term(kernel, indices[at], step))
            step *= buffer.shape[at] or 1
        first = " + ".join(filter(None, pieces))
        if first:
            begin_at(kernel, indices[-1], access.dims[-1], first, columns, edits)


def _term(kernel: KernelModule, index: ast.expr, step: int) -> str:
    """Return the text of ``index`` times ``step``, the number of columns from one tile to the next; empty if
    the product is 0.
    """
    text, known = kernel.text(index), kernel.constant(index)
    if known is not None:
        return str(known * step) if known else ""
    return (
        f"{step} * {text}" if isinstance(index, ast.Name) or kernel.is_in_parentheses(index) else f"{step} * ({text})"
    )


def begin_at(kernel: KernelModule, index: ast.expr, dim: Dim, first: str, columns: int, edits: Edits) -> None:
    """Add to ``edits`` the change that makes a column index begin at ``first``.

    ``columns`` is the number of columns that the index ``:`` stands for.
    """
    if isinstance(index, ast.Slice):
        if dim.full:
            edits.replace(*kernel.span(index), f"{first}:{first} + {columns}")
            return
        for bound in (index.lower, index.upper):
            if bound is not None:
                start, _ = kernel.span(bound)
                edits.insert(start, f"{first} + ")
        if index.lower is None:
            start, _ = kernel.span(index)
            edits.insert(start, first)
        return
    at = index.args[0] if dim.extent is not None and isinstance(index, ast.Call) else index
    start, end = kernel.span(at)
    if kernel.constant(at) == 0:
        edits.replace(start, end, first)
    else:
        edits.insert(start, f"{first} + ")
