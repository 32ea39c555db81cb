"""Tensors of the current API: the legacy views plus access patterns and axis operations."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from acceld.nki.errors import LegalityError, UnsupportedCall
from acceld.nki.frontend.state import Retrace, current
from acceld.nki.frontend.tensor import Tensor
from acceld.nki.ops import FLOAT_DTYPES
from acceld.nki.program import Access, Affine, Indirect, Space, TileDim


@dataclass(frozen=True, slots=True)
class Register:
    """A scalar register (``nisa.register_alloc``): an integer known at run time only."""

    number: int

    def __index__(self) -> int:
        raise LegalityError(
            "a register's value is not known while tracing",
            rule="control_flow",
            line=current().line(),
            hint="use it in nl.fori_loop, nl.while_loop or as scalar_offset of .ap()",
        )


class NkiTensor(Tensor):
    """A view with the methods of the current API. Negative axes count from the last."""

    __slots__ = ()

    def _axis(self, dim: int) -> int:
        axis = operator.index(cast("Any", dim))
        if not -self.ndim <= axis < self.ndim:
            raise LegalityError(f"{self.label} has no axis {axis}", rule="index_rank", line=current().line())
        return axis % self.ndim

    def _with(self, dims: Sequence[TileDim]) -> Tensor:
        return self.like(replace(self.access, dims=tuple(dims)))

    def permute(self, dims: Sequence[int]) -> Tensor:
        """The axes in another order; the partition axis of an on-chip tensor stays first."""
        order = [self._axis(d) for d in dims]
        if sorted(order) != list(range(self.ndim)) or (self.space is not Space.HBM and order[0] != 0):
            raise LegalityError(
                f"{tuple(dims)} is no order of the axes of {self.label} that keeps the partition axis first",
                rule="index_rank",
                line=current().line(),
            )
        return self._with([self.access.dims[d] for d in order])

    def broadcast(self, dim: int, size: int) -> Tensor:
        """An axis of one element repeated ``size`` times."""
        axis = self._axis(dim)
        if self.shape[axis] != 1:
            raise LegalityError(
                f"axis {axis} of {self.label} has more than one element", rule="shape", line=current().line()
            )
        dims = list(self.access.dims)
        dims[axis] = TileDim(operator.index(size), (0,) * len(self.declared.shape))
        return self._with(dims)

    def expand_dim(self, dim: int) -> Tensor:
        """A new axis of one element at ``dim``."""
        return self.expand_dims(dim)

    def squeeze_dim(self, dim: int) -> Tensor:
        """Without an axis of one element."""
        axis = self._axis(dim)
        if self.shape[axis] != 1:
            raise LegalityError(
                f"axis {axis} of {self.label} has more than one element", rule="shape", line=current().line()
            )
        return self._with([d for k, d in enumerate(self.access.dims) if k != axis])

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> Tensor:
        """One axis split into several."""
        axis = self._axis(dim)
        return self.reshape((*self.shape[:axis], *shape, *self.shape[axis + 1 :]))

    def flatten_dims(self, start: int, end: int) -> Tensor:
        """Axes ``start`` to ``end`` (inclusive) as one."""
        first, last = self._axis(start), self._axis(end)
        return self.reshape((*self.shape[:first], -1, *self.shape[last + 1 :]))

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int = 0,
        scalar_offset: object = None,
        vector_offset: object = None,
        indirect_dim: int = 0,
        dtype: object = None,
        **kwargs: Any,
    ) -> Tensor:
        """An explicit access pattern: ``[[stride, count], ...]`` in elements, from ``offset`` elements on.

        On chip the first pair walks the partitions and strides count within one partition; in HBM strides count in
        the flattened tensor. ``scalar_offset`` (a register or a one-element tile) and ``vector_offset`` (a tile of
        indices) add run-time offsets along ``indirect_dim``.
        """
        if kwargs:
            raise UnsupportedCall(f"ap() with {', '.join(kwargs)}", line=current().line())
        pairs = [(operator.index(cast("Any", s)), operator.index(cast("Any", n))) for s, n in pattern]
        access = self._pattern(pairs, operator.index(cast("Any", offset)))
        extra = [self._offset(value, indirect_dim) for value in (scalar_offset, vector_offset) if value is not None]
        made = self.like(replace(access, indirect=(*self.access.indirect, *extra)))
        return made if dtype is None else made.view(dtype)

    def _pattern(self, pairs: list[tuple[int, int]], offset: int) -> Access:
        """Strides in elements of the flattened tensor (of one partition, on chip) as steps of the buffer's axes."""
        buffer, line = self.declared, current().line()
        on_chip = self.space is not Space.HBM
        if not self._covers_its_buffer():
            raise UnsupportedCall(".ap() of a slice", line=line, hint="take .ap() of the whole tensor with an offset")
        shape = buffer.shape
        lead = 1 if on_chip else 0
        sizes = shape[lead:]
        strides = [1] * len(sizes)
        for d in range(len(sizes) - 2, -1, -1):
            strides[d] = strides[d + 1] * sizes[d + 1]
        start = [0] * len(shape)
        rest = offset
        if on_chip:
            width = strides[0] * sizes[0]
            start[0], rest = divmod(offset, width) if offset >= width else (0, offset)
        for d, stride in enumerate(strides):
            start[lead + d], rest = divmod(rest, stride)
        dims = []
        for place, (stride, count) in enumerate(pairs):
            steps = [0] * len(shape)
            if on_chip and place == 0:
                width = strides[0] * sizes[0]
                steps[0] = 0 if count == 1 else stride // width if stride >= width else 1
            else:
                self._walk(stride, count, strides, sizes, steps, lead, start)
            dims.append(TileDim(count, tuple(steps)))
        return Access(buffer.id, tuple(Affine(n) for n in start), tuple(dims))

    def _covers_its_buffer(self) -> bool:
        """Whether the view is all of its buffer in C order, whatever its shape."""
        if self.whole:
            return True
        buffer, access = self.declared, self.access
        if access.indirect or access.elements != buffer.elements or any(s.const or s.terms for s in access.start):
            return False
        step = 1
        for dim in reversed(access.dims):
            linear = sum(a * b for a, b in zip(dim.steps, buffer.strides, strict=True))
            if dim.count > 1 and linear != step:
                return False
            step *= dim.count
        return True

    def _walk(
        self,
        stride: int,
        count: int,
        strides: list[int],
        sizes: tuple[int, ...],
        steps: list[int],
        lead: int,
        start: list[int],
    ) -> None:
        """Find the one axis along which ``stride`` moves."""
        if stride == 0 or count == 1:
            return
        for d, unit in enumerate(strides):
            if stride % unit == 0 and start[lead + d] + stride // unit * (count - 1) < sizes[d]:
                steps[lead + d] = stride // unit
                return
        trace = current()
        site = trace.sites[self.access.buffer]
        if site not in trace.flatten:
            raise Retrace(flatten=frozenset({site}))
        raise UnsupportedCall(
            f".ap() of {self.label}: {count} elements {stride} apart do not fit {self.declared.shape}",
            line=trace.line(),
            hint="a pair of the pattern must stay inside the tensor",
        )

    def _offset(self, value: object, dim: int) -> Indirect:
        if isinstance(value, Register):
            return Indirect(dim=dim, register=value.number)
        if isinstance(value, Tensor):
            if value.dtype_name in FLOAT_DTYPES:
                raise LegalityError("an offset must hold integers", rule="dtype", line=current().line())
            return Indirect(dim=dim, index=value.access, axis=0)
        raise LegalityError(
            "a run-time offset is a register or a tile of integers", rule="operand_type", line=current().line()
        )
