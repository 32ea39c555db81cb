"""Check every rule on a program. The program is not trusted, because hostile code may have run in the process that
traced it.

Nothing here relies on a front end. A program that is not well formed is refused first. Only well-formed instructions
are checked further, so that no program can crash or hang the judge.
"""

from __future__ import annotations

import time

from acceld.errors import UsageError
from acceld.nki.errors import LegalityError
from acceld.nki.ir.program import Program
from acceld.nki.verify.accesses import Accesses
from acceld.nki.verify.current_on_trn1 import CurrentOnTrn1
from acceld.nki.verify.findings import Report, TooMany
from acceld.nki.verify.likeness import Uses
from acceld.nki.verify.limits import RuleBook, rulebook
from acceld.nki.verify.lives import Lives
from acceld.nki.verify.operands import Operands
from acceld.nki.verify.state import State
from acceld.nki.verify.structure import Structure

DEADLINE_S = 60.0


def verify(
    program: Program, rules: RuleBook | None = None, *, deadline_s: float = DEADLINE_S
) -> tuple[LegalityError, ...]:
    """Return the violations in ``program``, sorted by line, at most fifty; () if the program is legal.

    ``rules`` are by default the rules of the program's own API and chip. A program that can not be verified within
    ``deadline_s`` seconds of processor time has a violation of the rule ``verify_deadline``. On a busy machine, time that other
    processes take does not count.
    """
    report = Report(program, time.thread_time() + deadline_s)
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
    operands, on_trn1 = Operands(report, rules), CurrentOnTrn1(report, rules)
    accesses.buffers()
    uses = Uses(structure.likeness)
    fine: set[int] = set()
    position, views = -1, False
    for position, (instruction, around) in enumerate(program.walk()):
        if id(instruction) not in structure.sound:
            continue
        if position % 64 == 0:
            report.tick()
        views = views or instruction.op == "bitcast"
        like = structure.sound[id(instruction)]
        try:
            if like is not None and like in fine:
                # an instruction like this one passed all checks; only where in HBM its tiles start is its own
                accesses.check_arguments(instruction)
            else:
                before = report.noted
                operands.check(instruction, around)
                on_trn1.check(instruction, around)
                accesses.check(instruction)
                if like is not None and report.noted == before:
                    fine.add(like)
            uses.add(instruction, around, position, like)
        except _DEFECTS as error:
            _refuse(report, instruction.line, error)
    state = State(report, rules, loops)
    for number in uses.buffers():
        try:
            state.check(program.buffers[number], uses)
        except _DEFECTS as error:
            _refuse(report, program.buffers[number].line, error)
    try:
        if views:
            state.views({number: uses.of(number) for number in uses.buffers()})
    except _DEFECTS as error:
        _refuse(report, 0, error)
    all_sound = len(structure.sound) == position + 1
    if all_sound:
        state.outputs(uses)
        try:
            Lives(report).check()
        except _DEFECTS as error:
            _refuse(report, 0, error)


_DEFECTS = (LookupError, ValueError, TypeError, ArithmeticError, AttributeError, RecursionError)


def _refuse(report: Report, line: int, error: Exception) -> None:
    """Add a finding for a check that raised ``error``. A program that can not be checked must not pass."""
    report.add("unverifiable", line, f"could not be checked: {type(error).__name__}: {str(error)[:200]}")


__all__ = ["LegalityError", "RuleBook", "rulebook", "verify"]
