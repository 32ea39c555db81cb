"""Hold the state of a running program: memory, registers, options."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

import numpy as np

from acceld.nki.errors import KernelCrash, LimitExceeded
from acceld.nki.execute.answers import Answers
from acceld.nki.execute.buffers import BufferMemory
from acceld.nki.execute.pair import CoreState, Pair
from acceld.nki.ir.numerics import REAL, Array
from acceld.nki.ir.program import Affine, Engine, Pattern

Env = list[int]
"""The current iteration of each loop; ``Machine.slots`` maps a loop's id to the position in this list."""


class Meeting(Protocol):
    """The interface through which ranks exchange tiles."""

    def swap(self, rank: int, kind: str, values: Array, line: int) -> list[Array]:
        """Give the tile ``values`` to all ranks, by a collective of ``kind``. Return the tiles of all ranks, in order
        of rank.
        """


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of several that run together, with the exchange through which it gives and gets tiles."""

    rank: int
    ranks: Meeting


@dataclass
class Machine:
    """The memory, registers and options of one execution.

    ``slots`` maps the id of a loop to its position in the list of iterations. ``order[slot]`` counts the
    iterations of that loop which ran before the current iteration. The count equals the iteration's number unless loops
    are shuffled.
    """

    stores: Sequence[BufferMemory]
    partitions: int
    slots: dict[int, int]
    float64: bool
    check_onezero: bool
    check_transposes: bool
    moves_bits: bool
    """True if the tensor engine transposes a tile bit by bit. If False (up to trn1), the engine multiplies the tile by
    the identity (AWS's page of nisa.nc_transpose).
    """
    max_elements: int
    deadline: float
    registers: list[int | float | None]
    """Value of each register of the running core; None for a register that was never written."""
    order: list[int]
    random: np.random.Generator
    chip_functions: bool = False
    follows_order: bool = False
    """True if undefined memory stands for what depends on the order of affine iterations."""
    keeps_nan: bool = False
    """True if every value that depends on undefined memory is NaN, also integers and the results of comparisons and
    choices.
    """
    answers: Answers | None = None
    """The answers of comparisons, which this run stores or an earlier run has stored; None if answers are neither
    stored nor reversed.
    """
    checks_ranges: bool = False
    """True to raise KernelCrash if a function of the scalar engine gets an argument outside its documented range."""
    otherwise: bool = False
    """True to keep a value other than the last one where an instruction writes different values to one position that is
    known only at run time.
    """
    member: Member | None = None
    folds: dict[str, Array] = field(default_factory=dict)
    generators: dict[Engine, Array] = field(default_factory=dict)
    """Random state by engine (words of XORWOW, one row for each partition), if the program has read or set it."""
    pair: Pair | None = None
    """The two cores that run different programs side by side; None while no such pair runs."""

    def __post_init__(self) -> None:
        self.real = REAL[self.float64]

    def check_deadline(self) -> None:
        """Raise LimitExceeded if the deadline has passed."""
        if time.monotonic() > self.deadline:
            raise LimitExceeded(
                "the program ran longer than its deadline",
                rule="deadline",
                hint="raise deadline_s, or use fewer iterations",
            )

    def set_aside(self) -> CoreState:
        """Return the contents of the running core's registers and accumulators. Afterwards both are undefined, for the
        next core.
        """
        state = list(self.registers), dict(self.folds)
        self.registers[:] = [None] * len(self.registers)
        self.folds.clear()
        return state

    def resume(self, state: CoreState) -> None:
        """Restore the registers and accumulators that :meth:`set_aside` returned for a core."""
        registers, folds = state
        self.registers[:] = registers
        self.folds.clear()
        self.folds.update(folds)

    def held(self, number: int, line: int) -> int | float:
        """Return the value of register ``number``. Raise KernelCrash if the running core never wrote the register."""
        value = self.registers[number]
        if value is None:
            crash(
                "a register is read that the core has never written: its value is undefined", "undefined_memory", line,
                "give it a value with nisa.register_move, on each core",
            )  # fmt: skip
        return value

    def register(self, number: int, line: int) -> int:
        """Return the value of register ``number`` as an int. Raise KernelCrash if the value is not finite."""
        value = self.held(number, line)
        if isinstance(value, float) and not math.isfinite(value):
            crash(f"register {number} holds {value}, which is not an index", "register_value", line)
        return int(value)


def crash(message: str, rule: str, line: int, hint: str = "") -> NoReturn:
    """Raise KernelCrash with the given message, rule, line and hint."""
    raise KernelCrash(message, rule=rule, line=line, hint=hint)


def undefined_use(what: str, line: int) -> NoReturn:
    """Raise KernelCrash because ``what``, such as a register, depends on memory that the kernel never wrote."""
    crash(
        f"{what} depends on memory that was never written", "undefined_memory", line,
        "write every element before it is read: fill the tile, or read only what a mask wrote",
    )  # fmt: skip


def affine_function(const: int, terms: Sequence[tuple[int, int]]) -> Callable[[Env], int]:
    """Return a function of the loops' iterations ``env`` that computes ``const + sum(coef * env[slot])``.

    ``terms`` are pairs (slot, coef).
    """
    if not terms:
        return lambda env: const
    if len(terms) == 1:
        ((s0, c0),) = terms
        return lambda env: const + c0 * env[s0]
    if len(terms) == 2:
        (s0, c0), (s1, c1) = terms
        return lambda env: const + c0 * env[s0] + c1 * env[s1]
    if len(terms) == 3:
        (s0, c0), (s1, c1), (s2, c2) = terms
        return lambda env: const + c0 * env[s0] + c1 * env[s1] + c2 * env[s2]
    pairs = tuple(terms)

    def many(env: Env) -> int:
        value = const
        for slot, coef in pairs:
            value += coef * env[slot]
        return value

    return many


def affine(machine: Machine, value: Affine) -> Callable[[Env], int]:
    """Return a function that computes ``value`` from the current iterations of the loops."""
    return affine_function(value.const, [(machine.slots[loop], coef) for loop, coef in value.terms])


def pattern_values(machine: Machine, pattern: Pattern, shape: tuple[int, ...]) -> Callable[[Env], Array]:
    """Return a function of the loops' iterations that computes the pattern at each point of ``shape``, as
    int64.
    """
    base = affine(machine, pattern.base)
    slopes = np.zeros(shape, np.int64)
    for axis, coef in enumerate(pattern.coefs[: len(shape)]):
        if coef:
            steps = (np.arange(shape[axis], dtype=np.int64) * coef).reshape(
                [-1 if k == axis else 1 for k in range(len(shape))]
            )
            slopes = slopes + steps
    return lambda env: slopes + base(env)
