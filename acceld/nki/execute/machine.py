"""Hold the state of a running program, and raise errors of running it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

import numpy as np

from acceld.nki.errors import KernelCrash, LimitExceeded
from acceld.nki.execute.buffers import Store
from acceld.nki.execute.pair import Pair
from acceld.nki.ir.numerics import REAL, Array
from acceld.nki.ir.program import Affine, Engine, Pattern

Env = list[int]
"""Iteration of each loop, by slot."""


class Meeting(Protocol):
    """Interface through which ranks exchange tiles."""

    def swap(self, rank: int, kind: str, values: Array, line: int) -> list[Array]:
        """Return the tiles of all ranks."""


@dataclass(frozen=True, slots=True)
class Member:
    """One of several ranks that run together."""

    rank: int
    ranks: Meeting


@dataclass
class Machine:
    """Stores, registers and counters of one execution.

    ``slots`` maps loop ids to positions in the iteration list. ``order[slot]`` is the number of iterations of that loop
    that have run before this one; it is the iteration number unless loops are shuffled.
    """

    stores: Sequence[Store]
    partitions: int
    slots: dict[int, int]
    float64: bool
    check_onezero: bool
    check_transposes: bool
    moves_bits: bool
    """True if the tensor engine transposes a tile bit for bit. Otherwise (up to trn1) it multiplies with the identity
    (nisa.nc_transpose).
    """
    max_elements: int
    deadline: float
    registers: list[int | float]
    order: list[int]
    random: np.random.Generator
    chip_functions: bool = False
    keeps_nan: bool = False
    """True if a comparison with NaN is NaN, so that nothing hides an undefined operand."""
    checks_ranges: bool = False
    """True if an argument of a function of the scalar engine beyond its documented range is an error."""
    backwards: bool = False
    """True if the first of several values for one run-time place stays, and not the last."""
    member: Member | None = None
    folds: dict[str, Array] = field(default_factory=dict)
    generators: dict[Engine, Array] = field(default_factory=dict)
    """By engine, XORWOW's words with a row for each partition, if a program has read or set them."""
    pair: Pair | None = None
    """The two cores that currently run side by side with different programs."""

    def __post_init__(self) -> None:
        self.real = REAL[self.float64]

    def check_deadline(self) -> None:
        """Raise LimitExceeded once the deadline has passed."""
        if time.monotonic() > self.deadline:
            raise LimitExceeded(
                "executing the program took longer than its deadline",
                rule="deadline",
                hint="a larger deadline_s, or fewer iterations",
            )

    def register(self, number: int) -> int:
        """Return an integer register's value."""
        value = self.registers[number]
        if isinstance(value, float) and not math.isfinite(value):
            crash(f"register {number} holds {value}, which is not an index", "register_value", 0)
        return int(value)


def crash(message: str, rule: str, line: int, hint: str = "") -> NoReturn:
    """Raise KernelCrash."""
    raise KernelCrash(message, rule=rule, line=line, hint=hint)


def affine_function(const: int, terms: Sequence[tuple[int, int]]) -> Callable[[Env], int]:
    """Return a function that computes ``const + sum(coef * env[slot])`` over ``terms`` of (slot, coef)."""
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
    """Return a function that computes the affine ``value`` from the current values of the loop variables."""
    return affine_function(value.const, [(machine.slots[loop], coef) for loop, coef in value.terms])


def pattern_values(machine: Machine, pattern: Pattern, shape: tuple[int, ...]) -> Callable[[Env], Array]:
    """Return the pattern's value at each point of a space of ``shape``, int64."""
    base = affine(machine, pattern.base)
    slopes = np.zeros(shape, np.int64)
    for axis, coef in enumerate(pattern.coefs[: len(shape)]):
        if coef:
            steps = (np.arange(shape[axis], dtype=np.int64) * coef).reshape(
                [-1 if k == axis else 1 for k in range(len(shape))]
            )
            slopes = slopes + steps
    return lambda env: slopes + base(env)
