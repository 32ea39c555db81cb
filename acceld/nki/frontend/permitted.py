"""The record of the subset of Python that a kernel may be held to; :mod:`acceld.nki.frontend.guarded` enforces it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

RULE = "interpreter"
"""Rule of the failures of a kernel outside of the subset."""


@dataclass(frozen=True, slots=True)
class Permitted:
    """Names that a kernel may use: modules, names of modules, attributes of tiles, arrays and plain values, format strings."""

    module: Callable[[str], bool]
    of_module: Callable[[str, str], bool]
    attributes: frozenset[str]
    template: Callable[[str], bool]


def asks_if_main(node: ast.AST) -> bool:
    """Return True for ``__name__ == "__main__"``, the one question about its name that a kernel may ask."""
    match node:
        case ast.Compare(ast.Name("__name__"), [ast.Eq() | ast.NotEq()], [ast.Constant("__main__")]):
            return True
    return False
