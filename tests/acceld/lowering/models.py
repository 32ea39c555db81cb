"""References of everyday models, as people write them in numpy: attentions, norms, losses, routing, convolutions, decoding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Spec = tuple[Any, ...]
"""A shape of float32; or a dtype, a shape, and the bounds of integers."""

MODELS: dict[str, tuple[Callable[..., Any], tuple[Spec, ...]]] = {}


def model(*specs: Spec) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a reference with its arguments."""

    def entered(function: Callable[..., Any]) -> Callable[..., Any]:
        MODELS[function.__name__] = (function, specs)
        return function

    return entered


def softmax(x: Array, axis: int = -1) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


@model((2, 2, 64, 32), (2, 2, 64, 32), (2, 2, 64, 32))
def causal_attention_tril(q: Array, k: Array, v: Array) -> Any:
    s = q.shape[-2]
    scores = np.matmul(q, k.transpose(0, 1, 3, 2)) / np.sqrt(q.shape[-1])
    mask = np.tril(np.ones((s, s)))
    scores = np.where(mask == 0, -1000000000.0, scores)
    return np.matmul(softmax(scores), v)


@model((160, 32), (160, 32), (160, 32))
def causal_attention_triu_inf(q: Array, k: Array, v: Array) -> Any:
    s = q.shape[0]
    scores = q @ k.T / math.sqrt(q.shape[-1])
    scores = scores + np.triu(np.full((s, s), -np.inf), k=1)
    scores = scores - scores.max(axis=-1, keepdims=True)
    p = np.exp(scores)
    return p / p.sum(-1, keepdims=True) @ v


@model((2, 64, 32), (2, 64, 32), (2, 64, 32))
def causal_attention_arange(q: Array, k: Array, v: Array) -> Any:
    i = np.arange(q.shape[1])
    mask = i[:, None] >= i[None, :]
    scores = np.einsum("bqd,bkd->bqk", q, k) * q.shape[-1] ** (-0.5)
    scores = np.where(mask, scores, -1e30)
    return np.einsum("bqk,bkd->bqd", softmax(scores), v)


@model((128, 32), (128, 32), (128, 32))
def sliding_window_attention(q: Array, k: Array, v: Array) -> Any:
    i = np.arange(q.shape[0])
    d = i[:, None] - i[None, :]
    mask = (d >= 0) & (d < 16)
    scores = q @ k.T * 0.176
    scores = np.where(mask, scores, -1000000000.0)
    return softmax(scores) @ v


@model((2, 2, 48, 32), (2, 2, 48, 32), (2, 2, 48, 32), ("int32", 2, 10, 48))
def padding_mask_attention(q: Array, k: Array, v: Array, lengths: Array) -> Any:
    s = k.shape[2]
    valid = np.arange(s)[None, :] < lengths[:, None]
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(valid[:, None, None, :], scores, -1000000000.0)
    return softmax(scores) @ v


@model((2, 4, 32, 16), (2, 4, 32, 16))
def rotary(x: Array, unused: Array) -> Any:
    d = x.shape[-1]
    inv = 1.0 / 10000 ** (np.arange(0, d, 2) / d)
    ang = np.arange(x.shape[-2])[:, None] * inv[None, :]
    cos, sin = (np.cos(ang), np.sin(ang))
    a, b = (x[..., 0::2], x[..., 1::2])
    out = np.empty_like(x)
    out[..., 0::2] = a * cos - b * sin
    out[..., 1::2] = a * sin + b * cos
    return out + 0 * unused


@model((24, 2, 64), ("int32", 24, 0, 128))
def rotary_by_float32_frequencies(x: Array, position: Array) -> Any:
    inv = (1.0 / 10000 ** (np.arange(32).astype("float32") / np.float32(32))).astype("float32")
    ang = position[:, None] * inv[None, :]
    cos, sin = np.cos(ang)[:, None], np.sin(ang)[:, None]
    a, b = x[..., :32], x[..., 32:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


@model((4, 72, 160), (32, 4))
def bias_by_buckets_of_distances(scores: Array, table: Array) -> Any:
    away = np.arange(160)[None, :] - np.arange(72)[:, None]
    far = 8 + (np.log(np.maximum(np.abs(away), 1) / 8) / math.log(128 / 8) * 8).astype("int64")
    bucket = (away > 0) * 16 + np.where(np.abs(away) < 8, np.abs(away), np.minimum(far, 15))
    return scores + table[bucket].transpose(2, 0, 1)


@model((64, 32), (64, 16), (64, 16))
def rotate_half(x: Array, cos: Array, sin: Array) -> Any:
    c = np.concatenate([cos, cos], axis=-1)
    s = np.concatenate([sin, sin], axis=-1)
    x1, x2 = np.split(x, 2, axis=-1)
    return x * c + np.concatenate([-x2, x1], axis=-1) * s


@model((64, 32), (32, 8), (8, 32, 48), (8, 48, 32))
def moe_top1(x: Array, router: Array, w1: Array, w2: Array) -> Any:
    probs = softmax(x @ router)
    top = np.argmax(probs, axis=-1)
    gate = np.max(probs, axis=-1, keepdims=True)
    out = np.zeros_like(x)
    for e in range(router.shape[1]):
        m = (top == e)[:, None].astype(x.dtype)
        out += m * gate * (np.maximum(x @ w1[e], 0) @ w2[e])
    return out


@model((64, 32), (32, 8))
def router_onehot(x: Array, router: Array) -> Any:
    p = softmax(x @ router)
    i = np.argmax(p, axis=1)
    onehot = np.arange(p.shape[1])[None, :] == i[:, None]
    return p * onehot


@model((64, 50), ("int32", 64, 0, 50))
def cross_entropy(logits: Array, labels: Array) -> Any:
    z = logits - logits.max(axis=1, keepdims=True)
    logp = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return -logp[np.arange(logits.shape[0]), labels].mean()


@model((4, 32, 8, 8), (32,), (32,))
def group_norm(x: Array, g: Array, b: Array) -> Any:
    n, c, h, w = x.shape
    y = x.reshape(n, 8, c // 8, h, w)
    mean = y.mean(axis=(2, 3, 4), keepdims=True)
    var = y.var(axis=(2, 3, 4), keepdims=True)
    y = ((y - mean) / np.sqrt(var + 1e-05)).reshape(n, c, h, w)
    return y * g.reshape(1, c, 1, 1) + b.reshape(1, c, 1, 1)


@model((2, 16, 12, 12))
def max_pool(x: Array) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))


@model((2, 16, 12, 12))
def avg_pool3_stride1(x: Array) -> Any:
    n, c, h, w = x.shape
    out = np.zeros((n, c, h - 2, w - 2), dtype=x.dtype)
    for i in range(3):
        for j in range(3):
            out += x[:, :, i : i + h - 2, j : j + w - 2]
    return out / 9.0


@model((2, 16, 10, 10), (16, 3, 3))
def depthwise_conv(x: Array, w: Array) -> Any:
    _n, _c, h, ww = x.shape
    xp = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.zeros_like(x)
    for i in range(3):
        for j in range(3):
            out += xp[:, :, i : i + h, j : j + ww] * w[None, :, i, j, None, None]
    return out


@model((2, 8, 10, 10), (16, 8, 3, 3), (16,))
def conv2d_same(x: Array, w: Array, b: Array) -> Any:
    n, _c, h, ww = x.shape
    o = w.shape[0]
    xp = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.zeros((n, o, h, ww), x.dtype)
    for i in range(3):
        for j in range(3):
            out += np.einsum("nchw,oc->nohw", xp[:, :, i : i + h, j : j + ww], w[:, :, i, j])
    return out + b[None, :, None, None]


@model((2, 8, 11, 11), (16, 8, 3, 3))
def conv2d_stride2(x: Array, w: Array) -> Any:
    n, _c, h, _ww = x.shape
    oh = (h - 3) // 2 + 1
    out = np.zeros((n, 16, oh, oh), x.dtype)
    for i in range(3):
        for j in range(3):
            patch = x[:, :, i : i + 2 * oh - 1 : 2, j : j + 2 * oh - 1 : 2]
            out += np.tensordot(w[:, :, i, j], patch, axes=([1], [1])).transpose(1, 0, 2, 3)
    return out


@model((2, 8, 10, 10), (16, 8, 3, 3))
def conv2d_im2col(x: Array, w: Array) -> Any:
    win = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    n, c, oh, ow, kh, kw = win.shape
    cols = win.transpose(0, 2, 3, 1, 4, 5).reshape(n * oh * ow, c * kh * kw)
    out = cols @ w.reshape(w.shape[0], -1).T
    return out.reshape(n, oh, ow, -1).transpose(0, 3, 1, 2)


@model((2, 8, 40), (12, 8, 5))
def conv1d_causal(x: Array, w: Array) -> Any:
    xp = np.pad(x, ((0, 0), (0, 0), (4, 0)))
    out = np.zeros((2, 12, 40), x.dtype)
    for t in range(5):
        out += np.einsum("bcl,oc->bol", xp[:, :, t : t + 40], w[:, :, t])
    return out


@model((2, 40, 16), (16, 4))
def mamba_conv1d(x: Array, w: Array) -> Any:
    k = w.shape[1]
    xp = np.pad(x, ((0, 0), (k - 1, 0), (0, 0)))
    out = sum(xp[:, i : i + x.shape[1]] * w[:, i] for i in range(k))
    return out / (1 + np.exp(-out))


@model((64, 100))
def cumsum_rows(x: Array) -> Any:
    return np.cumsum(x, axis=1)


@model((64, 40))
def cumsum_columns(x: Array) -> Any:
    return np.cumsum(x, axis=0)


@model((64, 100))
def cumprod_rows(x: Array) -> Any:
    return np.cumprod(1 + 0.01 * x, axis=-1)


@model((64, 100))
def cummax_rows(x: Array) -> Any:
    return np.maximum.accumulate(x, axis=1)


@model(("int32", 20, 0, 100), (100, 32))
def embedding(ids: Array, table: Array) -> Any:
    return table[ids]


@model(("int32", 4, 20, 0, 100), (100, 32), (20, 32))
def embedding_2d_positions(ids: Array, table: Array, pos: Array) -> Any:
    return table[ids] + pos[None, :, :]


@model((64, 32), (32, 96), (32, 96), (96, 32))
def geglu(x: Array, wg: Array, wu: Array, wd: Array) -> Any:
    h = x @ wg
    g = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
    return g * (x @ wu) @ wd


@model((4, 8, 32), (4, 2, 64, 32), (4, 2, 64, 32))
def decode_step_gqa(q: Array, k: Array, v: Array) -> Any:
    _b, h, d = q.shape
    g = h // k.shape[1]
    k = np.repeat(k, g, axis=1)
    v = np.repeat(v, g, axis=1)
    s = np.einsum("bhd,bhsd->bhs", q, k) / np.sqrt(d)
    return np.einsum("bhs,bhsd->bhd", softmax(s), v)


@model((2, 4, 32), (2, 4, 64, 32), (2, 4, 64, 32), ("int32", 2, 5, 64))
def decode_step_lengths(q: Array, k: Array, v: Array, lens: Array) -> Any:
    s = np.matmul(k, q[..., None])[..., 0] / np.sqrt(32.0)
    mask = np.arange(64)[None, None, :] < lens[:, None, None]
    s = np.where(mask, s, -np.inf)
    return np.matmul(softmax(s)[:, :, None, :], v)[:, :, 0, :]


@model((2, 4, 31, 32), (2, 4, 1, 32), (2, 4, 31, 32), (2, 4, 1, 32), (2, 4, 32))
def decode_append_cache(kc: Array, kn: Array, vc: Array, vn: Array, q: Array) -> Any:
    k = np.concatenate([kc, kn], axis=2)
    v = np.concatenate([vc, vn], axis=2)
    s = q[:, :, None, :] @ k.transpose(0, 1, 3, 2) / np.sqrt(32)
    return (softmax(s) @ v)[:, :, 0]


@model((64, 32), (64, 32))
def huber_loss(p: Array, t: Array) -> Any:
    d = p - t
    a = np.abs(d)
    return np.where(a <= 1.0, 0.5 * d * d, a - 0.5).mean()


@model((64, 32), (64, 32))
def cosine_similarity(a: Array, b: Array) -> Any:
    num = (a * b).sum(-1)
    den = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return num / np.maximum(den, 1e-08)


@model((40, 32), (50, 32))
def pairwise_distance(a: Array, b: Array) -> Any:
    return (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T


@model((64, 100))
def windowed_mean(x: Array) -> Any:
    w = np.lib.stride_tricks.sliding_window_view(x, 5, axis=1)
    return w.mean(axis=-1)


@model((64, 100))
def windowed_max(x: Array) -> Any:
    return np.lib.stride_tricks.sliding_window_view(x, 7, axis=1).max(axis=-1)


@model((64, 100))
def argmax_rows(x: Array) -> Any:
    return np.argmax(x, axis=1)


@model((64, 40))
def argmax_columns(x: Array) -> Any:
    return np.argmax(x, axis=0)


@model((64, 40))
def flip_columns(x: Array) -> Any:
    return x[:, ::-1] * 2


@model((64, 40))
def roll(x: Array) -> Any:
    return np.roll(x, 3, axis=1) - x


@model((64, 40))
def tril_input(x: Array) -> Any:
    return np.tril(x)


@model((40, 40), (40, 24))
def upper_triangular_matmul(a: Array, b: Array) -> Any:
    return np.triu(a) @ b


@model((40, 40))
def trace_diag(x: Array) -> Any:
    return np.diagonal(x) * 2


@model((40, 40))
def add_identity(x: Array) -> Any:
    return x + np.eye(40) * 0.1


@model(("int32", 64, 40, 0, 100), ("int32", 64, 40, 0, 100))
def int_add(a: Array, b: Array) -> Any:
    return a + b


@model(("int8", 64, 40, -100, 100), (40, 24), (64,))
def dequant_matmul(q: Array, w: Array, scale: Array) -> Any:
    return q.astype(np.float32) * scale[:, None] @ w


@model((4, 32, 16), (4, 32, 16), (4, 32, 16))
def alibi_attention(q: Array, k: Array, v: Array) -> Any:
    h, s, d = q.shape
    slopes = 2.0 ** (-8.0 * (np.arange(h) + 1) / h)
    i = np.arange(s)
    bias = -slopes[:, None, None] * np.abs(i[None, :, None] - i[None, None, :])
    return softmax(q @ k.transpose(0, 2, 1) / np.sqrt(d) + bias) @ v


@model((2, 32, 16), (16, 48), (48,), (16, 16), (16,))
def mha_packed_qkv(x: Array, wqkv: Array, bqkv: Array, wo: Array, bo: Array) -> Any:
    b, s, d = x.shape
    qkv = x @ wqkv + bqkv
    q, k, v = np.split(qkv, 3, axis=-1)

    def heads(t: Array) -> Any:
        return t.reshape(b, s, 4, 4).transpose(0, 2, 1, 3)

    q, k, v = (heads(q), heads(k), heads(v))
    s_ = q @ k.transpose(0, 1, 3, 2) / 2.0
    mask = np.triu(np.ones((s, s), dtype=bool), 1)
    s_ = np.where(mask, -1000000000.0, s_)
    o = softmax(s_) @ v
    return o.transpose(0, 2, 1, 3).reshape(b, s, d) @ wo + bo


@model((32, 16), (16, 64), (64,), (64, 16), (16,))
def mlp_gelu_erf(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Any:
    h = x @ w1 + b1
    erf = np.vectorize(math.erf)
    return 0.5 * h * (1 + erf(h / np.sqrt(2))) @ w2 + b2


@model((2, 3, 16, 16), (16, 48), (16,))
def patch_embed(x: Array, w: Array, b: Array) -> Any:
    n, c, _h, _ww = x.shape
    p = x.reshape(n, c, 4, 4, 4, 4).transpose(0, 2, 4, 1, 3, 5).reshape(n, 16, 48)
    return p @ w.T + b


@model((2, 16, 6, 6))
def upsample_nearest(x: Array) -> Any:
    return np.repeat(np.repeat(x, 2, axis=2), 2, axis=3)


@model((2, 16, 6, 6))
def pixel_shuffle(x: Array) -> Any:
    n, c, h, w = x.shape
    return x.reshape(n, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // 4, h * 2, w * 2)


@model((8, 16), (8, 16), (8, 16), (16, 64), (16, 64), (64,))
def lstm_cell(x: Array, h: Array, c: Array, wx: Array, wh: Array, b: Array) -> Any:
    g = x @ wx + h @ wh + b
    i, f, o, u = np.split(g, 4, axis=1)
    i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
    c2 = f * c + i * np.tanh(u)
    return (o * np.tanh(c2), c2)


@model((12, 8, 16), (16, 16), (16, 16))
def rnn_unrolled(x: Array, wx: Array, wh: Array) -> Any:
    h = np.zeros((x.shape[1], 16), x.dtype)
    for t in range(x.shape[0]):
        h = np.tanh(x[t] @ wx + h @ wh)
    return h


@model((2, 64, 16), (2, 64, 16), (2, 64, 16))
def linear_attention(q: Array, k: Array, v: Array) -> Any:
    fq = np.where(q > 0, q + 1, np.exp(q))
    fk = np.where(k > 0, k + 1, np.exp(k))
    kv = np.einsum("bsd,bse->bde", fk, v)
    z = np.einsum("bsd,bd->bs", fq, fk.sum(axis=1))
    return np.einsum("bsd,bde->bse", fq, kv) / z[..., None]


@model((64, 30), (30, 20), (20, 10), (10, 5))
def multi_dot(a: Array, b: Array, c: Array, d: Array) -> Any:
    return np.linalg.multi_dot([a, b, c, d])


@model((3, 5, 7, 11), (3, 7, 11, 13))
def einsum_ellipsis(a: Array, b: Array) -> Any:
    return np.einsum("...ij,...jk->...ik", a.transpose(0, 2, 1, 3), b)


@model((10, 20), (20,), (10,))
def einsum_three(a: Array, b: Array, c: Array) -> Any:
    return np.einsum("ij,j,i->ij", a, b, c)


@model((10, 20))
def einsum_one(a: Array) -> Any:
    return np.einsum("ij->j", a)


@model((5, 16, 16))
def einsum_trace(a: Array) -> Any:
    return np.einsum("bii->b", a)


@model((64, 40))
def arctan_stuff(x: Array) -> Any:
    return np.arctan(x) + np.sinh(0.1 * x) + np.cosh(0.1 * x)


@model((2, 2, 150, 32), (2, 2, 150, 32), (2, 2, 150, 32))
def causal_attention_odd(q: Array, k: Array, v: Array) -> Any:
    s = q.shape[2]
    mask = np.tril(np.ones((s, s), dtype=bool))
    scores = np.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    return softmax(scores) @ v


@model((16, 10, 8), ("int32", 16, 0, 10))
def gather_last_token(x: Array, last: Array) -> Any:
    return x[np.arange(x.shape[0]), last]


@model((64, 32), (64, 32))
def scatter_mask_inplace(x: Array, y: Array) -> Any:
    out = x.copy()
    out[x < 0] = 0.0
    return out + y


@model((2, 8, 16, 16), (8, 4, 3, 3))
def conv_transpose_like(x: Array, w: Array) -> Any:
    n, _c, h, ww = x.shape
    out = np.zeros((n, 4, h + 2, ww + 2), x.dtype)
    for i in range(3):
        for j in range(3):
            out[:, :, i : i + h, j : j + ww] += np.einsum("nchw,co->nohw", x, w[:, :, i, j])
    return out


@model((4, 64, 64), ("bool", 4, 64, 0, 2))
def bool_mask(s: Array, mask: Array) -> Any:
    s = np.where(mask[:, None, :], s, -1000000000.0)
    return softmax(s)


@model((64, 64), ("bool", 64, 64, 0, 2))
def bool_not(s: Array, mask: Array) -> Any:
    return s * ~mask


@model((64, 64), ("int32", 64, 0, 64))
def one_hot_matmul(x: Array, ids: Array) -> Any:
    oh = np.eye(64)[ids]
    return oh @ x


@model((64, 40), ("int32", 64, 0, 10))
def segment_sum(x: Array, seg: Array) -> Any:
    oh = (seg[:, None] == np.arange(10)[None, :]).astype(np.float32)
    return oh.T @ x


@model((64, 40), ("int32", 64, 0, 10))
def label_smoothing(x: Array, t: Array) -> Any:
    logp = x - x.max(1, keepdims=True)
    logp = logp - np.log(np.exp(logp).sum(1, keepdims=True))
    n = x.shape[1]
    oh = np.where(np.arange(n) == t[:, None], 0.9, 0.1 / (n - 1))
    return -(oh * logp).sum(1)


@model((64, 40), ("int32", 64, 0, 2))
def masked_mean(x: Array, m: Array) -> Any:
    w = m.astype(x.dtype)
    return (x * w[:, None]).sum(0) / w.sum()


@model((2, 8, 10, 10))
def sobel(x: Array) -> Any:
    k = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], dtype=np.float32)
    out = np.zeros((2, 8, 8, 8), np.float32)
    for i in range(3):
        for j in range(3):
            if k[i, j]:
                out += k[i, j] * x[:, :, i : i + 8, j : j + 8]
    return out


@model((2, 3, 8, 8))
def normalize_image(x: Array) -> Any:
    mean = np.array([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)
    std = np.array([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)
    return (x - mean) / std


@model((32, 64), (64, 64), (64, 16), (64, 16), (64, 64))
def gqa_proj(x: Array, wq: Array, wk: Array, wv: Array, wo: Array) -> Any:
    s = x.shape[0]
    q = (x @ wq).reshape(s, 4, 16).transpose(1, 0, 2)
    k = (x @ wk).reshape(s, 1, 16).transpose(1, 0, 2)
    v = (x @ wv).reshape(s, 1, 16).transpose(1, 0, 2)
    k, v = (np.repeat(k, 4, 0), np.repeat(v, 4, 0))
    a = q @ k.transpose(0, 2, 1) / np.sqrt(16)
    a = np.where(np.tri(s, dtype=bool), a, -np.inf)
    return (softmax(a) @ v).transpose(1, 0, 2).reshape(s, 64) @ wo


@model((16, 32), (8, 32), (8,))
def knn_min(x: Array, c: Array, w: Array) -> Any:
    d = ((x[:, None, :] - c[None, :, :]) ** 2).sum(-1)
    return (d.min(1), d.argmin(1))


@model((2, 50, 16))
def ema(x: Array) -> Any:
    out = np.empty_like(x)
    s = np.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        s = 0.9 * s + 0.1 * x[:, t]
        out[:, t] = s
    return out


@model((2, 20, 8, 8), (2, 20, 8, 8), (2, 20, 8, 8))
def retention_recurrent(q: Array, k: Array, v: Array) -> Any:
    s = np.zeros((2, 8, 8, 8))
    out = []
    for t in range(4):
        s = 0.9 * s + k[:, t, :, :, None] * v[:, t, :, None, :]
        out.append((q[:, t, :, :, None] * s).sum(-2))
    return np.stack(out, axis=1)


@model((2, 32, 16), (2, 32, 16), (2, 32, 16))
def retention_parallel(q: Array, k: Array, v: Array) -> Any:
    n = q.shape[1]
    i = np.arange(n)
    d = np.where(i[:, None] >= i[None, :], 0.9 ** (i[:, None] - i[None, :]), 0.0)
    return q @ k.transpose(0, 2, 1) * d @ v


@model((4, 16, 6, 6), (16, 4), (4, 16))
def squeeze_excite(x: Array, a: Array, b: Array) -> Any:
    z = x.mean(axis=(2, 3))
    s = 1 / (1 + np.exp(-(np.maximum(z @ a, 0) @ b)))
    return x * s[:, :, None, None]


@model((2, 8, 12, 12))
def avg_pool_reshape(x: Array) -> Any:
    return x.reshape(2, 8, 4, 3, 4, 3).mean(axis=(3, 5))


@model((2, 8, 13, 13))
def maxpool3_stride2(x: Array) -> Any:
    w = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    return w.max(axis=(-2, -1))


@model((2, 4, 10, 10), (6, 2, 3, 3))
def grouped_conv(x: Array, w: Array) -> Any:
    out = np.zeros((2, 6, 8, 8))
    for g in range(2):
        for i in range(3):
            for j in range(3):
                out[:, g * 3 : (g + 1) * 3] += np.einsum(
                    "nchw,oc->nohw", x[:, g * 2 : (g + 1) * 2, i : i + 8, j : j + 8], w[g * 3 : (g + 1) * 3, :, i, j]
                )
    return out


@model((2, 4, 12, 12), (6, 4, 3, 3))
def dilated_conv(x: Array, w: Array) -> Any:
    out = np.zeros((2, 6, 8, 8))
    for i in range(3):
        for j in range(3):
            out += np.einsum("nchw,oc->nohw", x[:, :, 2 * i : 2 * i + 8, 2 * j : 2 * j + 8], w[:, :, i, j])
    return out


@model((2, 10, 10, 4), (3, 3, 4, 6))
def conv_nhwc(x: Array, w: Array) -> Any:
    out = np.zeros((2, 8, 8, 6), x.dtype)
    for i in range(3):
        for j in range(3):
            out += x[:, i : i + 8, j : j + 8, :] @ w[i, j]
    return out


@model((2, 4, 10, 10), (6, 4, 3, 3))
def conv_window_einsum(x: Array, w: Array) -> Any:
    v = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", v, w)


@model((2, 4, 10, 10), (6, 4, 3, 3))
def conv_window_tensordot(x: Array, w: Array) -> Any:
    v = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    return np.tensordot(v, w, axes=([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2)


@model((64, 40), (64,), (40,))
def outer_update(a: Array, u: Array, v: Array) -> Any:
    return a + 0.1 * np.outer(u, v)


@model((1, 5))
def single_row(x: Array) -> Any:
    return softmax(x) * np.arange(5)


@model((32, 16))
def covariance(x: Array) -> Any:
    c = x - x.mean(0)
    return c.T @ c / (x.shape[0] - 1)


@model((4, 8, 16), (16, 4))
def routed_soft(x: Array, w: Array) -> Any:
    g = softmax(np.einsum("bsd,de->bse", x, w))
    top = g.max(-1, keepdims=True)
    return np.where(g >= top, g, 0)


@model((4, 8, 16), (16, 4))
def moe_topk_mask(x: Array, w: Array) -> Any:
    g = softmax(x @ w)
    first = g.max(-1, keepdims=True)
    rest = np.where(g == first, -np.inf, g)
    second = rest.max(-1, keepdims=True)
    keep = np.where(g >= second, g, 0.0)
    return keep / keep.sum(-1, keepdims=True)


@model((12, 16), (16, 16), ("int32", 12, 0, 12))
def graph_aggregate(x: Array, w: Array, nbr: Array) -> Any:
    return np.maximum((x[nbr] + x) @ w, 0)


@model((4, 12, 16), ("int32", 4, 3, 0, 12))
def gather_batched(x: Array, idx: Array) -> Any:
    return np.take_along_axis(x, idx[:, :, None], axis=1)


@model((4, 12, 16), ("int32", 4, 0, 12))
def select_token(x: Array, i: Array) -> Any:
    return x[np.arange(4), i] * 2


@model((100, 16), ("int32", 8, 5, 0, 100), ("int32", 8, 1, 6))
def embedding_bag(table: Array, ids: Array, n: Array) -> Any:
    m = (np.arange(5)[None, :] < n[:, None])[:, :, None]
    return (table[ids] * m).sum(1) / n[:, None]


@model((40, 16), (40, 16))
def infonce(a: Array, b: Array) -> Any:
    a = a / np.linalg.norm(a, axis=1, keepdims=True)
    b = b / np.linalg.norm(b, axis=1, keepdims=True)
    s = a @ b.T / 0.1
    m = s.max(1, keepdims=True)
    return -(np.diag(s) - (m[:, 0] + np.log(np.exp(s - m).sum(1)))).mean()


@model((64, 32))
def floor_div_positions(x: Array) -> Any:
    pos = np.arange(32) // 2
    return x * 10.0 ** (-pos / 16)


@model((64, 32))
def even_odd(x: Array) -> Any:
    return np.where(np.arange(32) % 2 == 0, np.sin(x), np.cos(x))


@model((32, 16))
def sinusoid_added(x: Array) -> Any:
    pos = np.arange(32)[:, None]
    i = np.arange(16)[None, :]
    rate = pos / np.power(10000, 2 * (i // 2) / 16.0)
    pe = np.zeros((32, 16))
    pe[:, 0::2] = np.sin(rate[:, 0::2])
    pe[:, 1::2] = np.cos(rate[:, 1::2])
    return x + pe


@model((16, 16), (16, 16))
def block_diagonal(x: Array, y: Array) -> Any:
    b = np.arange(16) // 4
    return np.where(b[:, None] == b[None, :], x, 0) @ y


@model((6, 32))
def hann(x: Array) -> Any:
    w = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(32) / 32)
    return x * w


@model((6, 32))
def dct(x: Array) -> Any:
    n = 32
    k = np.arange(n)
    c = np.cos(np.pi / n * (k[:, None] + 0.5) * k[None, :])
    return x @ c


@model((6, 32))
def linspace_weights(x: Array) -> Any:
    return x * np.linspace(0, 1, 32)


@model((6, 32), (6, 32))
def isclose_where(a: Array, b: Array) -> Any:
    return np.where(np.logical_and(a > 0, np.logical_or(b > 0, a > b)), a, b)


@model((6, 32), (6, 32))
def atan_gate(a: Array, b: Array) -> Any:
    return np.arctan(a) * np.tanh(b) + np.logaddexp(a, b)


@model((6, 32))
def reversed_cumsum(a: Array) -> Any:
    return np.cumsum(a[:, ::-1], axis=1)[:, ::-1]


@model((6, 32), (6, 32), (6, 32))
def gae(r: Array, v: Array, d: Array) -> Any:
    adv = np.zeros((6, 33))
    for t in reversed(range(32)):
        adv[:, t] = r[:, t] - v[:, t] + 0.9 * d[:, t] * adv[:, t + 1]
    return adv[:, :32]


@model((2, 70, 24), (2, 90, 24), (2, 90, 24))
def chunked_attention(q: Array, k: Array, v: Array) -> Any:
    outs = []
    for s in range(0, 70, 32):
        qs = q[:, s : s + 32]
        a = qs @ k.transpose(0, 2, 1)
        m = np.arange(90)[None, :] <= (s + np.arange(qs.shape[1]))[:, None]
        a = np.where(m[None], a, -1000000000.0)
        outs.append(softmax(a) @ v)
    return np.concatenate(outs, 1)


@model((2, 64, 16), (2, 64, 16), (2, 64, 16))
def flash_like(q: Array, k: Array, v: Array) -> Any:
    m = np.full(q.shape[:2], -np.inf)
    l = np.zeros(q.shape[:2])
    o = np.zeros_like(q)
    for s in range(0, 64, 16):
        a = q @ k[:, s : s + 16].transpose(0, 2, 1)
        n = np.maximum(m, a.max(-1))
        p = np.exp(a - n[..., None])
        c = np.exp(m - n)
        l = l * c + p.sum(-1)
        o = o * c[..., None] + p @ v[:, s : s + 16]
        m = n
    return o / l[..., None]


@model((4, 6, 32), (4, 6, 32), ("int32", 4, 0, 6))
def cache_update(cache: Array, new: Array, pos: Array) -> Any:
    slot = np.arange(cache.shape[1])[None, :] == pos[:, None]
    return np.where(slot[:, :, None], new, cache)


@model((2, 16, 4, 8), (64, 4), (64, 4), ("int32", 2, 16, 0, 64))
def rope_gathered(x: Array, cos: Array, sin: Array, pos: Array) -> Any:
    c, s = (cos[pos][:, :, None, :], sin[pos][:, :, None, :])
    a, b = (x[..., :4], x[..., 4:])
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


@model((8, 16), ("int32", 8, 0, 3), (3, 16, 12))
def expert_gather(x: Array, e: Array, w: Array) -> Any:
    return np.einsum("bi,bio->bo", x, w[e])


@model((2, 4, 10, 10), ("int32", 2, 10, 0, 2))
def mask_multiply(s: Array, m: Array) -> Any:
    p = softmax(s) * m[:, None, None, :]
    return p / (p.sum(-1, keepdims=True) + 1e-09)


@model((20, 4), (30, 4))
def iou(a: Array, b: Array) -> Any:
    lt = np.maximum(a[:, None, :2], b[None, :, :2])
    rb = np.minimum(a[:, None, 2:], b[None, :, 2:])
    wh = np.clip(rb - lt, 0, None)
    inter = wh[..., 0] * wh[..., 1]
    return inter / (np.abs(a[:, 2] * a[:, 3])[:, None] + np.abs(b[:, 2] * b[:, 3])[None] + 1.0)


@model((2, 12, 16), (2, 12, 16), (2, 12, 16), ("int32", 2, 12, 0, 2))
def causal_and_padding(q: Array, k: Array, v: Array, valid: Array) -> Any:
    n = q.shape[1]
    m = np.tril(np.ones((n, n), dtype=bool))[None] & (valid[:, None, :] > 0)
    s = np.where(m, np.einsum("bid,bjd->bij", q, k) / 4.0, -1000000000.0)
    return softmax(s) @ v


@model((1, 4, 16, 8), (1, 4, 16, 8), (1, 4, 16, 8), (4, 31))
def relative_bias(q: Array, k: Array, v: Array, table: Array) -> Any:
    i = np.arange(16)
    idx = i[:, None] - i[None, :] + 15
    s = q @ k.transpose(0, 1, 3, 2) + table[:, idx]
    return softmax(s) @ v


@model((8, 3, 16), (8, 3, 16), (16,))
def complex_mul(r: Array, i: Array, w: Array) -> Any:
    return (r * np.cos(w) - i * np.sin(w), r * np.sin(w) + i * np.cos(w))


@model((40, 16), (16, 24), (24, 16))
def moe_dense_two(x: Array, a: Array, b: Array) -> Any:
    h = x @ a
    h = h * (h > 0)
    return x + h @ b


@model(("int32", 64, 10, 1, 9), ("int32", 64, 10, 1, 9))
def int_ratio(a: Array, b: Array) -> Any:
    return a / b + 0.5 * a


@model(("int32", 64, 10, 1, 9))
def int_sum(a: Array) -> Any:
    return a.sum(axis=1)


@model(("bool", 64, 10, 0, 2), (64, 10))
def bool_arith(m: Array, x: Array) -> Any:
    return (1 - m) * x + m.sum(1, keepdims=True)


@model(("bool", 64, 10, 0, 2), ("bool", 64, 10, 0, 2), (64, 10))
def bool_and(m: Array, n: Array, x: Array) -> Any:
    return np.where(m & n | ~m, x, 0.0) + (m ^ n)


@model(("uint8", 64, 10, 0, 255))
def image_scale(a: Array) -> Any:
    return (a / 255.0 - 0.5) / 0.25


@model(("int32", 16, 32, -9, 9), ("int32", 32, 8, -9, 9))
def int_matmul(a: Array, w: Array) -> Any:
    return a @ w


@model((6, 10))
def clipped_by_name(x: Array) -> Any:
    y = x * 1.0
    np.clip(y, a_min=-0.5, a_max=0.5, out=y)
    return y + x.clip(min=0)


@model((6, 10))
def results_stored_to_out(x: Array) -> Any:
    spread, sums, joined = np.zeros(6), np.zeros((6, 10)), np.zeros((6, 20))
    x.std(1, out=spread)
    np.cumsum(x, axis=1, out=sums)
    np.concatenate([x, sums], axis=1, out=joined)
    return joined * spread[:, None]


@model((6, 10))
def copied_where(x: Array) -> Any:
    y = x * 2.0
    np.copyto(y, x, where=x < 0)
    return y


@model((6, 10))
def last_of_each_row(x: Array) -> Any:
    return x[np.arange(6), [-1] * 6] * 2


@model((6, 10))
def flattened_copy(x: Array) -> Any:
    y = x * 1.0
    z = y.flatten()
    z[0:10] = 0.0
    return y + z.reshape(6, 10)


@model((6, 10))
def arc_tangent_of_truth_values(x: Array) -> Any:
    return x + (np.arctan(x > 0) > 0.5)


@model((6, 10))
def function_of_a_known_position(x: Array) -> Any:
    return x * np.arctan(np.arange(6)[2])


@model((6, 10), ("int32", 6, 0, 6))
def gathered_part_of_rows(x: Array, ids: Array) -> Any:
    return x[ids, 1] * 2 + x[0, ids]


@model((6, 10), ("int32", 8, 0, 10))
def gathered_columns(x: Array, ids: Array) -> Any:
    return x[:, ids] * 2


@model((6, 10))
def rows_added_in_a_loop(x: Array) -> Any:
    y = x * 1.0
    for i in range(1, 6):
        y[i] += y[i - 1] * 0.5
    return y


@model((6, 10))
def shifted_sum_in_place(x: Array) -> Any:
    y = x * 2.0
    y[1:] += y[:-1]
    return y
