"""Lower numpy's functions of arrays: composed element-wise functions, reductions, sorts, scans and views.

The tracer calls these functions in place of numpy's while a reference runs.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from acceld.lowering import network
from acceld.lowering.arrays import (
    FUNCTIONS,
    METHODS,
    UFUNCS,
    Kind,
    Traced,
    applied,
    array_of,
    by_formula,
    called,
    cast,
    evaluated,
    has_traced,
    held_as,
    kind_named,
    kind_of,
    known,
    line_now,
    lowers,
    operand,
    refused,
    wrapped,
)
from acceld.lowering.bounds import GREATEST, NARROW_INTEGERS, bounds, in_type
from acceld.lowering.constants import LARGEST, counted, finite, placed
from acceld.lowering.graph import INDEX, NEUTRAL, Node, NotLowered, View, elementwise, fill, reduced, scanned, whole
from acceld.lowering.instructions import EIGHT

_TURN_TOP = 6.28125
"""Leading bits of 2 pi. The product of this number and a whole number up to ``_MOST_TURNS`` is exact in float32."""
_MOST_TURNS = 2**15
_TURN_REST = 2.0 * math.pi - _TURN_TOP
_HALF_TURN = 3.1415925
"""The greatest float32 value that is not above pi."""
_EXPONENT_BITS = 7
"""Number of bits of an exponent's magnitude that ``np.ldexp`` uses. An exponent of greater magnitude is clipped to 127.
"""
MOST_SORTED = 512
"""Greatest number of elements along an axis for ``np.argsort``, which compares every two of them if all positions are read."""
MOST_APART, MOST_MEDIAN = 8, 25
"""Greatest number of elements along an axis for which a sort, and a median, uses a separate array for each element of
the axis.
"""
LONGEST_ROW = 4096
"""Greatest number of elements in a row that a network on the chip sorts."""
_WIDENING = ("add", "mul", "sum", "product")
"""Reductions and scans for whose results numpy uses a wider type if the operands are narrow integers."""
_STEPS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


# -- element-wise functions made of simpler ones


UFUNCS.update(
    cosh=lambda x: (np.exp(x) + np.exp(-x)) * 0.5,
    tan=lambda x: np.sin(x) / np.cos(x),
    hypot=lambda x, y: np.sqrt(np.square(x) + np.square(y)),
    heaviside=lambda x, y: np.where(x > 0, 1.0, np.where(x == 0, y, 0.0)),
    isnan=lambda x: np.not_equal(x, x),
    isinf=lambda x: np.abs(x) > GREATEST,
    isfinite=lambda x: np.abs(x) <= GREATEST,
    exp2=lambda x: np.exp(x * math.log(2.0)),
    log2=lambda x: np.log(x) * (1.0 / math.log(2.0)),
    log10=lambda x: np.log(x) * (1.0 / math.log(10.0)),
    cbrt=lambda x: np.sign(x) * np.abs(x) ** (1.0 / 3.0),
    deg2rad=lambda x: x * (math.pi / 180.0),
    radians=lambda x: x * (math.pi / 180.0),
    logaddexp=lambda x, y: np.maximum(x, y) + np.log(np.exp(-abs(x - y)) + 1.0),
    fmax=lambda x, y: _of_numbers(np.maximum, x, y),
    fmin=lambda x, y: _of_numbers(np.minimum, x, y),
    logical_and=lambda x, y: np.minimum(wrapped(cast(x, "b")), wrapped(cast(y, "b"))),
    logical_or=lambda x, y: np.maximum(wrapped(cast(x, "b")), wrapped(cast(y, "b"))),
    logical_xor=lambda x, y: np.not_equal(wrapped(cast(x, "b")), wrapped(cast(y, "b"))),
    bitwise_and=lambda x, y: _bitwise("and", x, y),
    bitwise_or=lambda x, y: _bitwise("or", x, y),
    bitwise_xor=lambda x, y: _bitwise("xor", x, y),
    left_shift=lambda x, y: _bitwise("left_shift", x, y),
    right_shift=lambda x, y: _bitwise("right_shift", x, y),
    invert=lambda x: np.logical_not(x) if kind_of(x) == "b" else _bitwise("xor", x, -1),
    ceil=lambda x: x if kind_of(x) != "f" else -np.floor(-x),
    trunc=lambda x: x if kind_of(x) != "f" else np.sign(x) * np.floor(np.abs(x)),
)


def _of_numbers(chosen: np.ufunc, x: Any, y: Any) -> Any:
    """Return the greater or the smaller of two values, element by element. If one value is NaN, return the other
    value.

    ``chosen`` is ``max`` or ``min``.
    """
    found = chosen(x, y)
    for one, other in ((x, y), (y, x)):
        if kind_of(one) == "f" and isinstance(one, Traced):
            found = np.where(np.isnan(one), other, found)
    return found


def _bitwise(name: str, x: Any, y: Any) -> Any:
    """Return the bitwise operation ``name`` of two integer arrays, as int32.

    Of two boolean arrays, return the logical operation. ``name`` is ``and``, ``or``, ``xor`` or a shift.
    """
    ufunc = getattr(np, name if "shift" in name else f"bitwise_{name}")
    if known(x, y):
        return evaluated(ufunc, ufunc.__name__, (x, y), {})
    if kind_of(x) == kind_of(y) == "b":
        return getattr(np, f"logical_{name}")(x, y)
    operands = [_integers(one) for one in (x, y)]
    if not isinstance(operands[0], View) and "shift" in name:
        refused(f"np.{ufunc.__name__} of a number by an array", "make the number an array by np.full")
    return Traced(whole(elementwise(name, operands, "int32", line_now())), "i")


def _integers(value: Any) -> Any:
    """Return an operand of a bitwise operation: a number, or a view that is converted to int32 if it has another type."""
    found = operand(value)
    if not isinstance(found, View) or found.dtype == "int32":
        return found
    return whole(elementwise("copy", [found], "int32", line_now()))


@lowers("floor", ufunc=True)
def _floor(x: Any) -> Any:
    if x.kind != "f":
        return x
    found = by_formula(np.floor, x)
    return _below(x) if found is None else found


def _below(x: Any) -> Any:
    """Return the greatest whole number that is at most ``x``, element by element.

    The kernel computes the result, even if ``x`` is a constant.
    """
    # An engine's cast to an integer may round up or down, so the result is compared with the value.
    number = whole(elementwise("copy", [operand(x)], "int32", line_now()))
    near = Traced(whole(elementwise("copy", [number], "float32", line_now())))
    return near - (near > x)


_FRACTIONAL = 2.0**22
"""Magnitude up to which adding and subtracting :data:`_WHOLE` rounds a number. Greater float32 numbers have no
fraction, or a fraction of 0.5.
"""
_WHOLE = 1.5 * 2.0**23
"""A number so great that its sum with any smaller number is a whole number in float32, because neighboring float32
values there differ by 1.
"""


def _nearest(x: Any) -> Any:
    """Return float32 numbers rounded to whole numbers, halves to even ones. Magnitudes are at most ``_FRACTIONAL``."""
    return (x + _WHOLE) - _WHOLE


FUNCTIONS["fix"] = lambda x: np.trunc(x)


@lowers("sin", ufunc=True)
def _sine(x: Any) -> Any:
    return _sine_of_sum(x, 0.0)


@lowers("cos", ufunc=True)
def _cosine(x: Any) -> Any:
    return _sine_of_sum(x, math.pi / 2)


def _sine_of_sum(x: Any, more: float) -> Any:
    """Return the sine of ``x + more``, in radians. ``more`` is 0 for a sine, and pi / 2 for a cosine of ``x``.

    Whole turns are subtracted first, because the scalar engine takes angles from -pi to pi only. Raise NotLowered if
    ``x`` is a constant of more than ``_MOST_TURNS`` turns.
    """
    held = x.known()
    if held is not None and held.size == 1:
        return evaluated(lambda one: np.sin(one + more), "sin", (x,), {})
    if held is not None and held.size and np.abs(held + more).max() <= math.pi:
        return Traced(applied("sin", [x + more if more else x]))
    if held is not None and held.size and np.abs(held).max() > _MOST_TURNS * _TURN_TOP:
        refused(
            f"a sine or cosine of {np.abs(held).max():.3g}, which is more than {_MOST_TURNS} turns,",
            "subtract whole turns first",
        )
    wide = x.astype(np.float32) if x.dtype != np.float32 else x
    turns = _nearest(wide * (0.5 / math.pi) + more * (0.5 / math.pi))
    rest = wide - turns * _TURN_TOP - turns * _TURN_REST
    found = Traced(applied("sin", [np.clip(rest + more if more else rest, -_HALF_TURN, _HALF_TURN)]))
    return found.astype(x.dtype) if x.kind == "f" and x.dtype != np.float32 else found


@lowers("arctan", ufunc=True)
def _arc_tangent(x: Any) -> Any:
    # The scalar engine takes arctangents of numbers up to pi / 2. For a greater x, arctan(x) = pi / 2 - arctan(1 / x).
    x = x.astype(np.float32) if x.kind == "b" else x
    held = x.known()
    if held is not None and held.size == 1:
        return evaluated(np.arctan, "arctan", (x,), {})
    if held is not None and held.size and np.abs(held).max() <= math.pi / 2:
        return Traced(applied("arctan", [x]))
    size = np.abs(x)
    near = Traced(applied("arctan", [np.minimum(size, 1.0 / np.maximum(size, 1.0))]))
    return np.sign(x) * np.where(size > 1.0, math.pi / 2 - near, near)


@lowers("rint", ufunc=True)
def _rint(x: Any) -> Any:
    if kind_of(x) != "f":
        return x
    wide = wrapped(x).astype(np.float32)
    low, high = bounds(wide.view)
    if -_FRACTIONAL <= low and high <= _FRACTIONAL:
        return _nearest(wide).astype(x.dtype)
    inner = np.clip(wide, -_FRACTIONAL, _FRACTIONAL)
    return (_nearest(inner) + (wide - inner)).astype(x.dtype)


@lowers("round", "around")
def _rounded(a: Any, decimals: int = 0) -> Any:
    return np.rint(a) if not decimals else np.rint(a * 10.0**decimals) * 10.0**-decimals


def _quotient(x: Any, y: Any, name: str) -> Any:
    """Return ``x // y``. Raise NotLowered for floats unless ``y`` is a positive number.

    ``name`` is the numpy function that the error names.
    """
    positive = not isinstance(y, Traced) and isinstance(y, int | float | np.number) and y > 0
    if not positive:
        if "f" in (kind_of(x), kind_of(y)):
            return refused(
                f"np.{name} of floats by anything but a positive number", "divide by / and round by np.floor"
            )
        return _quotient_of_integers(x, y)
    found = _below(x * (1.0 / float(y)))
    if math.frexp(float(y))[0] == 0.5:  # for a power of two, the product with the reciprocal is exact
        return found
    rest = x - found * float(y)
    return found + (rest >= y) - (rest < 0)


def _quotient_of_integers(x: Any, y: Any) -> Any:
    """Return ``x // y`` for integers. Where ``y`` is 0 the result is 0, as in numpy."""
    sign, size = np.sign(y), np.abs(y)
    above = x * sign
    found = _below(wrapped(above).astype(np.float32) / wrapped(np.maximum(size, 1)).astype(np.float32))
    rest = above - found * size
    return np.where(np.equal(size, 0), 0, found + (rest >= size) - (rest < 0))


@lowers("floor_divide", ufunc=True)
def _floor_divided(x: Any, y: Any) -> Any:
    found = by_formula(np.floor_divide, x, y)
    return _whole_number(_quotient(x, y, "floor_divide"), x, y) if found is None else found


@lowers("remainder", "mod", ufunc=True)
def _remainder(x: Any, y: Any) -> Any:
    found = by_formula(np.remainder, x, y)
    if found is not None:
        return found
    rest = _whole_number(x - _quotient(x, y, "remainder") * y, x, y)
    # numpy's remainder by 0 is 0
    return np.where(np.equal(y, 0), 0, rest) if isinstance(y, Traced) and y.kind != "f" else rest


def _whole_number(found: Any, x: Any, y: Any) -> Any:
    """Return ``found``, a quotient or remainder of ``x`` and ``y``, marked as an integer array if both operands are
    integers.
    """
    return Traced(wrapped(found).view, "i") if "f" not in (kind_of(x), kind_of(y)) else found


@lowers("ldexp", ufunc=True)
def _with_exponent(x1: Any, x2: Any) -> Any:
    held = x2.known() if isinstance(x2, Traced) else np.asarray(x2)
    if held is not None and not held.ndim:
        return x1 * np.ldexp(1.0, int(held))
    # The result is a product of exact powers of two, one for each bit of the exponent.
    size = np.minimum(np.abs(x2), 2**_EXPONENT_BITS - 1)
    power = x1
    for bit in range(_EXPONENT_BITS):
        factor = np.where(np.less(x2, 0), 2.0 ** -(2**bit), 2.0 ** (2**bit))
        power = power * np.where(((size >> bit) & 1) > 0, factor, 1.0)
    return power


@lowers("bitwise_count", ufunc=True)
def _ones_of(x: Any) -> Any:
    if (found := by_formula(np.bitwise_count, x)) is not None:
        return found
    bits = x.dtype.itemsize * 8 if x.dtype.kind == "u" else min(31, x.dtype.itemsize * 8)
    size = x if x.dtype.kind == "u" else np.abs(x)
    return sum(((size >> bit) & 1 for bit in range(1, bits)), start=size & 1).astype(np.uint8)


def _by_segments(name: str, array: Any, indices: Any, axis: int) -> Any:
    """Return reductions of parts of an array that begin at ``indices``, as ``np.add.reduceat`` does.

    ``name`` is the ufunc, such as ``add``. Raise NotLowered if the indices depend on an input.
    """
    given = indices.known() if isinstance(indices, Traced) else np.asarray(indices)
    if given is None:
        return refused(f"np.{name}.reduceat at positions that depend on an input", "sum what np.where chooses")
    a = wrapped(array)
    at, starts = axis % a.ndim, [int(one) for one in given]
    ends = [*starts[1:], a.shape[at]]
    lead = (slice(None),) * at
    parts = [
        getattr(np, name).reduce(a[(*lead, slice(first, end))], axis=at) if first < end else a[(*lead, first)]
        for first, end in zip(starts, ends, strict=True)
    ]
    return np.stack(parts, axis=at)


for _name in ("add", "multiply", "maximum", "minimum"):
    FUNCTIONS[f"{_name}.reduceat"] = lambda array, indices, axis=0, dtype=None, _name=_name: _by_segments(
        _name, array if dtype is None else wrapped(array).astype(dtype), indices, axis
    )


@lowers("nan_to_num")
def _numbers(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Any:
    if x.kind != "f":
        return Traced(x.view, x.kind)
    found = np.where(x > GREATEST, GREATEST if posinf is None else posinf, np.where(np.isnan(x), nan, x))
    found = np.where(x < -GREATEST, -GREATEST if neginf is None else neginf, found)
    if not copy:
        x.assign(found)
    return found


@lowers("where")
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None and isinstance(condition, Traced) and condition.ndim == 1:
        return called("nonzero", condition)
    if x is None or y is None:
        refused("np.where(condition), whose shape depends on values,", "use np.where(condition, a, b)")
    given = operand(condition)
    kinds = [_weak(one) for one in (x, y)]
    chosen = kind_named(np.result_type(*kinds).kind)
    if not isinstance(given, View):
        shape = np.broadcast_shapes(np.shape(x), np.shape(y))
        one = wrapped(x if given else y)
        return Traced(one.view.broadcast(shape), chosen)
    dtypes = {value.view.dtype for value in (x, y) if isinstance(value, Traced)}
    dtype = dtypes.pop() if len(dtypes) == 1 else "float32"
    if chosen == "f" and dtype not in ("float32", "bfloat16", "float16"):
        dtype = "float32"
    return Traced(whole(elementwise("where", [given, operand(x), operand(y)], dtype, line_now())), chosen)


def _weak(value: Any) -> Any:
    """Return what stands for a value in ``np.result_type``: a Python number itself, else bool, int64 or float64.

    numpy lets a Python number take the dtype of the arrays beside it.
    """
    if type(value) in (int, float):
        return value
    return {"b": np.dtype(np.bool_), "i": np.dtype(np.int64), "f": np.dtype(np.float64)}[kind_of(value)]


@lowers("clip")
def _clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    found = wrapped(a)
    found = Traced(found.view, found.kind) if low is None else np.maximum(found, low)
    return found if high is None else np.minimum(found, high)


@lowers("astype")
def _astype(
    a: Traced, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
) -> Traced:
    """Return an array cast to a dtype. float64 becomes float32, because a kernel has no type of 64 bits."""
    wanted = np.dtype(dtype)
    kind = kind_named(wanted.kind)
    if wanted.kind == "c":
        refused("a complex number", "compute its real and its imaginary part as two arrays")
    found = wrapped(cast(a, kind))
    name = held_as(wanted)
    wide = found.view.dtype not in NARROW_INTEGERS and wanted.itemsize >= 4
    if found.view.node is INDEX or kind == "b" or (kind == "i" and a.kind != "f" and wide):
        name = found.view.dtype  # the graph's present dtype can already represent these integers or booleans
    elif kind == a.kind == "i" and name in NARROW_INTEGERS:
        found = Traced(in_type(found.view, name, line_now()), kind)
    view = found.view if name == found.view.dtype else whole(elementwise("copy", [operand(found)], name, line_now()))
    return a if not copy and kind == a.kind and view == a.view else Traced(view, kind)


# -- reductions and scans


def _folded(name: str, a: Any, axis: Any, keepdims: bool, where: Any = True, initial: Any = None) -> Any:
    """Return the reduction of an array over the given axes: ``add``, ``mul``, ``max`` or ``min``.

    ``keepdims``, ``where`` and ``initial`` mean the same as in numpy. Raise AxisError for an axis that the array lacks,
    and NotLowered for a ``where`` without a value to start from.
    """
    given: Any = wrapped(a)
    if where is not True:
        neutral = NEUTRAL.get(name) if initial is None else initial
        given = np.where(
            where,
            given,
            refused("a reduction with where= and without initial=", "give initial=") if neutral is None else neutral,
        )
    view = array_of(given)
    if view.dtype == "bool":
        view = whole(elementwise("copy", [view], "float32", line_now()))
    if not view.shape and axis in (0, -1):
        axis = ()  # numpy accepts axis 0 or -1 for an array without axes, and returns its element
    axes = range(len(view.shape)) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    for one in axes:
        if not -len(view.shape) <= one < len(view.shape):
            raise np.exceptions.AxisError(one, len(view.shape))
    kind: Kind = "i" if name in NEUTRAL and given.kind == "b" else given.kind
    if not tuple(axes):
        return Traced(view, kind)
    found = Traced(reduced(name, view, axes, bool(keepdims), line_now(), _summed_in(name, view)), kind)
    return found if initial is None else Traced(_STEPS[name](found, initial).view, kind)


def _summed_in(name: str, view: View) -> str:
    """Return the dtype in which the reduction or scan ``name`` of a view is computed.

    Sums and products of narrow integers use int32 or uint32. Everything else uses the view's dtype.
    """
    wide = "uint32" if view.dtype.startswith("u") else "int32"
    return wide if name in _WIDENING and view.dtype in NARROW_INTEGERS else view.dtype


for _name, _fold in (("sum", "add"), ("prod", "mul")):
    FUNCTIONS[_name] = lambda a, axis=None, dtype=None, keepdims=False, initial=None, where=True, _fold=_fold: _folded(
        _fold, a if dtype is None else wrapped(a).astype(dtype), axis, keepdims, where, initial
    )
for _name in ("max", "min"):
    FUNCTIONS[_name] = FUNCTIONS[f"a{_name}"] = (
        lambda a, axis=None, keepdims=False, initial=None, where=True, _fold=_name: _folded(
            _fold, a, axis, keepdims, where, initial
        )
    )
for _name, _fold in (("any", "max"), ("all", "min")):
    FUNCTIONS[_name] = lambda a, axis=None, keepdims=False, where=True, _fold=_fold: _folded(
        _fold, cast(a, "b"), axis, keepdims, where, None if where is True else _fold == "min"
    )


@lowers("logaddexp.reduce")
def _log_of_sum(a: Any, axis: Any = 0, keepdims: bool = False) -> Any:
    greatest = np.max(a, axis=axis, keepdims=True)
    found = greatest + np.log(np.sum(np.exp(a - greatest), axis=axis, keepdims=True))
    return found if keepdims else np.squeeze(found, axis if axis is None or np.ndim(axis) else (axis,))


@lowers("count_nonzero")
def _count(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _folded("add", cast(a, "b"), axis, keepdims)


@lowers("mean")
def _mean(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, *, where: Any = True) -> Any:
    total = np.sum(a, axis=axis, dtype=dtype, keepdims=keepdims, where=where)
    if where is True:
        return total * (total.size / a.size)
    return total / np.sum(np.broadcast_to(where, a.shape), axis=axis, keepdims=keepdims)


@lowers("var")
def _var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    where: Any = True,
    correction: float | None = None,
) -> Any:
    difference = a - np.mean(a, axis=axis, dtype=dtype, keepdims=True, where=where)
    total = np.sum(np.square(difference), axis=axis, keepdims=keepdims, where=where)
    less = ddof if correction is None else correction
    if where is True:
        return total * (1.0 / (a.size / total.size - less))
    return total / (np.sum(np.broadcast_to(where, a.shape), axis=axis, keepdims=keepdims) - less)


FUNCTIONS["std"] = functools.wraps(_var)(lambda *args, **named: np.sqrt(_var(*args, **named)))


@lowers("ptp")
def _spread(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)


@lowers("average")
def _averaged(a: Any, axis: Any = None, weights: Any = None, *, keepdims: bool = False) -> Any:
    if weights is None:
        return np.mean(a, axis=axis, keepdims=keepdims)
    spread = weights
    if np.ndim(weights) != a.ndim:
        spread = np.reshape(weights, [n if at == axis % a.ndim else 1 for at, n in enumerate(a.shape)])
    total = np.sum(np.broadcast_to(spread, a.shape), axis=axis, keepdims=keepdims)
    return np.sum(a * spread, axis=axis, keepdims=keepdims) / total


@lowers("norm")
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    vectors = np.ndim(x) == 1 if axis is None else isinstance(axis, int)
    if ord in (None, "fro") or (ord == 2 and vectors):
        return np.sqrt(np.sum(np.square(x), axis=axis, keepdims=keepdims))
    if ord in (1, math.inf) and vectors:
        return (np.sum if ord == 1 else np.max)(np.abs(x), axis=axis, keepdims=keepdims)
    if vectors and isinstance(ord, int | float) and 0 < ord < math.inf:
        return np.sum(np.abs(x) ** ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)
    return refused(f"np.linalg.norm(ord={ord!r})", "write the norm with np.abs, sums and maxima")


def _extreme(a: Any, name: str, axis: Any, keepdims: bool) -> Any:
    """Return the position of the first maximum or minimum along an axis, as int32. ``name`` is ``max`` or ``min``.

    An ``axis`` of None stands for the flattened array.
    """
    shape = a.shape
    if axis is None or not shape:
        a, axis = a.reshape(-1), 0
    at = axis % a.ndim
    here = a == _folded(name, a, at, True)
    found = _folded("min", np.where(here, positions(a.shape, at), float(a.shape[at])), at, keepdims)
    made = Traced(whole(elementwise("copy", [found.view], "int32", line_now())))
    return made.reshape((1,) * len(shape)) if keepdims and len(shape) != a.ndim else made


for _name in ("max", "min"):
    FUNCTIONS[f"arg{_name}"] = lambda a, axis=None, *, keepdims=False, _fold=_name: _extreme(a, _fold, axis, keepdims)


def _by_ranks(x: Any) -> Any:
    """Return the positions that sort an array along the last axis, found by a comparison of every two elements.

    The rank of an element is the number of elements that come before it in sorted order. Equal elements keep their order.
    """
    extent = x.shape[-1]
    one, other = x[..., :, None], x[..., None, :]
    earlier = np.where(Traced(counted((extent, extent), (-1, 1), 0)) < 0, 1.0, 0.0)
    ranks = (np.where(np.equal(other, one), 1.0, 0.0) * earlier + np.where(other < one, 1.0, 0.0)).sum(axis=-1)
    wide = (*x.shape, extent)
    hits = np.equal(ranks[..., None, :], positions(wide, x.ndim - 1))
    return np.where(hits, positions(wide, x.ndim), 0.0).max(axis=-1)


@lowers("sort")
def _sorted(a: Any, axis: Any = -1, kind: Any = None, *, stable: bool | None = None) -> Any:
    if axis is None:
        a, axis = wrapped(a).reshape(-1), 0
    at = axis % a.ndim
    x = wrapped(np.moveaxis(a, at, -1))
    return Traced(wrapped(np.moveaxis(_in_order(x), -1, at)).view, x.kind)


def _in_order(x: Any) -> Any:
    """Return an array that is sorted along the last axis, smallest first."""
    extent = x.shape[-1]
    if extent <= MOST_APART:
        return np.stack(_apart_in_order(x), axis=-1)
    given = array_of(x)
    if given.dtype == "bool":
        given = whole(elementwise("copy", [given], "float32", line_now()))
    return Traced(whole(Node("scan", "sorted", (given,), given.shape, given.dtype, line_now())), x.kind)


def _apart_in_order(x: Any) -> list[Any]:
    """Return an array sorted along the last axis, as a list of arrays: the smallest elements first."""
    found = [x[..., at] for at in range(x.shape[-1])]
    for distance, places in network.stages(len(found)):
        for low in places:
            one, other = found[low], found[low + distance]
            found[low], found[low + distance] = np.minimum(one, other), np.maximum(one, other)
    return found


def _sort_in_place(
    a: Traced, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None
) -> None:
    a.assign(_sorted(a, axis))


METHODS["sort"] = _sort_in_place


@lowers("argsort")
def _sorting(a: Any, axis: Any = -1, kind: Any = None, *, stable: bool | None = None) -> Any:
    if kind not in ("stable", "mergesort") and not stable and kind_of(a) != "f":
        refused(
            "np.argsort of whole numbers without kind='stable', whose order of equal elements numpy does not define,",
            "add kind='stable'",
        )
    return _order(a, axis)


def _order(a: Any, axis: Any) -> Any:
    """Return the positions that sort an array along an axis, smallest first. Equal elements keep their order."""
    if axis is None:
        a, axis = wrapped(a).reshape(-1), 0
    at = axis % a.ndim
    x = wrapped(np.moveaxis(a, at, -1))
    found: Any = _by_ranks(x) if x.shape[-1] <= MOST_SORTED else None
    if x.shape[-1] >= EIGHT:
        rows = array_of(x.astype(np.float32))
        every = () if found is None else (wrapped(found).view,)
        found = Traced(whole(Node("scan", "order", (rows, *every), rows.shape, "float32", line_now())), "i")
    return Traced(wrapped(np.moveaxis(found, -1, at)).view, "i")


class Parted:
    """The result of ``np.partition`` in a traced reference. numpy defines only its elements at ``kth``.

    Other elements can not be read, because their order differs between implementations.
    """

    def __init__(self, ordered: Any, places: frozenset[int], axis: int, line: int) -> None:
        self._ordered, self._places, self._axis, self._line = ordered, places, axis, line

    def __getitem__(self, key: Any) -> Any:
        shape = (-1, *(1,) * (self._ordered.ndim - 1 - self._axis))
        read = np.broadcast_to(np.arange(self._ordered.shape[self._axis]).reshape(shape), self._ordered.shape)
        if has_traced([key]) or not self._places.issuperset(read[key].reshape(-1).tolist()):
            raise self.refusal()
        return self._ordered[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refusal()

    def refusal(self) -> NotLowered:
        """Return the error to raise if a reference uses elements whose order numpy does not define."""
        return NotLowered(
            "np.partition is not lowered but for its elements at kth, as in np.partition(x, k)[..., k]; use np.sort for the others",
            self._line,
        )

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise self.refusal()

    __len__ = __iter__ = __bool__ = __array__ = __neg__ = __array_ufunc__ = __array_function__ = _refused


@lowers("partition")
def _parted(a: Any, kth: Any, axis: Any = -1, kind: Any = None) -> Any:
    if axis is None:
        a, axis = wrapped(a).reshape(-1), 0
    at = axis % a.ndim
    places = frozenset(int(one) % a.shape[at] for one in np.atleast_1d(np.asarray(kth)).tolist())
    return Parted(np.sort(a, axis=at), places, at, line_now())


@lowers("argpartition")
def _parting(a: Any, kth: Any, axis: Any = -1, kind: Any = None) -> Any:
    return _order(a, axis)


def rows_of(a: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """Return an array with its elements along the given axes as rows along the last axis, and the numbers of these axes.

    An ``axis`` of None stands for all axes.
    """
    given = range(a.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    at = tuple(one % a.ndim for one in given)
    x = wrapped(np.moveaxis(a, at, range(-len(at), 0)))
    return x if len(at) == 1 else x.reshape((*x.shape[: x.ndim - len(at)], -1)), at


@lowers("median")
def _median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    x, at = rows_of(a, axis)
    extent = x.shape[-1]
    ranks = _apart_in_order(x) if extent <= MOST_MEDIAN else np.moveaxis(_in_order(x), -1, 0)
    low, high = ranks[(extent - 1) // 2], ranks[extent // 2]
    found = (low + high) * 0.5 if extent % 2 == 0 else low * 1.0
    return np.expand_dims(found, at) if keepdims else found


def _cumulated(name: str, a: Any, axis: Any, dtype: Any = None) -> Any:
    """Return a scan along an axis, such as a cumulative sum. If ``axis`` is None, the flattened array is scanned.

    ``name`` is ``sum``, ``product``, ``greatest`` or ``least``.
    """
    given = wrapped(a) if dtype is None else wrapped(a).astype(dtype)
    if axis is None or not given.shape:
        given, axis = given.reshape(-1), 0
    kind = "i" if given.kind == "b" and name in ("sum", "product") else given.kind
    given = Traced(array_of(given))
    if given.view.dtype == "bool":
        given = given.astype(np.float32)
    turned = given.part(lambda array: np.moveaxis(array, axis, -1)).view
    dtype = _summed_in(name, turned)
    if turned.shape[-1] == 1:
        return given.astype(dtype) if dtype != turned.dtype else Traced(given.view, kind)
    if name in ("greatest", "least"):
        found = scanned(name, turned, turned, dtype, line_now())
    else:
        unit = whole(fill(1.0 if name == "sum" else 0.0, turned.shape, turned.dtype, line_now()))
        decay, drive = (unit, turned) if name == "sum" else (turned, unit)
        found = scanned(name, decay, drive, dtype, line_now())
    return Traced(found, kind).part(lambda array: np.moveaxis(array, -1, axis))


for _name, _scan in (("cumsum", "sum"), ("cumprod", "product")):
    FUNCTIONS[_name] = lambda a, axis=None, dtype=None, _scan=_scan: _cumulated(_scan, a, axis, dtype)
for _name, _scan in (("cummax", "greatest"), ("cummin", "least")):  # np.maximum.accumulate and np.minimum.accumulate
    FUNCTIONS[_name] = lambda a, axis=0, _scan=_scan: _cumulated(_scan, a, axis)


@lowers("diff")
def _difference(a: Any, n: int = 1, axis: int = -1) -> Any:
    lead = (slice(None),) * (axis % a.ndim)
    for _ in range(n):
        later, earlier = a[(*lead, slice(1, None))], a[(*lead, slice(0, -1))]
        a = np.not_equal(later, earlier) if a.kind == "b" else later - earlier
    return a


# -- views


@lowers("reshape")
def _reshaped(a: Any, *shape: Any, order: str = "C", newshape: Any = None, copy: bool | None = None) -> Any:
    if order != "C":
        refused(f"an array with order={order!r}", "leave out order=")
    wanted = newshape if newshape is not None else shape[0] if len(shape) == 1 else shape
    wanted = tuple(int(n) for n in wanted) if isinstance(wanted, tuple | list | np.ndarray) else (int(wanted),)
    a = wrapped(a)
    view = a.view
    try:
        view.mapped(lambda array: np.reshape(array, wanted, copy=False))
    except ValueError:
        return Traced(view.reshaped(wanted, line_now()), a.kind)
    return a.part(lambda array: np.reshape(array, wanted, copy=False))


@lowers("ravel")
def _ravel(a: Any, order: str = "C") -> Any:
    return _reshaped(a, -1, order=order)


FUNCTIONS["flatten"] = lambda a, order="C": _copied(_reshaped(a, -1, order=order))


@lowers("copy")
def _copied(a: Any, order: str = "K", subok: bool = False) -> Any:
    return Traced(wrapped(a).view, wrapped(a).kind)


@lowers("item")
def _item(a: Traced) -> Any:
    return int(a) if a.kind == "i" else bool(a) if a.kind == "b" else float(a)


@lowers("transpose", "permute_dims")
def _transposed(a: Any, *axes: Any, **named: Any) -> Any:
    order = named.get("axes", axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None)
    return wrapped(a).part(lambda array: array.transpose(order))


def _shaping(name: str, *parameters: str) -> None:
    """Register the lowering of the numpy function ``name``, which returns a view of its first argument.

    ``parameters`` are the names of the function's other parameters. A call with another named argument raises
    NotLowered.
    """
    function = getattr(np, name)

    def viewed(a: Any, *args: Any, **named: Any) -> Any:
        unread = set(named) - set(parameters)
        if unread:
            refused(f"np.{name}({unread.pop()}=...)", "leave the argument out")
        return wrapped(a).part(lambda array: function(array, *args, **named))

    FUNCTIONS[name] = viewed


for _name, _parameters in {
    "swapaxes": "axis1 axis2",
    "squeeze": "axis",
    "expand_dims": "axis",
    "broadcast_to": "shape subok",
    "moveaxis": "source destination",
    "rollaxis": "axis start",
    "flip": "axis",
    "fliplr": "",
    "flipud": "",
    "rot90": "k axes",
    "atleast_1d": "",
    "atleast_2d": "",
    "atleast_3d": "",
    "diagonal": "offset axis1 axis2",
}.items():
    _shaping(_name, *_parameters.split())


@lowers("sliding_window_view")
def _windows(x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False) -> Any:
    return wrapped(x).part(lambda array: np.lib.stride_tricks.sliding_window_view(array, window_shape, axis))


@lowers("broadcast_arrays")
def _broadcast(*args: Any, subok: bool = False) -> Any:
    shape = np.broadcast_shapes(*(np.shape(one) for one in args))
    return tuple(np.broadcast_to(wrapped(one), shape) for one in args)


FUNCTIONS["shape"] = lambda a: a.shape
FUNCTIONS["ndim"] = lambda a: a.ndim
FUNCTIONS["size"] = lambda a, axis=None: a.size if axis is None else a.shape[axis]
FUNCTIONS["iscomplexobj"] = lambda x: False
FUNCTIONS["result_type"] = lambda *args: np.result_type(*(a.dtype if isinstance(a, Traced) else a for a in args))
FUNCTIONS["trace"] = lambda a, offset=0, axis1=0, axis2=1: np.diagonal(a, offset, axis1, axis2).sum(-1)


# -- joined and repeated arrays


def new(shape: Any, dtype: Any, value: Any) -> Traced:
    """Return a new traced array of ``shape`` that is filled with ``value``. None leaves the array without values.

    Raise NotLowered if ``value`` is NaN.
    """
    wanted = (int(shape),) if isinstance(shape, int | np.integer | Traced) else tuple(int(n) for n in shape)
    given = np.dtype(dtype)
    kind = kind_named(given.kind)
    name = held_as(given)
    made = Traced(whole(Node("buffer", "", (), wanted, name, line_now())), kind)
    if isinstance(value, Traced | np.ndarray):
        made[...] = value
    elif value is not None:
        filled = float(bool(value) if kind == "b" else int(value) if kind == "i" else value)
        filled = max(-LARGEST, min(LARGEST, finite(filled, line_now())))
        return Traced(whole(fill(filled, wanted, name, line_now())), kind)
    return made


FUNCTIONS["empty_like"] = lambda prototype, dtype=None, order="K", subok=True, shape=None: _like(
    prototype, None, dtype, shape
)
for _name, _value in {"zeros_like": 0, "ones_like": 1}.items():
    FUNCTIONS[_name] = lambda a, dtype=None, order="K", subok=True, shape=None, _value=_value: _like(
        a, _value, dtype, shape
    )
FUNCTIONS["full_like"] = lambda a, fill_value, dtype=None, order="K", subok=True, shape=None: _like(
    a, fill_value, dtype, shape
)


def _like(a: Any, value: Any, dtype: Any, shape: Any) -> Traced:
    """Return a new traced array that is filled with ``value``. A ``shape`` or ``dtype`` of None stands for that of ``a``."""
    return new(np.shape(a) if shape is None else shape, dtype or wrapped(a).dtype, value)


@lowers("concatenate", "concat")
def _concatenated(arrays: Sequence[Any], axis: int | None = 0, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    parts = [wrapped(one) if dtype is None else wrapped(one).astype(dtype) for one in arrays]
    if axis is None:
        parts, axis = [np.ravel(one) for one in parts], 0
    at = axis % parts[0].ndim
    shape = (*parts[0].shape[:at], sum(one.shape[at] for one in parts), *parts[0].shape[at + 1 :])
    kinds = {one.kind for one in parts}
    held = {one.view.dtype for one in parts}
    made = Traced(
        whole(Node("buffer", "", (), shape, held.pop() if len(held) == 1 else "float32", line_now())),
        "f" if "f" in kinds else "i" if "i" in kinds else "b",
    )
    start = 0
    for one in parts:
        made[(*[slice(None)] * at, slice(start, start + one.shape[at]))] = one
        start += one.shape[at]
    return made


@lowers("stack")
def _stacked(arrays: Sequence[Any], axis: int = 0, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return _concatenated([np.expand_dims(wrapped(one), axis) for one in arrays], axis, dtype=dtype)


@lowers("vstack")
def _vertical(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return _concatenated([np.atleast_2d(wrapped(one)) for one in tup], 0, dtype=dtype)


@lowers("hstack")
def _horizontal(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return _concatenated([np.atleast_1d(wrapped(one)) for one in tup], 0 if np.ndim(tup[0]) <= 1 else 1, dtype=dtype)


@lowers("append")
def _appended(arr: Any, values: Any, axis: int | None = None) -> Any:
    return _concatenated([arr, values], axis)


_REPEATING = ("edge", "reflect", "symmetric", "wrap")
"""Modes of ``np.pad`` that fill the border with elements of the array."""


@lowers("pad")
def _padded(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    if mode not in ("constant", *_REPEATING):
        refused(f"np.pad(mode={mode!r})", f"use constant, {', '.join(_REPEATING)}")
    if np.ndim(constant_values):
        refused("np.pad with an array of constant_values", "give one number")
    a = wrapped(array)
    widths = np.broadcast_to(np.asarray(pad_width), (a.ndim, 2)).tolist()
    if mode != "constant":
        for axis, around in enumerate(widths):
            if any(around):
                a = np.take(a, np.pad(np.arange(a.shape[axis]), around, mode=mode), axis)  # type: ignore[call-overload]  # mode is a name that np.pad knows
        return a
    shape = [n + before + after for n, (before, after) in zip(a.shape, widths, strict=True)]
    made = Traced(whole(Node("buffer", "", (), tuple(shape), a.view.dtype, line_now())), a.kind)
    made[...] = constant_values
    made[tuple(slice(before, before + n) for n, (before, _) in zip(a.shape, widths, strict=True))] = a
    return made


@lowers("split")
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    extent = ary.shape[axis]
    if isinstance(indices_or_sections, int) and extent % indices_or_sections:
        refused("np.split into unequal parts", "use slices")
    return _parts(ary, indices_or_sections, axis)


@lowers("array_split")
def _parts(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    extent = ary.shape[axis]
    if isinstance(indices_or_sections, int):
        least, longer = divmod(extent, indices_or_sections)
        sizes = [least + (at < longer) for at in range(indices_or_sections)]
        edges = [0, *itertools.accumulate(sizes)]
    else:
        edges = [0, *(int(one) for one in indices_or_sections), extent]
    lead = (slice(None),) * (axis % ary.ndim)
    return [ary[(*lead, slice(start, end))] for start, end in itertools.pairwise(edges)]


FUNCTIONS["hsplit"] = lambda ary, indices_or_sections: _split(ary, indices_or_sections, min(1, ary.ndim - 1))
FUNCTIONS["dsplit"] = lambda ary, indices_or_sections: _split(ary, indices_or_sections, 2)
FUNCTIONS["vsplit"] = lambda ary, indices_or_sections: _split(ary, indices_or_sections, 0)


@lowers("repeat")
def _repeated(a: Any, repeats: Any, axis: int | None = None) -> Any:
    if not isinstance(repeats, int | np.integer):
        refused("np.repeat by an array", "repeat by one number")
    if axis is None:
        a, axis = np.ravel(a), 0
    at, times = axis % a.ndim, int(repeats)
    shape = (*a.shape[: at + 1], times, *a.shape[at + 1 :])
    spread = Traced(a.view.mapped(lambda array: np.broadcast_to(np.expand_dims(array, at + 1), shape)), a.kind)
    return _copied(_reshaped(spread, (*a.shape[:at], a.shape[at] * times, *a.shape[at + 1 :])))


@lowers("tile")
def _tiled(A: Any, reps: Any) -> Any:
    counts = (int(reps),) if isinstance(reps, int | np.integer) else tuple(int(n) for n in reps)
    rank = max(A.ndim, len(counts))
    counts, shape = (1,) * (rank - len(counts)) + counts, (1,) * (rank - A.ndim) + A.shape
    apart = A.reshape([n for extent in shape for n in (1, extent)])
    spread = Traced(apart.view.broadcast([n for pair in zip(counts, shape, strict=True) for n in pair]), A.kind)
    return _copied(_reshaped(spread, tuple(n * by for n, by in zip(shape, counts, strict=True))))


@lowers("roll")
def _rolled(a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return _rolled(a.reshape(-1), shift, 0).reshape(a.shape)
    if isinstance(axis, tuple | list):
        for one, by in zip(axis, shift if isinstance(shift, tuple | list) else (shift,) * len(axis), strict=True):
            a = _rolled(a, by, one)
        return a
    at, by = axis % a.ndim, int(shift) % a.shape[axis]
    lead = (slice(None),) * at
    return _concatenated([a[(*lead, slice(-by, None))], a[(*lead, slice(0, -by))]], at) if by else _copied(a)


# -- positions


def positions(shape: tuple[int, ...], axis: int) -> Traced:
    """Return an array of ``shape`` in which each element is its position along ``axis``."""
    return Traced(counted(shape, tuple(1 if at == axis else 0 for at in range(len(shape))), 0))


def _triangle(a: Any, k: int, upper: bool) -> Any:
    """Return ``a`` with zeros below diagonal ``k`` if ``upper`` is True, else with zeros above diagonal ``k``."""
    if a.ndim < 2:
        a = np.broadcast_to(a, (a.shape[0], a.shape[0]))
    rows, columns = a.shape[-2:]
    distance = Traced(counted((rows, columns), (-1, 1), -int(k)))
    held, beyond = a.known(), distance.known()
    if held is not None and held.ndim == 2 and beyond is not None:
        kept = np.multiply(held, (beyond >= 0) if upper else (beyond <= 0))
        return Traced(placed(kept, a.view.dtype, line_now()), a.kind)
    found = called("where", distance >= 0 if upper else distance <= 0, a, 0)
    return Traced(found.view, a.kind)


FUNCTIONS["tril"] = lambda m, k=0: _triangle(m, k, upper=False)
FUNCTIONS["triu"] = lambda m, k=0: _triangle(m, k, upper=True)


@lowers("diag")
def _diagonal(v: Any, k: int = 0) -> Any:
    """Return diagonal ``k`` of a matrix; for a vector, a matrix with the vector on diagonal ``k`` and 0 elsewhere."""
    if v.ndim == 2:
        return np.diagonal(v, k)
    extent = v.shape[0] + abs(k)
    held = np.pad(v, (max(-k, 0), max(k, 0)))
    distance = Traced(counted((extent, extent), (-1, 1), -k))
    return np.where(distance == 0, held[:, None], 0)


@lowers("fill_diagonal")
def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    if wrap:
        refused("np.fill_diagonal(wrap=True)", "fill one square block after the other")
    if a.ndim != 2:
        refused("np.fill_diagonal of anything but a matrix", "fill one matrix after the other")
    a.assign(np.where(Traced(counted(a.shape, (-1, 1), 0)) == 0, val, a))


@lowers("copyto")
def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    dst.assign(src if where is True else np.where(where, src, dst))


@lowers("fill")
def _filled(a: Any, value: Any) -> None:
    a.assign(value)
