"""Define tensors of the current API. They have access patterns and operations on axes, and no arithmetic."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from typing import Any, NoReturn, Self, cast

import numpy as np

from acceld.nki.errors import LegalityError, UnsupportedCall
from acceld.nki.frontend.core import dtypes, elementwise, methods, placement, views
from acceld.nki.frontend.core.context import Retrace, refuse, unsupported
from acceld.nki.frontend.core.index import Expr
from acceld.nki.frontend.core.names import WITHOUT
from acceld.nki.frontend.core.placement import whole_access
from acceld.nki.frontend.core.state import Selected, current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current.lifetimes import (
    INDEX_AS_OFFSET,
    NEGATIVE_INDEX,
    REGISTER_ARITHMETIC,
    VIEW_METHODS,
    VIEW_PATTERN,
)
from acceld.nki.frontend.current.operands import stored, whole, whole_numbers
from acceld.nki.frontend.current.sampling import SampledIndex
from acceld.nki.ir.operations import DTYPE_BYTES, FLOAT_DTYPES
from acceld.nki.ir.program import Access, Affine, Engine, Indirect, Space, TileDim

GROUP = 16
"""Number of partitions that share the offsets of ``.indirect()``: those of one GpSimd core."""
_COMMON = frozenset({int, type(None), SampledIndex})
"""The types that nearly all parts of indices have. Looking a type up here saves slower checks."""


def _numbers(key: object) -> tuple[object, ...] | None:
    """Return a key for an index: the numbers of its slices and entries. Return None for an index with anything but
    slices and non-negative numbers.

    Two indices with equal keys select the same part of a tile. The index of a sampled iteration counts as its number.
    """
    found: list[object] = []
    for one in key if type(key) is tuple else (key,):
        if type(one) is slice:
            if one.step is not None:
                return None
            begin, end = _number_of(one.start), _number_of(one.stop)
            if begin == -1 or end == -1:
                return None
            found.append((begin, end))
        else:
            number = _number_of(one)
            if number is None or number < 0:
                return None
            found.append(number)
    return tuple(found)


def _number_of(value: object) -> int | None:
    """Return ``value`` as a number for :func:`_numbers`: None for None, and -1 for a negative number or anything that
    is not a number.
    """
    if type(value) is SampledIndex:
        value = value.base.const
    if type(value) is int:
        return value if value >= 0 else -1
    return None if value is None else -1


def _place(value: object) -> Any:
    """Return the offset of ``.ap()`` as an integer. The index of a sampled iteration is returned unchanged."""
    return value if isinstance(value, SampledIndex) else whole(value, "the offset of .ap()")


def _without(symbol: str) -> Callable[..., Any]:
    """Return a method that raises LegalityError for the operator ``symbol``, which registers do not have."""

    def operator_of(self: object, *other: object) -> NoReturn:
        refuse(
            "control_flow",
            f"'{symbol}' can not be applied to a register: its value is not known while tracing",
            "use +, - and *, which registers have; in place of a branch, compute the count of an nl.fori_loop",
        )

    return operator_of


class CountedLoop(StrEnum):
    """The functions of ``nl`` that make a run-time loop with a counter."""

    FORI = "nl.fori_loop"
    DYNAMIC = "nl.dynamic_range"

    @property
    def hides_locals(self) -> bool:
        """Return True if tensors that are declared in the body end with the iteration.

        AWS's guide for the move to NKI 0.6 says so of ``nl.fori_loop``, whose body is a function. No page says so of
        ``nl.dynamic_range`` or of a ``while`` statement.
        """
        return self is CountedLoop.FORI


@dataclass(frozen=True, slots=True, eq=False)
class Register:
    """A scalar register (``nisa.register_alloc``, ``nisa.scalar_load``): an integer known only at run time."""

    number: int
    dtype: str = ""
    """``int32`` or ``int64`` for a register of ``nisa.scalar_load``, whose arithmetic wraps around; empty for any
    other.
    """
    loop: CountedLoop | None = None
    """The run-time loop that counts in the register; None for any other register."""

    def __repr__(self) -> str:
        return current().session.text_of("a register")

    def __index__(self) -> int:
        return refuse(
            "control_flow",
            "a register's value is not known while tracing",
            "use it in nl.fori_loop or as scalar_offset of .ap()",
        )

    def __bool__(self) -> bool:
        return bool(self.__index__())

    def combined(self, op: str, other: object) -> Register:
        """Return a new register with the value of ``self op other``, where ``other`` is a number or a register."""
        trace = current()
        if not isinstance(other, Register) and not hasattr(other, "__index__"):
            refuse(
                "operand_type",
                f"'{op}' can not combine a register with {type(other).__name__}",
                "use an integer or a register",
            )
        kinds = {self.dtype, other.dtype if isinstance(other, Register) else ""} - {""}
        if len(kinds) > 1:
            refuse("dtype", f"'{op}' can not combine an int32 with an int64 register", "load both in one width")
        made = Register(trace.builder.register(), "".join(kinds))
        attrs: dict[str, Any] = {"register": made.number, "source": self.number, "op": op}
        if kinds:
            attrs["bits"] = 8 * DTYPE_BYTES[made.dtype]
        if isinstance(other, Register):
            trace.emit("register_alu", Engine.SYNC, [], [0], attrs={**attrs, "operand": other.number})
        else:
            trace.emit("register_alu", Engine.SYNC, [], [operator.index(cast("Any", other))], attrs=attrs)
        return made

    def _operated(self, op: str, other: object) -> Register:
        """Return a new register with the value of ``self op other``. Raise LegalityError if the trace's version of
        ``nki`` has no operators on registers.
        """
        current().session.need("arithmetic on a register", REGISTER_ARITHMETIC)
        return self.combined(op, other)

    def __add__(self, other: object) -> Register:
        return self._operated("add", other)

    __radd__ = __add__

    def __sub__(self, other: object) -> Register:
        return self._operated("subtract", other)

    def __mul__(self, other: object) -> Register:
        return self._operated("multiply", other)

    __rmul__ = __mul__

    def __neg__(self) -> Register:
        return self._operated("multiply", -1)

    def __rsub__(self, other: object) -> Register:
        return self._operated("multiply", -1).combined("add", other)

    def __eq__(self, other: object) -> bool:
        return bool(_without("==")(self))

    def __ne__(self, other: object) -> bool:
        return bool(_without("!=")(self))

    __hash__ = object.__hash__
    __lt__, __le__, __gt__, __ge__ = _without("<"), _without("<="), _without(">"), _without(">=")
    __truediv__ = __rtruediv__ = _without("/")
    __floordiv__ = __rfloordiv__ = _without("//")
    __mod__ = __rmod__ = _without("%")
    __pow__ = __rpow__ = _without("**")
    __and__ = __rand__ = _without("&")
    __or__ = __ror__ = _without("|")
    __xor__ = __rxor__ = _without("^")
    __lshift__ = __rlshift__ = _without("<<")
    __rshift__ = __rrshift__ = _without(">>")
    __invert__, __abs__ = _without("~"), _without("abs")


@dataclass(frozen=True, slots=True, eq=False)
class LoopIndex:
    """The index of an ``nl.fori_loop`` or ``nl.dynamic_range`` with known bounds. A kernel may use it only as a run-time
    value.
    """

    value: object
    loop: CountedLoop

    def __repr__(self) -> str:
        return current().session.text_of(f"the index of {self.loop}")

    def __eq__(self, other: object) -> bool:
        return bool(self)  # this raises, like every use of the value while tracing

    __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = object.__hash__

    def __index__(self) -> int:
        return refuse(
            "control_flow",
            f"{self!r} is a run-time value, also where its bounds are numbers",
            "pass it as scalar_offset of .ap() or to tile.select(dim, index), or use Python's range",
        )

    def __bool__(self) -> bool:
        return bool(self.__index__())

    @property
    def number(self) -> int:
        """Return the index of the iteration that is being traced. Only the simulator may read it, not the
        kernel.
        """
        return operator.index(cast("Any", self.value))

    def _combined(self, other: object, op: Callable[[int, int], int]) -> LoopIndex:
        current().session.need(f"arithmetic on {self!r}", REGISTER_ARITHMETIC)
        number = other.number if isinstance(other, LoopIndex) else operator.index(cast("Any", other))
        return LoopIndex(op(self.number, number), self.loop)

    def __add__(self, other: object) -> LoopIndex:
        return self._combined(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: object) -> LoopIndex:
        return self._combined(other, operator.sub)

    def __mul__(self, other: object) -> LoopIndex:
        return self._combined(other, operator.mul)

    __rmul__ = __mul__


def _axis_groups(pattern: object) -> list[tuple[str, ...]]:
    """Return the names of each axis of a pattern of ``rearrange``. Raise LegalityError for any other pattern."""
    groups = list(pattern) if isinstance(pattern, tuple | list) else []
    made = [(one,) if isinstance(one, str) else tuple(one) if isinstance(one, tuple | list) else () for one in groups]
    if not made or any(not group or not all(isinstance(name, str) for name in group) for group in made):
        refuse(
            "shape",
            f"{pattern!r} is no pattern of rearrange",
            "name each axis, and merged axes as a tuple: ('b', ('h', 'w'))",
        )
    return made


def _axis_sizes(sizes: object) -> dict[str, int]:
    """Return the sizes that ``rearrange`` is given, as a dict by name. Raise LegalityError if ``sizes`` is not a
    dictionary from names to sizes.
    """
    if sizes is None:
        return {}
    if not isinstance(sizes, dict):
        refuse(
            "operand_type",
            f"fixed_sizes of rearrange must be a dict, not {type(sizes).__name__}",
            "pass {'name': size}",
        )
    return {str(name): whole(size, f"the size of {name} in rearrange") for name, size in sizes.items()}


METHODS = {
    "T": "nl.transpose(tile)",
    "astype": "nl.copy(tile, dtype=...), or nisa.tensor_copy to a tile of that type",
    "to": "nl.copy(tile, dtype=...), or nisa.tensor_copy to a tile of that type",
    "broadcast_to": "tile.broadcast(dim, size), or nl.broadcast_to(tile, shape)",
    "expand_dims": "tile.expand_dim(dim)",
    "unsqueeze": "tile.expand_dim(dim)",
    "squeeze": "tile.squeeze_dim(dim)",
    "flatten": "tile.flatten_dims(start, end)",
    "copy": "nl.copy(tile)",
    "item": "nisa.register_load: a tile's value is not known while tracing",
    "numpy": "nl functions: a tile has no data while tracing",
    **{name: f"nl.{name}(tile, axis)" for name in ("sum", "mean", "max", "min", "prod", "var", "all")},
    **{name: f"nl.{name}(tile)" for name in ("transpose", "exp", "sqrt", "abs", "square", "tanh", "sigmoid")},
}
"""Advice for a method of the legacy API, numpy or torch: what to write in the current API, by method."""
VIEWS_SINCE_0_5 = (
    "slice", "select", "permute", "broadcast", "expand_dim", "squeeze_dim", "reshape_dim", "flatten_dims", "rearrange",
    "vector_select", "indirect", "is_contiguous", "is_indirect",
)  # fmt: skip
"""Methods of a tensor that the release notes of NKI 0.5 name as new."""


def _function(name: str) -> str:
    """Return the advice for an operator of two operands that the function ``nl.NAME`` replaces."""
    return f"use nl.{name}, nisa.tensor_tensor for two tiles, or nisa.tensor_scalar for a tile and a number"


OPERATORS = {
    "+": (_function("add"), "add radd iadd"), "-": (_function("subtract"), "sub rsub isub"),
    "*": (_function("multiply"), "mul rmul imul"),
    "/": ("multiply by nl.reciprocal of the divisor; by a number, multiply by 1 / number", "truediv rtruediv itruediv"),
    "//": (WITHOUT["floor_divide"], "floordiv rfloordiv ifloordiv"),
    "%": (WITHOUT["mod"], "mod rmod imod"),
    "**": (
        "use nl.power for two tiles; for a number nl.square, nl.sqrt, nl.rsqrt or products, or nl.exp of a multiple of nl.log",
        "pow rpow ipow",
    ),
    "@": ("use nisa.nc_matmul", "matmul rmatmul imatmul"),
    "&": (_function("bitwise_and"), "and rand iand"), "|": (_function("bitwise_or"), "or ror ior"),
    "^": (_function("bitwise_xor"), "xor rxor ixor"), "<<": (_function("left_shift"), "lshift rlshift ilshift"),
    ">>": (_function("right_shift"), "rshift rrshift irshift"), "<": (_function("less"), "lt"),
    "<=": (_function("less_equal"), "le"), ">": (_function("greater"), "gt"), ">=": (_function("greater_equal"), "ge"),
    "-tile": ("use nl.negative", "neg"), "+tile": ("use the tile itself", "pos"), "abs": ("use nl.abs", "abs"),
    "~": ("use nl.invert", "invert"),
}  # fmt: skip
"""For each operator of Python: what to write in its place, and the methods that Python calls for the operator."""


def _without_operators(cls: type[NkiTensor]) -> type[NkiTensor]:
    """Return the class with all of Python's operators replaced by methods that raise LegalityError."""
    for sign, (advice, names) in OPERATORS.items():

        def refused(self: NkiTensor, *others: object, sign: str = sign, advice: str = advice) -> object:
            return self.no_operator(sign, advice)

        for name in names.split():
            setattr(cls, f"__{name}__", refused)
    return cls


def _with_versions(cls: type[NkiTensor]) -> type[NkiTensor]:
    """Return the class with view methods that raise LegalityError if the trace's version of ``nki`` lacks them."""
    for name in VIEWS_SINCE_0_5:
        method = getattr(cls, name)

        @functools.wraps(method)
        def dated(self: NkiTensor, *args: Any, method: Callable[..., Any] = method, **kwargs: Any) -> Any:
            current().session.need(f"tile.{method.__name__}()", VIEW_METHODS)
            return method(self, *args, **kwargs)

        setattr(cls, name, dated)
    return cls


@_with_versions
@_without_operators
class NkiTensor(methods.Tensor):
    """A tensor or tile as a kernel of the current API sees it. Negative axes count from the last axis."""

    __slots__ = ()

    def no_operator(self, sign: str, advice: str) -> object:
        """Raise LegalityError for the operator ``sign``, with ``advice`` on what to write instead."""
        return refuse(
            "tile_operator",
            f"{sign} is not defined for tensors of nki ({self.label}): they have no operators",
            advice,
        )

    def __eq__(self, other: object) -> Any:
        return self.no_operator("==", _function("equal")) if isinstance(other, Tensor | int | float) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return (
            self.no_operator("!=", _function("not_equal"))
            if isinstance(other, Tensor | int | float)
            else NotImplemented
        )

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        instead = METHODS.get(name)
        hint = (
            f"use {instead}" if instead else "it has shape, dtype, ndim, reshape, view, slice, select, ap and permute"
        )
        raise AttributeError(name if name.startswith("__") else f"a tensor of nki has no attribute {name!r}: {hint}")

    def __getitem__(self, key: object) -> Tensor:
        """Return the view that an index selects. Raise LegalityError for an index outside of the tensor."""
        tile, known_views = self.access, current().selected_by_numbers
        numbers = _numbers(key) if self.overrun is None and self.padded is None and not tile.indirect else None
        memo = None
        if numbers is not None:
            memo = (id(tile.start), id(tile.dims), self.declared.partition_axis, *numbers)
            known = known_views.get(memo)
            if known is not None:
                return self.like(Access(tile.buffer, known.start, known.dims, (), tile.dtype))
        made = self._selected(key)
        if memo is not None and made.overrun is None and made.padded is None:
            known_views[memo] = Selected(made.access.start, made.access.dims, None, (tile, key))
        return made

    def _selected(self, key: object) -> Tensor:
        """Return the view that an index selects, without :meth:`__getitem__`'s look-up of known indices."""
        keys = key if isinstance(key, tuple) else (key,)
        whole = True
        if self.access.indirect and keys and isinstance(keys[0], slice | int) and keys[0] != slice(None):
            self._not_gathered(0)
        for one in keys:
            if one is None:
                refuse(
                    "index_type", f"{self.label} can not be indexed with None", "add an axis with tile.expand_dim(dim)"
                )
            self._plain(one)
            whole = whole and one is not Ellipsis
        if whole:
            for axis, one in enumerate(keys):
                if isinstance(one, int) or (
                    isinstance(one, slice) and (type(one.start) is int or type(one.stop) is int)
                ):
                    self._inside(axis, one)
        return views.select(self, key)

    def _plain(self, key: object) -> None:
        """Raise LegalityError for an index of a kind that no version of ``nki`` takes."""
        parts = (key.start, key.stop, key.step) if isinstance(key, slice) else (key,)
        for part in parts:
            if type(part) not in _COMMON and isinstance(part, (float, str, list, np.ndarray)):
                refuse(
                    "index_type",
                    f"{self.label} is indexed with {repr(part) if isinstance(part, float | str) else type(part).__name__}",
                    "use whole numbers (// divides without a fraction), slices and nl.ds",
                )
        if isinstance(key, slice) and isinstance(key.step, int) and key.step == 0:
            refuse("index_type", f"a slice of {self.label} has step 0", "give a step of 1 or more")

    def _inside(self, axis: int, key: int | slice) -> None:
        """Raise LegalityError for a number outside of an axis, or a slice that begins at or after the end of
        the axis.
        """
        dims = self.access.dims
        size = dims[axis].count if axis < len(dims) else 0
        if isinstance(key, int) and not isinstance(key, bool) and size and not -size <= key < size:
            refuse(
                "out_of_bounds",
                f"index {key} is outside of axis {axis} of {self.label}, which has {size} elements",
                f"use 0 to {size - 1}",
            )
        if isinstance(key, int) and key < 0:
            current().session.need(f"the negative index {key}", NEGATIVE_INDEX)
        if isinstance(key, slice) and isinstance(key.start, int) and size and key.start >= size:
            refuse(
                "out_of_bounds",
                f"a slice of axis {axis} of {self.label} begins at {key.start}, beyond the {size} elements of the axis",
                "leave out an access to an empty slice",
            )
        if isinstance(key, slice) and isinstance(key.stop, int) and 0 < size < key.stop:
            refuse(
                "out_of_bounds",
                f"a slice of axis {axis} of {self.label} ends at {key.stop}, beyond the {size} elements of the axis",
                f"end it at {size}: min({size}, end) cuts the last part of a loop",
            )

    def __setitem__(self, key: object, value: object) -> None:
        target = self[key]
        if target.space is Space.HBM:
            current().notice("tensor[...] = tile in HBM: not every version of NKI accepts it; all accept nl.store")
            stored(target, value, "tensor[...] = tile")
            return
        current().notice("tile[...] = value: not every version of NKI accepts it; all accept nisa.tensor_copy")
        placement.assign(target, value)

    @property
    def name(self) -> str:
        """Return the name that the kernel gave the tensor, or the name of its variable."""
        return self.declared.name

    def reshape(self, shape: Sequence[int], *more: object) -> Self:
        """Return a view of the same elements, in C order, in another shape. On chip, the partitions stay as they are."""
        if more or isinstance(shape, int):
            refuse(
                "signature",
                "reshape got its sizes as separate arguments",
                "pass them as one tuple: tile.reshape((n, m))",
            )
        wanted = whole_numbers(shape, "the shape of reshape")
        if wanted.count(-1) > 1:
            refuse(
                "shape", f"reshape of {self.label} to {wanted} leaves two sizes open", "leave at most one size as -1"
            )
        if self.space is not Space.HBM and wanted[:1] not in (self.shape[:1], (-1,)):
            refuse(
                "partition_axis",
                f"{self.label} can not be reshaped from {self.shape} to {wanted}, because the partition dimension must stay",
                "keep the first size; move data between partitions with a DMA or a transpose",
            )
        return views.reshape(self, wanted)

    def _free_axis(self, dim: int, call: str) -> int:
        """Return the number of the axis ``dim``, which a view is about to change. Raise LegalityError for the
        partition axis of a tile on chip.
        """
        axis = self._axis(dim)
        if axis == 0 and self.space is not Space.HBM:
            refuse(
                "partition_axis",
                f"{call} can not change axis 0 of {self.label}: views on chip keep the partition dimension",
                "repeat a partition with nl.broadcast_to; move data between partitions with a DMA",
            )
        return axis

    def __len__(self) -> int:
        return refuse(
            "tile_value", f"{self.label} has no length in nki", "ask for its first extent, as in tile.shape[0]"
        )

    def __bool__(self) -> bool:
        """Return True for a declared tensor, because kernels test arguments for None in this way.

        Raise LegalityError for an on-chip tile of one element, and for the on-chip result of an operation: the
        kernel could mean their value, which is unknown while tracing.
        """
        if self.space is not Space.HBM and (self.size == 1 or self.produced is not None):
            return super().__bool__()
        return self._given()

    def _axis(self, dim: int) -> int:
        """Return the number of axis ``dim``, counted from the first axis. Raise LegalityError if the tensor
        lacks that axis.
        """
        axis = whole(dim, f"an axis of {self.label}")
        if not -self.ndim <= axis < self.ndim:
            refuse("index_rank", f"{self.label} has no axis {axis}: its axes are 0 to {self.ndim - 1}")
        return axis % self.ndim

    def _with(self, dims: Sequence[TileDim]) -> Self:
        """Return a view of the same buffer with the axes ``dims``."""
        return self.like(replace(self.access, dims=tuple(dims)))

    def permute(self, dims: Sequence[int]) -> Self:
        """Return a view with the axes in another order. On chip, the partition axis stays first."""
        order = [self._axis(d) for d in whole_numbers(dims, "the order of permute")]
        if sorted(order) != list(range(self.ndim)) or (self.space is not Space.HBM and order[0] != 0):
            refuse(
                "index_rank",
                f"{tuple(dims)} does not name each axis of {self.label} once, or moves the partition axis: name all axes, and on chip axis 0 first",
            )
        return self._with([self.access.dims[d] for d in order])

    def broadcast(self, dim: int, size: int) -> Tensor:
        """Return a view in which the single element of axis ``dim`` is repeated ``size`` times."""
        axis = self._free_axis(dim, "broadcast")
        if self.shape[axis] != 1:
            refuse(
                "shape",
                f"axis {axis} of {self.label} has {self.shape[axis]} elements; broadcast can only repeat one element",
                f"add an axis and repeat along it: .expand_dim({axis}).broadcast({axis}, {size})",
            )
        dims = list(self.access.dims)
        dims[axis] = TileDim(whole(size, "the size of broadcast"), (0,) * len(self.declared.shape))
        return self._with(dims)

    def expand_dim(self, dim: int) -> Tensor:
        """Return a view with a new axis of one element at ``dim``."""
        at = whole(dim, "the axis of expand_dim")
        if not -self.ndim - 1 <= at <= self.ndim:
            refuse(
                "index_rank", f"expand_dim can not add axis {at} to {self.label}: valid positions are 0 to {self.ndim}"
            )
        if at % (self.ndim + 1) == 0:
            self._free_axis(0, "expand_dim")
        return views.with_axis(self, at)

    def squeeze_dim(self, dim: int) -> Tensor:
        """Return a view without axis ``dim``, which has one element."""
        axis = self._free_axis(dim, "squeeze_dim")
        if self.shape[axis] != 1:
            refuse(
                "shape",
                f"axis {axis} of {self.label} has {self.shape[axis]} elements: only an axis of one element can be dropped",
            )
        return self._with([d for k, d in enumerate(self.access.dims) if k != axis])

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> Tensor:
        """Return a view with axis ``dim`` split into axes of the sizes ``shape``."""
        axis = self._free_axis(dim, "reshape_dim")
        parts = whole_numbers(shape, "the shape of reshape_dim")
        return self.reshape((*self.shape[:axis], *parts, *self.shape[axis + 1 :]))

    def flatten_dims(self, start: int, end: int) -> Tensor:
        """Return a view with axes ``start`` to ``end`` (inclusive) merged into one."""
        first, last = self._axis(start), self._axis(end)
        if last > first:
            self._free_axis(first, "flatten_dims")
        return self.reshape((*self.shape[:first], -1, *self.shape[last + 1 :]))

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the distance between neighbors along each axis, in elements of the flattened tensor."""
        return tuple(self._linear(dim) for dim in self.access.dims)

    @property
    def offset(self) -> int:
        """Return the number of elements of the flattened tensor that lie before the first element of the view."""
        for loop in cast("Any", current()).sampled:
            # run all iterations, because the number that the kernel gets depends on the loops' indices
            loop.run_in_full()
        return self._begin

    @property
    def _begin(self) -> int:
        return sum(s.const * stride for s, stride in zip(self.access.start, self.declared.strides, strict=True))

    def _linear(self, dim: TileDim) -> int:
        """Return the distance between neighbors along an axis, in elements of the flattened tensor."""
        return sum(step * stride for step, stride in zip(dim.steps, self.declared.strides, strict=True))

    def get_pattern(self) -> list[list[int]]:
        """Return the view's access pattern: a pair ``[stride, count]`` for each axis."""
        return [[stride, count] for stride, count in zip(self.strides, self.shape, strict=True)]

    def is_indirect(self) -> bool:
        """Return True if run-time values decide which elements the view has."""
        return bool(self.access.indirect)

    def is_contiguous(self) -> bool:
        """Return True if the elements of the view follow each other in C order. On chip, only the order within
        each partition counts.
        """
        step = 1
        for dim in reversed(self.access.dims[0 if self.space is Space.HBM else 1 :]):
            if dim.count > 1 and self._linear(dim) != step:
                return False
            step *= dim.count
        return True

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> Tensor:
        """Return a view of the elements ``start`` to ``end`` (exclusive) of axis ``dim``."""
        axis = self._axis(dim)
        start, end, step = whole_numbers((start, end, step), "the range of slice")
        if not 0 <= start < end <= self.shape[axis] or step < 1:
            refuse(
                "out_of_bounds",
                f"the slice {start}:{end}:{step} does not fit axis {axis} of {self.label}, which has {self.shape[axis]} elements",
            )
        return self[(*(slice(None),) * axis, slice(start, end, step))]

    def select(self, dim: int, index: object) -> Tensor:
        """Return a view of one element of axis ``dim``, without that axis.

        ``index`` is a number, a register or a tile with one integer.
        """
        axis = self._axis(dim)
        if isinstance(index, LoopIndex) and (axis or self.space is Space.HBM):
            index = index.number
        if not isinstance(index, Tensor | Register):
            at = whole(index, "the index of select")
            if at < 0:
                refuse(
                    "out_of_bounds",
                    f"the index {at} of select is negative (NkiTensor.select, 0.6)",
                    f"count from the first element: {at + self.shape[axis]}",
                )
            self._not_gathered(axis)
            return self[(*(slice(None),) * axis, at)]
        if self.is_indirect() or (axis == 0 and self.space is not Space.HBM):
            refuse(
                "index_type",
                f"axis {axis} of {self.label} can not have a run-time index",
                "use one run-time index, and not on the partition axis",
            )
        found = self._indirect(axis, self._scalar(index))
        dims = [d for k, d in enumerate(self.access.dims) if k != axis]
        return self.like(replace(self.access, dims=tuple(dims), indirect=(found,)))

    def vector_select(self, dim: int, vector_offset: object) -> Tensor:
        """Return rows of a tensor in HBM, one for each index in the tile ``vector_offset``."""
        if self._axis(dim) != 0 or self.space is not Space.HBM or not isinstance(vector_offset, Tensor):
            refuse(
                "index_type",
                f"vector_select can not be applied to {self.label} in {self.space.value} with {type(vector_offset).__name__}",
                "take rows (dim 0) of a tensor in HBM by a tile of indices",
            )
        self._not_gathered(0)
        rows = TileDim(vector_offset.shape[0], (0,) * len(self.declared.shape))
        found = self._indirect(0, vector_offset)
        return self.like(replace(self.access, dims=(rows, *self.access.dims[1:]), indirect=(found,)))

    def _not_gathered(self, axis: int) -> None:
        """Raise LegalityError if ``axis`` is the first axis of a view and a tile of indices selects the view's rows."""
        if axis == 0 and any(one.index is not None and one.index.elements > 1 for one in self.access.indirect):
            refuse(
                "index_type",
                f"axis 0 of {self.label} has rows that a tile of indices selects, and can not be selected or sliced again "
                "(NkiTensor.vector_select, 0.6)",
                "slice the tile of indices instead",
            )

    def _scalar(self, index: object) -> object:
        """Return ``index``, the run-time index of one element. Raise LegalityError for a tile of several elements."""
        if isinstance(index, Tensor) and index.size != 1:
            refuse(
                "index_type",
                f"the run-time index of {self.label} is a tile of shape {list(index.shape)} (NkiTensor.ap, 0.6)",
                "pass a (1, 1) tile or a register; rows by a tile of indices are tensor.vector_select(0, indices)",
            )
        if isinstance(index, Register | LoopIndex) and index.loop is CountedLoop.DYNAMIC:
            current().session.need("the index of nl.dynamic_range as scalar_offset", INDEX_AS_OFFSET)
        return index

    def rearrange(
        self, src_pattern: Sequence[Any], dst_pattern: Sequence[Any], fixed_sizes: dict[str, int] | None = None
    ) -> Tensor:
        """Return a view with axes split, reordered and merged by name.

        For example, ``t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4})`` splits the second axis and swaps its
        parts.
        """
        sizes = _axis_sizes(fixed_sizes)
        groups, targets = _axis_groups(src_pattern), _axis_groups(dst_pattern)
        names = [name for group in groups for name in group]
        if len(groups) != self.ndim or sorted(names) != sorted(name for group in targets for name in group):
            refuse(
                "shape",
                f"rearrange of {self.label} from {src_pattern} to {dst_pattern} does not name the same axes in both: name each axis once in each",
            )
        for group, size in zip(groups, self.shape, strict=True):
            unknown = [name for name in group if name not in sizes]
            known = prod(sizes[name] for name in group if name in sizes)
            if len(unknown) > 1 or (known and size % known) or (not unknown and known != size):
                refuse(
                    "shape",
                    f"rearrange of {self.label} splits an axis of {size} elements into {group}, whose sizes do not multiply to {size}: correct fixed_sizes",
                )
            sizes |= dict.fromkeys(unknown, size // known)
        split = self.reshape(tuple(sizes[name] for name in names))
        ordered = split.permute([names.index(name) for group in targets for name in group])
        return ordered.reshape(tuple(prod(sizes[name] for name in group) for group in targets))

    def indirect(self, index: object, num_elem: int | None = None) -> Tensor:
        """Return a tile with elements of each partition at run-time offsets (trn3).

        Sixteen partitions share their offsets: offset ``i`` is ``index[i % 16, i // 16]`` of their rows. On the chip,
        engines gather while they read. Here a separate gather writes the tile, which takes longer.
        """
        trace = current()
        if trace.chip.generation < 4:
            refuse("chip", f"{trace.chip.name} has no tensor indirection for .indirect()", "trace the kernel for trn3")
        if not isinstance(index, Tensor) or index.dtype_name in FLOAT_DTYPES or index.shape[:1] != self.shape[:1]:
            refuse(
                "index_type",
                "the index of .indirect() must be a tile of integers with the same number of partitions as the indexed tile",
            )
        if self.space is Space.HBM or index.space is not Space.SBUF:
            refuse("address_space", ".indirect() needs a tile on the chip, and an index in SBUF: copy them there first")
        most = GROUP * prod(index.shape[1:])
        count = min(index.size, most) if num_elem is None else operator.index(num_elem)
        if most < count <= 2 * most and index.shape[0] % 32 == 0:
            unsupported(
                f".indirect() with {count} offsets is not simulated: {most} fit sixteen partitions, and only matrix products "
                "share offsets among 32",
                "gather with nisa.nc_n_gather into a tile, and multiply that",
            )
        if not 0 < count <= most:
            refuse(
                "shape",
                f".indirect() got num_elem={count}, but the index holds {most} offsets for sixteen partitions: pass 1 to {most}",
            )
        trace.notice(".indirect() is timed as a gather of its own")
        return elementwise.gathered(self, index, count)

    def reinterpret_cast(self, dtype: object) -> Tensor:
        """Return a view of the same bits read as another dtype, as ``view(dtype)`` does."""
        return self.view(dtype)

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: object = None,
        vector_offset: object = None,
        indirect_dim: int = 0,
        dtype: object = None,
        **kwargs: Any,
    ) -> Tensor:
        """Return a view by an explicit access pattern ``[[stride, count], ...]`` over the tensor's storage.

        Strides and ``offset`` count elements of the whole flattened storage, even if this view selects only a part of
        it. Without ``offset`` the pattern begins at this view's first element. On chip the first pair runs over the
        partitions.

        ``scalar_offset`` (a register or a one-element tile) and ``vector_offset`` (a tile of indices) add run-time
        positions along ``indirect_dim`` of this view's shape. With a ``vector_offset`` the stride of the first pair
        has no effect.
        """
        line = current().line()
        if self.size != self.declared.elements or self._begin:
            current().session.need(".ap() of a part of a tensor", VIEW_PATTERN)
        if offset is not None and self._begin:
            # nki-aps says that an offset counts from the storage, the reference of NkiTensor that it is added (0.6)
            current().notice(
                f".ap(offset=...) of a part of {self.label} counts from the tensor's first element here; AWS's pages "
                "disagree whether it counts from the part's: call .ap() of the whole tensor"
            )
        if kwargs:
            raise UnsupportedCall(
                f"ap() with {', '.join(kwargs)} is not simulated", line=line, hint="leave the argument out"
            )
        if scalar_offset is not None and vector_offset is not None:
            raise LegalityError(
                "ap() got a scalar_offset and a vector_offset: pass one of them", rule="operand_type", line=line
            )
        if vector_offset is not None and (self.space is not Space.HBM or self._axis(indirect_dim) != 0):
            refuse(
                "index_type",
                f".ap() of {self.label} in {self.space.value} with a vector_offset along axis {indirect_dim}: only rows (axis 0) "
                "of a tensor in HBM can be gathered (NKI access patterns, 0.6)",
                "copy the tensor to HBM first, or use nisa.nc_n_gather or nisa.local_gather on chip",
            )
        scalar_offset = self._scalar(scalar_offset)
        pairs = self._pairs(pattern)
        if dtype is not None and DTYPE_BYTES[dtypes.dtype_name(dtype)] != DTYPE_BYTES[self.dtype_name]:
            return self._recast(pairs, offset, dtype)
        if vector_offset is not None and pairs:
            pairs[0] = (0, pairs[0][1])
        else:
            self._over_partitions(pairs)
        if isinstance(scalar_offset, LoopIndex):
            if self._axis(indirect_dim) == 0:
                self._free_axis(0, "a run-time offset")
            scalar_offset = scalar_offset.number
        first = self._begin if offset is None else _place(offset)
        if isinstance(scalar_offset, int | SampledIndex):
            first, scalar_offset = first + scalar_offset * self.strides[indirect_dim], None
        overrun = self._overrun(pairs, first) if scalar_offset is None and vector_offset is None else None
        access = self._placeholder(pairs) if overrun else self._pattern(pairs, first)
        run_time = scalar_offset if scalar_offset is not None else vector_offset
        if self.space is not Space.HBM and scalar_offset is not None and self._axis(indirect_dim) == 0:
            self._free_axis(0, "a run-time offset")
        extra = [] if run_time is None else [self._indirect(self._axis(indirect_dim), run_time)]
        made = self.like(replace(access, indirect=tuple(extra)))
        made.overrun = overrun or self.overrun
        return made if dtype is None else made.view(dtype)

    def _pairs(self, pattern: object) -> list[tuple[int, int]]:
        """Return the pairs (stride, count) of a pattern. Raise LegalityError for any other pattern."""
        rows = list(pattern) if isinstance(pattern, Iterable) and not isinstance(pattern, str | Tensor) else []
        if not rows or any(not isinstance(row, Sequence) or isinstance(row, str) or len(row) != 2 for row in rows):
            refuse(
                "access_pattern",
                f"the pattern of .ap() of {self.label} is no list of pairs",
                "write [[stride, count], ...], one pair for each axis of the view",
            )
        made = []
        for stride, count in rows:
            made.append((whole(stride, "a stride of .ap()"), whole(count, "a count of .ap()")))
        return made

    def _over_partitions(self, pairs: list[tuple[int, int]]) -> None:
        """Raise LegalityError for a pattern on chip whose first pair does not step from partition to partition."""
        row = prod(self.declared.shape[1:])
        if self.space is Space.HBM or not pairs or pairs[0][1] == 1:
            return
        step = pairs[0][0]
        if step < row or step % row:
            refuse(
                "access_pattern",
                f".ap() of {self.label} steps by {step} over partitions, but needs a multiple of {row}, the elements of a partition",
                f"write [[{row}, {pairs[0][1]}], ...]",
            )

    def _overrun(self, pairs: list[tuple[int, int]], offset: Any) -> tuple[int, int, int, int] | None:
        """Return the dimension along which an access pattern leaves the tensor, the first and the last element that
        the pattern reaches there, and the dimension's size.

        Return None if the pattern stays inside the tensor.
        """
        on_chip = self.space is not Space.HBM
        size = prod(self.declared.shape[on_chip:])
        low = offset % size if on_chip else offset
        high = low + sum(stride * (count - 1) for stride, count in pairs[on_chip:] if count)
        return (int(on_chip), int(low), int(high), size) if 0 <= low <= high and high >= size else None

    def _placeholder(self, pairs: list[tuple[int, int]]) -> Access:
        """Return an access of the pattern's shape that stays inside the tensor, for a pattern that does not
        fit.

        An instruction that uses the view is refused.
        """
        rank = len(self.declared.shape)
        dims = tuple(TileDim(count, (0,) * rank) for _, count in pairs)
        return Access(self.access.buffer, (Affine(0),) * rank, dims)

    def _recast(self, pairs: list[tuple[int, int]], offset: int | None, dtype: object) -> Tensor:
        """Return a view by an access pattern over the storage that reads the bits as a dtype of another width."""
        whole = cast("NkiTensor", current().tensor(whole_access(self.declared), self.scope))
        narrow = cast("NkiTensor", whole.view(dtype))
        return narrow.ap(pairs, offset)

    def _pattern(self, pairs: list[tuple[int, int]], offset: Any) -> Access:
        """Return the access for pairs (stride, count) and an offset in elements of the flattened tensor.

        On chip, the first pair runs over the partitions.
        """
        buffer = self.declared
        on_chip = self.space is not Space.HBM
        shape = buffer.shape
        lead = 1 if on_chip else 0
        sizes = shape[lead:]
        strides = [1] * len(sizes)
        for d in range(len(sizes) - 2, -1, -1):
            strides[d] = strides[d + 1] * sizes[d + 1]
        start: list[Any] = [0] * len(shape)
        rest = offset
        if on_chip:
            width = strides[0] * sizes[0]
            start[0], rest = divmod(offset, width)
        for d, stride in enumerate(strides):
            start[lead + d], rest = divmod(rest, stride)
        dims = []
        for place, (stride, count) in enumerate(pairs):
            steps = [0] * len(shape)
            if on_chip and place == 0:
                width = strides[0] * sizes[0]
                steps[0] = 0 if count == 1 else stride // width
            else:
                self._walk(stride, count, strides, sizes, steps, lead, start)
            dims.append(TileDim(count, tuple(steps)))
        return Access(buffer.id, tuple(n.base if isinstance(n, Expr) else Affine(n) for n in start), tuple(dims))

    def _walk(
        self,
        stride: int,
        count: int,
        strides: list[int],
        sizes: tuple[int, ...],
        steps: list[int],
        lead: int,
        start: list[Any],
    ) -> None:
        """Set in ``steps`` the step along the one dimension in which ``stride`` moves.

        If no single dimension has all ``count`` elements, record that the next trace has to give the buffer a single
        free dimension. Raise UnsupportedCall if the buffer has a single free dimension already.
        """
        if stride == 0 or count == 1:
            return
        for d, unit in enumerate(strides):
            if stride % unit == 0 and start[lead + d] + stride // unit * (count - 1) < sizes[d]:
                steps[lead + d] = stride // unit
                return
        trace = current()
        site = trace.sites[self.access.buffer]
        if site not in trace.flatten:
            trace.to_flatten.add(site)
            return
        unsupported(
            f".ap() of {self.label} has {count} elements {stride} apart, which leave its shape {self.declared.shape}",
            "keep each pair of the pattern inside one dimension of the tensor",
        )

    def _indirect(self, axis: int, value: object) -> Indirect:
        """Return the run-time position along an axis of the view. ``value`` is a register or a tile of
        integers.
        """
        trace = current()
        if isinstance(value, Tensor) and value.dtype_name in FLOAT_DTYPES:
            refuse("dtype", f"the run-time offset is a tile of {value.dtype_name}", "pass a tile of integers")
        if isinstance(value, Tensor) and value.space is not Space.SBUF:
            refuse(
                "address_space",
                f"the run-time offset is a tensor in {value.space.value} (NKI access patterns, 0.6)",
                "copy it to a tile in SBUF",
            )
        dim = self.access.dims[axis]
        moved = [(d, step) for d, step in enumerate(dim.steps) if step]
        stride, buffer = self._linear(dim), self.declared
        flat = 1 if self.space is not Space.HBM else 0
        alone = len(moved) == 1 and buffer.shape[moved[0][0]] == dim.count * moved[0][1]
        if not alone and len(buffer.shape) != flat + 1:
            site = trace.sites[self.access.buffer]
            if site not in trace.flatten:
                raise Retrace(flatten=frozenset({site}))
        where, scale = moved[0] if alone else (flat, stride)
        if isinstance(value, Register):
            if value.dtype == "int64" and self.space is not Space.HBM:
                refuse(
                    "dtype",
                    f"{self.label} is on chip and can not have an int64 offset",
                    "load the offset from an int32 tile",
                )
            return Indirect(dim=where, scale=scale, register=value.number)
        if isinstance(value, Tensor):
            return Indirect(dim=where, scale=scale, index=value.access, axis=0)
        refuse(
            "operand_type",
            f"the run-time offset must not be {type(value).__name__}",
            "pass a register or a tile of integers",
        )
