"""Build a Program while a front end traces a kernel.

A loop is *open* from the call that begins it to the call that ends it. Instructions go into the innermost open
loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from acceld.nki.errors import LimitExceeded
from acceld.nki.ir.def_use import register_written, registers_read
from acceld.nki.ir.program import (
    MAX_INSTRUCTIONS,
    Access,
    Buffer,
    Instruction,
    Loop,
    LoopKind,
    Node,
    Notice,
    Program,
    Role,
    Space,
)


@dataclass(frozen=True, slots=True)
class Draft:
    """One loop of a program that is being built. The loop's body may still change."""

    loop: Loop
    body: list[Draft | Instruction]

    def freeze(self) -> Loop:
        """Return the loop, with its present body, as a node of a finished program."""
        return replace(self.loop, body=frozen(self.body))


@dataclass(frozen=True, slots=True)
class Slot:
    """The position of one emitted instruction in its loop body.

    A front end keeps the position to give the instruction another destination when the kernel assigns the
    result.
    """

    body: list[Draft | Instruction]
    index: int

    @property
    def instruction(self) -> Instruction:
        """Return the instruction that is at this position now."""
        node = self.body[self.index]
        assert isinstance(node, Instruction)
        return node

    def replace(self, instruction: Instruction) -> None:
        """Put ``instruction`` at this position."""
        self.body[self.index] = instruction

    def is_in_open_body(self, builder: ProgramBuilder) -> bool:
        """Tell whether ``builder`` now emits instructions into the loop body that contains this position."""
        return builder.is_open(self.body)


class ProgramBuilder:
    """Collect buffers, loops and instructions in the order in which a kernel creates them.

    Raise LimitExceeded for more than ``max_instructions`` instructions. An instruction in a loop counts once.
    """

    def __init__(self, *, max_instructions: int = MAX_INSTRUCTIONS) -> None:
        self.buffers: list[Buffer] = []
        self.notices: list[Notice] = []
        self.registers = 0
        self._bodies: list[list[Draft | Instruction]] = [[]]
        self._open: list[Loop] = []
        self._scope: tuple[int, ...] = ()
        self._loops = 0
        self._instructions = 0
        self._max_instructions = max_instructions

    @property
    def scope(self) -> tuple[int, ...]:
        """Return the ids of the open loops, outermost first."""
        return self._scope

    @property
    def open_loops(self) -> tuple[Loop, ...]:
        """Return the open loops, outermost first."""
        return tuple(self._open)

    def buffer(
        self,
        name: str,
        space: Space,
        dtype: str,
        shape: tuple[int, ...],
        *,
        partition_axis: int = -1,
        role: Role = Role.SCRATCH,
        line: int = 0,
        place: str = "",
        address: tuple[int, int] | None = None,
        blocks: tuple[tuple[int, int], ...] = (),
        data: bytes | None = None,
        scope: tuple[int, ...] | None = None,
    ) -> Buffer:
        """Declare a buffer inside the loops of ``scope``, by default inside all open loops, and return it."""
        around = self._scope if scope is None else scope
        number = len(self.buffers)
        made = Buffer(
            number,
            name,
            space,
            dtype,
            shape,
            partition_axis,
            role,
            around,
            line,
            address,
            data,
            place=place,
            blocks=blocks,
        )
        self.buffers.append(made)
        return made

    def change_buffer(self, number: int, **changes: object) -> Buffer:
        """Change fields of buffer ``number``, and return the changed buffer.

        For example, a buffer that the kernel returns gets another role.
        """
        self.buffers[number] = replace(self.buffers[number], **changes)  # type: ignore[arg-type]  # checked by replace
        return self.buffers[number]

    def discard(self, number: int) -> bool:
        """Remove buffer ``number``, which no instruction may use, and return True.

        Only the newest buffer can be removed. For any other buffer, return False and change nothing.
        """
        if number != len(self.buffers) - 1:
            return False
        self.buffers.pop()
        return True

    def register(self) -> int:
        """Declare a scalar register, and return its number."""
        self.registers += 1
        return self.registers - 1

    def emit(self, instruction: Instruction) -> Slot:
        """Append an instruction to the innermost open loop, and return its position.

        Raise LimitExceeded if the program has too many instructions.
        """
        self._instructions += 1
        if self._instructions > self._max_instructions:
            raise LimitExceeded(
                f"the kernel has more than {self._max_instructions} instructions",
                rule="instruction_limit",
                line=instruction.line,
                hint="keep loops as nl.affine_range or nl.sequential_range, or use larger tiles",
            )
        self._bodies[-1].append(instruction)
        return Slot(self._bodies[-1], len(self._bodies[-1]) - 1)

    @property
    def length(self) -> int:
        """Return the number of nodes in the innermost open loop."""
        return len(self._bodies[-1])

    def part(self, begin: int, end: int) -> tuple[Node, ...]:
        """Return the nodes from ``begin`` up to ``end`` of the innermost open loop, as they are now."""
        return frozen(self._bodies[-1][begin:end])

    @contextmanager
    def loop(
        self, name: str, trips: int, kind: LoopKind, *, line: int = 0, trips_register: int | None = None
    ) -> Iterator[Loop]:
        """Open a loop around the instructions that a ``with`` block emits, and close it at the end of the block."""
        loop = self.open_loop(name, trips, kind, line=line, trips_register=trips_register)
        yield loop
        self.close_loop(loop.id)

    def open_loop(
        self, name: str, trips: int, kind: LoopKind, *, line: int = 0, trips_register: int | None = None
    ) -> Loop:
        """Open a loop and return it. :meth:`close_loop` closes the loop."""
        loop = Loop(self._loops, name, trips, kind, (), line, trips_register)
        self._loops += 1
        self._open.append(loop)
        self._scope = (*self._scope, loop.id)
        self._bodies.append([])
        return loop

    def close_loop(self, number: int) -> None:
        """Close loop ``number``, which must be the innermost open loop."""
        loop = self._open.pop()
        assert loop.id == number, f"loop {number} is not the innermost one"
        self._scope = self._scope[:-1]
        body = self._bodies.pop()
        self._bodies[-1].append(Draft(loop, body))

    def is_open(self, body: list[Draft | Instruction]) -> bool:
        """Tell whether ``body`` is the body of the innermost open loop."""
        return body is self._bodies[-1]

    def notice(self, line: int, text: str) -> None:
        """Record that line ``line`` of the kernel does something legal but costly or deprecated.

        A notice that a line has already is not recorded again.
        """
        notice = Notice(line, text)
        if notice not in self.notices:
            self.notices.append(notice)

    def finish(
        self,
        *,
        api: str,
        chip: str,
        entry: str,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        grid: tuple[int, ...] = (),
        lnc: int = 1,
    ) -> Program:
        """Return the finished program. Unused buffers and registers are left out, and the remaining ones are numbered
        anew. All loops must be closed.
        """
        assert not self._open, "a loop is still open"
        body = frozen(self._bodies[0])
        used = {*inputs, *outputs}
        _note_buffers(body, used)
        numbers = {old: new for new, old in enumerate(sorted(used))}
        held = set[int]()
        if self.registers:
            _note_registers(body, held)
        registers = {old: new for new, old in enumerate(sorted(held))}
        if len(used) < len(self.buffers) or len(held) < self.registers:
            body = tuple(_renumber(node, numbers, registers) for node in body)
        return Program(
            api=api,
            chip=chip,
            entry=entry,
            buffers=tuple([_with_id(self.buffers[old], new) for old, new in numbers.items()]),
            body=body,
            inputs=tuple(numbers[i] for i in inputs),
            outputs=tuple(numbers[i] for i in outputs),
            grid=grid,
            lnc=lnc,
            registers=len(held),
            notices=tuple(self.notices),
        )


def frozen(body: Iterable[Draft | Instruction]) -> tuple[Node, ...]:
    """Return ``body`` as nodes of a program. Empty loops, and instructions whose mask excludes every element, are
    left out.
    """
    nodes = (node.freeze() if isinstance(node, Draft) else node for node in body)
    return tuple(node for node in nodes if (node.body if isinstance(node, Loop) else _may_run(node)))


def _may_run(instruction: Instruction) -> bool:
    return not any(p.base.const < 0 and not p.base.terms and not any(p.coefs) for p in instruction.mask)


def _note_buffers(body: Iterable[Node], used: set[int]) -> None:
    """Add to ``used`` the ids of all buffers that ``body`` reads or writes, tiles of indices included."""
    for node in body:
        if isinstance(node, Loop):
            _note_buffers(node.body, used)
            continue
        for access in node.accesses:
            used.add(access.buffer)
            if access.indirect:
                used.update(_index_buffers(access))


def _note_registers(body: Iterable[Node], used: set[int]) -> None:
    """Add to ``used`` all registers that ``body`` reads or writes."""
    for node in body:
        if isinstance(node, Loop):
            used.update([] if node.trips_register is None else [node.trips_register])
            _note_registers(node.body, used)
            continue
        used.update(registers_read(node))
        written = register_written(node)
        used.update([] if written is None else [written])


_OF_REGISTERS = ("register", "source", "operand")
"""Attributes of instructions that name a register by its number."""
_WITHOUT_ID = attrgetter(*(field.name for field in fields(Buffer) if field.name != "id"))


def _index_buffers(access: Access) -> Iterator[int]:
    for indirect in access.indirect:
        if indirect.index is not None:
            yield indirect.index.buffer
            yield from _index_buffers(indirect.index)


def _with_id(buffer: Buffer, number: int) -> Buffer:
    return buffer if buffer.id == number else Buffer(number, *_WITHOUT_ID(buffer))


def _renumber(node: Node, numbers: Mapping[int, int], registers: Mapping[int, int]) -> Node:
    """Return ``node`` with other buffer ids and registers. ``numbers`` and ``registers`` map each old number to the new one."""
    if isinstance(node, Loop):
        body = tuple(_renumber(child, numbers, registers) for child in node.body)
        trips = None if node.trips_register is None else registers[node.trips_register]
        return replace(node, body=body, trips_register=trips)
    attrs = node.attrs
    if registers:
        attrs = tuple(
            [(key, registers[one] if key in _OF_REGISTERS and isinstance(one, int) else one) for key, one in attrs]
        )
    return Instruction(
        node.op,
        node.engine,
        tuple([_renumbered(dst, numbers, registers) for dst in node.dsts]),
        tuple([_renumbered(src, numbers, registers) if isinstance(src, Access) else src for src in node.srcs]),
        attrs,
        node.mask,
        node.pattern,
        node.line,
        node.place,
    )


def _renumbered(access: Access, numbers: Mapping[int, int], registers: Mapping[int, int]) -> Access:
    number, indirect = numbers[access.buffer], access.indirect
    if indirect:
        indirect = tuple(
            replace(
                one,
                index=None if one.index is None else _renumbered(one.index, numbers, registers),
                register=None if one.register is None else registers[one.register],
            )
            for one in indirect
        )
    elif number == access.buffer:
        return access
    return Access(number, access.start, access.dims, indirect, access.dtype)
