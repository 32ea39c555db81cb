"""Measure the simulator: predictions against published measurements, coverage, and mistakes that it must notice.

    ACCELOPT_DIR=/path/to/AccelOpt python scripts/evidence/bench_sim.py [--json] [--write] [--only SECTION ...]

The script prints these tables:

- predicted and published latencies of NKIBench's baselines, of the two best kernels that AccelOpt publishes, and of
  four bfloat16 products of acceld in the forms of AWS's tutorial. The texts of NKIBench come from ``ACCELOPT_DIR``, a
  checkout of zhang677/AccelOpt, and are not part of this project;
- coverage: the legality corpus, and kernels of aws-neuron/nki-samples if ``NKI_SAMPLES_LEGACY_DIR`` (commit 3a99c91)
  and ``NKI_SAMPLES_DIR`` name checkouts;
- mutants of the baselines and of acceld's own kernels: programs with one mistake, which a check must notice;
- how the gains of acceld's rules change with each fitted constant 20 % lower and 20 % higher.

``--write`` puts the tables into docs/simulator-measured.md; with ``--only`` it replaces only those of the named sections.

Every set of measured kernels whose folder an environment variable names is timed: ``ACCELOPT_DIR``,
``NKI_SAMPLES_LEGACY_DIR``, ``NKI_AUTOTUNE_DIR`` (awslabs/nki-autotune), and ``ACCELD_MEASURED`` with the folders
``autocomp`` and ``kda`` of extracted kernels and their ``pairs.json``. Sets that only validate the model are left out
unless ``--validation`` is given. Results of mutants and wins are kept in the folder ``--results``, kernel by kernel;
``--resume`` reuses them. The tables show all results in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for the scripts' own modules and the tests' corpus

from scripts.evidence.simbench import (
    accuracy,
    checks,
    coverage,
    kernels,
    measured_sets,
    prediction,
    rates,
    rule_wins,
    versions,
)
from scripts.evidence.simbench.kernels import BEST, NKIBENCH, ROOT, Case, Kernel
from scripts.evidence.simbench.measured_sets import Role
from scripts.evidence.simbench.mutation import results
from scripts.evidence.simbench.mutation.tally import tally
from scripts.evidence.simbench.tables import Table, markdown, write_document

RESULTS = ROOT / "build" / "bench-sim"
WIN_S = 120.0
WIN_CHIPS = ("trn1", "trn2")


@dataclass
class Bench:
    """Inputs that several sections use, each loaded once."""

    folder: Path
    only: frozenset[str]
    """Kernels for mutants and wins; empty stands for all."""
    win_s: float
    results: Path
    resume: bool
    validation: bool = False

    @cached_property
    def cases(self) -> list[Case]:
        """Return the public kernels that have measurements, traced."""
        measured = kernels.measured_figures()
        return [kernels.measured_case(name, self.folder, measured) for name in measured]

    @cached_property
    def measured(self) -> list[measured_sets.Measured]:
        """Return the measured kernels whose checkouts are present. Those that only validate the model are left
        out, unless ``--validation`` is given.
        """
        return [one for one in measured_sets.every_set() if self.validation or one.role is Role.DEVELOPMENT]

    @property
    def baselines(self) -> list[Case]:
        """Return NKIBench's 14 baselines."""
        return [case for case in self.cases if case.name not in BEST]

    def kernels(self) -> Iterator[tuple[str, Kernel]]:
        """Yield the public baselines and acceld's own kernels by workload, with the names that they have in the
        tables.
        """
        ours = list(kernels.own_kernels())
        for name in dict.fromkeys((*NKIBENCH, *(one.workload.name for one in ours))):
            if self.only and name not in self.only:
                continue
            if name in NKIBENCH:
                yield f"{name}, public", kernels.public(name, self.folder)
            for one in ours:
                if one.workload.name == name:
                    yield f"{one.name}, ours{' (nki)' if one.api == 'nki' else ''}", one


def model(bench: Bench) -> dict[str, Table]:
    """Return the tables of the errors of predictions."""
    outcomes = {case.name: accuracy.run(case) for case in bench.cases}
    tutorial = {name: accuracy.run(versions.tutorial_case(name)) for name in versions.TUTORIAL_MS}
    baselines = [outcome for name, outcome in outcomes.items() if name not in BEST]
    return {
        "latency": accuracy.latency_table(baselines),
        "summary": accuracy.summary_table(baselines),
        "counters": accuracy.counter_table(baselines),
        "goals": accuracy.goal_table(baselines),
        "ablation": accuracy.ablation_table(baselines),
        "pairs": versions.pair_table(outcomes, tutorial),
        "tutorial": versions.tutorial_table(tutorial),
        "later": versions.later_table(),
        "fitted": accuracy.fitted_table(),
    }


def wins(bench: Bench) -> dict[str, Table]:
    """Return the tables of the speed-up by each rule on each chip, and of how each fitted constant changes it."""
    path = bench.results / "wins.json"
    known: dict[str, Table] = json.loads(path.read_text()) if path.is_file() else {}
    for name, one in bench.kernels():
        for chip in WIN_CHIPS if one.api == "nki_legacy" else ():
            label, kernel = f"{name}, {chip}", replace(one, chip=chip)
            if bench.resume and label in known:
                continue
            known[label] = rule_wins.rows(label, kernel, bench.win_s, say)
            results.replace_file(path, json.dumps(known, indent=1))
    return {"wins": rule_wins.win_table(known.values())}


def corpus(_: Bench) -> dict[str, Table]:
    """Return the table of the tests' legal and illegal kernels, and how many of them the simulator accepts and
    refuses rightly.
    """
    return {"corpus": coverage.corpus_table()}


def mutants(bench: Bench) -> dict[str, Table]:
    """Return the tables of how many mutants the checks notice."""
    path = bench.results / "mutants.json"
    known = results.read(path)
    for label, kernel in bench.kernels():
        if bench.resume and label in known:
            continue
        known[label] = report = tally(label, kernel, say)
        results.write(path, known)
        say(f"{label}: {report.summary}")
    reports = list(known.values())
    return {"mutants": results.table(reports), "operators": results.operator_table(reports)}


def sets(bench: Bench) -> dict[str, Table]:
    """Return the tables of every measured set, development and validation apart, and of how many measurements
    lie within their intervals.
    """
    found, missing = prediction.predict_all(bench.measured, bench.results / "programs")
    for reason in missing:
        say(f"not timed: {reason}")
    return {
        **prediction.set_tables(found),
        "intervals": prediction.interval_table(found),
        "left_out": prediction.left_out_table(found, bench.results / "programs"),
        "paired": prediction.paired_table(found),
    }


def ablations(bench: Bench) -> dict[str, Table]:
    """Return the table of the development sets with rules and constants changed one at a time."""
    return {"ablation_sets": prediction.ablation_table(bench.measured, bench.results / "programs", say)}


def measured_rates(_: Bench) -> dict[str, Table]:
    """Return the table of the time that one more instruction takes by the model, against rates that others measured."""
    return {"rates": rates.table()}


def samples(_: Bench) -> dict[str, Table]:
    """Return the tables of results for the kernels of nki-samples, as a dict by title."""
    table = coverage.sample_table()
    return {"samples": table} if table else {}


def checked(bench: Bench) -> dict[str, Table]:
    """Return the table of the time that checking the public kernels takes. It is comparable only from an idle
    machine.
    """
    chosen = [name for name in NKIBENCH if not bench.only or name in bench.only]
    return {"checks": checks.table([kernels.public(name, bench.folder) for name in chosen], say)}


SECTIONS: Mapping[str, Callable[[Bench], dict[str, Table]]] = {
    one.__name__: one for one in (model, sets, ablations, measured_rates, wins, corpus, mutants, samples, checked)
}

OWN = {measured_rates.__name__, corpus.__name__}
"""Sections that need no checkout."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, and with ``--write`` also write them into the documentation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--write", action="store_true", help="update docs/simulator-measured.md")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=[*SECTIONS], help="these sections")
    parser.add_argument(
        "--kernels", nargs="+", default=[], help="only these workloads' kernels for mutants, wins and checks"
    )
    parser.add_argument("--win-s", type=float, default=WIN_S, help="processor time for the wins of one kernel")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder where results are kept")
    parser.add_argument("--resume", action="store_true", help="take the results that are there")
    parser.add_argument(
        "--validation", action="store_true", help="also the sets that only validate: look at them rarely"
    )
    options = parser.parse_args(argv)
    folder = os.environ.get("ACCELOPT_DIR", "")
    if not (folder and Path(folder).is_dir()) and not OWN >= set(options.only):
        say("ACCELOPT_DIR must name a checkout of zhang677/AccelOpt")
        return 2
    bench = Bench(
        Path(folder), frozenset(options.kernels), options.win_s, options.results, options.resume, options.validation
    )
    tables: dict[str, Table] = {}
    for name in options.only:
        tables |= SECTIONS[name](bench)
        if options.write:
            write_document(tables)
    print(json.dumps(tables, indent=1) if options.json else markdown(tables))
    return 0


def say(text: str) -> None:
    """Print a line of progress to standard error."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
