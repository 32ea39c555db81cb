"""Find the function that compiles each operation."""

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
    """Return the instruction as a function of iteration and window. MissingRule for an operation that has none."""
    builder = BUILDERS.get(context.op)
    if builder is None:
        raise MissingRule(f"operation {context.op!r} has no execution rule")
    return builder(context)
