"""Hold the state of one evaluation, and the failure that ends it."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from acceld.evaluate.correctness.checks import bounded, correctness_of, worst_row
from acceld.evaluate.correctness.gates import Trial, TrialResult
from acceld.evaluate.interface import EvaluationRequest
from acceld.model import Check, Correctness, Failure, Gate, Profile, Status
from acceld.workloads import Workload

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Failed:
    """Describe the failure of a kernel in one stage. A failure of the harness or the device is an exception instead."""

    status: Status
    failure: Failure
    correctness: Correctness | None = None
    log: str = ""
    """Output of all tools that ran in the stage."""


@dataclass(slots=True)
class Case:
    """Hold the state of one evaluation. ``loaded`` is None for a kernel without a workload, which is only timed."""

    request: EvaluationRequest
    loaded: Workload | None
    program_sha256: str = ""
    """Hash of the built program."""
    profile: Profile | None = None
    checks: list[Check] = field(default_factory=list)
    """Checks in the order in which they ended; after :meth:`order`, in the order of their trials."""
    tried: dict[Trial, Check] = field(default_factory=dict)
    """The check of each trial."""
    worst_row: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    published: bool | None = None
    """Result of the published gate; None if the gate was not run."""
    log: str = ""
    reused: bool = False
    """True if nothing was run because the result of the same program is known."""

    @property
    def workload(self) -> Workload:
        """Return the workload. Not for a kernel without a workload."""
        assert self.loaded is not None
        return self.loaded

    @property
    def program(self) -> tuple[str, str, str]:
        """Return the key by which evaluations of the same program are shared: workload, chip and program."""
        # Two sources may make the same program at this shape and different ones at a hidden shape, so the source counts
        # too.
        source = self.request.kernel.sha256 if self.workload.hidden else ""
        return self.workload.hash, self.request.chip, self.program_sha256 + source

    def correctness(self, gate: Gate) -> Correctness:
        """Return the record of the checks so far."""
        return correctness_of(gate, self.checks, self.worst_row, self.published)

    def spend(self, seconds: Mapping[str, float]) -> None:
        """Add the duration of stages, by name."""
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the duration of the block to the seconds of the stage ``name``."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.spend({name: time.monotonic() - began})

    def refused(self, name: str, reason: str, trial: Trial | None = None) -> None:
        """Record that a variant was not tried, because the workload can not be checked on it."""
        self._add(Check(f"{name} (not tried: {reason})", True), trial)

    def checked(self, result: TrialResult, gate: Gate, hint: str = "", trial: Trial | None = None) -> Failed | None:
        """Record the result of one data set. Return the failure if an error exceeds the tolerance."""
        check = bounded(result.check)
        self._add(check, trial)
        self.worst_row = max(self.worst_row, worst_row(result.errors))
        if check.passed:
            return None
        failure = Failure("tolerance", f"{check.name}: {check.detail}", hint=hint)
        return Failed(Status.INCORRECT_NUMERICAL, failure, self.correctness(gate))

    def order(self, trials: Sequence[Trial]) -> None:
        """Sort the checks by the order of their trials. Two trials that ran at the same time may have ended in another
        order.
        """
        others = [check for check in self.checks if check not in self.tried.values()]
        self.checks = [*(self.tried[trial] for trial in trials if trial in self.tried), *others]

    def _add(self, check: Check, trial: Trial | None) -> None:
        """Record a check, and the trial that it belongs to."""
        self.checks.append(check)
        if trial is not None:
            self.tried[trial] = check


class RecentlyUsed(OrderedDict[K, V]):
    """Map keys to values, and keep only the ``most`` most recently used entries."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        """Set an entry, and remove the least recently used entries beyond the limit."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)

    def keep(self, key: K, make: Callable[[], V]) -> V:
        """Return the entry of ``key``. If there is none, ``make`` makes it."""
        self[key] = value = self[key] if key in self else make()
        return value
