"""Stack the tiles of several iterations in one tile of all 128 partitions.

Before, and after::

    for t in nl.affine_range(8):                   for t in nl.affine_range(4):
        a = nl.ndarray((64, 512), ...)                 a = nl.ndarray((128, 512), ...)
        nisa.dma_copy(dst=a, src=x[t])                 nisa.dma_copy(dst=a[0:64, 0:512], src=x[(2 * t)])
                                                       nisa.dma_copy(dst=a[64:128, 0:512], src=x[(2 * t + 1)])
        nisa.reciprocal(dst=b, data=a)                 nisa.reciprocal(dst=b, data=a)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import renamed
from acceld.nki.source.nests import all_accesses
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Access, Loop, Statement, accesses, elements, names_in
from acceld.proposers.rules.nki.stacked_rows import Stacking, fewest_rows
from acceld.proposers.rules.records import Finding, Rule, Variant

_PARTITIONS = 128
_BEGINNINGS = (32, 64)
"""Heights of tiles that can be stacked. An instruction starts at a partition that is a multiple of 32."""
_BY_PARTITION = frozenset(
    "activation activation_reduce memset reciprocal scalar_tensor_tensor tensor_copy tensor_reduce tensor_scalar "
    "tensor_tensor tensor_tensor_scan".split()
)
"""Operations that treat each partition alone."""


@dataclass(frozen=True)
class _Low:
    """A parallel loop whose tiles all have few partitions."""

    loop: Loop
    rows: int
    tiles: frozenset[str]
    transfers: tuple[Statement, ...]


class FillPartitions(Rule):
    """Stack the tiles of two or four iterations along the partitions."""

    name = "fill_partitions"
    reason = (
        "An instruction takes as long on 64 partitions as on 128, and each DMA engine serves eight partitions of SBUF: "
        "tiles of 64 leave half the lanes of every engine and half the DMA engines idle."
    )
    source = "AWS NKI performance guide: partition utilization; Trainium DMA overview"
    apis = frozenset({"nki", "nki_legacy"})
    change_class = "tile_width"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Finding]:
        """Yield every loop whose tiles all have 32 partitions or all have 64 partitions.

        In the legacy API also every loop whose instructions use such tiles, or halves of larger ones.
        """
        for loop in kernel.loops:
            if kernel.api == "nki_legacy":
                yield from self._halves(kernel, loop)
                continue
            low = _low(kernel, loop)
            if isinstance(low, str):
                yield self.refused(loop.line, low, f"Fill {_PARTITIONS} partitions in loop {loop.variable}")
            elif low is not None:
                factors = [_PARTITIONS // low.rows >> step for step in range(2)]
                fitting = [factor for factor in factors if factor > 1 and (loop.trips or 1) % factor == 0]
                if not fitting:
                    continue
                yield self.found(
                    loop.line,
                    partial(_filled, kernel, low),
                    *(Variant(f"{factor} iterations", {"factor": factor}) for factor in fitting),
                    precondition=f"iterations of {loop.variable} are parallel, every operation works on each partition "
                    "alone, and its tiles are used nowhere else",
                    plan=f"The tiles of loop {loop.variable} have {low.rows} of {_PARTITIONS} partitions. Let "
                    f"{fitting[0]} iterations lie one below the other in one tile, so that each instruction does their "
                    "work at once.",
                    benefit=1.0 - low.rows / _PARTITIONS,
                    gain_percent=(10.0, 50.0),
                    key=loop.variable,
                )

    def _halves(self, kernel: KernelModule, loop: Loop) -> Iterator[Finding]:
        rows = fewest_rows(kernel, loop)
        if rows is None:
            return
        try:
            Stacking(kernel, loop, rows).source()
        except RuleRefused as refusal:
            yield self.refused(loop.line, refusal.message, f"Fill {_PARTITIONS} partitions in loop {loop.variable}")
            return
        factor = _PARTITIONS // rows
        yield self.found(
            loop.line,
            partial(_stacked, kernel, loop, rows),
            Variant(f"{factor} iterations", {"factor": factor}),
            precondition=f"iterations of {loop.variable} share nothing, and every operation works on each partition alone",
            plan=f"Instructions of loop {loop.variable} use {rows} of {_PARTITIONS} partitions. Let {factor} iterations lie "
            "one below the other, with a tile for each part, so that each instruction does their work at once.",
            benefit=1.0 - rows / _PARTITIONS,
            gain_percent=(10.0, 50.0),
            key=loop.variable,
        )


def _stacked(kernel: KernelModule, loop: Loop, rows: int, _: Variant) -> str:
    return Stacking(kernel, loop, rows).source()


def _low(kernel: KernelModule, loop: Loop) -> _Low | str | None:
    """Return the loop, or the reason why its tiles can not be stacked, or None if its tiles have enough partitions."""
    statements = [item for item in loop.items if isinstance(item, Statement)]
    declared = [one for one in statements if one.kind == "declaration" and one.target is not None]
    tiles = frozenset(one.target.name for one in declared if one.target is not None)
    heights = {kernel.buffers[name].shape[0] for name in tiles if kernel.buffers[name].shape}
    if len(heights) != 1 or (rows := heights.pop()) not in _BEGINNINGS:
        return None
    if loop.kind != "affine_range" or loop.trips is None or len(statements) < len(loop.items):
        return f"line {loop.line}: {loop.variable} is not a parallel loop, or has another loop inside"
    for name in sorted(tiles):
        problem = _fixed(kernel, loop, name)
        if problem:
            return f"line {kernel.buffers[name].declaration.line}: {problem}"
    for statement in statements:
        problem = _unlike(kernel, loop, statement, tiles, rows)
        if problem:
            return f"line {statement.line}: {problem}"
    moved = tuple(one for one in statements if one.op == "dma_copy")
    written = {one.target.name for one in moved if one.target is not None} - tiles
    if any(one.reads["src"].name in written for one in moved):
        return f"line {loop.line}: it loads from what it stores to"
    return _Low(loop, rows, tiles, moved)


def _fixed(kernel: KernelModule, loop: Loop, name: str) -> str:
    """Return the reason why a tile must keep its shape, or an empty text."""
    buffer = kernel.buffers[name]
    found = all_accesses(kernel, name)
    if buffer.space != "sbuf" or None in buffer.shape or len(buffer.shape) < 2 or name in kernel.ambiguous:
        return f"{name} is not a tile in SBUF of a known shape"
    if not isinstance(buffer.declaration.args.get("shape"), ast.Tuple):
        return f"the shape of {name} is not written out"
    if found is None or any(statement.parent is not loop for statement, _ in found):
        return f"{name} is also used elsewhere, or in another way"
    return ""


def _unlike(kernel: KernelModule, loop: Loop, statement: Statement, tiles: frozenset[str], rows: int) -> str:
    """Return the reason why a statement can not process several iterations at once, or an empty text."""
    uses = any(name.id == loop.variable for name in names_in(statement.node))
    if statement.kind in ("declaration", "alias", "marker"):
        return "it depends on the iteration" if uses else ""
    if statement.kind != "op" or statement.target is None or len(statement.mentions) != len(statement.reads):
        return "this statement is not understood"
    used = accesses(statement)
    if statement.op == "dma_copy":
        inside = [access for access in used if access.name in tiles]
        outside = [access for access in used if access.name not in tiles]
        if len(inside) != 1 or len(outside) != 1 or kernel.space_of(outside[0].name) != "hbm":
            return "this moves nothing between HBM and a tile of the loop"
        if outside[0].variables is None or outside[0].name in kernel.ambiguous:
            return f"an index of {outside[0].name} is not understood"
    elif uses or statement.op not in _BY_PARTITION or statement.augmented:
        return f"{statement.op} depends on the iteration or works across partitions"
    elif any(access.name not in tiles for access in used):
        return "it uses a tile that is the same in every iteration"
    if not all(_all_rows(access, rows) for access in used if access.name in tiles):
        return f"it does not use all {rows} partitions of a tile"
    return ""


def _all_rows(access: Access, rows: int) -> bool:
    if access.dims is None:
        return True
    first = access.dims[0]
    return first.full or (first.form == Affine() and first.extent == rows)


def _filled(kernel: KernelModule, low: _Low, variant: Variant) -> str:
    """Return the kernel with stacked tiles and one transfer for each original iteration."""
    factor, loop = int(variant.parameters["factor"]), low.loop
    edits = Edits(kernel.source)
    assert isinstance(loop.node.iter, ast.Call)
    edits.replace(*kernel.span(loop.node.iter.args[0]), str((loop.trips or 1) // factor))
    for name in low.tiles:
        shape = kernel.buffers[name].declaration.args["shape"]
        assert isinstance(shape, ast.Tuple)
        edits.replace(*kernel.span(shape.elts[0]), str(low.rows * factor))
    for statement in loop.statements():
        if statement in low.transfers:
            lines = [_transfer(kernel, low, statement, factor, part) for part in range(factor)]
            edits.replace(statement.start, statement.end, f"\n{statement.indent}".join(lines))
        elif statement.kind == "op":
            for access in accesses(statement):
                if access.dims is not None and not access.dims[0].full:
                    edits.replace(*_first(kernel, access), f"0:{low.rows * factor}")
    return edits.apply()


def _transfer(kernel: KernelModule, low: _Low, statement: Statement, factor: int, part: int) -> str:
    """Return the transfer of one original iteration."""
    (tile,) = (access for access in accesses(statement) if access.name in low.tiles)
    rows = f"{low.rows * part}:{low.rows * (part + 1)}"
    iteration = f"({factor} * {low.loop.variable}{f' + {part}' if part else ''})"
    if tile.dims is None:
        places = ", ".join((rows, *(f"0:{extent}" for extent in kernel.buffers[tile.name].shape[1:])))
        return renamed(kernel, statement, {low.loop.variable: iteration, tile.name: f"{tile.name}[{places}]"})
    start, end = _first(kernel, tile)
    edits = Edits(kernel.source)
    edits.replace(start, end, rows)
    for name in names_in(statement.node):
        if name.id == low.loop.variable:
            edits.replace(*kernel.span(name), iteration)
    return edits.apply_around(statement.start, statement.end)[1]


def _first(kernel: KernelModule, access: Access) -> tuple[int, int]:
    return kernel.span(elements(access.node)[0])


RULE = FillPartitions()
