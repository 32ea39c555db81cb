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
from functools import partial

from acceld.model import Profile
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.source.building import named_inside
from acceld.nki.source.effects import understood
from acceld.nki.source.matching import one_name
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Loop, Statement, elements, names_in
from acceld.proposers.rules.nki.column_transfers import ColumnTransfer, at_once, column_transfer, columns_of, tile_uses
from acceld.proposers.rules.records import Place, Rule, Variant

_FULL_ROW_BYTES = 2048
"""Bytes of a row from which on a transfer uses the DMA engines fully."""
_MOST_COLUMNS = 4096
"""Columns that one load may have. Their tile takes 16 KiB of float32 in each partition of SBUF."""
_SETTINGS = {"src", "engine", "dge_mode", "name"}
"""Arguments of a transfer, besides its target, that mean the same for one large transfer."""


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
            row_bytes = 0 if found is None else found.columns * DTYPE_BYTES.get(kernel.dtype_of(found.there.name), 0)
            if found is None or not 0 < row_bytes < _FULL_ROW_BYTES:
                continue
            sizes, name, variable = _sizes(found, row_bytes), found.tile.name, found.loop.variable
            if not sizes:
                continue
            yield self.answer(
                load.line,
                _obstacle(kernel, found),
                f"Load the columns of several iterations of {variable} at once",
                partial(at_once, kernel, found, _loaded, _obstacle),
                *(Variant(f"{size * found.columns} columns", {"iterations": size}) for size in sizes),
                precondition=f"only this loop uses the tile {name}, and the kernel does not write {found.there.name}",
                plan=f"Every iteration of {variable} loads {found.columns} columns of {found.there.name}. Load the columns "
                "of several iterations by one transfer, and let each iteration use its part of the tile.",
                benefit=0.3 * (1 - row_bytes / _FULL_ROW_BYTES),
                gain_percent=(0.0, 30.0),
            )


def _sizes(found: ColumnTransfer, row_bytes: int) -> list[int]:
    """Return the numbers of iterations that may share a load: the greatest number, and the least number for which the
    loaded rows are long enough. ``row_bytes`` is the length of the rows that one iteration loads.
    """
    trips = found.loop.trips or 1
    fitting = [size for size in range(2, trips + 1) if trips % size == 0 and size * found.columns <= _MOST_COLUMNS]
    enough = [size for size in fitting if size * row_bytes >= _FULL_ROW_BYTES]
    return list(dict.fromkeys([*enough[:1], *fitting[-1:]]))


def _loaded(kernel: KernelModule, load: Statement) -> ColumnTransfer | None:
    """Return the load of a whole tile that a statement makes in each iteration; None for other statements."""
    if load.target is None or load.target.dims is not None or load.args.keys() - _SETTINGS:
        return None
    return column_transfer(kernel, load, load.target, load.reads.get("src"))


def _obstacle(kernel: KernelModule, found: ColumnTransfer) -> str:
    """Return the reason why the load can not be made before the loop; empty if it can."""
    name, tensor, loop, load = found.tile.name, found.there.name, found.loop, found.transfer
    problem = one_name(kernel, (name, tensor)) or understood(loop.items, names=True)
    if problem:
        return problem
    declaration = kernel.buffers[name].declaration
    for statement, moving in ((declaration, 0), (load, _mentions(elements(found.there.node)[-1], loop))):
        if named_inside(statement.node, loop) or _mentions(statement.node, loop) != moving:
            return f"line {statement.line} depends on loop {loop.variable} in another way than by the columns that it loads: leave that out"
    writers = kernel.writers(tensor)
    if writers:
        return f"line {writers[0].line} writes {tensor}: write the result to another tensor"
    used = tile_uses(kernel, found)
    if isinstance(used, str):
        return used
    for statement, access in used:
        if statement is not load and statement.start < load.start:
            return f"line {statement.line} uses {name} before line {load.line} loads it: use another tile there"
        if len(access.dims or (0, 0)) != 2 or columns_of(access) is None:
            return f"line {statement.line} uses columns of {name} that are not understood: write a slice"
    return ""


def _mentions(node: ast.AST, loop: Loop) -> int:
    """Return how many times ``node`` uses the variable of ``loop``."""
    return sum(one.id == loop.variable for one in names_in(node))


RULE = LoadOnce()
