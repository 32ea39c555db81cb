"""Rewrite a graph into one that costs less and means the same: constants fold, casts and divisions go where they are cheap."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from acceld.lowering.graph import Graph, Node, Operand, View, dense, elementwise, whole

_POWERS = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "recip", 1.0: "copy"}


def simplified(graph: Graph) -> Graph:
    """Return the graph with every rule of this module applied, and equal nodes made one."""
    uses = Counter(id(view.node) for node in graph.nodes() for view in node.views)
    uses.update(id(view.node) for view in graph.outputs)
    once: set[int] = set()
    made: dict[int, View] = {}
    known: dict[object, View] = {}
    for node in graph.nodes():
        if node.kind == "input":
            made[id(node)] = whole(node)
            continue
        copy = replace(node, args=tuple(_moved(arg, made) for arg in node.args), target=_held(node, made))
        copy.order = node.order
        found = _cheaper(copy, once)
        key = _identity(found.node) if found.whole else None
        if key is not None:
            earlier = known.setdefault(key, found).node
            once.discard(id(earlier))
            if earlier is found.node and uses[id(node)] == 1:
                once.add(id(earlier))
            found = View(earlier, found.shape, found.strides)
        made[id(node)] = found
    outputs = tuple(_moved_view(view, made) for view in graph.outputs)
    return Graph(graph.inputs, outputs, graph.lines)


def _moved(arg: Operand, made: dict[int, View]) -> Operand:
    return _moved_view(arg, made) if isinstance(arg, View) else arg


def _moved_view(view: View, made: dict[int, View]) -> View:
    """Return a view of a node as a view of what replaced the node."""
    base = made.get(id(view.node))
    if base is None:
        return view
    if base.whole:
        return View(base.node, view.shape, view.strides, view.offset)
    # The replacement is itself a strided view: compose the two by coordinates of the old result.
    strides = dense(base.shape)
    offset, rest = base.offset, view.offset
    for stride, step in zip(strides, base.strides, strict=True):
        offset += rest // stride * step
        rest %= stride
    found = []
    for extent, by in zip(view.shape, view.strides, strict=True):
        axis = next((a for a, (s, n) in enumerate(zip(strides, base.shape, strict=True)) if by % s == 0 and n > 1), None)
        if extent == 1 or by == 0:
            found.append(0)
        elif axis is not None and by // strides[axis] * (extent - 1) < base.shape[axis]:
            found.append(by // strides[axis] * base.strides[axis])
        else:
            kept = whole(elementwise("copy", [base]))
            made[id(view.node)] = kept
            return View(kept.node, view.shape, view.strides, view.offset)
    return View(base.node, view.shape, tuple(found), offset)


def _held(node: Node, made: dict[int, View]) -> View | None:
    """Return the target of a store on the present version of its buffer."""
    if node.target is None:
        return None
    base = made.get(id(node.target.node))
    return node.target if base is None else View(base.node, node.target.shape, node.target.strides, node.target.offset)


def _identity(node: Node) -> object:
    """Return what two equal nodes share; None for a node that is one of its kind."""
    if node.kind in ("input", "buffer"):
        return None
    args = tuple((id(arg.node), arg.shape, arg.strides, arg.offset) if isinstance(arg, View) else arg for arg in node.args)
    return (node.kind, node.name, args, node.shape, node.dtype, node.folded)


def _cheaper(node: Node, once: set[int]) -> View:
    """Return a value equal to the node's, made by the first rule that applies."""
    for rule in RULES.get(node.kind, ()):
        found = rule(node, once)
        if found is not None:
            return found
    return whole(node)


def _derived(node: Node, name: str, args: list[Operand]) -> Node:
    made = elementwise(name, args, node.dtype, node.line, node.shape)
    made.order = node.order
    return made


def _copied(node: Node, once: set[int]) -> View | None:
    """A copy that changes no type is its operand."""
    if node.name == "copy" and isinstance(node.args[0], View) and node.args[0].dtype == node.dtype:
        source = node.args[0]
        return source if source.node.kind != "buffer" or not source.node.args else None
    return None


def _constant(node: Node, once: set[int]) -> View | None:
    """A constant operand becomes a number."""
    if node.name == "fill" or not any(_number(arg) is not None for arg in node.views):
        return None
    args = [arg if (number := _number(arg)) is None else number for arg in node.args]
    if not any(isinstance(arg, View) for arg in args):
        return None
    return _cheaper(_derived(node, node.name, args), once)


def _number(arg: Operand) -> float | None:
    if isinstance(arg, View) and arg.node.name == "fill" and arg.node.kind == "elementwise":
        return float(arg.node.args[0])  # type: ignore[arg-type]
    return None


def _narrow(node: Node, once: set[int]) -> View | None:
    """A cast to float32 before arithmetic changes nothing: the engines compute in float32."""
    if node.name in ("copy", "where") or node.dtype != "float32":
        return None
    args = [_uncast(arg) if isinstance(arg, View) else arg for arg in node.args]
    if tuple(args) == node.args:
        return None
    made = replace(node, args=tuple(args))
    made.order = node.order
    return _cheaper(made, once)


def _uncast(view: View) -> View:
    """Return what a view reads, without a cast to float32 on the way."""
    inner = view.node
    narrow = inner.args[0] if inner.kind == "elementwise" and inner.name == "copy" else None
    if isinstance(narrow, View) and inner.dtype == "float32" and narrow.dtype in ("bfloat16", "float16"):
        return _through(view, narrow) or view
    return view


def _neutral(node: Node, once: set[int]) -> View | None:
    """``x * 1``, ``x / 1``, ``x + 0`` and ``x - 0`` are ``x``."""
    if len(node.args) != 2:
        return None
    first, second = node.args
    neutral = {"mul": 1.0, "div": 1.0, "add": 0.0, "sub": 0.0}.get(node.name)
    for kept, other, commutes in ((first, second, True), (second, first, node.name in ("mul", "add"))):
        if commutes and other == neutral and isinstance(kept, View) and kept.dtype == node.dtype:
            return kept
    return None


def _power(node: Node, once: set[int]) -> View | None:
    """A power that an instruction has of its own becomes that instruction; ``x * x`` is a square."""
    first = node.args[0]
    if node.name == "pow" and isinstance(node.args[1], float) and node.args[1] in _POWERS:
        return _cheaper(_derived(node, _POWERS[node.args[1]], [first]), once)
    if node.name == "mul" and first == node.args[1]:
        return whole(_derived(node, "square", [first]))
    return None


def _divided(node: Node, once: set[int]) -> View | None:
    """No engine divides: a number's reciprocal is a constant, an array's is computed where it has the fewest elements."""
    if node.name != "div":
        return None
    above, below = node.args
    if isinstance(below, float):
        return _cheaper(_derived(node, "mul", [above, 1.0 / below if below else math.inf]), once)
    inverse = _reciprocal(below, node)
    if above == 1.0:
        return inverse.broadcast(node.shape) if inverse.dtype == node.dtype else None
    return _cheaper(_derived(node, "mul", [above, inverse]), once)


def _reciprocal(below: View, node: Node) -> View:
    """Return the reciprocals of a view, each computed once: axes that the view repeats are left out."""
    small = below.mapped(lambda array: array[tuple(slice(0, 1) if s == 0 else slice(None) for s in array.strides)])
    made = elementwise("recip", [small], node.dtype, node.line)
    made.order = node.order
    return whole(made).broadcast(below.shape)


def _scaled_sum(node: Node, once: set[int]) -> View | None:
    """A sum of products with one number is the product of the sum with the number."""
    operand = node.args[0]
    assert isinstance(operand, View)
    inner = operand.node
    if node.name != "add" or inner.kind != "elementwise" or inner.name != "mul" or not isinstance(inner.args[1], float):
        return None
    factor = inner.args[0]
    if not isinstance(factor, View):
        return None
    source = _through(operand, factor)
    if source is None:
        return None
    total = replace(node, args=(source,))
    total.order = node.order
    return whole(_derived(node, "mul", [whole(total), inner.args[1]]))


def _through(view: View, argument: View) -> View | None:
    """Return the part of ``argument`` that a view of an element-wise result reads, or None if it is not affine."""
    base = {id(view.node): argument}
    found = _moved_view(view, base)
    return found if found.node is argument.node else None


def _wide(node: Node, once: set[int]) -> View | None:
    """A cast to float32 before a product changes nothing: the tensor engine adds in float32."""
    args = [_uncast(view) for view in node.views]
    if tuple(args) == node.args or len({arg.dtype for arg in args}) != 1:
        return None
    made = replace(node, args=tuple(args))
    made.order = node.order
    return _cheaper(made, once)


def _scaled_product(node: Node, once: set[int]) -> View | None:
    """Scale the results of a product instead of its left operand's rows, where there are fewer results."""
    left, right = node.args
    assert isinstance(left, View) and isinstance(right, View)
    inner = left.node
    if inner.kind != "elementwise" or inner.name != "mul" or id(inner) not in once or not left.whole or node.folded != 1:
        return None
    rows = len(left.shape) - node.folded
    columns = math.prod(node.shape[rows:])
    for kept, row in (inner.args, inner.args[::-1]):
        if isinstance(row, View) and isinstance(kept, View) and row.shape == left.shape and row.strides[-1] == 0:
            if columns >= math.prod(left.shape[rows:]) or left.shape != inner.shape:
                return None
            plain = replace(node, args=(kept, right))
            plain.order = node.order
            scale = row.mapped(lambda array: array[..., 0])
            spread = scale.mapped(lambda array: array.reshape(array.shape + (1,) * (len(node.shape) - rows)))
            return whole(_derived(node, "mul", [whole(plain), spread.broadcast(node.shape)]))
    return None


Rule = Callable[[Node, set[int]], View | None]
RULES: dict[str, tuple[Rule, ...]] = {
    "elementwise": (_copied, _constant, _narrow, _neutral, _power, _divided),
    "reduce": (_narrow, _scaled_sum),
    "dot": (_wide, _scaled_product),
}
"""What is tried on each kind of node, in order."""

