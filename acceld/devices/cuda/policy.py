"""Refuse forbidden Triton sources early and with a clear message, by their syntax tree. This policy only explains: the
jail is the protection.
"""

from __future__ import annotations

import ast

from acceld.model import Failure
from acceld.parsing import parse

MODULES = frozenset("torch triton triton.language triton.language.extra math __future__ typing".split())
_BUILTINS = frozenset(
    "exec eval compile __import__ open input globals locals vars getattr setattr delattr breakpoint dir memoryview".split()
)
_OWN_NAMES = frozenset({"__name__", "__file__", "__doc__"})
MAX_CHARACTERS = 1_000_000


def refused_triton(text: str, filename: str = "kernel_triton.py") -> Failure | None:
    """Return the first forbidden construct of a source as a failure; None if the source is allowed.

    If the source is not Python, the failure's rule is ``syntax``.
    """
    if len(text) > MAX_CHARACTERS:
        return Failure("source_size", f"the source has {len(text)} characters; {MAX_CHARACTERS} are allowed")
    try:
        tree = parse(text, filename)
    except SyntaxError as error:
        return Failure("syntax", f"SyntaxError: {error.msg}", error.lineno or 0)
    except (ValueError, RecursionError, MemoryError) as error:
        return Failure("syntax", f"{type(error).__name__}: {error}")
    found = [(getattr(node, "lineno", 0), *refusal) for node in ast.walk(tree) if (refusal := _refusal(node))]
    if not found:
        return None
    line, rule, message, hint = min(found)
    return Failure(rule, message, line, hint)


def _refusal(node: ast.AST) -> tuple[str, str, str] | None:
    match node:
        case ast.Import():
            return next(filter(None, (_module(one.name) for one in node.names)), None)
        case ast.ImportFrom():
            return _module(node.module or "") if not node.level else _module(".")
        case ast.Try() | ast.TryStar():
            return "try", "try/except is not allowed, because it would hide a kernel's failure", "remove the fallback"
        case ast.Name(id=name) if name in _BUILTINS:
            return "builtin", f"a candidate may not use {name}", ""
        case ast.Name(id=name) if name.startswith("__") and name not in _OWN_NAMES:
            return "dunder", f"the name {name} is internal", ""
        case ast.Attribute(attr=name) if name.startswith("_"):
            return "dunder", f"the attribute {name} is internal", "use the public API"
        case ast.Attribute(attr="autotune"):
            return (
                "autotune",
                "the kernel uses triton.autotune, which measures by itself",
                "write one configuration; the search tries other configurations",
            )
        case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
            return "async", "a kernel is not a coroutine", ""
        case ast.Global() | ast.Nonlocal():
            return "state", "a kernel keeps nothing from one call to the next", ""
    return None


def _module(name: str) -> tuple[str, str, str] | None:
    if name in MODULES:
        return None
    return "import", f"a candidate may not import {name}", f"allowed: {', '.join(sorted(MODULES - {'__future__'}))}"
