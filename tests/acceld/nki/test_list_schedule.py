"""Start times of operations: engines, copies with a choice of engine, the array's ramp, and transfers in gaps."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from acceld.chips import chip_spec
from acceld.nki.ir.program import Engine
from acceld.nki.timing.list_schedule import Schedule, schedule
from acceld.nki.timing.parameters import LEGACY, LEGACY_LATER
from acceld.nki.timing.sbuf_allocation import INDEX, Machine
from tests.acceld.nki.implementations import BOTH, Passes

QUIET = replace(LEGACY, semaphore_us=0.0, dma_latency_us=0.0)
"""No latency between operations, so times are sums."""


@pytest.fixture(autouse=True, scope="module", params=BOTH)
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test with each implementation."""
    given: Passes = request.param
    yield from given.used_in(globals())


def machine(*operations: tuple[Engine, float, tuple[int, ...]]) -> Machine:
    """Return a machine of (engine, microseconds, operations it waits for)."""
    made = Machine()
    for engine, busy, waits in operations:
        made.add(INDEX[engine], busy, waits, 1, "test")
    return made


def scheduled(made: Machine, **changes: object) -> Schedule:
    return schedule(made, replace(QUIET, **changes), chip_spec("trn1"))  # type: ignore[arg-type]  # tests name knobs


def test_an_operation_waits_for_its_operands_and_for_a_semaphore_between_engines() -> None:
    made = machine((Engine.VECTOR, 2.0, ()), (Engine.SCALAR, 1.0, (0,)), (Engine.VECTOR, 1.0, (0,)))
    found = scheduled(made, semaphore_us=0.5)
    assert found.start_us == [0.0, 2.5, 2.0] and found.cause == [-1, 0, 0]


def test_a_transfer_is_complete_a_latency_after_its_last_byte() -> None:
    made = machine((Engine.DMA, 3.0, ()), (Engine.DMA, 3.0, ()), (Engine.VECTOR, 1.0, (0,)))
    found = scheduled(made, dma_latency_us=2.0)
    assert found.end_us[:2] == [5.0, 8.0] and found.start_us[2] == 5.0


@pytest.mark.parametrize(("window", "begin"), [(4, 0.0), (1, 7.0)])
def test_an_engine_takes_up_a_gap_only_within_its_window(window: int, begin: float) -> None:
    late = [(Engine.VECTOR, 1.0, (0,)), (Engine.VECTOR, 1.0, ()), (Engine.VECTOR, 1.0, ())]
    made = machine((Engine.SCALAR, 4.0, ()), *late[:1], (Engine.VECTOR, 2.0, (0,)), (Engine.VECTOR, 1.0, ()))
    assert scheduled(made, window=window).start_us[3] == begin


def test_a_transfer_uses_gaps_that_are_too_short_for_all_of_it() -> None:
    made = machine(
        (Engine.SCALAR, 2.0, ()), (Engine.DMA, 1.0, (0,)), (Engine.SCALAR, 3.0, ()), (Engine.DMA, 1.0, (2,)),
        (Engine.DMA, 5.0, ()),
    )  # fmt: skip
    found = scheduled(made)
    assert (found.start_us[4], found.end_us[4]) == (0.0, 7.0)


def test_a_transfer_that_takes_no_time_begins_in_the_first_gap() -> None:
    made = machine(
        (Engine.SCALAR, 2.0, ()), (Engine.DMA, 1.0, (0,)), (Engine.SCALAR, 3.0, ()), (Engine.DMA, 1.0, (2,)),
        (Engine.DMA, 0.0, ()), (Engine.DMA, 0.0, (1,)),
    )  # fmt: skip
    assert [scheduled(made).start_us[at] for at in (4, 5)] == [0.0, 3.0]


def copies(count: int, other: float = 1.0) -> Machine:
    """Return copies of one microsecond on the scalar engine, each of which the vector engine could make in ``other``."""
    made = machine(*((Engine.SCALAR, 1.0, ()) for _ in range(count)))
    made.choices = dict.fromkeys(range(count), (INDEX[Engine.VECTOR], other))
    return made


def busy(made: Machine, engine: Engine) -> float:
    return sum(us for where, us in zip(made.engine, made.busy_us, strict=True) if where == INDEX[engine])


def test_copies_go_to_the_engine_with_less_work_and_its_busy_time_has_them() -> None:
    made = copies(8)
    assert scheduled(made, alternates_copies=True).total_us == pytest.approx(4.0)
    assert busy(made, Engine.SCALAR) == busy(made, Engine.VECTOR) == pytest.approx(4.0)


def test_a_copy_that_would_end_later_elsewhere_stays() -> None:
    made = copies(2, other=3.0)
    scheduled(made, alternates_copies=True)
    assert busy(made, Engine.VECTOR) == 0.0


def test_on_trn1_copies_leave_the_scalar_engine_only_where_it_has_the_most_work() -> None:
    made = copies(8)
    assert scheduled(made).total_us == pytest.approx(4.0)
    made = copies(8)
    made.add(INDEX[Engine.DMA], 20.0, (), 1, "test")
    scheduled(made)
    assert busy(made, Engine.VECTOR) == 0.0


def test_no_choice_of_engines_makes_a_machine_faster_than_all_its_work_shared_out() -> None:
    made = copies(9)
    found = scheduled(made, alternates_copies=True)
    assert found.total_us >= (busy(made, Engine.SCALAR) + busy(made, Engine.VECTOR)) / 2


def products(count: int, us: float, rows: float = 1.0) -> Machine:
    made = machine(*((Engine.TENSOR, us, ()) for _ in range(count)))
    if rows < 1.0:
        made.rows = dict.fromkeys(range(count), rows)
    return made


@pytest.mark.parametrize("chip", ["trn1", "trn2"])
def test_the_array_starts_at_half_its_rate_where_it_throttles(chip: str) -> None:
    spec = chip_spec(chip)
    found = schedule(products(1000, 0.2), replace(LEGACY_LATER, semaphore_us=0.0), spec)
    slow = found.throttled_us
    assert found.total_us == pytest.approx(200.0 + slow)
    assert (slow > 0) == (spec.tensor_ramp_us > 0) and slow <= spec.tensor_ramp_us


def test_an_array_with_half_of_its_rows_empty_never_reaches_its_full_rate() -> None:
    found = schedule(products(1000, 0.2, rows=0.5), LEGACY_LATER, chip_spec("trn2"))
    assert found.total_us == pytest.approx(400.0)


def test_an_array_that_waits_falls_back_to_half_its_rate() -> None:
    made = products(100, 0.2)
    made.add(INDEX[Engine.VECTOR], 60.0, (99,), 1, "test")
    made.add(INDEX[Engine.TENSOR], 0.2, (100,), 1, "test")
    found = schedule(made, LEGACY_LATER, chip_spec("trn2"))
    assert found.end_us[101] - found.start_us[101] == pytest.approx(0.4)


def test_gpsimd_and_the_vector_engine_take_turns_where_they_share_a_port() -> None:
    made = machine((Engine.VECTOR, 2.0, ()), (Engine.GPSIMD, 2.0, ()))
    assert scheduled(made, shared_sbuf_port=True).total_us == 4.0
    assert scheduled(made, shared_sbuf_port=False).total_us == 2.0


LOW, HIGH = 0b0011, 0b1100


def test_transfers_of_other_partitions_move_at_the_same_time_and_those_of_the_same_in_turn() -> None:
    made = machine(*((Engine.DMA, 2.0, ()) for _ in range(4)))
    made.quarters = {0: LOW, 1: HIGH, 2: LOW}
    found = scheduled(made)
    assert found.start_us == [0.0, 0.0, 2.0, 2.0] and found.end_us[:3] == [2.0, 2.0, 4.0]
    assert found.end_us[3] == 6.0, "a transfer of all partitions is complete when the last of its engines is done"


def test_transfers_that_all_use_the_same_partitions_are_one_queue() -> None:
    made = machine(*((Engine.DMA, 2.0, ()) for _ in range(3)))
    made.quarters = dict.fromkeys(range(3), LOW)
    assert scheduled(made).end_us == [2.0, 4.0, 6.0]
