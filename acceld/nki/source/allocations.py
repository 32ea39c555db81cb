"""Declare the used part of a tile as a tile, so that rules see a declaration.

For example ``column = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)[:, 0:1]`` becomes
``column = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)``. The rest of such a tile has no name, so nothing uses
it. Every line keeps its number.
"""

from __future__ import annotations

import ast
import re

from acceld.editing import Edits, SourceText
from acceld.nki.source.spans import parsed
from acceld.nki.source.syntax import DECLARATIONS, NO_TILES, called, elements, root, uncached_names_in, walked

_MAY_TAKE = re.compile(r"\)\s*\[")
"""Matches an index behind a call. Parsing costs far more than this search."""


def with_used_parts(source: str) -> str:
    """Return ``source`` with a tile of just the used elements in place of each new tile of which only the first
    elements get a name.

    Return ``source`` itself if it does not parse or has no such tile.
    """
    if not _MAY_TAKE.search(source):
        return source
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError):
        return source
    text, edits, found = SourceText(source), Edits(source), False
    patterned = _patterned(tree)
    for node in walked(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Subscript(value=ast.Call(func=function) as call) as part
            ) if called(function) in DECLARATIONS and name not in patterned:
                shape = _shape(call)
                used = [_extent(one) for one in elements(part)]
                if shape is None or len(shape) != len(used) or None in used:
                    continue
                for extent, end in zip(shape, used, strict=True):
                    if end:
                        edits.replace(*text.span(extent), end)
                edits.replace(text.span(call)[1], text.span(part)[1], "")
                found = True
    return edits.apply() if found else source


def _patterned(tree: ast.Module) -> set[str]:
    """Return the names of tiles that an access pattern (``tile.ap``) may read or write. The steps of a pattern count
    elements of the whole tile, so such a tile keeps its shape.
    """
    owners = [one.value for one in walked(tree) if isinstance(one, ast.Attribute) and one.attr == "ap"]
    if not owners:
        return set()
    found = {one.id for owner in owners for one in uncached_names_in(owner)}
    for node in walked(tree):
        match node:
            case ast.Call(func=function, args=args, keywords=named) if root(function) not in NO_TILES:
                given = [*args, *(one.value for one in named)]
            case ast.For(iter=value) | ast.comprehension(iter=value):
                given = [value]
            case ast.Assign(value=value) | ast.Return(value=ast.expr() as value):
                given = [value]
            case _:
                continue
        # a function, a list or a second name may have a pattern
        found.update(one.id for each in given for one in uncached_names_in(each))
    return found


def _shape(call: ast.Call) -> list[ast.expr] | None:
    """Return the extents of a declared tile; None if they are not written out."""
    given = call.args[0] if call.args else next((one.value for one in call.keywords if one.arg == "shape"), None)
    return list(given.elts) if isinstance(given, ast.Tuple | ast.List) else None


def _extent(index: ast.expr) -> str | None:
    """Return the text of the number of elements that a slice from the first element on selects.

    The result is "" for a slice of all elements, and None for any other index.
    """
    match index:
        case ast.Slice(lower=None | ast.Constant(value=0), upper=None, step=None):
            return ""
        case ast.Slice(lower=None | ast.Constant(value=0), upper=ast.Constant(value=int() as end), step=None):
            return str(end) if end > 0 else None
        case ast.Slice(lower=None | ast.Constant(value=0), upper=ast.Name(id=name), step=None):
            return name
    return None
