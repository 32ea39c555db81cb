"""Number formats, arithmetic and activation functions against plain definitions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.nki.execute.activations import ACTIVATIONS, activate, erf
from acceld.nki.ir.numerics import ALU, BITWISE, NUMPY_DTYPES, fold, round_tfloat32, storage_dtype, to_integer, write
from acceld.nki.ir.operations import (
    ACTIVATION_FUNCTIONS,
    ALU_OPS,
    COMPARISONS,
    DTYPE_BYTES,
    LOGIC,
    REDUCE_OPS,
    UNARY_ALU_OPS,
)
from tests.properties import examples

reals = st.floats(-1e6, 1e6, width=32)


def test_every_dtype_of_the_schema_has_a_storage_type_of_its_width() -> None:
    assert NUMPY_DTYPES.keys() == DTYPE_BYTES.keys()
    assert {name: dtype.itemsize for name, dtype in NUMPY_DTYPES.items()} == DTYPE_BYTES


def test_every_alu_operation_and_activation_is_defined() -> None:
    assert ALU.keys() | BITWISE.keys() == ALU_OPS
    assert ACTIVATIONS.keys() | {"invert"} == ACTIVATION_FUNCTIONS


def test_float64_mode_stores_every_float_in_float64_and_keeps_integers() -> None:
    assert storage_dtype("bfloat16", float64=True) == np.float64
    assert storage_dtype("int16", float64=True) == np.int16


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40))
def test_tfloat32_keeps_ten_bits_of_mantissa_rounded_to_even(values: list[float]) -> None:
    x = np.array(values, np.float32)
    rounded = round_tfloat32(x)
    assert not (rounded.view(np.uint32) & 0x1FFF).any()
    finite = np.isfinite(rounded) & np.isfinite(x)
    spacing = np.ldexp(1.0, np.frexp(x[finite].astype(np.float64))[1] - 11)
    assert (np.abs(rounded[finite].astype(np.float64) - x[finite]) <= np.maximum(spacing, 2.0**-136) / 2).all()
    assert np.array_equal(np.isinf(rounded[np.isinf(x)]), np.isinf(x[np.isinf(x)]))


def test_tfloat32_breaks_ties_to_even_and_leaves_nan_alone() -> None:
    half = np.float32(2.0**-11)
    x = np.array([1 + half, 1 + 3 * half, np.nan, -np.inf], np.float32)
    rounded = round_tfloat32(x)
    assert rounded[0] == 1.0
    assert rounded[1] == np.float32(1 + 4 * half)
    assert np.isnan(rounded[2])
    assert rounded[3] == -np.inf


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2"])
def test_narrow_floats_are_rounded_once_when_written(name: str) -> None:
    values = np.random.default_rng(1).standard_normal(500).astype(np.float32)
    target = np.empty(500, NUMPY_DTYPES[name])
    write(target, values, name)
    assert np.array_equal(target, values.astype(NUMPY_DTYPES[name]))
    assert np.abs(target.astype(np.float32) - values).max() > 0


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_floats_written_as_integers_are_rounded_to_the_nearest_and_saturate(name: str) -> None:
    info = np.iinfo(NUMPY_DTYPES[name])
    values = np.array([2.75, 0.5, np.nan, 1e30, -1e30, np.inf, -np.inf], np.float32)
    assert to_integer(values, NUMPY_DTYPES[name]).tolist() == [3, 0, 0, info.max, info.min, info.max, info.min]


def test_erf_agrees_with_the_library_to_the_last_digits() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), np.logspace(-20, 0, 400), -np.logspace(-20, 0, 400)])
    exact = np.array([math.erf(value) for value in x])
    assert np.abs(erf(x) - exact).max() < 1e-15
    nonzero = exact != 0
    assert (np.abs(erf(x) - exact)[nonzero] / np.abs(exact[nonzero])).max() < 1e-14
    assert np.isnan(erf(np.array([np.nan]))).all()
    assert erf(np.array([np.inf, -np.inf])).tolist() == [1.0, -1.0]


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


DEFINITIONS: dict[str, Callable[[float], float]] = {
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: x * _cdf(x),
    "gelu_apprx_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "gelu_apprx_sigmoid": lambda x: x * _sigmoid(1.702 * x),
    "softplus": _softplus,
    "mish": lambda x: x * math.tanh(_softplus(x)),
    "erf": math.erf,
    "exp": math.exp,
    "tanh": math.tanh,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "arctan": math.atan,
    "square": lambda x: x * x,
    "relu": lambda x: max(x, 0.0),
    "abs": abs,
    "negative": lambda x: -x,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "sign": lambda x: float((x > 0) - (x < 0)),
    "identity": lambda x: x,
    "copy": lambda x: x,
    "logical_not": lambda x: float(x == 0),
}


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_activation_in_float64_follows_its_definition(name: str) -> None:
    x = np.concatenate([np.linspace(-12, 12, 301), [0.0]])
    expected = np.array([DEFINITIONS[name](float(value)) for value in x])
    assert np.allclose(activate(name, x), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["log", "sqrt", "rsqrt", "reciprocal"])
def test_activation_on_positive_numbers_follows_its_definition(name: str) -> None:
    x = np.logspace(-5, 5, 101)
    expected = {"log": np.log(x), "sqrt": x**0.5, "rsqrt": x**-0.5, "reciprocal": 1 / x}[name]
    assert np.allclose(activate(name, x), expected, rtol=1e-14)


@pytest.mark.parametrize("name", ["silu", "gelu", "erf", "gelu_apprx_sigmoid"])
def test_dx_functions_are_the_slopes_of_their_functions(name: str) -> None:
    x = np.linspace(-5, 5, 101)
    step = 1e-6
    slope = (activate(name, x + step) - activate(name, x - step)) / (2 * step)
    assert np.allclose(activate(f"{name}_dx", x), slope, atol=1e-8)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activation_in_float32_stays_float32_and_is_close_to_float64(name: str) -> None:
    x = np.linspace(0.05, 6, 200)
    wide, narrow = activate(name, x), activate(name, x.astype(np.float32))
    assert narrow.dtype == np.float32
    assert np.allclose(narrow, wide, rtol=3e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activation_writes_to_the_array_it_is_given(name: str) -> None:
    x = np.linspace(0.1, 3, 20).astype(np.float32)
    expected = activate(name, x)
    buffer = x.copy()
    assert ACTIVATIONS[name](buffer, buffer) is buffer
    assert np.array_equal(buffer, expected)


def test_sigmoid_and_silu_have_exact_limits() -> None:
    with np.errstate(over="ignore"):
        assert activate("sigmoid", np.array([-1000.0, 1000.0], np.float32)).tolist() == [0.0, 1.0]
        assert activate("softplus", np.array([-1000.0, 1000.0], np.float32)).tolist() == [0.0, 1000.0]


PYTHON_ALU: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "max": max,
    "min": min,
    "abs_max": lambda a, b: a if abs(a) > abs(b) else b,
    "abs_min": lambda a, b: a if abs(a) < abs(b) else b,
    "equal": lambda a, b: float(a == b),
    "not_equal": lambda a, b: float(a != b),
    "less": lambda a, b: float(a < b),
    "less_equal": lambda a, b: float(a <= b),
    "greater": lambda a, b: float(a > b),
    "greater_equal": lambda a, b: float(a >= b),
    "logical_and": lambda a, b: float(bool(a) and bool(b)),
    "logical_or": lambda a, b: float(bool(a) or bool(b)),
    "logical_xor": lambda a, b: float(bool(a) != bool(b)),
    "abs": lambda a, b: abs(a),
    "bypass": lambda a, b: a,
}


@pytest.mark.parametrize("name", sorted(PYTHON_ALU))
@given(a=reals, b=reals)
@examples(10)
def test_alu_operation_agrees_with_python_in_float64(name: str, a: float, b: float) -> None:
    out = np.empty(1)
    result = ALU[name](np.array([a]), np.array([b]), out)
    assert result is out or name == "bypass"
    assert out[0] == PYTHON_ALU[name](a, b)
    alone = ALU[name](np.array([a]), np.array([b]), None)
    assert alone.dtype.kind == "f"
    assert alone[0] == out[0]


def test_mod_has_the_sign_of_the_divisor_and_fmod_of_the_dividend() -> None:
    a, b = np.array([-7.0]), np.array([3.0])
    assert ALU["mod"](a, b, None)[0] == 2.0
    assert ALU["fmod"](a, b, None)[0] == -1.0
    assert ALU["power"](b, np.array([2.0]), None)[0] == 9.0
    assert ALU["divide"](a, b, None)[0] == -7 / 3
    assert ALU["rsqrt"](np.array([4.0]), b, None)[0] == 0.5


@pytest.mark.parametrize("name", sorted(ALU.keys() - COMPARISONS - LOGIC))
@pytest.mark.parametrize("other", [0.0, 1.0, -2.0, np.inf, np.nan])
def test_only_comparisons_and_logic_make_a_number_of_nan(name: str, other: float) -> None:
    one, two = np.array([np.nan], np.float32), np.array([other], np.float32)
    assert np.isnan(ALU[name](one, two, None)).all()
    if name not in UNARY_ALU_OPS | {"bypass"}:
        assert np.isnan(ALU[name](two, one, None)).all()
        assert np.isnan(ALU[name](two.copy(), one, np.empty_like(two))).all()


@pytest.mark.parametrize("op", sorted(REDUCE_OPS))
def test_fold_over_an_axis_is_python_folding_in_order(op: str) -> None:
    rng = np.random.default_rng(3)
    bits = op.startswith("bitwise")
    values = rng.integers(0, 200, (4, 6)) if bits else rng.integers(-2, 3, (4, 6)).astype(np.float64)
    function = BITWISE[op] if bits else lambda a, b: ALU[op](a, b, None)
    expected = values[:, 0]
    for column in range(1, 6):
        expected = function(expected, values[:, column])
    assert np.array_equal(fold(op, values, (1,))[:, 0], expected.astype(values.dtype))
    assert fold(op, values, (1,)).shape == (4, 1)


def test_subtract_folds_two_axes_in_row_major_order() -> None:
    values = np.arange(24.0).reshape(2, 3, 4)
    flat = values.reshape(2, 12)
    assert fold("subtract", values, (1, 2))[:, 0, 0].tolist() == [row[0] - sum(row[1:]) for row in flat.tolist()]


def test_poison_bytes_are_nan_in_every_float_format() -> None:
    for name in ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2"):
        dtype = NUMPY_DTYPES[name]
        poison = np.ndarray((1,), dtype, np.full(4, 0xFF, np.uint8))
        assert np.isnan(poison.astype(np.float32)).all()
