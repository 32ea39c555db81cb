"""Fixtures of the search: a real store, an evaluator that reads the latency from the kernel's text, and a proposer with
a list of ideas.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from acceld.errors import BudgetError
from acceld.evaluate.interface import EvaluationRequest
from acceld.model import (
    PROPOSERS,
    UNKNOWN_BASIS,
    Attempt,
    Basis,
    Check,
    Correctness,
    Evaluation,
    Failure,
    Gate,
    Insight,
    Kernel,
    Plan,
    Profile,
    Run,
    RunSpec,
    SearchParameters,
    Source,
    Status,
)
from acceld.proposers.interface import AttemptRequest, FirstRequest, FixRequest, PlanRequest, Problem, SummaryRequest
from acceld.search.control import RunControl
from acceld.search.loop import Search, SearchParts
from acceld.store.changes.runs import create_run
from acceld.store.database import Store


def kernel_text(latency_us: float, note: str = "") -> str:
    """Return a kernel whose latency the scripted judge can read."""
    return f"latency {latency_us}\n{note}\n"


class ScriptedEvaluator:
    """Reads status and latency from the text, after a random delay; counts its evaluations."""

    def __init__(self, seed: int = 0, delay_s: float = 0.0, model: str = "") -> None:
        self.rng = random.Random(seed)
        self.delay_s = delay_s
        self.model = model
        self.done: Counter[str] = Counter()

    async def start(self) -> None: ...

    async def stop(self, grace_s: float) -> None: ...

    def statistics(self) -> dict[str, object]:
        return {}

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        await asyncio.sleep(self.rng.random() * self.delay_s)
        self.done[request.key] += 1
        text = request.kernel.text
        latency = float(text.split()[1])
        profile = Profile(
            Source.SIMULATED, request.chip, "nki_legacy", latency, "scripted", self.model, interval_percent=15.0
        )
        sha = request.kernel.sha256
        if "illegal" in text:
            failure = Failure("partition_limit", "too many partitions", 3)
            return Evaluation(Status.COMPILE_ERROR, sha, failure=failure)
        if request.gate is Gate.TIMING:
            return Evaluation(Status.UNTESTED, sha, program_sha256=sha, profile=profile)
        if "wrong" in text or ("shaky" in text and request.gate is Gate.STRICT):
            return Evaluation(Status.INCORRECT_NUMERICAL, sha, program_sha256=sha, failure=Failure("tolerance", "off"))
        correctness = Correctness(request.gate, 1e-7, 1e-5, checks=(Check("own", True),))
        return Evaluation(Status.PASSED, sha, program_sha256=sha, profile=profile, correctness=correctness)


class BreaksDown(ScriptedEvaluator):
    """Ends the search at one evaluation, as Ctrl-C would."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        if self.done.total() == self.at:
            raise KeyboardInterrupt
        return await super().evaluate(request)


class ListedProposer:
    """Writes kernels with ``factors[i]`` times their parent's latency for plan i; every attempt adds its number as a
    note.
    """

    mends = False

    def __init__(
        self, factors: list[float], notes: list[str] | None = None, *, name: str = "rules", plans_left: int = 10**9
    ) -> None:
        self.factors = factors
        self.notes = notes or [""] * len(factors)
        self.name = name
        self.abilities = replace(PROPOSERS[name], repairs=self.mends, teaches=False)
        self.plans_left = plans_left

    async def first(self, request: FirstRequest) -> str | None:
        return None

    async def plan(self, request: PlanRequest) -> Plan | None:
        if self.plans_left <= 0:
            raise BudgetError("the cap of $1.00 is reached")
        self.plans_left -= 1
        index = request.index + len(request.earlier)
        if index >= len(self.factors):
            return None
        return Plan(
            request.run, request.iteration, request.parent.id, request.index, f"idea {index}", data={"idea": index}
        )

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        idea = request.plan.data["idea"]
        latency = float(request.parent.kernel.text.split()[1]) * self.factors[idea]
        note = f"{self.notes[idea]} attempt {request.index}"
        return Attempt(request.plan.id, request.index, kernel_text(round(latency, 6), note))

    async def fix(self, request: FixRequest) -> Attempt | None:
        return None

    async def summarize(self, request: SummaryRequest) -> Insight | None:
        return None


class RepairingProposer(ListedProposer):
    """Needs two steps of its fixer to remove the word ``illegal``."""

    mends = True

    async def fix(self, request: FixRequest) -> Attempt | None:
        text = request.failed.kernel.text
        fixed = text.replace("illegal", "legal") if request.step == 2 else text + "# tried\n"
        return Attempt(request.plan.id, request.failed.order[2], fixed)


@pytest.fixture
async def store(tmp_path: Path, empty_database: Path) -> AsyncIterator[Store]:
    """Yield an open store."""
    database = tmp_path / "acceld.db"
    await asyncio.to_thread(shutil.copy, empty_database, database)
    opened = await asyncio.to_thread(Store.open, database)
    yield opened
    await opened.close()


SearchMaker = Callable[..., Search]


@pytest.fixture
def search_for(store: Store) -> SearchMaker:
    """Return a function that makes a search over ``store``."""

    def make(
        run: Run,
        evaluator: ScriptedEvaluator,
        proposer: ListedProposer,
        control: RunControl | None = None,
        basis: Basis = UNKNOWN_BASIS,
    ) -> Search:
        problem = Problem("toy", "", "", (), run.spec.chip, run.spec.api)
        root = Kernel(kernel_text(100.0), "nki_legacy")
        parts = SearchParts(store, evaluator, proposer, problem, root, context=basis.model, basis=basis)
        return Search(run, parts, control)

    return make


async def new_run(store: Store, **search: object) -> Run:
    """Return a run in the store with these search parameters."""
    parameters = SearchParameters(**{"beam_width": 2, "plans": 3, "attempts": 2, "iterations": 3, **search})  # type: ignore[arg-type]  # by name
    return await store.change(create_run, RunSpec("toy", search=parameters))
