"""Iterations on tiles of few partitions, stacked along the partitions."""

from __future__ import annotations

import pytest

from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.timing.timeline import timeline
from tests.acceld.proposers.rules.kernels import applied, arrays, assert_same, current, sites

LOW = current(
    "x, y",
    """
    out = nl.ndarray((64, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(8):
        a = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf)
        b = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
        product = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[0:64, nl.ds(512 * t, 512)])
        nisa.dma_copy(dst=b[0:64, 0:512], src=y[t, 0:64, 0:512])
        nisa.tensor_reduce(dst=total, op=nl.add, data=a, axis=1)
        nisa.tensor_scalar(dst=product, data=b[0:64, 0:512], op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[0:64, nl.ds(512 * t, 512)], src=product)
    return out
""",
)
SHAPES = [(64, 4096), (8, 64, 512)]


def test_two_iterations_fill_all_partitions() -> None:
    after = applied("fill_partitions", LOW, SHAPES)
    assert "a = nl.ndarray((128, 512)" in after and "nl.affine_range(4)" in after and after.count("dma_copy") == 6
    assert "dst=b[64:128, 0:512], src=y[(2 * t + 1), 0:64, 0:512]" in after and "data=b[0:128, 0:512]" in after
    assert_same(LOW, after, *arrays(*SHAPES))


def test_tiles_of_32_partitions_take_four_iterations_or_two() -> None:
    low, shapes = LOW.replace("64", "32"), [(32, 4096), (8, 32, 512)]
    for variant, factor in enumerate((4, 2)):
        after = applied("fill_partitions", low, shapes, variant=variant)
        assert f"ndarray(({32 * factor}, 512)" in after and f"nl.affine_range({8 // factor})" in after
        assert_same(low, after, *arrays(*shapes))


def test_both_halves_of_the_dma_engines_work_side_by_side() -> None:
    specs = [TensorSpec(shape, "float32") for shape in SHAPES]
    programs = (trace(one, specs, api="nki", chip="trn2") for one in (LOW, applied("fill_partitions", LOW, SHAPES)))
    before, after = (timeline(program).engines["dma"] for program in programs)
    assert after == pytest.approx(before / 2)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("affine_range", "sequential_range"),
        ("affine_range(8)", "affine_range(7)"),
        ("data=b[0:64, 0:512]", "data=b[0:32, 0:512]"),
        ("    for t", "    one = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)\n    for t"),
        ("nl.ndarray((64, 1)", "nl.ndarray((1, 64)"),
        ("tensor_reduce(dst=total, op=nl.add, data=a, axis=1)", "nc_transpose(dst=total, data=a)"),
        ("src=x[0:64", "src=out[0:64"),
        ("operand0=total", "operand0=1.0 * t"),
        ("    return out", "    other = product\n    return out"),
    ],
)
def test_iterations_that_are_not_alike_on_every_partition_stay(old: str, new: str) -> None:
    assert old in LOW
    source = LOW.replace(old, new)
    if "one = " in new:
        source = source.replace("operand0=total", "operand0=one")
    assert sites("fill_partitions", source, SHAPES) == []
