"""The text behind each node of a kernel's tree stands for the node: it parses to it, with the parentheses around it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from acceld.nki.source.spans import ParsedText
from acceld.parsing import parse
from scripts.rule_goldens import kernels

ODD = (
    "y = (a + b) * -(c)\n",
    "é = 'ü' + (ß + 1) * x[(1), (a + ñ) : 2 * (b)]; z = (é)\n",
    "y = f((a))((b), *(c), k=(d + e), **(g))\n",
    "y = (  # why (not\n    a + '#)' # because (\n) * (b)\n",
    "(a).b = (c, d), ((e),), ()\n",
    "for i in (range(3)):\n    if not (a) in (b) or ((c)):\n        return_ = lambda x: (x)\n",
    "y = '''(\n''' + (a)\nz = (yield_)\\\n    + ((b))\n",
    "x[...] = a if (b) else ((c))[(0)]\r\ny = (a)\r\n",
    "\fy = (a or b) and (c)\n",
)


def operands(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield every expression but those inside formatted strings, and generators, which share a call's parentheses."""
    if isinstance(tree, ast.JoinedStr | ast.GeneratorExp):
        return
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.expr) and not isinstance(child, ast.GeneratorExp | ast.JoinedStr | ast.Starred):
            yield child
        yield from operands(child)


def same(text: str, node: ast.expr) -> bool:
    """Return True if a text parses to a node, as an index if it has slices."""
    sliced = isinstance(node, ast.Slice | ast.Tuple) and any(isinstance(one, ast.Slice) for one in ast.walk(node))
    found = parse(f"x[{text}\n]" if sliced else f"({text}\n)").body[0]
    assert isinstance(found, ast.Expr)
    made = found.value.slice if sliced and isinstance(found.value, ast.Subscript) else found.value
    first, second = (re.sub(r"(Store|Del)\(\)", "Load()", ast.dump(one)) for one in (made, node))
    return first == second


def check(source: str) -> int:
    text = ParsedText(source)
    nodes = list(operands(text.module))
    for node in nodes:
        assert same(text.text(node), node), (text.text(node), ast.unparse(node))
        inner = source[slice(*text.span(node))]
        assert inner in text.text(node) and same(inner, node)
        if isinstance(node, ast.BinOp | ast.UnaryOp):  # its operands need no more parentheses than they have
            one = node.left if isinstance(node, ast.BinOp) else node.operand
            rest = inner[inner.index(text.text(one)) + len(text.text(one)) :]
            assert same(inner.partition(text.text(one))[0] + text.text(one) + rest, node)
    return len(nodes)


@pytest.mark.parametrize("source", ODD)
def test_odd_text(source: str) -> None:
    assert check(source) > 3


def test_operands_of_the_projects_kernels() -> None:
    listed = [one for one in kernels() if "/P17_" not in one.name][
        ::12
    ]  # Python reads these in two ways: refused unread
    assert sum(check(one.text) for one in listed) > 5000


def test_parentheses_of_an_operand_are_part_of_its_text_and_those_of_a_call_are_not() -> None:
    text = ParsedText("y = ((a + b)) * f((c), d)\n")
    (assigned,) = text.module.body
    assert isinstance(assigned, ast.Assign) and isinstance(assigned.value, ast.BinOp)
    left, call = assigned.value.left, assigned.value.right
    assert (text.text(left), text.source[slice(*text.span(left))]) == ("((a + b))", "a + b")
    assert isinstance(call, ast.Call) and [text.text(one) for one in call.args] == ["(c)", "d"]
    assert text.text(call) == "f((c), d)"


def test_columns_are_characters_though_python_counts_bytes() -> None:
    text = ParsedText("tile = f('größe', länge)\n")
    nodes = [one for one in ast.walk(text.module) if isinstance(one, ast.Name)]
    assert [text.text(one) for one in nodes] == ["tile", "f", "länge"]
    for first, second in pairwise(sorted(text.span(one) for one in nodes)):
        assert first[1] <= second[0]
