"""Move tiles: DMA, copies, fills, shuffles."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, cast

from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.elementwise import operand
from acceld.nki.frontend.core.index import as_number
from acceld.nki.frontend.core.names import alu_op, engine_of
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current.operands import destination, emit, matched, number, paired, same, tensor, word_of
from acceld.nki.frontend.current.state import current_trace
from acceld.nki.ir.operations import INTEGER_DTYPES
from acceld.nki.ir.program import Engine, Space

TRANSPOSES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
"""The axes of ``dma_transpose`` by rank."""


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
    """Move data between HBM and SBUF. Element counts must agree; types may differ."""
    target, source = tensor(dst, "dst", "dma_copy"), tensor(src, "src", "dma_copy")
    for moved, word in ((target, "dst"), (source, "src")):
        if moved.space is Space.PSUM:
            refuse(
                "address_space",
                f"operand '{word}' of 'dma_copy' is in PSUM, which the DMA engines do not reach",
                "copy it to SBUF with nisa.tensor_copy first",
            )
    _check_dge(dge_mode, engine, source, target, "dma_copy")
    target, source = paired(target, source, "dma_copy")
    emit("dma_copy", Engine.DMA, [target], [source], oob=word_of(oob_mode) or "error")


def sendrecv(
    src: object,
    dst: object,
    send_to_rank: object,
    recv_from_rank: object,
    pipe_id: object = 0,
    dma_engine: object = None,
    name: str | None = None,
) -> None:
    """dst = src of the other core of the pair; the other core gets this core's src."""
    trace = current_trace()
    if trace.session.lnc != 2 or len(trace.grid) != 1 or trace.grid[0] != 2:
        refuse(
            "exchange_cores",
            "'sendrecv' outside of a launch on the two physical cores in a logical core",
            "launch with lnc 2",
        )
    other = 1 - operator.index(cast("Any", trace.program_ids[0]))
    if (as_number(send_to_rank), as_number(recv_from_rank)) != (other, other):
        refuse(
            "exchange_cores",
            f"core {1 - other} sends to and receives from core {other} only",
            "use 1 - nl.program_id(0)",
        )
    target, source = tensor(dst, "dst", "sendrecv"), tensor(src, "src", "sendrecv")
    if target.dtype_name != source.dtype_name:
        refuse("dtype", f"'sendrecv' from {source.dtype_name} to {target.dtype_name}: both sides have one dtype")
    emit("exchange", Engine.DMA, [target], [same(source, target, "sendrecv")])


def _check_dge(dge_mode: object, engine: object, source: Tensor, target: Tensor, call: str) -> None:
    """Check the chosen generation of DMA descriptors against its operands. It changes no values, and the model times
    all kinds alike.
    """
    hardware = word_of(dge_mode) == "hwdge"
    chosen = engine_of(engine)
    if hardware and source.dtype_name != target.dtype_name:
        refuse(
            "dge_dtype",
            f"'{call}' by hardware DGE from {source.dtype_name} to {target.dtype_name}: it moves bytes and casts nothing",
            "use .view() for the same bits, dge_mode.swdge or dge_mode.none for a cast",
        )
    if chosen is not Engine.UNKNOWN and (not hardware or chosen not in (Engine.SYNC, Engine.SCALAR)):
        refuse(
            "engine",
            f"engine of '{call}' is for dge_mode.hwdge, and then nisa.engine.sync or nisa.engine.scalar",
            "leave engine out",
        )


def _no_skipping(oob_mode: object, call: str) -> None:
    if word_of(oob_mode) == "skip":
        unsupported(f"{call} with oob_mode.skip", "keep the indices inside, or use nisa.dma_copy")


def dma_compute(
    dst: object,
    srcs: Sequence[object],
    reduce_op: object,
    scales: object = None,
    unique_indices: bool = True,
    oob_mode: object = None,
    name: str | None = None,
) -> None:
    """dst = sum of srcs by the DMA engines in float32."""
    target = tensor(dst, "dst", "dma_compute")
    weights = [] if scales is None else [as_number(scale) for scale in cast("Sequence[object]", scales)]
    refused = {
        f"reduce_op={alu_op(reduce_op)}": alu_op(reduce_op) != "add",
        "scales other than 1.0": any(weight != 1 for weight in weights) or len(weights) not in (0, len(srcs)),
        "unique_indices=False": not unique_indices,
    }
    for option, given in refused.items():
        if given:
            refuse(
                "dma_compute",
                f"dma_compute with {option}: the DMA engines only add, each source with weight 1.0",
                "scale with nisa.tensor_scalar before, or fold with nisa.tensor_tensor",
            )
    _no_skipping(oob_mode, "dma_compute")
    tiles = [same(tensor(src, "srcs", "dma_compute"), target, "dma_compute") for src in srcs]
    emit("dma_compute", Engine.DMA, [target], tiles, op="add")


def dma_transpose(
    dst: object,
    src: object,
    axes: Sequence[int] | None = None,
    priority: object = None,
    dge_mode: object = None,
    oob_mode: object = None,
    name: str | None = None,
) -> None:
    """dst = transpose(src, axes) during the transfer. For two to four axes, the first and the last are exchanged."""
    source, target = tensor(src, "src", "dma_transpose"), tensor(dst, "dst", "dma_transpose")
    _no_skipping(oob_mode, "dma_transpose")
    _check_dge(dge_mode, None, source, target, "dma_transpose")
    order = TRANSPOSES.get(source.ndim)
    if order is None or (axes is not None and tuple(axes) != order):
        refuse(
            "transpose_axes",
            f"'dma_transpose' of {list(source.shape)} with axes {None if axes is None else tuple(axes)}",
            "the axes are (1, 0), (2, 1, 0) or (3, 1, 2, 0)",
        )
    turned = tuple(source.shape[axis] for axis in order)
    if target.shape != turned or target.dtype_name != source.dtype_name:
        refuse(
            "shape",
            f"dst{list(target.shape)} {target.dtype_name} of 'dma_transpose' should be {list(turned)} {source.dtype_name}",
            f"axes {order} of src{list(source.shape)}, in its type",
        )
    emit("dma_transpose", Engine.DMA, [target], [source], axes=order)


def tensor_copy(
    dst: object, src: object, engine: object = None, name: str | None = None, *, dtype: object = None
) -> None:
    """dst = src on chip. ``dtype`` is an argument of NKI 0.2 that changes nothing: the destination has its type."""
    target, tile = matched(dst, "tensor_copy", src=src)
    if dtype is not None:
        trace = current()
        trace.builder.notice(trace.line(), "tensor_copy takes no dtype since NKI 0.3: the destination's type counts")
    emit("copy", engine_of(engine), [target], [tile])


def memset(dst: object, value: object, engine: object = None, name: str | None = None) -> None:
    """dst = value, an integer where dst holds integers."""
    target = destination(dst, "memset")
    if isinstance(value, float) and target.dtype_name in INTEGER_DTYPES:
        refuse(
            "memset_dtype",
            f"'memset' of {target.dtype_name} with the float {value}: the value must be of the type of dst",
            f"pass {value:.0f}",
        )
    emit("memset", engine_of(engine), [target], [number(value, "value", "memset")])


def tensor_copy_predicated(
    dst: object, src: object, predicate: object, reverse_pred: bool = False, name: str | None = None
) -> None:
    """dst[p] = src[p], or the number src, where the predicate (not) holds."""
    value = as_number(src)
    if value is None:
        target, source, chosen = matched(dst, "tensor_copy_predicated", src=src, predicate=predicate)
        emit("copy_predicated", Engine.VECTOR, [target], [source, chosen], reverse=bool(reverse_pred))
        return
    target, chosen = matched(dst, "tensor_copy_predicated", predicate=predicate)
    if isinstance(value, float) is (target.dtype_name in INTEGER_DTYPES):
        kind = "an integer" if isinstance(value, float) else "a float"
        refuse(
            "dtype",
            f"the number {value!r} as 'src' of 'tensor_copy_predicated' to {target.dtype_name}: it must be {kind}",
            "a number has the kind of dst: integers for integer types, floats for the others",
        )
    emit("copy_predicated", Engine.VECTOR, [target], [value, chosen], reverse=bool(reverse_pred))


def nc_stream_shuffle(dst: object, src: object, shuffle_mask: Sequence[int], name: str | None = None) -> None:
    """Permute partitions inside each quadrant of 32."""
    target = destination(dst, "nc_stream_shuffle")
    source = operand(src, "src", "nc_stream_shuffle")
    emit("shuffle", Engine.VECTOR, [target], [source], lanes=tuple(int(n) for n in shuffle_mask))
