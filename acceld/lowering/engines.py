"""Divide the copies of a kernel between the vector engine and the scalar engine, which run at the same time.

The compiler of the legacy API chooses engines by itself. The compiler of the current API takes the vector engine, unless
a copy names another engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from acceld.chips import CHIPS
from acceld.lowering.choices import BYTES
from acceld.lowering.statements import Block, Call, Kernel, Loop, Piece, Statement, Strided, Tile, calls, rewritten

LEAST = 64
"""Least number of columns that an instruction counts with, because an instruction with fewer columns takes the same
time.
"""
VECTOR_START, SCALAR_START = 60, 190
"""Rough number of cycles that an instruction of each engine takes in addition to one cycle for each column."""
VECTOR_GHZ, SCALAR_GHZ = CHIPS["trn2"].vector_ghz, CHIPS["trn2"].scalar_ghz
BYTES_PER_NS = CHIPS["trn2"].dma_engines * CHIPS["trn2"].dma_long_row_bytes_per_us / 1000
"""Bytes that all DMA engines together move in a nanosecond."""
_ON_SCALAR = ("activation",)
_ELSEWHERE = ("nc_matmul", "nc_transpose", "iota", "affine_select", "memset")
_COPIED = ("float32", "bfloat16", "float16")


def balanced(kernel: Kernel) -> Kernel:
    """Return a kernel with some copies moved to the scalar engine, so that it and the vector engine have similar work.

    Each outermost loop is balanced separately, because the engines wait for each other between such loops.
    """
    moved = set().union(*(_moved([statement]) for statement in kernel.body if isinstance(statement, Loop)))

    def placed(call: Call) -> list[Statement]:
        return [replace(call, args=(*call.args, ("engine", "scalar"))) if id(call) in moved else call]

    return replace(kernel, body=tuple(rewritten(kernel.body, placed)))


def _moved(statements: Sequence[Statement]) -> set[int]:
    """Return the ids of the copies that are moved to the scalar engine.

    A copy takes longer on the scalar engine. So no copy is moved if transfers take longer than the vector engine's work.
    """
    vector = scalar = transfers = 0.0
    copies: list[tuple[Call, float, float]] = []
    multiplied = {
        value.tile
        for call, _ in calls(statements)
        for _, value in call.args
        if call.operation == "nc_matmul" and isinstance(value, Piece | Strided)
    }
    for call, trips in calls(statements):
        columns = max(LEAST, _columns(call))
        on_vector = trips * (columns + VECTOR_START) / VECTOR_GHZ
        on_scalar = trips * (columns + SCALAR_START) / SCALAR_GHZ
        if call.operation in _ON_SCALAR:
            scalar += on_scalar
        elif call.operation == "dma_copy":
            transfers += trips * _bytes(call) / BYTES_PER_NS
        elif call.operation not in _ELSEWHERE:
            vector += on_vector
            if _of_floats(call, multiplied) or _scales(call):
                copies.append((call, on_vector, on_scalar))
    moved: set[int] = set()
    # Copies that the tensor engine waits for are moved first.
    for call, on_vector, on_scalar in sorted(copies, key=lambda one: _scales(one[0])):
        if max(transfers, scalar + on_scalar) <= vector - on_vector:
            scalar, vector = scalar + on_scalar, vector - on_vector
            moved.add(id(call))
    return moved


def _columns(call: Call) -> int:
    """Return the number of elements that an instruction reads or writes in each partition, whichever is greater."""
    sizes = [1]
    for value in (call.dst, *(value for _, value in call.args)):
        if isinstance(value, Piece):
            sizes.append(math.prod(span.count for span in value.spans[1:] if span.count is not None))
        elif isinstance(value, Strided):
            sizes.append(math.prod(count for _, count in value.pattern))
    return max(sizes)


def _scales(call: Call) -> bool:
    """Return True if an instruction only multiplies values in PSUM by a number."""
    given = dict(call.args)
    data = given.get("data")
    plain = call.operation == "tensor_scalar" and set(given) == {"data", "op0", "operand0"}
    return (
        plain
        and given["op0"] == "multiply"
        and isinstance(data, Piece)
        and data.tile.space == "psum"
        and isinstance(given["operand0"], float)
    )


def _bytes(call: Call) -> int:
    """Return how many bytes a DMA transfer moves."""
    source = dict(call.args).get("src")
    block = call.dst if isinstance(call.dst, Block) else source
    return math.prod(n for _, n in block.pattern) * BYTES[block.tensor.dtype] if isinstance(block, Block) else 0


def _of_floats(call: Call, multiplied: set[Tile]) -> bool:
    """Tell whether an instruction copies floats to a tile that no matrix product reads.

    ``multiplied`` has the tiles that matrix products read. Only a copy of floats can move to the scalar engine
    without a change of the values.
    """
    source = dict(call.args).get("src")
    if call.operation != "tensor_copy" or isinstance(call.dst, Block) or not isinstance(source, Piece | Strided):
        return False
    plain = not (isinstance(source, Piece) and source.bits_as)
    return plain and call.dst.tile in multiplied and call.dst.tile.dtype in _COPIED and source.tile.dtype in _COPIED
