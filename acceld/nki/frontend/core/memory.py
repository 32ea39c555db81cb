"""Declare tensors, and move tiles between HBM and on-chip memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from os import PathLike
from typing import Any

import numpy as np

from acceld.nki.errors import LimitExceeded
from acceld.nki.frontend.core import dtypes
from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.elementwise import masked, result
from acceld.nki.frontend.core.index import as_number, loop_index
from acceld.nki.frontend.core.placement import declare, mark_produced
from acceld.nki.frontend.core.state import Trace, current
from acceld.nki.frontend.core.tensor import Tensor, on_chip
from acceld.nki.frontend.core.views import conform, expand, reshape, select, with_axis
from acceld.nki.frontend.session import call_site
from acceld.nki.ir.program import Access, Affine, Attr, Engine, LoopKind, Role, Space

MAX_CONSTANT_BYTES = 64 * 2**20


class BufferKind:
    """A memory as kernels name it in ``buffer=``: ``nl.sbuf``, ``nl.psum``, ``nl.hbm``, ``nl.private_hbm`` or
    ``nl.shared_hbm``.
    """

    def __init__(self, name: str, space: Space, *, shared: bool = False) -> None:
        self.name = name
        self.space = space
        self.shared = shared

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return self.space is other or (isinstance(other, BufferKind) and other.name == self.name)

    def __hash__(self) -> int:
        return hash(self.space)


SBUF = BufferKind("sbuf", Space.SBUF)
PSUM = BufferKind("psum", Space.PSUM)
HBM = BufferKind("hbm", Space.HBM)
PRIVATE_HBM = BufferKind("private_hbm", Space.HBM)
SHARED_HBM = BufferKind("shared_hbm", Space.HBM, shared=True)


def buffer_kind(value: object) -> BufferKind:
    """Return the memory that a ``buffer=`` argument names; SBUF for None. Raise LegalityError for anything else."""
    if value is None:
        return SBUF
    if isinstance(value, BufferKind):
        return value
    if isinstance(value, Space):
        return {Space.SBUF: SBUF, Space.PSUM: PSUM, Space.HBM: HBM}[value]
    kind = getattr(value, "buffer_kind", None)
    if isinstance(kind, BufferKind):
        return kind
    refuse("buffer", f"{value!r} is not a buffer", "use nl.sbuf, nl.psum or nl.shared_hbm")


def as_shape(shape: object) -> tuple[object, ...]:
    """Return ``shape`` as a tuple. ``shape`` is a sequence or a single number."""
    if type(shape) is tuple:
        return shape
    return tuple(shape) if isinstance(shape, Sequence) else (shape,)


def fill(trace: Trace, tensor: Tensor, value: float, *, lazy: bool) -> None:
    """Set all elements of a tensor to ``value`` with one memset for each block.

    With ``lazy`` a single memset covers all blocks, and takes no time.
    """
    if tensor.space is Space.HBM:
        _fill_hbm(trace, tensor, value)
        return
    axis = tensor.declared.partition_axis
    blocks = tensor.access.dims[:axis]
    tile = tensor.access.dims[axis:]
    if lazy or not blocks:
        access = Access(tensor.access.buffer, tensor.access.start, (tile[0], *blocks, *tile[1:]))
        slot = trace.emit(
            "memset", Engine.UNKNOWN, [tensor.like(access)], [value], attrs={"lazy": lazy}, accumulates=True
        )
        if tensor.space is Space.PSUM:
            trace.lazy_candidates[tensor.access.buffer] = slot
            trace.engines_written.discard(tensor.access.buffer)
        if not blocks and not lazy:
            mark_produced(trace, tensor, slot)
            tensor.produced = None
        return
    start, site, line = list(tensor.access.start), call_site(), trace.line()
    loops = []
    for d, block in enumerate(blocks):
        loops.append(trace.open(f"block{d}", block.count, LoopKind.AFFINE, site, line))
        start[d] = start[d] + Affine(0, ((loops[-1], 1),))
    access = Access(tensor.access.buffer, tuple(start), tile)
    trace.emit("memset", Engine.UNKNOWN, [tensor.like(access)], [value], attrs={"lazy": False}, accumulates=True)
    for loop in reversed(loops):
        trace.close(loop)


def _fill_hbm(trace: Trace, tensor: Tensor, value: float) -> None:
    """Set all elements of a tensor in HBM to ``value``, by storing a filled SBUF tile as often as needed."""
    shape = tensor.shape if tensor.ndim > 1 else (1, *tensor.shape)
    rows, row = prod(shape[:-1]), shape[-1]
    part = next(n for n in range(min(rows, trace.chip.partitions), 0, -1) if rows % n == 0)
    tile = result("memset", Engine.UNKNOWN, (part, row), tensor.dtype_name, [value])
    flat = reshape(tensor, (rows // part, part, row))
    loop = trace.open("rows", rows // part, LoopKind.AFFINE, call_site(), trace.line())
    store(select(flat, loop_index(loop)), tile)
    trace.close(loop)


def shared_constant(constant: object, dtype: object = None, **kwargs: Any) -> Tensor:
    """Return a tensor in HBM with the data of an array or a ``.npy`` file: ``nl.shared_constant``.

    Raise LimitExceeded for more than 64 MiB.
    """
    trace = current()
    array = _from_file(constant) if isinstance(constant, str | PathLike) else np.asarray(constant)
    if dtype is not None:
        array = array.astype(dtypes.EVERY[dtypes.dtype_name(dtype)])
    elif array.dtype == np.float64:
        array = array.astype(np.float32)
    elif array.dtype == np.int64:
        array = array.astype(np.int32)
    name = dtypes.dtype_name(array.dtype)
    if array.nbytes > MAX_CONSTANT_BYTES:
        raise LimitExceeded(
            f"the constant has {array.nbytes} bytes; at most {MAX_CONSTANT_BYTES} are allowed: pass it as an argument of the kernel",
            rule="constant_limit",
            line=trace.line(),
        )
    data = np.ascontiguousarray(array).tobytes()
    return declare(trace, array.shape, name, Space.HBM, role=Role.CONSTANT, data=data, scope=())


def _from_file(path: str | PathLike[str]) -> Any:
    """Return the array of a ``.npy`` file. Raise LegalityError if the file can not be read."""
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        refuse(
            "constant_file",
            f"shared_constant can not read {str(path)!r}: {error}",
            "pass a numpy array, or a .npy file that can be read where the kernel is traced",
        )


def shared_identity_matrix(n: int, dtype: object = np.uint8, **kwargs: Any) -> Tensor:
    """Return an n x n identity matrix in HBM: ``nl.shared_identity_matrix``."""
    return shared_constant(np.identity(n, dtype=np.float32), dtype=dtype)


def in_hbm(value: object, name: str, call: str) -> Tensor:
    """Return ``value`` if it is a tensor in HBM. Raise LegalityError for any other value."""
    if not isinstance(value, Tensor):
        refuse(
            "operand_type",
            f"Expected operand '{name}' of '{call}' to be a tensor, but got {type(value).__name__}",
            "pass an argument of the kernel or a tensor declared with nl.ndarray; bring numpy data in with nl.shared_constant",
        )
    if value.space is not Space.HBM:
        refuse(
            "address_space",
            f"Expected operand '{name}' of '{call}' to be in address space 'hbm', but got a tile in "
            f"'{value.space.value}' instead.",
            "use on-chip tiles directly; nl.load and nl.store are for tensors declared with buffer=nl.shared_hbm or nl.hbm",
        )
    return value


def partitions_fit(shape: tuple[int, ...], call: str) -> None:
    """Raise LegalityError if a tile of ``shape`` has fewer than two dimensions or too many partitions."""
    if len(shape) < 2:
        refuse(
            "insufficient_rank",
            f"Insufficient rank: '{call}' of a tile with shape {shape}",
            "reshape the tensor to two dimensions or index it with a row or a column",
        )
    if shape[0] > current().chip.partitions:
        refuse(
            "partition_limit",
            f"number of partitions {shape[0]} exceed architecture limitation of {current().chip.partitions}",
            f"load at most {current().chip.partitions} rows at a time",
        )


def _outside(mode: object) -> dict[str, Attr]:
    """Return the attribute of a DMA instruction for the ``mode=`` argument of nl.load and nl.store.

    AWS's own kernels pass ``nisa.oob_mode.skip``, which skips indices outside of the tensor.
    """
    return {"oob": "skip"} if getattr(mode, "name", mode) == "skip" else {}


def load(src: object, *, mask: object = None, dtype: object = None, mode: object = None, **kwargs: Any) -> Tensor:
    """Return a new SBUF tile with the data of ``src``, a tensor in HBM, cast to ``dtype`` if given:
    ``nl.load``.

    If ``src`` has one dimension, each element goes to a partition of its own.
    """
    tensor = in_hbm(src, "src", "load")
    tensor = with_axis(tensor, 1) if tensor.ndim == 1 else tensor
    partitions_fit(tensor.shape, "load")
    kind = dtypes.result_name(dtype, tensor.dtype_name)
    patterns = masked(mask, tensor.shape)
    return result("dma_copy", Engine.DMA, tensor.shape, kind, [tensor], attrs=_outside(mode), mask=patterns)


def load_transpose2d(src: object, *, mask: object = None, dtype: object = None, **kwargs: Any) -> Tensor:
    """Return a new SBUF tile with the transposed data of a two-dimensional tensor in HBM: ``nl.load_transpose2d``."""
    tensor = in_hbm(src, "src", "load_transpose2d")
    if tensor.ndim != 2:
        refuse(
            "shape",
            f"load_transpose2d needs two dimensions, not {list(tensor.shape)}",
            "index the tensor down to rows and columns",
        )
    shape = (tensor.shape[1], tensor.shape[0])
    partitions_fit(shape, "load_transpose2d")
    kind = dtypes.result_name(dtype, tensor.dtype_name)
    patterns = masked(mask, shape, axes=(1, 0))
    return result("dma_transpose", Engine.DMA, shape, kind, [tensor], attrs={"axes": (1, 0)}, mask=patterns)


def store(dst: object, value: object, *, mask: object = None, mode: object = None, **kwargs: Any) -> None:
    """Write a tile or a number to a tensor in HBM: ``nl.store``. A tile in PSUM is first copied to SBUF.

    Raise LegalityError if the shapes differ.
    """
    trace = current()
    target = in_hbm(dst, "dst", "store")
    if not isinstance(value, Tensor):
        number = as_number(value)
        if number is None:
            refuse(
                "operand_type",
                f"Expected operand 'value' of 'store' to be a tile, but got {type(value).__name__}",
                "store a tile, or a number",
            )
        value = result("memset", Engine.UNKNOWN, target.shape, target.dtype_name, [number])
    tile = on_chip(value, "value", "store")
    if tile.space is Space.PSUM:
        tile = result("copy", Engine.UNKNOWN, tile.shape, tile.dtype_name, [tile], mask=masked(mask, tile.shape))
    placed = conform(target, tile.shape)
    if placed is None:
        wide = expand(tile, target.shape)
        if wide is None:
            refuse(
                "shape",
                f"a tile of shape {list(tile.shape)} can not be stored to {list(target.shape)}",
                "index the destination to the tile's shape",
            )
        placed, tile = target, wide
    trace.emit("dma_copy", Engine.DMA, [placed], [tile], attrs=_outside(mode), mask=masked(mask, tile.shape))
