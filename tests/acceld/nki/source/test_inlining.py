"""The bodies of a file's functions stand where a kernel calls them, and the calls come back where nothing changed."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from acceld.nki.source.inlining import inlined, with_calls
from acceld.nki.source.launches import Launch
from acceld.nki.source.normal import as_before
from acceld.proposers.rules.proposer import moves, rewrite, suggestions
from tests.acceld.nki.source.test_bodies import TILED_KERNEL, TILED_SHAPES
from tests.acceld.proposers.rules.kernels import arrays, current, legacy, run

HELPERS = """
SCALE = 3

def row(seen, at):
    '''Return a place.'''
    seen.append(("row", at))
    made = [at]
    # a comment
    made.append(SCALE * at)
    return made

def joined(seen, left, right, much=2, *, less=1):
    total = left[0] + much * right[0]
    for at in range(2):
        total = total - less * at
    seen.append(("joined", total))
    return [total, f"{total} of {left[0]}"]

def both(seen, at):
    at = at + 1
    first = [at]
    second = [at + at]
    seen.append(("both", at))
    return first, second

def hiding(seen, SCALE):
    SCALE = SCALE + 1
    seen.append(("hiding", SCALE))
    return SCALE

def told(seen, what):
    seen.append(("told", what))

def pair(seen, at):
    made = row(seen, at)
    told(seen, made)
    return made
"""


def result(source: str) -> Any:
    """Return what ``kernel`` of a Python source returns, and what it and its functions have seen, in order."""
    space: dict[str, Any] = {}
    exec(source, space)  # noqa: S102  # the sources of this file
    seen: list[Any] = []
    return space["kernel"](seen, 5), seen


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("a = row(seen, n)\nreturn a", 0),
        ("a = row(seen, at=2 * n + 1)\nb = row(seen, n)\nreturn a, b", 0),
        ("made = row(seen, n)\nmade = row(seen, made[0])\nreturn made", 0),
        ("a = joined(seen, row(seen, n), row(seen, n + 1))\nreturn a", 0),
        ("a = joined(seen, row(seen, n), [4], less=7)\nreturn a", 0),
        ("a, b = both(seen, n)\nb, a = both(seen, a[0])\nreturn a, b", 0),
        ("made = both(seen, n)\nreturn made", 0),
        ("for at in range(3):\n    a = row(seen, at * n)\n    told(seen, a)\nreturn at, a", 0),
        ("if n > 3:\n    told(seen, n)\nelse:\n    told(seen, -n)\nreturn n", 0),
        ("told(seen, row(seen, n))\nreturn None", 0),
        ("seen.append(row(seen, n))\nreturn pair(seen, 2)", 0),
        ("total = n\na = joined(seen, [total], [total])\nreturn total, a", 0),
        ("a = b = row(seen, n)\na.append(1)\nreturn a, b", 0),
        ("told(seen, what=n)  # said\nreturn row(seen, n)", 0),
        ("row(seen, n)\nreturn seen[0]", 0),
        ("a = hiding(seen, n)\nb = row(seen, n)\nreturn a, b", 0),
        # nothing may run in another order, and no name may mean something else
        ("a = joined(seen, [seen.append(1) or 4], row(seen, n))\nreturn a", 2),
        ("a = [row(seen, n), row(seen, n)]\nreturn a", 2),
        ("a = row(seen, n) if n else row(seen, 1)\nreturn a", 2),
        ("SCALE = 4\nreturn row(seen, n)", 1),
        ("a = row(seen, n); b = row(seen, n)\nreturn a, b", 2),
        ("a = row(*[seen, n])\nreturn a", 1),
        ("a = row(seen, n)\nreturn a, sorted(locals())", 1),
        ("f = row\nreturn f(seen, n), row(seen, n)", 1),
    ],
)
def test_a_kernel_does_the_same_without_its_calls(body: str, left: int) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = f"{HELPERS}\ndef kernel(seen, n):\n{lines}"
    whole = inlined(source)
    after = whole.partition("def kernel")[2]
    assert sum(after.count(f" {name}(") + after.count(f"({name}(") + after.count(f"[{name}(") for name in NAMES) == left
    assert result(whole) == result(source)
    assert with_calls(source, whole) == source


NAMES = ("row", "hiding", "joined", "both", "told", "pair")


@pytest.mark.parametrize(
    "function",
    [
        "def row(seen, at):\n    if at:\n        return [at]\n    return [0]",
        "def row(seen, at):\n    yield at",
        "def row(seen, *at):\n    made = [at]\n    return made",
        "@keep\ndef row(seen, at):\n    made = [at]\n    return made",
        "def row(seen, at, more=[]):\n    made = [at, more]\n    return made",
        "def row(seen, at):\n    made = [at, '''\n    text''']\n    return made",
        "def row(seen, at):\n    made = [one for one in [at]] + [lambda: at]\n    return made",
        "def row(seen, at):\n    global n\n    n = at\n    return [n]",
        "def row(seen, at):\n    made = row(seen, at - 1) if at else []\n    return made",
        "def row(seen, at):\n    made = [eval('at')]\n    return made",
    ],
)
def test_a_function_that_is_not_plain_stays_a_call(function: str) -> None:
    source = f"{function}\n\ndef kernel(seen, n):\n    a = row(seen, n)\n    return a\n"
    assert inlined(source) == source


MAKES_ROW = """def row(seen, at):
    made = [at]
    return made
"""
READS_SCALE = """SCALE = 3
def row(seen, at):
    made = [at, SCALE]
    return made
"""


def kernel(body: str, *lines: str) -> str:
    """Return the source of a kernel behind other lines of its file."""
    return "\n".join([*lines, "", "def kernel(seen, n):", *(f"    {line}" for line in body.splitlines()), ""])


@pytest.mark.parametrize(
    "source",
    [
        # other statements on the lines of a function's statements
        kernel("a = row(seen, n)\na.append(1)\nreturn a", "def row(seen, at):\n    made = [at]; return made"),
        kernel("a = row(seen, n)\na.append(1)\nreturn a", "def row(seen, at): made = [at]; return made"),
        kernel(
            "a = row(seen, n)\nreturn a", "def row(seen, at):\n    made = [at]\n    seen.append(2)\r    return made"
        ),
        # the returned expression has an effect, and the call's result is not used
        kernel("row(seen, n)\nreturn n", "def row(seen, at):\n    made = [at]\n    return seen.append(made)"),
        # one name in a comprehension, and another one of the file or of Python beside it
        kernel(
            "S = 8\nreturn row(seen, n)",
            "S = 3\ndef row(seen, at):\n    made = [S for S in range(2)]\n    made.append(S)\n    return made",
        ),
        kernel(
            "return row(seen, n)", "def row(seen, at):\n    made = [len for len in [at]]\n    return made, len('a')"
        ),
        # a name changes while the arguments are evaluated, or in the function
        kernel(
            "x = 1\nreturn row(seen, x, [x := 3])", "def row(seen, at, more):\n    made = [at, more]\n    return made"
        ),
        kernel(
            "a = row(seen, S)\nreturn a",
            "S = 1\ndef bump():\n    global S\n    S = S + 1\n    return S",
            "def row(seen, at):\n    much = bump()\n    made = [at, much]\n    return made",
        ),
        kernel(
            "x = 1\ndef bump():\n    nonlocal x\n    x += 1\n    return x\na = row(seen, x, bump)\nreturn a",
            "def row(seen, at, what):\n    much = what()\n    made = [at, much]\n    return made",
        ),
        # the caller has another thing with a name of the file that the function means
        *(
            kernel(f"{body}\na = row(seen, n)\nreturn a", READS_SCALE)
            for body in (
                "import math as SCALE",
                "def SCALE():\n    return 9",
                "class SCALE:\n    pass",
                "try:\n    raise ValueError\nexcept ValueError as SCALE:\n    pass",
                "match n:\n    case SCALE:\n        pass",
                "match [n]:\n    case [*SCALE]:\n        pass",
                "match {}:\n    case {**SCALE}:\n        pass",
            )
        ),
        # code that runs later reads names of the caller or of the function
        kernel(
            "a = 7\ng = lambda: a\na = row(seen, g)\nreturn a[1]",
            "def row(seen, what):\n    made = [0]\n    made.append(what())\n    return made",
        ),
        kernel(
            "a = 7\ng = (a for _ in range(2))\na = row(seen, g)\nreturn a[1]",
            "def row(seen, what):\n    made = [0]\n    made.append(list(what))\n    return made",
        ),
        kernel(
            "found = []\nfor t in range(3):\n    g = row(seen, t)\n    found.append(g)\nreturn [list(g) for g in found]",
            "def row(seen, at):\n    made = [at]\n    return (one + made[0] for one in range(2))",
        ),
        # the function changes what expressions before its call read
        kernel(
            "d = [[]]\ne = d[0]\nd[0].append(row(seen, d))\nreturn d, e",
            "def row(seen, d):\n    d[0] = []\n    made = [1]\n    return made",
        ),
        kernel(
            "x = dict(a=seen[:], b=row(seen, 3))\nreturn x",
            "def row(seen, at):\n    made = [at]\n    seen.append(at)\n    return made",
        ),
        kernel(
            "nt = dict\nnt = type('N', (), {'x': 1})()\na = row(seen, nt.x, more(nt))\nreturn a",
            "def more(nt):\n    nt.x += 1\n    return nt.x if nt else 3",
            "def row(seen, at, much):\n    made = [at, much]\n    return made",
        ),
        # another module's function takes the name
        kernel("a = mul(n, n)\nreturn a", MAKES_ROW.replace("row", "mul"), "from operator import *"),
        kernel("a = mul(n, n)\nreturn a", MAKES_ROW.replace("row", "mul"), "match pow:\n    case mul:\n        pass"),
        kernel("a = mul(n, n)\nreturn a", MAKES_ROW.replace("row", "mul"), "globals()['mul'] = pow"),
    ],
)
def test_no_function_is_written_out_where_that_would_change_a_result(source: str) -> None:
    assert result(inlined(source)) == result(source)
    assert result(with_calls(source, inlined(source))) == result(source)


def test_functions_behind_another_modules_names_are_written_out() -> None:
    source = kernel("a = row(seen, n)\nreturn a", "from operator import *", MAKES_ROW)
    assert "row(" not in inlined(source).partition("def kernel")[2] and result(inlined(source)) == result(source)


def test_a_name_that_only_a_comprehension_has_is_renamed_with_the_others() -> None:
    function = "def row(seen, at):\n    made = [at + one for one in range(2)]\n    return made"
    source = f"{function}\n\ndef kernel(seen, n):\n    one = row(seen, n)\n    two = row(seen, one[0])\n    return one, two\n"
    assert "row(" not in inlined(source).partition("def kernel")[2]
    assert result(inlined(source)) == result(source)


def test_arithmetic_with_a_tile_is_not_moved_behind_a_call_that_writes_the_tile() -> None:
    function = """
def cleared(tile):
    made = nl.zeros((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=made)
    return made

"""
    body = """
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.load(x)
    nl.store(out, nl.add(a * 2.0, cleared(a)))
    return out
"""
    head, behind = legacy("x", body).split("@nki.jit", 1)
    source, given = f"{head}{function}\n@nki.jit{behind}", arrays((128, 64))
    assert run(inlined(source), *given).tobytes() == run(source, *given).tobytes()
    assert "cleared(" not in inlined(source.replace("a * 2.0", "a")).partition("@nki.jit")[2]


def test_rules_see_through_calls_and_leave_the_others() -> None:
    given = arrays(*TILED_SHAPES, seed=4)
    first, second = "return out, more", "return more, out"
    expected = run(TILED_KERNEL, *given), run(TILED_KERNEL.replace(first, second), *given)
    whole = inlined(TILED_KERNEL)
    assert np.array_equal((run(whole, *given), run(whole.replace(first, second), *given)), expected)
    through = [move for move in moves(TILED_KERNEL, Launch("nki", (), ("float32",) * 2)) if "@" in move.step]
    made = {move.step: text for move in through if (text := move.apply()) is not None}
    assert len(made) > 10
    for step, text in made.items():
        results = run(text, *given), run(text.replace(first, second), *given)
        assert np.allclose(results, expected, rtol=1e-4, atol=1e-5), step
    (place,) = (text for step, text in made.items() if "reduce_in_activation" in step)
    back = as_before(TILED_KERNEL, place)
    assert "first = _loaded(x, 128 * t, columns)" in back and "def _loaded(" in back
    assert "activation_reduce" in back and "_normalize(" not in back and "def _normalize" not in back
    assert np.allclose(run(back, *given), expected[0], rtol=1e-4, atol=1e-5)


def test_a_place_that_a_function_has_itself_is_not_offered_again_behind_its_call() -> None:
    known, unknown = (
        suggestions(TILED_KERNEL, Launch("nki", shapes, ("float32",) * 2)) for shapes in (TILED_SHAPES, ())
    )
    (own,) = (one for one in known if one.rule == "reduce_in_activation")
    assert "@" not in own.key and own.line < TILED_KERNEL[: TILED_KERNEL.index("def _finished")].count("\n")
    (behind,) = (one for one in unknown if one.rule == "reduce_in_activation")
    assert "@" in behind.key, "without shapes the function alone proves nothing"


def test_a_tile_that_a_rewrite_leaves_unused_goes_although_another_function_has_its_name() -> None:
    assert not _unused(inlined(TILED_KERNEL))
    listed = [
        move
        for shapes in (TILED_SHAPES, ())
        for move in moves(TILED_KERNEL, Launch("nki", shapes), only="fold_scalars")
    ]
    changed = [text for move in listed if (text := move.apply()) is not None]
    assert len(changed) > 2 and not any(_unused(text) for text in changed)


def _unused(source: str) -> set[str]:
    """Return the tiles that a function of the file declares and never uses."""
    found = set()
    for function in ast.parse(source).body:
        if isinstance(function, ast.FunctionDef):
            names = Counter(one.id for one in ast.walk(function) if isinstance(one, ast.Name))
            declared = re.findall(r"^ +(\w+) = nl\.ndarray", ast.unparse(function), re.MULTILINE)
            found |= {name for name in declared if names[name] == 1}
    return found


def test_a_place_behind_a_call_is_suggested_at_the_line_of_the_call() -> None:
    launch = Launch("nki", (), ("float32",) * 2)
    found = [one for one in suggestions(TILED_KERNEL, launch) if "@" in one.key]
    assert found and all("_" in TILED_KERNEL.splitlines()[one.line - 1] for one in found)
    (one,) = (site for site in found if site.rule == "reduce_in_activation")
    assert TILED_KERNEL.splitlines()[one.line - 1] == "        _normalize(done, both, columns)"
    text = rewrite(TILED_KERNEL, launch, one, one.variants[0])
    assert "activation_reduce" in text and "first = _loaded(x, 128 * t, columns)" in text


def test_a_load_in_a_function_moves_before_the_loop_that_calls_it() -> None:
    function = """
def weighted(x, w, r0, columns):
    tile = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[r0:r0 + 128, 0:columns])
    weight = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=weight, src=w[0:128, 0:columns])
    made = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=made, data1=tile, data2=weight, op=nl.multiply)
    return made

"""
    body = """
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(rows // 128):
        nisa.dma_copy(dst=out[128 * t:128 * t + 128, 0:columns], src=weighted(x, w, 128 * t, columns))
    return out
"""
    head, behind = current("x, w", body).split("@nki.jit", 1)
    source, shapes = f"{head}{function}\n@nki.jit{behind}", ((512, 256), (128, 256))
    given = arrays(*shapes)
    (move,) = moves(source, Launch("nki", shapes, ("float32",) * 2), only="hoist_loads")
    text = move.apply()
    assert text is not None and text.index("src=w[0:128") < text.index("for t in")
    assert run(text, *given).tobytes() == run(source, *given).tobytes()
