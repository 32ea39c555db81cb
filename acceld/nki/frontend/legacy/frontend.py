"""Trace a kernel of the legacy API and return its Program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from acceld.nki.errors import LimitExceeded
from acceld.nki.frontend.core import dtypes
from acceld.nki.frontend.core.context import Retrace, activate, deactivate
from acceld.nki.frontend.core.launch import Kernel, Launcher, bind, declared, finish_outputs, finished, launched
from acceld.nki.frontend.core.state import Trace
from acceld.nki.frontend.legacy import compiler, isa, language
from acceld.nki.frontend.legacy.surface import ISA_FUNCTIONS, LANGUAGE_FUNCTIONS
from acceld.nki.frontend.legacy.tensor import LegacyTensor
from acceld.nki.frontend.session import Session, Site
from acceld.nki.frontend.shims import ApiModule
from acceld.nki.ir.program import Program

MAX_RETRACES = 200
PRELUDE = """\
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import neuronxcc.nki.isa as nisa
from neuronxcc.nki import trace
from neuronxcc.nki.language import par_dim
"""


class LegacyTrace(Trace):
    """The state of one trace of a kernel of the legacy API."""

    tensor_class = LegacyTensor
    copies_from_psum = element_beside_slices = True


class LegacyFrontEnd:
    """The front end for the package ``neuronxcc.nki``, which traces one kernel of that API."""

    roots: tuple[str, ...] = ("neuronxcc", "nki")
    prelude = PRELUDE
    statements: Mapping[str, Callable[..., object]] = {}

    def __init__(self, session: Session) -> None:
        self.session = session

    def modules(self) -> Mapping[str, ModuleType]:
        """Return the modules of the API that a kernel may import, as a dict by full name."""
        session = self.session
        nl = ApiModule(
            "neuronxcc.nki.language", session, language.namespace(session.chip), frozenset(LANGUAGE_FUNCTIONS)
        )
        nisa = ApiModule("neuronxcc.nki.isa", session, isa.namespace(), frozenset(ISA_FUNCTIONS))
        constants = ApiModule("neuronxcc.nki.language.constants", session, {"sizeinbytes": dtypes.sizeinbytes})
        isa_constants = ApiModule("neuronxcc.nki.isa.constants", session, isa.namespace())
        typing = ApiModule("neuronxcc.nki.typing", session, typing_namespace())
        allocators = ApiModule("neuronxcc.nki.compiler", session, compiler.namespace(session))
        launchers = {name: Launcher(name) for name in ("jit", "baremetal", "benchmark", "profile", "trace")}
        nki = ApiModule(
            "neuronxcc.nki",
            session,
            {
                **launchers,
                "simulate_kernel": lambda kernel, *args, **kwargs: kernel(*args, **kwargs),
                "language": nl,
                "isa": nisa,
                "typing": typing,
                "compiler": allocators,
            },
        )
        top = ApiModule("neuronxcc", session, {"nki": nki})
        modules = {
            module.__name__: module for module in (top, nki, nl, constants, nisa, isa_constants, typing, allocators)
        }
        return modules | {"nki.language.constants": constants}

    def read(self, tree: ast.Module) -> None:
        """Do nothing: this API takes any Python syntax."""

    def run(self, function: Any, arguments: Mapping[str, object]) -> Program:
        """Trace the kernel and return its Program.

        If a trace asks for other settings (:class:`acceld.nki.frontend.core.context.Retrace`), the kernel is
        traced again.
        """
        unroll: frozenset[Site] = frozenset()
        keep: frozenset[Site] = frozenset()
        flatten: frozenset[Site] = frozenset()
        splits: dict[Site, int] = {}
        cuts: dict[Site, frozenset[int]] = {}
        for attempt in range(MAX_RETRACES):
            self.session.reset()
            function = self.session.again(function) if attempt else function
            trace = LegacyTrace(self.session, unroll, keep, flatten)
            trace.splits, trace.cuts = splits, cuts
            activate(trace)
            try:
                return self._once(trace, function, arguments)
            except Retrace as again:
                unroll, keep, flatten = unroll | again.unroll, keep | again.keep, flatten | again.flatten
                cuts = {**cuts, **again.cut}
                if again.split is not None:
                    splits = {**splits, again.split[0]: again.split[1]}
            finally:
                deactivate()
        raise LimitExceeded(
            f"each of {MAX_RETRACES} traces of the kernel found another loop that Python has to unroll: use nl.static_range where Python needs the value of a loop variable",
            rule="retrace_limit",
            line=self.session.last_line,
        )

    def _once(self, trace: Trace, function: Any, arguments: Mapping[str, object]) -> Program:
        """Trace the kernel once and return its Program."""
        values, inputs = declared(trace, arguments)
        target = function.func if isinstance(function, Kernel) else function
        positional, keyword = bind(target, values)
        self.session.running = True
        try:
            if self.session.grid:
                value = launched(target, self.session.grid, positional, keyword)
            else:
                value = target(*positional, **keyword)
        finally:
            self.session.running = False
        if trace.broken is not None:
            raise trace.broken
        outputs = finish_outputs(trace, value)
        isa.check_axes(trace)
        finish_memsets(trace)
        return finished(trace, inputs, outputs)


def finish_memsets(trace: Trace) -> None:
    """Mark the memset of each PSUM tile that only matrix products write as taking no time: the first product overwrites
    the zeros.
    """
    for buffer, slot in trace.lazy_candidates.items():
        if buffer not in trace.engines_written:
            attrs = tuple((k, True if k == "lazy" else v) for k, v in slot.instruction.attrs)
            slot.replace(replace(slot.instruction, attrs=attrs))


def typing_namespace() -> dict[str, object]:
    """Return the names of ``neuronxcc.nki.typing``: annotations without effect."""

    class Spec:
        def __getitem__(self, key: object) -> object:
            return self

    return {"tensor": Spec(), "mutable_tensor": Spec(), "scalar": Spec()}
