"""Find results that depend on which iteration of an affine loop runs first.

The simulator runs the iterations of a loop one after another. On a chip the iterations of an affine loop have no order. So
a value is undefined if it comes from an element that another iteration writes: whether the other iteration has run is
unknown. An element is undefined after the loop if several iterations leave different values there. Nothing is undefined
about an element to which all iterations only add, or that they combine in another way in which the order does not matter
(:func:`acceld.nki.ir.def_use.joins`).

An execution sees only what an earlier iteration writes. So a program runs twice, in program order and in reversed order:
each pair of iterations then meets in both orders. What is undefined has a mark
(:attr:`acceld.nki.execute.buffers.BufferMemory.marks`), and each result has the marks of what it was computed from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from acceld.nki.execute.buffers import BufferMemory
from acceld.nki.execute.context import Context, Step
from acceld.nki.execute.machine import Env, Machine, crash
from acceld.nki.execute.tiles import Tile
from acceld.nki.execute.windows import Window
from acceld.nki.ir.def_use import joins, reduce_command, reduce_loops, register_written, registers_read, uses_of
from acceld.nki.ir.numerics import Array
from acceld.nki.ir.operations import Trait, having
from acceld.nki.ir.program import Access, Instruction, Program

RULE = "affine_order"
"""The rule id of a program whose results depend on the order of affine iterations."""
HINT = "use a sequential range where an iteration uses what an earlier iteration computed"
_OVERWRITES = ("reset", "reset_reduce", "load_reduce")
_WHOLE = having(Trait.WHOLE)
_PLAIN = 0
"""The code of a write that takes the place of what was there. Other codes stand for an operation that joins values."""


class _Written:
    """Record what the iterations of one loop have written to one buffer since the loop began.

    Each array has an entry for each element of the buffer. A *stamp* identifies an iteration: the number of
    iterations, of all loops, that had begun before. A stamp below that of the loop's first iteration means that no
    iteration of the loop did this.

    - ``writer``: the iteration that wrote the element last. - ``joined``: the last iteration that combined its value
    with the value of another iteration. - ``way``: how the iterations wrote the element so far: _PLAIN, or the code
    of the one operation that combines. - ``value``: the value and the mark that the first iteration left. - ``kept``:
    the iteration before which ``value`` was recorded.
    """

    __slots__ = ("_store", "_take", "joined", "kept", "pending", "value", "varied", "way", "writer")

    def __init__(self, store: BufferMemory, take: Callable[[int, int], None]) -> None:
        self._store, self._take = store, take
        self.writer = self._made(-1, np.dtype(np.int32))
        self.way = self._made(_PLAIN, np.dtype(np.uint8))
        self.joined = self.kept = self.writer[:0]
        self.value = np.zeros((2, 0), _words(store))
        self.pending: list[Array] = []
        """Elements that the running iteration has written over what another iteration left."""
        self.varied: list[Array] = []
        """Elements in which iterations leave different values."""

    def _made(self, value: int, dtype: np.dtype[Any]) -> Array:
        layout = self._store.layout
        self._take(layout.elements * dtype.itemsize, layout.buffer.line)
        return np.full(layout.elements, value, dtype)

    def join(self, places: Array, stamp: int) -> None:
        """Record that the iteration ``stamp`` combines its values with those that another iteration has left in
        ``places``, for example by adding them up.
        """
        if places.size and not self.joined.size:
            self.joined = self._made(-1, np.dtype(np.int32))
        self.joined[places] = stamp

    def joins(self, places: Array, stamp: int) -> Array:
        """Return a mask of the elements in ``places`` where the iteration ``stamp`` has combined its own value with the
        value of another iteration.
        """
        return self.joined[places] == stamp if self.joined.size else np.zeros(places.shape, np.bool_)

    def take_over(self, places: Array, running: _Running, old: Array) -> None:
        """Record that the running iteration replaces ``old``, which another iteration left in ``places``."""
        if not places.size:
            return
        if not self.kept.size:
            self.kept = self._made(-1, np.dtype(np.int32))
            words = _words(self._store)
            self.value = np.stack([self._made(0, words), self._made(0, words)])
        first = self.kept[places] < running.began
        self.value[:, places[first]] = old[:, first]
        self.kept[places[first]] = running.now
        self.pending.append(places)

    def vary(self, places: Array) -> None:
        """Record that iterations leave different values in ``places``."""
        if places.size:
            self.varied.append(places)


@dataclass(slots=True)
class _State:
    """The last use of a register or an accumulator since a loop began: the stamp of the iteration that wrote it, and
    the way of writing, as in :class:`_Written`.
    """

    writer: int = -1
    way: int = _PLAIN
    varied: bool = False


@dataclass(slots=True)
class _Running:
    """A loop that is running: the stamps of its first and of its present iteration, and its registers and accumulators."""

    began: int
    now: int = -1
    states: dict[int | str, _State] = field(default_factory=lambda: defaultdict(_State))


class Iterations:
    """Mark what depends on the order of affine iterations while a program runs.

    ``undecided`` has, by affine loop, the buffers that may connect iterations of that loop. ``take`` is called with the
    bytes that the records need, and the line of a buffer. Raise KernelCrash if a register or an accumulator connects
    iterations.
    """

    def __init__(
        self,
        program: Program,
        machine: Machine,
        undecided: Mapping[int, frozenset[int]],
        take: Callable[[int, int], None],
    ) -> None:
        self._buffers, self._machine, self._undecided, self._take = program.buffers, machine, undecided, take
        self._around = {id(node): [loop.id for loop in loops if loop.id in undecided] for node, loops in program.walk()}
        self._written: dict[tuple[int, int], _Written] = {}
        self._running: dict[int, _Running] = {}
        self._clock = 0
        self._codes: dict[str, int] = {"": _PLAIN}

    def watches(self, loop: int) -> bool:
        """Tell whether iterations of a loop may be connected."""
        return loop in self._undecided

    def begin(self, loop: int) -> None:
        """Record that a loop begins."""
        self._running[loop] = _Running(self._clock + 1)

    def next(self, loop: int) -> None:
        """Record that the next iteration of a loop begins."""
        self._settle(loop)
        self._clock += 1
        self._running[loop].now = self._clock

    def end(self, loop: int) -> None:
        """Record that a loop has ended, and mark the elements in which its iterations left different values."""
        self._settle(loop)
        running = self._running.pop(loop)
        for number in self._undecided[loop]:
            written, store = self._written.get((loop, number)), self._machine.stores[number]
            if written is None or not written.varied:
                continue
            if store.marks is not None:
                store.marks.view(_words(store))[np.concatenate(written.varied)] = np.iinfo(_words(store)).max
            written.varied = []
        for name, state in running.states.items():
            if not state.varied:
                continue
            if isinstance(name, int):
                self._machine.registers[name] = None
            elif name in self._machine.folds:
                self._machine.folds[name][...] = np.nan

    def _settle(self, loop: int) -> None:
        """Compare what the iteration that ends has written to each element with what earlier iterations wrote there."""
        for number in self._undecided[loop]:
            written = self._written.get((loop, number))
            if written is None or not written.pending:
                continue
            store, places = self._machine.stores[number], np.concatenate(written.pending)
            written.pending = []
            if store.marks is None:
                continue
            words = _words(store)
            value, mark = written.value[:, places]
            differs = (store.array.view(words)[places] != value) | (store.marks.view(words)[places] != 0) | (mark != 0)
            written.vary(places[differs])

    def checked(self, context: Context, step: Step) -> Step:
        """Return ``step`` with a check: it marks the elements that the instruction reads as undefined if their values
        depend on whether another iteration of an affine loop has run.

        Return ``step`` itself if the instruction needs no check.
        """
        node = context.instruction
        around = self._around.get(id(node), [])
        states = _states(node) if around else []
        uses = [use for use in uses_of(node, ()) if any(use.access.buffer in self._undecided[loop] for loop in around)]
        if not uses and not states:
            return step
        reads: list[tuple[Callable[[Env, Window], Array], int]] = []
        writes: list[tuple[Callable[[Env, Window], Array], int, int, list[int]]] = []
        joined: set[int] = set()
        folds = reduce_loops(node)
        for number, dst in enumerate(node.dsts):
            if not any(use.writes and use.access is dst for use in uses):
                continue
            positions, way = self._positions(context, dst), joins(node, number, self._buffers)
            inner = [loop for loop in around if way and (not folds or loop in folds)]
            if inner:
                writes.append((positions, dst.buffer, self._code(way), inner))
                joined |= {id(src) for src in node.srcs if src == dst}
            if len(inner) < len(around):
                writes.append((positions, dst.buffer, _PLAIN, [loop for loop in around if loop not in inner]))
                if not way and any(use.access is dst and use.reads for use in uses):
                    reads.append((positions, dst.buffer))
        reads += [
            (self._positions(context, use.access), use.access.buffer)
            for use in uses
            if not use.writes and id(use.access) not in joined
        ]
        partial, line = node.op not in _WHOLE, node.line

        def run(env: Env, window: Window) -> None:
            for name, reading, writing in states:
                self._pass_on(around, name, reading, self._code(writing or ""), writing, line)
            targets = [(positions(env, window), number, way, loops) for positions, number, way, loops in writes]
            before = [_contents(self._machine.stores[number], places) for places, number, *_ in targets]
            held: list[tuple[BufferMemory, Array, Array]] = []
            for positions, number in reads:
                places = positions(env, window)
                connected = self._read(around, number, places)
                if connected.any():
                    self._mark(held, number, places[connected])
            for (places, number, way, loops), old in zip(targets, before, strict=True):
                if way:
                    connected = self._join(loops, number, places, old, way)
                    if connected.any():
                        self._mark([], number, places[connected])
            step(env, window)
            for store, places, marks in reversed(held):
                _restore(store, places, marks, [at for at, one, *_ in targets if self._machine.stores[one] is store])
            for (places, number, way, loops), old in zip(targets, before, strict=True):
                if way:
                    continue
                if partial:
                    changed = (_contents(self._machine.stores[number], places) != old).any(axis=0)
                    self._write(loops, number, places[changed], old[:, changed])
                else:
                    self._write(loops, number, places, old)

        return run

    def _positions(self, context: Context, access: Access) -> Callable[[Env, Window], Array]:
        """Return a function that computes the positions of an operand's elements in its buffer."""
        node, skips = context.instruction, context.text("oob") == "skip"
        for number, src in enumerate(node.srcs):
            if src is access:
                return context.src(number, arranged=False, skip_outside=skips).positions
        for number, dst in enumerate(node.dsts):
            if dst is access:
                return context.dst(number, arranged=False, skip_outside=skips).positions
        index = Tile(context.machine, access, context.trips, line=node.line)
        return lambda env, window: index.positions(env, None)

    def _mark(self, held: list[tuple[BufferMemory, Array, Array]], number: int, places: Array) -> None:
        """Mark the elements ``places`` of buffer ``number`` as undefined. Add their marks so far to ``held``."""
        store = self._machine.stores[number]
        if store.marks is None:
            return
        marks = store.marks.view(_words(store))
        held.append((store, places, marks[places]))
        marks[places] = np.iinfo(marks.dtype).max

    def _code(self, way: str) -> int:
        return self._codes.setdefault(way, len(self._codes))

    def _of(self, loop: int, number: int) -> _Written:
        if (loop, number) not in self._written:
            self._written[loop, number] = _Written(self._machine.stores[number], self._take)
        return self._written[loop, number]

    def _watched(self, around: Sequence[int], number: int) -> list[tuple[_Written, _Running]]:
        """Return the records of buffer ``number`` for those running loops, among the loops ``around``, whose iterations
        the buffer may connect.
        """
        return [
            (self._of(loop, number), self._running[loop])
            for loop in around
            if loop in self._running and number in self._undecided[loop]
        ]

    def _read(self, around: Sequence[int], number: int, places: Array) -> Array:
        """Return a mask of the elements ``places`` of buffer ``number`` whose values depend on whether another
        iteration of one of the loops ``around`` has run.
        """
        connected = np.zeros(places.shape, np.bool_)
        for written, running in self._watched(around, number):
            writer = written.writer[places]
            others = (writer >= running.began) & (writer != running.now)
            partial = (writer == running.now) & (written.way[places] != _PLAIN) & written.joins(places, running.now)
            connected |= others | partial
        return connected

    def _join(self, around: Sequence[int], number: int, places: Array, old: Array, way: int) -> Array:
        """Record that the running iteration combines values with those in the elements ``places`` of buffer ``number``,
        by the operation with the code ``way``. ``old`` is what the elements held before. Return a mask of the elements
        to which another iteration wrote by a different operation, so that the order of the iterations matters.
        """
        connected = np.zeros(places.shape, np.bool_)
        for written, running in self._watched(around, number):
            writer, before = written.writer[places], written.way[places]
            own = writer == running.now
            others = (writer >= running.began) & ~own
            connected |= others & (before != way)
            written.vary(places[others & (before != way) & (before != _PLAIN)])
            taken = others & (before == _PLAIN)
            written.take_over(places[taken], running, old[:, taken])
            # joined to the iteration's own value, or joined in two ways, which have an order
            now = np.where(others | own, np.where(before == way, way, _PLAIN), way)
            mixed = own & (before != way) & (before != _PLAIN) & written.joins(places, running.now)
            connected |= mixed
            written.join(places[others], running.now)
            written.writer[places], written.way[places] = running.now, now
        return connected

    def _write(self, around: Sequence[int], number: int, places: Array, old: Array) -> None:
        """Record that the running iteration has written the elements ``places`` of buffer ``number``, which held
        ``old`` before.
        """
        for written, running in self._watched(around, number):
            writer, before = written.writer[places], written.way[places]
            own = writer == running.now
            others = (writer >= running.began) & ~own
            lost = (others | (own & written.joins(places, running.now))) & (before != _PLAIN)
            written.vary(places[lost])
            taken = others & (before == _PLAIN)
            written.take_over(places[taken], running, old[:, taken])
            written.writer[places], written.way[places] = running.now, _PLAIN

    def read_register(self, number: int, line: int) -> None:
        """Record that register ``number`` is read. Raise KernelCrash if another iteration of a running loop has written
        the register.
        """
        self._pass_on(list(self._running), number, True, _PLAIN, None, line)

    def _pass_on(
        self, around: Sequence[int], name: int | str, reads: bool, way: int, writing: str | None, line: int
    ) -> None:
        """Record a use of the register or accumulator ``name``. Raise KernelCrash if its value depends on another
        iteration of one of the loops ``around``.

        ``way`` is the code of the operation that writes. ``writing`` is None for a use that only reads.
        """
        for loop in around:
            running = self._running.get(loop)
            if running is None:
                continue
            state = running.states[name]
            others = running.began <= state.writer != running.now
            joins_on = writing is not None and way != _PLAIN
            if others and (state.way != way or way == _PLAIN) and (reads or joins_on):
                crash(
                    f"{'a register' if isinstance(name, int) else f'the accumulator of {name}'} holds what another iteration "
                    "of an affine loop left: it is undefined which iteration runs first",
                    RULE,
                    line,
                    HINT,
                )
            if writing is None:
                continue
            state.varied |= others and way == _PLAIN
            state.way = way if state.writer != running.now or way in (_PLAIN, state.way) else _PLAIN
            state.writer = running.now


def _states(node: Instruction) -> list[tuple[int | str, bool, str | None]]:
    """Return the registers and accumulators that an instruction uses, each as (name, whether the instruction reads
    it, how the instruction writes it).

    How the instruction writes is None if it does not write the register, and empty if the new value replaces the old
    one.
    """
    found: list[tuple[int | str, bool, str | None]] = [(number, True, None) for number in registers_read(node)]
    target = register_written(node)
    if target is not None:
        found.append((target, False, ""))
    command = reduce_command(node)
    if command == "reduce":
        shown = len(node.dsts) > 1 or node.op == "tensor_scalar_cumulative"
        found.append((node.engine.value, shown, "" if shown else str(node.attr("reduce_op") or "add")))
    elif command in _OVERWRITES:
        found.append((node.engine.value, False, ""))
    return found


def _words(store: BufferMemory) -> np.dtype[np.unsignedinteger]:
    """Return the unsigned integer type as wide as an element of a buffer."""
    return np.dtype(f"u{store.layout.dtype.itemsize}")


def _contents(store: BufferMemory, places: Array) -> Array:
    """Return the bits of the elements ``places`` of a buffer (row 0), and their marks (row 1)."""
    words = _words(store)
    marks = np.zeros(places.shape, words) if store.marks is None else store.marks.view(words)[places]
    return np.stack([store.array.view(words)[places], marks])


def _restore(store: BufferMemory, places: Array, marks: Array, written: Sequence[Array]) -> None:
    """Undo ``_mark`` after a step: give elements the ``marks`` that they had before the step, except elements at the
    places ``written``, which the step wrote.
    """
    if store.marks is None:
        return
    kept = np.ones(places.shape, np.bool_)
    for targets in written:
        kept &= ~np.isin(places, targets)
    store.marks.view(_words(store))[places[kept]] = marks[kept]
