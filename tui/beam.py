"""Choose which candidates of a run's tree get lines of their own. The functions are pure.

These candidates get lines, unless a person opens or closes branches: the path to the best candidate, all candidates
that were ever in a beam, marked candidates, and candidates that wait or run. The other children of a candidate share
one folded line, which counts them by status. So a tree of 100,000 candidates fits a page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from acceld.figures import STATUS_WORDS
from acceld.model import FAILED, Status
from acceld.tui.state import CandidateView, RunView

NEAR = 0.005
"""Relative distance of two latencies below which siblings are shown as one line."""
SHOWN = 6
"""Number of children of an open candidate that are shown in addition to those that are never folded (:func:`kept_of`).
"""
UNFOLDED = 500
"""Limit on the number of children that are shown for a candidate whose folded line a person has opened."""


@dataclass(frozen=True, slots=True)
class TreeLine:
    """A line of the tree. It shows one candidate; or, if ``folded`` is not 0, it stands for ``folded`` children of a
    candidate that have no lines of their own.
    """

    candidate: int
    """Id of the candidate; for a folded line, of the parent."""
    guide: str
    folded: int = 0
    note: str = ""
    open: bool = False
    has_children: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """Return what identifies the line while the tree grows: (kind of line, candidate's id)."""
        return ("rest" if self.folded else "candidate", self.candidate)


@dataclass(slots=True)
class Folding:
    """A person's choices for the tree. ``opened``, ``closed`` and ``unfolded`` have the ids of candidates whose
    branches the person opened, closed or unfolded. ``only_failed`` lists failed candidates alone. ``query`` lists
    only candidates whose line has all its words; an empty ``query`` lists all.
    """

    opened: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    unfolded: set[int] = field(default_factory=set)
    only_failed: bool = False
    query: str = ""


def kept_of(run: RunView) -> frozenset[int]:
    """Return the ids of the candidates that are never folded: those that were ever in a beam, that are on the path to
    the best candidate, or that a person pinned or vetoed.
    """
    kept = {number for _, beam in run.beams.values() for number in beam}
    if run.best:
        kept.update(run.path(run.best.candidate))
    kept.update(number for number in run.marks if run.mark(number))
    return frozenset(kept)


def tree_lines(run: RunView, folding: Folding) -> list[TreeLine]:
    """Return the lines to show, from the baselines down."""
    if folding.query or folding.only_failed:
        return _matching(run, folding)
    kept = kept_of(run)
    opened = {run.candidates[number].parent for number in kept if number in run.candidates}
    opened.update(run.children.get(0, [])[:1])
    lines: list[TreeLine] = []
    stack: list[tuple[int, str, str]] = [(root, "", "") for root in reversed(run.children.get(0, []))]
    rests: dict[int, TreeLine] = {}
    while stack:
        number, guide, below = stack.pop()
        if number < 0:
            lines.append(rests.pop(-number))
            continue
        children = run.children.get(number, [])
        is_open = bool(children) and number not in folding.closed and (number in opened or number in folding.opened)
        lines.append(TreeLine(number, guide, open=is_open, has_children=bool(children)))
        if not is_open:
            continue
        shown = _shown(run, children, kept, number in folding.unfolded)
        if number not in folding.unfolded:
            shown = _distinct(run, shown, kept)
        rest = len(children) - len(shown)
        entries: list[tuple[int, str, str]] = []
        for place, child in enumerate(shown):
            last = place == len(shown) - 1 and not rest
            entries.append((child, below + ("└ " if last else "├ "), below + ("  " if last else "│ ")))
        if rest:
            visible = set(shown)
            note = _note(run, [child for child in children if child not in visible], shown)
            rests[number] = TreeLine(number, below + "└ ", folded=rest, note=note)
            entries.append((-number, "", ""))
        stack.extend(reversed(entries))
    return lines


def _shown(run: RunView, children: list[int], kept: frozenset[int], unfolded: bool) -> list[int]:
    """Return which of a candidate's children are shown, fastest first."""
    limit = UNFOLDED if unfolded else SHOWN
    if len(children) <= limit:
        return sorted(children, key=lambda number: _rank(run.candidates[number]))
    matter = [number for number in children if number in kept]
    recent = children if unfolded else children[-200:]
    others = sorted((n for n in recent if n not in kept), key=lambda n: _rank(run.candidates[n]))
    busy = [number for number in others if run.candidates[number].phase == "running"]
    passed = [number for number in others if run.candidates[number].latency_us is not None or unfolded]
    chosen = dict.fromkeys([*matter, *busy, *passed[: max(0, limit - len(matter) - len(busy))]])
    return sorted(chosen, key=lambda number: _rank(run.candidates[number]))


def _rank(candidate: CandidateView) -> tuple[int, float, int]:
    passed = candidate.latency_us is not None and candidate.status not in FAILED
    return (0 if passed else 1, candidate.latency_us or 0.0, candidate.id)


def _distinct(run: RunView, shown: list[int], kept: frozenset[int]) -> list[int]:
    """Return ``shown`` without candidates that are as fast as an earlier one in ``shown``. Candidates in ``kept``,
    and candidates that run, always stay.
    """
    found: list[int] = []
    for number in shown:
        one = run.candidates[number]
        if number in kept or one.phase == "running" or _like(run, one, found) is None:
            found.append(number)
    return found


def _like(run: RunView, one: CandidateView, shown: Iterable[int]) -> int | None:
    """Return the shown sibling with (nearly) the same latency as candidate ``one``; None if there is none."""
    if one.status is not Status.PASSED or not one.latency_us:
        return None
    for number in shown:
        other = run.candidates[number]
        if other.status is Status.PASSED and abs((other.latency_us or 0.0) / one.latency_us - 1) <= NEAR:
            return number
    return None


def _note(run: RunView, rest: list[int], shown: list[int]) -> str:
    """Return the text of a folded line, such as ``5 like c12, 3 failed``. The text counts the candidates in ``rest``
    that are as fast as a sibling in ``shown``, and the other candidates by status.
    """
    counts: Counter[str] = Counter()
    for number in rest:
        one = run.candidates[number]
        like = _like(run, one, shown)
        known = "waiting" if one.status is None else STATUS_WORDS[one.status]
        counts[f"like c{like}" if like is not None else known] += 1
    return ", ".join(f"{number} {word}" for word, number in counts.most_common(4))


def _matching(run: RunView, folding: Folding) -> list[TreeLine]:
    """Return a line for each candidate that the filter lets through, newest first, at most ``UNFOLDED`` of
    them.
    """
    found: list[TreeLine] = []
    words = folding.query.lower().split()
    for number in reversed(run.candidates):
        one = run.candidates[number]
        if folding.only_failed and one.status not in FAILED:
            continue
        status = STATUS_WORDS[one.status] if one.status else one.phase
        text = f"c{number} {status} {run.title(one)} {one.failure} {run.mark(number)}".lower()
        if all(word in text for word in words):
            found.append(TreeLine(number, "", has_children=number in run.children))
            if len(found) == UNFOLDED:
                break
    return found
