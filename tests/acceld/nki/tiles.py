"""Short ways to write programs by hand for the performance model's tests."""

from collections.abc import Sequence

from acceld.nki.ir.builder import ProgramBuilder
from acceld.nki.ir.program import (
    Access,
    Affine,
    Attr,
    Buffer,
    Engine,
    Instruction,
    Operand,
    Program,
    Role,
    Space,
    TileDim,
)


class Writer(ProgramBuilder):
    """A builder with shorthands; every instruction gets the next line number."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.line = 0

    def hbm(self, *shape: int, role: Role = Role.INPUT, dtype: str = "float32") -> Buffer:
        made = self.buffer("t", Space.HBM, dtype, shape, role=role)
        (self.inputs if role is Role.INPUT else self.outputs).append(made.id)
        return made

    def sbuf(self, *shape: int, axis: int = 0, dtype: str = "float32") -> Buffer:
        return self.buffer("s", Space.SBUF, dtype, shape, partition_axis=axis)

    def psum(self, *shape: int, axis: int = 0) -> Buffer:
        return self.buffer("p", Space.PSUM, "float32", shape, partition_axis=axis)

    def do(
        self, op: str, dst: Access, /, *srcs: Operand, engine: Engine = Engine.UNKNOWN, line: int = 0, **attrs: Attr
    ) -> None:
        self.line += 1
        self.emit(Instruction(op, engine, (dst,), srcs, tuple(attrs.items()), line=line or self.line))

    def load(self, dst: Access, src: Access) -> None:
        self.do("dma_copy", dst, src, engine=Engine.DMA)

    store = load

    def done(self, api: str = "nki_legacy", chip: str = "trn1") -> Program:
        return self.finish(api=api, chip=chip, entry="kernel", inputs=tuple(self.inputs), outputs=tuple(self.outputs))


def tile(buffer: Buffer, *index: int | Affine | tuple[int | Affine, int]) -> Access:
    """Return a tile: for each dimension an index, or (start, count); missing dimensions are whole."""
    given = [*index, *((0, size) for size in buffer.shape[len(index) :])]
    start, dims = [], []
    axes: Sequence[int] = range(len(given))
    if buffer.partition_axis > 0:
        axis = buffer.partition_axis
        axes = [axis, *(d for d in axes if d != axis)]
    for item in given:
        begin = item[0] if isinstance(item, tuple) else item
        start.append(begin if isinstance(begin, Affine) else Affine(begin))
    for d in axes:
        item = given[d]
        if isinstance(item, tuple):
            dims.append(TileDim(item[1], tuple(int(d == other) for other in range(len(given)))))
    return Access(buffer.id, tuple(start), tuple(dims))


def times(loop: int, coef: int) -> Affine:
    """Return ``coef`` times the loop's variable."""
    return Affine(0, ((loop, coef),))
