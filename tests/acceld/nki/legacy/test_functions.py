"""Functions of nl and nisa against numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from acceld.nki.errors import LegalityError
from acceld.nki.ir.program import Engine
from acceld.nki.verify.verifier import verify

KERNEL = """
@nki.jit
def kernel({arguments}):
    out = nl.ndarray({shape}, dtype={dtype}, buffer=nl.shared_hbm)
{body}
    return out
"""


def kernel(body: str, *, arguments: str = "x, y", shape: str = "x.shape", dtype: str = "nl.float32") -> str:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return KERNEL.format(arguments=arguments, shape=shape, dtype=dtype, body=lines)


def stored(expression: str) -> str:
    return f"a, b = nl.load(x), nl.load(y)\nnl.store(out, {expression})"


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


UNARY: dict[str, Any] = {
    "abs": np.abs, "arctan": np.arctan, "ceil": np.ceil, "cos": np.cos, "erf": erf, "exp": np.exp, "floor": np.floor,
    "log": np.log, "negative": np.negative, "reciprocal": np.reciprocal, "relu": lambda v: np.maximum(v, 0),
    "rsqrt": lambda v: 1 / np.sqrt(v), "sigmoid": sigmoid, "sign": np.sign, "silu": lambda v: v * sigmoid(v),
    "sin": np.sin, "softplus": lambda v: np.log1p(np.exp(v)), "sqrt": np.sqrt, "square": np.square, "tan": np.tan,
    "tanh": np.tanh, "trunc": np.trunc, "gelu": lambda v: 0.5 * v * (1 + erf(v / np.sqrt(2))),
    "mish": lambda v: v * np.tanh(np.log1p(np.exp(v))), "erf_dx": lambda v: 2 / np.sqrt(np.pi) * np.exp(-v * v),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(UNARY))
def test_functions_of_one_tile(run_kernel: Any, name: str) -> None:
    x = np.linspace(0.05, 1.4, 64 * 12, dtype=np.float32).reshape(64, 12)
    got = run_kernel(kernel(f"nl.store(out, nl.{name}(nl.load(x)))", arguments="x"), x)
    np.testing.assert_allclose(got, UNARY[name](x.astype(np.float64)), rtol=2e-5, atol=2e-6)


BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "power": np.power, "mod": np.mod, "fmod": np.fmod, "equal": np.equal,
    "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BINARY))
@pytest.mark.parametrize("other", ["b", "b[:, 2:3]", "2.0"])
def test_functions_of_two_tiles_a_column_or_a_number(run_kernel: Any, name: str, other: str) -> None:
    x = np.tile(np.array([0.5, 2, 3, 1, 4.5, 2], np.float32), (64, 2))
    y = np.tile(np.array([2, 2, 1.5, 1, 3, 2.5], np.float32), (64, 2))
    value = {"b": y, "b[:, 2:3]": y[:, 2:3], "2.0": 2.0}[other]
    for expression, want in ((f"nl.{name}(a, {other})", (x, value)), (f"nl.{name}({other}, a)", (value, x))):
        got = run_kernel(kernel(stored(f"nl.copy({expression}, dtype=nl.float32)")), x, y)
        np.testing.assert_allclose(got, BINARY[name](*want).astype(np.float32), rtol=2e-6)


INTEGER = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift, "right_shift": np.right_shift,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(INTEGER))
def test_bitwise_functions(run_kernel: Any, name: str) -> None:
    x = np.arange(64 * 4, dtype=np.int32).reshape(64, 4)
    y = np.full((64, 4), 3, np.int32)
    got = run_kernel(kernel(stored(f"nl.{name}(a, b)"), dtype="nl.int32"), x, y)
    np.testing.assert_array_equal(got, INTEGER[name](x, y))
    np.testing.assert_array_equal(run_kernel(kernel(stored("nl.invert(a)"), dtype="nl.int32"), x, y), ~x)


def test_operators_are_the_functions(run_kernel: Any, random: Any) -> None:
    x, y = random(64, 8), random(64, 8)
    got = run_kernel(kernel(stored("-((a + b) * 2.0 - a / 4.0) + (1.0 - b) * a[:, 0:1]")), x, y)
    np.testing.assert_allclose(got, -((x + y) * 2 - x / 4) + (1 - y) * x[:, :1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("nl.sum(a, axis=1)", lambda x: x.sum(1)),
        ("nl.max(a, axis=[1, 2])", lambda x: x.max((1, 2))),
        ("nl.min(a, axis=-1, keepdims=True)", lambda x: x.min(-1, keepdims=True)),
        ("nl.prod(a, axis=[2])", lambda x: x.prod(2)),
        ("nl.sum(a, axis=[1])", lambda x: x.sum(1)),
        ("nl.max(a, axis=1, keepdims=True)", lambda x: x.max(1, keepdims=True)),
        ("nl.mean(a, axis=(1, 2))", lambda x: x.mean((1, 2))),
        ("nl.var(a, axis=[1, 2])", lambda x: x.var((1, 2))),
        ("nisa.tensor_reduce(np.add, a, axis=[2], negate=True)", lambda x: -x.sum(2)),
        ("nl.softmax(a, axis=[1, 2])", lambda x: np.exp(x) / np.exp(x).sum((1, 2), keepdims=True)),
        ("nl.all(nl.greater(a, -0.5), axis=[1, 2], dtype=nl.float32)", lambda x: (x > -0.5).all((1, 2))),
    ],
)
def test_reductions_over_free_axes(run_kernel: Any, random: Any, expression: str, want: Any) -> None:
    x = random(32, 3, 5)
    value = np.asarray(want(x), np.float32)
    value = value.reshape(32, -1) if value.ndim == 1 else value
    got = run_kernel(kernel(f"a = nl.load(x)\nnl.store(out, {expression})", arguments="x", shape=str(value.shape)), x)
    np.testing.assert_allclose(got, value, rtol=2e-5, atol=2e-6)


def test_the_mask_of_a_permuted_reduction_moves_with_its_axes(run_kernel: Any, random: Any) -> None:
    x = random(32, 6, 5)
    body = """
p, a, b = nl.arange(32)[:, None, None], nl.arange(6)[None, :, None], nl.arange(5)[None, None, :]
tile = nl.load(x)
nl.store(out, nl.sum(tile[p, a, b], axis=1, mask=a < 4))
"""
    got = run_kernel(kernel(body, arguments="x", shape="(32, 5)"), x)
    np.testing.assert_allclose(got, x[:, :4].sum(1), rtol=1e-5, atol=1e-6)


def test_rms_norm_and_select(run_kernel: Any, random: Any) -> None:
    x, w = random(64, 32), random(1, 32)
    got = run_kernel(kernel("nl.store(out, nl.rms_norm(nl.load(x), nl.load(y), axis=[1], n=32))"), x, w)
    np.testing.assert_allclose(got, x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w, rtol=1e-5, atol=1e-5)
    y = random(64, 32)
    got = run_kernel(kernel(stored("nl.where(nl.greater(a, b), a, -1.0)")), x, y)
    np.testing.assert_array_equal(got, np.where(x > y, x, -1))


def test_products_and_transposes(run_kernel: Any, random: Any) -> None:
    x, y = random(96, 64), random(64, 80)
    got = run_kernel(kernel("nl.store(out, nl.matmul(nl.load(x), nl.load(y)))", shape="(96, 80)"), x, y)
    np.testing.assert_allclose(got, x @ y, rtol=1e-4, atol=1e-4)
    for call in ("nl.transpose", "nisa.nc_transpose"):
        got = run_kernel(kernel(f"nl.store(out, {call}(nl.load(x)))", arguments="x", shape="(64, 96)"), x)
        np.testing.assert_array_equal(got, x.T)
    got = run_kernel(kernel("nl.store(out, nl.load_transpose2d(x))", arguments="x", shape="(64, 96)"), x)
    np.testing.assert_array_equal(got, x.T)
    z = random(16, 4, 8)
    got = run_kernel(
        kernel("nl.store(out, nisa.dma_transpose(x, axes=(2, 1, 0)))", arguments="x", shape="(8, 4, 16)"), z
    )
    np.testing.assert_array_equal(got, z.transpose(2, 1, 0))


def test_activation_scales_and_biases_per_partition_and_reduces(run_kernel: Any, random: Any) -> None:
    x, y = random(64, 16), random(64, 2)
    body = """
a, s = nl.load(x), nl.load(y)
total = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
raised = nisa.activation_reduce(nl.exp, a, bias=s[:, 0], scale=s[:, 1:2], reduce_op=np.add, reduce_res=total)
nl.store(out, nisa.tensor_scalar(raised, np.divide, total))
"""
    value = np.exp(x * y[:, 1:] + y[:, :1])
    got = run_kernel(kernel(body), x, y)
    np.testing.assert_allclose(got, value / value.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_fused_scalar_operations(run_kernel: Any, random: Any) -> None:
    x, y = random(64, 16), random(64, 16)
    body = "nisa.tensor_scalar(a, np.subtract, 2.0, True, np.multiply, b[:, 0:1], False)"
    np.testing.assert_allclose(run_kernel(kernel(stored(body)), x, y), (2 - x) * y[:, :1], rtol=1e-6)
    body = "nisa.scalar_tensor_tensor(data=a, op0=np.multiply, operand0=b[:, 1], op1=np.subtract, operand1=b, reverse1=True)"
    np.testing.assert_allclose(run_kernel(kernel(stored(body)), x, y), y - x * y[:, 1:2], rtol=1e-5, atol=1e-6)
    body = """
a = nl.load(x)
top = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
t = nisa.tensor_scalar_reduce(data=a, op0=np.multiply, operand0=3.0, reduce_op=np.max, reduce_res=top)
nl.store(out, nl.subtract(t, top))
"""
    got = run_kernel(kernel(body, arguments="x"), x)
    want = x * np.float32(3)
    np.testing.assert_allclose(got, want - want.max(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize(
    ("ops", "extra", "fold"),
    [
        ("op0=nl.multiply, op1=nl.add, imm0=2.0", "", lambda x: np.cumsum(2 * x, axis=1)),
        ("op0=np.add, op1=np.maximum, imm0=b[:, 0:1]", "", lambda x: np.maximum.accumulate(x, axis=1)),
        (
            "op0=nl.multiply, op1=nl.add, imm0=1.0, imm1=3.0",
            ", reduce_cmd=nisa.reduce_cmd.load_reduce",
            lambda x: 3 + np.cumsum(x, axis=1),
        ),
    ],
)
def test_a_running_fold_is_a_tile_of_its_own(
    run_kernel: Any, random: Any, ops: str, extra: str, fold: Callable[[Any], Any]
) -> None:
    x, y = random(32, 20), random(32, 20)
    got = run_kernel(kernel(stored(f"nisa.tensor_scalar_cumulative(src=a, {ops}{extra})")), x, y)
    want = fold(x + y[:, :1] if "imm0=b" in ops else x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_running_fold_goes_on_in_a_tile_that_is_given(run_kernel: Any, random: Any) -> None:
    x = random(32, 20)
    body = """
a = nl.load(x)
dst = nl.ndarray((32, 20), dtype=nl.float32, buffer=nl.sbuf)
fold = dict(src=a, dst=dst, op0=nl.multiply, op1=nl.add, imm0=1.0, imm1=3.0)
nisa.tensor_scalar_cumulative(**fold, reduce_cmd=nisa.reduce_cmd.load_reduce)
nisa.tensor_scalar_cumulative(**fold, reduce_cmd=nisa.reduce_cmd.reduce)
nl.store(out, dst)
"""
    want = 3 + x.sum(1, keepdims=True) + np.cumsum(x, axis=1)
    np.testing.assert_allclose(run_kernel(kernel(body, arguments="x"), x), want, rtol=1e-4, atol=1e-4)


def test_a_scan_carries_its_initial_value(run_kernel: Any, random: Any) -> None:
    x, y = random(32, 20), random(32, 20)
    got = run_kernel(kernel(stored("nisa.tensor_tensor_scan(a, b, b[:, 0:1], np.multiply, np.add)")), x, y)
    want, state = np.zeros_like(x), y[:, 0]
    for i in range(20):
        state = x[:, i] * state + y[:, i]
        want[:, i] = state
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_statistics_of_pieces_are_merged(run_kernel: Any, random: Any) -> None:
    x = random(64, 1000)
    body = """
a = nl.load(x)
stats = nl.ndarray((64, 12), dtype=np.float32, buffer=nl.sbuf)
for i in nl.affine_range(2):
    stats[:, nl.ds(6 * i, 6)] = nisa.bn_stats(a[:, nl.ds(500 * i, 500)])
nl.store(out, nisa.bn_aggr(stats))
"""
    got = run_kernel(kernel(body, arguments="x", shape="(64, 2)"), x)
    np.testing.assert_allclose(got, np.stack([x.mean(1), x.var(1)], 1), rtol=1e-4, atol=1e-5)


def test_positions_become_values_and_conditions(run_kernel: Any, random: Any) -> None:
    got = run_kernel(
        kernel(
            "p, f = nl.mgrid[0:16, 0:8]\nfor i in nl.affine_range(2):\n"
            "    nl.store(out[i], nisa.iota(100 * i + 8 * p + f, dtype=nl.int32))",
            arguments="x",
            shape="(2, 16, 8)",
            dtype="nl.int32",
        ),
        random(4, 4),
    )
    np.testing.assert_array_equal(got, np.arange(128).reshape(1, 16, 8) + np.array([[[0]], [[100]]]))
    x = random(2, 32, 32)
    body = """
p, f = nl.arange(32)[:, None], nl.arange(32)[None, :]
for i in nl.affine_range(2):
    a = nl.load(x[i])
    nl.store(out[i], nisa.affine_select(pred=(p + 4 * i >= f) & (f > 2), on_true_tile=a, on_false_value=-9.0))
"""
    got = run_kernel(kernel(body, arguments="x"), x)
    p, f = np.mgrid[0:32, 0:32]
    want = np.stack([np.where((p + 4 * i >= f) & (f > 2), x[i], -9) for i in range(2)])
    np.testing.assert_array_equal(got, want)


def test_searches_of_eight(run_kernel: Any) -> None:
    x = np.random.default_rng(3).permuted(np.tile(np.arange(32, dtype=np.float32), (16, 1)), axis=1)
    body = """
a = nl.load(x)
top = nisa.max8(src=a)
nl.store(out[0], top)
nl.store(out[1], nl.copy(nisa.nc_find_index8(data=a, vals=top), dtype=nl.float32))
nl.store(out[2], nisa.nc_match_replace8(data=a, vals=top, imm=-1.0)[:, 0:8])
"""
    got = run_kernel(kernel(body, arguments="x", shape="(3, 16, 8)"), x)
    np.testing.assert_array_equal(got[0], -np.sort(-x, 1)[:, :8])
    np.testing.assert_array_equal(got[1], np.argsort(-x, 1)[:, :8])
    np.testing.assert_array_equal(got[2], np.where(x >= 24, -1, x)[:, :8])


def test_moves_inside_the_chip(run_kernel: Any, random: Any) -> None:
    x, y = random(64, 16), random(64, 16)
    body = """
a, b = nl.load(x), nl.load(y)
test = nl.greater(b, 0.0, dtype=nl.uint8)
nisa.tensor_copy_predicated(src=b, dst=a, predicate=test)
nl.store(out, nisa.tensor_copy(a, engine=nisa.vector_engine))
"""
    np.testing.assert_array_equal(run_kernel(kernel(body), x, y), np.where(y > 0, y, x))
    body = """
a, b = nl.load(x), nl.load(y)
nisa.nc_stream_shuffle(src=a, dst=b, shuffle_mask=[31 - i if i < 16 else 255 for i in range(32)])
nl.store(out, b)
"""
    want = y.copy()
    for group in (0, 32):
        want[group : group + 16] = x[group + 16 : group + 32][::-1]
    np.testing.assert_array_equal(run_kernel(kernel(body), x, y), want)
    body = "nl.store(out, nisa.tensor_partition_reduce(np.add, nl.load(x)))"
    got = run_kernel(kernel(body, arguments="x", shape="(1, 16)"), x)
    np.testing.assert_allclose(got, x.sum(0, keepdims=True), rtol=1e-5, atol=1e-5)
    body = """
a, b = nl.load(x), nl.load(y)
t = nl.ndarray((64, 16), dtype=nl.float32, buffer=nl.sbuf)
nisa.select_reduce(dst=t, predicate=nl.less(a, b, dtype=nl.uint8), on_true=a, on_false=-2.0)
nl.store(out, t)
"""
    np.testing.assert_array_equal(run_kernel(kernel(body), x, y), np.where(x < y, x, -2))


def test_dma_copies_add_into_hbm_and_gather(run_kernel: Any, random: Any) -> None:
    x = random(64, 16)
    body = """
nisa.dma_copy(dst=out, src=x)
nisa.dma_copy(dst=out, src=nl.load(x), dst_rmw_op=np.add)
nl.atomic_rmw(out, nl.load(x), np.add)
"""
    np.testing.assert_allclose(run_kernel(kernel(body, arguments="x"), x), x * 3, rtol=1e-6)
    index = np.random.default_rng(0).integers(0, 16, (64, 5)).astype(np.uint32)
    body = "nl.store(out, nl.gather_flattened(nl.load(x), nl.load(y)))"
    got = run_kernel(kernel(body, shape="(64, 5)"), x, index)
    np.testing.assert_array_equal(got, np.take_along_axis(x, index.astype(np.int64), 1))


def test_constants_and_fills(run_kernel: Any, random: Any) -> None:
    x = random(8, 8)
    body = """
eye = nl.load(nl.shared_identity_matrix(8, dtype=nl.float32))
table = nl.load(nl.shared_constant(np.arange(64).reshape(8, 8)), dtype=nl.float32)
half = nl.full((8, 8), 0.5, dtype=nl.float32) + nl.ones((8, 8), nl.float32)
like = nl.zeros_like(nl.empty_like(eye))
nl.store(out, eye + table * half + like + nisa.memset((8, 8), 3, np.float32))
"""
    want = np.eye(8) + np.arange(64).reshape(8, 8) * 1.5 + 3
    np.testing.assert_array_equal(run_kernel(kernel(body, arguments="x"), x), want)


def test_casts_round_once_to_each_type(run_kernel: Any, random: Any) -> None:
    x = random(16, 32)
    for name in ("bfloat16", "float16", "float8_e4m3"):
        body = f"nl.store(out, nl.static_cast(nl.load(x), nl.{name}))"
        got = run_kernel(kernel(body, arguments="x", dtype=f"nl.{name}"), x)
        np.testing.assert_array_equal(got, x.astype(np.dtype(getattr(ml_dtypes, name, name))).astype(np.float32))


def test_chip_generation_and_limits_are_known_while_tracing(run_kernel: Any, random: Any) -> None:
    body = """
newer = nisa.get_nc_version() >= nisa.nc_version.gen3
assert nl.tile_size.pmax == 128 and nl.fp32.min < -3e38 and nl.finfo(nl.bfloat16).bits == 16
assert x.dtype == nl.float32 == np.float32 and x.dtype.itemsize == x.itemsize == 4 and x.ndim == 2
nl.store(out, nl.full(x.shape, 2.0 if newer else 1.0, dtype=x.dtype))
"""
    x = random(8, 8)
    assert run_kernel(kernel(body, arguments="x"), x)[0, 0] == 1
    assert run_kernel(kernel(body, arguments="x"), x, chip="trn2")[0, 0] == 2


@pytest.mark.parametrize(
    ("expression", "engine"),
    [
        ("nl.exp(a)", Engine.SCALAR),
        ("nl.add(a, b)", Engine.VECTOR),
        ("nl.add(a, 1.0)", Engine.UNKNOWN),
        ("nl.power(a, b)", Engine.GPSIMD),
        ("nisa.tensor_tensor(a, b, np.add, engine=nisa.gpsimd_engine)", Engine.GPSIMD),
        ("nisa.tensor_scalar(a, np.add, 1.0, engine=nisa.engine.vector)", Engine.VECTOR),
        ("nl.copy(a)", Engine.UNKNOWN),
    ],
)
def test_engines_are_the_documented_ones(trace_kernel: Any, random: Any, expression: str, engine: Engine) -> None:
    program = trace_kernel(kernel(stored(expression)), random(8, 8), random(8, 8))
    assert [i.engine for i, _ in program.walk()][2] is engine


def gelu_by_sigmoid(v: Any) -> Any:
    return v * sigmoid(1.702 * v)


def slope(function: Any, v: Any) -> Any:
    return (function(v + 1e-6) - function(v - 1e-6)) / 2e-6


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("nl.gelu_apprx_sigmoid(a)", gelu_by_sigmoid),
        ("nl.gelu_apprx_tanh(a)", lambda v: v / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))),
        ("nl.gelu_dx(a)", lambda v: slope(lambda u: u / 2 * (1 + erf(u / np.sqrt(2))), v)),
        ("nl.silu_dx(a)", lambda v: slope(lambda u: u * sigmoid(u), v)),
        ("nl.logical_not(nl.floor(nl.abs(a)))", lambda v: np.abs(v) < 1),
        ("nl.dropout(a, rate=0.0)", lambda v: v),
        ("nisa.dropout(a, prob=1.0)", lambda v: 0 * v),
        ("nl.expand_dims(a, 1).reshape((128, 512))", lambda v: v),
        ("nl.mod(a, b, np.float32)", lambda v: np.mod(v, 2.0)),
        ("nisa.range_select(on_true_tile=a, comp_op0=np.greater_equal, comp_op1=np.less, bound0=b[:, 0:1], bound1=b[:, 0:1] * 3.0, on_false_value=-5.0)",
         lambda v: np.where((np.arange(512) >= 2) & (np.arange(512) < 6), v, -5)),
        ("nisa.local_gather(a, nl.full((128, 32), 7, nl.uint16))", lambda v: np.repeat(v[:, 7:8], 512, 1)),
    ],
)  # fmt: skip
def test_functions_that_kernels_seldom_use(run_kernel: Any, expression: str, expected: Any) -> None:
    x = np.random.default_rng(5).uniform(-3, 3, (128, 512)).astype(np.float32)
    got = run_kernel(kernel(stored(expression)), x, np.full_like(x, 2), chip="trn2")
    np.testing.assert_allclose(got, expected(x.astype(np.float64)), rtol=2e-5, atol=2e-6)


def test_ready_made_grids_cover_the_tiles_of_a_product(run_kernel: Any, random: Any) -> None:
    body = """
p, f = nl.gemm_grid()
rows, columns = nl.gemm_stationary_grid()
nl.device_print("a tile", nl.load(x[p, f]), mask=p < 3)
nl.store(out[p, f], nl.load(x[p, f]) + 1.0)
nl.store(out[rows, columns], nl.load(x[rows, columns]) - 1.0)
"""
    x = random(128, 512)
    expected = x + 1
    expected[:, :128] = x[:, :128] - 1
    assert np.array_equal(run_kernel(kernel(body, arguments="x"), x), expected)


def test_random_tiles_follow_their_seed_and_segments_have_bounds(run_kernel: Any) -> None:
    x = np.zeros((16, 8), np.float32)
    drawn = [
        run_kernel(kernel(f"nl.random_seed({seed})\nnl.store(out, nl.rand((16, 8)))", arguments="x"), x)
        for seed in (3, 3, 4)
    ]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    ids = np.array([[1, 1, 0, 2, 2, 2]], np.int32)
    bounds = "nl.store(out, nisa.sequence_bounds(segment_ids=nl.load(x)))"
    got = run_kernel(kernel(bounds, arguments="x", shape="(1, 2, 6)", dtype="nl.int32"), ids)
    assert got.tolist() == [[[0, 0, 6, 3, 3, 3], [2, 2, -1, 6, 6, 6]]]


@pytest.mark.parametrize(
    "line",
    [
        "nisa.select_reduce(dst=a, predicate=b, on_true=a, on_false=0.0, dtype=nl.bfloat16)",
        "nisa.tensor_copy_predicated(src=b, dst=a, predicate=b, dtype=nl.bfloat16)",
        "nisa.nc_stream_shuffle(b, a, list(range(32)), dtype=nl.bfloat16)",
    ],
)
def test_a_dtype_beside_a_destination_of_another_type_is_refused(trace_kernel: Any, random: Any, line: str) -> None:
    with pytest.raises(LegalityError, match="its dst is float32") as caught:
        trace_kernel(kernel(f"a, b = nl.load(x), nl.load(y)\n{line}"), random(128, 8), random(128, 8))
    assert caught.value.rule == "dtype"


@pytest.mark.parametrize(
    ("line", "rule", "part"),
    [
        (
            "nl.load(nl.load(x))",
            "address_space",
            "operand 'src' of 'load' to be in address space 'hbm', but got a tile in 'sbuf'",
        ),
        ("nl.exp(x)", "address_space", "operand 'x' of 'exp'"),
        ("nl.load(big)", "partition_limit", "number of partitions 256 exceed architecture limitation of 128"),
        ("nl.ndarray((256, 4), dtype=nl.float32)", "partition_limit", "256"),
        ("nl.load(x.reshape((1024,)))", "partition_limit", "number of partitions 1024"),
        ("nl.ndarray((128,), dtype=nl.float32)", "insufficient_rank", "(128,)"),
        ("nl.ndarray((8, 8), dtype=np.float64)", "dtype", "float64"),
        ("nisa.tensor_tensor(nl.load(x), nl.load(x[0:1]), np.add)", "partition_mismatch", "data2[1, 8]"),
        (
            "nl.matmul(nl.load(x), nl.load(x[0:64, 0:4]), transpose_x=True)",
            "partition_mismatch",
            "contraction|partitions",
        ),
        ("nisa.nc_matmul(nl.load(wide[0:64, 0:129]), nl.load(x[0:64]))", "matmul_shape", "stationary[64, 129]"),
        ("nisa.nc_matmul(nl.load(x[0:64]), nl.load(wide[0:64, 0:513]))", "matmul_shape", "limitation of 512"),
        (
            "nisa.nc_transpose(nl.load(wide[0:64, 0:129]))",
            "transpose_shape",
            "of 'transpose' exceed architecture limitation of 128",
        ),
        ("nl.sum(nl.load(x), axis=0)", "reduce_axis", "partition dimension"),
        ("nisa.tensor_scalar(nl.load(x), np.add, nl.load(x))", "operand_shape", "(128, 1)"),
        ("nisa.tensor_scalar(nl.load(x), np.add, 1.0, op1=np.bitwise_and, operand1=1)", "op_mix", "bitwise_and"),
        ("nisa.activation(op=np.sinh, data=nl.load(x))", "activation_function", "sinh"),
        ("nisa.tensor_tensor(nl.load(x), nl.load(x), np.hypot)", "alu_op", "hypot"),
        ("nisa.bn_stats(nl.load(wide[0:64, 0:513]))", "free_size", "512"),
        ("nisa.max8(src=nl.load(x[:, 0:4]))", "free_size", "8 to 16384"),
        ("nl.store(x[0:64], nl.load(x))", "shape", "[64, 8]"),
        ("nl.load(x).broadcast_to((128, 9))", "shape", "(128, 9)"),
        ("nl.ndarray((4, 4), dtype=nl.float32, buffer=3)", "buffer", "nl.sbuf"),
        ("nisa.nc_stream_shuffle(nl.load(x), nl.load(x), [0] * 31)", "shuffle_mask", "32"),
        ("nl.ndarray((2**20, 2**20), dtype=nl.float32, buffer=nl.hbm)", "hbm_capacity", "GiB"),
    ],
)
def test_a_broken_rule_names_itself_the_line_and_the_operand(
    trace_kernel: Any, random: Any, line: str, rule: str, part: str
) -> None:
    import re

    source = kernel(f"big, wide = y, nl.ndarray((64, 1024), dtype=nl.float32, buffer=nl.hbm)\n{line}")
    with pytest.raises(LegalityError) as caught:
        trace_kernel(source, random(128, 8), random(256, 8))
    assert caught.value.rule == rule
    assert part in str(caught.value) or re.search(part, str(caught.value))
    assert caught.value.line == 12


@pytest.mark.parametrize("grid", [(), (2,)])
def test_iota_of_a_programs_number_is_one_element(run_kernel: Any, grid: tuple[int, ...]) -> None:
    text = """
@nki.jit
def kernel(x):
    head = nl.program_id(0)
    out = nl.ndarray((2, 1, 8), dtype=nl.int32, buffer=nl.shared_hbm)
    label = nisa.iota(head + 5, dtype=nl.int32).reshape((1, 1))
    nl.store(out[head, :, :], nl.add(nl.load(x), label, dtype=nl.int32))
    return out
"""
    x = np.arange(8, dtype=np.int32)[None, :]
    got = run_kernel(text if grid else text.replace("nl.program_id(0)", "1"), x, grid=grid)
    np.testing.assert_array_equal(got[1], x + 6)
    if grid:
        np.testing.assert_array_equal(got[0], x + 5)


@pytest.mark.parametrize("line", ["d = nl.subtract(p, q)", "d = p - q", "p -= q; d = p"])
def test_one_of_two_psum_tiles_is_copied_as_the_legacy_compiler_does(
    run_kernel: Any, trace_kernel: Any, random: Any, line: str
) -> None:
    text = f"""
@nki.jit
def kernel(a, b):
    out = nl.ndarray((16, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.matmul(nl.load(a), nl.load(b), transpose_x=True)
    q = nl.matmul(nl.load(b)[:, 0:16], nl.load(b), transpose_x=True)
    {line}
    nl.store(out, d)
    return out
"""
    a, b = random(64, 16), random(64, 32)
    np.testing.assert_allclose(run_kernel(text, a, b), a.T @ b - b[:, :16].T @ b, rtol=1e-4, atol=1e-4)
    program = trace_kernel(text, a, b)
    assert any("copied to SBUF" in notice.text for notice in program.notices)
    assert not verify(program)
