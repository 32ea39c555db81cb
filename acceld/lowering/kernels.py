"""Lower a graph to a kernel: divide the graph into regions, join equal regions into loops, and write a loop nest for
each region.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from acceld.lowering.axes import PARTITIONS, merged, squeezed
from acceld.lowering.building import KernelBuilder
from acceld.lowering.choices import BYTES, WIDEST, HbmPlacement, Rolled
from acceld.lowering.engines import balanced
from acceld.lowering.forwarding import on_chip
from acceld.lowering.graph import INDEX, Graph, Node, Shape, View, coordinates, dense, overlap, root, whole
from acceld.lowering.loops import vectorized
from acceld.lowering.nests import Nest
from acceld.lowering.regions import (
    MOST_NODES,
    Access,
    Division,
    Region,
    Turns,
    accesses,
    in_place,
    regions,
    stores,
)
from acceld.lowering.simplify import simplified
from acceld.lowering.spelling import SPELLINGS
from acceld.lowering.statements import HbmTensor, Kernel
from acceld.lowering.steps import LEAST_STEPS
from acceld.lowering.stores import COMPUTED

LESS_TRAFFIC = 0.7
"""Greatest ratio of HBM traffic (regions with one matrix product each, to larger regions) at which regions with one
product are chosen.

Regions with one product exchange results through HBM. That takes time, so they have to save at least 30 % of the bytes.
The value is fitted.
"""
OTHERS = 16 * 1024
"""Bytes of each partition for values that stay on the chip during a whole loop over steps."""
RESERVED = ("nki", "nisa", "nl")
"""Names that the imports of every kernel's file define."""
_ASSIGNED = re.compile(r"^\s*([A-Za-z_]\w*)\s*[-+*/@]?=(?!=)")


@dataclass(frozen=True, slots=True)
class Pieces:
    """Limits on the sizes of a kernel's regions and chunks. With smaller ones, a kernel is simpler and mostly slower."""

    nodes: int = MOST_NODES
    """Greatest number of graph nodes in a region. With 1, each value of the graph goes through HBM."""
    columns: int = WIDEST
    """Greatest number of columns that a loop nest computes at one time."""


LARGEST = Pieces()


def lowered(
    graph: Graph,
    api: str,
    *,
    name: str = "kernel",
    doc: str = "",
    shapes: Mapping[str, Shape] | None = None,
    output_shapes: Sequence[Shape] = (),
    parameters: Sequence[str] = (),
    numbers: Mapping[str, float] | None = None,
    pieces: Pieces = LARGEST,
) -> Kernel:
    """Return a kernel for an API that computes the outputs of a graph.

    Raise NotLowered if the graph has something that is not lowered.

    - ``shapes``: the kernel's shapes of arguments that have another shape in the reference, by name.
    - ``output_shapes``: the kernel's shapes of its outputs.
    - ``parameters``: names of all parameters in order. They are needed only if some parameters are numbers.
    - ``numbers``: the values of these numbers, which are in the graph.
    - ``pieces``: greatest sizes of the kernel's pieces.
    """
    graph = _simplified(graph)
    found = _planned(graph, api, name, shapes or {}, output_shapes, MOST_NODES, pieces)
    if any(sum(node.kind == "dot" for node in nest.nodes) > 1 for nest in found.nests):
        apart = _planned(graph, api, name, shapes or {}, output_shapes, 1, pieces)
        if apart.traffic < LESS_TRAFFIC * found.traffic:
            found = apart
    for part in found.parts:
        part.write()
    named = tuple(parameters) or tuple(node.name for node in graph.inputs)
    kernel = Kernel(
        name, doc, named, found.made, tuple(found.build.blocks[0]), found.returned, tuple((numbers or {}).items())
    )
    if pieces.nodes >= MOST_NODES:  # with smaller regions, values are meant to go through HBM
        kernel = on_chip(kernel, BYTES, found.build.fresh)
    return kernel if SPELLINGS[api].chooses_engines else balanced(kernel)


@functools.lru_cache(maxsize=1)
def _simplified(graph: Graph) -> Graph:
    """Return the simplified graph. The last result is cached, because it is the same for each API."""
    return simplified(vectorized(graph))


@functools.lru_cache(maxsize=2)
def _divided(graph: Graph, most_products: int, most_nodes: int) -> Division:
    """Return the division of a graph into regions. The last two results are cached, because both APIs need the same
    ones.
    """
    return regions(graph, most_products, most_nodes)


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop over ``trips`` steps that run one after another. ``nests`` are the loop nests of one step."""

    build: KernelBuilder
    trips: int
    nests: list[Nest]

    def write(self) -> None:
        """Append the statements of the loop to the kernel.

        Operands that are the same in all steps are loaded before the loop if they fit beside the tiles of a step.
        """
        sizes = [nest.bytes_unmoved() for nest in self.nests]
        if sum(sizes) - max(sizes) <= OTHERS:
            for nest in self.nests:
                nest.load_unmoved()
        with self.build.loop("step", self.trips, ordered=True) as step:
            for nest in self.nests:
                nest.write_step(step)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The plan of a kernel: its loop nests and loops, and the tensors that it allocates and returns."""

    build: KernelBuilder
    parts: list[Nest | _Loop]
    made: tuple[HbmTensor, ...]
    returned: tuple[HbmTensor, ...]

    @property
    def nests(self) -> list[Nest]:
        """Return the loop nests of the kernel, with those inside of loops over steps."""
        return [nest for part in self.parts for nest in (part.nests if isinstance(part, _Loop) else [part])]

    @property
    def traffic(self) -> int:
        """Return an estimate of the bytes that move between HBM and the chip."""
        return sum(
            part.trips * sum(nest.traffic() for nest in part.nests) if isinstance(part, _Loop) else part.traffic()
            for part in self.parts
        )


def _planned(
    graph: Graph,
    api: str,
    name: str,
    shapes: Mapping[str, Shape],
    output_shapes: Sequence[Shape],
    most_products: int,
    pieces: Pieces,
) -> _Plan:
    """Return the plan of a kernel for a graph. Each region has at most ``most_products`` matrix products."""
    divided = _divided(graph, most_products, pieces.nodes)
    build = KernelBuilder([*(node.name for node in graph.inputs), *RESERVED, name])
    memory, made, returned = _memory(divided, build, shapes, output_shapes)
    nest_of = functools.partial(Nest, sums_beside=SPELLINGS[api].sums_beside, most_columns=pieces.columns)

    def nests(rolled: Rolled) -> list[Nest]:
        first = nest(rolled)
        return [nest(rolled, strip) for strip in first.strips] or [first]

    def nest(rolled: Rolled, strip: tuple[int, int] | None = None) -> Nest:
        reach = external(rolled.region, memory)
        found = nest_of(build, memory, rolled, reach, graph.lines, sliced=True, strip=strip)
        if (found.rows < PARTITIONS or found.steps > 1) and SPELLINGS[api].has_patterns:
            # Access patterns, unlike slices, can spread parts of a row, or of the summed axis, over idle partitions.
            wider = nest_of(build, memory, rolled, reach, graph.lines, sliced=False, strip=strip)
            fewer = wider.rows == found.rows and 3 * wider.steps <= found.steps
            found = wider if wider.rows > found.rows or fewer else found
        return found

    parts: list[Nest | _Loop] = []
    plain: list[tuple[Region, list[Access]]] = []
    for part in divided.parts:
        if not isinstance(part, Turns):
            plain.append((part, external(part, memory)))
            continue
        steps = [[(region, external(region, memory)) for region in body] for body in part.bodies]
        first, end = _alike(steps, memory)
        body = _repeated(steps[first:end], memory)
        if body is None:
            plain += itertools.chain(*steps)
            continue
        for rolled in rolled_up([*plain, *itertools.chain(*steps[:first])], memory):
            parts += nests(rolled)
        parts.append(_Loop(build, end - first, [*itertools.chain.from_iterable(map(nests, body))]))
        plain = [*itertools.chain(*steps[end:])]
    for rolled in rolled_up(plain, memory):
        parts += nests(rolled)
    return _Plan(build, parts, made, returned)


def _names(graph: Graph) -> dict[int, str]:
    """Return names for the values of a graph, as a dict by node id.

    A value that a line of the reference assigns to a variable gets the variable's name. If the line computes several
    values, only the last one gets that name.
    """
    last: dict[int, Node] = {}
    for node in graph.nodes():
        if node.kind in COMPUTED and node.line:
            last[node.line] = node
    found = {}
    for line, node in last.items():
        match = _ASSIGNED.match(graph.lines[line - 1]) if line <= len(graph.lines) else None
        if match:
            found[id(node)] = match[1]
    return found


def _memory(
    divided: Division,
    build: KernelBuilder,
    shapes: Mapping[str, Shape],
    output_shapes: Sequence[Shape],
) -> tuple[HbmPlacement, tuple[HbmTensor, ...], tuple[HbmTensor, ...]]:
    """Return the places of values in HBM, the tensors that the kernel allocates, and the tensors that it returns.

    Inputs, outputs, buffers and values that another region reads have a tensor. All steps of a loop share one tensor
    for a value.
    """
    graph = divided.graph
    tensors = {id(node): HbmTensor(node.name, shapes.get(node.name, node.shape), node.dtype) for node in graph.inputs}
    tensors[id(INDEX)] = HbmTensor("index", INDEX.shape, INDEX.dtype)
    starts: dict[int, int] = {}
    targets: dict[int, list[View]] = {}
    made: list[HbmTensor] = []
    columns = {id(node): column for steps in divided.steps for column in steps.columns() for node in column}

    views: dict[int, list[View]] = {}
    for node in graph.nodes():
        for view in node.views:
            views.setdefault(id(view.node), []).append(view)

    def give(node: Node, name: str, shape: Shape) -> HbmTensor:
        first = root(node)
        if id(first) not in tensors:
            column = columns.get(id(first), [first])
            lead = () if len(column) == 1 else (len(column),)
            made.append(HbmTensor(build.fresh(name), (*lead, *shape), node.dtype))
            for number, one in enumerate(column):
                tensors[id(one)] = made[-1]
                if lead:
                    starts[id(one)] = number * first.size
                if one.kind != "buffer":
                    targets.setdefault(id(one), []).append(whole(one))
        tensors[id(node)] = tensors[id(first)]
        if id(first) in starts:
            starts[id(node)] = starts[id(first)]
        return tensors[id(node)]

    returned = []
    for number, view in enumerate(graph.outputs):
        shape = output_shapes[number] if number < len(output_shapes) else view.shape
        returned.append(give(view.node, "out" if len(graph.outputs) == 1 else f"out{number}", shape))
    for node in graph.nodes():
        if node.kind == "buffer" and node.args:
            if id(node) not in tensors:
                give(node, "held", node.shape)
            value = node.args[-1]
            assert isinstance(value, View) and node.target is not None
            targets.setdefault(id(value.node), []).append(
                View(node, node.target.shape, node.target.strides, node.target.offset)
            )
    for region in divided.regions:
        inside = {id(node) for node in region.nodes}
        for node in region.nodes:
            for access in accesses(node, region.layout.rows) if id(node) not in region.layout.folds else ():
                assert access is not None
                source = access.view.node
                if (
                    source.kind in COMPUTED
                    and not (id(source) in inside and in_place(access, region.layout.columns[id(source)]))
                    and id(source) not in tensors
                ):
                    give(source, "held", _coarse(source, views[id(source)]))
    return HbmPlacement(tensors, starts, targets, _names(graph)), tuple(made), tuple(returned)


def _coarse(node: Node, views: Sequence[View]) -> Shape:
    """Return the shape of a value in HBM with as few axes as its node and the views that read it allow: none of them
    steps over the end of an axis. A large value that they allow to have a single axis keeps its shape.
    """
    kept = [axis for axis, extent in enumerate(node.shape) if extent != 1]
    own = [dense(node.shape), *(view.strides for view in node.views if node.kind in ("elementwise", "reduce"))]
    written = [tuple((node.shape[axis], strides[axis]) for axis in kept) for strides in own]
    read = (axis for view in views for axis in merged([squeezed(view.shape, view.strides)])[0])
    steps = {1, *(step for _, step in (*merged(written)[0], *read) if step > 0)}
    ends = [node.size, *sorted(steps, reverse=True)]
    found = tuple(a // b for a, b in itertools.pairwise(ends) if a != b)
    apart = node.kind == "dot" or any(a % b for a, b in itertools.pairwise(ends))
    return node.shape if apart or (len(found) < 2 and node.size > WIDEST) else found


def external(region: Region, memory: HbmPlacement) -> list[Access]:
    """Return the accesses by which a region reads and writes HBM."""
    inside = {id(node) for node in region.nodes}
    found = []
    rows = region.layout.rows
    for node in region.nodes:
        if id(node) not in region.layout.folds:
            for access in accesses(node, rows):
                assert access is not None
                if id(access.view.node) not in inside:
                    found.append(access)
        for target in memory.targets.get(id(node), ()):
            if id(node) in region.layout.folds:
                axis = region.layout.folds[id(node)]
                others = tuple(n for at, n in enumerate(rows) if at != axis)
                access = stores(node, target, others, region.layout.columns[id(node)])
                kept = (*access.rows[:axis], (rows[axis], 0), *access.rows[axis:])
                found.append(Access(node, -1, "store", target, kept, access.columns))
            else:
                found.append(stores(node, target, rows, region.layout.columns[id(node)]))
    return found


def _signature(region: Region, found: Sequence[Access], memory: HbmPlacement) -> object:
    """Return a key of a region that is equal for regions which differ only in the offsets of their HBM accesses.

    ``found`` are the HBM accesses of the region.
    """
    place = {id(node): number for number, node in enumerate(region.nodes)}
    nodes = tuple(
        (
            node.kind,
            node.name,
            node.shape,
            node.dtype,
            node.folded,
            tuple(place.get(id(arg.node), -1) if isinstance(arg, View) else arg for arg in node.args),
        )
        for node in region.nodes
    )
    reach = tuple(
        (a.role, a.number, place[id(a.node)], memory.tensor(a.view.node).name, a.view.shape, a.view.strides)
        for a in found
    )
    return region.layout.rows, nodes, reach


def rolled_up(found: Sequence[tuple[Region, list[Access]]], memory: HbmPlacement) -> list[Rolled]:
    """Return the regions in order, with neighboring regions that differ only in offsets joined to one region in loops.

    ``found`` has each region with its HBM accesses.
    """
    result: list[Rolled] = []
    at = 0
    while at < len(found):
        signature = _signature(*found[at], memory)
        written = {memory.tensor(a.view.node).name for a in found[at][1] if a.role == "store"}
        read = {memory.tensor(a.view.node).name for a in found[at][1] if a.role != "store"}
        end = at + 1
        while end < len(found) and not written & read and _signature(*found[end], memory) == signature:
            end += 1
        block = found[at:end]
        alone = len(block) == 1 or _overwritten(block)
        result += [Rolled(region) for region, _ in block] if alone else _fitted(block, memory)
        at = end
    return result


def _overwritten(block: Sequence[tuple[Region, list[Access]]]) -> bool:
    """Tell whether two regions may store to the same element. Their order then matters, so they can not become a loop."""
    for place, first in enumerate(block[0][1]):
        if first.role == "store" and any(overlap(first.view, found[place].view) for _, found in block[1:]):
            return True
    return False


Body = Sequence[tuple[Region, list[Access]]]
"""The regions of one step of a loop, each with its HBM accesses."""


def _alike(steps: Sequence[Body], memory: HbmPlacement) -> tuple[int, int]:
    """Return the range (first, end) of steps around the middle step that differ from it only in offsets.

    The last step, for example, may have other regions, because no step reads its values.
    """
    signatures = [[_signature(region, reach, memory) for region, reach in body] for body in steps]
    first = middle = len(steps) // 2
    end = middle + 1
    while first and signatures[first - 1] == signatures[middle]:
        first -= 1
    while end < len(steps) and signatures[end] == signatures[middle]:
        end += 1
    return first, end


def _repeated(steps: Sequence[Body], memory: HbmPlacement) -> list[Rolled] | None:
    """Return the regions of one step, each with the distance by which its HBM accesses move from step to step.

    Return None if there are too few steps, or if an access does not move by the same distance in all steps.
    """
    if len(steps) < LEAST_STEPS:
        return None
    found = []
    for block in zip(*steps, strict=True):
        moves = _moved(block, memory, 1)
        if moves is None:
            return None
        found.append(Rolled(block[0][0], moves=tuple(move for move, _ in moves)))
    return found


def _fitted(block: Sequence[tuple[Region, list[Access]]], memory: HbmPlacement) -> list[Rolled]:
    """Return equal regions as one region inside one or two loops. From one iteration of a loop to the next, each
    HBM access moves by a constant of its own.

    If no such loops give the regions' offsets, each region is returned separately.
    """
    total = len(block)
    for inner in (1, *(d for d in range(2, total) if total % d == 0)):
        steps = _moved(block, memory, inner)
        if steps is not None:
            counts = (total // inner, inner) if inner > 1 else (total,)
            return [Rolled(block[0][0], counts, tuple(step[: len(counts)] for step in steps))]
    return [Rolled(region) for region, _ in block]


def _moved(
    block: Sequence[tuple[Region, list[Access]]], memory: HbmPlacement, inner: int
) -> list[tuple[int, int]] | None:
    """Return how far each HBM access of equal regions moves per trip of an outer loop and of an inner loop.

    The inner loop has ``inner`` trips. Return None if the accesses do not move as in two such loops.
    """
    found = []
    for column in zip(*(reach for _, reach in block), strict=True):
        views = [access.view for access in column]
        step = _steps([memory.offset(view) for view in views], inner)
        along = [_steps(axis, inner) for axis in zip(*(_place(view, memory) for view in views), strict=True)]
        # A step must stay on its axes, because the kernel's indices count along each axis.
        if step is None or None in along or any(_turns_back(level) for level in zip(*filter(None, along), strict=True)):
            return None
        found.append(step)
    return found


def _place(view: View, memory: HbmPlacement) -> tuple[int, ...]:
    """Return the position of a view's first element along each axis of the HBM tensor that has the view's values."""
    if view.node is INDEX:
        return (view.offset,)
    if id(view.node) in memory.starts:
        return coordinates(memory.offset(view), memory.tensor(view.node).shape)
    return coordinates(view.offset, view.node.shape)


def _turns_back(steps: Sequence[int]) -> bool:
    """Tell whether a step moves forward along one axis and backward along another axis."""
    return min(steps, default=0) < 0 < max(steps, default=0)


def _steps(column: Sequence[int], inner: int) -> tuple[int, int] | None:
    """Return the steps of two nested loops whose iterations give the values ``column`` in order, as (outer, inner).

    A step is what the value grows by from one iteration of that loop to the next. ``inner`` is the inner loop's number
    of iterations. Return None if no two steps give these values.
    """
    outer_step = column[inner] - column[0] if len(column) > inner else 0
    inner_step = column[1] - column[0] if inner > 1 else 0
    every = (column[0] + outer_step * (i // inner) + inner_step * (i % inner) for i in range(len(column)))
    return (outer_step, inner_step) if tuple(column) == tuple(every) else None


def _distinct(view: View) -> int:
    """Return how many different elements of its node a view reads. An element that the view repeats counts once."""
    return math.prod(extent for extent, step in zip(view.shape, view.strides, strict=True) if step)


def work(graph: Graph) -> tuple[int, int, int]:
    """Return (operations of matrix products, operations of all other nodes, bytes of inputs and outputs) of a graph.

    Operations are floating-point operations. Only those elements of an input count that the graph reads. An element of
    64 bits counts 4 bytes, because kernels take 32 bits.
    """
    products = others = 0
    read: Counter[int] = Counter()
    for node in graph.nodes():
        for place, view in enumerate(node.views):
            rows = node.size if node.kind == "gather" and place == 1 else _distinct(view)
            read[id(view.node)] += rows
        if node.kind == "dot":
            for view in node.views[::2]:
                products += 2 * node.size * math.prod(view.shape[len(view.shape) - node.folded :])
        elif node.kind in ("elementwise", "scan"):
            others += node.size
        elif node.kind == "reduce":
            others += math.prod(node.views[0].shape)
    for view in graph.outputs:
        read[id(view.node)] += _distinct(view)
    moved = sum(math.prod(view.shape) * BYTES.get(view.dtype, 4) for view in graph.outputs)
    moved += sum(min(node.size, read[id(node)]) * BYTES.get(node.dtype, 4) for node in graph.inputs)
    return products, others, moved
