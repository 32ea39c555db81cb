"""Find the kernel function in a kernel's file from its syntax tree. The file is not executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from acceld import parsing
from acceld.errors import UsageError, did_you_mean
from acceld.nki.errors import KernelCrash, LimitExceeded

MAX_SOURCE_BYTES = 2 * 2**20


def parse(source: str, filename: str) -> ast.Module:
    """Return the syntax tree.

    KernelCrash if the source is not valid Python, LimitExceeded if it is too long.
    """
    if len(source) > MAX_SOURCE_BYTES:
        raise LimitExceeded(f"the kernel's file has {len(source)} characters", rule="source_size")
    try:
        return parsing.parse(source, filename)
    except SyntaxError as error:
        raise KernelCrash(f"SyntaxError: {error.msg}", rule="syntax", line=error.lineno or 0) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise KernelCrash(f"the file is not Python source: {error}", rule="syntax") from error


def find_entry(source: str, entry: str | None) -> str:
    """Return the name of the kernel function: ``entry`` if given, else ``kernel``, else ``optimized_kernel``, else the
    only function.

    UsageError with the candidates if no function or more than one matches. KernelCrash if the source is not valid
    Python.
    """
    return entry_in(parse(source, "kernel.py"), entry)


def entry_in(tree: ast.Module, entry: str | None) -> str:
    """Return the name of the kernel function in a syntax tree. See :func:`find_entry`."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    jitted = [name for name, node in functions.items() if any(map(_launches, node.decorator_list))]
    listed = ", ".join(jitted or functions) or "none"
    if entry is not None:
        if entry in functions or entry in assigned:
            return entry
        near = did_you_mean(entry, [*functions, *assigned])
        raise UsageError(f"the file has no function {entry!r}", hint=f"its kernels: {listed}. {near}".strip())
    for name in ("kernel", "optimized_kernel"):
        if name in functions or name in assigned:
            return name
    if len(jitted) == 1:
        return jitted[0]
    if not jitted and len(functions) == 1:
        return next(iter(functions))
    made = next(_made_inside(tree), None) if not jitted else None
    if made is not None:
        inside, kernel, way = made
        raise UsageError(
            f"the kernel {kernel!r} is defined inside of {inside!r}, so the file itself has none",
            hint=f"assign it at the end of the file, or in a file beside it that imports {inside}: kernel = {way}",
        )
    if not jitted:
        raise UsageError(
            "the file holds no kernel: no function under nki.jit",
            hint=f"functions: {listed}; name one as entry"
            if functions
            else "define one at the top of the file, under @nki.jit",
        )
    raise UsageError("the file holds more than one kernel", hint=f"name one as entry: {listed}")


def _made_inside(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield kernels inside of functions and classes: what they are in, their name, and what to assign."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for inner in ast.walk(node):
                if (
                    inner is not node
                    and isinstance(inner, ast.FunctionDef)
                    and any(map(_launches, inner.decorator_list))
                ):
                    called = f"{node.name}(...)" if isinstance(node, ast.FunctionDef) else f"{node.name}.{inner.name}"
                    yield node.name, inner.name, called


def _launches(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
    return name in ("jit", "baremetal", "benchmark", "profile", "trace", "nki_jit")
