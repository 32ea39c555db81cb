"""Format tables, and write them into docs/simulator-measured.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.evidence.simbench.kernels import ROOT

DOCUMENT = ROOT / "docs" / "simulator-measured.md"
BEGIN, END = "<!-- bench-sim: begin -->", "<!-- bench-sim: end -->"

Table = list[dict[str, Any]]
"""Rows with the same columns."""

TITLES: Mapping[str, str] = {
    "latency": "Latency of the 14 NKIBench baselines (trn1, float32)",
    "summary": "All 14 together",
    "counters": "Counters, predicted over measured",
    "goals": "Counters within a limit",
    "ablation": "What each part adds",
    "pairs": "Speed-ups of one version over another",
    "tutorial": "bfloat16 product [4096, 8192] x [8192, 8192] in four forms (trn1)",
    "held_out": "Other kernels with published latencies (trn1)",
    "held_out_summary": "Other kernels with published latencies, by group",
    "sets_development": "Development sets",
    "sets_validation": "Validation sets",
    "intervals": "Intervals of a latency, by bottleneck",
    "paired": "Pairs of one chain that are predicted faster beyond the threshold of an insight, and of a win",
    "ablation_sets": "Development sets with one rule or constant changed",
    "later": "Later chips (unvalidated)",
    "fitted": "Fitted constants",
    "wins": "Gains of acceld's rules with every fitted constant 20 % lower and higher",
    "corpus": "Legality corpus",
    "mutants": "Mutants of the public kernels and of acceld's own",
    "operators": "Mutants by operator",
    "samples": "Kernels of nki-samples that need one core",
    "checks": "A first check of NKIBench's kernels at full shape",
}
"""Every table's heading, in the order of the document."""


def markdown(tables: Mapping[str, Table]) -> str:
    """Return the tables as text."""
    return "\n\n".join(f"### {TITLES[name]}\n\n{rows(tables[name])}" for name in TITLES if name in tables)


def rows(table: Table) -> str:
    """Return one table as text, without its heading."""
    columns = list(table[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(_cell(row[c]) for c in columns) + " |" for row in table])


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def write_document(tables: Mapping[str, Table], document: Path = DOCUMENT) -> None:
    """Put the tables between the markers of ``document``, in place of those with the same headings. Raise ValueError if
    a marker is missing. Tables with other headings stay if :data:`TITLES` still has them.
    """
    head, _, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    before, marker, tail = rest.partition(END)
    if not marker:
        raise ValueError(f"{document}: the markers {BEGIN} and {END} are missing")
    kept = dict(part.split("\n\n", 1) for part in before.strip().removeprefix("### ").split("\n\n### ") if part)
    texts = {title: text.strip() for title, text in kept.items()} | {
        TITLES[name]: rows(table) for name, table in tables.items()
    }
    body = "\n\n".join(f"### {title}\n\n{texts[title]}" for title in TITLES.values() if title in texts)
    document.write_text(f"{head}{BEGIN}\n\n{body}\n\n{END}{tail}", encoding="utf-8")
