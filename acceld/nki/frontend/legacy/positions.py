"""Emit the instructions of ``nisa`` that use positions: iota, selections by index, searches, gathers."""

from __future__ import annotations

import operator
from math import prod
from typing import Any, cast

from acceld.chips import MAX8_ELEMENTS
from acceld.nki.frontend.core import dtypes
from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.elementwise import (
    masked,
    moved_to_sbuf,
    operand,
    result,
    same_partitions,
    scalar_operand,
    written_as,
)
from acceld.nki.frontend.core.index import Expr, Predicate, as_int
from acceld.nki.frontend.core.names import ReduceCommand, alu_op, reduce_op
from acceld.nki.frontend.core.placement import fresh, mark_produced
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor, on_chip
from acceld.nki.frontend.core.views import conform
from acceld.nki.ir.program import Affine, Attr, Engine, Pattern, Space

COMPARISONS = {
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "lt": "less",
    "eq": "equal",
    "ne": "not_equal",
}


def iota(expr: object, dtype: object, *, mask: object = None, **kwargs: Any) -> Tensor:
    """Return the values of an index expression in a new SBUF tile: ``nisa.iota``."""
    number = as_int(expr) if not isinstance(expr, Expr) else None
    if number is not None:
        expr = Expr(Affine(number))
    if not isinstance(expr, Expr):
        refuse(
            "operand_type",
            "Expected operand 'expr' of 'iota' to be an expression of nl.arange, nl.mgrid, loop variables or program ids",
            "for example nisa.iota(nl.arange(512)[None, :], dtype=nl.int32)",
        )
    shape = (1,) * (2 - len(expr.shape)) + expr.shape
    pattern = Pattern(expr.base, expr.over(shape))
    return result("iota", Engine.GPSIMD, shape, dtypes.dtype_name(dtype), [], pattern=pattern, mask=masked(mask, shape))


def affine_select(
    pred: object,
    on_true_tile: object,
    on_false_value: object,
    *,
    mask: object = None,
    dtype: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return on_true_tile where a comparison of index expressions holds, elsewhere on_false_value, in a new
    tile: ``nisa.affine_select``.
    """
    tile = moved_to_sbuf(operand(on_true_tile, "on_true_tile", "affine_select"))
    other = scalar_operand(on_false_value, "on_false_value", "affine_select", tile.shape[0])
    if isinstance(other, Tensor):
        refuse(
            "operand_type",
            f"on_false_value is {type(on_false_value).__name__}, not a number",
            "select against a tile with nl.where",
        )
    kind = dtypes.result_name(dtype, tile.dtype_name)
    if isinstance(pred, bool):
        pred = Predicate(((Expr(Affine(0 if pred else -1)), "ge"),))
    if not isinstance(pred, Predicate):
        refuse(
            "operand_type",
            "Expected operand 'pred' of 'affine_select' to be a comparison of index expressions",
            "for example pred=(i_p >= i_f) with nl.mgrid or nl.arange",
        )
    for expr, cmp in pred.terms:
        coefs = [0] * tile.ndim
        lead = tile.ndim - len(expr.coefs)
        for axis, coef in enumerate(expr.coefs):
            if coef and (lead + axis < 0 or tile.shape[lead + axis] != expr.shape[axis]):
                refuse(
                    "mask_shape",
                    f"a predicate of shape {expr.shape} does not fit a tile of shape {tile.shape}",
                    "index the positions with nl.mgrid over the tile's shape",
                )
            if coef:
                coefs[lead + axis] = coef
        tile = result(
            "affine_select",
            Engine.GPSIMD,
            tile.shape,
            kind,
            [tile, other],
            attrs={"cmp": COMPARISONS[cmp]},
            pattern=Pattern(expr.base, tuple(coefs)),
            mask=masked(mask, tile.shape),
        )
    return tile


def reducing(
    op: str,
    engine: Engine,
    dst: Tensor,
    srcs: list[Any],
    attrs: dict[str, Attr],
    mask: object,
    fold: object,
    reduce_res: object,
    reduce_cmd: object,
    call: str,
) -> None:
    """Emit an instruction that may also reduce its result along the free axes into ``reduce_res``.

    ``fold`` is the operation of the reduction, ``reduce_cmd`` the command to the engine's accumulators.
    """
    trace = current()
    dsts = [dst]
    command = ReduceCommand.idle if reduce_cmd is None else ReduceCommand(operator.index(cast("Any", reduce_cmd)))
    if command is ReduceCommand.load_reduce:
        refuse(
            "reduce_cmd",
            f"'{call}' can not take load_reduce, because it has no value to load",
            "use reduce_cmd.reset_reduce",
        )
    if fold is not None and (reduce_res is not None or command is not ReduceCommand.idle):
        attrs["reduce_op"] = reduce_op(fold)
        attrs["reduce_cmd"] = command.name
        if reduce_res is not None:
            target = operand(reduce_res, "reduce_res", call)
            placed = conform(target, (dst.shape[0], 1))
            if placed is None:
                refuse(
                    "operand_shape",
                    f"reduce_res of '{call}' has shape {target.shape}, and must have {(dst.shape[0], 1)}",
                    "declare it with nl.ndarray((partitions, 1), ...)",
                )
            dsts.append(placed)
    slot = trace.emit(op, engine, dsts, srcs, attrs=attrs, mask=masked(mask, dst.shape))
    mark_produced(trace, dst, slot)


def range_select(
    *,
    on_true_tile: object,
    comp_op0: object,
    comp_op1: object,
    bound0: object,
    bound1: object,
    reduce_cmd: object = None,
    reduce_res: object = None,
    reduce_op: object = "max",
    range_start: float = 0,
    on_false_value: float = -3.4028234663852886e38,
    mask: object = None,
    dtype: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return on_true_tile where the position along the free axis satisfies both comparisons (``comp_op0`` with bound0,
    ``comp_op1`` with bound1), elsewhere on_false_value, in a new tile: ``nisa.range_select``.
    """
    call = "range_select"
    tile = operand(on_true_tile, "on_true_tile", call)
    kind = dtypes.result_name(dtype, tile.dtype_name)
    srcs: list[Any] = [tile]
    for name, bound in (("bound0", bound0), ("bound1", bound1)):
        srcs.append(scalar_operand(bound, name, call, tile.shape[0]))
    attrs: dict[str, Attr] = {
        "cmp0": alu_op(comp_op0),
        "cmp1": alu_op(comp_op1),
        "range_start": float(range_start),
        "on_false": float(on_false_value),
    }
    dst = fresh(current(), tile.shape, kind, Space.SBUF)
    reducing("range_select", Engine.VECTOR, dst, srcs, attrs, mask, reduce_op, reduce_res, reduce_cmd, call)
    return dst


def select_reduce(
    *,
    dst: object,
    predicate: object,
    on_true: object,
    on_false: object,
    reduce_res: object = None,
    reduce_cmd: object = None,
    reduce_op: object = "max",
    reverse_pred: bool = False,
    mask: object = None,
    dtype: object = None,
    **kwargs: Any,
) -> None:
    """Set dst to on_true where predicate is non-zero, elsewhere to on_false: ``nisa.select_reduce``.

    If reduce_res is given, dst is also reduced along the free axes into it.
    """
    call = "select_reduce"
    target, test = operand(dst, "dst", call), operand(predicate, "predicate", call)
    written_as(dtype, target, call)
    srcs: list[Any] = [test]
    for name, value in (("on_true", on_true), ("on_false", on_false)):
        if isinstance(value, Tensor) and prod(value.shape[1:]) != 1:
            same_partitions(call, ("dst", target), (name, value))
            srcs.append(on_chip(value, name, call))
        else:
            srcs.append(scalar_operand(value, name, call, target.shape[0]))
    attrs: dict[str, Attr] = {"reverse": bool(reverse_pred)}
    reducing("select", Engine.VECTOR, target, srcs, attrs, mask, reduce_op, reduce_res, reduce_cmd, call)
    target.produced = None


def _search(op: str, srcs: list[Any], shape: tuple[int, ...], dtype: str, mask: object, **attrs: Attr) -> Tensor:
    """Emit a search on the vector engine, and return its result in a new tile of ``shape``."""
    return result(op, Engine.VECTOR, shape, dtype, srcs, attrs=dict(attrs), mask=masked(mask, srcs[0].shape))


def max8(*, src: object, mask: object = None, dtype: object = None, **kwargs: Any) -> Tensor:
    """Return the eight greatest values of each partition, the greatest first: ``nisa.max8``."""
    tile = operand(src, "src", "max8")
    least, most = MAX8_ELEMENTS
    if not least <= prod(tile.shape[1:]) <= most:
        refuse("free_size", f"max8 got {prod(tile.shape[1:])} elements a partition: pass {least} to {most}")
    kind = dtypes.result_name(dtype, tile.dtype_name)
    return _search("max8", [tile], (tile.shape[0], 8), kind, mask)


def nc_find_index8(*, data: object, vals: object, mask: object = None, dtype: object = None, **kwargs: Any) -> Tensor:
    """Return the position in data at which each of the eight values of vals first occurs, in each partition:
    ``nisa.nc_find_index8``.
    """
    tile, wanted = operand(data, "data", "nc_find_index8"), operand(vals, "vals", "nc_find_index8")
    kind = "uint32" if dtype is None else dtypes.dtype_name(dtype)
    return _search("find_index8", [tile, wanted], (tile.shape[0], 8), kind, mask)


def nc_match_replace8(
    *,
    data: object,
    vals: object,
    imm: float,
    dst_idx: object = None,
    mask: object = None,
    dtype: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return data with the first occurrence of each of the eight values in vals replaced by imm:
    ``nisa.nc_match_replace8``.
    """
    call = "nc_match_replace8"
    trace = current()
    tile, wanted = operand(data, "data", call), operand(vals, "vals", call)
    dst = fresh(trace, tile.shape, dtypes.result_name(dtype, tile.dtype_name), Space.SBUF)
    dsts = [dst] if dst_idx is None else [dst, operand(dst_idx, "dst_idx", call)]
    slot = trace.emit(
        "match_replace8", Engine.VECTOR, dsts, [tile, wanted], attrs={"imm": float(imm)}, mask=masked(mask, tile.shape)
    )
    return mark_produced(trace, dst, slot)


def local_gather(
    src_buffer: object,
    index: object,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    *,
    mask: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return elements along the free axis, at indices that sixteen partitions share: ``nisa.local_gather``."""
    call = "local_gather"
    tile, where = moved_to_sbuf(operand(src_buffer, "src_buffer", call)), moved_to_sbuf(operand(index, "index", call))
    width = operator.index(num_elem_per_idx)
    listed = prod(where.shape[1:]) * 16
    count = listed if num_valid_indices is None else operator.index(num_valid_indices)
    if tile.shape[0] % 16 or where.shape[0] != tile.shape[0] or width not in (1, 2, 4, 8, 16, 32) or count > listed:
        refuse(
            "gather_shape",
            f"local_gather can not take {list(tile.shape)} by {list(where.shape)} indices of {width} elements each",
            "use a multiple of 16 partitions, and 1, 2, 4, 8, 16 or 32 elements an index",
        )
    return result(
        "local_gather",
        Engine.GPSIMD,
        (tile.shape[0], count * width),
        tile.dtype_name,
        [tile, where],
        attrs={"elements_per_index": width, "valid": count},
        mask=masked(mask, (tile.shape[0], count * width)),
    )


def sequence_bounds(*, segment_ids: object, dtype: object = None, **kwargs: Any) -> Tensor:
    """Return the start and the end of the segment at each position, in a tile (1, 2, n): ``nisa.sequence_bounds``."""
    tile = operand(segment_ids, "segment_ids", "sequence_bounds")
    if tile.shape[0] != 1:
        unsupported("sequence_bounds of more than one partition is not simulated", "pass one partition at a time")
    kind = dtypes.result_name(dtype, tile.dtype_name)
    return result("sequence_bounds", Engine.GPSIMD, (1, 2, prod(tile.shape[1:])), kind, [tile])
