"""Hold the state of one trace of a kernel: its reads and writes so far, and its renamed results.

If a kernel assigns a result to a part of a tensor, the result's instruction may be changed to write that part directly.
The result is then *renamed*. A compiler does the same; a copy would cost time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from acceld.nki.frontend.core import context
from acceld.nki.frontend.core.context import LoopContext, Retrace, refuse, unsupported
from acceld.nki.frontend.core.tensor import Alias, Tensor
from acceld.nki.frontend.session import Session, Site
from acceld.nki.ir.builder import Slot
from acceld.nki.ir.operations import FLOAT_DTYPES, INTEGER_DTYPES, PARTIAL_OPS
from acceld.nki.ir.program import (
    Access,
    Affine,
    Attr,
    Engine,
    Instruction,
    LoopKind,
    Operand,
    Pattern,
    Role,
    Space,
    TileDim,
)


@dataclass(frozen=True, slots=True)
class Selected:
    """The view that an index without loop variables selects from a tile. It is kept for the next use of the same
    index.

    ``start``, ``dims`` and ``overrun`` belong to the selected view. ``of`` keeps tile and index alive, because
    :attr:`Trace.selected` finds this record by their identity.
    """

    start: tuple[Affine, ...]
    dims: tuple[TileDim, ...]
    overrun: tuple[int, int, int, int] | None
    of: tuple[Access, object]


@dataclass(slots=True)
class Lens:
    """A view for which the program has a separate buffer, although on the chip the view shares memory with a part of
    ``source``.

    ``take`` emits the instructions that copy the values of ``source`` into the view. ``give`` emits those that copy the
    view's values back.
    """

    source: Tensor
    take: Callable[[], object]
    give: Callable[[], object]
    offsets: tuple[object, ...] = ()
    """The run-time values that decide which elements of the source the view has. The tuple is empty if the elements
    are known while tracing.
    """
    at: int = -1
    """Number of the instruction after which the view and the source last had the same values."""


def _covers(tensor: Tensor) -> bool:
    """Tell whether a view certainly covers every element of its buffer."""
    single = all(any(dim.steps) for dim in tensor.access.dims if dim.count > 1)
    return single and not tensor.access.indirect and tensor.size == tensor.declared.elements


class Trace(LoopContext):
    """The state of one run of a kernel. It checks reads and writes, and emits instructions."""

    tensor_class: ClassVar[type[Tensor]] = Tensor
    """The class of the tensors that kernels work with. It has the methods of the kernel's API."""
    copies_from_psum = False
    """True if the compiler copies one operand to SBUF where both operands of an operation of ``nl`` are in PSUM."""
    exact_integers = False
    """True if the sum of two tiles of 32-bit integers runs on GpSimd, which is exact, when the call names no engine."""
    element_beside_slices = False
    """True if an index of a tensor may contain slices together with a one-element tile."""
    writes_views = False
    """True if a kernel may write to a view with another element width."""
    hbm_drops_axes = False
    """True if indexing a tensor in HBM with integers may leave fewer than two axes."""

    def __init__(
        self, session: Session, unroll: frozenset[Site], keep: frozenset[Site], flatten: frozenset[Site]
    ) -> None:
        super().__init__(session, unroll)
        self.keep = keep
        self.flatten = flatten
        self.to_flatten: set[Site] = set()
        """Positions of the declarations of buffers that will have a single free dimension in the next trace."""
        self.program_ids: tuple[object, ...] = ()
        self.grid: tuple[int, ...] = ()
        self.sequence = 0
        self.touched: dict[int, int] = {}
        self.writes: dict[int, list[tuple[int, Access]]] = {}
        self.aliases: dict[int, list[Alias]] = {}
        """Renamed results that a loop computed and another loop read, by the buffer of the result."""
        self.read_only: dict[int, str] = {}
        """A description for messages of each read-only view of another tensor, by the view's buffer."""
        self.lenses: dict[int, Lens] = {}
        """The record of each view that has a separate buffer, by the view's buffer: the tensor with which it shares
        memory on the chip.
        """
        self._carrying = False
        self.written_inputs: set[int] = set()
        self.direct = False
        """True while a function of ``nisa`` runs. The compiler does not split the instructions of such a function."""
        self.direct_slots: list[Slot] = []
        self.lazy_candidates: dict[int, Slot] = {}
        self.engines_written: set[int] = set()
        self.sites: dict[int, Site] = {}
        self.selected: dict[tuple[int, ...], Selected] = {}
        """Results of indexing, by the identity of the tile's start and axes and of the parts of the index."""
        self.selected_by_numbers: dict[tuple[object, ...], Selected] = {}
        """Results of indexing with slices and numbers, by the identity of the tile's start and axes, the tile's partition
        axis and the numbers of the index.
        """
        self.folds: dict[Site, Tensor] = {}
        self.shared_tensors: list[tuple[Tensor, str]] = []
        """Tensors in shared HBM in the order in which the first program of the launch declared them, with the names
        that the kernel gave them.
        """
        self._shared_next: int | None = None

    @property
    def hbm_bytes(self) -> int:
        """Return the bytes of HBM that the physical cores of the kernel have."""
        return self.chip.hbm_capacity_bytes * max(1, self.session.lnc)

    def tensor(self, access: Access, scope: tuple[int, ...]) -> Tensor:
        """Return a view of a buffer, with the methods of the kernel's API.

        ``scope`` has the ids of the loops around the buffer's declaration.
        """
        return self.tensor_class(access, scope)

    def forget(self, buffer: int) -> None:
        """Delete what the trace recorded about a discarded buffer, because the next buffer gets the same number."""
        for known in (self.touched, self.writes, self.aliases, self.sites):
            known.pop(buffer, None)
        self.engines_written.discard(buffer)

    def next_program(self) -> None:
        """Begin the next program of the launch grid.

        If this program declares tensors in shared HBM, it gets the tensors that the first program declared, in the same
        order.
        """
        self._shared_next = 0

    def shared_tensor(self, shape: tuple[int, ...], dtype: str, name: str = "") -> Tensor | None:
        """Return the tensor in shared HBM that the first program of the launch declared at this point; None while the
        first program runs.

        Raise LegalityError if that tensor has another shape, dtype or name: it is then undefined which tensor of
        the first program is meant.
        """
        if self._shared_next is None:
            return None
        if self._shared_next >= len(self.shared_tensors):
            unsupported(
                "programs of one launch declare different tensors in shared HBM, which is not simulated",
                "declare the same tensors, in the same order, in each program",
            )
        known, given = self.shared_tensors[self._shared_next]
        if (known.shape, known.dtype_name, given) != (shape, dtype, name):
            called = f" named {given!r}" if given else ""
            refuse(
                "shared_tensors",
                f"a program of a launch declares {list(shape)} {dtype} in shared HBM{f' named {name!r}' * bool(name)}, "
                f"where the first program declares {list(known.shape)} {known.dtype_name}{called}",
                "declare the same tensors in the same order in each program, before the kernel asks for its number",
            )
        self._shared_next += 1
        return known

    def emit(
        self,
        op: str,
        engine: Engine,
        dsts: Sequence[Tensor],
        srcs: Sequence[Tensor | float | int | Pattern] = (),
        *,
        attrs: dict[str, Attr] | None = None,
        mask: tuple[Pattern, ...] = (),
        pattern: Pattern | None = None,
        accumulates: bool = False,
        reduced: tuple[int, ...] = (),
    ) -> Slot:
        """Check that an instruction may use its tiles here, append it, and return its position in the program.

        With ``accumulates`` the instruction updates its destinations, whose index then need not contain the
        variable of every loop. ``reduced`` has the loops over which the instruction itself reduces.
        """
        if self.broken is not None:
            raise self.broken
        self.session.check_deadline()
        for dst in dsts:
            if dst.declared.role is Role.INPUT:
                self.written_inputs.add(dst.access.buffer)
        self._not_elsewhere(op, dsts, srcs)
        self.sequence += 1
        operands: list[Operand] = []
        for src in srcs:
            if isinstance(src, Tensor):
                operands.append(self.read(src, masked=bool(mask)))
            else:
                operands.append(src)
        for dst in dsts:
            if mask or accumulates or op in PARTIAL_OPS or not _covers(dst):
                self._take(dst.access.buffer)
        accesses = tuple(
            [self.write(dst, op, mask, masked=bool(mask), accumulates=accumulates, reduced=reduced) for dst in dsts]
        )
        if engine is Engine.DMA and srcs and isinstance(srcs[0], Tensor):
            self._warn_of_rounding(srcs[0].dtype_name, dsts[0].dtype_name)
        kept = [(key, value) for key, value in (attrs or {}).items() if value is not None]
        line, place = self.session.position()
        slot = self.builder.emit(
            Instruction(op, engine, accesses, tuple(operands), tuple(sorted(kept)), mask, pattern, line, place)
        )
        if self.direct:
            self.direct_slots.append(slot)
        for dst in dsts:
            self._give(dst.access.buffer)
        return slot

    def _not_elsewhere(self, op: str, dsts: Sequence[Tensor], srcs: Sequence[object]) -> None:
        """Raise LegalityError if an instruction writes a tile at run-time offsets and reads the same tile at other
        offsets.
        """
        for dst in dsts if not self._carrying else ():
            lens = self.lenses.get(dst.access.buffer)
            if lens is None or not lens.offsets:
                continue
            for src in srcs:
                if not isinstance(src, Tensor):
                    continue
                other = self.lenses.get(src.access.buffer)
                read = src if other is None else other.source
                there = (other.offsets if other else (), src.access.start, src.access.dims)
                if there == (lens.offsets, dst.access.start, dst.access.dims):
                    continue
                if read.access.buffer == lens.source.access.buffer and overlaps(read.access, lens.source.access):
                    refuse(
                        "overlap",
                        f"{op} writes {lens.source.label} at run-time offsets and reads it at other offsets: the values that it reads "
                        "are undefined on a chip",
                        "read and write at the same offsets, or copy the values to a tile of their own first",
                    )

    def share(self, made: Tensor, lens: Lens) -> None:
        """Record that ``made`` shares memory with ``lens.source`` on the chip, and copy the present values of the
        source to ``made``.
        """
        self.lenses[made.access.buffer] = lens
        self._take(made.access.buffer)

    def _take(self, buffer: int) -> None:
        """Copy the source's values into the view in ``buffer``, if the source was written since the last copy.

        Do nothing if ``buffer`` does not hold such a view (:class:`Lens`).
        """
        lens = self.lenses.get(buffer)
        if lens is None or self._carrying:
            return
        self._take(lens.source.access.buffer)
        given = (
            0 if lens.source.declared.role in (Role.INPUT, Role.CONSTANT) else -1
        )  # inputs and constants have values from the start
        if self.writes.get(lens.source.access.buffer, [(given, None)])[-1][0] > lens.at:
            self._carry(lens, lens.take)

    def _give(self, buffer: int) -> None:
        """Copy values that were written through the view in ``buffer`` back to the view's source.

        Do nothing if ``buffer`` does not hold such a view (:class:`Lens`).
        """
        lens = self.lenses.get(buffer)
        if lens is None or self._carrying:
            return
        self._carry(lens, lens.give)
        self._give(lens.source.access.buffer)

    def _carry(self, lens: Lens, emitting: Callable[[], object]) -> None:
        """Call ``emitting``, which emits the copies between a view and its source. These copies themselves cause no
        further copies.
        """
        self._carrying = True
        try:
            emitting()
        finally:
            self._carrying = False
        lens.at = self.sequence

    def _warn_of_rounding(self, source: str, target: str) -> None:
        """Add a notice to the program if a DMA converts floats to integers, because that rounding is not
        documented.
        """
        if source in FLOAT_DTYPES and target in INTEGER_DTYPES:
            self.notice(
                f"how a DMA rounds {source} to {target} is not documented: rounding to the nearest value is assumed"
            )

    def read(self, tensor: Tensor, *, masked: bool) -> Access:
        """Record that an instruction reads ``tensor`` here, and return the access. Raise LegalityError if
        ``tensor`` may not be read here.
        """
        self._usable(tensor, masked=masked)
        self._take(tensor.access.buffer)
        self.check_alias(tensor)
        self.touched[tensor.access.buffer] = self.sequence
        for indirect in tensor.access.indirect:
            if indirect.index is not None:
                self.touched[indirect.index.buffer] = self.sequence
        return tensor.access

    def check_alias(self, tensor: Tensor) -> None:
        """Record a read of ``tensor`` if it is a renamed result.

        Raise Retrace if the elements that hold the result have been overwritten since.
        """
        alias = tensor.alias
        if alias is None:
            return
        for sequence, access in reversed(self.writes.get(alias.access.buffer, [])):
            if sequence <= alias.sequence:
                break
            if overlaps(access, alias.access):
                raise Retrace(keep=frozenset({alias.site}))
        if self.scope != alias.scope:
            alias.reads.append(self.scope)
            self.aliases.setdefault(alias.access.buffer, []).append(alias)

    def check_own(self, tensor: Tensor) -> None:
        """Raise Retrace if ``tensor`` is a renamed result, before an instruction writes to it.

        The write would also change the tensor to which the result was assigned.
        """
        if tensor.alias is not None:
            raise Retrace(keep=frozenset({tensor.alias.site}))

    def write(
        self,
        tensor: Tensor,
        op: str,
        mask: tuple[Pattern, ...],
        *,
        masked: bool,
        accumulates: bool,
        reduced: tuple[int, ...],
    ) -> Access:
        """Record that an instruction writes ``tensor`` here, and return the access.

        Raise LegalityError if all iterations of an affine loop would write the same elements.
        """
        self._usable(tensor, masked=masked)
        self.check_own(tensor)
        access = tensor.access
        if not accumulates:
            self.check_dependencies(tensor, mask, reduced)
        self.written(access, op)
        return access

    def written(self, access: Access, op: str) -> None:
        """Record that operation ``op`` writes the elements of ``access`` here.

        Raise Retrace if these elements hold a renamed result that a later iteration of a loop still reads.
        """
        if access.buffer in self.read_only:
            self._check_view(access.buffer)
        for alias in self.aliases.get(access.buffer, ()):
            opened = set(self.scope) - set(alias.scope)
            if any(opened & set(read) for read in alias.reads) and overlaps(access, alias.access):
                raise Retrace(keep=frozenset({alias.site}))
        self.touched[access.buffer] = self.sequence
        self.writes.setdefault(access.buffer, []).append((self.sequence, access))
        if op != "matmul":
            self.engines_written.add(access.buffer)

    def _check_view(self, buffer: int) -> None:
        """Raise UnsupportedCall if the simulator can not copy a write through the view in ``buffer`` back to the
        viewed tensor.
        """
        root = buffer
        while root in self.lenses:
            root = self.lenses[root].source.access.buffer
        if root == buffer:
            unsupported(
                f"a write through {self.read_only[buffer]} is not simulated",
                "write the tensor itself, before taking the view",
            )
        declared = self.builder.buffers[root]
        shared = declared.role is Role.INPUT or any(one.access.buffer == root for one, _ in self.shared_tensors)
        if self.session.lnc > 1 and declared.space is Space.HBM and shared:
            unsupported(
                f"a write through {self.read_only[buffer]} is not simulated where two cores share the tensor in HBM",
                "declare the tensor with the view's dtype; or copy to a tile, and view that tile as the tensor's dtype",
            )

    def check_dependencies(self, tensor: Tensor, mask: tuple[Pattern, ...], reduced: tuple[int, ...]) -> None:
        """Raise LegalityError if all iterations of an affine loop around a write would write the same elements."""
        access = tensor.access
        if access.indirect:
            return
        if not self.scope:
            return
        declared = self.builder.buffers[access.buffer].scope
        missing = [
            loop
            for loop in self.scope
            if loop not in declared and self.trips[loop] > 1 and self.kinds[loop] in (LoopKind.AFFINE, LoopKind.SPMD)
        ]
        if missing:
            used = {loop for start in access.start for loop, _ in start.terms}
            used |= {loop for pattern in mask for loop, _ in pattern.base.terms} | set(reduced)
            missing = [loop for loop in missing if loop not in used]
        if missing:
            names = ", ".join(dict.fromkeys(self.loop_name(loop) for loop in missing))
            refuse(
                "output_dependency",
                f"Unexpected output dependencies, missing indices in the dst access: {names}",
                f"use {names} in the index of {tensor.label}, or nl.sequential_range where iterations depend on each "
                "other; only += accumulates across an affine loop",
            )

    def reaches(self, tensor: Tensor) -> bool:
        """Tell whether a tensor may be used here: the loops around its declaration are still open."""
        return tensor.scope == self.scope[: len(tensor.scope)]

    def _usable(self, tensor: Tensor, *, masked: bool) -> None:
        """Raise LegalityError if the loop that declares a tensor has ended, or if an index is out of bounds without a
        mask.
        """
        if not self.reaches(tensor):
            refuse(
                "local_scope",
                f"Local variable {tensor.label} is referenced outside of its parent scope",
                "declare it with nl.ndarray before the loop, and write to it inside: dst=name in nki, name[...] = value in neuronxcc.nki",
            )
        if tensor.overrun is not None and not masked:
            dim, low, high, size = tensor.overrun
            refuse(
                "out_of_bounds",
                f"Out-of-bound access for tensor {tensor.label} on dimension {dim}: index range [{low}, {high}] "
                f"exceed dimension size of {size}",
                "mask the instruction or change the loop's bounds",
            )


def overlaps(one: Access, other: Access) -> bool:
    """Tell whether two accesses of one buffer may share an element. The answer is also True where a quick test
    can not tell.
    """
    if one.indirect or other.indirect:
        return True
    for d, (a, b) in enumerate(zip(one.start, other.start, strict=True)):
        if a.terms != b.terms:
            continue
        spans = []
        for start, access in ((a.const, one), (b.const, other)):
            reach = [dim.steps[d] * (dim.count - 1) for dim in access.dims]
            spans.append((start + sum(min(0, r) for r in reach), start + sum(max(0, r) for r in reach)))
        if spans[0][1] < spans[1][0] or spans[1][1] < spans[0][0]:
            return False
    return True


def current() -> Trace:
    """Return the running trace. Raise KernelCrash if the kernel's file calls an NKI function while it loads."""
    trace = context.current()
    assert isinstance(trace, Trace)
    return trace
