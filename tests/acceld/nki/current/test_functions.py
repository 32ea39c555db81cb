"""Every function of the current API against numpy; none is missing."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from acceld.nki.errors import LegalityError
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.current.surface import surface
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.verify.verifier import verify

F32 = NDArray[np.float32]
RNG = np.random.default_rng(11)
X: F32 = RNG.uniform(0.25, 2, (32, 24)).astype(np.float32) * np.where(RNG.random((32, 24)) < 0.4, -1, 1).astype(
    np.float32
)
Y: F32 = RNG.uniform(0.5, 3, (32, 24)).astype(np.float32)
I, J = (RNG.integers(0, 30, (32, 24)).astype(np.int32) for _ in range(2))
HEAD = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x_in, y_in, i_in, j_in):
    x = nl.load(x_in)
    y = nl.load(y_in)
    i = nl.load(i_in)
    j = nl.load(j_in)
    r = nl.ndarray((32, 24), dtype=nl.float32)
    k = nl.ndarray((32, 24), dtype=nl.int32)
    c = nl.ndarray((32, 1), dtype=nl.float32)
"""


def ran(body: str, chip: str = "trn2") -> NDArray[np.generic]:
    """Return the contents of the tile that the body's last line names."""
    *lines, result = body.strip().splitlines()
    tail = [
        f"t = {result}",
        "out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)",
        "nisa.dma_copy(out, t)",
        "return out",
    ]
    source = HEAD + "".join(f"    {line}\n" for line in [*lines, *tail])
    specs = [TensorSpec((32, 24), kind) for kind in ("float32", "float32", "int32", "int32")]
    program = trace(source, specs, api="nki", chip=chip)
    assert verify(program) == ()
    (found,) = execute(program, [X, Y, I, J])
    return found


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x.astype(np.float64)).astype(np.float32)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def normal(x: Any) -> Any:
    return np.exp(-x * x / 2) / np.float32(math.sqrt(2 * math.pi))


def slope(function: Callable[[Any], Any], x: F32) -> Any:
    wide, h = x.astype(np.float64), 1e-6
    return ((function(wide + h) - function(wide - h)) / (2 * h)).astype(np.float32)


def gelu_tanh(x: Any) -> Any:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rounded(x: F32) -> F32:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def counted(row: NDArray[np.int32]) -> NDArray[np.int64]:
    found = np.flatnonzero(row)
    return np.concatenate([found + 100, np.full(24 - found.size, -7), [found.size]])


UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs, "square": np.square, "log": lambda x: np.log(x), "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp, "tanh": np.tanh, "sigmoid": sigmoid, "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x / 2 * (1 + erf(x / math.sqrt(2))), "gelu_apprx_tanh": gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: slope(lambda v: v * sigmoid(1.702 * v), x),
    "gelu_dx": lambda x: (1 + erf(x / math.sqrt(2))) / 2 + x * normal(x),
    "silu": lambda x: x * sigmoid(x), "silu_dx": lambda x: slope(lambda v: v * sigmoid(v), x),
    "softplus": lambda x: np.log1p(np.exp(x)), "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))), "erf": erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x), "reciprocal": lambda x: 1 / x, "copy": lambda x: x,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "arctan": np.arctan, "ceil": np.ceil, "floor": np.floor,
    "trunc": np.trunc, "negative": lambda x: -x, "sign": np.sign, "logical_not": lambda x: x == 0,
}  # fmt: skip
POSITIVE = ("log", "sqrt", "rsqrt")


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_tile_agree_with_numpy(name: str) -> None:
    operand, data = ("y", Y) if name in POSITIVE else ("x", X)
    assert ran(f"nl.{name}({operand})") == pytest.approx(UNARY[name](data), rel=3e-6, abs=3e-6)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum,
    "minimum": np.minimum, "abs_max": lambda x, y: np.where(np.abs(x) > np.abs(y), x, y),
    "abs_min": lambda x, y: np.where(np.abs(x) < np.abs(y), x, y), "equal": np.equal, "not_equal": np.not_equal,
    "less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_tiles_agree_with_numpy(name: str) -> None:
    chip = "trn3" if name.startswith("abs_") else "trn2"
    assert ran(f"nl.{name}(x, y)", chip) == pytest.approx(BINARY[name](X, Y), rel=3e-6)


@pytest.mark.parametrize("call", ["nl.abs_max(x, 1.0)", "nl.abs_min(x, y)"])
def test_comparing_by_magnitude_needs_trn3(call: str) -> None:
    with pytest.raises(AssertionError, match="needs NeuronCore-v4; trn2 has an older version"):
        ran(call)


def test_magnitudes_as_great_give_the_second_operand() -> None:
    assert ran("nl.abs_max(x, nl.negative(x))", "trn3") == pytest.approx(-X)
    assert ran("nl.abs_min(nl.negative(x), x)", "trn3") == pytest.approx(X)
    assert ran("nl.abs_max(1.0, nl.multiply(x, 0.0))", "trn3") == pytest.approx(np.ones_like(X))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("nl.power(y, x)", np.power(Y, X)),
        ("nl.bitwise_and(i, j)", I & J),
        ("nl.bitwise_or(i, j)", I | J),
        ("nl.bitwise_xor(i, j)", I ^ J),
        ("nl.invert(i)", ~I),
        ("nl.left_shift(i, 3)", I << 3),
        ("nl.right_shift(i, 2)", I >> 2),
        ("nl.min(x, axis=1, keepdims=True)", X.min(1, keepdims=True)),
        ("nl.max(x, axis=[1], keepdims=True)", X.max(1, keepdims=True)),
        ("nl.sum(x.reshape((32, 4, 6)), axis=[1, 2], keepdims=True)", X.sum(1).reshape(32, 1, 1)),
        ("nl.mean(x, axis=1, keepdims=True)", X.mean(1, keepdims=True)),
        ("nl.prod(y, axis=1, keepdims=True)", Y.prod(1, keepdims=True)),
        ("nl.var(x, axis=1)", X.var(1, keepdims=True)),
        ("nl.all(nl.greater(y, 0.0), axis=1)", np.ones((32, 1))),
        ("nl.softmax(x)", np.exp(X) / np.exp(X).sum(1, keepdims=True)),
        ("nl.where(nl.less(x, y), x, y)", np.minimum(X, Y)),
        ("nl.ones((32, 4), nl.float32)", np.ones((32, 4))),
        ("nl.full((32, 4), 2.5, dtype=nl.float32)", np.full((32, 4), 2.5)),
        ("nl.zeros_like(x)", np.zeros_like(X)),
        ("nl.zeros((32, 4), nl.int32)", np.zeros((32, 4))),
        ("nl.transpose(x)", X.T),
        ("nl.expand_dims(x, 1)", X[:, None]),
        ("nl.broadcast_to(x[:, 0:1], (32, 5))", np.repeat(X[:, :1], 5, 1)),
        ("nl.copy(nl.matmul(x, nl.transpose(y)))", X @ Y.T),
        ("nl.copy(nl.matmul(nl.transpose(x), nl.transpose(y), True))", X @ Y.T),
        ("nl.load_transpose2d(x_in)", X.T),
        ("nl.gather_flattened(x, nl.bitwise_and(i, 15, nl.uint32))", np.take_along_axis(X, I & 15, 1)),
        ("nl.load(nl.shared_constant(np.arange(8, dtype=np.float32).reshape(2, 4)))", np.arange(8.0).reshape(2, 4)),
        ("nl.dropout(x, 0.0)", X),
        ("nl.dropout(x, 1.0)", 0 * X),
    ],
)  # fmt: skip
def test_other_functions_of_the_language_agree_with_numpy(call: str, expected: NDArray[np.generic]) -> None:
    assert ran("import numpy as np\n" + call) == pytest.approx(expected, rel=5e-6, abs=1e-6)


SORTED = np.sort(X, 1)[:, ::-1]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("nisa.tensor_copy_predicated(x, y, nl.greater(x, 0.0, nl.uint8))\nx", np.where(X > 0, Y, X)),
        ("p = nl.ndarray((1, 24), dtype=nl.float32)\nnisa.tensor_partition_reduce(p, nl.add, x)\np", X.sum(0)[None]),
        ("nisa.tensor_scalar_cumulative(r, x, nl.multiply, nl.maximum, 2.0)\nr", np.maximum.accumulate(2 * X, 1)),
        ("nisa.activation_reduce(r, nl.exp, x, nl.add, c, scale=0.5)\nc", np.exp(X / 2).sum(1, keepdims=True)),
        ("nisa.activation(r, nl.square, x, bias=c_of, scale=2.0)\nr", np.square(2 * X + Y[:, :1])),
        ("nisa.nc_n_gather(r, x, nl.bitwise_and(i, 15, nl.uint32))\nr", np.take_along_axis(X, I & 15, 1)),
        ("s = nl.ndarray((32, 6), dtype=nl.float32)\nnisa.bn_stats(s, x)\nm = nl.ndarray((32, 2), dtype=nl.float32)\nnisa.bn_aggr(m, s)\nm", np.stack([X.mean(1), X.var(1)], 1)),
        ("nisa.tensor_tensor_scan(r, nl.multiply(x, 0.0), y, 1.0, nl.multiply, nl.add)\nr", Y),
        ("nisa.dropout(r, x, 0.0)\nr", X),
        ("nisa.scalar_tensor_tensor(r, x, nl.subtract, c_of, nl.multiply, y, reverse0=True)\nr", (Y[:, :1] - X) * Y),
        ("nisa.tensor_scalar_reduce(r, x, nl.multiply, 3.0, nl.max, c, reduce_res_negate=True)\nc",
         -(3 * X).max(1, keepdims=True)),
        ("nisa.select_reduce(r, nl.greater(x, 0.0, nl.uint8), x, -1.0, c, nisa.reduce_cmd.reset_reduce, nl.max)\nr",
         np.where(X > 0, X, -1)),
        ("nisa.max8(r[:, 0:8], x)\nr[:, 0:8]", SORTED[:, :8]),
        ("m = nl.ndarray((32, 8), dtype=nl.float32)\nnisa.max8(m, x)\nn = nl.ndarray((32, 8), dtype=nl.uint32)\nnisa.nc_find_index8(n, x, m)\nn", np.argsort(-X, 1, kind="stable")[:, :8]),
        ("m = nl.ndarray((32, 8), dtype=nl.float32)\nnisa.max8(m, x)\nnisa.nc_match_replace8(r, x, m, -9.0)\nr",
         np.where(X >= SORTED[:, 7:8], -9, X)),
        ("nisa.range_select(r, x, nl.greater_equal, nl.less, c_three, c_nine)\nr[:, 0:12]",
         np.where((np.arange(12) >= 3) & (np.arange(12) < 9), X[:, :12], np.finfo(np.float32).min)),
        ("nisa.affine_select(r, [[-1, 24]], 1, x, 0.0, nl.greater_equal)\nr", np.tril(X)),
        ("nisa.iota(k, [[2, 24]], offset=5, channel_multiplier=-1)\nk", 5 - np.arange(32)[:, None] + 2 * np.arange(24)),
        ("nisa.nc_stream_shuffle(r, x, [n ^ 1 for n in range(32)])\nr", X[np.arange(32) ^ 1]),
        ("nisa.reciprocal(r, y)\nr", 1 / Y),
        ("nisa.tensor_scalar(r, y, nl.reciprocal)\nr", 1 / Y),
        ("nisa.scalar_tensor_tensor(r, x, nl.multiply, 2.0, nl.add, y, reduce_op=nl.add, reduce_res=c)\nc",
         (2 * X + Y).sum(1, keepdims=True)),
        ("nisa.tensor_copy(r[:, 0:4], x[:, 8:24].ap([[24, 32], [1, 4]], offset=16))\nr[:, 0:4]", X[:, 16:20]),
        ("nisa.tensor_copy(r[:, 0:4], x[:, 8:24].ap([[24, 32], [1, 4]]))\nr[:, 0:4]", X[:, 8:12]),
        ("q = nl.ndarray((16, 48), dtype=nl.float32)\nnisa.dma_copy(q, x)\nq", X.reshape(16, 48)),
        ("nisa.tensor_scalar(k, i, nl.invert, 0)\nk", ~I),
        ("p = nl.ndarray((1, 24), dtype=nl.float32)\nnisa.tensor_partition_reduce(p, nl.average, x)\np", X.mean(0)[None]),
        ("nisa.tensor_reduce(c, nl.minimum, x, axis=1, negate=True)\nc", -X.min(1, keepdims=True)),
        ("nisa.dma_compute(r, [x_in, y_in, x_in], nl.add)\nr", X + Y + X),
        ("g = nisa.register_alloc(7)\nn = nl.ndarray((1, 1), dtype=nl.int32)\nnisa.register_move(g, g + 5)\nnisa.register_store(n, g)\nn", np.array([[12]])),
        ("n = nl.ndarray((1, 1), dtype=nl.int32)\nnisa.scalar_store(n, nisa.scalar_load(i[0:1, 3:4]))\nn", I[:1, 3:4]),
        ("nl.full((32, 1), float(nisa.get_nc_version() == nisa.nc_version.gen3) + nisa.get_nc_sub_version(), nl.float32)",
         np.ones((32, 1))),
        ("nl.full((32, 1), nl.is_sbuf(x.buffer) + nl.is_on_chip(nl.psum) + nl.is_psum(nl.sbuf) + nl.is_hbm(nl.hbm), nl.int32)",
         np.full((32, 1), 3)),
        ("with nl.no_reorder():\n    e = nl.empty_like(x)\nnl.device_print('x', x)\nnisa.tensor_copy(e, x)\ne", X),
        ("nl.full((32, 1), nl.program_id() + nl.num_programs() + nl.program_ndim(), nl.int32)", np.ones((32, 1))),
        ("s = nl.ndarray((1, 24), dtype=nl.int32)\nnisa.memset(s, 1)\nb = nl.ndarray((1, 2, 24), dtype=nl.int32)\nnisa.sequence_bounds(b, s)\nb", np.stack([np.zeros(24), np.full(24, 24)])[None]),
    ],
)  # fmt: skip
def test_instructions_agree_with_numpy(body: str, expected: NDArray[np.generic]) -> None:
    given = {
        "c_of": "y[:, 0:1]",
        "c_three": "nl.full((32, 1), 3.0, nl.float32)",
        "c_nine": "nl.full((32, 1), 9.0, nl.float32)",
    }
    for name, text in given.items():
        body = body.replace(name, text)
    assert ran(body) == pytest.approx(expected, rel=5e-6, abs=2e-6)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("nisa.activate2(r, nl.relu, x, 2.0, 1.0, nl.multiply, nl.add)\nr", np.maximum(2 * X + 1, 0)),
        (
            "nisa.activate2(r, nl.prelu, x, 2.0, 0.0, nl.bypass, nl.bypass, relu_param=0.25)\nr",
            np.where(X > 0, X, X / 4),
        ),
        (
            "nisa.activate2(r, nl.prelu, x, 2.0, 0.0, nl.multiply, nl.bypass, relu_param=y[:, 0:1])\nr",
            np.where(X > 0, 2 * X, 2 * X * Y[:, :1]),
        ),
        ("nisa.exponential(r, x, 0.5)\nr", np.exp(X - 0.5)),
        (
            "nisa.exponential(r, x, 0.5, c, nisa.reduce_cmd.load_reduce, 3.0)\nc",
            np.exp(X - 0.5).sum(1, keepdims=True) + 3,
        ),
        (
            "n = nl.ndarray((32, 25), dtype=nl.int32)\nnisa.memset(n, 0)\nnisa.nonzero_with_count(n, i, 100, -7)\nn",
            np.concatenate([counted(row) if k % 16 == 0 else np.zeros(25) for k, row in enumerate(I)]).reshape(32, 25),
        ),
        (
            "v = nl.ndarray((32, 8), dtype=nl.bfloat16)\nn = nl.ndarray((32, 8), dtype=nl.uint32)\nnisa.topk(v, n, nl.copy(x, nl.bfloat16), 40)\nnl.copy(v, nl.float32)",
            np.repeat([np.sort(rounded(X[g : g + 16].T.reshape(-1)[:40]))[-8:] for g in (0, 16)], 16, 0),
        ),
        (
            "l = nl.ndarray((32, 24), dtype=nl.float32)\nnisa.local_gather(l, x, nl.full((32, 2), 3, nl.uint16), 1, 24)\nl",
            np.repeat(X[:, 3:4], 24, 1),
        ),
    ],
)
def test_instructions_of_later_chips_agree_with_numpy(body: str, expected: NDArray[np.generic]) -> None:
    assert ran(body, chip="trn3") == pytest.approx(expected, rel=5e-6, abs=2e-6)


def test_microscaled_products_lose_what_eight_bits_lose() -> None:
    body = """
q = nl.ndarray((32, 6), dtype=nl.float8_e4m3fn_x4)
s = nl.ndarray((4, 6), dtype=nl.uint8)
nisa.quantize_mx(q, nl.copy(x, nl.bfloat16), s)
p = nl.ndarray((6, 6), dtype=nl.float32, buffer=nl.psum)
nisa.nc_matmul_mx(p, q, q, s, s)
nl.copy(p)
"""
    packed = rounded(X).reshape(32, 6, 4).transpose(0, 2, 1).reshape(128, 6)
    assert ran(body, chip="trn3") == pytest.approx(packed.T @ packed, rel=0.1, abs=2.0)
    scales = ran(body.replace("nl.copy(p)", "s"), chip="trn3")
    peaks = np.abs(rounded(X)).reshape(4, 8, 6, 4).max(axis=(1, 3))
    assert np.array_equal(scales, np.floor(np.log2(peaks)) - 7 + 127)


def test_random_numbers_lie_in_their_range_and_follow_their_seed() -> None:
    seeded = "nl.random_seed(nl.full((1, 1), 5, nl.int32))\nnl.rand((32, 24), nl.float32)"
    assert np.array_equal(ran(seeded), ran(seeded))
    raw = "nisa.set_rng_seed(i[0:1, 0:1])\nnisa.rng(k)\nk"
    assert np.array_equal(ran(raw), ran(raw))
    assert len(np.unique(ran(raw))) > 700
    drawn = ran("nisa.rand2(r, 2.0, 3.0)\nr", chip="trn3")
    assert 2 <= drawn.min() < 2.1
    assert 2.9 < drawn.max() < 3
    lowest = "low = nl.full((32, 1), 2.0, nl.float32)\nnisa.memset(low[0:16, :], -1.0)\n"
    drawn = ran(f"{lowest}nisa.rand2(r, low, 3.0)\nr", chip="trn3")
    assert drawn[:16].min() < 0
    assert 2 <= drawn[16:].min() < 2.2


def test_a_transpose_takes_all_free_axes_as_one() -> None:
    body = "w = nl.ndarray((32, 2, 12), nl.float32)\nnisa.tensor_copy(w, x)\np = nl.ndarray((24, 32), nl.float32, buffer=nl.psum)"
    assert np.array_equal(ran(f"{body}\nnisa.nc_transpose(p, w)\nnl.copy(p)"), X.T)


def test_the_state_of_random_numbers_is_set_stored_and_drawn_from_as_published() -> None:
    words = np.random.default_rng(3).integers(0, 2**32, (32, 6), np.uint32)
    source = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(words):
    seeds, drawn, after = (nl.ndarray(shape, dtype=nl.uint32) for shape in ((32, 6), (32, 5), (32, 6)))
    nisa.dma_copy(seeds, words)
    nisa.rand_set_state(seeds)
    nisa.rng(drawn, engine=nisa.engine.gpsimd)
    nisa.rand_get_state(after)
    outs = [nl.ndarray(tile.shape, dtype=nl.uint32, buffer=nl.shared_hbm) for tile in (drawn, after)]
    nisa.dma_copy(outs[0], drawn)
    nisa.dma_copy(outs[1], after)
    return tuple(outs)
"""
    program = trace(source, [TensorSpec((32, 6), "uint32")], api="nki", chip="trn2")
    assert verify(program) == ()
    drawn, after = execute(program, [words])
    for row, row_drawn, row_after in zip(words.tolist(), drawn.tolist(), after.tolist(), strict=True):
        state = list(row)
        for number in row_drawn:
            t = state[0] ^ (state[0] >> 2)
            v = state[4]
            state = [*state[1:5], (v ^ (v << 4) ^ t ^ (t << 1)) % 2**32, (state[5] + 362437) % 2**32]
            assert number == (state[4] + state[5]) % 2**32
        assert row_after == state
    with pytest.raises(LegalityError, match="vector engine of trn2"):
        trace(
            source.replace("(seeds)", "(seeds, engine=nisa.engine.vector)"),
            [TensorSpec((32, 6), "uint32")],
            api="nki",
            chip="trn2",
        )


def test_an_axis_of_one_element_is_read_as_the_last_axes_if_only_these_fit() -> None:
    body = """
t = nl.ndarray((32, 1, 24), dtype=nl.float32)
nisa.tensor_copy(t.reshape((32, 24)), x)
nisa.tensor_reduce(c, nl.add, t, axis=1)
c
"""
    np.testing.assert_allclose(np.asarray(ran(body), np.float32), X.sum(axis=1, keepdims=True), rtol=1e-5)


def test_prelu_is_an_activation_with_a_slope_only() -> None:
    with pytest.raises(LegalityError, match="no argument for the slope"):
        ran("nisa.activation(r, nl.prelu, x)\nr", chip="trn3")


def test_tensor_indirection_gathers_by_offsets_that_sixteen_partitions_share() -> None:
    body = """
w = nl.ndarray((32, 2), dtype=nl.uint16)
nisa.tensor_scalar(w, j[:, 0:2], nl.bitwise_and, 15)
g = nl.ndarray((32, 20), dtype=nl.float32)
nisa.tensor_scalar(g, x.indirect(w, 20), nl.add, 1.0)
g
"""
    offsets = np.stack([(J & 15)[rows : rows + 16, :2].T.reshape(-1)[:20] for rows in (0, 16)]).repeat(16, axis=0)
    assert np.array_equal(ran(body, chip="trn3"), np.take_along_axis(X, offsets, axis=1) + 1)
    with pytest.raises(LegalityError, match="no tensor indirection"):
        ran(body)


def test_every_supported_function_stands_in_a_test() -> None:
    folder = Path(__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))]
    named = {node.attr for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    text = "\n".join(texts)
    for module, states in surface().items():
        prefix = {"nki.isa": "nisa.", "nki.language": "nl.", "nki.collectives": "ncc."}[module]
        missing = [
            name
            for name, state in states.items()
            if state.startswith("supported")
            and prefix + name not in text
            and f'"{name}"' not in text
            and name not in named
        ]
        assert missing == [], module
