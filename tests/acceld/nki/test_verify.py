"""Each rule, with a program that breaks it and one that barely keeps it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from acceld.errors import UsageError
from acceld.nki.ir.program import (
    Access,
    Affine,
    Buffer,
    Engine,
    Indirect,
    Instruction,
    Loop,
    LoopKind,
    Pattern,
    TileDim,
)
from acceld.nki.verify.verifier import rulebook, verify
from tests.acceld.nki.programs import Kernel, Run, at, var

Case = Callable[[Kernel, bool], int]
"""Adds a use to a kernel, legal or, if the flag is set, illegal; returns the line that a finding should have."""

CASES: dict[str, tuple[str, Case, dict[str, Any]]] = {}


def case(rule: str, **how: Any) -> Callable[[Case], Case]:
    def register(function: Case) -> Case:
        CASES[function.__name__] = (rule, function, how)
        return function

    return register


@case("out_of_bounds")
def index_over_the_last_iteration(kernel: Kernel, bad: bool) -> int:
    x = kernel.input((64, 8))
    with kernel.loop(4 + bad) as i:
        tile = kernel.sbuf((16, 8))
        return kernel.op("dma_copy", at(tile), at(x, Run(var(i, 16), 16), Run(0, 8)))


@case("out_of_bounds")
def negative_index(kernel: Kernel, bad: bool) -> int:
    x, tile = kernel.input((64, 8)), kernel.sbuf((16, 8))
    return kernel.op("dma_copy", at(tile), at(x, Run(15 - bad, 16, -1), Run(0, 8)))


@case("out_of_bounds")
def mask_one_row_too_wide(kernel: Kernel, bad: bool) -> int:
    x = kernel.input((50, 8))
    with kernel.loop(4) as i:
        tile = kernel.sbuf((16, 8))
        inside = (Pattern(var(i, -16, 49 + bad), (-1, 0)),)
        return kernel.op("dma_copy", at(tile), at(x, Run(var(i, 16), 16), Run(0, 8)), mask=inside)


@case("out_of_bounds")
def mask_over_two_loops(kernel: Kernel, bad: bool) -> int:
    x = kernel.input((50,))
    with kernel.loop(3) as i, kernel.loop(4) as j:
        tile = kernel.sbuf((1, 6))
        start = var(i, 20) + var(j, 5)
        inside = (Pattern((var(i, -20) + var(j, -5)) + (49 + 2 * bad), (0, -1)),)
        access = Access(x.id, (start,), (TileDim(1, (0,)), TileDim(6, (1,))))
        return kernel.op("dma_copy", at(tile), access, mask=inside)


@case("partition_limit")
def too_many_partitions(kernel: Kernel, bad: bool) -> int:
    tensor = kernel.sbuf((128 + bad, 8))
    kernel.op("memset", at(tensor), 0.0)
    return tensor.line


@case("partition_axis")
def free_axis_along_partitions(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((32, 32))
    dst = kernel.sbuf((32, 32))
    moved = Access(tile.id, (Affine(0), Affine(0)), (TileDim(32, (0, 1)), TileDim(32, (1, 0))))
    return kernel.op("copy", at(dst), moved if bad else at(tile))


@case("partition_stride")
def every_second_partition(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((64, 8))
    dst = kernel.sbuf((32, 8))
    return kernel.op("copy", at(dst), at(tile, Run(0, 32, 1 + bad), Run(0, 8)))


@case("start_partition")
def start_in_the_middle_of_a_quadrant(kernel: Kernel, bad: bool) -> int:
    tile, dst = kernel.loaded((128, 8)), kernel.sbuf((32, 8))
    return kernel.op("copy", at(dst), at(tile, Run(64 + 16 * bad, 32), Run(0, 8)))


@case("start_partition")
def sixty_four_partitions_from_the_second_quadrant(kernel: Kernel, bad: bool) -> int:
    tile, dst = kernel.loaded((128, 8)), kernel.sbuf((64, 8))
    return kernel.op("copy", at(dst), at(tile, Run(32 if bad else 64, 64), Run(0, 8)))


@case("start_partition")
def start_partition_that_a_loop_moves(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((128, 8))
    with kernel.loop(4) as i:
        dst = kernel.sbuf((16, 8))
        return kernel.op("copy", at(dst), at(tile, Run(var(i, 16 if bad else 32), 16), Run(0, 8)))


@case("matmul_shape")
def stationary_too_wide(kernel: Kernel, bad: bool) -> int:
    s, m = kernel.loaded((64, 128 + bad)), kernel.loaded((64, 16))
    return kernel.op(
        "matmul", at(kernel.psum((128, 16))), [at(s, Run(0, 64), Run(0, 128 + bad)), at(m)], accumulate="no"
    )


@case("matmul_shape")
def moving_too_wide(kernel: Kernel, bad: bool) -> int:
    s, m = kernel.loaded((64, 32), "bfloat16"), kernel.loaded((64, 512 + bad), "bfloat16")
    return kernel.op("matmul", at(kernel.psum((32, 512 + bad))), [at(s), at(m)], accumulate="no")


@case("matmul_shape")
def result_of_another_shape(kernel: Kernel, bad: bool) -> int:
    s, m = kernel.loaded((64, 32)), kernel.loaded((64, 16))
    return kernel.op("matmul", at(kernel.psum((32, 16 + bad))), [at(s), at(m)], accumulate="no")


@case("partition_mismatch")
def operands_of_different_depth(kernel: Kernel, bad: bool) -> int:
    s, m = kernel.loaded((64, 32)), kernel.loaded((64 - 32 * bad, 16))
    return kernel.op("matmul", at(kernel.psum((32, 16))), [at(s), at(m)], accumulate="no")


@case("psum_bank")
def product_across_two_banks(kernel: Kernel, bad: bool) -> int:
    s, m, dst = kernel.loaded((64, 32)), kernel.loaded((64, 256)), kernel.psum((32, 1024))
    return kernel.op("matmul", at(dst, Run(0, 32), Run(256 + bad, 256)), [at(s), at(m)], accumulate="no")


@case("psum_bank")
def second_product_of_one_shape_across_two_banks(kernel: Kernel, bad: bool) -> int:
    s, m, dst = kernel.loaded((64, 32)), kernel.loaded((64, 256)), kernel.psum((32, 1024))
    kernel.op("matmul", at(dst, Run(0, 32), Run(0, 256)), [at(s), at(m)], accumulate="no")
    return kernel.op("matmul", at(dst, Run(0, 32), Run(256 + 128 * bad, 256)), [at(s), at(m)], accumulate="no")


@case("psum_bank")
def product_across_two_banks_in_a_later_iteration(kernel: Kernel, bad: bool) -> int:
    s, m, dst = kernel.loaded((64, 32)), kernel.loaded((64, 256)), kernel.psum((32, 1024))
    with kernel.loop(3) as i:
        place = at(dst, Run(0, 32), Run(var(i, 256 - 64 * bad), 256))
        return kernel.op("matmul", place, [at(s), at(m)], accumulate="no")


@case("psum_bank")
def product_into_every_other_column_of_two_banks(kernel: Kernel, bad: bool) -> int:
    s, m, dst = kernel.loaded((64, 32)), kernel.loaded((64, 256)), kernel.psum((32, 1024))
    return kernel.op("matmul", at(dst, Run(0, 32), Run(2 * bad, 256, 2)), [at(s), at(m)], accumulate="no")


@case("psum_bank")
def transpose_across_two_banks(kernel: Kernel, bad: bool) -> int:
    src, dst = kernel.loaded((64, 32)), kernel.psum((32, 1024))
    return kernel.op("transpose", at(dst, Run(0, 32), Run(448 + 32 * bad, 64)), at(src))


@case("address_space")
def product_into_sbuf(kernel: Kernel, bad: bool) -> int:
    s, m = kernel.loaded((64, 32)), kernel.loaded((64, 16))
    dst = kernel.sbuf((32, 16)) if bad else kernel.psum((32, 16))
    return kernel.op("matmul", at(dst), [at(s), at(m)], accumulate="no")


@case("address_space")
def operand_of_a_product_in_hbm(kernel: Kernel, bad: bool) -> int:
    x, m = kernel.input((64, 32)), kernel.loaded((64, 16))
    s = kernel.sbuf((64, 32))
    kernel.load(s, x)
    return kernel.op("matmul", at(kernel.psum((32, 16))), [at(x if bad else s), at(m)], accumulate="no")


@case("address_space")
def transfer_out_of_psum(kernel: Kernel, bad: bool) -> int:
    y = kernel.output((32, 16))
    tile = kernel.psum((32, 16)) if bad else kernel.sbuf((32, 16))
    kernel.op("memset", at(tile), 0.0)
    return kernel.store(y, tile)


@case("address_space")
def gpsimd_reading_psum(kernel: Kernel, bad: bool) -> int:
    tile, dst = kernel.psum((32, 16)), kernel.sbuf((32, 16))
    kernel.op("memset", at(tile), 0.0)
    return kernel.op("copy", at(dst), at(tile), engine=Engine.GPSIMD if bad else Engine.VECTOR)


@case("address_space")
def computing_in_hbm(kernel: Kernel, bad: bool) -> int:
    x, tile = kernel.input((32, 16)), kernel.loaded((32, 16))
    return kernel.op("activation", at(kernel.sbuf((32, 16))), [at(x if bad else tile), 0.0, 1.0], func="exp")


@case("psum_operands")
def both_tiles_in_psum(kernel: Kernel, bad: bool) -> int:
    one, two = kernel.psum((32, 16)), kernel.psum((32, 16)) if bad else kernel.sbuf((32, 16))
    kernel.op("memset", at(one), 0.0)
    kernel.op("memset", at(two), 0.0)
    return kernel.op("tensor_tensor", at(kernel.sbuf((32, 16))), [at(one), at(two)], op="add")


@case("base_partition", strict=True)
def tiles_on_different_partitions(kernel: Kernel, bad: bool) -> int:
    tile, other = kernel.loaded((64, 16)), kernel.loaded((32, 16))
    first = at(tile, Run(32 * bad, 32), Run(0, 16))
    return kernel.op("tensor_tensor", at(kernel.sbuf((32, 16))), [first, at(other)], op="add")


@case("base_partition")
def operands_of_a_product_on_other_partitions(kernel: Kernel, bad: bool) -> int:
    s, m = kernel.loaded((128, 32)), kernel.loaded((128, 16))
    halves = at(s, Run(64, 64), Run(0, 32)), at(m, Run(64 * (not bad), 64), Run(0, 16))
    return kernel.op("matmul", at(kernel.psum((32, 16))), halves, accumulate="no")


@case("base_partition")
def operands_of_a_product_by_addresses(kernel: Kernel, bad: bool) -> int:
    s, m = kernel.sbuf((64, 32), address=(0, 0)), kernel.sbuf((64, 16), address=(64 * bad, 4096))
    for tile in (s, m):
        kernel.op("memset", at(tile), 1.0)
    return kernel.op("matmul", at(kernel.psum((32, 16))), [at(s), at(m)], accumulate="no")


@case("base_partition")
def operands_of_a_product_that_part_in_the_second_iteration(kernel: Kernel, bad: bool) -> int:
    s, m, dst = kernel.loaded((128, 32)), kernel.loaded((128, 16)), kernel.psum((32, 16))
    with kernel.loop(2) as i:
        first = at(s, Run(var(i, 64), 64), Run(0, 32)), at(m, Run(0 if bad else var(i, 64), 64), Run(0, 16))
        return kernel.op("matmul", at(dst), first, accumulate="auto")


@case("base_partition")
def tiles_of_two_full_tensors_on_different_partitions(kernel: Kernel, bad: bool) -> int:
    one, two, dst = kernel.loaded((128, 16)), kernel.loaded((128, 16)), kernel.sbuf((64, 16))
    halves = at(one, Run(64, 64), Run(0, 16)), at(two, Run(64 * (not bad), 64), Run(0, 16))
    return kernel.op("tensor_tensor", at(dst), halves, op="add")


@case("dtype")
def float32_with_bfloat16_in_a_product(kernel: Kernel, bad: bool) -> int:
    s, m = kernel.loaded((64, 32), "float16" if not bad else "float32"), kernel.loaded((64, 16), "bfloat16")
    return kernel.op("matmul", at(kernel.psum((32, 16))), [at(s), at(m)], accumulate="no")


@case("dtype")
def product_of_integers(kernel: Kernel, bad: bool) -> int:
    kind = "int8" if bad else "float8_e5m2"
    s, m = kernel.loaded((64, 32), kind), kernel.loaded((64, 16), kind)
    return kernel.op("matmul", at(kernel.psum((32, 16))), [at(s), at(m)], accumulate="no")


@case("dtype")
def narrow_result_of_a_product(kernel: Kernel, bad: bool) -> int:
    s, m = kernel.loaded((64, 32), "bfloat16"), kernel.loaded((64, 16), "bfloat16")
    dst = kernel.psum((32, 16), "bfloat16" if bad else "float32")
    return kernel.op("matmul", at(dst), [at(s), at(m)], accumulate="no")


@case("dtype")
def bit_operation_on_floats(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((32, 16), "float32" if bad else "int32")
    dst = kernel.sbuf((32, 16), "int32")
    return kernel.op("tensor_scalar", at(dst), [at(tile), 3], op0="bitwise_and")


@case("op_mix")
def bit_operation_after_arithmetic(kernel: Kernel, bad: bool) -> int:
    tile, dst = kernel.loaded((32, 16), "int32"), kernel.sbuf((32, 16), "int32")
    return kernel.op("tensor_scalar", at(dst), [at(tile), 3, 1], op0="add" if bad else "left_shift", op1="bitwise_and")


@case("operand_shape")
def operand_that_is_no_column(kernel: Kernel, bad: bool) -> int:
    tile, other = kernel.loaded((32, 16)), kernel.loaded((32, 1 + 15 * bad))
    return kernel.op("tensor_scalar", at(kernel.sbuf((32, 16))), [at(tile), at(other)], op0="add")


@case("operand_shape")
def tiles_of_different_width(kernel: Kernel, bad: bool) -> int:
    one, two = kernel.loaded((32, 16)), kernel.loaded((32, 16 - bad))
    return kernel.op("tensor_tensor", at(kernel.sbuf((32, 16))), [at(one), at(two)], op="add")


@case("operand_shape")
def transfer_between_different_shapes(kernel: Kernel, bad: bool) -> int:
    x, tile = kernel.input((32, 17)), kernel.sbuf((32, 17 - bad))
    return kernel.op("dma_copy", at(tile), at(x))


@case("operand_shape")
def fold_into_too_many_elements(kernel: Kernel, bad: bool) -> int:
    tile, dst, total = kernel.loaded((32, 16)), kernel.sbuf((32, 16)), kernel.sbuf((32, 1 + bad))
    return kernel.op("activation", [at(dst), at(total)], [at(tile), 0.0, 1.0], func="exp", reduce_op="add")


@case("operand_shape")
def transpose_without_exchange(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((32, 16))
    dst = kernel.psum((32, 16) if bad else (16, 32))
    return kernel.op("transpose", at(dst), at(tile))


@case("partition_mismatch")
def tiles_of_different_height(kernel: Kernel, bad: bool) -> int:
    one, two = kernel.loaded((64, 16)), kernel.loaded((64 - 32 * bad, 16))
    return kernel.op("tensor_tensor", at(kernel.sbuf((64, 16))), [at(one), at(two)], op="add")


@case("reduce_axis")
def reduction_of_the_partitions(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((32, 16))
    dst = kernel.sbuf((1, 16)) if bad else kernel.sbuf((32, 1))
    return kernel.op("tensor_reduce", at(dst), at(tile), op="add", axes=(0,) if bad else (1,))


@case("reduce_axis")
def reduction_of_a_middle_axis(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((32, 4, 5))
    dst = kernel.sbuf((32, 5 if bad else 4))
    return kernel.op("tensor_reduce", at(dst), at(tile), op="add", axes=(1,) if bad else (2,))


@case("engine")
def operation_the_engine_lacks(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((32, 16))
    engine = Engine.SCALAR if bad else Engine.VECTOR
    return kernel.op("tensor_reduce", at(kernel.sbuf((32, 1))), at(tile), op="add", axes=(1,), engine=engine)


@case("engine")
def power_on_the_vector_engine(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((32, 16))
    engine = Engine.VECTOR if bad else Engine.GPSIMD
    return kernel.op("tensor_tensor", at(kernel.sbuf((32, 16))), [at(tile), at(tile)], op="power", engine=engine)


@case("engine")
def scalar_engine_folding_with_max(kernel: Kernel, bad: bool) -> int:
    tile, dst, total = kernel.loaded((32, 16)), kernel.sbuf((32, 16)), kernel.sbuf((32, 1))
    op = "max" if bad else "add"
    return kernel.op("activation", [at(dst), at(total)], [at(tile), 0.0, 1.0], func="exp", reduce_op=op)


@case("chip")
def operation_of_a_later_chip(kernel: Kernel, bad: bool) -> int:
    kernel.api, kernel.chip = "nki_legacy", "trn1" if bad else "trn2"
    tile, dst = kernel.loaded((32, 16)), kernel.sbuf((32, 16))
    return kernel.op("range_select", at(dst), [at(tile), 0.0, 4.0], cmp0="less", cmp1="less")


@case("output_dependency")
def affine_iterations_overwriting_one_tile(kernel: Kernel, bad: bool) -> int:
    x, y = kernel.input((4, 32, 16)), kernel.output((4, 32, 16))
    tile = kernel.sbuf((32, 16)) if bad else None
    with kernel.loop(4) as i:
        tile = tile or kernel.sbuf((32, 16))
        line = kernel.op("dma_copy", at(tile), at(x, var(i), Run(0, 32), Run(0, 16)))
        kernel.op("dma_copy", at(y, var(i), Run(0, 32), Run(0, 16)), at(tile))
    return line


@case("output_dependency")
def affine_iterations_overlapping_by_one_row(kernel: Kernel, bad: bool) -> int:
    y, tile = kernel.output((64, 16)), kernel.loaded((17 if bad else 16, 16))
    with kernel.loop(3) as i:
        return kernel.op("dma_copy", at(y, Run(var(i, 16), 16 + bad), Run(0, 16)), at(tile))


@case("output_dependency")
def interleaved_columns_that_meet(kernel: Kernel, bad: bool) -> int:
    y, tile = kernel.output((16, 40)), kernel.loaded((16, 8))
    with kernel.loop(2) as i:
        return kernel.op("dma_copy", at(y, Run(0, 16), Run(var(i, 2 if bad else 1), 8, 2)), at(tile))


@case("local_scope")
def tensor_used_after_its_loop(kernel: Kernel, bad: bool) -> int:
    y = kernel.output((32, 16))
    outer = kernel.sbuf((32, 16))
    kernel.op("memset", at(outer), 0.0)
    with kernel.loop(1):
        inner = kernel.sbuf((32, 16))
        kernel.op("memset", at(inner), 0.0)
    return kernel.store(y, inner if bad else outer)


@case("local_scope")
def loop_reduce_over_a_loop_that_is_over(kernel: Kernel, bad: bool) -> int:
    tile, total = kernel.loaded((32, 16)), kernel.sbuf((32, 16))
    with kernel.loop(2) as first:
        kernel.op("loop_reduce", at(total), at(tile), op="add", loops=(first.id,))
    other = kernel.sbuf((32, 16))
    with kernel.loop(2) as second:
        loops = (first.id,) if bad else (second.id,)
        return kernel.op("loop_reduce", at(other), at(tile), op="add", loops=loops)


@case("undefined_read")
def tensor_read_before_anything_is_written(kernel: Kernel, bad: bool) -> int:
    tile, dst = kernel.sbuf((32, 16)), kernel.sbuf((32, 16))
    if not bad:
        kernel.op("memset", at(tile), 0.0)
    return kernel.op("copy", at(dst), at(tile))


@case("undefined_read")
def other_half_written(kernel: Kernel, bad: bool) -> int:
    tile, dst = kernel.sbuf((32, 16)), kernel.sbuf((32, 8))
    kernel.op("memset", at(tile, Run(0, 32), Run(8 * bad, 8)), 0.0)
    return kernel.op("copy", at(dst), at(tile, Run(0, 32), Run(0, 8)))


@case("undefined_read")
def accumulating_on_nothing(kernel: Kernel, bad: bool) -> int:
    s, m, dst = kernel.loaded((64, 32)), kernel.loaded((64, 16)), kernel.psum((32, 16))
    if not bad:
        kernel.op("memset", at(dst), 0.0, lazy=True)
    with kernel.loop(2):
        return kernel.op("matmul", at(dst), [at(s), at(m)], accumulate="yes")


@case("psum_accumulate")
def accumulating_on_a_fill(kernel: Kernel, bad: bool) -> int:
    kernel.api, kernel.chip = "nki", "trn2"
    s, m, dst = kernel.loaded((64, 32)), kernel.loaded((64, 16)), kernel.psum((32, 16))
    if bad:
        kernel.op("memset", at(dst), 0.0)
    else:
        kernel.op("matmul", at(dst), [at(s), at(m)], accumulate="no")
    return kernel.op("matmul", at(dst), [at(s), at(m)], accumulate="yes")


@case("input_written")
def argument_written(kernel: Kernel, bad: bool) -> int:
    x, tile = kernel.input((32, 16), written=not bad), kernel.loaded((32, 16))
    return kernel.store(x, tile)


@case("sbuf_capacity")
def operands_beyond_sbuf(kernel: Kernel, bad: bool) -> int:
    width = 16 * 1024 + bad
    one, two, three = (kernel.sbuf((128, width)) for _ in range(3))
    kernel.op("memset", at(one), 0.0)
    kernel.op("memset", at(two), 0.0)
    return kernel.op("tensor_tensor", at(three), [at(one), at(two)], op="add")


@case("sbuf_capacity")
def operand_and_result_on_other_partitions(kernel: Kernel, bad: bool) -> int:
    one, two = (kernel.sbuf((64 + 32 * bad, 32 * 1024)) for _ in range(2))
    kernel.op("memset", at(one), 0.0)
    return kernel.op("copy", at(two), [at(one)])


@case("sbuf_capacity")
def two_operands_on_the_same_partitions(kernel: Kernel, bad: bool) -> int:
    width = 24 * 1024 + bad
    one, two, three = (kernel.sbuf((64, width)) for _ in range(3))
    kernel.op("memset", at(one), 0.0)
    kernel.op("memset", at(two), 0.0)
    return kernel.op("tensor_tensor", at(three), [at(one), at(two)], op="add")


@case("sbuf_capacity")
def address_beyond_sbuf(kernel: Kernel, bad: bool) -> int:
    tensor = kernel.sbuf((32, 1024), address=(0, 192 * 1024 - 4096 + bad))
    kernel.op("memset", at(tensor), 0.0)
    return tensor.line


@case("psum_capacity")
def operand_beyond_psum(kernel: Kernel, bad: bool) -> int:
    return kernel.op("memset", at(kernel.psum((32, 4096 + bad))), 0.0)


@case("access_pattern")
def second_view_of_one_shape_of_no_neighbors(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((64, 32))
    kernel.op("bitcast", at(kernel.sbuf((64, 32), "bfloat16")), at(tile, Run(0, 64), Run(0, 16)), engine=Engine.SYNC)
    some = at(tile, Run(0, 64), Run(0, 16, 1 + bad))
    return kernel.op("bitcast", at(kernel.sbuf((64, 32), "bfloat16")), some, engine=Engine.SYNC)


@case("psum_bank")
def psum_address_across_two_banks(kernel: Kernel, bad: bool) -> int:
    tensor = kernel.psum((32, 128), address=(0, 2048 + 1536 + bad))
    kernel.op("memset", at(tensor), 0.0)
    return tensor.line


@case("psum_bank")
def psum_address_off_the_bank(kernel: Kernel, bad: bool) -> int:
    kernel.api, kernel.chip = "nki", "trn2"
    tensor = kernel.psum((32, 128), address=(0, 2048 + 512 * bad))
    kernel.op("memset", at(tensor), 0.0)
    return tensor.line


@case("block_dim", strict=True)
def block_dimension(kernel: Kernel, bad: bool) -> int:
    tensor = kernel.sbuf((2, 32, 16), axis=1) if bad else kernel.sbuf((32, 2, 16))
    kernel.op("memset", at(tensor), 0.0)
    return tensor.line


@case("access_pattern", strict=True)
def five_free_axes(kernel: Kernel, bad: bool) -> int:
    shape = (16, 3, 3, 3, 3, 3)
    part = (Run(0, 16), *([Run(0, 2)] * 4), Run(0, 1 + bad))
    tile = kernel.loaded(shape)
    return kernel.op("copy", at(kernel.sbuf(shape), *part), at(tile, *part))


@case("access_pattern", strict=True)
def six_free_axes_that_are_no_run_in_their_order(kernel: Kernel, bad: bool) -> int:
    tile, other = kernel.loaded((16, 64)), kernel.sbuf((16, 64))
    steps = (2, 4, 8, 16, 32, 1) if bad else (32, 16, 8, 4, 2, 1)
    walk = (TileDim(16, (1, 0)), *(TileDim(2, (0, step)) for step in steps))
    one, two = (Access(buffer.id, (Affine(), Affine()), walk) for buffer in (other, tile))
    return kernel.op("copy", one, two)


@case("tile_position")
def array_tile_off_its_grid(kernel: Kernel, bad: bool) -> int:
    s, m = kernel.loaded((32, 64)), kernel.loaded((32, 16))
    return kernel.op(
        "matmul", at(kernel.psum((64, 16))), [at(s), at(m)], accumulate="no",
        tile_position=(32 + 16 * bad, 0), tile_size=(32, 64),
    )  # fmt: skip


@case("free_size")
def too_many_elements_for_statistics(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((32, 512 + bad))
    return kernel.op("bn_stats", at(kernel.sbuf((32, 6))), at(tile))


@case("free_size")
def too_few_elements_for_max8(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((32, 8 - bad))
    return kernel.op("max8", at(kernel.sbuf((32, 8))), at(tile))


@case("shuffle_lanes")
def lane_outside_its_quadrant(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((32, 8))
    return kernel.op("shuffle", at(kernel.sbuf((32, 8))), at(tile), lanes=(*range(31), 31 + bad))


@case("partition_group")
def gather_in_an_incomplete_group(kernel: Kernel, bad: bool) -> int:
    count = 16 - bad
    tile, index = kernel.loaded((count, 8)), kernel.loaded((count, 1), "uint16")
    return kernel.op("local_gather", at(kernel.sbuf((count, 16))), [at(tile), at(index)])


@case("mask")
def mask_over_operands_of_two_shapes(kernel: Kernel, bad: bool) -> int:
    tile, dst = kernel.loaded((16, 4, 6)), kernel.sbuf((16, 24) if bad else (16, 4, 6))
    coefs = (-1, 0) if bad else (-1, 0, 0)
    return kernel.op("copy", at(dst), at(tile), mask=(Pattern(Affine(7), coefs),))


@case("malformed")
def unknown_attribute_value(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((16, 4))
    return kernel.op("activation", at(kernel.sbuf((16, 4))), [at(tile), 0.0, 1.0], func="explode" if bad else "exp")


@case("malformed")
def mask_of_too_many_axes(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((16, 4))
    mask = (Pattern(Affine(0), (0, 0, 0) if bad else (0, 0)),)
    return kernel.op("copy", at(kernel.sbuf((16, 4))), at(tile), mask=mask)


@case("malformed")
def number_where_a_tile_belongs(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((16, 4))
    return kernel.op("reciprocal", at(kernel.sbuf((16, 4))), 2.0 if bad else at(tile))


@case("malformed")
def tile_without_axes(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((16, 20))
    point = Access(tile.id, (Affine(0), Affine(0)), ())
    return kernel.op("max8", at(kernel.sbuf((16, 8))), point if bad else at(tile))


@case("malformed")
def register_that_does_not_exist(kernel: Kernel, bad: bool) -> int:
    kernel.builder.register()
    return kernel.op("register_move", (), 3, register=int(bad))


@case("malformed")
def missing_attribute(kernel: Kernel, bad: bool) -> int:
    tile = kernel.loaded((16, 4))
    attrs: dict[str, Any] = {} if bad else {"op": "add"}
    return kernel.op("tensor_tensor", at(kernel.sbuf((16, 4))), [at(tile), at(tile)], **attrs)


ONE_API = {
    "accumulating_on_nothing": "a lazy fill starts a group in neuronxcc only",
    "address_beyond_sbuf": "a larger SBUF",
    "operands_beyond_sbuf": "a larger SBUF",
    "two_operands_on_the_same_partitions": "a larger SBUF",
    "block_dimension": "refused without strict",
    "scalar_engine_folding_with_max": "a newer scalar engine",
    "tiles_on_different_partitions": "a rule of neuronxcc",
    "psum_address_across_two_banks": "a stricter rule",
}
"""Cases that are not the same for nki on trn2, and why."""


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize(("api", "chip"), [("nki_legacy", "trn1"), ("nki", "trn2")])
def test_the_rule_is_found_at_its_line_and_only_where_it_is_broken(name: str, api: str, chip: str) -> None:
    rule, build, how = CASES[name]
    if api == "nki" and name in ONE_API:
        return
    for bad in (True, False):
        kernel = Kernel(api, chip)
        line = build(kernel, bad)
        program = kernel.finish()
        written = {dst.buffer for instruction, _ in program.walk() for dst in instruction.dsts}
        assert set(program.outputs) <= written
        found = verify(program, rulebook(kernel.api, kernel.chip, **how))
        if bad:
            assert (rule, line) in [(one.rule, one.line) for one in found], [(f.rule, f.line, f.message) for f in found]
            assert all(one.message for one in found)
        else:
            assert [(one.rule, one.message) for one in found] == []


def test_every_rule_the_rule_book_knows_has_a_pair() -> None:
    assert len({rule for rule, _, _ in CASES.values()}) >= 28
    assert len(CASES) >= 50


def test_interleaved_writes_of_affine_iterations_are_distinguished_from_overlapping_ones() -> None:
    kernel = Kernel()
    y, tile = kernel.output((16, 4, 8)), kernel.loaded((16, 8))
    with kernel.loop(2) as i, kernel.loop(2) as j:
        kernel.op("dma_copy", at(y, Run(0, 16), var(i, 2) + var(j), Run(0, 8)), at(tile))
    assert verify(kernel.finish()) == ()


def test_accumulating_in_an_affine_loop_is_no_output_dependency() -> None:
    kernel = Kernel()
    x, total, peak = kernel.input((4, 32, 16)), kernel.sbuf((32, 16)), kernel.sbuf((32, 16))
    kernel.op("memset", at(total), 0.0)
    with kernel.loop(4) as i:
        tile = kernel.sbuf((32, 16))
        kernel.op("dma_copy", at(tile), at(x, var(i), Run(0, 32), Run(0, 16)))
        kernel.op("tensor_tensor", at(total), [at(total), at(tile)], op="add")
        kernel.op("loop_reduce", at(peak), at(tile), op="max", loops=(i.id,))
    assert verify(kernel.finish()) == ()


def test_sequential_iterations_may_overwrite_and_read_what_the_one_before_wrote() -> None:
    kernel = Kernel()
    x, held, out = kernel.input((4, 32, 16)), kernel.sbuf((32, 16)), kernel.output((4, 32, 16))
    with kernel.loop(4, LoopKind.SEQUENTIAL) as i:
        kernel.op("dma_copy", at(held), at(x, var(i), Run(0, 32), Run(0, 16)))
        kernel.op("dma_copy", at(out, var(i), Run(0, 32), Run(0, 16)), at(held))
    assert verify(kernel.finish()) == ()


def test_an_output_nobody_writes_is_refused() -> None:
    kernel = Kernel()
    kernel.output((4, 4))
    assert [one.rule for one in verify(kernel.finish())] == ["undefined_output"]


def test_a_value_of_the_iteration_before_is_no_value_in_a_buffer_of_the_loop() -> None:
    kernel = Kernel()
    with kernel.loop(3, LoopKind.SEQUENTIAL):
        tile, other = kernel.sbuf((4, 4)), kernel.sbuf((4, 4))
        line = kernel.op("copy", at(other), at(tile))
        kernel.op("memset", at(tile), 0.0)
    assert [(one.rule, one.line) for one in verify(kernel.finish())] == [("undefined_read", line)]


def test_run_time_indices_are_left_to_the_run_but_their_tables_are_checked() -> None:
    kernel = Kernel()
    x, numbers, tile = kernel.input((10, 6)), kernel.loaded((4, 1), "int32"), kernel.sbuf((4, 6))
    fine = at(x, Run(0, 4, 0), Run(0, 6), indirect=(Indirect(0, index=at(numbers)),))
    kernel.op("dma_copy", at(tile), fine)
    assert verify(kernel.finish()) == ()
    wide = at(numbers, Run(0, 5), Run(0, 1))
    line = kernel.op("dma_copy", at(tile), replace(fine, indirect=(Indirect(0, index=wide),)))
    assert ("out_of_bounds", line) in [(one.rule, one.line) for one in verify(kernel.finish())]


def test_chips_have_their_own_limits() -> None:
    assert rulebook("nki", "trn3").chip.moving_columns > rulebook("nki", "trn2").chip.moving_columns
    assert rulebook("nki_legacy", "trn1").block_dimensions
    assert not rulebook("nki", "trn2").block_dimensions


def test_a_mismatch_of_api_and_chip_names_both() -> None:
    with pytest.raises(UsageError, match=r"nki_legacy does not support chip trn3"):
        rulebook("nki_legacy", "trn3")
    with pytest.raises(UsageError, match="there are no rules for API"):
        rulebook("nkl", "trn1")
    with pytest.raises(UsageError, match="there are no rules for chip"):
        rulebook("nki", "trn9")
    kernel = Kernel("nki_legacy", "trn3")
    assert [one.rule for one in verify(kernel.finish())] == ["api"]


def test_loops_nested_too_deep_are_refused_before_anything_else_looks_at_them() -> None:
    body: tuple[Loop, ...] = ()
    for number in range(5000):
        body = (Loop(number, "", 1, LoopKind.AFFINE, body),)
    program = replace(Kernel().finish(), body=body)
    assert [one.rule for one in verify(program)] == ["malformed"]


def test_a_check_that_fails_itself_refuses_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, *arguments: object) -> None:
        raise IndexError("tuple index out of range")

    kernel = Kernel()
    kernel.op("memset", at(kernel.sbuf((4, 4))), 0.0)
    monkeypatch.setattr("acceld.nki.verify.operands.Operands.check", broken)
    assert [(one.rule, one.line) for one in verify(kernel.finish())] == [("unverifiable", kernel.line)]


def test_findings_stop_at_a_number_and_at_a_deadline() -> None:
    kernel = Kernel()
    tile = kernel.sbuf((4, 4))
    for _ in range(200):
        kernel.op("copy", at(kernel.sbuf((4, 4))), at(tile))
    assert len(verify(kernel.finish())) == 50
    assert [one.rule for one in verify(kernel.finish(), deadline_s=-1.0)] == ["verify_deadline"]


def test_the_time_that_other_processes_take_does_not_count_against_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hours = itertools.count(step=3600)
    monkeypatch.setattr("time.monotonic", lambda: float(next(hours)))
    kernel = Kernel()
    kernel.op("memset", at(kernel.sbuf((4, 4))), 0.0)
    assert "verify_deadline" not in [one.rule for one in verify(kernel.finish())]


def test_an_instruction_as_malformed_as_one_before_it_on_its_line_is_not_looked_at_further() -> None:
    kernel = Kernel("nki", "trn3")
    tile = kernel.loaded((4, 8))
    point = replace(at(tile), dims=())
    for _ in range(2):
        broken = Instruction("activate2", Engine.SCALAR, (at(tile),), (point, 0.0, at(tile)), (("func", "exp"),))
        kernel.builder.emit(broken)
    assert [finding.rule for finding in verify(kernel.finish())] == ["malformed"]


@pytest.mark.parametrize(
    ("before", "after", "legal"),
    [(False, False, True), (True, False, True), (False, True, False), (True, True, False)],
)
def test_a_tile_is_not_written_to_between_a_view_of_another_width_and_its_use(
    before: bool, after: bool, legal: bool
) -> None:
    kernel = Kernel()
    tile, view = kernel.loaded((4, 8)), kernel.sbuf((4, 16), "uint16")
    if before:
        kernel.op("memset", at(tile), 0.0)
    kernel.op("bitcast", at(view), at(tile), engine=Engine.SYNC)
    if after:
        kernel.op("memset", at(tile), 0.0)
    kernel.store(kernel.output((4, 16), "uint16"), view)
    assert ("view_written" not in {finding.rule for finding in verify(kernel.finish())}) == legal


@pytest.mark.parametrize(
    ("steps", "legal"),
    [
        ("take write give store", True),
        ("write give store", True),
        ("take write store", False),
        ("take write other give store", False),
        ("write give give_other store", False),
        ("take_other write give store", False),
        ("write give tile store", False),
        ("write give tile take store", True),
        ("write give tile", True),
        ("looped give store", False),
        ("take_wide write_wide give store", False),
        ("take_wide write_wide give_wide give store", True),
        ("take alike give store", False),
    ],
)
def test_what_is_written_through_a_view_is_given_back_to_its_tile_at_once(steps: str, legal: bool) -> None:
    kernel = Kernel()
    tile, other, view = kernel.loaded((4, 8)), kernel.loaded((4, 8)), kernel.sbuf((4, 16), "uint16")
    wide = kernel.sbuf((4, 8), "uint32")
    out = kernel.output((4, 16), "uint16")

    def cast(into: Buffer, of: Buffer, back: bool = False) -> None:
        kernel.op("bitcast", at(into), at(of), engine=Engine.SYNC, back=back)

    def take_wide() -> None:
        cast(view, tile)
        cast(wide, view)

    def alike() -> None:
        cast(wide, tile)
        kernel.op("copy", at(view), at(wide))

    def looped() -> None:
        with kernel.loop(2):
            kernel.op("memset", at(view), 0)

    acts: dict[str, Callable[[], object]] = {
        "take": lambda: cast(view, tile),
        "take_other": lambda: cast(view, other),
        "write": lambda: kernel.op("memset", at(view), 0),
        "give": lambda: cast(tile, view, True),
        "give_other": lambda: cast(other, view, True),
        "tile": lambda: kernel.op("memset", at(tile), 0.0),
        "other": lambda: kernel.op("memset", at(other), 0.0),
        "store": lambda: kernel.store(out, view),
        "looped": looped,
        "take_wide": take_wide,
        "write_wide": lambda: kernel.op("memset", at(wide), 0.0),
        "give_wide": lambda: cast(view, wide, True),
        "alike": alike,
    }
    for step in steps.split():
        acts[step]()
    assert ("view_written" not in {finding.rule for finding in verify(kernel.finish())}) == legal


def test_a_view_of_one_part_does_not_hinder_writes_to_another_nor_a_view_taken_in_each_iteration() -> None:
    kernel = Kernel()
    tile, out = kernel.sbuf((4, 8)), kernel.output((4, 8), "uint16")
    with kernel.loop(2):
        kernel.op("memset", at(tile), 0.0)
        view = kernel.sbuf((4, 8), "uint16")
        kernel.op("bitcast", at(view), at(tile, Run(0, 4), Run(0, 4)), engine=Engine.SYNC)
        kernel.op("memset", at(tile, Run(0, 4), Run(4, 4)), 1.0)
        kernel.store(out, view)
    assert "view_written" not in {finding.rule for finding in verify(kernel.finish())}
