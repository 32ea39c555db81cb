"""Store the results of several iterations by one transfer.

Before, a store of 512 columns in every iteration; after, one of 2048::

    for part in nl.affine_range(4):                            tile = nl.ndarray((128, 2048), ...)
        tile = nl.ndarray((128, 512), ...)                     for part in nl.affine_range(4):
        nisa.tensor_copy(dst=tile, src=...)                        nisa.tensor_copy(dst=tile[0:128, 512 * part:512 * part + 512], src=...)
        nisa.dma_copy(dst=out[0:128, nl.ds(512 * part, 512)],  nisa.dma_copy(dst=out[0:128, 0:2048], src=tile)
                      src=tile)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import changed
from acceld.nki.source.effects import understood
from acceld.nki.source.matching import one_name
from acceld.nki.source.nests import all_accesses, first_line, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import rendered, span
from acceld.nki.source.splitting import split_loop
from acceld.nki.source.syntax import Access, Loop, Statement, accesses, elements
from acceld.proposers.rules.records import Place, Rule, Variant

_COLUMNS = (2048, 4096)
"""Numbers of columns that one store may have. Their tile takes 8 or 16 KiB in each partition of SBUF."""


@dataclass(frozen=True)
class _Stored:
    """A store by which each iteration writes a tile of its own right beside the tile of the iteration before."""

    loop: Loop
    store: Statement
    tile: Access
    rows: int
    columns: int
    start: Affine
    """First column of the first iteration."""


class StoreOnce(Rule):
    """Keep the results of several iterations side by side, and store them by one transfer."""

    name = "store_once"
    reason = (
        "Every transfer of the current API is started by itself, 0.49 µs or more after the one before, and rows of few KiB "
        "do not use the DMA engines fully. The compiler of the current API merges no transfers."
    )
    source = "starts of small dma_copy in profiles of public kernels on trn2; NKI migration guide: loops are unrolled as written"
    apis = frozenset({"nki"})
    only = "The compiler of the legacy API merges neighboring transfers by itself."
    change_class = "dma"
    relieves = ("dma",)

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every store by which each iteration writes its own tile right beside the tile of the previous
        iteration.
        """
        for store in kernel.statements:
            found = _stored(kernel, store)
            if found is None:
                continue
            sizes = [size for size in _sizes(found) if size * found.columns in _COLUMNS]
            if not sizes:
                continue
            name, variable = found.tile.name, found.loop.variable
            yield self.answer(
                store.line,
                _obstacle(kernel, found),
                f"Store the results of several iterations of {variable} at once",
                partial(_at_once, kernel, found),
                *(Variant(f"{size * found.columns} columns", {"iterations": size}) for size in sizes),
                precondition=f"only this loop uses the tile {name}, and no other statement of the loop uses the tensor to which "
                f"{name} is stored",
                plan=f"Every iteration of {variable} stores {found.columns} columns of {name}. Keep the results of several "
                "iterations side by side in one tile, and store the tile by one transfer.",
                benefit=0.1,
                gain_percent=(0.0, 10.0),
            )


def _sizes(found: _Stored) -> list[int]:
    """Return the divisors of the loop's number of iterations, from 2 on."""
    trips = found.loop.trips or 1
    return [size for size in range(2, trips + 1) if trips % size == 0]


def _stored(kernel: KernelModule, store: Statement) -> _Stored | None:
    """Return the store that a statement makes; None if the statement is no store as :class:`_Stored` describes it."""
    loop, target, tile = store.parent, store.target, store.reads.get("src")
    if store.kind != "op" or store.op != "dma_copy" or loop is None or target is None or tile is None:
        return None
    if (
        kernel.space_of(target.name) != "hbm"
        or loop.kind != "affine_range"
        or not target.dims
        or store.second is not None
    ):
        return None
    buffer = kernel.buffers.get(tile.name)
    if buffer is None or buffer.space != "sbuf" or buffer.declaration.parent is not loop or len(buffer.shape) != 2:
        return None
    rows, columns = buffer.shape
    last = target.dims[-1]
    if rows is None or columns is None or last.form is None or last.extent != columns:
        return None
    start = last.form - Affine.of_variable(loop.variable).times(columns)
    if any(symbol.is_range or symbol.name != symbol.variable for symbol, _ in start.terms):
        return None
    if last.form.coefficient(loop.variable) != columns or loop.variable in start.variables:
        return None
    others = target.dims[:-1]
    if any(dim.form is None or loop.variable in dim.form.variables for dim in others):
        return None
    return _Stored(loop, store, tile, rows, columns, start)


def _obstacle(kernel: KernelModule, found: _Stored) -> str:
    """Return the reason why the store can not wait until several iterations have ended; empty if it can."""
    name, tensor, loop = found.tile.name, found.store.made.name, found.loop
    problem = one_name(kernel, (name, tensor)) or understood(loop.items)
    if problem:
        return problem
    used = all_accesses(kernel, name)
    for statement, access in used or ():
        if not inside(statement, loop):
            return f"line {statement.line} uses {name} after the loop: declare {name} before the loop"
        if access.dims is not None and not _is_whole(access, (found.rows, found.columns)):
            return f"line {statement.line} uses a part of {name}: use all of it"
    if used is None:
        return (
            f"line {found.store.line}: {name} is also used in a way that is not understood: index it, or use all of it"
        )
    for statement in loop.statements():
        if statement is not found.store and any(access.name == tensor for access in accesses(statement)):
            return f"line {statement.line} uses {tensor} too, and would run before the joined store: use {tensor} in another loop"
    return ""


def _is_whole(access: Access, shape: tuple[int, int]) -> bool:
    """Return True if an access covers all of a tile by slices."""
    dims = access.dims or ()
    return len(dims) == len(shape) and all(dim.covers(extent) for dim, extent in zip(dims, shape, strict=True))


def _at_once(kernel: KernelModule, found: _Stored, variant: Variant) -> str:
    """Return the source with one store after every group of iterations."""
    size = int(variant.parameters["iterations"])
    kernel, group = split_loop(kernel, found.loop, size)
    again = _stored(kernel, group.statements()[found.loop.statements().index(found.store)])
    if again is None or _obstacle(kernel, again):
        raise RuleRefused(
            f"line {found.loop.line}: {found.loop.variable} can not be split into groups of iterations: make its number of iterations a multiple of the group's"
        )
    found = again
    loop, store, name = found.loop, found.store, found.tile.name
    declaration, edits = kernel.buffers[name].declaration, Edits(kernel.source)
    wide = kernel.multiple(loop, found.columns)
    first = rendered(found.start, {})
    whole = f"{first}:{first} + {wide}" if found.start.terms or found.start.constant else f"0:{wide}"
    shape = elements(declaration.args["shape"])
    declared = changed(kernel, declaration.node, {shape[-1]: wide})
    edits.delete_lines(declaration.start, declaration.end)
    edits.insert(first_line(kernel, loop), f"{loop.indent}{declared}\n")
    here = span(kernel, Affine.of_variable(loop.variable).times(found.columns), found.columns, 1, 2)
    for statement, access in all_accesses(kernel, name) or ():
        if statement is not store:
            edits.replace(*kernel.span(access.node), f"{name}[0:{found.rows}, {here}]")
    target = elements(store.made.node)
    texts = {target[-1]: whole, found.tile.node: name}
    edits.delete_lines(store.start, store.end)
    edits.insert(kernel.after_line(loop.end), f"{loop.indent}{changed(kernel, store.node, texts)}\n")
    return edits.apply()


RULE = StoreOnce()
