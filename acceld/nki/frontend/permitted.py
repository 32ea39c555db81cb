"""Describe the Python subset that a kernel may use; :mod:`acceld.nki.frontend.guarded` enforces it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

RULE = "interpreter"
"""The rule id of a failure for code outside the subset."""


@dataclass(frozen=True, slots=True)
class Permitted:
    """Names that a kernel may use: modules, names in modules, attributes of tiles, arrays and plain values, format
    strings.
    """

    module: Callable[[str], bool]
    of_module: Callable[[str, str], bool]
    attributes: frozenset[str]
    template: Callable[[str], bool]


def asks_if_main(node: ast.AST) -> bool:
    """Return True for ``__name__ == "__main__"``, the only use of ``__name__`` that is allowed."""
    match node:
        case ast.Compare(ast.Name("__name__"), [ast.Eq() | ast.NotEq()], [ast.Constant("__main__")]):
            return True
    return False
