"""One evaluation on its way, and what it has gathered so far."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from acceld.evaluate.correctness.checks import correctness_of
from acceld.evaluate.correctness.gates import Seeds
from acceld.evaluate.interface import EvaluationRequest
from acceld.model import Check, Correctness, Evaluation, Failure, Profile, Status
from acceld.workloads import Workload

Bad = tuple[Status, Failure, Correctness | None]
"""Why a kernel does not pass."""


@dataclass(slots=True)
class Case:
    """One evaluation under way."""

    request: EvaluationRequest
    workload: Workload
    seeds: Seeds
    program_sha256: str = ""
    profile: Profile | None = None
    simulated: Evaluation | None = None
    checks: list[Check] = field(default_factory=list)
    worst_row: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """What leases know the kernel by: canaries that fail after it count against it."""
        return self.request.kernel.sha256

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add what a stage takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began

    def correctness(self) -> Correctness:
        """What the checks so far say."""
        return correctness_of(self.request.gate, self.checks, self.worst_row)
