"""Build the view of one run from its events and rows. The functions are pure.

The view is the same in whatever order events are applied, and if an event is applied twice. So rows can be loaded
first, and events that the rows already contain may follow. Each fact is stored with the number of its event; a fact
with a higher number wins. Totals are computed from facts by id, and not by counting events.

A view needs about 300 bytes for each candidate, and one number for each model call.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from msgspec import convert

from acceld import figures
from acceld.events import (
    REFUSED,
    AttemptFailed,
    BeamSelected,
    BestChanged,
    CandidateEvaluated,
    CandidateQueued,
    CandidateStarted,
    CandidateWritten,
    Event,
    InsightWritten,
    IterationStarted,
    LlmCallFinished,
    LlmCallStarted,
    PlanWritten,
    RunCreated,
    RunStateChanged,
    Steered,
    TimedAgain,
    Tuning,
)
from acceld.gains import Verdict, worth
from acceld.model import CANCELLING, LEAST_STEP_PERCENT, UNDER_WAY, Gate, RunState, Source, Status

LOADED = -1_000_000
"""Number that is less than the number of every event. A best kernel that comes from a row is stored under this number
plus its iteration.
"""
ENDED = frozenset(state.value for state in RunState if state.ended)
ANSWERED = "answered"
"""Outcome of an answered call."""


class Rows(Enum):
    """Progress of reading a run's rows. Until the rows are read, the view has only facts from events."""

    UNREAD = "unread"
    COMING = "coming"
    """The run's own row has been read or requested; the rows of its candidates follow."""
    READ = "read"


@dataclass(slots=True)
class Recent:
    """The ``limit`` newest events by number, each once."""

    limit: int
    seqs: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> bool:
        """Add an event. Return False if it is there already, or too old to be among the newest."""
        if len(self.seqs) >= self.limit and event.seq < self.seqs[0]:
            return False
        place = bisect_left(self.seqs, event.seq)
        if place < len(self.seqs) and self.seqs[place] == event.seq:
            return False
        self.seqs.insert(place, event.seq)
        self.events.insert(place, event)
        if len(self.seqs) > self.limit:
            del self.seqs[0], self.events[0]
        return True

    def find(self, seq: object) -> Event | None:
        """Return the event with the number ``seq``; None if it is not among the newest."""
        if not isinstance(seq, int):
            return None
        place = bisect_left(self.seqs, seq)
        return self.events[place] if place < len(self.seqs) and self.seqs[place] == seq else None

    def __len__(self) -> int:
        return len(self.seqs)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)


@dataclass(slots=True)
class CandidateView:
    """A candidate of the run."""

    id: int
    parent: int | None = None
    plan: int | None = None
    iteration: int = 0
    sha256: str = ""
    change: str = ""
    """The parameter by which the candidate differs from the plan's other attempts."""
    phase: str = "written"
    """``written``, ``queued``, ``running`` or ``evaluated``."""
    device: str = ""
    status: Status | None = None
    """Status of the result; None until the candidate is evaluated."""
    latency_us: float | None = None
    speedup: float | None = None
    """Speed-up over the baseline."""
    verdict: Verdict = Verdict.TIE
    """Worth of the speed-up over the baseline."""
    parent_verdict: Verdict = Verdict.TIE
    """Worth of the speed-up over the parent."""
    percent_of_peak: float | None = None
    percent_of_attainable: float | None = None
    failure: str = ""
    gate: str = ""
    bound: str = ""
    phase_seq: int = -1
    result_seq: int = -1

    @property
    def waiting(self) -> bool:
        """Tell whether the candidate has no result yet."""
        return self.status is None


@dataclass(slots=True)
class PlanView:
    """A plan for one parent, and which of its attempts gave no kernel."""

    id: int
    parent: int = 0
    iteration: int = 0
    index: int = 0
    title: str = ""
    rule: str = ""
    no_code: dict[int, str] = field(default_factory=dict)
    """Reason why there is no code, by attempt."""


@dataclass(frozen=True, slots=True, order=True)
class Best:
    """A kernel that was the run's best from some event on."""

    seq: int
    candidate: int
    latency_us: float
    speedup: float | None = None
    percent_of_peak: float | None = None
    at: float = 0.0
    source: str = "simulated"
    verdict: Verdict = Verdict.TIE
    """Worth of the speed-up over the baseline."""
    known_at: int = 0
    """Number of the event that reported this kernel as best; for a row, number of the newest event before the row was
    read.
    """


@dataclass(frozen=True, slots=True)
class Roof:
    """Declared work of a workload, and the peak rates of one core."""

    flops: float
    hbm_bytes: float
    flops_per_s: float
    bytes_per_s: float


@dataclass(slots=True)
class ModelUse:
    """Calls, tokens and cost of one model in one role of a run."""

    calls: int = 0
    failed: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micro_usd: int = 0
    latency_ms: int = 0

    @property
    def cost_usd(self) -> float:
        """Return the sum in USD of the costs that are known."""
        return self.cost_micro_usd / 1e6


@dataclass(slots=True)
class RunView:
    """View of one run. ``seq`` is the number of the newest event in it."""

    id: int
    rows: Rows = Rows.UNREAD
    seq: int = 0
    workload: str = ""
    name: str = ""
    chip: str = ""
    api: str = ""
    backend: str = "simulator"
    source: str = "simulated"
    """``simulated`` or ``measured``, by the newest evaluation with a latency."""
    source_seq: int = -1
    proposer: str = ""
    preset: str = ""
    search: Mapping[str, Any] = field(default_factory=dict)
    stored_state: str = "queued"
    """State by the newest row or event; :attr:`state` is the state to show to people."""
    message: str = ""
    state_seq: int = -1
    cancelled_seq: int = -1
    """Number of the event by which a person cancelled the run."""
    timed_again: str = ""
    """Time and reason of timing all kernels again, in words; empty if they were timed only once."""
    timed_again_seq: int = -1
    iteration: int = 0
    candidates: dict[int, CandidateView] = field(default_factory=dict)
    under_way: dict[int, float] = field(default_factory=dict)
    """Start of each running evaluation, by candidate, in seconds since the epoch."""
    tunings: dict[int, tuple[int, float, Tuning]] = field(default_factory=dict)
    """By candidate, the newest report on the timing of its rewrites: number and time of the event, and the report."""
    children: dict[int, list[int]] = field(default_factory=dict)
    """Ids of the children by parent, ascending; the key 0 has the baselines."""
    counts: Counter[str] = field(default_factory=Counter)
    """Evaluated kernels by status, the baseline among them."""
    plans: dict[int, PlanView] = field(default_factory=dict)
    beams: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    """By iteration: number of the event that selected the beam, and the beam's candidates."""
    bests: list[Best] = field(default_factory=list)
    insights: dict[int, InsightWritten] = field(default_factory=dict)
    uses: dict[tuple[str, str], ModelUse] = field(default_factory=dict)
    """Use of each model, by role and model."""
    spent: list[tuple[int, int]] = field(default_factory=list)
    """Event number and cost in micro-dollars of each call that ended, ascending."""
    finished_calls: set[int] = field(default_factory=set)
    running_calls: dict[int, tuple[float, LlmCallStarted]] = field(default_factory=dict)
    """Start of each call that runs, in seconds since the epoch, and the call."""
    marks: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Event number and mark (``pin`` or ``veto``) by candidate."""
    started_at: float = 0.0
    changed_at: float = 0.0
    _levels: dict[int, list[int]] = field(default_factory=dict)
    """Ids of the candidates by iteration, ascending."""
    roof: Roof | None = None
    """Peak rates and declared work; None if the workload declares none or the chip has no peak."""

    # -- answers for the screens ---------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Return the state of the run. From a person's cancelling until the run has ended it is ``cancelling``."""
        going = self.stored_state in (*UNDER_WAY, RunState.PAUSED)
        return CANCELLING if going and self.cancelled_seq > self.state_seq else self.stored_state

    @property
    def ended(self) -> bool:
        """Tell whether the run has ended."""
        return self.stored_state in ENDED

    @property
    def iterations(self) -> int:
        """Return the greatest number of iterations that the run may make."""
        return int(self.search.get("iterations", 0))

    @property
    def best(self) -> Best | None:
        """Return the run's best kernel so far; None before a kernel has passed."""
        return self.bests[-1] if self.bests else None

    @property
    def baseline(self) -> CandidateView | None:
        """Return the first candidate without a parent; None before the view has such a candidate."""
        roots = self.children.get(0)
        return self.candidates.get(roots[0]) if roots else None

    @property
    def baseline_us(self) -> float | None:
        """Return the latency of the baseline in microseconds; None if it is not known."""
        baseline = self.baseline
        return baseline.latency_us if baseline else None

    @property
    def beam(self) -> tuple[int, ...]:
        """Return the ids of the candidates that the newest iteration selected as parents of the next."""
        return self.beams[max(self.beams)][1] if self.beams else ()

    @property
    def cost_usd(self) -> float:
        """Return the sum in USD of the known costs of all model calls."""
        return sum(use.cost_micro_usd for use in self.uses.values()) / 1e6

    def cost_at(self, seq: int) -> float:
        """Return the sum in USD of the known costs of calls that ended before the event ``seq``."""
        return sum(cost for number, cost in self.spent if number < seq) / 1e6

    @property
    def unpriced(self) -> int:
        """Return the number of model calls whose price is not known."""
        return sum(use.unpriced for use in self.uses.values())

    @property
    def evaluated(self) -> Counter[str]:
        """Return the numbers of evaluated candidates by status. The baseline does not count."""
        counts = self.counts.copy()
        if self.baseline is not None and self.baseline.status is not None:
            counts[self.baseline.status.value] -= 1
        return +counts

    @property
    def waiting(self) -> int:
        """Return the number of candidates that have no result yet."""
        return len(self.candidates) - self.counts.total()

    def doing(self, now: float) -> str:
        """Return in words what an active run does now, and for how long; empty if that is unknown.

        Examples: ``evaluating 3 of 9, 40 s`` for first results; ``checking c12 on data, 9 s`` for a candidate
        that was only timed; ``verifying c12, 9 s`` for the strict gate; ``tuning: 34 of 200 kernels timed, 40 s``
        for rules that look for plans; ``2 model calls, 9 s``.
        """
        if self.state not in (RunState.RUNNING, CANCELLING):
            return ""
        if not self.under_way:
            return self._planning(now)
        again = [number for number in sorted(self.under_way) if self.candidates[number].status is not None]
        strict = [number for number in again if self.candidates[number].status is Status.PASSED]
        if len(again) < len(self.under_way):
            newest = self._levels.get(self.iteration, [])
            done = sum(self.candidates[number].status is not None for number in newest)
            what = (
                f"evaluating {min(done + 1, len(newest))} of {len(newest)}"
                if self.iteration
                else "evaluating the baseline"
            )
        elif strict:
            what = f"verifying {_named(strict)}"
        else:
            what = f"checking {_named(again)} on data"
        return f"{what}, {figures.elapsed(max(0.0, now - min(self.under_way.values())))}"

    @property
    def tuning(self) -> list[tuple[float, Tuning]]:
        """Return the reports of rules that time kernels now, each with the start in seconds since the epoch.

        A report from before the newest change of the state is left out: its daemon may be gone.
        """
        reports = self.tunings.values()
        return [(at - told.elapsed_s, told) for seq, at, told in reports if not told.ended and seq > self.state_seq]

    def _planning(self, now: float) -> str:
        """Return in words what the run waits for while plans are made: for rules, for models, or for something else."""
        if tunings := self.tuning:
            timed, limit = sum(told.timed for _, told in tunings), sum(told.limit for _, told in tunings)
            since = min(began for began, _ in tunings)
            return f"tuning: {timed} of {figures.many(limit, 'kernel')} timed, {figures.elapsed(max(0.0, now - since))}"
        if self.running_calls:
            since = min(began for began, _ in self.running_calls.values())
            calls = figures.many(len(self.running_calls), "model call")
            return f"{calls}, {figures.elapsed(max(0.0, now - since))}"
        return f"{self.waiting} waiting" if self.waiting else ""

    @property
    def leader(self) -> CandidateView | None:
        """Return the fastest candidate of the newest iteration if it is faster than the best kernel but has not
        passed the strict gate yet; else None.
        """
        newest = (self.candidates[number] for number in self._levels.get(self.iteration, ()))
        return min(filter(self.unconfirmed, newest), key=lambda one: one.latency_us or 0.0, default=None)

    def unconfirmed(self, candidate: CandidateView) -> bool:
        """Tell whether a candidate is ahead of the best kernel by enough to need the strict gate, and has not
        passed that gate.
        """
        if candidate.status is not Status.PASSED or candidate.gate != Gate.SEARCH or candidate.latency_us is None:
            return False
        least = LEAST_STEP_PERCENT if self.source == Source.SIMULATED else 0.0
        return self.best is not None and candidate.latency_us < self.best.latency_us * (1 - least / 100)

    def speedup_of(self, candidate: CandidateView) -> float | None:
        """Return a candidate's speed-up over the baseline: as its event states it, else as the ratio of the two
        latencies; None if one of these is not known.
        """
        if candidate.speedup is not None:
            return candidate.speedup
        base = self.baseline_us
        return base / candidate.latency_us if base and candidate.latency_us else None

    def is_win(self, candidate: CandidateView) -> bool:
        """Tell whether a candidate passed and is faster than the baseline beyond a tie."""
        return candidate.status is Status.PASSED and candidate.verdict is Verdict.CERTAIN

    def gained(self, candidate: CandidateView) -> bool:
        """Tell whether a candidate passed and is faster than its parent beyond a tie."""
        return candidate.status is Status.PASSED and candidate.parent_verdict is Verdict.CERTAIN

    def title(self, candidate: CandidateView) -> str:
        """Return the title of a candidate's change, behind the change's parameter: ``4096 columns: widen tiles,
        l. 15``.
        """
        if candidate.parent is None:
            return "baseline"
        plan = self.plans.get(candidate.plan or 0)
        return figures.change(candidate.change, plan.title or plan.rule) if plan else f"iteration {candidate.iteration}"

    def verdict(self, applies: str) -> str:
        """Return the outcome of a run in words; empty while the run goes on.

        The words are for a person who comes back to the run. ``applies`` is the key or command by which the person
        can write the best kernel over a file.
        """
        if not self.ended:
            return ""
        best, base = self.best, self.baseline
        if base is not None and base.status is Status.PASSED and not base.latency_us:
            return "no verdict: the baseline has no single latency"
        if best is None or base is None or not base.latency_us:
            return "no verdict: no kernel passed"
        steps = self.path(best.candidate)[1:]
        if not steps:
            return "no gain: nothing faster than the baseline passed"
        gained = figures.brief_gain(best.speedup or base.latency_us / best.latency_us, best.verdict)
        titles = [self.title(self.candidates[number]) for number in steps]
        made = f"{len(steps)} changes: " if len(steps) > 1 else ""
        last = f"{applies} applies it" if best.verdict.worth_applying else "no win"
        return f"{gained} by {made}{', then '.join(titles)}; {last}"

    def path(self, candidate: int) -> tuple[int, ...]:
        """Return the ids of the candidates from the baseline to ``candidate``."""
        found: list[int] = []
        at: int | None = candidate
        while at and at in self.candidates and at not in found:
            found.append(at)
            at = self.candidates[at].parent
        return tuple(reversed(found))

    def mark(self, candidate: int) -> str:
        """Return ``pin`` or ``veto`` if a person marked the candidate so; else an empty text."""
        return self.marks.get(candidate, (0, ""))[1]

    # -- events and rows -----------------------------------------------------------------------------------------

    def apply(self, event: Event) -> bool:
        """Apply an event of the run. Return True if the view changed; an event of another run changes nothing."""
        if event.run != self.id:
            return False
        self.seq = max(self.seq, event.seq)
        self.changed_at = max(self.changed_at, event.at)
        seq = event.seq
        match event.data:
            case RunCreated() as data:
                return self._created(data, event.at)
            case RunStateChanged(state, message):
                if seq <= self.state_seq:
                    return False
                self.stored_state, self.message, self.state_seq = state, message, seq
            case IterationStarted(iteration):
                if iteration <= self.iteration:
                    return False
                self.iteration = iteration
            case Tuning() as data:
                return self._tuning(data, event)
            case PlanWritten() as data:
                self._planned(data)
            case AttemptFailed(plan, index, reason):
                self._plan(plan).no_code[index] = reason
            case CandidateWritten() as data:
                self._written(data)
            case CandidateQueued(candidate):
                return self._phase(candidate, "queued", "", seq)
            case CandidateStarted(candidate, device):
                if not self._phase(candidate, "running", device, seq):
                    return False
                self.under_way[candidate] = event.at
            case CandidateEvaluated() as data:
                self._phase(data.candidate, "evaluated", "", seq)
                return self._evaluated(data, seq)
            case BeamSelected(iteration, beam):
                return self._selected(iteration, beam, seq)
            case BestChanged() as data:
                return self._best(data, seq, event.at, seq)
            case TimedAgain(text=text):
                return self._timed_again(text, seq)
            case InsightWritten() as data:
                self.insights.setdefault(data.insight, data)
            case LlmCallStarted(call) as data:
                if call not in self.finished_calls:
                    self.running_calls[call] = (event.at, data)
            case LlmCallFinished() as data:
                return self._call(data, seq)
            case Steered() as data:
                return self._steered(data, seq)
            case _:
                return False
        return True

    def load_run(self, row: Mapping[str, Any], seq: int) -> None:
        """Take over the row of the run, which was read when ``seq`` was the newest event."""
        spec = row.get("spec") or row
        names = ("workload", "chip", "api", "backend", "proposer", "preset", "search", "name")
        self._created(
            RunCreated(**{name: spec[name] for name in names if spec.get(name)}), row.get("created_at") or 0.0
        )
        if seq > self.state_seq:
            self.stored_state, self.state_seq = row.get("state") or "queued", seq
            self.message = row.get("message") or ""
        self._sourced(row.get("source"), seq)
        self.timed_again = row.get("timed_again") or self.timed_again
        self.iteration = max(self.iteration, row.get("iteration") or 0)
        base, latest = row.get("baseline_latency_us"), 0.0
        if row.get("baseline") and base:
            self._best(BestChanged(row["baseline"], base, 1.0, source=row.get("source")), LOADED, 0.0, seq)
        for beam in row.get("beams") or ():
            if beam.get("selected"):
                self._selected(beam["iteration"], tuple(beam["selected"]), seq)
            latency_us = beam.get("best_latency_us")
            if latency_us and latency_us != latest and latency_us < (base or 0.0):
                found = BestChanged(
                    beam["best"],
                    latency_us,
                    beam.get("speedup"),
                    source=row.get("source"),
                    improved=beam.get("improved"),
                    verdict=beam.get("verdict"),
                )
                self._best(found, LOADED + beam["iteration"], beam.get("ended_at") or 0.0, seq)
                latest = latency_us
        if row.get("best") and row.get("best_latency_us") not in (None, latest, base):
            percent = row.get("percent_of_peak_after")
            found = BestChanged(
                row["best"],
                row["best_latency_us"],
                row.get("speedup"),
                percent,
                improved=row.get("improved"),
                verdict=row.get("verdict"),
            )
            self._best(found, -1, 0.0, seq)
        for mark, numbers in (("pin", "pinned"), ("veto", "vetoed")):
            for number in (row.get("steering") or {}).get(numbers) or ():
                self.marks[number] = (seq, mark)
        self.seq = max(self.seq, seq)

    def load_candidate(self, row: Mapping[str, Any], seq: int) -> None:
        """Take over the row of a candidate, which was read when ``seq`` was the newest event."""
        facts = {"candidate": row["id"]} | {name: value for name, value in row.items() if value is not None}
        self._written(convert(facts, CandidateWritten))
        phase = {"done": "evaluated"}.get(row.get("state") or "", row.get("state") or "written")
        if self._phase(row["id"], phase, row.get("device") or "", seq) and phase == "running":
            self.under_way[row["id"]] = row.get("started_at") or 0.0
        if row.get("status"):
            self._evaluated(convert({**facts, "failure": _failure(row)}, CandidateEvaluated), seq)

    def load_plan(self, row: Mapping[str, Any]) -> None:
        """Take over the row of a plan."""
        index = row.get("index", row.get("number")) or 0
        self._planned(
            PlanWritten(
                row["id"],
                row.get("parent") or 0,
                row.get("iteration") or 0,
                index,
                row.get("title") or "",
                row.get("rule") or "",
            )
        )

    def load_call(self, row: Mapping[str, Any]) -> bool:
        """Take over a model call without an outcome, as the daemon reports it. Return True if the call is new."""
        number = row["call"]
        if number in self.finished_calls or number in self.running_calls:
            return False
        self.running_calls[number] = (row["started_at"], LlmCallStarted(number, row["role"], row["model"]))
        return True

    def _created(self, data: RunCreated, at: float) -> bool:
        self.workload, self.chip, self.api = data.workload, data.chip, data.api
        self.backend, self.proposer, self.preset = data.backend, data.proposer, data.preset
        self.search, self.name = data.search, data.name
        self.started_at = at
        return True

    def _planned(self, data: PlanWritten) -> None:
        plan = self._plan(data.plan)
        plan.parent, plan.iteration, plan.index = data.parent, data.iteration, data.index
        plan.title, plan.rule = data.title, data.rule

    def _plan(self, number: int) -> PlanView:
        return self.plans.setdefault(number, PlanView(number))

    def _candidate(self, number: int) -> CandidateView:
        found = self.candidates.get(number)
        if found is None:
            found = self.candidates[number] = CandidateView(number)
        return found

    def _written(self, data: CandidateWritten) -> None:
        node = self._candidate(data.candidate)
        node.parent, node.plan, node.iteration, node.sha256 = data.parent, data.plan, data.iteration, data.sha256
        node.change = data.change
        _keep(self.children.setdefault(node.parent or 0, []), node.id)
        _keep(self._levels.setdefault(node.iteration, []), node.id)

    def _phase(self, number: int, phase: str, device: str, seq: int) -> bool:
        node = self._candidate(number)
        if seq <= node.phase_seq:
            return False
        node.phase, node.device, node.phase_seq = phase, device, seq
        self.under_way.pop(number, None)
        return True

    def _evaluated(self, data: CandidateEvaluated, seq: int) -> bool:
        node = self._candidate(data.candidate)
        if seq <= node.result_seq:
            return False
        if node.status is not None:
            self.counts[node.status.value] -= 1
            if not self.counts[node.status.value]:
                del self.counts[node.status.value]
        node.result_seq, node.status = seq, data.status
        self.counts[node.status.value] += 1
        node.latency_us, node.speedup = data.latency_us, data.speedup
        node.verdict = worth(data.verdict, data.improved)
        node.parent_verdict = worth(data.parent_verdict, data.parent_improved)
        node.percent_of_peak, node.percent_of_attainable = data.percent_of_peak, data.percent_of_attainable
        node.failure, node.gate, node.bound = data.failure or "", data.gate or "", data.bound
        self._sourced(data.source, seq)
        return True

    def _sourced(self, source: str | None, seq: int) -> None:
        if source and seq > self.source_seq:
            self.source, self.source_seq = source, seq

    def _selected(self, iteration: int, beam: tuple[int, ...], seq: int) -> bool:
        if iteration in self.beams and self.beams[iteration][0] >= seq:
            return False
        self.beams[iteration] = (seq, beam)
        self.iteration = max(self.iteration, iteration)
        return True

    def _timed_again(self, text: str, seq: int) -> bool:
        """Forget earlier best kernels, because all kernels were timed again and the earlier latencies do not compare
        with the new ones.

        Return True if the view changed.
        """
        if seq <= self.timed_again_seq:
            return False
        self.timed_again, self.timed_again_seq = text, seq
        self.bests = [best for best in self.bests if best.known_at >= seq]
        return True

    def _best(self, data: BestChanged, seq: int, at: float, known_at: int) -> bool:
        """Insert a best kernel into the list, at place ``seq``. Return True if the view changed.

        ``seq`` is an event number, or a number below all event numbers for a kernel that was loaded from the run's row.
        ``known_at`` is the number of the event from which the kernel is known. A kernel that was known before all
        kernels were timed again is ignored.
        """
        if data.latency_us is None or known_at < self.timed_again_seq:
            return False
        best = Best(
            seq,
            data.candidate,
            data.latency_us,
            data.speedup,
            data.percent_of_peak,
            at,
            data.source or self.source,
            worth(data.verdict, data.improved),
            known_at,
        )
        place = bisect_left(self.bests, best.seq, key=lambda known: known.seq)
        if place < len(self.bests) and self.bests[place].seq == seq:
            return False
        self.bests.insert(place, best)
        return True

    def _call(self, data: LlmCallFinished, seq: int) -> bool:
        self.running_calls.pop(data.call, None)
        if data.call in self.finished_calls:
            return False
        self.finished_calls.add(data.call)
        use = self.uses.setdefault((data.role, data.model), ModelUse())
        use.calls += 1
        use.failed += data.outcome != ANSWERED
        use.unpriced += data.cost_usd is None
        use.input_tokens += data.input_tokens or 0
        use.output_tokens += data.output_tokens or 0
        use.cost_micro_usd += round((data.cost_usd or 0.0) * 1e6)
        insort(self.spent, (seq, round((data.cost_usd or 0.0) * 1e6)))
        use.latency_ms += round((data.latency_s or 0.0) * 1e3)
        return True

    def _tuning(self, data: Tuning, event: Event) -> bool:
        if event.seq <= self.tunings.get(data.candidate, (-1,))[0]:
            return False
        self.tunings[data.candidate] = (event.seq, event.at, data)
        return True

    def forget_work(self) -> None:
        """Forget running evaluations, tunings and calls, because the daemon that did them is gone or does not answer.

        If the daemon answers again and nothing happened meanwhile, its rows restore that work.
        """
        for number in self.under_way:
            # A row that is read later replaces the forgotten phase, even if no event came meanwhile.
            self.candidates[number].phase_seq -= 1
        self.under_way.clear()
        self.tunings.clear()
        self.running_calls.clear()

    def _steered(self, data: Steered, seq: int) -> bool:
        if cancels(data):
            self.cancelled_seq = max(self.cancelled_seq, seq)
            return True
        candidate = data.arguments.get("candidate")
        marks = {"pin": "pin", "veto": "veto", "unpin": "", "unveto": ""}
        if data.action not in marks or not isinstance(candidate, int) or self.marks.get(candidate, (-1,))[0] >= seq:
            return False
        self.marks[candidate] = (seq, marks[data.action])
        return True


def cancels(data: Steered) -> bool:
    """Tell whether the event says that a person cancelled a run and the daemon accepted that."""
    return data.action == "cancel" and not data.result.startswith(REFUSED)


def _keep(numbers: list[int], number: int) -> None:
    """Insert a number into an ascending list if the list does not have it."""
    if not numbers or numbers[-1] < number:
        numbers.append(number)
    elif numbers[bisect_left(numbers, number)] != number:
        insort(numbers, number)


def _named(numbers: list[int]) -> str:
    """Return ids as text, such as ``c3, c5``. More than three ids are cut to three and the number of the others."""
    more = f" and {len(numbers) - 3} more" if len(numbers) > 3 else ""
    return ", ".join(f"c{number}" for number in numbers[:3]) + more


def _failure(row: Mapping[str, Any]) -> str | None:
    """Return the failure in a candidate's row as one line; None if there is none."""
    if not row.get("failure_rule"):
        return None
    line = f"line {row['failure_line']}: " if row.get("failure_line") else ""
    return f"{line}{row.get('failure_message') or row['failure_rule']}".strip()
