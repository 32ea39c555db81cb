"""Random programs against a plain interpretation: the repeated executions, and the resulting operations.

The reference keeps, for each tile, the expression it holds, and shares no code with the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.chips import ChipSpec, chip_spec
from acceld.nki.ir.program import Engine, LoopKind, Program, Role
from acceld.nki.timing import compiler_legacy, sbuf_allocation
from acceld.nki.timing.cost import CostModel
from acceld.nki.timing.expansion import prepare
from acceld.nki.timing.parameters import LEGACY
from acceld.nki.timing.sbuf_allocation import ENGINES, Machine, plan
from acceld.nki.timing.value_numbering import Stream, expand
from tests.acceld.nki.implementations import BOTH, Passes
from tests.acceld.nki.tiles import Writer, tile, times

COLUMNS = 1024
ROW = 4 * COLUMNS
"""Bytes of one partition of a tile."""
TILES, SOURCES = 6, 4
SMALL = replace(chip_spec("trn1"), sbuf_bytes_per_partition=LEGACY.sbuf_reserved_bytes + 3 * ROW)
"""A chip on which three tiles fit: exactly those of one addition."""


@pytest.fixture(autouse=True, scope="module", params=BOTH)
def implementation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run every test with each implementation."""
    given: Passes = request.param
    yield from given.used_in(globals())


@dataclass(frozen=True)
class Step:
    """One instruction: ``load``, ``add`` or ``store``, its tile, and what it reads."""

    kind: str
    to: int
    of: tuple[int, int]


FIRST = [Step("load", number, (number, number)) for number in range(TILES)]
LAST = [Step("store", number, (number, number)) for number in range(TILES)]
NUMBERS = st.integers(0, TILES - 1)
STEPS = st.lists(
    st.builds(Step, st.sampled_from(["load", "add", "add", "add", "store"]), NUMBERS, st.tuples(NUMBERS, NUMBERS)),
    min_size=4,
    max_size=30,
).map(lambda steps: [*FIRST, *steps, *LAST])
"""Steps between a load of each tile and a store of each."""


def program(steps: list[Step], trips: int) -> Program:
    """Return the steps in a loop of ``trips``; each store has its own columns."""
    w = Writer()
    sources = w.hbm(128, SOURCES * COLUMNS)
    target = w.hbm(128, trips * len(steps) * COLUMNS, role=Role.OUTPUT)
    tiles = [w.sbuf(128, COLUMNS) for _ in range(TILES)]
    with w.loop("i", trips, LoopKind.SEQUENTIAL) as i:
        for position, step in enumerate(steps):
            if step.kind == "load":
                w.load(tile(tiles[step.to]), tile(sources, (0, 128), (step.of[0] % SOURCES * COLUMNS, COLUMNS)))
            elif step.kind == "add":
                a, b = (tile(tiles[number]) for number in step.of)
                w.do("tensor_tensor", tile(tiles[step.to]), a, b, engine=Engine.VECTOR, op="add")
            else:
                place = times(i.id, len(steps) * COLUMNS) + position * COLUMNS
                w.store(tile(target, (0, 128), (place, COLUMNS)), tile(tiles[step.of[0]]))
    return w.done()


Expression = tuple[str | int, ...]
"""``("load", column)``, or ``("add", a, b)`` of the numbers that two expressions have."""


def expressions(steps: list[Step], trips: int) -> tuple[list[int | None], list[Expression], set[int]]:
    """Number expressions in the order of their first computation.

    Returns the number of each execution's expression (None for a store), the expressions, and those that a store needs.
    """
    numbers: dict[Expression, int] = {}
    held: dict[int, int] = {}
    found: list[int | None] = []
    stored: list[int] = []
    for step in [*steps] * trips:
        if step.kind == "store":
            found.append(None)
            stored.append(held[step.of[0]])
            continue
        made: Expression = ("load", step.of[0] % SOURCES)
        if step.kind == "add":
            made = ("add", *(held[number] for number in step.of))
        held[step.to] = numbers.setdefault(made, len(numbers))
        found.append(held[step.to])
    known = list(numbers)
    needed: set[int] = set()
    while stored:
        number = stored.pop()
        if number not in needed:
            needed.add(number)
            stored += [int(part) for part in known[number][1:]] if known[number][0] == "add" else []
    return found, known, needed


def modelled(made: Program, chip: ChipSpec) -> tuple[Stream, Machine]:
    model = CostModel(chip, LEGACY, made.buffers)
    prepared = prepare(made, model, compiler_legacy.place, {loop.id: loop.trips for loop in made.loops.values()})
    stream = expand(prepared, numbering=True)
    return stream, plan(stream, model, LEGACY, chip)


@given(STEPS, st.integers(1, 3))
def test_only_what_was_computed_before_is_a_repeat(steps: list[Step], trips: int) -> None:
    made = program(steps, trips)
    stream, _ = modelled(made, chip_spec("trn1"))
    computed, known, _ = expressions(steps, trips)
    values: dict[tuple[int, ...], int] = {}
    for outs, number, repeat in zip(stream.outputs, computed, stream.repeat, strict=True):
        assert repeat == (number is not None and outs in values)
        if number is not None:
            assert values.setdefault(outs, number) == number
    assert len(values) == len(known)


@given(STEPS, st.integers(1, 3))
def test_what_fits_is_loaded_and_computed_once_and_only_what_a_store_needs(steps: list[Step], trips: int) -> None:
    made = program(steps, trips)
    _, machine = modelled(made, chip_spec("trn1"))
    _, known, needed = expressions(steps, trips)
    loads = sum(known[number][0] == "load" for number in needed)
    assert machine.hbm_read_bytes == loads * 128 * ROW
    assert machine.kind.count("tensor_tensor") == len(needed) - loads
    assert machine.spill_save_bytes == machine.spill_reload_bytes == 0
    assert machine.sbuf_peak <= chip_spec("trn1").sbuf_bytes_per_partition


@given(STEPS, st.integers(1, 3))
def test_operands_are_in_their_place_however_little_fits(steps: list[Step], trips: int) -> None:
    made = program(steps, trips)
    _, machine = modelled(made, SMALL)
    assert machine.sbuf_peak <= 3 * ROW
    for number, waits in enumerate(machine.waits):
        assert all(-1 <= wait < number for wait in waits)
    moved = {"reload", "spill_reload", "dma_copy", "spill_save"}
    transfers = [
        kind for kind, engine in zip(machine.kind, machine.engine, strict=True) if ENGINES[engine] is Engine.DMA
    ]
    assert {*transfers} <= moved
    assert machine.transfers == len(transfers)
    assert machine.hbm_read_bytes + machine.hbm_write_bytes == len(transfers) * 128 * ROW
    assert machine.spill_reload_bytes == machine.kind.count("spill_reload") * 128 * ROW
    assert machine.spill_save_bytes == machine.kind.count("spill_save") * 128 * ROW
    stored = sum(step.kind == "store" for step in steps) * trips
    assert machine.hbm_write_bytes == stored * 128 * ROW + machine.spill_save_bytes
    roomy = modelled(made, chip_spec("trn1"))[1]
    assert machine.hbm_read_bytes >= roomy.hbm_read_bytes


@given(STEPS, st.integers(1, 3))
def test_what_comes_back_from_hbm_was_saved_there_before(steps: list[Step], trips: int) -> None:
    _, machine = modelled(program(steps, trips), SMALL)
    for number, kind in enumerate(machine.kind):
        if kind == "spill_reload":
            assert any(machine.kind[wait] == "spill_save" for wait in machine.waits[number] if wait >= 0)


class Watched(sbuf_allocation._Planner):
    """A planner that drops no operand of what it executes."""

    running: tuple[int, ...] = ()

    def _execute(self, event: int) -> None:
        outer = self.running
        self.running = (*outer, event)
        super()._execute(event)
        self.running = outer

    def _drop(self, value: int) -> None:
        assert not any(value in self.stream.inputs[event] for event in self.running)
        super()._drop(value)


@given(STEPS, st.integers(1, 3))
def test_an_operand_stays_until_its_instruction_has_run(steps: list[Step], trips: int) -> None:
    made = program(steps, trips)
    stream, machine = modelled(made, SMALL)
    watched = Watched(stream, CostModel(SMALL, LEGACY, made.buffers), LEGACY, SMALL).run()
    assert watched.kind == machine.kind
