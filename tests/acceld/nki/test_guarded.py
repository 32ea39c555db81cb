"""A kernel run as the permitted subset of Python: the same program, or a refusal at the offending line."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from acceld.evaluate.policy import MODULE_NAMES, PERMITTED, check
from acceld.nki.errors import KernelFailure, LegalityError
from acceld.nki.frontend.guarded import CALL, Guard
from acceld.nki.frontend.permitted import RULE
from acceld.nki.frontend.session import Session, TraceOptions
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.codec import encode
from acceld.workloads import ArraySpec, load_workload

ROOT = Path(__file__).parents[3]
GUARDED = TraceOptions(permitted=PERMITTED)
CHIPS = {"nki": "trn2", "nki_legacy": "trn1"}
HEAD = """\
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
"""
BODY = """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    INSIDE
    nl.store(out, value=tile)
    return out
"""


def _both(before: str, inside: str) -> tuple[bytes, bytes]:
    text = HEAD + before + BODY.replace("INSIDE", inside)
    arguments = [TensorSpec((128, 512), "float32")]
    return encode(trace(text, arguments)), encode(trace(text, arguments, options=GUARDED))


LONG = {"gqa_full", "lora", "matmul", "matmul_add_rmsnorm", "swiglu", "transpose_matmul"}
"""Workloads whose baselines take seconds to trace."""
FOLDERS = [
    pytest.param(path.parent, id=path.parent.name, marks=pytest.mark.slow if path.parent.name in LONG else ())
    for path in sorted((ROOT / "workloads").rglob("workload.toml"))
]


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_baseline_gives_the_same_program(folder: Path) -> None:
    loaded = load_workload(folder)
    arguments = [TensorSpec(a.shape, a.dtype) if isinstance(a, ArraySpec) else a for a in loaded.kernel_arguments()]
    for api in CHIPS.keys() & loaded.baselines.keys():
        text = loaded.baselines[api].read_text("utf-8")
        plain = trace(text, arguments, api=api, chip=CHIPS[api])
        assert encode(trace(text, arguments, api=api, chip=CHIPS[api], options=GUARDED)) == encode(plain)


@pytest.mark.parametrize(
    ("before", "inside"),
    [
        ("import functools\nhalf = functools.partial(nl.multiply, 0.5)\n", "tile = half(tile)"),
        ("from dataclasses import dataclass\n@dataclass(frozen=True)\nclass S:\n    width: int = 512\n", "assert S().width == tile.shape[1]"),
        ("import functools\nhalf = functools.partial(nl.multiply, **{'y': 0.5})\n", "tile = half(tile)"),
        ("import numpy as np\n", "assert np.sqrt(np.ones(2), out=np.zeros(2), where=[True, False])[1] == 0"),
        ("class P:\n    def __init__(self, n):\n        self.n = n\n", "p = P(2)\n    p.n += 1\n    assert p.n == 3"),
        ("from collections import namedtuple\nT = namedtuple('T', 'rows columns')\n", "assert T(1, 2).columns == 2"),
        ("from enum import Enum\nclass E(Enum):\n    A = 1\n", "assert E.A.value == 1 and E(1).name == 'A'"),
        ("import numpy as np\n", "tile = nl.multiply(tile, float(np.sqrt(4.0)))"),
        ("", "steps = [nl.copy(tile) for _ in range(2)]\n    tile = max(steps, key=lambda one: one.shape[0])"),
        ("", "names = {'a': 1}\n    names.update(b=2)\n    assert ', '.join(sorted(names)) == 'a, b'"),
        ("", "match tile.shape:\n        case (rows, columns) if columns == 512:\n            tile = nl.copy(tile)\n        case _:\n            pass"),
        ("", "assert f'{tile.shape[0]:>4}'.strip() == '128' and '{} {}'.format(1, 2) == '1 2'"),
        ("", "assert 'a' in {'a', 'b'} and len({'a'} | {'b', 'c'}) == 3 and sorted({'b', 'a'}) == ['a', 'b'] and max({'b', 'a'}) == 'b'"),
        ("", "assert [one for one in {3, 1, 2} - {2}] == [1, 3] and {'a', 'b'}.isdisjoint({'c'}) and {'a'}.pop() == 'a'"),
        ("", "names = {'a': 1, 'b': 2}\n    assert sorted(names.keys() - {'a'}) == ['b'] and [*names.items()] == [('a', 1), ('b', 2)]"),
        ("", "assert isinstance('a', str) and type('a') == str and ','.join(map(str, tile.shape)) == '128,512' and 7 % 4 == 3"),
        ("import numpy as np\n", "width = 7\n    width %= 4\n    assert '%d' % width == '3' and np.arange(4).reshape((2, 2)).sum() == 6"),
        ("if __name__ == '__main__':\n    kernel(1)\n", "assert f'{tile.shape!r:>{2 * 6}}' == '  (128, 512)'"),
        ("def rows(n: int = 4) -> 'int':\n    yield from range(n)\n", "assert sum(rows()) == 6"),
        ("class B:\n    def size(self):\n        return 1\nclass C(B):\n    def size(self):\n        return super().size() + 1\n", "assert C().size() == 2"),
        ("from enum import Enum\nclass E(str, Enum):\n    A = 'a'\n", "assert E('a') is E.A and E.A == 'a' and E.A.upper() == 'A'"),
        ("from enum import Enum\nE = Enum('E', 'A B')\n", "assert E.B.value == 2 and [one.name for one in E] == ['A', 'B']"),
        ("from typing import Generic, NamedTuple, TypeVar\nT = TypeVar('T')\nclass N(NamedTuple):\n    n: int\nclass G(Generic[T]):\n    pass\nclass H(G[int]):\n    pass\n", "assert N(3).n == 3 and H()"),
        ("class Wrong(ValueError):\n    pass\n", "if tile.shape[0] != 128:\n        raise Wrong('rows')"),
        ("import functools\nimport numpy as np\nmade = functools.partial(nl.zeros, dtype=np.float32)\n", "tile = nl.add(tile, made((128, 512)))"),
        ("import functools\nimport numpy as np\ncombined = functools.partial(lambda op, *tiles: op(*tiles), nl.add)\n", "tile = combined(tile, tile)"),
        ("from dataclasses import dataclass, field\n@dataclass\nclass S:\n    kind: object = nl.float32\n    sizes: list = field(default_factory=list)\n", "S().sizes.append(nl.zeros((128, 512), S().kind))"),
        ("import numpy as np\nfrom collections import defaultdict\nfrom functools import lru_cache, reduce\n@lru_cache(maxsize=None)\ndef twice(n):\n    return 2 * n\n",
         "d = defaultdict(list)\n    d['a'].append(reduce(np.add, map(np.sqrt, [4.0, 9.0])))\n    assert d == {'a': [5.0]} and twice(2) == 4 and sorted([3, -1], key=np.abs) == [-1, 3]"),
        ("if __name__ == '__main__':\n    import torch\n    kernel(torch.zeros(1))\n", "tile = nl.copy(tile)"),
        ("from dataclasses import dataclass\n@dataclass\nclass S:\n    rows: int = 1\n    def __post_init__(self):\n        self.rows += 1\n", "assert S().rows == 2"),
        ("class Half:\n    def __call__(self, tile):\n        return nl.multiply(tile, 0.5)\n", "tile = Half()(tile)"),
        ("from collections import deque\n", "tiles = deque([tile])\n    tiles.appendleft(tile)\n    tile = nl.copy(tiles.popleft())"),
        ("__all__ = ['kernel']\nclass B:\n    def __init__(self, n):\n        self.n = n\n    def twice(self):\n        return 2 * self.n\nclass C(B):\n    def __init__(self):\n        super().__init__(3)\n    def twice(self):\n        return super().twice() + 1\n", "assert C().twice() == 7"),
        ("class P:\n    def __init__(self, n):\n        super().__init__()\n        self.n = n\n", "assert P(2).n == 2"),
        ("class P(ValueError):\n    def __init__(self, n):\n        super().__init__(f'{n} rows')\n", "assert str(P(2)) == '2 rows'"),
        ("from enum import Enum\nclass E(Enum):\n    A = 1\n    @property\n    def value(self):\n        return 2 * super().value\n    def label(self):\n        return super().name + '!'\n",
         "assert E.A.value == 2 and E.A.label() == 'A!'"),
        ("from enum import Enum\nclass E(Enum):\n    A = 1\n    def __init__(self, n):\n        super().__init__()\n        self.twice = 2 * n\n", "assert E.A.twice == 2"),
        ("import itertools\n", "assert [*itertools.accumulate([1, 2, 3], max)] == [1, 2, 3] and [*itertools.starmap(pow, [(2, 3)])] == [8]"),
        ("", "tile = nl.multiply(tile, len(str({1, 2}) + f'{frozenset((3,))}' + repr([set()])))"),
        ("", "tile = nl.multiply(tile, len(str({'a': 1}.keys()) + repr({'a': 1}.items())))"),
        ("", "known = {24 * k % 512 for k in range(32)} | {7}\n    known -= {0}\n    known.update(range(9))\n    for n in known:\n        tile = nl.multiply(tile, n)"),
        ("", "known = {8 * k: k for k in range(64)}\n    for n in known.keys() - {24 * k % 512 for k in range(32)}:\n        tile = nl.multiply(tile, n)"),
        ("import copy\n", "known = copy.copy({32 * k for k in range(20)}) ^ {5}\n    for n in copy.deepcopy(known).copy():\n        tile = nl.multiply(tile, n)"),
        ("", "keys = {'a': 1, 'b': 2}.keys()\n    assert keys >= {'a', 'b'} and {'a'} < keys and not keys.isdisjoint({'a', 'z'}) and keys == {'b', 'a'} != keys - {'a'}"),
        ("from dataclasses import dataclass\n@dataclass(frozen=True)\nclass S:\n    tags: frozenset = frozenset({'a', 'b', 'c'})\n", "assert 'a' in S().tags"),
        ("class P:\n    def __init__(self):\n        self._n = 1\n    @property\n    def n(self):\n        return self._n\n    @n.setter\n    def n(self, value):\n        self._n = value\n    def _twice(self):\n        return 2 * self._n\nclass Q(P):\n    def _twice(self):\n        return super()._twice() + 1\n",
         "p = Q()\n    p.n = 3\n    assert p._twice() == 7"),
        ("from typing import NamedTuple\nclass N(NamedTuple):\n    n: int\n    m: int = 2\n", "assert N(1)._replace(n=3)._asdict() == {'n': 3, 'm': 2} and N._fields == ('n', 'm')"),
        ("import operator\nfrom itertools import chain\n", "assert [*chain.from_iterable([[1], [2]])] == [1, 2] and operator.pow(2, operator.abs(-3)) == 8"),
    ],
)  # fmt: skip
def test_what_kernels_are_written_with_gives_the_same_program(before: str, inside: str) -> None:
    plain, guarded = _both(before, inside)
    assert plain == guarded


def test_a_class_may_extend_the_base_that_the_api_documents() -> None:
    before = "class Sizes(nl.NKIObject):\n    rows: int = 1\n    def __post_init__(self):\n        self.twice = 2 * self.rows\n"
    text = HEAD.replace("neuronxcc.", "") + before + BODY.replace("INSIDE", "assert Sizes(3).twice == 6")
    programs = [
        trace(text, [TensorSpec((128, 512), "float32")], api="nki", chip="trn2", options=options)
        for options in (TraceOptions(), GUARDED)
    ]
    assert check(text) is None
    assert encode(programs[0]) == encode(programs[1])


@pytest.mark.parametrize(
    ("before", "inside", "line"),
    [
        ("", "tile.scope", 8),
        ("read = [getattr][0]\n", "read(tile, 'scope')", 9),
        ("", "[one for one in ().__class__.__mro__]", 8),
        ("for nl.copy in [nl.tanh]:\n    pass\n", "tile = nl.copy(tile)", 3),
        ("import enum\nhidden = enum.bltns\n", "pass", 4),
        ("from operator import attrgetter\n", "pass", 3),
        ("import os\n", "pass", 3),
        ("", "match tile:\n        case nl.tile_size(p=1):\n            pass", 9),
        ("def f(a: (lambda: 1)() = 2):\n    return a\n", "pass", 3),
        ("class C:\n    def __del__(self):\n        pass\n", "pass", 4),
        ("class C(metaclass=type):\n    pass\n", "pass", 3),
        ("", "type(tile)(tile)", 8),
        ("def f():\n    class map:\n        pass\nclass C(map):\n    pass\n", "list(C(abs, [1]))", 6),
        ("class C(property):\n    pass\n", "pass", 3),
        ("class C:\n    def f(self):\n        return super().__reduce__\n", "C().f()", 5),
        ("class C:\n    def f(self):\n        return super().__thisclass__\n", "C().f()", 5),
        ("class C(ValueError):\n    def f(self):\n        return super().with_traceback\n", "C().f()", 5),
        ("class C:\n    def f(self):\n        return super().__call__\n", "C().f()", 5),
        ("from enum import Enum\nclass E(Enum):\n    A = 1\n    def f(self):\n        return super()._value_\n", "E.A.f()", 7),
        ("", "with open('x') as f:\n        pass", 0),
        ("", "'{0.scope}'.format(tile)", 8),
        ("", "__builtins__", 8),
        ("", "assert hash(object())", 0),
        ("", "assert id(tile)", 0),
        ("", "for name in {'a', 'b'}:\n        pass", 8),
        ("", "first, *others = {name for name in ('a', 'b')}", 8),
        ("", "names = list(frozenset(('a', 'b')) | {'c'})", 8),
        ("", "names = {'a': 1, 'b': 2}\n    first = next(iter(names.keys() - {'c'}))", 9),
        ("", "names = [*(dict.keys({'a': 1, 'b': 2}) ^ {'c'})]", 8),
        ("", "name = {nl.exp, nl.tanh}.pop()", 8),
        ("", "number = {1, 2}.pop()", 8),
        ("", "name = str({'a', 'b'})", 8),
        ("", "name = f'{[frozenset((nl.exp, nl.tanh))]}'", 8),
        ("from dataclasses import dataclass\n@dataclass\nclass S:\n    tags: frozenset = frozenset({'a', 'b'})\n", "name = repr(S())", 12),
        ("", "tile._declared", 8),
        ("class C:\n    def __init__(self):\n        self._session = 1\n", "nl._session", 11),
        ("import numpy as np\nclass C:\n    def __init__(self):\n        self._core = 1\n", "np._core", 12),
        ("class C:\n    @property\n    def n(self):\n        return 1\n    n = n.setter(type(C0 := 1).__call__)\n", "pass", 7),
        ("", "name = sorted({'a', 'b'}, key=len)", 8),
        ("", "names = tuple({float('nan'), float('nan')})", 8),
        ("from typing import Set\n", "names = Set[str](['a', 'b'])", 9),
        ("from collections.abc import KeysView\n", "pass", 3),
        ("", "name = repr(kernel)", 8),
        ("", "name = f'{object()!r:.40}'", 8),
        ("", "name = '%s' % kernel", 8),
        ("", "name = '%s'\n    name %= kernel", 9),
        ("", "name = '{}'.format([nl.exp])", 8),
        ("", "name = [*map(str, (object(),))]", 8),
        ("", "name = [*map('{}'.format, (object(),))]", 8),
        ("", "name = b'%a' % (one for one in ())", 8),
        ("", "name = str(nl)", 8),
        ("import numpy as np\n", "name = np.array([object()], dtype='U99')[0]", 9),
        ("import numpy as np\n", "number = np.empty(4)[0]", 9),
        ("import numpy as np\n", "number = np.ndarray((4,))[0]", 9),
        ("import numpy as np\n", "number = np.sqrt(np.ones(4), where=np.zeros(4, bool))[0]", 9),
        ("import functools\nimport numpy as np\n", "number = functools.partial(np.sqrt, where=False)(np.ones(4))[0]", 10),
        ("import numpy as np\n", "number = [*map(np.ndarray, [(4,)])]", 9),
        ("import numpy as np\n", "number = [*map(map, [np.ndarray], [[(4,)]])]", 9),
        ("import functools\nimport numpy as np\n", "number = functools.partial(map, np.ndarray)([(4,)])", 10),
        ("import functools\nimport numpy as np\n", "number = functools.lru_cache(np.ndarray)((4,))", 10),
        ("import numpy as np\n", "number = sorted([(4,)], key=np.ndarray)", 9),
        ("import numpy as np\nfrom collections import defaultdict\nfrom functools import partial\n", "number = defaultdict(partial(np.ndarray, (4,)))[0]", 11),
        ("import numpy as np\nclass C(np.ndarray):\n    pass\n", "number = C((4,))", 4),
        ("class C(str):\n    pass\n", "C.format('{0.scope}', tile)", 10),
        ("import numpy as np\nfrom enum import Enum\n", "number = Enum('E', {'A': ((4,),)}, type=np.ndarray)", 10),
        ("import numpy as np\n", "number = [*map(np.array, [[object()]])]", 9),
        ("import numpy as np\n", "name = np.mod('%r', object())", 9),
        ("import numpy as np\n", "names = np.unique(['a' * 40], return_index=True)[0]", 9),
        ("import numpy as np\n", "number = np.clip(np.ones(4), 0, 2, where=False)[0]", 9),
        ("import copy\n", "seen = {}\n    copy.deepcopy([1], seen)", 10),
        ("", "class File:\n        pass\n    print(object(), file=File())", 10),
        ("", "assert 'kernel' in __name__", 8),
        ("", "assert 'acceld' in str(type(tile))", 8),
        ("", "assert 'acceld' in f'{type(nl.ds(0, 8))}'", 8),
        ("def f(value, __debug=1):\n    return value\n", "pass", 3),
        ("from math import pi as __name__\n", "pass", 3),
        ("class Own:\n    label = 0\n", "match 'x':\n        case tile.label:\n            pass", 11),
        ("class __name__:\n    pass\n", "pass", 3),
        ("", "assert __file__", 8),
        ("match '__main__':\n    case __name__:\n        pass\nif __name__ == '__main__':\n    import os\n", "pass", 4),
    ],
)  # fmt: skip
def test_what_reaches_elsewhere_is_refused_at_its_line(before: str, inside: str, line: int) -> None:
    text = HEAD + before + BODY.replace("INSIDE", inside)
    with pytest.raises(KernelFailure) as refused:
        trace(text, [TensorSpec((128, 512), "float32")], options=GUARDED)
    if line:  # a name that is not there is Python's own error
        assert isinstance(refused.value, LegalityError)
        assert (refused.value.rule, refused.value.line) == (RULE, line)


@pytest.mark.parametrize(
    ("inside", "said", "hint"),
    [
        ("name = repr(kernel)", "shows an object's memory address, as repr() does, differs between", "names that you"),
        ("name = str(nl)", "the repr of a module may differ between machines", "names that you chose"),
        ("name = str(type(tile))", "the repr of a class of NKI tells a kernel that", "test types with isinstance"),
        ("name = '%.9s' % type(tile)", "the repr of a class of NKI tells a kernel that", "test types with isinstance"),
    ],
)
def test_a_refused_repr_is_named(inside: str, said: str, hint: str) -> None:
    with pytest.raises(LegalityError) as refused:
        trace(HEAD + BODY.replace("INSIDE", inside), [TensorSpec((128, 512), "float32")], options=GUARDED)
    assert said in str(refused.value) and hint in refused.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "repr(tile)", "f'{[tile]}'", "'%s' % tile", "'%.1s' % tile", "'%.2s' % [tile]", "b'%.1a' % tile",
        "f'{tile!r:.9}'", "'{}'.format(tile)",
    ],
)  # fmt: skip
def test_the_text_of_a_tile_is_refused_also_if_a_format_cuts_it(text: str) -> None:
    inside = BODY.replace("INSIDE", f"name = {text}")
    with pytest.raises(LegalityError, match="the text of a tile, a register or a loop's index tells a") as refused:
        trace(HEAD + inside, [TensorSpec((128, 512), "float32")], options=GUARDED)
    assert refused.value.hint == "use its shape and dtype"


def test_the_text_of_a_loops_index_is_refused() -> None:
    inside = "nl.fori_loop(0, 2, lambda i: nisa.memset(own, value=len(str(i))))"
    text = (
        HEAD.replace("neuronxcc.", "")
        + "import nki.isa as nisa\n"
        + (
            "@nki.jit\ndef kernel(x):\n    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
            "    own = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)\n"
            f"    {inside}\n    nisa.dma_copy(dst=out, src=own)\n    return out\n"
        )
    )
    with pytest.raises(LegalityError, match="a loop's index tells a kernel that"):
        trace(text, [TensorSpec((128, 512), "float32")], api="nki", chip="trn2", options=GUARDED)


class _Spy:
    """A function that no kernel may call; it records each call."""

    def __init__(self) -> None:
        self.called = False

    def __call__(self, *values: object, **options: object) -> int:
        self.called = True
        return 0

    def __get__(self, owner: object, kind: object = None) -> _Spy:
        return self


def _permitted_functions() -> Iterator[tuple[str, Any]]:
    session = Session("kernel.py", "nki", "trn2", (), 1, TraceOptions(), "kernel", 0.0)
    yield from Guard(PERMITTED, session, "own").names()["__builtins__"].items()
    for module in MODULE_NAMES.keys() | {"math", "itertools", "numpy"}:
        for name, value in vars(importlib.import_module(module)).items():
            if not name.startswith("_") and PERMITTED.of_module(module, name):
                yield f"{module}.{name}", value
    yield "list.sort", [2, 1].sort


FUNCTIONS = dict(sorted((name, value) for name, value in _permitted_functions() if callable(value)))
NAMES = (
    "key func function default default_factory dict_factory tuple_factory user_function maxsize fget fset fdel initial "
    "file type memo out where dtype like object iterable"
).split()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_permitted_function_calls_what_a_kernel_may_not_call(name: str) -> None:
    """Each function gets a forbidden one in each position and by each name; what it returns is used too."""
    session = Session("kernel.py", "nki", "trn2", (), 1, TraceOptions(), "kernel", 0.0)
    call = Guard(PERMITTED, session, "own").names()[CALL]

    @dataclasses.dataclass
    class Record:
        number: int = 1

    spy = _Spy()
    fillers: tuple[tuple[object, ...], ...] = ((), ([(1,), (2,)],), (Record(),), (1,), (int,), (int, [1, 2]))
    tries = [(*filler[:at], spy, *filler[at:]) for filler in fillers for at in range(len(filler) + 1)]
    keyed = [(filler, {one: spy}) for filler in fillers for one in NAMES]
    for values, options in [(values, {}) for values in tries] + keyed:
        with suppress(Exception):
            made = call(FUNCTIONS[name])(*values, **options)
            _use(made)
        assert not spy.called, (values, options)


def _use(made: object) -> None:
    if isinstance(made, dataclasses.Field):
        _use(made.default_factory)
    with suppress(Exception):
        [*itertools.islice(made, 3)]  # type: ignore[call-overload]
    with suppress(Exception):
        made["absent"]  # type: ignore[index]
    with suppress(Exception):
        assert type("Owner", (), {"read": made})().read
