"""Hold the state of one trace of a kernel of the current API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acceld.chips import FREE_AXES
from acceld.nki.frontend.core.context import Retrace, refuse
from acceld.nki.frontend.core.state import Trace, current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current.loop_rerolling import Sample
from acceld.nki.frontend.current.sampling import SampledLoop
from acceld.nki.frontend.current.tensor import NkiTensor
from acceld.nki.frontend.session import Session, Site
from acceld.nki.ir.builder import Slot
from acceld.nki.ir.program import Engine, LoopKind, Space

VIEW_AXES = {"copy_predicated": 3}
"""Limit on the free axes of an instruction's tiles, for instructions that take fewer axes than the others (pages of NKI
0.7).
"""
MOST_SOUGHT = 4096
"""Limit on the further iterations of a trace that will be repeated anyway and only looks for more buffers to flatten.
"""


class SamplesWanted(BaseException):
    """Raised to stop the trace of a long kernel, which is then traced again with only some iterations of each loop
    (:mod:`acceld.nki.frontend.current.sampling`).

    It is a BaseException, so that a kernel's ``except Exception`` does not catch it.
    """


class CurrentTrace(Trace):
    """The state of one trace of a kernel of the current API."""

    tensor_class = NkiTensor
    hbm_drops_axes = True
    writes_views = True
    exact_integers = True

    def __init__(
        self,
        session: Session,
        keep: frozenset[Site],
        flatten: frozenset[Site],
        unroll: frozenset[Site] = frozenset(),
        samples: dict[int, Sample] | None = None,
        shared: frozenset[Site] = frozenset(),
    ) -> None:
        super().__init__(session, unroll, keep, flatten)
        self.shared_sites = shared
        """Positions of declarations in ``nl.hbm`` whose tensors are results of all programs of a launch. The programs
        share these tensors.
        """
        self.samples = samples
        """The Sample of each loop that holds a sampled iteration, by loop id; None if every iteration is traced."""
        self.sampled: list[SampledLoop] = []
        """The running loops of which only some iterations are traced, outermost first."""
        self.names: set[str] = set()
        """Names that the kernel has given to tensors and instructions of the running program."""
        self.shared_results: set[int] = set()
        """Buffers of tensors declared in ``nl.shared_hbm``."""
        self.keeps_order = 0
        """Number of open ``nl.no_reorder`` blocks."""
        self.prepared: int | None = None
        """Line of the prepared collective that has not been triggered yet; None if there is no such collective."""
        self.sampling_after: int | None = None
        """Number of instructions after which SamplesWanted is raised; None for no limit."""
        self._iterations_left = MOST_SOUGHT
        self._hiding: set[int] = set()
        """Ids of the loops traced so far after whose end the tensors declared in them can not be used any more."""

    def open(self, name: str, trips: int, kind: LoopKind, site: Site, line: int) -> int:
        """Open a loop of ``trips`` iterations and return its id. ``site`` is the loop's position in the source."""
        loop = super().open(name, trips, kind, site, line)
        if kind is LoopKind.SPMD:
            self.hide(loop)
        return loop

    def hide(self, loop: int) -> None:
        """Let the tensors that the open loop ``loop`` declares be used inside of the loop only."""
        self._hiding.add(loop)

    def end_iteration(self, loop: int) -> None:
        """Close the loop of one iteration. If a loop that began later is still open, the trace ends with a LegalityError.

        Python may call this method while it deletes an iterator, where an exception would be lost.
        """
        if self.scope and self.scope[-1] == loop:
            self.builder.close_loop(loop)
        elif self.broken is None and loop in self.scope:
            self.broken = self.out_of_order(loop)

    def leaves_loop(self) -> bool:
        """Tell whether the running loop ends after this iteration.

        The answer is True if the kernel will be traced again anyway, and this trace only looks for further buffers
        to flatten. Raise Retrace after many such iterations, because a kernel's ``while`` may wait for an iteration
        that is left out.
        """
        if not self.to_flatten:
            return False
        self._iterations_left -= 1
        if not self._iterations_left:
            raise Retrace
        return True

    def emit(self, *args: Any, **kwargs: Any) -> Slot:
        """Append an instruction and return its position. Raise SamplesWanted if the kernel is long."""
        if self.sampling_after is not None and self.sequence > self.sampling_after:
            raise SamplesWanted
        self._note_views(*args[:4])
        return super().emit(*args, **kwargs)

    def _note_views(self, op: str, engine: Engine, dsts: Sequence[Tensor], srcs: Sequence[object] = ()) -> None:
        """Add notices to the program about views on which the pages of NKI and the observed compilers disagree."""
        if engine in (Engine.DMA, Engine.SYNC):
            return
        most = VIEW_AXES.get(op, FREE_AXES)
        for tile in (*dsts, *srcs):
            if not isinstance(tile, Tensor):
                continue
            if tile.ndim - 1 > most:
                self.notice(f"{op} of {tile.label} with {tile.ndim - 1} free axes: pages of NKI 0.7 allow {most}")
            if tile.access.indirect and tile.space is not Space.HBM:
                self.notice(
                    f"{op} of {tile.label} at a run-time offset: some compilers take one in DMA only (Dynamic Access)",
                )

    def next_program(self) -> None:
        """Begin the next program of the launch grid. It may use the same names as the programs before it."""
        super().next_program()
        self.names.clear()

    def name_once(self, name: str, call: str) -> None:
        """Raise LegalityError if another tensor or instruction of the program has the name ``name``; else
        record the name.
        """
        if name in self.names:
            refuse(
                "duplicate_name",
                f"the name {name!r} of {call} is given twice; each tensor and each instruction needs a name of its own",
                "leave name out, or make it differ, such as f'tile_{i}' in a loop",
            )
        self.names.add(name)

    def reaches(self, tensor: Tensor) -> bool:
        """Tell whether a tensor may be used here. A tensor that the body of a run-time loop or a core's program declares can
        be used only inside of it; all other tensors can be used everywhere after their declaration.
        """
        return not self._hiding or all(loop in self.scope for loop in tensor.scope if loop in self._hiding)


def current_trace() -> CurrentTrace:
    """Return the running trace of a kernel of the current API."""
    trace = current()
    assert isinstance(trace, CurrentTrace)
    return trace
