"""The timeline follows from a program's structure: merging, SBUF allocation, spills, overlap, monotonicity."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from acceld.chips import CHIPS
from acceld.nki.errors import MissingRule
from acceld.nki.ir.program import Engine, LoopKind, Program, Role
from acceld.nki.timing import timeline as timeline_module
from acceld.nki.timing.chrome_trace import chrome_trace
from acceld.nki.timing.parameters import CURRENT, FITTED, LEGACY, TimelineParams
from acceld.nki.timing.timeline import FIGURE_CLASS, Timeline, timeline
from acceld.nki.timing.uncertainty import INTERVALS, bound_of
from tests.acceld.nki.implementations import BOTH, Passes
from tests.acceld.nki.tiles import Writer, tile, times

ROW = 128 * 512 * 4
"""Bytes of one 128 x 512 float32 tile."""


@pytest.fixture(autouse=True, scope="module", params=BOTH)
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test with each implementation of the passes."""
    given: Passes = request.param
    yield from given.used_in(vars(timeline_module))


def streaming(tiles: int, columns: int = 512, *, chip: str = "trn1", api: str = "nki_legacy") -> Program:
    """Square every tile of a tensor."""
    w = Writer()
    source, target = w.hbm(128, tiles * columns), w.hbm(128, tiles * columns, role=Role.OUTPUT)
    with w.loop("i", tiles, LoopKind.AFFINE) as i:
        a, b = w.sbuf(128, columns), w.sbuf(128, columns)
        w.load(tile(a), tile(source, (0, 128), (times(i.id, columns), columns)))
        w.do("tensor_tensor", tile(b), tile(a), tile(a), engine=Engine.VECTOR, op="multiply")
        w.store(tile(target, (0, 128), (times(i.id, columns), columns)), tile(b))
    return w.done(api, chip)


def weights_in_loop(trips: int) -> Program:
    """Load in a loop on which the load does not depend."""
    w = Writer()
    source, scale, target = w.hbm(128, trips * 512), w.hbm(128, 512), w.hbm(128, trips * 512, role=Role.OUTPUT)
    with w.loop("i", trips, LoopKind.AFFINE) as i:
        a, b, c = w.sbuf(128, 512), w.sbuf(128, 512), w.sbuf(128, 512)
        w.load(tile(b), tile(scale))
        w.load(tile(a), tile(source, (0, 128), (times(i.id, 512), 512)))
        w.do("tensor_tensor", tile(c), tile(a), tile(b), engine=Engine.VECTOR, op="multiply")
        w.store(tile(target, (0, 128), (times(i.id, 512), 512)), tile(c))
    return w.done()


def two_phases(tiles: int) -> Program:
    """Compute all tiles, then use them in the order they were made."""
    w = Writer()
    source, target = w.hbm(128, tiles * 512), w.hbm(128, tiles * 512, role=Role.OUTPUT)
    made = w.sbuf(tiles, 128, 512, axis=1)
    with w.loop("i", tiles, LoopKind.SEQUENTIAL) as i:
        a = w.sbuf(128, 512)
        w.load(tile(a), tile(source, (0, 128), (times(i.id, 512), 512)))
        w.do("activation", tile(made, times(i.id, 1)), tile(a), 0.0, 1.0, engine=Engine.SCALAR, func="exp", line=7)
    with w.loop("j", tiles, LoopKind.SEQUENTIAL) as j:
        b = w.sbuf(128, 512)
        w.do("tensor_scalar", tile(b), tile(made, times(j.id, 1)), 2.0, engine=Engine.VECTOR, op0="multiply")
        w.store(tile(target, (0, 128), (times(j.id, 512), 512)), tile(b))
    return w.done()


def latency(line: Timeline) -> float:
    assert line.latency_us is not None
    return line.latency_us


def test_bytes_descriptors_and_instructions_are_exact() -> None:
    line = timeline(streaming(8))
    assert (line.hbm_read_bytes, line.hbm_write_bytes) == (8 * ROW, 8 * ROW)
    assert (line.written_read_bytes, line.written_write_bytes) == (8 * ROW, 8 * ROW)
    assert line.dma_descriptors == {2048: 2 * 8 * 128}
    assert line.instructions == {"dma": 16, "vector": 8}
    assert (line.hardware_flops, line.pe_passes, line.spill_save_bytes) == (0, 0, 0)


def test_a_load_that_does_not_depend_on_its_loop_runs_once_in_the_legacy_model() -> None:
    program = weights_in_loop(16)
    assert timeline(program).hbm_read_bytes == 17 * ROW
    assert timeline(program).written_read_bytes == 32 * ROW
    assert timeline(replace(program, api="nki", chip="trn2")).hbm_read_bytes == 32 * ROW


def test_the_same_operation_on_the_same_values_runs_once() -> None:
    def squares(distinct: bool) -> Timeline:
        w = Writer()
        source, target = w.hbm(128, 512), w.hbm(128, 1024, role=Role.OUTPUT)
        a = w.sbuf(128, 512)
        w.load(tile(a), tile(source))
        for k in range(2):
            b = w.sbuf(128, 512)
            bias = float(k) if distinct else 0.0
            w.do("activation", tile(b), tile(a), bias, 1.0, engine=Engine.SCALAR, func="square")
            w.store(tile(target, (0, 128), (512 * k, 512)), tile(b))
        return timeline(w.done())

    once, twice = squares(distinct=False), squares(distinct=True)
    assert twice.engines["scalar"] == pytest.approx(2 * once.engines["scalar"])
    assert once.instructions == twice.instructions


def revisited(blocks: int, *, declared_outside: bool = False) -> Program:
    """Load four tiles of each block in an inner loop, again in each of three passes over the block."""
    w = Writer()
    source = w.hbm(128, blocks * 4 * 512)
    target = w.hbm(128, blocks * 12 * 512, role=Role.OUTPUT)
    with w.loop("block", blocks, LoopKind.AFFINE) as block:
        held = w.sbuf(4, 128, 512, axis=1)
        with w.loop("again", 3, LoopKind.AFFINE) as again, w.loop("k", 4, LoopKind.AFFINE) as k:
            a, b = tile(held, times(k.id, 1)) if declared_outside else tile(w.sbuf(128, 512)), tile(w.sbuf(128, 512))
            w.load(a, tile(source, (0, 128), (times(block.id, 2048) + times(k.id, 512), 512)))
            w.do("activation", b, a, 0.0, 1.0, engine=Engine.SCALAR, func="exp")
            column = times(block.id, 6144) + times(again.id, 2048) + times(k.id, 512)
            w.store(tile(target, (0, 128), (column, 512)), b)
    return w.done()


def test_tiles_of_an_inner_loop_are_kept_for_a_loop_around_only_where_all_of_them_fit() -> None:
    assert timeline(revisited(8)).hbm_read_bytes == 8 * 4 * ROW
    assert timeline(revisited(32)).hbm_read_bytes == 3 * 32 * 4 * ROW


def test_tiles_declared_outside_of_the_loop_are_kept_for_it() -> None:
    assert timeline(revisited(32, declared_outside=True)).hbm_read_bytes == 32 * 4 * ROW


def test_a_result_nobody_stores_costs_nothing_in_the_legacy_model() -> None:
    w = Writer()
    source, target = w.hbm(128, 512), w.hbm(128, 512, role=Role.OUTPUT)
    a, b = w.sbuf(128, 512), w.sbuf(128, 512)
    w.load(tile(a), tile(source))
    w.do("tensor_tensor", tile(b), tile(a), tile(a), engine=Engine.VECTOR, op="add")
    w.store(tile(target), tile(a))
    assert timeline(w.done()).engines["vector"] == 0
    assert timeline(w.done("nki", "trn2")).engines["vector"] > 0


def test_values_beyond_sbuf_are_saved_once_and_reloaded() -> None:
    fits, spills = timeline(two_phases(40)), timeline(two_phases(160))
    assert fits.spill_save_bytes == fits.spill_reload_bytes == 0
    capacity = CHIPS["trn1"].sbuf_bytes_per_partition // 2048
    assert (160 - capacity) * ROW <= spills.spill_save_bytes <= 160 * ROW
    assert spills.spill_reload_bytes == spills.spill_save_bytes
    assert any("line 7" in warning and "spilled" in warning for warning in spills.warnings)
    assert spills.hbm_read_bytes == 160 * ROW + spills.spill_reload_bytes


def repeated(kind: LoopKind) -> Program:
    """Store the same 128 results, more than SBUF holds, in each of three passes over their tiles."""
    w = Writer()
    source, target = w.hbm(128, 128 * 512), w.hbm(128, 3 * 128 * 512, role=Role.OUTPUT)
    loaded, made = w.sbuf(128, 128, 512, axis=1), w.sbuf(128, 128, 512, axis=1)
    with w.loop("again", 3, LoopKind.AFFINE) as again, w.loop("k", 128, kind) as k:
        a, b = tile(loaded, times(k.id, 1)), tile(made, times(k.id, 1))
        w.load(a, tile(source, (0, 128), (times(k.id, 512), 512)))
        w.do("activation", b, a, 0.0, 1.0, engine=Engine.SCALAR, func="exp")
        w.store(tile(target, (0, 128), (times(again.id, 128 * 512) + times(k.id, 512), 512)), b)
    return w.done()


def test_repeated_results_that_do_not_fit_are_computed_again_but_saved_in_a_sequential_loop() -> None:
    affine, sequential = timeline(repeated(LoopKind.AFFINE)), timeline(repeated(LoopKind.SEQUENTIAL))
    assert affine.spill_save_bytes == 0 and sequential.spill_save_bytes > 0
    assert affine.engines["scalar"] > 2 * sequential.engines["scalar"]


def test_sbuf_peak_stays_within_the_chip() -> None:
    assert timeline(two_phases(160)).sbuf_peak_bytes_per_partition <= CHIPS["trn1"].sbuf_bytes_per_partition


def test_independent_tiles_overlap_but_no_engine_is_faster_than_its_work() -> None:
    line = timeline(streaming(64))
    assert line.machine is not None and line.schedule is not None
    assert max(line.engines.values()) <= line.schedule.total_us < 0.9 * sum(line.engines.values())
    assert latency(line) >= max(line.engines.values())


def test_a_chain_of_dependent_operations_does_not_overlap() -> None:
    w = Writer()
    source, target = w.hbm(128, 512), w.hbm(128, 512, role=Role.OUTPUT)
    value = w.sbuf(128, 512)
    w.load(tile(value), tile(source))
    for k in range(20):
        made = w.sbuf(128, 512)
        if k % 2:
            w.do("tensor_scalar", tile(made), tile(value), float(k), engine=Engine.VECTOR, op0="add")
        else:
            w.do("activation", tile(made), tile(value), float(k), 1.0, engine=Engine.SCALAR, func="exp")
        value = made
    w.store(tile(target), tile(value))
    line = timeline(w.done())
    assert line.schedule is not None
    assert line.schedule.total_us > line.engines["vector"] + line.engines["scalar"] + line.engines["dma"]


@pytest.mark.parametrize("params", [LEGACY, CURRENT], ids=["legacy", "current"])
def test_more_work_is_never_faster(params: TimelineParams) -> None:
    latencies = [latency(timeline(streaming(tiles), params)) for tiles in (1, 2, 4, 16, 64)]
    assert latencies == sorted(latencies)
    assert len(set(latencies)) == len(latencies)


def test_wider_tiles_and_longer_rows_are_faster() -> None:
    assert latency(timeline(streaming(64, 512))) > latency(timeline(streaming(16, 2048)))


def test_the_same_program_has_the_same_timeline() -> None:
    assert timeline(two_phases(160)) == timeline(two_phases(160))


def test_an_operation_without_a_rule_is_never_guessed() -> None:
    w = Writer()
    w.do("brand_new", tile(w.sbuf(128, 8)), tile(w.sbuf(128, 8)))
    with pytest.raises(MissingRule):
        timeline(w.done("nki", "trn2"))


def test_a_dynamic_loop_has_no_latency_unless_its_trips_are_declared() -> None:
    w = Writer()
    source, target = w.hbm(128, 512), w.hbm(128, 512, role=Role.OUTPUT)
    a = w.sbuf(128, 512)
    with w.loop("i", 100, LoopKind.DYNAMIC, trips_register=w.register()):
        w.load(tile(a), tile(source))
        w.store(tile(target), tile(a))
    program = w.done("nki", "trn2")
    unknown = timeline(program)
    assert unknown.data_dependent and unknown.latency_us is None
    assert unknown.bound == unknown.to_json()["prediction"]["class"] == "data_dependent"
    few, many = (timeline(program, replace(CURRENT, dynamic_trips=n)) for n in (10, 50))
    assert latency(few) < latency(many)


def test_a_broadcast_of_one_bank_is_read_in_psum_and_a_wider_one_is_copied() -> None:
    def scalar_us(columns: int) -> float:
        w = Writer()
        source, target = w.hbm(128, columns), w.hbm(128, columns, role=Role.OUTPUT)
        row, wide, a, b = w.sbuf(1, columns), w.sbuf(128, columns), w.sbuf(128, columns), w.sbuf(128, columns)
        w.load(tile(row), tile(w.hbm(1, columns)))
        w.do("broadcast_partition", tile(wide), tile(row), engine=Engine.TENSOR)
        w.load(tile(a), tile(source))
        w.do("tensor_tensor", tile(b), tile(a), tile(wide), engine=Engine.VECTOR, op="add")
        w.store(tile(target), tile(b))
        return timeline(w.done()).engines["scalar"]

    assert scalar_us(512) == 0 < scalar_us(1024)


def test_long_programs_are_extended_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    full = timeline(streaming(512))
    monkeypatch.setattr(timeline_module, "MAX_EVENTS", 300)
    part = timeline(streaming(512))
    assert part.extrapolated and not full.extrapolated
    assert latency(part) == pytest.approx(latency(full), rel=0.02)
    assert part.hbm_read_bytes == full.hbm_read_bytes
    assert part.instructions == full.instructions


def test_a_validated_latency_has_an_interval_and_others_say_unvalidated() -> None:
    inside, outside = timeline(streaming(8)), timeline(streaming(8, chip="trn3", api="nki"))
    bound = bound_of(inside.engines, latency(inside))
    assert inside.prediction.validated and inside.prediction.interval_percent == INTERVALS["trn1", bound][0]
    assert outside.prediction.validated_on == "unvalidated" and outside.prediction.interval_percent is None


def test_json_and_trace_can_be_written() -> None:
    line = timeline(streaming(8))
    data = json.loads(json.dumps(line.to_json()))
    assert data["prediction"]["validated_on"] == line.prediction.validated_on
    assert data["params"]["window"] == LEGACY.window
    slices = [e for e in chrome_trace(line)["traceEvents"] if e["ph"] == "X"]
    assert len(slices) == 24
    assert max(e["ts"] + e["dur"] for e in slices) <= latency(line)


def test_a_long_chain_repeated_in_a_loop_is_merged_without_deep_recursion() -> None:
    def chain(trips: int) -> Timeline:
        w = Writer()
        source, target = w.hbm(128, 8), w.hbm(128, 8 * trips, role=Role.OUTPUT)
        with w.loop("i", trips, LoopKind.AFFINE) as i:
            value = w.sbuf(128, 8)
            w.load(tile(value), tile(source))
            for k in range(3000):
                made = w.sbuf(128, 8)
                w.do("activation", tile(made), tile(value), float(k), 1.0, engine=Engine.SCALAR, func="exp")
                value = made
            w.store(tile(target, (0, 128), (times(i.id, 8), 8)), tile(value))
        return timeline(w.done())

    assert chain(4).engines["scalar"] < 4 * chain(1).engines["scalar"]


def test_every_counted_figure_has_a_class() -> None:
    numbers = {name for name, value in timeline(streaming(1)).to_json().items() if isinstance(value, int | float)}
    assert numbers - set(FIGURE_CLASS) == {"data_dependent", "extrapolated", "params_version"}


def test_the_hottest_line_and_the_bound_name_the_busiest_engine() -> None:
    line = timeline(streaming(64))
    busiest = max(line.engines, key=lambda engine: line.engines[engine])
    assert line.hot_spots[0].busy_us <= line.engines[busiest] * 1.001
    assert ("DMA" if busiest == "dma" else busiest) in line.bound
    assert line.critical_path


def test_fitted_constants_are_few_and_listed() -> None:
    assert len(FITTED) <= 19
    assert all(hasattr(LEGACY, name) for name in FITTED)


def test_a_matrix_product_bound_kernel_on_trn2_is_near_the_documented_rate() -> None:
    w = Writer()
    weights, source = w.hbm(128, 2048, dtype="bfloat16"), w.hbm(128, 2048, dtype="bfloat16")
    target = w.hbm(128, 16 * 512, role=Role.OUTPUT)
    left, right = w.sbuf(128, 2048, dtype="bfloat16"), w.sbuf(128, 2048, dtype="bfloat16")
    w.load(tile(left), tile(weights))
    w.load(tile(right), tile(source))
    with w.loop("i", 16, LoopKind.AFFINE) as i:
        total, done = w.psum(128, 512), w.sbuf(128, 512)
        with w.loop("k", 128, LoopKind.AFFINE):
            a, b = tile(left, (0, 128), (0, 128)), tile(right, (0, 128), (0, 512))
            w.do("matmul", tile(total), a, b, engine=Engine.TENSOR, accumulate="yes")
        w.do("copy", tile(done), tile(total))
        w.store(tile(target, (0, 128), (times(i.id, 512), 512)), tile(done))
    line = timeline(w.done("nki", "trn2"))
    assert line.hardware_flops == 16 * 128 * 2 * 128 * 128 * 512
    rate = line.hardware_flops / (latency(line) - CURRENT.kernel_start_us - CURRENT.kernel_end_us) / 1e6
    assert 0.85 * 77 <= rate <= CHIPS["trn2"].matmul_tflops["bfloat16"]
