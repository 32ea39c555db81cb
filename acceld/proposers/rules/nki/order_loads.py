"""Load first what is needed first: move loads down to the first work that needs them.

Transfers start in the order of the source. Before, the transfer of ``rows`` waits until all of ``w`` is loaded. After,
``rows`` is loaded first::

    for k in nl.affine_range(8):                  nisa.dma_copy(dst=rows, src=x[0:128, :])
        nisa.dma_copy(dst=tiles[:, k, :],         nisa.activation(dst=scaled, op=nl.exp, data=rows)
                      src=w[k * 128: ..., :])     for k in nl.affine_range(8):
    nisa.dma_copy(dst=rows, src=x[0:128, :])          nisa.dma_copy(dst=tiles[:, k, :], src=w[k * 128: ..., :])
    nisa.activation(dst=scaled, op=nl.exp,        for m in nl.sequential_range(15):
                    data=rows)                        ...
    for m in nl.sequential_range(15):
        ...

Likewise in the body of a loop, whose first products may wait until all tiles of the iteration are loaded and made.

If the products need only some columns of each tile at a time, the loads can also run in parts of 512 columns: the first
part of all tiles is loaded first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from acceld.editing import Edits, reindent
from acceld.model import Profile
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import STEP, changed, comments, header, read, written
from acceld.nki.source.effects import understood, undisturbed
from acceld.nki.source.matching import one_name
from acceld.nki.source.nests import around, first_line
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix, span
from acceld.nki.source.syntax import (
    LOADS,
    PRODUCTS,
    Access,
    Item,
    Loop,
    Statement,
    accesses,
    elements,
    flatten,
    names_in,
)
from acceld.proposers.rules.nki.column_steps import ANY_COLUMNS
from acceld.proposers.rules.profiles import awaited_share, start_share
from acceld.proposers.rules.records import Place, Rule, Variant

_COLUMNS = 512
"""Columns of a part: as many as a product takes at once."""


@dataclass(frozen=True)
class _Early:
    """Loads that run too early: before the loads of other work that uses its tiles sooner."""

    group: tuple[Item, ...]
    """The loads, and the work right below them that uses the loaded tiles, in the order of the source."""
    passed: tuple[Item, ...]
    """The items between the group and its first user."""
    user: Item
    """The first item after the group that the group may not pass."""


class OrderLoads(Rule):
    """Move loads down to their first user, behind the loads of other work."""

    name = "order_loads"
    reason = (
        "DMA engines take transfers in the order of the source, and no engine starts before its first operands are there. "
        "What is needed later should be loaded later."
    )
    source = "AWS NKI performance guide: overlapping data movement with compute; profiles of public kernels on trn2: queues are in order"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "dma"
    everywhere = True

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield each load, or loop with loads, that runs too early: before the loads of other work in the same body that
        precedes its own first user.
        """
        for at, item in ((at, item) for body in kernel.bodies for at, item in enumerate(body)):
            early = _early(kernel, kernel.beside(item), at) if _loads(kernel, [item]) else None
            if early is None:
                continue
            names = ", ".join(sorted(written(early.group)))
            user = early.user.line
            parts = [Variant(f"in parts of {_COLUMNS} columns", {"columns": _COLUMNS})] if _parts(kernel, early) else []
            yield self.answer(
                item.line,
                _obstacle(kernel, early),
                f"Load {names} right before line {user}",
                partial(_moved, kernel, early),
                *parts,
                Variant("later"),
                precondition=f"no statement before line {user} reads or writes the tiles {names}, or writes the data from which "
                "they are made",
                plan=f"Line {item.line} loads {names}, which line {user} is the first to use. Load the tiles that earlier "
                f"lines use first, and {names} after them.",
                benefit=_benefit(profile, early),
                gain_percent=(0.0, 10.0),
            )


def _loads(kernel: KernelModule, items: Sequence[Item]) -> bool:
    """Return True if ``items`` load a tile from HBM."""
    return any(
        one.op in LOADS and one.target is not None and kernel.space_of(one.target.name) != "hbm"
        for one in flatten(items)
    )


def _benefit(profile: Profile | None, early: _Early) -> float:
    """Return the share of the latency (0 to 1) for which the busiest engine may wait less.

    It may wait less for the loads before its first work; in a loop's body, it may wait less in each iteration for the
    work that the loads pass.
    """
    if early.group[0].parent is None:
        return max(0.01, start_share(profile, {one.line for one in flatten(early.group)}, "dma"))
    return max(0.01, awaited_share(profile, {one.line for one in flatten(early.passed)}))


def _early(kernel: KernelModule, items: Sequence[Item], at: int) -> _Early | None:
    """Return the loads of item number ``at`` of a body with their first user; None if no work between the two has loads
    of its own.
    """
    end = at + 1
    while end < len(items) and undisturbed(items[at:end], items[end : end + 1]) and _is_simple(kernel, items[end]):
        end += 1
    group = tuple(items[at:end])
    for place in range(end, len(items)):
        if undisturbed(group, [items[place]]):
            passed = tuple(items[end:place])
            is_less = items[at].parent is not None and _loaded(kernel, group) <= _loaded(kernel, passed)
            return _Early(group, passed, items[place]) if _is_awaited(kernel, passed) and not is_less else None
    return None


def _loaded(kernel: KernelModule, items: Sequence[Item]) -> int:
    """Return the number of elements that ``items`` load in one iteration of the loop around them; loads of unknown size
    count as nothing.
    """
    found = 0
    for one in flatten(items):
        shape = kernel.extents(one.made) if _loads(kernel, [one]) else None
        between = [loop for loop in around(one) if loop not in around(items[0])]
        if shape is not None:
            found += prod(shape) * prod(loop.trips or 1 for loop in between)
    return found


def _is_awaited(kernel: KernelModule, items: Sequence[Item]) -> bool:
    """Return True if an item among ``items`` uses what an earlier item among them loads."""
    return any(
        _loads(kernel, [one]) and any(written([one]) & read([later]) for later in items[at + 1 :])
        for at, one in enumerate(items)
    )


def _is_simple(kernel: KernelModule, item: Item) -> bool:
    """Return True if an item only makes tiles by element-wise work, without loads and without products."""
    return all(
        one.kind == "op"
        and one.op not in PRODUCTS
        and one.op in ANY_COLUMNS
        and kernel.space_of(one.made.name) != "hbm"
        for one in flatten([item])
    ) and not _loads(kernel, [item])


def _obstacle(kernel: KernelModule, early: _Early) -> str:
    """Return the reason why the loads can not move down; empty if they can."""
    problem = understood(early.group) or understood(early.passed, names=True)
    problem = problem or one_name(kernel, written(early.group) | read(early.group))
    if problem:
        return problem
    named = {name.id for one in flatten(early.group) for name in names_in(one.node)}
    for one in flatten(early.passed):
        bound = {name.id for name in names_in(one.node) if isinstance(name.ctx, ast.Store)} & named
        if one.kind == "alias" and bound:
            return f"line {one.line} gives {min(bound)} another value: use another name there"
    stored = sorted(name for name in written(early.group) if kernel.space_of(name) == "hbm")
    return f"line {early.group[0].line} also stores {stored[0]}: store in a loop of its own" if stored else ""


def _parts(kernel: KernelModule, early: _Early) -> int:
    """Return the number of parts of columns in which the group can be made; 0 if the group can not be made in parts, or
    if its user needs whole tiles.
    """
    loop = early.group[0]
    if kernel.api != "nki" or len(early.group) > 1 or not isinstance(loop, Loop):
        return 0
    made = written(early.group)
    user = [access for one in flatten([early.user]) for access in one.mentions if access.name in made]
    if not any(access.dims and access.dims[-1].extent == _COLUMNS for access in user):
        return 0
    widths = set()
    for one in loop.statements():
        if one.kind == "declaration":
            continue
        fits = one.kind == "op" and one.op in ANY_COLUMNS and not one.augmented and one.second is None
        fits = fits and one.made.name in kernel.buffers and kernel.buffers[one.made.name].is_written_out
        if not fits or one.parent is not loop or len(one.mentions) != len(one.reads):
            return 0
        widths |= {_width(kernel, access) for access in accesses(one)}
    width = widths.pop() if len(widths) == 1 else None
    return 0 if width is None or width % _COLUMNS or width == _COLUMNS else width // _COLUMNS


def _width(kernel: KernelModule, access: Access) -> int | None:
    """Return the number of columns of an access that covers all columns; None for any other access."""
    shape = kernel.extents(access)
    if shape is None or (access.dims is not None and not access.dims[-1].covers(shape[-1])):
        return None
    return shape[-1]


def _moved(kernel: KernelModule, early: _Early, variant: Variant) -> str:
    """Return the source with the group of loads right before the group's first user."""
    start, end = first_line(kernel, early.group[0]), kernel.after_line(early.group[-1].end)
    text = _in_parts(kernel, early) if variant.parameters else kernel.source[start:end]
    edits = Edits(kernel.source)
    edits.replace(start, end, "")
    edits.insert(first_line(kernel, early.user), text)
    return edits.apply()


def _in_parts(kernel: KernelModule, early: _Early) -> str:
    """Return the text of the group's loop, inside a new loop over parts of the columns."""
    loop = early.group[0]
    assert isinstance(loop, Loop)
    part, language, width = kernel.fresh("part"), prefix(kernel, "language"), _COLUMNS * _parts(kernel, early)
    made = next(kernel.buffers[one.made.name] for one in loop.statements() if one.kind == "op")
    columns = kernel.size(made.extents[-1], width)
    count = str(width // _COLUMNS) if columns.isdecimal() else f"({columns}) // {_COLUMNS}"
    here = span(kernel, Affine.of_variable(part).times(_COLUMNS), _COLUMNS, 1, 2)
    lines = [comments(kernel, loop, loop.indent), f"{loop.indent}for {part} in {language}.affine_range({count}):\n"]
    lines.append(f"{loop.indent}{STEP}{header(kernel, loop)}\n")
    for item in loop.items:
        assert isinstance(item, Statement)
        texts: dict[ast.AST, str] = {}
        for access in accesses(item) if item.kind == "op" else ():
            if access.dims is None:
                shape = kernel.extents(access) or ()
                rows = [f"0:{extent}" for extent in shape[:-1]]
                texts[access.node] = f"{access.name}[{', '.join([*rows, here])}]"
            else:
                texts[elements(access.node)[-1]] = here
        own = comments(kernel, item, item.indent) + item.indent + changed(kernel, item.node, texts) + "\n"
        lines.append(reindent(own, item.indent, loop.indent + STEP * 2))
    return "".join(lines)


RULE = OrderLoads()
