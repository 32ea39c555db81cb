"""Compiler effects of the legacy API: loops merged into instructions, places of tiles, turned loads, PSUM."""

from dataclasses import replace

import pytest

from acceld.nki.ir.program import Engine, LoopKind, Program, Role
from acceld.nki.timing.parameters import LEGACY, TimelineParams, default_params
from acceld.nki.timing.timeline import Timeline, timeline
from tests.acceld.nki.tiles import Writer, tile, times


def windows(
    trips: int, *, kind: LoopKind = LoopKind.AFFINE, in_psum: bool = False, partitions: bool = False
) -> Program:
    """Return products of three neighbors each, and their sums."""
    w = Writer()
    source, target = w.hbm(128, trips + 2), w.hbm(128, trips, role=Role.OUTPUT)
    a, out = w.sbuf(128, trips + 2), w.sbuf(128, trips)
    weights = w.psum(128, 3) if in_psum else w.sbuf(128, 3)
    w.load(tile(a), tile(source))
    w.do("copy", tile(weights), tile(a, (0, 128), (0, 3)), engine=Engine.VECTOR)
    with w.loop("o", trips, kind) as o:
        product = w.sbuf(128, 3)
        at = (times(o.id, 1), 64) if partitions else (0, 128)
        made = tile(product, (0, 64)) if partitions else tile(product)
        w.do(
            "tensor_tensor",
            made,
            tile(a, at, (times(o.id, 1), 3)),
            tile(weights, at),
            engine=Engine.VECTOR,
            op="multiply",
        )
        w.do(
            "tensor_reduce",
            tile(out, (0, made.shape[0]), (times(o.id, 1), 1)),
            made,
            engine=Engine.VECTOR,
            op="add",
            axes=(1,),
        )
    w.store(tile(target), tile(out))
    return w.done()


def vector_us(program: Program, **changes: int) -> float:
    return timeline(program, replace(LEGACY, **changes)).engines["vector"]  # type: ignore[arg-type]  # knobs by name


def test_a_short_affine_loop_becomes_one_instruction_of_each_kind() -> None:
    start = 64 + 66
    merged = vector_us(windows(64)) * 1120 - (64 + 3)
    assert merged == pytest.approx((2 * 192 + start) + (192 + start))


@pytest.mark.parametrize(
    "program",
    [
        windows(64, kind=LoopKind.SEQUENTIAL),
        windows(2048),
        windows(64, partitions=True),
        replace(windows(64), api="nki", chip="trn2"),
    ],
    ids=["may carry values", "does not fit a bank", "moves across partitions", "the current API keeps what is written"],
)
def test_other_loops_are_run_as_written(program: Program) -> None:
    assert timeline(program).engines["vector"] == timeline(program, _unmerged(program)).engines["vector"]


def _unmerged(program: Program) -> TimelineParams:
    return replace(default_params(program.api, program.chip), merged_iterations=0)


def test_of_a_long_loop_only_what_touches_psum_is_merged_and_only_a_few_iterations() -> None:
    trips = 2048
    several = vector_us(windows(trips, in_psum=True)) * 1120
    alone = vector_us(windows(trips, in_psum=True), merged_iterations=0) * 1120
    assert alone - several == pytest.approx(trips * (64 + 3) - trips / 4 * (64 + 12))


def test_no_merged_loop_is_faster_than_its_elements() -> None:
    for trips in (2, 8, 64, 128):
        assert vector_us(windows(trips)) * 1120 >= trips * (6 + 3)


def columns(wide: int) -> Program:
    """Sum two tiles of 512 columns, with ``wide`` columns in each iteration."""
    w = Writer()
    source, target = w.hbm(128, 512), w.hbm(128, 512, role=Role.OUTPUT)
    a, out = w.sbuf(128, 512), w.sbuf(128, 512)
    w.load(tile(a), tile(source))
    with w.loop("k", 512 // wide, LoopKind.AFFINE) as k:
        part = tile(a, (0, 128), (times(k.id, wide), wide))
        dst = tile(out, (0, 128), (times(k.id, wide), wide))
        w.do("tensor_tensor", dst, part, part, engine=Engine.VECTOR, op="add")
    w.store(tile(target), tile(out))
    return w.done()


def test_single_columns_merged_into_one_instruction_cost_what_wider_pieces_do() -> None:
    assert vector_us(columns(1)) == pytest.approx(vector_us(columns(2))) == pytest.approx(vector_us(columns(512)))


def rewritten(count: int, *, declared_outside: bool) -> Timeline:
    """Return loads into one tile, or each into its own tile. An instruction reads each load before the next one."""
    w = Writer()
    source, target = w.hbm(128, count * 512), w.hbm(128, count, role=Role.OUTPUT)
    held, sums = w.sbuf(128, 512), w.sbuf(128, count)
    with w.loop("i", count, LoopKind.SEQUENTIAL) as i:
        a = held if declared_outside else w.sbuf(128, 512)
        w.load(tile(a), tile(source, (0, 128), (times(i.id, 512), 512)))
        w.do(
            "tensor_reduce",
            tile(sums, (0, 128), (times(i.id, 1), 1)),
            tile(a),
            engine=Engine.VECTOR,
            op="add",
            axes=(1,),
        )
    w.store(tile(target), tile(sums))
    return timeline(w.done(), replace(LEGACY, dma_latency_us=20.0))


def test_a_tile_written_again_while_in_scope_has_two_places() -> None:
    one, each = rewritten(16, declared_outside=True), rewritten(16, declared_outside=False)
    assert one.latency_us is not None and each.latency_us is not None
    assert one.engines == each.engines
    turns = 16 / 2 - 1
    assert one.latency_us - each.latency_us > turns * 20.0 * 0.9


def turned(columns: int) -> Timeline:
    w = Writer()
    source, target = w.hbm(128, columns), w.hbm(columns, 128, role=Role.OUTPUT)
    a = w.sbuf(columns, 128)
    w.do("dma_transpose", tile(a), tile(source), engine=Engine.DMA)
    w.store(tile(target), tile(a))
    return timeline(w.done())


def test_a_load_that_turns_a_tile_moves_rows_and_turns_them_on_the_tensor_engine() -> None:
    found = turned(64)
    assert found.dma_descriptors == {64 * 4: 128, 128 * 4: 64}
    assert found.engines["tensor"] == pytest.approx(4 * (128 + 64) / 2800)
    assert found.engines["scalar"] > 0
