"""A page that was merged by hand has faults that are found, and the pages have none."""

from __future__ import annotations

import pytest

from scripts import pages

LONG = "The same placeholders must appear in the text, in the front matter and in what acceld gives."
WHOLE = f"""# Title

{LONG}

```sh
# a comment, and no title
acceld optimize silu
```

~~~~text
```python
x = 1
```
~~~~

| {LONG} | {LONG} |
|---|---|
| {LONG} | {LONG} |

* Run it: `acceld optimize silu --preset quick --backend simulator --chip trn1 --wait`
* Run it: `acceld optimize silu --preset quick --backend simulator --chip trn2 --wait`

## Part
"""


def test_a_whole_page_has_no_fault() -> None:
    assert pages.faults(WHOLE) == []


@pytest.mark.parametrize(
    ("added", "line", "text"),
    [
        ("# Title\n", 1, "a second first-level heading"),
        ("```\nopen\n", 1, "a fence that is not closed"),
        ("```\nopen\n\nprose\n\n```sh\nls\n```\n", 1, "a fence that is not closed"),
        ("~~~text\n```\nno end\n```\n", 1, "a fence that is not closed"),
        (f"{LONG}\n", 1, "nearly repeats line 3"),
        (LONG.replace("must appear", "have to appear"), 1, "nearly repeats line 3"),
        (f"Something else.\n{LONG[:35]}\n{LONG[36:]}\n", 2, "nearly repeats line 3"),
        ("word " * 30 + "\n", 1, "a line of 150 characters"),
    ],
    ids=["title", "fence", "lost fence", "other fence", "same line", "nearly", "wrapped", "wide"],
)
def test_a_fault_is_found_where_it_is(added: str, line: int, text: str) -> None:
    found = pages.faults(WHOLE + added)
    assert found and found[0].text.startswith(text)
    assert found[0].line == len(WHOLE.splitlines()) + line


def test_the_pages_have_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    code = pages.main()
    assert (code, capsys.readouterr().err) == (0, "")
