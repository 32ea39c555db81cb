"""Docstrings open with a verb or a noun phrase, never with a question word."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUESTION = re.compile(r"(What|Whether|Where|How|Which)\b")


@pytest.mark.parametrize("folder", ["acceld", "store", "tui", "scripts"])
def test_no_docstring_opens_with_a_question_word(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if (text := ast.get_docstring(node)) and QUESTION.match(text)
    ]
    assert not found, "\n".join(found)
