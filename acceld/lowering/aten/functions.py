"""Define the functions that the references of PyTorch modules call.

Their source is copied into a reference, so they use only numpy. Each function keeps the dtype of its arrays, so that
float64 inputs give float64 results.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
from __future__ import annotations

import math
from typing import Any

import numpy as np


def cast(x, dtype):
    """Return x converted to dtype. float64 stays float64 instead of a narrower float dtype.

    A reference is called with float64 to tell rounding from errors, and a conversion would round.
    """
    wide = x.dtype == np.float64 and dtype in ("float32", "bfloat16", "float16")
    return x if wide else x.astype(dtype)


def sigmoid(x):
    """Return 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def softplus(x):
    """Return log(1 + exp(x)) without overflow."""
    return np.maximum(x, 0.0) + np.log(1.0 + np.exp(-np.abs(x)))


def erf_of(x):
    """Return the error function of each element."""
    return np.vectorize(math.erf)(x).astype(x.dtype)


def softmax(x, axis):
    """Return exp(x) divided by its sum along axis."""
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def log_sum_exp(x, axis, keepdims):
    """Return the logarithm of the sum of exp(x) along axis."""
    top = x.max(axis=axis, keepdims=True)
    found = top + np.log(np.exp(x - top).sum(axis=axis, keepdims=True))
    return found if keepdims else np.squeeze(found, axis)


def normalized(x, axes, eps):
    """Return x shifted and scaled to mean 0 and variance 1 over axes. eps is added to the variance."""
    centered = x - x.mean(axis=axes, keepdims=True)
    return centered / np.sqrt((centered * centered).mean(axis=axes, keepdims=True) + eps)


def root_mean_square_normalized(x, axes, eps):
    """Return x divided by the root of its mean square over axes. eps is added to the mean square."""
    return x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + eps)


def attention(q, k, v, mask, causal, scale):
    """Return softmax(q k^T scale + mask) v. If k and v have fewer heads than q, several heads of q share one of theirs."""
    rows, columns = q.shape[-2], k.shape[-2]
    if q.ndim > 3 and k.shape[-3] != q.shape[-3]:
        k = np.repeat(k, q.shape[-3] // k.shape[-3], axis=-3)
        v = np.repeat(v, q.shape[-3] // v.shape[-3], axis=-3)
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if causal:
        seen = np.arange(rows)[:, None] >= np.arange(columns)[None, :]
        scores = np.where(seen, scores, -1e30)
    if mask is not None:
        scores = scores + mask
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True) @ v


def padded(x, widths, value):
    """Return x with a border of value. widths has (before, after) for each axis; a negative width removes elements."""
    kept = tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, widths, strict=True))
    grown = [(max(0, a), max(0, b)) for a, b in widths]
    x = x[kept]
    return np.pad(x, grown, constant_values=value) if any(a or b for a, b in grown) else x


def stored(x, place, value):
    """Return a copy of x with value stored at place."""
    x = widened(x, value).copy()
    x[place] = value
    return x


def windows(x, kernel, stride, dilation):
    """Return the sliding windows over the last axes of x, as an array [batch, channels, places, window]."""
    rank = len(kernel)
    wide = tuple(d * (n - 1) + 1 for n, d in zip(kernel, dilation, strict=True))
    w = np.lib.stride_tricks.sliding_window_view(x, wide, axis=tuple(range(x.ndim - rank, x.ndim)))
    steps = [slice(None)] * (x.ndim - rank)
    steps += [slice(None, None, s) for s in stride] + [slice(None, None, d) for d in dilation]
    return w[tuple(steps)]


def convolution(x, weight, bias, stride, padding, dilation, groups):
    """Return the convolution of x [batch, channels, places] with weight [out, channels of a group, window]."""
    rank = weight.ndim - 2
    x = padded(x, [(0, 0), (0, 0), *padding], 0.0)
    w = windows(x, weight.shape[2:], stride, dilation)
    batch, places = w.shape[0], w.shape[2 : 2 + rank]
    taps = range(2 + rank, 2 + 2 * rank)
    over = ((1, *taps), (1, *range(2, 2 + rank)))
    if groups == 1:
        out = np.moveaxis(np.tensordot(w, weight, over), -1, 1)
    elif weight.shape[1] == 1 and weight.shape[0] == groups:
        kernel = weight.reshape((groups, *(1,) * rank, *weight.shape[2:]))
        # The products of all windows take many times the memory of x, so they are made for some channels at a time.
        most = max(1, 2**26 * groups // w.size)
        cuts = [slice(at, at + most) for at in range(0, groups, most)]
        parts = [(w[:, cut] * kernel[cut]).sum(axis=tuple(taps)) for cut in cuts]
        out = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    else:
        parts = []
        for group in range(groups):
            ins, outs = weight.shape[1], weight.shape[0] // groups
            held = w[:, group * ins : (group + 1) * ins]
            part = np.tensordot(held, weight[group * outs : (group + 1) * outs], over)
            parts.append(np.moveaxis(part, -1, 1))
        out = np.concatenate(parts, axis=1)
    out = out.reshape((batch, weight.shape[0], *places))
    return out if bias is None else out + bias.reshape((1, -1, *(1,) * rank))


def transposed_convolution(x, weight, bias, stride, padding, added, dilation, groups):
    """Return the transposed convolution of x with weight [channels, out of a group, window].

    The result is the convolution of x with zeros between its elements.
    """
    rank = weight.ndim - 2
    kernel, extents = weight.shape[2:], x.shape[2:]
    spread = np.zeros((*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(extents, stride, strict=True))), x.dtype)
    spread[(slice(None), slice(None), *(slice(None, None, s) for s in stride))] = x
    borders = []
    for n, p, more, d in zip(kernel, padding, added, dilation, strict=True):
        edge = d * (n - 1) - p
        borders.append((edge, edge + more))
    turned = weight
    for axis, n in enumerate(kernel, 2):
        lead = (slice(None),) * axis
        turned = np.concatenate([turned[(*lead, slice(at, at + 1))] for at in range(n - 1, -1, -1)], axis)
    ins, outs = x.shape[1] // groups, weight.shape[1]
    turned = turned.reshape((groups, ins, outs, *kernel)).swapaxes(1, 2).reshape((groups * outs, ins, *kernel))
    return convolution(spread, turned, bias, (1,) * rank, borders, dilation, groups)


def pooled_max(x, kernel, stride, padding, dilation):
    """Return the greatest element of each sliding window over the last axes."""
    rank = len(kernel)
    x = padded(x, [*((0, 0),) * (x.ndim - rank), *padding], -1e30)
    return windows(x, kernel, stride, dilation).max(axis=tuple(range(-rank, 0)))


def pooled_mean(x, kernel, stride, padding, divisor):
    """Return the sum of each sliding window over the last axes, divided by divisor."""
    rank = len(kernel)
    x = padded(x, [*((0, 0),) * (x.ndim - rank), *padding], 0.0)
    return windows(x, kernel, stride, (1,) * rank).sum(axis=tuple(range(-rank, 0))) * (1.0 / divisor)


def pooled_mean_within(x, kernel, stride, padding, reach):
    """Return the mean of each sliding window over the last axes, without the elements that are outside.

    padding has the border (before, after) of each axis, and reach how many places of the border (before, after) count as
    inside.
    """
    rank = len(kernel)
    wide = padded(x, [*((0, 0),) * (x.ndim - rank), *padding], 0.0)
    total = windows(wide, kernel, stride, (1,) * rank).sum(axis=tuple(range(-rank, 0)))
    for place in range(rank):
        axis = total.ndim - rank + place
        begins = np.arange(total.shape[axis]) * stride[place] - padding[place][0]
        last = np.minimum(begins + kernel[place], x.shape[x.ndim - rank + place] + reach[place][1])
        counts = (last - np.maximum(begins, -reach[place][0])).astype(x.dtype)
        total = total / counts.reshape((-1, *(1,) * (rank - 1 - place)))
    return total


def pooled_places(x, kernel, stride, padding, dilation):
    """Return the position of the greatest element of each sliding window, counted over the last axes of x together."""
    rank = len(kernel)
    wide = padded(x, [*((0, 0),) * (x.ndim - rank), *padding], -1e30)
    seen = windows(wide, kernel, stride, dilation)
    taps = seen.reshape((*seen.shape[:-rank], math.prod(kernel))).argmax(axis=-1)
    found: Any = 0
    for place in range(rank):
        axis = x.ndim - rank + place
        within = taps // math.prod(kernel[place + 1 :]) % kernel[place] * dilation[place]
        begins = np.arange(seen.shape[axis]) * stride[place] - padding[place][0]
        found = found * x.shape[axis] + within + begins.reshape((-1, *(1,) * (rank - 1 - place)))
    return found


def adaptively_pooled(x, extents, fold):
    """Return the mean or max (fold) of each part of x. extents has how many parts each of the last axes is divided into."""
    for place, wanted in enumerate(extents):
        axis = x.ndim - len(extents) + place
        n = x.shape[axis]
        if n == wanted:
            continue
        if n % wanted == 0:
            parts = x.reshape((*x.shape[:axis], wanted, n // wanted, *x.shape[axis + 1 :]))
            x = getattr(parts, fold)(axis=axis + 1)
            continue
        lead = (slice(None),) * axis
        cuts = [(i * n // wanted, -(-(i + 1) * n // wanted)) for i in range(wanted)]
        x = np.concatenate([getattr(x[(*lead, slice(*cut))], fold)(axis=axis, keepdims=True) for cut in cuts], axis)
    return x


def interpolated(x, axis, count, step, aligned):
    """Return x interpolated linearly to count places along an axis.

    step is the distance between new places, in old places. If aligned, the first new place is the first place of x.
    Otherwise the old and the new axis begin at the same border, half a step before the first place.
    """
    n = x.shape[axis]
    first = 0.0 if aligned else 0.5 * step - 0.5
    places = np.clip(np.arange(count) * step + first, 0.0, n - 1.0)
    weights = np.maximum(1.0 - np.abs(places[:, None] - np.arange(n)[None, :]), 0.0).astype(x.dtype)
    return np.moveaxis(np.moveaxis(x, axis, -1) @ weights.T, -1, axis)


def smoothed(x, axis, count, step, cubic):
    """Return x resized to count places along an axis, where each new place is a mean of the old places around it.

    step is the distance between new places, in old places. The weights of the mean are a triangle, or a cubic curve if
    cubic is True. They spread over more old places if step is above 1.
    """
    n = x.shape[axis]
    centers = (np.arange(count) + 0.5) * step - 0.5
    away = np.abs(centers[:, None] - np.arange(n)[None, :]) * (1.0 / max(step, 1.0))
    if cubic:
        near = (1.5 * away - 2.5) * away * away + 1.0
        far = ((-0.5 * away + 2.5) * away - 4.0) * away + 2.0
        weights = np.where(away < 1.0, near, np.where(away < 2.0, far, 0.0))
    else:
        weights = np.maximum(1.0 - away, 0.0)
    weights = (weights / weights.sum(axis=1, keepdims=True)).astype(x.dtype)
    return np.moveaxis(np.moveaxis(x, axis, -1) @ weights.T, -1, axis)


def folded(x, extents, kernel, dilation, padding, stride):
    """Return an image of these extents: the sum of sliding windows, each added where it was taken.

    x is [batch, channels of all places of a window, windows].
    """
    counts = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(extents, kernel, dilation, padding, stride, strict=True)
    ]
    parts = x.reshape((x.shape[0], x.shape[1] // (kernel[0] * kernel[1]), *kernel, *counts))
    made = np.zeros((*parts.shape[:2], *(n + 2 * p for n, p in zip(extents, padding, strict=True))), x.dtype)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = slice(i * dilation[0], i * dilation[0] + (counts[0] - 1) * stride[0] + 1, stride[0])
            columns = slice(j * dilation[1], j * dilation[1] + (counts[1] - 1) * stride[1] + 1, stride[1])
            made[:, :, rows, columns] += parts[:, :, i, j]
    return made[:, :, padding[0] : padding[0] + extents[0], padding[1] : padding[1] + extents[1]]


def distances(x, y, p):
    """Return the distance of each row of x from each row of y: the p-norm of their difference."""
    apart = np.abs(x[..., :, None, :] - y[..., None, :, :])
    if p == 1.0:
        return apart.sum(axis=-1)
    if p == 2.0:
        return np.sqrt(np.square(apart).sum(axis=-1))
    return apart.max(axis=-1) if p == np.inf else (apart**p).sum(axis=-1) ** (1.0 / p)


def distances_by_products(x, y):
    """Return the Euclidean distance of each row of x from each row of y, computed by a matrix product."""
    squares = np.square(x).sum(axis=-1)[..., :, None] + np.square(y).sum(axis=-1)[..., None, :]
    return np.sqrt(np.maximum(squares - 2.0 * (x @ np.swapaxes(y, -1, -2)), 0.0))


def greatest(x, count, axis):
    """Return the count greatest values along an axis, the greatest first, and their positions."""
    x = np.moveaxis(x, axis, -1)
    places = np.arange(x.shape[-1])
    taken = np.zeros(x.shape, x.dtype)
    found, where = [], []
    for _ in range(count):
        best = np.where(taken > 0, -np.inf, x).max(axis=-1, keepdims=True)
        at = ((x == best) * (1 - taken)).argmax(axis=-1)[..., None]
        found.append(best)
        where.append(at)
        taken = np.where(places == at, 1, taken)
    return np.moveaxis(np.concatenate(found, -1), -1, axis), np.moveaxis(np.concatenate(where, -1), -1, axis)


def least(x, count, axis):
    """Return the count least values along an axis, the least first, and their positions."""
    found, places = greatest(-x, count, axis)
    return -found, places


def most_frequent(x, axis):
    """Return the most frequent value along an axis; the least of several."""
    x = np.moveaxis(x, axis, -1)
    counts = (x[..., :, None] == x[..., None, :]).sum(axis=-1)
    frequent = counts == counts.max(axis=-1, keepdims=True)
    return np.where(frequent, x, x.max(axis=-1, keepdims=True)).min(axis=-1)


def running_extreme(x, axis, by):
    """Return, for each position of an axis, the extreme of the elements up to that position, and the last position
    where this extreme occurs.

    by is maximum or minimum.
    """
    x = np.moveaxis(x, axis, -1)
    found = getattr(np, by).accumulate(x, axis=-1)
    places = np.maximum.accumulate(np.where(x == found, np.arange(x.shape[-1]), 0), axis=-1)
    return np.moveaxis(found, -1, axis), np.moveaxis(places, -1, axis)


def running_log_sum_exp(x, axis):
    """Return the logarithm of the sum of exp(x) over the elements up to each place of an axis."""
    x = np.moveaxis(x, axis, -1)
    places = np.arange(x.shape[-1])
    terms = np.where(places[None, :] <= places[:, None], x[..., None, :], -1e30)
    top = terms.max(axis=-1, keepdims=True)
    return np.moveaxis(top[..., 0] + np.log(np.exp(terms - top).sum(axis=-1)), -1, axis)


def truncated_quotient(x, y):
    """Return the quotient of whole numbers, rounded towards 0."""
    return np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))


def bags(weight, index, starts, scale, averaged):
    """Return the sum, or the mean, of the rows of weight in each bag. A bag has the rows from its start to the next."""
    places = np.arange(index.shape[0])
    before = (starts[:, None] <= places[None, :]).astype(weight.dtype)
    # A bag has the rows that do not come before its start, but before the start of the next bag.
    own = before - np.concatenate([before[1:], np.zeros((1, places.shape[0]), weight.dtype)], 0)
    shares = own if scale is None else own * scale[None, :]
    found = shares @ weight[index]
    return found / np.maximum(own.sum(axis=1, keepdims=True), 1.0) if averaged else found


def widened(x, values):
    """Return x in float64 if values are an array of float64, so that a store to x does not round them."""
    return x.astype(np.float64) if getattr(values, "dtype", None) == np.float64 else x


def with_rows(x, axis, index, rows, by):
    """Return a copy of x with rows stored at the positions in index along an axis.

    by is "" to replace what is there, else the function that combines both: add, maximum or minimum.
    """
    made = np.moveaxis(widened(x, rows), axis, 0).copy()
    if by:
        getattr(np, by).at(made, index, np.moveaxis(rows, axis, 0))
    else:
        made[index] = np.moveaxis(rows, axis, 0)
    return np.moveaxis(made, 0, axis)


def with_places(x, lead, indices, values, by):
    """Return a copy of x with values stored at the positions in indices. by is that of with_rows.

    The indices belong to the axes of x after the first lead axes.
    """
    x = widened(x, values)
    values = np.asarray(values, x.dtype) if isinstance(values, int | float) else values
    extents = x.shape[lead : lead + len(indices)]
    places: Any = 0
    for extent, index in zip(extents, indices, strict=True):
        places = places * extent + np.where(index < 0, index + extent, index)
    kept = (*x.shape[:lead], *x.shape[lead + len(indices) :])
    order = (*range(lead, lead + places.ndim), *range(lead), *range(lead + places.ndim, places.ndim + len(kept)))
    rows = np.broadcast_to(values, (*kept[:lead], *places.shape, *kept[lead:])).transpose(order)
    count = math.prod(extents)
    table = np.moveaxis(x.reshape((*kept[:lead], count, *kept[lead:])), lead, 0)
    made = with_rows(table, 0, places.reshape(-1), rows.reshape((-1, *kept)), by)
    return np.moveaxis(made, 0, lead).reshape(x.shape)


def cross_entropy(x, target, weight, ignored, label_smoothing, reduction):
    """Return the cross entropy of logits x [batch, classes, ...]. target has class numbers or class probabilities.

    weight has a factor for each class, or is None. Elements whose class is ``ignored`` add nothing to the loss; None
    ignores no class. reduction is that of folded_loss. A mean of class numbers is divided by the sum of the factors.
    """
    top = x.max(axis=1, keepdims=True)
    logs = x - top - np.log(np.exp(x - top).sum(axis=1, keepdims=True))
    scaled = logs if weight is None else logs * weight.reshape((1, -1, *(1,) * (x.ndim - 2)))
    if target.ndim == x.ndim:
        shares = target if not label_smoothing else target * (1.0 - label_smoothing) + label_smoothing / x.shape[1]
        losses = -(scaled * shares).sum(axis=1)
        return losses.sum() / losses.size if reduction == 1 else folded_loss(losses, reduction)
    kept = None if ignored is None else target != ignored
    classes = target if kept is None else np.where(kept, target, 0)
    losses = -np.take_along_axis(scaled, np.expand_dims(classes, 1), axis=1).sum(axis=1)
    if label_smoothing:
        losses = (1.0 - label_smoothing) * losses - label_smoothing * scaled.sum(axis=1) * (1.0 / x.shape[1])
    if weight is None and kept is None:
        return folded_loss(losses, reduction)
    factors = np.ones(classes.shape, x.dtype) if weight is None else weight[classes]
    if kept is not None:
        losses, factors = np.where(kept, losses, 0.0), np.where(kept, factors, 0.0)
    return losses.sum() / factors.sum() if reduction == 1 else folded_loss(losses, reduction)


def folded_loss(losses, reduction):
    """Return the losses unchanged (reduction 0), their mean (1) or their sum (2)."""
    return losses if reduction == 0 else losses.mean() if reduction == 1 else losses.sum()


def recurrent_gates(kind, gates, hidden_part, state, cell):
    """Return the next state and cell of a recurrent layer of a kind: lstm, gru, rnn_tanh or rnn_relu.

    gates is the product of the input with its weights, and hidden_part the product of the state with its weights.
    """
    n = state.shape[-1]
    if kind == "lstm":
        both = gates + hidden_part
        i, f = sigmoid(both[:, :n]), sigmoid(both[:, n : 2 * n])
        g, o = np.tanh(both[:, 2 * n : 3 * n]), sigmoid(both[:, 3 * n :])
        cell = f * cell + i * g
        return o * np.tanh(cell), cell
    if kind == "gru":
        r = sigmoid(gates[:, :n] + hidden_part[:, :n])
        z = sigmoid(gates[:, n : 2 * n] + hidden_part[:, n : 2 * n])
        new = np.tanh(gates[:, 2 * n :] + r * hidden_part[:, 2 * n :])
        return (1.0 - z) * new + z * state, cell
    both = gates + hidden_part
    return (np.tanh(both) if kind == "rnn_tanh" else np.maximum(both, 0.0)), cell


def recurrent(kind, x, states, cells, weights, biased, layers, both_ways, batch_first):
    """Return the outputs, the last states and the last cells of recurrent layers of a kind, such as lstm."""
    if batch_first:
        x = np.swapaxes(x, 0, 1)
    each = 4 if biased else 2
    last_states: list[Any] = []
    last_cells: list[Any] = []
    place = 0
    for _ in range(layers):
        outputs = []
        for way in range(2 if both_ways else 1):
            own = weights[each * place : each * (place + 1)]
            state = states[place]
            cell = cells[place] if cells is not None else None
            steps: list[Any] = [None] * x.shape[0]
            order = range(x.shape[0]) if way == 0 else range(x.shape[0] - 1, -1, -1)
            gates = x @ own[0].T + (own[2] if biased else 0.0)
            for t in order:
                hidden_part = state @ own[1].T + (own[3] if biased else 0.0)
                state, cell = recurrent_gates(kind, gates[t], hidden_part, state, cell)
                steps[t] = state
            outputs.append(np.stack(steps, axis=0))
            last_states.append(state)
            last_cells.append(cell)
            place += 1
        x = outputs[0] if len(outputs) == 1 else np.concatenate(outputs, axis=-1)
    if batch_first:
        x = np.swapaxes(x, 0, 1)
    return x, np.stack(last_states, 0), None if cells is None else np.stack(last_cells, 0)


def as_pairs(x, imaginary):
    """Return complex numbers as an array whose last axis has the real and the imaginary part."""
    x, imaginary = np.broadcast_arrays(x, imaginary)
    return np.stack([x, imaginary], axis=-1)


def pair_product(x, y):
    """Return the product of complex numbers, whose last axis has the real and the imaginary part."""
    a, b, c, d = x[..., 0], x[..., 1], y[..., 0], y[..., 1]
    return np.stack([a * c - b * d, a * d + b * c], axis=-1)


def pair_quotient(x, y):
    """Return the quotient of complex numbers, whose last axis has the real and the imaginary part."""
    turned = np.stack([y[..., 0], -y[..., 1]], axis=-1)
    return pair_product(x, turned) / np.square(y).sum(axis=-1, keepdims=True)


def pair_matrix_product(x, y):
    """Return the matrix product of complex numbers, whose last axis has the real and the imaginary part."""
    a, b, c, d = x[..., 0], x[..., 1], y[..., 0], y[..., 1]
    return np.stack([a @ c - b @ d, a @ d + b @ c], axis=-1)


def waves(rows, columns, count, dtype):
    """Return cosines and sines of the angle 2 pi i j / count, for i below rows and j below columns."""
    turns = np.arange(rows)[:, None] * np.arange(columns)[None, :] % count
    angles = turns * (2.0 * math.pi / count)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def fourier_of_real(x, axis, kept, factor):
    """Return the first places (kept) of the Fourier transform of x along an axis, times factor, as complex numbers.

    The transform is a product with a matrix of cosines and sines.
    """
    n = x.shape[axis]
    cosines, sines = waves(n, kept, n, x.dtype)
    x = np.moveaxis(x, axis, -1) * factor
    return np.stack([np.moveaxis(x @ cosines, -1, axis), np.moveaxis(-(x @ sines), -1, axis)], axis=-1)


def fourier(x, axis, sign, factor):
    """Return the Fourier transform of complex x along an axis, times factor. sign is the sign of the exponent: -1 for
    the forward transform, 1 for the inverse.
    """
    n = x.shape[axis]
    cosines, sines = waves(n, n, n, x.dtype)
    a, b = (np.moveaxis(x[..., part], axis, -1) * factor for part in (0, 1))
    parts = [a @ cosines - b @ (sines * sign), b @ cosines + a @ (sines * sign)]
    return np.stack([np.moveaxis(part, -1, axis) for part in parts], axis=-1)


def fourier_to_real(x, axis, count, factor):
    """Return count real numbers along an axis from the first half of their Fourier transform x, times factor."""
    kept = count // 2 + 1
    cosines, sines = waves(kept, count, count, x.dtype)
    places = np.arange(kept)[:, None]
    # A place that is no mirror of itself stands for two, because the second half is not given.
    twice = np.where((places == 0) | (2 * places == count), 1.0, 2.0).astype(x.dtype) * factor
    a, b = (np.moveaxis(x[..., part], axis, -1)[..., :kept] for part in (0, 1))
    return np.moveaxis(a @ (cosines * twice) - b @ (sines * twice), -1, axis)
