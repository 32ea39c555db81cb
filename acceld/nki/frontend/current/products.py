"""Emit the matrix products and transposes of ``nki.isa``."""

from __future__ import annotations

from math import prod

from acceld.chips import VECTOR_TRANSPOSE
from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.elementwise import operand
from acceld.nki.frontend.core.names import engine_of
from acceld.nki.frontend.core.products import flat, in_sbuf, notice_wide_transpose
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.core.views import reshape, select
from acceld.nki.frontend.current.lifetimes import PRODUCTS_OF_E4M3FN
from acceld.nki.frontend.current.names import MatmulPerfMode
from acceld.nki.frontend.current.operands import destination, emit, integers, member, word_of
from acceld.nki.ir.operations import INTEGER_DTYPES
from acceld.nki.ir.program import Engine, Space

_MODES = {None: "auto", True: "yes", False: "no"}
"""The value of a matrix product's attribute ``accumulate`` in Programs, by the call's argument of that name."""
ARRAY_COLUMNS = 128
FLOAT8_DTYPES = frozenset({"float8_e4m3", "float8_e4m3fn", "float8_e5m2"})


def nc_matmul(
    dst: object,
    stationary: object,
    moving: object,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: object = (),
    tile_size: object = (),
    perf_mode: object = None,
    name: str | None = None,
) -> None:
    """Set dst[M, N] to stationary[K, M].T @ moving[K, N], or add that product to dst.

    ``accumulate=True`` adds, and ``accumulate=False`` overwrites. Without ``accumulate`` the first product of a
    group of products overwrites dst, and each later one adds.
    """
    target = destination(dst, "nc_matmul")
    left, right = operand(stationary, "stationary", "nc_matmul"), operand(moving, "moving", "nc_matmul")
    in_sbuf(left, "stationary", "nc_matmul")
    in_sbuf(right, "moving", "nc_matmul")
    if target.space is not Space.PSUM:
        refuse("address_space", f"Matmult dst tensor is not psum: {target.label}", "declare it with buffer=nl.psum")
    if left.shape[0] != right.shape[0]:
        refuse(
            "partition_mismatch",
            f"the operands of 'nc_matmul' differ in the number of partitions: stationary {list(left.shape)}, moving {list(right.shape)}",
            "put the contraction dimension of both operands on the partitions",
        )
    if accumulate is None:
        _accumulates_on(target)
    result = flat(target)
    if isinstance(perf_mode, str) and perf_mode in MatmulPerfMode.__members__:
        current().notice(
            f"perf_mode={perf_mode!r} of nc_matmul: pages name nisa.matmul_perf_mode.{perf_mode}; AWS's own library has the text"
        )
    else:
        member(perf_mode, MatmulPerfMode, "perf_mode", "nc_matmul", "matmul_perf_mode")
    if word_of(perf_mode) not in (None, "none"):
        if is_transpose or is_stationary_onezero or is_moving_onezero:
            refuse(
                "perf_mode",
                "nc_matmul with perf_mode can not take is_transpose, is_stationary_onezero or is_moving_onezero",
                "leave perf_mode out",
            )
        _double_row(result, left, right, accumulate, tile_position, tile_size)
        return
    rows, columns = prod(left.shape[1:]), prod(right.shape[1:])
    if (result.shape[0], prod(result.shape[1:])) != (rows, columns):
        refuse("shape", f"the dst of 'nc_matmul' has shape {list(target.shape)}: declare it with [{rows}, {columns}]")
    if is_transpose and target.dtype_name != left.dtype_name:
        current().notice(
            f"nc_matmul with is_transpose of {left.dtype_name} into {target.dtype_name}: the page of nki.isa asks for one type, "
            "kernels that ran on a chip have two",
        )
    if "float8_e4m3fn" in (left.dtype_name, right.dtype_name):
        current().session.need("nc_matmul of float8_e4m3fn", PRODUCTS_OF_E4M3FN)
    emit(
        "matmul",
        Engine.TENSOR,
        [result],
        [flat(left), flat(right)],
        accumulate="no" if is_transpose else _MODES[accumulate],
        transpose=bool(is_transpose),
        stationary_onezero=bool(is_stationary_onezero),
        moving_onezero=bool(is_moving_onezero),
        tile_position=integers(tile_position, "tile_position"),
        tile_size=integers(tile_size, "tile_size"),
    )


def _accumulates_on(target: Tensor) -> None:
    """Add a notice to the program if the first product of a group writes a PSUM tile that another kind of instruction
    wrote before.
    """
    trace = current()
    if target.access.buffer in trace.engines_written and trace.chip.generation < 4:
        trace.notice(
            f"nc_matmul without accumulate on {target.label}, which a memset or a copy wrote: the values that the first product "
            "adds to are undefined on this chip; pass accumulate=False to that product",
        )


def _double_row(
    target: Tensor, left: Tensor, right: Tensor, accumulate: bool | None, tile_position: object, tile_size: object
) -> None:
    """Set target to the matrix product of float8 operands [K, 2, M] and [K, 2, N], at twice the usual rate.

    The contraction runs over the partitions and the axis of two.
    """
    kinds = {left.dtype_name, right.dtype_name}
    if not kinds <= FLOAT8_DTYPES or len(kinds & {"float8_e4m3", "float8_e4m3fn"}) > 1:
        refuse(
            "perf_mode",
            f"double_row multiplies two float8 tiles of one format, not {left.dtype_name} and {right.dtype_name}",
            "cast the operands, and do not mix float8_e4m3 with float8_e4m3fn",
        )
    pairs = [tile.shape[1] if tile.ndim == 3 else 0 for tile in (left, right)]
    if pairs != [2, 2] or target.shape != (left.shape[2], right.shape[2]):
        refuse(
            "perf_mode",
            f"double_row takes stationary [K, 2, M] and moving [K, 2, N], not {list(left.shape)} and "
            f"{list(right.shape)} for {list(target.shape)}",
            "put the two halves of the contraction on the first free axis of both operands",
        )
    for row, mode in ((0, _MODES[accumulate]), (1, "yes")):
        emit(
            "matmul",
            Engine.TENSOR,
            [target],
            [flat(select(tile, (slice(None), row, slice(None)))) for tile in (left, right)],
            accumulate=mode,
            perf_mode="double_row",
            tile_position=integers(tile_position, "tile_position"),
            tile_size=integers(tile_size, "tile_size"),
        )


def nc_matmul_mx(
    dst: object,
    stationary: object,
    moving: object,
    stationary_scale: object,
    moving_scale: object,
    tile_position: object = None,
    tile_size: object = None,
    accumulate: bool | None = None,
    name: str | None = None,
) -> None:
    """Set dst to the matrix product of microscaled matrices, each with its scales (trn3)."""
    given = {"stationary": stationary, "moving": moving}
    given |= {"stationary_scale": stationary_scale, "moving_scale": moving_scale}
    tiles = [operand(value, word, "nc_matmul_mx") for word, value in given.items()]
    position, size = integers(tile_position, "tile_position"), integers(tile_size, "tile_size")
    columns = prod(tiles[0].shape[1:])
    wrong, hint = "", ""
    if tiles[0].shape[0] % 32:
        wrong, hint = f"operands of {tiles[0].shape[0]} partitions", "pass a multiple of 32"
    elif columns % 2:
        wrong, hint = f"{columns} stationary columns", "pass an even number"
    elif (size and size[-1] != ARRAY_COLUMNS) or (position and position[-1]):
        wrong = f"tile_position {position} and tile_size {size}: it has no column tiles"
        hint = f"use column 0 and {ARRAY_COLUMNS} columns"
    if wrong:
        refuse("matmul_shape", f"'nc_matmul_mx' can not take {wrong} (nisa.nc_matmul_mx, 0.6)", hint)
    emit(
        "matmul_mx",
        Engine.TENSOR,
        [destination(dst, "nc_matmul_mx")],
        tiles,
        accumulate=_MODES[accumulate],
        tile_position=position,
        tile_size=size,
    )


def nc_transpose(dst: object, data: object, engine: object = None, name: str | None = None) -> None:
    """Set dst[F, P] to data[P, F]. The tensor engine writes to PSUM. The vector engine transposes at most 32 x
    32 elements.
    """
    tiles = flat(destination(dst, "nc_transpose")), flat(operand(data, "data", "nc_transpose"))
    # the page of nki.isa: all free axes count as one
    target, source = (one if one.ndim <= 2 else reshape(one, (one.shape[0], -1)) for one in tiles)
    chosen = engine_of(engine)
    if chosen is Engine.UNKNOWN:
        chosen = Engine.TENSOR if target.space is Space.PSUM else Engine.VECTOR
        if chosen is Engine.VECTOR and max(source.shape) > VECTOR_TRANSPOSE:
            refuse(
                "transpose_shape",
                f"a tile of shape {list(source.shape)} can not be transposed into SBUF: the vector engine transposes at most {VECTOR_TRANSPOSE} x {VECTOR_TRANSPOSE}",
                "transpose it into PSUM, on the tensor engine",
            )
    if target.shape != tuple(reversed(source.shape)):
        refuse(
            "shape",
            f"the dst of 'nc_transpose' has shape {list(target.shape)}: declare it with {list(reversed(source.shape))}",
        )
    notice_wide_transpose(chosen, *source.shape)
    if chosen is Engine.TENSOR and source.dtype_name in INTEGER_DTYPES:
        refuse(
            "dtype",
            f"'nc_transpose' can not transpose {source.dtype_name} on the tensor engine, which has no integers",
            "view the tile as a float of its width, or use the vector engine",
        )
    if chosen is Engine.TENSOR and source.dtype_name != target.dtype_name:
        current().notice(
            f"nc_transpose of {source.dtype_name} into {target.dtype_name}: the page of nki.isa asks for one type, kernels that "
            "ran on a chip have two",
        )
    emit("transpose", chosen, [target], [source])
