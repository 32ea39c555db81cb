"""Multiply matrices and transpose tiles on the tensor engine."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from acceld.chips import STATIONARY_COLUMNS, TENSOR_TRANSPOSE, VECTOR_TRANSPOSE
from acceld.nki.frontend.core import dtypes
from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.elementwise import INDIRECT, masked, moved_to_sbuf, operand, result
from acceld.nki.frontend.core.index import Predicate, value_of
from acceld.nki.frontend.core.names import engine_of
from acceld.nki.frontend.core.placement import fresh, mark_produced
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.core.views import merged_steps, select
from acceld.nki.ir.program import Attr, Engine, Pattern, Space, TileDim

FLOAT8 = frozenset(("float8_e4m3", "float8_e5m2"))


def _limit(tensor: Tensor, name: str, call: str, dimension: int, size: int, most: int) -> None:
    """Raise LegalityError if a tile has more than ``most`` elements in dimension ``dimension``, where it has ``size``
    elements.
    """
    if size > most:
        shown = f"{name}[{', '.join(map(str, tensor.shape))}]"
        refuse(
            "transpose_shape" if call == "transpose" else "matmul_shape",
            f"size of dimension {dimension} in '{shown}' of '{call}' exceed architecture limitation of {most}",
            "use smaller tiles",
        )


def flat(tensor: Tensor) -> Tensor:
    """Return the tile with its free axes merged into one. If they do not form one strided run, return the tile
    unchanged.
    """
    free = [dim for dim in tensor.access.dims[1:] if dim.count != 1]
    if len(free) <= 1:
        rank = len(tensor.declared.shape)
        dims = (tensor.access.dims[0], free[0] if free else TileDim(1, (0,) * rank))
        return tensor if len(tensor.access.dims) == 2 else tensor.like(replace(tensor.access, dims=dims))
    steps = merged_steps(free)
    if steps is None:
        return tensor
    merged = TileDim(prod(dim.count for dim in free), steps)
    return tensor.like(replace(tensor.access, dims=(tensor.access.dims[0], merged)))


def product_mask(mask: object, k: int, m: int, n: int) -> tuple[Pattern, ...]:
    """Return the mask of a matrix product as patterns over the axes (K, M, N).

    The first axis of ``mask`` is K. The last axis is N, or M if its size differs from N.
    """
    if not isinstance(mask, Predicate):
        return masked(mask, (k, m, n))
    out: list[Pattern] = []
    for expr, cmp in mask.terms:
        width = expr.shape[-1] if expr.shape and expr.coefs[-1] else n
        out += Predicate(((expr, cmp),)).patterns((k, m, n), axes=(0, 2 if width == n else 1))
    return tuple(out)


def in_sbuf(tensor: Tensor, name: str, call: str) -> None:
    """Raise LegalityError if an operand of the tensor engine is not in SBUF."""
    if tensor.space is not Space.SBUF:
        refuse(
            "address_space",
            f"Expected operand '{name}' of '{call}' to be in address space 'sbuf', but got a tile in "
            f"'{tensor.space.value}' instead.",
            "copy it to SBUF with nl.copy first",
        )
    if current().read_only.get(tensor.access.buffer) == INDIRECT:
        unsupported(
            f"operand '{name}' of '{call}' is {INDIRECT}, which is not simulated here: 32 partitions share its offsets",
            "copy it to a tile first",
        )


def nc_matmul(
    stationary: object,
    moving: object,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: tuple[int, ...] = (),
    tile_size: tuple[int, ...] = (),
    perf_mode: object = None,
    mask: object = None,
    **kwargs: Any,
) -> Tensor:
    """Return stationary[K, M].T @ moving[K, N] in a new PSUM tile [M, N] of float32: ``nisa.nc_matmul``.

    In a double-row mode each operand has two rows in a partition, [K, 2, M] and [K, 2, N]. One instruction for
    each row is emitted, marked with the mode, and the products of both rows are added.
    """
    left = moved_to_sbuf(operand(stationary, "stationary", "nc_matmul"))
    right = moved_to_sbuf(operand(moving, "moving", "nc_matmul"))
    if left.shape[0] != right.shape[0]:
        refuse(
            "partition_mismatch",
            f"number of partitions (dimension 0 size of a tile) mismatch in parameters (stationary{list(left.shape)}, "
            f"moving{list(right.shape)}) of 'nc_matmul'",
            "put the contraction dimension of both operands on the partitions",
        )
    mode = str(getattr(perf_mode, "name", perf_mode or "none"))
    if mode.startswith("double_row"):
        return _double_row(left, right, mode, mask)
    if mode != "none":
        unsupported(f"nisa.nc_matmul in performance mode {mode} is not simulated", "leave perf_mode out")
    rows, columns = prod(left.shape[1:]), prod(right.shape[1:])
    _limit(left, "stationary", "nc_matmul", 1, rows, STATIONARY_COLUMNS)
    _limit(right, "moving", "nc_matmul", 1, columns, current().chip.moving_columns)
    shape = (rows, *right.shape[1:])
    kind = left.dtype_name if is_transpose else "float32"
    attrs: dict[str, Attr] = {
        "accumulate": "no",
        "transpose": bool(is_transpose),
        "stationary_onezero": bool(is_stationary_onezero),
        "moving_onezero": bool(is_moving_onezero),
        "tile_position": tuple(value_of(n) for n in tile_position) or None,
        "tile_size": tuple(int(n) for n in tile_size) or None,
    }
    patterns = product_mask(mask, left.shape[0], rows, columns)
    return result(
        "matmul", Engine.TENSOR, shape, kind, [flat(left), flat(right)], space=Space.PSUM, attrs=attrs, mask=patterns
    )


def _double_row(left: Tensor, right: Tensor, mode: str, mask: object) -> Tensor:
    """Return the matrix product of float8 operands [K, 2, M] and [K, 2, N] in a new PSUM tile. The product takes one
    instruction for each row.
    """
    if current().chip.generation < 3 or left.dtype_name not in FLOAT8 or right.dtype_name not in FLOAT8:
        refuse(
            "perf_mode", f"performance mode {mode} needs float8 operands and a chip after trn1", "leave perf_mode out"
        )
    if left.ndim != 3 or right.ndim != 3 or left.shape[1] != 2 or right.shape[1] != 2:
        refuse(
            "matmul_shape",
            f"performance mode {mode} takes operands [K, 2, M] and [K, 2, N], not {list(left.shape)} and "
            f"{list(right.shape)}",
            "put two rows of the contraction in each partition",
        )
    rows, columns = left.shape[2], right.shape[2]
    _limit(left, "stationary", "nc_matmul", 2, rows, STATIONARY_COLUMNS)
    _limit(right, "moving", "nc_matmul", 2, columns, current().chip.moving_columns)
    patterns = product_mask(mask, left.shape[0], rows, columns)
    trace = current()
    dst = fresh(trace, (rows, columns), "float32", Space.PSUM)
    slots = [
        trace.emit(
            "matmul",
            Engine.TENSOR,
            [dst],
            [select(tile, (slice(None), row, slice(None))) for tile in (left, right)],
            attrs={"accumulate": "yes" if row else "no", "perf_mode": "double_row"},
            mask=patterns,
            accumulates=bool(row),
        )
        for row in range(2)
    ]
    return mark_produced(trace, dst, slots[0], siblings=(slots[1],))


def matmul(x: object, y: object, *, transpose_x: bool = False, mask: object = None, **kwargs: Any) -> Tensor:
    """Return x @ y in a new PSUM tile: ``nl.matmul``.

    ``x`` is [M, K] and is first transposed on the tensor engine. With ``transpose_x``, ``x`` is [K, M].
    """
    left, right = moved_to_sbuf(operand(x, "x", "matmul")), moved_to_sbuf(operand(y, "y", "matmul"))
    if transpose_x:
        return nc_matmul(left, right, mask=mask)
    rows, depth = left.shape[0], prod(left.shape[1:])
    _limit(left, "x", "matmul", 1, depth, STATIONARY_COLUMNS)
    if depth != right.shape[0]:
        refuse(
            "matmul_shape",
            f"the contraction dimensions of x{list(left.shape)} and y{list(right.shape)} of 'matmul' differ",
            "pass x as [M, K] (or [K, M] with transpose_x=True), and y as [K, N]",
        )
    turned = result(
        "transpose",
        Engine.TENSOR,
        (depth, rows),
        left.dtype_name,
        [flat(left)],
        space=Space.PSUM,
        attrs={"hidden": True},
    )
    stationary = result("copy", Engine.UNKNOWN, (depth, rows), left.dtype_name, [turned])
    return nc_matmul(stationary, right, mask=mask)


def nc_transpose(
    data: object, *, mask: object = None, dtype: object = None, engine: object = None, **kwargs: Any
) -> Tensor:
    """Return ``data`` transposed from [P, F] to [F, P] in a new tile: ``nisa.nc_transpose``.

    The tensor engine writes the tile to PSUM, the vector engine to SBUF. By default the vector engine
    transposes tiles of at most 32 x 32, and the tensor engine all larger ones.
    """
    tile = operand(data, "data", "nc_transpose")
    chosen = engine_of(engine)
    free = prod(tile.shape[1:])
    if chosen is Engine.UNKNOWN:
        small = max(tile.shape[0], free) <= VECTOR_TRANSPOSE
        chosen = Engine.VECTOR if small else Engine.TENSOR
    for dimension, size in enumerate((tile.shape[0], free)):
        _limit(tile, "data", "transpose", dimension, size, TENSOR_TRANSPOSE)
    notice_wide_transpose(chosen, tile.shape[0], free)
    if chosen is Engine.TENSOR:
        tile = moved_to_sbuf(tile)
    kind = dtypes.result_name(dtype, tile.dtype_name)
    space = Space.PSUM if chosen is Engine.TENSOR else Space.SBUF
    shape = (free, tile.shape[0])
    patterns = masked(mask, shape, axes=(1, 0))
    return result("transpose", chosen, shape, kind, [flat(tile)], space=space, mask=patterns)


def notice_wide_transpose(engine: Engine, rows: int, columns: int) -> None:
    """Add a notice to the program if the vector engine transposes a larger tile than documented. Such a tile is
    accepted, because some kernels that were measured on chips transpose larger tiles there.
    """
    if engine is Engine.VECTOR and max(rows, columns) > VECTOR_TRANSPOSE:
        current().notice(
            f"a transpose of {rows} x {columns} on the vector engine, documented for {VECTOR_TRANSPOSE} x "
            f"{VECTOR_TRANSPOSE}; it is timed as one on the tensor engine",
        )


def transpose(x: object, *, dtype: object = None, mask: object = None, **kwargs: Any) -> Tensor:
    """Return ``x`` transposed from [P, F] to [F, P] in a new tile: ``nl.transpose``."""
    return nc_transpose(x, mask=mask, dtype=dtype)
