"""Replace each ``if`` statement whose condition is known by the statements that run, so that rules see these
statements.

For example, where ``rows`` is 300 ::

    if rows % 128 > 0:                              assert rows % 128 > 0
        last = nl.load(x[256 + p, f], mask=m)       last = nl.load(x[256 + p, f], mask=m)
    else:                                           # else:
        last = None                                     # last = None

The assertion makes the kernel refuse arguments for which it would take another branch. Every line keeps its number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from acceld.editing import lines_of
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spans import parsed

_ROUNDS = 16
_ELSE = re.compile(r"\s*else\s*:")


def decided(kernel: KernelModule) -> KernelModule:
    """Return the kernel in which each ``if`` statement with a known condition is replaced by the branch that runs."""
    for _ in range(_ROUNDS):  # repeat, because a decided branch may define names that another condition needs
        if not re.search(r"^\s*if\b", kernel.source, re.MULTILINE):
            break
        lines = lines_of(kernel.source)
        name = kernel.function.name
        functions = [one for one in parsed(kernel.source).body if isinstance(one, ast.FunctionDef) and one.name == name]
        done = [_decide(kernel, branch, lines) for function in functions for branch in _branches(function.body)]
        if not any(done):
            break
        kernel = kernel.reread("".join(lines))
    return kernel


def _branches(body: list[ast.stmt]) -> Iterator[ast.If]:
    """Yield the ``if`` statements among ``body`` and in its loops. An ``if`` inside another ``if`` is not
    yielded.
    """
    for statement in body:
        match statement:
            case ast.If():
                yield statement
            case ast.For() | ast.While() | ast.With():
                yield from _branches(statement.body)


def _decide(kernel: KernelModule, node: ast.If, lines: list[str]) -> bool:
    """Change ``lines`` so that, of the ``if`` statement ``node``, only the branch that runs remains. Return True if
    ``lines`` changed.

    If the condition of ``node`` is not known, or the statement can not be changed line by line, the ``if`` statements
    inside its two parts are tried instead.
    """
    header = lines[node.lineno - 1]
    truth = kernel.truth(node.test)
    if truth is None or not _has_plain_lines(node, lines):
        written = [_decide(kernel, one, lines) for one in _branches([*node.body, *node.orelse])]
        return any(written)
    indent, test = header[: node.col_offset], header[node.col_offset + len("if") :]
    before, _, after = test.rpartition(":") if "#" not in test else test.partition(":")
    lines[node.lineno - 1] = (
        f"{indent}assert {before.strip()}{after}" if truth else f"{indent}assert not ({before.strip()}){after}"
    )
    last = node.body[-1].end_lineno or node.lineno
    other = node.orelse[0].lineno if node.orelse else 0
    if truth:
        _dedent(lines, node.lineno, last, node.body[0].col_offset - node.col_offset)
        _comment_out(lines, last, node.end_lineno or last)
    else:
        _comment_out(lines, node.lineno, last)
        if node.orelse and lines[other - 1].lstrip().startswith("elif"):
            lines[other - 1] = lines[other - 1].replace("elif", "if", 1)
        elif node.orelse:
            at = next(number for number in range(last, other) if _ELSE.match(lines[number]))
            _comment_out(lines, at, at + 1)
            _dedent(lines, at + 1, node.end_lineno or other, node.orelse[0].col_offset - node.col_offset)
    return True


def _has_plain_lines(node: ast.If, lines: list[str]) -> bool:
    """Tell whether the ``if`` statement can be changed line by line: ``if`` and ``else`` have lines of their own, and
    no string spans several lines.
    """
    header = lines[node.lineno - 1]
    first = node.orelse[0] if node.orelse else None
    if (
        not header.lstrip().startswith("if")
        or node.test.end_lineno != node.lineno
        or node.body[0].lineno == node.lineno
    ):
        return False
    if not re.search(r":\s*(#.*)?$", header) or header.count("#") > 1 or ("#" in header and header.count(":") > 1):
        return False
    if first is not None and _ELSE.match(lines[first.lineno - 1]):
        return False
    texts = (one for one in ast.walk(node) if isinstance(one, ast.JoinedStr | ast.Constant))
    return all(not isinstance(one, ast.JoinedStr) and one.lineno == one.end_lineno for one in texts)


def _dedent(lines: list[str], first: int, last: int, step: int) -> None:
    """Move lines ``first + 1`` to ``last`` (counted from 1) to the left by ``step`` columns."""
    for number in range(first, last):
        if lines[number][:step].isspace() and lines[number].strip():
            lines[number] = lines[number][step:]


def _comment_out(lines: list[str], first: int, last: int) -> None:
    """Turn lines ``first + 1`` to ``last`` (counted from 1) into comments."""
    for number in range(first, last):
        text = lines[number].lstrip()
        if text:
            lines[number] = f"{lines[number][: -len(text)]}# {text}"
