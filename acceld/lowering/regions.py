"""Divide a graph into regions.

A region is a set of nodes that work on the same rows. Each value of a region is a tile [rows, columns] on the chip. A
value stays on the chip if its reader uses each row on the partition where the row was computed. Any other value goes
through HBM. By this rule a softmax, a norm, an attention, a gated layer or an epilogue becomes a single region.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import operator
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from acceld.lowering.axes import DEEPEST, PARTITIONS, Axes, lying_together, merged, prefix, refined, split, squeezed
from acceld.lowering.graph import Graph, Node, Shape, View, dense, overlap, root
from acceld.lowering.steps import Steps, repeated, with_results_apart
from acceld.lowering.stores import COMPUTED, in_order

WIDEST_VALUES = 40 * 1024
"""Greatest number of elements of a row of the three widest values together, for a region with matrix products.

In float32, these elements take 160 of the 192 KiB of a partition. A region without products may be wider, because it
can compute values again instead of keeping them.
"""
WIDEST_PART = 4 * 1024
"""Greatest number of columns of a node that reads parts of rows on the chip, because all columns of such a node are one
chunk.
"""
FEW_ROWS = 32
"""Number of rows up to which a region leaves most of the 128 partitions idle."""
IDLE = 4
"""Number of rows up to which the results of matrix products are moved through HBM, so that element-wise work can use
all partitions.
"""
LONG_ROW = 4096
"""Number of elements of a row from which on storing it to HBM and loading it again takes less time than work on few
partitions.
"""
LEAST_COLUMNS = 64
"""Least number of columns of a matrix product. With fewer columns, the tensor engine is mostly idle."""
MOST_NODES = 40
SHORTEST, WIDEST_SHORT = 32, 1024
"""Greatest number of elements of a row that counts as short; greatest number of elements of several short rows that lie
on one partition.
"""
START = 64
"""Cycles that an instruction takes in addition to one cycle for each column."""
LEAST_SUMMED = 16
"""Least number of rows that are summed on partitions, if nothing else of the region needs rows."""
FULL = 64
"""Number of rows from which on the partitions count as well used."""
WIDE_ROW, SHORT_ROW = 4096, 512
"""Greatest number of elements of a row with several results of a reduction: if the region has as many rows as
:func:`_fewer_rows` is asked for, and if it has fewer.
"""
Role = Literal["value", "left", "right", "store"]


@dataclass(frozen=True, slots=True)
class Access:
    """A read or write of HBM by a region, or a node's read of another node of the same region.

    ``number`` is the number of the node's operand; -1 for a store. Axes are pairs (extent, stride). ``rows`` has one
    axis for each row axis of the region, ``columns`` has the axes of the columns, and ``depth`` has the axes that a
    matrix product sums over.
    """

    node: Node
    number: int
    role: Role
    view: View
    rows: Axes
    columns: Axes
    depth: Axes = ()


def fixed_rows(node: Node) -> Axes | None:
    """Return the row axes that a node needs; None for an element-wise node, which can have any row axes."""
    if node.kind == "elementwise":
        return None
    operand = node.views[0]
    kept = len(operand.shape) - {"scan": 1, "gather": 0}.get(node.kind, node.folded)
    return squeezed(operand.shape[:kept], operand.strides[:kept])


@dataclass(frozen=True, slots=True)
class Layout:
    """The row axes of a region, and the columns of each of its nodes."""

    rows: Shape
    columns: dict[int, int]
    """Number of columns of each node, by the node's id."""
    folds: dict[int, int]
    """Number of the row axis that a node sums over, by the node's id.

    Only nodes that sum over a row axis have an entry. Their results have the other row axes.
    """


@dataclass(eq=False, slots=True)
class Region:
    """A set of graph nodes with the same rows, which becomes one loop nest: the nodes in order, their layout, and
    the ids of the regions that have to run before this region.
    """

    nodes: list[Node]
    layout: Layout
    before: set[int] = field(default_factory=set)

    @property
    def pure(self) -> bool:
        """Tell whether all nodes of the region are element-wise. Then every axis can be a row axis."""
        return all(node.kind == "elementwise" for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Turns:
    """The regions of a loop over steps. ``bodies`` has the regions of each step, in an order in which they can run."""

    bodies: tuple[tuple[Region, ...], ...]


@dataclass(frozen=True, slots=True)
class Division:
    """A graph divided into regions: ``parts`` in an order in which they can run, and the ``steps`` of its loops."""

    parts: tuple[Region | Turns, ...]
    graph: Graph
    steps: tuple[Steps, ...]

    @property
    def regions(self) -> list[Region]:
        """Return all regions of the graph, also the regions inside of loops over steps, in an order in which they can
        run.
        """
        return [
            region
            for part in self.parts
            for region in (itertools.chain(*part.bodies) if isinstance(part, Turns) else (part,))
        ]


def layout(nodes: Sequence[Node], read_outside: set[int], rows_in_all: int = 0) -> Layout | None:
    """Return the rows that ``nodes`` share and the columns of each node; None if the nodes can not be one region.

    ``read_outside`` has the ids of nodes whose results are needed in HBM. If ``rows_in_all`` is not 0, the region
    gets this number of rows. Where a matrix product has fewer rows, leading column axes become rows, such as the
    image rows of a convolution. Where a reduction has more results, each row gets several results.
    """
    inside = {id(node) for node in nodes}
    folds: dict[int, int] = {}
    several = bool(rows_in_all) and any(node.kind == "reduce" for node in nodes)
    sums = [] if several else [node for node in nodes if _sums_rows(node, inside) and id(node) in read_outside]
    anchored = [node for node in nodes if node.kind != "elementwise" and node not in sums]
    totals = {math.prod(n for n, _ in fixed_rows(node) or ()) for node in anchored}
    if rows_in_all and (sums or any(node.kind != ("reduce" if several else "dot") for node in anchored)):
        return None
    if len(totals) > 1 and not several:
        return None
    if not totals:  # the axis that is summed over is the last row axis
        ends = [(*_last_fold(node), node.views[0].node.size) for node in sums]
        totals = {size // width for n, width, size in ends if n >= LEAST_SUMMED and 0 < width <= LONG_ROW}
        if len(totals) != 1:
            return _pure_layout(nodes, inside) if not sums else None
    total = rows_in_all or totals.pop()
    rows: Shape | None = None
    parts: dict[int, tuple[Axes, Axes]] = {}
    for node in nodes:
        if node in sums:
            continue
        axes = None if rows_in_all and not several else fixed_rows(node)
        found = prefix(squeezed(node.shape, dense(node.shape)) if axes is None else axes, total)
        if found is None or (found[1] and several and axes is not None and several_axes(node, total, inside) is None):
            return None
        parts[id(node)] = found
        extents = tuple(n for n, _ in found[0])
        rows = extents if rows is None else refined(rows, extents)
        if rows is None:
            return None
    assert rows is not None
    columns = {id(node): node.size // total for node in nodes if node not in sums}
    for node in nodes:
        if node in sums:
            axis = _folded_row(node, rows, columns)
            if axis is None or set(folds.values()) - {axis}:  # a loop nest can sum over a single row axis only
                return None
            folds[id(node)] = axis
            columns[id(node)] = columns[id(node.views[0].node)]
            continue
        for access in accesses(node, rows):
            if access is None:
                return None
            if id(access.view.node) in inside:
                width = columns[id(access.view.node)]
                if id(access.view.node) in folds or not in_place(access, width):
                    return None
                if columns[id(node)] > WIDEST_PART and not conforms(access, width):
                    return None
    return Layout(rows, columns, folds)


def _pure_layout(nodes: Sequence[Node], inside: set[int]) -> Layout | None:
    """Return the layout of element-wise ``nodes`` as one region.

    Return None if a node reads only a part of another node or reads its elements in another order, or if the shapes of
    the nodes have no common division into axes.
    """
    rows: Shape | None = None
    for node in nodes:
        extents = tuple(n for n in node.shape if n != 1)
        rows = extents if rows is None else refined(rows, extents)
        if rows is None or any(id(view.node) in inside and not view.whole for view in node.views):
            return None
    assert rows is not None
    return Layout(rows, {id(node): 1 for node in nodes}, {})


def _last_fold(node: Node) -> tuple[int, int]:
    """Return the last axis that a reduction combines, as (extent, stride)."""
    operand = node.views[0]
    axes = squeezed(operand.shape[-node.folded :], operand.strides[-node.folded :])
    return axes[-1] if axes else (1, 1)


def _sums_rows(node: Node, inside: set[int]) -> bool:
    """Tell whether a node sums another node of the region over an axis that can be a row axis of the region."""
    operand = node.views[0] if node.views else None
    return (
        node.kind == "reduce"
        and node.name == "add"
        and operand is not None
        and id(operand.node) in inside
        and not operand.whole
    )


def _folded_row(node: Node, rows: Shape, columns: dict[int, int]) -> int | None:
    """Return the number of the row axis that a node sums over; None if the operand's axes are not those of the region.

    ``rows`` are the extents of the region's row axes. ``columns`` has the number of columns of each node, by its id.
    """
    operand = node.views[0]
    width = columns.get(id(operand.node))
    if width is None or operand.offset:
        return None
    steps = dense((*rows, width))
    kept = len(operand.shape) - node.folded
    axes = merged([squeezed(operand.shape, operand.strides)])[0]
    inner = merged([squeezed(operand.shape[kept:], operand.strides[kept:])])[0]
    for axis, extent in enumerate(rows):
        others = tuple(
            (n, s) for at, (n, s) in enumerate(zip((*rows, width), steps, strict=True)) if at != axis and n != 1
        )
        if inner == ((extent, steps[axis]),) and axes == (*merged([others])[0], *inner):
            return axis
    return None


@functools.lru_cache(maxsize=4096)
def accesses(node: Node, rows: Shape) -> tuple[Access | None, ...]:
    """Return for each operand the access by which a node reads it, in a region whose row axes have the extents
    ``rows``.

    None stands for an operand whose rows are not the region's rows. Results are cached, because a region's layout is
    computed again whenever a node is added.
    """
    total = math.prod(rows)
    found: list[Access | None] = []
    for number, view in ((i, arg) for i, arg in enumerate(node.args) if isinstance(arg, View)):
        axes = squeezed(view.shape, view.strides)
        if node.kind == "dot":
            found.append(_dot_access(node, number, view, rows))
            continue
        parts = prefix(axes, total)
        ok = parts is not None and refined(rows, tuple(n for n, _ in parts[0])) == rows
        found.append(Access(node, number, "value", view, split(parts[0], rows), parts[1]) if ok and parts else None)
    return tuple(found)


def _dot_access(node: Node, number: int, view: View, rows: Shape) -> Access | None:
    """Return the access by which a matrix product reads operand ``number``, in a region whose row axes have the
    extents ``rows``.

    Return None if the operand's rows are not the region's rows.
    """
    left, right = node.views[2 * (number // 2) : 2 * (number // 2) + 2]
    kept = len(view.shape) - node.folded
    depth = squeezed(view.shape[kept:], view.strides[kept:])
    beyond = math.prod(rows) // math.prod(left.shape[: len(left.shape) - node.folded])
    if number % 2 == 0:
        own = (*squeezed(view.shape[:kept], view.strides[:kept]), *(((beyond, 0),) if beyond > 1 else ()))
        fits = refined(rows, tuple(n for n, _ in own)) == rows
        return Access(node, number, "left", view, split(own, rows), (), depth) if fits else None
    batch = batch_axes(node)
    shared = squeezed(view.shape[:batch], view.strides[:batch])
    alone = math.prod(left.shape[batch : len(left.shape) - node.folded])
    columns = prefix(squeezed(view.shape[batch:kept], view.strides[batch:kept]), beyond)
    if columns is None:
        return None
    own = (*shared, *(((alone, 0),) if alone > 1 else ()), *columns[0])
    fits = refined(rows, tuple(n for n, _ in own)) == rows
    return Access(node, number, "right", right, split(own, rows), columns[1], depth) if fits else None


def batch_axes(node: Node) -> int:
    """Return the number of batch axes of a dot node, the leading axes that its two operands share."""
    left, right = node.views[:2]
    return len(left.shape) + len(right.shape) - 2 * node.folded - len(node.shape)


def stores(node: Node, target: View, rows: Shape, columns: int) -> Access:
    """Return how a node writes its result to ``target`` in HBM, as an access with the region's row axes.

    ``rows`` are the extents of the row axes, and ``columns`` is the node's number of columns.
    """
    axes = squeezed(target.shape, target.strides)
    for one in (axes, *merged([axes])):
        parts = prefix(one, math.prod(rows))
        if parts and columns == math.prod(n for n, _ in parts[1]) and refined(rows, [n for n, _ in parts[0]]) == rows:
            return Access(node, -1, "store", target, split(parts[0], rows), parts[1])
    raise AssertionError("a stored value must have the shape of the place that it is stored to")


def conforms(access: Access, width: int) -> bool:
    """Tell whether an access reads whole rows of another node of its region, which has ``width`` columns."""
    extents = [n for n, _ in access.rows]
    steps = [s * width for s in dense(extents)]
    if access.role == "right" or access.view.offset or [s for _, s in access.rows] != steps:
        return False
    inner = (*access.columns, *access.depth)
    if width == 1:
        return not any(s for _, s in inner)
    return merged([inner]) == [((width, 1),)]


def several_axes(node: Node, rows: int, inside: Container[int]) -> tuple[Axes, Axes] | None:
    """Return the column axes of a reduction's operand in a region of ``rows`` rows: those that the results have, and
    those that are summed over.

    Return None if one instruction can not go through these axes. ``inside`` has the ids of the region's nodes. An operand
    from HBM whose rows have gaps is loaded in the order of its axes, so all axes that are summed over count as one.
    """
    operand = node.views[0]
    kept = len(operand.shape) - node.folded
    parts = prefix(squeezed(operand.shape[:kept], operand.strides[:kept]), rows)
    if parts is None:
        return None
    results = merged([parts[1]])[0]
    summed = merged([squeezed(operand.shape[kept:], operand.strides[kept:])])[0]
    every = merged([(*results, *summed)])[0]
    if id(operand.node) not in inside and len(summed) > 1 and lying_together(every) == every:
        summed = ((math.prod(extent for extent, _ in summed), 1),)
    return (results, summed) if len(results) <= 2 and len(summed) == 1 else None


def within_rows(access: Access, width: int) -> bool:
    """Tell whether an access reads only a part of each row of another node of its region, or several parts in turn.

    Only an element-wise node can read so, or a reduction with several results in each row. ``width`` is the number of
    columns of the node that is read.
    """
    several = access.node.kind == "reduce" and access.node.size > math.prod(n for n, _ in access.rows)
    if access.role != "value" or not (access.node.kind == "elementwise" or several) or width == 1:
        return False
    steps = [s * width for s in dense([n for n, _ in access.rows])]
    reach = access.view.offset + sum((n - 1) * s for n, s in access.columns)
    return (
        [s for _, s in access.rows] == steps
        and access.view.offset < width
        and reach < width
        and len(access.columns) <= 3
    )


def in_place(access: Access, width: int) -> bool:
    """Tell whether an access reads each row, or a part of it, on the partition that holds the row.

    ``width`` is the number of columns of the node that is read.
    """
    return conforms(access, width) or within_rows(access, width)


def regions(graph: Graph, most_products: int = MOST_NODES, most_nodes: int = MOST_NODES) -> Division:
    """Divide a graph into regions. The graph in the result may have additional copies, which stores and loops need.

    A region has at most ``most_nodes`` nodes and ``most_products`` matrix products. Products are limited because the
    right operands of all products of a region may be loaded for each tile of rows.
    """
    graph, nodes, before = in_order(with_results_apart(graph))
    outputs = {id(root(view.node)) for view in graph.outputs}
    steps = [one for one in repeated(nodes) if not any(id(node) in outputs for step in one.body for node in step)]
    loops = ((one, first, end) for one in steps for first, end in one.loops)
    turn = {
        id(node): (number, t)
        for number, (one, first, end) in enumerate(loops)
        for t in range(first, end)
        for node in one.body[t]
    }
    found = _Division(graph, nodes, before, most_products, most_nodes, turn).result()
    return Division(_in_turns(found, turn), graph, tuple(steps))


def _in_turns(found: Sequence[Region], turn: dict[int, tuple[int, int]]) -> tuple[Region | Turns, ...]:
    """Return the regions, with the regions of each loop over steps joined to one part.

    ``turn`` has (number of the loop, number of the step) of each node in a loop, by the node's id. The regions are
    returned unchanged if other regions have to run between the steps of a loop.
    """
    if not turn:
        return tuple(found)
    steps = {id(region): turn.get(id(region.nodes[0])) for region in found}
    part = {key: (0, key) if step is None else (1, step[0]) for key, step in steps.items()}
    members: dict[tuple[int, int], list[Region]] = {}
    for region in found:
        members.setdefault(part[id(region)], []).append(region)
    place = {key: number for number, key in enumerate(members)}
    before = {key: {part[one] for region in own for one in region.before} - {key} for key, own in members.items()}
    after: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for key, needed in before.items():
        for one in needed:
            after.setdefault(one, []).append(key)
    ready = [(place[key], key) for key, needed in before.items() if not needed]
    parts: list[Region | Turns] = []
    while ready:
        _, done = heapq.heappop(ready)
        own = members[done]
        bodies: dict[int, list[Region]] = {}
        for region in own:
            bodies.setdefault((steps[id(region)] or (0, 0))[1], []).append(region)
        every = Turns(tuple(tuple(bodies[t]) for t in sorted(bodies)))
        ran: set[int] = set()
        for region in itertools.chain(*every.bodies):
            if any(part[one] == done and one not in ran for one in region.before):
                return tuple(found)
            ran.add(id(region))
        parts.append(every if done[0] else own[0])
        for key in after.get(done, ()):
            before[key].remove(done)
            if not before[key]:
                heapq.heappush(ready, (place[key], key))
    return tuple(parts) if len(parts) == len(members) else tuple(found)


def _depths(products: Sequence[Node]) -> dict[object, int]:
    """Return the number of terms that matrix products with the same left operand sum over.

    The result's keys describe the left operand: its node, offset and shape.
    """
    return {
        (id(left.node), left.offset, left.shape): math.prod(left.shape[len(left.shape) - node.folded :])
        for node in products
        for left in node.views[::2]
    }


def _widest(found: Layout) -> int:
    """Return the number of elements of a row in the three widest values of a region, added up."""
    return sum(sorted(found.columns.values(), reverse=True)[:3])


def _finer_rows(nodes: Sequence[Node], product: Node) -> list[int]:
    """Return the numbers of rows, ascending, that a region can have if column axes of a matrix product become row axes.

    Column axes become row axes from the first axis on, such as the image rows of a convolution. Each number is a
    multiple of the product's own number of rows, and leaves at least :data:`LEAST_COLUMNS` columns.
    """
    left, right = product.views[:2]
    batch = batch_axes(product)
    own = math.prod(left.shape[: len(left.shape) - product.folded])
    columns = right.shape[batch : len(right.shape) - product.folded]
    shapes = [(*left.shape[: len(left.shape) - product.folded], *columns)]
    shapes += [node.shape for node in nodes if node.kind == "elementwise"]
    found = {total for shape in shapes for total in itertools.accumulate(shape, operator.mul)}
    return sorted(
        total for total in found if total > own and total % own == 0 and product.size // total >= LEAST_COLUMNS
    )


def _fewer_rows(nodes: Sequence[Node], full: int) -> list[int]:
    """Return the numbers of rows, descending, that a region can have if reductions of ``nodes`` have several results in
    each row. Long rows need at least ``full`` rows.
    """
    if not any(node.kind == "reduce" for node in nodes) or any(node.kind in ("scan", "gather") for node in nodes):
        return []
    least = min(node.size for node in nodes)
    most = max(max(node.size, *(math.prod(view.shape) for view in node.views)) for node in nodes if node.views)
    found = {
        total for node in nodes if node.kind == "reduce" for total in itertools.accumulate(node.shape, operator.mul)
    }
    return sorted(
        (total for total in found if total <= least and most // total <= (WIDE_ROW if total >= full else SHORT_ROW)),
        reverse=True,
    )


def _contiguous(nodes: Sequence[Node], found: Layout) -> bool:
    """Tell whether each row that ``nodes`` read from HBM is one range, in any order, apart from repeated elements."""
    inside = {id(node) for node in nodes}
    read = (one for node in nodes for one in accesses(node, found.rows) if one and id(one.view.node) not in inside)
    apart = (sorted((axis for axis in one.columns if axis[1]), key=lambda axis: -axis[1]) for one in read)
    columns = (merged([tuple(axes)])[0] for axes in apart)
    return all(not axes or (len(axes) == 1 and axes[0][1] == 1) for axes in columns)


def _by_elements(nodes: Sequence[Node], found: Layout) -> bool:
    """Tell whether a reduction reads rows from HBM whose elements all lie apart, along several axes.

    The rows themselves then lie beside each other. A transfer moves each element by itself.
    """
    inside = {id(node) for node in nodes}
    for one in (one for node in nodes if node.kind == "reduce" for one in accesses(node, found.rows) if one):
        columns = merged([one.columns])[0]
        if id(one.view.node) not in inside and len(columns) > 1 and min(abs(stride) for _, stride in columns) > 1:
            return True
    return False


def _crowded(nodes: Sequence[Node], found: Layout) -> bool:
    """Tell whether element-wise nodes would compute long rows on few partitions although they could be a region of
    their own.

    No reduction, scan or product of the region needs the results. In a region of their own, such nodes fill all
    partitions.
    """
    if all(node.kind == "elementwise" for node in nodes):
        return False
    every = [one for node in nodes if node.kind == "dot" for one in accesses(node, found.rows) if one is not None]
    rights = [one.rows for one in every if one.role == "right"]
    axes = merged(rights) if rights else [tuple((n, 0) for n in found.rows)]
    able = max((n for at, (n, _) in enumerate(axes[0]) if not any(one[at][1] for one in axes)), default=1)
    together = able if rights else math.prod(found.rows)
    if together > (IDLE if rights else FEW_ROWS):
        return False
    turns = math.prod(found.rows) // together
    needed: set[int] = set()
    for node in reversed(nodes):
        if node.kind != "elementwise" or id(node) in needed:
            needed.update(id(view.node) for view in node.views)
        elif found.columns[id(node)] * turns >= LONG_ROW:
            return True
    return False


def _scattered(nodes: Sequence[Node], found: Layout) -> bool:
    """Tell whether the rows of matrix products lie in short, equally spaced ranges only because of copies from HBM.

    With the copies in a region of their own, the products have more rows on partitions.
    """
    inside = {id(node) for node in nodes}
    copies = {
        id(node)
        for node in nodes
        if node.name == "copy"
        and node.kind == "elementwise"
        and id(node.views[0].node) not in inside
        and node.size == node.views[0].node.size
    }
    if not copies or len(copies) == len(nodes):
        return False

    def longest(ones: Iterable[Node]) -> int:
        """Return the greatest number of rows that the accesses of some nodes allow on partitions."""
        every = [one for node in ones for one in accesses(node, found.rows) if one is not None]
        rows = [one.rows for one in every if id(one.view.node) not in inside] or [
            squeezed(found.rows, dense(found.rows))
        ]
        rights = [at for at, one in enumerate(rows) if len(rows) == len(every) and every[at].role == "right"]
        together = merged(rows)
        able = [n for axis, (n, _) in enumerate(together[0]) if not any(together[at][axis][1] for at in rights)]
        return max(able, default=1)

    own = longest(nodes)
    return own < FEW_ROWS and longest([node for node in nodes if id(node) not in copies]) >= 4 * own


def _own_inputs(node: Node) -> list[View]:
    """Return the operands of a node that are inputs of the graph and are read row by row.

    Right operands of matrix products are left out, because they are read whole for each tile of rows.
    """
    views = node.views[::2] if node.kind == "dot" else node.views
    return [view for view in views if view.node.kind == "input"]


class _Division:
    """Divide one graph into regions: put each node into a region, then join regions that can share rows.

    ``before`` has the nodes that have to run before a node, by the node's id. ``turn`` has the loop and step of a node.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: list[Node],
        before: dict[int, list[Node]],
        most_products: int,
        most_nodes: int,
        turn: dict[int, tuple[int, int]],
    ) -> None:
        self.nodes, self.before, self.most_products, self.most_nodes = nodes, before, most_products, most_nodes
        self.turn = turn
        self.place = {id(node): number for number, node in enumerate(self.nodes)}
        self.stores = [
            (root(node), node.target, node.views[-1].node)
            for node in self.nodes
            if node.kind == "buffer" and node.args and node.target is not None and node.views[-1].node.kind in COMPUTED
        ]
        self.readers: dict[int, list[Node]] = {}
        self.outputs = {id(view.node) for view in graph.outputs}
        for node in self.nodes:
            for view in node.views:
                self.readers.setdefault(id(view.node), []).append(node)
        self.regions: dict[int, Region] = {}
        """Regions by their ids, in the order in which they were created."""
        self.numbers: dict[int, int] = {}
        """The position of each region in the order in which regions were created, by the region's id."""
        self.home: dict[int, Region] = {}
        """Region of each node, by the node's id."""
        self.takers: dict[View, list[Region]] = {}
        """Regions that read a view of an input row by row, by that view."""
        self.after: dict[int, set[int]] = {}
        """Ids of the regions that can run only after a region, by the id of that region."""
        self.levels: dict[int, int] = {}
        """Level of each region, by its id. The level is higher than those of all regions that have to run before."""

    def result(self) -> list[Region]:
        """Return the regions in an order in which they can run."""
        for node in self.nodes:
            if node.kind in COMPUTED:
                self._add(node)
        self._join()
        self._join_stores()
        for region in self.regions.values():
            self._shorten(region)
        return self._ordered()

    def _shorten(self, region: Region) -> None:
        """Put several short rows of a region on each partition, if reductions have many more rows than partitions.

        One instruction then does the work of several tiles of rows.
        """
        nodes, rows = region.nodes, math.prod(region.layout.rows)
        width = max(region.layout.columns.values())
        # Longer rows gain less, so only many of them are worth the copies of each row's own values.
        least = 4 * PARTITIONS if width <= SHORTEST else 64 * PARTITIONS
        if width > 2 * SHORTEST or rows < least or region.layout.folds:
            return
        if {node.kind for node in nodes} - {"reduce", "elementwise"} or region.pure:
            return
        counts = [n for n in range(WIDEST_SHORT // width, 1, -1) if rows % n == 0 and rows // n >= PARTITIONS]
        for count in sorted(counts, key=lambda n: (-(-(rows // n) // PARTITIONS) * (width * n + START), n)):
            found = layout(nodes, self._outside(nodes), rows // count)
            if found is not None and _contiguous(nodes, found):
                region.layout = found
                return

    def _outside(self, nodes: Sequence[Node]) -> set[int]:
        """Return the ids of those of ``nodes`` whose value is an output, or is read by a node outside of ``nodes``."""
        inside = {id(node) for node in nodes}
        return {
            id(node)
            for node in nodes
            if id(node) in self.outputs or any(id(reader) not in inside for reader in self.readers.get(id(node), ()))
        }

    def _add(self, node: Node) -> None:
        """Add a node to the first region that can contain it, else to a new region."""
        sources = [self.home[id(view.node)] for view in node.views if id(view.node) in self.home]
        shared = dict.fromkeys(_own_inputs(node))
        near = dict.fromkeys(region for view in shared for region in self.takers.get(view, ()))
        later = sorted(near, key=lambda region: self.numbers[id(region)], reverse=True)
        for region in dict.fromkeys((*reversed(sources), *later)):
            joined = [*region.nodes, node]
            found = None if len(joined) > self.most_nodes else self._fit(joined)
            if found is not None and not self._cycle(region, node):
                region.nodes, region.layout = joined, found
                self._belongs(node, region, shared)
                return
        own = self._fit([node])
        if own is None:
            raise AssertionError(f"no rows for {node.kind} {node.name}")
        made = Region([node], own)
        self.numbers[id(made)] = len(self.regions)
        self.regions[id(made)] = made
        self.after[id(made)], self.levels[id(made)] = set(), 0
        self._belongs(node, made, shared)

    def _belongs(self, node: Node, region: Region, shared: Iterable[View]) -> None:
        """Add a node to a region's records. ``shared`` are the views of inputs that the node reads row by row."""
        self.home[id(node)] = region
        for view in shared:
            self.takers.setdefault(view, []).append(region)
        needs = {id(other) for other in self._needs([node])} - {id(region)}
        region.before |= needs
        for key in needs:
            self.after[key].add(id(region))
        self._sink(region)

    def _sink(self, region: Region) -> None:
        """Raise the level of a region above the levels of the regions before it. Then raise the levels of all later
        regions.
        """
        todo = [id(region)]
        while todo:
            key = todo.pop()
            least = 1 + max((self.levels[one] for one in self.regions[key].before), default=-1)
            if self.levels[key] < least:
                self.levels[key] = least
                todo += self.after[key]

    def _fit(self, nodes: list[Node]) -> Layout | None:
        """Return the layout of ``nodes`` as one region; None if the nodes can not or should not be one region."""
        inside = {id(node) for node in nodes}
        # nodes of different steps must not share a region, because equal steps need equal regions
        if len({self.turn.get(key) for key in inside}) > 1:
            return None
        # The tiles of a region run one after another, so no tile may overwrite elements that a later tile reads.
        if any(id(one) in inside for node in nodes for one in self.before.get(id(node), ())):
            return None
        products = [node for node in nodes if node.kind == "dot"]
        if len(products) > 1 and (len(products) > self.most_products or sum(_depths(products).values()) > DEEPEST):
            return None
        outside = self._outside(nodes)
        found = layout(nodes, outside)
        if found is not None and (_crowded(nodes, found) or (products and _scattered(nodes, found))):
            return None
        apart = found is not None and not products and _by_elements(nodes, found)
        if not products and (found is None or apart or (found.folds and max(found.columns.values()) <= SHORTEST)):
            totals = _fewer_rows(nodes, FEW_ROWS if apart else FULL)
            fewer = (layout(nodes, outside, total) for total in totals)
            kept = (one for one in fewer if one is not None and not (apart and _by_elements(nodes, one)))
            found = next(kept, found)
        if not products or len(nodes) == 1 or (found is not None and _widest(found) <= WIDEST_VALUES):
            return found
        finer = (layout(nodes, outside, total) for total in _finer_rows(nodes, products[0]))
        return next((one for one in finer if one is not None and _widest(one) <= WIDEST_VALUES), None)

    def _writers(self, view: View) -> list[Region]:
        """Return the regions that have to run before a view can be read from HBM.

        For a view of an array that was stored to, these are the regions of all stores that may have an element of the view.
        """
        node = view.node
        if node.kind != "buffer":
            return [self.home[id(node)]] if id(node) in self.home else []
        found = []
        read = (view.offset, squeezed(view.shape, view.strides))
        while node.kind == "buffer" and node.args:
            value, target = node.args[-1], node.target
            assert isinstance(value, View) and target is not None
            if overlap(view, target):
                found.append(self.home[id(value.node)])
            if len(node.args) == 1 or target.whole or read == (target.offset, squeezed(target.shape, target.strides)):
                break
            before = node.args[0]
            assert isinstance(before, View)
            node = before.node
        return found

    def _above(self, key: int, later: Iterable[int]) -> bool:
        """Tell whether the region with id ``key`` is in ``later``, or has to run before a region in ``later``.

        ``later`` has ids of regions.
        """
        seen = set(later)
        todo = list(seen)
        while todo:
            one = todo.pop()
            if one == key:
                return True
            # A region on a lower level than the region ``key`` can not come after the region ``key``.
            found = {each for each in self.regions[one].before if self.levels[each] >= self.levels[key]} - seen
            seen |= found
            todo += found
        return False

    def _needs(self, nodes: Sequence[Node]) -> list[Region]:
        """Return the regions that have to run before ``nodes``: those that compute a value which a node reads, and
        those that use elements which a node overwrites.
        """
        found = [region for node in nodes for view in node.views for region in self._writers(view)]
        return found + [self.home[id(one)] for node in nodes for one in self.before.get(id(node), ())]

    def _cycle(self, region: Region, node: Node) -> bool:
        """Tell whether a region with ``node`` added would have to run both before and after some other region."""
        needs = {id(other) for other in self._needs([node])} - {id(region)}
        through_hbm = any(view.node.kind == "buffer" and region in self._writers(view) for view in node.views)
        return through_hbm or self._above(id(region), needs)

    def _join(self) -> None:
        """Join regions that can share rows, until no two regions can be joined.

        A region is joined only with a region that has to run before it. Regions are tried in the order in which they
        were created.
        """
        every = list(self.regions.values())
        changes = [0] * len(every)
        tried: dict[tuple[int, int], tuple[int, int]] = {}
        waiting = list(range(len(every)))  # the ids of regions that may still be joined, as a heap
        while waiting:
            number = heapq.heappop(waiting)
            later = every[number]
            if id(later) not in self.regions:
                continue
            for at in sorted(self.numbers[key] for key in later.before):
                state = changes[number], changes[at]
                if tried.get((number, at)) == state:
                    continue
                tried[number, at] = state
                if self._joined(every[at], later):
                    changes[number] += 1
                    for one in {number, *(self.numbers[key] for key in self.after[id(later)])} - set(waiting):
                        heapq.heappush(waiting, one)
                    break

    def _join_stores(self) -> None:
        """Join element-wise regions whose results alternate in one array, so that a single store writes contiguous
        rows.
        """
        last: dict[object, Region] = {}
        for array, target, value in self.stores:
            region = self.home[id(value)]
            axes = squeezed(target.shape, target.strides)
            if not region.pure or not axes or axes[-1][1] < 2:
                continue
            key = (id(array), axes)
            other = last.get(key)
            if other is not None and id(other) in self.regions and other is not region:
                apart = not self._above(id(region), other.before) and not self._above(id(other), region.before)
                if apart and self._joined(other, region):
                    region = self.home[id(value)]
            last[key] = region

    def _joined(self, earlier: Region, later: Region) -> bool:
        """Move the nodes of an earlier region into a later region, and return True. Return False if that is not possible."""
        if self._above(id(earlier), later.before - {id(earlier)}):
            return False
        nodes = sorted((*earlier.nodes, *later.nodes), key=lambda node: self.place[id(node)])
        if len(nodes) > self.most_nodes or any(
            view.node.kind == "buffer" and any(r in (earlier, later) for r in self._writers(view))
            for node in nodes
            for view in node.views
        ):
            return False
        found = self._fit(nodes)
        if found is None:
            return False
        later.nodes, later.layout = nodes, found
        del self.regions[id(earlier)]
        for node in earlier.nodes:
            self.home[id(node)] = later
        for key in earlier.before:
            self.after[key] = (self.after[key] - {id(earlier)}) | {id(later)}
        later.before = (later.before | earlier.before) - {id(earlier)}
        following = self.after.pop(id(earlier)) - {id(later)}
        self.after[id(later)] |= following
        for key in following:
            other = self.regions[key]
            other.before = (other.before - {id(earlier)}) | {id(later)}
            self._sink(other)
        return True

    def _ordered(self) -> list[Region]:
        """Return the regions in an order in which they can run."""
        done: dict[int, Region] = {}
        for region in self.regions.values():
            todo = [region]
            while todo:
                one = todo[-1]
                missing = [self.regions[key] for key in one.before if key not in done]
                if missing:
                    todo.append(min(missing, key=lambda other: self.place[id(other.nodes[0])]))
                else:
                    done[id(one)] = todo.pop()
        return list(done.values())
