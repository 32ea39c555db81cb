"""A mixture of experts in four kernels: routing, first product, activation, second product.

Every token goes through every local expert, with weight zero where it is not routed to it.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def route(
    logits, bias, weights, experts, offset, local, scaling,
    GROUPS: tl.constexpr, SIZE: tl.constexpr, KEPT_GROUPS: tl.constexpr, TOP: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    group = tl.arange(0, GROUPS)
    lane = tl.arange(0, SIZE)
    expert = group[:, None] * SIZE + lane[None, :]
    score = 1.0 / (1.0 + tl.exp(-tl.load(logits + token * experts + expert)))
    biased = score + tl.load(bias + expert).to(tl.float32)
    others = tl.where(lane[None, :] == tl.argmax(biased, axis=1)[:, None], float("-inf"), biased)
    strength = tl.max(biased, axis=1) + tl.max(others, axis=1)
    kept = tl.zeros((GROUPS,), dtype=tl.int32)
    for _ in range(KEPT_GROUPS):
        best = tl.argmax(strength, axis=0)
        kept = tl.where(group == best, 1, kept)
        strength = tl.where(group == best, float("-inf"), strength)
    biased = tl.where(kept[:, None] > 0, biased, float("-inf"))
    chosen = tl.zeros((GROUPS, SIZE), dtype=tl.int32)
    for _ in range(TOP):
        best_group = tl.argmax(tl.max(biased, axis=1), axis=0)
        best_lane = tl.argmax(biased, axis=1)
        here = (group[:, None] == best_group) & (lane[None, :] == best_lane[:, None])
        chosen = tl.where(here, 1, chosen)
        biased = tl.where(here, float("-inf"), biased)
    taken = tl.where(chosen > 0, score, 0.0)
    total = tl.sum(tl.sum(taken, axis=1), axis=0) + 1e-20
    mine = (expert >= offset) & (expert < offset + local)
    tl.store(weights + token * local + expert - offset, taken / total * scaling, mask=mine)


@triton.jit
def gate_up(
    hidden, hidden_scale, gemm1, gemm1_scale, gate, up, tokens, inner, width, blocks,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    expert = tl.program_id(2)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    row = expert * 2 * inner + n
    scale_row = (expert * 2 * inner // SCALED + n // SCALED) * blocks
    acc_up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc_gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for block in range(0, blocks):
        k = block * SCALED + tl.arange(0, SCALED)
        x = tl.load(hidden + m[:, None] * width + k[None, :], mask=m[:, None] < tokens, other=0.0)
        x_scale = tl.load(hidden_scale + block * tokens + m, mask=m < tokens, other=0.0)
        w_up = tl.load(gemm1 + row[None, :] * width + k[:, None], mask=n[None, :] < inner, other=0.0)
        s_up = tl.load(gemm1_scale + scale_row + block, mask=n < inner, other=0.0)
        acc_up += tl.dot(x, w_up) * x_scale[:, None] * s_up[None, :]
        w_gate = tl.load(gemm1 + (row[None, :] + inner) * width + k[:, None], mask=n[None, :] < inner, other=0.0)
        s_gate = tl.load(gemm1_scale + scale_row + inner // SCALED * blocks + block, mask=n < inner, other=0.0)
        acc_gate += tl.dot(x, w_gate) * x_scale[:, None] * s_gate[None, :]
    place = (expert * tokens + m[:, None]) * inner + n[None, :]
    inside = (m[:, None] < tokens) & (n[None, :] < inner)
    tl.store(gate + place, acc_gate, mask=inside)
    tl.store(up + place, acc_up, mask=inside)


@triton.jit
def swiglu(gate, up, out, tokens, inner, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    expert = tl.program_id(2)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    place = (expert * tokens + m[:, None]) * inner + n[None, :]
    inside = (m[:, None] < tokens) & (n[None, :] < inner)
    x = tl.load(gate + place, mask=inside, other=0.0)
    y = tl.load(up + place, mask=inside, other=0.0)
    tl.store(out + place, x / (1.0 + tl.exp(-x)) * y, mask=inside)


@triton.jit
def down(
    active, gemm2, gemm2_scale, weights, out, tokens, inner, width, blocks, local,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for expert in range(0, local):
        weight = tl.load(weights + m * local + expert, mask=m < tokens, other=0.0)
        for block in range(0, blocks):
            k = block * SCALED + tl.arange(0, SCALED)
            rows = expert * tokens + m
            columns = expert * width + n
            a = tl.load(active + rows[:, None] * inner + k[None, :], mask=m[:, None] < tokens, other=0.0)
            w = tl.load(gemm2 + columns[None, :] * inner + k[:, None], mask=n[None, :] < width, other=0.0)
            s = tl.load(
                gemm2_scale + (expert * (width // SCALED) + n // SCALED) * blocks + block, mask=n < width, other=0.0
            )
            acc += tl.dot(a, w.to(tl.float32)) * s[None, :] * weight[:, None]
    inside = (m[:, None] < tokens) & (n[None, :] < width)
    tl.store(out + m[:, None] * width + n[None, :], acc.to(out.dtype.element_ty), mask=inside)


def run(
    routing_logits, routing_bias, hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale,
    gemm2_weights, gemm2_weights_scale, local_expert_offset, routed_scaling_factor,
):  # fmt: skip
    tokens, width = hidden_states.shape
    experts = routing_logits.shape[1]
    local, _, inner = gemm2_weights.shape
    device = hidden_states.device
    weights = torch.empty((tokens, local), dtype=torch.float32, device=device)
    gate = torch.empty((local, tokens, inner), dtype=torch.float32, device=device)
    up = torch.empty((local, tokens, inner), dtype=torch.float32, device=device)
    active = torch.empty((local, tokens, inner), dtype=torch.float32, device=device)
    output = torch.empty((tokens, width), dtype=routing_bias.dtype, device=device)
    route[(tokens,)](
        routing_logits, routing_bias, weights, experts, local_expert_offset, local, routed_scaling_factor,
        GROUPS=8, SIZE=experts // 8, KEPT_GROUPS=4, TOP=8, num_warps=1,
    )  # fmt: skip
    gate_up[(triton.cdiv(tokens, 64), triton.cdiv(inner, 64), local)](
        hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale, gate, up, tokens, inner, width,
        width // 128, BLOCK_M=64, BLOCK_N=64, SCALED=128, num_warps=4,
    )  # fmt: skip
    swiglu[(triton.cdiv(tokens, 64), triton.cdiv(inner, 64), local)](
        gate, up, active, tokens, inner, BLOCK_M=64, BLOCK_N=64, num_warps=4
    )
    down[(triton.cdiv(tokens, 64), triton.cdiv(width, 64))](
        active, gemm2_weights, gemm2_weights_scale, weights, output, tokens, inner, width, inner // 128, local,
        BLOCK_M=64, BLOCK_N=64, SCALED=128, num_warps=4, num_stages=2,
    )  # fmt: skip
    return output
