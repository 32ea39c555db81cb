"""Represent a C kernel for rules: its loops, its array accesses in affine form, and proofs about iterations.

Proofs rely on constants of the source, and on a promise of every workload: arguments do not overlap. Rules may
change the order in which numbers are added, because the tolerance of every workload allows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from acceld.devices.cpu.rules.parsing import parse
from acceld.devices.cpu.rules.syntax import (
    Block,
    Declaration,
    Expr,
    For,
    Function,
    If,
    Node,
    Opaque,
    Statement,
    assigned_scalars,
    declared,
    expressions,
    statements,
)
from acceld.editing import Edits, SourceText
from acceld.nki.source.affine import Affine
from acceld.nki.source.launches import Shapes

PURE = frozenset(
    "expf exp logf log sqrtf sqrt fabsf fabs fmaxf fmax fminf fmin tanhf tanh erff erf powf pow sinf cosf floorf "
    "ceilf roundf rintf fmaf fma log1pf expm1f copysignf abs exp2f log2f cbrtf".split()
)
"""Functions of the C library without side effects."""


@dataclass(frozen=True)
class Access:
    """One use of an array element. ``form`` is the index as an affine form; None if the index is not affine."""

    array: str
    form: Affine | None
    write: bool
    expr: Expr

    def stride(self, name: str) -> int | None:
        """Return the number of elements by which the access moves when the variable ``name`` grows by one; None if the
        number is unknown.
        """
        return None if self.form is None else self.form.coefficient(name)


class CModule(SourceText):
    """A parsed C kernel. Raise RuleRefused if the source can not be read."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        read = parse(source)
        self.functions = read.functions
        self.identifiers = read.identifiers
        self.constants = {name: value for name, text in read.defines.items() if (value := _integer(text)) is not None}
        self._owner: dict[int, Function] = {}
        for function in self.functions:
            self._link(function.body, None)
            for loop in loops_in(function.body):
                self._owner[id(loop)] = function

    def _link(self, block: Statement, parent: For | None) -> None:
        if isinstance(block, Block):
            for item in block.items:
                self._link(item, parent)
        elif isinstance(block, For):
            block.parent = parent
            self._link(block.body, block)
        elif isinstance(block, If):
            for branch in block.branches:
                self._link(branch, parent)

    @cached_property
    def loops(self) -> list[For]:
        """Return every canonical loop in the order of the source."""
        return [loop for function in self.functions for loop in loops_in(function.body)]

    def function_of(self, loop: For) -> Function:
        """Return the function that contains a loop."""
        return self._owner[id(loop)]

    def text(self, node: Node, mapping: Mapping[str, str] | None = None) -> str:
        """Return the source of a node. ``mapping`` replaces variables by texts."""
        text = self.source[node.start : node.end]
        if not mapping:
            return text
        edits = Edits(text)
        for one in self.identifiers:
            name = self.source[one.start_byte : one.end_byte]
            if node.start <= one.start_byte < node.end and name in mapping:
                edits.replace(one.start_byte - node.start, one.end_byte - node.start, mapping[name])
        return edits.apply()

    def line(self, position: int) -> int:
        """Return the line number, from 1, of a position in the source."""
        return self.source.count("\n", 0, position) + 1

    # Numbers.

    def constant(self, expr: Expr) -> int | None:
        """Return the value of an expression of whole-number constants; None for any other expression."""
        form = self.affine(expr)
        return form.constant if form is not None and not form.terms else None

    def trips(self, loop: For) -> int | None:
        """Return the loop's number of iterations; None if the number is not a known constant."""
        first, bound = self.constant(loop.first), self.constant(loop.bound)
        return None if first is None or bound is None else max(0, -(-(bound - first) // loop.step))

    def affine(self, expr: Expr) -> Affine | None:
        """Return an expression as an affine form (constant plus multiples of variables); None if the expression is not
        affine.
        """
        if expr.kind == "number":
            value = _integer(expr.op)
            return None if value is None else Affine(value)
        if expr.kind == "name":
            return Affine(self.constants[expr.op]) if expr.op in self.constants else Affine.of_variable(expr.op)
        if expr.kind == "cast" and "*" not in expr.op and "float" not in expr.op and "double" not in expr.op:
            return self.affine(expr.parts[0])
        if expr.kind == "unary" and expr.op == "-":
            inner = self.affine(expr.parts[0])
            return None if inner is None else inner.times(-1)
        if expr.kind != "binary" or expr.op not in "+-*/":
            return None
        left, right = self.affine(expr.parts[0]), self.affine(expr.parts[1])
        if left is None or right is None:
            return None
        match expr.op:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left.product(right)
        whole = not left.terms and not right.terms and left.constant >= 0 < right.constant
        return Affine(left.constant // right.constant) if whole else None

    # Accesses.

    def accesses(self, block: Statement) -> list[Access]:
        """Return every use of an array element in a statement."""
        found = []
        for expr in expressions(block):
            found += list(self._accesses(expr, write=False))
        return found

    def _accesses(self, expr: Expr, *, write: bool) -> Iterator[Access]:
        if expr.kind == "index":
            yield Access(expr.base, self.affine(expr.parts[1]) if expr.parts[0].kind == "name" else None, write, expr)
            yield from self._accesses(expr.parts[1], write=False)
            return
        if expr.kind == "assign":
            target, value = expr.parts
            if expr.op != "=":
                yield from self._accesses(target, write=False)
            yield from self._accesses(target, write=True)
            yield from self._accesses(value, write=False)
            return
        changes = expr.kind == "unary" and expr.op.endswith(("++", "--"))
        for part in expr.parts:
            yield from self._accesses(part, write=changes)

    # Proofs.

    def plain(self, block: Statement) -> bool:
        """Tell whether rules may reason about a statement: the parser understands all of it, and it has no side
        effects.

        The statement calls only pure functions. It declares no pointer, takes no address, and follows a pointer only by
        an index.
        """
        for one in (block, *statements(block)):
            if isinstance(one, Opaque):
                return False
            if isinstance(one, Declaration) and any(declarator.pointer for declarator in one.declarators):
                return False
        for expr in expressions(block):
            for part in expr.walk():
                if part.kind == "call" and part.op not in PURE and not part.op.startswith("acceld_"):
                    return False
                if part.kind == "unary" and part.op in ("&", "*"):
                    return False
                if part.kind == "index" and part.parts[0].kind != "name":
                    return False
        return True

    def independent(self, loop: For) -> bool:
        """Tell whether the iterations of the loop touch different data, so that they may run in any order."""
        return self.plain(loop.body) and not self.carried(loop) and self.disjoint(loop)

    def carried(self, loop: For) -> set[str]:
        """Return the scalars that the loop's body changes and that are declared outside of the loop."""
        return assigned_scalars(loop.body) - declared(loop.body) - {one.var for one in loops_in(loop.body)}

    def disjoint(self, loop: For) -> bool:
        """Tell whether no two iterations of the loop touch the same element of an array that the loop's body writes."""
        own = declared(loop.body)
        accesses = [one for one in self.accesses(loop.body) if one.array not in own]
        ranges = self._inner_ranges(loop)
        for array in {one.array for one in accesses if one.write}:
            uses = [one for one in accesses if one.array == array]
            if ranges is None or not self._apart(uses, loop, ranges):
                return False
        return True

    def _inner_ranges(self, loop: For) -> dict[str, tuple[int, int]] | None:
        """Return the least and greatest value of the variable of each nested loop, as a dict by the variable's name.

        Return None if the range of one of these variables is unknown.
        """
        ranges: dict[str, tuple[int, int]] = {}
        for inner in loops_in(loop.body):
            first, trips = self.constant(inner.first), self.trips(inner)
            if first is None or trips is None:
                return None
            low, high = first, first + max(0, trips - 1) * inner.step
            known = ranges.get(inner.var, (low, high))
            ranges[inner.var] = (min(known[0], low), max(known[1], high))
        return ranges

    @staticmethod
    def _apart(uses: list[Access], loop: For, ranges: Mapping[str, tuple[int, int]]) -> bool:
        lows, highs, outer, stride = [], [], set(), set()
        for use in uses:
            if use.form is None:
                return False
            low = high = use.form.constant
            for symbol, factor in use.form.terms:
                if symbol.variable in ranges:
                    ends = sorted(factor * end for end in ranges[symbol.variable])
                    low, high = low + ends[0], high + ends[1]
            lows.append(low)
            highs.append(high)
            stride.add(use.form.coefficient(loop.var) or 0)
            outer.add(tuple(term for term in use.form.terms if term[0].variable not in {loop.var, *ranges}))
        if len(outer) != 1 or len(stride) != 1:
            return False
        return max(highs) - min(lows) < abs(stride.pop()) * loop.step

    def interchangeable(self, outer: For, inner: For) -> bool:
        """Tell whether the loops ``outer`` and ``inner`` may be exchanged. ``inner`` has to be the whole body of
        ``outer``.

        If an element that is written is accessed several times, the accesses have to come from the iterations of only
        one of the two loops. Then the exchange keeps the order of these accesses.
        """
        if not self.plain(inner.body) or self.carried(inner) or self._mentions(inner, outer.var):
            return False
        if self.disjoint(outer):
            return True
        own = declared(inner.body)
        accesses = [one for one in self.accesses(inner.body) if one.array not in own]
        for array in {one.array for one in accesses if one.write}:
            uses = [one for one in accesses if one.array == array]
            along_outer = any(use.form is None or use.form.coefficient(outer.var) for use in uses)
            ranges = self._inner_ranges(inner)
            if along_outer or ranges is None or not self._apart(uses, inner, ranges):
                return False
        return True

    @staticmethod
    def _mentions(loop: For, name: str) -> bool:
        return name in loop.first.names | loop.bound.names

    def bounds_free_of(self, block: Statement, names: set[str]) -> bool:
        """Tell whether no loop in ``block`` uses one of ``names`` in its first value or its bound."""
        return not any((one.first.names | one.bound.names) & names for one in loops_in(block))


def loops_in(block: Statement) -> list[For]:
    """Return every loop in a statement. A loop comes before the loops inside of it."""
    return [one for one in statements(block) if isinstance(one, For)]


def only_loop(loop: For) -> For | None:
    """Return the inner loop that is the whole body of ``loop``; None if the body is not a single loop."""
    items = [item for item in loop.body.items if not (isinstance(item, Block) and not item.items)]
    inner = items[-1] if items else None
    if isinstance(inner, For) and len(items) == 1 + len(inner.pragmas):
        return inner
    return None


def _integer(text: str) -> int | None:
    stripped = text.strip().strip("()").rstrip("uUlL")
    try:
        return int(stripped, 0)
    except ValueError:
        return None


def read(source: str, api: str, shapes: Shapes) -> CModule:
    """Return a parsed C kernel. Raise RuleRefused if the source can not be read."""
    return CModule(source)
