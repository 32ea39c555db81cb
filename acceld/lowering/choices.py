"""Decide how a region runs: which rows are on partitions, in which order loops run, which values stay on the chip, when nodes run.

- A *fold* is a reduction, such as a sum.
- The *level* of a node is the number of passes over the columns that have to be complete before the node can run.
- Nodes of one level and one width are a *group*. They are computed together, in *chunks* of columns.
- A matrix product (dot) has a *left* operand, with the rows, and a *right* operand, with the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from acceld.lowering.axes import (
    FEW_TERMS,
    PARTITIONS,
    Axes,
    block_of,
    cut_behind,
    in_slices,
    largest_divisor,
    lying_order,
    merged,
    refined,
    split,
)
from acceld.lowering.graph import INDEX, Node, NotLowered, Shape, View, dense
from acceld.lowering.instructions import SEARCHES, Selection
from acceld.lowering.regions import FEW_ROWS, START, Access, Region, conforms
from acceld.lowering.regions import accesses as accesses_of
from acceld.lowering.statements import Affine, HbmTensor

BANK = 512
"""Number of float32 columns of a PSUM bank."""
SBUF = 176 * 1024
"""Bytes of each partition that the tiles of one loop nest may take: 192 KiB, less 16 KiB for other loop nests."""
CHUNK_BYTES = 16 * 1024
"""Most bytes of a partition for one chunk of columns in element-wise work."""
WIDEST = CHUNK_BYTES // 4
"""Greatest number of float32 columns in one chunk of element-wise work."""
VECTORS = 96 * 1024
"""Greatest number of bytes of a partition for rows that are copied to all partitions, such as a bias."""
RESIDENT = 100 * 1024
"""Greatest number of bytes of a partition for a right operand that stays on the chip."""
BYTES = {
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int16": 2,
    "uint16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "float8_e4m3": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


TRANSFER = 600
"""Rough number of cycles for which an element-wise region waits for a DMA transfer of a few rows."""
ROW = 0.8
"""Rough number of cycles that a DMA transfer takes for each contiguous row of elements in HBM."""
SPARSEST = 4
"""Rough limit on the ratio of all elements of a contiguous range to the elements of it that are needed.

Up to this ratio, loading the range takes less time than loading each needed element separately.
"""
FEW_COLUMNS = 64
"""Greatest number of columns that an instruction computes in the time of one column.

Regions with so few columns all have the same layout, so that values can stay on the chip from region to region.
"""
LEAST_TURNED = 16
"""Least number of rows on partitions for which columns that are not contiguous are loaded and stored transposed."""
LEAST_CUT = 1024
"""Least number of elements for which an element-wise region may become two loop nests."""
STRIP = 400
"""Rough number of cycles that a transposed load and its transposition take, in addition to one cycle for each row."""
FLOATS = ("float32", "bfloat16", "float16")
"""Dtypes that operands of the tensor engine may have."""
TURNED_AS = {
    **dict(zip(FLOATS, FLOATS, strict=True)),
    **dict.fromkeys(("int8", "uint8", "float8_e4m3", "float8_e4m3fn", "float8_e5m2"), "bfloat16"),
    **dict.fromkeys(("int16", "uint16"), "float32"),
}
"""The dtype in which the tensor engine transposes elements, by their own dtype. It has each of their values."""


@dataclass(frozen=True, slots=True)
class HbmPlacement:
    """The places of values in HBM. Each field is a dict by the id of the node that computes a value.

    ``tensors`` has the tensor of a value, ``targets`` has the parts of tensors to which the value is stored, and
    ``names`` has the name of the value. The values of all steps of a loop share a tensor. ``starts`` has the position
    of a step's first element in that tensor.
    """

    tensors: dict[int, HbmTensor]
    starts: dict[int, int]
    targets: dict[int, list[View]]
    names: dict[int, str]

    def tensor(self, node: Node) -> HbmTensor:
        """Return the tensor in HBM of an input, a buffer, or a value that another region reads."""
        return self.tensors[id(node)]

    def offset(self, view: View) -> int:
        """Return the offset of a view's first element in its HBM tensor, in elements."""
        return self.starts.get(id(view.node), 0) + view.offset


@dataclass(frozen=True, slots=True)
class Rolled:
    """Several equal regions, written as one region inside of loops.

    - ``counts``: the number of trips of each loop.
    - ``steps``: for each HBM access and each loop, how many elements the access moves on in a trip.
    - ``moves``: for each HBM access, how many elements the access moves on in a trip of a further loop, which runs
      several regions. ``moves`` is empty if there is no such loop.
    """

    region: Region
    counts: tuple[int, ...] = ()
    steps: tuple[tuple[int, ...], ...] = ()
    moves: tuple[int, ...] = ()


@dataclass(slots=True)
class Reach:
    """One HBM access of a loop nest, with its strides.

    ``start`` is the first element, and ``strides`` has a stride for each row axis of the nest. ``columns`` has the axes
    of the columns, and ``depth`` the axes that a matrix product sums over, as pairs (extent, stride).
    """

    access: Access
    start: Affine
    strides: list[int]
    columns: Axes
    depth: Axes

    @property
    def scalar(self) -> bool:
        """Return True if the access has one element in each row."""
        return not any(stride for _, stride in self.columns)

    @property
    def width(self) -> int:
        """Return the number of columns of the access."""
        return math.prod(extent for extent, _ in self.columns)

    @property
    def dtype(self) -> str:
        """Return the dtype of the elements that are read or written."""
        return self.access.view.dtype


def _turned(columns: Axes) -> bool:
    """Tell whether columns are so many and so far apart in memory that they are loaded transposed.

    Columns are loaded transposed only if the rows are contiguous, which the caller checks.
    """
    return len(columns) == 1 and columns[0][0] >= 32 and columns[0][1] not in (0, 1)


def _few_columns(extents: Sequence[int]) -> bool:
    """Tell whether the first of several row axes fits on partitions, with at most ``FEW_COLUMNS`` columns beside it."""
    return len(extents) > 1 and extents[0] <= PARTITIONS and math.prod(extents[1:]) <= FEW_COLUMNS


def _ranged(columns: Axes) -> Axes:
    """Return the column axes in the order in which a transfer goes through them.

    If the axes cover a mostly dense range of HBM, this is the order of the elements in HBM. Otherwise the order stays
    as given.
    """
    apart = tuple(axis for axis in columns if axis[1])
    ordered = merged([tuple(sorted(apart, key=lambda axis: -axis[1]))])[0]
    reach = 1 + sum((extent - 1) * stride for extent, stride in apart)
    dense = reach <= min(SPARSEST * math.prod(extent for extent, _ in apart), WIDEST)
    return ordered if dense and ordered and ordered[-1][1] == 1 and apart[-1][1] != 1 else merged([apart])[0]


def _last_axis(extents: Sequence[int], rows: Sequence[Axes], count: int) -> tuple[list[int], list[Axes]]:
    """Return row axes whose last axis has ``count`` elements: the extents, and the axes of each HBM access."""
    return [*extents[:-1], count], [(*one[:-1], (count, one[-1][1])) for one in rows]


def searches(node: Node) -> bool:
    """Tell whether a node searches each row for its greatest elements."""
    return node.kind == "scan" and node.name in SEARCHES


def _alike(one: Access, other: Access) -> bool:
    """Return True if two HBM accesses differ only in their offsets."""
    same = one.view.node is other.view.node or one.role == "store"
    return same and (one.role, one.view.shape, one.view.strides) == (other.role, other.view.shape, other.view.strides)


class Choices:
    """The decisions about how one region runs. They are made before its statements are written."""

    def __init__(
        self,
        memory: HbmPlacement,
        rolled: Rolled,
        accesses: Sequence[Access],
        *,
        sliced: bool,
        sums_beside: bool,
        strip: tuple[int, int] | None = None,
    ) -> None:
        self.memory, self.rolled, self.strip = memory, rolled, strip
        self.strips: list[tuple[int, int]] = []
        """Ranges (first, count) of the last row axis of an element-wise region, if a loop nest for each range takes less
        time than this loop nest for all of the axis.
        """
        self.region = rolled.region
        self.nodes = self.region.nodes
        self.inside = {id(node) for node in self.nodes}
        self.width = dict(self.region.layout.columns)
        self.folds = self.region.layout.folds
        self.sliced = sliced
        self._rows(accesses)
        self.selection = Selection(self, sums_beside=sums_beside)
        self.by_key = {(id(r.access.node), r.access.number, r.access.role): n for n, r in enumerate(self.reach)}
        self._levels()
        self._axes()
        self._residents()

    def _rows(self, accesses: Sequence[Access]) -> None:
        """Merge the row axes of the region. If the region is element-wise, also choose which elements are columns."""
        counts, steps = self.rolled.counts, self.rolled.steps
        rows = [access.rows for access in accesses]
        extents = list(self.region.layout.rows)
        if not self.folds:
            shapes = [self.memory.tensor(access.view.node).shape for access in accesses]
            if not (self.region.pure and _few_columns(extents)):
                rows = in_slices(rows, shapes) if self.sliced else merged(rows)
            extents = [n for n, _ in rows[0]] if rows else extents
        columns = [access.columns for access in accesses]
        starts = [0] * len(rows)
        if self.region.pure and extents:
            if self.strip is not None:
                starts = [self.strip[0] * one[-1][1] for one in rows]
                extents, rows = _last_axis(extents, rows, self.strip[1])
            total = math.prod(extents)
            time, order, axis, part = self._pure_columns(extents, rows, accesses)
            whole_rows, every = extents, rows
            rows = [tuple(one[at] for at in order) for one in rows]
            extents, rows, columns = cut_behind([extents[at] for at in order], rows, axis, part)
            width = total // math.prod(extents)
            self.strips = [] if self.strip else self._cut_last(whole_rows, every, accesses, time, width)
            for node in self.nodes:
                self.width[id(node)] = width
        self.extents = [*counts, *extents]
        self.rolled_axes = len(counts)
        self.reach = [
            Reach(
                access,
                Affine(self.memory.offset(access.view) + starts[n]),
                [*(steps[n] if steps else ()), *(s for _, s in rows[n])],
                columns[n],
                access.depth,
            )
            for n, access in enumerate(accesses)
        ]
        if self.folds:
            self.folds = {key: axis + len(counts) for key, axis in self.folds.items()}

    def _pure_columns(
        self, extents: Sequence[int], rows: Sequence[Axes], accesses: Sequence[Access]
    ) -> tuple[float, list[int], int, int]:
        """Choose which elements of an element-wise region are columns: (estimated time, order of the axes, number of an axis,
        count).

        In this order of axes, ``count`` elements of that axis and all elements of the axes after it become columns. The
        choice has the least estimated time of all instructions and transfers.
        """
        limit = self._most_columns(rows)
        axes = list(range(len(extents)))
        last = axes[-1]
        # Columns that lie apart are loaded transposed, which needs one axis of columns.
        moved = [one for one, access in zip(rows, accesses, strict=True) if access.view.node is not INDEX]
        turned = any(one[last][1] not in (0, 1) and any(s == 1 for _, s in one[:last]) for one in moved)
        orders = [axes] if turned else [axes, *([p, *axes[:p], *axes[p + 1 :]] for p in axes[1:last])]
        if turned:  # also consider the axes that are contiguous in most accesses as columns
            orders += [[*axes[:p], *axes[p + 1 :], p] for p in axes[:last]]
        beside = [sum(_alike(one, other) for other in accesses) for one in accesses]
        beside = [count if a.view.node is not INDEX else 0 for count, a in zip(beside, accesses, strict=True)]
        # an axis along the first axis of a tensor, such as the axis of a batch, stays on partitions
        shapes = [self.memory.tensor(access.view.node).shape for access in accesses]
        batch = any(len(shape) > 1 and one[0][1] == dense(shape)[0] for one, shape in zip(rows, shapes, strict=True))
        if len(extents) == 1 and extents[0] <= (PARTITIONS if batch else FEW_COLUMNS):
            return 0.0, axes, 0, 1 if batch else extents[0]
        if _few_columns(extents):
            return 0.0, axes, 1, extents[1]
        found = []
        for order in orders:
            behind = 1
            for axis in range(last, -1, -1):
                extent = extents[order[axis]]
                for part in range(1, min(extent, max(1, limit // behind)) + 1):
                    if extent % part == 0:
                        placed = [tuple(one[at] for at in order) for one in rows]
                        heads, apart, columns = cut_behind([extents[at] for at in order], placed, axis, part)
                        found.append((self._time(heads, part * behind, apart, columns, beside), order, axis, part))
                behind *= extent
                if behind > limit:
                    break
        return min(found, key=lambda one: one[0])

    def _most_columns(self, rows: Sequence[Axes]) -> int:
        """Return the greatest number of columns of an element-wise region with the HBM accesses ``rows``."""
        live = max(3, len(self.nodes) // 2 + len(rows))
        return max(64, min(2048, SBUF // (8 * live)))

    def _cut_last(
        self, extents: Sequence[int], rows: Sequence[Axes], accesses: Sequence[Access], time: float, width: int
    ) -> list[tuple[int, int]]:
        """Return two ranges (first, count) of the last row axis that take less time together than ``time``, the time with
        ``width`` columns. Return no ranges if there are none, or if ``width`` fills partitions and instructions.

        A prime number of elements, for example, has no other rows than one long row and single elements.
        """
        total = math.prod(extents)
        if total < LEAST_CUT or (width >= FEW_COLUMNS and total // width >= FEW_ROWS):
            return []
        tiles = -(-extents[-1] // (PARTITIONS * self._most_columns(rows)))
        most = extents[-1] // (PARTITIONS * tiles) * PARTITIONS * tiles
        if not 0 < most < extents[-1]:
            return []
        strips = [(0, most), (most, extents[-1] - most)]
        each = (self._pure_columns(*_last_axis(extents, rows, count), accesses)[0] for _, count in strips)
        return strips if 2 * sum(each) < time else []

    def _time(
        self, extents: Sequence[int], width: int, heads: Sequence[Axes], columns: Sequence[Axes], beside: Sequence[int]
    ) -> float:
        """Return an estimate of the cycles that an element-wise region takes with ``width`` columns.

        ``extents`` are the row axes of the region. ``heads`` and ``columns`` have the row axes and the column axes of each
        HBM access. ``beside`` has, for each access, how many accesses differ from it only in their offsets; 0 for
        positions, which the chip computes.
        """
        place = max(range(len(extents)), key=lambda at: (min(extents[at], PARTITIONS), at), default=-1)
        rows = extents[place] if extents else 1
        size = rows if rows <= PARTITIONS else (largest_divisor(rows, PARTITIONS, 64) or PARTITIONS)
        tiles = math.prod(extents) // rows * -(-rows // size)
        cycles = float(len(self.nodes) * (width + START))
        for lead, axes, alike in zip(heads, columns, beside, strict=True):
            if not alike:
                cycles += START + width
                continue
            if lead and lead[place][1] == 1 and _turned(axes) and size >= LEAST_TURNED:
                strips = -(-axes[0][0] // PARTITIONS)
                cycles += TRANSFER + strips * (STRIP + ROW * PARTITIONS + size)
                continue
            ranged = _ranged(axes)
            # columns in reverse order are loaded as a range, and reversed on the chip
            if len(axes) == 1 and axes[0][1] == -1:
                ranged = ((axes[0][0], 1),)
            # columns in another order than in memory are reordered on the chip
            if (order := lying_order(ranged)) is not None:
                ranged = tuple(ranged[at] for at in order)
                cycles += START + width
            # accesses that differ only in their offsets can be one transfer of contiguous rows
            together = bool(ranged) and 1 < ranged[-1][1] <= alike
            run = ranged[-1][0] if ranged and (ranged[-1][1] == 1 or together) else 1
            share = alike if together else 1
            cycles += (TRANSFER + ROW * size * math.prod(n for n, _ in ranged) / run) / share
        return tiles * cycles

    def _levels(self) -> None:
        """Set the level of each node, and choose which values are kept on the chip for later levels.

        A node that needs whole rows of an operand is one level above the operand. Reductions over columns need whole
        rows. Matrix products need whole rows of their left operands.
        """
        self.level: dict[int, int] = {}
        self.attached: dict[int, tuple[int, int]] = {}
        for node in self.nodes:
            level = 0
            for view in node.views:
                if id(view.node) not in self.inside:
                    continue
                below = self.level[id(view.node)]
                column = view.node.kind == "dot" and self.width[id(view.node)] == 1 and id(node) not in self.folds
                whole_rows = node.kind == "dot" or column
                if node.kind == "reduce" and id(node) not in self.folds:
                    whole_rows = True
                whole_rows |= self._part_of(node, view) is not None
                level = max(level, below + (1 if whole_rows else 0))
            if node.kind == "reduce" and id(node) not in self.folds and not self.has_several(node):
                level = max(level, 1)
                self.attached[id(node)] = (level - 1, self._over(node))
            self.level[id(node)] = level
        # A fold is computed together with its operand, one level before its result can be used.
        self.kept: set[int] = set()
        for node in self.nodes:
            for read in node.views:
                if id(read.node) in self.inside and self._needs_tile(node, read.node):
                    self.kept.add(id(read.node))
        self._fit()

    def _part_of(self, node: Node, view: View) -> Access | None:
        """Return the access by which ``node`` reads only a part of each row of ``view``, a value that the region
        computes.

        A reduction with several results in a row reads in the same way. Return None if the node reads whole rows, or if
        the value comes from outside of the region.
        """
        several = self.has_several(node)
        if not (node.kind == "elementwise" or several) or id(view.node) not in self.inside or self.region.pure:
            return None
        found = next(a for a in accesses_of(node, self.region.layout.rows) if a is not None and a.view is view)
        return found if several or not conforms(found, self.width[id(view.node)]) else None

    def has_several(self, node: Node) -> bool:
        """Tell whether a node is a reduction with several results in each row, or searches each row."""
        several = node.kind == "reduce" and id(node) not in self.folds and self.width[id(node)] > 1
        return several or searches(node)

    def _fit(self) -> None:
        """Choose which values are computed again instead of kept, until the rows of all kept values fit in a partition.

        Raise NotLowered if the rows do not fit.
        """
        self.again: set[int] = set()

        def kept_bytes() -> int:
            """Return the bytes of a partition that the kept rows take."""
            return sum(self.width[id(n)] * BYTES[n.dtype] for n in self.nodes if id(n) in self.kept)

        for node in sorted(self.nodes, key=lambda n: -self.width[id(n)]):
            if kept_bytes() <= SBUF - 2 * CHUNK_BYTES:
                return
            readers = [one for one in self.nodes if any(view.node is node for view in one.views)]
            cheap = node.kind == "elementwise" and all(
                one.kind in ("elementwise", "reduce")
                and all(self._part_of(one, view) is None for view in one.views if view.node is node)
                for one in readers
            )
            if id(node) in self.kept and cheap:
                self.kept.remove(id(node))
                self.again.add(id(node))
        if kept_bytes() > SBUF:
            line = max(node.line for node in self.nodes)
            raise NotLowered(
                f"this step keeps rows of {kept_bytes() // 1024} KiB, and a partition holds {SBUF // 1024} KiB, so the step "
                "is not lowered; reduce or multiply over fewer columns at once",
                line,
            )

    def _with_sources(self, nodes: list[Node], level: int, width: int) -> list[Node]:
        """Return the nodes of a group, and before them the nodes of earlier groups that the group computes again.

        A group has the nodes of one ``level``, as the module explains, and of one ``width`` in columns.
        """
        found = {id(node) for node in nodes}
        todo = list(nodes)
        while todo:
            for view in todo.pop().views:
                source = view.node
                apart = id(source) in self.inside and (self.level[id(source)], self.width[id(source)]) != (level, width)
                if apart and self.width[id(source)] > 1 and id(source) not in self.kept and id(source) not in found:
                    found.add(id(source))
                    todo.append(source)
        return [node for node in self.nodes if id(node) in found]

    def _only_again(self, node: Node) -> bool:
        """Tell whether a node's value is used only in later groups, and all these groups compute the value again."""
        here = (self.level[id(node)], self.width[id(node)])
        readers = [one for one in self.nodes if any(view.node is node for view in one.views)]
        return (
            id(node) in self.again
            and bool(readers)
            and not self.stores_of(node)
            and all(self._group_of(one) != here for one in readers)
        )

    def _over(self, node: Node) -> int:
        """Return how many elements a reduction combines into each result."""
        view = node.views[0]
        return math.prod(view.shape[len(view.shape) - node.folded :])

    def _needs_tile(self, node: Node, source: Node) -> bool:
        """Tell whether the rows of ``source`` have to be kept in a tile until ``node``, which runs in another group,
        reads them.
        """
        if self.column_width(source) == 1 and source.kind != "dot":
            return False
        if self.has_several(node):
            return True
        if node.kind == "reduce":
            here = self.attached.get(id(node), (self.level[id(source)], self.width[id(source)]))
            return here != (self.level[id(source)], self.width[id(source)])
        return node.kind == "dot" or (self.level[id(node)], self.width[id(node)]) != (
            self.level[id(source)],
            self.width[id(source)],
        )

    def read_from_hbm(self, node: Node, place: int) -> bool:
        """Tell whether a node reads its operand number ``place`` from HBM."""
        return (id(node), place, "value") in self.by_key

    def scalar_in_hbm(self, node: Node, place: int) -> bool:
        """Tell whether operand number ``place`` of a node, which must come from HBM, has one element in each row."""
        return self.reach[self.by_key[(id(node), place, "value")]].scalar

    def column_width(self, node: Node) -> int:
        """Return the number of columns of a node's value."""
        return self.width[id(node)]

    def _axes(self) -> None:
        """Choose the row axis that is on partitions, and the order of the loops over the other row axes."""
        rights = [reach for reach in self.reach if reach.access.role == "right"]
        folded = set(self.folds.values())
        # A product with ones sums over partitions. The tensor engine has no integers.
        summed = all(node.views[0].dtype in FLOATS for node in self.nodes if id(node) in self.folds)
        able = [
            a
            for a in range(len(self.extents))
            if (a not in folded or (summed and folded == {a})) and not any(reach.strides[a] for reach in rights)
        ]
        able = [a for a in able if a >= self.rolled_axes] or able
        if able:
            self.partition = max(able, key=lambda a: (min(self.extents[a], PARTITIONS), a not in folded, a))
        else:
            self.partition = len(self.extents)
            self.extents.append(1)
            for reach in self.reach:
                reach.strides.append(0)
        others = [a for a in range(len(self.extents)) if a != self.partition]
        lefts = [reach for reach in self.reach if reach.access.role == "left"]
        shared = {
            a
            for a in others
            if lefts and not any(reach.strides[a] for reach in lefts) and any(reach.strides[a] for reach in rights)
        }
        if self.folds or any(
            id(node.views[2 * pair].node) in self.inside
            for node in self.nodes
            if node.kind == "dot"
            for pair in range(len(node.views) // 2)
        ):
            shared = set()
        self.inner_axes = [a for a in others if a in folded or a in shared]
        outer = [a for a in others if a not in self.inner_axes]
        self.outer_axes = sorted(outer, key=lambda a: (not any(reach.strides[a] for reach in rights), a))
        rows = self.extents[self.partition]
        self.rows = rows if rows <= PARTITIONS else (largest_divisor(rows, PARTITIONS, 64) or PARTITIONS)

    def _residents(self) -> None:
        """Choose which right operands of matrix products stay on the chip.

        For a right operand that does not fit, choose how many tiles of rows share each load of it.
        """
        left = {n: self._depth(n) for n, reach in enumerate(self.reach) if reach.access.role == "right"}
        self.vectors = self._vectors()
        row_bytes = sum(self.width[id(node)] * BYTES[node.dtype] for node in self.nodes if id(node) in self.kept)
        deep = {
            id(node): sum(
                math.prod(view.shape[len(view.shape) - node.folded :]) * BYTES[view.dtype] for view in node.views[::2]
            )
            for node in self.nodes
            if node.kind == "dot"
        }
        row_bytes += 2 * sum(deep.values())
        budget = SBUF - row_bytes - sum(self.reach[n].width * 4 for n in self.vectors) - 24 * 1024
        sizes = {n: blocks * self.reach[n].width * BYTES[self.reach[n].dtype] for n, (_, blocks) in left.items()}
        self.resident: set[int] = set()
        for n in sorted(sizes, key=lambda n: sizes[n]):
            if sizes[n] <= min(budget, RESIDENT):
                self.resident.add(n)
                budget -= sizes[n]
        streamed = [n for n in left if n not in self.resident]
        self.shared_axis = self.partition
        if self.extents[self.partition] == self.rows:
            rights = [self.reach[n] for n in left]
            alike = [a for a in self.outer_axes if not any(reach.strides[a] for reach in rights)]
            self.shared_axis = alike[-1] if alike else self.partition
        along = self.extents[self.shared_axis]
        tiles = along // self.rows if self.shared_axis == self.partition else along
        self.together = 1
        if streamed and not self.inner_axes and self.partition not in self.folds.values():
            spare = SBUF - 24 * 1024 - sum(sizes[n] for n in self.resident)
            spare -= max(left[n][1] * BYTES[self.reach[n].dtype] for n in streamed) * BANK * 2
            fits = max(1, spare // max(row_bytes, 1))
            self.together = max(d for d in (1, 2, 4, 8, 16) if d == 1 or (d <= fits and tiles % d == 0))

    def traffic(self) -> int:
        """Return an estimate of the bytes that move between HBM and the chip."""
        total = 0
        for n, reach in enumerate(self.reach):
            elements = math.prod(e for e, _ in (*reach.columns, *reach.access.depth))
            if reach.access.role != "right":
                trips = math.prod(self.extents) if n not in self.vectors else 1
            elif n in self.resident:
                trips = math.prod(extent for a, extent in enumerate(self.extents) if reach.strides[a])
            else:
                others = math.prod(extent for a, extent in enumerate(self.extents) if a != self.partition)
                trips = max(1, others * -(-self.extents[self.partition] // self.rows) // self.together)
            total += trips * elements * BYTES[reach.dtype]
        return total

    def _vectors(self) -> list[int]:
        """Return the HBM accesses whose single row, such as a bias, is copied as a whole to all partitions.

        Rows that do not fit are left out. They are loaded in chunks.
        """
        found, room = [], VECTORS
        for n, reach in sorted(enumerate(self.reach), key=lambda item: item[1].width):
            alike = reach.access.role == "value" and reach.access.node.kind != "gather" and not reach.scalar
            if alike and not reach.strides[self.partition] and reach.width * 4 <= room:
                room -= reach.width * 4
                found.append(n)
        return sorted(found)

    def _dot_depth(self, node: Node, number: int) -> Axes:
        """Return the (extent, stride) axes of operand ``number`` that a dot node sums over."""
        view = node.views[number]
        kept = len(view.shape) - node.folded
        return tuple((n, s) for n, s in zip(view.shape[kept:], view.strides[kept:], strict=True) if n != 1)

    def _terms(self, node: Node, pair: int) -> tuple[tuple[Axes, Axes], tuple[Axes, Axes]]:
        """Divide the axes that matrix product number ``pair`` of a node sums over into blocks and terms on
        partitions.

        Return a pair (axes of the blocks, axes whose terms lie on partitions) for the left operand, and a pair for
        the right operand. Usually only the last axis lies on partitions. If the last axis fills few partitions,
        further axes lie on partitions too, such as the taps of a convolution. A slice can not select terms along
        several axes, so a kernel that is written with slices keeps the last axis alone. Raise NotLowered if the
        operands divide the axes differently.
        """
        left, right = self._depth_pairs(node, pair)
        at, terms = len(left) - 1, left[-1][0]
        few = not self.sliced and left[-1][0] <= FEW_TERMS and right[-1][1] != 1
        while at and few and terms * left[at - 1][0] <= PARTITIONS:
            at -= 1
            terms *= left[at][0]
        return (left[:at], left[at:]), (right[:at], right[at:])

    def _depth_pairs(self, node: Node, pair: int) -> tuple[Axes, Axes]:
        """Return the axes that matrix product number ``pair`` of a node sums over: (axes of the left operand, of the right).

        The axes are split so that both operands have the same extents. Raise NotLowered if that is not possible.
        """
        left, right = self._dot_depth(node, 2 * pair), self._dot_depth(node, 2 * pair + 1)
        extents = refined([n for n, _ in left], [n for n, _ in right])
        if extents is None:
            raise NotLowered(
                "a product whose operands divide the summed axes differently is not lowered; use extents of which one divides "
                "the other: (6, 4) and (2, 12) are lowered together, (2, 3) and (3, 2) are not",
                node.line,
            )
        sides = [split(left, extents), split(right, extents)]
        if not self.sliced:
            # A sum may be computed in any order: terms that lie beside each other in both operands are one axis.
            order = sorted(range(len(extents)), key=lambda at: -sides[0][at][1])
            a, b = min(
                merged(sides), merged([tuple(one[at] for at in order) for one in sides]), key=lambda one: len(one[0])
            )
        else:
            a, b = in_slices(sides, [self._shape_of(view.node) for view in node.views[2 * pair : 2 * pair + 2]])
        if not a:
            return ((1, 0),), ((1, 0),)
        # A sum may be computed in any order. The last axis lies on partitions, so the axis that fills most partitions
        # comes last. Beside an axis of few terms, contiguous terms come first: one transfer reads them in ranges.
        order = sorted(range(len(a)), key=lambda at: (block_of(a[at][0]), b[at][1] != 1 and not self.sliced, at))
        if not self.sliced and a[order[-1]][0] <= FEW_TERMS:
            order.sort(key=lambda at: b[at][1] != 1)
        return tuple(a[at] for at in order), tuple(b[at] for at in order)

    @property
    def steps(self) -> int:
        """Return how many instructions each result of the region's matrix products takes: one for each block of terms."""
        total = 0
        for node in self.nodes:
            for pair in range(len(node.views) // 2 if node.kind == "dot" else 0):
                total += self._blocks(node, pair)[1]
        return total

    def _shape_of(self, node: Node) -> Shape:
        """Return the shape of a node's tensor in HBM. A value that stays on the chip counts as one very long axis."""
        held = self.memory.tensors.get(id(node)) if id(node) not in self.inside else None
        return held.shape if held is not None else (2**62,)

    def _depth(self, n: int) -> tuple[int, int]:
        """Return (number of partitions, number of blocks) of the tile for a right operand, which is HBM access ``n``."""
        access = self.reach[n].access
        return self._blocks(access.node, access.number // 2)

    def _blocks(self, node: Node, pair: int) -> tuple[int, int]:
        """Return (number of partitions, number of blocks) of the operands of matrix product number ``pair`` of a node."""
        (counted, shared), _ = self._terms(node, pair)
        terms = math.prod(n for n, _ in shared)
        part = block_of(terms)
        return part, math.prod(n for n, _ in counted) * -(-terms // part)

    def _group_of(self, node: Node) -> tuple[int, int]:
        """Return the level and width of the group in which a node is computed."""
        return self.attached.get(id(node), (self.level[id(node)], self.width[id(node)]))

    def counts_in_place(self, node: Node) -> bool:
        """Tell whether a node compares positions with 0, and one affine pattern gives these positions.

        Here the answer is always False: it depends on the chunk of columns, which only a loop nest (a subclass) knows.
        """
        return False

    def stores_of(self, node: Node) -> list[int]:
        """Return the numbers of the HBM accesses that store a node's result."""
        return [n for n, reach in enumerate(self.reach) if reach.access.role == "store" and reach.access.node is node]
