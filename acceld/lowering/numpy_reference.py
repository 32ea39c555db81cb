"""Trace a numpy reference: call it with arrays that record what is done with them."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acceld.lowering.graph import (
    Graph,
    Node,
    NotLowered,
    Operand,
    View,
    contraction,
    dense,
    elementwise,
    entry,
    fill,
    product,
    reduced,
    stored,
    whole,
)

UFUNCS = {
    "absolute": "abs",
    "add": "add",
    "cos": "cos",
    "divide": "div",
    "equal": "eq",
    "exp": "exp",
    "fabs": "abs",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
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
COMPARISONS = frozenset({"eq", "ge", "gt", "le", "lt", "ne", "not"})


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
        return _dtype(self.view.dtype)

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

    def __bool__(self) -> bool:
        raise NotLowered("a Python branch on the values of an array is not lowered; use np.where", _line())

    def __float__(self) -> float:
        raise NotLowered("a Python number made of the values of an array is not lowered", _line())

    __int__ = __index__ = __float__

    def __array__(self, *_: object, **__: object) -> Any:
        raise NotLowered("a numpy function that reads the values of an array is not lowered", _line())

    def _part(self, of: Callable[[Any], Any]) -> Traced:
        return Traced(None, self, of)

    def __getitem__(self, key: Any) -> Traced:
        for one in key if isinstance(key, tuple) else (key,):
            if isinstance(one, Traced | np.ndarray | list):
                raise NotLowered("indexing by an array is not lowered", _line())
        return self._part(lambda array: array[key if isinstance(key, tuple) and Ellipsis in key else _kept(array, key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self[key].assign(value)

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
            held = whole(stored(None, held, whole(start), line))
        target = View(held.node, held.shape, dense(held.shape))
        for of in reversed(fakes):
            assert of is not None
            target = target.mapped(of)
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
        if ufunc.__name__ == "matmul" and method == "__call__":
            result = Traced(product(_array(args[0], line), _array(args[1], line), line=line))
        elif method == "reduce" and ufunc.__name__ in FOLDS:
            axis = args[1] if len(args) > 1 else further.get("axis", 0)
            result = _folded(FOLDS[ufunc.__name__], args[0], axis, bool(further.get("keepdims", False)))
        elif method == "__call__" and ufunc.__name__ in UFUNCS:
            result = Traced(whole(_applied(UFUNCS[ufunc.__name__], args, line)))
        elif method == "__call__" and ufunc.__name__ in _COMPOSED:
            result = _COMPOSED[ufunc.__name__](*args)
        else:
            name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            raise NotLowered(f"np.{name} is not lowered", line)
        if out is None:
            return result
        target = out[0] if isinstance(out, tuple) else out
        target.assign(result)
        return target

    def __array_function__(self, function: Any, types: Any, args: Any, further: Any) -> Any:
        made = FUNCTIONS.get(function.__name__)
        if made is None:
            raise NotLowered(f"np.{function.__name__} is not lowered", _line())
        try:
            return made(*args, **further)
        except TypeError as error:
            raise NotLowered(
                f"np.{function.__name__} with these arguments is not lowered ({error})", _line()
            ) from error

    def astype(self, dtype: Any, **_: object) -> Traced:
        """Return the values in another type. float64 is float32 here: the oracle has the wide type, a kernel has not."""
        name = _name(np.dtype(dtype))
        return self if name == self.view.dtype else Traced(whole(elementwise("copy", [self.view], name, _line())))

    def copy(self, *_: object) -> Traced:
        """Return the values as they are now."""
        return Traced(self.view)

    def _fold(self, name: str, axis: Any, keepdims: bool, dtype: Any, out: Any) -> Traced:
        if dtype is not None and _name(np.dtype(dtype)) != self.view.dtype:
            return self.astype(dtype)._fold(name, axis, keepdims, None, out)
        found = _folded(name, self, axis, keepdims)
        if out is not None:
            out.assign(found)
            return out  # type: ignore[no-any-return]
        return found

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
        found: Traced = total * (total.size / self.size)
        if out is not None:
            out.assign(found)
        return found

    def var(
        self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False
    ) -> Traced:
        """Return the variance over axes, as the mean of squared differences."""
        difference = self - self.mean(axis, dtype, None, True)
        total = np.square(difference).sum(axis, None, None, keepdims)
        found: Traced = total * (1.0 / (self.size / total.size - ddof))
        if out is not None:
            out.assign(found)
        return found

    def std(
        self, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False
    ) -> Traced:
        """Return the standard deviation over axes."""
        return np.sqrt(self.var(axis, dtype, out, ddof, keepdims))  # type: ignore[return-value]

    def reshape(self, *shape: Any, **_: object) -> Traced:
        """Return the elements in another shape."""
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

    def ravel(self, *_: object) -> Traced:
        """Return the elements as one axis."""
        return self.reshape(-1)

    flatten = ravel

    def squeeze(self, axis: Any = None) -> Traced:
        """Return the array without axes of one element."""
        return self._part(lambda array: np.squeeze(array, axis))

    def clip(self, low: Any = None, high: Any = None, **_: object) -> Traced:
        """Return the values held between two bounds."""
        found = self if low is None else np.maximum(self, low)
        return found if high is None else np.minimum(found, high)

    def dot(self, other: Any) -> Traced:
        """Return the product."""
        return self @ other  # type: ignore[no-any-return]


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
    return {"float64": "float32", "int64": "int32", "bool": "float32"}.get(dtype.name, dtype.name)


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
        return value.view
    if isinstance(value, bool | int | float | np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return float(value)
    if isinstance(value, np.ndarray) and value.size and bool((value == value.flat[0]).all()):
        return whole(fill(float(value.flat[0]), value.shape, _name(value.dtype), _line()))
    raise NotLowered(f"an operand of type {type(value).__name__} with several values is not lowered", _line())


def _array(value: Any, line: int) -> View:
    found = operand(value)
    if not isinstance(found, View):
        raise NotLowered("a product of a number; multiply instead", line)
    return found


def _applied(name: str, args: Sequence[Any], line: int) -> Node:
    return elementwise(name, [operand(arg) for arg in args], line=line)


def _folded(name: str, value: Any, axis: Any, keepdims: bool) -> Traced:
    view = _array(value, _line())
    axes = range(len(view.shape)) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    return Traced(reduced(name, view, axes, keepdims, _line()))


def forwarded(view: View) -> View:
    """Return a read of a buffer as a read of the value that was stored there, if one store holds all of it."""
    while view.node.kind == "buffer" and view.node.target is not None:
        target, value = view.node.target, view.node.args[-1]
        assert isinstance(value, View)
        read, held = _box(view), _box(target)
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
        places = _steps(view, view.node.shape)
        if places is None:
            return view
        strides = tuple(sum(c * s for c, s in zip(place, value.strides, strict=True)) for place in places)
        offset = value.offset + sum(c * s for c, s in zip(start, value.strides, strict=True))
        view = View(value.node, view.shape, strides, offset)
    return view


def _coordinates(offset: int, shape: Sequence[int]) -> tuple[int, ...]:
    found = []
    for stride in dense(shape):
        found.append(offset // stride)
        offset %= stride
    return tuple(found)


def _steps(view: View, shape: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Return each axis's step as steps along the axes of the node, or None if an axis runs over an edge."""
    strides = dense(shape)
    start = _coordinates(view.offset, shape)
    found = []
    reach = list(start)
    for extent, stride in zip(view.shape, view.strides, strict=True):
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


def _box(view: View) -> list[tuple[int, int]] | None:
    """Return the range of each axis of the node that a view reads (its bounding box), or None if it is no box."""
    steps = _steps(view, view.node.shape)
    if steps is None:
        return None
    start = _coordinates(view.offset, view.node.shape)
    ends = list(start)
    for step, extent in zip(steps, view.shape, strict=True):
        for axis, by in enumerate(step):
            ends[axis] += by * (extent - 1)
    return [(a, b + 1) for a, b in zip(start, ends, strict=True)]


def _where(condition: Any, first: Any, second: Any) -> Traced:
    line = _line()
    return Traced(
        whole(elementwise("where", [operand(v) for v in (condition, first, second)], _wider(first, second), line))
    )


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
    """Lower an einsum of two arrays: a dot whose axes are permuted views."""
    line = _line()
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    names = inputs.split(",")
    if len(names) != 2 or "." in subscripts or any(len(set(part)) != len(part) for part in names):
        raise NotLowered(f"np.einsum({subscripts!r}) is not lowered: two arrays, each letter once in each", line)
    if not arrow:
        letters = inputs.replace(",", "")
        output = "".join(sorted(one for one in set(letters) if letters.count(one) == 1))
    left, right = (_array(value, line) for value in operands)
    batch = [one for one in names[0] if one in names[1] and one in output]
    folded = [one for one in names[0] if one in names[1] and one not in output]
    rows = [one for one in names[0] if one not in names[1]]
    columns = [one for one in names[1] if one not in names[0]]
    if not folded or not set(rows + columns) <= set(output):
        raise NotLowered(f"np.einsum({subscripts!r}) is not lowered: one sum over axes that both arrays have", line)

    def turned(view: View, letters: str, order: list[str]) -> View:
        return view.mapped(lambda array: array.transpose([letters.index(one) for one in order]))

    node = contraction(
        turned(left, names[0], batch + rows + folded),
        turned(right, names[1], batch + columns + folded),
        len(batch),
        len(folded),
        line=line,
    )
    order = batch + rows + columns
    return Traced(whole(node).mapped(lambda array: array.transpose([order.index(one) for one in output])))


_COMPOSED: dict[str, Callable[..., Any]] = {
    "rint": lambda x: _refused("rint"),
    "log1p": lambda x: np.log(x + 1.0),
    "expm1": lambda x: np.exp(x) - 1.0,
    "exp2": lambda x: np.exp(x * math.log(2.0)),
    "log2": lambda x: np.log(x) * (1.0 / math.log(2.0)),
    "logaddexp": lambda x, y: np.maximum(x, y) + np.log(np.exp(-abs(x - y)) + 1.0),
    "logical_and": lambda x, y: x * y,
    "bitwise_and": lambda x, y: x * y,
    "logical_or": lambda x, y: np.maximum(x, y),
    "bitwise_or": lambda x, y: np.maximum(x, y),
    "invert": lambda x: np.logical_not(x),
}
"""Functions made of others."""


def _refused(name: str) -> Any:
    raise NotLowered(f"np.{name} is not lowered", _line())


def _method(name: str) -> Callable[..., Any]:
    return lambda a, *args, **further: getattr(a, name)(*args, **further)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: _method(name)
        for name in "sum max min prod mean var std reshape transpose swapaxes ravel squeeze clip copy dot".split()
    },
    "amax": _method("max"),
    "amin": _method("min"),
    "transpose": lambda a, axes=None: a.transpose(*(axes or ())),
    "reshape": lambda a, shape=None, newshape=None, **_: a.reshape(shape if shape is not None else newshape),
    "expand_dims": lambda a, axis: a._part(lambda array: np.expand_dims(array, axis)),
    "broadcast_to": lambda a, shape, **_: a._part(lambda array: np.broadcast_to(array, shape)),
    "moveaxis": lambda a, source, destination: a._part(lambda array: np.moveaxis(array, source, destination)),
    "where": _where,
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
    "copyto": lambda dst, src, **_: dst.assign(src),
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


def _given(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a numpy constructor that leaves a traced array as it is."""

    def made(value: Any, *args: Any, **further: Any) -> Any:
        if isinstance(value, Traced):
            dtype = args[0] if args else further.get("dtype")
            return value if dtype is None else value.astype(dtype)
        return original(value, *args, **further)

    return made


@contextlib.contextmanager
def _traced_constructors() -> Iterator[None]:
    """Let numpy's constructors make traced arrays. For a process that only traces: numpy is changed for all of it."""
    names = ("empty", "zeros", "ones", "full", "array", "asarray", "ascontiguousarray")
    held = {name: getattr(np, name) for name in names}
    try:
        made: dict[str, Callable[..., Any]] = {
            "empty": lambda shape, dtype=float, **_: _new(shape, dtype, None),
            "zeros": lambda shape, dtype=float, **_: _new(shape, dtype, 0.0),
            "ones": lambda shape, dtype=float, **_: _new(shape, dtype, 1.0),
            "full": lambda shape, value, dtype=float, **_: _new(shape, dtype, float(value)),
        }
        for name, function in made.items():
            setattr(np, name, function)
        for name in ("array", "asarray", "ascontiguousarray"):
            setattr(np, name, _given(held[name]))
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
