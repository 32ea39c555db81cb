"""Saves that count as a change."""

from __future__ import annotations

import pytest

from acceld.watch.hashes import canonical, hashes

BASE = '''
import numpy as np

def kernel(x, scale=2):
    """Doubles."""
    total = 0  # start
    for row in range(4):
        total += x[row] * scale
    return total
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# start", "# begin at nothing"),
        ('"""Doubles."""', '"""Multiplies by two."""'),
        ("total", "acc"),
        ("row", "i"),
        ("x[row] * scale", "x[ row ]*scale"),
    ],
)
def test_comments_docstrings_spaces_and_names_of_locals_do_not_count(old: str, new: str) -> None:
    assert canonical(BASE.replace(old, new)) == canonical(BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [("range(4)", "range(8)"), ("scale=2", "scale=3"), ("* scale", "+ scale"), ("x[row]", "np[row]"), ("kernel", "k")],
)
def test_anything_else_does(old: str, new: str) -> None:
    assert canonical(BASE.replace(old, new)) != canonical(BASE)


def test_swapping_two_locals_counts() -> None:
    text = "def k(x):\n    a = x + 1\n    b = x * 2\n    return a - b\n"
    assert canonical(text) != canonical(text.replace("a - b", "b - a"))


def test_a_local_that_hides_a_global_is_distinguished_from_one_that_does_not() -> None:
    hides = "g = 1\ndef k(x):\n    g = x\n    return g\n"
    assert canonical(hides) != canonical("g = 1\ndef k(x):\n    h = x\n    return g\n")


def test_a_nested_function_sees_the_locals_around_it() -> None:
    text = "def k(x):\n    a = 1\n    def inner(y):\n        b = a\n        return b + y\n    return inner(x)\n"
    renamed = text.replace("a = 1", "c = 1").replace("b = a", "d = c").replace("return b", "return d")
    assert canonical(renamed) == canonical(text)


def test_names_are_kept_where_they_can_be_asked_for() -> None:
    text = "def k(x):\n    a = 1\n    return locals()\n"
    assert canonical(text) != canonical(text.replace("a = 1", "b = 1"))


def test_the_interface_is_signature_and_contract() -> None:
    base = hashes(BASE, {}, "kernel", "reference")
    assert hashes(BASE.replace("range(4)", "range(8)"), {}, "kernel", "reference").interface == base.interface
    assert hashes(BASE.replace("scale=2", "scale=3"), {}, "kernel", "reference").interface != base.interface
    assert hashes(BASE, {}, "kernel", "another reference").interface != base.interface


def test_a_module_of_the_closure_counts() -> None:
    base = hashes(BASE, {"tiles.py": "N = 1\n"}, "kernel", "")
    assert hashes(BASE, {"tiles.py": "N = 2\n"}, "kernel", "").canonical != base.canonical
    assert hashes(BASE, {"tiles.py": "N = 1  # one\n"}, "kernel", "").canonical == base.canonical


def test_comments_and_spacing_of_c_do_not_count_but_strings_do() -> None:
    def of(text: str) -> str:
        return hashes(text, {}, "", "", python=False).canonical

    plain = of('int f(void) { return g("// no comment"); }')
    assert plain == of('int f(void) {  // add\n  return /* here */ g("// no comment");\n}')
    assert plain != of('int f(void) { return g("// a comment"); }')
