"""Find loops over steps, such as those of a recurrent network, that tracing has unrolled.

Each step of such a loop needs values of the previous step. If the steps are equal except for offsets, a kernel has one
loop for all of them. One tensor then holds a value of all steps, one step after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from acceld.lowering.graph import Graph, Node, Shape, View, dense, elementwise, root, whole
from acceld.lowering.stores import COMPUTED, rebuilt

LEAST_STEPS = 8
"""Least number of steps of a loop. Fewer steps stay unrolled."""
MOST_UNROLLED = 256
"""Least number of nodes of a loop. A smaller loop stays unrolled, so that its values stay on the chip."""
LONGEST = 1024
"""Greatest number of nodes of one step of a loop."""
Codes = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Steps:
    """A sequence of steps, and the loops that they form. ``body[t][j]`` is node ``j`` of step ``t``.

    Each element of ``loops`` is a range (first, end) of steps that differ only in offsets. A step outside of all loops
    stays unrolled. This often happens to the first step, because it reads other values, such as the initial state.
    """

    body: list[list[Node]]
    loops: tuple[tuple[int, int], ...]

    def columns(self) -> Iterator[list[Node]]:
        """Yield, for each value that the steps keep in memory, the list of the nodes that compute the value, one node
        for each step.

        Such a value may be a buffer to which each step stores. Its list has the first store of each step.
        """
        for column in zip(*self.body, strict=True):
            if column[0].kind in COMPUTED or len(column[0].args) == 1:
                yield list(column)


def repeated(nodes: Sequence[Node]) -> list[Steps]:
    """Return the steps of the loops in ``nodes``, which are in an order in which they can run."""
    sequence = [node for node in nodes if node.kind not in ("input", "index")]
    if len(sequence) < MOST_UNROLLED:
        return []
    numbers: dict[object, int] = {}
    codes = np.array([numbers.setdefault(_key(node), len(numbers)) for node in sequence], np.int64)
    taken = np.zeros(len(sequence), bool)
    tried: list[tuple[int, int, int]] = []
    found = []
    for period in range(1, min(LONGEST, len(sequence) // LEAST_STEPS) + 1):
        for start, end in _alike(codes, period):
            known = any(period % p == 0 and a <= start and end <= b for p, a, b in tried)
            if known or end - start < MOST_UNROLLED or taken[start:end].any():
                continue
            steps = _steps(sequence, start, end, period)
            if steps is None:
                tried.append((period, start, end))
                continue
            taken[start:end] = True
            found.append(steps)
    return found


def _key(node: Node) -> object:
    """Return a key that is equal for nodes with the same function, shape and dtype. Operands do not count."""
    target = None if node.target is None else (node.target.shape, node.target.strides)
    return (node.kind, node.name, node.shape, node.dtype, node.folded, len(node.args), target)


def _alike(codes: Codes, period: int) -> list[tuple[int, int]]:
    """Return the ranges (first, end) in which each code is repeated after ``period`` codes.

    ``codes`` has a number for each node, which is equal for nodes that are alike. Only ranges of at least
    :data:`LEAST_STEPS` periods are returned.
    """
    same = np.concatenate(([False], codes[:-period] == codes[period:], [False]))
    edges = np.flatnonzero(same[1:] != same[:-1])
    starts, ends = edges[::2], edges[1::2] + period
    long = ends - starts >= LEAST_STEPS * period
    return list(zip(starts[long].tolist(), ends[long].tolist(), strict=True))


def _steps(sequence: Sequence[Node], start: int, end: int, period: int) -> Steps | None:
    """Return the nodes from ``start`` to before ``end`` divided into steps of ``period`` nodes each.

    Return None if no values pass from step to step, or if too few steps are alike.
    """
    if not any(node.kind in COMPUTED for node in sequence[start : start + period]):
        return None
    start += boundary(sequence, start, end, period)
    count = (end - start) // period
    body = [list(sequence[start + t * period : start + (t + 1) * period]) for t in range(count)]
    where = {id(node): (t, j) for t, step in enumerate(body) for j, node in enumerate(step)}
    alike = [[_operands(node, t, where) for node in step] for t, step in enumerate(body)]
    offsets = [np.array([view.offset for node in step for view in _moving(node)], np.int64) for step in body]
    loops = []
    first = 0
    for t in range(1, count + 1):
        if t < count and alike[t] == alike[first]:
            move = offsets[t] - offsets[t - 1]
            if t - first < 2 or (move == offsets[first + 1] - offsets[first]).all():
                continue
        length = t - first
        if length >= LEAST_STEPS and length * period >= MOST_UNROLLED and _carries(body[first], first, where):
            loops.append((first, t))
        first = t
    # A gather's table has to begin where its tensor begins, and a step's part of a tensor does not.
    gathers = any(node.kind == "gather" and id(root(node.views[1].node)) in where for step in body for node in step)
    return Steps(body, tuple(loops)) if loops and not gathers else None


def _moving(node: Node) -> list[View]:
    """Return the views of a node whose offsets may change from step to step: its operands, and the target of a store."""
    return node.views if node.target is None else [*node.views, node.target]


def boundary(sequence: Sequence[Node], start: int, end: int, period: int) -> int:
    """Return the distance from ``start`` to the node at which a step of ``period`` nodes should begin. The steps are
    nodes ``start`` to ``end`` of ``sequence``.

    The node is chosen so that the values that a step passes on to the next step have the fewest elements.
    """
    place = {id(node): at for at, node in enumerate(sequence[start:end])}
    middle = (end - start) // period // 2 * period
    last: dict[int, int] = {}
    for at, node in enumerate(sequence[start:end]):
        for view in node.views:
            source = place.get(id(view.node), -1)
            if middle <= source < middle + period:
                last[source] = at
    passing = [0] * period
    for source, reader in last.items():
        for at in range(source + 1, min(reader, source + period) + 1):
            passing[at % period] += sequence[start + source].size
    return passing.index(min(passing))


def _operands(node: Node, step: int, where: dict[int, tuple[int, int]]) -> list[object]:
    """Return a description of a node's operands that is equal for the same node in equal steps.

    The description leaves out the offset of a view, because the offset may change from step to step. ``where`` has
    (step, number in the step) of each node, by the node's id.
    """
    found: list[object] = []
    for arg in node.args:
        if not isinstance(arg, View):
            found.append(arg)
            continue
        at = where.get(id(arg.node))
        source = ("outside", id(root(arg.node))) if at is None else (step - at[0], at[1])
        found.append((arg.shape, arg.strides, source))
    return found


def _carries(body: Sequence[Node], step: int, where: dict[int, tuple[int, int]]) -> bool:
    """Tell whether step number ``step``, with the nodes ``body``, reads a value of an earlier step."""
    reads = (view for node in body for view in (node.views[-1:] if node.kind == "buffer" else node.views))
    return any(where.get(id(view.node), (step, 0))[0] < step for view in reads)


def with_results_apart(graph: Graph) -> Graph:
    """Return the graph with a copy of each value that only some steps of a loop store or return, such as the last state.

    With the copies, all steps of the loop are alike.
    """
    loops = repeated(graph.nodes())
    where = {
        id(node): (steps, t, j) for steps in loops for t, body in enumerate(steps.body) for j, node in enumerate(body)
    }
    if not where:
        return graph
    stores: dict[tuple[int, int, int], dict[int, list[Node]]] = {}
    for node in graph.nodes():
        if node.kind == "buffer" and node.args and id(node) not in where and id(node.views[-1].node) in where:
            steps, t, j = where[id(node.views[-1].node)]
            stores.setdefault((id(steps), j, id(root(node))), {}).setdefault(t, []).append(node)
    by_id = {id(steps): steps for steps in loops}
    apart = {
        id(node)
        for (loop, _, _), every in stores.items()
        if not all(_even([every.get(t, []) for t in range(*one)]) for one in by_id[loop].loops)
        for found in every.values()
        for node in found
    }

    def change(node: Node, moved: Node) -> Node:
        if id(node) not in apart:
            return moved
        copied = elementwise("copy", moved.views[-1:], node.dtype, node.line)
        return replace(moved, args=(*moved.args[:-1], whole(replace(copied, order=node.order))))

    made = rebuilt(graph, change)
    outputs = []
    for view in made.outputs:
        inside = id(root(view.node)) in where
        copied = elementwise("copy", [view]) if inside else None
        outputs.append(view if copied is None else View(copied, view.shape, dense(view.shape)))
    return Graph(made.inputs, tuple(outputs), made.lines)


def _even(stores: Sequence[Sequence[Node]]) -> bool:
    """Tell whether each step has one store, and the offsets of the stores grow by the same distance in each step."""
    if any(len(one) != 1 for one in stores):
        return False
    targets = [one[0].target for one in stores]
    shapes: set[tuple[Shape, Shape]] = {(one.shape, one.strides) for one in targets if one is not None}
    offsets = [one.offset for one in targets if one is not None]
    return len(shapes) == 1 and len({b - a for a, b in itertools.pairwise(offsets)}) == 1
