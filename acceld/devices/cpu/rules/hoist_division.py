"""Replace divisions in a loop by one division before the loop: inside, the code multiplies by the reciprocal of a
divisor that the loop does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from acceld.devices.cpu.rules.building import braced, replaced
from acceld.devices.cpu.rules.reading import CModule, loops_in
from acceld.devices.cpu.rules.syntax import Declaration, Expr, For, assigned_scalars, declared, expressions, statements
from acceld.editing import Edits
from acceld.model import Profile
from acceld.proposers.rules.records import Place, Rule, Variant


class HoistDivision(Rule):
    """Rewrite ``x / s`` in a loop as ``x * (1 / s)``. The divisor s is a float that the loop does not change."""

    name = "hoist_division"
    reason = (
        "A vector division occupies its unit for 5 to 10 cycles, a multiplication for half a cycle; rounding differs by "
        "one unit in the last place, so the compiler may not do this by itself."
    )
    source = "Agner Fog, Instruction tables (vdivps, vmulps); GCC manual, -freciprocal-math"
    apis = frozenset({"c"})
    change_class = "mixed"

    def find(self, kernel: CModule, profile: Profile | None) -> Iterator[Place]:
        """Yield a place for each innermost loop and each float variable by which the loop divides and which the loop
        does not change.
        """
        for loop in kernel.loops:
            if loops_in(loop.body):
                continue
            divisions = list(_divisions(kernel, loop))
            for name in sorted({division.parts[1].op for division in divisions}):
                yield self.found(
                    loop.line,
                    partial(_multiplied, kernel, loop, name, [one for one in divisions if one.parts[1].op == name]),
                    Variant("reciprocal"),
                    precondition=f"{name} is not changed in the loop",
                    plan=f"Line {loop.line}: compute 1 / {name} once before the loop and multiply with it.",
                    benefit=0.4,
                    gain_percent=(2.0, 40.0),
                    key=f"{loop.start} {name}",
                )


def _multiplied(kernel: CModule, loop: For, name: str, divisions: Sequence[Expr], _: Variant) -> str:
    """Return the source in which a product replaces each division, and the reciprocal is computed before the loop."""
    indent, reciprocal = kernel.indentation(loop.start), kernel.fresh(f"{name}_reciprocal")
    edits = Edits(kernel.text(loop))
    for one in divisions:
        edits.replace(one.parts[0].end - loop.start, one.parts[1].end - loop.start, f" * {reciprocal}")
    first = f"{indent}const float {reciprocal} = 1.0f / {name};"
    pragmas = [f"{indent}{one.text}" for one in loop.pragmas]
    return replaced(kernel, loop, braced(indent, "", [first, *pragmas, indent + edits.apply()]))


def _divisions(kernel: CModule, loop: For) -> Iterator[Expr]:
    fixed = assigned_scalars(loop.body) | declared(loop.body) | {loop.var} | set(kernel.constants)
    floats = _floats(kernel, loop)
    for expr in expressions(loop.body):
        for one in expr.walk():
            divides = one.kind == "binary" and one.op == "/" and one.parts[1].kind == "name"
            if divides and one.parts[1].op in floats - fixed:
                yield one


def _floats(kernel: CModule, loop: For) -> set[str]:
    """Return the names of the scalars that the loop's function declares as float."""
    function = kernel.function_of(loop)
    found = {one.name for one in function.parameters if not one.pointer and "float" in one.type}
    for statement in statements(function.body):
        if isinstance(statement, Declaration) and "float" in statement.type:
            found |= {one.name for one in statement.declarators if one.extent is None}
    return found


RULE = HoistDivision()
