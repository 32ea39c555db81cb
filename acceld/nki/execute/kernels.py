"""Choose the function that compiles each operation."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

from acceld.nki.errors import MissingRule
from acceld.nki.execute import collectives, control, elementwise, moves, products, reductions, search
from acceld.nki.execute.context import Context, Step
from acceld.nki.ir.operations import OPS

_MODULES = (moves, products, elementwise, reductions, search, control, collectives)
BUILDERS: dict[str, Callable[[Context], Step]] = {
    name: function
    for module in _MODULES
    for name, function in vars(module).items()
    if name in OPS and isinstance(function, FunctionType) and function.__module__ == module.__name__
} | {
    "dma_transpose": moves.copy,
    "broadcast_partition": moves.copy,
    "scalar_tensor_tensor": elementwise.tensor_scalar,
    "print": control.nothing,
}
"""The function that compiles each operation, by the operation's name. Nearly all of these functions have that name too,
and are in one of the imported modules.
"""


def build(context: Context) -> Step:
    """Compile an instruction. The returned function runs the instruction for given iterations of its loops and the
    window that its mask keeps.

    Raise MissingRule for an operation without an execution rule.
    """
    builder = BUILDERS.get(context.op)
    if builder is None:
        raise MissingRule(f"operation {context.op!r} has no execution rule")
    return builder(context)
