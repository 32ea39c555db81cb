"""List the functions that AWS documents for the current API (``nki`` 0.6 and 0.7), and whether the simulator supports
them.
"""

from __future__ import annotations

from acceld.nki.frontend.core.names import ALU_ALIASES, WITHOUT
from acceld.nki.frontend.current import collectives, isa, language

ISA_FUNCTIONS = tuple(
    "get_nc_version activation activation_reduce activate2 tensor_tensor tensor_scalar tensor_scalar_reduce "
    "tensor_scalar_cumulative scalar_tensor_tensor reciprocal exponential select_reduce dropout tensor_reduce "
    "tensor_partition_reduce tensor_tensor_scan bn_stats bn_aggr dma_copy sendrecv dma_compute dma_transpose "
    "tensor_copy memset tensor_copy_predicated nc_stream_shuffle iota affine_select range_select max8 nc_find_index8 "
    "nc_match_replace8 local_gather nc_n_gather topk nonzero_with_count sequence_bounds rng rand2 set_rng_seed "
    "rand_set_state rand_get_state quantize_mx nc_matmul nc_matmul_mx nc_transpose register_alloc register_move "
    "register_load register_store scalar_load scalar_store core_barrier get_nc_sub_version".split()
)
LANGUAGE_FUNCTIONS = tuple(
    "is_hbm is_on_chip is_psum is_sbuf add subtract multiply divide maximum minimum abs_max abs_min abs square power "
    "equal not_equal less less_equal greater greater_equal bitwise_and bitwise_or bitwise_xor invert left_shift "
    "right_shift logical_and logical_or logical_xor logical_not exp log sqrt rsqrt tanh sigmoid relu gelu "
    "gelu_apprx_sigmoid gelu_apprx_tanh gelu_dx gelu_apprx_sigmoid_dx silu silu_dx softplus mish erf erf_dx "
    "reciprocal copy sin cos tan arctan ceil floor trunc negative sign fmod mod sum max min mean prod var all softmax "
    "rms_norm where dropout ones full zeros_like empty_like random_seed expand_dims broadcast_to transpose matmul "
    "no_reorder load_transpose2d gather_flattened ds affine_range sequential_range static_range dynamic_range "
    "fori_loop while_loop ndarray zeros load store program_id num_programs program_ndim shared_constant "
    "shared_identity_matrix device_print rand prelu tiles blocks alloc_tiles alloc_blocks".split()
)
COLLECTIVES = tuple(
    "all_reduce all_gather all_gather_v reduce_scatter all_to_all all_to_all_v collective_permute "
    "collective_permute_implicit collective_permute_implicit_reduce "
    "collective_permute_implicit_current_processing_rank_id rank_id all_gather_v_prepare all_gather_v_trigger "
    "all_to_all_v_prepare all_to_all_v_trigger".split()
)

REPLACED = {
    **dict.fromkeys(
        ("arange", "mgrid"),
        "nki has no index grids: index with slices and nl.ds, take less of the last tile in place of a mask, or give strides "
        "with tensor.ap(pattern=[[step, size], ...], offset=...)",
    ),
    **WITHOUT,
    **{alias: WITHOUT[name] for alias, name in ALU_ALIASES.items() if name in WITHOUT},
}
"""Advice for a name that only ``neuronxcc.nki.language`` or numpy has, or that no engine has: what to write instead, by
name.
"""
LATER_ARGUMENTS = {
    "nki.isa": "NKI 0.7 adds `engine` to `activation` and `activate2` (GpSimd, trn3: its cost is not published, an element a "
    "cycle is assumed), and `reduce_op`, `reduce_res` and `reduce_cmd` to `scalar_tensor_tensor` (supported).",
    "nki.language": "The views that `tiles` and `blocks` return are `NkiTileGrid` and `NkiBlockGrid`.",
    "nki.collectives": "NKI 0.7 adds `ReplicaGroup.from_partition_op` and `rg_partition_op` (supported). Ranks are simulated by "
    "`acceld.nki.execute.ranks.execute_ranks`; no latency is published, so a kernel with a collective has none.",
}
"""For each module, a sentence for the documentation page about arguments and types that NKI 0.7 adds."""


NOT_COMPILED = {
    **dict.fromkeys(("divide", "mod", "fmod"), "no engine has it (NKI 0.3 and later)"),
    "rms_norm": "NKI 0.6 does not compile it",
}
"""The reason why no kernel with a function compiles although pages of NKI list the function, by function. Such
functions are refused.
"""


UNDOCUMENTED = "supported, not in AWS's pages"
"""The state of a function that the simulator has and AWS's pages do not list."""


def _state(name: str, offered: frozenset[str]) -> str:
    """Return ``supported`` or ``unsupported: REASON`` for the function ``name``. ``offered`` are the names that
    the simulator has.
    """
    if name in NOT_COMPILED:
        return f"unsupported: {NOT_COMPILED[name]}"
    return "supported" if name in offered else "unsupported: not simulated yet"


def surface() -> dict[str, dict[str, str]]:
    """Return ``supported`` or ``unsupported: REASON`` for each documented function, as a dict by module. The functions
    of ``nki.isa`` beyond these are ``UNDOCUMENTED``.
    """
    instructions = [function.__name__ for function in isa.FUNCTIONS]
    language_names = frozenset(language.namespace())
    return {
        "nki.isa": dict.fromkeys(instructions, UNDOCUMENTED)
        | {name: _state(name, frozenset(instructions)) for name in ISA_FUNCTIONS},
        "nki.language": {name: _state(name, language_names) for name in LANGUAGE_FUNCTIONS},
        "nki.collectives": {name: _state(name, frozenset(collectives.namespace())) for name in COLLECTIVES},
    }
