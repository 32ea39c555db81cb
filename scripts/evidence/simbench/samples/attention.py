"""Make arguments and expected results of attention kernels."""

from __future__ import annotations

import numpy as np

from scripts.evidence.simbench.samples import references as ref
from scripts.evidence.simbench.samples.drawing import BF16, Made, Maker, uniform


def attention(n: int) -> Maker:
    def make(rng: np.random.Generator) -> Made:
        q, k, v = (uniform(rng, 128, n) for _ in range(3))
        return (q, k, v), (ref.attention_dn(q, k, v),)

    return make


def sd_tutorial(rng: np.random.Generator) -> Made:
    q, k, v = (uniform(rng, 512, 64) for _ in range(3))
    return (q, k, v), (ref.softmax(ref.wide(q) @ k.T * 0.125) @ v,)


def sd_small_head(rng: np.random.Generator) -> Made:
    q, k, v = uniform(rng, 1, 64, 1024), uniform(rng, 1, 1024, 64), uniform(rng, 1, 1024, 64)
    scores = np.swapaxes(ref.wide(q), 1, 2) @ np.swapaxes(k, 1, 2) * 0.125
    return (q, k, v), (ref.softmax(scores) @ v,)


def sd_allocated(rng: np.random.Generator) -> Made:
    q, k, v = uniform(rng, 1, 128, 1024), uniform(rng, 1, 128, 1024), uniform(rng, 1, 1024, 128)
    out = ref.softmax(np.swapaxes(ref.wide(q), 1, 2) @ k * 0.125) @ v
    return (q, k, v), (np.swapaxes(out, 1, 2),)


def flash_forward(rng: np.random.Generator) -> Made:
    q, k, v = uniform(rng, 1, 2, 64, 2048), uniform(rng, 1, 1, 64, 2048), uniform(rng, 1, 1, 2048, 64)
    return (q, k, v, None), ref.flash_forward(q, k, v, causal=True)


def flash_backward(rng: np.random.Generator) -> Made:
    q, k, v, dy = (uniform(rng, 1, 1, 64, 512) for _ in range(4))
    dq, dk, dv, out, sums = ref.flash_backward(q, k, v, dy, causal=True)
    return (q, k, v, out.astype(np.float32), dy, sums.astype(np.float32), None, None, True, True), (dq, dk, dv)


def pipelined(rng: np.random.Generator) -> Made:
    q, k, v = (uniform(rng, 1, *shape, dtype=BF16) for shape in ((128, 16384), (128, 16384), (16384, 128)))
    out = np.concatenate(
        [
            ref.softmax(np.swapaxes(q[:, :, at : at + 1024].astype(np.float32), 1, 2) @ k.astype(np.float32) * 0.125)
            @ v.astype(np.float32)
            for at in range(0, 16384, 1024)
        ],
        axis=1,
    )
    return (q, k, v, 0.125, False, True), (out,)
