"""An innermost loop marked as one that may be vectorized: its iterations are independent, or only add up."""

from __future__ import annotations

from collections.abc import Sequence

from acceld.model import Profile
from acceld.proposers.rules.c.building import replaced
from acceld.proposers.rules.c.reading import CModule, loops_in
from acceld.proposers.rules.c.reductions import Reduction, reductions
from acceld.proposers.rules.c.syntax import For
from acceld.proposers.rules.records import RuleRefused, Site, Variant


class Vectorize:
    """``#pragma omp simd``, with the sums and maxima it carries named, or ``#pragma GCC ivdep``."""

    name = "vectorize"
    reason = (
        "The compiler may not reorder floating-point sums or assume that pointers do not overlap; told that it may, it "
        "computes a whole vector of iterations at once."
    )
    source = "GCC manual, loop-specific pragmas (ivdep) and -fopenmp-simd; OpenMP 5.2, simd construct"
    apis = frozenset({"c"})
    change_class = "mixed"

    def sites(self, kernel: CModule, profile: Profile | None) -> Sequence[Site]:
        """Innermost loops without such a pragma."""
        found = []
        for loop in kernel.loops:
            carried = _vectorizable(kernel, loop)
            if carried is None:
                continue
            sums = ", ".join(f"{one.op}:{one.name}" for one in carried)
            variants = [Variant("simd")] if carried else [Variant("simd"), Variant("ivdep")]
            found.append(
                Site(
                    self.name,
                    loop.line,
                    f"iterations share only {sums}" if carried else f"iterations of {loop.var} are independent",
                    f"Line {loop.line}: mark the loop over {loop.var} as one to vectorize"
                    + (f", with the reductions {sums}." if carried else "."),
                    tuple(variants),
                    0.75 if carried else 0.25,
                    (20.0, 85.0) if carried else (0.0, 30.0),
                    key=f"{loop.start}",
                )
            )
        return found

    def apply(self, kernel: CModule, site: Site, variant: Variant) -> str:
        """The loop with its pragma; maxima by fmaxf are written as comparisons, which vectors have."""
        for loop in kernel.loops:
            carried = _vectorizable(kernel, loop) if str(loop.start) == site.key else None
            if carried is None:
                continue
            indent = kernel.indent(loop)
            clauses = "".join(f" reduction({one.op}:{one.name})" for one in carried)
            pragma = "#pragma GCC ivdep" if variant.name == "ivdep" else f"#pragma omp simd{clauses}"
            # An OpenMP pragma and the compiler's own can not stand before one loop.
            kept = [f"{indent}{one.text}" for one in loop.pragmas if variant.name == "ivdep"]
            text = kernel.text(loop)
            for one in sorted(carried, key=lambda one: -one.statement.start):
                if one.comparison:
                    start, end = one.statement.start - loop.start, one.statement.end - loop.start
                    text = text[:start] + one.comparison + text[end:]
            return replaced(kernel, loop, [*kept, f"{indent}{pragma}", indent + text])
        raise RuleRefused(f"line {site.line}: no such loop")


def _vectorizable(kernel: CModule, loop: For) -> list[Reduction] | None:
    """What an innermost loop carries; None where it can not be proven to be vectorizable."""
    if loops_in(loop.body) or any("simd" in one.text or "ivdep" in one.text for one in loop.pragmas):
        return None
    return reductions(kernel, loop)


RULE = Vectorize()
