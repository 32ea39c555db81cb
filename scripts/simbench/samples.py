"""Coverage of nki-samples: which of its kernels trace, and agree with references of ours.

The kernels come from checkouts of aws-neuron/nki-samples and are no part of this project; arguments, references and
tolerances are ours. A kernel that needs Python objects as arguments gets a short driver of ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from acceld.nki.errors import KernelFailure
from acceld.nki.execute import execute
from acceld.nki.tracing import TensorSpec, TraceOptions, trace
from acceld.nki.verify import verify
from scripts.simbench import references as ref

Array = NDArray[Any]
Made = tuple[Sequence[object], Sequence[Array]]
"""Arguments of a kernel, and its expected results."""
BF16 = np.dtype(ml_dtypes.bfloat16)
FP8 = np.dtype(ml_dtypes.float8_e4m3)
E5M2 = np.dtype(ml_dtypes.float8_e5m2)
EXACT, NARROW, FP8_LOSS = 2e-6, 2e-2, 6e-2
"""Relative L2 allowed for float32 kernels, for those that round to 16 bits, and to 8."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel. ``make`` draws its arguments and computes what it should return."""

    file: str
    entry: str
    make: Callable[[np.random.Generator], Made]
    tolerance: float = EXACT
    grid: tuple[int, ...] = ()
    chip: str = "trn1"
    api: str = "nki_legacy"
    driver: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one case."""

    case: Case
    state: str
    detail: str
    error: float | None
    seconds: float


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    """Standard normal values."""
    return rng.standard_normal(shape).astype(dtype)


def uniform(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Array:
    """Values in [-1, 1)."""
    return (2 * rng.random(shape) - 1).astype(dtype)


def _two(rng: np.random.Generator, *shape: int) -> Made:
    a, b = normal(rng, *shape), normal(rng, *shape)
    return (a, b), (ref.wide(a) + b,)


def _product(k: int, m: int, n: int) -> Callable[[np.random.Generator], Made]:
    def make(rng: np.random.Generator) -> Made:
        a, b = normal(rng, k, m), normal(rng, k, n)
        return (a, b), (ref.wide(a).T @ b,)

    return make


def _average_pool(rng: np.random.Generator) -> Made:
    x = normal(rng, 32, 12, 8)
    return (x, 2), (ref.average_pool(x, 2),)


def _softmax(rng: np.random.Generator) -> Made:
    x = normal(rng, 300, 200)
    return (x,), (ref.softmax(ref.wide(x)),)


def _layernorm(rng: np.random.Generator) -> Made:
    x, gamma, beta = normal(rng, 300, 1024), normal(rng, 1024), normal(rng, 1024)
    return (x, 1e-5, gamma, beta), (ref.layernorm(x, 1e-5, gamma, beta),)


def _rmsnorm(rng: np.random.Generator) -> Made:
    x, gamma = normal(rng, 300, 512), normal(rng, 512)
    return (x, gamma), (ref.rmsnorm(x, gamma),)


def _transpose(rng: np.random.Generator) -> Made:
    x = normal(rng, 8, 20)
    return (x, (4, 5)), (ref.wide(x).reshape(8, 4, 5).swapaxes(1, 2).reshape(8, 20),)


def _attention(n: int) -> Callable[[np.random.Generator], Made]:
    def make(rng: np.random.Generator) -> Made:
        q, k, v = (uniform(rng, 128, n) for _ in range(3))
        return (q, k, v), (ref.attention_dn(q, k, v),)

    return make


def _mamba(rng: np.random.Generator) -> Made:
    shapes = ((1, 256, 512), (1, 256, 512), (256, 16), (1, 16, 512), (1, 16, 512))
    drawn = tuple(0.1 * uniform(rng, *shape) for shape in shapes)
    return drawn, (ref.mamba(*drawn),)


def _sd_tutorial(rng: np.random.Generator) -> Made:
    q, k, v = (uniform(rng, 512, 64) for _ in range(3))
    return (q, k, v), (ref.softmax(ref.wide(q) @ k.T * 0.125) @ v,)


def _sd_small_head(rng: np.random.Generator) -> Made:
    q, k, v = uniform(rng, 1, 64, 1024), uniform(rng, 1, 1024, 64), uniform(rng, 1, 1024, 64)
    scores = np.swapaxes(ref.wide(q), 1, 2) @ np.swapaxes(k, 1, 2) * 0.125
    return (q, k, v), (ref.softmax(scores) @ v,)


def _sd_allocated(rng: np.random.Generator) -> Made:
    q, k, v = uniform(rng, 1, 128, 1024), uniform(rng, 1, 128, 1024), uniform(rng, 1, 1024, 128)
    out = ref.softmax(np.swapaxes(ref.wide(q), 1, 2) @ k * 0.125) @ v
    return (q, k, v), (np.swapaxes(out, 1, 2),)


def _flash_forward(rng: np.random.Generator) -> Made:
    q, k, v = uniform(rng, 1, 2, 64, 2048), uniform(rng, 1, 1, 64, 2048), uniform(rng, 1, 1, 2048, 64)
    return (q, k, v, None), ref.flash_forward(q, k, v, causal=True)


def _flash_backward(rng: np.random.Generator) -> Made:
    q, k, v, dy = (uniform(rng, 1, 1, 64, 512) for _ in range(4))
    dq, dk, dv, out, sums = ref.flash_backward(q, k, v, dy, causal=True)
    return (q, k, v, out.astype(np.float32), dy, sums.astype(np.float32), None, None, True, True), (dq, dk, dv)


def _pipelined(rng: np.random.Generator) -> Made:
    q, k, v = (uniform(rng, 1, *shape, dtype=BF16) for shape in ((128, 16384), (128, 16384), (16384, 128)))
    out = np.concatenate(
        [
            ref.softmax(np.swapaxes(q[:, :, at : at + 1024].astype(np.float32), 1, 2) @ k.astype(np.float32) * 0.125)
            @ v.astype(np.float32)
            for at in range(0, 16384, 1024)
        ],
        axis=1,
    )
    return (q, k, v, 0.125, False, True), (out,)


def _double_row(rng: np.random.Generator) -> Made:
    lhs, rhs = rng.random((256, 2048)), rng.random((2048, 1024))
    scale = np.abs(rhs).max(axis=0, keepdims=True) / 240
    packed = ref.interleaved_pairs(rhs / scale).astype(FP8)
    scales = np.broadcast_to(scale, (128, 1024)).astype(BF16)
    return (lhs.astype(BF16), packed, scales, 2, 2, 16), (lhs @ rhs,)


def _tiles_of_rows(rng: np.random.Generator) -> Made:
    a, b = normal(rng, 2, 8, 128, 512), normal(rng, 2, 8, 128, 512)
    return (a, b, a.size), (ref.wide(a) + b,)


def _quantized(rng: np.random.Generator) -> Made:
    x, gamma = normal(rng, 2, 128, 1024, dtype=BF16), uniform(rng, 1024, dtype=BF16)
    normed = ref.rmsnorm(x, ref.wide(gamma), 1e-6)
    scale = np.abs(normed).max(axis=-1, keepdims=True) / 240
    return (x, gamma), (normed / scale, scale)


def _scatter(rng: np.random.Generator) -> Made:
    x, source = rng.random((2, 64, 16, 16)).astype(np.float32), rng.random((2, 64, 8, 8)).astype(np.float32)
    return (x, source), (ref.select_and_scatter(x, source),)


def _resize(rng: np.random.Generator) -> Made:
    x, shape = rng.random((2, 30, 20, 64)).astype(np.float32), (2, 59, 38, 64)
    return (x, shape), (ref.resize_nearest(x, shape),)


def _adaptive(rng: np.random.Generator) -> Made:
    x = normal(rng, 1, 256, 13, 13)
    return (x, 6), (ref.adaptive_average_pool(x, 6),)


def _rmsnorm_product(rng: np.random.Generator) -> Made:
    x, w = rng.random((1, 512, 1024)).astype(BF16), rng.random((1024, 384)).astype(BF16)
    return (x, w), (ref.rmsnorm(x, epsilon=1e-6) @ ref.wide(w),)


def _rotary(rng: np.random.Generator) -> Made:
    q, k, cos, sin = (normal(rng, *s) for s in ((2, 3, 256, 64), (2, 3, 256, 64), (2, 256, 64), (2, 256, 64)))
    return (q, k, cos, sin), (ref.rotary(q, k, cos, sin),)


def _bilinear(rng: np.random.Generator) -> Made:
    x = normal(rng, 2, 80, 20, 12)
    return (x,), (ref.interpolate(x, 2).reshape(160, 40, 24),)


def _trilinear(rng: np.random.Generator) -> Made:
    x = normal(rng, 2, 80, 7, 6, 5)
    return (x,), (ref.interpolate(x, 3).reshape(160, 14, 12, 10),)


def _max_pool(rng: np.random.Generator) -> Made:
    x = normal(rng, 448, 300)
    return (x, 3), (ref.max_pool(x, 3),)


def _mx_data(rng: np.random.Generator, rows: int, columns: int) -> tuple[Array, Array, Array]:
    """Values that microscaled float8 holds exactly, their packed form, and the exponents of each 8 x 4 block."""
    raw = (rng.choice([-1, 1], (rows, columns)) * rng.uniform(1, 1.75, (rows, columns))).astype(E5M2)
    packed = np.ldexp(raw.astype(np.float64), 15).astype(E5M2)  # the block's greatest exponent, as a quantizer makes it
    scales = rng.integers(100, 108, (rows // 8, columns // 4)).astype(np.uint8)
    wide = packed.astype(np.float64) * np.repeat(np.repeat(2.0 ** (scales.astype(np.float64) - 127), 8, 0), 4, 1)
    return wide, packed.view(np.uint32), scales


def _mx_product(a: Array, b: Array) -> Array:
    """Products of [K, 4 M] and [K, 4 N]: four neighbors of a row belong to one position of the contraction."""
    left, right = (x.reshape(x.shape[0], -1, 4).transpose(0, 2, 1).reshape(4 * x.shape[0], -1) for x in (a, b))
    return left.T @ right


def _mx_offline(rng: np.random.Generator) -> Made:
    a, packed_a, scales_a = _mx_data(rng, 128, 512)
    b, packed_b, scales_b = _mx_data(rng, 128, 2048)
    return (packed_a, scales_a, packed_b, scales_b), (_mx_product(a, b),)


def _mx_device(rng: np.random.Generator) -> Made:
    a, packed, scales = _mx_data(rng, 128, 512)
    b, _, _ = _mx_data(rng, 128, 2048)
    return (packed, scales, b.astype(BF16)), (_mx_product(a, b),)


def _mx_copied(rng: np.random.Generator) -> Made:
    a, b = (_mx_data(rng, 512, n)[0].astype(np.float32) for n in (128, 512))
    return (a.astype(BF16), b.astype(BF16)), (ref.wide(a).T @ b,)


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
    drawn = tuple(uniform(rng, 1, 1, 128, 512) for _ in range(4))
    dq, dk, dv, _, _ = ref.flash_backward(*drawn, causal=False)
    return (*drawn, *(np.zeros_like(drawn[0]) for _ in range(3))), (dq, dk, dv)


def _quantized_team(rng: np.random.Generator) -> Made:
    (x, gamma), expected = _quantized(rng)
    return (x, gamma, 0.0, "RMSNormQuant"), expected


def _experts(rng: np.random.Generator) -> Made:
    tokens, hidden, inner, experts, block = 255, 4096, 256, 3, 128
    x = uniform(rng, tokens + 1, hidden, dtype=BF16)
    affinities = rng.random((tokens + 1) * experts).astype(BF16).reshape(-1, 1)
    affinities[tokens * experts :] = 0  # padding goes to the row behind the last token
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
    """A driver that passes what no command line can."""
    names = ", ".join(one for one in arguments.split(", ") if one.isidentifier())
    return f"""\
from neuronxcc import nki
from {module} import {name}

@nki.jit
def kernel({names}):
    {name}({arguments})
"""


def _mx(name: str, arguments: str, types: str) -> str:
    """A driver that passes packed types, which no argument can be."""
    return f"""\
import nki
import nki.language as nl
from mx_kernels import kernel_{name}

@nki.jit
def kernel({arguments}):
    return kernel_{name}({arguments}, {types})
"""


QUANTIZER = """\
from neuronxcc import nki
from nki_samples.reference.rmsnorm_quant.rmsnorm_quant import RmsNormQuantKernelArgs, rmsnorm_quant_kernel

@nki.jit
def kernel(hidden, ln_w):
    return rmsnorm_quant_kernel(hidden, ln_w, RmsNormQuantKernelArgs(lower_bound=0.0))
"""
TUTORIALS = "src/nki_samples/tutorials"
REFERENCE = "src/nki_samples/reference"
PRODUCT = f"{TUTORIALS}/matrix_multiplication/matrix_multiplication_nki_kernels.py"
PRODUCTS = {
    "nki_matmul_basic_": _product(128, 64, 512),
    "nki_matmul_tiled_": _product(512, 256, 1024),
    "nki_matmul_hoist_load_": _product(512, 256, 1024),
    "nki_matmul_block_free_dimension_": _product(512, 512, 2048),
    "nki_matmul_fully_optimized_": _product(2048, 2048, 1024),
}
ATTENTION = f"{TUTORIALS}/attention_fwd_performance/attention_kernels.py"
STAGES = dict.fromkeys("v3 v4 v5 v6 v7 v8 v8a v9 v10 v11".split(), 512) | {"v1": 128, "v2": 128}

_BOTH = (
    *(
        Case(ATTENTION, f"attn_fwd_{name}", _attention(size), NARROW if name > "v2" or size > 128 else EXACT)
        for name, size in STAGES.items()
    ),
    *(Case(f"{TUTORIALS}/fused_mamba/mamba_nki_kernels.py", f"mamba_v{n}", _mamba) for n in (1, 2, 3)),
    Case(f"{TUTORIALS}/average_pool2d/average_pool2d_nki_kernels.py", "tensor_avgpool_kernel", _average_pool),
    Case(f"{TUTORIALS}/transpose2d/transpose2d_nki_kernels.py", "tensor_transpose2D_kernel_", _transpose),
    Case("contributed/interpolate_bilinear_fwd.py", "interpolate_bilinear_2x_fwd", _bilinear),
    Case("contributed/interpolate_trilinear_fwd.py", "interpolate_trilinear_2x_fwd", _trilinear),
    Case("contributed/maxpooling.py", "max_pooling_2d_stride_1", _max_pool),
    Case("contributed/matmul.py", "matmul", _product(1024, 512, 2048)),
    Case("contributed/pipelined_attention.py", "flash_fwd", _pipelined, NARROW, grid=(1,)),
    Case(
        f"{TUTORIALS}/tensor_addition/spmd_tensor_addition_nki_kernels.py",
        "nki_tensor_add_kernel_",
        lambda rng: _two(rng, 256, 1024),
        grid=(2, 2),
    ),
    Case(
        f"{TUTORIALS}/tensor_addition/tensor_addition_nki_kernels.py",
        "nki_tensor_add_kernel_",
        lambda rng: _two(rng, 256, 1024),
        grid=(2, 2),
    ),
)
TEAM = "contributed/neuron-team-kernels"
TEAM_KERNELS = (
    Case(f"{TEAM}/RoPE.py", "RoPE", _rope, driver=_team("RoPE", "RoPE", "x, cos, sin, out")),
    Case(f"{TEAM}/cumsum.py", "cumsum", _running_sum, driver=_team("cumsum", "cumsum", "x, out")),
    Case(f"{TEAM}/transpose.py", "tiled_dve_transpose_10", _last_two),
    Case(f"{TEAM}/transpose.py", "tiled_dve_transpose_210", _first_and_last),
    Case(
        f"{TEAM}/transpose.py",
        "transpose_to_last_dim_kernel",
        _to_last,
        driver=_team("transpose", "transpose_to_last_dim_kernel", "x, 1, out"),
    ),
    Case(
        f"{TEAM}/conv.py",
        "conv1d_depthwise_default",
        _depthwise,
        driver=_team("conv", "conv1d_depthwise_default", "x, w, out, padding=((0, 0), (1, 1))"),
    ),
    Case(
        f"{TEAM}/attention.py",
        "fused_self_attn_bwd",
        _self_attention_backward,
        NARROW,
        driver=_team("attention", "fused_self_attn_bwd", "q, k, v, dy, dq, dk, dv"),
    ),
    *(
        Case(
            f"{TEAM}/blockwise_mm.py",
            name,
            _experts,
            NARROW,
            driver=_team("blockwise_mm", name, "x, affinities, up, down, 128, tokens, experts, out"),
        )
        for name in ("blockwise_mm_baseline", "blockwise_mm_tuned_schedule_0")
    ),
    Case(f"{TEAM}/rmsnorm_quant.py", "compatible_rmsnorm_quant", _quantized_team, FP8_LOSS),
)
LEGACY = (
    *_BOTH,
    *TEAM_KERNELS,
    *(Case(PRODUCT, name, make) for name, make in PRODUCTS.items()),
    Case(f"{TUTORIALS}/rotary/rotary_nki_kernels.py", "nki_apply_rotary_embedding", _rotary, grid=(2, 3)),
    Case(f"{TUTORIALS}/softmax/softmax_nki_kernels.py", "nki_softmax_kernel", _softmax),
    Case(f"{TUTORIALS}/layernorm/layernorm_nki_kernel.py", "nki_layernorm_kernel_v1", _layernorm),
    Case(f"{TUTORIALS}/layernorm/layernorm_nki_kernel.py", "nki_layernorm_kernel_v2", _layernorm),
    Case(f"{TUTORIALS}/rmsnorm/rmsnorm_nki_kernels.py", "nki_rmsnorm_kernel", _rmsnorm),
    Case(
        f"{TUTORIALS}/sd_attention/sd_attention_nki_kernels.py",
        "fused_self_attn_for_SD_small_head_size",
        _sd_tutorial,
        NARROW,
    ),
    Case(f"{REFERENCE}/double_row_matmul.py", "quantized_double_row_matmul", _double_row, FP8_LOSS, chip="trn2"),
    Case(f"{REFERENCE}/rmsnorm_quant/rmsnorm_quant.py", "rmsnorm_quant_kernel", _quantized, FP8_LOSS, driver=QUANTIZER),
    Case(f"{REFERENCE}/tutorial.py", "add_kernel_nx8x128x512", _tiles_of_rows, grid=(2,)),
    Case(
        f"{REFERENCE}/allocated_attention.py",
        "allocated_fused_self_attn_for_SD_small_head_size",
        _sd_allocated,
        NARROW,
        grid=(1,),
    ),
    Case(f"{REFERENCE}/attention.py", "flash_fwd", _flash_forward, NARROW, grid=(1, 1)),
    Case(f"{REFERENCE}/attention.py", "flash_attn_bwd", _flash_backward, NARROW, grid=(1, 1)),
    Case(f"{REFERENCE}/attention.py", "fused_self_attn_for_SD_small_head_size", _sd_small_head, NARROW, grid=(1,)),
    Case(f"{REFERENCE}/vision.py", "select_and_scatter_kernel", _scatter),
    Case(f"{REFERENCE}/vision.py", "resize_nearest_fixed_dma_kernel", _resize),
    Case(f"{REFERENCE}/vision.py", "adaptive_avg_pool2d_kernel", _adaptive),
    Case(f"{REFERENCE}/allocated_fused_linear.py", "allocated_fused_rms_norm_qkv", _rmsnorm_product, NARROW),
)
MX = f"{TUTORIALS}/mxfp-matmul/mx_kernels.py"
CURRENT = (
    *_BOTH,
    *(Case(PRODUCT, name, make, chip="trn2", api="nki") for name, make in PRODUCTS.items()),
    Case(
        MX,
        "kernel_offline_quantized_mx_matmul",
        _mx_offline,
        NARROW,
        chip="trn3",
        api="nki",
        driver=_mx("offline_quantized_mx_matmul", "a, b, c, d", "nl.float8_e5m2_x4"),
    ),
    Case(
        MX,
        "kernel_on_device_quantize_matmul_mx",
        _mx_device,
        NARROW,
        chip="trn3",
        api="nki",
        driver=_mx("on_device_quantize_matmul_mx", "a, b, c", "nl.float8_e5m2_x4, nl.float8_e5m2_x4"),
    ),
    Case(
        MX,
        "kernel_copy_strided_quantize_matmul_mx",
        _mx_copied,
        NARROW,
        chip="trn3",
        api="nki",
        driver=_mx("copy_strided_quantize_matmul_mx", "a, b", "nl.float8_e5m2_x4"),
    ),
    Case(
        MX,
        "kernel_copy_strided_quantize_matmul_mx",
        _mx_copied,
        NARROW,
        chip="trn3",
        api="nki",
        driver=_mx("copy_strided_quantize_matmul_mx", "a, b", "nl.float8_e5m2_x4, False"),
    ),
)
SKIPPED: Mapping[str, Mapping[str, str]] = {
    "legacy (3a99c91)": {
        "nki_tensor_add_nc2, ring_attention_fwd, ring_attention_bwd, collective_matmul, llama3_transformer, "
        "blockwise_mm_baseline_shard_hidden, blockwise_mm_baseline_block_parallel": "more than one core",
        "row_tiled_matmul_isa_kernel, column_tiled_matmul_isa_kernel, attention_token_gen_kernel, "
        "llama3_attention_block_token_gen_kernel, blockwise_mm_baseline_while": "private functions of the SDK",
        "flash_paged_attention_varlen, blockwise_mm_baseline_quant, blockwise_mm_baseline_allocated, "
        "blockwise_mm_prefetch_3_tiles, blockwise_mm_bwd_baseline, rmsnorm_quant, shard_rmsnorm_quant, "
        "conv2d and its variants": "no reference of ours",
    },
    "current": {"nki_tensor_add_nc2": "more than one core"},
}
"""Kernels that are not tried, each with why."""


def verdicts(folder: Path, cases: Sequence[Case]) -> list[Verdict]:
    """Each case of a checkout, traced, verified, executed and compared."""
    return [_verdict(folder, case) for case in cases if (folder / case.file).is_file()]


def _verdict(folder: Path, case: Case) -> Verdict:
    arguments, expected = case.make(np.random.default_rng(7))
    started = time.process_time()

    def verdict(state: str, detail: str = "", error: float | None = None) -> Verdict:
        return Verdict(case, state, detail, error, time.process_time() - started)

    path = folder / case.file
    root = folder / "src" if case.file.startswith("src/") and "tutorials" not in case.file else path.parent
    source = case.driver or path.read_text(encoding="utf-8")
    specs = [TensorSpec(a.shape, a.dtype.name) if isinstance(a, np.ndarray) else a for a in arguments]
    try:
        program = trace(
            source,
            specs,  # type: ignore[arg-type]  # numbers, tuples and None pass as they are
            filename=str(path.with_name("driver.py") if case.driver else path),
            entry="kernel" if case.driver else case.entry,
            grid=case.grid,
            api=case.api,
            chip=case.chip,
            options=TraceOptions(source_root=root),
        )
    except KernelFailure as failure:
        return verdict("does not trace", f"line {failure.line}: {failure.message} [{failure.rule}]")
    findings = verify(program)
    if findings:
        first = findings[0]
        return verdict("refused", f"line {first.line}: {first.message} [{first.rule}]")
    try:
        results = execute(program, [a for a in arguments if isinstance(a, np.ndarray)])
    except KernelFailure as failure:
        return verdict("does not run", f"line {failure.line}: {failure.message} [{failure.rule}]")
    if case.entry.endswith(("rmsnorm_quant_kernel", "rmsnorm_quant")):
        results = unpacked_scales(results[0])
    error = max(distance(a, b) for a, b in zip(results, expected, strict=True))
    return verdict("right" if error <= case.tolerance else "differs", error=error)


def unpacked_scales(out: Array) -> list[Array]:
    """Quantized rows and the float32 scale in the bytes behind each."""
    tail = np.ascontiguousarray(out[..., -4:]).view(np.uint8)
    return [out[..., :-4], np.ascontiguousarray(tail).view(np.float32)]


def distance(result: Array, expected: Array) -> float:
    """Relative L2 of two arrays, infinite where their sizes differ."""
    if result.size != expected.size:
        return float("inf")
    a, b = result.astype(np.float64).reshape(-1), ref.wide(expected).reshape(-1)
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-300))
