"""Split a sum into several partial sums that do not depend on each other, and add them at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from acceld.devices.cpu.rules.building import STEP, body_lines, bound, braced, replaced, without_pragmas
from acceld.devices.cpu.rules.reading import CModule, loops_in
from acceld.devices.cpu.rules.reductions import Reduction, sums_of
from acceld.devices.cpu.rules.syntax import Declaration, For, statements
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant

_LANES = (32, 16, 64)


class PartialSums(Rule):
    """Split the sum of a loop into several partial sums, which are added after the loop."""

    name = "partial_sums"
    reason = (
        "An addition takes about four cycles, and the next one to the same sum waits for it: with several vectors of "
        "partial sums the adders are never idle."
    )
    source = "Agner Fog, Optimizing software in C++, 11 (out of order execution, loop-carried dependency chains)"
    apis = frozenset({"c"})
    change_class = "mixed"

    def find(self, kernel: CModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each innermost loop whose iterations depend on each other by sums only.

        The variants are numbers of partial sums that divide the number of iterations.
        """
        for loop in kernel.loops:
            sums, lanes = _sums(kernel, loop)
            if lanes:
                names = ", ".join(one.name for one in sums)
                yield self.found(
                    loop.line,
                    partial(_in_lanes, kernel, loop, sums),
                    *(Variant(f"by_{lane}", {"lanes": lane}) for lane in lanes),
                    precondition=f"iterations share only the sums {names}, and every block divides the "
                    f"{kernel.trips(loop)} iterations",
                    plan=f"Line {loop.line}: keep {', '.join(map(str, lanes))} partial sums of {names} and add them up "
                    "after the loop.",
                    benefit=0.6,
                    gain_percent=(20.0, 90.0),
                    key=f"{loop.start}",
                )


def _in_lanes(kernel: CModule, loop: For, sums: Sequence[Reduction], variant: Variant) -> str:
    """Return the source with three loops in place of one: over blocks, over the elements of a block, and over
    the partial sums.
    """
    lanes, outside = variant.parameters["lanes"], kernel.indentation(loop.start)
    indent, lane, block = outside + STEP, kernel.fresh(f"{loop.var}_lane"), kernel.fresh(f"{loop.var}_block")
    parts = {one.name: kernel.fresh(f"{one.name}_part") for one in sums}
    mapping = {name: f"{part}[{lane}]" for name, part in parts.items()}
    inside = body_lines(kernel, without_pragmas(loop.body.items), indent + 2 * STEP, mapping)
    own = f"{indent}{2 * STEP}const {loop.type} {loop.var} = {block} + {lane};"
    first, last = kernel.text(loop.first), bound(kernel, loop)
    over_blocks = f"for ({loop.type} {block} = {first}; {block} < {last}; {block} += {lanes})"
    over_lanes = f"for (int {lane} = 0; {lane} < {lanes}; {lane}++)"
    lines = [
        *(f"{indent}float {part}[{lanes}] = {{0}};" for part in parts.values()),
        *braced(indent, over_blocks, braced(indent + STEP, over_lanes, [own, *inside])),
        *braced(indent, over_lanes, [f"{indent}{STEP}{name} += {part};" for name, part in mapping.items()]),
    ]
    return replaced(kernel, loop, braced(outside, "", lines))


def _sums(kernel: CModule, loop: For) -> tuple[list[Reduction], list[int]]:
    trips = kernel.trips(loop)
    if loops_in(loop.body) or trips is None or loop.step != 1:
        return [], []
    sums = sums_of(kernel, loop)
    names = {one.name for one in sums}
    if not names or any("int" in kind for kind in _types(kernel, loop, names)):
        return [], []
    return sums, [lane for lane in _LANES if trips % lane == 0 and trips >= 4 * lane]


def _types(kernel: CModule, loop: For, names: set[str]) -> list[str]:
    """Return the declared type of each sum. ``int`` stands for every type other than float, whose sums are not split."""
    return [
        one.type if "float" in one.type else "int"
        for one in statements(kernel.function_of(loop).body)
        if isinstance(one, Declaration) and names & {declarator.name for declarator in one.declarators}
    ]


RULE = PartialSums()
