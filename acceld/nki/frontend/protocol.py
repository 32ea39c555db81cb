"""Interface of an API generation to the tracer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol

from acceld.nki.frontend.session import Session
from acceld.nki.ir.program import Program

WHILE, IS = "__acceld_while__", "__acceld_is__"
"""Names under which a kernel's file finds a front end's meaning of ``while x`` and of ``x is y``."""


class FrontEnd(Protocol):
    """One API generation, for one trace."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Packages that belong to the API: everything below them comes from ``modules`` and nowhere else."""
        ...

    @property
    def prelude(self) -> str:
        """Import lines for a kernel file that has none."""
        ...

    @property
    def statements(self) -> Mapping[str, Callable[..., object]]:
        """The statements that the API reads differently from Python: members of :data:`WHILE` and :data:`IS`."""
        ...

    def __init__(self, session: Session) -> None: ...

    def modules(self) -> Mapping[str, ModuleType]:
        """The modules a kernel may import, by full name."""
        ...

    def run(self, function: Any, arguments: Mapping[str, object]) -> Program:
        """Call the kernel with tensors for its TensorSpecs and finish the program."""
        ...
