"""Pointers of the kernel's arguments marked restrict."""

from __future__ import annotations

from collections.abc import Sequence

from acceld.model import Profile
from acceld.proposers.rules.c.reading import CModule
from acceld.proposers.rules.c.syntax import Function
from acceld.proposers.rules.editing import Edits
from acceld.proposers.rules.records import RuleRefused, Site, Variant


class Restrict:
    """What a kernel is given never overlaps: the compiler may know."""

    name = "restrict"
    reason = (
        "Without it every store may change what was loaded, so values are loaded again and loops get run-time checks "
        "for overlap, or are not vectorized."
    )
    source = "C11, 6.7.3.1; GCC manual, restricted pointers"
    apis = frozenset({"c"})
    change_class = "mixed"

    def sites(self, kernel: CModule, profile: Profile | None) -> Sequence[Site]:
        """The last function, the kernel, where a pointer lacks it."""
        function = _kernel(kernel)
        lacking = [one.name for one in function.parameters if one.pointer and not one.restrict] if function else []
        if function is None or len(lacking) == 0:
            return []
        return [
            Site(
                self.name,
                kernel.line(function.start),
                "a workload's arguments and outputs are arrays of their own",
                f"Mark {', '.join(lacking)} as restrict.",
                (Variant("restrict"),),
                0.35,
                (0.0, 50.0),
            )
        ]

    def apply(self, kernel: CModule, site: Site, variant: Variant) -> str:
        """``restrict`` behind each star."""
        function = _kernel(kernel)
        lacking = [one for one in function.parameters if one.pointer and not one.restrict] if function else []
        if not lacking:
            raise RuleRefused("every pointer is restrict already")
        edits = Edits(kernel.source)
        for one in lacking:
            edits.insert(one.star_end, "restrict ")
        return edits.apply()


def _kernel(kernel: CModule) -> Function | None:
    named = [one for one in kernel.functions if one.name == "kernel"]
    return named[0] if named else kernel.functions[-1] if kernel.functions else None


RULE = Restrict()
