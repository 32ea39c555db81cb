"""Views of tiles: other types, masks as indices, loads that skip what lies outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from acceld.nki.errors import UnsupportedCall


def test_a_view_of_another_width_holds_the_same_bits(run_kernel: Any, random: Callable[..., Any]) -> None:
    x = random(3, 64, 4)
    body = """
@nki.jit
def kernel(x):
    out = nl.ndarray((3, 64, 16), dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
    tiles = nl.ndarray((3, par_dim(64), 4), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(3):
        tiles[i] = nl.load(x[i])
    for i in nl.affine_range(3):
        nl.store(out[i], tiles.view(nl.float8_e4m3)[i])
    return out
"""
    bits = np.ascontiguousarray(run_kernel(body, x)).view(np.uint8)
    assert np.array_equal(bits, x.view(np.uint8).reshape(3, 64, 16))


def test_a_view_of_another_width_is_not_written_to(trace_kernel: Any, random: Callable[..., Any]) -> None:
    body = """
@nki.jit
def kernel(x):
    out = nl.ndarray((64, 8), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    tile = nl.load(x).view(nl.bfloat16)
    tile[0:64, 0:8] = nl.zeros((64, 8), dtype=nl.bfloat16)
    nl.store(out, tile)
    return out
"""
    with pytest.raises(UnsupportedCall, match="write through a view") as refused:
        trace_kernel(body, random(64, 4))
    assert refused.value.line == 12


def test_numpys_name_for_float8_means_the_one_format_of_the_legacy_api(run_kernel: Any) -> None:
    x = np.arange(64, dtype=np.float32).reshape(2, 32).astype(ml_dtypes.float8_e4m3fn)
    body = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.load(x), dtype=nl.float32))
    return out
"""
    assert np.array_equal(run_kernel(body, x.astype(ml_dtypes.float8_e4m3)), x.astype(np.float32))


def test_a_mask_as_index_passes_only_where_it_leaves_nothing_out(
    run_kernel: Any, trace_kernel: Any, random: Callable[..., Any]
) -> None:
    body = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:64, 0:32]
    for i in nl.affine_range(2):
        tile = nl.load(x[i_p, 32 * i + i_f])
        nl.store(out[i_p, 32 * i + i_f], tile[i_p, i_f][32 * i + i_f < LIMIT])
    return out
"""
    x = random(64, 64)
    assert np.array_equal(run_kernel(body.replace("LIMIT", "64"), x), x)
    with pytest.raises(UnsupportedCall, match="indexed with a mask"):
        trace_kernel(body.replace("LIMIT", "40"), x)


def test_a_load_that_skips_leaves_rows_outside_of_the_tensor_alone(run_kernel: Any, random: Callable[..., Any]) -> None:
    x, rows = random(40, 16), np.array([[3], [99], [0], [39], [40], [7]], np.int32)
    body = """
@nki.jit
def kernel(x, rows):
    out = nl.ndarray((6, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    at = nl.load(rows)
    tile = nl.zeros((6, 16), dtype=x.dtype, buffer=nl.sbuf)
    i_p, i_f = nl.mgrid[0:6, 0:16]
    tile[i_p, i_f] = nl.load(x[at[i_p, 0], i_f], mode=nisa.oob_mode.skip)
    nl.store(out, tile)
    return out
"""
    at = rows[:, 0]
    expected = np.where((at < 40)[:, None], x[np.minimum(at, 39)], 0)
    assert np.array_equal(run_kernel(body, x, rows), expected)


@pytest.mark.parametrize("columns", [3, 4, 5, 8])
def test_a_negated_maximum_written_to_one_column_of_a_wide_tile_is_right(
    run_kernel: Any, random: Callable[..., Any], columns: int
) -> None:
    x = random(128, 16 * columns)
    body = f"""
@nki.jit
def kernel(x):
    out = nl.ndarray((128, {columns}), dtype=nl.float32, buffer=nl.shared_hbm)
    tile, low = nl.load(x), nl.ndarray((128, {columns}), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range({columns}):
        low[:, i] = nisa.tensor_reduce(np.max, tile[:, 16 * i : 16 * i + 16], axis=(1,), negate=True)
    nl.store(out, low)
    return out
"""
    assert np.array_equal(run_kernel(body, x), -x.reshape(128, columns, 16).max(axis=2))
