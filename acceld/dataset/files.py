"""Write a data set's files: rows in the formats of ``acceld export``, split by formula, and the card."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from acceld.dataset.card import card
from acceld.dataset.journal import Journal
from acceld.dataset.making import MOST_PAIRS
from acceld.dataset.records import Member, Order, Pair, Program
from acceld.model import Candidate, Kernel, Plan, Run, RunSpec, RunState, SearchParameters
from acceld.proposers.rules import rule_named
from acceld.report.datasets import ROWS, Material, three_way_split
from acceld.report.row_files import write_lines

FORMATS = ("pairs", "numpy-nki", "trl-sft")
"""The formats that are written, each into a folder of its own; docs/history.md describes the formats."""
SPLITS = ("train", "validation", "test")
LARGER = "Work in larger pieces: keep more values on the chip between two steps, and take more columns at a time."


@dataclass(frozen=True, slots=True)
class Written:
    """Figures of the written files: the number of programs, and the number of rows of each format by split."""

    programs: int
    pairs: int
    rows: Mapping[str, Mapping[str, int]]
    rejected: Mapping[str, int]
    """Number of whole programs that failed, by reason."""


def write(order: Order, journal: Journal, folder: Path, basis: Mapping[str, str]) -> Written:
    """Write rows and card of a data set from the programs finished so far. The same programs give the same bytes."""
    available = journal.pairs()
    numbers = list(available)[: order.programs]
    taken = allotted({number: available[number] for number in numbers}, order.pairs)
    rows: dict[str, dict[str, int]] = {}
    for name in FORMATS:
        place = folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        rows[name] = {
            part: write_lines(
                place / f"{part}.jsonl",
                (
                    row
                    for one in _of(journal, taken, part)
                    for row in ROWS[name](material(one, taken[one.number], order))
                ),
            )
            for part in SPLITS
        }
    last = numbers[-1] if numbers else -1
    tried = (one for one in journal.programs() if one.number <= last)
    text, rejected = card(order, basis, rows, taken, tried)
    fresh = folder / ".README.md"
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(folder / "README.md")
    return Written(len(numbers), sum(taken.values()), rows, rejected)


def allotted(available: Mapping[int, int], wanted: int) -> dict[int, int]:
    """Return how many of its pairs each program gives, as a dict by the program's number, so that there are ``wanted``
    pairs in all. ``available`` has the number of pairs of each program. The returned numbers are as equal as possible.
    """
    taken = dict.fromkeys(available, 0)
    left = wanted
    for _ in range(MOST_PAIRS):
        for number, most in available.items():
            if left and taken[number] < most:
                taken[number] += 1
                left -= 1
    return taken


def _of(journal: Journal, taken: Mapping[int, int], part: str) -> Iterator[Program]:
    return (one for one in journal.programs() if one.number in taken and three_way_split(one.formula_sha256) == part)


def material(program: Program, pairs: int, order: Order) -> Material:
    """Return a program of a data set, that is, one random formula with its kernels, as the records of a run, from
    which the rows of every format are made. The program's kernels are candidates without a parent. For each of the
    first ``pairs`` pairs of a slow and a fast kernel, the fast kernel is added once more, as a child of the slow
    one.
    """
    spec = RunSpec(
        program.name,
        chip=order.chip,
        api=order.api,
        proposer="rules",
        search=SearchParameters(from_reference=True, seed=order.seed),
    )
    fastest = min(range(len(program.members)), key=lambda at: (program.members[at].evaluation.latency_us or 0.0, at))
    run = Run(program.number, spec, RunState.FINISHED, 0.0, baseline=1, best=fastest + 1)
    candidates = [_candidate(program, one, order, number) for number, one in enumerate(program.members, 1)]
    plans: dict[int, Plan] = {}
    for number, pair in enumerate(program.pairs[:pairs], len(candidates) + 1):
        plan = _plan(program, pair, number)
        if plan is not None:
            plans[number] = plan
        fast = program.members[pair.fast]
        candidates.append(_candidate(program, fast, order, number, pair.slow + 1, number if plan is not None else None))
    return Material(run, candidates, plans, (), program.reference)


def _candidate(
    program: Program, member: Member, order: Order, number: int, parent: int | None = None, plan: int | None = None
) -> Candidate:
    kernel = Kernel(member.text, order.api, entry="kernel", trusted=True)
    return Candidate(program.number, 1, kernel, parent, plan, evaluation=member.evaluation, id=number)


def _plan(program: Program, pair: Pair, number: int) -> Plan | None:
    """Return the plan, with the id ``number``, that leads from the slow kernel of a pair to the fast one; None if no
    single change leads there.
    """
    slow, fast = program.members[pair.slow], program.members[pair.fast]
    rules = fast.rules_since(slow)
    if rules is not None:
        steps = fast.steps[len(slow.steps) :]
        listed = "\n".join(f"{place}. {step}" for place, step in enumerate(steps, 1))
        classes = Counter(rule_named(rule).change_class for rule in rules)
        return Plan(
            program.number,
            1,
            pair.slow + 1,
            0,
            f"Rewrites in this order:\n{listed}",
            title=", ".join(rules),
            change_class=next(iter(classes)) if len(classes) == 1 else "mixed",
            rule="+".join(dict.fromkeys(rules)),
            id=number,
        )
    if slow.root and (not fast.root or fast.root > slow.root):
        plain = not slow.steps and not fast.steps
        return Plan(
            program.number,
            1,
            pair.slow + 1,
            0,
            LARGER,
            title="larger pieces",
            change_class="fusion" if plain else "mixed",
            id=number,
        )
    return None
