"""Write the new text of a rewritten kernel: changed statements, loops, declarations."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from acceld.editing import Edits, SourceText
from acceld.errors import RuleRefused
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spans import parsed
from acceld.nki.source.syntax import (
    DECLARATIONS,
    Item,
    Loop,
    Statement,
    accesses,
    below,
    called,
    flatten,
    names_in,
    uncached_names_in,
    walked,
)

STEP = "    "
_Node = TypeVar("_Node", bound=ast.AST)


def replaced(kernel: KernelModule, gone: Sequence[Statement], changed: Mapping[Statement, str]) -> str:
    """Return the kernel's source without the statements ``gone``, and with the statements in ``changed``
    replaced by their new texts.

    Buffers that the change leaves unused are removed too.
    """
    edits = Edits(kernel.source)
    for statement in gone:
        edits.delete_lines(statement.start, statement.end)
    for statement, text in changed.items():
        edits.replace(statement.start, statement.end, text)
    return without_unused_buffers(edits.apply(), kernel)


def without_unused_buffers(source: str, kernel: KernelModule) -> str:
    """Return ``source``, a changed version of ``kernel``, without the on-chip buffers that the change left
    unused.

    A buffer that ``kernel`` did not use before the change stays.
    """
    try:
        tree = parsed(source)
    except SyntaxError as error:
        raise RuleRefused(f"the source is not valid Python: {error}") from error
    own = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == kernel.function.name)
    function = next(own, tree)  # other functions may have tiles with the same names
    counts = Counter(node.id for node in uncached_names_in(function))
    once = [name for name in kernel.buffers if counts[name] == 1 and kernel.space_of(name) != "hbm"]
    unused = {name for name in once if kernel.readers(name) or kernel.writers(name)}
    if not unused:
        return source
    # Statements are looked at in the syntax tree, because reading the whole kernel takes several times as long.
    text, edits = SourceText(source), Edits(source)
    for node in walked(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=made)):
                if name in unused and called(made) in DECLARATIONS:
                    edits.delete_lines(*text.span(node))
    return edits.apply()


def comments(kernel: KernelModule, item: Item, indent: str) -> str:
    """Return the comment lines right above ``item``, each with the indentation ``indent``; empty if there are none."""
    return "".join(f"{indent}{line}\n" for line in kernel.comments_above(item) if line is not None)


def emitted(
    kernel: KernelModule,
    items: Sequence[Item],
    indent: str,
    renames: Mapping[str, str] | None = None,
    around: str | None = None,
    *,
    keep: Collection[Statement] | None = None,
    flat: Collection[str] = (),
    texts: Mapping[ast.AST, str] | None = None,
) -> str:
    """Return the source lines of ``items`` at indentation ``indent``.

    * ``renames``: new names of variables.
    * ``around``: the variable of the loop that the lines are put into; None if they stay in their loop.
    * ``keep``: only these statements are written, with the loops around them.
    * ``flat``: loops over these variables are replaced by their bodies.
    * ``texts``: new texts of accesses, by node.
    """
    pieces: list[str] = []
    nested = partial(emitted, keep=keep, flat=flat, texts=texts)
    for item in items:
        if keep is not None and not any(
            one in keep and (one is item or one.kind != "marker") for one in flatten([item])
        ):
            continue
        pieces.append(comments(kernel, item, indent))
        if isinstance(item, Loop) and item.variable in flat:
            pieces.append(nested(kernel, item.items, indent, renames, around))
            continue
        if isinstance(item, Loop):
            pieces.append(f"{indent}{header(kernel, item, renames)}\n")
            pieces.append(nested(kernel, item.items, indent + STEP, renames, item.variable) or f"{indent}{STEP}pass\n")
            continue
        if ends_other_loop(kernel, item, around):
            continue
        own: dict[ast.AST, str] = dict(_renamed(item.node, renames)) if renames else {}
        own |= {one.node: new for one in accesses(item) if (new := texts.get(one.node)) is not None} if texts else {}
        first, *rest = changed(kernel, item.node, own).split("\n")
        cut = len(item.indent)
        moved = [first, *(indent + line[cut:] if line[:cut].isspace() else line for line in rest)]
        pieces.append(indent + "\n".join(moved) + "\n")
    return "".join(pieces)


_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _renamed(node: ast.AST, renames: Mapping[str, str]) -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes in ``node`` that get new texts, each with its text: names, and arithmetic that only has numbers then,
    such as 256 for ``128 * i`` if 2 replaces ``i``.
    """
    if isinstance(node, ast.Name):
        if node.id in renames:
            yield node, renames[node.id]
        return
    value = _value(node, renames) if isinstance(node, ast.BinOp) else None
    if value is not None and any(one.id in renames for one in names_in(node)):
        yield node, str(value)
        return
    for child in below(node):
        yield from _renamed(child, renames)


def _value(node: ast.AST, renames: Mapping[str, str]) -> int | None:
    """Return the whole number that the expression ``node`` has with the texts ``renames`` in place of its names; None if
    that number is not known.
    """
    match node:
        case ast.Constant(value=value) if type(value) is int:
            return value
        case ast.Name(id=name) if renames.get(name, "").isdecimal():
            return int(renames[name])
        case ast.BinOp(left=left, op=op, right=right) if (compute := _ARITHMETIC.get(type(op))) is not None:
            one, other = _value(left, renames), _value(right, renames)
            divides = isinstance(op, ast.FloorDiv | ast.Mod)
            return None if one is None or other is None or (divides and not other) else compute(one, other)
    return None


def ends_other_loop(kernel: KernelModule, statement: Statement, around: str | None) -> bool:
    """Tell whether a statement is a string such as ``' end loop i '`` that marks the end of a loop other than
    ``around``.
    """
    if statement.kind != "marker" or around is None:
        return False
    words = kernel.source[statement.start : statement.end].strip("'\" ").split()
    return words[:2] == ["end", "loop"] and words[2:3] != [around]


def filled_before(kernel: KernelModule, outer: Loop, loops: Sequence[Loop], declaration: str, statement: str) -> Edits:
    """Return edits that insert ``declaration`` before the loop ``outer``, followed by copies of ``loops`` with
    ``statement`` inside.
    """
    indent = outer.indent
    lines = [indent + declaration]
    for loop in loops:
        lines.append(indent + header(kernel, loop))
        indent += STEP
    lines.append(indent + statement)
    edits = Edits(kernel.source)
    edits.insert(kernel.line_start(outer.start), "\n".join(lines) + "\n")
    return edits


def header(kernel: KernelModule, loop: Loop, renames: Mapping[str, str] | None = None) -> str:
    """Return the header of a loop, such as ``for v in nl.affine_range(n):``. ``renames`` may give the variable
    a new name.
    """
    variable = (renames or {}).get(loop.variable, loop.variable)
    return f"for {variable} in {kernel.text(loop.node.iter)}:"


def changed(kernel: KernelModule, node: ast.AST, texts: Mapping[_Node, str]) -> str:
    """Return the text of ``node`` with some of the nodes inside it replaced by their ``texts``."""
    first, last = kernel.span(node)
    edits = Edits(kernel.source[first:last])
    for one, text in texts.items():
        start, end = kernel.span(one)
        edits.replace(start - first, end - first, text)
    return edits.apply()


def depends_on(statement: Statement, variables: frozenset[str]) -> bool:
    """Tell whether one of the loop variables ``variables`` occurs in the statement."""
    return any(name.id in variables for name in names_in(statement.node))


def named_inside(node: ast.AST, loop: Loop) -> bool:
    """Tell whether ``node`` uses the name of an index that is defined inside ``loop``.

    Such a node can not be moved before the loop, because the name has no value there.
    """
    defined = set()
    for statement in loop.statements():
        if statement.kind == "alias" and isinstance(statement.node, ast.Assign):
            defined |= {name.id for name in names_in(statement.node.targets[0])}
    return any(name.id in defined for name in names_in(node))


def written(items: Sequence[Item]) -> set[str]:
    """Return the names of the tiles and tensors that ``items`` write."""
    return {access.name for s in flatten(items) if s.kind in ("op", "other") for access in s.results}


def read(items: Sequence[Item]) -> set[str]:
    """Return the names of the tiles and tensors that ``items`` read."""
    return {access.name for s in flatten(items) for access in s.mentions}
