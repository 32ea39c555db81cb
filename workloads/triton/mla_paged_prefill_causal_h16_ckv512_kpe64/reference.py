"""Attention over latents that are keys and values at once, with a part for positions; log-sum-exp in base 2."""

import numpy as np


def forward(q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, sm_scale):
    """All heads share one latent a token; query i of a sequence sees its tokens up to i + (tokens - queries)."""
    wide = np.float64 if q_nope.dtype == np.float64 else np.float32
    return _attend(
        np,
        q_nope.astype(wide),
        q_pe.astype(wide),
        ckv_cache.astype(wide),
        kpe_cache.astype(wide),
        qo_indptr,
        kv_indptr,
        kv_indices,
        sm_scale,
    )


def forward_torch(q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, sm_scale):
    """The same on tensors, in their own dtype."""
    import torch

    return _attend(torch, q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, sm_scale)


def _attend(xp, q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, sm_scale):
    outputs, sums = [], []
    for number in range(len(kv_indptr) - 1):
        pages = kv_indices[int(kv_indptr[number]) : int(kv_indptr[number + 1])]
        latent, position = ckv_cache[pages, 0], kpe_cache[pages, 0]
        which = slice(int(qo_indptr[number]), int(qo_indptr[number + 1]))
        nope, rope = q_nope[which], q_pe[which]
        score = (nope @ latent.swapaxes(0, 1) + rope @ position.swapaxes(0, 1)) * sm_scale
        count, seen = nope.shape[0], latent.shape[0]
        last = xp.arange(count, device=q_nope.device)[:, None, None] + (seen - count)
        score = xp.where(xp.arange(seen, device=q_nope.device)[None, None, :] <= last, score, -np.inf)
        peak = xp.amax(score, axis=-1, keepdims=True)
        weight = xp.exp(score - peak)
        total = weight.sum(axis=-1, keepdims=True)
        outputs.append(weight / total @ latent)
        sums.append(((peak + xp.log(total)) / np.log(2.0))[..., 0])
    return xp.concatenate(outputs), xp.concatenate(sums)
