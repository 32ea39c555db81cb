"""Define the state of one evaluation (:class:`Case`), and the failure that ends it (:class:`Failed`)."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from acceld.evaluate.correctness.checks import bounded, correctness_of, not_tried, worst_row
from acceld.evaluate.correctness.gates import Trial, TrialResult
from acceld.evaluate.interface import EvaluationRequest
from acceld.model import Check, Correctness, Failure, Gate, Profile, Status
from acceld.workloads import Workload

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Failed:
    """The failure of a kernel in one stage of its evaluation.

    A failure of the harness or of the device is an exception instead.
    """

    status: Status
    failure: Failure
    correctness: Correctness | None = None
    log: str = ""
    """Output of all tools that ran in the stage."""


@dataclass(slots=True)
class Case:
    """The state of one evaluation, which its stages fill in.

    ``loaded`` is None for a kernel without a workload. Such a kernel is only timed.
    """

    request: EvaluationRequest
    loaded: Workload | None
    program_sha256: str = ""
    """Hash of the built program."""
    profile: Profile | None = None
    checks: list[Check] = field(default_factory=list)
    """Checks in the order in which they ended; after :meth:`order`, in the order of their trials."""
    tried: dict[Trial, Check] = field(default_factory=dict)
    """The check of each trial, by trial."""
    worst_row: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    published: bool | None = None
    """Result of the published gate; None if the gate was not run."""
    log: str = ""
    reused: bool = False
    """True if no stage ran because the result of the same program is known."""

    @property
    def workload(self) -> Workload:
        """Return the workload. The evaluation of a kernel without a workload must not call this."""
        assert self.loaded is not None
        return self.loaded

    @property
    def program(self) -> tuple[str, str, str]:
        """Return the key under which results of equal programs are stored: workload hash, chip and program
        hash.

        If the workload has hidden shapes, the source's hash is appended to the program's.
        """
        # Two sources may make the same program at this shape and different programs at a hidden shape, so the source
        # counts too.
        source = self.request.kernel.sha256 if self.workload.hidden else ""
        return self.workload.hash, self.request.chip, self.program_sha256 + source

    def correctness(self, gate: Gate) -> Correctness:
        """Return a record of the checks done so far, as the result of ``gate``."""
        return correctness_of(gate, self.checks, self.worst_row, self.published)

    def spend(self, seconds: Mapping[str, float]) -> None:
        """Add seconds to the stages that are the keys of ``seconds``."""
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the duration of the block, and add it to the seconds of the stage ``name``."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.spend({name: time.monotonic() - began})

    def untried(self, name: str, reason: str, trial: Trial | None = None) -> None:
        """Record a passed check that says why the workload's data set ``name`` was not tried."""
        self._add(not_tried(name, reason), trial)

    def checked(self, result: TrialResult, gate: Gate, hint: str = "", trial: Trial | None = None) -> Failed | None:
        """Record the check of one data set. Return a Failed record if an error exceeds the tolerance, else None."""
        check = bounded(result.check)
        self._add(check, trial)
        self.worst_row = max(self.worst_row, worst_row(result.errors))
        if check.passed:
            return None
        failure = Failure("tolerance", f"{check.name}: {check.detail}", hint=hint)
        return Failed(Status.INCORRECT_NUMERICAL, failure, self.correctness(gate))

    def order(self, trials: Sequence[Trial]) -> None:
        """Sort the checks by the order of ``trials``. Checks without a trial go to the end.

        Sorting is needed because trials run at the same time, so they may end in another order than they began.
        """
        others = [check for check in self.checks if check not in self.tried.values()]
        self.checks = [*(self.tried[trial] for trial in trials if trial in self.tried), *others]

    def _add(self, check: Check, trial: Trial | None) -> None:
        """Record a check, and remember it as the check of ``trial`` unless ``trial`` is None."""
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
        """Return the value of ``key``. If no value is stored, store and return the result of ``make()``."""
        self[key] = value = self[key] if key in self else make()
        return value
