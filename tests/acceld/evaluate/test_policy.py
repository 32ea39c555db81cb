"""The policy refuses some constructs in a candidate and allows others."""

from __future__ import annotations

import pytest

from acceld.evaluate.policy import TILE_NAMES, canonical, check
from acceld.nki.frontend.core.methods import Tensor as LegacyTile
from acceld.nki.frontend.current.tensor import NkiTensor
from acceld.nki.frontend.permitted import HIDDEN_NAMES
from acceld.resources import workloads_folder

KERNEL = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=np.float32, buffer=nl.shared_hbm)
    {}
    return out
"""


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("import os", "import"),
        ("from subprocess import run", "import"),
        ("from . import reference", "import"),
        ("from numpy.linalg import norm", "import"),
        ("from numpy import matmul", "library"),
        ("import acceld.nki.ir.codec", "import"),
        ("exec('1')", "builtin"),
        ("__import__('os')", "builtin"),
        ("open('x')", "builtin"),
        ("type('A', (), {})", "builtin"),
        ("getattr(nl, 'bfloat' + '16')", "getattr"),
        ("getattr(nl, '__dict__')", "dunder"),
        ("().__class__", "dunder"),
        ("x._data", "dunder"),
        ("'{0.__class__}'.format(x)", "dunder"),
        ("__builtins__", "dunder"),
        ("f = lambda __acceld_plain__: 0", "dunder"),
        ("from math import pi as __name__", "dunder"),
        ("class __builtins__: pass", "dunder"),
        ("(lambda: 0).f_globals", "frames"),
        ("np.matmul(x, x)", "library"),
        ("np.linalg.norm(x)", "library"),
        ("np.random.seed(0)", "library"),
        ("out = x @ x", "library"),
        ("nl.load = None", "monkeypatch"),
        ("np.float32, y = 1, 2", "monkeypatch"),
        ("nl.tile_size.pmax += 1", "monkeypatch"),
        ("for nl.load in (None,): pass", "monkeypatch"),
        ("with x as nl.load: pass", "monkeypatch"),
        ("spare = nl", "alias"),
        ("print(nl)", "alias"),
        ("hasattr(nl, 'load')", "alias"),
        ("getattr(nl, 'load', None)", "alias"),
        ("reader = getattr", "alias"),
        ("list(map(type, [x]))", "alias"),
        ("getattr(x, 'produced')", "attribute"),
        ("x.produced.slot", "attribute"),
        ("x.anything = 1", "attribute"),
        ("np.lib", "library"),
        ("np.sys", "module"),
        ("from operator import attrgetter", "module"),
        ("from enum import bltns", "module"),
        ("from typing import get_type_hints", "module"),
        ("'{0.shape[0]}'.format(x)", "attribute"),
        ("('{0.sha' + 'pe}').format(x)", "attribute"),
        ("async def f(): pass", "async"),
    ],
)
def test_a_line_is_refused_by_its_rule(line: str, rule: str) -> None:
    found = check(KERNEL.format(line))
    assert found is not None
    assert found.rule == rule
    assert found.line == 9
    assert found.message


def test_a_class_pattern_is_refused_and_a_class_may_use_what_it_defines() -> None:
    found = check("def f(x):\n    match x:\n        case object(shape=y):\n            return y\n")
    assert found is not None and found.rule == "match"
    text = "import dataclasses\n\n\n@dataclasses.dataclass\nclass Plan:\n    {}: int\n\n\nPlan(1).{}\n"
    assert check(text.format("tile_rows", "tile_rows")) is None
    found = check(text.format("produced", "produced"))
    assert found is not None and "rename" in found.hint
    assert found is not None and found.rule == "attribute", "a tile has one of that name"


def test_private_attributes_of_own_classes_and_named_tuples_are_allowed() -> None:
    text = "class Plan:\n    def __init__(self):\n        self._rows = 1\n\n\nplan = Plan()\nprint({})\n"
    for inside in ("plan._rows", "getattr(plan, '_rows')", "plan._replace(rows=2)"):
        assert check(text.format(inside)) is None
    for inside in ("plan._columns", "plan.__rows", "np._rows"):
        assert check("import numpy as np\n" + text.format(inside)) is not None


def test_every_attribute_of_a_tile_that_no_api_documents_is_hidden() -> None:
    shown = {name for kind in (LegacyTile, NkiTensor) for name in dir(kind) if not name.startswith("_")}
    assert shown <= TILE_NAMES | HIDDEN_NAMES, shown - TILE_NAMES - HIDDEN_NAMES


def test_a_docstring_may_name_what_code_and_its_texts_may_not() -> None:
    text = '"""Without __import__."""\n\n\ndef kernel(x):\n    """Unlike __getattribute__."""\n    "__dict__ is not used"\n'
    assert check(text) is None
    for used in ("    return '__class__'\n", "    name = '__dict__'\n", "    print('__code__')\n"):
        found = check(text + used)
        assert found is not None and found.rule == "dunder"


def test_try_around_a_kernel_is_refused() -> None:
    found = check(KERNEL.format("try:\n        pass\n    except ValueError:\n        pass"))
    assert found is not None
    assert found.rule == "try"


def test_a_class_may_not_inherit_what_it_was_not_given() -> None:
    found = check("class Fast(Model):\n    pass\n")
    assert found is not None
    assert found.rule == "class"
    assert check("from typing import NamedTuple\n\n\nclass Tile(NamedTuple):\n    rows: int\n") is None
    assert check("from enum import Enum\n\n\nclass Mode(str, Enum):\n    ON = 'on'\n") is None
    assert check("class Mode(str):\n    pass\n") is not None
    assert (
        check("from typing import Generic, TypeVar\n\nT = TypeVar('T')\n\n\nclass Held(Generic[T]):\n    rows: int\n")
        is None
    )
    assert check("class Held(Model[int]):\n    pass\n") is not None
    assert check("class Held(list[int]):\n    pass\n") is not None
    assert check("class TooWide(ValueError):\n    pass\n") is None
    assert check("class TooWide(BaseException):\n    pass\n") is not None
    assert check("import nki.language as nl\n\n\nclass Sizes(nl.NKIObject):\n    rows: int = 1\n") is None
    own = "class A:\n    def __init__(self):\n        self.n = 1\n\n\nclass B(A):\n    def __init__(self):\n        super().__init__()\n"
    assert check(f"__all__ = ['B']\n{own}") is None
    assert check(own.replace("super()", "nl")) is not None


def test_only_a_block_that_no_evaluation_executes_is_skipped() -> None:
    block = "if __name__ == '__main__':\n    import torch\n"
    assert check(block) is None
    assert check(f'"""Unlike __name__, this is documented."""\n{block}') is None
    assert check(f"name = '__name__'\n{block}") is not None
    for text in (
        block + "else:\n    pass\n",
        block.replace("==", "!="),
        block.replace("'__main__'", "'main'"),
        f"def kernel(x):\n    {block.replace('    import', '        import')}",
        f"match '__main__':\n    case __name__:\n        pass\n{block}",
        f"match '__main__':\n    case __\uff4eame__:\n        pass\n{block}",
        f"import math as __name__\n{block}",
    ):
        assert check(text) is not None, text


@pytest.mark.parametrize("text", ["def kernel(:", "\0", "x = " + "(" * 5000 + ")" * 5000])
def test_what_is_no_python_is_a_syntax_failure(text: str) -> None:
    found = check(text)
    assert found is not None
    assert found.rule == "syntax"


def test_the_first_violation_is_reported() -> None:
    found = check("import math\nimport os\nimport sys\n")
    assert found is not None
    assert (found.line, "os" in found.message) == (2, True)


def test_ordinary_kernels_pass() -> None:
    assert check(KERNEL.format("tile = nl.load(x[0:128, 0:512])")) is None
    for line in (
        "y = getattr(nl, 'bfloat16')",
        "y = '{:.3f} of {}'.format(1.0, x.shape)",
        "y = x.reshape((1, 2)).shape[0].bit_length()",
        "y = nl.tile_size.pmax",
        "y = np.dtype(np.float32).type(0.5)",
        "y = [z.strip() for z in 'a b'.split()]",
    ):
        assert check(KERNEL.format(line)) is None, line
    folder = workloads_folder()
    baselines = sorted([*folder.glob("*/*/kernel_legacy*.py"), *folder.glob("*/*/kernel.py")])
    assert len(baselines) > 10
    for path in baselines:
        assert check(path.read_text(encoding="utf-8")) is None, path


def test_canonical_text_forgets_comments_and_layout() -> None:
    assert canonical("x = 1  # one\n") == canonical("x   =   1\n")
    assert canonical("x = 1\n") != canonical("x = 2\n")
    with pytest.raises(ValueError, match="not valid Python"):
        canonical("x =")
