"""Text from outside stays text in Markdown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from acceld.markup import fenced, literal

ATTACKS = (
    "<img src=x onerror=alert(1)>",
    "</summary><script>alert(1)</script>",
    "`code` <b>",
    "``` \n<script>",
    "a\n\n# title\n\n- list",
    "[click](http://evil.example)",
    "www.evil.example and https://evil.example",
    "@someone fixes #1",
    "**bold** | cell | ~~gone~~",
    "`",
    "\\`<i>",
    "a\u2028b\x1b[31m\u202e",
)
marks = st.text(alphabet="`<>ab|\\*_[]()#-!~ \n&;@:/.", max_size=60)


def kinds(text: str) -> set[str]:
    """Return the types of all tokens that a reader of Markdown with tables sees."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    return {inner.type for token in tokens for inner in (token, *(token.children or ()))}


@pytest.mark.parametrize("text", ATTACKS)
def test_known_attacks_are_code_or_words(text: str) -> None:
    assert kinds(f"## {literal(text)} end") == {"heading_open", "inline", "code_inline", "text", "heading_close"}


@given(marks)
def test_no_text_becomes_markup_in_a_line(text: str) -> None:
    found = kinds(f"x {literal(text)} y")
    assert found <= {"paragraph_open", "inline", "text", "code_inline", "paragraph_close"}


@given(marks)
def test_no_text_leaves_its_cell(text: str) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(f"| a | b |\n|---|---|\n| {literal(text)} | y |\n")
    assert [token.type for token in tokens].count("td_open") == 2
    assert [token.children[0].content for token in tokens if token.type == "inline" and token.children][-1] == "y"


@given(st.text(alphabet="`~ <>ab\n+-", max_size=80), st.sampled_from(["", " ", "   "]))
def test_no_text_closes_its_fence(text: str, indent: str) -> None:
    body = "\n".join(indent + line for line in text.split("\n"))
    (block,) = MarkdownIt("commonmark").parse(fenced(body, "diff"))
    assert block.type == "fence"
    assert block.content.rstrip() == body.rstrip()


def test_plain_words_stay_as_they_are() -> None:
    assert literal("silu on trn1") == "silu on trn1"
    assert fenced("x = 1\n", "python") == "```python\nx = 1\n```"
