"""Make mistakes in the order of a program: an instruction or an edge tile is left out, or two instructions
exchanged.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from acceld.nki.ir.def_use import all_uses
from acceld.nki.ir.program import Access, Instruction, Loop, Node, Program
from scripts.evidence.simbench.mutation.editing import Change, Maker, instructions, replaced


def _live(program: Program) -> set[int]:
    """Return the positions of instructions whose results can reach an output."""
    uses = all_uses(program)
    wanted = set(program.outputs)
    entries = instructions(program)
    grown = True
    while grown:
        grown = False
        for _, instruction in entries:
            if any(dst.buffer in wanted for dst in instruction.dsts):
                read = {one.buffer for one in instruction.accesses} - wanted
                if read:
                    wanted |= read
                    grown = True
    live = {number for number in wanted if number in uses}
    return {p for p, one in entries if any(dst.buffer in live for dst in one.dsts)}


def instruction_dropped(program: Program) -> list[Maker]:
    """Return makers of mutants in which an instruction is left out."""
    live = _live(program)

    def dropped(position: int, line: int) -> Change:
        return line, replaced(program, position, lambda _: ())

    return [
        partial(dropped, position, instruction.line)
        for position, instruction in instructions(program)
        if position in live
    ]


def loop_short(program: Program) -> list[Maker]:
    """Return makers of mutants in which a loop has one iteration less, as if the edge tile were forgotten."""

    def shortened(number: int, line: int) -> Change:
        def visit(body: tuple[Node, ...]) -> tuple[Node, ...]:
            return tuple(
                replace(node, trips=node.trips - (node.id == number), body=visit(node.body))
                if isinstance(node, Loop)
                else node
                for node in body
            )

        return line, replace(program, body=visit(program.body))

    return [
        partial(shortened, number, loop.line)
        for number, loop in program.loops.items()
        if loop.trips > 1 and loop.trips_register is None
    ]


def order_swapped(program: Program) -> list[Maker]:
    """Return makers of mutants in which an instruction is exchanged with its neighbor that uses its result."""
    made: list[Maker] = []

    def swap(parent: tuple[int, ...], index: int) -> Change:
        def visit(body: tuple[Node, ...], path: tuple[int, ...]) -> tuple[Node, ...]:
            if path == parent:
                return (*body[:index], body[index + 1], body[index], *body[index + 2 :])
            return tuple(
                replace(node, body=visit(node.body, (*path, k)))
                if isinstance(node, Loop) and parent[: len(path) + 1] == (*path, k)
                else node
                for k, node in enumerate(body)
            )

        return _line(program, parent, index), replace(program, body=visit(program.body, ()))

    def collect(body: tuple[Node, ...], path: tuple[int, ...]) -> None:
        for index, node in enumerate(body):
            if isinstance(node, Loop):
                collect(node.body, (*path, index))
            elif index + 1 < len(body):
                follower = body[index + 1]
                if isinstance(follower, Instruction) and _depends(node, follower):
                    made.append(partial(swap, path, index))

    collect(program.body, ())
    return made


def _line(program: Program, parent: tuple[int, ...], index: int) -> int:
    body = program.body
    for step in parent:
        node = body[step]
        assert isinstance(node, Loop)
        body = node.body
    return body[index].line


def _depends(first: Instruction, second: Instruction) -> bool:
    written = {dst.buffer for dst in first.dsts}
    return any(isinstance(src, Access) and src.buffer in written for src in second.srcs)
