"""Emit the instructions of ``nki.isa`` that move tiles: DMA, copies, fills, shuffles."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any, cast

from acceld.nki.frontend.core.context import refuse, unsupported
from acceld.nki.frontend.core.elementwise import operand
from acceld.nki.frontend.core.index import as_number
from acceld.nki.frontend.core.names import engine_of
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.core.views import conform
from acceld.nki.frontend.current.names import DgeMode, DmaEngine, OobMode
from acceld.nki.frontend.current.operands import (
    alu_op,
    check_priority,
    destination,
    emit,
    matched,
    member,
    number,
    paired,
    same,
    tensor,
    whole,
    whole_numbers,
    word_of,
)
from acceld.nki.frontend.current.state import current_trace
from acceld.nki.ir.numerics import PACKED_DTYPES
from acceld.nki.ir.operations import DTYPE_BYTES, INTEGER_DTYPES
from acceld.nki.ir.program import Access, Engine, Space

SWAPPED_ELEMENTS = 256
"""Greatest number of elements a partition that ``sendrecv`` swaps by GpSimd's own DMA: 1024 bytes of 32-bit types, 512
of 16-bit types, 256 of 8-bit types (page of nisa.sendrecv, 0.6).
"""
MOST_SUMMED = 16
"""Greatest number of sources that ``dma_compute`` adds (page of nisa.dma_compute, 0.6)."""
WIDEST_TURNED = 128
"""Greatest size of the last axis of rows that ``dma_transpose`` gathers (page of nisa.dma_transpose, 0.6)."""
TRANSPOSES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
"""The order of axes that ``dma_transpose`` gives the result, by the number of axes."""


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
    """Set dst to src through a DMA. dst and src are each in HBM or SBUF. They need equally many elements; their
    types may differ.
    """
    target, source = tensor(dst, "dst", "dma_copy"), tensor(src, "src", "dma_copy")
    for moved, word in ((target, "dst"), (source, "src")):
        if moved.space is Space.PSUM:
            refuse(
                "address_space",
                f"operand '{word}' of 'dma_copy' is in PSUM, which the DMA engines do not reach",
                "copy it to SBUF with nisa.tensor_copy first",
            )
    _check_dge(dge_mode, engine, source, target, "dma_copy")
    check_priority(priority, "dma_copy")
    if source.dtype_name != target.dtype_name and "int64" in (source.dtype_name, target.dtype_name):
        unsupported(
            f"dma_copy from {source.dtype_name} to {target.dtype_name} is not simulated",
            "no page describes a cast of int64; to copy its low words, take every other element of .view(nl.int32)",
        )
    member(oob_mode, OobMode, "oob_mode", "dma_copy")
    indirect = [tile for tile in (target, source) if tile.access.indirect]
    if word_of(oob_mode) == "skip" and not indirect:
        # AWS's library for 0.3 writes it where one of two branches has a run-time index
        current_trace().notice(
            "dma_copy with oob_mode.skip has no run-time index: pages of NKI speak of it for such an index only"
        )
    if word_of(dge_mode) == "hwdge" and any(map(_gathers, indirect)):
        refuse(
            "dge_mode",
            "'dma_copy' by hardware DGE can not take a vector_offset",
            "use dge_mode.swdge for a gather or scatter, or leave dge_mode out",
        )
    _one_index_a_row("dma_copy", indirect)
    if source.space is target.space is Space.SBUF:
        current().notice(
            "dma_copy from SBUF to SBUF: a compiler of NKI 0.4 refused such a copy, but the pages of nki.isa allow it"
        )
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
    """Set dst to the src of the other physical core of the logical core. That core gets this core's src."""
    trace = current_trace()
    if trace.session.lnc != 2 or len(trace.grid) != 1 or trace.grid[0] != 2:
        refuse(
            "exchange_cores",
            "'sendrecv' needs a launch on the two physical cores of a logical core",
            "launch with lnc 2",
        )
    other = 1 - operator.index(cast("Any", trace.program_ids[0]))
    if (as_number(send_to_rank), as_number(recv_from_rank)) != (other, other):
        refuse(
            "exchange_cores",
            f"'sendrecv' on core {1 - other} needs send_to_rank and recv_from_rank {other}",
            "pass 1 - nl.program_id(0) as send_to_rank and as recv_from_rank",
        )
    target, source = tensor(dst, "dst", "sendrecv"), tensor(src, "src", "sendrecv")
    if target.dtype_name != source.dtype_name:
        refuse(
            "dtype",
            f"'sendrecv' can not cast {source.dtype_name} to {target.dtype_name}: give src and dst the same dtype",
        )
    moved = conform(source, target.shape)
    if moved is None:
        refuse(
            "shape",
            f"src {list(source.shape)} and dst {list(target.shape)} of 'sendrecv' must have one shape (nisa.sendrecv, 0.6)",
            "reshape one of them",
        )
    _check_swap(source, dma_engine)
    emit("exchange", Engine.DMA, [target], [moved], pipe=whole(pipe_id, "pipe_id of sendrecv") or None)


def _check_swap(tile: Tensor, dma_engine: object) -> None:
    """Raise LegalityError for a tile that GpSimd's own DMA can not swap: it moves 256 elements a partition."""
    member(dma_engine, DmaEngine, "dma_engine", "sendrecv")
    row = prod(tile.shape[1:])
    if word_of(dma_engine) == "gpsimd_dma" and row > SWAPPED_ELEMENTS:
        refuse(
            "free_size",
            f"'sendrecv' by gpsimd_dma can not move {row} elements a partition (nisa.sendrecv, 0.6)",
            f"move at most {SWAPPED_ELEMENTS} at a time, or leave dma_engine out",
        )


def _gathers(tile: Tensor) -> bool:
    """Tell whether a tile with several run-time indices selects the rows of a view. A single run-time index is a
    scalar_offset and does not count.
    """
    return any(one.index is not None and one.index.elements > 1 for one in tile.access.indirect)


def _indices_of(tile: Tensor) -> Access | None:
    """Return the tile of indices that selects the rows of a view; None for any other tensor."""
    found = (one.index for one in tile.access.indirect if one.index is not None and one.index.elements > 1)
    return next(found, None)


def _one_index_a_row(call: str, tiles: Sequence[Tensor]) -> None:
    """Raise LegalityError for rows that a tile with several indices in each partition selects."""
    for tile in tiles:
        indices = _indices_of(tile)
        if indices is not None and indices.elements != indices.shape[0]:
            refuse(
                "index_type",
                f"the vector_offset of '{call}' is a tile of shape {list(indices.shape)} (nisa.{call}, 0.6)",
                "pass one index in each partition, a tile (P, 1); nisa.dma_transpose takes more",
            )


def _check_dge(dge_mode: object, engine: object, source: Tensor, target: Tensor, call: str) -> None:
    """Raise LegalityError for operands that the chosen generator of DMA descriptors (``dge_mode``) does not take.

    The choice changes no values, and the performance model times all generators alike.
    """
    member(dge_mode, DgeMode, "dge_mode", call)
    hardware = word_of(dge_mode) == "hwdge"
    chosen = engine_of(engine)
    if hardware and current().chip.generation < 3:
        refuse(
            "chip",
            f"{current().chip.name} has no hardware DGE; NeuronCore-v3 is the first that has it",
            "leave dge_mode out",
        )
    if hardware and source.dtype_name != target.dtype_name:
        refuse(
            "dge_dtype",
            f"'{call}' by hardware DGE can not cast {source.dtype_name} to {target.dtype_name}: it only moves bytes",
            "use .view() to keep the bits, or dge_mode.swdge or dge_mode.none to cast",
        )
    if chosen is not Engine.UNKNOWN and (not hardware or chosen not in (Engine.SYNC, Engine.SCALAR)):
        refuse(
            "engine",
            f"'{call}' takes an engine only with dge_mode.hwdge, and then nisa.engine.sync or nisa.engine.scalar",
            "leave engine out",
        )


def _no_skipping(oob_mode: object, call: str) -> None:
    """Raise UnsupportedCall for ``oob_mode.skip``, which the simulator does not have for the function ``call``."""
    if word_of(oob_mode) == "skip":
        unsupported(
            f"{call} with oob_mode.skip is not simulated", "keep the indices inside of the tensor, or use nisa.dma_copy"
        )


def dma_compute(
    dst: object,
    srcs: Sequence[object],
    reduce_op: object,
    scales: object = None,
    unique_indices: bool = True,
    oob_mode: object = None,
    name: str | None = None,
) -> None:
    """Set dst to the sum of srcs. The DMA engines add in float32."""
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
                f"dma_compute can not take {option}: the DMA engines only add, each source with weight 1.0",
                "scale with nisa.tensor_scalar first, or combine by nisa.tensor_tensor",
            )
    _no_skipping(oob_mode, "dma_compute")
    if not 1 <= len(srcs) <= MOST_SUMMED:
        refuse(
            "dma_compute",
            f"dma_compute got {len(srcs)} sources, and adds 1 to {MOST_SUMMED} (nisa.dma_compute, 0.6)",
            f"add {MOST_SUMMED} at a time",
        )
    sources = [tensor(src, "srcs", "dma_compute") for src in srcs]
    _one_index_a_row("dma_compute", [target, *sources])
    if any(map(_gathers, sources)) and len(sources) != 2:
        refuse(
            "dma_compute",
            f"dma_compute with a vector_offset got {len(sources)} sources, and takes two: the rows, and what is added to them "
            "(nisa.dma_compute, 0.6)",
            "add the other sources in a call of their own",
        )
    tiles = [same(one, target, "dma_compute") for one in sources]
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
    """Set dst to src with its axes reordered by a DMA, which exchanges the first and the last axis."""
    source, target = tensor(src, "src", "dma_transpose"), tensor(dst, "dst", "dma_transpose")
    _no_skipping(oob_mode, "dma_transpose")
    _check_dge(dge_mode, None, source, target, "dma_transpose")
    check_priority(priority, "dma_transpose")
    _transposed_by_dma(source, target, word_of(dge_mode))
    order = TRANSPOSES.get(source.ndim)
    if order is None or (axes is not None and tuple(axes) != order):
        refuse(
            "transpose_axes",
            f"'dma_transpose' can not reorder {list(source.shape)} by axes {None if axes is None else tuple(axes)}",
            "pass axes (1, 0), (2, 1, 0) or (3, 1, 2, 0), one for each axis of src",
        )
    turned = tuple(source.shape[axis] for axis in order)
    if target.shape != turned or target.dtype_name != source.dtype_name:
        refuse(
            "shape",
            f"the dst of 'dma_transpose' is {list(target.shape)} {target.dtype_name}, and must be {list(turned)} {source.dtype_name}",
            f"declare dst with the axes {order} of src {list(source.shape)}, and its type",
        )
    emit("dma_transpose", Engine.DMA, [target], [source], axes=order)


def _transposed_by_dma(source: Tensor, target: Tensor, mode: str | None) -> None:
    """Raise LegalityError if a transposing DMA does not take the memories or dtypes of ``source`` and ``target``, or
    the generator of descriptors ``mode``.
    """
    if source.space is not Space.HBM and not source.access.indirect:
        current().notice(
            "dma_transpose of a tile on chip: compilers from 2.24 on refused it (HBM to SBUF only), but AWS's own "
            "library uses it; nisa.nc_transpose is always accepted"
        )
    if target.space is Space.HBM:
        current().notice(
            "dma_transpose into HBM: AWS's pages and examples disagree on whether it works; a dst in SBUF always does"
        )
    size = DTYPE_BYTES[source.dtype_name]
    gathers = _gathers(source)
    wrong = ""
    if size not in (2, 4):
        wrong = f"of {source.dtype_name}: it moves types of two or four bytes"
    elif mode == "none" or (mode == "swdge" and not gathers) or (mode == "hwdge" and gathers):
        wrong = f"with dge_mode.{mode} {'and' if gathers else 'without'} a vector_offset"
    elif mode == "hwdge" and size != 2:
        wrong = f"of {source.dtype_name} by hardware DGE, which moves types of two bytes"
    elif mode == "hwdge" and source.ndim == 2 and (source.shape[0] % 16 or source.shape[1] > 128):
        current().notice(
            f"dma_transpose of {list(source.shape)} by hardware DGE: the page of 0.6 takes rows by 16 and at most 128 columns"
        )
    elif gathers:
        _turns_rows(source)
    if wrong:
        refuse("dge_mode", f"'dma_transpose' {wrong}", "leave dge_mode out, or use nisa.nc_transpose")


def _turns_rows(source: Tensor) -> None:
    """Raise LegalityError for rows by a vector_offset that a transposing DMA does not take (page of nisa.dma_transpose,
    0.6).
    """
    indices = _indices_of(source)
    assert indices is not None
    rows, columns = indices.shape[0], indices.elements // indices.shape[0]
    kind = current().builder.buffers[indices.buffer].dtype
    wrong, hint = "", ""
    if DTYPE_BYTES[source.dtype_name] != 2:
        wrong, hint = f"rows of {source.dtype_name}, and moves types of two bytes", "cast the tensor in HBM to bfloat16"
    elif source.shape[-1] > WIDEST_TURNED:
        wrong, hint = f"rows of {source.shape[-1]} elements", f"take at most {WIDEST_TURNED} columns at a time"
    elif rows % 16 or not 16 <= rows <= 128 or (columns > 1 and rows != 128):
        wrong = f"a vector_offset of shape {list(indices.shape)}"
        hint = "pass 16 to 128 rows of indices, a multiple of 16, and 128 rows for more than one column"
    if wrong:
        refuse("dge_mode", f"'dma_transpose' with a vector_offset can not take {wrong} (nisa.dma_transpose, 0.6)", hint)
    if kind != "uint32":
        current().notice(
            f"dma_transpose with a vector_offset of {kind}: the page of nisa.dma_transpose asks for uint32"
        )


def tensor_copy(
    dst: object, src: object, engine: object = None, name: str | None = None, *, dtype: object = None
) -> None:
    """Set dst to src, both on chip. ``dtype`` is an argument of NKI 0.2 without effect, because dst has a type
    of its own.
    """
    target, tile = matched(dst, "tensor_copy", src=src)
    if dtype is not None:
        current().notice("tensor_copy takes no dtype since NKI 0.3: the destination's type counts")
    emit("copy", engine_of(engine), [target], [tile])


def memset(dst: object, value: object, engine: object = None, name: str | None = None) -> None:
    """Set every element of dst to value. An integer tile needs an integer."""
    target = destination(dst, "memset")
    if isinstance(value, float) and target.dtype_name in INTEGER_DTYPES:
        refuse(
            "memset_dtype",
            f"'memset' can not write the float {value} to {target.dtype_name}: the value must be of the type of dst",
            f"pass {value:.0f}",
        )
    if target.dtype_name in PACKED_DTYPES and as_number(value) != 0:
        refuse(
            "memset_dtype",
            f"'memset' can not write {value!r} to {target.dtype_name}: packed types take 0 only",
            "pass 0",
        )
    if isinstance(value, int) and value < 0 and target.dtype_name.startswith("uint"):
        current().notice(f"memset of {target.dtype_name} with {value}, which is outside of the type's range")
    emit("memset", engine_of(engine), [target], [number(value, "value", "memset")])


def tensor_copy_predicated(
    dst: object, src: object, predicate: object, reverse_pred: bool = False, name: str | None = None
) -> None:
    """Set dst to src, a tile or a number, where predicate is non-zero; with ``reverse_pred``, where predicate is
    zero.
    """
    value = as_number(src)
    if value is None:
        target, source, chosen = matched(dst, "tensor_copy_predicated", src=src, predicate=predicate)
        if reverse_pred:
            refuse(
                "operand_type",
                "'tensor_copy_predicated' can not take reverse_pred when src is a tile",
                "make a predicate with the opposite comparison, or pass a number as src",
            )
        emit("copy_predicated", Engine.VECTOR, [target], [source, chosen], reverse=False)
        return
    target, chosen = matched(dst, "tensor_copy_predicated", predicate=predicate)
    if isinstance(value, float) is (target.dtype_name in INTEGER_DTYPES):
        kind = "an integer" if isinstance(value, float) else "a float"
        refuse(
            "dtype",
            f"the number {value!r} as 'src' of 'tensor_copy_predicated' to {target.dtype_name}: it must be {kind}",
            "pass an integer for integer types, a float for the others",
        )
    emit("copy_predicated", Engine.VECTOR, [target], [value, chosen], reverse=bool(reverse_pred))


def nc_stream_shuffle(dst: object, src: object, shuffle_mask: Sequence[int], name: str | None = None) -> None:
    """Set dst to src with its partitions permuted inside each group of 32."""
    target = destination(dst, "nc_stream_shuffle")
    source = operand(src, "src", "nc_stream_shuffle")
    emit(
        "shuffle",
        Engine.VECTOR,
        [target],
        [source],
        lanes=whole_numbers(shuffle_mask, "shuffle_mask of nc_stream_shuffle"),
    )
