"""Moving tiles: DMA, copies, fills, shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from acceld.nki.current.operands import (
    destination,
    emit,
    fitted,
    number,
    same,
    tensor,
    word_of,
)
from acceld.nki.errors import LegalityError
from acceld.nki.frontend.elementwise import as_number, operand
from acceld.nki.frontend.names import alu_op, engine_of
from acceld.nki.frontend.state import current
from acceld.nki.program import Engine, Space


def dma_copy(
    dst: object,
    src: object,
    *,
    priority: object = None,
    oob_mode: object = None,
    dge_mode: object = None,
    engine: object = None,
    name: str | None = None,
) -> None:
    """Moves between HBM and SBUF; element counts agree, types may differ."""
    target, source = tensor(dst, "dst", "dma_copy"), tensor(src, "src", "dma_copy")
    for moved, word in ((target, "dst"), (source, "src")):
        if moved.space is Space.PSUM:
            raise LegalityError(
                f"operand '{word}' of 'dma_copy' is in PSUM, which the DMA engines do not reach",
                rule="address_space",
                line=current().line(),
                hint="copy it to SBUF with nisa.tensor_copy first",
            )
    emit("dma_copy", Engine.DMA, [target], [same(source, target, "dma_copy")], oob=word_of(oob_mode) or "error")


def dma_compute(
    dst: object,
    srcs: Sequence[object],
    reduce_op: object,
    scales: object = None,
    unique_indices: bool = True,
    oob_mode: object = None,
    name: str | None = None,
) -> None:
    """dst = srcs folded by the DMA engines in float32."""
    target = tensor(dst, "dst", "dma_compute")
    tiles = [same(tensor(src, "srcs", "dma_compute"), target, "dma_compute") for src in srcs]
    emit("dma_compute", Engine.DMA, [target], tiles, op=alu_op(reduce_op))


def dma_transpose(
    dst: object,
    src: object,
    axes: Sequence[int] | None = None,
    priority: object = None,
    dge_mode: object = None,
    oob_mode: object = None,
    name: str | None = None,
) -> None:
    """dst = transpose(src, axes) during the transfer; all axes reversed by default."""
    source = tensor(src, "src", "dma_transpose")
    order = tuple(axes) if axes is not None else tuple(reversed(range(source.ndim)))
    emit("dma_transpose", Engine.DMA, [tensor(dst, "dst", "dma_transpose")], [source], axes=order)


def tensor_copy(
    dst: object, src: object, engine: object = None, name: str | None = None, *, dtype: object = None
) -> None:
    """dst = src on chip. ``dtype`` is an argument of NKI 0.2 that changes nothing: the destination has its type."""
    target = destination(dst, "tensor_copy")
    if dtype is not None:
        trace = current()
        trace.builder.notice(trace.line(), "tensor_copy takes no dtype since NKI 0.3: the destination's type counts")
    emit("copy", engine_of(engine), [target], [fitted(src, target.shape, "src", "tensor_copy")])


def memset(dst: object, value: object, engine: object = None, name: str | None = None) -> None:
    """dst = value."""
    emit("memset", engine_of(engine), [destination(dst, "memset")], [number(value, "value", "memset")])


def tensor_copy_predicated(
    dst: object, src: object, predicate: object, reverse_pred: bool = False, name: str | None = None
) -> None:
    """dst[p] = src[p] where the predicate (not) holds."""
    target = destination(dst, "tensor_copy_predicated")
    value = as_number(src)
    source = value if value is not None else fitted(src, target.shape, "src", "tensor_copy_predicated")
    chosen = fitted(predicate, target.shape, "predicate", "tensor_copy_predicated")
    emit("copy_predicated", Engine.VECTOR, [target], [source, chosen], reverse=bool(reverse_pred))


def nc_stream_shuffle(dst: object, src: object, shuffle_mask: Sequence[int], name: str | None = None) -> None:
    """Permutes partitions inside each quadrant of 32."""
    target = destination(dst, "nc_stream_shuffle")
    source = operand(src, "src", "nc_stream_shuffle")
    emit("shuffle", Engine.VECTOR, [target], [source], lanes=tuple(int(n) for n in shuffle_mask))
