"""Provide ``neuronxcc.nki.isa``: most functions return their result in a new tile."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from acceld.chips import FREE_AXES
from acceld.nki.errors import LegalityError
from acceld.nki.frontend.core import dtypes, products, reductions
from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.elementwise import (
    BITWISE,
    as_column,
    broadcast_shape,
    masked,
    operand,
    result,
    result_like,
    same_partitions,
    scalar_operand,
)
from acceld.nki.frontend.core.names import (
    EngineName,
    NcVersion,
    ReduceCommand,
    activation_function,
    alu_op,
    engine_of,
    get_nc_version,
)
from acceld.nki.frontend.core.placement import assign, fresh
from acceld.nki.frontend.core.signatures import checked, defined_in
from acceld.nki.frontend.core.state import Trace, current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.core.views import expand
from acceld.nki.frontend.legacy import memory, positions, transfers
from acceld.nki.frontend.legacy.positions import reducing
from acceld.nki.ir.operations import OPS, Memory
from acceld.nki.ir.program import Attr, Engine, Space
from acceld.nki.ir.regions import free_axes


def activation(
    op: object,
    data: object,
    *,
    bias: object = None,
    scale: object = 1.0,
    reduce_op: object = None,
    reduce_res: object = None,
    reduce_cmd: object = None,
    mask: object = None,
    dtype: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return op(data * scale + bias), computed on the scalar engine, in a new tile: ``nisa.activation``.

    With ``reduce_cmd`` the result is also reduced along the free axes into reduce_res.
    """
    tile = operand(data, "data", "activation")
    srcs: list[Any] = [
        tile,
        scalar_operand(0.0 if bias is None else bias, "bias", "activation", tile.shape[0]),
        scalar_operand(scale, "scale", "activation", tile.shape[0]),
    ]
    attrs: dict[str, Attr] = {"func": activation_function(op)}
    dst = fresh(current(), tile.shape, dtypes.result_name(dtype, tile.dtype_name), Space.SBUF)
    reducing("activation", Engine.SCALAR, dst, srcs, attrs, mask, reduce_op, reduce_res, reduce_cmd, "activation")
    return dst


def activation_reduce(
    op: object,
    data: object,
    *,
    reduce_op: object,
    reduce_res: object,
    bias: object = None,
    scale: object = 1.0,
    mask: object = None,
    dtype: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return op(data * scale + bias) in a new tile, and set reduce_res to that tile folded along the free axes:
    ``nisa.activation_reduce``.
    """
    return activation(
        op, data, bias=bias, scale=scale, reduce_op=reduce_op, reduce_res=reduce_res,
        reduce_cmd=ReduceCommand.reset_reduce, mask=mask, dtype=dtype,
    )  # fmt: skip


def tensor_tensor(
    data1: object,
    data2: object,
    op: object,
    *,
    dtype: object = None,
    mask: object = None,
    engine: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return data1 op data2, element by element, in a new tile: ``nisa.tensor_tensor``."""
    name = alu_op(op)
    left, right = operand(data1, "data1", "tensor_tensor"), operand(data2, "data2", "tensor_tensor")
    left, right = as_column(left, right), as_column(right, left)
    same_partitions("tensor_tensor", ("data1", left), ("data2", right))
    shape = broadcast_shape(left.shape, right.shape, "tensor_tensor")
    chosen = engine_of(engine)
    if chosen is Engine.UNKNOWN:
        chosen = Engine.GPSIMD if name == "power" else Engine.VECTOR
    srcs: list[Any] = [expand(left, shape), expand(right, shape)]
    kind = dtypes.result_name(dtype, left.dtype_name, right.dtype_name)
    return result("tensor_tensor", chosen, shape, kind, srcs, attrs={"op": name}, mask=masked(mask, shape))


def tensor_scalar(
    data: object,
    op0: object,
    operand0: object,
    reverse0: bool = False,
    op1: object = None,
    operand1: object = None,
    reverse1: bool = False,
    *,
    dtype: object = None,
    mask: object = None,
    engine: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return (data op0 operand0) op1 operand1 in a new tile: ``nisa.tensor_scalar``. Operands are numbers or (P, 1)
    tiles.
    """
    tile = operand(data, "data", "tensor_scalar")
    first = alu_op(op0)
    attrs: dict[str, Attr] = {"op0": first, "reverse0": bool(reverse0)}
    srcs: list[Any] = [tile, scalar_operand(operand0, "operand0", "tensor_scalar", tile.shape[0])]
    if op1 is not None:
        second = alu_op(op1)
        if (first in BITWISE) != (second in BITWISE):
            refuse(
                "op_mix",
                f"op0 {first} and op1 {second} of 'tensor_scalar' must both be arithmetic or both bitwise",
                "use two instructions",
            )
        attrs |= {"op1": second, "reverse1": bool(reverse1)}
        srcs.append(scalar_operand(operand1, "operand1", "tensor_scalar", tile.shape[0]))
    return result_like(tile, "tensor_scalar", engine_of(engine), srcs, dtype=dtype, mask=mask, attrs=attrs)


def tensor_scalar_reduce(
    *,
    data: object,
    op0: object,
    operand0: object,
    reduce_op: object,
    reduce_res: object,
    reverse0: bool = False,
    dtype: object = None,
    mask: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return ``data <op0> operand0`` in a new tile, and set reduce_res to that tile reduced by ``reduce_op`` along the free
    axes: ``nisa.tensor_scalar_reduce``.
    """
    tile = operand(data, "data", "tensor_scalar_reduce")
    call = "tensor_scalar_reduce"
    attrs: dict[str, Attr] = {"op0": alu_op(op0), "reverse0": bool(reverse0)}
    srcs: list[Any] = [tile, scalar_operand(operand0, "operand0", call, tile.shape[0])]
    dst = fresh(current(), tile.shape, dtypes.result_name(dtype, tile.dtype_name), Space.SBUF)
    command = ReduceCommand.reset_reduce
    reducing("tensor_scalar", Engine.VECTOR, dst, srcs, attrs, mask, reduce_op, reduce_res, command, call)
    return dst


def tensor_scalar_cumulative(
    *,
    src: object,
    dst: object = None,
    op0: object,
    op1: object,
    imm0: object,
    imm1: object = None,
    reduce_cmd: object = ReduceCommand.reset_reduce,
    dtype: object = None,
    mask: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return the running fold of (src op0 imm0) with op1 along the free axis: ``nisa.tensor_scalar_cumulative``.

    The result is a new tile. The result is also written to ``dst`` if ``dst`` is given, as in AWS's example
    (``test_nki_isa_tensor_scalar_cumulative.py`` of the SDK's documentation).
    """
    call = "tensor_scalar_cumulative"
    tile = operand(src, "src", call)
    command = ReduceCommand(operator.index(cast("Any", reduce_cmd)))
    starts = command is ReduceCommand.load_reduce
    if imm1 is None and starts:
        refuse("reduce_init", f"'{call}' got reduce_cmd.load_reduce without imm1, the value to start from", "pass imm1")
    if masked(mask, tile.shape):
        unsupported(f"nisa.{call} with a mask is not simulated", "slice the tile")
    srcs: list[Any] = [tile, scalar_operand(imm0, "imm0", call, tile.shape[0])]
    if imm1 is not None and starts:  # AWS's example passes imm1 to other commands too, which do not read it
        srcs.append(scalar_operand(imm1, "imm1", call, tile.shape[0]))
    attrs: dict[str, Attr] = {"op0": alu_op(op0), "op1": alu_op(op1), "reduce_cmd": command.name}
    made = result_like(tile, call, Engine.VECTOR, srcs, dtype=dtype, mask=None, attrs=attrs)
    if dst is not None:
        assign(operand(dst, "dst", call), made)
    return made


def scalar_tensor_tensor(
    *,
    data: object,
    op0: object,
    operand0: object,
    op1: object,
    operand1: object,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: object = None,
    mask: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return (data op0 operand0) op1 operand1 in a new tile: ``nisa.scalar_tensor_tensor``. operand1 is a tile like
    data.
    """
    call = "scalar_tensor_tensor"
    tile, other = operand(data, "data", call), operand(operand1, "operand1", call)
    same_partitions(call, ("data", tile), ("operand1", other))
    shape = broadcast_shape(tile.shape, other.shape, call)
    srcs: list[Any] = [expand(tile, shape), scalar_operand(operand0, "operand0", call, shape[0]), expand(other, shape)]
    attrs: dict[str, Attr] = {
        "op0": alu_op(op0), "reverse0": bool(reverse0), "op1": alu_op(op1), "reverse1": bool(reverse1),
    }  # fmt: skip
    kind = dtypes.result_name(dtype, tile.dtype_name, other.dtype_name)
    return result(call, Engine.VECTOR, shape, kind, srcs, attrs=attrs, mask=masked(mask, shape))


def tensor_tensor_scan(
    data0: object,
    data1: object,
    initial: object,
    op0: object,
    op1: object,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: object = None,
    mask: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return a running result along the free axis, r[i] = (data0[i] op0 r[i-1]) op1 data1[i]:
    ``nisa.tensor_tensor_scan``.
    """
    call = "tensor_tensor_scan"
    left, right = operand(data0, "data0", call), operand(data1, "data1", call)
    same_partitions(call, ("data0", left), ("data1", right))
    shape = broadcast_shape(left.shape, right.shape, call)
    srcs: list[Any] = [expand(left, shape), expand(right, shape), scalar_operand(initial, "initial", call, shape[0])]
    attrs: dict[str, Attr] = {
        "op0": alu_op(op0), "reverse0": bool(reverse0), "op1": alu_op(op1), "reverse1": bool(reverse1),
    }  # fmt: skip
    kind = dtypes.result_name(dtype, left.dtype_name, right.dtype_name)
    return result("scan", Engine.VECTOR, shape, kind, srcs, attrs=attrs, mask=masked(mask, shape))


def tensor_reduce(
    op: object,
    data: object,
    axis: object,
    *,
    mask: object = None,
    dtype: object = None,
    negate: bool = False,
    keepdims: bool = False,
    **kwargs: Any,
) -> Tensor:
    """Return data folded with op along the free axes ``axis``, in a new tile: ``nisa.tensor_reduce``."""
    return reductions.reduce(op, data, axis, mask=mask, dtype=dtype, negate=negate, keepdims=keepdims)


def reciprocal(data: object, *, dtype: object = None, mask: object = None, **kwargs: Any) -> Tensor:
    """Return 1 / data in a new tile: ``nisa.reciprocal``."""
    tile = operand(data, "data", "reciprocal")
    return result_like(tile, "reciprocal", Engine.UNKNOWN, [tile], dtype=dtype, mask=mask)


def dropout(data: object, prob: object, *, mask: object = None, dtype: object = None, **kwargs: Any) -> Tensor:
    """Return data, in which each element is set to zero with probability ``prob``, in a new tile:
    ``nisa.dropout``.
    """
    tile = operand(data, "data", "dropout")
    chance = scalar_operand(prob, "prob", "dropout", tile.shape[0])
    return result_like(tile, "dropout", Engine.VECTOR, [tile, chance], dtype=dtype, mask=mask)


_OTHERS = (positions.reducing, transfers.atomic_rmw)
UNSUPPORTED = {
    "builtin_custom_op": "the code of a custom operator is not available to the simulator",
    "tensor_copy_dynamic_src": "copies from run-time offsets in SBUF are not simulated",
    "tensor_copy_dynamic_dst": "copies to run-time offsets in SBUF are not simulated",
}


def _refused(name: str) -> Callable[..., object]:
    """Return a function that raises UnsupportedCall for ``nisa.NAME``, with the reason in :data:`UNSUPPORTED`."""

    def call(*args: Any, **kwargs: Any) -> object:
        unsupported(
            f"nisa.{name} is not simulated: {UNSUPPORTED[name]}",
            "nisa.tensor_copy takes loop variables as offsets; nl.load takes index tiles"
            if name.startswith("tensor_copy")
            else "write it with the other functions of nl and nisa",
        )

    call.__name__ = name
    return call


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    get_nc_version,
    memory.memset,
    products.nc_matmul,
    products.nc_transpose,
    *(one for one in defined_in(sys.modules[__name__], positions, transfers) if one not in _OTHERS),
)
"""The functions of ``neuronxcc.nki.isa`` that the simulator has."""


def _direct(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of ``function`` that marks the emitted instructions as instructions of the chip, which the
    compiler does not split.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        trace = current()
        before, trace.direct = trace.direct, True
        try:
            return function(*args, **kwargs)
        finally:
            trace.direct = before

    return call


def check_axes(trace: Trace) -> None:
    """Raise LegalityError if an instruction of ``nisa`` steps through more free axes than an engine takes.

    Functions of ``nl`` may have more axes: the compiler splits their instructions, as one of AWS's samples
    shows.
    """
    for slot in trace.direct_slots:
        instruction = slot.instruction
        if OPS[instruction.op].memory is Memory.DMA:
            continue
        for access in instruction.accesses:
            buffer = trace.builder.buffers[access.buffer]
            axes = free_axes(access, buffer) if buffer.space is not Space.HBM else 0
            if axes > FREE_AXES:
                raise LegalityError(
                    f"a tile of {instruction.op} has {axes} free axes; an engine takes at most {FREE_AXES}",
                    rule="access_pattern",
                    line=instruction.line,
                    hint="merge axes, or split the instruction",
                )


# The functions are wrapped once in each process, because reading their signatures takes longer than a small trace.
_FUNCTIONS: Mapping[str, object] = MappingProxyType(
    {function.__name__: checked("nisa", _direct(function)) for function in FUNCTIONS}
    | {name: _refused(name) for name in UNSUPPORTED}
)


def namespace() -> dict[str, object]:
    """Return the names of ``neuronxcc.nki.isa`` that the simulator has, with their values."""
    names = {**_FUNCTIONS}
    names |= {
        "engine": EngineName,
        "reduce_cmd": ReduceCommand,
        "nc_version": NcVersion,
        "dge_mode": transfers.DgeMode,
        "oob_mode": transfers.OutOfBoundsMode,
    }
    names |= {f"{name.name}_engine": name for name in EngineName}
    return names
