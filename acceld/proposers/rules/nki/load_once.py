"""Load what several iterations read by one transfer.

Before, a load of 128 columns in every iteration; after, one of 512::

    for k in range(4):                                         tile = nl.ndarray((128, 512), ...)
        tile = nl.ndarray((128, 128), ...)                     nisa.dma_copy(dst=tile, src=x[0:128, 0:512])
        nisa.dma_copy(dst=tile, src=x[0:128, nl.ds(128 * k,    for k in range(4):
                                                   128)])          nisa.nc_transpose(dst=turned, data=tile[0:128, 128 * k:128 * k + 128])
        nisa.nc_transpose(dst=turned, data=tile)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import changed, named_inside
from acceld.nki.source.effects import understood
from acceld.nki.source.matching import one_name
from acceld.nki.source.nests import all_accesses, first_line, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import rendered
from acceld.nki.source.splitting import split_loop
from acceld.nki.source.syntax import Access, Loop, Statement, elements, names_in
from acceld.proposers.rules.records import Place, Rule, Variant

_FULL_ROW_BYTES = 2048
"""Bytes of a row from which on a transfer uses the DMA engines fully."""
_MOST_COLUMNS = 4096
"""Columns that one load may have. Their tile takes 16 KiB of float32 in each partition of SBUF."""
_SETTINGS = {"src", "engine", "dge_mode", "name"}
"""Arguments of a transfer, besides its target, that mean the same for one large transfer."""


@dataclass(frozen=True)
class _Loaded:
    """A load by which each iteration reads the columns right behind those of the iteration before into a tile of its
    own.
    """

    loop: Loop
    load: Statement
    source: Access
    rows: int
    columns: int
    bytes: int
    """Bytes of an element."""
    start: Affine
    """First column of the first iteration."""


class LoadOnce(Rule):
    """Load the columns of several iterations by one transfer, and let each iteration use its part of the tile."""

    name = "load_once"
    reason = (
        "A DMA row below 2 KiB takes as long as one of 2 KiB, and every transfer of the current API is started by itself, "
        "0.49 µs or more after the one before. The compiler of the current API merges no transfers."
    )
    source = (
        "AWS NKI guides: DMA efficiency by bytes a partition; starts of small dma_copy in profiles of public kernels"
    )
    apis = frozenset({"nki"})
    only = "The compiler of the legacy API merges neighboring transfers by itself."
    change_class = "dma"
    relieves = ("dma",)

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every load of short rows by which each iteration reads the columns behind those of the one before."""
        for load in kernel.statements:
            found = _loaded(kernel, load)
            sizes = [] if found is None else _sizes(found)
            if found is None or not sizes:
                continue
            name, variable = load.made.name, found.loop.variable
            yield self.answer(
                load.line,
                _obstacle(kernel, found),
                f"Load the columns of several iterations of {variable} at once",
                partial(_at_once, kernel, found),
                *(Variant(f"{size * found.columns} columns", {"iterations": size}) for size in sizes),
                precondition=f"only this loop uses the tile {name}, and the kernel does not write {found.source.name}",
                plan=f"Every iteration of {variable} loads {found.columns} columns of {found.source.name}. Load the columns "
                "of several iterations by one transfer, and let each iteration use its part of the tile.",
                benefit=0.3 * (1 - found.columns * found.bytes / _FULL_ROW_BYTES),
                gain_percent=(0.0, 30.0),
            )


def _sizes(found: _Loaded) -> list[int]:
    """Return the numbers of iterations that may share a load: the greatest number, and the least number for which the
    loaded rows are long enough.
    """
    trips = found.loop.trips or 1
    fitting = [size for size in range(2, trips + 1) if trips % size == 0 and size * found.columns <= _MOST_COLUMNS]
    enough = [size for size in fitting if size * found.columns * found.bytes >= _FULL_ROW_BYTES]
    return list(dict.fromkeys([*enough[:1], *fitting[-1:]]))


def _loaded(kernel: KernelModule, load: Statement) -> _Loaded | None:
    """Return the load that a statement makes; None if the statement is no load as :class:`_Loaded` describes it."""
    loop, source = load.parent, load.reads.get("src")
    if load.kind != "op" or load.op != "dma_copy" or loop is None or load.target is None or source is None:
        return None
    if load.target.dims is not None or not source.dims or load.args.keys() - _SETTINGS:
        return None
    buffer = kernel.buffers.get(load.target.name)
    if buffer is None or buffer.space != "sbuf" or buffer.declaration.parent is not loop or len(buffer.shape) != 2:
        return None
    rows, columns = buffer.shape
    last = source.dims[-1]
    if rows is None or columns is None or last.form is None or last.extent != columns:
        return None
    size = DTYPE_BYTES.get(kernel.dtype_of(source.name), 0)
    start = last.form - Affine.of_variable(loop.variable).times(columns)
    if not size or columns * size >= _FULL_ROW_BYTES or not buffer.is_written_out:
        return None
    if any(symbol.is_range or symbol.name != symbol.variable for symbol, _ in start.terms):
        return None
    if last.form.coefficient(loop.variable) != columns or loop.variable in start.variables:
        return None
    if any(dim.form is None or loop.variable in dim.form.variables for dim in source.dims[:-1]):
        return None
    return _Loaded(loop, load, source, rows, columns, size, start)


def _obstacle(kernel: KernelModule, found: _Loaded) -> str:
    """Return the reason why the load can not be made before the loop; empty if it can."""
    name, tensor, loop = found.load.made.name, found.source.name, found.loop
    problem = one_name(kernel, (name, tensor)) or understood(loop.items, names=True)
    if problem:
        return problem
    declaration = kernel.buffers[name].declaration
    for statement, moving in ((declaration, 0), (found.load, _mentions(elements(found.source.node)[-1], loop))):
        if named_inside(statement.node, loop) or _mentions(statement.node, loop) != moving:
            return f"line {statement.line} depends on loop {loop.variable} in another way than by the columns that it loads: leave that out"
    writers = kernel.writers(tensor)
    if writers:
        return f"line {writers[0].line} writes {tensor}: write the result to another tensor"
    used = all_accesses(kernel, name)
    if used is None or any(len(access.dims or (0, 0)) != 2 for _, access in used):
        return (
            f"line {found.load.line}: {name} is also used in a way that is not understood: index it, or use all of it"
        )
    for statement, access in used:
        if statement is not found.load and statement.start < found.load.start:
            return f"line {statement.line} uses {name} before line {found.load.line} loads it: use another tile there"
        if not inside(statement, loop):
            return f"line {statement.line} uses {name} after the loop: declare {name} before the loop"
        if access.dims is not None and _in_columns(access) is None:
            return f"line {statement.line} uses columns of {name} that are not understood: write a slice"
    return ""


def _mentions(node: ast.AST, loop: Loop) -> int:
    """Return how many times ``node`` uses the variable of ``loop``."""
    return sum(one.id == loop.variable for one in names_in(node))


def _in_columns(access: Access) -> tuple[Affine, int] | None:
    """Return (first column, number of columns) of a part of a tile; (0, 0) for all columns, None if the columns are
    not understood.
    """
    assert access.dims is not None
    last = access.dims[-1]
    if last.full:
        return Affine(), 0
    if last.form is None or last.unsized or last.form.ranges or (last.extent is None and not last.is_point):
        return None
    if any(symbol.name != symbol.variable for symbol, _ in last.form.terms):
        return None
    return last.form, last.extent or 0


def _at_once(kernel: KernelModule, found: _Loaded, variant: Variant) -> str:
    """Return the source with one load before every group of iterations."""
    size = int(variant.parameters["iterations"])
    if size < (found.loop.trips or 1):
        kernel, group = split_loop(kernel, found.loop, size)
        again = _loaded(kernel, group.statements()[found.loop.statements().index(found.load)])
        if again is None or _obstacle(kernel, again):
            raise RuleRefused(
                f"line {found.loop.line}: {found.loop.variable} can not be split into groups of iterations: make its number "
                "of iterations a multiple of the group's"
            )
        found = again
    loop, load, name = found.loop, found.load, found.load.made.name
    declaration, edits = kernel.buffers[name].declaration, Edits(kernel.source)
    wide, first = kernel.multiple(loop, found.columns), rendered(found.start, {})
    whole = f"0:{wide}" if first == "0" else f"{first}:{first} + {wide}"
    declared = changed(kernel, declaration.node, {elements(declaration.args["shape"])[-1]: wide})
    loaded = changed(kernel, load.node, {elements(found.source.node)[-1]: whole})
    edits.delete_lines(declaration.start, declaration.end)
    edits.delete_lines(load.start, load.end)
    edits.insert(first_line(kernel, loop), f"{loop.indent}{declared}\n{loop.indent}{loaded}\n")
    here = Affine.of_variable(loop.variable).times(found.columns)
    for statement, access in all_accesses(kernel, name) or ():
        if statement is not load:
            edits.replace(*kernel.span(access.node), _part(kernel, found, access, here))
    return edits.apply()


def _part(kernel: KernelModule, found: _Loaded, access: Access, here: Affine) -> str:
    """Return the text of an access to the part of the wide tile that begins at the column ``here``."""
    rows, (start, width) = f"0:{found.rows}", (Affine(), 0)
    if access.dims is not None:
        rows = kernel.text(elements(access.node)[0])
        start, width = _in_columns(access) or (start, width)
        if access.dims[-1].is_point:
            return f"{access.name}[{rows}, {rendered(here + start, {})}]"
    first = rendered(here + start, {})
    return f"{access.name}[{rows}, {first}:{first} + {width or found.columns}]"


RULE = LoadOnce()
