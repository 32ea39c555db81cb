"""Search with a scripted model until this process is killed: ``python -m tests.acceld.search.llm_victim FOLDER``.

Each answer of the model is written to FOLDER/paid before the search gets the answer, as on a provider's bill. If BATCH_URL is
set, every role uses the batch mode of that endpoint instead, and the endpoint's own record is the bill. If SPEND_URL is set,
calls go to that endpoint until the run has spent CAP_USD.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from dataclasses import replace
from pathlib import Path

from acceld.daemon.ledger import StoreJournal, StoreLedger
from acceld.evaluate.interface import EvaluationRequest
from acceld.llm.calls import Calls
from acceld.llm.client import Completion, CompletionRequest, LLMClient
from acceld.llm.ledger import question_key
from acceld.llm.model import connect, connect_batches
from acceld.llm.pricing import Price
from acceld.llm.retry import RetryPolicy
from acceld.llm.settings import Deadlines, ModelSettings
from acceld.model import Check, Correctness, Evaluation, Kernel, Profile, RunSpec, SearchParameters, Source, Status
from acceld.model_calls import Usage
from acceld.proposers.interface import Problem, ProblemArgument
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleTable
from acceld.resources import prompts_folder
from acceld.search.budget import Budget
from acceld.search.loop import Search, SearchParts
from acceld.store.changes.runs import create_run, recover_runs
from acceld.store.database import Store
from acceld.store.reads.records import load_runs, spent_usd

ROOT = Kernel("def kernel(x):\n    return 100.0\n", "nki_legacy", entry="kernel", filename="kernel.py")
PARAMETERS = SearchParameters(beam_width=2, plans=3, attempts=2, iterations=500, patience=0)


class Model:
    """Answers after a moment, and records a bill."""

    def __init__(self, bill: Path) -> None:
        self.bill = os.open(bill, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def complete(self, request: CompletionRequest) -> Completion:
        await asyncio.sleep(random.uniform(0.002, 0.02))
        key = question_key(request)
        os.write(self.bill, f"{key}\n".encode())
        if request.role == "planner":
            text = f"Title: {key[:8]}\nClass: dma\nInsights: none\n\nDo {key[:8]}."
        else:
            text = f"```python\ndef kernel(x):\n    return {80 + int(key[:8], 16) % 40}.{int(key[8:12], 16)}\n```"
        return Completion(text, "scripted", Usage(1000, 0, 0, 100))

    async def close(self) -> None:
        os.close(self.bill)


class SimulatedEvaluator:
    """Passes every kernel, with the latency in its text."""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        await asyncio.sleep(0.002)
        latency_us = float(request.kernel.text.rsplit(" ", 1)[1])
        return Evaluation(
            Status.PASSED,
            request.kernel.sha256,
            program_sha256=request.kernel.sha256,
            correctness=Correctness(request.gate, 1e-7, 2e-5, checks=(Check("own/seed 0", True),)),
            profile=Profile(Source.SIMULATED, "trn1", "nki_legacy", latency_us, "scripted"),
        )

    async def start(self) -> None:
        return

    async def stop(self, grace_s: float) -> None:
        return

    def statistics(self) -> dict[str, object]:
        return {}


async def search(folder: Path) -> None:
    """Continue the run in the folder, or start one."""
    store = await asyncio.to_thread(Store.open, folder / "acceld.db")
    await store.change(recover_runs, "killed")
    runs = await store.read(load_runs)
    run = (
        runs[0]
        if runs
        else await store.change(create_run, RunSpec("toy", search=PARAMETERS, proposer="llm", root=ROOT))
    )
    budget = Budget(daemon_usd=1000.0)
    settings = ModelSettings("m", "scripted", base_url="http://127.0.0.1/v1", price=Price.of("0.15", "0.60"))
    url, roles, batchers = os.environ.get("BATCH_URL", ""), RoleTable.single("m"), {}
    if url:
        served = replace(settings, base_url=url)
        batchers["m"] = connect_batches(served, StoreJournal(store), {}, quiet_s=0.02, poll_s=0.01)
        models = replace(roles.planner, batch=True)
        roles = RoleTable(models, models, models, models)
    paid: dict[str, tuple[ModelSettings, LLMClient]] = {"m": (settings, Model(folder / "paid"))}
    if endpoint := os.environ.get("SPEND_URL"):
        settings = replace(
            settings,
            base_url=endpoint,
            key_env="SPEND_KEY",
            price=Price.of("1", "10"),
            deadlines=Deadlines(2.0, 1.0, 1.0, 4.0),
            retry=RetryPolicy(base_s=0.01),
        )
        paid = {"m": (settings, connect(settings))}
        models = replace(roles.planner, max_output_tokens=2000)
        roles = RoleTable(models, models, models, models)
        spent = await store.read(spent_usd, run.id, settled=True)
        budget.open_run(run.id, float(os.environ["CAP_USD"]), spent)
    calls = Calls(paid, ledger=StoreLedger(store), purse=budget, batchers=batchers)
    proposer = LLMProposer(calls, roles, PromptLibrary([prompts_folder()]), plans=PARAMETERS.plans)
    problem = Problem(
        "toy", "a toy", "def forward(x): ...", (ProblemArgument("x", (4,), "float32"),), "trn1", "nki_legacy"
    )
    print("searching", flush=True)  # noqa: T201 - the test waits for this line
    await Search(run, SearchParts(store, SimulatedEvaluator(), proposer, problem, ROOT)).run()
    await store.close()


if __name__ == "__main__":
    asyncio.run(search(Path(sys.argv[1])))
