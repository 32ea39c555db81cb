"""Kernels of the current API: traced with loops rolled, executed, and compared with numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from acceld.nki.errors import KernelFailure, LegalityError
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.current.surface import NOT_COMPILED, surface
from acceld.nki.frontend.permitted import Permitted
from acceld.nki.frontend.session import SAMPLE_AFTER, TraceOptions
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.codec import decode, encode
from acceld.nki.ir.program import LoopKind, Program
from acceld.nki.verify.verifier import verify

PRELUDE = "import numpy as np\nimport nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n"


def traced(
    body: str,
    *shapes: tuple[int, ...],
    dtype: str = "float32",
    grid: tuple[int, ...] = (),
    lnc: int = 1,
    sample_after: int = SAMPLE_AFTER,
    closely: bool = False,
    permitted: Permitted | None = None,
) -> Program:
    """Return the program of a kernel whose function is written in ``body``. Encoding and decoding must not change it."""
    specs, options = (
        [TensorSpec(s, dtype) for s in shapes],
        TraceOptions(sample_after=sample_after, sample_closely=closely, permitted=permitted),
    )
    program = trace(PRELUDE + body, specs, api="nki", chip="trn2", grid=grid, lnc=lnc, options=options)
    assert decode(encode(program)) == program
    return program


def ran(program: Program, inputs: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Return the program's only output. The program must be legal."""
    assert verify(program) == ()
    (out,) = execute(program, inputs)
    return out


def drawn(*shapes: tuple[int, ...]) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


MATMUL = """
@nki.jit
def kernel(x, w):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(4):
        left = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        right = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=x[nl.ds(128 * k, 128), 0:128])
        nisa.dma_copy(dst=right, src=w[128 * k : 128 * (k + 1), :])
        nisa.nc_matmul(acc, left, right)
    tile = nl.ndarray((128, 512), dtype=nl.float32)
    nisa.tensor_copy(dst=tile, src=acc)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


def test_products_accumulate_and_the_loop_comes_back() -> None:
    x, w = drawn((512, 128), (512, 512))
    program = traced(MATMUL, (512, 128), (512, 512))
    trips = [loop.trips for loop in program.loops.values()]
    assert trips in ([4], [3]) and len(list(program.walk())) <= 9
    np.testing.assert_allclose(ran(program, [x, w]), x.T @ w, rtol=2e-5, atol=2e-4)


def test_softmax_by_instructions_matches_numpy() -> None:
    body = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        rows = nl.ds(128 * i, 128)
        tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        low = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[rows, :])
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=tile, axis=1, negate=True)
        nisa.activation(dst=tile, op=nl.exp, data=tile, bias=low, reduce_op=nl.add, reduce_res=total,
                        reduce_cmd=nisa.reduce_cmd.reset_reduce)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[rows, :], src=tile)
    return out
"""
    (x,) = drawn((256, 96))
    e = np.exp(x - x.max(axis=1, keepdims=True))
    program = traced(body, (256, 96))
    assert [loop.trips for loop in program.loops.values()] == [2]
    np.testing.assert_allclose(ran(program, [x]), e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_a_list_of_tiles_outlives_its_loop() -> None:
    body = """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = []
    for i in nl.affine_range(4):
        t = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[128 * i : 128 * i + 128, :])
        tiles.append(t)
    for t in tiles[1:]:
        nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=t, op=nl.add)
    nisa.dma_copy(dst=out, src=tiles[0])
    return out
"""
    (x,) = drawn((512, 64))
    np.testing.assert_allclose(
        ran(traced(body, (512, 64)), [x]), x.reshape(4, 128, 64).sum(axis=0), rtol=1e-5, atol=1e-5
    )


def test_python_control_flow_on_loop_variables_works() -> None:
    body = """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.zeros((128, 32), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.sequential_range(4):
        t = nl.load(x[128 * i : 128 * i + 128, :])
        if i % 2 == 0:
            nisa.tensor_tensor(dst=acc, data1=acc, data2=t, op=nl.add)
        else:
            nisa.tensor_tensor(dst=acc, data1=acc, data2=t, op=nl.subtract)
    nl.store(out, acc)
    return out
"""
    (x,) = drawn((512, 32))
    blocks = x.reshape(4, 128, 32)
    expected = blocks[0] - blocks[1] + blocks[2] - blocks[3]
    np.testing.assert_allclose(ran(traced(body, (512, 32)), [x]), expected, rtol=1e-5, atol=1e-5)


def test_iota_and_affine_select_make_a_causal_mask() -> None:
    body = """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.load(x)
    masked = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    nisa.affine_select(dst=masked, pattern=[[-1, 128]], channel_multiplier=1, on_true_tile=t, on_false_value=0.0,
                       cmp_op=nl.greater_equal)
    nl.store(out, masked)
    return out
"""
    (x,) = drawn((128, 128))
    np.testing.assert_array_equal(ran(traced(body, (128, 128)), [x]), np.tril(x))


def test_access_patterns_walk_strides_and_offsets() -> None:
    body = """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(out, nl.copy(t.ap([[64, 128], [4, 16]], offset=1)))
    return out
"""
    (x,) = drawn((128, 64))
    np.testing.assert_array_equal(ran(traced(body, (128, 64)), [x]), x[:, 1::4])


def test_views_permute_reshape_and_broadcast() -> None:
    body = """
@nki.jit
def kernel(x, scale):
    out = nl.ndarray((128, 4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.load(x)
    s = nl.load(scale)
    turned = t.reshape_dim(1, (8, 4)).permute((0, 2, 1))
    result = nl.ndarray((128, 4, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=result, data1=turned, data2=s.expand_dim(2).broadcast(2, 8), op=nl.multiply)
    nisa.dma_copy(dst=out, src=result)
    return out
"""
    x, scale = drawn((128, 32), (128, 4))
    expected = x.reshape(128, 8, 4).transpose(0, 2, 1) * scale[:, :, None]
    np.testing.assert_allclose(ran(traced(body, (128, 32), (128, 4)), [x, scale]), expected, rtol=1e-6)


SPMD = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    part = x.shape[0] // nl.num_programs(0)
    rows = nl.ds(part * nl.program_id(0), part)
    t = nl.load(x[rows, :])
    nl.store(out[rows, :], nl.add(t, t))
    return out
"""


def test_programs_of_a_launch_share_their_output_and_roll_into_one_loop() -> None:
    (x,) = drawn((256, 32))
    program = traced(SPMD, (256, 32), grid=(2,), lnc=2)
    assert [(loop.trips, loop.kind) for loop in program.loops.values()] == [(2, LoopKind.SPMD)]
    np.testing.assert_array_equal(ran(program, [x]), 2 * x)


def test_a_run_time_loop_counts_in_a_register() -> None:
    body = """
@nki.jit
def kernel(x, n):
    out = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.zeros((1, 8), dtype=nl.float32, buffer=nl.sbuf)
    one = nl.load(x)
    count = nisa.register_alloc(n)
    def step(i):
        nisa.tensor_tensor(dst=acc, data1=acc, data2=one, op=nl.add)
    nl.fori_loop(0, count, step)
    nl.store(out, acc)
    return out
"""
    source = PRELUDE + body
    program = trace(source, [TensorSpec((1, 8), "float32"), TensorSpec((1, 1), "int32")], api="nki", chip="trn2")
    x = np.full((1, 8), 1.5, np.float32)
    (out,) = execute(program, [x, np.array([[5]], np.int32)])
    np.testing.assert_array_equal(out, np.full((1, 8), 7.5, np.float32))


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("nisa.dma_copy(dst=nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum), src=x)", LegalityError, "PSUM"),
        ("nl.load(x, mask=None)", LegalityError, "mask"),
        ("nl.ndarray((256, 64), dtype=nl.float32, buffer=nl.sbuf)", LegalityError, "partition"),
        ("nisa.nc_transposee(dst=x, data=x)", LegalityError, "nc_transpose"),
        ("nki.collectives.all_to_all_v(x)", LegalityError, "dsts"),
        ("nisa.sendrecv(x, x, 0, 1, 0)", KernelFailure, "sendrecv"),
    ],
)
def test_what_is_not_legal_is_refused_with_the_kernels_line(statement: str, kind: type[Exception], words: str) -> None:
    body = f"@nki.jit\ndef kernel(x):\n    {statement}\n    return x\n"
    with pytest.raises(kind, match=words) as caught:
        traced(body, (128, 64))
    assert isinstance(caught.value, KernelFailure) and caught.value.line == 8


def test_the_surface_is_mostly_there() -> None:
    states = surface()
    for module in ("nki.isa", "nki.language"):
        refused = {name: state for name, state in states[module].items() if not state.startswith("supported")}
        assert len(set(refused) - set(NOT_COMPILED)) <= 4 and all(":" in state for state in refused.values()), refused


def test_an_argument_is_updated_in_place_and_returned() -> None:
    body = """
@nki.jit
def kernel(cache, new):
    old = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    more = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=old, src=cache)
    nisa.dma_copy(dst=more, src=new)
    nisa.tensor_tensor(dst=old, data1=old, data2=more, op=nl.add)
    nisa.dma_copy(dst=cache, src=old)
    return cache
"""
    cache, new = drawn((128, 64), (128, 64))
    program = traced(body, (128, 64), (128, 64))
    assert program.buffers[program.outputs[0]].written_input
    np.testing.assert_array_equal(ran(program, [cache, new]), cache + new)
