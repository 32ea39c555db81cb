"""Print a kernel as source text for the API ``nki`` or ``nki_legacy`` (``neuronxcc.nki``).

The two APIs differ in how a call returns its result, in how an access is written, and in whether the kernel or the
compiler chooses engines.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from acceld.lowering.graph import coordinates, dense
from acceld.lowering.statements import (
    Affine,
    Block,
    Call,
    Condition,
    Declaration,
    Gathered,
    Kernel,
    Loop,
    Note,
    Piece,
    Positions,
    Span,
    Statement,
    Strided,
    Tile,
    Value,
    calls,
    extents,
)

WIDTH = 120
_TYPED = frozenset(
    "activation reciprocal scalar_tensor_tensor tensor_reduce tensor_scalar tensor_tensor tensor_tensor_scan".split()
)
"""Calls of the legacy API whose result has the dtype of the operands unless the argument ``dtype`` names another."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """The ways in which one API writes those parts of a kernel's source that differ between the two APIs."""

    imports: tuple[str, ...]
    returns_results: bool
    """True if a call returns the instruction's result; False if the caller passes the destination as ``dst``."""

    has_patterns: bool
    """True if an access can be written as strides and counts; False if each axis needs an index."""

    sums_beside: bool
    """True if an activation may also sum its columns in a region with matrix products.

    It is False for the legacy API, whose compiler would then compute the activation twice.
    """

    chooses_engines: bool
    """True if the API's compiler divides copies among the engines by itself."""


SPELLINGS = {
    "nki": Spelling(
        ("import nki", "import nki.isa as nisa", "import nki.language as nl"),
        returns_results=False,
        has_patterns=True,
        sums_beside=True,
        chooses_engines=False,
    ),
    "nki_legacy": Spelling(
        ("from neuronxcc import nki", "import neuronxcc.nki.isa as nisa", "import neuronxcc.nki.language as nl"),
        returns_results=True,
        has_patterns=False,
        sums_beside=False,
        chooses_engines=True,
    ),
}


_SIGNS = {
    "greater": ">",
    "greater_equal": ">=",
    "less": "<",
    "less_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
}
"""Python's comparison operators, by the names of the comparisons in ``nki.language``."""


def printed(kernel: Kernel, api: str) -> str:
    """Return the source of a kernel for an API, ``nki`` or ``nki_legacy``."""
    return _Printer(kernel, SPELLINGS[api]).text()


def printed_by_shape(kernels: Sequence[tuple[Mapping[str, tuple[int, ...]], Kernel]], api: str) -> str:
    """Return the source of a kernel that calls another function for each set of argument shapes.

    ``kernels`` has the shapes of the arguments by name, and the kernel for these shapes.
    """
    first = kernels[0][1]
    differing = [name for name in kernels[0][0] if len({shapes[name] for shapes, _ in kernels}) > 1]
    if not differing:
        return printed(first, api)
    lines = [*_Printer(first, SPELLINGS[api]).head()]
    branches = []
    for number, (shapes, kernel) in enumerate(kernels):
        name = f"{first.name}_for_shape_{number}"
        printer = _Printer(kernel, SPELLINGS[api])
        lines += ["", "", f"def {name}({', '.join(kernel.parameters)}):", *printer.body()]
        test = " and ".join(f"{one}.shape == {shapes[one]}" for one in differing)
        branches += [f"    if {test}:", f"        return {name}({', '.join(kernel.parameters)})"]
    branches[-2:] = [branches[-1].removeprefix("    ")]
    entry = [
        f'    """Run the code for the shape of {", ".join(differing)}; the last shape needs no test."""',
        *branches,
    ]
    lines += ["", "", "@nki.jit", f"def {first.name}({', '.join(first.parameters)}):", *entry]
    return "\n".join(lines) + "\n"


class _Printer:
    """The printer of one kernel for one API."""

    def __init__(self, kernel: Kernel, spelling: Spelling) -> None:
        self.kernel = kernel
        self.spelling = spelling
        self.trips = extents(kernel.body)
        self.sums = _accumulated(kernel.body)
        self.lines: list[str] = []

    def text(self) -> str:
        """Return the source of the whole file with the kernel."""
        kernel = self.kernel
        lines = [*self.head(), "", "", "@nki.jit", f"def {kernel.name}({', '.join(kernel.parameters)}):", *self.body()]
        return "\n".join(lines) + "\n"

    def head(self) -> list[str]:
        """Return the first lines of the file: its docstring and imports."""
        doc = textwrap.fill(self.kernel.doc, WIDTH - 8) if self.kernel.doc else "A lowered kernel."
        return [f'"""{doc}"""', "", *self.spelling.imports]

    def body(self) -> list[str]:
        """Return the lines of the kernel function's body."""
        kernel = self.kernel
        for name, value in kernel.numbers:
            self._put(1, f'assert {name} == {value!r}, "this kernel was made for {name} = {value!r}"')
        for tensor in kernel.made:
            shape = tensor.shape or (1,)
            memory = "shared_hbm" if tensor in kernel.returned else "private_hbm"
            self._put(1, f"{tensor.name} = nl.ndarray({shape}, dtype={_nl(tensor.dtype)}, buffer=nl.{memory})")
        self._statements(kernel.body, 1)
        self._put(1, f"return {', '.join(tensor.name for tensor in kernel.returned)}")
        return self.lines

    def _put(self, depth: int, text: str) -> None:
        """Append a line at an indentation of ``depth`` levels. A line that is too long is broken at its brackets."""
        line = "    " * depth + text
        if len(line) <= WIDTH or "(" not in text or text.startswith("#"):
            self.lines.append(line)
            return
        body, tail = text.rsplit(")", 1)
        opening = _opening(body)
        head, body = body[:opening], body[opening + 1 :]
        self.lines.append("    " * depth + head + "(")
        joined = "    " * (depth + 1) + body
        if len(joined) <= WIDTH:
            self.lines.append(joined)
        else:
            self.lines += ["    " * (depth + 1) + part + "," for part in _arguments(body)]
        self.lines.append("    " * depth + ")" + tail)

    def _statements(self, statements: Iterable[Statement], depth: int) -> None:
        """Append the source lines of ``statements`` at an indentation of ``depth`` levels."""
        for statement in statements:
            match statement:
                case Note(text):
                    self._put(depth, f"# {text}")
                case Declaration(tile):
                    self._put(depth, self._declared(tile))
                case Loop(variable, count, ordered, body):
                    kind = "sequential_range" if ordered else "affine_range"
                    self._put(depth, f"for {variable} in nl.{kind}({count}):")
                    self._statements(body, depth + 1)
                case Call():
                    self._put(depth, self._called(statement))

    def _declared(self, tile: Tile) -> str:
        """Return the declaration of a tile as text."""
        made = "zeros" if self.spelling.returns_results and tile in self.sums else "ndarray"
        return f"{tile.name} = nl.{made}({tile.shape}, dtype={_nl(tile.dtype)}, buffer=nl.{tile.space})"

    def _called(self, call: Call) -> str:
        """Return an instruction as source text."""
        if call.operation == "iota":
            return self._counted(call)
        if call.operation == "affine_select":
            return self._chosen(call)
        if isinstance(source := dict(call.args).get("src"), Gathered):
            return self._gathered(call, source)
        if self.spelling.returns_results and call.operation == "dma_copy":
            return self._transfer(call)
        if call.operation == "dma_copy":
            call = self._in_slices(call)
        dst = self._value("dst", call.dst)
        args = [f"{name}={self._value(name, value)}" for name, value in call.args]
        if not self.spelling.returns_results:
            return f"nisa.{call.operation}({', '.join((f'dst={dst}', *args))})"
        if call.operation == "memset":
            value = dict(call.args)["value"]
            return f"{self._place(call.dst)} = nisa.memset({self._shape(call.dst)}, {value!r}, dtype={_nl(_dtype(call.dst))})"
        if call.operation == "nc_matmul":
            added = "accumulate" in dict(call.args)
            args = [arg for arg in args if not arg.startswith("accumulate")]
            moving = dict(call.args)["moving"]
            place = self._place(call.dst)
            if isinstance(moving, Strided) and isinstance(call.dst, Piece):
                counts = [call.dst.tile.shape[0], *(count for _, count in moving.pattern)]
                place = _gridded_piece(call.dst, counts)
            return f"{place} {'+=' if added else '='} nisa.nc_matmul({', '.join(args)})"
        if call.operation == "tensor_copy_predicated":
            return f"nisa.tensor_copy_predicated({', '.join((f'dst={dst}', *args))})"
        operation = call.operation
        if operation == "activation" and "reduce_res" in dict(call.args):
            operation = "activation_reduce"
            args = [arg for arg in args if not arg.startswith("reduce_cmd")]
        given = {value.tile.dtype for _, value in call.args if isinstance(value, Piece | Strided)}
        if operation in _TYPED and given - {_dtype(call.dst)}:
            args.append(f"dtype={_nl(_dtype(call.dst))}")
        return f"{self._place(call.dst)} = nisa.{operation}({', '.join(args)})"

    def _in_slices(self, call: Call) -> Call:
        """Return a DMA transfer with its axes divided so that slices can select its elements in HBM.

        A compiler sees better from slices than from strides which transfers touch the same elements. Return the transfer
        unchanged if slices select its elements already, or can not select them.
        """
        source = dict(call.args).get("src")
        block, piece = (call.dst, source) if isinstance(call.dst, Block) else (source, call.dst)
        if not isinstance(block, Block) or not isinstance(piece, Piece) or sliced(block, self.trips) is not None:
            return call
        divided = replace(block, pattern=tuple(walks(block)))
        found = sliced(divided, self.trips)
        if found is None or sum(span.count is not None for span in found) != len(divided.pattern):
            return call
        shaped = replace(piece, reshaped=tuple(count for _, count in divided.pattern))
        if isinstance(call.dst, Block):
            return replace(call, dst=divided, args=(("src", shaped),))
        return replace(call, dst=shaped, args=(("src", divided),))

    def _counted(self, call: Call) -> str:
        """Return an ``iota`` instruction, which writes integers computed from positions, as source text."""
        values = dict(call.args)["pattern"]
        assert isinstance(values, Positions) and isinstance(call.dst, Piece)
        if not self.spelling.returns_results:
            return (
                f"nisa.iota(dst={self._value('dst', call.dst)}, pattern={[list(pair) for pair in values.pattern]}, "
                f"offset={affine(values.offset)}, channel_multiplier={values.step})"
            )
        counts = [call.dst.spans[0].count or 1, *(count for _, count in values.pattern)]
        place = self._place(call.dst) if len(counts) == 2 else _gridded_piece(call.dst, counts)
        return f"{place} = nisa.iota({_gridded_positions(values, counts)}, dtype={_nl(call.dst.tile.dtype)})"

    def _chosen(self, call: Call) -> str:
        """Return an ``affine_select`` instruction as source text."""
        args = dict(call.args)
        values, other = args["pattern"], args["on_false_value"]
        assert isinstance(values, Positions) and isinstance(call.dst, Piece)
        tile, compared = self._value("on_true_tile", args["on_true_tile"]), str(args["cmp_op"])
        if not self.spelling.returns_results:
            return (
                f"nisa.affine_select(dst={self._value('dst', call.dst)}, pattern={[list(p) for p in values.pattern]}, "
                f"channel_multiplier={values.step}, on_true_tile={tile}, on_false_value={other!r}, "
                f"cmp_op=nl.{compared}, offset={affine(values.offset)})"
            )
        counts = [call.dst.spans[0].count or 1, *(count for _, count in values.pattern)]
        return (
            f"{self._place(call.dst)} = nisa.affine_select(pred={_gridded_positions(values, counts)} {_SIGNS[compared]} 0, "
            f"on_true_tile={tile}, on_false_value={other!r})"
        )

    def _gathered(self, call: Call, source: Gathered) -> str:
        """Return a gather as source text. The gather reads those rows of a table whose numbers are in a tile."""
        tensor = source.tensor
        rows = math.prod(tensor.shape) // source.row
        table = tensor.name if tensor.shape == (rows, source.row) else f"{tensor.name}.reshape(({rows}, {source.row}))"
        assert isinstance(call.dst, Piece)
        count = call.dst.spans[0].count
        if not self.spelling.returns_results:
            pattern = [[source.row, count], [1, source.count]]
            return (
                f"nisa.dma_copy(dst={self._value('dst', call.dst)}, src={table}.ap(pattern={pattern}, "
                f"offset={affine(source.offset)}, vector_offset={self._piece(source.index)}, indirect_dim=0))"
            )
        columns = _grid(source.count, 1, 2)
        columns = columns if source.offset == Affine() else f"{affine(source.offset)} + {columns}"
        index = self._piece(source.index)
        return f"{self._place(call.dst)} = nl.load({table}[{index}, {columns}])"

    def _transfer(self, call: Call) -> str:
        """Return a load or store of the legacy API as source text.

        If slices can not select the elements in HBM, the source and the destination are written with index grids.
        """
        source = dict(call.args)["src"]
        block, piece = (call.dst, source) if isinstance(call.dst, Block) else (source, call.dst)
        assert isinstance(block, Block) and isinstance(piece, Piece)
        slices = sliced(block, self.trips)
        plain = slices is not None and sum(span.count is not None for span in slices) == 2
        if plain:
            tile, memory = self._piece(Piece(piece.tile, piece.spans)), self._block(block)
            tile = tile if tile.endswith("]") else f"{tile}[...]"
        else:
            walked = walks(block)
            memory = gridded(block, walked, self.trips)
            tile = _gridded_piece(piece, [count for _, count in walked])
        if isinstance(call.dst, Block):
            return f"nl.store({memory}, value={tile.removesuffix('[...]')})"
        return f"{tile} = nl.load({memory})"

    def _place(self, piece: Piece | Block | Strided) -> str:
        """Return the source text of a destination, as the left side of an assignment."""
        text = self._value("dst", piece)
        return text if text.endswith("]") else f"{text}[...]"

    def _shape(self, piece: Piece | Strided | Block) -> str:
        """Return the shape of a piece as text."""
        assert isinstance(piece, Piece)
        return str(tuple(span.count for span in piece.spans if span.count is not None))

    def _value(self, name: str, value: Value) -> str:
        """Return the source text of the value of an instruction's argument ``name``."""
        match value:
            case Piece():
                return self._piece(value)
            case Block():
                return self._block(value)
            case Gathered() | Positions():
                raise AssertionError(
                    f"a {type(value).__name__} is printed only as a part of its instruction, not alone"
                )
            case Strided():
                return self._strided(value)
            case Condition(variables):
                return " + ".join(variables) + " > 0"
            case str():
                return f"nisa.{name}.{value}" if name in ("reduce_cmd", "engine") else f"nl.{value}"
            case _:
                return repr(value)

    def _piece(self, piece: Piece) -> str:
        """Return a piece of a tile as text."""
        if piece.bits_as:
            text = self._piece(replace(piece, bits_as=""))
            return f"{text}.view({_nl(piece.bits_as)})"
        tile = piece.tile
        if piece.reshaped is not None and not self.spelling.has_patterns:
            return _gridded_piece(piece, list(piece.reshaped))
        all_of = all(
            span.start == Affine() and span.count == extent
            for span, extent in zip(piece.spans, tile.shape, strict=True)
        )
        text = tile.name if all_of else f"{tile.name}[{', '.join(_span(span) for span in piece.spans)}]"
        return text if piece.reshaped is None else f"{text}.reshape({piece.reshaped})"

    def _strided(self, part: Strided) -> str:
        """Return the access to strided elements of a tile as source text."""
        tile = part.tile
        elements = math.prod(tile.shape[1:])
        if not self.spelling.returns_results:
            pattern = [[elements, part.partitions], *([stride, count] for stride, count in part.pattern)]
            offset = part.offset
            for index, stride in zip(part.between, dense(tile.shape)[1:-1], strict=True):
                offset += index * stride
            return f"{tile.name}.ap(pattern={pattern}, offset={affine(offset)})"
        rank = 1 + len(part.pattern)
        grids = [
            _grid(count, place, rank) for place, count in enumerate((part.partitions, *(n for _, n in part.pattern)))
        ]
        inner = " + ".join(f"{s} * {grid}" for (s, _), grid in zip(part.pattern, grids[1:], strict=True))
        return f"{tile.name}[{', '.join((grids[0], *map(affine, part.between), f'{affine(part.offset)} + {inner}'))}]"

    def _block(self, block: Block) -> str:
        """Return a part of a tensor in HBM as source text."""
        slices = sliced(block, self.trips)
        if slices is not None:
            return f"{block.tensor.name}[{', '.join(map(_span, slices))}]"
        pattern = [list(pair) for pair in block.pattern]
        if not self.spelling.returns_results:
            # Backward steps may cross the edge of an axis. A tensor that is reshaped to one axis has no such edge.
            flat = len(block.tensor.shape) > 1 and any(stride < 0 for stride, _ in block.pattern)
            name = f"{block.tensor.name}.reshape(({math.prod(block.tensor.shape)},))" if flat else block.tensor.name
            return f"{name}.ap(pattern={pattern}, offset={affine(block.offset)})"
        return gridded(block, block.pattern, self.trips)


def _opening(text: str) -> int:
    """Return the position of the innermost bracket in ``text`` that is not closed."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        depth += (text[at] in ")]}") - (text[at] in "([{")
        if depth < 0:
            return at
    raise AssertionError(f"no bracket is open in {text}")


def _arguments(text: str) -> list[str]:
    """Return the arguments in ``text``: the parts between commas that are outside of brackets."""
    found, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            found.append(text[start:at].strip())
            start = at + 1
    return [*found, text[start:].strip()]


def _nl(dtype: str) -> str:
    """Return the name of a dtype in ``nki.language``, such as ``nl.float32``."""
    return f"nl.{'bool_' if dtype == 'bool' else dtype}"


def _dtype(place: Piece | Block | Strided) -> str:
    """Return the dtype of a piece, a block or strided elements."""
    return place.tensor.dtype if isinstance(place, Block) else place.tile.dtype


def _accumulated(statements: Iterable[Statement]) -> set[Tile]:
    """Return the PSUM tiles in which matrix products accumulate."""
    every = (call for call, _ in calls(statements) if "accumulate" in dict(call.args))
    return {call.dst.tile for call in every if isinstance(call.dst, Piece)}


def affine(value: Affine) -> str:
    """Return an affine expression of loop variables as Python source, such as ``2 * i + 1``."""
    parts = [name if by == 1 else f"{by} * {name}" for name, by in value.terms]
    if value.constant or not parts:
        parts.append(str(value.constant))
    return " + ".join(parts)


def _grid(count: int, place: int, rank: int) -> str:
    """Return the text of an ``nl.arange(count)`` that lies along axis ``place`` of an index with ``rank`` axes."""
    return f"nl.arange({count})[{', '.join(':' if at == place else 'None' for at in range(rank))}]"


def _span(span: Span) -> str:
    """Return a range of an axis as the text of an index."""
    if span.count is None:
        return affine(span.start)
    if not span.start.terms:
        return f"{span.start.constant}:{span.start.constant + span.count}"
    return f"nl.ds({affine(span.start)}, {span.count})"


def sliced(block: Block, trips: Mapping[str, int]) -> list[Span] | None:
    """Return the range of each axis of the tensor that a block covers; None if slices can not select the block.

    ``trips`` has the number of trips of each loop, by the loop's variable.
    """
    shape = block.tensor.shape or (1,)
    strides = dense(shape)
    starts = _axes_of(block.offset, shape, trips)
    if starts is None:
        return None
    counts: dict[int, int] = {}
    used = -1
    for stride, count in block.pattern:
        axis = next(
            (a for a in range(used + 1, len(shape)) if strides[a] == stride and shape[a] > 1 and count > 1), None
        )
        if count == 1 and axis is None:
            axis = next((a for a in range(used + 1, len(shape)) if strides[a] == stride), None)
        if axis is None:
            return None
        counts[axis] = count
        used = axis
    for axis, (start, extent) in enumerate(zip(starts, shape, strict=True)):
        reach = start.constant + sum(by * (trips[name] - 1) for name, by in start.terms)
        if reach + counts.get(axis, 1) > extent:
            return None
    return [Span(start, counts.get(axis)) for axis, start in enumerate(starts)]


def _axes_of(offset: Affine, shape: tuple[int, ...], trips: Mapping[str, int]) -> list[Affine] | None:
    """Return the start along each axis of a tensor of ``shape`` for an offset in elements.

    Return None if a loop variable would move the start over the end of an axis. ``trips`` has the number of trips of
    each loop, by the loop's variable.
    """
    strides = dense(shape)
    constants, rest = [], offset.constant
    for stride in strides:
        constants.append(rest // stride)
        rest %= stride
    terms: list[list[tuple[str, int]]] = [[] for _ in shape]
    for name, by in offset.terms:
        for axis, stride in enumerate(strides):
            if by % stride == 0 and shape[axis] > 1 and by // stride * (trips[name] - 1) < shape[axis]:
                terms[axis].append((name, by // stride))
                break
        else:
            return None
    return [Affine(constant, tuple(found)) for constant, found in zip(constants, terms, strict=True)]


def walks(block: Block) -> list[tuple[int, int]]:
    """Return the pattern of a block as pairs (stride, count), divided so that each pair moves along a single axis of
    the tensor where possible. A single pair is followed by (1, 1), because a tile has two axes or more.
    """
    shape = block.tensor.shape or (1,)
    strides = dense(shape)
    found: list[tuple[int, int]] = []
    for place, (stride, count) in enumerate(block.pattern):
        parts: list[tuple[int, int]] = []
        while count > 1 and stride > 0 and place:
            axis = next(a for a, s in enumerate(strides) if stride % s == 0 and stride >= s and shape[a] > 1)
            room = shape[axis] * strides[axis] // stride
            if room < 2 or count <= room or count % room:
                break
            parts.insert(0, (stride, room))
            stride, count = stride * room, count // room
        found += [(stride, count), *parts]
    return found if len(found) > 1 else [*found, (1, 1)]


def _gridded_piece(piece: Piece, counts: list[int]) -> str:
    """Return a piece of a tile as text with index grids: partitions first, then columns in the shape ``counts``."""
    rank = len(counts)
    *fixed, columns = piece.spans[1:]
    steps = dense(counts[1:])
    inner = [affine(columns.start)] if columns.start != Affine() else []
    for place, (count, step) in enumerate(zip(counts[1:], steps, strict=True), 1):
        grid = _grid(count, place, rank)
        inner.append(grid if step == 1 else f"{step} * {grid}")
    return f"{piece.tile.name}[{', '.join((_grid(counts[0], 0, rank), *(affine(span.start) for span in fixed), ' + '.join(inner)))}]"


def _gridded_positions(values: Positions, counts: Sequence[int]) -> str:
    """Return positions as the text of a sum of index grids, for the legacy API, which has no patterns."""
    terms = [affine(values.offset)] if values.offset != Affine() else []
    for axis, step in enumerate((values.step, *(step for step, _ in values.pattern))):
        grid = _grid(counts[axis], axis, len(counts))
        terms += [grid if step == 1 else f"{step} * {grid}"]
    return " + ".join(terms)


def gridded(block: Block, pattern: Iterable[tuple[int, int]], trips: Mapping[str, int]) -> str:
    """Return a block of HBM as text with index grids.

    If steps cross the end of an axis, or if the tensor has no axes, the tensor is reshaped to one axis. ``trips`` has
    the number of trips of each loop, by the loop's variable.
    """
    walked = list(pattern)
    # a tensor without axes can not be indexed, so it is reshaped first
    parts = _by_axis(block, walked, trips) if block.tensor.shape else None
    if parts is not None:
        return f"{block.tensor.name}[{', '.join(parts)}]"
    terms = [] if block.offset == Affine() else [affine(block.offset)]
    for place, (stride, count) in enumerate(walked):
        grid = _grid(count, place, len(walked))
        terms.append(grid if stride == 1 else f"{stride} * {grid}")
    return f"{block.tensor.name}.reshape(({math.prod(block.tensor.shape)},))[{' + '.join(terms)}]"


def _by_axis(block: Block, walked: Sequence[tuple[int, int]], trips: Mapping[str, int]) -> list[str] | None:
    """Return the text of an index for each axis of a block's tensor; None if the block steps over the end of an axis."""
    shape = block.tensor.shape or (1,)
    strides = dense(shape)
    starts = _axes_of(block.offset, shape, trips)
    if starts is None:
        return None
    low = [start.constant + sum(min(0, by * (trips[name] - 1)) for name, by in start.terms) for start in starts]
    high = [start.constant + sum(max(0, by * (trips[name] - 1)) for name, by in start.terms) for start in starts]
    parts: list[list[str]] = [[] if start == Affine() else [affine(start)] for start in starts]
    rank = len(walked)
    for place, (stride, count) in enumerate(walked):
        grid = _grid(count, place, rank)
        if stride == 0 or count == 1:
            parts[-1].append(f"0 * {grid}")
            continue
        single = next((a for a, s in enumerate(strides) if stride % s == 0 and abs(stride) >= s and shape[a] > 1), None)
        if single is not None and abs(stride) // strides[single] * (count - 1) < shape[single]:
            steps = {single: stride // strides[single]}
        else:  # one step moves along several axes, as in a diagonal
            sign = -1 if stride < 0 else 1
            steps = {axis: sign * step for axis, step in enumerate(coordinates(abs(stride), shape))}
        for axis, factor in steps.items():
            if factor:
                parts[axis].append(grid if factor == 1 else f"{factor} * {grid}")
            low[axis] += min(0, factor * (count - 1))
            high[axis] += max(0, factor * (count - 1))
    if min(low) < 0 or any(end >= extent for end, extent in zip(high, shape, strict=True)):
        return None
    return [" + ".join(found) or "0" for found in parts]
