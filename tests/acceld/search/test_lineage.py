"""The history that a planner sees."""

from __future__ import annotations

from dataclasses import replace

from acceld.model import Candidate, Correctness, Evaluation, Failure, Gate, Kernel, Plan, Profile, Source, Status
from acceld.proposers.interface import AppliedPlan
from acceld.search.lineage import lineage, outcomes, partner_of


def candidate(number: int, parent: int | None, plan: int | None, latency_us: float | None) -> Candidate:
    profile = None if latency_us is None else Profile(Source.SIMULATED, "trn1", "nki", latency_us, "test")
    status = Status.COMPILE_ERROR if latency_us is None else Status.PASSED
    failure = Failure("signature", "no such option") if latency_us is None else None
    right = None if latency_us is None else Correctness(Gate.SEARCH, 0.0, 2e-5)
    evaluation = Evaluation(status, "", correctness=right, profile=profile, failure=failure)
    return Candidate(1, 1, Kernel("", "nki"), parent, plan=plan, evaluation=evaluation, id=number)


def plan(number: int, parent: int) -> Plan:
    return Plan(1, 1, parent, 0, f"text {number}", title=f"plan {number}", id=number)


PLANS = {number: plan(number, parent) for number, parent in ((1, 1), (2, 2), (3, 2), (4, 2), (5, 2))}
CANDIDATES = {
    one.id: one
    for one in (
        candidate(1, None, None, 100.0),
        candidate(2, 1, 1, 80.0),
        candidate(3, 2, 2, 40.0),
        candidate(4, 2, 2, 50.0),
        candidate(5, 2, 3, None),
        candidate(6, 2, 4, 160.0),
    )
}


def test_what_came_of_each_plan_is_its_best_kernel_or_why_there_is_none() -> None:
    assert outcomes(PLANS.values(), CANDIDATES) == {
        1: "1.25 times as fast",
        2: "2.00 times as fast",
        3: "failed: compile_error (signature)",
        4: "slower: 0.50 times as fast",
        5: "it gave no kernel",
    }


def test_a_lineage_is_the_steps_from_the_baseline() -> None:
    found = lineage(CANDIDATES[3], PLANS, CANDIDATES)
    assert found == (AppliedPlan("plan 1", "text 1", 1.25), AppliedPlan("plan 2", "text 2", 2.0))
    assert lineage(CANDIDATES[1], PLANS, CANDIDATES) == ()
    unevaluated = replace(CANDIDATES[3], evaluation=None)
    assert lineage(unevaluated, PLANS, CANDIDATES)[-1].speedup is None


def test_a_partner_is_the_fastest_winner_of_another_line_with_the_steps_that_the_parent_lacks() -> None:
    parent, others = CANDIDATES[4], CANDIDATES.values()
    found = partner_of(parent, others, PLANS, CANDIDATES)
    assert found is not None and found.candidate.id == 3, (
        "2 is an ancestor, 5 has failed, 6 is slower than the baseline"
    )
    assert found.steps == (AppliedPlan("plan 2", "text 2", 2.0),), "the step from 1 to 2 is the parent's own"
    assert partner_of(parent, others, PLANS, CANDIDATES, crossed={3}) is None
    assert partner_of(CANDIDATES[2], others, PLANS, CANDIDATES) is None, "3 and 4 descend from it"
    assert partner_of(CANDIDATES[1], others, PLANS, CANDIDATES) is None, "a baseline has no other line"


def test_a_step_by_rules_names_its_rewrites() -> None:
    single = replace(
        PLANS[2], rule="widen_tiles", line=7, data={"variants": [{"name": "x2"}, {"name": "x4"}], "key": "t"}
    )
    tuned = replace(PLANS[2], rule="a+b", data={"steps": ["a 1, line 3", "b 2, line 9"]})
    child = replace(CANDIDATES[3], order=(0, 0, 1, 0))
    for own, rewrites in ((single, ("widen_tiles x4, line 7 (t)",)), (tuned, ("a 1, line 3", "b 2, line 9"))):
        found = partner_of(CANDIDATES[4], [child], PLANS | {2: own}, CANDIDATES | {3: child})
        assert found is not None and found.steps[-1].rewrites == rewrites
