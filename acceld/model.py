"""Define acceld's records, all frozen. Standard library only; every other part imports these.

Names contain units (``latency_us``, ``cost_usd``); ``percent_*`` are 0-100. Row ids are positive integers; a record
that is not stored yet has id 0. In texts for people ids carry a letter: run r12, candidate c345, insight i38,
evaluation e901.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

from acceld.statuses import Failure as Failure  # noqa: PLC0414  # others import it from here
from acceld.statuses import Status as Status  # noqa: PLC0414  # others import it from here

FAILED = frozenset(Status) - {Status.PASSED, Status.UNTESTED, Status.UNCHECKED, Status.SUSPECT}
"""Statuses of an evaluation that states a failure. Such an evaluation may lack a profile."""

FLASHINFER_STATUS: Mapping[Status, str] = MappingProxyType(
    {
        Status.PASSED: "PASSED",
        Status.UNSUPPORTED: "COMPILE_ERROR",
        Status.COMPILE_ERROR: "COMPILE_ERROR",
        Status.RUNTIME_ERROR: "RUNTIME_ERROR",
        Status.INCORRECT_SHAPE: "INCORRECT_SHAPE",
        Status.INCORRECT_DTYPE: "INCORRECT_DTYPE",
        Status.INCORRECT_NUMERICAL: "INCORRECT_NUMERICAL",
        Status.REJECTED: "RUNTIME_ERROR",
        Status.SUSPECT: "INCORRECT_NUMERICAL",
        Status.TIMEOUT: "TIMEOUT",
        Status.UNTESTED: "RUNTIME_ERROR",
        Status.UNCHECKED: "RUNTIME_ERROR",
    }
)
"""The name of each status in flashinfer-bench."""

SIMULATED_TIE_PERCENT = 34.0
"""Greatest percent by which a ratio of two predictions may be off; a ratio nearer to one is a tie. The model was tested
on measured pairs that it was not fitted to: of 92 pairs that it predicts further apart, 89 were measured in the
predicted order (97 %). Kernels that have much in common have a lower percentage (:data:`acceld.gains.SIMULATED_BANDS`).
"""

SIMULATED_LESS_WORK_PERCENT = 17.0
"""Greatest percent by which the ratio of two predictions may be off if the faster kernel works less than the slower one.

No engine of the faster kernel is busy for longer, and the work that one engine saves is a part of the gain
(:func:`acceld.gains.simulated_band`). Such a ratio nearer to one is a tie. All pairs of the development sets that are
predicted further apart were measured in the predicted order, except one.
"""

SIMULATED_LESSON_PERCENT = 17.0
"""Percent beyond which a ratio of two predictions may teach an insight. Of 124 pairs that are predicted further apart,
116 were measured in the predicted order (94 %). This percentage is smaller than that of a tie, because a wrong insight
costs a few plans, but a wrong win costs a deployment.
"""

LEAST_STEP_PERCENT = 0.5
"""Percent by which a simulated latency must be lower to replace a run's best: a smaller step lies far inside each
interval of the performance model, and a strict gate for it would take longer than the rest of a short run. Smaller
steps stay in the beam and add up: a strict gate is run once their sum is large enough.
"""


class Source(StrEnum):
    """Source of a latency: measured or simulated. acceld never compares the two kinds without saying so."""

    SIMULATED = "simulated"
    MEASURED = "measured"


class Gate(StrEnum):
    """Set of checks that a candidate passed: from timing alone to the strict gate, which every winner passes."""

    TIMING = "timing"
    """Legal and timed by the simulator, not run on data. Such an evaluation has the status ``untested``."""
    SEARCH = "search"
    """Correct on one secret data set."""
    STRICT = "strict"
    """Correct on fresh seeds and every declared distribution, in fresh processes."""


class RunState(StrEnum):
    """State of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Tell whether the run is over and will not continue."""
        return self in (RunState.FINISHED, RunState.CANCELLED, RunState.FAILED)


BUDGET_PREFIX = "budget: "
"""Start of the message of a run that waits for a higher cap."""
MODELS_PREFIX = "models: "
"""Start of the message of a run that paused because its models gave no answers that it could use."""


def waits_for_remedy(state: str, message: str) -> bool:
    """Tell whether a run has paused itself and waits for a person to raise its cap or to repair the setup of its
    models.
    """
    return state == RunState.PAUSED and message.startswith((BUDGET_PREFIX, MODELS_PREFIX))


STOPPED = "stopped"
"""State of a run that was active when its daemon ended. The next daemon continues it."""
CANCELLING = "cancelling"
"""State of a run that a person has cancelled, until its running evaluations are done."""
UNDER_WAY = (RunState.QUEUED, RunState.RUNNING)


def shown_state(state: str, live: bool, cancelling: bool = False) -> str:
    """Return a run's state for people. ``live`` says that a daemon runs.

    Without a daemon a run that the history calls active is ``stopped``. A run that was cancelled and has not
    ended yet is ``cancelling``.
    """
    if not live and state in UNDER_WAY:
        return STOPPED
    return CANCELLING if cancelling and not RunState(state).ended else state


@dataclass(frozen=True, slots=True)
class Kernel:
    """Source text of a kernel, with its entry function, launch grid and LNC (physical cores per logical core)."""

    text: str
    api: str
    entry: str = ""
    """Name of the kernel function; empty means that it is found by the usual rules."""
    grid: tuple[int, ...] = ()
    lnc: int = 1
    filename: str = "kernel.py"
    trusted: bool = False
    """True if a person gave the kernel. Such a kernel runs in the same sandbox as others, but may import anything."""
    closure: Mapping[str, str] = field(default_factory=dict)
    """Texts of the modules that the kernel imports from its own package, by path relative to the kernel's folder."""

    @property
    def programs(self) -> tuple[int, ...]:
        """Return the number of programs along each axis of the launch; () if a single program runs.

        Without a grid, a kernel of ``nki`` runs one program on each physical core, because the front end of that API
        launches it so.
        """
        return self.grid or ((self.lnc,) if self.api == "nki" and self.lnc > 1 else ())

    @property
    def sha256(self) -> str:
        """Return the identity of the kernel: the sha256 (hex) of text, closure, entry, grid, LNC and API."""
        digest = hashlib.sha256(f"{self.api}\0{self.entry}\0{self.grid}\0{self.lnc}\0".encode())
        for name, text in (*sorted(self.closure.items()), ("", self.text)):
            digest.update(f"{name}\0{len(text)}\0".encode())
            digest.update(text.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check of a kernel's outputs."""

    name: str
    """Name of the check, such as ``own/seed 3`` or ``metamorphic/row_permutation``."""
    passed: bool
    rel_l2: float | None = None
    tolerance: float | None = None
    detail: str = ""


OWN_ORACLE = "against the float64 execution of the workload's own kernel"
"""Detail of a check that passed although the workload has no reference to compare with."""


@dataclass(frozen=True, slots=True)
class Correctness:
    """Errors of a kernel's outputs against those of the reference."""

    gate: Gate
    rel_l2: float
    """Greatest relative L2 error over outputs, seeds and distributions."""
    tolerance: float
    worst_row: float | None = None
    checks: tuple[Check, ...] = ()
    accelopt_passed: bool | None = None
    """Result of the published gate (its seeds, its tolerance); None if it was not run."""

    @property
    def passed(self) -> bool:
        """Tell whether every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def has_reference(self) -> bool:
        """Tell whether outputs were compared with a numpy reference; False if they were compared with those of a
        kernel.
        """
        return not any(check.detail == OWN_ORACLE for check in self.checks)


@dataclass(frozen=True, slots=True)
class Profile:
    """Latency and counters of one kernel on one chip, found by one method (a performance model or a way of
    measuring).
    """

    source: Source
    chip: str
    api: str
    latency_us: float | None
    """Latency in microseconds; None if it depends on data that are not known."""
    method: str
    """Method that gave the latency, such as ``compiler_legacy`` or ``neuron-profile total_time``."""
    model: str = ""
    """Version and calibration of the performance model that predicted the latency; empty for a measured latency."""
    sdk: str = ""
    host: str = ""
    """Host of a fleet that evaluated the kernel; empty means the daemon's own machine."""
    instance_type: str = ""
    driver: str = ""
    resolution_us: float = 0.0
    interval_percent: float | None = None
    """Uncertainty of the latency in percent, plus or minus; None if it is not known (``unvalidated``)."""
    engines_us: Mapping[str, float] = field(default_factory=dict)
    """Busy time in microseconds by engine."""
    counters: Mapping[str, float] = field(default_factory=dict)
    """Counters by neuron-profile's names: hbm_read_bytes, spill_save_bytes, hardware_flops, ..."""
    bound: str = ""
    """Bottleneck of the latency, such as ``DMA 86 %, 512 B rows``."""
    notes: tuple[str, ...] = ()
    samples_us: tuple[float, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    """The whole timeline or raw summary as JSON-able data (hot spots, critical path, knobs)."""

    @property
    def tie_percent(self) -> float | None:
        """Return the percent by which the ratio to another latency of the same kind may be off; None if only
        interleaved timing could tell.
        """
        percent: float | None = self.details.get("tie_percent")
        if percent is None and self.source is Source.SIMULATED:
            return SIMULATED_TIE_PERCENT
        return percent


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of evaluating a candidate. Its constructor refuses contents that do not go together with the
    status.
    """

    status: Status
    source_sha256: str
    id: int = 0
    program_sha256: str = ""
    failure: Failure | None = None
    correctness: Correctness | None = None
    profile: Profile | None = None
    percent_of_peak: float | None = None
    percent_of_attainable: float | None = None
    sandbox_level: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall clock by stage: trace, verify, timeline, execute, check."""
    log: str = ""
    reused: bool = False
    """True if the same program had been evaluated before, so that nothing was run."""

    def __post_init__(self) -> None:
        if self.status is Status.PASSED:
            if self.profile is None or self.correctness is None or not self.correctness.passed:
                raise ValueError("a passed evaluation must have a profile, and a correctness that passed")
            if self.failure is not None:
                raise ValueError("a passed evaluation must not have a failure")
        elif self.status in (Status.UNTESTED, Status.UNCHECKED):
            if self.profile is None or self.correctness is not None:
                raise ValueError(f"an evaluation that is {self.status} has a profile and no correctness")
        elif self.failure is None:
            raise ValueError(f"an evaluation that is {self.status} needs a reason")

    @property
    def latency_us(self) -> float | None:
        """Return the latency of the profile in microseconds; None without a profile."""
        return self.profile.latency_us if self.profile else None

    @property
    def gate(self) -> Gate | None:
        """Return the most thorough gate that the kernel passed; None if it passed no gate."""
        return self.correctness.gate if self.status is Status.PASSED and self.correctness else None


DATA_DEPENDENT = "data_dependent"
"""Name of the bottleneck, and of the kind of prediction, for a program with loops whose number of iterations is known
only at run time.
"""

ADMISSION = "admission"
"""Rule of the failure of a kernel that can not be proven faster, because its workload's checks or reference are too weak.
"""

WRITING_OUT = "write_out"
"""Name that stands for a rule where a kernel that rules can not read was first written out from its trace."""

WRITTEN_OUT = "written out from a trace"
"""The words by which a person and acceld know a kernel that was written out."""

READING = "reading"
"""Name that stands for a rule where rules can not read a kernel's source: the plan's one attempt says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Proposed change of one parent, in prose."""

    run: int
    iteration: int
    parent: int
    """Id of the parent candidate."""
    index: int
    """Position among the plans of the same parent and iteration, from 0."""
    text: str
    title: str = ""
    change_class: str = "mixed"
    """One of loop_order, tile_width, fusion, engine, dma, spill and mixed."""
    rule: str = ""
    """The rewrite rule that made the plan; empty for a model's plan."""
    line: int = 0
    insights: tuple[int, ...] = ()
    """Ids of the insights the planner was shown."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """JSON-able data for carrying the plan out (a rule's place and variants)."""
    partner: int | None = None
    """Id of the second parent, whose gain a crossover brings into the parent; None for any other plan."""
    id: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """Result of one attempt to carry out a plan: the text of a kernel, or the reason why there is no text."""

    plan: int
    index: int
    text: str | None
    """The whole kernel file; None means ``no_code``."""
    reason: str = ""
    """Reason why there is no code."""
    fix_of: int | None = None
    """Id of the attempt that this one repairs."""
    id: int = 0

    def __post_init__(self) -> None:
        if self.text is None and not self.reason:
            raise ValueError("an attempt without code needs a reason")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One version of a kernel's source in a run. Candidates form a tree, by their parents."""

    run: int
    iteration: int
    kernel: Kernel
    parent: int | None
    """Id of the parent candidate; None for a baseline."""
    plan: int | None = None
    attempt: int | None = None
    order: tuple[int, int, int, int] = (0, 0, 0, 0)
    """(parent's place in the beam, plan, attempt, fix): the order in which selection breaks ties. The order of arrival
    never matters.
    """
    evaluation: Evaluation | None = None
    id: int = 0


class InsightKind(StrEnum):
    """Kind of an insight: positive if its rewrite made the kernel faster, negative if slower."""

    POSITIVE = "positive"
    NEGATIVE = "negative"


@dataclass(frozen=True, slots=True)
class Held:
    """A chip, API and workload on which the rewrite of an insight made kernels faster."""

    chip: str
    api: str
    workload: str
    source: Source
    speedup: float
    """Greatest speed-up by the rewrite on this chip, API and workload."""
    times: int = 1
    """Number of rewrites on this chip, API and workload that taught the insight."""
    by: tuple[int, ...] = ()
    """Ids of the candidates whose rewrites confirmed the insight, so that no rewrite counts twice."""


@dataclass(frozen=True, slots=True)
class Insight:
    """A lesson of one rewrite, in words. The lesson always describes the change from the slower to the faster kernel."""

    title: str
    strategy: str
    slow: str
    fast: str
    speedup: float
    """Latency of the slow kernel over that of the fast one; above 1."""
    kind: InsightKind
    run: int = 0
    iteration: int = 0
    slow_candidate: int = 0
    fast_candidate: int = 0
    chip: str = ""
    api: str = ""
    sdk: str = ""
    dtype: str = ""
    bound: str = ""
    tags: tuple[str, ...] = ()
    source: Source = Source.SIMULATED
    uses: int = 0
    wins: int = 0
    losses: int = 0
    pinned: bool = False
    muted: bool = False
    withdrawn: bool = False
    novelty: float = 1.0
    """One minus the similarity (0 to 1) to the most similar older insight."""
    change: str = ""
    """Change class of the plan that taught the insight; empty if it is not known."""
    operations: tuple[str, ...] = ()
    """Kinds of operations in the kernels that taught the insight, such as ``matmul``; the same words for all APIs."""
    held: tuple[Held, ...] = ()
    """The places where the insight held, in order of time. Insights of earlier versions of acceld have no places."""
    tie_percent: float | None = None
    """Percent of the tie band if the insight's own speed-up lies inside, so that the insight is a hypothesis; None if
    the speed-up is certain.
    """
    id: int = 0

    @property
    def confirmations(self) -> int:
        """Return the number of rewrites, after the first one, that taught the same strategy."""
        return max(0, sum(place.times for place in self.held) - 1)


KnowledgeLevel = Literal["none", "calls", "full"]
StrategyName = Literal["beam", "best_of_n", "reflexion", "random", "tune"]
MemoryPolicy = Literal["off", "fifo", "random", "value"]


def _option(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class SearchParameters:
    """Parameters of a search: those of the AccelOpt paper, with its letters in parentheses, and acceld's own.

    The defaults are those of the preset ``standard``. The configuration and the command line take defaults and
    help texts from here.
    """

    beam_width: int = _option(4, "number of fastest candidates that the next iteration starts from (B)")
    plans: int = _option(8, "plans for each parent in an iteration (N)")
    attempts: int = _option(2, "kernels that are written for each plan (K)")
    iterations: int = _option(8, "most iterations of a run (T)")
    fixer_steps: int = _option(0, "repairs by a model that a failed candidate may get")
    memory: MemoryPolicy = _option(
        "off",
        "insights from earlier rewrites that models are shown: off (no insights), fifo (this run's newest), random (a "
        "sample of this run's), value (the most useful of all runs)",
    )
    top_k: int = _option(8, "most new insights of an iteration")
    memory_size: int = _option(16, "most insights that the planner is shown (ExpN)")
    t_pos: float = _option(1.04, "least speed-up of a rewrite that becomes a positive insight")
    t_neg: float = _option(1.15, "least slow-down of a rewrite that becomes a negative insight")
    strategy: StrategyName = _option(
        "beam",
        "how the parents of an iteration are chosen: beam (the fastest candidates), best_of_n (always the baseline), "
        "reflexion (the last candidate that passed), random (as beam, but plans are drawn at random), tune (as beam, but "
        "plans are sequences of rewrites with the lowest simulated latency)",
    )
    seed: int = _option(0, "seed of the search's draws; with rules, a run with the same seed makes the same decisions")
    target_percent: float | None = _option(
        None, "end the run when the best kernel reaches this percent of the speed that the roofline model allows"
    )
    patience: int = _option(3, "end the run after this many iterations in a row without a better kernel; 0: never")
    budget_usd: float | None = _option(None, "cap in USD on the run's calls to models")
    time_limit_s: float | None = _option(
        None, "end the run after this many seconds; kernels measured until then are still checked"
    )
    polish: int = _option(
        24,
        "sequences of rewrites that rules time on the simulator to make each passing kernel of a model faster; 0: no such "
        "sequences",
    )
    screen: bool = _option(
        False, "on a device, measure only a sample of the candidates that the simulator finds clearly slower"
    )
    knowledge: KnowledgeLevel = _option(
        "calls",
        "facts about the language and the chip in prompts: none, calls (of the calls that the kernel uses or could use "
        "instead) or full (of every call)",
    )
    planner: bool = _option(True, "False: the executor changes the kernel without a plan")
    tools: bool | None = _option(None, "whether the executor may use tools; None: what [llm.executor] says")
    fixer_usd: float | None = _option(None, "cap in USD on the run's repairs, which count under the run's cap too")
    show_simulated: bool = _option(
        False, "in runs on a device, also show the insights of simulated runs, marked as unverified"
    )
    own_insights: bool = _option(False, "show only insights of this run, so that runs can be compared")
    max_usd_per_percent: float | None = _option(
        None, "end the run when one more percent of speed-up is expected to cost more USD than this"
    )
    host: str = _option("", "on a cluster, evaluate on the host of this name alone")
    from_reference: bool = _option(False, "let the executor write the first kernel from the numpy reference")
    candidates: int | None = _option(
        None, "end the run after this many evaluated candidates; the last iteration makes only as many as are left"
    )

    def __post_init__(self) -> None:
        for name in ("beam_width", "plans", "attempts", "iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.candidates is not None and self.candidates < 1:
            raise ValueError(f"candidates must be at least 1, not {self.candidates}")


SEARCH_OPTIONS: Mapping[str, Field[Any]] = MappingProxyType(
    {option.name: option for option in fields(SearchParameters)}
)
"""Every search parameter by name. Its field has the default, and the help text under ``doc`` in the metadata."""

PRESETS: Mapping[str, SearchParameters] = MappingProxyType(
    {
        "quick": SearchParameters(beam_width=2, plans=4, attempts=2, iterations=4),
        "standard": SearchParameters(),
        "paper": SearchParameters(beam_width=6, plans=12, attempts=2, iterations=16, memory="fifo", patience=0),
    }
)


@dataclass(frozen=True, slots=True)
class Abilities:
    """Abilities of a kind of proposer. The search, commands and screens test these, never the proposer's name."""

    uses_models: bool = False
    """True if the proposer's proposals cost money, are drawn at random, and may use the optimization memory."""
    asks_models: bool = False
    """True if the proposer sends prompts to the configured models."""
    writes_first: bool = False
    """True if the proposer can write a first kernel from a reference."""
    repairs: bool = False
    """True if the proposer can repair a failed candidate."""
    teaches: bool = False
    """True if the proposer can distil an insight from a rewrite."""
    exhaustible: bool = False
    """True if an iteration without a candidate means that nothing is left to propose."""


PROPOSERS: Mapping[str, Abilities] = MappingProxyType(
    {
        "rules": Abilities(exhaustible=True),
        "llm": Abilities(uses_models=True, asks_models=True, writes_first=True, repairs=True, teaches=True),
        "both": Abilities(uses_models=True, asks_models=True, writes_first=True, repairs=True, teaches=True),
        "command": Abilities(uses_models=True),
    }
)
"""Every kind of proposer, by its name in configuration and runs."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Specification of a run, as a person asked for it: workload, target, proposer and search parameters."""

    workload: str
    """A workload's name, or ``kernel`` for a kernel without a workload."""
    chip: str = "trn1"
    api: str = "nki_legacy"
    backend: str = "simulator"
    proposer: str = "rules"
    """A name in :data:`PROPOSERS`."""
    preset: str = "standard"
    search: SearchParameters = field(default_factory=SearchParameters)
    root: Kernel | None = None
    """The kernel to start from; None means the workload's baseline."""
    workload_folder: str = ""
    """Folder of a workload outside the known folders."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Basis:
    """Everything but the kernels on which the latencies of a run depend: workload, performance model, SDK, driver, chip.

    Latencies of runs with different bases are never compared.
    """

    workload: str = ""
    """First digits of the hash of the workload's content."""
    model: str = ""
    """Version and calibration of the performance model; empty if latencies are measured."""
    sdk: str = ""
    driver: str = ""
    chip: str = ""

    def changes(self, now: Basis) -> str:
        """Return in words how the basis ``now`` differs from this basis; empty if both are equal."""
        named = {
            "workload": "the workload's content",
            "model": "the performance model",
            "sdk": "the SDK",
            "driver": "the driver",
            "chip": "the chip",
        }
        changed = ((named[one.name], getattr(self, one.name), getattr(now, one.name)) for one in fields(self))
        return ", ".join(
            f"{name} ({old or 'unknown'} → {new or 'unknown'})" for name, old, new in changed if old != new
        )


UNKNOWN_BASIS = Basis()
"""Basis of a run that began before acceld recorded the basis."""


@dataclass(frozen=True, slots=True)
class Run:
    """One search on one workload."""

    id: int
    spec: RunSpec
    state: RunState
    created_at: float
    """Seconds since the epoch."""
    started_at: float | None = None
    ended_at: float | None = None
    iteration: int = 0
    baseline: int | None = None
    best: int | None = None
    """Ids of the baseline and of the best candidate; None as long as the run has no such candidate."""
    message: str = ""
    """Reason why the run ended or waits."""
    exit_code: int = 0
    """Exit code of commands that wait for the run."""
    basis: Basis = UNKNOWN_BASIS
    timed_again: str = ""
    """Time and reason of timing its kernels again, in words; empty if they were timed once."""
