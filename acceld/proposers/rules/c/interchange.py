"""Two perfectly nested loops change places."""

from __future__ import annotations

from collections.abc import Sequence

from acceld.model import Profile
from acceld.proposers.rules.c.building import STEP, body_lines, header, replaced
from acceld.proposers.rules.c.reading import CModule, only_loop
from acceld.proposers.rules.c.syntax import For
from acceld.proposers.rules.records import RuleRefused, Site, Variant


class Interchange:
    """The inner loop comes out where that makes accesses of the new inner loop contiguous."""

    name = "c_interchange"
    reason = (
        "A cache line holds 16 neighboring floats: an inner loop along them uses each line once and in full, and its "
        "loads are vector loads."
    )
    source = "Allen and Kennedy, Optimizing Compilers for Modern Architectures, 5.2; GCC manual, -floop-interchange"
    apis = frozenset({"c"})
    change_class = "loop_order"

    def sites(self, kernel: CModule, profile: Profile | None) -> Sequence[Site]:
        """Pairs that may change places."""
        found = []
        for outer in kernel.loops:
            inner = only_loop(outer)
            if inner is None or not kernel.interchangeable(outer, inner):
                continue
            gain = _contiguous(kernel, inner, outer.var) - _contiguous(kernel, inner, inner.var)
            found.append(
                Site(
                    self.name,
                    outer.line,
                    "every written element is touched along one of the two loops only, and bounds do not depend on them",
                    f"Lines {outer.line} and {inner.line}: make the loop over {outer.var} the inner one.",
                    (Variant("swap"),),
                    0.8 if gain > 0 else 0.15,
                    (20.0, 90.0) if gain > 0 else (-50.0, 20.0),
                    key=f"{outer.start}",
                )
            )
        return found

    def apply(self, kernel: CModule, site: Site, variant: Variant) -> str:
        """Swap the headers."""
        for outer in kernel.loops:
            inner = only_loop(outer)
            if str(outer.start) == site.key and inner is not None and kernel.interchangeable(outer, inner):
                indent = kernel.indent(outer)
                lines = [
                    f"{indent}{header(kernel, inner)} {{",
                    f"{indent}{STEP}{header(kernel, outer)} {{",
                    *body_lines(kernel, inner.body.items, indent + 2 * STEP),
                    f"{indent}{STEP}}}",
                    f"{indent}}}",
                ]
                return replaced(kernel, outer, lines)
        raise RuleRefused(f"line {site.line}: no such pair of loops")


def _contiguous(kernel: CModule, loop: For, name: str) -> int:
    """Accesses along which ``name`` moves by one element, less those where it jumps."""
    count = 0
    for access in kernel.accesses(loop.body):
        stride = access.form.get(name, 0) if access.form is not None else 2
        count += (stride == 1) - (abs(stride) > 1)
    return count


RULE = Interchange()
