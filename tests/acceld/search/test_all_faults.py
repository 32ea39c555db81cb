"""A run under each of forty faults of a provider ends in the right state, with the right exit code and message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acceld.llm.retry import RetryPolicy
from acceld.llm.settings import Api, Deadlines
from acceld.model import MODELS_PREFIX, Run, RunState
from acceld.search.budget import Budget
from acceld.store.database import Store
from tests.acceld.llm.models import APIS
from tests.acceld.llm.server import FAULTS, STATUS_FAULTS, Reply, ScriptedServer
from tests.acceld.search.model_runs import PLAN, is_plan, new_run, search_on, written

FINISHED, PAUSED = RunState.FINISHED, RunState.PAUSED


@dataclass(frozen=True)
class End:
    """Expected end of a run, and the words of its message that name the fault."""

    state: RunState
    exit_code: int
    words: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    cap_usd: float | None = None


CREDENTIALS = ("quota", "credit_400", "unauthorized_401", "forbidden_403", "payment_402")
STATUSES = {
    kind: End(PAUSED, 4 if kind in CREDENTIALS else 1, message.partition(":")[0])
    for kind, (_, _, message) in STATUS_FAULTS.items()
}
"""A request that is answered with a status of its own: the message is the provider's, without the key in it."""
STREAMS = {
    "reset": End(PAUSED, 1, "onnection"),
    "hang_before_headers": End(PAUSED, 124, "first_token_s", {"deadlines": Deadlines(600, 0.2, 600, 600)}),
    "slow_first_token": End(PAUSED, 124, "first_token_s", {"deadlines": Deadlines(600, 0.2, 600, 600)}),
    "idle_stall": End(PAUSED, 124, "idle_s", {"deadlines": Deadlines(600, 600, 0.2, 600)}),
    "trickle": End(PAUSED, 124, "total_s", {"deadlines": Deadlines(600, 600, 600, 0.4)}),
    "drop_mid_stream": End(PAUSED, 1, "model 'm'"),
    "truncated_sse": End(PAUSED, 1, "in the middle of its answer"),
    "error_mid_stream": End(PAUSED, 1, "overloaded"),
    "credit_mid_stream": End(PAUSED, 4, "Insufficient credits"),
    "bad_json": End(PAUSED, 1, "its answer is not JSON"),
    "bad_utf8": End(PAUSED, 1, "its answer is not UTF-8"),
    "html_200": End(PAUSED, 1, "a web page came instead of an answer"),
    "empty_choices": End(PAUSED, 1, "model 'm'"),
    "empty_answer": End(PAUSED, 1, "empty answer"),
    "content_filter": End(PAUSED, 1, "withheld or declined"),
}
ANSWERS = {
    "declined": End(PAUSED, 1, "withheld or declined"),
    "all reasoning": End(PAUSED, 1, "all its tokens went into reasoning"),
    "no code": End(PAUSED, 1, "answers held a kernel"),
    "a header alone": End(PAUSED, 1, "the header of a plan, and no plan"),
    "no usage": End(FINISHED, 0, "iterations done"),
    "absurd usage": End(FINISHED, 0, "iterations done"),
    "in one piece": End(FINISHED, 0, "iterations done"),
    "no server": End(PAUSED, 1, "no connection to http://127.0.0.1:", {"base_url": "http://127.0.0.1:0/v1"}),
    "no price": End(PAUSED, 5, "input_usd_per_mtok", {"price": None}, 1.0),
    "no money": End(PAUSED, 5, "the next call could cost", {}, 0.0001),
}
"""Answers that arrive and are no use, or are of use although something is wrong with them."""
ENDS = {**STATUSES, **STREAMS, **ANSWERS}


def reply(fault: str, body: dict[str, Any], number: int) -> Reply:
    """Return the reply of a server with this fault."""
    good = PLAN if is_plan(body) else written(99.0 - number)
    match fault:
        case "declined":
            return Reply("I can not help with that.", declines=True)
        case "all reasoning":
            return Reply("", reasoning="hm " * 20, finish="length")
        case "no code":
            return Reply(PLAN if is_plan(body) else "I would load the tile once.")
        case "a header alone":
            return Reply("Title: Load once\nClass: dma" if is_plan(body) else good)
        case "no usage":
            return Reply(good, usage=False)
        case "absurd usage":
            return Reply(good, input_tokens=10**9, cached_tokens=10**10, output_tokens=-5)
        case "in one piece":
            return Reply(good, streams=False)
        case "no price" | "no money":
            return Reply(good)
    return Reply(good, kind=fault)


async def ended(store: Store, fault: str, api: Api) -> Run:
    """Return the record of a small run against a server with this fault."""
    run, end = await new_run(store, plans=3, iterations=2, patience=0), ENDS[fault]
    budget, server = Budget(), ScriptedServer()
    if end.cap_usd is not None:
        budget.open_run(run.id, end.cap_usd)
    server.answer = lambda body: reply(fault, body, len(server.seen))
    patient = Deadlines(600, 600, 600, 600)
    settings = {"deadlines": patient, "retry": RetryPolicy(max_tries=2, base_s=0.01), **end.settings}
    async with server:
        return await search_on(store, run, server, api, budget=budget, **settings)


async def test_a_run_under_each_of_forty_faults_ends_as_it_should(store: Store) -> None:
    assert set(FAULTS) < set(ENDS) and len(ENDS) >= 40
    cases = [(fault, APIS[number % len(APIS)]) for number, fault in enumerate(ENDS)]
    found = await asyncio.gather(*(ended(store, fault, api) for fault, api in cases))
    wrong = []
    for (fault, api), run in zip(cases, found, strict=True):
        end = ENDS[fault]
        fits = (run.state, run.exit_code) == (end.state, end.exit_code) and end.words in run.message
        is_named = run.state is not PAUSED or fault == "no money" or run.message.startswith(MODELS_PREFIX)
        if not fits or not is_named or "sk-test" in run.message:
            wrong.append(
                f"{fault} by {api}: {run.state}, exit {run.exit_code}, {run.message!r}; expected {end.words!r}"
            )
    assert not wrong, "\n".join(wrong)
