"""Use fewer, wider instructions: do element-wise work, its loads and its stores on wider tiles.

Before, two iterations of 512 columns; after, one of 1024::

    for c in nl.affine_range(2):                              f_1024 = nl.arange(1024)[None, :]
        y[p, 512 * c + f] = nl.exp(x[p, 512 * c + f])         y[p, f_1024] = nl.exp(x[p, f_1024])
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from acceld.model import Profile
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import TRANSFERS
from acceld.proposers.rules.nki.column_steps import ANY_COLUMNS, ColumnSteps, column_steps
from acceld.proposers.rules.nki.wider_steps import widened
from acceld.proposers.rules.records import Place, Rule, Variant

_WIDEST = 8192
_PSUM_WIDTH = 512
_TARGET_COLUMNS = 2048
_TARGET_BYTES = 96 * 1024


class WidenTiles(Rule):
    """Join several iterations of an element-wise loop into one iteration on wider tiles."""

    name = "widen_tiles"
    reason = (
        "Each instruction has a fixed cost of 60 to 130 cycles besides one cycle an element, and a DMA row below 2 KiB "
        "takes as long as one of 2 KiB: one instruction on 2048 columns is cheaper than four on 512."
    )
    source = "AWS NKI guides: MIN_II 64 cycles, about 100 cycles static overhead; DMA efficiency by bytes a partition"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "tile_width"
    everywhere = True

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield loops over the columns of tiles. If tiles can not be wider, the place has the reason."""
        for loop in kernel.loops:
            steps = column_steps(kernel, loop)
            if isinstance(steps, ColumnSteps) and (factors := _factors(steps)):
                widths = " or ".join(str(steps.columns * factor) for factor in factors)
                yield self.found(
                    loop.line,
                    partial(_with_larger_steps, kernel, steps),
                    *(Variant(f"{steps.columns * factor} columns", {"factor": factor}) for factor in factors),
                    precondition="every instruction in the loop is element-wise on its own columns, and larger steps cover the "
                    "same columns",
                    plan=f"Loop {loop.variable} does {steps.operations} element-wise operations and {steps.transfers} "
                    f"transfers on {steps.columns} columns at a time. Take {widths} columns at a time, so that fixed costs "
                    "are paid less often.",
                    benefit=min(0.5, 0.08 * steps.operations * (512 / steps.columns)),
                    gain_percent=(2.0, 20.0),
                )
                continue
            reason = _limit(steps) if isinstance(steps, ColumnSteps) else steps
            if reason and any(one.op in ANY_COLUMNS - {*TRANSFERS} for one in loop.statements()):
                yield self.refused(loop.line, reason, f"Take more columns at a time in loop {loop.variable}")


def _with_larger_steps(kernel: KernelModule, steps: ColumnSteps, variant: Variant) -> str:
    return widened(kernel, steps, int(variant.parameters["factor"]))


def _factors(steps: ColumnSteps) -> list[int]:
    """Return the numbers of steps that may become one step: at most three numbers, the best first.

    The best number gives a step of about 2048 columns, in tiles that leave room in SBUF.
    """
    widest = _PSUM_WIDTH if steps.psum else _WIDEST
    most = max(2, _TARGET_BYTES // (4 * steps.columns * steps.instructions))
    factors = [
        factor
        for factor in range(2, steps.trips + 1)
        if steps.trips % factor == 0 and steps.columns * factor <= widest and factor <= most
    ]
    return sorted(factors, key=lambda factor: abs(steps.columns * factor - _TARGET_COLUMNS))[:3]


def _limit(steps: ColumnSteps) -> str:
    """Return the reason why one step can not take all columns; empty if it can."""
    columns, tiles = steps.columns * steps.trips, steps.instructions
    where, kib = f"line {steps.loop.line}: {columns} columns", 4 * columns * tiles >> 10
    if steps.psum and columns > _PSUM_WIDTH:
        return f"{where} are more than the {_PSUM_WIDTH} columns that a PSUM bank holds: copy the products to SBUF in a loop of its own"
    if 4 * columns * tiles > max(_TARGET_BYTES, 8 * steps.columns * tiles):
        return f"{where} in {tiles} tiles take {kib} KiB a partition, more than {_TARGET_BYTES >> 10}: use fewer tiles"
    return ""


RULE = WidenTiles()
