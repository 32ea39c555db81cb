"""Give each of several tiles, loop variables or numbers that share one name a name of its own, so that rules see which is
used where.

For example ::

    for i in range(4):                                       for i in range(4):
        tile = nl.ndarray((128, 512), ...)                       tile = nl.ndarray((128, 512), ...)
        nisa.dma_copy(dst=tile, src=x[i * 128: ...])             nisa.dma_copy(dst=tile, src=x[i * 128: ...])
        ...                                                      ...
    for i in range(8):                                       for i_2 in range(8):
        tile = nl.ndarray((128, 64), ...)                        tile_2 = nl.ndarray((128, 64), ...)
        nisa.dma_copy(dst=tile, src=y[i * 128: ...])             nisa.dma_copy(dst=tile_2, src=y[i_2 * 128: ...])

on the left becomes what stands on the right. Every line keeps its number.
"""

from __future__ import annotations

import ast
from collections import defaultdict

from acceld.editing import Edits, SourceText
from acceld.nki.source.lives import new_name
from acceld.nki.source.spans import parsed
from acceld.nki.source.syntax import bindings, blocks, is_straight, names_in, uncached_names_in, walked

_BY_NAME = frozenset({"dir", "eval", "exec", "locals", "vars"})
"""Functions of Python that use a function's names as texts."""
_Scope = tuple[int, int]
"""Part of the source in which a name has one meaning: offsets of its first character and of the character behind its last."""


def with_own_names(source: str) -> str:
    """Return ``source`` with a new name for each second meaning of a name in a function.

    Return ``source`` itself if no name has two meanings in separate parts of a function.
    """
    tree = parsed(source)
    again = {name for name, count in bindings(tree).items() if count > 1}
    if not again:
        return source
    text, edits, taken = SourceText(source), Edits(source), set[str]()
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or not is_straight(function):
            continue
        scopes = _scopes(text, function, again - _fixed(function))
        uses = defaultdict[str, list[ast.Name]](list)
        for node in names_in(function) if scopes else ():
            if node.id in scopes:
                uses[node.id].append(node)
        for name, found in scopes.items():
            spans = [(text.span(node), node) for node in uses[name]]
            homes = [next((at for at, one in enumerate(found) if _holds(one, span)), None) for span, _ in spans]
            if None in homes:
                continue  # the name is also used where its meaning depends on what ran before
            taken = taken or {node.id for node in uncached_names_in(tree)}
            names = [name, *(new_name(name, taken) for _ in found[1:])]
            for home, (span, _) in zip(homes, spans, strict=True):
                if home:
                    edits.replace(*span, names[home])
    return edits.apply()


def _scopes(text: SourceText, function: ast.FunctionDef, names: set[str]) -> dict[str, list[_Scope]]:
    """Return a dict from each of ``names`` with two or more separate scopes in a function to these scopes, in source order.

    A scope begins where a block assigns the name. It ends where the same block binds the name again, or with the block.
    The scope of a loop's variable is the loop. Loops over the same range may share a variable.
    """
    values = defaultdict[str, set[str]](set)
    found = defaultdict[str, list[_Scope]](list)
    for body in blocks(function.body):
        opened: dict[str, int] = {}
        for statement in body:
            name = _bound(statement)
            if name not in names:
                continue
            start, end = text.span(statement)
            if name in opened:
                found[name].append((opened.pop(name), start))
            if isinstance(statement, ast.For):
                found[name].append((start, end))
                values[name].add(ast.dump(statement.iter))
            else:
                opened[name] = start
                values[name].add(str(start))  # each assignment makes another tile
        end = text.span(body[-1])[1] if opened else 0
        for name, start in opened.items():
            found[name].append((start, end))
    several = {name: _outermost(each) for name, each in found.items() if len(values[name]) > 1}
    return {name: apart for name, apart in several.items() if len(apart) > 1}


def _bound(statement: ast.stmt) -> str:
    """Return the name to which a statement alone gives a new meaning: the target of an assignment or the variable of a
    loop, unless the new value depends on the old one. Return "" for other statements.
    """
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.For(target=ast.Name(id=name), iter=value):
            return "" if any(one.id == name for one in names_in(value)) else name
    return ""


def _outermost(scopes: list[_Scope]) -> list[_Scope]:
    """Return the scopes that lie inside no other scope, in the order of the source."""
    kept: list[_Scope] = []
    for one in sorted(scopes, key=lambda scope: (scope[0], -scope[1])):
        if not kept or one[0] >= kept[-1][1]:
            kept.append(one)
    return kept


def _fixed(function: ast.FunctionDef) -> set[str]:
    """Return the names of a function that must not be renamed.

    These are its parameters, names in strings that are put together at run time, and names that a generator reads
    only when it is asked for its next value. All names are fixed if a call looks up names, such as ``locals()``.
    """
    found = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    for node in walked(function):
        if isinstance(node, ast.Name):
            if node.id in _BY_NAME:
                return found | {one.id for one in names_in(function)}
        elif node.__class__ in (ast.JoinedStr, ast.GeneratorExp):
            found |= {one.id for one in names_in(node)}
    return found


def _holds(scope: _Scope, span: tuple[int, int]) -> bool:
    return scope[0] <= span[0] and span[1] <= scope[1]
