"""Divide a budget of attempts among iterations, plans and parents. Pure functions.

All strategies make about the same number of attempts, so that they can be compared. ``beam`` makes B x N x K attempts
in each of T iterations (B parents, N plans for each parent, K attempts at each plan; the first iteration has one
parent, the baseline). ``best_of_n`` makes as many, all from the baseline. ``reflexion`` makes single attempts in turn,
each from the last candidate that passed. ``random`` is the beam with plans in random order. ``tune`` is the beam
with sequences of rewrites as plans, tuned by latency before their results are checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from acceld.errors import UsageError
from acceld.model import Candidate, SearchParameters

Beam = tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Strategy:
    """The strategy ``beam``: continue from the fastest candidates so far. Other strategies override it."""

    width: int
    """Number of candidates in the beam."""
    plans: int
    """Number of plans for a parent."""
    attempts: int
    """Number of attempts at a plan."""
    iterations: int

    keeps_fastest: ClassVar[bool] = True
    """True if a full beam never accepts a candidate that is slower than all candidates in the beam."""

    keeps_pins: ClassVar[bool] = True
    """True if pinned candidates stay among the parents."""

    def next_beam(self, before: Beam, fastest: Beam, passed: Sequence[Candidate]) -> Beam:
        """Return the next beam.

        ``before`` is the present beam, ``fastest`` the beam of the fastest candidates, and ``passed`` has the children
        of this iteration that passed, in order.
        """
        return fastest

    def parents(self, baseline: Candidate, beam: Beam) -> Beam:
        """Return the candidates for which the next iteration makes plans."""
        return beam

    @property
    def attempts_in_all(self) -> int:
        """Return the number of attempts of a whole run whose beam is full from the second iteration on."""
        return (1 + (self.iterations - 1) * self.width) * self.plans * self.attempts


class BestOfN(Strategy):
    """Start every iteration from the baseline."""

    keeps_pins = False

    def parents(self, baseline: Candidate, beam: Beam) -> Beam:
        """Return the baseline."""
        return (baseline,)


class Reflexion(Strategy):
    """Continue from the last candidate that passed, even if it is slower than earlier candidates."""

    keeps_fastest = False
    keeps_pins = False

    def next_beam(self, before: Beam, fastest: Beam, passed: Sequence[Candidate]) -> Beam:
        """Return the last child that passed; the present beam if no child passed."""
        return (passed[-1],) if passed else before


STRATEGIES: Mapping[str, Callable[[SearchParameters], Strategy]] = {
    "beam": lambda p: Strategy(p.beam_width, p.plans, p.attempts, p.iterations),
    "best_of_n": lambda p: BestOfN(1, p.beam_width * p.plans, p.attempts, p.iterations),
    "reflexion": lambda p: Reflexion(1, 1, 1, p.plans * p.attempts * (1 + p.beam_width * (p.iterations - 1))),
    "random": lambda p: Strategy(p.beam_width, p.plans, p.attempts, p.iterations),
    "tune": lambda p: Strategy(p.beam_width, p.plans * p.attempts, 1, p.iterations),
}


def strategy(parameters: SearchParameters) -> Strategy:
    """Return the strategy that the parameters name. Raise UsageError for an unknown name, which a run of an earlier
    checkout may have.
    """
    if parameters.strategy not in STRATEGIES:
        raise UsageError(
            f"there is no strategy {parameters.strategy!r}; there are {', '.join(STRATEGIES)}",
            hint="begin a new run with one of these: acceld optimize --strategy NAME",
        )
    return STRATEGIES[parameters.strategy](parameters)


@dataclass(frozen=True, slots=True)
class Allowance:
    """Number of candidates that each attempt of one iteration may make, so that the run does not exceed its limit."""

    room: int | None
    """Number of candidates left; None if the run has no limit."""
    places: int
    """Number of attempts that the iteration would make without a limit."""
    repairs: int
    """Limit on an attempt's candidates after the first: repairs, and the kernel that rules have polished."""
    kept: int = 0
    """Number of candidates after the first that are kept for an attempt before another attempt may begin."""

    def of(self, place: int) -> int:
        """Return the number of candidates, repairs included, that the attempt at position ``place`` may make.

        Positions are numbered by plan, then by parent, then by attempt.
        """
        if self.room is None:
            return 1 + self.repairs
        begun = min(self.places, math.ceil(self.room / (1 + self.kept)))
        if place >= begun:
            return 0
        share, rest = divmod(self.room - begun, begun)
        return 1 + min(self.repairs, share + (place < rest))


def derived_seed(*parts: int) -> int:
    """Return a 63-bit seed that depends on every given part and on the order of the parts (FNV-1a over their bytes)."""
    state = 0xCBF29CE484222325
    for part in parts:
        for byte in part.to_bytes(16, "little", signed=True):
            state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return state >> 1
