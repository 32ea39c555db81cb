"""How good the simulator's performance model is: predictions against published measurements.

    ACCELOPT_DIR=/path/to/AccelOpt python scripts/bench_sim.py [--json] [--write] [--only SECTION ...]

Times NKIBench's baselines (their texts come from ``ACCELOPT_DIR``, a checkout of zhang677/AccelOpt, and are not part of
this project), the two best kernels it publishes, and four bfloat16 products of our own in the forms of AWS's tutorial.
Then coverage: kernels of aws-neuron/nki-samples where ``NKI_SAMPLES_LEGACY_DIR`` (commit 3a99c91) and
``NKI_SAMPLES_DIR`` name checkouts; the legality corpus; mutants of the baselines; what a fifth more or less of each
fitted constant does to the gains of acceld's rules. ``--write`` puts the tables into docs/simulator.md, of which
``--only`` replaces those of its sections.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from acceld.nki.params import FITTED, LEGACY, TimelineParams
from acceld.nki.program import Program
from acceld.nki.timeline import Timeline, timeline
from acceld.nki.tracing import TensorSpec, trace
from acceld.roofline import roofline_us
from acceld.workloads.discovery import workload

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the corpus is part of the tests

from scripts.simbench import samples
from scripts.simbench.mutation import tally
from scripts.simbench.rule_wins import wins
from tests.acceld.nki.corpus import outcomes

SECTIONS = ("model", "robustness", "wins", "corpus", "mutants", "samples")
MEASURED = ROOT / "acceld" / "nki" / "data" / "nkibench_trn1.csv"
DOCUMENT = ROOT / "docs" / "simulator.md"
BEGIN, END = "<!-- bench-sim: begin -->", "<!-- bench-sim: end -->"
TUTORIAL_MS = {"tiled": 51.80, "hoisted": 42.96, "blocked_free": 22.07, "blocked": 6.97}
TUTORIAL_SOURCE = "AWS Neuron documentation v2.26.1, matrix multiplication tutorial, trn1.32xlarge"
BEST = {"mamba_optimized": "mamba", "rope_optimized": "rope_single_freq_apply"}


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel, its program and what is known of it."""

    name: str
    program: Program
    trace_s: float
    measured: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A timed case."""

    case: Case
    line: Timeline
    timeline_s: float

    @property
    def ratio(self) -> float:
        """Predicted over measured latency."""
        assert self.line.latency_us is not None
        return self.line.latency_us / (1000 * self.case.measured["latency_ms"])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; with --write also into the documentation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--write", action="store_true", help="update docs/simulator.md")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=[], help="these sections")
    parser.add_argument("--kernels", nargs="+", default=[], help="only these kernels for mutants and wins")
    options = parser.parse_args(argv)
    folder = os.environ.get("ACCELOPT_DIR")
    if not folder or not Path(folder).is_dir():
        print("ACCELOPT_DIR must name a checkout of zhang677/AccelOpt", file=sys.stderr)
        return 2
    sections = options.only or list(SECTIONS)
    measured = read_measured(MEASURED)
    tables: dict[str, Table] = {}
    if {"model", "robustness", "mutants"} & set(sections):
        cases = [load_case(name, Path(folder), measured) for name in measured]
        if "model" in sections:
            tables |= model_tables(cases, measured)
        baselines = [case for case in cases if case.name not in BEST]
        if "robustness" in sections:
            tables["robustness"] = robustness_table(baselines)
        if "mutants" in sections:
            tables["mutants"] = mutant_table([c for c in baselines if c.name in (options.kernels or measured)])
    if "wins" in sections:
        tables["wins"] = win_table(options.kernels or WIN_KERNELS)
    if "corpus" in sections:
        tables["corpus"] = corpus_table()
    if "samples" in sections:
        tables["samples"] = sample_table()
    tables = {name: table for name, table in tables.items() if table}
    print(json.dumps(tables, indent=1) if options.json else markdown(tables))
    if options.write:
        write_document(tables)
    return 0


def model_tables(cases: Sequence[Case], measured: Mapping[str, Mapping[str, float]]) -> dict[str, Table]:
    """How good predictions are."""
    outcomes = {case.name: run(case, LEGACY) for case in cases}
    tutorial = {name: run(tutorial_case(name), LEGACY) for name in TUTORIAL_MS}
    baselines = [outcomes[name] for name in measured if name not in BEST]
    return {
        "latency": latency_table(baselines),
        "summary": summary(baselines),
        "counters": counter_table(baselines),
        "goals": goal_table(baselines),
        "ablation": ablation_table(baselines),
        "pairs": pair_table(outcomes, tutorial),
        "tutorial": tutorial_table(tutorial),
        "later": later_table(),
        "fitted": [{"constant": k, "value": getattr(LEGACY, k), "fitted on": v} for k, v in FITTED.items()],
    }


def read_measured(path: Path) -> dict[str, dict[str, float]]:
    """Measured figures by kernel."""
    with path.open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row["kernel"]: {k: float(v) for k, v in row.items() if k != "kernel" and v} for row in rows}


def load_case(name: str, folder: Path, measured: Mapping[str, Mapping[str, float]]) -> Case:
    """Trace a kernel of the AccelOpt checkout with its workload's arguments."""
    spec = workload(BEST.get(name, name))
    arguments = [
        a.value if a.value is not None else TensorSpec(a.kernel_shape or a.shape, a.dtype) for a in spec.arguments
    ]
    if name in BEST:
        path = folder / "samples" / "nki" / f"{name}.py"
    else:
        found = (folder / "NKIBench" / "kernels").glob(f"{name}_*.py")
        path = next(p for p in found if p.name[len(name) + 1].isupper())
    started = time.process_time()
    program = trace(path.read_text(), arguments, filename=path.name)
    return Case(name, program, time.process_time() - started, measured[name])


def tutorial_case(name: str) -> Case:
    """One of our bfloat16 products, [4096, 8192] x [8192, 8192]."""
    path = ROOT / "tests" / "kernels" / "legacy" / f"matmul_bf16_{name}.py"
    started = time.process_time()
    arguments = [TensorSpec((8192, 4096), "bfloat16"), TensorSpec((8192, 8192), "bfloat16")]
    program = trace(path.read_text(), arguments, filename=path.name)
    return Case(name, program, time.process_time() - started, {"latency_ms": TUTORIAL_MS[name]})


def run(case: Case, params: TimelineParams) -> Outcome:
    """Time a case."""
    started = time.process_time()
    line = timeline(case.program, params)
    return Outcome(case, replace(line, machine=None, schedule=None), time.process_time() - started)


Table = list[dict[str, Any]]


def latency_table(outcomes: Sequence[Outcome]) -> Table:
    """Predicted and measured latency of each kernel, and the seconds it took us."""
    errors = leave_one_out([o.ratio for o in outcomes])
    return [
        {
            "kernel": o.case.name,
            "predicted ms": round((o.line.latency_us or 0) / 1000, 3),
            "measured ms": round(o.case.measured["latency_ms"], 3),
            "ratio": round(o.ratio, 3),
            "left out %": round(100 * error, 1),
            "bound": o.line.bound,
            "trace CPU s": round(o.case.trace_s, 2),
            "timeline CPU s": round(o.timeline_s, 2),
        }
        for o, error in zip(outcomes, errors, strict=True)
    ]


def leave_one_out(ratios: Sequence[float]) -> list[float]:
    """Signed error of each ratio after one scale fitted to the others (their median, in logarithms)."""
    errors = []
    for position, ratio in enumerate(ratios):
        others = [math.log(r) for i, r in enumerate(ratios) if i != position]
        errors.append(ratio / math.exp(statistics.median(others)) - 1)
    return errors


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation (no ties expected)."""
    rank_a = {value: rank for rank, value in enumerate(sorted(a))}
    rank_b = {value: rank for rank, value in enumerate(sorted(b))}
    n = len(a)
    return 1 - 6 * sum((rank_a[x] - rank_b[y]) ** 2 for x, y in zip(a, b, strict=True)) / (n * (n * n - 1))


def summary(outcomes: Sequence[Outcome]) -> Table:
    """The figures of the whole set."""
    ratios = [o.ratio for o in outcomes]
    errors = [abs(e) for e in leave_one_out(ratios)]
    predicted = [o.line.latency_us or 0.0 for o in outcomes]
    measured = [o.case.measured["latency_ms"] for o in outcomes]
    return [
        {
            "kernels": len(outcomes),
            "Spearman": round(spearman(predicted, measured), 3),
            "in-sample MAPE %": round(100 * statistics.mean(abs(r - 1) for r in ratios), 1),
            "leave-one-out MAPE %": round(100 * statistics.mean(errors), 1),
            "median %": round(100 * statistics.median(errors), 1),
            "90th percentile %": round(100 * sorted(errors)[math.ceil(0.9 * len(errors)) - 1], 1),
            "worst %": round(100 * max(errors), 1),
        }
    ]


def counter_table(outcomes: Sequence[Outcome]) -> Table:
    """Predicted over measured counters."""
    return [
        {
            "kernel": o.case.name,
            **{
                label: "-" if ratio is None else round(ratio, 3)
                for label, ratio in ((label, _ratio(o, *keys)) for label, keys in COUNTERS.items())
            },
        }
        for o in outcomes
    ]


COUNTERS: dict[str, tuple[str, str]] = {
    "HBM read": ("hbm_read_bytes", "hbm_read_bytes"),
    "HBM written": ("hbm_write_bytes", "hbm_write_bytes"),
    "hardware FLOPs": ("hardware_flops", "hardware_flops"),
    "vector busy": ("vector", "vector_engine_active_time_percent"),
    "scalar busy": ("scalar", "scalar_engine_active_time_percent"),
}
IDLE_US = 10.0
"""An engine measured busy for less is left out: the profiler's own instructions dominate."""


def _ratio(outcome: Outcome, ours: str, theirs: str) -> float | None:
    measured = outcome.case.measured.get(theirs)
    if not measured:
        return None
    if theirs.endswith("percent"):
        busy_us = measured * 1000 * outcome.case.measured["latency_ms"]
        few = IDLE_US if ours == "vector" else 0.0
        return outcome.line.engines[ours] / busy_us if busy_us > few else None
    return float(getattr(outcome.line, ours)) / measured


def goal_table(outcomes: Sequence[Outcome]) -> Table:
    """How many kernels each counter is right for."""
    limits = {"HBM read": 10, "HBM written": 10, "hardware FLOPs": 1, "vector busy": 10, "scalar busy": 20}
    table = []
    for label, percent in limits.items():
        ratios = [r for r in (_ratio(o, *COUNTERS[label]) for o in outcomes) if r is not None]
        within = sum(abs(r - 1) <= percent / 100 for r in ratios)
        table.append({"counter": label, "within %": percent, "kernels": f"{within} of {len(ratios)}"})
    return table


def ablation_table(outcomes: Sequence[Outcome]) -> Table:
    """What each part of the model adds."""
    measured = [1000 * o.case.measured["latency_ms"] for o in outcomes]
    plain = replace(LEGACY, value_numbering=False, fuse_loops=False, spills=False, eliminate_dead=False)
    models: dict[str, list[float]] = {
        "roofline of declared work": [roofline_us(workload(o.case.name), "trn1") or 0.0 for o in outcomes],
        "busiest engine, kernel as written": [max(run(o.case, plain).line.engines.values()) for o in outcomes],
        "busiest engine, compiler effects": [max(o.line.engines.values()) for o in outcomes],
        "full model": [o.line.latency_us or 0.0 for o in outcomes],
    }
    table = []
    for name, predicted in models.items():
        ratios = [p / m for p, m in zip(predicted, measured, strict=True)]
        errors = [abs(e) for e in leave_one_out(ratios)]
        table.append(
            {
                "model": name,
                "Spearman": round(spearman(predicted, measured), 3),
                "MAPE %": round(100 * statistics.mean(abs(r - 1) for r in ratios), 1),
                "leave-one-out MAPE %": round(100 * statistics.mean(errors), 1),
                "worst %": round(100 * max(errors), 1),
            }
        )
    return table


def pair_table(outcomes: Mapping[str, Outcome], tutorial: Mapping[str, Outcome]) -> Table:
    """Speed-ups of one version over another, predicted and measured."""
    pairs = [(outcomes[BEST[best]], outcomes[best]) for best in BEST if best in outcomes]
    order = list(TUTORIAL_MS)
    pairs += [(tutorial[a], tutorial[b]) for a, b in itertools.pairwise(order)]
    table = []
    for parent, child in pairs:
        predicted = (parent.line.latency_us or 0) / (child.line.latency_us or 1)
        measured = parent.case.measured["latency_ms"] / child.case.measured["latency_ms"]
        table.append(
            {
                "change": f"{parent.case.name} to {child.case.name}",
                "predicted": round(predicted, 2),
                "measured": round(measured, 2),
                "error %": round(100 * (predicted / measured - 1), 1),
            }
        )
    return table


def tutorial_table(tutorial: Mapping[str, Outcome]) -> Table:
    """The four bfloat16 products."""
    return [
        {
            "form": name,
            "predicted ms": round((o.line.latency_us or 0) / 1000, 2),
            "measured ms": TUTORIAL_MS[name],
            "error %": round(100 * (o.ratio - 1), 1),
            "bound": o.line.bound,
        }
        for name, o in tutorial.items()
    ]


def robustness_table(cases: Sequence[Case]) -> Table:
    """The leave-one-out error with each fitted constant 20 % lower and higher."""
    table = []
    for name in FITTED:
        row: dict[str, Any] = {"constant": name}
        for factor in (0.8, 1.2):
            errors = [abs(e) for e in leave_one_out([run(c, LEGACY.with_scaled(name, factor)).ratio for c in cases])]
            row[f"MAPE % at x{factor}"] = round(100 * statistics.mean(errors), 1)
        table.append(row)
    return table


LATER = {"trn2": 78.6, "trn3": 78.6}
"""bfloat16 TFLOP/s of one core's array, 128 x 128 x 2 x 2.4 GHz (architecture guides)."""


def later_table() -> Table:
    """A bfloat16 product in its best form on chips nobody has published measurements of."""
    path = ROOT / "tests" / "kernels" / "legacy" / "matmul_bf16_blocked.py"
    arguments = [TensorSpec((8192, 4096), "bfloat16"), TensorSpec((8192, 8192), "bfloat16")]
    program = trace(path.read_text(), arguments, filename=path.name, chip="trn2")
    line = timeline(program)
    assert line.latency_us is not None
    flops = 2 * 4096 * 8192 * 8192
    rate = flops / line.latency_us / 1e6
    return [
        {
            "chip": "trn2",
            "TFLOP/s predicted": round(rate, 1),
            "TFLOP/s of a busy array": LATER["trn2"],
            "published for long products": 77.2,
            "error %": round(100 * (rate / 77.2 - 1), 1),
            "validated": line.prediction.validated_on,
        }
    ]


WIN_KERNELS = ("silu", "mamba", "rmsnorm_matmul", "add_rmsnorm_matmul")


def win_table(kernels: Sequence[str]) -> Table:
    """Gains of acceld's rules on our baselines under changed constants."""
    table = []
    for name in kernels:
        spec = workload(name)
        arguments = [
            a.value if a.value is not None else TensorSpec(a.kernel_shape or a.shape, a.dtype) for a in spec.arguments
        ]
        table += [
            {
                "kernel": win.kernel,
                "rule": win.rule,
                "line": win.line,
                "speed-up": round(win.speedup, 3),
                "least": round(win.least, 3),
                "with": win.by,
                "survives": "yes" if win.survives else "no",
            }
            for win in wins(name, spec.baselines["nki_legacy"].read_text(), arguments)
        ]
    survivors = sum(row["survives"] == "yes" for row in table)
    return [
        *table,
        dict(zip(table[0], ("all", f"{survivors} of {len(table)} survive", "", "", "", "", ""), strict=True)),
    ]


def corpus_table() -> Table:
    """How the legality corpus is judged."""
    table = []
    for api in ("nki_legacy", "nki"):
        found = list(outcomes(api))
        legal, refused = [o for o in found if o.legal], [o for o in found if not o.legal]
        table.append(
            {
                "API": api,
                "legal kernels": len(legal),
                "wrongly refused": sum(not o.right for o in legal),
                "kernels to refuse": len(refused),
                "refused with the right rule and line": sum(o.right for o in refused),
                "rules": len({o.pair.rule for o in refused}),
            }
        )
    return table


MUTANTS = 24


def mutant_table(cases: Sequence[Case]) -> Table:
    """Whether verification or a comparison notices mistakes in the public kernels."""
    table = []
    for case in cases:
        found = tally(case.name, case.program, workload(case.name), limit=MUTANTS)
        table.append(
            {
                "kernel": case.name,
                "mutants": sum(found.counts.values()),
                "refused": found.counts["illegal"] + found.counts["failed"],
                "wrong result": found.counts["wrong"],
                "equivalent, with a reason": found.explained,
                "unnoticed": ", ".join(f"{n} at line {k} ({o})" for n, k, o in found.survivors) or "none",
                "false alarm": found.false_alarm or "none",
            }
        )
        print(table[-1], file=sys.stderr)
    return table


def sample_table() -> Table:
    """Kernels of nki-samples against our references."""
    table = []
    for variable, cases, name in (
        ("NKI_SAMPLES_LEGACY_DIR", samples.LEGACY, "legacy (3a99c91)"),
        ("NKI_SAMPLES_DIR", samples.CURRENT, "current"),
    ):
        folder = os.environ.get(variable)
        if not folder or not Path(folder).is_dir():
            continue
        found = samples.verdicts(Path(folder), cases)
        traced = [v for v in found if v.state not in ("does not trace", "refused")]
        other = [v for v in found if v.state != "right"]
        table.append(
            {
                "nki-samples": name,
                "kernels tried": len(found),
                "trace": len(traced),
                "agree with our reference": sum(v.state == "right" for v in found),
                "others": "; ".join(f"{v.case.entry}: {v.state} {v.detail}" for v in other) or "none",
                "not tried": "; ".join(f"{names}: {why}" for names, why in samples.SKIPPED[name].items()) or "none",
            }
        )
    return table


TITLES = {
    "latency": "Latency of the 14 NKIBench baselines (trn1, float32)",
    "summary": "All 14 together. Structure and constants were chosen looking at these kernels; left out means one scale "
    "fitted to the other 13",
    "counters": "Counters, predicted over measured",
    "goals": "Counters within a limit",
    "ablation": "What each part adds",
    "pairs": "Speed-ups of one version over another",
    "tutorial": f"bfloat16 product [4096, 8192] x [8192, 8192] in four forms ({TUTORIAL_SOURCE})",
    "later": "Later chips (unvalidated)",
    "fitted": "Fitted constants",
    "robustness": "Leave-one-out error with each fitted constant changed",
    "wins": "Gains of acceld's rules with every fitted constant 20 % lower and higher",
    "corpus": "Legality corpus",
    "mutants": "Mutants of the public baselines: refused, wrong on some declared distribution, or unnoticed",
    "samples": "Kernels of nki-samples that need one core",
}


def markdown(tables: Mapping[str, Table]) -> str:
    """The tables as text."""
    return "\n\n".join(f"### {TITLES[name]}\n\n{section(tables[name])}" for name in TITLES if name in tables)


def section(table: Table) -> str:
    """One table as text."""
    columns = list(table[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(str(row[c]) for c in columns) + " |" for row in table])


def write_document(tables: Mapping[str, Table]) -> None:
    """Put the tables between the markers of docs/simulator.md, in place of those of the same titles."""
    document = DOCUMENT.read_text()
    head, rest = document.split(BEGIN)
    before, tail = rest.split(END)
    kept = dict(part.split("\n\n", 1) for part in before.strip().removeprefix("### ").split("\n\n### ") if part)
    texts = {title: text.strip() for title, text in kept.items()} | {
        TITLES[name]: section(table) for name, table in tables.items()
    }
    body = "\n\n".join(f"### {title}\n\n{texts[title]}" for title in TITLES.values() if title in texts)
    DOCUMENT.write_text(f"{head}{BEGIN}\n\n{body}\n\n{END}{tail}")


if __name__ == "__main__":
    sys.exit(main())
