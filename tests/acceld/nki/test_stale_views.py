"""A view of another width is the tensor's own memory: what is written to the tensor is seen through it."""

from __future__ import annotations

import pytest

from acceld.nki.ir.program import LoopKind
from acceld.nki.verify.verifier import verify
from tests.acceld.nki.programs import Kernel, Run, at


def rules(order: str, *, loop: str = "") -> list[str]:
    """A kernel that takes a view (v), writes the tensor (w) and reads the view (r); ``loop`` names those in a loop."""
    kernel = Kernel("nki", "trn2")
    tile, narrow = kernel.loaded((32, 16)), kernel.sbuf((32, 32), "uint16")
    seen, out = kernel.sbuf((32, 32), "uint16"), kernel.output((32, 32), "uint16")
    kernel.op("memset", at(seen), 0)

    def step(letter: str) -> None:
        if letter == "v":
            kernel.op("bitcast", at(narrow), at(tile))
        elif letter == "w":
            kernel.op("memset", at(tile), 1.0)
        else:
            kernel.op("copy", at(seen), at(narrow))

    before = [letter for letter in order if letter not in loop]
    for letter in before:
        step(letter)
    if loop:
        with kernel.loop(3, LoopKind.SEQUENTIAL):
            for letter in order:
                if letter in loop:
                    step(letter)
    kernel.op("dma_copy", at(out), at(seen))
    return [finding.rule for finding in verify(kernel.finish())]


@pytest.mark.parametrize(
    ("order", "loop", "stale"),
    [
        ("vr", "", False),
        ("vrw", "", False),
        ("wvr", "", False),
        ("vwvr", "", False),
        ("vwr", "", True),
        ("vrw", "vrw", False),
        ("wvr", "wvr", False),
        ("vwr", "vwr", True),
        ("vrw", "rw", True),
        ("vwr", "wr", True),
        ("vr", "r", False),
    ],
)
def test_a_view_is_not_read_after_its_tensor_was_written(order: str, loop: str, stale: bool) -> None:
    assert ("stale_view" in rules(order, loop=loop)) is stale


def test_a_view_of_a_view_is_as_stale_as_that() -> None:
    kernel = Kernel("nki", "trn2")
    tile, narrow, wide = kernel.loaded((32, 16)), kernel.sbuf((32, 32), "uint16"), kernel.sbuf((32, 16))
    out, other = kernel.output((32, 16)), kernel.sbuf((32, 16))
    kernel.op("bitcast", at(narrow), at(tile))
    kernel.op("bitcast", at(wide), at(narrow))
    kernel.op("memset", at(tile), 1.0)
    line = kernel.op("copy", at(other), at(wide))
    kernel.op("dma_copy", at(out), at(other))
    assert [(finding.rule, finding.line) for finding in verify(kernel.finish())] == [("stale_view", line)]


def test_a_part_that_was_not_viewed_may_be_written() -> None:
    kernel = Kernel("nki", "trn2")
    tile, narrow = kernel.loaded((32, 16)), kernel.sbuf((32, 16), "uint16")
    other, out = kernel.sbuf((32, 16), "uint16"), kernel.output((32, 16), "uint16")
    kernel.op("bitcast", at(narrow), at(tile, Run(0, 32), Run(0, 8)))
    kernel.op("memset", at(tile, Run(0, 32), Run(8, 8)), 1.0)
    kernel.op("copy", at(other), at(narrow))
    kernel.op("dma_copy", at(out), at(other))
    assert verify(kernel.finish()) == ()
