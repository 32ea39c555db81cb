"""Define the operations of programs: operands, attributes, iteration space, meaning.

Front ends emit these operations. :mod:`acceld.nki.verify.verifier` checks them, :mod:`acceld.nki.execute.interpreter`
runs them and :mod:`acceld.nki.timing.cost` prices them. Each of these three raises an error for an operation for which
it has no rule.

The iteration space of an operation is what masks and patterns refer to. ``dst`` means the axes of the first destination
tile, ``src`` the axes of the first source tile, and ``kmn`` the axes (K, M, N) of a matrix product.

Arithmetic is in float32 for all operand types. Results are rounded once, when they are written in the destination's
type (AWS NKI documentation, nki.isa). Matrix products accumulate in float32. A scalar operand may be a tile of shape
(P, 1): one element in each partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from functools import reduce
from operator import or_

from acceld.nki.ir.program import Engine

COMPARISONS = frozenset("equal not_equal less less_equal greater greater_equal".split())
LOGIC = frozenset("logical_and logical_or logical_xor".split())
ARITHMETIC = frozenset("add subtract multiply max min power abs_max abs_min".split()) | COMPARISONS | LOGIC
"""Operations on two values, in float32."""
BITS = frozenset("bitwise_and bitwise_or bitwise_xor left_shift right_shift".split())
"""Operations on the bits of two integers."""
UNARY_ALU_OPS = frozenset("rsqrt abs square relu reciprocal".split())
"""Operations on one value, which ignore their second operand. Only the current API has ``reciprocal``."""
LEGACY_ONLY = frozenset("divide mod fmod".split())
"""Operations of ``neuronxcc.nki`` that no engine has. The legacy compiler composes them of other operations; kernels of
``nki`` with them do not compile (NKI release notes 0.3 to 0.5).
"""
ALU_OPS = ARITHMETIC | BITS | UNARY_ALU_OPS | LEGACY_ONLY | {"bypass"}
"""All ALU functions. ``bypass`` returns the first operand. ``abs_max`` and ``abs_min`` return the operand of greater or
smaller magnitude, with its sign; the second operand if the magnitudes are equal (nl.abs_max).
"""
LATE_ALU_OPS: dict[str, int] = {"abs_max": 4, "abs_min": 4, "square": 4, "relu": 4}
"""The version of the first NeuronCore that has an ALU function, for functions that the first NeuronCores lack."""
ENGINE_SINCE: dict[tuple[str, Engine], int] = {("activation", Engine.GPSIMD): 4, ("tensor_scalar", Engine.SCALAR): 3}
"""The version of the first NeuronCore on which an engine has an operation, by operation and engine, for operations that
earlier NeuronCores have only on other engines.
"""
SCALAR_ENGINE_ALU = frozenset({(), ("multiply",), ("add",), ("multiply", "add")})
"""Sequences of ALU functions that a tensor_scalar may have on NeuronCore-v3's scalar engine (nisa.tensor_scalar)."""

RANDOM = frozenset({"dropout", "random", "random_state_store"})
"""Operations whose results may differ between executions although the operands are equal."""

REDUCE_OPS = frozenset("add subtract multiply max min".split()) | LOGIC | (BITS - {"left_shift", "right_shift"})

ACTIVATION_FUNCTIONS = frozenset(
    "copy identity exp log sqrt rsqrt square tanh sigmoid relu silu silu_dx gelu gelu_dx gelu_apprx_sigmoid "
    "gelu_apprx_sigmoid_dx gelu_apprx_tanh softplus mish erf erf_dx sin cos tan arctan abs sign reciprocal "
    "negative floor ceil trunc invert logical_not prelu".split()
)
"""Functions of one value that the scalar engine computes as ``func(data * scale + bias)``. Only activate2 has the slope
of ``prelu``.
"""
COMPOSED_FUNCTIONS = frozenset("cos tan floor ceil trunc".split())
"""Functions that ``nl`` of the current API has but the scalar engine's table lacks (nki.api.shared 0.6 and 0.7). AWS
does not document whether and how its compiler composes these functions.
"""
NO_ACTIVATION = frozenset("negative invert logical_not".split()) | COMPOSED_FUNCTIONS
"""Functions that the legacy API's activation has and the current API's lacks."""
ACTIVATE2_PAIRS = frozenset({
    ("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"), ("subtract", "bypass"),
    ("bypass", "bypass"),
})  # fmt: skip
"""Allowed pairs (op0, op1) of activate2 (nisa.activate2 0.4 to 0.7)."""

SHIFTS = frozenset({"left_shift", "right_shift"})
"""Bit operations whose result no document defines if the shift is negative, or at least as great as the number of bits.
"""

_TWO, _FOLDS = ARITHMETIC | BITS, frozenset("add multiply max min".split())
FUNCTIONS: dict[str, dict[str, frozenset[str]]] = {
    "tensor_tensor": {"op": _TWO},
    "tensor_scalar": {"op0": _TWO | UNARY_ALU_OPS, "op1": _TWO | UNARY_ALU_OPS, "reduce_op": _FOLDS},
    "tensor_scalar_cumulative": {"op0": ARITHMETIC, "op1": _FOLDS | {"subtract"}},
    "scalar_tensor_tensor": {"op0": ARITHMETIC, "op1": ARITHMETIC, "reduce_op": _FOLDS},
    "scan": {"op0": ARITHMETIC, "op1": ARITHMETIC},
    "activation": {"reduce_op": frozenset({"add"})},
    "tensor_reduce": {"op": REDUCE_OPS},
    "partition_reduce": {"op": frozenset("add average max bitwise_or bitwise_and".split())},
    "select": {"reduce_op": frozenset({"max"})},
    "range_select": {
        "cmp0": COMPARISONS - {"not_equal"},
        "cmp1": COMPARISONS - {"not_equal"},
        "reduce_op": frozenset({"max"}),
    },
}
"""Functions that an instruction of the current API accepts, by operation and attribute (pages of nki.isa 0.6 and 0.7).
"""


class Kind(StrEnum):
    """The kind of value that an operand may be."""

    TILE = "tile"
    SCALAR = "scalar"
    """A number, or a tile with one element in each partition."""
    NUMBER = "number"
    """An immediate number."""
    ANY = "any"
    """A tile of the shape of the operation, or a number."""


class Memory(StrEnum):
    """The memories in which the tiles of an operation may be."""

    CHIP = "chip"
    """SBUF or PSUM."""
    SBUF = "sbuf"
    PRODUCT = "product"
    """Operands in SBUF, result in PSUM."""
    DMA = "dma"
    """SBUF or HBM."""
    ANY = "any"


class Trait(Flag):
    """A property of an operation that verification, execution or :class:`acceld.nki.ir.def_use.Coverage` needs."""

    WHOLE = auto()
    """Writes every element of its first destination, unless the instruction has a mask or its entry says otherwise."""
    ELEMENTWISE = auto()
    """Each operand that is not a scalar has as many elements as the destination."""
    ACROSS = auto()
    """Carries values from one partition to another one."""
    TWO_TILES = auto()
    """Reads two tiles together. Both have to start at the same partition, and at most one may be in PSUM."""
    ROUNDS = auto()
    """Computes in float32 and rounds once, whatever the type of the destination."""
    IN_PLACE = auto()
    """May overwrite the elements that it reads, if each element is written where it was read."""
    PACKED = auto()
    """Accepts formats that hold four values in an element."""
    BY_ROW = auto()
    """The free axes of the destinations and of the later operands are independent of the iteration space."""
    GATHERS = auto()
    """The free axes of the first operand are independent of the iteration space."""
    CONTROL = auto()
    """Control operation: no engine reads or writes tiles for it."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand of an operation. Optional operands come after the required operands."""

    name: str
    kind: Kind
    optional: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """The definition of one operation: operands, attributes, engines and properties.

    ``engines`` are the engines that have the operation (pages of nki.isa); if ``engines`` is empty, a kernel may name
    any engine or leave the choice open. ``generation`` is the version of the first NeuronCore that has the operation.
    """

    meaning: str
    dsts: tuple[Operand, ...]
    srcs: tuple[Operand, ...]
    attrs: frozenset[str]
    required: frozenset[str]
    space: str
    engines: frozenset[Engine]
    memory: Memory
    traits: Trait
    generation: int
    cycles: float | None
    """Cycles for each element of a partition on an element-wise engine; None if :mod:`acceld.nki.timing.cost` has a
    formula. No figure is published for gathers, ``topk``, ``nonzero_with_count`` and ``partition_reduce``: theirs are
    guesses.
    """

    @property
    def is_product(self) -> bool:
        """Tell whether the operation is a matrix product, which may add to the contents of its destination."""
        return self.memory is Memory.PRODUCT

    def sources_of(self, kind: Kind) -> tuple[int, ...]:
        """Return the positions of the source operands of kind ``kind``."""
        return tuple(number for number, one in enumerate(self.srcs) if one.kind is kind)


_ENGINES = {"T": Engine.TENSOR, "V": Engine.VECTOR, "S": Engine.SCALAR, "G": Engine.GPSIMD, "D": Engine.DMA, "Y": Engine.SYNC}  # fmt: skip


def _operands(text: str) -> tuple[Operand, ...]:
    found = []
    for word in text.split():
        name, _, kind = word.partition(":")
        found.append(Operand(name.rstrip("?"), Kind(kind or "any"), name.endswith("?")))
    return tuple(found)


def entry(
    meaning: str,
    dsts: str,
    srcs: str,
    *,
    attrs: str = "",
    space: str = "dst",
    engines: str = "",
    memory: str = "chip",
    traits: str = "",
    generation: int = 2,
    cycles: float | None = None,
) -> Operation:
    """Return an operation from a description in short texts.

    In ``dsts`` and ``srcs``, ``name?`` is an optional operand and ``name:kind`` gives its kind. In ``attrs``,
    ``name!`` is a required attribute.
    """
    words = attrs.split()
    return Operation(
        meaning,
        _operands(dsts),
        _operands(srcs),
        frozenset(word.rstrip("!") for word in words),
        frozenset(word[:-1] for word in words if word.endswith("!")),
        space,
        frozenset(_ENGINES[letter] for letter in engines),
        Memory(memory),
        reduce(or_, (Trait[word.upper()] for word in traits.split()), Trait(0)),
        generation,
        cycles,
    )


# fmt: off
OPS: dict[str, Operation] = {
    # data movement
    "dma_copy": entry(
        "dst = src between HBM and SBUF, cast through float32; with rmw, dst = dst <rmw> src in float32. oob 'error' "
        "raises for an index outside the buffer, 'skip' leaves that element alone",
        "dst", "src:tile", attrs="rmw oob dge", engines="SGDY", memory="dma",
        traits="whole elementwise across packed",
    ),
    "dma_compute": entry(
        "dst = srcs reduced with op in float32 by the DMA engines",
        "dst", "src0 " + " ".join(f"src{k}?" for k in range(1, 16)), attrs="op", engines="SGDY", memory="dma",
        traits="whole elementwise across",
    ),
    "dma_transpose": entry(
        "dst = transpose(src, axes) during the transfer",
        "dst", "src:tile", attrs="axes", engines="SGDY", memory="dma", traits="whole across packed",
    ),
    "copy": entry(
        "dst = src on chip",
        "dst", "src:tile", engines="VSG", traits="whole elementwise in_place packed",
    ),
    "copy_predicated": entry(
        "dst[p] = src[p] where predicate (not) holds",
        "dst", "src predicate:tile", attrs="reverse", engines="VG", traits="elementwise",
    ),
    "bitcast": entry(
        "dst = the bits of src as a type of another width: the last axis is longer or shorter by as much. No "
        "instruction on the chip; in HBM a view of all of a tensor; back: what was written through a view",
        "dst", "src:tile", attrs="back", memory="any", traits="whole packed gathers",
    ),
    "memset": entry(
        "dst = value; lazy: no instruction on the chip, the first write initialises",
        "dst", "value:number", attrs="lazy", engines="VSGD", memory="any", traits="whole rounds packed",
    ),
    "shuffle": entry(
        "partition q*32+i of dst = partition q*32+lanes[i] of src; 255 leaves dst alone",
        "dst", "src:tile", attrs="lanes!", engines="V", cycles=1,
    ),
    "broadcast_partition": entry(
        "every partition of dst = the one partition of src",
        "dst", "src:tile", engines="TVSG", traits="whole elementwise across",
    ),
    # tensor engine
    "matmul": entry(
        "dst[M, N] = stationary[K, M].T @ moving[K, N]. accumulate 'yes' adds to dst, 'no' overwrites, 'auto' "
        "overwrites where the accumulation group has no value yet. transpose: a transpose through the array. hidden: "
        "inserted by the front end, not written in the kernel",
        "dst", "stationary:tile moving:tile",
        attrs="accumulate transpose stationary_onezero moving_onezero perf_mode tile_position tile_size hidden",
        space="kmn", engines="T", memory="product", traits="whole",
    ),
    "matmul_mx": entry(
        "matrix product of microscaled operands",
        "dst", "stationary:tile moving:tile stationary_scale:tile moving_scale:tile",
        attrs="accumulate tile_position tile_size", space="kmn", engines="T", memory="product", traits="packed",
        generation=4,
    ),
    "transpose": entry(
        "dst[F, P] = src[P, F]",
        "dst", "src:tile", attrs="hidden", engines="TV", traits="whole packed", cycles=1,
    ),
    # element-wise
    "activation": entry(
        "dst = func(data * scale + bias), bias and scale immediates or (P, 1) tiles; with reduce_op the values are "
        "also reduced along the free axes into reduce_res",
        "dst reduce_res?", "data:tile bias:scalar scale:scalar", attrs="func! reduce_op reduce_cmd", engines="SG",
        traits="whole elementwise rounds in_place", cycles=1,
    ),
    "activate2": entry(
        "dst = func((data op0 operand0) op1 operand1); prelu multiplies negative values by slope",
        "dst reduce_res?", "data:tile operand0:scalar operand1:scalar slope?:scalar",
        attrs="func! op0 op1 reverse0 reverse1 reduce_op reduce_cmd", engines="SG",
        traits="whole elementwise rounds", generation=4, cycles=1,
    ),
    "tensor_tensor": entry(
        "dst = data1 op data2, of equal sizes (neuronxcc.nki repeats axes of one element)",
        "dst", "data1:tile data2:tile", attrs="op!", engines="VG",
        traits="whole elementwise two_tiles rounds in_place",
    ),
    "tensor_scalar": entry(
        "dst = (data op0 operand0) op1 operand1, operands immediates or (P, 1) tiles; reverse swaps the operands",
        "dst reduce_res?", "data:tile operand0:scalar operand1?:scalar",
        attrs="op0! reverse0 op1 reverse1 reduce_op reduce_cmd reduce_init negate", engines="VSG",
        traits="whole elementwise rounds in_place",
    ),
    "tensor_scalar_cumulative": entry(
        "running reduction r[i] = (data[i] op0 operand0) op1 r[i-1] along the free axis; r[-1] is the operation's "
        "identity, with reduce_cmd 'load_reduce' operand1, with 'reduce' what the engine's register holds",
        "dst", "data:tile operand0:scalar operand1?:scalar", attrs="op0! op1! reduce_cmd", engines="V",
        traits="whole elementwise", cycles=1,
    ),
    "scalar_tensor_tensor": entry(
        "dst = (data op0 operand0) op1 operand1, operand0 a scalar, operand1 a tile; with reduce_op also reduced along the "
        "free axes into reduce_res",
        "dst reduce_res?", "data:tile operand0:scalar operand1:tile",
        attrs="op0! reverse0 op1! reverse1 reduce_op reduce_cmd", engines="VG",
        traits="whole elementwise two_tiles rounds in_place",
    ),
    "reciprocal": entry(
        "dst = 1 / data",
        "dst", "data:tile", engines="VS", traits="whole elementwise rounds in_place",
    ),
    "exponential": entry(
        "dst = exp(data - max)",
        "dst reduce_res?", "data:tile max_value:scalar", attrs="reduce_cmd reduce_init", engines="V",
        traits="whole elementwise", generation=4, cycles=1,
    ),
    "select": entry(
        "dst = on_true where predicate else on_false (a tile or an immediate)",
        "dst reduce_res?", "predicate:tile on_true on_false", attrs="reverse reduce_op reduce_cmd", engines="VG",
        traits="whole elementwise rounds in_place",
    ),
    "dropout": entry(
        "zeroes elements at random",
        "dst", "data:tile probability", engines="V", traits="whole elementwise", cycles=1,
    ),
    # reductions and scans
    "tensor_reduce": entry(
        "reduces tile axes `axes` of data with op, in order; negate multiplies the result by -1. dst has the remaining "
        "axes, or counts of 1 in their place",
        "dst", "data:tile", attrs="op! axes! negate", space="src", engines="VG", traits="whole rounds",
    ),
    "loop_reduce": entry(
        "dst = data in the first iteration of all of `loops`, else dst op data",
        "dst", "data:tile", attrs="op! loops!", engines="VG", traits="whole elementwise",
    ),
    "partition_reduce": entry(
        "reduces the partition axis (average: the sum over the number of partitions); dst has one partition",
        "dst", "data:tile", attrs="op!", space="src", engines="VG", traits="whole", cycles=4,
    ),
    "scan": entry(
        "r[i] = (data0[i] op0 r[i-1]) op1 data1[i] along the free axis, r[-1] = initial",
        "dst", "data0:tile data1:tile initial:scalar", attrs="op0! op1! reverse0 reverse1", engines="V",
        traits="whole elementwise two_tiles rounds", cycles=2,
    ),
    "bn_stats": entry(
        "per partition: count, mean, variance*count of the even elements, then of the odd ones",
        "dst", "data:tile", space="src", engines="V", traits="by_row", cycles=1,
    ),
    "bn_aggr": entry(
        "mean and variance from (count, mean, variance*count) triples",
        "dst", "data:tile", space="src", engines="V", traits="by_row",
    ),
    # positions, search, gathers
    "iota": entry(
        "dst = pattern, as integers cast to dst's type",
        "dst", "", engines="G", traits="whole", cycles=1,
    ),
    "affine_select": entry(
        "dst = on_true where pattern cmp 0 (cmp an ALU comparison) else on_false",
        "dst", "on_true:tile on_false", attrs="cmp!", engines="G", traits="whole elementwise", cycles=1,
    ),
    "range_select": entry(
        "dst = on_true where (i + range_start) cmp0 bound0 and cmp1 bound1 for free index i",
        "dst reduce_res?", "on_true:tile bound0:scalar bound1:scalar",
        attrs="cmp0! cmp1! range_start on_false reduce_op reduce_cmd", engines="V", traits="whole elementwise",
        generation=3, cycles=1,
    ),
    "max8": entry(
        "the eight greatest of each partition, descending",
        "dst", "data:tile", space="src", engines="V", traits="by_row", cycles=1,
    ),
    "find_index8": entry(
        "first position of each of eight values",
        "dst", "data:tile values:tile", space="src", engines="V", traits="by_row", cycles=1,
    ),
    "match_replace8": entry(
        "replaces the first match of eight values",
        "dst index?", "data:tile values:tile", attrs="imm", space="src", engines="V", traits="by_row", cycles=1,
    ),
    "local_gather": entry(
        "gather along the free axis inside groups of sixteen partitions",
        "dst", "data:tile index:tile", attrs="elements_per_index valid", engines="G", memory="sbuf",
        traits="gathers", cycles=4,
    ),
    "local_scatter": entry(
        "elements of dst at the offsets of local_gather = src, the others stay; of equal offsets the last one counts",
        "dst", "data:tile index:tile", attrs="valid", engines="G", memory="sbuf", traits="gathers", cycles=4,
    ),
    "gather": entry(
        "dst[p, i] = data[p, index[p, i]]",
        "dst", "data:tile index:tile", engines="G", memory="sbuf", traits="gathers", cycles=4,
    ),
    "topk": entry(
        "the greatest of the first n elements of each sixteen partitions, ascending, and their positions, in all "
        "sixteen rows",
        "values index", "data:tile", attrs="n", space="src", engines="G", memory="sbuf", traits="by_row", cycles=4,
    ),
    "nonzero_with_count": entry(
        "positions of non-zeros, then their count",
        "dst", "data:tile", attrs="index_offset padding", space="src", engines="G", memory="sbuf", traits="by_row",
        generation=3, cycles=4,
    ),
    "sequence_bounds": entry(
        "start and end of each segment id",
        "dst", "data:tile", engines="G", memory="sbuf", traits="gathers", cycles=4,
    ),
    # random numbers
    "random_seed": entry(
        "seeds the generator",
        "", "seed", space="src", memory="any", traits="control",
    ),
    "random": entry(
        "uniform values in [low, high)",
        "dst", "low? high?", memory="any", traits="whole", cycles=1,
    ),
    "random_state_load": entry(
        "state of the engine's generators (XORWOW, six words each) = the row of each partition",
        "", "data:tile", space="src", engines="GV", memory="sbuf", traits="control", generation=3, cycles=1,
    ),
    "random_state_store": entry(
        "dst = state of the engine's generators",
        "dst", "", engines="GV", traits="whole control", generation=3, cycles=1,
    ),
    # microscaling
    "quantize_mx": entry(
        "to MXFP8 data and their exponents",
        "dst dst_scale", "data:tile", memory="sbuf", traits="packed", generation=4, cycles=0.25,
    ),
    # registers and control
    "register_move": entry(
        "register = immediate or another register",
        "", "value", attrs="register! source", space="src", traits="control",
    ),
    "register_load": entry(
        "register = the one element of data",
        "", "data:tile", attrs="register!", space="src", memory="any", traits="control",
    ),
    "register_store": entry(
        "the one element of dst = register",
        "dst", "", attrs="register!", memory="any", traits="whole control",
    ),
    "register_alu": entry(
        "register = source op value, or op the register that operand names; with bits, a sum wraps to that width",
        "", "value", attrs="register! source op! operand bits", space="src", traits="control",
    ),
    "barrier": entry(
        "all engines (or both cores) wait for each other",
        "", "data?", space="src", memory="any", traits="packed control",
    ),
    "exchange": entry(
        "dst = src of the other core of the pair, while that core gets this one's; both name one pipe",
        "dst", "src:tile", attrs="pipe", engines="SGDY", memory="sbuf", traits="whole elementwise across", generation=3,
    ),
    "collective": entry(
        "dst = what ranks make of their tiles together; ranks holds lists of `members` each, or pairs",
        "dst", "src:tile other?:tile", attrs="kind! ranks! members! axis op", engines="D", memory="dma",
        traits="across packed gathers",
    ),
    "register_rank": entry(
        "register = the rank that runs, or the one so many steps before it in its list",
        "", "steps", attrs="register! ranks! members!", space="src", traits="control",
    ),
    "print": entry(
        "prints a tile; no effect on values",
        "", "data", attrs="text", space="src", memory="any", traits="packed control",
    ),
}
# fmt: on


def having(trait: Trait) -> frozenset[str]:
    """Return the names of the operations that have ``trait``."""
    return frozenset(name for name, operation in OPS.items() if trait in operation.traits)


FLOAT_DTYPES = frozenset(
    "float32 tfloat32 bfloat16 float16 float8_e4m3 float8_e4m3fn float8_e5m2 float8_e8m0fnu".split()
)
WORDS = frozenset(("int32", "uint32"))
"""Integers on which GpSimd computes without rounding them to float32."""
INTEGER_DTYPES = frozenset("int8 int16 int32 int64 uint8 uint16 uint32 bool".split())
DTYPE_BYTES: dict[str, int] = {
    "float32": 4, "tfloat32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3": 1, "float8_e4m3fn": 1,
    "float8_e5m2": 1, "float8_e8m0fnu": 1, "float8_e5m2_x4": 4, "float8_e4m3fn_x4": 4, "float4_e2m1fn_x4": 2,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "bool": 1,
}  # fmt: skip
"""Bytes of an element by dtype. The keys are all dtypes that a buffer may have."""

_FLOATS, _UNSIGNED = FLOAT_DTYPES, frozenset("uint8 uint16 uint32 bool".split())
_PACKED, _EXPONENTS = (
    frozenset(name for name in DTYPE_BYTES if name.endswith("_x4")),
    frozenset({"float8_e8m0fnu", "uint8"}),
)
_NARROW = _FLOATS | {"int8", "int16", "uint8", "uint16", "bool"}
OPERAND_DTYPES: dict[str, dict[str, frozenset[str]]] = {
    "copy_predicated": {"predicate": _UNSIGNED},
    "select": {
        "predicate": frozenset("int8 uint8 int16 uint16 bool".split()),
        "on_true": frozenset(DTYPE_BYTES) - _PACKED - {"tfloat32", "int32", "uint32", "int64"},
        "reduce_res": _FLOATS,
    },
    "range_select": {"on_true": _FLOATS},
    "sequence_bounds": {"data": frozenset({"float32", "int32"}), "dst": frozenset({"float32", "int32"})},
    "find_index8": {"dst": frozenset({"uint16", "uint32"})},
    "match_replace8": {"index": frozenset({"uint16", "uint32"})},
    "gather": {"index": frozenset({"uint32"})},
    "topk": {
        "data": frozenset({"bfloat16"}), "values": frozenset({"bfloat16"}), "index": frozenset({"uint32"}),
    },
    "nonzero_with_count": {"data": frozenset({"float32", "int32"}), "dst": frozenset({"int32"})},
    "tensor_scalar_cumulative": {"data": _NARROW, "dst": _NARROW},
    "exponential": {
        "dst": frozenset(DTYPE_BYTES) - _PACKED - {"uint32", "int64"}, "reduce_res": _FLOATS,
        "data": frozenset(DTYPE_BYTES) - _PACKED - {"tfloat32", "int64"},
    },
    "random": {
        "dst": frozenset(DTYPE_BYTES) - _PACKED - {"float8_e4m3fn", "float8_e8m0fnu", "int64"},
        "low": frozenset({"float32"}), "high": frozenset({"float32"}),
    },
    "quantize_mx": {
        "data": frozenset({"bfloat16", "float16"}), "dst": _PACKED - {"float4_e2m1fn_x4"}, "dst_scale": _EXPONENTS,
    },
    "matmul_mx": {
        "stationary": _PACKED, "moving": _PACKED, "stationary_scale": _EXPONENTS, "moving_scale": _EXPONENTS,
        "dst": frozenset({"bfloat16", "float32"}),
    },
    "register_load": {"data": frozenset(DTYPE_BYTES) - _PACKED},
}  # fmt: skip
"""Dtypes that an operand of the current API may have, by operation and operand (pages of nki.isa 0.6 and 0.7). Operands
that are not listed may have any.
"""
PARTIAL_OPS = frozenset({"copy_predicated", "match_replace8", "local_gather", "local_scatter"})
"""Operations that may leave some elements of their destination unchanged."""
GENERATOR_WORDS = {Engine.GPSIMD: 6, Engine.VECTOR: 24}
"""Words of random state in each partition, by engine: of one generator on GpSimd, of four on the vector engine."""
MEETINGS = frozenset({"barrier", "exchange"})
"""Operations at which a core waits for the other core."""
WIDE_OPS = frozenset({"dma_copy", "register_load", "register_store", "collective", "bitcast", "print"})
"""Operations that accept int64 (pages of NKI 0.7). All others compute with at most 32 bits."""
SAME_DTYPES: dict[str, tuple[str, str]] = {
    "copy_predicated": ("src", "dst"),
    "gather": ("data", "dst"),
    "local_gather": ("data", "dst"),
    "shuffle": ("src", "dst"),
    "transpose": ("src", "dst"),
    "dropout": ("data", "dst"),
}
"""The two operands of an instruction of the current API that must have the same dtype, by operation."""
INDIRECT_OPERANDS: dict[str, frozenset[str]] = {
    "copy": frozenset({"dst", "src"}),
    "copy_predicated": frozenset({"dst", "predicate"}),
    "tensor_tensor": frozenset({"dst", "data1"}),
    **dict.fromkeys(
        ("tensor_scalar", "tensor_scalar_cumulative", "tensor_reduce", "activation", "activate2", "exponential"),
        frozenset({"dst", "data"}),
    ),
}
"""The operands that may be views by ``.indirect()``, by operation (pages of nki.isa 0.6). Matrix products have some too,
which are not simulated; all other operations have none.
"""
SCALAR_DTYPES: dict[str, frozenset[str]] = {
    "activation.bias": frozenset(DTYPE_BYTES) - {"tfloat32"},
    "dropout.probability": frozenset(DTYPE_BYTES),
    "scalar_tensor_tensor.operand0": FLOAT_DTYPES,
}
"""Dtypes of operands with one element in each partition. An operand that is not listed must be float32 in arithmetic.
"""
