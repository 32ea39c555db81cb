"""Define the interface between the search and a proposer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from acceld.model import Abilities, Attempt, Candidate, Evaluation, Insight, Kernel, Plan
from acceld.workloads.records import Precision

NO_PLAN = "straight from the kernel"
"""Title of the placeholder for a plan in a run without planner."""


@dataclass(frozen=True, slots=True)
class ProblemArgument:
    """One argument of the kernels: an array with ``shape`` and ``dtype``, or a number with ``value``."""

    name: str
    shape: tuple[int, ...] | None = None
    """None for a number."""
    dtype: str = ""
    value: float | int | bool | None = None
    """None for an array."""

    @property
    def text(self) -> str:
        """Return the argument as models read it, such as ``x: float32 (128, 512)`` or ``eps = 1e-06``."""
        return f"{self.name} = {self.value}" if self.shape is None else f"{self.name}: {self.dtype} {self.shape}"


@dataclass(frozen=True, slots=True)
class Problem:
    """The problem to optimize, as a proposer may see it."""

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
    """Arithmetic that the gate allows on float32 values."""


@dataclass(frozen=True, slots=True)
class Step:
    """A plan that led to a kernel."""

    title: str
    text: str
    speedup: float | None
    """Speed-up over the step before; None if unknown."""
    rewrites: tuple[str, ...] = ()
    """The rewrites by rules that it consists of; empty for a model's plan."""


@dataclass(frozen=True, slots=True)
class Partner:
    """The second parent of a crossover."""

    candidate: Candidate
    steps: tuple[Step, ...]
    """The steps from the last kernel that it shares with the parent, oldest first."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Request for plan number ``index`` for one parent: one call, one plan."""

    problem: Problem
    run: int
    iteration: int
    parent: Candidate
    place: int
    """The parent's place in the beam, from 0."""
    index: int
    seed: int
    insights: tuple[Insight, ...] = ()
    playbook: tuple[str, ...] = ()
    """Rules distilled from many insights, or a person's own."""
    hints: tuple[str, ...] = ()
    """Hints of a person for the planner."""
    notes: tuple[str, ...] = ()
    """Remarks of the search, such as plans that repeat."""
    earlier: tuple[Plan, ...] = ()
    """Plans for the same source from earlier iterations. A proposer continues after them."""
    nearby: tuple[Plan, ...] = ()
    """Plans for the kernels that the parent was made from, the one that led to the parent excepted."""
    outcomes: Mapping[int, str] = field(default_factory=dict)
    """Outcomes of the earlier plans as text, by plan id."""
    lineage: tuple[Step, ...] = ()
    """The steps from the baseline to the parent, oldest first."""
    below_us: float | None = None
    """Latency that a kernel must beat to enter the beam; None if any latency may."""
    partner: Partner | None = None
    """Kernel whose gain the plan should bring into the parent; None if the plan is to be no crossover."""


@dataclass(frozen=True, slots=True)
class AttemptRequest:
    """Request for attempt number ``index`` at one plan."""

    problem: Problem
    plan: Plan
    parent: Candidate
    index: int
    seed: int
    partner: Candidate | None = None
    """The plan's second parent, if it is a crossover."""


@dataclass(frozen=True, slots=True)
class FirstRequest:
    """Request for a first kernel from the reference alone; from step 1 on, for its repair."""

    problem: Problem
    run: int
    blank: Kernel
    """A kernel without text, with the API, entry and file name of the requested one."""
    index: int
    step: int
    seed: int
    earlier: tuple[tuple[str, Evaluation], ...] = ()
    """Earlier texts and results of this attempt."""


@dataclass(frozen=True, slots=True)
class FixRequest:
    """Request for a repair of a failed candidate."""

    problem: Problem
    plan: Plan
    parent: Candidate
    failed: Candidate
    evaluation: Evaluation
    step: int
    """Number of this repair, from 1 to fixer_steps."""
    earlier: tuple[tuple[str, Evaluation], ...] = ()
    """The fixer's own earlier tries, with text and result."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class RewritePair:
    """A slow and a fast kernel to distil an insight from."""

    slow: Candidate
    fast: Candidate
    speedup: float
    positive: bool
    """True if the child is the fast one."""
    plan: Plan | None = None
    tie_percent: float | None = None
    """Band inside which the speed-up lies, so that it teaches a hypothesis; None if the speed-up is certain."""


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Request for one insight."""

    problem: Problem
    run: int
    iteration: int
    rewrite: RewritePair
    seed: int = 0


class Proposer(Protocol):
    """Interface that fills the roles. Expected failures (such as a model without an answer) are values: no plan, no
    code, None. BudgetError pauses the run. An LLMError is a failed call, which was already retried and recorded by the
    layer below: it costs one plan or one attempt and, if it is ``lasting``, pauses the run.
    """

    name: str
    abilities: Abilities

    async def first(self, request: FirstRequest) -> str | None:
        """Return the text of a first kernel, or None if this proposer writes none or the model gave no code."""
        ...

    async def plan(self, request: PlanRequest) -> Plan | None:
        """Return the plan (id 0), or None if this proposer has no further one for the parent."""
        ...

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        """Return the attempt, or None if the plan has no further variant."""
        ...

    async def fix(self, request: FixRequest) -> Attempt | None:
        """Return a repaired kernel, or None if this proposer does not repair."""
        ...

    async def summarize(self, request: SummaryRequest) -> Insight | None:
        """Return an insight, or None if this proposer does not teach or the model had none."""
        ...
