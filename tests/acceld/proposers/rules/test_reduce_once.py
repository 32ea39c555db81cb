"""One reduction of a whole row in place of one for each part."""

from __future__ import annotations

import pytest

from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import rule_named
from tests.acceld.proposers.rules.kernels import applied, arrays, assert_same, current, legacy, sites

BLOCKS = legacy(
    "x",
    """
    out = nl.ndarray((3, 128, 2048), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    power = nl.ndarray((3, 2, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.ndarray((3, 2, 2, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((3, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(3):
        for a in nl.affine_range(2):
            for b in nl.affine_range(2):
                tile = nl.load(x[row, p, 1024 * a + 512 * b + f])
                power[row, a, b, p, f] = nisa.activation(op=nl.exp, data=tile)
                part[row, a, b, p, 0] = nisa.tensor_reduce(nl.add, data=power[row, a, b, p, f], axis=[1], dtype=nl.float32)
                total[row, p, 0] = nl.loop_reduce(part[row, a, b, p, 0], op=np.add, loop_indices=[a, b], dtype=nl.float32)
        inverse = nisa.reciprocal(data=total[row, p, 0])
        for a in nl.affine_range(2):
            for b in nl.affine_range(2):
                scaled = nisa.tensor_scalar(data=power[row, a, b, p, f], op0=nl.multiply, operand0=inverse)
                nl.store(out[row, p, 1024 * a + 512 * b + f], value=scaled)
    return out
""",
)
SHAPES = [(3, 128, 2048)]
COLUMNS = legacy(
    "x",
    """
    out = nl.ndarray((256, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    f = nl.arange(512)[None, :]
    for row in nl.affine_range(2):
        tile = nl.ndarray((nl.par_dim(128), 2, 1024), dtype=nl.float32, buffer=nl.sbuf)
        part = nl.ndarray((nl.par_dim(128), 4), dtype=nl.float32, buffer=nl.sbuf)
        for a in nl.affine_range(2):
            for b in nl.affine_range(2):
                tile[p, a, 512 * b + f] = nl.load(x[128 * row + p, 1024 * a + 512 * b + f])
                part[p, 2 * a + b] = nisa.tensor_reduce(nl.max, data=tile[p, a, 512 * b + f], axis=[1])
        largest = nisa.tensor_reduce(nl.max, data=part[p, nl.arange(4)[None, :]], axis=[1], negate=True)
        nl.store(out[128 * row + p, 0], value=largest)
    return out
""",
)
SLICES = current(
    "x",
    """
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 2048), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    for c in nl.affine_range(4):
        nisa.dma_copy(dst=tile[0:128, nl.ds(512 * c, 512)], src=x[0:128, nl.ds(512 * c, 512)])
        nisa.tensor_reduce(dst=part[0:128, nl.ds(c, 1)], op=nl.add, data=tile[0:128, nl.ds(512 * c, 512)], axis=1)
    nisa.tensor_reduce(dst=total, op=nl.add, data=part, axis=1)
    nisa.dma_copy(dst=out, src=total)
    return out
""",
)


def test_tiles_in_blocks_are_laid_side_by_side_and_reduced_after_their_loops() -> None:
    after = applied("reduce_once", BLOCKS, SHAPES)
    assert "power = nl.ndarray((3, nl.par_dim(128), 2048)" in after
    assert (
        "total[row, p, 0] = nisa.tensor_reduce(nl.add, data=power[row, nl.arange(128)[:, None], nl.arange(2048)"
        in after
    )
    assert after.count("power[row, p, 1024 * a + 512 * b + f]") == 2
    assert "loop_reduce" not in after and "part" not in after
    assert_same(BLOCKS, after, *arrays(*SHAPES))


def test_loops_further_outside_still_join_their_results() -> None:
    between = BLOCKS.replace(
        "        for a in nl.affine_range(2):\n            for b in nl.affine_range(2):\n                tile",
        "        for a in nl.affine_range(2):\n            for _ in nl.affine_range(1):\n              for b in nl.affine_range(2):\n                tile",
    )
    after = applied("reduce_once", between, SHAPES)
    assert "part[row, a, 0, p, 0] = nisa.tensor_reduce(" in after and "loop_indices=[a]" in after
    assert "power[row, a, nl.arange(128)[:, None], nl.arange(1024)[None, :]]" in after
    assert_same(between, after, *arrays(*SHAPES))


def test_a_reduction_of_the_results_reads_the_whole_row() -> None:
    after = applied("reduce_once", COLUMNS, [(256, 2048)])
    assert "axis=[1, 2], negate=True)" in after and "part" not in after
    assert_same(COLUMNS, after, *arrays((256, 2048)))


def test_slices_of_the_current_api_are_joined() -> None:
    after = applied("reduce_once", SLICES, [(128, 2048)])
    assert "nisa.tensor_reduce(dst=total, op=nl.add, data=tile[0:128, 0:2048], axis=1)" in after
    assert_same(SLICES, after, *arrays((128, 2048)))


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        (BLOCKS, "op=np.add, loop_indices", "op=np.max, loop_indices"),  # another operation joins
        (BLOCKS, "[row, a, b, p, f]", "[row, a, 0, p, f]"),  # each part overwrites the one before
        (BLOCKS, "axis=[1], dtype=nl.float32", "axis=[1], dtype=nl.bfloat16"),  # each part is rounded
        (BLOCKS, "data=power[row, a, b, p, f], axis", "data=power[row, a, b, p, f], mask=p < 100, axis"),
        (BLOCKS, "        inverse =", "        again = nl.copy(part[row, 0, 0, p, 0])\n        inverse ="),
        (BLOCKS, "        inverse =", "        power[row, 0, 0, p, f] = nl.load(x[row, p, f])\n        inverse ="),
        (COLUMNS, "part[p, 2 * a + b]", "part[p, a + b]"),  # two parts share a place
        (COLUMNS, "part[p, nl.arange(4)[None, :]]", "part[p, nl.arange(3)[None, :]]"),  # one part is left out
        (COLUMNS, "tile[p, a, 512 * b + f]", "tile[p, a, 256 * b + f]"),  # parts overlap
        (COLUMNS, "nl.max, data=part", "nl.add, data=part"),
        (SLICES, "nl.ds(512 * c, 512)], axis", "nl.ds(512 * c, 256)], axis"),  # a part of each tile
    ],
)
def test_anything_but_one_reduction_in_parts_is_left_alone(source: str, old: str, new: str) -> None:
    changed = source.replace(old, new)
    assert changed != source
    shapes = [(128, 2048)] if source is SLICES else SHAPES if source is BLOCKS else [(256, 2048)]
    assert not sites("reduce_once", changed, shapes)


def test_the_reason_of_a_refusal_is_named() -> None:
    shared = BLOCKS.replace("[row, a, b, p, f]", "[row, a, 0, p, f]")
    (refusal,) = rule_named("reduce_once").refusals(KernelModule(shared, "nki_legacy", SHAPES))
    assert "power has no place for each iteration of b" in refusal.precondition
