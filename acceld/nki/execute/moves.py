"""Compile copies, transfers and fills."""

from __future__ import annotations

from typing import Any

import numpy as np

from acceld.nki.execute.alu import alu, folding
from acceld.nki.execute.context import Context, Step
from acceld.nki.execute.machine import Env, crash
from acceld.nki.execute.tiles import Tile
from acceld.nki.execute.windows import Mask, Window
from acceld.nki.ir.numerics import BITWISE, NUMPY_DTYPES, Array, combine, is_integer, with_nan, write
from acceld.nki.ir.operations import REDUCE_OPS


def copier(src: Tile, dst: Tile) -> Step:
    """Return a step that computes ``dst = src``. Between equal dtypes the bits are copied; integers are converted to
    other integers directly; other dtypes are converted through reals.
    """
    bits = src.dtype == dst.dtype and src.numpy_dtype == dst.numpy_dtype
    whole = is_integer(src.dtype) and is_integer(dst.dtype)
    simple = (
        bits
        and not src.rounds
        and not src.scattered
        and not dst.scattered
        and not dst.may_repeat
        and src.reshaped is None
        and dst.reshaped is None
    )

    def run(env: Env, window: Window) -> None:
        if simple and not isinstance(window, Mask):
            dst.view(env, window)[...] = src.view(env, window)
            if dst.store.marks is not None:
                dst.mark(env, window, src.marked(env, window) if src.store.marks is None else src.marks(env, window))
            return
        dst.put(env, window, src.raw(env, window) if bits or whole else src.load(env, window))

    return run


def copy(context: Context) -> Step:
    """Compile ``dst = src``."""
    return copier(context.src(0), context.dst())


def bitcast(context: Context) -> Step:
    """Compile ``dst = the bits of src``."""
    src, dst = context.src(0, arranged=False), context.dst(0, arranged=False)
    was, becomes = NUMPY_DTYPES[src.dtype], NUMPY_DTYPES[dst.dtype]
    line = context.instruction.line

    def run(env: Env, window: Window) -> None:
        if window is not None:
            raise context.unsupported("a mask")
        values = np.ascontiguousarray(src.content(env, None).astype(was, copy=False))
        rows = values.reshape(values.shape[0] if values.shape[:1] == dst.shape[:1] else 1, -1)
        if rows.shape[1] * was.itemsize % becomes.itemsize:
            crash(
                f"{rows.shape[1]} elements of {src.dtype} can not be read as {dst.dtype}: the last one would be incomplete",
                "shape",
                line,
            )
        dst.put(env, None, rows.view(becomes).reshape(dst.shape))
        if dst.store.marks is not None and src.store.marks is not None:
            held = src.marks(env, None).reshape(rows.shape)
            dst.mark(env, None, held.view(f"u{becomes.itemsize}").reshape(dst.shape))
        else:
            dst.mark(env, None, np.zeros((1,) * len(dst.shape), np.bool_))

    return run


def dma_copy(context: Context) -> Step:
    """Compile ``dst = src``, or ``dst = dst rmw src`` for a read-modify-write with the operation ``rmw``.

    A run-time index outside its buffer raises KernelCrash. If ``oob`` is "skip", the element at that index is skipped
    instead.
    """
    skip = context.text("oob") == "skip"
    src, dst = context.src(0, skip_outside=skip), context.dst(0, skip_outside=skip)
    op = context.text("rmw")
    if op:
        return _read_modify_write(context, src, dst, op)
    if skip and src.scattered:
        return _skipping(src, dst)
    return copier(src, dst)


def _skipping(src: Tile, dst: Tile) -> Step:
    """Return a step that copies an element only if its source index is inside the source's buffer.

    Where the index is outside, the element of dst keeps its value.
    """

    def run(env: Env, window: Window) -> None:
        memory, flat, inside = src.scatter_raw(env, window)
        values = src.read(memory[flat]) if memory.size else np.zeros(flat.shape, src.numpy_dtype)
        if src.store.marks is not None:
            values = with_nan(values, src.store.marks.view(f"u{src.numpy_dtype.itemsize}")[flat] != 0)
        if inside is not None:
            before = np.broadcast_to(dst.raw(env, window), values.shape)
            kind = np.result_type(values, before) if src.store.marks is not None else before.dtype
            values = np.where(inside, values.astype(kind), before)
        dst.put(env, window, values)

    return run


def _read_modify_write(context: Context, src: Tile, dst: Tile, op: str) -> Step:
    if op not in REDUCE_OPS:
        crash(f"{op!r} is not a read-modify-write operation", "operation", context.instruction.line)
    bits = op in BITWISE
    together = folding(context, op)

    def run(env: Env, window: Window) -> None:
        values = src.raw(env, window) if bits else src.load(env, window)
        if not dst.scattered:
            before = dst.raw(env, window) if bits else dst.load(env, window)
            dst.put(env, window, together(before, values, None))
            return
        memory, flat, inside = dst.scatter_raw(env, window)
        values = np.broadcast_to(values, flat.shape)
        where = flat.reshape(-1) if inside is None else flat[inside]
        terms = values.reshape(-1) if inside is None else values[inside]
        if dst.store.marks is not None and terms.dtype.kind == "f":
            marks = dst.store.marks.view(f"u{dst.numpy_dtype.itemsize}")
            marks[where[np.isnan(terms)]] = np.iinfo(marks.dtype).max
            terms = np.nan_to_num(terms).astype(memory.dtype if bits else terms.dtype)
        _fold_at(memory, where, terms, op, dst, bits)

    return run


def _fold_at(memory: Array, where: Array, terms: Array, op: str, dst: Tile, bits: bool) -> None:
    """Apply ``memory[where[i]] = memory[where[i]] op terms[i]`` for each term. The result is rounded at each write.

    If a position occurs several times in ``where``, its terms are folded one after another.
    """
    while where.size:
        unique, first = np.unique(where, return_index=True)
        before = memory[unique]
        kept = before if bits else before.astype(dst.real)
        staged = np.empty(unique.shape, memory.dtype)
        write(staged, combine(op, kept, terms[first]), dst.dtype, float64=dst.machine.float64)
        memory[unique] = staged
        left = np.ones(where.shape, np.bool_)
        left[first] = False
        where, terms = where[left], terms[left]


def dma_compute(context: Context) -> Step:
    """Compile ``dst = all sources folded with op``, computed in reals."""
    dst = context.dst()
    op = context.text("op", "add")
    function = alu(context, op)
    readers = [context.reader(number) for number in range(len(context.instruction.srcs))]

    def run(env: Env, window: Window) -> None:
        value: Any = readers[0](env, window)
        for reader in readers[1:]:
            value = function(value, reader(env, window), None)
        dst.put(env, window, value)

    return run


def memset(context: Context) -> Step:
    """Compile ``dst = value``."""
    dst = context.dst()
    value = context.instruction.srcs[0]
    if isinstance(value, int) and is_integer(dst.dtype):
        width = 8 * dst.numpy_dtype.itemsize
        signed = dst.numpy_dtype.kind == "i"
        wrapped = value & ((1 << width) - 1)
        number: int | float = wrapped - (1 << width) if signed and wrapped >> (width - 1) else wrapped
        if dst.numpy_dtype == np.bool_:
            number = int(value != 0)
    else:
        number = context.number(0)

    def run(env: Env, window: Window) -> None:
        out = dst.target(env, window)
        if out is not None:
            out[...] = number
        else:
            dst.put(env, window, np.full((1,) * len(dst.shape), number))

    return run


def shuffle(context: Context) -> Step:
    """Compile a shuffle of partitions: partition ``32 * q + i`` of dst gets partition ``32 * q + lanes[i]`` of src.
    Where ``lanes[i]`` is 255, the partition of dst keeps its values.
    """
    src, dst = context.src(0), context.dst()
    lanes = context.attr("lanes")
    line = context.instruction.line
    if not isinstance(lanes, tuple) or len(lanes) != 32:
        crash(f"a shuffle needs 32 lanes, not {lanes!r:.60}", "shuffle_lanes", line)
    numbers = [lane for lane in lanes if isinstance(lane, int) and (0 <= lane < 32 or lane == 255)]
    if len(numbers) != 32:
        crash(f"each lane of a shuffle is 0 to 31, or 255 for none: {list(lanes)}", "shuffle_lanes", line)
    partitions = dst.shape[0] if dst.shape else 0
    source = src.shape[0] if src.shape else 0
    picked = [(p, p // 32 * 32 + numbers[p % 32]) for p in range(partitions) if numbers[p % 32] != 255]
    if any(lane >= source for _, lane in picked):
        crash("a lane lies outside of the source's partitions", "shuffle_lanes", line)
    targets = np.array([p for p, _ in picked], np.int64)
    lanes_of = np.array([lane for _, lane in picked], np.int64)

    def run(env: Env, window: Window) -> None:
        if window is not None:
            raise context.unsupported("a mask")
        values = np.array(dst.raw(env, None) if src.dtype == dst.dtype else dst.load(env, None))
        source_values = src.raw(env, None) if src.dtype == dst.dtype else src.load(env, None)
        values = values.astype(np.result_type(values, source_values), copy=False)
        values[targets] = source_values[lanes_of]
        dst.put(env, None, values)

    return run
