"""A recorded program becomes a numpy reference that computes what its operators do, without torch."""

# mypy: allow-untyped-calls
from __future__ import annotations

import importlib.util
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld.lowering.aten import functions
from acceld.lowering.aten.program import Argument, Array, Call, Constant, Input, Named, Program
from acceld.lowering.aten.reference import argument_names, needed_inputs, reference_text
from acceld.lowering.graph import NotLowered
from acceld.lowering.kernels import lowered
from acceld.lowering.numpy_reference import traced
from acceld.lowering.spelling import printed
from tests.acceld.lowering.test_formulas import in_dialect, run_all

F = "float32"


def call(name: str, operator: str, shape: tuple[int, ...], *args: Argument, **named: Argument) -> Call:
    """Return a call with one result."""
    return Call(name, operator, args, named, (Array(shape, F),), "block (Block)")


def block() -> Program:
    """Return what torch.export records of a small block: norm, attention, gated layer, residuals."""
    x, w = Named("x"), Named
    return Program(
        "forward of a block",
        (
            Input("x", Array((2, 24, 32), F), "argument", "x"),
            Input("p_n", Array((32,), F), "parameter", "norm.weight"),
            Input("p_q", Array((96, 32), F), "parameter", "qkv.weight"),
            Input("p_g", Array((48, 32), F), "parameter", "mlp.0.weight"),
            Input("p_b", Array((48,), F), "parameter", "mlp.0.bias"),
            Input("p_d", Array((32, 48), F), "parameter", "mlp.2.weight"),
        ),
        (Constant("half", Array((), F), (0.5,)),),
        (
            call("norm", "layer_norm", (2, 24, 32), x, [32], w("p_n"), None, 1e-5),
            call("qkv", "linear", (2, 24, 96), w("norm"), w("p_q")),
            Call("split", "split", (w("qkv"), 32, -1), {}, (Array((2, 24, 32), F),) * 3),
            *(Call(f"get{i}", "getitem", (w("split"), i), {}, ()) for i in range(3)),
            *(call(f"cut{i}", "view", (2, 24, 2, 16), w(f"get{i}"), [2, 24, 2, 16]) for i in range(3)),
            *(call(f"turn{i}", "transpose", (2, 2, 24, 16), w(f"cut{i}"), 1, 2) for i in range(3)),
            call(
                "attended",
                "scaled_dot_product_attention",
                (2, 2, 24, 16),
                *(w(f"turn{i}") for i in range(3)),
                is_causal=True,
            ),
            call("back", "transpose", (2, 24, 2, 16), w("attended"), 1, 2),
            call("joined", "reshape", (2, 24, 32), w("back"), [2, 24, 32]),
            call("scaled", "mul", (2, 24, 32), w("joined"), w("half")),
            call("mid", "add", (2, 24, 32), x, w("scaled")),
            call("up", "linear", (2, 24, 48), w("mid"), w("p_g"), w("p_b")),
            call("act", "gelu", (2, 24, 48), w("up"), approximate="tanh"),
            call("down", "linear", (2, 24, 32), w("act"), w("p_d")),
            call("out", "add", (2, 24, 32), w("mid"), w("down"), alpha=2),
            call("unused", "nonzero", (1,), x),
        ),
        ("out",),
    )


def loaded(text: str) -> Any:
    """Return the functions of a reference."""
    space: dict[str, Any] = {}
    exec(compile(text, "reference.py", "exec"), space)  # noqa: S102
    return space


def expected(x: Any, n: Any, q: Any, g: Any, b: Any, d: Any) -> Any:
    """Return what the block computes, written by hand."""
    h = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * n
    parts = np.split(h @ q.T, 3, axis=-1)
    qs, ks, vs = (one.reshape(2, 24, 2, 16).swapaxes(1, 2) for one in parts)
    s = qs @ ks.swapaxes(-1, -2) / 4
    s = np.where(np.tril(np.ones((24, 24), bool)), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    mid = x + (e / e.sum(-1, keepdims=True) @ vs).swapaxes(1, 2).reshape(2, 24, 32) * 0.5
    u = mid @ g.T + b
    return mid + 2 * ((0.5 * u * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))) @ d.T)


def test_a_recorded_block_becomes_a_reference_and_a_right_kernel(tmp_path: Path) -> None:
    program = block()
    names = argument_names(program)
    assert names == ["x", "norm_weight", "qkv_weight", "mlp_0_weight", "mlp_0_bias", "mlp_2_weight"]
    path = tmp_path / "reference.py"
    path.write_text(reference_text(program), encoding="utf-8")
    space = loaded(path.read_text("utf-8"))
    np.random.seed(0)
    drawn = space["get_inputs"]()
    wide = [one.astype(np.float64) for one in drawn]
    wanted = expected(*wide)
    assert np.allclose(space["forward"](*wide), wanted, rtol=1e-9, atol=1e-12)
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given = [(name, (one.shape, F)) for name, one in zip(names, drawn, strict=True)]
    source = printed(lowered(traced(module.forward, path, given), "nki"), "nki")
    in_dialect(source)
    found = np.asarray(run_all(source, *drawn)[0], np.float64).reshape(wanted.shape)
    assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)


def test_a_mask_of_truth_values_hides_what_it_does_not_name(tmp_path: Path) -> None:
    names = {"q": (2, 8, 16), "k": (2, 12, 16), "v": (2, 12, 16), "m": (8, 12)}
    inputs = tuple(Input(name, Array(shape, F), "argument", name) for name, shape in names.items())
    mask = Call("seen", "gt", (Named("m"), -0.5), {}, (Array((8, 12), "bool"),))
    attended = call("y", "scaled_dot_product_attention", (2, 8, 16), *map(Named, "qkv"), Named("seen"))
    path = tmp_path / "reference.py"
    path.write_text(reference_text(Program("attention", inputs, (), (mask, attended), ("y",))), encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), space)  # noqa: S102
    drawn = [np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in names.values()]
    q, k, v, m = (one.astype(np.float64) for one in drawn)
    e = np.exp(q @ k.swapaxes(-1, -2) / 4) * (m > -0.5)
    wanted = e / e.sum(-1, keepdims=True) @ v
    assert np.allclose(space["forward"](q, k, v, m), wanted)
    given = [(name, (shape, F)) for name, shape in names.items()]
    source = printed(lowered(traced(space["forward"], path, given), "nki"), "nki")
    found = np.asarray(run_all(source, *drawn)[0], np.float64).reshape(wanted.shape)
    assert np.linalg.norm(found - wanted) <= 1e-5 * np.linalg.norm(wanted)


def one(operator: str, *args: Argument, shape: tuple[int, ...] = (4, 8), **named: Argument) -> Program:
    """Return a program of one call on an argument x of 4 x 8."""
    inputs = (Input("x", Array((4, 8), F), "argument", "x"),)
    return Program("forward", inputs, (), (call("y", operator, shape, Named("x"), *args, **named),), ("y",))


X = Input("x", Array((4, 8), F), "argument", "x")


def places_of_modes() -> Program:
    """Return a program whose output is the second result of a mode."""
    mode = Call("m", "mode", (Named("x"), 1), {}, (Array((4,), F), Array((4,), "int64")))
    return Program("forward", (X,), (), (mode, Call("y", "getitem", (Named("m"), 1), {}, ())), ("y",))


def longest(operator: str, extent: int, *args: Argument) -> Program:
    """Return a program of one call on an argument x with this extent."""
    inputs = (Input("x", Array((4, extent), F), "argument", "x"),)
    return Program("forward", inputs, (), (call("y", operator, (4, extent), Named("x"), *args),), ("y",))


def of_complex() -> Program:
    """Return a program of a function of complex numbers that is not lowered."""
    complexes = Array((4, 4), "complex64")
    calls = (
        Call("c", "view_as_complex", (Named("x"),), {}, (complexes,)),
        Call("y", "tan", (Named("c"),), {}, (complexes,)),
    )
    return Program("forward", (Input("x", Array((4, 4, 2), F), "argument", "x"),), (), calls, ("y",))


def crossed() -> Program:
    """Return a program of the cross products of rows with their neighbors."""
    part = call("p", "slice", (4, 3), Named("x"), 1, 0, 3)
    other = call("o", "slice", (4, 3), Named("x"), 1, 3, 6)
    return Program(
        "forward", (X,), (), (part, other, call("y", "linalg_cross", (4, 3), Named("p"), Named("o"), dim=1)), ("y",)
    )


def raised() -> Program:
    """Return a program that raises a negative number to an array."""
    calls = (call("s", "sign", (4, 8), Named("x")), call("y", "pow", (4, 8), -2.0, Named("s")))
    return Program("forward", (X,), (), calls, ("y",))


@pytest.mark.parametrize(
    "program, words",
    [
        (one("lgamma"), r"in block \(Block\): aten\.lgamma is not lowered; write it with"),
        (one("rand_like"), "aten.rand_like is random: it is not lowered"),
        (one("dropout", 0.5, True), "a dropout of 0.5 in training is random"),
        (one("sum", wanted=1), r"aten\.sum with these operands is not lowered"),
        (one("topk", 65), "topk of more than 64 values is not lowered"),
        (one("multinomial", 2), "aten.multinomial is random: it is not lowered"),
        (one("searchsorted", Named("x"), sorter=Named("x")), r"sort the values first: values\.gather"),
        (one("scatter_reduce", 1, Named("x"), Named("x"), "prod"), "by 'prod' is not lowered; sums, means, amax"),
        (longest("logcumsumexp", 513, 1), "logcumsumexp of 513 elements is not lowered; up to 512 are"),
        (longest("_fft_r2c", 2049, [1], 0, False), r"Fourier transform of 2049 places is not lowered.*torch\.stft"),
        (one("_upsample_bilinear2d_aa", [4, 4], True), "set align_corners=False"),
        (of_complex(), r"aten\.tan of complex numbers is not lowered; compute with torch\.view_as_real"),
        (one("_embedding_bag", Named("x"), Named("x"), False, 2), "call functional.embedding, then reduce"),
        (places_of_modes(), r"result 2 of aten\.mode is not lowered"),
    ],
)
def test_what_has_no_words_is_refused_by_name(program: Program, words: str) -> None:
    with pytest.raises(NotLowered, match=words):
        reference_text(program)


@pytest.mark.parametrize(
    "program, wanted",
    [
        (one("slice", 1, 2, 2**63 - 1, shape=(4, 6)), lambda x: x[:, 2:]),
        (one("slice", 1, -3, None, shape=(4, 3)), lambda x: x[:, -3:]),
        (one("clamp", None, 0.5), lambda x: np.minimum(x, 0.5)),
        (one("sub", 1.0, alpha=3), lambda x: x - 3.0),
        (one("rsub", 1.0), lambda x: 1.0 - x),
        (one("pow", 2), lambda x: x * x),
        (one("div", 0.7, rounding_mode="floor"), lambda x: np.floor(x / 0.7)),
        (one("div", 0.7, rounding_mode="trunc"), lambda x: np.trunc(x / 0.7)),
        (one("floor_divide", -0.7), lambda x: np.floor(x / -0.7)),
        (one("lerp", 2.0, 0.25), lambda x: 0.75 * x + 0.5),
        (one("softplus", 2, 0.5), lambda x: np.where(2 * x > 0.5, x, np.log(1 + np.exp(2 * x)) / 2)),
        (one("rrelu_with_noise_functional", Named("x"), 0.1, 0.3), lambda x: np.where(x > 0, x, 0.2 * x)),
        (one("kron", Named("x"), shape=(16, 64)), lambda x: np.kron(x, x)),
        (one("xlogy", 3.0), lambda x: x * np.log(3.0)),
        (one("isfinite"), np.isfinite),
        (raised(), lambda x: np.power(-2.0, np.sign(x))),
        (one("hardshrink", 0.5), lambda x: np.where(np.abs(x) > 0.5, x, 0.0)),
        (one("softshrink", 0.5), lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0.0)),
        (one("var", [1], correction=0, shape=(4,)), lambda x: x.var(axis=1)),
        (one("logsumexp", [1], shape=(4,)), lambda x: np.log(np.exp(x).sum(axis=1))),
        (one("log_softmax", 1), lambda x: x - np.log(np.exp(x).sum(axis=1, keepdims=True))),
        (one("masked_fill", Named("x"), "-inf"), lambda x: np.where(x != 0, -1e30, x)),
        (one("leaky_relu", 0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
        (one("slice", 1, 3, -20, shape=(4, 0)), lambda x: x[:, 3:-20]),
        (
            one("constant_pad_nd", [1, 0], "-inf", shape=(4, 9)),
            lambda x: np.pad(x, ((0, 0), (1, 0)), constant_values=-np.inf),
        ),
        (one("pad", [1, 0], "constant", None, shape=(4, 9)), lambda x: np.pad(x, ((0, 0), (1, 0)))),
        (crossed(), lambda x: np.cross(x[:, :3], x[:, 3:6])),
        (one("atan2", Named("x")), lambda x: np.arctan2(x, x)),
        (one("asinh"), np.arcsinh),
        (one("frac"), lambda x: x - np.trunc(x)),
        (one("eye", shape=(4, 8)), lambda x: np.eye(4, 8)),
        (one("remainder", 0.75), lambda x: np.remainder(x, 0.75)),
        (one("round", decimals=2), lambda x: np.round(x, 2)),
        (one("special_xlog1py", 3.0), lambda x: x * np.log(4.0)),
        (one("ldexp", 3), lambda x: 8.0 * x),
        (one("special_sinc"), np.sinc),
        (one("histc", 5, -1.0, 1.0, shape=(5,)), lambda x: np.histogram(x, 5, (-1, 1))[0]),
        (one("argsort", 0, True), lambda x: np.argsort(-x, axis=0, kind="stable")),
        (one("constant_pad_nd", [1, 2], 3.0, shape=(4, 11)), lambda x: np.pad(x, ((0, 0), (1, 2)), constant_values=3)),
    ],
)
def test_an_operator_computes_what_its_schema_says(program: Program, wanted: Any) -> None:
    x = np.random.default_rng(0).standard_normal((4, 8))
    assert np.allclose(loaded(reference_text(program))["forward"](x), wanted(x))


def test_an_output_has_the_narrow_float_that_pytorch_returns() -> None:
    """Numpy multiplies bfloat16 into float32, and the kernel that is lowered returns what PyTorch does."""
    narrow = Array((4, 4), "bfloat16")
    inputs = tuple(Input(name, narrow, "argument", name) for name in "xy")
    product = Call("z", "matmul", (Named("x"), Named("y")), {}, (narrow,))
    forward = loaded(reference_text(Program("forward", inputs, (), (product,), ("z",))))["forward"]
    x = np.ones((4, 4)).astype("bfloat16")
    assert (forward(x, x).dtype.name, forward(*[x.astype(np.float64)] * 2).dtype.name) == ("bfloat16", "float64")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_whole_numbers_times_narrow_floats_are_narrow_floats(dtype: str) -> None:
    """Numpy multiplies float16 with int32 into float64, and PyTorch into float16."""
    narrow, whole = Array((4, 4), dtype), Array((4, 4), "int32")
    inputs = (Input("x", narrow, "argument", "x"), Input("n", whole, "argument", "n"))
    product = Call("z", "mul", (Named("x"), Named("n")), {}, (narrow,))
    forward = loaded(reference_text(Program("forward", inputs, (), (product,), ("z",))))["forward"]
    x, n = np.full((4, 4), 0.5).astype(dtype), np.full((4, 4), 3, np.int32)
    assert (forward(x, n).dtype.name, forward(x.astype(np.float64), n).dtype.name) == (dtype, "float64")


ROWS = Input("x", Array((6, 8), F), "argument", "x")
PLACES = Input("i", Array((6, 8), "int64"), "argument", "i")
ROW = Input("i", Array((10,), "int64"), "argument", "i")
STARTS = Input("s", Array((3,), "int64"), "argument", "s")


def over_rows(
    operator: str, *args: Argument, inputs: tuple[Input, ...], results: int = 1, **named: Argument
) -> Program:
    """Return a program of one call on arrays of 6 rows; its output is the call's first result."""
    shape = (3, 8) if operator == "_embedding_bag" else (6, 8)
    made = Call("c", operator, args, named, (Array(shape, F),) * results)
    if results == 1:
        return Program("forward", inputs, (), (made,), ("c",))
    return Program("forward", inputs, (), (made, Call("y", "getitem", (Named("c"), 0), {}, ())), ("y",))


def added(x: Any, i: Any) -> Any:
    """Return x with x added at the columns i of its own rows."""
    found = x.copy()
    np.add.at(found, (np.arange(6)[:, None], i), x)
    return found


def bags_of(x: Any, i: Any, s: Any) -> Any:
    """Return the sum of the rows of x in each bag of i."""
    return np.stack([x[i[a:b]].sum(0) for a, b in zip(s, [*s[1:], len(i)], strict=True)])


@pytest.mark.parametrize(
    "program, given, wanted",
    [
        (
            over_rows("scatter_add", Named("x"), 1, Named("i"), Named("x"), inputs=(ROWS, PLACES)),
            (np.random.default_rng(1).integers(0, 8, (6, 8)),),
            added,
        ),
        (
            over_rows("scatter", Named("x"), 0, Named("i"), 2.0, inputs=(ROWS, PLACES)),
            (np.arange(48).reshape(6, 8) % 5,),
            lambda x, i: np.where((i[None] == np.arange(6)[:, None, None]).any(1), 2.0, x),
        ),
        (
            over_rows(
                "_embedding_bag", Named("x"), Named("i"), Named("s"), False, 0, inputs=(ROWS, ROW, STARTS), results=4
            ),
            (np.array([5, 0, 1, 1, 3, 2, 4, 0, 5, 5]), np.array([0, 4, 4])),
            bags_of,
        ),
        (
            over_rows(
                "_embedding_bag", Named("x"), Named("i"), Named("s"), False, 1, inputs=(ROWS, ROW, STARTS), results=4
            ),
            (np.array([5, 0, 1, 1, 3, 2, 4, 0, 5, 5]), np.array([0, 4, 4])),
            lambda x, i, s: bags_of(x, i, s) / np.array([[4], [1], [6]]),
        ),
    ],
)
def test_rows_are_scattered_and_put_into_bags(
    program: Program, given: tuple[Any, ...], wanted: Any, tmp_path: Path
) -> None:
    path = tmp_path / "reference.py"
    path.write_text(reference_text(program), encoding="utf-8")
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    space = loaded(path.read_text("utf-8"))
    right = wanted(x.astype(np.float64), *given)
    assert np.allclose(space["forward"](x.astype(np.float64), *given), right, rtol=1e-12)
    arguments = [(one.name, (one.array.shape, one.array.dtype.replace("64", "32"))) for one in program.inputs]
    source = printed(lowered(traced(space["forward"], path, arguments), "nki"), "nki")
    found = np.asarray(run_all(source, x, *(one.astype(np.int32) for one in given))[0], np.float64)
    assert np.linalg.norm(found.reshape(right.shape) - right) <= 1e-6 * np.linalg.norm(right)


def test_whole_numbers_are_divided_towards_zero() -> None:
    whole = Array((4,), "int32")
    inputs = (Input("x", whole, "argument", "x"), Input("y", whole, "argument", "y"))
    made = Call("z", "div", (Named("x"), Named("y")), {"rounding_mode": "trunc"}, (whole,))
    forward = loaded(reference_text(Program("forward", inputs, (), (made,), ("z",))))["forward"]
    x, y = np.array([-7, 7, -7, 7], np.int32), np.array([2, 2, -2, -2], np.int32)
    assert forward(x, y).tolist() == [-3, 3, 3, -3]


def test_variance_and_mean_are_two_results() -> None:
    both = Call("b", "var_mean", (Named("x"), [1]), {"correction": 0}, (Array((4,), F), Array((4,), F)))
    parts = tuple(Call(name, "getitem", (Named("b"), at), {}, ()) for at, name in enumerate("vm"))
    x = np.random.default_rng(0).standard_normal((4, 8))
    found = loaded(reference_text(Program("forward", (X,), (), (both, *parts), ("v", "m"))))["forward"](x)
    assert np.allclose(found[0], x.var(axis=1)) and np.allclose(found[1], x.mean(axis=1))


def test_convolutions_and_pools_agree_with_sums_written_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 4, 9)), rng.standard_normal((6, 2, 3))
    inputs = (Input("x", Array((2, 4, 9), F), "argument", "x"), Input("w", Array((6, 2, 3), F), "argument", "w"))
    conv = call("y", "conv1d", (2, 6, 4), Named("x"), Named("w"), None, [2], [1], [2], 2)
    found = loaded(reference_text(Program("conv", inputs, (), (conv,), ("y",))))["forward"](x, w)
    padded, wanted = np.pad(x, ((0, 0), (0, 0), (1, 1))), np.zeros((2, 6, 4))
    for out in range(6):
        for at in range(4):
            for tap in range(3):
                wanted[:, out, at] += padded[:, (out // 3) * 2 : (out // 3) * 2 + 2, 2 * at + 2 * tap] @ w[out, :, tap]
    assert np.allclose(found, wanted)
    t = rng.standard_normal((4, 3, 3))
    inputs = (Input("x", Array((2, 4, 9), F), "argument", "x"), Input("w", Array((4, 3, 3), F), "argument", "w"))
    turned = call("y", "conv_transpose1d", (2, 3, 18), Named("x"), Named("w"), None, [2], [1], [1])
    found = loaded(reference_text(Program("conv", inputs, (), (turned,), ("y",))))["forward"](x, t)
    wanted = np.zeros((2, 3, 20))
    for at in range(9):
        for tap in range(3):
            wanted[:, :, 2 * at + tap] += x[:, :, at] @ t[:, :, tap]
    assert np.allclose(found, wanted[:, :, 1:19])
    path = tmp_path / "reference.py"
    path.write_text(reference_text(Program("conv", inputs, (), (turned,), ("y",))), encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), space)  # noqa: S102
    given = [("x", ((2, 4, 9), F)), ("w", ((4, 3, 3), F))]
    source = printed(lowered(traced(space["forward"], path, given), "nki"), "nki")
    lowest = np.asarray(run_all(source, x.astype(np.float32), t.astype(np.float32))[0], np.float64)
    assert np.allclose(lowest.reshape(2, 3, 18), wanted[:, :, 1:19], atol=1e-5)
    pool = call("y", "max_pool1d", (2, 4, 5), Named("x"), [2], [2], [0], [1], True)
    found = loaded(reference_text(Program("pool", inputs[:1], (), (pool,), ("y",))))["forward"](x)
    assert np.allclose(found, np.concatenate([x[..., :8].reshape(2, 4, 4, 2).max(-1), x[..., 8:]], -1))


def test_images_without_a_batch_axis_are_convolved() -> None:
    rng = np.random.default_rng(0)
    x, w, t = rng.standard_normal((3, 9)), rng.standard_normal((4, 3, 3)), rng.standard_normal((3, 2, 3))
    inputs = tuple(Input(n, Array(v.shape, F), "argument", n) for n, v in {"x": x, "w": w, "t": t}.items())
    calls = (
        call("c", "conv1d", (4, 7), Named("x"), Named("w")),
        call("d", "conv_transpose1d", (2, 11), Named("x"), Named("t")),
    )
    c, d = loaded(reference_text(Program("conv", inputs, (), calls, ("c", "d"))))["forward"](x, w, t)
    assert np.allclose(c, sum(w[:, :, tap] @ x[:, tap : tap + 7] for tap in range(3)))
    wanted = np.zeros((2, 11))
    for tap in range(3):
        wanted[:, tap : tap + 9] += t[:, :, tap].T @ x
    assert np.allclose(d, wanted)


def test_the_greatest_are_different_places_whatever_their_values(tmp_path: Path) -> None:
    top = Call("t", "topk", (Named("x"), 3), {}, (Array((4, 3), F), Array((4, 3), "int64")))
    parts = tuple(Call(f"get{i}", "getitem", (Named("t"), i), {}, ()) for i in range(2))
    path = tmp_path / "reference.py"
    path.write_text(reference_text(Program("top", (X,), (), (top, *parts), ("get0", "get1"))), encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), space)  # noqa: S102
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    x[0], x[1, 1:], x[2] = -3e30, -1e30, 7.0
    places = np.argsort(-x, axis=1, kind="stable")[:, :3]
    wanted: list[Any] = [np.take_along_axis(x, places, 1), places]
    source = printed(lowered(traced(space["forward"], path, [("x", ((4, 8), F))]), "nki"), "nki")
    every: list[Any] = [space["forward"](x), run_all(source, x)]
    for found in every:
        for ours, theirs in zip(found, wanted, strict=True):
            assert np.array_equal(ours, theirs)


def near(places: Any, x: Any) -> Any:
    """Return the values of the last axis of x at places between its elements."""
    return np.stack([np.interp(places, range(x.shape[-1]), row) for row in x.reshape(-1, x.shape[-1])]).reshape(
        (*x.shape[:-1], -1)
    )


def test_images_are_resized_and_distances_are_measured(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 7)).astype(np.float32)
    inputs = (Input("x", Array(x.shape, F), "argument", "x"),)
    row = call("row", "select", (2, 6, 7), Named("x"), 1, 0)
    calls = (
        call("grown", "upsample_bilinear2d", (2, 3, 6, 12), Named("x"), [6, 12], False),
        call("shrunk", "upsample_bilinear2d", (2, 3, 6, 3), Named("x"), [6, 3], True, None, None),
        call("factor", "upsample_bilinear2d", (2, 3, 6, 4), Named("x"), None, False, [1.0, 0.6]),
        row,
        call("apart", "_cdist_forward", (2, 6, 6), Named("row"), Named("row"), 2.0, 1),
        call("block", "_cdist_forward", (2, 6, 6), Named("row"), Named("row"), 1.0, None),
        call("most", "_cdist_forward", (2, 6, 6), Named("row"), Named("row"), "inf", None),
    )
    outputs = ("grown", "shrunk", "factor", "apart", "block", "most")
    path = tmp_path / "reference.py"
    path.write_text(reference_text(Program("sizes", inputs, (), calls, outputs)), encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), space)  # noqa: S102
    wide = x.astype(np.float64)
    between = np.abs(wide[:, 0, :, None] - wide[:, 0, None])
    wanted: list[Any] = [
        near((np.arange(12) + 0.5) * 7 / 12 - 0.5, wide),
        near([0, 3, 6], wide),
        near((np.arange(4) + 0.5) / 0.6 - 0.5, wide),
        np.sqrt(np.square(between).sum(-1)),
        between.sum(-1),
        between.max(-1),
    ]
    for ours, theirs in zip(space["forward"](wide), wanted, strict=True):
        assert np.allclose(ours, theirs, atol=1e-6)  # the root of nearly 0
    source = printed(lowered(traced(space["forward"], path, [("x", (x.shape, F))]), "nki"), "nki")
    for ours, theirs in zip(run_all(source, x), wanted, strict=True):
        assert np.allclose(np.asarray(ours).reshape(theirs.shape), theirs, atol=2e-3)  # so is this one, in float32


def test_inputs_that_no_output_needs_are_left_out() -> None:
    program = block()
    more = (*program.inputs, Input("count", Array((), "int64"), "buffer", "bn.num_batches_tracked"))
    assert needed_inputs(Program("block", more, program.constants, program.calls, program.outputs)) == program.inputs


def test_rows_are_stored_in_a_cache_at_a_position_of_each_sequence(tmp_path: Path) -> None:
    keys, key, position = Named("keys"), Named("key"), Named("position")
    program = Program(
        "store",
        (
            Input("keys", Array((4, 9, 2, 8), F), "argument", "keys"),
            Input("key", Array((4, 2, 8), F), "argument", "key"),
            Input("position", Array((4,), "int32"), "argument", "position", 0.0, 8.0),
        ),
        (),
        (
            Call("rows", "arange", (4,), {}, (Array((4,), "int64"),)),
            call("one", "index_put", (4, 9, 2, 8), keys, [Named("rows"), position], key),
            call("more", "index_put", (4, 9, 2, 8), Named("one"), [Named("rows"), position], key, True),
        ),
        ("more",),
    )
    path = tmp_path / "reference.py"
    path.write_text(reference_text(program), encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), space)  # noqa: S102
    generator = np.random.default_rng(0)
    held = [generator.standard_normal(shape).astype(np.float32) for shape in ((4, 9, 2, 8), (4, 2, 8))]
    at = np.array([8, 0, 3, 3], np.int32)
    expected = held[0].copy()
    expected[np.arange(4), at] = 2.0 * held[1]
    assert np.array_equal(space["forward"](*held, at), expected)
    given = [("keys", ((4, 9, 2, 8), F)), ("key", ((4, 2, 8), F)), ("position", ((4,), "int32"))]
    source = printed(lowered(traced(space["forward"], path, given), "nki"), "nki")
    found = np.asarray(run_all(source, *held, at)[0]).reshape(expected.shape)
    assert np.allclose(found, expected, atol=1e-6)


def test_a_depthwise_convolution_keeps_no_windows_of_all_channels() -> None:
    x = np.random.default_rng(0).standard_normal((1, 8, 600, 600), np.float32)
    weight = np.random.default_rng(1).standard_normal((8, 1, 5, 5)).astype(np.float32)
    convolution: Any = functions.convolution  # what references call has no types
    tracemalloc.start()
    try:
        found = convolution(x, weight, None, (1, 1), [(2, 2), (2, 2)], (1, 1), 8)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300e6, "products of the windows of all channels take 288 MB beside the results"
    one = convolution(x[:, 5:6], weight[5:6], None, (1, 1), [(2, 2), (2, 2)], (1, 1), 1)
    assert np.allclose(found[:, 5:6], one, atol=1e-5)


def test_an_einsum_of_several_arrays_is_computed_two_arrays_at_a_time() -> None:
    arrays = {"a": (2, 5, 3), "b": (2, 7, 3), "c": (7, 4)}
    program = Program(
        "einsum",
        tuple(Input(name, Array(shape, F), "argument", name) for name, shape in arrays.items()),
        (),
        (call("y", "einsum", (2, 5, 4), "bln,bsn,sp->blp", [Named(name) for name in arrays]),),
        ("y",),
    )
    text = reference_text(program)
    a, b, c = (np.random.default_rng(0).standard_normal(shape) for shape in arrays.values())
    assert "optimize=True" in text, "otherwise numpy loops over all letters at once"
    assert np.allclose(loaded(text)["forward"](a, b, c), a @ b.swapaxes(1, 2) @ c)


def lowered_and_run(program: Program, path: Path, *given: Any) -> tuple[list[Any], list[Any]]:
    """Return the outputs of a program's reference in float64, and those of its kernel."""
    path.write_text(reference_text(program), encoding="utf-8")
    space = loaded(path.read_text("utf-8"))
    wide = space["forward"](*(one.astype(np.float64) if one.dtype == np.float32 else one for one in given))
    arguments = [(one.name, (one.array.shape, one.array.dtype.replace("64", "32"))) for one in program.inputs]
    source = printed(lowered(traced(space["forward"], path, arguments), "nki"), "nki")
    narrow = [one.astype(np.int32) if one.dtype == np.int64 else one for one in given]
    return list(wide) if isinstance(wide, tuple) else [wide], list(run_all(source, *narrow))


def test_a_fourier_transform_is_a_product_there_and_back(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((6, 20)).astype(np.float32)
    half, square = Array((6, 11), "complex64"), Array((6, 11), "complex64")
    calls = (
        Call("f", "_fft_r2c", (Named("x"), [1], 0, True), {}, (half,)),
        Call("g", "_fft_c2c", (Named("f"), [0], 2, True), {}, (half,)),
        Call("s", "mul", (Named("f"), Named("f")), {}, (square,)),
        call("size", "abs", (6, 11), Named("g")),
        call("parts", "view_as_real", (6, 11, 2), Named("g")),
        call("back", "_fft_c2r", (6, 20), Named("s"), [1], 2, 20),
    )
    program = Program("waves", (Input("x", Array(x.shape, F), "argument", "x"),), (), calls, ("size", "parts", "back"))
    waves = np.fft.rfft(x.astype(np.float64))
    plane = np.fft.fft(waves, axis=0) / 6
    wanted = [np.abs(plane), np.stack([plane.real, plane.imag], -1), np.fft.irfft(waves * waves, 20)]
    for every, limit in zip(lowered_and_run(program, tmp_path / "reference.py", x), (1e-12, 1e-5), strict=True):
        for found, right in zip(every, wanted, strict=True):
            assert np.linalg.norm(np.asarray(found).reshape(right.shape) - right) <= limit * np.linalg.norm(right)


def test_values_by_rank_and_at_equal_positions_are_right_on_a_kernel(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, i = rng.standard_normal((6, 8)).astype(np.float32), rng.integers(0, 8, (6, 8))
    third = Call("t", "kthvalue", (Named("x"), 3, 1), {}, (Array((6,), F), Array((6,), "int64")))
    calls = (
        third,
        *(Call(f"t{at}", "getitem", (Named("t"), at), {}, ()) for at in range(2)),
        call("middle", "median", (), Named("x")),
        call("most", "scatter_reduce", (6, 8), Named("x"), 1, Named("i"), Named("x"), "amax"),
        call("means", "scatter_reduce", (6, 8), Named("x"), 1, Named("i"), Named("x"), "mean", include_self=False),
        call("sums", "logcumsumexp", (6, 8), Named("x"), 1),
    )
    outputs = ("t0", "t1", "middle", "most", "means", "sums")
    most, means = x.astype(np.float64), x.astype(np.float64)
    for row, places, values in zip(range(6), i, x.astype(np.float64), strict=True):
        for place in set(places.tolist()):
            most[row, place] = max(most[row, place], values[places == place].max())
            means[row, place] = values[places == place].mean()
    wanted = [
        np.sort(x, 1)[:, 2],
        np.argsort(x, 1)[:, 2],
        np.sort(x.reshape(-1))[23],
        most,
        means,
        np.logaddexp.accumulate(x.astype(np.float64), 1),
    ]
    found = lowered_and_run(Program("ranks", (ROWS, PLACES), (), calls, outputs), tmp_path / "reference.py", x, i)
    for every, limit in zip(found, (1e-9, 1e-5), strict=True):
        for ours, right in zip(every, wanted, strict=True):
            assert np.allclose(np.asarray(ours, np.float64).reshape(np.shape(right)), right, rtol=limit, atol=limit)


def test_bounds_that_are_searched_are_drawn_in_order() -> None:
    bounds = Input("b", Array((9,), F), "buffer", "bounds", ordered=True)
    program = Program("forward", (X, bounds), (), (call("y", "bucketize", (4, 8), Named("x"), Named("b")),), ("y",))
    space = loaded(reference_text(program))
    x, b = space["get_inputs"]()
    assert (np.diff(b) >= 0.0).all() and np.array_equal(space["forward"](x, b), np.searchsorted(b, x))
