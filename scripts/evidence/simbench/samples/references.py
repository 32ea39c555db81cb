"""Compute numpy references for the kernels of nki-samples, from their documented behavior, in float64 throughout."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def wide(x: Array) -> Array:
    """Return ``x`` in float64."""
    return np.asarray(x).astype(np.float64)


def softmax(x: Array) -> Array:
    """Compute softmax along the last axis, with the maximum subtracted."""
    raised = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def layernorm(x: Array, epsilon: float, gamma: Array, beta: Array) -> Array:
    """Normalize rows to mean 0 and variance 1, then scale and shift them."""
    x = wide(x)
    mean, variance = x.mean(axis=1, keepdims=True), x.var(axis=1, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(variance + epsilon) * wide(gamma) + wide(beta))


def rmsnorm(x: Array, gamma: Array | float = 1.0, epsilon: float = 0.0) -> Array:
    """Divide rows by the root of their mean square."""
    x = wide(x)
    return np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * gamma)


def average_pool(x: Array, size: int) -> Array:
    """Average windows of ``size`` x ``size`` without overlap, of channels x height x width."""
    channels, height, width = x.shape
    windows = wide(x).reshape(channels, height // size, size, width // size, size)
    return np.asarray(windows.mean(axis=(2, 4)))


def adaptive_average_pool(x: Array, size: int | tuple[int, int]) -> Array:
    """Average windows that split height and width as evenly as possible."""
    rows, columns = (size, size) if isinstance(size, int) else size
    n, c, height, width = x.shape
    out = np.zeros((n, c, rows, columns))
    for i in range(rows):
        for j in range(columns):
            top, bottom = i * height // rows, -(-(i + 1) * height // rows)
            left, right = j * width // columns, -(-(j + 1) * width // columns)
            out[:, :, i, j] = wide(x)[:, :, top:bottom, left:right].mean(axis=(2, 3))
    return out


def max_pool(x: Array, size: int) -> Array:
    """Compute a max pool with stride 1 and no padding."""
    height, width = x.shape[0] - size + 1, x.shape[1] - size + 1
    shifted = [wide(x)[i : i + height, j : j + width] for i in range(size) for j in range(size)]
    return np.asarray(np.max(shifted, axis=0))


def select_and_scatter(x: Array, source: Array) -> Array:
    """Compute the gradient of a 3 x 3 max pool with stride 2 and padding 1 (the padding is zero)."""
    n, c, height, width = x.shape
    padded = np.pad(wide(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.zeros((n, c, height + 2, width + 2))
    for i in range(source.shape[2]):
        for j in range(source.shape[3]):
            window = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].reshape(n, c, 9)
            at = window.argmax(axis=2)
            for k in range(9):
                chosen = at == k
                out[:, :, 2 * i + k // 3, 2 * j + k % 3] += np.where(chosen, wide(source)[:, :, i, j], 0.0)
    return out[:, :, 1:-1, 1:-1]


def resize_nearest(x: Array, shape: tuple[int, ...]) -> Array:
    """Resize batch x height x width x channels; each target pixel is the source pixel whose index is rounded down."""
    rows = np.floor(np.arange(shape[1]) * np.float32(x.shape[1] / shape[1])).astype(int)
    columns = np.floor(np.arange(shape[2]) * np.float32(x.shape[2] / shape[2])).astype(int)
    return wide(x)[:, rows][:, :, columns]


def interpolate(x: Array, axes: int) -> Array:
    """Double the last ``axes`` axes by linear interpolation, corners not aligned."""
    out = wide(x)
    for axis in range(x.ndim - axes, x.ndim):
        before = np.concatenate([out.take([0], axis), out.take(range(out.shape[axis] - 1), axis)], axis)
        after = np.concatenate([out.take(range(1, out.shape[axis]), axis), out.take([-1], axis)], axis)
        both = np.stack([0.75 * out + 0.25 * before, 0.75 * out + 0.25 * after], axis + 1)
        out = both.reshape((*out.shape[:axis], 2 * out.shape[axis], *out.shape[axis + 1 :]))
    return out


def mamba(delta: Array, u: Array, a: Array, b: Array, c: Array) -> Array:
    """Compute the state-space recurrence along the last axis, batched."""
    delta, u, a, b, c = map(wide, (delta, u, a, b, c))
    state = np.zeros((delta.shape[0], delta.shape[1], a.shape[1]))
    out = np.empty_like(delta)
    for t in range(delta.shape[2]):
        step = delta[:, :, t, None]
        state = np.exp(step * a) * state + step * b[:, None, :, t] * u[:, :, t, None]
        out[:, :, t] = (state * c[:, None, :, t]).sum(axis=2)
    return out


def attention_dn(q: Array, k: Array, v: Array) -> Array:
    """Compute attention of q, k, v of shape [d, n] without a scale; return [n, d]."""
    return softmax(wide(q).T @ wide(k)) @ wide(v).T


def scores(q: Array, k: Array, scale: float, causal: bool) -> Array:
    """Return scaled products of queries [.., d, queries] and keys [.., d, keys]; those of later keys are -9984."""
    made = np.swapaxes(wide(q), -1, -2) @ wide(k) * scale
    if causal:
        later = np.arange(made.shape[-1])[None, :] > np.arange(made.shape[-2])[:, None]
        made = np.where(later, -9984.0, made)
    return made


def flash_forward(q: Array, k: Array, v: Array, causal: bool) -> tuple[Array, Array]:
    """Compute attention of [b, h, d, n] queries, [b, g, d, n] keys and [b, g, n, d] values; return it with the log of
    its sums.
    """
    group = q.shape[1] // k.shape[1]
    raw = scores(q, np.repeat(k, group, axis=1), q.shape[2] ** -0.5, causal)
    top = raw.max(axis=-1)
    sums = top + np.log(np.exp(raw - top[..., None]).sum(axis=-1))
    tiles = np.swapaxes(sums.reshape(*sums.shape[:2], -1, 128), -1, -2)
    return softmax(raw) @ np.repeat(wide(v), group, axis=1), tiles


def flash_backward(q: Array, k: Array, v: Array, dy: Array, causal: bool) -> tuple[Array, Array, Array, Array, Array]:
    """Return gradients of q, k and v, all [b, h, d, n], then the forward result and the log of its sums."""
    scale = q.shape[2] ** -0.5
    raw = scores(q, k, scale, causal)
    share = softmax(raw)
    back = np.swapaxes(wide(dy), -1, -2) @ wide(v)
    slope = (back - (back * share).sum(axis=-1, keepdims=True)) * share
    dq = wide(k) @ np.swapaxes(slope, -1, -2) * scale
    dk, dv = wide(q) @ slope * scale, wide(dy) @ share
    top = raw.max(axis=-1)
    sums = top + np.log(np.exp(raw - top[..., None]).sum(axis=-1))
    out = np.swapaxes(share @ np.swapaxes(wide(v), -1, -2), -1, -2)
    return dq, dk, dv, out, np.swapaxes(sums.reshape(*sums.shape[:2], -1, 128), -1, -2)


def rotary(q: Array, k: Array, cos: Array, sin: Array) -> Array:
    """Rotate each half of the last axis of [2, batch, heads, n, d] against the other."""

    def rotated(x: Array) -> Array:
        x, half = wide(x), x.shape[-1] // 2
        other = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
        return np.asarray(x * wide(cos)[:, None] + other * wide(sin)[:, None])

    return np.stack([rotated(q), rotated(k)])


def interleaved_pairs(x: Array) -> Array:
    """Reorder [K, N] as [K / 2, 2 N]: tiles of 128 x 512 of every two rows of tiles side by side."""
    k, n = x.shape
    tiles = x.reshape(k // 256, 2, 128, n // 512, 512)
    return tiles.transpose(0, 2, 3, 1, 4).reshape(k // 2, 2 * n)
