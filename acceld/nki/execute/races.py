"""Detect results that depend on which core of a launch writes last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from acceld.nki.errors import placed
from acceld.nki.execute.buffers import Store
from acceld.nki.execute.machine import Env, crash
from acceld.nki.ir.def_use import reads_destination
from acceld.nki.ir.numerics import Array
from acceld.nki.ir.program import Access, Instruction, Program
from acceld.nki.ir.regions import index_bounds


class Races:
    """Compare the outputs before and after a core that nothing orders against the others.

    Cores run one after the other here. If two of them change an element, it holds the value of the later one, but on
    the chip either may be last. ``changed`` has the elements that earlier cores changed, by buffer.
    """

    def __init__(self, program: Program, stores: Sequence[Store], changed: dict[int, Array]) -> None:
        self._program, self._stores, self._changed = program, stores, changed
        folded = {
            dst.buffer
            for one, _ in program.walk()
            for place, dst in enumerate(one.dsts)
            if reads_destination(one, place)
        }
        self._watched = [number for number in dict.fromkeys(program.outputs) if number not in folded]
        self._before: dict[int, Array] = {}

    def begin(self, env: Env) -> None:
        """Remember the current outputs."""
        self._before = {number: self._elements(number).copy() for number in self._watched}

    def end(self, env: Env) -> None:
        """Raise KernelCrash if this core changed an element that an earlier one had changed."""
        for number, before in self._before.items():
            changed = self._elements(number) != before
            earlier = self._changed.get(number)
            if earlier is not None and (both := changed & earlier).any():
                buffer = self._program.buffers[number]
                place = [int(n) for n in np.unravel_index(int(np.argmax(both)), buffer.shape)]
                writer = self._writer(number, place)
                crash(
                    placed(
                        f"two cores write different values to {int(both.sum())} elements of {buffer.name or 'an output'}, "
                        f"the first at {place}, without a barrier between them: it is undefined which one stays",
                        writer.place,
                    ),
                    "race",
                    writer.line,
                    "let each core write its own part, or put nisa.core_barrier between",
                )
            self._changed[number] = changed if earlier is None else changed | earlier
        self._before = {}

    def _writer(self, number: int, place: Sequence[int]) -> Instruction:
        """Return the last instruction of the program that may write an element of a buffer."""
        writers = [
            (one, dst, {loop.id: loop.trips for loop in loops})
            for one, loops in self._program.walk()
            for dst in one.dsts
            if dst.buffer == number
        ]
        reaching = [one for one, dst, trips in writers if dst.indirect or _reaches(dst, place, trips)]
        return (reaching or [one for one, _, _ in writers])[-1]

    def _elements(self, number: int) -> Array:
        store = self._stores[number]
        return store.array.view(f"u{store.layout.dtype.itemsize}")


def _reaches(access: Access, place: Sequence[int], trips: Mapping[int, int]) -> bool:
    bounds = (index_bounds(access, dim, trips) for dim in range(len(place)))
    return all(low <= at <= high for at, (low, high) in zip(place, bounds, strict=True))
