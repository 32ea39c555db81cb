"""Build the statements of a kernel, block by block."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from acceld.lowering.axes import blocks_of
from acceld.lowering.statements import (
    ZERO,
    Affine,
    Block,
    Call,
    Declaration,
    Loop,
    Piece,
    Span,
    Statement,
    Strided,
    Tile,
    Value,
    variable,
)


class KernelBuilder:
    """A kernel under construction: the names in use, and the blocks of statements that are not complete yet."""

    def __init__(self, taken: Sequence[str]) -> None:
        self.taken = {*taken, *keyword.kwlist}
        self.numbers: dict[str, int] = {}
        """The greatest number that was appended to a base name to get a new name, by base name."""
        self.blocks: list[list[Statement]] = [[]]

    def fresh(self, base: str) -> str:
        """Return a name that the kernel does not have yet: ``base``, or ``base`` with a number."""
        name, number = base, self.numbers.get(base, 1)
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        self.numbers[base] = number
        return name

    def put(self, statement: Statement) -> None:
        """Append a statement to the innermost block under construction."""
        self.blocks[-1].append(statement)

    def call(self, operation: str, dst: Piece | Strided | Block, **args: Value) -> None:
        """Append an instruction to the innermost block. The value of a ``memset`` of integers becomes an integer."""
        if operation == "memset" and isinstance(dst, Piece) and "int" in dst.tile.dtype:
            args = {"value": int(float(args["value"]))}  # type: ignore[arg-type]  # a memset's value is a number
        self.put(Call(operation, dst, tuple(args.items())))

    def tile(self, base: str, shape: Sequence[int], dtype: str, psum: bool = False) -> Tile:
        """Append the declaration of a new tile, in SBUF or PSUM, and return the tile. Its name begins with ``base``."""
        made = Tile(self.fresh(base), tuple(shape), dtype, "psum" if psum else "sbuf")
        self.put(Declaration(made))
        return made

    @contextmanager
    def loop(self, base: str, count: int, ordered: bool = False) -> Iterator[str | None]:
        """Append a loop of ``count`` trips, and yield the name of its variable, which begins with ``base``.

        Statements of the ``with`` block go into the loop. For a single trip, no loop is written and None is yielded.
        """
        if count == 1:
            yield None
            return
        made = Loop(self.fresh(base), count, ordered)
        self.put(made)
        self.blocks.append(made.body)
        yield made.variable
        self.blocks.pop()

    @contextmanager
    def loops(self, base: str, counts: Sequence[int], ordered: bool = False) -> Iterator[list[str | None]]:
        """Append nested loops, one for each trip count in ``counts``, and yield the names of their variables.

        Statements of the ``with`` block go into the innermost loop.
        """
        with ExitStack() as around:
            yield [around.enter_context(self.loop(base, count, ordered)) for count in counts]

    def strips(self, base: str, extent: int, part: int = 0) -> Iterator[tuple[Affine, int, Affine]]:
        """Append loops over the blocks of an axis, as :func:`blocks_of` divides it, and yield each loop's (first element of
        the present block, size of a block, number of the present block).

        Statements that are appended before the next result is taken go into the loop.
        """
        for count, first, size in blocks_of(extent, part):
            with self.loop(base, count) as name:
                yield variable(name) * size + first, size, variable(name) + first // (part or size)


def full(tile: Tile) -> Piece:
    """Return the piece that covers a whole tile."""
    return Piece(tile, tuple(Span(ZERO, extent) for extent in tile.shape))
