"""Run a daemon whose evaluator and proposer are scripted: ``python -m tests.acceld.daemon.scripted --home DIR``.

A kernel's text is ``latency N``. A plan makes its parent a tenth faster. Each evaluation takes ``SCRIPTED_S`` seconds
(default 0.005); its key is then written to the file ``SCRIPTED_LOG``, one key a line.

The file ``SCRIPTED_STUCK`` names workloads whose candidates are held. An evaluation of a candidate of a named workload
never ends. A candidate of a workload named as ``strict/WORKLOAD`` is held at the strict gate until the name is removed
from the file. When an evaluation is held and no other is, the evaluator adds the name once more, which tells the test.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from acceld.config import Config
from acceld.daemon.parts import Parts
from acceld.daemon.process import main
from acceld.daemon.runs import Searching
from acceld.errors import WorkloadError
from acceld.evaluate.interface import EvaluationRequest, Priority
from acceld.home import Home
from acceld.model import (
    PROPOSERS,
    Attempt,
    Check,
    Correctness,
    Evaluation,
    Failure,
    Gate,
    Insight,
    Kernel,
    Plan,
    Profile,
    Run,
    Source,
    Status,
)
from acceld.proposers.interface import AttemptRequest, FirstRequest, FixRequest, PlanRequest, Problem, SummaryRequest
from acceld.search.control import RunControl
from acceld.search.loop import Search, SearchParts
from acceld.store.database import Store


class ScriptedEvaluator:
    """Reads the latency from the kernel's text."""

    def __init__(self, delay_s: float = 0.005, log: Path | None = None, stuck: Path | None = None) -> None:
        self.delay_s = delay_s
        self.log = log
        self.stuck = stuck
        self.holds = False
        self.running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self, grace_s: float) -> None:
        """Wait for running evaluations."""
        await asyncio.wait_for(self._idle.wait(), grace_s + 0.1)

    def statistics(self) -> dict[str, object]:
        """Return depth and age, with the real queue's keys."""
        return {"slots": 2, "slots_in_use": self.running, "waiting": 0, "oldest_waiting_s": 0.0, "sandbox_level": "L3"}

    def _sticks(self, name: str, place: Path) -> bool:
        """Return True if the file has the name. If no evaluation is held yet, add the name once more."""
        names = place.read_text("utf-8").split()
        if name in names and not self.holds:
            self.holds = True
            place.write_text(" ".join([*names, name]), "utf-8")
        return name in names

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Return a result after a delay."""
        self.running += 1
        self._idle.clear()
        try:
            await asyncio.sleep(self.delay_s)
            searched = request.priority is not Priority.BASELINE
            if searched and self.stuck is not None:
                if self._sticks(request.workload, self.stuck):
                    await asyncio.Event().wait()
                while request.gate is Gate.STRICT and self._sticks(f"strict/{request.workload}", self.stuck):  # noqa: ASYNC110  a file tells nobody
                    await asyncio.sleep(0.01)
        finally:
            self.running -= 1
            if not self.running:
                self.holds = False
                self._idle.set()
        if self.log is not None:
            with self.log.open("a") as stream:
                stream.write(f"{request.key}\n")
        sha = request.kernel.sha256
        words = request.kernel.text.split()
        if words[:1] != ["latency"]:
            return Evaluation(Status.COMPILE_ERROR, sha, failure=Failure("syntax", "this is not a kernel", 1))
        profile = Profile(Source.SIMULATED, request.chip, request.kernel.api, float(words[1]), "scripted")
        if request.gate is Gate.TIMING:
            return Evaluation(Status.UNTESTED, sha, program_sha256=sha, profile=profile)
        correctness = Correctness(request.gate, 1e-7, 1e-5, checks=(Check("own", True),))
        return Evaluation(
            Status.PASSED, sha, program_sha256=sha, profile=profile, correctness=correctness, sandbox_level="L3"
        )


FASTEST_US = 50.0
"""Kernels of this latency become no faster, so that a suite, which goes on while it gains, ends soon."""


class TenthFaster:
    """Makes a kernel a tenth faster by each plan, down to ``FASTEST_US``. Every third answer is not a kernel."""

    name = "rules"
    abilities = PROPOSERS[name]

    async def first(self, request: FirstRequest) -> str | None:
        """Return None: every search starts from a given kernel."""
        return None

    async def plan(self, request: PlanRequest) -> Plan | None:
        """Return a plan."""
        return Plan(request.run, request.iteration, request.parent.id, request.index, "be faster", rule="tenth")

    async def attempt(self, request: AttemptRequest) -> Attempt | None:
        """Return a kernel."""
        latency = float(request.parent.kernel.text.split()[1])
        broken = (request.plan.index + request.index) % 3 == 2
        note = f"{request.plan.iteration} {request.plan.index} {request.index}"
        _, _, rest = request.parent.kernel.text.partition("\n")
        faster = max(latency * 0.9, FASTEST_US)
        text = "broken " + note if broken else f"latency {faster:.3f} # {note}" + (f"\n{rest}" if rest else "")
        return Attempt(request.plan.id, request.index, text)

    async def fix(self, request: FixRequest) -> Attempt | None:
        """Return None: nothing is repaired."""
        return None

    async def summarize(self, request: SummaryRequest) -> Insight | None:
        """Return None: nothing is learned."""
        return None


async def scripted_parts(config: Config, home: Home, store: Store, keys: Mapping[str, str]) -> Parts:
    """Return parts without children or models."""
    log, stuck = (
        Path(place) if (place := os.environ.get(name)) else None for name in ("SCRIPTED_LOG", "SCRIPTED_STUCK")
    )
    evaluator = ScriptedEvaluator(float(os.environ.get("SCRIPTED_S", "0.005")), log, stuck)

    async def make_search(run: Run, control: RunControl) -> Searching:
        if run.spec.name == "unreadable":
            raise WorkloadError("the reference can not be read")
        if run.spec.name == "defect":
            raise ZeroDivisionError("a defect")
        problem = Problem(run.spec.workload, "", "", (), run.spec.chip, run.spec.api)
        root = run.spec.root or Kernel("latency 100", "nki_legacy", "kernel")
        return Search(run, SearchParts(store, evaluator, TenthFaster(), problem, root), control)

    return Parts(evaluator, make_search)


if __name__ == "__main__":
    sys.exit(main(make_parts=scripted_parts))
