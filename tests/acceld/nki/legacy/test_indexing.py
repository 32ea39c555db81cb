"""Index forms of the legacy API against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from acceld.nki.errors import LegalityError, UnsupportedCall
from tests.properties import examples

STORE = """
@nki.jit
def kernel(x):
    out = nl.ndarray({shape}, dtype=x.dtype, buffer=nl.shared_hbm)
{body}
    return out
"""


def kernel(shape: str, body: str) -> str:
    return STORE.format(shape=shape, body="\n".join(f"    {line}" for line in body.strip().splitlines()))


def test_arange_rows_and_columns_with_scale_and_offset(run_kernel: Any, random: Any) -> None:
    x = random(64, 96)
    body = """
r = nl.arange(16)[:, None]
c = nl.arange(32)[None, :]
nl.store(out[r, c], nl.load(x[2 * r + 5, 3 * c]))
"""
    got = run_kernel(kernel("(16, 32)", body), x)
    np.testing.assert_array_equal(got, x[5:37:2, 0:96:3])


def test_arange_over_two_axes_of_one_dimension_splits_it(run_kernel: Any, random: Any) -> None:
    x = random(8, 12)
    body = """
p, a, b = nl.arange(8)[:, None, None], nl.arange(3)[None, :, None], nl.arange(4)[None, None, :]
tile = nl.load(x[p, 4 * a + b])
nl.store(out[p, b, a], tile)
"""
    got = run_kernel(kernel("(8, 4, 3)", body), x)
    np.testing.assert_array_equal(got, x.reshape(8, 3, 4).transpose(0, 2, 1))


def test_loop_variables_move_slices_and_dynamic_slices(run_kernel: Any, random: Any) -> None:
    x = random(256, 64)
    body = """
for i in nl.affine_range(2):
    for j in nl.affine_range(4):
        tile = nl.load(x[i * 128:(i + 1) * 128, nl.ds(j * 16, 16)])
        nl.store(out[nl.ds(128 - i * 128, 128), j * 16:j * 16 + 16], tile)
"""
    got = run_kernel(kernel("(256, 64)", body), x)
    np.testing.assert_array_equal(got, np.concatenate([x[128:], x[:128]]))


def test_ranges_with_start_and_step_fold_into_the_index(run_kernel: Any, random: Any) -> None:
    x = random(128, 64)
    body = """
for j in nl.affine_range(8, 40, 8):
    nl.store(out[:, nl.ds(j - 8, 8)], nl.load(x[:, nl.ds(j, 8)]))
"""
    got = run_kernel(kernel("(128, 32)", body), x)
    np.testing.assert_array_equal(got, x[:, 8:40])


def test_mgrid_is_dense_and_names_its_axes(run_kernel: Any, random: Any) -> None:
    x = random(16, 40)
    body = """
i = nl.mgrid[0:16, 0:20]
nl.store(out[i.p, i.x], nl.load(x[i.p, 2 * i.x + 1]))
"""
    got = run_kernel(kernel("(16, 20)", body), x)
    np.testing.assert_array_equal(got, x[:, 1::2])


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("x[2, 0:128, 3]", (128, 1)),
        ("x[2, 5, 0:16]", (1, 16)),
        ("x[2, 0:128, 0:16]", (128, 16)),
        ("x[-1]", (128, 16)),
        ("x[1, ..., 4:8]", (128, 4)),
        ("x[0, 0:128:2, :]", (64, 16)),
        ("x[0, 3, 5]", (1, 1)),
    ],
)
def test_integers_drop_axes_but_a_tile_keeps_two(run_kernel: Any, random: Any, index: str, expected: Any) -> None:
    x = random(4, 128, 16)
    got = run_kernel(kernel(str(expected), f"tile = nl.load({index})\nnl.store(out, tile)"), x)
    np.testing.assert_array_equal(got, eval(index, {"x": x}).reshape(expected))  # the literals above


@pytest.mark.parametrize("index", ["x[1][2][i:i + 1]", "x[1][2][i]", "x[1][2, i]", "x[1][2][0:4][i]", "x[1][2][0, i]"])
def test_an_argument_may_be_indexed_step_by_step(run_kernel: Any, random: Any, index: str) -> None:
    x = random(2, 3, 4)
    body = f"for i in nl.affine_range(4):\n    nl.store(out[0:1, i:i + 1], nl.load({index}))\n"
    np.testing.assert_array_equal(run_kernel(kernel("(1, 4)", body), x), x[1, 2][None])


def test_an_integer_partition_index_keeps_the_partition_axis(run_kernel: Any, random: Any) -> None:
    x = random(64, 8, 16)
    body = """
tile = nl.load(x)
nl.store(out, tile[32, 0:8, 0:16])
"""
    got = run_kernel(kernel("(1, 8, 16)", body), x)
    np.testing.assert_array_equal(got, x[32:33])


def test_views_of_views_compose(run_kernel: Any, random: Any) -> None:
    x = random(4, 128, 64)
    body = """
half = x[3][:, 32:64]
tile = nl.load(half[:, 8:24])
piece = tile[0:64]
nl.store(out, piece[:, 4:12])
"""
    got = run_kernel(kernel("(64, 8)", body), x)
    np.testing.assert_array_equal(got, x[3][:64, 44:52])


def test_block_dimensions_index_like_a_list_of_tiles(run_kernel: Any, random: Any) -> None:
    x = random(384, 32)
    body = """
t = nl.ndarray((3, par_dim(128), 32), dtype=x.dtype, buffer=nl.sbuf)
for i in nl.affine_range(3):
    t[i] = nl.load(x[nl.ds(i * 128, 128), :])
for i in nl.affine_range(3):
    nl.store(out[nl.ds(i * 128, 128), :], t[2 - i])
"""
    got = run_kernel(kernel("(384, 32)", body), x)
    np.testing.assert_array_equal(got, np.concatenate([x[256:], x[128:256], x[:128]]))


def test_a_reshape_that_splits_and_merges_dimensions_of_an_argument(run_kernel: Any, random: Any) -> None:
    x = random(6, 20, 8)
    body = """
flat = x.reshape((120, 8))
back = out.reshape((40, 3, 8))
for i in nl.affine_range(3):
    rows = 40 * i + nl.arange(40)[:, None]
    c = nl.arange(8)[None, :]
    nl.store(back[nl.arange(40)[:, None], i, c], nl.load(flat[rows, c]))
"""
    got = run_kernel(kernel("(120, 8)", body), x)
    np.testing.assert_array_equal(got, x.reshape(3, 40, 8).transpose(1, 0, 2).reshape(120, 8))


def test_a_result_may_be_returned_in_another_shape(run_kernel: Any, random: Any) -> None:
    x = random(32, 24)
    got = run_kernel(
        """
@nki.jit
def kernel(x):
    out = nl.ndarray((32, 24), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out.reshape((4, 8, 24))
""",
        x,
    )
    np.testing.assert_array_equal(got, x.reshape(4, 8, 24))


def test_reshapes_of_tiles_merge_and_split_free_axes(run_kernel: Any, random: Any) -> None:
    x = random(16, 4, 6)
    body = """
t = nl.ndarray((par_dim(16), 4, 6), dtype=x.dtype, buffer=nl.sbuf)
t[...] = nl.load(x)
nl.store(out, t[:, 1:4, :].reshape((16, 18)))
"""
    got = run_kernel(kernel("(16, 18)", body), x)
    np.testing.assert_array_equal(got, x[:, 1:].reshape(16, 18))


def test_quotient_and_remainder_of_a_loop_variable_stay_affine_where_they_are(trace_kernel: Any, random: Any) -> None:
    x = random(128, 64)
    body = """
for i in nl.affine_range(4):
    j = (16 * i + 3) // 8
    nl.store(out[:, nl.ds(8 * j, 16)], nl.load(x[:, nl.ds((16 * i + 3) % 8 + 16 * i - 3, 16)]))
"""
    program = trace_kernel(kernel("(128, 64)", body), x)
    assert len(program.loops) == 1


def test_quotient_and_remainder_split_a_loop_in_two(run_kernel: Any, trace_kernel: Any, random: Any) -> None:
    x = random(128, 96)
    body = """
total = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.sbuf)
for i in nl.affine_range(6):
    tile = nl.load(x[:, nl.ds(16 * i, 16)])
    total[...] = nl.loop_reduce(tile, op=np.add, loop_indices=[i])
    nl.store(out[i // 3, :, nl.ds(16 * (i % 3), 16)], tile)
nl.store(out[2, :, 0:16], total)
nl.store(out[2, :, 16:48], nl.load(x[:, 0:32]))
"""
    source = kernel("(3, 128, 48)", body)
    got = run_kernel(source, x)
    np.testing.assert_array_equal(got[:2], x.reshape(128, 2, 48).transpose(1, 0, 2))
    np.testing.assert_allclose(got[2, :, :16], x.reshape(128, 6, 16).sum(1), rtol=1e-5, atol=1e-5)
    assert [(loop.name, loop.trips) for loop in trace_kernel(source, x).loops.values()] == [("i", 2), ("i", 3)]


def test_quotients_that_fit_no_split_unroll_the_loop(run_kernel: Any, random: Any) -> None:
    x = random(128, 80)
    body = """
for i in nl.affine_range(5):
    nl.store(out[:, nl.ds(32 * (i // 2) + 16 * (i % 2), 16)], nl.load(x[:, nl.ds(16 * i, 16)]))
"""
    np.testing.assert_array_equal(run_kernel(kernel("(128, 80)", body), x), x)


def test_an_index_tile_gathers_rows(run_kernel: Any, random: Any) -> None:
    x = random(40, 16)
    rows = np.array([[3], [39], [0], [7]], np.int32)
    got = run_kernel(
        """
@nki.jit
def kernel(x, rows):
    out = nl.ndarray((4, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    at = nl.load(rows)
    nl.store(out, nl.load(x[at, nl.arange(16)[None, :]]))
    return out
""",
        x,
        rows,
    )
    np.testing.assert_array_equal(got, x[rows[:, 0]])


def test_an_index_tile_gathers_blocks_of_two_axes(run_kernel: Any, random: Any) -> None:
    x = random(40, 4, 16)
    rows = np.array([[3], [39], [0], [7]], np.int32)
    got = run_kernel(
        """
@nki.jit
def kernel(x, rows):
    out = nl.ndarray((4, 4, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    at = nl.load(rows)
    nl.store(out, nl.load(x[at[nl.arange(4)[:, None], 0], nl.arange(4)[None, :, None], nl.arange(16)[None, None, :]]))
    return out
""",
        x,
        rows,
    )
    np.testing.assert_array_equal(got, x[rows[:, 0]])


@pytest.mark.parametrize(
    ("line", "rule", "part"),
    [
        ("nl.load(x[nl.arange(8)[:, None], 0:4])", "mixed_indexing", "mixing of basic and advanced"),
        ("nl.load(x[0:8, 0:65])", "out_of_bounds", "index range [0, 64] exceed dimension size of 64"),
        ("nl.load(x[nl.arange(128)[:, None] + 1, nl.arange(4)[None, :]])", "out_of_bounds", "dimension 0"),
        ("nl.load(x[0, 1, 2])", "index_rank", "too many indices"),
        ("nl.load(x[nl.arange(8)[:, None]])", "index_rank", "2 dimensions"),
        ("nl.load(x[0:8, 'a'])", "index_type", "str"),
        ("nl.load(x[nl.arange(8)[:, None] // 3, nl.arange(4)[None, :]])", "non_affine_index", "not affine"),
        ("nl.load(x[nl.arange(8)[:, None] + nl.arange(4)[:, None], 0])", "index_shape", "can not be combined"),
        ("nl.load(x.reshape((64, 64)))", "shape", "can not be reshaped"),
        ("nl.load(x[0:8, 0:4].reshape((4, 8))[0:3])", "unsupported", "do not form a strided view"),
    ],
)
def test_a_bad_index_names_its_rule_and_line(trace_kernel: Any, random: Any, line: str, rule: str, part: str) -> None:
    with pytest.raises((LegalityError, UnsupportedCall)) as caught:
        trace_kernel(kernel("(8, 4)", line), random(128, 64))
    assert caught.value.rule == rule
    assert part in str(caught.value)
    assert caught.value.line == 11


def test_a_slice_with_a_negative_step_is_refused_with_ways_that_work(
    trace_kernel: Any, run_kernel: Any, random: Any
) -> None:
    x = random(32, 8)
    with pytest.raises(LegalityError) as caught:
        trace_kernel(kernel("(32, 8)", "nl.store(out, nl.load(x[::-1, 0:8]))"), x)
    assert "copy slices of one element in reverse order" in caught.value.hint
    assert "shuffle_mask=list(range(31, -1, -1))" in caught.value.hint
    body = """
tile, turned = nl.load(x), nl.ndarray((32, 8), dtype=x.dtype, buffer=nl.sbuf)
for k in range(8):
    turned[0:32, k:k + 1] = nl.copy(tile[0:32, 7 - k:8 - k])
done = nl.ndarray((32, 8), dtype=x.dtype, buffer=nl.sbuf)
nisa.nc_stream_shuffle(src=turned, dst=done, shuffle_mask=list(range(31, -1, -1)))
nl.store(out, done)
"""
    np.testing.assert_array_equal(run_kernel(kernel("(32, 8)", body), x), x[::-1, ::-1])


@examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 8),
    row_step=st.integers(1, 3),
    column_step=st.integers(1, 3),
    offset=st.integers(0, 4),
    trips=st.integers(1, 4),
)
def test_affine_indices_read_what_numpy_reads(
    run_kernel: Any, rows: int, columns: int, row_step: int, column_step: int, offset: int, trips: int
) -> None:
    height, width = row_step * rows + trips + 4, column_step * columns + 2 * trips + 4
    x = np.arange(height * width, dtype=np.float32).reshape(height, width)
    body = f"""
r, c = nl.arange({rows})[:, None], nl.arange({columns})[None, :]
for i in nl.affine_range({trips}):
    tile = nl.load(x[{row_step} * r + i + {offset}, {column_step} * c + 2 * i])
    nl.store(out[i, r, c], tile)
"""
    got = run_kernel(kernel(str((trips, rows, columns)), body), x)
    for i in range(trips):
        wanted = x[i + offset : i + offset + row_step * rows : row_step][:rows]
        wanted = wanted[:, 2 * i : 2 * i + column_step * columns : column_step][:, :columns]
        np.testing.assert_array_equal(got[i], wanted)


@pytest.mark.parametrize("index", ["table[w[0, i], :, :]", "table[w[0, i]]", "table[w[0, i], 0:4, nl.ds(0, 16)]"])
def test_an_element_of_a_tile_may_stand_beside_slices(run_kernel: Any, random: Any, index: str) -> None:
    table, which = random(5, 4, 16), np.array([[3, 0, 4]], np.int32)
    text = """
@nki.jit
def kernel(table, which):
    out = nl.ndarray((3, 4, 16), dtype=table.dtype, buffer=nl.shared_hbm)
    w = nl.load(which)
    for i in nl.static_range(3):
        nl.store(out[i, :, :], nl.load(INDEX))
    return out
"""
    got = run_kernel(text.replace("INDEX", index), table, which)
    np.testing.assert_array_equal(got, table[which[0]])


def test_a_slice_with_steps_beside_an_element_of_a_tile_keeps_its_steps(run_kernel: Any, random: Any) -> None:
    table, which = random(5, 8, 16), np.array([[3]], np.int32)
    text = """
@nki.jit
def kernel(table, which):
    out = nl.ndarray((4, 8), dtype=table.dtype, buffer=nl.shared_hbm)
    w = nl.load(which)
    nl.store(out, nl.load(table[w[0, 0], 1:8:2, nl.ds(3, 8)]))
    return out
"""
    np.testing.assert_array_equal(run_kernel(text, table, which), table[3, 1:8:2, 3:11])


def test_a_tile_of_several_indices_beside_slices_is_refused_as_such(trace_kernel: Any, random: Any) -> None:
    text = """
@nki.jit
def kernel(table, which):
    out = nl.ndarray((3, 4, 16), dtype=table.dtype, buffer=nl.shared_hbm)
    w = nl.load(which)
    nl.store(out, nl.load(table[w, :, :]))
    return out
"""
    with pytest.raises(LegalityError, match="a tile of indices") as caught:
        trace_kernel(text, random(5, 4, 16), np.zeros((3, 1), np.int32))
    assert caught.value.rule == "mixed_indexing"
