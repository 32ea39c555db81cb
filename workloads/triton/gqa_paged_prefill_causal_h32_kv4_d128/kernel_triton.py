"""Causal attention of new tokens over a paged cache: a program for each tile of queries of one sequence, and each head."""

import torch
import triton
import triton.language as tl


@triton.jit
def owner(tile, qo_indptr, batch, BLOCK_M: tl.constexpr):
    """The sequence that tile number ``tile`` belongs to (-1: none) and its first query within the sequence."""
    sequence = -1
    first = 0
    before = 0
    for number in range(batch):
        length = tl.load(qo_indptr + number + 1) - tl.load(qo_indptr + number)
        tiles = (length + BLOCK_M - 1) // BLOCK_M
        mine = (tile >= before) & (tile < before + tiles)
        sequence = tl.where(mine, number, sequence)
        first = tl.where(mine, (tile - before) * BLOCK_M, first)
        before += tiles
    return sequence, first


@triton.jit
def prefill(
    q,
    k,
    v,
    qo_indptr,
    kv_indptr,
    kv_indices,
    out,
    lse,
    scale,
    batch,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    sequence, offset = owner(tl.program_id(0), qo_indptr, batch, BLOCK_M)
    head = tl.program_id(1)
    if sequence < 0:
        return
    kv_head = head // (HEADS // KV_HEADS)
    q_start = tl.load(qo_indptr + sequence)
    count = tl.load(qo_indptr + sequence + 1) - q_start
    start = tl.load(kv_indptr + sequence)
    end = tl.load(kv_indptr + sequence + 1)
    row = offset + tl.arange(0, BLOCK_M)
    column = tl.arange(0, DIM)
    valid = row < count
    at = ((q_start + row) * HEADS + head)[:, None] * DIM + column[None, :]
    query = tl.load(q + at, mask=valid[:, None], other=0.0)
    last = start + row + (end - start - count)
    stop = tl.minimum(end, start + offset + BLOCK_M + (end - start - count))
    peak = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, DIM), dtype=tl.float32)
    for first in range(start, stop, BLOCK_N):
        token = first + tl.arange(0, BLOCK_N)
        inside = token < end
        page = tl.load(kv_indices + token, mask=inside, other=0).to(tl.int64)
        there = (page * KV_HEADS + kv_head)[:, None] * DIM + column[None, :]
        keys = tl.load(k + there, mask=inside[:, None], other=0.0)
        score = tl.dot(query, tl.trans(keys)) * (scale * 1.4426950408889634)
        score = tl.where(token[None, :] <= last[:, None], score, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(score, axis=1))
        weight = tl.exp2(score - new_peak[:, None])
        shrink = tl.exp2(peak - new_peak)
        values = tl.load(v + there, mask=inside[:, None], other=0.0)
        total = total * shrink + tl.sum(weight, axis=1)
        acc = acc * shrink[:, None] + tl.dot(weight.to(values.dtype), values)
        peak = new_peak
    tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty), mask=valid[:, None])
    tl.store(lse + (q_start + row) * HEADS + head, peak + tl.log2(total), mask=valid)


def run(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, sm_scale):
    queries, heads, dim = q.shape
    batch = qo_indptr.shape[0] - 1
    kv_heads = k_cache.shape[2]
    output = torch.empty_like(q)
    lse = torch.empty((queries, heads), dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(queries, 16) + batch, heads)
    prefill[grid](
        q,
        k_cache,
        v_cache,
        qo_indptr,
        kv_indptr,
        kv_indices,
        output,
        lse,
        sm_scale,
        batch,
        HEADS=heads,
        KV_HEADS=kv_heads,
        DIM=dim,
        BLOCK_M=16,
        BLOCK_N=32,
        num_warps=4,
    )
    return output, lse
