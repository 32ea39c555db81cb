"""Fuse two loop nests, one that makes a buffer and one that reads it, so that the buffer has to last only for an
iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.source.building import STEP, comments, depends_on, emitted, header, read, written
from acceld.nki.source.effects import understood
from acceld.nki.source.nests import around, first_line, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.splitting import split_loop
from acceld.nki.source.syntax import Access, Item, Loop, Statement, names_in
from acceld.proposers.rules.profiles import spilled
from acceld.proposers.rules.records import Place, Rule, Variant

_DEEPEST = 4


@dataclass(frozen=True)
class _Fusion:
    first: Loop
    second: Loop
    variable: Loop
    """The loop of the first nest that becomes the common loop of both."""
    between: tuple[Item, ...]
    before: frozenset[Statement]
    """Statements of the first nest that do not depend on the common loop."""
    buffers: tuple[str, ...]
    factor: int = 1
    """Number of iterations of the second nest for each iteration of the common loop."""


class FuseNests(Rule):
    """Put the loop nest that makes a buffer and the nest that reads the buffer under one common loop."""

    name = "fuse_nests"
    reason = (
        "On-chip memory holds 192 KiB a partition on trn1. What a nest produces for a later nest must survive the whole "
        "nest; beyond that size the compiler spills it to HBM and reloads it, at the DMA rate."
    )
    source = "AWS NKI architecture guide: SBUF size; neuron-profile spill_save_bytes and spill_reload_bytes"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "spill"
    relieves = ("dma",)

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every pair of nests that can be fused."""
        spills = spilled(profile)
        for fusion in _fusions(kernel):
            first, second = fusion.first, fusion.second
            names = ", ".join(fusion.buffers)
            yield self.found(
                second.line,
                partial(_fused_deep, kernel, fusion),
                Variant("deep", {"depth": _DEEPEST}),
                Variant("all but the innermost", {"depth": _DEEPEST, "less": 1}),
                Variant("outer", {"depth": 1}),
                precondition=f"each iteration {second.variable} of the second nest reads only that part of {names} which the "
                f"matching iteration {fusion.variable.variable} of the first nest wrote; the iterations of each loop are independent",
                plan=f"The nest at line {first.line} fills {names} completely before the nest at line {second.line} reads "
                f"it. Make {fusion.variable.variable} the outer loop of both, so that a part is consumed as soon as it is "
                "made: live ranges shrink, and with them spills and reloads.",
                benefit=0.6 if spills else 0.25,
                gain_percent=(5.0, 50.0) if spills else (0.0, 15.0),
                key=f"{first.line}",
            )


def _fused_deep(kernel: KernelModule, fusion: _Fusion, variant: Variant) -> str:
    """Return the source with the nests fused, then fused again inside the common loop as deep as the variant says.

    With ``less``, the innermost loops stay separate, so that one engine can start the next part while another finishes
    the last.
    """
    source, common = _fused(*_even(kernel, fusion))
    sources = [source]
    for _ in range(int(variant.parameters["depth"]) - 1):
        current = kernel.reread(source)
        deeper = [one for one in _fusions(current) if any(loop.line == common for loop in around(one.first))]
        if not deeper:
            break
        source, common = _fused(*_even(current, deeper[0]))
        sources.append(source)
    return sources[max(0, len(sources) - 1 - int(variant.parameters.get("less", 0)))]


def _fusions(kernel: KernelModule) -> list[_Fusion]:
    found = []
    for body in kernel.bodies:
        loops = [(i, item) for i, item in enumerate(body) if isinstance(item, Loop)]
        for number, (i, first) in enumerate(loops):
            for j, second in loops[number + 1 :]:
                fusion = _fusion(kernel, first, second, tuple(body[i + 1 : j]))
                if fusion is not None:
                    found.append(fusion)
    return found


def _fusion(kernel: KernelModule, first: Loop, second: Loop, between: tuple[Item, ...]) -> _Fusion | None:
    shared = tuple(sorted(written([first]) & read([second])))
    if kernel.ambiguous & {*shared, *written([first, second])}:
        return None
    if not shared or second.kind != "affine_range":
        return None
    if written([second]) & (read([first]) | written([first])) or understood([first, second, *between], names=True):
        return None
    pairs = _handovers(kernel, first, second, shared)
    if not pairs or second.trips is None:
        return None
    for loop in (first, *first.loops()):
        if loop.kind != "affine_range" or not loop.trips or second.trips % loop.trips:
            continue
        factor = second.trips // loop.trips
        if factor > 1 and (loop is not first or not _divisible(second)):
            continue
        if not all(_matched(write, load, loop, second, factor) for write, load in pairs):
            continue
        before = _before(kernel, first, loop)
        if before is None:
            continue
        made = _made(set(first.statements()) - before)
        if read(between) & made or written(between) & (written([first]) | read([first])):
            continue
        return _Fusion(first, second, loop, between, before, shared, factor)
    return None


@dataclass(frozen=True)
class _Use:
    """An access, with the number of iterations of each loop around it."""

    access: Access
    trips: Mapping[str, int | None]


def _handovers(
    kernel: KernelModule, first: Loop, second: Loop, shared: Sequence[str]
) -> list[tuple[_Use, _Use]] | None:
    """Return a pair (write, read) for each use of the ``shared`` buffers in both nests; None if any use is not a plain
    access of a declared buffer.
    """
    pairs = []
    for name in shared:
        if name not in kernel.buffers:
            return None
        writes = [
            _use(s, access) for s in first.statements() if s.kind == "op" and (access := s.result(name)) is not None
        ]
        reads = [_use(s, a) for s in second.statements() for a in s.mentions if a.name == name]
        pairs += [(write, one) for write in writes for one in reads]
    return pairs


def _use(statement: Statement, access: Access) -> _Use:
    return _Use(access, {loop.variable: loop.trips for loop in around(statement)})


def _divisible(loop: Loop) -> bool:
    """Return True if a loop can be split into groups of iterations: no reduction names its variable."""
    reductions = [s.args["loop_indices"] for s in loop.statements() if "loop_indices" in s.args]
    return loop.trips != 1 and not any(n.id == loop.variable for node in reductions for n in names_in(node))


def _matched(write: _Use, load: _Use, ours: Loop, theirs: Loop, factor: int) -> bool:
    """Return True if what an iteration of the first loop writes is read only in the matching iterations of the second
    loop.

    This holds if in one dimension the index of the write and the index of the load are both ``c * i + r`` with
    0 <= r < c, where ``i`` is the iteration and ``c`` a constant.
    """
    dims = write.access.dims, load.access.dims
    if dims[0] is None or dims[1] is None or len(dims[0]) != len(dims[1]):
        return False
    for a, b in zip(dims[0], dims[1], strict=True):
        if a.form is None or b.form is None:
            continue
        step, other = a.form.coefficient(ours.variable), b.form.coefficient(theirs.variable)
        if not step or not other or step < 0 or other * factor != step:
            continue
        first, second = a.reach(write.trips, ours.variable), b.reach(load.trips, theirs.variable)
        if first is None or second is None:
            continue
        second = (second[0], second[1] + other * (factor - 1))
        if max(first[1], second[1]) - min(first[0], second[0]) < step:
            return True
    return False


def _before(kernel: KernelModule, nest: Loop, loop: Loop) -> frozenset[Statement] | None:
    """Return the statements of ``nest`` that must run before ``loop`` when ``loop`` becomes the outermost loop; None if
    this change of the loops' order could change results.
    """
    if any(one is not loop and one.variable == loop.variable for one in (nest, *nest.loops())):
        return None
    before = frozenset(_independent([nest], frozenset({loop.variable})))
    made_inside = _made(set(nest.statements()) - before)
    for statement in before:
        if {access.name for access in statement.mentions} & made_inside or statement.augmented:
            return None
        if statement.op == "loop_reduce" or statement.target is None:
            return None
        variables = {one.variable for one in around(statement) if inside(statement, nest) and one is not loop}
        variables &= {one.variable for one in (nest, *nest.loops())}
        for result in statement.results:
            names = result.variables
            if names is None or result.name not in kernel.buffers or not variables <= names:
                return None
            if inside(kernel.buffers[result.name].declaration, nest):
                return None
    return before


def _independent(items: Sequence[Item], variables: frozenset[str]) -> Iterator[Statement]:
    """Yield the statements that depend neither on ``variables`` nor on tiles made from them in the same body."""
    for item in items:
        if isinstance(item, Loop):
            yield from _independent(item.items, _local(item.items, variables))
        elif not depends_on(item, variables) and item.kind not in ("declaration", "marker"):
            yield item


def _local(items: Sequence[Item], variables: frozenset[str]) -> frozenset[str]:
    """Return ``variables`` together with the names of all tiles in ``items`` that depend on them."""
    names = set(variables)
    for statement in (item for item in items if isinstance(item, Statement)):
        depends = statement.kind == "declaration" or depends_on(statement, frozenset(names))
        names |= {
            result.name
            for result in statement.results
            if statement.kind == "declaration" or (result.dims is None and depends)
        }
    return frozenset(names)


def _made(statements: Iterable[Statement]) -> set[str]:
    """Return the names that statements write or declare."""
    return {one.name for statement in statements for one in statement.results}


def _even(kernel: KernelModule, fusion: _Fusion) -> tuple[KernelModule, _Fusion]:
    """Return the kernel with the second nest split, so that its loop has as many iterations as the common loop, and the
    fusion in this kernel.
    """
    if fusion.factor == 1:
        return kernel, fusion
    even, _ = split_loop(kernel, fusion.second, fusion.factor)
    for one in _fusions(even):
        if (one.first.line, one.second.line, one.factor) == (fusion.first.line, fusion.second.line, 1):
            return even, one
    raise RuleRefused(
        f"line {fusion.second.line}: the nests can not be fused, because an iteration of the second nest uses more than one part of what the first nest wrote: let each iteration use only its own part"
    )


def _fused(kernel: KernelModule, fusion: _Fusion) -> tuple[str, int]:
    """Return the fused source, and the line of the common loop."""
    first, second = fusion.first, fusion.second
    indent = first.indent
    renames = {second.variable: fusion.variable.variable} if second.variable != fusion.variable.variable else {}
    if renames and any(loop.variable == fusion.variable.variable for loop in second.loops()):
        raise RuleRefused(
            f"line {second.line}: the name {fusion.variable.variable} is taken in the second nest: use another name"
        )
    flat, inner = {fusion.variable.variable}, set(first.statements()) - fusion.before
    head = emitted(kernel, [first], indent, keep=fusion.before, flat=flat) + emitted(kernel, fusion.between, indent)
    body = (
        comments(kernel, fusion.variable, indent)
        + f"{indent}{header(kernel, fusion.variable)}\n"
        + emitted(kernel, [first], indent + STEP, None, fusion.variable.variable, keep=inner, flat=flat)
        + comments(kernel, second, indent + STEP)
        + emitted(kernel, second.items, indent + STEP, renames, fusion.variable.variable)
    )
    start, end = first_line(kernel, first), kernel.after_line(second.end)
    source = kernel.source[:start] + head + body + kernel.source[end:]
    line = source[: start + len(head)].count("\n") + 1 + comments(kernel, fusion.variable, indent).count("\n")
    return source, line


RULE = FuseNests()
