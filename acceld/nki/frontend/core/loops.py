"""The loops of one trace of a kernel."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping
from typing import Any, cast

from acceld.nki.errors import KernelCrash, LegalityError, LimitExceeded
from acceld.nki.frontend.session import Session, Site, call_site, loop_variable
from acceld.nki.ir.builder import ProgramBuilder
from acceld.nki.ir.program import Affine, LoopKind

MAX_TRIPS = 10_000_000


class UnrolledIndex(int):
    """The value of a loop variable whose loop is unrolled while tracing."""

    first: bool
    """Whether this is the loop's first iteration."""


class LoopTrace:
    """Opens the loops of one run of a kernel: as loops, in pieces, as two nested ones, or unrolled."""

    def __init__(self, session: Session, unroll: frozenset[Site]) -> None:
        self.session = session
        self.builder: ProgramBuilder = session.builder
        self.unroll = unroll
        self.splits: Mapping[Site, int] | None = None
        """Inner trips of the loops to split, by place; None where loops are never split."""
        self.cuts: Mapping[Site, frozenset[int]] | None = None
        """Iterations before which a loop is cut in two, by place; None where loops are never cut."""
        self.offsets: dict[int, int] = {}
        """For a loop that is a piece of one in the source, the iterations before it."""
        self.in_later_piece = False
        """Whether an iteration that is a piece of its own is traced, other than the first."""
        self.trips: dict[int, int] = {}
        self.kinds: dict[int, LoopKind] = {}
        self.broken: LegalityError | None = None
        self._keys: dict[int, Site] = {}
        self._names: dict[int, str] = {}

    def line(self) -> int:
        """The kernel's line now running."""
        return self.session.line()

    def loop_key(self, loop: int) -> Site:
        """Where the loop stands in the source."""
        return self._keys[loop]

    def loop_name(self, loop: int) -> str:
        """The loop's variable."""
        return self._names.get(loop, f"loop {loop}")

    @property
    def scope(self) -> tuple[int, ...]:
        """Ids of the open loops."""
        return self.builder.scope

    def loop(self, function: str, kind: LoopKind, args: tuple[object, ...]) -> Iterator[object]:
        """The values a range of the kernel yields: one symbol, or each number where the loop must be unrolled."""
        from acceld.nki.frontend.core.index import Expr

        for arg in args:
            if isinstance(arg, Expr) and not arg.is_constant:
                raise LegalityError(
                    f"the bounds of {function} must be known while tracing",
                    rule="symbolic_index",
                    line=self.line(),
                    hint="loop over the largest bound and mask, or unroll the outer loop with nl.static_range",
                )
            if not hasattr(arg, "__index__"):
                raise LegalityError(
                    f"the bounds of {function} must be integers, not {type(arg).__name__}",
                    rule="operand_type",
                    line=self.line(),
                    hint="pass a Python integer; a tile's value is not known while tracing: loop over the largest bound and mask",
                )
        numbers = range(*(operator.index(cast("Any", arg)) for arg in args))
        if len(numbers) > MAX_TRIPS:
            raise LimitExceeded(
                f"{function} has {len(numbers)} iterations; the limit is {MAX_TRIPS}",
                rule="trip_limit",
                line=self.line(),
                hint="use larger tiles, or fewer iterations",
            )
        site, name, line = call_site(), loop_variable(), self.line()
        name = name or "i"
        if site in self.unroll:
            self.builder.notice(line, f"the loop over {name} is unrolled: its variable's value is needed while tracing")
            return self._unrolled(numbers, range(len(numbers)))
        return self._segments(name, numbers, kind, site, line)

    def _unrolled(self, numbers: range, positions: range) -> Iterator[object]:
        for position in positions:
            self.session.check_deadline()
            index = UnrolledIndex(numbers[position])
            index.first = position == 0
            yield index

    def _segments(self, name: str, numbers: range, kind: LoopKind, site: Site, line: int) -> Iterator[object]:
        """The loop, in pieces where conditions on its variable change; a piece of one iteration is no loop."""
        points = sorted(self.cuts.get(site, frozenset())) if self.cuts is not None else []
        edges = [0, *(point for point in points if 0 < point < len(numbers)), len(numbers)]
        if len(edges) > 2:
            text = f"the loop over {name} is traced in {len(edges) - 1} pieces: conditions on its variable change"
            self.builder.notice(line, text)
        for start, end in itertools.pairwise(edges):
            if end - start == 1 and len(edges) > 2:
                self.in_later_piece = start > 0
                yield from self._unrolled(numbers, range(start, end))
                self.in_later_piece = False
            elif end > start:
                yield from self._symbolic(name, numbers[start:end], kind, site, line, start)

    def _symbolic(
        self, name: str, numbers: range, kind: LoopKind, site: Site, line: int, offset: int
    ) -> Iterator[object]:
        from acceld.nki.frontend.core.index import Expr

        inner = (self.splits or {}).get(site, 1)
        outer = self.open(name, len(numbers) // inner, kind, site, line)
        loops = [outer] if inner == 1 else [outer, self.open(name, inner, kind, site, line)]
        self.offsets[outer] = offset
        value = Expr(Affine(numbers.start, ((outer, numbers.step * inner),)))
        if inner > 1:
            value = value + Expr(Affine(0, ((loops[1], numbers.step),)))
        finished = False
        try:
            yield value
            finished = True
        finally:
            if not finished and self.broken is None:
                self.broken = LegalityError(
                    f"the loop over {name} is left early; its body is traced once for all iterations",
                    rule="loop_exit",
                    line=line,
                    hint="use nl.static_range where break or return is needed",
                )
        for number in reversed(loops):
            self.close(number)

    def open(self, name: str, trips: int, kind: LoopKind, site: Site, line: int) -> int:
        """Open a loop and return its id."""
        loop = self.builder.open_loop(name, trips, kind, line=line)
        self.trips[loop.id], self.kinds[loop.id], self._keys[loop.id], self._names[loop.id] = trips, kind, site, name
        return loop.id

    def close(self, number: int) -> None:
        """Close the innermost loop."""
        if self.broken is not None:
            raise self.broken
        if not self.scope or self.scope[-1] != number:
            raise KernelCrash("loops are closed out of order", rule="loop_order", line=self.line())
        self.builder.close_loop(number)

    def variable(self, loop: int, start: int = 0, step: int = 1) -> object:
        """The loop's variable as an index expression."""
        from acceld.nki.frontend.core.index import Expr

        return Expr(Affine(start, ((loop, step),)))
