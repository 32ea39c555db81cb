"""Models and rules in one search: the plans of each, rules that polish models' kernels, and credit for steps."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.config import EvaluateConfig
from acceld.daemon.build import problem_of
from acceld.daemon.ledger import StoreLedger
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.llm.calls import Calls
from acceld.llm.client import CompletionRequest
from acceld.llm.pricing import Price
from acceld.llm.settings import ModelSettings
from acceld.model import (
    Candidate,
    Evaluation,
    Gate,
    Kernel,
    Plan,
    Profile,
    Run,
    RunSpec,
    SearchParameters,
    Source,
    Status,
)
from acceld.nki.source.launches import Launch
from acceld.proposers.both import BothProposer
from acceld.proposers.interface import AppliedPlan, AttemptRequest, Partner, PlanRequest, Problem
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleTable
from acceld.proposers.rules.proposer import RulesProposer, TunedRules, moves
from acceld.proposers.rules.tuner import TimedProgram, Tuned
from acceld.resources import prompts_folder
from acceld.search.budget import Budget
from acceld.search.loop import Search, SearchParts
from acceld.search.outcome import outcome
from acceld.search.replay import differences, recording
from acceld.store.changes.runs import create_run
from acceld.store.connection import connect_reader
from acceld.store.database import Store
from acceld.store.reads.records import load_attempts, load_candidates, load_plans, load_run
from acceld.workloads import workload
from tests.acceld.llm.scripted import ScriptedClient
from tests.acceld.proposers.rules.places import SILU
from tests.acceld.search.conftest import BreaksDown, ListedProposer, ScriptedEvaluator, SearchMaker, new_run
from tests.acceld.search.test_llm_search import SIGMOID, SLOW, kernel


class Models(ListedProposer):
    """Plans like models: their kernels run on data at once, because they might need a repair."""

    mends = True

    def __init__(self, factors: list[float], notes: list[str] | None = None) -> None:
        super().__init__(factors, notes, name="both")


class Ruled(ListedProposer):
    """Plans like rules."""

    async def plan(self, request: PlanRequest) -> Plan | None:
        made = await super().plan(request)
        return None if made is None else replace(made, rule="widen_tiles")


def polished(search: Search, factor: float = 0.9) -> Search:
    """Return the search, with rules that make every kernel ``factor`` times as slow."""
    search.parts = replace(search.parts, polisher=Ruled([factor]))
    return search


Node = tuple[tuple[int, int, int, int], str, str]


async def tree(store: Store, run: Run) -> dict[Node, Node | None]:
    """Return candidates by place, text and rule, each with its parent."""
    plans = {plan.id: plan.rule for plan in await store.read(load_plans, run.id)}
    candidates = {one.id: one for one in await store.read(load_candidates, run.id)}

    def node(one: Candidate) -> Node:
        return one.order, one.kernel.text, plans.get(one.plan or 0, "")

    return {node(one): node(candidates[one.parent]) if one.parent else None for one in candidates.values()}


async def test_each_model_kernel_that_passes_is_polished_once_and_the_step_is_the_rules(
    store: Store, search_for: SearchMaker
) -> None:
    run = await new_run(store, iterations=1)
    proposer = Models([0.8, 0.7, 0.6], ["", "wrong", "illegal"])
    await polished(search_for(run, ScriptedEvaluator(), proposer)).run()
    candidates = {one.id: one for one in await store.read(load_candidates, run.id)}
    plans = {plan.id: plan for plan in await store.read(load_plans, run.id)}
    by_rules = [one for one in candidates.values() if one.plan is not None and plans[one.plan].rule]
    assert len(by_rules) == 2, "two attempts of the one plan whose kernels pass"
    for one in by_rules:
        parent = candidates[one.parent or 0]
        assert "0.8" not in one.kernel.text and parent.evaluation is not None
        assert parent.evaluation.status is Status.PASSED and not plans[parent.plan or 0].rule
        assert one.order == (*parent.order[:3], parent.order[3] + 1)
    best = (await store.read(load_run, run.id)).best
    assert best in {one.id for one in by_rules}


async def test_rules_plans_are_not_polished_again(store: Store, search_for: SearchMaker) -> None:
    run = await new_run(store, iterations=1)
    await polished(search_for(run, ScriptedEvaluator(), Ruled([0.8, 0.7, 0.6], name="llm"))).run()
    assert len(await store.read(load_candidates, run.id)) == 1 + 6


@pytest.mark.parametrize("limit", [1, 6, 7, 11, 30])
async def test_polished_kernels_count_as_candidates(store: Store, search_for: SearchMaker, limit: int) -> None:
    run = await new_run(store, iterations=100, patience=0, candidates=limit)
    await polished(search_for(run, ScriptedEvaluator(), Models([0.9] * 50))).run()
    assert len([one for one in await store.read(load_candidates, run.id) if one.parent is not None]) == limit


@pytest.mark.parametrize("at", [2, 5, 9, 14, 20])
async def test_a_search_that_broke_off_goes_on_to_the_same_tree(store: Store, search_for: SearchMaker, at: int) -> None:
    proposer = Models([0.9, 0.8, 0.85])
    whole, broken = await new_run(store, iterations=2), await new_run(store, iterations=2)
    await polished(search_for(whole, ScriptedEvaluator(), proposer)).run()
    with contextlib.suppress(KeyboardInterrupt, BaseExceptionGroup):
        await polished(search_for(broken, BreaksDown(at), proposer)).run()
    await polished(search_for(broken, ScriptedEvaluator(), proposer)).run()
    assert await tree(store, broken) == await tree(store, whole)


def plan_request(index: int, text: str = SILU) -> PlanRequest:
    silu = workload("silu", ())
    parent = Candidate(1, 0, Kernel(text, "nki_legacy"), None, id=7)
    return PlanRequest(problem_of(silu, "trn1", "nki_legacy"), 1, 1, parent, 0, index, 0)


class Report(Models):
    """Keeps the reports that it gets."""

    def __init__(self) -> None:
        super().__init__([0.9] * 9)
        self.notes: list[str] = []

    async def plan(self, request: PlanRequest) -> Plan | None:
        self.notes = list(request.notes)
        return await super().plan(request)

    async def attempt(self, request: AttemptRequest) -> None:
        self.notes = request.plan.text.splitlines()


async def test_plans_alternate_and_models_plan_where_rules_have_no_more() -> None:
    models, rules = Report(), RulesProposer()
    proposer = BothProposer(models, rules)
    plans = [await proposer.plan(plan_request(index)) for index in range(8)]
    assert all(plan is not None and plan.index == index for index, plan in enumerate(plans))
    assert [bool(plan and plan.rule) for plan in plans[:4]] == [True, False, True, False]
    last = await proposer.plan(plan_request(99))
    assert last is None or not last.rule
    applicable, refused = await rules.findings(plan_request(0).parent, plan_request(0).problem)
    assert [plan.line for plan in plans if plan and plan.rule][:2] == [site.line for site in [*applicable, *refused]][
        :2
    ]


@pytest.mark.parametrize(("latency_us", "ruled"), [(90.0, True), (98.9, True), (99.5, False)])
async def test_a_sequence_of_rewrites_that_saves_nearly_nothing_leaves_its_plan_to_models(
    latency_us: float, ruled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(self: TunedRules, parent: Candidate, problem: Problem) -> list[Tuned]:
        return [Tuned(SILU, ("step",), ("widen_tiles",), TimedProgram(latency_us, "", None))]

    async def clock(kernel: Kernel) -> None:
        return None

    monkeypatch.setattr(TunedRules, "tuned", found)
    asked = plan_request(0)
    profile = Profile(Source.SIMULATED, "trn1", "nki_legacy", 100.0, "scripted")
    timed = replace(asked.parent, evaluation=Evaluation(Status.UNTESTED, "", program_sha256="", profile=profile))
    plan = await BothProposer(Report(), TunedRules(clock, limit=1, most=1)).plan(replace(asked, parent=timed))
    assert plan is not None and bool(plan.rule) is ruled


async def test_rules_cross_with_what_rules_made_and_models_with_what_models_made() -> None:
    proposer, asked = BothProposer(Models([0.9] * 9), RulesProposer()), plan_request(1)
    rewrite = next(move.step for move in moves(SILU, Launch("nki_legacy")))
    by_rules, by_model = AppliedPlan("", "", 1.5, (rewrite,)), AppliedPlan("", "", 1.2)
    for steps, ruled in (((by_rules,), True), ((by_model,), False), ((by_model, by_rules), False)):
        plan = await proposer.plan(replace(asked, partner=Partner(replace(asked.parent, id=8), steps)))
        assert plan is not None and bool(plan.rule) is ruled and (plan.partner == 8) is ruled


async def test_prompts_say_what_rules_do_and_what_they_refuse() -> None:
    models = Report()
    proposer = BothProposer(models, RulesProposer())
    asked = plan_request(0, baseline_kernel(workload("silu", ()), "nki_legacy").text)
    plan = await proposer.plan(replace(asked, index=1))
    assert plan is not None and any("composite activation" in note for note in models.notes)
    await proposer.attempt(AttemptRequest(asked.problem, plan, asked.parent, 0, 0))
    assert models.notes[0] == plan.text and any("composite activation" in note for note in models.notes)
    refused = plan_request(1, baseline_kernel(workload("swiglu", ()), "nki_legacy").text)
    assert await proposer.plan(refused) is not None
    assert any("refuse" in note for note in models.notes) and any("because of this:" in note for note in models.notes)


GOOD = kernel(SIGMOID, width=512)
"""A right kernel, in tiles that rules make wider."""


def answer(request: CompletionRequest) -> str:
    """Answer as the scripted model: a right kernel to one plan, a wrong one to the others."""
    if request.role == "planner":
        return (
            f"Title: Idea {request.tags['index']}\nClass: fusion\nInsights: none\n\nThe idea {request.tags['index']}."
        )
    text = GOOD if "The idea 1" in request.user else GOOD.replace("op=nl.sigmoid", "op=nl.tanh")
    return f"```python\n{text}```"


@pytest.fixture
async def evaluator(tmp_path: Path) -> AsyncIterator[SimulatedEvaluator]:
    found = SimulatedEvaluator(EvaluateConfig(slots=1, memory_gib=4.0), tmp_path)
    await found.start()
    yield found
    await found.stop(5.0)


@pytest.mark.slow
async def test_a_search_by_both_is_evaluated_for_real_and_replays(
    store: Store, evaluator: SimulatedEvaluator, tmp_path: Path
) -> None:
    silu = workload("silu", ())
    root = replace(baseline_kernel(silu, "nki_legacy"), text=SLOW)
    parameters = SearchParameters(beam_width=2, plans=3, attempts=1, iterations=1, patience=0)
    run = await store.change(create_run, RunSpec("silu", chip="trn2", search=parameters, proposer="both", root=root))
    client = ScriptedClient(answer)
    settings = ModelSettings("m", "scripted", base_url="http://127.0.0.1/v1", price=Price.of("0.15", "0.60"))
    calls = Calls({"m": (settings, client)}, ledger=StoreLedger(store), purse=Budget(daemon_usd=5.0))
    models = LLMProposer(calls, RoleTable.single("m"), PromptLibrary([prompts_folder()]), plans=3)
    trusted: set[bool] = set()

    async def time(asked: Kernel) -> TimedProgram | None:
        trusted.add(asked.trusted)
        found = await evaluator.evaluate(EvaluationRequest(asked, "silu", "trn2", gate=Gate.TIMING))
        return None if found.latency_us is None else TimedProgram(found.latency_us, found.program_sha256)

    parts = SearchParts(
        store, evaluator, BothProposer(models, RulesProposer()), problem_of(silu, "trn2", "nki_legacy"), root
    )
    await Search(run, replace(parts, polisher=TunedRules(time, limit=8))).run()

    record = await store.read(load_run, run.id)
    candidates, plans = await store.read(load_candidates, run.id), await store.read(load_plans, run.id)
    made = outcome(record, candidates, {plan.id: plan for plan in plans})
    assert made.baseline_latency_us is not None and made.best_latency_us is not None
    assert made.best_latency_us < made.baseline_latency_us and len(made.wins) == 2
    assert [bool(win.rule) for win in made.wins] == [False, True], "the model's step, then the rules'"
    by_id, rules = {one.id: one for one in candidates}, {plan.id: plan.rule for plan in plans}
    best = by_id[made.best or 0]
    assert best.evaluation is not None and best.evaluation.gate is Gate.STRICT
    assert not best.kernel.trusted and trusted == {False}, "a rule's change of a model's kernel is not ours"
    assert all(one.kernel.trusted for one in candidates if rules.get(one.plan or 0) and one.parent == made.baseline)
    assert all("Rewrite rules" in sent.user for sent in client.requests)
    assert await store.read(load_attempts, run.id, 1)
    with contextlib.closing(connect_reader(tmp_path / "acceld.db")) as connection:
        found, checked = differences(recording(connection, run.id))
    assert found == [] and (checked.beams, checked.plans) == (1, 1)
