"""Names of functions and modules in strings exist, although no type checker checks them."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceld.plugins import GROUPS

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("acceld", "store", "tui", "scripts", "tests")
FUNCTION = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)*:[A-Za-z_][\w.]*")
"""A name ``package.module:function``, in the form by which the sandbox's processes and entry points name functions."""
OPEN = re.compile(rf"((?:{'|'.join(PACKAGES)})(?:\.\w+)+):")
"""The form of the previous pattern, if the function's name is inserted later."""
MODULE = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
"""``package.module``, as written after ``python -m`` and in scanners, or a name in the module."""
QUOTED = re.compile(rf"[\"'](?:{'|'.join(PACKAGES)})\.\w")
"""Text that a file with such a name contains; others are not parsed."""
FILES = re.compile(r"acceld\.(?:db|toml|log|service|sock|py)(?:\.\w+)*")
"""Files of a state folder or a project, which look the same."""
ATTRIBUTES = ("telemetry.py", "test_telemetry.py")
"""Files whose texts name attributes of telemetry spans, in the same form as functions."""
ABSENT = "no_such"
"""Part of every name that a test gives to something that must not exist."""
OF_EXTRAS = ("acceld.lowering.aten.export",)
"""Modules that import an extra of the package, so that the suite may not have what they need."""
FUNCTIONS_AT_LEAST = 18
MODULES_AT_LEAST = 19
"""Number that the search found when it was written: a name in another form would not be followed."""


def texts() -> Iterator[tuple[str, bool]]:
    """Yield every string of the packages' Python, with True if a value is inserted after it; then the entry points."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if {"adversarial", "kernels"} & set(path.relative_to(ROOT).parts) or path.name in ATTRIBUTES:
                continue
            source = path.read_text("utf-8")
            if not QUOTED.search(source):
                continue
            tree = ast.parse(source)
            inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value, id(node) in inner
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    entries = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    yield from ((name, False) for group in entries for name in group.values())


@pytest.fixture(scope="module")
def named() -> tuple[list[str], list[str]]:
    """Return the functions and the modules that texts name. Reading all texts takes a second, which the collection of
    tests does not wait for.
    """
    found = tuple(texts())
    functions = {text for text, open_ in found if not open_ and FUNCTION.fullmatch(text) and ABSENT not in text}
    modules = {text for text, open_ in found if not open_ and MODULE.fullmatch(text) and not FILES.fullmatch(text)}
    modules |= {match[1] for text, open_ in found if open_ and (match := OPEN.fullmatch(text))}
    return sorted(functions), sorted(modules - {*GROUPS})


def is_there(name: str) -> bool:
    """Return True if a name of a module, or of something in a module, can be resolved."""
    try:
        return importlib.util.find_spec(name) is not None if name in OF_EXTRAS else bool(pkgutil.resolve_name(name))
    except (AttributeError, ImportError):
        return False


def test_functions_named_in_texts_are_there(named: tuple[list[str], list[str]]) -> None:
    functions, _ = named
    assert len(functions) >= FUNCTIONS_AT_LEAST
    assert [name for name in functions if not is_there(name) or not callable(pkgutil.resolve_name(name))] == []


def test_modules_named_in_texts_are_there(named: tuple[list[str], list[str]]) -> None:
    _, modules = named
    assert len(modules) >= MODULES_AT_LEAST
    assert [name for name in modules if ABSENT not in name and not is_there(name)] == []
