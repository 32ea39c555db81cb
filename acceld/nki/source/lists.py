"""Replace lists of tiles by one tile with an axis for the list, so that rules see which tile a statement uses.

For example ::

    tiles = []
    for k in nl.affine_range(8):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[nl.ds(128 * k, 128), 0:512])
        tiles.append(tile)
    for k in nl.affine_range(8):
        nisa.nc_matmul(dst=total, stationary=left, moving=tiles[k])

becomes ::

    tiles = nl.ndarray((128, 8, 512), dtype=x.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(8):
        # tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tiles[0:128, k, 0:512], src=x[nl.ds(128 * k, 128), 0:512])
        # tiles.append(tile)
    for k in nl.affine_range(8):
        nisa.nc_matmul(dst=total, stationary=left, moving=tiles[0:128, k, 0:512])

A list of lists gets an axis for each list. Every line keeps its number.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from acceld.editing import Edits, SourceText
from acceld.nki.source.spans import is_alone, parsed
from acceld.nki.source.syntax import (
    DECLARATIONS,
    LOOPS,
    below,
    blocks,
    called,
    elements,
    is_straight,
    names_in,
    root,
    walked,
)

_NO_PLACE = (ast.Slice, ast.Tuple, ast.UnaryOp, ast.Sub)
"""Nodes that may not occur in an index of a list: they are not a number, or may give a negative number, which counts
from the end of the list.
"""


@dataclass(frozen=True, slots=True)
class _Level:
    """One list of tiles or of lists: its name, the loop that fills it, and the statements that create it and append to
    it.
    """

    name: str
    made: ast.Assign
    loop: ast.For
    append: ast.Expr

    @property
    def variable(self) -> str:
        """Return the loop's variable, which is the index of the element that an iteration appends."""
        assert isinstance(self.loop.target, ast.Name)
        return self.loop.target.id


@dataclass(frozen=True, slots=True)
class _Stack:
    """One tile that a loop declares and appends to a list, or to a list in a list: the lists, outermost first, and the
    tile's declaration.
    """

    levels: tuple[_Level, ...]
    tile: str
    declaration: ast.Assign

    @property
    def extents(self) -> list[ast.expr]:
        """Return the extents of the tile's shape."""
        call = self.declaration.value
        assert isinstance(call, ast.Call)
        return elements(_argument(call, "shape"))


def with_stacked_tiles(source: str) -> str:
    """Return ``source`` with each list that a loop fills with tiles in SBUF replaced by one tile;
    ``source`` itself if it has no such list.
    """
    if ".append(" not in source:
        return source
    tree, text, edits = parsed(source), SourceText(source), Edits(source)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and is_straight(function):
            if len(_patterns(function)) < len(_patterns(tree)):
                continue  # another function may be called with a tile of a list, and use strides of that tile
            if not {root(one) for one in _patterns(function)} <= _own_tensors(function):
                continue  # for example a pattern of what a call returns, which may be a tile of a list
            for stack in _stacks(text, function):
                _replace(text, edits, function, stack)
    return edits.apply()


def _patterns(node: ast.AST) -> list[ast.Attribute]:
    """Return the nodes of the source that are access patterns (``.ap``). A pattern gives strides, which an additional
    axis of the tile would change.
    """
    return [one for one in walked(node) if isinstance(one, ast.Attribute) and one.attr == "ap"]


def _own_tensors(function: ast.FunctionDef) -> set[str]:
    """Return the names that stand for an argument or for a tensor or tile that the function declares, and nothing else."""
    stores = Counter(node.id for node in names_in(function) if isinstance(node.ctx, ast.Store))
    declared = Counter(
        _assigned(one)
        for one in walked(function)
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call) and called(one.value.func) in DECLARATIONS
    )
    given = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    return {name for name in given | declared.keys() if stores[name] == declared[name]}


def _stacks(text: SourceText, function: ast.FunctionDef) -> Iterator[_Stack]:
    """Yield each tile in lists that one tile with an axis for each list can replace."""
    bound = [node.id for node in names_in(function) if isinstance(node.ctx, ast.Store)]
    for body in blocks(function.body):
        for at in range(len(body)):
            levels: list[_Level] = []
            block: Sequence[ast.stmt] = body[at:]
            while (level := _level(block)) is not None and bound.count(level.name) == 1:
                levels.append(level)
                element = _appended(level.append, level.name)
                made = next((i for i, one in enumerate(level.loop.body) if _assigned(one) == element), None)
                if made is None or bound.count(element) != 1:
                    break
                declaration = level.loop.body[made]
                block = level.loop.body[made:]
                if isinstance(declaration, ast.Assign) and _is_tile(declaration):
                    stack = _Stack(tuple(levels), element, declaration)
                    if _is_understood(function, stack, body[at:]) and all(is_alone(text, one) for one in _gone(stack)):
                        yield stack
                    break


def _level(block: Sequence[ast.stmt]) -> _Level | None:
    """Return the list that the first statement of ``block`` creates empty and a later loop of the block fills; None if
    there is no such list.
    """
    made = block[0]
    if not isinstance(made, ast.Assign) or not isinstance(made.value, ast.List) or made.value.elts:
        return None
    name = _assigned(made)
    for statement in block[1:]:
        match statement:
            case ast.For(target=ast.Name(), iter=ast.Call(func=function, args=[_], keywords=[]), orelse=[]):
                appends = [one for one in statement.body if isinstance(one, ast.Expr) and _appended(one, name)]
                if len(appends) == 1 and called(function) in LOOPS:
                    return _Level(name, made, statement, appends[0])
    return None


def _appended(statement: ast.Expr, name: str) -> str:
    """Return the name of the element that the statement ``name.append(element)`` appends; empty for other statements."""
    match statement.value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=found), attr="append"), args=[ast.Name(id=element)]):
            return element if found == name else ""
    return ""


def _assigned(statement: ast.stmt) -> str:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""


def _is_tile(statement: ast.Assign) -> bool:
    """Tell whether a statement declares a tile in SBUF whose shape is written as a tuple of at least two extents."""
    call = statement.value
    if not isinstance(call, ast.Call) or called(call.func) not in DECLARATIONS:
        return False
    given = {one.arg: one.value for one in call.keywords}
    space, shape = given.get("buffer"), _argument(call, "shape")
    plain = "address" not in given and None not in given
    return (
        plain
        and isinstance(space, ast.Attribute)
        and space.attr == "sbuf"
        and isinstance(shape, ast.Tuple)
        and len(shape.elts) > 1
    )


def _argument(call: ast.Call, name: str) -> ast.expr:
    """Return the argument with the keyword ``name``; without that keyword, the first positional argument."""
    given = {one.arg: one.value for one in call.keywords}
    return given[name] if name in given else call.args[0] if call.args else ast.Constant(None)


def _is_understood(function: ast.FunctionDef, stack: _Stack, block: Sequence[ast.stmt]) -> bool:
    """Tell whether the tile and its lists are used only in ways that :func:`_replace` can rewrite."""
    outer = stack.levels[0]
    names = {stack.tile, *(level.name for level in stack.levels)}
    if any(root(one) in names for one in _patterns(function)):
        return False  # an access pattern gives strides, which an additional axis would change
    changed = {node.id for node in names_in(outer.loop) if isinstance(node.ctx, ast.Store)}
    between = block[1 : block.index(outer.loop)]
    changed |= {node.id for one in between for node in names_in(one) if isinstance(node.ctx, ast.Store)}
    assert isinstance(stack.declaration.value, ast.Call)
    kept = [one.value for one in stack.declaration.value.keywords if one.arg != "name"]
    sizes = [*stack.declaration.value.args, *kept, *(level.loop.iter for level in stack.levels)]
    if changed.intersection(node.id for size in sizes for node in names_in(size)):
        return False  # the one tile would be declared where the list is created, and its size is not known there yet
    for level in stack.levels:
        bound = [node.id for node in names_in(level.loop) if isinstance(node.ctx, ast.Store)]
        if bound.count(level.variable) != 1:
            return False
    uses = _uses(function, stack)
    if not uses or any(node.id in names for _, places in uses for place in places for node in names_in(place)):
        return False
    innermost = stack.levels[-1].loop.body
    later = {id(node) for one in innermost[innermost.index(stack.declaration) + 1 :] for node in walked(one)}
    if any(root(node) == stack.tile and id(node) not in later for node, _ in uses):
        return False
    known = [one for level in stack.levels for one in (level.made, level.append)]
    covered = {id(node) for one in (*known, stack.declaration, *(use for use, _ in uses)) for node in names_in(one)}
    return all(id(node) in covered for node in walked(function) if isinstance(node, ast.Name) and node.id in names)


def _gone(stack: _Stack) -> list[ast.stmt]:
    """Return the statements that become comments: those that create inner lists, declare the tile and append to lists."""
    return [*(level.made for level in stack.levels[1:]), stack.declaration, *(level.append for level in stack.levels)]


def _uses(function: ast.FunctionDef, stack: _Stack) -> list[tuple[ast.expr, list[ast.expr]]]:
    """Return each use of a stacked tile, by its own name or as an element of its lists, with the indices of the
    lists.

    The statement that appends the tile to its list is left out.
    """
    found: list[tuple[ast.expr, list[ast.expr]]] = []
    appends = [level.append for level in stack.levels]

    def walk(node: ast.AST, around: ast.AST) -> None:
        if node in appends:
            return
        part = _use(node, stack)
        if part is not None and isinstance(around, ast.Call | ast.keyword):
            found.append(part)
        else:
            for child in below(node):
                walk(child, node)

    walk(function, function)
    return found


def _use(node: ast.AST, stack: _Stack) -> tuple[ast.expr, list[ast.expr]] | None:
    """Return ``node`` and the indices by which it selects a tile of a list, if ``node`` is such a tile or a part of one.

    For example ``i`` for ``tiles[i][0:128, 0:64]``. Return None for any other node.
    """
    chain: list[ast.expr] = []
    base = node
    while isinstance(base, ast.Subscript):
        chain.insert(0, base.slice)
        base = base.value
    if not isinstance(base, ast.Name) or not isinstance(node, ast.expr) or not isinstance(base.ctx, ast.Load):
        return None
    lists = len(stack.levels) if base.id == stack.levels[0].name else 0 if base.id == stack.tile else None
    if (
        lists is None
        or len(chain) not in (lists, lists + 1)
        or any(isinstance(one, _NO_PLACE) for index in chain[:lists] for one in ast.walk(index))
    ):
        return None
    if len(chain) > lists and len(elements(ast.Subscript(base, chain[-1]))) != len(stack.extents):
        return None
    return node, chain[:lists]


def _replace(text: SourceText, edits: Edits, function: ast.FunctionDef, stack: _Stack) -> None:
    """Add to ``edits`` one declaration in place of the outermost list, and new texts of all uses."""

    def written(node: ast.AST) -> str:
        return text.source[slice(*text.span(node))]

    extents = [written(one) for one in stack.extents]
    counts = [written(level.loop.iter.args[0]) for level in stack.levels if isinstance(level.loop.iter, ast.Call)]
    call = stack.declaration.value
    assert isinstance(call, ast.Call)
    shape = f"({', '.join([extents[0], *counts, *extents[1:]])})"
    # the one tile has no name, because each name in the loop is of one tile
    rest = [f"{one.arg}={written(one.value)}" for one in call.keywords if one.arg not in ("shape", "name")]
    positional = [written(one) for one in call.args if one is not _argument(call, "shape")]
    edits.replace(
        *text.span(stack.levels[0].made.value), f"{written(call.func)}({', '.join([shape, *positional, *rest])})"
    )
    gone = _gone(stack)
    empty = all(one in gone for one in stack.levels[-1].loop.body)
    for statement in gone:
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
            start = text.line_starts[line - 1]
            content = text.source[start : text.line_starts[line]]
            if content.strip():
                stands = "pass  # " if empty and statement is stack.levels[-1].append else "# "
                edits.insert(start + len(content) - len(content.lstrip()), stands)
    for node, indices in _uses(function, stack):
        places = [written(one) for one in indices] or [level.variable for level in stack.levels]
        own = len(indices) if indices else 0
        chain: list[ast.Subscript] = []
        base = node
        while isinstance(base, ast.Subscript):
            chain.insert(0, base)
            base = base.value
        if len(chain) > own:
            first, *others = [written(one) for one in elements(chain[-1])]
        else:
            first, *others = [f"0:{extent}" for extent in extents]
        edits.replace(*text.span(node), f"{stack.levels[0].name}[{', '.join([first, *places, *others])}]")
