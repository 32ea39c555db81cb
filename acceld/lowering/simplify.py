"""Rewrite a graph into an equivalent graph that costs less.

For example, divisions become products with reciprocals, and a sum of two matrix products becomes one product. A rule
takes a node and the graph's :class:`Uses`. It returns the value that replaces the node, or None if the rule does not
apply.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from acceld.lowering.axes import DEEPEST, PARTITIONS, Axes, merged, prefix, refined, split, squeezed
from acceld.lowering.constants import nested, values
from acceld.lowering.graph import (
    INDEX,
    NEUTRAL,
    Graph,
    Node,
    NotLowered,
    Operand,
    Shape,
    View,
    contraction,
    dense,
    elementwise,
    fill,
    of_made,
    overlap,
    reduced,
    stored,
    whole,
)
from acceld.lowering.instructions import INVERSE
from acceld.lowering.regions import FEW_ROWS, LONG_ROW, SHORT_ROW, SHORTEST, WIDE_ROW


@dataclass(frozen=True, slots=True)
class Uses:
    """The ids of nodes with a single use (``once``) and of buffers that no later store changes (``lasting``)."""

    once: set[int] = field(default_factory=set)
    lasting: set[int] = field(default_factory=set)


Rule = Callable[[Node, Uses], View | None]
MOST_STORES = 256
"""Greatest number of stores to one buffer whose overlap is checked, because every two of them are compared."""
MOST_FOLDED = 9
"""Greatest number of elements of a window whose reduction becomes element-wise operations."""
LEAST_PIECES = 3
"""Least number of equal parts that are copied to an array by one loop nest instead of one nest for each."""
MOST_TERMS = 64
"""Greatest number of terms of a matrix product, or of elements of a computed window, that may become element-wise work."""
MOST_CONSTANTS = 4096
"""Greatest number of elements of a constant array whose single elements become numbers."""
LEAST_LOG = 2.0**-64
"""Least number for which the scalar engine computes the logarithm."""
PRODUCT, LEAST_CYCLES, BANK_COLUMNS = 1000, 64, 512
"""Three figures for an estimate: cycles of a small matrix product, least cycles of an instruction of the vector engine,
most columns of a matrix product.
"""
MOST_PARTS = 1024
"""Greatest number of parts into which a long reduction is divided. A second reduction combines the parts on one
partition.
"""
_POWERS = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "recip", 1.0: "copy"}


def simplified(graph: Graph) -> Graph:
    """Return the graph after all rewriting rules. Nodes that compute the same value become one node."""
    return _swept(_swept(_swept(_without_dead_stores(graph), RULES), LAST), LONG)


def _without_dead_stores(graph: Graph) -> Graph:
    """Return the graph without stores whose elements are overwritten before any node reads them."""
    nodes = graph.nodes()
    read = Counter(id(view.node) for node in nodes for view in node.views)
    read.update(id(view.node) for view in graph.outputs)
    following = {id(node.views[0].node): node for node in nodes if node.kind == "buffer" and len(node.args) == 2}
    first: dict[int, Node] = {}
    seen: set[int] = set()
    for node in nodes:
        if node.kind != "buffer" or not node.args or id(node) in seen:
            continue
        chain = [node]
        while read[id(chain[-1])] == 1 and (after := following.get(id(chain[-1]))) is not None:
            chain.append(after)
        seen.update(id(one) for one in chain)
        last = {(one.target.shape, one.target.strides, one.target.offset): one for one in chain if one.target}
        kept = [one for one in chain if one in last.values()]
        targets = [one.target for one in kept[1:] if one.target is not None][:MOST_STORES]
        covered = len(node.args) == 1 and sum(math.prod(target.shape) for target in targets) == node.size
        if covered and not any(overlap(one, other) for one, other in itertools.combinations(targets, 2)):
            kept = kept[1:]
        if len(kept) == len(chain):
            continue
        before = chain[0].args[:-1]
        for one in kept:
            first[id(one)] = replace(one, args=(*before, one.args[-1]))
            before = (whole(one),)
    if not first:
        return graph
    made: dict[int, Node] = {}
    for node in nodes:
        fresh = first.get(id(node), node)
        args = tuple(of_made(arg, made) if isinstance(arg, View) else arg for arg in fresh.args)
        target = None if fresh.target is None else of_made(fresh.target, made)
        if id(node) in first or args != fresh.args or target is not fresh.target:
            made[id(node)] = replace(fresh, args=args, target=target)
    return Graph(graph.inputs, tuple(of_made(view, made) for view in graph.outputs), graph.lines)


def _swept(graph: Graph, rules: Mapping[str, tuple[Rule, ...]]) -> Graph:
    """Return the graph after one pass of ``rules``, which has the rules by the kind of node.

    The first rule that applies to a node replaces it. Nodes that compute the same value become one node.
    """
    counts = Counter(id(view.node) for node in graph.nodes() for view in node.views)
    counts.update(id(view.node) for view in graph.outputs)
    stored_to = {id(node.views[0].node) for node in graph.nodes() if node.kind == "buffer" and len(node.args) == 2}
    uses = Uses()
    made: dict[int, View] = {}
    known: dict[object, Node] = {}
    placed: set[int] = set()
    for node in graph.nodes():
        if node.kind in ("input", "index"):
            made[id(node)] = whole(node)
            continue
        copy = replace(node, args=tuple(_moved(arg, made) for arg in node.args), target=_held(node, made))
        found = _cheaper(copy, uses, rules)
        fresh = found.whole or (math.prod(found.shape) == found.node.size and id(found.node) not in placed)
        key = _identity(found.node) if fresh else None
        if key is not None:
            earlier = known.setdefault(key, found.node)
            uses.once.discard(id(earlier))
            if earlier is found.node and counts[id(node)] == 1:
                uses.once.add(id(earlier))
            found = View(earlier, found.shape, found.strides, found.offset)
        placed.add(id(found.node))
        if node.kind == "buffer" and id(node) not in stored_to:
            uses.lasting.add(id(found.node))
        made[id(node)] = found
    outputs = tuple(moved_view(view, made) for view in graph.outputs)
    return Graph(graph.inputs, outputs, graph.lines)


def _moved(arg: Operand, made: dict[int, View]) -> Operand:
    """Return an operand after replacements. A view of a replaced node becomes a view of its replacement. A number is
    unchanged.

    ``made`` has replacements by the id of the old node.
    """
    return moved_view(arg, made) if isinstance(arg, View) else arg


def moved_view(view: View, made: dict[int, View]) -> View:
    """Return a view of a replaced node as a view of the node's replacement.

    ``made`` has replacements by the id of the old node.
    """
    base = made.get(id(view.node))
    if base is None:
        return view
    if base.whole:
        return View(base.node, view.shape, view.strides, view.offset)
    # The replacement is a strided view itself. Coordinates of the old result combine its strides with the strides of
    # ``view``.
    strides = dense(base.shape)
    offset, rest = base.offset, view.offset
    ends: list[list[int]] = []  # the least and the greatest position along each axis of the replacement
    for stride, step in zip(strides, base.strides, strict=True):
        offset += rest // stride * step
        ends.append([rest // stride] * 2)
        rest %= stride
    found = []
    inside = True
    for extent, by in zip(view.shape, view.strides, strict=True):
        axis = next(
            (a for a, (s, n) in enumerate(zip(strides, base.shape, strict=True)) if by % s == 0 and n > 1), None
        )
        if extent == 1 or by == 0:
            found.append(0)
        elif axis is None:
            inside = False
        else:
            found.append(by // strides[axis] * base.strides[axis])
            ends[axis][by > 0] += by // strides[axis] * (extent - 1)
    if not inside or any(low < 0 or high >= n for (low, high), n in zip(ends, base.shape, strict=True)):
        kept = whole(elementwise("copy", [base]))
        made[id(view.node)] = kept
        return View(kept.node, view.shape, view.strides, view.offset)
    return View(base.node, view.shape, tuple(found), offset)


def _held(node: Node, made: dict[int, View]) -> View | None:
    """Return the target of a store as a view of the node that replaces the target's node.

    Return None for a node that is not a store.
    """
    if node.target is None:
        return None
    base = made.get(id(node.target.node))
    return node.target if base is None else View(base.node, node.target.shape, node.target.strides, node.target.offset)


def _identity(node: Node) -> object:
    """Return a key of a node that is equal for nodes which compute the same value.

    Return None for an input, an index or a buffer, which must not be merged with another node.
    """
    if node.kind in ("input", "index", "buffer"):
        return None
    args = tuple(
        (id(arg.node), arg.shape, arg.strides, arg.offset) if isinstance(arg, View) else arg for arg in node.args
    )
    return (node.kind, node.name, args, node.shape, node.dtype, node.folded)


def _cheaper(node: Node, uses: Uses, rules: Mapping[str, tuple[Rule, ...]] | None = None) -> View:
    """Return the value that the first applicable rule puts in place of a node; the node's own value if no rule
    applies.

    ``rules`` has rules by the kind of node; None stands for :data:`RULES`.
    """
    for rule in (RULES if rules is None else rules).get(node.kind, ()):
        found = rule(node, uses)
        if found is not None:
            return found
    return whole(node)


def _derived(node: Node, name: str, args: Sequence[Operand], dtype: str = "", shape: Shape | None = None) -> Node:
    """Return an element-wise node of function ``name`` with the source line and order of ``node``, and also with its dtype
    and shape unless others are given.
    """
    made = elementwise(name, args, dtype or node.dtype, node.line, node.shape if shape is None else shape)
    made.order = node.order
    return made


def _copied(node: Node, uses: Uses) -> View | None:
    """Replace a copy by its operand if the copy keeps the dtype and no later store changes the operand.

    Return None for any other node.
    """
    if node.name == "copy" and isinstance(node.args[0], View) and node.args[0].dtype == node.dtype:
        source = node.args[0]
        fixed = source.node.kind != "buffer" or not source.node.args or id(source.node) in uses.lasting
        return source if fixed else None
    return None


def _constant(node: Node, uses: Uses) -> View | None:
    """Replace each operand that has the same constant in all elements by a number.

    Return None if no operand is such an array, or if only numbers would remain.
    """
    if node.name == "fill" or not any(_number(arg) is not None for arg in node.views):
        return None
    args = [arg if (number := _number(arg)) is None else number for arg in node.args]
    if not any(isinstance(arg, View) for arg in args):
        return None
    return _cheaper(_derived(node, node.name, args), uses)


def _number(arg: Operand) -> float | None:
    """Return the number that all elements of an operand equal; None if they depend on an input or differ.

    Apart from ``fill`` nodes, only single elements of small constant arrays are computed, such as a tap of a filter.
    """
    if not isinstance(arg, View) or not arg.node.constant or arg.node is INDEX:
        return None
    if arg.node.name == "fill" and arg.node.kind == "elementwise":
        return float(arg.node.args[0])  # type: ignore[arg-type]  # a fill's operand is a number
    single = math.prod(n for n, step in zip(arg.shape, arg.strides, strict=True) if step) == 1
    if not single or arg.node.size > MOST_CONSTANTS:
        return None
    known = values(View(arg.node, (), (), arg.offset))
    return None if known is None or not math.isfinite(known.item()) else float(known.item())


def _log_of_little(node: Node, uses: Uses) -> View | None:
    """Scale the argument of a logarithm if its formula shows that it may be smaller than the scalar engine takes.

    For example, the sum in ``log(p + 1e-30)`` is that small where ``p`` is 0. Return None for any other node.
    """
    view = node.args[0]
    if node.name != "log" or not isinstance(view, View) or view.node.kind != "elementwise":
        return None
    numbers = [arg for arg in view.node.args if isinstance(arg, float)]
    if view.node.name not in ("add", "max", "where") or not any(0 < one < LEAST_LOG for one in numbers):
        return None
    below = whole(_derived(node, "lt", [view, LEAST_LOG]))
    scale = whole(_derived(node, "add", [whole(_derived(node, "mul", [below, 1 / LEAST_LOG - 1])), 1.0]))
    found = whole(_derived(node, "log", [whole(_derived(node, "mul", [view, scale]))]))
    added = whole(_derived(node, "mul", [below, math.log(LEAST_LOG)]))
    return whole(_derived(node, "add", [added, found]))


def _narrow(node: Node, uses: Uses) -> View | None:
    """Drop casts to float32 before element-wise operations, because the engines compute in float32 anyway.

    Return None if the node has no such cast, or is an operation that needs the cast.
    """
    if node.name in ("copy", "where", "signbit") or node.dtype != "float32":
        return None
    args = [_uncast(arg) if isinstance(arg, View) else arg for arg in node.args]
    return None if tuple(args) == node.args else _cheaper(replace(node, args=tuple(args)), uses)


def _uncast(view: View) -> View:
    """Return the bfloat16 or float16 view that ``view`` casts to float32; ``view`` itself if it is not such a cast."""
    inner = view.node
    narrow = inner.args[0] if inner.kind == "elementwise" and inner.name == "copy" else None
    if isinstance(narrow, View) and inner.dtype == "float32" and narrow.dtype in ("bfloat16", "float16"):
        return through(view, narrow) or view
    return view


def _neutral(node: Node, uses: Uses) -> View | None:
    """Replace ``x * 1``, ``x / 1``, ``x + 0`` and ``x - 0`` by ``x``; return None for any other node."""
    if len(node.args) != 2:
        return None
    first, second = node.args
    neutral = {"mul": 1.0, "div": 1.0, "add": 0.0, "sub": 0.0}.get(node.name)
    for kept, other, commutes in ((first, second, True), (second, first, node.name in ("mul", "add"))):
        if commutes and other == neutral and isinstance(kept, View) and kept.dtype == node.dtype:
            return kept
    return None


def _power(node: Node, uses: Uses) -> View | None:
    """Replace a power by the instruction for its exponent, such as a square root, and ``x * x`` by a square.

    Return None if the exponent has no instruction, and for any other node.
    """
    first = node.args[0]
    if node.name == "pow" and isinstance(node.args[1], float) and node.args[1] in _POWERS:
        return _cheaper(_derived(node, _POWERS[node.args[1]], [first]), uses)
    if node.name == "mul" and first == node.args[1]:
        return whole(_derived(node, "square", [first]))
    return None


def _decided(node: Node, uses: Uses) -> View | None:
    """Replace ``where(constant, a, b)`` by the operand that the constant chooses; return None for any other node."""
    if node.name != "where" or isinstance(node.args[0], View):
        return None
    chosen = node.args[1 if node.args[0] else 2]
    if not isinstance(chosen, View):
        return whole(fill(chosen, node.shape, node.dtype, node.line))
    return chosen if chosen.dtype == node.dtype else whole(_derived(node, "copy", [chosen]))


def _one_or_zero(node: Node, uses: Uses) -> View | None:
    """Replace ``where(comparison, 1, 0)`` by the comparison, whose values already are 1 and 0.

    Return None for any other node, and if the comparison has another dtype than the result.
    """
    if node.name != "where" or node.args[1:] != (1.0, 0.0):
        return None
    test = node.args[0]
    alike = isinstance(test, View) and test.node.kind == "elementwise" and test.node.name in INVERSE
    return test if alike and isinstance(test, View) and test.dtype == node.dtype else None


def _contracted(node: Node, left: View, right: View, batch: int, folded: int) -> Node:
    """Return a matrix product of other operands with the dtype, source line and order of ``node``."""
    return replace(contraction(left, right, batch, folded, node.dtype, node.line), order=node.order)


def _divided(node: Node, uses: Uses) -> View | None:
    """Replace a division by a product with the reciprocal, because no engine divides.

    The reciprocal of a number is a constant. The reciprocal of a repeated array is computed once for each element.
    Return None for any other node, and for ``1 / x`` if the result has another dtype than ``x``.
    """
    if node.name != "div":
        return None
    above, below = node.args
    if below == 0.0:
        raise NotLowered("a division by the number 0 is not lowered; choose another number by the shapes", node.line)
    if isinstance(below, float):
        return _cheaper(_derived(node, "mul", [above, 1.0 / below]), uses)
    inverse = _reciprocal(below, node)
    if above == 1.0:
        return inverse.broadcast(node.shape) if inverse.dtype == node.dtype else None
    return _cheaper(_derived(node, "mul", [above, inverse]), uses)


def _reciprocal(below: View, node: Node) -> View:
    """Return the reciprocals of a view's elements. Along axes that repeat elements, each reciprocal is computed once."""
    small = below.mapped(lambda array: array[(*(slice(0, 1) if s == 0 else slice(None) for s in array.strides), ...)])
    return whole(_derived(node, "recip", [small], shape=small.shape)).broadcast(below.shape)


def _along_each_axis(node: Node, uses: Uses) -> View | None:
    """Return a reduction over windows of several axes as a reduction along one of the axes, and one of its results along the
    others. Windows overlap, so each result along the first axis is used several times.

    Return None for small windows, which :func:`_small_fold` replaces.
    """
    source = node.views[0]
    kept = len(source.shape) - node.folded
    lead, folded = list(zip(source.shape, source.strides, strict=True))[:kept], source.strides[kept:]
    if math.prod(source.shape[kept:]) <= MOST_FOLDED or node.folded < 2:
        return None
    for axis, (count, tap) in enumerate(zip(source.shape[kept:], folded, strict=True)):
        at = next((at for at, (n, s) in enumerate(lead) if 0 < tap <= s < tap * count and n > 1 and s % tap == 0), None)
        others = [one for one in range(node.folded) if one != axis]
        if at is None or not all(_taps(_only(source, kept, [one]), 0, 1)[0] for one in others):
            continue
        step = lead[at][1] // tap
        rows = (lead[at][0] - 1) * step + count  # each row of windows, once
        every = [*lead[:at], (rows, tap), *lead[at + 1 :]]
        inner = _only(source, kept, others)
        view = View(
            source.node,
            (*(n for n, _ in every), *inner.shape[kept:]),
            (*(s for _, s in every), *inner.strides[kept:]),
            source.offset,
        )
        made = replace(node, args=(view,), shape=view.shape[:kept], dtype=_of_parts(node), folded=len(others))
        found = _cheaper(made, uses)
        if not found.whole or found.shape != made.shape:
            return None
        steps = list(dense(made.shape))
        strides = (*steps[:at], steps[at] * step, *steps[at + 1 :], steps[at])
        last = View(found.node, (*node.shape, count), strides, found.offset)
        return _cheaper(replace(node, args=(last,), folded=1), uses)
    return None


def _only(view: View, kept: int, axes: Sequence[int]) -> View:
    """Return a view with its first ``kept`` axes, and of the axes after them only those with the numbers ``axes``."""
    places = [*range(kept), *(kept + axis for axis in axes)]
    return View(
        view.node, tuple(view.shape[at] for at in places), tuple(view.strides[at] for at in places), view.offset
    )


def _small_fold(node: Node, uses: Uses) -> View | None:
    """Replace a reduction of a few elements that are not contiguous, as in pooling, by element-wise operations.

    Windows that an element-wise node computes, as in a convolution of each channel, may have more elements. Return None
    if the elements are contiguous, or too many.
    """
    operand = node.views[0]
    kept = len(operand.shape) - node.folded
    every = list(itertools.product(*(range(n) for n in operand.shape[kept:])))
    windows = operand.node.kind == "elementwise" and any(_taps(view, 0, node.folded)[0] for view in operand.node.views)
    apart = windows and id(operand.node) in uses.once
    if (operand.whole and not windows) or not 1 < len(every) <= (MOST_TERMS if apart else MOST_FOLDED):
        return None
    if len(every) > MOST_FOLDED and not _quicker_by_elements(node, len(every)):
        return None
    parts = [
        View(
            operand.node,
            node.shape,
            operand.strides[:kept],
            operand.offset + sum(i * s for i, s in zip(at, operand.strides[kept:], strict=True)),
        )
        for at in every
    ]
    if apart:
        opened = [_opened_part(part, node, uses) for part in parts]
        if None in opened and len(every) > MOST_FOLDED:
            return None
        parts = [one for one in opened if one is not None] if None not in opened else parts
    total: View = parts[0]
    for part in parts[1:]:
        total = whole(_derived(node, node.name, [total, part]))
    return total


def _quicker_by_elements(node: Node, terms: int) -> bool:
    """Tell whether an estimate of cycles says that ``terms`` element-wise operations take less time than reductions of
    windows that lie on partitions.
    """
    operands = node.views[0].node.views
    alike = [view for view in operands if view.shape[: len(node.shape)] == node.shape]
    strides = [dense(node.shape), *(view.strides[: len(node.shape)] for view in alike)]
    together = max((n for n, _ in merged([squeezed(node.shape, one) for one in strides])[0]), default=1)
    tiles = node.size // together * -(-together // PARTITIONS)
    return terms * max(LEAST_CYCLES, node.size // PARTITIONS) < 2 * tiles * (LEAST_CYCLES + terms)


def _opened_part(part: View, node: Node, uses: Uses) -> View | None:
    """Return a part of an element-wise result as the same function of parts of the operands.

    Return None if one of these parts is no strided view of its operand. ``node`` is the node that reads the part.
    """
    inner = part.node
    args = [through(part, arg) if isinstance(arg, View) else arg for arg in inner.args]
    if any(arg is None for arg in args):
        return None
    given = [arg for arg in args if arg is not None]
    return _cheaper(replace(_derived(inner, inner.name, given, shape=part.shape), order=node.order), uses)


def through(view: View, argument: View) -> View | None:
    """Return those elements of ``argument`` from which an element-wise node computes the elements of ``view``.

    Return None if no strided view has these elements.
    """
    base = {id(view.node): argument}
    found = moved_view(view, base)
    return found if found.node is argument.node else None


def _wide(node: Node, uses: Uses) -> View | None:
    """Return a matrix product without casts of its operands to float32, because the tensor engine adds in float32
    anyway. Return None if no operand has such a cast, or if the operands' dtypes then differ.
    """
    args = [_uncast(view) for view in node.views]
    if tuple(args) == node.args or len({arg.dtype for arg in args}) != 1:
        return None
    return _cheaper(replace(node, args=tuple(args)), uses)


def _pieced(node: Node, uses: Uses) -> View | None:
    """Replace an array to which parts of one other array were stored by a view of the other array.

    The parts lie at equal distances, such as the windows of a convolution that a loop over its taps copies. Return None if
    no strided view has the array's elements.
    """
    targets, parts = list[View](), list[View]()
    state, first = node, node.target
    while first is not None and state.target is not None:
        part = state.views[-1]
        even = (state.target.shape, state.target.strides) == (first.shape, first.strides)
        if not even or part.dtype != node.dtype or part.node is INDEX:
            return None
        targets.insert(0, state.target)
        parts.insert(0, part)
        if len(state.args) < 2 or len(parts) * math.prod(first.shape) >= node.size:
            break
        state = state.views[0].node
    parts = _in_one_buffer(parts)
    if len(targets) < 2 or len({(id(part.node), squeezed(part.shape, part.strides)) for part in parts}) > 1:
        return None
    places, sources = (nested(np.array([one.offset for one in side], np.int64)) for side in (targets, parts))
    counts = (
        None if places is None or sources is None else refined(*([n for n, _ in one[1]] for one in (places, sources)))
    )
    if places is None or sources is None or counts is None or places[0]:
        return None
    to = (*split(places[1], counts), *zip(targets[0].shape, targets[0].strides, strict=True))
    source = (*split(sources[1], counts), *zip(parts[0].shape, parts[0].strides, strict=True))
    order = sorted((at for at in range(len(to)) if to[at][0] > 1), key=lambda at: -to[at][1])
    shape = tuple(to[at][0] for at in order)
    if tuple(to[at][1] for at in order) != dense(shape) or math.prod(shape) != node.size:
        return None
    found = View(parts[0].node, shape, tuple(source[at][1] for at in order), parts[0].offset)
    held = found.in_shape(node.shape)
    if held is None and len(parts) >= LEAST_PIECES and min(found.strides) >= 0:
        held = whole(_derived(replace(node, shape=shape), "copy", [found])).reshaped(node.shape)
    return held


def _gathered(node: Node, uses: Uses) -> View | None:
    """Let a matrix product read an array instead of a copy of the array, if a strided view of the array has the
    elements.

    Copies of inputs are left out, and any copies that repeat elements, such as the windows of a convolution. Return
    None if no operand is a copy that can be left out.
    """
    if len(node.args) != 2:
        return None
    batch = len(node.views[0].shape) + len(node.views[1].shape) - 2 * node.folded - len(node.shape)
    args, folded = list(node.views), node.folded
    for place in range(2):
        view = opened = args[place]
        repeats = False
        while opened.node.kind == "elementwise" and opened.node.name == "copy":
            source = opened.node.args[0]
            deeper = _opened(opened, source) if isinstance(source, View) and source.dtype == opened.dtype else None
            if deeper is None or not isinstance(source, View):
                break
            repeats |= math.prod(source.shape) > source.node.size
            opened = deeper
        # Batch axes and summed axes that are divided are divided in the other operand, too.
        shared = _lead(opened.shape, math.prod(view.shape[:batch]))
        terms = _lead(opened.shape[::-1], math.prod(view.shape[len(view.shape) - folded :]))
        alone = opened.node.kind == "input" and terms == folded
        if opened is view or not (repeats or alone):
            continue
        if not repeats and view.node.size == opened.node.size and _scattered(opened, shared, terms):
            continue
        other = args[1 - place]
        own = other.shape[batch : len(other.shape) - folded]
        divided = other.in_shape((*opened.shape[:shared], *own, *opened.shape[len(opened.shape) - terms :]))
        if divided is not None:
            args[place], args[1 - place], batch, folded = opened, divided, shared, terms
    if tuple(args) == node.args:
        return None
    return whole(_contracted(node, args[0], args[1], batch, folded)).reshaped(node.shape)


def _windows_beside(node: Node, uses: Uses) -> View | None:
    """Swap the operands of a matrix product whose left operand has the windows of a convolution, and turn its result.

    The rows of a left operand lie on partitions, and few rows of windows lie at equal distances. Columns may lie in any
    way. Return None if the left operand has no windows, or if the elements that each result sums over are contiguous,
    as channels that come last.
    """
    left, right = node.views[:2]
    batch = len(left.shape) + len(right.shape) - 2 * node.folded - len(node.shape)
    taps, others = _taps(left, batch, node.folded)
    every = [s for n, s in zip(left.shape[batch:], left.strides[batch:], strict=True) if n > 1 and s]
    if len(node.views) > 2 or not taps or _taps(right, batch, node.folded)[0] or min(every) == min(others, default=0):
        return None
    made = _contracted(node, right, left, batch, node.folded)
    columns = len(right.shape) - node.folded - batch
    order = (*range(batch), *range(batch + columns, len(made.shape)), *range(batch, batch + columns))
    return whole(made).mapped(lambda array: array.transpose(order))


def _taps(view: View, batch: int, folded: int) -> tuple[list[int], list[int]]:
    """Return (the strides along which windows overlap, the other strides) of the axes that a matrix product sums over.

    ``view`` is an operand of the product with ``batch`` axes of batches, and ``folded`` axes that are summed over.
    """
    axes = list(zip(view.shape, view.strides, strict=True))
    rows = axes[batch : len(axes) - folded]
    taps, others = list[int](), list[int]()
    for m, t in axes[len(axes) - folded :]:
        if m > 1 and t:
            (taps if any(0 < s < t * m and t < s * n for n, s in rows) else others).append(t)
    return taps, others


def _scattered(view: View, batch: int, folded: int) -> bool:
    """Tell whether the rows of an operand lie in HBM in many short, equally spaced ranges.

    Then few rows can be loaded at once, and most partitions stay empty.
    """
    kept = slice(batch, len(view.shape) - folded)
    rows = squeezed(view.shape[kept], view.strides[kept])
    longest = max((n for n, _ in merged([rows])[0]), default=1)
    return longest < min(FEW_ROWS, math.prod(n for n, _ in rows))


def _lead(shape: tuple[int, ...], elements: int) -> int:
    """Return the least number of leading axes of ``shape`` that together have ``elements`` elements."""
    return next(count for count in range(len(shape) + 1) if math.prod(shape[:count]) == elements)


def _opened(view: View, source: View) -> View | None:
    """Return a view of ``source`` that has the elements of ``view``. ``view`` reads a copy of ``source``.

    Each axis may become several axes. Return None if no strided view has these elements.
    """
    strides = dense(source.shape)
    shape: list[int] = []
    steps: list[int] = []
    for extent, by in zip(view.shape, view.strides, strict=True):
        parts: list[tuple[int, int]] = []
        rest, stride = extent, by
        axis = len(strides)
        while rest > 1 and by:
            axis = next(
                (a for a, (s, n) in enumerate(zip(strides, source.shape, strict=True)) if s == stride and n > 1), -1
            )
            if axis < 0:
                return None
            part = min(rest, source.shape[axis])
            if rest % part or (part < rest and part < source.shape[axis]):
                return None
            parts.insert(0, (part, source.strides[axis]))
            rest //= part
            stride *= part
        shape += [n for n, _ in parts] or [extent]
        steps += [s for _, s in parts] or [0]
    offset, left = source.offset, view.offset
    for stride, step in zip(strides, source.strides, strict=True):
        offset += left // stride * step
        left %= stride
    return View(source.node, tuple(shape), tuple(steps), offset)


def _turned(node: Node, uses: Uses) -> View | None:
    """Compute an element-wise node in its operands' order of axes, and transpose its result instead of the operands.

    The operands can then stay on the chip. The last axis stays last, so that results are stored in contiguous rows.
    Return None if the operands have the node's order already, or different orders.
    """
    orders = set()
    for view in node.views:
        if view.node.kind in ("dot", "elementwise", "reduce", "scan") and math.prod(view.shape) == view.node.size:
            orders.add(tuple(sorted(range(len(view.shape)), key=lambda axis: (-view.strides[axis], axis))))
    if len(orders) != 1:
        return None
    order = orders.pop()
    if order[-1:] != (len(order) - 1,) or order == tuple(range(len(order))):
        return None
    args = [arg.mapped(lambda array: array.transpose(order)) if isinstance(arg, View) else arg for arg in node.args]
    if not any(isinstance(arg, View) and arg.whole for arg in args):
        return None
    made = _derived(node, node.name, args, shape=tuple(node.shape[axis] for axis in order))
    back = tuple(order.index(axis) for axis in range(len(order)))
    return _cheaper(made, uses).reshaped(made.shape).mapped(lambda array: array.transpose(back))


def _summed(node: Node, uses: Uses) -> View | None:
    """Replace a sum of two matrix products by one node with the operands of both, because PSUM can accumulate both
    products. Return None for any other node, and if the two products differ in shape.
    """
    if node.name != "add" or len(node.views) != 2 or node.dtype != "float32":
        return None
    first, second = (view.node for view in node.views)
    alike = first.shape == second.shape and first.folded == second.folded and first is not second
    dots = all(one.kind == "dot" and id(one) in uses.once and one.dtype == "float32" for one in (first, second))
    if not (dots and alike and all(view.whole for view in node.views)):
        return None
    made = replace(first, args=first.args + second.args, line=node.line, order=node.order)
    return whole(made).reshaped(node.shape)


def _with_one_left(node: Node, uses: Uses) -> View | None:
    """Replace a batch of matrix products with the same left operand by one product, whose columns are those of all
    batches.

    Return None unless that at least halves the number of products of the tensor engine.
    """
    if len(node.views) != 2:
        return None
    left, right = node.views
    kept, columns = len(left.shape) - node.folded, len(right.shape) - node.folded
    batch = kept + columns - len(node.shape)
    many = math.prod(node.shape[:batch])
    rows, width = math.prod(left.shape[batch:kept]), math.prod(right.shape[batch:columns])
    own = -(-rows // PARTITIONS) * -(-width // BANK_COLUMNS)
    together = -(-rows // PARTITIONS) * -(-many * width // BANK_COLUMNS)
    if rows == 1 or 2 * together > many * own or any(left.strides[:batch]):
        return None
    lone = View(left.node, left.shape[batch:], left.strides[batch:], left.offset)
    shape = (*left.shape[batch:kept], *right.shape[:columns])
    places = range(kept - batch)
    return whole(replace(node, args=(lone, right), shape=shape)).mapped(
        lambda array: np.moveaxis(array, places, [batch + at for at in places])
    )


def _by_elements(node: Node, uses: Uses) -> View | None:
    """Replace a batch of many small matrix products by element-wise products and sums.

    A depthwise convolution is an example. The tensor engine would compute the products one after another, each with a
    single row or a single column. Return None if an estimate of cycles says that element-wise work takes no less time.
    """
    if len(node.views) != 2:
        return None
    left, right = node.views
    kept, columns = len(left.shape) - node.folded, len(right.shape) - node.folded
    batch = kept + columns - len(node.shape)
    many, terms = math.prod(node.shape[:batch]), math.prod(left.shape[kept:])
    rows, width = math.prod(left.shape[batch:kept]), math.prod(right.shape[batch:columns])
    products = many * -(-rows // PARTITIONS) * -(-width // BANK_COLUMNS) * PRODUCT
    matrix = left if width == 1 else right
    if terms < 2 or (terms > MOST_TERMS and min(rows, width) > 1):
        return None
    if min(rows, width) > 1:
        if terms > MOST_FOLDED or many < FEW_ROWS:
            beside = rows * width * terms
            fits = many >= FEW_ROWS and beside <= WIDE_ROW
            least = 4 * -(-many // PARTITIONS) * (LEAST_CYCLES + beside)
            return _as_sums(left, right, batch, node) if fits and least < products else None
        used = min(PARTITIONS, max(many, rows, width))
        cycles = 4 * terms * (LEAST_CYCLES + node.size // used)
    elif terms <= MOST_TERMS and _taps(matrix, 0, node.folded)[0]:
        cycles = terms * max(LEAST_CYCLES, node.size // PARTITIONS)
    else:
        return _as_sums(left, right, batch, node) if 4 * many * rows * width * terms < products * PARTITIONS else None
    if cycles >= products:
        return None
    found: View | None = None
    spread = [
        (*view.shape[:end], *(1,) * (other - batch))
        for view, end, other in ((left, kept, columns), (right, columns, kept))
    ]
    spread[1] = (*right.shape[:batch], *(1,) * (kept - batch), *right.shape[batch:columns])
    for at in itertools.product(*(range(n) for n in left.shape[kept:])):
        parts = []
        for view, end, shape in ((left, kept, spread[0]), (right, columns, spread[1])):
            offset = view.offset + sum(i * s for i, s in zip(at, view.strides[end:], strict=True))
            one = View(view.node, view.shape[:end], view.strides[:end], offset)
            parts.append(one.reshaped(shape).broadcast(node.shape))
        term = _cheaper(_derived(node, "mul", parts, "float32"), uses)
        found = term if found is None else whole(_derived(node, "add", [found, term], "float32"))
    assert found is not None
    return found if node.dtype == "float32" else whole(_derived(node, "copy", [found]))


def _as_sums(left: View, right: View, batch: int, node: Node) -> View | None:
    """Return a matrix product of many small batches as sums of element-wise products, computed in the order in which
    the matrices lie in memory.

    Each batch has a vector as one of its operands. Return None if the rows are too long, or if there are few batches
    with a matrix as the other operand.
    """
    kept, columns = len(left.shape) - node.folded, len(right.shape) - node.folded
    wide = (*left.shape[:kept], *right.shape[batch:])
    matrix = left if math.prod(left.shape[batch:kept]) > 1 else right
    vectors = node.size == math.prod(left.shape[:batch]) and math.prod(left.shape[kept:]) <= SHORT_ROW
    if (not vectors and math.prod(left.shape[:batch]) < FEW_ROWS) or math.prod(matrix.shape[batch:]) > WIDE_ROW:
        return None
    spread = [
        left.reshaped((*left.shape[:kept], *(1,) * (columns - batch), *left.shape[kept:])).broadcast(wide),
        right.reshaped((*right.shape[:batch], *(1,) * (kept - batch), *right.shape[batch:])).broadcast(wide),
    ]
    own = spread[0] if matrix is left else spread[1]
    order = list(range(len(wide)))
    if min(math.prod(left.shape[batch:kept]), math.prod(right.shape[batch:columns])) == 1:
        order.sort(key=lambda axis: (axis >= batch, -abs(own.strides[axis]), axis))
    turned = [one.mapped(lambda array: array.transpose(order)) for one in spread]
    both = _derived(node, "mul", turned, "float32", turned[0].shape)
    ends = [order.index(axis) for axis in range(len(wide) - node.folded, len(wide))]
    total = reduced("add", whole(both), ends, keepdims=False, line=node.line, dtype=node.dtype)
    rest = [axis for axis in order if axis < len(wide) - node.folded]
    return total.mapped(lambda array: array.transpose([rest.index(axis) for axis in range(len(rest))]))


def in_own_order(view: View) -> View:
    """Return the elements of a view, copied to a new array in the order of the view's axes."""
    kept = [axis for axis, step in enumerate(view.strides) if step]
    shape = tuple(view.shape[axis] for axis in kept)
    source = View(view.node, shape, tuple(view.strides[axis] for axis in kept), view.offset)
    held = whole(stored(None, source, whole(Node("buffer", "", (), shape, view.dtype, view.node.line)), view.node.line))
    strides = [0] * len(view.shape)
    for axis, step in zip(kept, held.strides, strict=True):
        strides[axis] = step
    return View(held.node, view.shape, tuple(strides), held.offset)


def by_columns(left: View, right: View, batch: int, line: int) -> View:
    """Return matrix products of vectors with matrices as element-wise products and a sum, one product for each element
    of the last axis.

    ``left`` is [batch, rows, terms, last] and ``right`` is [batch, columns, terms, last]. There is only one row or only
    one column. The products are computed in the order in which the matrices lie in memory. The result is [batch, rows,
    columns, last].
    """
    left, right = (in_own_order(one) if abs(one.strides[-1]) > 1 else one for one in (left, right))
    kept, columns = len(left.shape) - 2, len(right.shape) - 2
    wide = (*left.shape[:kept], *right.shape[batch:])
    spread = [
        left.reshaped((*left.shape[:kept], *(1,) * (columns - batch), *left.shape[-2:])).broadcast(wide),
        right.reshaped((*right.shape[:batch], *(1,) * (kept - batch), *right.shape[batch:])).broadcast(wide),
    ]
    matrix = spread[0] if math.prod(left.shape[batch:kept]) > 1 else spread[1]
    last, terms = len(wide) - 1, len(wide) - 2
    order = [*sorted(range(last), key=lambda axis: (wide[axis] > 1, -abs(matrix.strides[axis]), axis)), last]
    both = elementwise("mul", [one.mapped(lambda array: array.transpose(order)) for one in spread], line=line)
    total = reduced("add", whole(both), (order.index(terms),), keepdims=False, line=line)
    rest = [axis for axis in order if axis != terms]
    back = sorted(range(len(rest)), key=lambda at: rest[at])
    return total.mapped(lambda array: array.transpose(back))


def _along_batches(node: Node, uses: Uses) -> View | None:
    """Return a matrix product of many vectors as element-wise products and sums; None if the rule does not apply.

    The rule applies if elements at the same position in the matrices of neighboring batches are neighbors in memory, as
    in the results of a scan.
    """
    if len(node.views) != 2 or node.folded != 1 or node.dtype != "float32":
        return None
    left, right = node.views
    batch = len(left.shape) + len(right.shape) - 2 - len(node.shape)
    rows, width = math.prod(left.shape[batch:-1]), math.prod(right.shape[batch:-1])
    matrix = left if rows > 1 else right
    beside = [axis for axis, (n, s) in enumerate(zip(matrix.shape, matrix.strides, strict=True)) if s == 1 and n > 1]
    if min(rows, width) > 1 or len(beside) != 1 or beside[0] >= batch or matrix.shape[beside[0]] < FEW_ROWS:
        return None
    many = math.prod(node.shape[:batch])
    if 3 * node.size * left.shape[-1] >= many * PRODUCT * FEW_ROWS or not all(
        one.strides[beside[0]] for one in node.views
    ):
        return None
    turned = [one.mapped(lambda array: np.moveaxis(array, beside[0], -1)) for one in node.views]
    found = by_columns(turned[0], turned[1], batch - 1, node.line)
    return found.mapped(lambda array: np.moveaxis(array, -1, beside[0]))


def _rolled_terms(node: Node, uses: Uses) -> View | None:
    """Replace several matrix products that read at equally spaced offsets, such as the taps of a convolution, by one.

    The node adds up these products. The new product sums over further axes, which go from tap to tap. Return None for
    fewer than three products, and if the products differ in more than their offsets.
    """
    lefts, rights = (_in_one_buffer(side) for side in (node.views[::2], node.views[1::2]))
    terms = len(lefts)
    alike = {
        (id(one.node), one.shape, one.strides, id(other.node), other.shape, other.strides)
        for one, other in zip(lefts, rights, strict=True)
    }
    if terms < 3 or len(alike) != 1:
        return None
    first, second = (nested(np.array([view.offset for view in side], np.int64)) for side in (lefts, rights))
    if first is None or second is None:
        return None
    counts = refined([n for n, _ in first[1]], [n for n, _ in second[1]])
    if counts is None:
        return None
    batch = len(lefts[0].shape) + len(rights[0].shape) - 2 * node.folded - len(node.shape)
    args = []
    for view, one in ((lefts[0], first), (rights[0], second)):
        kept = len(view.shape) - node.folded
        shape = (*view.shape[:kept], *counts, *view.shape[kept:])
        steps = tuple(step for _, step in split(one[1], counts))
        args.append(View(view.node, shape, (*view.strides[:kept], *steps, *view.strides[kept:]), view.offset))
    made = _contracted(node, args[0], args[1], batch, node.folded + len(counts))
    return _cheaper(made, uses, {"dot": (_windows_beside,)})


def _in_one_buffer(views: list[View]) -> list[View]:
    """Return ``views`` as views of one buffer, if all of them read the buffer or values that were stored to it.

    For example, the middle tap of a padded array may read the array itself. Return ``views`` unchanged if one of them
    reads anything else.
    """
    buffer = next((view.node for view in views if view.node.kind == "buffer" and view.node.args), None)
    if buffer is None or all(view.node is buffer for view in views):
        return views
    found = [view if view.node is buffer else _as_stored(view, buffer) for view in views]
    return [view for view in found if view is not None] if None not in found else views


def _as_stored(view: View, buffer: Node) -> View | None:
    """Return a view of a value as a view of the buffer to which the value was stored.

    Return None if the value was never stored to the buffer, was converted, or was overwritten since.
    """
    node, later = buffer, list[View]()
    while node.kind == "buffer" and node.args and node.target is not None:
        value = node.args[-1]
        assert isinstance(value, View)
        if value.node is view.node:
            place = node.target.in_shape(value.node.shape) if value.whole else None
            if place is None or value.dtype != buffer.dtype or any(overlap(place, one) for one in later):
                return None
            found = moved_view(view, {id(view.node): View(buffer, place.shape, place.strides, place.offset)})
            return found if found.node is buffer else None
        later.append(node.target)
        node = node.views[0].node
    return None


def _scaled_product(node: Node, uses: Uses) -> View | None:
    """Scale the rows of a matrix product's result instead of the rows of its left operand.

    Return None if the left operand is no product with one factor for each row, or has fewer elements than the result.
    """
    if len(node.args) != 2:
        return None
    left, right = node.views
    inner = left.node
    if (
        inner.kind != "elementwise"
        or inner.name != "mul"
        or id(inner) not in uses.once
        or not left.whole
        or node.folded != 1
    ):
        return None
    rows = len(left.shape) - node.folded
    columns = math.prod(node.shape[rows:])
    for kept, row in (inner.args, inner.args[::-1]):
        if isinstance(row, View) and isinstance(kept, View) and row.shape == left.shape and row.strides[-1] == 0:
            if columns >= math.prod(left.shape[rows:]) or left.shape != inner.shape:
                return None
            plain = replace(node, args=(kept, right))
            scale = row.mapped(lambda array: array[..., 0])
            spread = scale.mapped(lambda array: array.reshape(array.shape + (1,) * (len(node.shape) - rows)))
            return whole(_derived(node, "mul", [whole(plain), spread.broadcast(node.shape)]))
    return None


def _cut_depth(node: Node, uses: Uses) -> View | None:
    """Replace a matrix product with more than ``DEEPEST`` terms by a sum of products with fewer terms.

    Operands with more terms do not fit a partition. Return None for a product with fewer terms.
    """
    left = node.views[0]
    kept = len(left.shape) - node.folded
    total = math.prod(left.shape[kept:])
    if total <= DEEPEST or len(node.views) != 2:
        return None
    axis = max(range(node.folded), key=lambda at: left.shape[kept + at])
    extent = left.shape[kept + axis]
    part = max(1, DEEPEST * extent // total)
    found: View | None = None
    for start in range(0, extent, part):
        args = []
        for view in node.views:
            at = len(view.shape) - node.folded + axis
            shape = (*view.shape[:at], min(part, extent - start), *view.shape[at + 1 :])
            args.append(View(view.node, shape, view.strides, view.offset + start * view.strides[at]))
        term = whole(replace(node, args=tuple(args)))
        found = term if found is None else whole(_derived(node, "add", [found, term]))
    return found


def _of_parts(node: Node) -> str:
    """Return the dtype in which a divided reduction keeps the results of its parts. Sums and products of narrow
    floats are kept as float32.
    """
    return "float32" if node.dtype in ("bfloat16", "float16") and node.name in NEUTRAL else node.dtype


def _folded_twice(node: Node, uses: Uses) -> View | None:
    """Replace a reduction of many elements into few results by two reductions, so that more partitions have work.

    A single reduction would compute each result on one partition. The first of the two reductions has at least 64
    results. If an axis of the results lies in memory outside of few elements that are reduced, as in a norm of channels
    in groups, the first reduction leaves these elements: its results are then neighbors. Return None if the reduction has
    few elements or many results, or can not be divided so.
    """
    source = node.views[0]
    kept = len(source.shape) - node.folded
    total = math.prod(source.shape[kept:])
    if node.size > FEW_ROWS or total < LONG_ROW or _from_product(node):
        return None
    own = [stride for _, stride in squeezed(source.shape[:kept], source.strides[:kept])]
    inside = [axis for axis in range(node.folded) if source.strides[kept + axis] < min(own, default=0)]
    outside = [axis for axis in range(node.folded) if axis not in inside]
    walked = tuple((source.shape[kept + axis], source.strides[kept + axis]) for axis in outside)
    few = math.prod(source.shape[kept + axis] for axis in inside)
    if len(merged([walked])[0]) == 1 < few <= SHORTEST:
        view = _only(source, kept, [*inside, *outside])
        made = replace(node, args=(view,), shape=view.shape[: kept + len(inside)], dtype=_of_parts(node))
        first = _cheaper(replace(made, folded=len(outside)), uses, LONG)
        return whole(replace(node, args=(first,), folded=len(inside)))
    axes = squeezed(source.shape[kept:], source.strides[kept:])
    parts = next((found for count in _parts_of(axes, node.size) if (found := prefix(axes, count)) is not None), None)
    if parts is None:
        return _folded_with_rest(node, kept, merged([axes])[0], uses)
    lead, rest = parts
    shape, strides = zip(*lead, *rest, strict=True)
    view = View(source.node, source.shape[:kept] + shape, source.strides[:kept] + strides, source.offset)
    results = view.shape[: kept + len(lead)]
    made = replace(node, args=(view,), shape=results, dtype=_of_parts(node), folded=len(rest))
    return whole(replace(node, args=(whole(made),), folded=len(lead)))


def _folded_with_rest(node: Node, kept: int, axes: Axes, uses: Uses) -> View | None:
    """Return a reduction over ``axes`` as the reduction of all elements that 128 partitions share equally, combined with
    the reduction of the few elements after them.

    ``kept`` is the number of axes of the operand that the result has. Return None if ``axes`` are more than one axis.
    """
    source = node.views[0]
    if len(axes) != 1 or axes[0][0] % PARTITIONS == 0:
        return None
    ((extent, stride),) = axes
    most = extent // PARTITIONS * PARTITIONS
    found = []
    for first, count in ((0, most), (most, extent - most)):
        shape, strides = (*source.shape[:kept], count), (*source.strides[:kept], stride)
        part = View(source.node, shape, strides, source.offset + first * stride)
        made = replace(node, args=(part,), dtype=_of_parts(node), folded=1)
        found.append(_cheaper(made, uses, LONG))
    return whole(_derived(node, node.name, found))


def _parts_of(axes: Axes, results: int) -> Iterator[int]:
    """Yield the numbers of parts into which each of ``results`` long reductions over ``axes`` may be divided, best
    number first.

    The best numbers make each part a row of the operand, because one loop nest can then compute the rows and reduce
    them; all parts of all results together then fill the partitions.
    """
    natural = list(itertools.accumulate((n for n, _ in axes), operator.mul))
    yield from (count for count in natural[:-1] if PARTITIONS <= count * results and count <= MOST_PARTS)
    yield from (count for count in range(PARTITIONS, PARTITIONS // 2 - 1, -1) if natural[-1] % count == 0)
    yield from (count for count in range(PARTITIONS + 1, MOST_PARTS) if natural[-1] % count == 0)


def _from_product(node: Node) -> bool:
    """Tell whether a node reduces the rows of a matrix product, as the softmax of an attention does.

    One loop nest computes such a product with its reduction.
    """
    todo = [view.node for view in node.views]
    while todo:
        one = todo.pop()
        if one.kind == "dot":
            rows = len(one.views[0].shape) - one.folded
            if math.prod(one.views[0].shape[:rows]) == node.size:
                return True
        elif one.kind == "elementwise":
            todo += [view.node for view in one.views if view.whole and view.shape == one.shape]
    return False


def _counted_operands(node: Node, uses: Uses) -> View | None:
    """Write operands of a matrix product that are positions, such as ``np.arange``, to memory first, by a copy.

    The tensor engine can not compute positions. Return None if no operand is positions.
    """
    held = [whole(elementwise("copy", [v], "float32", node.line)) if v.node is INDEX else v for v in node.views]
    return None if held == node.views else whole(replace(node, args=tuple(held)))


RULES: dict[str, tuple[Rule, ...]] = {
    "elementwise": (
        _copied,
        _constant,
        _narrow,
        _neutral,
        _power,
        _decided,
        _one_or_zero,
        _log_of_little,
        _divided,
        _turned,
        _summed,
    ),
    "reduce": (_narrow, _along_each_axis, _small_fold),
    "dot": (_wide, _along_batches, _by_elements, _gathered, _scaled_product),
    "buffer": (_pieced,),
}
"""The rules that are applied first, by the kind of node. Of the rules that apply to a node, the first one is used."""


LAST: dict[str, tuple[Rule, ...]] = {
    "dot": (_counted_operands, _rolled_terms, _windows_beside, _with_one_left),
}
"""Rules that are applied after :data:`RULES`, when sums of matrix products have become single nodes."""

LONG: dict[str, tuple[Rule, ...]] = {"dot": (_cut_depth,), "reduce": (_folded_twice,)}
"""Rules that are applied last, because they undo what other rules do."""
