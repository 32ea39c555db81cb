"""Compare three proposers at equal cost: rules alone, models alone, and both, with scripted models of fixed
skill.

    python scripts/bench_both.py [ANSWERS] [--candidates 12] [--chip trn2] [--api nki] [--roots FOLDER] [--only silu,mamba] [--json]

``ANSWERS/WORKLOAD/*.py`` are kernels that people or models wrote for a workload; by default those of
``scripts/evidence/answers``, which were written from prompts alone for ``--api nki``. A scripted model answers each
attempt with one of them, drawn by the attempt's seed, and costs nothing. All other parts are real: loop, rules,
polishing, jails, gates, SQLite. Each run may evaluate the same number of candidates, polished kernels included.
Rules tune sequences, alone and beside models, as with ``--strategy tune``. Kernels that are only timed, to find
sequences, are no candidates.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the scripts' own modules

from acceld.daemon.build import problem_of
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.shapes import timed_with_hidden
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.model import PROPOSERS, Attempt, Evaluation, Gate, Insight, Kernel, Plan, RunSpec, SearchParameters
from acceld.proposers.both import BothProposer
from acceld.proposers.interface import AttemptRequest, FirstRequest, FixRequest, PlanRequest, Proposer, SummaryRequest
from acceld.proposers.rules.proposer import TunedRules
from acceld.proposers.rules.tuner import TimedProgram
from acceld.search.loop import Search, SearchParts
from acceld.search.outcome import outcome
from acceld.store.changes.runs import create_run
from acceld.store.database import Store
from acceld.store.reads.records import load_candidates, load_plans, load_run
from acceld.workloads import Workload
from scripts.starting_points import simulated, starting_points

KINDS = ("rules", "llm", "both")
ANSWERS = Path(__file__).parent / "evidence" / "answers"


class ScriptedModels:
    """Proposer that gives the kernels of ``ANSWERS`` in place of models' answers."""

    name = "llm"
    abilities = PROPOSERS[name]

    def __init__(self, kernels: list[str]) -> None:
        self._kernels = kernels

    async def first(self, request: FirstRequest) -> str | None:
        """Return None: every search starts from a given kernel."""
        return None

    async def plan(self, request: PlanRequest) -> Plan | None:
        """Return an empty plan."""
        title = f"idea {request.iteration}.{request.index}"
        return Plan(request.run, request.iteration, request.parent.id, request.index, title, title)

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        """Return one of the kernels of ``ANSWERS``, drawn by the request's seed."""
        drawn = random.Random(request.seed).choice(self._kernels)
        return Attempt(request.plan.id, request.index, drawn)

    async def fix(self, request: FixRequest) -> Attempt | None:
        """Return None: this proposer repairs nothing."""
        return None

    async def summarize(self, request: SummaryRequest) -> Insight | None:
        """Return None: this proposer writes no insights."""
        return None


class Remembering:
    """Evaluator that evaluates each kernel once at each gate, so that several searches of a workload share the
    cost.
    """

    def __init__(self, evaluator: SimulatedEvaluator) -> None:
        self._evaluator = evaluator
        self._known: dict[object, asyncio.Task[Evaluation]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._evaluator, name)

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Return the evaluation of the kernel at the request's gate. For a kernel that is too slow to be
        useful, return only its latency.
        """
        kernel, limit_us = request.kernel, request.useful_below_us
        request = replace(request, useful_below_us=None)
        if limit_us is not None:
            timed = await self.evaluate(replace(request, gate=Gate.TIMING))
            if timed.latency_us is not None and timed.latency_us >= limit_us:
                return timed
        key = request.workload, request.chip, request.shape, request.gate, kernel.text, kernel.trusted
        if key not in self._known:
            self._known[key] = asyncio.ensure_future(self._evaluator.evaluate(request))
        return await self._known[key]


async def _timed(evaluator: Remembering, found: Workload, chip: str, kernel: Kernel) -> TimedProgram | None:
    reported = await timed_with_hidden(EvaluationRequest(kernel, found.name, chip), found, evaluator.evaluate)
    if reported is None or reported.latency_us is None:
        return None
    return TimedProgram(reported.latency_us, reported.program_sha256, reported.profile)


async def run(
    kind: str,
    found: Workload,
    root: Kernel,
    answers: list[str],
    evaluator: Remembering,
    folder: Path,
    arguments: argparse.Namespace,
) -> dict[str, object]:
    """Search one workload with the proposer ``kind``, and return the figures of the run."""
    store = await asyncio.to_thread(Store.open, folder / f"{found.name}-{kind}.db")
    try:
        parameters = SearchParameters(
            beam_width=2, plans=4, attempts=1, iterations=1000, patience=0, candidates=arguments.candidates
        )
        spec = RunSpec(found.name, chip=arguments.chip, proposer=kind, search=parameters, root=root)
        record = await store.change(create_run, spec)
        clock = partial(_timed, evaluator, found, arguments.chip)
        tuned = partial(TunedRules, clock)
        models = ScriptedModels(answers)
        both = BothProposer(models, tuned(limit=arguments.timed, most=1))
        proposers: dict[str, Proposer] = {"rules": tuned(limit=arguments.timed), "llm": models, "both": both}
        polisher = tuned(limit=parameters.polish) if kind == "both" else None
        problem = problem_of(found, arguments.chip, root.api)
        await Search(record, SearchParts(store, evaluator, proposers[kind], problem, root, polisher=polisher)).run()
        record, candidates = await store.read(load_run, record.id), await store.read(load_candidates, record.id)
        plans = {plan.id: plan for plan in await store.read(load_plans, record.id)}
        made = outcome(record, candidates, plans)
        evaluated = sum(one.parent is not None for one in candidates)
        steps = ["rules" if win.rule else "models" for win in made.wins]
        return {
            "workload": found.name,
            "proposer": kind,
            "speedup": made.speedup,
            "best_us": made.best_latency_us,
            "candidates": evaluated,
            "steps": steps,
        }
    finally:
        await store.close()


async def every(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Search every workload with every kind of proposer."""
    answers, results = Path(arguments.answers), []
    async with simulated() as (simulator, folder):
        evaluator = Remembering(simulator)
        for found, root in starting_points(arguments.only.split(","), arguments.roots, arguments.api):
            texts = [path.read_text("utf-8") for path in sorted((answers / found.name).glob("*.py"))]
            for kind in arguments.proposers.split(","):
                results.append(await run(kind, found, root, texts, evaluator, folder, arguments))
                print(results[-1], file=sys.stderr, flush=True)
    return results


def table(results: list[dict[str, object]]) -> str:
    """Return a table of speed-ups by proposer. For rules and models together, the table also counts the steps to the
    best kernel that rules made, and that models made.
    """
    lines = ["| workload | rules | models | both | steps of both |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(one["workload"] for one in results):
        mine = {one["proposer"]: one for one in results if one["workload"] == name}
        cells = [f"{mine[kind]['speedup']:.2f}x" if kind in mine else "" for kind in KINDS]
        steps = mine["both"]["steps"] if "both" in mine else []
        assert isinstance(steps, list)
        lines.append(f"| {name} | {' | '.join(cells)} | {', '.join(steps)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the comparison, and print the table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", metavar="ANSWERS", nargs="?", default=str(ANSWERS))
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--timed", type=int, default=80, help="kernels that rules time for each parent (default 80)")
    parser.add_argument("--chip", default="trn2")
    parser.add_argument("--api", default="nki_legacy", help="API of the kernels (default nki_legacy)")
    parser.add_argument("--roots", help="folder of kernels to start from; default: the workloads' baselines")
    parser.add_argument(
        "--only",
        metavar="WORKLOADS",
        help="names separated by commas; default: each workload that has a folder in ANSWERS",
    )
    parser.add_argument("--proposers", default=",".join(KINDS))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.only is None:
        arguments.only = ",".join(one.name for one in sorted(Path(arguments.answers).iterdir()) if one.is_dir())
    results = asyncio.run(every(arguments))
    print(json.dumps(results, indent=1) if arguments.json else table(results))


if __name__ == "__main__":
    main()
