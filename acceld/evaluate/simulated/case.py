"""One evaluation on the simulator on its way, and what it has gathered so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from acceld.evaluate.correctness.checks import correctness_of
from acceld.evaluate.interface import EvaluationRequest
from acceld.evaluate.simulated.children import Inspected, Traced
from acceld.model import Check, Correctness, Failure, Gate, Profile, Status
from acceld.workloads import Workload

Bad = tuple[Status, Failure, Correctness | None]
"""Why a kernel does not pass."""


@dataclass(slots=True)
class Case:
    """One evaluation under way. ``workload`` is None where a kernel is only timed."""

    request: EvaluationRequest
    workload: Workload | None
    traced: Traced | None = None
    inspected: Inspected | None = None
    profile: Profile | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    worst_row: float = 0.0

    def correctness(self, gate: Gate) -> Correctness:
        """What the checks so far say."""
        return correctness_of(gate, self.checks, self.worst_row)

    def spend(self, seconds: dict[str, float]) -> None:
        """Add what a stage took."""
        for name, value in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + value

    def close(self) -> None:
        """Free what the tracer answered."""
        if self.traced is not None:
            self.traced.close()
