"""Compute facts about loop nests: loops around statements, comments, sizes of tiles, indices that can be
dropped.

A buffer has a *place* for each iteration of a loop if iterations of the loop use separate elements of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from math import prod

from acceld.editing import Edits
from acceld.nki.source.affine import Affine
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Access, Buffer, Item, Loop, Statement

SBUF_BYTES = 168 * 1024
"""Bytes for values in each partition of SBUF: trn1 has 192 KiB, of which the legacy compiler keeps some for rotating
buffers.
"""
PSUM_BYTES = 16 * 1024
"""Bytes of PSUM in each partition."""
BANK_BYTES = 2 * 1024
"""Bytes of a bank of PSUM in each partition. A product is written to a single bank."""
ELEMENT_BYTES = 4


def around(item: Item) -> list[Loop]:
    """Return the loops around ``item``, innermost first."""
    found = []
    loop = item.parent
    while loop is not None:
        found.append(loop)
        loop = loop.parent
    return found


def inside(item: Item, loop: Loop) -> bool:
    """Tell whether ``item`` is inside ``loop``, at any depth."""
    return loop in around(item)


def substance(items: Sequence[Item]) -> bool:
    """Tell whether ``items`` contain a statement that is not a marker."""
    return any(substance(item.items) if isinstance(item, Loop) else item.kind != "marker" for item in items)


def first_line(kernel: KernelModule, item: Item) -> int:
    """Return the offset in the source at which an item begins. Comment lines right above it belong to the item."""
    start = kernel.line_start(item.start)
    for line in reversed(kernel.comments_above(item)):
        if line is None:
            break
        start = kernel.line_start(start - 1)
    return start


def remove(kernel: KernelModule, item: Item, edits: Edits) -> None:
    """Add to ``edits`` the removal of an item and of the comment lines right above it. Other statements on the item's
    line stay.
    """
    edits.delete_lines(item.start, item.end)
    start, above = kernel.line_start(item.start), first_line(kernel, item)
    if above < start and not kernel.source[start : item.start].strip():
        edits.replace(above, start, "")


def all_accesses(kernel: KernelModule, name: str) -> list[tuple[Statement, Access]] | None:
    """Return every access of the buffer ``name`` with its statement; None if the name also occurs in other ways than in
    an access that is understood.
    """
    found = kernel.uses.get(name, [])
    declared = name in kernel.buffers
    return list(found) if kernel.named[name] == len(found) + declared else None


def place_of(kernel: KernelModule, name: str, loop: Loop) -> int | None:
    """Return the position of the one index by which each iteration of ``loop`` has its own place in the buffer
    ``name``.

    In every access that index must be exactly the loop's variable, and the buffer must be declared before the loop. The
    result is None without such an index, or if the buffer is used outside of the loop or may have a second name.
    """
    buffer = kernel.buffers.get(name)
    if buffer is None or name in kernel.ambiguous or kernel.space_of(name) == "hbm":
        return None
    if not buffer.is_written_out:
        return None
    found = all_accesses(kernel, name)
    if not found or inside(buffer.declaration, loop) or not all(inside(statement, loop) for statement, _ in found):
        return None
    fitting = [i for i in indices_by(buffer, loop, [access for _, access in found]) if i < buffer.partition_axis]
    return fitting[0] if len(fitting) == 1 else None


def indices_by(buffer: Buffer, loop: Loop, accesses: Sequence[Access]) -> set[int]:
    """Return the positions of those indices that are exactly the loop's variable in every one of ``accesses``.

    Along each such index, the buffer has one element for each iteration.
    """
    variable = Affine.of_variable(loop.variable)
    places = {i for i, extent in enumerate(buffer.shape) if extent == loop.trips and accesses}
    for access in accesses:
        places &= {i for i, dim in enumerate(access.dims or ()) if dim.form == variable and dim.extent is None}
    return places


def has_place(access: Access, loop: Loop) -> bool:
    """Tell whether iterations of ``loop`` use separate elements of the buffer.

    Iterations do so if one index of the access depends on this loop alone and moves on, from one iteration to the
    next, by at least the number of elements that the index covers.
    """
    for dim in access.dims or ():
        if dim.form is None or dim.form.variables != {loop.variable}:
            continue
        step = dim.form.coefficient(loop.variable)
        spans = [abs(factor) * (symbol.extent - 1) for symbol, factor in dim.form.terms if symbol.is_range]
        if step and sum(spans) + (dim.extent or 1) - 1 < abs(step):
            return True
    return False


def without_element(kernel: KernelModule, elements: Sequence[ast.expr], place: int) -> tuple[int, int]:
    """Return (start, end) of the text to delete so that element number ``place``, with the comma after it, is removed
    from a list of elements.

    ``place`` must not be the last element.
    """
    start, _ = kernel.span(elements[place])
    end, _ = kernel.span(elements[place + 1])
    return start, end


def tile_bytes(kernel: KernelModule, access: Access) -> int | None:
    """Return the bytes in each partition that the tile of an access takes as float32; None if its shape is unknown."""
    shape = kernel.extents(access)
    return None if shape is None else prod(shape[1:]) * ELEMENT_BYTES


def kept_bytes(kernel: KernelModule, found: Iterable[tuple[Statement, Access]], loop: Loop) -> int | None:
    """Return the bytes in each partition of all tiles that the accesses touch in one iteration of ``loop``;
    None if a shape or a number of iterations is unknown.
    """
    largest: dict[str, int] = {}
    for statement, access in found:
        size = tile_bytes(kernel, access)
        if size is None:
            return None
        loops = around(statement)
        inner = loops[: loops.index(loop)] if loop in loops else loops
        for one in inner:
            if one.variable in (access.variables or ()):
                if one.trips is None:
                    return None
                size *= one.trips
        largest[access.name] = max(size, largest.get(access.name, 0))
    return sum(largest.values())
