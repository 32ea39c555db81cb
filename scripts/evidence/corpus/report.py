"""Make tables of outcomes, and list the changes between two runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from scripts.evidence.corpus.outcomes import LEGAL, TRACED, Outcome, State
from scripts.evidence.simbench.tables import Table


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return a table of the outcomes with a row for each repository: how many of its kernels were tried, traced,
    legal and so on.
    """
    rows = []
    for repository in dict.fromkeys(one.repository for one in outcomes):
        every = [one for one in outcomes if one.repository == repository]
        found = [one for one in every if one.state is not State.UNTRIED]
        states = Counter(one.state for one in found)
        refused = [one for one in found if one.state in (State.REFUSED, State.UNTRACED, State.ILLEGAL)]
        rows.append(
            {
                "repository": repository,
                "tried": len(found),
                "traced": sum(one.state in TRACED for one in found),
                "legal": sum(one.state in LEGAL for one in found),
                "equal": states[State.EQUAL],
                "differ": states[State.DIFFERS],
                "no reference": states[State.RUNS],
                "refused": len(refused),
                "mostly because": "; ".join(reasons(refused)[:3]) or "-",
                "crashes, timeouts": states[State.CRASH] + states[State.TIMEOUT],
                "not tried": len(every) - len(found),
                "CPU s": round(sum(one.seconds for one in found)),
            }
        )
    return rows


def reasons(refused: Sequence[Outcome]) -> list[str]:
    """Return the reasons for which kernels were refused, each with the number of kernels, most frequent first."""
    texts = Counter(one.reason.partition(": ")[2] if one.reason.startswith("line ") else one.reason for one in refused)
    return [f"{text[:90]} ({count})" for text, count in texts.most_common()]


def changes(before: Sequence[Outcome], after: Sequence[Outcome]) -> Iterator[str]:
    """Yield a line for each kernel whose state changed."""
    known = {(one.repository, one.kernel): one for one in before}
    for one in after:
        former = known.get((one.repository, one.kernel))
        if former is not None and former.state is not one.state:
            yield f"changed: {one.repository} {one.kernel}: {former.state} -> {one.state} {one.reason[:120]}"
