"""The cost of one instruction follows from its shapes."""

from typing import Any

import pytest

from acceld.chips import CHIPS
from acceld.nki.errors import MissingRule, UnsupportedCall
from acceld.nki.ir.operations import OPS
from acceld.nki.ir.program import Access, Buffer, Engine, Instruction, Role, Space, TileDim
from acceld.nki.timing.compiler_current import place as place_current
from acceld.nki.timing.compiler_legacy import place
from acceld.nki.timing.cost import Cost, CostModel
from acceld.nki.timing.expansion import iteration_shape
from acceld.nki.timing.parameters import CURRENT, LEGACY, LEGACY_2_20
from tests.acceld.nki.tiles import Writer, tile


def cost(writer: Writer, *, chip: str = "trn1", handed_over: bool = False) -> Cost:
    """Return cost of the last instruction written."""
    params = LEGACY if chip == "trn1" else CURRENT
    program = writer.done(chip=chip) if chip == "trn1" else writer.done("nki", chip)
    model = CostModel.of(program, params)
    node = program.body[-1]
    assert isinstance(node, Instruction)
    engine = (place if chip == "trn1" else place_current)(node, model)
    return model.cost(node, engine, iteration_shape(node), handed_over=handed_over)


@pytest.mark.parametrize(("dtype", "passes", "factor"), [("float32", 4, 2), ("bfloat16", 1, 1)])
def test_a_product_counts_passes_and_flops_by_dtype(dtype: str, passes: int, factor: int) -> None:
    w = Writer()
    left, right, out = w.sbuf(128, 128, dtype=dtype), w.sbuf(128, 512, dtype=dtype), w.psum(128, 512)
    w.do("matmul", tile(out), tile(left), tile(right), accumulate="no")
    found = cost(w)
    assert (found.engine, found.passes, found.flops) == (Engine.TENSOR, passes, 2 * 128 * 128 * 512 * factor)
    assert found.transpose_flops == 0
    assert found.busy_us == pytest.approx(passes * (512 + LEGACY.tensor_overhead_cycles) / 2800)


def test_a_microscaled_product_contracts_four_rows_in_the_time_of_one() -> None:
    w = Writer()
    left, right = (w.sbuf(128, width, dtype="float8_e4m3fn_x4") for width in (128, 512))
    scales = [w.sbuf(128, width, dtype="uint8") for width in (128, 512)]
    w.do("matmul_mx", tile(w.psum(128, 512)), *map(tile, (left, right, *scales)), accumulate="no")
    found = cost(w, chip="trn3")
    w.do("matmul", tile(w.psum(128, 512)), *(tile(w.sbuf(128, width, dtype="bfloat16")) for width in (128, 512)))
    narrow = cost(w, chip="trn3")
    assert found.busy_us == narrow.busy_us and found.flops == 4 * narrow.flops
    assert found.flops / found.busy_us / 1e6 == pytest.approx(315, rel=0.05), "TFLOPS, as AWS's guide has it"


def test_a_transpose_counts_as_a_product_with_the_identity() -> None:
    w = Writer()
    w.do("transpose", tile(w.psum(64, 128)), tile(w.sbuf(128, 64)), engine=Engine.TENSOR)
    assert cost(w).transpose_flops == cost(w).flops == 2 * 128 * 64 * 128 * 2


@pytest.mark.parametrize(("columns", "rows", "row_bytes"), [(1024, 128, 4096), (512, 128, 2048), (64, 128, 256)])
def test_a_load_needs_one_descriptor_for_each_partition(columns: int, rows: int, row_bytes: int) -> None:
    w = Writer()
    w.load(tile(w.sbuf(128, columns)), tile(w.hbm(128, 4096), (0, 128), (0, columns)))
    found = cost(w)
    assert (found.descriptors, found.row_bytes, found.bytes_moved) == (rows, row_bytes, rows * row_bytes)


def test_a_strided_load_has_descriptors_of_single_elements() -> None:
    w = Writer()
    source = w.hbm(128, 1024)
    access = Access(source.id, tile(source).start, (TileDim(128, (1, 0)), TileDim(512, (0, 2))))
    w.load(tile(w.sbuf(128, 512)), access)
    assert (cost(w).descriptors, cost(w).row_bytes) == (128 * 512, 4)


def test_longer_rows_move_the_same_bytes_sooner() -> None:
    model = CostModel(CHIPS["trn1"], LEGACY, ())
    assert model.transfer_us(128, 1024) < model.transfer_us(256, 512) < model.transfer_us(1024, 128)


def test_a_transfer_takes_the_time_of_its_descriptors_and_no_start() -> None:
    chip = CHIPS["trn1"]
    model = CostModel(chip, LEGACY, ())
    assert model.transfer_us(128, 32) == pytest.approx(8 * (chip.dma_descriptor_us + 32 / 27_200))
    assert model.transfer_us(1024, 32) == pytest.approx(8 * model.transfer_us(128, 32))
    assert model.transfer_us(128, 4096) == pytest.approx(8 * 4096 / 17_000)  # the guide's 17 B/ns


def test_long_rows_of_sixteen_bit_elements_are_slower_under_sdk_2_20_only() -> None:
    old, new = (CostModel(CHIPS["trn1"], params, ()) for params in (LEGACY_2_20, LEGACY))
    assert old.transfer_us(128, 64, itemsize=2) == old.transfer_us(128, 64)
    long = old.transfer_us(128, 65536, itemsize=2) / old.transfer_us(128, 65536)
    assert long == pytest.approx(LEGACY_2_20.narrow_transfer_factor)
    assert new.transfer_us(128, 65536, itemsize=2) == new.transfer_us(128, 65536)


def test_short_instructions_start_every_interval_and_long_ones_drain() -> None:
    w = Writer()
    tiny, wide = w.sbuf(128, 3), w.sbuf(128, 512)
    w.do("tensor_reduce", tile(tiny), tile(tiny), engine=Engine.VECTOR, op="add")
    short = cost(w).busy_us
    w.do("tensor_reduce", tile(wide), tile(wide), engine=Engine.VECTOR, op="add")
    assert short == pytest.approx((64 + 3) / 1120)
    assert cost(w).busy_us == pytest.approx((64 + 66 + 512) / 1120)


def test_an_operand_in_psum_halves_a_tensor_tensor() -> None:
    w = Writer()
    a, p, out = w.sbuf(128, 512), w.psum(128, 512), w.sbuf(128, 512)
    w.do("tensor_tensor", tile(out), tile(a), tile(a), engine=Engine.VECTOR, op="add")
    both_sbuf = cost(w).busy_us
    w.do("tensor_tensor", tile(out), tile(a), tile(p), engine=Engine.VECTOR, op="add")
    assert both_sbuf - cost(w).busy_us == pytest.approx(512 / 1120)


def test_unplaced_tensor_scalars_go_to_the_scalar_engine_unless_small() -> None:
    w = Writer()
    wide, small = w.sbuf(128, 512), w.sbuf(128, 1)
    w.do("tensor_scalar", tile(wide), tile(wide), 2.0, op0="multiply")
    assert cost(w).engine is Engine.SCALAR
    w.do("tensor_scalar", tile(small), tile(small), 2.0, op0="multiply")
    assert cost(w).engine is Engine.VECTOR


@pytest.mark.parametrize("viewed", ["source", "destination"])
def test_numbers_copied_as_halves_take_no_less_than_the_numbers(viewed: str) -> None:
    whole, halves = Writer(), Writer()
    whole.do("copy", tile(whole.sbuf(128, 512)), tile(whole.sbuf(128, 512)), engine=Engine.VECTOR)
    number = halves.sbuf(128, 512)
    there, here = (halves.sbuf(128, 1024, dtype="bfloat16") for _ in range(2))
    if viewed == "source":
        halves.do("bitcast", tile(here), tile(number))
    else:
        halves.do("bitcast", tile(number), tile(there))
    halves.do("copy", tile(there), tile(here), engine=Engine.VECTOR)
    assert cost(halves, chip="trn2").busy_us > cost(whole, chip="trn2").busy_us


def test_trn2_copies_sixteen_bit_data_four_times_faster() -> None:
    busy = {}
    for dtype in ("float32", "bfloat16"):
        w = Writer()
        w.do("copy", tile(w.sbuf(128, 4096, dtype=dtype)), tile(w.sbuf(128, 4096, dtype=dtype)))
        busy[dtype] = cost(w, chip="trn2").busy_us
    assert busy["float32"] - busy["bfloat16"] == pytest.approx(0.75 * 4096 / 960)


def test_an_operation_without_a_rule_is_an_error() -> None:
    w = Writer()
    w.do("not_an_operation", tile(w.sbuf(128, 8)), tile(w.sbuf(128, 8)))
    with pytest.raises(MissingRule, match="not_an_operation"):
        cost(w)


UNPUBLISHED = ("collective", "register_rank")
"""Operations of several ranks: no latency of theirs is published."""


@pytest.mark.parametrize("op", sorted({*OPS} - {*UNPUBLISHED}))
@pytest.mark.parametrize("chip", ["trn1", "trn2"])
def test_every_operation_has_a_rule(op: str, chip: str) -> None:
    spec = OPS[op]
    buffer = Buffer(0, "b", Space.SBUF, "float32", (128, 128), partition_axis=0)
    whole = tile(buffer)
    node = Instruction(op, Engine.UNKNOWN, tuple(whole for _ in spec.dsts), tuple(whole for _ in spec.srcs))
    model = CostModel(CHIPS[chip], LEGACY if chip == "trn1" else CURRENT, (buffer,))
    engine = (place if chip == "trn1" else place_current)(node, model)
    assert model.cost(node, engine, iteration_shape(node)).busy_us >= 0


@pytest.mark.parametrize("op", UNPUBLISHED)
def test_an_operation_of_several_ranks_has_no_latency(op: str) -> None:
    model = CostModel(CHIPS["trn2"], CURRENT, ())
    node = Instruction(op, Engine.SYNC, (), (), (("kind", "rank_id"),))
    with pytest.raises(UnsupportedCall, match="publishes no latency"):
        model.cost(node, Engine.SYNC, (), handed_over=False)


def test_costs_grow_with_the_tile() -> None:
    def busy(columns: int) -> float:
        w = Writer()
        w.do("reciprocal", tile(w.sbuf(128, columns)), tile(w.sbuf(128, columns)))
        return cost(w).busy_us

    assert busy(64) < busy(512) < busy(2048)


def load_of(rows: int, columns: int, *, first: int = 0) -> Cost:
    w = Writer()
    w.load(tile(w.sbuf(128, columns), (first, rows), (0, columns)), tile(w.hbm(rows, columns)))
    return cost(w)


def test_each_dma_engine_serves_eight_partitions() -> None:
    whole, half, few = load_of(128, 1024), load_of(64, 1024), load_of(4, 1024)
    assert half.busy_us == pytest.approx(whole.busy_us), "half of the bytes by half of the engines"
    assert few.busy_us == pytest.approx(4 * 4096 / 17_000), "four rows by one engine (DMA overview)"
    assert (whole.quarters, half.quarters, few.quarters) == (0, 0b0011, 0b0001)
    assert load_of(64, 1024, first=64).quarters == 0b1100


def test_rows_in_many_pieces_are_shared_by_all_engines() -> None:
    w = Writer()
    source = w.hbm(64, 1024)
    access = Access(source.id, tile(source).start, (TileDim(64, (1, 0)), TileDim(512, (0, 2))))
    w.load(tile(w.sbuf(64, 512)), access)
    assert cost(w).quarters == 0


@pytest.mark.parametrize(
    ("op", "engine", "attrs", "least"),
    [
        ("copy", Engine.VECTOR, {}, 0.25),
        ("copy", Engine.GPSIMD, {}, 1.0),
        ("tensor_tensor", Engine.VECTOR, {"op": "add"}, 0.5),
        ("tensor_tensor", Engine.GPSIMD, {"op": "add"}, 2.0),
        ("copy_predicated", Engine.VECTOR, {}, 1.0),
    ],
)
def test_sixteen_bits_are_faster_on_the_vector_engine_where_documented(
    op: str, engine: Engine, attrs: dict[str, Any], least: float
) -> None:
    w = Writer()
    tiles = [tile(w.sbuf(128, 4096, dtype="bfloat16")) for _ in range(2 if op == "copy" else 3)]
    w.do(op, tiles[0], *tiles[1:], engine=engine, **attrs)
    chip = CHIPS["trn2"]
    cycles = cost(w, chip="trn2").busy_us * 1000 * (chip.gpsimd_ghz if engine is Engine.GPSIMD else chip.vector_ghz)
    assert least <= cycles / 4096 < least + 0.1


def test_an_axis_of_one_element_hides_no_stride() -> None:
    w = Writer()
    source, result = w.sbuf(128, 1024, 2, dtype="bfloat16"), w.sbuf(128, 1024, 1, dtype="bfloat16")
    w.do("tensor_tensor", tile(result), *(tile(source, (0, 128), (0, 1024), (at, 1)) for at in (0, 1)), op="add")
    assert cost(w).busy_us > 2 * 1024 / 1000 / CHIPS["trn1"].vector_ghz


def test_a_reduction_to_float32_takes_a_cycle_an_element() -> None:
    w = Writer()
    data = tile(w.sbuf(128, 2048, dtype="bfloat16"))
    for dtype, cycles in (("float32", 2048), ("bfloat16", 1024)):
        w.do("tensor_reduce", tile(w.sbuf(128, 1, dtype=dtype)), data, op="add", axes=(1,))
        assert cost(w).busy_us == pytest.approx((cycles + LEGACY.vector_overhead_cycles) / 1120, rel=0.02)


@pytest.mark.parametrize("function", ["power", "rsqrt"])
def test_powers_of_wide_tiles_are_made_by_gpsimd(function: str) -> None:
    w = Writer()
    for chip in ("trn1", "trn2"):
        w.do("tensor_scalar", tile(w.sbuf(128, 2048)), tile(w.sbuf(128, 2048)), 0.5, op0=function)
        found = cost(w, chip=chip)
        assert found.engine is Engine.GPSIMD and found.busy_us > 4 * 2048 / 1000 / CHIPS[chip].gpsimd_ghz


@pytest.mark.parametrize("op", ["transpose", "broadcast_partition"])
def test_integers_go_through_trn1s_array_as_float32(op: str) -> None:
    passes = {}
    for dtype in ("float32", "uint16", "bfloat16"):
        w = Writer()
        rows = 128 if op == "transpose" else 1
        w.do(op, tile(w.sbuf(128, 128, dtype=dtype)), tile(w.sbuf(rows, 128, dtype=dtype)), engine=Engine.TENSOR)
        passes[dtype] = cost(w).passes
    assert passes["uint16"] == passes["float32"] == 4 * passes["bfloat16"]


def test_trn2_scales_float32_tiles_of_sbuf_at_the_double_rate() -> None:
    w = Writer()
    w.do("tensor_scalar", tile(w.sbuf(128, 512)), tile(w.sbuf(128, 512)), 2.0, op0="multiply", engine=Engine.VECTOR)
    assert cost(w, chip="trn2").busy_us == pytest.approx(0.396, abs=0.001), "as ten public profiles have it"
    w.do("tensor_scalar", tile(w.sbuf(128, 512)), tile(w.psum(128, 512)), 2.0, op0="multiply", engine=Engine.VECTOR)
    assert cost(w, chip="trn2").busy_us > 0.5, "not from PSUM"


def test_narrow_tiles_gain_nothing_from_the_double_rate() -> None:
    taken = []
    for columns, source in ((64, "sbuf"), (64, "psum"), (128, "sbuf"), (512, "sbuf")):
        w = Writer()
        data = w.sbuf(128, columns) if source == "sbuf" else w.psum(128, columns)
        w.do("tensor_scalar", tile(w.sbuf(128, columns)), tile(data), 2.0, op0="multiply", engine=Engine.VECTOR)
        taken.append(cost(w, chip="trn2").busy_us * 960)
    assert taken == pytest.approx([128, 128, 188, 380]), "64 cycles at least, and up to 124 that do not halve"


@pytest.mark.parametrize("op", ["rsqrt", "power"])
def test_functions_that_only_gpsimd_has_are_no_faster_on_the_vector_engine(op: str) -> None:
    taken = {}
    for engine in (Engine.VECTOR, Engine.GPSIMD):
        w = Writer()
        w.do("tensor_scalar", tile(w.sbuf(128, 512)), tile(w.sbuf(128, 512)), 2.0, op0="add", op1=op, engine=engine)
        taken[engine] = cost(w, chip="trn2").busy_us
    assert taken[Engine.VECTOR] >= taken[Engine.GPSIMD] > 1.5


def test_rows_whose_descriptors_are_made_at_run_time_take_a_least_time() -> None:
    model = CostModel(CHIPS["trn2"], CURRENT, ())
    assert model.transfer_us(2_097_152, 2, 2) == pytest.approx(1697, rel=0.01), "as decode attention has it"


def test_a_store_that_the_program_loads_again_is_seen_later() -> None:
    w = Writer()
    kept, there = w.sbuf(128, 512), w.hbm(128, 512, role=Role.OUTPUT)
    w.store(tile(there), tile(kept))
    assert cost(w, chip="trn2").late_us == 0.0
    w.load(tile(w.sbuf(128, 512)), tile(there))
    w.store(tile(there), tile(kept))
    assert cost(w, chip="trn2").late_us == CURRENT.round_trip_us > 0
