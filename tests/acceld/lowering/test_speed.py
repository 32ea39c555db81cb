"""A lowered kernel uses the partitions and the engines that its formula allows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acceld.lowering.kernels import lowered
from acceld.lowering.numpy_reference import traced
from acceld.lowering.spelling import SPELLINGS, printed
from acceld.nki.frontend.tracing import trace
from acceld.nki.frontend.tracing_types import TensorSpec
from acceld.nki.timing.timeline import timeline
from acceld.nki.verify.verifier import verify
from tests.acceld.lowering.formulas import Array
from tests.acceld.lowering.test_formulas import each_in_one_api, kernel_of, right, run_all

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...], float]
CASES: dict[str, Case] = {}
"""Formulas, the shapes of their arguments, and the most microseconds that they may take (simulated, either API)."""


def within(microseconds: float, *shapes: tuple[int, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a formula, whose arguments have these shapes, with the most microseconds that its kernel may take."""

    def entered(function: Callable[..., Any]) -> Callable[..., Any]:
        CASES[function.__name__] = (function, shapes, microseconds)
        return function

    return entered


@within(40, (500, 6, 6), (500, 6, 4))
def small_products(a: Array, b: Array) -> Any:
    return a @ b


@within(40, (200, 9, 16), (200, 16, 9))
def products_of_sixteen_terms(a: Array, b: Array) -> Any:
    return a @ b


@within(60, (1, 12, 16, 16), (27, 12, 3, 3))
def a_padded_convolution_of_twelve_channels(x: Array, w: Array) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


@within(50, (6, 50, 7, 90))
def sums_over_axes_that_lie_apart(x: Array) -> Any:
    return x.sum(axis=(0, 2))


@within(60, (2, 64, 33, 33))
def variances_of_few_groups(x: Array) -> Any:
    return x.reshape(2, 8, 8, 33, 33).var(axis=(2, 3, 4))


@within(60, (1000, 96))
def rows_and_their_mean(x: Array) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    return p, p.mean(axis=0)


@within(250, (8, 24, 24, 64), (64,), (64,))
def groups_of_the_last_channels(x: Array, g: Array, b: Array) -> Any:
    y = x.reshape(8, 576, 16, 4)
    m = y.mean((1, 3), keepdims=True)
    v = ((y - m) ** 2).mean((1, 3), keepdims=True)
    return ((y - m) / np.sqrt(v + 1e-5)).reshape(x.shape) * g + b


@within(100, (1024, 512), (512,), (1024, 512))
def layer_norm_gradients(x: Array, g: Array, dy: Array) -> Any:
    mean = x.mean(axis=1, keepdims=True)
    inverse = 1 / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    normed = (x - mean) * inverse
    d = dy * g
    dx = inverse * (d - d.mean(1, keepdims=True) - normed * (d * normed).mean(1, keepdims=True))
    return dx, (dy * normed).sum(0), dy.sum(0)


@within(60, (512, 512), (300, 129))
def scaled_by_one_norm(a: Array, b: Array) -> Any:
    norm = np.sqrt(np.sum(a * a) + np.sum(b * b))
    scale = np.minimum(1.0, 1.0 / (norm + 1e-6))
    return a * scale, b * scale, norm


@within(120, (512, 512))
def quantized_by_the_range(x: Array) -> Any:
    low, high = x.min(), x.max()
    step = (high - low) / 255
    return np.round((x - low) / step) * step + low


@within(120, (512, 512), (512, 512), (512,), (512,))
def factored_moments(w: Array, g: Array, r: Array, c: Array) -> Any:
    squares = g * g + 1e-30
    r = 0.9 * np.square(r) + 0.1 * squares.mean(axis=1)
    c = 0.9 * np.square(c) + 0.1 * squares.mean(axis=0)
    return w - 0.01 * g / np.sqrt(np.outer(r, c) / r.mean() + 1e-6), r, c


@within(120, (2, 64, 28, 28), (64, 3, 3), (64,))
def each_channel_by_itself(x: Array, w: Array, b: Array) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,cij->nchw", windows, w) + b[:, None, None]


@within(90, (2, 48, 20, 20), (48, 5, 5), (48,))
def many_taps_of_each_channel(x: Array, w: Array, b: Array) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), axis=(2, 3))
    y = (windows * w[:, None, None]).sum((4, 5)) + b[:, None, None]
    return y, y.mean((2, 3))


@within(60, (2, 32, 15, 13))
def pooled_with_padding(x: Array) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    return windows.max(axis=(-1, -2)), windows.mean(axis=(-1, -2))


@within(100, (3, 30, 31, 33), (30,), (30,))
def groups_of_channels(x: Array, g: Array, b: Array) -> Any:
    y = x.reshape(3, 6, -1)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return y.reshape(x.shape) * g[:, None, None] + b[:, None, None]


@within(120, (6, 120))
def ranks_of_each_row(x: Array) -> Any:
    return np.cumsum(np.take_along_axis(x, np.argsort(-x, axis=-1, kind="stable"), axis=-1), axis=-1)


@within(100, (256, 128))
def sorted_columns(x: Array) -> Any:
    return np.sort(x, axis=0)


@within(120, (256, 256))
def middles_of_windows(x: Array) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, 1, mode="edge"), (3, 3))
    return np.median(windows.reshape(256, 256, 9), axis=-1)


@within(40, (8, 128, 128), (128, 64), (128, 64))
def turned_pairs(x: Array, c: Array, s: Array) -> Any:
    out = np.empty_like(x)
    out[..., ::2] = x[..., ::2] * c - x[..., 1::2] * s
    out[..., 1::2] = x[..., ::2] * s + x[..., 1::2] * c
    return out


@within(60, (2, 64, 16, 16), (128, 64, 3, 3), (128,))
def convolved_windows(x: Array, w: Array, b: Array) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, w) + b[:, None, None], 0)


@within(60, (128, 128), (128, 128))
def a_chain_of_products(a: Array, b: Array) -> Any:
    y = a @ a.T / 128.0
    for _ in range(4):
        y = y @ (1.5 * y - 0.5 * (y @ b) / 128.0) / 128.0
    return y


@within(160, (20, 16, 64), (64, 64))
def a_state_between_two_nests(x: Array, w: Array) -> Any:
    h, out = np.zeros((16, 64), x.dtype), np.empty_like(x)
    for t in range(len(x)):
        h = np.tanh(x[t] + 0.1 * (h @ w)) * 0.5 + h
        out[t] = h / np.sqrt((h * h).mean(axis=0) + 1.0)
    return out


@within(100, (128, 1024), (128, 1024))
def returns_of_each_episode(r: Array, done: Array) -> Any:
    g, out = np.zeros(128), np.zeros_like(r)
    for t in reversed(range(r.shape[1])):
        g = r[:, t] + 0.99 * g * (done[:, t] > 1)
        out[:, t] = g
    return out


@within(100, (2, 128, 256), (256, 4))
def a_filter_of_each_channel(x: Array, w: Array) -> Any:
    padded = np.pad(x, ((0, 0), (3, 0), (0, 0)))
    return np.einsum("btdk,dk->btd", np.lib.stride_tricks.sliding_window_view(padded, 4, axis=1), w)


@within(80, (128, 160))
def edges_of_an_image(x: Array) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, 1), (3, 3))
    k = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], float)
    return (windows * k).sum((2, 3)), np.einsum("ijab,ab->ij", windows, k.T)


@within(130, (128, 400))
def a_histogram_of_rows_that_stay_on_the_chip(x: Array) -> Any:
    return np.histogram(x, bins=20, range=(-2.0, 2.0))[0].astype(np.float32)


@within(60, (4096, 8))
def rows_of_a_few_elements(x: Array) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@within(250, (200, 3), (200,))
def attractions(place: Array, mass: Array) -> Any:
    apart = place[None] - place[:, None]
    near = np.einsum("ijk,ijk->ij", apart, apart) + 0.1
    return np.einsum("ij,ijk->ik", mass / near, apart)


@within(330, (50, 16, 20), (20, 20))
def paths_through_a_field(emit: Array, trans: Array) -> Any:
    alpha = emit[0]
    for e in emit[1:]:
        x = alpha[:, :, None] + trans
        m = x.max(1)
        alpha = m + np.log(np.exp(x - m[:, None]).sum(1)) + e
    return alpha


@within(190, (2, 32, 32, 16), (3, 3, 16, 32))
def an_image_with_channels_last(x: Array, w: Array) -> Any:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.einsum("bhwcij,ijco->bhwo", windows, w)


@within(70, (2, 16, 33, 33), (32, 144))
def windows_that_a_loop_copies(x: Array, w: Array) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    columns = np.empty((2, 16, 3, 3, 17, 17), x.dtype)
    for i, j in np.ndindex(3, 3):
        columns[:, :, i, j] = padded[:, :, i : i + 34 : 2, j : j + 34 : 2]
    return w @ columns.reshape(2, 144, 289)


@within(70, (2, 16, 33, 33), (32, 16, 3, 3))
def windows_first_and_every_second(x: Array, w: Array) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    return np.tensordot(windows, w, axes=([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2)


@within(28, (4, 64, 512), (4, 64, 1))
def a_weighted_sum_over_rows(x: Array, w: Array) -> Any:
    return (x * w).sum(1)


@within(400, (8, 8000), (8, 64))
def elements_stored_along_rows(x: Array, place: Array) -> Any:
    at = np.clip(np.floor(np.abs(place) * 2000), 0, 7999).astype(np.int32)
    out = x.copy()
    np.put_along_axis(out, at, 0.5 * np.take_along_axis(x, at, axis=1), axis=1)
    return out


@within(70, (3, 8, 9))
def three_tables_of_gaps(s: Array) -> Any:
    h, e, f = np.zeros((3, 9, 10)), np.full((3, 9, 10), -1e4), np.full((3, 9, 10), -1e4)
    for i in range(1, 9):
        for j in range(1, 10):
            e[:, i, j] = np.maximum(e[:, i, j - 1] - 0.3, h[:, i, j - 1] - 1.0)
            f[:, i, j] = np.maximum(f[:, i - 1, j] - 0.3, h[:, i - 1, j] - 1.0)
            h[:, i, j] = np.maximum(
                np.maximum(h[:, i - 1, j - 1] + s[:, i - 1, j - 1], e[:, i, j]), np.maximum(f[:, i, j], 0)
            )
    return h[:, 1:, 1:], h.max(axis=(1, 2))


@within(70, (4, 8, 9))
def a_table_filled_backwards(s: Array) -> Any:
    d = np.zeros((9, 10, 4))
    for i in range(7, -1, -1):
        for j in range(8, -1, -1):
            d[i, j] = np.where(s[:, i, j] > 0, d[i + 1, j + 1] + 1, np.maximum(d[i + 1, j], d[i, j + 1]))
    return d[0, 0]


@within(60, (90, 90), (90,))
def a_vector_multiplied_again_and_again(a: Array, v: Array) -> Any:
    a = a @ a.T / 90
    for _ in range(10):
        w = a @ v
        v = w / np.linalg.norm(w)
    return v


@within(200, (2, 40, 32), (2, 40, 32), (2, 40, 32), (2, 40))
def states_of_heads_that_forget(q: Array, k: Array, v: Array, g: Array) -> Any:
    state, out = np.zeros((2, 32, 32)), np.empty_like(v)
    for t in range(40):
        state = state * np.exp(-np.abs(g[:, t]))[:, None, None]
        old = np.einsum("hkv,hk->hv", state, 0.1 * k[:, t])
        state = state + k[:, t, :, None] * (v[:, t] - old)[:, None]
        out[:, t] = np.einsum("hkv,hk->hv", state, q[:, t])
    return out


@within(260, (30, 8, 21), (8, 21))
def sums_over_neighbors_in_turn(x: Array, allowed: Array) -> Any:
    a = x[0]
    for step in x[1:]:
        before = np.where(allowed > 0, np.concatenate([np.full((8, 1), -9.0), a[:, :-1]], 1), -9.0)
        m = np.maximum(a, before)
        a = m + np.log(np.exp(a - m) + np.exp(before - m)) + 0.1 * step
    return a


@within(150, (16, 24, 24), (8, 8))
def one_matrix_for_every_block(x: Array, m: Array) -> Any:
    blocks = x.reshape(16, 3, 8, 3, 8).swapaxes(2, 3)
    return (m @ blocks @ m.T).swapaxes(2, 3).reshape(16, 24, 24)


@within(80, (40, 40), (40,))
def a_triangle_solved_by_rows(a: Array, b: Array) -> Any:
    x = np.zeros(40)
    for i in range(40):
        x[i] = (b[i] - 0.1 * np.dot(a[i, :i], x[:i])) / (2 + a[i, i] ** 2)
    return x


@within(60, (100003,))
def a_prime_number_of_elements(x: Array) -> Any:
    return (x - x.mean()) / (x.std() + 1e-6)


@within(40, (256, 1000))
def the_greatest_few_of_each_row(x: Array) -> Any:
    return -np.sort(-x, axis=1)[:, :8], np.argsort(-x, axis=1)[:, :4]


@within(120, (32, 128))
def a_filter_of_second_order(x: Array) -> Any:
    y = np.zeros_like(x)
    for n in range(2, 128):
        y[:, n] = 0.2 * x[:, n] + 0.3 * x[:, n - 1] + 0.5 * y[:, n - 1] - 0.2 * y[:, n - 2]
    return y


@within(40, (128, 8, 8), (128, 8, 8))
def products_of_small_matrices(a: Array, b: Array) -> Any:
    return a @ b @ np.swapaxes(a, 1, 2)


@within(60, (2, 200, 3), (2, 200, 3))
def pulls_between_points(x: Array, v: Array) -> Any:
    apart = x[:, None] - x[:, :, None]
    near = (apart * apart).sum(-1) + 0.1
    return v + (apart * (near**-1.5)[..., None]).sum(2)


@within(60, (2, 12, 33, 30))
def means_of_large_windows(x: Array) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
    windows = np.lib.stride_tricks.sliding_window_view
    means = windows(padded, (5, 5), axis=(2, 3))[:, :, ::2, ::2].mean((-1, -2))
    return means, windows(x * x, (4, 4), axis=(2, 3))[:, :, ::5, ::5].max((-1, -2))


@within(130, (4, 28, 28, 64))
def groups_of_a_few_last_channels(x: Array) -> Any:
    y = x.reshape(4, 28, 28, 8, 8)
    m = y.mean((1, 2, 4), keepdims=True)
    v = ((y - m) ** 2).mean((1, 2, 4), keepdims=True)
    return ((y - m) / np.sqrt(v + 1e-5)).reshape(x.shape)


@within(120, (48, 48), (48, 32))
def a_triangle_solved_for_many_columns(a: Array, b: Array) -> Any:
    x = np.zeros(b.shape)
    for i in range(48):
        x[i] = (b[i] - 0.1 * a[i, :i] @ x[:i]) / (2 + a[i, i] ** 2)
    return x


@within(140, (32, 32))
def a_triangle_whose_square_is_the_matrix(a: Array) -> Any:
    s, x = a @ a.T / 32 + np.eye(32), np.zeros((32, 32))
    for j in range(32):
        x[j, j] = np.sqrt(s[j, j] - np.sum(x[j, :j] ** 2))
        x[j + 1 :, j] = (s[j + 1 :, j] - x[j + 1 :, :j] @ x[j, :j]) / x[j, j]
    return x


@pytest.mark.parametrize(("name", "api"), each_in_one_api(CASES))
def test_a_lowered_kernel_is_right_and_quick(name: str, api: str) -> None:
    function, shapes, most_us = CASES[name]
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    source = kernel_of(function, inputs, api)
    right(function, source, inputs, 1e-5)
    specs = [TensorSpec(array.shape, array.dtype.name) for array in inputs]
    found = timeline(trace(source, specs, api=api, chip="trn2")).latency_us
    assert found is not None and found <= most_us


def reduced_around_an_axis(x: Array) -> Any:
    return x.sum((1, 3)), x.min((1, 3)), (x * x).sum((0, 1, 3))


def test_a_divided_loop_inside_of_a_loop_that_is_divided_has_a_latency() -> None:
    inputs = [np.ones((9, 1000, 3, 7), np.float32)]
    source = kernel_of(reduced_around_an_axis, inputs, "nki_legacy")
    program = trace(source, [TensorSpec((9, 1000, 3, 7), "float32")], api="nki_legacy", chip="trn2")
    assert timeline(program).latency_us is not None


def small_volumes(x: Array, w: Array) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3, 3), axis=(2, 3, 4))
    return np.einsum("ncdhwijk,ocijk->nodhw", windows, w)


def test_taps_of_few_channels_lie_on_partitions_beside_each_other() -> None:
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(s).astype(np.float32) for s in ((1, 8, 10, 12, 12), (16, 8, 3, 3, 3))]
    source = kernel_of(small_volumes, inputs, "nki")
    right(small_volumes, source, inputs, 1e-5)
    specs = [TensorSpec(array.shape, array.dtype.name) for array in inputs]
    found = timeline(trace(source, specs, api="nki", chip="trn2")).latency_us
    assert found is not None and found <= 90


def every_third_window(x: Array, w: Array) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, (7, 7), axis=(2, 3))[:, :, ::3, ::3]
    return np.einsum("nchwij,ocij->nohw", windows, w)


def test_taps_beside_each_other_in_memory_are_read_in_ranges() -> None:
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 48, 48), (16, 3, 7, 7))]
    source = kernel_of(every_third_window, inputs, "nki")
    right(every_third_window, source, inputs, 1e-5)
    specs = [TensorSpec(array.shape, array.dtype.name) for array in inputs]
    found = timeline(trace(source, specs, api="nki", chip="trn2")).latency_us
    assert found is not None and found <= 60


def patches_of_an_image(x: Array, w: Array) -> Any:
    patches = x.reshape(4, 3, 8, 8, 8, 8).transpose(0, 2, 4, 1, 3, 5).reshape(4, 64, 192)
    return patches @ w.reshape(96, -1).T


def test_patches_that_lie_in_short_ranges_are_copied_before_their_product() -> None:
    generator = np.random.default_rng(0)
    inputs = [generator.standard_normal(shape).astype(np.float32) for shape in ((4, 3, 64, 64), (96, 3, 8, 8))]
    source = kernel_of(patches_of_an_image, inputs, "nki")
    right(patches_of_an_image, source, inputs, 1e-5)
    specs = [TensorSpec(array.shape, array.dtype.name) for array in inputs]
    found = timeline(trace(source, specs, api="nki", chip="trn2")).latency_us
    assert found is not None and found <= 80


def turned_and_scaled(w: Array) -> Any:
    return w.T.astype(np.float32) * 2


def rounded_and_turned(w: Array) -> Any:
    return np.clip(w * 20, 0, 127).astype(np.int8).T


@pytest.mark.parametrize(
    ("function", "dtype"),
    [*((turned_and_scaled, dtype) for dtype in ("int8", "uint8", "int16", "uint16")), (rounded_and_turned, "float32")],
)
def test_transposed_whole_numbers_are_loaded_and_stored_in_rows(function: Callable[..., Any], dtype: str) -> None:
    whole = np.random.default_rng(0).integers(-500, 500, (512, 256))
    given = whole.astype(dtype)
    source = kernel_of(function, [given], "nki")
    (found,) = run_all(source, given)
    assert np.array_equal(found, function(given))
    took = timeline(trace(source, [TensorSpec(given.shape, dtype)], api="nki", chip="trn2")).latency_us
    assert took is not None and took <= 45


def layer_of_a_model(x: Array, w: Array) -> Any:
    return x @ w.T


@pytest.mark.parametrize("api", SPELLINGS)
@pytest.mark.parametrize(
    ("shapes", "most_us"), [(((512, 4096), (2048, 4096)), 220), (((16, 1024), (1024, 1024)), 29)], ids=["many", "few"]
)
def test_weights_by_rows_are_loaded_in_long_rows_that_row_tiles_share(
    shapes: tuple[tuple[int, int], ...], most_us: float, api: str
) -> None:
    given = [("x", (shapes[0], "bfloat16")), ("w", (shapes[1], "bfloat16"))]
    source = printed(lowered(traced(layer_of_a_model, Path(__file__), given), api), api)
    program = trace(source, [TensorSpec(*spec) for _, spec in given], api=api, chip="trn2")
    assert verify(program) == ()
    found = timeline(program).latency_us
    assert found is not None and found <= most_us
