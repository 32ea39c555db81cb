"""Records for tests of the store and of everything that reads it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from acceld.home import Home
from acceld.model import (
    Attempt,
    Candidate,
    Check,
    Correctness,
    Evaluation,
    Failure,
    Gate,
    Insight,
    InsightKind,
    Kernel,
    Plan,
    Profile,
    Run,
    RunSpec,
    RunState,
    SearchParameters,
    Source,
    Status,
)
from acceld.model_calls import CallIntent, CallOutcome, Usage
from acceld.store.changes.calls import begin_call, end_call
from acceld.store.changes.insights import write_insight
from acceld.store.changes.runs import create_run, select_beam, set_best, set_run_state, start_iteration
from acceld.store.changes.tree import write_attempt, write_candidate, write_evaluation, write_plan
from acceld.store.database import Store
from acceld.store.reads.records import load_run

SPEC = RunSpec(workload="nkibench/silu", preset="quick", search=SearchParameters(iterations=2), name="first")


def kernel(text: str = "def kernel(x):\n    return x\n") -> Kernel:
    """Return a kernel's source."""
    return Kernel(text=text, api="nki_legacy", entry="kernel", grid=(2,), filename="kernel_legacy.py")


def profile(latency_us: float = 100.0) -> Profile:
    """Return a simulated profile."""
    return Profile(
        source=Source.SIMULATED,
        chip="trn1",
        api="nki_legacy",
        latency_us=latency_us,
        method="compiler_legacy",
        sdk="2.21",
        interval_percent=12.0,
        engines_us={"pe": 10.0, "dma": 60.0},
        counters={"hbm_read_bytes": 4096.0},
        bound="DMA 86 %, 512 B rows",
        notes=("rows of 512 B",),
        samples_us=(latency_us, latency_us + 1),
        details={"lines": [[3, 0.5]]},
    )


def passed(latency_us: float = 100.0, gate: Gate = Gate.SEARCH, sha256: str = "a" * 64) -> Evaluation:
    """Return a result of a kernel that is right."""
    return Evaluation(
        status=Status.PASSED,
        source_sha256=sha256,
        program_sha256=sha256[::-1],
        correctness=Correctness(
            gate=gate, rel_l2=1e-7, tolerance=2e-6, worst_row=3e-7, checks=(Check("own/seed 0", True, 1e-7, 2e-6),)
        ),
        profile=profile(latency_us),
        percent_of_peak=10.0,
        percent_of_attainable=50.0,
        sandbox_level="L3",
        seconds={"trace": 0.1},
        log="fine",
    )


def failed(
    status: Status = Status.COMPILE_ERROR, message: str = "free size 1024 exceeds the limit of 512"
) -> Evaluation:
    """Return a result of a kernel that is not right."""
    return Evaluation(
        status=status,
        source_sha256="b" * 64,
        failure=Failure("moving_free_limit", message, 7, "tile it"),
        sandbox_level="L3",
    )


def insight(run: int = 0, title: str = "Hoist loop-invariant loads") -> Insight:
    """Return a positive insight."""
    return Insight(
        title=title,
        strategy="Load what does not depend on the loop before the loop.",
        slow="for i: load(k)",
        fast="load(k)\nfor i: ...",
        speedup=1.3,
        kind=InsightKind.POSITIVE,
        run=run,
        iteration=1,
        chip="trn1",
        api="nki_legacy",
        tags=("dma", "loop"),
    )


def call(run: int | None = None, key: str = "question", model: str = "small") -> CallIntent:
    """Return a model call."""
    return CallIntent(
        key=key,
        role="planner",
        model=model,
        provider="openai",
        prompt_sha256="c" * 64,
        system="You plan.",
        user="Plan!",
        max_output_tokens=4096,
        reserved_usd=0.02,
        tags={"iteration": 1} if run is None else {"run": run, "iteration": 1},
    )


ANSWER = CallOutcome(
    "answered",
    Usage(900, 100, output_tokens=50),
    cost_usd=0.0125,
    price={"input_usd_per_mtok": "3"},
    text="Hoist the loads.",
    answered_by="small-2026",
    request_id="req_1",
    latency_s=1.5,
)


def key_of(candidate: Candidate, gate: Gate = Gate.SEARCH) -> str:
    """Return the key that two evaluations of the same work share."""
    return f"nkibench/silu/trn1/{gate}/{candidate.kernel.sha256}"


async def evaluate(store: Store, candidate: Candidate, evaluation: Evaluation, gate: Gate = Gate.SEARCH) -> Candidate:
    """Store a result."""
    return await store.change(
        write_evaluation,
        candidate,
        evaluation,
        workload="nkibench/silu",
        backend="simulator",
        chip="trn1",
        key=key_of(candidate, gate),
    )


async def begin(store: Store, spec: RunSpec = SPEC) -> tuple[Run, Candidate]:
    """Return a run with a baseline of 100 us."""
    run = await store.change(create_run, spec)
    await store.change(set_run_state, run.id, RunState.RUNNING)
    baseline = await store.change(write_candidate, Candidate(run.id, 0, kernel(), None))
    baseline = await evaluate(store, baseline, passed(100.0, Gate.STRICT), Gate.STRICT)
    await store.change(set_best, run.id, baseline.id)
    return await store.read(load_run, run.id), baseline


async def child_of(
    store: Store, parent: Candidate, number: int, iteration: int = 1, rule: str = "widen_tiles"
) -> Candidate:
    """Return a candidate of plan ``number`` for ``parent``, not evaluated."""
    plan = await store.change(
        write_plan,
        Plan(parent.run, iteration, parent.id, number, f"Widen the tiles, way {number}.", title="Widen", rule=rule),
    )
    attempt = await store.change(
        write_attempt, Attempt(plan.id, 0, f"def kernel(x):\n    return x  # {iteration} {number}\n")
    )
    return await store.change(
        write_candidate,
        Candidate(
            run=parent.run,
            iteration=iteration,
            kernel=replace(parent.kernel, text=attempt.text or ""),
            parent=parent.id,
            plan=plan.id,
            attempt=attempt.id,
            order=(0, number, 0, 0),
        ),
    )


async def small_run(store: Store, spec: RunSpec = SPEC, best_us: float = 80.0) -> Run:
    """Return a finished run of one iteration. It has a best candidate of ``best_us`` that counts as a tie, a failure, an
    attempt without code, an insight and a call.
    """
    run, baseline = await begin(store, spec)
    lesson = await store.change(write_insight, insight(run.id))
    number = await store.change(begin_call, call(run.id))
    await store.change(end_call, number, ANSWER)
    await store.change(start_iteration, run.id, 1, [baseline.id])
    fast = await evaluate(store, await child_of(store, baseline, 0), passed(best_us))
    await evaluate(store, await child_of(store, baseline, 1), failed())
    silent = await store.change(write_plan, Plan(run.id, 1, baseline.id, 2, "Say nothing.", insights=(lesson.id,)))
    await store.change(write_attempt, Attempt(silent.id, 0, None, reason="no fenced block"))
    fast = await evaluate(store, fast, passed(best_us, Gate.STRICT), Gate.STRICT)
    await store.change(set_best, run.id, fast.id)
    await store.change(select_beam, run.id, 1, [fast.id, baseline.id], fast.id)
    await store.change(set_run_state, run.id, RunState.FINISHED, "1 iteration done")
    return await store.read(load_run, run.id)


async def fill(database: Path, runs: int = 1, best_us: float = 80.0) -> None:
    """Write a new database with finished runs."""
    store = await asyncio.to_thread(Store.open, database)
    for _ in range(runs):
        await small_run(store, best_us=best_us)
    await store.close()


def state_with_runs(parent: Path, runs: int = 1, best_us: float = 80.0) -> Path:
    """Return a state folder in ``parent`` with finished runs."""
    folder = Home(parent / ".acceld").prepare()
    asyncio.run(fill(folder / "acceld.db", runs, best_us))
    return folder
