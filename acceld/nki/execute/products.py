"""Compile operations of the tensor engine: matrix products, transposes, and accumulating loops that become one product."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from acceld.chips import VECTOR_TRANSPOSE
from acceld.nki.execute.context import Context, Step
from acceld.nki.execute.machine import Env, Machine, crash
from acceld.nki.execute.tiles import Tile
from acceld.nki.execute.windows import Mask, Window
from acceld.nki.ir.def_use import accumulation
from acceld.nki.ir.numerics import NUMPY_DTYPES, Array, with_nan
from acceld.nki.ir.program import Access, Engine, Instruction, Loop
from acceld.nki.ir.regions import coefficient


def matmul(context: Context) -> Step:
    """Compile ``dst[M, N] = stationary[K, M].T @ moving[K, N]``, accumulated in float32.

    ``transpose`` turns on the array's transpose mode, which exists from trn2 on. trn1 has no such mode and multiplies;
    its profiler counts the product as a transpose (AWS's page of nisa.nc_matmul).
    """
    stationary, moving = context.src(0, arranged=False), context.src(1, arranged=False)
    dst = context.dst(0, arranged=False)
    mode = accumulation(context.instruction)
    check = _onezero_check(context)
    transposes = context.flag("transpose")
    flat = len(stationary.shape) == 2 and len(moving.shape) == 2 and len(dst.shape) == 2
    line = context.instruction.line
    scratch: dict[tuple[int, ...], Array] = {}

    def run(env: Env, window: Window) -> None:
        if isinstance(window, Mask):
            if transposes:
                raise context.unsupported("a mask over several axes of a transpose")
            _masked(context, stationary, moving, dst, mode, env, window)
            return
        s, m = stationary.load(env, window), moving.load(env, window)
        if not flat:
            s, m = s.reshape(s.shape[0], -1), m.reshape(m.shape[0], -1)
        units = (False, False)
        if transposes or check is not None:
            units = _is_identity(s), _is_identity(m)
        if transposes and context.machine.check_transposes and not (any(units) or _either_permutes(s, m)):
            crash(
                "is_transpose is set, but neither operand is the identity or a permutation",
                "transpose_identity",
                line,
                "drop the flag: an array in transpose mode moves the operand through, and multiplies nothing",
            )
        turned, moved = _moved(s, m, units) if mode == "no" else (False, None)
        if transposes and moved is not None and context.machine.moves_bits:
            moved = moved.T if turned else moved
            out = dst.target(env, window)
            if out is not None and out.shape == moved.shape:
                out[...] = moved
            else:
                dst.put(env, window, moved)
            dst.touched(env, window)
            return
        if check is not None:
            check(s, m, units)
        if s.shape[0] != m.shape[0]:
            crash(
                f"the operands of a product have {s.shape[0]} and {m.shape[0]} rows, which must be equal",
                "matmul_shape",
                line,
            )
        out = dst.target(env, window)
        shape = (s.shape[1], m.shape[1])
        if moved is not None and out is not None and out.shape == shape and math.isfinite(moved.sum()):
            # Adding 0 makes -0 a 0, as a product does. It also makes a compact copy, which is faster: rows at distances
            # of a power of two share cache lines.
            plus_zeros = moved + _ZERO
            out[...] = plus_zeros.T if turned else plus_zeros
            dst.touched(env, window)
            return
        if mode == "no" and out is not None and out.shape == shape:
            np.matmul(s.T, m, out=out)
            dst.touched(env, window)
            return
        product = scratch.get(shape)
        if product is None:
            product = scratch[shape] = np.empty(shape, context.machine.real)
        np.matmul(s.T, m, out=product)
        accumulate_into(dst, env, window, mode, product)

    return run


def accumulate_into(dst: Tile, env: Env, window: Window, mode: str, product: Array) -> None:
    """Write ``product`` to ``dst``, or add it to the values there, as ``mode`` says: "no", "yes" or "auto".

    With "auto" the product overwrites an element that was never written, and is added to any other element.
    """
    if mode == "no":
        dst.put(env, window, product)
        dst.touched(env, window)
        return
    out = dst.target(env, window)
    before = out if out is not None else dst.load(env, window)
    product = product.reshape(before.shape)
    if mode == "auto":
        fresh = dst.untouched(env, window)
        if fresh is not None:
            before = np.where(fresh.reshape(before.shape), before.dtype.type(0), before)
    if out is not None:
        np.add(before, product, out=out)
    else:
        dst.put(env, window, before + product)
    dst.touched(env, window)


def _moved(s: Array, m: Array, units: tuple[bool, bool]) -> tuple[bool, Array | None]:
    """Return (whether the product is a transpose, the operand whose elements the product moves).

    One operand of such a product is a square identity matrix; ``units`` says which of the two operands is an
    identity. The second result is None if no operand is a square identity.
    """
    if s.shape[0] == m.shape[0]:
        if units[1] and m.shape[0] == m.shape[1]:
            return True, s
        if units[0] and s.shape[0] == s.shape[1]:
            return False, m
    return False, None


_ZERO = np.float32(0.0)
_LARGEST_IDENTITY = 512


def _either_permutes(s: Array, m: Array) -> bool:
    """Tell whether one of the operands is a permutation matrix, so that the matrix product only moves elements."""
    return _is_permutation(s) or _is_permutation(m)


def _is_permutation(values: Array) -> bool:
    ones = values == 1
    return bool((ones | (values == 0)).all() and ones.sum(axis=0).max() <= 1 and ones.sum(axis=1).max() <= 1)


@cache
def _identity(rows: int, columns: int, dtype: np.dtype[Any]) -> Array:
    return np.eye(rows, columns, dtype=dtype)


def _is_identity(values: Array) -> bool:
    """Tell whether a matrix is an identity matrix, or the part of one that a mask keeps."""
    if max(values.shape) > _LARGEST_IDENTITY:
        return False
    # Testing one element first is cheap and rejects almost every other operand.
    return values.size > 0 and values[0, 0] == 1 and bool((values == _identity(*values.shape, values.dtype)).all())


def _onezero_check(context: Context) -> Callable[[Array, Array, tuple[bool, bool]], None] | None:
    if not context.machine.check_onezero:
        return None
    hints = [context.flag("stationary_onezero"), context.flag("moving_onezero")]
    if not any(hints):
        return None
    line = context.instruction.line

    def check(s: Array, m: Array, units: tuple[bool, bool]) -> None:
        for values, hinted, unit, name in zip((s, m), hints, units, ("stationary", "moving"), strict=True):
            if hinted and not (unit or np.logical_or(values == 0, values == 1).all()):
                crash(
                    f"is_{name}_onezero is set, but the {name} operand holds other values than 0 and 1",
                    "onezero_hint",
                    line,
                    "drop the hint: on the chip the product would be wrong",
                )

    return check


def _masked(context: Context, stationary: Tile, moving: Tile, dst: Tile, mode: str, env: Env, window: Mask) -> None:
    """Multiply under a mask over several axes.

    Terms outside of the mask count as zero. An element of dst without any term keeps its value.
    """
    s, m = stationary.load(env, None), moving.load(env, None)
    keep = np.broadcast_to(window.keep, context.space.shape)
    if s.ndim != 2 or m.ndim != 2:
        raise context.unsupported("a mask over several axes of an operand that is not two-dimensional")
    if np.array_equal(keep, np.broadcast_to(keep.any(axis=0), keep.shape)):
        product = s.T @ m
    else:
        product = np.stack([(s * keep[:, :, n]).T @ m[:, n] for n in range(m.shape[1])], axis=1)
    before = dst.load(env, None)
    if mode == "yes":
        product = product + before
    elif mode == "auto":
        fresh = dst.untouched(env, None)
        product = product + (before if fresh is None else np.where(fresh, before.dtype.type(0), before))
    dst.put(env, window, product.astype(before.dtype))
    dst.touched(env, window)


def transpose(context: Context) -> Step:
    """Compile ``dst[F, P] = src[P, F]``.

    On a chip that multiplies by the identity, a NaN or an infinity spreads over its row.
    """
    src, dst = context.src(0), context.dst()
    same = src.dtype == dst.dtype
    by_vector = (
        context.instruction.engine is Engine.VECTOR and max(context.instruction.dsts[0].shape) <= VECTOR_TRANSPOSE
    )
    moves_bits = context.machine.moves_bits or by_vector

    def run(env: Env, window: Window) -> None:
        out = dst.target(env, window)
        values = src.raw(env, window) if same and src.numpy_dtype == dst.numpy_dtype else src.load(env, window)
        if not moves_bits:
            values = _spread(values)
        if out is not None and out.shape == values.shape:
            out[...] = values
        else:
            dst.put(env, window, values)

    return run


def _spread(values: Array) -> Array:
    """Return the product of ``values`` with the identity matrix as the chip computes it: a NaN or infinity makes all
    other elements of its row NaN, because zero times it is added to them.
    """
    wrong = ~np.isfinite(values)
    if not wrong.any():
        return values
    others = wrong.sum(axis=-1, keepdims=True) - wrong
    return np.where(others > 0, values.dtype.type(np.nan), values)


def matmul_mx(context: Context) -> Step:
    """Compile a matrix product of MXFP8 or MXFP4 operands.

    A packed element holds four values along K. Each block of 32 values (eight partitions by four values) has
    one power-of-two scale.
    """
    dst = context.dst(0, arranged=False)
    operands = [context.src(number, arranged=False) for number in range(4)]
    if any(tile.dtype not in _MX_FORMATS for tile in operands[:2]):
        raise context.unsupported(f"operands other than {', '.join(_MX_FORMATS)}")
    mode = accumulation(context.instruction)
    real = context.machine.real

    def run(env: Env, window: Window) -> None:
        if window is not None:
            raise context.unsupported("a mask")
        s, m = (
            mx_values(values.content(env, None), values.dtype, scale.content(env, None), real)
            for values, scale in zip(operands[:2], operands[2:], strict=True)
        )
        product = s.T @ m
        if context.machine.keeps_nan and any(tile.marked(env, None).any() for tile in operands):
            product[...] = np.nan
        accumulate_into(dst, env, None, mode, product)

    return run


_MX_FORMATS = {
    "float8_e5m2_x4": "float8_e5m2",
    "float8_e4m3fn_x4": "float8_e4m3fn",
    "float4_e2m1fn_x4": "float4_e2m1fn",
}
_FLOAT4 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
"""Magnitudes of float4_e2m1fn by the three lower bits; the highest bit is the sign."""


def _unpacked(flat: Array, dtype: str, real: np.dtype[Any]) -> Array:
    """Return the four values of each packed element along a new last axis, the value of the lowest bits first."""
    if dtype == "float4_e2m1fn_x4":
        nibbles = (flat[..., None] >> np.array([0, 4, 8, 12], flat.dtype)) & 15
        signs = np.where(nibbles & 8, -1.0, 1.0)
        return np.asarray((signs * _FLOAT4[nibbles & 7]).astype(real))
    return np.asarray(flat.view(NUMPY_DTYPES[_MX_FORMATS[dtype]]).astype(real).reshape(*flat.shape, 4))


def mx_values(packed: Array, dtype: str, scales: Array, real: np.dtype[Any]) -> Array:
    """Return packed values of shape (P, F) times their scales, as reals of shape (4 P, F).

    ``scales`` are biased exponents, one row for each block of eight partitions. The rows follow each other, or the rows
    of four blocks are in the first four partitions of each group of 32.
    """
    flat = np.ascontiguousarray(packed.reshape(packed.shape[0], -1))
    parts = _unpacked(flat, dtype, real)
    rows = np.arange(flat.shape[0]) // 8
    table = scales.reshape(scales.shape[0], -1).astype(np.int64)
    picked = table[rows] if table.shape[0] * 8 == flat.shape[0] else table[(rows // 4) * 32 + rows % 4]
    picked = np.broadcast_to(picked, flat.shape)
    scaled = np.ldexp(parts, (picked - 127)[..., None])
    return np.asarray(scaled.transpose(0, 2, 1).reshape(-1, flat.shape[1]))


def fused_loops(loop: Loop) -> tuple[tuple[Loop, ...], Instruction] | None:
    """Return the loops of a nest that can run as one matrix product, and the nest's only instruction; None if ``loop``
    is not such a nest.

    The instruction must be a product that accumulates into one fixed tile.
    """
    chain: list[Loop] = []
    node: Loop | Instruction = loop
    while isinstance(node, Loop):
        if len(node.body) != 1 or node.trips_register is not None or node.trips < 1:
            return None
        chain.append(node)
        node = node.body[0]
    if (
        node.op != "matmul"
        or node.attr("transpose")
        or accumulation(node) == "no"
        or len(node.srcs) != 2
        or len(node.dsts) != 1
    ):
        return None
    stationary, moving = node.srcs
    if not isinstance(stationary, Access) or not isinstance(moving, Access):
        return None
    tiles = (stationary, moving, node.dsts[0])
    if any(tile.indirect or len(tile.dims) != 2 for tile in tiles):
        return None
    if any(dst.buffer == tile.buffer for dst in node.dsts for tile in tiles[:2]):
        return None
    ids = {one.id for one in chain}
    if any(coefficient(start, number) for start in tiles[2].start for number in ids):
        return None
    for pattern in node.mask:
        if any(coefficient(pattern.base, number) for number in ids) or (pattern.coefs and pattern.coefs[0]):
            return None
        if sum(coef != 0 for coef in pattern.coefs) > 1:
            return None
    if tiles[0].dims[0].count != tiles[1].dims[0].count:
        return None
    return tuple(chain), node


def layout_order(access: Access, loops: Sequence[Loop], partition_axis: int) -> tuple[int, ...] | None:
    """Return the order of a buffer's dimensions that makes the rows of ``access`` evenly spaced in memory, over all
    iterations of ``loops``.

    The result is None if there is no such order.
    """
    if partition_axis < 0:
        return None
    rows: list[int] = []
    for loop in loops:
        dims = [d for d, start in enumerate(access.start) if coefficient(start, loop.id)]
        if len(dims) != 1 or dims[0] in rows or dims[0] == partition_axis:
            return None
        rows += dims
    rest = [d for d in range(len(access.start)) if d not in rows and d != partition_axis]
    return (*(d for d in rest if d < partition_axis), *rows, partition_axis, *(d for d in rest if d > partition_axis))


def fused_matmul(machine: Machine, context: Context, loops: Sequence[Loop]) -> Step:
    """Return a step that computes all iterations of ``loops`` as one matrix product, with trips times as many rows K.

    The result differs from the result of the loops only by the order of float32 sums.
    """
    operands = [_Stack(machine, context.src(number, arranged=False), loops) for number in (0, 1)]
    dst = context.dst(0, arranged=False)
    mode = accumulation(context.instruction)
    check = _onezero_check(context)
    scratch: dict[tuple[int, ...], Array] = {}

    def run(env: Env, window: Window) -> None:
        s, m = operands[0].load(env, window), operands[1].load(env, window)
        if check is not None:
            check(s, m, (False, False))
        shape = (s.shape[1], m.shape[1])
        product = scratch.get(shape)
        if product is None:
            product = scratch[shape] = np.empty(shape, machine.real)
        np.matmul(s.T, m, out=product)
        accumulate_into(dst, env, window, mode, product)

    return run


class _Stack:
    """One operand of a fused matrix product: its tiles of all iterations, stacked into a matrix (rows, columns)."""

    def __init__(self, machine: Machine, tile: Tile, loops: Sequence[Loop]) -> None:
        self.tile, self.real = tile, machine.real
        _, terms, _ = tile.layout.place(tile.access)
        item = tile.layout.dtype.itemsize
        self.counts = tuple(loop.trips for loop in loops)
        self.steps = tuple(terms.get(loop.id, 0) * item for loop in loops)
        self.slots = tuple(machine.slots[loop.id] for loop in loops)

    def load(self, env: Env, window: Window) -> Array:
        """Return the stacked tiles as a matrix of reals: a view, or a copy if the rows are not evenly spaced in
        memory.
        """
        for slot in self.slots:
            env[slot] = 0
        offset, shape = self.tile.start(env, window)
        stacked: Array = np.ndarray(
            (*self.counts, *shape),
            self.tile.numpy_dtype,
            self.tile.store.array,
            offset,
            (*self.steps, *self.tile.strides),
        )
        rows = self.tile.read(stacked.reshape(-1, shape[-1]))
        marks = self.tile.store.marks
        if marks is not None:
            kind, strides = f"u{stacked.itemsize}", (*self.steps, *self.tile.strides)
            marked: Array = np.ndarray(stacked.shape, kind, marks, offset, strides)
            rows = with_nan(rows, marked.reshape(-1, shape[-1]) != 0)
        return rows if rows.dtype == self.real else rows.astype(self.real)
