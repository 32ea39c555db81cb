"""Give indices, types and names access to the running trace: its loops, its chip and the kernel's current line.

:class:`acceld.nki.frontend.core.state.Trace` is the full trace. The modules that it imports use only this part.
A loop is *open* while the trace runs its body. A position in source code is a
:data:`acceld.nki.frontend.session.Site`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from acceld.chips import chip_spec
from acceld.nki.errors import KernelCrash, LegalityError, UnsupportedCall
from acceld.nki.frontend.session import Session, Site
from acceld.nki.ir.builder import ProgramBuilder
from acceld.nki.ir.program import Loop, LoopKind

MAX_TRIPS = 10_000_000
"""Limit on the iterations of one loop."""


class Retrace(BaseException):
    """Raised to stop this trace of the kernel and to start another one with changed settings.

    - ``unroll``: loops to unroll.
    - ``keep``: assignments whose results keep a buffer of their own.
    - ``flatten``: declarations of buffers that get a single free dimension.
    - ``split``: a loop to split into two nested ones, and the iterations of the inner loop.
    - ``cut``: for each loop to cut into loops that run one after another, the iterations before which to cut.
    - ``shared``: declarations of tensors that all programs of a launch share.

    Each loop, assignment or declaration is given by its position in the source. Retrace is a BaseException, so
    a kernel's ``except Exception`` does not catch it.
    """

    def __init__(
        self,
        *,
        unroll: frozenset[Site] = frozenset(),
        keep: frozenset[Site] = frozenset(),
        flatten: frozenset[Site] = frozenset(),
        split: tuple[Site, int] | None = None,
        cut: Mapping[Site, frozenset[int]] | None = None,
        shared: frozenset[Site] = frozenset(),
    ) -> None:
        super().__init__("trace again")
        self.shared = shared
        self.cut = cut or {}
        self.split = split
        self.unroll = unroll
        self.keep = keep
        self.flatten = flatten


class LoopContext:
    """The loops of one run of a kernel, and the position that the run has reached."""

    def __init__(self, session: Session, unroll: frozenset[Site]) -> None:
        self.session = session
        self.builder: ProgramBuilder = session.builder
        self.unroll = unroll
        self.splits: Mapping[Site, int] | None = None
        """The number of iterations of the inner loop for each loop to split, by the loop's position in the source. None
        if loops are never split.
        """
        self.cuts: Mapping[Site, frozenset[int]] | None = None
        """The iterations before which a loop is cut, for each loop to cut, by the loop's position in the source. None
        if loops are never cut.
        """
        self.offsets: dict[int, int] = {}
        """For each loop that is a later piece of a cut loop of the source: the number of iterations in the pieces
        before it.
        """
        self.in_later_piece = False
        """True while the trace runs a single-iteration piece of a cut loop that is not the loop's first piece."""
        self.placed: dict[Site, tuple[tuple[int, int], ...]] = {}
        """The addresses that an allocator gave to tiles in a loop's first piece, by the position in the source that
        declares the tiles.
        """
        self.trips: dict[int, int] = {}
        self.kinds: dict[int, LoopKind] = {}
        self.spmd_loops: set[int] = set()
        self.broken: LegalityError | None = None
        self.chip = chip_spec(session.chip)
        self._keys: dict[int, Site] = {}
        self._names: dict[int, str] = {}

    def line(self) -> int:
        """Return the line of the kernel's file that is running now; 0 if no line of that file is running."""
        return self.session.line()

    def notice(self, text: str) -> None:
        """Add a notice about the kernel's current line to the program."""
        self.builder.notice(self.line(), text)

    def loop_key(self, loop: int) -> Site:
        """Return the position in the source of loop ``loop``."""
        return self._keys[loop]

    def loop_name(self, loop: int) -> str:
        """Return the name of the variable of loop ``loop``."""
        return self._names.get(loop, f"loop {loop}")

    @property
    def scope(self) -> tuple[int, ...]:
        """Return the ids of the open loops, outermost first."""
        return self.builder.scope

    def open(self, name: str, trips: int, kind: LoopKind, site: Site, line: int) -> int:
        """Open a loop of ``trips`` iterations and return its id. ``site`` is the loop's position in the source."""
        loop = self.builder.open_loop(name, trips, kind, line=line)
        self.trips[loop.id], self.kinds[loop.id], self._keys[loop.id], self._names[loop.id] = trips, kind, site, name
        return loop.id

    def close(self, number: int) -> None:
        """Close loop ``number``. Raise LegalityError if a loop that began later is still open."""
        if self.broken is not None:
            raise self.broken
        if not self.scope or self.scope[-1] != number:
            raise self.out_of_order(number)
        self.builder.close_loop(number)

    def out_of_order(self, number: int) -> LegalityError:
        """Return the LegalityError for a kernel that ends an iteration of loop ``number`` while a loop that began
        later is still open.
        """
        loops = self.builder.open_loops
        inner = f"the {_described(loops[-1])}" if loops and loops[-1].id != number else "a loop that began later"
        outer = next((_described(loop) for loop in loops if loop.id == number), "loop")
        return LegalityError(
            f"an iteration of the {outer} ends while {inner} is still open: iterations of two loops can not take turns",
            rule="loop_order",
            line=self.line(),
            hint="nest the two loops, or compute both indices from the variable of one loop (instead of zip or next)",
        )

    def check_closed(self) -> None:
        """Raise LegalityError if a loop is still open when the kernel has ended, because the kernel keeps its iterator."""
        for loop in self.builder.open_loops:
            raise LegalityError(
                f"the {_described(loop)} is still open when the kernel ends, because the file keeps its iterator",
                rule="loop_exit",
                line=loop.line,
                hint="write the loop as a for statement, and do not keep its iterator in a variable outside of the kernel",
            )


def _described(loop: Loop) -> str:
    return f"loop in line {loop.line}"


_running: list[LoopContext] = []


def current() -> LoopContext:
    """Return the running trace. Raise KernelCrash if the kernel's file calls an NKI function while it loads."""
    if not _running:
        raise KernelCrash(
            "the file calls an NKI function while it loads, outside of a kernel",
            rule="outside_kernel",
            hint="call it inside the kernel function",
        )
    return _running[-1]


def refuse(rule: str, message: str, hint: str = "") -> NoReturn:
    """Raise LegalityError at the kernel's current line. ``rule`` is the id of the broken rule; ``hint`` says
    what to do.
    """
    raise LegalityError(message, rule=rule, line=current().line(), hint=hint)


def unsupported(message: str, hint: str = "") -> NoReturn:
    """Raise UnsupportedCall at the kernel's current line. ``hint`` says what to do."""
    raise UnsupportedCall(message, line=current().line(), hint=hint)


def is_tracing() -> bool:
    """Tell whether a kernel is being traced."""
    return bool(_running)


def activate(trace: LoopContext) -> None:
    """Make ``trace`` the running trace until :func:`deactivate` is called."""
    _running.append(trace)


def deactivate() -> None:
    """End the running trace. The trace that was running before it, if any, runs again."""
    _running.pop()
