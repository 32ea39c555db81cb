"""Hold the state of one trace that both APIs share: program builder, position in the kernel's file, deadline.

A kernel may be traced several times; each attempt starts with an empty program.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from acceld.nki.errors import OF_SIMULATOR, KernelFailure, LegalityError, LimitExceeded
from acceld.nki.frontend.permitted import Permitted
from acceld.nki.frontend.versions import RULE, Lifetime, Need
from acceld.nki.ir.builder import ProgramBuilder
from acceld.nki.ir.program import MAX_INSTRUCTIONS

PACKAGE = str(Path(__file__).parents[1])
LIBRARY = (sysconfig.get_path("stdlib"), "<")
"""Prefixes of the names of files that are not part of a kernel: Python's own library, and code that was not read from a
file.
"""
SAMPLE_AFTER = 250
"""Greatest number of instructions of a kernel of the current API that is traced in full. Of a longer kernel, only some
iterations of each loop are traced.
"""
SHOWN_CALLS = 4
"""Limit on the calls that a message lists."""

Call = tuple[str, str, int]
"""A running call: the file and the name of the called function, and the line that it runs now."""
Site = tuple[str, str, int, int]
"""A position in source code: file, function, first line of the function, byte code offset.

A kernel that is traced again has the same sites.
"""


class LaunchedWhileLoading(BaseException):
    """Raised to stop loading a kernel's file at the line of its top level that launches the kernel.

    A trace needs nothing after that line.
    """


@dataclass(frozen=True)
class TraceOptions:
    """The limits and choices of a trace.

    - ``max_instructions``: limit on the instructions of the program.
    - ``deadline_s``: limit in seconds of processor time.
    - ``module_stubs``: True if a missing module can be imported; only its use in the kernel then fails.
    - ``strict_block_dims``: True if on-chip tensors with block dimensions are refused.
    - ``source_root``: a folder whose modules the kernel may import.
    - ``permitted``: the subset of Python that the file may use (:mod:`acceld.nki.frontend.guarded`); None for all
      of Python.
    - ``nki``: the version of the current API that the kernel must fit, such as ``0.6``; None for any version.
    - ``sample_after``: number of instructions up to which a kernel of the current API is traced in full. Of a
      longer kernel, only some iterations of each loop are traced (:mod:`acceld.nki.frontend.current.sampling`).
    - ``sample_closely``: True to trace more iterations of each loop as samples. More differences between iterations
      are then noticed.
    """

    max_instructions: int = MAX_INSTRUCTIONS
    deadline_s: float = 60.0
    module_stubs: bool = True
    strict_block_dims: bool = False
    source_root: Path | None = None
    permitted: Permitted | None = None
    nki: str | None = None
    sample_after: int = SAMPLE_AFTER
    sample_closely: bool = False


_EACH_CHECKED = 16
"""Number of checks of the deadline for each reading of the clock. Reading it takes about a tenth as long as tracing an
instruction.
"""


@dataclass
class Session:
    """The state of the trace of one kernel.

    ``running`` is True while the kernel function runs, False while its file loads. ``deadline`` is a time of
    ``time.thread_time``.
    """

    filename: str
    api: str
    chip: str
    grid: tuple[int, ...]
    lnc: int
    options: TraceOptions
    entry: str
    deadline: float
    builder: ProgramBuilder = field(init=False)
    running: bool = False
    last_line: int = 0
    missing: set[str] = field(default_factory=set)
    """Packages that the kernel's files import and that are not installed."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Reasons, by name, why a statement that defines the name was not executed."""
    samples: bool = True
    """False if the kernel's file may tell a sampled loop's index from a number, so that every iteration is traced."""
    sees_all: bool = False
    """True if the kernel's file may read variables without naming them, as with ``locals()``."""
    bare: bool = False
    """True if the kernel's file imports nothing, so that the API's modules are provided."""
    code: CodeType | None = None
    """The compiled file, once all its statements were executed."""
    reload: Callable[[], Any] | None = None
    """Loads the kernel's file again and returns the kernel function. Each attempt to trace starts from a fresh
    file, so that the attempt does not see variables that an earlier attempt changed.
    """

    _checks: int = 0

    def __post_init__(self) -> None:
        self.reset()

    def text_of(self, value: str) -> str:
        """Return the text ``value`` of a tile, a register or a loop's index. In a guarded trace the text is marked, so that
        no kernel can use it.
        """
        return value if self.options.permitted is None else OF_SIMULATOR + value

    def reset(self) -> None:
        """Begin a new program. All instructions traced so far are discarded."""
        self.builder = ProgramBuilder(max_instructions=self.options.max_instructions)

    def again(self, function: Any) -> Any:
        """Load the kernel's file again, and return its kernel function for another trace."""
        return function if self.reload is None else self.reload()

    def need(self, what: str, life: Lifetime, line: int | None = None) -> None:
        """Raise LegalityError if the trace's version of ``nki`` lacks a construct.

        ``what`` names the construct, ``life`` its versions. If ``life`` is not certain, the program gets a
        notice instead.
        """
        version = self.options.nki
        if version is None or life.covers(version):
            return
        need = Need(self.line() if line is None else line, what, life)
        if life.certain:
            raise LegalityError(need.text(version), rule=RULE, line=need.line, hint=life.instead)
        self.builder.notice(
            need.line, f"{need.text(version)} (according to its documentation or its parser): {life.instead}"
        )

    def check_deadline(self) -> None:
        """Raise LimitExceeded if the trace has used more processor time than allowed."""
        self._checks += 1
        if self.deadline and self._checks % _EACH_CHECKED:
            return
        if time.thread_time() > self.deadline:
            raise LimitExceeded(
                f"tracing took more than {self.options.deadline_s:g} s of processor time",
                rule="trace_deadline",
                line=self.last_line,
                hint="keep loops as nl.affine_range or nl.sequential_range instead of Python's range",
            )

    def line(self) -> int:
        """Return the line of the kernel's file that is running now; 0 if no function of that file is running."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.filename:
                self.last_line = frame.f_lineno
                return frame.f_lineno
            frame = frame.f_back
        return 0

    def position(self) -> tuple[int, str]:
        """Return the running line of the kernel's file, and as text the calls in other files that this line
        made.

        The innermost call comes first. The text is empty if the line called only the simulator.
        """
        frame: FrameType | None = sys._getframe(1)
        calls: list[Call] = []
        while frame is not None:
            filename = frame.f_code.co_filename
            if filename == self.filename:
                self.last_line = frame.f_lineno
                return frame.f_lineno, self.named(tuple(calls)) if calls else ""
            if not filename.startswith(PACKAGE):
                calls.append((filename, frame.f_code.co_name, frame.f_lineno))
            frame = frame.f_back
        return 0, ""

    def named(self, calls: tuple[Call, ...]) -> str:
        """Return ``calls`` as text for a message, the innermost first. Calls in Python's own library are left
        out.
        """
        root = self.options.source_root
        return _named(calls, "" if root is None else str(root.resolve()))


@lru_cache(maxsize=4096)
def _named(calls: tuple[Call, ...], root: str) -> str:
    words = []
    for filename, function, line in calls:
        path = Path(filename)
        inside = bool(root) and path.is_relative_to(root)
        if inside or not filename.startswith(LIBRARY):
            shown = path.relative_to(root).as_posix() if inside else path.name
            words.append(f"{shown}:{line} in {function}")
    return ", called at ".join(words[:SHOWN_CALLS])


def caller() -> FrameType | None:
    """Return the innermost running frame whose code is not part of the simulator; None if there is no such frame."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


def is_ours(error: Exception) -> bool:
    """Tell whether ``error`` is a defect of the simulator: its own code raised it, and it is not a
    KernelFailure.
    """
    if isinstance(error, KernelFailure):
        return False
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(PACKAGE)


def call_site() -> Site:
    """Return the position in the source from which the kernel called the simulator."""
    frame = caller()
    return ("", "", 0, 0) if frame is None else _site(frame)


def _site(frame: FrameType) -> Site:
    code = frame.f_code
    return (code.co_filename, code.co_qualname, code.co_firstlineno, frame.f_lasti)


def call_place() -> tuple[Site, str]:
    """Return the position from which the kernel called the simulator, and the variable to which it assigns the
    result.

    The variable is empty if the result is not assigned to a variable.
    """
    frame = caller()
    return (("", "", 0, 0), "") if frame is None else (_site(frame), _stored_name(frame, 0))


def loop_variable() -> str:
    """Return the variable of the ``for`` statement that calls a range function now; empty outside of such a
    statement.
    """
    frame = caller()
    return "" if frame is None else _stored_name(frame, 1)


def _stored_name(frame: FrameType, which: int) -> str:
    """Return a name that :func:`_stores` found for the call that ``frame`` is executing.

    ``which`` is 0 for the assigned variable, 1 for the variable of a ``for`` loop.
    """
    offsets, names = _stores_of(frame.f_code)
    at = bisect_right(offsets, frame.f_lasti) - 1  # bisect, because f_lasti points after the call up to Python 3.11
    return names[at][which] if at >= 0 else ""


_known_stores: dict[int, tuple[CodeType, tuple[list[int], list[tuple[str, str]]]]] = {}
"""Results of :func:`_stores` by the identity of the code object. Hashing a code object would take time that grows with
its length.
"""


def _stores_of(code: CodeType) -> tuple[list[int], list[tuple[str, str]]]:
    known = _known_stores.get(id(code))
    if known is None:
        if len(_known_stores) >= 256:
            _known_stores.clear()
        known = _known_stores[id(code)] = code, _stores(code)
    return known[1]


def _stores(code: CodeType) -> tuple[list[int], list[tuple[str, str]]]:
    """Return the offset of each byte code instruction of ``code``, and for each instruction two names.

    The first name is the variable to which the instruction's value is assigned. The second is the variable of a
    ``for`` loop over that value. A name is empty where there is no such variable.
    """
    steps = list(_steps(code))
    stored = [name for _, _, name in steps]
    names = []
    for at in range(len(steps)):
        direct = stored[at + 1] if at + 1 < len(steps) else ""
        looped = stored[at + 3] if at + 3 < len(steps) and steps[at + 1][1] == _GET_ITER else ""
        names.append((direct, looped))
    return [offset for offset, _, _ in steps], names


_CACHE, _EXTENDED_ARG, _GET_ITER = dis.opmap.get("CACHE", 0), dis.opmap["EXTENDED_ARG"], dis.opmap["GET_ITER"]
_STORES_OF_NAMES = frozenset(dis.opmap[name] for name in ("STORE_NAME", "STORE_GLOBAL"))
_STORES_OF_LOCALS = frozenset(dis.opmap[name] for name in ("STORE_FAST", "STORE_DEREF"))
_OTHER_STORES = frozenset(
    number
    for name, number in dis.opmap.items()
    if name.startswith("STORE_") and name not in ("STORE_ATTR", "STORE_SUBSCR")
) - (_STORES_OF_NAMES | _STORES_OF_LOCALS)
"""Opcodes of store instructions that only some versions of Python have, such as one that stores two variables."""


def _steps(code: CodeType) -> Iterator[tuple[int, int, str]]:
    """Yield (offset, opcode, assigned variable) of each byte code instruction. The variable is empty if the instruction
    assigns none.

    The bytes are read here, because ``dis`` would take as long as the rest of a small kernel's trace.
    """
    raw, extended = code.co_code, 0
    if not _OTHER_STORES.isdisjoint(raw[::2]):
        yield from _steps_by_dis(code)
        return
    local = _local_names(code)
    for offset in range(0, len(raw), 2):
        operation, argument = raw[offset], raw[offset + 1] | extended
        extended = argument << 8 if operation == _EXTENDED_ARG else 0
        if operation in (_CACHE, _EXTENDED_ARG):
            continue
        name = ""
        if operation in _STORES_OF_NAMES:
            name = code.co_names[argument]
        elif operation in _STORES_OF_LOCALS:
            name = local[argument]
        yield offset, operation, name


def _steps_by_dis(code: CodeType) -> Iterator[tuple[int, int, str]]:
    """Yield the same triples as :func:`_steps`, read by Python's module ``dis``."""
    for one in dis.get_instructions(code):
        if one.opcode != _EXTENDED_ARG:
            yield one.offset, one.opcode, _stored(one)


def _local_names(code: CodeType) -> tuple[str, ...]:
    """Return the names of a function's variables, in the order in which its byte code numbers them: first arguments and
    other local variables, then cells that are not among these, then free variables.
    """
    own = code.co_varnames
    return (*own, *(name for name in code.co_cellvars if name not in own), *code.co_freevars)


def _stored(step: dis.Instruction) -> str:
    """Return the variable that a byte code instruction assigns; empty if it assigns none."""
    if not step.opname.startswith("STORE_") or step.opname in ("STORE_ATTR", "STORE_SUBSCR"):
        return ""
    return str(step.argval[0] if isinstance(step.argval, tuple) else step.argval)
