"""Define the state of one evaluation on the simulator."""

from __future__ import annotations

from dataclasses import dataclass, field

from acceld.evaluate.case import Case, Failed
from acceld.evaluate.correctness.gates import Trial
from acceld.evaluate.simulated.children import Traced, Tried
from acceld.evaluate.simulated.early import Early
from acceld.model import Correctness, Gate


@dataclass(slots=True)
class Known:
    """The results of the search gate and the strict gate for one program, workload and chip."""

    checks: dict[Gate, Correctness] = field(default_factory=dict)
    failed: dict[Gate, Failed] = field(default_factory=dict)
    on_chip: str = ""
    """A sentence on the result that the program is expected to have on a chip; empty if no result is expected."""
    last: tuple[str, int, Tried] | None = None
    """Variant, seed and result of the last plain run on inputs of the workload's own distribution; None if no such run
    was made.
    """

    def plain_run(self, trial: Trial) -> Tried | None:
        """Return the result of the last run that executed the program in its own order, if that run was on the data set
        of ``trial``; else None.
        """
        if self.last is None or self.last[:2] != (trial.variant, trial.seed):
            return None
        return self.last[2]


@dataclass(slots=True)
class TracedCase(Case):
    """The state of one evaluation on the simulator, with the tracer's answer and earlier results of the same
    program.
    """

    traced: Traced | None = None
    known: Known = field(default_factory=Known)
    runs: int = 0
    """The number of trials in which the program ran."""
    early: Early | None = None
    """The search gate, if it began before the program was verified; else None."""

    def close(self) -> None:
        """Free the memory of the tracer's answer."""
        if self.traced is not None:
            self.traced.close()
