"""``acceld optimize --show-prompts``: show the prompts that a run would send to each model; nothing is sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from acceld.cli.output import print_json, say
from acceld.config import Config, ModelConfig, settings_file
from acceld.errors import UsageError
from acceld.home import Home
from acceld.llm.client import Completion, CompletionRequest
from acceld.llm.errors import LLMBadRequest, LLMError
from acceld.llm.settings import PROVIDERS, ModelSettings
from acceld.model import PROPOSERS, Candidate, Evaluation, Failure, Gate, Insight, Kernel, Plan, RunSpec, Status
from acceld.proposers.interface import (
    AttemptRequest,
    FirstRequest,
    FixRequest,
    PlanRequest,
    Proposer,
    RewritePair,
    SummaryRequest,
)
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.roles import RoleTable
from acceld.resources import prompts_folder
from acceld.search.memory import Applicability, MemorySettings
from acceld.search.strategies import derived_seed
from acceld.targets import SIMULATOR
from acceld.workloads import BASELINE_FILES, Workload, load_workload

T = TypeVar("T")

UNNAMED = "no model"
"""Name of the model in the place of models that the settings do not name."""

PLAN = "(the planner's answer to the prompt above stands here)"
CODE = "(the executor's answer to the prompt above stands here)\n"
FAILURE = "(the evaluation of that answer is here)"


class Unsent:
    """Model client that stores each request and sends nothing."""

    def __init__(self) -> None:
        self.requests: list[CompletionRequest] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        """Store the request, and return an empty answer."""
        self.requests.append(request)
        raise LLMBadRequest("the request is only shown, not sent")

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def show_prompts(spec: RunSpec, settings: Config, home: Home, *, as_json: bool) -> int:
    """Print the first prompt of each role. Raise UsageError if the run's proposer sends no prompts."""
    if not PROPOSERS[spec.proposer].asks_models:
        raise UsageError(
            f"the proposer {spec.proposer} sends no prompts to models, so there are none to show",
            hint="--proposer llm shows what models would get",
        )
    found = load_workload(spec.workload_folder)
    unnamed = not settings.llm.planner.models and not settings.llm.executor.models
    if unnamed:
        settings = _with_a_model(settings)
    requests = asyncio.run(requests_of(spec, settings, home, found))
    lines = [_line(request, settings) for request in requests]
    if as_json:
        print_json({"workload": spec.workload, "prompts": lines})
        return 0
    for line in lines:
        where = "no model yet" if unnamed else f"{line['model']} at {line['endpoint']}"
        print(f"==== {line['role']} -> {where}, at most {line['max_output_tokens']} tokens")
        print(f"---- system\n{line['system']}\n---- user\n{line['user']}\n")
    if unnamed:
        say(f"{settings_file()} names no model yet: a run needs models for the planner and the executor.")
    say("Nothing was sent. A run sends prompts of these forms, and nothing else: the reference, the kernels, profiles,")
    say("results and logs of its candidates, insights, hints; each model's key goes to that model's endpoint alone.")
    return 0


def _with_a_model(settings: Config) -> Config:
    """Return the settings with a model for the planner and the executor, so that prompts can be shown before a model is
    named.
    """
    llm = settings.llm
    planner, executor = (replace(role, models=(UNNAMED,)) for role in (llm.planner, llm.executor))
    models = {**settings.models, UNNAMED: ModelConfig()}
    return replace(settings, models=models, llm=replace(llm, planner=planner, executor=executor))


async def requests_of(
    spec: RunSpec, settings: Config, home: Home, found: Workload, gate: Gate = Gate.SEARCH
) -> list[CompletionRequest]:
    """Return the first request of each role as the run's proposer would send it. Nothing is sent.

    ``gate`` is the gate by which the baseline is evaluated. Prompts state the baseline's errors only if that
    gate runs the kernel on data.
    """
    from acceld.daemon.build import Callbacks, applicability, both_proposer, memory_settings, model_proposer, problem_of
    from acceld.evaluate.baselines import baseline_kernel

    roles, client = RoleTable.from_config(settings), Unsent()
    library = PromptLibrary([*map(Path, settings.paths.prompts), prompts_folder()])
    search = spec.search
    models = model_proposer(client, roles, library, found, search, home)
    proposer: Proposer = both_proposer(models, spec, Callbacks(_untimed)) if spec.proposer == "both" else models
    problem = problem_of(found, spec.chip, spec.api)
    if search.from_reference:
        blank = Kernel("", spec.api, found.entry or "kernel", found.grid, found.lnc, BASELINE_FILES[spec.api])
        await _unsent(proposer.first(FirstRequest(problem, 1, blank, 0, 0, derived_seed(search.seed, 0, 0, 0))))
    root = Kernel(CODE, spec.api) if search.from_reference else spec.root or baseline_kernel(found, spec.api)
    evaluation = None if search.from_reference else await _result(root, spec, settings, home, gate)
    parent = Candidate(1, 0, root, None, evaluation=evaluation, id=1)
    insights, playbook = _memory(parent, memory_settings(search), applicability(0, spec, problem), spec, home)
    index = int(spec.proposer == "both")  # rules make a parent's first plan
    seed = derived_seed(search.seed, 1, 0, index)
    request = PlanRequest(problem, 1, 1, parent, 0, index, seed, insights, playbook)
    plan = await _unsent(proposer.plan(request)) or Plan(1, 1, 1, index, PLAN)
    attempt = AttemptRequest(problem, plan, parent, 0, derived_seed(search.seed, 1, 0, index, 0))
    await _unsent(proposer.attempt(attempt))
    failed = Evaluation(Status.COMPILE_ERROR, "", failure=Failure("rule", FAILURE))
    child = Candidate(1, 1, Kernel(CODE, spec.api), 1, evaluation=failed, id=2)
    if search.fixer_steps:
        await _unsent(proposer.fix(FixRequest(problem, plan, parent, child, failed, 1)))
    if search.memory not in ("off", ""):
        await _unsent(proposer.summarize(SummaryRequest(problem, 1, 1, RewritePair(parent, child, 1.0, True))))
    return client.requests


async def _untimed(kernel: Kernel) -> None:
    """Return None in place of a latency. A run times dozens of kernels for each parent, which takes too long
    for showing a prompt.
    """


async def _unsent(asked: Awaitable[T | None]) -> T | None:
    """Return the proposer's answer; None if the proposer asked a model, since that request was not sent."""
    try:
        return await asked
    except LLMError:
        return None


async def _result(kernel: Kernel, spec: RunSpec, settings: Config, home: Home, gate: Gate) -> Evaluation | None:
    """Return the baseline's simulated evaluation; None if the run's backend measures, because nothing is
    measured here.
    """
    if spec.backend != SIMULATOR:
        return None
    from acceld.evaluate.interface import EvaluationRequest, Priority, started
    from acceld.evaluate.simulated.evaluator import SimulatedEvaluator

    request = EvaluationRequest(
        kernel=kernel,
        workload=spec.workload,
        workload_folder=spec.workload_folder,
        chip=spec.chip,
        gate=gate,
        priority=Priority.PERSON,
    )
    async with started(SimulatedEvaluator(settings.evaluate, home.prepare())) as evaluator:
        return await evaluator.evaluate(request)


def _memory(
    parent: Candidate, memory: MemorySettings, where: Applicability, spec: RunSpec, home: Home
) -> tuple[tuple[Insight, ...], tuple[str, ...]]:
    """Return the insights and the playbook that the first iteration's planner would be shown."""
    from acceld.search.teacher import insights_for, playbook_for, written_playbook
    from acceld.store.connection import connect_reader
    from acceld.store.reads.records import load_insights

    if memory.policy in ("off", "") or not home.database.is_file():
        return (), ()
    with contextlib.closing(connect_reader(home.database)) as connection:
        known = load_insights(connection)
    rules = playbook_for(written_playbook(home.playbook), known, where, memory)
    return insights_for([parent], known, where, memory, 1, spec.search.seed), rules


def _line(request: CompletionRequest, settings: Config) -> dict[str, Any]:
    model = ModelSettings.from_config(request.model, settings.models[request.model], settings.llm)
    endpoint = model.base_url or f"{model.provider}'s own endpoint"
    known = PROVIDERS.get(model.provider)
    usual = known.key_variable if known and (known.own_places or not model.base_url) else ""
    variable = model.key_env or usual
    if request.model == UNNAMED:
        endpoint = variable = ""
    return {
        "role": request.role,
        "model": request.model,
        "name": "" if request.model == UNNAMED else model.model,
        "endpoint": endpoint,
        "key_variable": variable,
        "max_output_tokens": request.max_output_tokens,
        "temperature": request.temperature,
        "system": request.system,
        "user": request.user,
    }
