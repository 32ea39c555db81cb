"""A scripted model that proposes known good, wrong, illegal and cheating edits, evaluated for real on NKIBench's SiLU.

Only the model's words are made up: prompts, extraction, ledger, jail, simulator, gates, fixer, memory and SQLite are real.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.config import EvaluateConfig
from acceld.daemon.build import problem_of
from acceld.daemon.ledger import StoreLedger
from acceld.evaluate.baselines import baseline_kernel
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.llm.calls import Calls
from acceld.llm.client import CompletionRequest
from acceld.llm.pricing import Price
from acceld.llm.settings import ModelSettings
from acceld.model import LEAST_STEP_PERCENT, InsightKind, RunSpec, RunState, SearchParameters, Status
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleTable
from acceld.resources import prompts_folder
from acceld.search.beam import is_selectable, latency_us, rank
from acceld.search.budget import Budget
from acceld.search.loop import Search, SearchParts
from acceld.search.memory import Applicability, MemorySettings
from acceld.search.teacher import MemoryTeacher
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from acceld.store.reads.records import load_candidate, load_candidates, load_insights, load_run, spent_usd
from acceld.workloads import workload
from tests.acceld.llm.scripted import ScriptedClient

KERNEL = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 32, 7168), dtype=nl.float32, buffer=nl.shared_hbm)
    p = nl.arange({partitions})[:, None]
    f = nl.arange({width})[None, :]
    for block in nl.affine_range(32):
        for tile in nl.affine_range(7168 // {width}):
            t = nl.load(x[p, block, {width} * tile + f])
            {body}
            nl.store(out[p, block, {width} * tile + f], value=y)
    return out
"""


def kernel(body: str, width: int = 1024, partitions: int = 128) -> str:
    return KERNEL.format(body="\n            ".join(body.split("; ")), width=width, partitions=partitions)


SIGMOID = "s = nisa.activation(op=nl.sigmoid, data=t); y = nl.multiply(t, s)"
SLOW = kernel(
    "e = nisa.activation(op=nl.exp, data=t, scale=-1.0); d = nl.add(e, 1.0); r = nl.reciprocal(d); "
    "s = nl.multiply(r, 1.0); y = nl.multiply(t, s)",
    width=512,
)
GOOD = kernel(SIGMOID, width=1792)
BEST = kernel(SIGMOID, width=512)
WRONG = kernel("s = nisa.activation(op=nl.sigmoid, data=t, scale=-1.0); y = nl.multiply(t, s)")
ILLEGAL = kernel(SIGMOID, partitions=256)
CHEATING = "import os\n" + GOOD

WRITTEN = {
    1: {"good": GOOD, "wrong": WRONG, "illegal": ILLEGAL, "cheat": CHEATING, "chatty": None},
    2: {"good": BEST, "wrong": WRONG, "illegal": ILLEGAL, "cheat": CHEATING, "chatty": None},
}
IDEAS = tuple(WRITTEN[1])


def answer(request: CompletionRequest) -> str:
    """Return the scripted model's answer."""
    iteration = int(request.tags["iteration"])
    if request.role == "planner":
        idea = IDEAS[int(request.tags["index"])]
        return f"Title: {idea} idea\nClass: fusion\nInsights: none\n\nThe {idea} idea of iteration {iteration}."
    if request.role == "summarizer":
        return "Title: Fewer passes\nStrategy: One call does what three did.\nSlow:\nexp, add, 1/x\nFast:\nsigmoid\n"
    if request.tags.get("reask"):
        return "I still have no code."
    idea = next(idea for idea in IDEAS if f"The {idea} idea" in request.user)
    if request.role == "fixer":
        assert idea != "illegal" or "partition_limit" in request.user
        return f"```python\n{GOOD if idea == 'illegal' else WRITTEN[iteration][idea]}```"
    text = WRITTEN[iteration][idea]
    return "Let me think about it." if text is None else f"<think>hm</think>\n```python\n{text}```"


@pytest.fixture
async def evaluator(tmp_path: Path) -> AsyncIterator[SimulatedEvaluator]:
    found = SimulatedEvaluator(EvaluateConfig(slots=1, memory_gib=4.0), tmp_path)
    await found.start()
    yield found
    await found.stop(5.0)


@pytest.mark.slow
async def test_good_edits_win_and_the_others_are_distinguished(store: Store, evaluator: SimulatedEvaluator) -> None:
    silu = workload("silu", ())
    root = replace(baseline_kernel(silu, "nki_legacy"), text=SLOW)
    parameters = SearchParameters(
        beam_width=2, plans=len(IDEAS), attempts=1, iterations=2, fixer_steps=1, memory="fifo", patience=0
    )
    run = await store.change(create_run, RunSpec("silu", search=parameters, proposer="llm", root=root))
    client, budget = ScriptedClient(answer), Budget(daemon_usd=5.0)
    settings = ModelSettings("m", "scripted", base_url="http://127.0.0.1/v1", price=Price.of("0.15", "0.60"))
    calls = Calls({"m": (settings, client)}, ledger=StoreLedger(store), purse=budget)
    proposer = LLMProposer(
        calls, RoleTable.single("m"), PromptLibrary([prompts_folder()]), plans=parameters.plans, fixer_steps=1
    )
    problem = problem_of(silu, "trn1", "nki_legacy")
    where = Applicability(run.id, "trn1", "nki_legacy", tags=problem.tags)
    teacher = MemoryTeacher(run.id, problem, MemorySettings("fifo"), store=store, proposer=proposer, where=where)
    search = Search(run, SearchParts(store, evaluator, proposer, problem, root, teacher))

    assert await search.run() is RunState.FINISHED

    record = await store.read(load_run, run.id)
    assert record.best is not None
    best = await store.read(load_candidate, record.best)
    assert best.evaluation is not None and best.evaluation.status is Status.PASSED

    candidates = await store.read(load_candidates, run.id)
    fastest = min((one for one in candidates if is_selectable(one)), key=rank)
    assert fastest.kernel.text == BEST
    assert latency_us(best) <= latency_us(fastest) * (1 + LEAST_STEP_PERCENT / 100)
    results = {c.kernel.text: c.evaluation.status for c in candidates if c.evaluation is not None}
    assert results[GOOD] is Status.PASSED
    assert results[WRONG] is Status.INCORRECT_NUMERICAL
    assert results[ILLEGAL] is Status.COMPILE_ERROR
    assert results[CHEATING] is Status.REJECTED

    roles = Counter(request.role for request in client.requests)
    assert roles["fixer"] > 0 and roles["summarizer"] > 0
    fixes = [request for request in client.requests if request.role == "fixer"]
    assert all("Its result: " in request.user for request in fixes)
    insights = await store.read(load_insights, run=run.id)
    assert insights and insights[-1].kind is InsightKind.POSITIVE and insights[-1].speedup > 1.2
    assert insights[-1].fast_candidate in {c.id for c in candidates if c.kernel.text == GOOD}
    later = [r for r in client.requests if r.role == "planner" and r.tags["iteration"] == 2]
    assert all("Fewer passes" in request.user for request in later)

    assert 0 < budget.spent_usd(run.id) == pytest.approx(await store.read(spent_usd, run.id), abs=1e-3)

    replayed = Calls(
        {"m": (replace(settings), ScriptedClient([]))}, ledger=StoreLedger(store), purse=Budget(daemon_usd=5.0)
    )
    for request in client.requests[:10]:
        assert (await replayed.complete(request)).text == answer(request)
