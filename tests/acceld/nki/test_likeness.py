"""Like instructions are checked once: the findings are those of checking each of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from acceld.nki.ir.codec import decode, encode
from acceld.nki.ir.program import Access, Affine, Engine, Indirect, Instruction, Loop, LoopKind, Node, Program
from acceld.nki.verify.likeness import Likeness
from acceld.nki.verify.operands import Operands
from acceld.nki.verify.verifier import verify
from tests.acceld.nki.programs import Kernel, Run, at, var


def unrolled(blocks: int = 8) -> Program:
    """Return a legal program of equal blocks on tensors of their own, in loops and outside of them."""
    kernel = Kernel()
    x, y = kernel.input((128, 1024)), kernel.output((128, 1024))
    weights = kernel.loaded((128, 64))

    def block(part: Affine | int) -> None:
        tile, half, total = kernel.sbuf((128, 64)), kernel.sbuf((64, 64)), kernel.psum((64, 64))
        kernel.op("dma_copy", at(tile), at(x, Run(0, 128), Run(part, 64)))
        kernel.op("copy", at(half), at(tile, Run(64, 64), Run(0, 64)))
        kernel.op("matmul", at(total), [at(tile), at(weights)], accumulate="no")
        kernel.op("tensor_tensor", at(half), [at(half), at(total)], op="add")
        kernel.op("copy", at(tile, Run(64, 64), Run(0, 64)), at(half))
        kernel.op("dma_copy", at(y, Run(0, 128), Run(part, 64)), at(tile))

    for number in range(blocks):
        block(64 * number)
    for _ in range(2):
        with kernel.loop(blocks // 2, LoopKind.SEQUENTIAL) as i:
            block(var(i, 64, 512))
            block(var(i, 64, 512))
    return kernel.finish()


def _moved(access: Access, random: Random, buffers: int) -> Access:
    start, dims = list(access.start), list(access.dims)
    d, k = random.randrange(len(start)), random.randrange(len(dims))
    match random.randrange(6):
        case 0:
            start[d] = start[d] + random.choice([-1, 1, 32, 2000])
        case 1:
            dims[k] = replace(dims[k], count=random.choice([0, 1, 32, 65, 129]))
        case 2:
            return replace(access, buffer=random.randrange(buffers))
        case 3:
            return replace(access, indirect=(Indirect(d, register=0),))
        case 4:
            start[d] = start[d] + Affine(0, ((random.randrange(3), 64),))
        case _:
            return replace(access, dtype=random.choice(["int32", "bfloat16"]))
    return replace(access, start=tuple(start), dims=tuple(dims))


def _changed(node: Instruction, random: Random, buffers: int) -> Instruction:
    if not random.randrange(6):
        return replace(node, engine=random.choice(list(Engine)))
    if not random.randrange(6):
        return replace(node, attrs=(("op", random.choice(["max", "bitwise_and", "none"])),))
    dsts, srcs = list(node.dsts), list(node.srcs)
    first = srcs[0]
    if random.randrange(2) and isinstance(first, Access):
        srcs[0] = _moved(first, random, buffers)
    else:
        dsts[0] = _moved(dsts[0], random, buffers)
    return replace(node, dsts=tuple(dsts), srcs=tuple(srcs))


def changed(program: Program, random: Random) -> Program:
    """Return the program with a few instructions changed, most of them so that they break a rule."""

    def visit(body: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(
            replace(node, body=visit(node.body))
            if isinstance(node, Loop)
            else _changed(node, random, len(program.buffers))
            if random.random() < 0.03
            else node
            for node in body
        )

    return replace(program, body=visit(program.body), registers=1)


def findings(program: Program) -> list[tuple[str, int, str]]:
    return [(found.rule, found.line, found.message) for found in verify(program)]


def test_equal_blocks_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []
    check = Operands.check

    def recorded(self: Operands, instruction: Instruction, loops: tuple[Loop, ...]) -> None:
        checked.append(instruction)
        check(self, instruction, loops)

    monkeypatch.setattr(Operands, "check", recorded)
    program = decode(encode(unrolled()))
    assert findings(program) == []
    assert len(checked) < 25 < sum(1 for _ in program.walk())


@pytest.mark.parametrize("seed", range(60))
def test_findings_are_those_of_checking_each_instruction(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = changed(decode(encode(unrolled())), Random(seed))
    found = findings(program)
    monkeypatch.setattr(Likeness, "of", lambda self, instruction, outer: None)
    assert found == findings(program)
