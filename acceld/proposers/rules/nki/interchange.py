"""Exchange two nested parallel loops, so that the data which the inner loop loads again in every iteration of the outer
loop is loaded only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.building import header
from acceld.nki.source.effects import one_result, parallel, same_range, understood
from acceld.nki.source.nests import has_place, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import LOADS, Loop, Statement
from acceld.proposers.rules.profiles import spilled
from acceld.proposers.rules.records import Place, Rule, Variant


class InterchangeLoops(Rule):
    """Exchange two nested ``affine_range`` loops, if the inner loop is the whole body of the outer loop."""

    name = "interchange_loops"
    reason = (
        "A tile that stays in SBUF across the inner loop is loaded once; one that changes with the inner loop and does "
        "not fit is loaded from HBM in every outer iteration, at 272 GB/s of a trn1 core's DMA engines."
    )
    source = "AWS NKI performance guide: data reuse; DMA rate 17 B/ns for each of sixteen engines"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "loop_order"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield pairs of loops whose exchange may save loads or spills, and, with the reason, all pairs that can not be
        exchanged.

        The exchange may save loads if the inner loop loads data that depends on the inner variable alone. It may save
        spills if the inner loop reads SBUF tiles that depend on the inner variable alone, unless a profile says that
        nothing is spilled.
        """
        for outer in kernel.loops:
            inner = _inner(outer)
            if inner is None:
                continue
            obstacle = obstacle_to_exchange(kernel, outer, inner)
            if obstacle:
                wish = f"Exchange loops {outer.variable} and {inner.variable}"
                yield self.refused(outer.line, obstacle, wish, inner.variable)
                continue
            kept, repeated = _reuse(kernel, outer, inner)
            spills = profile is None or spilled(profile)
            tiles = not repeated and spills and _rereads(kernel, outer, inner)
            if repeated or tiles:
                yield self.found(
                    outer.line,
                    partial(_exchanged, kernel, outer, inner),
                    Variant("swap"),
                    precondition="the loops are parallel and perfectly nested; tiles made in an iteration are used only "
                    "there",
                    plan=f"Loop {inner.variable} runs inside loop {outer.variable}, and {'reads' if tiles else 'loads'} that "
                    f"depend only on {inner.variable} repeat for every {outer.variable}. Make {inner.variable} the outer "
                    f"loop, so that {'all uses of a tile follow each other' if tiles else 'these tiles are loaded once and stay'}.",
                    benefit=0.05 if tiles else 0.4 if repeated > kept else 0.1,
                    gain_percent=(0.0, 30.0),
                    key=inner.variable,
                )


def _exchanged(kernel: KernelModule, outer: Loop, inner: Loop, _: Variant) -> str:
    edits = Edits(kernel.source)
    for one, other in ((outer, inner), (inner, outer)):
        edits.replace(one.start, one.start + len(header(kernel, one)), header(kernel, other))
    return edits.apply()


def _inner(outer: Loop) -> Loop | None:
    loops = [item for item in outer.items if isinstance(item, Loop)]
    rest = [item for item in outer.items if isinstance(item, Statement) and item.kind != "marker"]
    return loops[0] if len(loops) == 1 and not rest else None


def obstacle_to_exchange(kernel: KernelModule, outer: Loop, inner: Loop) -> str:
    """Return the reason why the two loops can not be exchanged; empty if they can."""
    problem = parallel((outer, inner))
    for loop in (outer, inner):
        if not problem and kernel.source[loop.start : loop.start + len(header(kernel, loop))] != header(kernel, loop):
            problem = f"line {loop.line}: the loop's header is written over several lines: write it on one"
    problem = problem or same_range(inner, [outer.variable]) or understood([inner], names=True)
    problem = problem or one_result(inner.statements())
    if problem:
        return problem
    tied = (
        _tied(kernel, outer, inner, one) for one in inner.statements() if one.kind == "op" and one.target is not None
    )
    return next(filter(None, tied), "")


def _tied(kernel: KernelModule, outer: Loop, inner: Loop, statement: Statement) -> str:
    """Return the reason why the iterations of the two loops must keep their order because of what a statement writes;
    empty if another order gives the same values.
    """
    target = statement.made
    where, name = f"line {statement.line}:", target.name
    carries = f"{where} {name} carries a value from one iteration to the next: give each iteration a tile of its own"
    if name in kernel.ambiguous:
        return f"{where} {name} may have a second name, an alias of the same buffer: use one name for each buffer"
    declared = kernel.declaration(name)
    outlives = declared is not None and not inside(declared, inner)
    if target.dims is None and outlives and not statement.augmented:
        return carries
    if target.dims is None and any(not inside(reader, inner) for reader in kernel.readers(name)):
        return f"{where} {name} is used after the loops: declare it before them, with one tile for each iteration"
    if not outlives:
        return ""
    if target.variables is None:
        return f"{where} an index of {name} is not understood: write it with loop variables and numbers"
    if sum(access.name == name for access in statement.mentions) > statement.augmented:
        return carries
    elsewhere = [one for one in kernel.readers(name) if one is not statement and inside(one, inner)]
    if statement.augmented and elsewhere and not (has_place(target, outer) and has_place(target, inner)):
        return f"{where} the running sum {name} is read inside the loops: read it after them"
    if statement.augmented or statement.op == "loop_reduce":
        return ""
    missing = {outer.variable, inner.variable} - target.variables
    if len(missing) == 1 and any(one.start < statement.start for one in elsewhere):
        return carries
    return ""


def _reuse(kernel: KernelModule, outer: Loop, inner: Loop) -> tuple[int, int]:
    """Return (number of loads that depend on the outer variable alone, number that depend on the inner variable
    alone).
    """
    kept = repeated = 0
    for statement in inner.statements():
        if statement.op not in LOADS:
            continue
        source = statement.reads.get("src")
        names = source.variables if source is not None else None
        if names is None:
            continue
        kept += outer.variable in names and inner.variable not in names
        repeated += inner.variable in names and outer.variable not in names
    return kept, repeated


def _rereads(kernel: KernelModule, outer: Loop, inner: Loop) -> bool:
    """Return True if the inner loop reads tiles that are made before both loops and that depend on the inner variable
    alone.
    """
    tiles = [access for one in inner.statements() for access in one.mentions if kernel.space_of(access.name) == "sbuf"]
    return any(
        inner.variable in (tile.variables or ()) and outer.variable not in (tile.variables or ())
        for tile in tiles
        if not any(inside(writer, outer) for writer in kernel.writers(tile.name))
    )


RULE = InterchangeLoops()
