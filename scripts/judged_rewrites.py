"""Print what each version of ``nki`` says of the workloads' kernels, of their other forms and of every rewrite by a rule.

    python scripts/judged_rewrites.py [--only NAME ...] [--nki VERSION ...]

A workload's kernel of ``nki`` is read as it is and written out from its trace; its kernel of ``neuronxcc.nki`` is ported; its
reference is lowered to one more kernel. Each form is traced and verified at each version, and so is every rewrite of a form
that the version accepts. A row of the table has the numbers of rewrites that were judged and refused, or says why there are
none. The refusals follow the table, each with its words. The exit code is 1 if a version refuses a form or a rewrite.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the package of this checkout

from acceld.chips import NKI_VERSIONS
from acceld.cli.reference import lowered_root
from acceld.errors import RuleRefused
from acceld.nki.entry import find_entry
from acceld.nki.errors import KernelFailure
from acceld.nki.frontend.tracing import Argument, TensorSpec, TraceOptions, trace
from acceld.nki.ir.program import Program
from acceld.nki.port.facts import Facts, observe
from acceld.nki.port.rewriting import rewrite
from acceld.nki.source.launches import Launch
from acceld.nki.source.normal import as_before
from acceld.nki.source.written_out import written_out
from acceld.nki.verify.verifier import verify
from acceld.proposers.rules.proposer import moves
from acceld.workloads import ArraySpec, Workload
from acceld.workloads.discovery import find_workloads

AS_WRITTEN, WRITTEN_OUT, PORTED, LOWERED = "as written", "written out", "ported", "lowered"
"""The forms of a workload's kernel."""


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a workload's kernel, with the launch by which it is judged. A kernel that has no such form has the
    reason, and no text.
    """

    workload: str
    form: str
    text: str
    entry: str
    arguments: tuple[Argument, ...]
    chip: str
    lnc: int
    grid: tuple[int, ...]
    absent: str = ""
    """The reason why the kernel has no such form."""

    @property
    def launch(self) -> Launch:
        """Return what rules know of the launch."""
        shapes = tuple(_shape(one) for one in self.arguments)
        dtypes = tuple(one.dtype if isinstance(one, TensorSpec) else "" for one in self.arguments)
        return Launch("nki", shapes, dtypes, self.entry)

    def program(self, nki: str | None) -> Program:
        """Return the trace at version ``nki``. Raise KernelFailure if the trace or the verifier refuses the kernel."""
        program = trace(
            self.text,
            self.arguments,
            entry=self.entry or None,
            api="nki",
            chip=self.chip,
            lnc=self.lnc,
            grid=self.grid,
            options=TraceOptions(nki=nki),
        )
        for finding in verify(program):
            raise KernelFailure(finding.message, rule=finding.rule, line=finding.line)
        return program

    def refusal(self, nki: str) -> str:
        """Return the words by which version ``nki`` refuses the kernel; "" if the version accepts the kernel."""
        try:
            self.program(nki)
        except KernelFailure as failure:
            return f"line {failure.line}: {failure.message}"
        return ""


@dataclass(frozen=True, slots=True)
class Row:
    """Answer of one version to a form and to the form's rewrites."""

    form: Form
    nki: str
    words: str
    """The refusal of the form itself; "" if the version accepts the form."""
    judged: int
    refused: tuple[str, ...]
    """The refused rewrites of an accepted form, each with its words."""


def _shape(argument: Argument) -> tuple[int, ...] | int | None:
    if isinstance(argument, TensorSpec):
        return argument.shape
    return argument if isinstance(argument, int) else None


def _arguments(workload: Workload) -> tuple[Argument, ...]:
    given = workload.kernel_arguments()
    return tuple(TensorSpec(one.shape, one.dtype) if isinstance(one, ArraySpec) else one for one in given)


def forms(workload: Workload) -> Iterator[Form]:
    """Yield the forms of a workload's kernel: as it is, written out and ported."""
    values = _arguments(workload)
    entry = workload.entry or ""
    if "nki" in workload.baselines:
        text = workload.baselines["nki"].read_text(encoding="utf-8")
        chip = "trn3" if "quantize_mx" in text else "trn2"
        whole = Form(workload.name, AS_WRITTEN, text, entry, values, chip, workload.lnc, workload.grid)
        yield whole
        numbers = [one if isinstance(one, int | float) else None for one in values]
        try:
            plain, absent = written_out(whole.program(None), text, numbers), ""
        except RuleRefused as refusal:
            plain, absent = "", refusal.message
        yield replace(whole, form=WRITTEN_OUT, text=plain, absent=absent)
    if "nki_legacy" in workload.baselines:
        text = workload.baselines["nki_legacy"].read_text(encoding="utf-8")
        facts = observe(text, values, entry=entry or None, grid=workload.grid, chip="trn2")
        ported = rewrite(text, find_entry(text, entry or None), Facts.decode(facts.encode()))
        absent = "; ".join(f"line {one.line}: {one.message}" for one in ported.findings)
        yield Form(workload.name, PORTED, ported.text, entry, values, "trn2", workload.lnc, workload.grid, absent)


def lowered(workload: Workload) -> Iterator[Form]:
    """Yield the kernel that a workload's reference is lowered to."""
    if workload.reference is not None:
        values = _arguments(workload)
        root = lowered_root(workload, "nki", hidden=False)
        text, absent = (root.text, "") if root else ("", "the reference is not lowered")
        yield Form(workload.name, LOWERED, text, "", values, "trn2", 1, (), absent)


def judged(form: Form, versions: Sequence[str] = NKI_VERSIONS) -> Iterator[Row]:
    """Yield what each version says of a form and of its rewrites by every rule, at every place and in every variant.

    A rewrite is judged in the normal form that rules write, and with the lines of the form that the rewrite left alone.
    """
    if form.absent:
        return
    made = [(move.step, move.apply()) for move in moves(form.text, form.launch)]
    rewrites = [
        (step, replace(form, text=each))
        for step, text in made
        if text is not None
        for each in dict.fromkeys((text, as_before(form.text, text)))
    ]
    for nki in versions:
        words = form.refusal(nki)
        accepted = [] if words else rewrites
        said = [(step, changed.refusal(nki)) for step, changed in accepted]
        yield Row(form, nki, words, len(said), tuple(f"{step}: {refusal}" for step, refusal in said if refusal))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the refusals, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="workloads (default: all)")
    parser.add_argument("--nki", nargs="+", metavar="VERSION", choices=NKI_VERSIONS, default=NKI_VERSIONS)
    given = parser.parse_args(arguments)
    found = find_workloads()
    refusals: list[str] = []
    print(f"{'workload':24} {'form':12} {'nki':4} {'rewrites':>8} {'refused':>8}")
    for name in given.only or sorted(found):
        for form in (*forms(found[name]), *lowered(found[name])):
            if form.absent:
                print(f"{name:24} {form.form:12} has no such form: {form.absent}", flush=True)
            for row in judged(form, given.nki):
                counts = "  the version refuses this form" if row.words else f"{row.judged:8} {len(row.refused):8}"
                print(f"{name:24} {form.form:12} {row.nki:4} {counts}", flush=True)
                said = row.refused or ((row.words,) if row.words else ())
                refusals += [f"{name} {form.form} {row.nki}: {one}" for one in said]
    print(*refusals, sep="\n")
    return bool(refusals)


if __name__ == "__main__":
    sys.exit(main())
