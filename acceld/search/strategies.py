"""Spread a budget of plans and attempts over iterations. Pure.

All strategies spend about the same number of attempts, so that they can be compared: ``beam`` B x N x K x T;
``best_of_n`` the same number, all from the baseline; ``reflexion`` one lineage, one attempt after the other; ``random``
the beam's schedule with plans taken at random. ``tune`` and ``evolve`` use the beam's schedule, with sequences of
rewrites as plans, which are tuned before anything is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from acceld.model import Candidate, SearchParameters

Beam = tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Strategy:
    """Continue from the fastest candidates so far, which are the beam."""

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

        ``before`` is the former beam, ``fastest`` has the fastest candidates now, and ``passed`` has the children that
        passed, in order.
        """
        return fastest

    def parents(self, baseline: Candidate, beam: Beam) -> Beam:
        """Return the candidates that the next iteration plans for."""
        return beam

    @property
    def attempts_in_all(self) -> int:
        """Number of attempts in a whole run, if its beam is full from the second iteration on."""
        return (1 + (self.iterations - 1) * self.width) * self.plans * self.attempts


class BestOfN(Strategy):
    """Start every iteration from the baseline."""

    keeps_pins = False

    def parents(self, baseline: Candidate, beam: Beam) -> Beam:
        """Return the baseline."""
        return (baseline,)


class Reflexion(Strategy):
    """Continue from the last candidate that passed, even if it is slower."""

    keeps_fastest = False
    keeps_pins = False

    def next_beam(self, before: Beam, fastest: Beam, passed: Sequence[Candidate]) -> Beam:
        """Return the last child that passed, or the former beam if no child passed."""
        return (passed[-1],) if passed else before


STRATEGIES: Mapping[str, Callable[[SearchParameters], Strategy]] = {
    "beam": lambda p: Strategy(p.beam_width, p.plans, p.attempts, p.iterations),
    "best_of_n": lambda p: BestOfN(1, p.beam_width * p.plans, p.attempts, p.iterations),
    "reflexion": lambda p: Reflexion(1, 1, 1, p.plans * p.attempts * (1 + p.beam_width * (p.iterations - 1))),
    "random": lambda p: Strategy(p.beam_width, p.plans, p.attempts, p.iterations),
    "tune": lambda p: Strategy(p.beam_width, p.plans * p.attempts, 1, p.iterations),
    "evolve": lambda p: Strategy(p.beam_width, p.plans * p.attempts, 1, p.iterations),
}


def strategy(parameters: SearchParameters) -> Strategy:
    """Return the strategy that the parameters name. Raise ValueError for an unknown name."""
    if parameters.strategy not in STRATEGIES:
        raise ValueError(f"there is no strategy {parameters.strategy!r}; there are {', '.join(STRATEGIES)}")
    return STRATEGIES[parameters.strategy](parameters)


@dataclass(frozen=True, slots=True)
class Allowance:
    """Share a run's remaining candidates among the places of one iteration.

    Each place's share is fixed before the iteration begins, so it does not depend on what finishes first.
    """

    room: int | None
    """Number of candidates left; None if the run has no limit."""
    places: int
    repairs: int
    """Limit on candidates of a place after its first candidate: repairs, and the polished kernel."""
    kept: int = 0
    """Number of these further candidates that a place may make before another place begins."""

    def of(self, place: int) -> int:
        """Return the number of candidates, with repairs, that a place may make.

        Places are numbered by plan, then by parent, then by attempt.
        """
        if self.room is None:
            return 1 + self.repairs
        begun = min(self.places, math.ceil(self.room / (1 + self.kept)))
        if place >= begun:
            return 0
        share, rest = divmod(self.room - begun, begun)
        return 1 + min(self.repairs, share + (place < rest))


def derived_seed(*parts: int) -> int:
    """Return a 63-bit seed that depends on every part and on their order (FNV-1a over their bytes)."""
    state = 0xCBF29CE484222325
    for part in parts:
        for byte in part.to_bytes(16, "little", signed=True):
            state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return state >> 1
