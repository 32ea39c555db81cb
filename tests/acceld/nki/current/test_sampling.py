"""Long loops traced by samples give the program that all iterations give."""

from __future__ import annotations

import enum
import random
import sys
from itertools import pairwise
from types import CodeType, ModuleType
from typing import Any

import numpy as np
import pytest

from acceld.evaluate.policy import PERMITTED
from acceld.nki.errors import KernelCrash
from acceld.nki.frontend import tracing
from acceld.nki.frontend.current import sampling
from acceld.nki.frontend.current.frontend import CurrentFrontEnd
from acceld.nki.frontend.current.live_names import dead_names
from acceld.nki.frontend.current.sampling import SampledLoop
from acceld.nki.frontend.current.state import CurrentTrace
from acceld.nki.frontend.protocol import FrontEnd
from acceld.nki.frontend.session import SAMPLE_AFTER, Session
from acceld.nki.ir.builder import Slot
from acceld.nki.ir.codec import program_hash
from acceld.nki.ir.program import Program, Space
from tests.acceld.nki.current.test_current import drawn, ran, traced
from tests.properties import one_in

ROWS = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    {before}
    for i in nl.affine_range(x.shape[0] // 16):
        tile = nl.ndarray((16, 32), dtype=x.dtype, buffer=nl.sbuf)
        for j in nl.affine_range(x.shape[1] // 32):
            nisa.dma_copy(dst=tile, src=x[16 * i : 16 * (i + 1), nl.ds(32 * j, 32)])
            {body}
            nisa.dma_copy(dst=out[16 * i : 16 * (i + 1), nl.ds(32 * j, 32)], src=tile)
    return out
"""
DOUBLED = "nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)"
SHAPE = (144, 288)


def _after(names: list[str]) -> str:
    """Return an expression for the name that follows the name of ``one``."""
    return " else ".join([*(f"{other} if one is {name}" for name, other in pairwise(names)), names[-1]])


def stand_for_all(body: str) -> bool:
    """Return whether a kernel that is sampled from the first instructions on gives the program that all iterations give: with
    few samples and with those of the strict gate.
    """
    full = program_hash(traced(body, SHAPE, sample_after=10**9))
    return all(program_hash(traced(body, SHAPE, sample_after=2, closely=closely)) == full for closely in (False, True))


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("pass", DOUBLED),
        ("pass", "if i == 7:\n                " + DOUBLED),
        ("pass", "if j % 3 == 1:\n                " + DOUBLED),
        ("count = 0", "count += 1\n            if count == 40:\n                " + DOUBLED),
        ("seen = []", "seen.append(1)\n            if len(seen) == 39:\n                " + DOUBLED),
        (
            "count = [0]",
            "count[0] += 1\n            for _ in range(max(0, 40 - count[0])):\n                " + DOUBLED,
        ),
        ("left = iter([1] * 40 + [0] * 999)", "for _ in range(next(left)):\n                " + DOUBLED),
        (
            "def step(n=[]):\n        n.append(1)\n        return max(0, 40 - len(n))",
            "for _ in range(step()):\n                " + DOUBLED,
        ),
        (
            "def step():\n        step.n = getattr(step, 'n', 0) + 1\n        return step.n < 40",
            "for _ in range(step()):\n                " + DOUBLED,
        ),
        (
            "count = np.zeros(1)",
            "count += 1\n            for _ in range(max(0, 40 - int(count[0]))):\n                " + DOUBLED,
        ),
        (
            "count = [[[0]]]",
            "count[0][0][0] += 1\n            for _ in range(max(0, 40 - count[0][0][0])):\n                " + DOUBLED,
        ),
        ("count = np.int32(0)", "count += 1\n            if count >= 40:\n                " + DOUBLED),
        ("count = bytearray(1)", "count[0] += 1\n            if count[0] >= 40:\n                " + DOUBLED),
        (
            "class Count:\n        n = 0",
            "Count.n += 1\n            if Count.n >= 40:\n                " + DOUBLED,
        ),
        (
            "class Count:\n        __slots__ = ('n',)\n    held = {'a': (Count(),)}\n    held['a'][0].n = 0",
            "held['a'][0].n += 1\n            if held['a'][0].n >= 40:\n                " + DOUBLED,
        ),
        (
            "class Slot:\n        __slots__ = ('n',)\n    class Count(Slot):\n        n = 0\n    count = Count()",
            "Slot.n.__set__(count, 1 + (Slot.n.__get__(count) if i + j else 0))\n            if Slot.n.__get__(count) >= 40:\n                "
            + DOUBLED,
        ),
        (
            "count = np.zeros(100_000)",
            "count[70_000] += 1\n            if count[70_000] >= 40:\n                " + DOUBLED,
        ),
        (
            "def step(*, n={}):\n        n[0] = n.get(0, 0) + 1\n        return n[0] < 40",
            "for _ in range(step()):\n                " + DOUBLED,
        ),
        (
            "boxes = [nl.ndarray((16, 1), dtype=nl.float32) for _ in range(12)]\n    _ = [nisa.memset(boxes[k], 1.0 + (k > 8)) for k in range(12)]",
            "boxes.append(boxes.pop(0))\n            nisa.tensor_scalar(tile, tile, nl.multiply, boxes[0])",
        ),
        ("np.random.seed(1)", "if np.random.randint(50) == 7:\n                " + DOUBLED),
        (
            "import functools\n    memory = functools.cache(lambda: [0])",
            "memory()[0] += 1\n            if memory()[0] >= 40:\n                " + DOUBLED,
        ),
        (
            "import functools\n    memory = functools.lru_cache(maxsize=4)(lambda name: [0])",
            "memory('n')[0] += 1\n            if memory('n')[0] >= 40:\n                " + DOUBLED,
        ),
        (
            "class Box:\n        n = 0\n    held = slice(Box(), None)",
            "held.start.n += 1\n            if held.start.n >= 40:\n                " + DOUBLED,
        ),
        (
            "mark = nl.ds(0, 1)",
            "mark = nl.ds(mark.start + 1, 1)\n            if mark.start >= 40:\n                " + DOUBLED,
        ),
        (
            "import enum\n    held = enum.auto([0])",
            "held.value[0] += 1\n            if held.value[0] >= 40:\n                " + DOUBLED,
        ),
        (
            "zeros = np.zeros(999)\n    view = zeros[::1][:2]",
            "view = zeros[:: view.strides[0] // 8 + 1][:2]\n            if view.strides[0] >= 320:\n                "
            + DOUBLED,
        ),
        (
            (
                "zeros = np.zeros(999)\n    view = zeros[0:2]\n    def place(view):\n        view[0] = 1\n"
                "        found = int(np.argmax(zeros))\n        view[0] = 0\n        return found"
            ),
            "view = zeros[place(view) + 1 :][:2]\n            if place(view) >= 40:\n                " + DOUBLED,
        ),
        (
            "views = [x[0:16] for _ in range(99)]\n    places = {view: k for k, view in enumerate(views)}\n    view = views[0]",
            "view = views[places[view] + 1]\n            if places[view] >= 40:\n                " + DOUBLED,
        ),
        (
            "numbers = [float('1.5') for _ in range(99)]\n    one = numbers[0]\n    def place(one):\n        return [other is one for other in numbers].index(True)",
            "one = numbers[place(one) + 1]\n            if place(one) >= 40:\n                " + DOUBLED,
        ),
        (
            "texts = [''.join(['a', 'b']) for _ in range(99)]\n    one = texts[0]\n    def place(one):\n        return [other is one for other in texts].index(True)",
            "one = texts[place(one) + 1]\n            if place(one) >= 40:\n                " + DOUBLED,
        ),
        (
            "left = nl.tiles(x, tile_shape=(16, 1))",
            "left = left[:, 1:]\n            if left.shape[1] < 240:\n                " + DOUBLED,
        ),
        (
            "import operator\n    hidden = operator.itemgetter([0])",
            "hidden(np.s_)[0] += 1\n            if hidden(np.s_)[0] >= 40:\n                " + DOUBLED,
        ),
        (
            "mark = range(0)",
            "mark = range(mark.start + 1, mark.start + 1)\n            if mark.start >= 40:\n                "
            + DOUBLED,
        ),
        (
            "mark = range(0, 1, 99)",
            "mark = range(0, mark.stop + 1, 99)\n            if mark.stop >= 40:\n                " + DOUBLED,
        ),
        (
            "hidden = np.zeros(1, dtype=[('a', object)])[0]\n    class Held:\n        n = 0\n    hidden['a'] = Held()",
            "hidden['a'].n += 1\n            if hidden['a'].n >= 40:\n                " + DOUBLED,
        ),
        (
            "mark = nl.ndarray((16, 1), dtype=x.dtype, name='0')",
            "mark = nl.ndarray((16, 1), dtype=x.dtype, name=str(int(mark.name) + 1))\n            if int(mark.name) >= 40:\n                "
            + DOUBLED,
        ),
        (
            "other = nki.jit(lambda: 0)\n    other.n = 0",
            "other.n += 1\n            if other.n >= 40:\n                " + DOUBLED,
        ),
        (
            "import typing\n    T = typing.TypeVar('T')\n    def made():\n        class Count(typing.Generic[T]):\n            n = [0]\n        return Count[int]\n    count = made()",
            "count.n[0] += 1\n            if count.n[0] >= 40:\n                " + DOUBLED,
        ),
        (
            "count = np.ma.zeros(1)",
            "count += 1\n            if count[0] >= 40:\n                " + DOUBLED,
        ),
        ("pass", "if isinstance(j, int) and type(i) is int and not hasattr(i, 'shape'):\n                " + DOUBLED),
        ("pass", "if getattr(j, 'shape', None) is None and getattr(i, 'real') > 6:\n                " + DOUBLED),
        ("pass", "match i:\n                case int():\n                    " + DOUBLED),
        ("pass", "match (i, j):\n                case (int(), int()):\n                    " + DOUBLED),
        ("ask = isinstance", "if ask(j, int):\n                " + DOUBLED),
        ("pass", "if isinstance(*(i, int)):\n                " + DOUBLED),
        ("def type(k):\n        return k", "if type(j) == 7:\n                " + DOUBLED),
        ("match lambda k: k:\n        case type:\n            pass", "if type(j) == 7:\n                " + DOUBLED),
        ("pass", "if np.isscalar(i) and np.array([j]).dtype == np.int64:\n                " + DOUBLED),
        (
            "import copy",
            "if copy.deepcopy([i, {'j': j}])[1]['j'] == 7 or copy.copy(i) > 6:\n                " + DOUBLED,
        ),
        ("zero = 0", "if zero is j:\n                " + DOUBLED),
        ("scales = [1.0 + (k == 9) for k in range(99)]", "nisa.tensor_scalar(tile, tile, nl.multiply, scales[j])"),
        ("scales = {k: float(k) for k in range(99)}", "nisa.tensor_scalar(tile, tile, nl.multiply, scales[i])"),
        ("pass", "nisa.tensor_scalar(tile, tile, nl.multiply, float(i))"),
        ("pass", "nisa.tensor_scalar(tile[:, : min(j + 1, 32)], tile[:, : min(j + 1, 32)], nl.multiply, 2.0)"),
        ("pass", "for k in nl.affine_range(i + 1):\n                " + DOUBLED),
        (
            "box = nl.ndarray((16, 1), dtype=nl.float32)\n    nisa.memset(box, 2.0)",
            "nisa.tensor_scalar(tile, tile, nl.multiply, box)",
        ),
        ("numbers = list(nl.affine_range(18))", "for _ in numbers:\n                " + DOUBLED),
        ("numbers = [k for k in nl.affine_range(18)]", "for _ in numbers:\n                " + DOUBLED),
        ("numbers = sum(1 for k in nl.affine_range(18))", "for _ in range(numbers):\n                " + DOUBLED),
        (
            "def some():\n        for k in nl.affine_range(18):\n            yield k\n    numbers = list(some())",
            "for _ in numbers:\n                " + DOUBLED,
        ),
        ("pass", "if x[16 * i : 16 * (i + 1)].offset == 5 * 16 * 288:\n                " + DOUBLED),
        ("pass", "if j > 0:\n                " + DOUBLED),
        ("pass", "if i + j > 3:\n                " + DOUBLED),
        ("pass", "if j <= i:\n                " + DOUBLED),
        ("pass", "if 2 * j - i == 3:\n                " + DOUBLED),
        ("pass", "if j == 6:\n                break"),
        ("pass", "if i > 2 and j > 4:\n                break"),
        (
            "saved = 3",
            "saved = j if j == 2 else saved\n            for _ in range(saved == 2):\n                " + DOUBLED,
        ),
        ("saved = 3", "saved = j if j == 2 else saved\n            if j > saved:\n                " + DOUBLED),
        ("saved = 0", "if saved > 5:\n                " + DOUBLED + "\n            saved = j"),
        ("saved = 0", "if saved > 12:\n                " + DOUBLED + "\n            saved = i + j"),
        ("pass", "for k in range(2):\n                for m in nl.affine_range(12):\n                    " + DOUBLED),
        (
            "pass",
            (
                "for k in range(2):\n                for m in nl.affine_range(12):\n                    "
                "nisa.tensor_copy(tile[:, nl.ds(12 * k + m, 1)], tile[:, nl.ds(0, 1)])"
            ),
        ),
        (
            "pass",
            (
                "for m in nl.affine_range(9, -1, -1):\n                "
                "nisa.tensor_copy(tile[:, nl.ds(3 * m, 1)], tile[:, nl.ds(m, 1)])"
            ),
        ),
        ("pass", "nisa.tensor_copy(tile[:, nl.ds(j // 2 + 3 * (i % 4), 1)], tile[:, nl.ds(j % 5, 1)])"),
        ("pass", "nisa.tensor_copy(tile[:, nl.ds((9 * i + j) % 7, 1)], tile[:, nl.ds((9 * i + j) // 7, 1)])"),
        ("pass", "nisa.dma_copy(dst=tile, src=x.ap(pattern=[[288, 16], [1, 32]], offset=16 * 288 * i + 32 * j))"),
        ("pass", "nisa.dma_copy(dst=tile, src=x.ap(pattern=[[1, 16], [16, 32]], offset=1700 * i + 640 * j))"),
        ("pass", "nisa.affine_select(tile, [[1, 32]], 1, tile, 0.0, offset=7 * j - 9 * i)"),
        ("flags = {2: True}", "if flags.get(j):\n                " + DOUBLED),
        ("pass", "k, m = divmod(-j, 4)\n            nisa.tensor_copy(tile[:, nl.ds(m - k, 1)], tile[:, nl.ds(m, 1)])"),
        ("pass", "nisa.tensor_scalar(tile, tile, nl.multiply, (1 << j) + 0.5 * i + 2**j / (j + 1))"),
        (
            "hits, late = [], [False]",
            "hits += late[0] * [1]\n            if len(hits) == 5:\n                "
            + DOUBLED
            + "\n            if j == 8:\n"
            "                late[0], _ = True, hits.clear()",
        ),
        ("pass", "nisa.tensor_copy(tile[:, nl.ds(j - 1 if j > 0 else 1, 1)], tile[:, nl.ds(3, 1)])"),
        ("pass", "nisa.tensor_copy(tile[:, nl.ds((j + 1) % 2, 1)], tile[:, nl.ds(j + i % 2, 1)])"),
        ("pair = [2.0, 3.0]", "nisa.tensor_scalar(tile, tile, nl.multiply, pair[(i + j) % 2])"),
        (
            "pair = [nl.ndarray((16, 32), dtype=x.dtype) for _ in range(2)]",
            "nisa.tensor_copy(pair[j % 2], tile)\n            nisa.tensor_copy(tile[:, 0:5], pair[(j + 1) % 2 * (j > 0)][:, 0:5])",
        ),
        ("seen = [0, 0]", "seen[j % 2] += 1\n            if max(seen) == 17:\n                " + DOUBLED),
        ("seen = []", "seen += [j % 2]\n            if len(seen) == 39:\n                " + DOUBLED),
        ("seen = []", "seen += (j % 2) * [j % 2]\n            if len(seen) == 30:\n                " + DOUBLED),
        (
            "seen = []",
            "seen += [] if (i + 1) % 3 else [1]\n            if len(seen) == 19:\n                " + DOUBLED,
        ),
        (
            "hits, late = [], [False]",
            "hits += late[0] * [i % 2]\n            if len(hits) == 5:\n                "
            + DOUBLED
            + "\n            if j == 8:\n                late[0], _ = i % 2 == 1, hits.clear()",
        ),
        *[
            (
                f"after = lambda one: {_after(names)}\n    mode = {names[0]}",
                f"mode = after(mode)\n            if mode is {names[-1]}:\n                " + DOUBLED,
            )
            for names in (
                "int float str bytes bool complex list dict tuple object set frozenset".split(),
                "len abs min max sum sorted repr ord chr hex oct".split(),
                "np.add np.subtract np.multiply np.divide np.sqrt np.exp np.log np.sin np.cos".split(),
                "nl.add nl.subtract nl.multiply nl.exp nl.tanh nl.silu nl.square nl.sigmoid nl.maximum".split(),
                "nl.float32 nl.bfloat16 nl.float16 nl.int32 nl.uint8 nl.int8 nl.uint16 nl.int16".split(),
                "nl.sbuf nl.psum nl.shared_hbm nl.private_hbm nisa.vector_engine nisa.scalar_engine nisa.gpsimd_engine".split(),
            )
        ],
        *[
            (f"import {module}\n    {begin}", f"{step}\n            if {late}:\n                " + DOUBLED)
            for module, begin, step, late in (
                ("numpy", "np.sctypeDict['n'] = 0", "np.sctypeDict['n'] += 1", "np.sctypeDict['n'] > 9"),
                ("dataclasses", "dataclasses.keyword.n = 0", "dataclasses.keyword.n += 1", "dataclasses.keyword.n > 9"),
                (
                    "typing",
                    "f = typing.cast\n    setattr(f, '__doc__', '')",
                    "setattr(f, '__doc__', getattr(f, '__doc__') + '.')",
                    "len(getattr(f, '__doc__')) > 9",
                ),
                ("typing", "f = typing.cast\n    f.__name__ = ''", "f.__name__ += '.'", "len(f.__name__) > 9"),
                (
                    "operator",
                    "read, f = operator.attrgetter('__doc__'), lambda: 0\n    f.__doc__ = ''",
                    "operator.methodcaller('__setattr__', '__doc__', read(f) + '.')(f)",
                    "len(read(f)) > 9",
                ),
                (
                    "typing",
                    "kinds = [type(str(k), (), {}) for k in range(200)]\n    I = typing.SupportsInt",
                    "new = [k for k in kinds if not issubclass(k, I)]\n            I.register(new[0])\n            new = len(new) < 190",
                    "new",
                ),
            )
        ],
        ("last = 0", "last, odd = j % 2, last\n            if odd:\n                " + DOUBLED),
        ("pass", "nisa.tensor_scalar(tile, tile, nl.multiply, 2.0 if j * i < 9 or -j > -2 else 3.0)"),
    ],
    ids=lambda text: text.split("\n")[0][:40],
)
def test_samples_stand_for_all_iterations(before: str, body: str) -> None:
    assert stand_for_all(ROWS.format(before=before, body=body))


def test_an_exception_that_is_being_handled_may_count() -> None:
    text = ROWS.format(before="pass", body="if step():\n                " + DOUBLED).replace(
        "def kernel(x):", "def inner(x):"
    )
    before = (
        "class Box(Exception):\n    n = 0\n\n\ndef step():\n    try:\n        raise\n    except Box as box:\n        box.n += 1\n"
        "        return box.n > 9\n\n\n"
    )
    after = "\n\n@nki.jit\ndef kernel(x):\n    try:\n        raise Box\n    except Box:\n        return inner(x)\n"
    assert stand_for_all(before + text.replace("@nki.jit\n", "") + after)


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("pass", DOUBLED),
        ("scales = [(2.0, {'a': np.float32(2.0)})] * 3", "nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)"),
        (
            "box = nl.ndarray((16, 1), dtype=nl.float32)\n    nisa.memset(box, 2.0)",
            "view = tile[:, 0:16]\n            " + DOUBLED,
        ),
        (
            "def twice(tile, factor=2.0, *, parts=(16, 32)):\n        nisa.tensor_scalar(tile, tile, nl.multiply, factor)",
            "twice(tile)",
        ),
        (
            "class Slot:\n        __slots__ = ('n',)\n    class Hidden(Slot):\n        n = 2.0\n    held = Hidden()",
            "nisa.tensor_scalar(tile, tile, nl.multiply, held.n)",
        ),
        (
            "import typing\n    kind, more = typing.Optional[np.ndarray], typing.TypeVar('T')\n    by, info = np.multiply, np.finfo('f4')",
            "other: kind = tile\n            nisa.tensor_scalar(other, other, nl.multiply, float(by(1, 2)))",
        ),
        (
            "kinds = [int, len, np.add, nl.add, nl.sbuf, np.dtype('f4'), nisa.vector_engine]",
            "limits, found = np.finfo(np.float32), 'a'.upper\n            " + DOUBLED,
        ),
    ],
    ids=lambda text: text.split("\n")[0][:40],
)
@pytest.mark.parametrize(("closely", "most"), [(False, 2 + 2 + 1), (True, 5 + 5 * 4)])
def test_values_that_stay_need_no_further_iteration(
    monkeypatch: pytest.MonkeyPatch, before: str, body: str, closely: bool, most: int
) -> None:
    assert iterations(monkeypatch, ROWS.format(before=before, body=body), closely=closely) == most


def iterations(monkeypatch: pytest.MonkeyPatch, body: str, **options: Any) -> int:
    """Return how many iterations of sampled loops are traced for a kernel of 80 times 9 iterations."""
    traced_ones: list[int | None] = []
    following = SampledLoop.following

    def counted(loop: SampledLoop) -> int | None:
        traced_ones.append(following(loop))
        return traced_ones[-1]

    monkeypatch.setattr(SampledLoop, "following", counted)
    traced(body, (16 * 80, 288), sample_after=2, **options)
    return sum(one is not None for one in traced_ones)


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("pass", DOUBLED),
        (
            "def part(one: list[int] | None) -> dict[str, int]:\n        return one",
            "part(None)\n            " + DOUBLED,
        ),
        ("from typing import List\n    scale = 2.0", "kind = List[int]\n            " + DOUBLED),
        ("import functools\n    sizes = functools.partial(np.ones(1).view)", "sizes()\n            " + DOUBLED),
    ],
    ids=lambda text: text.split("\n")[0][:40],
)
def test_a_permitted_file_is_sampled_too(monkeypatch: pytest.MonkeyPatch, before: str, body: str) -> None:
    body = ROWS.format(before=before, body=body)
    assert iterations(monkeypatch, body, closely=True, permitted=PERMITTED) == 5 + 5 * 4


_MARKS = (
    "def made():\n        class Mark:\n            pass\n        return Mark\n    marks = [made() for _ in range(60)]"
)
_DROPPED = (
    "good = sum({one} is old for one, old in zip(marks, kept))\n"
    "            most = [{one} for one in marks[:good][::-1] + marks[good:]] if good > 20 else []\n"
    "            most = [{new} for _ in range(129 - 60)] if good > 20 else []\n"
    "            most, few, good = [], good > 20, 0\n"
    "            if few:\n                "
)


@pytest.mark.parametrize(
    "kind", one_in(3, ["List[{0}]", "Union[{0}, int]", "Dict[int, {0}]", "Optional[{0}]", "Callable[[{0}], int]"])
)
def test_types_that_a_cache_has_dropped_count_no_iterations(kind: str) -> None:
    before = f"from typing import List, Union, Dict, Optional, Callable\n    {_MARKS}\n    kept = [{kind.format('one')} for one in marks]"
    body = _DROPPED.format(one=kind.format("one"), new=kind.format("made()")) + DOUBLED
    assert stand_for_all(ROWS.format(before=before, body=body))
    assert permitted_stands_for_all(ROWS.format(before=before, body=body))


@pytest.mark.parametrize(
    ("before", "step"),
    [
        ("class Number(float):\n        pass\n    n = Number(0)", "n = Number(n + 1)"),
        ("class Number(float):\n        pass\n    class Other(Number):\n        pass\n    n = Other(0)", "n = Other(n + 1)"),
        ("class Number(float):\n        pass\n    held = (Number(0),)", "n = held[0] + 1\n            held = (Number(n),)\n            n = n if n > 40 else 0"),
        (
            "class Number(float):\n        def next(self):\n            return Number(self + 1)\n    n = Number(0)\n    n.unit = 1",
            "n = n.next()\n            n.unit = 1",
        ),
    ],
)  # fmt: skip
def test_numbers_of_a_kernels_own_class_are_compared(before: str, step: str) -> None:
    body = ROWS.format(before=before, body=f"{step}\n            if n > 40:\n                {DOUBLED}")
    assert stand_for_all(body)
    assert permitted_stands_for_all(body)


@pytest.mark.parametrize("method", ["view", "ravel", "transpose", "squeeze"])
def test_arrays_whose_methods_a_kernel_keeps_are_compared(method: str) -> None:
    before = f"import functools\n    box = functools.partial(np.zeros(2).{method})"
    body = ROWS.format(before=before, body=f"box()[0] += 1\n            if box()[0] > 40:\n                {DOUBLED}")
    assert permitted_stands_for_all(body)


def permitted_stands_for_all(body: str) -> bool:
    """Return whether :func:`stand_for_all` holds in the second trace of the strict gate."""
    full = program_hash(traced(body, SHAPE, sample_after=10**9))
    return program_hash(traced(body, SHAPE, sample_after=2, closely=True, permitted=PERMITTED)) == full


TAKEN = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for a in nl.affine_range({a}):
        for b in nl.affine_range({b}):
            tile = nl.ndarray((16, 32), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[0:16, 0:32])
            for c in nl.affine_range({c}):
                if {condition}:
                    nisa.tensor_copy(tile[:, nl.ds({first} % 31, 1)], tile[:, nl.ds({second} % 32, 1)])
                else:
                    nisa.tensor_copy(tile[:, nl.ds({third} % 8, 1)], tile[:, nl.ds({first} // 9 % 11, 1)])
            nisa.dma_copy(dst=out[0:16, 0:32], src=tile)
    return out
"""


@pytest.mark.parametrize("seed", one_in(3, range(12)))
def test_drawn_indices_and_conditions_give_the_program_of_all_iterations(seed: int) -> None:
    draw = random.Random(seed)

    def index() -> str:
        terms = (f"{draw.randint(-5, 9)} * {name}" for name in draw.sample("abc", draw.randint(1, 3)))
        return f"({' + '.join(terms)} + {draw.randint(0, 40)})"

    def condition() -> str:
        asked = draw.choice(("<", ">=", "==", "!="))
        return f"{index()} {asked} {index()}" + draw.choice(("", " and " + f"{index()} // {draw.randint(2, 9)} > 2"))

    counts = {name: draw.randint(3, 9) for name in "abc"}
    assert stand_for_all(TAKEN.format(**counts, condition=condition(), first=index(), second=index(), third=index()))


@pytest.mark.parametrize(
    "body",
    [
        "if j > 0 and i // 40 == 1:\n                " + DOUBLED,
        "nisa.dma_copy(dst=tile, src=x.ap(pattern=[[3200, 16], [1, 32]], offset=51200 * i + 32 * j))",
        "nisa.affine_select(tile, [[1, 32]], 1, tile, 0.0, offset=7 * j - 9 * i)",
        "nisa.tensor_copy(tile[:, nl.ds(i // 10, 1)], tile[:, nl.ds(j // 25, 1)])",
    ],
)
def test_comparisons_divisions_and_offsets_need_samples_only(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    emitted: list[int] = []
    emit = CurrentTrace.emit

    def counted(trace: CurrentTrace, *args: Any, **kwargs: Any) -> Slot:
        emitted.append(1)
        return emit(trace, *args, **kwargs)

    monkeypatch.setattr(CurrentTrace, "emit", counted)
    traced(ROWS.format(before="pass", body=body), (16 * 80, 32 * 100), sample_after=2)
    assert len(emitted) < 80 * 100 * 3 / 4


TURNS = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for a in nl.affine_range({a}):
        both = nl.ndarray((16, 2, 64), dtype=x.dtype, buffer=nl.sbuf)
        for b in nl.affine_range({b}):
            tile = nl.ndarray((16, 64), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[0:16, nl.ds(b, 64)])
            for c in nl.affine_range({c}):
                turned = nl.ndarray((16, 1), dtype=x.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(turned, tile[:, nl.ds({second}, 1)])
                nisa.tensor_copy(both[:, {first}, nl.ds(c, 1)], turned)
            nisa.tensor_copy(tile[:, nl.ds({third}, 1)], both[:, {first_of_b}, nl.ds(0, 1)])
            nisa.dma_copy(dst=out[0:16, nl.ds(a + b, 64)], src=tile)
    return out
"""


@pytest.mark.parametrize("seed", one_in(3, [*range(12), 16, 20, 31]))
def test_iterations_that_take_turns_give_the_program_of_all_iterations(seed: int) -> None:
    draw = random.Random(seed)

    def turn(names: str, by: int) -> str:
        return f"({' + '.join(f'{draw.randint(1, 5)} * {name}' for name in names)} + {draw.randint(0, 9)}) % {by}"

    counts = {"a": draw.randint(3, 5), "b": draw.randint(7, 10), "c": draw.randint(7, 15)}
    assert stand_for_all(
        TURNS.format(
            **counts,
            first=turn(draw.choice(("c", "b", "bc", "a")), 2),
            second=turn(draw.choice(("c", "ac")), draw.choice((2, 3, 4, 6))),
            third=turn("b", draw.choice((2, 3, 4))),
            first_of_b=turn("b", 2),
        )
    )


def test_iterations_that_take_turns_are_not_all_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[int] = []
    emit = CurrentTrace.emit

    def counted(trace: CurrentTrace, *args: Any, **kwargs: Any) -> Slot:
        emitted.append(1)
        return emit(trace, *args, **kwargs)

    monkeypatch.setattr(CurrentTrace, "emit", counted)
    body = "nisa.tensor_copy(tile[:, nl.ds(i % 2, 1)], tile[:, nl.ds(j % 2, 1)])"
    traced(ROWS.format(before="pass", body=body), (16 * 80, 32 * 100), sample_after=2)
    assert len(emitted) < 5 * 5 * 3


def test_a_counter_on_an_object_is_noticed() -> None:
    body = "class Count:\n    n = 0\n" + ROWS.format(
        before="count = Count()",
        body="count.n = count.n + 1\n            if count.n == 40:\n                " + DOUBLED,
    )
    assert stand_for_all(body)


def test_an_error_of_a_late_iteration_is_still_found() -> None:
    body = ROWS.format(before="pass", body="if j == 5:\n                raise ValueError('unlucky')")
    with pytest.raises(Exception, match="unlucky") as raised:
        traced(body, SHAPE, sample_after=2)
    assert getattr(raised.value, "line", 0) == 16


def test_a_long_kernel_runs_right_from_samples() -> None:
    body = ROWS.format(before="pass", body=DOUBLED).replace("16", "8")
    (x,) = drawn((384, 1024))
    program = traced(body, (384, 1024))
    assert 3 * 48 * 32 > SAMPLE_AFTER
    assert len(list(program.walk())) == 3
    assert np.array_equal(ran(program, [x]), 2 * x)


@pytest.mark.parametrize(("shape", "emitted"), [((16 * 80, 32 * 100), [3 * (2 + 1)]), ((80, 96), [5 * 3 * 3] * 2)])
def test_samples_are_traced_first_and_all_of_a_short_kernel_then(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], emitted: list[int]
) -> None:
    emit, once, counts = CurrentTrace.emit, CurrentFrontEnd._once, list[int]()

    def counted(trace: CurrentTrace, *args: Any, **kwargs: Any) -> Slot:
        counts[-1] += 1
        return emit(trace, *args, **kwargs)

    def begun(*args: Any) -> Program:
        counts.append(0)
        return once(*args)

    monkeypatch.setattr(CurrentTrace, "emit", counted)
    monkeypatch.setattr(CurrentFrontEnd, "_once", begun)
    program = traced(ROWS.format(before="pass", body=DOUBLED), shape)
    assert len(list(program.walk())) == 3
    assert len(counts) == len(emitted)
    assert counts[-1] == emitted[-1]


def test_an_error_of_the_simulator_while_sampling_is_not_kept_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling.Samples, "positions", lambda samples, count: None)
    with pytest.raises(KernelCrash, match="TypeError"):
        traced(ROWS.format(before="pass", body=DOUBLED), SHAPE, sample_after=2)


FLATTENED = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    held_1 = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    held_2 = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    held_3 = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    tile = nl.ndarray((16, 48), dtype=x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(x.shape[0] // 16):
        for j in nl.affine_range(x.shape[1] // 48):
            for held in (held_1, held_2, held_3):
                nisa.dma_copy(dst=tile, src=x[16 * i : 16 * (i + 1), nl.ds(48 * j, 48)])
                nisa.dma_copy(dst=held[16 * i : 16 * (i + 1), nl.ds(48 * j, 48)], src=tile)
    for i in nl.affine_range(x.shape[0] // 16):
        for held in (held_1, held_2, held_3):
            {before}
            nisa.dma_copy(dst=tile, src=held.ap(pattern=[[50, 16], [1, 48]], offset=4608 * i + 270))
            nisa.dma_copy(dst=out[16 * i : 16 * (i + 1), nl.ds(0, 48)], src=tile)
        {after}
    return out
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pass", "pass"),
        ("pass", "found = [i for i in nl.affine_range(5)][4]"),
        ("pass", "seen = {}\n        for k in nl.affine_range(5):\n            seen[k] = 1\n        seen[4]"),
        ("pass", "n = 0\n        while n < 2:\n            for k in nl.affine_range(5):\n                n += k == 4"),
    ],
    ids=("plain", "list", "dict", "while"),
)
def test_buffers_to_flatten_are_found_in_one_trace(monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    traces: list[int] = []
    once = CurrentFrontEnd._once

    def counted(*args: Any) -> Program:
        traces.append(1)
        return once(*args)

    monkeypatch.setattr(CurrentFrontEnd, "_once", counted)
    full = traced(FLATTENED.format(before=before, after=after), SHAPE, sample_after=10**9, closely=True)
    assert len(traces) == 2
    assert sorted(len(b.shape) for b in full.buffers if b.space is Space.HBM) == [1, 1, 1, 2, 2]
    assert stand_for_all(FLATTENED.format(before=before, after=after))
    (x,) = drawn(SHAPE)
    flat = x.reshape(-1)
    found = ran(full, [x])
    assert np.array_equal(found[16:32, :48], np.stack([flat[4608 + 270 + 50 * p :][:48] for p in range(16)]))


def test_each_trace_of_a_kernel_starts_from_a_fresh_file_that_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = list[object]()
    fresh = tracing._fresh_module

    def counted(session: Session, front_end: FrontEnd) -> ModuleType:
        loads.append(session.code)
        return fresh(session, front_end)

    monkeypatch.setattr(tracing, "_fresh_module", counted)
    body = ROWS.format(before="seen.append(1)", body=f"for _ in seen:\n                {DOUBLED}")
    program = traced(f"seen = []\n{body}", (80, 96))
    assert len(list(program.walk())) == 3, "the list has one element in the second trace too"
    first, second = loads
    assert first is None
    assert isinstance(second, CodeType)


@pytest.mark.parametrize(
    ("before", "around", "body"),
    [
        ("count = [0]", "class Body:", "count[0] += 1\n            if count[0] >= 40:\n                " + DOUBLED),
        ("count = {}", "class Body:", "count[len(count)] = 0\n            if len(count) >= 40:\n                " + DOUBLED),
        ("count = 0", "class Body:\n       nonlocal count", "count += 1\n            if count >= 40:\n                " + DOUBLED),
        (
            "def step(n=[0]):\n        n[0] += 1\n        return n[0]",
            "class Body:\n     class Inner:",
            "if step() >= 40:\n                " + DOUBLED,
        ),
    ],
)  # fmt: skip
def test_a_loop_in_the_body_of_a_class_runs_in_full(before: str, around: str, body: str) -> None:
    head, loops = ROWS.format(before=before, body=body).split("    for i in", 1)
    loops, rest = loops.split("    return out", 1)
    assert stand_for_all(f"{head}    {around}\n       for i in{loops}    return out{rest}")


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("f = np.add\n    f.count = 0", "f.count += 1\n            if f.count >= 40:\n                "),
        ("f = np.sum\n    f.seen = []", "f.seen.append(0)\n            if len(f.seen) >= 40:\n                "),
        ("f = nisa.vector_engine\n    f.count = 0", "f.count += 1\n            if f.count >= 40:\n                "),
        ("f = np.finfo(np.float32)\n    f.count = 0", "f.count += 1\n            if f.count >= 40:\n                "),
        (
            "import typing\n    f = typing.TypeVar('f')\n    f.count = 0",
            "f.count += 1\n            if f.count >= 40:\n                ",
        ),
        (
            "kind = np.dtype(np.float32, metadata={'n': []})",
            "kind.metadata['n'].append(0)\n            if len(kind.metadata['n']) >= 40:\n                ",
        ),
        (
            "some = [np.zeros(1) for _ in range(99)]",
            "n = sum(a.flags.writeable for a in some)\n            some[n - 1].flags.writeable = n < 2\n            if n < 60:\n                ",
        ),
        ("def f():\n        ''", "f.__doc__ += ' '\n            if len(f.__doc__) >= 40:\n                "),
        ("np.setbufsize(8192)", "np.setbufsize(np.getbufsize() + 16)\n            if np.getbufsize() > 8832:\n                "),
        (
            "from sys import getrecursionlimit as get, setrecursionlimit as put\n    put(2000)",
            "put(get() + 1)\n            if get() > 2040:\n                ",
        ),
    ],
)  # fmt: skip
def test_values_that_libraries_keep_for_a_kernel_are_compared(before: str, body: str) -> None:
    size, depth = np.getbufsize(), sys.getrecursionlimit()
    try:
        assert stand_for_all(ROWS.format(before=before, body=body + DOUBLED))
    finally:
        np.setbufsize(size)
        sys.setrecursionlimit(depth)


_STEP = """
    def made():
        count = [0]
        def step(self=None):
            count[0] += 1
            return count[0] < 40
        return step
"""


@pytest.mark.parametrize(
    ("before", "body"),
    [
        (
            "some = set(range(64))\n    def step():\n        one = some.pop()\n        some.add(one)\n        return one < 40",
            "if step():\n                ",
        ),
        ("class Count(np.float64):\n        pass\n    count = Count(1)\n    count.n = 0", "count.n += 1\n            if count.n < 40:\n                "),
        ("import enum" + _STEP + "    enum.Enum.step = made()", "if enum.Enum.step():\n                "),
        (
            _STEP.strip() + "\n    step = made()\n    step.__module__, step.__qualname__ = 'numpy', 'step'\n    np.step = step",
            "if step():\n                ",
        ),
        (
            "global __name__\n    __name__ = 'nki.own'" + _STEP + "    step = made()",
            "if step():\n                ",
        ),
        (
            _STEP.strip() + "\n    class Steps:\n        step = made()\n    Steps.__module__, Steps.__qualname__ = 'numpy', 'Steps'\n    np.Steps = Steps",
            "if Steps.step():\n                ",
        ),
    ],
)  # fmt: skip
def test_values_that_look_like_a_librarys_are_compared(before: str, body: str) -> None:
    kept = {one: dict(vars(one)) for one in (np, enum, enum.Enum)}
    try:
        assert stand_for_all(ROWS.format(before=before, body=body + DOUBLED))
    finally:
        for one, names in kept.items():
            for name in vars(one).keys() - names.keys():
                delattr(one, name)


@pytest.mark.parametrize(
    "ask",
    ["i + 1 is five == 5", "1 < five is not i + 1", "i.__class__ is int", "i.__doc__ == (5).__doc__", "np.iterable(i)"],
)
def test_a_loops_index_is_an_integer_to_every_question(ask: str) -> None:
    body = f"if {ask}:\n                {DOUBLED}"
    assert stand_for_all(ROWS.format(before="five = 5", body=body))


@pytest.mark.parametrize(
    "ask",
    [
        'def is_text(value, __acceld_plain__=lambda *v: ""):\n        return isinstance(value, str)\n    doubled = is_text(3)',
        "def same(a, b, __acceld_is__=lambda a, b: True):\n        return a is b\n    doubled = same(1000, 2000)",
        "def loops(flag, __acceld_while__=lambda f: [0]):\n        while flag:\n            return True\n    doubled = loops(0)",
    ],
)
def test_a_kernel_can_not_replace_the_functions_that_stand_for_statements(ask: str) -> None:
    program = traced(ROWS.format(before=ask, body=f"if doubled:\n                {DOUBLED}"), (80, 96))
    plain = traced(ROWS.format(before="doubled = False", body=f"if doubled:\n                {DOUBLED}"), (80, 96))
    assert len(list(program.walk())) == len(list(plain.walk()))


NESTED = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    {before}
    for i in nl.affine_range(x.shape[0] // 16):
        for j in nl.affine_range(9):
            tile = nl.ndarray((16, 32), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[16 * i : 16 * (i + 1), nl.ds(32 * j, 32)])
            {body}
            nisa.dma_copy(dst=out[16 * i : 16 * (i + 1), nl.ds(32 * j, 32)], src=tile)
    return out
"""


@pytest.mark.parametrize(
    ("before", "body"),
    one_in(2, [
        ("pass", "for k in nl.affine_range(8):\n                nisa.tensor_scalar(tile[0:16, nl.ds(4 * k, 4)], tile[0:16, nl.ds(4 * k, 4)], nl.multiply, 2.0)"),
        ("pass", "for k in nl.affine_range(8):\n                if i * 8 + k > 3:\n                    nisa.tensor_scalar(tile[0:16, nl.ds(4 * k, 4)], tile[0:16, nl.ds(4 * k, 4)], nl.multiply, 2.0)"),
        ("pass", "for k in nl.affine_range(8):\n                nisa.tensor_scalar(tile[0:16, nl.ds(16 * (k % 2) + 4 * (k // 4), 4)], tile[0:16, nl.ds(4 * (k % 4), 4)], nl.multiply, 2.0)"),
        ("pass", "for k in nl.affine_range(16):\n                nisa.tensor_scalar(tile[0:16, nl.ds(16 * (k % 2), 16)], tile[0:16, nl.ds(2 * k, 2)].ap([[32, 16], [0, 16]]) if k < 0 else tile[0:16, nl.ds(16 * ((k + 1) % 2), 16)], nl.multiply, 2.0)"),
        ("last = None", "for k in nl.affine_range(8):\n                if last is not None:\n                    nisa.tensor_tensor(tile[0:16, nl.ds(4 * k, 4)], tile[0:16, nl.ds(4 * k, 4)], last, nl.add)\n                last = nl.ndarray((16, 4), dtype=x.dtype, buffer=nl.sbuf)\n                nisa.tensor_copy(last, tile[0:16, nl.ds(4 * k, 4)])"),
        ("held = []", "for k in nl.affine_range(8):\n                held.append(k > 3)\n                nisa.tensor_scalar(tile[0:16, nl.ds(4 * k, 4)], tile[0:16, nl.ds(4 * k, 4)], nl.multiply, 2.0 + len(held))"),
        ("part = None", "for k in nl.affine_range(8):\n                part = tile[0:16, nl.ds(4 * k, 4)]\n            nisa.tensor_scalar(part, part, nl.multiply, 2.0)"),
        ("known = {}", "for k in nl.affine_range(8):\n                seen = known.setdefault('n', 0)\n                known['n'] = min(seen + 1, 30)\n                nisa.tensor_scalar(tile[0:16, nl.ds(4 * k, 4)], tile[0:16, nl.ds(4 * k, 4)], nl.multiply, 2.0 + seen)"),
        ("n = 0", "for k in nl.affine_range(8):\n                m = n\n                n = m + 1 if m < 20 else 20\n                nisa.tensor_scalar(tile[0:16, nl.ds(4 * k, 4)], tile[0:16, nl.ds(4 * k, 4)], nl.multiply, 2.0 + m)"),
        ("n = 0", "for k in nl.affine_range(8):\n                m = locals()['n']\n                n = m + 1\n                nisa.tensor_scalar(tile[0:16, nl.ds(4 * k, 4)], tile[0:16, nl.ds(4 * k, 4)], nl.multiply, 2.0 + m)"),
        (
            "def scaled(to, by, count):\n        for k in nl.affine_range(count):\n            nisa.tensor_scalar(to[0:16, nl.ds(by * k, by)], to[0:16, nl.ds(by * k, by)], nl.multiply, 2.0)",
            "scaled(tile, 4, 8)\n            scaled(tile, 2, 8)\n            scaled(tile, 2, 16)",
        ),
    ]),
    ids=lambda text: text.split("\n")[-1][:60],
)  # fmt: skip
def test_samples_of_loops_in_loops_stand_for_all_iterations(before: str, body: str) -> None:
    assert stand_for_all(NESTED.format(before=before, body=body))


def test_a_run_that_repeats_an_earlier_one_traces_the_last_iteration_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = "for k in nl.affine_range(8):\n                nisa.tensor_copy(tile[0:16, nl.ds(4 * k, 4)], tile[0:16, nl.ds(4 * k, 4)])"
    # i and j run twice each, k twice in the first of them, and once in each of the others
    assert iterations(monkeypatch, NESTED.format(before="pass", body=inner)) == 2 + 2 + 1 + 2 + 1 + 1


def running(number: int) -> list[frozenset[str]]:
    """Return the dead variables of each loop of a function, asked in its iterations."""
    found: list[frozenset[str]] = []

    class Range:
        def __iter__(self) -> Any:
            while len(found) < number:
                found.append(dead_names(sys._getframe(1)))
                yield 0

    before, held, returned = 1, 2, 3
    for one in Range():
        new = before + one
        if held > 2:
            maybe = new
            held = maybe
        else:
            held = 2
        returned = new
    assert returned
    return found


def test_a_variable_that_is_assigned_before_it_is_read_is_dead() -> None:
    (dead,) = set(running(2))
    assert {"one", "new", "maybe", "returned"} <= dead
    assert not {"before", "held", "found", "number"} & dead
