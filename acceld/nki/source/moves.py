"""Change a kernel's source without changing its results, which is proved for each change.

A function here raises RuleRefused if there is no proof. The message names the line that is in the way, and what
would help.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from math import prod

from acceld.editing import Edits
from acceld.errors import RuleRefused
from acceld.nki.source.building import changed
from acceld.nki.source.nests import BANK_BYTES, ELEMENT_BYTES, PSUM_BYTES, SBUF_BYTES, all_accesses, first_line, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Access, Loop, Statement, elements, walked


def expanded(kernel: KernelModule, loop: Loop, names: Sequence[str], places: int) -> str:
    """Return the source in which ``loop`` rotates over several copies of the tiles ``names`` that its iterations
    declare.

    Each tile is declared once, before the loop, with a new dimension of ``places`` elements. The iterations use the
    elements in turn, so a tile keeps its values for ``places`` - 1 further iterations.

    Raise RuleRefused if the loop's own body does not declare one of the tiles, if uses of a tile are not understood, if
    a copy would lie in two banks of PSUM, or if the copies take more than half of SBUF or PSUM.
    """
    place = loop.variable if kernel.count(loop) == str(places) else f"{loop.variable} % {places}"
    needed = {"sbuf": 0, "psum": 0}
    edits = Edits(kernel.source)
    for name in names:
        buffer, found = kernel.buffers[name], all_accesses(kernel, name)
        line, shape = buffer.declaration.line, [extent for extent in buffer.shape if extent is not None]
        if found is None or name in kernel.ambiguous or not all(inside(one, loop) for one, _ in found):
            raise RuleRefused(
                f"{name}, declared in line {line}, is used in a way that is not understood, or outside of loop {loop.variable}: index it or use all of it, in the loop only"
            )
        known = buffer.is_written_out and len(shape) == len(buffer.shape)
        if buffer.space not in needed or buffer.declaration.parent is not loop or not known:
            raise RuleRefused(
                f"{name}, declared in line {line}, is not a tile of known shape in the body of loop {loop.variable}: declare it there, with numbers as shape"
            )
        for one in kernel.writers(name):
            if one.op == "nc_matmul" and "accumulate" not in one.args:
                raise RuleRefused(
                    f"the product in line {one.line} does not say whether it adds to {name}: pass accumulate=True or "
                    "accumulate=False"
                )
        size = prod(shape[1:]) * ELEMENT_BYTES
        if buffer.space == "psum" and _crosses_a_bank(size, places):
            raise RuleRefused(
                f"{places} copies of {name}, declared in line {line}, do not fit into banks of PSUM, because a copy of {size} bytes "
                f"would begin in one bank and end in the next: give {name} {BANK_BYTES // ELEMENT_BYTES} columns, or a half or a "
                "quarter of that"
            )
        needed[buffer.space] += places * size
        written = buffer.declaration.args["shape"]
        start, end = buffer.declaration.start, buffer.declaration.end
        rows = elements(written)[0]
        declared = changed(kernel, buffer.declaration.node, {rows: f"{kernel.text(rows)}, {places}"})
        edits.delete_lines(start, end)
        edits.insert(first_line(kernel, loop), f"{loop.indent}{declared}\n")
        for statement, access in found:
            pattern = _pattern_around(statement, access)
            if pattern is not None:
                edits.replace(*kernel.span(pattern), _pattern_at_place(kernel, name, pattern, shape, place, places))
                continue
            sizes = [kernel.size(node, extent) for node, extent in zip(buffer.extents, shape, strict=True)]
            edits.replace(*kernel.span(access.node), _at_place(kernel, access, sizes, place))
    room = {"sbuf": SBUF_BYTES // 2, "psum": PSUM_BYTES // 2}
    over = [space for space, size in needed.items() if size > room[space]]
    if over:
        large = ", ".join(name for name in names if kernel.buffers[name].space in over)
        taken = " and ".join(f"{needed[space] >> 10} KiB of {space.upper()}" for space in over)
        raise RuleRefused(
            f"{places} copies of {large} for loop {loop.variable} take {taken} in each partition, more than half of that memory: make the tiles smaller"
        )
    return edits.apply()


def _crosses_a_bank(size: int, places: int) -> bool:
    """Tell whether ``places`` tiles of ``size`` bytes, one behind the other from the start of a bank of PSUM on, lie differently
    in their banks, so that one of them crosses the end of a bank that the first tile does not cross.
    """
    if size >= BANK_BYTES:
        return size % BANK_BYTES != 0
    return any(at * size // BANK_BYTES != ((at + 1) * size - 1) // BANK_BYTES for at in range(places))


def _at_place(kernel: KernelModule, access: Access, sizes: Sequence[str], place: str) -> str:
    if access.dims is None:
        first, rest = f"0:{sizes[0]}", [f"0:{extent}" for extent in sizes[1:]]
    else:
        first, *rest = (kernel.text(index) for index in elements(access.node))
    return f"{access.name}[{', '.join((first, place, *rest))}]"


def _pattern_around(statement: Statement, access: Access) -> ast.Call | None:
    """Return the call of ``.ap()`` whose tile is the node of ``access``; None if the access is no part of such a call."""
    for one in walked(statement.node):
        match one:
            case ast.Call(func=ast.Attribute(value=value, attr="ap")) as call if value is access.node:
                return call
    return None


def _pattern_at_place(
    kernel: KernelModule, name: str, call: ast.Call, shape: Sequence[int], place: str, places: int
) -> str:
    """Return the call ``call`` of ``.ap()`` for one of ``places`` copies of the tile ``name``: a pattern counts the elements
    of all copies. Raise RuleRefused for a pattern whose numbers are not known.
    """
    given = kernel.given_pattern(Access(name, None, call))
    row = prod(shape[1:])
    pairs, offset = given or ([], None)
    step = kernel.constant(pairs[0][0]) if pairs else None
    start = 0 if offset is None else kernel.constant(offset)
    if step is None or start is None or step % row:
        raise RuleRefused(
            f"line {call.lineno} reads {name} by a pattern whose first step or offset is not known: write numbers, and step by {row}"
        )
    begin = start // row * row * places + start % row
    first = f"[{step * places}, {kernel.text(pairs[0][1])}]"
    rest = [f"[{kernel.text(one)}, {kernel.text(count)}]" for one, count in pairs[1:]]
    moved = f"({place}) * {row}" + (f" + {begin}" if begin else "")
    return f"{name}.ap(pattern=[{', '.join((first, *rest))}], offset={moved})"
