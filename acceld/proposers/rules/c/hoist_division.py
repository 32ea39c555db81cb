"""A division by something that does not change in the loop becomes a product with its reciprocal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acceld.model import Profile
from acceld.proposers.rules.c.building import replaced
from acceld.proposers.rules.c.reading import CModule, assigned_scalars, declared, loops_in
from acceld.proposers.rules.c.syntax import Declaration, Expr, For, expressions, statements
from acceld.proposers.rules.records import RuleRefused, Site, Variant


class HoistDivision:
    """``x / s`` in a loop, where s is a float from outside of it."""

    name = "hoist_division"
    reason = (
        "A vector division occupies its unit for 5 to 10 cycles, a multiplication for half of one; rounding differs by "
        "one unit in the last place, so the compiler may not do this by itself."
    )
    source = "Agner Fog, Instruction tables (vdivps, vmulps); GCC manual, -freciprocal-math"
    apis = frozenset({"c"})
    change_class = "mixed"

    def sites(self, kernel: CModule, profile: Profile | None) -> Sequence[Site]:
        """Innermost loops with such a division."""
        return [
            Site(
                self.name,
                loop.line,
                f"{name} is not changed in the loop",
                f"Line {loop.line}: compute 1 / {name} once before the loop and multiply with it.",
                (Variant("reciprocal"),),
                0.4,
                (2.0, 40.0),
                key=f"{loop.start} {name}",
            )
            for loop in kernel.loops
            if not loops_in(loop.body)
            for name in sorted({division.parts[1].op for division in _divisions(kernel, loop)})
        ]

    def apply(self, kernel: CModule, site: Site, variant: Variant) -> str:
        """The reciprocal before the loop, products in it."""
        for loop in kernel.loops:
            for name in {division.parts[1].op for division in _divisions(kernel, loop)}:
                if f"{loop.start} {name}" != site.key or loops_in(loop.body):
                    continue
                indent, text = kernel.indent(loop), kernel.text(loop)
                reciprocal = kernel.fresh(f"{name}_reciprocal")
                found = [one for one in _divisions(kernel, loop) if one.parts[1].op == name]
                for one in sorted(found, key=lambda one: -one.start):
                    start, end = one.parts[0].end - loop.start, one.parts[1].end - loop.start
                    text = text[:start] + f" * {reciprocal}" + text[end:]
                pragmas = [f"{indent}{one.text}" for one in loop.pragmas]
                first = f"{indent}const float {reciprocal} = 1.0f / {name};"
                return replaced(kernel, loop, [f"{indent}{{", first, *pragmas, indent + text, f"{indent}}}"])
        raise RuleRefused(f"line {site.line}: no such division")


def _divisions(kernel: CModule, loop: For) -> Iterator[Expr]:
    fixed = assigned_scalars(loop.body) | declared(loop.body) | {loop.var} | set(kernel.constants)
    floats = _floats(kernel, loop)
    for expr in expressions(loop.body):
        for one in expr.walk():
            divides = one.kind == "binary" and one.op == "/" and one.parts[1].kind == "name"
            if divides and one.parts[1].op in floats - fixed:
                yield one


def _floats(kernel: CModule, loop: For) -> set[str]:
    """Scalars declared as float in the loop's function."""
    function = kernel.function_of(loop)
    found = {one.name for one in function.parameters if not one.pointer and "float" in one.type}
    for statement in statements(function.body):
        if isinstance(statement, Declaration) and "float" in statement.type:
            found |= {one.name for one in statement.declarators if one.extent is None}
    return found


RULE = HoistDivision()
