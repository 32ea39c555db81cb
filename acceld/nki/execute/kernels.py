"""Choose the function that compiles each operation."""

from __future__ import annotations

from collections.abc import Callable

from acceld.nki.errors import MissingRule
from acceld.nki.execute import collectives, control, elementwise, moves, products, reductions, search
from acceld.nki.execute.context import Context, Step

BUILDERS: dict[str, Callable[[Context], Step]] = {
    **moves.BUILDERS,
    **products.BUILDERS,
    **elementwise.BUILDERS,
    **reductions.BUILDERS,
    **search.BUILDERS,
    **control.BUILDERS,
    **collectives.BUILDERS,
}


def build(context: Context) -> Step:
    """Return the instruction's step: a function of the iteration and the window. Raise MissingRule for an operation
    without execution rule.
    """
    builder = BUILDERS.get(context.op)
    if builder is None:
        raise MissingRule(f"operation {context.op!r} has no execution rule")
    return builder(context)
