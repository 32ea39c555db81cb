"""Two loop nests that hand a buffer over become one, so that the buffer need not outlive an iteration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acceld.model import Profile
from acceld.proposers.rules.building import (
    STEP,
    comments,
    depends_on,
    emitted,
    header,
    read,
    written,
)
from acceld.proposers.rules.profiles import spilled
from acceld.proposers.rules.reading import KernelModule
from acceld.proposers.rules.records import RuleRefused, Site, Variant
from acceld.proposers.rules.syntax import Access, Item, Loop, Statement, flatten, leading_comments

_DEEPEST = 4


@dataclass(frozen=True)
class _Split:
    """A nest taken apart by a loop variable: what does not depend on it, and the rest without its loop."""

    before: tuple[_Node, ...]
    inside: tuple[_Node, ...]


@dataclass(frozen=True)
class _Node:
    """A statement, or a loop header with new contents."""

    item: Item
    contents: tuple[_Node, ...] = ()


@dataclass(frozen=True)
class _Fusion:
    first: Loop
    second: Loop
    variable: Loop
    """The loop of the first nest that becomes the common one."""
    between: tuple[Item, ...]
    split: _Split
    buffers: tuple[str, ...]


class FuseNests:
    """Producer nest and consumer nest under one loop."""

    name = "fuse_nests"
    reason = (
        "On-chip memory holds 192 KiB a partition on trn1. What a nest produces for a later nest must survive the whole "
        "nest; beyond that size the compiler spills it to HBM and reloads it, at the DMA rate."
    )
    source = "AWS NKI architecture guide: SBUF size; neuron-profile spill_save_bytes and spill_reload_bytes"
    apis = frozenset({"nki_legacy"})
    change_class = "spill"

    def sites(self, kernel: KernelModule, profile: Profile | None) -> Sequence[Site]:
        """One site for each pair of nests."""
        spills = spilled(profile)
        found = []
        for fusion in _fusions(kernel):
            names = ", ".join(fusion.buffers)
            found.append(
                Site(
                    self.name,
                    fusion.second.line,
                    f"iteration {fusion.second.variable} of the second nest reads of {names} only what iteration "
                    f"{fusion.variable.variable} of the first wrote; the loops are parallel",
                    f"The nest at line {fusion.first.line} fills {names} completely before the nest at line "
                    f"{fusion.second.line} reads it. Make {fusion.variable.variable} the outer loop of both, so that a "
                    "part is consumed as soon as it is made: live ranges shrink, and with them spills and reloads.",
                    (Variant("deep", {"depth": _DEEPEST}), Variant("outer", {"depth": 1})),
                    0.6 if spills else 0.25,
                    (5.0, 50.0) if spills else (0.0, 15.0),
                    f"{fusion.first.line}",
                )
            )
        return found

    def apply(self, kernel: KernelModule, site: Site, variant: Variant) -> str:
        """Fuse, then fuse again inside the common loop as deep as the variant says."""
        source, common = kernel.source, 0
        current = kernel
        for depth in range(int(variant.parameters.get("depth", 1))):
            fusions = _fusions(current)
            if depth == 0:
                fusions = [f for f in fusions if f.second.line == site.line and f"{f.first.line}" == site.key]
            else:
                fusions = [f for f in fusions if _inside(f.first, common)]
            if not fusions:
                if depth == 0:
                    raise RuleRefused(f"line {site.line}: the nests can not be fused")
                break
            source, common = _fused(current, fusions[0])
            current = KernelModule(source, kernel.api, tuple(kernel.shapes.values()))
        return source


def _inside(loop: Loop, line: int) -> bool:
    parent = loop.parent
    while parent is not None:
        if parent.line == line:
            return True
        parent = parent.parent
    return False


def _bodies(kernel: KernelModule) -> list[list[Item]]:
    return [kernel.items, *(loop.items for loop in kernel.loops)]


def _fusions(kernel: KernelModule) -> list[_Fusion]:
    found = []
    for body in _bodies(kernel):
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
    if written([second]) & (read([first]) | written([first])) or _opaque([first, second, *between]):
        return None
    pairs = _handovers(kernel, first, second, shared)
    if not pairs:
        return None
    for loop in (first, *first.loops()):
        if loop.trips != second.trips or loop.trips is None or loop.kind != "affine_range":
            continue
        if not all(_matched(write, load, loop.variable, second.variable) for write, load in pairs):
            continue
        split = _split(kernel, first, loop)
        if split is None:
            continue
        inside = {
            node.item.target.name
            for node in _leaves(split.inside)
            if isinstance(node.item, Statement) and node.item.target
        }
        if read(between) & inside or written(between) & (written([first]) | read([first])):
            continue
        return _Fusion(first, second, loop, between, split, shared)
    return None


def _opaque(items: Sequence[Item]) -> bool:
    return any(statement.kind == "other" for statement in flatten(items))


def _handovers(
    kernel: KernelModule, first: Loop, second: Loop, shared: Sequence[str]
) -> list[tuple[Access, Access]] | None:
    """Every (write, read) of the shared buffers; None where one is not a plain access of a declared buffer."""
    pairs = []
    for name in shared:
        if name not in kernel.buffers:
            return None
        writes = [
            s.target for s in first.statements() if s.target is not None and s.target.name == name and s.kind == "op"
        ]
        reads = [a for s in second.statements() for a in s.mentions if a.name == name]
        pairs += [(write, one) for write in writes for one in reads]
    return pairs


def _matched(write: Access, load: Access, ours: str, theirs: str) -> bool:
    """Whether some index is exactly ``ours`` in the write and exactly ``theirs`` in the read."""
    if write.dims is None or load.dims is None or len(write.dims) != len(load.dims):
        return False
    for a, b in zip(write.dims, load.dims, strict=True):
        if a.form is None or b.form is None or a.extent is not None or b.extent is not None:
            continue
        plain = a.form.constant == 0 and len(a.form.terms) == 1 and a.form.coefficient(ours) == 1
        if plain and a.form.renamed({ours: theirs}) == b.form:
            return True
    return False


def _split(kernel: KernelModule, nest: Loop, loop: Loop) -> _Split | None:
    """``nest`` without ``loop``, or None where that could change what is computed."""
    variable = loop.variable
    if any(one is not loop and one.variable == variable for one in (nest, *nest.loops())):
        return None
    split = _take_apart([nest], loop, frozenset({variable}))
    before, inside = split.before, split.inside
    made_inside = {
        node.item.target.name for node in _leaves(inside) if isinstance(node.item, Statement) and node.item.target
    }
    for node, around in _leaves_with_loops(before, ()):
        statement = node.item
        assert isinstance(statement, Statement)
        if statement.kind == "marker":
            continue
        if {access.name for access in statement.mentions} & made_inside or statement.augmented:
            return None
        if statement.op == "loop_reduce" or statement.target is None:
            return None
        names = statement.target.variables
        if names is None or statement.target.name not in kernel.buffers:
            return None
        if not set(around) <= set(names) or statement.kind == "declaration":
            return None
        declared = kernel.buffers[statement.target.name].declaration
        if declared.parent is not None and _within(declared.parent, nest):
            return None
    return split


def _within(loop: Loop, nest: Loop) -> bool:
    one: Loop | None = loop
    while one is not None:
        if one is nest:
            return True
        one = one.parent
    return False


def _take_apart(items: Sequence[Item], loop: Loop, variables: frozenset[str]) -> _Split:
    before: list[_Node] = []
    inside: list[_Node] = []
    for item in items:
        if isinstance(item, Statement):
            dependent = depends_on(item, variables) or item.kind in ("declaration", "marker")
            (inside if dependent else before).append(_Node(item))
            continue
        inner = _take_apart(item.items, loop, _local(item.items, variables))
        if item is loop:
            before += inner.before
            inside += inner.inside
            continue
        if _substance(inner.before):
            before.append(_Node(item, inner.before))
        if _substance(inner.inside):
            inside.append(_Node(item, inner.inside))
    return _Split(tuple(before), tuple(inside))


def _local(items: Sequence[Item], variables: frozenset[str]) -> frozenset[str]:
    """``variables`` and the names of tiles in ``items`` that are made from them."""
    names = set(variables)
    for statement in (item for item in items if isinstance(item, Statement)):
        target = statement.target
        if target is None:
            continue
        if statement.kind == "declaration" or (target.dims is None and depends_on(statement, frozenset(names))):
            names.add(target.name)
    return frozenset(names)


def _substance(nodes: Sequence[_Node]) -> bool:
    return any(isinstance(node.item, Statement) and node.item.kind != "marker" for node in _leaves(nodes))


def _leaves(nodes: Sequence[_Node]) -> list[_Node]:
    return [node for node, _ in _leaves_with_loops(nodes, ())]


def _leaves_with_loops(nodes: Sequence[_Node], around: tuple[str, ...]) -> list[tuple[_Node, tuple[str, ...]]]:
    found = []
    for node in nodes:
        if isinstance(node.item, Loop):
            found += _leaves_with_loops(node.contents, (*around, node.item.variable))
        else:
            found.append((node, around))
    return found


def _fused(kernel: KernelModule, fusion: _Fusion) -> tuple[str, int]:
    """The new source, and the line of the common loop."""
    first, second = fusion.first, fusion.second
    indent = first.indent
    renames = {second.variable: fusion.variable.variable} if second.variable != fusion.variable.variable else {}
    if renames and any(loop.variable == fusion.variable.variable for loop in second.loops()):
        raise RuleRefused(f"line {second.line}: the name {fusion.variable.variable} is taken in the second nest")
    head = _written(kernel, fusion.split.before, indent) + emitted(kernel, fusion.between, indent)
    body = (
        comments(kernel, fusion.variable, indent)
        + f"{indent}{header(kernel, fusion.variable)}\n"
        + _written(kernel, fusion.split.inside, indent + STEP, fusion.variable.variable)
        + comments(kernel, second, indent + STEP)
        + emitted(kernel, second.items, indent + STEP, renames, fusion.variable.variable)
    )
    start = kernel.source.rfind("\n", 0, first.start) + 1
    start = _above_comments(kernel, first, start)
    end = kernel.source.find("\n", second.end)
    end = len(kernel.source) if end < 0 else end + 1
    source = kernel.source[:start] + head + body + kernel.source[end:]
    line = source[: start + len(head)].count("\n") + 1 + comments(kernel, fusion.variable, indent).count("\n")
    return source, line


def _above_comments(kernel: KernelModule, item: Item, start: int) -> int:
    """Start of the comment lines directly above ``item``, which move with it."""
    for line in reversed(leading_comments(item)):
        if line is None:
            break
        start = kernel.source.rfind("\n", 0, start - 1) + 1
    return start


def _written(kernel: KernelModule, nodes: Sequence[_Node], indent: str, around: str = "") -> str:
    pieces = []
    for node in nodes:
        if isinstance(node.item, Loop):
            pieces.append(comments(kernel, node.item, indent))
            pieces.append(f"{indent}{header(kernel, node.item)}\n")
            pieces.append(_written(kernel, node.contents, indent + STEP, node.item.variable))
        else:
            pieces.append(emitted(kernel, [node.item], indent, None, around))
    return "".join(pieces)


RULE = FuseNests()
