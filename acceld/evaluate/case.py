"""Hold the state of one evaluation, and the stage at which a kernel failed."""

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
    """A stage that a kernel did not pass. Faults of the harness or the device are exceptions instead."""

    status: Status
    failure: Failure
    correctness: Correctness | None = None
    log: str = ""
    """The output of all tools, for the log."""


@dataclass(slots=True)
class Case:
    """State of one evaluation. ``loaded`` is None if a kernel is only timed."""

    request: EvaluationRequest
    loaded: Workload | None
    program_sha256: str = ""
    """Hash of the built program."""
    profile: Profile | None = None
    checks: list[Check] = field(default_factory=list)
    """Checks in the order in which they ended; in the order of their trials after :meth:`order`."""
    tried: dict[Trial, Check] = field(default_factory=dict)
    """The check of each trial."""
    worst_row: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    published: bool | None = None
    """Result of the published gate; None if it was not run."""
    log: str = ""
    reused: bool = False
    """True if nothing was run because the same program was evaluated before."""

    @property
    def workload(self) -> Workload:
        """The workload. Not valid for a kernel that is only timed."""
        assert self.loaded is not None
        return self.loaded

    @property
    def program(self) -> tuple[str, str, str]:
        """Key of evaluations that may be shared: workload, chip and built program."""
        # Two sources may make one program at this shape, and differ at a hidden one.
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
        """Add the duration of the block."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.spend({name: time.monotonic() - began})

    def refused(self, name: str, reason: str, trial: Trial | None = None) -> None:
        """Record a variant that is not used because the workload can not be checked on it."""
        self._add(Check(f"{name} (not tried: {reason})", True), trial)

    def checked(self, result: TrialResult, gate: Gate, hint: str = "", trial: Trial | None = None) -> Failed | None:
        """Record the result of one data set. Return the failure if it is beyond the tolerance."""
        check = bounded(result.check)
        self._add(check, trial)
        self.worst_row = max(self.worst_row, worst_row(result.errors))
        if check.passed:
            return None
        failure = Failure("tolerance", f"{check.name}: {check.detail}", hint=hint)
        return Failed(Status.INCORRECT_NUMERICAL, failure, self.correctness(gate))

    def order(self, trials: Sequence[Trial]) -> None:
        """Sort the checks by the order of their trials, two of which may have run at the same time."""
        others = [check for check in self.checks if check not in self.tried.values()]
        self.checks = [*(self.tried[trial] for trial in trials if trial in self.tried), *others]

    def _add(self, check: Check, trial: Trial | None) -> None:
        self.checks.append(check)
        if trial is not None:
            self.tried[trial] = check


class Recent(OrderedDict[K, V]):
    """A mapping that keeps the ``most`` most recently used entries."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        """Add an entry, and forget the least recently used ones."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)

    def keep(self, key: K, make: Callable[[], V]) -> V:
        """Return the entry of a key; the first call makes it."""
        self[key] = value = self[key] if key in self else make()
        return value
