"""Keep what became of each kernel's mutants in a file, which is written as results come."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scripts.evidence.simbench.tables import Table

REFUSED, WRONG, SAME, EXPLAINED, UNNOTICED, UNTRIED = "refused,wrong,same bits,explained,unnoticed,untried".split(",")
"""Outcomes of a mutant. ``refused``: refused before it runs. ``wrong``: a trial notices it. ``same bits``: its outputs
equal the kernel's on every data set. ``explained``: it differs, and a reason is known why it is harmless.
``unnoticed``: it differs, and no reason is known. ``untried``: the time was up.
"""
PASSED = "passed"
"""Outcome of an equivalent program that rounds differently, within the tolerances."""
FIRST = "own"
"""Name of the search gate's trial."""


@dataclass(frozen=True, slots=True)
class Fate:
    """Outcome of one mutant, or of one equivalent program."""

    operator: str
    line: int
    operation: str
    """Operation of the kernel's instruction at that line; ``declaration`` or ``loop`` if the line has no instruction.
    """
    fate: str
    by: str = ""
    """The rule that refused it, the trial that noticed it, or the reason why it is harmless."""
    noise: float = 0.0
    """Greatest error on any trial, as a multiple of the kernel's own error in float32."""


@dataclass(frozen=True, slots=True)
class Report:
    """Outcomes of the mutants of one kernel."""

    kernel: str
    program: str
    """Hash of the whole program."""
    cut: str
    """Descriptions of the parts that were left out."""
    trials: int
    mutants: tuple[Fate, ...]
    rewrites: tuple[Fate, ...]
    cpu_s: float
    notes: tuple[str, ...] = field(default=())

    @property
    def summary(self) -> str:
        """Return a line of progress for a person."""
        fates = Counter(one.fate for one in self.mutants)
        reported = ", ".join(f"{count} {fate}" for fate, count in fates.items())
        return f"{len(self.mutants)} mutants: {reported}; {len(self.alarms)} false alarms ({self.cpu_s:.1f} s)"

    @property
    def alarms(self) -> list[Fate]:
        """Return the equivalent programs that were refused, which are false alarms."""
        return [one for one in self.rewrites if one.fate in (REFUSED, WRONG)]


def read(path: Path) -> dict[str, Report]:
    """Return the reports in a file by kernel; empty if there is no file."""
    if not path.is_file():
        return {}
    raw = json.loads(path.read_text(encoding="utf-8"))
    return {name: _report(one) for name, one in raw.items()}


def write(path: Path, reports: Mapping[str, Report]) -> None:
    """Replace the file's contents by these reports."""
    plain = {name: asdict(report) for name, report in reports.items()}
    replace_file(path, json.dumps(plain, indent=1))


def replace_file(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _report(raw: dict[str, Any]) -> Report:
    fates = {key: tuple(Fate(**one) for one in raw[key]) for key in ("mutants", "rewrites")}
    return Report(**{**raw, **fates, "notes": tuple(raw["notes"])})


def table(reports: Sequence[Report]) -> Table:
    """Return a row for each kernel with an unnoticed mutant or a false alarm, and one for all kernels."""
    rows = [_row(report.kernel, [report]) for report in reports]
    found = [row for row in rows if row["unnoticed"] != "none" or row["false alarms"] != "none"]
    return [*found, _row(f"all {len(reports)}", reports)]


def _row(name: str, reports: Sequence[Report]) -> dict[str, Any]:
    every = [one for report in reports for one in report.mutants]
    alarms = [f"{one.operator} at line {one.line}: {one.by}" for report in reports for one in report.alarms]
    return {
        "kernel": name,
        **_counts(every),
        "unnoticed": _unnoticed(every),
        "equivalent programs": sum(len(report.rewrites) for report in reports),
        "false alarms": "; ".join(alarms) or "none",
    }


def operator_table(reports: Sequence[Report]) -> Table:
    """Return a table with a row for each operator that makes mutants or equivalent programs."""
    mutants, rewrites = ([one for r in reports for one in group(r)] for group in (_mutants, _rewrites))
    table: Table = []
    for name in dict.fromkeys(one.operator for one in mutants):
        of = [one for one in mutants if one.operator == name]
        table.append({"operator": name, **_counts(of), "unnoticed": _unnoticed(of), "explained by": _reasons(of)})
    for name in dict.fromkeys(one.operator for one in rewrites):
        of = [one for one in rewrites if one.operator == name]
        passed = sum(one.fate == PASSED for one in of)
        table.append(
            {"operator": f"{name} (equivalent)", **_counts(of), "unnoticed": f"{passed} within the tolerances"}
            | {"explained by": ""}
        )
    return table


def _mutants(report: Report) -> tuple[Fate, ...]:
    return report.mutants


def _rewrites(report: Report) -> tuple[Fate, ...]:
    return report.rewrites


def _counts(of: Sequence[Fate]) -> dict[str, int]:
    """Return the number of mutants by outcome. ``wrong on another`` means that the data set of the search gate
    did not show the mistake.
    """
    fates = Counter(one.fate for one in of)
    later = sum(one.fate == WRONG and not one.by.startswith(f"{FIRST}:") for one in of)
    return {
        "programs": len(of),
        REFUSED: fates[REFUSED],
        "wrong on the first data set": fates[WRONG] - later,
        "wrong on another": later,
        SAME: fates[SAME],
        EXPLAINED: fates[EXPLAINED],
        UNTRIED: fates[UNTRIED],
    }


def _unnoticed(of: Iterable[Fate]) -> str:
    found = [f"{one.operator} at line {one.line} ({one.operation})" for one in of if one.fate == UNNOTICED]
    return "; ".join(found) or "none"


def _reasons(of: Iterable[Fate]) -> str:
    """Return each reason once, without the errors of the single mutants that it explains."""
    return "; ".join(sorted({one.by.partition(" (errors")[0] for one in of if one.fate == EXPLAINED}))
