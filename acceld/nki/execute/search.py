"""Compile gathers, searches and sorts. Most of them run on GpSimd."""

from __future__ import annotations

import numpy as np

from acceld.nki.execute.context import Context, Step
from acceld.nki.execute.machine import Env, crash, undefined_use
from acceld.nki.execute.tiles import Tile
from acceld.nki.execute.windows import Window
from acceld.nki.ir.numerics import Array, with_nan

_GROUP = 16


def _rows(tile: Tile, env: Env, window: Window) -> Array:
    values = tile.load(env, window)
    return values.reshape(values.shape[0], -1)


def _integers(tile: Tile, env: Env, window: Window) -> Array:
    values = tile.raw(env, window)
    if tile.marked(env, window).any():
        undefined_use("an index", tile.line)
    return np.asarray(np.nan_to_num(np.asarray(values, np.float64), nan=-1)).astype(np.int64)


def _joined(out: Array, values: Array) -> Array:
    """Return a copy of ``out`` in a dtype that can represent the elements of both ``out`` and ``values``, NaN included."""
    return out.astype(np.result_type(out, values))


def _with_undefined(context: Context, found: Array, *values: Array) -> Array:
    """Return ``found``, which a search found in the rows of ``values``, with undefined results.

    If undefined memory is traced, the result of each row that has an undefined value becomes NaN.
    """
    if not context.machine.keeps_nan:
        return found
    rows = np.logical_or.reduce([np.isnan(one).any(axis=1) for one in values])
    return with_nan(np.asarray(found, np.float64), np.broadcast_to(rows[:, None], found.shape))


def _check_index(index: Array, size: int, context: Context) -> None:
    if index.size and (index.min() < 0 or index.max() >= size):
        crash(
            f"a gather's index {int(index.min())}..{int(index.max())} lies outside of {size} elements",
            "out_of_bounds",
            context.instruction.line,
        )


def gather(context: Context) -> Step:
    """Compile ``dst[p, i] = data[p, index[p, i]]``."""
    data, index, dst = context.src(0, arranged=False), context.src(1, arranged=False), context.dst()

    def run(env: Env, window: Window) -> None:
        values = _rows(data, env, window)
        where = _integers(index, env, window)
        where = where.reshape(where.shape[0], -1)
        _check_index(where, values.shape[1], context)
        dst.put(env, window, np.take_along_axis(values, where, axis=1))

    return run


def local_gather(context: Context) -> Step:
    """Compile a gather along the free axis in which each group of sixteen partitions shares one list of indices.

    The list runs over the group's partitions first, then along the free axis of ``index``.
    """
    data, index, dst = (
        context.src(0, arranged=False),
        context.src(1, arranged=False),
        context.dst(0, arranged=False),
    )
    width_attr, valid_attr = context.attr("elements_per_index", 1), context.attr("valid")
    width = width_attr if isinstance(width_attr, int) and width_attr > 0 else 1

    def run(env: Env, window: Window) -> None:
        if window is not None:
            raise context.unsupported("a mask")
        values = _rows(data, env, None)
        where = _integers(index, env, None)
        where = where.reshape(where.shape[0], -1)
        partitions = values.shape[0]
        if partitions % _GROUP or where.shape[0] != partitions:
            crash(
                f"local_gather works on groups of sixteen partitions, not on {partitions} of data and {where.shape[0]} of "
                "index", "partition_group", context.instruction.line,
            )  # fmt: skip
        blocks = values[:, : values.shape[1] // width * width].reshape(partitions, -1, width)
        out = _joined(_rows(dst, env, None), values)
        for group in range(0, partitions, _GROUP):
            wanted = where[group : group + _GROUP].T.reshape(-1)
            count = min(valid_attr, wanted.size) if isinstance(valid_attr, int) and valid_attr >= 0 else wanted.size
            wanted = wanted[: min(count, out.shape[1] // width)]
            _check_index(wanted, blocks.shape[1], context)
            picked = blocks[group : group + _GROUP][:, wanted].reshape(_GROUP, -1)
            out[group : group + _GROUP, : picked.shape[1]] = picked
        dst.put(env, None, out)

    return run


def local_scatter(context: Context) -> Step:
    """Compile a scatter along the free axis in which each group of sixteen partitions shares one list of offsets.

    The list runs over the group's partitions first, then along the free axis of the offsets.
    """
    data, index = context.src(0, arranged=False), context.src(1, arranged=False)
    dst, valid = context.dst(0, arranged=False), context.attr("valid")

    def run(env: Env, window: Window) -> None:
        if window is not None:
            raise context.unsupported("a mask")
        values = _rows(data, env, None)
        out = _joined(_rows(dst, env, None), values)
        where = _integers(index, env, None)
        where = where.reshape(where.shape[0], -1)
        if out.shape[0] % _GROUP or where.shape[0] != out.shape[0] or values.shape[0] != out.shape[0]:
            crash(
                f"local_scatter works on groups of sixteen partitions, equally many of data ({values.shape[0]}), offsets "
                f"({where.shape[0]}) and dst ({out.shape[0]})", "partition_group", context.instruction.line,
            )  # fmt: skip
        for group in range(0, out.shape[0], _GROUP):
            wanted = where[group : group + _GROUP].T.reshape(-1)[: valid if isinstance(valid, int) else None]
            wanted = wanted[: values.shape[1]]
            _check_index(wanted, out.shape[1], context)
            for number, offset in enumerate(wanted):
                out[group : group + _GROUP, offset] = values[group : group + _GROUP, number]
        dst.put(env, None, out.reshape(dst.shape))

    return run


def max8(context: Context) -> Step:
    """Compile ``dst = the eight greatest elements of each partition``, in descending order."""
    data, dst = context.src(0), context.dst(0, arranged=False)

    def run(env: Env, window: Window) -> None:
        values = _rows(data, env, window)
        if values.shape[1] < 8:
            crash(
                f"max8 needs at least eight elements a partition, not {values.shape[1]}",
                "free_size",
                context.instruction.line,
            )
        dst.put(env, window, _with_undefined(context, -np.sort(-values, axis=1)[:, :8], values))

    return run


def _first_matches(values: Array, wanted: Array) -> Array:
    """Return, for each row, the first position of each value in ``wanted``; -1 for a value that does not occur.

    Equal wanted values get different positions.
    """
    found = np.full(wanted.shape, -1, np.int64)
    for row in range(values.shape[0]):
        taken = np.zeros(values.shape[1], np.bool_)
        for k in range(wanted.shape[1]):
            hits = np.flatnonzero((values[row] == wanted[row, k]) & ~taken)
            if hits.size:
                found[row, k] = hits[0]
                taken[hits[0]] = True
    return found


def find_index8(context: Context) -> Step:
    """Compile ``dst[p, i] = the first position at which values[i] occurs in partition p``, for eight values. Equal
    values get successive positions.
    """
    data, wanted, dst = context.src(0), context.src(1, arranged=False), context.dst(0, arranged=False)

    def run(env: Env, window: Window) -> None:
        values, searched = _rows(data, env, window), _rows(wanted, env, window)
        dst.put(env, window, _with_undefined(context, _first_matches(values, searched), values, searched))

    return run


def match_replace8(context: Context) -> Step:
    """Compile ``dst = data``, where the first match of each of eight values is replaced by ``imm``.

    A second destination gets the positions of the matches.
    """
    data, wanted, dst = context.src(0), context.src(1, arranged=False), context.dst(0, arranged=False)
    index = context.dst(1, arranged=False) if len(context.instruction.dsts) > 1 else None
    imm = context.attr("imm")
    fill = float(imm) if isinstance(imm, int | float) else 0.0

    def run(env: Env, window: Window) -> None:
        values = _rows(data, env, window).copy()
        searched = _rows(wanted, env, window)
        found, before = _first_matches(values, searched), values.copy()
        rows, columns = np.nonzero(found >= 0)
        values[rows, found[rows, columns]] = fill
        dst.put(env, window, _with_undefined(context, values, before, searched))
        if index is not None:
            index.put(env, window, _with_undefined(context, found, before, searched))

    return run


def topk(context: Context) -> Step:
    """Compile ``dst = the greatest elements of each group of sixteen partitions``, of which only the first n elements
    are searched.

    The results are the elements and their positions, counted along the partitions first. The results are in ascending
    order, and each of the group's sixteen rows of the destinations gets all of them.
    """
    data = context.src(0)
    values_out, index_out = context.dst(0, arranged=False), context.dst(1, arranged=False)
    active = context.attr("n")
    line = context.instruction.line

    def run(env: Env, window: Window) -> None:
        values = _rows(data, env, window)
        count = int(np.prod(values_out.shape[1:], dtype=np.int64))
        if values.shape[0] % _GROUP or values_out.shape[0] != values.shape[0]:
            crash(f"topk works on groups of sixteen partitions, not on {values.shape[0]}", "partition_group", line)
        if not isinstance(active, int) or not count <= active <= _GROUP * values.shape[1]:
            most = _GROUP * values.shape[1]
            crash(f"topk needs n from {count} (the results) to {most} (the elements), not {active}", "free_size", line)
        snakes = (
            values.reshape(-1, _GROUP, values.shape[1])
            .transpose(0, 2, 1)
            .reshape(-1, values.size // len(values) * _GROUP)
        )
        order = np.argsort(snakes[:, :active], axis=1, kind="stable")[:, active - count :]
        picked = np.take_along_axis(snakes, order, axis=1)
        searched = snakes[:, :active]
        for out, found in (
            (values_out, _with_undefined(context, picked, searched)),
            (index_out, _with_undefined(context, order, searched)),
        ):
            out.put(env, window, np.repeat(found, _GROUP, axis=0).reshape(out.shape))

    return run


def nonzero_with_count(context: Context) -> Step:
    """Compile a search for non-zero elements: dst gets their positions, then padding, and in its last element their
    number.

    Only the first of each sixteen rows is searched, one row for each GpSimd core. The other rows of dst keep
    their values.
    """
    data, dst = context.src(0), context.dst(0, arranged=False)
    offset_attr, padding_attr = context.attr("index_offset", 0), context.attr("padding", -1)
    offset = offset_attr if isinstance(offset_attr, int) else 0
    padding = padding_attr if isinstance(padding_attr, int) else -1

    def run(env: Env, window: Window) -> None:
        values = _rows(data, env, window)
        out = np.array(np.asarray(dst.content(env, window), np.int64).reshape(values.shape[0], -1))
        marks = np.zeros(out.shape, np.bool_)
        marks |= dst.marked(env, window).reshape(out.shape) if dst.store.marks is not None else False
        for row in range(0, values.shape[0], _GROUP):
            marks[row] = context.machine.keeps_nan and np.isnan(values[row]).any()
            out[row] = padding
            found = np.flatnonzero(values[row])
            out[row, : found.size] = found + offset
            out[row, -1] = found.size
        dst.put(env, window, with_nan(out, marks))

    return run


def sequence_bounds(context: Context) -> Step:
    """Compile a search for segments, the runs of neighboring positions with the same segment id: dst gets, for each
    position, the start and the end of the position's segment.

    A position with the id 0 belongs to no segment. It gets n, the number of positions, as start, and -1 as end.
    """
    data, dst = context.src(0, arranged=False), context.dst(0, arranged=False)

    def run(env: Env, window: Window) -> None:
        ids = _integers(data, env, window).reshape(-1)
        n = ids.size
        out = np.empty((2, n), np.int64)
        for position, one in enumerate(ids.tolist()):
            if one == 0:
                out[:, position] = (n, -1)
                continue
            same = np.flatnonzero(ids == one)
            out[:, position] = (same[0], same[-1] + 1)
        dst.put(env, window, out)

    return run
