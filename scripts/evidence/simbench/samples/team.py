"""Make cases of the kernels that the Neuron team contributed to nki-samples."""

from __future__ import annotations

import numpy as np

from scripts.evidence.simbench.samples import references as ref
from scripts.evidence.simbench.samples.drawing import BF16, Made, normal, uniform
from scripts.evidence.simbench.samples.operators import quantized
from scripts.evidence.simbench.samples.trials import EXACT, FP8_LOSS, NARROW, Case


def _rope(rng: np.random.Generator) -> Made:
    x, cos, sin = normal(rng, 64, 512), normal(rng, 32, 512), normal(rng, 32, 512)
    low, high = ref.wide(x[:32]), ref.wide(x[32:])
    rotated = np.concatenate([low * cos - high * sin, high * cos + low * sin])
    return (x, cos, sin, np.zeros_like(x)), (rotated,)


def _running_sum(rng: np.random.Generator) -> Made:
    x = normal(rng, 150, 5000)
    return (x, np.zeros_like(x)), (np.cumsum(ref.wide(x), axis=1),)


def _last_two(rng: np.random.Generator) -> Made:
    x = normal(rng, 150, 12, 40)
    return (x, (0, 2, 1)), (x.swapaxes(1, 2),)


def _first_and_last(rng: np.random.Generator) -> Made:
    x = normal(rng, 150, 6, 5, 7)
    return (x,), (x.swapaxes(1, 3),)


def _to_last(rng: np.random.Generator) -> Made:
    x = normal(rng, 4, 128, 256)
    return (x, np.zeros((4, 256, 128), np.float32)), (x.swapaxes(1, 2),)


def _depthwise(rng: np.random.Generator) -> Made:
    x, w = normal(rng, 2, 128, 1, 60), normal(rng, 128, 1, 1, 3)
    padded = np.pad(ref.wide(x), ((0, 0), (0, 0), (0, 0), (1, 1)))
    out = sum(padded[..., i : i + 60] * w[None, :, 0, :, i : i + 1] for i in range(3))
    return (x, w, np.zeros_like(x)), (np.asarray(out),)


def _self_attention_backward(rng: np.random.Generator) -> Made:
    q, k, v, dy = drawn = tuple(uniform(rng, 1, 1, 128, 512) for _ in range(4))
    dq, dk, dv, _, _ = ref.flash_backward(q, k, v, dy, causal=False)
    return (*drawn, *(np.zeros_like(drawn[0]) for _ in range(3))), (dq, dk, dv)


def _quantized_team(rng: np.random.Generator) -> Made:
    (x, gamma), expected = quantized(rng)
    return (x, gamma, 0.0, "RMSNormQuant"), expected


def _experts(rng: np.random.Generator) -> Made:
    tokens, hidden, inner, experts, block = 255, 4096, 256, 3, 128
    x = uniform(rng, tokens + 1, hidden, dtype=BF16)
    affinities = rng.random((tokens + 1) * experts).astype(BF16).reshape(-1, 1)
    affinities[tokens * experts :] = 0  # padding is written to the row after the last token
    up = (uniform(rng, experts, hidden, 2, inner) / 64).astype(BF16)
    down = (uniform(rng, experts, inner, hidden) / 16).astype(BF16)
    order = np.concatenate([rng.permutation(tokens), np.full(1 + block, tokens)]).astype(np.int32)
    chosen = np.array([[2], [0], [1]], np.int32)
    out = np.zeros((tokens + 1, hidden))
    for number, expert in enumerate(chosen[:, 0]):
        at = order[number * block : (number + 1) * block]
        gate, value = (ref.wide(x)[at] @ ref.wide(up)[expert, :, k] for k in (0, 1))
        made = (gate / (1 + np.exp(-gate)) * value) @ ref.wide(down)[expert]
        for row, token in enumerate(at):
            share = float(affinities[token * experts + expert, 0])
            out[token] += share * made[row]
    return (x, affinities, up, down, order, chosen, np.zeros_like(x)), (out,)


def _team(module: str, name: str, arguments: str) -> str:
    """Return the text of a driver that passes a kernel arguments which a command line can not."""
    names = ", ".join(one for one in arguments.split(", ") if one.isidentifier())
    return f"""\
from neuronxcc import nki
from {module} import {name}

@nki.jit
def kernel({names}):
    {name}({arguments})
"""


FOLDER = "contributed/neuron-team-kernels"
_ROWS = (
    ("RoPE", "RoPE", _rope, EXACT, "x, cos, sin, out"),
    ("cumsum", "cumsum", _running_sum, EXACT, "x, out"),
    ("transpose", "tiled_dve_transpose_10", _last_two, EXACT, ""),
    ("transpose", "tiled_dve_transpose_210", _first_and_last, EXACT, ""),
    ("transpose", "transpose_to_last_dim_kernel", _to_last, EXACT, "x, 1, out"),
    ("conv", "conv1d_depthwise_default", _depthwise, EXACT, "x, w, out, padding=((0, 0), (1, 1))"),
    ("attention", "fused_self_attn_bwd", _self_attention_backward, NARROW, "q, k, v, dy, dq, dk, dv"),
    *(
        ("blockwise_mm", name, _experts, NARROW, "x, affinities, up, down, 128, tokens, experts, out")
        for name in ("blockwise_mm_baseline", "blockwise_mm_tuned_schedule_0")
    ),
    ("rmsnorm_quant", "compatible_rmsnorm_quant", _quantized_team, FP8_LOSS, ""),
)
KERNELS = tuple(
    Case(f"{FOLDER}/{module}.py", name, make, tolerance, driver=_team(module, name, arguments) if arguments else "")
    for module, name, make, tolerance, arguments in _ROWS
)
"""Module, function, arguments, tolerance; and the arguments that a driver passes because a command line can not."""
