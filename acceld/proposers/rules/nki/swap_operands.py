"""Exchange the stationary and the moving operand of products whose result is transposed later. Then the products are
made already transposed.

``wide[row]`` is a tile of 128 x 512, and ``row`` is called its place. Before the rewrite, each of the four blocks of
128 columns in a place is transposed for the next product::

    wide[row, p, f] = nl.copy(nisa.nc_matmul(x_t[row, p, c], w[p, f]))
    turned = nisa.nc_transpose(wide[row, p, 128 * part + c]); wide_t[row, part, p, c] = nl.copy(turned)
    out += nisa.nc_matmul(wide_t[row, k, p, c], v[k, p, f])

After the rewrite, the product makes these blocks already transposed. Block ``a`` of place ``b`` is now block ``b`` of
place ``a``, among four neighboring places::

    wide[row, p, f] = nl.copy(nisa.nc_matmul(w[p, 128 * (row % 4) + c], x_t[row // 4, p, f]))
    out += nisa.nc_matmul(wide[k, p, 128 * row + c], v[k, p, f])
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import partial

from acceld.editing import Edits
from acceld.errors import RuleRefused
from acceld.model import Profile
from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.building import changed, without_unused_buffers
from acceld.nki.source.nests import all_accesses, around, remove
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import rendered
from acceld.nki.source.syntax import Access, Item, Statement, below, elements, names_in
from acceld.proposers.rules.nki.operand_swaps import BLOCK, OperandSwap, Product, operand_swap, whole_block
from acceld.proposers.rules.records import Place, Rule, Variant


class SwapOperands(Rule):
    """Exchange the operands of products whose result is transposed before its next use: ``out.T = moving.T @
    stationary``.
    """

    name = "swap_operands"
    reason = (
        "nc_matmul(stationary, moving) gives stationary.T @ moving, and a stationary operand needs its contraction "
        "axis in the partitions. So a result that is the next stationary operand is transposed first, on the tensor "
        "engine and through PSUM. If the operands are exchanged, the result is made transposed, in as many passes."
    )
    source = "nki.isa.nc_matmul: operands of at most 128 and 512 columns; nki.isa.nc_transpose on the tensor engine"
    apis = frozenset({"nki_legacy"})
    only = (
        "The rule exchanges blocks between the tiles of one buffer. In the legacy API the index that numbers these "
        "tiles comes before the partitions. In the current API partitions come first, and the tile that is transposed "
        "is declared in the loop, so that no index numbers the tiles."
    )
    change_class = "mixed"
    relieves = ("tensor", "vector", "scalar")

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every transpose of the result of products and element-wise work, with the reason if the operands can
        not be exchanged.
        """
        for turn in kernel.statements:
            swap = operand_swap(kernel, turn)
            if swap is None:
                continue
            reads = swap if isinstance(swap, str) else _reads(kernel, swap)
            if isinstance(swap, str) or isinstance(reads, str):
                yield self.refused(turn.line, str(reads), "Exchange the operands of the products that this transposes")
                continue
            lines = " and ".join(str(product.statement.line) for product in swap.products)
            yield self.found(
                turn.line,
                partial(_swapped, kernel, swap, reads),
                Variant("exchange"),
                precondition=f"everything between the products of line {lines} and the transpose is element-wise on whole "
                f"tiles in the same place, and only the transpose reads {swap.source.name}",
                plan=f"Line {turn.line} transposes {swap.source.name} on the tensor engine. Exchange stationary and moving "
                f"operand of the products of line {lines}, so that it is made transposed, and drop transposes and copies.",
                benefit=0.4,
                gain_percent=(0.0, 10.0),
            )


def _swapped(kernel: KernelModule, swap: OperandSwap, reads: Mapping[ast.expr, str], _: Variant) -> str:
    """Return the source in which the operands of the products are exchanged, and each read of the transposed result
    is a read of the products' result.
    """
    edits = Edits(kernel.source)
    for product in swap.products:
        for name, text in _exchanged(kernel, swap, product).items():
            edits.replace(*kernel.span(product.statement.args[name]), text)
    for product in {one.stationary.name: one for one in swap.products if not one.by_columns}.values():
        _lay_out(kernel, swap, product, edits)
    for node, text in reads.items():
        edits.replace(*kernel.span(node), text)
    for item in _superfluous(swap):
        remove(kernel, item, edits)
    return without_unused_buffers(edits.apply(), kernel)


def _exchanged(kernel: KernelModule, swap: OperandSwap, product: Product) -> dict[str, str]:
    """Return the texts of a product's new operands, as a dict by name of the argument.

    The new stationary operand is a block of the former moving operand. The new moving operand has, side by side, the
    former stationary operands of a group of places.
    """
    variable, place = product.slot.variable, _index(product.stationary, product.place)
    columns = _range_text(kernel, product.stationary, BLOCK)
    wide_columns = _range_text(kernel, product.moving, BLOCK * swap.blocks)
    number = variable if product.slot.trips == swap.blocks else _remainder(variable, swap.blocks)
    block = _last_index(product.moving, f"{BLOCK} * {_atom(number)} + {columns}")
    group = {_index(product.stationary, -1): _last_index(product.stationary, wide_columns, without=variable)}
    if not product.by_columns:
        group[place] = _quotient(kernel.text(place), swap.blocks)
    return {
        "stationary": changed(kernel, product.moving.node, {_index(product.moving, -1): block}),
        "moving": changed(kernel, product.stationary.node, group),
    }


def _last_index(access: Access, columns: str, without: str = "") -> str:
    """Return the text of an access's last index, with ``columns`` as the text of its range and without the loop
    variable ``without``.
    """
    form = (access.dims or ())[-1].form or Affine()
    kept = tuple((symbol, factor) for symbol, factor in form.terms if symbol.variable != without or symbol.is_range)
    return rendered(Affine(form.constant, kept), dict.fromkeys(form.ranges, columns))


def _lay_out(kernel: KernelModule, swap: OperandSwap, product: Product, edits: Edits) -> None:
    """Add to ``edits`` the changes that put the tiles of each group of places side by side, in all accesses but
    those of the exchanged products.
    """
    name, blocks = product.stationary.name, swap.blocks
    declared = kernel.buffers[name]
    for position, extent in ((product.place, (declared.shape[product.place] or 0) // blocks), (-1, BLOCK * blocks)):
        edits.replace(*kernel.span(declared.extents[position]), str(extent))
    exchanged = {one.stationary.node for one in swap.products}
    for _, access in all_accesses(kernel, name) or ():
        if access.node not in exchanged:
            place, columns = _index(access, product.place), _index(access, -1)
            text = kernel.text(place)
            edits.replace(*kernel.span(place), _quotient(text, blocks))
            edits.replace(*kernel.span(columns), f"{BLOCK} * ({_remainder(text, blocks)}) + {kernel.text(columns)}")


def _reads(kernel: KernelModule, swap: OperandSwap) -> dict[ast.expr, str] | str:
    """Return the new text of each read of the transposed blocks, as a dict by node. If the transposes have to stay,
    return the reason as text.
    """
    target, source = swap.copy.target, swap.source
    assert target is not None
    name, where = target.name, f"line {swap.copy.line}:"
    found = all_accesses(kernel, name)
    if name in kernel.ambiguous or name not in kernel.buffers or kernel.writers(name) != [swap.copy] or not found:
        return f"{where} {name} is not written by one statement and read by index: declare it, and index it"
    dtypes = {kernel.declared_dtype(one) for one in (name, source.name)}
    if len(dtypes | {kernel.text_of(swap.copy, "dtype") or min(dtypes)}) > 1:
        return f"{where} {name} has another dtype than {source.name}: declare both with the same dtype"
    named = frozenset(node.id for node in names_in(source.node)) & kernel.loop_variables
    if kernel.buffers[name].shape[-2:] != (BLOCK, BLOCK) or not whole_block(target) or named != source.variables:
        return f"{where} {name} does not hold whole tiles of {BLOCK} x {BLOCK}: declare it in such tiles"
    texts = {}
    for reader, access in found:
        if reader is swap.copy:
            continue
        iteration = _iteration(kernel, swap, access)
        if iteration is None or reader.start < swap.copy.start or not _shares_loops(kernel, swap, reader, iteration):
            return f"line {reader.line}: the index does not tell which tile of {source.name} is read: index {source.name} by the loops that made it"
        texts[access.node] = changed(kernel, source.node, _renamed(source, iteration))
    return texts


def _iteration(kernel: KernelModule, swap: OperandSwap, access: Access) -> dict[str, str] | None:
    """Return the values of the loop variables with which a transposed tile was made, as text. ``access`` is an access
    to that tile.

    In the result, the values for the place and for the block are exchanged. Return None if the values do not follow
    from the indices.
    """
    target, slot = swap.copy.target, swap.slot
    assert target is not None and slot is not None
    written, read = target.dims or (), access.dims or ()
    if len(written) != len(read) or not whole_block(access):
        return None
    trips = {loop.variable: loop.trips for loop in reversed(around(swap.copy))}
    values: dict[str, str] = {}
    for i, dim in enumerate(written[:-2]):
        if dim.form is None or dim.form.constant or any(symbol.name not in trips for symbol, _ in dim.form.terms):
            return None
        (inner, step), *outer = sorted(((s.name, c) for s, c in dim.form.terms), key=lambda term: term[1]) or [("", 0)]
        text, count = kernel.text(_index(access, i)), trips.get(inner)
        if step != 1 or count is None or len(outer) > 1 or any(coefficient != count for _, coefficient in outer):
            return None
        values[inner] = _remainder(text, count) if outer else text
        values |= {variable: _quotient(text, count) for variable, _ in outer}
    if slot.variable not in values or swap.part.variable not in values:
        return None
    return values | {slot.variable: values[swap.part.variable], swap.part.variable: values[slot.variable]}


def _shares_loops(kernel: KernelModule, swap: OperandSwap, reader: Statement, iteration: Mapping[str, str]) -> bool:
    """Return True if ``reader`` is inside every loop that selects the transposed tile or makes it anew."""
    loops, reading = around(swap.copy), around(reader)
    needed = [
        loop for loop in loops if loop.variable in (swap.source.variables or ()) and loop.variable not in iteration
    ]
    needed += [loop for writer in kernel.writers(swap.source.name) for loop in around(writer) if loop in loops]
    return all(next((one for one in reading if one.variable == loop.variable), None) is loop for loop in needed)


def _renamed(access: Access, values: Mapping[str, str]) -> dict[ast.AST, str]:
    """Return the names of loop variables in the indices of ``access``, each with the text that replaces it."""
    whole = {_index(access, i) for i in range(len(elements(access.node)))}
    names = [node for node in names_in(access.node) if node.id in values]
    return {node: values[node.id] if node in whole else _atom(values[node.id]) for node in names}


def _superfluous(swap: OperandSwap) -> list[Item]:
    """Return the items of the kernel that become superfluous: the transpose and its copy, or the outermost loop
    around them that contains nothing else.
    """
    gone: list[Item] = [swap.turn, swap.copy]
    while (loop := gone[0].parent) is not None and all(
        item in gone or (isinstance(item, Statement) and item.kind == "marker") for item in loop.items
    ):
        gone = [loop]
    return gone


def _index(access: Access, position: int) -> ast.AST:
    """Return the node of one index of an access."""
    return elements(access.node)[position]


def _range_text(kernel: KernelModule, access: Access, extent: int) -> str:
    """Return the source text of the range over ``extent`` columns in an access's last index. Raise RuleRefused if that
    index has no such range.
    """
    wanted = Affine.of(Symbol.over(extent, 1, 2))
    pending = [_index(access, -1)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.expr) and kernel.affine(node) == wanted:
            return kernel.text(node)
        pending += below(node)
    raise RuleRefused(f"{kernel.text(access.node)} has no index range over {extent} columns")


def _atom(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _quotient(text: str, divisor: int) -> str:
    return f"{_atom(text)} // {divisor}"


def _remainder(text: str, divisor: int) -> str:
    return f"{_atom(text)} % {divisor}"


RULE = SwapOperands()
