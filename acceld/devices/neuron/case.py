"""Define the record of one evaluation on Trainium."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from acceld.devices.neuron.runtime.cache import Compiled
from acceld.devices.neuron.runtime.requests import CompileRequest
from acceld.evaluate.case import Case
from acceld.evaluate.correctness.gates import Seeds
from acceld.model import Evaluation

Build = tuple[CompileRequest, Compiled]


@dataclass(slots=True, kw_only=True)
class NeuronCase(Case):
    """One evaluation on Trainium: the request, the run's seeds, the compiled kernel and the simulator's prediction."""

    seeds: Seeds
    compiled: Build | None = None
    simulated: Evaluation | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def build(self) -> Build:
        """Return the compiled kernel, which exists once the evaluator's ``build`` has succeeded."""
        assert self.compiled is not None
        return self.compiled

    @property
    def identity(self) -> str:
        """Return the kernel's id. If known-good kernels fail on a core after this kernel ran there, the failures are
        counted under this id.
        """
        return self.request.kernel.sha256
