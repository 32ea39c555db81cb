"""Test conditions on an instruction and on the instructions that read its result.

Unless its docstring says otherwise, a function here returns the empty text if its condition holds. Otherwise it
returns the reason: the line that is in the way, and the change that would help.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Access, Statement, names_in


def maker(kernel: KernelModule, reader: Statement, access: Access) -> Statement | str:
    """Return the statement that computed exactly the elements which ``access`` reads, earlier in the same loop body.

    If no single statement computed them, or if that statement has a second result, the result is the reason as text.
    """
    name = access.name
    problem = one_name(kernel, [name])
    if problem:
        return problem
    writers = kernel.writers(name)
    if len(writers) != 1:
        if not writers:
            return f"no statement that is understood writes {name}: write it by one call of nl or nisa"
        lines = ", ".join(str(one.line) for one in writers)
        return f"{name} is written in lines {lines}: give each result a tile of its own"
    (writer,) = writers
    if writer.kind != "op" or writer.augmented:
        why = f"adds to {name}" if writer.augmented else f"writes {name} in a way that is not understood"
        return f"the statement in line {writer.line} {why}: write the whole result at once, into a tile of its own"
    if writer.parent is not reader.parent or writer.start > reader.start:
        return f"{name} is made in line {writer.line}, and read in line {reader.line} in another loop or earlier: make it in the same loop body, before it is read"
    if writer.second is not None:
        return f"the instruction in line {writer.line} has a second result, {writer.second.name}: compute that by an instruction of its own"
    if writer.target is None or not writer.target.same_as(access):
        return (
            f"the elements of {name} that line {reader.line} reads are not exactly those that line {writer.line} writes: give "
            f"the elements that line {reader.line} reads a tile of their own"
        )
    return writer


def last_writer(kernel: KernelModule, reader: Statement, access: Access) -> Statement | None:
    """Return the operation that last writes the tile of ``access`` before ``reader`` in the same loop body; None if no
    operation does.
    """
    before = [one for one in kernel.writers(access.name) if one.start < reader.start]
    made = before[-1] if before else None
    return made if made is not None and made.kind == "op" and made.parent is reader.parent else None


def only_reader(kernel: KernelModule, made: Statement, reader: Statement) -> str:
    """Return the empty text if ``reader`` is the only statement that reads the result of ``made``, and reads that
    result only once; else the reason.
    """
    name = made.made.name
    others = [one for one in kernel.readers(name) if one is not reader]
    if others:
        return f"{name} is also read in line {others[0].line}: compute it again for that line, into another tile"
    return (
        ""
        if uses(reader, name) == 1
        else f"{name} is read more than once in line {reader.line}: give each use a tile of its own"
    )


def uses(reader: Statement, name: str) -> int:
    """Return how many times a statement reads the tile ``name``."""
    return sum(access.name == name for access in reader.mentions)


def one_name(kernel: KernelModule, names: Iterable[str]) -> str:
    """Return the empty text if each of ``names`` is certainly the only name of its tile, and occurs only in statements
    that are understood; else the reason.
    """
    doubtful = sorted(kernel.ambiguous & set(names))
    if not doubtful:
        return ""
    name = doubtful[0]
    if name in kernel.tiles and name not in kernel.doubts:
        return f"the code that calls {kernel.function.name} may read the tile {name}, which line {kernel.writers(name)[0].line} writes: use a tile that {kernel.function.name} declares"
    by = f"in line {kernel.doubts[name]}" if name in kernel.doubts else "by another assignment"
    return f"{name} may be changed, or its tile may get a second name (an alias), {by}: use one name for the tile, and write out calls of your own functions"


def same_mask(kernel: KernelModule, made: Statement, reader: Statement) -> str:
    """Return the empty text if the two statements have the same mask; else the reason."""
    if kernel.mask(made) == kernel.mask(reader):
        return ""
    return f"the instructions in lines {made.line} and {reader.line} have different masks: give both the same mask"


def keeps_float32(kernel: KernelModule, made: Statement) -> str:
    """Return the empty text if the result of a statement stays float32; else a reason: the statement, or the tile that
    it writes, has a narrower type.
    """
    for dtype in (kernel.text_of(made, "dtype"), kernel.declared_dtype(made.made.name)):
        owner = dtype.removesuffix(".dtype")
        if dtype and (kernel.dtype_of(owner) if owner != dtype else dtype.rpartition(".")[2]) != "float32":
            return f"the result in line {made.line} is rounded to {dtype}: make it a tile of float32"
    return ""


def unchanged(kernel: KernelModule, names: Iterable[str], first: Statement, last: Statement) -> str:
    """Return the empty text if no statement between ``first`` and ``last`` writes one of the tiles ``names``; else the
    reason.
    """
    used = {node.id for one in (first, last) for node in names_in(one.node)}
    for statement in kernel.statements:
        if first.start < statement.start < last.start and statement.kind in ("alias", "other"):
            bound = {node.id for node in names_in(statement.node) if isinstance(node.ctx, ast.Store)} & used
            if bound:
                return f"{min(bound)} gets a value in line {statement.line}, between lines {first.line} and {last.line}: assign it before line {first.line}"
    for name in sorted(set(names)):
        for writer in kernel.writers(name):
            if first.start < writer.start < last.start:
                return f"{name} is changed in line {writer.line}, before line {last.line} would read it: write the new values into another tile"
    return ""


def same_body(made: Statement, reader: Statement) -> str:
    """Return the empty text if ``reader`` follows ``made`` in the same loop body; else the reason."""
    if reader.parent is made.parent and reader.start > made.start:
        return ""
    return f"the instruction in line {reader.line} does not follow the one in line {made.line} in the same loop body: move it there"
