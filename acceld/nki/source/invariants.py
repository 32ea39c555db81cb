"""Find the statements in a loop that give equal results in every iteration.

The proof uses dependences and the elements that accesses reach. A statement *stays* if it has to remain in the loop. A
buffer has a *place* for each iteration of a loop if one of its indices is exactly the loop's variable.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from acceld.nki.source.building import written
from acceld.nki.source.matching import one_name
from acceld.nki.source.nests import around, inside, place_of
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import TRANSFERS, Access, Loop, Statement, accesses, names_in

_MOVES = (*TRANSFERS, "memset")


@dataclass
class Invariants:
    """The loop-invariant statements of one loop, which could run once before the loop."""

    loop: Loop
    statements: list[Statement] = field(default_factory=list)
    """The loop-invariant statements, in order. They read nothing that the rest of the loop writes."""
    dropped: dict[str, int] = field(default_factory=dict)
    """The buffers of moved statements that lose their dimension over the loop's variable, each with the position of
    that index.
    """
    made: frozenset[str] = frozenset()
    """Names of the buffers and tiles that the moved statements write and the rest of the loop uses."""
    reasons: dict[Statement, str] = field(default_factory=dict)
    """The reason why a statement that does not use the loop's variable has to stay in the loop, by statement."""


def invariants(kernel: KernelModule, loop: Loop) -> Invariants:
    """Return the statements in ``loop`` that could run once before it, because neither their values nor their positions
    depend on the loop's variable.

    An index over the loop's variable is no dependence if it gives each iteration its own place in a buffer that only
    this loop uses. Before the loop, the buffer does not need that dimension.
    """
    found = Invariants(loop)
    ops = [statement for statement in loop.statements() if statement.kind == "op"]
    made = {access.name for s in ops for access in s.results}
    places = {name: place for name in made if (place := place_of(kernel, name, loop)) is not None}
    stay: dict[Statement, str] = {}
    reasons: dict[Statement, str] = {}
    for statement in loop.statements():
        if statement.kind == "other":
            stay[statement] = ""
        elif statement.kind == "op":
            reason = _stays(kernel, loop, statement, places)
            if reason is not None:
                (reasons if reason else stay)[statement] = reason
    # A statement that also depends on what changes with the loop would have to stay anyway, so its reason is not kept.
    _spread(ops, stay, lambda statement, held: "" if held & _names(statement) else None)
    stay = reasons | stay
    _spread(ops, stay, lambda statement, held: _held(kernel, loop, statement, held, stay))
    found.reasons = {statement: reason for statement, reason in stay.items() if reason}
    found.statements = [statement for statement in ops if statement not in stay]
    if not any(statement.op not in _MOVES for statement in found.statements):
        found.statements = []
    names = {s.target.name for s in found.statements if s.target is not None}
    found.dropped = {name: place for name, place in places.items() if name in names}
    kept = {access.name for s in loop.statements() if s not in found.statements for access in s.mentions}
    found.made = frozenset(names & {*found.dropped, *kept})
    return found


def _names(statement: Statement) -> set[str]:
    return {access.name for access in statement.mentions}


def _spread(
    ops: Sequence[Statement],
    stay: dict[Statement, str],
    reason_of: Callable[[Statement, set[str]], str | None],
) -> None:
    """Add to ``stay`` each of ``ops`` that has to stay in the loop because of statements that already stay, until no
    statement is added any more.

    ``reason_of`` gets a statement and the names of buffers that staying statements write. It returns the reason, or
    None if the statement may move.
    """
    changed = True
    while changed:
        changed = False
        held = {access.name for one in stay for access in one.results}
        held |= {access.name for one in stay if one.kind == "other" for access in one.mentions}
        for statement in ops:
            reason = None if statement in stay else reason_of(statement, held)
            if reason is not None:
                stay[statement] = reason
                changed = True


def _stays(kernel: KernelModule, loop: Loop, statement: Statement, places: dict[str, int]) -> str | None:
    """Return the reason why the form of a statement requires that it stays in the loop; None if it may move.

    The reason is the empty text if no change of the kernel would help, for example if the statement uses the
    loop's variable. ``places`` has the position of the index over the loop's variable, by buffer.
    """
    target = statement.target
    where = f"line {statement.line}"
    if (
        target is None
        or statement.second is not None
        or statement.op == "store"
        or kernel.space_of(target.name) == "hbm"
    ):
        return ""
    uses = sum(name.id == loop.variable for name in names_in(statement.node))
    dropped = {id(access.node) for access in accesses(statement) if access.name in places}
    if uses > len(dropped):
        return ""
    names = {name.id for name in names_in(statement.node)}
    tiles = {access.name for access in accesses(statement)}
    declaration = kernel.declaration(target.name)
    if declaration is not None and inside(declaration, loop):  # the declaration moves too
        sizes = {name.id for name in names_in(declaration.node)}
        if loop.variable in sizes:
            return ""
        names |= sizes
    if (names - tiles) & kernel.ambiguous:
        return ""  # an index whose name has another value outside of the loop
    named, varying = _named_inside(loop)
    used = names & named
    if used & varying:
        return ""
    if used:
        return f"the instruction in {where} uses an index that is named in the loop: define that index before the loop"
    if statement.augmented or statement.op == "loop_reduce":
        return ""
    if kernel.ambiguous & tiles:
        return one_name(kernel, tiles)
    if target.name in kernel.buffers and not inside(kernel.buffers[target.name].declaration, loop):
        if target.name not in places:
            return (
                f"{target.name}, which {where} writes, is declared before loop {loop.variable} and also used without the index "
                f"{loop.variable}: index it by {loop.variable} everywhere, or declare it in the loop"
            )
        indexed, loops = target.variables, around(statement)
        missing = {one.variable for one in loops[: loops.index(loop)]} - set(indexed or ())
        if indexed is None or missing:
            return (
                f"{target.name}, which {where} writes, has no element of its own for each iteration of "
                f"{', '.join(sorted(missing))}: add such an index"
            )
    return None


def _named_inside(loop: Loop) -> tuple[set[str], set[str]]:
    """Return (names that statements of the loop assign to something other than a tile, those of these names whose
    values may differ between iterations).
    """
    named: set[str] = set()
    varying = {loop.variable, *(inner.variable for inner in loop.loops())}
    for statement in loop.statements():
        if statement.kind in ("alias", "other"):
            names = names_in(statement.node)
            bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}
            named |= bound
            if any(name.id in varying for name in names):
                varying |= bound
    return named, varying & named


def _held(
    kernel: KernelModule, loop: Loop, statement: Statement, held: set[str], stay: dict[Statement, str]
) -> str | None:
    """Return the reason why a statement has to stay because of the statements in ``stay``; None if it may move.

    ``held`` has the names of buffers that staying statements write. The reason is the empty text if no change
    of the kernel would help.
    """
    name, where = statement.made.name, f"line {statement.line}"
    if held & _names(statement):
        return ""
    writers = kernel.writers(name)
    if name in held or any(not inside(writer, loop) for writer in writers):
        return f"{name} is written in {where} and in other lines: give the result of {where} a tile of its own"
    readers = [reader for reader in kernel.readers(name) if reader not in writers]
    staying = [reader for reader in readers if reader in stay or reader.kind != "op"]
    if statement.op in _MOVES and staying:
        return ""  # moving a load is the work of the rule hoist_loads
    local = name not in kernel.buffers or inside(kernel.buffers[name].declaration, loop)
    if local and staying and not _is_made_before(kernel, loop, statement, staying):
        return (
            f"{name} is made in {where} for line {staying[0].line}, which stays in the loop: make all of {name} in a loop of its "
            f"own before that line, and declare {name} in the body of loop {loop.variable}"
        )
    return None if readers else ""


def _is_made_before(kernel: KernelModule, loop: Loop, statement: Statement, readers: Sequence[Statement]) -> bool:
    """Tell whether the tile that ``statement`` writes is complete before ``readers`` read it in each iteration.

    The tile must be in SBUF and be declared in the loop's own body. Then the tile can be computed once, before the
    loop.
    """
    target, writers = statement.made, kernel.writers(statement.made.name)
    if kernel.space_of(target.name) != "sbuf" or not all(inside(one, loop) for one in kernel.readers(target.name)):
        return False
    if target.name in kernel.buffers:
        own = kernel.buffers[target.name].declaration.parent is loop
    else:
        own = target.dims is None and statement.parent is loop and writers == [statement]
    return own and max(_place(loop, one) for one in writers) < min(_place(loop, one) for one in readers)


def _place(loop: Loop, statement: Statement) -> int:
    """Return the position in the body of ``loop`` of the item that is or contains ``statement``; -1 if ``statement``
    is outside of the loop.
    """
    places = [at for at, item in enumerate(loop.items) if item is statement or item in around(statement)]
    return places[0] if places else -1


def same_values(kernel: KernelModule, loop: Loop) -> set[Statement]:
    """Return the statements in ``loop`` that compute or load the same values in every iteration.

    The positions to which they write may differ between iterations.
    """
    same: set[Statement] = set()
    changed = written([loop])
    for statement in loop.statements():
        opaque = statement.kind != "op" or statement.second is not None
        if opaque or statement.augmented or statement.op in ("loop_reduce", "store"):
            continue
        found = accesses(statement)
        uses = sum(name.id == loop.variable for name in names_in(statement.node))
        in_accesses = sum(name.id == loop.variable for access in found for name in names_in(access.node))
        if uses == in_accesses and all(_same(kernel, loop, access, changed, same) for access in statement.mentions):
            same.add(statement)
    return same


def _same(kernel: KernelModule, loop: Loop, access: Access, changed: set[str], same: set[Statement]) -> bool:
    if access.name in changed:
        return all(writer in same for writer in kernel.writers(access.name))
    return access.variables is not None and loop.variable not in access.variables
