"""Make programs that are written differently and equivalent. A check that refuses one gives a false alarm."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from acceld.nki.ir.codec import program_hash
from acceld.nki.ir.def_use import uses_of
from acceld.nki.ir.program import Affine, Instruction, Loop, LoopKind, Node, Program
from scripts.evidence.simbench.mutation.editing import Change, Maker, instructions, mapped, with_instruction
from scripts.evidence.simbench.mutation.mutants import Mutant

_COMMUTATIVE = frozenset("add multiply max min".split())


def rewrites(program: Program, seed: int = 0) -> Iterator[Mutant]:
    """Yield one equivalent program of each kind for which the program has a place. ``seed`` decides between
    several places.
    """
    source = random.Random(seed)
    for name, kind in KINDS.items():
        makers = kind(program)
        source.shuffle(makers)
        for maker in makers:
            change = maker()
            if change is not None and program_hash(change[1]) != program_hash(program):
                yield Mutant(name, *change)
                break


def operands_commuted(program: Program) -> list[Maker]:
    """Return makers of programs in which a + b is written as b + a."""

    def commuted(position: int, one: Instruction) -> Change:
        return with_instruction(program, position, replace(one, srcs=one.srcs[::-1]))

    return [
        lambda position=position, one=one: commuted(position, one)  # type: ignore[misc]
        for position, one in instructions(program)
        if one.op == "tensor_tensor" and one.attr("op") in _COMMUTATIVE and one.srcs[0] != one.srcs[1]
    ]


def neighbors_exchanged(program: Program) -> list[Maker]:
    """Return makers of programs with two neighboring instructions exchanged, neither of which writes what the
    other uses.
    """
    made: list[Maker] = []

    def exchanged(first: Instruction, second: Instruction) -> Change:
        def visit(body: tuple[Node, ...]) -> tuple[Node, ...]:
            nodes = [replace(n, body=visit(n.body)) if isinstance(n, Loop) else n for n in body]
            for at in range(len(body) - 1):
                if body[at] is first and body[at + 1] is second:
                    nodes[at], nodes[at + 1] = nodes[at + 1], nodes[at]
            return tuple(nodes)

        return first.line, replace(program, body=visit(program.body))

    def collect(body: tuple[Node, ...]) -> None:
        for node in body:
            if isinstance(node, Loop):
                collect(node.body)
        for a, b in itertools.pairwise(body):
            if isinstance(a, Instruction) and isinstance(b, Instruction) and _apart(a, b):
                made.append(lambda a=a, b=b: exchanged(a, b))  # type: ignore[misc]

    collect(program.body)
    return made


def _apart(a: Instruction, b: Instruction) -> bool:
    if any(one.attr("lazy") or one.op == "barrier" for one in (a, b)):
        return False
    touched = [{use.access.buffer for use in uses_of(one, ())} for one in (a, b)]
    written = [{use.access.buffer for use in uses_of(one, ()) if use.writes} for one in (a, b)]
    return not (touched[0] & written[1] or touched[1] & written[0])


def loop_reversed(program: Program) -> list[Maker]:
    """Return makers of programs in which a loop with independent iterations runs backward."""

    def turned(loop: Loop) -> Change:
        def affine(value: Affine) -> Affine:
            coef = dict(value.terms).get(loop.id, 0)
            return value + Affine(coef * (loop.trips - 1), ((loop.id, -2 * coef),)) if coef else value

        return loop.line, mapped(program, affine)

    return [lambda one=one: turned(one) for one in _plain_loops(program, 2)]  # type: ignore[misc]


def loop_split(program: Program) -> list[Maker]:
    """Return makers of programs in which a loop of 2 n iterations is written as n iterations of two."""
    new = max(program.loops, default=0) + 1

    def parted(loop: Loop) -> Change:
        def affine(value: Affine) -> Affine:
            coef = dict(value.terms).get(loop.id, 0)
            return value + Affine(0, tuple(sorted(((loop.id, coef), (new, coef))))) if coef else value

        def node(one: Loop, body: tuple[Node, ...]) -> Node:
            if one.id != loop.id:
                return replace(one, body=body)
            inner = Loop(new, f"{one.name}_inner", 2, one.kind, body, one.line)
            return replace(one, trips=one.trips // 2, body=(inner,))

        small = mapped(program, affine, loop=node)
        buffers = tuple(replace(b, scope=_deeper(b.scope, loop.id, new)) for b in small.buffers)
        return loop.line, replace(small, buffers=buffers)

    return [lambda one=one: parted(one) for one in _plain_loops(program, 4) if one.trips % 2 == 0]  # type: ignore[misc]


def _deeper(scope: tuple[int, ...], loop: int, inner: int) -> tuple[int, ...]:
    at = scope.index(loop) + 1 if loop in scope else 0
    return (*scope[:at], inner, *scope[at:]) if at else scope


def _plain_loops(program: Program, least: int) -> list[Loop]:
    """Return the loops with independent iterations, in which no instruction treats the first iteration
    differently.
    """
    asked = {
        loop
        for instruction, _ in program.walk()
        for key, value in instruction.attrs
        if key == "loops" and isinstance(value, tuple)
        for loop in value
    }
    return [
        one
        for one in program.loops.values()
        if one.kind is LoopKind.AFFINE and one.trips >= least and one.id not in asked and one.trips_register is None
    ]


KINDS: Mapping[str, Callable[[Program], list[Maker]]] = {
    "operands_commuted": operands_commuted,
    "neighbors_exchanged": neighbors_exchanged,
    "loop_reversed": loop_reversed,
    "loop_split": loop_split,
}
