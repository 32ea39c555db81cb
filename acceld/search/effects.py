"""Recognize rewrites that make the same change: by the change's class, the calls that it adds or removes, and its
effect on the profile. Pure functions.

Two summaries of one change need not share a word. So no summary is bought for a rewrite whose change an insight
describes already.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from acceld.model import Candidate, Profile

DIFFERENT = 1.1
"""Ratio from which two figures of profiles count as different."""

SAME = 0.8
"""Share of common marks (0 to 1), of all marks of two rewrites, from which both make the same change."""

_CALL = re.compile(r"\.([A-Za-z_]\w*)|\b([A-Za-z_]\w*)(?=\()")


@dataclass(frozen=True, slots=True)
class Effect:
    """The change of a rewrite from the slow kernel to the fast one, as marks that can be compared."""

    change: str
    """Change class of the plan."""
    calls: frozenset[str]
    """Names that the fast kernel calls, or takes from a module, more or less often in its text."""
    figures: frozenset[str]
    """Busy times of engines and counters of the profile that grew or shrank."""


def effect_of(slow: Candidate, fast: Candidate, change: str) -> Effect | None:
    """Return what a rewrite of the change class ``change`` changed; None if that can not be told, because the class is
    not known or the profiles have no figures that differ.
    """
    before, after = (one.evaluation.profile if one.evaluation else None for one in (slow, fast))
    if not change or before is None or after is None:
        return None
    figures = _marks(_figures(before), _figures(after), DIFFERENT)
    if not figures:
        return None
    return Effect(change, _marks(_calls(slow.kernel.text), _calls(fast.kernel.text), 1.0), figures)


def similarity(one: Effect, other: Effect) -> float:
    """Return how alike two effects are, from 0 to 1. Effects of different change classes are not alike."""
    if one.change != other.change:
        return 0.0
    return min(_common(one.calls, other.calls), _common(one.figures, other.figures))


def _figures(profile: Profile) -> dict[str, float]:
    return {**profile.engines_us, **profile.counters}


def _calls(text: str) -> Counter[str]:
    return Counter(found[1] or found[2] for found in _CALL.finditer(text))


def _marks(before: Mapping[str, float], after: Mapping[str, float], ratio: float) -> frozenset[str]:
    """Return the names whose figures differ by more than ``ratio``, each with the direction."""
    marks = set()
    for name in {*before, *after}:
        old, new = before.get(name, 0.0), after.get(name, 0.0)
        if max(old, new) > ratio * min(old, new):
            marks.add(f"{name} {'more' if new > old else 'less'}")
    return frozenset(marks)


def _common(one: frozenset[str], other: frozenset[str]) -> float:
    together = one | other
    return len(one & other) / len(together) if together else 1.0
