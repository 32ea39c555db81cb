"""Tell the compiler that an innermost loop can be vectorized: iterations are independent, or share only reductions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from acceld.devices.cpu.rules.building import replaced
from acceld.devices.cpu.rules.reading import CModule, loops_in
from acceld.devices.cpu.rules.reductions import Reduction, reductions
from acceld.devices.cpu.rules.syntax import For
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant


class Vectorize(Rule):
    """Add ``#pragma omp simd``, with the loop's reductions, or ``#pragma GCC ivdep`` to an innermost loop."""

    name = "vectorize"
    reason = "The compiler may not reorder floating-point sums or assume that pointers do not overlap. With a pragma that allows this, the compiler computes a whole vector of iterations at once."
    source = "GCC manual, loop-specific pragmas (ivdep) and -fopenmp-simd; OpenMP 5.2, simd construct"
    apis = frozenset({"c"})
    change_class = "mixed"

    def find(self, kernel: CModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each innermost loop that can be vectorized and does not have the pragma yet."""
        for loop in kernel.loops:
            carried = _vectorizable(kernel, loop)
            if carried is None:
                continue
            sums = ", ".join(f"{one.op}:{one.name}" for one in carried)
            plan = f"Line {loop.line}: mark the loop over {loop.var} to be vectorized"
            yield self.found(
                loop.line,
                partial(_marked, kernel, loop, carried),
                *([Variant("simd")] if carried else [Variant("simd"), Variant("ivdep")]),
                precondition=f"iterations share only {sums}"
                if carried
                else f"iterations of {loop.var} are independent",
                plan=f"{plan}, with the reductions {sums}." if carried else f"{plan}.",
                benefit=0.75 if carried else 0.25,
                gain_percent=(20.0, 85.0) if carried else (0.0, 30.0),
                key=f"{loop.start}",
            )


def _marked(kernel: CModule, loop: For, carried: Sequence[Reduction], variant: Variant) -> str:
    """Return the source with a pragma before the loop. A maximum by fmaxf becomes a comparison, which the
    compiler vectorizes.
    """
    clauses = "".join(f" reduction({one.op}:{one.name})" for one in carried)
    pragma = "#pragma GCC ivdep" if variant.name == "ivdep" else f"#pragma omp simd{clauses}"
    # A loop can not have both an OpenMP pragma and a GCC pragma.
    kept = [one.text for one in loop.pragmas if variant.name == "ivdep"]
    edits = Edits(kernel.text(loop))
    for one in carried:
        if one.comparison:
            edits.replace(one.statement.start - loop.start, one.statement.end - loop.start, one.comparison)
    indent = kernel.indentation(loop.start)
    return replaced(kernel, loop, [indent + line for line in (*kept, pragma, edits.apply())])


def _vectorizable(kernel: CModule, loop: For) -> list[Reduction] | None:
    """Return the reductions of an innermost loop; None if it is not proved that the loop can be vectorized."""
    if loops_in(loop.body) or any("simd" in one.text or "ivdep" in one.text for one in loop.pragmas):
        return None
    return reductions(kernel, loop)


RULE = Vectorize()
