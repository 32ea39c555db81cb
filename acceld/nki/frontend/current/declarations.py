"""Declare and fill tensors: ``nl.ndarray``, ``nl.zeros`` and similar functions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from acceld.nki.frontend.core import dtypes, index, memory
from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.placement import declare
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import ParDim, Tensor
from acceld.nki.frontend.current.moves import dma_copy
from acceld.nki.frontend.current.operands import emit, whole_numbers
from acceld.nki.frontend.current.state import current_trace
from acceld.nki.frontend.session import call_site
from acceld.nki.ir.operations import DTYPE_BYTES, INTEGER_DTYPES
from acceld.nki.ir.program import Engine, Space


def ndarray(
    shape: Sequence[object],
    dtype: object,
    buffer: object = None,
    name: str = "",
    address: tuple[int, int] | None = None,
) -> Tensor:
    """Return a new tensor without values, by default in SBUF. ``address`` is (start partition, byte offset)."""
    trace = current_trace()
    if name:
        trace.name_once(name, "nl.ndarray")
    kind = memory.buffer_kind(buffer)
    given = memory.as_shape(shape)
    if any(isinstance(n, ParDim) for n in given[1:]):
        refuse(
            "block_dim",
            "nl.par_dim marks a dimension other than the first",
            "put blocks on the free axis, or declare a list of tiles",
        )
    if given and isinstance(given[0], ParDim):
        trace.notice(
            "nl.par_dim: pages of NKI 0.3 and later do not list it; the first size is the partitions without it"
        )
    sizes = whole_numbers(given, "the shape of nl.ndarray")
    if 0 in sizes:
        refuse("shape", f"the shape {sizes} has no elements", "give every dimension a size of 1 or more")
    shared = kind.shared or (kind.space is Space.HBM and call_site() in trace.shared_sites)
    if shared and (known := trace.shared_tensor(sizes, dtypes.dtype_name(dtype), name)) is not None:
        return known
    scope = () if shared else None
    placed = None if address is None else (operator.index(address[0]), operator.index(address[1]))
    made = declare(trace, sizes, dtypes.dtype_name(dtype), kind.space, name=name, scope=scope, address=placed)
    if placed is not None and kind.space is Space.SBUF and placed[1] % DTYPE_BYTES[made.dtype_name]:
        trace.notice(
            f"{made.label} starts at byte {placed[1]}, which is no multiple of the {DTYPE_BYTES[made.dtype_name]} bytes of an "
            "element: no page of NKI says what the chip does then, and AWS's own library aligns each tile to its elements"
        )
    if shared:
        trace.shared_tensors.append((made, name))
    if kind.shared:
        trace.shared_results.add(made.access.buffer)
    return made


def full(
    shape: Sequence[object], fill_value: object, dtype: object, buffer: object = None, name: str = "", **kwargs: Any
) -> Tensor:
    """Return a new tensor filled with one number."""
    number = index.as_number(fill_value)
    if number is None:
        refuse("operand_type", f"fill_value must be a number, not {type(fill_value).__name__}", "pass a number")
    made = ndarray(shape, dtype, buffer, name)
    if made.dtype_name in INTEGER_DTYPES and number != int(number):
        refuse(
            "memset_dtype",
            f"{number} can not fill a tensor of {made.dtype_name}: the value must be of its type",
            f"pass {number:.0f}, or declare a type of floats",
        )
    memory.fill(current(), made, number, lazy=False)
    return made


def zeros(shape: Sequence[object], dtype: object, buffer: object = None, name: str = "", **kwargs: Any) -> Tensor:
    """Return a new tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Sequence[object], dtype: object, buffer: object = None, name: str = "", **kwargs: Any) -> Tensor:
    """Return a new tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def empty_like(x: Tensor, dtype: object = None, buffer: object = None, name: str = "", **kwargs: Any) -> Tensor:
    """Return a new tensor without values, of the shape of ``x``. By default it has the dtype and the memory of
    ``x``.
    """
    return ndarray(x.shape, dtype or x.dtype, buffer if buffer is not None else x.space, name)


def zeros_like(x: Tensor, dtype: object = None, buffer: object = None, name: str = "", **kwargs: Any) -> Tensor:
    """Return a new tensor of zeros, of the shape of ``x``. By default it has the dtype and the memory of ``x``."""
    return zeros(x.shape, dtype or x.dtype, buffer if buffer is not None else x.space, name)


def shared_identity_matrix(n: int, dtype: object = np.uint8, dst: Tensor | None = None, **kwargs: Any) -> Tensor:
    """Return an n x n identity matrix in SBUF: in ``dst`` if given, else in a new tile."""
    made = ndarray((n, n), dtype) if dst is None else dst
    dma_copy(made, memory.shared_identity_matrix(n, dtype))
    return made


def rand(shape: Sequence[object], dtype: object, buffer: object = None, name: str = "") -> Tensor:
    """Return a new tile on chip with uniform random values in [0, 1)."""
    made = ndarray(shape, dtype, buffer, name)
    if made.space is Space.HBM:
        unsupported("nl.rand in HBM is not simulated", "make the tile in nl.sbuf and copy it with nisa.dma_copy")
    emit("random", Engine.VECTOR, [made])
    return made
