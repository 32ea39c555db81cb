"""Translate each operator of PyTorch (``aten``) to numpy.

The table :data:`OPERATORS` has a *writer* for each operator: a function that returns a numpy expression as text. A
writer has the parameters of the operator's schema, so that the operands of a call can be bound to them.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from acceld.lowering.aten import functions
from acceld.lowering.aten.program import Array
from acceld.lowering.graph import NotLowered

Expression = str | list[str]
"""A numpy expression as text. For an operator with several results, it is a list with one expression for each result."""


@dataclass(frozen=True, slots=True)
class Value:
    """An array operand of a PyTorch operator: its name in the reference, its shape and its dtype."""

    name: str
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the array."""
        return self.array.shape

    @property
    def rank(self) -> int:
        """Return the number of axes of the array."""
        return len(self.array.shape)

    @property
    def dtype(self) -> str:
        """Return the name of the array's dtype in numpy."""
        return self.array.dtype

    def __str__(self) -> str:
        return self.name


_MOST_ROWS_BY_DIFFERENCE = 25
"""Greatest number of rows for which torch.cdist by default subtracts each row from each other row.

With more rows, torch.cdist uses a matrix product.
"""
_MOST_COMPARED = 512
"""Greatest number of elements along an axis of which a kernel combines every two."""
_LONGEST_FOURIER = 2048
"""Greatest extent of a Fourier transform, which is computed as a product with a square matrix."""
_LINEAR_SOFTPLUS = 18.0
"""Least argument from which float32 rounds softplus(x) to x, so that a threshold beyond it changes nothing."""
Writer = Callable[..., Expression]
OPERATORS: dict[str, Writer] = {}
"""The writer of each operator, by the operator's name in PyTorch.

A writer takes the shapes and dtypes of the results (``out``), then the operands of the call.
"""

_FORMS = {
    "__lshift__": "{0} << {1}",
    "__rshift__": "{0} >> {1}",
    "__and__": "{0} & {1}",
    "__or__": "{0} | {1}",
    "__xor__": "{0} ^ {1}",
    "abs": "np.abs({0})",
    "acos": "np.arccos({0})",
    "acosh": "np.arccosh({0})",
    "add": "{0} + {1}",
    "asin": "np.arcsin({0})",
    "asinh": "np.arcsinh({0})",
    "atan": "np.arctan({0})",
    "atan2": "np.arctan2({0}, {1})",
    "atanh": "np.arctanh({0})",
    "bitwise_and": "{0} & {1}",
    "bitwise_not": "~{0}",
    "bitwise_left_shift": "{0} << {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_right_shift": "{0} >> {1}",
    "bitwise_xor": "{0} ^ {1}",
    "bmm": "{0} @ {1}",
    "ceil": "np.ceil({0})",
    "copysign": "np.copysign({0}, {1})",
    "cos": "np.cos({0})",
    "cosh": "np.cosh({0})",
    "deg2rad": "np.deg2rad({0})",
    "eq": "{0} == {1}",
    "erf": "erf_of({0})",
    "erfc": "1.0 - erf_of({0})",
    "exp": "np.exp({0})",
    "exp2": "np.exp2({0})",
    "expm1": "np.expm1({0})",
    "floor": "np.floor({0})",
    "fmod": "np.fmod({0}, {1})",
    "fmax": "np.where(np.isnan({0}), {1}, np.where(np.isnan({1}), {0}, np.maximum({0}, {1})))",
    "fmin": "np.where(np.isnan({0}), {1}, np.where(np.isnan({1}), {0}, np.minimum({0}, {1})))",
    "frac": "{0} - np.trunc({0})",
    "ge": "{0} >= {1}",
    "gt": "{0} > {1}",
    "hardsigmoid": "np.clip({0} / 6.0 + 0.5, 0.0, 1.0)",
    "hardswish": "{0} * np.clip({0} / 6.0 + 0.5, 0.0, 1.0)",
    "hypot": "np.hypot({0}, {1})",
    "isfinite": "np.isfinite({0})",
    "isinf": "np.isinf({0})",
    "isnan": "np.isnan({0})",
    "le": "{0} <= {1}",
    "log": "np.log({0})",
    "log10": "np.log({0}) * (1.0 / math.log(10.0))",
    "log1p": "np.log1p({0})",
    "log2": "np.log2({0})",
    "logical_and": "np.logical_and({0}, {1})",
    "logical_not": "np.logical_not({0})",
    "logical_or": "np.logical_or({0}, {1})",
    "logical_xor": "np.logical_xor({0}, {1})",
    "ldexp": "{0} * 2.0 ** {1}",
    "logaddexp": "np.logaddexp({0}, {1})",
    "lt": "{0} < {1}",
    "matmul": "{0} @ {1}",
    "maximum": "np.maximum({0}, {1})",
    "minimum": "np.minimum({0}, {1})",
    "mish": "{0} * np.tanh(softplus({0}))",
    "mm": "{0} @ {1}",
    "mul": "{0} * {1}",
    "mv": "{0} @ {1}",
    "dot": "{0} @ {1}",
    "outer": "np.outer({0}, {1})",
    "ne": "{0} != {1}",
    "neg": "-{0}",
    "rad2deg": "np.rad2deg({0})",
    "reciprocal": "1.0 / {0}",
    "relu": "np.maximum({0}, 0.0)",
    "relu6": "np.clip({0}, 0.0, 6.0)",
    "remainder": "np.remainder({0}, {1})",
    "rsqrt": "1.0 / np.sqrt({0})",
    "selu": "1.0507009873554805 * np.where({0} > 0.0, {0}, 1.6732632423543772 * (np.exp(np.minimum({0}, 0.0)) - 1.0))",
    "sigmoid": "sigmoid({0})",
    "sign": "np.sign({0})",
    "signbit": "np.signbit({0})",
    "silu": "{0} * sigmoid({0})",
    "sin": "np.sin({0})",
    "sinc": "np.sinc({0})",
    "sinh": "np.sinh({0})",
    "softsign": "{0} / (1.0 + np.abs({0}))",
    "log_sigmoid": "-softplus(-{0})",
    "special_sinc": "np.sinc({0})",
    "sqrt": "np.sqrt({0})",
    "square": "np.square({0})",
    "tan": "np.sin({0}) / np.cos({0})",
    "tanh": "np.tanh({0})",
    "tanhshrink": "{0} - np.tanh({0})",
    "trunc": "np.trunc({0})",
    "where": "np.where({0}, {1}, {2})",
    "t": "{0}.T",
    "numpy_T": "{0}.T",
}
"""The numpy expression of an operator that needs no other code, by the operator's name.

``{0}`` stands for the first operand, ``{1}`` for the second.
"""

_SAME = frozenset(
    "alias clone contiguous detach lift_fresh_copy dropout_eval _assert_tensor_metadata lift_fresh positive "
    "_unsafe_view_same".split()
)


def writes(*names: str) -> Callable[[Writer], Writer]:
    """Return a decorator that registers a writer for the PyTorch operators ``names``."""

    def entered(writer: Writer) -> Writer:
        for name in names:
            OPERATORS[name] = writer
        return writer

    return entered


def word(value: Any) -> str:
    """Return an operand as the text of a Python expression, such as ``np.inf`` or ``(1, 2)``."""
    if isinstance(value, str):
        return {"inf": "np.inf", "-inf": "-np.inf", "nan": "np.nan"}.get(value, repr(value))
    if isinstance(value, float) and not math.isfinite(value):
        return word(str(value))
    if isinstance(value, list | tuple):
        inner = ", ".join(map(word, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return str(value) if isinstance(value, Value) else repr(value)


def _form(name: str, form: str) -> Writer:
    """Return a writer that inserts an operator's operands into the expression ``form``.

    An operand ``alpha``, which PyTorch has for sums, multiplies the second operand. The writer raises NotLowered for
    any other named operand but ``dtype``.
    """

    def written(out: Sequence[Array], *args: Any, alpha: Any = 1, **further: Any) -> Expression:
        if further and set(further) - {"dtype"}:
            raise NotLowered(f"aten.{name}({', '.join(further)}=...) is not lowered; leave the argument out")
        given = [word(arg) for arg in args]
        if alpha != 1:
            given[1] = f"{word(alpha)} * {given[1]}"
        return form.format(*given)

    return written


for _name, _text in _FORMS.items():
    OPERATORS[_name] = _form(_name, _text)


@writes("pow")
def _pow(out: Sequence[Array], self: Any, exponent: Any) -> Expression:
    # A negative base needs brackets: -2.0 ** x is -(2.0 ** x).
    base = word(self) if isinstance(self, Value) else f"({word(self)})"
    return f"{base} ** {word(exponent)}"


@writes("sub")
def _sub(out: Sequence[Array], self: Any, other: Any, alpha: Any = 1) -> Expression:
    return f"{word(self)} - {word(other)}" if alpha == 1 else f"{word(self)} - {word(alpha)} * {word(other)}"


@writes("rsub")
def _rsub(out: Sequence[Array], self: Any, other: Any, alpha: Any = 1) -> Expression:
    return f"{word(other)} - {word(self)}" if alpha == 1 else f"{word(other)} - {word(alpha)} * {word(self)}"


@writes("div", "true_divide")
def _div(out: Sequence[Array], self: Any, other: Any, rounding_mode: str | None = None) -> Expression:
    if rounding_mode == "floor":
        return f"{word(self)} // {word(other)}"
    if rounding_mode == "trunc":
        if out[0].dtype.startswith(("int", "uint")):
            return f"truncated_quotient({word(self)}, {word(other)})"
        return f"np.trunc({word(self)} / {word(other)})"
    return f"{word(self)} / {word(other)}"


OPERATORS["floor_divide"] = lambda out, self, other: f"{word(self)} // {word(other)}"


@writes("lerp")
def _lerp(out: Sequence[Array], self: Value, end: Any, weight: Any) -> Expression:
    return f"{self} + {word(weight)} * ({word(end)} - {self})"


@writes(*sorted(_SAME))
def _same(out: Sequence[Array], self: Value, *_: Any, **__: Any) -> Expression:
    return str(self)


@writes("to", "_to_copy", "type_as", "convert_element_type")
def _cast(out: Sequence[Array], self: Value, *_: Any, **__: Any) -> Expression:
    return str(self) if out[0].dtype == self.dtype else f'cast({self}, "{out[0].dtype}")'


@writes("linear")
def _linear(out: Sequence[Array], input: Value, weight: Value, bias: Value | None = None) -> Expression:
    return f"{input} @ {weight}.T" + (f" + {bias}" if bias is not None else "")


@writes("addmm", "baddbmm", "addmv")
def _addmm(
    out: Sequence[Array], self: Value, one: Value, other: Value, beta: float = 1, alpha: float = 1
) -> Expression:
    first = f"{self}" if beta == 1 else f"{beta!r} * {self}"
    second = f"{one} @ {other}" if alpha == 1 else f"{alpha!r} * ({one} @ {other})"
    return f"{first} + {second}"


@writes("addcmul")
def _addcmul(out: Sequence[Array], self: Value, tensor1: Any, tensor2: Any, value: float = 1) -> Expression:
    return f"{self} + {value!r} * {word(tensor1)} * {word(tensor2)}"


@writes("einsum")
def _einsum(out: Sequence[Array], equation: str, tensors: list[Value], path: Any = None) -> Expression:
    # without optimize, numpy runs one slow loop over all letters
    ordered = ", optimize=True" if len(tensors) > 1 else ""
    return f"np.einsum({equation!r}, {', '.join(map(str, tensors))}{ordered})"


@writes("clamp", "clip")
def _clamp(out: Sequence[Array], self: Value, min: Any = None, max: Any = None) -> Expression:
    found = str(self) if min is None else f"np.maximum({self}, {word(min)})"
    return found if max is None else f"np.minimum({found}, {word(max)})"


def _bound(least: bool) -> Writer:
    """Return the writer of ``clamp_min`` if ``least`` is True, else the writer of ``clamp_max``."""

    def written(out: Sequence[Array], self: Value, bound: Any) -> Expression:
        return f"np.{'maximum' if least else 'minimum'}({self}, {word(bound)})"

    return written


OPERATORS["clamp_min"], OPERATORS["clamp_max"] = _bound(True), _bound(False)


@writes("hardtanh")
def _hardtanh(out: Sequence[Array], self: Value, min_val: float = -1.0, max_val: float = 1.0) -> Expression:
    return f"np.clip({self}, {min_val!r}, {max_val!r})"


@writes("leaky_relu")
def _leaky_relu(out: Sequence[Array], self: Value, negative_slope: float = 0.01) -> Expression:
    return f"np.where({self} > 0.0, {self}, {negative_slope!r} * {self})"


@writes("prelu")
def _prelu(out: Sequence[Array], self: Value, weight: Value) -> Expression:
    slope = str(weight)
    if weight.shape and math.prod(weight.shape) > 1:
        slope = f"{weight}.reshape({(1, -1, *(1,) * (self.rank - 2))!r})"
    return f"np.where({self} > 0.0, {self}, {slope} * {self})"


@writes("elu")
def _elu(
    out: Sequence[Array], self: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Expression:
    return f"{scale!r} * np.where({self} > 0.0, {self}, {alpha!r} * (np.exp({input_scale!r} * np.minimum({self}, 0.0)) - 1.0))"


@writes("celu")
def _celu(out: Sequence[Array], self: Value, alpha: float = 1.0) -> Expression:
    return f"np.where({self} > 0.0, {self}, {alpha!r} * (np.exp(np.minimum({self}, 0.0) / {alpha!r}) - 1.0))"


@writes("gelu")
def _gelu(out: Sequence[Array], self: Value, approximate: str = "none") -> Expression:
    if approximate == "tanh":
        return f"0.5 * {self} * (1.0 + np.tanh(0.7978845608028654 * ({self} + 0.044715 * {self} * {self} * {self})))"
    return f"0.5 * {self} * (1.0 + erf_of({self} * 0.7071067811865476))"


@writes("softplus")
def _softplus(out: Sequence[Array], self: Value, beta: float = 1, threshold: float = 20) -> Expression:
    text = f"softplus({self})" if beta == 1 else f"softplus({beta!r} * {self}) * {1 / beta!r}"
    if threshold >= _LINEAR_SOFTPLUS:
        return text
    return f"np.where({beta!r} * {self} > {threshold!r}, {self}, {text})"


@writes("hardshrink")
def _hardshrink(out: Sequence[Array], self: Value, lambd: float = 0.5) -> Expression:
    return f"np.where(np.abs({self}) > {lambd!r}, {self}, 0.0)"


@writes("softshrink")
def _softshrink(out: Sequence[Array], self: Value, lambd: float = 0.5) -> Expression:
    return f"np.where({self} > {lambd!r}, {self} - {lambd!r}, np.where({self} < {-lambd!r}, {self} + {lambd!r}, 0.0))"


@writes("rrelu_with_noise_functional", "rrelu_with_noise")
def _rrelu(
    out: Sequence[Array],
    self: Value,
    noise: Value,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    *_: Any,
) -> Expression:
    if training:
        raise NotLowered("rrelu in training is random: it is not lowered; export the module in eval mode")
    return [str(_leaky_relu(out, self, (lower + upper) / 2))] + ["None"] * (len(out) - 1)


@writes("threshold")
def _threshold(out: Sequence[Array], self: Value, threshold: float, value: float) -> Expression:
    return f"np.where({self} > {threshold!r}, {self}, {value!r})"


@writes("glu")
def _glu(out: Sequence[Array], self: Value, dim: int = -1) -> Expression:
    half = self.shape[dim] // 2
    lead = ":, " * (dim % self.rank)
    return f"{self}[{lead}:{half}] * sigmoid({self}[{lead}{half}:])"


@writes("dropout", "native_dropout", "feature_dropout", "alpha_dropout")
def _dropout(out: Sequence[Array], input: Value, p: float, train: bool | None = True) -> Expression:
    if train and p:
        raise NotLowered(f"a dropout of {p:g} in training is random: it is not lowered; export the module in eval mode")
    return [str(input)] * len(out)


# reductions


def _axes(value: Value, dim: Any) -> Any:
    """Return PyTorch's operand ``dim`` as numpy's argument ``axis``. A result of None stands for all axes."""
    if dim is None or dim == []:
        return None
    return tuple(dim) if isinstance(dim, list | tuple) else dim


def _fold(function: str) -> Writer:
    """Return the writer of a reduction that is the array method ``function`` in numpy, such as ``sum``."""

    def written(
        out: Sequence[Array], self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None
    ) -> Expression:
        source = f'cast({self}, "{out[0].dtype}")' if self.dtype == "bool" and out[0].dtype != "bool" else str(self)
        return f"{source}.{function}(axis={_axes(self, dim)!r}, keepdims={keepdim!r})"

    return written


for _name, _text in {
    "sum": "sum",
    "mean": "mean",
    "amax": "max",
    "amin": "min",
    "prod": "prod",
    "any": "any",
    "all": "all",
    "argmax": "argmax",
    "argmin": "argmin",
}.items():
    OPERATORS[_name] = _fold(_text)


def _extreme(
    name: str, out: Sequence[Array], self: Value, dim: Any = None, keepdim: bool = False, other: Value | None = None
) -> Expression:
    """Return the numpy expression for ``torch.max`` or ``torch.min``. ``name`` is ``max`` or ``min``.

    Each has three forms: over all elements, along an axis (which also gives positions), and of two arrays.
    """
    other = dim if isinstance(dim, Value) else other
    if other is not None:
        return f"np.{name}imum({self}, {other})"
    if dim is None:
        return f"{self}.{name}()"
    how = f"axis={dim!r}, keepdims={keepdim!r}"
    return [f"{self}.{name}({how})", f"{self}.arg{name}({how})"]


for _name in ("max", "min"):
    OPERATORS[_name] = functools.partial(_extreme, _name)


def _spread(root: bool) -> Writer:
    """Return the writer of the standard deviation if ``root`` is True, else the writer of the variance."""

    def written(
        out: Sequence[Array],
        self: Value,
        dim: Any = None,
        unbiased: Any = True,
        keepdim: bool = False,
        correction: Any = None,
    ) -> Expression:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        degrees = int(unbiased) if correction is None else correction
        return f"{self}.{'std' if root else 'var'}(axis={_axes(self, dim)!r}, ddof={degrees!r}, keepdims={keepdim!r})"

    return written


OPERATORS["std"], OPERATORS["var"] = _spread(True), _spread(False)


@writes("var_mean")
def _var_mean(
    out: Sequence[Array], self: Value, dim: Any = None, unbiased: Any = True, keepdim: bool = False, **more: Any
) -> Expression:
    dim = None if isinstance(dim, bool) else dim
    mean = f"{self}.mean(axis={_axes(self, dim)!r}, keepdims={keepdim!r})"
    return [str(OPERATORS["var"](out, self, dim, unbiased, keepdim, **more)), mean]


@writes("logsumexp")
def _logsumexp(out: Sequence[Array], self: Value, dim: Any, keepdim: bool = False) -> Expression:
    return f"log_sum_exp({self}, {_axes(self, dim)!r}, {keepdim!r})"


@writes("kron")
def _kron(out: Sequence[Array], self: Value, other: Value) -> Expression:
    rank = max(self.rank, other.rank)
    first, second = ((1,) * (rank - one.rank) + one.shape for one in (self, other))
    spread = [(extent, 1) for extent in first], [(1, extent) for extent in second]
    cuts = [tuple(extent for pair in pairs for extent in pair) for pairs in spread]
    return f"({self}.reshape({cuts[0]!r}) * {other}.reshape({cuts[1]!r})).reshape({out[0].shape!r})"


@writes("xlogy", "special_xlogy")
def _xlogy(out: Sequence[Array], self: Any, other: Any) -> Expression:
    times = word(self)
    return f"np.where({times} == 0, 0.0, {times} * np.log(np.where({times} == 0, 1.0, {word(other)})))"


@writes("special_xlog1py")
def _xlog1py(out: Sequence[Array], self: Any, other: Any) -> Expression:
    times = word(self)
    return f"np.where({times} == 0, 0.0, {times} * np.log1p(np.where({times} == 0, 0.0, {word(other)})))"


@writes("round")
def _round(out: Sequence[Array], self: Value, decimals: int = 0) -> Expression:
    by = 10.0**decimals
    return f"np.rint({self})" if not decimals else f"np.rint({self} * {by!r}) / {by!r}"


@writes("addbmm")
def _addbmm(
    out: Sequence[Array], self: Value, batch1: Value, batch2: Value, beta: float = 1, alpha: float = 1
) -> Expression:
    product = f"np.einsum('bij,bjk->ik', {batch1}, {batch2}, optimize=True)"
    return f"{'' if beta == 1 else f'{beta!r} * '}{self} + {'' if alpha == 1 else f'{alpha!r} * '}{product}"


@writes("softmax", "_softmax")
def _softmax(out: Sequence[Array], self: Value, dim: int, *_: Any, **__: Any) -> Expression:
    return f"softmax({self}, {dim!r})"


@writes("log_softmax", "_log_softmax")
def _log_softmax(out: Sequence[Array], self: Value, dim: int, *_: Any, **__: Any) -> Expression:
    return f"{self} - log_sum_exp({self}, {dim!r}, True)"


OPERATORS["cumsum"] = lambda out, self, dim, dtype=None: f"np.cumsum({self}, axis={dim!r})"
OPERATORS["cumprod"] = lambda out, self, dim, dtype=None: f"np.cumprod({self}, axis={dim!r})"
OPERATORS["cummax"] = lambda out, self, dim: f'running_extreme({self}, {dim!r}, "maximum")'
OPERATORS["cummin"] = lambda out, self, dim: f'running_extreme({self}, {dim!r}, "minimum")'


@writes("logcumsumexp")
def _logcumsumexp(out: Sequence[Array], self: Value, dim: int) -> Expression:
    _compares_all("logcumsumexp", self, dim, "add the logarithms of shorter parts by torch.logaddexp")
    return f"running_log_sum_exp({self}, {dim!r})"


def _compares_all(name: str, value: Value, dim: int, remedy: str) -> None:
    """Raise NotLowered if axis ``dim`` has so many elements that comparing every two of them costs too much.

    ``remedy`` tells the user what to write instead.
    """
    extent = value.shape[dim] if value.rank else 1
    if extent > _MOST_COMPARED:
        raise NotLowered(f"{name} of {extent} elements is not lowered; up to {_MOST_COMPARED} are: {remedy}")


@writes("norm", "linalg_vector_norm", "frobenius_norm")
def _norm(
    out: Sequence[Array],
    self: Value,
    p: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    **named: Any,
) -> Expression:
    p = named.get("ord", p)
    how = f"axis={_axes(self, dim)!r}, keepdims={keepdim!r}"
    if p in (None, 2, 2.0, "fro"):
        return f"np.sqrt(np.square({self}).sum({how}))"
    if p in (1, 1.0):
        return f"np.abs({self}).sum({how})"
    if p == "inf":
        return f"np.abs({self}).max({how})"
    return f"(np.abs({self}) ** {p!r}).sum({how}) ** {1 / p!r}"


@writes("topk")
def _topk(
    out: Sequence[Array], self: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Expression:
    if k > 64:
        raise NotLowered("topk of more than 64 values is not lowered; torch.sort sorts up to 512")
    return f"{'greatest' if largest else 'least'}({self}, {k}, {dim!r})"


def _sorting(self: Value, dim: int, descending: bool) -> str:
    """Return the numpy expression for the positions that sort an array along axis ``dim``.

    Equal elements keep their order.
    """
    return f'np.argsort({"-" if descending else ""}{self}, axis={dim!r}, kind="stable")'


@writes("kthvalue")
def _kthvalue(out: Sequence[Array], self: Value, k: int, dim: int = -1, keepdim: bool = False) -> Expression:
    axis, extent = dim % self.rank, self.shape[dim]
    place = ":, " * axis + str(k - 1)
    found = f"np.sort({self}, axis={axis})[{place}].reshape({out[0].shape!r})"
    where = f'np.argsort({self}, axis={axis}, kind="stable")[{place}].reshape({out[0].shape!r})'
    return [found, where if extent <= _MOST_COMPARED else "None"]


@writes("median")
def _median(out: Sequence[Array], self: Value, dim: int | None = None, keepdim: bool = False) -> Expression:
    if dim is not None:
        return _kthvalue(out, self, (self.shape[dim] + 1) // 2, dim)
    return f"np.sort({self}.reshape(-1))[{(math.prod(self.shape) - 1) // 2}]"


@writes("mode")
def _mode(out: Sequence[Array], self: Value, dim: int = -1, keepdim: bool = False) -> Expression:
    _compares_all("torch.mode", self, dim, "compare the elements with each possible value, and count")
    return [f"most_frequent({self}, {dim!r}).reshape({out[0].shape!r})", "None"]


@writes("cross", "linalg_cross")
def _cross(out: Sequence[Array], self: Value, other: Value, dim: int | None = -1) -> Expression:
    at = next((n for n, extent in enumerate(self.shape) if extent == 3), -1) if dim is None else dim
    return f"np.cross({self}, {other}, axis={at!r})"


@writes("histc")
def _histogram(out: Sequence[Array], self: Value, bins: int = 100, min: float = 0, max: float = 0) -> Expression:
    limits = "" if min == max == 0 else f", range=({min!r}, {max!r})"
    return f'np.histogram({self}, bins={bins!r}{limits})[0].astype("{out[0].dtype}")'


@writes("sort")
def _sort(
    out: Sequence[Array], self: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> Expression:
    places = _sorting(self, dim, descending)
    return [f"np.take_along_axis({self}, {places}, axis={dim!r})", places]


@writes("argsort")
def _argsort(
    out: Sequence[Array], self: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> Expression:
    return _sorting(self, dim, descending)


# views


@writes("view", "reshape", "_unsafe_view", "_reshape_copy", "view_copy", "unflatten", "flatten", "ravel")
@writes("squeeze", "unsqueeze", "squeeze_copy", "unsqueeze_copy", "view_as", "reshape_as", "atleast_2d", "unsqueeze_")
def _reshape(out: Sequence[Array], self: Value, *_: Any, **__: Any) -> Expression:
    return f"{self}.reshape({out[0].shape!r})"


@writes("permute", "permute_copy")
def _permute(out: Sequence[Array], self: Value, dims: Sequence[int]) -> Expression:
    return f"{self}.transpose({tuple(dims)!r})"


@writes("transpose", "swapaxes", "transpose_copy")
def _transpose(out: Sequence[Array], self: Value, dim0: int, dim1: int) -> Expression:
    return f"{self}.swapaxes({dim0!r}, {dim1!r})"


OPERATORS["mT"] = lambda out, self: f"{self}.swapaxes(-1, -2)"
OPERATORS["movedim"] = lambda out, self, source, destination: (
    f"np.moveaxis({self}, {word(source)}, {word(destination)})"
)


@writes("expand", "expand_copy", "broadcast_to", "expand_as")
def _expand(out: Sequence[Array], self: Value, *_: Any, **__: Any) -> Expression:
    return f"np.broadcast_to({self}, {out[0].shape!r})"


@writes("repeat")
def _repeat(out: Sequence[Array], self: Value, repeats: Sequence[int]) -> Expression:
    return f"np.tile({self}, {tuple(repeats)!r})"


@writes("repeat_interleave")
def _repeat_interleave(out: Sequence[Array], self: Value, repeats: int, dim: int | None = None, **_: Any) -> Expression:
    if not isinstance(repeats, int) or dim is None:
        raise NotLowered(
            "repeat_interleave by an array, or without dim, is not lowered; repeat by one number, and name dim"
        )
    return f"np.repeat({self}, {repeats}, axis={dim!r})"


@writes("slice", "slice_copy")
def _slice(
    out: Sequence[Array], self: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Expression:
    return f"{self}[{_range(self, dim, start, end, step)}]"


def _range(value: Value, dim: int, start: int | None, end: int | None, step: int = 1) -> str:
    """Return the text of an index, such as ``:, 2:8``, that selects a range of axis ``dim`` of an array."""
    extent = value.shape[dim]
    first = 0 if start is None else min(start, extent) if start >= 0 else max(0, extent + start)
    last = extent if end is None or end > extent else end if end >= 0 else max(0, extent + end)
    own = f"{first or ''}:{last if last != extent else ''}" + (f":{step}" if step != 1 else "")
    return ":, " * (dim % value.rank) + own


@writes("select", "select_copy")
def _select(out: Sequence[Array], self: Value, dim: int, index: int) -> Expression:
    return f"{self}[{':, ' * (dim % self.rank)}{index}]"


OPERATORS["narrow"] = lambda out, self, dim, start, length: f"{self}[{_range(self, dim, start, start + length)}]"


@writes(
    "split",
    "split_with_sizes",
    "chunk",
    "unsafe_split",
    "unsafe_chunk",
    "split_copy",
    "split_with_sizes_copy",
    "tensor_split",
)
def _split(out: Sequence[Array], self: Value, sizes: Any, dim: int = 0) -> Expression:
    found, start = [], 0
    for part in out:
        extent = part.shape[dim]
        found.append(f"{self}[{_range(self, dim, start, start + extent)}]")
        start += extent
    return found


@writes("unbind", "unbind_copy")
def _unbind(out: Sequence[Array], self: Value, dim: int = 0) -> Expression:
    return [f"{self}[{':, ' * (dim % self.rank)}{place}]" for place in range(len(out))]


@writes("cat", "concat", "concatenate")
def _cat(out: Sequence[Array], tensors: Sequence[Value], dim: int = 0) -> Expression:
    return f"np.concatenate({word([one for one in tensors if math.prod(one.shape)])}, axis={dim!r})"


@writes("stack")
def _stack(out: Sequence[Array], tensors: Sequence[Value], dim: int = 0) -> Expression:
    return f"np.stack({word(tensors)}, axis={dim!r})"


OPERATORS["flip"] = lambda out, self, dims: f"np.flip({self}, {tuple(dims)!r})"
OPERATORS["roll"] = lambda out, self, shifts, dims=(): (
    f"np.roll({self}, {word(shifts)}, axis={word(dims) if dims else None})"
)
OPERATORS["diagonal"] = lambda out, self, offset=0, dim1=0, dim2=1: f"{self}.diagonal({offset}, {dim1}, {dim2})"
OPERATORS["diag"] = lambda out, self, diagonal=0: f"np.diag({self}, {diagonal})"
OPERATORS["trace"] = lambda out, self: f"np.trace({self})"
OPERATORS["tril"] = lambda out, self, diagonal=0: f"np.tril({self}, {diagonal})"
OPERATORS["triu"] = lambda out, self, diagonal=0: f"np.triu({self}, {diagonal})"


def _on_diagonal(array: Array, offset: int, dim1: int, dim2: int) -> tuple[int, int, str]:
    """Return the two axes of a diagonal of a result, and the text of a mask that is True on the diagonal."""
    rank = len(array.shape)
    first, second = dim1 % rank, dim2 % rank
    rows, columns = (
        f"np.arange({array.shape[axis]}).reshape({tuple(-1 if at == axis else 1 for at in range(rank))!r})"
        for axis in (first, second)
    )
    return first, second, f"({columns} - {rows} == {offset})"


@writes("diag_embed", "diagonal_scatter")
def _diagonal_stored(
    out: Sequence[Array],
    self: Value,
    *args: Any,
    offset: int | None = None,
    dim1: int | None = None,
    dim2: int | None = None,
) -> Expression:
    source = args[0] if args and isinstance(args[0], Value) else None
    numbers: list[Any] = [*args[0 if source is None else 1 :]]
    numbers += (offset, dim1, dim2)[len(numbers) :]
    usual = (0, -2, -1) if source is None else (0, 0, 1)
    begin, rows, columns = (default if one is None else int(one) for one, default in zip(numbers, usual, strict=True))
    values, below = (self, "0.0") if source is None else (source, str(self))
    first, second, mask = _on_diagonal(out[0], begin, rows, columns)
    # An element of the diagonal has the number of its row, or of its column if the diagonal begins below.
    axis, other = (second, first) if begin < 0 else (first, second)
    widths = [(0, 0)] * (values.rank - 1) + [(0, out[0].shape[axis] - values.shape[-1])]
    text = f"padded({values}, {widths!r}, 0.0)" if any(widths[-1]) else str(values)
    places = [at for at in range(len(out[0].shape)) if at not in (first, second)]
    lead = sum(at < axis for at in places)
    moved = f"np.moveaxis({text}, -1, {lead})" if lead != values.rank - 1 else text
    return f"np.where({mask}, np.expand_dims({moved}, {other}), {below})"


@writes("as_strided", "as_strided_copy")
def _as_strided(
    out: Sequence[Array], self: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Expression:
    # PyTorch's views of views name places of the first array, which is the operand only if its rows are dense.
    flat = f"{self}.reshape(-1)" + (f"[{storage_offset}:]" if storage_offset else "")
    steps = ", ".join(f"{one} * {self}.itemsize" for one in stride)
    return f"np.lib.stride_tricks.as_strided({flat}, {tuple(size)!r}, ({steps},))"


@writes("unfold")
def _unfold(out: Sequence[Array], self: Value, dimension: int, size: int, step: int) -> Expression:
    window = f"np.lib.stride_tricks.sliding_window_view({self}, {size}, axis={dimension!r})"
    return window if step == 1 else f"{window}[{':, ' * (dimension % self.rank)}::{step}]"


@writes("pad")
def _pad(
    out: Sequence[Array], self: Value, pad: Sequence[int], mode: str = "constant", value: Any = None
) -> Expression:
    if mode == "constant":
        return _constant_pad(out, self, pad, value)
    return _repeating_pad({"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode], out, self, pad)


def _repeating_pad(mode: str, out: Sequence[Array], self: Value, padding: Sequence[int]) -> Expression:
    """Return the numpy expression for an array with a border that repeats its elements.

    ``mode`` is the mode of ``np.pad``. ``padding`` lists borders as PyTorch does, from the last axis on.
    """
    return f'np.pad({self}, {_widths(self, padding)!r}, mode="{mode}")'


for _rank in (1, 2, 3):
    OPERATORS[f"reflection_pad{_rank}d"] = functools.partial(_repeating_pad, "reflect")
    OPERATORS[f"replication_pad{_rank}d"] = functools.partial(_repeating_pad, "edge")


@writes("constant_pad_nd")
def _constant_pad(out: Sequence[Array], self: Value, pad: Sequence[int], value: Any = None) -> Expression:
    return f"padded({self}, {_widths(self, pad)!r}, {word(value or 0.0)})"


def _widths(value: Value, pad: Sequence[int]) -> list[tuple[int, int]]:
    """Return the border (before, after) of each axis of an array, in elements.

    ``pad`` lists borders as PyTorch does: from the last axis on. Axes that the list does not reach have no border.
    """
    widths = [(0, 0)] * value.rank
    for place in range(len(pad) // 2):
        widths[value.rank - 1 - place] = (pad[2 * place], pad[2 * place + 1])
    return widths


# stores


@writes("slice_scatter")
def _slice_scatter(
    out: Sequence[Array], self: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Expression:
    return f"stored({self}, np.s_[{_range(self, dim, start, end, step)}], {src})"


@writes("select_scatter")
def _select_scatter(out: Sequence[Array], self: Value, src: Value, dim: int, index: int) -> Expression:
    return f"stored({self}, np.s_[{':, ' * (dim % self.rank)}{index}], {src})"


def _filled(out: Sequence[Array], self: Value, value: Any = 0.0, *_: Any, **__: Any) -> Expression:
    """Return the numpy expression for an array of the result's shape in which every element is ``value``."""
    text = word(value)
    if isinstance(value, Value):
        held = text if value.dtype == out[0].dtype else f'cast({text}, "{out[0].dtype}")'
        return f"np.broadcast_to({held}, {out[0].shape!r})"
    return f'np.full({out[0].shape!r}, {text}, "{out[0].dtype}")'


OPERATORS["copy"] = OPERATORS["fill"] = OPERATORS["full_like"] = _filled
OPERATORS["zeros_like"] = OPERATORS["zero"] = lambda out, self, *_, **__: _filled(out, self, 0.0)
OPERATORS["ones_like"] = lambda out, self, *_, **__: _filled(out, self, 1.0)


@writes("masked_fill")
def _masked_fill(out: Sequence[Array], self: Value, mask: Value, value: Any) -> Expression:
    return f"np.where({mask}, {'-1e30' if value == '-inf' else word(value)}, {self})"


# constants


def _new(value: str) -> Writer:
    """Return the writer of an operator whose result is an array with ``value`` in every element."""

    def written(out: Sequence[Array], *_: Any, **__: Any) -> Expression:
        return f'np.full({out[0].shape!r}, {value}, "{out[0].dtype}")'

    return written


for _name in ("zeros", "new_zeros", "empty", "new_empty", "empty_like", "empty_permuted", "empty_strided"):
    OPERATORS[_name] = _new("0.0")
OPERATORS["ones"] = OPERATORS["new_ones"] = _new("1.0")


@writes("full", "new_full")
def _full(out: Sequence[Array], *args: Any, **__: Any) -> Expression:
    return f'np.full({out[0].shape!r}, {word(args[-1])}, "{out[0].dtype}")'


@writes("scalar_tensor")
def _scalar(out: Sequence[Array], value: Any, *_: Any, **__: Any) -> Expression:
    return f'np.full((), {word(value)}, "{out[0].dtype}")'


@writes("arange")
def _arange(out: Sequence[Array], *args: Any, step: Any = 1, **named: Any) -> Expression:
    given = [*args, *(named[one] for one in ("start", "end") if one in named)]
    if len(given) < 3 and step != 1:
        given = [*given, step] if len(given) == 2 else [0, *given, step]
    counted = f"np.arange({', '.join(map(word, given))})"
    return counted if out[0].dtype == "int64" else f'{counted}.astype("{out[0].dtype}")'


@writes("eye")
def _eye(out: Sequence[Array], *_: Any, **__: Any) -> Expression:
    rows, columns = out[0].shape
    return f'np.eye({rows}, {columns}, dtype="{out[0].dtype}")'


# Random numbers. Only functions that draw inputs may use them.


def _random(draw: str) -> Writer:
    """Return the writer of an operator that draws random numbers with the function ``draw`` of ``np.random``."""

    def written(out: Sequence[Array], *_: Any, **__: Any) -> Expression:
        return f'np.random.{draw}({out[0].shape!r}).astype("{out[0].dtype}")'

    return written


RANDOM: dict[str, Writer] = {
    "rand": _random("random_sample"),
    "rand_like": _random("random_sample"),
    "randn": lambda out, *_, **__: f'np.random.standard_normal({out[0].shape!r}).astype("{out[0].dtype}")',
}
"""The writer of each operator that draws random numbers, by the operator's name.

Functions that draw inputs may use these operators. A module that calls such an operator is not lowered.
"""
RANDOM["randn_like"] = RANDOM["randn"]
RANDOM["exponential"] = lambda out, self, lambd=1.0, **_: (
    f'np.random.exponential({1.0 / lambd!r}, {out[0].shape!r}).astype("{out[0].dtype}")'
)
# places of any weights do: a draw of inputs only has to stay in range
RANDOM["multinomial"] = lambda out, self, count, replacement=False, **_: (
    f"np.random.randint(0, {self.shape[-1]}, {out[0].shape!r})"
)


def _randint(out: Sequence[Array], *args: Any, **named: Any) -> Expression:
    bounds = [one for one in args if isinstance(one, int)]
    low, high = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    return f'np.random.randint({low}, {high}, {out[0].shape!r}).astype("{out[0].dtype}")'


RANDOM["randint"] = _randint
RANDOM["randperm"] = lambda out, n, **_: f"np.random.permutation({n})"
RANDOM["bernoulli"] = lambda out, self, *_, **__: (
    f'(np.random.random_sample({out[0].shape!r}) < {self}).astype("{out[0].dtype}")'
)


# rows by number


@writes("embedding")
def _embedding(out: Sequence[Array], weight: Value, indices: Value, *_: Any, **__: Any) -> Expression:
    return f"{weight}[{indices}]"


@writes("index", "_unsafe_index")
def _index(out: Sequence[Array], self: Value, indices: Sequence[Value | None]) -> Expression:
    return f"{self}[{', '.join(':' if one is None else str(one) for one in indices)}]"


OPERATORS["index_select"] = lambda out, self, dim, index: f"np.take({self}, {index}, axis={dim!r})"


def _among(self: Value, dim: int, index: Value) -> str:
    """Return the text of an index that selects elements of an array by ``index`` along axis ``dim``.

    The index has an entry for each axis. As in ``torch.gather``, the entries of the other axes are the elements' own
    positions in ``index``.
    """
    every = []
    for axis, extent in enumerate(index.shape):
        cut = tuple(extent if axis == other else 1 for other in range(index.rank))
        own = f"np.broadcast_to(np.arange({extent}).reshape({cut!r}), {index.shape!r})"
        every.append(str(index) if axis == dim % self.rank else own)
    return f"({', '.join(every)},)"


@writes("scatter", "scatter_add")
def _scatter(
    out: Sequence[Array], self: Value, dim: int, index: Value, src: Any, reduce: str | None = None, *, by: str = ""
) -> Expression:
    if reduce not in (None, "add"):
        raise NotLowered(f"a scatter with reduce={reduce!r} is not lowered; {_BY_PRODUCTS}")
    if isinstance(src, Value) and src.shape != index.shape:
        src = f"{src}[{', '.join(f':{extent}' for extent in index.shape)}]"
    return f"with_places({self}, 0, {_among(self, dim, index)}, {word(src) if not isinstance(src, str) else src}, by={(by or reduce or '')!r})"


OPERATORS["scatter_add"] = functools.partial(_scatter, by="add")
_COMBINED = {"sum": "add", "mean": "add", "amax": "maximum", "amin": "minimum"}
"""The numpy function that combines values at equal positions, by PyTorch's name of the reduction."""
_BY_PRODUCTS = "sums, means, amax and amin are: for products of positive values, add their logarithms"


def _combined(out: Array, self: Value, reduce: str, include_self: bool, stored: Callable[[str, str, str], str]) -> str:
    """Return the numpy expression for an array in which values at equal positions are combined by ``reduce``.

    ``stored`` is a function of the source texts of the array, of the values, and of the numpy function that combines
    two values. ``stored`` returns the expression of a store. It gets empty text for the values where it is to store
    the operator's own operand.
    """
    if reduce not in _COMBINED:
        raise NotLowered(f"a reduction of equal positions by {reduce!r} is not lowered; {_BY_PRODUCTS}")
    if reduce == "mean" and not out.dtype.startswith(("float", "bfloat")):
        raise NotLowered("a mean of whole numbers at equal positions is not lowered; convert them to float32")
    by, begun = _COMBINED[reduce], str(self)
    counts = stored(f"np.zeros({self.shape!r}, {self}.dtype)", "1.0", "add")
    if not include_self:
        own = {"add": "0.0", "maximum": "-np.inf", "minimum": "np.inf"}[by]
        begun = f"np.where({counts} > 0, {own}, {self})"
    found = stored(begun, "", by)
    if reduce != "mean":
        return found
    return f"{found} / np.maximum({counts}{' + 1.0' if include_self else ''}, 1.0)"


@writes("scatter_reduce")
def _scatter_reduce(
    out: Sequence[Array], self: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Expression:
    values = str(src) if src.shape == index.shape else f"{src}[{', '.join(f':{extent}' for extent in index.shape)}]"

    def stored(begun: str, given: str, by: str) -> str:
        return f"with_places({begun}, 0, {_among(self, dim, index)}, {given or values}, by={by!r})"

    return _combined(out[0], self, reduce, include_self, stored)


@writes("index_reduce")
def _index_reduce(
    out: Sequence[Array], self: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Expression:
    def stored(begun: str, given: str, by: str) -> str:
        rows = str(source) if not given else f"np.full({source.shape!r}, {given}, {self}.dtype)"
        return f"with_rows({begun}, {dim!r}, {index}, {rows}, by={by!r})"

    return _combined(out[0], self, reduce, include_self, stored)


@writes("_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(
    out: Sequence[Array],
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Expression:
    if mode == 2 or padding_idx >= 0 or indices.rank != 1:
        raise NotLowered(
            "an embedding bag of the greatest values, or with padding_idx, is not lowered; call functional.embedding, then reduce"
        )
    starts = f"{offsets}[:-1]" if include_last_offset else str(offsets)
    scale = "None" if per_sample_weights is None else str(per_sample_weights)
    return [f"bags({weight}, {indices}, {starts}, {scale}, {mode == 1!r})"] + ["None"] * (len(out) - 1)


@writes("searchsorted")
def _searched(
    out: Sequence[Array],
    sorted_sequence: Value,
    self: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Expression:
    if sorter is not None:
        raise NotLowered("searchsorted with sorter is not lowered; sort the values first: values.gather(-1, sorter)")
    compared = "<=" if right or side == "right" else "<"
    # The place of a value is the number of bounds below.
    bounds = f"{sorted_sequence}[..., None, :]" if sorted_sequence.rank > 1 else str(sorted_sequence)
    value = f"{self}[..., None]" if isinstance(self, Value) else word(self)
    return f'({bounds} {compared} {value}).sum(axis=-1).astype("{out[0].dtype}")'


@writes("bucketize")
def _bucketize(
    out: Sequence[Array], self: Any, boundaries: Value, out_int32: bool = False, right: bool = False
) -> Expression:
    return _searched(out, boundaries, self, right=right)


OPERATORS["gather"] = lambda out, self, dim, index, **_: f"np.take_along_axis({self}, {index}, axis={dim!r})"
OPERATORS["index_copy"] = lambda out, self, dim, index, source: f"with_rows({self}, {dim!r}, {index}, {source}, by='')"
OPERATORS["index_add"] = lambda out, self, dim, index, source, alpha=1: (
    f"with_rows({self}, {dim!r}, {index}, {source if alpha == 1 else f'{source} * {alpha!r}'}, by='add')"
)


@writes("index_put", "_unsafe_index_put")
def _index_put(
    out: Sequence[Array], self: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Expression:
    given = [one for one in indices if one is not None]
    lead = next(at for at, one in enumerate(indices) if one is not None)
    if any(one.dtype == "bool" for one in given):
        if len(given) > 1 or lead or accumulate or values.shape:
            raise NotLowered("a store of arrays by a mask is not lowered; use torch.where")
        mask = f"{given[0]}.reshape({(*given[0].shape, *(1,) * (self.rank - given[0].rank))!r})"
        return f"np.where({mask}, {values}, {self})"
    if None in indices[lead:]:
        raise NotLowered(
            "a store by index arrays on axes that are not neighbors is not lowered; "
            "permute the array first, so that these axes are neighbors"
        )
    return f"with_places({self}, {lead}, {word(given)}, {values}, by={('add' if accumulate else '')!r})"


@writes("put")
def _put(out: Sequence[Array], self: Value, index: Value, source: Value, accumulate: bool = False) -> Expression:
    by = "add" if accumulate else ""
    rows = f"{self}.reshape(-1), 0, {index}.reshape(-1), {source}.reshape(-1)"
    return f"with_rows({rows}, by={by!r}).reshape({self.shape!r})"


@writes("masked_scatter")
def _masked_scatter(out: Sequence[Array], self: Value, mask: Value, source: Value) -> Expression:
    # The n-th True of the mask gets the n-th element of the source.
    seen = f"np.broadcast_to({mask}, {out[0].shape!r}).reshape(-1)"
    places = f'np.maximum(np.cumsum({seen}.astype("int32")) - 1, 0)'
    return f"np.where({mask}, {source}.reshape(-1)[{places}].reshape({out[0].shape!r}), {self})"


@writes("one_hot")
def _one_hot(out: Sequence[Array], self: Value, num_classes: int = -1) -> Expression:
    return f'({self}[..., None] == np.arange({out[0].shape[-1]})).astype("{out[0].dtype}")'


# norms


def _scaled(text: str, value: Value, weight: Value | None, bias: Value | None, channels: bool) -> str:
    """Return the text of the expression ``text`` times the weight, plus the bias. None stands for no weight or bias.

    If ``channels`` is True, weight and bias have one element for each position of axis 1. Else their axes are the last axes of ``value``.
    """

    def shaped(one: Value) -> str:
        return f"{one}.reshape({(1, -1, *(1,) * (value.rank - 2))!r})" if channels and value.rank != 2 else str(one)

    text += f" * {shaped(weight)}" if weight is not None else ""
    return text + (f" + {shaped(bias)}" if bias is not None else "")


@writes("layer_norm", "native_layer_norm")
def _layer_norm(
    out: Sequence[Array],
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Expression:
    axes = tuple(range(-len(normalized_shape), 0))
    text = _scaled(f"normalized({input}, {axes!r}, {eps!r})", input, weight, bias, channels=False)
    return [text] + ["None"] * (len(out) - 1)


@writes("rms_norm", "_fused_rms_norm")
def _rms_norm(
    out: Sequence[Array], input: Value, shape: Sequence[int], weight: Value | None = None, eps: float | None = None
) -> Expression:
    axes = tuple(range(-len(shape), 0))
    least = 1.1920928955078125e-07 if eps is None else eps
    text = f"root_mean_square_normalized({input}, {axes!r}, {least!r})"
    return [text + (f" * {weight}" if weight is not None else "")] + ["None"] * (len(out) - 1)


def _grouped(
    out: Sequence[Array], value: Value, groups: int, weight: Value | None, bias: Value | None, eps: float
) -> Expression:
    """Return the numpy expressions of a group norm over ``groups`` groups of channels."""
    batch, channels, *places = value.shape
    cut = (batch, groups, channels // groups, *places)
    axes = tuple(range(2, len(cut)))
    text = f"normalized({value}.reshape({cut!r}), {axes!r}, {eps!r}).reshape({value.shape!r})"
    return [_scaled(text, value, weight, bias, channels=True)] + ["None"] * (len(out) - 1)


OPERATORS["group_norm"] = lambda out, input, num_groups, weight=None, bias=None, eps=1e-5, *_: _grouped(
    out, input, num_groups, weight, bias, eps
)
OPERATORS["native_group_norm"] = lambda out, input, weight, bias, n, c, hxw, group, eps: _grouped(
    out, input, group, weight, bias, eps
)


@writes("instance_norm")
def _instance_norm(
    out: Sequence[Array],
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Expression:
    if not use_input_stats:
        return _channel_normalized(out, input, weight, bias, running_mean, running_var, eps)
    axes = tuple(range(2, input.rank))
    return [_scaled(f"normalized({input}, {axes!r}, {eps!r})", input, weight, bias, channels=True)]


def _channel_normalized(
    out: Sequence[Array],
    value: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    eps: float,
) -> Expression:
    """Return the numpy expressions of a norm that uses the given mean and variance of each channel."""
    cut = (1, -1, *(1,) * (value.rank - 2))
    text = f"({value} - {mean}.reshape({cut!r})) / np.sqrt({variance}.reshape({cut!r}) + {eps!r})"
    return [_scaled(text, value, weight, bias, channels=True)] + ["None"] * (len(out) - 1)


def _batch_normalized(
    out: Sequence[Array], value: Value, weight: Value | None, bias: Value | None, eps: float
) -> Expression:
    """Return the numpy expressions of a batch norm that computes each channel's mean and variance from the batch."""
    axes = (0, *range(2, value.rank))
    text = _scaled(f"normalized({value}, {axes!r}, {eps!r})", value, weight, bias, channels=True)
    return [text] + ["None"] * (len(out) - 1)


@writes(
    "batch_norm",
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_batch_norm_with_update_functional",
    "cudnn_batch_norm",
)
def _batch_norm(
    out: Sequence[Array],
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    *_: Any,
) -> Expression:
    if training or running_mean is None:
        return _batch_normalized(out, input, weight, bias, eps)
    return _channel_normalized(out, input, weight, bias, running_mean, running_var, eps)


OPERATORS["_native_batch_norm_legit_no_training"] = OPERATORS["_batch_norm_no_update"] = (
    lambda out, input, weight, bias, running_mean, running_var, momentum, eps: _channel_normalized(
        out, input, weight, bias, running_mean, running_var, eps
    )
)


# convolutions and pooling


def _every(value: Any, rank: int) -> tuple[int, ...]:
    """Return one value for each of ``rank`` axes. A single value is repeated for all axes."""
    given = (value,) if isinstance(value, int) else tuple(value)
    return given * rank if len(given) == 1 else given


def _batched(value: Value, weight: Value) -> tuple[str, str]:
    """Return the text of an image with a batch axis, and the text of an index that removes an added batch axis.

    The index is "" if the image has a batch axis already, so that its rank is the weight's rank.
    """
    return (str(value), "") if value.rank == weight.rank else (f"{value}[None]", "[0]")


@writes("conv1d", "conv2d", "conv3d")
def _conv(
    out: Sequence[Array],
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Expression:
    rank = weight.rank - 2
    steps, apart = _every(stride, rank), _every(dilation, rank)
    if padding == "same":
        totals = [d * (n - 1) for n, d in zip(weight.shape[2:], apart, strict=True)]
        borders = [(total // 2, total - total // 2) for total in totals]
    else:
        borders = [(edge, edge) for edge in _every(0 if padding == "valid" else padding, rank)]
    given, alone = _batched(input, weight)
    return f"convolution({given}, {weight}, {bias}, {steps!r}, {borders!r}, {apart!r}, {groups}){alone}"


@writes("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(
    out: Sequence[Array],
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Expression:
    rank = weight.rank - 2
    each = [_every(one, rank) for one in (stride, padding, output_padding, dilation)]
    given, alone = _batched(input, weight)
    return f"transposed_convolution({given}, {weight}, {bias}, {', '.join(map(repr, each))}, {groups}){alone}"


@writes("convolution")
def _convolution(
    out: Sequence[Array],
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Expression:
    if transposed:
        return _conv_transpose(out, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(out, input, weight, bias, stride, padding, dilation, groups)


def _borders(
    value: Value, kernel: Sequence[int], stride: Sequence[int], padding: Any, apart: Sequence[int], out: Array
) -> list[tuple[int, int]]:
    """Return the border (before, after) of each pooled axis, in elements.

    The border at the end is wider than ``padding`` if the result includes a last window that is not full (``ceil_mode``).
    """
    rank = len(kernel)
    edges = _every(padding, rank)
    found = []
    for place, (n, s, p, d) in enumerate(zip(kernel, stride, edges, apart, strict=True)):
        needed = (out.shape[place - rank] - 1) * s + d * (n - 1) + 1
        found.append((p, max(p, needed - value.shape[place - rank] - p)))
    return found


def _max_pool(rank: int) -> Writer:
    """Return the writer of a max pooling over ``rank`` axes."""

    def written(
        out: Sequence[Array],
        self: Value,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Expression:
        kernel = _every(kernel_size, rank)
        steps, apart = _every(stride or kernel, rank), _every(dilation, rank)
        borders = _borders(self, kernel, steps, padding, apart, out[0])
        how = f"({self}, {kernel!r}, {steps!r}, {borders!r}, {apart!r})"
        return f"pooled_max{how}" if len(out) == 1 else [f"pooled_max{how}", f"pooled_places{how}"]

    return written


def _avg_pool(rank: int) -> Writer:
    """Return the writer of an average pooling over ``rank`` axes."""

    def written(
        out: Sequence[Array],
        self: Value,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Expression:
        kernel = _every(kernel_size, rank)
        steps = _every(stride or kernel, rank)
        edges = _every(padding, rank)
        if divisor_override is None and (ceil_mode or (not count_include_pad and any(edges))):
            borders = _borders(self, kernel, steps, padding, (1,) * rank, out[0])
            reach = [(edge, edge) if count_include_pad else (0, 0) for edge in edges]
            return f"pooled_mean_within({self}, {kernel!r}, {steps!r}, {borders!r}, {reach!r})"
        borders = _borders(self, kernel, steps, padding, (1,) * rank, out[0])
        return f"pooled_mean({self}, {kernel!r}, {steps!r}, {borders!r}, {divisor_override or math.prod(kernel)})"

    return written


def _adaptive(rank: int, fold: str) -> Writer:
    """Return the writer of an adaptive pooling over ``rank`` axes. ``fold`` is ``mean`` or ``max``."""

    def written(out: Sequence[Array], self: Value, output_size: Any) -> Expression:
        text = f'adaptively_pooled({self}, {out[0].shape[-rank:]!r}, "{fold}")'
        return [text] + ["None"] * (len(out) - 1)

    return written


for _rank in (1, 2, 3):
    OPERATORS[f"max_pool{_rank}d"] = OPERATORS[f"max_pool{_rank}d_with_indices"] = _max_pool(_rank)
    OPERATORS[f"avg_pool{_rank}d"] = _avg_pool(_rank)
    OPERATORS[f"adaptive_avg_pool{_rank}d"] = OPERATORS[f"_adaptive_avg_pool{_rank}d"] = _adaptive(_rank, "mean")
    OPERATORS[f"adaptive_max_pool{_rank}d"] = _adaptive(_rank, "max")


def _scale_factors(value: Value, given: Sequence[Any]) -> list[Any]:
    """Return the factor by which each axis of an image is enlarged. None stands for the ratio of the sizes.

    ``given`` are the operands for factors: a list of them, or one for each axis.
    """
    each = next((one for one in given if isinstance(one, list | tuple)), given)
    return [*each, *[None] * (value.rank - 2 - len(each))]


def _nearest(
    out: Sequence[Array], self: Value, output_size: Any, *scales: Any, middle: bool, **named: Any
) -> Expression:
    """Return the numpy expression for an enlarged or reduced image. Each new pixel has the value of the nearest old
    pixel.

    If ``middle`` is True, the distance is measured between the centers of pixels, else between their first edges.
    """
    text = str(self)
    factors = _scale_factors(self, [*scales, *named.values()])
    for axis, factor in zip(range(2, self.rank), factors, strict=True):
        old, new = self.shape[axis], out[0].shape[axis]
        # PyTorch computes the places in float32.
        step = np.float32(1.0 / factor) if factor else np.float32(old) / np.float32(new)
        places = [min(int((np.float32(at) + np.float32(0.5 * middle)) * step), old - 1) for at in range(new)]
        if places == list(range(old)):
            continue
        if new % old == 0 and places == [at // (new // old) for at in range(new)]:
            text = f"np.repeat({text}, {new // old}, axis={axis})"
        elif len(apart := {b - a for a, b in itertools.pairwise(places)}) == 1 and apart != {0}:
            text = f"{text}[{':, ' * axis}{places[0]}:{places[-1] + 1}:{apart.pop()}]"
        else:
            text = f"np.take({text}, {places!r}, axis={axis})"
    return text


for _rank in (1, 2, 3):
    OPERATORS[f"upsample_nearest{_rank}d"] = functools.partial(_nearest, middle=False)
    OPERATORS[f"_upsample_nearest_exact{_rank}d"] = functools.partial(_nearest, middle=True)


def _antialiased(cubic: bool) -> Writer:
    """Return the writer of a resized image without aliases, by cubic curves if ``cubic`` is True, else by triangles."""

    def written(
        out: Sequence[Array], input: Value, output_size: Any, align_corners: bool, *scales: Any, **named: Any
    ) -> Expression:
        if align_corners:
            raise NotLowered("an antialiased image with align_corners=True is not lowered; set align_corners=False")
        text = str(input)
        factors = _scale_factors(input, [*scales, *named.values()])
        for axis, factor in zip(range(2, input.rank), factors, strict=True):
            old, new = input.shape[axis], out[0].shape[axis]
            step = 1.0 / factor if factor else old / new
            if old != new or step != 1.0:
                text = f"smoothed({text}, {axis}, {new}, {step!r}, {cubic!r})"
        return text

    return written


OPERATORS["_upsample_bilinear2d_aa"], OPERATORS["_upsample_bicubic2d_aa"] = _antialiased(False), _antialiased(True)


@writes("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def _interpolated(
    out: Sequence[Array], input: Value, output_size: Any, align_corners: bool, *scales: Any, **named: Any
) -> Expression:
    factors = _scale_factors(input, [*scales, *named.values()])
    text = str(input)
    for axis, factor in zip(range(2, input.rank), factors, strict=True):
        old, new = input.shape[axis], out[0].shape[axis]
        if align_corners:
            step = (old - 1) / (new - 1) if new > 1 else 0.0
        else:
            step = 1.0 / factor if factor else old / new
        if old != new or step != 1.0:
            text = f"interpolated({text}, {axis}, {new}, {step!r}, {align_corners!r})"
    return text


@writes("cdist", "_cdist_forward", "_euclidean_dist")
def _cdist(out: Sequence[Array], x1: Value, x2: Value, p: Any = 2.0, compute_mode: int | None = None) -> Expression:
    p = float(p)
    if p == 0.0:
        raise NotLowered("torch.cdist with p=0 is not lowered; count the differences with (a != b).sum()")
    many = x1.shape[-2] > _MOST_ROWS_BY_DIFFERENCE or x2.shape[-2] > _MOST_ROWS_BY_DIFFERENCE
    if p == 2.0 and (compute_mode == 1 or (many and compute_mode != 2)):
        return f"distances_by_products({x1}, {x2})"
    return f"distances({x1}, {x2}, {word(p)})"


@writes("_pdist_forward")
def _pdist(out: Sequence[Array], self: Value, p: float = 2.0) -> Expression:
    _compares_all("pdist", Value("", Array(self.shape[:1], self.dtype)), 0, "call torch.cdist")
    rows = ", ".join(f"apart[{at}, {at + 1}:]" for at in range(self.shape[0] - 1))
    return f"(lambda apart: np.concatenate(({rows},), axis=0))(distances({self}, {self}, {word(float(p))}))"


@writes("col2im")
def _col2im(
    out: Sequence[Array],
    self: Value,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Expression:
    given = self if self.rank == 3 else f"{self}[None]"
    each = ", ".join(repr(_every(one, 2)) for one in (output_size, kernel_size, dilation, padding, stride))
    return f"folded({given}, {each}).reshape({out[0].shape!r})"


@writes("_trilinear")
def _trilinear(
    out: Sequence[Array],
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Expression:
    letters = "abcdefghijklmnopqrstuvwxyz"[: i1.rank + len(expand1)]
    spelled = [
        "".join(one for at, one in enumerate(letters) if at not in apart)
        for apart in (expand1, expand2, expand3, sumdim)
    ]
    return _einsum(out, f"{','.join(spelled[:3])}->{spelled[3]}", [i1, i2, i3])


@writes("pixel_shuffle")
def _pixel_shuffle(out: Sequence[Array], self: Value, upscale_factor: int) -> Expression:
    *batch, channels, height, width = self.shape
    by, lead = upscale_factor, len(self.shape) - 3
    cut = (*batch, channels // by**2, by, by, height, width)
    order = (*range(lead), lead, lead + 3, lead + 1, lead + 4, lead + 2)
    return f"{self}.reshape({cut!r}).transpose({order!r}).reshape({out[0].shape!r})"


@writes("channel_shuffle")
def _channel_shuffle(out: Sequence[Array], self: Value, groups: int) -> Expression:
    batch, channels, *places = self.shape
    cut = (batch, groups, channels // groups, *places)
    return f"{self}.reshape({cut!r}).swapaxes(1, 2).reshape({self.shape!r})"


# attention, losses, recurrence


@writes("scaled_dot_product_attention")
def _attention(
    out: Sequence[Array],
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expression:
    if dropout_p:
        raise NotLowered("an attention with dropout is random: it is not lowered; export the module in eval mode")
    by = query.shape[-1] ** -0.5 if scale is None else scale
    mask = str(attn_mask)
    if attn_mask is not None and attn_mask.dtype == "bool":
        mask = f"np.where({attn_mask}, 0.0, -1e30)"
    return f"attention({query}, {key}, {value}, {mask}, {is_causal!r}, {by!r})"


def _distance(form: str, out: Sequence[Array], self: Value, target: Value, reduction: int = 1) -> Expression:
    """Return the numpy expression of a loss that depends on the difference between an array and its target.

    ``form`` is the loss of one element, with ``{0}`` for the difference.
    """
    return f"folded_loss({form.format(f'({self} - {target})')}, {reduction})"


OPERATORS["mse_loss"] = lambda out, self, target, reduction=1: _distance("np.square{0}", out, self, target, reduction)
OPERATORS["l1_loss"] = lambda out, self, target, reduction=1: _distance("np.abs{0}", out, self, target, reduction)


@writes("smooth_l1_loss")
def _smooth_l1(out: Sequence[Array], self: Value, target: Value, reduction: int = 1, beta: float = 1.0) -> Expression:
    return _rounded_corner(self, target, beta, 1.0 / beta, reduction)


@writes("huber_loss")
def _huber(out: Sequence[Array], self: Value, target: Value, reduction: int = 1, delta: float = 1.0) -> Expression:
    return _rounded_corner(self, target, delta, 1.0, reduction)


def _rounded_corner(self: Value, target: Value, corner: float, curve: float, reduction: int) -> Expression:
    """Return the numpy expression of a loss that is quadratic up to the distance ``corner`` and linear beyond.

    ``curve`` is the second derivative of the quadratic part.
    """
    away = f"np.abs({self} - {target})"
    near, far = f"{0.5 * curve!r} * np.square({away})", f"{curve * corner!r} * ({away} - {0.5 * corner!r})"
    return f"folded_loss(np.where({away} < {corner!r}, {near}, {far}), {reduction})"


@writes("kl_div")
def _kl_div(
    out: Sequence[Array], self: Value, target: Value, reduction: int = 1, log_target: bool = False
) -> Expression:
    if log_target:
        return f"folded_loss(np.exp({target}) * ({target} - {self}), {reduction})"
    logs = f"np.log(np.where({target} > 0.0, {target}, 1.0))"
    return f"folded_loss({target} * ({logs} - {self}), {reduction})"


@writes("cross_entropy_loss")
def _cross_entropy(
    out: Sequence[Array],
    self: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Expression:
    # A class below 0 is not drawn, so that it need not be looked for.
    ignored = ignore_index if ignore_index >= 0 else None
    if self.rank == 1:
        self, target = (Value(f"{one}[None]", Array((1, *one.shape), one.dtype)) for one in (self, target))
        reduction = reduction or 2  # the loss of one element is the sum
    return f"cross_entropy({self}, {target}, {weight}, {ignored!r}, {label_smoothing!r}, {reduction})"


@writes("binary_cross_entropy_with_logits")
def _binary(
    out: Sequence[Array], self: Value, target: Value, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Expression:
    text = f"softplus({self}) - {self} * {target}"
    if pos_weight is not None:
        text = f"(1.0 - {target}) * {self} + (1.0 + ({pos_weight} - 1.0) * {target}) * softplus(-{self})"
    return f"folded_loss({text if weight is None else f'({text}) * {weight}'}, {reduction})"


def _recurrent(kind: str) -> Writer:
    """Return the writer of recurrent layers of ``kind``: ``lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu``."""

    def written(
        out: Sequence[Array],
        input: Value,
        hx: Any,
        params: Sequence[Value],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Expression:
        if train and dropout:
            raise NotLowered("a dropout in training is random: it is not lowered; export the module in eval mode")
        states, cells = (hx[0], hx[1]) if kind == "lstm" else (hx, None)
        text = (
            f'recurrent("{kind}", {input}, {states}, {cells}, {word(list(params))}, {has_biases!r}, {num_layers}, '
            f"{bidirectional!r}, {batch_first!r})"
        )
        return text if kind == "lstm" else f"{text}[:2]"

    return written


OPERATORS |= {"lstm": _recurrent("lstm"), "gru": _recurrent("gru")}
OPERATORS |= {"rnn_tanh": _recurrent("rnn_tanh"), "rnn_relu": _recurrent("rnn_relu")}


# complex numbers: arrays whose last axis has the real and the imaginary part

COMPLEX: dict[str, Writer] = {}
"""The writer of each operator with complex operands or results, by the operator's name.

The text of a complex operand is that of a real array with one more axis: real and imaginary part. Its shape is that of
PyTorch, without this axis.
"""
_LAYOUT = (
    "view reshape _unsafe_view flatten unflatten squeeze unsqueeze permute transpose swapaxes expand slice select narrow "
    "split split_with_sizes chunk unbind cat stack flip roll clone contiguous detach alias sum mean index_select "
    "slice_scatter select_scatter neg resolve_conj resolve_neg lift_fresh_copy t".split()
)
"""Operators that treat both parts of a complex number alike."""


def _of_complex(*names: str) -> Callable[[Writer], Writer]:
    """Return a decorator that registers a writer of complex operators. ``names`` has the names of the operators."""

    def entered(writer: Writer) -> Writer:
        for name in names:
            COMPLEX[name] = writer
            OPERATORS.setdefault(name, writer)
        return writer

    return entered


def _is_complex(value: Any) -> bool:
    return isinstance(value, Value) and value.dtype.startswith("complex")


def _by_parts(name: str) -> Writer:
    """Return the writer of the operator ``name``, which treats both parts of a complex number alike."""

    def pairs(array: Array) -> Array:
        return Array((*array.shape, 2), "float32")

    def wide(one: Any) -> Any:
        if isinstance(one, list):
            return [wide(each) for each in one]
        return Value(one.name, pairs(one.array)) if isinstance(one, Value) and _is_complex(one) else one

    def written(out: Sequence[Array], self: Any, *args: Any, **named: Any) -> Expression:
        first = self[0] if isinstance(self, list) else self
        rank = first.rank + (name in ("stack", "unsqueeze"))
        writer = OPERATORS.get(name, _same)
        if name == "t":
            return f"{self}.swapaxes(0, 1)" if self.rank == 2 else str(self)
        try:
            given = inspect.signature(writer).bind(out, self, *args, **named)
        except TypeError as error:
            raise NotLowered(f"aten.{name} of complex numbers with these operands is not lowered ({error})") from error
        held = {key: wide(one) for key, one in given.arguments.items() if key != "out"}
        for key in held.keys() & {"dim", "dim0", "dim1", "dims"}:
            axes = held[key]
            if axes is None and name in ("sum", "mean"):
                axes = list(range(rank))
            held[key] = [one % rank for one in axes] if isinstance(axes, list | tuple) else axes % rank
        if name in ("sum", "mean") and not held.get("dim"):
            held["dim"] = list(range(rank))
        if name == "permute":
            held["dims"] = [*held["dims"], rank]
        rest = held.pop("_", ())
        extra = held.pop("__", {})
        return writer([pairs(one) for one in out], *held.values(), *rest, **extra)

    return written


for _name in _LAYOUT:
    COMPLEX[_name] = _by_parts(_name)
    OPERATORS.setdefault(_name, _same)


def _pairs(one: Any) -> str:
    """Return the text of an operand as complex numbers. A real array or number gets an imaginary part of 0."""
    return str(one) if _is_complex(one) else f"as_pairs({word(one)}, 0.0)"


@_of_complex("view_as_real", "view_as_complex")
def _viewed(out: Sequence[Array], self: Value) -> Expression:
    return str(self)


COMPLEX |= {
    "real": lambda out, self: f"{self}[..., 0]",
    "imag": lambda out, self: f"{self}[..., 1]",
    "abs": lambda out, self: f"np.hypot({self}[..., 0], {self}[..., 1])",
    "angle": lambda out, self: f"np.arctan2({self}[..., 1], {self}[..., 0])",
    "polar": lambda out, abs, angle: f"as_pairs({abs} * np.cos({angle}), {abs} * np.sin({angle}))",
    "complex": lambda out, real, imag: f"as_pairs({real}, {imag})",
    "exp": lambda out, self: f"np.exp({self}[..., :1]) * as_pairs(np.cos({self}[..., 1]), np.sin({self}[..., 1]))",
    "div": lambda out, self, other: (
        f"pair_quotient({_pairs(self)}, {other})" if _is_complex(other) else f"{self} / {_real_factor(other)}"
    ),
    "matmul": lambda out, self, other: f"pair_matrix_product({_pairs(self)}, {_pairs(other)})",
}
COMPLEX["mm"] = COMPLEX["bmm"] = COMPLEX["matmul"]
for _name in ("real", "imag", "angle", "polar", "complex"):
    OPERATORS.setdefault(_name, COMPLEX[_name])


def _real_factor(one: Any) -> str:
    """Return the text of a real operand that multiplies or divides both parts of complex numbers."""
    return f"{one}[..., None]" if isinstance(one, Value) else word(one)


@_of_complex("mul")
def _complex_mul(out: Sequence[Array], self: Any, other: Any) -> Expression:
    if _is_complex(self) and _is_complex(other):
        return f"pair_product({self}, {other})"
    one, factor = (self, other) if _is_complex(self) else (other, self)
    return f"{one} * {_real_factor(factor)}"


@_of_complex("add", "sub")
def _complex_add(out: Sequence[Array], self: Any, other: Any, alpha: Any = 1) -> Expression:
    return f"{_pairs(self)} + {_pairs(other)}" + (f" * {word(alpha)}" if alpha != 1 else "")


COMPLEX["sub"] = lambda out, self, other, alpha=1: _complex_add(out, self, other, -alpha)


@_of_complex("_conj", "conj", "_conj_physical", "conj_physical")
def _conjugate(out: Sequence[Array], self: Value) -> Expression:
    return f"np.stack([{self}[..., 0], -{self}[..., 1]], axis=-1)"


@_of_complex("to", "_to_copy")
def _complex_cast(out: Sequence[Array], self: Value, *_: Any, **__: Any) -> Expression:
    return _pairs(self) if out[0].dtype.startswith("complex") else f"{self}[..., 0]"


def _fourier_factor(count: int, normalization: int) -> float:
    """Return the factor by which a Fourier transform of ``count`` elements is multiplied.

    PyTorch numbers the normalizations: 0 is a factor of 1, 1 is 1 / sqrt(count), and 2 is 1 / count. Raise NotLowered
    if the transform is too long for a matrix.
    """
    if count > _LONGEST_FOURIER:
        raise NotLowered(
            f"a Fourier transform of {count} places is not lowered: it is a product with a square matrix, of up to "
            f"{_LONGEST_FOURIER} rows; transform shorter parts, such as the windows of torch.stft"
        )
    return (1.0, count**-0.5, 1.0 / count)[normalization]


@_of_complex("_fft_r2c")
def _fft_r2c(out: Sequence[Array], self: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Expression:
    *others, last = (one % self.rank for one in dim)
    factor = _fourier_factor(self.shape[last], normalization)
    text = f"fourier_of_real({self}, {last}, {out[0].shape[last]}, {factor!r})"
    return _fft_steps(text, self.shape, others, normalization, -1.0)


def _fft_steps(text: str, shape: Sequence[int], axes: Sequence[int], normalization: int, sign: float) -> str:
    """Return the source of an expression that applies a Fourier transform to the expression ``text`` along each of
    ``axes``.

    ``shape`` is the shape of the array of complex numbers, without the axis of real and imaginary parts.
    """
    for axis in axes:
        text = f"fourier({text}, {axis}, {sign!r}, {_fourier_factor(shape[axis], normalization)!r})"
    return text


@_of_complex("_fft_c2c")
def _fft_c2c(out: Sequence[Array], self: Value, dim: Sequence[int], normalization: int, forward: bool) -> Expression:
    axes = [one % self.rank for one in dim]
    return _fft_steps(str(self), self.shape, axes, normalization, -1.0 if forward else 1.0)


@_of_complex("_fft_c2r")
def _fft_c2r(
    out: Sequence[Array], self: Value, dim: Sequence[int], normalization: int, last_dim_size: int
) -> Expression:
    *others, last = (one % self.rank for one in dim)
    text = _fft_steps(str(self), self.shape, others, normalization, 1.0)
    return f"fourier_to_real({text}, {last}, {last_dim_size}, {_fourier_factor(last_dim_size, normalization)!r})"


def written(
    operator: str, out: Sequence[Array], args: Sequence[Any], named: dict[str, Any], *, drawing: bool
) -> Expression:
    """Return the numpy expression for a call of a PyTorch operator.

    Raise NotLowered if no writer takes the operator with these operands. If ``drawing`` is True, operators that draw
    random numbers are allowed.
    """
    if narrow := next((one.dtype for one in out if one.dtype.startswith("float8")), ""):
        raise NotLowered(f"{narrow} is not lowered; compute in bfloat16 or float32")
    writer = OPERATORS.get(operator) or (RANDOM.get(operator) if drawing else None)
    if any(map(_is_complex, _flat([*args, *named.values()]))) or any(one.dtype.startswith("complex") for one in out):
        writer = COMPLEX.get(operator)
        if writer is None:
            raise NotLowered(
                f"aten.{operator} of complex numbers is not lowered; compute with torch.view_as_real(x)[..., 0] and [..., 1]"
            )
    if writer is None:
        if operator in RANDOM:
            raise NotLowered(f"aten.{operator} is random: it is not lowered; pass its result as an argument of forward")
        if operator == "_local_scalar_dense":
            raise NotLowered("a number that is read from an array, as by item(), is not lowered; leave it an array")
        raise NotLowered(f"aten.{operator} is not lowered; write it with other operators of torch")
    try:
        inspect.signature(writer).bind(out, *args, **named)
    except TypeError as error:
        raise NotLowered(
            f"aten.{operator} with these operands is not lowered ({error}); leave out the argument that is named"
        ) from error
    if operator in _PROMOTING and out[0].dtype in ("bfloat16", "float16"):
        args = _as_narrow(out[0].dtype, args)
    return writer(out, *args, **named)


_PROMOTING = frozenset(
    {*_FORMS, "sub", "rsub", "div", "true_divide", "floor_divide", "pow", "lerp", "addcmul", "cat", "stack"}
)
"""Operators that convert their operands to one dtype. For a narrow float and integers of 16 or more bits, that is the
narrow float in PyTorch, and a wider one in numpy.
"""


def _flat(args: Sequence[Any]) -> list[Any]:
    """Return operands with the elements of lists in place of the lists."""
    return [one for arg in args for one in (arg if isinstance(arg, list) else [arg])]


def _as_narrow(dtype: str, args: Sequence[Any]) -> list[Any]:
    """Return operands in which arrays of integers of 16 or more bits have the dtype of the first operand of ``dtype``."""
    like = next((one for one in _flat(args) if isinstance(one, Value) and one.dtype == dtype), None)
    if like is None:
        return list(args)

    def converted(one: Any) -> Any:
        if isinstance(one, list):
            return [converted(each) for each in one]
        if isinstance(one, Value) and one.dtype in ("int16", "int32", "int64"):
            return Value(f"{one}.astype({like}.dtype)", Array(one.shape, dtype))
        return one

    return [converted(one) for one in args]


FUNCTIONS = {
    name: inspect.getsource(function)
    for name, function in vars(functions).items()
    if inspect.isfunction(function) and function.__module__ == functions.__name__
}
"""Source code of each function in ``functions.py`` that a written reference may call, by the function's name."""


def needed_functions(text: str) -> Iterable[str]:
    """Return the source code of each function of ``functions.py`` that a text calls, directly or through other functions.

    The functions keep the order of their file.
    """
    needed: set[str] = set()
    todo = [text]
    while todo:
        one = todo.pop()
        for name, source in FUNCTIONS.items():
            if name not in needed and re.search(rf"\b{name}\(", one):
                needed.add(name)
                todo.append(source)
    return [source for name, source in FUNCTIONS.items() if name in needed]
