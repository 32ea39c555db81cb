"""The graph of imports: no circle among modules, and the packages import each other by their real names only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Return every import between acceld's modules, those for type checking included."""
    return grimp.build_graph("acceld", cache_dir=None)


def circles(graph: grimp.ImportGraph) -> list[set[str]]:
    """Return the strongly connected components of more than one module (Tarjan's algorithm, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    found: list[set[str]] = []
    for root in sorted(graph.modules):
        if root in order:
            continue
        work = [(root, iter(sorted(graph.find_modules_directly_imported_by(root))))]
        order[root] = low[root] = len(order)
        open_.append(root)
        while work:
            module, imports = work[-1]
            for other in imports:
                if other not in order:
                    order[other] = low[other] = len(order)
                    open_.append(other)
                    work.append((other, iter(sorted(graph.find_modules_directly_imported_by(other)))))
                    break
                if other in open_:
                    low[module] = min(low[module], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[module])
                if low[module] == order[module]:
                    component = set(open_[open_.index(module) :])
                    del open_[open_.index(module) :]
                    if len(component) > 1:
                        found.append(component)
    return found


def test_circles_are_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("f", "a")):
        graph.add_import(importer=importer, imported=imported)
    assert sorted(map(sorted, circles(graph))) == [["a", "b", "c"], ["d", "e"]]


def test_no_modules_import_each_other_in_a_circle(graph: grimp.ImportGraph) -> None:
    assert len(graph.modules) > 300
    assert [sorted(circle) for circle in circles(graph)] == []


def test_nothing_imports_the_store_or_the_terminal_ui_by_a_top_level_name() -> None:
    """In a checkout ``store`` and ``tui`` would import too, as second copies of ``acceld.store`` and ``acceld.tui``."""
    named = re.compile(rb"\b(from|import)\s[^\n]*(?<![.\w])(store|tui)\b|\b(from|import)\s[^\n]*\\\r?\n")
    for folder in ("acceld", "store", "tui", "tests", "scripts"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_bytes()
            if "adversarial" in path.parts or not named.search(text):
                continue  # parsing every file takes five seconds
            for node in ast.walk(ast.parse(text)):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                assert not {name.partition(".")[0] for name in names} & {"store", "tui"}, path


def test_a_worker_of_the_console_is_given_a_function() -> None:
    """A coroutine whose worker is cancelled before its first step is never awaited, which Python warns of."""
    files = [*(ROOT / "tui").rglob("*.py")]
    started = [
        node.args[0]
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run_worker"
    ]
    called = [ast.unparse(one) for one in started if isinstance(one, ast.Call) and ast.unparse(one.func) != "partial"]
    assert started and called == []
