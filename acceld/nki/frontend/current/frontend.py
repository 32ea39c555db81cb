"""Trace a kernel of the current API and return its Program."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from types import ModuleType
from typing import Any

from acceld.nki.errors import LegalityError, LimitExceeded
from acceld.nki.frontend.core.context import Retrace, activate, deactivate
from acceld.nki.frontend.core.launch import Kernel, Launcher, bind, declared, finish_outputs, finished, one_result
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current import collectives, isa, language
from acceld.nki.frontend.current.lifetimes import JIT_OPTIONS, LIST_ARGUMENT, withheld
from acceld.nki.frontend.current.loop_rerolling import SamplesDiffer, mark, reroll
from acceld.nki.frontend.current.names import COMPILER
from acceld.nki.frontend.current.reading import file_needs
from acceld.nki.frontend.current.sampling import as_python
from acceld.nki.frontend.current.state import CurrentTrace, SamplesWanted
from acceld.nki.frontend.current.surface import COLLECTIVES, ISA_FUNCTIONS, LANGUAGE_FUNCTIONS, REPLACED
from acceld.nki.frontend.protocol import IS, PLAIN, WHILE
from acceld.nki.frontend.session import Session, Site, is_ours
from acceld.nki.frontend.shims import ApiModule
from acceld.nki.ir.program import Loop, LoopKind, Node, Program, Role, Space

MAX_RETRACES = 200
PRELUDE = """\
import numpy as np
import nki
import nki.language as nl
import nki.isa as nisa
"""


class CurrentFrontEnd:
    """The front end for the package ``nki``, which traces one kernel of that API."""

    roots = ("nki",)
    prelude = PRELUDE
    statements: Mapping[str, Callable[..., object]] = {
        WHILE: language.while_statement,
        IS: language.is_statement,
        PLAIN: as_python,
    }

    def __init__(self, session: Session) -> None:
        self.session = session
        self.notes: dict[int, str] = {}
        """Notes about options of ``nki.jit``, by line of the kernel's file."""

    def modules(self) -> Mapping[str, ModuleType]:
        """Return the modules of the API that a kernel may import, as a dict by full name."""
        session = self.session
        version = session.options.nki
        known = frozenset(LANGUAGE_FUNCTIONS)
        names: dict[str, object] = {**language.namespace(session.chip), "tile_size": language.VersionedSizes(session)}
        nl = ApiModule("nki.language", session, names, known, REPLACED, withheld({*names, *known}, version))
        constants = ApiModule("nki.isa.constants", session, isa.namespace())
        names = {**isa.namespace(), "constants": constants}
        nisa = ApiModule("nki.isa", session, names, frozenset(ISA_FUNCTIONS), withheld=withheld(ISA_FUNCTIONS, version))
        ncc = ApiModule(
            "nki.collectives",
            session,
            collectives.namespace(),
            frozenset(COLLECTIVES),
            withheld=withheld(COLLECTIVES, version),
        )
        compiler = ApiModule("nki.compiler", session, COMPILER, withheld=withheld(COMPILER, version))
        names = {"jit": Launcher("jit", self._checked), "language": nl, "isa": nisa, "collectives": ncc}
        nki = ApiModule("nki", session, names | {"compiler": compiler})
        return {module.__name__: module for module in (nki, nl, nisa, constants, ncc, compiler)}

    def _checked(self, options: Mapping[str, object]) -> None:
        """Check the options of ``nki.jit``. Raise LegalityError for an option that the trace's version of ``nki``
        lacks, and add a notice about an option that no page of NKI lists.

        AWS's own library passes unlisted options. They have no effect here.
        """
        for option in options:
            what = f"nki.jit({option}=...)"
            if option in JIT_OPTIONS:
                self.session.need(what, JIT_OPTIONS[option])
            else:
                unknown = "no page of NKI lists it, and 0.3 and later refuse options that they do not know"
                self.notes[self.session.line()] = f"{what}: {unknown}"

    def read(self, tree: ast.Module) -> None:
        """Check the syntax and the imports of the kernel's file against the trace's version of ``nki``.

        Raise LegalityError for a construct that this version certainly refuses. For a construct that it may refuse, add
        a notice.
        """
        if self.session.options.nki is not None:
            for need in file_needs(tree, self.session.entry):
                self.session.need(need.what, need.life, need.line)

    def run(self, function: Any, arguments: Mapping[str, object]) -> Program:
        """Trace the kernel and return its Program, in which the iterations that Python ran one by one are loops again.

        If a trace asks for other settings (:class:`acceld.nki.frontend.core.context.Retrace`), the kernel is
        traced again.

        The first attempt traces only some iterations of each loop. A kernel that turns out to be short is then
        traced in full. With ``sample_closely`` the first attempt traces every iteration, and stops when the kernel
        turns out to be long.
        """
        keep: frozenset[Site] = frozenset()
        flatten: frozenset[Site] = frozenset()
        unroll: frozenset[Site] = frozenset()
        shared: frozenset[Site] = frozenset()
        options = self.session.options
        after: int | None = options.sample_after if self.session.samples and options.sample_closely else None
        sampling = self.session.samples and not options.sample_closely
        for attempt in range(MAX_RETRACES):
            self.session.reset()
            function = self.session.again(function) if attempt else function
            trace = CurrentTrace(self.session, keep, flatten, unroll, {} if sampling else None, shared)
            trace.sampling_after = after
            activate(trace)
            try:
                program = self._once(trace, function, arguments)
                if not trace.to_flatten:
                    rolled = reroll(program, trace.samples)
                    if not trace.samples or options.sample_closely or _executed(rolled.body) > options.sample_after:
                        return rolled
                    sampling = False
            except Retrace as again:
                keep, flatten, unroll = keep | again.keep, flatten | again.flatten, unroll | again.unroll
                shared |= again.shared
            except SamplesWanted:
                after, sampling = None, True
            except SamplesDiffer as again:
                unroll |= {again.site}
            except Exception as error:
                if isinstance(error, LimitExceeded):
                    raise
                # the error may come from iterations that were left out to find further buffers to flatten
                if not trace.to_flatten:
                    if not sampling or is_ours(error):
                        raise
                    sampling = False  # the error may come from the samples, so the kernel is traced in full
            finally:
                deactivate()
            flatten |= trace.to_flatten
        raise LimitExceeded(
            f"each of {MAX_RETRACES} traces of the kernel found another assignment that changes an earlier instruction: write results to declared tensors",
            rule="retrace_limit",
            line=self.session.last_line,
        )

    def _once(self, trace: CurrentTrace, function: Any, arguments: Mapping[str, object]) -> Program:
        """Trace the kernel once and return its Program, in which each traced iteration is still a separate loop."""
        session = self.session
        values, inputs = declared(trace, arguments)
        target = function.func if isinstance(function, Kernel) else function
        for name, given in arguments.items():
            if isinstance(given, list):
                session.need(f"a list as the kernel's argument '{name}'", LIST_ARGUMENT, session.last_line)
        positional, keyword = bind(target, values)
        grid = session.grid or ((session.lnc,) if session.lnc > 1 else ())
        if grid not in ((), (1,), (session.lnc,)):
            raise LegalityError(
                f"the launch grid {list(grid)} does not fit {session.lnc} {'core' if session.lnc == 1 else 'cores'}: the launch "
                "grid of nki is the number of cores, 1 or 2",
                rule="grid_limit",
                line=session.last_line,
                hint="use --lnc 2 (kernel[2]), and loops inside the kernel for more programs",
            )
        session.running = True
        trace.grid = grid
        try:
            value = target(*positional, **keyword) if not grid else self._programs(trace, target, positional, keyword)
        finally:
            session.running = False
        if trace.broken is not None:
            raise trace.broken
        if trace.prepared is not None:
            raise LegalityError(
                "the collective that is prepared here is never triggered",
                rule="collective_order",
                line=trace.prepared,
                hint="pass the result of the prepare call to its trigger",
            )
        outputs = finish_outputs(trace, value)
        for line, text in self.notes.items():
            trace.builder.notice(line, text)
        for number in outputs:
            buffer = trace.builder.buffers[number]
            if buffer.role is Role.OUTPUT and number not in trace.shared_results:
                trace.builder.notice(
                    buffer.line, f"the result '{buffer.name}' is not in nl.shared_hbm, where NKI 0.3 and later want it"
                )
        return finished(trace, inputs, outputs)

    def _programs(
        self, trace: CurrentTrace, target: Any, positional: tuple[object, ...], keyword: dict[str, object]
    ) -> object:
        """Call the kernel once for each program of the launch grid, and return the result of the last call."""
        value: object = None
        for number, ids in enumerate(product(*(range(operator.index(n)) for n in trace.grid))):
            if number:
                trace.next_program()
            loop = trace.open(mark("program"), 1, LoopKind.SPMD, ("", "program", 0, 0), 0)
            trace.program_ids = ids
            value = _joined(trace, value, target(*positional, **keyword))
            trace.close(loop)
        return value


def _joined(trace: CurrentTrace, value: object, other: object) -> object:
    """Return the result of a launch in which two programs returned ``value`` and ``other``.

    Raise Retrace if the same line of the kernel declares both results in ``nl.hbm``, because on a chip all programs
    then write the same tensor.
    """
    results = [one if isinstance(one, tuple | list) else (one,) for one in (value, other)]
    apart = {
        trace.sites[one.access.buffer]
        for one, its in zip(*results, strict=False)
        if isinstance(one, Tensor) and isinstance(its, Tensor) and one.access.buffer != its.access.buffer
        if trace.sites[one.access.buffer] == trace.sites[its.access.buffer] and one.space is Space.HBM
    }
    if apart - trace.shared_sites:
        raise Retrace(shared=frozenset(apart))
    return one_result(value, other)


def _executed(body: Sequence[Node]) -> int:
    """Return how many instructions a full trace of ``body`` would emit. The body of a run-time loop counts once."""
    return sum(
        _executed(node.body) * (1 if node.kind in (LoopKind.DYNAMIC, LoopKind.WHILE) else node.trips)
        if isinstance(node, Loop)
        else 1
        for node in body
    )
