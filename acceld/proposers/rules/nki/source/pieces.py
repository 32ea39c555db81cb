"""Parse a source statement by statement, and remember the statements.

A rewrite changes a few lines of a kernel. libcst takes a third of a second for a kernel of 12,000 nodes, and nearly all of them
are in lines that were parsed before.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from acceld.parsing import parse
from acceld.proposers.rules.editing import lines_of

Line = cst.SimpleStatementLine | cst.BaseCompoundStatement
Place = tuple[int, int, int, int]
"""First line and column of a node, and the line and column behind it. Lines and columns are counted from 0."""
_REMEMBERED = 1500
"""Number of statements, of about 20 KiB each."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A module, and where each of its nodes is in the source."""

    module: cst.Module
    _whole: Mapping[cst.CSTNode, Place]
    _pieces: Mapping[cst.CSTNode, tuple[_Piece, int]]

    def place(self, node: cst.CSTNode) -> Place:
        """Return where a node is."""
        if node in self._whole:
            return self._whole[node]
        piece, line = self._pieces[node]
        start, column, end, after = piece.places[node]
        return line + start, column, line + end, after


@dataclass(frozen=True, slots=True)
class _Piece:
    """A statement, or a compound one's header with an empty body. Lines of places are counted from its own first one."""

    node: Line
    places: Mapping[cst.CSTNode, Place]


class _UnevenComment(Exception):
    """A comment is indented unlike the statement after it, so that it may belong to the block before."""


def parsed(source: str) -> Parsed:
    """Return the module of a source. Raises libcst.ParserSyntaxError if it does not parse."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return _parsed_at_once(source)
    try:
        return _Assembly(source).module(tree)
    except _UnevenComment:
        return _parsed_at_once(source)


def _parsed_at_once(source: str) -> Parsed:
    wrapper = _Wrapper(cst.parse_module(source), unsafe_skip_copy=True)
    return Parsed(wrapper.module, _places(wrapper, 0), {})


class _Wrapper(MetadataWrapper):
    """Finds the positions of nodes. libcst then visits the whole module for no visitor, which takes longer than that."""

    def visit_batched(self, visitors: Iterable[object], *_: object, **__: object) -> cst.Module:
        """Visit nothing."""
        assert not list(visitors)
        return self.module


def _places(wrapper: MetadataWrapper, before: int) -> dict[cst.CSTNode, Place]:
    """Return where each node is, in lines after the first ``before`` ones."""
    found = wrapper.resolve(PositionProvider)
    return {
        node: (where.start.line - 1 - before, where.start.column, where.end.line - 1 - before, where.end.column)
        for node, where in found.items()
    }


@lru_cache(maxsize=_REMEMBERED)
def _piece(text: str, occurrence: int, *, indented: bool) -> _Piece:
    """Parse the lines of one statement, with the comments above it.

    Each ``occurrence`` of a text in a module has nodes of its own, because nodes are told apart by their identity.
    """
    wrapper = _Wrapper(cst.parse_module(("if 1:\n" if indented else "pass\n") + text), unsafe_skip_copy=True)
    last = wrapper.module.body[-1]
    block = last.body if isinstance(last, cst.If) and indented else wrapper.module
    node = block.body[-1]
    assert isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    return _Piece(node, _places(wrapper, 1))


class _Assembly:
    """Puts a module together from pieces of its source."""

    def __init__(self, source: str) -> None:
        self._lines = lines_of(source)
        self._occurrences = Counter[str]()
        self._whole: dict[cst.CSTNode, Place] = {}
        self._pieces: dict[cst.CSTNode, tuple[_Piece, int]] = {}

    def module(self, tree: ast.Module) -> Parsed:
        """Return the module."""
        return Parsed(cst.Module(self._block(tree.body, 0)), self._whole, self._pieces)

    def _block(self, body: Sequence[ast.stmt], line: int) -> list[Line]:
        """Return the statements of a block that begins on ``line``."""
        found: list[Line] = []
        for group in _by_lines(body):
            start, end = _first_line(group[0]), group[-1].end_lineno or 0
            self._check_comments(line, start)
            found.append(self._statement(group, line, end))
            line = end
        return found

    def _check_comments(self, line: int, start: int) -> None:
        """Raise _UnevenComment unless the lines before a statement are blank, or comments that are indented as it is."""
        own = self._lines[start]
        indent = own[: len(own) - len(own.lstrip())]
        for above in self._lines[line:start]:
            if above.strip() and above[: len(above) - len(above.lstrip())] != indent:
                raise _UnevenComment

    def _statement(self, group: Sequence[ast.stmt], line: int, end: int) -> Line:
        one = group[0]
        if isinstance(one, ast.For | ast.FunctionDef) and not getattr(one, "orelse", ()):
            body = _first_line(one.body[0])
            while body and self._lines[body - 1].lstrip().startswith("#"):
                body -= 1
            if body >= one.lineno:
                return self._compound(one, line, body)
        return self._taken(self._lines[line:end], line, group[0])

    def _compound(self, one: ast.For | ast.FunctionDef, line: int, body: int) -> Line:
        """Return a loop or a function whose body begins on line ``body``."""
        inside = self._lines[_first_line(one.body[0])]
        indent = inside[: len(inside) - len(inside.lstrip())]
        head = self._taken([*self._lines[line:body], f"{indent}pass\n"], line, one)
        assert isinstance(head, cst.For | cst.FunctionDef) and isinstance(head.body, cst.IndentedBlock)
        statements = self._block(one.body, body)
        node = head.with_changes(body=head.body.with_changes(body=statements))
        start, column, _, _ = self._place(head)
        self._whole[node] = (start, column, *self._place(statements[-1])[2:])
        return node

    def _taken(self, lines: Sequence[str], line: int, one: ast.stmt) -> Line:
        """Return the statement that the lines from number ``line`` on hold, parsed now or before."""
        text = "".join(lines)
        piece = _piece(text, self._occurrences[text], indented=one.col_offset > 0)
        self._occurrences[text] += 1
        self._pieces.update(dict.fromkeys(piece.places, (piece, line)))
        return piece.node

    def _place(self, node: cst.CSTNode) -> Place:
        return Parsed(cst.Module([]), self._whole, self._pieces).place(node)


def _by_lines(body: Sequence[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """Yield statements, those together that share a line."""
    group: list[ast.stmt] = []
    for one in body:
        if group and _first_line(one) >= (group[-1].end_lineno or 0):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _first_line(one: ast.stmt) -> int:
    """Return the number of a statement's first line, from 0."""
    if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)]) - 1
    return one.lineno - 1
