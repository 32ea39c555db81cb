"""Replace an unrolled loop over time by operations on whole tensors, with time as their last axis.

Tracing unrolls all loops. A linear recurrence, in which each iteration passes a value on to the next, becomes a scan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from acceld.lowering.graph import Graph, Node, Operand, View, elementwise, fill, reduced, stored, whole

LEAST_TRIPS = 16
"""Least number of iterations of a loop that is replaced. Shorter loops stay unrolled: their equal regions become one
loop nest later.
"""


class _NoLoopError(Exception):
    """Report that a loop can not be replaced by tensor operations.

    Its iterations differ, or they pass on anything but a linear recurrence.
    """


def vectorized(graph: Graph) -> Graph:
    """Return the graph with tensor operations in place of each unrolled loop over time that fills a buffer.

    Loops that can not be replaced stay unrolled.
    """
    nodes = graph.nodes()
    last: dict[int, Node] = {}
    previous = {id(node.args[0].node) for node in nodes if node.kind == "buffer" and len(node.args) == 2}  # type: ignore[union-attr]  # a buffer's operands are views
    replaced: dict[int, View] = {}
    for node in nodes:
        if node.kind == "buffer" and node.args and id(node) not in previous:
            last[id(node)] = node
    computed = [node for node in nodes if node.kind in ("elementwise", "reduce", "dot")]
    place = {id(node): number for number, node in enumerate(computed)}
    for node in last.values():
        stores = _stores(node)
        if len(stores) < LEAST_TRIPS:
            continue
        try:
            replaced[id(node)] = _Loop(computed, place, stores).tensors()
        except _NoLoopError:
            continue
    if not replaced:
        return graph
    return Graph(graph.inputs, tuple(_put(view, replaced) for view in graph.outputs), graph.lines)


def _put(view: View, replaced: dict[int, View]) -> View:
    """Return a view of a replaced node as a view of the tensor that replaces the node; any other view unchanged."""
    found = replaced.get(id(view.node))
    return view if found is None else View(found.node, view.shape, view.strides, view.offset)


def _stores(node: Node) -> list[Node]:
    """Return the states of the buffer ``node``, one after each store, in order."""
    found: list[Node] = []
    while node.kind == "buffer" and node.args:
        found.append(node)
        if len(node.args) == 1:
            break
        before = node.args[0]
        assert isinstance(before, View)
        node = before.node
    return found[::-1]


@dataclass(frozen=True, slots=True)
class _Step:
    """An operand that reads node ``number`` of an iteration through ``view``.

    It reads the previous iteration if ``carried`` is True, else the same iteration.
    """

    number: int
    view: View
    carried: bool


_Outside = Callable[[Sequence[int]], View]
_Argument = float | _Step | _Outside


class _Loop:
    """Hold the iterations of one loop: ``body[t][j]`` is node ``j`` of iteration ``t``.

    ``stores`` are the stores of the loop, one of each iteration. Raise _NoLoopError if they are not equally far apart.
    """

    def __init__(self, computed: list[Node], place: dict[int, int], stores: list[Node]) -> None:
        ends = []
        for store in stores:
            value = store.args[-1]
            if not isinstance(value, View) or id(value.node) not in place:
                raise _NoLoopError
            ends.append(place[id(value.node)])
        period = ends[1] - ends[0]
        start = ends[0] - period + 1
        if period <= 0 or start < 0 or any(b - a != period for a, b in itertools.pairwise(ends)):
            raise _NoLoopError
        self.stores = stores
        self.trips = len(stores)
        self.body = [computed[start + t * period : start + (t + 1) * period] for t in range(self.trips)]
        self.where = {id(node): (t, j) for t, step in enumerate(self.body) for j, node in enumerate(step)}
        self.values: dict[int, View] = {}

    def tensors(self) -> View:
        """Return the last state of the buffer, computed by operations on whole tensors.

        Raise _NoLoopError if that is not possible.
        """
        body, stores = self.body, self.stores
        arguments = [self._arguments(j) for j in range(len(body[0]))]
        carried = {j for j, args in enumerate(arguments) if any(isinstance(a, _Step) and a.carried for a in args)}
        for j, node in enumerate(body[0]):
            if j not in carried:
                self.values[j] = self._tensor(j, node, arguments, carried)
        first, second = stores[0].target, stores[1].target
        assert first is not None and second is not None
        offsets = [store.target.offset for store in stores if store.target is not None]
        step = second.offset - first.offset
        if any(b - a != step for a, b in itertools.pairwise(offsets)):
            raise _NoLoopError
        value = stores[0].args[-1]
        assert isinstance(value, View)
        result = self.values.get(self.where[id(value.node)][1])
        if result is None or not value.whole:
            raise _NoLoopError
        held = stores[0]
        empty = Node("buffer", "", (), held.shape, held.dtype, held.line)
        target = View(empty, (*first.shape, self.trips), (*first.strides, step), first.offset)
        before = None if len(held.args) == 1 else held.args[0]
        if isinstance(before, View):
            start = stored(None, before, whole(empty), held.line)
            return whole(stored(whole(start), result.reshaped(target.shape), _on(target, start), held.line))
        return whole(stored(None, result.reshaped(target.shape), target, held.line))

    def _arguments(self, j: int) -> list[_Argument]:
        """Describe the operands of node ``j``, each by one description for all iterations.

        Raise _NoLoopError if the iterations differ.
        """
        node = self.body[0][j]
        for step in self.body:
            other = step[j]
            same = (other.kind, other.name, other.shape, other.dtype, other.folded)
            if same != (node.kind, node.name, node.shape, node.dtype, node.folded) or len(other.args) != len(node.args):
                raise _NoLoopError
        return [self._argument(j, i) for i in range(len(node.args))]

    def _argument(self, j: int, i: int) -> _Argument:
        """Describe operand ``i`` of node ``j``: a number, a value of an iteration, or a value from outside of the loop.

        Raise _NoLoopError if the operand differs between iterations.
        """
        every: list[Operand] = [step[j].args[i] for step in self.body]
        second = every[1]
        if not isinstance(second, View):
            if any(arg != second for arg in every):
                raise _NoLoopError
            return second
        at = self.where.get(id(second.node))
        if at is None or at[0] not in (0, 1):
            return self._outside(every)
        for t, arg in enumerate(every[1:], 1):
            if not isinstance(arg, View) or self.where.get(id(arg.node)) != (t - 1 + at[0], at[1]):
                raise _NoLoopError
            if (arg.shape, arg.strides, arg.offset) != (second.shape, second.strides, second.offset):
                raise _NoLoopError
        return _Step(at[1], second, at[0] == 0)

    def _outside(self, every: list[Operand]) -> _Outside:
        """Return a function that gives an operand from outside of the loop as one view, with time as last axis.

        The function takes the shape to which the operand is broadcast. ``every`` has the operand in each iteration. Raise
        _NoLoopError if the operand does not move by equal steps from iteration to iteration.
        """
        views = [arg for arg in every if isinstance(arg, View)]
        steps = {b.offset - a.offset for a, b in itertools.pairwise(views)}
        alike = {(id(view.node), view.shape, view.strides) for view in views}
        if len(views) != self.trips or len(steps) != 1 or len(alike) != 1 or id(views[0].node) in self.where:
            raise _NoLoopError
        first, step = views[0], steps.pop()

        def over_time(shape: Sequence[int]) -> View:
            spread = first.broadcast(shape)
            return View(spread.node, (*spread.shape, self.trips), (*spread.strides, step), spread.offset)

        return over_time

    def _value(self, argument: _Argument, shape: Sequence[int]) -> Operand:
        """Return an operand of all iterations as a view of the shape [*shape, time], or as a number."""
        if isinstance(argument, float):
            return argument
        if not isinstance(argument, _Step):
            return argument(shape)
        base = self.values.get(argument.number)
        if base is None:
            raise _NoLoopError
        view = argument.view
        strides = tuple(s * self.trips for s in view.strides)
        over = View(base.node, (*view.shape, self.trips), (*strides, 1), view.offset * self.trips)
        return over if base.whole and view.shape == tuple(shape) else over.broadcast((*shape, self.trips))

    def _tensor(self, j: int, node: Node, arguments: list[list[_Argument]], carried: set[int]) -> View:
        """Return the values of node ``j`` in all iterations, with time as last axis.

        ``carried`` has the numbers of the nodes that read the previous iteration. Raise _NoLoopError for a node that can
        not be computed for all iterations together.
        """
        args = arguments[j]
        states = [i for i, a in enumerate(args) if isinstance(a, _Step) and a.number in carried]
        if states:
            return self._scan(j, node, arguments, states[0])
        shape = (*node.shape, self.trips)
        if node.kind == "elementwise":
            given = [self._value(a, node.shape) for a in args]
            return whole(elementwise(node.name, given, node.dtype, node.line, shape))
        if node.kind == "dot" and node.folded == 1 and node.shape[-1] == 1 and len(node.shape) == 2:
            left, right = node.args
            assert isinstance(left, View) and isinstance(right, View)
            rows, depth = left.shape
            over = self._value(args[1], (1, depth))
            assert isinstance(over, View)
            both = elementwise(
                "mul", [self._value(args[0], (rows, depth)), over.broadcast((rows, depth, self.trips))], line=node.line
            )
            total = reduced("add", whole(both), (1,), keepdims=False, line=node.line)
            return total.reshaped(shape)
        raise _NoLoopError

    def _scan(self, j: int, node: Node, arguments: list[list[_Argument]], at: int) -> View:
        """Return the states of all iterations as one scan along time: ``state = decay * state + drive``, from 0 on.

        Node ``j`` adds, and its operand ``at`` is the product with the state. Raise _NoLoopError if the recurrence has
        another form.
        """
        step = arguments[j][at]
        assert isinstance(step, _Step)
        product = self.body[0][step.number]
        factors = arguments[step.number]
        held = [i for i, a in enumerate(factors) if isinstance(a, _Step) and a.carried]
        linear = node.name == "add" and product.name == "mul" and len(held) == 1 and step.view.whole
        state = factors[held[0]] if held else None
        if not linear or not isinstance(state, _Step) or state.number != j or not state.view.whole:
            raise _NoLoopError
        first = product.args[held[0]]
        if not isinstance(first, View) or first.node.name != "fill" or first.node.args != (0.0,):
            raise _NoLoopError
        shape = (*node.shape, self.trips)
        decay, drive = self._value(factors[1 - held[0]], node.shape), self._value(arguments[j][1 - at], node.shape)
        both = [part if isinstance(part, View) else whole(fill(part, shape, node.dtype)) for part in (decay, drive)]
        made = Node("scan", "linear", tuple(part.broadcast(shape) for part in both), shape, node.dtype, node.line)
        return whole(made)


def _on(target: View, node: Node) -> View:
    """Return a view of ``node`` with the shape, strides and offset of the view ``target``."""
    return View(node, target.shape, target.strides, target.offset)
