"""Add up the products of all iterations in PSUM, instead of adding each iteration's sum in SBUF.

The loop moves into the loops that it contains, to the work before the sum::

    for s in nl.sequential_range(4):                 for s in nl.affine_range(4):
        w[s, p, f] = nl.load(...)                        w[s, p, f] = nl.load(...)
        for m in nl.affine_range(8):                 for m in nl.affine_range(8):
            for k in nl.affine_range(5):                 for s in nl.affine_range(4):
                part[s, m, p, f] += nc_matmul(...)           for k in nl.affine_range(5):
            total[m, p, f] = nl.loop_reduce(                     part[m, p, f] += nc_matmul(...)
                part[s, m, p, f], np.add, [s])           total[m, p, f] = nl.copy(part[m, p, f])

In the current API the product overwrites in the first iteration of all loops alone: ``accumulate=k > 0`` becomes
``accumulate=s + k > 0``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import STEP, comments, emitted, header
from acceld.nki.source.effects import parallel, same_range, understood
from acceld.nki.source.nests import (
    all_accesses,
    around,
    has_place,
    inside,
    place_of,
    substance,
    without_element,
)
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import copied, prefix
from acceld.nki.source.syntax import PRODUCTS, Access, Item, Loop, Statement, elements, flatten, names_in
from acceld.proposers.rules.nki.hoist_work import hoisted
from acceld.proposers.rules.profiles import spilled
from acceld.proposers.rules.records import Place, Rule, Variant

_ZEROS = ("0", "0.0")
_HOISTED = "after repeated work"
"""Name of the variant that also moves work before the outermost loop, if every iteration of that loop repeats it."""


@dataclass(frozen=True)
class _Sum:
    """A loop whose iterations add their products, made in PSUM, to a tile in SBUF."""

    loop: Loop
    addition: Statement
    total: Access
    part: Access
    """The products of one iteration, in PSUM."""
    place: int | None
    """Position of the loop's variable among the indices of ``part``; None if ``part`` is declared beside the addition.
    """


class SumInPsum(Rule):
    """Move the loop that keeps a running sum in SBUF to the place where the added products are made, so that the products
    accumulate in PSUM.
    """

    name = "sum_in_psum"
    reason = (
        "The tensor engine adds products up in PSUM at no cost. A running sum in SBUF costs an addition on the vector "
        "engine for every part, and all sums of an outer loop stay live at once: more than 192 KiB a partition spill to HBM."
    )
    source = "nki.isa.nc_matmul: accumulation in PSUM; AWS NKI architecture guide: PSUM, SBUF size"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "loop_order"
    relieves = ("vector", "dma")

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every loop that adds products to a running sum in SBUF, with the reason if the loop can not be moved."""
        for addition in kernel.statements:
            found = _running_sum(kernel, addition)
            if found is None:
                continue
            loop, total, part = found.loop, found.total.name, found.part.name
            yield self.answer(
                addition.line,
                _obstacle(kernel, found),
                f"Add the products of all iterations of {loop.variable} up in PSUM",
                partial(_moved, kernel, found),
                *(Variant(_HOISTED) for _ in around(loop)[-1:]),
                Variant("at the products"),
                precondition=f"iterations of {loop.variable} share nothing but {total}, which begins with zeros, and the "
                "loops between are parallel",
                plan=f"Every iteration of {loop.variable} adds {part} to {total} in SBUF, so that {total} stays live over "
                f"all of them. Move {loop.variable} inside, to the products, so that {part} holds the whole sum.",
                benefit=0.5 if spilled(profile) else 0.3,
                gain_percent=(0.0, 25.0),
                key=loop.variable,
            )


def _running_sum(kernel: KernelModule, addition: Statement) -> _Sum | None:
    """Return the running sum to which a statement adds the products of an iteration; None for other statements."""
    total, part = addition.target, _added(kernel, addition)
    if addition.kind != "op" or total is None or part is None or kernel.mask(addition):
        return None
    if kernel.space_of(total.name) != "sbuf" or part.name not in kernel.buffers or total.name not in kernel.buffers:
        return None
    if kernel.buffers[part.name].space != "psum":
        return None
    loops = [loop for loop in around(addition) if not inside(kernel.buffers[total.name].declaration, loop)]
    if addition.op == "loop_reduce":
        named = {name.id for name in names_in(addition.args["loop_indices"])}
        loops = [loop for loop in loops if {loop.variable} == named]
    else:
        loops = [loop for loop in loops if loop.variable not in (total.variables or ())]
    if len(loops) != 1:
        return None
    place = place_of(kernel, part.name, loops[0])
    return _Sum(loops[0], addition, total, part, place)


def _added(kernel: KernelModule, addition: Statement) -> Access | None:
    """Return the tile that a statement adds to its target; None if the statement does anything else."""
    if addition.op == "loop_reduce" and not addition.augmented:
        fits = kernel.opname(addition.args.get("op")) == "add" and "loop_indices" in addition.args
        return addition.reads.get("x") if fits else None
    if addition.op == "accumulate":
        return addition.reads.get("x")
    binary = kernel.binary(addition)
    if binary is None or binary.op != "add" or addition.augmented or addition.target is None:
        return None
    left, right = addition.reads.get(binary.left), addition.reads.get(binary.right)
    if left is not None and left.same_as(addition.target):
        return right
    return left if right is not None and right.same_as(addition.target) else None


def _obstacle(kernel: KernelModule, found: _Sum) -> str:
    """Return the reason why the loop can not move to the products; empty if it can."""
    loop, addition = found.loop, found.addition
    if loop.kind not in ("affine_range", "sequential_range") or loop.trips is None or loop.trips < 2:
        return f"line {loop.line}: {loop.variable} is a {loop.kind}, or its length is not known: use affine_range with a number"
    between = [one for one in around(addition) if inside(one, loop)]
    problem = parallel(between) or next(filter(None, (same_range(one, [loop.variable]) for one in between)), "")
    problem = problem or understood([loop])
    return problem or _problem_of_total(kernel, found) or _problem_of_part(kernel, found) or _shared(kernel, found)


def _problem_of_total(kernel: KernelModule, found: _Sum) -> str:
    """Return the reason why the total may be more than the sum of the loop's products; empty if it is exactly that
    sum.
    """
    name, declared = found.total.name, kernel.buffers[found.total.name].declaration
    where = f"line {found.addition.line}: {name}"
    uses = all_accesses(kernel, name)
    if uses is None or name in kernel.ambiguous:
        return f"{where} may have a second name, an alias of the same buffer: use one name for each buffer"
    if any(inside(one, found.loop) and one is not found.addition for one, _ in uses):
        return f"{where} is also used in the loop: use it after the loop"
    if not _is_float32(kernel, declared) or not _is_float32(kernel, found.addition, otherwise=True):
        return f"{where} is not a sum in float32: declare it as float32"
    if not _places(found, found.total, declared):
        return f"{where} is shared by iterations of the other loops: index it by those loops"
    if found.addition.op == "loop_reduce":
        return ""
    zeros = declared.op == "zeros" or (declared.op == "full" and kernel.text_of(declared, "fill_value") in _ZEROS)
    if kernel.writers(name) != [found.addition] if zeros else _clearing(kernel, found) is None:
        return f"{where} does not begin with zeros: set all of it to zero, once, before loop {found.loop.variable}"
    return ""


def _clearing(kernel: KernelModule, found: _Sum) -> Statement | None:
    """Return the statement that fills all of the total with zeros before the loop.

    None means that there is no such statement, or that another statement besides the addition writes the total.
    """
    others = [one for one in kernel.writers(found.total.name) if one is not found.addition]
    if len(others) != 1 or others[0].op != "memset" or kernel.number(others[0].args.get("value")) != 0:
        return None
    (one,) = others
    before = one.start < found.loop.start and (one.parent is None or inside(found.loop, one.parent))
    return one if before and one.made.dims is None else None


def _problem_of_part(kernel: KernelModule, found: _Sum) -> str:
    """Return why the term that an iteration adds may hold something besides the products of that iteration; empty
    if the term holds only these products.
    """
    name, declared = found.part.name, kernel.buffers[found.part.name].declaration
    where = f"line {found.addition.line}: {name}"
    uses = all_accesses(kernel, name)
    if uses is None or name in kernel.ambiguous:
        return f"{where} may have a second name, an alias of the same buffer: use one name for each buffer"
    if declared.op != ("ndarray" if kernel.api == "nki" else "zeros") or not _is_float32(kernel, declared):
        return f"{where} is not a sum in float32 that begins with zeros: declare it as float32, with zeros"
    if found.place is None and declared.parent is not found.addition.parent:
        return f"{where} is shared by all iterations of {found.loop.variable}: declare it beside the addition"
    if not _places(found, found.part, declared):
        return f"{where} is shared by iterations of the other loops: index it by those loops"
    for one, access in uses:
        if one is found.addition:
            continue
        adds = _first_of(kernel, found, one) is not None if kernel.api == "nki" else one.augmented
        product = one.op in PRODUCTS and adds and kernel.text_of(one, "is_transpose") != "True"
        ours = found.addition.parent is None or inside(one, found.addition.parent)
        if not product or one.kind != "op" or kernel.mask(one) or not access.same_as(found.part):
            return f"line {one.line}: {name} holds more than the sum of one line's products: write other values to another tile"
        if not ours or one.start > found.addition.start:
            return f"line {one.line}: the product is not made before the addition, in the same iteration: make it there"
    return ""


def _first_of(kernel: KernelModule, found: _Sum, product: Statement) -> str | None:
    """Return the condition under which ``product`` adds to the part instead of overwriting it, once the loop of the sum
    is around the product. The result is None if another statement writes the part too, or if the part does not begin
    anew in each iteration of that loop.
    """
    declared = kernel.buffers[found.part.name].declaration
    inner = [loop.variable for loop in reversed(around(product)) if not inside(declared, loop)]
    given = product.args.get("accumulate")
    match given:
        case None:
            begins = True
        case ast.Constant(value=False):
            begins = not inner
        case ast.Compare(left=left, ops=[ast.Gt()], comparators=[ast.Constant(value=0)]):
            form = kernel.affine(left)
            begins = form is not None and dict.fromkeys(form.variables) == dict.fromkeys(inner) and form.constant == 0
            begins = begins and form is not None and all(factor > 0 for _, factor in form.terms)
        case _:
            begins = False
    alone = kernel.writers(found.part.name) == [product]
    return f"{' + '.join([found.loop.variable, *inner])} > 0" if begins and alone else None


def _is_float32(kernel: KernelModule, statement: Statement, otherwise: bool = False) -> bool:
    given = kernel.text_of(statement, "dtype")
    return given.endswith("float32") if given else otherwise


def _places(found: _Sum, access: Access, declared: Statement) -> bool:
    """Return True if each iteration of the loops between declaration and addition uses elements of its own.

    The loop of the sum does not count.
    """
    loops = [one for one in around(found.addition) if one is not found.loop and not inside(declared, one)]
    return all(has_place(access, one) for one in loops)


def _shared(kernel: KernelModule, found: _Sum) -> str:
    """Return the reason why iterations of the loop may depend on each other; empty if they do not.

    Iterations share nothing in a buffer that has one tile for each of them. A tile that the loop declares must be used
    within a single one of the pieces into which the loop is divided.
    """
    loop = found.loop
    pieces = _pieces(loop.items, found.addition)
    written = {access.name for one in loop.statements() for access in one.results} - {found.total.name, found.part.name}
    for name in sorted(written):
        uses = all_accesses(kernel, name)
        line = next(one.line for one in loop.statements() if one.result(name) is not None)
        where = f"line {line}: {name}"
        if name in kernel.ambiguous or kernel.space_of(name) == "hbm":
            return f"{where} is stored, or may have another name: store after the sum, and use one name"
        buffer = kernel.buffers.get(name)
        if buffer is not None and not inside(buffer.declaration, loop):
            if not _is_apart(uses, loop):
                return f"{where} is shared by all iterations of {loop.variable}: index it by {loop.variable}"
            continue
        users = [*kernel.writers(name), *kernel.readers(name), *([buffer.declaration] if buffer is not None else ())]
        if uses is None and buffer is not None:
            return f"{where} may have a second name, an alias of the same buffer: use one name for each buffer"
        if not any(all(one in set(flatten(piece)) for one in users) for piece in pieces):
            return f"{where} is used both before the products and with them: give it one tile for each {loop.variable}"
    return ""


def _is_apart(uses: Sequence[tuple[Statement, Access]] | None, loop: Loop) -> bool:
    """Return True if each iteration of a loop uses its own part of a buffer: in every access, the index at one
    position is the loop's variable. Return False if ``uses`` is None.
    """
    variable = Affine.of_variable(loop.variable)
    own = [
        {i for i, d in enumerate(access.dims or ()) if d.form == variable and not d.extent} for _, access in uses or ()
    ]
    return bool(own and set.intersection(*own))


def _pieces(items: Sequence[Item], addition: Statement) -> list[tuple[Item, ...]]:
    """Return the pieces into which a loop's body is divided: the items before and after the addition in the innermost
    loop that contains the addition; and, for each loop around that one, the items before and after the inner loop.
    """
    before, item, after = _cut(items, addition)
    middle = _pieces(item.items, addition) if isinstance(item, Loop) else []
    return [before, *middle, after]


def _cut(items: Sequence[Item], addition: Statement) -> tuple[tuple[Item, ...], Item, tuple[Item, ...]]:
    """Return the items before the item that is or contains the addition, that item, and the items after it."""
    ours = {addition, *around(addition)}
    at = next(number for number, item in enumerate(items) if item in ours)
    return tuple(items[:at]), items[at], tuple(items[at + 1 :])


def _moved(kernel: KernelModule, found: _Sum, variant: Variant) -> str:
    """Return the source with the loop at the products, and a copy in place of the addition."""
    around_it = around(found.loop)
    number = kernel.loops.index(around_it[-1]) if around_it else 0
    source = _summed(kernel, found)
    if variant.name != _HOISTED:
        return source
    moved = kernel.reread(source)
    return hoisted(moved, moved.loops[number])


def _summed(kernel: KernelModule, found: _Sum) -> str:
    number = kernel.statements.index(found.addition)
    prepared = _adding(kernel, found) if kernel.api == "nki" else _without_place(kernel, found)
    if prepared != kernel.source:
        kernel = kernel.reread(prepared)
        addition = kernel.statements[number]
        part = _added(kernel, addition)
        assert part is not None
        loop = next(one for one in around(addition) if one.variable == found.loop.variable)
        found = _Sum(loop, addition, addition.made, part, None)
    loop = found.loop
    edits = Edits(kernel.source)
    text = _written(kernel, found, loop.items, loop.indent)
    edits.replace(kernel.line_start(loop.start), kernel.after_line(loop.end), text)
    declared, clearing = kernel.buffers[found.total.name].declaration, _clearing(kernel, found)
    if clearing is not None and _is_written_whole(kernel, found):
        edits.delete_lines(clearing.start, clearing.end)
    elif declared.op != "ndarray" and _is_written_whole(kernel, found):
        given = {name: kernel.text_of(declared, name) for name in ("shape", "dtype", "buffer")}
        arguments = ", ".join([given.pop("shape"), *(f"{name}={text}" for name, text in given.items() if text)])
        edits.replace(
            declared.start, declared.end, f"{found.total.name} = {prefix(kernel, 'language')}.ndarray({arguments})"
        )
    return edits.apply()


def _is_written_whole(kernel: KernelModule, found: _Sum) -> bool:
    """Return True if the copies write every element of the total, so that it need not begin with zeros."""
    shape = kernel.buffers[found.total.name].shape
    trips = {loop.variable: loop.trips for loop in around(found.addition) if loop is not found.loop}
    for dim, extent in zip(found.total.dims or (), shape, strict=False):
        if dim.full:
            continue
        if dim.form is None or dim.form.constant or len(dim.form.terms) > 1:
            return False
        symbol, factor = dim.form.terms[0] if dim.form.terms else (None, 1)
        count = dim.extent if symbol is None else symbol.extent if symbol.is_range else trips.pop(symbol.name, None)
        if factor != 1 or count != extent or (symbol is not None and dim.extent is not None):
            return False
    return True


def _adding(kernel: KernelModule, found: _Sum) -> str:
    """Return the source in which the product adds to the products of the sum's earlier iterations."""
    edits = Edits(kernel.source)
    (product,) = kernel.writers(found.part.name)
    condition, given = _first_of(kernel, found, product), product.args.get("accumulate")
    start, end = kernel.span(given if given is not None else [*product.args.values()][-1])
    edits.replace(
        start if given is not None else end, end, f"{'' if given is not None else ', accumulate='}{condition}"
    )
    return edits.apply()


def _without_place(kernel: KernelModule, found: _Sum) -> str:
    """Return the source in which the buffer of the products has a single element for all iterations of the sum's loop,
    instead of one for each.
    """
    edits = Edits(kernel.source)
    if found.place is None:
        return kernel.source
    edits.replace(*without_element(kernel, kernel.buffers[found.part.name].extents, found.place), "")
    for _, access in all_accesses(kernel, found.part.name) or ():
        edits.replace(*without_element(kernel, elements(access.node), found.place), "")
    return edits.apply()


def _written(kernel: KernelModule, found: _Sum, items: Sequence[Item], indent: str) -> str:
    """Return the lines of ``items``, which contain the addition, with each piece in a loop of its own."""
    declared = kernel.buffers[found.part.name].declaration
    before, item, after = _cut(items, found.addition)
    text = emitted(kernel, [declared], indent) if declared in before else ""
    text += _repeated(kernel, found.loop, [one for one in before if one is not declared], indent)
    text += comments(kernel, item, indent)
    if isinstance(item, Loop):
        text += f"{indent}{header(kernel, item)}\n" + _written(kernel, found, item.items, indent + STEP)
    else:
        text += f"{indent}{copied(kernel, kernel.text(found.total.node), kernel.text(found.part.node))}\n"
    return text + _repeated(kernel, found.loop, after, indent)


def _repeated(kernel: KernelModule, loop: Loop, items: Sequence[Item], indent: str) -> str:
    """Return the lines of ``items`` inside a new loop with the variable and the range of ``loop``."""
    if not substance(items):
        return ""
    assert isinstance(loop.node.iter, ast.Call)
    count = ", ".join(kernel.text(argument) for argument in loop.node.iter.args)
    head = f"{indent}for {loop.variable} in {prefix(kernel, 'language')}.affine_range({count}):\n"
    return head + emitted(kernel, items, indent + STEP, None, loop.variable)


RULE = SumInPsum()
