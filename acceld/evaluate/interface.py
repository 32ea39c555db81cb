"""Define the request, the interface and the surroundings of evaluators, which the search and the evaluators
share.
"""

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
    """The priorities of requests in the queue. The lowest number is served first."""

    PERSON = 0
    BASELINE = 1
    STRICT = 2
    SEARCH = 3


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """One candidate to evaluate, and how far.

    - ``gate``: the last gate to run. ``TIMING`` ends after the latency (status ``untested``). ``SEARCH`` also
      runs one data set. ``STRICT`` also runs five fresh seeds and every distribution.
    - ``useful_below_us``: a candidate slower than this can neither enter the beam nor teach, so it ends
      ``untested``.
    - ``run``: the number of the run, from which the secret data set of the search gate follows. This is not the
      search's seed.
    """

    kernel: Kernel
    workload: str
    chip: str
    backend: str = SIMULATOR
    run: int = 0
    candidate: int = 0
    workload_folder: str = ""
    shape: tuple[tuple[str, int], ...] = ()
    """Values of the workload's symbols, to evaluate at that one shape; empty to evaluate at every shape that the
    workload lists.
    """
    gate: Gate = Gate.SEARCH
    priority: Priority = Priority.SEARCH
    useful_below_us: float | None = None
    against: tuple[Kernel, ...] = ()
    """Competitors: the parent first, then the run's baseline.

    Competitors are timed interleaved with the candidate if the gate is ``STRICT`` or the request belongs to no run. If
    ``screen`` is True, the predicted latency of the parent decides whether the candidate is measured. Competitors are
    no part of :attr:`key`.
    """
    screen: bool = False
    """True if a candidate that the simulator finds clearly slower than its parent is not measured."""
    against_us: tuple[float, ...] = ()
    """Latencies of ``against`` in the run. A fleet uses them to convert latencies that another host measured."""
    canary: Kernel | None = None
    """The run's baseline. On a fleet, a host's results for the run count only after the baseline has passed on that
    host.
    """
    host: str = ""
    """The host of a fleet on which to evaluate; empty for any host."""
    interleave: bool = False
    """True if the candidate is timed interleaved with its competitors at the search gate too."""
    practice: bool = False
    """True for a request of a model's tool. Such a request uses a data set that no gate uses. The result counts for no
    gate and is not stored for reuse.
    """
    written_out: bool = False
    """True if the profile's details shall also have the kernel written out from its trace, as ``written_out``, or the
    reason why it is not, as ``not_written_out``.
    """
    arguments: Arguments | None = None
    """Arguments of a kernel without a workload, which is only timed; None for a kernel with a workload."""
    context: str = ""
    """Versions of everything besides the kernel on which a result depends: the workload's content, the performance
    model.
    """

    @property
    def needs_proof(self) -> bool:
        """Tell whether the latency may be shown as a win, so that the workload's checks must be strong enough to
        prove it. Return False only for a baseline, with which other kernels are compared.
        """
        return self.priority is not Priority.BASELINE

    @property
    def key(self) -> str:
        """Return a key that is equal for requests that have the same result. Stored results are found by this
        key.
        """
        parts = (self.workload, self.context, self.backend, self.chip, self.gate, self.kernel.sha256)
        at = (f"{name}={extent}" for name, extent in self.shape)
        return "/".join(filter(None, (*parts, *at, "screened" if self.screen else "")))


@dataclass(frozen=True, slots=True)
class Workplace:
    """The configuration, folders and callbacks from which evaluators are built."""

    config: EvaluateConfig
    devices: DevicesConfig
    state_folder: Path
    workload_folders: tuple[Path | str, ...] = ()
    on_start: Callable[[EvaluationRequest, str], Awaitable[None]] | None = None
    """Function that is called when an evaluation gets a slot or a core, with the slot's name."""
    on_notice: Callable[[int, str, str], Awaitable[object]] | None = None
    """Function that is called with a message for people: run, level, text."""
    on_device: Callable[[str, str, str], Awaitable[object]] | None = None
    """Function that is called when the state of a device changes, with the device's name, its state and the reason."""
    simulator: Callable[[], Awaitable[Evaluator]] | None = None
    """Function that returns the started evaluator that predicts latencies; None if the machine has no such evaluator.
    """
    highest: Level | None = None
    """The strictest sandbox level to use; None for the strictest that works."""


class Evaluator(Protocol):
    """The interface of every evaluator. A kernel that fails is a result; an exception means that the harness
    failed.
    """

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Wait for a free slot, evaluate the candidate of the request, and return the result.

        Raise DeviceError if no device can evaluate the candidate, UsageError if the workload can not be used.
        """
        ...

    async def start(self) -> None:
        """Find the sandbox level, and start the child processes."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Give running evaluations ``grace_s`` seconds to end. Then end every child process and its
        descendants.
        """
        ...

    def statistics(self) -> dict[str, object]:
        """Return figures for the status page: queue length, age of the oldest request, slots in use, sandbox
        level.
        """
        ...


def slots_reported(evaluator: Evaluator) -> int:
    """Return how many evaluations run at the same time; 0 if the evaluator's figures do not say."""
    slots = evaluator.statistics().get("slots")
    return slots if isinstance(slots, int) else 0


@asynccontextmanager
async def started(evaluator: Evaluator) -> AsyncIterator[Evaluator]:
    """Start an evaluator, yield it to the block, and stop it after the block."""
    await evaluator.start()
    try:
        yield evaluator
    finally:
        await evaluator.stop(0.0)
