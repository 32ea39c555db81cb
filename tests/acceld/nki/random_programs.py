"""Random programs with every structure that the passes of the performance model treat, in no sensible order.

The programs need not be legal, and compute nothing of use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from acceld.chips import ChipSpec, chip_spec
from acceld.nki.ir.program import (
    Access,
    Affine,
    Attr,
    Buffer,
    Engine,
    Indirect,
    Instruction,
    LoopKind,
    Operand,
    Pattern,
    Program,
    Role,
    TileDim,
)
from acceld.nki.timing.parameters import CURRENT, LEGACY, LEGACY_LATER, TimelineParams
from tests.acceld.nki.tiles import Writer, tile, times

COLUMNS = 2048
EXECUTIONS = 100
"""Executions after which a program opens no further loop."""


@dataclass(frozen=True)
class Case:
    """A program, the chip to time it on, and the parameters."""

    program: Program
    chip: ChipSpec
    params: TimelineParams


def case(seed: int) -> Case:
    """Return the same case for the same seed."""
    random = Random(seed)
    params = random.choice([LEGACY, LEGACY_LATER, CURRENT])
    numbered, dead, spills, alternating, shared = (random.random() < 0.5 for _ in range(5))
    params = replace(
        params,
        window=random.choice([1, 4, 64]),
        semaphore_us=random.choice([0.0, 0.1]),
        value_numbering=numbered,
        eliminate_dead=dead,
        spills=spills,
        alternates_copies=alternating,
        shared_sbuf_port=shared,
    )
    name = random.choice(["trn1", "trn2", "trn3"])
    rows = random.choice([8, 16, 32, 64])
    chip = replace(chip_spec(name), sbuf_bytes_per_partition=params.sbuf_reserved_bytes + 1024 * rows)
    if random.random() < 0.5:
        chip = replace(chip, psum_banks=2)
    return Case(_Maker(random).program(params.model, name), chip, params)


class _Maker:
    def __init__(self, random: Random) -> None:
        self.random, self.w = random, Writer()
        self.source = self.w.hbm(128, COLUMNS)
        self.kept = self.w.hbm(128, COLUMNS, role=Role.SCRATCH)
        self.target = self.w.hbm(128, 8 * COLUMNS, role=Role.OUTPUT)
        self.register = self.w.register()
        self.rows = [self.w.sbuf(128, random.choice([64, 256, 512, 1024])) for _ in range(random.randint(2, 4))]
        self.turned = [self.w.sbuf(128, 128) for _ in range(2)]
        self.narrow = [self.w.sbuf(64, 256), self.w.sbuf(128, 8), self.w.sbuf(128, 1)]
        self.sums = [self.w.psum(128, random.choice([64, 512])) for _ in range(2)]
        self.loops: list[tuple[int, int]] = []
        """Loops around the next instruction, as (id, trips)."""

    def program(self, model: str, chip: str) -> Program:
        for buffer in [*self.rows, *self.turned, *self.narrow]:
            self.fill(buffer)
        self.body(1)
        for row in self.rows:
            if self.random.random() < 0.5:
                self.w.store(tile(self.target, (0, 128), (self.step(row), row.shape[1])), tile(row))
        return self.w.done("nki" if model == CURRENT.model else "nki_legacy", chip)

    def fill(self, buffer: Buffer) -> None:
        place = tile(self.source, (0, buffer.shape[0]), (self.step(buffer), buffer.shape[1]))
        self.w.load(tile(buffer), place)

    def step(self, buffer: Buffer) -> int:
        return self.random.randrange(COLUMNS // buffer.shape[1]) * buffer.shape[1]

    def body(self, times_run: int) -> None:
        random = self.random
        for _ in range(random.randint(2, 5)):
            trips = random.choice([1, 2, 3, 4, 7])
            if len(self.loops) < 3 and times_run * trips < EXECUTIONS / 5 and random.random() < 0.4:
                kind = random.choice([LoopKind.AFFINE, LoopKind.AFFINE, LoopKind.SEQUENTIAL])
                with self.w.loop("i", trips, kind) as loop:
                    self.loops.append((loop.id, trips))
                    inside = random.random() < 0.6
                    if inside:
                        self.rows.append(self.w.sbuf(128, random.choice([128, 512])))
                        self.fill(self.rows[-1])
                    self.body(times_run * trips)
                    if inside:
                        self.rows.pop()
                    self.loops.pop()
            else:
                random.choice(_EMITTERS)(self)

    def moving(self, room: int, step: int) -> Affine:
        """Return a start below ``room``, which a loop may move in steps."""
        if self.loops and self.random.random() < 0.7:
            loop, trips = self.random.choice(self.loops)
            if step * trips <= room:
                return times(loop, step)
        return Affine(self.random.randrange(max(1, room // step)) * step)

    def part(self, buffer: Buffer, width: int = 0) -> Access:
        """Return all columns of a tile, or some of them."""
        columns = buffer.shape[1]
        width = width or self.random.choice([columns, columns, max(1, columns // 2), max(1, columns // 4)])
        width = min(width, columns)
        return tile(buffer, (0, buffer.shape[0]), (self.moving(columns - width + 1, width), width))

    def spread(self, buffer: Buffer) -> Access:
        """Return every other column of a tile."""
        count = max(1, buffer.shape[1] // 2)
        return Access(
            buffer.id, (Affine(), Affine(self.random.randrange(2))), (TileDim(128, (1, 0)), TileDim(count, (0, 2)))
        )

    def row(self) -> Buffer:
        return self.random.choice(self.rows)

    def any(self) -> Access:
        buffer = self.random.choice([*self.rows, *self.rows, *self.sums, *self.narrow, *self.turned])
        if self.random.random() < 0.1 and buffer.shape[0] == 128:
            return self.spread(buffer)
        return self.part(buffer)

    def do(
        self, op: str, dsts: tuple[Access, ...], srcs: tuple[Operand, ...], engine: Engine, /, **attrs: Attr
    ) -> None:
        random = self.random
        mask: tuple[Pattern, ...] = ()
        pattern = None
        if op not in ("dma_transpose", "memset", "barrier") and random.random() < 0.2:
            base = Affine(random.choice([63, 127, 200]))
            if self.loops:
                base = base + times(random.choice(self.loops)[0], random.choice([-64, -16, 32]))
            mask = (Pattern(base, (0, -1)),)
            if random.random() < 0.2:
                mask = (Pattern(base, (-1, -1)),)
        if op in ("iota", "affine_select"):
            pattern = Pattern(self.moving(64, 8), (1, random.choice([0, 1])))
        self.w.line += 1
        line = random.choice([self.w.line, 1000])
        self.w.emit(Instruction(op, engine, dsts, srcs, tuple(attrs.items()), mask, pattern, line))

    def memory(self, width: int) -> Access:
        buffer = self.random.choice([self.source, self.source, self.kept])
        indirect = (Indirect(1, register=self.register),) if self.random.random() < 0.1 else ()
        found = tile(buffer, (0, 128), (self.moving(COLUMNS - width + 1, width), width))
        return replace(found, indirect=indirect)

    def load(self) -> None:
        into = self.part(self.row())
        self.do("dma_copy", (into,), (self.memory(into.shape[1]),), Engine.DMA)

    def load_few_rows(self) -> None:
        rows, first = self.random.choice([(32, 0), (32, 32), (64, 64), (32, 96)])
        into = tile(self.row(), (first, rows), (0, 64))
        self.do("dma_copy", (into,), (tile(self.source, (0, rows), (self.moving(COLUMNS - 63, 64), 64)),), Engine.DMA)

    def store(self) -> None:
        value = self.part(self.row())
        width = value.shape[1]
        place = tile(
            self.random.choice([self.target, self.target, self.kept]), (0, 128), (self.moving(COLUMNS, width), width)
        )
        self.do("dma_copy", (place,), (value,), Engine.DMA)

    def turn(self) -> None:
        here, there = (
            tile(self.random.choice(self.turned)),
            tile(self.source, (0, 128), (self.moving(COLUMNS, 128), 128)),
        )
        if self.random.random() < 0.3:
            here, there = tile(self.target, (0, 128), (self.moving(COLUMNS, 128), 128)), here
        self.do("dma_transpose", (here,), (there,), Engine.DMA, axes=(1, 0))

    def add(self) -> None:
        engine = self.random.choice([Engine.VECTOR, Engine.GPSIMD, Engine.UNKNOWN])
        self.do("tensor_tensor", (self.any(),), (self.any(), self.any()), engine, op=self.random.choice(["add", "max"]))

    def scale(self) -> None:
        number = self.random.choice([1.0, 2.0, 2])
        self.do("tensor_scalar", (self.any(),), (self.any(), number), Engine.UNKNOWN, op0="multiply")

    def bend(self) -> None:
        self.do("activation", (self.any(),), (self.any(), 0.0, 1.0), Engine.SCALAR, func="exp")

    def fold(self) -> None:
        command = self.random.choice(["reset_reduce", "reduce", "reset", "idle"])
        dsts = (self.part(self.row(), 64), *([tile(self.narrow[2])] if self.random.random() < 0.5 else []))
        self.do(
            "activation", dsts, (self.any(), 0.0, 1.0), Engine.SCALAR, func="exp", reduce_op="add", reduce_cmd=command
        )

    def copy(self) -> None:
        self.do(
            "copy", (self.any(),), (self.any(),), self.random.choice([Engine.UNKNOWN, Engine.UNKNOWN, Engine.VECTOR])
        )

    def clear(self) -> None:
        lazy = self.random.random() < 0.3
        self.do("memset", (tile(self.row()) if lazy else self.any(),), (0.0,), Engine.UNKNOWN, lazy=lazy)

    def product(self) -> None:
        into = self.part(self.random.choice(self.sums))
        moved = self.part(self.row(), into.shape[1])
        accumulate = self.random.choice(["yes", "no", "auto"])
        stationary = tile(self.random.choice(self.turned))
        if self.random.random() < 0.3:
            stationary = tile(self.turned[0], (0, 64))
        self.do("matmul", (into,), (stationary, moved), Engine.TENSOR, accumulate=accumulate)

    def broadcast(self) -> None:
        wide, row = self.w.sbuf(128, 64), tile(self.row(), (0, 1), (0, 64))
        self.do("broadcast_partition", (tile(wide),), (row,), Engine.TENSOR)
        self.do("tensor_tensor", (self.any(),), (self.any(), tile(wide)), Engine.VECTOR, op="add")

    def reduce(self) -> None:
        if self.loops:
            loops = tuple(loop for loop, _ in self.loops[-1:])
            self.do("loop_reduce", (self.any(),), (self.any(),), Engine.VECTOR, op="add", loops=loops)

    def number(self) -> None:
        self.do("iota", (self.any(),), (), Engine.GPSIMD)

    def select(self) -> None:
        self.do("affine_select", (self.any(),), (self.any(), 0.0), Engine.GPSIMD, cmp="greater_equal")

    def merge(self) -> None:
        self.do("copy_predicated", (self.any(),), (self.any(), self.any()), Engine.VECTOR)

    def wait(self) -> None:
        self.do("barrier", (), (), Engine.SYNC)


_EMITTERS = (
    *[_Maker.load] * 4, _Maker.load_few_rows, *[_Maker.store] * 3, _Maker.turn, *[_Maker.add] * 3, _Maker.scale, _Maker.bend,
    *[_Maker.fold] * 2, *[_Maker.copy] * 3, _Maker.clear, *[_Maker.product] * 3, _Maker.broadcast, _Maker.reduce,
    _Maker.number, _Maker.select, _Maker.merge, _Maker.wait,
)  # fmt: skip
