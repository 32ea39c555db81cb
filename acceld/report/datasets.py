"""Turn the history into training data: rows, their rewards, and their division into training and test sets.

Rewards follow AccelOpt's write-up. The rewards, lowest first: an empty answer, a kernel that does not compile, a wrong
kernel, and a right but slower kernel, which costs a little. A tie earns nothing, and a faster kernel earns the
logarithm of its speed-up.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acceld.gains import Gain, gain_of
from acceld.markup import fenced
from acceld.model import Attempt, Candidate, Kernel, Plan, Run, Status
from acceld.report.scrub import scrubbed
from acceld.store.reads.records import AnsweredCall

NO_CODE = -1.0
REWARDS: Mapping[Status, float] = {
    Status.COMPILE_ERROR: -0.8,
    Status.REJECTED: -0.8,
    Status.RUNTIME_ERROR: -0.7,
    Status.TIMEOUT: -0.7,
    Status.INCORRECT_SHAPE: -0.6,
    Status.INCORRECT_DTYPE: -0.6,
    Status.INCORRECT_NUMERICAL: -0.5,
}
"""Reward of a kernel that did not pass, by status. Statuses that say nothing about the kernel (unsupported, suspect,
untested) have no reward.
"""
LEAST, MOST = -0.2, 2.0
"""Least and greatest reward of a kernel that passes."""
MARGIN = 0.1
"""Least difference between the rewards of the preferred and the rejected answer of a pair: 7 percent of latency."""
NUMBERS = ("run", "candidate", "index")
"""Fields that identify a row, and are not part of its content."""
TEST_SHARE = 10
"""One of this many workloads belongs to the test split."""


@dataclass(frozen=True, slots=True)
class Material:
    """The records of one run from which exports are made."""

    run: Run
    candidates: Sequence[Candidate]
    plans: Mapping[int, Plan]
    attempts: Sequence[Attempt]
    reference: str
    """Text of the workload's numpy reference; empty if unknown."""
    calls: Sequence[AnsweredCall] = ()
    insights: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """Wins minus losses of the plans that cited an insight, by the insight's slow and fast candidate."""

    def by_id(self) -> dict[int, Candidate]:
        """Return the candidates by id."""
        return {candidate.id: candidate for candidate in self.candidates}


def reward(candidate: Candidate, parent: Candidate) -> float | None:
    """Return the reward of a candidate for what it changed in its parent's kernel.

    A passed candidate gets log2 of its speed-up over its parent, between ``LEAST`` and ``MOST``, and 0 for a tie. A
    failed one gets the negative number of its status in ``REWARDS``. The reward is None if the result says nothing about
    the kernel, or if the speed-up is unknown.
    """
    evaluation = candidate.evaluation
    if evaluation is None:
        return None
    return worth(evaluation.status, gain_of(candidate, parent))


def worth(status: Status, found: Gain | None) -> float | None:
    """Return the reward of a result. ``found`` is its gain over an earlier kernel. Return None if the result says
    nothing about the kernel.
    """
    if status is not Status.PASSED:
        return REWARDS.get(status)
    if found is None:
        return None
    return 0.0 if found.faster is None else max(LEAST, min(MOST, math.log2(found.ratio)))


def split(workload: str) -> str:
    """Return ``train`` or ``test`` for a workload. All rows of a workload get the same split, so that no kernel of a
    test workload is used for training.
    """
    return "test" if int(hashlib.sha256(workload.encode()).hexdigest(), 16) % TEST_SHARE == 0 else "train"


def three_way_split(key: str) -> str:
    """Return ``train``, ``validation`` or ``test`` for a key.

    ``test`` gets the same keys as in :func:`split`. ``validation`` gets as many keys as ``test``.
    """
    place = int(hashlib.sha256(key.encode()).hexdigest(), 16) % TEST_SHARE
    return {0: "test", 1: "validation"}.get(place, "train")


def prompt(material: Material, parent: Candidate, plan: Plan | None) -> str:
    """Return the prompt of one training example: the kernel, one line about its profile, and the plan."""
    evaluation = parent.evaluation
    profile = evaluation.profile if evaluation else None
    lines = [f"Make this kernel faster on {material.run.spec.chip}. Keep its signature and its results."]
    if profile and profile.latency_us:
        lines.append(f"It takes {profile.latency_us:.1f} us ({profile.source}); bound by {profile.bound or 'unknown'}.")
    if plan is not None:
        lines += ["", "Plan:", plan.text]
    return scrubbed("\n".join([*lines, "", _fenced(parent.kernel)]))


def answer(candidate: Candidate) -> str:
    """Return the answer that a model should give: the candidate's kernel as a code block."""
    return scrubbed(_fenced(candidate.kernel))


def _fenced(kernel: Kernel) -> str:
    return fenced(kernel.text, "c" if kernel.api == "c" else "python")


def edges(material: Material) -> Iterator[tuple[Candidate, Candidate, Plan | None, float]]:
    """Yield (parent, child, plan, reward) for every child that has a reward."""
    known = material.by_id()
    for child in material.candidates:
        parent = known.get(child.parent or 0)
        if parent is None:
            continue
        value = reward(child, parent)
        if value is not None:
            yield parent, child, material.plans.get(child.plan or 0), value


def pairs(material: Material) -> Iterator[dict[str, Any]]:
    """Yield a row with the slow and the fast kernel for each child that passed and is clearly faster than its parent."""
    for parent, child, plan, value in edges(material):
        if value <= 0 or parent.evaluation is None or child.evaluation is None:
            continue
        if parent.evaluation.latency_us is None or child.evaluation.latency_us is None:
            continue
        yield _about(material, child) | {
            "slow": scrubbed(parent.kernel.text),
            "fast": scrubbed(child.kernel.text),
            "slow_latency_us": parent.evaluation.latency_us,
            "fast_latency_us": child.evaluation.latency_us,
            "speedup": parent.evaluation.latency_us / child.evaluation.latency_us,
            "change": plan.title or plan.rule if plan else "",
            "change_class": plan.change_class if plan else "mixed",
        }


def numpy_nki(material: Material) -> Iterator[dict[str, Any]]:
    """Yield the numpy reference with the run's best kernel. If the first kernel was written from the reference, yield
    that pair too.
    """
    known = material.by_id()
    first = material.run.baseline if material.run.spec.search.from_reference else None
    for kind, number in (("first", first), ("best", material.run.best)):
        candidate = known.get(number or 0)
        if candidate is None or not material.reference or (kind == "best" and number == first):
            continue
        passed = candidate.evaluation is not None and candidate.evaluation.status is Status.PASSED
        if passed:
            pair = {"kernel": kind, "numpy": scrubbed(material.reference), "nki": scrubbed(candidate.kernel.text)}
            yield _about(material, candidate) | pair


def trl_sft(material: Material) -> Iterator[dict[str, Any]]:
    """Yield a conversation for each answer whose kernel is right and faster than the parent's kernel."""
    for parent, child, plan, value in edges(material):
        if value > 0:
            yield {
                "messages": [
                    {"role": "user", "content": prompt(material, parent, plan)},
                    {"role": "assistant", "content": answer(child)},
                ]
            }


def trl_dpo(material: Material) -> Iterator[dict[str, Any]]:
    """Yield pairs of answers to the same prompt: one whose kernel is clearly faster, and one whose kernel is slower or
    failed. Each answer is used once.

    Answers to one plan share a prompt that shows the plan. A parent's further answers belong to different plans, so
    their prompt shows no plan.
    """
    parents = material.by_id()
    by_plan: dict[tuple[int, int], list[tuple[Candidate, float]]] = {}
    for parent, child, plan, value in edges(material):
        by_plan.setdefault((parent.id, plan.id if plan else 0), []).append((child, value))
    left: dict[int, list[tuple[Candidate, float]]] = {}
    for (number, plan_id), family in by_plan.items():
        for better, worse in _preferred(family):
            yield _preference(material, parents[number], material.plans.get(plan_id), better, worse)
            family = [entry for entry in family if entry[0] not in (better, worse)]
        left.setdefault(number, []).extend(family)
    for number, family in left.items():
        for better, worse in _preferred(family):
            yield _preference(material, parents[number], None, better, worse)


def _preferred(family: Sequence[tuple[Candidate, float]]) -> list[tuple[Candidate, Candidate]]:
    """Return (better, worse) pairs: best and worst, second best and second worst, and so on, as long as the two
    clearly differ.
    """
    ordered = sorted(family, key=lambda entry: (-entry[1], entry[0].id))
    half = len(ordered) // 2
    return [
        (better, worse)
        for (better, value), (worse, least) in zip(ordered[:half], reversed(ordered), strict=False)
        if value > 0 and value - least >= MARGIN
    ]


def _preference(
    material: Material, parent: Candidate, plan: Plan | None, better: Candidate, worse: Candidate
) -> dict[str, Any]:
    return {"prompt": prompt(material, parent, plan), "chosen": answer(better), "rejected": answer(worse)}


def roles(material: Material) -> Iterator[dict[str, Any]]:
    """Yield a row for every answered call of every role: system and user text, reasoning, answer, reward.

    Keys, tokens and home folders are removed from the texts. The reward of an executor's or fixer's answer is that of
    its kernel. A planner's reward is that of the best kernel of its plan. A summarizer's reward is the number of wins
    minus the number of losses of its insight. None means that the reward is not known.
    """
    of_attempt: dict[int, float] = {}
    of_plan: dict[int, float] = {}
    for _, child, plan, earned in edges(material):
        if child.attempt is not None:
            of_attempt[child.attempt] = earned
        if plan is not None:
            of_plan[plan.id] = max(earned, of_plan.get(plan.id, earned))
    places = {(plan.iteration, plan.parent, plan.index): plan.id for plan in material.plans.values()}
    versions: dict[tuple[int, int], list[Attempt]] = {}
    for attempt in sorted(material.attempts, key=lambda one: one.id):
        versions.setdefault((attempt.plan, attempt.index), []).append(attempt)
    for call in material.calls:
        tags = call.tags
        value: float | None = None
        if call.role == "planner":
            place = (tags.get("iteration", 0), tags.get("parent", 0), tags.get("index", 0))
            value = of_plan.get(places.get(place, 0))
        elif call.role in ("executor", "fixer"):
            made = versions.get((tags.get("plan", 0), tags.get("attempt", 0)), [])[tags.get("step", 0) :]
            if made:
                value = NO_CODE if made[0].text is None else of_attempt.get(made[0].id)
        else:
            value = material.insights.get((tags.get("slow", 0), tags.get("fast", 0)))
        yield {
            "run": material.run.id,
            "workload": material.run.spec.workload,
            "role": call.role,
            "model": call.model,
            "messages": [
                *([{"role": "system", "content": scrubbed(call.system)}] if call.system else []),
                {"role": "user", "content": scrubbed(call.user)},
                {"role": "assistant", "content": scrubbed(call.answer)},
            ],
            "reasoning": scrubbed(call.reasoning),
            "reward": None if value is None else round(value, 4),
        }


def distinct(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each row once. Two rows are the same if they differ only in the fields in :data:`NUMBERS`."""
    seen: set[str] = set()
    for row in rows:
        extra = {name: value for name, value in row.get("extra_info", {}).items() if name not in NUMBERS}
        text = json.dumps({name: value for name, value in row.items() if name not in NUMBERS} | {"extra_info": extra})
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest not in seen:
            seen.add(digest)
            yield row


def verl(material: Material) -> Iterator[dict[str, Any]]:
    """Yield prompts for training with a reward function. ``extra_info`` has the reward of the answer in the history."""
    for place, (parent, child, plan, value) in enumerate(edges(material)):
        workload = material.run.spec.workload
        yield {
            "data_source": f"acceld/{workload}",
            "prompt": [{"role": "user", "content": prompt(material, parent, plan)}],
            "ability": "kernel_optimization",
            "reward_model": {"style": "rule", "ground_truth": scrubbed(material.reference)},
            "extra_info": {
                "index": place,
                "split": split(workload),
                "run": material.run.id,
                "candidate": child.id,
                "reward": round(value, 4),
                "answer": answer(child),
            },
        }


def jsonl(material: Material) -> Iterator[dict[str, Any]]:
    """Yield every candidate, and every attempt without code, with its result."""
    known = material.by_id()
    for candidate in material.candidates:
        evaluation, parent = candidate.evaluation, known.get(candidate.parent or 0)
        failure = evaluation.failure if evaluation else None
        yield _about(material, candidate) | {
            "parent": candidate.parent,
            "iteration": candidate.iteration,
            "text": scrubbed(candidate.kernel.text),
            "status": evaluation.status.value if evaluation else None,
            "latency_us": evaluation.latency_us if evaluation else None,
            "failure": scrubbed(failure.message) if failure else None,
            "reward": reward(candidate, parent) if parent else None,
        }
    for attempt in material.attempts:
        if attempt.text is None:
            yield {"run": material.run.id, "plan": attempt.plan, "status": "no_code", "reward": NO_CODE}


def _about(material: Material, candidate: Candidate) -> dict[str, Any]:
    profile = candidate.evaluation.profile if candidate.evaluation else None
    spec = material.run.spec
    return {
        "run": material.run.id,
        "candidate": candidate.id,
        "workload": spec.workload,
        "chip": spec.chip,
        "api": spec.api,
        "source": profile.source.value if profile else None,
        "proposer": spec.proposer,
    }


ROWS = {
    "roles": roles,
    "pairs": pairs,
    "numpy-nki": numpy_nki,
    "trl-sft": trl_sft,
    "trl-dpo": trl_dpo,
    "verl": verl,
    "jsonl": jsonl,
}
"""Functions that turn the records of a run into rows, by the name of the export format."""
