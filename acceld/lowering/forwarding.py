"""Replace a load from HBM by a copy from a tile on the chip that still has the values.

Storing values to HBM and loading them again takes two transfers, one after the other. A copy between two tiles takes a
small part of that time.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from acceld.lowering.axes import PARTITIONS, merged
from acceld.lowering.building import full
from acceld.lowering.choices import BANK, FLOATS
from acceld.lowering.graph import dense
from acceld.lowering.statements import (
    Affine,
    Block,
    Call,
    Declaration,
    Gathered,
    HbmTensor,
    Kernel,
    Loop,
    Piece,
    Span,
    Statement,
    Strided,
    Tile,
    Value,
    calls,
    extents,
    rewritten,
)

WIDEST = 8 * 1024
"""Greatest number of bytes of each partition that a tile may take if its values are used after its loop nest."""
ROOM = 16 * 1024
"""Greatest number of bytes of each partition that all such tiles may take together."""
MOST_LINES = 8
"""Greatest number of columns that are transposed one by one to become a row."""
MOST_PASSED = 4
"""Greatest number of iterations of a loop for which a value stays on the chip."""
LEAST_INSIDE = 8
"""Least number of transfers that copies replace if a tensor is also loaded from HBM or stored to HBM as a whole."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A part of a tensor in HBM, and the piece of a tile that was stored there and still has its values."""

    block: Block
    piece: Piece


def on_chip(kernel: Kernel, sizes: Mapping[str, int], fresh: Callable[[str], str]) -> Kernel:
    """Return the kernel with copies between tiles in place of transfers from and to HBM, where the values are or stay on the
    chip.

    ``sizes`` has the bytes of an element by dtype. ``fresh`` returns a name that the kernel does not have yet.
    """
    kernel, passed = _forwarded(kernel, sizes, fresh)
    return _resident_in(kernel, passed, sizes, fresh)


def _forwarded(kernel: Kernel, sizes: Mapping[str, int], fresh: Callable[[str], str]) -> tuple[Kernel, set[HbmTensor]]:
    """Return the kernel with copies in place of loads whose values are still in a tile, and without stores that nothing
    reads. Also return the tensors whose values pass from iteration to iteration of a loop in a tile.

    ``sizes`` has the bytes of an element by dtype. ``fresh`` returns a name that the kernel does not have yet.
    """
    pass_ = _Pass(extents(kernel.body), sizes, fresh)
    body = pass_.block(kernel.body, [])
    body = [*_filled(pass_.ones), *body]
    read = Counter(_read(body))
    gone = {tensor for tensor in kernel.made if not read[tensor] and tensor not in kernel.returned}
    made = tuple(tensor for tensor in kernel.made if tensor not in gone)
    return replace(kernel, made=made, body=tuple(_without_copies(_without_stores(body, gone)))), pass_.passed


class _Pass:
    """One pass over the statements of a kernel, in the order in which they run, which replaces loads by copies.

    ``trips`` has the number of trips of each loop, by the loop's variable.
    """

    def __init__(self, trips: Mapping[str, int], sizes: Mapping[str, int], fresh: Callable[[str], str]) -> None:
        self.trips, self.sizes, self.fresh = trips, sizes, fresh
        self.used: set[Tile] = set()
        self.stored: list[Block] = []
        self.passed: set[HbmTensor] = set()
        """Tensors whose values pass from iteration to iteration of a loop in a tile."""
        self.ones: dict[str, Tile] = {}
        """Rows of ones, by dtype. A matrix product with ones repeats a row on all partitions."""

    def block(self, statements: Iterable[Statement], held: list[_Held]) -> list[Statement]:
        """Return the statements of one body, with loads replaced by copies.

        ``held`` has the values that tiles have before the statements. The function updates it to the values after the
        statements.
        """
        made: list[Statement] = []
        for statement in statements:
            if isinstance(statement, Loop):
                written, stored = _changed(statement.body)
                kept = [one for one in held if one.piece.tile not in written and one.block.tensor not in stored]
                passed = self._passed_on(statement) if statement.ordered else []
                body = self.block(statement.body, [*kept, *(one for chain in passed for one, _ in chain)])
                before, held[:] = [*held], kept
                for chain in passed:
                    least = max((at for at, (one, _) in enumerate(chain) if one.piece.tile in self.used), default=-1)
                    # the oldest value first, because each tile takes the value of the tile before it
                    for one, store in chain[least::-1] if least >= 0 else ():
                        first = Block(one.block.tensor, Affine(one.block.offset.constant), one.block.pattern)
                        shape = tuple(count for _, count in first.pattern)
                        whole = replace(one.piece, reshaped=shape) if len(shape) > 2 else one.piece
                        load = Call("dma_copy", whole, (("src", first),))
                        made += [Declaration(one.piece.tile), *self._call(load, before)]
                        self.passed.add(one.block.tensor)
                        body.append(Call("tensor_copy", one.piece, (("src", store),)))
                        moved = dict(one.block.offset.terms)[statement.variable] * statement.count
                        held.append(_Held(replace(first, offset=first.offset + moved), one.piece))
                made.append(Loop(statement.variable, statement.count, statement.ordered, body))
            elif isinstance(statement, Call):
                made += self._call(statement, held)
            else:
                made.append(statement)
        return made

    def _passed_on(self, loop: Loop) -> list[list[tuple[_Held, Piece]]]:
        """Return the values that an iteration of ``loop`` can leave on the chip for the next iterations.

        Each value is a list of pairs, for the next iteration, the one after it, and so on: the new tile that holds the
        value, which has to be declared before the loop, and the piece from which an iteration copies it. Only a value that
        was also stored before the loop qualifies, because the first iterations read that one.
        """
        found: list[list[tuple[_Held, Piece]]] = []
        stores = [one for one in loop.body if isinstance(one, Call) and isinstance(one.dst, Block)]
        values = (value for call, _ in calls(loop.body) for _, value in call.args)
        read = {(value.tensor, value.offset) for value in values if isinstance(value, Block)}
        for store in stores:
            block, piece = store.dst, dict(store.args).get("src")
            assert isinstance(block, Block)
            by = dict(block.offset.terms).get(loop.variable, 0)
            own = block.offset.terms == ((loop.variable, by),)
            if not own or not isinstance(piece, Piece) or len(piece.spans) > 2 or not self._fits(piece, block):
                continue
            after = loop.body[loop.body.index(store) + 1 :]
            others = [*loop.body[: loop.body.index(store)], *after]
            if block.tensor in _changed(others)[1] or piece.tile in _changed(after)[0]:
                continue
            rows, columns = piece.spans[0].count or 1, piece.spans[1].count or 1
            chain: list[tuple[_Held, Piece]] = []
            source = replace(piece, reshaped=None)
            further = (n for n in range(2, MOST_PASSED + 1) if (block.tensor, block.offset + -by * n) in read)
            for number in range(1, max(further, default=1) + 1):
                before = replace(block, offset=block.offset + -by * number)
                if replace(before, offset=Affine(before.offset.constant)) not in self.stored:
                    break
                tile = Tile(self.fresh("state"), (rows, columns), piece.tile.dtype)
                whole = Piece(tile, (Span(Affine(), rows), Span(Affine(), columns)))
                chain.append((_Held(before, whole), source))
                source = whole
            found.append(chain)
        return found

    def _call(self, call: Call, held: list[_Held]) -> list[Statement]:
        """Return ``call``; if it loads values that a tile still has, return a copy from that tile instead.

        ``held`` has the values that tiles still have, and is updated by the instruction.
        """
        source = dict(call.args).get("src")
        if isinstance(call.dst, Block):
            # This store may overwrite elements of the tensor, so tiles stored to it earlier may differ from it now.
            held[:] = [one for one in held if one.block.tensor != call.dst.tensor]
            self.stored.append(call.dst)
            if isinstance(source, Piece) and self._fits(source, call.dst):
                held.append(_Held(call.dst, source))
            return [call]
        found = None
        reached = isinstance(call.dst, Strided) or (isinstance(call.dst, Piece) and _engines_reach(call.dst))
        if call.operation == "dma_copy" and isinstance(source, Block) and reached:
            able = [
                one
                for one in held
                if one.block.tensor == source.tensor
                and one.piece.tile.dtype == call.dst.tile.dtype
                and self._room(one.piece.tile)
            ]
            found = next(((one, copy) for one in able if (copy := self._copy(one, source, call.dst))), None)
        written = _changed([call])[0]
        held[:] = [one for one in held if one.piece.tile not in written]
        if found is None:
            return [call]
        self.used.add(found[0].piece.tile)
        return found[1]

    def _copy(self, held: _Held, block: Block, dst: Piece | Strided) -> list[Statement]:
        """Return the statements that copy the elements of ``block`` from a held tile to ``dst``; none if the tile lacks
        some elements.

        The tensor engine copies values to other partitions: it transposes them, and repeats a row on all partitions.
        """
        if (part := self._part(held, block)) is not None:
            return [Call("tensor_copy", dst, (("src", part),))]
        (step, rows), *columns = block.pattern
        if held.piece.tile.dtype not in FLOATS or len(columns) != 1 or columns[0][1] > BANK:
            return []
        repeats = step == 0 and rows > 1
        own = 1 if repeats else rows
        row = self._part(held, replace(block, pattern=((step, own), columns[0]))) if repeats else None
        across = _Across(self.fresh, self.ones)
        by, count = columns[0]
        along = held.block.pattern[0][0]
        before = max(0, (block.offset + held.block.offset * -1).constant // along) if along else 0
        if row is None and before + count <= PARTITIONS:
            place = block.offset + -before * along
            turned = self._part(
                held, Block(block.tensor, place, ((by if count > 1 else along, before + count), (step or 1, own)))
            )
            if isinstance(turned, Piece):
                row = across.turned(turned)
                row = replace(row, spans=(row.spans[0], Span(Affine(before), count)))
                row = across.line([row]) if repeats else row
        if row is None and 0 < before <= PARTITIONS - own and count <= PARTITIONS:
            place = block.offset + -before * along
            part = self._part(held, Block(block.tensor, place, ((along, before + own), columns[0])))
            if isinstance(part, Piece):
                lying = across.turned(part)
                row = across.turned(across.kept(replace(lying, spans=(lying.spans[0], Span(Affine(before), own)))))
                row = across.kept(row) if repeats else row
        if not isinstance(row, Piece):
            return []
        row = across.repeated(row, rows) if repeats else row
        return [*across.made, Call("tensor_copy", dst, (("src", row),))]

    def _fits(self, piece: Piece, block: Block) -> bool:
        """Tell whether later loads from ``block`` can be replaced by copies from ``piece``, which is stored to
        ``block``.

        The piece must begin on the first partition of an SBUF tile, and the store must not convert its values.
        """
        tile = piece.tile
        plain = piece.spans[0].start == Affine() and all(span.count is None for span in piece.spans[1:-1])
        return plain and tile.dtype == block.tensor.dtype and tile.space == "sbuf" and not piece.bits_as

    def _room(self, tile: Tile) -> bool:
        """Tell whether ``tile`` is small enough, and fits together with all other tiles that are used after their loop
        nests.
        """
        size = {one: math.prod(one.shape[1:]) * self.sizes[one.dtype] for one in {*self.used, tile}}
        return size[tile] <= WIDEST and sum(size.values()) <= ROOM

    def _part(self, held: _Held, block: Block) -> Piece | Strided | None:
        """Return the part of a held tile that has the elements of ``block`` in HBM.

        Return None if the tile lacks some elements, or has them on other partitions.
        """
        (step, rows), *columns = block.pattern
        (own_step, own_rows), *own = held.block.pattern
        if rows > own_rows or (rows > 1 and step != own_step):
            return None
        strides = dense([count for _, count in own])
        axes = sorted(
            ((by, count, stride) for (by, count), stride in zip(own, strides, strict=True) if count > 1), reverse=True
        )
        if any(by <= 0 for by, _, _ in axes):
            return None
        ends = [0] * len(axes)

        def moved(by: int, count: int) -> int | None:
            """Return the distance in the tile that corresponds to ``count`` steps of ``by`` elements in HBM; None if
            the steps leave the tile.
            """
            if count == 1 or by == 0:
                return 0
            for at, (own_by, extent, stride) in enumerate(axes):
                if by > 0 and by % own_by == 0 and by // own_by * (count - 1) < extent:
                    ends[at] += by // own_by * (count - 1)
                    return by // own_by * stride
            return None

        pattern: list[tuple[int, int]] = []
        for by, count in columns:
            if (along := moved(by, count)) is None:
                return None
            pattern.append((along or int(count == 1), count))
        offset = held.piece.spans[-1].start
        apart = block.offset + held.block.offset * -1
        for name, by in apart.terms:
            if (along := moved(by, self.trips[name])) is None:
                return None
            offset += Affine(0, ((name, along),))
        rest = apart.constant
        for at, (own_by, _, stride) in enumerate(axes):
            ends[at] += rest // own_by
            offset += rest // own_by * stride
            rest %= own_by
        if rest or apart.constant < 0 or any(end >= extent for end, (_, extent, _) in zip(ends, axes, strict=True)):
            return None
        return _as_part(held.piece, rows, offset, pattern)


class _Across:
    """Statements by which the tensor engine copies values to other partitions: ``made``, in order.

    ``ones`` has the rows of ones of a kernel, by dtype, and gets further ones.
    """

    def __init__(self, fresh: Callable[[str], str], ones: dict[str, Tile]) -> None:
        self.fresh, self.ones = fresh, ones
        self.made: list[Statement] = []

    def turned(self, piece: Piece) -> Piece:
        """Transpose a piece of an SBUF tile, and return the result in PSUM."""
        shape = piece.spans[-1].count or 1, piece.spans[0].count or 1
        return self._product("nc_transpose", shape, piece.tile.dtype, data=piece)

    def kept(self, piece: Piece | Strided) -> Piece:
        """Copy a piece to a new tile in SBUF, and return the copy."""
        if isinstance(piece, Strided):
            shape = piece.partitions, math.prod(count for _, count in piece.pattern)
        else:
            shape = piece.spans[0].count or 1, piece.spans[-1].count or 1
        tile = Tile(self.fresh("moved"), shape, piece.tile.dtype)
        self.made += [Declaration(tile), Call("tensor_copy", full(tile), (("src", piece),))]
        return full(tile)

    def beside(self, part: Piece | Strided) -> Piece:
        """Return a part of a tile with its columns beside each other."""
        return self.kept(part) if isinstance(part, Strided) else part

    def line(self, pieces: Sequence[Piece]) -> Piece:
        """Copy pieces of PSUM tiles with one row each to one row in SBUF, side by side, and return that row."""
        sizes = [piece.spans[-1].count or 1 for piece in pieces]
        tile = Tile(self.fresh("line"), (1, sum(sizes)), pieces[0].tile.dtype)
        self.made.append(Declaration(tile))
        for at, piece in enumerate(pieces):
            place = Piece(tile, (Span(Affine(), 1), Span(Affine(sum(sizes[:at])), sizes[at])))
            self.made.append(Call("tensor_copy", place, (("src", piece),)))
        return full(tile)

    def repeated(self, row: Piece, rows: int) -> Piece:
        """Repeat a row of an SBUF tile on ``rows`` partitions, and return the result in PSUM."""
        dtype = row.tile.dtype
        if dtype not in self.ones:
            self.ones[dtype] = Tile(self.fresh("ones"), (1, PARTITIONS), dtype)
        ones = Piece(self.ones[dtype], (Span(Affine(), 1), Span(Affine(), rows)))
        return self._product("nc_matmul", (rows, row.spans[-1].count or 1), "float32", stationary=ones, moving=row)

    def _product(self, operation: str, shape: tuple[int, int], dtype: str, **operands: Piece) -> Piece:
        tile = Tile(self.fresh("across"), shape, dtype, "psum")
        self.made += [Declaration(tile), Call(operation, full(tile), tuple(operands.items()))]
        return full(tile)


def _filled(ones: Mapping[str, Tile]) -> list[Statement]:
    """Return the statements that declare and fill rows of ones."""
    return [one for tile in ones.values() for one in (Declaration(tile), Call("memset", full(tile), (("value", 1.0),)))]


def _as_part(piece: Piece, rows: int, offset: Affine, pattern: Sequence[tuple[int, int]]) -> Piece | Strided:
    """Return ``rows`` partitions of a piece's tile, with the columns of ``pattern`` from ``offset`` on.

    Contiguous columns are returned as a Piece, others as Strided.
    """
    between = piece.spans[1:-1]
    if len(pattern) == 1 and pattern[0][0] == 1:
        return Piece(piece.tile, (Span(Affine(), rows), *between, Span(offset, pattern[0][1])))
    return Strided(piece.tile, rows, offset, tuple(pattern), tuple(span.start for span in between))


def _changed(statements: Iterable[Statement]) -> tuple[set[Tile], set[HbmTensor]]:
    """Return the tiles and the tensors in HBM that statements write."""
    tiles: set[Tile] = set()
    tensors: set[HbmTensor] = set()
    for call, _ in calls(statements):
        if isinstance(call.dst, Block):
            tensors.add(call.dst.tensor)
        else:
            tiles.add(call.dst.tile)
        tiles |= {value.tile for name, value in call.args if name == "reduce_res" and isinstance(value, Piece)}
    return tiles, tensors


def _read(statements: Iterable[Statement]) -> Iterable[HbmTensor]:
    """Yield the HBM tensor of each load and gather in the statements, nested loops included. A tensor may come several
    times.
    """
    for call, _ in calls(statements):
        yield from (value.tensor for _, value in call.args if isinstance(value, Block | Gathered))


def _without_stores(statements: Iterable[Statement], gone: set[HbmTensor]) -> list[Statement]:
    """Return statements without stores to the tensors ``gone``."""

    def kept(call: Call) -> list[Statement]:
        return [] if isinstance(call.dst, Block) and call.dst.tensor in gone else [call]

    return rewritten(statements, kept)


def _without_copies(statements: Sequence[Statement]) -> list[Statement]:
    """Return the statements without copies that are equal to their source: the readers of such a copy read the source
    instead.
    """
    made = [replace(one, body=_without_copies(one.body)) if isinstance(one, Loop) else one for one in statements]
    declared = {one.tile: at for at, one in enumerate(made) if isinstance(one, Declaration)}
    writes: dict[Tile, list[int]] = {}
    for at, one in enumerate(made):
        for tile in _changed([one])[0]:
            writes.setdefault(tile, []).append(at)
    reads: dict[Tile, list[int]] = {}
    for at, one in enumerate(made):
        for tile in {tile for call, _ in calls([one]) for value in call.args for tile in _tiles_of(value[1])}:
            reads.setdefault(tile, []).append(at)
    gone: set[int] = set()
    for at, one in enumerate(made):
        if not isinstance(one, Call) or one.operation != "tensor_copy" or not isinstance(one.dst, Piece):
            continue
        own, source = one.dst.tile, dict(one.args)["src"]
        if (
            own not in declared
            or writes[own] != [at]
            or not _is_whole(one.dst)
            or not isinstance(source, Piece)
            or source.spans[0] != one.dst.spans[0]
            or source.reshaped != one.dst.reshaped
            or source.bits_as
            or (source.tile.space, source.tile.dtype) != (own.space, own.dtype)
            or any(at < place <= reads.get(own, [at])[-1] for place in writes.get(source.tile, ()))
        ):
            continue
        gone |= {at, declared[own]}
        for place in reads.get(own, ()):
            made[place] = _reading(made[place], own, source)
            reads.setdefault(source.tile, []).append(place)
        reads.get(source.tile, []).sort()
    return [one for at, one in enumerate(made) if at not in gone]


def _is_whole(piece: Piece) -> bool:
    """Tell whether a piece covers all of its tile. The tile may have at most one index on the axes between the first
    and the last.
    """
    whole = all(
        span.start == Affine() and (span.count or 1) == extent
        for span, extent in zip(piece.spans, piece.tile.shape, strict=True)
    )
    return whole and all(extent == 1 for extent in piece.tile.shape[1:-1])


def _tiles_of(value: object) -> list[Tile]:
    """Return the tiles that an argument of an instruction reads."""
    if isinstance(value, Gathered):
        return [value.index.tile]
    return [value.tile] if isinstance(value, Piece | Strided) else []


def _reading(statement: Statement, tile: Tile, source: Piece) -> Statement:
    """Return a statement that reads ``source``, which has the values of ``tile``, in place of ``tile``."""

    def moved(value: Value) -> Value:
        """Return the same elements of ``source``."""
        if isinstance(value, Gathered):
            index = moved(value.index)
            assert isinstance(index, Piece)
            return replace(value, index=index)
        if not isinstance(value, Piece | Strided) or value.tile != tile:
            return value
        between, start = source.spans[1:-1], source.spans[-1].start
        if isinstance(value, Strided):
            return replace(
                value, tile=source.tile, offset=value.offset + start, between=tuple(span.start for span in between)
            )
        last = value.spans[-1]
        return replace(value, tile=source.tile, spans=(value.spans[0], *between, Span(last.start + start, last.count)))

    def changed(call: Call) -> list[Statement]:
        return [replace(call, args=tuple((name, moved(value)) for name, value in call.args))]

    return rewritten([statement], changed)[0]


@dataclass(frozen=True, slots=True)
class _Layout:
    """The places of a tensor's elements in a tile: element ``e`` is on partition ``e // step % rows``.

    On each partition lie ``runs`` runs of ``step`` elements, one after another.
    """

    step: int
    rows: int
    runs: int
    moves: bool = False
    """True if the tensor engine moves elements to and from other partitions than the first ones."""

    def part(self, tile: Tile, block: Block, trips: Mapping[str, int]) -> Strided | None:
        """Return the elements of ``block`` in the tile ``tile``.

        Return None if the elements do not begin on the first partition, or if an axis crosses partitions.
        """
        whole = self.step * self.rows
        (step, rows), *columns = block.pattern
        rest = block.offset.constant % whole
        if rest >= self.step or rows > self.rows or (rows > 1 and step != self.step):
            return None
        low = high = rest

        def moved(by: int, count: int) -> int | None:
            """Return the distance in the tile of ``count`` elements that lie ``by`` elements apart in HBM; None if they
            do not lie at equal distances in the tile.
            """
            nonlocal low, high
            if by % whole == 0:
                return by // whole * self.step
            low, high = low + min(0, by * (count - 1)), high + max(0, by * (count - 1))
            return by if 0 <= low and high < self.step else None

        pattern = []
        for by, count in columns:
            along = moved(by, count) if count > 1 else 1
            if along is None:
                return None
            pattern.append((along, count))
        offset = Affine(block.offset.constant // whole * self.step + rest)
        for name, by in block.offset.terms:
            along = moved(by, trips[name])
            if along is None:
                return None
            offset += Affine(0, ((name, along),))
        return Strided(tile, rows, offset, tuple(pattern))

    def lines(self, tile: Tile, block: Block) -> list[Piece]:
        """Return the columns of the tile ``tile`` that have the elements of ``block``, a row for one partition or for
        several partitions; none if they are too many, or if the tile has the elements in another order.
        """
        (step, rows), *columns = block.pattern
        by, count = columns[-1]
        numbers = [block.offset.constant, count, *(by for _, by in block.offset.terms)]
        if len(columns) > 1 or by != 1 or self.step != 1 or (rows > 1 and step) or count > BANK:
            return []
        if tile.dtype not in FLOATS or count > MOST_LINES * self.rows or any(one % self.rows for one in numbers):
            return []
        first = Affine(numbers[0] // self.rows, tuple((name, by // self.rows) for name, by in block.offset.terms))
        every = Span(Affine(), self.rows)
        return [Piece(tile, (every, Span(first + at, 1))) for at in range(count // self.rows)]

    def place(self, block: Block) -> _Place | None:
        """Return the place of the elements of ``block``; None if they do not lie along two axes of the tile, at a
        constant place.
        """
        axes = merged([tuple((n, by) for by, n in block.pattern[1:] if n > 1)])[0]
        if not self.moves or len(axes) > 1 or block.offset.terms:
            return None
        (step, rows), (count, by) = block.pattern[0], axes[0] if axes else (1, 0)
        at, whole = block.offset.constant, self.step * self.rows
        first, column = at // self.step % self.rows, at // whole * self.step + at % self.step
        rows = rows if step else 1
        own = [(False, (step, rows), (by, count)), (True, (by, count), (step, rows))]
        for turned, (down, extent), (along, width) in own if first == 0 or rows * count > 1 else own[1:]:
            inside = first + extent <= self.rows and (extent == 1 or down == self.step)
            far = along % whole == 0 and along > 0
            near = 0 <= along and at % self.step + along * (width - 1) < self.step
            if inside and width <= PARTITIONS and (width == 1 or far or near):
                apart = 1 if width == 1 else along // whole * self.step if far else along
                return _Place(turned, first, extent, column, apart, width)
        return None

    def cost(self, tile: Tile, touch: _Touch, trips: Mapping[str, int]) -> int | None:
        """Return the number of instructions that move the elements of a transfer between the tile and another tile; None
        if no instructions do so.
        """
        if not touch.plain:
            return None
        if self.part(tile, touch.block, trips) is not None:
            return 1
        if not touch.stores and (lines := self.lines(tile, touch.block)):
            return 2 * len(lines) + 2
        place = self.place(touch.block) if tile.dtype in FLOATS else None
        if place is None:
            return None
        return 2 if place.turned and not (touch.stores and place.first) else 6 if touch.stores else 4


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a block's elements in a tile: ``extent`` partitions from partition ``first`` on, and on each of them
    ``width`` columns from ``column`` on, ``apart`` columns apart. ``turned`` is True if the block has the columns on its
    partitions.
    """

    turned: bool
    first: int
    extent: int
    column: int
    apart: int
    width: int

    def columns(self, tile: Tile, rows: int) -> Piece | Strided:
        """Return the place's columns on the first ``rows`` partitions of the tile ``tile``."""
        if self.apart == 1:
            return Piece(tile, (Span(Affine(), rows), Span(Affine(self.column), self.width)))
        return Strided(tile, rows, Affine(self.column), ((self.apart, self.width),))

    def loaded(self, tile: Tile, across: _Across) -> Piece:
        """Return the elements in a piece that begins on the first partition."""
        held = across.turned(across.beside(self.columns(tile, self.first + self.extent)))
        found = Piece(held.tile, (held.spans[0], Span(Affine(self.first), self.extent)))
        return found if self.turned else across.turned(across.kept(found))

    def store(self, tile: Tile, source: Piece, across: _Across) -> None:
        """Copy ``source`` to the place. The elements of other partitions stay as they are."""
        source = replace(source, reshaped=None)
        if self.first:
            rows = tile.shape[0]
            held = across.kept(across.turned(across.beside(self.columns(tile, rows))))
            part = Piece(held.tile, (held.spans[0], Span(Affine(self.first), self.extent)))
            across.made.append(Call("tensor_copy", part, (("src", source if self.turned else across.turned(source)),)))
            across.made.append(Call("tensor_copy", self.columns(tile, rows), (("src", across.turned(held)),)))
        else:
            across.made.append(Call("tensor_copy", self.columns(tile, self.extent), (("src", across.turned(source)),)))


@dataclass(frozen=True, slots=True)
class _Resident:
    """A tile that has the values of a tensor in HBM from statement ``first`` on.

    If ``loads`` is True, the values are loaded from HBM before that statement. If ``stores`` is True, they are stored to
    HBM after statement ``last``.
    """

    tile: Tile
    layout: _Layout
    first: int
    last: int
    loads: bool
    stores: bool

    def transfer(self, tensor: HbmTensor, to_hbm: bool) -> Call:
        """Return the transfer of the whole tensor between HBM and the tile."""
        step, rows, runs = self.layout.step, self.layout.rows, self.layout.runs
        block = Block(tensor, Affine(), ((step, rows), (step * rows, runs), (1, step)))
        piece = Piece(self.tile, (Span(Affine(), rows), Span(Affine(), runs * step)), (rows, runs, step))
        return Call("dma_copy", block, (("src", piece),)) if to_hbm else Call("dma_copy", piece, (("src", block),))


@dataclass(frozen=True, slots=True)
class _Touch:
    """A load from a tensor in HBM, or a store to it. ``place`` is the number of the kernel's top-level statement that
    contains the transfer. ``turns`` is how often the kernel runs the transfer.
    """

    place: int
    block: Block
    stores: bool
    plain: bool
    turns: int


def _resident_in(
    kernel: Kernel, passed: set[HbmTensor], sizes: Mapping[str, int], fresh: Callable[[str], str]
) -> Kernel:
    """Return the kernel with a tile in place of each small HBM tensor that it stores and loads part by part, and of each small
    one of ``passed``, whose values pass from step to step of a loop: a step waits until its values are stored.

    Each element of such a tensor must be on the same partition in all these stores and loads. Stores before them and
    loads after them may have any form. ``sizes`` has the bytes of an element by dtype. ``fresh`` returns a name that
    the kernel does not have yet.
    """
    trips, room = extents(kernel.body), ROOM
    touched: dict[HbmTensor, list[_Touch]] = {}
    for place, statement in enumerate(kernel.body):
        for call, turns in calls([statement]):
            for block in (one for one in (call.dst, *(value for _, value in call.args)) if isinstance(one, Block)):
                touch = _Touch(place, block, block is call.dst, _is_plain(call), turns)
                touched.setdefault(block.tensor, []).append(touch)
            gathered = (value.tensor for _, value in call.args if isinstance(value, Gathered))
            for tensor in gathered:
                whole = Block(tensor, Affine(), ())
                touched.setdefault(tensor, []).append(_Touch(place, whole, False, plain=False, turns=turns))
    held: dict[HbmTensor, _Resident] = {}
    for tensor in kernel.made:
        if (
            found := _resident(tensor, touched.get(tensor, ()), trips, tensor in kernel.returned, tensor in passed)
        ) is None:
            continue
        bytes_held = math.prod(found.tile.shape[1:]) * sizes[tensor.dtype]
        if bytes_held <= min(WIDEST, room):
            room -= bytes_held
            held[tensor] = replace(found, tile=replace(found.tile, name=fresh(f"{tensor.name}_on_chip")))
    if not held:
        return kernel

    ones: dict[str, Tile] = {}

    def changed(call: Call) -> list[Statement]:
        """Return copies in place of a transfer."""
        source = dict(call.args).get("src")
        block = call.dst if isinstance(call.dst, Block) else source
        if not isinstance(block, Block) or block.tensor not in held or not _is_plain(call):
            return [call]
        found = held[block.tensor]
        part = found.layout.part(found.tile, block, trips)
        if part is not None and block is not source:
            return [Call("tensor_copy", part, call.args)]
        if part is not None:
            return [Call("tensor_copy", call.dst, (("src", part),))]
        lines = found.layout.lines(found.tile, block) if block is source else []
        place = None if lines else found.layout.place(block)
        across, rows = _Across(fresh, ones), block.pattern[0][1]
        if place is not None and block is not source:
            assert isinstance(source, Piece)
            place.store(found.tile, source, across)
            return across.made
        if place is not None:
            row = place.loaded(found.tile, across)
            row = across.kept(row) if rows > 1 and not block.pattern[0][0] else row
        elif lines:
            row = across.line([across.turned(one) for one in lines])
        else:
            return [call]
        row = across.repeated(row, rows) if rows > 1 and not block.pattern[0][0] else row
        return [*across.made, Call("tensor_copy", call.dst, (("src", row),))]

    body: list[Statement] = [Declaration(one.tile) for one in held.values()]
    moved = [one for one in held.values() if one.layout.moves and not one.loads]
    body += [Call("memset", full(one.tile), (("value", 0.0),)) for one in moved]
    for place, statement in enumerate(kernel.body):
        body += [one.transfer(t, to_hbm=False) for t, one in held.items() if one.loads and one.first == place]
        body += rewritten([statement], changed)
        body += [one.transfer(t, to_hbm=True) for t, one in held.items() if one.stores and one.last == place]
    body = [*_filled(ones), *body]
    used = Counter(_read(body))
    made = tuple(t for t in kernel.made if t not in held or used[t] or t in kernel.returned)
    return replace(kernel, made=made, body=tuple(_without_stores(body, {*kernel.made} - {*made})))


def _resident(
    tensor: HbmTensor, touched: Sequence[_Touch], trips: Mapping[str, int], returned: bool, passed: bool
) -> _Resident | None:
    """Return the tile that can have the values of a tensor; None if there is no such tile, or if it saves nothing.

    A tensor that is only stored needs no tile unless its values are ``passed`` on from step to step.

    ``touched`` has the stores to the tensor and the loads from it, in order.
    """
    size = math.prod(tensor.shape)
    leads = Counter(one.block.pattern[0] for one in touched if one.plain and one.block.pattern[0][1] > 1)
    step, rows = max(leads, key=lambda one: (leads[one], one[1]), default=(size, 1))
    layouts = [_Layout(step, rows, size // (step * rows))] if step > 0 and size % (step * rows) == 0 else []
    axes = [(by, n) for by, n in zip(dense(tensor.shape), tensor.shape, strict=True) if 1 < n <= PARTITIONS]
    layouts += [_Layout(by, n, size // (by * n), moves=True) for by, n in axes]
    best: tuple[int, _Resident] | None = None
    for layout in layouts:
        tile = Tile("", (layout.rows, layout.runs * layout.step), tensor.dtype)
        costs = [layout.cost(tile, one, trips) for one in touched]
        inside = [one for one, cost in zip(touched, costs, strict=True) if cost is not None]
        outside = [one for one, cost in zip(touched, costs, strict=True) if cost is None]
        stores = [one.place for one in inside if one.stores]
        turns = sum(one.stores and not other.stores for one, other in itertools.pairwise(inside))
        if not stores or (all(one.stores for one in inside) and not passed):
            continue
        first, last = inside[0].place, max(stores)
        before = [one for one in outside if one.place < first]
        after = [one for one in outside if one.place > last and not one.stores]
        if len(before) + len(after) < len(outside) or (outside and sum(one.turns for one in inside) < LEAST_INSIDE):
            continue
        found = _Resident(tile, layout, first, last, bool(before), bool(after) or returned)
        if not layout.moves:
            return found
        total = sum(cost or 0 for cost in costs)
        if turns >= LEAST_INSIDE and (best is None or total < best[0]):
            best = total, found
    return None if best is None else best[1]


def _is_plain(call: Call) -> bool:
    """Tell whether a transfer between HBM and a piece of a tile moves values as they are, without a conversion."""
    source = dict(call.args).get("src")
    block, piece = (call.dst, source) if isinstance(call.dst, Block) else (source, call.dst)
    same = isinstance(block, Block) and isinstance(piece, Piece) and piece.tile.dtype == block.tensor.dtype
    return same and isinstance(piece, Piece) and not piece.bits_as and _engines_reach(piece)


def _engines_reach(piece: Piece) -> bool:
    """Tell whether an engine can read and write a piece: only transfers begin at any partition of a tile."""
    start, rows = piece.spans[0].start, piece.spans[0].count or 1
    steps = (start.constant, *(step for _, step in start.terms))
    most = 32 if rows <= 32 else 64 if rows <= 64 else 128
    return all(step % most == 0 for step in steps)
