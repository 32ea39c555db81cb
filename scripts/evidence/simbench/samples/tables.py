"""List which kernels of each checkout of nki-samples are tried, and which are not."""

from __future__ import annotations

from collections.abc import Mapping

from scripts.evidence.simbench.samples import attention, microscaled, team
from scripts.evidence.simbench.samples import operators as op
from scripts.evidence.simbench.samples.drawing import Maker
from scripts.evidence.simbench.samples.trials import EXACT, FP8_LOSS, NARROW, Case

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
    "nki_matmul_basic_": op.product(128, 64, 512),
    "nki_matmul_tiled_": op.product(512, 256, 1024),
    "nki_matmul_hoist_load_": op.product(512, 256, 1024),
    "nki_matmul_block_free_dimension_": op.product(512, 512, 2048),
    "nki_matmul_fully_optimized_": op.product(2048, 2048, 1024),
}
ATTENTION = f"{TUTORIALS}/attention_fwd_performance/attention_kernels.py"
STAGES = dict.fromkeys("v3 v4 v5 v6 v7 v8 v8a v9 v10 v11".split(), 512) | {"v1": 128, "v2": 128}


def _cases(folder: str, *rows: tuple[str, str, Maker, float, tuple[int, ...]]) -> tuple[Case, ...]:
    """Return cases from rows of file, function, maker of arguments and results, tolerance and launch grid. The
    files are in ``folder``.
    """
    return tuple(Case(f"{folder}/{file}", entry, make, tolerance, grid) for file, entry, make, tolerance, grid in rows)


_BOTH = (
    *(
        Case(ATTENTION, f"attn_fwd_{name}", attention.attention(size), NARROW if name > "v2" or size > 128 else EXACT)
        for name, size in STAGES.items()
    ),
    *_cases(
        TUTORIALS,
        *(("fused_mamba/mamba_nki_kernels.py", f"mamba_v{n}", op.mamba, EXACT, ()) for n in (1, 2, 3)),
        ("average_pool2d/average_pool2d_nki_kernels.py", "tensor_avgpool_kernel", op.average_pool, EXACT, ()),
        ("transpose2d/transpose2d_nki_kernels.py", "tensor_transpose2D_kernel_", op.transpose, EXACT, ()),
        ("tensor_addition/spmd_tensor_addition_nki_kernels.py", "nki_tensor_add_kernel_", op.addition, EXACT, (2, 2)),
        ("tensor_addition/tensor_addition_nki_kernels.py", "nki_tensor_add_kernel_", op.addition, EXACT, (2, 2)),
    ),
    *_cases(
        "contributed",
        ("interpolate_bilinear_fwd.py", "interpolate_bilinear_2x_fwd", op.bilinear, EXACT, ()),
        ("interpolate_trilinear_fwd.py", "interpolate_trilinear_2x_fwd", op.trilinear, EXACT, ()),
        ("maxpooling.py", "max_pooling_2d_stride_1", op.max_pool, EXACT, ()),
        ("matmul.py", "matmul", op.product(1024, 512, 2048), EXACT, ()),
        ("pipelined_attention.py", "flash_fwd", attention.pipelined, NARROW, (1,)),
    ),
)
SMALL_HEAD = "fused_self_attn_for_SD_small_head_size"
LEGACY = (
    *_BOTH,
    *team.KERNELS,
    *(Case(PRODUCT, name, make) for name, make in PRODUCTS.items()),
    *_cases(
        TUTORIALS,
        ("rotary/rotary_nki_kernels.py", "nki_apply_rotary_embedding", op.rotary, EXACT, (2, 3)),
        ("softmax/softmax_nki_kernels.py", "nki_softmax_kernel", op.softmax, EXACT, ()),
        ("layernorm/layernorm_nki_kernel.py", "nki_layernorm_kernel_v1", op.layernorm, EXACT, ()),
        ("layernorm/layernorm_nki_kernel.py", "nki_layernorm_kernel_v2", op.layernorm, EXACT, ()),
        ("rmsnorm/rmsnorm_nki_kernels.py", "nki_rmsnorm_kernel", op.rmsnorm, EXACT, ()),
        ("sd_attention/sd_attention_nki_kernels.py", SMALL_HEAD, attention.sd_tutorial, NARROW, ()),
    ),
    Case(f"{REFERENCE}/double_row_matmul.py", "quantized_double_row_matmul", op.double_row, FP8_LOSS, chip="trn2"),
    Case(
        f"{REFERENCE}/rmsnorm_quant/rmsnorm_quant.py", "rmsnorm_quant_kernel", op.quantized, FP8_LOSS, driver=QUANTIZER
    ),
    *_cases(
        REFERENCE,
        ("tutorial.py", "add_kernel_nx8x128x512", op.tiles_of_rows, EXACT, (2,)),
        ("allocated_attention.py", f"allocated_{SMALL_HEAD}", attention.sd_allocated, NARROW, (1,)),
        ("attention.py", "flash_fwd", attention.flash_forward, NARROW, (1, 1)),
        ("attention.py", "flash_attn_bwd", attention.flash_backward, NARROW, (1, 1)),
        ("attention.py", SMALL_HEAD, attention.sd_small_head, NARROW, (1,)),
        ("vision.py", "select_and_scatter_kernel", op.scatter, EXACT, ()),
        ("vision.py", "resize_nearest_fixed_dma_kernel", op.resize, EXACT, ()),
        ("vision.py", "adaptive_avg_pool2d_kernel", op.adaptive, EXACT, ()),
        ("allocated_fused_linear.py", "allocated_fused_rms_norm_qkv", op.rmsnorm_product, NARROW, ()),
    ),
)
CURRENT = (
    *_BOTH,
    *(Case(PRODUCT, name, make, chip="trn2", api="nki") for name, make in PRODUCTS.items()),
    *microscaled.cases(f"{TUTORIALS}/mxfp-matmul/mx_kernels.py"),
)
CHECKOUTS: Mapping[str, tuple[str, tuple[Case, ...]]] = {
    "NKI_SAMPLES_LEGACY_DIR": ("legacy (3a99c91)", LEGACY),
    "NKI_SAMPLES_DIR": ("current", CURRENT),
}
"""The variable that names a checkout, with its name and its kernels."""
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
