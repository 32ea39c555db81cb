"""View the tiles of buffers as numpy arrays.

A :class:`Tile` is an access that is compiled once. Its start is a function of the loops' iterations; its shape
and strides are constant. Each use makes one view of the buffer's bytes. No index is trusted: an access that is
not proved to lie inside its buffer is checked each time, and numpy refuses a view beyond the given bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from acceld.nki.execute.buffers import POISON
from acceld.nki.execute.machine import Env, Machine, affine, affine_function, crash, undefined_use
from acceld.nki.execute.windows import Crop, Mask, Window
from acceld.nki.ir.numerics import Array, is_integer, is_nan, round_tfloat32, storage_dtype, with_nan, write
from acceld.nki.ir.program import Access, Pattern
from acceld.nki.ir.regions import index_bounds
from acceld.nki.ir.spaces import AxisMap

_NDARRAY = np.ndarray


def _overlaps(counts: Sequence[int], steps: Sequence[int]) -> bool:
    """Tell whether several elements of a tile may lie at one position in memory, as with a step of 0.

    Results can not be computed in place in such a tile.
    """
    span = 0
    for step, count in sorted((abs(step), count) for step, count in zip(steps, counts, strict=True) if count > 1):
        if step <= span:
            return True
        span += step * (count - 1)
    return False


def repeats(access: Access, strides: Sequence[int]) -> bool:
    """Tell whether several elements of an access without run-time indices may be one element of its buffer, which has
    the strides ``strides``.
    """
    steps = [sum(step * stride for step, stride in zip(dim.steps, strides, strict=True)) for dim in access.dims]
    return _overlaps([dim.count for dim in access.dims], steps)


class Tile:
    """One operand of an instruction, compiled for reading and writing.

    ``axes`` maps the tile's axes to the axes of the iteration space. With ``arranged`` the tile's views have the axes
    of the iteration space, otherwise the tile's own axes. With ``skip_outside`` elements outside of the buffer are
    skipped; otherwise they are an error.
    """

    def __init__(
        self,
        machine: Machine,
        access: Access,
        trips: dict[int, int],
        *,
        axes: AxisMap | None = None,
        arranged: bool = False,
        space: tuple[int, ...] = (),
        mask: tuple[Pattern, ...] = (),
        line: int = 0,
        skip_outside: bool = False,
    ) -> None:
        store = machine.stores[access.buffer]
        layout = store.layout
        self.machine, self.store, self.layout, self.access, self.line = machine, store, layout, access, line
        self.dtype = access.dtype or layout.buffer.dtype
        self.numpy_dtype = layout.dtype if layout.dtype == np.float64 else storage_dtype(self.dtype, float64=False)
        item = layout.dtype.itemsize
        const, terms, steps = layout.place(access)
        counts = access.shape
        self._steps = steps
        if access.elements > machine.max_elements:
            crash(
                f"an operand has {access.elements} elements; {machine.max_elements} are allowed",
                "memory_limit",
                line,
                "use smaller tiles",
            )
        self.reshaped = space if arranged and axes is None else None
        if arranged and axes is not None:
            shape, strides, where = [1] * len(space), [0] * len(space), [-1] * len(space)
            for axis, target in enumerate(axes):
                if target >= 0:
                    shape[target], strides[target], where[target] = counts[axis], steps[axis], axis
            self.shape, steps = tuple(shape), tuple(strides)
            self.axis_of = tuple(where)
            self.space_axis = tuple(range(len(space)))
        else:
            self.shape = counts
            self.axis_of = tuple(range(len(counts)))
            self.space_axis = axes if axes is not None else (-1,) * len(counts)
        self.strides = tuple(step * item for step in steps)
        self.offset = affine_function(
            const * item, [(machine.slots[loop], coef * item) for loop, coef in terms.items()]
        )
        self.scattered = bool(access.indirect)
        self.skip_outside = skip_outside
        self.proved = not self.scattered and self._proved(trips, mask, axes)
        self.real = machine.real
        self.integer = is_integer(self.dtype)
        self.rounds = self.dtype == "tfloat32" and not machine.float64
        self.may_repeat = _overlaps(counts, self._steps)
        """True if two elements of the tile may lie at one position in memory."""
        self.plain = (
            not self.scattered
            and self.numpy_dtype == machine.real
            and (self.dtype == "float32" or machine.float64)
            and self.reshaped is None
            and not self.may_repeat
        )
        self._bits = np.dtype(f"u{self.numpy_dtype.itemsize}")
        self._starts = [affine(machine, start) for start in access.start]
        self._indices = [
            Tile(machine, one.index, trips, line=line) if one.index is not None else None for one in access.indirect
        ]

    def _proved(self, trips: dict[int, int], mask: tuple[Pattern, ...], axes: AxisMap | None) -> bool:
        if any(dim.count == 0 for dim in self.access.dims):
            return True
        for d, size in enumerate(self.layout.buffer.shape):
            low, high = index_bounds(self.access, d, trips, mask, axes)
            if low < 0 or high >= size:
                return False
        return True

    def view(self, env: Env, window: Window) -> Array:
        """Return the elements in their storage dtype, as a view.

        Do not call this for a tile with run-time indices, or for a window that is a Mask.
        """
        if not self.proved:
            self._check(env, window)
        if window is None:
            return _NDARRAY(self.shape, self.numpy_dtype, self.store.array, self.offset(env), self.strides)
        offset, shape = self.start(env, window)
        return _NDARRAY(shape, self.numpy_dtype, self.store.array, offset, self.strides)

    def start(self, env: Env, window: Window) -> tuple[int, tuple[int, ...]]:
        """Return the offset in bytes and the shape of the view inside a window that is not a Mask."""
        offset, shape = self.offset(env), list(self.shape)
        if isinstance(window, Crop):
            for axis, target in enumerate(self.space_axis):
                if target >= 0 and shape[axis] != 1:
                    first, end = window.ranges[target]
                    offset += first * self.strides[axis]
                    shape[axis] = end - first
        return offset, tuple(shape)

    def raw(self, env: Env, window: Window) -> Array:
        """Return the values that an engine reads, in the storage dtype. Callers must not write to the result.

        If undefined memory is traced, elements that depend on undefined memory are NaN. A tile of integers with such
        elements is returned as float64.
        """
        values = self.content(env, window)
        if self.store.marks is None:
            return values
        return with_nan(values, self.marked(env, window))

    def marks(self, env: Env, window: Window) -> Array:
        """Return the marks of the elements, as unsigned integers as wide as the elements. A byte of a mark is not zero
        if the same byte of the element depends on undefined memory. The buffer must have marks.
        """
        with self._as_marks():
            return np.array(self.content(env, window))

    def marked(self, env: Env, window: Window) -> Array:
        """Return a mask of the elements that depend on undefined memory; all False if the buffer records no marks."""
        if self.store.marks is None:
            return np.zeros((1,) * len(self.shape), np.bool_)
        with self._as_marks():
            return np.asarray(self.content(env, window) != 0)

    def mark(self, env: Env, window: Window, marks: Array) -> None:
        """Record which elements depend on undefined memory. Nothing happens if the buffer records no marks.

        ``marks`` is a mask, which is broadcast to the tile, or a result of :meth:`marks`.
        """
        if self.store.marks is None:
            return
        if marks.dtype == np.bool_:
            marks = np.where(marks, np.iinfo(self._bits).max, 0)
        with self._as_marks():
            self._store(env, window, marks.astype(self._bits, copy=False))

    @contextmanager
    def _as_marks(self) -> Iterator[None]:
        """Let the tile's methods read and write, inside the block, the marks of its elements (unsigned integers) in
        place of the elements.
        """
        store, held = self.store, (self.store.array, self.numpy_dtype, self.dtype, self.rounds)
        assert store.marks is not None
        store.array, self.numpy_dtype, self.dtype, self.rounds = store.marks, self._bits, str(self._bits), False
        try:
            yield
        finally:
            store.array, self.numpy_dtype, self.dtype, self.rounds = held

    def content(self, env: Env, window: Window) -> Array:
        """Return the elements that are in memory, as the access's dtype reads them. The result has the dtype of the
        storage. Callers must not write to the result.
        """
        if self.scattered or isinstance(window, Mask):
            values = self._gather(env, window)
        else:
            values = self.view(env, window)
        values = self.read(values)
        if self.reshaped is not None:
            return values.reshape(self.reshaped)
        return values

    def read(self, stored: Array) -> Array:
        """Return the values of the access's dtype that an engine reads from the memory content ``stored``.

        If the dtype is narrower than its storage, values are rounded at each read, because the bits may have
        been written as another dtype.
        """
        return round_tfloat32(stored) if self.rounds else stored

    def load(self, env: Env, window: Window) -> Array:
        """Return the elements as reals. Callers must not write to the result."""
        values = self.raw(env, window)
        return values if values.dtype == self.real else values.astype(self.real)

    def untouched(self, env: Env, window: Window) -> Array | None:
        """Return a mask that is True for elements which were never written; None if all were written."""
        values, first = self.content(env, window), None
        bits = np.dtype(f"u{values.dtype.itemsize}")
        if self.store.first is not None:
            with self._as_first():
                first = np.ascontiguousarray(self.raw(env, window)).view(bits)
        found = np.equal(np.ascontiguousarray(values).view(bits), np.iinfo(bits).max if first is None else first)
        return found.reshape(values.shape) if found.any() else None

    def touched(self, env: Env, window: Window) -> None:
        """Record that a product has written the elements, so that the next product adds to them instead of overwriting
        them.
        """
        if self.store.first is not None:
            with self._as_first():
                stored = self.stored(env, window)
                self.restore(
                    env, window, np.full(stored.nbytes, POISON, np.uint8).view(stored.dtype).reshape(stored.shape)
                )

    @contextmanager
    def _as_first(self) -> Iterator[None]:
        """Let the tile's methods read and write, inside the block, the random values that its elements held before they
        were written.
        """
        store, now, first = self.store, self.store.array, self.store.first
        assert first is not None
        store.array = first
        try:
            yield
        finally:
            store.array = now

    def target(self, env: Env, window: Window) -> Array | None:
        """Return a view into which an instruction can write its results directly.

        Return None if the results have to be rounded, so that :meth:`put` has to write them.
        """
        if self.plain and self.store.marks is None and not isinstance(window, Mask):
            return self.view(env, window)
        return None

    def put(self, env: Env, window: Window, values: Any) -> None:
        """Round ``values`` to the tile's dtype and write them. They are broadcast to the tile's shape.

        If undefined memory is traced, the elements where ``values`` is NaN are recorded as depending on undefined
        memory.
        """
        self._store(env, window, values)
        if self.store.marks is not None:
            self.mark(env, window, is_nan(np.asarray(values)))

    def _store(self, env: Env, window: Window, values: Any) -> None:
        apart = window is None and self.may_repeat and self.machine.otherwise
        if self.scattered or isinstance(window, Mask) or apart:
            self._scatter(env, window, values)
            return
        view = self.view(env, window)
        values = np.asarray(values)
        if values.shape != view.shape and values.size == view.size:
            values = values.reshape(view.shape)
        write(view, values, self.dtype, float64=self.machine.float64)

    def stored(self, env: Env, window: Window) -> Array:
        """Return a copy of the elements inside the window, in their storage dtype."""
        if self.scattered or isinstance(window, Mask):
            flat, inside = self._positions(env, window)
            return self.store.array.view(self.numpy_dtype)[flat if inside is None else flat[inside]]
        return self.view(env, window).copy()

    def restore(self, env: Env, window: Window, stored: Array) -> None:
        """Write ``stored``, which :meth:`stored` returned, to the elements inside a window of the same shape."""
        if self.scattered or isinstance(window, Mask):
            flat, inside = self._positions(env, window)
            self.store.array.view(self.numpy_dtype)[flat if inside is None else flat[inside]] = stored
        else:
            self.view(env, window)[...] = stored

    def _ranges(self, window: Window) -> list[tuple[int, int]]:
        ranges = [(0, count) for count in self.access.shape]
        if isinstance(window, Crop):
            for axis, position in enumerate(self.axis_of):
                target = self.space_axis[axis]
                if position >= 0 and target >= 0 and self.shape[axis] != 1:
                    ranges[position] = window.ranges[target]
        return ranges

    def _check(self, env: Env, window: Window) -> None:
        ranges = self._ranges(window)
        for d, size in enumerate(self.layout.buffer.shape):
            low = high = self._starts[d](env)
            for (first, end), dim in zip(ranges, self.access.dims, strict=True):
                if end <= first:
                    return
                ends = (first * dim.steps[d], (end - 1) * dim.steps[d])
                low, high = low + min(ends), high + max(ends)
            if low < 0 or high >= size:
                self._outside(d, low, high)

    def _outside(self, dim: int, low: int, high: int) -> None:
        buffer = self.layout.buffer
        crash(
            f"index range [{low}, {high}] of dimension {dim} lies outside of "
            f"{buffer.name or f'buffer {buffer.id}'} with size {buffer.shape[dim]}",
            "out_of_bounds",
            self.line,
            "check the index, or mask the elements beyond the edge",
        )

    def _kept(self, window: Window) -> Array | None:
        """Return a mask over the tile's own axes that is True for the elements inside the window; None if all elements
        are inside.
        """
        if not isinstance(window, Mask) or self.reshaped is not None:
            return None
        keep = window.keep
        own = [-1] * len(self.access.dims)
        for axis, position in enumerate(self.axis_of):
            if position >= 0:
                own[position] = self.space_axis[axis]
        unused = tuple(axis for axis in range(keep.ndim) if axis not in own)
        reduced = keep.any(axis=unused) if unused else keep
        left = [axis for axis in range(keep.ndim) if axis in own]
        order = [left.index(target) for target in own if target >= 0]
        reduced = np.transpose(reduced, order)
        shape = [keep.shape[target] if target >= 0 else 1 for target in own]
        return np.broadcast_to(reduced.reshape(shape), self.access.shape)

    def _positions(self, env: Env, window: Window) -> tuple[Array, Array | None]:
        """Return the position of each element in the flat storage, along the tile's own axes, and a mask of the
        elements to use.

        The mask is None if all elements are used.
        """
        ranges = self._ranges(window)
        counts = tuple(max(0, end - first) for first, end in ranges)
        rank = len(counts)
        keep = self._kept(window)
        flat = np.full(counts, self.offset(env) // self.numpy_dtype.itemsize, np.int64)
        for axis, ((first, end), step) in enumerate(zip(ranges, self._steps, strict=True)):
            if step and end > first:
                flat += (np.arange(first, end, dtype=np.int64) * step).reshape(
                    [-1 if k == axis else 1 for k in range(rank)]
                )
        inside: Array | None = keep
        for d, size in enumerate(self.layout.buffer.shape):
            index = np.full(counts, self._starts[d](env), np.int64)
            for axis, ((first, end), dim) in enumerate(zip(ranges, self.access.dims, strict=True)):
                if dim.steps[d] and end > first:
                    along = np.arange(first, end, dtype=np.int64) * dim.steps[d]
                    index += along.reshape([-1 if k == axis else 1 for k in range(rank)])
            for one, tile in zip(self.access.indirect, self._indices, strict=True):
                if one.dim != d:
                    continue
                if tile is None:
                    assert one.register is not None
                    moved: Any = one.scale * self.machine.register(one.register, self.line)
                else:
                    moved = one.scale * self._along(tile, env, one.axis, ranges, rank)
                index += moved
                flat += moved * self.layout.strides[d]
            bad = (index < 0) | (index >= size)
            if keep is not None:
                bad &= keep
            if bad.any():
                if not self.skip_outside:
                    self._outside(d, int(index[bad].min()), int(index[bad].max()))
                inside = ~bad if inside is None else inside & ~bad
        if inside is not None:
            flat = np.where(inside, flat, 0)
        return flat, inside

    def positions(self, env: Env, window: Window) -> Array:
        """Return the positions in the flat storage of the elements inside the window, in the order of the tile's axes."""
        flat, inside = self._positions(env, window)
        return flat.reshape(-1) if inside is None else flat[inside]

    def elements(self, env: Env, window: Window) -> Array:
        """Return the row-major index, in the declared buffer, of each element inside the window. The tile must have no
        run-time indices.
        """
        ranges, strides = self._ranges(window), self.layout.buffer.strides
        counts = tuple(max(0, end - first) for first, end in ranges)
        first = sum(start(env) * stride for start, stride in zip(self._starts, strides, strict=True))
        flat = np.full(counts, first, np.int64)
        for axis, ((begin, end), dim) in enumerate(zip(ranges, self.access.dims, strict=True)):
            step = sum(one * stride for one, stride in zip(dim.steps, strides, strict=True))
            along = np.arange(begin, max(begin, end), dtype=np.int64) * step
            flat += along.reshape([-1 if k == axis else 1 for k in range(len(counts))])
        keep = self._kept(window)
        return flat.reshape(-1) if keep is None else flat[keep]

    def _along(self, tile: Tile, env: Env, axis: int, ranges: list[tuple[int, int]], rank: int) -> Array:
        """Return the run-time indices that ``tile`` holds, as the indices along axis ``axis``. Their shape broadcasts
        to the access's shape.

        A tile of the access's own shape has one index for each element.
        """
        values = tile.raw(env, None)
        if tile.marked(env, None).any():
            undefined_use("a run-time index", self.line)
        if values.dtype.kind == "f":
            values = np.nan_to_num(np.asarray(values, np.float64), nan=-1.0, posinf=-1.0, neginf=-1.0)
        values = values.astype(np.int64)
        if values.shape == self.access.shape:
            return values[tuple(slice(first, end) for first, end in ranges)]
        line = values.reshape(-1)
        if line.size == 1:
            return line.reshape((1,) * rank)
        if rank == 0 or line.size != self.access.dims[axis].count:
            crash(
                f"an access has {line.size} run-time indices for {self.access.dims[axis].count if rank else 0} elements",
                "index_shape",
                self.line,
            )
        first, end = ranges[axis]
        return line[first:end].reshape([-1 if k == axis else 1 for k in range(rank)])

    def _gather(self, env: Env, window: Window) -> Array:
        flat, inside = self._positions(env, window)
        memory = self.store.array.view(self.numpy_dtype)
        if not memory.size:
            return self._arrange(np.zeros(flat.shape, self.numpy_dtype))
        values = memory[flat]
        if inside is not None:
            values[~inside] = 0
        return self._arrange(values)

    def _arrange(self, values: Array) -> Array:
        """Return ``values`` with the tile's own axes reordered to the axes of its views."""
        if self.reshaped is not None or self.axis_of == tuple(range(values.ndim)):
            return values
        used = [axis for axis in self.axis_of if axis >= 0]
        rest = [axis for axis in range(values.ndim) if axis not in used]
        moved = values.transpose([*rest, *used]).reshape([values.shape[axis] for axis in used])
        return moved.reshape([values.shape[axis] if axis >= 0 else 1 for axis in self.axis_of])

    def _unarrange(self, values: Array) -> Array:
        if self.reshaped is not None or self.axis_of == tuple(range(len(self.access.dims))):
            return values
        kept = [position for position, axis in enumerate(self.axis_of) if axis >= 0]
        used = [self.axis_of[position] for position in kept]
        squeezed = values.reshape([values.shape[position] for position in kept])
        rest = [axis for axis in range(len(self.access.dims)) if axis not in used]
        grown = squeezed.reshape(*squeezed.shape, *(1 for _ in rest))
        order = [*used, *rest]
        return grown.transpose([order.index(axis) for axis in range(len(order))])

    def scatter_raw(self, env: Env, window: Window) -> tuple[Array, Array, Array | None]:
        """Return the buffer's flat memory, the positions of the elements, and a mask of the elements to use.

        A read-modify-write needs these three. The mask is None if all elements are used.
        """
        flat, inside = self._positions(env, window)
        return self.store.array.view(self.numpy_dtype), flat, inside

    def _scatter(self, env: Env, window: Window, values: Any) -> None:
        flat, inside = self._positions(env, window)
        memory = self.store.array.view(self.numpy_dtype)
        values = np.asarray(values)
        if self.reshaped is None and values.ndim == len(self.shape):
            broad = [n if self.axis_of[k] >= 0 else 1 for k, n in enumerate(self._arrange(flat).shape)]
            values = np.broadcast_to(values, broad)
            values = self._unarrange(values)
        values = np.broadcast_to(values.reshape(flat.shape) if values.size == flat.size else values, flat.shape)
        staged = np.empty(flat.shape, self.numpy_dtype)
        write(staged, values, self.dtype, float64=self.machine.float64)
        where, staged = (flat.reshape(-1), staged.reshape(-1)) if inside is None else (flat[inside], staged[inside])
        if self.machine.otherwise:
            where, staged = _another_remains(where, staged)
        memory[where] = staged  # numpy keeps the last of several values for one position


def _another_remains(where: Array, values: Array) -> tuple[Array, Array]:
    """Return the distinct positions in ``where`` and, for each position, a value that a chip may leave there.

    If different values are written to a position, the result is one that differs from the last value, because a chip
    may write in another order. If all values are equal, the result is that value.
    """
    order = np.argsort(where, kind="stable")
    where, values = where[order], values[order]
    begins = np.flatnonzero(np.diff(where, prepend=-1))
    if begins.size == where.size:
        return where, values
    sizes = np.diff(begins, append=where.size)
    kept = begins + sizes - 1
    bits = values.view(f"u{values.dtype.itemsize}")
    other = np.flatnonzero(bits != np.repeat(bits[kept], sizes))
    group = np.repeat(np.arange(begins.size), sizes)[other]
    kept[group] = other
    return where[begins], values[kept]
