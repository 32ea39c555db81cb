"""Compute the sums of all columns at once: keep a row of sums in memory, and make the loop over columns the inner loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from acceld.devices.cpu.rules.building import STEP, body_lines, braced, header, replaced, without_pragmas
from acceld.devices.cpu.rules.reading import CModule, only_loop
from acceld.devices.cpu.rules.syntax import Declaration, For, Statement, assigned_scalars, declared
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant

_MOST_ELEMENTS = 8192


@dataclass(frozen=True)
class _Parts:
    """The parts of a loop's body: declarations of scalars, the nested loops that add to sums, and the statements after
    them.
    """

    head: list[Declaration]
    chain: list[For]
    tail: list[Statement]
    scalars: list[str]


class ExpandReduction(Rule):
    """Exchange a loop over columns with the summing loop inside of it.

    Before: for each column ``{ sum = 0; loop { sum += ... }; use sum }``. After: the summing loop is the outer loop,
    and each of its iterations adds to a row of sums, one for each column.
    """

    name = "expand_reduction"
    reason = (
        "With the loop over neighboring elements innermost, loads are contiguous and become vector loads, and the sums "
        "of a whole vector advance at once instead of one sum waiting for its own last addition."
    )
    source = "GCC manual, -ftree-vectorize; Agner Fog, Optimizing software in C++, 9.8 and 12"
    apis = frozenset({"c"})
    change_class = "loop_order"

    def find(self, kernel: CModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each loop over columns that computes sums and whose iterations are independent."""
        for loop in kernel.loops:
            parts = _parts(kernel, loop)
            if parts is None:
                continue
            names = ", ".join(parts.scalars)
            variables = ", ".join(one.var for one in parts.chain)
            yield self.found(
                loop.line,
                partial(_expanded, kernel, loop, parts),
                Variant("row"),
                precondition=f"iterations of {loop.var} share nothing, and the loops over {variables} do not depend on it",
                plan=f"Line {loop.line}: keep {names} for every {loop.var} in a local row, and make the loop over "
                f"{loop.var} the innermost of the loops over {variables}.",
                benefit=0.9,
                gain_percent=(30.0, 95.0),
                key=f"{loop.start}",
            )


def _expanded(kernel: CModule, loop: For, parts: _Parts, _: Variant) -> str:
    """Return the source with a row of sums: code that declares the row, clears it, adds to it, and uses it."""
    outside = kernel.indentation(loop.start)
    indent, over = outside + STEP, header(kernel, loop)
    rows = {name: kernel.fresh(f"{name}_row") for name in parts.scalars}
    mapping = {name: f"{row}[{loop.var}]" for name, row in rows.items()}
    sums = [(item.type.replace("const ", ""), one) for item in parts.head for one in item.declarators]
    start = [f"{indent}{STEP}{mapping[one.name]} = {kernel.text(one.value, mapping)};" for _, one in sums if one.value]
    deepest = indent + len(parts.chain) * STEP
    adding = body_lines(kernel, without_pragmas(parts.chain[-1].body.items), deepest + STEP, mapping)
    adding = braced(deepest, over, adding)
    for depth in reversed(range(len(parts.chain))):
        adding = braced(indent + depth * STEP, header(kernel, parts.chain[depth]), adding)
    lines = [
        *(f"{indent}{kind} {rows[one.name]}[{kernel.trips(loop)}];" for kind, one in sums),
        *(braced(indent, over, start) if start else ()),
        *adding,
        *braced(indent, over, body_lines(kernel, parts.tail, indent + STEP, mapping)),
    ]
    return replaced(kernel, loop, braced(outside, "", lines))


def _parts(kernel: CModule, loop: For) -> _Parts | None:
    items = without_pragmas(loop.body.items)
    places = [number for number, item in enumerate(items) if isinstance(item, For)]
    if len(places) != 1 or loop.step != 1 or kernel.constant(loop.first) != 0:
        return None
    trips = kernel.trips(loop)
    if trips is None or not 1 < trips <= _MOST_ELEMENTS or not kernel.independent(loop):
        return None
    head = [item for item in items[: places[0]] if isinstance(item, Declaration)]
    adding = items[places[0]]
    if len(head) != places[0] or not head or not isinstance(adding, For):
        return None
    if any(one.extent is not None for item in head for one in item.declarators):
        return None
    chain = [adding]
    while (deeper := only_loop(chain[-1])) is not None:
        chain.append(deeper)
    scalars = [one.name for item in head for one in item.declarators]
    own = {loop.var, *scalars}
    innermost = chain[-1].body
    if any(isinstance(item, For) for item in innermost.items) or not kernel.bounds_free_of(loop.body, own):
        return None
    if not assigned_scalars(innermost) - declared(innermost) <= set(scalars):
        return None
    read = {one.array for one in kernel.accesses(adding)}
    written = {one.array for one in kernel.accesses(loop.body) if one.write}
    if read & written or any(one.write for one in kernel.accesses(adding)):
        return None
    strides = [one.stride(loop.var) for one in kernel.accesses(adding)]
    if not all(stride in (0, 1) for stride in strides) or 1 not in strides:
        return None
    return _Parts(head, chain, items[places[0] + 1 :], scalars)


RULE = ExpandReduction()
