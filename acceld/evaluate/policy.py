"""Refuse sources early and clearly, by their syntax tree.

Never the only wall: the jail holds whatever gets past this, and the judge believes nothing of it. Kernels that a
person gives are not held to it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from acceld.model import Failure

MODULES = frozenset(
    "numpy ml_dtypes math functools itertools operator typing dataclasses enum collections collections.abc abc "
    "numbers warnings copy string textwrap __future__ neuronxcc neuronxcc.nki nki".split()
)
"""Modules a candidate may import; of neuronxcc.nki and nki also what lies below."""
ROOTS = ("neuronxcc.nki.", "nki.")
BUILTINS = frozenset(
    "exec eval compile __import__ open input globals locals vars setattr delattr breakpoint dir help memoryview "
    "exit quit".split()
)
"""Functions no kernel needs; getattr is allowed with a written-out public name."""
NUMPY_COMPUTE = frozenset(
    "matmul dot vdot inner outer einsum einsum_path tensordot kron convolve correlate linalg fft cumsum cumprod "
    "load save savez savez_compressed loadtxt savetxt genfromtxt fromfile tofile memmap frombuffer fromstring "
    "random testing ctypeslib lib distutils f2py core show_config DataSource apply_along_axis vectorize "
    "frompyfunc nditer".split()
)
"""Names of numpy by which a kernel would compute, read or hide its answer instead of the chip."""
NUMPY_REACH = NUMPY_COMPUTE - frozenset(
    "matmul dot vdot inner outer einsum einsum_path tensordot kron convolve correlate linalg fft cumsum cumprod".split()
)
"""Names of numpy that reach beyond arrays: refused even where computing with numpy is the point."""
FRAMES = frozenset(
    "f_locals f_globals f_back f_code f_builtins gi_frame cr_frame ag_frame tb_frame tb_next func_globals mro ctypes "
    "modules meta_path path_hooks settrace setprofile".split()
)
_HIDDEN_NAME = re.compile(
    r"__(class|base|bases|mro|subclasses|globals|builtins|import|code|dict|loader|spec|reduce|getattribute)__"
)
_OWN_NAMES = frozenset({"__name__", "__file__", "__doc__"})
_BASES = frozenset({"NamedTuple", "Enum", "IntEnum", "object", "Protocol", "Generic"})
MAX_CHARACTERS = 1_000_000


def check(text: str, filename: str = "kernel.py", *, library: frozenset[str] = NUMPY_COMPUTE) -> Failure | None:
    """The first thing in the source that a candidate may not hold; rule ``syntax`` where it is no Python.

    ``library`` names what it may not use of numpy.
    """
    if len(text) > MAX_CHARACTERS:
        return Failure("source_size", f"the source has {len(text)} characters; {MAX_CHARACTERS} are allowed")
    try:
        tree = ast.parse(text, filename)
    except SyntaxError as error:
        return Failure("syntax", f"SyntaxError: {error.msg}", error.lineno or 0)
    except (ValueError, RecursionError, MemoryError) as error:
        return Failure("syntax", f"the source can not be parsed: {error}")
    try:
        return min(_Reader(tree, library).findings(), key=lambda failure: failure.line, default=None)
    except RecursionError:
        return Failure("syntax", "the source is nested too deep")


def canonical(text: str) -> str:
    """The source without comments, formatting and docstrings' places: equal for sources that differ in those only.

    ValueError where it is no Python.
    """
    try:
        return ast.dump(ast.parse(text), include_attributes=False)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"no Python source: {error}") from error


class _Reader:
    def __init__(self, tree: ast.Module, library: frozenset[str]) -> None:
        self.tree = tree
        self.library = library
        self.modules = {"np", "numpy"}
        self.numpy = {"np", "numpy"}

    def findings(self) -> Iterator[Failure]:
        """Every violation, in no order."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._bind(node)
        for node in ast.walk(self.tree):
            found = self._finding(node)
            if found is not None:
                rule, message, hint = found
                yield Failure(rule, message, getattr(node, "lineno", 0), hint)

    def _bind(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self.modules.add(name)
            if isinstance(node, ast.Import) and alias.name.partition(".")[0] == "numpy":
                self.numpy.add(name)

    def _finding(self, node: ast.AST) -> tuple[str, str, str] | None:
        match node:
            case ast.Import():
                return next(filter(None, (_module(alias.name) for alias in node.names)), None)
            case ast.ImportFrom():
                return self._import_from(node)
            case ast.Try() | ast.TryStar():
                return "try", "try/except is not allowed: a kernel that fails must fail", "remove the fallback"
            case ast.Name():
                return _name(node.id)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return _call(node)
            case ast.Constant(value=str(text)) if _HIDDEN_NAME.search(text):
                return "dunder", f"the text {text[:60]!r} names an internal of Python", ""
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()) if "matmul" in self.library:
                return "library", "the @ operator computes on the host, not on the chip", "use nisa.nc_matmul"
            case ast.ClassDef():
                return _class(node)
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                return next(filter(None, map(self._target, targets)), None)
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                return self._target(target)
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                return "async", "a kernel is no coroutine", ""
        return None

    def _import_from(self, node: ast.ImportFrom) -> tuple[str, str, str] | None:
        if node.level:
            return "import", "relative imports are not allowed: a candidate is one file", ""
        found = _module(node.module or "")
        if found is not None:
            return found
        for alias in node.names:
            if (node.module or "").partition(".")[0] == "numpy" and alias.name in self.library:
                return _library(f"numpy.{alias.name}")
            hidden = _name(alias.name) or (
                ("dunder", f"{alias.name} is private", "") if alias.name[:1] == "_" else None
            )
            if hidden and node.module != "__future__":
                return hidden
        return None

    def _attribute(self, node: ast.Attribute) -> tuple[str, str, str] | None:
        if node.attr.startswith("_"):
            return "dunder", f"the attribute {node.attr} is internal", "use the public API"
        if node.attr in FRAMES:
            return "frames", f"the attribute {node.attr} reaches outside of the kernel", ""
        if isinstance(node.value, ast.Name) and node.value.id in self.numpy and node.attr in self.library:
            return _library(f"numpy.{node.attr}")
        return None

    def _target(self, target: ast.expr) -> tuple[str, str, str] | None:
        if isinstance(target, ast.Tuple | ast.List):
            return next(filter(None, map(self._target, target.elts)), None)
        root = target
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(target, ast.Attribute) and isinstance(root, ast.Name) and root.id in self.modules:
            return "monkeypatch", f"assigning to {ast.unparse(target)} changes a module", ""
        return None


def _module(name: str) -> tuple[str, str, str] | None:
    if name in MODULES or name.startswith(ROOTS):
        return None
    return "import", f"a candidate may not import {name}", f"allowed: {', '.join(sorted(MODULES - {'__future__'}))}"


def _library(name: str) -> tuple[str, str, str]:
    return "library", f"{name} computes on the host, not on the chip", "use the operations of nl and nisa"


def _name(name: str) -> tuple[str, str, str] | None:
    if name in BUILTINS:
        return "builtin", f"a candidate may not use {name}", ""
    if name.startswith("__") and name not in _OWN_NAMES:
        return "dunder", f"the name {name} is internal", ""
    return None


def _call(node: ast.Call) -> tuple[str, str, str] | None:
    if not isinstance(node.func, ast.Name):
        return None
    if node.func.id in ("getattr", "hasattr"):
        name = node.args[1] if len(node.args) > 1 else None
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            return "getattr", f"{node.func.id} is allowed with a written-out name only", "write the attribute itself"
        if name.value.startswith("_") or name.value in FRAMES:
            return "dunder", f"the attribute {name.value} is internal", ""
    if node.func.id == "type" and len(node.args) != 1:
        return "builtin", "a candidate may not make types", ""
    return None


def _class(node: ast.ClassDef) -> tuple[str, str, str] | None:
    for base in node.bases:
        name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
        if name not in _BASES:
            return "class", f"a candidate may not inherit from {ast.unparse(base)}", ""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name.startswith("__") and statement.name != "__init__":
            return "dunder", f"a candidate may not define {statement.name}", ""
    return None
