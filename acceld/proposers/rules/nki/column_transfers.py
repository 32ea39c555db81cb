"""Join the transfers of several iterations, each of which moves the columns right behind those of the iteration before.

Each iteration has a tile of its own, which is loaded from a tensor in HBM, or stored to one. Once joined, one wide tile has
the columns of several iterations, and one transfer before or after their loop moves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from acceld.editing import Edits
from acceld.errors import RuleRefused
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import changed
from acceld.nki.source.nests import all_accesses, first_line, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import rendered
from acceld.nki.source.splitting import split_loop
from acceld.nki.source.syntax import Access, Loop, Statement, elements
from acceld.proposers.rules.records import Variant


@dataclass(frozen=True)
class ColumnTransfer:
    """A transfer between HBM and a tile that the body of ``loop`` declares. It moves as many columns as the tile has."""

    loop: Loop
    transfer: Statement
    tile: Access
    there: Access
    """The columns of the tensor in HBM."""
    rows: int
    columns: int
    start: Affine
    """First column of the first iteration."""


def column_transfer(
    kernel: KernelModule, transfer: Statement, tile: Access | None, there: Access | None
) -> ColumnTransfer | None:
    """Return the transfer between ``tile`` and ``there`` that a statement makes; None if it is no transfer as
    :class:`ColumnTransfer` describes it.
    """
    loop = transfer.parent
    if transfer.kind != "op" or transfer.op != "dma_copy" or loop is None or tile is None or there is None:
        return None
    buffer = kernel.buffers.get(tile.name)
    if buffer is None or buffer.space != "sbuf" or buffer.declaration.parent is not loop or len(buffer.shape) != 2:
        return None
    rows, columns = buffer.shape
    *others, last = there.dims or (None,)
    if rows is None or columns is None or not buffer.is_written_out:
        return None
    if last is None or last.form is None or last.extent != columns:
        return None
    start = last.form - Affine.of_variable(loop.variable).times(columns)
    if any(symbol.is_range or symbol.name != symbol.variable for symbol, _ in start.terms):
        return None
    if last.form.coefficient(loop.variable) != columns or loop.variable in start.variables:
        return None
    if any(dim is None or dim.form is None or loop.variable in dim.form.variables for dim in others):
        return None
    return ColumnTransfer(loop, transfer, tile, there, rows, columns, start)


def tile_uses(kernel: KernelModule, found: ColumnTransfer) -> list[tuple[Statement, Access]] | str:
    """Return all uses of the tile, which must be in the loop; if a use is not understood or outside, the reason as text."""
    name, used = found.tile.name, all_accesses(kernel, found.tile.name)
    if used is None:
        return f"line {found.transfer.line}: {name} is also used in a way that is not understood: index it, or use all of it"
    outside = next((one for one, _ in used if not inside(one, found.loop)), None)
    if outside is not None:
        return f"line {outside.line} uses {name} after the loop: declare {name} before the loop"
    return used


def columns_of(access: Access) -> tuple[Affine, int] | None:
    """Return (first column, number of columns) of a part of a tile; (0, 0) for all columns, None if the columns are
    not understood.
    """
    last = access.dims[-1] if access.dims is not None else None
    if last is None or last.full:
        return Affine(), 0
    if last.form is None or last.unsized or last.form.ranges or (last.extent is None and not last.is_point):
        return None
    if any(symbol.name != symbol.variable for symbol, _ in last.form.terms):
        return None
    return last.form, last.extent or 0


def at_once(
    kernel: KernelModule,
    found: ColumnTransfer,
    find: Callable[[KernelModule, Statement], ColumnTransfer | None],
    obstacle: Callable[[KernelModule, ColumnTransfer], str],
    variant: Variant,
) -> str:
    """Return the source with one transfer for every group of iterations.

    ``find`` finds the transfer again in the kernel whose loop runs in groups, and ``obstacle`` says why it can not be joined.
    """
    size = int(variant.parameters["iterations"])
    if size < (found.loop.trips or 1):
        kernel, group = split_loop(kernel, found.loop, size)
        again = find(kernel, group.statements()[found.loop.statements().index(found.transfer)])
        if again is None or obstacle(kernel, again):
            raise RuleRefused(
                f"line {found.loop.line}: {found.loop.variable} can not be split into groups of iterations: make its number "
                "of iterations a multiple of the group's"
            )
        found = again
    loop, transfer, name = found.loop, found.transfer, found.tile.name
    declaration, edits = kernel.buffers[name].declaration, Edits(kernel.source)
    wide, first = kernel.multiple(loop, found.columns), rendered(found.start, {})
    whole = f"0:{wide}" if first == "0" else f"{first}:{first} + {wide}"
    declared = changed(kernel, declaration.node, {elements(declaration.args["shape"])[-1]: wide})
    moved = changed(kernel, transfer.node, {elements(found.there.node)[-1]: whole, found.tile.node: name})
    edits.delete_lines(declaration.start, declaration.end)
    edits.delete_lines(transfer.start, transfer.end)
    edits.insert(first_line(kernel, loop), f"{loop.indent}{declared}\n")
    loads = kernel.space_of(transfer.made.name) != "hbm"
    edits.insert(first_line(kernel, loop) if loads else kernel.after_line(loop.end), f"{loop.indent}{moved}\n")
    for statement, access in all_accesses(kernel, name) or ():
        if statement is not transfer:
            edits.replace(*kernel.span(access.node), _part(kernel, found, access))
    return edits.apply()


def _part(kernel: KernelModule, found: ColumnTransfer, access: Access) -> str:
    """Return the text of an access to the iteration's own columns of the wide tile."""
    start, width = columns_of(access) or (Affine(), 0)
    rows = f"0:{found.rows}" if access.dims is None else kernel.text(elements(access.node)[0])
    first = rendered(Affine.of_variable(found.loop.variable).times(found.columns) + start, {})
    if access.dims is not None and access.dims[-1].is_point:
        return f"{access.name}[{rows}, {first}]"
    return f"{access.name}[{rows}, {first}:{first} + {width or found.columns}]"
