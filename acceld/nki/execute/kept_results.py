"""Run a program as the performance model times it: instructions that the model drops are not run, and instructions that
the model merges are computed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import mul

from acceld.nki.execute.context import Context, Step
from acceld.nki.execute.machine import Env
from acceld.nki.execute.reductions import folding_registers
from acceld.nki.execute.windows import Window
from acceld.nki.ir.def_use import reduce_command
from acceld.nki.ir.numerics import Array
from acceld.nki.ir.program import Loop
from acceld.nki.ir.turns import LEFT_OUT, OWN, value_of

Room = Callable[[int], None]
"""A function that reserves a number of bytes of the execution's memory; a negative number releases as many."""


class KeptResults:
    """Keep the results of executions that later executions copy, until the last copy is made.

    For some instructions, by number in program order, ``turns`` says which executions are computed, left out or copied
    (:mod:`acceld.nki.ir.turns`).
    """

    def __init__(self, turns: Mapping[int, Sequence[int]], room: Room) -> None:
        self._turns, self._room = turns, room
        self._kept: dict[int, list[Array]] = {}
        self._left = Counter(
            value for one in turns.values() for turn in one if turn >= 0 for value, takes in (value_of(turn),) if takes
        )

    def __contains__(self, number: int) -> bool:
        """Tell whether some execution of the instruction ``number`` is not computed: it is left out, or takes the result
        of an earlier execution.
        """
        return number in self._turns

    def step(self, number: int, loops: Sequence[Loop], context: Context, step: Step) -> Step:
        """Return a step that runs ``step`` only for the executions that must be computed. For the others, the returned
        step writes a kept result, or does nothing if the execution is left out.
        """
        turns, machine = self._turns[number], context.machine
        strides = [*accumulate([loop.trips for loop in reversed(loops[1:])], mul, initial=1)][::-1]
        place = [(machine.slots[loop.id], stride) for loop, stride in zip(loops, strides, strict=False)]
        tiles = [context.dst(at, arranged=False) for at in range(len(context.instruction.dsts))]
        folds = folding_registers(context) if reduce_command(context.instruction) != "idle" else None
        rows = min(tiles[0].access.shape[0], machine.partitions) if folds is not None else 0

        def run(env: Env, window: Window) -> None:
            turn = turns[sum([env[slot] * stride for slot, stride in place])]
            if turn == LEFT_OUT:
                return
            value, takes = value_of(turn)
            held = self._kept.get(value) if takes and turn != OWN else None
            if held is None:
                step(env, window)
            else:
                for tile, stored in zip(tiles, held, strict=False):
                    tile.restore(env, window, stored)
                if folds is not None:
                    folds(rows)[...] = held[-1]
            if turn == OWN:
                return
            if takes:
                self._left[value] -= 1
                if not self._left[value]:
                    self._drop(value)
            elif self._left[value]:
                self._drop(value)
                made = [tile.stored(env, window) for tile in tiles]
                made += [folds(rows).copy()] if folds is not None else []
                self._room(sum(one.nbytes for one in made))
                self._kept[value] = made

        return run

    def _drop(self, value: int) -> None:
        self._room(-sum(one.nbytes for one in self._kept.pop(value, ())))
