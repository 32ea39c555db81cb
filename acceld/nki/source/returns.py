"""Write out calls of a file's own functions that only return an expression, so that rules see the expression.

For example, with this function in the file ::

    def sbuf(rows, columns):
        return nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)

the statement ``tile = sbuf(128, n)`` becomes ``tile = nl.ndarray((128, n), dtype=nl.float32, buffer=nl.sbuf)``. So
functions that allocate tiles, compute sizes such as a rounded quotient, or take a part of a tile hide nothing.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy

from acceld.editing import Edits, SourceText
from acceld.nki.source.spans import parsed
from acceld.nki.source.syntax import (
    NO_TILES,
    below,
    bindings,
    call_arguments,
    is_straight,
    numbers,
    uncached_names_in,
    walked,
)

_ROUNDS = 4
"""Greatest length of a chain of functions, each of which calls the next one in its returned expression, that is written
out.
"""
_ALLOWED = (
    *(ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp),
    *(ast.Call, ast.keyword),
)
"""Kinds of nodes that a returned expression may have. None of them binds a name."""
_SIMPLE = (ast.Name, ast.Constant, ast.Attribute, ast.Tuple, ast.BinOp, ast.UnaryOp)
"""Kinds of nodes of arguments that give the same result however often they are evaluated."""


def with_returns_written_out(source: str) -> str:
    """Return ``source`` with the returned expression in place of each call of a function that only returns an expression.

    Return ``source`` itself if it has no such call. Every line keeps its number.
    """
    for _ in range(_ROUNDS):
        tree = parsed(source)
        given = {name: one for one in tree.body if (name := _name(one)) and isinstance(one, ast.FunctionDef)}
        once = bindings(tree)
        functions = {name: one for name, one in given.items() if once[name] == 1 and _is_steady(one, tree, once)}
        if not functions:
            return source
        edits, text = Edits(source), SourceText(source)
        changed = False
        for caller in tree.body:
            if isinstance(caller, ast.FunctionDef) and _name(caller) not in functions and is_straight(caller):
                own = {node.id for node in uncached_names_in(caller) if isinstance(node.ctx, ast.Store)}
                own |= {one.arg for one in (*caller.args.args, *caller.args.kwonlyargs, *caller.args.posonlyargs)}
                changed |= _write_out(text, edits, caller, functions, own)
        if not changed:
            return source
        source = edits.apply()
    return source


def _name(statement: ast.stmt) -> str:
    """Return the name of a function that does nothing but return an expression; empty for other statements."""
    match statement:
        case ast.FunctionDef(name=name, decorator_list=[], body=[*rest, ast.Return(value=ast.expr() as value)]):
            documented = all(isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) for one in rest)
            plain = not (statement.args.vararg or statement.args.kwarg or statement.args.posonlyargs)
            return name if documented and plain and _is_allowed(value) else ""
    return ""


def _is_steady(function: ast.FunctionDef, module: ast.Module, once: Counter[str]) -> bool:
    """Tell whether every name in the function's expression and defaults has one value throughout the file."""
    changed = {name for one in walked(module) if isinstance(one, ast.Global) for name in one.names}
    parameters = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
    defaults = [one for one in (*function.args.defaults, *function.args.kw_defaults) if one is not None]
    named = numbers(module)
    for one in defaults:
        if any(node.id not in {*named, *NO_TILES} for node in uncached_names_in(one)):
            return False
    names = {node.id for statement in function.body for node in uncached_names_in(statement)} - parameters
    return all(once[name] <= 1 and name not in changed for name in names)


def _is_allowed(node: ast.AST) -> bool:
    return isinstance(node, _ALLOWED) and all(_is_allowed(child) for child in below(node))


def _write_out(
    text: SourceText, edits: Edits, node: ast.AST, functions: Mapping[str, ast.FunctionDef], own: set[str]
) -> bool:
    """Add to ``edits`` the returned expression in place of each outermost call of ``functions`` in ``node``. Return
    True if there is such a call.

    ``own`` has the names that mean something else in ``node`` than at the top of the file.
    """
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in functions and name not in own:
            written = _returned(functions[name], node, own)
            if written is not None:
                start, end = text.span(node)
                lines = "\n" * text.source[start:end].count("\n")
                edits.replace(start, end, f"({written}{lines})" if lines else written)
                return True
    done = False
    for child in below(node):
        done |= _write_out(text, edits, child, functions, own)
    return done


def _returned(function: ast.FunctionDef, call: ast.Call, own: set[str]) -> str | None:
    """Return the text of the expression that a call returns; None if the call can not be written out."""
    found = call_arguments(function, call)
    if found is None:
        return None
    values, defaults = found
    if not all(_is_simple(one) for one in defaults.values()):
        return None
    if own & {node.id for one in defaults.values() for node in uncached_names_in(one)}:
        return None
    values |= defaults
    (statement,) = (one for one in function.body if isinstance(one, ast.Return))
    assert statement.value is not None
    names = uncached_names_in(statement.value)
    if own & {node.id for node in names if node.id not in values}:
        return None
    uses = Counter(node.id for node in names)
    if any(uses[name] != 1 and not _is_simple(value) for name, value in values.items()):
        return None
    written = ast.unparse(_Filled(values).visit(deepcopy(statement.value)))
    return f"({written})" if isinstance(statement.value, ast.BinOp | ast.UnaryOp) else written


def _is_simple(node: ast.AST) -> bool:
    return isinstance(node, _SIMPLE) and all(_is_simple(child) for child in below(node))


class _Filled(ast.NodeTransformer):
    """Replace names in an expression by their values in ``values``."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._values.get(node.id, node)
