"""Find loops whose iterations depend on each other only by sums, maxima and minima."""

from __future__ import annotations

from dataclasses import dataclass

from acceld.devices.cpu.rules.reading import CModule
from acceld.devices.cpu.rules.syntax import Evaluation, Expr, For, If, Statement, expressions, statements

_EXTREMA = {"fmaxf": ("max", ">"), "fminf": ("min", "<")}


@dataclass(frozen=True)
class Reduction:
    """A scalar that every iteration of a loop updates by a sum, a maximum or a minimum."""

    name: str
    op: str
    statement: Statement
    comparison: str = ""
    """The comparison by which the source updates the scalar; empty if the source has none, as with a call of fmaxf."""


def reductions(kernel: CModule, loop: For) -> list[Reduction] | None:
    """Return the reductions of a loop; None if its iterations also depend on each other by something else."""
    if not kernel.plain(loop.body) or not kernel.disjoint(loop):
        return None
    found = []
    for name in sorted(kernel.carried(loop)):
        one = _reduction(kernel, loop, name)
        if one is None:
            return None
        found.append(one)
    return found


def _reduction(kernel: CModule, loop: For, name: str) -> Reduction | None:
    """Return the reduction that computes the scalar ``name``; None if the loop mentions the scalar more than once."""
    about = [one for one in loop.body.items if any(name in expr.names for expr in expressions(one))]
    if len(about) != 1 or name in loop.bound.names | loop.first.names:
        return None
    only = about[0]
    if isinstance(only, If):
        return _guarded(kernel, only, name)
    if not isinstance(only, Evaluation) or only.expr.kind != "assign" or only.expr.parts[0].op != name:
        return None
    op, value = only.expr.op, only.expr.parts[1]
    if op in ("+=", "-=") and name not in value.names:
        return Reduction(name, "+", only)
    if op != "=":
        return None
    if value.kind == "binary" and value.op == "+":
        own, term = value.parts
        if own.kind == "name" and own.op == name and name not in term.names:
            return Reduction(name, "+", only)
    if value.kind == "call" and value.op in _EXTREMA and len(value.parts) == 2:
        first, second = value.parts
        term = second if first.op == name and first.kind == "name" else first
        other = first if term is second else second
        if other.kind == "name" and other.op == name and name not in term.names:
            word, sign = _EXTREMA[value.op]
            text = kernel.text(term)
            return Reduction(name, word, only, f"{name} = {text} {sign} {name} ? {text} : {name};")
    if value.kind == "ternary":
        return _chosen(only, value, name)
    return None


def _guarded(kernel: CModule, branch: If, name: str) -> Reduction | None:
    """Return the statement ``if (x > m) m = x;`` as a reduction; None if the statement has another form."""
    inner = [one for one in statements(branch) if isinstance(one, Evaluation)]
    condition = branch.condition
    if len(branch.branches) != 1 or len(inner) != 1 or condition.kind != "binary" or condition.op not in ("<", ">"):
        return None
    expr = inner[0].expr
    if expr.kind != "assign" or expr.op != "=" or expr.parts[0].op != name or expr.parts[0].kind != "name":
        return None
    term, text = expr.parts[1], kernel.text(expr.parts[1])
    sides = [kernel.text(part) for part in condition.parts]
    sign = (
        condition.op if sides == [text, name] else {"<": ">", ">": "<"}[condition.op] if sides == [name, text] else ""
    )
    if not sign or name in term.names:
        return None
    word = "max" if sign == ">" else "min"
    return Reduction(name, word, branch, f"{name} = {text} {sign} {name} ? {text} : {name};")


def _chosen(statement: Statement, value: Expr, name: str) -> Reduction | None:
    """Return the statement ``m = x > m ? x : m;`` as a reduction; None if the statement has another form."""
    condition, yes, no = value.parts
    if condition.kind != "binary" or condition.op not in ("<", ">") or no.kind != "name" or no.op != name:
        return None
    left, right = condition.parts
    if right.kind != "name" or right.op != name or name in yes.names or name in left.names:
        return None
    return Reduction(name, "max" if condition.op == ">" else "min", statement)


def sums_of(kernel: CModule, loop: For) -> list[Reduction]:
    """Return the sums of a loop; empty if its iterations depend on each other in any other way."""
    found = reductions(kernel, loop)
    return found if found and all(one.op == "+" for one in found) else []
