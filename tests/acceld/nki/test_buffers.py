"""The storage of buffers never changes a result: random programs against an interpreter with full storage."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from acceld.nki.execute.buffers import Planner, is_whole
from acceld.nki.execute.interpreter import ExecuteOptions, _Execution, execute
from acceld.nki.ir.def_use import Coverage, all_uses
from acceld.nki.ir.program import (
    Access,
    Affine,
    Buffer,
    Engine,
    Instruction,
    Loop,
    LoopKind,
    Node,
    Pattern,
    Program,
    Role,
    Space,
    TileDim,
)
from acceld.nki.ir.regions import Box, box, index_bounds
from tests.acceld.nki.programs import Kernel, Run, at, var
from tests.properties import examples

Array = NDArray[Any]
PARTITIONS, WIDTH, BLOCKS = 2, 3, 3


class Interpreter:
    """Element by element, every buffer in full; a new instance of it in each iteration of its scope."""

    def __init__(self, program: Program, inputs: list[Array]) -> None:
        self.program = program
        self.memory = [np.full(buffer.shape, np.nan, np.float32) for buffer in program.buffers]
        for number, values in zip(program.inputs, inputs, strict=True):
            self.memory[number] = values.copy()

    def run(self) -> list[Array]:
        with np.errstate(all="ignore"):
            self.body(self.program.body, {})
        return [self.memory[number] for number in self.program.outputs]

    def body(self, body: tuple[Node, ...], env: dict[int, int]) -> None:
        for node in body:
            if isinstance(node, Instruction):
                self.instruction(node, env)
                continue
            for i in range(node.trips):
                for buffer in self.program.buffers:
                    if buffer.scope and buffer.scope[-1] == node.id:
                        self.memory[buffer.id][...] = np.nan
                self.body(node.body, {**env, node.id: i})

    def index(self, access: Access, point: tuple[int, ...], env: dict[int, int]) -> tuple[int, ...]:
        return tuple(
            start.at(env) + sum(i * dim.steps[d] for i, dim in zip(point, access.dims, strict=True))
            for d, start in enumerate(access.start)
        )

    def instruction(self, one: Instruction, env: dict[int, int]) -> None:
        dst = one.dsts[0]
        points = [
            point
            for point in itertools.product(*(range(dim.count) for dim in dst.dims))
            if all(p.base.at(env) + sum(c * i for c, i in zip(p.coefs, point, strict=False)) >= 0 for p in one.mask)
        ]
        values = []
        for point in points:
            terms = [
                self.memory[src.buffer][self.index(src, point, env)] if isinstance(src, Access) else np.float32(src)
                for src in one.srcs
                if not isinstance(src, Pattern)
            ]
            values.append(terms[0] if len(terms) == 1 else terms[0] + terms[1])
        for point, value in zip(points, values, strict=True):
            self.memory[dst.buffer][self.index(dst, point, env)] = value


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Return loops up to three deep that fill, copy and add tiles of blocked buffers declared at any level."""
    buffers: list[Buffer] = []
    count = itertools.count()

    def declare(space: Space, role: Role, scope: tuple[int, ...]) -> Buffer:
        blocks = draw(st.integers(0, 2)) if role is Role.SCRATCH else 1
        shape = (*([BLOCKS] * blocks), PARTITIONS, 2 * WIDTH)
        axis = blocks if space is not Space.HBM else -1
        buffers.append(Buffer(len(buffers), "", space, "float32", shape, axis, role, scope))
        return buffers[-1]

    source = declare(Space.HBM, Role.INPUT, ())
    result = declare(Space.HBM, Role.OUTPUT, ())

    def tile(buffer: Buffer, loops: tuple[Loop, ...], width: int) -> Access:
        starts = []
        for size in buffer.shape[:-2]:
            fitting = [loop for loop in loops if loop.trips <= size]
            loop = draw(st.sampled_from([None, *fitting, *fitting]))
            starts.append(Affine(draw(st.integers(0, size - 1))) if loop is None else var(loop))
        short = [loop for loop in loops if loop.trips <= 2]
        loop = draw(st.sampled_from([None, None, *short]))
        column = Affine(draw(st.sampled_from([0, WIDTH]))) if loop is None else var(loop, WIDTH)
        starts += [Affine(), column if width == WIDTH else Affine()]
        rank = len(buffer.shape)
        dims = tuple(
            TileDim(size, tuple(int(k == d) for k in range(rank)))
            for size, d in ((PARTITIONS, rank - 2), (width, rank - 1))
        )
        return Access(buffer.id, tuple(starts), dims)

    def instruction(loops: tuple[Loop, ...]) -> Instruction:
        ids = tuple(loop.id for loop in loops)
        known = [one for one in buffers if one.scope == ids[: len(one.scope)]]
        scratch = [one for one in known if one.role is Role.SCRATCH]
        if not scratch or not draw(st.integers(0, 2)):
            scope = ids[: draw(st.integers(0, len(ids)))]
            scratch = [declare(draw(st.sampled_from([Space.SBUF, Space.HBM])), Role.SCRATCH, scope)]
        dst = draw(st.sampled_from([result, *scratch, *scratch]))
        srcs = [draw(st.sampled_from([source, *scratch, *scratch])) for _ in range(2)]
        mask: tuple[Pattern, ...] = ()
        if loops and not draw(st.integers(0, 3)):
            base = var(draw(st.sampled_from(loops)), draw(st.sampled_from([-1, 1])), draw(st.integers(-1, 2)))
            mask = (Pattern(base, draw(st.sampled_from([(0, 0), (0, -1), (1, 0), (-1, 1)]))),)
        width = draw(st.sampled_from([WIDTH, 2 * WIDTH]))
        op = draw(st.sampled_from(["memset", "copy", "tensor_tensor", "tensor_tensor"]))
        tiles: tuple[Any, ...] = tuple(tile(one, loops, width) for one in srcs)
        operands = {"memset": (float(draw(st.integers(-2, 2))),), "copy": tiles[:1], "tensor_tensor": tiles}[op]
        attrs = (("op", "add"),) if op == "tensor_tensor" else ()
        return Instruction(op, Engine.UNKNOWN, (tile(dst, loops, width),), operands, attrs, mask)

    def body(loops: tuple[Loop, ...]) -> tuple[Node, ...]:
        out: list[Node] = []
        for _ in range(draw(st.integers(1, 3))):
            if len(loops) < 3 and draw(st.booleans()):
                loop = Loop(next(count), "", draw(st.integers(1, 3)), LoopKind.SEQUENTIAL, ())
                inner = body((*loops, loop))
                out.append(Loop(loop.id, "", loop.trips, loop.kind, inner))
            else:
                out.append(instruction(loops))
        return tuple(out)

    made = body(())
    return Program("nki_legacy", "trn1", "k", tuple(buffers), made, (source.id,), (result.id,))


@given(programs())
@examples(40, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])
def test_contracted_buffers_give_what_an_interpreter_with_full_buffers_gives(program: Program) -> None:
    data = np.random.default_rng(2).standard_normal((BLOCKS, PARTITIONS, 2 * WIDTH)).astype(np.float32)
    expected = Interpreter(program, [data]).run()
    got = execute(program, [data])
    assert np.array_equal(got[0], expected[0], equal_nan=True)


def blocks_program(*, reads_before: bool, covered: bool) -> tuple[Program, Buffer]:
    kernel = Kernel()
    x, y = kernel.input((4, 8, 6)), kernel.output((4, 8, 6))
    big = kernel.sbuf((4, 8, 6), axis=1)
    with kernel.loop(4) as i:
        tile = at(big, var(i), Run(0, 8), Run(0, 6))
        part = tile if covered else at(big, var(i), Run(0, 8), Run(0, 3))
        if reads_before:
            kernel.op("dma_copy", at(y, var(i), Run(0, 8), Run(0, 6)), at(big, 0, Run(0, 8), Run(0, 6)))
        columns = 6 if covered else 3
        kernel.op("dma_copy", part, at(x, var(i), Run(0, 8), Run(0, columns)))
        kernel.op("dma_copy", at(y, var(i), Run(0, 8), Run(0, 6)), tile)
    program = kernel.finish()
    return program, next(buffer for buffer in program.buffers if buffer.partition_axis == 1)


@pytest.mark.parametrize(("covered", "refilled"), [(True, False), (False, True)])
def test_storage_is_made_undefined_again_only_where_reads_are_not_covered(covered: bool, refilled: bool) -> None:
    program, buffer = blocks_program(reads_before=False, covered=covered)
    layout = _Execution(program, ExecuteOptions()).stores[buffer.id].layout
    assert layout.elements == 48
    assert layout.dropped == frozenset(program.loops)
    assert (layout.refill != -1) is refilled


def test_a_block_read_by_another_iteration_keeps_all_blocks() -> None:
    program, buffer = blocks_program(reads_before=True, covered=True)
    assert _Execution(program, ExecuteOptions()).stores[buffer.id].layout.elements == 4 * 48


def test_float64_storage_is_wider_except_where_bits_are_read_as_another_type() -> None:
    kernel = Kernel()
    x = kernel.loaded((4, 6))
    bits = kernel.sbuf((4, 6), "int32")
    kernel.op("tensor_scalar", at(bits), [at(x, dtype="int32"), 1], op0="bitwise_and")
    plain = kernel.loaded((4, 6), "bfloat16")
    kernel.op("copy", at(kernel.sbuf((4, 6))), at(plain))
    program = kernel.finish()
    uses = all_uses(program)
    planner = Planner({}, float64=True)
    kinds = {one.dtype: planner.layout(one, uses[one.id]).dtype for one in program.buffers if one.space is Space.SBUF}
    assert kinds["bfloat16"] == np.float64
    assert kinds["int32"] == np.int32
    assert planner.layout(program.buffers[x.id], uses[x.id]).dtype == np.float32


bounded = st.integers(-3, 3)


@given(st.lists(st.tuples(bounded, bounded, bounded), min_size=1, max_size=2), st.data())
@examples(40)
def test_bounds_under_a_mask_hold_every_index_and_are_exact_for_one_axis(
    masks: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    trips = {0: data.draw(st.integers(1, 4)), 1: data.draw(st.integers(1, 4))}
    count = data.draw(st.integers(1, 5))
    start = Affine(data.draw(bounded), tuple((k, c) for k in (0, 1) if (c := data.draw(bounded))))
    step = data.draw(st.integers(-2, 2))
    access = Access(0, (start,), (TileDim(count, (step,)),))
    patterns = tuple(
        Pattern(Affine(const, tuple((k, c) for k, c in ((0, coef),) if c)), (slope,)) for const, coef, slope in masks
    )
    low, high = index_bounds(access, 0, trips, patterns, (0,))
    seen = [
        start.at({0: a, 1: b}) + step * i
        for a, b, i in itertools.product(range(trips[0]), range(trips[1]), range(count))
        if all(p.base.at({0: a, 1: b}) + p.coefs[0] * i >= 0 for p in patterns)
    ]
    assert all(low <= index <= high for index in seen)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(-3, 3), st.integers(1, 5))
def test_a_box_over_a_loop_is_dense_exactly_where_the_iterations_leave_no_gap(
    count: int, trips: int, coef: int, step: int
) -> None:
    start = Affine(20, ((0, coef),) if coef else ())
    region = box(Access(0, (start,), (TileDim(count, (step,)),)))
    over = region.without(0, trips)
    assert over is not None
    touched = {20 + coef * i + step * j for i in range(trips) for j in range(count)}
    first, size = over.starts[0].const, over.extents[0]
    assert touched <= set(range(first, first + size))
    assert (min(touched), max(touched)) == (first, first + size - 1)
    if over.dense:
        assert touched == set(range(first, first + size))


def test_boxes_that_touch_in_one_dimension_merge() -> None:
    one = Box((Affine(0), Affine(0)), (4, 3))
    beside = Box((Affine(0), Affine(3)), (4, 2))
    assert one.merged(beside) == Box((Affine(0), Affine(0)), (4, 5))
    assert beside.merged(one) == Box((Affine(0), Affine(0)), (4, 5))
    assert one.merged(Box((Affine(0), Affine(4)), (4, 2))) is None
    assert one.merged(Box((Affine(1), Affine(3)), (4, 2))) is None


def test_coverage_is_certain_when_it_says_yes() -> None:
    program, buffer = blocks_program(reads_before=False, covered=True)
    uses = all_uses(program)[buffer.id]
    assert Coverage({number: loop.trips for number, loop in program.loops.items()}).complete(uses, 0)
    partly, buffer = blocks_program(reads_before=False, covered=False)
    uses = all_uses(partly)[buffer.id]
    assert not Coverage({number: loop.trips for number, loop in partly.loops.items()}).complete(uses, 0)


@pytest.mark.parametrize(("covered", "reads_before"), [(True, False), (False, False), (True, True)])
def test_a_buffer_is_filled_if_writes_reach_all_of_it_before_any_read(covered: bool, reads_before: bool) -> None:
    program, buffer = blocks_program(reads_before=reads_before, covered=covered)
    coverage = Coverage({number: loop.trips for number, loop in program.loops.items()})
    uses = all_uses(program)
    assert coverage.fills(uses[buffer.id], buffer.shape) is (covered and not reads_before)
    assert not coverage.fills(uses[buffer.id], (*buffer.shape[:-1], buffer.shape[-1] + 1))
    assert not coverage.fills([], buffer.shape)


def test_only_an_access_of_every_element_is_whole() -> None:
    kernel = Kernel()
    tensor = kernel.sbuf((2, 8, 6), axis=1)
    assert is_whole(tensor, at(tensor))
    assert not is_whole(tensor, at(tensor, Run(0, 2), Run(0, 8), Run(0, 5)))
    assert not is_whole(tensor, at(tensor, 0, Run(0, 8), Run(0, 6)))
