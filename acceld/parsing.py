"""Parse Python source in any thread."""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()


def parse(text: str, filename: str = "<unknown>") -> ast.Module:
    """Return the tree of a module. Raises SyntaxError and ValueError as :func:`ast.parse` does.

    CPython up to 3.12 counts the depth of nested nodes once for all threads, and ends in SystemError if two parse at
    the same time.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(text, filename)


def parse_expression(text: str) -> ast.expr:
    """Return the tree of an expression, parsed as by :func:`parse`."""
    with _ONE_AT_A_TIME:
        return ast.parse(text, mode="eval").body
