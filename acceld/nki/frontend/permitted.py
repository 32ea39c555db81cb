"""Describe the Python subset that a kernel may use; :mod:`acceld.nki.frontend.guarded` enforces it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

RULE = "interpreter"
"""The rule id of a failure for code outside the subset."""
METHODS = frozenset({"__init__", "__post_init__", "__call__"})
"""Special methods that a kernel's classes may define."""


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


def as_imported(tree: ast.Module) -> ast.Module:
    """Return the module without the blocks ``if __name__ == "__main__":``, which no evaluation executes.

    They stay if ``__name__`` occurs anywhere else: it could be bound to another value.
    """
    mains = [one for one in tree.body if _is_main_block(one)]
    if not mains or ast.dump(tree).count("__name__") != len(mains):
        return tree
    return ast.Module([one for one in tree.body if one not in mains], tree.type_ignores)


def _is_main_block(statement: ast.stmt) -> bool:
    match statement:
        case ast.If(ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")]), orelse=[]):
            return True
    return False
