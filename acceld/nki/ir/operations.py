"""The operations a program may hold: operands, attributes, iteration space, meaning.

Front ends emit these, :mod:`acceld.nki.verify.verifier` checks them, :mod:`acceld.nki.execute.interpreter` runs them and
:mod:`acceld.nki.timing.cost` prices them; an operation without a rule in any of the last three is an error there.

Iteration space (for masks and patterns): ``dst`` = axes of the first destination tile; ``src`` = axes of the
first source tile; ``kmn`` = (K, M, N) of a matrix product.

Arithmetic is in float32 whatever the operand types, rounded once when written to the destination's type
(nki.md D.5); matrix products accumulate in float32. Scalars that are per-partition tiles have shape (P, 1).
"""

from __future__ import annotations

from dataclasses import dataclass

ALU_OPS = frozenset(
    "add subtract multiply divide max min power mod fmod abs_max abs_min "
    "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor left_shift right_shift rsqrt abs bypass".split()
)
"""Two-operand ALU functions. ``rsqrt`` and ``abs`` ignore their second operand; ``bypass`` returns the first."""

REDUCE_OPS = frozenset(
    "add subtract multiply max min bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor".split()
)

ACTIVATION_FUNCTIONS = frozenset(
    "copy identity exp log sqrt rsqrt square tanh sigmoid relu silu silu_dx gelu gelu_dx gelu_apprx_sigmoid "
    "gelu_apprx_sigmoid_dx gelu_apprx_tanh softplus mish erf erf_dx sin cos tan arctan abs sign reciprocal "
    "negative floor ceil trunc invert logical_not".split()
)
"""Functions of one value; ``func(data * scale + bias)`` on the scalar engine."""


@dataclass(frozen=True, slots=True)
class OpSpec:
    """What an operation takes. A name ending in ``?`` may be absent; trailing operands only."""

    dsts: tuple[str, ...]
    srcs: tuple[str, ...]
    attrs: frozenset[str]
    space: str
    meaning: str


def _op(dsts: str, srcs: str, attrs: str, space: str, meaning: str) -> OpSpec:
    return OpSpec(tuple(dsts.split()), tuple(srcs.split()), frozenset(attrs.split()), space, meaning)


OPS: dict[str, OpSpec] = {
    # data movement
    "dma_copy": _op(
        "dst",
        "src",
        "rmw oob dge",
        "dst",
        "dst = src between HBM and SBUF, cast through float32; with rmw, dst = dst <rmw> src in float32. "
        "oob 'error' raises for an index outside the buffer, 'skip' leaves that element alone",
    ),
    "dma_compute": _op(
        "dst",
        "src0 " + " ".join(f"src{k}?" for k in range(1, 16)),
        "op",
        "dst",
        "dst = srcs folded with op in float32 by the DMA engines",
    ),
    "dma_transpose": _op("dst", "src", "axes", "dst", "dst = transpose(src, axes) during the transfer"),
    "copy": _op("dst", "src", "", "dst", "dst = src on chip"),
    "copy_predicated": _op("dst", "src predicate", "reverse", "dst", "dst[p] = src[p] where predicate (not) holds"),
    "bitcast": _op(
        "dst",
        "src",
        "",
        "dst",
        "dst = the bits of src as a type of another width: the last axis is longer or shorter by as much. No "
        "instruction on the chip",
    ),
    "memset": _op(
        "dst", "value", "lazy", "dst", "dst = value; lazy: no instruction on the chip, the first write initialises"
    ),
    "shuffle": _op(
        "dst", "src", "lanes", "dst", "partition q*32+i of dst = partition q*32+lanes[i] of src; 255 leaves dst alone"
    ),
    "broadcast_partition": _op("dst", "src", "", "dst", "every partition of dst = the one partition of src"),
    # tensor engine
    "matmul": _op(
        "dst",
        "stationary moving",
        "accumulate transpose stationary_onezero moving_onezero perf_mode tile_position tile_size hidden",
        "kmn",
        "dst[M, N] = stationary[K, M].T @ moving[K, N]. accumulate 'yes' adds to dst, 'no' overwrites, 'auto' "
        "overwrites where the accumulation group has no value yet. transpose: a transpose through the array. "
        "hidden: inserted by the front end, not written in the kernel",
    ),
    "matmul_mx": _op(
        "dst",
        "stationary moving stationary_scale moving_scale",
        "accumulate tile_position tile_size",
        "kmn",
        "matrix product of microscaled operands",
    ),
    "transpose": _op("dst", "src", "hidden", "dst", "dst[F, P] = src[P, F]"),
    # element-wise
    "activation": _op(
        "dst reduce_res?",
        "data bias scale",
        "func reduce_op reduce_cmd",
        "dst",
        "dst = func(data * scale + bias), bias and scale immediates or (P, 1) tiles; with reduce_op the values "
        "are also folded along the free axes into reduce_res",
    ),
    "activate2": _op(
        "dst reduce_res?",
        "data operand0 operand1",
        "func op0 op1 reverse0 reverse1 relu_param reduce_op reduce_cmd",
        "dst",
        "dst = func((data op0 operand0) op1 operand1)",
    ),
    "tensor_tensor": _op("dst", "data1 data2", "op", "dst", "dst = data1 op data2; axes of count 1 broadcast"),
    "tensor_scalar": _op(
        "dst reduce_res?",
        "data operand0 operand1?",
        "op0 reverse0 op1 reverse1 reduce_op reduce_cmd reduce_init negate",
        "dst",
        "dst = (data op0 operand0) op1 operand1, operands immediates or (P, 1) tiles; reverse swaps the operands",
    ),
    "tensor_scalar_cumulative": _op(
        "dst",
        "data operand0 operand1?",
        "op0 op1 reduce_cmd",
        "dst",
        "running fold r[i] = (data[i] op0 operand0) op1 r[i-1] along the free axis; r[-1] is the operation's identity, "
        "with reduce_cmd 'load_reduce' operand1, with 'reduce' what the engine's register holds",
    ),
    "scalar_tensor_tensor": _op(
        "dst",
        "data operand0 operand1",
        "op0 reverse0 op1 reverse1",
        "dst",
        "dst = (data op0 operand0) op1 operand1, operand0 a scalar, operand1 a tile",
    ),
    "reciprocal": _op("dst", "data", "", "dst", "dst = 1 / data"),
    "exponential": _op("dst reduce_res?", "data max_value", "reduce_cmd reduce_init", "dst", "dst = exp(data - max)"),
    "select": _op(
        "dst reduce_res?",
        "predicate on_true on_false",
        "reverse reduce_op reduce_cmd",
        "dst",
        "dst = on_true where predicate else on_false (a tile or an immediate)",
    ),
    "dropout": _op("dst", "data probability", "", "dst", "zeroes elements at random"),
    # reductions and scans
    "tensor_reduce": _op(
        "dst",
        "data",
        "op axes negate",
        "src",
        "folds tile axes `axes` of data with op, in order; negate multiplies the result by -1. "
        "dst has the remaining axes, or counts of 1 in their place",
    ),
    "loop_reduce": _op(
        "dst", "data", "op loops", "dst", "dst = data in the first iteration of all of `loops`, else dst op data"
    ),
    "partition_reduce": _op("dst", "data", "op", "src", "folds the partition axis; dst has one partition"),
    "scan": _op(
        "dst",
        "data0 data1 initial",
        "op0 op1 reverse0 reverse1",
        "dst",
        "r[i] = (data0[i] op0 r[i-1]) op1 data1[i] along the free axis, r[-1] = initial",
    ),
    "bn_stats": _op(
        "dst",
        "data",
        "",
        "src",
        "per partition: count, mean, variance*count of the even elements, then of the odd ones",
    ),
    "bn_aggr": _op("dst", "data", "", "src", "mean and variance from (count, mean, variance*count) triples"),
    # positions, search, gathers
    "iota": _op("dst", "", "", "dst", "dst = pattern, as integers cast to dst's type"),
    "affine_select": _op(
        "dst",
        "on_true on_false",
        "cmp",
        "dst",
        "dst = on_true where pattern cmp 0 (cmp an ALU comparison) else on_false",
    ),
    "range_select": _op(
        "dst reduce_res?",
        "on_true bound0 bound1",
        "cmp0 cmp1 range_start on_false reduce_op reduce_cmd",
        "dst",
        "dst = on_true where (i + range_start) cmp0 bound0 and cmp1 bound1 for free index i",
    ),
    "max8": _op("dst", "data", "", "src", "the eight greatest of each partition, descending"),
    "find_index8": _op("dst", "data values", "", "src", "first position of each of eight values"),
    "match_replace8": _op("dst index?", "data values", "imm", "src", "replaces the first match of eight values"),
    "local_gather": _op(
        "dst",
        "data index",
        "elements_per_index valid",
        "dst",
        "gather along the free axis inside groups of sixteen partitions",
    ),
    "gather": _op("dst", "data index", "", "dst", "dst[p, i] = data[p, index[p, i]]"),
    "topk": _op(
        "values index",
        "data",
        "n",
        "src",
        "the greatest of the first n elements of each sixteen partitions, ascending, and their positions, in all sixteen rows",
    ),
    "nonzero_with_count": _op("dst", "data", "index_offset padding", "src", "positions of non-zeros, then their count"),
    "sequence_bounds": _op("dst", "data", "", "dst", "start and end of each segment id"),
    # random numbers
    "random_seed": _op("", "seed", "", "src", "seeds the generator"),
    "random": _op("dst", "low? high?", "", "dst", "uniform values in [low, high)"),
    # microscaling
    "quantize_mx": _op("dst dst_scale", "data", "", "dst", "to MXFP8 data and their exponents"),
    # registers and control
    "register_move": _op("", "value", "register source", "src", "register = immediate or another register"),
    "register_load": _op("", "data", "register", "src", "register = the one element of data"),
    "register_store": _op("dst", "", "register", "dst", "the one element of dst = register"),
    "register_alu": _op(
        "",
        "value",
        "register source op operand",
        "src",
        "register = source op value, or op the register that operand names",
    ),
    "barrier": _op("", "data?", "", "src", "all engines (or both cores) wait for each other"),
    "print": _op("", "data", "text", "src", "prints a tile; no effect on values"),
}

FLOAT_DTYPES = frozenset(
    "float32 tfloat32 bfloat16 float16 float8_e4m3 float8_e4m3fn float8_e5m2 float8_e8m0fnu".split()
)
INTEGER_DTYPES = frozenset("int8 int16 int32 uint8 uint16 uint32 bool".split())
DTYPE_BYTES: dict[str, int] = {
    "float32": 4, "tfloat32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3": 1, "float8_e4m3fn": 1,
    "float8_e5m2": 1, "float8_e8m0fnu": 1, "float8_e5m2_x4": 4, "float8_e4m3fn_x4": 4, "float4_e2m1fn_x4": 2,
    "int8": 1, "int16": 2, "int32": 4, "uint8": 1, "uint16": 2, "uint32": 4, "bool": 1,
}  # fmt: skip
"""Bytes an element takes; the keys are every dtype a buffer may have."""
