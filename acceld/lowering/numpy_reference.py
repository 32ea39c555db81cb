"""Trace a numpy reference: call it with arrays that record what is done with them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acceld.lowering.constants import FUNCTIONS as CONSTANT
from acceld.lowering.constants import compared, counted, finite, placed, runs, settled, shifted_index, values
from acceld.lowering.graph import (
    INDEX,
    Graph,
    Node,
    NotLowered,
    Operand,
    View,
    box,
    contraction,
    dense,
    elementwise,
    entry,
    fill,
    gathered,
    product,
    reduced,
    scanned,
    steps_of,
    stored,
    whole,
)

UFUNCS = {
    "absolute": "abs",
    "add": "add",
    "arctan": "arctan",
    "cos": "cos",
    "divide": "div",
    "equal": "eq",
    "erf": "erf",
    "exp": "exp",
    "expit": "sigmoid",
    "fabs": "abs",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "fmax": "max",
    "fmin": "min",
    "log": "log",
    "logical_not": "not",
    "maximum": "max",
    "minimum": "min",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "positive": "copy",
    "power": "pow",
    "float_power": "pow",
    "reciprocal": "recip",
    "sign": "sign",
    "sin": "sin",
    "sqrt": "sqrt",
    "square": "square",
    "subtract": "sub",
    "tanh": "tanh",
    "true_divide": "div",
}
"""Element-wise functions by numpy's names."""

FOLDS = {"add": "add", "maximum": "max", "minimum": "min", "multiply": "mul"}
INTEGERS = frozenset({"int32", "uint32", "int16", "uint16", "int8", "uint8"})
OF_INTEGERS = frozenset({"abs", "add", "copy", "max", "min", "mul", "neg", "sign", "square", "sub"})
"""Functions that give integers of integers."""
COMPARISONS = frozenset({"eq", "ge", "gt", "le", "lt", "ne", "not"})
CUMULATIVE = {"add": "sum", "multiply": "product", "maximum": "greatest", "minimum": "least"}
"""Scans by the ufunc that numpy accumulates."""


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of the reference while it is traced. A view of another array follows that array's later stores."""

    __array_priority__ = 1000

    def __init__(self, view: View | None, base: Traced | None = None, of: Callable[[Any], Any] | None = None) -> None:
        self._view = view
        self._base = base
        self._of = of

    @property
    def view(self) -> View:
        """Return the value as it is now."""
        if self._base is None:
            assert self._view is not None
            return self._view
        assert self._of is not None
        return forwarded(self._base.view.mapped(self._of))

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return self.view.shape

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype that numpy would show."""
        return np.dtype(np.int64) if self.view.node is INDEX else _dtype(self.view.dtype)

    @property
    def boolean(self) -> bool:
        """Return True for comparisons, and for what ``&``, ``|`` and ``~`` make of them."""
        todo = [self.view.node]
        while todo:
            node = todo.pop()
            if node.kind == "elementwise" and node.name in ("mul", "max") and len(node.views) == 2:
                todo += [view.node for view in node.views]
            elif node.dtype != "bool" and (node.kind != "elementwise" or node.name not in COMPARISONS):
                return False
        return True

    def known(self) -> np.ndarray[Any, Any] | None:
        """Return the values, if they depend on shapes alone."""
        return values(self.view)

    @property
    def T(self) -> Traced:
        """Return the transposed array."""
        return self._part(lambda array: array.T)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Traced]:
        return (self[index] for index in range(len(self)))

    def _number(self, refusal: str) -> Any:
        found = self.known()
        if found is None:
            raise NotLowered(refusal, _line())
        return found.item()

    def __bool__(self) -> bool:
        return bool(self._number("a Python branch on the values of an array is not lowered; use np.where"))

    def __float__(self) -> float:
        return float(self._number("a Python number made of the values of an array is not lowered"))

    def __int__(self) -> int:
        return int(self._number("a Python number made of the values of an array is not lowered"))

    __index__ = __int__

    def __array__(self, dtype: Any = None, **_: object) -> Any:
        found = self.known()
        if found is None:
            raise NotLowered("a numpy function that reads the values of an array is not lowered", _line())
        return found if dtype is None else found.astype(dtype)

    def _part(self, of: Callable[[Any], Any]) -> Traced:
        return Traced(None, self, of)

    def __getitem__(self, key: Any) -> Traced:
        if any(isinstance(one, Traced | np.ndarray | list) for one in (key if isinstance(key, tuple) else (key,))):
            return _indexed(self, key if isinstance(key, tuple) else (key,))
        return self._part(lambda array: array[key if isinstance(key, tuple) and Ellipsis in key else _kept(array, key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        # numpy takes no floats as positions: an array that is float32 here holds truth values.
        if isinstance(key, Traced | np.ndarray) and key.shape == self.shape and key.dtype.kind in "bf":
            self.assign(_where(key, value, self))
            return
        part = root = self[key]
        while root._base is not None and root is not self:
            root = root._base
        if root is not self:
            raise NotLowered("a store to positions that an array names is not lowered; use slices or np.where", _line())
        part.assign(value)

    def assign(self, value: Any) -> None:
        """Store a value to all elements of this array, and so to the array that it views."""
        line = _line()
        given = operand(value)
        if self._base is None:
            shape = self.shape
            if isinstance(given, View):
                self._view = given.broadcast(shape)
            else:
                self._view = whole(fill(given, shape, self.view.dtype, line))
            return
        root = self
        fakes = []
        while root._base is not None:
            fakes.append(root._of)
            root = root._base
        held = root.view
        if held.node.kind != "buffer" or not held.whole:
            start = Node("buffer", "", (), held.shape, held.dtype, line)
            first_store = stored(None, held, whole(start), line)
            # Values that are stored over parts of the array may be computed already: the whole array is stored before them.
            first_store.order = held.node.order
            held = whole(first_store)
        target = View(held.node, held.shape, dense(held.shape))
        for of in reversed(fakes):
            assert of is not None
            target = target.mapped(of)
        if not math.prod(target.shape):
            return
        if not isinstance(given, View):
            given = whole(fill(given, target.shape, held.dtype, line))
        first = held.node.kind == "buffer" and not held.node.args
        root._view = View(
            stored(None if first else whole(held.node), given, target, line), held.shape, dense(held.shape)
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, out: Any = None, **further: Any) -> Any:
        line = _line()
        if further.get("where", True) is not True:
            raise NotLowered(f"np.{ufunc.__name__}(where=...) is not lowered; use np.where", line)
        if further.get("initial") is not None:
            raise NotLowered(f"np.{ufunc.__name__}.{method}(initial=...) is not lowered", line)
        if ufunc.__name__ == "matmul" and method == "__call__":
            result = Traced(product(_array(args[0], line), _array(args[1], line), line=line))
        elif method == "reduce" and ufunc.__name__ in FOLDS:
            axis = args[1] if len(args) > 1 else further.get("axis", 0)
            result = _folded(FOLDS[ufunc.__name__], args[0], axis, bool(further.get("keepdims", False)))
        elif method == "accumulate" and ufunc.__name__ in CUMULATIVE:
            result = _cumulated(
                CUMULATIVE[ufunc.__name__], args[0], args[1] if len(args) > 1 else further.get("axis", 0)
            )
        elif method == "__call__" and ufunc.__name__ in UFUNCS:
            result = Traced(_applied(UFUNCS[ufunc.__name__], args, line))
        elif method == "__call__" and ufunc.__name__ in _COMPOSED:
            result = _COMPOSED[ufunc.__name__](*args)
        else:
            name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            result = _evaluated(getattr(ufunc, method), name, args, further)
        return _into(out[0] if isinstance(out, tuple) else out, result)

    def __array_function__(self, function: Any, types: Any, args: Any, further: Any) -> Any:
        out = further.get("out")
        further = {key: value for key, value in further.items() if key != "out"}
        made = FUNCTIONS.get(function.__name__)
        if made is None:
            found = _evaluated(function, function.__name__, args, further)
            return found if out is None else _into(out, found)
        try:
            return _into(out, made(*args, **further))
        except TypeError as error:
            raise NotLowered(
                f"np.{function.__name__} with these arguments is not lowered ({error})", _line()
            ) from error

    def astype(self, dtype: Any, **_: object) -> Traced:
        """Return the values in another type. float64 is float32 here: the oracle has the wide type, a kernel has not."""
        if np.dtype(dtype) == np.bool_:
            return self if self.boolean else self != 0
        name = _name(np.dtype(dtype))
        if self.view.node is INDEX or (self.boolean and name == "int32"):
            name = self.view.dtype
        return self if name == self.view.dtype else Traced(whole(elementwise("copy", [self.view], name, _line())))

    def copy(self, *_: object) -> Traced:
        """Return the values as they are now."""
        return Traced(self.view)

    def _fold(self, name: str, axis: Any, keepdims: bool, dtype: Any, out: Any) -> Traced:
        if dtype is not None and _name(np.dtype(dtype)) != self.view.dtype:
            return self.astype(dtype)._fold(name, axis, keepdims, None, out)
        return _into(out, _folded(name, self, axis, keepdims))

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Traced:
        """Return the sum over axes."""
        return self._fold("add", axis, keepdims, dtype, out)

    def max(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Traced:
        """Return the greatest value over axes."""
        return self._fold("max", axis, keepdims, None, out)

    def min(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Traced:
        """Return the least value over axes."""
        return self._fold("min", axis, keepdims, None, out)

    def prod(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Traced:
        """Return the product over axes."""
        return self._fold("mul", axis, keepdims, dtype, out)

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Traced:
        """Return the mean over axes."""
        total = self.sum(axis, dtype, None, keepdims)
        return _into(out, total * (total.size / self.size))

    def var(
        self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False
    ) -> Traced:
        """Return the variance over axes, as the mean of squared differences."""
        difference = self - self.mean(axis, dtype, None, True)
        total = np.square(difference).sum(axis, None, None, keepdims)
        return _into(out, total * (1.0 / (self.size / total.size - ddof)))

    def std(
        self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False
    ) -> Traced:
        """Return the standard deviation over axes."""
        return _into(out, np.sqrt(self.var(axis, dtype, None, ddof, keepdims)))

    def argmax(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Traced:
        """Return the first position of the greatest value along an axis."""
        return _into(out, _extreme(self, "max", axis, keepdims))

    def argmin(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Traced:
        """Return the first position of the least value along an axis."""
        return _into(out, _extreme(self, "min", axis, keepdims))

    def cumsum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Traced:
        """Return the sums up to each element along an axis."""
        return _into(out, _cumulated("sum", self if dtype is None else self.astype(dtype), axis))

    def cumprod(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Traced:
        """Return the products up to each element along an axis."""
        return _into(out, _cumulated("product", self if dtype is None else self.astype(dtype), axis))

    def any(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Traced:
        """Return 1 where an element along an axis is not 0."""
        return self.astype(bool).max(axis, out, keepdims)

    def all(self, axis: Any = None, out: Any = None, keepdims: bool = False) -> Traced:
        """Return 1 where no element along an axis is 0."""
        return self.astype(bool).min(axis, out, keepdims)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Traced:
        """Return the diagonals of two axes."""
        return self._part(lambda array: np.diagonal(array, offset, axis1, axis2))

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, **_: object) -> Traced:
        """Return the sums of the diagonals of two axes."""
        return self.diagonal(offset, axis1, axis2).sum(-1)

    def repeat(self, repeats: Any, axis: int | None = None) -> Traced:
        """Return each element several times."""
        return _repeated(self, repeats, axis)

    def take(self, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Traced:
        """Return the parts that positions along an axis name."""
        return _into(out, _taken(self, indices, axis, mode=mode))

    def item(self) -> float:
        """Return the one value as a number."""
        return float(self)

    def reshape(self, *shape: Any, order: str = "C", **_: object) -> Traced:
        """Return the elements in another shape."""
        if order != "C":
            raise NotLowered(f"elements in order {order!r} are not lowered; transpose the array first", _line())
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        view = self.view
        try:
            view.mapped(lambda array: np.reshape(array, wanted, copy=False))
        except ValueError:
            return Traced(view.reshaped(wanted, _line()))
        return self._part(lambda array: np.reshape(array, wanted, copy=False))

    def transpose(self, *axes: Any) -> Traced:
        """Return the array with its axes in another order."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
        return self._part(lambda array: array.transpose(tuple(order) or None))

    def swapaxes(self, first: int, second: int) -> Traced:
        """Return the array with two axes exchanged."""
        return self._part(lambda array: array.swapaxes(first, second))

    def ravel(self, order: str = "C") -> Traced:
        """Return the elements as one axis."""
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> Traced:
        """Return the elements as one axis, as they are now."""
        return self.ravel(order).copy()

    def squeeze(self, axis: Any = None) -> Traced:
        """Return the array without axes of one element."""
        return self._part(lambda array: np.squeeze(array, axis))

    def clip(self, low: Any = None, high: Any = None, out: Any = None, **named: Any) -> Traced:
        """Return the values held between two bounds, which numpy also knows as ``min`` and ``a_min``, ``max`` and ``a_max``."""
        low = named.get("min", named.get("a_min", low))
        high = named.get("max", named.get("a_max", high))
        found: Any = self if low is None else np.maximum(self, low)
        return _into(out, found if high is None else np.minimum(found, high))

    def dot(self, other: Any) -> Traced:
        """Return the product."""
        return self @ other  # type: ignore[no-any-return]


def _into(out: Any, found: Any) -> Traced:
    """Return a result, or the array ``out`` after the result was stored there."""
    if out is not None:
        out.assign(found)
    held: Traced = found if out is None else out
    return held


def _kept(array: Any, key: Any) -> Any:
    """Return an index that leaves an array, also where numpy would return one element."""
    return key if isinstance(array[key], np.ndarray) else (*(key if isinstance(key, tuple) else (key,)), Ellipsis)


def _dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        narrow: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return narrow
    found: np.dtype[Any] = np.dtype(name)
    return found


def _name(dtype: np.dtype[Any]) -> str:
    return {"float64": "float32", "int64": "int32", "uint64": "uint32", "bool": "float32"}.get(dtype.name, dtype.name)


_SOURCE = ""


def _line() -> int:
    """Return the line of the reference that runs now, or 0."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != _SOURCE:
        frame = frame.f_back  # type: ignore[assignment]
    return frame.f_lineno if frame is not None else 0


def operand(value: Any) -> Operand:
    """Return a value of the reference as an operand. NotLowered if it is neither an array of one value nor traced."""
    if isinstance(value, Traced):
        view = settled(value.view, _line())
        return view if view.node is not INDEX or any(view.strides) or view.shape else float(view.offset)
    if isinstance(value, bool | int | float | np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return finite(float(value))
    if isinstance(value, np.ndarray | list | tuple):
        if any(isinstance(one, Traced) for one in value):
            return _stacked(list(value)).view
        array = np.asarray(value)
        if array.dtype.kind in "biuf" or array.dtype.name in ("bfloat16", "float16"):
            return placed(array, _name(array.dtype) if array.dtype.kind not in "biu" else "float32", _line())
    raise NotLowered(f"an operand of type {type(value).__name__} is not lowered", _line())


def _array(value: Any, line: int) -> View:
    found = operand(value)
    if not isinstance(found, View):
        raise NotLowered("a product of a number; multiply instead", line)
    return found


def _applied(name: str, args: Sequence[Any], line: int) -> View:
    given = [operand(arg) for arg in args]
    if not any(isinstance(arg, View) for arg in given):
        return whole(fill(float(CONSTANT[name](*given)), (), "float32", line))
    if (found := shifted_index(name, given)) is not None:
        return found
    if name in COMPARISONS and len(given) == 2 and (found := compared(name, given, line)) is not None:
        return found
    if name == "pow" and isinstance(given[0], float):
        assert isinstance(given[1], View)
        return _applied("exp", [Traced(given[1]) * math.log(given[0])], line) if given[0] > 0 else _refused("power")
    return whole(elementwise(name, given, _exact(name, args, given), line))


def _exact(name: str, args: Sequence[Any], given: Sequence[Operand]) -> str:
    """Return float32 for what numpy computes of integers in floating point, and for truth values; else nothing."""
    dtypes = {view.dtype for view in given if isinstance(view, View)}
    whole_numbers = (
        dtypes <= INTEGERS and name in OF_INTEGERS and not any(isinstance(a, float | np.floating) for a in args)
    )
    return "float32" if dtypes <= INTEGERS | {"bool"} and not whole_numbers else ""


def _folded(name: str, value: Any, axis: Any, keepdims: bool) -> Traced:
    view = _array(value, _line())
    if view.dtype == "bool":
        view = whole(elementwise("copy", [view], "float32", _line()))
    axes = range(len(view.shape)) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    return Traced(reduced(name, view, axes, keepdims, _line()))


def forwarded(view: View) -> View:
    """Return a read of a buffer as a read of the value that was stored there, if one store holds all of it."""
    while view.node.kind == "buffer" and view.node.target is not None:
        target, value = view.node.target, view.node.args[-1]
        assert isinstance(value, View)
        read, held = box(view), box(target)
        if read is None or held is None:
            return view
        inside = all(h[0] <= r[0] and r[1] <= h[1] for r, h in zip(read, held, strict=True))
        apart = any(r[1] <= h[0] or h[1] <= r[0] for r, h in zip(read, held, strict=True))
        if apart and len(view.node.args) == 2:
            before = view.node.args[0]
            assert isinstance(before, View)
            view = View(before.node, view.shape, view.strides, view.offset)
            continue
        if not inside or target.strides != dense(view.node.shape) or len(target.shape) != len(view.node.shape):
            return view
        # The stored value has the target's shape: the same steps lead through both.
        start = tuple(r[0] - h[0] for r, h in zip(read, held, strict=True))
        places = steps_of(view, view.node.shape)
        if places is None:
            return view
        strides = tuple(sum(c * s for c, s in zip(place, value.strides, strict=True)) for place in places)
        offset = value.offset + sum(c * s for c, s in zip(start, value.strides, strict=True))
        view = View(value.node, view.shape, strides, offset)
    return view


def _where(condition: Any, first: Any = None, second: Any = None) -> Traced:
    line = _line()
    if first is None or second is None:
        raise NotLowered("np.where(condition) gives as many positions as the values say: it is not lowered", line)
    given = operand(condition)
    if not isinstance(given, View):
        return Traced(_array(first if given else second, line))
    return Traced(whole(elementwise("where", [given, operand(first), operand(second)], _wider(first, second), line)))


def _wider(*values: Any) -> str:
    dtypes = {value.view.dtype for value in values if isinstance(value, Traced)}
    return dtypes.pop() if len(dtypes) == 1 else "float32"


def _concatenated(parts: Sequence[Any], axis: int = 0, **_: object) -> Traced:
    line = _line()
    views = [_array(part, line) for part in parts]
    at = axis % len(views[0].shape)
    extents = [view.shape[at] for view in views]
    shape = (*views[0].shape[:at], sum(extents), *views[0].shape[at + 1 :])
    made = Traced(whole(Node("buffer", "", (), shape, views[0].dtype, line)))
    start = 0
    for view, extent in zip(views, extents, strict=True):
        made[(*[slice(None)] * at, slice(start, start + extent))] = Traced(view)
        start += extent
    return made


def _stacked(parts: Sequence[Any], axis: int = 0, **_: object) -> Traced:
    return _concatenated([np.expand_dims(part, axis) for part in parts], axis)


def _new(shape: Any, dtype: Any, value: float | None) -> Traced:
    wanted = (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(n) for n in shape)
    name = _name(np.dtype(dtype))
    if value is None:
        return Traced(whole(Node("buffer", "", (), wanted, name, _line())))
    return Traced(whole(fill(value, wanted, name, _line())))


def _like(value: float | None) -> Callable[..., Traced]:
    return lambda a, dtype=None, **_: _new(a.shape, dtype or a.dtype, value)


def _full_like(a: Traced, fill_value: float, dtype: Any = None, **_: object) -> Traced:
    return _new(a.shape, dtype or a.dtype, float(fill_value))


def _padded(a: Traced, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Traced:
    if mode != "constant" or np.ndim(constant_values):
        raise NotLowered(f"np.pad(mode={mode!r}) is not lowered", _line())
    widths = np.broadcast_to(np.asarray(pad_width), (a.ndim, 2)).tolist()
    shape = [n + before + after for n, (before, after) in zip(a.shape, widths, strict=True)]
    made = Traced(whole(Node("buffer", "", (), tuple(shape), a.view.dtype, _line())))
    made[...] = float(constant_values)
    made[tuple(slice(before, before + n) for n, (before, _) in zip(a.shape, widths, strict=True))] = a
    return made


def _einsum(subscripts: str, *operands: Any, **_: object) -> Traced:
    """Lower an einsum, two arrays at a time: a dot whose axes are permuted views, or an element-wise product."""
    line = _line()
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    names = inputs.split(",")
    arrays = [Traced(_array(value, line)) for value in operands]
    if "." in subscripts:
        spare = [one for one in "ZYXWVUTSRQ" if one not in subscripts]
        extra = [
            spare[: a.ndim - len(part) + 3][::-1] if "." in part else [] for a, part in zip(arrays, names, strict=True)
        ]
        longest = max(("".join(own) for own in extra), key=len)
        names = [
            part.replace("...", longest[len(longest) - len(own) :]) for part, own in zip(names, extra, strict=True)
        ]
        output = output.replace("...", longest) if arrow else longest + output
    if not arrow:
        letters = "".join(names)
        output += "".join(sorted(one for one in set(letters) - set(output) if letters.count(one) == 1))
    parts = [_diagonals(array, name) for array, name in zip(arrays, names, strict=True)]
    while len(parts) > 1:
        (first, a), (second, b) = parts[:2]
        needed = set(output).union(*(name for _, name in parts[2:]))
        parts[:2] = [_paired(first, a, second, b, needed, line)]
    array, name = parts[0]
    gone = tuple(at for at, one in enumerate(name) if one not in output)
    if gone:
        array, name = array.sum(gone), "".join(one for one in name if one in output)
    return array.transpose([name.index(one) for one in output])


def _diagonals(array: Traced, name: str) -> tuple[Traced, str]:
    """Return an array without letters that stand twice: its diagonals."""
    for letter in dict.fromkeys(name):
        while name.count(letter) > 1:
            first = name.index(letter)
            second = name.index(letter, first + 1)
            array = array.diagonal(0, first, second)
            name = name[:first] + name[first + 1 : second] + name[second + 1 :] + letter
    return array, name


def _paired(first: Traced, a: str, second: Traced, b: str, needed: set[str], line: int) -> tuple[Traced, str]:
    """Return the product of two arrays of an einsum, summed over the letters that nothing else needs."""
    for alone, other in ((0, b), (1, a)):
        name = (a, b)[alone]
        gone = tuple(at for at, one in enumerate(name) if one not in other and one not in needed)
        if gone:
            array = (first, second)[alone].sum(gone)
            name = "".join(one for at, one in enumerate(name) if at not in gone)
            first, a, second, b = (array, name, second, b) if not alone else (first, a, array, name)
    batch = [one for one in a if one in b and one in needed]
    folded = [one for one in a if one in b and one not in needed]
    rows = [one for one in a if one not in b]
    columns = [one for one in b if one not in a]
    if not folded:
        order = [*batch, *rows, *columns]
        wide = [
            array.transpose([name.index(one) for one in order if one in name])
            for array, name in ((first, a), (second, b))
        ]
        spread = [
            array.reshape(
                [
                    first.shape[a.index(one)]
                    if one in a and one in name
                    else second.shape[b.index(one)]
                    if one in name
                    else 1
                    for one in order
                ]
            )
            for array, name in zip(wide, (a, b), strict=True)
        ]
        return spread[0] * spread[1], "".join(order)

    def turned(array: Traced, name: str, order: list[str]) -> View:
        return array.transpose([name.index(one) for one in order]).view

    left, right = turned(first, a, batch + rows + folded), turned(second, b, batch + columns + folded)
    node = contraction(left, right, len(batch), len(folded), line=line)
    return Traced(whole(node)), "".join(batch + rows + columns)


def _evaluated(function: Callable[..., Any], name: str, args: Any, further: Any) -> Any:
    """Return what numpy makes of arrays that depend on shapes alone. NotLowered if one of them depends on an input."""

    def plain(value: Any) -> Any:
        if isinstance(value, Traced):
            found = value.known()
            if found is None:
                raise NotLowered(f"np.{name} is not lowered", _line())
            return found
        return type(value)(plain(one) for one in value) if isinstance(value, tuple | list) else value

    given = plain(tuple(args))
    with np.errstate(all="ignore"):
        return function(*given, **{key: plain(value) for key, value in further.items()})


def _extreme(a: Traced, name: str, axis: Any, keepdims: bool) -> Traced:
    """Return the least position at which a fold's result stands."""
    if axis is None:
        a, axis = a.reshape(-1), 0
    at = axis % a.ndim
    extent = a.shape[at]
    steps = tuple(1 if place == at else 0 for place in range(a.ndim))
    positions = Traced(counted(a.shape, steps, 0))
    here = a == Traced(reduced(name, a.view, (at,), True, _line()))
    found = _where(here, positions, float(extent)).min(at, None, keepdims)
    return Traced(whole(elementwise("copy", [found.view], "int32", _line())))


def _cumulated(name: str, value: Any, axis: Any = None, *_: object, **__: object) -> Traced:
    a = Traced(_array(value, _line()))
    if axis is None:
        a, axis = a.reshape(-1), 0
    turned = a._part(lambda array: np.moveaxis(array, axis, -1)).view
    if name in ("greatest", "least"):
        found = scanned(name, turned, turned, _line())
    else:
        unit = whole(fill(1.0 if name == "sum" else 0.0, turned.shape, turned.dtype, _line()))
        found = scanned(name, *((unit, turned) if name == "sum" else (turned, unit)), _line())
    return Traced(found)._part(lambda array: np.moveaxis(array, -1, axis))


def _positions(shape: tuple[int, ...], axis: int) -> Traced:
    return Traced(counted(shape, tuple(1 if at == axis else 0 for at in range(len(shape))), 0))


def _triangle(a: Any, k: int, upper: bool) -> Traced:
    """Return the elements on one side of a diagonal, and 0 for the others."""
    if a.ndim < 2:
        raise NotLowered("a triangle of a vector is not lowered", _line())
    rows, columns = a.shape[-2:]
    distance = Traced(counted((rows, columns), (-1, 1), -int(k)))
    known, beyond = a.known(), distance.known()
    if known is not None and known.ndim == 2 and beyond is not None:
        return Traced(placed(np.multiply(known, (beyond >= 0) if upper else (beyond <= 0)), a.view.dtype, _line()))
    return _where(distance >= 0 if upper else distance <= 0, a, 0.0)


def _matrix_of(diagonal: Traced, k: int) -> Traced:
    """Return a matrix with a diagonal, and 0 elsewhere."""
    extent = diagonal.shape[0] + abs(k)
    held = np.pad(diagonal, (max(-k, 0), max(k, 0)))
    distance = Traced(counted((extent, extent), (-1, 1), -k))
    return _where(distance == 0, held[:, None], 0.0)


def _indexed(a: Traced, key: tuple[Any, ...]) -> Traced:
    """Return the parts that arrays of positions name: gathered rows, elements of each row, or constant positions."""
    line = _line()
    if any(one is None for one in key):
        raise NotLowered("indexing by an array beside None is not lowered", line)
    if Ellipsis in [one for one in key if not isinstance(one, Traced | np.ndarray | list)]:
        at = next(place for place, one in enumerate(key) if one is Ellipsis)
        key = (*key[:at], *(slice(None),) * (a.ndim - len(key) + 1), *key[at + 1 :])
    key = tuple(np.asarray(one) if isinstance(one, list) else one for one in key)
    if any((isinstance(one, Traced) and one.boolean) or getattr(one, "dtype", None) == np.bool_ for one in key):
        raise NotLowered("indexing by a mask is not lowered: its shape depends on values; use np.where", line)
    known = [one.known() if isinstance(one, Traced) else one if isinstance(one, np.ndarray) else None for one in key]
    arrays = [place for place, one in enumerate(key) if isinstance(one, Traced | np.ndarray)]
    if len(arrays) == 1:
        place = arrays[0]
        others = (*key[:place], slice(None), *key[place + 1 :])
        rest = a[others] if any(one != slice(None) for one in others) else a
        axis = sum(not isinstance(one, int | np.integer) for one in key[:place])
        return _taken(rest, key[place] if known[place] is None else known[place], axis)
    if arrays == list(range(len(arrays))) and len(key) <= a.ndim:
        lines = [
            one if values is None else Traced(placed(np.where(values < 0, values + extent, values), "float32", line))
            for one, values, extent in zip(key, known, a.shape, strict=False)
        ]
        found: Any = lines[0]
        for place in arrays[1:]:
            found = found * float(a.shape[place]) + lines[place]
        flat = a.reshape((math.prod(a.shape[: len(arrays)]), *a.shape[len(arrays) :]))
        first = _counts_rows(known[0], a.shape[0])
        if len(arrays) == 2 and first and a.ndim == 2 and isinstance(key[1], Traced) and key[1].ndim == 1:
            return _chosen(a, key[1].reshape((a.shape[0], 1)), 1).reshape(a.shape[0])
        rest = (slice(None),) * found.ndim + key[len(arrays) :]
        return _taken(flat, found, 0)[rest]
    raise NotLowered("indexing by an array is not lowered here: its positions are not those of the first axes", line)


def _counts_rows(known: Any, rows: int) -> bool:
    return known is not None and known.shape == (rows,) and bool((known == _positions((rows,), 0).known()).all())


def _taken(a: Any, indices: Any, axis: int | None = None, *, mode: str = "raise") -> Traced:
    line = _line()
    if mode != "raise":
        raise NotLowered(f"np.take(mode={mode!r}) is not lowered", line)
    a = Traced(_array(a, line))
    if axis is None:
        a, axis = a.reshape(-1), 0
    axis = int(axis) % a.ndim
    known = indices.known() if isinstance(indices, Traced) else np.asarray(indices)
    if known is not None:
        where = np.asarray(known, dtype=np.int64).reshape(-1)
        where = np.where(where < 0, where + a.shape[axis], where)
        pieces = runs(where)
        if len(pieces) > 64:
            raise NotLowered(f"indexing by {len(pieces)} runs of constant positions is not lowered", line)
        lead = (slice(None),) * axis
        parts = [a[(*lead, _run(*piece))] for piece in pieces]
        joined = parts[0] if len(parts) == 1 else _concatenated(parts, axis)
        return joined.reshape((*a.shape[:axis], *np.shape(known), *a.shape[axis + 1 :]))
    table = a._part(lambda array: np.moveaxis(array, axis, 0))
    found = Traced(whole(gathered(table.view, indices.view, line)))
    if axis == 0:
        return found
    places = tuple(range(indices.ndim))
    return found._part(lambda array: np.moveaxis(array, places, tuple(axis + one for one in places)))


def _run(first: int, step: int, count: int) -> slice:
    end = first + step * count
    return slice(first, end if end >= 0 else None, step)


def _chosen(a: Any, indices: Any, axis: Any) -> Traced:
    """Return elements that positions along an axis name: a sum of one element and of zeros."""
    at = int(axis) % a.ndim
    if at != a.ndim - 1:
        turned = [np.moveaxis(one, at, -1) for one in (a, indices)]
        return _chosen(turned[0], turned[1], -1)._part(lambda array: np.moveaxis(array, -1, at))
    if indices.shape[-1] == 1:
        return _where(indices == _positions(a.shape, at), a, 0.0).sum(-1, None, None, True)
    wide = (*a.shape[:-1], indices.shape[-1], a.shape[-1])
    here = np.expand_dims(indices, -1) == _positions(wide, len(wide) - 1)
    return _where(here, np.expand_dims(a, -2), 0.0).sum(-1)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    vectors = np.ndim(x) == 1 if axis is None else isinstance(axis, int)
    if ord in (None, "fro") or (ord == 2 and vectors):
        return np.sqrt(np.sum(np.square(x), axis=axis, keepdims=keepdims))
    if ord in (1, math.inf) and vectors:
        return (np.sum if ord == 1 else np.max)(np.abs(x), axis=axis, keepdims=keepdims)
    return _refused(f"linalg.norm(ord={ord!r})")


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    left, right = axes if not isinstance(axes, int) else (range(a.ndim - axes, a.ndim), range(axes))
    firsts, seconds = (
        [int(axis) % one.ndim for axis in (side if not isinstance(side, int) else (side,))]
        for one, side in ((a, left), (b, right))
    )
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = list(letters[: a.ndim])
    others = list(letters[a.ndim : a.ndim + b.ndim])
    for first, second in zip(firsts, seconds, strict=True):
        others[second] = names[first]
    kept = [one for one in (*names, *others) if (one in names) != (one in others)]
    return _einsum(f"{''.join(names)},{''.join(others)}->{''.join(kept)}", a, b)


def _rolled(a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return _rolled(a.reshape(-1), shift, 0).reshape(a.shape)
    if isinstance(axis, tuple | list):
        for one, by in zip(axis, shift if isinstance(shift, tuple | list) else (shift,) * len(axis), strict=True):
            a = _rolled(a, by, one)
        return a
    at, by = axis % a.ndim, int(shift) % a.shape[axis]
    lead = (slice(None),) * at
    return _concatenated([a[(*lead, slice(-by, None))], a[(*lead, slice(0, -by))]], at) if by else a


def _tiled(a: Any, reps: Any) -> Any:
    counts = (reps,) if isinstance(reps, int) else tuple(reps)
    rank = max(a.ndim, len(counts))
    counts, shape = (1,) * (rank - len(counts)) + counts, (1,) * (rank - a.ndim) + a.shape
    apart = a.reshape([n for extent in shape for n in (1, extent)])
    spread = Traced(apart.view.broadcast([n for pair in zip(counts, shape, strict=True) for n in pair]))
    return spread.reshape(tuple(n * by for n, by in zip(shape, counts, strict=True)))


def _difference(a: Any, n: int = 1, axis: int = -1) -> Any:
    lead = (slice(None),) * (axis % a.ndim)
    for _ in range(n):
        a = a[(*lead, slice(1, None))] - a[(*lead, slice(0, -1))]
    return a


def _averaged(a: Any, axis: Any = None, weights: Any = None, keepdims: bool = False) -> Any:
    if weights is None:
        return a.mean(axis, None, None, keepdims)
    spread = weights
    if np.ndim(weights) != a.ndim:
        spread = np.reshape(weights, [n if at == axis % a.ndim else 1 for at, n in enumerate(a.shape)])
    total = np.sum(spread, axis=axis if np.ndim(weights) == a.ndim else None)
    return (a * spread).sum(axis, None, None, keepdims) / total


_COMPOSED: dict[str, Callable[..., Any]] = {
    "sinh": lambda x: (np.exp(x) - np.exp(-x)) * 0.5,
    "cosh": lambda x: (np.exp(x) + np.exp(-x)) * 0.5,
    "hypot": lambda x, y: np.sqrt(np.square(x) + np.square(y)),
    "heaviside": lambda x, y: np.where(x > 0, 1.0, np.where(x == 0, y, 0.0)),
    "isnan": lambda x: np.not_equal(x, x),
    "logical_xor": lambda x, y: (x != 0) != (y != 0),
    "bitwise_xor": lambda x, y: _of_truths("bitwise_xor", x, y),
    "log1p": lambda x: np.log(x + 1.0),
    "expm1": lambda x: np.exp(x) - 1.0,
    "exp2": lambda x: np.exp(x * math.log(2.0)),
    "log2": lambda x: np.log(x) * (1.0 / math.log(2.0)),
    "logaddexp": lambda x, y: np.maximum(x, y) + np.log(np.exp(-abs(x - y)) + 1.0),
    "logical_and": lambda x, y: _truth(x) * _truth(y),
    "bitwise_and": lambda x, y: _of_truths("bitwise_and", x, y),
    "logical_or": lambda x, y: np.maximum(_truth(x), _truth(y)),
    "bitwise_or": lambda x, y: _of_truths("bitwise_or", x, y),
    "invert": lambda x: np.logical_not(x) if x.boolean else _refused("invert of integers"),
}
"""Functions made of others."""


def _refused(name: str) -> Any:
    raise NotLowered(f"np.{name} is not lowered", _line())


def _truth(value: Any) -> Any:
    """Return 0 and 1."""
    return value.astype(bool) if isinstance(value, Traced) else np.asarray(value) != 0


def _of_truths(name: str, x: Any, y: Any) -> Any:
    """Return a function of bits for arrays of truth values, of which numpy has no other kind of bit."""
    if all(one.boolean if isinstance(one, Traced) else np.asarray(one).dtype == np.bool_ for one in (x, y)):
        return _COMPOSED[name.replace("bitwise", "logical")](x, y)
    return _evaluated(getattr(np, name), name, (x, y), {})


def _method(name: str) -> Callable[..., Any]:
    return lambda a, *args, **further: getattr(a, name)(*args, **further)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: _method(name)
        for name in (
            "sum max min prod mean var std reshape transpose swapaxes ravel squeeze clip copy dot argmax argmin any all "
            "diagonal trace cumsum cumprod"
        ).split()
    },
    "amax": _method("max"),
    "amin": _method("min"),
    "transpose": lambda a, axes=None: a.transpose(*(axes or ())),
    "reshape": lambda a, shape=None, order="C", *, newshape=None, copy=None: a.reshape(
        newshape if shape is None else shape, order=order
    ),
    "expand_dims": lambda a, axis: a._part(lambda array: np.expand_dims(array, axis)),
    "broadcast_to": lambda a, shape, **_: a._part(lambda array: np.broadcast_to(array, shape)),
    "moveaxis": lambda a, source, destination: a._part(lambda array: np.moveaxis(array, source, destination)),
    "where": _where,
    "diag": lambda v, k=0: v.diagonal(k) if v.ndim == 2 else _matrix_of(v, k),
    "tril": lambda m, k=0: _triangle(m, k, upper=False),
    "triu": lambda m, k=0: _triangle(m, k, upper=True),
    "take": _taken,
    "take_along_axis": lambda arr, indices, axis=-1: _chosen(arr, indices, axis),
    "flip": lambda m, axis=None: m._part(lambda array: np.flip(array, axis)),
    "fliplr": lambda m: m._part(np.fliplr),
    "flipud": lambda m: m._part(np.flipud),
    "rot90": lambda m, k=1, axes=(0, 1): m._part(lambda array: np.rot90(array, k, axes)),
    "rollaxis": lambda a, axis, start=0: a._part(lambda array: np.rollaxis(array, axis, start)),
    "atleast_1d": lambda a: a._part(np.atleast_1d),
    "atleast_2d": lambda a: a._part(np.atleast_2d),
    "roll": _rolled,
    "fill_diagonal": lambda a, val, **_: a.assign(_where(Traced(counted(a.shape, (-1, 1), 0)) == 0, val, a)),
    "broadcast_arrays": lambda *args, **_: [
        np.broadcast_to(one, np.broadcast_shapes(*(np.shape(other) for other in args))) for one in args
    ],
    "tile": _tiled,
    "diff": _difference,
    "ptp": lambda a, axis=None, keepdims=False, **_: (
        np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)
    ),
    "average": _averaged,
    "count_nonzero": lambda a, axis=None, keepdims=False: a.astype(bool).sum(axis, None, None, keepdims),
    "outer": lambda a, b: np.reshape(a, (-1, 1)) * np.reshape(b, (1, -1)),
    "inner": lambda a, b: np.tensordot(a, b, (-1, -1)),
    "vdot": lambda a, b: (np.ravel(a) * np.ravel(b)).sum(),
    "vecdot": lambda a, b: (a * b).sum(-1),
    "tensordot": _tensordot,
    "norm": _norm,
    "multi_dot": lambda arrays, **_: functools.reduce(lambda a, b: a @ b, arrays),
    "sliding_window_view": lambda x, window_shape, axis=None, **_: x._part(
        lambda array: np.lib.stride_tricks.sliding_window_view(array, window_shape, axis)
    ),
    "vstack": lambda tup, **_: _concatenated([np.atleast_2d(one) for one in tup], 0),
    "hstack": lambda tup, **_: _concatenated(tup, 0 if np.ndim(tup[0]) == 1 else 1),
    "nan_to_num": lambda x, copy=True: x,
    "concatenate": _concatenated,
    "stack": _stacked,
    "split": lambda a, n, axis=0: _split(a, n, axis),
    "array_split": lambda a, n, axis=0: _split(a, n, axis),
    "pad": _padded,
    "einsum": _einsum,
    "empty_like": _like(None),
    "zeros_like": _like(0.0),
    "ones_like": _like(1.0),
    "full_like": _full_like,
    "shape": lambda a: a.shape,
    "ndim": lambda a: a.ndim,
    "size": lambda a, axis=None: a.size if axis is None else a.shape[axis],
    "repeat": lambda a, repeats, axis=None: _repeated(a, repeats, axis),
    "result_type": lambda *args: np.result_type(*(a.dtype if isinstance(a, Traced) else a for a in args)),
    "copyto": lambda dst, src, casting="same_kind", where=True: dst.assign(
        src if where is True else _where(where, src, dst)
    ),
}
"""numpy's functions of arrays."""


def _split(a: Traced, sections: Any, axis: int) -> list[Traced]:
    extent = a.shape[axis]
    if isinstance(sections, int):
        if extent % sections:
            raise NotLowered("np.split into unequal parts is not lowered", _line())
        edges = list(range(0, extent + 1, extent // sections))
    else:
        edges = [0, *sections, extent]
    lead = (slice(None),) * (axis % a.ndim)
    return [a[(*lead, slice(start, end))] for start, end in itertools.pairwise(edges)]


def _repeated(a: Traced, repeats: Any, axis: int | None) -> Traced:
    if axis is None or not isinstance(repeats, int):
        raise NotLowered("np.repeat without an axis, or by an array, is not lowered", _line())
    at = axis % a.ndim
    shape = (*a.shape[: at + 1], repeats, *a.shape[at + 1 :])
    spread = Traced(a.view.mapped(lambda array: np.broadcast_to(np.expand_dims(array, at + 1), shape)))
    return spread.reshape((*a.shape[:at], a.shape[at] * repeats, *a.shape[at + 1 :]))


def _arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, **_: object) -> Any:
    first, end = (0, start) if stop is None else (start, stop)
    if not all(isinstance(one, int | np.integer | Traced) for one in (first, end, step)):
        return np.arange(*(float(one) for one in (first, end, step)), dtype=dtype)
    first, end, step = int(first), int(end), int(step)
    found = Traced(counted((max(0, -(-(end - first) // step)),), (step,), first))
    return found if dtype is None else found.astype(dtype)


def _vectorized(function: Any, *args: Any, **further: Any) -> Any:
    """Return math.erf and its like for arrays."""
    name = UFUNCS.get(getattr(function, "__name__", ""))
    plain = np.vectorize(function, *args, **further)

    def applied(*args: Any) -> Any:
        if not any(isinstance(one, Traced) for one in args):
            return plain(*args)
        if name is None or getattr(function, "__module__", "") != "math":
            raise NotLowered("np.vectorize calls a Python function for each element: it is not lowered", _line())
        return Traced(_applied(name, args, _line()))

    return applied


def _given(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a numpy constructor that leaves a traced array as it is, and stacks a list of traced arrays."""

    def made(value: Any, *args: Any, **further: Any) -> Any:
        if isinstance(value, list | tuple) and any(isinstance(one, Traced) for one in value):
            value = _stacked(value)
        if isinstance(value, Traced):
            dtype = args[0] if args else further.get("dtype")
            return value if dtype is None else value.astype(dtype)
        return original(value, *args, **further)

    return made


def _placing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a numpy constructor of constants whose array is traced, so that a traced array can index it."""
    return lambda *args, **further: Traced(placed(original(*args, **further), "float32", _line()))


def _for_references(made: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for references; numpy's own modules, which look up the same name, get the original."""

    def called(*args: Any, **further: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        return (original if caller in ("numpy", "acceld", "scipy") else made)(*args, **further)

    return called


@contextlib.contextmanager
def _traced_constructors() -> Iterator[None]:
    """Let numpy's constructors make traced arrays. For a process that only traces: numpy is changed for all of it."""
    made: dict[str, Callable[..., Any]] = {
        "empty": lambda shape, dtype=float, **_: _new(shape, dtype, None),
        "zeros": lambda shape, dtype=float, **_: _new(shape, dtype, 0.0),
        "ones": lambda shape, dtype=float, **_: _new(shape, dtype, 1.0),
        "full": lambda shape, value, dtype=float, **_: _new(shape, dtype, finite(float(value))),
        "arange": _arange,
        "vectorize": _vectorized,
        **{name: _placing(getattr(np, name)) for name in ("eye", "identity", "tri", "linspace")},
        **{name: _given(getattr(np, name)) for name in ("array", "asarray", "ascontiguousarray")},
    }
    held = {name: getattr(np, name) for name in made}
    try:
        for name, function in made.items():
            setattr(np, name, _for_references(function, held[name]))
        yield
    finally:
        for name, original in held.items():
            setattr(np, name, original)


def traced(forward: Callable[..., Any], source: Path, arguments: Sequence[tuple[str, Any]]) -> Graph:
    """Return the graph of ``forward``, defined in the file ``source``.

    ``arguments`` are names with (shape, dtype) for an array or a number. NotLowered for what has no lowering.
    """
    global _SOURCE
    _SOURCE = forward.__code__.co_filename
    inputs = [entry(name, *value) for name, value in arguments if isinstance(value, tuple)]
    by_name = {node.name: node for node in inputs}
    called = [Traced(whole(by_name[name])) if isinstance(value, tuple) else value for name, value in arguments]
    with _traced_constructors():
        result = forward(*called)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    views = []
    for output in outputs:
        if not isinstance(output, Traced):
            raise NotLowered("an output that does not depend on the inputs is not lowered")
        views.append(output.view)
    lines = tuple(source.read_text().splitlines())
    return Graph(tuple(inputs), tuple(views), lines)
