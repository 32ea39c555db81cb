"""List the functions of the legacy API that ``acceld port`` rewrites."""

from __future__ import annotations

from acceld.nki.frontend.core.language import BINARY, UNARY
from acceld.nki.frontend.legacy import isa
from acceld.nki.ir.operations import COMPOSED_FUNCTIONS, NO_ACTIVATION

REDUCTIONS = {"sum": "nl.add", "prod": "nl.multiply", "max": "nl.maximum", "min": "nl.minimum"}
TWO_TILES = frozenset(BINARY)
ACTIVATIONS = frozenset(UNARY) - NO_ACTIVATION - {"reciprocal"}
SAME = (
    frozenset("where softmax mean var all load_transpose2d gather_flattened invert logical_not dropout".split())
    | COMPOSED_FUNCTIONS
)
"""Functions of ``nl`` that both APIs have. Their calls stay, but without ``mask``."""
OPERATORS = {
    "Add": "add", "Sub": "subtract", "Mult": "multiply", "Div": "divide", "Pow": "power", "Mod": "mod",
    "BitAnd": "bitwise_and", "BitOr": "bitwise_or", "BitXor": "bitwise_xor", "LShift": "left_shift",
    "RShift": "right_shift",
}  # fmt: skip
COMPARISONS = {
    "Lt": "less", "LtE": "less_equal", "Gt": "greater", "GtE": "greater_equal", "Eq": "equal", "NotEq": "not_equal",
}  # fmt: skip
LANGUAGE = (
    frozenset(BINARY)
    | frozenset(UNARY)
    | frozenset("sum prod max min mean var all load load_transpose2d copy static_cast matmul transpose".split())
    | frozenset("loop_reduce softmax rms_norm where gather_flattened dropout full ndarray zeros ones".split())
    | frozenset("empty_like zeros_like".split())
)
"""Functions of ``nl`` that are rewritten."""
INSTRUCTIONS = frozenset(one.__name__ for one in isa.FUNCTIONS) - {
    "get_nc_version", "dma_copy", "tensor_scalar_cumulative",
}  # fmt: skip
"""Functions of ``nisa`` that are rewritten."""
WRITES = frozenset("nc_stream_shuffle select_reduce tensor_copy_predicated".split())
"""Functions of ``nisa`` that take a ``dst`` argument in the legacy API too; the others return their result there."""
OTHER_SHAPE = frozenset(
    "bn_aggr bn_stats dma_transpose iota local_gather max8 memset nc_find_index8 nc_matmul nc_transpose "
    "sequence_bounds tensor_partition_reduce tensor_reduce".split()
)
"""Functions of ``nisa`` whose result has a different shape from their operands."""
GPSIMD = frozenset("affine_select local_gather tensor_partition_reduce".split())
"""Instructions that run on GpSimd, which can not read PSUM."""
NUMPY = {
    "max": "maximum", "min": "minimum", "amax": "maximum", "amin": "minimum", "sum": "add", "prod": "multiply",
    "true_divide": "divide", "remainder": "mod",
}  # fmt: skip


def operation_name(word: str) -> str:
    """Return the name in ``nl`` of an operator of ``np`` or ``nl``, such as ``nl.maximum`` for ``np.max``; empty for
    any other text.
    """
    space, _, name = word.partition(".")
    if space not in ("np", "nl") or not name:
        return ""
    return f"nl.{NUMPY.get(name, name)}"
