"""Load a large tile in the parts in which the kernel uses the tile, so that work on the first part begins early.

Before, the products wait until all of ``w`` is loaded. After, the first product waits for an eighth of ``w``::

    nisa.dma_copy(dst=w_tile, src=w[0:128, 0:8, 0:512])      for part in nl.affine_range(8):
    for k in nl.affine_range(8):                                 nisa.dma_copy(dst=w_tile[0:128, part:part + 1, 0:512],
        nisa.nc_matmul(dst=sums, stationary=x_tile[:, k, :],                   src=w[0:128, part:part + 1, 0:512])
                       moving=w_tile[:, k, :])               for k in nl.affine_range(8):
                                                                 nisa.nc_matmul(...)

If the first user of the tile also needs tiles that are loaded later, the parts come after the loads of these tiles.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from acceld.editing import Edits, reindent
from acceld.model import Profile
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import STEP, changed, comments, read, written
from acceld.nki.source.effects import understood, undisturbed
from acceld.nki.source.nests import around, first_line
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix, rendered
from acceld.nki.source.syntax import Access, Item, Statement, accesses, elements, names_in
from acceld.proposers.rules.profiles import start_share
from acceld.proposers.rules.records import Place, Rule, Variant

LEAST_BYTES = 2**18
"""Least number of bytes of a load that is worth splitting: about 1.3 µs of simulated transfers on trn2."""
LEAST_PART = 2**16
"""Least number of bytes of a part."""
LEAST_ROW = 512
"""Least number of bytes of a part that lie together in HBM. Shorter pieces cost a DMA engine as much time as these."""
MOST_PARTS = 16
MOST_ITERATIONS = 4
"""Greatest number of iterations around a load. In longer loops the loads of one iteration overlap the work of another."""
_SETTINGS = {"dst", "src", "dge_mode"}
"""Arguments of a transfer that mean the same for each of its parts."""


@dataclass(frozen=True)
class _Load:
    """A load of a whole tile."""

    load: Statement
    tile: Access
    source: ast.expr
    shape: tuple[int, ...]
    before: Item
    """The item before which the parts are loaded: the one that follows the load, or a later one."""


class SplitLoads(Rule):
    """Load a large tile in parts along one of its axes."""

    name = "split_loads"
    reason = (
        "An instruction waits for the whole transfer that brings its operands. If a tile comes by several transfers, the work "
        "on its first part overlaps the transfers of the other parts."
    )
    source = "AWS NKI performance guide: overlapping data movement with compute"
    apis = frozenset({"nki"})
    only = "The compiler of the legacy API schedules loads itself, in pieces of its own choice."
    change_class = "dma"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every load of a large tile that later statements use in parts."""
        for statement in kernel.statements:
            found = _load(kernel, statement)
            counts = _counts(kernel, found) if found is not None else []
            if found is None or not counts:
                continue
            name = found.tile.name
            yield self.answer(
                statement.line,
                understood([statement]),
                f"Load {name} in parts",
                partial(_in_parts, kernel, found),
                *(Variant(f"{count} parts of axis {axis}", {"axis": axis, "parts": count}) for axis, count in counts),
                precondition=f"each part of {name} comes from the place from which the whole load takes it, and no statement "
                "between the two places uses it",
                plan=f"Line {statement.line} loads {name} as a whole, {_bytes(kernel, found) // 1024} KiB, and the first work on it "
                "waits for all of it. Load the tile in parts.",
                benefit=max(0.01, start_share(profile, {statement.line}, "dma")),
                gain_percent=(0.0, 30.0),
            )


def _load(kernel: KernelModule, statement: Statement) -> _Load | None:
    """Return the load of a whole tile in SBUF that a statement makes; None for any other statement."""
    source, tile = statement.args.get("src"), statement.target
    if statement.kind != "op" or statement.op != "dma_copy" or statement.second is not None or statement.augmented:
        return None
    if source is None or tile is None or not _SETTINGS.issuperset(statement.args) or kernel.mask(statement):
        return None
    if kernel.space_of(tile.name) != "sbuf" or _tensor(kernel, source) is None or tile.name not in kernel.buffers:
        return None
    if prod(loop.trips or MOST_ITERATIONS + 1 for loop in around(statement)) > MOST_ITERATIONS:
        return None
    shape = kernel.extents(tile)
    whole = tile.dims is None or all(dim.full for dim in tile.dims)
    if shape is None or not whole or kernel.buffers[tile.name].shape != shape or len(shape) < 2:
        return None
    return _Load(statement, tile, source, shape, _place(kernel, statement, tile.name))


def _place(kernel: KernelModule, load: Statement, name: str) -> Item:
    """Return the item before which the parts of the tile ``name`` are loaded: ``load`` itself, or the item behind the loads
    of other tiles that the first user of the tile needs too.
    """
    items = kernel.beside(load)
    at = items.index(load)
    uses = [n for n, item in enumerate(items) if item is not load and name in read([item]) | written([item])]
    user = next((n for n in uses if n > at), at)
    declared = kernel.buffers[name].declaration
    if min(uses, default=at) < at or declared.parent is not load.parent:
        return load  # perhaps the tile has a second name
    if kernel.ambiguous & {one.name for one in load.mentions}:
        return load
    named = {one.id for one in names_in(load.node)}
    for last in range(user - 1, at, -1):
        passed = items[at + 1 : last + 1]
        awaited = written(items[last : last + 1]) & read(items[user : user + 1])
        bound = {one.id for item in passed for one in names_in(item.node) if isinstance(one.ctx, ast.Store)}
        if awaited and not undisturbed([load], passed) and not understood(passed, names=True) and not bound & named:
            return items[last + 1]
    return load


def _bytes(kernel: KernelModule, found: _Load) -> int:
    return prod(found.shape) * DTYPE_BYTES.get(kernel.dtype_of(found.tile.name), 4)


def _counts(kernel: KernelModule, found: _Load) -> list[tuple[int, int]]:
    """Return (axis, number of parts) for each way to split a load that is worth trying; [] if no way is."""
    size = DTYPE_BYTES.get(kernel.dtype_of(found.tile.name), 4)
    whole = prod(found.shape) * size
    if whole < LEAST_BYTES or _ranges(kernel, found) is None:
        return []
    counts = []
    last = len(found.shape) - 1
    for axis in range(1, last + 1):
        extent, width = found.shape[axis], _width(kernel, found, axis)
        row = size * (extent if axis == last else found.shape[last])
        counts += [
            (axis, parts)
            for parts in (MOST_PARTS, 8, 4, 2)
            if width and extent % (parts * width) == 0
            if whole >= parts * LEAST_PART and row >= LEAST_ROW * (parts if axis == last else 1)
        ]
    return counts[:4]


def _width(kernel: KernelModule, found: _Load, axis: int) -> int:
    """Return the greatest number of elements along an axis of the tile that a single statement uses.

    Return 0 if every statement uses all elements, or if a statement uses an unknown number.
    """
    name, widths = found.tile.name, set[int]()
    for statement in kernel.statements:
        if statement is found.load or name not in {access.name for access in accesses(statement)}:
            continue
        if statement.kind == "other":
            return 1 if axis == len(found.shape) - 1 else 0  # perhaps parts of the columns
        for access in (one for one in accesses(statement) if one.name == name):
            dims = access.dims
            if dims is None or len(dims) != len(found.shape):
                return 0
            width = 1 if dims[axis].is_point else dims[axis].extent
            widths.add(found.shape[axis] if width is None or dims[axis].full else width)
    return max(widths, default=0) if max(widths, default=0) < found.shape[axis] else 0


def _tensor(kernel: KernelModule, source: ast.expr) -> tuple[str, tuple[int | None, ...] | None] | None:
    """Return the name of the tensor in HBM from which a load takes its values, and the shape of what is loaded; None if the
    source is anything else. The source may have another shape than the tensor: ``x.reshape((128, 8, 512))``.
    """
    access = kernel.access(source)
    match source:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="reshape"), args=[shape], keywords=[]):
            found = name, kernel.known_shape(shape)
        case ast.Name() | ast.Subscript() if access is not None:
            found = access.name, kernel.extents(access)
        case _:
            return None
    return found if kernel.space_of(found[0]) == "hbm" else None


def _ranges(kernel: KernelModule, found: _Load) -> list[tuple[ast.expr | None, Affine]] | None:
    """Return, for each axis of the tile, the index of the source and its first element. The index is None where the
    source has no index.

    Return None if the source has other axes than the tile, or an index that is not understood.
    """
    tensor, access = _tensor(kernel, found.source), kernel.access(found.source)
    if tensor is None or tensor[1] != found.shape:
        return None
    if access is None or access.dims is None:
        return [(None, Affine()) for _ in found.shape]
    indices = [
        (node, Affine() if dim.full else dim.form)
        for node, dim in zip(elements(access.node), access.dims, strict=True)
        if not dim.is_point
    ]
    if len(indices) != len(found.shape):
        return None
    known = [(node, form.start) for node, form in indices if form is not None and isinstance(node, ast.Slice)]
    return [*known] if len(known) == len(indices) else None


def _in_parts(kernel: KernelModule, found: _Load, variant: Variant) -> str:
    """Return the source with a loop over the parts in place of the load."""
    axis, count = int(variant.parameters["axis"]), int(variant.parameters["parts"])
    load, shape = found.load, found.shape
    declared = kernel.buffers[found.tile.name].extents
    sizes = [kernel.size(node, extent) for node, extent in zip(declared, shape, strict=True)]
    ranges = _ranges(kernel, found)
    assert ranges is not None, "as checked when the place was found"
    part = kernel.fresh("part")
    width = str(shape[axis] // count) if sizes[axis].isdecimal() else f"({sizes[axis]} // {count})"

    def index(start: Affine) -> str:
        """Return the slice that selects a part along ``axis``. ``start`` is the position at which the first part
        begins.
        """
        first = f"{part} * {width}" if start == Affine() else f"{rendered(start, {})} + {part} * {width}"
        return f"{first}:{first} + {width}"

    whole = [f"0:{size}" for size in sizes]
    own = ", ".join([*whole[:axis], index(Affine()), *whole[axis + 1 :]])
    place, start = ranges[axis]
    texts: dict[ast.AST, str] = {found.tile.node: f"{found.tile.name}[{own}]"}
    texts |= {found.source: f"{kernel.text(found.source)}[{own}]"} if place is None else {place: index(start)}
    indent = load.indent
    text = reindent(changed(kernel, load.node, texts), indent, indent + STEP)
    loop = f"{indent}for {part} in {prefix(kernel, 'language')}.affine_range({count}):\n{indent}{STEP}{text}\n"
    edits = Edits(kernel.source)
    span = first_line(kernel, load), kernel.after_line(load.end)
    if found.before is load:
        edits.replace(*span, comments(kernel, load, indent) + loop)
    else:
        edits.replace(*span, "")
        edits.insert(first_line(kernel, found.before), comments(kernel, load, indent) + loop)
    return edits.apply()


RULE = SplitLoads()
