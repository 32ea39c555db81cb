"""One evaluation on Trainium under way."""

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
    """A case with its run's seeds, what it was compiled into and what the simulator predicts."""

    seeds: Seeds
    compiled: Build | None = None
    simulated: Evaluation | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def build(self) -> Build:
        """The compiled kernel; there is one from the stage after building."""
        assert self.compiled is not None
        return self.compiled

    @property
    def identity(self) -> str:
        """The name that leases know the kernel by: canaries that fail after it count against it."""
        return self.request.kernel.sha256
