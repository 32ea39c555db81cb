"""Write a report for a pull request."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from acceld import figures
from acceld.model import OWN_ORACLE
from acceld.report.facts import RunFacts
from acceld.report.page import headline


def markdown(runs: Sequence[RunFacts]) -> str:
    """Return a section for each run: result, figures, winning rewrites, the diff."""
    parts: list[str] = []
    for facts in runs:
        o = facts.outcome
        parts += [f"## {facts.title} (r{facts.number})", "", f"**{headline(facts)}**", ""]
        parts += ["| | before | after |", "|---|---|---|"]
        rows = (
            ("latency", figures.duration(o["baseline_latency_us"]), figures.duration(o["best_latency_us"])),
            (
                "of peak",
                figures.percent(o["percent_of_peak_before"]),
                figures.percent(o["percent_of_peak_after"]),
            ),
            ("bound", o["bound_before"] or "—", o["bound_after"] or "—"),
        )
        parts += [f"| {name} | {before} | {after} |" for name, before, after in rows]
        counts = ", ".join(f"{number} {status}" for status, number in o["counts"].items() if number)
        label = "simulated: no chip ran this" if o["source"] == "simulated" else "measured"
        parts += [
            "",
            f"{label}; candidates: {counts or 'none'}; model cost {figures.usd(facts.costs.get('cost_usd'))}",
            "",
        ]
        if o["timed_again"]:
            parts += [f"{o['timed_again']}.", ""]
        if o["has_reference"] is False:
            parts += [f"No reference: results are evaluated {OWN_ORACLE}.", ""]
        if o["wins"]:
            parts += [
                f"- {w['title'] or w['rule']}{figures.crossed(w['partner'])}: {figures.brief_gain(w['speedup'], w['improved'])} over its parent"
                for w in o["wins"]
            ] + [""]
        if facts.best and facts.baseline and facts.best["id"] != facts.baseline["id"]:
            lines = difflib.unified_diff(
                facts.baseline["text"].splitlines(),
                facts.best["text"].splitlines(),
                "baseline",
                f"c{facts.best['id']}",
                lineterm="",
            )
            parts += ["<details><summary>diff</summary>", "", "```diff", *lines, "```", "", "</details>", ""]
    return "\n".join(parts).rstrip() + "\n"
