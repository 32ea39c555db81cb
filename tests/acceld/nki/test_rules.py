"""Rules that only a run or a limit shows, and: every rule of the judge is named by a test or an attack."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from acceld.nki.errors import KernelFailure
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.current import frontend as current
from acceld.nki.frontend.legacy import frontend as legacy
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.program import Engine
from tests.acceld.nki.programs import Kernel, at

ROOT = Path(__file__).parents[3]
JUDGE = [
    ROOT / "acceld" / folder
    for folder in ("nki/frontend", "nki/ir", "nki/verify", "nki/execute", "evaluate", "devices")
]
FIRST = re.compile(r'(?:\b(?:refuse|_refuse|_add|add|limit_record|Failure)\(\s*|\brule\s*=\s*)"([a-z][a-z0-9_]+)"')
"""Calls whose first argument is a rule, and rules by name."""
SECOND = re.compile(r"\b(?:crash|_Refused)\(")
"""Calls whose second argument is a rule."""


def _collective(kernel: Kernel, ranks: tuple[int, ...]) -> int:
    out = kernel.output((4, 8))
    return kernel.op(
        "collective",
        at(out),
        at(kernel.input((4, 8))),
        engine=Engine.SYNC,
        kind="all_reduce",
        op="add",
        ranks=ranks,
        members=2,
    )


def one_rank(kernel: Kernel) -> int:
    return _collective(kernel, (0, 1))


def part_of_a_block(kernel: Kernel) -> int:
    kernel.api, kernel.chip = "nki", "trn3"
    values, scale = kernel.sbuf((12, 8), "float8_e4m3fn_x4"), kernel.sbuf((12, 8), "uint8")
    return kernel.op("quantize_mx", [at(values), at(scale)], at(kernel.loaded((12, 32))))


def number_in_a_tiles_place(kernel: Kernel) -> int:
    return kernel.op("copy", at(kernel.sbuf((4, 8))), [2.0])


def fraction_of_bits(kernel: Kernel) -> int:
    tile = kernel.loaded((4, 8), "int32")
    return kernel.op("tensor_scalar", at(kernel.sbuf((4, 8), "int32")), [at(tile), 1.5], op0="bitwise_and")


def other_shapes(kernel: Kernel) -> int:
    return kernel.op(
        "tensor_tensor", at(kernel.sbuf((4, 8))), [at(kernel.loaded((4, 8))), at(kernel.loaded((4, 7)))], op="add"
    )


@pytest.mark.parametrize(
    ("rule", "build"),
    [
        ("execution", other_shapes),
        ("collective_ranks", one_rank),
        ("mx_block", part_of_a_block),
        ("operand_kind", number_in_a_tiles_place),
        ("operand_kind", fraction_of_bits),
    ],
)
def test_a_run_refuses_what_no_judge_has_seen_before(rule: str, build: Callable[[Kernel], int]) -> None:
    kernel = Kernel()
    line = build(kernel)
    program = kernel.finish()
    with pytest.raises(KernelFailure) as caught:
        execute(program, [np.ones(program.buffers[number].shape, np.int32) for number in program.inputs])
    assert (caught.value.rule, caught.value.line) == (rule, line)


CHANGES = """
import {package} as nki
import {package}.language as nl
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    last = None
    for i in nl.affine_range(2):
        if last is None:
            last = i
        tile = nl.load(x) if {legacy} else nl.ndarray((128, 64), dtype=nl.float32)
    return out
"""


@pytest.mark.parametrize(("api", "module"), [("nki", current), ("nki_legacy", legacy)])
def test_a_kernel_that_never_settles_ends_at_its_last_line(
    api: str, module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_RETRACES", 0)
    package = "nki" if api == "nki" else "neuronxcc.nki"
    text = CHANGES.format(package=package, legacy=api == "nki_legacy")
    with pytest.raises(KernelFailure, match="traces of the kernel found another") as caught:
        trace(text, [TensorSpec((128, 64), "float32")], api=api, chip="trn2")
    assert caught.value.rule == "retrace_limit"


def test_a_call_while_the_file_loads_is_refused() -> None:
    text = CHANGES.format(package="nki", legacy=False) + "TILE = nl.ndarray((128, 8), dtype=nl.float32)\n"
    with pytest.raises(KernelFailure, match="calls an NKI function while it loads") as caught:
        trace(text, [TensorSpec((128, 64), "float32")], api="nki", chip="trn2")
    assert caught.value.rule == "outside_kernel"


def _rules(text: str) -> Iterator[str]:
    yield from FIRST.findall(text)
    if not SECOND.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("crash", "_Refused") and len(node.args) > 1:
            rule = node.args[1]
            if isinstance(rule, ast.Constant):
                yield str(rule.value)


def test_every_rule_is_named_by_a_test_or_an_attack() -> None:
    rules = {rule for folder in JUDGE for file in folder.rglob("*.py") for rule in _rules(file.read_text())}
    assert len(rules) > 140
    named: set[str] = set()
    for file in (ROOT / "tests").rglob("*"):
        if file.suffix in (".py", ".c"):  # a string of a test, or behind its status in an attack's header
            named.update(re.findall(r"[\".]([a-z][a-z0-9_]+)", file.read_text()))
    assert sorted(rules - named) == []
