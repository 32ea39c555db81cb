"""Lower numpy's elementary functions to other functions of numpy, without loss of accuracy.

Among them are logarithms, exponentials and hyperbolic functions near 0, and inverse trigonometric functions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acceld.lowering.arrays import FUNCTIONS, UFUNCS, Traced, applied, by_formula, kind_of, lowers

_NEAR_LOGARITHM = 0.25
"""Magnitude of x below which log(1 + x) is computed by a series, because 1 + x would lose digits of x."""
_NEAR_EXPONENTIAL = 0.4
_NEAR_SINE = 1.0
_SMALLEST = 1.2e-38
"""The smallest positive float32 value that a chip does not round to zero."""

UFUNCS.update(
    degrees=lambda x: x * (180.0 / math.pi),
    rad2deg=lambda x: x * (180.0 / math.pi),
    logaddexp2=lambda x, y: np.maximum(x, y) + np.log2(np.exp2(-abs(x - y)) + 1.0),
    arcsin=lambda x: np.arctan2(x, _leg(x)),
    arccos=lambda x: np.arctan2(_leg(x), x),
    arcsinh=lambda x: np.sign(x) * np.log1p(_beyond(np.abs(x))),
    arccosh=lambda x: np.log1p((x - 1.0) + np.sqrt((x - 1.0) * (x + 1.0))),
    arctanh=lambda x: np.sign(x) * (0.5 * np.log1p(2.0 * np.abs(x) / (1.0 - np.abs(x)))),
)


def _leg(x: Any) -> Any:
    """Return the square root of 1 - x * x without loss of digits where x is near 1 or -1."""
    return np.sqrt((1.0 - x) * (x + 1.0))


def _beyond(size: Any) -> Any:
    """Return the number y for which arcsinh(x) = log(1 + y). ``size`` is x, which is not negative."""
    squared = np.square(size)
    return size + squared / (np.sqrt(squared + 1.0) + 1.0)


def _polynomial(x: Any, *coefficients: float) -> Any:
    """Return the value of a polynomial at ``x``. The polynomial has no constant term, and the coefficient of the
    highest power comes first.
    """
    found = x * coefficients[0]
    for one in coefficients[1:]:
        found = (found + one) * x
    return found


@lowers("log1p", ufunc=True)
def _logarithm_from_one(x: Any) -> Any:
    if (found := by_formula(np.log1p, x)) is not None:
        return found
    wide = np.log(x + 1.0)
    if x.view.node.kind == "elementwise" and x.view.node.name == "exp":
        return wide  # in a softplus, the digits that 1 + exp(y) loses are small beside y
    # log(1 + x) = 2 artanh(x / (2 + x))
    ratio = x / (x + 2.0)
    near = (_polynomial(np.square(ratio), 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0) + 1.0) * (ratio * 2.0)
    return np.where(np.abs(x) < _NEAR_LOGARITHM, near, wide)


@lowers("expm1", ufunc=True)
def _exponential_from_one(x: Any) -> Any:
    if (found := by_formula(np.expm1, x)) is not None:
        return found
    near = _polynomial(x, *(1.0 / math.factorial(n) for n in range(7, 0, -1)))
    return np.where(np.abs(x) < _NEAR_EXPONENTIAL, near, np.exp(x) - 1.0)


@lowers("sinh", ufunc=True)
def _hyperbolic_sine(x: Any) -> Any:
    if (found := by_formula(np.sinh, x)) is not None:
        return found
    near = x + x * _polynomial(np.square(x), *(1.0 / math.factorial(n) for n in range(9, 1, -2)))
    return np.where(np.abs(x) < _NEAR_SINE, near, (np.exp(x) - np.exp(-x)) * 0.5)


@lowers("signbit", ufunc=True)
def _negative(x: Any) -> Any:
    if kind_of(x) != "f":
        return np.less(x, 0)
    found = by_formula(np.signbit, x)
    return Traced(applied("signbit", [x], "b"), "b") if found is None else found


@lowers("copysign", ufunc=True)
def _signed(x1: Any, x2: Any) -> Any:
    return np.abs(x1) * np.where(np.signbit(x2), -1.0, 1.0)


@lowers("arctan2", ufunc=True)
def _angle(y: Any, x: Any) -> Any:
    if (found := by_formula(np.arctan2, y, x)) is not None:
        return found
    # float16 can not represent _SMALLEST, so narrow floats are computed in float32
    kinds = {one.dtype for one in (y, x) if isinstance(one, Traced) and one.kind == "f"}
    y, x = (one.astype(np.float32) if isinstance(one, Traced) and one.kind != "i" else one for one in (y, x))
    up, along = np.abs(y), np.abs(x)
    ratio = np.minimum(up, along) / np.maximum(np.maximum(up, along), _SMALLEST)
    near = Traced(applied("arctan", [ratio]))
    first = np.where(np.greater(up, along), math.pi / 2 - near, near)
    upper = np.where(np.signbit(x), math.pi - first, first)
    found = np.where(np.signbit(y), -upper, upper)
    return found.astype(kinds.pop()) if len(kinds) == 1 else found


@lowers("modf", ufunc=True)
def _parted(x: Any) -> Any:
    number = x if x.kind == "f" else x.astype(np.float32)
    return number - np.trunc(number), np.trunc(number)


@lowers("sinc")
def _cardinal_sine(x: Any) -> Any:
    angle = x * math.pi
    middle = np.equal(x, 0)
    return np.where(middle, 1.0, np.sin(angle) / np.where(middle, 1.0, angle))


@lowers("unwrap")
def _unwrapped(p: Any, *, axis: int = -1, period: float = 2 * math.pi) -> Any:
    turns = np.cumsum(np.floor(np.diff(p, axis=axis) * (1.0 / period) + 0.5), axis=axis)
    lead = (slice(None),) * (axis % p.ndim)
    return np.concatenate([p[(*lead, slice(0, 1))], p[(*lead, slice(1, None))] - turns * period], axis=axis)


FUNCTIONS["ediff1d"] = lambda ary: np.diff(np.ravel(ary))
