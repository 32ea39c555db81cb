"""Tell the compiler to unroll an innermost loop."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from acceld.devices.cpu.rules.building import replaced
from acceld.devices.cpu.rules.reading import CModule, loops_in
from acceld.devices.cpu.rules.syntax import For
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant

_FACTORS = (4, 2, 8)
_MANY_TRIPS = 16


class Unroll(Rule):
    """Add ``#pragma GCC unroll`` to an innermost loop."""

    name = "unroll"
    reason = "Fewer branches and counters for each element, and more independent work for the processor to choose from."
    source = "GCC manual, loop-specific pragmas (unroll)"
    apis = frozenset({"c"})
    change_class = "mixed"

    def find(self, kernel: CModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each innermost loop of at least 16 iterations, or of an unknown number.

        Loops with a pragma to unroll or to vectorize are left out. Unrolling never changes results.
        """
        for loop in kernel.loops:
            few = (kernel.trips(loop) or _MANY_TRIPS) < _MANY_TRIPS
            if loops_in(loop.body) or few or any("unroll" in one.text or "omp" in one.text for one in loop.pragmas):
                continue
            yield self.found(
                loop.line,
                partial(_unrolled, kernel, loop),
                *(Variant(f"by_{factor}", {"factor": factor}) for factor in _FACTORS),
                precondition="unrolling changes neither what is computed nor the order",
                plan=f"Line {loop.line}: unroll the loop over {loop.var}.",
                benefit=0.1,
                gain_percent=(0.0, 15.0),
                key=f"{loop.start}",
            )


def _unrolled(kernel: CModule, loop: For, variant: Variant) -> str:
    indent = kernel.indentation(loop.start)
    pragmas = [*(one.text for one in loop.pragmas), f"#pragma GCC unroll {variant.parameters['factor']}"]
    return replaced(kernel, loop, [indent + line for line in (*pragmas, kernel.text(loop))])


RULE = Unroll()
