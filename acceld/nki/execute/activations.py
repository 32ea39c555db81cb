"""Compute the scalar engine's functions of one value, in the dtype of the argument (float32 or float64).

A function ``f(x, out)`` returns its result. If ``out`` is given, the result is written to ``out``, which may be ``x``
itself. The formulas are the usual definitions. The engine's own tables are less exact and not public;
:func:`as_on_chip` models the error of these tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from acceld.nki.execute.machine import crash
from acceld.nki.ir.numerics import Array, negated
from acceld.nki.ir.program import Program

Activation = Callable[[Array, "Array | None"], Array]

_NODES_PER_UNIT = 64
_ERF_END = 6.0
_NODES = np.arange(-int(_ERF_END * _NODES_PER_UNIT), int(_ERF_END * _NODES_PER_UNIT) + 1) / _NODES_PER_UNIT
_ERF_AT_NODES = np.array([math.erf(x) for x in _NODES])
_SLOPE_AT_NODES = 2.0 / math.sqrt(math.pi) * np.exp(-_NODES * _NODES)
_TERMS = 9


def erf(x: Array) -> Array:
    """Return the error function of ``x``, within 1e-15. The result is computed in float64 and returned in the dtype of
    ``x``.

    Taylor's series about the nearest multiple of 1/64 is summed. The derivatives follow from ``f'' = -2 x f'`` by
    differentiation: ``f[n+2] = -2 x f[n+1] - 2 n f[n]``. Beyond 6 the function is 1 in float64.
    """
    wide = np.clip(np.asarray(x, np.float64), -_ERF_END, _ERF_END)
    index = np.rint(np.nan_to_num(wide) * _NODES_PER_UNIT).astype(np.int64) + len(_NODES) // 2
    node = _NODES[index]
    step = wide - node
    before, current = np.zeros_like(wide), _SLOPE_AT_NODES[index]
    total = _ERF_AT_NODES[index]
    power = np.ones_like(wide)
    for n in range(1, _TERMS):
        power = power * step / n
        total = total + current * power
        before, current = current, -2.0 * node * current - 2.0 * (n - 1) * before
    return np.asarray(total).astype(np.asarray(x).dtype)


def sigmoid(x: Array, out: Array | None = None) -> Array:
    """Return 1 / (1 + exp(-x)). The result is exactly 0 or 1 for arguments of very large magnitude."""
    result = negated(np.asarray(x), out)
    np.exp(result, out=result)
    np.add(result, 1, out=result)
    np.reciprocal(result, out=result)
    return result


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x)) without overflow."""
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _normal_cdf(x: Array) -> Array:
    return np.asarray((1 + erf(x * math.sqrt(0.5))) * 0.5)


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))))


def _silu_dx(x: Array) -> Array:
    s = sigmoid(x)
    return np.asarray(s * (1 + x * (1 - s)))


def _gelu_dx(x: Array) -> Array:
    density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return np.asarray(_normal_cdf(x) + x * density)


def _gelu_sigmoid_dx(x: Array) -> Array:
    s = sigmoid(1.702 * x)
    return np.asarray(s + 1.702 * x * s * (1 - s))


def _ufunc(function: np.ufunc) -> Activation:
    def apply(x: Array, out: Array | None) -> Array:
        result: Array = function(x, out=out)
        return result

    return apply


def _formula(function: Callable[[Array], Array]) -> Activation:
    def apply(x: Array, out: Array | None) -> Array:
        result = np.asarray(function(x), x.dtype)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    return apply


def _copy(x: Array, out: Array | None) -> Array:
    if out is None or out is x:
        return x
    np.copyto(out, x)
    return out


def _rsqrt(x: Array, out: Array | None) -> Array:
    root: Array = np.sqrt(x, out=out)
    result: Array = np.reciprocal(root, out=root)
    return result


def _silu(x: Array, out: Array | None) -> Array:
    result: Array = np.multiply(x, sigmoid(x), out=out)
    return result


def _relu(x: Array, out: Array | None) -> Array:
    result: Array = np.maximum(x, 0, out=out)
    return result


ACTIVATIONS: dict[str, Activation] = {
    "copy": _copy,
    "identity": _copy,
    "exp": _ufunc(np.exp),
    "log": _ufunc(np.log),
    "sqrt": _ufunc(np.sqrt),
    "rsqrt": _rsqrt,
    "square": _ufunc(np.square),
    "tanh": _ufunc(np.tanh),
    "sigmoid": sigmoid,
    "relu": _relu,
    "prelu": _relu,
    "silu": _silu,
    "silu_dx": _formula(_silu_dx),
    "gelu": _formula(lambda x: np.asarray(x * _normal_cdf(x))),
    "gelu_dx": _formula(_gelu_dx),
    "gelu_apprx_sigmoid": _formula(lambda x: np.asarray(x * sigmoid(1.702 * x))),
    "gelu_apprx_sigmoid_dx": _formula(_gelu_sigmoid_dx),
    "gelu_apprx_tanh": _formula(_gelu_tanh),
    "softplus": _formula(softplus),
    "mish": _formula(lambda x: np.asarray(x * np.tanh(softplus(x)))),
    "erf": _formula(erf),
    "erf_dx": _formula(lambda x: np.asarray(2 / math.sqrt(math.pi) * np.exp(-x * x))),
    "sin": _ufunc(np.sin),
    "cos": _ufunc(np.cos),
    "tan": _ufunc(np.tan),
    "arctan": _ufunc(np.arctan),
    "abs": _ufunc(np.abs),
    "sign": _ufunc(np.sign),
    "reciprocal": _ufunc(np.reciprocal),
    "negative": negated,
    "floor": _ufunc(np.floor),
    "ceil": _ufunc(np.ceil),
    "trunc": _ufunc(np.trunc),
    "logical_not": _formula(lambda x: np.asarray(x == 0, x.dtype)),
}
"""The scalar engine's functions of one real number, by name. ``prelu`` has no slope here and is computed as ``relu``.
``invert`` is missing, because it is a bit operation on integers.
"""


def activate(name: str, x: Any) -> Array:
    """Apply the function ``name`` of :data:`ACTIVATIONS` to each element of ``x``. Return a new array in the dtype of
    ``x``.
    """
    return ACTIVATIONS[name](np.array(x), None)


CHIP_ERRORS = {"exp": 2.6e-6, "rsqrt": 1.46e-5} | dict.fromkeys(
    "log sqrt tanh sigmoid silu silu_dx gelu gelu_dx gelu_apprx_sigmoid gelu_apprx_sigmoid_dx gelu_apprx_tanh softplus mish "
    "erf erf_dx sin cos tan arctan reciprocal".split(),
    1e-5,
)
"""Relative error (root mean square) of functions of trn2's scalar engine.

The errors of ``rsqrt`` and ``exp`` were published with measured kernels of a norm and a softmax (KDA for Trainium,
2026: 1.46e-5, 2.6e-6; the simulator's own errors are 4.8e-7, 1.3e-8). For the other functions no error is published;
1e-5 is assumed.
"""


RANGES: dict[str, tuple[float, float]] = {
    "sin": (0.0, math.pi),
    "arctan": (0.0, math.pi / 2),
    "log": (2.0**-64, 2.0**64),
    "sqrt": (2.0**-116, 2.0**118),
    "rsqrt": (2.0**-87, 2.0**97),
    "reciprocal": (2.0**-42, 2.0**42),
}
"""The least and the greatest magnitude of an argument for which AWS documents a function of the scalar engine, by the
function's name (AWS's page of supported activation functions). An argument of 0 is in range for every function here;
the result is then the function's limit.
"""
_SLACK = 1 + 1e-6
"""Factor by which an argument may exceed a bound, because bounds are rounded to float32."""


def within_range(name: str, function: Activation, line: int) -> Activation:
    """Return ``function`` with a check of its argument: a number outside the range that AWS documents for ``name``
    (:data:`RANGES`) raises KernelCrash.

    NaN passes the check.
    """
    bounds = RANGES.get(name)
    if bounds is None:
        return function
    least, most = bounds

    below = least / _SLACK if least else -most * _SLACK

    def checked(x: Array, out: Array | None) -> Array:
        # nearly all arguments are in range, and this test needs two passes over them instead of eight
        if x.size and x.min() >= below and x.max() <= most * _SLACK:
            return function(x, out)
        size = np.abs(x)
        beyond = (size > most * _SLACK) | ((size < least / _SLACK) & (size != 0))
        if beyond.any():
            first = float(np.asarray(x)[beyond].reshape(-1)[0])
            bound = f"from {least:.3g} to {most:.3g}" if least else f"up to {most:.3g}"
            crash(
                f"{name} takes {first:.6g}; the scalar engine's {name} is documented for magnitudes {bound}",
                "activation_range",
                line,
                "bring the argument into the range first: a sine's by multiples of its period, the others by a factor",
            )
        return function(x, out)

    return checked


def as_on_chip(name: str, function: Activation) -> Activation:
    """Return a function that computes ``function`` with an added relative error as large as the scalar engine's
    (:data:`CHIP_ERRORS`).

    The error is spread evenly around 0, and is the same for equal arguments.
    """
    spread = np.float32(math.sqrt(3.0) * CHIP_ERRORS.get(name, 0.0))
    if not spread:
        return function

    def apply(x: Array, out: Array | None) -> Array:
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32) * np.uint32(2654435761)
        mixed = (bits ^ (bits >> np.uint32(15))) * np.uint32(2246822519)
        result = function(x, out)
        error = (mixed >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)
        error *= spread
        error += np.float32(1.0)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.multiply(result, error, out=result))

    return apply


def approximates(program: Program) -> bool:
    """Tell whether a program calls a function that the chip computes with a larger error than the simulator."""
    return any(one.op in ("activation", "activate2") and one.attr("func") in CHIP_ERRORS for one, _ in program.walk())
