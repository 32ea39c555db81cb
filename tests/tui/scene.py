"""Made-up runs for the tests of the terminal UI: deterministic, and as large as asked."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from acceld.events import (
    AttemptFailed,
    BeamSelected,
    BestChanged,
    CandidateEvaluated,
    CandidateQueued,
    CandidateStarted,
    CandidateWritten,
    Event,
    EventData,
    InsightWritten,
    IterationStarted,
    LlmCallFinished,
    LlmCallStarted,
    PlanWritten,
    RunCreated,
    RunStateChanged,
)
from acceld.gains import Verdict, verdict
from acceld.model import SIMULATED_TIE_PERCENT, RunState, Source, Status

START = 1_790_000_000.0

TITLES = (
    "Hoist the gamma load out of the row loop",
    "Fuse the reduction into the activation pass",
    "Widen the DMA rows to 2 KiB",
    "Keep the normalised tile in SBUF",
    "Move the scale to the scalar engine",
    "Transpose once, outside the K loop",
)
FAILURES = (
    ("incorrect_numerical", "tolerance: relative L2 0.31 is beyond 2e-05"),
    ("compile_error", "partition_limit: line 41: 256 partitions, the limit is 128"),
    ("runtime_error", "out_of_bounds: line 37: index 2048 of 2048"),
    ("timeout", "check: no answer after 30 s"),
    ("unsupported", "nki.isa.select_reduce is not simulated"),
)


def events_of(
    run: int = 1,
    *,
    iterations: int = 4,
    plans: int = 4,
    attempts: int = 2,
    width: int = 2,
    seed: int = 0,
    first_seq: int = 1,
    first_candidate: int = 1,
    proposer: str = "llm",
    ends: str | None = None,
) -> Iterator[Event]:
    """Yield a run's events in order; ``ends`` is its last state."""
    draw = random.Random(seed)
    seq, at, candidate = first_seq, START + 60 * run, first_candidate
    plan = call = insight = 0

    def event(data: EventData) -> Event:
        nonlocal seq, at
        made = Event(data, run, seq, at)
        seq, at = seq + 1, at + 0.5
        return made

    search = {"iterations": iterations, "beam_width": width, "plans": plans, "attempts": attempts, "budget_usd": 20.0}
    yield event(
        RunCreated(
            workload="rmsnorm_matmul",
            chip="trn1",
            api="nki_legacy",
            backend="simulator",
            proposer=proposer,
            preset="standard",
            search=search,
        )
    )
    yield event(RunStateChanged(state=RunState.RUNNING, message=""))
    baseline_us = 812.0
    yield event(CandidateWritten(candidate=candidate, parent=None, plan=None, iteration=0, sha256="8f" * 32))
    yield event(CandidateQueued(candidate=candidate))
    yield event(CandidateStarted(candidate=candidate, device="simulator 0"))
    yield event(_result(candidate, baseline_us, baseline_us))
    yield event(
        BestChanged(candidate=candidate, latency_us=baseline_us, speedup=1.0, percent_of_peak=33.1, source="simulated")
    )
    best, best_us = candidate, baseline_us
    beam = [(baseline_us, candidate)]
    for iteration in range(1, iterations + 1):
        yield event(IterationStarted(iteration=iteration, beam=tuple(number for _, number in beam)))
        made = list(beam)
        for parent_us, parent in beam:
            for index in range(plans):
                plan, call = plan + 1, call + 1
                model = "claude-sonnet" if proposer == "llm" else "rules"
                if proposer == "llm":
                    yield event(LlmCallStarted(call=call, role="planner", model=model))
                    yield event(_call(call, "planner", model, draw))
                title = draw.choice(TITLES)
                yield event(PlanWritten(plan, parent, iteration, index, title))
                for attempt in range(attempts):
                    if proposer == "llm":
                        call += 1
                        yield event(LlmCallStarted(call=call, role="executor", model="gpt-oss-120b"))
                        yield event(_call(call, "executor", "gpt-oss-120b", draw))
                    if draw.random() < 0.08:
                        yield event(AttemptFailed(plan=plan, index=attempt, reason="no code block in the answer"))
                        continue
                    candidate += 1
                    yield event(
                        CandidateWritten(
                            candidate=candidate,
                            parent=parent,
                            plan=plan,
                            iteration=iteration,
                            sha256=f"{candidate:064x}",
                        )
                    )
                    yield event(CandidateQueued(candidate=candidate))
                    yield event(CandidateStarted(candidate=candidate, device=f"simulator {candidate % 2}"))
                    if draw.random() < 0.35:
                        status, failure = draw.choice(FAILURES)
                        yield event(
                            CandidateEvaluated(
                                candidate=candidate,
                                evaluation=candidate,
                                status=Status(status),
                                latency_us=None,
                                failure=failure,
                                gate=None,
                                bound="",
                            )
                        )
                        continue
                    latency_us = round(parent_us * draw.uniform(0.82, 1.25), 1)
                    yield event(_result(candidate, latency_us, baseline_us))
                    made.append((latency_us, candidate))
        beam = sorted(made)[:width]
        yield event(
            BeamSelected(
                iteration=iteration,
                beam=tuple(number for _, number in beam),
                best=beam[0][1],
                best_latency_us=beam[0][0],
                speedup=baseline_us / beam[0][0],
            )
        )
        if beam[0][0] < best_us:
            best_us, best = beam[0]
            yield event(
                BestChanged(
                    candidate=best,
                    latency_us=best_us,
                    speedup=baseline_us / best_us,
                    percent_of_peak=33.1 * baseline_us / best_us,
                    source="simulated",
                    **_worth(baseline_us / best_us),
                )
            )
            insight += 1
            yield event(
                InsightWritten(insight=insight, title=draw.choice(TITLES), insight_kind="positive", speedup=1.14)
            )
    if ends:
        yield event(RunStateChanged(state=RunState(ends), message="no further gain in 3 iterations"))


def _worth(speedup: float) -> dict[str, Any]:
    """Return the fields with which events judge a predicted speed-up."""
    found = verdict(speedup, speedup > 1 + SIMULATED_TIE_PERCENT / 100, SIMULATED_TIE_PERCENT, Source.SIMULATED)
    return {"improved": found is Verdict.CERTAIN, "verdict": found}


def _result(candidate: int, latency_us: float, baseline_us: float) -> CandidateEvaluated:
    return CandidateEvaluated(
        candidate=candidate,
        evaluation=candidate,
        status=Status.PASSED,
        latency_us=latency_us,
        percent_of_peak=round(33.1 * baseline_us / latency_us, 1),
        percent_of_attainable=round(44.0 * baseline_us / latency_us, 1),
        speedup=baseline_us / latency_us,
        **_worth(baseline_us / latency_us),
        failure=None,
        gate="search",
        bound="DMA 86 %, 512 B rows",
    )


def _call(call: int, role: str, model: str, draw: random.Random) -> LlmCallFinished:
    return LlmCallFinished(
        call=call,
        role=role,
        model=model,
        outcome="answered" if draw.random() > 0.03 else "rate_limited",
        input_tokens=draw.randrange(8_000, 16_000),
        output_tokens=draw.randrange(400, 3_000),
        cost_usd=round(draw.uniform(0.004, 0.03), 4),
        latency_s=round(draw.uniform(4, 40), 1),
    )


def renumbered(events: Iterator[Event], first: int) -> list[Event]:
    """Return the same events with numbers from ``first`` on."""
    return [replace(event, seq=first + place) for place, event in enumerate(events)]
