"""Kernels, plans and insights are extracted from answers in any form."""

from __future__ import annotations

import pytest

from acceld.proposers.llm.directions import change_classes
from acceld.proposers.llm.extraction import (
    DIVIDER,
    REPLACE,
    SEARCH,
    Extracted,
    extract_kernel,
    parse_insight,
    parse_plan,
)

CLASSES = change_classes("nki")
KERNEL = "def kernel(x):\n    return x\n"
OTHER = "def kernel(x):\n    return x + x\n"


def block(text: str, fence: str = "```", info: str = "python") -> str:
    return f"{fence}{info}\n{text}{fence}\n"


@pytest.mark.parametrize(
    "answer",
    [
        block(KERNEL),
        "Sure!\n\n" + block(KERNEL) + "\nThis is faster because of tiles.",
        block(KERNEL, info=""),
        block(KERNEL, info="py title=kernel.py"),
        block(KERNEL, fence="~~~"),
        block(KERNEL, fence="````"),
        "1. Here:\n   ```python\n   def kernel(x):\n       return x\n   ```\n",
        KERNEL,
        "<think>" + block(OTHER) + "no, rather</think>\n" + block(KERNEL),
        "reasoning without its opening tag</think>" + block(KERNEL),
        block(OTHER) + "Wait, better:\n" + block(KERNEL),
        block(KERNEL) + "Run it with:\n" + block("print(kernel(3))\n") + block("pip install x\n", info="sh"),
        "```\r\ndef kernel(x):\r\n    return x\r\n```",
    ],
)
def test_the_last_complete_block_with_the_kernel_is_taken(answer: str) -> None:
    found = extract_kernel(answer, "kernel")
    assert found.text is not None and found.text.strip() == KERNEL.strip()


def test_a_fence_inside_a_docstring_does_not_end_a_longer_fence() -> None:
    text = 'def kernel(x):\n    """\n    ```\n    x\n    ```\n    """\n    return x\n'
    assert extract_kernel(block(text, fence="````"), "kernel").text == text


def test_a_cut_off_block_is_not_taken_but_an_earlier_complete_one_is() -> None:
    half = "```python\ndef kernel(x):\n    y = x +"
    assert extract_kernel(half, "kernel").text is None
    assert "cut off" in extract_kernel(half, "kernel").reason
    assert extract_kernel(block(KERNEL) + "Better still:\n" + half, "kernel").text == KERNEL


def test_a_complete_block_that_does_not_parse_is_left_to_the_evaluation() -> None:
    broken = "def kernel(x):\n    return (x\n"
    assert extract_kernel(block(broken), "kernel").text == broken
    assert extract_kernel(block(KERNEL) + block(broken), "kernel").text == KERNEL


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "empty"),
        ("<think>hm</think>", "empty"),
        ("I can not do that.", "no code block"),
        (block("x = 1\n"), "defines 'kernel'"),
        (block("def other(x):\n    return x\n"), "defines 'kernel'"),
    ],
)
def test_no_code_says_why(answer: str, reason: str) -> None:
    found = extract_kernel(answer, "kernel")
    assert found.text is None and reason in found.reason


def test_without_a_known_entry_any_function_will_do() -> None:
    assert extract_kernel(block("def other(x):\n    return x\n")).text is not None
    assert extract_kernel(block("x = 1\n")).text is None


def edit(old: str, new: str) -> str:
    return f"```\n{SEARCH}\n{old}{DIVIDER}\n{new}{REPLACE}\n```\n"


def test_edits_change_the_kernel_they_are_of_and_must_be_found_once() -> None:
    base = "def kernel(x):\n    y = x  \n    z = 1\n    return y\n"
    answer = edit("    y = x\n", "    y = x + 1\n") + edit("    z = 1\n", "")
    assert extract_kernel(answer, "kernel", base=base).text == "def kernel(x):\n    y = x + 1\n    return y\n"
    missing = extract_kernel(edit("    y = 3\n", "    y = 4\n"), "kernel", base=base)
    assert missing.text is None and missing.reason == (
        "the lines that edit 1 searches for are not found, not once: '    y = 3'"
    )
    twice = extract_kernel(edit("    a = 1\n", ""), "kernel", base="    a = 1\n    a = 1\n")
    assert twice.text is None and "found 2 times" in twice.reason
    assert extract_kernel(edit("\n", "x\n"), "kernel", base=base).reason == "edit 1 searches for nothing"


def test_a_plan_with_its_header() -> None:
    answer = (
        "**Title:** Keep the row in SBUF\nClass: fusion (of two loops)\nInsights: i12, i7\n\nLoad once.\nStore once."
    )
    plan = parse_plan(answer, CLASSES)
    assert plan is not None
    assert (plan.title, plan.change_class, plan.cited) == ("Keep the row in SBUF", "fusion", (12, 7))
    assert plan.text == "Load once.\nStore once."


def test_a_plan_without_a_header_is_a_plan_all_the_same() -> None:
    plan = parse_plan("Swap the two loops so that the longer one is innermost and the row stays where it is.", CLASSES)
    assert plan is not None and plan.change_class == "mixed" and plan.title.startswith("Swap the two loops")
    assert parse_plan("Title: nothing follows", CLASSES) is None
    assert parse_plan("  ", CLASSES) is None


def test_an_insight_with_its_pseudo_code() -> None:
    answer = (
        "Title: Load wide rows\nStrategy: Rows of 512 bytes waste a DMA. Load 2 KiB at once.\n"
        "Slow:\n```\nfor i: load(x[i:i+128])\n```\nFast:\n```\nload(x[:])\n```\n"
    )
    insight = parse_insight(answer)
    assert insight is not None
    assert (
        insight.title == "Load wide rows" and insight.slow == "for i: load(x[i:i+128])" and insight.fast == "load(x[:])"
    )


@pytest.mark.parametrize("answer", ["NONE", "None.", "**NONE**", "", "It was just luck.", "Title: only"])
def test_an_answer_without_an_insight_teaches_nothing(answer: str) -> None:
    assert parse_insight(answer) is None


def test_a_kernel_in_c_is_found_by_its_definition() -> None:
    c = "#include <math.h>\nstatic float twice(float x) { return 2 * x; }\n\nvoid kernel(const float *a, float *out)\n{\n    out[0] = twice(a[0]);\n}\n"
    talk = f"First:\n```c\nvoid kernel(const float *a, float *out);\n```\nthen\n```c\n{c}```\n"
    assert extract_kernel(talk, "kernel").text == c
    assert extract_kernel("```c\nint main(void) { return 0; }\n```", "kernel").text is None


def test_a_unified_diff_is_applied_to_the_kernel() -> None:
    base = "import x\n\n\ndef kernel(a):\n    b = a + 1\n    c = b * 2\n    return c\n"
    diff = "```diff\n--- a/kernel.py\n+++ b/kernel.py\n@@ -4,4 +4,3 @@\n def kernel(a):\n-    b = a + 1\n-    c = b * 2\n+    c = (a + 1) * 2\n     return c\n```"
    wanted = "import x\n\n\ndef kernel(a):\n    c = (a + 1) * 2\n    return c\n"
    assert extract_kernel(diff, "kernel", base=base) == Extracted(wanted)
    elsewhere = extract_kernel(diff.replace("b * 2", "b * 3"), "kernel", base=base)
    assert elsewhere.text is None and "edit 1 searches for are not found" in elsewhere.reason


def test_a_block_whose_closing_fence_is_left_out_is_a_kernel_unless_the_answer_was_cut_off() -> None:
    answer = "Here:\n```python\ndef kernel(a):\n    return a\n"
    assert extract_kernel(answer, "kernel") == Extracted("def kernel(a):\n    return a\n")
    assert extract_kernel(answer, "kernel", cut_off=True).text is None
    assert extract_kernel(answer.replace("return a", "return (a"), "kernel").text is None
