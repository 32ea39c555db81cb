"""Emit the instructions of ``nki.isa`` that produce integers, select by position, search, gather or draw random
numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np

from acceld.nki.frontend.core.context import refuse
from acceld.nki.frontend.core.elementwise import operand
from acceld.nki.frontend.core.names import engine_of
from acceld.nki.frontend.core.state import current
from acceld.nki.frontend.core.tensor import Tensor
from acceld.nki.frontend.current.names import ReduceCommand
from acceld.nki.frontend.current.operands import (
    alu_op,
    command_of,
    common_axes,
    destination,
    emit,
    fold,
    int32,
    matched,
    number,
    reduced,
    scalar,
    split,
    whole,
)
from acceld.nki.frontend.current.sampling import SampledIndex
from acceld.nki.ir.operations import DTYPE_BYTES, GENERATOR_WORDS, INTEGER_DTYPES
from acceld.nki.ir.program import Affine, Engine, Pattern

PATTERN_AXES = 4
"""Limit on the free axes of a pattern of iota and affine_select (page of nisa.iota, 0.6)."""
MAX8_AXES = 3
"""Limit on the axes of the tiles that max8 and nc_find_index8 search (their pages, 0.6)."""
COMMANDS = frozenset(one.name for one in ReduceCommand)
EXACT_POSITION = 2**24
"""Positions below this number are exact in float32, in which range_select compares them (page of nisa.range_select)."""
GATHER_PARTITIONS, GATHER_INDICES = 16, 4096
"""Number of partitions that share one list of indices in local_gather, and the greatest length of that list
(nisa.local_gather, 0.6).
"""
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
    coefficients = (int32(channel_multiplier, "channel_multiplier", "a pattern"), *reversed(steps))
    base = offset.base if isinstance(offset, SampledIndex) else Affine(int32(offset, "the offset", "a pattern"))
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
    """Set dst to on_true_tile where the comparison ``cmp_op`` of the pattern's integer with zero holds, elsewhere to
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
    """Set dst to on_true_tile where the position along the free axis satisfies both comparisons (``comp_op0`` with
    bound0, ``comp_op1`` with bound1), elsewhere to the least float32.
    """
    target, tile = matched(dst, "range_select", on_true_tile=on_true_tile)
    for word, bound in (("bound0", bound0), ("bound1", bound1)):
        if not isinstance(bound, Tensor):
            refuse(
                "operand_type",
                f"{word} of 'range_select' must be a tile, not {type(bound).__name__}",
                "pass a (P, 1) tile of float32",
            )
    if isinstance(range_start, float) and range_start.is_integer():
        range_start = int(range_start)
    begin = int32(range_start, "range_start", "range_select")
    if begin + prod(tile.shape[1:]) > EXACT_POSITION:
        current().notice(
            f"range_select with range_start {begin}: positions from 2**24 on are not exact in float32, in which the engine "
            "compares them; subtract the start from both bounds instead"
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
        range_start=begin,
        on_false=float(other),
        reduce_op=("max" if reduce_op is None else fold(reduce_op)) if reduce_res is not None else None,
        reduce_cmd=command_of(reduce_cmd, "range_select", COMMANDS),
    )


def max8(dst: object, src: object, name: str | None = None) -> None:
    """Set dst to the eight greatest elements of each partition."""
    source = _searched(src, "src", "max8")
    emit("max8", Engine.VECTOR, [_eight(dst, "max8")], [source])


def _searched(value: object, name: str, call: str) -> Tensor:
    """Return the tile ``value`` that an instruction searches. Raise LegalityError if it has too many axes."""
    tile = operand(value, name, call)
    if tile.ndim > MAX8_AXES:
        refuse(
            "access_pattern",
            f"'{call}' got {name} of {tile.ndim} axes; it takes at most {MAX8_AXES} (nisa.{call}, 0.6)",
            "merge axes with tile.flatten_dims(start, end)",
        )
    return tile


def _eight(dst: object, call: str) -> Tensor:
    """Return the destination tile of a search. Raise LegalityError if it has more axes than partitions and eight
    columns.
    """
    tile = destination(dst, call)
    if tile.ndim != 2:
        refuse(
            "operand_shape",
            f"the dst of '{call}' is {list(tile.shape)}, and must have two axes (nisa.{call}, 0.6)",
            f"declare it with [{tile.shape[0]}, 8]",
        )
    return tile


def nc_find_index8(dst: object, data: object, vals: object, name: str | None = None) -> None:
    """Set dst to the position in data at which each of the eight values of vals first occurs, in each partition."""
    tiles = [_searched(data, "data", "nc_find_index8"), _searched(vals, "vals", "nc_find_index8")]
    emit("find_index8", Engine.VECTOR, [_eight(dst, "nc_find_index8")], tiles)


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
    made = destination(dst, "local_gather")
    held = GATHER_PARTITIONS * prod(tiles[1].shape[1:])
    valid = held if num_valid_indices is None else whole(num_valid_indices, "num_valid_indices of local_gather")
    if not 0 < valid <= min(held, GATHER_INDICES):
        refuse(
            "free_size",
            f"'local_gather' got {valid} indices for each 16 partitions (nisa.local_gather, 0.6)",
            f"use at most {min(held, GATHER_INDICES)}: index holds {held} for 16 partitions, and a core takes {GATHER_INDICES}",
        )
    if valid * num_elem_per_idx != prod(made.shape[1:]):
        current().notice(
            f"local_gather of {valid} times {num_elem_per_idx} elements to {prod(made.shape[1:])} a partition: release notes of "
            "0.6 say that num_elem_per_idx is then ignored; pass num_valid_indices, and give dst that many elements"
        )
    emit(
        "local_gather",
        Engine.GPSIMD,
        [made],
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
    source, count, written = operand(src, "src", "topk"), whole(n, "n of topk"), prod(dsts[0].shape[1:])
    most, held = min(count, 32767), GATHER_PARTITIONS * prod(source.shape[1:])
    wrong, hint = "", ""
    if not 8 <= count < 65536:
        wrong, hint = "; it takes 8 to 65535 elements", "pad a shorter source, or split a longer one"
    elif written > most:
        wrong, hint = f" and writes {written} values", f"give val_dst and idx_dst at most {most} columns"
    elif count > held:
        wrong, hint = f", but 16 partitions of src hold {held} elements", "pass at most that number"
    elif source.shape[0] % GATHER_PARTITIONS:
        wrong, hint = f" and a src of {source.shape[0]} partitions", "use a multiple of 16"
    if wrong:
        refuse("free_size", f"'topk' got n={count}{wrong} (nisa.topk, 0.6)", hint)
    emit("topk", Engine.GPSIMD, dsts, [source], n=count)


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
        index_offset=int32(index_offset, "index_offset", "nonzero_with_count"),
        padding=int32(padding_val, "padding_val", "nonzero_with_count"),
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
    made = destination(dst, "sequence_bounds")
    wanted = (1, 2, prod(ids.shape[1:]))
    if made.shape != wanted:
        refuse(
            "operand_shape",
            f"the dst of 'sequence_bounds' is {list(made.shape)}: starts, then ends, of {wanted[2]} elements (nisa.sequence_bounds, 0.6)",
            f"declare it with {list(wanted)}",
        )
    emit("sequence_bounds", Engine.GPSIMD, [made], [ids])


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
    """Set dst to uniform random values in [min, max) (trn3). Each bound is a number, or a tile with one number for each
    partition.
    """
    target, trace = destination(dst, "rand2"), current()
    low, high = scalar(min, "min", "rand2", target), scalar(max, "max", "rand2", target)
    if trace.chip.generation < 4:
        refuse(
            "chip",
            f"{trace.chip.name} has no 'rand2'; NeuronCore-v4 is the first that has it",
            "use nisa.rng or nl.rand",
        )
    if isinstance(low, float | int) and isinstance(high, float | int) and low >= high:
        refuse("operand_type", f"'rand2' got min {low} and max {high}", "pass a min that is less than max")
    emit("random", Engine.VECTOR, [target], [low, high])


def set_rng_seed(src_seeds: object, name: str | None = None) -> None:
    """Seed the random number generator from a (1, 1) tile."""
    seeds = operand(src_seeds, "src_seeds", "set_rng_seed")
    if seeds.size != 1:
        refuse("operand_shape", f"'set_rng_seed' got a tile of shape {list(seeds.shape)}", "pass a (1, 1) tile")
    if DTYPE_BYTES[seeds.dtype_name] != 4:
        refuse(
            "dtype",
            f"'set_rng_seed' got a seed of {seeds.dtype_name}, and takes 32 bits (nisa.set_rng_seed, 0.6)",
            "pass a (1, 1) tile of nl.uint32 or nl.int32",
        )
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
    source = operand(src, "src", "quantize_mx")
    row, made = prod(source.shape[1:]), (dsts[0].shape[0], prod(dsts[0].shape[1:]))
    wrong, hint = "", ""
    if source.shape[0] % 32:
        wrong, hint = f"src of {source.shape[0]} partitions", "pass a multiple of 32"
    elif row % 4:
        wrong, hint = f"src of {row} elements a partition", "pass a multiple of 4"
    elif made != (source.shape[0], row // 4):
        wrong = f"dst of {list(dsts[0].shape)}"
        hint = f"declare it with [{source.shape[0]}, {row // 4}], four values in an element"
    if wrong:
        refuse("operand_shape", f"'quantize_mx' can not take a {wrong} (nisa.quantize_mx, 0.6)", hint)
    emit("quantize_mx", Engine.VECTOR, dsts, [source])
