"""Emit the instructions of ``nki.isa`` that make integers, select by position, search, gather or draw random numbers."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np

from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.elementwise import operand
from acceld.nki.frontend.core.names import alu_op, engine_of
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current.operands import (
    common_axes,
    destination,
    emit,
    fold,
    matched,
    number,
    reduced,
    scalar,
    split,
    word_of,
)
from acceld.nki.frontend.current.sampling import SampledIndex
from acceld.nki.ir.operations import GENERATOR_WORDS, INTEGER_DTYPES
from acceld.nki.ir.program import Affine, Engine, Pattern

PATTERN_AXES = 4
"""Limit on the free axes of a pattern of iota and affine_select (page of nisa.iota, 0.6)."""
MAX8_AXES = 3
"""Limit on the axes of the source of max8 (page of nisa.max8, 0.6)."""
LEAST_FLOAT32 = -3.4028235e38


def _affine(
    pattern: Sequence[Sequence[int]], offset: object, channel_multiplier: int, tiles: Sequence[Tensor]
) -> tuple[Pattern, list[Tensor]]:
    """Return a pattern of integers, and the tiles with axes that fit the pattern.

    The integer at a position is ``offset + channel_multiplier * partition + sum(step * index)``. Each pair
    [step, count] of ``pattern`` has one index. If the pattern has finer axes than the tiles, the tiles' free
    axes are split.
    """
    pairs = [(operator.index(cast("Any", step)), operator.index(cast("Any", count))) for step, count in pattern]
    if len(pairs) > PATTERN_AXES:
        refuse(
            "access_pattern",
            f"the pattern has {len(pairs)} axes; an engine counts along at most {PATTERN_AXES}",
            "merge axes of the pattern",
        )
    counts, free = tuple(count for _, count in pairs), tiles[0].shape[1:]
    views = list(tiles)
    if tuple(n for n in counts if n != 1) != tuple(n for n in free if n != 1):
        axes = common_axes([counts, free]) if prod(counts) == prod(free) else None
        if axes is None:
            refuse(
                "shape",
                f"the pattern covers {list(counts)} elements, and dst has {list(free)}: give the pattern the counts of dst",
            )
        views, free = [split(tile, axes) for tile in tiles], axes
    left = [(step, count) for step, count in pairs if count != 1]
    steps: list[int] = []
    inner = 1
    for count in reversed(free):
        if count == 1:
            steps.append(0)
            continue
        steps.append(left[-1][0] * inner)
        inner *= count
        if inner == left[-1][1]:
            left.pop()
            inner = 1
    coefficients = (operator.index(cast("Any", channel_multiplier)), *reversed(steps))
    base = offset.base if isinstance(offset, SampledIndex) else Affine(operator.index(cast("Any", offset)))
    return Pattern(base, coefficients), views


def iota(
    dst: object,
    pattern: Sequence[Sequence[int]],
    offset: object = 0,
    channel_multiplier: int = 0,
    name: str | None = None,
) -> None:
    """Set dst to integers that are affine in the position: ``offset + channel_multiplier * partition + sum(step
    * index)``.
    """
    values, tiles = _affine(pattern, offset, channel_multiplier, [destination(dst, "iota")])
    emit("iota", Engine.GPSIMD, tiles, pattern=values)


def affine_select(
    dst: object,
    pattern: Sequence[Sequence[int]],
    channel_multiplier: int,
    on_true_tile: object,
    on_false_value: object,
    cmp_op: object = None,
    offset: object = 0,
    name: str | None = None,
) -> None:
    """Set dst to on_true_tile where the pattern's integer compares with zero as cmp_op asks, elsewhere to
    on_false_value.
    """
    tiles = matched(dst, "affine_select", on_true_tile=on_true_tile)
    values, (target, tile) = _affine(pattern, offset, channel_multiplier, tiles)
    emit(
        "affine_select",
        Engine.GPSIMD,
        [target],
        [tile, number(on_false_value, "on_false_value", "affine_select")],
        cmp="equal" if cmp_op is None else alu_op(cmp_op),
        pattern=values,
    )


def range_select(
    dst: object,
    on_true_tile: object,
    comp_op0: object,
    comp_op1: object,
    bound0: object,
    bound1: object,
    reduce_cmd: object = None,
    reduce_res: object = None,
    reduce_op: object = None,
    range_start: object = 0,
    on_false_value: object = LEAST_FLOAT32,
    name: str | None = None,
) -> None:
    """Set dst to on_true_tile where the position along the free axis compares with both bounds as asked,
    elsewhere to the least float32.
    """
    target, tile = matched(dst, "range_select", on_true_tile=on_true_tile)
    for word, bound in (("bound0", bound0), ("bound1", bound1)):
        if not isinstance(bound, Tensor):
            refuse(
                "operand_type",
                f"{word} of 'range_select' is {type(bound).__name__}",
                "pass a (P, 1) tile of float32",
            )
    other = number(on_false_value, "on_false_value", "range_select")
    if np.float32(other) != np.float32(LEAST_FLOAT32):
        refuse(
            "operand_type",
            f"'range_select' can not write on_false_value={other:g}: it always writes the least float32",
            "leave on_false_value out, and select another value with nisa.select_reduce",
        )
    emit(
        "range_select",
        Engine.VECTOR,
        [target, *reduced(reduce_res, "range_select")],
        [tile, scalar(bound0, "bound0", "range_select", tile), scalar(bound1, "bound1", "range_select", tile)],
        cmp0=alu_op(comp_op0),
        cmp1=alu_op(comp_op1),
        range_start=int(number(range_start, "range_start", "range_select")),
        on_false=float(other),
        reduce_op=("max" if reduce_op is None else fold(reduce_op)) if reduce_res is not None else None,
        reduce_cmd=word_of(reduce_cmd),
    )


def max8(dst: object, src: object, name: str | None = None) -> None:
    """Set dst to the eight greatest elements of each partition."""
    source = operand(src, "src", "max8")
    if source.ndim > MAX8_AXES:
        refuse(
            "access_pattern",
            f"'max8' got a tile of {source.ndim} axes; it takes at most {MAX8_AXES}",
            "reshape the tile",
        )
    emit("max8", Engine.VECTOR, [destination(dst, "max8")], [source])


def nc_find_index8(dst: object, data: object, vals: object, name: str | None = None) -> None:
    """Set dst, for each of the eight values of vals in a partition, to the position in data at which the value
    first occurs.
    """
    tiles = [operand(data, "data", "nc_find_index8"), operand(vals, "vals", "nc_find_index8")]
    emit("find_index8", Engine.VECTOR, [destination(dst, "nc_find_index8")], tiles)


def nc_match_replace8(
    dst: object, data: object, vals: object, imm: object, dst_idx: object = None, name: str | None = None
) -> None:
    """Set dst to data, with the first occurrence of each of the eight values in vals replaced by imm."""
    dsts = [destination(dst, "nc_match_replace8")]
    if dst_idx is not None:
        dsts.append(operand(dst_idx, "dst_idx", "nc_match_replace8"))
    tiles = [operand(data, "data", "nc_match_replace8"), operand(vals, "vals", "nc_match_replace8")]
    emit("match_replace8", Engine.VECTOR, dsts, tiles, imm=float(number(imm, "imm", "nc_match_replace8")))


def local_gather(
    dst: object,
    src_buffer: object,
    index: object,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> None:
    """Set dst to elements of src_buffer along the free axis, at indices that groups of sixteen partitions share."""
    tiles = [operand(src_buffer, "src_buffer", "local_gather"), operand(index, "index", "local_gather")]
    emit(
        "local_gather",
        Engine.GPSIMD,
        [destination(dst, "local_gather")],
        tiles,
        elements_per_index=int(num_elem_per_idx),
        valid=num_valid_indices,
    )


def nc_n_gather(dst: object, data: object, indices: object, name: str | None = None) -> None:
    """Set dst[p, i] to data[p, indices[p, i]]."""
    tiles = [operand(data, "data", "nc_n_gather"), operand(indices, "indices", "nc_n_gather")]
    emit("gather", Engine.GPSIMD, [destination(dst, "nc_n_gather")], tiles)


def topk(val_dst: object, idx_dst: object, src: object, n: int, name: str | None = None) -> None:
    """Set val_dst to the greatest of the n elements of each group of sixteen partitions, and idx_dst to their
    positions.

    As many elements are written as val_dst has columns.
    """
    current().notice("topk: it is not documented which rows get a group's result; all sixteen do here")
    dsts = [operand(val_dst, "val_dst", "topk"), operand(idx_dst, "idx_dst", "topk")]
    if not 8 <= int(n) < 65536:
        refuse(
            "free_size",
            f"'topk' got n={n}; it takes 8 to 65535 elements",
            "pad a shorter source, or split a longer one",
        )
    emit("topk", Engine.GPSIMD, dsts, [operand(src, "src", "topk")], n=int(n))


def nonzero_with_count(
    dst: object, src: object, index_offset: int = 0, padding_val: int = -1, name: str | None = None
) -> None:
    """Set dst to the positions of the non-zero elements of src, followed by the number of these elements."""
    target, source = destination(dst, "nonzero_with_count"), operand(src, "src", "nonzero_with_count")
    if prod(target.shape[1:]) != prod(source.shape[1:]) + 1:
        refuse(
            "operand_shape",
            f"the dst of 'nonzero_with_count' has shape {list(target.shape)}, which does not fit src {list(source.shape)}",
            f"declare dst with {prod(source.shape[1:]) + 1} elements a partition: the positions, then the number of non-zero elements",
        )
    emit(
        "nonzero_with_count",
        Engine.GPSIMD,
        [target],
        [source],
        index_offset=int(index_offset),
        padding=int(padding_val),
    )


def sequence_bounds(dst: object, segment_ids: object, name: str | None = None) -> None:
    """Set dst to the start and the end of the segment that each element of segment_ids belongs to."""
    ids = operand(segment_ids, "segment_ids", "sequence_bounds")
    if ids.shape[0] != 1:
        refuse(
            "operand_shape",
            f"segment_ids of 'sequence_bounds' has {ids.shape[0]} partitions",
            "pass a tile of one partition",
        )
    emit("sequence_bounds", Engine.GPSIMD, [destination(dst, "sequence_bounds")], [ids])


def rng(dst: object, engine: object = None, name: str | None = None) -> None:
    """Set dst to random integers over the whole range of its dtype."""
    target, chosen = destination(dst, "rng"), engine_of(engine)
    if target.dtype_name not in INTEGER_DTYPES:
        refuse(
            "dtype", f"'rng' can not write {target.dtype_name}: it draws integers", "use nl.rand, or nisa.rand2 on trn3"
        )
    if chosen not in (Engine.UNKNOWN, Engine.VECTOR, Engine.GPSIMD):
        refuse("engine", f"the {chosen.value} engine has no 'rng'", "use nisa.engine.vector or nisa.engine.gpsimd")
    emit("random", chosen, [target])


def rand2(dst: object, min: object, max: object, name: str | None = None) -> None:
    """Set dst to uniform random values in [min, max) (trn3)."""
    target, trace = destination(dst, "rand2"), current()
    low, high = number(min, "min", "rand2"), number(max, "max", "rand2")
    if trace.chip.generation < 4:
        refuse(
            "chip",
            f"{trace.chip.name} has no 'rand2'; NeuronCore-v4 is the first that has it",
            "use nisa.rng or nl.rand",
        )
    if low >= high:
        refuse("operand_type", f"'rand2' got min {low} and max {high}", "pass a min that is less than max")
    emit("random", Engine.VECTOR, [target], [low, high])


def set_rng_seed(src_seeds: object, name: str | None = None) -> None:
    """Seed the random number generator from a (1, 1) tile."""
    seeds = operand(src_seeds, "src_seeds", "set_rng_seed")
    if seeds.size != 1:
        refuse("operand_shape", f"'set_rng_seed' got a tile of shape {list(seeds.shape)}", "pass a (1, 1) tile")
    emit("random_seed", Engine.VECTOR, [], [seeds])


def rand_set_state(src_seeds: object, engine: object = None, name: str | None = None) -> None:
    """Set the state of an engine's random number generators: six words a partition on GpSimd, 24 on the vector
    engine of trn3.
    """
    chosen = _generator(engine, "rand_set_state")
    tile = _state(operand(src_seeds, "src_seeds", "rand_set_state"), chosen, "rand_set_state")
    emit("random_state_load", chosen, [], [tile])


def rand_get_state(dst: object, engine: object = None, name: str | None = None) -> None:
    """Set dst to the state of an engine's random number generators."""
    chosen = _generator(engine, "rand_get_state")
    emit("random_state_store", chosen, [_state(destination(dst, "rand_get_state"), chosen, "rand_get_state")])


def _generator(engine: object, call: str) -> Engine:
    """Return the engine whose random number generators a call uses, by default GpSimd. Raise LegalityError for
    an engine without generators.
    """
    chosen, trace = engine_of(engine), current()
    if chosen is Engine.UNKNOWN:
        chosen = Engine.GPSIMD
    if chosen not in GENERATOR_WORDS or (chosen is Engine.VECTOR and trace.chip.generation < 4):
        refuse(
            "engine", f"'{call}' can not use the {chosen.value} engine of {trace.chip.name}", "use nisa.engine.gpsimd"
        )
    if chosen is Engine.VECTOR:
        trace.notice("the order in which the vector engine's generators take turns is not documented")
    return chosen


def _state(tile: Tensor, engine: Engine, call: str) -> Tensor:
    """Return ``tile``, which holds the state of random number generators. Raise LegalityError if its shape or
    dtype does not fit.
    """
    words = GENERATOR_WORDS[engine]
    if tile.dtype_name != "uint32" or tile.shape[1:] != (words,):
        refuse("operand_shape", f"the state tile of '{call}' is {tile!r}: pass {words} elements of uint32 a partition")
    return tile


def quantize_mx(dst: object, src: object, dst_scale: object, name: str | None = None) -> None:
    """Set dst to src as microscaled FP8 data, and dst_scale to the exponents (trn3)."""
    dsts = [destination(dst, "quantize_mx"), operand(dst_scale, "dst_scale", "quantize_mx")]
    emit("quantize_mx", Engine.VECTOR, dsts, [operand(src, "src", "quantize_mx")])
