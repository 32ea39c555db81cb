"""Let the inner of two parallel loops run in groups, and move the loop over groups outside, so that the data of a
group stays in SBUF for reuse.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits, reindent
from acceld.model import Profile
from acceld.nki.source.building import STEP
from acceld.nki.source.effects import one_result, parallel, same_range, understood
from acceld.nki.source.invariants import same_values
from acceld.nki.source.matching import one_name
from acceld.nki.source.nests import (
    SBUF_BYTES,
    all_accesses,
    inside,
    kept_bytes,
    substance,
)
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.splitting import Split, substitute
from acceld.nki.source.syntax import Access, Item, Loop, Statement, flatten, names_in
from acceld.proposers.rules.nki.hoist_work import hoisted
from acceld.proposers.rules.profiles import reloads
from acceld.proposers.rules.records import Place, Rule, Variant


@dataclass(frozen=True)
class _Nest:
    """Two loops, written ``for outer: preparation; for inner: body``."""

    outer: Loop
    inner: Loop
    preparation: tuple[Item, ...]
    prepared_bytes: int
    """Bytes in each partition that the preparation of one outer iteration keeps."""
    row_bytes: int
    """Bytes in each partition of the tiles that one inner iteration uses with the same values in every outer
    iteration.
    """
    groups: tuple[int, ...]
    """Group sizes to try, best first."""


class GroupIterations(Rule):
    """Turn ``for a: for b`` into ``for group of b: for a: for b in group``."""

    name = "group_iterations"
    reason = (
        "On-chip memory holds 192 KiB a partition on trn1. Tiles that an inner loop uses in every outer iteration are "
        "loaded or computed again each time if they do not fit. A group that fits stays for all outer iterations."
    )
    source = (
        "AWS NKI architecture guide: SBUF size; NKI matrix multiplication tutorial: blocking of the free dimensions"
    )
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "loop_order"
    relieves = ("dma",)

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield the pairs of loops whose inner loop uses more data than SBUF holds, with the reason if groups can not
        be outermost.
        """
        again = reloads(profile)
        for outer, inner in _pairs(kernel):
            nest = _nest(kernel, outer, inner)
            if isinstance(nest, str):
                yield self.refused(outer.line, nest, f"Make groups of {inner.variable} the outer loop", inner.variable)
            elif nest is not None:
                total, groups = nest.row_bytes * (inner.trips or 1), " or ".join(map(str, nest.groups))
                yield self.found(
                    outer.line,
                    partial(_regrouped, kernel, nest),
                    *(Variant(f"groups of {size}", {"size": size}) for size in nest.groups),
                    precondition=f"both loops are parallel, what is made in {outer.variable} before {inner.variable} "
                    "depends on inputs only, and nothing is carried from one iteration to the next",
                    plan=f"Every iteration of {outer.variable} goes through all {inner.trips} iterations of "
                    f"{inner.variable}, which together use {total >> 10} KiB a partition besides the "
                    f"{nest.prepared_bytes >> 10} KiB of {outer.variable}: more than SBUF holds. Take {inner.variable} in "
                    f"groups of {groups} and make the groups the outer loop, so that a group stays on chip for all "
                    f"iterations of {outer.variable}.",
                    benefit=0.5 if again else 0.2,
                    gain_percent=(5.0, 40.0) if again else (0.0, 20.0),
                    key=inner.variable,
                )


def _regrouped(kernel: KernelModule, nest: _Nest, variant: Variant) -> str:
    """Return the source with groups of the variant's size outermost. Work that is the same in all iterations of the
    nest's outer loop moves out of that loop, into the loop over groups.
    """
    source, line = _grouped(kernel, nest, int(variant.parameters["size"]))
    regrouped = kernel.reread(source)
    return hoisted(regrouped, next(loop for loop in regrouped.loops if loop.line == line))


def _pairs(kernel: KernelModule) -> list[tuple[Loop, Loop]]:
    """Return every pair (outer loop, inner loop) whose inner loop is the last item in the outer loop's body."""
    found = []
    for outer in kernel.loops:
        items = [item for item in outer.items if substance([item])]
        if items and isinstance(items[-1], Loop):
            found.append((outer, items[-1]))
    return found


def _nest(kernel: KernelModule, outer: Loop, inner: Loop) -> _Nest | str | None:
    """Return the two loops as a nest; None if regrouping would gain nothing. If the loops can not be regrouped, return
    the reason as text.
    """
    if outer.trips is None or inner.trips is None or inner.trips < 4 or outer.trips < 2:
        return None
    preparation = tuple(outer.items[: outer.items.index(inner)])
    prepared = [
        (s, s.target)
        for s in flatten(preparation)
        if s.kind == "op" and s.target is not None and kernel.space_of(s.target.name) == "sbuf"
    ]
    prepared_bytes = kept_bytes(kernel, prepared, outer)
    row_bytes = kept_bytes(kernel, _reused(kernel, outer, inner), inner)
    if not row_bytes or prepared_bytes is None or prepared_bytes + row_bytes * inner.trips <= SBUF_BYTES:
        return None
    obstacle = _obstacle(kernel, outer, inner, preparation)
    if obstacle:
        return obstacle
    sizes = [size for size in range(2, inner.trips) if inner.trips % size == 0 and size * row_bytes <= SBUF_BYTES]
    if not sizes:
        return f"line {inner.line}: no group of {inner.variable} fits, as one iteration takes {row_bytes >> 10} KiB: make its tiles smaller"
    fitting = [size for size in sizes if prepared_bytes + size * row_bytes <= SBUF_BYTES]
    groups = [*reversed(fitting), *(size for size in sizes if size not in fitting)][:3]
    return _Nest(outer, inner, preparation, prepared_bytes, row_bytes, tuple(groups))


def _reused(kernel: KernelModule, outer: Loop, inner: Loop) -> list[tuple[Statement, Access]]:
    """Return those reads of SBUF tiles in the inner loop that depend on the inner loop's variable, but not on the
    outer loop's variable.
    """
    same = same_values(kernel, outer)
    written = {result.name for s in outer.statements() if s.kind == "op" for result in s.results}
    made = {s.target.name for s in same if s.target is not None and inside(s, inner)}
    found = []
    for statement in inner.statements():
        if statement.kind != "op" or statement in same:
            continue
        for access in statement.mentions:
            if kernel.space_of(access.name) != "sbuf" or access.variables is None:
                continue
            if access.name in written:
                if access.name in made and all(w in same for w in kernel.writers(access.name)):
                    found.append((statement, access))
            elif inner.variable in access.variables and outer.variable not in access.variables:
                found.append((statement, access))
    return found


def _obstacle(kernel: KernelModule, outer: Loop, inner: Loop, preparation: Sequence[Item]) -> str:
    """Return the reason why groups of the inner loop can not be outermost; empty if they can."""
    problem = parallel((outer, inner)) or understood([outer], names=True) or one_result(outer.statements())
    for loop in outer.loops():
        problem = problem or same_range(loop, (outer.variable, inner.variable))
        if not problem and loop is not inner and loop.variable == inner.variable:
            return f"line {loop.line}: another loop is called {loop.variable} too: give it another name"
    problem = problem or one_name(kernel, {access.name for one in outer.statements() for access in one.mentions})
    if problem:
        return problem
    written = {result.name for s in inner.statements() if s.kind == "op" for result in s.results}
    for statement in flatten(preparation):
        problem = _unrepeatable(kernel, outer, statement, written)
        if problem:
            return f"line {statement.line}: {problem}"
    for statement in inner.statements():
        problem = _carried(kernel, outer, inner, statement) if statement.kind == "op" else ""
        if problem:
            return f"line {statement.line}: {problem}"
    return ""


def _unrepeatable(kernel: KernelModule, outer: Loop, statement: Statement, written: set[str]) -> str:
    """Return the reason why a statement before the inner loop can not be repeated for every group; empty if it can."""
    target = statement.target
    if statement.kind != "op" or target is None:
        return ""
    if statement.op == "store" or kernel.space_of(target.name) == "hbm":
        return "the store would be repeated for every group: store after the inner loop"
    if statement.augmented or statement.op == "loop_reduce":
        return f"{target.name} is a running sum, and repeating the statement would add twice: add in the inner loop"
    if written & {target.name, *(access.name for access in statement.mentions)}:
        return "this statement uses a tile that the inner loop writes: move it after the inner loop"
    found = all_accesses(kernel, target.name)
    if found is None or not all(inside(one, outer) for one, _ in found):
        return f"{target.name} is also used outside of the loops: use another tile there"
    return ""


def _carried(kernel: KernelModule, outer: Loop, inner: Loop, statement: Statement) -> str:
    """Return the reason why a statement of the inner loop depends on the order of iterations; empty if it does not."""
    target = statement.target
    if target is None:
        return ""
    name = target.name
    if kernel.space_of(name) == "hbm":
        return (
            f"{name} is in HBM, and the loops that store to it also read it: read it after the loops, or keep the value in SBUF"
            if any(inside(reader, outer) for reader in kernel.readers(name))
            else ""
        )
    if statement.op == "loop_reduce" and any(
        node.id == inner.variable for node in names_in(statement.args.get("loop_indices", statement.node))
    ):
        return f"{name} is reduced over {inner.variable} by loop_reduce: move the loop_reduce to a loop of its own"
    declaration = kernel.declaration(name)
    if declaration is None or inside(declaration, inner):
        used = [*kernel.readers(name), *kernel.writers(name)]
        return (
            ""
            if all(inside(one, inner) for one in used)
            else f"{name} is made in the loop over {inner.variable} and used outside of it: declare it before both loops, with one tile for each iteration"
        )
    names = target.variables
    needed = (
        {inner.variable} if statement.augmented or statement.op == "loop_reduce" else {inner.variable, outer.variable}
    )
    if inside(declaration, outer):
        needed = {inner.variable}
    if names is None or not needed <= set(names):
        return f"{name} is shared by iterations of {' and '.join(sorted(needed))}: index it by {' and '.join(sorted(needed))}"
    return ""


def _grouped(kernel: KernelModule, nest: _Nest, size: int) -> tuple[str, int]:
    """Return the source with the loops nested as ``for group: for outer: for member of group``, and the line of
    ``outer``.
    """
    outer, inner = nest.outer, nest.inner
    group, member = kernel.fresh(f"{inner.variable}_group"), kernel.fresh(f"{inner.variable}_in_group")
    edits = Edits(kernel.source)
    count = kernel.text(inner.node.iter).rsplit("(", 1)[0]
    edits.replace(*kernel.span(inner.node.target), member)
    assert isinstance(inner.node.iter, ast.Call)
    edits.replace(*kernel.span(inner.node.iter.args[0]), str(size))
    substitute(kernel, inner, Split(inner.variable, group, member, size), edits)
    made = {s.target.name for s in flatten(nest.preparation) if s.target is not None and s.kind == "op"}
    moved = [
        buffer.declaration
        for name, buffer in kernel.buffers.items()
        if name in made and not inside(buffer.declaration, outer)
    ]
    for declaration in moved:
        edits.delete_lines(declaration.start, declaration.end)
    before, block, after = edits.apply_around(kernel.line_start(outer.start), kernel.after_line(outer.end))
    indent = outer.indent + STEP
    head = f"{outer.indent}for {group} in {count}({(inner.trips or 1) // size}):\n"
    for declaration in moved:
        text = kernel.source[declaration.start : declaration.end]
        head += indent + reindent(text, declaration.indent, indent) + "\n"
    return before + head + reindent(block, outer.indent, indent) + after, (before + head).count("\n") + 1


RULE = GroupIterations()
