"""Make a run's decisions again from its rows, without calling a model: the same answers and results must give the same
plans, kernels and beams.

Every stored answer of a model is parsed again, and every beam is chosen again from the results that were known then. A
difference means that acceld's code, or a row, has changed since the run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from acceld.events import BeamSelected, CandidateEvaluated, Event, IterationStarted
from acceld.model import Attempt, Candidate, Evaluation, Plan, Run
from acceld.proposers.llm.extraction import extract_kernel, parse_plan
from acceld.search.beam import fastest_beam, is_selectable, latency_us, parents_of
from acceld.search.control import RunControl, follow
from acceld.search.lineage import partner_of
from acceld.search.strategies import strategy
from acceld.store.reads import records

EVENTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's stored answer, and the place in the search at which it was asked for."""

    call: int
    role: str
    text: str
    cut_off: bool
    iteration: int
    parent: int
    plan: int
    """Id of the plan; for an answer of a planner the index of the plan among the parent's plans."""
    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class Recording:
    """The rows of one run on which its decisions depend."""

    run: Run
    candidates: Mapping[int, Candidate]
    plans: Sequence[Plan]
    attempts: Sequence[Attempt]
    evaluations: Mapping[int, Evaluation]
    events: Sequence[Event]
    answers: Sequence[Answer]


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that differs when it is made again."""

    what: str
    stored: str
    again: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The number of decisions of a stored run that were made again, for each kind of decision."""

    beams: int
    plans: int
    attempts: int


def recording(connection: sqlite3.Connection, run: int) -> Recording:
    """Return the rows of a run. Raise StoreError if no run has this number."""
    record = records.load_run(connection, run)
    events = records.load_events(connection, 0, run, EVENTS)
    wanted = [event.data.evaluation for event in events if isinstance(event.data, CandidateEvaluated)]
    rows = connection.execute(
        "SELECT id, role, answer, finish_reason, iteration, parent, plan, attempt, "
        "json_extract(parameters, '$.tags.index') AS place, json_extract(parameters, '$.tags.step') AS step, "
        "json_extract(parameters, '$.tags.reask') AS reask FROM llm_calls "
        "WHERE run = ? AND outcome = 'answered' AND role IN ('planner', 'executor', 'fixer') ORDER BY id",
        (run,),
    ).fetchall()
    return Recording(
        run=record,
        candidates={candidate.id: candidate for candidate in records.load_candidates(connection, run, None, False)},
        plans=records.load_plans(connection, run),
        attempts=[
            attempt
            for iteration in range(1, record.iteration + 1)
            for attempt in records.load_attempts(connection, run, iteration)
        ],
        evaluations=records.load_evaluations(connection, wanted, details=False),
        events=events,
        answers=[
            Answer(
                call=row["id"],
                role=row["role"],
                text=row["answer"] or "",
                cut_off=row["finish_reason"] == "length",
                iteration=row["iteration"],
                parent=row["parent"] or 0,
                plan=row["place"] if row["role"] == "planner" else row["plan"],
                attempt=row["attempt"] or 0,
                step=row["step"] or 0,
            )
            for row in rows
        ],
    )


def differences(recorded: Recording) -> tuple[list[Difference], Checked]:
    """Make all decisions of a run again.

    Return (decisions that differ, in the order of the run; how many decisions of each kind were made again).
    """
    plans, plan_count = _plans(recorded)
    attempts, attempt_count = _attempts(recorded)
    beams, beam_count = _beams(recorded)
    return [*plans, *attempts, *beams], Checked(beam_count, plan_count, attempt_count)


def _plans(recorded: Recording) -> tuple[list[Difference], int]:
    answers = {(a.iteration, a.parent, a.plan): a for a in recorded.answers if a.role == "planner"}
    found: list[Difference] = []
    count = 0
    for plan in recorded.plans:
        answer = answers.get((plan.iteration, plan.parent, plan.index))
        if answer is None:
            continue
        count += 1
        parsed = parse_plan(answer.text, ())
        again = "" if parsed is None else f"{parsed.title}\n{parsed.text}"
        if again != f"{plan.title}\n{plan.text}":
            found.append(Difference(f"plan {plan.id} from call {answer.call}", f"{plan.title}\n{plan.text}", again))
    return found, count


def _attempts(recorded: Recording) -> tuple[list[Difference], int]:
    """Return (attempts that differ, number of attempts that were compared).

    An attempt may have several answers, because an answer without code is asked for again. The first answer with code
    counts.
    """
    asked: dict[tuple[int, int, int], list[Answer]] = {}
    for answer in recorded.answers:
        if answer.role != "planner":
            asked.setdefault((answer.plan, answer.attempt, answer.step), []).append(answer)
    entries = {plan.id: _entry(recorded, plan) for plan in recorded.plans}
    steps: dict[int, int] = {}
    found: list[Difference] = []
    count = 0
    for attempt in recorded.attempts:
        steps[attempt.id] = 0 if attempt.fix_of is None else steps.get(attempt.fix_of, 0) + 1
        answers = asked.get((attempt.plan, attempt.index, steps[attempt.id]))
        if not answers:
            continue
        count += 1
        texts = [extract_kernel(a.text, entries.get(attempt.plan, ""), cut_off=a.cut_off).text for a in answers]
        again = next((text for text in texts if text is not None), None)
        if again != attempt.text:
            calls = ", ".join(str(answer.call) for answer in answers)
            found.append(Difference(f"attempt {attempt.id} from calls {calls}", str(attempt.text), str(again)))
    return found, count


def _beams(recorded: Recording) -> tuple[list[Difference], int]:
    """Return (differences in parents, crossovers and beams; number of beams that were chosen again).

    Each choice follows the actions of people whose events came before it.
    """
    parameters = recorded.run.spec.search
    plan = strategy(parameters)
    known: dict[int, Candidate] = {}
    control = RunControl()
    parents: list[int] = []
    beam: tuple[Candidate, ...] = ()
    found: list[Difference] = []
    count = 0
    for event in recorded.events:
        match event.data:
            case CandidateEvaluated(number, evaluation):
                if number in recorded.candidates:
                    known[number] = replace(
                        recorded.candidates[number], evaluation=recorded.evaluations.get(evaluation)
                    )
            case IterationStarted(iteration, stored):
                parents = list(stored)
                baseline = _baseline(recorded, known)
                if baseline is not None:
                    branches = [known[number] for number in control.branches if number in known]
                    beam = _now(beam, known)
                    chosen = plan.parents(baseline, beam or (baseline,))
                    again = [one.id for one in parents_of(chosen, baseline, branches, control.vetoed)]
                    if again != parents:
                        what = f"parents of iteration {iteration}"
                        found.append(Difference(what, _names(parents, known), _names(again, known)))
                found += _partners(recorded, iteration, [known[one] for one in stored if one in known], known)
            case BeamSelected(iteration, stored):
                count += 1
                baseline = _baseline(recorded, known)
                children = [c for c in known.values() if c.iteration == iteration and c.parent is not None]
                others = (*parents, *control.pinned)
                pool = {c.id: c for c in (*(known[p] for p in others if p in known), *children)}
                if baseline is not None:
                    pool |= {baseline.id: baseline}
                    pins, vetoes = frozenset(control.pinned), frozenset(control.vetoed)
                    fastest = fastest_beam(pool, plan.width, baseline, pins, vetoes)
                    passed = sorted(
                        (c for c in children if is_selectable(c) and c.id not in vetoes), key=lambda c: c.order
                    )
                    again = [c.id for c in plan.next_beam(_now(beam, known) or (baseline,), fastest, passed)]
                    if again != list(stored):
                        what = f"beam of iteration {iteration}"
                        found.append(Difference(what, _names(stored, known), _names(again, known)))
                beam = tuple(known[number] for number in stored if number in known)
        follow(control, event)
    return found, count


def _now(beam: Sequence[Candidate], known: Mapping[int, Candidate]) -> tuple[Candidate, ...]:
    """Return a beam with the latest evaluations of its candidates. They may have been timed again after the beam was
    chosen.
    """
    return tuple(known[one.id] for one in beam)


def _baseline(recorded: Recording, known: Mapping[int, Candidate]) -> Candidate | None:
    """Return the run's baseline with its evaluation in ``known``; None if the run has no baseline yet."""
    number = recorded.run.baseline
    return None if number is None else known.get(number)


def _partners(
    recorded: Recording, iteration: int, parents: Sequence[Candidate], known: Mapping[int, Candidate]
) -> Iterator[Difference]:
    """Yield a difference for each crossover of an iteration whose second parent would be another candidate if it were
    chosen again.
    """
    plans = {plan.id: plan for plan in recorded.plans}
    for plan in recorded.plans:
        if plan.iteration != iteration or plan.partner is None or plan.parent not in known:
            continue
        earlier = [one for one in recorded.plans if one.parent == plan.parent and one.iteration < iteration]
        crossed = {one.partner for one in earlier if one.partner is not None}
        again = partner_of(known[plan.parent], parents, plans, known, crossed)
        if again is None or again.candidate.id != plan.partner:
            other = f"c{again.candidate.id}" if again is not None else "(none)"
            yield Difference(f"second parent of plan {plan.id}", f"c{plan.partner}", other)


def _entry(recorded: Recording, plan: Plan) -> str:
    parent = recorded.candidates.get(plan.parent)
    return parent.kernel.entry if parent is not None else ""


def _names(numbers: Sequence[int], known: Mapping[int, Candidate]) -> str:
    def each() -> Iterator[str]:
        for number in numbers:
            candidate = known.get(number)
            latency = latency_us(candidate) if candidate is not None else float("inf")
            yield f"c{number} ({latency:.6g} µs)"

    return ", ".join(each()) or "(none)"
