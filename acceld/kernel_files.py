"""Read kernels from files, with the modules of their own package that they import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from acceld.chips import API_CHIPS
from acceld.errors import UsageError, no_file, refuse_notebook
from acceld.model import Kernel
from acceld.parsing import parse

PACKAGES = {"neuronxcc": "nki_legacy", "nki": "nki", "triton": "triton"}
"""API of a kernel by the package that it imports."""
PROVIDED = frozenset({"nki", "nl", "nisa", "nt"})
"""Names of NKI's modules that a kernel without imports gets (:mod:`acceld.nki.frontend.tracing`)."""
PROJECT_FILES = (".git", "pyproject.toml", "setup.py")
"""Names of files and folders of which the top folder of a project contains at least one."""
MAX_FILE_BYTES = 2 * 2**20
MAX_CLOSURE_FILES = 200


def load_kernel(
    path: Path,
    *,
    api: str,
    entry: str = "",
    grid: tuple[int, ...] = (),
    lnc: int = 1,
) -> Kernel:
    """Return the kernel in a file as a trusted kernel, with the modules that it imports from its own package.

    The modules (the *closure*) lie below the kernel's folder, or below the folder of its package, and are
    imported directly or by each other. Their paths and the kernel's own are relative to that folder. Raises
    UsageError if the file can not be read or is not text.
    """
    text = read(path)
    if not text.strip():
        raise UsageError(f"{path} is empty", hint="write the kernel into it, or give another file")
    root = package_root(path, text)
    closure = dict(_closure(path, text, root))
    return Kernel(
        text=text,
        api=api,
        entry=entry,
        grid=grid,
        lnc=lnc,
        filename=str(path.resolve().relative_to(root)) if closure else path.name,
        trusted=True,
        closure=closure,
    )


def api_of_file(path: Path) -> str | None:
    """Return the API of a kernel's file, by the file's name and imports.

    Return None if name and imports do not decide the API, or if the file can not be read.
    """
    if path.suffix == ".c":
        return "c"
    try:
        return api_of_text(path.read_text(encoding="utf-8-sig")) if path.suffix == ".py" else None
    except (OSError, ValueError):  # loading the kernel reports the fault of the file
        return None


def api_of_text(text: str) -> str | None:
    """Return the API whose package a Python source imports.

    Return None if the source imports no package of an API, or packages of several APIs, or can not be parsed.
    """
    try:
        nodes = list(ast.walk(parse(text)))
    except (SyntaxError, ValueError):
        return None
    imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    found = {PACKAGES[root] for name in imported if (root := name.partition(".")[0]) in PACKAGES}
    return found.pop() if len(found) == 1 else None


def no_kernel(kernel: Kernel, path: Path) -> UsageError | None:
    """Return the error that says that a Python source is no kernel for NKI; None if it may be a kernel.

    It may be a kernel if it imports a package for kernels, uses a name that such a package provides, or imports
    modules of its own.
    """
    if kernel.closure or kernel.api not in API_CHIPS:
        return None
    nodes = list(ast.walk(parse(kernel.text)))
    imported: set[str] = set().union(*(_roots(one) for one in nodes if isinstance(one, ast.Import | ast.ImportFrom)))
    used = {one.id for one in nodes if isinstance(one, ast.Name)}
    if imported & PACKAGES.keys() or used & PROVIDED:
        return None
    drawn = any(isinstance(one, ast.FunctionDef) and one.name == "get_inputs" for one in nodes)
    makes = (
        f"a numpy reference becomes a kernel: acceld init --reference {path}{'' if drawn else ' --arg NAME=SHAPE:DTYPE'}"
        if is_reference(path)
        else "a kernel begins with: import nki, import nki.isa as nisa, import nki.language as nl; to make a kernel from a "
        "numpy function named forward: acceld init --reference REF.py"
    )
    return UsageError(f"{path} is no kernel: it imports neither nki nor neuronxcc.nki", hint=makes)


def is_reference(path: Path) -> bool:
    """Tell whether a Python file is a numpy reference: it defines ``forward`` and imports no package for
    kernels.
    """
    if path.suffix != ".py" or not path.is_file():
        return False
    try:
        tree = parse(path.read_text(encoding="utf-8-sig"))
    except (OSError, SyntaxError, ValueError):  # loading the file as a kernel reports its fault
        return False
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    imports = any(
        isinstance(node, ast.Import | ast.ImportFrom) and _roots(node) & PACKAGES.keys() for node in ast.walk(tree)
    )
    return "forward" in defined and not imports


def _roots(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return {name.partition(".")[0] for name in names}


def read(path: Path) -> str:
    """Return the text of a file. Raise UsageError if the file is a notebook or can not be read."""
    refuse_notebook(str(path))
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UsageError(
                f"{path} has more than {MAX_FILE_BYTES >> 20} MiB; that is not a kernel",
                hint="give the .py file of the kernel alone",
            )
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise no_file(path, hint="Give the file of a kernel; acceld workloads lists the workloads.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8", hint="save the kernel as UTF-8") from error
    except OSError as error:
        raise UsageError(f"{path} can not be read: {error.strerror}", hint="give the file of a kernel") from error


def package_root(path: Path, text: str) -> Path:
    """Return the folder in which Python looks for the absolute imports of the kernel at ``path`` with source ``text``.

    The folder is above all folders with an ``__init__.py``. If relative imports of the file reach higher, the folder is
    above the highest folder that they reach, because a folder without ``__init__.py`` can be a package too. If none of
    the file's absolute imports is found there, the folder is the nearest folder above in which an import is found,
    because people start ``python -m tests.test_kernel`` in that folder. Above the project's folder, an import counts
    only if the file lies in the imported package.
    """
    above = path.resolve().parents
    folder = above[0]
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    try:
        nodes = list(ast.walk(parse(text)))
    except (SyntaxError, ValueError):  # reading the kernel reports its fault
        return folder
    level = max((node.level for node in nodes if isinstance(node, ast.ImportFrom)), default=0)
    if level > 1 and level < len(above) and folder.is_relative_to(above[level]):
        folder = above[level]
    modules = list(_absolute_imports(nodes))
    project = next((one for one in above if any((one / name).exists() for name in PROJECT_FILES)), folder)
    for start in [folder, *folder.parents]:
        near = [one for one in modules if start.is_relative_to(project) or start / one[0] in above]
        if any(any(_module(start, parts)) for parts in near):
            return start
    return folder


def _absolute_imports(nodes: list[ast.AST]) -> Iterator[list[str]]:
    """Yield the name, split at its dots, of each module that an absolute import may mean.

    Python's own modules and the packages for kernels are left out.
    """
    for node in nodes:
        if isinstance(node, ast.Import):
            found = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts = node.module.split(".")
            found = [parts, *([*parts, alias.name] for alias in node.names)]
        else:
            continue
        yield from (parts for parts in found if parts[0] not in {*PACKAGES, *sys.stdlib_module_names})


def syntax_error(text: str, path: Path) -> UsageError | None:
    """Return the error with file, line and problem if ``text`` is not valid Python; None if it is valid."""
    try:
        parse(text, str(path))
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        shown = f"\n    {error.text.strip()}" if error.text else ""
        return UsageError(
            f"{where}: syntax error: {error.msg}{shown}", hint="correct that line; python -m py_compile shows the same"
        )
    except ValueError as error:
        return UsageError(f"{path}: {error}")
    return None


def _closure(path: Path, text: str, root: Path) -> Iterator[tuple[str, str]]:
    seen = {path.resolve()}
    waiting = [(path.resolve(), text)]
    while waiting:
        importer, source = waiting.pop()
        for found in _imported(importer, source, root):
            if found in seen:
                continue
            seen.add(found)
            if len(seen) > MAX_CLOSURE_FILES:
                raise UsageError(
                    f"{path} imports more than {MAX_CLOSURE_FILES} files of its own package",
                    hint="copy the functions that the kernel calls into fewer files",
                )
            body = read(found)
            if not found.is_relative_to(root):
                raise UsageError(
                    f"{importer} imports {found}, which lies outside of {root}, the folder of the kernel's package",
                    hint="put an __init__.py into each folder of the package; a link to a folder elsewhere is not followed",
                )
            yield str(found.relative_to(root)), body
            waiting.append((found, body))


def _imported(importer: Path, source: str, root: Path) -> Iterator[Path]:
    """Yield files below ``root`` that ``source`` imports, with the ``__init__.py`` of each package in their paths."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = root if not node.level else importer.parents[node.level - 1]
            if node.level and (base / "__init__.py").is_file():
                yield (base / "__init__.py").resolve()
            parts = node.module.split(".") if node.module else []
            yield from _module(base, parts)
            for alias in node.names:
                yield from _module(base, [*parts, alias.name])


def _module(base: Path, parts: list[str]) -> Iterator[Path]:
    folder = base
    for place, part in enumerate(parts):
        if place == len(parts) - 1 and (folder / f"{part}.py").is_file():
            yield (folder / f"{part}.py").resolve()
            return
        folder = folder / part
        if (folder / "__init__.py").is_file():
            yield (folder / "__init__.py").resolve()
        elif not folder.is_dir():
            return
