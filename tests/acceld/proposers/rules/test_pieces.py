"""A source parsed statement by statement has the nodes and the places of one parsed at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from acceld.proposers.rules.nki.source.pieces import Parsed, parsed
from acceld.workloads.discovery import find_workloads

Shape = tuple[str, tuple[int, int, int, int], str]


def below(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from below(child)


def described(module: cst.Module, place: Parsed) -> Counter[Shape]:
    """Count the statements and expressions of a module by type, place and source."""
    empty = cst.Module([])
    kinds = (cst.BaseExpression, cst.BaseSmallStatement, cst.For, cst.FunctionDef, cst.If, cst.Arg, cst.Param)
    return Counter(
        (
            type(node).__name__,
            place.place(node),
            "" if isinstance(node, cst.BaseCompoundStatement) else empty.code_for_node(node),
        )
        for node in below(module)
        if isinstance(node, kinds)
    )


def at_once(source: str) -> tuple[cst.Module, Parsed]:
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    places = {
        node: (at.start.line - 1, at.start.column, at.end.line - 1, at.end.column)
        for node, at in wrapper.resolve(PositionProvider).items()
    }
    return wrapper.module, Parsed(wrapper.module, places, {})


def check(source: str) -> None:
    expected = described(*at_once(source))
    for _ in range(2):  # the second time all statements are remembered
        found = parsed(source)
        assert described(found.module, found) == expected


BASELINES = [
    (name, path) for name, one in find_workloads(()).items() for path in one.baselines.values() if path.suffix == ".py"
]


@pytest.mark.parametrize(("name", "path"), BASELINES, ids=[f"{name}-{path.stem}" for name, path in BASELINES])
def test_baselines(name: str, path: Path) -> None:
    check(path.read_text(encoding="utf-8"))


SOURCES = {
    "one statement twice": "def f(a):\n    x = a + 1\n    x = a + 1\n    for i in range(2):\n        x = a + 1\n",
    "two statements on a line": "a = 1; b = 2\ndef f():\n    c = 3; d = 4\n    return c\n",
    "a loop on one line": "def f():\n    for i in range(3): g(i)\n    for j in range(3): g(j); h(j)\n    return 1\n",
    "a function on one line": "def f(): return 1\n\n\ndef g(): return 2\n",
    "decorators": "@one\n@two(\n    3\n)\ndef f(a, b=(1,\n           2)):\n    return a\n",
    "comments": "# first\n\n# second\ndef f():\n    # third\n\n    x = 1  # fourth\n    # fifth\n    return x\n# last\n",
    "a comment of the block before": "def f():\n    for i in r:\n        x = 1\n        # still inside\n    # outside\n    return x\n",
    "a comment of no block": "def f():\n    x = 1\n# at the margin\n    return x\n",
    "branches": "def f(a):\n    if a:\n        x = 1\n    elif b:\n        x = 2\n    else:\n        x = 3\n    return x\n",
    "loops with else": "for i in r:\n    a = 1\nelse:\n    b = 2\nwhile a:\n    a -= 1\n",
    "strings of several lines": 'def f():\n    """One.\n\nTwo: \\n\n    """\n    x = """a\n# no comment\n"""\n    return x\n',
    "continued lines": "def f():\n    x = 1 + \\\n        2\n    y = (3 +\n# inside\n        4)\n    return x\n",
    "tabs": "def f():\n\tfor i in r:\n\t\tx = 1\n\treturn x\n",
    "no newline at the end": "def f():\n    return 1",
    "letters beyond ASCII": 'def f():\n    x = "äöü"; y = "€" + x\n    return y\n',
    "classes and contexts": "class A:\n    @property\n    def f(self):\n        with g() as h:\n            return h\n",
    "nothing": "",
    "only a comment": "# nothing\n",
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_sources(source: str) -> None:
    check(source)


def test_a_changed_line_is_parsed_anew() -> None:
    source = "def f(a):\n    x = a + 1\n    y = a + 2\n    return x, y\n"
    check(source)
    check(source.replace("a + 2", "a + 33"))
    check("# moved\n\n" + source)


def test_a_source_that_does_not_parse() -> None:
    with pytest.raises(cst.ParserSyntaxError):
        parsed("def f(:\n")
