"""Writes through views that share memory with their tile: another width, and offsets known at run time."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.nki.errors import KernelFailure
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
        ("nisa.tensor_copy(t, a);;v = t.indirect(i);;nisa.memset(v[:, 0:32], 1.0);;nisa.tensor_scalar(v, v, nl.add, 1.0)",
         _scattered(X, np.full((32, 32), 2, np.float32))),
        ("nisa.tensor_copy(t, a);;nisa.tensor_copy(t.indirect(i), a.indirect(i))", X),
    ],
)  # fmt: skip
def test_a_write_through_a_view_changes_the_tile(body: str, wanted: np.ndarray) -> None:
    program = traced(body)
    assert verify(program) == ()
    assert timeline(program).latency_us
    assert np.array_equal(bits(execute(program, [X, COLUMNS])[0]), bits(wanted))


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
        ("nisa.dma_copy(out.view(nl.uint16), a.view(nl.uint16))", "a write through a view of another width"),
        (STALE_IN_A_LOOP, "read later"),
        ("p = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.psum);;nisa.memset(p.indirect(i), 0.0)", "PSUM"),
        (f"{TWO_INDICES};;nisa.tensor_scalar(t.indirect(j), t.indirect(i), nl.multiply, 2.0)", "reads it at other offsets"),
        ("nisa.tensor_copy(t, a);;nisa.tensor_copy(t.indirect(i), t[:, 8:40])", "reads it at other offsets"),
        ("nisa.tensor_copy(t, a);;v = t.indirect(i);;nisa.tensor_copy(v[:, 0:8], v[:, 8:16])", "reads it at other offsets"),
        (f"{TWO_INDICES};;nisa.tensor_tensor(t.indirect(i), a[:, 0:32], t.indirect(j), nl.add)", "reads it at other offsets"),
    ],
)  # fmt: skip
def test_what_is_not_simulated_or_stale_is_said(body: str, said: str) -> None:
    with pytest.raises(KernelFailure) as caught:
        for finding in verify(traced(body)):
            raise KernelFailure(finding.message, rule=finding.rule, line=finding.line)
    assert said in f"{caught.value.message} {caught.value.hint}"
