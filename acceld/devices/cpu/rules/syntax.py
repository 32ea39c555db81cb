"""Syntax nodes of C that rules read, each with its position in the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(eq=False)
class Node:
    """A syntax node. Its text is ``source[start:end]``."""

    start: int
    end: int


@dataclass(eq=False)
class Expr(Node):
    """An expression.

    ``kind`` is name, number, text, index, call, binary, unary, assign, ternary, cast or member. ``op`` is the
    operator, or the name, number, type or called function. ``parts`` are the operands in order.
    """

    kind: str
    op: str
    parts: list[Expr] = field(default_factory=list)

    def walk(self) -> Iterator[Expr]:
        """Yield this expression and all expressions inside of it."""
        yield self
        for part in self.parts:
            yield from part.walk()

    @property
    def names(self) -> set[str]:
        """Return the names of all variables in the expression."""
        return {one.op for one in self.walk() if one.kind == "name"}

    @property
    def base(self) -> str:
        """Return the array's name if the expression is an index, and the name itself if the expression is a name;
        empty for any other expression.
        """
        if self.kind == "name":
            return self.op
        return self.parts[0].base if self.kind == "index" else ""


@dataclass(eq=False)
class Statement(Node):
    """Base class of all statements."""


@dataclass(eq=False)
class Declarator:
    """One variable of a declaration. ``extent`` is set for an array, ``value`` for an initialized variable."""

    name: str
    extent: Expr | None
    value: Expr | None
    pointer: bool = False


@dataclass(eq=False)
class Declaration(Statement):
    """A declaration, such as ``float x = 0.0f;``."""

    type: str
    declarators: list[Declarator]


@dataclass(eq=False)
class Evaluation(Statement):
    """A statement that is only an expression."""

    expr: Expr


@dataclass(eq=False)
class Block(Statement):
    """Statements in braces, or one statement without braces."""

    items: list[Statement]


@dataclass(eq=False)
class If(Statement):
    """An ``if`` statement with its branches."""

    condition: Expr
    branches: list[Block]


@dataclass(eq=False)
class Pragma(Statement):
    """A ``#pragma`` line."""

    text: str


@dataclass(eq=False)
class Opaque(Statement):
    """Any statement that rules do not understand. Rules prove nothing about code that contains an Opaque."""


@dataclass(eq=False)
class For(Statement):
    """A loop in canonical form: ``for (int var = first; var < bound; var += step)``. Its body does not assign
    ``var``.
    """

    type: str
    var: str
    first: Expr
    bound: Expr
    step: int
    body: Block
    line: int
    pragmas: list[Pragma] = field(default_factory=list)
    parent: For | None = None


@dataclass(eq=False)
class Parameter(Node):
    """One parameter of a function."""

    type: str
    name: str
    pointer: bool
    restrict: bool
    star_end: int
    """Position after the ``*`` of a pointer, where ``restrict`` can be put."""


@dataclass(eq=False)
class Function(Node):
    """A function with its body."""

    name: str
    parameters: list[Parameter]
    body: Block


def statements(block: Statement) -> Iterator[Statement]:
    """Yield every statement of a block in the order of the source, nested ones included."""
    if isinstance(block, Block):
        for item in block.items:
            yield item
            yield from statements(item)
    elif isinstance(block, For):
        yield from statements(block.body)
    elif isinstance(block, If):
        for branch in block.branches:
            yield from statements(branch)


def expressions(block: Statement) -> Iterator[Expr]:
    """Yield every outermost expression of a statement and of the statements inside it, including the headers of loops."""
    for one in (block, *statements(block)):
        if isinstance(one, Evaluation):
            yield one.expr
        elif isinstance(one, Declaration):
            for declarator in one.declarators:
                yield from filter(None, (declarator.extent, declarator.value))
        elif isinstance(one, For):
            yield one.first
            yield one.bound
        elif isinstance(one, If):
            yield one.condition


def assigned_scalars(block: Statement) -> set[str]:
    """Return the names of the scalars that a statement assigns."""
    found = set()
    for expr in expressions(block):
        for one in expr.walk():
            changes = one.kind == "assign" or (one.kind == "unary" and one.op.endswith(("++", "--")))
            if changes and one.parts[0].kind == "name":
                found.add(one.parts[0].op)
    return found


def declared(block: Statement) -> set[str]:
    """Return the variables that are declared in a statement, without the variables of loops."""
    return {
        declarator.name
        for one in (block, *statements(block))
        if isinstance(one, Declaration)
        for declarator in one.declarators
    }
