"""Define the errors that only the store raises, besides :class:`acceld.errors.StoreError`."""

from __future__ import annotations

from acceld.errors import StoreError, UsageError

WHERE_LISTED = {
    "run": "acceld runs lists the runs",
    "candidate": "acceld tree r12 lists the candidates of a run",
    "insight": "acceld insights lists the insights",
    "evaluation": "acceld query 'select id, candidate from evaluations' lists the evaluations",
    "call": "acceld query 'select id, run, role from llm_calls' lists the calls",
}
"""Hint for each kind of record: the command that lists the ids that exist."""


class NotFoundError(StoreError):
    """Report that a run, plan, candidate, insight, evaluation or call does not exist."""

    exit_code = UsageError.exit_code


def unknown(kind: str, number: int) -> NotFoundError:
    """Return the error for an unknown id; ``kind`` is a key of ``WHERE_LISTED``."""
    letter = "" if kind == "call" else kind[0]
    return NotFoundError(f"there is no {kind} {letter}{number}", hint=WHERE_LISTED[kind])
