"""Provide ``neuronxcc.nki.compiler``: explicit addresses of tensors, and directives that a trace ignores."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from math import prod
from typing import Any, Self, cast

from acceld.chips import LEGACY_RESERVED_SBUF_BYTES
from acceld.nki.errors import UnsupportedCall
from acceld.nki.frontend.core import memory
from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.memory import BufferKind
from acceld.nki.frontend.core.state import Trace, current
from acceld.nki.frontend.core.tensor import ParDim
from acceld.nki.frontend.session import Session, call_place
from acceld.nki.ir.codec import MAX_BLOCKS
from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.program import Space

Place = tuple[int, int]


class Placement:
    """The addresses of a tensor's tiles, for the ``buffer=`` argument of ``nl.ndarray``.

    ``locate`` returns (start partition, byte offset) for a tile. Its arguments are the tile's block index, its
    number of partitions and its bytes in each partition.
    """

    def __init__(
        self, kind: BufferKind, locate: Callable[[tuple[int, ...], int, int], Place] | None, tiles: int | None
    ) -> None:
        self.buffer_kind = kind
        self._locate = locate
        self._tiles = tiles

    def places(self, trace: Trace, shape: tuple[object, ...], dtype: str) -> tuple[Place, ...]:
        """Return (start partition, byte offset) of each tile of the tensor, in the order of its blocks; () if
        the compiler chooses the addresses.

        Raise LegalityError if a tile lies outside of the chip's memory.
        """
        if self._locate is None:
            return ()
        sizes = tuple(operator.index(cast("Any", n)) for n in shape)
        marked = [k for k, n in enumerate(shape) if isinstance(n, ParDim)]
        axis = marked[0] if marked else 0
        blocks, partitions, free = sizes[:axis], sizes[axis], prod(sizes[axis + 1 :])
        if prod(blocks) > MAX_BLOCKS:
            unsupported(
                f"an explicit allocation of {prod(blocks)} blocks is not simulated",
                f"allocate at most {MAX_BLOCKS} blocks",
            )
        width = free * DTYPE_BYTES[dtype]
        site, _ = call_place()
        if any(trace.offsets.get(loop) for loop in trace.scope) or trace.in_later_piece:
            # The kernel's function that chooses addresses ran for the loop's first piece. Its answers count for all
            # pieces.
            return trace.placed.get(site, ())
        places = tuple(self._locate(index, partitions, width) for index in itertools.product(*map(range, blocks)))
        for partition, offset in places:
            self._check(trace, partition, offset, partitions, width)
        trace.placed[site] = places
        return places

    def _check(self, trace: Trace, partition: int, offset: int, partitions: int, width: int) -> None:
        """Raise LegalityError for a tile that lies outside of the chip's memory or crosses a PSUM bank."""
        psum = self.buffer_kind.space is Space.PSUM
        chip = trace.chip
        size = chip.psum_bytes_per_partition if psum else chip.sbuf_bytes_per_partition
        short = "PSUM" if psum else "SB"
        where = f"@{short}<{partition},{offset}>({partitions}x{width})"
        if partition < 0 or offset < 0 or partition + partitions > chip.partitions or offset + width > size:
            refuse(
                "allocation",
                f"Allocated memory out of bound {where}",
                f"start at a lower address: a partition has {size} bytes for explicit allocation",
            )
        if not psum and offset + width > size - LEGACY_RESERVED_SBUF_BYTES:
            trace.notice("a tile is placed in the last 16 KiB of SBUF, which the compiler keeps for itself")
        if psum and offset // chip.psum_bank_bytes != (offset + max(width, 1) - 1) // chip.psum_bank_bytes:
            refuse(
                "psum_bank",
                f"Allocated memory {where} crosses a PSUM bank",
                "place the tile inside one bank of 2 KiB a partition",
            )


def _tuple(value: object) -> tuple[int, ...]:
    """Return ``value``, a number or a sequence, as a tuple of integers; () for None."""
    if value is None:
        return ()
    if isinstance(value, Sequence):
        return tuple(operator.index(n) for n in value)
    return (operator.index(cast("Any", value)),)


def _modular(index: tuple[int, ...], tiles: tuple[int, ...]) -> int:
    """Return the number of the tile that holds the block with the index ``index``.

    Along each dimension, the tile is the block's index modulo the number of tiles. Tiles are numbered in C
    order.
    """
    number = 0
    padded = (1,) * (len(index) - len(tiles)) + tiles
    for position, count in zip(index, padded[len(padded) - len(index) :], strict=True):
        number = number * count + position % count
    return number


class SbufAllocators:
    """Provide ``nki.compiler.sbuf``: allocators of addresses in SBUF."""

    def mod_alloc(
        self,
        *,
        base_addr: int,
        base_partition: int = 0,
        num_par_tiles: object = (),
        num_free_tiles: object = (),
    ) -> Placement:
        """Return a placement of blocks side by side along the free axis.

        After ``num_free_tiles`` blocks, the next block takes the address of the first block again.
        """
        if prod(_tuple(num_par_tiles)) > 1:
            raise UnsupportedCall(
                "sbuf.mod_alloc with more than one tile across partitions is not simulated",
                hint="leave num_par_tiles out",
            )
        tiles = _tuple(num_free_tiles)

        def locate(index: tuple[int, ...], partitions: int, width: int) -> Place:
            return base_partition, base_addr + _modular(index, tiles) * width

        return Placement(memory.SBUF, locate, prod(tiles))

    def alloc(self, func: Callable[..., tuple[int, int]]) -> Placement:
        """Return a placement whose addresses the kernel's function ``func`` computes.

        ``func`` gets the block index as ``idx``, the number of partitions as ``pdim_size`` and the bytes in
        each partition as ``fdim_size``. It returns (start partition, byte address).
        """

        def locate(index: tuple[int, ...], partitions: int, width: int) -> Place:
            partition, offset = func(idx=index, pdim_size=partitions, fdim_size=width)
            return operator.index(partition), operator.index(offset)

        return Placement(memory.SBUF, locate, None)

    def auto_alloc(self) -> Placement:
        """Return a placement whose addresses the compiler chooses."""
        return Placement(memory.SBUF, None, None)


class PsumAllocators:
    """Provide ``nki.compiler.psum``: allocators of addresses in PSUM."""

    def mod_alloc(
        self,
        *,
        base_bank: int,
        base_addr: int = 0,
        base_partition: int = 0,
        num_bank_tiles: object = (),
        num_par_tiles: object = (),
        num_free_tiles: object = (),
    ) -> Placement:
        """Return a placement with each block in the next bank.

        After ``num_bank_tiles`` blocks, the next block takes the bank of the first block again.
        """
        if prod(_tuple(num_par_tiles)) > 1 or prod(_tuple(num_free_tiles)) > 1:
            raise UnsupportedCall(
                "psum.mod_alloc with more than one tile in a bank is not simulated", hint="pass num_bank_tiles only"
            )
        tiles = _tuple(num_bank_tiles)

        def locate(index: tuple[int, ...], partitions: int, width: int) -> Place:
            return base_partition, (base_bank + _modular(index, tiles)) * current().chip.psum_bank_bytes + base_addr

        return Placement(memory.PSUM, locate, prod(tiles))

    def alloc(self, func: Callable[..., tuple[int, int, int]]) -> Placement:
        """Return a placement whose addresses the kernel's function ``func`` computes.

        ``func`` gets the block index as ``idx``, the number of partitions as ``pdim_size`` and the bytes in
        each partition as ``fdim_size``. It returns (bank, start partition, byte address).
        """

        def locate(index: tuple[int, ...], partitions: int, width: int) -> Place:
            bank, partition, offset = func(idx=index, pdim_size=partitions, fdim_size=width)
            return operator.index(partition), operator.index(bank) * current().chip.psum_bank_bytes + operator.index(
                offset
            )

        return Placement(memory.PSUM, locate, None)

    def auto_alloc(self) -> Placement:
        """Return a placement whose addresses the compiler chooses."""
        return Placement(memory.PSUM, None, None)


class Directive(ContextDecorator):
    """A directive to the compiler, as a decorator or a ``with`` block. It changes no value; at most it adds a notice to
    the program.
    """

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self._session = session

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._note()
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __enter__(self) -> Self:
        self._note()
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing, because :meth:`__enter__` opens nothing."""

    def _note(self) -> None:
        said = UNTIMED.get(self.name)
        if said is not None:
            self._session.builder.notice(self._session.line(), said)


DIRECTIVES = (
    "enable_stack_allocator", "force_auto_alloc", "multi_buffer", "no_reorder", "skip_middle_end_transformations",
)  # fmt: skip
UNTIMED = {
    "skip_middle_end_transformations": "skip_middle_end_transformations does not change the predicted latency: loops are "
    "fused and iterations merged as without it"
}
"""The notice of a directive that changes what the chip runs, but not the predicted latency, by directive."""


def namespace(session: Session) -> dict[str, object]:
    """Return the names of ``neuronxcc.nki.compiler``, with their values."""
    return {
        "sbuf": SbufAllocators(),
        "psum": PsumAllocators(),
        **{name: Directive(name, session) for name in DIRECTIVES},
    }
