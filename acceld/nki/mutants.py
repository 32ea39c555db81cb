"""Programs with one mistake each, to measure whether a check of results would notice.

Each operator makes a small error of the kind people and models make. Mutants that mean the same by construction
(swapping instructions that share no buffer, dropping a copy nobody reads, shortening a loop that runs once) are not
made. What is left either breaks a rule (:func:`acceld.nki.verify.verify`) or should change an output.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from acceld.nki.flow import all_uses
from acceld.nki.program import (
    Access,
    Affine,
    Attr,
    Instruction,
    Loop,
    Node,
    Operand,
    Pattern,
    Program,
    Role,
    Space,
)


class Mutant(NamedTuple):
    """``name`` is the operator; ``line`` the kernel's line that is now wrong."""

    name: str
    line: int
    program: Program


Change = tuple[int, Program]
"""Line and program of one mutant."""

Maker = Callable[[], Change | None]
"""Makes one mutant; None where it would be no change."""

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


def mutants(program: Program, seed: int = 0, limit: int | None = None) -> Iterator[Mutant]:
    """Up to ``limit`` mutants, the operators by turns, the places in an order given by ``seed``."""
    source = random.Random(seed)
    lanes: list[tuple[str, list[Maker]]] = []
    for name, operator in _OPERATORS.items():
        changes = operator(program)
        source.shuffle(changes)
        lanes.append((name, changes))
    made = 0
    while any(changes for _, changes in lanes) and (limit is None or made < limit):
        for name, changes in lanes:
            while changes:
                change = changes.pop()()
                if change is not None and change[1].hash != program.hash:
                    yield Mutant(name, *change)
                    made += 1
                    break
            if limit is not None and made >= limit:
                return


def _replaced(program: Program, position: int, make: Callable[[Instruction], tuple[Node, ...]]) -> Program:
    """The program with instruction ``position`` (in program order) replaced."""
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


def _instructions(program: Program) -> list[tuple[int, Instruction]]:
    return [(position, instruction) for position, (instruction, _) in enumerate(program.walk())]


def _with(program: Program, position: int, instruction: Instruction) -> Change:
    return instruction.line, _replaced(program, position, lambda _: (instruction,))


def _with_operand(program: Program, position: int, instruction: Instruction, number: int, operand: Operand) -> Change:
    return _with(program, position, _set_operand(instruction, number, operand))


def _with_attribute(program: Program, position: int, instruction: Instruction, key: str, value: Attr) -> Change:
    attrs = tuple((name, value if name == key else old) for name, old in instruction.attrs)
    return _with(program, position, replace(instruction, attrs=attrs))


def _shifted(access: Access, dim: int, by: int) -> Access:
    start = tuple(one + by if d == dim else one for d, one in enumerate(access.start))
    return replace(access, start=start)


def _moved_dims(access: Access) -> list[int]:
    """Dimensions the tile or a loop moves in: a shift there reads other data."""
    return [
        d
        for d, start in enumerate(access.start)
        if start.terms or any(dim.steps[d] and dim.count > 1 for dim in access.dims)
    ]


def _tiles(program: Program) -> Iterator[tuple[int, Instruction, int, Access]]:
    for position, instruction in _instructions(program):
        for number, operand in enumerate(_operands(instruction)):
            if isinstance(operand, Access):
                yield position, instruction, number, operand


def _index_shift(program: Program) -> list[Maker]:
    """An operand's start one further, or one back, in one dimension."""
    return [
        partial(_with_operand, program, position, instruction, number, _shifted(tile, dim, by))
        for position, instruction, number, tile in _tiles(program)
        for dim in _moved_dims(tile)
        for by in (1, -1)
    ]


def _coefficient(program: Program) -> list[Maker]:
    """A loop variable forgotten in one index."""
    trips = {number: loop.trips for number, loop in program.loops.items()}
    return [
        partial(_with_operand, program, position, instruction, number, _without_term(tile, dim, loop))
        for position, instruction, number, tile in _tiles(program)
        for dim, start in enumerate(tile.start)
        for loop, _ in start.terms
        if trips[loop] > 1
    ]


def _without_term(access: Access, dim: int, loop: int) -> Access:
    kept = tuple(
        Affine(start.const, tuple(term for term in start.terms if term[0] != loop)) if d == dim else start
        for d, start in enumerate(access.start)
    )
    return replace(access, start=kept)


def _operands(instruction: Instruction) -> tuple[Operand, ...]:
    return (*instruction.srcs, *instruction.dsts)


def _set_operand(instruction: Instruction, number: int, operand: Operand) -> Instruction:
    count = len(instruction.srcs)
    if number < count:
        srcs = tuple(operand if k == number else one for k, one in enumerate(instruction.srcs))
        return replace(instruction, srcs=srcs)
    assert isinstance(operand, Access)
    dsts = tuple(operand if k == number - count else one for k, one in enumerate(instruction.dsts))
    return replace(instruction, dsts=dsts)


def _live(program: Program) -> set[int]:
    """Positions of instructions whose results can reach an output."""
    uses = all_uses(program)
    wanted = set(program.outputs)
    entries = _instructions(program)
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


def _dropped(program: Program) -> list[Maker]:
    """An instruction left out."""
    live = _live(program)

    def dropped(position: int, line: int) -> Change:
        return line, _replaced(program, position, lambda _: ())

    return [
        partial(dropped, position, instruction.line)
        for position, instruction in _instructions(program)
        if position in live
    ]


def _masked(program: Program) -> Iterator[tuple[int, Instruction, int]]:
    for position, instruction in _instructions(program):
        for k in range(len(instruction.mask)):
            yield position, instruction, k


def _mask_removed(program: Program) -> list[Maker]:
    """One condition of a mask left out."""
    return [
        partial(_with, program, position, replace(instruction, mask=instruction.mask[:k] + instruction.mask[k + 1 :]))
        for position, instruction, k in _masked(program)
    ]


def _mask_edge(program: Program) -> list[Maker]:
    """A mask one element too narrow or too wide."""

    def edged(instruction: Instruction, k: int, by: int) -> Instruction:
        mask = tuple(Pattern(one.base + by, one.coefs) if n == k else one for n, one in enumerate(instruction.mask))
        return replace(instruction, mask=mask)

    return [
        partial(_with, program, position, edged(instruction, k, by))
        for position, instruction, k in _masked(program)
        for by in (1, -1)
    ]


def _loop_short(program: Program) -> list[Maker]:
    """A loop one iteration short: the edge tile forgotten."""

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


def _dtype_lowered(program: Program) -> list[Maker]:
    """A float32 tensor on chip kept in bfloat16."""

    def lowered(number: int, line: int) -> Change:
        buffers = tuple(replace(one, dtype="bfloat16") if one.id == number else one for one in program.buffers)
        return line, replace(program, buffers=buffers)

    return [
        partial(lowered, buffer.id, buffer.line)
        for buffer in program.buffers
        if buffer.role is Role.SCRATCH and buffer.dtype == "float32" and buffer.space is not Space.HBM
    ]


def _order_swapped(program: Program) -> list[Maker]:
    """Two neighboring instructions, one of which uses what the other writes, exchanged."""
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


def _operands_swapped(program: Program) -> list[Maker]:
    """a - b written as b - a."""
    return [
        partial(_with, program, position, replace(instruction, srcs=instruction.srcs[::-1]))
        for position, instruction in _instructions(program)
        if instruction.op == "tensor_tensor"
        and instruction.attr("op") in _NOT_COMMUTATIVE
        and instruction.srcs[0] != instruction.srcs[1]
    ]


def _op_swapped(program: Program) -> list[Maker]:
    """Another operation or function of the same kind."""
    return [
        partial(_with_attribute, program, position, instruction, key, _OP_SWAPS[value])
        for position, instruction in _instructions(program)
        for key, value in instruction.attrs
        if key in _OP_ATTRIBUTES and isinstance(value, str) and value in _OP_SWAPS
    ]


def _flag_flipped(program: Program) -> list[Maker]:
    """A reversed operand, a negation or an accumulation the other way round."""
    made: list[Maker] = []
    for position, instruction in _instructions(program):
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
                made.append(partial(_with_attribute, program, position, instruction, key, other))
    return made


def _constant_changed(program: Program) -> list[Maker]:
    """An immediate one percent larger, or 0.01 where it is zero."""
    return [
        partial(_with_operand, program, position, instruction, number, operand * 1.01 if operand else 0.01)
        for position, instruction in _instructions(program)
        for number, operand in enumerate(instruction.srcs)
        if not isinstance(operand, Access | Pattern) and abs(operand) < 1e30
    ]


_OPERATORS: dict[str, Callable[[Program], list[Maker]]] = {
    "index_shift": _index_shift,
    "loop_variable_forgotten": _coefficient,
    "instruction_dropped": _dropped,
    "mask_removed": _mask_removed,
    "mask_edge": _mask_edge,
    "loop_short": _loop_short,
    "dtype_lowered": _dtype_lowered,
    "order_swapped": _order_swapped,
    "operands_swapped": _operands_swapped,
    "op_swapped": _op_swapped,
    "flag_flipped": _flag_flipped,
    "constant_changed": _constant_changed,
}
OPERATORS = tuple(_OPERATORS)
