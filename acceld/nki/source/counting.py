"""Let each loop count from 0 by 1, so that rules know its number of iterations.

For example ::

    for r0 in range(0, rows, 128):                          for i_r0 in range((rows + 127) // 128):
        h = min(128, rows - r0)                                 h = min(128, rows - 128 * i_r0)
        nisa.dma_copy(dst=tile, src=x[r0:r0 + h])               nisa.dma_copy(dst=tile, src=x[128 * i_r0:128 * i_r0 + h])

Every line keeps its number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from acceld.editing import Edits, SourceText
from acceld.nki.source.names import PLAIN_PLACES
from acceld.nki.source.spans import parsed
from acceld.nki.source.syntax import LOOPS, TILE_SIZES, below, called, is_straight, numbers, uncached_names_in, walked

_SIMPLE = (ast.Constant, ast.BinOp, ast.UnaryOp)
"""Nodes of a first value or a step: evaluated again in every iteration, they give the same value."""
_ATOMS = (ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.Subscript)
_ROUNDS = 8
_MAY_COUNT = re.compile(r"range\(.*,")
"""Matches a line that may have a range with a start. Parsing costs far more than this search."""


def with_counted_loops(source: str) -> str:
    """Return ``source`` in which each loop over a range with a start or a step counts from 0 by 1; ``source`` itself if
    it has no such loop.

    A loop stays if its variable has a use outside of loops over that variable, if its step is not known to be positive, or
    if its body changes a name in its start or step.
    """
    if not _MAY_COUNT.search(source):
        return source
    for _ in range(_ROUNDS):  # a range that names the variable of a changed loop waits for the next round
        tree = parsed(source)
        if not any(_parts(one) for one in walked(tree) if isinstance(one, ast.For)):
            return source
        text, edits, known = SourceText(source), Edits(source), numbers(tree)
        done = False
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and is_straight(function):
                given = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
                steps, free = (known - given) | _sizes(function), _loop_variables(function)
                replaced: set[str] = set()
                steady = known | given | _stored(function)
                for loop in _loops(function.body):
                    if _name(loop) not in free or replaced & _names(loop.iter):
                        continue
                    if _count(text, edits, loop, steps, steady):
                        replaced.add(_name(loop))
                        done = True
        if not done:
            return source
        source = edits.apply()
    return source


def counted_values(source: str) -> dict[str, tuple[str, str]]:
    """Return, for the new name of each loop variable that :func:`with_counted_loops` may give, the old name and the text of
    its value, such as ``i_r0: (r0, 128 * i_r0)``. The result is empty for a source that does not parse.
    """
    if not _MAY_COUNT.search(source):
        return {}
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError):
        return {}
    found = {}
    for loop in walked(tree):
        if isinstance(loop, ast.For) and (parts := _parts(loop)) is not None and (name := _name(loop)):
            fresh = f"i_{name}"
            found[fresh] = name, _value(parts[0], parts[2], fresh)[0]
    return found


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in uncached_names_in(node)}


def _stored(node: ast.AST) -> set[str]:
    return {one.id for one in uncached_names_in(node) if isinstance(one.ctx, ast.Store)}


def _loops(body: list[ast.stmt]) -> Iterator[ast.For]:
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.For):
                yield node


def _name(loop: ast.For) -> str:
    return loop.target.id if isinstance(loop.target, ast.Name) else ""


def _parts(loop: ast.For) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """Return start, end and step of the range of a loop; None if the range has only an end, or is not understood."""
    match loop.iter:
        case ast.Call(func=function, args=[first, end], keywords=[]) if called(function) in LOOPS:
            return first, end, ast.Constant(1)
        case ast.Call(func=function, args=[first, end, step], keywords=[]) if called(function) in LOOPS:
            return first, end, step
    return None


def _sizes(function: ast.FunctionDef) -> set[str]:
    """Return the names to which a function assigns one positive integer, or a size of the hardware, and nothing else."""
    found: dict[str, bool] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = node.id not in found
    sizes = set()
    for statement in function.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if found[name] and _is_size(value, set()):
                sizes.add(name)
    return sizes - {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}


def _is_size(node: ast.expr, known: set[str]) -> bool:
    """Tell whether an expression is a positive integer, a size of the hardware, or one of the names ``known``."""
    match node:
        case ast.Constant(value=value):
            return type(value) is int and value > 0
        case ast.Attribute(attr=attribute):
            return attribute in TILE_SIZES
        case ast.Name(id=name):
            return name in known
    return False


def _loop_variables(function: ast.FunctionDef) -> set[str]:
    """Return the names that occur in a function only as variables of ``for`` loops. Three kinds of names are left
    out: names that another statement binds, variables of a loop inside a loop over the same name, and variables that
    are used outside of their loop.
    """
    bound: dict[str, bool] = {}

    def visit(node: ast.AST, inside: frozenset[str]) -> None:
        if isinstance(node, ast.For) and (name := _name(node)):
            bound[name] = bound.get(name, True) and name not in inside
            visit(node.iter, inside)
            for one in node.body:
                visit(one, inside | {name})
            for one in node.orelse:
                visit(one, inside)
            return
        if isinstance(node, ast.JoinedStr | ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
            bound.update(dict.fromkeys((one.id for one in uncached_names_in(node)), False))
        if isinstance(node, ast.Name) and (isinstance(node.ctx, ast.Store) or node.id not in inside):
            bound[node.id] = False
        for child in below(node):
            visit(child, inside)

    for statement in function.body:
        visit(statement, frozenset())
    given = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    return {name for name, alone in bound.items() if alone} - given


def _count(text: SourceText, edits: Edits, loop: ast.For, sizes: set[str], steady: set[str]) -> bool:
    """Add to ``edits`` a loop that counts from 0 by 1 in place of ``loop``. Return False if the loop has to stay.

    ``sizes`` are names of positive integers, ``steady`` the names that no other function can change.
    """
    parts = _parts(loop)
    if parts is None or loop.orelse or not isinstance(loop.iter, ast.Call):
        return False
    first, end, step = parts
    changed = set[str]().union(*map(_stored, loop.body))
    used = _names(first) | _names(step)
    if not _is_size(step, sizes) or not _is_simple(first, steady) or used & changed:
        return False
    if loop.iter.lineno != loop.iter.end_lineno:
        return False
    name, fresh = _name(loop), f"i_{_name(loop)}"
    if fresh in text.words:
        return False
    value, plain = _value(first, step, fresh)
    edits.replace(*text.span(loop.target), fresh)
    start, stop = text.span(loop.iter.args[0])[0], text.span(loop.iter.args[-1])[1]
    edits.replace(start, stop, _trips(first, end, step))
    for one in loop.body:
        _replace(text, edits, one, one, {name: (value, plain)})
    return True


def _is_simple(node: ast.AST, steady: set[str]) -> bool:
    match node:
        case ast.Name(id=name):
            return name in steady
        case ast.Attribute(attr=attribute):
            return attribute in TILE_SIZES
    simple = isinstance(node, (*_SIMPLE, ast.operator, ast.unaryop))
    return simple and all(_is_simple(child, steady) for child in below(node))


def _value(first: ast.expr, step: ast.expr, fresh: str) -> tuple[str, bool]:
    """Return the text of the loop variable's value, and whether that text can stand in any expression without
    parentheses.
    """
    scaled = fresh if _is_constant(step, 1) else f"{ast.unparse(step)} * {fresh}"
    if _is_constant(first, 0):
        return scaled, scaled == fresh
    return f"{ast.unparse(first)} + {scaled}", False


def _trips(first: ast.expr, end: ast.expr, step: ast.expr) -> str:
    """Return the text of the number of iterations of a range from ``first`` to before ``end`` by ``step``."""
    match first, end:
        case ast.Constant(value=int() as low), ast.Constant(value=int() as high):
            span = str(high - low)
        case _:
            span = (
                f"{ast.unparse(end)} - {ast.unparse(first) if isinstance(first, _ATOMS) else f'({ast.unparse(first)})'}"
            )
    if _is_constant(first, 0):
        span = ast.unparse(end)
    match step:
        case ast.Constant(value=1):
            return span
        case ast.Constant(value=int() as size):
            return f"({span} + {size - 1}) // {size}"
    size_text = ast.unparse(step)
    return f"({span} + {size_text} - 1) // {size_text}"


def _is_constant(node: ast.expr, value: int) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == value


def _replace(
    text: SourceText, edits: Edits, node: ast.AST, around: ast.AST, values: Mapping[str, tuple[str, bool]]
) -> None:
    """Add to ``edits`` the values of loop variables in place of their uses inside ``node``."""
    if isinstance(node, ast.Name) and node.id in values:
        value, plain = values[node.id]
        edits.replace(*text.span(node), value if plain or isinstance(around, PLAIN_PLACES) else f"({value})")
    for child in below(node):
        _replace(text, edits, child, node, values)
