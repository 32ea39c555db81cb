"""Define the interface of a front end, which the tracer uses."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol

from acceld.nki.frontend.session import Session
from acceld.nki.ir.program import Program

WHILE, IS, PLAIN = "acceld while", "acceld is", "acceld plain"
"""Names by which a rewritten kernel file calls three functions of the front end: for ``while x``, for ``x is y``,
and for the plain value that ``isinstance`` and similar functions get in place of a loop's index.

The names have a space, so that no source can give them to something else.
"""


class FrontEnd(Protocol):
    """The front end of one API, which traces one kernel."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Return the top-level packages of the API. Modules in them are imported only from :meth:`modules`."""
        ...

    @property
    def prelude(self) -> str:
        """Return the import lines for a kernel's file that imports nothing."""
        ...

    @property
    def statements(self) -> Mapping[str, Callable[..., object]]:
        """Return the functions that a traced kernel calls in place of Python statements to which this API gives another
        meaning.

        The function under :data:`WHILE` is called for ``while``, and the function under :data:`IS` for ``is``. The
        function under :data:`PLAIN` is called with each value whose type the kernel asks for: by ``isinstance``,
        ``type``, ``hasattr``, ``getattr`` or a class pattern.
        """
        ...

    def __init__(self, session: Session) -> None: ...

    def modules(self) -> Mapping[str, ModuleType]:
        """Return the modules of the API that a kernel may import, as a dict by full name."""
        ...

    def read(self, tree: ast.Module) -> None:
        """Check the syntax tree of the kernel's file before the file is loaded. Raise LegalityError for syntax
        that the API lacks.
        """
        ...

    def run(self, function: Any, arguments: Mapping[str, object]) -> Program:
        """Trace the kernel and return its Program. The kernel gets a tensor for each TensorSpec among ``arguments``."""
        ...
