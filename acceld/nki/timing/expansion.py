"""Compute for each instruction what is needed to unroll it: its engine, and its costs and cells in every execution.

Terms: a *cell* is a part of a buffer (:mod:`acceld.nki.timing.buffer_pieces`). A *template* has what all
executions of one instruction share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import prod

import numpy as np

from acceld.nki.ir.def_use import leaves_result, reads_destination, reduce_command, register_written, registers_read
from acceld.nki.ir.operations import DTYPE_BYTES, OPS, PARTIAL_OPS
from acceld.nki.ir.program import (
    Access,
    Affine,
    Buffer,
    Engine,
    Instruction,
    Loop,
    LoopKind,
    Node,
    Pattern,
    Program,
    Space,
)
from acceld.nki.timing.buffer_pieces import Axes, CellAccess, Grid, cell_access, make_grids, values
from acceld.nki.timing.compiler_legacy import merged_iterations
from acceld.nki.timing.cost import DMA_OPS, FREE_OPS, REGISTER_OPS, Cost, CostModel, matmul_shape

Engines = Callable[[Instruction, CostModel], Engine]
"""A function that chooses the engine of an instruction."""

UNSHARED = (
    frozenset(
        {"random", "memset", "barrier", "exchange", "print", "dropout", "random_state_load", "random_state_store"}
    )
    | FREE_OPS
    | REGISTER_OPS
)
"""Operations whose executions are never merged, even if they have equal operands."""

_SKIPPED_LANE = 255


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The way in which one instruction uses its engine's accumulators, in the first ``partitions`` partitions.

    ``reads`` is True if the instruction adds to what the accumulators held before.
    """

    engine: Engine
    partitions: int
    reads: bool


@dataclass(slots=True)
class Template:
    """One instruction of the program, with the cost of each of its executions, and the cells that each execution
    reads and writes.
    """

    number: int
    instruction: Instruction
    engine: Engine
    costs: list[Cost]
    variants: list[int] | None
    """The index in ``costs`` of each execution's cost; -1 for an execution that the mask excludes. The field is None
    if all executions have the first cost.
    """
    reads: list[CellAccess]
    writes: list[CellAccess]
    input_bases: list[tuple[int, list[int]]]
    """For operands whose cells do not tell all elements apart: the buffer, and the position of the operand's first
    element in each execution.

    Such operands lie in HBM that the program never writes, or in a buffer whose cells are coarser than its accesses.
    """
    signature: int
    """A number that two instructions share if they compute the same function, so that equal operands give equal
    results; -1 for an instruction that is never merged.
    """
    accumulates: bool
    executions: int
    first: list[bool] | None
    """For a loop_reduce: True for each execution in the first iteration of all loops that the instruction reduces
    over.
    """

    @property
    def is_load(self) -> bool:
        """Tell whether the instruction is a DMA transfer that does not write HBM."""
        return self.instruction.op in DMA_OPS and not self.is_store

    is_store: bool = False
    traffic: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Bytes that one execution moves in one partition: SBUF read, SBUF written, PSUM read, PSUM written."""
    invariant_only: bool = False
    """True for an instruction that the front end inserted for a function of nki.language. Two of its executions are
    merged only if their operands were computed before the outermost loop.
    """
    clears: bool = False
    """True for a lazy memset, which runs no instruction on the chip and makes the buffer undefined."""
    merged_within: tuple[int, ...] = ()
    """Loops whose iterations never share a result: executions in different iterations of such a loop are not merged."""
    sequential: bool = False
    """True if one of the loops around the instruction is sequential."""
    keeps: list[bool] | None = None
    """True for each execution whose mask leaves part of the destinations unchanged; None if there is no such execution.
    """
    accumulator: Accumulator | None = None
    other: list[Cost] | None = None
    """The costs on the other engine that the compiler may choose, in the order of ``costs``; None if there is no
    choice.
    """
    positions: list[Sequence[object]] = field(default_factory=list)
    """For each pattern of the instruction, a list with one entry for each execution: the pattern's base. The entry of a
    mask has the mask's coefficients too; it is None in executions where the mask excludes nothing.
    """


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program with all that is needed to unroll it into events: the template of each instruction, and the cells of
    each buffer.
    """

    program: Program
    templates: dict[int, Template]
    """Templates by the instruction's number in program order."""
    grids: Mapping[int, Grid]
    trips: Mapping[int, int]
    """The number of iterations of each loop that are expanded. This is less than the loop's own number if the rest is
    extrapolated.
    """


def prepare(program: Program, model: CostModel, place: Engines, trips: Mapping[int, int]) -> Prepared:
    """Return the program with the template of every instruction.

    ``place`` is the function that chooses engines. ``trips`` has the number of iterations of each loop to
    expand.
    """
    nodes = [(node, loops) for node, loops in program.walk()]
    written = {dst.buffer for node, _ in nodes for dst in node.dsts}
    accesses: dict[int, list[Access]] = defaultdict(list)
    full = {loop.id: loop.trips for loop in program.loops.values()}
    for node, _ in nodes:
        if node.op == "memset" and node.attr("lazy"):
            for dst in node.dsts:
                # create the buffer's entry, because every buffer needs a grid; a lazy memset does not influence the grid
                accesses[dst.buffer]
            continue
        for access in node.accesses:
            if access.buffer in written:
                accesses[access.buffer].append(access)
    handed, left = _handed_over(program, model, nodes, place)
    if left:
        program = _in_psum(program, left)
        model = replace(model, buffers=program.buffers)
    grids = make_grids(program.buffers, accesses, full)
    views = _views(nodes)
    empty: dict[int, Grid] = {}
    for view in views:  # a view takes no memory of its own
        grid = grids.get(view)
        if grid is not None:
            grids[view] = empty.setdefault(id(grid), replace(grid, cell_bytes=0.0, row_bytes=0))
    held = _RegisterValues.of(program, trips)
    merged = _merged(nodes, model)
    making = _Templates(
        model,
        place,
        grids,
        handed,
        _varying(nodes) if full else {},
        accumulating(node for node, _ in nodes),
        views,
    )
    templates: dict[int, Template] = {}
    around = _around((), trips)
    for number, (node, loops) in enumerate(nodes):
        if loops is not around.loops:
            around = _around(loops, trips)
        templates[number] = making.template(number, node, around, merged.get(number, 1))
    if not held.reads and not held.writes:
        return Prepared(program, templates, grids, trips)
    registers = len(program.buffers)
    for number, template in templates.items():
        template.reads += [CellAccess(registers, cells, (0,), False) for cells in held.reads.get(number, ())]
        if number in held.writes:
            template.writes.append(CellAccess(registers, held.writes[number], (0,), False))
    file = Buffer(registers, "registers", Space.HBM, "int32", (program.registers,))
    program = replace(program, buffers=(*program.buffers, file))
    return Prepared(program, templates, {**grids, registers: Grid((1,), (1,), True, 0.0, 0)}, trips)


@dataclass(slots=True)
class _RegisterValues:
    """Number the values that registers have, so that the schedule makes an instruction wait for the values that it
    reads.

    Each value has a cell of its own. An instruction reads a register when the instruction starts, so a write of a later
    value to the register does not wait for the instruction. ``reads`` and ``writes`` give the cells in each execution,
    by the instruction's number.
    """

    reads: dict[int, list[list[int]]] = field(default_factory=dict)
    writes: dict[int, list[int]] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    """The cell of the present value of each register, by register."""
    made: int = 0

    @classmethod
    def of(cls, program: Program, trips: Mapping[int, int]) -> _RegisterValues:
        """Return the numbered values of all registers of a program."""
        found = cls()
        if program.registers:
            found._run(found._using(program.body, count(), trips))
        return found

    def _using(self, body: Sequence[Node], numbers: Iterator[int], trips: Mapping[int, int]) -> list[_Step]:
        """Return the instructions of ``body`` that use registers.

        An instruction is returned as (its number, the instruction). A loop is returned as (number of iterations, what
        its body contains, in the same form).
        """
        steps: list[_Step] = []
        for node in body:
            if isinstance(node, Loop):
                inner = self._using(node.body, numbers, trips)
                steps += [(trips[node.id], inner)] if inner else []
                continue
            number, read = next(numbers), registers_read(node)
            if read:
                self.reads[number] = [[] for _ in read]
            if register_written(node) is not None:
                self.writes[number] = []
            if read or number in self.writes:
                steps.append((number, node))
        return steps

    def _run(self, steps: list[_Step]) -> None:
        for first, second in steps:
            if not isinstance(second, Instruction):
                for _ in range(first):
                    self._run(second)
                continue
            for cells, register in zip(self.reads.get(first, ()), registers_read(second), strict=True):
                cells.append(self.newest.get(register, -1))
            written = register_written(second)
            if written is not None:
                self.newest[written] = self.made
                self.writes[first].append(self.made)
                self.made += 1


_Step = tuple[int, "Instruction | list[_Step]"]


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops around an instruction, outermost first, and what their iterations mean for the instruction."""

    loops: tuple[Loop, ...]
    space: tuple[tuple[int, int], ...]
    """The loops as (id, expanded iterations)."""
    executions: int
    sequential: bool


def _around(loops: tuple[Loop, ...], trips: Mapping[int, int]) -> _Around:
    space = tuple([(loop.id, trips[loop.id]) for loop in loops])
    executions = prod([count for _, count in space])
    return _Around(loops, space, executions, any(loop.kind is LoopKind.SEQUENTIAL for loop in loops))


class _Operands:
    """Find the cells of accesses, and number the *forms* of accesses.

    Two accesses have one form if they differ only in where they begin and in which of several equal buffers
    they use. Tiles at the same position of equal buffers have the same cells, so results are stored by form. An
    unrolled loop has many such tiles.
    """

    def __init__(self, model: CostModel, grids: Mapping[int, Grid]) -> None:
        self.model, self.grids = model, grids
        self._numbers: dict[object, int] = {}
        self._axes = Axes()
        self._buffers: dict[int, tuple[int, int]] = {}
        """A number that equal buffers share, and the partition axis (-1 in HBM), by buffer id."""
        self._cells: dict[object, tuple[CellAccess, object, int]] = {}
        self._inputs: dict[object, tuple[object, int]] = {}

    def cells(self, access: Access, space: tuple[tuple[int, int], ...]) -> tuple[CellAccess, object, int]:
        """Return the cells that ``access`` covers in each execution, the layout of the access, and the number of its
        form.
        """
        key = self._key(access), access.start, space
        known = self._cells.get(key)
        if known is None:
            model, buffer, grid = self.model, self.model.buffers[access.buffer], self.grids[access.buffer]
            cells = cell_access(access, buffer, grid, space)
            layout = _layout(access, model, grid, cells)
            form = self._number((key[0], layout, cells.partial))
            known = self._cells[key] = cells, layout, form
        cells, layout, form = known
        if cells.buffer != access.buffer:
            cells = CellAccess(access.buffer, cells.bases, cells.offsets, cells.partial)
        return cells, layout, form

    def read_only(self, access: Access) -> tuple[object, int]:
        """Return the layout of an access and the number of its *form* (see the class).

        Use this for a buffer that the program only reads: such a buffer has no cells.
        """
        key = self._key(access)
        known = self._inputs.get(key)
        if known is None:
            known = self._inputs[key] = _input_layout(access, self.model), self._number((key,))
        return known

    def _key(self, access: Access) -> tuple[object, ...]:
        """Return a key that is equal for all accesses of one layout, such as equal parts of equal buffers.

        Accesses with equal keys may still cover different cells of a buffer.
        """
        found = self._buffers.get(access.buffer)
        if found is None:
            one, grid, model = self.model.buffers[access.buffer], self.grids.get(access.buffer), self.model
            used = access.buffer in model.recast, access.buffer in model.returned
            number = self._number((one.space, one.dtype, one.shape, one.partition_axis, id(grid), *used))
            axis = -1 if one.space is Space.HBM else one.partition_axis
            found = self._buffers[access.buffer] = number, axis
        buffer, axis = found
        place = access.start[axis].const if axis >= 0 else 0
        return self._axes.number(access.dims), buffer, access.dtype, access.indirect, place

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def iteration_shape(node: Instruction) -> tuple[int, ...]:
    """Return the shape of an instruction's iteration space, as if it had no mask."""
    kind = OPS[node.op].space if node.op in OPS else "dst"
    if kind == "kmn" and len(node.srcs) >= 2:
        return matmul_shape(node)
    if kind == "src" or not node.dsts:
        data = next((src for src in node.srcs if isinstance(src, Access)), None)
        return data.shape if data is not None else ()
    return node.dsts[0].shape


@dataclass(frozen=True, slots=True)
class _Form:
    """The properties that instructions of one form share.

    Such instructions differ only in where their accesses begin and in which of several equal buffers they use.
    """

    engine: Engine
    costs: list[Cost]
    variants: list[int] | None
    signature: int
    accumulates: bool
    first: list[bool] | None
    stores: bool
    traffic: tuple[int, int, int, int]
    invariant_only: bool
    keeps: list[bool] | None
    accumulator: Accumulator | None
    other: list[Cost] | None
    positions: list[Sequence[object]]


class _Templates:
    """Create the templates of a program's instructions. Instructions of one form share what they have in common."""

    def __init__(
        self,
        model: CostModel,
        place: Engines,
        grids: Mapping[int, Grid],
        handed: set[int],
        varying: Mapping[int, set[int]],
        folding: frozenset[Engine],
        views: Mapping[int, Access],
    ) -> None:
        self.model, self.place, self.grids, self.views = model, place, grids, views
        self.handed, self.varying, self.folding = handed, varying, folding
        self.operands = _Operands(model, grids)
        self.forms: dict[object, _Form] = {}
        self.signatures: dict[object, int] = {}
        self.costs: dict[object, Cost] = {}

    def template(self, number: int, node: Instruction, around: _Around, merged: int) -> Template:
        """Return the template of instruction ``number``. One machine instruction covers ``merged`` iterations of it."""
        space = around.space
        if node.op == "memset" and node.attr("lazy"):
            return Template(
                number, node, Engine.SYNC, [Cost(Engine.SYNC)], None, [], [], [], -1, False, around.executions, None,
                clears=True,
            )  # fmt: skip
        grids, operands = self.grids, self.operands
        reads: list[CellAccess] = []
        writes: list[CellAccess] = []
        inputs: list[tuple[int, list[int]]] = []
        layouts: list[object] = []
        forms: list[object] = []
        for src in node.srcs:
            if not isinstance(src, Access):
                layouts.append(src.coefs if isinstance(src, Pattern) else repr(src))
                forms.append(src if isinstance(src, Pattern) else layouts[-1])
                continue
            grid = grids.get(src.buffer)
            if grid is None:
                layout, form = operands.read_only(src)
            else:
                found, layout, form = operands.cells(src, space)
                reads.append(found)
            if grid is None or not grid.exact:
                inputs.append((src.buffer, self._elements(src, space)))
            layouts.append(layout)
            forms.append(form)
        if node.op == "bitcast" and self.views.get(node.dsts[0].buffer) == node.srcs[0]:
            reads.clear()  # the declaration of a view reads nothing; the readers of the view read the viewed tile
        if self.views and node.op != "bitcast":
            viewed = [tile for src in node.srcs if isinstance(src, Access) for tile in self._viewed(src.buffer)]
            reads += [operands.cells(tile, space)[0] for tile in viewed]
        beside: list[CellAccess] = []
        indirect = False
        for access in node.accesses:
            if access.indirect:
                indirect = True
                indices = [item.index for item in access.indirect if item.index is not None]
                reads += [operands.cells(index, space)[0] for index in indices if index.buffer in grids]
        for dst in node.dsts:
            found, layout, form = operands.cells(dst, space)
            writes.append(found)
            layouts.append(layout)
            forms.append(form)
            if found.partial and not grids[dst.buffer].exact:
                inputs.append((dst.buffer, self._elements(dst, space)))
        if self.views and node.op != "bitcast":
            viewed = [tile for dst in node.dsts for tile in self._viewed(dst.buffer)]
            beside = [operands.cells(tile, space)[0] for tile in viewed]
        handed = number in self.handed
        key = node.op, node.engine, node.attrs, node.mask, node.pattern, space, handed, merged, len(node.dsts), *forms
        made = self.forms.get(key)
        if made is None:
            partial = any(one.partial for one in writes)
            made = self.forms[key] = self._form(node, space, layouts, handed, merged, partial, indirect)
        writes += beside
        within: tuple[int, ...] = ()
        if made.stores or not node.dsts or not self.model.buffers[node.dsts[0].buffer].scope:
            pass
        elif node.op in DMA_OPS:
            within = _merged_within(node, around.loops, self.model)
        elif made.costs:  # an instruction in a loop without iterations has no costs
            within = _computed_within(node, made.engine, made.costs[0], self.model, self.varying)
        placed = any(self.model.buffers[dst.buffer].places for dst in node.dsts)
        # a later tile at the same address overwrites this one, so a repeat could not reuse it
        signature = -1 if placed else made.signature
        return Template(
            number, node, made.engine, made.costs, made.variants, reads, writes, inputs, signature,
            made.accumulates, around.executions, made.first, made.stores, made.traffic, made.invariant_only,
            merged_within=within, sequential=around.sequential, keeps=made.keeps, accumulator=made.accumulator,
            other=made.other, positions=made.positions,
        )  # fmt: skip

    def _viewed(self, buffer: int) -> Iterator[Access]:
        """Yield the tile under the view ``buffer``; if this tile is itself a view, the tile under it, and so on."""
        seen: set[int] = set()
        while buffer in self.views and buffer not in seen:
            seen.add(buffer)
            tile = self.views[buffer]
            buffer = tile.buffer
            if buffer in self.grids:
                yield tile

    def _elements(self, access: Access, space: tuple[tuple[int, int], ...]) -> list[int]:
        """Return, for each execution, the position of the first element of ``access`` in the flat buffer."""
        linear = _linear(access, self.model.buffers[access.buffer].strides)
        found: list[int] = values(linear, space).tolist() if space else [linear.const]
        return found

    def _form(
        self,
        node: Instruction,
        space: tuple[tuple[int, int], ...],
        layouts: list[object],
        handed: bool,
        merged: int,
        partial: bool,
        indirect: bool,
    ) -> _Form:
        model, buffers = self.model, self.model.buffers
        engine = self.place(node, model)
        variants, shapes = shape_variants(node, space)
        costs = []
        for shape in shapes:
            key = (
                node.op,
                node.attrs,
                engine,
                shape,
                handed,
                merged,
                *(_cost_key(a, model) for a in node.accesses),
                repr(node.srcs) if node.op == "memset" else "",
            )
            cost = self.costs.get(key)
            if cost is None:
                cost = self.costs[key] = _priced(node, engine, shape, model, merged, handed)
            costs.append(cost)
        store = node.op in DMA_OPS and buffers[node.dsts[0].buffer].space is Space.HBM
        accumulate = any(reads_destination(node, position) for position in range(len(node.dsts)))
        signature, keeps = -1, _keeps(node, space)
        shared = node.op not in UNSHARED and not store and node.attr("reduce_cmd") != "reduce"
        if shared and not indirect:
            attrs = tuple((k, v) for k, v in node.attrs if k not in ("loops", "hidden"))
            of = (node.op, attrs, tuple(layouts), node.pattern and node.pattern.coefs)
            signature = self.signatures.setdefault(of, len(self.signatures))
        return _Form(
            engine, costs, variants, signature, accumulate or partial or _writes_in_part(node), _first(node, space),
            store, _traffic(node, model), bool(node.attr("hidden")) or node.op == "broadcast_partition", keeps,
            _accumulator(node, self.folding), _elsewhere(node, engine, shapes, model, merged),
            _positions(node, space, keeps),
        )  # fmt: skip


def _merged(nodes: list[tuple[Instruction, tuple[Loop, ...]]], model: CostModel) -> dict[int, int]:
    """Return how many iterations one machine instruction covers, as a dict by the number of the instruction.

    Instructions that cover a single iteration are left out.
    """
    found: dict[int, int] = {}
    within: dict[int, tuple[int, Mapping[int, int]]] = {}
    for number, (_, loops) in enumerate(nodes):
        if loops:
            first, counts = within.setdefault(loops[-1].id, (number, merged_iterations(loops[-1], model)))
            if number - first in counts:
                found[number] = counts[number - first]
    return found


def accumulating(nodes: Iterable[Instruction]) -> frozenset[Engine]:
    """Return the engines with an accumulator that some instruction adds to."""
    return frozenset(node.engine for node in nodes if reduce_command(node) == "reduce")


def _accumulator(node: Instruction, folding: frozenset[Engine]) -> Accumulator | None:
    """Return how ``node`` uses its engine's accumulators. Return None if ``node`` uses no accumulators, or if no
    instruction adds to these accumulators.
    """
    command = reduce_command(node)
    if command == "idle" or node.engine not in folding:
        return None
    return Accumulator(node.engine, node.dsts[0].shape[0], command == "reduce")


CHOICES = {
    ("copy", Engine.SCALAR): Engine.VECTOR,
    ("copy", Engine.VECTOR): Engine.SCALAR,
    ("memset", Engine.VECTOR): Engine.GPSIMD,
}
"""The other engine that the compiler may choose, by operation and the engine that it usually chooses."""


def _elsewhere(
    node: Instruction, engine: Engine, shapes: Sequence[tuple[int, ...]], model: CostModel, merged: int
) -> list[Cost] | None:
    """Return the costs of ``node`` on the engine that the compiler may choose in place of ``engine``, one for each of
    ``shapes``; None if the compiler has no choice.

    An instruction that names its engine leaves no choice. ``merged`` is that of :func:`_priced`.
    """
    choice = CHOICES.get((node.op, engine))
    if choice is None or node.engine is not Engine.UNKNOWN:
        return None
    return [_priced(node, choice, shape, model, merged) for shape in shapes]


def _priced(
    node: Instruction, engine: Engine, shape: tuple[int, ...], model: CostModel, merged: int, handed_over: bool = False
) -> Cost:
    """Return the cost of one execution of ``node``.

    If one machine instruction covers ``merged`` iterations, the busy time is the execution's share of that machine
    instruction's busy time.
    """
    found = model.cost(node, engine, shape, handed_over=handed_over)
    if merged == 1:
        return found
    together = model.cost(node, engine, (*shape[:-1], shape[-1] * merged), handed_over=handed_over)
    return replace(found, busy_us=together.busy_us / merged)


def _positions(node: Instruction, space: tuple[tuple[int, int], ...], cut: list[bool] | None) -> list[Sequence[object]]:
    """Return, for each pattern of ``node``, a list with the pattern's part in each execution.

    For an operand or a selection that part is the pattern's base. For a mask it is the pattern's coefficients and base;
    it is None in executions in which the mask excludes nothing (``cut`` is False).
    """
    patterns = [operand for operand in (*node.srcs, node.pattern) if isinstance(operand, Pattern)]
    found: list[Sequence[object]] = [values(pattern.base, space).tolist() for pattern in patterns]
    if cut is None:
        return found
    for pattern in node.mask:
        bases = values(pattern.base, space).tolist()
        found.append([(pattern.coefs, base) if cuts else None for base, cuts in zip(bases, cut, strict=True)])
    return found


def _merged_within(load: Instruction, loops: tuple[Loop, ...], model: CostModel) -> tuple[int, ...]:
    """Return the loops whose iterations each load a new tile with ``load``, even if an earlier iteration loaded the
    same data.

    The result is () if all tiles of the load fit SBUF. A tile declared inside a loop has room for one
    iteration. To reuse such a tile in the next iteration of an outer loop, the compiler needs room for the
    tiles of all iterations in between. The compiler makes that room only if all tiles of the load fit SBUF. Two cases
    show this: the weights of the two kernels of NKIBench that load them in inner loops, and the left operand of
    AWS's tiled product.
    """
    affines = [start for src in load.srcs if isinstance(src, Access) for start in src.start]
    affines += [pattern.base for pattern in load.mask]
    varies = {loop for affine in affines for loop, _ in affine.terms}
    dst = load.dsts[0]
    tile_bytes = prod(dst.shape[1:]) * DTYPE_BYTES[model.dtype(dst)]
    if tile_bytes * prod(loop.trips for loop in loops if loop.id in varies) <= model.chip.sbuf_bytes_per_partition:
        return ()
    scope = model.buffers[dst.buffer].scope
    inner = max((depth for depth, loop in enumerate(scope, start=1) if loop in varies), default=0)
    return scope[:inner]


def _views(nodes: Iterable[tuple[Instruction, object]]) -> dict[int, Access]:
    """Return the tile behind each view, as a dict by the buffer id of the view. A view reads the bits of a tile as
    another dtype.

    An access of the view counts as an access of the tile. So a later write to the tile waits for the readers of the
    view, and a write to the view waits for the readers of the tile.
    """
    found: dict[int, Access] = {}
    for node, _ in nodes:
        if node.op == "bitcast" and isinstance(node.srcs[0], Access):
            source, target = node.srcs[0], node.dsts[0]
            view, tile = (source, target) if node.attr("back") else (target, source)
            found.setdefault(view.buffer, tile)
    return {view: tile for view, tile in found.items() if tile.buffer != view}


def _varying(nodes: list[tuple[Instruction, tuple[Loop, ...]]]) -> dict[int, set[int]]:
    """Return the loops on whose iteration a buffer's contents depend, as a dict by buffer id."""
    found: dict[int, set[int]] = defaultdict(set)
    for node, _ in nodes:
        loops = {loop for pattern in node.mask for loop, _ in pattern.base.terms}
        for access in node.accesses:
            loops |= {loop for start in access.start for loop, _ in start.terms}
        for src in node.srcs:
            if isinstance(src, Access):
                loops |= found[src.buffer]
        for dst in node.dsts:
            found[dst.buffer] |= loops
    return found


def _computed_within(
    node: Instruction, engine: Engine, cost: Cost, model: CostModel, varying: Mapping[int, set[int]]
) -> tuple[int, ...]:
    """Return the loops whose iterations each compute the tile of ``node`` again, even if the values are equal.

    The compiler does not keep a tile that changes in an inner loop for the next iteration of an outer loop, if
    computing the tile takes less time than a transfer takes to start.
    """
    if engine not in (Engine.VECTOR, Engine.SCALAR) or cost.busy_us >= model.params.dma_latency_us or not node.dsts:
        return ()
    scope = model.buffers[node.dsts[0].buffer].scope
    loops = varying.get(node.dsts[0].buffer, set())
    inner = max((depth for depth, loop in enumerate(scope, start=1) if loop in loops), default=0)
    return scope[:inner]


def _writes_in_part(node: Instruction) -> bool:
    """Tell whether the operation leaves some elements of a destination unchanged, even without a mask."""
    if any(leaves_result(node, number) for number in range(len(node.dsts))):
        return True
    if node.op == "shuffle":
        lanes = node.attr("lanes")
        return isinstance(lanes, tuple) and _SKIPPED_LANE in lanes
    return node.op in PARTIAL_OPS


def _traffic(node: Instruction, model: CostModel) -> tuple[int, int, int, int]:
    if node.op in DMA_OPS:
        return (0, 0, 0, 0)
    moved = {Space.HBM: [0, 0], Space.SBUF: [0, 0], Space.PSUM: [0, 0]}
    for side, accesses in enumerate(((src for src in node.srcs if isinstance(src, Access)), node.dsts)):
        for access in accesses:
            size = prod(access.shape[1:]) * DTYPE_BYTES[model.dtype(access)]
            moved[model.buffers[access.buffer].space][side] += size
    return (*moved[Space.SBUF], *moved[Space.PSUM])  # type: ignore[return-value]  # two and two


def _cost_key(access: Access, model: CostModel) -> object:
    """Return a key of an access. Accesses with equal keys have the same effect on the cost of an instruction."""
    buffer, number = model.buffers[access.buffer], access.buffer
    # The partitions of a transfer's tile decide which DMA engines move it.
    place = access.start[buffer.partition_axis].const if buffer.space is not Space.HBM else 0
    gathered = tuple([(one.axis, one.index is None) for one in access.indirect])
    layout = access.dims, gathered, buffer.space, buffer.shape, buffer.partition_axis, place
    return (*layout, model.dtype(access), number in model.recast, number in model.returned)


def _linear(access: Access, strides: tuple[int, ...]) -> Affine:
    const, moving = 0, Affine()
    for start, stride in zip(access.start, strides, strict=True):
        const += start.const * stride
        if start.terms:
            moving = moving + Affine(0, start.terms).scale(stride)
    return moving + const


def _layout(access: Access, model: CostModel, grid: Grid, cells: CellAccess) -> object:
    buffer = model.buffers[access.buffer]
    strides = buffer.strides
    moves = tuple(
        (dim.count, sum(s * t for s, t in zip(dim.steps, strides, strict=True)) if dim.count > 1 else 0)
        for dim in access.dims
    )
    return (
        moves,
        model.dtype(access),
        len(cells.offsets),
        tuple(s.const % g for s, g in zip(access.start, grid.grain, strict=True)),
    )


def _input_layout(access: Access, model: CostModel) -> object:
    strides = model.buffers[access.buffer].strides
    moves = tuple((d.count, sum(s * t for s, t in zip(d.steps, strides, strict=True))) for d in access.dims)
    return (moves, model.dtype(access))


def shape_variants(
    node: Instruction, space: tuple[tuple[int, int], ...]
) -> tuple[list[int] | None, list[tuple[int, ...]]]:
    """Return, for each execution, the index of the shape that its mask leaves, and the list of these distinct shapes.

    An index is -1 if the mask excludes the whole execution. The first result is None if all executions have the first
    shape.
    """
    shape = iteration_shape(node)
    if not node.mask:
        return None, [shape]
    counts = [np.full(prod(t for _, t in space), size, dtype=np.int64) for size in shape]
    for pattern in node.mask:
        axes = [axis for axis, coef in enumerate(pattern.coefs) if coef and shape[axis] > 1]
        base = values(pattern.base, space)
        if not axes:
            counts[0] = np.where(base >= 0, counts[0], 0)
        elif len(axes) == 1:
            coef, axis = pattern.coefs[axes[0]], axes[0]
            inside = base // -coef + 1 if coef < 0 else shape[axis] + (base // coef).clip(max=0)
            counts[axis] = np.minimum(counts[axis], inside.clip(0, shape[axis]))
    table = np.stack(counts, axis=1) if counts else np.zeros((1, 0), dtype=np.int64)
    distinct, which = np.unique(table, axis=0, return_inverse=True)
    which = which.reshape(-1)
    shapes = [tuple(int(x) for x in row) for row in distinct]
    padded = node.op == "matmul"
    empty = {i for i, row in enumerate(shapes) if 0 in row}
    if padded:
        shapes = [row if i in empty else shape for i, row in enumerate(shapes)]
    if len(shapes) == 1 and not empty:
        return None, shapes
    return [-1 if i in empty else i for i in which.tolist()], [
        shape if i in empty else row for i, row in enumerate(shapes)
    ]


def _keeps(node: Instruction, space: tuple[tuple[int, int], ...]) -> list[bool] | None:
    if not node.mask:
        return None
    shape = iteration_shape(node)
    cut = np.zeros(prod(trips for _, trips in space), dtype=bool)
    for pattern in node.mask:
        reach = sum(min(0, coef * (size - 1)) for coef, size in zip(pattern.coefs, shape, strict=False))
        cut |= values(pattern.base, space) + reach < 0
    return cut.tolist() if cut.any() else None


def _first(node: Instruction, space: tuple[tuple[int, int], ...]) -> list[bool] | None:
    if node.op != "loop_reduce":
        return None
    reduced = node.attr("loops")
    ids = set(reduced) if isinstance(reduced, tuple) else set()
    shape = tuple(trips for _, trips in space)
    mask = np.ones(shape, dtype=bool)
    for axis, (loop, trips) in enumerate(space):
        if loop in ids:
            mask &= (np.arange(trips) == 0).reshape((-1,) + (1,) * (len(space) - axis - 1))
    return [bool(x) for x in mask.reshape(-1)]


_NEARLY, _NOTHING, _BEYOND = 2.0**-18, 1e-15, 1e30
"""Tolerances of :func:`_scaled`: how near a factor must be to 1, how near a summand must be to 0, and from where on a
bound counts as infinite.
"""


def _scaled(node: Instruction, filled: Mapping[int, float]) -> tuple[float, float] | None:
    """Return (factor, summand) of a tensor_scalar that computes ``factor * x + summand``; None for any other
    instruction.

    ``filled`` has the value of each tile whose elements are all one number.
    """
    factor, summand = 1.0, 0.0
    for at, operand in enumerate(node.srcs[1:]):
        op, turned = node.attr(f"op{at}"), bool(node.attr(f"reverse{at}"))
        if op in (None, "bypass"):
            continue
        number = filled.get(operand.buffer) if isinstance(operand, Access) else operand
        if not isinstance(number, int | float):
            return None
        if op == "multiply" or (op == "divide" and number and not turned):
            by = number if op == "multiply" else 1.0 / number
            factor, summand = factor * by, summand * by
        elif op == "add":
            summand += number
        elif op == "subtract":
            factor, summand = (-factor, number - summand) if turned else (factor, summand - number)
        elif not (
            (op == "power" and number == 1.0 and not turned)
            or (op == "max" and number <= -_BEYOND)
            or (op == "min" and number >= _BEYOND)
        ):
            return None
    return factor, summand


def _keeps_values(
    number: int, nodes: Sequence[tuple[Instruction, object]], only: Mapping[int, int], filled: Mapping[int, float]
) -> bool:
    """Tell whether the chain of tensor_scalars that ends with instruction ``number`` computes the identity: its results
    equal its operands.

    The compiler folds such a chain into the instruction that reads it. ``only`` maps each tile that is written once to
    the number of its writer. A factor within a few roundings of 1 counts as 1.
    """
    factor, summand = 1.0, 0.0
    while True:
        node = nodes[number][0]
        here = _scaled(node, filled) if node.op == "tensor_scalar" else None
        if here is None:
            return False
        factor, summand = factor * here[0], factor * here[1] + summand
        if abs(abs(factor) - 1.0) <= _NEARLY and abs(summand) <= _NOTHING:
            return True
        data = node.srcs[0]
        before = only.get(data.buffer) if isinstance(data, Access) else None
        if before is None or before >= number:
            return False
        number = before


def _handed_over(
    program: Program, model: CostModel, nodes: list[tuple[Instruction, tuple[Loop, ...]]], place: Engines
) -> tuple[set[int], set[int]]:
    """Return which tiles the legacy compiler keeps in PSUM between the instruction that writes a tile and the
    instruction that reads it.

    The first result has the numbers of the broadcasts that write such a tile, and of the instructions that read such a
    tile. The second result has the buffers that the compiler moves to PSUM.

    Such a tile has one reader, fits a PSUM bank, and has no address in the kernel. It is the result of a broadcast to
    all partitions, or of a tensor_scalar whose call names no engine and which runs on the scalar engine. At any time
    there are at most as many such tiles as banks that the kernel's own tiles leave free. In a sequential loop
    broadcasts are copied to SBUF, as the one measured kernel with such a loop shows.
    """
    if model.params.small_operand_elements == 0 or not any(_may_stay(node) for node, _ in nodes):
        return set(), set()
    writers: dict[int, list[int]] = defaultdict(list)
    readers: dict[int, list[int]] = defaultdict(list)
    for number, (node, _) in enumerate(nodes):
        for dst in node.dsts:
            writers[dst.buffer].append(number)
        for src in node.srcs:
            if isinstance(src, Access):
                readers[src.buffer].append(number)
    filled = {
        buffer: float(node.srcs[0])
        for buffer, made in writers.items()
        for node, _ in (nodes[made[0]],)
        if len(made) == 1 and node.op == "memset" and isinstance(node.srcs[0], int | float)
    }
    only = {buffer: made[0] for buffer, made in writers.items() if len(made) == 1}

    def may_stay(buffer: int) -> bool:
        """Tell whether the size and the only writer of the tile ``buffer`` allow the tile to stay in PSUM."""
        made, tile = only[buffer], program.buffers[buffer]
        writer, loops = nodes[made]
        movable = tile.space is Space.SBUF and tile.address is None
        if not movable or prod(tile.shape[tile.partition_axis + 1 :]) * 4 > model.chip.psum_bank_bytes:
            return False
        if writer.op == "broadcast_partition":
            return not any(loop.kind is LoopKind.SEQUENTIAL for loop in loops)
        scales = writer.op == "tensor_scalar" and _may_stay(writer) and not _keeps_values(made, nodes, only, filled)
        return scales and place(writer, model) is Engine.SCALAR

    pairs = [
        (only[src.buffer], number)
        for number, (node, _) in enumerate(nodes)
        for src in (node.srcs if node.op == "tensor_tensor" else ())
        if isinstance(src, Access) and len(readers[src.buffer]) == 1 and src.buffer in only and may_stay(src.buffer)
    ]
    found: set[int] = set()
    left: set[int] = set()
    held: list[int] = []  # the readers of the tiles that are kept in PSUM now; each tile takes one bank
    declared = _declared_banks(program, model, nodes) if pairs else np.zeros(0, np.int64)
    for made, number in sorted(pairs):
        held = [reader for reader in held if reader >= made]
        if len(held) + declared[made : number + 1].max() < model.chip.psum_banks:
            held.append(number)
            found.add(number)
            if nodes[made][0].op == "broadcast_partition":
                found.add(made)
            else:
                left.add(nodes[made][0].dsts[0].buffer)
    return found, left


def _may_stay(node: Instruction) -> bool:
    """Tell whether the legacy compiler may leave the result of this operation in PSUM."""
    return node.op == "broadcast_partition" or (node.op == "tensor_scalar" and node.engine is Engine.UNKNOWN)


def _declared_banks(
    program: Program, model: CostModel, nodes: Sequence[tuple[Instruction, tuple[Loop, ...]]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return how many PSUM banks the kernel's own tiles occupy at each instruction.

    A tile occupies its banks from its first to its last use. If a loop around these uses does not contain the tile's
    declaration, the tile occupies its banks throughout that loop. Of a tile with several blocks one block counts,
    because the blocks are used one after another.
    """
    spans: dict[int, list[int]] = {}
    around: dict[int, list[int]] = {}
    for number, (node, loops) in enumerate(nodes):
        for loop in loops:
            around.setdefault(loop.id, [number, number])[1] = number
        for access in node.accesses:
            if program.buffers[access.buffer].space is Space.PSUM:
                spans.setdefault(access.buffer, [number, number])[1] = number
    banks = model.chip.psum_banks
    addressed = np.zeros((banks, len(nodes)), np.int64)
    others = np.zeros(len(nodes) + 1, np.int64)
    for buffer, (first, last) in spans.items():
        tile = program.buffers[buffer]
        carried = next((loop.id for loop in nodes[first][1] if loop.id not in tile.scope), None)
        if carried is not None:
            first, last = min(first, around[carried][0]), max(last, around[carried][1])
        free = prod(tile.shape[tile.partition_axis + 1 :])
        taken = -(-free * DTYPE_BYTES[tile.dtype] // model.chip.psum_bank_bytes)
        if tile.address is not None:
            bank = tile.address[1] // model.chip.psum_bank_bytes
            addressed[bank : bank + taken, first : last + 1] = 1
        else:
            others[first] += taken
            others[last + 1] -= taken
    return np.asarray(addressed.sum(axis=0) + others.cumsum()[:-1])


def _in_psum(program: Program, buffers: set[int]) -> Program:
    """Return a copy of the program in which ``buffers`` lie in PSUM."""
    return replace(
        program, buffers=tuple(replace(b, space=Space.PSUM) if b.id in buffers else b for b in program.buffers)
    )
