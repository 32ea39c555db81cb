"""Tracing a kernel's file: entry, imports, limits, errors."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import inspect
import re
import signal
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest

from acceld.chips import API_CHIPS
from acceld.errors import UsageError
from acceld.nki.entry import find_entry
from acceld.nki.errors import KernelCrash, KernelFailure, LegalityError, LimitExceeded, UnsupportedCall
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend import session, tracing
from acceld.nki.frontend.core.state import Trace
from acceld.nki.frontend.protocol import IS, PLAIN, WHILE
from acceld.nki.frontend.tracing import TensorSpec, TraceOptions, trace
from acceld.nki.ir.codec import decode, encode, program_hash
from acceld.nki.ir.program import Instruction, Program
from acceld.nki.verify.verifier import verify
from acceld.workloads import find_workloads

SPEC = TensorSpec((64, 16), "float32")
BODY = """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    {line}
    nl.store(out, nl.load(x))
    return out
"""
IMPORTS = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n"
KERNEL = IMPORTS + "@nki.jit\ndef kernel(x):" + BODY


def kernel(line: str = "pass", head: str = "") -> str:
    return head + KERNEL.format(line=line)


FACTORY = "def make(n):\n    @nki.jit\n    def inner(x): pass\n    return inner\n"


@pytest.mark.parametrize(
    ("source", "entry", "found"),
    [
        ("def kernel(): pass\ndef other(): pass", None, "kernel"),
        ("def optimized_kernel(): pass\ndef other(): pass", None, "optimized_kernel"),
        ("@nki.jit\ndef only(): pass\ndef helper(): pass", None, "only"),
        ("@nki.jit(mode='trace')\ndef only(): pass\ndef helper(): pass", None, "only"),
        ("@jit\ndef only(): pass\ndef helper(): pass", None, "only"),
        ("def alone(): pass", None, "alone"),
        ("@nki.jit\ndef a(): pass\n@nki.jit\ndef b(): pass", "b", "b"),
        ("def impl(): pass\nkernel = nki.jit(impl)", None, "kernel"),
        ("if nki is not None:\n    @nki.jit\n    def double(x): pass\ndef helper(): pass", None, "double"),
        ("try:\n    import nki\n    @nki.jit\n    def double(x): pass\nexcept ImportError:\n    pass", None, "double"),
        ("class A:\n    @staticmethod\n    @nki.jit\n    def run(x): pass\ndef helper(): pass", None, "A.run"),
        (
            "class A:\n    @nki.jit\n    def run(x): pass\nclass B:\n    @nki.jit\n    def run(x): pass",
            "B.run",
            "B.run",
        ),
        (FACTORY + "double = make(2)", None, "double"),
        (FACTORY + "def helper(): pass\ndouble: object = make(2)\nscale = 2", None, "double"),
        ("def impl(x): pass\ndef main():\n    return nki.jit(impl)(1)", None, "impl"),
        ("def impl(x): pass\ndef other(): pass\nrun = nki.jit(impl)", None, "run"),
    ],
)
def test_the_entry_is_named_kernel_or_the_only_one(source: str, entry: str | None, found: str) -> None:
    assert find_entry(source, entry) == found


@pytest.mark.parametrize(
    ("source", "entry", "part"),
    [
        ("@nki.jit\ndef first(): pass\n@nki.jit\ndef second(): pass", None, "first, second"),
        ("@nki.jit\ndef first(): pass", "frist", "Did you mean 'first'?"),
        ("x = 1", None, "under @nki.jit"),
        ("def a(): pass\ndef b(): pass", None, "a, b"),
        (
            "def get(): pass\ndef make(n):\n    @nki.jit\n    def inner(): pass\n    return inner",
            None,
            "kernel = make(...)",
        ),
        (
            "class A:\n    @nki.jit\n    def run(): pass\n    @nki.jit\n    def walk(): pass",
            None,
            "name one as entry: A.run, A.walk",
        ),
        (
            FACTORY + "double, triple = 1, 2\ndouble = make(2)\ntriple = make(3)",
            None,
            "name one as entry: double, triple",
        ),
        (FACTORY, None, "kernel = make(...)"),
        ("class A:\n    @nki.jit\n    def run(): pass", "A.walk", "name one of its kernels: A.run"),
    ],
)
def test_a_missing_or_ambiguous_entry_lists_the_candidates(source: str, entry: str | None, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_entry(source, entry)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        "if nki is not None:\n    @nki.jit\n    def twice(x):{body}",
        "try:\n    @nki.jit\n    def twice(x):{body}\nexcept NameError:\n    pass",
        "class Twice:\n    @staticmethod\n    @nki.jit\n    def twice(x):{body}",
        "def make():\n    @nki.jit\n    def twice(x):{body}\n    return twice\n\ndouble = make()",
    ],
)
def test_the_only_kernel_is_traced_wherever_it_stands(given: str) -> None:
    body = BODY.format(line="pass").replace("\n", "\n    ")
    program = trace(IMPORTS + given.format(body=body), [SPEC])
    assert program.inputs


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("oout", "Did you mean 'out'?"),
        ("rang(4)", "Did you mean 'range'?"),
        ("x.shap", "Did you mean 'shape'?"),
        ("'abc'.uper()", "Did you mean 'upper'?"),
        ("q7z", ""),
        ("globals()[5] = 5; raise NameError('n')", ""),
        ("later += 1", ""),
        ("raise AttributeError('a')", ""),
    ],
)
def test_a_misspelt_name_or_attribute_is_answered_with_the_nearest(line: str, hint: str) -> None:
    with pytest.raises(KernelCrash) as caught:
        trace(kernel(line), [SPEC])
    assert caught.value.hint == hint


@pytest.mark.parametrize("decorator", ["nki.jit_", "nki.Jit(debug=True)", "nki.benchmrk"])
def test_a_misspelt_decorator_is_refused_with_the_nearest(decorator: str) -> None:
    with pytest.raises(LegalityError, match="does not exist in NKI") as caught:
        trace(kernel("pass").replace("@nki.jit", f"@{decorator}"), [SPEC])
    assert caught.value.rule == "unknown_call" and "Did you mean neuronxcc.nki." in caught.value.hint


def test_a_misspelt_attribute_is_answered_with_one_that_a_method_sets() -> None:
    head = "class Sizes:\n    def __init__(self):\n        self.columns = 1\n"
    with pytest.raises(KernelCrash) as caught:
        trace(kernel("Sizes().colums", head), [SPEC])
    assert caught.value.hint == "Did you mean 'columns'?"


def test_a_factory_named_as_entry_is_told_from_a_kernel() -> None:
    source = IMPORTS + "def make(x):\n    @nki.jit\n    def twice(x): pass\n    return twice\n"
    with pytest.raises(LegalityError, match="returns the kernel 'twice'") as caught:
        trace(source, [SPEC], entry="make")
    assert "pass that name as entry" in caught.value.hint


def test_a_file_whose_imports_stand_below_try_gets_no_other_names() -> None:
    imports = "\n    ".join(IMPORTS.strip().splitlines())
    source = f"try:\n    {imports}\nexcept ImportError:\n    nki = None\n@nki.jit\ndef kernel(x):" + BODY.format(
        line="pass"
    )
    assert not trace(source, [SPEC]).notices


def test_an_entry_that_is_no_function_once_loaded_is_refused() -> None:
    with pytest.raises(UsageError, match="not a function"):
        trace("kernel = 3", [])


@pytest.mark.parametrize(
    ("api", "chip", "lnc", "parts"),
    [
        ("nki_legacy", "trn3", 1, ["nki_legacy", "trn3", "trn1 and trn2"]),
        ("nki_new", "trn1", 1, ["nki_new", "nki_legacy"]),
        ("nki_legacy", "trn9", 1, ["trn9"]),
        ("nki_legacy", "trn1", 2, ["lnc 2", "trn1"]),
        ("nki_legacy", "trn2", 3, ["lnc 3"]),
    ],
)
def test_an_api_and_a_chip_that_do_not_fit_are_both_named(api: str, chip: str, lnc: int, parts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        trace(kernel(), [SPEC], api=api, chip=chip, lnc=lnc)
    assert all(part in str(caught.value) for part in parts)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "missing"),
        ([SPEC, SPEC], "too many"),
        ({"y": SPEC}, "'x'|'y'"),
        ([TensorSpec((2, 2), "float23")], "float23"),
    ],
)
def test_arguments_that_do_not_fit_the_function_are_refused(arguments: Any, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        trace(kernel(), arguments)


def test_arguments_may_be_named_and_have_defaults() -> None:
    source = IMPORTS + "@nki.jit\ndef kernel(a, scale=2.0, *, x):" + BODY.format(line="assert (a, scale) == (7, 2.0)")
    program = trace(source, {"x": SPEC, "a": 7})
    assert [program.buffers[i].name for i in program.inputs] == ["x"]


def test_a_file_without_imports_gets_the_usual_ones_and_a_notice() -> None:
    source = "@nki.jit\ndef optimized_kernel(x):" + BODY.format(
        line="assert np and nisa and nt and trace and par_dim(2) == 2"
    )
    program = trace(source, [SPEC])
    assert "imports nothing" in program.notices[0].text
    assert not trace(kernel(), [SPEC]).notices


def test_the_block_for_running_as_a_script_is_not_run() -> None:
    source = kernel() + "\nif __name__ == '__main__':\n    raise RuntimeError('ran')\n"
    assert trace(source, [SPEC])


def test_a_driver_at_the_end_of_the_file_is_not_run() -> None:
    source = kernel(head="import numpy as np\n") + "\nresult = kernel(np.zeros((64, 16)))\nassert result.sum() == 0\n"
    program = trace(source, [SPEC])
    assert program.notices[0].line == 11
    assert "launches a kernel" in program.notices[0].text


@pytest.mark.parametrize(
    "head",
    [
        "import torch\nfrom torch import nn\nimport torch_xla.core.xla_model as xm\n",
        "import no_such_module_of_ours as missing\nfrom no_such_module_of_ours.deep import thing\n",
        "import jax.numpy as jnp\n@jax.jit\ndef helper(v):\n    return jnp.sin(v)\n".replace(
            "import jax.numpy", "import jax\nimport jax.numpy"
        ),
        "import torch\nclass Model(torch.nn.Module):\n    size = torch.tensor([1])\n",
        "from neuronxcc.nki._private.private_api import do_while\nimport neuronxcc.nki.nccl as nccl\n",
        "from neuronxcc.nki.isa import no_such_call\n",
        "import torch\nwith torch.no_grad():\n    x = 2 * torch.ones(3) + 1 > torch.zeros(3)\nn = len(x)\n",
        "import torch\nnew = torch.__version__ >= '2.0'\n",
    ],
)
def test_imports_that_are_missing_do_no_harm_until_they_are_used(head: str) -> None:
    assert trace(kernel(head=head), [SPEC])


def test_a_script_after_the_kernel_may_fail_without_its_packages() -> None:
    script = "\nimport torch\nx = torch.ones(2)\nfor i in range(int(x.sum())):\n    kernel(x)\n"
    program = trace(kernel() + script, [SPEC])
    assert "fails here without torch" in program.notices[0].text
    with pytest.raises(KernelCrash, match="ZeroDivisionError"):
        trace(kernel() + "\n1 / 0\n", [SPEC])


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("import torch\nn = int(torch.ones(2).sum())\n", "without torch"),
        ("import torch\nfrom math import n\n", "without torch"),
        ("n = open('no such file').read()\n", "no such file"),
    ],
)
def test_a_statement_that_fails_only_here_is_left_out_before_the_kernel(head: str, why: str) -> None:
    (notice,) = trace(
        kernel(head=f"from __future__ import annotations\n{head}m = 2\n", line="assert m == 2"), [SPEC]
    ).notices
    assert why in notice.text and "the statement is left out" in notice.text and notice.line == head.count("\n") + 1
    with pytest.raises(KernelCrash, match="'n' is not defined") as crash:
        trace(kernel("assert n", head), [SPEC])
    assert re.match(f"line \\d, which gives this name its value, fails here.*{why}", crash.value.hint)
    with pytest.raises(KernelCrash, match="ZeroDivisionError"):
        trace(kernel(head="1 / 0\n"), [SPEC])


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("n = 1\nn = open('no such file').read()\n", "n"),
        ("n = 1\nn += len(open('no such file').read())\n", "n"),
        ("n = 1\nwith open('no such file') as file:\n    n = 2\n", "n"),
        ("n = {'a': 1}\nn['a'] = open('no such file')\n", "n"),
        ("n = {'a': 1}\nn.update(open('no such file'))\n", "n"),
    ],
)
def test_a_value_from_before_a_statement_that_fails_only_here_is_not_used(head: str, name: str) -> None:
    with pytest.raises(KernelCrash, match=f"'{name}' is not defined") as crash:
        trace(kernel(f"assert {name}", head), [SPEC])
    assert "line 2, which gives this name its value, fails here" in crash.value.hint


def test_a_function_of_the_file_that_fails_here_is_not_left_out() -> None:
    with pytest.raises(KernelCrash, match="no such file"):
        trace(kernel(head="def read():\n    return open('no such file')\n\n\nn = read()\n"), [SPEC])
    import_of_os = "import os\nos.remove('no such file')\nm = os.sep\n"
    assert trace(kernel("assert m and os.sep", import_of_os), [SPEC]).notices, "the module is kept"


def test_the_reason_is_the_failed_statement_where_the_kernel_itself_is_left_out() -> None:
    source = kernel().replace("def kernel(x):", "@open('no such file')\ndef kernel(x):")
    with pytest.raises(KernelCrash, match="no such file"):
        trace(source, [SPEC])


def test_index_expressions_may_be_made_while_the_file_loads() -> None:
    head = IMPORTS + "ROWS, COLUMNS = nl.arange(64)[:, None], nl.arange(16)[None, :]\n"
    assert trace(kernel("nl.load(x[ROWS, COLUMNS])", head), [SPEC])


def test_a_kernel_of_the_other_api_is_named() -> None:
    with pytest.raises(UnsupportedCall, match="belongs to API nki; the kernel is traced as one of nki_legacy"):
        trace(kernel().replace("neuronxcc.nki", "nki").replace("import nki as nki", "import nki"), [SPEC])


def test_relative_imports_work_below_the_source_root(tmp_path: Path) -> None:
    package = tmp_path / "kernels_of_test" / "norm"
    package.mkdir(parents=True)
    (package.parent / "shared.py").write_text("SIZE = 64\n")
    source = kernel("assert SIZE == x.shape[0]", "from ..shared import SIZE\n")
    options = TraceOptions(source_root=tmp_path)
    assert trace(source, [SPEC], filename="kernels_of_test/norm/kernel.py", options=options)
    assert trace(source, [SPEC], filename=str(package / "kernel.py"), options=options)
    assert not [name for name in sys.modules if name.startswith("kernels_of_test")]


@pytest.mark.parametrize(
    ("head", "line", "part"),
    [
        ("import torch\n", "torch.zeros(3)", "torch.zeros"),
        (
            "import no_such_module_of_ours as missing\n",
            "missing.call()",
            "no_such_module_of_ours.call is not installed",
        ),
        ("from neuronxcc.nki._private.private_api import do_while\n", "do_while()", "do_while is not simulated"),
        ("", "import torch; torch.zeros(3)", "torch.zeros"),
    ],
)
def test_what_is_missing_is_named_where_it_is_used(head: str, line: str, part: str) -> None:
    with pytest.raises(UnsupportedCall) as caught:
        trace(kernel(line, head), [SPEC])
    assert part in str(caught.value)
    assert caught.value.line == head.count("\n") + 6


def test_without_stubs_a_missing_import_is_a_crash() -> None:
    with pytest.raises(KernelCrash, match="ModuleNotFoundError") as caught:
        trace(kernel(head="import no_such_module_of_ours\n"), [SPEC], options=TraceOptions(module_stubs=False))
    assert caught.value.line == 1


def test_an_installed_package_of_the_same_name_is_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoy = tmp_path / "neuronxcc"
    decoy.mkdir()
    (decoy / "__init__.py").write_text("raise RuntimeError('the decoy was loaded')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert trace(kernel(), [SPEC], options=TraceOptions(source_root=tmp_path))
    with pytest.raises(RuntimeError, match="decoy"):
        __import__("neuronxcc")


def test_modules_paths_and_finders_are_as_before_afterwards(tmp_path: Path) -> None:
    (tmp_path / "kernel_helper_of_test.py").write_text(
        IMPORTS + "def double(tile):\n    return nl.multiply(tile, 2.0)\n"
    )
    modules, path, finders = set(sys.modules), list(sys.path), list(sys.meta_path)
    source = kernel(head="import torch\nfrom kernel_helper_of_test import double\n").replace(
        "nl.load(x))", "double(nl.load(x)))"
    )
    program = trace(source, [SPEC], options=TraceOptions(source_root=tmp_path))
    assert not {"torch", "neuronxcc", "neuronxcc.nki", "kernel_helper_of_test"} & set(sys.modules)
    assert modules <= set(sys.modules)
    assert (sys.path, sys.meta_path) == (path, finders)
    x = np.ones((64, 16), np.float32)
    np.testing.assert_array_equal(execute(program, [x])[0], x * 2)
    with pytest.raises(KernelFailure):
        trace(kernel("1 / 0", head="import torch\n"), [SPEC])
    assert not {"torch", "neuronxcc", "neuronxcc.nki"} & set(sys.modules)
    assert (sys.path, sys.meta_path) == (path, finders)


def test_a_line_in_a_helper_file_is_that_of_the_call(tmp_path: Path) -> None:
    (tmp_path / "other_helper_of_test.py").write_text("\n" * 40 + IMPORTS + "def bad(x):\n    return nl.exp(x)\n")
    with pytest.raises(LegalityError) as caught:
        trace(
            kernel("bad(x)", "from other_helper_of_test import bad\n"),
            [SPEC],
            options=TraceOptions(source_root=tmp_path),
        )
    assert caught.value.line == 7


@pytest.mark.parametrize(
    ("source", "line", "part"),
    [
        ("def kernel(:\n", 1, "SyntaxError"),
        ("\x00", 0, "not Python|null"),
        (kernel("x.nothing"), 6, "AttributeError"),
        (kernel("raise SystemExit(3)"), 6, "SystemExit"),
        (kernel("import os; os._nothing"), 6, "AttributeError"),
        ("1 / 0\n" + kernel(), 1, "ZeroDivisionError"),
        (IMPORTS + "t = nl.ndarray((1, 2), nl.float32)\n" + kernel(), 3, "calls an NKI function while it loads"),
    ],
)
def test_what_a_file_raises_is_a_crash_with_its_line(source: str, line: int, part: str) -> None:
    with pytest.raises(KernelCrash, match=part) as caught:
        trace(source, [SPEC])
    assert caught.value.line == line


# The alarm may go off inside another tool's garbage-collection callback, which swallows it; the next one ends the trace.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("line", ["while True: pass", "nl.load(x) if False else None\n    while True: nl.load(x)"])
def test_an_endless_kernel_ends_at_its_deadline(line: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        trace(kernel(line), [SPEC], options=TraceOptions(deadline_s=0.3))
    assert caught.value.rule in ("trace_deadline", "instruction_limit")
    assert caught.value.line in (6, 7)


def test_a_kernel_that_catches_everything_ends_at_its_deadline_too() -> None:
    line = "while True:\n        try:\n            while True: pass\n        except Exception: pass"
    with pytest.raises(LimitExceeded):
        trace(kernel(line), [SPEC], options=TraceOptions(deadline_s=0.3))


def test_a_timer_of_the_caller_goes_on_after_a_trace() -> None:
    rings: list[int] = []
    previous = signal.signal(signal.SIGALRM, lambda number, frame: rings.append(number))
    before = signal.setitimer(signal.ITIMER_REAL, 1000.0)
    try:
        trace(kernel(), [SPEC])
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
        assert signal.getsignal(signal.SIGALRM) is not previous
    finally:
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, *before)
    assert not rings


def test_the_deadline_holds_in_another_thread_once_the_simulator_is_called() -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            trace(kernel("while True: nl.load(x)"), [SPEC], options=TraceOptions(deadline_s=0.2))
        except BaseException as error:  # noqa: BLE001  # handed to the test
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(300)
    assert isinstance(caught[0], LimitExceeded)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("for i in range(1000): nl.load(x)", "instruction_limit"),
        ("nl.shared_constant(np.zeros(2**25, dtype=np.float32))", "constant_limit"),
        ("np.zeros(2**50)", "memory"),
        ("f = lambda n: f(n + 1)\n    f(0)", "recursion"),
    ],
)
def test_limits_are_named(line: str, rule: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        trace(kernel(line, "import numpy as np\n"), [SPEC], options=TraceOptions(max_instructions=500))
    assert caught.value.rule == rule
    assert caught.value.line in (7, 8)


def test_a_huge_file_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="characters"):
        trace("#" * (3 * 2**20), [])


def test_the_same_kernel_in_other_words_has_the_same_hash() -> None:
    one = trace(kernel(), [SPEC])
    other = trace(kernel("# a comment\n    renamed = 1").replace("out", "result"), [SPEC])
    assert program_hash(one) == program_hash(other)
    assert one != other
    assert program_hash(trace(kernel(), [TensorSpec((64, 8), "float32")])) != program_hash(one)
    assert program_hash(decode(encode(one))) == program_hash(one)


def test_tracing_twice_gives_the_same_program() -> None:
    assert trace(kernel(), [SPEC]) == trace(kernel(), [SPEC])


LIBRARY_KERNEL = """import nki
import nki.isa as nisa
import nki.language as nl
from parts.outer import through

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    through(out, x)
    return out
"""
OUTER = "from parts.inner import work\n\ndef through(out, x):\n    work(out, x)\n"
INNER = """import nki.isa as nisa
import nki.language as nl

def work(out, x):
    t = nl.ndarray((64, 16), dtype=nl.float32)
    {line}
    nisa.dma_copy(out, t)
"""
PLACE = "(parts/inner.py:6 in work, called at parts/outer.py:4 in through)"


@pytest.fixture
def library(tmp_path: Path) -> Callable[[str], Program]:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "outer.py").write_text(OUTER)

    def traced(line: str) -> Program:
        (folder / "inner.py").write_text(INNER.format(line=line))
        options = TraceOptions(source_root=tmp_path)
        return trace(LIBRARY_KERNEL, [SPEC], filename=str(tmp_path / "k.py"), api="nki", chip="trn2", options=options)

    return traced


@pytest.mark.parametrize(
    "line",
    [
        "nisa.dma_copy(t, x[0:32])",
        "nisa.tensor_copy(t, x)",
        "raise ValueError('no')",
        "nisa.unknown_call(t)",
        "t[0, 'a']",
    ],
)
def test_a_failure_in_a_file_of_helpers_says_which_and_who_called_it(
    library: Callable[[str], Program], line: str
) -> None:
    with pytest.raises(KernelFailure) as caught:
        library(line)
    assert caught.value.message.endswith(PLACE)
    assert caught.value.line == 9


def test_a_finding_and_a_crash_in_a_file_of_helpers_say_where_it_was_made(library: Callable[[str], Program]) -> None:
    unread = library("nisa.tensor_scalar(t, t, nl.add, 1.0)")
    (finding,) = verify(decode(encode(unread)))
    assert (finding.rule, finding.line) == ("undefined_read", 9)
    assert finding.message.endswith(PLACE)
    outside = "i = nl.ndarray((64, 1), dtype=nl.int32); nisa.memset(i, 99); nisa.dma_copy(t, x.vector_select(0, i))"
    program = library(outside)
    assert decode(encode(program)) == program
    with pytest.raises(KernelFailure) as caught:
        execute(program, [np.zeros((64, 16), np.float32)])
    assert caught.value.message.endswith(PLACE)
    moved = replace(program, body=tuple(replace(one, place="") for one in program.body if isinstance(one, Instruction)))
    assert program_hash(moved) == program_hash(program)


@pytest.mark.parametrize(
    "line",
    [
        "nl.ndarray((64, 16), dtype=nl.float32); nisa.memset(t, 1.0)",  # an unused tensor, whose number is given away
        "t[...] = nl.add(t, 1.0)",  # a result that is written to another tensor than its own
    ],
)
def test_an_instruction_keeps_its_place_when_its_tensors_change(library: Callable[[str], Program], line: str) -> None:
    made = [one for one, _ in library(line).walk() if one.line == 9]
    assert made
    assert {one.place for one in made} == {
        PLACE[1:-1].replace(":6", ":7" if one.op == "dma_copy" else ":6") for one in made
    }


def test_what_the_kernels_own_file_does_needs_no_place() -> None:
    assert all(not one.place for one, _ in trace(kernel(), [SPEC]).walk())


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("a = nl.ndarray((64, 16), dtype=nl.float32, address=(0, 1 << 20))", "sbuf_capacity"),
        ("a = nl.ndarray((64, 16), dtype=nl.float32, buffer=nl.psum, address=(0, 2047))", "psum_bank"),
    ],
)
def test_a_finding_about_a_tensor_that_a_helper_declares_says_where(
    library: Callable[[str], Program], line: str, rule: str
) -> None:
    program = library(f"{line}; nisa.memset(t, 0.0); nisa.memset(a, 0.0)")
    assert decode(encode(program)) == program
    findings = [one for one in verify(program) if one.rule == rule]
    assert findings
    assert all((one.line, one.message.endswith(PLACE)) == (9, True) for one in findings)


def test_an_output_that_a_helper_declares_and_nobody_writes_says_where(library: Callable[[str], Program]) -> None:
    program = library("nisa.memset(t, 0.0)")
    (number,) = program.outputs
    unwritten = replace(program, body=())
    assert [one.rule for one in verify(unwritten)] == ["undefined_output"]
    moved = replace(program.buffers[number], place="parts/inner.py:6 in work")
    buffers = tuple(moved if one.id == number else one for one in program.buffers)
    (finding,) = verify(replace(unwritten, buffers=buffers))
    assert finding.message.endswith("(parts/inner.py:6 in work)")
    assert program_hash(replace(program, buffers=buffers)) == program_hash(program)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("assert x.shape[0] == 128", "AssertionError: x.shape[0] == 128"),
        ("assert x.shape[0] == 128, 'too few rows'", "AssertionError: too few rows"),
        ("assert (\n        x.shape[0]\n        == 128\n    )", "AssertionError: x.shape[0] == 128"),
        ("raise AssertionError", "AssertionError"),
    ],
)
def test_a_failed_assertion_is_shown_as_it_is_written(check: str, message: str) -> None:
    source = f"import nki\nimport nki.language as nl\n@nki.jit\ndef kernel(x):\n    {check}\n    return x\n"
    with pytest.raises(KernelCrash) as crash:
        trace(source, [TensorSpec((64, 4), "float32")], api="nki", chip="trn2")
    assert crash.value.message == message


SELECTING = (
    IMPORTS
    + """
def half(tile, rows, columns):
    return nl.copy(tile[rows, columns])


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, columns = nl.arange(32)[:, None], nl.arange(16)[None, :]
    for step in range(4):
        tile = nl.ndarray((64, 32), dtype=x.dtype, buffer=nl.sbuf)
        for part in nl.affine_range(2):
            tile[rows + 32 * part, columns] = nl.load(x[rows + 32 * part, columns])
        tile[rows, columns + 16] = half(tile, rows, columns)
        tile[rows + 32, columns + 16] = half(tile, rows + 32, columns)
        nl.store(out[rows, columns], half(tile, rows, columns + 16))
        nl.store(out[rows + 32, columns], tile[rows + 32, columns + 16])
        nl.store(out[0:1, 0:16], tile[0, 0:16] if step else tile[0:1, 0:16])
    return out
"""
)


def test_an_index_that_was_used_before_selects_what_it_does_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(dict[object, object]):
        def __setitem__(self, key: object, value: object) -> None:
            pass

    program = trace(SELECTING, [SPEC])
    begin = Trace.__init__

    def forgetful(self: Trace, *arguments: Any) -> None:
        begin(self, *arguments)
        self.selected = Forgetful()  # type: ignore[assignment]

    monkeypatch.setattr(Trace, "__init__", forgetful)
    assert trace(SELECTING, [SPEC]) == program


def test_an_index_out_of_bounds_is_refused_each_time_it_is_used() -> None:
    lines = "tile = nl.load(x)\n    rows, columns = nl.arange(64)[:, None] + 1, nl.arange(16)[None, :]"
    masked = "tile[rows, columns] = nl.copy(tile[rows, columns], mask=rows < 64)"
    with pytest.raises(LegalityError) as caught:
        trace(kernel(f"{lines}\n    {masked}\n    nl.copy(tile[rows, columns])"), [SPEC])
    assert (caught.value.rule, caught.value.line) == ("out_of_bounds", 9)


def test_byte_code_is_read_as_python_reads_it() -> None:
    """Files of the standard library have closures, extended arguments, and variables that are cells."""
    waiting = [compile(inspect.getsource(one), "read", "exec") for one in (argparse, dataclasses, functools, inspect)]
    count = 0
    while waiting:
        code = waiting.pop()
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
        assert list(session._steps(code)) == list(session._steps_by_dis(code)), code
        count += 1
    assert count > 500


def test_a_file_without_the_words_has_nothing_to_rewrite() -> None:
    """The words are looked for in the text alone. Another alphabet in a comment makes a trace read every node."""
    paths = [path for one in find_workloads().values() for api, path in one.baselines.items() if api in API_CHIPS]
    texts = [text for path in paths if (text := path.read_text("utf-8")).isascii()]
    without = [text for text in texts if not tracing._STATEMENT_WORDS.search(text)]
    assert 5 < len(without) < len(texts)
    for text in without:
        plain = ast.dump(ast.parse(text))
        assert ast.dump(tracing._Statements({IS, PLAIN, WHILE}).visit(ast.parse(text))) == plain
    for text in texts:
        if not tracing._ASKING_WORDS.search(text):
            assert not tracing._asks_otherwise(ast.parse(text), f"{text}# \u00e9\n")


_WITH_ITERATORS = """
import {package} as nki
import {package}.isa as nisa
import {package}.language as nl

kept = []

def rows(count):
    for row in nl.affine_range(count):
        yield row

def kernel(x):
    out = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.shared_hbm)
{body}
    {store}
    return out
"""


def _traced_with(body: str, api: str) -> Program:
    package, store = {
        "nki": ("nki", "nisa.dma_copy(dst=out, src=x)"),
        "nki_legacy": ("neuronxcc.nki", "nl.store(out, nl.load(x))"),
    }[api]
    text = _WITH_ITERATORS.format(package=package, store=store, body=textwrap.indent(body, "    "))
    chip = {"nki": "trn2", "nki_legacy": "trn1"}[api]
    return trace(text, [TensorSpec((8, 8), "float32")], entry="kernel", api=api, chip=chip)


@pytest.mark.parametrize("api", ["nki", "nki_legacy"])
@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("for i, j in zip(nl.affine_range(4), nl.sequential_range(4)):\n    pass", 14),
        ("for i, j in zip(nl.affine_range(9), rows(9)):\n    pass", 14),
        ("one, other = iter(nl.affine_range(4)), iter(nl.affine_range(4))\nfor k in range(3):\n    next(one), next(other)", 16),
        ("one, other = rows(3), rows(3)\nfor k in range(3):\n    next(one), next(other)", 9),
        ("one = rows(3)\nnext(one)\nfor i in nl.sequential_range(4):\n    list(one)", 9),
    ],
)  # fmt: skip
def test_loops_whose_iterations_take_turns_are_refused_with_their_line(api: str, body: str, line: int) -> None:
    with pytest.raises(LegalityError, match=r"line \d+ ends while .*line \d+ is still open") as caught:
        _traced_with(body, api)
    assert (caught.value.rule, caught.value.line) == ("loop_order", line)
    assert "nest the two loops" in caught.value.hint


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("kept.append(iter(nl.affine_range(4)))\nnext(kept[0])", 15),
        ("kept.append(zip(nl.affine_range(4), nl.affine_range(4)))\nnext(kept[0])", 15),
        ("kept.append(rows(4))\nnext(kept[0])", 9),
    ],
)
def test_a_loop_whose_iterator_outlives_the_kernel_is_refused_with_its_line(body: str, line: int) -> None:
    with pytest.raises(LegalityError, match="is still open when the kernel ends") as caught:
        _traced_with(body, "nki")
    assert (caught.value.rule, caught.value.line) == ("loop_exit", line)
    assert "for statement" in caught.value.hint


@pytest.mark.parametrize(
    "body",
    [
        "for i in nl.affine_range(4):\n    break",
        "i = next(iter(nl.affine_range(4)))",
        "some = iter(nl.affine_range(4))\nnext(some)",
        "some = iter(nl.sequential_range(4))\nnext(some)\nfor i in some:\n    pass",
        "for i, j in zip(nl.affine_range(4), range(4)):\n    pass",
        "def first():\n    for i in nl.sequential_range(4):\n        return i\nfirst()",
        "try:\n    for i in nl.affine_range(4):\n        for j in rows(3):\n            raise ValueError\nexcept ValueError:\n    pass",
    ],
)  # fmt: skip
def test_a_loop_of_the_current_api_may_be_left_early(body: str) -> None:
    assert [node.op for node in _traced_with(body, "nki").body if isinstance(node, Instruction)] == ["dma_copy"]
