"""Attention of one query a sequence over keys and values in pages; the log-sum-exp is in base 2."""

import numpy as np


def forward(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    """The heads of a group share one head of keys and values."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    return _attend(np, q.astype(wide), k_cache.astype(wide), v_cache.astype(wide), kv_indptr, kv_indices, sm_scale)


def forward_torch(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    """The same on tensors, in their own dtype."""
    import torch

    return _attend(torch, q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale)


def _attend(xp, q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    _, heads, dim = q.shape
    kv_heads = k_cache.shape[2]
    outputs, sums = [], []
    for number in range(len(kv_indptr) - 1):
        pages = kv_indices[int(kv_indptr[number]) : int(kv_indptr[number + 1])]
        keys, values = k_cache[pages, 0].swapaxes(0, 1), v_cache[pages, 0].swapaxes(0, 1)
        score = q[number].reshape(kv_heads, heads // kv_heads, dim) @ keys.swapaxes(1, 2) * sm_scale
        peak = xp.amax(score, axis=-1, keepdims=True)
        weight = xp.exp(score - peak)
        total = weight.sum(axis=-1, keepdims=True)
        outputs.append((weight / total @ values).reshape(heads, dim))
        sums.append(((peak + xp.log(total)) / np.log(2.0)).reshape(heads))
    return xp.stack(outputs), xp.stack(sums)
