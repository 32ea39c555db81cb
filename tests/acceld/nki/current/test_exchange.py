"""Tiles that the two physical cores in a logical core exchange."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from acceld.nki.errors import KernelFailure, LegalityError
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.codec import decode, encode
from acceld.nki.ir.program import Loop, LoopKind, Program
from acceld.nki.timing.timeline import timeline
from acceld.nki.verify.verifier import verify
from tests.acceld.nki.current.test_current import PRELUDE

SUMS = """
@nki.jit
def kernel(x):
    core = nl.program_id(0)
    other = 1 - core
    half = x.shape[1] // 2
    out = nl.ndarray((2, 128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, half), dtype=x.dtype)
    nisa.dma_copy(dst=tile, src=x[:, nl.ds(core * half, half)])
    both = nl.ndarray((128, 2), dtype=x.dtype)
    nisa.tensor_reduce(dst=both[:, nl.ds(core, 1)], op=nl.add, data=tile, axis=1)
    {exchange}
    total = nl.ndarray((128, 1), dtype=x.dtype)
    nisa.tensor_reduce(dst=total, op=nl.add, data=both, axis=1)
    nisa.dma_copy(dst=out[core], src=total)
    return out
"""
EXCHANGE = "nisa.sendrecv(src=both[:, nl.ds(core, 1)], dst=both[:, nl.ds({to}, 1)], send_to_rank={to}, recv_from_rank={to}, pipe_id=0)"


def traced(exchange: str = EXCHANGE.format(to="other"), lnc: int = 2, width: int = 64) -> Program:
    source = PRELUDE + SUMS.format(exchange=exchange)
    program = trace(source, [TensorSpec((128, width), "float32")], api="nki", chip="trn2", lnc=lnc)
    assert decode(encode(program)) == program
    return program


def test_each_core_gets_what_the_other_one_holds() -> None:
    x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    program = traced()
    assert verify(program) == ()
    (out,) = execute(program, [x])
    expected = np.broadcast_to(x.sum(1, keepdims=True), (2, 128, 1))
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)
    assert (timeline(program).latency_us or 0) > 0


@pytest.mark.parametrize(("pipe", "runs"), [("3", True), ("core", False)])
def test_both_cores_must_name_one_pipe(pipe: str, runs: bool) -> None:
    program = traced(EXCHANGE.format(to="other").replace("pipe_id=0", f"pipe_id={pipe}"))
    x = np.ones((128, 64), np.float32)
    if runs:
        assert (execute(program, [x])[0] == 64).all()
    else:
        with pytest.raises(KernelFailure, match="by pipe") as caught:
            execute(program, [x])
        assert caught.value.rule == "exchange_cores"


def test_an_exchange_in_a_loop_is_one_in_each_iteration() -> None:
    body = """
@nki.jit
def kernel(x):
    core = nl.program_id(0)
    out = nl.ndarray((2, 128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    mine = nl.ndarray((128, 16), dtype=x.dtype)
    nisa.dma_copy(dst=mine, src=x[:, nl.ds(core * 16, 16)])
    for k in nl.sequential_range(3):
        theirs = nl.ndarray((128, 16), dtype=x.dtype)
        nisa.sendrecv(mine, theirs, 1 - core, 1 - core, 0)
        doubled = nl.ndarray((128, 16), dtype=x.dtype)
        nisa.tensor_scalar(dst=doubled, data=mine, op0=nl.multiply, operand0=2.0)
        nisa.tensor_tensor(dst=mine, data1=doubled, data2=theirs, op=nl.add)
    nisa.dma_copy(dst=out[core], src=mine)
    return out
"""
    program = trace(PRELUDE + body, [TensorSpec((128, 32), "float32")], api="nki", chip="trn2", lnc=2)
    x = np.random.default_rng(0).standard_normal((128, 32)).astype(np.float32)
    one, two = x[:, :16].astype(np.float64), x[:, 16:].astype(np.float64)
    for _ in range(3):
        one, two = 2 * one + two, 2 * two + one
    assert verify(program) == ()
    np.testing.assert_allclose(execute(program, [x])[0], [one, two], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("exchange", "lnc", "kind", "words"),
    [
        (EXCHANGE.format(to="core"), 2, LegalityError, "needs send_to_rank and recv_from_rank"),
        (EXCHANGE.format(to="0"), 1, LegalityError, "two physical cores"),
    ],
)  # fmt: skip
def test_what_two_cores_can_not_do_is_refused(exchange: str, lnc: int, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        traced(exchange, lnc)


DIFFERENT = f"""if core == 0:
        nisa.tensor_scalar(dst=both[:, 0:1], data=both[:, 0:1], op0=nl.multiply, operand0=3.0)
        {EXCHANGE.format(to="other")}
        nisa.tensor_scalar(dst=both, data=both, op0=nl.add, operand0=1.0)
    else:
        {EXCHANGE.format(to="other")}"""


def test_cores_whose_programs_differ_wait_for_each_other() -> None:
    x = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    program = traced(f"{DIFFERENT}\n    {EXCHANGE.format(to='other')}")
    assert verify(program) == ()
    assert [loop.trips for loop in program.loops.values() if loop.kind is LoopKind.SPMD] == [1, 1]
    one, two = 3 * x[:, :32].sum(1, keepdims=True), x[:, 32:].sum(1, keepdims=True)
    np.testing.assert_allclose(
        execute(program, [x])[0], [one + two + 1 + (one * 0), one + 1 + two], rtol=1e-4, atol=1e-4
    )


def test_cores_that_do_not_meet_are_a_failure_of_the_kernel() -> None:
    program = traced(f"if core == 0: {EXCHANGE.format(to='other')}\n    else: nisa.memset(both, 0.0)")
    with pytest.raises(KernelFailure):
        for finding in verify(program):
            raise LegalityError(finding.message, rule=finding.rule)
        execute(program, [np.zeros((128, 64), np.float32)])


def test_a_program_that_claims_an_exchange_on_one_core_is_refused() -> None:
    program = traced()
    alone = tuple(replace(node, kind=LoopKind.AFFINE) if isinstance(node, Loop) else node for node in program.body)
    forged = replace(program, body=alone)
    assert any("exchanges tiles" in finding.message for finding in verify(forged))
    with pytest.raises(KernelFailure):
        execute(forged, [np.zeros((128, 64), np.float32)])
