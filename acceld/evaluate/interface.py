"""Define the interface between the search and the evaluators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from acceld.config import DevicesConfig, EvaluateConfig
from acceld.model import Evaluation, Gate, Kernel
from acceld.targets import SIMULATOR
from acceld.workloads import Arguments

if TYPE_CHECKING:
    from acceld.evaluate.sandbox.jail import Level


class Priority(IntEnum):
    """Priority of a request; lower goes first."""

    PERSON = 0
    BASELINE = 1
    STRICT = 2
    SEARCH = 3


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """One candidate to evaluate.

    ``gate`` is the last gate to try: ``TIMING`` stops at the simulated latency (``untested``), ``SEARCH`` runs one data
    set, ``STRICT`` five fresh seeds and all distributions. A candidate slower than ``useful_below_us`` can neither
    enter the beam nor teach and ends ``untested``. ``run`` names the run, whose secret data set the search gate draws;
    it is not the search's seed.
    """

    kernel: Kernel
    workload: str
    chip: str
    backend: str = SIMULATOR
    run: int = 0
    candidate: int = 0
    workload_folder: str = ""
    shape: tuple[tuple[str, int], ...] = ()
    """Values of symbols: the one shape to evaluate at. Empty: every shape that the workload lists."""
    gate: Gate = Gate.SEARCH
    priority: Priority = Priority.SEARCH
    useful_below_us: float | None = None
    against: tuple[Kernel, ...] = ()
    """Competitors: the parent first, then the run's baseline.

    They are timed interleaved if the gate is ``STRICT`` or the request belongs to no run. If ``screen`` is on, the
    parent's prediction decides. Not part of the key.
    """
    screen: bool = False
    """True if a candidate is not measured when the simulator finds it clearly slower than its parent."""
    against_us: tuple[float, ...] = ()
    """Latencies of ``against`` in the run. A fleet converts other hosts' latencies with them."""
    canary: Kernel | None = None
    """The run's baseline. On a fleet it must pass on a host before that host's results of the run count."""
    host: str = ""
    """The only host of a fleet to evaluate on; empty: any."""
    interleave: bool = False
    """True if the candidate is timed interleaved with its competitors at the search gate too."""
    practice: bool = False
    """True for a request of a model's tool. It uses a data set that no gate uses; the result decides nothing and is not
    reused.
    """
    arguments: Arguments | None = None
    """Arguments of a kernel that has no workload, which is only timed. None for a kernel with a workload."""
    context: str = ""
    """Versions of everything besides the kernel that a result depends on: the workload's content, the performance
    model.
    """

    @property
    def needs_proof(self) -> bool:
        """True if its latency may be shown as a win. A baseline's never is: other kernels are compared with it."""
        return self.priority is not Priority.BASELINE

    @property
    def key(self) -> str:
        """Key that is equal for equal work. It is stored, so that no work is done twice."""
        parts = (self.workload, self.context, self.backend, self.chip, self.gate, self.kernel.sha256)
        at = (f"{name}={extent}" for name, extent in self.shape)
        return "/".join(filter(None, (*parts, *at, "screened" if self.screen else "")))


@dataclass(frozen=True, slots=True)
class Workplace:
    """Configuration, folders and callbacks for building evaluators."""

    config: EvaluateConfig
    devices: DevicesConfig
    state_folder: Path
    workload_folders: tuple[Path | str, ...] = ()
    on_start: Callable[[EvaluationRequest, str], Awaitable[None]] | None = None
    """Called when an evaluation gets a slot or a core, with the slot's name."""
    on_notice: Callable[[int, str, str], Awaitable[object]] | None = None
    """Called with a message for people: run, level, text."""
    on_device: Callable[[str, str, str], Awaitable[object]] | None = None
    """Called when a device changes, with its name, its state and the reason."""
    simulator: Callable[[], Awaitable[Evaluator]] | None = None
    """Returns the started evaluator that predicts; None if there is none."""
    highest: Level | None = None
    """The strictest sandbox level to use; None means the strictest that works."""


class Evaluator(Protocol):
    """Interface of evaluators. A bad kernel is a value; an exception means that the harness failed."""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Wait for a slot, evaluate, and return the result.

        Raises DeviceError if no device can evaluate it, and UsageError for a workload that can not be used.
        """
        ...

    async def start(self) -> None:
        """Start the child processes and find the sandbox level."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Give running evaluations ``grace_s``, then end every child and its tree."""
        ...

    def statistics(self) -> dict[str, object]:
        """Return depth and age of the queue, slots in use, sandbox level: for the status page."""
        ...


@asynccontextmanager
async def started(evaluator: Evaluator) -> AsyncIterator[Evaluator]:
    """Start an evaluator for the duration of the block."""
    await evaluator.start()
    try:
        yield evaluator
    finally:
        await evaluator.stop(0.0)
