"""Prepare instructions for expansion: engine, cost and cells for every iteration of the loops around them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from acceld.nki.ir.def_use import leaves_result, reads_destination, reduce_command
from acceld.nki.ir.operations import DTYPE_BYTES, OPS
from acceld.nki.ir.program import Access, Affine, Engine, Instruction, Loop, LoopKind, Pattern, Program, Space
from acceld.nki.timing.buffer_pieces import CellAccess, Grid, cell_access, make_grids, values
from acceld.nki.timing.compiler_legacy import merged_iterations
from acceld.nki.timing.cost import DMA_OPS, FREE_OPS, REGISTER_OPS, Cost, CostModel, matmul_shape

Engines = Callable[[Instruction, CostModel], Engine]
"""Chooses the engine of an instruction."""

UNSHARED = (
    frozenset(
        {"random", "memset", "barrier", "exchange", "print", "dropout", "random_state_load", "random_state_store"}
    )
    | FREE_OPS
    | REGISTER_OPS
)
"""Operations that value numbering does not merge."""

_SKIPPED_LANE = 255


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Reads and writes of an engine's accumulators by an instruction, for the first ``partitions`` partitions."""

    engine: Engine
    partitions: int
    reads: bool


@dataclass(slots=True)
class Template:
    """An instruction node, and the cost and cells of each of its executions."""

    number: int
    instruction: Instruction
    engine: Engine
    costs: list[Cost]
    variants: list[int] | None
    """Index into ``costs`` of each execution (-1: masked out); None if all use the first cost."""
    reads: list[CellAccess]
    writes: list[CellAccess]
    input_bases: list[tuple[int, list[int]]]
    """(buffer, linear element) of each execution's operands in buffers whose cells do not distinguish all elements: HBM
    that is never written, and buffers with cells coarser than their accesses.
    """
    signature: int
    """Equal for instructions that compute the same from the same values; -1 if they are never merged."""
    accumulates: bool
    executions: int
    first: list[bool] | None
    """For a loop_reduce: True for each execution that is the first of its reduced loops."""

    @property
    def is_load(self) -> bool:
        """True if it moves HBM to SBUF."""
        return self.instruction.op in DMA_OPS and not self.is_store

    is_store: bool = False
    traffic: tuple[int, int, int, int] = (0, 0, 0, 0)
    """SBUF bytes read and written, PSUM bytes read and written; of one partition."""
    invariant_only: bool = False
    """True for an instruction inserted for a function of nki.language. It is merged only if its operands are older than
    the outermost loop.
    """
    clears: bool = False
    """True for a lazy memset: it is no instruction, and makes the buffer undefined again."""
    merged_within: tuple[int, ...] = ()
    """Loops whose next iterations do not find the same values again."""
    sequential: bool = False
    """True if it is in a sequential loop."""
    keeps: list[bool] | None = None
    """True for each execution whose mask leaves a part of its destinations unchanged; None if there is none."""
    accumulator: Accumulator | None = None
    other: list[Cost] | None = None
    """Costs on another engine that the compiler may choose."""
    positions: list[Sequence[object]] = field(default_factory=list)
    """Values that each execution takes from its loop variables in addition to its operands' positions: patterns, and
    masks that exclude something.
    """


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program ready for expansion."""

    program: Program
    templates: dict[int, Template]
    """By identity of the instruction node."""
    grids: Mapping[int, Grid]
    trips: Mapping[int, int]
    """Number of expanded iterations of each loop (fewer for extrapolation)."""


def prepare(program: Program, model: CostModel, place: Engines, trips: Mapping[int, int]) -> Prepared:
    """Return the templates of every instruction node. ``trips`` is the number of expanded iterations of each loop."""
    nodes = [(node, loops) for node, loops in program.walk()]
    written = {dst.buffer for node, _ in nodes for dst in node.dsts}
    accesses: dict[int, list[Access]] = defaultdict(list)
    full = {loop.id: loop.trips for loop in program.loops.values()}
    for node, _ in nodes:
        if node.op == "memset" and node.attr("lazy"):
            for dst in node.dsts:
                accesses[dst.buffer]  # the buffer needs a grid, but this access does not determine it
            continue
        for access in node.accesses:
            if access.buffer in written:
                accesses[access.buffer].append(access)
    handed, left = _handed_over(program, model, nodes, place)
    if left:
        program = _in_psum(program, left)
        model = replace(model, buffers=program.buffers)
    grids = make_grids(program.buffers, accesses, full)
    cells = _Cells(model, grids)
    varying = _varying(nodes)
    folding = accumulating(node for node, _ in nodes)
    merged = _merged(nodes, model)
    interned: dict[object, int] = {}
    costs: dict[object, Cost] = {}
    templates: dict[int, Template] = {}
    for number, (node, loops) in enumerate(nodes):
        space = tuple((loop.id, trips[loop.id]) for loop in loops)
        templates[number] = _template(
            number,
            node,
            loops,
            space,
            program,
            model,
            place,
            cells,
            written,
            interned,
            costs,
            handed,
            varying,
            folding,
            merged.get(number, 1),
        )
    return Prepared(program, templates, grids, trips)


class _Cells:
    """Finds the cells of accesses, and a layout that is equal for accesses of equal form.

    Tiles at the same place of equal buffers have the same cells. An unrolled loop has many of them.
    """

    def __init__(self, model: CostModel, grids: Mapping[int, Grid]) -> None:
        self.model, self.grids = model, grids
        self._known: dict[object, tuple[CellAccess, object]] = {}

    def of(self, access: Access, space: tuple[tuple[int, int], ...]) -> tuple[CellAccess, object]:
        """Return the cells of ``access`` for each point of ``space``, and its layout."""
        buffer, grid = self.model.buffers[access.buffer], self.grids[access.buffer]
        key = access.start, access.dims, access.indirect, access.dtype, buffer.dtype, buffer.shape, id(grid), space
        known = self._known.get(key)
        if known is None:
            cells = cell_access(access, buffer, grid, space)
            known = self._known[key] = cells, _layout(access, self.model, grid, cells)
        cells, layout = known
        if cells.buffer != access.buffer:
            cells = CellAccess(access.buffer, cells.bases, cells.offsets, cells.partial)
        return cells, layout


def iteration_shape(node: Instruction) -> tuple[int, ...]:
    """Return the instruction's iteration space without its mask."""
    kind = OPS[node.op].space if node.op in OPS else "dst"
    if kind == "kmn" and len(node.srcs) >= 2:
        return matmul_shape(node)
    if kind == "src" or not node.dsts:
        data = next((src for src in node.srcs if isinstance(src, Access)), None)
        return data.shape if data is not None else ()
    return node.dsts[0].shape


def _template(
    number: int,
    node: Instruction,
    loops: tuple[Loop, ...],
    space: tuple[tuple[int, int], ...],
    program: Program,
    model: CostModel,
    place: Engines,
    cells: _Cells,
    written: set[int],
    interned: dict[object, int],
    cost_table: dict[object, Cost],
    handed: set[int],
    varying: Mapping[int, set[int]],
    folding: frozenset[Engine],
    merged: int,
) -> Template:
    executions = prod(trips for _, trips in space)
    clears = node.op == "memset" and bool(node.attr("lazy"))
    if clears:
        return Template(
            number, node, Engine.SYNC, [Cost(Engine.SYNC)], None, [], [], [], -1, False, executions, None, clears=True
        )
    engine = place(node, model)
    buffers, grids = program.buffers, cells.grids
    reads: list[CellAccess] = []
    writes: list[CellAccess] = []
    inputs: list[tuple[int, list[int]]] = []
    layout: list[object] = []
    for src in node.srcs:
        if not isinstance(src, Access):
            layout.append(src.coefs if isinstance(src, Pattern) else repr(src))
            continue
        if src.buffer in written:
            found, laid_out = cells.of(src, space)
            reads.append(found)
            layout.append(laid_out)
            if not grids[src.buffer].exact:
                linear = _linear(src, buffers[src.buffer].strides)
                inputs.append((src.buffer, values(linear, space).tolist()))
        else:
            linear = _linear(src, buffers[src.buffer].strides)
            inputs.append((src.buffer, values(linear, space).tolist()))
            layout.append(_input_layout(src, model))
    for access in node.accesses:
        indices = [item.index for item in access.indirect if item.index is not None]
        reads += [cells.of(index, space)[0] for index in indices if index.buffer in written]
    for dst in node.dsts:
        found, laid_out = cells.of(dst, space)
        writes.append(found)
        layout.append(laid_out)
        if found.partial and not grids[dst.buffer].exact:
            linear = _linear(dst, buffers[dst.buffer].strides)
            inputs.append((dst.buffer, values(linear, space).tolist()))
    variants, shapes = shape_variants(node, space)
    costs = []
    for shape in shapes:
        key = (
            node.op,
            node.attrs,
            engine,
            shape,
            number in handed,
            merged,
            *(_cost_key(a, model) for a in node.accesses),
            repr(node.srcs) if node.op == "memset" else "",
        )
        cost = cost_table.get(key)
        if cost is None:
            cost = cost_table[key] = _priced(node, engine, shape, model, merged, number in handed)
        costs.append(cost)
    store = node.op in DMA_OPS and buffers[node.dsts[0].buffer].space is Space.HBM
    partial = any(w.partial for w in writes)
    accumulate = any(reads_destination(node, position) for position in range(len(node.dsts)))
    first = _first(node, space)
    signature, keeps = -1, _keeps(node, space)
    shared = node.op not in UNSHARED and not store and node.attr("reduce_cmd") != "reduce"
    if shared and not any(a.indirect for a in node.accesses):
        attrs = tuple((k, v) for k, v in node.attrs if k not in ("loops", "hidden"))
        key2 = (node.op, attrs, tuple(layout), node.pattern and node.pattern.coefs)
        signature = interned.setdefault(key2, len(interned))
    within: tuple[int, ...] = ()
    if node.op in DMA_OPS and not store:
        within = _merged_within(node, loops, model)
    elif costs:  # a loop without iterations has none
        within = _computed_within(node, engine, costs[0], model, varying)
    return Template(
        number, node, engine, costs, variants, reads, writes, inputs, signature,
        accumulate or partial or _writes_in_part(node), executions, first, store, _traffic(node, model),
        bool(node.attr("hidden")) or node.op == "broadcast_partition", keeps=keeps,
        merged_within=within,
        sequential=any(loop.kind is LoopKind.SEQUENTIAL for loop in loops),
        accumulator=_accumulator(node, folding),
        other=_elsewhere(node, engine, shapes, model, merged),
        positions=_positions(node, space, keeps),
    )  # fmt: skip


def _merged(nodes: list[tuple[Instruction, tuple[Loop, ...]]], model: CostModel) -> dict[int, int]:
    """Return the number of iterations that one instruction covers, by its number, if that is more than one."""
    found: dict[int, int] = {}
    within: dict[int, tuple[int, Mapping[int, int]]] = {}
    for number, (_, loops) in enumerate(nodes):
        if loops:
            first, counts = within.setdefault(loops[-1].id, (number, merged_iterations(loops[-1], model)))
            if number - first in counts:
                found[number] = counts[number - first]
    return found


def accumulating(nodes: Iterable[Instruction]) -> frozenset[Engine]:
    """Return the engines whose accumulators are read with values of an earlier instruction."""
    return frozenset(node.engine for node in nodes if reduce_command(node) == "reduce")


def _accumulator(node: Instruction, folding: frozenset[Engine]) -> Accumulator | None:
    """Return the accesses of ``node`` to accumulators; None if nothing reads them later."""
    command = reduce_command(node)
    if command == "idle" or node.engine not in folding:
        return None
    return Accumulator(node.engine, node.dsts[0].shape[0], command == "reduce")


CHOICES = {
    ("copy", Engine.SCALAR): Engine.VECTOR,
    ("copy", Engine.VECTOR): Engine.SCALAR,
    ("memset", Engine.VECTOR): Engine.GPSIMD,
}
"""Alternative engine of instructions that name none, by the compiler's usual engine."""


def _elsewhere(
    node: Instruction, engine: Engine, shapes: Sequence[tuple[int, ...]], model: CostModel, merged: int
) -> list[Cost] | None:
    """Return the costs of ``node`` on the other engine that could run it; None if it names its engine or only one can."""
    choice = CHOICES.get((node.op, engine))
    if choice is None or node.engine is not Engine.UNKNOWN:
        return None
    return [_priced(node, choice, shape, model, merged) for shape in shapes]


def _priced(
    node: Instruction, engine: Engine, shape: tuple[int, ...], model: CostModel, merged: int, handed_over: bool = False
) -> Cost:
    """Return the cost of ``node``. Its time is its share of one instruction that covers ``merged`` iterations."""
    found = model.cost(node, engine, shape, handed_over=handed_over)
    if merged == 1:
        return found
    together = model.cost(node, engine, (*shape[:-1], shape[-1] * merged), handed_over=handed_over)
    return replace(found, busy_us=together.busy_us / merged)


def _positions(node: Instruction, space: tuple[tuple[int, int], ...], cut: list[bool] | None) -> list[Sequence[object]]:
    """Return for each pattern of ``node`` its base in each execution; a mask's only if it excludes something."""
    patterns = [operand for operand in (*node.srcs, node.pattern) if isinstance(operand, Pattern)]
    found: list[Sequence[object]] = [values(pattern.base, space).tolist() for pattern in patterns]
    if cut is None:
        return found
    for pattern in node.mask:
        bases = values(pattern.base, space).tolist()
        found.append([(pattern.coefs, base) if cuts else None for base, cuts in zip(bases, cut, strict=True)])
    return found


def _merged_within(load: Instruction, loops: tuple[Loop, ...], model: CostModel) -> tuple[int, ...]:
    """Return the loops in which ``load`` makes a new tile in every iteration, even if it loads the same data again.

    The result is () if SBUF holds all tiles of the load. A tile declared inside a loop has room for one iteration. To
    reuse it in the next iteration of an outer loop, the compiler needs room for the tiles of all iterations in between.
    It makes that room only if all tiles of the load fit SBUF. Two cases show this: the weights of both kernels of
    NKIBench that load them in inner loops, and the left operand of AWS's tiled product.
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


def _varying(nodes: list[tuple[Instruction, tuple[Loop, ...]]]) -> dict[int, set[int]]:
    """Return for each buffer the loops that its contents depend on."""
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
    """Return the loops of which ``node`` computes its tile in every iteration, even a repeated one.

    A tile that changes in an inner loop is not kept for the next iteration of an outer loop if computing it takes less
    time than the start of a transfer.
    """
    if engine not in (Engine.VECTOR, Engine.SCALAR) or cost.busy_us >= model.params.dma_latency_us or not node.dsts:
        return ()
    scope = model.buffers[node.dsts[0].buffer].scope
    loops = varying.get(node.dsts[0].buffer, set())
    inner = max((depth for depth, loop in enumerate(scope, start=1) if loop in loops), default=0)
    return scope[:inner]


def _writes_in_part(node: Instruction) -> bool:
    """Return True if the operation itself leaves elements of its destination unchanged."""
    if any(leaves_result(node, number) for number in range(len(node.dsts))):
        return True
    if node.op == "shuffle":
        lanes = node.attr("lanes")
        return isinstance(lanes, tuple) and _SKIPPED_LANE in lanes
    return node.op in ("copy_predicated", "match_replace8", "local_gather")


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
    buffer = model.buffers[access.buffer]
    on_chip = buffer.space is not Space.HBM
    # The partitions of its tile decide which DMA engines a transfer uses.
    place = access.start[buffer.partition_axis].const if on_chip else buffer.shape
    return (access.dims, buffer.space, place, model.dtype(access))


def _linear(access: Access, strides: tuple[int, ...]) -> Affine:
    total = access.start[0].scale(strides[0])
    for start, stride in zip(access.start[1:], strides[1:], strict=True):
        total = total + start.scale(stride)
    return total


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
    """Return the index of each execution's shape inside its mask, and the distinct shapes."""
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
"""Tolerances within which a factor counts as one, a summand as zero, and a bound as infinite."""


def _scaled(node: Instruction, filled: Mapping[int, float]) -> tuple[float, float] | None:
    """Return factor and summand of a tensor_scalar that computes ``factor * x + summand``; None for any other.

    ``filled`` has the tiles that hold a single number.
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
    """Return True if a chain of tensor_scalars up to this one changes nothing.

    A compiler then folds the chain into the instruction that reads it. ``only`` maps each tile that is written once to
    its writer. A factor within a few roundings of 1 counts as 1.
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
    """Return the broadcasts and readers whose tile the legacy compiler leaves in PSUM, and the buffers it puts there.

    Such a tile has one reader, fits a bank, and has no address in the kernel. Their number at any time is limited by
    the banks that the kernel's own tiles leave. They are results of unplaced tensor_scalars on the scalar engine, and
    broadcasts to all partitions. In a sequential loop broadcasts are copied to SBUF, as the one measured kernel with
    such a loop shows.
    """
    if model.params.small_operand_elements == 0:
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
    pairs: list[tuple[int, int]] = []
    for number, (node, _) in enumerate(nodes):
        if node.op != "tensor_tensor":
            continue
        for src in node.srcs:
            if not isinstance(src, Access) or len(readers[src.buffer]) != 1 or len(writers[src.buffer]) != 1:
                continue
            made = writers[src.buffer][0]
            writer = nodes[made][0]
            tile = program.buffers[src.buffer]
            movable = tile.space is Space.SBUF and tile.address is None
            small = movable and prod(tile.shape[tile.partition_axis + 1 :]) * 4 <= model.chip.psum_bank_bytes
            scaled = (
                writer.op == "tensor_scalar"
                and writer.engine is Engine.UNKNOWN
                and not _keeps_values(made, nodes, only, filled)
                and place(writer, model) is Engine.SCALAR
            )
            spread = writer.op == "broadcast_partition" and not any(
                loop.kind is LoopKind.SEQUENTIAL for loop in nodes[made][1]
            )
            if small and (scaled or spread):
                pairs.append((made, number))
    found: set[int] = set()
    left: set[int] = set()
    held: list[int] = []  # readers of values now in PSUM, a bank each
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


def _declared_banks(
    program: Program, model: CostModel, nodes: Sequence[tuple[Instruction, tuple[Loop, ...]]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the number of banks that the kernel's own tiles in PSUM occupy at each instruction.

    A tile is held from its first to its last use, and throughout any loop around these that does not contain its
    declaration. Of several blocks only one counts, because they are used one after another.
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
    """Return the program with these buffers moved to PSUM."""
    return replace(
        program, buffers=tuple(replace(b, space=Space.PSUM) if b.id in buffers else b for b in program.buffers)
    )
