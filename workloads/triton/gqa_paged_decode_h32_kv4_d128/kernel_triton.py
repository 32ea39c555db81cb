"""Attention of one query a sequence over a paged cache: a program for each sequence and head of keys.

The query heads that share a head of keys are the rows of a tile.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def decode(
    q,
    k_cache,
    v_cache,
    kv_indptr,
    kv_indices,
    out,
    lse,
    scale,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    sequence = tl.program_id(0)
    kv_head = tl.program_id(1)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, DIM)
    head = kv_head * (HEADS // KV_HEADS) + row
    in_group = row < HEADS // KV_HEADS
    at = (sequence * HEADS + head)[:, None] * DIM + column[None, :]
    query = tl.load(q + at, mask=in_group[:, None], other=0.0)
    start = tl.load(kv_indptr + sequence)
    end = tl.load(kv_indptr + sequence + 1)
    peak = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    acc = tl.zeros((ROWS, DIM), dtype=tl.float32)
    for first in range(start, end, BLOCK):
        token = first + tl.arange(0, BLOCK)
        inside = token < end
        page = tl.load(kv_indices + token, mask=inside, other=0).to(tl.int64)
        there = (page * KV_HEADS + kv_head)[:, None] * DIM + column[None, :]
        keys = tl.load(k_cache + there, mask=inside[:, None], other=0.0)
        score = tl.dot(query, tl.trans(keys)) * (scale * 1.4426950408889634)
        score = tl.where(inside[None, :], score, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(score, axis=1))
        weight = tl.exp2(score - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        values = tl.load(v_cache + there, mask=inside[:, None], other=0.0)
        total = total * shrink + tl.sum(weight, axis=1)
        acc = acc * shrink[:, None] + tl.dot(weight.to(values.dtype), values)
        peak = new_peak
    tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty), mask=in_group[:, None])
    tl.store(lse + sequence * HEADS + head, peak + tl.log2(total), mask=in_group)


def run(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    batch, heads, dim = q.shape
    kv_heads = k_cache.shape[2]
    output = torch.empty_like(q)
    lse = torch.empty((batch, heads), dtype=torch.float32, device=q.device)
    rows = max(16, triton.next_power_of_2(heads // kv_heads))
    grid = (batch, kv_heads)
    decode[grid](
        q,
        k_cache,
        v_cache,
        kv_indptr,
        kv_indices,
        output,
        lse,
        sm_scale,
        HEADS=heads,
        KV_HEADS=kv_heads,
        DIM=dim,
        ROWS=rows,
        BLOCK=32,
        num_warps=4,
    )
    return output, lse
