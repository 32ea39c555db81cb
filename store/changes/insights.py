"""Write the memory of insights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from acceld.errors import StoreError
from acceld.events import InsightChanged, InsightWritten
from acceld.model import Insight
from acceld.store.changes import rollups
from acceld.store.rows import dump, held_values, insight_values, the_row
from acceld.store.writer import Transaction

CHANGES = {
    "pinned": ("pinned",),
    "muted": ("muted",),
    "withdrawn": ("withdrawn",),
    "edited": ("title", "strategy", "slow", "fast", "tags"),
    "confirmed": ("held",),
    "deleted": (),
}
"""Possible changes of an insight, each with the columns that it may set."""


def write_insight(tx: Transaction, insight: Insight) -> Insight:
    """Store an insight, and return it with its id."""
    number = tx.insert("insights", insight_values(insight) | {"created_at": tx.at, "changed_at": tx.at})
    if insight.run:
        rollups.add(tx, "run_totals", {"run": insight.run}, {"insights": 1})
    tx.event(
        InsightWritten(insight=number, title=insight.title, insight_kind=insight.kind, speedup=insight.speedup),
        insight.run or None,
    )
    return replace(insight, id=number)


def change_insight(tx: Transaction, /, insight: int, what: str, **values: Any) -> None:
    """Pin, mute, withdraw, edit, confirm or delete an insight.

    ``what`` is a key of ``CHANGES``, and ``values`` are the new values of that change's columns. Raise StoreError for
    any other change or column, and NotFoundError if there is no such insight.
    """
    allowed = CHANGES.get(what)
    if allowed is None:
        raise StoreError(f"an insight can not be {what}", hint=f"The possible changes are {', '.join(CHANGES)}.")
    strange = set(values) - set(allowed)
    if strange:
        raise StoreError(
            f"the change {what!r} of an insight does not set {', '.join(sorted(strange))}",
            hint=f"It may set {', '.join(allowed)}." if allowed else "It sets no column.",
        )
    row = the_row(tx.connection, "insight", insight, "SELECT run FROM insights WHERE id = ?")
    if what == "deleted":
        tx.execute("DELETE FROM insights WHERE id = ?", (insight,))
    else:
        if "tags" in values:
            values["tags"] = dump(list(values["tags"]))
        if "held" in values:
            values["held"] = held_values(values["held"])
        if not values:
            values = {allowed[0]: True}
        tx.update("insights", insight, changed_at=tx.at, **values)
    tx.event(InsightChanged(insight=insight, what=what), row["run"])


def credit_plan(tx: Transaction, plan: int, faster: bool | None, speedup: float | None, cited: Sequence[int]) -> None:
    """Record a plan's outcome on the insights that were shown to the plan and that the plan cites.

    An insight is credited once for each plan. ``faster`` is None for a tie, which is neither a win nor a loss.
    """
    outcome, column = {True: ("win", "wins"), False: ("loss", "losses"), None: ("tie", "")}[faster]
    for row in tx.execute("SELECT insight FROM insight_uses WHERE plan = ? AND outcome IS NULL", (plan,)).fetchall():
        if row["insight"] not in cited:
            continue
        tx.execute(
            "UPDATE insight_uses SET outcome = ?, ratio = ? WHERE insight = ? AND plan = ?",
            (outcome, speedup, row["insight"], plan),
        )
        if column:
            tx.execute(f"UPDATE insights SET {column} = {column} + 1 WHERE id = ?", (row["insight"],))
