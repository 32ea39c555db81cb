"""Provide the operands of an instruction as compiled tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acceld.nki.errors import UnsupportedCall
from acceld.nki.execute.machine import Env, Machine, affine, crash
from acceld.nki.execute.tiles import Tile
from acceld.nki.execute.windows import Window
from acceld.nki.ir.numerics import Array
from acceld.nki.ir.program import Access, Attr, Instruction, Pattern
from acceld.nki.ir.spaces import Space, iteration_space

Step = Callable[[Env, Window], None]
"""Runs one instruction in one iteration, inside a window of its iteration space."""

Reader = Callable[[Env, Window], Any]
"""Returns an operand's value: an array of reals, or a Python number."""


class Context:
    """An instruction that is being compiled.

    ``general``: its mask must become a boolean window, since a tile has axes that the iteration space does not have.
    """

    def __init__(self, machine: Machine, instruction: Instruction, trips: dict[int, int]) -> None:
        self.machine, self.instruction, self.trips = machine, instruction, trips
        self.space: Space = iteration_space(instruction)
        maps = [
            found
            for operand, found in zip(
                (*instruction.srcs, *instruction.dsts), (*self.space.srcs, *self.space.dsts), strict=True
            )
            if isinstance(operand, Access)
        ]
        self.general = bool(instruction.mask) and any(found is None for found in maps)

    @property
    def op(self) -> str:
        """The operation's name."""
        return self.instruction.op

    def attr(self, name: str, default: Attr = None) -> Attr:
        """Return an attribute."""
        return self.instruction.attr(name, default)

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute that is a name; ``default`` if it is missing or None."""
        value = self.attr(name)
        if value is None:
            return default
        return value if isinstance(value, str) else str(value)

    def flag(self, name: str) -> bool:
        """Return an attribute that is true or false."""
        return bool(self.attr(name, False))

    def has_src(self, number: int) -> bool:
        """Return True if the instruction has operand ``number``."""
        return len(self.instruction.srcs) > number

    def _tile(self, access: Access, axes: tuple[int, ...] | None, arranged: bool, skip: bool) -> Tile:
        return Tile(
            self.machine,
            access,
            self.trips,
            axes=axes,
            arranged=arranged,
            space=self.space.shape,
            mask=self.instruction.mask,
            line=self.instruction.line,
            skip_outside=skip,
        )

    def src(self, number: int, *, arranged: bool = True, skip_outside: bool = False) -> Tile:
        """Return source ``number``, which must be a tile."""
        operand = self.instruction.srcs[number]
        if not isinstance(operand, Access):
            crash(f"{self.op} needs a tile as operand {number}", "operand_kind", self.instruction.line)
        return self._tile(operand, self.space.srcs[number], arranged, skip_outside)

    def dst(self, number: int = 0, *, arranged: bool = True, skip_outside: bool = False) -> Tile:
        """Return destination ``number``."""
        return self._tile(self.instruction.dsts[number], self.space.dsts[number], arranged, skip_outside)

    def number(self, number: int) -> float:
        """Return source ``number``, which must be an immediate."""
        operand = self.instruction.srcs[number]
        if isinstance(operand, Access | Pattern):
            crash(f"{self.op} needs a number as operand {number}", "operand_kind", self.instruction.line)
        return self.immediate(operand)

    def immediate(self, value: float) -> float:
        """Return a number as a float; a whole number beyond float's range is an error."""
        try:
            return float(value)
        except OverflowError:
            crash(f"{self.op}: an immediate is too large", "operand_kind", self.instruction.line)

    def reader(self, number: int, *, arranged: bool = True) -> Reader:
        """Return source ``number`` as reals: a tile, an immediate or an affine value."""
        operand = self.instruction.srcs[number]
        if isinstance(operand, Access):
            return self.src(number, arranged=arranged).load
        if isinstance(operand, Pattern):
            base = affine(self.machine, operand.base)
            return lambda env, window: float(base(env))
        value = self.immediate(operand)
        return lambda env, window: value

    def shares_destination(self, *numbers: int) -> bool:
        """Return True if any of these sources lies in the first destination's buffer."""
        target = self.instruction.dsts[0].buffer
        return any(
            isinstance(src, Access) and src.buffer == target
            for number in numbers
            if number < len(self.instruction.srcs)
            for src in (self.instruction.srcs[number],)
        )

    def unsupported(self, what: str) -> UnsupportedCall:
        """Return an error for an operation that the simulator can not run."""
        return UnsupportedCall(f"{self.op}: {what}", line=self.instruction.line)


def write_result(dst: Tile, env: Env, window: Window, out: Array | None, result: Any) -> None:
    """Write ``result`` to the destination, unless it is already in ``out``."""
    if out is None:
        dst.put(env, window, result)
    elif result is not out:
        out[...] = result
