"""Run several iterations of an outer loop together (unroll and jam), so that a value is used several times once it is
loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from acceld.devices.cpu.rules.building import STEP, body_lines, braced, header, names_of, replaced, without_pragmas
from acceld.devices.cpu.rules.reading import CModule, loops_in, only_loop
from acceld.devices.cpu.rules.syntax import Block, Declaration, For, Statement
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant

_FACTORS = (4, 8, 2)
_REDUCTION = re.compile(r"reduction\(([^:()]+):([^()]+)\)")


class UnrollJam(Rule):
    """Unroll an outer loop by a factor that divides its number of iterations, and merge the copies of its inner loops."""

    name = "unroll_jam"
    reason = (
        "Iterations done side by side share their loads and keep several sums in registers at once, so that the "
        "multiply-add units do not wait for memory or for one sum's last addition."
    )
    source = "Allen and Kennedy, Optimizing Compilers for Modern Architectures, 8.4 (unroll-and-jam)"
    apis = frozenset({"c"})
    change_class = "loop_order"

    def find(self, kernel: CModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each outer loop whose iterations may be interleaved."""
        for loop in kernel.loops:
            factors = _factors(kernel, loop)
            if factors:
                yield self.found(
                    loop.line,
                    partial(_merged, kernel, loop),
                    *(Variant(f"by_{factor}", {"factor": factor}) for factor in factors),
                    precondition=f"iterations of {loop.var} may be interleaved, and every factor divides its "
                    f"{kernel.trips(loop)} iterations",
                    plan=f"Line {loop.line}: do {', '.join(map(str, factors))} iterations of {loop.var} together, in one "
                    "pass of the loops inside.",
                    benefit=0.7,
                    gain_percent=(10.0, 70.0),
                    key=f"{loop.start}",
                )


def _merged(kernel: CModule, loop: For, variant: Variant) -> str:
    """Return the source in which one iteration of the loop does the work of several iterations, by copies of its
    statements.
    """
    factor, indent = int(variant.parameters["factor"]), kernel.indentation(loop.start)
    copies = [{loop.var: f"({loop.var} + {number})" if number else loop.var} for number in range(factor)]
    inside = _jammed(kernel, loop.body.items, indent + STEP, copies)
    return replaced(kernel, loop, braced(indent, header(kernel, loop, step=loop.step * factor), inside))


def _factors(kernel: CModule, loop: For) -> list[int]:
    trips = kernel.trips(loop)
    inner = loops_in(loop.body)
    if (
        not inner
        or loop.var in {one.var for one in inner}
        or trips is None
        or loop.step != 1
        or not kernel.bounds_free_of(loop.body, _local(loop))
    ):
        return []
    only = only_loop(loop)
    allowed = kernel.independent(loop) or (only is not None and kernel.interchangeable(loop, only))
    return [factor for factor in _FACTORS if trips % factor == 0 and trips > factor] if allowed else []


def _local(loop: For) -> set[str]:
    """Return the variables that have a different value in each copy of the loop's body. The bounds of inner loops
    must not use them.
    """
    found = {loop.var}
    waiting: list[Statement] = [loop.body]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Block):
            found |= set(names_of(one.items))
            waiting += one.items
        elif isinstance(one, For):
            waiting.append(one.body)
    return found


def _jammed(kernel: CModule, items: Sequence[Statement], indent: str, copies: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the lines of the merged body: a copy of each statement for each iteration, but each inner loop only once.

    The body of an inner loop has the statements of all copies.
    """
    mappings = [dict(copy) for copy in copies]
    lines: list[str] = []
    for item in without_pragmas(items):
        if isinstance(item, For):
            lines += [f"{indent}{_of_copies(pragma.text, mappings)}" for pragma in item.pragmas]
            inside = _jammed(kernel, item.body.items, indent + STEP, mappings)
            lines += braced(indent, header(kernel, item), inside)
            continue
        if isinstance(item, Block):
            lines += braced(indent, "", _jammed(kernel, item.items, indent + STEP, mappings))
            continue
        if isinstance(item, Declaration):
            for number, mapping in enumerate(mappings):
                mapping.update({one.name: kernel.fresh(f"{one.name}_{number}") for one in item.declarators})
        for mapping in mappings:
            lines += body_lines(kernel, [item], indent, mapping)
    return lines


def _of_copies(pragma: str, mappings: Sequence[Mapping[str, str]]) -> str:
    """Return a reduction pragma that lists the reduction variables of all copies."""

    def each(found: re.Match[str]) -> str:
        listed = [name.strip() for name in found.group(2).split(",")]
        names = dict.fromkeys(mapping.get(name, name) for name in listed for mapping in mappings)
        return f"reduction({found.group(1)}:{', '.join(names)})"

    return _REDUCTION.sub(each, pragma)


RULE = UnrollJam()
