"""Make wide tiles part by part: the loop over the parts moves outside, around the work that makes the tiles.

Before, all 1024 columns of ``w`` stay in SBUF; after, 512 of them::

    for k in nl.affine_range(8):                      for c in nl.affine_range(2):
        w[k, p, wide] = nl.load(y[k, p, wide])            for k in nl.affine_range(8):
    for m in nl.affine_range(4):                              w[k, p, 512 * c + f] = nl.load(y[k, p, 512 * c + f])
        for c in nl.affine_range(2):                      for m in nl.affine_range(4):
            sums(m, w[k, p, 512 * c + f])                     sums(m, w[k, p, 512 * c + f])
        nl.store(out[m, p, wide], value=made[m, ...])         nl.store(out[m, p, 512 * c + f], value=made[m, ...])

In the current API a tile takes the memory that its declaration says. So the declaration of ``w`` moves into the loop,
with 512 columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.building import STEP, comments, emitted, header, read, written
from acceld.nki.source.effects import understood
from acceld.nki.source.nests import around, first_line, inside, remove, substance
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import indexed, rendered
from acceld.nki.source.syntax import Access, Item, Loop, Statement, accesses, elements, flatten
from acceld.proposers.rules.nki.column_steps import ANY_COLUMNS, columns_in, covers, last_index, narrowed
from acceld.proposers.rules.nki.interchange import obstacle_to_exchange
from acceld.proposers.rules.profiles import spilled
from acceld.proposers.rules.records import Place, Rule, Variant

_LEAST_COLUMNS = 512
"""Least number of columns of a part: as many as the widest operand of a product has, and a long enough row for DMA."""


@dataclass(frozen=True)
class _Block:
    """A loop over parts of wide tiles, the loops around it, and the work that makes the tiles before these loops."""

    parts: Loop
    chain: tuple[Loop, ...]
    """Loops around ``parts``, innermost first. Each contains only the next inner loop, and possibly stores after that
    loop.
    """
    makers: tuple[Item, ...]
    wide: Mapping[str, int]
    """The tiles that are used part by part, with the number of columns of a part."""

    @property
    def outermost(self) -> Loop:
        return self.chain[-1]

    @property
    def stores(self) -> tuple[Statement, ...]:
        found = [item for loop in self.chain for item in loop.items if isinstance(item, Statement)]
        return tuple(one for one in found if one.kind == "op")

    @property
    def rows(self) -> tuple[Statement, ...]:
        """Return the declarations of tiles that stand directly in the bodies of the loops ``chain``."""
        found = [item for loop in self.chain for item in loop.items if isinstance(item, Statement)]
        return tuple(one for one in found if one.kind == "declaration")


class BlockColumns(Rule):
    """Move a loop over parts of wide tiles outside, so that only one part of each tile is made and kept at a time."""

    name = "block_columns"
    reason = (
        "On-chip memory holds 192 KiB a partition on trn1. What a loop over parts needs of wide tiles stays live for all "
        "parts; beyond that size it is spilled to HBM and loaded again. With the loop outside, one part stays."
    )
    source = (
        "AWS NKI architecture guide: SBUF size; NKI matrix multiplication tutorial: blocking of the free dimensions"
    )
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "loop_order"
    relieves = ("dma",)

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every loop that uses parts of tiles made before the loops around it, with the reason if the loop can
        not move outside.
        """
        for parts in kernel.loops:
            block = _block(kernel, parts)
            if block is None:
                continue
            names = ", ".join(sorted(block.wide))
            yield self.answer(
                parts.line,
                _obstacle(kernel, block),
                f"Make {names} by parts, in loop {parts.variable}",
                partial(_moved, kernel, block),
                Variant("by parts"),
                precondition=f"the tiles {names} are made element-wise, and only loop {parts.variable} reads them, in "
                f"{parts.trips} parts one after the other; the loops are parallel, and the stores after them can store part "
                "by part",
                plan=f"All columns of {names} stay on chip, though loop {parts.variable} uses one of {parts.trips} parts at "
                f"a time. Make loop {parts.variable} the outer loop, around the work that makes {names}, and make only"
                " one part at a time.",
                benefit=0.5 if spilled(profile) else 0.15,
                gain_percent=(0.0, 40.0) if spilled(profile) else (-5.0, 10.0),
                key=parts.variable,
            )


def _block(kernel: KernelModule, parts: Loop) -> _Block | None:
    """Return the loop ``parts`` with its wide tiles, the tiles whose parts the iterations use one by one; None if there
    are no such tiles.
    """
    if parts.kind != "affine_range" or parts.trips is None or parts.trips < 2 or parts.parent is None:
        return None
    wide = _wide(kernel, parts)
    chain: list[Loop] = []
    inner = parts
    while wide and inner.parent is not None and _holds_only(kernel, inner.parent, inner):
        inner = inner.parent
        chain.append(inner)
    if not chain:
        return None
    body = kernel.beside(inner)
    before = body[: body.index(inner)]
    makers = tuple(item for item in before if written([item]) & wide.keys())
    made = written(makers)
    wide = {name: width for name, width in wide.items() if name in made}
    return _Block(parts, tuple(chain), makers, wide) if wide else None


def _holds_only(kernel: KernelModule, outer: Loop, inner: Loop) -> bool:
    """Return True if the body of ``outer`` has only declarations, then the loop ``inner``, then stores."""
    at = outer.items.index(inner)
    before, after = ([one for one in part if substance([one])] for part in (outer.items[:at], outer.items[at + 1 :]))
    declared = all(isinstance(item, Statement) and item.kind == "declaration" for item in before)
    return declared and all(isinstance(item, Statement) and kernel.stored(item) is not None for item in after)


def _wide(kernel: KernelModule, parts: Loop) -> dict[str, int]:
    """Return the tiles in SBUF that the loop ``parts`` reads part by part, one part in each iteration, and never
    writes.

    The result maps the name of each such tile to the number of columns in one part.
    """
    found: dict[str, int] = {}
    ours = written([parts])
    for one in parts.statements():
        for access in one.mentions:
            buffer, width = kernel.buffers.get(access.name), _part_width(access, parts)
            if width < _LEAST_COLUMNS or buffer is None or buffer.space != "sbuf" or access.name in ours:
                continue
            if buffer.shape[-1] == width * (parts.trips or 0):
                found[access.name] = width
    return found


def _part_width(access: Access, parts: Loop) -> int:
    """Return the number of columns by which an access advances with each iteration of ``parts``; 0 if one iteration
    touches more columns than that, or if the number is not known.
    """
    last = last_index(access)
    if last is None or last.form is None:
        return 0
    width = last.form.coefficient(parts.variable) or 0
    reach = last.reach({loop.variable: loop.trips for loop in parts.loops()}, parts.variable)
    return width if reach is not None and reach[0] >= 0 and reach[1] < width else 0


def _obstacle(kernel: KernelModule, block: _Block) -> str:
    """Return the reason why the loop over parts can not move outside the loops around it; empty if it can."""
    parts, nest = block.parts, block.outermost
    for loop in block.chain:
        problem = obstacle_to_exchange(kernel, loop, parts)
        if problem:
            return problem
    for item in block.makers:
        if isinstance(item, Loop) and any(loop.variable == parts.variable for loop in (item, *item.loops())):
            return f"line {item.line}: this loop's variable is {parts.variable} too: give it another name"
    made = written(block.makers)
    if (read(block.makers) & written([nest])) | (written(block.stores) & read([nest])):
        return f"line {nest.line}: these loops write a tile that the work before them reads to make {', '.join(sorted(block.wide))}: write to another tile"
    for one in block.rows:
        if not any(kernel.stored(store).name == one.made.name for store in block.stores):  # type: ignore[union-attr]  # rows were chosen for their tile
            return f"line {one.line}: {one.made.name} is used by other statements than its store: declare {one.made.name} in loop {parts.variable}"
    body = kernel.beside(nest)
    for item in body[body.index(block.makers[0]) : body.index(nest)]:
        if item not in block.makers and (
            made & (read([item]) | written([item])) or written([item]) & read(block.makers) or understood([item])
        ):
            return f"line {item.line}: this statement is between two loops, and uses tiles that the loops need: move the statement before line {block.makers[0].line}"
    return (
        _problem_of_makers(kernel, block, made)
        or next(filter(None, (_problem_of_use(kernel, block, name) for name in sorted(made))), "")
        or next(filter(None, (_problem_of_store(kernel, block, one) for one in block.stores)), "")
    )


def _problem_of_makers(kernel: KernelModule, block: _Block, made: set[str]) -> str:
    """Return the reason why the wide tiles can not be made part by part; empty if they can."""
    columns = {width * (block.parts.trips or 0) for width in block.wide.values()}
    if len(columns) != 1 or len(set(block.wide.values())) != 1:
        return f"line {block.parts.line}: an iteration uses parts of different widths: use equally many columns of each tile"
    whole = columns.pop()
    for one in flatten(block.makers):
        where = f"line {one.line}:"
        if one.kind == "marker":
            continue
        if (
            one.kind != "op"
            or one.op not in ANY_COLUMNS
            or kernel.stored(one) is not None
            or one.augmented
            or one.second is not None
        ):
            return f"{where} {one.op or 'this statement'} is not element-wise, so it needs all columns at once: move it before the loop"
        if kernel.mask(one) or len(one.mentions) != len(one.reads):
            return f"{where} the statement has a mask, or an operand is an expression: leave the mask out, and write the operand's value to a tile first"
        for access in accesses(one):
            if access.name in kernel.ambiguous:
                return f"{where} {access.name} may have a second name, an alias of the same buffer: use one name for each buffer"
            if access.name not in made and kernel.is_column(access):
                continue  # a single column (one number for each partition) is used unchanged in every part
            if access.name in made and access.name not in kernel.buffers:
                if access.dims is not None:
                    return f"{where} {access.name} is used with an index: use the whole tile"
                continue  # this tile has no declaration: it becomes as wide as the operands of the statement that makes it
            if access.name in made and kernel.buffers[access.name].shape[-1] != whole:
                return f"{where} {access.name} is not {whole} columns wide, as the other tiles are: make all tiles equally wide"
            if access.name in made and access.dims is None and kernel.extents(access) is not None:
                continue  # the tile is used whole; the rewrite makes its declaration as wide as one part
            if not covers(access, whole) or columns_in(kernel, access) is None:
                return f"{where} the statement does not use all {whole} columns of {access.name} by one plain index: use all of them by one slice"
    return ""


def _problem_of_use(kernel: KernelModule, block: _Block, name: str) -> str:
    """Return the reason why the loop over parts may use another part of the tile ``name`` than its iteration's own;
    empty if each iteration uses its own part only.
    """
    makers = set(flatten(block.makers))
    for one in (*kernel.writers(name), *kernel.readers(name)):
        if one in makers:
            continue
        fits = inside(one, block.parts) and one.kind == "op"
        uses = [access for access in accesses(one) if access.name == name]
        if not fits or any(_part_width(access, block.parts) != block.wide.get(name) for access in uses):
            return f"line {one.line}: {name} is used outside of loop {block.parts.variable}, or in parts of another width: use it in that loop only, and in equal parts"
    return ""


def _problem_of_store(kernel: KernelModule, block: _Block, store: Statement) -> str:
    """Return the reason why a store can not be split into the parts; empty if it can."""
    where = f"line {store.line}:"
    value, target = kernel.stored(store), store.target
    buffer = kernel.buffers.get(value.name) if value is not None else None
    if value is None or target is None or buffer is None or kernel.mask(store) or value.name in kernel.ambiguous:
        return f"{where} the stored value is not understood: store a tile in SBUF, without a mask"
    writers = kernel.writers(value.name)
    results = [one.result(value.name) for one in writers]
    widths = {_part_width(result, block.parts) for result in results if result is not None}
    whole = buffer.shape[-1] or 0
    if not all(inside(one, block.parts) for one in writers) or widths != {whole // (block.parts.trips or 1)}:
        return f"{where} {value.name} is not written part by part in loop {block.parts.variable}: write one part in each iteration of that loop"
    if value.dims is None and len(buffer.shape) != 2:
        return f"{where} {value.name} is stored without an index: index the part that is stored"
    named = [target, *([value] if value.dims is not None else [])]
    if not all(covers(access, whole) and columns_in(kernel, access) is not None for access in named):
        return f"{where} the statement does not store all {whole} columns by one plain index: store all of them by one slice"
    for one in kernel.readers(value.name):
        if one is not store and inside(one, block.outermost):
            return f"line {one.line}: {value.name} is read here, and not only by its store: read another tile here"
    return ""


def _moved(kernel: KernelModule, block: _Block, _: Variant) -> str:
    """Return the source in which the loop over parts is the outermost loop of its nest."""
    number, made = kernel.loops.index(block.parts), written(block.makers)
    kernel = kernel.reread(_by_parts(kernel, block))
    parts = kernel.loops[number]
    chain = around(parts)[: len(block.chain)]
    nest = chain[-1]
    body = kernel.beside(nest)
    lines = {item.line for item in block.makers}
    moving: list[Item] = [item for item in body if item.line in lines]
    if kernel.api == "nki":
        moving = [*(one.declaration for name, one in kernel.buffers.items() if name in made), *moving]
    indent = nest.indent
    edits = Edits(kernel.source)
    for item in moving:
        remove(kernel, item, edits)
    text = (
        f"{indent}{header(kernel, parts)}\n"
        + emitted(kernel, moving, indent + STEP)
        + comments(kernel, nest, indent + STEP)
        + _nested(kernel, [*reversed(chain)], parts, indent + STEP)
    )
    edits.replace(first_line(kernel, nest), kernel.after_line(nest.end), text)
    return edits.apply()


def _by_parts(kernel: KernelModule, block: _Block) -> str:
    """Return the source in which the statements that make the tiles, and the stores, work on the columns of one part."""
    edits, variable = Edits(kernel.source), block.parts.variable
    width = min(block.wide.values())
    own = written(block.makers) if kernel.api == "nki" else set()
    for name in own:
        edits.replace(*kernel.span(kernel.buffers[name].extents[-1]), str(width))
    for one in (*flatten(block.makers), *block.stores):
        for access in accesses(one):
            whole = (kernel.extents(access) or (1,))[-1]
            if whole <= 1 or (access.dims is None and (access.name in own or one not in block.stores)):
                continue
            columns = whole // (block.parts.trips or 1)
            first = Affine() if access.name in own else Affine.of_variable(variable).times(columns)
            if access.dims is None:
                rows, _ = kernel.forms(access)
                part = first + Affine.of(Symbol.over(columns, 1, 2))
                edits.replace(*kernel.span(access.node), indexed(kernel, access.name, [rows, part]))
                continue
            place, text = narrowed(kernel, access, rendered(first, {}), columns)
            edits.replace(*kernel.span(place), text)
    for one in block.parts.statements():
        for access in accesses(one):
            if access.name in own:
                last = kernel.forms(access)[-1]
                assert last is not None
                here = indexed(kernel, "", [last - Affine.of_variable(variable).times(width)])
                edits.replace(*kernel.span(elements(access.node)[-1]), here[1:-1])
    return edits.apply()


def _nested(kernel: KernelModule, chain: Sequence[Loop], parts: Loop, indent: str) -> str:
    """Return the lines of the nested loops in ``chain``; the innermost holds the body of ``parts`` in place of the
    loop ``parts`` itself.
    """
    if not chain:
        return emitted(kernel, parts.items, indent, None, "")
    loop, *rest = chain
    inner = rest[0] if rest else parts
    at = loop.items.index(inner)
    return (
        f"{indent}{header(kernel, loop)}\n"
        + emitted(kernel, [one for one in loop.items[:at] if substance([one])], indent + STEP)
        + comments(kernel, inner, indent + STEP)
        + _nested(kernel, rest, parts, indent + STEP)
        + emitted(kernel, loop.items[at + 1 :], indent + STEP, None, loop.variable)
    )


RULE = BlockColumns()
