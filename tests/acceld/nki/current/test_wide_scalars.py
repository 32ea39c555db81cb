"""Scalars of 32 and 64 bits (``nisa.scalar_load`` of NKI 0.7)."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.nki.errors import KernelFailure
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import TensorSpec, TraceOptions, trace
from acceld.nki.ir.program import Program
from acceld.nki.verify.verifier import verify

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x, rows):
    out = nl.ndarray((1, 1), dtype=nl.{kind}, buffer=nl.shared_hbm)
    held = nl.ndarray((1, 1), dtype=nl.{kind}, buffer=nl.sbuf)
    nisa.dma_copy(dst=held, src=x)
    i = nisa.scalar_load(held)
    {body}
    nisa.dma_copy(dst=out, src=held)
    return out
"""


def traced(kind: str, body: str, nki: str | None = None) -> Program:
    source = KERNEL.format(kind=kind, body=body.replace(";;", "\n    "))
    specs = [TensorSpec((1, 1), kind), TensorSpec((64, 32), "float32")]
    return trace(source, specs, api="nki", chip="trn2", entry="kernel", options=TraceOptions(nki=nki))


@pytest.mark.parametrize(
    ("kind", "start", "body", "wanted"),
    [
        ("int64", 2**53 + 1, "i * 3 + 1", 3 * (2**53 + 1) + 1),
        ("int64", 2**63 - 1, "i + 1", -(2**63)),
        ("int32", 100000, "i * i", 1410065408),
        ("int32", 2**31 - 1, "1 + i", -(2**31)),
        ("int32", 5, "2 - -i", 7),
    ],
)
def test_a_scalar_is_exact_and_wraps_at_its_width(kind: str, start: int, body: str, wanted: int) -> None:
    program = traced(kind, f"nisa.scalar_store(held, {body})", "0.7")
    assert verify(program) == ()
    given = [np.array([[start]], kind), np.zeros((64, 32), np.float32)]
    assert execute(program, given)[0].tolist() == [[wanted]]


def test_a_wide_offset_selects_a_row_in_hbm() -> None:
    lines = "row = nl.ndarray((1, 32), dtype=nl.float32, buffer=nl.sbuf);;"
    lines += (
        "nisa.dma_copy(dst=row, src=rows.ap([[32, 1], [1, 32]], scalar_offset=i + 1, indirect_dim=0));;return out, row"
    )
    source = "nisa.dma_copy(dst=held, src=x);;" + lines.replace("return out, row", "whole = nl.ndarray((1, 32), "
        "dtype=nl.float32, buffer=nl.shared_hbm);;nisa.dma_copy(dst=whole, src=row);;return whole")  # fmt: skip
    program = traced("int64", source)
    rows = np.random.default_rng(7).standard_normal((64, 32)).astype(np.float32)
    assert np.array_equal(execute(program, [np.array([[6]], np.int64), rows])[0], rows[7:8])


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("int64", "nisa.tensor_copy(held, held)", "copy can not compute on int64"),
        ("int64", "nisa.memset(held, 3)", "memset can not compute on int64"),
        ("int64", "nisa.register_load(nisa.register_alloc(), held)", "scalar_load"),
        ("int64", "nl.fori_loop(0, i, lambda k: None)", "int64 register"),
        ("int64", "t = nl.ndarray((1, 1), dtype=nl.int32);;nisa.scalar_store(t, i)", "both must have the same width"),
        ("int64", "t = nl.ndarray((1, 1), dtype=nl.int32);;nisa.dma_copy(t, held)", "int64 to int32"),
        ("int64", "t = nl.ndarray((1, 9), dtype=nl.float32);;t.ap([[9, 1], [1, 1]], scalar_offset=i, indirect_dim=1)",
         "on chip"),
        ("int32", "nisa.scalar_store(held, 3)", "must be a register"),
        ("float32", "pass", "can not load float32"),
    ],
)  # fmt: skip
def test_what_pages_of_0_7_exclude_is_refused(kind: str, body: str, said: str) -> None:
    with pytest.raises(KernelFailure) as caught:
        for finding in verify(traced(kind, body)):
            raise KernelFailure(finding.message, rule=finding.rule, line=finding.line)
    assert said in f"{caught.value.message} {caught.value.hint}"


def test_64_bits_exist_from_0_7_on() -> None:
    with pytest.raises(KernelFailure, match=r"nl\.int64|nki\.language\.int64"):
        traced("int64", "pass", "0.6")
