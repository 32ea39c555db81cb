"""Writes through views that share memory with their tile: another width, and offsets known at run time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from acceld.nki.errors import KernelFailure, UnsupportedCall
from acceld.nki.execute.interpreter import execute
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.codec import decode, encode
from acceld.nki.ir.program import Program
from acceld.nki.timing.timeline import timeline
from acceld.nki.verify.verifier import verify

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x, index):
    out = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.sbuf)
    t = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.sbuf)
    i = nl.ndarray((32, 2), dtype=nl.uint16, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=i, src=index)
    {body}
    nisa.dma_copy(dst=out, src=t)
    return out
"""
X = np.random.default_rng(7).standard_normal((32, 64)).astype(np.float32)
INDEX = np.stack([np.random.default_rng(group).permutation(64)[:32] for group in (1, 2)]).astype(np.uint16)
PLACES = np.repeat(INDEX, 16, axis=0)
"""Offsets of each partition: sixteen partitions share a list."""
COLUMNS = INDEX.reshape(2, 2, 16).transpose(0, 2, 1).reshape(32, 2)


WRITTEN_LATER = "v = t.view(nl.uint16);;nisa.memset(t, 0.0);;nisa.tensor_copy(v[:, 0:128], a.view(nl.uint16))"
STALE_IN_A_LOOP = (
    "nisa.memset(t, 0.0);;r = nisa.register_alloc(3);;v = t.view(nl.uint16);;for k in nl.dynamic_range(r):;;"
    "    nisa.tensor_copy(a.view(nl.uint16), v);;    nisa.tensor_copy(t, a)"
)


def traced(body: str) -> Program:
    specs = [TensorSpec((32, 64), "float32"), TensorSpec((32, 2), "uint16")]
    source = KERNEL.format(body=body.replace(";;", "\n    "))
    program = trace(source, specs, api="nki", chip="trn3", entry="kernel")
    assert decode(encode(program)) == program
    return program


def bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint16)


def halves(change: object) -> np.ndarray:
    """Return X with its 16-bit halves changed in place."""
    narrow = bits(X).copy()
    change(narrow)  # type: ignore[operator]
    return narrow.view(np.float32)


def _first_eight(narrow: np.ndarray) -> None:
    narrow[:, 0:8] = 0


def _scattered(start: np.ndarray, values: np.ndarray) -> np.ndarray:
    made = start.copy()
    np.put_along_axis(made, PLACES.astype(np.int64), values, axis=1)
    return made


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("nisa.tensor_copy(t.view(nl.uint16), a.view(nl.uint16))", X),
        ("nisa.tensor_copy(t, a);;nisa.memset(t.view(nl.uint16)[:, 0:8], 0)", halves(_first_eight)),
        ("v = t.view(nl.uint16);;nisa.tensor_copy(t, a);;nisa.memset(v[:, 0:8], 0)", halves(_first_eight)),
        (f"{WRITTEN_LATER};;nisa.memset(t[:, 0:4], 0.0)", np.concatenate([np.zeros((32, 4), np.float32), X[:, 4:]], 1)),
        ("v = t.view(nl.uint16);;for k in range(4):;;    nisa.tensor_copy(t, a);;    nisa.memset(v[:, 0:8], 0)",
         halves(_first_eight)),
        ("v = t.view(nl.uint16).view(nl.uint8);;nisa.tensor_copy(t, a);;nisa.memset(v[:, 0:16], 0)", halves(_first_eight)),
        ("nisa.memset(t, 0.0);;nisa.tensor_copy(t.indirect(i), a[:, 0:32])",
         _scattered(np.zeros((32, 64), np.float32), X[:, 0:32])),
        ("nisa.tensor_copy(t, a);;nisa.tensor_scalar(t.indirect(i), t.indirect(i), nl.multiply, 2.0)",
         _scattered(X, 2 * np.take_along_axis(X, PLACES.astype(np.int64), 1))),
        ("nisa.tensor_copy(t, a);;v = t.indirect(i);;nisa.tensor_copy(v[:, 0:32], a[:, 0:32]);;nisa.tensor_scalar(v, v, nl.add, 1.0)",
         _scattered(X, X[:, 0:32] + 1)),
        ("nisa.tensor_copy(t, a);;nisa.tensor_copy(t.indirect(i), a.indirect(i))", X),
    ],
)  # fmt: skip
def test_a_write_through_a_view_changes_the_tile(body: str, wanted: np.ndarray) -> None:
    program = traced(body)
    assert verify(program) == ()
    assert timeline(program).latency_us
    assert np.array_equal(bits(execute(program, [X, COLUMNS])[0]), bits(wanted))


IN_HBM = KERNEL.replace("    nisa.dma_copy(dst=out, src=t)\n", "")
"""A kernel whose body writes the result in HBM itself."""


def run_in_hbm(body: str, lnc: int = 1) -> np.ndarray:
    """Return the result of a kernel that writes it through views."""
    source = IN_HBM.format(body=body.replace(";;", "\n    "))
    specs = [TensorSpec((32, 64), "float32"), TensorSpec((32, 2), "uint16")]
    program = trace(source, specs, api="nki", chip="trn3", entry="kernel", lnc=lnc, grid=(lnc,) if lnc > 1 else ())
    assert decode(encode(program)) == program
    assert verify(program) == ()
    assert timeline(program).latency_us
    return np.asarray(execute(program, [X, COLUMNS])[0])


@pytest.mark.parametrize(
    "body",
    [
        "nisa.dma_copy(out.view(nl.uint16), a.view(nl.uint16))",
        (
            "v = out.view(nl.uint16);;for i in nl.affine_range(4):;;"
            "    nisa.dma_copy(v[:, 32 * i : 32 * i + 32], a.view(nl.uint16)[:, 32 * i : 32 * i + 32])"
        ),
        (
            "for i in nl.affine_range(2):;;"
            "    nisa.dma_copy(out[16 * i : 16 * i + 16].view(nl.uint16), x[16 * i : 16 * i + 16].view(nl.uint16))"
        ),
        (
            "v = out.view(nl.uint16);;nisa.dma_copy(v, a.view(nl.uint16));;"
            "b = nl.ndarray((32, 128), dtype=nl.uint16, buffer=nl.sbuf);;nisa.dma_copy(b, v);;nisa.dma_copy(v, b)"
        ),
        (
            "w = nl.ndarray((32, 128), dtype=nl.uint16, buffer=nl.hbm);;nisa.dma_copy(w.view(nl.float32), a);;"
            "nisa.dma_copy(out, w.view(nl.float32))"
        ),
        "nisa.dma_copy(out, a);;nisa.dma_copy(out.view(nl.uint16)[:, 0:8], a.view(nl.uint16)[:, 0:8])",
    ],
)
def test_a_write_through_a_view_in_hbm_changes_the_tensor(body: str) -> None:
    assert np.array_equal(bits(run_in_hbm(body)), bits(X))


def test_cores_that_share_a_tensor_do_not_write_it_through_a_view_of_another_width() -> None:
    body = (
        "p = nl.program_id(0);;v = out.view(nl.uint16);;nisa.dma_copy(v[16 * p : 16 * p + 16], x.view(nl.uint16)[0:16])"
    )
    with pytest.raises(UnsupportedCall, match="two cores share"):
        run_in_hbm(body, lnc=2)


@pytest.mark.parametrize("through_a_view", [False, True])
def test_a_view_copies_no_argument_into_a_result_without_a_transfer(through_a_view: bool) -> None:
    """A forged program could call a copy a view: what it gives to the result is then an argument."""
    body = "nisa.dma_copy(out.view(nl.uint16), a.view(nl.uint16));;v = x.view(nl.uint16);;nisa.dma_copy(a.view(nl.uint16), v)"
    source = IN_HBM.format(body=body.replace(";;", "\n    "))
    specs = [TensorSpec((32, 64), "float32"), TensorSpec((32, 2), "uint16")]
    program = trace(source, specs, api="nki", chip="trn3", entry="kernel")
    argument, (result,) = program.inputs[0], program.outputs
    taken = next(
        one for one, _ in program.walk() if one.op == "bitcast" and argument in [use.buffer for use in one.accesses]
    )
    back = next(one for one, _ in program.walk() if one.op == "bitcast" and one.dsts[0].buffer == result)
    forged = replace(back, srcs=taken.dsts if through_a_view else taken.srcs)
    body_of = tuple(forged if node is back else node for node in (taken, *program.body))
    rules = {finding.rule for finding in verify(replace(program, body=body_of))}
    assert ("view_written" if through_a_view else "address_space") in rules


def test_a_view_is_read_as_the_tile_is_then() -> None:
    program = traced(
        "nisa.memset(a, 1.0);;v = a.view(nl.uint16);;nisa.memset(a, 2.0);;nisa.tensor_copy(t.view(nl.uint16), v)"
    )
    assert verify(program) == ()
    assert (execute(program, [X, COLUMNS])[0] == 2).all()


TWO_INDICES = "nisa.tensor_copy(t, a);;j = nl.ndarray(i.shape, dtype=i.dtype);;nisa.tensor_copy(j, i)"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (STALE_IN_A_LOOP, "read later"),
        ("p = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.psum);;nisa.tensor_copy(p.indirect(i), a[:, 0:32])", "PSUM"),
        (f"{TWO_INDICES};;nisa.tensor_scalar(t.indirect(j), t.indirect(i), nl.multiply, 2.0)", "reads it at other offsets"),
        ("nisa.tensor_copy(t, a);;nisa.tensor_copy(t.indirect(i), t[:, 8:40])", "reads it at other offsets"),
        ("nisa.tensor_copy(t, a);;v = t.indirect(i);;nisa.tensor_copy(v[:, 0:8], v[:, 8:16])", "reads it at other offsets"),
        (f"{TWO_INDICES};;nisa.tensor_tensor(t.indirect(i), t.indirect(j), a[:, 0:32], nl.add)", "reads it at other offsets"),
    ],
)  # fmt: skip
def test_what_is_not_simulated_or_stale_is_said(body: str, said: str) -> None:
    with pytest.raises(KernelFailure) as caught:
        for finding in verify(traced(body)):
            raise KernelFailure(finding.message, rule=finding.rule, line=finding.line)
    assert said in f"{caught.value.message} {caught.value.hint}"
