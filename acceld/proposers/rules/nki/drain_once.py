"""Copy the results of several products out of PSUM by one instruction.

Before, four copies of 128 columns; after, one copy of 512::

    for i in nl.affine_range(4):                           for i in nl.affine_range(4):
        turned = nisa.nc_matmul(x[p, 128 * i + c], ...)        turned[p, 128 * i + c] = nisa.nc_matmul(x[p, 128 * i + c], ...)
        y[i, p, c] = nl.copy(turned)                       y[p, nl.arange(512)[None, :]] = nl.copy(turned[p, nl.arange(512)[None, :]])
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from acceld.editing import Edits, reindent
from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import STEP, changed, emitted, header, read, without_unused_buffers, written
from acceld.nki.source.effects import understood
from acceld.nki.source.joining import Joined, joined, laid_beside, obstacle_to_joining
from acceld.nki.source.moves import expanded
from acceld.nki.source.nests import all_accesses, inside, substance, without_element
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import prefix, ranges, rendered, span
from acceld.nki.source.splitting import split_loop
from acceld.nki.source.syntax import (
    PRODUCTS,
    TRANSFERS,
    Access,
    Buffer,
    Dim,
    Item,
    Loop,
    Statement,
    accesses,
    flatten,
)
from acceld.proposers.rules.nki.column_steps import ANY_COLUMNS, ONE_COLUMN
from acceld.proposers.rules.records import Place, Rule, Variant

_PRODUCTS = (*PRODUCTS, "nc_transpose")
_ELEMENTWISE = ANY_COLUMNS - frozenset(TRANSFERS)
_BANK_COLUMNS = {"float32": 512, "bfloat16": 1024}
"""Number of columns in one bank of PSUM, by dtype of the results."""


@dataclass(frozen=True)
class _Bank:
    """The layout in which the results of one loop's products lie side by side in one bank of PSUM."""

    name: str
    rows: int
    columns: int
    """Number of columns of one result."""
    place: int | None = None
    """Position of the index over iterations, if the buffer is declared before the loop; None for a tile that each
    iteration makes.
    """
    blocks: tuple[str, ...] = ()
    """Texts of the indices before the partition index, once the iterations share a bank."""
    declaration: Statement | None = None
    """The declaration of the tile, if each iteration declares it; None otherwise."""


@dataclass(frozen=True)
class _Drain:
    """A loop whose iterations make results in PSUM and then work on them element-wise."""

    kernel: KernelModule
    """The kernel with this loop: the given kernel, or its copy in which the tiles of the work have an element for each iteration."""
    loop: Loop
    before: tuple[Item, ...]
    """The products, and the items before them."""
    work: tuple[Statement, ...]
    """Element-wise work on the results."""
    after: tuple[Item, ...]
    banks: dict[str, _Bank]
    tiles: dict[ast.AST, Joined]
    """Tiles in SBUF that the work uses in all iterations, by the node of the access."""
    columns: int
    most: int
    """Number of columns that a bank holds."""

    @property
    def parts(self) -> tuple[int, int] | None:
        """Return (number of tiles, columns of each tile) if the element-wise work needs a separate index that counts
        iterations.

        Return None if all tiles lie side by side, so that the work needs no such index.
        """
        beside = all(tile.axes == 2 for tile in self.tiles.values())
        return None if beside else (self.loop.trips or 1, self.columns)

    @property
    def together(self) -> int:
        """Return the number of iterations whose results share a bank of PSUM.

        The number is the greatest divisor of the loop's number of iterations for which these results fit into the bank.
        """
        trips = self.loop.trips or 1
        most = min(trips, self.most // self.columns)
        return max(count for count in range(1, most + 1) if trips % count == 0)


class DrainOnce(Rule):
    """Let one instruction copy, or process element by element, the results of several products in PSUM."""

    name = "drain_once"
    reason = (
        "The vector engine pays about 100 cycles for each instruction besides one cycle an element, so four copies of 128 "
        "columns out of PSUM take nearly as long as two of 512. A bank of PSUM holds 512 columns of float32, or 1024 of bfloat16."
    )
    source = "AWS NKI guides: about 100 cycles static overhead; PSUM banks of 2 KiB a partition"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "tile_width"
    relieves = ("vector", "scalar")
    everywhere = True

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every loop that makes products and then works on their results, with the reason if the work of several
        iterations can not be one instruction.
        """
        for loop in kernel.loops:
            found = _drain(kernel, loop)
            if found is None:
                continue
            if isinstance(found, str):
                yield self.refused(
                    loop.line, found, f"Copy the results of several iterations of {loop.variable} at once"
                )
                continue
            names, lines = ", ".join(sorted(found.banks)), ", ".join(str(one.line) for one in _cut(kernel, loop)[1])
            width = found.together * found.columns
            yield self.found(
                loop.line,
                partial(_at_once, found),
                Variant(f"{width} columns"),
                precondition=f"the work in line {lines} is element-wise, and each iteration of {loop.variable} has its own tiles",
                plan=f"Every iteration of {loop.variable} copies {found.columns} columns of {names} out of PSUM. Let "
                f"{found.together} iterations share a bank, and copy its {width} columns by one instruction.",
                benefit=0.15,
                gain_percent=(0.0, 15.0),
            )


def _drain(kernel: KernelModule, loop: Loop) -> _Drain | str | None:
    """Return the element-wise work that one instruction could do for several iterations of a loop; None if the loop has
    no such work. If one instruction can not do the work, return the reason as text.
    """
    if loop.kind != "affine_range" or loop.trips is None or loop.trips < 2:
        return None
    before, work, after = _cut(kernel, loop)
    declared = [item for item in before if isinstance(item, Statement) and item.kind == "declaration"]
    results = {name for name in read(work) & written(before) if kernel.space_of(name) == "psum"}
    if not results:
        return None
    banks: dict[str, _Bank] = {}
    for name in sorted(results):
        bank = _bank(kernel, loop, name, declared)
        if isinstance(bank, str):
            return f"line {work[0].line}: {bank}"
        banks[name] = bank
    columns = {bank.columns for bank in banks.values()}
    most = min(_BANK_COLUMNS.get(kernel.dtype_of(name), _BANK_COLUMNS["float32"]) for name in banks)
    if len(columns) != 1 or 2 * max(columns) > most:
        return None
    handed = sorted({one.made.name for one in declared if one.made.name in written(work) & read(after)})
    if kernel.api == "nki" and handed:
        return _drain_with_places(kernel, loop, handed, min(loop.trips, most // max(columns)))
    tiles: dict[ast.AST, Joined] = {}
    own: set[str] = set()
    for one in work:
        problem = _problem(kernel, loop, one, banks, own, tiles)
        if problem:
            return problem if problem.startswith("line ") else f"line {one.line}: {problem}"
    problem = understood([*before, *after])
    if problem:
        return problem
    problem = _dependence(kernel, loop, before, work, after, banks, own)
    if problem:
        return f"line {loop.line}: {problem}"
    found = _Drain(kernel, loop, before, work, after, banks, tiles, columns.pop(), most)
    mixed = any(tile.axes == 2 for tile in tiles.values()) or any(bank.declaration is None for bank in banks.values())
    if kernel.api == "nki" and found.parts is not None and mixed:
        return f"line {work[0].line}: some tiles of this work lie side by side, and others have an axis for the iterations: give all tiles the same layout"
    return found if found.together > 1 else None


def _cut(kernel: KernelModule, loop: Loop) -> tuple[tuple[Item, ...], tuple[Statement, ...], tuple[Item, ...]]:
    """Divide a loop's body into three parts: the items up to the last product, the element-wise work that reads the
    products, and the items after that work.

    If several divisions are possible, return the last one. If none is possible, the second and the third part are
    empty.
    """
    items = [item for item in loop.items if substance([item])]
    for last in reversed(range(len(items))):
        work: list[Statement] = []
        for item in items[last + 1 :] if _has_product(items[last]) else ():
            if not isinstance(item, Statement) or item.kind != "op" or item.op not in _ELEMENTWISE:
                break
            work.append(item)
        if any(kernel.space_of(name) == "psum" for name in read(work) & written(items[: last + 1])):
            return tuple(items[: last + 1]), tuple(work), tuple(items[last + 1 + len(work) :])
    return tuple(items), (), ()


def _drain_with_places(kernel: KernelModule, loop: Loop, names: Sequence[str], together: int) -> _Drain | str | None:
    """Return the work that one instruction could do for up to ``together`` iterations; None if no number of 2 to
    ``together`` divides the loop's number of iterations. If one instruction can not do the work, return the reason as text.

    Each tile in ``names``, which the body declares anew in every iteration, gets an element for each iteration.
    """
    trips = loop.trips or 1
    size = max(count for count in range(1, together + 1) if trips % count == 0)
    if size < 2:
        return None
    try:
        kernel, group = split_loop(kernel, loop, size)
        number = kernel.loops.index(group)
        kernel = kernel.reread(expanded(kernel, group, names, size))
    except RuleRefused as refusal:
        return refusal.message
    found = _drain(kernel, kernel.loops[number])
    if not isinstance(found, str):
        return found
    # The reason found is not shown, because it names lines of the changed kernel, which the reader does not have.
    return (
        f"line {loop.line}: even if {', '.join(names)} had one tile for each iteration of {loop.variable}, the work uses a "
        "tile that all iterations share, or indexes a tile differently: declare the tiles before the loop, and index them by its variable"
    )


def _has_product(item: Item) -> bool:
    return any(one.op in _PRODUCTS and one.kind == "op" for one in flatten([item]))


def _bank(kernel: KernelModule, loop: Loop, name: str, declared: Sequence[Statement]) -> _Bank | str:
    """Return how the results called ``name`` lie in PSUM. If they can not share a bank, return the reason as text."""
    where = f"{name} in PSUM"
    writers = kernel.writers(name)
    if name in kernel.ambiguous or any(one.op not in _PRODUCTS or one.kind != "op" for one in writers):
        return (
            f"{where} may have another name, or is not written by products alone: give the products a tile of their own"
        )
    if not all(inside(one, loop) for one in (*writers, *kernel.readers(name))):
        return f"{where} is also used outside of the loop: copy it there first"
    buffer = kernel.buffers.get(name)
    if buffer is None:
        return _bank_of_tile(kernel, loop, name, writers)
    found = all_accesses(kernel, name)
    if found is None or not buffer.is_written_out or None in buffer.shape:
        return f"{where} has an unknown shape, or is used without an index: declare the shape by numbers, and index it"
    narrow = kernel.declared_dtype(name).endswith("bfloat16") and all(_turns_bfloat16(kernel, one) for one in writers)
    if (
        not (narrow or kernel.declared_dtype(name).endswith("float32"))
        or len(buffer.shape) != buffer.partition_axis + 2
    ):
        return f"{where} is not a buffer of float32 tiles with two axes: declare such a buffer"
    uses = [access for _, access in found]
    if not inside(buffer.declaration, loop):
        return _bank_of_buffer(buffer, loop, uses)
    rows, columns = (extent or 0 for extent in buffer.shape[-2:])
    if buffer.declaration not in declared or buffer.partition_axis:
        return f"{where} is declared inside another loop: declare it in the loop of its copy"
    if not all(_is_whole(access, rows, columns) for access in uses):
        return f"{where} is used in part: use all rows and columns of it"
    return _Bank(name, rows, columns, declaration=buffer.declaration)


def _turns_bfloat16(kernel: KernelModule, one: Statement) -> bool:
    """Return True if a statement transposes a tile of bfloat16."""
    data = one.reads.get("data")
    return one.op == "nc_transpose" and data is not None and kernel.dtype_of(data.name) == "bfloat16"


def _bank_of_buffer(buffer: Buffer, loop: Loop, uses: Sequence[Access]) -> _Bank | str:
    """Return how the tiles of a buffer that is declared before the loop can lie in one bank. If they can not share a
    bank, return the reason as text.
    """
    where = f"{buffer.name} in PSUM"
    rows, columns = (extent or 0 for extent in buffer.shape[-2:])
    axis, first = buffer.partition_axis, uses[0].dims or ()
    alike = [
        len(access.dims or ()) == len(first)
        and _is_whole(access, rows, columns)
        and all(
            one.form is not None and one == other for one, other in zip(access.dims or (), first[:axis], strict=False)
        )
        for access in uses
    ]
    if not all(alike):
        return f"{where} is used in part, or indexed in several ways: use the whole tile, by one index"
    places = [at for at, dim in enumerate(first[:axis]) if dim.form and loop.variable in dim.form.variables]
    group = _group(first[places[0]], loop) if len(places) == 1 else None
    if group is None or (buffer.shape[places[0]] or 0) % (loop.trips or 1):
        return f"{where} is shared by all iterations: index it by the loop's variable"
    blocks = [dim.text for dim in first[:axis]]
    if buffer.shape[places[0]] == loop.trips:
        del blocks[places[0]]
    else:
        blocks[places[0]] = rendered(group, {})
    return _Bank(buffer.name, rows, columns, places[0], tuple(blocks))


def _group(dim: Dim, loop: Loop) -> Affine | None:
    """Return ``a`` if an index is ``trips * a + variable``, where ``trips`` is the loop's number of iterations;
    None for other indices.
    """
    form, trips = dim.form, loop.trips or 1
    if form is None or dim.extent is not None or form.ranges or form.coefficient(loop.variable) != 1:
        return None
    rest = form - Affine.of_variable(loop.variable)
    if rest.constant % trips or any(factor % trips or symbol.name != symbol.variable for symbol, factor in rest.terms):
        return None
    return Affine(rest.constant // trips, tuple((symbol, factor // trips) for symbol, factor in rest.terms))


def _bank_of_tile(kernel: KernelModule, loop: Loop, name: str, writers: Sequence[Statement]) -> _Bank | str:
    """Return how the tiles that the iterations declare in PSUM can lie in one bank. If they can not share a bank, return
    the reason as text.
    """
    if len(writers) != 1 or writers[0].parent is not loop or writers[0].augmented or kernel.mask(writers[0]):
        return f"{name} in PSUM is not made by one product of the loop's own body: give each product a tile of its own"
    product = writers[0]
    shape = kernel.tile_shape(product)
    if product.op == "nc_transpose" or product.target is None or product.target.dims is not None:
        return f"{name} in PSUM is not known to be float32: declare it as float32"
    narrow = kernel.text_of(product, "is_transpose") == "True" and not _is_float32_operand(kernel, product)
    if shape is None or len(shape) != 2 or narrow:
        return f"the shape or the type of {name} in PSUM is not known: declare it"
    if not all(
        _is_whole(access, *shape) for one in kernel.readers(name) for access in one.mentions if access.name == name
    ):
        return f"{name} in PSUM is used in part: use all of it"
    return _Bank(name, shape[0], shape[1])


def _is_float32_operand(kernel: KernelModule, product: Statement) -> bool:
    """Return True if the tile that a product transposes is known to be float32."""
    operand = product.reads.get("stationary")
    if operand is None:
        return False
    if operand.name in kernel.buffers:
        return kernel.declared_dtype(operand.name).endswith("float32")
    makers = kernel.writers(operand.name)
    if len(makers) != 1 or makers[0].op != "load" or "src" not in makers[0].reads:
        return False
    given = kernel.text_of(makers[0], "dtype")
    return given.endswith("float32") if given else kernel.dtypes.get(makers[0].reads["src"].name) == "float32"


def _is_whole(access: Access, rows: int, columns: int) -> bool:
    """Return True if an access covers all rows and columns of a tile."""
    if access.dims is None:
        return True
    for dim, extent in zip(access.dims[-2:], (rows, columns), strict=True):
        if dim.full:
            continue
        if dim.form is None or dim.form.constant or dim.form.variables or dim.width != extent:
            return False
    return True


def _problem(
    kernel: KernelModule,
    loop: Loop,
    one: Statement,
    banks: dict[str, _Bank],
    own: set[str],
    tiles: dict[ast.AST, Joined],
) -> str:
    """Return the reason why a statement can not do the work of all iterations at once; empty if it can.

    The tiles that the statement uses are recorded in ``own`` and ``tiles``.
    """
    if one.augmented or one.second is not None or kernel.mask(one) or one.target is None:
        return "this statement adds to its result, or has a mask: write a plain statement on slices of the tiles"
    if len(one.mentions) != len(one.reads):
        return "an operand is an expression: write its value to a tile first, and use that tile"
    scalars = {id(access.node) for name, access in one.reads.items() if name in ONE_COLUMN}
    for access in accesses(one):
        if access.name in kernel.ambiguous:
            return f"{access.name} may have a second name, an alias of the same buffer: use one name for each buffer"
        if access.name in banks or (access.name in own and access.dims is None):
            continue
        if id(access.node) in scalars and _is_one_column(kernel, access, loop):
            continue
        if access is one.target and access.dims is None and access.name not in kernel.buffers:
            if (
                not all(reader.parent is loop for reader in kernel.readers(access.name))
                or len(kernel.writers(access.name)) > 1
            ):
                return f"{access.name} is also used elsewhere: give this result a tile of its own"
            own.add(access.name)
            continue
        if kernel.space_of(access.name) != "sbuf":
            return f"{access.name} is not in SBUF: copy it there first"
        found = joined(kernel, access, [loop])
        if not isinstance(found, str):
            found = obstacle_to_joining(kernel, found) or found
        if isinstance(found, str):
            return found
        columns = next(iter(banks.values())).columns
        if found.axes != 2 and found.widths[-1] != columns:
            return f"the tiles of {access.name} are not {columns} columns wide: declare them that wide"
        if found.axes > 3 or found.elements != columns * (loop.trips or 1):
            return f"the tiles of {access.name} have several axes, or not {columns} columns for each iteration: write all tiles with one axis of columns"
        tiles[access.node] = found
    return ""


def _is_one_column(kernel: KernelModule, access: Access, loop: Loop) -> bool:
    """Return True if an operand is one number in each partition, equal in all iterations."""
    unchanged = not any(inside(writer, loop) for writer in kernel.writers(access.name))
    same = access.variables is not None and loop.variable not in access.variables
    return unchanged and same and kernel.is_column(access)


def _dependence(
    kernel: KernelModule,
    loop: Loop,
    before: Sequence[Item],
    work: Sequence[Statement],
    after: Sequence[Item],
    banks: dict[str, _Bank],
    own: set[str],
) -> str:
    """Return the reason why the loop can not be divided into three loops (before the work, the work, after the work);
    empty if it can.
    """
    if any("loop_indices" in one.args for one in flatten([*before, *after])):
        return "the loop joins the results of its iterations by loop_reduce: move the loop_reduce to a loop of its own"
    made = written(work)
    if made & (written(before) | read(before)) or written(after) & (read(before) | written(before) | read(work) | made):
        return "an iteration reads a value that another iteration wrote: give each iteration a tile of its own"
    if own & read(after):
        return (
            "a tile of the work is used later in the loop: declare it before the loop, with one tile for each iteration"
        )
    shared = (written(before) & (read(work) | read(after))) | (made & read(after))
    for name in shared - banks.keys():
        if name not in kernel.buffers or inside(kernel.buffers[name].declaration, loop):
            return f"{name} is declared anew in each iteration, and used later in the loop: declare it before the loop, with one tile for each iteration"
        uses = [a for one in flatten([*before, *work, *after]) for a in accesses(one) if a.name == name]
        if any(loop.variable not in (access.variables or ()) for access in uses):
            return f"{name} is shared by all iterations: index it by {loop.variable}"
    if banks.keys() & read(after):
        return "results in PSUM are used after they were copied out: use their copy"
    return ""


def _at_once(found: _Drain, _: Variant) -> str:
    """Return the source in which one instruction does the work of several iterations."""
    kernel, group = split_loop(found.kernel, found.loop, found.together)
    again = found if group is found.loop else _drain(kernel, group)
    if not isinstance(again, _Drain) or again.together != again.loop.trips:
        raise RuleRefused(
            f"line {found.loop.line}: the loop over {found.loop.variable} can not be split into groups of {found.together} iterations: "
            f"make their number a multiple of {found.together}"
        )
    found, number = again, kernel.loops.index(group)
    edits, indent = Edits(kernel.source), found.loop.indent
    work = "".join(f"{indent}{reindent(_wide(kernel, found, one), one.indent, indent)}\n" for one in found.work)
    for tile in {tile.name: tile for tile in found.tiles.values()}.values():
        laid_beside(kernel, tile, edits, without=found.work)
    declared = "".join(_shared(kernel, found, bank, edits, indent) for bank in found.banks.values())
    gone = {bank.declaration for bank in found.banks.values()}
    places = [found.loop.items.index(one) for one in found.work]
    moved = kernel.reread(edits.apply())
    loop = moved.loops[number]
    before = [one for one, old in zip(loop.items[: places[0]], found.loop.items, strict=False) if old not in gone]
    after = loop.items[places[-1] + 1 :]
    text = f"{declared}{indent}{header(moved, loop)}\n{emitted(moved, before, indent + STEP)}{work}"
    if substance(after):
        text += f"{indent}{header(moved, loop)}\n{emitted(moved, after, indent + STEP)}"
    start, end = moved.line_start(loop.start), moved.after_line(loop.end)
    return without_unused_buffers(moved.source[:start] + text + moved.source[end:], kernel)


def _wide(kernel: KernelModule, found: _Drain, one: Statement) -> str:
    """Return the text of a statement of the work, written for the tiles of all iterations at once."""
    texts: dict[ast.AST, str] = {}
    for access in accesses(one):
        tile, bank = found.tiles.get(access.node), found.banks.get(access.name)
        if bank is not None:
            texts[access.node] = _whole_bank(kernel, bank, found)
        elif tile is not None:
            texts[access.node] = tile.text(kernel, found.parts)
    return changed(kernel, one.node, texts)


def _whole_bank(kernel: KernelModule, bank: _Bank, found: _Drain) -> str:
    """Return the text of an access to the results of all iterations in a bank of PSUM."""
    language, start, trips = prefix(kernel, "language"), Affine(), found.loop.trips or 1
    if found.parts is None:
        indices = [span(kernel, start, bank.rows, 0, 2), span(kernel, start, bank.columns * trips, 1, 2)]
    elif kernel.api == "nki":
        indices = [f"0:{bank.rows}", f"0:{trips}", f"0:{bank.columns}"]
    else:
        columns = ranges(language, start, (trips, 1, 3, bank.columns), (bank.columns, 2, 3, 1))
        indices = [span(kernel, start, bank.rows, 0, 3), columns]
    return f"{bank.name}[{', '.join((*bank.blocks, *indices))}]"


def _one_result(kernel: KernelModule, bank: _Bank, found: _Drain) -> str:
    """Return the text of an access to the result of one iteration in a bank of PSUM."""
    rows, variable = span(kernel, Affine(), bank.rows, 0, 2), found.loop.variable
    if kernel.api == "nki" and found.parts is not None:
        return f"{bank.name}[{rows}, {variable}, 0:{bank.columns}]"
    columns = span(kernel, Affine.of_variable(variable).times(bank.columns), bank.columns, 1, 2)
    return f"{bank.name}[{', '.join((*bank.blocks, rows, columns))}]"


def _shared(kernel: KernelModule, found: _Drain, bank: _Bank, edits: Edits, indent: str) -> str:
    """Add to ``edits`` the changes by which the iterations write their results side by side in a bank.

    Return the declaration that must precede the loop; "" if the buffer is declared there already.
    """
    loop, wide = found.loop, bank.columns * (found.loop.trips or 1)
    for one in flatten(found.before):
        for access in accesses(one):
            if access.name == bank.name:
                edits.replace(*kernel.span(access.node), _one_result(kernel, bank, found))
    if bank.declaration is not None:
        in_parts = kernel.api == "nki" and found.parts is not None
        columns = f"{loop.trips}, {bank.columns}" if in_parts else str(wide)
        last = kernel.buffers[bank.name].extents[-1]
        return f"{indent}{changed(kernel, bank.declaration.node, {last: columns})}\n"
    if bank.place is None:
        language = prefix(kernel, "language")
        shape = f"({language}.par_dim({bank.rows}), {wide})"
        return f"{indent}{bank.name} = {language}.ndarray({shape}, dtype={language}.float32, buffer={language}.psum)\n"
    buffer = kernel.buffers[bank.name]
    edits.replace(*kernel.span(buffer.extents[-1]), str(wide))
    groups = (buffer.shape[bank.place] or 0) // (loop.trips or 1)
    if groups > 1:
        edits.replace(*kernel.span(buffer.extents[bank.place]), str(groups))
    else:
        edits.replace(*without_element(kernel, buffer.extents, bank.place), "")
    return ""


RULE = DrainOnce()
