"""Docstrings open with a verb or a noun phrase, never with a question word."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUESTION = re.compile(r"(What|Whether|Where|How|Which|Why|Who|When)\b")
OPENED = re.compile(rf"[\"'](\\\n|\s)*{QUESTION.pattern}")
"""A string of a file that may be such a docstring: a file without one is not parsed."""


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring: of modules, classes and functions, and of attributes, which stand below them."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text.strip()


@pytest.mark.parametrize("folder", ["acceld", "store", "tui", "scripts", "tests", "workloads"])
def test_no_docstring_opens_with_a_question_word(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in files
        if OPENED.search(whole := path.read_text(encoding="utf-8"))
        for line, text in texts(ast.parse(whole))
        if QUESTION.match(text)
    ]
    assert not found, "\n".join(found)


def test_the_texts_of_attributes_are_read() -> None:
    source = 'class A:\n    """One."""\n\n    b: int\n    """What b is."""\n'
    assert [text for _, text in texts(ast.parse(source))] == ["One.", "What b is."]
