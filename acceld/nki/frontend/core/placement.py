"""Declare buffers, and assign results to tensors.

An assigned result is *renamed* if possible: the instruction that computed the result is changed to write to the
assigned tensor. Otherwise the result is copied.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, cast

from acceld.nki.frontend.core import index, views
from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.state import Trace, current, overlaps
from acceld.nki.frontend.core.tensor import Alias, ParDim, Produced, Tensor, on_chip
from acceld.nki.frontend.core.views import conform, is_never
from acceld.nki.frontend.session import Site, call_place, call_site
from acceld.nki.ir.builder import Slot
from acceld.nki.ir.operations import DTYPE_BYTES, FLOAT_DTYPES, OPS, Trait, having
from acceld.nki.ir.program import Access, Affine, Buffer, Engine, Instruction, Pattern, Role, Space, TileDim
from acceld.nki.ir.regions import box

ROUNDING, IN_PLACE = having(Trait.ROUNDS), having(Trait.IN_PLACE)


def declare(
    trace: Trace,
    shape: Sequence[object],
    dtype: str,
    space: Space,
    *,
    name: str = "",
    role: Role = Role.SCRATCH,
    data: bytes | None = None,
    scope: tuple[int, ...] | None = None,
    address: tuple[int, int] | None = None,
    blocks: tuple[tuple[int, int], ...] = (),
    site: Site | None = None,
) -> Tensor:
    """Declare a buffer, and return a view of the whole buffer. Raise LegalityError for a shape that the chip can
    not hold.

    ``scope`` has the ids of the loops around the declaration, by default of all open loops. ``address`` is
    (partition, byte offset); ``blocks`` has such an address for each block. ``site`` is the position in the
    source, by default that of the kernel's call.
    """
    line, calls = trace.session.position()
    sizes, axis = _checked_sizes(trace, shape, dtype, space)
    here, variable = call_place()
    place = site or here
    stored, dims = _flattened(sizes, axis) if place in trace.flatten else (sizes, None)
    buffer = trace.builder.buffer(
        name or variable,
        space,
        dtype,
        stored,
        partition_axis=axis,
        role=role,
        line=line,
        place=calls,
        address=address,
        blocks=blocks,
        data=data,
        scope=scope,
    )
    if stored != sizes and role is Role.INPUT:
        buffer = trace.builder.change_buffer(buffer.id, argument_shape=sizes)
    trace.sites[buffer.id] = place
    access = whole_access(buffer)
    tensor = trace.tensor(access if dims is None else replace(access, dims=dims), buffer.scope)
    tensor.whole = True
    return tensor


def _checked_sizes(trace: Trace, shape: Sequence[object], dtype: str, space: Space) -> tuple[tuple[int, ...], int]:
    """Return the shape of a buffer as numbers, and its partition axis, which is -1 in HBM. Raise LegalityError for a shape
    that the chip can not hold.
    """
    sizes = tuple(map(operator.index, cast("Sequence[Any]", shape)))
    if min(sizes, default=0) < 0:
        refuse("shape", f"the shape {sizes} has a negative size: every size is at least 0")
    if space is Space.HBM:
        if prod(sizes) * DTYPE_BYTES[dtype] > trace.hbm_bytes:
            refuse(
                "hbm_capacity",
                f"a tensor of shape {sizes} takes more than {trace.hbm_bytes >> 30} GiB of HBM",
                "declare a smaller tensor",
            )
        return sizes, -1
    marked = [k for k, n in enumerate(shape) if isinstance(n, ParDim)]
    axis = marked[0] if marked else 0
    # a tensor of one axis gets a second axis of one element, so that it has one element in each partition
    if marked and len(sizes) == 1:
        sizes = (*sizes, 1)
    if len(sizes) < 2:
        refuse(
            "insufficient_rank",
            f"Insufficient rank: an on-chip tensor needs a partition and a free dimension, not {sizes}",
            "use (1, n) or (n, 1)",
        )
    if sizes[axis] > trace.chip.partitions:
        other = ", or mark another axis with nl.par_dim" if not marked and trace.session.api == "nki_legacy" else ""
        refuse(
            "partition_limit",
            f"number of partitions {sizes[axis]} exceed architecture limitation of {trace.chip.partitions}",
            f"tile the partition dimension by {trace.chip.partitions}" + other,
        )
    if axis > 0 and trace.session.options.strict_block_dims:
        refuse(
            "block_dim",
            f"the tensor has block dimensions {sizes[:axis]}, which this trace does not allow",
            "declare one tensor a block, or put the blocks on the free axis",
        )
    return sizes, axis


def _flattened(sizes: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], tuple[TileDim, ...]]:
    """Return the shape of a buffer whose free dimensions are merged into one, and for each size in ``sizes`` an axis
    with its steps in the merged shape.

    On chip, the dimensions up to the partition ``axis`` stay. In HBM (``axis`` -1) all dimensions are merged.
    """
    kept = sizes[: axis + 1]
    free = sizes[axis + 1 :]
    rank = len(kept) + 1
    dims = [TileDim(n, tuple(int(d == k) for d in range(rank))) for k, n in enumerate(kept)]
    inner = prod(free)
    for n in free:
        inner = inner // n if n else 0
        dims.append(TileDim(n, (*(0,) * (rank - 1), inner)))
    return (*kept, prod(free)), tuple(dims)


def whole_access(buffer: Buffer) -> Access:
    """Return the access to all of a buffer, with one axis for each dimension."""
    start, dims = _whole(buffer.shape)
    return Access(buffer.id, start, dims)


@lru_cache(maxsize=4096)
def _whole(shape: tuple[int, ...]) -> tuple[tuple[Affine, ...], tuple[TileDim, ...]]:
    """Return the start and the axes of an access to all of a buffer of ``shape``."""
    rank = len(shape)
    dims = tuple(TileDim(n, tuple(int(d == k) for d in range(rank))) for k, n in enumerate(shape))
    return (Affine(),) * rank, dims


def assign(target: Tensor, value: object) -> None:
    """Write ``value``, a tile or a number, to ``target``: ``target[...] = value``.

    If possible, the instruction that produced the tile is changed to write to ``target``. Otherwise a copy is
    emitted.
    """

    trace = current()
    if target.space is Space.HBM:
        refuse(
            "address_space",
            f"Expected operand 'dst' of assignment to be in address space 'sbuf' or 'psum', but {target.label} is in 'hbm'",
            "write to HBM with nl.store",
        )
    if not isinstance(value, Tensor):
        number = index.as_number(value)
        if number is None:
            refuse(
                "operand_type",
                f"{type(value).__name__} can not be assigned to {target.label}",
                "assign a tile or a number",
            )
        trace.emit("memset", Engine.UNKNOWN, [target], [number])
        return
    if value.access == target.access:
        trace.check_alias(value)
        return
    if value.space is Space.HBM:
        refuse(
            "address_space",
            f"Expected the value assigned to {target.label} to be in address space 'sbuf' or 'psum', but got a tile in 'hbm'",
            "load it with nl.load first",
        )
    mask = copied_mask(value)
    placed = conform(target, value.shape)
    if placed is None:
        source = views.expand(value, target.shape)
        if source is None:
            refuse(
                "shape",
                f"a tile of shape {value.shape} can not be assigned to {target.label} of shape {target.shape}",
                "index the target to the tile's shape, or broadcast the tile",
            )
        emit_copy(target, source, () if source.shape != value.shape else mask)
        return
    if not rename(trace, placed, value):
        emit_copy(placed, value, mask)


def copied_mask(value: Tensor) -> tuple[Pattern, ...]:
    """Return the mask under which ``value`` was computed. A copy of ``value`` needs this mask, because elements
    outside of the mask are undefined.
    """
    if value.produced is None:
        return ()
    instruction = value.produced.slot.instruction
    if any(is_never(pattern) for pattern in instruction.mask):
        return (Pattern(Affine(-1), (0,) * value.ndim),)
    return instruction.mask if OPS[instruction.op].space == "dst" else ()


def rename(trace: Trace, target: Tensor, value: Tensor) -> bool:
    """Change the instruction that produced ``value`` to write to ``target``, and return True.

    Return False, and change nothing, if that could change what the program computes.
    """
    produced, site = value.produced, call_site()
    if produced is None or site in trace.keep or target.overrun is not None:
        return False
    if not produced.slot.is_in_open_body(trace.builder):
        return False
    instruction = produced.slot.instruction
    if instruction.op == "loop_reduce":
        loops = set(cast("tuple[int, ...]", instruction.attr("loops")))
        if loops & set(target.scope):
            return False
    if instruction.op.startswith(("dma", "iota", "affine_select", "shuffle")) and target.space is Space.PSUM:
        return False
    if value.space is Space.PSUM and instruction.op in ("matmul", "transpose") and target.space is not Space.PSUM:
        return False
    if value.dtype_name != target.dtype_name and not (
        value.dtype_name == "float32" and instruction.op in ROUNDING and target.dtype_name in FLOAT_DTYPES
    ):
        return False
    if value.dtype_name != target.dtype_name and instruction.op == "memset":
        return False
    buffer = target.access.buffer
    if trace.touched.get(buffer, -1) > produced.sequence or trace.touched[value.access.buffer] > produced.sequence:
        return False
    sources = instruction.accesses[: -len(instruction.dsts)]
    own = [src for src in sources if src.buffer == buffer and overlaps(src, target.access)]
    elsewhere = [src for src in own if not _same_elements(src, target.access)]
    if own and (instruction.op not in IN_PLACE or elsewhere):
        moved = not instruction.mask and any(_certainly_meet(src, target.access) for src in elsewhere)
        if instruction.op in IN_PLACE and moved and value.access.buffer != buffer:
            refuse(
                "overlap",
                f"the instruction reads {target.label} at other positions than it writes it: the values that it reads there "
                "are undefined on a chip",
                "write to another tile, or in place at the same positions",
            )
        return False
    trace.check_own(target)
    reduced = cast("tuple[int, ...]", instruction.attr("loops") or ())
    accumulated = instruction.attr("accumulate") in ("yes", "auto")
    if not accumulated:
        trace.check_dependencies(target, instruction.mask, reduced)
    dsts = (target.access, *instruction.dsts[1:])
    produced.slot.replace(with_dsts(instruction, dsts))
    for sibling in produced.siblings:
        sibling.replace(with_dsts(sibling.instruction, dsts))
    trace.sequence += 1
    trace.written(target.access, instruction.op)
    if trace.builder.discard(value.access.buffer):
        trace.forget(value.access.buffer)
    value.access, value.scope, value.produced = target.access, target.scope, None
    value.alias = Alias(site, target.access, trace.sequence, trace.scope)
    return True


def _same_elements(one: Access, other: Access) -> bool:
    """Tell whether two accesses of one buffer have the same elements in the same order. The step of an axis that has
    one element does not count.
    """
    if one == other:
        return True
    mine, its = ([dim if dim.count > 1 else dim.count for dim in access.dims] for access in (one, other))
    return mine == its and replace(one, dims=()) == replace(other, dims=())


def _certainly_meet(one: Access, other: Access) -> bool:
    """Tell whether two accesses of one buffer certainly share an element in every iteration."""
    if one.indirect or other.indirect:
        return False
    mine, its = box(one), box(other)
    return (
        (mine.dense and its.dense)
        and all(a.terms == b.terms for a, b in zip(mine.starts, its.starts, strict=True))
        and all(
            a.const < b.const + its.extents[d] and b.const < a.const + mine.extents[d]
            for d, (a, b) in enumerate(zip(mine.starts, its.starts, strict=True))
        )
    )


def with_dsts(instruction: Instruction, dsts: tuple[Access, ...]) -> Instruction:
    """Return ``instruction`` with ``dsts`` as its destinations."""
    return Instruction(
        instruction.op,
        instruction.engine,
        dsts,
        instruction.srcs,
        instruction.attrs,
        instruction.mask,
        instruction.pattern,
        instruction.line,
        instruction.place,
    )


def fresh(
    trace: Trace,
    shape: Sequence[int],
    dtype: str,
    space: Space,
    *,
    scope: tuple[int, ...] | None = None,
    name: str = "",
) -> Tensor:
    """Declare a tile for the result of an instruction that is about to be emitted, and return the tile."""
    sizes = tuple(shape)
    if len(sizes) < 2:
        sizes = (*sizes, *(1,) * (2 - len(sizes)))
    return declare(trace, sizes, dtype, space, scope=scope, name=name)


def mark_produced(trace: Trace, tensor: Tensor, slot: Slot, siblings: tuple[Slot, ...] = ()) -> Tensor:
    """Record that the instruction in ``slot`` computes ``tensor``, so that an assignment can change its destination.
    Return ``tensor``.

    ``tensor`` is the instruction's first destination. ``siblings`` are further instructions that write ``tensor``.
    """
    tensor.produced = Produced(slot, trace.sequence, siblings)
    return tensor


def emit_copy(target: Tensor, value: Tensor, mask: tuple[Pattern, ...] = ()) -> None:
    """Copy the tile ``value`` to the tile ``target`` of the same shape."""
    current().emit("copy", Engine.UNKNOWN, [on_chip(target, "dst", "copy")], [on_chip(value, "src", "copy")], mask=mask)
