"""Compile operations on registers and random numbers, barriers, and rounding to microscaling (MX) formats."""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from acceld.nki.execute.context import Context, Step
from acceld.nki.execute.elementwise import crop
from acceld.nki.execute.machine import Env, crash, undefined_use
from acceld.nki.execute.windows import Window
from acceld.nki.ir.numerics import ALU, BITWISE, NUMPY_DTYPES, Array
from acceld.nki.ir.operations import GENERATOR_WORDS
from acceld.nki.ir.program import Engine


def _register(context: Context, name: str = "register") -> int:
    number = context.attr(name)
    if not isinstance(number, int) or not 0 <= number < len(context.machine.registers):
        crash(f"{context.op} names no register of the program for its result", "register", context.instruction.line)
    return number


def _value(context: Context) -> Callable[[Env, Window], int | float]:
    """Return a function that reads the value which a register operation uses.

    The value comes from the register that the attribute ``source`` names. Without this attribute, operand 0 is the
    value.
    """
    if context.attr("source") is not None:
        number = _register(context, "source")
        return lambda env, window: context.machine.held(number, context.instruction.line)
    reader = context.reader(0)

    def read(env: Env, window: Window) -> int | float:
        value = np.asarray(reader(env, window))
        if value.size != 1:
            crash(f"a register holds one element, not {value.size}", "register", context.instruction.line)
        return _plain(value.reshape(-1)[0])

    return read


def _plain(value: Any) -> int | float:
    """Return an array's element as a Python number: an int if the value is whole, else a float."""
    if isinstance(value, np.integer | int):
        return int(value)
    number = float(value)
    return int(number) if np.isfinite(number) and number == int(number) else number


_EXACT: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
}
"""Arithmetic of scalar integers that is exact before the result wraps around to its known number of bits, as on the
chip.
"""


def register_move(context: Context) -> Step:
    """Compile ``register = immediate``, or ``register = another register``."""
    target, value = _register(context), _value(context)

    def run(env: Env, window: Window) -> None:
        context.machine.registers[target] = value(env, window)

    return run


def register_load(context: Context) -> Step:
    """Compile ``register = the only element of data``."""
    target, data = _register(context), context.src(0)

    def run(env: Env, window: Window) -> None:
        if data.marked(env, window).any():
            undefined_use("a register", context.instruction.line)
        values = data.content(env, window).reshape(-1)
        if values.size != 1:
            crash(
                f"a register is loaded from one element, not from {values.size}", "register", context.instruction.line
            )
        context.machine.registers[target] = _plain(values[0])

    return run


def register_store(context: Context) -> Step:
    """Compile the copy of a register to a destination of one element."""
    source, dst = _register(context), context.dst()

    def run(env: Env, window: Window) -> None:
        held = context.machine.held(source, context.instruction.line)
        dst.put(env, window, np.full((1,) * len(dst.shape), held, np.int64 if isinstance(held, int) else np.float64))

    return run


def register_alu(context: Context) -> Step:
    """Compile ``register = source op value``. The value is an immediate, or the register named by ``operand``."""
    target = _register(context)
    source = _register(context, "source") if context.attr("source") is not None else target
    op = context.text("op")
    reader = context.reader(0)
    other = _register(context, "operand") if context.attr("operand") is not None else None
    if op not in ALU and op not in BITWISE:
        crash(f"{op!r} is not an arithmetic operation", "operation", context.instruction.line)
    bits, exact, line = context.attr("bits"), _EXACT.get(op), context.instruction.line

    def second(env: Env, window: Window) -> Any:
        if other is None:
            return np.asarray(reader(env, window)).reshape(-1)[0]
        return context.machine.held(other, line)

    def run(env: Env, window: Window) -> None:
        held = context.machine.held(source, line)
        registers = context.machine.registers
        if isinstance(bits, int) and 0 < bits <= 64 and exact is not None:
            by = second(env, window)
            total = exact(int(held), int(by))
            registers[target] = (total + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
            return
        value = float(second(env, window))
        if op in BITWISE:
            if not (np.isfinite(held) and np.isfinite(value)):
                crash(
                    f"the bit operation {op} needs registers that hold integers",
                    "register_value",
                    context.instruction.line,
                )
            both = np.array([int(held), int(value)], np.float64).astype(np.int64)
            context.machine.registers[target] = int(BITWISE[op](both[0], both[1]))
        else:
            result = ALU[op](np.float64(held), np.float64(value), None)
            context.machine.registers[target] = _plain(float(result))

    return run


def random_seed(context: Context) -> Step:
    """Compile ``seed of the random generator = elements of the operand``."""
    reader = context.reader(0)

    def run(env: Env, window: Window) -> None:
        values = np.nan_to_num(np.asarray(reader(env, window), np.float64)).reshape(-1)
        seeds = [int(value) & 0xFFFFFFFF for value in np.clip(values, -(2.0**53), 2.0**53)]
        context.machine.random = np.random.default_rng(seeds)

    return run


def random(context: Context) -> Step:
    """Compile ``dst = uniform random values in [low, high)``.

    Without low and high, an integer destination gets values from the full range of its dtype.
    """
    dst = context.dst()
    low = context.reader(0) if context.has_src(0) else None
    high = context.reader(1) if context.has_src(1) else None
    engine = Engine.VECTOR if context.instruction.engine is Engine.UNKNOWN else context.instruction.engine

    def run(env: Env, window: Window) -> None:
        shape = context.space.shape
        words = context.machine.generators.get(engine)
        if words is not None:
            drawn = xorwow(words[: shape[0]], prod(shape[1:])).reshape(shape)
        if low is None and dst.integer and words is not None:
            values: Array = drawn.astype(dst.numpy_dtype)
        elif low is None and dst.integer:
            info = np.iinfo(dst.numpy_dtype) if dst.numpy_dtype.kind in "iu" else None
            least, most = (int(info.min), int(info.max)) if info is not None else (0, 1)
            values = context.machine.random.integers(least, most, shape, endpoint=True)
        else:
            start = low(env, None) if low is not None else 0.0
            end = high(env, None) if high is not None else 1.0
            unit = context.machine.random.random(shape) if words is None else drawn / 2.0**32
            values = start + (end - start) * unit
        dst.put(env, window, crop(values, window))

    return run


def xorwow(words: Array, count: int) -> Array:
    """Return ``count`` 32-bit random numbers for each row of ``words``, and store the new states in ``words``.

    Six words are the state of one generator (Marsaglia, Xorshift RNGs, 2003). The generators of a row are used
    in turn.
    """
    turns = words.shape[1] // 6
    out = np.empty((words.shape[0], -(-count // turns), turns), np.uint32)
    state = words.reshape(words.shape[0], turns, 6)
    for at in range(out.shape[1]):
        x, last = state[..., 0] ^ (state[..., 0] >> 2), state[..., 4].copy()
        state[..., 0:4] = state[..., 1:5].copy()
        state[..., 4] = last ^ (last << 4) ^ x ^ (x << 1)
        state[..., 5] += np.uint32(362437)
        out[:, at] = state[..., 4] + state[..., 5]
    return out.reshape(words.shape[0], -1)[:, :count]


def _generators(context: Context) -> Array:
    """Return the random state of the instruction's engine, one row for each partition.

    A state that the program has not set is drawn at random.
    """
    engine, machine = context.instruction.engine, context.machine
    if engine not in machine.generators:
        machine.generators[engine] = machine.random.integers(
            0, 2**32, (machine.partitions, GENERATOR_WORDS[engine]), np.uint32
        )
    return machine.generators[engine]


def random_state_load(context: Context) -> Step:
    """Compile ``random state of the engine = data``, with one row for each partition."""
    data = context.src(0)

    def run(env: Env, window: Window) -> None:
        rows = data.content(env, window)
        _generators(context)[: rows.shape[0]] = rows.reshape(rows.shape[0], -1)

    return run


def random_state_store(context: Context) -> Step:
    """Compile ``dst = random state of the engine``."""
    dst = context.dst()

    def run(env: Env, window: Window) -> None:
        dst.put(env, window, _generators(context)[: dst.shape[0]].reshape(dst.shape))

    return run


def dropout(context: Context) -> Step:
    """Compile ``dst = data``, where each element is set to 0 with the given probability."""
    dst, data, probability = context.dst(), context.reader(0), context.reader(1)

    def run(env: Env, window: Window) -> None:
        values = data(env, window)
        kept = context.machine.random.random(values.shape) >= probability(env, window)
        dst.put(env, window, np.where(kept, values, values.dtype.type(0)))

    return run


def nothing(context: Context) -> Step:
    """Return a step that does nothing. It is used for operations that change no values."""
    return lambda env, window: None


def barrier(context: Context) -> Step:
    """Compile a barrier: this core waits for the other core.

    Cores with one program need no wait, because each instruction runs for all cores before the next instruction runs.
    """
    line = context.instruction.line

    def run(env: Env, window: Window) -> None:
        if context.machine.pair is not None:
            context.machine.pair.meet(line)

    return run


def exchange(context: Context) -> Step:
    """Compile ``dst = the tile of the other core``, for two cores with different programs.

    For two cores with one program the interpreter exchanges the tiles, and this function is not called.
    """
    src, dst, line = context.src(0, arranged=False), context.dst(0, arranged=False), context.instruction.line
    pipe = context.attr("pipe", 0)

    def run(env: Env, window: Window) -> None:
        pair = context.machine.pair
        if pair is None:
            crash("a core exchanges tiles, but the kernel is not launched on two cores", "exchange_cores", line)
        dst.put(env, None, pair.swap(np.array(src.load(env, None)), pipe, line))

    return run


def quantize_mx(context: Context) -> Step:
    """Compile the rounding of blocks to MXFP8. A block is eight partitions by four elements and has one
    power-of-two scale.

    The scale is 2 ** (floor(log2(greatest)) - (E - 1)), where ``greatest`` is the largest magnitude in the
    block and E is the greatest exponent of the format. This is twice the scale in the OCP standard's sample conversion.
    """
    data = context.src(0, arranged=False)
    dst, scale = context.dst(0, arranged=False), context.dst(1, arranged=False)
    formats = {"float8_e5m2_x4": ("float8_e5m2", 14), "float8_e4m3fn_x4": ("float8_e4m3fn", 7)}
    if dst.dtype not in formats:
        raise context.unsupported(f"packing to {dst.dtype}")
    name, greatest = formats[dst.dtype]

    def run(env: Env, window: Window) -> None:
        if window is not None:
            raise context.unsupported("a mask")
        values = data.load(env, None)
        rows = np.ascontiguousarray(values.reshape(values.shape[0], -1))
        if rows.shape[0] % 8 or rows.shape[1] % 4:
            crash(
                f"a tile of {rows.shape[0]} partitions by {rows.shape[1]} elements is not made of blocks of 8 by 4",
                "mx_block",
                context.instruction.line,
            )
        blocks = rows.reshape(rows.shape[0] // 8, 8, rows.shape[1] // 4, 4)
        peak = np.abs(blocks).max(axis=(1, 3))
        _, exponent = np.frexp(np.where(np.isfinite(peak), peak, 0))
        shared = np.clip(exponent - 1 - greatest, -127, 127)
        shared = np.where(peak > 0, shared, -127)
        scaled = np.ldexp(blocks, -shared[:, None, :, None])
        limit = float(np.finfo(np.float32).max if name not in _LIMITS else _LIMITS[name])
        packed = np.ascontiguousarray(np.clip(scaled, -limit, limit).reshape(rows.shape).astype(NUMPY_DTYPES[name]))
        dst.put(env, None, packed.view(np.uint32).reshape(dst.shape))
        unknown = np.isnan(peak) if context.machine.keeps_nan else np.zeros(peak.shape, np.bool_)
        dst.mark(env, None, np.repeat(unknown, 8, axis=0).reshape(dst.shape))
        target = scale.content(env, None)
        bytes_out = np.array(target.reshape(target.shape[0], -1))
        for group in range(shared.shape[0]):
            row = group if bytes_out.shape[0] == shared.shape[0] else (group // 4) * 32 + group % 4
            bytes_out[row] = (shared[group] + 127).astype(np.uint8)
        scale.put(env, None, bytes_out)
        if unknown.any():
            scale.mark(env, None, np.ones((1,) * len(scale.shape), np.bool_))

    return run


_LIMITS = {"float8_e5m2": 57344.0, "float8_e4m3fn": 448.0}
