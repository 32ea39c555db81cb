"""Rewrites of acceld's rules whose predicted gain does not hang on one fitted constant.

Each rule's first variant at each site of a baseline is timed. A win is a rewrite predicted at least 2 % faster; it
survives where it stays faster with every fitted constant 20 % lower and 20 % higher.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from acceld.errors import AcceldError
from acceld.nki.params import FITTED, LEGACY, TimelineParams
from acceld.nki.program import Program
from acceld.nki.timeline import timeline
from acceld.nki.tracing import Argument, trace
from acceld.proposers.rules.proposer import rewrite, suggestions
from acceld.proposers.rules.records import RuleRefused

LEAST_GAIN = 1.02
FACTORS = (0.8, 1.2)


@dataclass(frozen=True, slots=True)
class Win:
    """One rewrite and the least ratio of old to new latency over all changed constants."""

    kernel: str
    rule: str
    line: int
    speedup: float
    least: float
    by: str
    """The constant that makes the least ratio."""

    @property
    def survives(self) -> bool:
        """Whether it stays a gain."""
        return self.least > 1.0


def wins(kernel: str, source: str, arguments: Sequence[Argument]) -> Iterator[Win]:
    """Each win of a rule on a kernel."""
    parent = trace(source, arguments)
    seen = {parent.hash}
    for suggestion in suggestions(source, "nki_legacy"):
        site = suggestion.site
        for variant in site.variants[:1]:
            try:
                child = trace(rewrite(source, "nki_legacy", site, variant), arguments)
            except (RuleRefused, AcceldError):
                continue
            if child.hash in seen:
                continue
            seen.add(child.hash)
            speedup = _ratio(parent, child, LEGACY)
            if speedup < LEAST_GAIN:
                continue
            ratios = {
                f"{name} x{factor}": _ratio(parent, child, LEGACY.with_scaled(name, factor))
                for name in FITTED
                for factor in FACTORS
            }
            by = min(ratios, key=lambda name: ratios[name])
            yield Win(kernel, site.rule, site.line, speedup, ratios[by], by)


def _ratio(parent: Program, child: Program, params: TimelineParams) -> float:
    before, after = timeline(parent, params).latency_us, timeline(child, params).latency_us
    assert before is not None and after is not None
    return before / after
