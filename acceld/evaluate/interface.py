"""The interface between the search and the evaluators."""

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

if TYPE_CHECKING:
    from acceld.evaluate.sandbox.jail import Level


class Priority(IntEnum):
    """Lower goes first."""

    PERSON = 0
    BASELINE = 1
    STRICT = 2
    SEARCH = 3


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """One candidate to evaluate.

    ``gate`` is how far to go: ``TIMING`` stops at the simulated latency (``untested``), ``SEARCH`` runs one data
    set, ``STRICT`` five fresh seeds and all distributions.
    A candidate slower than ``useful_below_us`` can neither enter the beam nor teach and ends ``untested``.
    ``run`` names the run, whose secret data set the search gate draws; it is not the search's seed.
    """

    kernel: Kernel
    workload: str
    chip: str
    backend: str = SIMULATOR
    run: int = 0
    candidate: int = 0
    workload_folder: str = ""
    gate: Gate = Gate.SEARCH
    priority: Priority = Priority.SEARCH
    useful_below_us: float | None = None
    against: tuple[Kernel, ...] = ()
    """Competitors, its parent first, then the run's baseline: timed interleaved with it where the gate is ``STRICT`` or no
    run asks; the parent's prediction decides where ``screen`` is on. Not part of the key."""
    screen: bool = False
    """Do not measure what the simulator finds clearly slower than the parent."""
    against_us: tuple[float, ...] = ()
    """Latencies of ``against`` as the run knows them; on a fleet, the unit that another host's latencies are brought to."""
    canary: Kernel | None = None
    """The run's baseline: on a fleet it must have passed on a host before that host evaluates the run's candidates."""
    host: str = ""
    """The only host of a fleet to evaluate on; empty: any."""
    interleave: bool = False
    """Time interleaved with the competitors at the search gate too."""
    practice: bool = False
    """Asked by a model's tool: on a data set of the run that no gate uses. The result decides nothing and is not reused."""
    context: str = ""
    """Versions of what decides a result besides the kernel: the workload's content, the performance model."""

    @property
    def needs_proof(self) -> bool:
        """True if its latency may be shown as a win; a baseline is only what others are compared with."""
        return self.priority is not Priority.BASELINE

    @property
    def key(self) -> str:
        """Key that is equal for equal work: journalled so that none is done twice."""
        parts = (self.workload, self.context, self.backend, self.chip, self.gate, self.kernel.sha256)
        return "/".join(filter(None, (*parts, "screened" if self.screen else "")))


@dataclass(frozen=True, slots=True)
class Workplace:
    """Configuration, folders and callbacks that evaluators are built from."""

    config: EvaluateConfig
    devices: DevicesConfig
    state_folder: Path
    workload_folders: tuple[Path | str, ...] = ()
    on_start: Callable[[EvaluationRequest, str], Awaitable[None]] | None = None
    """Called with each evaluation that gets a slot or a core, and its name."""
    on_notice: Callable[[int, str, str], Awaitable[object]] | None = None
    """Called with what a person should know: run, level, text."""
    on_device: Callable[[str, str, str], Awaitable[object]] | None = None
    """Called when a device changes: its name, its state, and why."""
    simulator: Callable[[], Awaitable[Evaluator]] | None = None
    """Returns the started evaluator that predicts; None if there is none."""
    highest: Level | None = None
    """The strictest sandbox level to use; None: the strictest that works."""


class Evaluator(Protocol):
    """Evaluates candidates. A bad kernel is a value; an exception means that the harness broke."""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Wait for a slot, evaluate, and return the result.

        Raises DeviceError when no device can do it, and UsageError for a workload that can not be used.
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
