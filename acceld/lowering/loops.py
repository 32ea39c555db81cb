"""Replace an unrolled loop over time by operations on whole tensors, whose last axis is time.

Tracing unrolls all loops. If an iteration computes a value from the same value of the previous iteration, the values
become a scan, provided that each is a linear function of the previous value, or the maximum or minimum of it and
something else.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from acceld.lowering.diagonals import by_diagonals
from acceld.lowering.graph import (
    Graph,
    Node,
    Operand,
    View,
    contraction,
    dense,
    elementwise,
    fill,
    overlap,
    reduced,
    stored,
    whole,
)
from acceld.lowering.simplify import by_columns, in_own_order, moved_view, through
from acceld.lowering.steps import boundary

LEAST_TRIPS = 16
"""Least number of iterations of a loop that is replaced. Shorter loops stay unrolled: their equal regions are joined
into one loop nest later.
"""
MOST_ELEMENTS = 2**26
"""Greatest number of elements of a value in all iterations together."""
MOST_LAGGING = 2048
"""Greatest number of elements of a value that is also read one iteration later. Such a value is stored to HBM for all
iterations.
"""
NEVER = 1e30
"""Magnitude from which on the initial value of a maximum or minimum counts as infinite."""


class _NoLoopError(Exception):
    """Raised if a loop can not be replaced by tensor operations, because its iterations differ or because they pass on
    a value that no scan computes.
    """


def vectorized(graph: Graph) -> Graph:
    """Return the graph with tensor operations in place of each unrolled loop over time that fills a buffer.

    Loops that can not be replaced stay unrolled.
    """
    tables = by_diagonals(graph)
    graph = _with(graph, tables) if tables else graph
    nodes = graph.nodes()
    previous = {id(node.views[0].node) for node in nodes if node.kind == "buffer" and len(node.args) == 2}
    computed = [node for node in nodes if node.kind in ("elementwise", "reduce", "dot")]
    place = {id(node): number for number, node in enumerate(computed)}
    readers: dict[int, list[Node]] = {}
    for node in nodes:
        for view in node.views:
            readers.setdefault(id(view.node), []).append(node)
    replaced: dict[int, View] = {}
    for node in nodes:
        if node.kind != "buffer" or not node.args or id(node) in previous:
            continue
        stores = _regular(_stores(node), place)
        for skipped in range(3):  # the first iterations may differ from all later ones
            if len(stores) - skipped < LEAST_TRIPS:
                break
            try:
                replaced |= _Loop(computed, place, stores[skipped:]).replacements(readers, graph.outputs)
            except _NoLoopError:
                continue
            break
    return _with(graph, replaced) if replaced else graph


def _with(graph: Graph, replaced: dict[int, View]) -> Graph:
    """Return the graph with nodes replaced by views. ``replaced`` has the views by the node's id."""
    made: dict[int, View] = {}
    done: set[int] = set()
    todo = [view.node for view in graph.outputs]
    while todo:
        node = todo[-1]
        given = replaced.get(id(node))
        needed = [given.node] if given is not None else [view.node for view in node.views]
        if node.target is not None and given is None:
            needed.append(node.target.node)
        missing = [one for one in needed if id(one) not in done and one is not node]
        if missing:
            todo += missing
            continue
        todo.pop()
        if id(node) in done:
            continue
        done.add(id(node))
        if given is not None:
            made[id(node)] = moved_view(given, made)
            continue
        args = tuple(moved_view(arg, made) if isinstance(arg, View) else arg for arg in node.args)
        target = node.target
        if target is not None and id(target.node) in made:
            target = replace(target, node=made[id(target.node)].node)
        if args != node.args or target is not node.target:
            made[id(node)] = whole(replace(node, args=args, target=target))
    return Graph(graph.inputs, tuple(moved_view(view, made) for view in graph.outputs), graph.lines)


def _stores(node: Node) -> list[Node]:
    """Return the states of the buffer ``node``, one after each store, in order."""
    found: list[Node] = []
    while node.kind == "buffer" and node.args:
        found.append(node)
        if len(node.args) == 1:
            break
        node = node.views[0].node
    return found[::-1]


def _regular(stores: list[Node], place: dict[int, int]) -> list[Node]:
    """Return the longest range of stores whose values are computed at equal distances in the order of computed nodes.

    ``place`` has the number of each computed node in that order, by the node's id.
    """
    ends = [place.get(id(store.views[-1].node), -1) for store in stores]
    best = (0, 0)
    first = 0
    for at in range(1, len(stores) + 1):
        alike = at < len(stores) and min(ends[at - 1], ends[at]) >= 0 and ends[at] > ends[at - 1]
        if alike and (at == first + 1 or ends[at] - ends[at - 1] == ends[first + 1] - ends[first]):
            continue
        if at - first > best[1] - best[0]:
            best = (first, at)
        first = at - 1 if alike else at
    return stores[best[0] : best[1]]


@dataclass(frozen=True, slots=True)
class _Step:
    """An operand that reads node ``number`` of an iteration through ``view``.

    It reads the previous iteration if ``carried`` is True, else the same iteration. In the first iteration, a carried
    operand is ``start``.
    """

    number: int
    view: View
    start: Operand | None = None

    @property
    def carried(self) -> bool:
        """Tell whether the operand is a value of the previous iteration."""
        return self.start is not None


_Outside = Callable[[Sequence[int]], View]
_Argument = float | _Step | _Outside
_Form = tuple[Operand, Operand]
"""A value as a function of the previous state: ``first * state + second``, or ``max(state + first, second)``."""


class _Loop:
    """One unrolled loop: ``body[t][j]`` is node ``j`` of iteration ``t``.

    ``stores`` are the stores of the loop, one of each iteration. Raise _NoLoopError unless each store writes at the
    same distance from the store before it.
    """

    def __init__(self, computed: list[Node], place: dict[int, int], stores: list[Node]) -> None:
        ends = [place[id(store.views[-1].node)] for store in stores]
        period = ends[1] - ends[0]
        start = ends[0] - period + 1 + boundary(computed, ends[0] + 1, ends[-1] + 1, period)
        if start < 0:
            raise _NoLoopError
        self.stores = stores
        self.trips = len(stores)
        self.body = [computed[start + t * period : start + (t + 1) * period] for t in range(self.trips)]
        own = next(
            (at for at, (one, other) in enumerate(zip(*self.body[-2:], strict=False)) if _kind(one) != _kind(other)),
            period,
        )
        del self.body[-1][own:]  # the last iteration has no nodes whose values only a following iteration would read
        if ends[-1] >= start + (self.trips - 1) * period + own:
            raise _NoLoopError
        self.where = {id(node): (t, j) for t, step in enumerate(self.body) for j, node in enumerate(step)}
        self.states = {id(store): store for store in stores}
        self.values: dict[int, View] = {}
        self.lags: dict[int, Node] = {}
        self.stand_ins: dict[int, Node] = {}
        self.moved: dict[int, View] = {}
        self.beside: dict[object, tuple[View, View]] = {}
        first = self.body[0]
        if any(len(step) != period for step in self.body[:-1]):
            raise _NoLoopError
        if any(_kind(node) != _kind(other) for step in self.body for node, other in zip(first, step, strict=False)):
            raise _NoLoopError
        if max(node.size for node in first) * self.trips > MOST_ELEMENTS:
            raise _NoLoopError
        self.arguments = [
            [self._argument([step[j].args[i] for step in self.body if j < len(step)]) for i in range(len(node.args))]
            for j, node in enumerate(first)
        ]
        self.groups = self._groups()

    def replacements(self, readers: dict[int, list[Node]], outputs: Sequence[View]) -> dict[int, View]:
        """Return, as a dict by node id, the views that replace values of the loop: the last state of the buffer, and each
        value of an iteration that is an output or is read outside of the loop.

        Raise _NoLoopError if that is not possible.
        """
        last = self.stores[-1]
        found = {id(last): self._last_state()}
        kept = {id(view.node) for view in outputs}
        for t, step in enumerate(self.body):
            for j, node in enumerate(step):
                outside = [
                    one for one in readers.get(id(node), ()) if id(one) not in self.where and id(one) not in self.states
                ]
                if outside or id(node) in kept:
                    value = self._time(j)
                    at = value.offset + t * value.strides[-1]
                    found[id(node)] = View(value.node, value.shape[:-1], value.strides[:-1], at)
        return found

    def _last_state(self) -> View:
        """Return the last state of the buffer, computed by operations on whole tensors."""
        first, second = self.stores[0].target, self.stores[1].target
        assert first is not None and second is not None
        targets = [store.target for store in self.stores if store.target is not None]
        step = second.offset - first.offset
        alike = {(target.shape, target.strides) for target in targets}
        if len(alike) != 1 or any(b.offset - a.offset != step for a, b in itertools.pairwise(targets)):
            raise _NoLoopError
        if not step or overlap(
            View(first.node, first.shape, first.strides), View(first.node, first.shape, first.strides, abs(step))
        ):
            raise _NoLoopError
        result = self._value(self._argument([store.args[-1] for store in self.stores]), first.shape)
        if not isinstance(result, View):
            raise _NoLoopError
        held = self.stores[0]
        empty = Node("buffer", "", (), held.shape, held.dtype, held.line)
        target = View(empty, (*first.shape, self.trips), (*first.strides, step), first.offset)
        before = None if len(held.args) == 1 else held.views[0]
        if isinstance(before, View):
            start = stored(None, before, whole(empty), held.line)
            return whole(stored(whole(start), result, _on(target, start), held.line))
        return whole(stored(None, result, target, held.line))

    def _argument(self, every: list[Operand]) -> _Argument:
        """Return the argument that stands for an operand in every iteration of the loop.

        ``every`` has the operand of each iteration. The argument is a number, a value that the iteration computes, or a
        value from outside of the loop.
        """
        views = [self._held(arg) if isinstance(arg, View) else arg for arg in every]
        second = views[1]
        if not isinstance(second, View):
            if any(arg != second for arg in views):
                raise _NoLoopError
            return second
        at = self.where.get(id(second.node))
        if at is None or at[0] not in (0, 1):
            return self._outside(views)
        for t, arg in enumerate(views[1:], 1):
            if not isinstance(arg, View) or self.where.get(id(arg.node)) != (t - 1 + at[0], at[1]):
                raise _NoLoopError
            if (arg.shape, arg.strides, arg.offset) != (second.shape, second.strides, second.offset):
                raise _NoLoopError
        start = views[0]
        if at[0] == 1:
            own = isinstance(start, View) and self.where.get(id(start.node)) == (0, at[1])
            if not own or start != View(start.node, second.shape, second.strides, second.offset):  # type: ignore[union-attr]  # a view, if it is of an own node
                raise _NoLoopError
            return _Step(at[1], second)
        if isinstance(start, View) and (id(start.node) in self.where or start.shape != second.shape):
            raise _NoLoopError
        return _Step(at[1], second, start)

    def _held(self, view: View) -> View:
        """Return the value that a single store wrote to exactly the elements of ``view``, a view of a buffer.

        If there is no such store, return a view of the same elements in the earliest state of the buffer that has them.
        """
        held = view
        node = view.node
        while node.kind == "buffer" and node.args and node.target is not None:
            target, value = node.target, node.views[-1]
            if (target.shape, target.strides, target.offset) == (view.shape, view.strides, view.offset):
                return value if value.dtype == node.dtype else held
            if len(node.args) == 1 or overlap(target, View(target.node, view.shape, view.strides, view.offset)):
                break
            node = node.views[0].node
            held = View(node, view.shape, view.strides, view.offset)
        return held

    def _outside(self, every: Sequence[Operand]) -> _Outside:
        """Return a function that returns an operand from outside of the loop for all iterations, with time as the last
        axis.

        The function takes the shape to which the operand is broadcast. ``every`` has the operand in each iteration. Raise
        _NoLoopError if the operand does not move by equal steps from iteration to iteration.
        """
        views = [arg for arg in every if isinstance(arg, View)]
        steps = {b.offset - a.offset for a, b in itertools.pairwise(views)}
        alike = {(id(view.node), view.shape, view.strides) for view in views}
        if len(views) != len(every) or len(steps) != 1 or len(alike) != 1 or id(views[0].node) in self.where:
            raise _NoLoopError
        if id(views[0].node) in self.states:
            raise _NoLoopError
        first, step = views[0], steps.pop()
        axes = [*zip(first.shape, first.strides, strict=True), (self.trips, step)]
        low, high = (sum(pick(0, by * (n - 1)) for n, by in axes) + first.offset for pick in (min, max))
        if low < 0 or high >= first.node.size:
            raise _NoLoopError

        def over_time(shape: Sequence[int]) -> View:
            spread = first.broadcast(shape)
            return self._beside(View(spread.node, (*spread.shape, self.trips), (*spread.strides, step), spread.offset))

        return over_time

    def _beside(self, view: View) -> View:
        """Return the values that an operand has in all iterations as one view. Elements of consecutive iterations are
        neighbors in memory.

        Results of element-wise nodes are computed in this order. Any other operand is copied into this order.
        """
        if abs(view.strides[-1]) < 2:
            return view
        key = (id(view.node), view.shape, view.strides, view.offset)
        if key not in self.beside:
            self.beside[key] = view, self._ordered(view)
        return self.beside[key][1]

    def _ordered(self, view: View) -> View:
        """Return the elements of a view in a new array in which elements of consecutive iterations are neighbors in
        memory.
        """
        node = view.node
        if node.kind == "elementwise":
            args = [through(view, arg) if isinstance(arg, View) else arg for arg in node.args]
            if None not in args:
                given = [self._beside(arg) if isinstance(arg, View) else arg for arg in args if arg is not None]
                return whole(elementwise(node.name, given, node.dtype, node.line, view.shape))
        return in_own_order(view)

    def _groups(self) -> dict[int, list[int]]:
        """Return the group of each node that depends on its own value in the previous iteration, as a dict by the
        node's number.

        A group has the numbers of all nodes on the way from the old value to the new value.
        """
        reads = [{one.number for one in args if isinstance(one, _Step)} for args in self.arguments]
        reached = []
        for start in range(len(reads)):
            seen: set[int] = set()
            todo = list(reads[start])
            while todo:
                one = todo.pop()
                if one not in seen:
                    seen.add(one)
                    todo += reads[one]
            reached.append(seen)
        return {
            j: [one for one in range(len(reads)) if one in reached[j] and j in reached[one]]
            for j in range(len(reads))
            if j in reached[j]
        }

    def _time(self, j: int) -> View:
        """Return the values of node ``j`` in all iterations, as an array [*shape, time]."""
        if j not in self.values:
            state = self._state(self.groups[j]) if j in self.groups else None
            self.values[j] = self._scan(j) if state == j else self._tensor(j)
        return self.values[j]

    def _state(self, group: Sequence[int]) -> int:
        """Return the number of that one node of a group whose value is passed to the next iteration."""
        carried = {
            one.number
            for j in group
            for one in self.arguments[j]
            if isinstance(one, _Step) and one.carried and one.number in group
        }
        if len(carried) != 1:
            raise _NoLoopError
        return carried.pop()

    def _value(self, argument: _Argument, shape: Sequence[int]) -> Operand:
        """Return the values that an operand has in all iterations as a view of the shape [*shape, time], or as a
        number.
        """
        if isinstance(argument, float):
            return argument
        if not isinstance(argument, _Step):
            return argument(shape)
        node, view = self.body[0][argument.number], argument.view
        if argument.carried:
            held, trips = self._lagging(argument), self.trips + 1
            strides = tuple(s * trips for s in view.strides)
            return View(held, (*view.shape, self.trips), (*strides, 1), view.offset * trips).broadcast(
                (*shape, self.trips)
            )
        base = self._time(argument.number)
        if argument.number not in self.stand_ins:
            self.stand_ins[argument.number] = Node("buffer", "", (), (*node.shape, self.trips), node.dtype)
            self.moved[id(self.stand_ins[argument.number])] = base
        strides = tuple(s * self.trips for s in view.strides)
        over = View(self.stand_ins[argument.number], (*view.shape, self.trips), (*strides, 1), view.offset * self.trips)
        return moved_view(over, self.moved).broadcast((*shape, self.trips))

    def _lagging(self, argument: _Step) -> Node:
        """Return an array [*shape, time + 1] with the operand's start, followed by its values in all iterations."""
        number, view = argument.number, argument.view
        if number not in self.lags:
            node, trips = self.body[0][number], self.trips + 1
            if node.size > MOST_LAGGING:
                raise _NoLoopError
            strides = tuple(s * trips for s in dense(node.shape))
            empty = Node("buffer", "", (), (*node.shape, trips), node.dtype, node.line)
            # leave out the axes along which the start is repeated
            kept = [axis for axis, (n, s) in enumerate(zip(view.shape, view.strides, strict=True)) if s or n == 1]
            shape = tuple(view.shape[axis] for axis in kept)
            if math.prod(shape) != node.size:
                raise _NoLoopError
            place = View(empty, shape, tuple(view.strides[axis] * trips for axis in kept), view.offset * trips)
            start = argument.start
            if isinstance(start, View):
                start = View(start.node, shape, tuple(start.strides[axis] for axis in kept), start.offset)
            else:
                start = whole(fill(float(start or 0.0), shape, node.dtype, node.line))
            first = stored(None, start, place, node.line)
            rest = View(first, (*node.shape, self.trips), (*strides, 1), 1)
            self.lags[number] = stored(whole(first), self._time(number), rest, node.line)
        return self.lags[number]

    def _tensor(self, j: int) -> View:
        """Return the values of node ``j`` in all iterations, with time as last axis."""
        node, args = self.body[0][j], self.arguments[j]
        shape = (*node.shape, self.trips)
        if node.kind == "elementwise":
            given = [self._value(a, node.shape) for a in args]
            return whole(elementwise(node.name, given, node.dtype, node.line, shape))
        every = [self._value(a, view.shape) for a, view in zip(args, node.views, strict=True)]
        views = [one for one in every if isinstance(one, View)]
        if len(views) != len(args):
            raise _NoLoopError
        if node.kind == "reduce":
            axes = range(len(node.shape), len(node.shape) + node.folded)
            return reduced(node.name, views[0], axes, keepdims=False, line=node.line, dtype=node.dtype)
        return self._product(node, *views)

    def _product(self, node: Node, left: View, right: View) -> View:
        """Return a matrix product, computed for all iterations together. A product with a vector becomes an
        element-wise product and a sum.
        """
        kept, columns = len(left.shape) - 1 - node.folded, len(right.shape) - 1 - node.folded
        batch = kept + columns - len(node.shape)
        rows, width = math.prod(left.shape[batch:kept]), math.prod(right.shape[batch:columns])
        if node.folded == 1 and min(rows, width) == 1 and left.strides[-1] and right.strides[-1]:
            return by_columns(left, right, batch, node.line)
        if not right.strides[-1]:
            a = left.mapped(lambda array: np.moveaxis(array, -1, kept))
            b, at, common = right.mapped(lambda array: array[..., 0]), kept, batch
        elif not left.strides[-1]:
            a = left.mapped(lambda array: array[..., 0])
            b, at, common = right.mapped(lambda array: np.moveaxis(array, -1, columns)), len(node.shape), batch
        else:
            a, b = (one.mapped(lambda array: np.moveaxis(array, -1, batch)) for one in (left, right))
            at, common = batch, batch + 1
        made = whole(contraction(a, b, common, node.folded, node.dtype, node.line))
        return made.mapped(lambda array: np.moveaxis(array, at, -1))

    def _scan(self, j: int) -> View:
        """Return the values of node ``j``, which depend on their previous values, in all iterations, as one scan along
        time.
        """
        group, node = self.groups[j], self.body[0][j]
        shape = (*node.shape, self.trips)
        starts = {
            (id(one.start.node), one.start.offset) if isinstance(one.start, View) else one.start: one.start
            for at in group
            for one in self.arguments[at]
            if isinstance(one, _Step) and one.number == j and one.carried
        }
        start = next(iter(starts.values()))
        if len(starts) != 1 or not (isinstance(start, View) and math.prod(start.shape) == node.size):
            raise _NoLoopError
        number = start.node.args[0] if start.node.name == "fill" and start.node.kind == "elementwise" else None
        for name, rules in (("linear", _linear), ("peak", _peak), ("valley", _valley)):
            form = self._form(j, group, rules)
            if form is None:
                continue
            first, second = (
                one.broadcast(shape) if isinstance(one, View) else whole(fill(one, shape, node.dtype)) for one in form
            )
            made = whole(Node("scan", name, (first, second), shape, node.dtype, node.line))
            if isinstance(number, float) and _is_neutral(number, name):
                return made
            begin = View(start.node, (*start.shape, self.trips), (*start.strides, 0), start.offset)
            begin = begin.reshaped(shape) if begin.shape != shape else begin
            if name == "linear":
                zero = whole(fill(0.0, shape, node.dtype))
                grown = whole(Node("scan", "product", (first, zero), shape, node.dtype, node.line))
                further = elementwise("mul", [grown, begin], node.dtype, node.line)
                return whole(elementwise("add", [made, whole(further)], node.dtype, node.line))
            one = whole(fill(1.0, shape, node.dtype))
            grown = whole(Node("scan", "sum", (one, first), shape, node.dtype, node.line))
            further = elementwise("add", [grown, begin], node.dtype, node.line)
            pick = "max" if name == "peak" else "min"
            return whole(elementwise(pick, [made, whole(further)], node.dtype, node.line))
        raise _NoLoopError

    def _form(self, j: int, group: Sequence[int], rules: _Rules) -> _Form | None:
        """Return node ``j`` as a function of the value that the nodes ``group`` had in the previous iteration.

        Return None if ``rules`` have no such function for an operation in ``group``.
        """
        forms: dict[int, _Form] = {}
        for at in group:
            node = self.body[0][at]
            if node.kind != "elementwise":
                return None
            given: list[Operand | _Form] = []
            for one in self.arguments[at]:
                if isinstance(one, _Step) and one.number in group:
                    if not one.view.whole or math.prod(one.view.shape) != math.prod(node.shape):
                        return None
                    if not one.carried and one.number not in forms:
                        return None
                    given.append(rules.state if one.carried else forms[one.number])
                else:
                    given.append(self._value(one, node.shape))
            form = rules.of(node.name, given)
            if form is None:
                return None
            forms[at] = form
        return forms.get(j)


def _is_neutral(start: float, scan: str) -> bool:
    """Tell whether ``start`` has no effect on a scan that begins with it."""
    if scan == "linear":
        return start == 0.0
    return start <= -NEVER if scan == "peak" else start >= NEVER


def _kind(node: Node) -> object:
    """Return a key that is equal for two nodes which compute the same function in different iterations."""
    return node.kind, node.name, node.shape, node.dtype, node.folded, len(node.args)


def _applied(name: str, *args: Operand) -> Operand:
    """Return an element-wise function of operands. Sums and products with neutral numbers are left out."""
    first, second = args[0], args[-1]
    neutral = {"add": 0.0, "mul": 1.0}.get(name)
    if neutral is not None and first == neutral:
        return second
    if neutral is not None and second == neutral:
        return first
    if name == "mul" and 0.0 in (first, second):
        return 0.0
    if not any(isinstance(one, View) for one in args) and name != "where":
        a, b = float(first), float(second)  # type: ignore[arg-type]  # numbers
        return {"add": a + b, "mul": a * b, "sub": a - b, "neg": -a, "max": max(a, b), "min": min(a, b)}[name]
    return whole(elementwise(name, args))


@dataclass(frozen=True, slots=True)
class _Rules:
    """Rules for functions of a loop's state that have one form, such as ``a * state + b``.

    ``state`` is the form of the state itself. ``of`` takes the name and the operands of an element-wise function, and
    returns the form of its result; None if the result has another form.
    """

    state: _Form
    of: Callable[[str, list[Operand | _Form]], _Form | None]


def _linear_of(name: str, given: list[Operand | _Form]) -> _Form | None:
    """Return the form ``a * state + b`` of an element-wise function's result; None if the result has another form.

    Operands in ``given`` are forms, or values that do not depend on the state.
    """
    forms = [one if isinstance(one, tuple) else (0.0, one) for one in given]
    held = [isinstance(one, tuple) for one in given]
    if name in ("add", "sub"):
        (a, b), (c, d) = forms
        if name == "sub":
            c, d = _applied("mul", c, -1.0), _applied("mul", d, -1.0)
        return _applied("add", a, c), _applied("add", b, d)
    if name == "mul" and held != [True, True]:
        form, (_, factor) = (forms[0], forms[1]) if held[0] else (forms[1], forms[0])
        return _applied("mul", form[0], factor), _applied("mul", form[1], factor)
    if name == "div" and held == [True, False]:
        below = forms[1][1]
        number = isinstance(below, float) and below
        inverse: Operand = 1.0 / below if number else whole(elementwise("div", [1.0, below]))  # type: ignore[operator]  # a number
        return _applied("mul", forms[0][0], inverse), _applied("mul", forms[0][1], inverse)
    if name in ("neg", "copy"):
        sign = -1.0 if name == "neg" else 1.0
        return _applied("mul", forms[0][0], sign), _applied("mul", forms[0][1], sign)
    if name == "where" and not held[0]:
        test = forms[0][1]
        return tuple(_applied("where", test, one, other) for one, other in zip(*forms[1:], strict=True))  # type: ignore[return-value]  # two
    return None


def _greatest_of(pick: str, name: str, given: list[Operand | _Form]) -> _Form | None:
    """Return the form ``pick(state + a, b)`` of an element-wise function's result; None if the result has another form.

    ``pick`` is max or min. Operands in ``given`` are forms, or values that do not depend on the state.
    """
    held = [isinstance(one, tuple) for one in given]
    if sum(held) != 1 or len(given) > 2:
        return None
    form = next(one for one in given if isinstance(one, tuple))
    if name == "copy":
        return form
    if len(given) != 2:
        return None
    other = given[held.index(False)]
    assert not isinstance(other, tuple)
    if name == pick:
        return form[0], _applied(pick, form[1], other)
    if name == "add" or (name == "sub" and held[0]):
        by = other if name == "add" else _applied("mul", other, -1.0)
        return _applied("add", form[0], by), _applied("add", form[1], by)
    return None


_linear = _Rules((1.0, 0.0), _linear_of)
_peak = _Rules((0.0, -3e38), lambda name, given: _greatest_of("max", name, given))
_valley = _Rules((0.0, 3e38), lambda name, given: _greatest_of("min", name, given))


def _on(target: View, node: Node) -> View:
    """Return a view of ``node`` with the shape, strides and offset of the view ``target``."""
    return View(node, target.shape, target.strides, target.offset)
