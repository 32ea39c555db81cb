"""Emit the reductions, scans and statistics of ``nki.isa``."""

from __future__ import annotations

from dataclasses import replace

from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.elementwise import operand
from acceld.nki.frontend.core.reductions import axes_last, free_axes
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.views import conform
from acceld.nki.frontend.current.operands import alu_op, destination, emit, fold, last_axes, matched, scalar
from acceld.nki.ir.program import Engine


def tensor_reduce(
    dst: object,
    op: object,
    data: object,
    axis: object,
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> None:
    """Set dst to data folded with op along the free axes ``axis``."""
    target, tile = destination(dst, "tensor_reduce"), operand(data, "data", "tensor_reduce")
    axes = free_axes(axis, tile, "tensor_reduce")
    last = tuple(range(tile.ndim - len(axes), tile.ndim))
    kept = _without(axes, tile.shape)
    view = conform(target, kept)
    if view is None and all(tile.shape[k] == 1 for k in axes):
        # Before NKI 0.3 only the number of axes counted: as many of the last axes were folded. Kernels of that time ran
        # on chips.
        view, axes = conform(target, _without(last, tile.shape)), last
        current().notice(f"axis {axis} of {list(tile.shape)} is read as NKI before 0.3 did: write axis={list(last)}")
    if view is None:
        refuse("shape", f"the dst of 'tensor_reduce' has shape {list(target.shape)}: declare it with {list(kept)}")
    if axes != last:
        last_axes("tensor_reduce", axes, tile)
        tile, order = axes_last(tile, axes)
        view = view.like(replace(view.access, dims=tuple(view.access.dims[k] for k in order)))
    emit("tensor_reduce", Engine.VECTOR, [view], [tile], op=fold(op), axes=last, negate=bool(negate))


def _without(axes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``shape`` with the size along each of ``axes`` set to 1."""
    return tuple(1 if k in axes else n for k, n in enumerate(shape))


def tensor_partition_reduce(dst: object, op: object, data: object, name: str | None = None) -> None:
    """Set dst, of one partition, to data folded with op along the partition axis."""
    emit(
        "partition_reduce",
        Engine.GPSIMD,
        [destination(dst, "tensor_partition_reduce")],
        [operand(data, "data", "tensor_partition_reduce")],
        op="average" if op == "average" else fold(op),
    )


def tensor_tensor_scan(
    dst: object,
    data0: object,
    data1: object,
    initial: object,
    op0: object,
    op1: object,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> None:
    """Set dst to a running result along the free axis: dst[i] = (data0[i] op0 dst[i-1]) op1 data1[i]."""
    target, first, second = matched(dst, "tensor_tensor_scan", data0=data0, data1=data1)
    emit(
        "scan",
        Engine.VECTOR,
        [target],
        [first, second, scalar(initial, "initial", "tensor_tensor_scan", first)],
        op0=alu_op(op0),
        op1=alu_op(op1),
        reverse0=bool(reverse0),
        reverse1=bool(reverse1),
    )


def bn_stats(dst: object, data: object, name: str | None = None) -> None:
    """Set dst to counts, means and variances of the even and of the odd elements of each partition."""
    emit("bn_stats", Engine.VECTOR, [destination(dst, "bn_stats")], [operand(data, "data", "bn_stats")])


def bn_aggr(dst: object, data: object, name: str | None = None) -> None:
    """Set dst to the mean and variance of each partition, merged from statistics of ``bn_stats``."""
    emit("bn_aggr", Engine.VECTOR, [destination(dst, "bn_aggr")], [operand(data, "data", "bn_aggr")])
