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
    "sets_development": "Development sets",
    "sets_validation": "Validation sets",
    "intervals": "Intervals of a latency, by bottleneck",
    "left_out": "Families on trn2 whose own rules and constants are left out",
    "paired": "Pairs of one chain that are predicted faster beyond the threshold of an insight, and of a win",
    "ablation_sets": "Development sets with one rule or constant changed",
    "later": "Later chips (unvalidated)",
    "rates": "Rates measured elsewhere: the current API on trn1",
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
    "latency": """\
To see how far a predicted latency is from the chip's, read *ratio*: predicted over measured.

- *left out* is the error with one common scale that was fitted to the other 13 kernels.
- *bound* is the busiest engine and its share of the time.""",
    "summary": """\
To see how far predictions are off on trn1, read the errors over all 14 NKIBench baselines:

- *Spearman* is 1 if the kernels have the same order by predicted and by measured latency.
- *MAPE* is the mean error of a latency. *in-sample* has a scale fitted to all 14 kernels,
  *leave-one-out* a scale fitted to the other 13.""",
    "counters": """\
To see whether the model does the work that the chip did, compare the figures with 1: each is the model's
counter over the chip's, for a NKIBench baseline on trn1. A dash means that the kernel has no such work, or that the chip's counter is not
known.""",
    "goals": """\
For how many of the 14 NKIBench baselines is the model's counter within a limit of the chip's counter?""",
    "ablation": """\
How much does each part of the model add to its accuracy on the 14 NKIBench baselines? Read the rows from
the top, because each row adds a part:

- Row 1 uses only the FLOPs and bytes that the workload declares.
- Row 2 takes the time of the busiest engine for the kernel as written.
- Row 3 takes that time after the changes that the compiler makes.
- The last row is the whole model, with waits.

*Spearman* and *MAPE* are explained [above](#all-14-together).""",
    "pairs": """\
Does the model predict the gain of a change? Each row compares two kernels that compute the same: the
factor by which the second kernel is faster.""",
    "tutorial": """\
Does the model predict AWS's own steps of optimizing a product? The four forms are those of AWS's tutorial on
matrix products (Neuron documentation v2.26.1, trn1.32xlarge), from the plainest (*tiled*) to the fastest
(*blocked*). AWS measured with SDK 2.20. The model is that of today's SDK, in which rows of 16-bit elements are
faster.""",
    "sets_development": """\
To see how far predictions were off on the kernels at which we looked while we chose the model's rules, read
this table. A dash means that the set does not give the figure.

- *ratio* is the predicted time over the measured time.
- *direction* counts the pairs that are predicted in the right order, of those that were measured at least 10 % apart.
- *regret* is the measured time of the kernel predicted fastest, over the least measured time.""",
    "sets_validation": """\
To see how far predictions may be off on a new kernel, read this table. No constant was fitted to its kernels:
they only test the model. The columns are those of the development sets. A *regret* of 1.19 means that the
kernel predicted fastest takes 1.19 times as long as the fastest.""",
    "intervals": """\
To see where the interval beside a latency comes from, find the chip and the bottleneck: acceld prints the
interval of the last column.

- *80 % of errors within*: four of five kernels have an error below this figure, and so have four of five chains.
- *a chain left out, at most*: the widest of these figures with all chains, or with all but one. This one is in use,
  because an interval is for kernels of a new chain.""",
    "left_out": """\
How well does acceld predict a new family of kernels on trn2? Each family is predicted once more without the rules and constants
that rest on this family alone. They get the values that documents, trn1 or other families give.

- *in the interval left out* counts the measurements inside of the intervals in use.
- *wins right left out* counts the pairs that acceld calls a win, and those of them that were measured in this order.""",
    "paired": """\
If acceld calls a kernel faster, how often is it measured faster? acceld calls a kernel faster if its predicted gain is
beyond a threshold. Each row has one threshold.

- *called faster* counts the pairs that acceld calls faster.
- *are faster* counts the pairs of these that were measured faster.
- *gains of 10 %* counts the pairs that were measured at least 10 % apart.
- *within it* counts the pairs of these that acceld does not call faster.""",
    "ablation_sets": """\
What would change without a rule, or with a fitted constant 20 % off? Each row is one such change. The
percentages are errors of a latency.

- *14 left out* and *worst* are the mean and the worst error of the 14 NKIBench baselines. Each baseline is
  left out of the fit of the scale.
- *KDA*, *samples* (AWS's) and *others* (the ladder of nki-autotune) are mean errors of these kernels.
- *KDA direction* counts the pairs of KDA's kernels that are in order.

The last row names the changes that leave every figure as it is.""",
    "later": """\
Does a long product reach the published rate on chips after trn1?

- *TFLOP/s of a busy array* is the rate of a tensor engine that never waits.
- *error %* compares the prediction with the published rate.
- *validated* says how many measured kernels with the same bottleneck the prediction's interval comes from. The
  interval is meant to contain 80 % of such kernels.""",
    "rates": """\
What does one more instruction cost on trn1 in a kernel of `nki`? foxl-ai/kiln measured that on a trn1.2xlarge with SDK 2.32
(docs/neuron-notes.md there, "Engine rates on trn1"; in parentheses its number of the variant). Predicted are kernels of
acceld's own with 16 and 272 such instructions; the difference of their latencies is divided by 256.

Four constants were fitted to these rates: `scalar_overhead_cycles`, `vector_overhead_cycles`, `pair_cycles` and
`gather_packet_us`. The rates of products were not fitted. [The text](#the-current-api-on-trn1) says why.""",
    "fitted": """\
Before you change a constant of the model that stands in no document, see what it was fitted to. The last
column says what the constant means and which measurements gave it, with the value in parentheses. *The 14* are
the NKIBench baselines on trn1.""",
    "wins": """\
Does a gain survive if a constant is wrong? A gain is a change by one rule that is predicted at least 2 %
faster. Of 56 pairs of kernel and chip, 37 were tried.

- *tried in full* counts the gains for which each fitted constant was made 20 % lower and higher. For the
  other gains time ran out.
- A gain *vanishes* if one of the constants tried makes it a loss.
- *model* is the version of the parameters. Versions 8 and 9 predict the same.""",
    "corpus": """\
Does the verifier accept legal kernels and refuse illegal ones? The table counts kernels that the verifier must
accept, and kernels that it must refuse at a certain line.""",
    "mutants": """\
Would a mistake in a kernel be noticed? [How mutants are tried](#how-mutants-are-tried) explains the
test.

- A *refused* mutant breaks a rule.
- An *explained* mutant has a mistake that is harmless for a known reason.
- An *unnoticed* mutant passes for no known reason.
- A *false alarm* is an equivalent program that did not pass.
- Mutants with the *same bits* gave exactly the original's outputs on every data set.""",
    "operators": """\
Which mistakes in a kernel are noticed? The table counts mutants of the public kernels and of acceld's own by
the kind of mistake. The last four rows are equivalent programs.

- *wrong on another* counts programs that only a data set of the strict gate found.
- *same bits* counts programs whose outputs equal the kernel's.""",
    "samples": """\
Do AWS's samples run, and give right results? *others* names kernels whose results differ. Not tried were
kernels for several cores, kernels with private functions of the SDK, and kernels for which we have no
reference.""",
    "checks": """\
How long may a first check of your kernel take? The table has the seconds to check each public kernel
once on one new data set (`acceld profile`).

- *products alone* is the time that numpy takes for the workload's matrix products, in float32 and in
  float64, on one thread. The check uses both cores.
- *ratio* is *wall* divided by *products alone*. *peak* is the most memory that the check's processes
  had together.
- Measured on two cores with AVX-512, with no other work beside, on 2026-11-26.""",
}
"""Text above each table: the question that it answers, and the meaning of its columns."""


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
    """Write the tables between the markers of ``document``, in place of those with the same headings.

    Tables with other headings stay if :data:`TITLES` still has them. Raise ValueError if a marker is missing.
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
