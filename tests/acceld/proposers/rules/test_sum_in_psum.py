"""A loop with a running sum of products moves to the products, and PSUM holds the whole sum."""

from __future__ import annotations

import numpy as np
import pytest

from acceld.nki.source.reading import KernelModule
from acceld.proposers.rules import rule_named
from tests.acceld.proposers.rules.kernels import Array, applied, arrays, legacy, run, sites

BLOCKED = legacy(
    "x, w",
    """
    out = nl.ndarray((2, 3, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange(128)[:, None]
    c = nl.arange(128)[None, :]
    f = nl.arange(512)[None, :]
    right = nl.ndarray((2, 4, 2, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
    left = nl.ndarray((4, 2, 3, 2, nl.par_dim(128), 128), dtype=nl.float32, buffer=nl.sbuf)
    part = nl.zeros((2, 4, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    total = nl.full((2, 3, nl.par_dim(128), 512), 0.0, dtype=nl.float32, buffer=nl.sbuf)
    for n in nl.affine_range(2):
        # a block of the sum
        for s in nl.sequential_range(4):
            for k in nl.affine_range(2):
                right[n, s, k, p, f] = nl.load(w[256 * s + 128 * k + p, 512 * n + f])
            for m in nl.affine_range(3):
                # the operand
                for k in nl.affine_range(2):
                    left[s, n, m, k, p, c] = nl.load(x[256 * s + 128 * k + p, 128 * m + c])
                for k in nl.affine_range(2):
                    part[n, s, m, p, f] += nisa.nc_matmul(left[s, n, m, k, p, c], right[n, s, k, p, f])
                total[n, m, p, f] = nl.loop_reduce(part[n, s, m, p, f], op=np.add, loop_indices=[s], dtype=nl.float32)
                ' end loop m '
            ' end loop s '
        for m in nl.affine_range(3):
            nl.store(out[n, m, p, f], value=total[n, m, p, f])
    return out
""",
)
SHAPES = [(1024, 384), (1024, 1024)]
ADDED = BLOCKED.replace(
    "nl.loop_reduce(part[n, s, m, p, f], op=np.add, loop_indices=[s], dtype=nl.float32)",
    "nl.add(total[n, m, p, f], part[n, s, m, p, f])",
)


def assert_close(before: str, after: str, *inputs: Array) -> None:
    """Check that both kernels give the same sums but for their order in float32."""
    expected = run(before, *inputs)
    for shuffle in (None, 3):
        assert np.linalg.norm(run(after, *inputs, shuffle=shuffle) - expected) < 1e-6 * np.linalg.norm(expected)


def test_the_loop_moves_to_loads_and_products() -> None:
    after = applied("sum_in_psum", BLOCKED, SHAPES)
    assert "sequential_range" not in after and after.count("for s in nl.affine_range(4):") == 2
    assert after.index("right[n, s, k") < after.index("for m in") < after.index("# the operand")
    assert "part = nl.zeros((2, 3, nl.par_dim(128), 512)" in after
    assert "part[n, m, p, f] += " in after and "total[n, m, p, f] = nl.copy(part[n, m, p, f])" in after
    assert_close(BLOCKED, after, *arrays(*SHAPES))


def test_what_every_block_of_columns_repeats_may_be_done_before() -> None:
    scaled = BLOCKED.replace(
        "left[s, n, m, k, p, c] = nl.load(x[256 * s + 128 * k + p, 128 * m + c])",
        "tile = nl.load(x[256 * s + 128 * k + p, 128 * m + c])\n"
        "                    left[s, n, m, k, p, c] = nl.multiply(tile, 2.0)",
    )
    before, inside = (applied("sum_in_psum", scaled, SHAPES, variant=number) for number in (0, 1))
    assert before.index("left[s, m, k, p, c] = nl.multiply") < before.index("for n in") < before.index("part[n, m")
    assert inside.index("for n in") < inside.index("left[s, n, m, k, p, c] = nl.multiply")
    for after in (before, inside):
        assert_close(scaled, after, *arrays(*SHAPES))


@pytest.mark.parametrize(
    "addition",
    ["= nl.add(total[n, m, p, f], part[n, s, m, p, f])", "+= part[n, s, m, p, f]",
     "= nisa.tensor_tensor(part[n, s, m, p, f], total[n, m, p, f], op=nl.add)"],
)  # fmt: skip
def test_an_addition_to_zeros_is_such_a_sum(addition: str) -> None:
    added = ADDED.replace("= nl.add(total[n, m, p, f], part[n, s, m, p, f])", addition)
    after = applied("sum_in_psum", added, SHAPES)
    assert "total[n, m, p, f] = nl.copy(part[n, m, p, f])" in after
    assert_close(added, after, *arrays(*SHAPES))


def test_a_part_that_each_iteration_declares_is_declared_once() -> None:
    declared = ADDED.replace(
        "    part = nl.zeros((2, 4, 3, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)\n", ""
    )
    declared = declared.replace("part[n, s, m, p, f]", "part[p, f]").replace(
        "                # the operand\n",
        "                part = nl.zeros((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)\n",
    )
    after = applied("sum_in_psum", declared, SHAPES)
    assert after.index("part = nl.zeros") < after.rindex("for s in nl.affine_range(4):")
    assert_close(declared, after, *arrays(*SHAPES))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("0.0, dtype", "1.0, dtype", "does not begin with zeros"),
        ("part[n, s, m, p, f])", "part[n, s, m, p, f], mask=(p < 100))", None),
        ("nl.add(total", "nl.subtract(total", None),
        ("    total = nl.full((2, 3, nl.par_dim(128), 512), 0.0, dtype=nl.float32",
         "    total = nl.full((2, 3, nl.par_dim(128), 512), 0.0, dtype=nl.bfloat16", "is not a sum in float32"),
        ("total[n, m, p, f] = nl.add(total[n, m, p, f]", "total[n, m // 2, p, f] = nl.add(total[n, m // 2, p, f]",
         "no place for every iteration of the other loops"),
        ("for m in nl.affine_range(3):\n                #", "for m in nl.sequential_range(3):\n                #",
         "m is a sequential_range"),
        ("right[n, s, k, p, f])\n", "right[n, 0, k, p, f])\n", "right has no place for every iteration of s"),
        ("right = nl.ndarray((2, 4, 2, ", "right = nl.ndarray((2, 5, 2, ", "right has no place for every iteration of s"),
        ("left[s, n, m, k, p, c] = nl.load", "left[3 - s, n, m, k, p, c] = nl.load", "left has no place"),
        ("                ' end loop m '", "                nl.store(out[n, m, p, f], value=total[n, m, p, f])",
         "total is also used in the loop"),
        ("            ' end loop s '", "            nl.store(out[n, s % 3, p, f], value=right[n, s, 0, p, f])", "out is stored"),
        ("part[n, s, m, p, f] += nisa.nc_matmul", "part[n, s, m, p, f] = nisa.nc_matmul", "is not only a sum of products"),
        ("right[n, s, k, p, f])\n", "right[n, s, k, p, f], mask=(p < 100))\n", "is not only a sum of products"),
        ("part = nl.zeros((2, 4, 3, nl.par_dim(128), 512), dtype=nl.float32",
         "part = nl.zeros((2, 4, 3, nl.par_dim(128), 512), dtype=nl.bfloat16", "is not a sum in float32"),
        ("part = nl.zeros(", "part = nl.ndarray(", "begins with zeros"),
        ("            for k in nl.affine_range(2):\n                right",
         "            other = total\n            for k in nl.affine_range(2):\n                right", "not understood"),
        ("right[n, s, k, p, f] = nl.load(w[256 * s + 128 * k + p, 512 * n + f])",
         "row = nl.load(w[256 * s + 128 * k + p, 512 * n + f])", "row is used both"),
    ],
)  # fmt: skip
def test_a_loop_stays_where_its_iterations_may_share_more_than_the_sum(old: str, new: str, reason: str | None) -> None:
    assert old in ADDED
    changed = ADDED.replace(old, new)
    if new.startswith("row"):
        changed = changed.replace("part[n, s, m, p, f] += nisa.nc_matmul(left[s, n, m, k, p, c], right[n, s, k, p, f])",
                                  "part[n, s, m, p, f] += nisa.nc_matmul(left[s, n, m, k, p, c], row)")  # fmt: skip
    assert sites("sum_in_psum", changed, SHAPES) == []
    refused = rule_named("sum_in_psum").refusals(KernelModule(changed, "nki_legacy", SHAPES))
    assert [one.precondition for one in refused if (reason or "") in one.precondition] or reason is None
    assert len(refused) == (reason is not None)
