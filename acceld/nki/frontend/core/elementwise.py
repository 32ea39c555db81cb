"""Choose the instruction for each element-wise operation of two tiles, of a tile and a scalar, or of one tile."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from acceld.nki.frontend.core import dtypes, names
from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.index import Expr, Predicate, as_number
from acceld.nki.frontend.core.placement import declare, fresh, mark_produced, rename, whole_access
from acceld.nki.frontend.core.state import Lens, Trace, current
from acceld.nki.frontend.core.tensor import ParDim, Tensor, on_chip
from acceld.nki.frontend.core.views import conform, expand
from acceld.nki.ir.operations import DTYPE_BYTES, INTEGER_DTYPES, WORDS
from acceld.nki.ir.program import Affine, Attr, Engine, Pattern, Space, TileDim

COMPARING = frozenset(
    "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not".split()
)
BITWISE = frozenset("bitwise_and bitwise_or bitwise_xor left_shift right_shift invert".split())
GPSIMD_ONLY = frozenset(["power"])
INDIRECT = "a view by .indirect()"
_UNARY: dict[str, tuple[str, Engine, tuple[float | int, ...], dict[str, Attr]]] = {
    "reciprocal": ("reciprocal", Engine.UNKNOWN, (), {}),
    "invert": ("tensor_scalar", Engine.VECTOR, (-1,), {"op0": "bitwise_xor", "reverse0": False}),
    "logical_not": ("tensor_scalar", Engine.VECTOR, (0,), {"op0": "equal", "reverse0": False}),
    "negative": ("tensor_scalar", Engine.UNKNOWN, (-1.0,), {"op0": "multiply", "reverse0": False}),
}
"""Operation, engine, further operands and attributes of each function of ``nl`` on one tile that is not an activation
function.
"""


def operand(value: object, name: str, call: str) -> Tensor:
    """Return ``value`` if it is a tile on chip. Raise LegalityError for a tensor in HBM or any other value."""
    if not isinstance(value, Tensor):
        refuse(
            "operand_type",
            f"Expected operand '{name}' of '{call}' to be a tile, but got {type(value).__name__}",
            "load data with nl.load, or make a tile with nl.full",
        )
    return on_chip(value, name, call)


def masked(mask: object, shape: tuple[int, ...], axes: tuple[int, ...] | None = None) -> tuple[Pattern, ...]:
    """Return the ``mask=`` argument of an instruction over tiles of ``shape`` as patterns; () without a mask.

    ``axes`` gives, for each axis of the mask, the number of the axis of ``shape``. Raise LegalityError if the
    mask is not a comparison of index expressions.
    """
    if mask is None:
        return ()
    if isinstance(mask, bool | np.bool_):
        return () if mask else (Pattern(Affine(-1), (0,) * len(shape)),)
    if isinstance(mask, Predicate):
        return mask.patterns(shape, axes)
    refuse(
        "mask_form",
        f"a mask must be a comparison of index expressions, not {type(mask).__name__}",
        "compare nl.arange expressions, loop variables and numbers with < <= > >= ==, joined with &",
    )


def written_as(dtype: object, target: Tensor, call: str) -> None:
    """Raise LegalityError if a ``dtype=`` argument differs from the dtype of ``target``, the tile to write."""
    if dtype is not None and dtypes.dtype_name(dtype) != target.dtype_name:
        refuse(
            "dtype",
            f"dtype of '{call}' is {dtypes.dtype_name(dtype)}, but its dst is {target.dtype_name}",
            "leave dtype out: the result is written in the type of dst",
        )


def same_partitions(call: str, *named: tuple[str, Tensor]) -> None:
    """Raise LegalityError if the tiles in ``named`` (pairs of name and tile) have different numbers of
    partitions.
    """
    first = named[0]
    for other in named[1:]:
        if other[1].shape[0] != first[1].shape[0]:
            shown = ", ".join(f"{name}{list(tile.shape)}" for name, tile in (first, other))
            refuse(
                "partition_mismatch",
                f"number of partitions (dimension 0 size of a tile) mismatch in parameters ({shown}) of '{call}'",
                "broadcast a single partition with broadcast_to",
            )


def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...], call: str) -> tuple[int, ...]:
    """Return the shape to which two tiles of shapes ``a`` and ``b`` broadcast, as in numpy. Raise LegalityError
    if they do not broadcast.
    """
    if a == b:
        return a
    try:
        return tuple(np.broadcast_shapes(a, b))
    except ValueError:
        refuse(
            "shape",
            f"'{call}' can not broadcast tiles of shapes {list(a)} and {list(b)}",
            "make sizes equal or 1, compared from the last axis on, with expand_dims, reshape or broadcast_to",
        )


def as_column(tile: Tensor, like: Tensor) -> Tensor:
    """Return ``tile`` with as many axes as ``like`` if the tile has one element in each partition; else ``tile``
    unchanged.
    """
    if tile.ndim == like.ndim or prod(tile.shape[1:]) != 1:
        return tile
    made = conform(tile, (tile.shape[0], *(1 for _ in like.shape[1:])))
    return tile if made is None else made


def is_column(tensor: Tensor, other: Tensor) -> bool:
    """Tell whether an operation on both tiles takes ``tensor`` as one scalar for each partition: it has one element in
    each partition, and ``other`` has several.
    """
    return prod(tensor.shape[1:]) == 1 and prod(other.shape[1:]) > 1 and tensor.shape[0] == other.shape[0]


def column(tensor: Tensor, name: str, call: str, partitions: int) -> Tensor:
    """Return ``tensor``, which must have one element in each of ``partitions`` partitions, as a (P, 1) tile.

    Raise LegalityError if ``tensor`` has another shape. ``name`` and ``call`` name the operand and the NKI function
    in messages.
    """
    tile = on_chip(tensor, name, call)
    if prod(tile.shape[1:]) != 1 or tile.shape[0] != partitions:
        refuse(
            "operand_shape",
            f"operand '{name}' of '{call}' must be a number or a ({partitions}, 1) tile, not {list(tile.shape)}",
            "slice one column of it, such as t[:, 0:1], or use nisa.tensor_tensor for a whole tile",
        )
    made = conform(tile, (partitions, 1))
    assert made is not None
    return made


def scalar_operand(value: object, name: str, call: str, partitions: int) -> Tensor | float | int | Pattern:
    """Return the scalar operand of an instruction: a number, a (P, 1) tile, or a pattern for a value that
    depends on loop variables.

    Raise LegalityError for any other value.
    """
    if isinstance(value, Tensor):
        return column(value, name, call, partitions)
    if isinstance(value, Expr) and not value.shape and not value.is_constant:
        return Pattern(value.base, ())
    number = as_number(value)
    if number is None:
        refuse(
            "operand_type",
            f"operand '{name}' of '{call}' must be a number or a tile, not {type(value).__name__}",
            "bring a numpy array in with nl.shared_constant and nl.load",
        )
    return number


def result(
    op: str,
    engine: Engine,
    shape: tuple[int, ...],
    dtype: str,
    srcs: list[Tensor | float | int | Pattern],
    *,
    space: Space = Space.SBUF,
    attrs: dict[str, Attr] | None = None,
    mask: tuple[Pattern, ...] = (),
    pattern: Pattern | None = None,
) -> Tensor:
    """Emit an instruction that writes a new tile, and return the tile."""
    trace = current()
    dst = fresh(trace, shape, dtype, space)
    return mark_produced(trace, dst, trace.emit(op, engine, [dst], srcs, attrs=attrs, mask=mask, pattern=pattern))


def result_like(
    tile: Tensor,
    op: str,
    engine: Engine,
    srcs: list[Tensor | float | int | Pattern],
    *,
    dtype: object,
    mask: object,
    attrs: dict[str, Attr] | None = None,
) -> Tensor:
    """Emit an instruction that writes a new tile of the shape of ``tile``, and return the new tile.

    ``dtype`` and ``mask`` are arguments of the call. A ``dtype`` of None stands for the dtype of ``tile``.
    """
    kind = dtypes.result_name(dtype, tile.dtype_name)
    return result(op, engine, tile.shape, kind, srcs, attrs=attrs, mask=masked(mask, tile.shape))


def moved_to_sbuf(tile: Tensor, why: str = "this operand is in PSUM, where its engine can not read: it") -> Tensor:
    """Return ``tile`` if it is in SBUF, else a copy of it in SBUF, because GpSimd and the tensor engine can not read
    PSUM.

    ``why`` is the beginning of the notice that is added to the program if the tile is copied.
    """
    if tile.space is Space.SBUF:
        return tile
    current().notice(f"{why} is copied to SBUF first")
    return result("copy", Engine.UNKNOWN, tile.shape, tile.dtype_name, [tile])


def _apart(x: Tensor, y: Tensor) -> Tensor:
    """Return ``y``, or a copy of it in SBUF if both operands are in PSUM and the API's compiler copies the second one."""
    both = x.space is Space.PSUM and y.space is Space.PSUM
    return moved_to_sbuf(y, "both operands are in PSUM: the second") if both and current().copies_from_psum else y


def on_gpsimd(tile: Tensor) -> bool:
    """Tell whether a tile has 32-bit integers and lies in a memory that GpSimd can read."""
    return tile.dtype_name in WORDS and tile.space is not Space.PSUM


def binary(name: str, x: object, y: object, *, dtype: object = None, mask: object = None) -> Tensor:
    """Return a new tile with the result of ``nl.NAME`` (such as ``nl.add``) on ``x`` and ``y``.

    Two tiles become a tensor_tensor; a tile with a number or a (P, 1) tile becomes a tensor_scalar.
    """
    op = names.alu_op(name)
    tiles = [(word, on_chip(v, word, name)) for word, v in (("x", x), ("y", y)) if isinstance(v, Tensor)]
    if op in GPSIMD_ONLY:
        tiles = [(word, moved_to_sbuf(tile)) for word, tile in tiles]
    if not tiles:
        refuse("operand_type", f"'{name}' got two values that are not tiles", "pass at least one tile")
    if len(tiles) == 2:
        partitions = max(tile.shape[0] for _, tile in tiles)
        tiles = [(word, _spread(tile, partitions)) for word, tile in tiles]
        same_partitions(name, *tiles)
        left, right = tiles[0][1], tiles[1][1]
        kind = _result_type(op, dtype, left.dtype_name, right.dtype_name)
        if is_column(right, left):
            return _with_scalar(op, left, column(right, "y", name, left.shape[0]), kind, mask, reverse=False)
        if is_column(left, right):
            return _with_scalar(op, right, column(left, "x", name, right.shape[0]), kind, mask, reverse=True)
        shape = broadcast_shape(left.shape, right.shape, name)
        sources: list[Tensor | float | int | Pattern] = []
        for tile in (left, _apart(left, right)):
            wide = expand(tile, shape)
            assert wide is not None
            sources.append(wide)
        whole = op not in BITWISE and kind in WORDS and all(on_gpsimd(tile) for tile in (left, right))
        exact = op in GPSIMD_ONLY or (whole and current().exact_integers)
        engine = Engine.GPSIMD if exact else Engine.VECTOR
        return result("tensor_tensor", engine, shape, kind, sources, attrs={"op": op}, mask=masked(mask, shape))
    tile, number, reverse = tiles[0][1], y if isinstance(x, Tensor) else x, not isinstance(x, Tensor)
    immediate = scalar_operand(number, "x" if reverse else "y", name, tile.shape[0])
    return _with_scalar(op, tile, immediate, _result_type(op, dtype, tile.dtype_name), mask, reverse=reverse)


def _spread(tile: Tensor, partitions: int) -> Tensor:
    """Return a tile with ``partitions`` copies of the only partition of ``tile``. A tile with several partitions is
    returned unchanged.
    """
    return broadcast_to(tile, shape=(partitions, *tile.shape[1:])) if tile.shape[0] == 1 < partitions else tile


def _result_type(op: str, dtype: object, *operands: str) -> str:
    """Return the dtype of an operation's result: ``dtype`` if it is given, bool for comparisons, else the
    promoted type of the operands.
    """
    if dtype is not None:
        return dtypes.dtype_name(dtype)
    if op in COMPARING:
        return "bool"
    kind = dtypes.promote(*operands)
    # A quotient of integers keeps its fraction: AWS's resize_nearest takes the floor of such a quotient to find a row.
    return "float32" if op == "divide" and kind in INTEGER_DTYPES else kind


def _with_scalar(
    op: str, tile: Tensor, scalar: Tensor | float | Pattern, kind: str, mask: object, *, reverse: bool
) -> Tensor:
    """Return a new tile with ``tile`` and a scalar combined by ``op``. With ``reverse`` the scalar is the left
    operand.

    ``kind`` is the dtype of the result.
    """
    engine = Engine.GPSIMD if op in GPSIMD_ONLY else Engine.UNKNOWN
    attrs: dict[str, Attr] = {"op0": op, "reverse0": reverse}
    return result_like(tile, "tensor_scalar", engine, [tile, scalar], dtype=kind, mask=mask, attrs=attrs)


def unary(name: str, x: object, *, dtype: object = None, mask: object = None) -> Tensor:
    """Return a new tile with the result of ``nl.NAME`` (such as ``nl.exp``) for each element. Most functions become one
    activation.
    """
    tile = operand(x, "x", name)
    if dtype is None and name == "logical_not":
        dtype = "bool"
    op, engine, others, attrs = _UNARY.get(name) or ("activation", Engine.SCALAR, (0.0, 1.0), {"func": name})
    return result_like(tile, op, engine, [tile, *others], dtype=dtype, mask=mask, attrs=attrs)


def bitcast(tile: Tensor, dtype: str) -> Tensor:
    """Return a view of ``tile`` that reads its bits as a dtype of another width.

    The view can be written if the API allows that.
    """
    trace = current()
    if tile.space is Space.HBM:
        return _bits_in_hbm(tile, dtype)
    size = tile.shape[-1] * DTYPE_BYTES[tile.dtype_name]
    if tile.ndim < 2 or size % DTYPE_BYTES[dtype]:
        refuse(
            "shape",
            f"the {size} bytes in a row of {tile.label} can not be read as {dtype}: they are not a whole number of elements",
            f"view it as a type whose width divides {size} bytes",
        )
    partition = tile.declared.partition_axis
    axis = next((k for k, dim in enumerate(tile.access.dims) if dim.steps[partition]), 0)
    shape = [*tile.shape[:-1], size // DTYPE_BYTES[dtype]]
    made = declare(trace, [ParDim(n) if k == axis else n for k, n in enumerate(shape)], dtype, tile.space)
    order = [axis, *(k for k in range(tile.ndim) if k != axis)]
    src, dst = (t.like(replace(t.access, dims=tuple(t.access.dims[k] for k in order))) for t in (tile, made))
    _shared_bits(made, tile, dst, src)
    return made


def _shared_bits(made: Tensor, source: Tensor, dst: Tensor, src: Tensor) -> None:
    """Record that the view ``made`` shares its bits with ``source``, so that a write to one of them changes the other.

    ``dst`` and ``src`` are the accesses to ``made`` and to ``source``, with their axes in the same order.
    """
    trace = current()
    if trace.writes_views:
        trace.share(
            made,
            Lens(
                source,
                lambda: trace.emit("bitcast", Engine.SYNC, [dst], [src]),
                lambda: trace.emit("bitcast", Engine.SYNC, [src], [dst], attrs={"back": True}),
            ),
        )
    else:
        trace.emit("bitcast", Engine.SYNC, [dst], [src])
    trace.read_only[made.access.buffer] = "a view of another width"


def gathered(tile: Tensor, index: Tensor, count: int) -> Tensor:
    """Return a view of the elements at run-time offsets in each partition. The view can be read and written.

    Each group of sixteen consecutive partitions has the same offsets: the first ``count`` integers in the group's rows
    of ``index``, column by column.
    """
    trace = current()
    offsets = index if index.dtype_name == "uint16" else copy(index, dtype="uint16")
    made = declare(trace, [ParDim(tile.shape[0]), count], tile.dtype_name, Space.SBUF)
    attrs: dict[str, Attr] = {"elements_per_index": 1, "valid": count}

    def take() -> None:
        trace.emit("local_gather", Engine.GPSIMD, [made], [moved_to_sbuf(tile), offsets], attrs=attrs)

    def give() -> None:
        if tile.space is not Space.SBUF:
            unsupported(
                "a write to .indirect() of a tile in PSUM is not simulated", "write to a tile in SBUF and copy that"
            )
        trace.emit("local_scatter", Engine.GPSIMD, [tile], [made, offsets], attrs={"valid": count})

    trace.read_only[made.access.buffer] = INDIRECT
    trace.share(made, Lens(tile, take, give, (tile.access, index.access, count)))
    return made


def _bits_in_hbm(view: Tensor, dtype: str) -> Tensor:
    """Return a view of a tensor in HBM that reads its bits as a dtype of another width."""
    trace = current()
    buffer, access = view.declared, view.access
    was, becomes = DTYPE_BYTES[view.dtype_name], DTYPE_BYTES[dtype]
    wide, narrow = max(1, becomes // was), max(1, was // becomes)

    def scaled(number: int) -> int:
        if number % wide:
            refuse(
                "shape",
                f"{view.label} can not be viewed as {dtype}: its elements do not begin at a whole element of that type",
                "take the view of the whole tensor, and index the result",
            )
        return number // wide * narrow

    def linear(steps: tuple[int, ...]) -> int:
        return sum(step * stride for step, stride in zip(steps, buffer.strides, strict=True))

    if access.indirect or not access.dims or linear(access.dims[-1].steps) != 1:
        refuse(
            "access_pattern",
            f"{view.label} can not be viewed as {dtype}: its last axis is not contiguous",
            "take the view of the whole tensor, and index the result",
        )
    first = Affine()
    for index, stride in zip(access.start, buffer.strides, strict=True):
        first = first + index.scale(stride)
    made = declare(trace, [scaled(buffer.elements)], dtype, Space.HBM)
    whole = trace.tensor(replace(whole_access(buffer), dtype=access.dtype), view.scope)
    _shared_bits(made, whole, made, whole)
    start = Affine(scaled(first.const), tuple((loop, scaled(coef)) for loop, coef in first.terms))
    dims = [TileDim(dim.count, (scaled(linear(dim.steps)),)) for dim in access.dims[:-1]]
    dims.append(TileDim(scaled(access.dims[-1].count), (1,)))
    return made.like(replace(made.access, start=(start,), dims=tuple(dims)))


def copy(src: object, *, mask: object = None, dtype: object = None) -> Tensor:
    """Return a copy of ``src`` in SBUF, cast to ``dtype`` if given: ``nl.copy``."""
    tile = operand(src, "src", "copy")
    return result_like(tile, "copy", Engine.UNKNOWN, [tile], dtype=dtype, mask=mask)


def update(name: str, target: Tensor, value: object) -> Tensor:
    """Apply ``target OP= value`` in place, and return ``target``.

    ``target += nl.matmul(...)`` in PSUM makes the matrix product add to ``target``. Any other update becomes
    one instruction.
    """
    trace = current()
    on_chip(target, "dst", f"{name} in place")
    if name == "add" and isinstance(value, Tensor) and _accumulate(trace, target, value):
        return target
    op = names.alu_op(name)
    tile = on_chip(value, "y", name) if isinstance(value, Tensor) else None
    if tile is not None:
        same_partitions(name, ("x", target), ("y", tile))
    if tile is None or is_column(tile, target):
        srcs = [target, scalar_operand(value, "y", name, target.shape[0])]
        attrs: dict[str, Attr] = {"op0": op, "reverse0": False}
        trace.emit("tensor_scalar", Engine.UNKNOWN, [target], srcs, attrs=attrs, accumulates=True)
        return target
    tile = _apart(target, tile)
    wide = conform(tile, target.shape)
    wide = expand(tile, target.shape) if wide is None else wide
    if wide is None:
        refuse(
            "shape",
            f"a tile of shape {tile.shape} can not update {target.label} of shape {target.shape}",
            "index the part of the target that the tile belongs to",
        )
    trace.emit("tensor_tensor", Engine.VECTOR, [target], [target, wide], attrs={"op": op}, accumulates=True)
    return target


def _accumulate(trace: Trace, target: Tensor, value: Tensor) -> bool:
    """Make the matrix product that computed ``value`` add its result to ``target`` in PSUM, and return True.

    Return False, and change nothing, if no matrix product computed ``value``, or if the instruction of the product
    can not be changed any more.
    """
    produced = value.produced
    if produced is None or target.space is not Space.PSUM:
        return False
    instruction = produced.slot.instruction
    if instruction.op != "matmul" or instruction.attr("transpose") or target.dtype_name != value.dtype_name:
        return False
    slot = produced.slot
    attrs = tuple((k, v) for k, v in instruction.attrs if k != "accumulate")
    number = target.access.buffer
    defined = number in trace.lazy_candidates or number in trace.engines_written
    slot.replace(replace(instruction, attrs=tuple(sorted((*attrs, ("accumulate", "yes" if defined else "auto"))))))
    placed = conform(target, value.shape)
    if placed is not None and rename(trace, placed, value):
        return True
    slot.replace(instruction)
    return False


def broadcast_to(src: object, *, shape: Any) -> Tensor:
    """Return ``src`` broadcast to ``shape``, as numpy does.

    A free axis of one element is repeated by a view with stride 0. A single partition is repeated by an
    instruction.
    """
    tensor = src if isinstance(src, Tensor) else operand(src, "src", "broadcast_to")
    wanted = tuple(int(n) for n in shape)
    if tensor.space is Space.HBM:
        view = expand(tensor, wanted)
    else:
        on_chip(tensor, "src", "broadcast_to")
        one = tensor.shape[0] == 1 and tensor.ndim == len(wanted) and wanted[0] > 1
        view = expand(tensor, (tensor.shape[0], *wanted[1:]) if one else wanted)
        if view is not None and one:
            return result("broadcast_partition", Engine.TENSOR, wanted, tensor.dtype_name, [view])
    if view is None:
        refuse(
            "shape",
            f"a tile of shape {tensor.shape} can not be broadcast to {wanted}",
            "only axes of one element are repeated; add them with expand_dims or reshape",
        )
    return view


def gather_flattened(
    data: object, indices: object, *, mask: object = None, dtype: object = None, **kwargs: Any
) -> Tensor:
    """Return, for each partition, the elements of ``data`` at the positions in ``indices``: ``nl.gather_flattened``."""
    tile = moved_to_sbuf(operand(data, "data", "gather_flattened"))
    where = moved_to_sbuf(operand(indices, "indices", "gather_flattened"))
    same_partitions("gather_flattened", ("data", tile), ("indices", where))
    kind = dtypes.result_name(dtype, tile.dtype_name)
    return result("gather", Engine.GPSIMD, where.shape, kind, [tile, where], mask=masked(mask, where.shape))
