"""Split wide tiles into narrower pieces, so that several engines work on different pieces at the same time.

Before, one tile of 6144 columns. After, six tiles of 1024; each scan continues from the end of the previous piece::

    for c in nl.affine_range(2):                      for c in nl.affine_range(2):
        a = nl.load(x[rows, 0:6144])                      last = nl.zeros((nl.par_dim(128), 1), dtype=np.float32)
        s = nisa.tensor_tensor_scan(a, b, 0, ...)         for piece in nl.sequential_range(6):
                                                              a = nl.load(x[rows, 1024 * piece:1024 * piece + 1024])
                                                              s = nisa.tensor_tensor_scan(a, b, last[...], ...)
                                                              last[...] = nl.copy(s[:, 1023:1024])

In the current API the declarations of the tiles move into the pieces too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits, reindent
from acceld.model import Profile
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import STEP, changed
from acceld.nki.source.nests import around
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import copied, filled, prefix
from acceld.nki.source.syntax import Access, Loop, Statement, accesses, below, elements, value_of
from acceld.proposers.rules.nki.column_steps import ANY_COLUMNS, columns_in, covers, last_index, narrowed
from acceld.proposers.rules.records import Place, Rule, Variant

_ALLOWED = ANY_COLUMNS | {"tensor_tensor_scan", "broadcast_to", "accumulate"}
_LEAST_COLUMNS = 1024


class TileColumns(Rule):
    """Turn a loop body that works on wide tiles into a loop over pieces of the columns."""

    name = "tile_columns"
    reason = (
        "SBUF holds 192 KiB a partition. Where the tiles of one iteration fill it, the next load waits for the last "
        "store, and no two engines work at once; narrower tiles of the same work overlap."
    )
    source = "AWS NKI performance guide: overlapping of data movement and compute; nki.isa.tensor_tensor_scan: initial"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "tile_width"

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every innermost loop on wide tiles, with the reason if its tiles can not be split into pieces."""
        for loop in kernel.loops:
            wide = _wide(kernel, loop)
            if isinstance(wide, str):
                if wide:
                    yield self.refused(loop.line, wide, f"Take fewer columns at a time in loop {loop.variable}")
                continue
            widths = _widths(wide.columns)
            if widths:
                scans = f", and {len(wide.scans)} scans continue from the last column of the piece before" * bool(
                    wide.scans
                )
                yield self.found(
                    loop.line,
                    partial(_pieces, kernel, wide),
                    *(Variant(f"{width} columns", {"columns": width}) for width in widths),
                    precondition=f"each instruction works on every column separately{scans}",
                    plan=f"Loop {loop.variable} works on tiles of {wide.columns} columns, {wide.work} of them an "
                    f"iteration. Take {' or '.join(map(str, widths))} columns at a time.",
                    benefit=0.35 if wide.scans else 0.15,
                    gain_percent=(0.0, 50.0),
                )


def _widths(columns: int) -> list[int]:
    """Return the widths of pieces to try. Widths near the least width that pays for an instruction's fixed cost come
    first.
    """
    fitting = [width for width in range(512, columns // 2 + 1, 64) if columns % width == 0]
    return sorted(fitting, key=lambda width: abs(width - _LEAST_COLUMNS))[:5]


@dataclass(frozen=True)
class _Wide:
    """A loop on tiles of ``columns`` columns, and what becomes of its statements when the columns are split into pieces."""

    loop: Loop
    columns: int
    before: tuple[Statement, ...]
    """Statements that do not depend on the columns. They stay before the loop over pieces."""
    body: tuple[Statement, ...]
    """Statements that are repeated for each piece of columns."""
    scans: tuple[Statement, ...]
    whole: frozenset[str]
    """Tiles of all columns that are made before the loop. Pieces use their columns by index."""

    @property
    def work(self) -> int:
        """Return the number of instructions that work on columns."""
        return sum(one.kind == "op" for one in self.body)


def _wide(kernel: KernelModule, loop: Loop) -> _Wide | str:
    """Return which statements of a loop to repeat for each piece of columns, and which to leave before the pieces.

    If the loop can not be split, return the reason as text. The text is empty if there is nothing to say about the loop,
    for example because its tiles are too narrow.
    """
    statements = [item for item in loop.items if isinstance(item, Statement)]
    if len(statements) < len(loop.items) or loop.kind == "range":
        return ""
    ops = [one for one in statements if one.kind == "op"]
    shapes = {one: _shape(kernel, one) for one in ops}
    columns = max((shape[-1] for shape in shapes.values() if shape), default=0)
    if columns <= _LEAST_COLUMNS:
        return ""
    declared = {name for name, one in kernel.buffers.items() if one.declaration in statements}
    wide = {name for name in declared if kernel.buffers[name].shape[1:] == (columns,)}
    whole = {name for name in _names(ops) if _is_outside(kernel, loop, name, columns)}
    divided = _divided(kernel, statements, shapes, columns, wide, whole)
    if isinstance(divided, str):
        return divided
    before, body = divided
    problem = _problem_of_tiles(kernel, loop, body, wide, declared)
    if problem:
        return problem
    scans = tuple(one for one in body if one.op == "tensor_tensor_scan")
    found = _Wide(loop, columns, tuple(before), tuple(body), scans, frozenset(whole))
    return found if found.work > 1 else ""


def _divided(
    kernel: KernelModule,
    statements: Sequence[Statement],
    shapes: Mapping[Statement, tuple[int, ...] | None],
    columns: int,
    wide: set[str],
    whole: set[str],
) -> tuple[list[Statement], list[Statement]] | str:
    """Return (statements of the loop's body that do not depend on the columns, all other statements of the body). If the
    body can not be divided so, return the reason as text.

    ``wide`` has the tiles that hold all columns and live in one iteration. Tiles of this kind that the statements make
    are added. ``whole`` has the tiles of all columns that are made before the loop.
    """
    before: list[Statement] = []
    body: list[Statement] = []
    for one in statements:
        where = f"line {one.line}:"
        if one.kind in ("alias", "marker"):
            before.append(one)
            continue
        if one.kind == "declaration":
            (body if one.made.name in wide else before).append(one)
            continue
        if one.kind != "op" or one.op not in _ALLOWED or one.target is None or kernel.mask(one):
            return f"{where} this statement does not work on each column separately: put it in a loop of its own"
        shape = shapes[one]
        if shape is None:
            return f"{where} the columns of {one.target.name} are not known: declare it by numbers"
        if kernel.ambiguous & {access.name for access in accesses(one)}:
            return f"{where} a tile may have a second name, an alias of the same buffer: use one name for each buffer"
        reads = {access.name for access in one.mentions}
        if shape[-1] == 1 and not wide & reads and not _on_columns(kernel, one, columns):
            if reads & {made.target.name for made in body if made.target}:
                return f"{where} this statement reads a tile that is written by columns: move it after the loop"
            before.append(one)
            continue
        problem = _by_column(kernel, one, columns, wide, whole)
        if problem:
            return f"{where} {problem}"
        if one.target.dims is None and one.target.name not in whole:
            wide.add(one.target.name)
        body.append(one)
    return before, body


def _problem_of_tiles(
    kernel: KernelModule, loop: Loop, body: Sequence[Statement], wide: set[str], declared: set[str]
) -> str:
    """Return the reason why a tile of the loop can not be made in pieces of its columns; empty if all tiles can."""
    for name in sorted(wide):
        users = [*kernel.readers(name), *kernel.writers(name)]
        outside = next((user for user in users if user.parent is not loop), None)
        if outside is not None or name in kernel.buffers.keys() - declared:
            line = kernel.buffers[name].declaration.line if outside is None else outside.line
            return f"line {line}: {name} is not a tile of loop {loop.variable} alone: declare and use it there"
    ops = [one for one in loop.statements() if one.kind == "op"]
    for name in sorted({one.target.name for one in body if one.target is not None} - wide):
        if len({_first(access) for one in ops for access in accesses(one) if access.name == name}) > 1:
            return f"line {loop.line}: loop {loop.variable} reads {name} at other columns than it writes: write those columns to a tile of their own"
    return ""


def _names(ops: Sequence[Statement]) -> set[str]:
    return {access.name for one in ops for access in accesses(one)}


def _is_outside(kernel: KernelModule, loop: Loop, name: str, columns: int) -> bool:
    """Return True for a tile of all columns that is made before the loop, and that the loop only reads or only adds
    to.
    """
    uses = [(one, access) for one in loop.statements() for access in accesses(one) if access.name == name]
    if name in kernel.ambiguous or any(access.dims is not None for _, access in uses):
        return False
    inside = [writer for writer in kernel.writers(name) if loop in around(writer)]
    made = kernel.buffers[name].declaration if name in kernel.buffers else next(iter(kernel.writers(name)), None)
    if made is None or made.start > loop.start or kernel.space_of(name) != "sbuf":
        return False
    adds = len(inside) == 1 and {id(one) for one, _ in uses} == {id(inside[0])}
    shape = kernel.extents(uses[0][1])
    return shape is not None and len(shape) == 2 and shape[1] == columns and (adds or not inside)


def _shape(kernel: KernelModule, one: Statement) -> tuple[int, ...] | None:
    if one.op == "store":
        value = one.reads.get("value")
        return kernel.extents(value) if value is not None else None
    if one.op == "accumulate" and one.target is not None:
        return kernel.extents(one.target)
    if one.target is None:
        return None
    return kernel.tile_shape(one)


def _broadcast_shape(call: ast.AST | None) -> ast.Tuple | ast.List | None:
    """Return the shape in ``x.broadcast_to(shape)``; None for any other expression."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
        return None
    shape = call.args[0]
    return shape if call.func.attr == "broadcast_to" and isinstance(shape, ast.Tuple | ast.List) else None


def _calls_in_operands(one: Statement) -> list[ast.Call]:
    """Return the outermost calls in a statement's operands, without those in indices."""
    found: list[ast.Call] = []

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            found.append(node)
        elif not isinstance(node, ast.Subscript):
            for child in below(node):
                walk(child)

    for name, value in one.args.items():
        if name not in ("dtype", "mask"):
            walk(value)
    return found


def _on_columns(kernel: KernelModule, one: Statement, columns: int) -> bool:
    return any(last_index(access) is not None and covers(access, columns) for access in accesses(one))


def _by_column(kernel: KernelModule, one: Statement, columns: int, wide: set[str], whole: set[str]) -> str:
    """Return the reason why a statement does not work on each of ``columns`` columns separately; empty if it does."""
    if one.second is not None:
        return "this statement adds up its columns: put it in a loop of its own"
    if one.op == "tensor_tensor_scan" and kernel.number(one.args.get("initial")) is None:
        return "the scan's initial value is not a number: write a number"
    if one.op == "accumulate" and set(one.reads) != {"x"}:
        return "the added operand is an expression: write its value to a tile first, and use that tile"
    for call in _calls_in_operands(one):
        shape = _broadcast_shape(call)
        if shape is None and kernel.number(call) is None:
            return "an operand is an expression: write its value to a tile first, and use that tile"
        if shape is not None and (not shape.elts or kernel.constant(shape.elts[-1]) != columns):
            return "an operand is repeated along its columns: repeat it along partitions only"
    for access in accesses(one):
        if access.dims is None:
            known = access.name in wide or access.name in whole
            if not known and access is not one.target and not kernel.is_column(access):
                return f"{access.name} is a whole tile from outside of the loop: index its columns"
        elif last_index(access) is not None and covers(access, columns):
            if access.name in wide:
                return f"{access.name} is read with an index: read the whole tile"
            if columns_in(kernel, access) is None:
                return f"the index of the columns of {access.name} is not written out: write a slice"
        elif not kernel.is_column(access):
            return f"this statement uses other columns of {access.name} than all {columns}: put it in a loop of its own"
    return ""


def _first(access: Access) -> tuple[Affine | None, bool]:
    """Return (first column of an access, whether the access is a single column). The first column is None for an
    access to the whole tile, and if it is not known.
    """
    last = last_index(access)
    return (None, False) if last is None or last.form is None else (last.form.start, last.width == 1)


def _pieces(kernel: KernelModule, wide: _Wide, variant: Variant) -> str:
    """Return the source with the loop's body divided: statements that do not depend on columns come first and run once, the
    others run in a new inner loop over pieces of the columns.
    """
    width, loop, language = int(variant.parameters["columns"]), wide.loop, prefix(kernel, "language")
    piece = kernel.fresh(f"{loop.variable}_piece")
    outer = loop.items[0].indent
    indent = outer + STEP
    lines = [outer + kernel.source[one.start : one.end] for one in wide.before if one.kind != "marker"]
    taken: list[str] = []
    body: list[str] = []
    for one in wide.body:
        carried = ""
        if one in wide.scans:
            carried = kernel.fresh("last_column", taken)
            taken.append(carried)
            rows = (_shape(kernel, one) or (128,))[0]
            start = kernel.text_of(one, "initial")
            lines += [outer + line for line in filled(kernel, carried, (rows, 1), start)]
        text = _narrowed(kernel, one, wide, width, piece, carried)
        body.append(indent + reindent(text, one.indent, indent))
        if carried:
            rows = (_shape(kernel, one) or (128,))[0]
            last = f"{kernel.text(one.made.node)}[0:{rows}, {width - 1}:{width}]"
            body.append(indent + copied(kernel, f"{carried}[0:{rows}, 0:1]", last))
    count = "sequential_range" if wide.scans else "affine_range"
    lines.append(f"{outer}for {piece} in {language}.{count}({wide.columns // width}):")
    edits = Edits(kernel.source)
    first = kernel.line_start(loop.items[0].start)
    edits.replace(first, kernel.after_line(loop.items[-1].end), "\n".join([*lines, *body]) + "\n")
    return edits.apply()


def _narrowed(kernel: KernelModule, one: Statement, wide: _Wide, width: int, piece: str, carried: str) -> str:
    """Return the text of the statement for the columns of one piece."""
    texts: dict[ast.AST, str] = {}
    if one.kind == "declaration":
        return changed(kernel, one.node, {elements(one.args["shape"])[-1]: str(width)})
    for access in accesses(one):
        first = f"{width} * {piece}"
        if access.name in wide.whole:
            rows = (kernel.extents(access) or (128,))[0]
            texts[access.node] = f"{access.name}[0:{rows}, {first}:{first} + {width}]"
        if covers(access, wide.columns):
            place, text = narrowed(kernel, access, first, width)
            texts[place] = text
    for call in [*_calls_in_operands(one), *([value_of(one)] if one.op == "broadcast_to" else [])]:
        shape = _broadcast_shape(call)
        if shape is not None:
            texts[shape.elts[-1]] = str(width)
    return changed(kernel, one.node, texts | ({one.args["initial"]: carried} if carried else {}))


RULE = TileColumns()
