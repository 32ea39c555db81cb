"""Write a region as a loop nest: rows lie on partitions, columns are cut into chunks, small operands stay on the chip.

Terms of this module, besides the terms of :mod:`acceld.lowering.choices`:

- A *row tile* has up to 128 rows, one on each partition. Several row tiles may share each load of a right operand.
- A *chunk* is a range of columns that is computed at one time. The nodes of one level and width are a *group*. They
  share their chunks.
- *HBM access n* is the region's read or write number n of HBM. ``reach[n]`` describes this access.
- *Turned* means transposed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from acceld.lowering import network
from acceld.lowering.axes import (
    MOST_AXES,
    PARTITIONS,
    Axes,
    blocks_of,
    divided,
    in_slices,
    largest_divisor,
    lying_order,
    lying_together,
    merged,
    on_tile,
    refined,
    split,
)
from acceld.lowering.building import KernelBuilder, full
from acceld.lowering.choices import (
    BANK,
    BYTES,
    CHUNK_BYTES,
    LEAST_TURNED,
    ROW,
    SBUF,
    SPARSEST,
    TURNED_AS,
    WIDEST,
    Choices,
    HbmPlacement,
    Rolled,
    searches,
)
from acceld.lowering.graph import INDEX, Node, NotLowered, View, dense
from acceld.lowering.instructions import BITWISE, EIGHT, INVERSE, SCANS, Operand, Selected
from acceld.lowering.regions import START, Access, several_axes
from acceld.lowering.statements import (
    ZERO,
    Affine,
    Block,
    Condition,
    Gathered,
    HbmTensor,
    Note,
    Piece,
    Positions,
    Span,
    Strided,
    Tile,
    Value,
    variable,
)

Pattern = tuple[tuple[int, int], ...]
RUN = 2048
"""Most bytes of a row of a right operand that one transfer moves before they are transposed."""
TURNED_TOGETHER = 4
"""Number of transposes that are written to one PSUM bank, so that a single copy moves their results to SBUF."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk: a range of columns that a group of nodes computes at one time.

    ``position`` is the chunk's first column, ``size`` is its number of columns, and ``number`` counts the group's
    chunks from 0. ``offsets`` has one entry for each HBM access: the distance from the start of a row to the chunk's
    elements, in elements. ``inner`` has the (extent, stride) axes of these elements, for each HBM access.
    """

    position: Affine
    size: int
    number: Affine
    offsets: tuple[Affine, ...]
    inner: tuple[Axes, ...]


class Nest(Choices):
    """The writer of one loop nest, which computes a region, or several equal regions inside of loops."""

    def __init__(
        self,
        build: KernelBuilder,
        memory: HbmPlacement,
        rolled: Rolled,
        accesses: Sequence[Access],
        lines: Sequence[str],
        *,
        sliced: bool,
        sums_beside: bool,
        most_columns: int = WIDEST,
        strip: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(memory, rolled, accesses, sliced=sliced, sums_beside=sums_beside, strip=strip)
        self.build, self.lines, self.most_columns = build, lines, most_columns

        self.values: list[Affine] = [ZERO] * len(self.extents)
        self.row: str | None = None
        self.first, self.part, self.block = ZERO, 1, 1
        self.rights: dict[int, Tile] = {}
        self.broadcast: dict[int, Tile] = {}
        self.rows_loaded: dict[object, Tile] = {}
        """Tiles with whole rows of the present row tile, by the key of the HBM access that would read the rows."""
        self.totals: dict[int, Tile] = {}
        """Tiles with the sums over the rows on partitions, by the id of the node that sums."""
        self.ones: dict[str, Tile] = {}
        """Tiles of ones, by dtype. A matrix product with ones sums over partitions."""
        self.parts_stored: dict[int, int] = {}
        """Number of stores that have computed their part of a shared range of HBM, by the range's first store."""

    def write(self) -> None:
        """Append the statements of the loop nest to the kernel."""
        for line in self._notes():
            self.build.put(Note(line))
        self._around(0)

    def unmoved(self) -> list[int]:
        """Return the HBM accesses that are loaded once for a whole loop over steps: their elements stay on the chip,
        and are the same in all steps.
        """
        kept = [n for n in (*sorted(self.resident), *self.vectors) if self._home(n) == 0 and not self._inside(n)]
        return [n for n in kept if not self.rolled.moves[n]]

    def bytes_unmoved(self) -> int:
        """Return the bytes of each partition that the operands of :meth:`unmoved` take."""
        return sum(
            self.reach[n].width * BYTES[self.reach[n].dtype] * (self._depth(n)[1] if n in self.resident else 1)
            for n in self.unmoved()
        )

    def load_unmoved(self) -> None:
        """Write the loads of the operands that :meth:`unmoved` returns."""
        for n in self.unmoved():
            if n in self.resident:
                self.rights[n] = self._load_right(n, ZERO, self.reach[n].width, None)
            else:
                self.broadcast[n] = self._load_vector(n)

    def write_step(self, step: str | None) -> None:
        """Append the statements of the loop nest for one trip of a loop over steps. ``step`` is the loop's variable."""
        for reach, move in zip(self.reach, self.rolled.moves, strict=True):
            reach.start += variable(step) * move
        self.write()

    def _notes(self) -> list[str]:
        """Return the source lines of the reference that the region computes, for comments in the kernel."""
        numbers = sorted({node.line for node in self.nodes if node.line})
        texts = [self.lines[n - 1].strip() for n in numbers if 0 < n <= len(self.lines)]
        return list(dict.fromkeys(text for text in texts if text))[:12]

    def _around(self, level: int) -> None:
        """Write the loops around the row tiles, from loop number ``level`` inward, and everything inside of them.

        Each operand is loaded in the outermost loop where its elements are known.
        """
        for n in sorted(self.resident):
            if self._home(n) == level and not self._inside(n) and n not in self.rights:
                self.rights[n] = self._known(n, self.rights) or self._load_right(n, ZERO, self.reach[n].width, None)
        for n in self.vectors:
            if self._home(n) == level and not self._inside(n) and n not in self.broadcast:
                self.broadcast[n] = self._known(n, self.broadcast) or self._load_vector(n)
        if level == len(self.outer_axes):
            self._row_loops()
            return
        axis = self.outer_axes[level]
        together = self.together if axis == self.shared_axis else 1
        with self.build.loop("group" if together == 1 else "block", self.extents[axis] // together) as name:
            self.values[axis] = variable(name) * together
            self._around(level + 1)
        self.values[axis] = ZERO

    def _known(self, n: int, loaded: Mapping[int, Tile]) -> Tile | None:
        """Return the tile in ``loaded`` that already has the elements of HBM access ``n`` in the same order.

        Return None if no tile has these elements. ``loaded`` has tiles by the number of the HBM access for which they
        were loaded.
        """
        one = self.reach[n]
        for m, tile in loaded.items():
            other = self.reach[m]
            same = (one.start, one.strides, one.columns, one.depth) == (
                other.start,
                other.strides,
                other.columns,
                other.depth,
            )
            if same and one.access.view.node is other.access.view.node and not self._inside(m):
                return tile
        return None

    def _inside(self, n: int) -> bool:
        """Tell whether the elements of HBM access ``n`` depend on a loop inside of a row tile."""
        return any(self.reach[n].strides[a] for a in self.inner_axes)

    def _home(self, n: int) -> int:
        """Return the number of loops around the load of HBM access ``n``.

        The load stands inside of the innermost outer loop on which its elements depend. With 0, it stands before all
        loops.
        """
        return max((place + 1 for place, axis in enumerate(self.outer_axes) if self.reach[n].strides[axis]), default=0)

    def _row_loops(self) -> None:
        """Write the loop over row tiles, and a smaller row tile at the end if 128 does not divide the rows."""
        extent = self.extents[self.partition]
        tiles = extent // self.rows
        within = self.together if self.shared_axis == self.partition else 1
        self.totals = self._totals() if self.partition in self.folds.values() else {}
        with self.build.loop("block" if within > 1 else "row", tiles // within, ordered=bool(self.totals)) as name:
            self.first = variable(name) * (self.rows * within)
            self._tile(self.rows, self.together)
        if extent % self.rows:
            self.first = Affine(tiles * self.rows)
            self._tile(extent % self.rows, 1)
        self.first, self.part = ZERO, 1
        self._store_folds(self.totals)

    def _totals(self) -> dict[int, Tile]:
        """Declare a tile of zeros for each sum over the rows on partitions, and return the tiles by the node's id.

        Also declare the tiles of ones: a matrix product of the rows with ones sums over partitions.
        """
        found = {}
        for node in self.nodes:
            if id(node) not in self.folds:
                continue
            found[id(node)] = self.build.tile("total", (1, self.width[id(node)]), "float32")
            self.build.call("memset", full(found[id(node)]), value=0.0)
            dtype = node.views[0].dtype
            if dtype not in self.ones:
                self.ones[dtype] = self.build.tile("ones", (self.rows, 1), dtype)
                self.build.call("memset", full(self.ones[dtype]), value=1.0)
        return found

    def _store_folds(self, sums: Mapping[int, Tile]) -> None:
        """Write the stores of sums over rows. ``sums`` has the tile of each sum, by the node's id."""
        for node in self.nodes:
            if id(node) in sums:
                for n in self.stores_of(node):
                    self._store_rows(n, sums[id(node)])

    def _tile(self, rows: int, together: int) -> None:
        """Write the statements of one row tile of ``rows`` rows, or of ``together`` row tiles that share loads."""
        self.part, self.block = rows, together
        self.tiles: dict[int, Tile] = {}
        self.parts: dict[int, Tile] = {}
        self.turned: dict[View, Tile] = {}
        self.rows_loaded = {}
        inside = () if self.totals else self.folds
        sums = {key: self.build.tile("total", self._dims(self.width[key]), "float32") for key in inside}
        for tile in sums.values():
            self.build.call("memset", full(tile), value=0.0)
        self.tiles |= sums or self.totals
        if self.inner_axes and not self.folds:
            self.start = (self.build.blocks[-1], len(self.build.blocks[-1]))
            self._turn_lefts([node for node in self.nodes if node.kind == "dot"])
        with self._inner():
            for node in self.nodes:
                if id(node) in self.kept and id(node) not in self.folds:
                    self.tiles[id(node)] = self.build.tile(
                        self._name(node), self._dims(self.width[id(node)]), node.dtype
                    )
            self._shared_rows()
            for level in range(max(self.level.values(), default=0) + 1):
                self._level(level)
        self._store_folds(sums)

    @contextmanager
    def _inner(self) -> Iterator[None]:
        """Write the loops inside of a row tile. The ``with`` block writes the body of the innermost loop.

        These loops go over row axes that are summed over, and over row axes on which the right operands of matrix
        products depend while the left operands do not.
        """
        ordered = bool(self.folds) and not self.totals
        with self.build.loops("step", [self.extents[axis] for axis in self.inner_axes], ordered) as names:
            for axis, name in zip(self.inner_axes, names, strict=True):
                self.values[axis] = variable(name)
            for n in self.vectors:
                if self._inside(n):
                    self.broadcast[n] = self._load_vector(n)
            for n in sorted(self.resident):
                if self._inside(n):
                    self.rights[n] = self._load_right(n, ZERO, self.reach[n].width, None)
            yield
        for axis in self.inner_axes:
            self.values[axis] = ZERO

    def _dims(self, width: int) -> tuple[int, ...]:
        """Return the shape of an SBUF tile of ``width`` columns: (rows, columns), or (rows, row tiles, columns).

        There is an axis of row tiles if several row tiles share each load.
        """
        return (self.part, width) if self.block == 1 else (self.part, self.block, width)

    def _piece(self, tile: Tile, start: Affine, size: int, row: str | None) -> Piece:
        """Return the ``size`` columns of a tile that begin at column ``start``.

        ``row`` is the variable of the loop over row tiles that share loads; None if there is no such loop.
        """
        spans = [Span(ZERO, self.part), Span(start, size)]
        if len(tile.shape) == 3:
            spans.insert(1, Span(variable(row), None))
        return Piece(tile, tuple(spans))

    def _shared_rows(self) -> None:
        """Choose the HBM accesses whose rows are loaded whole and only once, because several groups of nodes read the
        rows.
        """
        groups: dict[object, set[object]] = {}
        widths = {self._key(n): math.prod(e for e, _ in (*r.columns, *r.depth)) for n, r in enumerate(self.reach)}
        for n, reach in enumerate(self.reach):
            access = reach.access
            if access.role == "value" and n not in self.vectors and not reach.scalar:
                groups.setdefault(self._key(n), set()).add(self._group_of(access.node))
            elif access.role == "left" and not self._direct(n):
                groups.setdefault(self._key(n), set()).update({("left", id(access.node)), "left"})
        lefts = {key for key, found in groups.items() if "left" in found}
        self.shared = {key for key, found in groups.items() if len(found) > 1 and (key in lefts or not self.again)}
        room = (
            SBUF - 4 * CHUNK_BYTES - self.block * sum(self.width[id(n)] * 4 for n in self.nodes if id(n) in self.kept)
        )
        room -= sum(self.reach[n].width * 4 for n in self.vectors)
        for key in sorted(self.shared, key=lambda key: widths[key]):
            room -= self.block * widths[key] * 4
            if room < 0 and key not in lefts:
                self.shared.remove(key)

    def _key(self, n: int) -> object:
        """Return a key of HBM access ``n`` that is equal for accesses which read the same elements."""
        reach = self.reach[n]
        inner = merged([(*reach.columns, *reach.depth)]) if reach.columns or reach.depth else [()]
        return (id(reach.access.view.node), reach.access.view.offset, tuple(reach.strides), inner[0])

    def _level(self, level: int) -> None:
        """Write the nodes of level ``level``: first the nodes with one number in each row, then each group of nodes."""
        scalars = [
            n
            for n in self.nodes
            if self.width[id(n)] == 1 and n.kind != "dot" and self.level[id(n)] == level and id(n) not in self.folds
        ]
        groups: dict[int, list[Node]] = {}
        for node in self.nodes:
            if node in scalars:
                continue
            if id(node) in self.attached:
                continue
            if self.level[id(node)] == level and not self._only_again(node):
                groups.setdefault(self.width[id(node)], []).append(node)
        for node in self.nodes:
            if id(node) in self.attached and self.attached[id(node)][0] == level:
                groups.setdefault(self.attached[id(node)][1], []).append(node)
        if scalars:
            self.start = (self.build.blocks[-1], len(self.build.blocks[-1]))
            selected = self.selection.of([n for n in scalars if n.kind != "reduce"])
            for node in scalars:
                if node.kind in ("gather", "scan") or id(node) in (self.parts if node.kind == "reduce" else selected):
                    self._scalar_tile(node)
            self.start = (self.build.blocks[-1], len(self.build.blocks[-1]))
            with self.build.loop("r", self.block) as row:
                self._scalars(scalars, selected, row)
        for width, nodes in sorted(groups.items(), key=lambda item: any(n.kind == "dot" for n in item[1])):
            self._group(
                self._with_sources(nodes, level, width) if self.again else sorted(nodes, key=self.nodes.index), width
            )

    def _scalars(self, nodes: Sequence[Node], selected: dict[int, Selected], row: str | None) -> None:
        """Write the instructions of ``nodes``, whose values have one number in each row.

        ``selected`` has the instruction for each element-wise node, by the node's id. ``row`` is the variable of the
        loop over row tiles that share loads; None if there is no such loop.
        """
        self.local: dict[int, Piece] = {}
        self.loaded: dict[object, Piece] = {}
        self.chunk = Chunk(ZERO, 1, ZERO, tuple(ZERO for _ in self.reach), tuple(r.columns for r in self.reach))
        self.row = row
        for node in nodes:
            if node.kind == "reduce":
                self._finish(node)
            elif node.kind == "gather":
                self._gather(node)
            elif node.kind == "scan":
                self._scan(node)
            elif id(node) in selected:
                self._compute(node, selected[id(node)])

    def _finish(self, node: Node) -> None:
        """Combine a reduction's partial results, one for each chunk of columns, and store the combined result."""
        if id(node) not in self.parts:
            tile = self.tiles[id(node)]
        else:
            parts = self.parts[id(node)]
            tile = self._scalar_tile(node)
            count = parts.shape[-1]
            self.build.call(
                "tensor_reduce",
                self._piece(tile, ZERO, 1, self.row),
                op=_FOLD[node.name],
                data=self._piece(parts, ZERO, count, self.row),
                axis=1,
            )
        self._store(node, self._piece(tile, ZERO, 1, self.row))

    def _scalar_tile(self, node: Node) -> Tile:
        """Return the tile with one column for a node's value. The first call for a node declares the tile."""
        if id(node) not in self.tiles:
            self.tiles[id(node)] = self.build.tile(
                self._name(node), self._dims(1), "float32" if node.kind == "reduce" else node.dtype
            )
        return self.tiles[id(node)]

    def _group(self, nodes: list[Node], width: int) -> None:
        """Write the nodes of one group, chunk by chunk. ``width`` is the number of columns of the group."""
        dots = [node for node in nodes if node.kind == "dot"]
        self.start = (self.build.blocks[-1], len(self.build.blocks[-1]))
        self._turn_lefts(dots)
        self.start = (self.build.blocks[-1], len(self.build.blocks[-1]))
        here = [
            n
            for n, r in enumerate(self.reach)
            if r.access.node in nodes and r.access.role != "left" and not r.scalar and r.width == width
        ]
        limit = min(BANK if dots else WIDEST, self.most_columns)
        whole_rows = [node for node in nodes if _sorts(node) or self.has_several(node)]
        if whole_rows or any(self._part_of(node, view) is not None for node in nodes for view in node.views):
            limit = max(limit, width)
        reduces = [node for node in nodes if id(node) in self.attached]
        plans = list(self._chunks(here, width, limit))
        count = sum(math.prod(outer) for outer, *_ in plans)
        for node in reduces:
            if count > 1:
                self.parts[id(node)] = self.build.tile(f"{self._name(node)}_parts", self._dims(count), "float32")
            else:
                self.tiles[id(node)] = self.build.tile(self._name(node), self._dims(1), "float32")
        carried = {
            id(node): self.build.tile("carry", self._dims(1), "float32")
            for node in nodes
            if node.kind == "scan" and count > 1
        }
        for node in nodes:
            if id(node) in carried:
                self.build.call("memset", full(carried[id(node)]), value=SCANS[node.name][2])
        self.carried = carried
        done = 0
        for plan in plans:
            done += self._chunk_loops(nodes, here, plan, done, ordered=bool(carried))

    def _chunks(self, here: list[int], width: int, limit: int) -> Iterator[tuple[list[int], list[Axes], int, int]]:
        """Yield a plan for the full chunks of a group, and a second plan for a smaller chunk if one is left at the end.

        A plan has the trips of the loops over chunks, the axes that each HBM access in ``here`` reads, the number of
        columns of a chunk, and the first column. Chunks have at most ``limit`` columns.
        """
        extents: tuple[int, ...] | None = (width,) if width > 1 else ()
        for n in here:
            assert extents is not None
            extents = refined(extents, [e for e, _ in self.reach[n].columns])
            if extents is None:
                raise NotLowered(
                    "arrays whose columns are divided differently are not lowered in one loop; use extents of which one divides "
                    "the other: (6, 4) and (2, 12) are lowered together, (2, 3) and (3, 2) are not",
                    self.nodes[0].line,
                )
        assert extents is not None
        steps = [split(self.reach[n].columns, extents) for n in here]
        place = split(((width, 1),) if width > 1 else (), extents)
        *steps, place = merged([*steps, place])
        sizes = [e for e, _ in place]
        size, at = 1, len(sizes)
        while at and size * sizes[at - 1] <= limit:
            at -= 1
            size *= sizes[at]
        if not at:
            yield [], [tuple(s) for s in steps], size, 0
            return
        extent = sizes[at - 1]
        part = largest_divisor(extent, limit // size, max(1, limit // size // 2)) or (
            0 if at == 1 else largest_divisor(extent, limit // size)
        )
        if part:
            yield [*sizes[: at - 1], extent // part], [divided(s, at - 1, part) for s in steps], size * part, 0
            return
        part = limit // size
        yield (
            [extent // part],
            [divided(((extent // part * part, s[0][1]), *s[1:]), 0, part) for s in steps],
            size * part,
            0,
        )
        yield (
            [],
            [((extent % part, s[0][1]), *s[1:]) for s in steps],
            size * (extent % part),
            extent // part * part * size,
        )

    def _chunk_loops(
        self,
        nodes: list[Node],
        here: Sequence[int],
        plan: tuple[list[int], list[Axes], int, int],
        done: int,
        ordered: bool,
    ) -> int:
        """Write the loops and statements for one plan of :meth:`_chunks`, and return the plan's number of chunks.

        ``here`` are the HBM accesses that :meth:`_chunks` divided, and ``done`` is the number of the group's chunks that
        earlier plans wrote.
        """
        outer, axes, size, first = plan
        with self.build.loops("column", outer, ordered) as names:
            position, number = Affine(first), Affine(done)
            for place, name in enumerate(names):
                below = math.prod(outer[place + 1 :])
                position += variable(name) * (below * size)
                number += variable(name) * below
            offsets = [ZERO] * len(self.reach)
            inner: list[Axes] = [reach.columns for reach in self.reach]
            for n, walked in zip(here, axes, strict=True):
                offset = ZERO
                for (_, stride), name in zip(walked[: len(outer)], names, strict=True):
                    offset += variable(name) * stride
                offsets[n] = offset + (
                    first // max(1, math.prod(e for e, _ in walked[1:])) * walked[0][1] if first else 0
                )
                inner[n] = walked[len(outer) :]
            self.chunk = Chunk(position, size, number, tuple(offsets), tuple(inner))
            self._chunk_body(nodes)
        return math.prod(outer)

    def _chunk_body(self, nodes: list[Node]) -> None:
        """Write the statements of one chunk: first the loads of right operands of matrix products, then each node."""
        rights = {}
        for node in nodes:
            if node.kind == "dot":
                for pair in range(len(node.views) // 2):
                    n = self.by_key[(id(node), 2 * pair + 1, "right")]
                    key = self._key(n)
                    if n in self.resident:
                        rights[n] = self.rights[n]
                    else:
                        known = next(
                            (rights[m] for m in rights if m not in self.resident and self._key(m) == key), None
                        )
                        rights[n] = known or self._load_right(
                            n, self.chunk.offsets[n], self.chunk.size, self.chunk.inner[n]
                        )
        with self.build.loop("r", self.block) as row:
            self.row = row
            self.local, self.loaded = {}, {}
            selected = self.selection.of(nodes)
            for node in nodes:
                if id(node) in self.attached:
                    self._partial(node, selected)
                elif node.kind == "dot":
                    self._product(node, rights)
                elif node.kind == "scan":
                    self._scan(node)
                elif node.kind == "gather":
                    self._gather(node)
                elif self.has_several(node):
                    self._reduce_each(node)
                elif id(node) in self.folds:
                    self._accumulate(node)
                elif id(node) in selected:
                    self._compute(node, selected[id(node)])

    # -- instructions

    def _destination(self, node: Node, dtype: str = "") -> Piece:
        """Return the piece of a tile that gets a node's value for this chunk."""
        if id(node) in self.tiles:
            return self._piece(self.tiles[id(node)], self.chunk.position, self.chunk.size, self.row)
        if self.width[id(node)] == 1 and node.kind != "dot":
            return self._piece(self._scalar_tile(node), ZERO, 1, self.row)
        made = self.build.tile(self._name(node), (self.part, self.chunk.size), dtype or node.dtype)
        self.local[id(node)] = full(made)
        return full(made)

    def _compute(self, node: Node, selected: Selected) -> None:
        """Write one instruction, which may compute several nodes."""
        if selected.operation == "affine_select":
            self._select_by_position(node, selected)
            return
        fused = selected.reduce
        data = [self._resolved(operand) for operand in selected.operands]
        read = [data[value.number] for _, value in selected.arguments if isinstance(value, Operand)]
        # These instructions can not read both operands from PSUM. A square reads one piece twice, and both reads get
        # the copy.
        banks = [one for one in read if isinstance(one, Piece) and one.tile.space == "psum"]
        if selected.operation in ("tensor_tensor", "scalar_tensor_tensor") and len(banks) > 1:
            copied = self._copied(banks[0])
            data = [copied if d is banks[0] else d for d in data]
        dst = self._destination(node, "uint8" if self._only_chooses(node) else "")
        args: dict[str, Value] = {}
        for name, value in selected.arguments:
            args[name] = data[value.number] if isinstance(value, Operand) else value
        if fused is not None:
            args |= {"reduce_op": "add", "reduce_res": self._part_piece(fused), "reduce_cmd": "reset_reduce"}
        shape = next(
            (tuple(n for _, n in d.pattern) for d in data if isinstance(d, Strided) and len(d.pattern) > 1), None
        )
        placed = dst
        if shape is not None:
            args = {name: _as(value, self.part, shape) for name, value in args.items()}
            placed = _reshaped(dst, (self.part, *shape))
        if selected.operation == "where":
            self._where(dst, data)
        else:
            self.build.call(selected.operation, placed, **args)
        self._store(node, dst)

    def _only_chooses(self, node: Node) -> bool:
        """Tell whether a node is a comparison whose result is used only as the condition of ``where``.

        Such a result can be written as uint8 at once, which is the dtype of a predicate.
        """
        if node.name not in INVERSE or id(node) in self.tiles or self.stores_of(node) or self.chunk.size == 1:
            return False
        reads = [
            (reader.name, at)
            for reader in self.nodes
            for at, arg in enumerate(reader.args)
            if isinstance(arg, View) and arg.node is node
        ]
        return all(read == ("where", 0) for read in reads)

    def counts_in_place(self, node: Node) -> bool:
        """Tell whether a node compares positions with 0, and one affine pattern gives these positions.

        The pattern has to hold for all rows and columns of the chunk that is being written.
        """
        n = self.by_key.get((id(node), 0, "value"))
        if n is None or node.args[1] != 0.0 or self.reach[n].access.view.node is not INDEX:
            return False
        return not self.reach[n].scalar and n not in self.broadcast and len(self.chunk.inner[n]) == 1

    def _select_by_position(self, node: Node, selected: Selected) -> None:
        """Write an ``affine_select``: it takes a tile's element where a comparison of the position is true, else a
        number.
        """
        n = self.by_key[(id(selected.operands[0].node), 0, "value")]
        ((extent, step),) = self.chunk.inner[n]
        offset = self._offset(n, self.row) + self.chunk.offsets[n]
        positions = Positions(offset, self.reach[n].strides[self.partition], ((step, extent),))
        data = self._resolved(selected.operands[1])
        # affine_select runs on GpSimd, which can not read PSUM
        if isinstance(data, Piece) and data.tile.space == "psum":
            data = self._copied(data)
        data = self._gathered(data) if isinstance(data, Strided) else data
        dst = self._destination(node)
        further = {key: value for key, value in selected.arguments if not isinstance(value, Operand)}
        self.build.call("affine_select", dst, pattern=positions, on_true_tile=data, **further)
        self._store(node, dst)

    def _copied(self, bank: Piece) -> Piece:
        """Write a copy of a PSUM piece to a new SBUF tile, and return the new piece."""
        copied = full(self.build.tile("copied", (self.part, self.chunk.size), "float32"))
        self.build.call("tensor_copy", copied, src=bank)
        return copied

    def _where(self, dst: Piece, data: list[Value]) -> None:
        """Write ``dst = value for true where the condition is true, else value for false``: a copy, and then a
        predicated copy over it.

        ``data`` has the condition, the value for true and the value for false.
        """
        condition, first, second = (self._gathered(one) if isinstance(one, Strided) else one for one in data)
        if isinstance(second, Piece):
            self.build.call("tensor_copy", dst, src=second)
        else:
            self.build.call("memset", dst, value=second)
        predicate = condition
        if not isinstance(condition, Piece) or condition.tile.dtype != "uint8":
            predicate = full(self.build.tile("predicate", (self.part, self.chunk.size), "uint8"))
            self.build.call("tensor_copy", predicate, src=condition)
        # the value for true needs the dtype of dst, because a predicated copy does not convert
        if not isinstance(first, Piece) or first.tile.dtype != dst.tile.dtype:
            spread = full(self.build.tile("chosen", (self.part, self.chunk.size), dst.tile.dtype))
            if isinstance(first, Piece):
                self.build.call("tensor_copy", spread, src=first)
            else:
                self.build.call("memset", spread, value=first)
            first = spread
        self.build.call("tensor_copy_predicated", dst, src=first, predicate=predicate)

    def _gathered(self, value: Strided) -> Piece:
        """Write a copy of strided elements to contiguous columns of a new tile, and return the copy."""
        made = full(self.build.tile("gathered", (self.part, self.chunk.size), value.tile.dtype))
        shape = (self.part, *(n for _, n in value.pattern))
        self.build.call("tensor_copy", _reshaped(made, shape) if len(shape) > 2 else made, src=value)
        return made

    def _resolved(self, operand: Operand) -> Value:
        """Return an operand as an argument of an instruction. The loads and conversions that it needs are written
        first.

        The argument is a number, a piece with one number in each row, or the columns of the chunk that is being
        written.
        """
        value = operand.value
        if isinstance(value, float):
            return value
        if operand.negative:
            return self._negative(operand)
        found = self.operand(operand.node, operand.place)
        if operand.bits:
            part = self._gathered(found) if isinstance(found, Strided) else found
            return replace(part, bits_as="int32" if BYTES[part.tile.dtype] == 4 else "int16")
        if isinstance(found, Piece) and found.spans[-1].count == 1 and self.chunk.size > 1:
            if operand.node.name in BITWISE:
                return self._spread(found, "bitwise_or") if operand.spread else found
            found = self._wide(found) if found.tile.dtype != "float32" else found
            return self._spread(found) if operand.spread else found
        return found

    def _wide(self, piece: Piece) -> Piece:
        """Write a conversion of one number in each row to float32, and return the result.

        An instruction that combines columns with one number in each row takes that number only as float32.
        """
        wide = full(self.build.tile("wide", (self.part, 1), "float32"))
        self.build.call("tensor_copy", wide, src=piece)
        return wide

    def _spread(self, piece: Piece, joined: str = "add") -> Piece:
        """Write a tile that repeats one number in each row along the columns of the chunk, and return the tile.

        ``joined`` is the operator that combines the number with zeros: ``add``, or ``bitwise_or`` to keep all bits.
        """
        spread = full(self.build.tile("spread", (self.part, self.chunk.size), piece.tile.dtype))
        self.build.call("memset", spread, value=0.0)
        self.build.call("tensor_scalar", spread, data=spread, op0=joined, operand0=piece)
        return spread

    def _negative(self, operand: Operand) -> Piece:
        """Return an operand with one number in each row, multiplied by -1.

        The multiplication stands before the loops over chunks, so it runs only once for all chunks.
        """
        key = ("negative", operand.node.args[operand.place])
        if key not in self.rows_loaded:
            with self._before_group():
                tile = self.build.tile("negative", self._dims(1), "float32")
                with self._each_row():
                    data = self.operand(operand.node, operand.place)
                    self.build.call(
                        "tensor_scalar", self._piece(tile, ZERO, 1, self.row), data=data, op0="multiply", operand0=-1.0
                    )
            self.rows_loaded[key] = tile
        return self._piece(self.rows_loaded[key], ZERO, 1, self.row)

    @contextmanager
    def _before_group(self) -> Iterator[None]:
        """Write the statements of the ``with`` block before the first chunk of the present group."""
        self.build.blocks.append([])
        yield
        made = self.build.blocks.pop()
        block, at = self.start
        block[at:at] = made
        self.start = (block, at + len(made))

    @contextmanager
    def _each_row(self) -> Iterator[None]:
        """Write the statements of the ``with`` block into a loop over the row tiles that share loads."""
        held = self.row
        with self.build.loop("r", self.block) as self.row:
            yield
        self.row = held

    def operand(self, node: Node, place: int) -> Piece | Strided:
        """Return operand number ``place`` of a node as a piece of a tile. An operand that is in HBM is loaded first."""
        view = node.args[place]
        assert isinstance(view, View)
        source = view.node
        if id(source) in self.inside and (id(node), place, "value") not in self.by_key:
            if self.width[id(source)] == 1 and id(source) not in self.local:
                return self._piece(self.tiles[id(source)], ZERO, 1, self.row)
            if id(source) in self.local:
                return self.local[id(source)]
            part = self._part_of(node, view)
            if part is not None:
                held = self.tiles[id(source)]
                between = (variable(self.row),) if self.block > 1 else ()
                walked = tuple((s, n) for n, s in part.columns) or ((1, 1),)
                return Strided(held, self.part, Affine(view.offset), walked, between)
            return self._piece(self.tiles[id(source)], self.chunk.position, self.chunk.size, self.row)
        n = self.by_key[(id(node), place, "value")]
        if n in self.broadcast:
            return Piece(self.broadcast[n], (Span(ZERO, self.part), Span(self.chunk.position, self.chunk.size)))
        return self._loaded(n)

    def _loaded(self, n: int) -> Piece | Strided:
        """Return the elements of HBM access ``n`` in the present chunk, as a part of a tile.

        If the elements are not on the chip, write their load first.
        """
        reach = self.reach[n]
        key = self._key(n)
        beside, lead, length = self._beside(n)
        if beside:
            return self._from_ranges(n, beside, lead, length)
        if reach.scalar:
            if key not in self.rows_loaded:
                with self._before_group():
                    tile = self.build.tile(self._source_name(n), self._dims(1), reach.dtype)
                    with self._each_row():
                        self._fetch(self._piece(tile, ZERO, 1, self.row), n, ZERO, (), self.row)
                self.rows_loaded[key] = tile
            return self._piece(self.rows_loaded[key], ZERO, 1, self.row)
        if key in self.shared:
            tile, columns = self._whole_rows(n), merged([reach.columns])[0]
            if lying_together(columns) == columns:
                return self._piece(tile, self.chunk.position, self.chunk.size, self.row)
            # the tile has the columns in HBM's order, so read them in the order of the axes
            between = (variable(self.row),) if self.block > 1 else ()
            walked = tuple((s, e) for e, s in self.chunk.inner[n])
            return Strided(tile, self.part, self.chunk.offsets[n], walked, between)
        if key not in self.loaded:
            tile = self.build.tile(self._source_name(n), (self.part, self.chunk.size), reach.dtype)
            place, axes = self._once(full(tile), n, self.chunk.inner[n])
            self._fetch(place, n, self.chunk.offsets[n], axes, self.row)
            self._repeat(full(tile), place, self.chunk.inner[n])
            self.loaded[key] = full(tile)
        return self.loaded[key]

    def _beside(self, n: int) -> tuple[list[int], int, int]:
        """Return the HBM accesses that one transfer of contiguous ranges can serve together with access ``n``.

        They read, or store, the same tensor at other offsets, such as the taps of a stencil. The result is (accesses,
        number of column axes outside of a range, length of a range). The ranges of reads may have a few elements that
        no read needs. Stores have to fill their ranges completely. The list of accesses is empty if no ranges fit.
        """
        reach, inner = self.reach[n], self.chunk.inner[n]
        if reach.scalar or len(inner) > MOST_AXES or (not self.region.pure and reach.access.role != "store"):
            return [], 0, 0
        tensor = self.memory.tensor(reach.access.view.node)
        found = [
            m
            for m, one in enumerate(self.reach)
            if one.access.role == reach.access.role
            and self.memory.tensor(one.access.view.node) is tensor
            and (one.start.terms, one.strides, self.chunk.inner[m]) == (reach.start.terms, reach.strides, inner)
        ]
        starts = {self.reach[m].start.constant for m in found}
        if reach.access.role == "store":
            makers = [self.reach[m].access.node for m in found]
            alike = {(self._group_of(node), id(node) in self.folds) for node in makers} == {
                (self._group_of(makers[0]), False)
            }
            together = alike and all(node.kind in ("elementwise", "scan") for node in makers)
            return self._filled(found, starts, inner) if together else ([], 0, 0)
        apart = bool(inner) and inner[-1][1] > 1
        if (len(starts) > 1 or apart) and reach.access.view.node is not INDEX and n not in self.broadcast:
            most = min(max(len(starts), SPARSEST if apart else 1) * self.chunk.size, WIDEST)
            for lead in range(len(inner) if all(s > 0 for _, s in inner) else 0):
                length = max(starts) - min(starts) + 1 + sum((e - 1) * s for e, s in inner[lead:])
                if length * math.prod(e for e, _ in inner[:lead]) <= most:
                    return found, lead, length
        return [], 0, 0

    def _filled(self, stores: list[int], starts: set[int], inner: Axes) -> tuple[list[int], int, int]:
        """Return the result of :meth:`_beside` for stores: (stores, number of leading axes, length of a range).

        ``stores`` are the numbers of the HBM accesses, ``starts`` their first elements, and ``inner`` their column
        axes. The result has no stores if they do not fill contiguous ranges completely.
        """
        if len(starts) == len(stores) and inner and inner[-1][1] > 1 and all(s > 0 for _, s in inner):
            for lead in range(len(inner)):
                length = max(starts) - min(starts) + 1 + sum((e - 1) * s for e, s in inner[lead:])
                if length * math.prod(e for e, _ in inner[:lead]) == len(starts) * self.chunk.size <= WIDEST:
                    ranged = itertools.product(starts, *(range(0, e * s, s) for e, s in inner[lead:]))
                    if len({sum(one) for one in ranged}) == length:
                        return stores, lead, length
        return [], 0, 0

    def _to_ranges(self, n: int, beside: Sequence[int], lead: int, length: int, source: Piece) -> None:
        """Emit a copy of ``source``, the value of store ``n``, into a tile that holds the values of all stores
        ``beside`` as contiguous ranges of HBM.

        Once the tile has the values of all these stores, emit the transfer of the tile to HBM. The first ``lead``
        column axes are outside of a range, and each range has ``length`` elements (:meth:`_beside`).
        """
        first = min(beside, key=lambda m: self.reach[m].start.constant)
        outer, inner = self.chunk.inner[n][:lead], self.chunk.inner[n]
        tensor = self.memory.tensor(self.reach[n].access.view.node)
        width = length * math.prod(e for e, _ in outer)
        key = ("stored", first)
        if key not in self.loaded:
            self.loaded[key] = full(self.build.tile(f"{tensor.name}_tile", (self.part, width), tensor.dtype))
            self.parts_stored[first] = 0
        held = self.loaded[key]
        place = self._part_of_ranges(held, n, first, lead, length)
        shaped = source if len(inner) == 1 else _reshaped(source, (self.part, *(e for e, _ in inner)))
        self.build.call("tensor_copy", place, src=shaped)
        self.parts_stored[first] += 1
        if self.parts_stored[first] == len(beside):
            axes = (*outer, (length, 1))
            pattern = ((self.reach[first].strides[self.partition], self.part), *((s, e) for e, s in axes))
            whole = held if len(axes) == 1 else _reshaped(held, (self.part, *(e for e, _ in axes)))
            offset = self._offset(first, self.row) + self.chunk.offsets[first]
            self.build.call("dma_copy", Block(tensor, offset, pattern), src=whole)

    def _from_ranges(self, n: int, beside: Sequence[int], lead: int, length: int) -> Strided:
        """Return the elements of HBM access ``n`` in the present chunk, as a part of a tile of ranges.

        The reads ``beside`` share the ranges, which are loaded once. ``lead`` and ``length`` describe the ranges, as
        :meth:`_beside` returns them.
        """
        first = min(beside, key=lambda m: self.reach[m].start.constant)
        outer = self.chunk.inner[n][:lead]
        key = ("range", self._key(first))
        if key not in self.loaded:
            width = length * math.prod(e for e, _ in outer)
            tile = self.build.tile(self._source_name(n), (self.part, width), self.reach[n].dtype)
            self._fetch(full(tile), first, self.chunk.offsets[first], (*outer, (length, 1)), self.row)
            self.loaded[key] = full(tile)
        return self._part_of_ranges(self.loaded[key], n, first, lead, length)

    def _part_of_ranges(self, held: Piece, n: int, first: int, lead: int, length: int) -> Strided:
        """Return the elements of HBM access ``n`` in ``held``, a tile of contiguous ranges that several accesses share.

        ``first`` is the access that begins first in the ranges. The first ``lead`` axes are outside of a range, and
        each range has ``length`` elements.
        """
        outer, ranged = self.chunk.inner[n][:lead], self.chunk.inner[n][lead:]
        behind = Affine(self.reach[n].start.constant - self.reach[first].start.constant)
        steps = dense([*(e for e, _ in outer), length])
        pattern = (*((step, e) for step, (e, _) in zip(steps, outer, strict=False)), *((s, e) for e, s in ranged))
        return Strided(held.tile, self.part, behind, pattern)

    def _once(self, dst: Piece, n: int, axes: Axes) -> tuple[Piece, Axes]:
        """Return a destination and axes with which the load of HBM access ``n`` transfers no element twice.

        If ``axes`` repeat elements (a stride is 0), and the repetitions take more time in the transfer than in a copy on the
        chip, the destination is a new tile that is smaller than ``dst``, and the axes have no repetitions. Else ``dst``
        and ``axes`` are returned.
        """
        apart = tuple(axis for axis in axes if axis[1])
        if not apart or len(apart) == len(axes) or self.reach[n].access.view.node is INDEX:
            return dst, axes
        width, every = (math.prod(extent for extent, _ in some) for some in (apart, axes))
        run = axes[-1][0] if axes[-1][1] == 1 else 1
        if axes[-1][1] and ROW * dst.tile.shape[0] * (every - width) / run < START + every:
            return dst, axes
        return full(self.build.tile(self._source_name(n), (dst.tile.shape[0], width), dst.tile.dtype)), apart

    def _repeat(self, dst: Piece, loaded: Piece, axes: Axes) -> None:
        """Write a copy from the smaller tile of :meth:`_once` to ``dst`` that repeats elements along ``axes``.

        Write nothing if ``loaded`` is ``dst``.
        """
        if loaded == dst:
            return
        steps = iter(dense([extent for extent, stride in axes if stride]))
        pattern = tuple((next(steps) if stride else 0, extent) for extent, stride in axes)
        repeated = Strided(loaded.tile, loaded.tile.shape[0], ZERO, pattern)
        shaped = _reshaped(dst, (loaded.tile.shape[0], *(extent for extent, _ in axes)))
        self.build.call("tensor_copy", shaped, src=repeated)

    def _whole_rows(self, n: int) -> Tile:
        """Return a tile with the whole rows of HBM access ``n``. All groups of nodes that read the rows share one load."""
        key = self._key(n)
        if key not in self.rows_loaded:
            reach = self.reach[n]
            axes = self._row_axes(n)
            width = math.prod(e for e, _ in axes)
            with self._before_group():
                tile = self.build.tile(self._source_name(n), self._dims(width), reach.dtype)
                with self._each_row():
                    self._fetch(self._piece(tile, ZERO, width, self.row), n, ZERO, axes, self.row)
            self.rows_loaded[key] = tile
        return self.rows_loaded[key]

    def _row_axes(self, n: int) -> Axes:
        """Return the axes of a row of HBM access ``n`` in the order in which :meth:`_whole_rows` loads them.

        If the row is read only as the left operand of products, its axes are in their order in HBM: products sum over
        them, and a sum may be taken in any order.
        """
        reach = self.reach[n]
        axes = merged([(*reach.columns, *reach.depth)])[0]
        readers = {other.access.role for m, other in enumerate(self.reach) if self._key(m) == self._key(n)}
        if readers == {"left"} and all(stride > 0 for _, stride in axes):
            axes = merged([tuple(sorted(axes, key=lambda axis: -axis[1]))])[0]
        return lying_together(axes)

    def _offset(self, n: int, row: str | None) -> Affine:
        """Return the offset in HBM, in elements, of the first element of access ``n`` in the present row tile.

        ``row`` is the variable of the loop over row tiles that share loads; None if there is no such loop.
        """
        reach = self.reach[n]
        offset = reach.start
        for axis, stride in enumerate(reach.strides):
            offset += (self.first if axis == self.partition else self.values[axis]) * stride
        apart = reach.strides[self.shared_axis] * (self.rows if self.shared_axis == self.partition else 1)
        return offset + variable(row) * apart

    def _fetch(self, dst: Piece, n: int, further: Affine, axes: Axes, row: str | None) -> None:
        """Write a load of HBM access ``n`` into ``dst``.

        From each row, load the elements along ``axes``. The first of them lies ``further`` elements after the row's
        start. ``row`` is the variable of the loop over row tiles that share loads; None if there is no such loop.
        """
        reach = self.reach[n]
        tensor = self.memory.tensor(reach.access.view.node)
        step = reach.strides[self.partition]
        offset = self._offset(n, row) + further
        inner = axes or ((1, 1),)
        apart = len(inner) == 1 and inner[0][1] not in (0, 1) and reach.access.view.node is not INDEX
        if apart and dst.tile.dtype in TURNED_AS and step == 1 and inner[0][0] >= 32 and self.part >= LEAST_TURNED:
            self._fetch_turned(dst, tensor, offset, inner[0])
            return
        if apart and inner[0][1] == -1:
            count = inner[0][0]
            held = self.build.tile("reversed", (self.part, count), dst.tile.dtype)
            self._read(full(held), tensor, offset + (1 - count), ((step, self.part), (1, count)))
            self.build.call("tensor_copy", dst, src=_columns_of(full(held), count - 1, ((-1, count),)))
            return
        order = lying_order(inner) if reach.access.view.node is not INDEX else None
        if order is not None:
            lying = full(self.build.tile("lying", (self.part, math.prod(e for e, _ in inner)), dst.tile.dtype))
            axes = tuple(inner[at] for at in order)
            self._read(self._as_axes(lying, axes), tensor, offset, ((step, self.part), *((s, e) for e, s in axes)))
            self.build.call("tensor_copy", self._as_axes(dst, inner), src=self._in_order(lying, inner, order))
            return
        pattern = ((step, self.part), *((s if e > 1 else 1, e) for e, s in inner))
        self._read(self._as_axes(dst, inner), tensor, offset, pattern)

    def _as_axes(self, piece: Piece, axes: Axes) -> Piece:
        """Return a piece whose columns are divided into the axes ``axes``."""
        return piece if len(axes) == 1 else _reshaped(piece, (self.part, *(e for e, _ in axes)))

    def _in_order(self, held: Piece, axes: Axes, order: Sequence[int]) -> Strided:
        """Return the columns of a piece in the order of ``axes``. The piece itself has them in the order ``order`` of
        these axes.
        """
        steps = dict(zip(order, dense([axes[at][0] for at in order]), strict=True))
        walked = tuple((steps[at], axes[at][0]) for at in range(len(axes)))
        return Strided(held.tile, self.part, ZERO, walked, tuple(span.start for span in held.spans[1:-1]))

    def _read(self, dst: Piece, tensor: HbmTensor, offset: Affine, pattern: Pattern) -> None:
        """Write a load from HBM into ``dst``. If ``tensor`` stands for positions, write an ``iota`` instead.

        ``offset`` is the first element, and ``pattern`` has the (stride, count) of each axis, partitions first.
        """
        if tensor is self.memory.tensor(INDEX):
            self.build.call("iota", dst, pattern=Positions(offset, pattern[0][0], pattern[1:]))
        else:
            self.build.call("dma_copy", dst, src=Block(tensor, offset, pattern))

    def _fetch_turned(self, dst: Piece, tensor: HbmTensor, offset: Affine, axis: tuple[int, int]) -> None:
        """Write a transposed load of rows whose elements are far apart in HBM, while the elements of each column are
        contiguous.

        Long contiguous transfers are fast, so the data are loaded transposed, and transposed back on the chip. ``axis``
        is the (extent, stride) of a row.
        """
        (extent, stride), rows = axis, dst.spans[0].count or 1
        for at, size, _ in self.build.strips("strip", extent):
            block = self.build.tile("strip_tile", (size, rows), dst.tile.dtype)
            source = Block(tensor, offset + at * stride, ((stride, size), (1, rows)))
            self.build.call("dma_copy", full(block), src=source)
            held = self._turnable(full(block))
            across = self.build.tile("across", (rows, size), held.tile.dtype, psum=True)
            self.build.call("nc_transpose", full(across), data=held)
            self.build.call("tensor_copy", _shifted(dst, at, size), src=full(across))

    def _turnable(self, piece: Piece) -> Piece:
        """Return the elements of ``piece`` in a dtype that the tensor engine transposes."""
        dtype = TURNED_AS[piece.tile.dtype]
        if dtype == piece.tile.dtype:
            return piece
        held = full(self.build.tile("wider", (piece.tile.shape[0], piece.spans[-1].count or 1), dtype))
        self.build.call("tensor_copy", held, src=piece)
        return held

    def _load_vector(self, n: int) -> Tile:
        """Load the row of HBM access ``n``, which all rows share, into every partition of a tile, and return the tile."""
        reach = self.reach[n]
        width = reach.width
        tile = self.build.tile(self._source_name(n), (min(self.rows, PARTITIONS), width), reach.dtype)
        offset = self._offset(n, None)
        columns = merged([reach.columns])[0]
        place, axes = self._once(full(tile), n, columns)
        reach_of = 1 + sum((e - 1) * s for e, s in axes)
        apart = len(axes) == 1 and axes[0][1] > 1 and reach_of <= min(SPARSEST * axes[0][0], WIDEST)
        if apart and reach.access.view.node is not INDEX:
            held = full(self.build.tile(self._source_name(n), (tile.shape[0], reach_of), reach.dtype))
            self._read(held, self.memory.tensor(reach.access.view.node), offset, ((0, tile.shape[0]), (1, reach_of)))
            self.build.call("tensor_copy", place, src=_columns_of(held, 0, ((axes[0][1], axes[0][0]),)))
            self._repeat(full(tile), place, columns)
            return tile
        pattern = ((0, tile.shape[0]), *((s, e) for e, s in axes))
        shaped = place if len(axes) == 1 else _reshaped(place, (tile.shape[0], *(e for e, _ in axes)))
        self._read(shaped, self.memory.tensor(reach.access.view.node), offset, pattern)
        self._repeat(full(tile), place, columns)
        return tile

    def _load_right(self, n: int, further: Affine, size: int, inner: Axes | None) -> Tile:
        """Load the right operand of a matrix product, HBM access ``n``, into a tile [partitions, blocks, columns].

        Return the tile. The axes that the product sums over lie on partitions and blocks. ``further`` is the distance
        in elements to the first column that is loaded, ``size`` is the number of columns, and ``inner`` has their axes;
        None for all columns.
        """
        reach = self.reach[n]
        access = reach.access
        _, (counted, shared) = self._terms(access.node, access.number // 2)
        part, blocks = self._depth(n)
        walked = tuple(axis for axis in (reach.columns if inner is None else inner) if axis[0] > 1)
        tensor = self.memory.tensor(access.view.node)
        columns = (in_slices([walked], [tensor.shape]) if self.sliced else merged([walked]))[0] or ((1, 1),)
        window = self._window(n, reach.columns if inner is None else inner)
        if window is not None:
            taps = [axis for axis in counted if axis[1] < shared[-1][1]]
            blocks //= math.prod(e for e, _ in taps)
            counted = tuple(axis for axis in counted if axis not in taps)
            columns = window
            size = math.prod(e for e, _ in columns)
        tile = self.build.tile(self._source_name(n), (part, blocks, size), reach.dtype)
        base = self._offset(n, None) + further
        extent, step = shared[-1]
        turned = step == 1 and columns[-1][1] != 1 and size > 1 and extent > 1
        with self._each_term(counted, shared, part) as (outside, block, lead):
            if turned:
                self._turned_right(tile, block, tensor, base + outside, columns, extent)
                return tile
            for at, rows, number in self.build.strips("step", extent, part):
                where = Span(block + number, None)
                dst = Piece(tile, (Span(lead, rows), where, Span(ZERO, size)))
                pattern = ((step, rows), *((s, e) for e, s in columns))
                if len(columns) > 1:
                    dst = Piece(tile, dst.spans, (rows, *(e for e, _ in columns)))
                self.build.call("dma_copy", dst, src=Block(tensor, base + outside + at * step, pattern))
        return tile

    def _window(self, n: int, columns: Axes) -> Axes | None:
        """Return the axes of contiguous ranges that have the elements of all taps of a convolution.

        The last axis is a range, and the axes before it, such as the images of a batch, go from range to range. ``n`` is
        the HBM access of the right operand. Return None if its elements do not lie in such ranges, or if loading the
        columns of each tap separately takes less time.
        """
        access = self.reach[n].access
        _, (counted, shared) = self._terms(access.node, access.number // 2)
        most = shared[-1][1]
        apart, near = ([axis for axis in columns if (axis[1] >= most) is far] for far in (True, False))
        taps = [axis for axis in counted if axis[1] < most]
        hull = 1 + sum((e - 1) * s for e, s in (*near, *taps))
        if not near or len(taps) < len(counted) or min(s for _, s in columns) < 1 or hull > most:
            return None
        elements = math.prod(e for e, _ in (*near, *taps))
        fewer = taps and hull < elements
        return (*apart, (hull, 1)) if fewer or (near[-1][1] > 1 and hull <= SPARSEST * elements) else None

    def _turned_right(
        self, tile: Tile, block: Affine, tensor: HbmTensor, offset: Affine, columns: Axes, extent: int
    ) -> None:
        """Load the ``extent`` rows of a right operand that is contiguous along the axis that the matrix product sums over.

        The data are loaded transposed, because contiguous transfers are fast, and are transposed back on the chip.
        ``block`` is the first block of ``tile`` that gets rows.
        """
        *outer, (width, stride) = columns
        part, dtype = tile.shape[0], tile.dtype
        run = part * max(1, RUN // (part * BYTES[dtype]))
        with self.build.loops("tap", [e for e, _ in outer]) as names:
            column = ZERO
            for depth, ((_, by), name) in enumerate(zip(outer, names, strict=True)):
                offset += variable(name) * by
                column += variable(name) * math.prod(e for e, _ in columns[depth + 1 :])
            for at, size, _ in self.build.strips("strip", width):
                for along, terms, number in self.build.strips("run", extent, run):
                    strip = full(self.build.tile("strip_tile", (size, terms), dtype))
                    source = Block(tensor, offset + at * stride + along, ((stride, size), (1, terms)))
                    self.build.call("dma_copy", strip, src=source)
                    self._turn_strip(self._turnable(strip), terms, tile, block + number * (run // part), column + at)

    def _turn_strip(self, strip: Piece, terms: int, tile: Tile, block: Affine, column: Affine) -> None:
        """Transpose a piece of ``terms`` columns into ``tile``, from block ``block`` and column ``column`` on."""
        own, size = strip.spans[0], strip.tile.shape[0]

        def data(start: Affine, count: int) -> Value:
            return Piece(strip.tile, (own, Span(start, count)))

        def place(rows: int, first: Affine, blocks: int | None) -> Piece:
            return Piece(tile, (Span(ZERO, rows), Span(block + first, blocks), Span(column, size)))

        self._turn(terms, tile.shape[0], size, strip.tile.dtype, data, place)

    @contextmanager
    def _each_term(self, counted: Axes, shared: Axes, part: int) -> Iterator[tuple[Affine, Affine, Affine]]:
        """Write loops over all axes that a matrix product sums over except the last axis.

        Pass three places to the ``with`` block, the body of the innermost loop: the distance of its first term from the
        operand's first term in elements, the number of its first block, and its first partition. ``counted`` and
        ``shared`` are the axes as :meth:`_terms` divides them, and a block has at most ``part`` terms.
        """
        axes = (*counted, *shared[:-1])
        blocks = dense((*(e for e, _ in counted), -(-math.prod(e for e, _ in shared) // part)))[:-1]
        steps = (*blocks, *dense([e for e, _ in shared])[:-1])
        with self.build.loops("tap", [e for e, _ in axes]) as names:
            ways = [variable(name) * stride for name, (_, stride) in zip(names, axes, strict=True)]
            places = [variable(name) * step for name, step in zip(names, steps, strict=True)]
            yield sum(ways, ZERO), sum(places[: len(counted)], ZERO), sum(places[len(counted) :], ZERO)

    def _direct(self, n: int) -> bool:
        """Tell whether a left operand needs no transpose on the chip, because its row axis has stride 1 in HBM.

        ``n`` is the HBM access of the operand. Its load puts the axis that the matrix product sums over on partitions.
        """
        reach = self.reach[n]
        return reach.strides[self.partition] == 1 and bool(reach.depth) and reach.depth[-1][1] != 1

    def _turn_lefts(self, dots: Sequence[Node]) -> None:
        """Write the left operands of the matrix products ``dots`` to tiles [partitions, blocks, rows].

        The axes that the products sum over lie on partitions and blocks. Operands that already have such a tile are
        skipped.
        """
        todo: dict[View, tuple[Node, int]] = {}
        for node in dots:
            for pair, view in enumerate(node.views[::2]):
                if view not in self.turned:
                    todo.setdefault(view, (node, pair))
        for view, (node, pair) in todo.items():
            (counted, shared), _ = self._terms(node, pair)
            part, blocks = self._blocks(node, pair)
            shape = (part, blocks, self.part) if self.block == 1 else (part, self.block, blocks, self.part)
            n = self.by_key.get((id(node), 2 * pair, "left"))
            source = None if n is None or self._direct(n) else self._whole_rows(n)
            tile = self.turned[view] = self.build.tile("turned", shape, view.dtype)
            with self.build.loop("r", self.block) as row:
                if n is not None and self._direct(n):
                    self._load_left(n, tile, counted, shared, row)
                else:
                    placed = (*counted, *shared) if n is None else on_tile((*counted, *shared), self._row_axes(n))
                    held = source or self.tiles[id(view.node)]
                    self._turn_tile(held, tile, placed[: len(counted)], placed[len(counted) :], row)

    def _load_left(self, n: int, tile: Tile, counted: Axes, shared: Axes, row: str | None) -> None:
        """Load a left operand from HBM into ``tile``, with the axes that the matrix product sums over on partitions."""
        tensor = self.memory.tensor(self.reach[n].access.view.node)
        extent, step = shared[-1]
        part = tile.shape[0]
        with self._each_term(counted, shared, part) as (outside, block, lead):
            offset = self._offset(n, row) + outside
            for at, rows, number in self.build.strips("step", extent, part):
                dst = self._left_piece(tile, rows, block + number, row, lead)
                source = Block(tensor, offset + at * step, ((step, rows), (1, self.part)))
                self.build.call("dma_copy", dst, src=source)

    def _left_piece(self, tile: Tile, rows: int, block: Affine, row: str | None, lead: Affine = ZERO) -> Piece:
        """Return ``rows`` partitions, from ``lead`` on, of one block of a left operand, which lies transposed in ``tile``."""
        spans = [Span(lead, rows), Span(block, None), Span(ZERO, self.part)]
        if len(tile.shape) == 4:
            spans.insert(1, Span(variable(row), None))
        return Piece(tile, tuple(spans))

    def _turn_tile(self, source: Tile, tile: Tile, counted: Axes, shared: Axes, row: str | None) -> None:
        """Transpose the rows in ``source`` into ``tile``."""
        step, part = shared[-1][1], tile.shape[0]
        terms = math.prod(e for e, _ in shared)
        with self._each_term(counted, ((terms, step),), part) as (tap, block, _):

            def data(at: Affine, size: int) -> Value:
                walked = shared if len(shared) > 1 else ((size, step),)
                found = self._apart(source, tap + at * step, walked, row)
                if isinstance(found, Strided) and len(found.pattern) > 1:  # a transpose takes columns of one axis
                    beside = full(self.build.tile("beside", (self.part, size), tile.dtype))
                    shaped = _reshaped(beside, (self.part, *(n for _, n in found.pattern)))
                    self.build.call("tensor_copy", shaped, src=found)
                    return beside
                return found

            def place(size: int, first: Affine, blocks: int | None) -> Piece:
                spans = [Span(ZERO, size), Span(block + first, blocks), Span(ZERO, self.part)]
                if len(tile.shape) == 4:
                    spans.insert(1, Span(variable(row), None))
                return Piece(tile, tuple(spans))

            self._turn(terms, part, self.part, tile.dtype, data, place)

    def _turn(
        self,
        terms: int,
        part: int,
        rows: int,
        dtype: str,
        data: Callable[[Affine, int], Value],
        place: Callable[[int, Affine, int | None], Piece],
    ) -> None:
        """Write transposes of ``terms`` columns of ``rows`` rows, ``part`` at a time. Up to four transposes share one copy
        from PSUM to SBUF.

        ``data`` returns columns by the first one and their number. ``place`` returns where their rows go, by the number of
        partitions, the first block and the number of blocks, which is None for a single block.
        """
        for count, first, size in blocks_of(terms, part):
            together = next(t for t in (TURNED_TOGETHER, 2, 1) if count % t == 0 and t * rows * 4 <= 4 * BANK)
            with self.build.loop("step", count // together) as name:
                shape = (size, together, rows) if together > 1 else (size, rows)
                across = self.build.tile("across", shape, dtype, psum=True)
                for one in range(together):
                    dst = full(across)
                    if together > 1:
                        dst = Piece(across, (Span(ZERO, size), Span(Affine(one), None), Span(ZERO, rows)))
                    at = variable(name) * (size * together) + (first + one * size)
                    self.build.call("nc_transpose", dst, data=data(at, size))
                start = variable(name) * together + first // part
                self.build.call("tensor_copy", place(size, start, together if together > 1 else None), src=full(across))

    def _apart(self, tile: Tile, start: Affine, axes: Axes, row: str | None) -> Piece | Strided:
        """Return the columns of a tile along ``axes``, from column ``start`` on."""
        walked = merged([tuple(axis for axis in axes if axis[0] > 1)])[0]
        if not walked or (len(walked) == 1 and walked[0][1] == 1):
            return self._piece(tile, start, math.prod(e for e, _ in walked), row)
        between = (variable(row),) if len(tile.shape) == 3 else ()
        return Strided(tile, self.part, start, tuple((s, e) for e, s in walked), between)

    def _product(self, node: Node, rights: dict[int, Tile]) -> None:
        """Write the matrix products of a dot node for one chunk. PSUM accumulates their sum.

        The sum is copied to SBUF if it is kept, stored or converted. ``rights`` has the tiles of the right operands, by
        HBM access.
        """
        psum = self.build.tile("product", (self.part, self.chunk.size), "float32", psum=True)
        started: list[str] = []
        begun = False
        single = len(node.views) == 2
        for pair in range(len(node.views) // 2):
            n = self.by_key[(id(node), 2 * pair + 1, "right")]
            left, right = self.turned[node.views[2 * pair]], rights[n]
            (counted, shared), _ = self._terms(node, pair)
            terms, part = math.prod(e for e, _ in shared), left.shape[0]
            per = -(-terms // part)
            with self.build.loops("tap", [e for e, _ in counted]) as names:
                block = ZERO
                for place, name in enumerate(names):
                    block += variable(name) * (math.prod(e for e, _ in counted[place + 1 :]) * per)
                for number, (count, first, rows) in enumerate(blocks_of(terms, part)):
                    with self.build.loop("step", count) as name:
                        where = block + variable(name) + first // part
                        start = self.chunk.position if n in self.resident else ZERO
                        stationary = self._left_piece(left, rows, where, self.row)
                        moving: Value = Piece(
                            right, (Span(ZERO, rows), Span(where, None), Span(start, self.chunk.size))
                        )
                        walked = self.reach[n].columns if n in self.resident else self.chunk.inner[n]
                        window = self._window(n, walked)
                        if window is not None:
                            moving = self._windowed(n, right, rows, names, variable(name) + first // part, window)
                        started = [one for one in (*names, name) if one]
                        args: dict[str, Value] = {"stationary": stationary, "moving": moving}
                        if begun or number:
                            args["accumulate"] = True
                        elif started:
                            args["accumulate"] = Condition(tuple(started))
                        elif not single or len(blocks_of(terms, part)) > 1:
                            args["accumulate"] = False
                        self.build.call("nc_matmul", full(psum), **args)
            begun = True
        self.local[id(node)] = full(psum)
        if id(node) in self.kept or node.dtype != "float32" or self.stores_of(node):
            dst = self.local[id(node)] = self._destination(node)
            self.build.call("tensor_copy", dst, src=full(psum))
            self._store(node, dst)

    def _windowed(
        self, n: int, right: Tile, rows: int, names: Sequence[str | None], block: Affine, window: Axes
    ) -> Strided:
        """Return the columns of one tap of a convolution in ``right``, a tile that has the ranges ``window`` for all taps."""
        access = self.reach[n].access
        _, (counted, shared) = self._terms(access.node, access.number // 2)
        ranges = list(zip(window[:-1], dense([e for e, _ in window])[:-1], strict=True))

        def placed(distance: int) -> int:
            """Return how far apart elements of HBM lie in the tile. ``distance`` is how far apart they lie in HBM."""
            return next((distance // s * to + placed(distance % s) for (_, s), to in ranges if distance >= s), distance)

        offset = ZERO
        for (_, stride), name in zip(counted, names, strict=True):
            offset += variable(name) * (stride if stride < shared[-1][1] else 0)
        if n in self.resident:
            start = self.chunk.offsets[n]
            offset += Affine(placed(start.constant), tuple((name, placed(step)) for name, step in start.terms))
        return Strided(right, rows, offset, tuple((placed(s), e) for e, s in self.chunk.inner[n]), (block,))

    def _part_piece(self, node: Node) -> Piece:
        """Return the piece that gets the result of a reduction over the columns of the present chunk."""
        if id(node) in self.parts:
            return self._piece(self.parts[id(node)], self.chunk.number, 1, self.row)
        return self._piece(self.tiles[id(node)], ZERO, 1, self.row)

    def _partial(self, node: Node, selected: dict[int, Selected]) -> None:
        """Write a reduction over the columns of the present chunk.

        Nothing is written if another instruction of the chunk, such as an activation with a sum, computes the reduction
        too.
        """
        if any(one.reduce is node for one in selected.values()):
            return
        data = self.operand(node, 0)
        data = self._gathered(data) if isinstance(data, Strided) and len(data.pattern) > 1 else data
        self.build.call("tensor_reduce", self._part_piece(node), op=_FOLD[node.name], data=data, axis=1)

    def _reduce_each(self, node: Node) -> None:
        """Write a reduction with several results in each row, as one instruction."""
        found = several_axes(node, math.prod(self.region.layout.rows), self.inside)
        assert found is not None
        results, summed = found
        data = self._rows_of(node, (*results, *summed))
        dst = self._destination(node)
        placed = dst if len(results) < 2 else _reshaped(dst, (self.part, *(e for e, _ in results)))
        self.build.call("tensor_reduce", placed, op=_FOLD[node.name], data=data, axis=len(results) + 1)
        self._store(node, dst)

    def _rows_of(self, node: Node, walked: Axes) -> Strided:
        """Return the whole rows that a node reads, a tile of which the column axes are ``walked``."""
        between = (variable(self.row),) if self.block > 1 else ()
        n = self.by_key.get((id(node), 0, "value"))
        if n is None:
            held, start = self.tiles[id(node.views[0].node)], Affine(node.views[0].offset)
        else:
            held, start = self.broadcast[n] if n in self.broadcast else self._whole_rows(n), ZERO
            between = () if n in self.broadcast else between
            columns = merged([self.reach[n].columns])[0]
            if n in self.broadcast or lying_together(columns) == columns:
                walked = tuple((e, s) for (e, _), s in zip(walked, dense([e for e, _ in walked]), strict=True))
        return Strided(held, self.part, start, tuple((s, e) for e, s in walked), between)

    def _scan(self, node: Node) -> None:
        """Write a scan of the present chunk. The scan continues from the last column of the previous chunk."""
        if _sorts(node):
            self._sort(node)
            return
        if searches(node):
            self._search(node)
            return
        decay, drive = (self._resolved(Operand(place, node, place, spread=True)) for place in (0, 1))
        dst = self._destination(node)
        carry = self.carried.get(id(node))
        op0, op1, start = SCANS[node.name]
        initial: Value = start if carry is None else self._piece(carry, ZERO, 1, self.row)
        self.build.call("tensor_tensor_scan", dst, data0=decay, data1=drive, initial=initial, op0=op0, op1=op1)
        if carry is not None:
            last = Piece(dst.tile, (*dst.spans[:-1], Span(dst.spans[-1].start + (self.chunk.size - 1), 1)))
            self.build.call("tensor_copy", self._piece(carry, ZERO, 1, self.row), src=last)
        self._store(node, dst)

    def _sort(self, node: Node) -> None:
        """Write a sorting network for each row of the present chunk.

        Each stage of the network computes the smaller and the greater element of all pairs that the stage compares.
        """
        data: Value = self._resolved(Operand(0, node, 0))
        assert isinstance(data, Piece | Strided)
        if isinstance(data, Strided):
            data = self._gathered(data)
        if data.tile.space == "psum":
            data = self._copied(data)
        dst = self._destination(node)
        every = network.stages(self.chunk.size)
        held = [full(self.build.tile("ordered", (self.part, self.chunk.size), node.dtype)) for _ in every[1:3]]
        for number, (distance, places) in enumerate(every):
            new = dst if number == len(every) - 1 else held[number % 2]
            for start, axes in network.rectangles(places):
                both = _columns_of(data, start, axes), _columns_of(data, start + distance, axes)
                for op, at in (("minimum", start), ("maximum", start + distance)):
                    self.build.call("tensor_tensor", _columns_of(new, at, axes), data1=both[0], data2=both[1], op=op)
            moved = {at + by for at in places for by in (0, distance)}
            for start, axes in network.rectangles([at for at in range(self.chunk.size) if at not in moved]):
                self.build.call("tensor_copy", _columns_of(new, start, axes), src=_columns_of(data, start, axes))
            data = new
        self._store(node, dst)

    def _search(self, node: Node) -> None:
        """Write a search for the eight greatest elements of each row: their values, or their positions."""
        n = self.by_key.get((id(node), 0, "value"))
        part = self._part_of(node, node.views[0]) if n is None else self.reach[n]
        assert part is not None
        rows = self._rows_of(node, merged([part.columns])[0])
        if [step for step, _ in rows.pattern] == [1]:
            spans = (
                Span(ZERO, self.part),
                *(Span(one, None) for one in rows.between),
                Span(rows.offset, rows.pattern[0][1]),
            )
            data = Piece(rows.tile, spans)
        else:
            data = full(
                self.build.tile("gathered", (self.part, math.prod(e for _, e in rows.pattern)), rows.tile.dtype)
            )
            self.build.call("tensor_copy", self._as_axes(data, merged([part.columns])[0]), src=rows)
        dst = self._destination(node)
        values = (
            full(self.build.tile("greatest", (self.part, EIGHT), rows.tile.dtype)) if node.name == "places" else dst
        )
        self.build.call("max8", values, src=data)
        if node.name == "places":
            found = full(self.build.tile("found", (self.part, EIGHT), "uint32"))
            self.build.call("nc_find_index8", found, data=data, vals=values)
            self.build.call("tensor_copy", dst, src=found)
        self._store(node, dst)

    def _gather(self, node: Node) -> None:
        """Write a gather: for each row, a load of that row of the table whose number is in the node's first operand."""
        n = self.by_key[(id(node), 1, "value")]
        table = self.reach[n].access.view
        row = math.prod(table.shape[len(table.shape) - node.folded :])
        index = self.operand(node, 0)
        assert isinstance(index, Piece)
        dst = self._destination(node)
        source = Gathered(self.memory.tensor(table.node), row, index, self.chunk.offsets[n], self.chunk.size)
        self.build.call("dma_copy", dst, src=source)
        self._store(node, dst)

    def _accumulate(self, node: Node) -> None:
        """Write the addition of the present chunk to a sum over rows.

        If a loop runs over the rows, its iterations add their rows one by one. If the rows lie on partitions, a matrix
        product with ones sums them.
        """
        data = self.operand(node, 0)
        total = self._piece(self.tiles[id(node)], self.chunk.position, self.chunk.size, self.row)
        if not self.totals:
            self.build.call("tensor_tensor", total, data1=total, data2=data, op="add")
            return
        if isinstance(data, Strided) or data.tile.space == "psum":
            data = self._gathered(data) if isinstance(data, Strided) else self._copied(data)
        ones = Piece(self.ones[data.tile.dtype], (Span(ZERO, self.part), Span(ZERO, 1)))
        total = Piece(total.tile, (Span(ZERO, 1), total.spans[-1]))
        for at, size, _ in self.build.strips("bank", self.chunk.size, min(self.chunk.size, BANK)):
            added = self.build.tile("added", (1, size), "float32", psum=True)
            self.build.call("nc_matmul", full(added), stationary=ones, moving=_shifted(data, at, size))
            part = _shifted(total, at, size)
            self.build.call("tensor_tensor", part, data1=part, data2=full(added), op="add")

    def _store(self, node: Node, source: Piece) -> None:
        """Write the stores of a node's value in the present chunk to HBM. ``source`` has the value."""
        for n in self.stores_of(node):
            beside, lead, length = self._beside(n)
            if beside:
                self._to_ranges(n, beside, lead, length, source)
                continue
            tensor = self.memory.tensor(self.reach[n].access.view.node)
            inner = self.chunk.inner[n] or ((1, 1),)
            step, offset = self.reach[n].strides[self.partition], self._offset(n, self.row) + self.chunk.offsets[n]
            if len(inner) == 1 and step == 1 and inner[0][1] > 1 and self._turns(source, inner[0][0]):
                self._store_turned(source, tensor, offset, inner[0])
                continue
            if len(inner) == 1 and inner[0][1] == -1 and inner[0][0] > 1:
                count = inner[0][0]
                turned = full(self.build.tile("reversed", (self.part, count), source.tile.dtype))
                self.build.call("tensor_copy", turned, src=_columns_of(source, count - 1, ((-1, count),)))
                source_now, offset, inner = turned, offset + (1 - count), ((count, 1),)
            elif (order := lying_order(inner)) is not None:
                held = full(self.build.tile("lying", (self.part, math.prod(e for e, _ in inner)), source.tile.dtype))
                self.build.call("tensor_copy", self._in_order(held, inner, order), src=self._as_axes(source, inner))
                source_now, inner = held, tuple(inner[at] for at in order)
            else:
                source_now = source
            pattern = ((step, self.part), *((s if e > 1 else 1, e) for e, s in inner))
            shaped = source_now if len(inner) == 1 else _reshaped(source_now, (self.part, *(e for e, _ in inner)))
            self.build.call("dma_copy", Block(tensor, offset, pattern), src=shaped)

    def _turns(self, source: Piece, columns: int) -> bool:
        """Tell whether the tensor engine can transpose a piece, and the piece has enough rows and columns to make that
        worthwhile.

        If the result is True, columns that are far apart in HBM are stored transposed.
        """
        own = source.tile.dtype in TURNED_AS and source.tile.space == "sbuf" and not source.bits_as
        return own and columns >= 32 and self.part >= LEAST_TURNED

    def _store_turned(self, source: Piece, tensor: HbmTensor, offset: Affine, axis: tuple[int, int]) -> None:
        """Write a store of rows whose elements are far apart in HBM, while the elements of each column are contiguous.

        The tensor engine transposes the data first. ``axis`` is the (extent, stride) of a row.
        """
        extent, stride = axis
        source = self._turnable(source)
        for at, size, _ in self.build.strips("strip", extent):
            across = self.build.tile("across", (size, self.part), source.tile.dtype, psum=True)
            self.build.call("nc_transpose", full(across), data=_shifted(source, at, size))
            block = self.build.tile("strip_tile", (size, self.part), tensor.dtype)
            self.build.call("tensor_copy", full(block), src=full(across))
            place = Block(tensor, offset + at * stride, ((stride, size), (1, self.part)))
            self.build.call("dma_copy", place, src=full(block))

    def _store_rows(self, n: int, tile: Tile) -> None:
        """Write the store of a whole tile of sums over rows, by HBM access ``n``."""
        reach = self.reach[n]
        axes = merged([reach.columns])[0]
        pattern = ((reach.strides[self.partition], self.part), *((s, e) for e, s in axes))
        self.build.call(
            "dma_copy",
            Block(self.memory.tensor(reach.access.view.node), self._offset(n, None), pattern),
            src=self._as_axes(full(tile), axes),
        )

    # -- names

    def _name(self, node: Node) -> str:
        """Return a name for a node's tile: the name of its variable in the reference, else a word for the node's
        function.
        """
        return self.memory.names.get(id(node)) or _PLAIN.get(node.name, node.name)

    def _source_name(self, n: int) -> str:
        """Return a name for the tile that HBM access ``n`` loads."""
        return f"{self.memory.tensor(self.reach[n].access.view.node).name}_tile"


_FOLD = {"add": "add", "max": "maximum", "min": "minimum", "mul": "multiply"}
_PLAIN = {
    "add": "sum_tile",
    "dot": "result",
    "max": "greatest",
    "min": "least",
    "mul": "scaled",
    "sub": "difference",
    "recip": "inverse",
    "abs": "magnitude",
    "exp": "weight",
    "linear": "state",
    "copy": "copied",
    "neg": "negative",
}


def _reshaped(piece: Piece, shape: tuple[int, ...]) -> Piece:
    """Return the same piece of a tile with the shape ``shape``, in which instructions read or write it."""
    return Piece(piece.tile, piece.spans, shape)


def _as(value: Value, part: int, shape: tuple[int, ...]) -> Value:
    """Return a piece with several columns in the shape (``part``, *``shape``). Any other value is returned unchanged."""
    wide = isinstance(value, Piece) and (value.spans[-1].count or 1) > 1
    return _reshaped(value, (part, *shape)) if wide and isinstance(value, Piece) else value


def _sorts(node: Node) -> bool:
    """Tell whether a node sorts each row. Such a node needs all columns of a row in one chunk."""
    return node.kind == "scan" and node.name == "sorted"


def _columns_of(piece: Piece, start: int, axes: Sequence[tuple[int, int]]) -> Piece | Strided:
    """Return the columns of a piece from column ``start`` on, along the axes ``axes``, which are pairs (step, count)."""
    if len(axes) == 1 and (axes[0][0] == 1 or axes[0][1] == 1):
        return _shifted(piece, Affine(start), axes[0][1])
    between = tuple(span.start for span in piece.spans[1:-1])
    return Strided(piece.tile, piece.spans[0].count or 1, piece.spans[-1].start + start, tuple(axes), between)


def _shifted(piece: Piece, start: Affine, size: int) -> Piece:
    """Return the ``size`` columns of a piece that begin at column ``start``."""
    last = piece.spans[-1]
    return Piece(piece.tile, (*piece.spans[:-1], Span(last.start + start, size)))
