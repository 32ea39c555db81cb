"""The state of one trace of a kernel of the current API."""

from __future__ import annotations

from acceld.nki.current.tensor import NkiTensor
from acceld.nki.frontend.state import Trace, current
from acceld.nki.frontend.tensor import Tensor
from acceld.nki.program import Access, LoopKind
from acceld.nki.session import Session, Site


class CurrentTrace(Trace):
    """A trace whose tensors have the current API's methods and whose programs share their HBM tensors."""

    def __init__(self, session: Session, keep: frozenset[Site], flatten: frozenset[Site]) -> None:
        super().__init__(session, frozenset(), keep, flatten)

    def tensor(self, access: Access, scope: tuple[int, ...]) -> Tensor:
        """A view with the current API's methods."""
        return NkiTensor(access, scope)

    def reaches(self, tensor: Tensor) -> bool:
        """Whether a tensor may be used here: only a run-time loop keeps what is declared in it to itself."""
        return all(loop in self.scope for loop in tensor.scope if self.kinds.get(loop) is LoopKind.DYNAMIC)


def current_trace() -> CurrentTrace:
    """The running trace, which is one of the current API."""
    trace = current()
    assert isinstance(trace, CurrentTrace)
    return trace
