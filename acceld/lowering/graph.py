"""Define the graph of a traced reference: nodes of eight kinds, and strided views of their results."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from acceld.errors import UsageError

Kind = Literal["input", "index", "elementwise", "reduce", "dot", "scan", "gather", "buffer"]
Shape = tuple[int, ...]

_ORDER = itertools.count()
_EMPTY, _ARRAY = np.empty, np.asarray  # numpy's own constructors, because tracing replaces them while a reference runs
_ELEMENT = _EMPTY(1, np.uint8)
_ADDRESS: int = _ELEMENT.__array_interface__["data"][0]


class _Fake:
    """An array of one-byte elements for numpy, which reads only its shape, strides and address."""

    def __init__(self, shape: Shape, strides: Shape) -> None:
        self.__array_interface__ = {
            "data": (_ADDRESS, False),
            "shape": shape,
            "strides": strides,
            "typestr": "|u1",
            "version": 3,
        }


class NotLowered(UsageError):
    """Raised for a construct of a reference that is not lowered. The message names the line and the construct."""

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {what}" if line else what)
        self.what = what
        self.line = line


def dense(shape: Sequence[int]) -> Shape:
    """Return the strides, in elements, of an array of ``shape`` in row-major order."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


@dataclass(eq=False, slots=True)
class Node:
    """One value of the graph. The elements of its result are dense in row-major order. A View reads a part of them.

    - ``name`` is the function of an ``elementwise``, ``reduce`` or ``scan`` node, and the argument's name of an ``input``.
    - ``folded`` is the number of last axes of the operands that a ``reduce`` or ``dot`` node sums over.
    - A ``buffer`` is the state of an array after a store: the last operand was stored to ``target``. If the node has two
      operands, the first operand is the previous state.
    - A ``gather`` reads a row of a table for each element of its first operand. Its second operand is row 0 of the table,
      repeated, and ``folded`` is the number of axes of a row.
    """

    kind: Kind
    name: str
    args: tuple[Operand, ...]
    shape: Shape
    dtype: str
    line: int = 0
    folded: int = 0
    target: View | None = None
    order: int = field(default_factory=lambda: next(_ORDER))
    constant: bool = field(init=False)
    """True if the value does not depend on an input."""

    def __post_init__(self) -> None:
        self.constant = self.kind != "input" and all(view.node.constant for view in self.views)

    @property
    def views(self) -> list[View]:
        """Return the operands that are views. All other operands are numbers."""
        return [arg for arg in self.args if isinstance(arg, View)]

    @property
    def size(self) -> int:
        """Return the number of elements of the node's result."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class View:
    """A strided part of a node's result.

    Element ``i`` of the view is element ``offset + sum(i[axis] * strides[axis])`` of the result.
    """

    node: Node
    shape: Shape
    strides: Shape
    offset: int = 0

    def __call__(self, *args: object, **further: object) -> None:
        """Raise TypeError, because a reference that calls ``x.view()`` of a traced array calls the array's View."""
        raise TypeError("ndarray.view is not lowered; use x.copy() for the same elements, x.astype() for another type")

    @property
    def dtype(self) -> str:
        """Return the dtype of the node's result."""
        return self.node.dtype

    @property
    def whole(self) -> bool:
        """Tell whether the view has all elements of the node's result, in the result's order. The view may have another
        shape than the result.
        """
        own = ((n, s, d) for n, s, d in zip(self.shape, self.strides, dense(self.shape), strict=True) if n != 1)
        return self.offset == 0 and math.prod(self.shape) == self.node.size and all(s == d for _, s, d in own)

    def mapped(self, function: Callable[[Any], Any]) -> View:
        """Return the view that ``function``, such as a transposition, gives for this view.

        ``function`` takes and returns a numpy array, of which only shape and strides matter: no element is read. Raise
        TypeError if ``function`` returns a single element.
        """
        fake = function(_ARRAY(_Fake(self.shape, self.strides)))
        if not isinstance(fake, np.ndarray):
            raise TypeError(f"a view of shape {self.shape} can not be mapped to one element: index it with [...]")
        start = fake.__array_interface__["data"][0] - _ADDRESS
        ends = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        if fake.size and not sum(min(0, end) for end in ends) <= start <= sum(max(0, end) for end in ends):
            raise NotLowered(
                "an index for which numpy copies elements is not lowered; use slices and arrays of positions"
            )
        return View(self.node, fake.shape, fake.strides, self.offset + start)

    def broadcast(self, shape: Sequence[int]) -> View:
        """Return the view broadcast to ``shape`` by numpy's rules. Raise NotLowered if the shapes do not fit."""
        wanted = tuple(shape)
        if wanted == self.shape:
            return self
        lead = len(wanted) - len(self.shape)
        if lead < 0 or any(a not in (1, b) for a, b in zip(self.shape, wanted[lead:], strict=True)):
            raise NotLowered(
                f"an array of shape {self.shape} can not be broadcast to {wanted}; reshape the array, or give other shapes",
                self.node.line,
            )
        kept = (0 if a != b else s for a, b, s in zip(self.shape, wanted[lead:], self.strides, strict=True))
        return View(self.node, wanted, (*(0,) * lead, *kept), self.offset)

    def reshaped(self, shape: Sequence[int], line: int = 0) -> View:
        """Return the view's elements in another shape. A copy is made if strides can not describe the new shape."""
        wanted = tuple(int(n) for n in _EMPTY(self.shape, "V0").reshape(tuple(shape)).shape)
        return self.in_shape(wanted) or whole(elementwise("copy", [self], line=line)).reshaped(wanted)

    def in_shape(self, shape: Shape) -> View | None:
        """Return the view's elements in another shape; None if strides can not describe the new shape."""
        try:
            return self.mapped(lambda array: np.reshape(array, shape, copy=False))
        except ValueError:
            return None


Operand = View | float


def whole(node: Node) -> View:
    """Return a view of all elements of a node's result."""
    return View(node, node.shape, dense(node.shape))


NEUTRAL = {"add": 0.0, "mul": 1.0}
"""The result of a reduction over no elements, by the name of the reduction. Other reductions have no such result."""
INDEX = Node("index", "index", (), (2**31,), "float32")
"""The node whose result is the numbers 0, 1, 2 and so on. Views of this node are positions, distances and masks."""


def root(node: Node) -> Node:
    """Return the node of a buffer before any store, if ``node`` is the same buffer after stores; else ``node``."""
    while node.kind == "buffer" and len(node.args) == 2:
        node = node.views[0].node
    return node


def of_made(view: View, made: Mapping[int, Node]) -> View:
    """Return a view of a replaced node as a view of the node's replacement. Any other view is returned unchanged.

    ``made`` has replacements by the id of the old node.
    """
    found = made.get(id(view.node))
    return view if found is None else View(found, view.shape, view.strides, view.offset)


def entry(name: str, shape: Sequence[int], dtype: str) -> Node:
    """Return an input node of the graph."""
    return Node("input", name, (), tuple(shape), dtype)


def common_shape(shapes: Sequence[Shape], line: int = 0) -> Shape:
    """Return the shape to which numpy broadcasts ``shapes``. Raise NotLowered if the shapes do not fit."""
    found = []
    for extents in itertools.zip_longest(*(shape[::-1] for shape in shapes), fillvalue=1):
        wide = {extent for extent in extents if extent != 1}
        if len(wide) > 1:
            raise NotLowered(
                f"arrays of these shapes can not be broadcast: {', '.join(map(str, shapes))}; reshape one, or give other shapes",
                line,
            )
        found.append(wide.pop() if wide else 1)
    return tuple(found[::-1])


def common_dtype(args: Iterable[Operand]) -> str:
    """Return the dtype of an element-wise result: the common dtype of the operands; float32 if their dtypes differ."""
    dtypes = {arg.dtype for arg in args if isinstance(arg, View)}
    return dtypes.pop() if len(dtypes) == 1 else "float32"


def elementwise(name: str, args: Sequence[Operand], dtype: str = "", line: int = 0, shape: Shape | None = None) -> Node:
    """Return a node that applies an element-wise function to operands, which are broadcast by numpy's rules."""
    if shape is None:
        shape = common_shape([arg.shape for arg in args if isinstance(arg, View)], line)
    spread = tuple(arg.broadcast(shape) if isinstance(arg, View) else arg for arg in args)
    return Node("elementwise", name, spread, shape, dtype or common_dtype(args), line)


def fill(value: float, shape: Sequence[int], dtype: str, line: int = 0) -> Node:
    """Return a node whose elements are all ``value``."""
    return Node("elementwise", "fill", (float(value),), tuple(shape), dtype, line)


def reduced(name: str, operand: View, axes: Iterable[int], keepdims: bool, line: int = 0, dtype: str = "") -> View:
    """Return the reduction ``name`` (add, max, min or mul) of ``operand`` over ``axes``, as a view.

    The result has the dtype ``dtype``; the operand's dtype if that is "". Raise NotLowered for a maximum or minimum of no
    elements.
    """
    rank = len(operand.shape)
    over = tuple(sorted({axis % rank for axis in axes}))
    if all(operand.shape[axis] == 1 for axis in over):  # each result is the only element that it combines
        same = operand if keepdims else operand.mapped(lambda array: np.squeeze(array, axis=over))
        return same if dtype in ("", operand.dtype) else whole(elementwise("copy", [same], dtype, line))
    kept = tuple(axis for axis in range(rank) if axis not in over)
    turned = operand.mapped(lambda array: np.transpose(array, (*kept, *over)))
    shape = tuple(operand.shape[axis] for axis in kept)
    if not math.prod(operand.shape[axis] for axis in over):
        if name not in NEUTRAL:
            raise NotLowered(f"the {name} of an array without elements is not lowered; leave out its statement", line)
        node = fill(NEUTRAL[name], shape, dtype or operand.dtype, line)
    else:
        node = Node("reduce", name, (turned,), shape, dtype or operand.dtype, line, folded=len(over))
    if not keepdims:
        return whole(node)
    return whole(node).reshaped(tuple(1 if axis in over else n for axis, n in enumerate(operand.shape)))


def product(left: View, right: View, dtype: str = "", line: int = 0) -> View:
    """Return ``left @ right`` by numpy's rules, as a view. Vectors and batches of matrices are allowed, too.

    Raise NotLowered if an operand is a number.
    """
    if not left.shape or not right.shape:
        raise NotLowered("a matrix product of a number is not lowered; multiply by * instead", line)
    row, column = len(left.shape) == 1, len(right.shape) == 1
    a = left.mapped(lambda array: array[None, :]) if row else left
    b = right.mapped(lambda array: array[:, None]) if column else right
    batch = common_shape([a.shape[:-2], b.shape[:-2]], line)
    a, b = a.broadcast((*batch, *a.shape[-2:])), b.broadcast((*batch, *b.shape[-2:]))
    turned = b.mapped(lambda array: np.swapaxes(array, -1, -2))
    found = whole(contraction(a, turned, len(batch), 1, dtype, line))
    kept = tuple(n for n, gone in zip(found.shape[-2:], (row, column), strict=True) if not gone)
    return found.reshaped((*batch, *kept))


def contraction(left: View, right: View, batch: int, folded: int, dtype: str = "", line: int = 0) -> Node:
    """Return a dot node, a batch of matrix products with the result [batch, rows, columns].

    ``left`` is [batch, rows, K...] and ``right`` is [batch, columns, K...]. They share the first ``batch`` axes, and the
    sum is over the last ``folded`` axes (K...).
    """
    alike = left.dtype == right.dtype
    left, right = (_multiplied(one, line, alike) for one in (left, right))
    rows = left.shape[batch : len(left.shape) - folded]
    columns = right.shape[batch : len(right.shape) - folded]
    shape = (*left.shape[:batch], *rows, *columns)
    if not math.prod(left.shape[len(left.shape) - folded :]):
        return fill(0.0, shape, dtype or common_dtype((left, right)), line)
    return Node("dot", "dot", (left, right), shape, dtype or common_dtype((left, right)), line, folded)


def _multiplied(operand: View, line: int, alike: bool) -> View:
    """Return an operand in a form that the tensor engine multiplies.

    A float32 operand in memory is returned unchanged; so is bfloat16 or float16 if both operands have one dtype
    (``alike``). Anything else, such as integers or positions, is copied to float32.
    """
    held = ("float32", "bfloat16", "float16") if alike else ("float32",)
    if operand.node is INDEX or operand.dtype not in held:
        return whole(elementwise("copy", [operand], "float32", line))
    return operand


def gathered(table: View, index: View, line: int = 0) -> Node:
    """Return a gather node: it reads those rows of ``table``, along the first axis, whose numbers are in ``index``."""
    held = table
    # copy the table, because a gather needs rows that are contiguous in HBM
    if not table.whole or table.node.kind != "input":
        held = whole(stored(None, table, whole(Node("buffer", "", (), table.shape, table.dtype, line)), line))
    rows = table.shape[1:]
    number = index if index.dtype == "int32" else whole(elementwise("copy", [index], "int32", line))
    first = View(held.node, (*index.shape, *rows), (*(0,) * len(index.shape), *dense(rows)))
    return Node("gather", "gather", (number, first), first.shape, table.dtype, line, folded=len(rows))


def scanned(name: str, decay: View, drive: View, dtype: str, line: int = 0) -> View:
    """Return a scan of ``decay`` and ``drive`` along the last axis, as a view.

    ``name`` is a key of ``instructions.SCANS``, which defines each scan.
    """
    return whole(Node("scan", name, (decay, drive), drive.shape, dtype, line))


def stored(before: View | None, value: View, target: View, line: int = 0) -> Node:
    """Return a buffer node: the state of an array after ``value`` was stored to ``target``, a view of the array.

    ``before`` is the state before the store; None for an array without values.
    """
    held = target.node
    args = (value.broadcast(target.shape),) if before is None else (before, value.broadcast(target.shape))
    return Node("buffer", held.name, args, held.shape, held.dtype, line, target=target)


def coordinates(offset: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the position along each axis of the element at ``offset`` of a dense array of ``shape``."""
    found = []
    for stride in dense(shape):
        found.append(offset // stride)
        offset %= stride
    return tuple(found)


def steps_of(view: View, shape: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Return how a view steps through an array of ``shape``: for each axis of the view, its step along each axis of the
    array.

    Return None if a stride is negative, or if the view steps over the end of an axis of the array.
    """
    return _steps_of(view.shape, view.strides, view.offset, tuple(shape))


@functools.lru_cache(maxsize=2**14)
def _steps_of(extents: Shape, steps: Shape, offset: int, shape: Shape) -> list[tuple[int, ...]] | None:
    """Return the result of :func:`steps_of`, or None, for a view with these extents, steps and offset. Results are
    cached.
    """
    strides = dense(shape)
    start = coordinates(offset, shape)
    found = []
    reach = list(start)
    for extent, stride in zip(extents, steps, strict=True):
        if stride < 0:
            return None
        step = [0] * len(shape)
        if extent > 1 and stride:
            axis = next(
                (a for a, (s, n) in enumerate(zip(strides, shape, strict=True)) if stride % s == 0 and n > 1), None
            )
            if axis is None:
                return None
            step[axis] = stride // strides[axis]
            reach[axis] += step[axis] * (extent - 1)
        found.append(tuple(step))
    return found if all(at < n for at, n in zip(reach, shape, strict=True)) else None


def box(view: View) -> list[tuple[int, int]] | None:
    """Return the range of positions (first, end) that a view reads along each axis of its node's result.

    The end is exclusive. Return None if a stride is negative, or if the view steps over the end of an axis.
    """
    return _box(view.shape, view.strides, view.offset, view.node.shape)


@functools.lru_cache(maxsize=2**14)
def _box(extents: Shape, strides: Shape, offset: int, shape: Shape) -> list[tuple[int, int]] | None:
    """Return the result of :func:`box`, or None, for a view with these extents, strides and offset. Results are
    cached.
    """
    steps = _steps_of(extents, strides, offset, shape)
    if steps is None:
        return None
    start = coordinates(offset, shape)
    ends = list(start)
    for step, extent in zip(steps, extents, strict=True):
        for axis, by in enumerate(step):
            ends[axis] += by * (extent - 1)
    return [(a, b + 1) for a, b in zip(start, ends, strict=True)]


def overlap(first: View, second: View) -> bool:
    """Tell whether two views of one array may share an element."""
    one, other = box(first), box(second)
    if one is None or other is None:
        return True
    near = all(a[0] < b[1] and b[0] < a[1] for a, b in zip(one, other, strict=True))
    return near and not _interleaved(first, second)


def _interleaved(first: View, second: View) -> bool:
    """Tell whether two views of one array share no element because they alternate along an axis, as even and odd
    elements do.
    """
    steps = [*(steps_of(first, first.node.shape) or ()), *(steps_of(second, second.node.shape) or ())]
    starts = [coordinates(view.offset, view.node.shape) for view in (first, second)]
    common = (math.gcd(*along) for along in zip(*steps, strict=True))
    return any(by > 1 and (a - b) % by for by, a, b in zip(common, *starts, strict=False))


def ordered(nodes: Iterable[Node], before: Mapping[int, Sequence[Node]]) -> list[Node] | None:
    """Return the nodes in an order in which each node comes after its operands and after ``before[id(node)]``.

    If several orders are possible, the nodes keep the order in which the reference computed them. Return None if no
    order is possible.
    """
    readers: dict[int, list[Node]] = {}
    missing: dict[int, int] = {}
    numbers, ready = itertools.count(), list[tuple[int, int, Node]]()
    for node in nodes:
        first = [*(view.node for view in node.views), *before.get(id(node), ())]
        missing[id(node)] = len(first)
        for one in first:
            readers.setdefault(id(one), []).append(node)
        if not first:
            ready.append((node.order, next(numbers), node))
    heapq.heapify(ready)
    found: list[Node] = []
    while ready:
        _, _, node = heapq.heappop(ready)
        found.append(node)
        for reader in readers.get(id(node), ()):
            missing[id(reader)] -= 1
            if not missing[id(reader)]:
                heapq.heappush(ready, (reader.order, next(numbers), reader))
    return found if len(found) == len(missing) else None


@dataclass(frozen=True, slots=True)
class Graph:
    """A traced reference: inputs in the order of the kernel's arguments, outputs, and the reference's source lines."""

    inputs: tuple[Node, ...]
    outputs: tuple[View, ...]
    lines: tuple[str, ...] = ()
    _nodes: list[Node] = field(default_factory=list, init=False, repr=False, compare=False)

    def nodes(self) -> list[Node]:
        """Return all nodes on which an output depends, each node after its operands.

        If several orders are possible, the nodes keep the order in which the reference computed them.
        """
        if self._nodes:
            return list(self._nodes)
        needed: dict[int, Node] = {}
        todo = [view.node for view in self.outputs]
        while todo:
            node = todo.pop()
            if id(node) not in needed:
                needed[id(node)] = node
                todo += [view.node for view in node.views]
        found = ordered(needed.values(), {})
        assert found is not None, "operands are made before what reads them"
        self._nodes.extend(found)
        return found
