"""Give the functions that compile operations an instruction's attributes and operands, with conversions and error
messages.
"""

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
"""A compiled instruction. A call runs it in the current iteration of its loops, for the elements inside a window."""

Reader = Callable[[Env, Window], Any]
"""A function that returns the value of an operand: an array of reals, or a Python number."""


class Context:
    """One instruction that is being compiled, with access to its attributes and operands.

    ``general`` is True if the mask must become a boolean array, because some axis of an operand is not an axis of the
    iteration space.
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
        """Return the name of the operation."""
        return self.instruction.op

    def attr(self, name: str, default: Attr = None) -> Attr:
        """Return the attribute ``name``; ``default`` if the instruction does not have it."""
        return self.instruction.attr(name, default)

    def text(self, name: str, default: str = "") -> str:
        """Return the attribute ``name`` as text; ``default`` if it is missing or None."""
        value = self.attr(name)
        if value is None:
            return default
        return value if isinstance(value, str) else str(value)

    def flag(self, name: str) -> bool:
        """Return the attribute ``name`` as True or False; False if it is missing."""
        return bool(self.attr(name, False))

    def has_src(self, number: int) -> bool:
        """Tell whether the instruction has a source operand ``number``."""
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
        """Return source operand ``number`` as a tile. Raise KernelCrash if the operand is not a tile."""
        operand = self.instruction.srcs[number]
        if not isinstance(operand, Access):
            crash(f"{self.op} needs a tile as operand {number}", "operand_kind", self.instruction.line)
        return self._tile(operand, self.space.srcs[number], arranged, skip_outside)

    def dst(self, number: int = 0, *, arranged: bool = True, skip_outside: bool = False) -> Tile:
        """Return destination operand ``number`` as a tile."""
        return self._tile(self.instruction.dsts[number], self.space.dsts[number], arranged, skip_outside)

    def number(self, number: int) -> float:
        """Return source operand ``number`` as a float. Raise KernelCrash if the operand is not an immediate."""
        operand = self.instruction.srcs[number]
        if isinstance(operand, Access | Pattern):
            crash(f"{self.op} needs a number as operand {number}", "operand_kind", self.instruction.line)
        return self.immediate(operand)

    def immediate(self, value: float) -> float:
        """Return ``value`` as a float. Raise KernelCrash for an integer beyond the range of float."""
        try:
            return float(value)
        except OverflowError:
            crash(f"{self.op} has an integer that is too large for a float", "operand_kind", self.instruction.line)

    def reader(self, number: int, *, arranged: bool = True) -> Reader:
        """Return a function that reads source operand ``number`` as real numbers. The operand is a tile, an immediate,
        or a value that is affine in loop variables.
        """
        operand = self.instruction.srcs[number]
        if isinstance(operand, Access):
            return self.src(number, arranged=arranged).load
        if isinstance(operand, Pattern):
            base = affine(self.machine, operand.base)
            return lambda env, window: float(base(env))
        value = self.immediate(operand)
        return lambda env, window: value

    def shares_destination(self, *numbers: int) -> bool:
        """Tell whether one of the source operands ``numbers`` lies in the same buffer as the first destination."""
        target = self.instruction.dsts[0].buffer
        return any(
            isinstance(src, Access) and src.buffer == target
            for number in numbers
            if number < len(self.instruction.srcs)
            for src in (self.instruction.srcs[number],)
        )

    def unsupported(self, what: str) -> UnsupportedCall:
        """Return the error for the caller to raise: the simulator can not run this operation with ``what``. The
        error's hint says what to write instead.
        """
        hint = "leave the mask out, and slice the tiles" if "mask" in what else "write it with other instructions"
        return UnsupportedCall(
            f"the simulator can not run {self.op} with {what}", line=self.instruction.line, hint=hint
        )


def write_result(dst: Tile, env: Env, window: Window, out: Array | None, result: Any) -> None:
    """Write ``result`` to the tile ``dst``. If ``out`` is not None, ``out`` is a view of ``dst``, and nothing is copied
    if ``result`` is that view.
    """
    if out is None:
        dst.put(env, window, result)
    elif result is not out:
        out[...] = result
