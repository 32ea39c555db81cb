"""Split a loop into two nested loops: the outer one runs over groups, the inner one over the members of a
group.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from acceld.editing import Edits, reindent
from acceld.errors import RuleRefused
from acceld.nki.source.building import STEP, header
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Loop, below, names_in


@dataclass(frozen=True)
class Split:
    """The replacement of one loop variable by two loop variables: ``variable`` = ``size * group + member``."""

    variable: str
    group: str
    member: str
    size: int

    @property
    def whole(self) -> str:
        return f"{self.size} * {self.group} + {self.member}"

    def quotient(self, divisor: int) -> str | None:
        """Return the text of ``variable // divisor``; None unless ``size`` divides ``divisor`` or ``divisor``
        divides ``size``.
        """
        if self.size == divisor:
            return self.group
        if self.size % divisor == 0:
            return f"{self.size // divisor} * {self.group} + {self.member} // {divisor}"
        return f"{self.group} // {divisor // self.size}" if divisor % self.size == 0 else None

    def remainder(self, divisor: int) -> str | None:
        """Return the text of ``variable % divisor``; None unless ``size`` divides ``divisor`` or ``divisor``
        divides ``size``.
        """
        if self.size == divisor:
            return self.member
        if self.size % divisor == 0:
            return f"{self.member} % {divisor}"
        if divisor % self.size == 0:
            return f"{self.size} * ({self.group} % {divisor // self.size}) + {self.member}"
        return None


def substitute(kernel: KernelModule, inner: Loop, split: Split, edits: Edits) -> None:
    """Add to ``edits`` the replacement of the split variable by group and member in the body of the loop
    ``inner``.
    """

    def walk(node: ast.AST, parent: ast.AST | None) -> None:
        if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Name):
            divisor = kernel.constant(node.right)
            text = None
            if node.left.id == split.variable and divisor:
                if isinstance(node.op, ast.FloorDiv):
                    text = split.quotient(divisor)
                elif isinstance(node.op, ast.Mod):
                    text = split.remainder(divisor)
            if text is not None:
                _put(kernel, node, parent, text, edits)
                return
        if isinstance(node, ast.Name):
            if node.id == split.variable:
                _put(kernel, node, parent, split.whole, edits)
            return
        for child in below(node):
            walk(child, node)

    for statement in inner.node.body:
        walk(statement, None)


def _put(kernel: KernelModule, node: ast.expr, parent: ast.AST | None, text: str, edits: Edits) -> None:
    """Add to ``edits`` the replacement of ``node`` by ``text``. Parentheses are added if the surrounding expression
    needs them.
    """
    sum_of = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add)
    alone = not isinstance(parent, ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Subscript)
    plain = text.isidentifier() or sum_of or alone
    edits.replace(*kernel.span(node), text if plain else f"({text})")


def split_loop(kernel: KernelModule, loop: Loop, size: int) -> tuple[KernelModule, Loop]:
    """Return the kernel in which a parallel loop runs over groups, and the new inner loop over the ``size`` members
    of a group. If all iterations are one group, return the kernel and the loop as they are.

    Raise RuleRefused if the loop is not parallel, if ``size`` does not divide its number of iterations, or if a
    reduction names the loop.
    """
    if size == loop.trips:
        return kernel, loop
    if (
        loop.kind != "affine_range"
        or loop.trips is None
        or loop.trips % size
        or not isinstance(loop.node.iter, ast.Call)
    ):
        raise RuleRefused(
            f"loop {loop.variable} in line {loop.line} can not run in groups of {size} iterations: write it as affine_range, with a multiple of {size} iterations"
        )
    for statement in loop.statements():
        indices = statement.args.get("loop_indices")
        if indices is not None and any(name.id == loop.variable for name in names_in(indices)):
            raise RuleRefused(
                f"the instruction in line {statement.line} reduces over loop {loop.variable}: add up in a loop of its own"
            )
    member = kernel.fresh(f"{loop.variable}_part")
    count = kernel.text(loop.node.iter.func)
    edits = Edits(kernel.source)
    edits.replace(*kernel.span(loop.node.iter.args[0]), str(loop.trips // size))
    substitute(kernel, loop, Split(loop.variable, loop.variable, member, size), edits)
    first = kernel.source.find("\n", loop.start + len(header(kernel, loop)) - 1) + 1
    before, body, after = edits.apply_around(first, kernel.after_line(loop.end))
    inner = loop.indent + STEP
    text = reindent(body, loop.items[0].indent, inner + STEP)
    split = kernel.reread(f"{before}{inner}for {member} in {count}({size}):\n{text}{after}")
    return split, split.loops[kernel.loops.index(loop) + 1]
