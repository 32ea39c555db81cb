"""Try every kernel of the checkouts that environment variables name, and report the last stage that each reached.

    NKI_LIBRARY_DIR=/path/to/nki-library ... python -m scripts.evidence.corpus [--only REPOSITORY ...] [--write] [--jobs N]

``NKI_SAMPLES_LEGACY_DIR`` (commit 3a99c91) and ``NKI_SAMPLES_DIR`` name checkouts of aws-neuron/nki-samples,
``NKI_LIBRARY_DIR`` aws-neuron/nki-library, ``AUTOCOMP_DIR`` ucb-bar/autocomp, ``NKI_AUTOTUNE_DIR``
awslabs/nki-autotune, ``ACCELOPT_DIR`` zhang677/AccelOpt, ``NKI_MOE_DIR`` aws-neuron/nki-moe,
``NKI_MEGAKERNEL_DIR`` KevGomes1403/nki-moe-megakernel (with nki-library), ``CS149_DIR`` a folder of
students' checkouts of stanford-cs149/asst4-trainium(2), ``ACCELD_MEASURED`` the folders ``autocomp`` and ``kda`` of
extracted kernels. References of nki-library and autocomp need torch; nki-library needs allpairspy, and some of
nki-library's tests SciPy.

Each outcome is written to ``--results`` as soon as it is known. Differences from the outcomes in ``--against`` (by
default the earlier ones in ``--results``) are printed. ``--write`` puts the table into docs/simulator-measured.md. The
exit code is 1 if the simulator itself failed.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.evidence.corpus import outcomes as kept
from scripts.evidence.corpus.megakernel import megakernels
from scripts.evidence.corpus.outcomes import Outcome, State, Trial
from scripts.evidence.corpus.report import changes, table
from scripts.evidence.corpus.repositories import autocomp, convolutions, guarded, measured, nki_samples, singles
from scripts.evidence.simbench.kernels import ROOT
from scripts.evidence.simbench.tables import rows

SOURCES = (nki_samples, singles, megakernels, convolutions, autocomp, measured)
BEGIN, END = "<!-- corpus: begin -->", "<!-- corpus: end -->"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chosen trials; return the exit code."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(prog="scripts.evidence.corpus", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="parts of repositories' names")
    parser.add_argument("--kernels", nargs="+", default=[], help="parts of kernels' names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "corpus.json")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(argv)
    scratch = options.results.parent / "corpus"
    scratch.mkdir(parents=True, exist_ok=True)
    before = kept.read(options.against or options.results)
    trials = [trial for trial in _trials(scratch, options.only) if _named(trial, options.only, options.kernels)]
    found: list[Outcome] = []
    kept_before = {(one.repository, one.kernel): one for one in kept.read(options.results)}
    for outcome in kept.results([guarded(trial) for trial in trials], options.jobs):
        found.append(outcome)
        kept_before[outcome.repository, outcome.kernel] = outcome
        kept.write(options.results, sorted(kept_before.values(), key=lambda one: (one.repository, one.kernel)))
        print(f"{len(found)}/{len(trials)} {outcome.state:14} {outcome.seconds:7.1f} s  {outcome.repository} "
              f"{outcome.kernel}: {outcome.reason[:180]}", flush=True)  # fmt: skip
    for line in changes(before, found):
        print(line)
    text = rows(table(kept.read(options.results)))
    print(text)
    if options.write:
        document = ROOT / "docs" / "simulator-measured.md"
        head, _, rest = document.read_text().partition(BEGIN)
        document.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")
    return 1 if any(one.state is State.CRASH for one in found) else 0


def _trials(scratch: Path, only: Sequence[str]) -> list[Trial]:
    from scripts.evidence.corpus.nki_library import REPOSITORY, nki_library

    trials = [trial for source in SOURCES for trial in source(scratch)]
    if not only or any(part in REPOSITORY for part in only):
        trials += nki_library(scratch)
    return trials


def _named(trial: Trial, only: Sequence[str], kernels: Sequence[str]) -> bool:
    return (not only or any(part in trial.repository for part in only)) and (
        not kernels or any(part in trial.kernel for part in kernels)
    )


if __name__ == "__main__":
    sys.exit(main())
