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
from functools import partial

from acceld.model import Profile
from acceld.nki.source.effects import understood
from acceld.nki.source.matching import one_name
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Access, Statement, accesses
from acceld.proposers.rules.nki.column_transfers import ColumnTransfer, at_once, column_transfer, tile_uses
from acceld.proposers.rules.records import Place, Rule, Variant

_COLUMNS = (2048, 4096)
"""Numbers of columns that one store may have. Their tile takes 8 or 16 KiB in each partition of SBUF."""


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
            sizes = [] if found is None else _sizes(found)
            if found is None or not sizes:
                continue
            name, variable = found.tile.name, found.loop.variable
            yield self.answer(
                store.line,
                _obstacle(kernel, found),
                f"Store the results of several iterations of {variable} at once",
                partial(at_once, kernel, found, _stored, _obstacle),
                *(Variant(f"{size * found.columns} columns", {"iterations": size}) for size in sizes),
                precondition=f"only this loop uses the tile {name}, and no other statement of the loop uses the tensor to which "
                f"{name} is stored",
                plan=f"Every iteration of {variable} stores {found.columns} columns of {name}. Keep the results of several "
                "iterations side by side in one tile, and store the tile by one transfer.",
                benefit=0.1,
                gain_percent=(0.0, 10.0),
            )


def _sizes(found: ColumnTransfer) -> list[int]:
    """Return the numbers of iterations that may share a store: divisors of the loop's number of iterations, from 2 on."""
    trips = found.loop.trips or 1
    return [size for size in range(2, trips + 1) if trips % size == 0 and size * found.columns in _COLUMNS]


def _stored(kernel: KernelModule, store: Statement) -> ColumnTransfer | None:
    """Return the store of a tile that a statement makes in each iteration; None for other statements."""
    found = column_transfer(kernel, store, store.reads.get("src"), store.target)
    if found is None or kernel.space_of(found.there.name) != "hbm" or store.second is not None:
        return None
    return found if found.loop.kind == "affine_range" else None


def _obstacle(kernel: KernelModule, found: ColumnTransfer) -> str:
    """Return the reason why the store can not wait until several iterations have ended; empty if it can."""
    name, tensor, loop = found.tile.name, found.there.name, found.loop
    problem = one_name(kernel, (name, tensor)) or understood(loop.items)
    if problem:
        return problem
    used = tile_uses(kernel, found)
    if isinstance(used, str):
        return used
    for statement, access in used:
        if access.dims is not None and not _is_whole(access, (found.rows, found.columns)):
            return f"line {statement.line} uses a part of {name}: use all of it"
    for statement in loop.statements():
        if statement is not found.transfer and any(access.name == tensor for access in accesses(statement)):
            return f"line {statement.line} uses {tensor} too, and would run before the joined store: use {tensor} in another loop"
    return ""


def _is_whole(access: Access, shape: tuple[int, int]) -> bool:
    """Return True if an access covers all of a tile by slices."""
    dims = access.dims or ()
    return len(dims) == len(shape) and all(dim.covers(extent) for dim, extent in zip(dims, shape, strict=True))


RULE = StoreOnce()
