"""Choose how rows are put in order: by a search for the eight greatest elements, by a network, or by comparing all elements.

A reference often sorts rows to read a few elements, such as the two greatest of a router. How many elements are read is
known only when the whole graph is.
"""

from __future__ import annotations

from dataclasses import replace

from acceld.lowering.functions import LONGEST_ROW, MOST_SORTED
from acceld.lowering.graph import Graph, Node, NotLowered, View, coordinates, dense, elementwise, whole
from acceld.lowering.instructions import EIGHT
from acceld.lowering.simplify import moved_view, through

MOST_SEARCHED = 16384
"""Greatest number of elements in a row that a search goes through."""


def ordered_rows(graph: Graph) -> Graph:
    """Return the graph with a search in place of each sort of which nodes read at most eight elements at one end of a row.

    A sort is a scan ``sorted`` with the rows, or a scan ``order`` with the rows and, if the rows are short enough, the
    positions that comparing every two elements gives. Raise NotLowered for a sort of long rows that is no search.
    """
    nodes = graph.nodes()
    sorts = {id(node) for node in nodes if node.kind == "scan" and node.name in ("sorted", "order")}
    if not sorts:
        return graph
    read: dict[int, list[tuple[int, int]]] = {}
    for view in (*(view for node in nodes for view in node.views), *graph.outputs):
        if id(view.node) in sorts:
            read.setdefault(id(view.node), []).append(_columns(view))
    made: dict[int, View] = {}
    for node in nodes:
        args = tuple(moved_view(arg, made) if isinstance(arg, View) else arg for arg in node.args)
        target = None if node.target is None else moved_view(node.target, made)
        fresh = node if args == node.args and target is node.target else replace(node, args=args, target=target)
        if id(node) in sorts:
            every = read[id(node)]
            made[id(node)] = _in_order(fresh, min(low for low, _ in every), max(high for _, high in every))
        elif fresh is not node:
            made[id(node)] = whole(fresh)
    return Graph(graph.inputs, tuple(moved_view(view, made) for view in graph.outputs), graph.lines)


def _columns(view: View) -> tuple[int, int]:
    """Return the range (first, end) of the last axis of a node's result that a view of the result reads."""
    shape = view.node.shape
    low = high = coordinates(view.offset, shape)[-1]
    for extent, stride in zip(view.shape, view.strides, strict=True):
        *outer, by = coordinates(abs(stride), shape)
        if extent > 1 and by and any(outer):
            return 0, shape[-1]
        reach = (by if stride > 0 else -by) * (extent - 1)
        low, high = low + min(0, reach), high + max(0, reach)
    return (low, high + 1) if 0 <= low and high < shape[-1] else (0, shape[-1])


def _in_order(node: Node, first: int, end: int) -> View:
    """Return the rows of a sort of which the elements from ``first`` to before ``end`` are read."""
    given, extent = node.views[0], node.shape[-1]
    few = min(end, extent - first)
    if few <= EIGHT <= extent <= MOST_SEARCHED and given.dtype in ("float32", "bfloat16", "float16"):
        return _searched(node, given, least=end <= extent - first)
    if node.name == "order" and len(node.args) == 2:
        return node.views[1]
    if node.name == "sorted" and extent <= LONGEST_ROW:
        return whole(node)
    what, most = ("np.sort", LONGEST_ROW) if node.name == "sorted" else ("np.argsort", MOST_SORTED)
    why = "which do not fit beside each other" if node.name == "sorted" else "which compares every two elements"
    raise NotLowered(
        f"{what} of more than {most} elements (here {extent}), {why}, is not lowered; sort parts of the axis, read at most "
        f"{EIGHT} elements at one end of the order, or reduce by max, min or sum",
        node.line,
    )


def _searched(node: Node, given: View, least: bool) -> View:
    """Return the rows of a sort with their eight least elements, or their eight greatest elements, in place. Other elements
    of the rows must not be read.

    Equal elements keep their order: a search finds the first of them first, so the greatest are searched from the end.
    """
    extent, places = node.shape[-1], node.name == "order"

    def apply(name: str, *args: View | float, dtype: str = "float32") -> View:
        made = elementwise(name, args, dtype, node.line)
        made.order = node.order
        return whole(made)

    turned = given.node.args[0] if given.node.kind == "elementwise" and given.node.name == "neg" else None
    rows = given
    if least:
        rows = (through(given, turned) if isinstance(turned, View) else None) or apply("neg", given)
    if places and not least:
        rows = apply("copy", given.mapped(lambda array: array[..., ::-1]), dtype=given.dtype)
    shape = (*node.shape[:-1], EIGHT)
    dtype = "float32" if places else rows.dtype
    made = Node("scan", "places" if places else "greatest_few", (rows,), shape, dtype, node.line)
    made.order = node.order
    found = whole(made)
    if least and not places:
        found = apply("neg", found, dtype=node.dtype)
    elif places and not least:
        found = apply("sub", float(extent - 1), found)
    return View(found.node, node.shape, (*dense(shape)[:-1], 1 if least else -1), 0 if least else extent - 1)
