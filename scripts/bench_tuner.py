"""Measure what the tuner (which searches sequences of rewrites) reaches, what its parts and the rules add to that, and
what it costs to time a kernel.

python scripts/bench_tuner.py [--cpu-s 60 | --timed 40,100] [--chip trn2] [--api nki] [--roots FOLDER] [--only silu] [--json]
python scripts/bench_tuner.py --leave-out each --timed 100 [--api nki] [--roots FOLDER] [--only silu]

With ``--timed`` a search ends after so many timed kernels, and the table has the speed-up after each of the numbers.
``--leave-out`` repeats each search without a rule or without a part of the tuner (:data:`PARTS`), and prints a row for
each. A rule of which no rewrite was made is not left out, because the search without the rule would be the same. The
searches of one workload share what is known of a kernel, so with ``--leave-out`` their processor times mean nothing.

Rules, jails and the simulator are real. No kernel runs on data. A search draws nothing at random, so it needs no seed.
Time is processor time of this process and of the jailed jobs, so that other work on the machine counts for little.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from time import monotonic, process_time
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the scripts' own modules

from acceld.daemon.process import COLLECTED
from acceld.errors import did_you_mean
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.sandbox.process import Outcome, Zygote
from acceld.evaluate.sandbox.reply import Reply
from acceld.evaluate.shapes import timed_with_hidden
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.model import Kernel, Profile
from acceld.nki.source.launches import launch_of
from acceld.proposers.rules import all_rules, proposer
from acceld.proposers.rules import tuner as searched
from acceld.proposers.rules.proposer import found_again, moves
from acceld.proposers.rules.tuner import Move, TimedProgram, Tuned, Tuner, tune
from acceld.workloads import Workload
from scripts.starting_points import simulated, starting_points

EASY = "silu,add_rmsnorm_matmul,rmsnorm_matmul,mamba,bmm,matmul_add_rmsnorm,rope_single_freq_apply,adamw"
"""Workloads of at most 20,000 instructions."""
_MANY = 1_000_000
_SLOWER = 0.002
"""Least loss, as a share of the speed-up, for which a search counts as slower."""
_MOST_KNOWN = 128
"""Most kernels whose moves are kept. The moves of a kernel hold its syntax tree."""


def _fastest_open(tuner: Tuner, rank: Callable[[Tuned], Any]) -> list[Tuned]:
    """Return the fastest kernels with untried moves, whatever rules made them."""
    return sorted((one for one in tuner.seen.values() if one.is_open and not one.waits), key=rank)[: searched._FRONT]


async def _by_rule(tuner: Tuner, saved: Mapping[str, Sequence[float]], *rest: Any) -> list[tuple[Tuned, int]]:
    """Choose moves without what each step saved on other kernels."""
    return await _PROMISING(tuner, {name: each for name, each in saved.items() if name.isidentifier()}, *rest)


_PROMISING = searched._promising
PROFILES = "look at profiles"
PARTS: Mapping[str, Mapping[str, Any]] = {
    "make all gains at once": {"_lacking": lambda one, gains: []},
    "try moves of earlier kernels": {"_hidden": lambda one, own: []},
    "rank by the busiest engine": {"_reach": searched._rank},
    "at most two moves of a kernel": {"_OF_ONE": 8},
    "expect less of a rule's next move": {"_AGAIN": 1.0},
    "learn what a rule saves": {"_TRUST": 1e9},
    "learn what a step saves": {"_promising": _by_rule},
    "count losses": {"_WORST": 0.0},
    "extend only one of two ties": {"_TIE": -1.0},
    "one kernel for each set of rules": {"_front": _fastest_open},
    PROFILES: {},
}
"""Parts of the tuner: what it does, and what stands in its place when the part is left out."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Result of tuning one kernel."""

    workload: str
    timed: int
    """Number of timed kernels, including the kernels that broke a rule of the chip."""
    cpu_s: float
    wall_s: float
    instructions: float
    before_us: float
    best_us: float
    rules: tuple[str, ...]
    """Rules that made the steps to the fastest kernel."""
    after_us: tuple[float, ...] = ()
    """Latency of the fastest kernel after each number of timed kernels that ``--timed`` gives."""
    without: str = ""
    """The rule, or the part of the tuner, that was left out."""
    made: tuple[str, ...] = ()
    """Rules of which the search made a rewrite."""

    @property
    def speedup(self) -> float:
        """Return the simulated speed-up of the fastest kernel over the kernel that tuning began with."""
        return self.before_us / self.best_us


@dataclass(slots=True)
class Known:
    """Hold the timed kernels and the moves of kernels that the searches of one workload share."""

    timed: dict[str, TimedProgram | None] = field(default_factory=dict)
    moves: dict[tuple[str, str, bool], list[Move]] = field(default_factory=dict)

    def of(self, text: str, only: str, profiled: bool, find: Callable[[], list[Move]]) -> list[Move]:
        """Return the moves of a kernel, which are computed once unless too many kernels are known."""
        if len(self.moves) >= _MOST_KNOWN:
            self.moves.clear()
        key = text, only, profiled
        if key not in self.moves:
            self.moves[key] = [replace(move, apply=cache(move.apply)) for move in find()]
        return self.moves[key]


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
    limit_s: float,
    *,
    counts: Sequence[int] = (),
    without: str = "",
    known: Known | None = None,
) -> Tried:
    """Tune one kernel, and return the result.

    The search ends after ``limit_s`` processor seconds; if ``counts`` are given, after the greatest of these numbers of
    timed kernels. The rule or part ``without`` is left out. ``known`` is what earlier searches of the workload found out.
    """
    tensors = [argument if argument.value is None else None for argument in found.arguments]
    launch = launch_of(kernel, found.kernel_facts, tuple(one.dtype if one else "" for one in tensors))
    proposer.readings.cache_clear()  # drop what the search before this one cached for the same kernels
    began_s, start_s, instructions = meter.cpu_s, monotonic(), 0.0
    latencies_us: list[float] = []
    made = set[str]()

    async def clock(text: str) -> TimedProgram | None:
        if not counts and meter.cpu_s - began_s > limit_s:
            tuner.left = 0
        if known is not None and text in known.timed:
            timed = known.timed[text]
        else:
            timed = await time(text)
        latencies_us.append(timed.latency_us if timed is not None else math.inf)
        if known is not None:
            known.timed[text] = timed
        return timed

    async def time(text: str) -> TimedProgram | None:
        nonlocal instructions
        request = EvaluationRequest(replace(kernel, text=text, trusted=True), found.name, chip)
        reported = await timed_with_hidden(request, found, evaluator.evaluate)
        if reported is None or reported.latency_us is None or reported.profile is None:
            return None
        instructions = max(instructions, reported.profile.counters.get("instruction_count", 0.0))
        return TimedProgram(reported.latency_us, reported.program_sha256, reported.profile)

    def noted(move: Move) -> Move:
        def apply() -> str | None:
            made.add(move.rule)
            return move.apply()

        return replace(move, apply=apply)

    def find(text: str, profile: Profile | None = None, *, only: str = "") -> list[Move]:
        profile = None if without == PROFILES else profile

        def search() -> list[Move]:
            return moves(text, launch, profile, only=only)

        found = search() if known is None else known.of(text, only, profile is not None, search)
        return [noted(move) for move in found if move.rule != without]

    tuner = Tuner(clock, find, limit=max(counts, default=_MANY), again=found_again(find))
    root = await tuner.root(kernel.text)
    if root is None:
        raise SystemExit(f"{found.name}: the kernel to start from is not a legal program")
    with patch.multiple(searched, **PARTS[without]) if PARTS.get(without) else nullcontext():
        await tune(tuner, root)
    best, spent_s = tuner.fastest(1)[0], meter.cpu_s - began_s
    return Tried(
        found.name,
        tuner.timed,
        spent_s,
        monotonic() - start_s,
        instructions,
        root.latency_us,
        best.latency_us,
        best.rules,
        tuple(min(latencies_us[: count + 1]) for count in counts),
        without,
        tuple(sorted(made)),
    )


async def every(arguments: argparse.Namespace) -> list[Tried]:
    """Tune every kernel, one after another, and again without each rule and part that is left out."""
    results = []
    meter = Meter()
    setattr(Zygote, "run", lambda zygote, *given, **named: meter.run(zygote, *given, **named))  # noqa: B010  mypy forbids =
    async with simulated() as (evaluator, _):
        for found, root in starting_points(arguments.only.split(","), arguments.roots, arguments.api):
            known = Known() if arguments.leave_out else None
            wanted = [""]
            while wanted:
                without = wanted.pop(0)
                one = await tried(
                    meter,
                    evaluator,
                    found,
                    root,
                    arguments.chip,
                    arguments.cpu_s,
                    counts=arguments.timed,
                    without=without,
                    known=known,
                )
                results.append(one)
                print(_line(one), file=sys.stderr, flush=True)
                if arguments.leave_out and not without:
                    each = (*one.made, *PARTS)
                    asked = each if arguments.leave_out == "each" else arguments.leave_out.split(",")
                    wanted = [name for name in asked if name in each]
    return results


def _line(one: Tried) -> str:
    per_minute = 60.0 * one.timed / one.cpu_s
    won = ", ".join(dict.fromkeys(one.rules))
    if one.after_us:
        reached = ", ".join(f"{one.before_us / us:.3f}x" for us in one.after_us)
        without = f" without {one.without}" if one.without else ""
        return f"{one.workload:24}{without}: {reached}, {one.cpu_s:.0f} s: {won}"
    return (
        f"{one.workload:24}: {one.speedup:.3f}x, {one.timed} timed in {one.cpu_s:.0f} s, "
        f"{per_minute:.0f} a minute of one core, {60.0 * one.timed / one.wall_s:.0f} a minute, up to {one.instructions:.0f} instructions: {won}"
    )


def table(results: list[Tried]) -> str:
    """Return the speed-up of each kernel, and their geometric mean."""
    lines = ["| workload | speed-up | timed a minute of one core |", "|---|---|---|"]
    for name, mine in [*((one.workload, [one]) for one in results), ("all", results)]:
        rate = 60.0 * sum(one.timed for one in mine) / sum(one.cpu_s for one in mine)
        lines.append(f"| {name} | {_mean([one.speedup for one in mine]):.3f}x | {rate:.0f} |")
    return "\n".join(lines)


def left_out(results: list[Tried]) -> str:
    """Return the speed-ups without each rule and each part, as a table with a column for each workload.

    A dash means that the search made no rewrite of the rule.
    """
    reached = {(one.workload, one.without): one.speedup for one in results}
    names = list(dict.fromkeys(one.workload for one in results))
    rules = sorted({one.without for one in results if one.without}, key=lambda name: (name in PARTS, name))
    lines = [" | ".join(("| left out", *names, "searches that end slower |")), "|---" * (len(names) + 2) + "|"]
    lines.append(" | ".join(("| nothing", *(f"{reached[name, '']:.3f}x" for name in names), " |")))
    for rule in rules:
        found = {name: reached.get((name, rule)) for name in names}
        cells = [f"{one:.3f}x" if one else "-" for one in found.values()]
        slower = sum(one is not None and one < reached[name, ""] * (1 - _SLOWER) for name, one in found.items())
        lines.append(" | ".join((f"| {rule if rule in PARTS else f'`{rule}`'}", *cells, f"{slower} |")))
    return "\n".join(lines)


def _mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(one) for one in text.split(",")))


def main() -> None:
    """Run the tuner on the chosen workloads, and print its figures as a table or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu-s", type=float, default=60.0, help="processor time of each search")
    parser.add_argument("--chip", default="trn2")
    parser.add_argument("--api", default="nki_legacy", choices=("nki_legacy", "nki"))
    parser.add_argument("--roots", help="folder of kernels to start from; default: the workloads' baselines")
    parser.add_argument("--only", default=EASY)
    parser.add_argument("--timed", type=_numbers, default=(), help="numbers of timed kernels, instead of --cpu-s")
    parser.add_argument("--leave-out", default="", help="rules and parts to leave out one at a time, or `each`")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.leave_out and not arguments.timed:
        parser.error("--leave-out compares searches at equal numbers of timed kernels: add --timed 100")
    if arguments.leave_out not in ("", "each"):
        known = [*(rule.name for rule in all_rules()), *PARTS]
        for name in arguments.leave_out.split(","):
            if name not in known:
                parser.error(
                    f"--leave-out {name!r} is neither a rule nor a part of the tuner.{did_you_mean(name, known)}"
                )
    gc.set_threshold(COLLECTED)  # as in the daemon
    results = asyncio.run(every(arguments))
    shown = left_out if arguments.leave_out else table
    print(json.dumps([asdict(one) for one in results], indent=1) if arguments.json else shown(results))


if __name__ == "__main__":
    main()
