"""An innermost loop that the compiler is told to unroll."""

from __future__ import annotations

from collections.abc import Sequence

from acceld.model import Profile
from acceld.proposers.rules.c.building import replaced
from acceld.proposers.rules.c.reading import CModule, loops_in
from acceld.proposers.rules.records import RuleRefused, Site, Variant

_FACTORS = (4, 2, 8)
_MANY_TRIPS = 16


class Unroll:
    """``#pragma GCC unroll``."""

    name = "unroll"
    reason = "Fewer branches and counters for each element, and more independent work for the processor to choose from."
    source = "GCC manual, loop-specific pragmas (unroll)"
    apis = frozenset({"c"})
    change_class = "mixed"

    def sites(self, kernel: CModule, profile: Profile | None) -> Sequence[Site]:
        """Innermost loops without the pragma; unrolling never changes what is computed."""
        return [
            Site(
                self.name,
                loop.line,
                "unrolling changes nothing that is computed, nor its order",
                f"Line {loop.line}: unroll the loop over {loop.var}.",
                tuple(Variant(f"by_{factor}", {"factor": factor}) for factor in _FACTORS),
                0.1,
                (0.0, 15.0),
                key=f"{loop.start}",
            )
            for loop in kernel.loops
            if not loops_in(loop.body)
            and (kernel.trips(loop) or _MANY_TRIPS) >= _MANY_TRIPS
            and not any("unroll" in one.text or "omp" in one.text for one in loop.pragmas)
        ]

    def apply(self, kernel: CModule, site: Site, variant: Variant) -> str:
        """The loop with its pragma."""
        for loop in kernel.loops:
            if str(loop.start) == site.key:
                indent = kernel.indent(loop)
                pragmas = [f"{indent}{one.text}" for one in loop.pragmas]
                pragma = f"{indent}#pragma GCC unroll {variant.parameters['factor']}"
                return replaced(kernel, loop, [*pragmas, pragma, indent + kernel.text(loop)])
        raise RuleRefused(f"line {site.line}: no such loop")


RULE = Unroll()
