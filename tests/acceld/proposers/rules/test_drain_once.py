"""One copy out of PSUM for the results of several products."""

from __future__ import annotations

import pytest

from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import rule_named
from tests.acceld.proposers.rules.kernels import applied, arrays, assert_same, legacy, sites

TURNED = legacy(
    "x",
    """
    out = nl.ndarray((2, 8, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    eye = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.load(eye[p, c])
    flipped = nl.zeros((2, 8, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
    kept = nl.ndarray((2, 8, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    for row in nl.affine_range(2):
        tile = nl.load(x[row, p, nl.arange(1024)[None, :]])
        for i in nl.affine_range(8):
            flipped[row, i, p, c] = nisa.nc_matmul(tile[p, 128 * i + c], identity[p, c], is_transpose=True)
            kept[row, i, p, c] = nl.copy(flipped[row, i, p, c])
            ' end loop i '
        for i in nl.affine_range(8):
            nl.store(out[row, i, p, c], value=kept[row, i, p, c])
    return out
""",
)
SHAPES = [(2, 128, 1024)]
PARTS = legacy(
    "x",
    """
    out = nl.ndarray((4, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    eye = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.load(eye[p, c])
    left = nl.ndarray((nl.par_dim(128), 4, 256), dtype=nl.float32, buffer=nl.sbuf)
    factor = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
    factor[p, 0] = nl.load(x[0, p, 0])
    for row in nl.affine_range(2):
        for i in nl.affine_range(4):
            # each with a load of its own
            tile = nl.load(x[0, p, 512 * row + 128 * i + c], dtype=nl.float32)
            turned = nisa.nc_matmul(tile[p, c], identity[p, c], is_transpose=True)
            scaled = nisa.tensor_scalar(data=turned, op0=nl.multiply, operand0=factor[p, 0])
            left[p, i, 128 * row + c] = nl.add(scaled, 1.0)
    for i in nl.affine_range(4):
        nl.store(out[i, p, c], value=nl.add(left[p, i, c], left[p, i, 128 + c]))
    return out
""",
)
SUMS = legacy(
    "x, w",
    """
    out = nl.ndarray((4, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    both = nl.ndarray((4, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        total = nl.zeros((nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            total[p, c] += nisa.nc_matmul(nl.load(x[k, p, c]), nl.load(w[i, k, p, c]))
        both[i, p, c] = nl.copy(total[p, c])
        nl.store(out[i, p, c], value=both[i, p, c])
    return out
""",
)


def test_four_results_share_a_bank_and_one_copy() -> None:
    after = applied("drain_once", TURNED, SHAPES)
    assert (
        "flipped = nl.zeros((2, 2, nl.par_dim(128), 512)" in after
        and "kept = nl.ndarray((2, nl.par_dim(128), 1024)" in after
    )
    assert "for i in nl.affine_range(2):\n            for i_part in nl.affine_range(4):" in after
    assert "flipped[row, i, nl.arange(128)[:, None], 128 * i_part + nl.arange(128)[None, :]] = nisa.nc_matmul(" in after
    assert after.count("nl.copy(") == 1 and "512 * i + nl.arange(512)[None, :]] = nl.copy(" in after
    assert "value=kept[row, p, 128 * i + c]" in after
    assert_same(TURNED, after, *arrays(*SHAPES))


def test_a_tile_of_each_iteration_is_declared_before_the_loop_and_strided_tiles_are_taken_together() -> None:
    shapes = [(1, 128, 1024)]
    after = applied("drain_once", PARTS, shapes)
    assert "turned = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)" in after
    assert (
        "left[nl.arange(128)[:, None, None], nl.arange(4)[None, :, None], 128 * row + nl.arange(128)[None, None, :]]"
        in after
    )
    assert after.index("turned = ") < after.index("# each with a load") < after.index("scaled = ")
    assert_same(PARTS, after, *arrays(*shapes))


def test_sums_of_products_that_each_iteration_declares_share_a_bank_and_the_rest_keeps_its_loop() -> None:
    shapes = [(2, 128, 128), (4, 2, 128, 128)]
    after = applied("drain_once", SUMS, shapes)
    assert (
        after.count("total = nl.zeros((nl.par_dim(128), 512)") == 1 and after.count("for i in nl.affine_range(4):") == 2
    )
    assert after.index("total = ") < after.index("for i in") < after.index("nl.copy(") < after.rindex("for i in")
    assert_same(SUMS, after, *arrays(*shapes))


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        (TURNED, "flipped[row, i, p, c]", "flipped[row, 0, p, c]"),  # one place for all
        (TURNED, "i in nl.affine_range(8):\n            flipped", "i in nl.sequential_range(8):\n            flipped"),
        (TURNED, "nl.copy(flipped[row, i, p, c])", "nl.copy(flipped[row, i, p, c], mask=p < 100)"),
        (TURNED, "kept[row, i, p, c] = nl.copy", "kept[row, 7 - i, p, c] = nl.copy"),  # in the other order
        (
            TURNED,
            "nl.copy(flipped[row, i, p, c])",
            "nl.add(flipped[row, i, p, c], tile[p, 128 + c])",
        ),  # the same for all
        (PARTS, "left[p, i, 128 * row + c] = ", "left[p, 0, 128 * row + c] = "),
        (PARTS, "operand0=factor[p, 0]", "operand0=tile[p, 0]"),  # another number in each iteration
        (SUMS, "nl.copy(total[p, c])", "nl.copy(total[p, nl.arange(64)[None, :]])"),
        (SUMS, "value=both[i, p, c]", "value=nl.add(both[i, p, c], total[p, c])"),  # still read from PSUM afterwards
    ],
)
def test_anything_but_tiles_with_places_of_their_own_is_left_alone(source: str, old: str, new: str) -> None:
    changed = source.replace(old, new)
    assert changed != source
    shapes = {TURNED: SHAPES, PARTS: [(1, 128, 1024)]}.get(source, [(2, 128, 128), (4, 2, 128, 128)])
    assert not sites("drain_once", changed, shapes)


def test_the_reason_of_a_refusal_is_named() -> None:
    shared = TURNED.replace("flipped[row, i, p, c]", "flipped[row, 0, p, c]")
    (refusal,) = rule_named("drain_once").refusals(KernelModule(shared, "nki_legacy", SHAPES))
    assert "flipped in PSUM has no place for each iteration" in refusal.precondition
