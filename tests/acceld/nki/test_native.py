"""The compiled passes of the performance model give exactly what those in Python give, and hostile programs nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acceld.chips import API_CHIPS, ChipSpec, chip_spec
from acceld.nki.frontend.tracing import TensorSpec, trace
from acceld.nki.ir.program import Affine, Engine, LoopKind, Program, Role
from acceld.nki.timing import compiler_current, compiler_legacy, passes, sbuf_allocation
from acceld.nki.timing import timeline as timeline_module
from acceld.nki.timing.cost import CostModel
from acceld.nki.timing.expansion import Prepared, prepare
from acceld.nki.timing.parameters import LEGACY, TimelineParams, default_params
from acceld.nki.timing.timeline import Timeline, as_timed, timeline
from scripts.evidence.simbench import kernels
from tests.acceld.nki import test_fuzzed_prices, test_value_numbering
from tests.acceld.nki.current.test_current import PRELUDE
from tests.acceld.nki.implementations import COMPILED, PYTHON, Passes, compiled
from tests.acceld.nki.random_programs import case
from tests.acceld.nki.test_fuzzed_prices import Statement
from tests.acceld.nki.test_timeline import streaming
from tests.acceld.nki.test_value_numbering import SMALL, STEPS, Step
from tests.acceld.nki.tiles import Writer, tile, times
from tests.properties import examples

pytestmark = compiled
SEEDS = st.integers(0, 2**32)


def test_passes_that_were_compiled_before_their_source_changed_are_not_used() -> None:
    from acceld.nki.timing import native

    assert passes.is_of_this_source(native.BUILT_FROM)
    assert not passes.is_of_this_source("0" * 64)


def assert_same(found: object, expected: object) -> None:
    """Compare every field of two records, which may be of different classes."""
    for field in fields(expected):  # type: ignore[arg-type]  # dataclasses
        here, there = getattr(found, field.name), getattr(expected, field.name)
        assert type(here) is type(there) and here == there, field.name
        if isinstance(there, list | dict) and there:
            flat = [*there] if isinstance(there, list) else [part for item in there.items() for part in item]
            other = [*here] if isinstance(there, list) else [part for item in here.items() for part in item]
            assert [*map(type, other)] == [*map(type, flat)], field.name


def ready(program: Program, params: TimelineParams, chip: ChipSpec) -> tuple[Prepared, CostModel]:
    model = replace(CostModel.of(program, params), chip=chip)
    place = (compiler_legacy if params.model == LEGACY.model else compiler_current).place
    return prepare(program, model, place, {loop.id: loop.trips for loop in program.loops.values()}), model


def assert_same_passes(program: Program, params: TimelineParams, chip: ChipSpec) -> None:
    """Run each pass of both implementations on the results of the pass before it, and compare all of them."""
    prepared, model = ready(program, params, chip)
    streams = [each.expand(prepared, numbering=params.value_numbering) for each in (COMPILED, PYTHON)]
    assert_same(*streams)
    machines = [each.plan(one, model, params, chip) for each, one in zip((COMPILED, PYTHON), streams, strict=True)]
    assert_same(*machines)
    held: Mapping[int, float] = {at: 1.0 * (at % 3) * at for at in range(0, len(machines[1].kind), 7)}
    for not_before in ({}, held):  # the second schedule begins with the engines that the first one chose
        times = [
            each.schedule(one, params, chip, not_before) for each, one in zip((COMPILED, PYTHON), machines, strict=True)
        ]
        assert_same(*times)
        assert_same(*machines)
        assert machines[0].engine_us() == machines[1].engine_us()
        assert [*machines[0].line_us().items()] == [*machines[1].line_us().items()]
        assert [*times[0].path_us(machines[0]).items()] == [*times[1].path_us(machines[1]).items()]
        for engine in range(len(sbuf_allocation.ENGINES)):
            uses = [one.use_of(machine, engine) for one, machine in zip(times, machines, strict=True)]
            assert uses[0] == uses[1]
            if uses[1] is not None:
                first = uses[1].first
                chains = [one.before_us(machine, first) for one, machine in zip(times, machines, strict=True)]
                assert [*chains[0].items()] == [*chains[1].items()]


@given(SEEDS)
@examples(140)
def test_random_programs(seed: int) -> None:
    made = case(seed)
    assert_same_passes(made.program, made.params, made.chip)


@given(STEPS, st.integers(1, 3), st.booleans(), st.booleans())
@examples(50)
def test_loads_additions_and_stores(steps: list[Step], trips: int, small: bool, dead: bool) -> None:
    made = test_value_numbering.program(steps, trips)
    assert_same_passes(made, replace(LEGACY, eliminate_dead=not dead), SMALL if small else chip_spec("trn1"))


@given(test_fuzzed_prices.statements(), st.sampled_from(["trn1", "trn2"]))
@examples(12)
def test_traced_kernels(program: Sequence[Statement], chip: str) -> None:
    made = trace(test_fuzzed_prices._source(program), test_fuzzed_prices.ARGUMENTS, chip=chip)
    assert_same_passes(made, default_params(made.api, chip), chip_spec(chip))


def of_each(program: Program) -> list[object]:
    """Return the whole timeline by each implementation, and how it counts each execution."""

    def by(each: Passes) -> Iterator[object]:
        for _ in each.used_in(vars(timeline_module)):
            line = timeline(program)
            yield json.dumps(line.to_json()), _operations(line), sorted(as_timed(program)[1].items())

    return [found for each in (COMPILED, PYTHON) for found in by(each)]


def _operations(line: Timeline) -> object:
    if line.machine is None or line.schedule is None:
        return None
    return [
        [getattr(one, field.name) for field in fields(one)]
        for one in (line.machine, line.schedule)
    ]  # fmt: skip


QUICK = frozenset("silu rmsnorm_matmul mamba rmsnorm_bf16 conv2d_maxpool_small".split())
"""Workloads whose kernels are traced and timed in a moment."""


@cache
def _own() -> list[tuple[kernels.Kernel, str]]:
    return [(one, chip) for one in kernels.own_kernels() for chip in API_CHIPS[one.api]]


@pytest.mark.parametrize(
    ("kernel", "chip"),
    [
        pytest.param(
            one, chip, id=f"{one.name}-{one.api}-{chip}", marks=[] if one.workload.name in QUICK else pytest.mark.slow
        )
        for one, chip in _own()
    ],
)
def test_baselines(kernel: kernels.Kernel, chip: str) -> None:
    mine, expected = of_each(replace(kernel, chip=chip).program())
    assert mine == expected


def recomputed(links: int) -> Program:
    """Compute the same chain of tiles, more than SBUF holds, in each of three passes, and store its last one."""
    w = Writer()
    source, target = w.hbm(128, 512), w.hbm(128, 3 * 512, role=Role.OUTPUT)
    with w.loop("again", 3, LoopKind.AFFINE) as again:
        chain = w.sbuf(links + 1, 128, 512, axis=1)
        w.load(tile(chain, 0), tile(source))
        with w.loop("k", links, LoopKind.AFFINE) as k:
            here, there = (tile(chain, Affine(first, ((k.id, 1),))) for first in (0, 1))
            w.do("activation", there, here, 0.0, 1.0, engine=Engine.SCALAR, func="exp")
        w.store(tile(target, (0, 128), (times(again.id, 512), 512)), tile(chain, links))
    return w.done()


@pytest.mark.parametrize("links", [90, 110, 150, 320])
def test_long_chains_of_postponed_repeats(links: int) -> None:
    assert_same_passes(recomputed(links), replace(LEGACY, merged_iterations=0), chip_spec("trn1"))


def test_programs_that_are_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_module, "MAX_EVENTS", 300)
    mine, expected = of_each(streaming(512))
    assert mine == expected


MEETING = """
@nki.jit
def kernel(x):
    core = nl.program_id(0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(6):
        t = nl.ndarray((128, 512), dtype=x.dtype)
        u = nl.ndarray((128, 512), dtype=x.dtype)
        nisa.dma_copy(dst=t, src=x[nl.ds(core * 1024 + i * 128, 128), :])
        for _ in range(1 + 2 * core):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
            nisa.tensor_copy(dst=u, src=t)
        nisa.dma_copy(dst=out[nl.ds(core * 1024 + i * 128, 128), :], src=u)
        if i % 2:
            nisa.core_barrier(out, (0, 1))
    return out
"""


def test_two_cores_that_wait_for_each_other() -> None:
    program = trace(PRELUDE + MEETING, [TensorSpec((2048, 512), "float32")], api="nki", chip="trn2", lnc=2, grid=(2,))
    assert program.lnc == 2
    mine, expected = of_each(program)
    assert mine == expected


def test_an_execution_without_a_cost_or_a_place_is_an_error_of_python() -> None:
    program = streaming(4)
    prepared, model = ready(program, LEGACY, chip_spec("trn1"))
    prepared.templates[1].variants = [0, 0, 9, 0]
    with pytest.raises(IndexError):
        COMPILED.plan(COMPILED.expand(prepared, numbering=True), model, LEGACY, model.chip)
    prepared, _ = ready(program, LEGACY, chip_spec("trn1"))
    del prepared.templates[1].reads[0].bases[2:]
    with pytest.raises(IndexError):
        COMPILED.expand(prepared, numbering=True)
    prepared, _ = ready(program, LEGACY, chip_spec("trn1"))
    prepared.templates[1].reads[0].bases[2] = 1 << 80
    with pytest.raises(OverflowError):
        COMPILED.expand(prepared, numbering=True)


LITTLE_MEMORY = """
import resource
from tests.acceld.nki.test_native import LEGACY, COMPILED, chip_spec, ready, streaming
prepared, model = ready(streaming(30_000), LEGACY, chip_spec("trn1"))
stream = COMPILED.expand(prepared, numbering=True)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 21), used + (1 << 21)))
for run in (lambda: COMPILED.expand(prepared, numbering=True), lambda: COMPILED.plan(stream, model, LEGACY, model.chip)):
    try:
        run()
    except MemoryError:
        print("MemoryError")
"""
WITHOUT = """
import json, sys
sys.modules["acceld.nki.timing.native"] = None
from acceld.nki.timing import passes, value_numbering
from tests.acceld.nki.test_timeline import streaming, timeline
assert not passes.COMPILED and passes.expand is value_numbering.expand
print(json.dumps(timeline(streaming(8)).to_json()))
"""


def printed(code: str) -> str:
    """Return the output of code that runs in a Python of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_too_little_memory_is_a_memory_error() -> None:
    assert printed(LITTLE_MEMORY).split() == ["MemoryError", "MemoryError"]


def test_timelines_are_the_same_where_nothing_was_compiled() -> None:
    assert passes.COMPILED
    assert json.loads(printed(WITHOUT)) == json.loads(json.dumps(timeline(streaming(8)).to_json()))
