"""Run a search whose models are behind a scripted server on loopback, by the real SDKs, with a real ledger and purse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from acceld.daemon.build import applicability, memory_settings
from acceld.daemon.ledger import StoreLedger
from acceld.llm.calls import Calls
from acceld.llm.pricing import Price
from acceld.llm.settings import Api
from acceld.model import Kernel, Run, RunSpec, SearchParameters
from acceld.proposers.interface import Problem
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleTable
from acceld.resources import prompts_folder
from acceld.search.budget import Budget
from acceld.search.loop import Search, SearchParts
from acceld.search.teacher import MemoryTeacher
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from acceld.store.reads.records import load_run
from tests.acceld.llm.models import model_for, settings_for
from tests.acceld.llm.server import ScriptedServer
from tests.acceld.search.conftest import ScriptedEvaluator

PLAN = "Title: Load once\nClass: dma\nInsights: none\n\nLoad the tile once, before the loop."


def kernel(latency_us: float, note: str = "") -> str:
    """Return a kernel in Python whose latency the scripted judge reads."""
    return f"# {latency_us} {note}\ndef kernel(x):\n    return x\n"


def written(latency_us: float, note: str = "") -> str:
    """Return an executor's answer with a kernel."""
    return f"```python\n{kernel(latency_us, note)}```"


def prompt_of(body: dict[str, Any]) -> str:
    """Return the user's text in a request of any of the three protocols."""
    if "input" in body:
        return str(body["input"])
    return str(body["messages"][-1]["content"])


def is_plan(body: dict[str, Any]) -> bool:
    """Return True if a request asks for a plan."""
    return "You are the planner" in prompt_of(body)


async def new_run(store: Store, **search: Any) -> Run:
    """Return a run whose proposer is ``llm``."""
    sizes = {"beam_width": 1, "plans": 2, "attempts": 1, "iterations": 10, "patience": 3, "fixer_steps": 0}
    parameters = SearchParameters(**{**sizes, "memory": "off", **search})
    return await store.change(create_run, RunSpec("toy", search=parameters, proposer="llm"))


async def search_on(
    store: Store,
    run: Run,
    server: ScriptedServer,
    api: Api = "chat",
    *,
    evaluator: ScriptedEvaluator | None = None,
    budget: Budget | None = None,
    **settings: Any,
) -> Run:
    """Run or continue the search with models of ``server``, and return the run's record."""
    told = replace(settings_for(server, api), **{"price": Price.of("1", "10"), **settings})
    model = model_for(server, api, **settings)
    calls = Calls({"m": (told, model)}, ledger=StoreLedger(store), purse=budget or Budget())
    plans = run.spec.search.plans
    proposer = LLMProposer(calls, RoleTable.single("m"), PromptLibrary([prompts_folder()]), plans=plans)
    problem = Problem("toy", "", "", (), run.spec.chip, run.spec.api)
    root = Kernel(kernel(100.0), "nki_legacy", entry="kernel")
    memory, teacher = memory_settings(run.spec.search), None
    if memory.policy != "off":
        where = applicability(run.id, run.spec, problem)
        teacher = MemoryTeacher(
            run.id, problem, memory, store=store, proposer=proposer, where=where, seed=run.spec.search.seed
        )
    search = Search(run, SearchParts(store, evaluator or ScriptedEvaluator(), proposer, problem, root, teacher=teacher))
    try:
        await search.run()
    finally:
        await calls.close()
    return await store.read(load_run, run.id)
