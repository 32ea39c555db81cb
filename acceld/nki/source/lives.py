"""Give each result that overwrites a tile in use a new tile, so that rules see who reads which result.

For example ::

    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=tile, data1=x, data2=x, op=nl.multiply)
    nisa.tensor_reduce(dst=total, data=tile, op=nl.add, axis=1)
    # scale
    nisa.tensor_scalar(dst=tile, data=x, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)

becomes ::

    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=tile, data1=x, data2=x, op=nl.multiply)
    nisa.tensor_reduce(dst=total, data=tile, op=nl.add, axis=1)
    tile_2 = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)  # scale
    nisa.tensor_scalar(dst=tile_2, data=x, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile_2)

The new declaration takes the place of a blank line or of a comment's line, because every line keeps its number. Without such
a line it stands behind the first declaration, on the same line.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from acceld.editing import Edits, SourceText
from acceld.nki.source.spans import parsed
from acceld.nki.source.syntax import (
    DECLARATIONS,
    NO_TILES,
    PRODUCTS,
    below,
    blocks,
    is_straight,
    known_functions,
    names_in,
    root,
    uncached_names_in,
)

_KEEP_ELEMENTS = frozenset({*PRODUCTS, "nc_stream_shuffle"})
"""Instructions that may keep what elements of the tile ``dst`` hold, or add to it."""
_LEAVES_ELEMENTS = frozenset({"mask", "oob_mode", "dst_rmw_op", "dge_mode", "unique_indices"})
"""Arguments with which an instruction may leave elements of ``dst`` unchanged."""


def with_own_tiles(source: str) -> str:
    """Return ``source`` in which each result that overwrites a whole tile in use gets a tile of its own; ``source``
    itself if there is no such result.
    """
    tree, text, edits = parsed(source), SourceText(source), Edits(source)
    taken, lines = set[str](), set[int]()
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            counted = [
                (body, Counter(name for one in body if (name := _overwritten(one)))) for body in blocks(function.body)
            ]
            plain = (
                _plain_names(function)
                if is_straight(function) and any(max(found.values(), default=0) > 1 for _, found in counted)
                else set()
            )
            for body, again in counted:
                for at, statement in enumerate(body):
                    name = declared_tile(statement)
                    if again[name] > 1 and name in plain:
                        taken |= {node.id for node in uncached_names_in(tree)}
                        uses = sum(node.id == name and isinstance(node.ctx, ast.Load) for node in names_in(function))
                        _separate(text, edits, name, body[at:], taken, lines, uses)
    return edits.apply()


def declared_tile(statement: ast.stmt) -> str:
    """Return the name of the on-chip tile that a statement declares; empty for other statements."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr=function)) as call):
            space = next((one.value for one in call.keywords if one.arg == "buffer"), None)
            on_chip = isinstance(space, ast.Attribute) and space.attr in ("sbuf", "psum")
            # a second tile can not have the same name or address
            own = any(one.arg in ("name", "address") for one in call.keywords)
            return name if function in DECLARATIONS and on_chip and not own else ""
    return ""


def _plain_names(function: ast.FunctionDef) -> set[str]:
    """Return the names that are assigned once and that all other statements only pass to calls, as whole tiles or as
    parts.
    """
    stores, other = Counter[str](), set[str]()
    stack: list[tuple[ast.AST, bool]] = [(function, False)]
    while stack:
        node, is_argument = stack.pop()
        if type(node) is ast.Name:
            if type(node.ctx) is ast.Store:
                stores[node.id] += 1
            elif not is_argument:
                other.add(node.id)
        elif is_argument and type(node) is ast.Subscript and type(node.value) is ast.Name:
            stack.append((node.slice, False))
        else:
            # True for an argument of a call of nl or nisa, which makes no second name for a tile
            inside = (
                root(node.func) in NO_TILES
                if isinstance(node, ast.Call)
                else is_argument and isinstance(node, ast.keyword)
            )
            stack += [(child, inside) for child in below(node)]
    return {name for name, count in stores.items() if count == 1} - other


def _separate(
    text: SourceText,
    edits: Edits,
    name: str,
    body: Sequence[ast.stmt],
    taken: set[str],
    lines: set[int],
    uses: int,
) -> None:
    """Add to ``edits`` a new tile for each later result that is written to the tile ``name``, which the first statement
    of ``body`` declares.

    ``taken`` has the names that occur in the source. ``lines`` has the numbers of the lines that new declarations have
    taken. Names and lines of the new tiles are added to these sets. ``uses`` is the
    number of uses of the tile in the function.
    """
    declaration, *rest = body
    assert isinstance(declaration, ast.Assign)
    bound = {node.id for one in rest for node in names_in(one) if isinstance(node.ctx, ast.Store)}
    if bound & {node.id for node in names_in(declaration.value)}:
        return
    loads = sum(node.id == name for one in rest for node in names_in(one))
    if loads != uses:
        return  # the tile is also used before the declaration or after the block
    written, current = False, name
    for at, statement in enumerate(rest, 1):
        destination = _destination(statement) if _overwritten(statement) == name else None
        separate = destination is not None and written
        line = _free_line(text, body[: at + 1], lines) if separate else None
        for node in names_in(statement):
            if node.id == name and node is not destination and current != name:
                edits.replace(*text.span(node), current)
        if separate:
            current = new_name(name, taken)
            _declare(text, edits, line, current, declaration)
            lines |= set() if line is None else {line}
        if destination is not None and current != name:
            edits.replace(*text.span(destination), current)
        written = written or any(node.id == name for node in names_in(statement))


def _overwritten(statement: ast.stmt) -> str:
    """Return the name of the tile that a statement overwrites completely; empty for other statements."""
    destination = _destination(statement)
    return destination.id if destination is not None else ""


def _destination(statement: ast.stmt) -> ast.Name | None:
    """Return the node that names the tile which a statement overwrites completely; None for other statements."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=function)) as call) if (
            function in known_functions("nki") and function not in _KEEP_ELEMENTS
        ):
            given = {one.arg: one.value for one in call.keywords}
            destination = given.get("dst") or (call.args[0] if call.args else None)
            if isinstance(destination, ast.Name) and not _LEAVES_ELEMENTS & given.keys():
                return destination
    return None


def _free_line(text: SourceText, body: Sequence[ast.stmt], lines: set[int]) -> int | None:
    """Return the number of a line that can take a new declaration: the last blank line between two statements of
    ``body``, else the last line with only a comment, else None. Lines in ``lines`` are already taken.
    """
    found: list[tuple[bool, int]] = []
    for before, after in pairwise(body):
        for line in range((before.end_lineno or before.lineno) + 1, after.lineno):
            content = text.source[text.line_starts[line - 1] : text.line_starts[line]].strip()
            if line not in lines and (not content or content.startswith("#")):
                found.append((not content, line))
    return max(found)[1] if found else None


def _declare(text: SourceText, edits: Edits, line: int | None, name: str, declaration: ast.Assign) -> None:
    """Declare the tile ``name`` in a free line, or else behind ``declaration``, on the same line."""
    value = text.source[slice(*text.span(declaration.value))]
    if "\n" in value:
        value = ast.unparse(declaration.value)
    if line is None:
        edits.insert(text.span(declaration)[1], f"; {name} = {value}")
        return
    start, end = text.line_starts[line - 1], text.line_starts[line]
    comment = text.source[start:end].strip()
    start_of = text.span(declaration)[0]
    indent = text.source[text.line_start(start_of) : start_of]
    written = f"{indent}{name} = {value}{comment and '  ' + comment}"
    edits.replace(start, end, written + ("\n" if text.source[start:end].endswith("\n") else ""))


def new_name(name: str, taken: set[str]) -> str:
    """Return a name that is not in ``taken``, such as ``tile_2`` for ``tile``, and add it to ``taken``."""
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    taken.add(f"{name}_{number}")
    return f"{name}_{number}"
