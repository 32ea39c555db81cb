"""Tables in the documentation: those written replace those of the same heading, nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.evidence.simbench.tables import BEGIN, DOCUMENT, END, TITLES, rows, write_document

BEFORE = f"# Page\n\nText.\n\n{BEGIN}\n\n### {TITLES['summary']}\n\n| a |\n|---|\n| 1 |\n\n{END}\n\nMore text.\n"


def test_a_table_is_put_in_its_place_among_the_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(BEFORE)
    write_document({"corpus": [{"API": "nki", "rules": 3}], "latency": [{"kernel": "silu", "ms": 1.5}]}, page)
    text = page.read_text()
    places = [text.index(f"### {TITLES[name]}") for name in ("latency", "summary", "corpus")]
    assert places == sorted(places)
    assert text.startswith("# Page\n\nText.\n\n") and text.endswith(f"{END}\n\nMore text.\n")
    assert "| a |\n|---|\n| 1 |" in text
    write_document({"summary": [{"a": 2}]}, page)
    assert "| 1 |" not in page.read_text()
    assert page.read_text().count(TITLES["latency"]) == 1


def test_a_cell_keeps_to_its_cell() -> None:
    assert rows([{"a": "x | y\nz", "b": 1}]).splitlines()[-1] == "| x \\| y z | 1 |"


def test_a_page_without_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no markers")
    with pytest.raises(ValueError, match="markers"):
        write_document({"summary": [{"a": 2}]}, page)
    assert page.read_text() == "no markers"


def test_the_page_holds_no_table_that_no_section_makes() -> None:
    inside = DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]
    headings = {line.removeprefix("### ") for line in inside.splitlines() if line.startswith("### ")}
    assert headings <= set(TITLES.values())
