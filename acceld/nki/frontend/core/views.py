"""Create views of tensors: apply an index, a reshape or a broadcast to the strided access of a tensor.

The entries of an index, such as slices and numbers, are its *keys*.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, TypeVar, cast

from acceld.nki.frontend.core.context import Retrace, refuse, unsupported
from acceld.nki.frontend.core.index import DynamicSlice, Expr, Predicate, as_int, broadcast
from acceld.nki.frontend.core.state import Selected, Trace, current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.ir.operations import FLOAT_DTYPES
from acceld.nki.ir.program import Access, Affine, Indirect, Pattern, Space, TileDim

T = TypeVar("T", bound=Tensor)


def _add_scaled(start: list[Affine], steps: tuple[int, ...], by: Affine) -> None:
    """Add ``by`` elements along an axis to the position ``start`` of an access, in place. ``steps`` are the axis's
    steps in each dimension.
    """
    if not by.const and not by.terms:
        return
    for d, step in enumerate(steps):
        if step:
            start[d] = start[d] + (by if step == 1 else by.scale(step))


@lru_cache(maxsize=4096)
def _tile_dim(count: int, steps: tuple[int, ...]) -> TileDim:
    """Return an axis of a tile with ``count`` elements and the steps ``steps``. Results are cached."""
    return TileDim(count, steps)


def select(tensor: Tensor, key: object) -> Tensor:
    """Return the view ``tensor[key]``. Raise LegalityError if the index does not fit or mixes slices with
    nl.arange.
    """
    trace = current()
    tile = tensor.access
    memo = None
    if isinstance(key, tuple) and not tile.indirect and tensor.overrun is None:
        memo = (id(tile.start), id(tile.dims), *map(id, key))
        known = trace.selected.get(memo)
        if known is not None:
            made = tensor.like(Access(tile.buffer, known.start, known.dims, (), tile.dtype))
            made.overrun = known.overrun
            return made
    keys = list(key) if isinstance(key, tuple) else [key]
    if len(keys) == 1 and keys[0] is Ellipsis:
        return tensor
    if len(keys) == 1 and isinstance(keys[0], Predicate):
        if keys[0].holds_everywhere:
            return tensor
        unsupported(
            f"{tensor.label} is indexed with a mask, which is not simulated",
            "pass the condition as mask= of the instruction",
        )
    _check_open(trace, keys)
    at = next((i for i, k in enumerate(keys) if k is Ellipsis), None)
    if at is not None:
        named = sum(k is not None and k is not Ellipsis for k in keys)
        keys[at : at + 1] = [slice(None)] * (tensor.ndim - named)
    if len(keys) > tensor.ndim and sum(k is not None for k in keys) > tensor.ndim:
        refuse(
            "index_rank",
            f"too many indices for {tensor.label} of shape {tensor.shape}",
            "give at most one index for each dimension",
        )
    advanced = [k for k in keys if (isinstance(k, Expr) and k.shape) or isinstance(k, Tensor)]
    if advanced:
        elements = trace.element_beside_slices and all(isinstance(k, Tensor) and k.size == 1 for k in advanced)
        mixed = any(isinstance(k, slice | DynamicSlice) or k is None for k in keys)
        if elements and (mixed or len(keys) < tensor.ndim):
            keys = _positions(trace, tensor, keys)
        elif mixed:
            tiles = all(isinstance(k, Tensor) for k in advanced)
            refuse(
                "mixed_indexing",
                "unsupported mixing of basic and advanced indexing: slices can not stand beside "
                + ("a tile of indices" if tiles else "nl.arange or nl.mgrid"),
                "take the element with .select(dim, tile) or .ap(scalar_offset=...)"
                if tiles and not trace.element_beside_slices
                else "use nl.arange for each axis, or slices and nl.ds for each",
            )
        made = _advanced(trace, tensor, keys)
        if memo is not None and all(type(k) is int or (isinstance(k, Expr) and not k.base.terms) for k in keys):
            trace.selected[memo] = Selected(made.access.start, made.access.dims, made.overrun, (tile, key))
        return made
    if len(keys) == 1 and tensor.padded is not None:
        return _of_row(trace, tensor, tensor.padded, keys[0])
    return _basic(trace, tensor, keys)


def _positions(trace: Trace, tensor: Tensor, keys: list[object]) -> list[object]:
    """Return ``keys`` with each slice replaced by the positions that it selects; each slice gets a separate axis."""
    if any(key is None for key in keys):
        refuse(
            "mixed_indexing",
            "an index has both a new axis (None) and an element of a tile",
            "index without None, and reshape the result",
        )
    keys = keys + [slice(None)] * (tensor.ndim - len(keys))
    slices = [number for number, key in enumerate(keys) if isinstance(key, slice | DynamicSlice)]
    for place, number in enumerate(slices):
        key = cast("slice | DynamicSlice", keys[number])
        begin, size, step = _span(trace, key, tensor.access.dims[number].count)
        shape, coefs = [1] * len(slices), [0] * len(slices)
        shape[place], coefs[place] = size, step
        keys[number] = Expr(begin.base if isinstance(begin, Expr) else Affine(begin), tuple(shape), tuple(coefs))
    return keys


def _of_row(trace: Trace, tensor: Tensor, padded: int, key: object) -> Tensor:
    """Return a part of one row of an HBM tensor, such as ``x[1, 0]``.

    A kernel sees such a row as a tensor of one axis. The simulator's view has a second axis of one element,
    whose number is ``padded``.
    """
    dims = tensor.access.dims
    row = tensor.like(replace(tensor.access, dims=dims[:padded] + dims[padded + 1 :]))
    row.overrun = tensor.overrun
    return _basic(trace, row, [key], padded)


def _check_open(trace: Trace, keys: list[object]) -> None:
    """Raise LegalityError if an index uses the variable of a loop that has ended."""
    for k in keys:
        if type(k) is int:
            continue
        parts = (k.start, k.stop) if isinstance(k, slice) else (k.start,) if isinstance(k, DynamicSlice) else (k,)
        for part in parts:
            if not isinstance(part, Expr) or not part.base.terms:
                continue
            if any(loop not in trace.scope for loop, _ in part.base.terms):
                refuse(
                    "local_scope",
                    f"the index {part!r} has a loop variable and is used after that loop has ended",
                    "use it inside of the loop only",
                )


def _basic(trace: Trace, tensor: Tensor, keys: list[object], padded: int | None = None) -> Tensor:
    """Return the view that an index of integers, slices and None selects."""
    rank = len(tensor.declared.shape)
    start, dims = list(tensor.access.start), list[TileDim]()
    partition = tensor.declared.partition_axis
    axis, overrun = 0, tensor.overrun
    integer_at: list[int] = []
    own = tensor.access.dims
    keys = keys + [slice(None)] * (len(own) - sum([k is not None for k in keys]))
    for key in keys:
        if key is None:
            dims.append(TileDim(1, (0,) * rank))
            continue
        dim = own[axis]
        axis += 1
        size: int
        begin: Expr | int
        if isinstance(key, slice | DynamicSlice):
            begin, size, step = _span(trace, key, dim.count)
            if step != 1:
                dims.append(TileDim(size, tuple([s * step for s in dim.steps])))
            else:
                dims.append(dim if size == dim.count else TileDim(size, dim.steps))
            low, high = _reach(begin, (size - 1) * step)
        else:
            position = key if isinstance(key, Expr) else as_int(key)
            if position is None:
                refuse(
                    "index_type",
                    f"{tensor.label} can not be indexed with {_shown(key)}",
                    "use integers, slices and nl.ds",
                )
            begin = position + dim.count if isinstance(position, int) and position < 0 else position
            low, high = _reach(begin, 0)
            if partition >= 0 and dim.steps[partition]:
                dims.append(TileDim(1, dim.steps))
            else:
                integer_at.append(len(dims))
        if overrun is None and (low < 0 or high >= dim.count) and dim.count:
            overrun = (axis - 1, low, high, dim.count)
        if isinstance(begin, Expr):
            _add_scaled(start, dim.steps, begin.base)
        elif begin:
            _add_scaled(start, dim.steps, Affine(begin))
    if trace.hbm_drops_axes and partition < 0:
        dims = dims or [TileDim(1, (0,) * rank)]
    elif len(dims) == 0:
        dims, padded = [TileDim(1, (0,) * rank), TileDim(1, (0,) * rank)], None
    elif len(dims) == 1 and (integer_at or padded is not None):
        padded = padded if padded is not None else 0 if integer_at[-1] == 0 else 1
        dims.insert(padded, TileDim(1, (0,) * rank))
    else:
        padded = None
    old = tensor.access
    made = tensor.like(Access(old.buffer, tuple(start), tuple(dims), old.indirect, old.dtype))
    made.overrun, made.padded = overrun, padded if partition < 0 else None
    return made


def _shown(key: object) -> str:
    """Return the text that describes an index in a message."""
    return "a range of loop iterations" if isinstance(key, Iterator) else f"an object of type {type(key).__name__}"


def _reach(begin: Expr | int, extent: int) -> tuple[int, int]:
    """Return the least and the greatest value of a slice's bounds ``begin`` and ``begin`` + ``extent``, over all
    iterations.
    """
    low, high = begin.bounds() if isinstance(begin, Expr) else (begin, begin)
    return low + min(0, extent), high + max(0, extent)


def _span(trace: Trace, key: slice | DynamicSlice, count: int) -> tuple[Expr | int, int, int]:
    """Return the begin, size and step of a slice along an axis of ``count`` elements."""
    if isinstance(key, DynamicSlice):
        begin = key.start if isinstance(key.start, Expr) else operator.index(cast("Any", key.start))
        return begin, key.size, 1
    if type(key.start) is int and type(key.stop) is int and key.step is None and 0 <= key.start <= key.stop <= count:
        return key.start, key.stop - key.start, 1
    if not isinstance(key.start, Expr) and not isinstance(key.stop, Expr):
        limits = slice(*(None if part is None else operator.index(part) for part in (key.start, key.stop, key.step)))
        begin, stop, step = limits.indices(count)
        if step < 0:
            refuse(
                "index_type",
                "a slice with a negative step is not supported",
                "load in order, then copy slices of one element in reverse order, or reverse 32 partitions with "
                "nisa.nc_stream_shuffle and shuffle_mask=list(range(31, -1, -1))",
            )
        size = len(range(begin, stop, step))
        if limits.stop is not None and limits.stop > count and limits.stop > begin:
            # elements beyond the end are kept, so that they are refused or masked later
            size = len(range(begin, limits.stop, step))
        return begin, size, step
    step = operator.index(key.step) if key.step is not None else 1
    first = key.start if key.start is not None else 0
    last = key.stop if key.stop is not None else count
    extent = as_int(last - first)
    if extent is None:
        refuse(
            "symbolic_index",
            "the size of a slice must not depend on a loop variable",
            "take a slice of constant size with nl.ds(start, size) and mask the rest",
        )
    return first, max(0, -(-extent // step)), step


def _advanced(trace: Trace, tensor: Tensor, keys: list[object]) -> Tensor:
    """Return the view that an index of index expressions, tiles of indices and integers selects."""
    rank = len(tensor.declared.shape)
    if len(keys) != tensor.ndim:
        refuse(
            "index_rank",
            f"{tensor.label} has {tensor.ndim} dimensions, the index has {len(keys)}",
            "index every dimension when nl.arange, nl.mgrid or a tile of indices is used",
        )
    start, overrun = list(tensor.access.start), tensor.overrun
    forms = tuple(
        (key.shape, key.coefs) if isinstance(key, Expr) else (key.shape, None) if isinstance(key, Tensor) else None
        for key in keys
    )
    dims, reaches = _spanned(forms, tensor.access.dims, rank)
    indirect = list(tensor.access.indirect)
    for axis, (key, dim) in enumerate(zip(keys, tensor.access.dims, strict=True)):
        if isinstance(key, Tensor):
            indirect.append(_gathered(tensor, key, dim))
            continue
        if isinstance(key, Expr):
            base = key.base
            low, high = base.bounds(trace.trips) if base.terms else (base.const, base.const)
            low, high = low + reaches[axis][0], high + reaches[axis][1]
        else:
            number = as_int(key)
            if number is None:
                refuse(
                    "index_type",
                    f"{tensor.label} can not be indexed with {_shown(key)}",
                    "use integers, slices and nl.ds",
                )
            low = high = number + dim.count if number < 0 else number
            base = Affine(low)
        _add_scaled(start, dim.steps, base)
        if overrun is None and (low < 0 or high >= dim.count):
            overrun = (axis, low, high, dim.count)
    old = tensor.access
    made = tensor.like(Access(old.buffer, tuple(start), dims, tuple(indirect), old.dtype))
    made.overrun = overrun
    return made


@lru_cache(maxsize=4096)
def _spanned(
    forms: tuple[tuple[tuple[int, ...], tuple[int, ...] | None] | None, ...], dims: tuple[TileDim, ...], rank: int
) -> tuple[tuple[TileDim, ...], tuple[tuple[int, int], ...]]:
    """Return the axes of the tile that an index selects, and the reach of each key of the index.

    The reach says how far the positions of a key lie below and above the key's constant part. ``forms`` has one entry
    for each key: None for a number, else (shape, coefficients of the tile's axes). The coefficients are None for a
    tile of indices.
    """
    longest = max(len(form[0]) for form in forms if form is not None)
    # The axes of a tile of indices begin with the partitions, so missing axes are added at its end. AWS's dma_transpose
    # example (SDK 2.26) needs that: in src[idx[i_p, 0], iy, iz] iy and iz have three axes.
    shape = broadcast(
        *(form[0] if form[1] is not None else form[0] + (1,) * (longest - len(form[0])) for form in forms if form)
    )
    steps = [[0] * rank for _ in shape]
    reaches = []
    for form, dim in zip(forms, dims, strict=True):
        low = high = 0
        if form is not None and form[1] is not None:
            for k, coef in enumerate(form[1], start=len(shape) - len(form[1])):
                reach = coef * (form[0][k - len(shape)] - 1)
                low, high = low + min(0, reach), high + max(0, reach)
                for d, step in enumerate(dim.steps):
                    steps[k][d] += coef * step
        reaches.append((low, high))
    return tuple(_tile_dim(count, tuple(step)) for count, step in zip(shape, steps, strict=True)), tuple(reaches)


def _gathered(tensor: Tensor, index: Tensor, dim: TileDim) -> Indirect:
    """Return the run-time index that the tile of integers ``index`` gives along the axis ``dim`` of ``tensor``."""
    places = [(d, step) for d, step in enumerate(dim.steps) if step]
    if len(places) != 1:
        unsupported("an index tile along a reshaped dimension is not simulated", "index the tensor before the reshape")
    index = index.like(
        replace(
            index.access, dims=tuple(dim if any(dim.steps) else _tile_dim(1, dim.steps) for dim in index.access.dims)
        )
    )
    long = [k for k, count in enumerate(index.shape) if count > 1]
    if len(long) > 1:
        unsupported("an index tile with several elements along two axes is not simulated", "index with a (P, 1) tile")
    if index.dtype_name in FLOAT_DTYPES:
        refuse(
            "dtype",
            f"an index tile must hold integers, not {index.dtype_name}",
            "load the indices as nl.int32 or nl.uint32",
        )
    return Indirect(places[0][0], places[0][1], index=index.access, axis=long[0] if long else 0)


def reshape(tensor: T, shape: tuple[int, ...]) -> T:
    """Return a view of the elements, in C order, in ``shape``. Raise UnsupportedCall if the elements in that order
    do not form a strided view.
    """
    trace = current()
    if -1 in shape:
        rest = -prod(shape)
        shape = tuple(prod(tensor.shape) // rest if n == -1 else n for n in shape)
    if prod(shape) != prod(tensor.shape):
        refuse(
            "shape",
            f"{tensor.label} of shape {tensor.shape} can not be reshaped to {shape}",
            "give a shape with the same number of elements",
        )
    rank = len(tensor.declared.shape)
    old = [dim for dim in tensor.access.dims if dim.count != 1]
    dims: list[TileDim] = []
    at = 0
    for count in shape:
        if count == 1:
            dims.append(TileDim(1, (0,) * rank))
            continue
        dims.append(TileDim(count, ()))
    fill = [k for k, dim in enumerate(dims) if dim.count != 1]
    position = 0
    while position < len(fill) and at < len(old):
        news, olds = [dims[fill[position]].count], [old[at]]
        position, at = position + 1, at + 1
        while prod(news) != prod(dim.count for dim in olds):
            if prod(news) < prod(dim.count for dim in olds):
                news.append(dims[fill[position]].count)
                position += 1
            else:
                olds.append(old[at])
                at += 1
        merged = merged_steps(olds)
        if merged is None:
            site = trace.sites[tensor.access.buffer]
            if site not in trace.flatten:
                raise Retrace(flatten=frozenset({site}))
            unsupported(
                f"a reshape of {tensor.label} from {tensor.shape} to {shape} is not simulated: its elements do not form a strided view",
                "copy the tile with nl.copy first, then reshape the copy",
            )
        inner = 1
        for offset, count in enumerate(reversed(news), start=1):
            dims[fill[position - offset]] = TileDim(count, tuple(step * inner for step in merged))
            inner *= count
    return tensor.like(replace(tensor.access, dims=tuple(dims)))


def merged_steps(dims: list[TileDim]) -> tuple[int, ...] | None:
    """Return the steps of one axis that visits all elements of ``dims`` in order; None if no single axis does."""
    steps = dims[-1].steps
    inner = dims[-1].count
    for dim in reversed(dims[:-1]):
        if dim.steps != tuple(step * inner for step in steps):
            return None
        inner *= dim.count
    return steps


def with_axis(tensor: T, axis: int) -> T:
    """Return a view with a new axis of one element at ``axis``."""
    at = axis if axis >= 0 else axis + tensor.ndim + 1
    dims = list(tensor.access.dims)
    dims.insert(at, TileDim(1, (0,) * len(tensor.declared.shape)))
    return tensor.like(replace(tensor.access, dims=tuple(dims)))


def squeeze(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``shape`` without the axes of one element."""
    return tuple(n for n in shape if n != 1)


def conform(tensor: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """Return a view of ``tensor`` in the shape ``shape``; None if that shape differs in more than axes of one element."""
    if tensor.shape == shape:
        return tensor
    if squeeze(tensor.shape) != squeeze(shape):
        return None
    if tensor.space is not Space.HBM and tensor.shape[:1] != shape[:1]:
        return None
    rest = iter(dim for dim in tensor.access.dims if dim.count != 1)
    rank = len(tensor.declared.shape)
    dims = tuple(TileDim(1, (0,) * rank) if n == 1 else next(rest) for n in shape)
    return tensor.like(replace(tensor.access, dims=dims))


def is_never(pattern: Pattern) -> bool:
    """Tell whether a mask's pattern certainly excludes every element."""
    return not pattern.base.terms and pattern.base.const < 0 and not any(pattern.coefs)


def expand(tensor: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """Return a view of ``tensor`` broadcast to ``shape``: an axis of one element is repeated where ``shape`` has
    more. Return None if the shapes do not fit.
    """
    if tensor.shape == shape:
        return tensor
    if len(tensor.shape) > len(shape):
        return None
    rank = len(tensor.declared.shape)
    dims = [TileDim(1, (0,) * rank)] * (len(shape) - tensor.ndim) + list(tensor.access.dims)
    out = []
    for axis, (dim, count) in enumerate(zip(dims, shape, strict=True)):
        if dim.count == count:
            out.append(dim)
        elif dim.count == 1 and (axis > 0 or tensor.space is Space.HBM):
            out.append(TileDim(count, (0,) * rank))
        else:
            return None
    return tensor.like(replace(tensor.access, dims=tuple(out)))
