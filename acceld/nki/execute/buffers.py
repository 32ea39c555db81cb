"""Store the contents of buffers during execution, in as little memory as is proved to be enough.

Kernels declare tensors of gigabytes of which each iteration uses one tile. If a buffer's values never pass from
one iteration of a loop to another, the buffer needs the storage of one iteration only. This module proves that
from the affine accesses, and then removes the loop from the buffer's addresses. A buffer without such a proof
keeps its full storage, so saving memory never changes a result.

Elements that were never written hold either zeros or the *poison*: all bits set, which is NaN in every float
format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from acceld.nki.errors import LimitExceeded, placed
from acceld.nki.ir.def_use import Coverage, Use, adds_or_overwrites, common_loops
from acceld.nki.ir.numerics import Array, is_integer, storage_dtype, write
from acceld.nki.ir.program import Access, Buffer, Loop, Role
from acceld.nki.ir.regions import box, coefficient

POISON = 0xFF
_NEAR = 0.6
"""Share of the random values in undefined memory that have magnitudes like those of a kernel's data. The rest have any
magnitude.
"""
_DRAWN = 65_521
"""Number of different random elements that fill undefined memory before they repeat. It is a prime, so that rows of a
tile differ.
"""
_LONGEST_ANALYSIS = 500_000


@dataclass(frozen=True, slots=True)
class Layout:
    """The storage of one buffer, and the rule by which an element's indices give its address in the storage.

    The element at index ``x`` lies at position ``sum((x[d] - origin[d]) * strides[d])``. Before that, the terms
    of the loops in ``dropped`` are removed from ``x``. Each iteration of a loop in ``spread`` has a copy of the
    buffer, ``spread[loop]`` elements apart.

    ``refill`` is the loop at whose iterations the storage becomes undefined again. It is None if the storage is
    undefined only when it is allocated, and -1 if every read is known to follow a write.

    ``defined`` is True if it is proved that no result depends on what elements hold before they are written. This
    can hold although products add to such elements, because the first product overwrites them.
    """

    buffer: Buffer
    dtype: np.dtype[Any]
    origin: tuple[int, ...]
    strides: tuple[int, ...]
    elements: int
    dropped: frozenset[int] = frozenset()
    spread: Mapping[int, int] = field(default_factory=dict)
    refill: int | None = None
    fill: float | int | None = None
    defined: bool = False

    @property
    def nbytes(self) -> int:
        """Return the bytes of the storage."""
        return self.elements * self.dtype.itemsize

    def place(self, access: Access) -> tuple[int, dict[int, int], tuple[int, ...]]:
        """Return the position of ``access`` in the flat storage, counted in elements: (position, change, strides).

        ``position`` is that of the access's first element. ``change`` says, by loop, by how much each iteration moves
        the position. ``strides`` has the stride of each axis of the access.
        """
        const, terms = 0, dict(self.spread)
        for start, origin, stride in zip(access.start, self.origin, self.strides, strict=True):
            const += (start.const - origin) * stride
            for loop, coef in start.terms:
                if loop not in self.dropped:
                    terms[loop] = terms.get(loop, 0) + coef * stride
        steps = tuple(
            sum(step * stride for step, stride in zip(dim.steps, self.strides, strict=True)) if dim.count != 1 else 0
            for dim in access.dims
        )
        return const, {loop: coef for loop, coef in terms.items() if coef}, steps


class BufferMemory:
    """The memory of one buffer while the program runs.

    ``array`` is the flat storage as bytes, and is empty until the memory is allocated. Elements that were never
    written hold zeros; with ``poison`` they hold NaN, and with ``poison`` and ``chance`` random finite values.

    With ``adds``, some product overwrites the elements that were never written and adds to all other elements, so the
    two kinds must be told apart. If undefined elements are random, ``first`` has their values; an element's entry
    becomes poison at its first product. Otherwise ``first`` is None, and the poison in ``array`` shows which elements
    were never written.

    With ``traces``, ``marks`` has a byte for each byte of ``array``: not zero where the content is undefined, or was
    computed from what is undefined. Otherwise it is None.
    """

    __slots__ = ("adds", "array", "chance", "first", "layout", "marks", "poison", "shared", "traces")

    def __init__(
        self,
        layout: Layout,
        *,
        poison: bool,
        chance: Chance | None = None,
        adds: bool = False,
        traces: bool = False,
        shared: bool = False,
    ) -> None:
        self.layout = layout
        self.poison = poison
        self.chance = chance
        self.adds = adds
        self.array = np.empty(0, np.uint8)
        self.first: Array | None = None
        self.traces = traces
        self.shared = shared
        """True if two cores use the memory. A read may then run before a write that comes earlier in the program."""
        self.marks: Array | None = None

    def allocate(self) -> None:
        """Allocate the memory, and fill it unless every read is known to follow a write."""
        self.array = np.empty(self.layout.nbytes, np.uint8)
        self.mark_defined()
        if self.layout.refill != -1 or self.shared:
            self.fill()

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the memory and its marks."""
        return self.layout.nbytes * (2 if self.traces else 1)

    def mark_defined(self) -> None:
        """Record that all of the memory is defined. Without ``traces`` nothing is recorded."""
        self.marks = np.zeros(self.layout.nbytes, np.uint8) if self.traces else None

    def fill(self) -> None:
        """Make every element of the buffer undefined, or set it to the initial value that the kernel declares."""
        layout = self.layout
        if self.marks is not None:
            self.marks.fill(POISON if layout.fill is None and self.poison else 0)
        if layout.fill is None or (layout.fill == 0 and not np.signbit(layout.fill)):
            undefined = layout.fill is None and self.poison
            if undefined and self.chance is not None:
                self.array[...] = self.chance.values(layout.dtype, layout.elements).view(np.uint8)
                self.first = self.array.copy() if self.adds else None
                return
            self.array.fill((1 if layout.dtype == np.bool_ else POISON) if undefined else 0)
            return
        elements = self.array.view(layout.dtype)
        one = np.empty(1, layout.dtype)
        write(one, np.full(1, layout.fill, np.float64), layout.buffer.dtype, float64=layout.dtype == np.float64)
        elements[...] = one[0]

    def release(self) -> None:
        """Release the storage."""
        self.array = np.empty(0, np.uint8)
        self.first = self.marks = None

    def whole(self) -> Array:
        """Return the storage as an array of the buffer's shape. The buffer's layout must keep all of its elements."""
        return self.array.view(self.layout.dtype).reshape(self.layout.buffer.shape)


class Chance:
    """Draw random finite values for undefined memory. With ``held`` all values are that number, in each dtype that can
    represent the number.

    The values of a dtype are drawn once, and each use begins at a random position among them. This is fast, because a
    tile may become undefined in each of thousands of iterations.
    """

    def __init__(self, seed: int, held: float | None = None) -> None:
        self._random = np.random.default_rng(seed)
        self._held = held
        self._values: dict[np.dtype[Any], Array] = {}

    def values(self, dtype: np.dtype[Any], count: int) -> Array:
        """Return ``count`` values of ``dtype``. Beyond :data:`_DRAWN` values, the values repeat."""
        if dtype not in self._values:
            one = None if self._held is None else _as_held(self._held, dtype)
            self._values[dtype] = _drawn(self._random, dtype, _DRAWN) if one is None else np.full(_DRAWN, one)
        drawn, start = self._values[dtype], int(self._random.integers(_DRAWN))
        if start + count <= _DRAWN:
            return drawn[start : start + count]
        return np.resize(np.concatenate((drawn[start:], drawn[:start])), count)


def _as_held(number: float, dtype: np.dtype[Any]) -> Any:
    """Return the number ``number`` in ``dtype``; None if the dtype can not represent it.

    For an integer dtype, an infinity becomes the greatest or the least integer.
    """
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if np.isinf(number):
            return dtype.type(limits.max if number > 0 else limits.min)
        return dtype.type(int(number)) if number == int(number) and limits.min <= number <= limits.max else None
    with np.errstate(over="ignore"):
        one = np.asarray(number).astype(dtype)[()]
    return one if np.isfinite(float(one)) else None


def _drawn(chance: np.random.Generator, dtype: np.dtype[Any], count: int) -> Array:
    """Return ``count`` random finite values of different magnitudes and signs."""
    if dtype == np.bool_:
        return chance.integers(0, 2, count).astype(np.bool_)
    if dtype.kind in "iu":
        return np.frombuffer(chance.bytes(count * dtype.itemsize), dtype)
    finfo: Any = ml_dtypes.finfo  # ml_dtypes has no type annotations for this function
    limits = finfo(dtype)
    near, far = chance.integers(-6, 7, count), chance.integers(limits.minexp, limits.maxexp - 3, count)
    values = np.ldexp(chance.standard_normal(count), np.where(chance.random(count) < _NEAR, near, far))
    if float(limits.min) >= 0:
        values = np.abs(values)  # float8_e8m0fnu and its like have no sign bit
    return np.clip(values, -float(limits.max), float(limits.max)).astype(dtype)


class Planner:
    """Choose how much storage each buffer of a program gets, and the layout of its elements there."""

    def __init__(
        self, trips: Mapping[int, int], *, float64: bool = False, kept_loops: frozenset[int] = frozenset()
    ) -> None:
        self.trips = trips
        self.float64 = float64
        self.kept_loops = kept_loops
        self.coverage = Coverage(trips)

    def layout(
        self,
        buffer: Buffer,
        uses: Sequence[Use],
        *,
        order: Sequence[int] | None = None,
        fill: float | None = None,
    ) -> Layout:
        """Return the storage layout of ``buffer``.

        ``uses`` are the buffer's accesses, without the memset whose value is ``fill``. ``order`` lists the
        dimensions from slowest to fastest. Each iteration of a loop in ``kept_loops`` has its own copy of the
        buffer.
        """
        reinterpreted = any(use.access.dtype not in ("", buffer.dtype) for use in uses)
        dtype = storage_dtype(buffer.dtype, float64=self.float64 and not reinterpreted)
        if buffer.role is not Role.SCRATCH or not uses:
            whole = (0,) * len(buffer.shape), buffer.strides, buffer.elements
            return Layout(buffer, dtype, *whole, refill=-1, defined=True)
        dropped, spread, refill, defined = self._drop(buffer, uses)
        low, high = self._reach(buffer, uses, dropped)
        sizes = [max(0, most - least + 1) for least, most in zip(low, high, strict=True)]
        strides = [0] * len(sizes)
        step = 1
        for dim in reversed(order if order is not None else range(len(sizes))):
            strides[dim] = step
            step *= sizes[dim]
        elements = step
        extra = {}
        for loop in spread:
            extra[loop] = elements
            elements *= max(1, self.trips[loop])
        kept = frozenset(dropped)
        return Layout(buffer, dtype, tuple(low), tuple(strides), elements, kept, extra, refill, fill, defined)

    def _drop(self, buffer: Buffer, uses: Sequence[Use]) -> tuple[set[int], list[int], int | None, bool]:
        dropped: set[int] = set()
        spread: list[int] = []
        refill: int | None = None
        chain = common_loops(uses)
        movable = len(uses) * len(chain) <= _LONGEST_ANALYSIS and not any(use.indirect for use in uses)
        covered = False
        for depth, loop in enumerate(chain):
            if loop.id in self.kept_loops:
                if loop.id not in buffer.scope:
                    break
                spread.append(loop.id)
                continue
            even = movable and self._even(uses, loop)
            if loop.id not in buffer.scope:
                if not even or buffer.address is not None:
                    break
                covered = self.coverage.complete(uses, depth + 1)
                if not covered and not self._apart(uses, loop, dropped):
                    break
            if even:
                dropped.add(loop.id)
            refill = loop.id
            covered = False
        depth = next((number + 1 for number, loop in enumerate(chain) if loop.id == refill), 0)
        if self.coverage.complete(uses, depth):
            return dropped, spread, -1, True
        adds = [use.access.dtype in ("", buffer.dtype) and adds_or_overwrites(use) for use in uses]
        given = [replace(use, reads=False) if one else use for use, one in zip(uses, adds, strict=True)]
        return dropped, spread, refill, any(adds) and self.coverage.complete(given, depth)

    @staticmethod
    def _even(uses: Sequence[Use], loop: Loop) -> bool:
        first = [coefficient(start, loop.id) for start in uses[0].access.start]
        return all([coefficient(start, loop.id) for start in use.access.start] == first for use in uses)

    def _apart(self, uses: Sequence[Use], loop: Loop, dropped: set[int]) -> bool:
        """Tell whether it is proved that any two iterations of ``loop`` access different elements of the buffer."""
        coefs = [coefficient(start, loop.id) for start in uses[0].access.start]
        if not any(coefs):
            return False
        extents = self._extents(uses, dropped | {loop.id})
        return any(abs(coef) >= size > 0 for coef, size in zip(coefs, extents, strict=True))

    def _extents(self, uses: Sequence[Use], dropped: set[int]) -> list[int]:
        low, high = self._bounds(uses, dropped)
        return [most - least + 1 for least, most in zip(low, high, strict=True)]

    def _bounds(self, uses: Sequence[Use], dropped: set[int]) -> tuple[list[int], list[int]]:
        rank = len(uses[0].access.start)
        lows: list[int | None] = [None] * rank
        highs = [0] * rank
        for use in uses:
            region = box(use.access)
            if region.empty:
                continue
            for d, (start, extent) in enumerate(zip(region.starts, region.extents, strict=True)):
                least = most = start.const
                for loop, coef in start.terms:
                    if loop not in dropped:
                        reach = coef * max(0, self.trips[loop] - 1)
                        least, most = least + min(0, reach), most + max(0, reach)
                most += extent - 1
                known = lows[d]
                lows[d] = least if known is None else min(known, least)
                highs[d] = most if known is None else max(highs[d], most)
        return [0 if low is None else low for low in lows], [
            -1 if low is None else high for low, high in zip(lows, highs, strict=True)
        ]

    def _reach(self, buffer: Buffer, uses: Sequence[Use], dropped: set[int]) -> tuple[list[int], list[int]]:
        if any(use.indirect for use in uses):
            return [0] * len(buffer.shape), [size - 1 for size in buffer.shape]
        low, high = self._bounds(uses, dropped)
        moved = {
            d for use in uses for d, start in enumerate(use.access.start) for loop, _ in start.terms if loop in dropped
        }
        for d, size in enumerate(buffer.shape):
            if d not in moved:
                low[d], high[d] = max(0, low[d]), min(size - 1, high[d])
        return low, high


def check_total(layouts: Sequence[Layout], max_bytes: int) -> None:
    """Raise LimitExceeded if one of the layouts needs more than ``max_bytes``."""
    for layout in layouts:
        if layout.nbytes > max_bytes:
            raise LimitExceeded(
                placed(
                    f"buffer {layout.buffer.name or layout.buffer.id} needs {layout.nbytes} bytes to execute; "
                    f"the limit is {max_bytes}",
                    layout.buffer.place,
                ),
                rule="memory_limit",
                line=layout.buffer.line,
                hint="use smaller tensors, or raise [evaluate] memory_gib",
            )


def copy_in(buffer: Buffer, layout: Layout, values: Array) -> Array:
    """Return new storage of ``buffer`` as bytes, filled with ``values`` rounded to the buffer's dtype."""
    flat = np.empty(buffer.elements, layout.dtype)
    source = np.ascontiguousarray(values).reshape(-1)
    if source.dtype == flat.dtype and (layout.dtype == np.float64 or buffer.dtype != "tfloat32"):
        flat[...] = source
    elif is_integer(buffer.dtype) and source.dtype.kind in "iub":
        np.copyto(flat, source, casting="unsafe")
    else:
        write(flat, source, buffer.dtype, float64=layout.dtype == np.float64)
    return flat.view(np.uint8)


def is_whole(buffer: Buffer, access: Access) -> bool:
    """Tell whether ``access`` covers every element of ``buffer``."""
    if access.indirect:
        return False
    region = box(access)
    return (
        region.dense
        and region.extents == buffer.shape
        and all(start.const == 0 and not start.terms for start in region.starts)
        and access.elements == prod(buffer.shape)
    )
