"""Compile reductions and scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from acceld.nki.execute.alu import alu, folding
from acceld.nki.execute.context import Context, Step, write_result
from acceld.nki.execute.machine import Env, crash
from acceld.nki.execute.windows import Mask, Window
from acceld.nki.ir.def_use import reduce_command, reduce_loops
from acceld.nki.ir.numerics import ALU, BITWISE, FOLD_IDENTITY, Array, combine, fold, negated
from acceld.nki.ir.operations import LOGIC, REDUCE_OPS
from acceld.nki.ir.spaces import reduced_axes

Sink = Callable[[Env, Window, Array, bool], None]
"""A function that folds values of an instruction into its second destination, reduce_res."""


def reduce_operation(context: Context, name: str, default: str = "") -> str:
    """Return the name of the reduction in the instruction's attribute ``name``; ``default`` if the attribute is
    missing. Raise KernelCrash if that is not a reduction.
    """
    op = context.text(name, default)
    if op not in REDUCE_OPS:
        crash(f"{context.op}: {op!r} is not a reduction", "operation", context.instruction.line)
    return op


def fold_sink(context: Context, default_op: str = "add") -> Sink | None:
    """Return a function that folds values along the free axes into the second destination; None if no fold is
    asked for.

    Each engine has an accumulator, one register for each partition. The instruction's reduce command says what
    happens:

    - ``reset``: the accumulator becomes the operation's identity.
    - ``reduce``: values are folded into the accumulator.
    - ``reset_reduce``: the accumulator becomes the identity, then values are folded into it.
    - ``load_reduce``: the fold starts from ``reduce_init``; without that, from the value in reduce_res.

    If the instruction has no command, its second destination gets the fold of its own values alone.
    """
    command = reduce_command(context.instruction)
    if command == "idle":
        return None
    op = reduce_operation(context, "reduce_op", default_op)
    if op in BITWISE:
        raise context.unsupported(f"a reduction with {op} beside another result")
    result = context.dst(1) if len(context.instruction.dsts) > 1 else None
    first = context.instruction.dsts[0]
    count = first.dims[0].count if first.dims else 1
    identity = FOLD_IDENTITY.get(op, 0.0)
    registers = folding_registers(context)
    first_value = context.attr("reduce_init")

    def sink(env: Env, window: Window, values: Array, negate: bool) -> None:
        if isinstance(window, Mask):
            values = np.where(window.keep, values, values.dtype.type(identity))
        folded = fold(op, values, tuple(range(1, values.ndim))) if values.ndim > 1 else values
        if command == "load_reduce":
            if not isinstance(first_value, int | float) and result is None:
                crash("load_reduce needs reduce_init or reduce_res", "operand_kind", context.instruction.line)
            start = first_value if result is None or first_value is not None else result.load(env, window)
            folded = combine(op, np.asarray(start, folded.dtype), folded)
        held = registers(min(count, context.machine.partitions))
        if command == "reset":
            held[...] = identity
            return
        part = folded.reshape(-1)[: held.size]
        if part.size == held.size:
            held[...] = combine(op, held, part) if command == "reduce" else part
            folded = held.reshape(folded.shape[0], *(1 for _ in folded.shape[1:]))
        elif command == "reduce":
            raise context.unsupported("a mask over partitions that are reduced into the accumulator")
        else:
            held[...] = np.nan
        if result is not None:
            result.put(env, window, -folded if negate else folded)

    return sink


def folding_registers(context: Context) -> Callable[[int], Array]:
    """Return a function that gives the accumulator of the instruction's engine as an array with one element for each of
    ``count`` partitions.

    A partition that was never written is NaN.
    """
    folds, key, real = context.machine.folds, context.instruction.engine.value, context.machine.real
    return lambda count: folds.setdefault(key, np.full(context.machine.partitions, np.nan, real))[:count]


def tensor_reduce(context: Context) -> Step:
    """Compile a fold of some axes of data. With ``negate`` the result is multiplied by -1."""
    op = reduce_operation(context, "op")
    axes = reduced_axes(context.instruction)
    data = context.src(0)
    dst = context.dst(0, arranged=False)
    if not axes or axes[0] < 0 or axes[-1] >= len(data.shape):
        crash(f"axes {axes} are not axes of the data", "axes", context.instruction.line)
    negate = context.flag("negate")
    if op in BITWISE:

        def bits(env: Env, window: Window) -> None:
            if isinstance(window, Mask):
                raise context.unsupported("a mask over several axes with a bit operation")
            dst.put(env, window, fold(op, data.raw(env, window), axes))

        return bits
    identity = FOLD_IDENTITY.get(op)
    function = np.add.reduce if op == "add" else np.maximum.reduce if op == "max" else None
    last = axes == (len(data.shape) - 1,)

    def run(env: Env, window: Window) -> None:
        values = data.load(env, window)
        if function is not None and window is None and last:
            out = dst.target(env, None)
            if out is not None and out.ndim == values.ndim:
                function(values, axis=-1, keepdims=True, out=out)
                if negate:
                    negated(out, out)
                return
        if isinstance(window, Mask):
            if identity is None:
                raise context.unsupported(f"a mask over several axes with {op}")
            values = np.where(window.keep, values, values.dtype.type(identity))
        folded = _kept(context, op, values, fold(op, values, axes), axes)
        dst.put(env, window, -folded if negate else folded)

    return run


def _kept(context: Context, op: str, values: Array, folded: Array, axes: tuple[int, ...]) -> Array:
    """Return ``folded``, the fold of ``values``. If undefined values are traced, a logical operation gives NaN wherever
    one of the folded values is undefined.
    """
    if not context.machine.keeps_nan or op not in LOGIC:
        return folded
    return np.where(np.isnan(values).any(axis=axes, keepdims=True), folded.dtype.type(np.nan), folded)


def partition_reduce(context: Context) -> Step:
    """Compile a fold of the partition axis of data."""
    average = context.text("op") == "average"
    op = "add" if average else reduce_operation(context, "op")
    data = context.src(0)
    dst = context.dst(0, arranged=False)

    def run(env: Env, window: Window) -> None:
        if isinstance(window, Mask):
            raise context.unsupported("a mask over several axes")
        values = data.raw(env, window) if op.startswith("bitwise") else data.load(env, window)
        folded = _kept(context, op, values, fold(op, values, (0,)), (0,))
        dst.put(env, window, folded / folded.dtype.type(values.shape[0]) if average else folded)

    return run


def loop_reduce(context: Context) -> Step:
    """Compile a reduction over the iterations of loops: ``dst = data`` in the first iteration, ``dst = dst op data`` in
    all others.

    An execution counts as the first iteration if every loop over which the instruction reduces is in its first
    iteration.
    """
    op = reduce_operation(context, "op")
    dst, data = context.dst(), context.src(0)
    slots = [context.machine.slots.get(loop, -1) for loop in reduce_loops(context.instruction)]
    if not slots or min(slots) < 0:
        crash("loop_reduce names a loop that does not exist", "loops", context.instruction.line)
    order, together = context.machine.order, folding(context, op)
    bits = op.startswith("bitwise")

    def run(env: Env, window: Window) -> None:
        values = data.raw(env, window) if bits else data.load(env, window)
        if not any(order[slot] for slot in slots):
            dst.put(env, window, values)
            return
        out = None if bits else dst.target(env, window)
        before = dst.raw(env, window) if bits else dst.load(env, window)
        write_result(dst, env, window, out, together(before, values, out))

    return run


def scan(context: Context) -> Step:
    """Compile ``dst[i] = (data0[i] op0 dst[i-1]) op1 data1[i]`` along the free axes, where dst[-1] is
    ``initial``.

    Each partition is computed by itself, and each result is rounded to float32.
    """
    dst = context.dst()
    first, second, initial = (context.reader(number) for number in range(3))
    ops = [context.text("op0"), context.text("op1")]
    if any(op not in ALU for op in ops):
        crash(f"scan: {ops} are not arithmetic operations", "operation", context.instruction.line)
    one, two = (alu(context, op) for op in ops)
    reverse0, reverse1 = context.flag("reverse0"), context.flag("reverse1")
    plain = not reverse0 and not reverse1

    def run(env: Env, window: Window) -> None:
        if isinstance(window, Mask):
            raise context.unsupported("a mask over several axes")
        real = context.machine.real
        shape = dst.view(env, window).shape
        a = _columns(first(env, window), shape, real)
        b = _columns(second(env, window), shape, real)
        start = initial(env, window)
        start = start.reshape(-1) if isinstance(start, np.ndarray) else start
        result = np.empty((a.shape[0], a.shape[1]), real)
        before = np.empty(a.shape[1], real)
        before[...] = start
        if plain and all(op in _STEP for op in ops):
            step0, step1 = _STEP[ops[0]], _STEP[ops[1]]
            for a_row, b_row, row in zip(a, b, result, strict=True):
                step0(a_row, before, out=row)
                step1(row, b_row, out=row)
                before = row
        else:
            for i in range(a.shape[0]):
                value = one(before, a[i], None) if reverse0 else one(a[i], before, None)
                result[i] = two(b[i], value, None) if reverse1 else two(value, b[i], None)
                before = result[i]
        dst.put(env, window, np.ascontiguousarray(result.T).reshape(shape))

    return run


_STEP: dict[str, np.ufunc] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _columns(values: Any, shape: tuple[int, ...], real: np.dtype[Any]) -> Array:
    """Return ``values`` broadcast to ``shape``, as a contiguous array of shape (free elements, partitions)."""
    wide = np.broadcast_to(np.asarray(values, real), shape)
    return np.ascontiguousarray(wide.reshape(shape[0], -1).T)


def bn_stats(context: Context) -> Step:
    """Compile ``dst = statistics of each partition``: count, mean and variance * count of the elements at even
    positions, then the same three of the elements at odd positions.
    """
    data, dst = context.src(0), context.dst(0, arranged=False)

    def run(env: Env, window: Window) -> None:
        values = data.load(env, window)
        flat = values.reshape(values.shape[0], -1)
        out = np.zeros((flat.shape[0], 6), flat.dtype)
        for half in (0, 1):
            part = flat[:, half::2]
            if part.shape[1]:
                mean = part.mean(axis=1)
                out[:, 3 * half] = part.shape[1]
                out[:, 3 * half + 1] = mean
                out[:, 3 * half + 2] = np.square(part - mean[:, None]).sum(axis=1)
        dst.put(env, window, out)

    return run


def bn_aggr(context: Context) -> Step:
    """Compile ``dst = mean and variance of each partition``. The data are triples (count, mean, variance * count), one
    for each part of the elements.
    """
    data, dst = context.src(0), context.dst(0, arranged=False)

    def run(env: Env, window: Window) -> None:
        values = data.load(env, window)
        flat = values.reshape(values.shape[0], -1)
        triples = flat[:, : flat.shape[1] // 3 * 3].reshape(flat.shape[0], -1, 3)
        count, mean, spread = triples[..., 0], triples[..., 1], triples[..., 2]
        total = count.sum(axis=1)
        centre = (count * mean).sum(axis=1) / total
        variance = (spread + count * np.square(mean - centre[:, None])).sum(axis=1) / total
        dst.put(env, window, np.stack([centre, variance], axis=1))

    return run
