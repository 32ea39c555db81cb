"""Tensors and tiles of a legacy kernel: strided views of buffers, and what assigning to them means."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

from acceld.nki.builder import Slot
from acceld.nki.errors import LegalityError, UnsupportedCall
from acceld.nki.legacy import dtypes
from acceld.nki.legacy.index import DynamicSlice, Expr, as_int, broadcast
from acceld.nki.legacy.state import Alias, Retrace, Trace, current
from acceld.nki.ops import DTYPE_BYTES, FLOAT_DTYPES
from acceld.nki.program import Access, Affine, Buffer, Engine, Indirect, Role, Space, TileDim
from acceld.nki.session import Site, assigned_name, call_site

MAX_PARTITIONS = 128
MAX_HBM_BYTES = 16 * 2**30
CASTING_OPS = frozenset(
    "activation activate2 tensor_tensor tensor_scalar scalar_tensor_tensor reciprocal tensor_reduce scan select memset".split()
)
"""Operations that compute in float32 and round once when they write, whatever the destination's type."""
IN_PLACE_OPS = frozenset("activation tensor_tensor tensor_scalar scalar_tensor_tensor reciprocal select copy".split())
"""Operations that may write where they read, position by position."""


class ParDim(int):
    """``nl.par_dim(n)``: marks the partition dimension of an on-chip tensor."""


@dataclass(slots=True)
class Produced:
    """The instruction that made a result which still has a buffer of its own."""

    slot: Slot
    position: int
    sequence: int


class Tensor:
    """A view of a buffer: a declared tensor, an index into one, or the result of an instruction.

    ``access.dims`` are its axes; of an on-chip tensor without block dimensions the first is the partition axis.
    """

    __slots__ = ("access", "alias", "overrun", "produced", "scope", "whole")
    __array_ufunc__ = None

    def __init__(self, access: Access, scope: tuple[int, ...], *, produced: Produced | None = None) -> None:
        self.access = access
        self.scope = scope
        self.produced = produced
        self.alias: Alias | None = None
        self.overrun: tuple[int, int, int, int] | None = None
        self.whole = False

    # what kernels see

    @property
    def shape(self) -> tuple[int, ...]:
        return self.access.shape

    @property
    def ndim(self) -> int:
        return len(self.access.dims)

    @property
    def dtype(self) -> Any:
        return dtypes.NAMED[self.dtype_name]

    @property
    def itemsize(self) -> int:
        return DTYPE_BYTES[self.dtype_name]

    @property
    def size(self) -> int:
        return self.access.elements

    @property
    def buffer(self) -> Space:
        return self.space

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[object]:
        raise LegalityError(
            f"{self.label} can not be iterated over",
            rule="tile_value",
            line=current().line(),
            hint="index it in a loop",
        )

    def __bool__(self) -> bool:
        raise LegalityError(
            "control flow depending on a tensor's value is not supported",
            rule="control_flow",
            line=current().line(),
            hint="use masks, nl.where or a predicated copy",
        )

    def __repr__(self) -> str:
        return f"{self.label}[{', '.join(map(str, self.shape))}] {self.dtype_name} in {self.space}"

    # what the front end sees

    @property
    def declared(self) -> Buffer:
        """The buffer this is a view of."""
        return current().builder.buffers[self.access.buffer]

    @property
    def space(self) -> Space:
        """Where it lives."""
        return self.declared.space

    @property
    def dtype_name(self) -> str:
        """The program's name of its type."""
        return self.access.dtype or self.declared.dtype

    @property
    def label(self) -> str:
        """Its name for messages."""
        return f"'{self.declared.name}'" if self.declared.name else "a tile"

    def like(self, access: Access) -> Tensor:
        """Another view of the same buffer."""
        self.produced = None
        made = type(self)(access, self.scope)
        made.alias, made.overrun = self.alias, self.overrun
        return made

    def __getitem__(self, key: object) -> Tensor:
        return select(self, key)

    def __setitem__(self, key: object, value: object) -> None:
        assign(select(self, key), value)

    def broadcast_to(self, *shape: Any) -> Tensor:
        """A view repeated along axes of one element; the partition axis is repeated by an instruction."""
        from acceld.nki.legacy import elementwise

        return elementwise.broadcast_to(
            self, shape=shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        )

    def expand_dims(self, axis: int) -> Tensor:
        """A view with an axis of one element at ``axis``."""
        at = axis if axis >= 0 else axis + self.ndim + 1
        dims = list(self.access.dims)
        dims.insert(at, TileDim(1, (0,) * len(self.declared.shape)))
        return self.like(replace(self.access, dims=tuple(dims)))

    def reshape(self, *args: Any, shape: Any = None) -> Tensor:
        """A view of the same elements, in C order, in another shape."""
        wanted = shape if shape is not None else args[0] if len(args) == 1 and not isinstance(args[0], int) else args
        return reshape(self, tuple(operator.index(n) for n in wanted))

    def view(self, dtype: object) -> Tensor:
        """The same bits as another type of the same width."""
        name = dtypes.dtype_name(dtype)
        if DTYPE_BYTES[name] != DTYPE_BYTES[self.dtype_name]:
            raise UnsupportedCall(f"view of {self.dtype_name} as {name}: the widths differ", line=current().line())
        return self.like(replace(self.access, dtype=name))

    def astype(self, dtype: object) -> Tensor:
        """A copy in another type."""
        from acceld.nki.legacy import elementwise

        return elementwise.copy(self, dtype=dtype)

    def assert_shape(self, shape: Sequence[int]) -> Tensor:
        """Itself, after checking its shape."""
        if tuple(shape) != self.shape:
            raise LegalityError(
                f"{self.label} has shape {self.shape}, not {tuple(shape)}", rule="shape", line=current().line()
            )
        return self

    def _binary(self, name: str, other: object, *, reverse: bool = False) -> Tensor:
        from acceld.nki.legacy import elementwise

        return elementwise.binary(name, other, self) if reverse else elementwise.binary(name, self, other)

    def _update(self, name: str, other: object) -> Any:
        from acceld.nki.legacy import elementwise

        return elementwise.update(name, self, other)

    def __add__(self, other: object) -> Tensor:
        return self._binary("add", other)

    def __radd__(self, other: object) -> Tensor:
        return self._binary("add", other, reverse=True)

    def __sub__(self, other: object) -> Tensor:
        return self._binary("subtract", other)

    def __rsub__(self, other: object) -> Tensor:
        return self._binary("subtract", other, reverse=True)

    def __mul__(self, other: object) -> Tensor:
        return self._binary("multiply", other)

    def __rmul__(self, other: object) -> Tensor:
        return self._binary("multiply", other, reverse=True)

    def __truediv__(self, other: object) -> Tensor:
        return self._binary("divide", other)

    def __rtruediv__(self, other: object) -> Tensor:
        return self._binary("divide", other, reverse=True)

    def __pow__(self, other: object) -> Tensor:
        return self._binary("power", other)

    def __rpow__(self, other: object) -> Tensor:
        return self._binary("power", other, reverse=True)

    def __mod__(self, other: object) -> Tensor:
        return self._binary("mod", other)

    def __and__(self, other: object) -> Tensor:
        return self._binary("bitwise_and", other)

    def __or__(self, other: object) -> Tensor:
        return self._binary("bitwise_or", other)

    def __xor__(self, other: object) -> Tensor:
        return self._binary("bitwise_xor", other)

    def __lshift__(self, other: object) -> Tensor:
        return self._binary("left_shift", other)

    def __rshift__(self, other: object) -> Tensor:
        return self._binary("right_shift", other)

    def __lt__(self, other: object) -> Tensor:
        return self._binary("less", other)

    def __le__(self, other: object) -> Tensor:
        return self._binary("less_equal", other)

    def __gt__(self, other: object) -> Tensor:
        return self._binary("greater", other)

    def __ge__(self, other: object) -> Tensor:
        return self._binary("greater_equal", other)

    def __eq__(self, other: object) -> Any:
        return self._binary("equal", other) if isinstance(other, Tensor | int | float) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return self._binary("not_equal", other) if isinstance(other, Tensor | int | float) else NotImplemented

    __hash__ = object.__hash__

    def __neg__(self) -> Tensor:
        return self._binary("multiply", -1.0)

    def __invert__(self) -> Tensor:
        from acceld.nki.legacy import elementwise

        return elementwise.unary("invert", self)

    def __iadd__(self, other: object) -> Any:
        return self._update("add", other)

    def __isub__(self, other: object) -> Any:
        return self._update("subtract", other)

    def __imul__(self, other: object) -> Any:
        return self._update("multiply", other)

    def __itruediv__(self, other: object) -> Any:
        return self._update("divide", other)


def declare(
    trace: Trace,
    shape: Sequence[object],
    dtype: str,
    space: Space,
    *,
    name: str = "",
    role: Role = Role.SCRATCH,
    data: bytes | None = None,
    scope: tuple[int, ...] | None = None,
    address: tuple[int, int] | None = None,
    site: Site | None = None,
) -> Tensor:
    """A new buffer and the view of all of it. LegalityError for a shape the chip can not hold."""
    sizes = tuple(operator.index(cast("Any", n)) for n in shape)
    line = trace.line()
    if any(n < 0 for n in sizes):
        raise LegalityError(f"negative size in shape {sizes}", rule="shape", line=line)
    axis = -1
    if space is not Space.HBM:
        marked = [k for k, n in enumerate(shape) if isinstance(n, ParDim)]
        axis = marked[0] if marked else 0
        if len(sizes) < 2:
            raise LegalityError(
                f"Insufficient rank: an on-chip tensor needs a partition and a free dimension, not {sizes}",
                rule="insufficient_rank",
                line=line,
                hint="use (1, n) or (n, 1)",
            )
        if sizes[axis] > MAX_PARTITIONS:
            raise LegalityError(
                f"number of partitions {sizes[axis]} exceed architecture limitation of {MAX_PARTITIONS}",
                rule="partition_limit",
                line=line,
                hint="tile the partition dimension by 128" + ("" if marked else ", or mark it with nl.par_dim"),
            )
        if axis > 0 and trace.session.options.strict_block_dims:
            raise LegalityError(
                "block dimensions are not allowed",
                rule="block_dim",
                line=line,
                hint="use one tensor a block, or the free axis",
            )
    elif prod(sizes) * DTYPE_BYTES[dtype] > MAX_HBM_BYTES:
        raise LegalityError(
            f"a tensor of shape {sizes} takes more than {MAX_HBM_BYTES >> 30} GiB of HBM",
            rule="hbm_capacity",
            line=line,
        )
    buffer = trace.builder.buffer(
        name or assigned_name(), space, dtype, sizes, partition_axis=axis, role=role, line=line, address=address, data=data,
        scope=scope,
    )  # fmt: skip
    tensor = trace.tensor(whole_access(buffer), buffer.scope)
    tensor.whole = True
    return tensor


def whole_access(buffer: Buffer) -> Access:
    """All of a buffer, one tile axis a dimension."""
    rank = len(buffer.shape)
    dims = tuple(TileDim(n, tuple(int(d == k) for d in range(rank))) for k, n in enumerate(buffer.shape))
    return Access(buffer.id, (Affine(),) * rank, dims)


def _add_scaled(start: list[Affine], steps: tuple[int, ...], by: Affine) -> None:
    for d, step in enumerate(steps):
        if step:
            start[d] = start[d] + by.scale(step)


def select(tensor: Tensor, key: object) -> Tensor:
    """``tensor[key]``. LegalityError where the index mixes forms or does not fit."""
    trace = current()
    keys = list(key) if isinstance(key, tuple) else [key]
    if len(keys) == 1 and keys[0] is Ellipsis:
        return tensor
    _check_open(trace, keys)
    if any(k is Ellipsis for k in keys):
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        named = sum(k is not None and k is not Ellipsis for k in keys)
        keys[at : at + 1] = [slice(None)] * (tensor.ndim - named)
    if sum(k is not None for k in keys) > tensor.ndim:
        raise LegalityError(
            f"too many indices for {tensor.label} of shape {tensor.shape}", rule="index_rank", line=trace.line()
        )
    advanced = [k for k in keys if (isinstance(k, Expr) and k.shape) or isinstance(k, Tensor)]
    if advanced:
        if any(isinstance(k, slice | DynamicSlice) or k is None for k in keys):
            raise LegalityError(
                "unsupported mixing of basic and advanced indexing: slices can not stand beside nl.arange or nl.mgrid",
                rule="mixed_indexing",
                line=trace.line(),
                hint="use nl.arange for each axis, or slices and nl.ds for each",
            )
        return _advanced(trace, tensor, keys)
    return _basic(trace, tensor, keys)


def _check_open(trace: Trace, keys: list[object]) -> None:
    for k in keys:
        parts = (k.start, k.stop) if isinstance(k, slice) else (k.start,) if isinstance(k, DynamicSlice) else (k,)
        for part in parts:
            if isinstance(part, Expr) and any(loop not in trace.scope for loop, _ in part.base.terms):
                raise LegalityError(
                    f"the loop variable in {part!r} is used outside of its loop", rule="local_scope", line=trace.line()
                )


def _basic(trace: Trace, tensor: Tensor, keys: list[object]) -> Tensor:
    rank = len(tensor.declared.shape)
    start, dims = list(tensor.access.start), list[TileDim]()
    partition = tensor.declared.partition_axis
    axis, overrun = 0, tensor.overrun
    integer_at: list[int] = []
    keys = keys + [slice(None)] * (tensor.ndim - sum(k is not None for k in keys))
    for key in keys:
        if key is None:
            dims.append(TileDim(1, (0,) * rank))
            continue
        dim = tensor.access.dims[axis]
        axis += 1
        size: int
        begin: Expr | int
        if isinstance(key, slice | DynamicSlice):
            begin, size, step = _span(trace, key, dim.count)
            dims.append(TileDim(size, tuple(s * step for s in dim.steps)))
            low, high = _reach(begin, (size - 1) * step)
        else:
            position = key if isinstance(key, Expr) else as_int(key)
            if position is None:
                raise LegalityError(
                    f"{tensor.label} can not be indexed with {type(key).__name__}", rule="index_type", line=trace.line()
                )
            begin = position + dim.count if isinstance(position, int) and position < 0 else position
            low, high = _reach(begin, 0)
            if partition >= 0 and dim.steps[partition]:
                dims.append(TileDim(1, dim.steps))
            else:
                integer_at.append(len(dims))
        if overrun is None and (low < 0 or high >= dim.count) and dim.count:
            overrun = (axis - 1, low, high, dim.count)
        _add_scaled(start, dim.steps, begin.base if isinstance(begin, Expr) else Affine(begin))
    if len(dims) == 0:
        dims = [TileDim(1, (0,) * rank), TileDim(1, (0,) * rank)]
    elif len(dims) == 1 and integer_at:
        dims.insert(0 if integer_at[-1] == 0 else 1, TileDim(1, (0,) * rank))
    made = tensor.like(replace(tensor.access, start=tuple(start), dims=tuple(dims)))
    made.overrun = overrun
    return made


def _reach(begin: Expr | int, extent: int) -> tuple[int, int]:
    low, high = begin.bounds() if isinstance(begin, Expr) else (begin, begin)
    return low + min(0, extent), high + max(0, extent)


def _span(trace: Trace, key: slice | DynamicSlice, count: int) -> tuple[Expr | int, int, int]:
    """Begin, size and step of a slice of an axis of ``count`` elements."""
    if isinstance(key, DynamicSlice):
        begin = key.start if isinstance(key.start, Expr) else operator.index(cast("Any", key.start))
        return begin, key.size, 1
    if not isinstance(key.start, Expr) and not isinstance(key.stop, Expr):
        limits = slice(*(None if part is None else operator.index(part) for part in (key.start, key.stop, key.step)))
        begin, stop, step = limits.indices(count)
        if step < 0:
            raise LegalityError("a slice with a negative step is not supported", rule="index_type", line=trace.line())
        size = len(range(begin, stop, step))
        if limits.stop is not None and limits.stop > count and limits.stop > begin:
            size = len(range(begin, limits.stop, step))  # beyond the end: kept, so that it is refused or masked
        return begin, size, step
    step = operator.index(key.step) if key.step is not None else 1
    first = key.start if key.start is not None else 0
    last = key.stop if key.stop is not None else count
    extent = as_int(last - first)
    if extent is None:
        raise LegalityError(
            "the size of a slice must not depend on a loop variable",
            rule="symbolic_index",
            line=trace.line(),
            hint="take a slice of constant size with nl.ds(start, size) and mask the rest",
        )
    return first, max(0, -(-extent // step)), step


def _advanced(trace: Trace, tensor: Tensor, keys: list[object]) -> Tensor:
    rank = len(tensor.declared.shape)
    if len(keys) != tensor.ndim:
        raise LegalityError(
            f"{tensor.label} has {tensor.ndim} dimensions, the index has {len(keys)}",
            rule="index_rank",
            line=trace.line(),
            hint="index every dimension when nl.arange is used",
        )
    start, overrun = list(tensor.access.start), tensor.overrun
    shapes = [k.shape for k in keys if isinstance(k, Expr | Tensor)]
    shape = broadcast(*shapes)
    steps = [[0] * rank for _ in shape]
    indirect = list(tensor.access.indirect)
    for axis, (key, dim) in enumerate(zip(keys, tensor.access.dims, strict=True)):
        if isinstance(key, Tensor):
            indirect.append(_gathered(trace, tensor, key, dim, shape))
            continue
        if isinstance(key, Expr):
            low, high = key.bounds()
            _add_scaled(start, dim.steps, key.base)
            for k, coef in enumerate(key.over(shape)):
                if coef:
                    for d, step in enumerate(dim.steps):
                        steps[k][d] += coef * step
        else:
            number = as_int(key)
            if number is None:
                raise LegalityError(
                    f"{tensor.label} can not be indexed with {type(key).__name__}", rule="index_type", line=trace.line()
                )
            number = number + dim.count if number < 0 else number
            low = high = number
            _add_scaled(start, dim.steps, Affine(number))
        if overrun is None and (low < 0 or high >= dim.count):
            overrun = (axis, low, high, dim.count)
    dims = tuple(TileDim(count, tuple(step)) for count, step in zip(shape, steps, strict=True))
    made = tensor.like(replace(tensor.access, start=tuple(start), dims=dims, indirect=tuple(indirect)))
    made.overrun = overrun
    return made


def _gathered(trace: Trace, tensor: Tensor, index: Tensor, dim: TileDim, shape: tuple[int, ...]) -> Indirect:
    """The run-time index that a tile of integers is for one dimension of ``tensor``."""
    places = [(d, step) for d, step in enumerate(dim.steps) if step]
    if len(places) != 1:
        raise UnsupportedCall("an index tile for a reshaped dimension", line=trace.line())
    long = [k for k, count in enumerate(index.shape) if count > 1]
    if len(long) > 1:
        raise UnsupportedCall("an index tile with two axes", line=trace.line(), hint="index with a (P, 1) tile")
    if index.dtype_name in FLOAT_DTYPES:
        raise LegalityError(
            f"an index tile must hold integers, not {index.dtype_name}", rule="dtype", line=trace.line()
        )
    lead = len(shape) - len(index.shape)
    return Indirect(places[0][0], places[0][1], index=index.access, axis=lead + long[0] if long else 0)


def reshape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view of the elements in C order in ``shape``. UnsupportedCall where it is no strided view."""
    trace = current()
    if -1 in shape:
        rest = -prod(shape)
        shape = tuple(prod(tensor.shape) // rest if n == -1 else n for n in shape)
    if prod(shape) != prod(tensor.shape):
        raise LegalityError(
            f"{tensor.label} of shape {tensor.shape} can not be reshaped to {shape}", rule="shape", line=trace.line()
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
        merged = _merge(olds)
        if merged is None:
            raise UnsupportedCall(
                f"reshape of {tensor.label} from {tensor.shape} to {shape}: its elements are no strided view",
                line=trace.line(),
            )
        inner = 1
        for offset, count in enumerate(reversed(news), start=1):
            dims[fill[position - offset]] = TileDim(count, tuple(step * inner for step in merged))
            inner *= count
    return tensor.like(replace(tensor.access, dims=tuple(dims)))


def _merge(dims: list[TileDim]) -> tuple[int, ...] | None:
    """The steps of one axis that runs through all of ``dims``, None where there is none."""
    steps = dims[-1].steps
    inner = dims[-1].count
    for dim in reversed(dims[:-1]):
        if dim.steps != tuple(step * inner for step in steps):
            return None
        inner *= dim.count
    return steps


def squeeze(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without axes of one element."""
    return tuple(n for n in shape if n != 1)


def conform(tensor: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """``tensor`` with axes of one element added or dropped so that its shape is ``shape``; None where it can not be."""
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


def assign(target: Tensor, value: object) -> None:
    """``target[...] = value``: the result's instruction is made to write here, or a copy is emitted."""
    from acceld.nki.legacy import elementwise

    trace = current()
    if target.space is Space.HBM:
        raise LegalityError(
            f"Expected operand 'dst' of assignment to be in address space 'sbuf' or 'psum', but {target.label} is in 'hbm'",
            rule="address_space",
            line=trace.line(),
            hint="write to HBM with nl.store",
        )
    if not isinstance(value, Tensor):
        number = elementwise.as_number(value)
        if number is None:
            raise LegalityError(
                f"{type(value).__name__} can not be assigned to {target.label}", rule="operand_type", line=trace.line()
            )
        trace.emit("memset", Engine.UNKNOWN, [target], [number])
        return
    if value.access == target.access:
        return
    if value.space is Space.HBM:
        raise LegalityError(
            f"Expected the value assigned to {target.label} to be in address space 'sbuf' or 'psum', but got a tile in 'hbm'",
            rule="address_space",
            line=trace.line(),
            hint="load it with nl.load first",
        )
    placed = conform(target, value.shape)
    if placed is None:
        source = elementwise.expand(value, target.shape)
        if source is None:
            raise LegalityError(
                f"a tile of shape {value.shape} can not be assigned to {target.label} of shape {target.shape}",
                rule="shape",
                line=trace.line(),
            )
        elementwise.emit_copy(target, source)
        return
    if not rename(trace, placed, value):
        elementwise.emit_copy(placed, value)


def rename(trace: Trace, target: Tensor, value: Tensor) -> bool:
    """Make the instruction that produced ``value`` write ``target``; False where that would change the meaning."""
    produced, site = value.produced, call_site()
    if produced is None or site in trace.keep or target.overrun is not None:
        return False
    if not produced.slot.is_in_open_body(trace.builder):
        return False
    instruction = produced.slot.instruction
    if instruction.op == "loop_reduce":
        loops = set(cast("tuple[int, ...]", instruction.attr("loops")))
        if loops & set(target.scope):
            return False
    if instruction.op.startswith(("dma", "iota", "affine_select", "shuffle")) and target.space is Space.PSUM:
        return False
    if value.space is Space.PSUM and instruction.op in ("matmul", "transpose") and target.space is not Space.PSUM:
        return False
    if value.dtype_name != target.dtype_name and not (
        value.dtype_name == "float32" and instruction.op in CASTING_OPS and target.dtype_name in FLOAT_DTYPES
    ):
        return False
    if value.dtype_name != target.dtype_name and instruction.op == "memset":
        return False
    buffer = target.access.buffer
    if trace.touched.get(buffer, -1) > produced.sequence or trace.touched[value.access.buffer] > produced.sequence:
        return False
    own = [src for src in instruction.accesses[: -len(instruction.dsts)] if src.buffer == buffer]
    if own and (instruction.op not in IN_PLACE_OPS or any(src != target.access for src in own)):
        return False
    reduced = cast("tuple[int, ...]", instruction.attr("loops") or ())
    accumulated = instruction.attr("accumulate") == "yes"
    if not accumulated:
        trace.check_dependencies(target, instruction.mask, reduced)
    dsts = list(instruction.dsts)
    dsts[produced.position] = target.access
    produced.slot.replace(replace(instruction, dsts=tuple(dsts)))
    trace.sequence += 1
    trace.touched[buffer] = trace.sequence
    trace.writes.setdefault(buffer, []).append((trace.sequence, target.access))
    if instruction.op != "matmul":
        trace.engines_written.add(buffer)
    value.access, value.scope, value.produced = target.access, target.scope, None
    value.alias = Alias(site, target.access, trace.sequence, trace.scope)
    trace.aliases.setdefault(buffer, []).append(value.alias)
    return True


def fresh(
    trace: Trace,
    shape: Sequence[int],
    dtype: str,
    space: Space,
    *,
    scope: tuple[int, ...] | None = None,
    name: str = "",
) -> Tensor:
    """A tile for the result of the instruction about to be emitted."""
    sizes = tuple(shape)
    if len(sizes) < 2:
        sizes = (*sizes, *(1,) * (2 - len(sizes)))
    return declare(trace, sizes, dtype, space, scope=scope, name=name)


def mark_produced(trace: Trace, tensor: Tensor, slot: Slot, position: int = 0) -> Tensor:
    """Remember that ``tensor`` is what the instruction in ``slot`` writes, so that an assignment may redirect it."""
    tensor.produced = Produced(slot, position, trace.sequence)
    return tensor


__all__ = ["ParDim", "Retrace", "Tensor", "assign", "declare", "fresh", "mark_produced", "reshape", "select"]
