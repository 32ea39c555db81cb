"""Refuse programs that make false claims about themselves.

:mod:`acceld.nki.verify.verifier` decides whether a chip would run a program. This module finds programs that a
chip would run, but that were forged to look faster or to slow the judge down.
"""

from __future__ import annotations

from dataclasses import dataclass

from acceld.nki.ir.operations import DTYPE_BYTES
from acceld.nki.ir.program import Access, Instruction, LoopKind, Program

MAX_UNUSED_BUFFERS = 1000
"""Limit on buffers that no instruction uses. A front end drops such buffers, and each takes time of the judge."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One false claim of a program: the rule that it breaks, a message, and the kernel's line (0 if unknown)."""

    rule: str
    message: str
    line: int = 0


def false_claim(program: Program) -> Claim | None:
    """Return the first false claim of a program; None if all its claims are true."""
    return _grid(program) or _buffers(program) or _modes(program) or _fills(program)


def _grid(program: Program) -> Claim | None:
    """Return a claim if a launch loop has another trip count than the launch grid allows; else None.

    Without a grid the trip count must be the number of physical cores in the logical core.
    """
    grid = program.grid or (program.lnc,)
    for loop in program.loops.values():
        if loop.kind is LoopKind.SPMD and loop.trips not in grid and not (program.lnc > 1 and loop.trips == 1):
            return Claim("forged_program", f"a loop claims {loop.trips} cores; the grid is {grid}", loop.line)
    return None


def _buffers(program: Program) -> Claim | None:
    """Return a claim if the program declares more than :data:`MAX_UNUSED_BUFFERS` buffers that it never uses;
    else None.
    """
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
    """Return a claim for a matrix product with a faster mode (``perf_mode``) that it can not have; None if every
    product's mode is possible.

    Faster modes exist only in the current API and need 8-bit operands.
    """
    for instruction, _ in program.walk():
        if instruction.op == "matmul" and instruction.attr("perf_mode"):
            wide = [kind for kind in _operand_dtypes(program, instruction) if DTYPE_BYTES[kind] > 1]
            if program.api != "nki" or wide:
                mode = str(instruction.attr("perf_mode"))[:40]
                message = f"perf_mode {mode!r} needs 8-bit operands and the current API, not {wide or program.api}"
                return Claim("perf_mode", message, instruction.line)
    return None


def _fills(program: Program) -> Claim | None:
    """Return a claim for a fill that pretends to take no time; None if no fill pretends to.

    A fill takes no time only if it is the first access to its buffer, stands in the loops where the buffer is
    declared, and has no mask.
    """
    seen: set[int] = set()
    for instruction, loops in program.walk():
        if instruction.op == "memset" and instruction.attr("lazy"):
            for dst in instruction.dsts:
                scope = program.buffers[dst.buffer].scope
                if instruction.mask or dst.buffer in seen or tuple(loop.id for loop in loops) != scope:
                    message = "a fill that claims to cost nothing is not at its buffer's declaration"
                    return Claim("forged_program", message, instruction.line)
        seen.update(access.buffer for access in instruction.accesses)
    return None


def _operand_dtypes(program: Program, instruction: Instruction) -> list[str]:
    """Return the dtypes of an instruction's operands."""
    return [
        operand.dtype or program.buffers[operand.buffer].dtype
        for operand in instruction.srcs
        if isinstance(operand, Access)
    ]
