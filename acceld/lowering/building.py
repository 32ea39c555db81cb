"""Build a kernel statement by statement."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from acceld.lowering.statements import ZERO, Block, Call, Declaration, Loop, Piece, Span, Statement, Tile, Value


class Builder:
    """A kernel under construction: unique names, and the block to which statements go."""

    def __init__(self, taken: Sequence[str]) -> None:
        self.taken = {*taken, *keyword.kwlist}
        self.blocks: list[list[Statement]] = [[]]

    def fresh(self, base: str) -> str:
        """Return a name that nothing else has."""
        name, number = base, 1
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return name

    def put(self, statement: Statement) -> None:
        """Append a statement."""
        self.blocks[-1].append(statement)

    def call(self, operation: str, dst: Piece | Block, **args: Value) -> None:
        """Append an instruction. What a memset puts into integers is one."""
        if operation == "memset" and isinstance(dst, Piece) and "int" in dst.tile.dtype:
            args = {"value": int(float(args["value"]))}  # type: ignore[arg-type]
        self.put(Call(operation, dst, tuple(args.items())))

    def tile(self, base: str, shape: Sequence[int], dtype: str, psum: bool = False) -> Tile:
        """Declare a tile and return it."""
        made = Tile(self.fresh(base), tuple(shape), dtype, "psum" if psum else "sbuf")
        self.put(Declaration(made))
        return made

    @contextmanager
    def loop(self, base: str, count: int, ordered: bool = False) -> Iterator[str | None]:
        """Open a loop and give its variable; a loop of one trip is none."""
        if count == 1:
            yield None
            return
        made = Loop(self.fresh(base), count, ordered)
        self.put(made)
        self.blocks.append(made.body)
        yield made.variable
        self.blocks.pop()


def full(tile: Tile) -> Piece:
    """Return all of a tile."""
    return Piece(tile, tuple(Span(ZERO, extent) for extent in tile.shape))
