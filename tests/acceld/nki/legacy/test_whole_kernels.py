"""Whole kernels as people write them, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from acceld.nki.verify.verifier import verify

from .conftest import Array, RunKernel, TraceKernel

Oracle = Callable[..., Any]

ATTENTION = """
@nki.jit
def attention(q, k, v):
    d, rows = q.shape
    keys = k.shape[1]
    out = nl.ndarray((rows, d), dtype=q.dtype, buffer=nl.shared_hbm)
    k_tile = nl.load(k)
    v_tiles = nl.ndarray((keys // 128, par_dim(128), d), dtype=v.dtype)
    for j in nl.affine_range(keys // 128):
        v_tiles[j] = nl.load(v[nl.ds(j * 128, 128), :])
    for i in nl.affine_range(rows // 128):
        q_tile = nl.load(q[:, nl.ds(i * 128, 128)]) * (1.0 / d**0.5)
        scores = nl.ndarray((128, keys), dtype=nl.float32, buffer=nl.psum)
        scores[...] = nisa.nc_matmul(q_tile, k_tile)
        top = nisa.tensor_reduce(np.max, scores, axis=(1,), negate=True)
        weights = nl.ndarray((par_dim(128), keys), dtype=q.dtype)
        total = nl.ndarray((par_dim(128), 1), dtype=nl.float32)
        weights[...] = nisa.activation_reduce(np.exp, scores, bias=top, reduce_op=np.add, reduce_res=total)
        mixed = nl.zeros((128, d), dtype=nl.float32, buffer=nl.psum)
        for j in nl.affine_range(keys // 128):
            mixed += nisa.nc_matmul(nl.copy(nisa.nc_transpose(weights[:, nl.ds(j * 128, 128)])), v_tiles[j])
        nl.store(out[nl.ds(i * 128, 128), :], nl.multiply(mixed, nisa.reciprocal(total)))
    return out
"""
LOG_SUM_EXP = """
@nki.jit
def log_sum_exp(x):
    rows, columns = x.shape
    out = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    top = nl.full((par_dim(rows), 1), fill_value=-9984.0, dtype=nl.float32)
    total = nl.zeros((par_dim(rows), 1), dtype=nl.float32)
    for i in nl.sequential_range(columns // 8):
        tile = nl.load(x[:, nl.ds(i * 8, 8)])
        higher = nl.maximum(top, nl.max(tile, axis=1, keepdims=True))
        total[...] = total * nl.exp(top - higher) + nl.sum(nl.exp(tile - higher), axis=1, keepdims=True)
        top[...] = nl.copy(higher)
    nl.store(out, top + nl.log(total))
    return out
"""
TOP_16 = """
@nki.jit
def top(x, k=16):
    out = nl.ndarray((x.shape[0], k), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for part in nl.static_range(k // 8):
        eight = nisa.max8(src=tile)
        nl.store(out[:, part * 8 : (part + 1) * 8], eight)
        tile[...] = nisa.nc_match_replace8(data=tile, vals=eight, imm=float("-inf"))
    return out
"""
DEPTHWISE = """
@nki.jit
def depthwise(x, w):
    taps = w.shape[1]
    length = x.shape[1] - taps + 1
    out = nl.ndarray((x.shape[0], length), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, weights = nl.load(x), nl.load(w)
    acc = nl.zeros((x.shape[0], length), dtype=nl.float32, buffer=nl.sbuf)
    for j in nl.static_range(taps):
        acc[...] = nisa.scalar_tensor_tensor(
            data=tile[:, j : j + length], op0=np.multiply, operand0=weights[:, j : j + 1], op1=np.add, operand1=acc
        )
    nl.store(out, acc)
    return out
"""
GROUPED = """
@nki.jit
def grouped(q, k):
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    for head in nl.affine_range(q.shape[0]):
        nl.store(out[head], nl.load(q[head]) * nl.load(k[head // 2]) - nl.load(k[head % 2]))
    return out
"""
RAGGED_PRODUCT = """
@nki.jit
def product(x, y):
    depth, rows = x.shape
    out = nl.ndarray((rows, y.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:rows]
    q, g = nl.mgrid[0:128, 0 : y.shape[1]]
    acc = nl.zeros((rows, y.shape[1]), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range((depth + 127) // 128):
        left = nl.load(x[k * 128 + p, f], mask=(k * 128 + p < depth))
        right = nl.load(y[k * 128 + q, g], mask=(k * 128 + q < depth))
        acc += nisa.nc_matmul(left[p, f], right[q, g], mask=(k * 128 + p < depth))
    nl.store(out, acc)
    return out
"""
ROTATED_PAIRS = """
@nki.jit
def rotated(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x).reshape((rows, columns // 2, 2))
    even, odd = tile[:, :, 0], tile[:, :, 1]
    mixed = nl.ndarray((rows, columns // 2, 2), dtype=nl.float32)
    mixed[:, :, 0] = nl.subtract(even, odd)
    mixed[:, :, 1] = nl.add(even, odd)
    nl.store(out, mixed.reshape((rows, columns)))
    return out
"""
ARG_MAX = """
@nki.jit
def arg_max(x):
    rows, columns = x.shape
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    places = nisa.iota(nl.arange(columns)[None, :] + 0 * nl.arange(rows)[:, None], dtype=nl.int32)
    best = nl.equal(tile, nl.max(tile, axis=1, keepdims=True))
    found = nl.where(best, nl.copy(places, dtype=nl.float32), 1e9)
    nl.store(out, nl.min(found, axis=1, keepdims=True))
    return out
"""
OBJECTS = """
import functools
from dataclasses import dataclass

@dataclass(frozen=True)
class Tiling:
    \"\"\"How the columns are cut.\"\"\"
    width: int = 6
    count: int = 4

class Total:
    def __init__(self, shape):
        self.tile = nl.zeros(shape, dtype=nl.float32)

    def add(self, value):
        self.tile += value
        return self

def _scaled(*, src, scale=1.0, **options):
    return nl.multiply(nl.load(src), scale, **options)

@nki.jit(mode="trace", show_compiler_tb=True)
def objects(x, tiling: Tiling | None = None, *, activation: str = "relu"):
    tiling = tiling or Tiling()
    activations = {"relu": nl.relu, "none": lambda tile: tile}
    out = nl.ndarray((x.shape[0], tiling.width), dtype=x.dtype, buffer=nl.shared_hbm)
    total = Total((par_dim(x.shape[0]), tiling.width))
    load = functools.partial(_scaled, scale=2.0, dtype=nl.float32)
    for i in nl.affine_range(tiling.count):
        total.add(load(src=x[:, nl.ds(i * tiling.width, tiling.width)]))
    nl.store(out, activations[activation](total.tile))
    return out
"""
IN_PLACE_TOO = """
@nki.jit
def both(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    spare = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    nl.store(spare, nl.load(x) + nl.load(y))
    nl.store(out.reshape((x.shape[1], x.shape[0])), nl.load(spare.reshape((x.shape[1], x.shape[0]))))
    nl.store(x[0:16, :], nl.load(y[0:16, :]))
    return out, x
"""


def _softmax(x: Array) -> Array:
    raised: Array = np.exp(x - x.max(1, keepdims=True))
    shares: Array = raised / raised.sum(1, keepdims=True)
    return shares


def _pairs(x: Array) -> Array:
    even, odd = x[:, ::2], x[:, 1::2]
    return np.stack([even - odd, even + odd], axis=2).reshape(x.shape)


@pytest.mark.parametrize(
    ("kernel", "shapes", "oracle"),
    [
        (ATTENTION, [(64, 256), (64, 384), (384, 64)], lambda q, k, v: _softmax(q.T @ k / 8) @ v),
        (LOG_SUM_EXP, [(64, 40)], lambda x: np.log(np.exp(x).sum(1, keepdims=True))),
        (TOP_16, [(32, 40)], lambda x: np.sort(x, 1)[:, :-17:-1]),
        (DEPTHWISE, [(32, 40), (32, 3)], lambda x, w: sum(x[:, j : j + 38] * w[:, j : j + 1] for j in range(3))),
        (GROUPED, [(4, 32, 8), (2, 32, 8)], lambda q, k: q * np.repeat(k, 2, 0) - np.tile(k, (2, 1, 1))),
        (RAGGED_PRODUCT, [(200, 64), (200, 48)], lambda x, y: x.T @ y),
        (ROTATED_PAIRS, [(32, 24)], _pairs),
        (ARG_MAX, [(32, 24)], lambda x: x.argmax(1)[:, None]),
        (OBJECTS, [(32, 24)], lambda x: np.maximum(2 * x.reshape(32, 4, 6).sum(1), 0)),
        (IN_PLACE_TOO, [(32, 24), (32, 24)], lambda x, y: [x + y, np.concatenate([y[:16], x[16:]])]),
    ],
    ids=[
        "attention",
        "log_sum_exp",
        "top",
        "depthwise",
        "grouped",
        "ragged",
        "pairs",
        "arg_max",
        "objects",
        "in_place",
    ],
)
def test_a_whole_kernel_is_legal_and_agrees_with_numpy(
    trace_kernel: TraceKernel,
    run_kernel: RunKernel,
    random: Callable[..., Array],
    kernel: str,
    shapes: list[tuple[int, ...]],
    oracle: Oracle,
) -> None:
    arrays = [random(*shape) for shape in shapes]
    entry = kernel.split("@nki.jit")[1].split("def ")[1].split("(")[0]
    assert verify(trace_kernel(kernel, *arrays, entry=entry)) == ()
    found = run_kernel(kernel, *arrays, entry=entry)
    expected = oracle(*(array.astype(np.float64) for array in arrays))
    pairs = zip(found, expected, strict=True) if isinstance(found, list) else [(found, expected)]
    for one, other in pairs:
        assert one.shape == other.shape
        assert np.linalg.norm(one - other) <= 2e-6 * np.linalg.norm(other)
