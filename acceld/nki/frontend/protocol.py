"""Define the interface between an API generation and the tracer."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol

from acceld.nki.frontend.session import Session
from acceld.nki.ir.program import Program

WHILE, IS = "__acceld_while__", "__acceld_is__"
"""Names by which a kernel's file finds a front end's version of ``while x`` and of ``x is y``."""


class FrontEnd(Protocol):
    """Interface of an API generation, for one trace."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Packages of the API. Everything below them comes from ``modules`` and nowhere else."""
        ...

    @property
    def prelude(self) -> str:
        """Import lines for a kernel file that has none."""
        ...

    @property
    def statements(self) -> Mapping[str, Callable[..., object]]:
        """Run-time functions that replace the Python statements to which this API gives another meaning, such as ``while``
        (:data:`WHILE`) and ``is`` (:data:`IS`).
        """
        ...

    def __init__(self, session: Session) -> None: ...

    def modules(self) -> Mapping[str, ModuleType]:
        """Return the modules that a kernel may import, by full name."""
        ...

    def read(self, tree: ast.Module) -> None:
        """Check the syntax tree of the kernel's file before it is loaded. LegalityError for what the API does not read."""
        ...

    def run(self, function: Any, arguments: Mapping[str, object]) -> Program:
        """Call the kernel with tensors for its TensorSpecs and finish the program."""
        ...
