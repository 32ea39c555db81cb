"""Make arguments and expected results of kernels other than attention."""

from __future__ import annotations

import numpy as np

from scripts.evidence.simbench.samples import references as ref
from scripts.evidence.simbench.samples.drawing import BF16, FP8, Made, Maker, normal, uniform


def addition(rng: np.random.Generator) -> Made:
    a, b = normal(rng, 256, 1024), normal(rng, 256, 1024)
    return (a, b), (ref.wide(a) + b,)


def product(k: int, m: int, n: int) -> Maker:
    def make(rng: np.random.Generator) -> Made:
        a, b = normal(rng, k, m), normal(rng, k, n)
        return (a, b), (ref.wide(a).T @ b,)

    return make


def average_pool(rng: np.random.Generator) -> Made:
    x = normal(rng, 32, 12, 8)
    return (x, 2), (ref.average_pool(x, 2),)


def softmax(rng: np.random.Generator) -> Made:
    x = normal(rng, 300, 200)
    return (x,), (ref.softmax(ref.wide(x)),)


def layernorm(rng: np.random.Generator) -> Made:
    x, gamma, beta = normal(rng, 300, 1024), normal(rng, 1024), normal(rng, 1024)
    return (x, 1e-5, gamma, beta), (ref.layernorm(x, 1e-5, gamma, beta),)


def rmsnorm(rng: np.random.Generator) -> Made:
    x, gamma = normal(rng, 300, 512), normal(rng, 512)
    return (x, gamma), (ref.rmsnorm(x, gamma),)


def transpose(rng: np.random.Generator) -> Made:
    x = normal(rng, 8, 20)
    return (x, (4, 5)), (ref.wide(x).reshape(8, 4, 5).swapaxes(1, 2).reshape(8, 20),)


def mamba(rng: np.random.Generator) -> Made:
    shapes = ((1, 256, 512), (1, 256, 512), (256, 16), (1, 16, 512), (1, 16, 512))
    drawn = tuple(0.1 * uniform(rng, *shape) for shape in shapes)
    return drawn, (ref.mamba(*drawn),)


def double_row(rng: np.random.Generator) -> Made:
    lhs, rhs = rng.random((256, 2048)), rng.random((2048, 1024))
    scale = np.abs(rhs).max(axis=0, keepdims=True) / 240
    packed = ref.interleaved_pairs(rhs / scale).astype(FP8)
    scales = np.broadcast_to(scale, (128, 1024)).astype(BF16)
    return (lhs.astype(BF16), packed, scales, 2, 2, 16), (lhs @ rhs,)


def tiles_of_rows(rng: np.random.Generator) -> Made:
    a, b = normal(rng, 2, 8, 128, 512), normal(rng, 2, 8, 128, 512)
    return (a, b, a.size), (ref.wide(a) + b,)


def quantized(rng: np.random.Generator) -> Made:
    x, gamma = normal(rng, 2, 128, 1024, dtype=BF16), uniform(rng, 1024, dtype=BF16)
    normed = ref.rmsnorm(x, ref.wide(gamma), 1e-6)
    scale = np.abs(normed).max(axis=-1, keepdims=True) / 240
    return (x, gamma), (normed / scale, scale)


def scatter(rng: np.random.Generator) -> Made:
    x, source = rng.random((2, 64, 16, 16)).astype(np.float32), rng.random((2, 64, 8, 8)).astype(np.float32)
    return (x, source), (ref.select_and_scatter(x, source),)


def resize(rng: np.random.Generator) -> Made:
    x, shape = rng.random((2, 30, 20, 64)).astype(np.float32), (2, 59, 38, 64)
    return (x, shape), (ref.resize_nearest(x, shape),)


def adaptive(rng: np.random.Generator) -> Made:
    x = normal(rng, 1, 256, 13, 13)
    return (x, 6), (ref.adaptive_average_pool(x, 6),)


def rmsnorm_product(rng: np.random.Generator) -> Made:
    x, w = rng.random((1, 512, 1024)).astype(BF16), rng.random((1024, 384)).astype(BF16)
    return (x, w), (ref.rmsnorm(x, epsilon=1e-6) @ ref.wide(w),)


def rotary(rng: np.random.Generator) -> Made:
    q, k, cos, sin = (normal(rng, *s) for s in ((2, 3, 256, 64), (2, 3, 256, 64), (2, 256, 64), (2, 256, 64)))
    return (q, k, cos, sin), (ref.rotary(q, k, cos, sin),)


def bilinear(rng: np.random.Generator) -> Made:
    x = normal(rng, 2, 80, 20, 12)
    return (x,), (ref.interpolate(x, 2).reshape(160, 40, 24),)


def trilinear(rng: np.random.Generator) -> Made:
    x = normal(rng, 2, 80, 7, 6, 5)
    return (x,), (ref.interpolate(x, 3).reshape(160, 14, 12, 10),)


def max_pool(rng: np.random.Generator) -> Made:
    x = normal(rng, 448, 300)
    return (x, 3), (ref.max_pool(x, 3),)
