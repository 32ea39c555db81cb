"""Make programs: draw a reference, lower it, check and time its kernels, rewrite them by rules, and pair slow with fast
ones.

Every kernel passes the search gate in the jail: it is correct on one data set, which follows from the seed.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from acceld.config import EvaluateConfig
from acceld.dataset.journal import STAGES, Journal
from acceld.dataset.programs import Drawn, drawn
from acceld.dataset.records import Member, Order, Pair, Program, Rejected
from acceld.drafts import ReferenceFacts, reference_facts, write_reference_folder
from acceld.errors import AcceldError, WorkloadError
from acceld.evaluate.interface import EvaluationRequest, started
from acceld.evaluate.simulated.evaluator import SimulatedEvaluator
from acceld.gains import compared, gain
from acceld.lowering.kernels import Pieces
from acceld.model import Evaluation, Gate, Kernel, Profile, Status
from acceld.nki.source.launches import Launch
from acceld.nki.timing.version import model_version
from acceld.proposers.rules.proposer import moves
from acceld.proposers.rules.tuner import Move, TimedProgram, Tuner, tune
from acceld.workloads import Workload, load_workload

PLAINER = (Pieces(nodes=1, columns=128), Pieces(nodes=1), Pieces(nodes=2), Pieces(nodes=4), Pieces(nodes=8))
"""Sizes of the pieces into which a program is divided for its slower kernels, the plainest kernel first. In the
plainest kernel every value passes through HBM, 128 columns at a time.
"""
TRIES = {0: 2, 1: 6}
"""Number of rewrites that are tried from a lowered kernel, by the kernel's position in its program: 0 is the kernel
that computes the program in the largest pieces, 1 the plainest. From a kernel at another position :data:`OTHER_TRIES`
rewrites are tried.
"""
OTHER_TRIES = 2
MOST_PAIRS = 32
"""Limit on the pairs that are kept of one program."""
MOST_FAILED = 20
"""Number of programs that may fail before the first program is made."""
RUN = 1
"""Run number of all kernels, so that the kernels of one program use one data set."""
WRONG = frozenset(
    {Status.INCORRECT_NUMERICAL, Status.INCORRECT_SHAPE, Status.INCORRECT_DTYPE, Status.RUNTIME_ERROR, Status.REJECTED}
)
"""Statuses that show a defect of acceld, because acceld wrote the kernel."""
_MESSAGE = 400


def basis_of(order: Order) -> dict[str, str]:
    """Return everything on which each program of an order depends, as a dict by name."""
    versions = {name: version(name) for name in ("acceld", "numpy")}
    return {"seed": str(order.seed), "api": order.api, "chip": order.chip, "model": model_version(), **versions}


async def make(
    order: Order,
    journal: Journal,
    folder: Path,
    settings: EvaluateConfig,
    on_program: Callable[[Program], None] = lambda _: None,
) -> None:
    """Make those programs of an order that the journal lacks. As many are made at the same time as ``settings`` have
    slots. ``folder`` is for temporary files, and is removed at the end. The data set has the programs with the lowest
    numbers that can be made, whichever program is ready first.
    """
    known = journal.numbers()
    await asyncio.to_thread(shutil.rmtree, folder, True)
    await asyncio.to_thread(folder.mkdir)
    secret = hashlib.sha256(f"acceld dataset {order.seed}".encode()).digest()
    evaluator = SimulatedEvaluator(settings, folder / "state", secret=secret, preload=True)
    try:
        async with started(evaluator):
            maker = _Maker(order, evaluator, folder)
            numbers = _unlike(order.seed)
            running: set[asyncio.Task[tuple[Program, dict[str, float]]]] = set()
            made = failed = 0
            try:
                while True:
                    while made + len(running) < order.programs and len(running) < max(1, settings.slots):
                        one = next(numbers)
                        if one.number in known:
                            made += known[one.number]
                        else:
                            running.add(asyncio.create_task(maker.program(one)))
                    if not running:
                        return
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        program, seconds = task.result()
                        journal.add(program, seconds)
                        made += program.made
                        failed += not program.made
                        on_program(program)
                        if failed == MOST_FAILED and not made:
                            first = program.rejected[0]
                            raise AcceldError(
                                f"none of the first {failed} programs could be made; {program.name}: {first.message}",
                                hint="Give a new folder once the reason is gone: this folder keeps the failures.",
                            )
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unlike(seed: int) -> Iterator[Drawn]:
    """Yield the programs that a seed draws; a program whose reference was drawn before is left out."""
    seen: set[str] = set()
    number = 0
    while True:
        one = drawn(seed, number)
        if one.text not in seen:
            seen.add(one.text)
            yield one
        number += 1


@dataclass(frozen=True, slots=True)
class _Maker:
    order: Order
    evaluator: SimulatedEvaluator
    folder: Path

    async def program(self, one: Drawn) -> tuple[Program, dict[str, float]]:
        """Make a program. Return it, and the seconds that each stage took."""
        path, workload = self.folder / f"{one.name}.py", self.folder / one.name
        seconds = dict.fromkeys(STAGES, 0.0)
        found = Program(one.number, one.name, one.family, one.size, one.formula_sha256, one.text)
        try:
            members, rejected = await self._members(one, path, workload, seconds)
        except WorkloadError as error:
            members, rejected = [], [Rejected("no_reference", error.message[:_MESSAGE])]
        finally:
            path.unlink(missing_ok=True)
            await asyncio.to_thread(shutil.rmtree, workload, True)
        return replace(found, members=tuple(members), pairs=tuple(paired(members)), rejected=tuple(rejected)), seconds

    async def _members(
        self, one: Drawn, path: Path, folder: Path, seconds: dict[str, float]
    ) -> tuple[list[Member], list[Rejected]]:
        began = time.monotonic()
        await asyncio.to_thread(path.write_text, one.text, "utf-8")
        facts: ReferenceFacts = await asyncio.to_thread(reference_facts, path)
        lowered = await asyncio.to_thread(
            partial(write_reference_folder, path, facts, (), folder, name=one.name, plainer=PLAINER)
        )
        seconds["lowering"] += time.monotonic() - began
        api = self.order.api
        if api not in lowered.kernels:
            return [], [Rejected("not_lowered", lowered.refused[api][:_MESSAGE])]
        family = _Family(self, await asyncio.to_thread(load_workload, folder), seconds)
        for place, text in enumerate((lowered.kernels[api], *lowered.plainer[api])):
            await family.grow(place, text)
            if not family.members:
                return [], family.rejected
        return family.members, family.rejected


class _Family:
    """The kernels of one program, while it is made."""

    def __init__(self, maker: _Maker, workload: Workload, seconds: dict[str, float]) -> None:
        self._maker, self._workload, self._seconds = maker, workload, seconds
        self._passed: dict[str, Evaluation] = {}
        self._programs: set[str] = set()
        self.members: list[Member] = []
        self.rejected: list[Rejected] = []

    async def grow(self, root: int, text: str) -> None:
        """Add a lowered kernel, and kernels that rules make from it. A kernel is added if it is correct and no member
        has the same instructions.
        """
        tuner = Tuner(self._clock, self._moves, limit=TRIES.get(root, OTHER_TRIES))
        first = await tuner.root(text)
        if first is None or first.timed.program_sha256 in self._programs:
            return
        await tune(tuner, first)
        for program, one in tuner.seen.items():
            if program not in self._programs:
                self._programs.add(program)
                self.members.append(Member(one.text, root, one.steps, one.rules, _kept(self._passed[one.text])))

    async def _clock(self, text: str) -> TimedProgram | None:
        """Evaluate a kernel by the search gate. Return its simulated latency, the hash of its program and its
        profile.

        Return None if the kernel is not correct on data or has no latency.
        """
        kernel = Kernel(text, self._maker.order.api, entry=self._workload.entry or "", trusted=True)
        loaded = self._workload
        request = EvaluationRequest(
            kernel, loaded.name, self._maker.order.chip, run=RUN, workload_folder=str(loaded.folder), gate=Gate.SEARCH
        )
        reported = await self._maker.evaluator.evaluate(request)
        self._seconds["checking"] += sum(reported.seconds.values())
        if reported.status is not Status.PASSED or reported.latency_us is None:
            message = reported.failure.message if reported.failure else "the kernel's latency depends on data"
            wrong = text if reported.status in WRONG else ""
            self.rejected.append(Rejected(str(reported.status), message[:_MESSAGE], text=wrong))
            return None
        self._passed[text] = reported
        return TimedProgram(reported.latency_us, reported.program_sha256, reported.profile)

    def _moves(self, text: str, profile: Profile | None) -> Sequence[Move]:
        began = time.monotonic()
        launch = Launch(self._maker.order.api, self._workload.kernel_facts, self._workload.kernel_dtypes)
        found = moves(text, launch, profile)
        self._seconds["rewriting"] += time.monotonic() - began
        return found


def _kept(reported: Evaluation) -> Evaluation:
    """Return an evaluation without its timeline, and without what depends on the machine or the moment. Everything on
    which a pair's gain depends stays.
    """
    assert reported.profile is not None
    profile = replace(reported.profile, details=compared(reported.profile.details), notes=())
    return replace(reported, profile=profile, seconds={}, sandbox_level="", log="", reused=False)


def paired(members: Sequence[Member]) -> list[Pair]:
    """Return at most :data:`MOST_PAIRS` pairs of a slow and a fast kernel whose gain is certain. First come pairs whose
    fast kernel was made from the slow one by rules alone, then pairs of kernels that are in few pairs so far, then
    pairs with the greatest gain.
    """
    left: dict[Pair, tuple[bool, float]] = {}
    for slow, before in enumerate(members):
        for fast, after in enumerate(members):
            found = gain(before.evaluation.profile, after.evaluation.profile) if slow != fast else None
            if found is not None and found.improved:
                left[Pair(slow, fast)] = (after.rules_since(before) is None, -found.ratio)
    used = [0] * len(members)
    chosen: list[Pair] = []
    while left and len(chosen) < MOST_PAIRS:
        best = min(
            left,
            key=lambda pair: (left[pair][0], used[pair.slow] + used[pair.fast], left[pair][1], pair.slow, pair.fast),
        )
        del left[best]
        used[best.slow] += 1
        used[best.fast] += 1
        chosen.append(best)
    return chosen
