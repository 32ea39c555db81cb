"""Compute the cells of a table together that need no values of each other, such as the cells of each diagonal.

A reference of dynamic programming fills a table in two loops, one cell after another. Tracing unrolls both loops. Each
cell has a level: one more than the greatest level of the cells that it reads. Cells of the same level whose operands lie
at equal distances become one element-wise computation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from acceld.lowering.graph import Graph, Node, Operand, View, stored, whole

LEAST_CELLS = 64
"""Least number of stores to a table."""
LEAST_TOGETHER = 2
"""Least number of stores, on average, that become one store."""
LARGEST = 512
"""Greatest number of elements of a store."""
MOST_ELEMENTS = 2**20
"""Greatest number of elements of a table."""
MOST_NODES = 64
"""Greatest number of nodes that compute the value of a store."""
Places = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class _NoTableError(Exception):
    """Raised if cells of a graph's tables can not be computed together."""


def _elements(view: View) -> Places:
    """Return the numbers of the elements that a view reads."""
    found = np.array(view.offset, np.int64)
    for extent, stride in zip(view.shape, view.strides, strict=True):
        found = np.add.outer(found, stride * np.arange(extent))
    return found.reshape(-1)


def _tables(nodes: Sequence[Node]) -> list[list[Node]]:
    """Return the stores that fill each table: the last stores to a buffer, in order, as long as no two of them write
    the same element.
    """
    before = {id(node.views[0].node) for node in nodes if node.kind == "buffer" and len(node.args) == 2}
    found = []
    for node in nodes:
        if node.kind != "buffer" or not node.args or id(node) in before or node.size > MOST_ELEMENTS:
            continue
        written = np.zeros(node.size, bool)
        stores: list[Node] = []
        while node.kind == "buffer" and node.args and node.target is not None:
            if np.prod(node.target.shape) > LARGEST:
                break
            places = _elements(node.target)
            if written[places].any():
                break
            written[places] = True
            stores.append(node)
            if len(node.args) == 1:
                break
            node = node.views[0].node
        if len(stores) >= LEAST_CELLS:
            found.append(stores[::-1])
    return found


@dataclass(slots=True)
class _Cell:
    """A store to a table, with the nodes that compute its value.

    ``form`` is equal for cells that differ only in ``offsets``, the offsets of what they read and of their target.
    """

    store: Node
    level: int
    form: object = None
    offsets: list[int] = field(default_factory=list)


class _Tables:
    """The tables that a graph fills cell by cell, with the level of each cell. Cells of one level can be computed together."""

    def __init__(self, graph: Graph, nodes: Sequence[Node], tables: Sequence[Sequence[Node]]) -> None:
        self.table = {id(store): number for number, stores in enumerate(tables) for store in stores}
        turn = {id(store): turn for stores in tables for turn, store in enumerate(stores)}
        written = [np.full(stores[-1].size, -1) for stores in tables]
        levels = [np.ones(stores[-1].size, np.int64) for stores in tables]
        for stores in tables:
            for store in stores:
                assert store.target is not None
                written[self.table[id(store)]][_elements(store.target)] = turn[id(store)]
        self.level: dict[int, int] = {}
        for node in nodes:
            level = 0
            number = self.table.get(id(node))
            for view in node.views if number is None else node.views[-1:]:
                source = self.table.get(id(view.node))
                if source is None:
                    level = max(level, self.level[id(view.node)])
                    continue
                places = _elements(view)
                if places.size and written[source][places].max() > turn[id(view.node)]:
                    raise _NoTableError  # the cell is read before it is computed
                level = max(level, int(levels[source][places].max(initial=1)))
            self.level[id(node)] = level
            if number is not None and node.target is not None:
                levels[number][_elements(node.target)] = level + 1
        for view in graph.outputs:
            source = self.table.get(id(view.node))
            if source is not None and written[source][_elements(view)].max(initial=-1) > turn[id(view.node)]:
                raise _NoTableError
        self.owner: dict[int, int] = {id(view.node): -1 for view in graph.outputs}
        """The id of the store for which alone a node is computed; -1 if there are several, or other readers."""
        for node in reversed(nodes):
            own = id(node) if id(node) in self.table else self.owner.get(id(node), -1)
            for view in node.views:
                if id(view.node) not in self.table:
                    known = self.owner.setdefault(id(view.node), own)
                    self.owner[id(view.node)] = known if known == own else -1
        self.state: list[Node | None] = [s[0].views[0].node if len(s[0].args) == 2 else None for s in tables]

    def cell(self, store: Node) -> _Cell:
        """Return a store as a cell."""
        cell = _Cell(store, self.level[id(store)])
        seen: dict[int, int] = {}

        def form(arg: Operand) -> object:
            if not isinstance(arg, View):
                return arg
            node = arg.node
            if not self._inside(node, store):
                cell.offsets.append(arg.offset)
                source = self.table.get(id(node))
                return arg.shape, arg.strides, ("table", source) if source is not None else id(node)
            if id(node) in seen:
                return arg.shape, arg.strides, arg.offset, "again", seen[id(node)]
            if len(seen) >= MOST_NODES:
                raise _NoTableError
            seen[id(node)] = len(seen)
            own = node.kind, node.name, node.shape, node.dtype, node.folded
            return arg.shape, arg.strides, arg.offset, own, tuple(form(one) for one in node.args)

        assert store.target is not None
        cell.form = (self.table[id(store)], store.target.shape, store.target.strides, form(store.args[-1]))
        cell.offsets.append(store.target.offset)
        return cell

    def _inside(self, node: Node, store: Node) -> bool:
        """Tell whether a node has to be computed for each cell: its result is used in this cell alone, or it reads
        other cells.
        """
        if id(node) in self.table:
            return False
        if node.kind in ("elementwise", "reduce"):
            return self.level[id(node)] > 0 or self.owner[id(node)] == id(store)
        if self.level[id(node)]:
            raise _NoTableError
        return False

    def compute(self, cells: Sequence[_Cell]) -> None:
        """Compute cells of one form and level together, and store them."""
        first, count = cells[0].store, len(cells)
        steps = iter(
            np.subtract(cells[1].offsets, cells[0].offsets).tolist() if count > 1 else [0] * len(cells[0].offsets)
        )
        made: dict[int, Node] = {}

        def together(arg: Operand, at: int) -> Operand:
            """Return an array with the operand ``arg`` of all cells. Axis number ``at`` of the array counts the
            cells.
            """
            if not isinstance(arg, View):
                return arg
            node, shape = arg.node, (*arg.shape[:at], count, *arg.shape[at:])
            if not self._inside(node, first):
                step, source = next(steps), self.table.get(id(node))
                held = node if source is None else self.state[source]
                assert held is not None
                return View(held, shape, (*arg.strides[:at], step, *arg.strides[at:]), arg.offset)
            if id(node) not in made:
                args = tuple(together(one, len(node.shape)) for one in node.args)
                made[id(node)] = replace(node, args=args, shape=(*node.shape, count))
            strides = tuple(s * count for s in arg.strides)
            return View(made[id(node)], shape, (*strides[:at], 1, *strides[at:]), arg.offset * count)

        target, number = first.target, self.table[id(first)]
        assert target is not None
        value, state = together(first.args[-1], len(target.shape)), self.state[number]
        assert isinstance(value, View)
        place = View(
            target.node if state is None else state,
            (*target.shape, count),
            (*target.strides, next(steps)),
            target.offset,
        )
        self.state[number] = stored(None if state is None else whole(state), value, place, first.line)


def _runs(cells: Sequence[_Cell]) -> Iterator[list[_Cell]]:
    """Yield cells of one form and level in lists whose offsets are at equal distances."""
    run: list[_Cell] = []
    for cell in cells:
        if len(run) > 1:
            moves = [np.subtract(b.offsets, a.offsets) for a, b in ((run[0], run[1]), (run[-1], cell))]
            if (moves[0] != moves[1]).any():
                yield run
                run = []
        run.append(cell)
    yield run


def by_diagonals(graph: Graph) -> dict[int, View]:
    """Return the states of a graph's tables after all cells are computed, level by level.

    The result maps the id of a table's state in the original graph to the state that replaces it. The result is empty
    if the graph has no tables, or if too few cells can be computed together.
    """
    nodes = graph.nodes()
    stores = _tables(nodes)
    if not stores:
        return {}
    try:
        tables = _Tables(graph, nodes, stores)
        cells: dict[tuple[int, object], list[_Cell]] = {}
        for store in sorted((one for every in stores for one in every), key=lambda one: one.order):
            cell = tables.cell(store)
            cells.setdefault((cell.level, cell.form), []).append(cell)
    except _NoTableError:
        return {}
    runs = [run for _, alike in sorted(cells.items(), key=lambda one: one[0][0]) for run in _runs(alike)]
    depth = max(level for level, _ in cells)
    count = sum(map(len, stores))
    if depth < 2 or count < LEAST_TOGETHER * len(runs):
        return {}
    for run in runs:
        tables.compute(run)
    last = [whole(state) for state in tables.state if state is not None]
    return {id(store): view for view, every in zip(last, stores, strict=True) for store in every}
