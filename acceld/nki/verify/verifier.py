"""Check every rule on a program again, without trust in the process that made it. That process shared its memory with
hostile code. Nothing here relies on a front end. A program that is not well formed is refused first, and only sound
instructions are checked further, so that no program can crash or hang the judge.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from acceld.errors import UsageError
from acceld.nki.errors import LegalityError
from acceld.nki.ir.def_use import Use, uses_of
from acceld.nki.ir.program import Program
from acceld.nki.verify.accesses import Accesses
from acceld.nki.verify.findings import Report, TooMany
from acceld.nki.verify.limits import RuleBook, rulebook
from acceld.nki.verify.operands import Operands
from acceld.nki.verify.state import State
from acceld.nki.verify.structure import Structure

DEADLINE_S = 60.0


def verify(
    program: Program, rules: RuleBook | None = None, *, deadline_s: float = DEADLINE_S
) -> tuple[LegalityError, ...]:
    """Return the violations in ``program``, at most fifty in program order; empty if it is legal.

    ``rules`` are those of the program's own API and chip if not given. A program that can not be verified within
    ``deadline_s`` has a finding of rule ``verify_deadline``.
    """
    report = Report(program, time.monotonic() + deadline_s)
    try:
        _check(report, rules)
    except TooMany:
        pass
    return tuple(sorted(report.findings.values(), key=lambda finding: finding.line))


def _check(report: Report, rules: RuleBook | None) -> None:
    program = report.program
    if rules is None:
        try:
            rules = rulebook(program.api, program.chip)
        except UsageError as error:
            report.add("api", 0, error.message, error.hint)
            return
    structure = Structure(report)
    if not structure.check():
        return
    loops = program.loops
    accesses = Accesses(report, rules, loops)
    operands = Operands(report, rules)
    accesses.buffers()
    uses: dict[int, list[Use]] = {}
    for position, (instruction, around) in enumerate(program.walk()):
        if id(instruction) not in structure.sound:
            continue
        if position % 64 == 0:
            report.tick()
        with _refusing(report, instruction.line):
            operands.check(instruction, around)
            accesses.check(instruction)
            for use in uses_of(instruction, around, position):
                uses.setdefault(use.access.buffer, []).append(use)
    state = State(report, rules, loops)
    for number, found in uses.items():
        with _refusing(report, program.buffers[number].line):
            state.check(program.buffers[number], found)
    with _refusing(report, 0):
        state.views(uses)
    if len(structure.sound) == sum(1 for _ in program.walk()):
        state.outputs(uses)


@contextmanager
def _refusing(report: Report, line: int) -> Iterator[None]:
    """Refuse the program if a check itself fails, so that a defect in the checks never lets a program pass."""
    try:
        yield
    except (LookupError, ValueError, TypeError, ArithmeticError, AttributeError, RecursionError) as error:
        report.add("unverifiable", line, f"could not be checked: {type(error).__name__}: {str(error)[:200]}")


__all__ = ["LegalityError", "RuleBook", "rulebook", "verify"]
