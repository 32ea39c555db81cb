"""Formulas that are lowered and run: each is a numpy function and the shapes of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]


def silu(x: Array) -> Any:
    return x / (1 + np.exp(-x))


def layer_norm_product(x: Array, g: Array, b: Array, w: Array) -> Any:
    mean = x.mean(axis=1, keepdims=True)
    var = ((x - mean) ** 2).mean(axis=1, keepdims=True)
    return ((x - mean) / np.sqrt(var + 1e-5) * g + b) @ w


def softmax(x: Array) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(q: Array, k: Array, v: Array) -> Any:
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    s = s - s.max(axis=-1, keepdims=True)
    p = np.exp(s)
    return p / p.sum(axis=-1, keepdims=True) @ v


def unrolled_heads(q: Array, k: Array, v: Array) -> Any:
    out = np.empty((q.shape[1], q.shape[0], q.shape[2]), q.dtype)
    for head in range(q.shape[1]):
        s = q[:, head] @ k[:, head // 2].T
        p = np.exp(s - s.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        out[head] = p @ v[:, head // 2]
    return out


def gated(x: Array, up: Array, gate: Array, down: Array) -> Any:
    g = x @ gate
    return (g / (1 + np.exp(-g)) * (x @ up)) @ down


def low_rank(x: Array, w: Array, a: Array, b: Array) -> Any:
    return x @ w + (x @ a) @ b


def turned(x: Array, w: Array) -> Any:
    return x.T @ w


def halves(x: Array, cos: Array, sin: Array) -> Any:
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def halves_then_norm(x: Array) -> Any:
    y = x * 2.0
    half = x.shape[-1] // 2
    z = y[:, :half] + y[:, half:]
    return z / np.sqrt((z * z).sum(axis=1, keepdims=True) + 1e-6)


def scan(delta: Array, u: Array, a: Array, b: Array, c: Array) -> Any:
    state = np.zeros(a.shape, delta.dtype)
    out = np.empty(delta.shape, delta.dtype)
    for t in range(delta.shape[1]):
        state = np.exp(delta[:, t, None] * a) * state + (delta[:, t] * u[:, t])[:, None] * b[None, :, t]
        out[:, t] = state @ c[:, t]
    return out


def convolution(x: Array, w: Array, bias: Array) -> Any:
    rows, columns = x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1
    out = np.zeros((x.shape[0], w.shape[0], rows * columns), x.dtype)
    for r in range(w.shape[2]):
        for s in range(w.shape[3]):
            window = np.ascontiguousarray(x[:, :, r : r + rows, s : s + columns]).reshape(x.shape[0], x.shape[1], -1)
            out += np.matmul(w[:, :, r, s], window)
    out = (out + bias[None, :, None]).reshape(x.shape[0], w.shape[0], rows // 2, 2, columns // 2, 2)
    return out.max(axis=(3, 5))


def columns(x: Array) -> Any:
    return x.sum(axis=0)


def everything(x: Array) -> Any:
    return np.sqrt((x * x).sum())


def two_outputs(x: Array, w: Array) -> Any:
    y = x @ w
    return y, y.sum(axis=1)


def padded(x: Array) -> Any:
    y = np.pad(x, ((1, 1), (0, 0)))
    return y[:-2] + y[1:-1] + y[2:]


def chosen(x: Array, y: Array) -> Any:
    return np.where(x > 0, x, y * 0.5)


def clipped(x: Array) -> Any:
    return np.clip(x, -0.5, 0.5) + np.maximum(x, 0) + abs(x)


def powers(x: Array) -> Any:
    return (abs(x) + 1.0) ** 1.5 + x**2 - 1 / (x**2 + 1)


def einsummed(x: Array, w: Array) -> Any:
    return np.einsum("bik,bjk->bij", x, w)


def spread_rows(x: Array, r: Array) -> Any:
    return x - r[:, None] * 2.0


def narrow_product(x: Array, w: Array) -> Any:
    return (x.astype(np.float32) @ w.astype(np.float32)).astype(x.dtype)


def narrow_norm(x: Array, g: Array) -> Any:
    y = x.astype(np.float32)
    return (y / np.sqrt(np.mean(np.square(y), axis=1, keepdims=True) + 1e-5) * g.astype(np.float32)).astype(x.dtype)


def vector(x: Array, w: Array) -> Any:
    return x @ w


def stacked(x: Array, y: Array) -> Any:
    return np.stack([x + y, x - y], axis=1)


def residual_norm(x: Array, w: Array, z: Array, g: Array) -> Any:
    y = x @ w + z
    return y * g / np.sqrt(np.mean(np.square(y), axis=1, keepdims=True) + 1e-5)


def gained_norm_of_a_product(x: Array, y: Array, g: Array) -> Any:
    h = x.T @ y
    return h * g / np.sqrt(np.mean(np.square(h), axis=-1, keepdims=True) + 1e-5)


def twice(x: Array, w: Array) -> Any:
    y = np.tanh(x @ w)
    return softmax(y) @ w.T


def group_norm(x: Array) -> Any:
    y = x.reshape(x.shape[0], 4, -1)
    mean = y.mean(axis=2, keepdims=True)
    y = (y - mean) / np.sqrt(((y - mean) ** 2).mean(axis=2, keepdims=True) + 1e-5)
    return y.reshape(x.shape)


def causal_by_addition(x: Array, w: Array, mask: Array) -> Any:
    return softmax(x @ w + mask)


def many_passes(x: Array) -> Any:
    a = x - x.mean(axis=1, keepdims=True)
    b = np.tanh(a) / abs(a).sum(axis=1, keepdims=True)
    c = np.exp(b) * a
    d = c / c.max(axis=1, keepdims=True) + b
    return d / np.sqrt((d * d).sum(axis=1, keepdims=True)) + a + c


Formula = tuple[Callable[..., Any], Shapes, Any]


def convolution_of_a_wide_image(x: Array, w: Array, bias: Array) -> Any:
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    out = np.zeros((w.shape[0], rows * columns), x.dtype)
    for r in range(3):
        for s in range(3):
            out += w[:, :, r, s] @ x[:, r : r + rows, s : s + columns].reshape(x.shape[0], -1)
    pooled = (out + bias[:, None]).reshape(w.shape[0], rows // 2, 2, columns // 2, 2)
    return np.maximum(pooled.max(axis=(2, 4)), 0.0)


FORMULAS: dict[str, Formula] = {
    "silu": (silu, ((256, 384),), np.float32),
    "layer_norm_product": (layer_norm_product, ((256, 192), (192,), (192,), (192, 640)), np.float32),
    "softmax": (softmax, ((200, 700),), np.float32),
    "softmax of four axes": (softmax, ((2, 3, 16, 50),), np.float32),
    "attention": (attention, ((2, 4, 128, 64), (2, 4, 256, 64), (2, 4, 256, 64)), np.float32),
    "attention of one head": (attention, ((130, 32), (96, 32), (96, 48)), np.float32),
    "unrolled_heads": (unrolled_heads, ((128, 4, 64), (256, 2, 64), (256, 2, 64)), np.float32),
    "gated": (gated, ((128, 256), (256, 384), (256, 384), (384, 256)), np.float32),
    "low_rank": (low_rank, ((256, 256), (256, 640), (256, 16), (16, 640)), np.float32),
    "gained_norm_of_a_product": (gained_norm_of_a_product, ((64, 192), (64, 96), (96,)), np.float32),
    "turned": (turned, ((256, 384), (256, 100)), np.float32),
    "halves": (halves, ((256, 128), (256, 64), (256, 64)), np.float32),
    "halves_then_norm": (halves_then_norm, ((130, 128),), np.float32),
    "scan": (scan, ((128, 64), (128, 64), (128, 4), (4, 64), (4, 64)), np.float32),
    "convolution": (convolution, ((2, 32, 10, 12), (48, 32, 3, 3), (48,)), np.float32),
    "a wide image": (convolution_of_a_wide_image, ((8, 44, 502), (16, 8, 3, 3), (16,)), np.float32),
    "columns": (columns, ((300, 200),), np.float32),
    "everything": (everything, ((128, 256),), np.float32),
    "two_outputs": (two_outputs, ((100, 128), (128, 300)), np.float32),
    "padded": (padded, ((126, 64),), np.float32),
    "chosen": (chosen, ((256, 100), (256, 100)), np.float32),
    "clipped": (clipped, ((64, 1000),), np.float32),
    "powers": (powers, ((128, 200),), np.float32),
    "einsummed": (einsummed, ((3, 64, 128), (3, 96, 128)), np.float32),
    "spread_rows": (spread_rows, ((200, 150), (200,)), np.float32),
    "narrow_product": (narrow_product, ((128, 256), (256, 512)), ml_dtypes.bfloat16),
    "narrow_norm": (narrow_norm, ((256, 512), (512,)), ml_dtypes.bfloat16),
    "vector": (vector, ((256, 300), (300,)), np.float32),
    "stacked": (stacked, ((100, 60), (100, 60)), np.float32),
    "residual_norm": (residual_norm, ((128, 128), (128, 256), (128, 256), (256,)), np.float32),
    "twice": (twice, ((128, 100), (100, 200)), np.float32),
    "group_norm": (group_norm, ((64, 256),), np.float32),
    "causal_by_addition": (causal_by_addition, ((128, 64), (64, 128), (128, 128)), np.float32),
    "rows that do not fit": (many_passes, ((64, 13000),), np.float32),
    "a row": (silu, ((1000,),), np.float32),
    "a prime number of rows": (softmax, ((131, 257),), np.float32),
    "a long row": (softmax, ((4, 70000),), np.float32),
}
