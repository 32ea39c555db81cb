"""A loop over parts of wide tiles moves outside, to the work that makes the tiles."""

from __future__ import annotations

import pytest

from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import rule_named
from tests.acceld.proposers.rules.kernels import applied, arrays, assert_same, legacy, sites

BLOCKS = legacy(
    "x, w",
    """
    out = nl.ndarray((2, 3, 128, 1024), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    wide = nl.arange(1024)[None, :]
    left = nl.ndarray((3, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    right = nl.ndarray((2, 2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    twice = nl.ndarray((2, 2, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.zeros((2, 3, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    made = nl.ndarray((2, 3, nl.par_dim(128), 1024), dtype=nl.float32, buffer=nl.sbuf)
    for m in nl.affine_range(3):
        for k in nl.affine_range(2):
            left[m, k, p, c] = nl.load(x[128 * k + p, 128 * m + c])
    for n in nl.affine_range(2):
        # the operand
        for k in nl.affine_range(2):
            right[n, k, p, wide] = nl.load(w[128 * k + p, wide + 1024 * n])
            twice[n, k, p, wide] = nl.multiply(right[n, k, p, wide], 2.0)
            ' end loop k '
        # the products
        for m in nl.affine_range(3):
            for h in nl.affine_range(2):
                for k in nl.affine_range(2):
                    part[n, m, h, p, f] += nisa.nc_matmul(left[m, k, p, c], twice[n, k, p, 512 * h + f])
                made[n, m, p, 512 * h + f] = nl.copy(part[n, m, h, p, f])
                ' end loop h '
            nl.store(out[n, m, p, wide], value=made[n, m, p, wide])
            ' end loop m '
    return out
""",
)
SHAPES = [(256, 384), (256, 2048)]


def test_the_loop_over_parts_moves_to_the_loads_and_stores_are_split() -> None:
    after = applied("block_columns", BLOCKS, SHAPES)
    assert [line.strip() for line in after.splitlines() if "for " in line][2:] == [
        "for n in nl.affine_range(2):",
        "for h in nl.affine_range(2):",
        "for k in nl.affine_range(2):",
        "for m in nl.affine_range(3):",
        "for k in nl.affine_range(2):",
    ]
    part = "512 * h + nl.arange(512)[None, :]"
    assert f"twice[n, k, p, {part}] = nl.multiply(right[n, k, p, {part}], 2.0)" in after
    assert f"nl.load(w[128 * k + p, {part} + 1024 * n])" in after
    assert f"nl.store(out[n, m, p, {part}], value=made[n, m, p, {part}])" in after
    assert after.count("# the operand") == after.count("# the products") == 1
    assert_same(BLOCKS, after, *arrays(*SHAPES))


def test_a_smaller_part_within_the_part_of_an_iteration_is_one() -> None:
    narrow = BLOCKS.replace("twice[n, k, p, 512 * h + f])", "twice[n, k, p, 512 * h + 128 * q + c])")
    narrow = narrow.replace("part[n, m, h, p, f] +=", "part[n, m, h, p, 128 * q + c] +=").replace(
        "                for k in nl.affine_range(2):\n                    part",
        "                for q in nl.affine_range(4):\n                  for k in nl.affine_range(2):\n                    part",
    )
    assert_same(narrow, applied("block_columns", narrow, SHAPES), *arrays(*SHAPES))


def test_a_tile_on_the_way_to_the_wide_one_becomes_as_narrow_as_its_part() -> None:
    local = BLOCKS.replace("right[n, k, p, wide] = ", "tile = ").replace("right[n, k, p, wide]", "tile")
    after = applied("block_columns", local, SHAPES)
    assert "512 * h + nl.arange(512)[None, :]] = nl.multiply(tile, 2.0)" in after
    assert_same(local, after, *arrays(*SHAPES))
    indexed = local.replace("multiply(tile,", "multiply(tile[p, wide],")
    assert sites("block_columns", indexed, SHAPES) == []


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("for m in nl.affine_range(3):\n            for h", "for m in nl.sequential_range(3):\n            for h",
         "m is a sequential_range"),
        ("twice[n, k, p, 512 * h + f])", "twice[n, k, p, 512 * h + f - 128 * m])", None),
        ("twice[n, k, p, 512 * h + f])", "twice[n, k, p, 256 * h + f])", None),
        ("nl.multiply(right[n, k, p, wide], 2.0)", "nl.multiply(right[n, k, p, 1023 - wide], 2.0)", "are used"),
        ("nl.multiply(right[n, k, p, wide], 2.0)", "nl.softmax(right[n, k, p, wide], axis=1)", "element-wise"),
        ("w[128 * k + p, wide + 1024 * n])", "w[128 * k + p, wide + 1024 * n], mask=(wide < 1000))", "mask"),
        ("part[n, m, h, p, f] += ", "part[n, m, 0, p, f] += ", "running sum"),
        ("nl.store(out[n, m, p, wide], value=made[n, m, p, wide])",
         "nl.store(out[n, m, p, wide], value=twice[n, 0, p, wide])", "twice is also used in another way"),
        ("nl.store(out[n, m, p, wide], value=made[n, m, p, wide])",
         "nl.store(out[n, m, p, wide], value=made[n, m, p, 1023 - wide])", "not all 1024 columns are stored"),
        ("made[n, m, p, 512 * h + f] = ", "made[n, m, p, 512 * (1 - h) + f] = ", "made is not written by the same parts"),
        ("            ' end loop m '", "            nl.store(out[n, m, p, f], value=twice[n, 0, p, f])",
         "used in another way"),
        ("    return out", "    nl.store(out[0, 0, p, wide], value=right[0, 0, p, wide])\n    return out",
         "right is also used in another way"),
        ("        # the products", "        right[n, 0, p, wide] = nl.multiply(right[n, 0, p, wide], 3.0)", "stands between"),
        ("        # the products", "        left[0, 0, p, c] = nl.copy(twice[n, 0, p, c])", "stands between"),
        ("        # the operand", "        same = twice", "may have another name"),
        ("made[n, m, p, 512 * h + f] = nl.copy(part[n, m, h, p, f])",
         "made[n, m, p, 512 * h + f] = nisa.activation_reduce(op=nl.exp, data=part[n, m, h, p, f], reduce_op=np.add, reduce_res=sums)",
         "second result"),
    ],
)  # fmt: skip
def test_a_loop_stays_where_its_parts_may_be_used_in_another_way(old: str, new: str, reason: str | None) -> None:
    assert old in BLOCKS
    changed = BLOCKS.replace(old, new)
    assert sites("block_columns", changed, SHAPES) == []
    refused = rule_named("block_columns").refusals(KernelModule(changed, "nki_legacy", SHAPES))
    assert len(refused) == (reason is not None)
    assert all((reason or "") in one.precondition for one in refused)
