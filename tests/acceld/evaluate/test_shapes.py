"""One kernel for several shapes: evaluated at all, with the weighted geometric mean as its latency."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from acceld.config import EvaluateConfig
from acceld.daemon.build import definition, problem_of
from acceld.errors import WorkloadError
from acceld.evaluate.comparison import Estimate, Paired
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.shapes import joined
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.figures import counter_class
from acceld.findings import binds, floor_share
from acceld.model import Evaluation, Gate, Kernel, Profile, RunSpec, SearchParameters, Source, Status
from acceld.proposers.rules.proposer import RulesProposer
from acceld.roofline import floor_of
from acceld.search.loop import Search, SearchParts
from acceld.search.outcome import outcome
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates, load_plans, load_run
from acceld.workloads import WeightedShape, Workload, every_shape, load_workload

ROWS = Path(__file__).parents[2] / "adversarial" / "workloads" / "st_any_rows"
LISTED = """weight = 3.0
[[shapes]]
values = { M = 512 }
[[shapes]]
values = { M = 128, N = 1024 }
weight = 0.5
"""


def listed(folder: Path, tables: str = LISTED) -> Path:
    """Return a copy of a workload that lists shapes."""
    shutil.copytree(ROWS, folder, dirs_exist_ok=True)
    first, _, rest = tables.partition("\n")
    own = (folder / "workload.toml").read_text("utf-8")
    (folder / "workload.toml").write_text(f"{first}\n{own}\n{rest}", "utf-8")
    return folder


@pytest_asyncio.fixture
async def evaluator(tmp_path: Path) -> AsyncIterator[SimulatedEvaluator]:
    made = SimulatedEvaluator(EvaluateConfig(slots=1, memory_gib=2.0), tmp_path / "state")
    await made.start()
    yield made
    await made.stop(1.0)


def request(folder: Path, text: str = "", gate: Gate = Gate.SEARCH, **more: object) -> EvaluationRequest:
    text = text or (ROWS / "kernel_legacy.py").read_text("utf-8")
    return EvaluationRequest(Kernel(text, "nki_legacy"), "", "trn1", workload_folder=str(folder), gate=gate, **more)  # type: ignore[arg-type]


async def alone(evaluator: SimulatedEvaluator, folder: Path, shape: WeightedShape) -> float:
    """Return the latency at one shape, of a workload that has no other."""
    text = re.sub(r"\[\[hidden\]\]\n(\w+ = \d+\n)+", "", (ROWS / "workload.toml").read_text("utf-8"))
    for name, extent in shape.values.items():
        text = text.replace(f"{name} = {load_workload(ROWS).values[name]}\n", f"{name} = {extent}\n", 1)
    shutil.copytree(ROWS, folder)
    (folder / "workload.toml").write_text(text, "utf-8")
    found = await evaluator.evaluate(request(folder, gate=Gate.TIMING))
    assert found.latency_us is not None
    return found.latency_us


async def test_the_latency_is_the_weighted_geometric_mean_of_the_latencies_at_each_shape(
    evaluator: SimulatedEvaluator, tmp_path: Path
) -> None:
    folder = listed(tmp_path / "listed")
    found = await evaluator.evaluate(request(folder))
    shapes = [shape for shape, _ in every_shape(load_workload(folder))]
    assert [(shape.text, shape.weight) for shape in shapes] == [
        ("M=256, N=512", 3.0),
        ("M=512", 1.0),
        ("M=128, N=1024", 0.5),
    ]
    latencies = [await alone(evaluator, tmp_path / str(number), shape) for number, shape in enumerate(shapes)]
    mean = math.exp(sum(s.weight * math.log(us) for s, us in zip(shapes, latencies, strict=True)) / 4.5)
    assert found.status is Status.PASSED and found.profile is not None and found.correctness is not None
    assert found.latency_us == pytest.approx(mean)
    assert [one["latency_us"] for one in found.profile.details["shapes"]] == pytest.approx(latencies)
    assert {check.name.partition(":")[0] for check in found.correctness.checks} == {shape.text for shape in shapes}
    assert "M=512" in found.profile.notes[0]


async def test_a_kernel_that_is_wrong_at_one_shape_fails_and_says_at_which(
    evaluator: SimulatedEvaluator, tmp_path: Path
) -> None:
    text = (ROWS / "kernel_legacy.py").read_text("utf-8").replace("rows // 128", "min(rows // 128, 3)")
    found = await evaluator.evaluate(request(listed(tmp_path / "listed"), text))
    assert found.status is not Status.PASSED and found.failure is not None
    assert "at the shape M=512" in found.failure.message
    assert found.latency_us is None


async def test_a_kernel_that_is_too_slow_over_all_shapes_runs_on_no_data(
    evaluator: SimulatedEvaluator, tmp_path: Path
) -> None:
    folder = listed(tmp_path / "listed")
    mean_us = (await evaluator.evaluate(request(folder, gate=Gate.TIMING))).latency_us
    assert mean_us is not None
    slow = await evaluator.evaluate(request(folder, useful_below_us=mean_us * 0.99))
    assert (slow.status, slow.latency_us) == (Status.UNTESTED, mean_us)
    useful = await evaluator.evaluate(request(folder, useful_below_us=mean_us * 1.01))
    assert useful.status is Status.PASSED


async def test_a_search_reports_the_speedup_at_each_shape_and_their_mean(
    evaluator: SimulatedEvaluator, tmp_path: Path
) -> None:
    folder = listed(tmp_path / "listed")
    found = load_workload(folder)
    root = Kernel((ROWS / "kernel_legacy.py").read_text("utf-8"), "nki_legacy", trusted=True)
    store = Store.open(tmp_path / "acceld.db")
    try:
        parameters = SearchParameters(beam_width=1, plans=4, attempts=2, iterations=1)
        spec = RunSpec(found.name, search=parameters, root=root, workload_folder=str(folder))
        run = await store.change(create_run, spec)
        problem = problem_of(found, "trn1", root.api)
        await Search(run, SearchParts(store, evaluator, RulesProposer(), problem, root)).run()
        candidates = await store.read(load_candidates, run.id, details=True)
        plans = {plan.id: plan for plan in await store.read(load_plans, run.id)}
        made = outcome(await store.read(load_run, run.id), candidates, plans)
    finally:
        await store.close()
    assert len(made.shapes) == 3 and made.speedup is not None
    logs = sum(one.weight * math.log(one.speedup) for one in made.shapes)
    assert made.speedup == pytest.approx(math.exp(logs / 4.5))
    assert made.to_json()["shapes"][1]["shape"] == "M=512"


GRIDDED = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, gain):
    rows, width = x.shape
    out = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.shared_hbm)
    p = 128 * nl.program_id(0) + nl.arange(128)[:, None]
    f = nl.arange(width)[None, :]
    tile = nl.load(x[p, f])
    column = nl.load(gain[p, nl.arange(1)[None, :]])
    nl.store(out[p, f], value=nisa.tensor_scalar(data=tile, op0=nl.multiply, operand0=column))
    return out
"""


async def test_a_kernel_with_a_grid_has_each_shapes_own_grid_at_hidden_shapes_too(
    evaluator: SimulatedEvaluator, tmp_path: Path
) -> None:
    folder = listed(tmp_path / "listed", "\n[[shapes]]\nvalues = { M = 512 }\n")
    with (folder / "workload.toml").open("a") as file:
        file.write('\n[kernel]\ngrid = ["M // 128"]\n')
    for gate in (Gate.SEARCH, Gate.STRICT):
        asked = EvaluationRequest(
            Kernel(GRIDDED, "nki_legacy", grid=(2,)), "", "trn1", workload_folder=str(folder), gate=gate
        )
        found = await evaluator.evaluate(asked)
        assert found.status is Status.PASSED, found.failure
    assert found.correctness is not None
    assert "M=256: hidden shape M=384" in {check.name for check in found.correctness.checks}


async def test_the_search_gate_traces_a_kernel_at_hidden_shapes(evaluator: SimulatedEvaluator, tmp_path: Path) -> None:
    folder = listed(tmp_path / "listed")
    with (folder / "workload.toml").open("a") as file:
        file.write('\n[kernel]\ngrid = ["M // 128"]\n')
    written_out = GRIDDED.replace("rows, width = x.shape", "rows, width = x.shape[0], 512")
    asked = EvaluationRequest(
        Kernel(written_out, "nki_legacy", grid=(2,)), "", "trn1", workload_folder=str(folder), gate=Gate.SEARCH
    )
    found = await evaluator.evaluate(asked)
    assert found.status is Status.INCORRECT_SHAPE and found.failure is not None
    assert found.failure.message.startswith("at the shape M=256, N=512: at a hidden shape: ")
    assert "M=384" not in found.failure.message, "models read failures of the search gate"


async def test_one_of_the_shapes_can_be_asked_for(evaluator: SimulatedEvaluator, tmp_path: Path) -> None:
    folder = listed(tmp_path / "listed")
    every = await evaluator.evaluate(request(folder, gate=Gate.TIMING))
    assert every.profile is not None
    for (shape, _), one in zip(every_shape(load_workload(folder)), every.profile.details["shapes"], strict=True):
        alone = await evaluator.evaluate(request(folder, gate=Gate.TIMING, shape=tuple(shape.values.items())))
        assert alone.latency_us == one["latency_us"]
        assert alone.profile is not None and "shapes" not in alone.profile.details


def test_planners_and_the_history_are_told_of_every_shape(tmp_path: Path) -> None:
    found = load_workload(listed(tmp_path / "listed"))
    assert "M=512 (weight 1)" in problem_of(found, "trn1", "nki_legacy").description
    assert definition(found)["shapes"] == [
        {"shape": "M=256, N=512", "weight": 3.0},
        {"shape": "M=512", "weight": 1.0},
        {"shape": "M=128, N=1024", "weight": 0.5},
    ]


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ("\n[[shapes]]\nvalues = { Q = 4 }\n", "'Q' is unknown"),
        ("\n[[shapes]]\nvalues = { M = 256 }\n", "workload's own shape"),
        ("\n[[shapes]]\nvalues = { M = 512 }\nweight = 0\n", "must be positive"),
        ("weight = 2.0\n", "the file has no"),
    ],
)
def test_a_list_of_shapes_that_says_nothing_is_refused(tmp_path: Path, tables: str, problem: str) -> None:
    with pytest.raises(WorkloadError, match=problem):
        load_workload(listed(tmp_path / "listed", tables))


def test_a_shape_that_is_loaded_alone_lists_no_others(tmp_path: Path) -> None:
    other = load_workload(listed(tmp_path / "listed"), {"M": 512})
    assert (other.shapes, other.hidden, other.argument("x").shape) == ((), (), (512, 512))


def turns(ratio: float, half: float) -> dict[str, object]:
    return Paired("parent", Estimate(ratio, ratio / half, ratio * half), 0.1, 30, 5).plain()


def measured(latency_us: float, *pairs: dict[str, object]) -> Evaluation:
    profile = Profile(
        Source.MEASURED, "host", "c", latency_us, "clock", resolution_us=0.1, details={"paired": list(pairs)}
    )
    return Evaluation(Status.UNTESTED, "a", profile=profile, program_sha256="p")


def test_interleaved_comparisons_at_each_shape_become_one_and_their_errors_add_in_squares() -> None:
    shapes = (WeightedShape({"M": 1}), WeightedShape({"M": 2}))
    found = joined(Kernel("", "c"), shapes, [measured(4.0, turns(1.21, 1.02)), measured(9.0, turns(1.0, 1.02))])
    assert found.profile is not None
    assert found.latency_us == pytest.approx(6.0)
    (pair,) = found.profile.details["paired"]
    assert pair["ratio"] == pytest.approx(1.1)
    assert pair["interval"][1] / pair["ratio"] == pytest.approx(1.02 ** (1 / math.sqrt(2)))
    assert pair["win"]


def test_a_competitor_that_did_not_take_turns_at_every_shape_is_left_out() -> None:
    shapes: tuple[WeightedShape, ...] = (WeightedShape({"M": 1}), WeightedShape({"M": 2}))
    found = joined(Kernel("", "c"), shapes, [measured(4.0, turns(1.21, 1.02)), measured(9.0)])
    assert found.profile is not None and found.profile.details["paired"] == []


def test_a_workload_without_a_list_is_for_its_own_shape_alone() -> None:
    found: Workload = load_workload(ROWS)
    assert [(shape.text, shaped) for shape, shaped in every_shape(found)] == [("", found)]


async def test_the_share_of_the_floor_is_that_of_the_mean_over_the_shapes(
    evaluator: SimulatedEvaluator, tmp_path: Path
) -> None:
    folder = listed(tmp_path / "listed")
    found, loaded = await evaluator.evaluate(request(folder, gate=Gate.TIMING)), load_workload(folder)
    assert found.profile is not None and found.latency_us is not None
    floors = [(shape.weight, floor_of(shaped, "trn1")) for shape, shaped in every_shape(loaded)]
    mean = math.exp(sum(weight * math.log(one.least_us) for weight, one in floors if one) / 4.5)
    share = floor_share(loaded, "trn1", found.latency_us, 1, found.profile)
    assert share["percent_of_floor"] == pytest.approx(100 * mean / found.latency_us, abs=0.06)
    assert "mean over the shapes" in share["floor_is"]
    assert found.profile.bound.endswith(" at M=256, N=512")
    assert binds(found.profile, "")["time"].startswith("at M=256, N=512, ")
    assert counter_class(found.profile.details, "dma_rows") == "mean over the shapes"
    peak = "sbuf_peak_bytes_per_partition"
    each = [
        (await evaluator.evaluate(request(folder, gate=Gate.TIMING, shape=tuple(shaped.values.items())))).profile
        for _, shaped in every_shape(loaded)
    ]
    assert found.profile.counters[peak] == max(one.counters[peak] for one in each if one)
