"""Find the kernel function in a kernel's file from its syntax tree. The file is not executed."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from acceld import parsing
from acceld.errors import UsageError, did_you_mean
from acceld.nki.errors import KernelCrash, LimitExceeded

MAX_SOURCE_CHARS = 2 * 2**20
_KERNEL_NAMES = ("kernel", "optimized_kernel")


def parse(source: str, filename: str) -> ast.Module:
    """Return the syntax tree of a kernel's file.

    Raise KernelCrash if ``source`` is not valid Python, LimitExceeded if it has more than
    :data:`MAX_SOURCE_CHARS` characters.
    """
    if len(source) > MAX_SOURCE_CHARS:
        raise LimitExceeded(
            f"the kernel's file has {len(source)} characters; at most {MAX_SOURCE_CHARS} are allowed",
            rule="source_size",
        )
    try:
        return parsing.parse(source, filename)
    except SyntaxError as error:
        raise KernelCrash(f"SyntaxError: {error.msg}", rule="syntax", line=error.lineno or 0) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise KernelCrash(f"the file is not Python source: {error}", rule="syntax") from error


def find_entry(source: str, entry: str | None) -> str:
    """Return the name of the kernel function in ``source``.

    A *factory* is a function that makes a kernel. The first of these rules that finds a function decides:

    1. ``entry``, if it is given;
    2. the name ``kernel``, then the name ``optimized_kernel``;
    3. the only function at the top of the file under ``nki.jit``;
    4. the only name to which the file assigns a kernel: the result of a factory, or of ``nki.jit``;
    5. the only kernel that is a method, as ``Class.name``;
    6. the only function of the file.

    Raise UsageError, with the names of the file's kernels, if the file has no function ``entry`` or if a rule
    finds several functions. Raise KernelCrash if ``source`` is not valid Python.
    """
    return entry_in(parse(source, "kernel.py"), entry)


@dataclass(frozen=True, slots=True)
class _Functions:
    """The functions of a kernel's file: all functions, those under ``nki.jit`` or another launcher, and the factories,
    which make a kernel. ``assigned`` has the names that the file assigns. A method has the name ``Class.name``.
    """

    functions: Mapping[str, ast.FunctionDef]
    assigned: Mapping[str, ast.expr | None]
    jitted: Sequence[str]
    factories: Sequence[str]

    @classmethod
    def of(cls, tree: ast.Module) -> _Functions:
        """Return the functions of a syntax tree."""
        functions = parsing.functions_of(tree.body)
        jitted = [name for name, node in functions.items() if is_kernel(node)]
        factories = [name for name, node in functions.items() if name not in jitted and _makes_kernel(node)]
        return cls(functions, dict(_assigned(tree)), jitted, factories)

    @property
    def made(self) -> list[str]:
        """Return the names to which the file assigns a kernel, such as the result of a factory."""
        return [name for name, value in self.assigned.items() if _gives_kernel(value, self.factories, self.jitted)]

    @property
    def kernels(self) -> list[str]:
        """Return the names of all kernels of the file."""
        return list(dict.fromkeys([*self.jitted, *self.made]))

    @property
    def plain(self) -> list[str]:
        """Return the names of the functions at the top of the file that are not factories of kernels."""
        return [name for name in self.functions if "." not in name and name not in self.factories]


def entries_in(tree: ast.Module) -> list[str]:
    """Return the names of all kernels in a syntax tree, or of all its functions if it has no kernel."""
    found = _Functions.of(tree)
    return found.kernels or found.plain


def has_kernel(tree: ast.Module) -> bool:
    """Tell whether a file defines or makes a kernel: a function under ``nki.jit`` or another launcher."""
    return bool(_Functions.of(tree).kernels)


def entry_in(tree: ast.Module, entry: str | None) -> str:
    """Return the name of the kernel function in a syntax tree, by the rules of :func:`find_entry`."""
    file = _Functions.of(tree)
    functions, assigned, kernels, plain = file.functions, file.assigned, file.kernels, file.plain
    if entry is not None:
        if entry in functions or entry in assigned:
            return entry
        listed = ", ".join(kernels or plain) or "none"
        near = did_you_mean(entry, [*functions, *assigned])
        raise UsageError(
            f"the file has no function {entry!r}", hint=f"name one of its kernels: {listed}. {near}".strip()
        )
    for name in _KERNEL_NAMES:
        if name in functions or name in assigned:
            return name
    for found in ([name for name in file.jitted if "." not in name], file.made, file.jitted):
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError("the file has more than one kernel", hint=f"name one as entry: {', '.join(kernels)}")
    inside = ((name, one.name) for name in file.factories for one in ast.walk(functions[name]) if is_kernel(one))
    for name, inner in inside:
        raise UsageError(
            f"the kernel {inner!r} is defined inside of {name!r}, so the file itself has none",
            hint=f"assign it at the end of the file, or in a file beside it that imports {name}: kernel = {name}(...)",
        )
    if len(plain) == 1:
        return plain[0]
    raise UsageError(
        "the file has no kernel: it has no function under nki.jit",
        hint=f"name one of its functions as entry: {', '.join(plain)}"
        if plain
        else "define one at the top of the file, under @nki.jit",
    )


def kernel_functions(tree: ast.Module) -> set[str]:
    """Return the names of the functions at the top of a file that are kernels: by a decorator, by their name, or
    because the file passes them to a launcher.
    """
    functions = [one for one in tree.body if isinstance(one, ast.FunctionDef)]
    decorated = {one.name for one in functions if one.decorator_list or one.name in _KERNEL_NAMES}
    return decorated | {launched_function(tree, name) for name, _ in _assigned(tree)}


def launched_function(tree: ast.Module, name: str) -> str:
    """Return the name of the function that the kernel ``name`` launches: ``body`` if the file has ``kernel =
    nki.jit(body)`` or ``kernel = nki.jit(platform_target="trn2")(body)``; "" if it has neither.
    """
    value = dict(_assigned(tree)).get(name)
    match value:
        case ast.Call(func=called, args=[ast.Name(id=function)]) if _launches(called):
            return function
    return ""


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each name that the file assigns when it is loaded, with the assigned expression."""
    for node in parsing.module_statements(tree.body):
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _gives_kernel(value: ast.expr | None, factories: Collection[str], jitted: Collection[str]) -> bool:
    """Tell whether the value of an expression is a kernel: a call of a factory or of ``nki.jit``, or a method that is a
    kernel.
    """
    match value:
        case ast.Call(func=called, args=given):
            return ast.unparse(called) in factories or (bool(given) and _launches(called))
        case ast.Attribute():
            return ast.unparse(value) in jitted
    return False


def _makes_kernel(function: ast.FunctionDef) -> bool:
    """Tell whether ``function`` is a factory of kernels: it defines a kernel in its body, or passes a function
    to ``nki.jit``.
    """
    return any(
        is_kernel(inner) or (isinstance(inner, ast.Call) and bool(inner.args) and _launches(inner.func))
        for statement in function.body
        for inner in ast.walk(statement)
    )


def is_kernel(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
    """Tell whether ``node`` is a function decorated with ``nki.jit`` or another launcher, such as
    ``nki.baremetal``.
    """
    return isinstance(node, ast.FunctionDef) and any(map(_launches, node.decorator_list))


def _launches(decorator: ast.expr) -> bool:
    """Tell whether a decorator (or the function that it calls) has the name of a launcher of NKI, such as ``nki.jit``."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
    return name in ("jit", "baremetal", "benchmark", "profile", "trace", "nki_jit")
