"""Provide facts of NKI to authors of kernels: calls with their arguments, engines and limits, and the chip's
figures.

All facts come from the tables by which kernels are traced and verified, so they can not contradict the
simulator.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from enum import EnumType
from functools import cache

from acceld.chips import (
    BN_STATS_ELEMENTS,
    LEGACY_RESERVED_SBUF_BYTES,
    MAX8_ELEMENTS,
    STATIONARY_COLUMNS,
    TENSOR_TRANSPOSE,
    VECTOR_TRANSPOSE,
    ChipSpec,
    chip_spec,
)
from acceld.nki.frontend.core import language
from acceld.nki.frontend.core.names import ACTIVATION_ALIASES, ALU_ALIASES
from acceld.nki.frontend.current import isa as current_isa
from acceld.nki.frontend.current import language as current_language
from acceld.nki.frontend.current import wrappers
from acceld.nki.frontend.current.surface import surface
from acceld.nki.frontend.legacy import isa as legacy_isa
from acceld.nki.frontend.legacy import language as legacy_language
from acceld.nki.frontend.legacy.surface import SURFACE
from acceld.nki.frontend.shims import arguments_of
from acceld.nki.ir.operations import (
    ACTIVATION_FUNCTIONS,
    ALU_OPS,
    ENGINE_SINCE,
    FUNCTIONS,
    LATE_ALU_OPS,
    LEGACY_ONLY,
    NO_ACTIVATION,
    OPS,
    REDUCE_OPS,
    Memory,
    Trait,
)
from acceld.nki.ir.program import Engine
from acceld.nki.timing.cost import CostModel
from acceld.nki.timing.parameters import default_params
from acceld.parsing import parse

PACKAGES = {"nki_legacy": "neuronxcc.nki", "nki": "nki"}
SHORT = {"language": "nl", "isa": "nisa"}

UNARY_OPERATIONS = {
    "reciprocal": "reciprocal", "invert": "tensor_scalar", "logical_not": "tensor_scalar", "negative": "tensor_scalar",
}  # fmt: skip
"""The operation that a function of one tile becomes, by name of the function; activation functions are not listed."""
LANGUAGE_OPERATIONS: Mapping[str, str] = {
    **dict.fromkeys(wrappers.UNARY, "activation"),
    **UNARY_OPERATIONS,
    **dict.fromkeys(wrappers.BINARY, "tensor_tensor"),
    **dict.fromkeys((*language.REDUCTIONS, "all"), "tensor_reduce"),
    **dict.fromkeys(("load", "store"), "dma_copy"),
    "copy": "copy",
    "matmul": "matmul",
    "transpose": "transpose",
    "where": "select",
    "dropout": "dropout",
    "gather_flattened": "gather",
    "loop_reduce": "loop_reduce",
    "rand": "random",
}
"""The operation that a function of ``nl`` becomes, for each function that becomes exactly one operation."""

LOOPS = frozenset("affine_range sequential_range static_range dynamic_range arange".split())
"""Functions that take the arguments of Python's ``range``, so that their arguments need no description."""

VALUES: Mapping[str, str] = {
    "engine": "engine",
    "reduce_cmd": "reduce_cmd",
    "oob_mode": "oob_mode",
    "dge_mode": "dge_mode",
    "perf_mode": "matmul_perf_mode",
}
"""The enumeration in ``nisa`` that has the allowed names of an argument, for each argument that takes one of a few
names.
"""

SPELLED: Mapping[str, tuple[str, ...]] = {
    "func": ("op",),
    "op": ("op", "reduce_op"),
    "src": ("data", "src_buffer", "srcs"),
    "data": ("data", "src"),
    "on_true": ("on_true_tile",),
    "on_false": ("on_false_value",),
    "rmw": ("dst_rmw_op",),
    "oob": ("oob_mode",),
    "cmp": ("cmp_op", "pred"),
    "values": ("vals",),
    "value": ("vals",),
    "cmp0": ("comp_op0",),
    "cmp1": ("comp_op1",),
    "pattern": ("pred", "expr"),
    "operand0": ("imm0",),
    "operand1": ("imm1",),
    "reverse": ("reverse_pred", "reverse0"),
    "axes": ("axis",),
    "index": ("indices",),
    "lanes": ("shuffle_mask",),
    "transpose": ("is_transpose",),
}
"""The names by which calls pass an operand or attribute of an operation, by its name in the operation."""

OWN_MEANINGS: Mapping[str, str] = {
    "nisa.nc_matmul": "dst[M, N] = stationary[K, M].T @ moving[K, N]. accumulate True adds to dst, False overwrites, and "
    "without accumulate the first product into dst overwrites and each later one adds. transpose: a transpose through the array",
    "nisa.tensor_scalar_reduce": "dst = data op0 operand0, operand0 an immediate or a (P, 1) tile; the values are also reduced "
    "along the free axes into reduce_res; reverse0 swaps the operands",
    "nisa.activation": "dst = op(data * scale + bias), bias and scale immediates or (P, 1) tiles; with "
    "reduce_cmd=nisa.reduce_cmd.reset_reduce the values are also added up along the free axes into reduce_res",
}
"""The meaning of a call that does less than the operation it becomes, by the call."""

HIDDEN: Mapping[str, str] = {
    "nl.matmul": "without transpose_x=True it first transposes x on the tensor engine and copies the transpose to SBUF",
    "nl.softmax": "several instructions: maximum, exponential, sum, reciprocal, product",
    "nl.mean": "a sum and a product",
    "nl.var": "several instructions: two means and a product",
    "nisa.bn_stats": f"at most {BN_STATS_ELEMENTS} elements a partition",
    "nisa.max8": f"{MAX8_ELEMENTS[0]} to {MAX8_ELEMENTS[1]} elements a partition",
    "nl.rms_norm": "several instructions: square, sum, reciprocal square root, two products",
}
"""Facts about a call that its arguments do not show, by the call: further instructions that it emits, or the number of
elements that it accepts.
"""

LONG_ROW = 16384
"""Bytes of a long row in HBM: a row so long that starting its DMA descriptor takes only a small part of the transfer's
time.
"""

REPLACE = (("transpose", "dma_transpose"), ("tensor_reduce", "bn_stats", "bn_aggr"))
"""Groups of operations that do the same work in different ways. Their traits differ: a transpose by the tensor engine
and one by a transfer, a sum and the statistics of a row.
"""

NARROW_RATES = (
    "where all tiles are 16-bit, the vector engine counts tensor_copy and tensor_scalar as a quarter of the elements (half with "
    "a tile in PSUM), and tensor_tensor in SBUF as half"
)
"""Text on the fast modes of the vector engine."""

KIND = Trait.ELEMENTWISE | Trait.ROUNDS | Trait.BY_ROW | Trait.ACROSS
"""Traits that two operations must have in common if one is to be proposed in place of the other."""


def used_calls(source: str, api: str) -> frozenset[str]:
    """Return the functions of ``nl`` and ``nisa`` that a source calls, such as ``nisa.activation``. A function that is
    only named, as ``nl.exp`` in ``op=nl.exp``, is not called.

    The result is empty if the source is not valid Python.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    short = {f"{PACKAGES[api]}.{name}": alias for name, alias in SHORT.items()}
    modules: dict[str, str] = {}
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {one.asname or one.name: short[one.name] for one in node.names if one.name in short}
        elif isinstance(node, ast.ImportFrom):
            for one in node.names:
                whole = f"{node.module}.{one.name}"
                if whole in short:
                    modules[one.asname or one.name] = short[whole]
                elif node.module in short:
                    names[one.asname or one.name] = f"{short[node.module]}.{one.name}"
    found = set()
    for node in ast.walk(tree):
        function = node.func if isinstance(node, ast.Call) else None
        if isinstance(function, ast.Name) and function.id in names:
            found.add(names[function.id])
        elif isinstance(function, ast.Attribute) and (module := modules.get(ast.unparse(function.value))):
            found.add(f"{module}.{function.attr}")
    return frozenset(found & _functions(api).keys())


def neighbours(calls: Iterable[str], api: str, chip: str) -> frozenset[str]:
    """Return the instructions of ``nisa`` on ``chip`` that do the same kind of work as one of ``calls``, and
    ``nisa.memset``, which any kernel may need.
    """
    used = {operation for call in calls if (operation := operation_of(call)) is not None}
    other = {one for group in REPLACE if used.intersection(group) for one in group} | {"memset"}
    kinds = {_kind(operation) for operation in used}
    return frozenset(
        call
        for call in _functions(api)
        if call.startswith("nisa.")
        and (operation := operation_of(call)) is not None
        and (_kind(operation) in kinds or operation in other)
        and OPS[operation].generation <= chip_spec(chip).generation
    )


def call_lines(calls: Iterable[str], api: str, chip: str) -> list[str]:
    """Return one line for each call: its arguments, its engines on ``chip``, the memories of its tiles, its meaning,
    and further notes.
    """
    functions = _functions(api)
    return [
        f"{call}({functions[call]}){_facts(call, functions[call], chip)}{_besides(call)}"
        for call in sorted(calls, key=_instructions_first)
    ]


def value_lines(calls: Iterable[str], api: str) -> list[str]:
    """Return one line for each argument of ``calls`` that accepts only certain names, with these names."""
    known = (legacy_isa if api == "nki_legacy" else current_isa).namespace()
    named = {word for call in calls for word in _arguments(_functions(api)[call])}
    lines = []
    for argument, name in VALUES.items():
        values = known.get(name)
        if argument in named and isinstance(values, EnumType):
            lines.append(f"{argument}: {', '.join(f'nisa.{name}.{value}' for value in values.__members__)}")
    return lines


def time_lines(api: str, chip: str) -> list[str]:
    """Return lines of text on what instructions cost in the performance model: a fixed time, and a time for each
    element.
    """
    spec = chip_spec(chip)
    params = default_params(api, chip)
    model = CostModel(spec, params, ())
    parts = []
    for engine in (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD):
        short, long = (1000 * model.instruction_us(engine, n) for n in (1024, 2048))
        each = (long - short) / 1024
        fixed, least = short - 1024 * each, 1000 * model.instruction_us(engine, 1)
        begun = f"{fixed:.0f} ns + " if round(fixed) else ""
        longer = least - fixed - each
        few = (
            f", at least {least:.0f} ns" if longer >= 1 else f", {least:.0f} ns for one element" if longer <= -1 else ""
        )
        parts.append(f"{engine.value} {begun}{each:.2f} ns an element{few}")
    product = 1000 * model.instruction_us(Engine.TENSOR, 512)
    turned = 1000 * model.instruction_us(Engine.TENSOR, TENSOR_TRANSPOSE)
    slower = (
        f"the tensor engine runs at half its rate while less than {100 * params.half_use:.0f} % of its rows were in use on average "
        f"over the last {spec.tensor_ramp_us:g} µs: at the start, after it stood idle, and in products that contract over 64 "
        "partitions or fewer"
    )
    return [
        f"time of an instruction, elements counted in one partition (the partitions work at once): {'; '.join(parts)}",
        (
            f"counted as more elements: reciprocal {params.reciprocal_factor:g} times as many, tensor_tensor_scan twice as many, an "
            f"operation on two tiles in SBUF twice as many on gpsimd{'' if spec.fast_16bit_vector else ' and on vector'}, power and rsqrt "
            "in tensor_scalar and its like 4 times as many"
        ),
        (
            f"a matrix product with 512 moving columns: {product:.0f} ns in bfloat16, "
            f"{params.float32_passes * product:.0f} ns in float32; fewer partitions or stationary columns make it no shorter"
        ),
        (
            f"a transpose of {TENSOR_TRANSPOSE} x {TENSOR_TRANSPOSE} on the tensor engine: {turned:.0f} ns in two-byte types, "
            f"{params.transpose_passes * turned:.0f} ns in float32"
        ),
        *([slower] if spec.tensor_ramp_us else []),
        f"a DMA transfer begins {params.dma_latency_us:g} µs after it was issued, and overlaps with all other work",
        (
            "a transposing transfer takes the tensor engine's time too, as the rows are moved unchanged and transposed there"
            if params.turns_on_tensor_engine
            else "nisa.dma_transpose moves and transposes a tile without any other engine, in twice the time of a dma_copy of such rows; for "
            "4-byte elements this is an assumption"
        ),
    ]


def every_call(api: str, chip: str) -> frozenset[str]:
    """Return all functions of ``nl`` and ``nisa`` that run on ``chip``."""
    generation = chip_spec(chip).generation
    return frozenset(
        call
        for call in _functions(api)
        if (operation := operation_of(call)) is None or OPS[operation].generation <= generation
    )


def name_lines(calls: Iterable[str], api: str, chip: str) -> list[str]:
    """Return lines of text with the names of ``nl`` that ``op`` arguments of ``calls`` accept."""
    own = {operation_of(call) for call in calls}
    late = {name for name, first in LATE_ALU_OPS.items() if first > chip_spec(chip).generation}

    def names(known: frozenset[str], aliases: Mapping[str, str]) -> str:
        # the removed names are functions that reduce a tile; as op arguments they have other names
        offered = sorted(_language(api) - {"sum", "prod", "all"})
        return ", ".join(f"nl.{name}" for name in offered if aliases.get(name, name) in known - late)

    if api == "nki":
        two, one = FUNCTIONS["tensor_tensor"]["op"], FUNCTIONS["tensor_scalar"]["op0"]
        lines = [
            (("tensor_tensor", "tensor_scalar"), f"op of tensor_tensor: {names(two, ALU_ALIASES)}"),
            (("tensor_scalar",), f"op of tensor_scalar: these, and nl.invert, {names(one - two, ALU_ALIASES)}"),
            (
                ("scalar_tensor_tensor", "scan"),
                f"op of scalar_tensor_tensor and tensor_tensor_scan: {names(FUNCTIONS['scan']['op0'], ALU_ALIASES)}",
            ),
            (("tensor_reduce",), f"op of tensor_reduce: {names(FUNCTIONS['tensor_reduce']['op'], ALU_ALIASES)}"),
            (("activation",), f"op of activation: {names(ACTIVATION_FUNCTIONS - NO_ACTIVATION, ACTIVATION_ALIASES)}"),
            (
                ("tensor_scalar",),
                "tensor_scalar on scalar: multiply, add, or multiply then add; bitwise operations: vector alone; power: gpsimd alone",
            ),
            (
                ("tensor_tensor", "tensor_scalar"),
                f"no engine has {', '.join(sorted(LEGACY_ONLY))}: multiply by nisa.reciprocal of the divisor",
            ),
        ]
        return [line for operations, line in lines if own & set(operations)]
    return [
        f"op of tensor_tensor, tensor_scalar and their like: {names(ALU_OPS - {'reciprocal'}, ALU_ALIASES)}",
        f"op of reductions: {names(REDUCE_OPS, ALU_ALIASES)}",
        f"op of activation: {names(ACTIVATION_FUNCTIONS, ACTIVATION_ALIASES)}",
    ]


def chip_lines(api: str, chip: str) -> list[str]:
    """Return lines of text with the figures of a chip's core that affect how kernels are written."""
    spec = chip_spec(chip)
    legacy = api == "nki_legacy"
    usable = spec.sbuf_bytes_per_partition - (LEGACY_RESERVED_SBUF_BYTES if legacy else 0)
    rates = ", ".join(f"{dtype} {rate:g}" for dtype, rate in spec.matmul_tflops.items())
    long = (
        LONG_ROW
        * spec.dma_engines
        / CostModel(spec, default_params(api, chip), ()).transfer_us(spec.dma_engines, LONG_ROW)
    )
    return [
        *([] if legacy else _writing_lines()),
        f"partitions: {spec.partitions}, the first axis of every tile",
        f"SBUF: {usable // 1024} KiB a partition",
        (
            f"PSUM: {spec.psum_banks} banks of {spec.psum_bank_bytes} B a partition; only products and transposes of the "
            "tensor engine accumulate there, and gpsimd and DMA do not reach it"
        ),
        (
            f"matrix product: contraction of at most {spec.partitions} (the partitions of both operands), stationary "
            f"operand at most {STATIONARY_COLUMNS} columns, moving operand at most {spec.moving_columns} columns of float32"
        ),
        (
            f"transpose: {TENSOR_TRANSPOSE} x {TENSOR_TRANSPOSE} on the tensor engine, {VECTOR_TRANSPOSE} x "
            f"{VECTOR_TRANSPOSE} on the vector engine"
        ),
        (
            f"HBM: {spec.hbm_bytes_per_us / 1000:.0f} GB/s; {spec.dma_engines} DMA engines, together "
            f"{long / 1000:.0f} GB/s with long contiguous rows; each row costs an "
            f"engine {1000 * spec.dma_descriptor_us:.0f} ns more, so rows under {_short_row(spec)} B waste most of it"
        ),
        "the engines work at the same time; where a call names no engine, the compiler chooses an engine that can run the call",
        f"matrix products: {rates} TFLOP/s",
        *(["vector and gpsimd take turns at SBUF"] if spec.shared_vector_gpsimd_port else []),
        *([NARROW_RATES] if spec.fast_16bit_vector else []),
    ]


def _writing_lines() -> list[str]:
    """Return lines of text on what a kernel of the current API may contain, and on the effects of the order of its
    statements.
    """
    return [
        "element types: nl.float32, nl.bfloat16, nl.float16 and their like",
        (
            "a tile that the body of a loop declares is a new one in each iteration, and lists may keep tiles for later ones; "
            "comprehensions, lambda, try and classes in a kernel are refused"
        ),
        (
            "arithmetic is done in float32 and rounded to the type of dst, so that a copy into a tile of another type converts; "
            "operands of a product are both float32 or neither is, and its result is float32 in PSUM; a transpose by the tensor "
            "engine keeps the type of its data"
        ),
        "a tile of PSUM may span several banks, and one instruction of another engine may read all of it; one product writes one bank",
        "each engine takes its instructions nearly in the written order: what waits for another engine delays what is written after it",
    ]


def operation_of(call: str) -> str | None:
    """Return the operation of the simulator that a call becomes; None if the call becomes several operations, or no
    operation.
    """
    module, _, name = call.partition(".")
    if module == "nl":
        return LANGUAGE_OPERATIONS.get(name)
    words = name.split("_")
    if name in OPS:
        return name
    for start in range(1, len(words)):
        if "_".join(words[start:]) in OPS:
            return "_".join(words[start:])
    for end in range(len(words) - 1, 0, -1):
        if "_".join(words[:end]) in OPS:
            return "_".join(words[:end])
    return None


@cache
def _language(api: str) -> frozenset[str]:
    """Return the names that ``nl`` has in an API."""
    return frozenset((legacy_language if api == "nki_legacy" else current_language).namespace())


@cache
def _functions(api: str) -> Mapping[str, str]:
    """Return the arguments, as text, of each supported function. Keys are short names such as ``nl.exp``."""
    legacy = api == "nki_legacy"
    places = {
        "nl": (legacy_language if legacy else current_language).namespace(),
        "nisa": (legacy_isa if legacy else current_isa).namespace(),
    }
    states = SURFACE if legacy else surface()
    return {
        f"{short}.{name}": arguments_of(places[short][name])
        for module, short in SHORT.items()
        for name, state in states[f"{PACKAGES[api]}.{module}"].items()
        if state.startswith("supported") and callable(places[short].get(name)) and name not in LOOPS
    }


def _arguments(signature: str) -> list[str]:
    """Return the names of a call's arguments."""
    parts = (part.partition("=")[0].strip().lstrip("*") for part in signature.split(","))
    return [part for part in parts if part.isidentifier()]


def _meaning(meaning: str, operation: str, signature: str) -> str:
    """Return the meaning of an operation in the words of a call: operands have the names of the call's arguments.

    ``signature`` is the call's signature. Clauses about arguments that the call lacks are left out.
    """
    own, kept = set(_arguments(signature)), list[str]()
    for clause in re.split(r"(?<=[;.])\s+", meaning):
        words, missing = clause, False
        for word in sorted(_own_words(operation), key=len, reverse=True):
            if not re.search(rf"\b{word}\b", words):
                continue
            name = next((other for other in (word, *SPELLED.get(word, ())) if other in own), None)
            if name is None and word == "dst":
                name = "result"
            missing = missing or name is None
            # a label, such as "reverse:", is replaced together with its colon
            label = ":" if f"{word}:" in words else ""
            words = re.sub(rf"\b{word}\b{label}", (name or word) + label, words)
        if not missing or not kept:
            kept.append(words)
    return " ".join(kept).rstrip(";. ")


def _own_words(operation: str) -> frozenset[str]:
    """Return the names of operands and attributes that may occur in the text about an operation's meaning."""
    one = OPS[operation]
    return frozenset({operand.name for operand in (*one.dsts, *one.srcs)} | one.attrs | {"oob", "src"})


def _besides(call: str) -> str:
    return f"; {HIDDEN[call]}" if call in HIDDEN else ""


def _facts(call: str, signature: str, chip: str) -> str:
    operation = operation_of(call)
    if operation is None:
        return ""
    one = OPS[operation]
    if one.memory is Memory.DMA:
        engines = "DMA"
    else:
        generation = chip_spec(chip).generation
        having = (engine for engine in one.engines if ENGINE_SINCE.get((operation, engine), 0) <= generation)
        engines = " or ".join(sorted(engine.value for engine in having))
    places = {
        Memory.CHIP: "SBUF or PSUM",
        Memory.SBUF: "SBUF",
        Memory.PRODUCT: "operands in SBUF, result in PSUM",
        Memory.DMA: "HBM or SBUF",
        Memory.ANY: "",
    }[one.memory]
    limits = "at most one operand in PSUM" if Trait.TWO_TILES in one.traits else ""
    facts = "; ".join(filter(None, (engines, places, limits)))
    meaning = (
        f": {_meaning(OWN_MEANINGS.get(call, one.meaning), operation, signature)}" if call.startswith("nisa.") else ""
    )
    return f"  [{facts}]{meaning}" if facts else meaning


def _kind(operation: str) -> tuple[str, str, Trait]:
    one = OPS[operation]
    return one.space, one.memory.value, one.traits & KIND


def _instructions_first(call: str) -> tuple[bool, str]:
    return call.startswith("nl."), call


def _short_row(spec: ChipSpec) -> int:
    """Return the length of a row in bytes whose transfer takes as long as the work on its DMA descriptor. The
    transfer of a shorter row takes no less time.
    """
    return round(spec.dma_descriptor_us * spec.dma_wire_bytes_per_us)
