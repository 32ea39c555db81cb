"""Check a program's claims about itself against its content.

Legality (:mod:`acceld.nki.verify.verifier`) asks whether a chip would run the program; here a forged one is caught that is
legal word by word but claims what makes it look faster or the judge slower.
"""

from __future__ import annotations

from dataclasses import dataclass

from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.program import Access, Instruction, LoopKind, Program

MAX_UNUSED_BUFFERS = 1000
"""Buffers that no instruction touches; a front end drops them, and each costs the judge time."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that does not hold."""

    rule: str
    message: str
    line: int = 0


def false_claim(program: Program) -> Claim | None:
    """Return the first claim that does not hold; None if all do."""
    return _grid(program) or _buffers(program) or _modes(program) or _fills(program)


def _grid(program: Program) -> Claim | None:
    """Loops over the launch grid are those of the grid that was asked for; without one it is a logical core's own cores."""
    grid = program.grid or (program.lnc,)
    for loop in program.loops.values():
        if loop.kind is LoopKind.SPMD and loop.trips not in grid and not (program.lnc > 1 and loop.trips == 1):
            return Claim("forged_program", f"a loop claims {loop.trips} cores; the grid is {grid}", loop.line)
    return None


def _buffers(program: Program) -> Claim | None:
    used = set(program.inputs) | set(program.outputs)
    for instruction, _ in program.walk():
        for access in instruction.accesses:
            used.add(access.buffer)
            used.update(i.index.buffer for i in access.indirect if i.index is not None)
    unused = len(program.buffers) - len(used)
    if unused > MAX_UNUSED_BUFFERS:
        return Claim("forged_program", f"the program declares {unused} buffers that it never uses")
    return None


def _modes(program: Program) -> Claim | None:
    """The array's faster modes take 8-bit operands, and exist in the current API only."""
    for instruction, _ in program.walk():
        if instruction.op == "matmul" and instruction.attr("perf_mode"):
            wide = [kind for kind in _operand_dtypes(program, instruction) if DTYPE_BYTES[kind] > 1]
            if program.api != "nki" or wide:
                mode = str(instruction.attr("perf_mode"))[:40]
                message = f"perf_mode {mode!r} needs 8-bit operands and the current API, not {wide or program.api}"
                return Claim("perf_mode", message, instruction.line)
    return None


def _fills(program: Program) -> Claim | None:
    """Return a lazy fill costs nothing because it only declares: it stands where its buffer does, before all else."""
    seen: set[int] = set()
    for instruction, loops in program.walk():
        if instruction.op == "memset" and instruction.attr("lazy"):
            for dst in instruction.dsts:
                scope = program.buffers[dst.buffer].scope
                if instruction.mask or dst.buffer in seen or tuple(loop.id for loop in loops) != scope:
                    message = "a lazy fill stands where its buffer is in use, not where it is declared"
                    return Claim("forged_program", message, instruction.line)
        seen.update(access.buffer for access in instruction.accesses)
    return None


def _operand_dtypes(program: Program, instruction: Instruction) -> list[str]:
    return [
        operand.dtype or program.buffers[operand.buffer].dtype
        for operand in instruction.srcs
        if isinstance(operand, Access)
    ]
