"""Iterations on tiles of few partitions, stacked along the partitions."""

from __future__ import annotations

import pytest

from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.timing.timeline import timeline
from tests.acceld.proposers.rules.kernels import applied, arrays, assert_same, current, legacy, sites

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


HALVES = legacy(
    "x, cos",
    """
    rows, length = x.shape
    out = nl.ndarray((rows, length), dtype=x.dtype, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    upper = nl.arange(64)[:, None]
    lower = upper + 64
    width = 512
    f = nl.arange(width)[None, :]
    for at in range(0, length, width):
        x_tile = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.sbuf)
        x_tile[p, f] = nl.load(x[p, f + at])
        # the same for both halves
        angle = nl.load(cos[upper, f + at])
        even = x_tile[upper, f]
        odd = nl.copy(x_tile[lower, f])
        result = nl.ndarray((rows, width), dtype=x_tile.dtype, buffer=nl.sbuf)
        turned = nisa.tensor_tensor(odd, angle, op=nl.multiply)
        result[upper, f] = nisa.tensor_tensor(even, turned, op=nl.subtract)
        result[lower, f] = nisa.tensor_tensor(odd, angle, op=nl.add)
        nl.store(out[p, f + at], value=result)
    return out
""",
)
HALVED = [(128, 2048), (64, 2048)]


def test_halves_that_are_used_apart_get_tiles_of_their_own_that_hold_two_iterations() -> None:
    after = applied("fill_partitions", HALVES, HALVED)
    assert "for at in range(0, length, 2 * width):" in after and "# the same for both halves" in after
    assert after.count("nl.load(x[") == 4 and after.count("nl.store(") == 4 and after.count("tensor_tensor") == 3
    assert "x[64 + nl.arange(64)[:, None], f + (at + width)]" in after and "x_tile = " not in after
    assert_same(HALVES, after, *arrays(*HALVED))


def test_a_parallel_loop_of_stacked_halves_has_half_the_iterations() -> None:
    parallel = HALVES.replace("range(0, length, width)", "nl.affine_range(4)").replace("f + at", "f + width * at")
    after = applied("fill_partitions", parallel, HALVED)
    assert "nl.affine_range(2)" in after and "f + width * (2 * at + 1)" in after
    assert_same(parallel, after, *arrays(*HALVED))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("width = 512", "width = 2048"),  # a single iteration
        ("cos[upper, f + at]", "cos[upper, f + at], mask=f < 500"),
        ("nisa.tensor_tensor(odd, angle, op=nl.add)", "nisa.tensor_tensor(odd, weight, op=nl.add)"),  # same in all
        ("op=nl.add)", "op=nl.add)\n        nl.store(out[p, f], value=result)"),  # the order of stores would change
        ("even = x_tile[upper, f]", "even = result_before[upper, f]"),
        ("odd = nl.copy(x_tile[lower, f])", "odd = nl.softmax(x_tile[lower, f], axis=[1])"),
        ("turned = nisa", "result[lower, f] = nisa.nc_transpose(odd)\n        turned = nisa"),
        ("    return out", "    nl.store(out[upper, f], value=turned)\n    return out"),
    ],
)
def test_halves_of_iterations_that_share_something_stay_as_they_are(old: str, new: str) -> None:
    changed = HALVES.replace(old, new)
    assert changed != HALVES and sites("fill_partitions", changed, HALVED) == []
