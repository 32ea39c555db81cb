"""Exchange two perfectly nested loops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from acceld.devices.cpu.rules.building import STEP, body_lines, braced, header, replaced
from acceld.devices.cpu.rules.reading import CModule, only_loop
from acceld.devices.cpu.rules.syntax import For
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant


class Interchange(Rule):
    """Exchange two nested loops. The gain is largest where more of the inner loop's accesses become contiguous."""

    name = "c_interchange"
    reason = (
        "A cache line holds 16 neighboring floats: an inner loop along them uses each line once and in full, and its "
        "loads are vector loads."
    )
    source = "Allen and Kennedy, Optimizing Compilers for Modern Architectures, 5.2; GCC manual, -floop-interchange"
    apis = frozenset({"c"})
    change_class = "loop_order"

    def find(self, kernel: CModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each pair of nested loops that may be exchanged."""
        for outer in kernel.loops:
            inner = only_loop(outer)
            if inner is not None and kernel.interchangeable(outer, inner):
                gains = _contiguous(kernel, inner, outer.var) > _contiguous(kernel, inner, inner.var)
                yield self.found(
                    outer.line,
                    partial(_swapped, kernel, outer, inner),
                    Variant("swap"),
                    precondition="every written element is touched along one of the two loops only, and bounds do not "
                    "depend on them",
                    plan=f"Lines {outer.line} and {inner.line}: make the loop over {outer.var} the inner loop.",
                    benefit=0.8 if gains else 0.15,
                    gain_percent=(20.0, 90.0) if gains else (-50.0, 20.0),
                    key=f"{outer.start}",
                )


def _swapped(kernel: CModule, outer: For, inner: For, _: Variant) -> str:
    indent = kernel.indentation(outer.start)
    body = body_lines(kernel, inner.body.items, indent + 2 * STEP)
    inside = braced(indent + STEP, header(kernel, outer), body)
    return replaced(kernel, outer, braced(indent, header(kernel, inner), inside))


def _contiguous(kernel: CModule, loop: For, name: str) -> int:
    """Return the number of accesses that are contiguous along the variable ``name``, minus the number of accesses
    with a larger stride.
    """
    count = 0
    for access in kernel.accesses(loop.body):
        stride = access.stride(name)
        count += (stride == 1) - (stride is None or abs(stride) > 1)
    return count


RULE = Interchange()
