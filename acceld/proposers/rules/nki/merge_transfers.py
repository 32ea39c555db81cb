"""Make one transfer of a loop that only transfers neighboring pieces.

Before, a transfer for each partition; after, one that reads the row of ``w`` for every partition::

    for p in range(128):                                         nisa.dma_copy(dst=w_tile[0:128, 0:512],
        nisa.dma_copy(dst=w_tile[p:p + 1, 0:512],                              src=w.ap(pattern=[[0, 128], [1, 512]]))
                      src=w[0:1, 0:512])
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import changed, comments
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import rendered
from acceld.nki.source.syntax import Access, Dim, Loop, Statement, elements, names_in
from acceld.proposers.rules.records import Place, Rule, Variant

_SETTINGS = {"dst", "src", "engine", "dge_mode", "name"}
"""Arguments of a transfer that mean the same for one large transfer. Others, such as an operation, may not."""


@dataclass(frozen=True)
class _Pieces:
    """A loop that consists of one transfer of a piece.

    The pieces of all iterations lie side by side in the target. In the source they lie side by side too, or all at
    the same place.
    """

    loop: Loop
    transfer: Statement
    target: Access
    source: Access
    axis: int
    """Index of the target along which the pieces lie side by side."""
    width: int
    """Elements of a piece along that axis."""
    source_axis: int | None
    """Index of the source along which the pieces lie side by side; None if every iteration reads the same row."""


class MergeTransfers(Rule):
    """Replace a loop that transfers neighboring pieces, one in each iteration, by one transfer of all pieces."""

    name = "merge_transfers"
    reason = (
        "Every transfer of the current API is started by itself, 0.49 µs or more after the one before on its queue. One transfer "
        "of all pieces starts once, and a pattern with step 0 reads the same row for every partition."
    )
    source = "starts of small dma_copy in profiles of public kernels on trn2; nki.isa.dma_copy and NkiTensor.ap (access patterns)"
    apis = frozenset({"nki"})
    only = "The compiler of the legacy API merges neighboring transfers by itself."
    change_class = "dma"
    relieves = ("dma",)

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every loop that only transfers neighboring pieces."""
        for loop in kernel.loops:
            found = _pieces(kernel, loop)
            if found is None:
                continue
            target, source = found.target.name, found.source.name
            how = "the same row" if found.source_axis is None else "neighboring pieces"
            yield self.found(
                loop.line,
                partial(_merged, kernel, found),
                Variant("merge"),
                precondition=f"the loop over {loop.variable} does nothing but transfer {how} of {source} to neighboring parts of "
                f"{target}",
                plan=f"The loop over {loop.variable} makes {loop.trips} transfers of {how} of {source}. Make one transfer.",
                benefit=0.4,
                gain_percent=(0.0, 60.0),
            )


def _pieces(kernel: KernelModule, loop: Loop) -> _Pieces | None:
    """Return the pieces that a loop transfers; None if the loop does anything else."""
    match loop.items:
        case [Statement(kind="op", op="dma_copy", second=None, augmented=False) as transfer]:
            pass
        case _:
            return None
    target, source = transfer.target, transfer.reads.get("src")
    if target is None or source is None or target.dims is None or loop.trips is None or loop.trips < 2:
        return None
    names = {loop.variable, target.name, source.name}
    if not _SETTINGS.issuperset(transfer.args) or target.name == source.name or kernel.ambiguous & names:
        return None
    settings = [value for name, value in transfer.args.items() if name != "src"]
    if any(one.id == loop.variable for value in settings for one in names_in(value)):
        return None  # such as an engine for each iteration
    into, of = _moving(target, loop.variable), _moving(source, loop.variable)
    if into is None or of is None or len(into) != 1 or len(of) > 1:
        return None
    ((axis, width),) = into.items()
    ranges, others = _sliced(target), _sliced(source)
    if ranges is None or others is None or (source.dims is not None and len(ranges) != len(others)):
        return None
    if not of:
        row = _row(kernel, source)
        fits = axis == 0 and width == 1 and len(ranges) == 2 == len(target.dims) and row is not None
        return _Pieces(loop, transfer, target, source, axis, width, None) if fits else None
    ((other, along),) = of.items()
    if width != along or ranges.index(axis) != others.index(other):
        return None
    return _Pieces(loop, transfer, target, source, axis, width, other)


def _moving(access: Access, variable: str) -> dict[int, int] | None:
    """Return the indices of an access that depend on the loop variable ``variable``: the position of each such index,
    and the number of elements that it covers (the width of a piece).

    Return None if an index is not understood, or if an index does not advance by exactly one piece in each iteration.
    """
    found: dict[int, int] = {}
    for axis, dim in enumerate(access.dims or ()):
        if dim.full:
            continue
        if (
            dim.form is None
            or dim.unsized
            or any(one.is_range or one.name != one.variable for one, _ in dim.form.terms)
        ):
            return None
        if variable in dim.form.variables:
            if dim.extent is None or dim.form.coefficient(variable) != dim.extent:
                return None
            found[axis] = dim.extent
    return found


def _sliced(access: Access) -> list[int] | None:
    """Return the indices of an access that are slices; None if the extent of one is not known."""
    dims = access.dims or ()
    if any(not dim.full and dim.extent is None and not dim.is_point for dim in dims):
        return None
    return [axis for axis, dim in enumerate(dims) if not dim.is_point]


def _row(kernel: KernelModule, source: Access) -> tuple[int, int] | None:
    """Return the first element and the number of elements of a row of a tensor in HBM; None if ``source`` is no part of one
    row.
    """
    shape = kernel.shapes.get(source.name) if kernel.is_tensor(source.name) else None
    if shape is None or len(shape) != 2 or None in shape:
        return None
    rows, columns = (int(extent or 0) for extent in shape)
    first, last = source.dims or (Dim(Affine(), rows), Dim(Affine(), columns))
    first, last = (Dim(Affine(), n) if dim.full else dim for dim, n in ((first, rows), (last, columns)))
    if first.extent != 1 or last.extent is None or first.form is None or last.form is None:
        return None
    start = first.form.times(columns) + last.form
    return None if start.terms else (start.constant, last.extent)


def _merged(kernel: KernelModule, found: _Pieces, _: Variant) -> str:
    """Return the source with one transfer in place of the loop."""
    loop, transfer = found.loop, found.transfer
    texts = {elements(found.target.node)[found.axis]: _together(kernel, found, found.target, found.axis)}
    if found.source_axis is not None:
        place = elements(found.source.node)[found.source_axis]
        texts[place] = _together(kernel, found, found.source, found.source_axis)
    else:
        start, columns = _row(kernel, found.source) or (0, 0)
        width = str(columns)
        match elements(found.source.node)[-1] if found.source.dims else None:
            case ast.Slice(lower=None | ast.Constant(value=0), upper=ast.expr() as end):
                width = kernel.size(end, columns)
        offset = f", offset={start}" if start else ""
        count = kernel.count(loop)
        texts[found.source.node] = f"{found.source.name}.ap(pattern=[[0, {count}], [1, {width}]]{offset})"
    edits = Edits(kernel.source)
    told = comments(kernel, transfer, loop.indent)
    edits.replace(
        loop.start, loop.end, f"{told.lstrip()}{loop.indent if told else ''}{changed(kernel, transfer.node, texts)}"
    )
    return edits.apply()


def _together(kernel: KernelModule, found: _Pieces, access: Access, axis: int) -> str:
    """Return the slice of all pieces along one index of an access."""
    form = (access.dims or ())[axis].form
    assert form is not None, "only indices that are understood have pieces"
    start = form - Affine.of_variable(found.loop.variable).times(found.width)
    whole = kernel.count(found.loop) if found.width == 1 else kernel.multiple(found.loop, found.width)
    first = rendered(start, {})
    return f"{first}:{first} + {whole}" if start.terms or start.constant else f"0:{whole}"


RULE = MergeTransfers()
