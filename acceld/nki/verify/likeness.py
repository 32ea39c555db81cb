"""Find instructions that differ only in their position in the program, so that checking one of them is enough.

A kernel with unrolled loops has each instruction many times: on different buffers of one kind, and at different
positions in the kernel's arguments.
"""

from __future__ import annotations

from collections.abc import Iterable

from acceld.nki.ir.def_use import Use, uses_of
from acceld.nki.ir.program import Access, Instruction, Loop, Program, Space

LARGEST = 2**62
"""Limit on the absolute value of integers in a program."""


class Likeness:
    """Give a number to each instruction, the same number to instructions that are alike.

    Two instructions are alike if they agree in everything that a check of a single instruction may read. They
    may differ in line and names, in which of several buffers of one kind a tile lies, and in the constants at
    which tiles in HBM start.
    """

    def __init__(self, program: Program) -> None:
        self._kinds: dict[int, int] = {}
        self._hbm: set[int] = set()
        self._numbers: dict[object, int] = {}
        kinds: dict[object, int] = {}
        for number, buffer in enumerate(program.buffers):
            if buffer.data is not None or buffer.id != number:
                continue
            kind = (
                *(buffer.space, buffer.dtype, buffer.shape, buffer.partition_axis, buffer.role, buffer.scope),
                *(
                    buffer.address,
                    buffer.blocks,
                    buffer.written_input,
                    buffer.argument_shape,
                    number in program.outputs,
                ),
            )
            self._kinds[number] = kinds.setdefault(kind, len(kinds))
            if buffer.space is Space.HBM:
                self._hbm.add(number)

    def kind(self, buffer: int) -> int | None:
        """Return a number that buffers share if they differ only in name and line; None for a buffer of
        constants.
        """
        return self._kinds.get(buffer)

    def of(self, instruction: Instruction, outer: Iterable[Loop]) -> int | None:
        """Return the number of ``instruction`` inside the loops ``outer``. Instructions that are alike have the same
        number.

        Return None for an instruction with a mask, a pattern or a run-time index, which must be checked by itself.
        Attributes, axes and loops are compared by identity. That is safe because the program keeps them alive, and fast
        because the program's decoder makes equal objects only once.
        """
        if instruction.mask or instruction.pattern is not None:
            return None
        key: list[object] = [instruction.op, instruction.engine, id(instruction.attrs), *map(id, outer)]
        buffers: list[int] = []
        for operand in (*instruction.srcs, None, *instruction.dsts):
            if isinstance(operand, Access):
                buffer = operand.buffer
                kind = self._kinds.get(buffer) if type(buffer) is int else None
                if kind is None or operand.indirect:
                    return None
                if buffer not in buffers:
                    buffers.append(buffer)
                key += (kind, buffers.index(buffer), id(operand.dims), operand.dtype)
                if buffer not in self._hbm:
                    key.append(id(operand.start))
                    continue
                for start in operand.start:
                    if type(start.const) is not int or abs(start.const) >= LARGEST:
                        return None
                    key.append(start.terms)
            elif operand is None or type(operand) in (int, float):
                key += (type(operand), operand)
            else:
                return None
        return self._numbers.setdefault(tuple(key), len(self._numbers))


class Uses:
    """The uses of each buffer, in program order. They are computed only when :meth:`of` asks for them."""

    def __init__(self, likeness: Likeness) -> None:
        self._likeness = likeness
        self._walked: dict[int, tuple[Instruction, tuple[Loop, ...], int | None]] = {}
        self._made: dict[int, list[Use]] = {}
        self._places: dict[int, list[tuple[int, int]]] = {}
        """The uses of a buffer, by buffer: the position of each instruction that uses it, and the number of the operand
        that lies in it.
        """

    def add(self, instruction: Instruction, loops: tuple[Loop, ...], position: int, like: int | None) -> None:
        """Add the instruction at ``position`` of the program.

        ``like`` is the number that :meth:`Likeness.of` gave the instruction, or None.
        """
        self._walked[position] = instruction, loops, like
        if like is None:
            for use in self._at(position):
                self._places.setdefault(use.access.buffer, []).append((position, -1))
            return
        for number, operand in enumerate((*instruction.srcs, *instruction.dsts)):
            if isinstance(operand, Access):
                self._places.setdefault(operand.buffer, []).append((position, number))

    def buffers(self) -> list[int]:
        """Return the ids of all used buffers, in the order of their first uses."""
        return list(self._places)

    def of(self, buffer: int) -> list[Use]:
        """Return the uses of a buffer, in program order."""
        positions = dict.fromkeys(position for position, _ in self._places.get(buffer, ()))
        return [use for position in positions for use in self._at(position) if use.access.buffer == buffer]

    def form(self, buffer: int) -> object:
        """Return a key that is equal for two on-chip buffers which are used in the same way: the buffers differ only in
        name and line, and the instructions that use them have equal numbers (:meth:`Likeness.of`).

        None means that the buffer must be checked on its own.
        """
        likes = [(self._walked[position][2], number) for position, number in self._places[buffer]]
        kind = self._likeness.kind(buffer)
        return None if kind is None or any(like is None for like, _ in likes) else (kind, *likes)

    def _at(self, position: int) -> list[Use]:
        made = self._made.get(position)
        if made is None:
            instruction, loops, _ = self._walked[position]
            made = self._made[position] = uses_of(instruction, loops, position)
        return made
