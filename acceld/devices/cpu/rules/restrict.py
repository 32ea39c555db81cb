"""Tell the compiler that a kernel's arrays do not overlap: mark their pointers ``restrict``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from acceld.devices.cpu.rules.reading import CModule
from acceld.devices.cpu.rules.syntax import Parameter
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant


class Restrict(Rule):
    """Mark a kernel's array arguments ``restrict``. The workload promises that they do not overlap."""

    name = "restrict"
    reason = (
        "Without restrict every store may change what was loaded, so values are loaded again and loops get run-time checks "
        "for overlap, or are not vectorized."
    )
    source = "C11, 6.7.3.1; GCC manual, restricted pointers"
    apis = frozenset({"c"})
    change_class = "mixed"

    def find(self, kernel: CModule, profile: Profile | None) -> Iterator[Place]:
        """Yield one place if a pointer of the kernel is not marked ``restrict``."""
        named = [one for one in kernel.functions if one.name == "kernel"] or kernel.functions[-1:]
        for function in named[:1]:
            lacking = [one for one in function.parameters if one.pointer and not one.restrict]
            if lacking:
                yield self.found(
                    kernel.line(function.start),
                    partial(_marked, kernel, lacking),
                    Variant("restrict"),
                    precondition="a workload's arguments and outputs are arrays of their own",
                    plan=f"Mark {', '.join(one.name for one in lacking)} as restrict.",
                    benefit=0.35,
                    gain_percent=(0.0, 50.0),
                )


def _marked(kernel: CModule, pointers: Sequence[Parameter], _: Variant) -> str:
    edits = Edits(kernel.source)
    for one in pointers:
        edits.insert(one.star_end, "restrict ")
    return edits.apply()


RULE = Restrict()
