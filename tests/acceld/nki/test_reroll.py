"""Iterations that differ by constants alone become loops again, and nothing else changes."""

from __future__ import annotations

from acceld.nki.frontend.current.loop_rerolling import mark, reroll
from acceld.nki.ir.builder import ProgramBuilder
from acceld.nki.ir.codec import decode, encode
from acceld.nki.ir.program import Access, Affine, Engine, Instruction, Loop, LoopKind, Program, Role, Space, TileDim

TILE = (TileDim(128, (1, 0)), TileDim(64, (0, 1)))


def tile(buffer: int, row: int = 0, column: int = 0) -> Access:
    return Access(buffer, (Affine(row), Affine(column)), TILE)


def trace(*, rows: int = 3, columns: int = 4, odd_row: int | None = None, escape: bool = False) -> Program:
    """Trace a copy of a (rows*128, columns*64) tensor tile by tile, with every iteration unrolled and marked."""
    b = ProgramBuilder()
    x = b.buffer("x", Space.HBM, "float32", (rows * 128, columns * 64), role=Role.INPUT).id
    y = b.buffer("y", Space.HBM, "float32", (rows * 128, columns * 64), role=Role.OUTPUT).id
    tiles = []
    for i in range(rows):
        with b.loop(mark("i"), 1, LoopKind.SEQUENTIAL, line=2):
            for j in range(columns):
                with b.loop(mark("j"), 1, LoopKind.SEQUENTIAL, line=3):
                    t = b.buffer("t", Space.SBUF, "float32", (128, 64), partition_axis=0, line=4).id
                    tiles.append((t, i, j))
                    b.emit(Instruction("dma_copy", Engine.DMA, (tile(t),), (tile(x, 128 * i, 64 * j),), line=4))
                    if i == odd_row:
                        b.emit(Instruction("copy", Engine.VECTOR, (tile(t),), (tile(t),), line=5))
                    if not escape:
                        b.emit(Instruction("dma_copy", Engine.DMA, (tile(y, 128 * i, 64 * j),), (tile(t),), line=6))
    if escape:
        for t, i, j in tiles:
            b.emit(Instruction("dma_copy", Engine.DMA, (tile(y, 128 * i, 64 * j),), (tile(t),), line=6))
    return b.finish(api="nki", chip="trn2", entry="k", inputs=(x,), outputs=(y,))


def performed(program: Program) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return each instruction that runs, with its line and the starts of its HBM operands."""
    out: list[tuple[str, int, tuple[int, ...]]] = []

    def run(body: tuple[Loop | Instruction, ...], env: dict[int, int]) -> None:
        for node in body:
            if isinstance(node, Loop):
                for trip in range(node.trips):
                    run(node.body, {**env, node.id: trip})
            else:
                starts = [
                    start.at(env)
                    for access in node.accesses
                    if program.buffers[access.buffer].space is Space.HBM
                    for start in access.start
                ]
                out.append((node.op, node.line, tuple(starts)))

    run(program.body, {})
    return out


def test_nested_ranges_become_nested_loops_over_one_buffer() -> None:
    unrolled = trace()
    rolled = reroll(unrolled)
    (outer,) = rolled.body
    assert isinstance(outer, Loop) and (outer.name, outer.trips) == ("i", 3)
    (inner,) = outer.body
    assert isinstance(inner, Loop) and (inner.name, inner.trips) == ("j", 4)
    assert len(inner.body) == 2 and len(rolled.buffers) == 3
    assert rolled.buffers[2].scope == (outer.id, inner.id)
    assert performed(rolled) == performed(unrolled)
    assert decode(encode(rolled)) == rolled


def test_an_iteration_that_differs_stays_apart() -> None:
    unrolled = trace(odd_row=1)
    rolled = reroll(unrolled)
    assert [node.trips for node in rolled.body if isinstance(node, Loop)] == [4, 4, 4]
    assert performed(rolled) == performed(unrolled)


def test_a_tile_that_leaves_its_iteration_keeps_its_own_buffer() -> None:
    unrolled = trace(rows=2, columns=2, escape=True)
    rolled = reroll(unrolled)
    assert len(rolled.buffers) == 6 and all(buffer.scope == () for buffer in rolled.buffers)
    assert performed(rolled) == performed(unrolled)
    assert decode(encode(rolled)) == rolled


def test_a_program_without_marks_is_unchanged_but_for_its_ids() -> None:
    rolled = reroll(trace())
    assert reroll(rolled) == rolled


def test_registers_that_nothing_uses_leave_the_program() -> None:
    builder = ProgramBuilder()
    idle, first, _, second = (builder.register() for _ in range(4))
    builder.emit(Instruction("register_move", Engine.SYNC, (), (7,), (("register", first),)))
    builder.emit(Instruction("register_move", Engine.SYNC, (), (0,), (("register", second), ("source", first))))
    with builder.loop("i", 9, LoopKind.DYNAMIC, trips_register=second):
        builder.emit(Instruction("register_move", Engine.SYNC, (), (3,), (("register", first),)))
    program = builder.finish(api="nki", chip="trn2", entry="kernel", inputs=(), outputs=())
    assert idle == 0 and program.registers == 2
    assert [dict(node.attrs) for node, _ in program.walk()] == [
        {"register": 0},
        {"register": 1, "source": 0},
        {"register": 0},
    ]
    assert [loop.trips_register for loop in program.loops.values()] == [1]
