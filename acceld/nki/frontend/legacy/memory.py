"""Declare and fill tensors: ``nl.ndarray``, ``nl.zeros`` and similar functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from acceld.nki.frontend.core import dtypes
from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.elementwise import masked, result
from acceld.nki.frontend.core.index import as_number
from acceld.nki.frontend.core.memory import as_shape, buffer_kind, fill, partitions_fit
from acceld.nki.frontend.core.placement import declare
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import ParDim, Tensor


def ndarray(shape: Sequence[object], dtype: object, *, buffer: object = None, name: str = "", **kwargs: Any) -> Tensor:
    """Return a new tensor without values, by default in SBUF: ``nl.ndarray``."""
    trace = current()
    kind = buffer_kind(buffer)
    scope = () if kind.shared else None
    type_name, sizes = dtypes.dtype_name(dtype), as_shape(shape)
    if kind.shared:
        known = trace.shared_tensor(tuple(int(cast("Any", n)) for n in sizes), type_name)
        if known is not None:
            return known
    placement = getattr(buffer, "places", None)
    places: tuple[tuple[int, int], ...] = placement(trace, sizes, type_name) if callable(placement) else ()
    address, blocks = (places[0], ()) if len(places) == 1 else (None, places)
    tensor = declare(trace, sizes, type_name, kind.space, name=name, scope=scope, address=address, blocks=blocks)
    if kind.shared:
        trace.shared_tensors.append((tensor, ""))
    return tensor


def full(
    shape: Sequence[object], fill_value: object, dtype: object, *, buffer: object = None, name: str = "", **kwargs: Any
) -> Tensor:
    """Return a new tensor filled with one number: ``nl.full``. A tensor in HBM is filled by stores from SBUF."""
    tensor = ndarray(shape, dtype, buffer=buffer, name=name)
    number = as_number(fill_value)
    if number is None:
        refuse(
            "operand_type",
            f"fill_value is {type(fill_value).__name__}, not a number",
            "fill with a number, then assign or add the tile",
        )
    fill(current(), tensor, number, lazy=bool(kwargs.get("lazy_initialization", False)))
    return tensor


def zeros(shape: Sequence[object], dtype: object, *, buffer: object = None, name: str = "", **kwargs: Any) -> Tensor:
    """Return a new tensor of zeros: ``nl.zeros``."""
    return full(shape, 0, dtype, buffer=buffer, name=name, **kwargs)


def ones(shape: Sequence[object], dtype: object, *, buffer: object = None, name: str = "", **kwargs: Any) -> Tensor:
    """Return a new tensor of ones: ``nl.ones``."""
    return full(shape, 1, dtype, buffer=buffer, name=name, **kwargs)


def empty_like(a: Tensor, dtype: object = None, *, buffer: object = None, name: str = "", **kwargs: Any) -> Tensor:
    """Return a new tensor without values, of the shape of ``a``: ``nl.empty_like``. By default it has the dtype
    and the memory of ``a``.
    """
    return ndarray(_shape_like(a), dtype or a.dtype, buffer=buffer if buffer is not None else a.space, name=name)


def zeros_like(a: Tensor, dtype: object = None, *, buffer: object = None, name: str = "", **kwargs: Any) -> Tensor:
    """Return a new tensor of zeros, of the shape of ``a``: ``nl.zeros_like``. By default it has the dtype and
    the memory of ``a``.
    """
    return zeros(_shape_like(a), dtype or a.dtype, buffer=buffer if buffer is not None else a.space, name=name)


def _shape_like(a: Tensor) -> tuple[object, ...]:
    """Return the shape of ``a``. If ``a`` is a whole tensor, the partition dimension in the shape is marked
    with nl.par_dim.
    """
    axis = a.declared.partition_axis
    return tuple(ParDim(n) if a.whole and k == axis else n for k, n in enumerate(a.shape))


def memset(
    shape: Sequence[object], value: object, dtype: object, *, mask: object = None, engine: object = None, **kwargs: Any
) -> Tensor:
    """Return a new SBUF tile filled with one number: ``nisa.memset``."""
    from acceld.nki.frontend.core.names import engine_of

    number = as_number(value)
    if number is None:
        refuse("operand_type", f"the value of memset is {type(value).__name__}: pass a number")
    sizes = tuple(int(n) for n in as_shape(shape))  # type: ignore[call-overload]  # checked by declare
    partitions_fit(sizes, "memset")
    return result("memset", engine_of(engine), sizes, dtypes.dtype_name(dtype), [number], mask=masked(mask, sizes))
