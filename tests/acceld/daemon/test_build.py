"""The real parts of a daemon: a run that can not start is refused, and a search follows its specification."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pytest

from acceld.config import BudgetConfig, CommandConfig, Config, EvaluateConfig, LlmConfig, ModelConfig, RoleConfig
from acceld.daemon.build import SearchBuilder, definition, problem_of
from acceld.daemon.ledger import StoreLedger
from acceld.errors import AcceldError, BudgetError, ConfigError, DeviceError, UsageError, WorkloadError
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.interface import EvaluationRequest, started
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.events import BudgetLevel
from acceld.home import Home
from acceld.llm.pricing import Price
from acceld.model import Gate, RunSpec, SearchParameters
from acceld.model_calls import CallIntent, CallOutcome, Usage
from acceld.nki.timing.calibration import Calibration, keep
from acceld.nki.timing.parameters import PARAMS_VERSION
from acceld.nki.timing.version import model_version
from acceld.proposers.both import BothProposer
from acceld.proposers.command import CommandProposer
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.rules.proposer import RulesProposer, TunedRules
from acceld.search.control import RunControl, control_from
from acceld.store.changes.runs import create_run, write_steered
from acceld.store.database import Store
from acceld.store.reads.records import load_events, spent_usd, steering_events
from acceld.workloads import load_workload, workload
from tests.acceld.daemon.conftest import begun_store
from tests.store import records

LOCAL = Config(
    models={"local": ModelConfig(base_url="http://127.0.0.1:9/v1", name="tiny")},
    llm=LlmConfig(planner=RoleConfig(models=("local",)), executor=RoleConfig(models=("local",))),
    budget=BudgetConfig(run_usd=1.0),
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """Yield an open store."""
    async with begun_store(tmp_path) as opened:
        yield opened


async def builder(store: Store, config: Config | None = None) -> SearchBuilder:
    """Return a builder whose parts are made."""
    made = SearchBuilder(config or Config(), Home(store.path.parent), store, {})
    await made.parts()
    return made


async def test_what_can_not_begin_is_refused(store: Store) -> None:
    made = await builder(store)
    with pytest.raises(WorkloadError, match="no workload 'siluu'") as caught:
        await made.check(RunSpec("siluu"))
    assert "silu" in caught.value.hint
    with pytest.raises(WorkloadError, match="no baseline for API triton"):
        await made.check(RunSpec("silu", api="triton"))
    with pytest.raises(ConfigError, match="no model is configured"):
        await made.check(RunSpec("silu", proposer="llm"))
    with pytest.raises(UsageError, match="no proposer 'magic'"):
        await made.check(RunSpec("silu", proposer="magic"))
    with pytest.raises(DeviceError, match="no interpreter with neuronx-cc"):
        await made.check(RunSpec("silu", backend="neuron_legacy"))
    await made.check(RunSpec("silu"))


async def test_a_search_by_rules_starts_from_the_workloads_baseline(store: Store) -> None:
    made = await builder(store)
    run = await store.change(create_run, RunSpec("silu"))
    search = await made.search(run, RunControl())
    assert isinstance(search.parts.proposer, RulesProposer)
    assert search.parts.teacher is None
    assert search.parts.root == await asyncio.to_thread(baseline_kernel, workload("silu"), "nki_legacy")
    assert search.parts.problem.arguments[0].text.startswith("x: float32 (")
    (row,) = await store.read(lambda c: [r[0] for r in c.execute("SELECT definition FROM accelopt_definitions")])
    assert '"family":"nkibench"' in row


@pytest.mark.parametrize("calibrated", [False, True])
async def test_a_run_states_the_model_that_its_latencies_come_from(store: Store, calibrated: bool) -> None:
    if calibrated:
        factors = {"overheads": 1.2, "transfers": 1.0, "slack": 1.0}
        made = Calibration("trn1", "nki_legacy", 7, factors, 9.0, 5.0)
        await asyncio.to_thread(keep, store.path.parent, [made])
    search = await (await builder(store)).search(await store.change(create_run, RunSpec("silu")), RunControl())
    basis = search.parts.basis
    assert basis.model in search.parts.context and basis.model.startswith(f"{PARAMS_VERSION}.")
    assert (".c" in basis.model.removeprefix(model_version()), basis.chip, len(basis.workload)) == (
        calibrated,
        "trn1",
        12,
    )
    request = EvaluationRequest(search.parts.root, "silu", "trn1", gate=Gate.TIMING)
    async with started(SimulatedEvaluator(EvaluateConfig(), store.path.parent)) as evaluator:
        found = await evaluator.evaluate(request)
    assert found.profile is not None and found.profile.model == basis.model


async def test_a_search_by_models_has_memory_and_money(store: Store) -> None:
    made = await builder(store, LOCAL)
    spec = RunSpec("silu", proposer="llm", search=SearchParameters(memory="fifo", budget_usd=None))
    run = await store.change(create_run, spec)
    search = await made.search(run, RunControl())
    assert isinstance(search.parts.proposer, LLMProposer)
    assert search.parts.teacher is not None
    with pytest.raises(BudgetError, match=r"r\d+"):
        await made.budget.reserve(run.id, Decimal("1.5"))
    await store.change(write_steered, run.id, "budget", {"usd": 2.0}, "me", "the cap is 2 USD")
    await made.search(run, control_from(await store.read(steering_events, run.id)))
    await made.budget.reserve(run.id, Decimal("1.5"))
    await made.close()


async def test_budget_levels_become_events(store: Store) -> None:
    made = await builder(store, LOCAL)
    run, _ = await records.begin(store)
    made.budget.open_run(run.id, 1.0)
    (await made.budget.reserve(run.id, Decimal("0.9"))).settle(Decimal("0.9"))
    await made.close()
    reported = [event.data for event in await store.read(load_events) if isinstance(event.data, BudgetLevel)]
    assert [level.percent for level in reported] == [50, 80]


async def test_the_ledger_buys_no_answer_twice(store: Store) -> None:
    ledger = StoreLedger(store)
    run, _ = await records.begin(store)
    tags = {"run": run.id, "iteration": 2, "parent": 1, "plan": 0}
    intent = CallIntent("question", "planner", "local", "", "p" * 64, "system", "user", 100, 0.5, tags=tags)
    assert await ledger.answer("question") is None
    call = await ledger.intend(intent)
    assert await ledger.answer("question") is None
    usage = Usage(10, 4, 0, 7, 3)
    await ledger.settle(
        call, CallOutcome("answered", usage, 0.25, Price.of(1, 2).as_dict(), text="plan", answered_by="tiny")
    )
    stored = await ledger.answer("question")
    assert stored is not None
    assert (stored.text, stored.answered_by, stored.usage) == ("plan", "tiny", usage)
    assert await store.read(spent_usd, run.id) == 0.25
    assert await store.read(spent_usd, since=time.time() + 60) == 0
    with pytest.raises(AcceldError, match="has already ended"):
        await ledger.settle(call, CallOutcome("answered", usage, 0.25))


def test_what_proposers_and_history_know_of_a_workload() -> None:
    found = workload("rmsnorm_matmul")
    problem = problem_of(found, "trn1", "nki_legacy")
    assert "def " in problem.reference_source
    assert problem.tolerance == found.tolerance
    assert definition(found)["name"] == "rmsnorm_matmul"


@pytest.mark.parametrize("proposer", ["llm", "both"])
@pytest.mark.parametrize(
    ("configured", "asked", "has"),
    [(False, None, False), (True, None, True), (False, True, True), (True, False, False)],
)
async def test_a_runs_own_wish_for_tools_goes_before_the_configured_one(
    store: Store, proposer: str, configured: bool, asked: bool | None, has: bool
) -> None:
    executor = RoleConfig(models=("local",), tools=configured)
    made = await builder(store, replace(LOCAL, llm=replace(LOCAL.llm, executor=executor)))
    spec = RunSpec("silu", proposer=proposer, search=SearchParameters(tools=asked))
    search = await made.search(await store.change(create_run, spec), RunControl())
    models = search.parts.proposer.models if isinstance(search.parts.proposer, BothProposer) else search.parts.proposer
    assert isinstance(models, LLMProposer)
    assert (models._bench is not None) is has


async def test_an_executor_of_a_run_that_the_simulator_does_not_take_has_no_tools(store: Store) -> None:
    made = await builder(store, LOCAL)
    spec = RunSpec("silu", backend="cpu", api="c", chip="host", proposer="llm", search=SearchParameters(tools=True))
    run = await store.change(create_run, spec)
    proposer = await asyncio.to_thread(lambda: made._proposer(spec, workload("silu"), run.id))
    made._equip(proposer, run)
    assert isinstance(proposer, LLMProposer)
    assert proposer._bench is None


@pytest.mark.parametrize("strategy", ["beam", "tune"])
async def test_rules_beside_models_propose_one_sequence_for_a_parent_by_every_strategy(
    store: Store, strategy: Literal["beam", "tune"]
) -> None:
    made = await builder(store, LOCAL)
    spec = RunSpec("silu", proposer="both", search=SearchParameters(strategy=strategy))
    proposer = await asyncio.to_thread(lambda: made._proposer(spec, workload("silu")))
    assert isinstance(proposer, BothProposer)
    rules = proposer.rules
    assert isinstance(rules, TunedRules)
    assert rules._most == 1


async def test_a_program_proposes_where_one_is_configured(store: Store) -> None:
    with pytest.raises(ConfigError, match=r"run in \[command\] is empty"):
        await (await builder(store)).check(RunSpec("silu", proposer="command"))
    made = await builder(store, Config(command=CommandConfig(run="my-agent {file}")))
    search = await made.search(await store.change(create_run, RunSpec("silu", proposer="command")), RunControl())
    assert isinstance(search.parts.proposer, CommandProposer)
    assert search.parts.teacher is None


async def test_a_tuner_times_only_kernels_that_are_legal_at_hidden_shapes_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await builder(store)
    folder = Path(__file__).parents[2] / "adversarial" / "workloads" / "st_any_rows"
    spec = RunSpec("st_any_rows", workload_folder=str(folder))
    general = await asyncio.to_thread(lambda: baseline_kernel(load_workload(folder), "nki_legacy"))
    fixed = replace(general, text=general.text.replace("rows, width = x.shape", "rows, width = 256, 512"))
    wide = replace(general, text=general.text.replace("width = x.shape", "_ = x.shape\n    width = 512"))
    config = EvaluateConfig(slots=1, memory_gib=2.0)
    evaluator = await asyncio.to_thread(SimulatedEvaluator, config, store.path.parent / "state")
    # In a task of its own, for a real evaluator makes folders, which nothing below the daemon may do here.
    monkeypatch.setattr(made._router, "evaluate", lambda asked: asyncio.create_task(evaluator.evaluate(asked)))
    async with started(evaluator):
        timed = [await made._timed(spec, kernel) for kernel in (general, fixed, wide)]
    assert timed[0] is not None and timed[0].latency_us > 0
    assert timed[1:] == [None, None], "rows beyond the array's, and columns of another number"


@pytest.mark.parametrize(("name", "is_tried_elsewhere"), [("matmul_bf16", True), ("silu", False)])
def test_a_problem_says_that_its_kernels_are_tried_at_shapes_nobody_knows(name: str, is_tried_elsewhere: bool) -> None:
    found = workload(name)
    said = problem_of(found, "trn1", "nki_legacy").description
    assert ("take sizes from the arguments' shapes" in said) == bool(found.hidden) == is_tried_elsewhere
    assert not any(str(value) in said.partition("also tried")[2] for shape in found.hidden for value in shape.values())
