"""Define the tensors and tiles of a kernel as strided views of buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from acceld.nki.frontend.core import dtypes
from acceld.nki.frontend.core.context import current, refuse
from acceld.nki.frontend.session import Site
from acceld.nki.ir.builder import Slot
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.program import Access, Buffer, Space


class ParDim(int):
    """The size of the partition dimension in the shape of an on-chip tensor: ``nl.par_dim(n)``."""


@dataclass(slots=True)
class Alias:
    """The facts about a renamed result, whose instruction now writes into a part of another tensor.

    ``site`` is the position of the assignment that renamed the result. ``access`` is the written part,
    ``sequence`` the number of the write, ``scope`` the loops around the write. ``reads`` has, for each later
    read of the result in other loops, the loops around the read.
    """

    site: Site
    access: Access
    sequence: int
    scope: tuple[int, ...]
    reads: list[tuple[int, ...]] = field(default_factory=list)


@dataclass(slots=True)
class Produced:
    """The instruction that computed a result. The result still has a buffer of its own, so it may be renamed.

    The result is the instruction's first destination. ``slot`` is the instruction's position in the program,
    ``sequence`` its number.
    """

    slot: Slot
    sequence: int
    siblings: tuple[Slot, ...] = ()
    """Positions of further instructions that write the same result."""


class Tensor:
    """A view of a buffer: a declared tensor, an indexed part of one, or the result of an instruction.

    ``access.dims`` are the view's axes. The first axis of an on-chip tensor without block dimensions is the
    partition axis.
    """

    __slots__ = ("access", "alias", "overrun", "padded", "produced", "scope", "whole")

    def __init__(self, access: Access, scope: tuple[int, ...], *, produced: Produced | None = None) -> None:
        self.access = access
        self.scope = scope
        self.produced = produced
        self.alias: Alias | None = None
        self.overrun: tuple[int, int, int, int] | None = None
        self.padded: int | None = None
        self.whole = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.access.shape

    @property
    def ndim(self) -> int:
        return len(self.access.dims)

    @property
    def dtype(self) -> Any:
        return dtypes.EVERY[self.dtype_name]

    @property
    def itemsize(self) -> int:
        return DTYPE_BYTES[self.dtype_name]

    @property
    def size(self) -> int:
        return self.access.elements

    @property
    def buffer(self) -> Space:
        return self.space

    def __repr__(self) -> str:
        text = f"{self.label}[{', '.join(map(str, self.shape))}] {self.dtype_name} in {self.space}"
        return current().session.text_of(text)

    @property
    def declared(self) -> Buffer:
        """Return the buffer that the view belongs to."""
        return current().builder.buffers[self.access.buffer]

    @property
    def space(self) -> Space:
        """Return the memory that holds the tensor."""
        return self.declared.space

    @property
    def dtype_name(self) -> str:
        """Return the name of the element type in Programs, such as ``float32``."""
        return self.access.dtype or self.declared.dtype

    @property
    def label(self) -> str:
        """Return the tensor's name in quotes for messages; ``a tile`` if it has no name."""
        return f"'{self.declared.name}'" if self.declared.name else "a tile"

    def like(self, access: Access) -> Self:
        """Return a view of the same buffer through another ``access``.

        After this call, an assignment of this tensor copies the elements and does not rename the result, because the
        new view reads the same buffer.
        """
        self.produced = None
        made = type(self)(access, self.scope)
        made.alias, made.overrun = self.alias, self.overrun
        return made


def on_chip(tensor: Tensor, name: str, call: str) -> Tensor:
    """Return ``tensor`` if an engine can read it.

    Raise LegalityError for a tensor in HBM, with fewer than two axes, or whose partition axis is not the first.
    ``name`` and ``call`` name the operand and the NKI function in messages.
    """
    if tensor.space is Space.HBM:
        refuse(
            "address_space",
            f"Expected operand '{name}' of '{call}' to be in address space 'sbuf' or 'psum', but got a tile in 'hbm' instead.",
            "load it with nl.load first",
        )
    at = tensor.declared.partition_axis
    if tensor.ndim < 2:
        refuse(
            "insufficient_rank",
            f"Insufficient rank: operand '{name}' of '{call}' has shape {tensor.shape}",
            "pass a tile with a partition and at least one free dimension",
        )
    if any(dim.steps[at] and dim.count > 1 for dim in tensor.access.dims[1:]):
        refuse(
            "partition_axis",
            f"the partition dimension of operand '{name}' of '{call}' is not its first",
            "index the block dimensions with single values and the partition dimension first",
        )
    return tensor
