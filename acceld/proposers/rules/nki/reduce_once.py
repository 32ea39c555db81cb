"""Reduce a whole row by one instruction, instead of its parts one by one.

Before, eight reductions of 512 columns and one of their results; after, one reduction of 4096 columns::

    for c in nl.affine_range(8):                                   for c in nl.affine_range(8):
        e[p, c, f] = nl.exp(x[p, 512 * c + f])                         e[p, 512 * c + f] = nl.exp(x[p, 512 * c + f])
        part[p, c] = nl.sum(e[p, c, f], axis=[1])                  total = nl.sum(e[p, nl.arange(4096)[None, :]], axis=[1])
    total = nl.sum(part[p, nl.arange(8)[None, :]], axis=[1])
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import changed, without_unused_buffers
from acceld.nki.source.joining import Joined, joined, laid_beside, obstacle_to_joining
from acceld.nki.source.matching import maker
from acceld.nki.source.nests import all_accesses, around, has_place, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import Access, Dim, Loop, Statement, elements, names_in
from acceld.proposers.rules.records import Place, Rule, Variant

_REDUCTIONS = {"tensor_reduce": "data", "sum": "x", "max": "x"}
"""Operations that reduce the columns of a tile, with the name of the argument that is the tile."""
_MOST_ELEMENTS = 16 * 1024
"""Greatest number of elements in each partition for one reduction."""


@dataclass(frozen=True)
class _Parts:
    """A reduction of each part of a row, and the statement that reduces the parts' results to one."""

    part: Statement
    tile: Access
    whole: Statement
    """The joining statement: a loop_reduce beside the reduction, or a reduction of the results after the loops."""
    joined: Joined
    left: tuple[str, ...] = ()
    """Variables of the loops over which a loop_reduce still has to join results."""


class ReduceOnce(Rule):
    """Replace the reductions of a row's parts by one reduction of the row, after the loops that make the parts."""

    name = "reduce_once"
    reason = (
        "The vector engine pays about 100 cycles for each instruction besides one cycle an element. Eight reductions of "
        "512 columns, and one of their results, cost a fifth more than one reduction of 4096."
    )
    source = "nki.isa.tensor_reduce: cost max(MIN_II, N); AWS NKI guides: about 100 cycles static overhead"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "tile_width"
    relieves = ("vector",)
    everywhere = True

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every reduction of parts of a row, with the reason if the parts can not be reduced at once."""
        for statement in kernel.statements:
            tile = _reduced_tile(kernel, statement)
            whole = None if tile is None else _whole(kernel, statement)
            if tile is None or whole is None:
                continue
            parts = _parts(kernel, statement, tile, whole)
            if isinstance(parts, str):
                yield self.refused(statement.line, parts, f"Reduce all parts of {tile.name} at once")
                continue
            loops = ", ".join(loop.variable for loop in parts.joined.loops)
            yield self.found(
                statement.line,
                partial(_at_once, kernel, parts),
                Variant(f"{parts.joined.elements} columns"),
                precondition=f"each iteration of {loops} reduces its own part of {tile.name}, which nothing changes until "
                "all parts are made",
                plan=f"Line {statement.line} reduces a part of {tile.name} in every iteration of {loops}, and line "
                f"{whole.line} joins the results. Reduce all {parts.joined.elements} columns at once after the loop.",
                benefit=0.15,
                gain_percent=(0.0, 15.0),
            )


def _reduced_tile(kernel: KernelModule, statement: Statement) -> Access | None:
    """Return the tile in SBUF whose columns a statement reduces to one; None for other statements."""
    if statement.kind != "op" or statement.op not in _REDUCTIONS or statement.augmented or kernel.mask(statement):
        return None
    tile, target = statement.reads.get(_REDUCTIONS[statement.op]), statement.target
    if tile is None or target is None or len(statement.mentions) != 1 or kernel.space_of(tile.name) != "sbuf":
        return None
    if not kernel.folds_columns(statement) or statement.second is not None:
        return None
    return tile if statement.parent is not None and len(kernel.extents(tile) or ()) == 2 else None


def _operator(kernel: KernelModule, statement: Statement) -> str:
    """Return the name of the operation by which a statement reduces."""
    name = kernel.opname(statement.args.get("op")) if "op" in statement.args else statement.op
    return {"max": "maximum", "sum": "add", "min": "minimum"}.get(name, name)


def _whole(kernel: KernelModule, part: Statement) -> Statement | None:
    """Return the statement that joins the results of the reduction ``part`` in all iterations into one result; None if
    no statement does.

    The statement must be the only reader of these results, and apply the same operation.
    """
    name = part.made.name
    readers = kernel.readers(name)
    if len(readers) != 1 or kernel.writers(name) != [part] or name in kernel.ambiguous:
        return None
    whole = readers[0]
    joins = whole.op == "loop_reduce" or whole.op in _REDUCTIONS
    if whole.kind != "op" or not joins or whole.augmented or whole.start < part.start or kernel.mask(whole):
        return None
    return whole if _operator(kernel, whole) == _operator(kernel, part) and whole.target is not None else None


def _parts(kernel: KernelModule, part: Statement, tile: Access, whole: Statement) -> _Parts | str:
    """Return the parts of a row that one instruction can reduce. If one instruction can not reduce them, return the
    reason as text.
    """
    where = f"line {part.line}:"
    if kernel.text_of(part, "negate") not in ("", "False") or not _is_float32(kernel, part, whole):
        return f"{where} the result of one part is negated or rounded: negate only the final result, and keep the results of parts in float32"
    loops = _loops_of(kernel, part, whole)
    if isinstance(loops, str):
        return f"{where} {loops}"
    reasons = []
    for count in range(len(loops), 0, -1):
        # the loops that are nested directly around the reduction, outermost first
        chosen = tuple(reversed(loops[:count]))
        one = joined(kernel, tile, chosen)
        reason = one if isinstance(one, str) else obstacle_to_joining(kernel, one)
        if not isinstance(one, str) and not reason:
            reason = _problem(kernel, part, tile, whole, one)
            left = tuple(loop.variable for loop in _reduced_over(kernel, part, whole) if loop not in chosen)
            if not reason and whole.op != "loop_reduce" and count < len(loops):
                reason = f"{tile.name} does not hold all parts side by side: let its columns depend on every loop"
            if not reason and left and not _droppable(kernel, part, chosen):
                reason = "the results are shared by iterations of the other loops: index them by those loops"
            if not reason:
                return _Parts(part, tile, whole, one, left)
        reasons.append(reason)
    return reasons[0] if reasons[0].startswith("line ") else f"{where} {reasons[0]}"


def _is_float32(kernel: KernelModule, part: Statement, whole: Statement) -> bool:
    """Return True if neither the reductions of parts nor the statement that joins them round to less than float32."""
    given = [kernel.text_of(one, "dtype") for one in (part, whole)]
    names = [one.target.name for one in (part, whole) if one.target is not None]
    given += map(kernel.declared_dtype, names)
    return all(not text or text.endswith("float32") for text in given)


def _reduced_over(kernel: KernelModule, part: Statement, whole: Statement) -> list[Loop]:
    """Return the loops over which the results are joined, innermost first."""
    if whole.op == "loop_reduce":
        named = {name.id for name in names_in(whole.args["loop_indices"])}
        return [loop for loop in around(part) if loop.variable in named]
    return [loop for loop in around(part) if not inside(whole, loop)]


def _loops_of(kernel: KernelModule, part: Statement, whole: Statement) -> list[Loop] | str:
    """Return the loops directly around the reduction ``part`` whose iterations ``whole`` joins, innermost first; or,
    as text, why there are none.
    """
    over = _reduced_over(kernel, part, whole)
    if whole.op == "loop_reduce":
        joins = whole.reads.get("x")
        if joins is None or not joins.same_as(part.made) or whole.parent is not part.parent:
            return "the loop_reduce that joins the sums is in another loop: put it in the loop of the sum"
        if not all(has_place(part.made, loop) for loop in over):
            return "the reduction's result is shared by iterations: index it by every loop around"
    elif not over or whole.parent is not over[-1].parent or not _covers(kernel, part, whole, over):
        return "the statement that joins the reduction's results is not right after the loops that make them: move the statement there"
    loops = []
    for loop in around(part):
        if loop not in over or loop.kind not in ("affine_range", "range", "sequential_range", "static_range"):
            break
        loops.append(loop)
    return (
        loops
        or "the loop around the reduction is not one over which its results are joined: reduce directly in a loop whose results are joined"
    )


def _covers(kernel: KernelModule, part: Statement, whole: Statement, over: Sequence[Loop]) -> bool:
    """Return True if ``whole`` reads exactly the results that ``part`` writes in the loops ``over``."""
    read = whole.reads.get(_REDUCTIONS[whole.op])
    if read is None or not kernel.folds_columns(whole) or len(whole.mentions) != 1:
        return False
    made = joined(kernel, part.made, tuple(reversed(over)))
    if isinstance(made, str) or made.folded or part.made.dims is None:
        return False
    buffer = kernel.buffers[read.name]
    if read.dims is None:
        everything = list(buffer.shape[buffer.partition_axis + 1 :])
        return list(made.widths) == everything and all(start == Affine() for start in made.starts)
    if len(read.dims) != len(part.made.dims):
        return False
    pairs = zip(read.dims[made.partition + 1 :], made.widths, made.starts, strict=True)
    before = zip(read.dims[: made.partition + 1], part.made.dims[: made.partition + 1], strict=True)
    same = all(one.form is not None and _as_slice(one) == _as_slice(other) for one, other in before)
    return same and all(_reaches(dim, width, start) for dim, width, start in pairs)


def _as_slice(dim: Dim) -> tuple[Affine, int | None] | None:
    """Return the first element and the number of elements of an index; None if they are not known."""
    if dim.form is None or dim.width is None:
        return None
    terms = tuple(term for term in dim.form.terms if not term[0].is_range)
    return Affine(dim.form.constant, terms), dim.width


def _reaches(dim: Dim, width: int, start: Affine) -> bool:
    """Return True if an index covers ``width`` consecutive elements from ``start`` on."""
    if dim.form is None:
        return False
    ranges = [(symbol.extent, factor) for symbol, factor in dim.form.terms if symbol.is_range]
    neighbors = ranges in ([], [(dim.width, 1)])
    return neighbors and _as_slice(dim) == (start, width)


def _problem(kernel: KernelModule, part: Statement, tile: Access, whole: Statement, one: Joined) -> str:
    """Return the reason why the reduction can not wait for the end of its loops; empty if it can."""
    outermost = one.loops[0]
    if one.elements > _MOST_ELEMENTS:
        return f"{one.elements} columns are more than one instruction takes: reduce a part of them at a time"
    made = maker(kernel, part, tile)
    if isinstance(made, str):
        return made
    if kernel.mask(made):
        return f"line {made.line} makes only a part of {tile.name}: make the whole tile"
    if inside(kernel.buffers[tile.name].declaration, outermost):
        return f"{tile.name} is declared in the loop, and needed after it: declare it before the loop"
    if whole.op == "loop_reduce":
        if any(inside(reader, outermost) for reader in kernel.readers(whole.made.name)):
            return f"line {whole.line}: the reduction's result is read before the loops have ended: read it after them"
        variables = {loop.variable for loop in one.loops}
        if whole.made.variables is None or variables & whole.made.variables:
            return f"line {whole.line}: the joined result is indexed by the loops that make its parts: write one result after these loops"
    return ""


def _droppable(kernel: KernelModule, part: Statement, loops: Sequence[Loop]) -> bool:
    """Return True if, for each of ``loops``, one index of the reduction's result is just the loop's variable. Then
    these indices can become zero.
    """
    assert part.target is not None and part.target.dims is not None
    found = all_accesses(kernel, part.target.name)
    forms = [dim.form for dim in part.target.dims]
    return found is not None and all(Affine.of_variable(loop.variable) in forms for loop in loops)


def _at_once(kernel: KernelModule, parts: _Parts, _: Variant) -> str:
    """Return the source with one reduction of the whole row after the loops that make its parts."""
    edits = Edits(kernel.source)
    part, whole, one = parts.part, parts.whole, parts.joined
    laid_beside(kernel, one, edits, without=[part])
    edits.delete_lines(part.start, part.end)
    if whole.op != "loop_reduce":
        _read_instead(kernel, whole, one, edits)
        return without_unused_buffers(edits.apply(), kernel)
    edits.delete_lines(whole.start, whole.end)
    outermost = one.loops[0]
    assert part.target is not None and whole.target is not None
    result = kernel.text(whole.target.node)
    if parts.left:
        result = _first_place(kernel, part.target, one.loops)
    lines = [_reduction(kernel, part, one, result)]
    if parts.left:
        left = f"[{', '.join(parts.left)}]"
        lines.append(changed(kernel, whole.node, {whole.args["x"]: result, whole.args["loop_indices"]: left}))
    text = "".join(f"{outermost.indent}{line}\n" for line in lines)
    edits.insert(kernel.after_line(outermost.end), text)
    return without_unused_buffers(edits.apply(), kernel)


def _read_instead(kernel: KernelModule, whole: Statement, one: Joined, edits: Edits) -> None:
    """Add to ``edits`` the changes by which ``whole`` reads the row itself instead of the results of its parts."""
    edits.replace(*kernel.span(whole.args[_REDUCTIONS[whole.op]]), one.text(kernel))
    if one.axes > 2:
        edits.replace(*kernel.span(whole.args["axis"]), _axes(one))


def _axes(one: Joined) -> str:
    return f"[{', '.join(str(axis) for axis in range(1, one.axes))}]"


def _reduction(kernel: KernelModule, part: Statement, one: Joined, result: str) -> str:
    """Return the text of a reduction of all parts of the row, which writes ``result``."""
    texts: dict[ast.AST, str] = {part.made.node: result, part.args[_REDUCTIONS[part.op]]: one.text(kernel)}
    return changed(kernel, part.node, texts | ({part.args["axis"]: _axes(one)} if one.axes > 2 else {}))


def _first_place(kernel: KernelModule, access: Access, loops: Sequence[Loop]) -> str:
    """Return the text of an access in which each index that is a variable of ``loops`` is zero."""
    assert access.dims is not None
    variables = [Affine.of_variable(loop.variable) for loop in loops]
    indices = [
        "0" if dim.form in variables else kernel.text(index)
        for dim, index in zip(access.dims, elements(access.node), strict=True)
    ]
    return f"{access.name}[{', '.join(indices)}]"


RULE = ReduceOnce()
