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


NOTES: Mapping[str, str] = {
    "latency": "How far is a predicted latency from the chip's? *ratio* is predicted over measured; *left out* is the error "
    "with a scale that was fitted to the other 13 kernels.",
    "summary": "The same 14 kernels as one row. *Spearman* compares the two orders of the kernels (1: equal); *MAPE* is the "
    "mean error.",
    "counters": "Does the model do the work that the chip did? Each figure is the model's over the chip's counter.",
    "goals": "How many of the 14 kernels have a counter within so many percent of the chip's.",
    "ablation": "Each row is a simpler model, from declared work alone to the whole model.",
    "pairs": "Does the model predict the gain of a change? Each row is a pair of kernels that compute the same.",
    "tutorial": "The four forms are those of AWS's tutorial on matrix products, from the plainest (*tiled*) to the fastest "
    "(*blocked*).",
    "held_out": "No constant was fitted to these kernels. Figures of tests are limits, not measurements.",
    "held_out_summary": "The same kernels by group. *scale* is the mean of predicted over measured; *direction right* counts "
    "changes of at least 1.15x whose sign is right.",
    "sets_development": "These kernels were looked at while rules were chosen. *ratio* is predicted over measured; "
    "*direction* counts the pairs, at least 10 % apart, that are in order; *regret* is the measured time of the kernel "
    "predicted fastest, over the least measured time.",
    "sets_validation": "These kernels only test the model. The columns are those of the table above.",
    "intervals": "The interval that acceld prints is in the last column. Four of five kernels, and of five chains, are inside "
    "the one before.",
    "paired": "How often is a kernel faster that acceld calls faster? *called faster* counts pairs beyond the threshold, *are "
    "faster* those that were measured so. *gains of 10 %* counts pairs measured at least 10 % apart, *within it* those "
    "that stay inside the threshold.",
    "ablation_sets": "What would change without a rule, or with a fitted constant 20 % off? The percentages are mean errors; "
    "*direction* counts the pairs in order. *14* are the NKIBench baselines, *samples* AWS's nki-samples, *others* the ladder.",
    "later": "Chips after trn1, compared with published rates of long products.",
    "fitted": "Values that no document has, with the measurements that they were fitted on.",
    "wins": "Does a gain survive if a constant is wrong? *speed-up* is the gain as predicted, *least* the least gain with any "
    "one constant 20 % off, and *with* that constant.",
    "corpus": "Kernels that the verifier must take, and kernels that it must refuse at a certain line.",
    "mutants": "Would a mistake be noticed? Each program is a kernel with one mistake put in. *explained* counts mistakes that "
    "are harmless for a stated reason, *false alarms* equivalent programs that were refused.",
    "operators": "The same programs by the kind of mistake.",
    "samples": "Do AWS's samples run, and give right results?",
    "checks": "How long a first check takes, beside numpy's own products of the same size.",
}
"""One or two sentences above each table: the question that it answers, and the meaning of its columns."""


def markdown(tables: Mapping[str, Table]) -> str:
    """Return the tables as text."""
    return "\n\n".join(f"### {TITLES[name]}\n\n{section(name, tables[name])}" for name in TITLES if name in tables)


def section(name: str, table: Table) -> str:
    """Return a table with the sentences above it, without its heading."""
    return f"{NOTES[name]}\n\n{rows(table)}"


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
        TITLES[name]: section(name, table) for name, table in tables.items()
    }
    body = "\n\n".join(f"### {title}\n\n{texts[title]}" for title in TITLES.values() if title in texts)
    document.write_text(f"{head}{BEGIN}\n\n{body}\n\n{END}{tail}", encoding="utf-8")
