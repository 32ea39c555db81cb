"""Define the record of the Python subset that a kernel may use; :mod:`acceld.nki.frontend.guarded` enforces it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

RULE = "interpreter"
"""The rule id of a failure because a kernel uses Python outside of the permitted subset."""
HIDDEN_NAMES = frozenset(
    "access alias overrun padded produced scope whole declared dtype_name label like space slot siblings instruction "
    "no_operator".split()
)
"""Attributes of the simulator's tiles that tiles of a chip's compiler lack. A kernel's own classes may not define them
either.
"""
METHODS = frozenset({"__init__", "__post_init__", "__call__"})
"""Special methods that a class in a kernel's file may define."""


@dataclass(frozen=True, slots=True)
class Permitted:
    """The parts of Python that a kernel may use.

    * ``module(name)``: True if the module may be imported.
    * ``of_module(module, name)``: True if a kernel may use that name of the module.
    * ``template(text)``: True for a format string that ``str.format`` may have.
    * ``attributes``: the attributes that are allowed on tiles, arrays and plain values.
    """

    module: Callable[[str], bool]
    of_module: Callable[[str, str], bool]
    attributes: frozenset[str]
    template: Callable[[str], bool]


def asks_if_main(node: ast.AST) -> bool:
    """Tell whether ``node`` compares ``__name__`` with ``"__main__"``, the only use of ``__name__`` that is
    allowed.
    """
    match node:
        case ast.Compare(ast.Name("__name__"), [ast.Eq() | ast.NotEq()], [ast.Constant("__main__")]):
            return True
    return False


def bound_names(node: ast.AST) -> tuple[str, ...]:
    """Return the names to which a node of a syntax tree gives a value, except variables (``ast.Name``) and functions.

    They are the names of parameters, imported names, classes, parts of patterns, and the names in ``global`` and
    ``nonlocal`` statements.
    """
    match node:
        case ast.arg(arg=name) | ast.ClassDef(name=name) | ast.alias(asname=str(name)):
            return (name,)
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return (name,)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return tuple(names)
    return ()


def as_imported(tree: ast.Module) -> ast.Module:
    """Return the module without its blocks ``if __name__ == "__main__":``, which do not run when a file is
    imported.

    If ``__name__`` occurs elsewhere in the file, except in a docstring, the module is returned unchanged, because
    ``__name__`` could have another value.
    """
    mains = [one for one in tree.body if _is_main_block(one)]
    said = [one for one in ast.walk(tree) if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
    if not mains or _mentions(tree) - sum(map(_mentions, said)) != len(mains):
        return tree
    return ast.Module([one for one in tree.body if one not in mains], tree.type_ignores)


def _mentions(node: ast.AST) -> int:
    """Return how often ``__name__`` occurs in a part of a syntax tree."""
    return ast.dump(node).count("__name__")


def _is_main_block(statement: ast.stmt) -> bool:
    """Tell whether a statement is ``if __name__ == "__main__":`` without ``else``."""
    match statement:
        case ast.If(ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")]), orelse=[]):
            return True
    return False
