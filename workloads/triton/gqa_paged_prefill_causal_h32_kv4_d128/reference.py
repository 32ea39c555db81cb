"""Causal attention of each sequence's last tokens over its keys in pages; the log-sum-exp is in base 2."""

import numpy as np


def forward(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, sm_scale):
    """Query i of a sequence sees its keys up to i + (keys - queries); heads of a group share keys and values."""
    wide = np.float64 if q.dtype == np.float64 else np.float32
    return _attend(
        np, q.astype(wide), k_cache.astype(wide), v_cache.astype(wide), qo_indptr, kv_indptr, kv_indices, sm_scale
    )


def forward_torch(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, sm_scale):
    """The same on tensors, in their own dtype."""
    import torch

    return _attend(torch, q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, sm_scale)


def _attend(xp, q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, sm_scale):
    _, heads, dim = q.shape
    kv_heads = k_cache.shape[-2]
    outputs, sums = [], []
    for number in range(len(qo_indptr) - 1):
        rows = kv_indices[int(kv_indptr[number]) : int(kv_indptr[number + 1])]
        keys, values = k_cache[rows, 0].swapaxes(0, 1), v_cache[rows, 0].swapaxes(0, 1)
        query = q[int(qo_indptr[number]) : int(qo_indptr[number + 1])]
        count, seen = query.shape[0], keys.shape[1]
        query = query.swapaxes(0, 1).reshape(kv_heads, heads // kv_heads * count, dim)
        score = (query @ keys.swapaxes(1, 2) * sm_scale).reshape(heads, count, seen)
        last = xp.arange(count, device=q.device)[:, None] + (seen - count)
        score = xp.where(xp.arange(seen, device=q.device)[None, :] <= last, score, -np.inf)
        peak = xp.amax(score, axis=-1, keepdims=True)
        weight = xp.exp(score - peak)
        total = weight.sum(axis=-1, keepdims=True)
        weight = (weight / total).reshape(kv_heads, heads // kv_heads * count, seen)
        outputs.append((weight @ values).reshape(heads, count, dim).swapaxes(0, 1))
        sums.append(((peak + xp.log(total)) / np.log(2.0))[:, :, 0].swapaxes(0, 1))
    return xp.concatenate(outputs), xp.concatenate(sums)
