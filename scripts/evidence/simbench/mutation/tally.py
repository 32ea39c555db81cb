"""Run a kernel's mutants, and equivalent programs, through the checks of the gates."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from acceld.evaluate.correctness.gates import Trial
from acceld.nki.ir.codec import program_hash
from acceld.nki.ir.program import Program
from scripts.evidence.simbench.kernels import Kernel
from scripts.evidence.simbench.mutation.gate import Bench, Preparation, illegal
from scripts.evidence.simbench.mutation.mutants import OPERATORS, Mutant, mutants
from scripts.evidence.simbench.mutation.reasons import reason
from scripts.evidence.simbench.mutation.reduction import reduced
from scripts.evidence.simbench.mutation.results import (
    EXPLAINED,
    PASSED,
    REFUSED,
    SAME,
    UNNOTICED,
    UNTRIED,
    WRONG,
    Fate,
    Report,
)
from scripts.evidence.simbench.mutation.rewrites import rewrites

LIMIT = 2 * len(OPERATORS)
"""Number of mutants of a kernel: two for each operator."""
KERNEL_S = 40.0
"""Processor seconds for one kernel; mutants not tried by then are listed as untried."""
SEED = 1
ENOUGH = 3
"""Number of trials after which an equivalent program that gave the kernel's own bits each time is accepted."""

Say = Callable[[str], None]


@dataclass(slots=True)
class _Suspect:
    """A mutant or equivalent program, and the results of its trials so far."""

    mutant: Mutant
    fate: Fate
    same: bool = True
    """True if every bit of all outputs so far equals that of the kernel."""
    tried: int = 0

    def take(self, bench: Bench) -> None:
        """Run the program in one trial, and record the result."""
        result = bench.result(self.mutant.program)
        self.tried += 1
        self.same = self.same and result.same
        self.fate = replace(self.fate, noise=max(self.fate.noise, result.noise))
        if result.complaint:
            self.fate = replace(self.fate, fate=WRONG, by=f"{bench.trial.name}: {result.complaint}")


class _Tally:
    """One kernel, with the mutants that are being tried."""

    def __init__(self, label: str, kernel: Kernel, *, limit: int, seed: int) -> None:
        self._started = time.process_time()
        self.label, self.kernel, self.whole = label, kernel, kernel.program()
        self.small = reduced(self.whole)
        self.wrong = [self._suspect(one) for one in mutants(self.small.program, seed=seed, limit=limit)]
        self.right = [self._suspect(one) for one in rewrites(self.small.program, seed=seed)]
        complaint = illegal(self.small.program)
        self.notes = [f"the kernel itself is refused: {complaint}"] if complaint else []
        self.preparation = Preparation(kernel.workload, self.small)
        self.tried = 0

    @property
    def cpu_s(self) -> float:
        """Return the processor time in seconds since work on this kernel began."""
        return time.process_time() - self._started

    @property
    def open(self) -> list[_Suspect]:
        """Return the programs whose outcome a further trial can still change."""
        wrong = [one for one in self.wrong if not one.fate.fate]
        right = [one for one in self.right if not one.fate.fate]
        settled = not wrong and self.tried >= ENOUGH and all(one.same for one in right)
        return [] if settled or self.cpu_s > KERNEL_S else [*wrong, *right]

    def take(self, trial: Trial) -> None:
        """Run one trial on each mutant that no earlier trial has noticed."""
        bench = self.preparation.bench(trial)
        if isinstance(bench, str):
            self.notes.append(f"{trial.name} decides nothing: {bench}")
            return
        self.tried += 1
        for one in self.open:
            one.take(bench)
            if self.cpu_s > KERNEL_S:
                break

    def report(self) -> Report:
        """Return the report on all mutants."""
        return Report(
            kernel=self.label,
            program=program_hash(self.whole),
            cut="; ".join(self.small.loops),
            trials=self.tried,
            mutants=tuple(map(self._settled, self.wrong)),
            rewrites=tuple(map(self._settled, self.right)),
            cpu_s=round(self.cpu_s, 1),
            notes=tuple(self.notes),
        )

    def _suspect(self, mutant: Mutant) -> _Suspect:
        complaint = illegal(mutant.program)
        operation = _operation(self.small.program, mutant.line)
        return _Suspect(mutant, Fate(mutant.name, mutant.line, operation, REFUSED if complaint else "", complaint))

    def _settled(self, one: _Suspect) -> Fate:
        if one.fate.fate:
            return one.fate
        if one in self.right and one.tried:
            return replace(one.fate, fate=SAME if one.same else PASSED)
        if one.tried < self.tried:
            return replace(one.fate, fate=UNTRIED)
        if one.same:
            return replace(one.fate, fate=SAME)
        why = reason(self.kernel.workload.name, one.fate)
        return replace(one.fate, fate=EXPLAINED if why else UNNOTICED, by=why)


def tally(label: str, kernel: Kernel, say: Say, *, limit: int = LIMIT, seed: int = SEED) -> Report:
    """Make at most ``limit`` mutants of a kernel, and report which check notices each."""
    made = _Tally(label, kernel, limit=limit, seed=seed)
    say(f"{label}: cut {'; '.join(made.small.loops) or 'nothing'} ({made.cpu_s:.1f} s)")
    for trial in made.preparation.trials:
        if not made.open:
            break
        made.take(trial)
        say(f"{label}: {trial.name}: {len(made.open)} programs left ({made.cpu_s:.1f} s)")
    return made.report()


def _operation(program: Program, line: int) -> str:
    names = {instruction.op for instruction, _ in program.walk() if instruction.line == line}
    if names:
        return "/".join(sorted(names))
    return "loop" if any(loop.line == line for loop in program.loops.values()) else "declaration"
