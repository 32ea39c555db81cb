"""Build programs by hand, with short calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from acceld.nki.ir.builder import ProgramBuilder
from acceld.nki.ir.program import (
    Access,
    Affine,
    Attr,
    Buffer,
    Engine,
    Indirect,
    Instruction,
    Loop,
    LoopKind,
    Operand,
    Pattern,
    Program,
    Role,
    Space,
    TileDim,
)

ENGINE_OF = {
    "dma_copy": Engine.DMA,
    "dma_compute": Engine.DMA,
    "dma_transpose": Engine.DMA,
    "matmul": Engine.TENSOR,
    "matmul_mx": Engine.TENSOR,
    "transpose": Engine.TENSOR,
    "activation": Engine.SCALAR,
    "activate2": Engine.SCALAR,
    "iota": Engine.GPSIMD,
    "affine_select": Engine.GPSIMD,
    "gather": Engine.GPSIMD,
    "local_gather": Engine.GPSIMD,
    "topk": Engine.GPSIMD,
    "nonzero_with_count": Engine.GPSIMD,
    "sequence_bounds": Engine.GPSIMD,
    "partition_reduce": Engine.GPSIMD,
}


@dataclass(frozen=True)
class Run:
    """``count`` indices from ``start``, ``step`` apart: one axis of a tile."""

    start: Affine | int
    count: int
    step: int = 1


Index = Run | Affine | int


def affine(value: Affine | int) -> Affine:
    return value if isinstance(value, Affine) else Affine(value)


def at(buffer: Buffer, *indices: Index, dtype: str = "", indirect: tuple[Indirect, ...] = ()) -> Access:
    """Return a tile: one index for each dimension, the partition axis first. No indices mean the whole buffer."""
    given: Sequence[Index] = indices or [Run(0, size) for size in buffer.shape]
    assert len(given) == len(buffer.shape)
    starts, axes = [], []
    for d, index in enumerate(given):
        on_partitions = d == buffer.partition_axis
        if isinstance(index, Run):
            starts.append(affine(index.start))
            steps = tuple(index.step if k == d else 0 for k in range(len(buffer.shape)))
            axes.append((not on_partitions, d, TileDim(index.count, steps)))
        else:
            starts.append(affine(index))
            if on_partitions:
                axes.append((False, d, TileDim(1, tuple(0 for _ in buffer.shape))))
    dims = tuple(dim for _, _, dim in sorted(axes, key=lambda axis: axis[:2]))
    return Access(buffer.id, tuple(starts), dims, indirect, dtype)


def var(loop: Loop, scale: int = 1, const: int = 0) -> Affine:
    """Return ``const + scale * loop variable``."""
    return Affine(const, ((loop.id, scale),) if scale else ())


class Kernel:
    """Builds a program; each instruction and buffer has a line of its own, counted from 1."""

    def __init__(self, api: str = "nki_legacy", chip: str = "trn1") -> None:
        self.api, self.chip = api, chip
        self.builder = ProgramBuilder()
        self.line = 0
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def _next(self) -> int:
        self.line += 1
        return self.line

    def input(self, shape: tuple[int, ...], dtype: str = "float32", *, written: bool = False) -> Buffer:
        made = self.builder.buffer(f"in{len(self.inputs)}", Space.HBM, dtype, shape, role=Role.INPUT, line=self._next())
        self.inputs.append(made.id)
        return self.builder.change_buffer(made.id, written_input=True) if written else made

    def output(self, shape: tuple[int, ...], dtype: str = "float32") -> Buffer:
        made = self.builder.buffer(
            f"out{len(self.outputs)}", Space.HBM, dtype, shape, role=Role.OUTPUT, line=self._next()
        )
        self.outputs.append(made.id)
        return made

    def sbuf(
        self,
        shape: tuple[int, ...],
        dtype: str = "float32",
        *,
        axis: int = 0,
        address: tuple[int, int] | None = None,
        name: str = "",
    ) -> Buffer:
        return self.builder.buffer(
            name, Space.SBUF, dtype, shape, partition_axis=axis, address=address, line=self._next()
        )

    def psum(
        self,
        shape: tuple[int, ...],
        dtype: str = "float32",
        *,
        axis: int = 0,
        address: tuple[int, int] | None = None,
    ) -> Buffer:
        return self.builder.buffer(
            "", Space.PSUM, dtype, shape, partition_axis=axis, address=address, line=self._next()
        )

    def hbm(self, shape: tuple[int, ...], dtype: str = "float32") -> Buffer:
        return self.builder.buffer("", Space.HBM, dtype, shape, line=self._next())

    def constant(self, data: bytes, shape: tuple[int, ...], dtype: str = "float32") -> Buffer:
        return self.builder.buffer("", Space.HBM, dtype, shape, role=Role.CONSTANT, data=data, line=self._next())

    @contextmanager
    def loop(
        self, trips: int, kind: LoopKind = LoopKind.AFFINE, *, register: int | None = None, name: str = ""
    ) -> Iterator[Loop]:
        with self.builder.loop(name, trips, kind, line=self._next(), trips_register=register) as loop:
            yield loop

    def op(
        self,
        name: str,
        dsts: Access | Sequence[Access] = (),
        srcs: Operand | Sequence[Operand] = (),
        *,
        engine: Engine | None = None,
        mask: tuple[Pattern, ...] = (),
        pattern: Pattern | None = None,
        **attrs: Attr,
    ) -> int:
        """Emit an instruction; return its line."""
        line = self._next()
        self.builder.emit(
            Instruction(
                name,
                engine or ENGINE_OF.get(name, Engine.UNKNOWN if name in ("memset", "copy") else Engine.VECTOR),
                (dsts,) if isinstance(dsts, Access) else tuple(dsts),
                tuple(srcs) if isinstance(srcs, Sequence) else (srcs,),
                tuple(sorted(attrs.items())),
                mask,
                pattern,
                line,
            )
        )
        return line

    def load(self, dst: Buffer, src: Buffer) -> int:
        return self.op("dma_copy", at(dst), at(src))

    def store(self, dst: Buffer, src: Buffer) -> int:
        return self.op("dma_copy", at(dst), at(src))

    def loaded(self, shape: tuple[int, ...], dtype: str = "float32") -> Buffer:
        """Return an SBUF tensor filled from its own input."""
        tensor = self.sbuf(shape, dtype)
        self.load(tensor, self.input(shape, dtype))
        return tensor

    def finish(self) -> Program:
        return self.builder.finish(
            api=self.api, chip=self.chip, entry="kernel", inputs=tuple(self.inputs), outputs=tuple(self.outputs)
        )
