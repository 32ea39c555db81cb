"""Models that gain more per dollar are asked more often, and no model is dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from acceld.llm.client import Role
from acceld.model import Candidate
from acceld.proposers.llm.prompts import PromptLibrary
from acceld.proposers.llm.proposer import LLMProposer
from acceld.proposers.llm.roles import RoleModels, RoleTable
from acceld.resources import prompts_folder
from acceld.search.choice import LEAST_SHARE, Yield, shares, yields
from acceld.store.reads.records import PricedCall
from tests.acceld.llm.scripted import ScriptedClient
from tests.acceld.proposers.test_llm import PLAN_ANSWER, plan_request
from tests.acceld.search.test_lineage import candidate, plan


def child(number: int, of_plan: int, latency_us: float | None, attempt: int = 0, step: int = 0) -> Candidate:
    return replace(candidate(number, 1, of_plan, latency_us), order=(0, of_plan - 1, attempt, step))


CANDIDATES = [
    candidate(1, None, None, 100.0),
    child(2, 1, 50.0),
    child(3, 1, None, attempt=1),
    child(4, 1, 25.0, attempt=1, step=1),
    child(5, 2, 200.0),
]
PLANS = [plan(1, 1), replace(plan(2, 1), index=1)]


def call(role: str, model: str, cost_usd: float = 0.5, **tags: int) -> PricedCall:
    return PricedCall(role, model, cost_usd, {"iteration": 1, "parent": 1} | tags)


def test_an_answer_gains_what_its_kernel_does_and_a_plan_what_its_best_one_does() -> None:
    calls = [
        call("planner", "a", index=0),
        call("planner", "b", index=1),
        call("executor", "a", plan=1, attempt=0),
        call("executor", "b", plan=1, attempt=1),
        call("fixer", "a", plan=1, attempt=1, step=1),
        call("executor", "b", plan=2, attempt=0),
        call("planner", "b", index=0, iteration=2),
    ]

    def found(role: str) -> Mapping[str, Yield]:
        return yields(calls, PLANS, CANDIDATES, role, before=2)

    assert found("planner") == {"a": Yield(1, 0.5, 2.0), "b": Yield(1, 0.5, 0.0)}
    assert found("executor") == {"a": Yield(1, 0.5, 1.0), "b": Yield(2, 1.0, 0.0)}
    assert found("fixer") == {"a": Yield(1, 0.5, 2.0)}


def test_shares_follow_gain_for_each_dollar_within_bounds() -> None:
    even = {"a": 1.0, "b": 1.0}
    assert shares({"a": 3.0, "b": 1.0}, {}) == {"a": 0.75, "b": 0.25}, "nothing is known: the weights"
    cheap = shares(even, {"a": Yield(100, 1.0, 5.0), "b": Yield(100, 10.0, 5.0)})
    assert cheap["a"] > 0.8 and cheap["b"] > LEAST_SHARE / 2
    hopeless = shares(even, {"a": Yield(1000, 1.0, 50.0), "b": Yield(1000, 100.0, 0.0)})
    assert hopeless["b"] == pytest.approx(LEAST_SHARE, rel=0.1) and sum(hopeless.values()) == pytest.approx(1.0)
    few = shares(even, {"a": Yield(1, 0.01, 1.0), "b": Yield(1, 0.01, 0.0)})
    assert few["a"] < 0.6, "one answer says little"


async def test_a_role_that_draws_by_gain_asks_by_the_shares_of_the_iteration() -> None:
    client = ScriptedClient(lambda _: PLAN_ANSWER)
    models = RoleModels((("a", 1.0), ("b", 1.0)), by_gain=True)
    asked: list[tuple[str, int]] = []

    async def reported(role: Role, iteration: int) -> Mapping[str, float]:
        asked.append((role, iteration))
        return {"a": 0.9, "b": 0.1}

    roles = RoleTable(models, models, models, models)
    proposer = LLMProposer(client, roles, PromptLibrary([prompts_folder()]), plans=8, shares=reported)
    for number in range(100):
        await proposer.plan(plan_request(index=number, seed=number))
    drawn = Counter(request.model for request in client.requests)
    assert drawn["a"] > 80 and drawn["b"] > 2 and set(asked) == {("planner", 1)}


def test_a_crossover_that_is_no_faster_than_its_second_parent_has_gained_nothing() -> None:
    crossed = [PLANS[0], replace(PLANS[1], partner=4), replace(plan(3, 1), index=2, partner=2)]
    candidates = [*CANDIDATES[:4], child(5, 2, 30.0), child(6, 3, 25.0)]
    calls = [call("planner", "a", index=1), call("planner", "b", index=2)]
    found = yields(calls, crossed, candidates, "planner", before=2)
    assert (found["a"].gain, found["b"].gain) == (0.0, 1.0)
