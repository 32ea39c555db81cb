"""Load tiles once before a loop if all its iterations load the same tiles."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from acceld.editing import Edits
from acceld.model import Profile
from acceld.nki.source.affine import Affine
from acceld.nki.source.building import depends_on, emitted, filled_before, named_inside
from acceld.nki.source.nests import ELEMENT_BYTES, around, first_line, remove
from acceld.nki.source.reading import KernelModule
from acceld.nki.source.spelling import partitions, prefix, span
from acceld.nki.source.syntax import LOADS, Access, Loop, Statement, value_of
from acceld.proposers.rules.records import Place, Rule, Variant

LARGEST_BYTES = 144 * 1024
"""Greatest number of bytes of the kept tiles in each partition: three quarters of SBUF on trn1."""


@dataclass(frozen=True)
class Repeated:
    """A statement that writes the same tiles in every iteration of a loop."""

    made: Statement
    declaration: Statement | None
    loop: Loop
    """The outermost loop that repeats the statement and before which all its tiles fit into SBUF."""
    indices: tuple[Loop, ...]
    """The loops inside of ``loop`` whose iterations each have a tile of their own, outermost first."""
    shape: tuple[int, ...]
    reads: tuple[Access, ...]
    repeats: int


class HoistLoads(Rule):
    """Move a load before a loop on which its address does not depend. The loaded tiles stay in SBUF."""

    name = "hoist_loads"
    reason = (
        "HBM delivers 272 GB/s to a trn1 core (368 on trn2), SBUF about twenty times as much: data used again should be "
        "loaded once and stay on chip. The current API runs the loads a kernel writes; no compiler merges them."
    )
    source = "AWS NKI performance guide: data reuse; NKI migration guide: loops are unrolled as written"
    apis = frozenset({"nki_legacy", "nki"})
    change_class = "dma"
    relieves = ("dma",)

    def find(self, kernel: KernelModule, profile: Profile | None) -> Iterator[Place]:
        """Yield every load that each iteration of a loop repeats and that can move before the loop."""
        for statement in kernel.statements:
            repeated = _repeated(kernel, statement)
            if repeated is None:
                continue
            tiles = prod(loop.trips or 1 for loop in repeated.indices)
            source, outer = kernel.text(statement.reads["src"].node), repeated.loop.variable
            yield self.found(
                statement.line,
                partial(_hoisted, kernel, repeated),
                Variant("keep"),
                precondition=f"{source} does not depend on {outer}, nothing writes it, and its {tiles} tiles fit into three quarters "
                "of SBUF",
                plan=f"Every iteration of {outer} loads {source} again. Load its {tiles} tiles once before the loop and "
                f"keep them: {repeated.repeats - 1} of {repeated.repeats} loads disappear.",
                benefit=0.55 if kernel.api == "nki" else 0.12,
                gain_percent=(5.0, 50.0) if kernel.api == "nki" else (0.0, 20.0),
            )


def _repeated(kernel: KernelModule, load: Statement) -> Repeated | None:
    """Return the load with the outermost loop that repeats it. Return None if no loop repeats it, or if it can not
    move before that loop.
    """
    source = _source(kernel, load)
    if source is None:
        return None
    names, shape = kernel.variables_of(source), _shape(kernel, load, source)
    if names is None or shape is None or len(shape) != 2 or shape[0] > 128 or kernel.writers(source.name):
        return None
    name, declaration = load.made.name, kernel.declaration(load.made.name)
    if kernel.ambiguous & {name, source.name} or len(kernel.writers(name)) != 1:
        return None
    if declaration is None:
        is_own = kernel.api != "nki"
    else:
        is_own = (
            declaration.parent is load.parent
            and kernel.space_of(name) == "sbuf"
            and kernel.buffers[name].shape == shape
        )
    reads = plain_reads(kernel, name, 1 + (declaration is not None)) if is_own else ()
    best: Repeated | None = None
    for loop, inner in _repeating(kernel, load, names) if reads else ():
        indices = tuple(reversed([one for one in inner if one.variable in names]))
        if kept_bytes(indices, shape) > LARGEST_BYTES or any(named_inside(one.node.iter, loop) for one in indices):
            break
        repeats = prod(one.trips or 1 for one in (loop, *inner) if one.variable not in names)
        best = Repeated(load, declaration, loop, indices, shape, reads, repeats)
    return best


def _shape(kernel: KernelModule, load: Statement, source: Access) -> tuple[int, ...] | None:
    """Return the shape of the tile that a load makes; None if it is not known."""
    if kernel.api != "nki":
        return kernel.tile_shape(load)
    if not isinstance(source.node, ast.Call):
        return kernel.extents(source)
    # a pattern, which has as many elements as the tile
    declared = kernel.buffers[load.made.name].shape if load.made.name in kernel.buffers else ()
    known = tuple(extent for extent in declared if extent is not None)
    return known if len(known) == len(declared) else None


def kept_bytes(indices: Sequence[Loop], shape: Sequence[int | None]) -> int:
    """Return how many bytes of each SBUF partition it takes to keep one tile of ``shape`` for every iteration of the
    loops ``indices``.
    """
    return prod(one.trips or 1 for one in indices) * (shape[1] or 1) * ELEMENT_BYTES


def _source(kernel: KernelModule, load: Statement) -> Access | None:
    """Return the part of an argument that a load reads into a whole tile; None for other statements."""
    if load.kind != "op" or load.op not in LOADS or (load.op == "dma_copy") != (kernel.api == "nki"):
        return None
    source = load.reads.get("src")
    if kernel.mask(load) or load.target is None or load.target.dims is not None or source is None:
        return None
    return source if kernel.is_tensor(source.name) else None


def _repeating(kernel: KernelModule, load: Statement, names: frozenset[str]) -> Iterator[tuple[Loop, Sequence[Loop]]]:
    """Yield each loop that repeats a load and before which the load may move, innermost first, each with the loops
    between it and the load.

    ``names`` are the loop variables on which the load's address depends.
    """
    loops = around(load)
    for number, loop in enumerate(loops):
        if loop.variable in names:
            continue
        inner = loops[:number]
        if loop.trips is None or loop.trips < 2 or any(one.trips is None for one in inner):
            return
        outside = any(loop not in around(reader) for reader in kernel.readers(load.made.name))
        if outside or named_inside(load.node, loop):
            return
        yield loop, inner


def plain_reads(kernel: KernelModule, name: str, others: int) -> tuple[Access, ...]:
    """Return all reads of the tile ``name``; () if the tile is also used as more than a plain operand.

    ``others`` is the number of further occurrences of the name: where the tile is written and declared.
    """
    reads = [a for s in kernel.statements for a in s.reads.values() if a.name == name]
    plain = all(access.dims is None or len(access.dims) == 2 for access in reads)
    return tuple(reads) if plain and kernel.named[name] == len(reads) + others else ()


def _hoisted(kernel: KernelModule, repeated: Repeated, _: Variant) -> str:
    """Return the source in which the tiles are loaded once before the loop and kept, and the loop reads the kept
    tiles. A single tile keeps its name and its declaration.
    """
    loop, declaration, load = repeated.loop, repeated.declaration, repeated.made
    variables = frozenset({loop.variable, *(one.variable for one in loop.loops())})
    if (
        declaration is None
        or repeated.indices
        or named_inside(declaration.node, loop)
        or depends_on(declaration, variables)
    ):
        return kept(kernel, repeated, partial(_load, kernel, load))
    edits = Edits(kernel.source)
    moved = emitted(kernel, loop.items, loop.indent, keep={declaration, load}, flat=variables)
    edits.insert(first_line(kernel, loop), moved)
    for statement in (declaration, load):
        remove(kernel, statement, edits)
    return edits.apply()


def kept(kernel: KernelModule, repeated: Repeated, made: Callable[[str], str]) -> str:
    """Return the source in which the tiles are made once before the loop and kept, and the loop reads the kept tiles.

    ``made`` returns the statement that writes one tile, given the place of the tile as text.
    """
    language = prefix(kernel, "language")
    name = kernel.fresh(f"{repeated.made.made.name}_kept")
    rows, columns = repeated.shape
    variables = [loop.variable for loop in repeated.indices]
    trips = [kernel.count(loop) for loop in repeated.indices]
    buffer = kernel.buffers.get(repeated.made.made.name)
    width = kernel.size(buffer.extents[1], columns) if buffer is not None and buffer.is_written_out else str(columns)
    whole = [span(kernel, Affine(), rows, 0, 2), span(kernel, Affine(), columns, 1, 2)]
    if kernel.api == "nki":
        whole[1] = f"0:{width}"
    dtype = (
        kernel.declared_dtype(repeated.made.made.name)
        if kernel.api == "nki"
        else f"{repeated.made.reads['src'].name}.dtype"
    )

    def placed(loops: Sequence[str], partition: str, column: str) -> str:
        """Return the dimensions of the kept tiles as text. In the legacy API the dimensions of ``loops`` come before
        the partition dimension, in the current API between the partitions and the columns.
        """
        return ", ".join([partition, *loops, column] if kernel.api == "nki" else [*loops, partition, column])

    def place(dims: Sequence[str]) -> str:
        return f"{name}[{placed(variables, *dims)}]"

    extents = placed(trips, partitions(kernel, rows), width)
    declaration = f"{name} = {language}.ndarray(({extents}), dtype={dtype}, buffer={language}.sbuf)"
    edits = filled_before(kernel, repeated.loop, repeated.indices, declaration, made(place(whole)))
    for statement in (repeated.made, repeated.declaration):
        if statement is not None:
            edits.delete_lines(statement.start, statement.end)
    for access in repeated.reads:
        dims = whole if access.dims is None else [dim.text for dim in access.dims]
        edits.replace(*kernel.span(access.node), place(dims))
    return edits.apply()


def _load(kernel: KernelModule, load: Statement, place: str) -> str:
    value = value_of(load)
    if value is not None:
        return f"{place} = {kernel.text(value)}"
    rest = ", ".join(f"{key}={kernel.text(value)}" for key, value in load.args.items())
    return f"{load.namespace}.{load.op}(dst={place}, {rest})"


RULE = HoistLoads()
