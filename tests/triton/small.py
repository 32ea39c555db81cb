"""Shapes of the Triton workloads that an interpreter gets through: fewer heads, narrower rows, edges inside of tiles."""

from acceld.workloads import load_workload, workload

_HEADS = {"HEADS": 4, "KV_HEADS": 2}
_SMALL = {
    "gemm_n28672_k4096": ({"M": 70, "N": 96, "K": 96}, {"M": 64, "N": 200, "K": 160}),
    "fused_add_rmsnorm_h7168": ({"ROWS": 5}, {"ROWS": 3, "H": 1100}),
    "rmsnorm_h128": ({"ROWS": 37}, {"ROWS": 65}),
    "gqa_paged_decode": ({"BATCH": 3, "TOKENS": 100, "PAGES": 120, **_HEADS},),
    "gqa_paged_prefill": ({"BATCH": 3, "QUERIES": 25, "TOKENS": 60, "PAGES": 64, **_HEADS},),
    "gqa_ragged_prefill": ({"BATCH": 3, "QUERIES": 25, "TOKENS": 60, **_HEADS},),
    "mla_paged_decode": ({"BATCH": 3, "TOKENS": 70, "PAGES": 80}, {"BATCH": 2, "TOKENS": 9, "PAGES": 9}),
    "mla_paged_prefill": ({"BATCH": 3, "QUERIES": 7, "TOKENS": 70, "PAGES": 80},),
    "moe_fp8": ({"SEQ": 9, "EXPERTS": 64, "LOCAL": 8, "HIDDEN": 256, "INTER": 128},),
}


def small_shapes(name):
    """Return the workload in small shapes."""
    one = workload(name)
    (values,) = (values for start, values in _SMALL.items() if name.startswith(start))
    return tuple(load_workload(one.folder, instead) for instead in values)
