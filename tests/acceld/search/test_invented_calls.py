"""Models that invent calls of NKI in a third of their answers win as often as those that do not, where a fixer is on; and
what an executor's tools find for the same money.

Only the model's words are made up; the simulator says what is wrong with an invented call, and the scripted model knows
nothing but what its prompt tells.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from acceld.config import EvaluateConfig, ToolsConfig
from acceld.daemon.build import problem_of
from acceld.daemon.ledger import StoreLedger
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.llm.calls import Calls
from acceld.llm.client import CompletionRequest
from acceld.llm.pricing import FREE, Price
from acceld.llm.settings import ModelSettings
from acceld.model import RunSpec, SearchParameters, Status
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleTable
from acceld.proposers.llm.tools import Workbench
from acceld.resources import prompts_folder
from acceld.search.ablation import Cost, variants
from acceld.search.budget import Budget
from acceld.search.loop import Search, SearchParts
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates, spent_usd
from acceld.workloads import load_workload
from tests.acceld.llm.scripted import ScriptedClient

FOLDER = Path(__file__).parents[2] / "adversarial" / "workloads" / "st_silu"
KERNEL = (FOLDER / "kernel_legacy.py").read_text()
BODY = KERNEL[KERNEL.index("        weight =") : KERNEL.index("        nl.store")]
STORE = "value=nl.multiply(tile, inverse)"
PLANS = 6

FASTER = "        weight = nisa.activation(op=nl.sigmoid, data=tile)\n"
"""One pass instead of three: the kernel of every plan that is carried out correctly."""
RIGHT = "nisa.activation(op=nl.sigmoid, data=tile)"
INVENTED = (
    "nisa.activate(op=nl.sigmoid, data=tile)",
    "nisa.activation(op=nl.sigmoid, data=tile, accumulate=False)",
    "nisa.activation(function=nl.sigmoid, data=tile)",
    "nl.sigmoids(tile)",
)


def written(line: str, spare: int) -> str:
    """Return the kernel with the new line. ``spare`` makes the source of each plan different."""
    text = KERNEL.replace(BODY, line).replace(STORE, "value=nl.multiply(tile, weight)")
    return text.replace('"""SiLU', f'"""Version {spare}. SiLU', 1)


def repaired(request: CompletionRequest) -> str:
    """Return the failing kernel, repaired by its failure's message: the nearest existing call, without unknown
    arguments.
    """
    failing = request.user.split("failing kernel\n", 1)[1].split("\n>>>", 1)[0]
    failing = re.split(r"\n[0-9a-f]{20}>>>", failing)[0]
    return corrected(failing, request.user.split("rule: ", 1)[1])


def corrected(failing: str, reported: str) -> str:
    """Return a kernel corrected by the failure in its prompt."""
    if reported.startswith("unknown_call"):
        wrong = re.search(r"message: neuronxcc\.nki\.(?:isa|language)\.(\w+) does not exist", reported)
        near = re.search(r"The nearest: (\w+)\(", reported)
        assert wrong and near, reported[:300]
        return failing.replace(f".{wrong[1]}(", f".{near[1]}(")
    assert reported.startswith("signature"), reported[:200]
    unknown = re.search(r"has no option '(\w+)'", reported)
    assert unknown and "its parameters are: op, data" in reported, reported[:300]
    if unknown[1] == "function":
        return failing.replace("function=", "op=")
    return re.sub(rf", {unknown[1]}=\w+", "", failing)


def answers(seed: int, share: int) -> ScriptedClient:
    """Return a model that invents a call in the given share of its kernels; in none if ``share`` is 0. Models with two
    seeds, one after the other, invent all of ``INVENTED``.
    """
    invented: dict[int, str] = {}

    def answer(request: CompletionRequest) -> str:
        if request.role == "planner":
            return f"Title: plan {request.tags['index']}\nClass: fusion\nInsights: none\n\nUse the sigmoid."
        if request.role == "fixer":
            return f"```python\n{repaired(request)}```"
        plan = int(request.tags["plan"])
        line = FASTER
        if share and (plan + seed) % share == 0:
            kind = INVENTED[(PLANS // share * seed + len(invented)) % len(INVENTED)]
            line = FASTER.replace(RIGHT, invented.setdefault(plan, kind))
        text = written(line, plan)
        if request.tags.get("turn") == 0:
            return f"Is it legal?\n```tool trace\n{text}```\n"
        if "turn" in request.tags:
            _, _, told = request.user.partition("trace answers:\n")
            text = text if told.startswith("legal") else corrected(text, told.split("rule: ", 1)[1])
        return f"```python\n{text}```"

    return ScriptedClient(answer)


@pytest.fixture
async def evaluator(tmp_path: Path) -> AsyncIterator[SimulatedEvaluator]:
    found = SimulatedEvaluator(EvaluateConfig(slots=1, memory_gib=4.0), tmp_path)
    await found.start()
    yield found
    await found.stop(5.0)


async def wins(store: Store, evaluator: SimulatedEvaluator, seed: int, share: int) -> list[bool]:
    """Return True if each plan of one iteration led to a faster kernel."""
    found = load_workload(FOLDER)
    root = baseline_kernel(found, "nki_legacy")
    parameters = SearchParameters(beam_width=1, plans=PLANS, attempts=1, iterations=1, fixer_steps=2, seed=seed)
    spec = RunSpec("st_silu", workload_folder=str(FOLDER), search=parameters, proposer="llm", root=root)
    run = await store.change(create_run, spec)
    settings = ModelSettings("m", "scripted", base_url="http://127.0.0.1/v1", price=FREE)
    calls = Calls({"m": (settings, answers(seed, share))}, ledger=StoreLedger(store), purse=Budget())
    proposer = LLMProposer(calls, RoleTable.single("m"), PromptLibrary([prompts_folder()]), plans=PLANS, fixer_steps=2)
    await Search(run, SearchParts(store, evaluator, proposer, problem_of(found, "trn1", "nki_legacy"), root)).run()
    made = await store.read(load_candidates, run.id)
    baseline = made[0].evaluation
    assert baseline is not None and baseline.latency_us is not None
    fast = {
        one.plan
        for one in made
        if one.evaluation is not None
        and one.evaluation.status in (Status.PASSED, Status.UNTESTED)
        and one.evaluation.latency_us is not None
        and one.evaluation.latency_us < baseline.latency_us
    }
    plans = sorted({one.plan for one in made if one.plan is not None})
    broken = {one.plan for one in made if one.evaluation and one.evaluation.status is Status.COMPILE_ERROR}
    assert len(broken) == (PLANS // share if share else 0), "so many answers invented a call"
    return [plan in fast for plan in plans]


@pytest.mark.parametrize("seeds", [(0, 1), pytest.param((2, 3, 4, 5), marks=pytest.mark.slow)])
async def test_inventing_calls_in_a_third_of_the_answers_costs_no_win(
    seeds: tuple[int, ...], store: Store, evaluator: SimulatedEvaluator
) -> None:
    honest, inventing = [], []
    for seed in seeds:
        honest += await wins(store, evaluator, seed, 0)
        inventing += await wins(store, evaluator, seed, 3)
    assert inventing == honest == [True] * (len(seeds) * PLANS)


@dataclass(frozen=True)
class Spending:
    """Outcome of a run at a cap in USD."""

    usd: float
    calls: int
    attempts: int
    """Attempts of which a kernel was written."""
    won: float
    """Attempts that led to a right kernel; those that were not evaluated before the money ended count as the others do."""


async def spending(store: Store, evaluator: SimulatedEvaluator, search: SearchParameters, share: int) -> Spending:
    """Run a variant of an ablation until its money is spent."""
    assert search.budget_usd is not None
    found, client = load_workload(FOLDER), answers(0, share)
    root = baseline_kernel(found, "nki_legacy")
    spec = RunSpec("st_silu", workload_folder=str(FOLDER), search=search, proposer="llm", root=root)
    run = await store.change(create_run, spec)
    settings = ModelSettings("m", "scripted", base_url="http://127.0.0.1/v1", price=Price.of(1, 4))
    purse = Budget()
    purse.open_run(run.id, search.budget_usd)
    calls = Calls({"m": (settings, client)}, ledger=StoreLedger(store), purse=purse)
    steps = search.fixer_steps
    proposer = LLMProposer(
        calls, RoleTable.single("m"), PromptLibrary([prompts_folder()]), plans=search.plans, fixer_steps=steps
    )
    if search.tools:
        bench = Workbench(evaluator.evaluate, workload="st_silu", folder=str(FOLDER), chip="trn1", run=run.id)
        proposer.equip(bench, ToolsConfig(), calls.price)
    await Search(run, SearchParts(store, evaluator, proposer, problem_of(found, "trn1", "nki_legacy"), root)).run()
    made = [one for one in await store.read(load_candidates, run.id) if one.parent is not None]
    right = {
        (one.plan, one.order[2])
        for one in made
        if one.evaluation and one.evaluation.status in (Status.PASSED, Status.UNTESTED)
    }
    attempts = {
        (one.plan, one.order[2]) for one in made if one.evaluation
    }  # when the money ends, some are not evaluated
    written = {(one.plan, one.order[2]) for one in made}
    won = len(right) * len(written) / len(attempts)  # those that were not evaluated count as the others do
    return Spending(await store.read(spent_usd, run.id), len(client.requests), len(written), won)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "order", "gain"),
    [
        (0, ["tools=on", "fixer=2"], 1.05),
        (3, ["base: tools=off fixer=0", "fixer=2", "tools=on"], 0.9),
        (1, ["base: tools=off fixer=0", "tools=on"], 1.05),
    ],
    ids=["never", "a third", "always"],
)
async def test_for_the_same_money_a_question_to_a_tool_pays_where_the_answer_is_often_wrong(
    store: Store, evaluator: SimulatedEvaluator, share: int, order: list[str], gain: float
) -> None:
    """A traced attempt pays where every answer is wrong, and costs about as much where a third is; ``order``: right kernels
    a USD, ascending; the last of them is at least ``gain`` times the first.

    Arms that differ by less than 10 % may change places, because the lengths of prompts decide between them.
    """
    base = SearchParameters(beam_width=1, plans=PLANS, attempts=1, tools=False)
    arms = variants(base, {"tools": (True,), "fixer": (2,)}, Cost(usd=0.35), repeats=1)
    found = {one.name: await spending(store, evaluator, one.searches[0], share) for one in arms}
    assert all(0.2 < one.usd <= 0.35 for one in found.values())
    a_usd = [found[name].won / found[name].usd for name in order]
    assert all(later > 0.9 * earlier for earlier, later in pairwise(a_usd)), a_usd
    assert a_usd[-1] > gain * a_usd[0]
    assert found["tools=on"].won == found["tools=on"].attempts
