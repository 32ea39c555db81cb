"""Convert between number formats, and compute as the engines do, on numpy arrays.

Engines compute in float32 and round once when they write (AWS NKI documentation, nki.isa). ``REAL[False]`` is
that compute type. ``REAL[True]`` is float64 without rounding to narrow formats, for oracles and noise floors.

No public page defines the following conversions, so they are fixed here. A float written as an integer is
rounded to the nearest integer, because AWS's own nki-library depends on that: ``_modulo`` of its attention_tkg
kernel writes x/y - 0.5 to an int32 tile to get the floor of x/y, and truncation would give another value. The
other conversions are assumptions: halves are rounded to even, values beyond an integer's range saturate, NaN
becomes 0, and DMA rounds as the engines do. A float beyond a narrow float's range becomes infinity, or NaN in a
format without infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from acceld.nki.ir.operations import INTEGER_DTYPES

Array = NDArray[Any]
Alu = Callable[[Any, Any, "Array | None"], Array]
"""A function ``f(a, b, out)`` that returns its result. If ``out`` is given, the result is written to ``out``."""

REAL: dict[bool, np.dtype[Any]] = {False: np.dtype(np.float32), True: np.dtype(np.float64)}

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "tfloat32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "float8_e4m3": np.dtype(ml_dtypes.float8_e4m3),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    "float8_e5m2_x4": np.dtype(np.uint32),
    "float8_e4m3fn_x4": np.dtype(np.uint32),
    "float4_e2m1fn_x4": np.dtype(np.uint16),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "bool": np.dtype(np.bool_),
}
"""numpy's dtype for each dtype of :data:`acceld.nki.ir.operations.DTYPE_BYTES`. Packed formats are stored as integers
of their width.
"""

PACKED_DTYPES = frozenset(name for name in NUMPY_DTYPES if name.endswith("_x4"))
"""Formats that hold four values in an element. Only microscaled matrix products and copies take these formats."""


def storage_dtype(name: str, *, float64: bool = False) -> np.dtype[Any]:
    """Return numpy's dtype for elements of dtype ``name``. With ``float64`` every float format is stored as
    float64.
    """
    if float64 and not is_integer(name):
        return np.dtype(np.float64)
    return NUMPY_DTYPES[name]


def is_integer(name: str) -> bool:
    """Tell whether elements of dtype ``name`` are handled as integers. Packed formats count as integers, because
    only their bits are moved.
    """
    return name in INTEGER_DTYPES or name in PACKED_DTYPES


def round_tfloat32(values: Array) -> Array:
    """Return float32 values rounded to TF32's mantissa of ten bits, ties to even. NaN and infinities are kept."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    return np.where(special, bits, rounded).view(np.float32).reshape(np.shape(values))


@cache
def _integer_range(dtype: np.dtype[Any]) -> tuple[float, float]:
    info = np.iinfo(dtype)
    return float(info.min), float(info.max)


def to_integer(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return floats as integers of ``dtype``: rounded to nearest, halves to even, saturated, NaN as 0.

    If ``dtype`` is bool, the result is True where the value is not 0.
    """
    if dtype == np.bool_:
        return np.asarray(values != 0)
    low, high = _integer_range(dtype)
    wide = np.rint(np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=high, neginf=low))
    return np.clip(wide, low, high).astype(dtype)


def write(target: Array, values: Any, dtype: str, *, float64: bool = False) -> None:
    """Round ``values`` to ``dtype``, and write them to the array ``target``, which has the storage type of
    ``dtype``.
    """
    if is_integer(dtype):
        source = np.asarray(values)
        if source.dtype.kind == "f":
            source = to_integer(source, target.dtype)
        np.copyto(target, source, casting="unsafe")
    elif dtype == "tfloat32" and not float64:
        np.copyto(target, round_tfloat32(np.asarray(values, np.float32)))
    else:
        np.copyto(target, values, casting="unsafe")


def is_nan(values: Array) -> Array:
    """Return a mask of the elements that are NaN. If the dtype has no NaN, each axis of the mask has one element."""
    return np.zeros((1,) * values.ndim, np.bool_) if values.dtype.kind in "iub" else np.isnan(values)


def with_nan(values: Array, marks: Array) -> Array:
    """Return ``values`` with NaN where ``marks`` is True. Integers become float64 for that."""
    if not marks.any():
        return values
    held = np.array(values, np.float64 if values.dtype.kind in "iub" else values.dtype)
    held[marks] = np.nan
    return held


def on_integers(function: Callable[..., Array], *values: Any, kind: Any = np.int64) -> Array:
    """Return ``function(*values)``, with NaN wherever one of the values is NaN.

    ``function`` is a function of integers that keeps their shape. Floats among ``values`` are converted to integers
    of the dtype ``kind`` for the call. If a value is NaN, the result has the dtype float64.
    """
    marks: Any = False
    whole = []
    for one in values:
        if isinstance(one, np.ndarray) and one.dtype.kind == "f":
            marks = marks | np.isnan(one)
            one = np.nan_to_num(one).astype(kind)
        whole.append(one)
    result: Array = np.asarray(function(*whole))
    wide: Any = np.broadcast_to(marks, result.shape)
    return with_nan(result, wide)


def _compare(function: np.ufunc) -> Alu:
    def apply(a: Any, b: Any, out: Array | None) -> Array:
        if out is not None:
            result: Array = function(a, b, out=out)
            return result
        return np.asarray(function(a, b)).astype(np.result_type(a, np.float32))

    return apply


def _direct(function: np.ufunc) -> Alu:
    def apply(a: Any, b: Any, out: Array | None) -> Array:
        result: Array = function(a, b, out=out)
        return result

    return apply


def _power(a: Any, b: Any, out: Array | None) -> Array:
    """Return ``a`` to the power of ``b``. The result is NaN if an operand is NaN, although numpy gives 1 for a base of
    1 and for an exponent of 0. No document says what a chip does.
    """
    undefined = np.isnan(a) | np.isnan(b)  # found before ``out`` is written, because ``out`` may be an operand
    result: Array = np.power(a, b, out=out)
    if undefined.any():
        result = np.where(undefined, result.dtype.type(np.nan), result)
    if out is None or result is out:
        return result
    np.copyto(out, result)
    return out


def _by_magnitude(compare: np.ufunc) -> Alu:
    """Return a function of two arrays that selects, for each element, the operand (with its sign) whose magnitude
    ``compare`` prefers.

    The function selects the second operand if the magnitudes are equal.
    """

    def apply(a: Any, b: Any, out: Array | None) -> Array:
        undefined = np.isnan(a) | np.isnan(b)  # NaN in either operand gives NaN, as for a maximum
        chosen = np.where(compare(np.abs(a), np.abs(b)), a, b)
        result: Array = np.where(undefined, chosen.dtype.type(np.nan), chosen)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return apply


def _rsqrt(a: Any, b: Any, out: Array | None) -> Array:
    root: Array = np.sqrt(a, out=out)
    result: Array = np.reciprocal(root, out=out)
    return result


def _abs(a: Any, b: Any, out: Array | None) -> Array:
    result: Array = np.abs(a, out=out)
    return result


def _square(a: Any, b: Any, out: Array | None) -> Array:
    result: Array = np.square(a, out=out)
    return result


def _relu(a: Any, b: Any, out: Array | None) -> Array:
    result: Array = np.maximum(a, 0, out=out)
    return result


def _reciprocal(a: Any, b: Any, out: Array | None) -> Array:
    result: Array = np.reciprocal(a, out=out)
    return result


def _bypass(a: Any, b: Any, out: Array | None) -> Array:
    if out is None:
        return np.asarray(a)
    np.copyto(out, a)
    return out


ALU: dict[str, Alu] = {
    "add": _direct(np.add),
    "subtract": _direct(np.subtract),
    "multiply": _direct(np.multiply),
    "divide": _direct(np.divide),
    "max": _direct(np.maximum),
    "min": _direct(np.minimum),
    "power": _power,
    "mod": _direct(np.mod),
    "fmod": _direct(np.fmod),
    "abs_max": _by_magnitude(np.greater),
    "abs_min": _by_magnitude(np.less),
    "equal": _compare(np.equal),
    "not_equal": _compare(np.not_equal),
    "less": _compare(np.less),
    "less_equal": _compare(np.less_equal),
    "greater": _compare(np.greater),
    "greater_equal": _compare(np.greater_equal),
    "logical_and": _compare(np.logical_and),
    "logical_or": _compare(np.logical_or),
    "logical_xor": _compare(np.logical_xor),
    "rsqrt": _rsqrt,
    "abs": _abs,
    "square": _square,
    "relu": _relu,
    "reciprocal": _reciprocal,
    "bypass": _bypass,
}
"""Arithmetic on reals. Comparisons and logic give 1 and 0. ``mod`` has the sign of the divisor, ``fmod`` that of the
dividend.
"""

BITWISE: dict[str, np.ufunc] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
}
"""Bit operations on integers, in the width of the operands. A right shift of a signed integer keeps its sign."""

COMMUTATIVE_OPS = frozenset(
    "add multiply max min bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor".split()
)
"""Operations whose reduction does not depend on the order of the values, up to rounding."""

_FOLDS: dict[str, np.ufunc] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}

FOLD_IDENTITY: dict[str, float] = {
    "add": 0.0,
    "multiply": 1.0,
    "max": -np.inf,
    "min": np.inf,
    "logical_and": 1.0,
    "logical_or": 0.0,
    "logical_xor": 0.0,
}


def negated(values: Array, out: Array | None = None) -> Array:
    """Return ``-values``.

    ``np.negative`` is not used: NumPy 2.4 writes wrong values to an output that is not contiguous.
    """
    result: Array = np.multiply(values, values.dtype.type(-1), out=out)
    return result


def fold(op: str, values: Array, axes: tuple[int, ...]) -> Array:
    """Return ``values`` folded with ``op`` over ``axes``. The folded axes stay, with one element each.

    ``subtract`` folds in order, the first axis slowest. Logical results are 1 and 0 in the type of ``values``.
    """
    function = _FOLDS[op]
    if op in BITWISE and values.dtype.kind == "f":  # a float may be NaN, on which bit operations are not defined
        marks: Any = np.isnan(values).any(axis=axes, keepdims=True)
        return with_nan(fold(op, np.nan_to_num(values).astype(np.int64), axes), marks)
    if op == "subtract" and len(axes) > 1:
        kept = [axis for axis in range(values.ndim) if axis not in axes]
        moved = np.ascontiguousarray(values.transpose(*kept, *axes))
        flat = moved.reshape(*moved.shape[: len(kept)], -1)
        shape = tuple(1 if axis in axes else values.shape[axis] for axis in range(values.ndim))
        return np.asarray(np.subtract.reduce(flat, axis=-1)).reshape(shape)
    if len(axes) == 1:
        result = function.reduce(values, axis=axes[0], keepdims=True)
    else:
        result = function.reduce(values, axis=axes, keepdims=True)
    return np.asarray(result).astype(values.dtype, copy=False)


def combine(op: str, a: Any, b: Any, out: Array | None = None) -> Array:
    """Return ``a op b``, element by element, for an operation ``op`` of a reduction. The two arrays both hold reals, or
    both hold integers.
    """
    if op in BITWISE and out is None:
        return on_integers(_FOLDS[op], a, b)
    return np.asarray(_FOLDS[op](a, b, out=out))
