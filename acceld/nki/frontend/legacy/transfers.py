"""Emit the instructions of ``nisa`` that copy to a given destination or reorder elements, and those for statistics of a
batch norm.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from enum import IntEnum
from math import prod
from typing import Any, cast

from acceld.chips import BN_STATS_ELEMENTS
from acceld.nki.frontend.core import dtypes
from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.elementwise import (
    masked,
    moved_to_sbuf,
    operand,
    result,
    result_like,
    same_partitions,
    scalar_operand,
    written_as,
)
from acceld.nki.frontend.core.memory import partitions_fit
from acceld.nki.frontend.core.names import engine_of, reduce_op
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor, on_chip
from acceld.nki.frontend.core.views import conform, expand
from acceld.nki.ir.program import Attr, Engine, Space


class DgeMode(IntEnum):
    """The generators of DMA descriptors: ``nisa.dge_mode``."""

    none = 0
    swdge = 1
    hwdge = 2
    unknown = 3


class OutOfBoundsMode(IntEnum):
    """The ways in which a DMA treats an index outside of the tensor: ``nisa.oob_mode``."""

    error = 0
    skip = 1


def _tensor(value: object, name: str, call: str) -> Tensor:
    """Return ``value``, a tensor in HBM or SBUF. Raise LegalityError if it is anything else."""
    if not isinstance(value, Tensor):
        refuse(
            "operand_type",
            f"Expected operand '{name}' of '{call}' to be a tensor, but got {type(value).__name__}",
            "pass an argument of the kernel or a tensor declared with nl.ndarray",
        )
    if value.space is Space.PSUM:
        refuse(
            "address_space",
            f"Expected operand '{name}' of '{call}' to be in address space 'hbm' or 'sbuf', but got a tile in 'psum' instead.",
            "copy it to SBUF with nisa.tensor_copy first",
        )
    return value if value.space is Space.HBM else on_chip(value, name, call)


def _transfer(dst: Tensor, src: Tensor, mask: object, attrs: dict[str, Attr], call: str) -> None:
    """Emit a DMA between two tensors. ``src`` may be broadcast to the shape of ``dst``."""
    trace = current()
    placed = conform(dst, src.shape)
    if placed is None:
        source = conform(src, dst.shape)
        source = expand(src, dst.shape) if source is None else source
        if source is None:
            refuse(
                "shape",
                f"'{call}' can not write shape {list(src.shape)} to {list(dst.shape)}",
                "index both to the same shape",
            )
        placed, src = dst, source
    kept = masked(mask, placed.shape)
    trace.emit("dma_copy", Engine.DMA, [placed], [src], attrs=attrs, mask=kept, accumulates="rmw" in attrs)


def dma_copy(
    *,
    dst: object,
    src: object,
    mask: object = None,
    dst_rmw_op: object = None,
    oob_mode: object = OutOfBoundsMode.error,
    dge_mode: object = DgeMode.unknown,
    **kwargs: Any,
) -> None:
    """Set dst to src through a DMA: ``nisa.dma_copy``. dst and src are each in HBM or SBUF.

    dst or src may be indexed by a tile. ``dst_rmw_op`` combines src with the values already in dst.
    """
    target, source = _tensor(dst, "dst", "dma_copy"), _tensor(src, "src", "dma_copy")
    attrs: dict[str, Attr] = {}
    if dst_rmw_op is not None:
        attrs["rmw"] = reduce_op(dst_rmw_op)
    if OutOfBoundsMode(operator.index(cast("Any", oob_mode))) is OutOfBoundsMode.skip:
        attrs["oob"] = "skip"
    mode = DgeMode(operator.index(cast("Any", dge_mode)))
    if mode is not DgeMode.unknown:
        attrs["dge"] = mode.name
    _transfer(target, source, mask, attrs, "dma_copy")


def atomic_rmw(dst: object, value: object, op: object, *, mask: object = None, **kwargs: Any) -> None:
    """Set dst, in HBM, to dst op value: ``nl.atomic_rmw``."""
    target, source = _tensor(dst, "dst", "atomic_rmw"), operand(value, "value", "atomic_rmw")
    if target.space is not Space.HBM:
        refuse(
            "address_space",
            "Expected operand 'dst' of 'atomic_rmw' to be in address space 'hbm'",
            "update a tensor declared with buffer=nl.shared_hbm",
        )
    _transfer(target, source, mask, {"rmw": reduce_op(op)}, "atomic_rmw")


def dma_transpose(
    src: object,
    *,
    axes: Sequence[int] | None = None,
    mask: object = None,
    dtype: object = None,
    dge_mode: object = DgeMode.unknown,
    **kwargs: Any,
) -> Tensor:
    """Return ``src`` with its axes reordered, in a new SBUF tile: ``nisa.dma_transpose``."""
    tensor = _tensor(src, "src", "dma_transpose")
    defaults = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
    order = tuple(operator.index(a) for a in axes) if axes is not None else defaults.get(tensor.ndim, ())
    if sorted(order) != list(range(tensor.ndim)):
        refuse(
            "transpose_axes",
            f"axes {order} of 'dma_transpose' are not a permutation of the {tensor.ndim} axes of src",
            "name each axis once",
        )
    shape = tuple(tensor.shape[a] for a in order)
    partitions_fit(shape, "dma_transpose")
    kind = dtypes.result_name(dtype, tensor.dtype_name)
    kept = masked(mask, shape, axes=tuple(order.index(a) for a in range(len(order))))
    return result("dma_transpose", Engine.DMA, shape, kind, [tensor], attrs={"axes": order}, mask=kept)


def tensor_copy_predicated(
    *,
    src: object,
    dst: object,
    predicate: object,
    reverse_pred: bool = False,
    mask: object = None,
    dtype: object = None,
    **kwargs: Any,
) -> None:
    """Set dst to src where predicate is non-zero: ``nisa.tensor_copy_predicated``. With ``reverse_pred``, set dst where
    predicate is zero.
    """
    call = "tensor_copy_predicated"
    target, test = operand(dst, "dst", call), operand(predicate, "predicate", call)
    same_partitions(call, ("dst", target), ("predicate", test))
    written_as(dtype, target, call)
    if isinstance(src, Tensor):
        source: Any = operand(src, "src", call)
    else:
        source = scalar_operand(src, "src", call, target.shape[0])
    current().emit(
        "copy_predicated",
        Engine.VECTOR,
        [target],
        [source, test],
        attrs={"reverse": bool(reverse_pred)},
        mask=masked(mask, target.shape),
    )


def nc_stream_shuffle(
    src: object, dst: object, shuffle_mask: Sequence[int], *, dtype: object = None, mask: object = None, **kwargs: Any
) -> None:
    """Set dst to src with its partitions permuted inside each group of 32: ``nisa.nc_stream_shuffle``."""
    call = "nc_stream_shuffle"
    source, target = operand(src, "src", call), operand(dst, "dst", call)
    written_as(dtype, target, call)
    lanes = tuple(operator.index(lane) for lane in shuffle_mask)
    if len(lanes) != 32 or any(not (0 <= lane < 32 or lane == 255) for lane in lanes):
        refuse("shuffle_mask", "shuffle_mask must have 32 entries, each a partition number from 0 to 31, or 255")
    current().emit(
        "shuffle", Engine.VECTOR, [target], [source], attrs={"lanes": lanes}, mask=masked(mask, target.shape)
    )


def tensor_partition_reduce(
    op: object, data: object, *, mask: object = None, dtype: object = None, **kwargs: Any
) -> Tensor:
    """Return ``data`` folded with ``op`` along its partitions, in a new tile of one partition:
    ``nisa.tensor_partition_reduce``.
    """
    tile = moved_to_sbuf(operand(data, "data", "tensor_partition_reduce"))
    kind, shape = dtypes.result_name(dtype, tile.dtype_name), (1, *tile.shape[1:])
    attrs: dict[str, Attr] = {"op": reduce_op(op)}
    return result("partition_reduce", Engine.GPSIMD, shape, kind, [tile], attrs=attrs, mask=masked(mask, tile.shape))


def tensor_copy(
    src: object, *, mask: object = None, dtype: object = None, engine: object = None, **kwargs: Any
) -> Tensor:
    """Return an on-chip copy of ``src`` in SBUF, cast to ``dtype`` if given: ``nisa.tensor_copy``."""
    tile = operand(src, "src", "tensor_copy")
    return result_like(tile, "copy", engine_of(engine), [tile], dtype=dtype, mask=mask)


def bn_stats(data: object, *, mask: object = None, dtype: object = None, **kwargs: Any) -> Tensor:
    """Return six statistics of each partition of ``data`` in a new tile: ``nisa.bn_stats``.

    The six are count, mean and variance of the partition's even elements, then of its odd elements.
    """
    tile = operand(data, "data", "bn_stats")
    if prod(tile.shape[1:]) > BN_STATS_ELEMENTS:
        refuse(
            "free_size",
            f"size of dimension 1 in 'data[{', '.join(map(str, tile.shape))}]' of 'bn_stats' exceed architecture "
            f"limitation of {BN_STATS_ELEMENTS}",
            "take the statistics of smaller tiles, and merge them with bn_aggr",
        )
    kind = dtypes.result_name(dtype, tile.dtype_name)
    return result("bn_stats", Engine.VECTOR, (tile.shape[0], 6), kind, [tile], mask=masked(mask, tile.shape))


def bn_aggr(data: object, *, mask: object = None, dtype: object = None, **kwargs: Any) -> Tensor:
    """Return the mean and the variance of each partition, merged from statistics of bn_stats: ``nisa.bn_aggr``."""
    tile = operand(data, "data", "bn_aggr")
    if prod(tile.shape[1:]) % 3:
        refuse(
            "free_size",
            f"bn_aggr got {prod(tile.shape[1:])} elements a partition, which is not a multiple of three",
            "pass the result of nisa.bn_stats, six numbers for each piece",
        )
    kind = dtypes.result_name(dtype, tile.dtype_name)
    return result("bn_aggr", Engine.VECTOR, (tile.shape[0], 2), kind, [tile], mask=masked(mask, tile.shape))
