"""Parse Python source safely from several threads."""

from __future__ import annotations

import ast
import codecs
import re
import threading
from collections.abc import Iterator, Sequence

_ONE_AT_A_TIME = threading.Lock()
_DECLARED = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


def parse(text: str, filename: str = "<unknown>") -> ast.Module:
    """Return the syntax tree of a module. Raise SyntaxError and ValueError as :func:`ast.parse` does.

    Also raise SyntaxError for a text that declares another encoding than UTF-8, if Python would read another program
    from its file: in UTF-7, for example, a comment can end in the middle of a line.

    One thread parses at a time: up to Python 3.12 all threads share one count of nested nodes, and :func:`ast.parse`
    raises SystemError if two run at once.
    """
    with _ONE_AT_A_TIME:
        tree = ast.parse(text, filename)
        _check_encoding(text, filename, tree)
        return tree


def _check_encoding(text: str, filename: str, tree: ast.Module) -> None:
    """Raise SyntaxError if Python, reading a file with this text, would see another program than ``tree``, because
    the text declares another encoding.
    """
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text, maxsplit=2)[:2], 1):
        found = _DECLARED.match(line)
        if found is None:
            continue
        try:
            if codecs.lookup(found[1]).name == "utf-8":
                return
            read = text.encode("utf-8").decode(found[1])
            same = read == text or ast.dump(ast.parse(read)) == ast.dump(tree)
        except (LookupError, ValueError, SyntaxError):
            same = False
        if not same:
            message = f"the file declares the encoding {found[1]}, in which Python reads another program: declare utf-8"
            raise SyntaxError(message, (filename, number, 1, line))
        return


def parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression. Like :func:`parse` it may be called from any thread."""
    with _ONE_AT_A_TIME:
        return ast.parse(text, mode="eval").body


def module_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a file is loaded, in order: those of the top level, and those inside
    its ``if``, ``try`` and ``with``.
    """
    for statement in body:
        yield statement
        match statement:
            case ast.If(body=first, orelse=second):
                yield from module_statements([*first, *second])
            case ast.Try(body=first, handlers=handlers, orelse=second, finalbody=last):
                caught = [one for handler in handlers for one in handler.body]
                yield from module_statements([*first, *caught, *second, *last])
            case ast.With(body=first):
                yield from module_statements(first)


def functions_of(body: Sequence[ast.stmt]) -> dict[str, ast.FunctionDef]:
    """Return the functions that a loaded file defines, as a dict by name: ``name``, or ``Class.name`` for a method."""
    found: dict[str, ast.FunctionDef] = {}
    for statement in module_statements(body):
        if isinstance(statement, ast.FunctionDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.ClassDef):
            found |= {f"{statement.name}.{name}": inner for name, inner in functions_of(statement.body).items()}
    return found
