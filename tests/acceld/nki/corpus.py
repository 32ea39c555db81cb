"""Kernels the documentation refuses, each beside one that just keeps the rule, for both API generations.

A pair is (rule, lines that are legal, lines that are not); ``;;`` separates lines. They stand in the middle of a
kernel that has loaded two tiles. A refusal must name the rule, at the last line or the one marked ``#!``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from acceld.errors import UsageError
from acceld.nki.errors import KernelFailure
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.verify.verifier import verify


@dataclass(frozen=True, slots=True)
class Pair:
    """One rule: lines that keep it and lines that break it."""

    rule: str
    legal: str
    refused: str
    chip: str = ""
    refused_chip: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one kernel of the corpus."""

    api: str
    pair: Pair
    legal: bool
    found: str
    """The rule of the first finding, empty where there is none."""
    line: int
    wanted_line: int
    message: str

    @property
    def right(self) -> bool:
        """Return True if a legal kernel passed, or a refused one was refused for its reason at its line."""
        return not self.found if self.legal else (self.found, self.line) == (self.pair.rule, self.wanted_line)


LEGACY_HEAD = """\
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

@nki.jit
def kernel(x, y, w, h):
    out = nl.ndarray((256, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.load(x[0:128, 0:512])
    b = nl.load(y[0:128, 0:512])
    ip, jf = nl.arange(128)[:, None], nl.arange(512)[None, :]
"""
LEGACY_TAIL = """\
    nl.store(out[0:128, 0:512], a)
    return out
"""
CURRENT_HEAD = """\
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x, y, w, h):
    out = nl.ndarray((256, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    b = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    r = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    p = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.dma_copy(dst=a, src=x[0:128, 0:512])
    nisa.dma_copy(dst=b, src=y[0:128, 0:512])
"""
CURRENT_TAIL = """\
    nisa.dma_copy(dst=out[0:128, 0:512], src=a)
    return out
"""

LEGACY = (
    Pair("partition_limit", "t = nl.load(x[0:128, 0:8])", "t = nl.load(x[0:200, 0:8])"),
    Pair(
        "partition_limit",
        "t = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)",
        "t = nl.ndarray((129, 8), dtype=nl.float32, buffer=nl.sbuf)",
    ),
    Pair(
        "partition_limit",
        "t = nisa.memset((128, 4), 0, dtype=nl.float32)",
        "t = nisa.memset((192, 4), 0, dtype=nl.float32)",
    ),
    Pair(
        "partition_limit",
        "t = nl.zeros((2, nl.par_dim(128), 8), dtype=nl.float32)",
        "t = nl.zeros((2, nl.par_dim(160), 8), dtype=nl.float32)",
    ),
    Pair(
        "insufficient_rank",
        "t = nl.ndarray((8, 1), dtype=nl.float32, buffer=nl.sbuf)",
        "t = nl.ndarray((8,), dtype=nl.float32, buffer=nl.sbuf)",
    ),
    Pair("address_space", "t = nl.add(a, b)", "t = nl.add(a, y[0:128, 0:512])"),
    Pair("address_space", "t = nl.load(x[128:256, 0:8])", "t = nl.load(a)"),
    Pair("address_space", "nl.store(out[128:256, 0:512], b)", "nl.store(b, a)"),
    Pair(
        "address_space",
        "out2 = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.hbm);;nl.store(out2[0:8, 0:8], a[0:8, 0:8])",
        "out2 = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.hbm);;out2[0:8, 0:8] = a[0:8, 0:8]",
    ),
    Pair(
        "address_space",
        "nisa.dma_copy(dst=out[0:128, 0:512], src=a)",
        "p = nisa.nc_matmul(a[:, 0:128], b);;nisa.dma_copy(dst=out[0:128, 0:512], src=p)",
    ),
    Pair("out_of_bounds", "t = nl.load(x[0:128, 512:1024])", "t = nl.load(x[0:128, 600:1200])"),
    Pair(
        "out_of_bounds",
        "for i in nl.affine_range(2):;;    nl.store(out[i * 128 + ip, jf], nl.load(x[i * 128 + ip, jf]))",
        "for i in nl.affine_range(3):;;    t = nl.load(x[i * 128 + ip, jf])",
    ),
    Pair(
        "out_of_bounds",
        "t = nl.load(x[200 + ip, jf], mask=200 + ip < 256)",
        "t = nl.load(x[200 + ip, jf], mask=200 + ip < 300)",
    ),
    Pair("out_of_bounds", "nl.store(out[128 + ip, 512 + jf], a)", "nl.store(out[129 + ip, 512 + jf], a)"),
    Pair("mixed_indexing", "t = nl.load(x[ip, jf])", "t = nl.load(x[ip, 0:512])"),
    Pair("mixed_indexing", "t = nl.load(x[ip, 5])", "t = nl.load(x[nl.ds(0, 128), jf])"),
    Pair("index_rank", "t = nl.load(x[0:128, 0:4])", "t = nl.load(x[0:128, 0:4, 0:2])"),
    Pair(
        "non_affine_index",
        "t = nl.load(x[ip, 2 * nl.arange(8)[None, :]])",
        "t = nl.load(x[ip, nl.arange(8)[None, :] * nl.arange(8)[None, :]])",
    ),
    Pair("matmul_shape", "p = nisa.nc_matmul(a[:, 0:128], b)", "p = nisa.nc_matmul(a[:, 0:256], b)"),
    Pair(
        "matmul_shape",
        "p = nisa.nc_matmul(a[:, 0:128], b)",
        "t = nl.load(y[0:128, 0:1024]);;p = nisa.nc_matmul(a[:, 0:128], t)",
    ),
    Pair(
        "partition_mismatch", "p = nisa.nc_matmul(a[0:64, 0:128], b[0:64, :])", "p = nisa.nc_matmul(a[0:64, 0:128], b)"
    ),
    Pair(
        "partition_mismatch",
        "t = nisa.tensor_tensor(a[0:64, :], b[0:64, :], np.add)",
        "t = nisa.tensor_tensor(a[0:64, :], b, np.add)",
    ),
    Pair("partition_mismatch", "t = nl.multiply(a, b)", "t = nl.multiply(a, b[0:32, :])"),
    Pair(
        "dtype",
        "t = nl.load(h);;p = nisa.nc_matmul(t[:, 0:128], t)",
        "t = nl.load(w);;p = nisa.nc_matmul(t[:, 0:64], t)",
    ),
    Pair(
        "dtype",
        "t = nl.load(h);;p = nisa.nc_matmul(t[:, 0:128], t)",
        "t = nl.load(h);;p = nisa.nc_matmul(t[:, 0:128], b)",
    ),
    Pair(
        "dtype",
        "t = nl.ndarray((128, 8), dtype=nl.float16, buffer=nl.sbuf)",
        "t = nl.ndarray((128, 8), dtype=np.float64, buffer=nl.sbuf)",
    ),
    Pair("dtype", "t = nl.load(w);;u = nl.bitwise_and(t, t)", "u = nl.bitwise_and(a, b)"),
    Pair("dtype", "t = nl.load(w);;u = nl.left_shift(t, 2)", "u = nl.left_shift(a, 2)"),
    Pair("transpose_shape", "p = nisa.nc_transpose(a[:, 0:128])", "p = nisa.nc_transpose(a[:, 0:256])"),
    Pair(
        "transpose_shape",
        "t = nisa.nc_transpose(a[0:32, 0:32], engine=nisa.vector_engine)",
        "t = nisa.nc_transpose(a[0:32, 0:256], engine=nisa.vector_engine)",
    ),
    Pair("reduce_axis", "t = nisa.tensor_reduce(np.add, a, axis=(1,))", "t = nisa.tensor_reduce(np.add, a, axis=(0,))"),
    Pair("reduce_axis", "t = nl.max(a, axis=1)", "t = nl.max(a, axis=[0])"),
    Pair("free_size", "t = nisa.bn_stats(a)", "t = nisa.bn_stats(nl.load(x[0:128, 0:1024]))"),
    Pair("free_size", "t = nisa.max8(src=a)", "t = nisa.max8(src=a[:, 0:4])"),
    Pair("alu_op", "t = nisa.tensor_tensor(a, b, np.subtract)", "t = nisa.tensor_tensor(a, b, np.hypot)"),
    Pair("activation_function", "t = nisa.activation(np.tanh, a)", "t = nisa.activation(np.hypot, a)"),
    Pair(
        "engine",
        "t = nisa.tensor_tensor(a, b, np.add, engine=nisa.vector_engine)",
        "t = nisa.tensor_tensor(a, b, np.add, engine=nisa.tensor_engine)",
    ),
    Pair(
        "local_scope",
        "t = nl.ndarray((128, 512), dtype=nl.float32);;for i in nl.affine_range(1):;;    t[...] = nl.copy(a);;u = nl.add(t, b)",
        "for i in nl.affine_range(2):;;    t = nl.copy(a);;u = nl.add(t, b)",
    ),
    Pair(
        "local_scope",
        "for i in nl.affine_range(2):;;    t = nl.load(x[i * 128 + ip, jf])",
        "for i in nl.affine_range(2):;;    pass;;t = nl.load(x[i * 128 + ip, jf])",
    ),
    Pair(
        "output_dependency",
        "t = nl.ndarray((128, 2), dtype=nl.float32);;for i in nl.affine_range(2):;;    t[:, i] = nl.copy(a[:, i])",
        "t = nl.ndarray((128, 2), dtype=nl.float32);;for i in nl.affine_range(2):;;    t[:, 0] = nl.copy(a[:, i])",
    ),
    Pair(
        "output_dependency",
        "for i in nl.sequential_range(2):;;    nl.store(out[0:128, 0:512], b)",
        "for i in nl.affine_range(2):;;    nl.store(out[0:128, 0:512], b)",
    ),
    Pair(
        "output_dependency",
        "p = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum);;for i in nl.affine_range(2):;;    p[...] += nisa.nc_matmul(a[:, 0:128], b)",
        "p = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum);;for i in nl.affine_range(2):;;    p[...] = nisa.nc_matmul(a[:, 0:128], b)",
    ),
    Pair(
        "loop_exit",
        "for i in nl.static_range(4):;;    if i == 2:;;        break",
        "for i in nl.affine_range(4):  #!;;    t = nl.load(x[ip, jf]);;    break",
    ),
    Pair("control_flow", "if a.shape[0] == 128:;;    t = nl.copy(a)", "if a:  #!;;    t = nl.copy(a)"),
    Pair("control_flow", "t = nl.load(x[ip, jf], mask=ip < 100)", "if ip < 100:  #!;;    t = nl.copy(a)"),
    Pair(
        "symbolic_index",
        "for i in nl.affine_range(4):;;    for j in nl.affine_range(4):;;        pass",
        "for i in nl.affine_range(4):;;    for j in nl.affine_range(i):  #!;;        pass",
    ),
    Pair("mask_form", "t = nl.copy(a, mask=ip < 100)", "t = nl.copy(a, mask=b)"),
    Pair("mask_form", "t = nl.copy(a, mask=(ip < 100) & (jf < 50))", "t = nl.copy(a, mask=(ip < 100) | (jf < 50))"),
    Pair("shape", "t = nl.add(a, b[:, 0:1])", "t = nl.add(a, b[:, 0:100])"),
    Pair(
        "shape",
        "t = nl.ndarray((128, 64), dtype=nl.float32);;t[...] = a[:, 0:64]",
        "t = nl.ndarray((128, 64), dtype=nl.float32);;t[...] = a[:, 0:60]",
    ),
    Pair("shape", "t = a.reshape((128, 8, 64))", "t = a.reshape((128, 8, 60))"),
    Pair("operand_type", "t = nisa.activation(np.exp, a)", "t = nisa.activation(np.exp, 3.0)"),
    Pair(
        "operand_shape", "t = nisa.tensor_scalar(a, np.add, b[:, 0:1])", "t = nisa.tensor_scalar(a, np.add, b[:, 0:2])"
    ),
    Pair(
        "operand_shape",
        "t = nisa.activation(np.exp, a, bias=b[:, 0:1])",
        "t = nisa.activation(np.exp, a, bias=b[0:64, 0:1])",
    ),
    Pair("start_partition", "t = nl.copy(a[32:64, :])", "t = nl.copy(a[16:48, :])"),
    Pair("start_partition", "t = nl.copy(a[64:128, :])", "t = nl.copy(a[32:96, :])"),
    Pair("partition_stride", "t = nl.copy(a[0:64, :])", "t = nl.copy(a[0:128:2, :])"),
    Pair(
        "undefined_read",
        "t = nl.zeros((128, 512), dtype=nl.float32);;u = nl.add(t, a)",
        "t = nl.ndarray((128, 512), dtype=nl.float32);;u = nl.add(t, a)",
    ),
    Pair(
        "op_mix",
        "t = nl.load(w);;u = nisa.tensor_scalar(t, np.bitwise_and, 7, op1=np.left_shift, operand1=2)",
        "t = nl.load(w);;u = nisa.tensor_scalar(t, np.bitwise_and, 7, op1=np.add, operand1=2)",
    ),
    Pair("tile_value", "for k in range(4):;;    t = nl.copy(a[:, k])", "for k in a:  #!;;    t = nl.copy(k)"),
    Pair(
        "psum_operands",
        "p = nisa.nc_matmul(a[:, 0:128], b);;t = nisa.tensor_tensor(p, a, np.add)",
        "p = nisa.nc_matmul(a[:, 0:128], b);;q = nisa.nc_matmul(b[:, 0:128], a);;t = nisa.tensor_tensor(p, q, np.add)",
    ),
    Pair(
        "hbm_capacity",
        "t = nl.ndarray((1024, 1024), dtype=nl.float32, buffer=nl.hbm)",
        "t = nl.ndarray((1 << 20, 1 << 14), dtype=nl.float32, buffer=nl.hbm)",
    ),
    Pair(
        "allocation",
        "t = nl.ndarray((128, 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=4096))",
        "t = nl.ndarray((128, 512), dtype=nl.float32, buffer=ncc.sbuf.mod_alloc(base_addr=200000))",
    ),
    Pair(
        "psum_bank",
        "t = nl.ndarray((128, 512), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=1))",
        "t = nl.ndarray((128, 600), dtype=nl.float32, buffer=ncc.psum.mod_alloc(base_bank=1))",
    ),
    Pair(
        "chip",
        "s = nl.ndarray((128, 1), dtype=nl.float32);;t = nisa.range_select(on_true_tile=a, comp_op0=np.greater_equal, comp_op1=np.less, bound0=b[:, 0:1], bound1=b[:, 1:2], reduce_res=s)",
        "s = nl.ndarray((128, 1), dtype=nl.float32);;t = nisa.range_select(on_true_tile=a, comp_op0=np.greater_equal, comp_op1=np.less, bound0=b[:, 0:1], bound1=b[:, 1:2], reduce_res=s)",
        "trn2",
        "trn1",
    ),
    Pair(
        "shuffle_mask",
        "t = nl.ndarray((32, 8), dtype=nl.float32);;nisa.nc_stream_shuffle(src=a[0:32, 0:8], dst=t, shuffle_mask=[0] * 32)",
        "t = nl.ndarray((32, 8), dtype=nl.float32);;nisa.nc_stream_shuffle(src=a[0:32, 0:8], dst=t, shuffle_mask=[0] * 31)",
    ),
    Pair(
        "tile_position",
        "p = nisa.nc_matmul(a[0:64, 0:64], b[0:64, :], tile_position=(0, 0), tile_size=(64, 64))",
        "p = nisa.nc_matmul(a[0:32, 0:32], b[0:32, :], tile_position=(0, 0), tile_size=(32, 32))",
    ),
    Pair(
        "transpose_axes",
        "t = nisa.dma_transpose(h[0:128, 0:128])",
        "t = nisa.dma_transpose(h[0:128, 0:128], axes=(0, 2))",
    ),
    Pair(
        "loop_indices",
        "for i in nl.affine_range(2):;;    t = nl.loop_reduce(nl.load(x[i * 128 + ip, jf]), op=np.add, loop_indices=[i])",
        "for i in range(2):;;    t = nl.loop_reduce(nl.load(x[i * 128 + ip, jf]), op=np.add, loop_indices=[i])",
    ),
    Pair(
        "buffer",
        "t = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)",
        "t = nl.ndarray((128, 8), dtype=nl.float32, buffer='sbuffer')",
    ),
    Pair(
        "gather_shape",
        "t = nisa.local_gather(a, nl.zeros((128, 2), dtype=nl.uint16))",
        "t = nisa.local_gather(a, nl.zeros((128, 2), dtype=nl.uint16), num_elem_per_idx=3)",
    ),
    Pair(
        "base_partition",
        "p = nisa.nc_matmul(a[64:128, 0:128], b[64:128, :])",
        "p = nisa.nc_matmul(a[0:64, 0:128], b[64:128, :])",
    ),
    Pair(
        "partition_mismatch",
        "t = nl.gather_flattened(a, nl.zeros((128, 8), dtype=nl.uint32))",
        "t = nl.gather_flattened(a, nl.zeros((64, 8), dtype=nl.uint32))",
    ),
)

CURRENT = (
    Pair("partition_limit", "t = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)", "t = nl.ndarray((129, 8), dtype=nl.float32, buffer=nl.sbuf)"),
    Pair("insufficient_rank", "t = nl.ndarray((8, 1), dtype=nl.float32)", "t = nl.ndarray((8,), dtype=nl.float32)"),
    Pair("address_space", "nisa.tensor_tensor(r, a, b, nl.add)", "nisa.tensor_tensor(r, a, y[0:128, 0:512], nl.add)"),
    Pair("address_space", "nisa.nc_matmul(p, a[:, 0:128], b);;nisa.tensor_copy(r, p);;nisa.dma_copy(dst=out[0:128, 0:512], src=r)", "nisa.nc_matmul(p, a[:, 0:128], b);;nisa.dma_copy(dst=out[0:128, 0:512], src=p)"),
    Pair("address_space", "nisa.nc_matmul(p, a[:, 0:128], b)", "nisa.nc_matmul(r, a[:, 0:128], b)"),
    Pair("address_space", "nisa.nc_matmul(p, a[:, 0:128], b)", "nisa.nc_matmul(p, a[:, 0:128], b);;q = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum);;nisa.nc_matmul(q, p[:, 0:128], b)"),
    Pair("address_space", "nisa.iota(nl.ndarray((128, 8), dtype=nl.int32), pattern=[[1, 8]])", "nisa.iota(nl.ndarray((128, 8), dtype=nl.int32, buffer=nl.psum), pattern=[[1, 8]])"),
    Pair("out_of_bounds", "nisa.dma_copy(dst=r, src=x[0:128, 512:1024])", "nisa.dma_copy(dst=r, src=x[0:128, 600:1112])"),
    Pair("out_of_bounds", "for i in nl.affine_range(2):;;    nisa.dma_copy(dst=r, src=x[nl.ds(128 * i, 128), 0:512])", "for i in nl.affine_range(3):;;    nisa.dma_copy(dst=r, src=x[nl.ds(128 * i, 128), 0:512])"),
    Pair("out_of_bounds", "nisa.tensor_copy(r[:, 0:16], a.slice(1, 8, 24))", "nisa.tensor_copy(r[:, 0:16], a.slice(1, 500, 516))"),
    Pair("index_rank", "nisa.tensor_copy(r, a[:, 0:512])", "nisa.tensor_copy(r, a[:, 0:512, 0])"),
    Pair("index_rank", "t = x.permute((1, 0))", "t = a.permute((1, 0))"),
    Pair("matmul_shape", "nisa.nc_matmul(p, a[:, 0:128], b)", "q = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.psum);;t = nl.zeros((128, 1024), dtype=nl.float32);;nisa.nc_matmul(q, a[:, 0:128], t)"),
    Pair("tile_position", "nisa.nc_matmul(p[0:64], a[0:64, 0:64], b[0:64], tile_position=(0, 0), tile_size=(64, 64))", "nisa.nc_matmul(p[0:64], a[0:64, 0:64], b[0:64], tile_position=(32, 0), tile_size=(64, 64))"),
    Pair("partition_mismatch", "nisa.nc_matmul(p[:, 0:512], a[0:64, 0:128], b[0:64, :])", "nisa.nc_matmul(p[:, 0:512], a[0:64, 0:128], b)"),
    Pair("shape", "nisa.nc_matmul(p, a[:, 0:128], b)", "nisa.nc_matmul(p[:, 0:256], a[:, 0:128], b)"),
    Pair("shape", "nisa.tensor_tensor(r[0:64], a[0:64], b[0:64], nl.add)", "nisa.tensor_tensor(r[0:64], a[0:64], b, nl.add)"),
    Pair("shape", "nisa.tensor_tensor(r, a, b, nl.add)", "nisa.tensor_tensor(r, a, b[:, 0:100], nl.add)"),
    Pair("shape", "nisa.dma_copy(dst=r, src=x[128:256, 0:512])", "nisa.dma_copy(dst=r, src=x[128:256, 0:500])"),
    Pair("shape", "nisa.nc_transpose(p[:, 0:128], a[:, 0:128])", "nisa.nc_transpose(p[:, 0:64], a[:, 0:128])"),
    Pair("shape", "t = a.reshape((128, 8, 64))", "t = a.reshape((128, 8, 60))"),
    Pair("shape", "t = a.expand_dim(1).broadcast(1, 4)", "t = a.broadcast(1, 4)"),
    Pair("shape", "s = nl.ndarray((128, 1), dtype=nl.float32);;nisa.tensor_reduce(s, nl.add, a, axis=1)", "s = nl.ndarray((128, 2), dtype=nl.float32);;nisa.tensor_reduce(s, nl.add, a, axis=1)"),
    Pair("dtype", "t = nl.ndarray((128, 512), dtype=nl.bfloat16);;nisa.dma_copy(dst=t, src=h);;nisa.nc_matmul(p, t[:, 0:128], t)", "t = nl.ndarray((128, 512), dtype=nl.bfloat16);;nisa.dma_copy(dst=t, src=h);;nisa.nc_matmul(p, t[:, 0:128], b)"),
    Pair("dtype", "nisa.nc_matmul(p, a[:, 0:128], b)", "q = nl.ndarray((128, 512), dtype=nl.bfloat16, buffer=nl.psum);;nisa.nc_matmul(q, a[:, 0:128], b)"),
    Pair("dtype", "t = nl.ndarray((128, 8), dtype=nl.float16)", "t = nl.ndarray((128, 8), dtype=np.float64)"),
    Pair("dtype", "t = nl.ndarray((128, 64), dtype=nl.int32);;nisa.dma_copy(dst=t, src=w);;nisa.tensor_scalar(t, t, nl.bitwise_and, 7)", "nisa.tensor_scalar(r, a, nl.bitwise_and, 7)"),
    Pair("dtype", "t = nl.zeros((32, 1), dtype=nl.int32);;nisa.dma_copy(dst=r[0:32], src=x.ap([[1024, 32], [1, 512]], vector_offset=t))", "t = nl.zeros((32, 1), dtype=nl.float32);;nisa.dma_copy(dst=r[0:32], src=x.ap([[1024, 32], [1, 512]], vector_offset=t))"),
    Pair("transpose_shape", "nisa.nc_transpose(r[0:32, 0:32], a[0:32, 0:32], engine=nisa.vector_engine)", "nisa.nc_transpose(r[0:64, 0:64], a[0:64, 0:64])"),
    Pair("reduce_axis", "s = nl.ndarray((128, 1), dtype=nl.float32);;nisa.tensor_reduce(s, nl.add, a, axis=1)", "s = nl.ndarray((1, 512), dtype=nl.float32);;nisa.tensor_reduce(s, nl.add, a, axis=0)"),
    Pair("free_size", "s = nl.ndarray((128, 6), dtype=nl.float32);;nisa.bn_stats(s, a)", "t = nl.zeros((128, 1024), dtype=nl.float32);;s = nl.ndarray((128, 6), dtype=nl.float32);;nisa.bn_stats(s, t)"),
    Pair("free_size", "s = nl.ndarray((128, 8), dtype=nl.float32);;nisa.max8(s, a)", "s = nl.ndarray((128, 8), dtype=nl.float32);;nisa.max8(s, a[:, 0:4])"),
    Pair("operand_shape", "s = nl.ndarray((128, 8), dtype=nl.float32);;nisa.max8(s, a)", "s = nl.ndarray((128, 4), dtype=nl.float32);;nisa.max8(s, a)"),
    Pair("operand_shape", "nisa.tensor_scalar(r, a, nl.add, b[:, 0:1])", "nisa.tensor_scalar(r, a, nl.add, b[:, 0:2])"),
    Pair("operand_type", "nisa.activation(r, nl.exp, a)", "nisa.activation(r, nl.exp, 3.0)"),
    Pair("operand_type", "nisa.memset(r, 0.0)", "nisa.memset(r, a)"),
    Pair("alu_op", "nisa.tensor_tensor(r, a, b, nl.subtract)", "nisa.tensor_tensor(r, a, b, np.hypot)"),
    Pair("activation_function", "nisa.activation(r, nl.tanh, a)", "nisa.activation(r, nl.subtract, a)"),
    Pair("engine", "nisa.tensor_tensor(r, a, b, nl.add, engine=nisa.vector_engine)", "nisa.tensor_tensor(r, a, b, nl.add, engine=nisa.scalar_engine)"),
    Pair("engine", "nisa.tensor_scalar(r, a, nl.multiply, 2.0, op1=nl.add, operand1=1.0, engine=nisa.scalar_engine)", "nisa.tensor_scalar(r, a, nl.maximum, 2.0, engine=nisa.scalar_engine)"),
    Pair("engine", "nisa.tensor_copy(r, a, engine=nisa.scalar_engine)", "nisa.tensor_copy(r, a, engine=nisa.tensor_engine)"),
    Pair("start_partition", "nisa.tensor_copy(r[0:32], a[32:64])", "nisa.tensor_copy(r[0:32], a[16:48])"),
    Pair("start_partition", "nisa.tensor_copy(r[0:64], a[64:128])", "nisa.tensor_copy(r[0:64], a[32:96])"),
    Pair("partition_stride", "nisa.tensor_copy(r[0:64], a[0:64])", "nisa.tensor_copy(r[0:64], a[0:128:2])"),
    Pair("undefined_read", "nisa.memset(r, 0.0);;nisa.tensor_tensor(r, r, a, nl.add)", "nisa.tensor_tensor(r, r, a, nl.add)"),
    Pair("op_mix", "t = nl.zeros((128, 8), dtype=nl.int32);;nisa.tensor_scalar(t, t, nl.bitwise_and, 7, op1=nl.left_shift, operand1=2)", "t = nl.zeros((128, 8), dtype=nl.int32);;nisa.tensor_scalar(t, t, nl.bitwise_and, 7, op1=nl.add, operand1=2)"),
    Pair("psum_operands", "nisa.nc_matmul(p, a[:, 0:128], b);;nisa.tensor_tensor(r, p, a, nl.add)", "nisa.nc_matmul(p, a[:, 0:128], b);;q = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum);;nisa.nc_matmul(q, b[:, 0:128], a);;nisa.tensor_tensor(r, p, q, nl.add)"),
    Pair("control_flow", "if a:;;    nisa.tensor_copy(r, a)", "if a[0:1, 0:1]:  #!;;    nisa.tensor_copy(r, a)"),
    Pair("index_type", "t = nl.ndarray((128, 1), dtype=nl.int32);;nisa.dma_copy(dst=t, src=w[:, 0:1]);;u = x.vector_select(0, t)", "t = nl.zeros((128, 1), dtype=nl.int32);;u = a.vector_select(0, t)"),
    Pair("control_flow", "n = nisa.register_alloc(3);;def body(i):;;    nisa.tensor_copy(r, a);;nl.fori_loop(0, n, body)", "n = nisa.register_alloc(3);;for i in range(n):  #!;;    pass"),
    Pair("chip", "t = nl.ndarray((128, 512), dtype=nl.float32);;nisa.exponential(t, a)", "t = nl.ndarray((128, 512), dtype=nl.float32);;nisa.exponential(t, a)", "trn3", "trn2"),
    Pair("chip", "nisa.activate2(r, nl.exp, a, 1.0, 0.0, nl.multiply, nl.add)", "nisa.activate2(r, nl.exp, a, 1.0, 0.0, nl.multiply, nl.add)", "trn3", "trn2"),
    Pair("shuffle_lanes", "nisa.nc_stream_shuffle(r[0:32], a[0:32], [0] * 32)", "nisa.nc_stream_shuffle(r[0:32], a[0:32], [0] * 31)"),
    Pair("psum_accumulate", "nisa.nc_matmul(p, a[:, 0:128], b, accumulate=False);;nisa.nc_matmul(p, a[:, 0:128], b, accumulate=True)", "nisa.memset(p, 0.0);;nisa.nc_matmul(p, a[:, 0:128], b, accumulate=True)"),
    Pair("address_space", "t = nl.ndarray((128, 2, 8), dtype=nl.float32);;nisa.memset(t, 0.0)", "t = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.private_hbm);;nisa.memset(t, 0.0)"),
    Pair("sbuf_capacity", "t = nl.ndarray((128, 512), dtype=nl.float32, address=(0, 4096));;nisa.memset(t, 0.0)", "t = nl.ndarray((128, 512), dtype=nl.float32, address=(0, 230000))  #!;;nisa.memset(t, 0.0)"),
    Pair("psum_bank", "t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum, address=(0, 2048));;nisa.nc_transpose(t, a[:, 0:128])", "t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum, address=(0, 1024))  #!;;nisa.nc_transpose(t, a[:, 0:128])"),
    Pair("hbm_capacity", "t = nl.ndarray((1024, 1024), dtype=nl.float32, buffer=nl.private_hbm)", "t = nl.ndarray((1 << 20, 1 << 14), dtype=nl.float32, buffer=nl.private_hbm)"),
    Pair("hbm_capacity", "t = nl.ndarray((1 << 14, 1 << 16), dtype=nl.float32, buffer=nl.private_hbm);;nisa.dma_copy(dst=t[0:128, 0:512], src=a)", "t = [nl.ndarray((1 << 15, 1 << 16), dtype=nl.float32, buffer=nl.private_hbm) for _ in range(2)]  #!;;for u in t:;;    nisa.dma_copy(dst=u[0:128, 0:512], src=a)"),
    Pair("mask_form", "t = nl.copy(a)", "t = nl.copy(a, mask=None)"),
    Pair("partition_group", "t = nl.zeros((128, 2), dtype=nl.uint16);;nisa.local_gather(r[:, 0:32], a, t)", "t = nl.zeros((120, 2), dtype=nl.uint16);;nisa.local_gather(r[0:120, 0:30], a[0:120], t)"),
    Pair("perf_mode", "t = nl.zeros((128, 2, 128), dtype=nl.float8_e4m3);;u = nl.zeros((128, 2, 512), dtype=nl.float8_e5m2);;nisa.nc_matmul(p, t, u, perf_mode=nisa.matmul_perf_mode.double_row)", "t = nl.zeros((128, 128), dtype=nl.float8_e4m3);;u = nl.zeros((128, 512), dtype=nl.float8_e4m3);;nisa.nc_matmul(p, t, u, perf_mode=nisa.matmul_perf_mode.double_row)"),
    Pair("perf_mode", "t = nl.zeros((128, 2, 128), dtype=nl.float8_e4m3);;u = nl.zeros((128, 2, 512), dtype=nl.float8_e4m3);;nisa.nc_matmul(p, t, u, perf_mode=nisa.matmul_perf_mode.double_row)", "nisa.nc_matmul(p, a[:, 0:128], b, perf_mode=nisa.matmul_perf_mode.double_row)"),
    Pair("dge_dtype", "t = nl.ndarray((128, 512), dtype=nl.bfloat16);;nisa.dma_copy(dst=t, src=x[0:128, 0:512])", "t = nl.ndarray((128, 512), dtype=nl.bfloat16);;nisa.dma_copy(dst=t, src=x[0:128, 0:512], dge_mode=nisa.dge_mode.hwdge)"),
    Pair("duplicate_name", "t = [nl.ndarray((128, 8), dtype=nl.float32, name=f'tile_{i}') for i in range(2)]", "t = [nl.ndarray((128, 8), dtype=nl.float32, name='tile') for i in range(2)]"),
    Pair("grid_axis", "t = nl.num_programs(0)", "t = nl.num_programs(1)"),
    Pair("grid_axis", "t = nl.program_id(0)", "t = nl.program_id(1)"),
    Pair("reduce_init", "nisa.tensor_scalar_cumulative(r, a, nl.add, nl.add, 1.0)", "nisa.tensor_scalar_cumulative(r, a, nl.add, nl.add, 1.0, 0.0)"),
    Pair("memset_dtype", "t = nl.ndarray((128, 8), dtype=nl.int32);;nisa.memset(t, 1)", "t = nl.ndarray((128, 8), dtype=nl.int32);;nisa.memset(t, 1.0)"),
    Pair("constant_file", "t = nl.shared_constant(np.ones((4, 4), np.float32))", "t = nl.shared_constant('no_such_file.npy')"),
    Pair("undefined_output", "nisa.dma_copy(dst=out[128:256, 0:512], src=b);;return out", "out = nl.ndarray((256, 1024), dtype=nl.float32, buffer=nl.shared_hbm)  #!;;return out"),
)  # fmt: skip


def source(api: str, lines: str) -> tuple[str, int]:
    """Return the kernel around ``lines`` of a pair, and the line a refusal should name."""
    head, tail = (LEGACY_HEAD, LEGACY_TAIL) if api == "nki_legacy" else (CURRENT_HEAD, CURRENT_TAIL)
    body = lines.split(";;")
    marked = next((k for k, line in enumerate(body) if line.endswith("#!")), len(body) - 1)
    text = head + "".join(f"    {line}\n" for line in body) + tail
    return text, head.count("\n") + marked + 1


def outcomes(api: str) -> Iterator[Outcome]:
    """Yield both kernels of every pair of an API, traced and verified."""
    specs = [
        TensorSpec((256, 1024), "float32"),
        TensorSpec((256, 1024), "float32"),
        TensorSpec((128, 64), "int32"),
        TensorSpec((128, 512), "bfloat16"),
    ]
    default = "trn1" if api == "nki_legacy" else "trn2"
    for pair in LEGACY if api == "nki_legacy" else CURRENT:
        for legal, lines, chip in ((True, pair.legal, pair.chip), (False, pair.refused, pair.refused_chip)):
            text, wanted = source(api, lines)
            found, line, message = "", 0, ""
            try:
                findings = verify(trace(text, specs, api=api, chip=chip or default))
                if findings:
                    found, line, message = findings[0].rule, findings[0].line, findings[0].message
            except KernelFailure as failure:
                found, line, message = failure.rule, failure.line, failure.message
            except UsageError as error:
                found, message = "usage", error.message
            yield Outcome(api, pair, legal, found, line, wanted, message)
