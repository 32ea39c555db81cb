"""Write a report as Markdown, for a pull request."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence

from acceld import figures
from acceld.markup import fenced, literal
from acceld.model import OWN_ORACLE
from acceld.report.endings import why
from acceld.report.facts import RunFacts
from acceld.report.page import headline, steered


def markdown(runs: Sequence[RunFacts]) -> str:
    """Return a section for each run: result, figures, winning rewrites, the diff."""
    parts: list[str] = []
    for facts in runs:
        o = facts.outcome
        parts += [f"## {literal(facts.title)} (r{facts.number})", "", *_headline(facts), ""]
        if lost := why(o):
            parts += [literal(lost), ""]
        parts += ["| | before | after |", "|---|---|---|"]
        rows = (
            ("latency", figures.duration(o["baseline_latency_us"]), figures.duration(o["best_latency_us"])),
            (
                "of peak",
                figures.percent(o["percent_of_peak_before"]),
                figures.percent(o["percent_of_peak_after"]),
            ),
            ("bound", literal(o["bound_before"] or "") or "—", literal(o["bound_after"] or "") or "—"),
        )
        parts += [f"| {name} | {before} | {after} |" for name, before, after in rows]
        counts = ", ".join(f"{number} {status}" for status, number in o["counts"].items() if number)
        label = "simulated: no chip ran this" if o["source"] == "simulated" else "measured"
        parts += [
            "",
            f"{label}; candidates: {counts or 'none'}; model cost {figures.usd(facts.costs.get('cost_usd'))}",
            "",
        ]
        if beyond := figures.beyond_peak(max(o["percent_of_peak_before"] or 0, o["percent_of_peak_after"] or 0)):
            parts += [beyond, ""]
        if o["timed_again"]:
            parts += [literal(o["timed_again"]), ""]
        if o["has_reference"] is False:
            parts += [f"No reference: results are evaluated {OWN_ORACLE}.", ""]
        if o["wins"]:
            parts += [
                f"- {literal(w['title'] or w['rule'] or '')}{figures.crossed(w['partner'])}: "
                f"{figures.brief_gain(w['speedup'], w['verdict'])} over its parent"
                for w in o["wins"]
            ] + [""]
        if facts.steering:
            acts = Counter(steered(event["data"])[1] for event in facts.steering)
            done = ", ".join(f"{literal(act)}{f' ({times} times)' if times > 1 else ''}" for act, times in acts.items())
            parts += [f"steered by people: {done}", ""]
        if facts.best and facts.baseline and facts.best["id"] != facts.baseline["id"]:
            lines = difflib.unified_diff(
                facts.baseline["text"].splitlines(),
                facts.best["text"].splitlines(),
                "baseline",
                f"c{facts.best['id']}",
                lineterm="",
            )
            parts += ["<details><summary>diff</summary>", "", fenced("\n".join(lines), "diff"), "", "</details>", ""]
    return "\n".join(parts).rstrip() + "\n"


def _headline(facts: RunFacts) -> tuple[str, ...]:
    """Return lines with the outcome. The message of a run without a result comes from outside, so it is escaped."""
    o = facts.outcome
    if o["best_latency_us"] is None:
        return "**Nothing passed.**", "", literal(o["message"] or "no reason given")
    return (f"**{headline(facts)}**",)
