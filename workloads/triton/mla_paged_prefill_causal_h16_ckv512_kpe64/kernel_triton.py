"""Attention over a paged cache of latents: a program for each query, its heads the rows of a tile."""

import torch
import triton
import triton.language as tl


@triton.jit
def attend(
    q_nope,
    q_pe,
    ckv_cache,
    kpe_cache,
    qo_indptr,
    kv_indptr,
    kv_indices,
    out,
    lse,
    scale,
    batch,
    HEADS: tl.constexpr,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    query = tl.program_id(0)
    sequence = 0
    for number in range(batch):
        sequence += tl.where(tl.load(qo_indptr + number + 1) <= query, 1, 0)
    start = tl.load(kv_indptr + sequence)
    end = tl.load(kv_indptr + sequence + 1) - (tl.load(qo_indptr + sequence + 1) - query - 1)
    head = tl.arange(0, HEADS)
    column = tl.arange(0, LATENT)
    rope = tl.arange(0, ROPE)
    at = (query * HEADS + head)[:, None] * LATENT + column[None, :]
    nope = tl.load(q_nope + at)
    pe = tl.load(q_pe + (query * HEADS + head)[:, None] * ROPE + rope[None, :])
    peak = tl.full((HEADS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((HEADS,), dtype=tl.float32)
    acc = tl.zeros((HEADS, LATENT), dtype=tl.float32)
    for first in range(start, end, BLOCK):
        token = first + tl.arange(0, BLOCK)
        inside = token < end
        page = tl.load(kv_indices + token, mask=inside, other=0).to(tl.int64)
        latent = tl.load(ckv_cache + page[:, None] * LATENT + column[None, :], mask=inside[:, None], other=0.0)
        position = tl.load(kpe_cache + page[:, None] * ROPE + rope[None, :], mask=inside[:, None], other=0.0)
        score = tl.dot(nope, tl.trans(latent)) + tl.dot(pe, tl.trans(position))
        score = tl.where(inside[None, :], score * (scale * 1.4426950408889634), float("-inf"))
        new_peak = tl.maximum(peak, tl.max(score, axis=1))
        weight = tl.exp2(score - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        total = total * shrink + tl.sum(weight, axis=1)
        acc = acc * shrink[:, None] + tl.dot(weight.to(latent.dtype), latent)
        peak = new_peak
    tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty))
    tl.store(lse + query * HEADS + head, peak + tl.log2(total))


def run(q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, sm_scale):
    queries, heads, latent = q_nope.shape
    output = torch.empty_like(q_nope)
    lse = torch.empty((queries, heads), dtype=torch.float32, device=q_nope.device)
    attend[(queries,)](
        q_nope,
        q_pe,
        ckv_cache,
        kpe_cache,
        qo_indptr,
        kv_indptr,
        kv_indices,
        output,
        lse,
        sm_scale,
        qo_indptr.shape[0] - 1,
        HEADS=heads,
        LATENT=latent,
        ROPE=q_pe.shape[2],
        BLOCK=16,
        num_warps=4,
    )
    return output, lse
