"""List the functions that are rewritten: their legacy parameters, and the new ones."""

from __future__ import annotations

from dataclasses import dataclass

from acceld.nki.frontend.core.language import BINARY, UNARY
from acceld.nki.ir.operations import COMPOSED_FUNCTIONS, NO_ACTIVATION

REDUCTIONS = {"sum": "nl.add", "prod": "nl.multiply", "max": "nl.maximum", "min": "nl.minimum"}
TWO_TILES = frozenset(BINARY)
ACTIVATIONS = frozenset(UNARY) - NO_ACTIVATION - {"reciprocal"}
SAME = (
    frozenset("where softmax mean var all load_transpose2d gather_flattened invert logical_not dropout".split())
    | COMPOSED_FUNCTIONS
)
"""Functions of ``nl`` that stay unchanged, without ``mask``."""
OPERATORS = {
    "Add": "add", "Sub": "subtract", "Mult": "multiply", "Div": "divide", "Pow": "power", "Mod": "mod",
    "BitAnd": "bitwise_and", "BitOr": "bitwise_or", "BitXor": "bitwise_xor", "LShift": "left_shift",
    "RShift": "right_shift",
}  # fmt: skip
COMPARISONS = {
    "Lt": "less", "LtE": "less_equal", "Gt": "greater", "GtE": "greater_equal", "Eq": "equal", "NotEq": "not_equal",
}  # fmt: skip
PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(BINARY, ("x", "y")),
    **dict.fromkeys(UNARY, ("x",)),
    **dict.fromkeys(("sum", "prod", "max", "min", "mean", "var", "all"), ("x", "axis")),
    "load": ("src",), "load_transpose2d": ("src",), "copy": ("src",), "static_cast": ("input_data", "dtype"),
    "matmul": ("x", "y"), "transpose": ("x",), "loop_reduce": ("x", "op", "loop_indices"), "softmax": ("x", "axis"),
    "rms_norm": ("x", "w", "axis", "n", "epsilon"), "where": ("condition", "x", "y"),
    "gather_flattened": ("data", "indices"), "dropout": ("x", "rate"), "full": ("shape", "fill_value", "dtype"),
    **dict.fromkeys(("ndarray", "zeros", "ones"), ("shape", "dtype")),
    **dict.fromkeys(("empty_like", "zeros_like"), ("a", "dtype")),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Instruction:
    """The legacy positional parameters of a function of ``nisa``, and how it is rewritten."""

    parameters: tuple[str, ...]
    writes: bool = False
    """True if it also has a ``dst`` in the legacy API."""
    other_shape: bool = False
    """True if its result has another shape than its operands."""


INSTRUCTIONS = {
    "activation": Instruction(("op", "data")),
    "activation_reduce": Instruction(("op", "data")),
    "affine_select": Instruction(("pred", "on_true_tile", "on_false_value")),
    "bn_aggr": Instruction(("data",), other_shape=True),
    "bn_stats": Instruction(("data",), other_shape=True),
    "dma_transpose": Instruction(("src",), other_shape=True),
    "dropout": Instruction(("data", "prob")),
    "iota": Instruction(("expr", "dtype"), other_shape=True),
    "local_gather": Instruction(("src_buffer", "index", "num_elem_per_idx", "num_valid_indices"), other_shape=True),
    "max8": Instruction((), other_shape=True),
    "memset": Instruction(("shape", "value", "dtype"), other_shape=True),
    "nc_find_index8": Instruction((), other_shape=True),
    "nc_match_replace8": Instruction(()),
    "nc_matmul": Instruction(("stationary", "moving"), other_shape=True),
    "nc_stream_shuffle": Instruction(("src", "dst", "shuffle_mask"), writes=True),
    "nc_transpose": Instruction(("data",), other_shape=True),
    "range_select": Instruction(()),
    "reciprocal": Instruction(("data",)),
    "scalar_tensor_tensor": Instruction(()),
    "select_reduce": Instruction((), writes=True),
    "sequence_bounds": Instruction((), other_shape=True),
    "tensor_copy": Instruction(("src",)),
    "tensor_copy_predicated": Instruction((), writes=True),
    "tensor_partition_reduce": Instruction(("op", "data"), other_shape=True),
    "tensor_reduce": Instruction(("op", "data", "axis"), other_shape=True),
    "tensor_scalar": Instruction(("data", "op0", "operand0", "reverse0", "op1", "operand1", "reverse1")),
    "tensor_scalar_reduce": Instruction(()),
    "tensor_tensor": Instruction(("data1", "data2", "op")),
    "tensor_tensor_scan": Instruction(("data0", "data1", "initial", "op0", "op1", "reverse0", "reverse1")),
}
GPSIMD = frozenset("affine_select local_gather tensor_partition_reduce".split())
"""Instructions of GpSimd, which does not read PSUM."""
NUMPY = {
    "max": "maximum", "min": "minimum", "amax": "maximum", "amin": "minimum", "sum": "add", "prod": "multiply",
    "true_divide": "divide", "remainder": "mod",
}  # fmt: skip


def operation_name(word: str) -> str:
    """Return an operator of ``np`` or ``nl`` by its name in ``nl``; empty for anything else."""
    space, _, name = word.partition(".")
    if space not in ("np", "nl") or not name:
        return ""
    return f"nl.{NUMPY.get(name, name)}"
