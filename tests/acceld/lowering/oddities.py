"""References that depend on what numpy does at its edges: casts, truth values, aliases, axes counted from the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tests.acceld.lowering.models import Array, Spec

ODDITIES: dict[str, tuple[Callable[..., Any], tuple[Spec, ...]]] = {}
M = (6, 10)
IDS = ("int32", 6, -10, 10)


def odd(*specs: Spec) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a reference with its arguments."""

    def entered(function: Callable[..., Any]) -> Callable[..., Any]:
        ODDITIES[function.__name__] = (function, specs)
        return function

    return entered


# -- casts


@odd(M)
def floats_lose_their_fraction(x: Array) -> Any:
    return (x * 3).astype(np.int32) * 2


@odd(M)
def floats_lose_their_fraction_in_a_store(x: Array) -> Any:
    y = np.zeros(x.shape, dtype=np.int64)
    y[...] = x * 3
    y[0] += 1
    return y * 1.5


@odd(M)
def floors_and_ceilings(x: Array) -> Any:
    return np.floor(x * 3) + 10 * np.ceil(x * 3) + 100 * np.trunc(x * 3)


@odd(M)
def rounds_to_even(x: Array) -> Any:
    return np.round(np.floor(x * 8) / 2) + 0.01 * np.round(x, 1)


@odd(("int32", 6, 10, -20, 20))
def integer_division(n: Array) -> Any:
    return n // 3 + 100 * (n % 3) + 0.5 * (n // 4) + n / 4


@odd(("int32", 6, 10, -20, 20))
def quotients_and_rests(n: Array) -> Any:
    q, r = np.divmod(n, 7)
    return q * 1.5 + r


@odd(M)
def rests_of_floats(x: Array) -> Any:
    return np.mod(x * 5, 0.75) + x // 0.5


@odd(("int32", 6, 10, -20, 20))
def integers_and_floats(n: Array) -> Any:
    return n * 0.5 + n**2 - np.abs(n) / 3 + np.sqrt(np.abs(n))


@odd(M)
def quantized(x: Array) -> Any:
    scale = np.abs(x).max(axis=1, keepdims=True) / 127.0
    q = np.clip(np.round(x / scale), -128, 127).astype(np.int8)
    return q.astype(np.float32) * scale


@odd(M)
def copied_by_a_cast(x: Array) -> Any:
    y = x.astype(np.float64)
    y[0] = 0.0
    return x + y


@odd(M)
def copied_by_array(x: Array) -> Any:
    y = np.array(x)
    z = np.asarray(x)
    y[0] = 5.0
    return x + y * 2 + z


@odd(M)
def truth_as_numbers(x: Array) -> Any:
    m = x > 0
    return m.astype(np.int32) * 3 + m.astype(float) / 2 + m * 2 - 1


# -- truth values


@odd(M)
def truth_values_add(x: Array) -> Any:
    return ((x > 0) + (x > -1)) * 2.0 + (x > 0) * (x > 1)


@odd(M)
def truth_values_of_products(x: Array) -> Any:
    m = (x > 0).astype(np.float32)
    return (m * m + m) * np.maximum(m, 0.5 * m) + (m + m)


@odd(M)
def truth_values_count(x: Array) -> Any:
    m = x > 0
    return m.sum(axis=1) / m.size + m.mean(axis=1) + np.count_nonzero(m, axis=1) + np.cumsum(m, axis=1)[:, -1]


@odd(M)
def truth_values_select(x: Array) -> Any:
    m = np.where(x > 0, x > 1, x < -1)
    return np.where(m, x, 0) + np.where(~m, 1, 2) + (m ^ (x > 0)) + (m | (x > 2)) * 3


@odd(M)
def truth_of_numbers(x: Array) -> Any:
    r = np.maximum(x, 0)
    return np.logical_and(r, x < 1) + 2.0 * np.logical_not(r) + np.logical_xor(r, x) * 4.0


@odd(M)
def any_and_all(x: Array) -> Any:
    return np.any(x > 1, axis=-1) + 2.0 * np.all(x > -1, axis=-1) + (x > 0).max(axis=1) * (x > 0).all(1)


@odd(M)
def comparisons_compared(x: Array) -> Any:
    return ((x > 0) == (x < 1)) * x + ((x > 0) != True)


@odd(M)
def integers_inverted(x: Array) -> Any:
    n = (x * 4).astype(int)
    return ~n + (~(n > 0)).astype(int)


@odd(M, M)
def selections_in_a_chain(x: Array, y: Array) -> Any:
    return np.where(x > 1, 3, np.where(x > 0, y, np.where(y > 0, -1.0, x * y)))


@odd(M)
def selection_of_positions(x: Array) -> Any:
    best = np.argmax(x, axis=-1)
    return np.where(best > 4, best - 10, best) + (best == 3)


@odd(M)
def undefined_values_replaced(x: Array) -> Any:
    return np.nan_to_num(np.log(x), nan=-7.0) + np.isnan(np.sqrt(x)) + np.nan_to_num(x)


@odd(M)
def truth_values_differ(x: Array) -> Any:
    return np.diff(x > 0, axis=1) * 1.0


@odd(M)
def masked_store(x: Array) -> Any:
    y = x.copy()
    y[y < 0] = 0.25
    y[np.abs(x) > 1] = 2
    return y


@odd(M)
def masked_store_of_numbers(x: Array) -> Any:
    n = (x * 4).astype(int)
    n[x > 0] = 1.75
    return n + 0


# -- folds and axes


@odd((3, 4, 5))
def axes_from_the_end(x: Array) -> Any:
    return x.sum(axis=(-1, -3)) + x.max(axis=(0, 2)) + np.mean(x, axis=-2)[:, :4].min(0)


@odd((3, 4, 5))
def kept_axes(x: Array) -> Any:
    return x - x.mean((0, -1), keepdims=True) + x.std(axis=1, keepdims=True, ddof=1) - x.min(keepdims=True)


@odd((3, 4, 5))
def folded_whole(x: Array) -> Any:
    return x.sum() + x.max() * x[0, 0] - np.prod(x[..., -1:], axis=-1).sum()


@odd(M)
def folds_with_where(x: Array) -> Any:
    return np.sum(x, axis=1, where=x > 0) + np.max(x, axis=1, initial=1.5) + np.mean(x, axis=1, where=x < 1)


@odd(M)
def folds_of_ufuncs(x: Array) -> Any:
    return np.add.reduce(x, axis=1) + np.maximum.reduce(x, 1) + np.logical_or.reduce(x > 1, axis=1)


@odd(M)
def positions_with_kept_axes(x: Array) -> Any:
    return np.take_along_axis(x, np.argmin(x, axis=1, keepdims=True), axis=1) + np.argmax(x)


@odd(M)
def scans_of_every_kind(x: Array) -> Any:
    return np.cumsum(x, axis=-1) + np.cumsum(x, 0) + np.maximum.accumulate(x, axis=1) + np.cumprod(x, axis=1)


@odd(M)
def scanned_flat(x: Array) -> Any:
    return np.cumsum(x).reshape(x.shape) + x.cumsum()[-1]


@odd(M)
def clipped_on_one_side(x: Array) -> Any:
    return np.clip(x, None, 0.5) + x.clip(min=-0.5) + np.clip(x, x.mean(), None) + x.clip(-1, 1)


@odd(M)
def averaged_by_weights(x: Array) -> Any:
    w = np.abs(x[0]) + 1
    return np.average(x, axis=-1, weights=w) + np.average(x, axis=1)


# -- broadcasting and views


@odd((4,), (3, 1), (2, 1, 1))
def broadcast_three_ways(x: Array, y: Array, z: Array) -> Any:
    return x * y + z - np.broadcast_to(x, (2, 3, 4))


@odd((5,))
def outer_differences(x: Array) -> Any:
    return x[:, None] - x[None, :] * x[..., None]


@odd((3, 4, 5))
def steps_and_ends(x: Array) -> Any:
    return x[::-1, ::2, -3:] + x[:, 1::2, :3][..., ::-1] - x[-1, -2, -1]


@odd((3, 4, 5))
def axes_turned(x: Array) -> Any:
    return np.swapaxes(x, 0, -1).reshape(5, -1) + np.moveaxis(x, -1, 0).reshape(5, 12) - x.T.reshape(-1, 12)


@odd((4, 6))
def turned_and_flipped(x: Array) -> Any:
    return np.rot90(x)[:4, :4] + np.flip(x)[:, :4] + np.fliplr(x)[:, 2:] + np.roll(x, (1, -2), (0, 1))[:, :4]


@odd((4, 6))
def pieces_joined(x: Array) -> Any:
    a, b, c = np.split(x, [2, 3], axis=-1)
    return np.concatenate([c, a * 2, b], axis=-1) + np.hstack([a, b, c]) + np.tile(x[:2, :3], 2).repeat(2, axis=0)


@odd((7, 3))
def unequal_pieces(x: Array) -> Any:
    a, b, c = np.array_split(x, 3)
    return a.sum(0) + b.max(0) - c.mean(0)


@odd((4, 4))
def diagonals(x: Array) -> Any:
    y = x.copy()
    np.fill_diagonal(y, 0.0)
    return y + np.diag(np.diag(x, 0)) + np.trace(x) + np.tril(x, -1) + np.triu(x, 1)


@odd(M)
def padded_by_its_own_elements(x: Array) -> Any:
    edges = np.pad(x, ((2, 1), (0, 3)), mode="edge") + np.pad(x, ((1, 2), (3, 0)), "wrap")
    return edges + np.pad(x, ((3, 0), (1, 2)), mode="reflect") - 2.0 * np.pad(x, ((0, 3), (2, 1)), mode="symmetric")


@odd(M)
def padded_beyond_its_length(x: Array) -> Any:
    return np.pad(x[:3, :2], ((5, 4), (0, 0)), mode="reflect") * np.pad(x[:3, :2], ((7, 2), (0, 0)), mode="wrap")


@odd(M)
def padded_unevenly(x: Array) -> Any:
    return np.pad(x, ((1, 0), (0, 2)), constant_values=-1.0) * 2


@odd((3, 4), (4, 5), (5,))
def products_of_vectors(a: Array, b: Array, c: Array) -> Any:
    return np.dot(a, b) @ c + a @ (b @ c) + np.inner(a @ b, c) + np.einsum("ij,jk,k->i", a, b, c)


@odd((2, 3, 4), (2, 4, 3))
def products_over_axes(a: Array, b: Array) -> Any:
    return np.tensordot(a, b, ([0, 2], [0, 1])) + np.einsum("bij,bjk->ik", a, b) + np.dot(a, b)[0, :, 1]


@odd(M)
def product_of_truth_values(x: Array) -> Any:
    m = x > 0
    return (m @ m.T) * 1.0 + m.astype(float) @ m.T.astype(float)


# -- positions


@odd(M, IDS)
def rows_from_the_end(x: Array, ids: Array) -> Any:
    return np.concatenate([x, x * 2])[ids] + x[ids // 2]


@odd(M, IDS)
def elements_from_the_end(x: Array, ids: Array) -> Any:
    return x[np.arange(6), ids] + np.take_along_axis(x, ids[:, None], axis=-1)[:, 0]


@odd((10, 10), IDS)
def pairs_of_positions(x: Array, ids: Array) -> Any:
    return x[ids, np.abs(ids) % 3] + x[ids, ids]


@odd(M)
def constant_positions(x: Array) -> Any:
    return x[[0, -1, 2]] + x[np.array([5, 5, 0])] * x[:, [1, 0, -2]][:3, :1]


@odd(M)
def stored_to_constant_positions(x: Array) -> Any:
    y = x * 1.0
    y[[0, 2, 4]] = 1.0
    z = y[[0, 1]]
    z[0] = 9.0
    return y[:2] + z


@odd(M)
def one_of_many(x: Array) -> Any:
    return (np.arange(10)[None, :] == x.argmax(1)[:, None]).astype(np.float32) - 0.1


# -- stores and aliases


@odd(M)
def alias_of_a_row(x: Array) -> Any:
    y = x * 1.0
    row = y[0]
    y[0] = 3.0
    row += 1.0
    return y + row


@odd(M)
def alias_in_another_shape(x: Array) -> Any:
    y = x.copy()
    flat = y.reshape(-1)
    flat[5:20] = 7.0
    part = y.T[2:4]
    part *= 2
    return y + flat.sum() * 0.01


@odd(M)
def argument_changed_in_place(x: Array) -> Any:
    first = x[0]
    x += 1.0
    x[1:] *= 2.0
    return x + first


@odd(M)
def copy_before_a_store(x: Array) -> Any:
    y = np.zeros((6, 10))
    y[:3] = x[:3] * 2
    y[3:] = x[3:] + 1
    before = y.copy()
    y[2:4] = -1.0
    return before * 10 + y


@odd(M)
def copy_and_store_returned(x: Array) -> Any:
    y = np.zeros((6, 10))
    y[:3] = x[:3] * 2
    y[3:] = x[3:] + 1
    before = y.copy()
    y[2:4] = -1.0
    return before, y


@odd(M)
def value_made_before_an_older_read(x: Array) -> Any:
    y = np.empty((6, 10))
    y[:, :4] = x[:, :4]
    y[:, 4:] = x[:, 4:] * 2
    late = x * 3
    total = y.sum(axis=0)
    y[1:5] = late[1:5]
    return y + total


@odd(M)
def read_of_what_is_stored_next(x: Array) -> Any:
    y = np.empty((6, 10))
    y[::2] = x[::2]
    y[1::2] = x[1::2] * 2
    y[1:] += y[:-1]
    y[:, :-1] -= y[:, 1:]
    return y


@odd(M)
def swapped_halves(x: Array) -> Any:
    y = np.empty((6, 10))
    y[::2] = x[::2]
    y[1::2] = x[1::2] * 2
    left = y[:, :5].copy()
    y[:, :5] = y[:, 5:]
    y[:, 5:] = left
    return y


@odd(M)
def stored_twice(x: Array) -> Any:
    y = np.zeros((6, 10))
    v = x * 2
    y[0:3] = v[0:3]
    y[1:4] = 1.0
    y[2:5] = v[2:5]
    s = y[1:3] * 10
    y[0:2] = v[3:5]
    return y[:2] + s + y[2:4]


@odd(M)
def scaled_rows_in_place(x: Array) -> Any:
    y = np.empty((6, 10))
    y[::2] = x[::2]
    y[1::2] = x[1::2] + 1
    for i in range(6):
        y[i] /= np.abs(y[i]).sum()
    return y


@odd((8, 8))
def factorized_in_place(x: Array) -> Any:
    a = x * 0.1 + np.eye(8) * 4
    for k in range(3):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= a[k + 1 :, k : k + 1] * a[k : k + 1, k + 1 :]
    return a


@odd(M)
def result_given_to_a_part(x: Array) -> Any:
    y = np.zeros((2, 6, 10))
    np.exp(x, out=y[0])
    np.multiply(x, 2, out=y[1])
    np.add(y[0], y[1], out=y[1])
    np.sum(x, axis=1, out=y[0, :, 3])
    return y


@odd(M)
def rotated_in_a_loop(x: Array) -> Any:
    y = x.copy()
    for _ in range(3):
        y[:, 1:], y[:, 0] = y[:, :-1].copy(), y[:, -1].copy()
    return y


@odd(M, M)
def accumulated_in_a_list(x: Array, y: Array) -> Any:
    parts = [x[i] * y[i] for i in range(6)]
    return np.stack(parts[::-1]) + sum(parts) + np.array([parts[0], parts[1]]).max(0)


# -- constants and numbers


@odd(M)
def filled_like(x: Array) -> Any:
    m = x > 0
    return np.full_like(x, 2) + np.ones_like(m) + np.zeros_like(x, dtype=int) + np.full((10,), 3) + np.full_like(m, 5)


@odd(M)
def powers_of_every_kind(x: Array) -> Any:
    a = np.abs(x) + 0.5
    return a**0.5 + a**-1 + x**3 + 2.0**x + a**2.5 - a ** (-0.5) + np.power(x, 2)


@odd(M)
def numbers_of_python(x: Array) -> Any:
    n = x.shape[-1]
    return x * (n // 3) / max(n, 3) + math.sqrt(n) - float(np.float32(2)) ** 2 + int(True)


@odd(M)
def special_functions(x: Array) -> Any:
    return (
        np.log1p(np.abs(x)) + np.expm1(x * 0.1) + np.hypot(x, 2.0) + np.sinh(x * 0.5) + np.cbrt(x) + np.log10(x * x + 1)
    )


@odd(("int32", 6, 10, -40, 40), M)
def angles_of_many_turns(n: Array, x: Array) -> Any:
    return np.sin(n * 0.77) + np.cos(x * 30.0) - np.sin(n), np.cos(n.astype(np.float32) + x)


@odd(M)
def angles_of_positions(x: Array) -> Any:
    at = np.arange(x.shape[0])[:, None] * np.arange(x.shape[1])
    turned = np.arange(x.shape[0])[:, None] * (1.0 + x[:1] ** 2) * 5.0
    upward = np.sin(at * 0.9) > 0
    return x * np.sin(at * 0.9) + np.cos(at) * upward, np.cos(turned) - np.sin(-turned)


@odd(M)
def arc_tangents(x: Array) -> Any:
    return np.arctan(x * 5.0) + np.arctan(0.1 * x) - np.arctan(np.zeros_like(x))


@odd(M)
def reversed_operands(x: Array) -> Any:
    return 1 - x + 2 / (np.abs(x) + 1) - (3 - x) * (0.5 > x) + (1 <= x)


@odd(M)
def signs_and_steps(x: Array) -> Any:
    return np.sign(x) * np.heaviside(x, 0.5) + np.sign(np.floor(x)) - np.negative(x) + np.positive(x)


@odd((6, 10), (10,))
def finite_values(x: Array, y: Array) -> Any:
    z = x / np.maximum(y, 0)
    return np.isinf(z) * 1.0 + np.where(np.isfinite(z), z, 0.0)


@odd(M)
def copies_changed_apart(x: Array) -> Any:
    y = np.zeros((6, 10))
    y[:3] = x[:3] * 2
    y[3:] = x[3:] + 1
    z = y.copy()
    z[1:4] = 5.0
    y[2:5] += 7.0
    z[4] += y[2]
    return y * z


@odd(M)
def values_stored_crosswise(x: Array) -> Any:
    a = np.empty((6, 10))
    b = np.empty((6, 10))
    a[:3], a[3:] = x[:3] * 2, x[3:] * 3
    b[:3], b[3:] = x[:3] + 1, x[3:] + 2
    v, w = x * 5, x * 7
    old_a, old_b = a[1:5] + w[1:5], b[1:5] + v[1:5]
    a[2:6] = v[2:6]
    b[2:6] = w[2:6]
    return a + b, old_a * old_b


# -- found by random programs


@odd(M)
def number_folded(x: Array) -> Any:
    total = x.sum(axis=0).sum(axis=0)
    return x * total.sum(axis=0) + np.cumsum(x[:1], axis=0) + x.max().argmax(axis=-1)


@odd(M)
def scan_of_repeated_values(x: Array) -> Any:
    return np.cumsum(np.broadcast_to(x.max(axis=0, keepdims=True), x.shape), axis=0) + np.cumsum(x[:, :1] + x * 0, 1)


@odd(M)
def backwards_over_the_edges_of_axes(x: Array) -> Any:
    return x.reshape(10, 6)[::-1] * 2.0 + x.reshape(-1)[::-1].reshape(10, 6) + x[::-1, ::-1].reshape(10, 6)


@odd(M)
def selection_that_constants_decide(x: Array) -> Any:
    share = np.full((), 0.3, "float32")
    large = np.abs(share) >= 0.5
    return np.where(large, share - 1.0, share) * (x[::-1] - x) + np.where(large, x[::-1], x) + np.where(large, x, 2.0)


@odd(M)
def selection_between_types(x: Array) -> Any:
    best = x.argmax(axis=-1)
    return np.where(best > 4, best, best * 0.5) + np.concatenate([best, x[0, :2]])[:6]


@odd(M)
def integers_filled(x: Array) -> Any:
    first = (np.zeros((6, 10)) + 1.0).argmax(axis=-1)
    return np.stack([first, x.argmax(1)]) * 1.0


@odd(M)
def stored_in_fewer_axes(x: Array) -> Any:
    y = np.ones((6, 10))
    y[1] = x[0:1]
    y[2:4, 3] = x[None, :2, 4]
    return y * x


@odd((6,))
def triangle_of_a_vector(x: Array) -> Any:
    return np.tril(x) + np.triu(x, 2) * 3


# -- order: sorting, medians, the greatest few


@odd((5, 9))
def sorted_along_both_axes(x: Array) -> Any:
    return np.sort(x, axis=0) + 10 * np.sort(x)[:, ::-1]


@odd(("int32", 5, 9, 0, 4))
def sorted_with_equals(n: Array) -> Any:
    return np.sort(n) + 10 * np.argsort(n, kind="stable") + 100 * np.argsort(n, axis=0, stable=True)


@odd((7, 6), (7, 5))
def medians(x: Array, y: Array) -> Any:
    return np.median(x, axis=1) + np.median(y, axis=1, keepdims=True)[:, 0] + np.median(x)


@odd((6, 8))
def greatest_two_of_a_row(x: Array) -> Any:
    return np.take_along_axis(x, np.argsort(-x, axis=-1, kind="stable")[:, :2], axis=1), x.argsort(kind="stable")


@odd(M)
def folded_logarithms(x: Array) -> Any:
    return np.logaddexp.reduce(x, axis=1, keepdims=True) + np.logaddexp.reduce(x)


# -- rows that an array names


@odd((10, 4), IDS, (6, 4))
def stores_to_named_rows(x: Array, ids: Array, v: Array) -> Any:
    y = x.copy()
    y[ids] = v
    y[ids[:2], :] = 0.5
    return y * 2


@odd((10, 4), IDS, (6, 4))
def additions_to_named_rows(x: Array, ids: Array, v: Array) -> Any:
    y = x.copy()
    np.add.at(y, ids, v)
    np.add.at(y, ids.reshape(3, 2), 0.25)
    return y


# -- bits


@odd(("int32", 6, 10, -(2**31), 2**31 - 1), ("int32", 6, 10, -(2**31), 2**31 - 1))
def bits_of_integers(n: Array, m: Array) -> Any:
    return ((n >> 7) & 255) + ((n ^ m) & 15) + ((m | 3) >> 24) + ((~n << 3) & 127)


@odd(("int8", 6, 10, -128, 127))
def nibbles(n: Array) -> Any:
    return (n & 15) - 8 + 16.0 * ((n >> 4) & 15)


@odd(("int32", 33, 40, -(2**31), 2**31 - 1), ("int8", 40, 33, -128, 127))
def transposed_integers(n: Array, m: Array) -> Any:
    return n.T * 1.0 + m, (n.T & 15) + m % 4


# -- types of results


@odd(M, ("int32", 6, 10, -9, 9))
def whole_numbers_and_truth_values(x: Array, n: Array) -> Any:
    return (x > 0).sum(axis=1), x.argmax(1) + 1, n * 2, n > 3


# -- parts of values that stay on the chip


@odd((6, 12))
def choices_between_strided_parts(x: Array) -> Any:
    y = x * 2
    pairs = y.reshape(6, 3, 4)
    return np.where((y > 0)[:, ::2], y[:, 1::2], y[:, ::2] + 1), np.where(
        (pairs > 1)[:, 1:3, ::2], pairs[:, :2, 1::2], 3
    )


# -- sorts in place and out=


@odd(M)
def sorted_in_place(x: Array) -> Any:
    y, z = x.copy(), np.abs(x)
    y.sort(axis=-1)
    z.sort(axis=0)
    z[1].sort()
    return y * 2 + z


@odd(M)
def results_of_functions_stored_to_out(x: Array) -> Any:
    a, b, c, d = np.zeros(6), np.empty(10), np.zeros((6, 12)), np.empty((6, 20))
    np.logaddexp.reduce(x, axis=1, out=a)
    np.maximum.reduce(x, 0, None, out=b)
    np.tanh(x, out=c[:, 1:11])
    np.sum(x, 1, None, c[:, 11])
    np.concatenate([x, -x], axis=1, out=d)
    return a[:, None] + b, c, d


@odd(M)
def two_results_stored_to_out(x: Array) -> Any:
    q, r = np.empty(x.shape), np.empty(x.shape)
    np.divmod(x, 0.5, out=(q, r))
    return q + 10 * r


# -- integers


@odd(("int32", 6, 10, -100, 100), ("int32", 6, 1, 0, 8), ("int32", 10, 0, 8))
def bits_of_rows(n: Array, row: Array, column: Array) -> Any:
    return (n & row) + ((n >> row) ^ (row >> column)) * 2 + (row << column) + (n | column)


@odd(("uint8", 6, 10, 0, 255))
def unpacked_bits(q: Array) -> Any:
    return ((q[..., None] >> np.array([0, 4], dtype=np.uint8)) & 15).reshape(6, 20) - 8.0


@odd(("int8", 6, 10, -128, 128), ("uint16", 6, 10, 0, 65536))
def narrow_integers_add_up(a: Array, b: Array) -> Any:
    return a.sum(axis=1) + np.cumsum(b, axis=0)[:, 0] + a.mean(), b.sum(), np.add.reduce(a), a.astype(np.int32) * a


@odd(("int8", 6, 10, -128, 128), ("uint8", 6, 10, 0, 256), ("int32", 6, 10, -(2**20), 2**20))
def narrow_integers_wrap_around(a: Array, b: Array, c: Array) -> Any:
    return (
        a + a,
        b - 1,
        a * a,
        ~b,
        -a,
        (b << 3) & 255,
        (a.astype(np.int16) * 3).astype(np.int8),
        (b & 15) - 8,
        (c % 17).astype(np.int8),
        c.astype(np.uint8),
    )


@odd(("int8", 6, 32, -128, 128), ("int8", 32, 8, -128, 128))
def products_of_narrow_integers(x: Array, w: Array) -> Any:
    return x @ w, x.astype(np.int32) @ w.astype(np.int32), np.einsum("ij,jk->ik", x, w)


@odd(("bool", 6, 10, 0, 2))
def truth_values_add_up(m: Array) -> Any:
    return np.cumsum(m, axis=1) + m.sum(axis=0) + m.prod(axis=1, keepdims=True)


# -- functions that other functions of numpy express


@odd(M, M)
def choices_and_outer_functions(x: Array, y: Array) -> Any:
    near = np.isclose(x, y, atol=0.5)
    chosen = np.select([x < -1, x < 0, near], [x * 2, x * 3, y], default=0.5)
    return chosen + near.mean(), np.multiply.outer(x[0], y), np.copysign(x, y) + np.fmod(x, -0.7)


@odd(M)
def numbers_beside_nan(x: Array) -> Any:
    y = np.log(x)
    return np.nanmean(y, axis=1), np.nansum(y, axis=0), np.nanmax(y), np.fmax(np.nanmin(y, axis=1), y.T[:6, 0])


@odd((6, 10, 4))
def spread_of_numbers_beside_nan(x: Array) -> Any:
    y = np.log(x)
    few = np.nanprod(y, axis=-1) + np.nanmean(y, axis=(0, 2), where=x > 0.2)
    return np.nanstd(y, axis=(0, 1)), np.nanvar(y, axis=(0, 2), ddof=1), few, np.var(x, axis=(0, 2), where=x > 0)


@odd((6, 10, 4), ("int32", 6, 10, 0, 9))
def quantiles_of_several_axes(x: Array, n: Array) -> Any:
    return np.quantile(x, 0.3, axis=(0, 2)), np.percentile(n, 50, axis=1), np.median(n, axis=1), np.median(x)


@odd(("int32", 50, 0, 7), (50,))
def counts_of_given_length(n: Array, w: Array) -> Any:
    return np.bincount(n, minlength=9), np.bincount(n, w, minlength=9), np.isin(n, [2, 5]) * 2 + np.isin(n, n[:2])


@odd((6, 16))
def statistics_of_rows(x: Array) -> Any:
    middle = np.quantile(x, 0.3, axis=1) + np.percentile(x, 50, axis=1, keepdims=True)
    return np.cov(x) + np.corrcoef(x), np.cov(x, rowvar=False, bias=True), middle, np.linalg.norm(x, 3, axis=1)


@odd((6, 16))
def areas_and_slopes(y: Array) -> Any:
    x = np.linspace(0, 1, 16)
    area = np.trapezoid(y, x, axis=1) + np.trapezoid(y, dx=0.1)
    return area, np.gradient(y, axis=1), np.gradient(y[0], 0.5), np.trapezoid(y, np.arange(6.0) ** 2, axis=0)


@odd((20,))
def places_among_points(x: Array) -> Any:
    edges = np.linspace(-2, 2, 9)
    found = np.searchsorted(edges, x) + np.searchsorted(edges, x, side="right") + np.digitize(x, edges)
    return found, np.interp(x, np.array([-1.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.5]))


@odd((6, 8), ("int32", 6, 3, -8, 8), (6, 3))
def stored_along_an_axis(x: Array, at: Array, v: Array) -> Any:
    y, z = x.copy(), x.copy()
    np.put_along_axis(y, at, v, axis=1)
    np.put_along_axis(z, at[:, :1] % 6, 2.0, axis=0)
    return y, z


@odd((8, 8), (12,))
def small_products(x: Array, r: Array) -> Any:
    taps = np.array([0.25, 0.5, 0.125])
    every = np.convolve(r, taps), np.convolve(taps, r, "same"), np.convolve(r, taps, mode="valid")
    return np.linalg.matrix_power(x * 0.3, 5), np.kron(x[:2, :3], x[2:4, :2]), *every


@odd((6, 8))
def grids_and_small_tables(x: Array) -> Any:
    columns, rows = np.meshgrid(np.arange(8), np.arange(6))
    a, b = np.meshgrid(x[0], x[:, 0], indexing="ij")
    table = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    return x + columns * rows, a + 2 * b, table @ x[:3]


@odd((6, 3))
def products_with_positions(x: Array) -> Any:
    return x @ np.arange(3.0), np.arange(6) @ x, x @ np.arange(12).reshape(3, 4)


# -- elements that a mask selects


@odd(M, M)
def changed_where_a_mask_is_true(x: Array, z: Array) -> Any:
    y = x.copy()
    y[y < 0] *= 0.1
    y[x > 1] = np.sqrt(x[x > 1]) + 1
    m = z > 0
    y[m] += z[m] * 2 - x[m]
    return y


@odd(M, M)
def folded_where_a_mask_is_true(x: Array, z: Array) -> Any:
    m = z > 0
    return x[m].mean() + x[m].max(), np.sum(np.square(x[m])), np.mean(x[z < 0] * 2), x[m].min()


# -- angles, logarithms and hyperbolic functions


@odd(M, M)
def angles_of_points(y: Array, x: Array) -> Any:
    return np.arctan2(y, x), np.arctan2(y[0], 2.0), np.arctan2(-1, x), np.arctan2(y > 0, x), np.arctan2(y, x * 0)


@odd(M, M)
def signs_of_zeros(y: Array, x: Array) -> Any:
    z = x * 0  # of both signs
    angles = np.arctan2(z, y), np.arctan2(y * 0, z), np.arctan2(z, -0.0), np.arctan2(0.0, z), np.arctan2(z[:, :1], y)
    return *angles, np.signbit(z), np.copysign(y, z), np.copysign(2.0, z[0]), np.signbit(z.T[::2])


@odd(("int32", 5, 9, -1, 2))
def signs_of_narrow_zeros(n: Array) -> Any:
    z = n.astype(np.float16)
    return np.arctan2(z * 0, z), np.arctan2(z, z * 0 - 1), np.signbit(z * 0), np.signbit(-z[:, :1])


@odd(M)
def inverse_functions(x: Array) -> Any:
    angles = np.arcsin(np.sin(x)), np.arccos(np.clip(x, -1, 1))
    return np.arcsinh(x * 3), np.arccosh(1 + x * x), np.arctanh(np.tanh(x)), *angles, np.degrees(x), np.signbit(x)


@odd(M)
def functions_of_small_values(x: Array) -> Any:
    t = x * 1e-3
    found = np.log1p(t), np.expm1(t), np.sinh(t), np.arcsinh(t), np.arctanh(t), np.tan(t), np.arcsin(t), np.sinc(t)
    return *found, np.arccosh(1 + t * t + x * x), np.log1p(x * x), np.expm1(x), np.sinh(x * 2), np.arctan2(t, x)


@odd(("int32", 6, 10, -5, 6))
def functions_of_whole_numbers(n: Array) -> Any:
    return np.arctan2(n, 3), np.arcsinh(n), np.sinc(n), np.expm1(n), np.log1p(np.abs(n)), np.modf(n)[0], n % 3 == 1


@odd(M)
def whole_and_fractional_parts(x: Array) -> Any:
    f, i = np.modf(x * 3)
    return f, i, np.modf(x)[0] + 1


@odd((4, 30))
def phases_without_jumps(x: Array) -> Any:
    return np.unwrap(np.cumsum(x * 2, axis=1)), np.unwrap(x[0] * 9, period=3.0), np.ediff1d(x[0])


# -- products, counts and powers


@odd((6, 3), (6, 3), (3, 6))
def cross_products(a: Array, b: Array, c: Array) -> Any:
    by_axis = np.cross(a, b, axis=1), np.cross(a, c, axisb=0), np.cross(a, b, axisc=0), np.cross(c, a.T, axis=0)
    return np.cross(a, b), *by_axis, np.cross(a[0], b), np.cross(a, [0.0, 0.0, 1.0])


@odd((7,), ("int32", 5, -4, 5))
def powers_in_columns(x: Array, n: Array) -> Any:
    columns = np.vander(x), np.vander(x, 3), np.vander(x, 4, increasing=True), np.vander(n, 3)
    return *columns, np.polyval([1.0, -2.0, 3.0], x), np.polyval(x[:4], n)


@odd((5, 40), ("int32", 90, 0, 12))
def counts_in_bins(x: Array, n: Array) -> Any:
    counts, edges = np.histogram(x, bins=8, range=(-2, 2))
    by_number, _ = np.histogram(n, bins=np.arange(13))
    density, _ = np.histogram(x, 6, (-3.0, 3.0), density=True)
    weighted, few = np.histogram(x, bins=[-1, 0, 0.5, 2], weights=np.abs(x))
    return counts, edges, by_number, density, weighted, few, np.histogram(x)[0], np.histogram(x, 5)[1]


@odd((6, 12))
def orders_of_floats(x: Array) -> Any:
    few = np.argpartition(-x, 3, axis=1)[:, :3]
    return np.take_along_axis(x, few, axis=1).sum(axis=1), np.argsort(x), x.argsort(axis=0), np.argsort(-x, axis=None)


@odd((30,), (5,))
def correlations(x: Array, t: Array) -> Any:
    return np.correlate(x, t), np.correlate(x, t, "full"), np.correlate(x, t, mode="same")


# -- arrays made of parts


@odd((3, 4), (3, 2), (2, 4))
def blocks_of_arrays(a: Array, b: Array, c: Array) -> Any:
    mixed = np.block([[1.0, a[0, :3]], [a[:3, :1], np.zeros((3, 3))]])
    return np.block([[a, b], [c, np.eye(2)]]), np.block([a[0], b[0]]), np.block([[a], [c]]), mixed


@odd((7,), (7, 2), (7,))
def columns_and_layers(a: Array, b: Array, c: Array) -> Any:
    layers = np.dstack([a, c]), np.dstack((b, -b)), np.dsplit(np.dstack((b, -b)), 2)[1]
    return np.column_stack([a, b, c]), *layers, np.column_stack((a > 0, c > 0)), np.c_[a, b], np.r_[b, b * 2]


@odd(M)
def parts_left_out(x: Array) -> Any:
    rows = np.delete(x, [0, -1], axis=0), np.delete(x, 5), np.delete(x, np.array([1, 3]), axis=-1)
    return np.delete(x, 2, axis=1), np.delete(x, slice(1, 8, 3), 1), *rows


@odd(M, (6, 2))
def parts_put_between(x: Array, v: Array) -> Any:
    columns = np.insert(x, 3, 0.0, axis=1), np.insert(x, [1, 4], v, axis=1), np.insert(x, 0, v[:, 0], axis=1)
    flat = np.insert(x[0], 2, 7.0), np.insert(x, 5, 1.5), np.insert(x[0], [0, 10], [1.0, 2.0])
    return *columns, *flat, np.insert(x, -1, x[0], axis=0), np.insert(x, [2, 2], 9.0, axis=0)


@odd((4, 5))
def arrays_in_nested_lists(x: Array) -> Any:
    a, b, c = x[0, 0], x[0, 1], x[0, 2]
    turned = np.array([[x[0], -x[1]], [x[2], x[3]]]).transpose(2, 0, 1)
    return np.array([[0.0, -c, b], [c, 0.0, -a], [-b, a, 0.0]]), turned, [[a, b], [b, c]]


@odd((5, 7))
def grids_of_positions(x: Array) -> Any:
    i, j = np.indices(x.shape)
    y, z = np.mgrid[0:5, -1:1:7j]
    a, b = np.ogrid[:5, :7]
    board = np.where((i + j) % 2 == 0, x, -x)
    return x * i - j, x * y + z, (a + b) % 3 + x, board, np.cos(np.arange(0.0, 3.5, 0.5)) * x


@odd((64,))
def windows_of_signals(x: Array) -> Any:
    angle = np.arange(33)[:, None] * np.arange(64) % 64 * (2 * np.pi / 64)
    return (
        x * np.hanning(64),
        x * np.hamming(64),
        x * np.blackman(64),
        (np.cos(angle) @ x) ** 2 + (np.sin(angle) @ x) ** 2,
    )


@odd((5, 5), (5,))
def products_of_no_elements(a: Array, b: Array) -> Any:
    y = np.zeros(5)
    for i in range(5):
        y[i] = (b[i] - a[i, :i] @ y[:i]) / 4.0
    return y, folded_nothing(b) + b


def folded_nothing(b: Array) -> Any:
    return b[5:].sum() + b[:0].prod()


# -- sums over partitions, folds in two steps, ranges that several reads share


@odd((130, 24), (24, 33))
def products_and_sums_of_their_rows(x: Array, w: Array) -> Any:
    y = np.tanh(x @ w)
    return y, y.sum(axis=0), (y * y).mean(axis=0), y.max(axis=1)


@odd((3, 140, 600))
def sums_over_each_axis(x: Array) -> Any:
    y = np.exp(x - x.max(axis=-1, keepdims=True))
    y = y / y.sum(axis=-1, keepdims=True)
    return y.sum(axis=1), y.sum(axis=0), y.mean(axis=(0, 1)), y[:, ::2].sum(axis=1)


@odd((150, 20), ("int32", 150, 20, -4, 5))
def sums_over_rows_of_narrow_types(x: Array, n: Array) -> Any:
    half = x.astype(np.float16)
    scaled = half - half.max(axis=1, keepdims=True)
    whole = n - n.min(axis=1, keepdims=True)
    return scaled.astype(np.float32).sum(axis=0), whole, whole.sum(axis=0), (whole > 3).sum(axis=0)


@odd((2, 65, 101), (5003,), (20, 8200))
def long_folds(x: Array, prime: Array, rows: Array) -> Any:
    scaled = (x - x.mean()) / np.sqrt(x.var() + 1e-5), x / x.max(), x.min(axis=(1, 2))
    return *scaled, prime.sum(), prime - prime.max(), rows.sum(axis=1), rows - rows.mean(axis=1, keepdims=True)


@odd((8200, 3))
def long_folds_of_narrow_types(x: Array) -> Any:
    half = (x * 0.01).astype(np.float16)
    return half.max(), half.min(axis=0), np.argmax(x), (x > 0).sum(), (x > 0).any()


@odd((2, 7, 11, 9), (7, 3, 3), (7, 2))
def convolutions_of_each_channel(x: Array, w: Array, v: Array) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    lines = np.lib.stride_tricks.sliding_window_view(x, 3, axis=3)
    dilated = np.einsum("nchwk,ck->nchw", lines[..., ::2], v)
    single = np.einsum("hwij,ij->hw", windows[0, 0], w[0])
    return np.einsum("nchwij,cij->nchw", windows[:, :, ::2, ::2], w), dilated, single, np.tanh(windows[0, 1] @ w[2, 0])


@odd((3, 12, 14))
def neighbors_in_a_shared_range(x: Array) -> Any:
    middle = x[:, 1:-1, 1:-1]
    around = x[:, :-2, 1:-1] + x[:, 2:, 1:-1] - x[:, 1:-1, :-2] * x[:, 1:-1, 2:]
    pairs = x[..., ::2] - x[..., 1::2]
    chosen = np.where(x[:, 1:] > x[:, :-1], x[:, 1:], -x[:, :-1])
    turned = x[:, ::-1, 1:] + x[:, ::-1, :-1]
    return around / (1 + middle**2), pairs, chosen, turned, np.signbit(x[:, 1:]) != np.signbit(x[:, :-1])


@odd((2, 6, 5, 8), (6,), (5, 1), (2, 1, 1, 8))
def broadcasts_along_several_axes(x: Array, a: Array, b: Array, c: Array) -> Any:
    return x * a[:, None, None] + b, x + c, np.where(a[:, None, None] > 0, x, b), x * np.arange(6)[:, None, None]


# -- stores and sums at positions of each row, positions that are clipped


@odd((6, 10), IDS, (6,))
def elements_of_each_row_are_changed(x: Array, ids: Array, v: Array) -> Any:
    rows = np.arange(6)
    stored, raised, added, smooth = x.copy(), x.copy(), x.copy(), np.full((6, 10), 0.01)
    stored[rows, ids] = v
    raised[rows, ids] = 2.0
    np.add.at(added, (rows, ids), v)
    smooth[rows, ids] += 0.9
    return stored, raised, added, smooth


@odd((9, 4), (9,))
def sums_of_constant_segments(x: Array, v: Array) -> Any:
    segments = np.array([3, 0, 0, 1, 1, 1, -1, 3, 3])
    out, flat, kept = np.zeros((5, 4)), np.zeros(5), np.ones((5, 4))
    np.add.at(out, segments, x)
    np.add.at(flat, segments, v)
    np.add.at(kept, np.array([[0, 2], [2, 4]]), x[:2, None])
    return out, flat, kept


@odd((17,), (31, 3))
def tables_at_clipped_distances(table: Array, wide: Array) -> Any:
    i, j = np.arange(40)[:, None], np.arange(33)[None, :]
    return table[np.clip(i - j + 8, 0, 16)], wide[np.clip(j - i, -15, 15) + 15].sum(axis=-1)


@odd((8, 6, 4), ("int32", 3, -4, 4), ("int32", 3, 0, 8), (8, 3, 4), (3, 4))
def elements_that_arrays_name(x: Array, ids: Array, rows: Array, v: Array, u: Array) -> Any:
    y, z, w = x.copy(), x.copy(), x.copy()
    y[:, ids] = v
    z[rows, ids] = u
    np.add.at(w, (rows, ids), u)
    np.add.at(w, (slice(None), ids, 1), v[..., 0])  # type: ignore[arg-type]  # numpy's types know no such index
    y[1:3, ids, 2] = 0.5
    z[rows, :, 1] = 2
    return y, z, w, x[:, ids, None], x[rows, 1:3, ids[0]], x[1, :, rows // 2]


@odd((8, 6, 4), ("int32", 8, 0, 4), ("int32", 8, 3, 0, 6))
def elements_of_each_batch(x: Array, a: Array, b: Array) -> Any:
    y = x.copy()
    y[np.arange(8), :, a] = 1.0
    n = np.arange(8)[:, None]
    y[n, b] *= 2
    y[n, b, 1] = b
    return y, x[n, b], x[n, b, 2], x[np.arange(8), 2, a], x[n, b, :]


@odd((8, 4, 16), ("int32", 5, 0, 8), ("int32", 5, 0, 4), (5, 16), (8, 4))
def stored_to_pages(pages: Array, block: Array, place: Array, new: Array, w: Array) -> Any:
    other = pages.copy()
    pages[block, place] = new
    for n in range(2):
        other[n, :, block[n]] = w[n]
    other[:, :, ::-1][block, place] = new
    other[:, 1:3][block, place // 2] = new
    return pages, other


@odd((8, 6), (8, 6))
def stored_to_constant_places(x: Array, v: Array) -> Any:
    y = x.copy()
    y[[0, 3, 5]] = v[:3]
    y[:, [1, 2]] += v[:, :2]
    y[[1, 1, 2], 2:] = v[:3, 2:]
    y[[4, 6], [0, 5]] = 9
    return y


@odd((30, 24), ("int32", 6, 0, 30), ("int32", 5, 0, 24))
def crossed_positions(x: Array, rows: Array, columns: Array) -> Any:
    y = x.copy()
    y[np.ix_(rows, columns)] = 7.0
    return x[np.ix_(rows, columns)], y, x[np.ix_(np.array([0, 1, 4]), columns)]


LEVELS = np.array([-1.0, -0.7, -0.5, -0.3, 0.1, 0.2, 0.4, 1.0])


@odd(M, ("int32", 6, 10, -8, 8))
def small_tables(x: Array, n: Array) -> Any:
    table = np.array([[1, 2, 3], [4, 5, 7]])
    return LEVELS[n] * x, table[(x > 0).astype(int)], LEVELS[-1] * x + LEVELS[2:4].sum()


@odd(M, ("int32", 6, 10, 0, 3))
def chosen_by_number(x: Array, n: Array) -> Any:
    return np.choose(n, [x, -x, x * x])


@odd(M, (10, 6))
def subscripts_as_numbers(a: Array, b: Array) -> Any:
    summed: Any = np.einsum
    return summed(a, [0, 1], b, [1, 2], [2, 0]), summed(a, [..., 1], [..., 1]), summed(a, [0, 1])


@odd(M)
def folded_by_ufuncs_on_an_axis(x: Array) -> Any:
    return np.minimum.accumulate(x, 1), np.multiply.accumulate(x, axis=0), np.maximum.reduce(x, axis=None)


@odd(("int32", 6, 10, -1000, 1000), ("int32", 6, 10, 1, 50), ("int32", 10, -9, 9))
def integers_over_integers(n: Array, d: Array, e: Array) -> Any:
    return n // d, n % d, n // e, np.remainder(n, e), n // -7, divmod(n, d)[1]


@odd(M, ("int32", 6, 10, -30, 30))
def scaled_by_powers_of_two(x: Array, n: Array) -> Any:
    return np.ldexp(x, 3), np.ldexp(x, n), np.ldexp(x, np.int32(-2))


@odd(("int32", 6, 10, -100000, 100000), ("uint8", 6, 10, 0, 255))
def counted_bits(n: Array, b: Array) -> Any:
    return np.bitwise_count(n), np.bitwise_count(b) + np.bitwise_count(b >> 1)


@odd(M)
def folded_by_segments(x: Array) -> Any:
    return np.add.reduceat(x, [0, 3, 5], axis=1), np.maximum.reduceat(x, [0, 3, 1, 2, 2])


@odd((4, 6, 8), (8,), ("int32", 4, 0, 6))
def functions_of_rows(x: Array, w: Array, n: Array) -> Any:
    def moved(row: Array) -> Array:
        found = np.zeros_like(row)
        found[1:] = row[:-1] * 2
        found[0] = row.sum()
        return found

    along = np.apply_along_axis
    scaled = along(lambda row, by: (row - row.mean()) / row.std() * by, 2, x, 3.0)
    paired = along(lambda row: np.stack([row.cumsum(), row * 2], 1), 1, x)
    return scaled, paired, along(moved, -1, x), along(lambda row: np.dot(row, w), 2, x), along(np.argmax, 0, x), n


@odd((8, 13), (40, 9), (3, 5, 5))
def orders_of_each_row(x: Array, y: Array, z: Array) -> Any:
    return (
        np.sort(x),
        np.sort(x, axis=0)[2:5],
        np.median(y, axis=1),
        np.median(z, axis=(1, 2)),
        np.sort(y[:, :4], axis=1),
    )


@odd((), M)
def arguments_without_axes(s: Array, x: Array) -> Any:
    return x * s, s * 2.0


@odd((2, 4, 6, 8), (2, 4, 6, 8))
def results_that_take_turns(x: Array, y: Array) -> Any:
    out = np.empty((2, 4, 12, 16), x.dtype)
    out[:, :, ::2, ::2], out[:, :, ::2, 1::2] = x, y
    out[:, :, 1::2, ::2], out[:, :, 1::2, 1::2] = x + y, x * y
    return (
        out,
        np.stack([x, y], axis=-1),
        np.moveaxis(np.stack([np.moveaxis(x, 2, 3) + 1, np.moveaxis(y, 2, 3)], -1), 3, 2),
    )


@odd((3, 6, 20), (5, 6, 3))
def turned_sums_of_products(x: Array, w: Array) -> Any:
    p = np.pad(x, ((0, 0), (0, 0), (2, 2)))
    out = sum(np.einsum("oc,bct->bot", w[:, :, k], p[:, :, 2 * k : 2 * k + 20]) for k in range(3))
    return np.maximum(out, 0), out


@odd((20, 4, 6), (20, 6, 6), (20, 4))
def states_that_pass_through_two_products(x: Array, w: Array, g: Array) -> Any:
    s, out = np.zeros((6, 4), x.dtype), np.empty((20, 6, 4), x.dtype)
    for t in range(20):
        s = s * 0.5 * g[t] + x[t].T
        s = s - 0.1 * (w[t] @ s)
        out[t] = s * 2
    return out


@odd((2, 260, 12), (2, 260, 12))
def groups_of_the_last_axis(x: Array, y: Array) -> Any:
    groups = x.reshape(2, 260, 3, 4)
    mean = groups.mean((1, 3), keepdims=True)
    both = ((groups - mean) ** 2).mean((1, 3))
    return both, groups.max((1, 3)), (x * y).reshape(2, 260, 4, 3).sum((1, 3)), y.reshape(2, 260, 3, 4).min((3, 1))


# -- masks of some axes, rows that masks select


@odd((2, 8, 6, 16), (2, 8), (16,))
def masks_of_some_axes(x: Array, m: Array, e: Array) -> Any:
    y = x.copy()
    y[m > 0] = 0.0
    y[m < -0.5] = e
    y[:, m[0] > 0.7] = -1.0
    y[..., e > 1] = 3.0
    y[..., ::2][..., e[::2] > 0] += 3.0
    return y, y[..., e < 0].sum()


@odd((32, 16), (16, 4), (4, 16, 24), (4, 24, 16))
def rows_at_positions_of_a_mask(x: Array, router: Array, w1: Array, w2: Array) -> Any:
    p = np.exp(x @ router)
    p = p / p.sum(-1, keepdims=True)
    top = p.argmax(-1)
    out = np.zeros_like(x)
    for e in range(4):
        mine = np.where(top == e)[0]
        out[mine] += np.maximum(x[mine] @ w1[e], 0) @ w2[e] * p[mine, e, None]
    return out


@odd((32, 16), (32, 4), (16, 16), (16,))
def functions_of_selected_rows(x: Array, s: Array, w: Array, b: Array) -> Any:
    out = np.zeros_like(x)
    for e in range(2):
        m = s[:, e] > 0
        y = np.clip(x[m] @ w + b, -1, 3)
        y = y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-5)
        first, second = np.split(y, 2, axis=-1)
        out[m] = out[m] + np.concatenate([second, first], axis=1) * s[m][:, e : e + 1]
    few = np.flatnonzero(s[:, 0] < 0)
    return out, x[few].sum(0), x[few].mean(axis=0), x[s.T[1] > 0].max(axis=0), x[few, ::2].max(1).sum()


@odd((6, 40), (6, 40))
def powers_of_two_arrays(x: Array, y: Array) -> Any:
    return np.abs(x) ** y, (1 - 2.0 ** (-5 - np.arange(40))) ** np.round(10 * y), x ** np.round(2 * y)


@odd((2, 3, 8, 8), (5, 3, 3, 3))
def windows_by_strides(x: Array, w: Array) -> Any:
    n, c, h, width = x.shape
    a, b, d, e = x.strides
    windows = as_strided(x, (n, c, h - 2, width - 2, 3, 3), (a, b, d, e, d, e))
    halves = np.lib.stride_tricks.as_strided(x, (n, c, 4, 8), (a, b, 2 * d, e))
    return np.einsum("nchwij,ocij->nohw", windows, w), halves.max(axis=2)


@odd((40, 30))
def rounded_to_even(x: Array) -> Any:
    far = np.round(x * 1e7) / 1e7
    return np.round(np.floor(x * 40) / 2), far, np.round(x * 3) * 0.5


@odd((8, 40, 6), ("int32", 8, 5, 0, 2000), (8, 2000))
def elements_of_long_rows(x: Array, at: Array, table: Array) -> Any:
    return np.take_along_axis(table, at, axis=1), np.flip(x, axis=1) - x


# -- loops over time


@odd((12, 40), (12, 40))
def loops_backward_in_time(r: Array, done: Array) -> Any:
    g, out = np.zeros(12), np.zeros_like(r)
    last = (done > 1.0).astype(r.dtype)
    for t in reversed(range(r.shape[1])):
        g = r[:, t] + 0.99 * g * (1 - last[:, t])
        out[:, t] = g
    return out * 2.0, g


@odd((3, 40, 6), (3, 6))
def loops_that_read_what_they_stored(x: Array, h: Array) -> Any:
    y = np.empty_like(x)
    y[:, 0] = h
    for t in range(1, x.shape[1]):
        y[:, t] = y[:, t - 1] + 0.1 * (x[:, t] - y[:, t - 1])
    low = h
    floor = []
    for t in range(x.shape[1]):
        low = np.minimum(low + 0.2, x[:, t])
        floor.append(low)
    return y, np.stack(floor, axis=1), low


@odd((24, 16), (24, 16), (16,), (16,))
def loops_with_a_running_maximum(k: Array, v: Array, w: Array, u: Array) -> Any:
    above, below, top = np.zeros(16), np.zeros(16), np.full(16, -1e38)
    out = np.zeros_like(k)
    for t in range(len(k)):
        most = np.maximum(top, u + k[t])
        a, b = np.exp(top - most), np.exp(u + k[t] - most)
        out[t] = (a * above + b * v[t]) / (a * below + b)
        most = np.maximum(top - np.exp(w), k[t])
        a, b = np.exp(top - np.exp(w) - most), np.exp(k[t] - most)
        above, below, top = a * above + b * v[t], a * below + b, most
    return out / (1 + np.exp(-v))


@odd((2, 20, 8), (2, 20, 8), (2, 20, 16))
def loops_over_a_matrix(q: Array, k: Array, v: Array) -> Any:
    decay = 1 - np.exp(np.linspace(math.log(1 / 32), math.log(1 / 512), 2))
    state, out = np.zeros((2, 8, 16)), []
    for t in range(q.shape[1]):
        state = decay[:, None, None] * state + np.einsum("hd,he->hde", k[:, t], v[:, t])
        out.append(np.einsum("hd,hde->he", q[:, t], state))
    return np.stack(out, axis=1), state


@odd((2, 2, 40, 8), (2, 2, 40, 8), (2, 2, 40, 8))
def products_with_running_sums(q: Array, k: Array, v: Array) -> Any:
    sums = np.cumsum(k[..., :, None] * v[..., None, :], axis=2)
    return np.einsum("bhtd,bhtde->bhte", q, sums)


@odd((64, 4, 16), (64, 4), (2, 64, 12))
def small_products_of_many_rows(x: Array, w: Array, z: Array) -> Any:
    y = z.reshape(2, 4, 4, 4, 12).transpose(0, 2, 1, 3, 4).reshape(8, 16, 12)
    s = np.exp(y @ y.transpose(0, 2, 1) / 8)
    return np.einsum("bld,bl->bd", x, w), s @ y


# -- columns in another order than in memory, constants, small numbers


@odd((16, 20, 24), (24, 20))
def columns_in_another_order_for_several_levels(x: Array, w: Array) -> Any:
    y = x.transpose(0, 2, 1)
    e = np.exp(y - y.max((1, 2), keepdims=True)) * w
    n = y / np.sqrt((y * y).mean((1, 2), keepdims=True) + 1e-5) * w
    return e / e.sum((1, 2), keepdims=True) + y * w, n.sum((1, 2))


@odd((2, 24, 64), (24, 17))
def an_element_of_a_partition(x: Array, y: Array) -> Any:
    least = np.partition(x, -3, axis=-1)[..., -3:-2]
    return np.where(x >= least, x, 0), np.partition(y, (2, 5), axis=1)[:, 5]


@odd((3, 40))
def positions_that_walk(x: Array) -> Any:
    near = np.minimum((np.arange(40) + 1) // 2, 17)
    lists = [3, 2, 1, 0, 7, 6, 5, 4], [5], [-1, -2, 4]
    return x[:, near], x[:, np.array([[0, 2], [1, 3]])], *(x[:, one] for one in lists)


@odd((9, 9, 3))
def relative_positions_in_a_plane(table: Array) -> Any:
    place = np.stack(np.meshgrid(np.arange(5), np.arange(4), indexing="ij")).reshape(2, -1)
    apart = place[:, :, None] - place[:, None, :]
    return table[apart[0] + 4, apart[1] + 3].transpose(2, 0, 1)


@odd((64, 64))
def logarithms_of_little(x: Array) -> Any:
    p = np.maximum(x, 0)
    return np.log(p + 1e-30), -np.log(np.maximum(p, 1e-20)), np.log(np.where(x > 0, x, 1e-35))


@odd((30, 40), (96, 64, 3))
def filters_of_constants(x: Array, pixels: Array) -> Any:
    k = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], float)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, 1), (3, 3))
    mixed = pixels @ np.array([[0.3, 0.6, 0.1], [-0.1, -0.3, 0.4], [0.6, -0.5, -0.1]]).T
    return (windows * k).sum((2, 3)), np.einsum("ijab,ab->ij", windows, k.T), mixed


# -- several results of a reduction in a row, many small products


@odd((16, 20), (20, 20), (4, 5, 6, 12))
def reductions_between_rows_and_columns(a: Array, b: Array, x: Array) -> Any:
    s = a[:, :, None] + b
    m = s.max(1)
    y = x - 0.5 * x.max(2, keepdims=True) + 0.1 * x.sum((1, 2), keepdims=True)
    return m + np.log(np.exp(s - m[:, None]).sum(1)), y, y.argmin(2)


@odd((1024, 8), (64, 20, 16), (128, 96))
def rows_of_a_few_elements(x: Array, y: Array, z: Array) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    blocks = z.reshape(128, 6, 16)
    scale = np.abs(blocks).max(-1, keepdims=True)
    return e / e.sum(-1, keepdims=True), x.argmax(-1), y / np.sqrt((y * y).mean(-1, keepdims=True)), blocks / scale


@odd((40, 3), (40,), (36, 10, 6), (36, 10))
def many_small_products(place: Array, mass: Array, x: Array, w: Array) -> Any:
    apart = place[None] - place[:, None]
    near = np.einsum("ijk,ijk->ij", apart, apart) + 0.1
    return np.einsum("ij,ijk->ik", mass / near, apart), np.einsum("bi,bio->bo", w, x), np.einsum("bio,bio->b", x, x)


@odd((5, 1, 6, 8, 4), (5, 6, 1, 1, 4), (3, 3, 3, 8), (2, 9, 9, 3), (2, 4, 7, 7, 7), (8, 4, 3, 3, 3))
def sums_of_products_in_any_order(x: Array, w: Array, taps: Array, image: Array, cube: Array, taps3: Array) -> Any:
    y = np.einsum("deabf,dacef->bca", x, w)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), (1, 2))
    three = np.zeros((2, 8, 5, 5, 5))
    for a, b, c in np.ndindex(3, 3, 3):
        three += np.einsum("ncdhw,oc->nodhw", cube[:, :, a : a + 5, b : b + 5, c : c + 5], taps3[:, :, a, b, c])
    return y * y.mean(2, keepdims=True), np.einsum("bhwcij,ijco->bhwo", windows, taps), three


# -- windows that loops copy, convolutions of few channels


@odd((2, 5, 11, 13), (7, 45), (2, 3, 9, 9), (6, 27))
def windows_that_loops_copy(x: Array, w: Array, y: Array, v: Array) -> Any:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    columns = np.empty((2, 5, 3, 3, 6, 7), x.dtype)
    for i, j in np.ndindex(3, 3):
        columns[:, :, i, j] = padded[:, :, i : i + 12 : 2, j : j + 14 : 2]
    stacked = np.stack([y[:, :, i : i + 7, j : j + 7] for i in range(3) for j in range(3)], axis=2)
    rows = stacked.transpose(0, 3, 4, 1, 2).reshape(2 * 49, 27)
    return w @ columns.reshape(2, 45, 42), (rows @ v.T).reshape(2, 7, 7, 6).transpose(0, 3, 1, 2), columns


@odd((3, 8), (3, 10), (4, 6))
def parts_of_one_array_and_of_others(x: Array, y: Array, z: Array) -> Any:
    backward = np.concatenate([x[:, 4:], x[:, 2:6], x[:, :4]], axis=1)
    overlapping = np.stack([y[:, k : k + 4] for k in (0, 2, 4, 6)], axis=1).reshape(3, 16)
    uneven = np.concatenate([z[:, :2], z[:, 1:3], z[:, 4:6]], axis=1)
    partly = np.zeros((3, 4, 4), y.dtype)
    partly[:, :2] = np.stack([y[:, :4], y[:, 3:7]], axis=1)
    return backward, overlapping * 2, uneven, partly


@odd((3, 6, 15, 13), (10, 6, 3, 3), (2, 3, 7, 8, 9), (4, 3, 2, 3, 3), (2, 12, 9, 9), (8, 3, 3, 3))
def convolutions_of_few_channels(x: Array, w: Array, cube: Array, w3: Array, z: Array, grouped: Array) -> Any:
    strided = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    three = np.lib.stride_tricks.sliding_window_view(cube, (2, 3, 3), axis=(2, 3, 4))
    groups = []
    for g in range(4):
        windows = np.lib.stride_tricks.sliding_window_view(z[:, 3 * g : 3 * g + 3], (3, 3), axis=(2, 3))
        groups.append(
            np.tensordot(windows, grouped[2 * g : 2 * g + 2], axes=([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2)
        )
    return (
        np.einsum("nchwij,ocij->nohw", strided, w),
        np.tensordot(strided, w, axes=([1, 4, 5], [1, 2, 3])) + 1,
        np.einsum("ncdhwijk,ocijk->nodhw", three, w3),
        np.concatenate(groups, axis=1),
    )


# -- sums over rows, extremes at positions


@odd((3, 20, 5, 12), (3, 20, 5))
def sums_over_rows_in_another_order(x: Array, w: Array) -> Any:
    weighted = np.exp(0.1 * x) * w[..., None]
    return weighted.sum(1).transpose(0, 2, 1), (x * x).sum((0, 1))


@odd((40, 3), ("int32", 40, -5, 5), ("int32", 40, 0, 50))
def extremes_at_positions(x: Array, place: Array, n: Array) -> Any:
    most, least, counts = np.full((5, 3), -np.inf, x.dtype), np.zeros((5, 3), x.dtype), np.zeros(5, np.int32)
    np.maximum.at(most, place, x)
    np.minimum.at(least, place, x)
    np.maximum.at(counts, place, n)
    return np.maximum(most, -9), least, counts


# -- tables whose cells depend on earlier cells


@odd((9, 8))
def least_paths_down(x: Array) -> Any:
    cost = np.zeros_like(x)
    cost[0] = x[0]
    for i in range(1, 9):
        for j in range(8):
            cost[i, j] = x[i, j] + cost[i - 1, max(0, j - 1) : min(8, j + 2)].min()
    return cost, cost[-1].argmin()


@odd((8, 9))
def a_table_filled_in_place(x: Array) -> Any:
    c = x.copy()
    for i in range(8):
        for j in range(9):
            if i and j:
                c[i, j] += np.maximum(c[i - 1, j], c[i, j - 1])
            elif i:
                c[i, j] += c[i - 1, j]
            elif j:
                c[i, j] += c[i, j - 1]
    return c


@odd((8, 9))
def cells_that_read_cells_before_they_are_computed(x: Array) -> Any:
    u = np.zeros((10, 11))
    for i in range(1, 9):
        for j in range(1, 10):
            u[i, j] = 0.25 * (u[i - 1, j] + u[i, j - 1] + u[i + 1, j] + u[i, j + 1] - x[i - 1, j - 1])
    return u


@odd((9, 3), (8, 3))
def soft_alignment(x: Array, y: Array) -> Any:
    d = ((x[:, None] - y[None]) ** 2).sum(-1)
    r = np.full((10, 9), 1e8, dtype=x.dtype)
    r[0, 0] = 0
    for i in range(1, 10):
        for j in range(1, 9):
            a, b, c = -r[i - 1, j - 1], -r[i - 1, j], -r[i, j - 1]
            m = np.maximum(np.maximum(a, b), c)
            r[i, j] = d[i - 1, j - 1] - (m + np.log(np.exp(a - m) + np.exp(b - m) + np.exp(c - m)))
    return r[9, 8]


@odd((6, 12, 5), ("int32", 6, -12, 12))
def positions_in_ranges_and_tuples(x: Array, at: Array) -> Any:
    out = x.copy()
    out[range(6), at] = 1.0
    out[(0, 1), (2, 3)] = 7.0
    return x[range(6), at], x[(0, 1, 2), (3, 4, 5)], x[:, range(3)], out


@odd((7, 33))
def several_quantiles(x: Array) -> Any:
    low, high = np.percentile(x, [25, 75], axis=1)
    return low, high, np.quantile(x, [[0.1, 0.5], [0.6, 1.0]], axis=0, keepdims=True)


@odd((40, 6), (6, 6))
def values_turned_and_repeated(x: Array, w: Array) -> Any:
    mean = (x @ w).mean(axis=0)
    scaled = mean / np.sqrt((mean * mean).sum())
    y = x[:, 2] * scaled[4]
    return x - scaled, y / y.max(), scaled[::-1] * y[:6]


# -- a few elements of an order


@odd((20, 16), (20, 16))
def a_few_elements_of_an_order(x: Array, y: Array) -> Any:
    order = np.argsort(x, axis=1)
    return (
        order[:, -3:],
        order[:, ::-1][:, :2],
        np.argsort(-x, axis=1)[:, :8],
        np.argsort(x.T, axis=0)[:2],
        np.sort(y)[:, -1],
        np.sort(y)[:, 3],
        np.sort(y, 0)[:5],
        np.argpartition(y, -2, axis=1)[:, -2:].sum(1),
        np.sort(x)[:, 0::2][:, :2] - np.sort(x)[:, 5:7],
    )


@odd((2, 3, 700), ("int32", 20, 50, 0, 9))
def a_few_elements_of_an_order_with_equals(x: Array, n: Array) -> Any:
    f = n.astype(np.float32)
    order = np.argsort(f, kind="stable")
    return (
        np.argsort(x)[..., -4:],
        np.argsort(n, kind="stable")[:, :5],
        np.argsort(n, kind="stable")[:, -5:],
        np.sort(n)[:, :3],
        order[:, 45:],
        np.argsort(-f, kind="stable")[:, :3],
        np.sort(-f)[:, :2],
        -np.sort(-x, axis=-1)[..., 7],
    )


@odd((30, 20, 24))
def orders_of_products(x: Array) -> Any:
    y = x @ np.swapaxes(x, 1, 2)
    e = np.exp(0.1 * (y - np.sort(y, axis=-1)[..., -1:]))
    return np.argsort(-y.sum(-1), axis=-1)[:, :3], e / e.sum(-1, keepdims=True)


# -- constant positions on several axes


@odd((8, 9, 10), (6, 12, 12), (66, 5))
def constant_positions_on_several_axes(x: Array, z: Array, v: Array) -> Any:
    i, j = np.tril_indices(12, -1)
    y, m = x * 2, np.ones((12, 12, 5), v.dtype)
    y[[0, 2, 4], :, [1, 3, -1]] = 0
    y[1, [1, 2], [3, 3]] += 5
    m[i, j] = v
    m[j, i] = v
    m[np.arange(12), -np.arange(1, 13)] = 3.0
    return y, m, x[[0, 2, 4], :, [1, 3, -1]], x[1, [1, 2], [3, 3]], (z @ np.swapaxes(z, 1, 2))[:, i, j]


# -- lengths without divisors


@odd((3, 10007), (3,), (1009, 3), ("int32", 5003, -5, 5))
def lengths_without_divisors(x: Array, b: Array, y: Array, n: Array) -> Any:
    return np.maximum(x * 2 + b[:, None], 0), x.sum(1), np.abs(x[0]).max(), y * y - 1, n * 2 + 1, n.sum(), n.min()


# -- windows over several axes


@odd((3, 20, 25))
def windows_over_several_axes(x: Array) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view
    w = windows(x, (5, 7), axis=(1, 2))
    return (
        w.max((3, 4)),
        w.mean((-1, -2)),
        w[:, ::2, ::3].min((3, 4)),
        windows(x, (4, 3), axis=(1, 2))[:, ::3].sum((3, 4)),
        windows(x, (3, 4, 5))[0].sum((2, 3, 4)),
        w[:, :, 3].sum((2, 3)),
    )


# -- elements that are repeated between others


@odd((5, 2, 7, 3), (5, 7, 3), (40, 6, 6), (40, 6, 6))
def elements_repeated_between_others(x: Array, y: Array, a: Array, b: Array) -> Any:
    return (x - y[:, None]) * y[:, None], x + y[0], np.einsum("nij,nkj->nik", a, b), a @ np.swapaxes(b, 1, 2) - b
