"""Compare strategies of the tuner (which searches sequences of rewrites) at equal processor time, and measure
the cost of timing a kernel.

python scripts/bench_tuner.py [--cpu-s 60] [--seeds 2] [--chip trn2] [--api nki] [--roots FOLDER] [--only silu]
[--json]

Rules, jails and the simulator are real. No kernel runs on data. Time is processor time of this process and of
the jailed jobs, so that other work on the machine counts for little. ``beam`` is not a strategy of acceld: it
lost this comparison, and is here so that the comparison can be repeated.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the scripts' own modules

from acceld.daemon.process import COLLECTED
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.sandbox.process import Outcome, Zygote
from acceld.evaluate.sandbox.reply import Reply
from acceld.evaluate.shapes import timed_with_hidden
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.model import Kernel, Profile
from acceld.nki.source.launches import launch_of
from acceld.proposers.rules import proposer
from acceld.proposers.rules.proposer import found_again, moves
from acceld.proposers.rules.tuner import STRATEGIES, Move, TimedProgram, Tuned, Tuner
from acceld.workloads import Workload
from scripts.starting_points import simulated, starting_points

EASY = "silu,add_rmsnorm_matmul,rmsnorm_matmul,mamba,bmm,matmul_add_rmsnorm,rope_single_freq_apply,adamw"
"""Workloads of at most 20,000 instructions."""
_MANY = 1_000_000


async def beam(tuner: Tuner, root: Tuned) -> None:
    """Tune a kernel by beam search: in each round, try the most promising untried moves of a few kernels, the fastest
    that have any.
    """
    while tuner.left > 0:
        front = [one for one in tuner.fastest() if one.is_open][:4]
        if not front:
            return
        tries = []
        for one in front:
            left = [place for place in range(len(await tuner.moves(one))) if place not in one.tried]
            tries += [(one, place) for place in left[:6]]
        await tuner.time(tries)


COMPARED: Mapping[str, Callable[[Tuner, Tuned], Awaitable[None]]] = {**STRATEGIES, "beam": beam}


@dataclass(frozen=True, slots=True)
class Tried:
    """Result of tuning one kernel by one strategy with one seed."""

    workload: str
    strategy: str
    seed: int
    timed: int
    """Number of timed kernels, including the kernels that broke a rule of the chip."""
    cpu_s: float
    wall_s: float
    instructions: float
    before_us: float
    best_us: float
    rules: tuple[str, ...]
    """Rules that made the steps to the fastest kernel."""

    @property
    def speedup(self) -> float:
        """Return the simulated speed-up of the fastest kernel over the kernel that tuning began with."""
        return self.before_us / self.best_us


class Meter:
    """Counter of the processor time of this process and of all jailed jobs, without the time to set up the
    jails.

    The system does not add up the time of jobs that have ended, because no process waits for them.
    """

    def __init__(self) -> None:
        self._jailed_s = 0.0
        self._run = Zygote.run

    async def run(self, zygote: Zygote, *arguments: Any, **named: Any) -> tuple[Outcome, Reply]:
        """Run a jailed job, in place of ``Zygote.run``."""
        outcome, reply = await self._run(zygote, *arguments, **named)
        self._jailed_s += outcome.cpu_s
        return outcome, reply

    @property
    def cpu_s(self) -> float:
        """Processor seconds so far."""
        return process_time() + self._jailed_s


async def tried(
    meter: Meter,
    evaluator: SimulatedEvaluator,
    found: Workload,
    kernel: Kernel,
    chip: str,
    name: str,
    seed: int,
    limit_s: float,
) -> Tried:
    """Tune one kernel by the strategy ``name`` for ``limit_s`` processor seconds, and return the result."""
    tensors = [argument if argument.value is None else None for argument in found.arguments]
    launch = launch_of(kernel, found.kernel_facts, tuple(one.dtype if one else "" for one in tensors))
    proposer.readings.cache_clear()  # drop what the strategy before this one cached for the same kernels
    began_s, start_s, instructions = meter.cpu_s, monotonic(), 0.0

    async def clock(text: str) -> TimedProgram | None:
        nonlocal instructions
        if meter.cpu_s - began_s > limit_s:
            tuner.left = 0
        request = EvaluationRequest(replace(kernel, text=text, trusted=True), found.name, chip)
        reported = await timed_with_hidden(request, found, evaluator.evaluate)
        if reported is None or reported.latency_us is None or reported.profile is None:
            return None
        instructions = max(instructions, reported.profile.counters.get("instruction_count", 0.0))
        return TimedProgram(reported.latency_us, reported.program_sha256, reported.profile)

    def find(text: str, profile: Profile | None = None, *, only: str = "") -> list[Move]:
        return moves(text, launch, profile, only=only)

    tuner = Tuner(clock, find, limit=_MANY, seed=seed, again=found_again(find))
    root = await tuner.root(kernel.text)
    if root is None:
        raise SystemExit(f"{found.name}: the kernel to start from is not a legal program")
    await COMPARED[name](tuner, root)
    best, spent_s = tuner.fastest(1)[0], meter.cpu_s - began_s
    return Tried(
        found.name,
        name,
        seed,
        tuner.timed,
        spent_s,
        monotonic() - start_s,
        instructions,
        root.latency_us,
        best.latency_us,
        best.rules,
    )


async def every(arguments: argparse.Namespace) -> list[Tried]:
    """Try every strategy on every kernel, one after another."""
    results = []
    meter = Meter()
    setattr(Zygote, "run", lambda zygote, *given, **named: meter.run(zygote, *given, **named))  # noqa: B010  mypy forbids =
    async with simulated() as (evaluator, _):
        for found, root in starting_points(arguments.only.split(","), arguments.roots, arguments.api):
            for seed in range(arguments.seeds):
                for strategy in arguments.strategies.split(","):
                    one = await tried(meter, evaluator, found, root, arguments.chip, strategy, seed, arguments.cpu_s)
                    results.append(one)
                    print(_line(one), file=sys.stderr, flush=True)
    return results


def _line(one: Tried) -> str:
    per_minute = 60.0 * one.timed / one.cpu_s
    won = ", ".join(dict.fromkeys(one.rules))
    return (
        f"{one.workload:24} {one.strategy:7} seed {one.seed}: {one.speedup:.3f}x, {one.timed} timed in {one.cpu_s:.0f} s, "
        f"{per_minute:.0f} a minute of one core, {60.0 * one.timed / one.wall_s:.0f} a minute, up to {one.instructions:.0f} instructions: {won}"
    )


def table(results: list[Tried]) -> str:
    """Return speed-ups by strategy: the mean over seeds for each kernel, and their geometric mean."""
    strategies = list(dict.fromkeys(one.strategy for one in results))
    lines = [
        " | ".join(("| workload", *strategies, "timed a minute of one core |")),
        "|---" * (len(strategies) + 2) + "|",
    ]
    for name in dict.fromkeys(one.workload for one in results):
        mine = [one for one in results if one.workload == name]
        cells = [f"{_mean([one.speedup for one in mine if one.strategy == strategy]):.3f}x" for strategy in strategies]
        rate = 60.0 * sum(one.timed for one in mine) / sum(one.cpu_s for one in mine)
        lines.append(" | ".join((f"| {name}", *cells, f"{rate:.0f} |")))
    means = [f"{_mean([one.speedup for one in results if one.strategy == strategy]):.3f}x" for strategy in strategies]
    rate = 60.0 * sum(one.timed for one in results) / sum(one.cpu_s for one in results)
    return "\n".join((*lines, " | ".join(("| all", *means, f"{rate:.0f} |"))))


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    """Run the tuner on the chosen workloads, and print its figures as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu-s", type=float, default=60.0, help="processor time of each strategy, kernel and seed")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--chip", default="trn2")
    parser.add_argument("--api", default="nki_legacy", choices=("nki_legacy", "nki"))
    parser.add_argument("--roots", help="folder of kernels to start from; default: the workloads' baselines")
    parser.add_argument("--only", default=EASY)
    parser.add_argument("--strategies", default=",".join(COMPARED))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    gc.set_threshold(COLLECTED)  # as in the daemon
    results = asyncio.run(every(arguments))
    print(json.dumps([asdict(one) for one in results], indent=1) if arguments.json else table(results))


if __name__ == "__main__":
    main()
