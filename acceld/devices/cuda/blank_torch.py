"""Replace torch while a kernel's host code runs: allocate memory and make views, without any data.

Tensors know their shape, strides, dtype and allocation. Anything that would compute raises BuildRefused, because a
kernel has to compute in its device code.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from acceld.evaluate.hosted.driver import BuildRefused

_SIZES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
_ALIASES = {"float": "float32", "half": "float16", "double": "float64", "int": "int32", "long": "int64"}
_SPACING = 1 << 40
"""Distance in bytes between the made-up addresses of allocations. All addresses are multiples of 16, because Triton
compiles different code for such addresses.
"""


def refused(what: str) -> BuildRefused:
    """Return the error for a call of torch that computes or needs data. ``what`` names the call."""
    return BuildRefused(
        f"{what} is not available to host code: host code may allocate, view and launch, without seeing data",
        rule="library",
        hint="Compute in a function decorated with triton.jit; grids and sizes come from shapes.",
    )


class dtype:
    """The replacement of ``torch.dtype``, the type of an element. Its text is the same as torch's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.itemsize = _SIZES[name]
        self.is_floating_point = "float" in name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Callable[[str], dtype], tuple[str]]:
        return _dtype, (self.name,)


dtype.__module__ = "torch"
_DTYPES = {name: dtype(name) for name in _SIZES}


def _dtype(name: str) -> dtype:
    return _DTYPES[name]


class device:
    """The replacement of ``torch.device``. The only device is ``cuda:0``."""

    type, index = "cuda", 0

    def __init__(self, *_: object) -> None:
        return None

    def __repr__(self) -> str:
        return "device(type='cuda', index=0)"

    def __str__(self) -> str:
        return "cuda:0"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) or str(other) in ("cuda", "cuda:0")

    def __hash__(self) -> int:
        return 0


device.__module__ = "torch"


class Size(tuple[int, ...]):
    """The replacement of ``torch.Size``, the shape of a tensor."""

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self)


class Allocation:
    """The memory of one input of the kernel, or the memory that one call of the host code allocates."""

    def __init__(self, kind: str, number: int, size_bytes: int, fill: int | None = None) -> None:
        self.kind, self.number, self.size_bytes, self.fill = kind, number, size_bytes, fill

    @property
    def address(self) -> int:
        """Return the made-up address of the first byte."""
        return _SPACING * (1 + self.number + (1 << 12 if self.kind == "buffer" else 0))


class Tensor:
    """A view of an allocation. ``place`` is the index of its first element in the allocation."""

    is_cuda, requires_grad, layout = True, False, "strided"

    def __init__(
        self, allocation: Allocation, kind: dtype, shape: Sequence[int], strides: Sequence[int], place: int = 0
    ) -> None:
        self.allocation, self.dtype = allocation, kind
        self.shape, self._strides, self._place = Size(shape), tuple(strides), place

    @property
    def device(self) -> device:
        return device()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> Tensor:
        return self.permute(*reversed(range(self.ndim)))

    @property
    def mT(self) -> Tensor:
        return self.transpose(-1, -2)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    def dim(self) -> int:
        return self.ndim

    def size(self, axis: int | None = None) -> Any:
        return self.shape if axis is None else self.shape[axis]

    def stride(self, axis: int | None = None) -> Any:
        return self._strides if axis is None else self._strides[axis]

    def numel(self) -> int:
        return math.prod(self.shape)

    def nelement(self) -> int:
        return self.numel()

    def element_size(self) -> int:
        return self.dtype.itemsize

    def storage_offset(self) -> int:
        return self._place

    def data_ptr(self) -> int:
        return self.allocation.address + self._place * self.dtype.itemsize

    def is_contiguous(self) -> bool:
        return self._strides == contiguous_strides(self.shape) or self.numel() == 0

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def contiguous(self) -> Tensor:
        if not self.is_contiguous():
            raise refused("contiguous() of a tensor that is not contiguous (a copy)")
        return self

    def detach(self) -> Tensor:
        return self

    def to(self, *wanted: Any, **named: Any) -> Tensor:
        for one in (*wanted, *named.values()):
            if isinstance(one, dtype) and one is not self.dtype:
                raise refused(f"to({one!r})")
        return self

    def cuda(self, *_: Any) -> Tensor:
        return self

    def view(self, *shape: Any) -> Tensor:
        sizes = list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
        if sizes and isinstance(sizes[0], dtype):
            raise refused("view with another dtype")
        if not self.is_contiguous():
            raise refused("view on a tensor that is not contiguous")
        if -1 in sizes:
            rest = math.prod(one for one in sizes if one != -1)
            sizes[sizes.index(-1)] = self.numel() // rest if rest else 0
        if math.prod(sizes) != self.numel():
            raise BuildRefused(
                f"a tensor of shape {tuple(self.shape)} can not be viewed as {tuple(sizes)}",
                rule="shape",
                hint="use sizes with the same number of elements",
            )
        return type(self)(self.allocation, self.dtype, sizes, contiguous_strides(sizes), self._place)

    def reshape(self, *shape: Any) -> Tensor:
        return self.view(*shape)

    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        last = end % self.ndim
        merged = math.prod(self.shape[start : last + 1])
        return self.view(*self.shape[:start], merged, *self.shape[last + 1 :])

    def permute(self, *axes: Any) -> Tensor:
        order = [one % self.ndim for one in (axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)]
        shape, strides = [self.shape[one] for one in order], [self._strides[one] for one in order]
        return type(self)(self.allocation, self.dtype, shape, strides, self._place)

    def transpose(self, one: int, other: int) -> Tensor:
        order = list(range(self.ndim))
        order[one], order[other] = order[other], order[one]
        return self.permute(*order)

    def t(self) -> Tensor:
        return self.T

    def unsqueeze(self, axis: int) -> Tensor:
        place = axis % (self.ndim + 1)
        shape, strides = list(self.shape), list(self._strides)
        shape.insert(place, 1)
        strides.insert(place, 1)
        return type(self)(self.allocation, self.dtype, shape, strides, self._place)

    def squeeze(self, axis: int | None = None) -> Tensor:
        gone = [n for n, one in enumerate(self.shape) if one == 1 and (axis is None or n == axis % self.ndim)]
        kept = [n for n in range(self.ndim) if n not in gone]
        shape, strides = [self.shape[n] for n in kept], [self._strides[n] for n in kept]
        return type(self)(self.allocation, self.dtype, shape, strides, self._place)

    def expand(self, *shape: int) -> Tensor:
        strides = [
            0 if had == 1 and want != 1 else stride
            for had, want, stride in zip(self.shape, shape, self._strides, strict=True)
        ]
        wanted = [had if want == -1 else want for had, want in zip(self.shape, shape, strict=True)]
        return type(self)(self.allocation, self.dtype, wanted, strides, self._place)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, keys: Any) -> Tensor:
        shape: list[int] = []
        strides: list[int] = []
        place, axis = self._place, 0
        for key in keys if isinstance(keys, tuple) else (keys,):
            if key is None:
                shape.append(1)
                strides.append(1)
                continue
            if isinstance(key, int):
                place += (key % self.shape[axis]) * self._strides[axis]
            elif isinstance(key, slice):
                start, stop, step = key.indices(self.shape[axis])
                place += start * self._strides[axis]
                shape.append(max(0, -(-(stop - start) // step)))
                strides.append(self._strides[axis] * step)
            else:
                raise refused("indexing with anything but numbers and slices")
            axis += 1
        shape += self.shape[axis:]
        strides += self._strides[axis:]
        return type(self)(self.allocation, self.dtype, shape, strides, place)

    def new_empty(self, *shape: Any, dtype: Any = None, device: object = None) -> Tensor:
        made: Tensor = sys.modules["torch"].empty(*shape, dtype=dtype or self.dtype)
        return made

    def new_zeros(self, *shape: Any, dtype: Any = None, device: object = None) -> Tensor:
        made: Tensor = sys.modules["torch"].zeros(*shape, dtype=dtype or self.dtype)
        return made

    def __bool__(self) -> bool:
        raise refused("the value of a tensor")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refused(f"Tensor.{name}")


Tensor.__module__ = "torch"


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous tensor of this shape."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))


class _Nothing:
    """The replacement of ``torch.no_grad`` and similar decorators and contexts. It does nothing."""

    def __call__(self, function: Any = None) -> Any:
        return self if function is None else function

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


class BlankTorch(ModuleType):
    """The replacement of the module torch. ``allocations`` lists the memory that the host code allocated, in order."""

    tensor_class = Tensor
    allocation_class = Allocation

    def __init__(self, multiprocessors: int, capability: int) -> None:
        super().__init__("torch")
        self.allocations: list[Allocation] = []
        self.Tensor, self.dtype, self.device, self.Size = self.tensor_class, dtype, device, Size
        self.no_grad = self.inference_mode = self.enable_grad = _Nothing()
        for name, kind in _DTYPES.items():
            setattr(self, name, kind)
        for name, meant in _ALIASES.items():
            setattr(self, name, _DTYPES[meant])
        self.__version__ = "2.0.0+blank"
        self.__path__ = []
        self.cuda = ModuleType("torch.cuda")
        properties = ModuleType("torch.cuda.properties")
        properties.__dict__.update(multi_processor_count=multiprocessors, major=capability // 10, minor=capability % 10)
        self.cuda.__dict__.update(
            is_available=lambda: True,
            current_device=lambda: 0,
            device_count=lambda: 1,
            get_device_properties=lambda *_: properties,
            get_device_capability=lambda *_: (capability // 10, capability % 10),
            device=lambda *_: _Nothing(),
            __getattr__=_no_cuda,
        )

    def empty(self, *shape: Any, dtype: Any = None, device: object = None, **_: Any) -> Tensor:
        """Return a stand-in tensor of uninitialized memory."""
        return self._allocate(shape, dtype, None)

    def zeros(self, *shape: Any, dtype: Any = None, device: object = None, **_: Any) -> Tensor:
        """Return a stand-in tensor of memory that is filled with zeros before the first launch."""
        return self._allocate(shape, dtype, 0)

    def empty_like(self, tensor: Tensor, dtype: Any = None, **_: Any) -> Tensor:
        """Return a stand-in tensor of uninitialized memory in the shape of ``tensor``."""
        return self._allocate(tuple(tensor.shape), dtype or tensor.dtype, None)

    def zeros_like(self, tensor: Tensor, dtype: Any = None, **_: Any) -> Tensor:
        """Return a stand-in tensor of memory filled with zeros, in the shape of ``tensor``."""
        return self._allocate(tuple(tensor.shape), dtype or tensor.dtype, 0)

    def is_tensor(self, one: object) -> bool:
        """Return True if the value is a stand-in tensor."""
        return isinstance(one, Tensor)

    def _allocate(self, shape: Sequence[Any], kind: Any, fill: int | None) -> Tensor:
        sizes = list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
        kind = kind if kind is not None else _DTYPES["float32"]
        if not isinstance(kind, dtype) or any(not isinstance(one, int) or one < 0 for one in sizes):
            raise BuildRefused(
                f"a tensor can not have the shape {sizes} and the type {kind!r}: sizes are whole numbers, and the type is a dtype of torch",
                rule="shape",
            )
        allocation = self.allocation_class("buffer", len(self.allocations), math.prod(sizes) * kind.itemsize, fill)
        self.allocations.append(allocation)
        return self.tensor_class(allocation, kind, sizes, contiguous_strides(sizes))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise refused(f"torch.{name}")


def _no_cuda(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise refused(f"torch.cuda.{name}")


def tensor_of(number: int, shape: Sequence[int], kind: str) -> Tensor:
    """Return a contiguous stand-in tensor for the kernel's input ``number``. ``kind`` names the element type."""
    size = math.prod(shape) * _SIZES[kind]
    return Tensor(Allocation("input", number, size), _DTYPES[kind], shape, contiguous_strides(shape))
