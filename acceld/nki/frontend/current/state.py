"""Hold the state of one trace of a kernel of the current API."""

from __future__ import annotations

from typing import Any

from acceld.nki.frontend.core.state import Trace, current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current.loop_rerolling import Sample
from acceld.nki.frontend.current.tensor import NkiTensor
from acceld.nki.frontend.session import Session, Site
from acceld.nki.ir.builder import Slot
from acceld.nki.ir.program import RUN_TIME


class SamplesWanted(BaseException):
    """Raised to trace a long kernel again with samples. It is a BaseException, so that a kernel does not catch it."""


class CurrentTrace(Trace):
    """A trace whose tensors have the current API's methods, and whose programs share their HBM tensors."""

    tensor_class = NkiTensor
    hbm_drops_axes = True

    def __init__(
        self,
        session: Session,
        keep: frozenset[Site],
        flatten: frozenset[Site],
        unroll: frozenset[Site] = frozenset(),
        samples: dict[int, Sample] | None = None,
    ) -> None:
        super().__init__(session, unroll, keep, flatten)
        self.samples = samples
        """By loop of one sampled iteration, its Sample; None if every iteration is traced."""
        self.sampling_after: int | None = None
        """Number of instructions after which to trace again with samples."""

    def emit(self, *args: Any, **kwargs: Any) -> Slot:
        """Append an instruction. Raises SamplesWanted if there are too many."""
        if self.sampling_after is not None and self.sequence > self.sampling_after:
            raise SamplesWanted
        return super().emit(*args, **kwargs)

    def reaches(self, tensor: Tensor) -> bool:
        """Return True if a tensor may be used here. Only a run-time loop hides the tensors declared in it."""
        return all(loop in self.scope for loop in tensor.scope if self.kinds.get(loop) in RUN_TIME)


def current_trace() -> CurrentTrace:
    """Return the running trace, which is one of the current API."""
    trace = current()
    assert isinstance(trace, CurrentTrace)
    return trace
