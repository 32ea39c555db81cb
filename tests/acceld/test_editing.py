"""Edits of a text by spans."""

from __future__ import annotations

import pytest

from acceld.editing import Edits


@pytest.mark.parametrize(
    ("source", "gone", "left"),
    [
        ("a = 1\nb = 2  # why; not\nc = 3\n", ["b = 2"], "a = 1\nc = 3\n"),
        ("a = 1; b = 2; c = 3\n", ["a = 1"], "b = 2; c = 3\n"),
        ("a = 1; b = 2; c = 3\n", ["c = 3"], "a = 1; b = 2\n"),
        ("a = 1; b = 2; c = 3\n", ["a = 1", "b = 2"], "c = 3\n"),
        ("a = 1; b = 2; c = 3  # all\n", ["b = 2", "a = 1", "c = 3"], ""),
        ("a = (\n    1\n); b = 2\n", ["a = (\n    1\n)"], "b = 2\n"),
        ("for i in x: f(i)  # once; more\n", ["f(i)"], ""),
    ],
)
def test_a_deleted_statement_takes_its_lines_along_unless_another_statement_stays_there(
    source: str, gone: list[str], left: str
) -> None:
    edits = Edits(source)
    for statement in gone:
        edits.delete_lines(source.index(statement), source.index(statement) + len(statement))
    assert edits.apply() == left
