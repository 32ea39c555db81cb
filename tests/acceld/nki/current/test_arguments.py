"""Documented arguments of the current API: each has its effect, or is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.nki.errors import KernelFailure, LegalityError, UnsupportedCall
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.program import Program
from acceld.nki.verify.verifier import verify

HEAD = """
import nki
import nki.isa as nisa
import nki.language as nl
from dataclasses import dataclass

@nki.jit
def kernel(x):
    out = nl.ndarray((128, {width}), dtype=nl.{dtype}, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), dtype=nl.float32)
    nisa.dma_copy(dst=tile, src=x)
"""
X = np.random.default_rng(3).standard_normal((128, 64)).astype(np.float32)


def traced(body: str, width: int = 64, dtype: str = "float32", chip: str = "trn2") -> Program:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    source = HEAD.format(width=width, dtype=dtype) + lines + "    return out\n"
    return trace(source, [TensorSpec((128, 64), "float32")], api="nki", chip=chip)


def ran(body: str, width: int = 64, dtype: str = "float32", chip: str = "trn2") -> np.ndarray:
    program = traced(body, width, dtype, chip)
    assert verify(program) == ()
    return execute(program, [X])[0]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("nl.add(tile, tile, nl.float32)", X + X),
        ("nl.add(x=tile, y=2.0, dtype=nl.float32)", X + 2),
        ("nl.copy(x=tile)", X),
        ("nl.exp(tile, nl.float32)", np.exp(X)),
        ("nl.softmax(tile)", np.exp(X) / np.exp(X).sum(1, keepdims=True)),
        ("nl.broadcast_to(nl.max(tile, 1, nl.float32, True), (128, 64), nl.float32)", X.max(1, keepdims=True) + 0 * X),
        ("nl.multiply(tile, nl.broadcast_to(nl.var(tile, axis=1), (128, 64)))", X * X.var(1, keepdims=True)),
        ("nl.where(nl.greater(tile, 0.0), tile, 0.0, nl.float32)", np.maximum(X, 0)),
        ("nl.copy(nl.broadcast_to(x=nl.sum(tile, axis=1, keepdims=True), shape=(128, 64)))", X.sum(1, keepdims=True) + 0 * X),
    ],
)  # fmt: skip
def test_tile_functions_take_their_documented_arguments_by_position_and_by_name(
    call: str, expected: np.ndarray
) -> None:
    assert ran(f"nl.store(out, {call})") == pytest.approx(expected, rel=2e-6, abs=2e-6)


def test_a_mask_and_an_unknown_option_are_refused_by_name() -> None:
    with pytest.raises(LegalityError, match="takes no mask"):
        traced("nl.store(out, nl.add(tile, tile, mask=None))")
    with pytest.raises(UnsupportedCall, match=r"nl\.softmax has no option 'compute_dtype'"):
        traced("nl.store(out, nl.softmax(tile, -1, compute_dtype=nl.float32))")


def test_an_instruction_has_a_handle_and_refuses_options_it_does_not_know() -> None:
    program = traced("first = nisa.dma_copy(out, tile)\nnisa.dma_copy(out, x).depends_on(first)")
    assert [notice.line for notice in program.notices] == [13]
    with pytest.raises(LegalityError, match=r"nisa\.tensor_copy has no option 'mask'"):
        traced("nisa.tensor_copy(tile, tile, mask=None)")
    with pytest.raises(LegalityError, match="missing a required argument: 'data2'") as caught:
        traced("nisa.tensor_tensor(tile, tile, op=nl.add)")
    assert caught.value.rule == "signature"


@pytest.mark.parametrize("name", ["affine_range", "sequential_range", "static_range"])
def test_ranges_take_their_bounds_by_name(name: str) -> None:
    body = f"for i in nl.{name}(start=0, stop=64, step=32):\n    nisa.dma_copy(out[:, i : i + 32], tile[:, i : i + 32])"
    assert np.array_equal(ran(body), X)


def test_the_index_of_a_dynamic_range_with_known_bounds_is_an_offset() -> None:
    body = (
        "for i in nl.dynamic_range(start=0, stop=64, step=32):\n"
        "    nisa.dma_copy(out.ap([[64, 128], [1, 32]], scalar_offset=i, indirect_dim=1), "
        "x.ap([[64, 128], [1, 32]], scalar_offset=i, indirect_dim=1))"
    )
    assert np.array_equal(ran(body), X)


def test_an_identity_matrix_is_a_tile_that_products_take() -> None:
    body = """
identity = nl.shared_identity_matrix(128, dtype=nl.float32)
turned = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.psum)
nisa.nc_matmul(turned, stationary=tile, moving=identity)
back = nl.ndarray((64, 128), dtype=nl.float32)
nisa.tensor_copy(back, turned)
out = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.shared_hbm)
nisa.dma_copy(out, back)
"""
    assert ran(body) == pytest.approx(X.T, rel=1e-6)


def test_random_values_go_to_the_buffer_asked_for() -> None:
    program = traced(
        "noise = nl.rand((128, 64), nl.float32, nl.psum)\nnisa.tensor_copy(tile, noise)\nnl.store(out, tile)"
    )
    values = execute(program, [X])[0]
    assert 0 <= values.min() < 0.1
    assert 0.9 < values.max() < 1
    with pytest.raises(UnsupportedCall, match="in HBM"):
        traced("nl.rand((128, 64), nl.float32, buffer=nl.shared_hbm)")


def test_a_pattern_counts_in_finer_axes_than_its_destination() -> None:
    body = """
index = nl.ndarray((128, 64), dtype=nl.int32)
nisa.iota(index, [[0, 1], [0, 16], [100, 4]], channel_multiplier=1)
nisa.dma_copy(out, index)
"""
    expected = np.arange(128)[:, None] + np.tile(100 * np.arange(4), 16)
    assert np.array_equal(ran(body, dtype="int32"), expected)


def test_tiles_of_equally_many_elements_go_together_whatever_their_axes() -> None:
    body = """
total = nl.ndarray((128, 8), dtype=nl.float32)
nisa.tensor_reduce(total, nl.add, tile.reshape((128, 8, 8)), axis=2)
repeated = total.expand_dim(1).broadcast(1, 8)
nisa.tensor_tensor(tile, tile, repeated, nl.subtract)
nisa.dma_copy(out, tile)
"""
    expected = X - np.tile(X.reshape(128, 8, 8).sum(2), 8)
    assert ran(body) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    with pytest.raises(LegalityError, match=r"\[128, 63\]"):
        traced("nisa.tensor_tensor(tile, tile, tile[:, 0:63], nl.add)")


def test_a_transpose_by_dma_changes_the_first_and_the_last_of_four_axes() -> None:
    body = """
out = nl.ndarray((16, 2, 2, 128), dtype=nl.float32, buffer=nl.shared_hbm)
turned = nl.ndarray((16, 2, 2, 128), dtype=nl.float32)
nisa.dma_transpose(turned, x.reshape((128, 2, 2, 16)))
nisa.dma_copy(out, turned)
"""
    assert np.array_equal(ran(body), X.reshape(128, 2, 2, 16).transpose(3, 1, 2, 0))
    with pytest.raises(LegalityError, match="by axes"):
        traced("nisa.dma_transpose(tile, x, axes=(0, 1))")
    with pytest.raises(LegalityError, match=r"must be \[64, 128\]"):
        traced("nisa.dma_transpose(tile, x)")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("", np.cumsum(X, 1)),
        (", imm1=5.0, reduce_cmd=nisa.reduce_cmd.load_reduce", np.cumsum(X, 1) + 5),
        (", reduce_cmd=nisa.reduce_cmd.reduce", np.cumsum(X, 1) + X.sum(1, keepdims=True)),
    ],
)
def test_a_running_fold_starts_where_its_command_says(command: str, expected: np.ndarray) -> None:
    body = f"""
nisa.tensor_scalar_reduce(tile, tile, nl.multiply, 1.0, nl.add)
nisa.dma_copy(tile, x)
nisa.tensor_scalar_cumulative(tile, tile, nl.multiply, nl.add, 1.0{command})
nisa.dma_copy(out, tile)
"""
    assert ran(body) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_a_loaded_fold_starts_from_reduce_init() -> None:
    body = """
total = nl.ndarray((128, 1), dtype=nl.float32)
nisa.tensor_scalar_reduce(tile, tile, nl.multiply, 2.0, nl.add, total, reduce_cmd=nisa.reduce_cmd.load_reduce, reduce_init=7.0)
nisa.dma_copy(out, total)
"""
    assert ran(body, width=1) == pytest.approx((2 * X).sum(1, keepdims=True) + 7, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("nisa.tensor_scalar_reduce(tile, tile, nl.add, 1.0, nl.add, reduce_init=3.0)", "and reduce_cmd.load_reduce, which reads it"),
        ("nisa.tensor_scalar_cumulative(tile, tile, nl.add, nl.add, 1.0, 2.0)", "imm1"),
        ("nisa.dma_compute(out, [x, x], nl.add, scales=[1.0, 2.0])", "scales other than 1.0"),
        ("nisa.dma_compute(out, [x, x], nl.multiply)", "reduce_op=multiply"),
        ("nisa.dma_compute(out, [x, x], nl.add, unique_indices=False)", "unique_indices=False"),
        ("nisa.dma_compute(out, [x, x], nl.add, oob_mode=nisa.oob_mode.skip)", "oob_mode.skip"),
        ("nisa.dma_copy(out.view(nl.int32), x, dge_mode=nisa.dge_mode.hwdge)", "only moves bytes"),
        ("nisa.dma_copy(out, x, engine=nisa.engine.scalar)", "only with dge_mode.hwdge"),
        ("nl.gather_flattened(tile, tile, axis=1)", "axis=1"),
        ("nl.shared_constant('no/such/file.npy')", "no/such/file.npy"),
    ],
)  # fmt: skip
def test_an_argument_that_would_not_count_is_refused_by_name(call: str, message: str) -> None:
    with pytest.raises(KernelFailure, match=message) as caught:
        traced(call)
    assert caught.value.line == 12
    assert caught.value.hint


def test_a_conversion_to_integers_rounds_to_the_nearest() -> None:
    body = "whole = nl.ndarray((128, 64), dtype=nl.int32)\nnisa.tensor_copy(whole, tile)\nnisa.dma_copy(out, whole)"
    assert np.array_equal(ran(body, dtype="int32"), np.rint(X))
    cast = traced("nisa.dma_copy(out, tile)", dtype="int32")
    assert any("not documented" in notice.text for notice in cast.notices)


def test_fields_without_annotation_are_fields_and_tensors_in_hbm_are_true() -> None:
    source = """
import nki, nki.isa as nisa, nki.language as nl
from dataclasses import dataclass

@dataclass
class Config(nl.NKIObject):
    bias = None
    factor = 1.0

@nki.jit
def kernel(x):
    config = Config(bias=x, factor=3.0)
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 64), dtype=nl.float32)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, nl.multiply, config.factor if config.bias else 0.0)
    nisa.dma_copy(out, tile)
    return out
"""
    program = trace(source, [TensorSpec((128, 64), "float32")], api="nki", chip="trn2")
    assert np.array_equal(execute(program, [X])[0], 3 * X)


@pytest.mark.parametrize("decorator", ["", "@dataclass"])
def test_a_class_of_a_kernel_is_a_data_class_with_and_without_the_decorator(decorator: str) -> None:
    source = f"""
import nki, nki.isa as nisa, nki.language as nl
from dataclasses import dataclass

{decorator}
class Config(nl.NKIObject):
    rows: int
    factor: float = 2.0

    def __post_init__(self):
        self.half = self.factor / 2

@nki.jit
def kernel(x):
    assert Config(1).factor == 2.0 and Config().rows is None
    config = Config(1, factor=6.0)
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, config.half)
    nl.store(out, tile)
    return out
"""
    program = trace(source, [TensorSpec((128, 64), "float32")], api="nki", chip="trn2")
    assert np.array_equal(execute(program, [X])[0], 3 * X)


def test_one_partition_is_shuffled_to_all_of_a_quadrant() -> None:
    body = """
nisa.nc_stream_shuffle(tile[32:64, :], tile[0:1, :], [0] * 32)
nisa.dma_copy(out, tile)
"""
    expected = X.copy()
    expected[32:64] = X[0]
    assert np.array_equal(ran(body), expected)


@pytest.mark.parametrize("body", ["out[:, :] = tile", "out[0:64, :] = tile[0:64, :]\nout[64:128, :] = tile[64:128, :]"])
def test_a_tile_that_is_assigned_to_a_tensor_in_hbm_is_stored(body: str) -> None:
    np.testing.assert_array_equal(ran(body), X)
    assert any("in HBM" in one.text for one in traced(body).notices)


def test_partitions_are_folded_by_bits_on_gpsimd() -> None:
    body = """
bits = nl.ndarray((128, 64), dtype=nl.int32)
nisa.iota(dst=bits, pattern=[[0, 64]], offset=0, channel_multiplier=1)
folded = nl.ndarray((1, 64), dtype=nl.int32)
nisa.tensor_partition_reduce(dst=folded, op=nl.bitwise_or, data=bits)
nisa.dma_copy(dst=out[0:1, :], src=folded)
"""
    assert (ran(body + "nisa.dma_copy(dst=out[1:128, :], src=tile[1:128, :])")[0] == 127).all()
    assert verify(traced(body.replace("bitwise_or", "bitwise_xor")))[0].rule == "alu_op"
