"""Puts a Program together while a front end traces a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from acceld.nki.errors import LimitExceeded
from acceld.nki.program import (
    MAX_INSTRUCTIONS,
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
class Slot:
    """Where an emitted instruction stands, so that a later assignment can change its destination."""

    body: list[Node]
    index: int

    @property
    def instruction(self) -> Instruction:
        """The instruction as it is now."""
        node = self.body[self.index]
        assert isinstance(node, Instruction)
        return node

    def replace(self, instruction: Instruction) -> None:
        """Put ``instruction`` in its place."""
        self.body[self.index] = instruction


class ProgramBuilder:
    """Buffers, loops and instructions in the order a kernel makes them.

    Raises LimitExceeded beyond ``max_instructions`` instruction nodes.
    """

    def __init__(self, *, max_instructions: int = MAX_INSTRUCTIONS) -> None:
        self.buffers: list[Buffer] = []
        self.notices: list[Notice] = []
        self.registers = 0
        self._bodies: list[list[Node]] = [[]]
        self._open: list[Loop] = []
        self._loops = 0
        self._instructions = 0
        self._max_instructions = max_instructions

    @property
    def scope(self) -> tuple[int, ...]:
        """Ids of the loops now open, outermost first."""
        return tuple(loop.id for loop in self._open)

    @property
    def open_loops(self) -> tuple[Loop, ...]:
        """The loops now open, outermost first; their bodies are still empty."""
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
        address: tuple[int, int] | None = None,
        data: bytes | None = None,
    ) -> Buffer:
        """Declare a buffer in the loops now open."""
        made = Buffer(
            id=len(self.buffers),
            name=name,
            space=space,
            dtype=dtype,
            shape=shape,
            partition_axis=partition_axis,
            role=role,
            scope=self.scope,
            line=line,
            address=address,
            data=data,
        )
        self.buffers.append(made)
        return made

    def change_buffer(self, number: int, **changes: object) -> Buffer:
        """Replace fields of a declared buffer (its role once it is returned, say)."""
        self.buffers[number] = replace(self.buffers[number], **changes)  # type: ignore[arg-type]  # checked by replace
        return self.buffers[number]

    def register(self) -> int:
        """A new scalar register."""
        self.registers += 1
        return self.registers - 1

    def emit(self, instruction: Instruction) -> Slot:
        """Append an instruction to the innermost open loop."""
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

    @contextmanager
    def loop(
        self, name: str, trips: int, kind: LoopKind, *, line: int = 0, trips_register: int | None = None
    ) -> Iterator[Loop]:
        """Open a loop; what is emitted inside is its body."""
        loop = self.open_loop(name, trips, kind, line=line, trips_register=trips_register)
        yield loop
        self.close_loop(loop.id)

    def open_loop(
        self, name: str, trips: int, kind: LoopKind, *, line: int = 0, trips_register: int | None = None
    ) -> Loop:
        """Open a loop where a ``with`` block can not be used; close_loop ends it."""
        loop = Loop(self._loops, name, trips, kind, (), line, trips_register)
        self._loops += 1
        self._open.append(loop)
        self._bodies.append([])
        return loop

    def close_loop(self, number: int) -> None:
        """Close the innermost loop, which must be ``number``."""
        loop = self._open.pop()
        assert loop.id == number, f"loop {number} is not the innermost one"
        body = self._bodies.pop()
        self._bodies[-1].append(replace(loop, body=tuple(body)))

    def notice(self, line: int, text: str) -> None:
        """Note something legal but costly or deprecated, once."""
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
        """The program; no loop may be open."""
        assert not self._open, "a loop is still open"
        return Program(
            api=api,
            chip=chip,
            entry=entry,
            buffers=tuple(self.buffers),
            body=tuple(self._bodies[0]),
            inputs=inputs,
            outputs=outputs,
            grid=grid,
            lnc=lnc,
            registers=self.registers,
            notices=tuple(self.notices),
        )
