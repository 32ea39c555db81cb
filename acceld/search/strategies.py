"""How a budget of plans and attempts is spread over iterations. Pure.

All strategies spend about the same number of attempts, so that they can be compared: ``beam`` B x N x K x T;
``best_of_n`` the same number, all from the baseline; ``reflexion`` one lineage, one attempt after the other;
``random`` the beam's schedule with plans taken at random.
"""

from __future__ import annotations

from dataclasses import dataclass

from acceld.model import Candidate, SearchParameters

STRATEGIES = ("beam", "best_of_n", "reflexion", "random")


@dataclass(frozen=True, slots=True)
class Schedule:
    """What one iteration does."""

    width: int
    """Candidates kept."""
    plans: int
    """Plans a parent."""
    attempts: int
    """Attempts a plan."""
    iterations: int
    from_baseline: bool = False
    """Every iteration starts from the baseline alone."""
    latest: bool = False
    """The next parent is the last candidate that passed, not the best."""

    def parents(self, baseline: Candidate, beam: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """Whom the next iteration plans for."""
        return (baseline,) if self.from_baseline else beam


def schedule(parameters: SearchParameters) -> Schedule:
    """The schedule of the parameters' strategy.

    ValueError for a strategy that does not exist.
    """
    p = parameters
    if p.strategy in ("beam", "random"):
        return Schedule(p.beam_width, p.plans, p.attempts, p.iterations)
    if p.strategy == "best_of_n":
        return Schedule(1, p.beam_width * p.plans, p.attempts, p.iterations, from_baseline=True)
    if p.strategy == "reflexion":
        total = p.plans * p.attempts * (1 + p.beam_width * (p.iterations - 1))
        return Schedule(1, 1, 1, total, latest=True)
    raise ValueError(f"there is no strategy {p.strategy!r}; there are {', '.join(STRATEGIES)}")


def derived_seed(*parts: int) -> int:
    """A 63-bit seed that depends on every part and on their order (FNV-1a over their bytes)."""
    state = 0xCBF29CE484222325
    for part in parts:
        for byte in part.to_bytes(16, "little", signed=True):
            state = ((state ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return state >> 1
