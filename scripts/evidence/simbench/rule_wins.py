"""Find out which gains by acceld's rules do not depend on a single fitted constant of the model.

Every variant of each rule is timed at each place of a baseline where the rule applies. The fastest variant at a
place counts. A win is a rewrite that is predicted at least 2 % faster. It survives if it stays faster with each
fitted constant 20 % lower, and 20 % higher. Programs are traced once. Each kernel has a limit of processor
time, which is spent on its greatest wins first. The table says if the limit was reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from acceld.errors import AcceldError
from acceld.nki.frontend.tracing import TensorSpec
from acceld.nki.ir.codec import program_hash
from acceld.nki.ir.program import Program
from acceld.nki.source.launches import Launch
from acceld.nki.timing.parameters import PARAMS_VERSION, TimelineParams, default_params
from acceld.nki.timing.timeline import timeline
from acceld.proposers.rules.proposer import rewrite, suggestions
from scripts.evidence.simbench.accuracy import changes
from scripts.evidence.simbench.kernels import Kernel
from scripts.evidence.simbench.tables import Table

LEAST_GAIN = 1.02


@dataclass(frozen=True, slots=True)
class Win:
    """One rewrite that is predicted faster, with its least speed-up over all changed constants."""

    kernel: str
    rule: str
    line: int
    speedup: float
    least: float
    by: str
    """Constant that gives the least ratio."""
    tried: int
    """Changes that were tried, of ``changes`` that can matter."""
    changes: int

    @property
    def survives(self) -> bool:
        """Tell whether the rewrite is faster with every changed constant."""
        return self.least > 1.0

    @property
    def row(self) -> dict[str, object]:
        """Return the win as a row of the table."""
        complete = "" if self.tried == self.changes else f" ({self.tried} of {self.changes} changes tried)"
        return {
            "kernel": self.kernel,
            "model": PARAMS_VERSION,
            "rule": self.rule,
            "line": self.line,
            "speed-up": round(self.speedup, 3),
            "least": round(self.least, 3),
            "with": self.by,
            "survives": ("yes" if self.survives else "no") + complete,
        }


@dataclass(slots=True)
class _Clock:
    """Latencies of one program by parameters, each computed once."""

    program: Program
    known: dict[str, float] = field(default_factory=dict)

    def latency_us(self, change: str, params: TimelineParams) -> float:
        if change not in self.known:
            latency = timeline(self.program, params).latency_us
            assert latency is not None, "a baseline has no loop of unknown length"
            self.known[change] = latency
        return self.known[change]


def wins(label: str, kernel: Kernel, budget_s: float) -> Iterator[Win]:
    """Yield each win of a rule on a kernel, the greatest first, within about ``budget_s`` of processor time."""
    ends = time.process_time() + budget_s
    parent, params = _Clock(kernel.program()), default_params(kernel.api, kernel.target)
    before = parent.latency_us("", params)
    found: dict[tuple[str, int], tuple[float, _Clock]] = {}
    for rule, line, program in _rewritten(kernel, program_hash(parent.program)):
        child = _Clock(program)
        speedup = before / child.latency_us("", params)
        if speedup >= found.get((rule, line), (LEAST_GAIN, child))[0]:
            found[rule, line] = (speedup, child)
        if time.process_time() > ends:
            break
    for (rule, line), (speedup, child) in sorted(found.items(), key=lambda one: -one[1][0]):
        ratios: dict[str, float] = {}
        every = changes([parent.program, child.program], params)
        for change, changed in every.items():
            if time.process_time() > ends and ratios:
                break
            ratios[change] = parent.latency_us(change, changed) / child.latency_us(change, changed)
        by = min(ratios, key=lambda change: ratios[change])
        yield Win(label, rule, line, speedup, ratios[by], by, len(ratios), len(every))


def _rewritten(kernel: Kernel, digest: str) -> Iterator[tuple[str, int, Program]]:
    """Yield (rule, line, program) of each rewritten kernel whose program is new: neither the kernel's own, which has
    the hash ``digest``, nor one that was yielded before.
    """
    shapes = tuple(a.shape if isinstance(a, TensorSpec) else None for a in kernel.arguments)
    launch = Launch(kernel.api, shapes)
    seen = {digest}
    for site in suggestions(kernel.source, launch):
        for variant in site.variants:
            try:
                program = kernel.with_source(rewrite(kernel.source, launch, site, variant)).program()
            except AcceldError:  # no win: the rule refuses, or its result can not be traced
                continue
            if program_hash(program) not in seen:
                seen.add(program_hash(program))
                yield site.rule, site.line, program


def rows(label: str, kernel: Kernel, budget_s: float, say: Callable[[str], None]) -> Table:
    """Return the rows of a kernel's wins. A kernel without wins has one row, which says so."""
    started = time.process_time()
    found = [win.row for win in wins(label, kernel, budget_s)]
    say(f"{label}: {len(found)} wins ({time.process_time() - started:.1f} s)")
    return found or [_row(kernel=label, model=PARAMS_VERSION, rule="no win")]


def win_table(found: Iterable[Table]) -> Table:
    """Return a row for each kernel: its gains, the greatest of them under changed constants, and the rules whose gain
    vanishes. The last row counts the gains of all kernels.
    """
    kernels = [table for table in found if table]
    return [*(_summary(str(table[0]["kernel"]), [table]) for table in kernels), _summary("all", kernels)]


def _summary(name: str, tables: Sequence[Table]) -> dict[str, object]:
    gains = [row for table in tables for row in table if row["rule"] != "no win"]
    first = gains[0] if gains and len(tables) == 1 else _row()
    vanished = [f"{row['rule']} {row['speed-up']}" for row in gains if str(row["survives"]).startswith("no")]
    return {
        "kernel": name,
        "model": "" if len(tables) > 1 else tables[0][0]["model"],
        "gains": len(gains),
        "tried in full": sum(row["survives"] in ("yes", "no") for row in gains),
        "greatest gain": f"{first['rule']} {first['speed-up']}".strip() or "-",
        "with the worst constant": first["least"] or "-",
        "vanished": "; ".join(vanished) or "none",
    }


def _row(**values: object) -> dict[str, object]:
    return dict.fromkeys("kernel model rule line speed-up least with survives".split(), "") | values
