"""Order the stores to a buffer and the reads of its earlier states, because all states of a buffer share the same
memory.

A *chain* is the list of a buffer's states, one after each store.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from acceld.lowering.graph import (
    Graph,
    Node,
    View,
    box,
    dense,
    elementwise,
    of_made,
    ordered,
    overlap,
    stored,
    whole,
)

COMPUTED = ("elementwise", "reduce", "dot", "scan", "gather")
"""Kinds of nodes whose values the regions of a kernel compute."""
Change = Callable[[Node, Node], Node]


def in_order(graph: Graph) -> tuple[Graph, list[Node], dict[int, list[Node]]]:
    """Return (graph, nodes in an order in which they can run, nodes that have to run before each node).

    The last result is by the node's id, and leaves out the node's operands. In the returned graph, each output and each
    stored value is a whole computed node or a buffer. If no order is right without copies, two kinds of values are
    copied: arrays that are read after a store to them, and values that are needed before they may be stored.
    """
    graph = _with_computed_outputs(_with_turned_targets(_apart(graph)))
    if all(len(chain) < 2 for chain in _Memory(graph).chains):
        return graph, graph.nodes(), {}
    graph = _with_kept_reads(graph)
    for every in (False, True):
        found = _with_late_stores(graph, every=every)
        before = _Memory(found).before()
        nodes = ordered(found.nodes(), before)
        if nodes is not None:
            return found, nodes, before
    raise AssertionError("the stores have no order that keeps the reference's results, although each is a copy")


def rebuilt(graph: Graph, change: Change) -> Graph:
    """Return a graph with the node that ``change`` returns in place of each node.

    ``change`` takes a node of the old graph, and the same node with views of new nodes.
    """
    made: dict[int, Node] = {}
    for node in graph.nodes():
        args = tuple(of_made(arg, made) if isinstance(arg, View) else arg for arg in node.args)
        target = None if node.target is None else of_made(node.target, made)
        alike = args == node.args and target == node.target
        found = change(node, node if alike else replace(node, args=args, target=target))
        if found is not node:
            made[id(node)] = found
    return Graph(graph.inputs, tuple(of_made(view, made) for view in graph.outputs), graph.lines)


def _copy(view: View, dtype: str, order: int, line: int = 0) -> View:
    """Return a copy of a view as a new node. ``order`` is the place of the copy in the order of the graph's nodes."""
    made = elementwise("copy", [view], dtype, line)
    made.order = order
    return whole(made)


def _apart(graph: Graph) -> Graph:
    """Return the graph with a separate buffer for each array to which the reference stores.

    If two arrays begin as the same state of a buffer, the later array begins as a copy of this state.
    """
    following: dict[int, list[Node]] = {}
    for node in graph.nodes():
        if node.kind == "buffer" and len(node.args) == 2:
            following.setdefault(id(node.views[0].node), []).append(node)
    branches = {id(node) for one in following.values() for node in one[1:]}
    if not branches:
        return graph

    def change(node: Node, moved: Node) -> Node:
        if id(node) not in branches:
            return moved
        before = moved.views[0]
        kept = _copy(before, node.dtype, before.node.order, node.line)
        start = Node("buffer", "", (), node.shape, node.dtype, node.line)
        held = stored(None, kept, whole(start), node.line)
        held.order = before.node.order
        return replace(moved, args=(whole(held), moved.args[1]))

    return rebuilt(graph, change)


def _order(view: View) -> tuple[int, ...] | None:
    """Return the axes of a view in their order in memory, if the view is a transposition of a whole computed value.

    Return None for any other view. Also return None if the last axis does not stay last, because a store would then write
    single elements.
    """
    order = tuple(sorted(range(len(view.shape)), key=lambda axis: (-view.strides[axis], axis)))
    if view.node.kind not in COMPUTED or view.whole or order[-1:] != (len(order) - 1,):
        return None
    return order if _with_axes(view, order).whole else None


def _with_axes(view: View, order: tuple[int, ...]) -> View:
    """Return a view with its axes in another order."""
    return view.mapped(lambda array: array.transpose(order))


def _with_turned_targets(graph: Graph) -> Graph:
    """Return a graph in which transposed values are stored in the order of axes in which they were computed."""

    def change(node: Node, moved: Node) -> Node:
        value = moved.views[-1] if node.kind == "buffer" and node.args else None
        order = None if value is None else _order(value)
        if order is None or value is None or moved.target is None:
            return moved
        args = (*moved.args[:-1], _with_axes(value, order))
        return replace(moved, args=args, target=_with_axes(moved.target, order))

    graph = rebuilt(graph, change)
    outputs = []
    for view in graph.outputs:
        order = _order(view)
        if order is not None:
            held = whole(Node("buffer", "", (), view.shape, view.dtype, view.node.line))
            view = whole(stored(None, _with_axes(view, order), _with_axes(held, order), view.node.line))
        outputs.append(view)
    return Graph(graph.inputs, tuple(outputs), graph.lines)


def _with_computed_outputs(graph: Graph) -> Graph:
    """Return the graph with copies, so that each output and each stored value is a whole computed node or a buffer."""

    def change(node: Node, moved: Node) -> Node:
        if node.kind != "buffer" or not node.args:
            return moved
        assert node.target is not None
        value = moved.views[-1]
        plain = value.node.kind in COMPUTED and value.whole and value.node.dtype == node.dtype
        if not plain or node.target.in_shape(value.node.shape) is None:
            value = _copy(value, node.dtype, node.order, node.line)
        value = View(value.node, node.target.shape, dense(node.target.shape))
        return moved if value == moved.args[-1] else replace(moved, args=(*moved.args[:-1], value))

    graph = rebuilt(graph, change)
    older = {id(node.views[0].node) for node in graph.nodes() if node.kind == "buffer" and len(node.args) == 2}
    outputs = []
    taken: set[int] = set()
    for view in graph.outputs:
        held = view.node.kind == "buffer" and bool(view.node.args) and id(view.node) not in older
        if not view.whole or id(view.node) in taken or not (held or view.node.kind in COMPUTED):
            copied = elementwise("copy", [view])
            view = View(copied, view.shape, dense(view.shape))
        taken.add(id(view.node))
        outputs.append(view)
    return Graph(graph.inputs, tuple(outputs), graph.lines)


@dataclass(frozen=True, slots=True)
class _Read:
    """A read of ``view``, a part of a buffer's state, with the ``later`` stores that overwrite elements of this part."""

    node: Node
    view: View
    later: list[Node]


class _Memory:
    """The reads and stores of a graph's buffers, and which of them share elements."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = graph.nodes()
        place: dict[int, tuple[int, int]] = {}
        self.chains: list[list[Node]] = []
        for node in self.nodes:
            if node.kind != "buffer" or not node.args:
                continue
            if len(node.args) == 1:
                place[id(node)] = (len(self.chains), 0)
                self.chains.append([node])
            else:
                chain, number = place[id(node.views[0].node)]
                place[id(node)] = (chain, number + 1)
                self.chains[chain].append(node)
        self.place = place
        self.boxes = [_boxes(chain) for chain in self.chains]

    def reads(self) -> list[_Read]:
        """Return the reads of buffers whose elements a later store overwrites."""
        found = []
        for node in self.nodes:
            for view in node.views if node.kind != "buffer" else ():
                chain, number = self.place.get(id(view.node), (-1, 0))
                if chain >= 0 and len(self.chains[chain]) > number + 1:
                    places = _overlapping(self, chain, view, number + 1, len(self.chains[chain]))
                    if places:
                        found.append(_Read(node, view, [self.chains[chain][at] for at in places]))
        return found

    def overwritten(self) -> dict[int, list[Node]]:
        """Return the earlier stores to the same elements as a store, as a dict by the id of the store's node."""
        found = {}
        for at, chain in enumerate(self.chains):
            for number, node in enumerate(chain):
                assert node.target is not None
                places = _overlapping(self, at, node.target, 0, number)
                found[id(node)] = [chain[at] for at in places]
        return found

    def before(self) -> dict[int, list[Node]]:
        """Return the nodes that have to run before each stored value is computed, as a dict by the id of the value's
        node.
        """
        found: dict[int, list[Node]] = {}
        for read in self.reads():
            for store in read.later:
                found.setdefault(id(store.views[-1].node), []).append(read.node)
        earlier = self.overwritten()
        for node in itertools.chain(*self.chains):
            value = node.views[-1].node
            found.setdefault(id(value), []).extend(one.views[-1].node for one in earlier[id(node)])
        return found


def _boxes(chain: list[Node]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the range of positions that each store of a chain writes, as an array [stores, (first, end), axes]."""
    found = []
    for node in chain:
        assert node.target is not None
        ranges = box(node.target) or [(0, extent) for extent in node.shape]
        found.append([[a for a, _ in ranges], [b for _, b in ranges]])
    return np.array(found, dtype=np.int64)


def _overlapping(memory: _Memory, chain: int, view: View, first: int, end: int) -> list[int]:
    """Return the numbers of the stores of chain number ``chain`` that may write elements of a view.

    Only the stores from number ``first`` to before number ``end`` are checked.
    """
    ranges = box(view) or [(0, extent) for extent in view.node.shape]
    low, high = (np.array([one[at] for one in ranges], dtype=np.int64) for at in (0, 1))
    part = memory.boxes[chain][first:end]
    hit = ((part[:, 0] < high) & (low < part[:, 1])).all(axis=1) if part.size else np.ones(len(part), bool)
    targets = ((first + int(at), memory.chains[chain][first + int(at)].target) for at in np.flatnonzero(hit))
    return [number for number, target in targets if target is None or overlap(target, view)]


def _ancestors(node: Node) -> set[int]:
    """Return the ids of a node and of all nodes on which it depends."""
    found = {id(node)}
    todo = [node]
    while todo:
        for view in todo.pop().views:
            if id(view.node) not in found:
                found.add(id(view.node))
                todo.append(view.node)
    return found


def _with_kept_reads(graph: Graph) -> Graph:
    """Return the graph with copies of values that a store would overwrite too early.

    For example, a node may read an array as it was before a store, and also need the result of this store.
    """
    above: dict[int, set[int]] = {}
    kept: dict[int, list[View]] = {}
    for read in _Memory(graph).reads():
        needed = above.setdefault(id(read.node), _ancestors(read.node))
        if any(id(store) in needed for store in read.later):
            kept.setdefault(id(read.node), []).append(read.view)
    if not kept:
        return graph
    copies: dict[View, View] = {}

    def change(node: Node, moved: Node) -> Node:
        found = list(moved.args)
        for at, arg in enumerate(node.args):
            now = found[at]
            if isinstance(arg, View) and isinstance(now, View) and arg in kept.get(id(node), ()):
                if now not in copies:
                    copies[now] = _copy(now, now.dtype, now.node.order, node.line)
                found[at] = copies[now]
        return moved if tuple(found) == moved.args else replace(moved, args=tuple(found))

    return rebuilt(graph, change)


def _with_late_stores(graph: Graph, *, every: bool) -> Graph:
    """Return the graph with copies of stored values that a node needs before the value may be stored.

    If ``every`` is True, all stored values are copied that have to wait for another node.
    """
    memory = _Memory(graph)
    late: set[int] = set()
    above: dict[int, set[int]] = {}
    earlier = memory.overwritten()
    first: dict[int, list[Node]] = {key: [one.views[-1].node for one in found] for key, found in earlier.items()}
    for read in memory.reads():
        for store in read.later:
            first[id(store)].append(read.node)
    for store in itertools.chain(*memory.chains):
        value = store.views[-1].node
        for node in first[id(store)]:
            if every or id(value) in above.setdefault(id(node), _ancestors(node)):
                late.add(id(store))
                break
    if not late:
        return graph

    def change(node: Node, moved: Node) -> Node:
        if id(node) not in late:
            return moved
        value = moved.views[-1]
        if value.node.name == "fill" and value.node.kind == "elementwise":
            value = whole(replace(value.node, shape=value.shape, line=node.line, order=node.order))
        else:
            value = _copy(value, value.dtype, node.order, node.line)
        return replace(moved, args=(*moved.args[:-1], value))

    return rebuilt(graph, change)
