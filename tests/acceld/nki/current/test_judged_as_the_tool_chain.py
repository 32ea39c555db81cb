"""A table of one-line kernels: what NKI's documents, release notes and tool chain take, and what the judge says of each.

A row has a name, the rule it tries, the expected answer and the lines. Rules whose sources disagree are notes, because a
kernel that ran on a chip must stay accepted.
"""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import dataclass

import pytest

from acceld.nki.errors import KernelFailure
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.verify.verifier import verify

REFUSED, NOTED, ACCEPTED = "refused", "noted", "accepted"
HEAD = """
import nki
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import numpy as np

def tile(shape, dtype, value=0, buffer=nl.sbuf):
    made = nl.ndarray(shape, dtype=dtype, buffer=buffer)
    nisa.memset(dst=made, value=value if "float" not in str(dtype) else float(value))
    return made

@nki.jit
def kernel(x, y):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    b = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    c, col = tile((128, 64), nl.float32), tile((128, 1), nl.float32, 1)
    i, u8, u32 = tile((128, 64), nl.int32), tile((128, 64), nl.uint8), tile((128, 64), nl.uint32)
    h, narrow = tile((128, 64), nl.bfloat16), tile((128, 1), nl.bfloat16)
    ps = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum)
    pt = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.psum)
    pm = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
    turned = nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.sbuf)
"""
TAIL = """
    nisa.dma_copy(dst=out, src=c)
    return out
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """One-line kernel with the answer that is expected for it."""

    name: str
    rule: str
    expected: str
    lines: str
    chip: str = "trn2"
    lnc: int = 1
    grid: tuple[int, ...] = ()


def rows(rule: str, expected: str, text: str, chip: str = "trn2", lnc: int = 1) -> list[Probe]:
    """Read one probe a line: a name, a colon and statements; ``;;`` separates lines."""
    found = [line.partition(":") for line in textwrap.dedent(text).strip().splitlines()]
    return [Probe(name.strip(), rule, expected, body.strip(), chip, lnc) for name, _, body in found]


RANKS = (
    "g = ncc.ReplicaGroup([[0, 1, 2, 3]]);;s, d = (nl.ndarray((128, 64), nl.float32, nl.private_hbm) for _ in range(2));;"
    "nisa.dma_copy(s, a);;"
)
"""Lines with a group of four ranks, a source and a destination in HBM."""


PROBES = [
    *rows("L1", REFUSED, "tt_col: nisa.tensor_tensor(c, a, col, nl.add)"),
    *rows("L2", REFUSED, """
        tt_start: nisa.tensor_tensor(c[0:64, :], a[0:64, :], b[64:128, :], nl.add)
        scan_start: nisa.tensor_tensor_scan(c[0:64, :], a[0:64, :], b[64:128, :], 0.0, nl.multiply, nl.add)
    """),
    *rows("L2", ACCEPTED, """
        tt_dst_start: nisa.tensor_tensor(c[64:128, :], a[0:64, :], b[0:64, :], nl.add)
        tt_start_small: s = tile((64, 64), nl.float32);;nisa.tensor_tensor(s, s, a[64:128, :], nl.add)
    """),
    *rows("L3", REFUSED, """
        tt_divide: nisa.tensor_tensor(c, a, b, nl.divide)
        tt_mod: nisa.tensor_tensor(c, a, b, nl.mod)
        tt_fmod: nisa.tensor_tensor(c, a, b, nl.fmod)
        ts_divide: nisa.tensor_scalar(c, a, nl.divide, 2.0)
        ts_mod: nisa.tensor_scalar(c, a, nl.mod, 2.0)
    """),
    *rows("L4", REFUSED, """
        nl_divide: nl.divide(a, b)
        nl_mod: nl.mod(a, b)
        nl_fmod: nl.fmod(a, b)
    """),
    *rows("L5", REFUSED, "nl_power_scalar: nl.power(a, 2.0)"),
    *rows("L5", ACCEPTED, "nl_power_tile: nl.power(a, b)"),
    *rows("L6", REFUSED, """
        op_add: a + b
        op_neg: -a
        op_cmp: a > b
        op_iadd: c += a
        op_eq: a == b
        op_np: np.float32(2) * a
    """),
    *rows("L7", REFUSED, """
        nl_add_col: nl.add(a, col)
        nl_add_row: nl.add(a, a[0:1, :])
    """),
    *rows("L7", ACCEPTED, """
        nl_add_scalar: nl.add(a, 1.0)
        nl_add_repeated: nl.add(a, col.broadcast(1, 64))
        nl_bcast_part: nl.broadcast_to(a[0:1, :], (128, 64))
    """),
    *rows("L8", REFUSED, """
        ts_dst_bigger: nisa.tensor_scalar(c, col, nl.add, 1.0)
        act_dst_bigger: nisa.activation(c, nl.exp, col)
        copy_dst_bigger: nisa.tensor_copy(c, col)
    """),
    *rows("L9", REFUSED, """
        dma_part_bcast: nisa.dma_copy(c, x[0:1, :])
        dma_free_bcast: nisa.dma_copy(c, x[:, 0:1])
        dmac_bcast: nisa.dma_compute(c, [a, x[0:1, :]], nl.add)
    """),
    *rows("L9", ACCEPTED, """
        dma_view_bcast: nisa.dma_copy(c, x[0:1, :].broadcast(0, 128))
        dma_ap_bcast: nisa.dma_copy(c, x.ap([[0, 128], [1, 64]]))
    """),
    *rows("L10", REFUSED, "stt_col: nisa.scalar_tensor_tensor(c, a, nl.add, 1.0, nl.add, col)"),
    *rows("L11", REFUSED, """
        ts_operand_bf16: nisa.tensor_scalar(c, a, nl.multiply, narrow)
        ts_operand_int32: nisa.tensor_scalar(c, a, nl.multiply, i[:, 0:1])
    """),
    *rows("L11", NOTED, "stt_operand_bf16: nisa.scalar_tensor_tensor(c, a, nl.multiply, narrow, nl.add, b)"),
    *rows("L11", REFUSED, "stt_operand_int32: nisa.scalar_tensor_tensor(c, a, nl.multiply, i[:, 0:1], nl.add, b)"),
    *rows("L11", ACCEPTED, "ts_bits_int32: nisa.tensor_scalar(i, i, nl.bitwise_and, i[:, 0:1])"),
    *rows("L12", REFUSED, """
        rank6_strided: q = tile((128, 3, 3, 3, 3, 3), nl.float32);;nisa.tensor_copy(q[:, 0:2, 0:2, 0:2, 0:2, 0:2], q[:, 1:3, 1:3, 1:3, 1:3, 1:3])
    """),
    *rows("L12", NOTED, """
        memset_rank6: nisa.memset(nl.ndarray((128, 2, 2, 2, 2, 2), dtype=nl.float32), 0.0)
        tsr_rank5: q = a.reshape((128, 2, 2, 4, 4));;nisa.tensor_scalar_reduce(q, q, nl.add, 1.0, nl.add, col)
        fiveD: q = a.reshape((128, 2, 2, 2, 2, 4));;nisa.tensor_copy(q, q)
    """),
    *rows("L13", REFUSED, """
        ap_step: nisa.tensor_copy(c[:, 0:32], a.ap([[32, 128], [1, 32]]))
        ap_step_eq1: nisa.tensor_copy(c[:, 0:8], a.ap([[1, 128], [1, 8]]))
        ap_step_zero: nisa.tensor_copy(c[:, 0:8], a.ap([[0, 128], [1, 8]]))
    """),
    *rows("L13", ACCEPTED, """
        ap_row: nisa.tensor_copy(c[:, 0:8], a.ap([[64, 128], [1, 8]]))
        ap_count1_step: nisa.tensor_copy(c[0:1, 0:8], a.ap([[1, 1], [1, 8]]))
    """),
    *rows("L14", REFUSED, "\n".join(
        f"act_{name}: nisa.activation(c, nl.{name}, a)"
        for name in ("cos", "tan", "floor", "ceil", "trunc", "negative", "logical_not", "invert")
    )),
    *rows("L14", NOTED, "nl_floor: nl.floor(a)\nnl_cos: nl.cos(a)\nnl_tan: nl.tan(a)"),
    *rows("L15", REFUSED, """
        tt_abs: nisa.tensor_tensor(c, a, b, nl.abs)
        tt_rsqrt: nisa.tensor_tensor(c, a, b, nl.rsqrt)
        tt_bypass: nisa.tensor_tensor(c, a, b, nl.bypass)
    """),
    *rows("L16", REFUSED, """
        ts_unary_operand: nisa.tensor_scalar(c, a, nl.abs, 3.0)
        ts_operand1_no_op1: nisa.tensor_scalar(c, a, nl.add, 1.0, operand1=2.0)
    """),
    *rows("L16", NOTED, "ts_gpsimd_add: nisa.tensor_scalar(c, a, nl.add, 1.0, engine=nisa.engine.gpsimd)"),
    *rows("L17", REFUSED, """
        act_reduce_noop: nisa.activation(c, nl.exp, a, reduce_op=nl.add, reduce_res=col)
        act_reduce_max: nisa.activation(c, nl.exp, a, reduce_op=nl.maximum, reduce_res=col, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        actred_max: nisa.activation_reduce(c, nl.exp, a, nl.maximum, col)
        act_load_reduce: nisa.activation(c, nl.exp, a, reduce_op=nl.add, reduce_res=col, reduce_cmd=nisa.reduce_cmd.load_reduce)
        act_scale_bf16: nisa.activation(c, nl.exp, a, scale=narrow)
        act_bias_tf32: nisa.activation(c, nl.exp, a, bias=tile((128, 1), nl.tfloat32))
    """),
    *rows("L17", ACCEPTED, "act_bias_bf16: nisa.activation(c, nl.exp, a, bias=narrow)"),
    *rows("L18", REFUSED, """
        tr_axis_mid: nisa.tensor_reduce(nl.ndarray((128, 8), dtype=nl.float32), nl.add, a.reshape((128, 8, 8)), axis=1)
        tr_axis_0: nisa.tensor_reduce(nl.ndarray((1, 64), dtype=nl.float32), nl.add, a, axis=0)
        tr_negate_bit: nisa.tensor_reduce(nl.ndarray((128, 1), dtype=nl.int32), nl.bitwise_and, i, axis=1, negate=True)
        nl_sum_mid: nl.sum(a.reshape((128, 8, 8)), axis=1, keepdims=True)
    """),
    *rows("L18", ACCEPTED, """
        tr_axis_neg: nisa.tensor_reduce(col, nl.add, a, axis=-1)
        tr_permuted: nisa.tensor_reduce(nl.ndarray((128, 8), dtype=nl.float32), nl.add, a.reshape((128, 8, 8)).permute((0, 2, 1)), axis=2)
    """),
    *rows("L19", REFUSED, "nl_sum_nokeep: nl.sum(a, axis=1)"),
    *rows("L19", ACCEPTED, "nl_sum_keep: nl.sum(a, axis=1, keepdims=True)"),
    *rows("L20", REFUSED, "tpr_sub: nisa.tensor_partition_reduce(nl.ndarray((1, 64), dtype=nl.float32), nl.subtract, a)"),
    *rows("L21", REFUSED, """
        tcp_pred_float: nisa.tensor_copy_predicated(c, a, b)
        tcp_pred_int32: nisa.tensor_copy_predicated(c, a, i)
        tcp_dtype: nisa.tensor_copy_predicated(c, h, u8)
        tcp_both_psum: nisa.memset(ps, 1.0);;nisa.tensor_copy_predicated(c, ps, tile((128, 64), nl.uint8, 1, nl.psum))
        tcp_reverse_tensor: nisa.tensor_copy_predicated(c, a, u8, reverse_pred=True)
    """),
    *rows("L21", ACCEPTED, "tcp_ok: nisa.tensor_copy_predicated(c, a, u8)"),
    *rows("L22", REFUSED, """
        sel_pred_uint32: nisa.select_reduce(c, u32, a, 0.0)
        sel_pred_float: nisa.select_reduce(c, b, a, 0.0)
        sel_onfalse_tile: nisa.select_reduce(c, u8, a, b)
        sel_true_int32: nisa.select_reduce(i, u8, i, 0)
        sel_reduce_add: nisa.select_reduce(c, u8, a, 0.0, reduce_res=col, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)
    """),
    *rows("L22", ACCEPTED, "sel_scalar_ok: nisa.select_reduce(c, u8, a, 0.0)\nsel_column_ok: nisa.select_reduce(c, u8, a, col)"),
    *rows("L23", REFUSED, """
        rs_onfalse: nisa.range_select(c, a, nl.greater, nl.less, col, col, on_false_value=0.0)
        rs_noteq: nisa.range_select(c, a, nl.not_equal, nl.less, col, col)
        rs_scalar_bound: nisa.range_select(c, a, nl.greater, nl.less, 0.0, 5.0)
        rs_bound_bf16: nisa.range_select(c, a, nl.greater, nl.less, narrow, narrow)
        rs_int: nisa.range_select(i, i, nl.greater, nl.less, col, col)
        rs_reduce_add: nisa.range_select(c, a, nl.greater, nl.less, col, col, reduce_res=col, reduce_op=nl.add)
    """),
    *rows("L24", REFUSED, "memset_scalar_engine: nisa.memset(c, 0.0, engine=nisa.engine.scalar)"),
    *rows("L24", REFUSED, "memset_x4: nisa.memset(nl.ndarray((128, 64), dtype=nl.float8_e4m3fn_x4), 1)", "trn3"),
    *rows("L24", NOTED, "memset_uint_neg: nisa.memset(u8, -1)"),
    *rows("L25", REFUSED, "afs_5d: nisa.iota(i, [[1, 2], [2, 2], [4, 2], [8, 2], [16, 4]])"),
    *rows("L26", REFUSED, """
        tsr_reverse0: nisa.tensor_scalar_reduce(c, a, nl.subtract, 1.0, nl.add, col, reverse0=True)
        tsr_reduce_sub: nisa.tensor_scalar_reduce(c, a, nl.add, 1.0, nl.subtract, col)
    """),
    *rows("L27", REFUSED, """
        tsc_int32: nisa.tensor_scalar_cumulative(i, i, nl.add, nl.add, 1.0)
        tsc_op1_and: nisa.tensor_scalar_cumulative(c, a, nl.add, nl.logical_and, 1.0)
    """),
    *rows("L28", REFUSED, """
        scan_bit: nisa.tensor_tensor_scan(i, i, i, 0, nl.bitwise_and, nl.bitwise_or)
        stt_bit: nisa.scalar_tensor_tensor(i, i, nl.bitwise_and, 1, nl.bitwise_or, i)
    """),
    *rows("L29", REFUSED, """
        act2_sub: nisa.activate2(c, nl.gelu, a, 1.0, 1.0, nl.add, nl.multiply)
        act2_mixed_imm: nisa.activate2(c, nl.gelu, a, col, narrow, nl.multiply, nl.add)
        exp_uint32dst: nisa.exponential(u32, a)
    """, "trn3"),
    *rows("L30", REFUSED, """
        mm_e4m3fn_trn2: f = tile((128, 64), nl.float8_e4m3fn);;nisa.nc_matmul(pm, f, f)
        mm_start_diff: nisa.nc_matmul(pm, a[0:64, :], b[64:128, :])
    """),
    *rows("L30", REFUSED, "mm_e4m3_mix_trn3: nisa.nc_matmul(pm, tile((128, 64), nl.float8_e4m3fn), tile((128, 64), nl.float8_e4m3))", "trn3"),
    *rows("L31", REFUSED, "tfloat32_mm: s = tile((128, 64), nl.tfloat32);;nisa.nc_matmul(pm, s, s)"),
    *rows("L32", NOTED, """
        mm_accum_memset_none: nisa.memset(pm, 0.0);;nisa.nc_matmul(pm, a, b)
        mm_accum_copy_none: nisa.tensor_copy(pm, a[0:64, :]);;nisa.nc_matmul(pm, a, b)
    """),
    *rows("L33", REFUSED, """
        expand_dim0: a.expand_dim(0)
        squeeze_dim0: a[0:1, :].squeeze_dim(0)
        broadcast_dim0: a[0:1, :].broadcast(0, 128)
        reshape_dim_part: a.reshape_dim(0, (2, 64))
        reshape_part: a.reshape((64, 128))
        flatten_part: a.reshape((128, 8, 8)).flatten_dims(0, 1)
        reshape_varargs: a.reshape(128, 8, 8)
        newaxis: a[:, None, :]
        astype: a.astype(nl.bfloat16)
        broadcast_to_m: a[:, 0:1].broadcast_to((128, 64))
        expand_dims_m: a.expand_dims(1)
    """),
    *rows("L33", ACCEPTED, """
        expand_dim1: a.expand_dim(1)
        reshape_m1: a.reshape((128, 8, -1))
        permute_list: a.reshape((128, 8, 8)).permute([0, 2, 1])
    """),
    *rows("L34", REFUSED, """
        nct_f32_bf16: nisa.nc_transpose(nl.ndarray((64, 128), dtype=nl.bfloat16, buffer=nl.psum), a)
        nct_int32: nisa.nc_transpose(nl.ndarray((64, 128), dtype=nl.int32, buffer=nl.psum), i)
    """),
    *rows("L34", NOTED, "nct_vec_big: nisa.nc_transpose(turned, a, engine=nisa.engine.vector)"),
    *rows("L34", NOTED, "nct_bf16_f32: nisa.nc_transpose(pt, h)"),
    *rows("L35", NOTED, "dmat_sbuf_sbuf: nisa.dma_transpose(turned, a)"),
    *rows("L35", NOTED, "dmat_hbm_dst: nisa.dma_transpose(nl.ndarray((64, 128), dtype=nl.float32, buffer=nl.shared_hbm), x)"),
    *rows("L36", REFUSED, """
        dmat_hw_wide: nisa.dma_transpose(turned, x, dge_mode=nisa.dge_mode.hwdge)
        dmat_sw: nisa.dma_transpose(turned, x, dge_mode=nisa.dge_mode.swdge)
        dmat_none: nisa.dma_transpose(turned, x, dge_mode=nisa.dge_mode.none)
    """),
    *rows("L37", REFUSED, """
        dma_priority_trn2: nisa.dma_copy(c, x, priority=1)
        dma_str_enum: nisa.dma_copy(c, x, dge_mode='hwdge')
        vec_off_hwdge: t = tile((64, 1), nl.uint32);;nisa.dma_copy(a[0:64, :], x.ap([[64, 64], [1, 64]], vector_offset=t, indirect_dim=0), dge_mode=nisa.dge_mode.hwdge)
    """),
    *rows("L37", NOTED, "oob_skip_static: nisa.dma_copy(c, x, oob_mode=nisa.oob_mode.skip)"),
    *rows("L37", ACCEPTED, """
        scalar_off_hwdge: t = tile((1, 1), nl.int32);;nisa.dma_copy(a[:, 0:8], x.ap([[64, 128], [1, 8]], scalar_offset=t, indirect_dim=1), dge_mode=nisa.dge_mode.hwdge)
        scalar_off_transposed: t = tile((1, 1), nl.int32);;d = nl.ndarray((16, 64), dtype=nl.bfloat16);;q = nl.ndarray((64, 128), dtype=nl.bfloat16, buffer=nl.shared_hbm);;nisa.dma_copy(q, tile((64, 128), nl.bfloat16));;nisa.dma_transpose(d, q.ap([[128, 64], [1, 16]], scalar_offset=t, indirect_dim=1), dge_mode=nisa.dge_mode.hwdge)
    """),
    *rows("L37", NOTED, "dma_int_enum: nisa.dma_copy(c, x, dge_mode=2)"),
    *rows("L37", REFUSED, "dma_priority_9: nisa.dma_copy(c, x, priority=9)", "trn3"),
    *rows("L37", ACCEPTED, "dma_priority_3: nisa.dma_copy(c, x, priority=3)", "trn3"),
    *rows("L38", REFUSED, """
        max8_4d: nisa.max8(nl.ndarray((128, 8), dtype=nl.float32), a.reshape((128, 2, 4, 8)))
        fi8_dst_float: nisa.nc_find_index8(nl.ndarray((128, 8), dtype=nl.float32), a, b[:, 0:8])
        mr8_idx_float: nisa.nc_match_replace8(c, a, b[:, 0:8], 0.0, dst_idx=nl.ndarray((128, 8), dtype=nl.float32))
        ng_idx_int32: nisa.nc_n_gather(c, a, i)
        ng_dtype: nisa.nc_n_gather(h, a, u32)
        lg_dtype: nisa.local_gather(h, a, tile((128, 4), nl.uint16))
        shuffle_dtype: nisa.nc_stream_shuffle(h, a, list(range(32)))
    """),
    *rows("L39", REFUSED, """
        rng_float: nisa.rng(c)
        rng_engine_scalar: nisa.rng(u32, engine=nisa.engine.scalar)
        rand2_trn2: nisa.rand2(c, 0.0, 1.0)
        seed_shape: nisa.set_rng_seed(i[:, 0:1])
        dropout_dtype: nisa.dropout(nl.ndarray((128, 64), dtype=nl.bfloat16), a, 0.5)
        seqb_part: nisa.sequence_bounds(nl.ndarray((2, 2, 64), dtype=nl.int32), i[0:2, :])
        nzc_dtype: nisa.nonzero_with_count(tile((128, 65), nl.float32), a)
        nzc_size: nisa.nonzero_with_count(i, a)
        topk_f32: nisa.topk(nl.ndarray((128, 8), dtype=nl.float32), nl.ndarray((128, 8), dtype=nl.uint32), a, 64)
        topk_idx_int32: nisa.topk(nl.ndarray((128, 8), dtype=nl.bfloat16), nl.ndarray((128, 8), dtype=nl.int32), h, 64)
        topk_n_small: nisa.topk(nl.ndarray((128, 8), dtype=nl.bfloat16), nl.ndarray((128, 8), dtype=nl.uint32), h, 4)
    """),
    *rows("L16", NOTED, "ts_square_second: nisa.tensor_scalar(c, a, nl.add, 1.0, op1=nl.square, operand1=0)", "trn3"),
    *rows("L39", REFUSED, """
        quant_dst: nisa.quantize_mx(u8, h, u8)
        quant_scale: nisa.quantize_mx(nl.ndarray((128, 16), dtype=nl.float8_e4m3fn_x4), h, nl.ndarray((16, 16), dtype=nl.int32))
        mx_operands: nisa.nc_matmul_mx(pm, a, b, u8, u8)
        rand2_minmax: nisa.rand2(c, 1.0, 0.0)
        quant_f32: nisa.quantize_mx(nl.ndarray((128, 16), dtype=nl.float8_e4m3fn_x4), a, nl.ndarray((16, 16), dtype=nl.uint8))
    """, "trn3"),
    Probe("grid4", "L40", REFUSED, "nisa.tensor_copy(c, a)", grid=(4,)),
    Probe("grid2x2", "L40", REFUSED, "nisa.tensor_copy(c, a)", grid=(2, 2)),
    Probe("grid_lnc2", "L40", ACCEPTED, "nisa.tensor_copy(c, a)", lnc=2, grid=(2,)),
    *rows("L41", REFUSED, "barrier_lnc1: nisa.core_barrier(out, (0, 1))"),
    *rows("L41", REFUSED, "barrier_cores: nisa.core_barrier(out, (0, 1, 2))", lnc=2),
    *rows("L41", NOTED, "barrier_sbuf: nisa.core_barrier(a, (0, 1))", lnc=2),
    *rows("L43", REFUSED, """
        fori_static_pyint: def body(k):;;    nisa.tensor_copy(c[:, k * 8 : (k + 1) * 8], a[:, k * 8 : (k + 1) * 8]);;nl.fori_loop(0, 8, body)
    """),
    *rows("L44", REFUSED, """
        fori_ret: def body(k):;;    return k;;nl.fori_loop(0, 4, body)
        fori_in_noreorder: def body(k):;;    nisa.tensor_copy(c, a);;with nl.no_reorder():;;    nl.fori_loop(0, nisa.register_alloc(3), body)
    """),
    *rows("L45", REFUSED, """
        scalar_load_uint: nisa.scalar_load(u32[0:1, 0:1])
        scalar_load_wide: nisa.scalar_load(i[0:1, 0:4])
        reg_load_psum: nisa.memset(ps, 0.0);;nisa.register_load(nisa.register_alloc(), ps[0:1, 0:1])
    """),
    *rows("L46", NOTED, """
        dyn_tensor_tensor: r = nisa.register_alloc(3);;nisa.tensor_tensor(c[:, 0:8], a.ap([[64, 128], [1, 8]], scalar_offset=r, indirect_dim=1), b[:, 0:8], nl.add)
        dyn_activation: r = nisa.register_alloc(3);;nisa.activation(c[:, 0:8], nl.exp, a.ap([[64, 128], [1, 8]], scalar_offset=r, indirect_dim=1))
    """),
    *rows("L47", REFUSED, """
        dyn_partition: r = nisa.register_alloc(3);;nisa.tensor_copy(c[0:1, :], a.ap([[64, 1], [1, 64]], scalar_offset=r, indirect_dim=0))
    """),
    *rows("L49", REFUSED, """
        nl_store_psum: nisa.memset(ps, 1.0);;nl.store(out, ps)
        nl_rsqrt_psum: nisa.memset(ps, 1.0);;nl.rsqrt(ps)
    """),
    *rows("L49", REFUSED, "nl_store_number: nl.store(out, 1.0)\nnl_transpose_int: nl.transpose(i)"),
    *rows("L49", NOTED, "nl_copy_psum: nisa.memset(ps, 1.0);;nl.copy(ps)"),
    *rows("L50", REFUSED, "nl_rms_norm: nl.rms_norm(a, b, 1, 64)"),
    *rows("L51", REFUSED, "nl_random_seed_int: nl.random_seed(42)"),
    *rows("L51", ACCEPTED, "nl_random_seed_tile: nl.random_seed(i[0:1, 0:1])"),
    *rows("L52", REFUSED, """
        dup_inst_name: nisa.tensor_copy(c, a, name='n1');;nisa.tensor_copy(c, b, name='n1')
        dup_name: t = nl.ndarray((128, 64), dtype=nl.float32, name='q');;nisa.tensor_copy(t, a, name='q')
    """),
    *rows("L54", NOTED, "dma_sbuf_sbuf: nisa.dma_copy(c, a)"),
    *rows("L55", NOTED, "act_reduce_square: nisa.activation_reduce(c, nl.square, a, nl.add, col)"),
    *rows("L65", REFUSED, """
        no_elements: nl.ndarray((128, 0), dtype=nl.int32, buffer=nl.sbuf)
        one_d_1: nl.ndarray((1,), dtype=nl.int32, buffer=nl.sbuf)
        ndarray_unknown: nl.ndarray((128, 1), dtype=nl.int32, align=4)
    """),
    *rows("L67", REFUSED, """
        idx_oob: a[:, 64]
        empty_slice_unused: a[:, 64:64]
        neg_oob: a[:, -65]
        neg_step: a[:, ::-1]
    """),
    *rows("L67", REFUSED, """
        idx_fraction: a[:, 0 : 64 / 2]
        idx_text: a['x']
        idx_array: a[np.arange(3)]
        step_zero: a[:, 0:8:0]
    """),
    *rows("L68", NOTED, "tile_setitem: c[:, 0:8] = a[:, 0:8]\nhbm_setitem: out[:, 0:8] = a[:, 0:8]"),
    *rows("L68", REFUSED, """
        hbm_setitem_psum: nisa.memset(ps, 0.0);;out[:, :] = ps
        hbm_setitem_number: out[:, :] = 1.0
        hbm_setitem_shape: out[:, 0:8] = a[:, 0:9]
    """),
    *rows("L69", REFUSED, "program_id_1: nl.program_id(1)\nnum_programs_1: nl.num_programs(1)"),
    *rows("L69", ACCEPTED, "num_programs_0: nl.num_programs(0)\nnum_programs_all: nl.num_programs()"),
    *rows("S1", ACCEPTED, "ts_reciprocal: nisa.tensor_scalar(c, a, nl.reciprocal, 0)"),
    *rows("S2", ACCEPTED, "ts_invert: nisa.tensor_scalar(i, i, nl.invert, 0)"),
    *rows("S3", ACCEPTED, "tpr_average: nisa.tensor_partition_reduce(nl.ndarray((1, 64), dtype=nl.float32), nl.average, a)"),
    *rows("S3", ACCEPTED, "tpr_or: nisa.tensor_partition_reduce(nl.ndarray((1, 64), dtype=nl.int32), nl.bitwise_or, i)"),
    *rows("S4", ACCEPTED, "stt_reduce: nisa.scalar_tensor_tensor(c, a, nl.multiply, 2.0, nl.add, b, reduce_op=nl.add, reduce_res=col)"),
    *rows("S5", NOTED, "act_gpsimd: nisa.activation(c, nl.exp, a, engine=nisa.engine.gpsimd)", "trn3"),
    *rows("S5", REFUSED, "act_gpsimd_trn2: nisa.activation(c, nl.exp, a, engine=nisa.engine.gpsimd)"),
    *rows("S7", ACCEPTED, "tensor_name: nl.ndarray((128, 64), dtype=nl.float32, name=a.name + '_copy')"),
    *rows("S8", ACCEPTED, "ap_of_slice: nisa.tensor_copy(c[:, 0:8], a[:, 8:64].ap([[64, 128], [1, 8]]))"),
    # AWS's pages disagree on what an offset counts from
    *rows("S8", NOTED, "ap_of_slice_offset: nisa.tensor_copy(c[:, 0:8], a[:, 8:64].ap([[64, 128], [1, 8]], offset=16))"),
    *rows("S11", NOTED, "dma_sbuf_sbuf_reshape: nisa.dma_copy(turned, a)"),
    *rows("op", REFUSED, """
        op_numpy: nisa.tensor_tensor(c, a, b, np.maximum)
        op_numpy_fold: nisa.tensor_reduce(col, np.max, a, axis=1)
        op_text: nisa.activation(c, 'exp', a)
        op_compare_text: nisa.affine_select(c, [[1, 64]], 1, a, 0.0, 'greater')
    """),
    *rows("reduce_cmd", REFUSED, """
        cmd_text: nisa.activation(c, nl.exp, a, reduce_op=nl.add, reduce_res=col, reduce_cmd='reset_reduce')
        cmd_idle: nisa.tensor_scalar_reduce(c, a, nl.add, 1.0, nl.add, col, reduce_cmd=nisa.reduce_cmd.idle)
        cmd_load_nothing: nisa.tensor_scalar_reduce(c, a, nl.add, 1.0, nl.add, col, reduce_cmd=nisa.reduce_cmd.load_reduce)
        cmd_reset_only: nisa.select_reduce(c, u8, a, 0.0, reduce_res=col, reduce_cmd=nisa.reduce_cmd.reset)
    """),
    *rows("reduce_cmd", ACCEPTED, "cmd_load: nisa.tensor_scalar_reduce(c, a, nl.add, 1.0, nl.add, col, reduce_cmd=nisa.reduce_cmd.load_reduce, reduce_init=2.0)"),
    *rows("reduce_cmd", NOTED, "cmd_left_out: nisa.select_reduce(c, u8, a, 0.0, reduce_res=col)"),
    *rows("int32", REFUSED, """
        iota_offset: nisa.iota(i, [[1, 64]], offset=2**31)
        iota_multiplier: nisa.iota(i, [[1, 64]], channel_multiplier=2**31)
        nonzero_offset: nisa.nonzero_with_count(tile((128, 65), nl.int32), a, index_offset=1.5)
        register_float: nisa.register_alloc(1.5)
        register_wide: nisa.register_alloc(2**40)
        bits_float: nisa.tensor_scalar(i, i, nl.bitwise_and, 1.5)
    """),
    *rows("types", REFUSED, """
        select_two_psum: nisa.memset(ps, 1.0);;nisa.select_reduce(c, tile((128, 64), nl.uint8, 1, nl.psum), ps, 0.0)
        select_result_int: nisa.select_reduce(c, u8, a, 0.0, reduce_res=i[:, 0:1], reduce_cmd=nisa.reduce_cmd.reset_reduce)
        bounds_bf16: nisa.sequence_bounds(nl.ndarray((1, 2, 64), dtype=nl.float32), h[0:1, :])
        bounds_turned: nisa.sequence_bounds(nl.ndarray((1, 64, 2), dtype=nl.int32), i[0:1, :])
        seed_8bit: nisa.set_rng_seed(u8[0:1, 0:1])
        dropout_prob: nisa.dropout(i, i, narrow)
        full_fraction: nl.full((128, 4), 1.5, dtype=nl.int32)
        print_psum: nisa.memset(ps, 1.0);;nl.device_print('v', ps)
        print_number: nl.device_print('v', 3)
    """),
    *rows("L27", ACCEPTED, "tsc_uint8: nisa.tensor_scalar_cumulative(u8, u8, nl.add, nl.add, 1.0)"),
    *rows("L33", REFUSED, "select_negative: a.select(1, -1)\nvar_mid: nl.var(a.reshape((128, 8, 8)), axis=1)\nall_mid: nl.all(a.reshape((128, 8, 8)), axis=1)"),
    *rows("L38", REFUSED, """
        fi8_4d: nisa.nc_find_index8(nl.ndarray((128, 8), dtype=nl.uint32), a.reshape((128, 2, 4, 8)), b[:, 0:8])
        max8_dst_3d: nisa.max8(nl.ndarray((128, 2, 4), dtype=nl.float32), a)
        lg_valid: nisa.local_gather(c[:, 0:17], a, tile((128, 1), nl.uint16), num_valid_indices=17)
        lg_4097: nisa.local_gather(nl.ndarray((128, 4112), dtype=nl.float32), a, tile((128, 257), nl.uint16))
    """),
    *rows("L38", ACCEPTED, "lg_all: nisa.local_gather(c[:, 0:16], a, tile((128, 1), nl.uint16))"),
    *rows("L38", NOTED, "lg_size: nisa.local_gather(c[:, 0:20], a, tile((128, 1), nl.uint16))"),
    *rows("L39", REFUSED, """
        topk_k: nisa.topk(nl.ndarray((128, 64), dtype=nl.bfloat16), nl.ndarray((128, 64), dtype=nl.uint32), h, 32)
        topk_source: nisa.topk(nl.ndarray((128, 8), dtype=nl.bfloat16), nl.ndarray((128, 8), dtype=nl.uint32), h[:, 0:2], 64)
        topk_rows: nisa.topk(nl.ndarray((24, 8), dtype=nl.bfloat16), nl.ndarray((24, 8), dtype=nl.uint32), tile((24, 64), nl.bfloat16), 64)
    """),
    *rows("loop bodies", REFUSED, """
        fori_local: kept = [];;def body(k):;;    kept.append(tile((128, 64), nl.float32));;nl.fori_loop(0, nisa.register_alloc(3), body);;nisa.tensor_copy(c, kept[0])
        fori_local_known_bounds: kept = [];;def body(k):;;    kept.append(tile((128, 64), nl.float32));;nl.fori_loop(0, 3, body);;nisa.tensor_copy(c, kept[0])
        while_local: kept = [];;def body(k):;;    kept.append(tile((128, 64), nl.float32));;    return k;;nl.while_loop(nisa.register_alloc(0), body);;nisa.tensor_copy(c, kept[0])
    """),
    *rows("loop bodies", ACCEPTED, """
        fori_outer: t = tile((128, 64), nl.float32);;def body(k):;;    u = tile((128, 64), nl.float32);;    nisa.tensor_copy(t, u);;nl.fori_loop(0, nisa.register_alloc(3), body);;nisa.tensor_copy(c, t)
        dynamic_local: for k in nl.dynamic_range(nisa.register_alloc(3)):;;    t = tile((128, 64), nl.float32);;nisa.tensor_copy(c, t)
    """),
    *rows("L44", REFUSED, """
        dynamic_in_noreorder: with nl.no_reorder():;;    for k in nl.dynamic_range(3):;;        nisa.tensor_copy(c, a)
        while_in_noreorder: r = nisa.register_alloc(1);;with nl.no_reorder():;;    nl.while_loop(r, lambda k: k)
    """),
    *rows("L45", REFUSED, """
        store_wide: nisa.register_store(i[0:1, 0:2], nisa.register_alloc(1))
        store_psum: nisa.register_store(tile((1, 1), nl.int32, 0, nl.psum), nisa.register_alloc(1))
    """),
    *rows("gathers", REFUSED, """
        gather_sbuf: t = tile((128, 1), nl.uint32);;nisa.dma_copy(c, a.ap([[64, 128], [1, 64]], vector_offset=t, indirect_dim=0))
        gather_columns: t = tile((128, 1), nl.uint32);;nisa.dma_copy(c, x.ap([[64, 128], [1, 64]], vector_offset=t, indirect_dim=1))
        gather_by_psum: t = tile((128, 1), nl.uint32, 1, nl.psum);;nisa.dma_copy(c, x.ap([[64, 128], [1, 64]], vector_offset=t, indirect_dim=0))
        gather_twice: t = tile((128, 1), nl.uint32);;x.vector_select(0, t).vector_select(0, t)
        gather_sliced: t = tile((128, 1), nl.uint32);;x.vector_select(0, t)[0:4, :]
        select_by_column: t = tile((128, 1), nl.int32);;x.select(0, t)
    """),
    *rows("gathers", ACCEPTED, """
        gather_rows: t = tile((128, 1), nl.uint32);;nisa.dma_copy(c, x.vector_select(0, t))
        gather_some_columns: t = tile((128, 1), nl.uint32);;nisa.dma_copy(c[:, 0:8], x.vector_select(0, t)[:, 8:16])
    """),
    Probe("swap_shapes", "sendrecv", REFUSED, "nisa.sendrecv(a.reshape((128, 8, 8)), c, 1 - nl.program_id(0), 1 - nl.program_id(0), 0)", lnc=2, grid=(2,)),
    Probe("swap_gpsimd_wide", "sendrecv", REFUSED, "w = tile((128, 257), nl.bfloat16);;nisa.sendrecv(w, w, 1 - nl.program_id(0), 1 - nl.program_id(0), 0, nisa.dma_engine.gpsimd_dma)", lnc=2, grid=(2,)),
    Probe("swap_gpsimd", "sendrecv", ACCEPTED, "nisa.sendrecv(a, c, 1 - nl.program_id(0), 1 - nl.program_id(0), 0, nisa.dma_engine.gpsimd_dma)", lnc=2, grid=(2,)),
    *rows("mx", REFUSED, """
        quant_rows: nisa.quantize_mx(nl.ndarray((48, 16), dtype=nl.float8_e4m3fn_x4), tile((48, 64), nl.bfloat16), nl.ndarray((48, 16), dtype=nl.uint8))
        quant_columns: nisa.quantize_mx(nl.ndarray((128, 15), dtype=nl.float8_e4m3fn_x4), h[:, 0:62], nl.ndarray((128, 16), dtype=nl.uint8))
        quant_size: nisa.quantize_mx(nl.ndarray((128, 64), dtype=nl.float8_e4m3fn_x4), h, nl.ndarray((128, 16), dtype=nl.uint8))
        quant_psum: nisa.quantize_mx(nl.ndarray((128, 16), dtype=nl.float8_e4m3fn_x4), tile((128, 64), nl.bfloat16, 1, nl.psum), nl.ndarray((128, 16), dtype=nl.uint8))
        mx_rows: q, s = tile((48, 64), nl.float8_e4m3fn_x4), tile((48, 64), nl.uint8);;nisa.nc_matmul_mx(pm, q, q, s, s)
        mx_columns: q, s = tile((64, 63), nl.float8_e4m3fn_x4), tile((64, 63), nl.uint8);;nisa.nc_matmul_mx(nl.ndarray((63, 63), dtype=nl.float32, buffer=nl.psum), q, q, s, s)
        mx_column_tile: q, s = tile((32, 32), nl.float8_e4m3fn_x4), tile((32, 32), nl.uint8);;nisa.nc_matmul_mx(nl.ndarray((32, 32), dtype=nl.float32, buffer=nl.psum), q, q, s, s, (0, 32), (32, 32))
        exp_result_int: nisa.exponential(c, a, 0.0, i[:, 0:1], nisa.reduce_cmd.reset_reduce)
        act2_multiply: nisa.activate2(c, nl.exp, a, 1.0, 0.0, nl.multiply, nl.add, reduce_op=nl.multiply, reduce_res=col, reduce_cmd=nisa.reduce_cmd.reset_reduce)
    """, "trn3"),
    *rows("mx", ACCEPTED, "act2_max: nisa.activate2(c, nl.exp, a, 1.0, 0.0, nl.multiply, nl.add, reduce_op=nl.maximum, reduce_res=col, reduce_cmd=nisa.reduce_cmd.reset_reduce)", "trn3"),
    *rows("mx", NOTED, "exp_5d: w = tile((128, 2, 2, 4, 4), nl.float32);;nisa.exponential(w, w)", "trn3"),
    *rows("op", REFUSED, """
        op_builtin: nisa.tensor_tensor(c, a, b, max)
        op_fold: nisa.tensor_tensor(c, a, b, nl.sum)
        op_fold_all: nisa.tensor_reduce(col, nl.all, a, axis=1)
    """),
    *rows("op", ACCEPTED, "op_nl_max: nisa.tensor_scalar_reduce(c, a, nl.add, 1.0, nl.max, col)"),
    *rows("enums", REFUSED, """
        enum_perf_text: f = tile((128, 2, 64), nl.float8_e4m3);;nisa.nc_matmul(pm, f, f, perf_mode='double')
        enum_other: nisa.dma_copy(c, x, dge_mode=nisa.engine.scalar)
    """),
    *rows("enums", NOTED, "enum_perf_value: f = tile((128, 2, 64), nl.float8_e4m3);;nisa.nc_matmul(pm, f, f, perf_mode='double_row')"),
    *rows("enums", ACCEPTED, "enum_perf: f = tile((128, 2, 64), nl.float8_e4m3);;nisa.nc_matmul(pm, f, f, perf_mode=nisa.matmul_perf_mode.double_row)"),
    Probe("enum_swap", "enums", REFUSED, "nisa.sendrecv(a, c, 1 - nl.program_id(0), 1 - nl.program_id(0), 0, nisa.engine.gpsimd)", lnc=2, grid=(2,)),
    *rows("indirect_operand", REFUSED, "\n".join(
        f"ti_{name}: t = tile((128, 4), nl.uint16);;{line}"
        for name, line in {
            "data2": "nisa.tensor_tensor(c, a, b.indirect(t), nl.add)",
            "bias": "nisa.activation(c, nl.exp, a, bias=col.indirect(t, num_elem=1))",
            "copy_gpsimd": "nisa.tensor_copy(c, a.indirect(t), engine=nisa.engine.gpsimd)",
            "reciprocal": "nisa.reciprocal(c, a.indirect(t))",
            "iota": "nisa.iota(i.indirect(t), [[1, 64]])",
            "select": "nisa.select_reduce(c, u8, a.indirect(t), 0.0)",
            "scan": "nisa.tensor_tensor_scan(c, a.indirect(t), b, 0.0, nl.add, nl.add)",
            "three": "nisa.scalar_tensor_tensor(c, a.indirect(t), nl.add, 1.0, nl.add, b)",
            "memset": "nisa.memset(c.indirect(t), 0.0)",
            "max8": "nisa.max8(nl.ndarray((128, 8), dtype=nl.float32), a.indirect(t))",
            "predicated_src": "nisa.tensor_copy_predicated(c, a.indirect(t), u8)",
            "transpose": "nisa.nc_transpose(pt, a.indirect(t))",
            "dma": "nisa.dma_copy(c, a.indirect(t))",
        }.items()
    ), "trn3"),
    *rows("indirect_operand", NOTED, "\n".join(
        f"ti_{name}_ok: t = tile((128, 4), nl.uint16);;{line}"
        for name, line in {
            "copy": "nisa.tensor_copy(c, a.indirect(t))",
            "scatter": "nisa.tensor_copy(c.indirect(t), a)",
            "data1": "nisa.tensor_tensor(c, a.indirect(t), b, nl.add)",
            "scalar": "nisa.tensor_scalar(c, a.indirect(t), nl.add, 1.0)",
            "act": "nisa.activation(c, nl.exp, a.indirect(t))",
            "reduce": "nisa.tensor_reduce(col, nl.add, a.indirect(t), axis=1)",
            "predicate": "nisa.tensor_copy_predicated(c, a, u8.indirect(t))",
        }.items()
    ), "trn3"),
    *rows("gathers", REFUSED, """
        gather_two_columns: t = tile((128, 2), nl.uint32);;nisa.dma_copy(c, x.ap([[64, 128], [1, 64]], vector_offset=t, indirect_dim=0))
        sum_of_three_with_rows: t = tile((128, 1), nl.uint32);;nisa.dma_compute(c, [x.vector_select(0, t), c, a], nl.add)
        sum_of_17: nisa.dma_compute(c, [a] * 17, nl.add)
        turned_float32: t = tile((128, 1), nl.uint32);;nisa.dma_transpose(turned, x.vector_select(0, t))
        turned_24: t = tile((24, 1), nl.uint32);;nisa.dma_transpose(nl.ndarray((64, 24), dtype=nl.bfloat16), x.view(nl.bfloat16)[:, 0:64].vector_select(0, t))
    """),
    *rows("gathers", ACCEPTED, """
        sum_with_rows: t = tile((128, 1), nl.uint32);;nisa.dma_compute(c, [x.vector_select(0, t), c], nl.add)
        turned_rows: t = tile((128, 1), nl.uint32);;q = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.private_hbm);;nisa.dma_copy(q, h);;nisa.dma_transpose(nl.ndarray((64, 128), dtype=nl.bfloat16), q.vector_select(0, t))
    """),
    *rows("gathers", NOTED, "turned_by_int32: t = tile((128, 1), nl.int32);;q = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.private_hbm);;nisa.dma_copy(q, h);;nisa.dma_transpose(nl.ndarray((64, 128), dtype=nl.bfloat16), q.vector_select(0, t))"),
    *rows("types", REFUSED, """
        exp_tfloat32: nisa.exponential(c, tile((128, 64), nl.tfloat32))
        rand2_e4m3fn: nisa.rand2(tile((128, 64), nl.float8_e4m3fn), 0.0, 1.0)
    """, "trn3"),
    *rows("products", NOTED, "mm_transposed_type: nisa.nc_matmul(pt, h, tile((128, 128), nl.bfloat16), is_transpose=True)"),
    *rows("L17", NOTED, "act_no_reduce_op: nisa.activation(c, nl.exp, a, reduce_res=col, reduce_cmd=nisa.reduce_cmd.reset_reduce)"),
    *rows("L43", REFUSED, """
        dynamic_slice: for k in nl.dynamic_range(4):;;    nisa.tensor_copy(c[:, k * 8 : k * 8 + 8], a[:, k * 8 : k * 8 + 8])
        dynamic_index: for k in nl.dynamic_range(4):;;    nisa.tensor_copy(c[:, k], a[:, k])
        dynamic_branch: for k in nl.dynamic_range(4):;;    if k == 0:;;        nisa.tensor_copy(c, a)
        dynamic_break: for k in nl.dynamic_range(4):;;    nisa.tensor_copy(c, a);;    break
        dynamic_down: for k in nl.dynamic_range(4, 0, -1):;;    nisa.tensor_copy(c, a)
        dynamic_write: for k in nl.dynamic_range(nisa.register_alloc(4)):;;    nisa.register_move(k, 0)
        fori_write: def body(k):;;    nisa.register_load(k, tile((1, 1), nl.int32));;nl.fori_loop(0, nisa.register_alloc(4), body)
    """),
    *rows("L43", ACCEPTED, """
        dynamic_offset: for k in nl.dynamic_range(0, 64, 8):;;    nisa.dma_copy(c[:, 0:8], x.ap([[64, 128], [1, 8]], scalar_offset=k, indirect_dim=1))
        dynamic_unused: for _ in nl.dynamic_range(4):;;    nisa.tensor_copy(c, a)
    """),
    *rows("L41", NOTED, "barrier_private: p = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.private_hbm);;nisa.dma_copy(p, a);;nisa.core_barrier(p, (0, 1))", lnc=2),
    *rows("L67", REFUSED, "slice_past_end_unused: a[:, 0:65]\nslice_rows_past_end_unused: x[0:129, :]"),
    *rows("names", NOTED, "par_dim: nl.ndarray((nl.par_dim(128), 4), dtype=nl.float32)"),
    *rows("names", REFUSED, "depends_on_tile: nisa.tensor_copy(c, b).depends_on(a)"),
    *rows("L15", REFUSED, "tt_square: nisa.tensor_tensor(c, a, b, nl.square)"),
    *rows("L23", NOTED, "rs_far: nisa.range_select(c, a, nl.greater, nl.less, col, col, range_start=2**24)"),
    *rows("pages", REFUSED, """
        page_mm_position_alone: nisa.nc_matmul(pm, a, b, tile_position=(0, 0))
        page_mm_size_alone: nisa.nc_matmul(pm, a[0:64, :], b[0:64, :], tile_size=(64, 64))
        page_mm_position_uneven: nisa.nc_matmul(pm[0:32, :], a[0:32, 0:32], b[0:32, :], tile_position=(16, 0), tile_size=(32, 32))
        page_mm_position_far: nisa.nc_matmul(pm[0:32, :], a[0:32, 0:32], b[0:32, :], tile_position=(128, 0), tile_size=(32, 32))
        page_mm_size_48: nisa.nc_matmul(pm[0:32, :], a[0:32, 0:32], b[0:32, :], tile_position=(0, 0), tile_size=(48, 64))
        page_mm_wider_than_tile: nisa.nc_matmul(pm, a[0:32, :], b[0:32, :], tile_position=(0, 0), tile_size=(32, 32))
        page_mm_more_rows_than_tile: nisa.nc_matmul(pm[0:32, :], a[0:64, 0:32], b[0:64, :], tile_position=(0, 0), tile_size=(32, 32))
        page_mm_f32_bf16: nisa.nc_matmul(pm, a, h)
        page_mm_int8: t = tile((128, 64), nl.int8);;nisa.nc_matmul(pm, t, t)
        page_mm_dst_sbuf: nisa.nc_matmul(turned, tile((128, 64), nl.bfloat16), tile((128, 128), nl.bfloat16))
        page_mm_double_bf16: t = tile((128, 2, 64), nl.bfloat16);;nisa.nc_matmul(pm, t, t, perf_mode=nisa.matmul_perf_mode.double_row)
        page_mm_double_three: t = tile((128, 3, 64), nl.float8_e4m3);;nisa.nc_matmul(pm, t, t, perf_mode=nisa.matmul_perf_mode.double_row)
        page_mm_double_columns: t = tile((128, 2, 32), nl.float8_e4m3);;nisa.nc_matmul(pm[0:32, 0:32], t, t, perf_mode=nisa.matmul_perf_mode.double_row, tile_position=(0, 0), tile_size=(128, 32))
        page_mm_partitions: nisa.nc_matmul(pm, h[0:64, :], h)
        page_mm_dst_rows: nisa.nc_matmul(ps, h, h)
        page_nct_psum_tensor: nisa.nc_transpose(pt, ps, engine=nisa.engine.tensor)
        page_nct_gpsimd: nisa.nc_transpose(pt, a, engine=nisa.engine.gpsimd)
        page_nct_wide: nisa.nc_transpose(nl.ndarray((128, 128), nl.float32, buffer=nl.psum), tile((128, 256), nl.float32))
        page_ts_mixed_kinds: nisa.tensor_scalar(i, i, nl.bitwise_and, 3, op1=nl.add, operand1=1.0)
        page_ts_bits_gpsimd: nisa.tensor_scalar(i, i, nl.bitwise_and, 3, engine=nisa.engine.gpsimd)
        page_ts_bits_float: nisa.tensor_scalar(c, a, nl.bitwise_and, 3)
        page_ts_scalar_subtract: nisa.tensor_scalar(c, a, nl.subtract, 1.0, engine=nisa.engine.scalar)
        page_ts_scalar_add_multiply: nisa.tensor_scalar(c, a, nl.add, 1.0, op1=nl.multiply, operand1=2.0, engine=nisa.engine.scalar)
        page_ts_row_operand: nisa.tensor_scalar(c, a, nl.add, b[0:1, :])
        page_ts_operand_partitions: nisa.tensor_scalar(c, a, nl.add, col[0:64, :])
        page_tt_power_psum: nisa.tensor_copy(ps, a);;nisa.tensor_tensor(c, a, ps, nl.power)
        page_tt_gpsimd_psum: nisa.tensor_copy(ps, a);;nisa.tensor_tensor(c, a, ps, nl.add, engine=nisa.engine.gpsimd)
        page_tt_scalar_engine: nisa.tensor_tensor(c, a, b, nl.add, engine=nisa.engine.scalar)
        page_tt_bits_float: nisa.tensor_tensor(c, a, b, nl.bitwise_or)
        page_tr_dst_wide: nisa.tensor_reduce(c, nl.add, a, axis=1)
        page_tr_bits_float: nisa.tensor_reduce(col, nl.bitwise_or, a, axis=1)
        page_tr_axis_2: nisa.tensor_reduce(col, nl.add, a, axis=2)
        page_tr_unary: nisa.tensor_reduce(col, nl.exp, a, axis=1)
        page_tpr_psum: nisa.tensor_copy(ps, a);;nisa.tensor_partition_reduce(c[0:1, :], nl.add, ps)
        page_tpr_dst_rows: nisa.tensor_partition_reduce(c, nl.add, a)
        page_act_bias_row: nisa.activation(c, nl.exp, a, bias=b[0:1, :])
        page_act_bias_wide: nisa.activation(c, nl.exp, a, bias=b)
        page_act_scale_bf16_col: nisa.activation(c, nl.exp, a, scale=narrow)
        page_act_binary: nisa.activation(c, nl.add, a)
        page_act_dst_hbm: nisa.activation(out, nl.exp, a)
        page_act_src_hbm: nisa.activation(c, nl.exp, x)
        page_iota_psum: nisa.iota(ps, [[1, 64]])
        page_iota_count: nisa.iota(c, [[1, 32]])
        page_afs_psum: nisa.tensor_copy(ps, a);;nisa.affine_select(c, [[1, 64]], 1, ps, 0.0)
        page_afs_count: nisa.affine_select(c, [[1, 32]], 1, a, 0.0)
        page_afs_op: nisa.affine_select(c, [[1, 64]], 1, a, 0.0, cmp_op=nl.add)
        page_lg_index_type: nisa.local_gather(c, a, tile((128, 4), nl.uint32))
        page_lg_elements_3: nisa.local_gather(c[:, 0:48], a, tile((128, 1), nl.uint16), num_elem_per_idx=3)
        page_lg_rows: nisa.local_gather(c[0:8, :], a[0:8, :], tile((8, 8), nl.uint16))
        page_ng_count: nisa.nc_n_gather(c, a, tile((128, 32), nl.uint32))
        page_ng_psum: nisa.tensor_copy(ps, a);;nisa.nc_n_gather(c, ps, u32)
        page_bn_wide: nisa.bn_stats(c[:, 0:6], tile((128, 1024), nl.float32))
        page_bn_dst_5: nisa.bn_stats(c[:, 0:5], a)
        page_bn_aggr_4: nisa.bn_aggr(c[:, 0:2], a[:, 0:4])
        page_bn_aggr_dst: nisa.bn_aggr(c[:, 0:3], a[:, 0:6])
        page_scan_both_psum: nisa.tensor_copy(ps, a);;nisa.tensor_tensor_scan(c, ps, ps, 0.0, nl.multiply, nl.add)
        page_scan_initial_wide: nisa.tensor_tensor_scan(c, a, b, b, nl.multiply, nl.add)
        page_scan_unary: nisa.tensor_tensor_scan(c, a, b, 0.0, nl.exp, nl.add)
        page_shuffle_16: nisa.nc_stream_shuffle(c, a, list(range(16)))
        page_shuffle_40: nisa.nc_stream_shuffle(c, a, [40] * 32)
        page_shuffle_count: nisa.nc_stream_shuffle(c, a[:, 0:32], list(range(32)))
        page_rng_psum_gpsimd: nisa.rng(nl.ndarray((128, 64), nl.uint32, buffer=nl.psum), engine=nisa.engine.gpsimd)
        page_dropout_int_prob: nisa.dropout(i, i, narrow)
        page_seed_16bit: nisa.set_rng_seed(tile((1, 1), nl.uint16))
        page_state_5: nisa.rand_set_state(tile((128, 5), nl.uint32))
        page_state_vector_trn2: nisa.rand_set_state(tile((128, 24), nl.uint32), engine=nisa.engine.vector)
        page_state_float: nisa.rand_set_state(tile((128, 6), nl.float32))
        page_get_state_psum: nisa.rand_get_state(nl.ndarray((128, 6), nl.uint32, buffer=nl.psum))
        page_recip_count: nisa.reciprocal(c, a[:, 0:32])
        page_max8_4_elements: nisa.max8(c[:, 0:8], a[:, 0:4])
        page_max8_dst_16: nisa.max8(c[:, 0:16], a)
        page_stt_both_psum: nisa.tensor_copy(ps, a);;nisa.scalar_tensor_tensor(c, ps, nl.add, 1.0, nl.add, ps)
        page_tsr_bits: nisa.tensor_scalar_reduce(i, i, nl.bitwise_and, 1, nl.add, tile((128, 1), nl.float32))
        page_tsr_init_alone: nisa.tensor_scalar_reduce(c, a, nl.add, 1.0, nl.add, col, reduce_init=1.0)
        page_tsr_load_no_init: nisa.tensor_scalar_reduce(c, a, nl.add, 1.0, nl.add, col, reduce_cmd=nisa.reduce_cmd.load_reduce)
        page_dmac_max: nisa.dma_compute(c, [a, b], nl.maximum)
        page_dmac_scale: nisa.dma_compute(c, [a, b], nl.add, scales=[2.0, 1.0])
        page_dmac_not_unique: nisa.dma_compute(c, [a, b], nl.add, unique_indices=False)
        page_qmx_trn2: nisa.quantize_mx(tile((128, 16), nl.float8_e4m3fn_x4), h, tile((128, 16), nl.uint8))
        page_sel_both_psum: p8 = nl.ndarray((128, 64), nl.uint8, buffer=nl.psum);;nisa.tensor_copy(p8, u8);;nisa.tensor_copy(ps, a);;nisa.select_reduce(c, p8, ps, 0.0)
        page_sel_res_int: nisa.select_reduce(c, u8, a, 0.0, reduce_res=tile((128, 1), nl.int32), reduce_cmd=nisa.reduce_cmd.reset_reduce)
        page_sel_count: nisa.select_reduce(c, u8[:, 0:32], a, 0.0)
        page_rs_bound_wide: nisa.range_select(c, a, nl.greater, nl.less, b, col)
        page_dmat_axes: nisa.dma_transpose(turned, x, axes=(0, 1))
        page_dmat_dtype: nisa.dma_transpose(tile((64, 128), nl.bfloat16), x)
        page_dmat_dst_shape: nisa.dma_transpose(c, x)
        page_copy_gpsimd_psum: nisa.tensor_copy(ps, a);;nisa.tensor_copy(c, ps, engine=nisa.engine.gpsimd)
        page_copy_tensor_engine: nisa.tensor_copy(c, a, engine=nisa.engine.tensor)
        page_dma_engine_vector: nisa.dma_copy(c, x, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.vector)
        page_dma_engine_alone: nisa.dma_copy(c, x, engine=nisa.engine.sync)
        page_reg_store_wide: r = nisa.register_alloc(1);;nisa.register_store(tile((1, 2), nl.int32), r)
        page_reg_move_float: r = nisa.register_alloc();;nisa.register_move(r, 1.5)
        page_sendrecv_lnc1: nisa.sendrecv(a, c, 0, 0, 0)
        page_nzc_offset_float: nisa.nonzero_with_count(tile((128, 65), nl.int32), i, index_offset=0.5)
        page_fi8_vals_7: nisa.nc_find_index8(tile((128, 8), nl.uint32), a, b[:, 0:7])
        page_mr8_dst_count: nisa.nc_match_replace8(c[:, 0:32], a, b[:, 0:8], 0.0)
        page_memset_tile: nisa.memset(c, col)
        page_two_offsets: nisa.dma_copy(c, x.ap([[64, 128], [1, 64]], scalar_offset=nisa.register_alloc(0), vector_offset=tile((128, 1), nl.uint32)))
        page_vector_on_chip: nisa.tensor_copy(c, a.ap([[64, 128], [1, 64]], vector_offset=tile((128, 1), nl.uint32)))
        page_nct_flattened_dst: t = tile((128, 2, 32), nl.float32);;nisa.nc_transpose(pm, t)
    """),
    *rows("pages", ACCEPTED, """
        page_mm_tile_quarter: nisa.nc_matmul(pm[0:32, :], h[32:64, 0:32], h[32:64, :], tile_position=(32, 0), tile_size=(32, 32))
        page_mm_half: nisa.nc_matmul(pm, h[64:128, :], h[64:128, :], tile_position=(64, 0), tile_size=(64, 64))
        page_mm_double: t = tile((128, 2, 64), nl.float8_e4m3);;nisa.nc_matmul(pm, t, t, perf_mode=nisa.matmul_perf_mode.double_row)
        page_mm_mixed_fp8: nisa.nc_matmul(pm, tile((128, 64), nl.float8_e4m3), tile((128, 64), nl.float8_e5m2))
        page_mm_fp8_bf16: nisa.nc_matmul(pm, tile((128, 64), nl.float8_e4m3), h)
        page_mm_f16_bf16: nisa.nc_matmul(pm, tile((128, 64), nl.float16), h)
        page_mm_transpose: t = nl.ndarray((64, 128), nl.bfloat16, buffer=nl.psum);;nisa.nc_matmul(t, h, tile((128, 128), nl.bfloat16), is_transpose=True)
        page_nct_vec_sbuf: nisa.nc_transpose(c[0:32, 0:32], a[0:32, 0:32], engine=nisa.engine.vector)
        page_nct_vec_psum: nisa.tensor_copy(ps, a);;nisa.nc_transpose(c[0:32, 0:32], ps[0:32, 0:32], engine=nisa.engine.vector)
        page_dmat_3d: q = nl.ndarray((16, 4, 64), nl.bfloat16, buffer=nl.private_hbm);;nisa.dma_copy(q, h.ap([[64, 64], [1, 64]]));;nisa.dma_transpose(nl.ndarray((64, 4, 16), nl.bfloat16), q, axes=(2, 1, 0))
        page_dmat_4d: q = nl.ndarray((4, 2, 8, 64), nl.bfloat16, buffer=nl.private_hbm);;nisa.dma_copy(q, h.ap([[64, 64], [1, 64]]));;nisa.dma_transpose(nl.ndarray((64, 2, 8, 4), nl.bfloat16), q, axes=(3, 1, 2, 0))
        page_ts_scalar_multiply_add: nisa.tensor_scalar(c, a, nl.multiply, 2.0, op1=nl.add, operand1=1.0, engine=nisa.engine.scalar)
        page_ts_scalar_add: nisa.tensor_scalar(c, a, nl.add, 1.0, engine=nisa.engine.scalar)
        page_ts_operand_psum: pc = nl.ndarray((128, 1), nl.float32, buffer=nl.psum);;nisa.tensor_copy(pc, col);;nisa.tensor_scalar(c, a, nl.add, pc)
        page_ts_reverse: nisa.tensor_scalar(c, a, nl.subtract, 1.0, reverse0=True)
        page_ts_abs_none: nisa.tensor_scalar(c, a, nl.abs, None)
        page_ts_rsqrt_gpsimd: nisa.tensor_scalar(c, a, nl.rsqrt, None, engine=nisa.engine.gpsimd)
        page_ts_to_bf16: nisa.tensor_scalar(h, i, nl.multiply, 0.5)
        page_tt_psum_left: nisa.tensor_copy(ps, a);;nisa.tensor_tensor(c, ps, b, nl.add)
        page_tt_psum_dst: nisa.tensor_tensor(ps, a, b, nl.add)
        page_tt_int_vector: nisa.tensor_tensor(i, i, i, nl.add, engine=nisa.engine.vector)
        page_tt_compare_u8: nisa.tensor_tensor(u8, a, b, nl.greater)
        page_tr_two_axes: nisa.tensor_reduce(col, nl.add, a.reshape((128, 8, 8)), axis=(1, 2))
        page_tr_psum: nisa.tensor_copy(ps, a);;nisa.tensor_reduce(col, nl.add, ps, axis=1, negate=True)
        page_tr_subtract: nisa.tensor_reduce(col, nl.subtract, a, axis=1)
        page_tpr: nisa.tensor_partition_reduce(c[0:1, :], nl.maximum, a)
        page_act_bias_psum: pc = nl.ndarray((128, 1), nl.float32, buffer=nl.psum);;nisa.tensor_copy(pc, col);;nisa.activation(c, nl.exp, a, bias=pc, scale=pc)
        page_act_shapes: nisa.activation(c.reshape((128, 8, 8)), nl.exp, a)
        page_act_int: nisa.activation(c, nl.copy, i)
        page_act_reset_only: nisa.activation(c, nl.exp, a, reduce_cmd=nisa.reduce_cmd.reset)
        page_act_res_psum: pc = nl.ndarray((128, 1), nl.float32, buffer=nl.psum);;nisa.activation(c, nl.exp, a, reduce_op=nl.add, reduce_res=pc, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        page_iota_4d: nisa.iota(i.reshape((128, 2, 2, 4, 4)), [[32, 2], [16, 2], [4, 4], [1, 4]], offset=3, channel_multiplier=64)
        page_afs_less: nisa.affine_select(h, [[-1, 64]], 1, a, -1.0, cmp_op=nl.greater_equal)
        page_lg_two: nisa.local_gather(c[:, 0:32], a, tile((128, 1), nl.uint16), num_elem_per_idx=2)
        page_bn_psum: nisa.tensor_copy(ps, a);;nisa.bn_stats(c[:, 0:6], ps)
        page_bn_aggr: nisa.bn_aggr(c[:, 0:2], a[:, 0:12])
        page_scan_psum: nisa.tensor_copy(ps, a);;nisa.tensor_tensor_scan(c, ps, b, col, nl.multiply, nl.add)
        page_scan_max: nisa.tensor_tensor_scan(c, a, b, 0.0, nl.maximum, nl.subtract, reverse1=True)
        page_shuffle_keep: nisa.nc_stream_shuffle(a, a, [255] * 31 + [0])
        page_shuffle_quadrants: nisa.nc_stream_shuffle(c[0:32, :], a[96:128, :], list(range(32)))
        page_rng: nisa.rng(tile((128, 64), nl.int8), engine=nisa.engine.gpsimd)
        page_dropout: nisa.dropout(h, h, narrow)
        page_state: nisa.rand_set_state(tile((128, 6), nl.uint32));;nisa.rand_get_state(tile((128, 6), nl.uint32))
        page_max8_3d: nisa.max8(c[:, 0:8], a.reshape((128, 8, 8)))
        page_max8_bf16: nisa.max8(h[:, 0:8], h)
        page_stt_psum: nisa.tensor_copy(ps, a);;nisa.scalar_tensor_tensor(h, ps, nl.subtract, col, nl.multiply, b, reverse0=True)
        page_tsr: nisa.tensor_scalar_reduce(c, a, nl.multiply, col, nl.maximum, tile((128, 1), nl.float32))
        page_tsr_negate: nisa.tensor_scalar_reduce(c, a, nl.multiply, 2.0, nl.add, col, reduce_res_negate=True)
        page_tsr_load: nisa.tensor_scalar_reduce(c, a, nl.multiply, 2.0, nl.add, col, reduce_cmd=nisa.reduce_cmd.load_reduce, reduce_init=1.0)
        page_tsr_keep: nisa.tensor_scalar_reduce(c, a, nl.multiply, 2.0, nl.add)
        page_dmac_hbm: nisa.dma_compute(c, [x, y, a], nl.add, scales=[1.0, 1.0, 1.0])
        page_dmac_cast: nisa.dma_compute(h, [x, i], nl.add)
        page_dma_cast: nisa.dma_copy(h, x)
        page_dma_hwdge: nisa.dma_copy(c, x, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.scalar)
        page_dma_shape: nisa.dma_copy(c, x.reshape((8192,)).reshape((128, 64)))
        page_sel_psum: nisa.tensor_copy(ps, a);;nisa.select_reduce(c, tile((128, 64), nl.int16), ps, col, reduce_res=narrow, reduce_cmd=nisa.reduce_cmd.reset_reduce, reverse_pred=True)
        page_rs: nisa.range_select(c, h, nl.greater_equal, nl.less, col, col, reduce_res=col, range_start=64, on_false_value=-3.4028235e+38)
        page_rs_default: nisa.range_select(c, a, nl.equal, nl.less, col, col)
        page_tcp_u16: nisa.tensor_copy_predicated(c, a, tile((128, 64), nl.uint16))
        page_tcp_psum: nisa.tensor_copy(ps, a);;nisa.tensor_copy_predicated(c, ps, u8)
        page_memset_fp8: nisa.memset(tile((128, 64), nl.float8_e5m2), 1.0, engine=nisa.engine.gpsimd)
        page_copy_scalar: nisa.tensor_copy(h, a, engine=nisa.engine.scalar)
        page_copy_psum_vector: nisa.tensor_copy(ps, a, engine=nisa.engine.vector)
        page_reg: r = nisa.register_alloc(3);;s = nisa.register_alloc();;nisa.register_move(s, r);;t = tile((1, 1), nl.int32);;nisa.register_store(t, s);;nisa.register_load(r, t)
        page_nzc: nisa.nonzero_with_count(tile((128, 65), nl.int32), a, index_offset=5, padding_val=-2)
        page_fi8_u16: nisa.nc_find_index8(tile((128, 8), nl.uint16), h, b[:, 0:8])
        page_mr8: nisa.nc_match_replace8(c, a, b[:, 0:8], 0.0, dst_idx=tile((128, 8), nl.uint16))
        page_ap_cast: t = tile((128, 64), nl.int32);;nisa.tensor_copy(tile((128, 128), nl.bfloat16), t.ap([[128, 128], [1, 128]], dtype=nl.bfloat16))
        page_scatter: q = nl.ndarray((128, 64), nl.float32, buffer=nl.private_hbm);;nisa.dma_copy(q, x);;nisa.dma_copy(q.ap([[64, 128], [1, 64]], vector_offset=tile((128, 1), nl.uint32), indirect_dim=0), a, oob_mode=nisa.oob_mode.skip)
        page_seqb: nisa.sequence_bounds(tile((1, 2, 64), nl.int32), tile((1, 64), nl.int32))
        page_nct_flattened: t = tile((128, 2, 32), nl.float32);;nisa.nc_transpose(pt, t)
        page_reg_alloc_tile: nisa.register_alloc(tile((1, 1), nl.int32))
    """),
    *rows("pages", REFUSED, """
        page_sendrecv_hbm: nisa.sendrecv(x, y, 1, 1, 0)
        page_sendrecv_type: nisa.sendrecv(a, h, 1, 1, 0)
        page_sendrecv_rank: nisa.sendrecv(a, c, 2, 2, 0)
    """, lnc=2),
    *rows("pages", ACCEPTED, """
        page_sendrecv: nisa.sendrecv(a, c, 1 - nl.program_id(0), 1 - nl.program_id(0), 0)
    """, lnc=2),
    *rows("pages", REFUSED, """
        page_exp_init_idle: nisa.exponential(c, a, reduce_init=1.0)
        page_exp_max_bf16: nisa.exponential(c, a, max_value=narrow)
        page_qmx_dst_fp4: nisa.quantize_mx(tile((128, 16), nl.float4_e2m1fn_x4), h, tile((128, 16), nl.uint8))
        page_topk_n_large: nisa.topk(tile((128, 8), nl.bfloat16), tile((128, 8), nl.uint32), h, 1025)
        page_act2_two_types: nisa.activate2(c, nl.exp, a, col, narrow, nl.multiply, nl.subtract)
        page_rand2_bf16: nisa.rand2(c, 0.0, narrow)
    """, "trn3"),
    *rows("pages", ACCEPTED, """
        page_mm_bf16_trn3: t = nl.ndarray((64, 64), nl.bfloat16, buffer=nl.psum);;nisa.nc_matmul(t, h, h)
        page_mm_wide_trn3: t = nl.ndarray((64, 2048), nl.float32, buffer=nl.psum);;nisa.nc_matmul(t, h, tile((128, 2048), nl.bfloat16))
        page_act2_all: nisa.activate2(c, nl.exp, a, 1.0, 0.0, nl.bypass, nl.bypass)
        page_exp: nisa.exponential(c, a, max_value=col, reduce_res=narrow, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        page_exp_load: nisa.exponential(c, a, reduce_res=col, reduce_cmd=nisa.reduce_cmd.load_reduce, reduce_init=1.0)
        page_rand2: nisa.rand2(tile((128, 64), nl.int16), 0.0, 10.0)
        page_qmx: nisa.quantize_mx(tile((128, 16), nl.float8_e5m2_x4), h, tile((128, 16), nl.float8_e8m0fnu))
        page_act2_number_and_tile: nisa.activate2(c, nl.exp, a, 2.0, col, nl.multiply, nl.subtract)
        page_rand2_columns: nisa.rand2(c, 0.0, col)
    """, "trn3"),
    *rows("gaps", REFUSED, """
        len_of_tile: range(len(a))
        len_of_argument: nl.ndarray((len(x), 4), nl.float32)
        constant_of_list: nl.shared_constant([[1.0, 2.0]])
        constant_float64: nl.shared_constant(np.identity(64))
        ap_below_start: nisa.tensor_copy(c, a.ap([[64, 128], [-1, 64]], offset=62))
    """),
    *rows("gaps", NOTED, """
        address_odd: nisa.memset(nl.ndarray((128, 64), nl.bfloat16, address=(0, 1001)), 0.0)
        address_uneven: nisa.memset(nl.ndarray((128, 64), nl.float32, address=(0, 1002)), 0.0)
    """),
    *rows("gaps", ACCEPTED, """
        address_even: nisa.memset(nl.ndarray((128, 64), nl.bfloat16, address=(0, 1002)), 0.0)
        ap_backwards: nisa.tensor_copy(c, a.ap([[64, 128], [-1, 64]], offset=63))
        ap_backwards_hbm: nisa.dma_copy(c, x.ap([[64, 128], [-1, 64]], offset=63))
        index_true: nisa.tensor_copy(c[:, 0:1], a[:, True])
        constant_int8: nl.shared_constant(np.identity(64, dtype=np.int8))
        constant_typed: nl.shared_constant(np.identity(64), dtype=nl.float32)
    """),
    *[
        Probe(name, "collectives", expected, RANKS + line)
        for name, expected, line in (
            ("reduce_ranks", ACCEPTED, "ncc.all_reduce([s], [d], g, nl.add)"),
            ("reduce_numpy", REFUSED, "ncc.all_reduce([s], [d], g, np.add)"),
            ("reduce_priority", REFUSED, "ncc.all_reduce([s], [d], g, nl.add, priority=1)"),
            ("exchange_sbuf", REFUSED, "ncc.all_to_all([a], [c], g, 0)"),
            ("permute_sbuf", REFUSED, "ncc.collective_permute([a], [c], [(0, 1), (1, 0)])"),
            ("permute_two", REFUSED, "ncc.collective_permute([s, s], [d, d], [(0, 1), (1, 0)])"),
            ("ring_channel_1", REFUSED, "ncc.collective_permute_implicit([[s]], [[d]], g, channel_ids=[1])"),
            ("ring_5_channels", REFUSED, "ncc.collective_permute_implicit([[s]] * 5, [[d]] * 5, g, channel_ids=list(range(5)))"),
            ("ring_2_channels", ACCEPTED, "ncc.collective_permute_implicit([[s], [s]], [[d], [d]], g, channel_ids=[0, 1])"),
        )
    ],
]  # fmt: skip


def answer(probe: Probe) -> tuple[str, str]:
    """Return what the judge says of a probe: refused, noted or accepted, and its words."""
    body = textwrap.indent(probe.lines.replace(";;", "\n"), "    ")
    try:
        program = trace(
            HEAD + body + TAIL, [TensorSpec((128, 64), "float32")] * 2, entry="kernel", api="nki", chip=probe.chip,
            lnc=probe.lnc, grid=probe.grid,
        )  # fmt: skip
    except KernelFailure as failure:
        return REFUSED, f"{failure.message} ({failure.hint})"
    for finding in verify(program):
        return REFUSED, f"{finding.message} ({finding.hint})"
    notes = [notice.text for notice in program.notices]
    return (NOTED, notes[0]) if notes else (ACCEPTED, "")


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_a_probe_has_the_expected_answer_and_a_refusal_says_what_to_write(probe: Probe) -> None:
    """Print the probe's row: ``-s`` shows the whole table."""
    got, words = answer(probe)
    sys.stdout.write(f"{probe.name:22} {probe.rule:4} {probe.expected:9} {got:9} {words[:140]}\n")
    assert got == probe.expected, words
    assert got != REFUSED or not words.endswith("()") or re.search(": (use|pass|give|declare) ", words), words


@pytest.mark.parametrize(
    ("refused", "advised", "instead"),
    [
        ("nisa.tensor_copy(c, a ** 2)", "nl.square", "nisa.tensor_copy(c, nl.square(a))"),
        ("nisa.tensor_copy(c, a ** b)", "nl.power for two tiles", "nisa.tensor_copy(c, nl.power(a, b))"),
        ("nisa.tensor_copy(c, a / 3)", "1 / number", "nisa.tensor_copy(c, nl.multiply(a, 1 / 3))"),
        ("nisa.tensor_copy(i, i // 4)", "nl.right_shift", "nisa.tensor_copy(i, nl.right_shift(i, 2))"),
        ("nisa.tensor_copy(i, i % 4)", "nl.bitwise_and", "nisa.tensor_copy(i, nl.bitwise_and(i, 3))"),
        ("nisa.tensor_copy(c, -a)", "use nl.negative", "nisa.tensor_copy(c, nl.negative(a))"),
        ("nisa.tensor_copy(c, +a)", "use the tile itself", "nisa.tensor_copy(c, a)"),
        ("nisa.tensor_copy(pm, a @ b)", "use nisa.nc_matmul", "nisa.nc_matmul(pm, a, b)"),
        ("nl.true_divide(a, b)", "nl.reciprocal", "nl.multiply(a, nl.reciprocal(b))"),
        ("nl.div(a, b)", "nl.reciprocal", "nl.multiply(a, nl.reciprocal(b))"),
        ("nl.remainder(i, 4)", "nl.bitwise_and", "nl.bitwise_and(i, 3)"),
        ("nl.floor_divide(i, 4)", "nl.right_shift", "nl.right_shift(i, 2)"),
        ("nisa.tensor_tensor(c, a, b, np.divide)", "nisa.reciprocal", "nisa.reciprocal(c, b);;nisa.tensor_tensor(c, a, c, nl.multiply)"),
        ("nisa.activation(c, np.absolute, a)", "write nl.abs", "nisa.activation(c, nl.abs, a)"),
        ("nisa.activation(c, np.negative, a)", "scale=-1.0 with nl.copy", "nisa.activation(c, nl.copy, a, scale=-1.0)"),
        ("nisa.activation(c, np.logical_not, a)", "nl.equal to 0", "nisa.tensor_scalar(c, a, nl.equal, 0.0)"),
        ("nisa.tensor_scalar(c, col, nl.add, 1.0)", "tile.broadcast", "nisa.tensor_scalar(c, col.broadcast(1, 64), nl.add, 1.0)"),
        ("nisa.activation(c, nl.divide, a)", "reciprocal", "nisa.activation(c, nl.reciprocal, a)"),
    ],
)  # fmt: skip
def test_what_a_refusal_advises_is_accepted(refused: str, advised: str, instead: str) -> None:
    """No advice names the refused function, or a function that no engine has."""
    got, words = answer(Probe("", "", REFUSED, refused))
    assert got == REFUSED and advised in words and refused.partition("(")[0] not in words.partition(" (")[2]
    assert not re.search(
        r"(nl\.|nearest: |[ ,])(divide|mod|fmod|negative,|logical_not|invert,|floor)\b", words.partition(" (")[2]
    )
    assert answer(Probe("", "", ACCEPTED, instead)) == (ACCEPTED, "")
