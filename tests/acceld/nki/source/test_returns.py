"""Calls of functions that only return an expression: written out on the same lines, or left alone."""

from __future__ import annotations

import pytest

from acceld.nki.source.launches import Launch
from acceld.nki.source.normal import as_before, normalized
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.returns import with_returns_written_out
from acceld.proposers.rules.proposer import moves
from tests.acceld.proposers.rules.kernels import arrays, current, run

HELPERS = '''
ROWS = 128


def cdiv(a, b):
    """Return a quotient, rounded up."""
    return (a + b - 1) // b


def sbuf(columns, rows=ROWS, dtype=nl.float32):
    return nl.ndarray((rows, columns), dtype=dtype, buffer=nl.sbuf)


def part(tensor, at):
    return tensor[at * ROWS : (at + 1) * ROWS, 0:256]
'''
BODY = """
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range(2 * cdiv(x.shape[0], 256)):
        tile = sbuf(
            256,
        )
        nisa.dma_copy(dst=tile, src=part(x, i))
        made = sbuf(columns=256)
        nisa.activation(dst=made, op=nl.exp, data=tile)
        twice = sbuf(256)
        nisa.tensor_scalar(dst=twice, data=made, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=part(out, i), src=twice)
    return out
"""
HEAD, BEHIND = current("x", BODY).split("@nki.jit", 1)
KERNEL = f"{HEAD}{HELPERS}\n\n@nki.jit{BEHIND}"
SHAPES = ((512, 256),)


def test_calls_are_written_out_on_the_same_lines() -> None:
    written = with_returns_written_out(KERNEL)
    lines = written.splitlines()
    assert len(lines) == len(KERNEL.splitlines())
    assert "    for i in range(2 * ((x.shape[0] + 256 - 1) // 256)):" in lines
    assert "        made = nl.ndarray((ROWS, 256), dtype=nl.float32, buffer=nl.sbuf)" in lines
    assert "        nisa.dma_copy(dst=tile, src=x[i * ROWS:(i + 1) * ROWS, 0:256])" in lines
    given = arrays(*SHAPES)
    assert run(written, *given).tobytes() == run(KERNEL, *given).tobytes()
    assert with_returns_written_out(written) == written
    assert as_before(KERNEL, normalized(KERNEL)) == KERNEL
    kernel = KernelModule(normalized(KERNEL), Launch("nki", SHAPES))
    assert kernel.loops[0].trips == 4 and not kernel.ambiguous and kernel.loops[0].kind == "affine_range"


def test_every_rewrite_of_a_kernel_with_such_calls_is_right_and_keeps_the_other_calls() -> None:
    given = arrays(*SHAPES)
    expected = run(KERNEL, *given)
    made = {move.step: move.apply() for move in moves(KERNEL, Launch("nki", SHAPES))}
    assert len(made) >= 2
    for step, source in made.items():
        assert source is not None
        back = as_before(KERNEL, source)
        assert abs(run(source, *given) - expected).max() < 1e-4, step
        assert abs(run(back, *given) - expected).max() < 1e-4, step
        assert "cdiv(x.shape[0], 256)" in back or "cdiv" not in source


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    return nl.ndarray((rows", "    print(rows)\n    return nl.ndarray((rows"),
        ("def sbuf(columns", "@nki.jit\ndef sbuf(columns"),
        ("def sbuf(columns, rows=ROWS", "def sbuf(columns, *more, rows=ROWS"),
        ("    out = nl", "    rows = ROWS = 64\n    out = nl"),  # the default has another value in the kernel
        (
            "return nl.ndarray((rows, columns)",
            "return nl.ndarray((rows, columns + columns)",
        ),
    ],
)
def test_a_call_that_may_mean_something_else_stays(before: str, after: str) -> None:
    source = KERNEL.replace(before, after).replace("sbuf(256)", "sbuf(len([256]))")
    assert source != KERNEL
    assert "twice = sbuf(len([256]))" in with_returns_written_out(source)
