"""Try every rewrite rule on a kernel and report the changes with their diffs, for ``acceld suggest`` and coding
agents.
"""

from __future__ import annotations

import difflib
from typing import Any

from acceld.errors import RuleRefused, UsageError, did_you_mean
from acceld.nki.source.launches import Launch
from acceld.proposers.rules import all_rules
from acceld.proposers.rules.proposer import refusals, rewrite, suggestions


def suggested(text: str, launch: Launch, only: str | None = None) -> list[dict[str, Any]]:
    """Return one entry for each place where a rule applies. The diff of an entry shows the first variant that can be
    carried out. Raise UsageError if ``only`` names no rule.
    """
    named = {rule.name: rule for rule in all_rules()}
    if only is not None and only not in named:
        raise UsageError(f"there is no rule {only!r}. {did_you_mean(only, named)}", hint=f"rules: {', '.join(named)}")
    out: list[dict[str, Any]] = []
    for site in suggestions(text, launch):
        rule = named[site.rule]
        if only not in (None, rule.name):
            continue
        for variant in site.variants:
            try:
                changed = rewrite(text, launch, site, variant)
            except RuleRefused:
                continue
            out.append(
                {
                    "rule": rule.name,
                    "line": site.line,
                    "plan": site.plan,
                    "precondition": site.precondition,
                    "reason": rule.reason,
                    "gain_percent": list(site.gain_percent),
                    "benefit": site.benefit,
                    "variants": [one.name for one in site.variants],
                    "diff": _diff(text, changed),
                    "changed": changed,
                }
            )
            break
    return out


def refused(text: str, launch: Launch, only: str | None = None) -> list[dict[str, Any]]:
    """Return one entry for each place at which a rule refuses: ``rule``, ``line`` and ``reason``."""
    return [
        {"rule": one.rule, "line": one.line, "reason": one.obstacle}
        for one in refusals(text, launch)
        if only in (None, one.rule)
    ]


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "kernel", "suggested", lineterm="", n=2)
    return "\n".join(lines)
