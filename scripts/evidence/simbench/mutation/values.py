"""Make mistakes in computations: operations, operands, constants, narrow types."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from acceld.nki.ir.program import Access, Attr, Pattern, Program, Role, Space
from scripts.evidence.simbench.mutation.editing import (
    Change,
    Maker,
    instructions,
    with_attribute,
    with_instruction,
    with_operand,
)

_OP_SWAPS: dict[str, str] = {
    "add": "subtract",
    "subtract": "add",
    "multiply": "add",
    "divide": "multiply",
    "max": "min",
    "min": "max",
    "power": "multiply",
    "greater": "less_equal",
    "greater_equal": "greater",
    "less": "greater_equal",
    "less_equal": "less",
    "equal": "not_equal",
    "not_equal": "equal",
    "logical_and": "logical_or",
    "logical_or": "logical_and",
    "bitwise_and": "bitwise_or",
    "bitwise_or": "bitwise_and",
    "exp": "square",
    "square": "copy",
    "sqrt": "copy",
    "rsqrt": "reciprocal",
    "reciprocal": "copy",
    "gelu": "silu",
    "silu": "relu",
    "sigmoid": "tanh",
    "tanh": "copy",
    "relu": "copy",
    "copy": "square",
    "identity": "square",
}
_OP_ATTRIBUTES = ("op", "op0", "op1", "func", "cmp", "reduce_op", "rmw")
_NOT_COMMUTATIVE = frozenset(("subtract", "divide", "power", "mod", "fmod", "less", "greater"))


def dtype_lowered(program: Program) -> list[Maker]:
    """Return makers of mutants in which a float32 tensor on the chip is bfloat16."""

    def lowered(number: int, line: int) -> Change:
        buffers = tuple(replace(one, dtype="bfloat16") if one.id == number else one for one in program.buffers)
        return line, replace(program, buffers=buffers)

    return [
        partial(lowered, buffer.id, buffer.line)
        for buffer in program.buffers
        if buffer.role is Role.SCRATCH and buffer.dtype == "float32" and buffer.space is not Space.HBM
    ]


def operands_swapped(program: Program) -> list[Maker]:
    """Return makers of mutants in which a - b is written as b - a."""
    return [
        partial(with_instruction, program, position, replace(instruction, srcs=instruction.srcs[::-1]))
        for position, instruction in instructions(program)
        if instruction.op == "tensor_tensor"
        and instruction.attr("op") in _NOT_COMMUTATIVE
        and instruction.srcs[0] != instruction.srcs[1]
    ]


def op_swapped(program: Program) -> list[Maker]:
    """Return makers of mutants in which an operation or function is replaced by another of the same kind."""
    return [
        partial(with_attribute, program, position, instruction, key, _OP_SWAPS[value])
        for position, instruction in instructions(program)
        for key, value in instruction.attrs
        if key in _OP_ATTRIBUTES and isinstance(value, str) and value in _OP_SWAPS
    ]


def flag_flipped(program: Program) -> list[Maker]:
    """Return makers of mutants in which a flag is inverted: a reversed operand, a negation or an accumulation."""
    made: list[Maker] = []
    for position, instruction in instructions(program):
        for key, value in instruction.attrs:
            stage = {"reverse0": "op0", "reverse1": "op1"}.get(key)
            if stage is not None and instruction.attr(stage) not in _NOT_COMMUTATIVE:
                continue
            other: Attr = not value
            if key == "accumulate":
                other = {"yes": "no", "no": "yes"}.get(str(value))
            elif key not in ("reverse0", "reverse1", "reverse", "negate"):
                continue
            if other is not None:
                made.append(partial(with_attribute, program, position, instruction, key, other))
    return made


def constant_changed(program: Program) -> list[Maker]:
    """Return makers of mutants in which an immediate is one percent larger; 0.01 in place of 0."""
    return [
        partial(with_operand, program, position, instruction, number, operand * 1.01 if operand else 0.01)
        for position, instruction in instructions(program)
        for number, operand in enumerate(instruction.srcs)
        if not isinstance(operand, Access | Pattern) and abs(operand) < 1e30
    ]
