"""Find products that could give their result already transposed, so that no later transpose is needed.

A wide tile has ``blocks`` blocks of 128 columns, each of which is transposed. There are as many such tiles as a tile
has blocks. One index, the *place*, selects a tile, so the blocks of all tiles form a square. Once the operands of the
products are swapped, block ``b`` of the tile at place ``a`` holds the transpose of what was block ``a`` of the tile at
place ``b``. So tiles, loops and element-wise work keep their shapes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from acceld.nki.source.affine import Affine, Symbol
from acceld.nki.source.launches import ON_CHIP
from acceld.nki.source.nests import all_accesses, around, inside
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.syntax import BINARY, COPIES, LOADS, UNARY, Access, Dim, Loop, Statement

BLOCK = 128
"""Number of partitions of a tile, and of columns of a stationary operand."""
_WIDEST_MOVING = 512
_NISA = "activation tensor_scalar tensor_tensor reciprocal copy tensor_copy".split()
_ELEMENTWISE = frozenset([*_NISA, *BINARY, *UNARY])


@dataclass(frozen=True)
class Product:
    """A product ``nc_matmul(stationary, moving)`` whose two operands can be exchanged."""

    statement: Statement
    stationary: Access
    moving: Access
    slot: Loop
    """The loop over places: the stationary operand depends on its variable, the moving operand does not."""
    place: int
    """Position of the stationary operand's index that gives the place; the last position if the places are columns of
    one tile.
    """

    @property
    def by_columns(self) -> bool:
        """Return True if one tile already holds the stationary operands of all places side by side."""
        return self.place == len(self.stationary.dims or ()) - 1


@dataclass
class OperandSwap:
    """An exchange of operands: the products, the element-wise work on their results, and the transposes that become
    unnecessary.
    """

    turn: Statement
    """The transpose on the tensor engine."""
    copy: Statement
    """The copy of the transpose out of PSUM."""
    source: Access
    """The tile that is transposed."""
    part: Loop
    """The loop over blocks of columns of the transposed tile."""
    blocks: int
    slot: Loop | None = None
    """The loop over places that contains the transposes."""
    products: list[Product] = field(default_factory=list)


def operand_swap(kernel: KernelModule, turn: Statement) -> OperandSwap | str | None:
    """Return the exchange of operands that makes the transpose ``turn`` unnecessary.

    Return None if ``turn`` does not transpose a computed tile. If the exchange is not possible, return the reason as
    text.
    """
    source = transposed(kernel, turn)
    if source is None or kernel.space_of(source.name) != "sbuf" or not _made_on_chip(kernel, source.name):
        return None
    where = f"line {turn.line}:"
    part = _part(turn, source)
    if part is None:
        return f"{where} {source.name} is not transposed block by block: transpose blocks of {BLOCK} columns in a loop, with the index {BLOCK} * variable"
    copies = kernel.readers(turn.target.name) if turn.target is not None else []
    if len(copies) != 1 or not is_copy(kernel, copies[0], turn):
        return f"{where} the transpose in PSUM is used by more than one copy: copy it once, and use the copy"
    swap = OperandSwap(turn, copies[0], source, part, part.trips or 0)
    return _Origin(kernel, swap).problem() or swap


def transposed(kernel: KernelModule, turn: Statement) -> Access | None:
    """Return the tile that a statement transposes on the tensor engine; None if the statement is no such transpose."""
    if turn.kind != "op" or turn.augmented or kernel.mask(turn):
        return None
    if turn.op == "nc_transpose":
        return turn.reads.get("data") if set(turn.args) <= {"data", "mask"} else None
    if turn.op != "nc_matmul" or kernel.text_of(turn, "is_transpose") != "True" or "moving" not in turn.reads:
        return None
    return turn.reads.get("stationary") if _is_identity(kernel, turn.reads["moving"]) else None


def _is_identity(kernel: KernelModule, access: Access) -> bool:
    """Return True if a tile was loaded, once and as a whole, from an identity matrix that numpy made."""
    writers = kernel.writers(access.name)
    constant = writers[0].reads.get("src") if len(writers) == 1 and writers[0].op == "load" else None
    if constant is None or constant.name not in kernel.buffers or kernel.ambiguous & {access.name, constant.name}:
        return False
    declared, target = kernel.buffers[constant.name].declaration, writers[0].target
    whole = kernel.extents(access) == kernel.extents(constant) == (BLOCK, BLOCK)
    if declared.op != "shared_constant" or not whole or target is None or not target.same_as(access):
        return False
    return bool(re.fullmatch(rf"np\.(identity|eye)\({BLOCK}(, dtype=[\w.]+)?\)", kernel.text_of(declared, "constant")))


def _made_on_chip(kernel: KernelModule, name: str) -> bool:
    return all(writer.op not in (*LOADS, "memset") for writer in kernel.writers(name))


def _part(turn: Statement, source: Access) -> Loop | None:
    """Return the loop whose variable counts blocks in the last index, as in ``128 * part + nl.arange(128)[None, :]``;
    None if there is none.
    """
    *places, last = source.dims or (Dim(None),)
    if last.form is None or not places:
        return None
    for loop in around(turn):
        wanted = Affine.of_variable(loop.variable).times(BLOCK) + _columns(BLOCK)
        if last.form == wanted and loop.trips and _uses(source, loop.variable) == [len(places)]:
            return loop
    return None


def is_copy(kernel: KernelModule, copy: Statement, turn: Statement) -> bool:
    """Return True if ``copy`` is a plain copy of the tile that only ``turn`` writes, in the same loop body."""
    read = copy.reads.get("src")
    plain = copy.kind == "op" and copy.op in COPIES and not copy.augmented and not kernel.mask(copy)
    if not plain or copy.parent is not turn.parent or read is None or copy.target is None or turn.target is None:
        return False
    return read.same_as(turn.target) and kernel.writers(read.name) == [turn] and len(copy.mentions) == 1


class _Origin:
    """Trace a transposed tile back to the products that it is computed from."""

    def __init__(self, kernel: KernelModule, swap: OperandSwap) -> None:
        self._kernel, self._swap = kernel, swap
        self._columns = BLOCK * swap.blocks
        self._names = {swap.source.name}
        """Names of the tiles whose values are exchanged."""
        self._places: dict[str, int] = {}
        """For each buffer, the position of the index that numbers its places."""
        self._slots: dict[str, Loop] = {}
        """For each tile without such an index, the loop over places in which it is declared."""

    def problem(self) -> str:
        """Return the reason why the operands can not be exchanged; empty if they can. Record the products, and the
        loop over the tile's places.
        """
        if not 1 < self._swap.blocks <= _WIDEST_MOVING // BLOCK:
            return f"line {self._swap.turn.line}: {self._columns} columns are too many for a moving operand: make at most {_WIDEST_MOVING} at a time"
        steps: dict[Statement, None] = {}
        pending = [self._swap.source.name]
        while pending:
            for writer in self._kernel.writers(pending.pop()):
                steps[writer] = None
                new = {one.name for one in self._values(writer)} - self._names
                self._names |= new
                pending += new
        for name in sorted(self._names):
            problem = self._alone(name, steps)
            if problem:
                return problem
        for step in sorted(steps, key=lambda one: one.start):
            problem = self._step(step)
            if problem:
                return f"line {step.line}: {problem}"
        return self._last() or self._unmixed()

    def _values(self, step: Statement) -> list[Access]:
        """Return the tiles that a statement of element-wise work reads; [] for other statements."""
        if step.op not in _ELEMENTWISE:
            return []
        bias = step.args.get("bias")
        nothing = bias if self._kernel.is_zero(bias) else None
        return [one for one in step.mentions if one.node is not nothing]

    def _alone(self, name: str, steps: dict[Statement, None]) -> str:
        kernel, turn = self._kernel, self._swap.turn
        if name in kernel.ambiguous or kernel.space_of(name) not in ON_CHIP:
            return f"line {turn.line}: {name} is not a tile on the chip: copy it there first"
        for reader in kernel.readers(name):
            if reader is not turn and reader not in steps:
                return f"line {reader.line}: {name} is also read here, where it is not transposed: keep another copy for this line"
        declared = kernel.buffers.get(name)
        if declared is not None and declared.declaration.op not in ("ndarray", "zeros"):
            return f"line {declared.declaration.line}: {name} has initial values: write all of it by statements"
        return ""

    def _step(self, step: Statement) -> str:
        """Return the reason why a statement prevents the exchange; empty if it does not. Record the loop whose
        variable selects the block to which the statement writes its result.
        """
        kernel = self._kernel
        if step.kind != "op" or step.target is None or kernel.mask(step):
            return "this statement is not a plain operation: write it without a mask, as a function of nl or nisa"
        values = self._values(step)
        if not all(self._whole(access) for access in (*values, step.target)):
            return f"this statement does not use a whole tile of {BLOCK} x {self._columns}: use all of the tile"
        if step.op == "nc_matmul":
            product = self._product(step)
            if isinstance(product, str):
                return product
            self._swap.products.append(product)
            return self._note(step, step.target, product.slot)
        reduces = any(argument.startswith("reduce") for argument in step.args)
        if step.op not in _ELEMENTWISE or step.augmented or not values or reduces:
            return (
                "this statement is neither a product nor element-wise work on a product: move it after the next product"
            )
        others = [value for value in step.args.values() if kernel.access(value) is None]
        if not all(kernel.number(value) is not None or _is_setting(value) for value in others):
            return "an operand is an expression: write its value to a tile first, and use that tile"
        slots = [self._slot(step, access) for access in values]
        if slots[0] is None or any(slot is not slots[0] for slot in slots):
            return "the operands of this statement are indexed by different loops: index both by the same loop"
        return self._note(step, step.target, slots[0])

    def _whole(self, access: Access) -> bool:
        """Return True if an access covers a whole wide tile, with the index over partitions before the index over
        columns.
        """
        shape = (BLOCK, self._columns)
        if access.dims is None:
            return self._kernel.extents(access) == shape
        buffer = self._kernel.buffers.get(access.name)
        if buffer is None or len(access.dims) < 2:
            return False
        return _is_tile(access.dims, self._columns) and buffer.shape[-2:] == shape

    def _note(self, step: Statement, target: Access, slot: Loop) -> str:
        """Record that ``step`` writes one block of its target in each iteration of the loop ``slot``. Return the
        reason as text if earlier statements contradict this; empty otherwise.
        """
        kernel, name = self._kernel, target.name
        if target.dims is None or len(target.dims) == 2:
            users = [*kernel.writers(name), *kernel.readers(name)]
            declared = [kernel.buffers[name].declaration] if name in kernel.buffers else []
            if not all(inside(user, slot) for user in (*users, *declared)):
                return f"{name} is shared by all iterations of {slot.variable}: index it by {slot.variable}"
            if self._slots.setdefault(name, slot) is not slot:
                return f"{name} is indexed by two loops: give each result a tile of its own"
            return ""
        uses = _uses(target, slot.variable)
        if len(uses) != 1 or self._places.setdefault(name, uses[0]) != uses[0]:
            return f"{name} is shared by all iterations of {slot.variable}: index it by {slot.variable}"
        found = self._slot(step, target)
        return (
            ""
            if found is slot
            else f"{name} is indexed in another order than its operands: index it by {slot.variable} as its operands are"
        )

    def _slot(self, statement: Statement, access: Access) -> Loop | None:
        """Return the loop whose variable selects the block of its buffer that ``access`` refers to; None if no loop
        selects it.

        The index that selects the block must be the loop's variable plus multiples of the number of blocks.
        """
        if access.name in self._slots:
            return self._slots[access.name]
        if access.name not in self._places or access.dims is None:
            return None
        place = self._places[access.name]
        return next(
            (
                loop
                for loop in around(statement)
                if _counts(access.dims[place], loop, self._swap.blocks) and _uses(access, loop.variable) == [place]
            ),
            None,
        )

    def _product(self, step: Statement) -> Product | str:
        kernel = self._kernel
        flags = {name: kernel.text(value) for name, value in step.args.items() if name not in ("stationary", "moving")}
        stationary, moving = step.reads.get("stationary"), step.reads.get("moving")
        if set(flags.values()) - {"None", "False"} or stationary is None or moving is None:
            return "the product has further arguments: write it with its two operands alone"
        if kernel.extents(stationary) != (BLOCK, BLOCK) or kernel.extents(moving) != (BLOCK, self._columns):
            return f"the operands are not {BLOCK} x {BLOCK} and {BLOCK} x {self._columns}: give them these shapes"
        if not _by_range(moving, self._columns) or not _by_range(stationary, BLOCK):
            return "the columns of an operand are not a plain range: write neighboring columns"
        for slot in around(step):
            if moving.variables is None or slot.variable in moving.variables:
                continue
            place = self._place(stationary, slot)
            if place is not None and self._settled(stationary, slot) and self._settled(moving, slot):
                return Product(step, stationary, moving, slot, place)
        return (
            "no loop around the product changes its stationary operand alone and begins after both operands are made: make both "
            "before such a loop"
        )

    def _place(self, stationary: Access, slot: Loop) -> int | None:
        """Return the position of the index that numbers the places of a stationary operand.

        Return None if the operands of several places can not lie side by side.
        """
        blocks, dims = self._swap.blocks, stationary.dims or ()
        form = dims[-1].form
        place, *more = _uses(stationary, slot.variable) or [-1]
        if form is None or place < 0 or more:
            return None
        if place == len(dims) - 1:
            return place if form.coefficient(slot.variable) == BLOCK and slot.trips == blocks else None
        buffer = self._kernel.buffers.get(stationary.name)
        if buffer is None or buffer.space != "sbuf" or not isinstance(buffer.declaration.args.get("shape"), ast.Tuple):
            return None
        found = all_accesses(self._kernel, stationary.name)
        if not found or place >= buffer.partition_axis or buffer.shape[-1] != BLOCK or stationary.name in self._names:
            return None
        for _, access in found:
            if access.dims is None or len(access.dims) != len(dims) or access.dims[-1].form != _columns(BLOCK):
                return None
            if not access.dims[place].is_point:
                return None
        whole_groups = (buffer.shape[place] or 1) % blocks == 0 and _counts(dims[place], slot, blocks)
        return place if whole_groups else None

    def _settled(self, access: Access, slot: Loop) -> bool:
        """Return True if an operand is complete before the loop ``slot`` and does not change in it."""
        writers = self._kernel.writers(access.name)
        known = access.name not in self._kernel.ambiguous and access.name not in self._names
        return known and bool(writers) and all(w.kind == "op" and w.start < slot.start for w in writers)

    def _last(self) -> str:
        """Return the reason why the tile is not complete before it is transposed; empty if it is complete.

        Record the loop over places.
        """
        swap, name = self._swap, self._swap.source.name
        swap.slot = self._slot(swap.turn, swap.source) if name in self._places else None
        shape = self._kernel.buffers[name].shape if name in self._kernel.buffers else ()
        if swap.slot is None or swap.slot.trips != swap.blocks or shape[-2:] != (BLOCK, self._columns):
            return f"line {swap.turn.line}: there is no loop over {swap.blocks} places of {name}: transpose {swap.blocks} places in a loop"
        *places, rows, _ = swap.source.dims or ()
        if not _spans(rows, BLOCK, 0) or not all(dim.is_point for dim in places):
            return f"line {swap.turn.line}: this statement does not transpose all partitions of one tile of {name}: transpose all of them"
        for loop in (swap.slot, swap.part):
            if any(writer.start > loop.start for writer in self._kernel.writers(name)):
                return f"line {swap.turn.line}: {name} is not complete before its blocks are transposed: make it in an earlier loop"
        return ""

    def _unmixed(self) -> str:
        """Return the reason if an operand would be needed in two layouts, the present one and that after the
        exchange; empty if no operand would be.
        """
        laid_out = {(one.stationary.name, one.place) for one in self._swap.products if not one.by_columns}
        names = {name for name, _ in laid_out}
        if len(names) < len(laid_out) or names & self._unchanged():
            return f"line {self._swap.turn.line}: an operand of a product would need two layouts: copy the operand to another tile for one layout"
        return ""

    def _unchanged(self) -> set[str]:
        """Return the names of the operands that keep their layout when the operands of the products are exchanged."""
        products = self._swap.products
        return {one.moving.name for one in products} | {one.stationary.name for one in products if one.by_columns}


def _columns(extent: int) -> Affine:
    return Affine.of(Symbol.over(extent, 1, 2))


def _is_setting(node: ast.expr) -> bool:
    """Return True if an argument is the same for every element, such as ``nl.exp``, ``np.float32``, ``None`` or
    ``True``.
    """
    return isinstance(node, ast.Attribute) or (isinstance(node, ast.Constant) and node.value in (None, True, False))


def whole_block(access: Access) -> bool:
    """Return True if the last two indices cover a whole tile of 128 x 128."""
    return access.dims is not None and len(access.dims) > 1 and _is_tile(access.dims, BLOCK)


def _is_tile(dims: Sequence[Dim], columns: int) -> bool:
    """Return True if the indices cover one whole tile of 128 partitions and ``columns`` columns."""
    *places, rows, last = dims
    return _spans(rows, BLOCK, 0) and _spans(last, columns, 1) and all(dim.is_point for dim in places)


def _spans(dim: Dim, extent: int, axis: int) -> bool:
    """Return True if an index covers all ``extent`` elements along ``axis`` of a buffer's tiles."""
    return dim.covers(extent) or dim.form == Affine.of(Symbol.over(extent, axis, 2))


def _by_range(access: Access, columns: int) -> bool:
    """Return True if the last index is a range over ``columns`` plus a start in plain loop variables."""
    dims = access.dims or (Dim(None),)
    form = dims[-1].form
    symbol = Symbol.over(columns, 1, 2)
    if form is None or form.ranges != (symbol,) or dict(form.terms)[symbol] != 1:
        return False
    return all(one.is_range or one.name == one.variable for one, _ in form.terms)


def _uses(access: Access, variable: str) -> list[int]:
    """Return the positions of the indices that contain a loop variable."""
    return [i for i, dim in enumerate(access.dims or ()) if dim.form is not None and variable in dim.form.variables]


def _counts(dim: Dim, loop: Loop, blocks: int) -> bool:
    """Return True if an index is the loop's variable plus multiples of ``blocks``, and the loop's length is a multiple
    of ``blocks``.
    """
    form = dim.form
    if form is None or form.coefficient(loop.variable) != 1 or form.constant % blocks or form.ranges:
        return False
    others = [c for symbol, c in form.terms if symbol.variable != loop.variable]
    return loop.trips is not None and loop.trips % blocks == 0 and all(c % blocks == 0 for c in others)
