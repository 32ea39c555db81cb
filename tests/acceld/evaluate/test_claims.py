"""False claims of a program about itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acceld.evaluate.simulated.claims import false_claim
from acceld.evaluate.simulated.inspection import _check_inputs, _check_precision, _Refused
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.program import Buffer, Instruction, Loop, LoopKind, Node, Program, Role, Space

SOURCE = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    c = nl.arange(128)[None, :]
    for column in nl.affine_range(1):
        nl.store(out[p, f], value=nl.copy(nl.matmul(nl.load(a[p, c]), nl.load(b[p, f]))))
    return out
"""


def program() -> Program:
    return trace(SOURCE, [TensorSpec((128, 128), "float32"), TensorSpec((128, 512), "float32")])


def test_an_honest_program_claims_nothing_false() -> None:
    assert false_claim(program()) is None


def test_cores_that_were_not_asked_for_are_a_false_claim() -> None:
    forged = replace(program(), body=(Loop(900, "i", 64, LoopKind.SPMD, program().body),))
    claim = false_claim(forged)
    assert claim is not None
    assert "64 cores" in claim.message
    assert false_claim(replace(forged, grid=(64,))) is None


def test_a_faster_mode_for_wide_operands_is_a_false_claim() -> None:
    def mark(node: Node) -> Node:
        if isinstance(node, Loop):
            return replace(node, body=tuple(map(mark, node.body)))
        if node.op == "matmul":
            return replace(node, attrs=(*node.attrs, ("perf_mode", "double_row")))
        return node

    honest = program()
    assert any(isinstance(one, Instruction) and one.op == "matmul" for one, _ in honest.walk())
    claim = false_claim(replace(honest, body=tuple(map(mark, honest.body))))
    assert claim is not None
    assert claim.rule == "perf_mode"


def test_thousands_of_unused_buffers_are_refused() -> None:
    honest = program()
    start = len(honest.buffers)
    extra = tuple(Buffer(start + i, "b", Space.SBUF, "float32", (1, 1), 0, Role.SCRATCH) for i in range(2000))
    claim = false_claim(replace(honest, buffers=honest.buffers + extra))
    assert claim is not None
    assert "never uses" in claim.message


def test_products_of_narrow_operands_are_refused_where_float32_is_demanded() -> None:
    text = SOURCE.replace("nl.load(a[p, c])", "nl.load(a[p, c], dtype=nl.bfloat16)")
    text = text.replace("nl.load(b[p, f])", "nl.load(b[p, f], dtype=nl.bfloat16)")
    narrow = trace(text, [TensorSpec((128, 128), "float32"), TensorSpec((128, 512), "float32")])
    _check_precision(program(), {"precision": "fp32_strict"})
    _check_precision(narrow, {"precision": ""})
    with pytest.raises(_Refused) as refused:
        _check_precision(narrow, {"precision": "fp32_strict"})
    assert refused.value.record["failure"]["rule"] == "precision"


@pytest.mark.parametrize(
    ("outputs", "mutates", "fine"), [([], (), False), ([], (0,), False), ([], (1,), True), (None, (), True)]
)
def test_an_argument_is_written_only_if_the_workload_names_it(
    outputs: list[object] | None, mutates: tuple[int, ...], fine: bool
) -> None:
    text = SOURCE.replace("    return out", "    nl.store(b[p, f], value=nl.load(out[p, f]))\n    return out")
    changed = trace(text, [TensorSpec((128, 128), "float32"), TensorSpec((128, 512), "float32")])
    header = {"outputs": outputs, "mutates": mutates}
    _check_inputs(program(), header)
    if fine:
        _check_inputs(changed, header)
        return
    with pytest.raises(_Refused, match="argument b") as refused:
        _check_inputs(changed, header)
    assert refused.value.record["failure"]["rule"] == "input_written"
