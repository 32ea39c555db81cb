"""Lists of tiles: one tile on the same lines, and the lists again where a rewrite left them alone."""

from __future__ import annotations

import pytest

from acceld.nki.source.launches import Launch
from acceld.nki.source.lists import with_stacked_tiles
from acceld.nki.source.normal import as_before, normalized
from acceld.proposers.rules.proposer import moves
from tests.acceld.proposers.rules.kernels import arrays, current, run

BODY = """
    depth = x.shape[0] // 128
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    lefts = []
    for k in nl.affine_range(depth):
        left = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=x[nl.ds(128 * k, 128), 0:128])
        lefts.append(left)
    rights = []
    for n in nl.affine_range(2):
        column = []
        for k in nl.affine_range(depth):
            right = nl.ndarray(
                (128, 256), dtype=w.dtype, buffer=nl.sbuf
            )
            nisa.dma_copy(dst=right[0:128, 0:256], src=w[nl.ds(128 * k, 128), nl.ds(256 * n, 256)])
            column.append(right)
        rights.append(column)
    for n in nl.affine_range(2):
        total = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(depth):
            nisa.nc_matmul(dst=total, stationary=lefts[k], moving=rights[n][k][0:128, 0:256])
        made = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=made, src=total)
        nisa.dma_copy(dst=out[0:128, nl.ds(256 * n, 256)], src=made)
    return out
"""
KERNEL = current("x, w", BODY)
SHAPES = ((512, 128), (512, 512))


def test_lists_become_axes_of_one_tile_on_the_same_lines() -> None:
    stacked = with_stacked_tiles(KERNEL)
    lines = stacked.splitlines()
    assert len(lines) == len(KERNEL.splitlines())
    assert "    lefts = nl.ndarray((128, depth, 128), dtype=x.dtype, buffer=nl.sbuf)" in lines
    assert "    rights = nl.ndarray((128, 2, depth, 256), dtype=w.dtype, buffer=nl.sbuf)" in lines
    assert "        nisa.dma_copy(dst=lefts[0:128, k, 0:128], src=x[nl.ds(128 * k, 128), 0:128])" in lines
    assert "        # lefts.append(left)" in lines
    product = "nisa.nc_matmul(dst=total, stationary=lefts[0:128, k, 0:128], moving=rights[0:128, n, k, 0:256])"
    assert f"            {product}" in lines
    given = arrays(*SHAPES)
    assert abs(run(stacked, *given) - run(KERNEL, *given)).max() < 1e-4, "numpy adds strided operands in another order"
    assert with_stacked_tiles(stacked) == stacked
    assert as_before(KERNEL, normalized(KERNEL)) == KERNEL


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("lefts[k]", "lefts[k % len(lefts)]"),
        ("lefts[k]", "lefts[-1]"),
        ("        lefts.append(left)", "        lefts.append(left)\n        lefts.append(left)"),
        ("    rights = []", "    other = lefts\n    rights = []"),
        ("nl.ndarray((128, 128), dtype=x.dtype", "nl.ndarray((128, 128 + 0 * k), dtype=x.dtype"),
        ("nl.ndarray((128, 128), dtype=x.dtype", "nl.ndarray(x.shape, dtype=x.dtype"),
        ("dtype=x.dtype, buffer=nl.sbuf)", "dtype=x.dtype, buffer=nl.sbuf, address=(0, 0))"),
        ("@nki.jit", "def part(tile):\n    return tile.ap(pattern=[[128, 128], [1, 128]])\n\n\n@nki.jit"),
        ("    lefts = []", "    lefts = [None]"),
        ("stationary=lefts[k]", "stationary=lefts[k].ap([[128, 128], [1, 128]])"),
        ("        lefts.append(left)", "        if k < 4:\n            lefts.append(left)"),
    ],
)
def test_a_list_that_is_more_than_a_list_of_tiles_stays(before: str, after: str) -> None:
    assert before in KERNEL
    assert "lefts = nl.ndarray(" not in with_stacked_tiles(KERNEL.replace(before, after))


@pytest.mark.parametrize(
    "pattern",
    [
        "stationary=same(lefts[k]).ap([[128, 128], [1, 128]])",
        "stationary=nl.broadcast_to(lefts[k], (128, 128)).ap([[128, 128], [1, 128]])",
        "stationary=kept.ap([[128, 128], [1, 128]])",
        "stationary=kepts[0].ap([[128, 128], [1, 128]])",
    ],
)
def test_a_list_stays_beside_a_pattern_of_what_a_call_returns(pattern: str) -> None:
    source = KERNEL.replace("stationary=lefts[k]", pattern)
    source = source.replace(
        "        made = nl", "        kept = same(lefts[0])\n        kepts = [same(lefts[0])]\n        made = nl"
    )
    source = source.replace("@nki.jit", "def same(tile):\n    return tile\n\n\n@nki.jit")
    assert "lefts = []" in with_stacked_tiles(source)


def test_a_list_of_named_tiles_beside_a_pattern_of_an_argument_is_one_tile_without_a_name() -> None:
    source = KERNEL.replace("dtype=x.dtype, buffer=nl.sbuf)", 'dtype=x.dtype, buffer=nl.sbuf, name=f"left{k}")')
    source = source.replace(
        "src=x[nl.ds(128 * k, 128), 0:128]", "src=x.ap(pattern=[[128, 128], [1, 128]], offset=16384 * k)"
    )
    stacked = with_stacked_tiles(source)
    assert "    lefts = nl.ndarray((128, depth, 128), dtype=x.dtype, buffer=nl.sbuf)" in stacked.splitlines()
    given = arrays(*SHAPES)
    assert abs(run(stacked, *given) - run(KERNEL, *given)).max() < 1e-4
    assert "lefts = []" in with_stacked_tiles(source.replace("x.ap(", "lefts[0].ap("))


def test_every_rewrite_of_a_kernel_with_lists_is_right_and_leaves_other_lists_alone() -> None:
    given = arrays(*SHAPES)
    expected = run(KERNEL, *given)
    made = {move.step: move.apply() for move in moves(KERNEL, Launch("nki", SHAPES))}
    assert len(made) > 3
    for step, source in made.items():
        assert source is not None
        back = as_before(KERNEL, source)
        for text in (source, back):
            assert abs(run(text, *given) - expected).max() < 2e-3, step
    placed = as_before(
        KERNEL, next(source for step, source in made.items() if source and step.startswith("place_engine"))
    )
    assert placed.count(".append(") == KERNEL.count(".append(")
