"""Transpose the first tile on the tensor engine, while the engine has nothing else to do.

Before, the first products wait until a tile is stored to HBM and loaded transposed. After, the tensor engine transposes
the tile::

    nisa.dma_copy(dst=kept[0, 0:128, 0:1024], src=rows)
    for k in nl.affine_range(8):                              for k in nl.affine_range(8):
        turned = nl.ndarray(..., buffer=nl.sbuf)                  turned = nl.ndarray(..., buffer=nl.psum)
        nisa.dma_transpose(dst=turned, src=kept[0, :, ...])       nisa.nc_transpose(dst=turned, data=rows[:, ...])
        nisa.tensor_copy(dst=tiles[:, k, :], src=turned)          nisa.tensor_copy(dst=tiles[:, k, :], src=turned)

:mod:`acceld.proposers.rules.nki.turn_by_transfer` does the opposite for work in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.matching import one_name, unchanged
from acceld.nki.source.nests import BANK_BYTES, around
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix
from acceld.nki.source.syntax import Access, Statement, elements
from acceld.proposers.rules.profiles import start_share
from acceld.proposers.rules.records import Place, Rule, Variant

_ROWS = 128
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_FROM_PSUM = ("tensor_copy", "tensor_scalar", "tensor_tensor", "activation", "scalar_tensor_tensor")
"""Instructions that may read the transposed tile in PSUM, unless they run on GpSimd."""


@dataclass(frozen=True)
class _Trip:
    """A tile's way through HBM: a store, and loads of its transposed blocks into one tile."""

    turns: tuple[Statement, ...]
    store: Statement
    kept: str
    """Name of the tensor in HBM. The last two indices of a load select the block, the indices before them the tile."""
    tile: Access
    """The stored tile."""


class TurnOnEngine(Rule):
    """Transpose a tile on the tensor engine, if the kernel stores the tile to HBM, before all loops, only to load it
    transposed.
    """

    name = "turn_on_engine"
    reason = (
        "A tile's way through HBM takes 4.5 µs longer than the two transfers alone. Before its first product the "
        "tensor engine is idle, and can transpose the tile."
    )
    source = "nki.isa.nc_transpose: cost on the tensor engine; profiles of round trips through HBM on trn2"
    apis = frozenset({"nki"})
    only = "The compiler of the legacy API transposes on the tensor engine by itself."
    change_class = "dma"
    everywhere = True

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every transposing load of a tile that is stored before all loops, with the reason if the tensor engine
        can not transpose the tile.
        """
        for turn in kernel.statements:
            trip = _trip(kernel, turn)
            if trip is None:
                continue
            tile, made = trip.tile.name, turn.made.name
            yield self.answer(
                turn.line,
                _obstacle(kernel, trip),
                f"Transpose {tile} on the tensor engine",
                partial(_on_engine, kernel, trip),
                Variant("tensor engine"),
                precondition=f"line {trip.store.line} stores what line {turn.line} loads, nothing changes {tile} before that, "
                f"and every instruction that reads {made} can read it in PSUM",
                plan=f"Line {trip.store.line} stores {tile} only to let line {turn.line} load it transposed. Transpose the "
                f"blocks of {tile} on the tensor engine, which is idle before its first product.",
                benefit=max(0.02, start_share(profile, {one.line for one in (trip.store, *trip.turns)}, "dma")),
                gain_percent=(-5.0, 5.0),
            )


def _trip(kernel: KernelModule, turn: Statement) -> _Trip | None:
    """Return the way through HBM of the tile that the statement ``turn`` loads transposed.

    Return None if the statement is no transposing load, or if no statement outside of loops stores the tile at the
    place from which it is loaded. If several loads fill one tile, the result is None for all loads but the first.
    """
    kept = turn.reads.get("src")
    if turn.kind != "op" or turn.op != "dma_transpose" or turn.target is None or kept is None or not kept.dims:
        return None
    if kernel.space_of(kept.name) != "hbm" or kept.name not in kernel.buffers:
        return None
    for store in kernel.writers(kept.name):
        tile = store.reads.get("src")
        if store.op == "dma_copy" and store.parent is None and tile is not None and tile.dims is None:
            turns = [one for one in kernel.writers(turn.made.name) if _loads(kernel, one, store)]
            if turn in turns[:1]:
                return _Trip(tuple(turns), store, kept.name, tile)
    return None


def _loads(kernel: KernelModule, turn: Statement, store: Statement) -> bool:
    """Return True if the statement ``turn`` loads, transposed, what the earlier statement ``store`` stores."""
    kept, target = turn.reads.get("src"), store.made
    if turn.op != "dma_transpose" or kept is None or kept.name != target.name or not kept.dims or not target.dims:
        return False
    if len(kept.dims) != len(target.dims) or store.start > turn.start:
        return False
    same = all(a.is_point and a.form == b.form for a, b in zip(kept.dims[:-2], target.dims[:-2], strict=True))
    shape = kernel.buffers[target.name].shape[-2:]
    return same and all(dim.covers(extent) for dim, extent in zip(target.dims[-2:], shape, strict=True))


def _obstacle(kernel: KernelModule, trip: _Trip) -> str:
    """Return the reason why the tensor engine can not transpose the tile; empty if it can."""
    tile, made, kept = trip.tile.name, trip.turns[0].made.name, trip.kept
    where = f"line {trip.turns[0].line}"
    problem = one_name(kernel, (tile, made, kept)) or unchanged(kernel, [tile, kept], trip.store, trip.turns[-1])
    if problem:
        return problem
    for loop in around(trip.turns[0]):
        for name in (tile, kept):
            if any(loop in around(one) for one in kernel.writers(name)):
                return f"{where}: loop {loop.variable} also writes {name}: write it in a loop of its own"
    buffer, dtype = kernel.buffers.get(made), kernel.declared_dtype(tile).rpartition(".")[2]
    if buffer is None or kernel.writers(made) != list(trip.turns):
        return f"{where}: {made} is also written in other lines: give the transpose a tile of its own"
    if dtype not in _BYTES or any(kernel.declared_dtype(one).rpartition(".")[2] != dtype for one in (made, kept)):
        return f"{where}: {tile}, {kept} and {made} have different dtypes: give them one floating-point dtype"
    columns = [extent for extent in buffer.shape[buffer.partition_axis + 1 :] if extent is not None]
    if len(columns) < len(buffer.shape) - 1 or prod(columns) * _BYTES[dtype] > BANK_BYTES:
        return f"{where}: {made} exceeds a bank of PSUM: transpose fewer or smaller blocks into one tile"
    rows = kernel.extents(trip.tile)
    for turn in trip.turns:
        block = kernel.extents(turn.reads["src"])
        if rows is None or block is None or len(rows) != 2 or max(block) > _ROWS or block[0] != rows[0]:
            return f"line {turn.line} does not transpose blocks of at most 128 columns of whole rows: transpose such blocks"
        if turn.args.keys() - {"dst", "src"} or turn.parent is not trip.turns[0].parent:
            return f"line {turn.line} has options, or is in another loop than line {trip.turns[0].line}: write it without options, in that loop"
    for one in kernel.readers(made):
        if one.op not in _FROM_PSUM or "gpsimd" in kernel.text_of(one, "engine"):
            return f"line {one.line} can not read {made} in PSUM: copy it to SBUF first"
    return ""


def _is_needed(kernel: KernelModule, trip: _Trip) -> bool:
    """Return True if a statement other than the transposing loads may read what the store writes."""
    own = [
        dim.form.constant for dim in (trip.store.made.dims or ())[:-2] if dim.form is not None and not dim.form.terms
    ]
    for one in kernel.readers(trip.kept):
        access = next((read for read in one.mentions if read.name == trip.kept), None)
        if one in trip.turns or access is None:
            continue
        trips = {loop.variable: loop.trips for loop in around(one)}
        reaches = [dim.reach(trips, "") if dim.form is not None else None for dim in (access.dims or ())[: len(own)]]
        apart = (
            found is not None and not found[0] <= place <= found[1] for found, place in zip(reaches, own, strict=False)
        )
        if not any(apart):
            return True
    return False


def _on_engine(kernel: KernelModule, trip: _Trip, _: Variant) -> str:
    """Return the source in which the tensor engine transposes the blocks of the tile."""
    edits, isa = Edits(kernel.source), prefix(kernel, "isa")
    for turn in trip.turns:
        block = ", ".join(kernel.text(index) for index in elements(turn.reads["src"].node)[-2:])
        text = f"{isa}.nc_transpose(dst={kernel.text(turn.made.node)}, data={trip.tile.name}[{block}])"
        edits.replace(turn.start, turn.end, text)
    declaration = kernel.buffers[trip.turns[0].made.name].declaration
    edits.replace(*kernel.span(declaration.args["buffer"]), f"{prefix(kernel, 'language')}.psum")
    if not _is_needed(kernel, trip):
        edits.delete_lines(trip.store.start, trip.store.end)
    return edits.apply()


RULE = TurnOnEngine()
