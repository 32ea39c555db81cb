"""Define the interface between the search and a proposer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from acceld.model import Abilities, Attempt, Candidate, Evaluation, Insight, Kernel, Plan
from acceld.roofline import Floor
from acceld.workloads.records import Precision

NO_PLAN = "straight from the kernel"
"""Title of the plans of a run without planner, which only say that the executor decides what to change."""


@dataclass(frozen=True, slots=True)
class ProblemArgument:
    """One argument of the kernels: an array with ``shape`` and ``dtype``, or a number with ``value``."""

    name: str
    shape: tuple[int, ...] | None = None
    """Shape of an array; None for a number."""
    dtype: str = ""
    value: float | int | bool | None = None
    """Value of a number; None for an array."""

    @property
    def text(self) -> str:
        """Return the argument as models read it, such as ``x: float32 (128, 512)`` or ``eps = 1e-06``."""
        return f"{self.name} = {self.value}" if self.shape is None else f"{self.name}: {self.dtype} {self.shape}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Facts about the optimized workload that a proposer may know."""

    workload: str
    description: str
    reference_source: str
    arguments: tuple[ProblemArgument, ...]
    chip: str
    api: str
    sdk: str = ""
    tags: tuple[str, ...] = ()
    tolerance: float | None = None
    dtype: str = ""
    """Dtypes of the arrays, such as ``float32`` or ``bfloat16+float32``."""
    precision: Precision = Precision.FP32_STRICT
    """Arithmetic on float32 values that the gate allows."""
    floor: Floor | None = None
    """Physical least times of the declared work on one core; None if they are not known."""


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """One step of a kernel's history: a plan that was carried out on the way from the baseline to the kernel."""

    title: str
    text: str
    speedup: float | None
    """Speed-up over the kernel before this step; None if it is not known."""
    rewrites: tuple[str, ...] = ()
    """Names of the rewrites that make up the step, if rules made the step; () for a plan of a model."""


@dataclass(frozen=True, slots=True)
class Partner:
    """The second parent of a crossover: a kernel whose gain a plan brings into the first parent."""

    candidate: Candidate
    steps: tuple[AppliedPlan, ...]
    """The steps that led to the partner from the last kernel that it shares with the parent, oldest first."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Request for plan number ``index`` (from 0) for one parent. Each request gives one plan."""

    problem: Problem
    run: int
    iteration: int
    parent: Candidate
    place: int
    """The parent's position in the beam, from 0."""
    index: int
    seed: int
    insights: tuple[Insight, ...] = ()
    playbook: tuple[str, ...] = ()
    """Rules for writing kernels, distilled from many insights or written by a person."""
    hints: tuple[str, ...] = ()
    """Hints of a person for the planner."""
    notes: tuple[str, ...] = ()
    """Notes of the search, for example that plans repeat."""
    earlier: tuple[Plan, ...] = ()
    """Plans for the same source from earlier iterations. The new plan must differ from these plans."""
    nearby: tuple[Plan, ...] = ()
    """Plans for the kernels that the parent was made from, without those that led to the parent."""
    wrong: frozenset[int] = frozenset()
    """Ids of plans whose kernels computed outputs beyond the tolerance."""
    outcomes: Mapping[int, str] = field(default_factory=dict)
    """Outcomes of ``earlier`` and ``nearby`` as text, by plan id."""
    lineage: tuple[AppliedPlan, ...] = ()
    """The steps from the baseline to the parent, oldest first."""
    below_us: float | None = None
    """Latency that a kernel must beat to enter the beam; None if any kernel can enter."""
    partner: Partner | None = None
    """Kernel whose gain the plan should bring into the parent (a crossover); None for a plan without partner."""

    def planned(self, text: str, **fields: Any) -> Plan:
        """Return the plan with this text that answers the request. ``fields`` are further fields of the plan."""
        return Plan(self.run, self.iteration, self.parent.id, self.index, text, **fields)

    @property
    def partner_id(self) -> int | None:
        """Return the id of the partner's candidate; None without partner."""
        return None if self.partner is None else self.partner.candidate.id


@dataclass(frozen=True, slots=True)
class AttemptRequest:
    """Request for attempt number ``index`` (from 0) at one plan."""

    problem: Problem
    plan: Plan
    parent: Candidate
    index: int
    seed: int
    partner: Candidate | None = None
    """The second parent, if the plan is a crossover; None otherwise."""


@dataclass(frozen=True, slots=True)
class FirstRequest:
    """Request for a first kernel, written from the reference alone. At ``step`` 1 and later, the request is to repair
    the kernel of the step before.
    """

    problem: Problem
    run: int
    blank: Kernel
    """A kernel without text, with the API, entry and file name that the new kernel must have."""
    index: int
    step: int
    seed: int
    earlier: tuple[tuple[str, Evaluation], ...] = ()
    """Texts and results of the earlier steps of this attempt."""


@dataclass(frozen=True, slots=True)
class FixRequest:
    """Request for a repair of a failed candidate."""

    problem: Problem
    plan: Plan
    parent: Candidate
    failed: Candidate
    evaluation: Evaluation
    step: int
    """Number of this repair, from 1 to the configured number of fixer steps."""
    earlier: tuple[tuple[str, Evaluation], ...] = ()
    """Texts and results of the fixer's earlier repairs of the same candidate."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class RewritePair:
    """A slow and a fast kernel. One of the two was made from the other. The summarizer draws an insight from such two
    kernels.
    """

    slow: Candidate
    fast: Candidate
    speedup: float
    positive: bool
    """True if the fast kernel was made from the slow one."""
    plan: Plan | None = None
    tie_percent: float | None = None
    """Uncertainty of the speed-up in percent, if the speed-up is less than the uncertainty. Then the insight is a
    hypothesis. It is None if the speed-up is certain.
    """


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Request to the summarizer for one insight from a pair of kernels."""

    problem: Problem
    run: int
    iteration: int
    rewrite: RewritePair
    seed: int = 0


@runtime_checkable
class Interruptible(Protocol):
    """Interface of a proposer that works for long between two answers, as a tuner does."""

    def end_when(self, is_over: Callable[[], bool]) -> None:
        """End the work as soon as ``is_over`` returns True."""
        ...


class Proposer(Protocol):
    """Interface of everything that plans, writes, repairs and summarizes.

    A class that inherits from this interface writes no first kernel, repairs nothing and finds no insight, unless it
    defines the method.

    A failure that is expected, such as a model that gives no answer, is a value: no plan, no code, None. BudgetError
    pauses the run. LLMError means that a call failed after it was retried and recorded. The search then loses one plan
    or one attempt. If the error is ``lasting``, the run pauses.
    """

    name: str
    abilities: Abilities

    async def first(self, request: FirstRequest) -> str | None:
        """Return the text of a first kernel; None if this proposer writes no first kernels, or if the model gave no
        code.
        """
        return None

    async def plan(self, request: PlanRequest) -> Plan | None:
        """Return a plan with id 0, because it is not stored yet; None if there is no further plan for the parent."""
        ...

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        """Return an attempt, with a kernel or with the reason why there is no code; None after the plan's last
        attempt.
        """
        ...

    async def fix(self, request: FixRequest) -> Attempt | None:
        """Return an attempt with a repaired kernel; None if this proposer does not repair."""
        return None

    async def summarize(self, request: SummaryRequest) -> Insight | None:
        """Return an insight; None if this proposer finds no insights, or if the model found no insight in this pair."""
        return None
