"""Compute hashes of a kernel file: of its bytes, of its meaning, and of its interface (signature and workload).

The hash of the meaning leaves out comments, formatting, docstrings and the names of local variables. A save that does
not change this hash needs no evaluation. If a file reads names at run time (``locals``, ``eval``), the names count.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from acceld.parsing import functions_of, parse

ASKS_FOR_NAMES = frozenset({"locals", "vars", "eval", "exec", "globals", "dir"})
C_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""Matches a comment of C, or a string, because a string can not contain a comment."""
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Hashes:
    """The hashes (hex) of a kernel file at one moment."""

    content: str
    canonical: str
    signature: str
    contract: str
    """Text that changes with any file of the workload."""

    @property
    def interface(self) -> str:
        """Return the signature and the contract (the workload's text) as one text."""
        return self.signature + self.contract


def hashes(text: str, closure: Mapping[str, str], entry: str, contract: str, *, python: bool = True) -> Hashes:
    """Return the hashes of a kernel. ``closure`` has the texts of the modules that it imports, ``contract`` the text
    of its workload.

    In a C kernel (``python`` False) only comments and spacing do not count. Raise SyntaxError if ``text`` is not
    Python. A module of the closure that is not Python counts as text.
    """
    if not python:
        meaning_of_c = " ".join(without_comments(text).split())
        return Hashes(_digest(text), _digest(meaning_of_c), "", _digest(contract))
    content = _digest(text, *(part for item in sorted(closure.items()) for part in item))
    meaning = [canonical(text)]
    for name, source in sorted(closure.items()):
        try:
            meaning += [name, canonical(source)]
        except SyntaxError:
            meaning += [name, source]
    return Hashes(content, _digest(*meaning), _digest(signature(text, entry)), _digest(contract))


def canonical(text: str) -> str:
    """Return the meaning of a module as text: its syntax tree without docstrings, with local variables numbered by
    their first use.
    """
    tree = parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            _drop_docstring(node)
    asked = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if not asked & ASKS_FOR_NAMES:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                _rename(node, {})
    return ast.dump(tree, annotate_fields=False)


def signature(text: str, entry: str) -> str:
    """Return name, decorators and arguments of the entry as text; with ``entry`` "", of every function that the file
    offers.
    """
    return "\n".join(
        f"{name} {[ast.dump(one) for one in node.decorator_list]} {ast.dump(node.args)}"
        for name, node in functions_of(parse(text).body).items()
        if entry in ("", name)
    )


def without_comments(text: str) -> str:
    """Return C source with a space for each comment."""
    return C_COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)


def _digest(*parts: str) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(f"{len(part)}\0{part}".encode("utf-8", "surrogatepass"))
    return made.hexdigest()


def _drop_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module) -> None:
    first = node.body[0] if node.body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        node.body = node.body[1:] or [ast.Pass()]


def _own(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Iterator[ast.AST]:
    """Yield the nodes of a function's own scope: nested functions and classes, but nothing inside them."""
    waiting: list[ast.AST] = list(function.body) if not isinstance(function, ast.Lambda) else [function.body]
    waiting.reverse()
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, SCOPES):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _rename(
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, outer: Mapping[str, str], depth: int = 0
) -> None:
    """Give the local variables of a function, and of the functions inside it, new names: numbers in the order of first
    use.
    """
    arguments = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    nodes = list(_own(function))
    kept = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    kept |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    own: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in arguments | kept:
            own.setdefault(node.id, f"%{depth}.{len(own)}")
    names = {old: new for old, new in outer.items() if old not in arguments | kept} | own
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            _rename(node, names, depth + 1)
