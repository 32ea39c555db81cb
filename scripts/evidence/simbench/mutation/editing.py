"""Replace single parts of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from acceld.nki.ir.program import Access, Affine, Attr, Instruction, Loop, Node, Operand, Pattern, Program

Change = tuple[int, Program]
"""Line and program of one mutant."""

Maker = Callable[[], Change | None]
"""Makes one mutant; returns None if the program would not change."""


def replaced(program: Program, position: int, make: Callable[[Instruction], tuple[Node, ...]]) -> Program:
    """Return the program with the instruction at ``position`` (in program order) replaced by what ``make``
    returns for it.
    """
    count = -1

    def visit(body: tuple[Node, ...]) -> tuple[Node, ...]:
        nonlocal count
        out: list[Node] = []
        for node in body:
            if isinstance(node, Loop):
                inner = visit(node.body)
                out.append(node if inner is node.body else replace(node, body=inner))
                continue
            count += 1
            out += make(node) if count == position else (node,)
        same = len(out) == len(body) and all(new is old for new, old in zip(out, body, strict=True))
        return body if same else tuple(out)

    return replace(program, body=visit(program.body))


def instructions(program: Program) -> list[tuple[int, Instruction]]:
    return [(position, instruction) for position, (instruction, _) in enumerate(program.walk())]


def with_instruction(program: Program, position: int, instruction: Instruction) -> Change:
    return instruction.line, replaced(program, position, lambda _: (instruction,))


def with_operand(program: Program, position: int, instruction: Instruction, number: int, operand: Operand) -> Change:
    return with_instruction(program, position, set_operand(instruction, number, operand))


def with_attribute(program: Program, position: int, instruction: Instruction, key: str, value: Attr) -> Change:
    attrs = tuple((name, value if name == key else old) for name, old in instruction.attrs)
    return with_instruction(program, position, replace(instruction, attrs=attrs))


def operands(instruction: Instruction) -> tuple[Operand, ...]:
    return (*instruction.srcs, *instruction.dsts)


def set_operand(instruction: Instruction, number: int, operand: Operand) -> Instruction:
    count = len(instruction.srcs)
    if number < count:
        srcs = tuple(operand if k == number else one for k, one in enumerate(instruction.srcs))
        return replace(instruction, srcs=srcs)
    assert isinstance(operand, Access)
    dsts = tuple(operand if k == number - count else one for k, one in enumerate(instruction.dsts))
    return replace(instruction, dsts=dsts)


def tiles(program: Program) -> Iterator[tuple[int, Instruction, int, Access]]:
    """Yield each access of the program as position and instruction, then number of the operand and tile."""
    for position, instruction in instructions(program):
        for number, operand in enumerate(operands(instruction)):
            if isinstance(operand, Access):
                yield position, instruction, number, operand


def mapped(
    program: Program,
    affine: Callable[[Affine], Affine],
    access: Callable[[Access], Access] = lambda one: one,
    loop: Callable[[Loop, tuple[Node, ...]], Node] = lambda one, body: replace(one, body=body),
) -> Program:
    """Return the program with each index expression, access and loop replaced by what the functions return for
    it.
    """

    def tile(one: Access) -> Access:
        return access(replace(one, start=tuple(map(affine, one.start))))

    def pattern(one: Pattern) -> Pattern:
        return Pattern(affine(one.base), one.coefs)

    def operand(one: Operand) -> Operand:
        if isinstance(one, Access):
            return tile(one)
        return pattern(one) if isinstance(one, Pattern) else one

    def visit(node: Node) -> Node:
        if isinstance(node, Loop):
            return loop(node, tuple(map(visit, node.body)))
        return replace(
            node,
            dsts=tuple(map(tile, node.dsts)),
            srcs=tuple(map(operand, node.srcs)),
            mask=tuple(map(pattern, node.mask)),
            pattern=None if node.pattern is None else pattern(node.pattern),
        )

    return replace(program, body=tuple(map(visit, program.body)))
