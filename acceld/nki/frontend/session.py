"""Hold the state of one trace, for kernels of either API: builder, position in the kernel's file, deadline."""

from __future__ import annotations

import dis
import sys
import sysconfig
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from acceld.nki.errors import KernelFailure, LegalityError, LimitExceeded
from acceld.nki.frontend.permitted import Permitted
from acceld.nki.frontend.versions import RULE, Lifetime, Need
from acceld.nki.ir.builder import ProgramBuilder
from acceld.nki.ir.program import MAX_INSTRUCTIONS

PACKAGE = str(Path(__file__).parents[1])
LIBRARY = (sysconfig.get_path("stdlib"), "<")
"""Beginnings of file names that do not belong to a kernel: Python's own library, and text that is not a file."""
SAMPLE_AFTER = 500
"""Instructions of an unrolled kernel after which some iterations stand for all."""
SHOWN_CALLS = 4
"""Limit on calls that a message names."""

Call = tuple[str, str, int]
"""A running function: its file, its name, its line."""
Site = tuple[str, str, int, int]
"""A position in source code: file, function, its first line, byte code offset. It is the same in each trace of a
source.
"""


class LaunchedWhileLoading(BaseException):
    """A kernel's file launches its kernel at the top level. The rest of the file is a driver, which a trace does not
    need.
    """


@dataclass(frozen=True)
class TraceOptions:
    """Limits and choices of a trace.

    ``deadline_s`` is processor time; ``module_stubs`` lets imports of modules that are not installed pass until they
    are used; ``strict_block_dims`` refuses block dimensions of on-chip tensors; ``source_root`` is a folder whose
    modules a kernel may import. ``nki`` is the version of the current API whose names and syntax count; None: those of
    any version. With ``permitted`` the file is read as the subset of Python that it
    describes (:mod:`acceld.nki.frontend.guarded`). ``sample_after``: number of instructions
    after which an unrolled kernel is traced with samples.
    """

    max_instructions: int = MAX_INSTRUCTIONS
    deadline_s: float = 60.0
    module_stubs: bool = True
    strict_block_dims: bool = False
    source_root: Path | None = None
    permitted: Permitted | None = None
    nki: str | None = None
    sample_after: int = SAMPLE_AFTER


@dataclass
class Session:
    """One trace of one kernel. ``running`` is True while the entry function runs, False while its file loads."""

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
    """Packages that the kernel's files import and that are not there."""
    reload: Callable[[], Any] | None = None
    """Loads the kernel's file again and returns its entry function, because a second trace must not see changes of the
    first.
    """

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Discard the trace so far."""
        self.builder = ProgramBuilder(max_instructions=self.options.max_instructions)

    def again(self, function: Any) -> Any:
        """Return the kernel's function in its state after loading, to trace it again."""
        return function if self.reload is None else self.reload()

    def need(self, what: str, life: Lifetime, line: int | None = None) -> None:
        """Refuse a construct that the trace's version of ``nki`` lacks; note it if the refusal is not certain."""
        version = self.options.nki
        if version is None or life.covers(version):
            return
        need = Need(self.line() if line is None else line, what, life)
        if life.certain:
            raise LegalityError(need.text(version), rule=RULE, line=need.line, hint=life.instead)
        self.builder.notice(need.line, f"{need.text(version)} (by its pages or its parser): {life.instead}")

    def check_deadline(self) -> None:
        """Raise LimitExceeded once the deadline is past."""
        if time.thread_time() > self.deadline:
            raise LimitExceeded(
                f"tracing took more than {self.options.deadline_s:g} s of processor time",
                rule="trace_deadline",
                line=self.last_line,
                hint="keep loops as nl.affine_range or nl.sequential_range instead of Python's range",
            )

    def line(self) -> int:
        """Return the line of the kernel's file that is running: the innermost frame there, 0 outside of it."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.filename:
                self.last_line = frame.f_lineno
                return frame.f_lineno
            frame = frame.f_back
        return 0

    def position(self) -> tuple[int, str]:
        """Return :meth:`line`, and the running calls in other files, innermost first; empty if there are none."""
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
        """Return calls as text, innermost first, without those of Python's own library."""
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
    """Return the innermost frame outside of the simulator."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return frame


def is_ours(error: Exception) -> bool:
    """Return True for a defect of the simulator: an error raised in its own code, and not a typed failure of the
    kernel.
    """
    if isinstance(error, KernelFailure):
        return False
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(PACKAGE)


def call_site() -> Site:
    """Return the source line that called the simulator."""
    frame = caller()
    return ("", "", 0, 0) if frame is None else _site(frame)


def _site(frame: FrameType) -> Site:
    code = frame.f_code
    return (code.co_filename, code.co_qualname, code.co_firstlineno, frame.f_lasti)


def call_place() -> tuple[Site, str]:
    """Return the source line that called the simulator, and the variable its result is assigned to."""
    frame = caller()
    return (("", "", 0, 0), "") if frame is None else (_site(frame), _stored_name(frame, 0))


def loop_variable() -> str:
    """Return the variable of the ``for`` statement whose range is being evaluated; empty if there is none."""
    frame = caller()
    return "" if frame is None else _stored_name(frame, 1)


def _stored_name(frame: FrameType, which: int) -> str:
    offsets, names = _stores_of(frame.f_code)
    at = bisect_right(offsets, frame.f_lasti) - 1  # up to Python 3.11 f_lasti points after the call
    return names[at][which] if at >= 0 else ""


_known_stores: dict[int, tuple[CodeType, tuple[list[int], list[tuple[str, str]]]]] = {}
"""Results of :func:`_stores` by identity of the code, because hashing a code object takes as long as it is."""


def _stores_of(code: CodeType) -> tuple[list[int], list[tuple[str, str]]]:
    known = _known_stores.get(id(code))
    if known is None:
        if len(_known_stores) >= 256:
            _known_stores.clear()
        known = _known_stores[id(code)] = code, _stores(code)
    return known[1]


def _stores(code: CodeType) -> tuple[list[int], list[tuple[str, str]]]:
    """Return the offset of each instruction, and two names: the variable its value is stored to, and the variable of a
    loop over it.

    A name is empty if there is none.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    names = []
    for at in range(len(steps)):
        after = steps[at + 1 : at + 4]
        direct = _stored(after[0]) if after else ""
        looped = ""
        if len(after) == 3 and after[0].opname == "GET_ITER":
            looped = _stored(after[2])
        names.append((direct, looped))
    return [step.offset for step in steps], names


def _stored(step: dis.Instruction) -> str:
    if not step.opname.startswith("STORE_") or step.opname in ("STORE_ATTR", "STORE_SUBSCR"):
        return ""
    return str(step.argval[0] if isinstance(step.argval, tuple) else step.argval)
