"""Outputs that a program leaves partly unwritten."""

from __future__ import annotations

import pytest

from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.program import Program
from acceld.nki.timing.timeline import timeline
from acceld.nki.verify.output_coverage import Gap, gaps

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def kernel(x, n):
    out = nl.ndarray((256, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), dtype=nl.float32)
    nisa.dma_copy(dst=tile, src=x)
{body}
    return out
"""


def traced(*lines: str) -> Program:
    body = "".join(f"    {line}\n" for line in lines)
    specs = [TensorSpec((128, 512), "float32"), TensorSpec((1, 1), "int32")]
    return trace(KERNEL.format(body=body), specs, api="nki", chip="trn2")


@pytest.mark.parametrize(
    ("lines", "written", "first"),
    [
        (["nisa.dma_copy(out[0:128, :], tile)"], 128 * 512, (128, 0)),
        (["nisa.dma_copy(out[128:256, :], tile)"], 128 * 512, (0, 0)),
        (["for i in nl.affine_range(2):", "    nisa.dma_copy(out[128 * i : 128 * i + 128, 0:500], tile[:, 0:500])"],
         256 * 500, (0, 500)),
        (["for i in nl.affine_range(2):", "    nisa.dma_copy(out[i:256:2, 0:511], tile[:, 0:511])"], 256 * 511, (0, 511)),
        (["nisa.dma_copy(out[0:256:2, :], tile)"], 128 * 512, (1, 0)),
        (["nisa.dma_copy(out.ap([[512, 128], [1, 512]], offset=512), tile)"], 128 * 512, (0, 0)),
    ],
)  # fmt: skip
def test_what_no_run_writes_is_reported_with_its_share_and_line(
    lines: list[str], written: int, first: tuple[int, ...]
) -> None:
    (gap,) = gaps(traced(*lines))
    assert (gap.written, gap.first, gap.elements) == (written, first, 256 * 512)
    assert gap.line == 10 + len(lines)
    assert gap.name == "out"


@pytest.mark.parametrize(
    "lines",
    [
        ["for i in nl.affine_range(2):", "    nisa.dma_copy(out[i:256:2, :], tile)"],
        ["nisa.dma_copy(out[0:128, :], tile)", "nisa.dma_copy(out[128:256, :], tile)"],
        ["nisa.dma_copy(out.reshape((128, 2, 512))[:, 0, :], tile)", "nisa.dma_copy(out[1:256:2, :], tile)"],
        ["where = nl.ndarray((128, 1), dtype=nl.int32)", "nisa.memset(where, 0)",
         "nisa.dma_copy(out.ap([[512, 128], [1, 512]], vector_offset=where), tile)"],
    ],
)  # fmt: skip
def test_an_output_that_may_be_written_whole_is_none(lines: list[str]) -> None:
    assert gaps(traced(*lines)) == ()


def test_a_gap_says_which_tensor_how_much_and_where() -> None:
    gap = Gap("out", (256, 512), (128, 0), 128 * 512, 256 * 512, 14)
    assert (
        str(gap)
        == "line 14: output out [256, 512] is partly written: at most 50 % of it, and no instruction writes element [128, 0]"
    )


def test_loops_of_run_time_trips_give_no_latency_and_figures_of_one_trip() -> None:
    program = traced(
        "count = nl.ndarray((1, 1), dtype=nl.int32)",
        "nisa.dma_copy(count, n)",
        "reg = nisa.register_alloc()",
        "nisa.register_load(reg, count)",
        "def add_one(i):",
        "    nisa.tensor_scalar(tile, tile, nl.add, 1.0)",
        "nl.fori_loop(0, reg, add_one)",
        "nisa.dma_copy(out[0:128, :], tile)",
    )
    found = timeline(program)
    assert found.latency_us is None
    assert found.data_dependent
    assert found.engines["vector"] < 100
    assert any("line 17: trips known at run time only" in text for text in found.warnings)
