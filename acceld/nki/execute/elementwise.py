"""Compile arithmetic of the vector, scalar and GpSimd engines on tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from acceld.nki.execute.activations import ACTIVATIONS, Activation, as_on_chip, within_range
from acceld.nki.execute.alu import alu, chosen
from acceld.nki.execute.context import Context, Reader, Step, write_result
from acceld.nki.execute.machine import Env, crash, pattern_values
from acceld.nki.execute.reductions import fold_sink, folding_registers
from acceld.nki.execute.windows import Crop, Mask, Window
from acceld.nki.ir.def_use import reduce_command
from acceld.nki.ir.numerics import BITWISE, FOLD_IDENTITY, Array, is_integer, on_integers, to_integer, with_nan
from acceld.nki.ir.operations import COMPARISONS, DTYPE_BYTES, SHIFTS, WORDS
from acceld.nki.ir.program import Access, Engine

_EXACT_INTEGER = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


def integer_function(context: Context, op: str) -> Callable[[Any, Any], Array] | None:
    """Return the integer form of ``op`` if this instruction computes on integers; None otherwise.

    Integer forms exist for bit operations on every engine. For sums, products, extremes and comparisons of 32-bit
    integers they exist only if the instruction names GpSimd. Otherwise such arithmetic is computed in float32.
    """
    if op in SHIFTS and context.machine.keeps_nan:
        return _within_the_width(BITWISE[op], _bits_of(context))
    if op in BITWISE:
        return BITWISE[op]
    if op not in _EXACT_INTEGER or context.instruction.engine is not Engine.GPSIMD:
        return None
    stores = context.machine.stores
    for operand in (*context.instruction.srcs, *context.instruction.dsts):
        if isinstance(operand, Access):
            dtype = operand.dtype or stores[operand.buffer].layout.buffer.dtype
            if dtype not in WORDS:
                return None
        elif not isinstance(operand, int):
            return None
    function, answers = _EXACT_INTEGER[op], context.machine.answers
    if op not in COMPARISONS or answers is None:
        return function
    return lambda a, b: answers.settled(a, b, function(a, b))


def _bits_of(context: Context) -> int:
    """Return the bits of an element of the instruction's first tile."""
    tile = next(one for one in context.instruction.srcs if isinstance(one, Access))
    return 8 * DTYPE_BYTES[tile.dtype or context.machine.stores[tile.buffer].layout.buffer.dtype]


def _within_the_width(shift: Callable[[Any, Any], Array], bits: int) -> Callable[[Any, Any], Array]:
    """Return a function that shifts as ``shift`` does, but returns NaN (undefined) for a shift by less than 0 bits,
    or by ``bits`` bits or more.
    """

    def shifted(a: Any, by: Any) -> Array:
        result = np.asarray(shift(a, by))
        return with_nan(result, np.broadcast_to(np.less(by, 0) | np.greater_equal(by, bits), result.shape))

    return shifted


def integer_reader(context: Context, number: int) -> Reader:
    """Return a function that reads source operand ``number`` as integers."""
    operand = context.instruction.srcs[number]
    if isinstance(operand, Access):
        tile = context.src(number)

        def load(env: Env, window: Window) -> Array:
            values = tile.raw(env, window)
            marked = context.machine.keeps_nan and tile.integer
            return values if marked or values.dtype.kind in "iub" else to_integer(values, np.dtype(np.int32))

        return load
    value = context.number(number)
    if value != int(value):
        crash(f"{context.op}: {value} is not an integer", "operand_kind", context.instruction.line)
    whole = int(value)
    return lambda env, window: whole


def apply_integer(function: Callable[[Any, Any], Array], a: Any, b: Any) -> Array:
    """Return ``function(a, b)`` in the integer type of the tile operand. An immediate wraps around to that type.

    If undefined memory is traced, the result is NaN where a tile has NaN.
    """
    if any(isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in (a, b)):
        return on_integers(function, a, b)
    width = next((np.asarray(x).dtype for x in (a, b) if isinstance(x, np.ndarray)), np.dtype(np.int32))
    if width == np.bool_:
        width = np.dtype(np.uint8)
    narrow = [
        x.astype(width) if isinstance(x, np.ndarray) else np.array(x & ((1 << 8 * width.itemsize) - 1)).astype(width)
        for x in (a, b)
    ]
    return np.asarray(function(*narrow))


def tensor_tensor(context: Context) -> Step:
    """Compile ``dst = data1 op data2``."""
    op = context.text("op")
    dst = context.dst()
    whole = integer_function(context, op)
    if whole is not None:
        one, two = integer_reader(context, 0), integer_reader(context, 1)
        return lambda env, window: dst.put(env, window, apply_integer(whole, one(env, window), two(env, window)))
    function = alu(context, op)
    first, second = context.reader(0), context.reader(1)

    def run(env: Env, window: Window) -> None:
        out = dst.target(env, window)
        result = function(first(env, window), second(env, window), out)
        if out is None:
            dst.put(env, window, result)

    return run


def _stage(context: Context, op: str, reverse: bool, operand: Reader) -> Callable[[Env, Window, Any, Any], Array]:
    function = alu(context, op)
    if reverse:
        return lambda env, window, value, out: function(operand(env, window), value, out)
    return lambda env, window, value, out: function(value, operand(env, window), out)


def _integer_stages(context: Context, ops: list[tuple[str, bool, int]]) -> Step:
    dst = context.dst()
    data = integer_reader(context, 0)
    stages = []
    for op, reverse, number in ops:
        function = integer_function(context, op)
        if function is None:
            crash(f"{context.op} mixes bit operations with arithmetic", "operation", context.instruction.line)
        stages.append((function, reverse, integer_reader(context, number)))

    def run(env: Env, window: Window) -> None:
        value = data(env, window)
        for function, reverse, operand in stages:
            other = operand(env, window)
            value = apply_integer(function, other, value) if reverse else apply_integer(function, value, other)
        dst.put(env, window, value)

    return run


def _stages(context: Context) -> list[tuple[str, bool, int]]:
    found = [(context.text("op0"), context.flag("reverse0"), 1)]
    second = context.text("op1")
    if second and context.has_src(2):
        found.append((second, context.flag("reverse1"), 2))
    return found


def tensor_scalar(context: Context) -> Step:
    """Compile ``dst = (data op0 operand0) op1 operand1``, where operands are numbers or tiles.

    An instruction with a reduction also folds the results along the free axes into reduce_res.
    """
    ops = _stages(context)
    sink = fold_sink(context)
    if all(integer_function(context, op) is not None for op, _, _ in ops) and sink is None:
        return _integer_stages(context, ops)
    dst = context.dst()
    data = context.reader(0)
    stages = [_stage(context, op, reverse, context.reader(number)) for op, reverse, number in ops]
    direct = len(stages) == 1 or not context.shares_destination(2)
    negate = context.flag("negate")
    if len(stages) == 1 and sink is None:
        (only,) = stages

        def single(env: Env, window: Window) -> None:
            out = dst.target(env, window)
            result = only(env, window, data(env, window), out)
            if out is None:
                dst.put(env, window, result)

        return single

    def run(env: Env, window: Window) -> None:
        out = dst.target(env, window) if direct else None
        value = data(env, window)
        for stage in stages:
            value = stage(env, window, value, out)
        write_result(dst, env, window, out, value)
        if sink is not None:
            sink(env, window, np.broadcast_to(value, out.shape) if out is not None else value, negate)

    return run


def tensor_scalar_cumulative(context: Context) -> Step:
    """Compile ``dst[i] = (data[i] op0 operand0) op1 dst[i - 1]``, for i along the free axes."""
    dst = context.dst()
    data = context.reader(0)
    stage = _stage(context, context.text("op0"), False, context.reader(1))
    op = context.text("op1", "add")
    if op not in FOLD_IDENTITY and op != "subtract":
        crash(f"tensor_scalar_cumulative can not reduce with {op}", "operation", context.instruction.line)
    function = alu(context, op)
    command = reduce_command(context.instruction)
    initial = context.reader(2) if context.has_src(2) else None
    registers = folding_registers(context)

    def run(env: Env, window: Window) -> None:
        value = np.broadcast_to(stage(env, window, data(env, window), None), context.space.shape)
        if window is not None:
            raise context.unsupported("a mask")
        rows = value.reshape(value.shape[0], -1)
        held = registers(value.shape[0])
        if initial is not None:
            held[...] = np.asarray(initial(env, window)).reshape(-1)
        elif command != "reduce":
            held[...] = FOLD_IDENTITY.get(op, 0.0)
        out = np.empty_like(rows)
        for place in range(rows.shape[1]):
            held[...] = out[:, place] = function(rows[:, place], held, None)
        dst.put(env, window, out.reshape(value.shape))

    return run


def _scalar_engine_function(context: Context, name: str) -> Activation:
    """Return the scalar engine's function ``name``. If the options of the execution ask for that, the function has the
    chip's modelled error, or raises KernelCrash for arguments outside the documented range.
    """
    function = ACTIVATIONS.get(name)
    if function is None:
        crash(f"{name!r} is not an activation function", "operation", context.instruction.line)
    # logical_not is the only function whose result for NaN is not NaN
    if context.machine.keeps_nan and name == "logical_not":
        return lambda x, out: np.where(np.isnan(x), x, x == 0)
    if context.machine.chip_functions:
        function = as_on_chip(name, function)
    if context.machine.checks_ranges:
        function = within_range(name, function, context.instruction.line)
    return function


def activation(context: Context) -> Step:
    """Compile ``dst = func(data * scale + bias)``. An instruction with a reduction also folds the results into
    reduce_res.
    """
    name = context.text("func", "copy")
    dst = context.dst()
    if name == "invert":
        source = integer_reader(context, 0)
        return lambda env, window: dst.put(env, window, on_integers(np.invert, np.asarray(source(env, window))))
    function = _scalar_engine_function(context, name)
    data = context.reader(0)
    bias, scale = context.reader(1), context.reader(2)
    scaled = not _is_number(context, 2, 1.0)
    biased = not _is_number(context, 1, 0.0)
    direct = not context.shares_destination(1, 2)
    sink = fold_sink(context)

    def run(env: Env, window: Window) -> None:
        out = dst.target(env, window) if direct else None
        value = data(env, window)
        if scaled:
            value = np.multiply(value, scale(env, window), out=out)
        if biased:
            value = np.add(value, bias(env, window), out=out)
        result = function(value, out)
        write_result(dst, env, window, out, result)
        if sink is not None:
            sink(env, window, result, False)

    return run


def _is_number(context: Context, number: int, value: float) -> bool:
    operand = context.instruction.srcs[number]
    return isinstance(operand, int | float) and operand == value


def activate2(context: Context) -> Step:
    """Compile ``dst = func((data op0 operand0) op1 operand1)``. An instruction with a reduction also folds the results
    into reduce_res.
    """
    dst = context.dst()
    name = context.text("func", "copy")
    function = _scalar_engine_function(context, name)
    slope = context.reader(3) if name == "prelu" and context.has_src(3) else None
    data = context.reader(0)
    stages = [
        _stage(context, context.text(op) or "bypass", context.flag(reverse), context.reader(number))
        for op, reverse, number in (("op0", "reverse0", 1), ("op1", "reverse1", 2))
    ]
    sink = fold_sink(context)

    def run(env: Env, window: Window) -> None:
        value = data(env, window)
        for stage in stages:
            value = stage(env, window, value, None)
        if slope is None:
            result: Array = function(np.array(value), None)
        else:
            negative = np.multiply(value, slope(env, window), dtype=value.dtype)
            result = np.asarray(np.where(value > 0, value, negative))
        dst.put(env, window, result)
        if sink is not None:
            sink(env, window, result, False)

    return run


def reciprocal(context: Context) -> Step:
    """Compile ``dst = 1 / data``."""
    dst, data = context.dst(), context.reader(0)

    def run(env: Env, window: Window) -> None:
        out = dst.target(env, window)
        result = np.reciprocal(data(env, window), out=out)
        if out is None:
            dst.put(env, window, result)

    return run


def exponential(context: Context) -> Step:
    """Compile ``dst = exp(data - max_value)``. An instruction with a reduction also folds the results along the free
    axes into reduce_res.
    """
    dst, data, most = context.dst(), context.reader(0), context.reader(1)
    sink = fold_sink(context, default_op="add")

    def run(env: Env, window: Window) -> None:
        result = np.exp(np.subtract(data(env, window), most(env, window)))
        dst.put(env, window, result)
        if sink is not None:
            sink(env, window, result, False)

    return run


def select(context: Context) -> Step:
    """Compile ``dst = on_true where the predicate is not zero, else on_false``. With ``reverse`` the predicate
    is negated.
    """
    dst = context.dst()
    predicate, yes, no = (context.reader(number) for number in range(3))
    reverse = context.flag("reverse")
    sink = fold_sink(context)

    def run(env: Env, window: Window) -> None:
        real = context.machine.real
        one, other = np.asarray(yes(env, window), real), np.asarray(no(env, window), real)
        result = chosen(context.machine, predicate(env, window), one, other, reverse=reverse)
        dst.put(env, window, result)
        if sink is not None:
            sink(env, window, result, False)

    return run


def affine_select(context: Context) -> Step:
    """Compile ``dst = on_true where (pattern cmp 0), else on_false``."""
    dst = context.dst()
    yes, no = context.reader(0), context.reader(1)
    compare = alu(context, context.text("cmp", "equal"))
    values = _pattern(context)

    def run(env: Env, window: Window) -> None:
        real = context.machine.real
        holds = compare(crop(values(env), window).astype(real), 0.0, None) != 0
        dst.put(env, window, np.where(holds, np.asarray(yes(env, window), real), np.asarray(no(env, window), real)))

    return run


def iota(context: Context) -> Step:
    """Compile ``dst = pattern``, an affine function of each element's position."""
    dst, values = context.dst(), _pattern(context)
    whole = is_integer(dst.dtype)

    def run(env: Env, window: Window) -> None:
        found = crop(values(env), window)
        dst.put(env, window, found if whole else found.astype(context.machine.real))

    return run


def _pattern(context: Context) -> Callable[[Env], Array]:
    pattern = context.instruction.pattern
    if pattern is None:
        crash(f"{context.op} needs a pattern", "operand_kind", context.instruction.line)
    return pattern_values(context.machine, pattern, context.space.shape)


def crop(values: Array, window: Window) -> Array:
    """Return the part of ``values`` inside a window. ``values`` cover the whole iteration space.

    If the window is None or a Mask, all of ``values`` is returned.
    """
    if window is None or isinstance(window, Mask):
        return values
    assert isinstance(window, Crop)
    return values[tuple(slice(first, end) for first, end in window.ranges)]


def range_select(context: Context) -> Step:
    """Compile ``dst = on_true where (index cmp0 bound0) and (index cmp1 bound1), else on_false``.

    The index of an element is its position in row-major order along the free axes.
    """
    dst = context.dst()
    yes, low, high = (context.reader(number) for number in range(3))
    first, second = alu(context, context.text("cmp0")), alu(context, context.text("cmp1"))
    both = alu(context, "logical_and")
    start = context.attr("range_start", 0)
    other = context.attr("on_false")
    fill = float(other) if isinstance(other, int | float) else float(np.finfo(np.float32).min)
    shape = context.space.shape
    free = int(np.prod(shape[1:], dtype=np.int64))
    origin = start if isinstance(start, int | float) else 0
    index = (np.arange(free) + origin).astype(context.machine.real).reshape(1, *shape[1:])
    sink = fold_sink(context, default_op="max")

    def run(env: Env, window: Window) -> None:
        where = crop(np.broadcast_to(index, shape), window)
        real = context.machine.real
        holds = both(first(where, low(env, window), None), second(where, high(env, window), None), None)
        result = chosen(context.machine, holds, np.asarray(yes(env, window), real), real.type(fill))
        dst.put(env, window, result)
        if sink is not None:
            sink(env, window, result, False)

    return run


def copy_predicated(context: Context) -> Step:
    """Compile ``dst = src where the predicate is not zero``. Other elements of dst keep their values.

    With ``reverse`` the predicate is negated.
    """
    dst, source, predicate = context.dst(), context.reader(0), context.reader(1)
    reverse = context.flag("reverse")

    def run(env: Env, window: Window) -> None:
        before = dst.load(env, window)
        result = chosen(context.machine, predicate(env, window), source(env, window), before, reverse=reverse)
        dst.put(env, window, result)

    return run
