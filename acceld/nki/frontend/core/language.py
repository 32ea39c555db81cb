"""Define the functions of ``nl`` that both APIs have."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np

from acceld.chips import BN_STATS_ELEMENTS, STATIONARY_COLUMNS, ChipSpec
from acceld.nki.frontend.core import dtypes, elementwise, index, memory, products, reductions, views
from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.index import ds
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import ParDim, Tensor, on_chip
from acceld.nki.ir.program import Engine

UNARY = (
    "abs arctan ceil cos erf erf_dx exp floor gelu gelu_apprx_sigmoid gelu_apprx_tanh gelu_dx invert log logical_not "
    "mish negative reciprocal relu rsqrt sigmoid sign silu silu_dx sin softplus sqrt square tan tanh trunc"
).split()
BINARY = (
    "add bitwise_and bitwise_or bitwise_xor divide equal fmod greater greater_equal left_shift less less_equal "
    "logical_and logical_or logical_xor maximum minimum mod multiply not_equal power right_shift subtract"
).split()
REDUCTIONS = {"sum": "add", "prod": "multiply", "max": "max", "min": "min"}


def unary(name: str) -> Callable[..., Tensor]:
    """Return the function ``nl.NAME`` of one tile."""

    def call(x: object, *, dtype: object = None, mask: object = None, **kwargs: Any) -> Tensor:
        return elementwise.unary(name, x, dtype=dtype, mask=mask)

    call.__name__ = call.__qualname__ = name
    return call


def binary(name: str) -> Callable[..., Tensor]:
    """Return the function ``nl.NAME`` of two operands. Its result is a tile, or a number if both operands are numbers."""

    def call(x: object, y: object, *, dtype: object = None, mask: object = None, **kwargs: Any) -> Any:
        if not isinstance(x, Tensor) and not isinstance(y, Tensor):
            return getattr(np, name)(x, y)
        return elementwise.binary(name, x, y, dtype=dtype, mask=mask)

    call.__name__ = call.__qualname__ = name
    return call


def _reduction(name: str, op: str) -> Callable[..., Tensor]:
    """Return the function ``nl.NAME`` that folds axes with the operation ``op``."""

    def call(
        x: object, axis: object, *, dtype: object = None, mask: object = None, keepdims: bool = False, **kwargs: Any
    ) -> Tensor:
        return reductions.reduce(op, x, axis, dtype=dtype, mask=mask, keepdims=keepdims, call=name)

    call.__name__ = call.__qualname__ = name
    return call


def all(x: object, axis: object, *, dtype: object = bool, mask: object = None, **kwargs: Any) -> Tensor:
    """Return a tile that is True where all elements along the free axes ``axis`` are non-zero: ``nl.all``."""
    return reductions.reduce("logical_and", x, axis, dtype=dtype, mask=mask, call="all")


def where(
    condition: object, x: object, y: object, *, dtype: object = None, mask: object = None, **kwargs: Any
) -> Tensor:
    """Return a new tile with the elements of x where ``condition`` is non-zero, elsewhere the elements of y:
    ``nl.where``.
    """
    tile = elementwise.operand(condition, "condition", "where")
    shape = tile.shape
    for value in (x, y):
        if isinstance(value, Tensor):
            shape = elementwise.broadcast_shape(shape, value.shape, "where")
    srcs: list[Any] = []
    kinds = [value.dtype_name for value in (x, y) if isinstance(value, Tensor)]
    for value, name in ((tile, "condition"), (x, "x"), (y, "y")):
        if isinstance(value, Tensor):
            wide = views.expand(on_chip(value, name, "where"), shape)
            if wide is None:
                refuse(
                    "shape",
                    f"operand '{name}' of 'where' has shape {value.shape}, not {shape}",
                    "make each size equal or 1, for example with broadcast_to",
                )
            srcs.append(wide)
        else:
            srcs.append(elementwise.scalar_operand(value, name, "where", shape[0]))
    kind = dtypes.dtype_name(dtype) if dtype is not None else dtypes.promote(*kinds) if kinds else "float32"
    return elementwise.result("select", Engine.VECTOR, shape, kind, srcs, mask=elementwise.masked(mask, shape))


def program_id(axis: int) -> object:
    """Return the index of the running program along an axis of the launch grid: ``nl.program_id``."""
    ids = current().program_ids
    if not ids:
        current().notice(f"program_id({axis}) is 0 and one program runs: no launch grid was given (--grid)")
        return 0
    if not -len(ids) <= axis < len(ids):
        refuse(
            "grid_axis",
            f"program_id({axis}) asks for axis {axis} of a launch grid that has {len(ids)} axes",
            "launch with as many axes as the kernel asks for (--grid N,M)",
        )
    return ids[axis]


def num_programs(axes: int | Sequence[int] | None = None) -> object:
    """Return the number of programs of the launch grid, or the number along ``axes`` if ``axes`` is given:
    ``nl.num_programs``.
    """
    grid = current().grid
    if axes is None:
        return int(np.prod(grid)) if grid else 1
    if isinstance(axes, int):
        return grid[axis_of(axes, grid)] if grid else 1
    return tuple(grid[axis_of(axis, grid)] for axis in axes) if grid else (1,) * len(axes)


def axis_of(axis: int, grid: tuple[int, ...]) -> int:
    """Return ``axis`` if the launch grid has an axis of that number; else raise LegalityError."""
    if not -len(grid) <= axis < len(grid):
        refuse(
            "grid_axis",
            f"the kernel asks for axis {axis} of the launch grid, which has {len(grid)} axes",
            "launch with as many axes as the kernel asks for (--grid N,M)",
        )
    return axis


def program_ndim() -> int:
    """Return the number of axes of the launch grid: ``nl.program_ndim``."""
    return len(current().grid)


def device_print(prefix: str, x: object, *, mask: object = None, **kwargs: Any) -> None:
    """Print a tile on chip while the kernel runs: ``nl.device_print``. A tensor in HBM is not printed."""
    if isinstance(x, Tensor) and x.space is not memory.HBM.space:
        patterns = elementwise.masked(mask, x.shape)
        current().emit("print", Engine.SYNC, [], [x], attrs={"text": str(prefix)[:200]}, mask=patterns)


def expand_dims(data: Tensor, axis: int, **kwargs: Any) -> Tensor:
    """Return a view of ``data`` with a new axis of one element at ``axis``: ``nl.expand_dims``."""
    return views.with_axis(data, axis)


def finfo(dtype: object) -> Any:
    """Return the limits of a float type, such as ``min`` and ``eps``: ``nl.finfo``."""
    limits: Any = ml_dtypes.finfo  # numpy's finfo is not typed
    return limits(dtypes.EVERY[dtypes.dtype_name(dtype)])


def dropout(x: object, rate: object, *, dtype: object = None, mask: object = None, **kwargs: Any) -> Tensor:
    """Return a copy of ``x`` in which each element is zero with probability ``rate``: ``nl.dropout``."""
    tile = elementwise.operand(x, "x", "dropout")
    chance = elementwise.scalar_operand(rate, "rate", "dropout", tile.shape[0])
    kind = dtypes.result_name(dtype, tile.dtype_name)
    return elementwise.result(
        "dropout",
        Engine.VECTOR,
        tile.shape,
        kind,
        [tile, chance],
        mask=elementwise.masked(mask, tile.shape),
    )


def random_seed(seed: object, *, mask: object = None, **kwargs: Any) -> None:
    """Seed the random number generator from a number or a tile: ``nl.random_seed``."""
    if mask is not None:
        unsupported("nl.random_seed with a mask is not simulated", "leave mask out")
    value = seed if isinstance(seed, Tensor) else index.as_number(seed)
    if value is None:
        refuse(
            "operand_type", f"the seed of nl.random_seed must not be {type(seed).__name__}", "pass a number or a tile"
        )
    current().emit("random_seed", Engine.VECTOR, [], [value])


def par_dim(n: object) -> ParDim:
    """Return ``n`` marked as the size of the partition dimension: ``nl.par_dim``."""
    return ParDim(operator.index(cast("Any", n)))


class TileSize:
    """The limits of the chip that the kernel is traced for, as attributes: ``nl.tile_size``.

    ``names`` are the limits that the API has; None for all.
    """

    def __init__(self, chip: ChipSpec, reserved_bytes: int = 0, names: frozenset[str] | None = None) -> None:
        self._chip, self._reserved_bytes, self._names = chip, reserved_bytes, names

    def __getattr__(self, name: str) -> int:
        if name.startswith("_"):
            raise AttributeError(name)
        chip = self._chip
        columns, partition = chip.psum_bank_bytes // 4, chip.sbuf_bytes_per_partition
        sizes = {
            "pmax": chip.partitions,
            "psum_fmax": columns,
            "psum_bank_fmax": columns,
            "psum_bank_fmax_bytes": chip.psum_bank_bytes,
            "psum_num_banks": chip.psum_banks,
            "psum_min_align": 4,
            "sbuf_min_align": 1,
            "sbuf_size_bytes": chip.sbuf_bytes,
            "sbuf_fmax": partition // 4,
            "sbuf_fmax_bytes": partition,
            "total_available_sbuf_size": partition - self._reserved_bytes,
            "gemm_stationary_fmax": STATIONARY_COLUMNS,
            "gemm_moving_fmax": columns,
            "bn_stats_fmax": BN_STATS_ELEMENTS,
        }
        if name not in (sizes if self._names is None else self._names):
            raise AttributeError(f"nl.tile_size has no {name!r}")
        return sizes[name]


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    all, where, program_id, num_programs, program_ndim, device_print, expand_dims, finfo, dropout, random_seed, ds,
    elementwise.copy, elementwise.broadcast_to, elementwise.gather_flattened, memory.shared_constant,
    memory.shared_identity_matrix, memory.load, memory.load_transpose2d, memory.store, products.matmul,
    products.transpose, reductions.mean, reductions.var, reductions.softmax, reductions.rms_norm,
)  # fmt: skip
DECLARING = ("arange", "rand", "ndarray", "full", "zeros", "ones", "empty_like", "zeros_like")
"""Names of functions that each API defines in its own way."""


def functions() -> dict[str, Callable[..., Any]]:
    """Return the functions that both APIs have, as a dict by name."""
    return {
        **{function.__name__: function for function in FUNCTIONS},
        **{name: unary(name) for name in UNARY},
        **{name: binary(name) for name in BINARY},
        **{name: _reduction(name, op) for name, op in REDUCTIONS.items()},
    }


def names() -> frozenset[str]:
    """Return the names of all functions of ``nl`` that both APIs have."""
    return frozenset((*functions(), *DECLARING))
