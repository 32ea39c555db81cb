"""The compiler of ``neuronxcc.nki``: it places unplaced instructions, merges repeats, and manages SBUF itself."""

from __future__ import annotations

from math import prod

from acceld.nki.ir.program import Access, Engine, Instruction, Loop, LoopKind, Space
from acceld.nki.timing.cost import DMA_OPS, FREE_OPS, MATMUL_COLUMNS, REGISTER_OPS, CostModel

DEFAULT_ENGINES: dict[str, Engine] = {
    "matmul": Engine.TENSOR,
    "matmul_mx": Engine.TENSOR,
    "broadcast_partition": Engine.TENSOR,
    "transpose": Engine.TENSOR,
    "activation": Engine.SCALAR,
    "activate2": Engine.SCALAR,
    "iota": Engine.GPSIMD,
    "affine_select": Engine.GPSIMD,
    "local_gather": Engine.GPSIMD,
    "gather": Engine.GPSIMD,
    "topk": Engine.GPSIMD,
    "partition_reduce": Engine.GPSIMD,
    "nonzero_with_count": Engine.GPSIMD,
    "sequence_bounds": Engine.GPSIMD,
    "quantize_mx": Engine.GPSIMD,
}
"""Engines of operations that only one engine is good for; all else is the vector engine's."""


def place(instruction: Instruction, model: CostModel) -> Engine:
    """The engine that runs ``instruction``.

    Copies go to the scalar engine, and so do unplaced tensor_scalars on more than a few elements (engine activity of
    the measured kernels); the rest of what is unplaced goes to the vector engine.
    """
    op = instruction.op
    if op in DMA_OPS:
        return Engine.DMA
    if op in FREE_OPS or op in REGISTER_OPS:
        return Engine.SYNC
    if instruction.engine is not Engine.UNKNOWN:
        return instruction.engine
    found = DEFAULT_ENGINES.get(op)
    if found is not None:
        return found
    if op == "copy":
        return Engine.SCALAR
    if op == "tensor_scalar" and _elements(instruction) > model.params.small_operand_elements:
        return Engine.SCALAR
    return Engine.VECTOR


def _elements(instruction: Instruction) -> int:
    return prod(instruction.dsts[0].shape[1:])


MERGED_OPS = frozenset({"tensor_tensor", "tensor_reduce", "copy", "reciprocal"})
"""Operations whose operands are all tiles, so one instruction can do what several iterations of a loop do."""


def merged_iterations(loop: Loop, model: CostModel) -> dict[int, int]:
    """Return how many iterations of ``loop`` one instruction does, by position in the body; 1 where it is left out.

    The compiler makes one instruction of an innermost affine loop of short element-wise instructions where all that
    an instruction touches fits a bank of PSUM (512 elements of a partition). Of a longer loop it merges a few iterations
    of an instruction with an operand in PSUM, or whose result is only added to what lies there.
    """
    few = model.params.merged_iterations
    nodes = [node for node in loop.body if isinstance(node, Instruction)]
    if (
        not few
        or loop.kind is not LoopKind.AFFINE
        or len(nodes) < len(loop.body)
        or not all(_mergeable(n, loop, model) for n in nodes)
    ):
        return {}
    counts = {at: loop.trips for at, node in enumerate(nodes) if _elements_of(node) * loop.trips <= MATMUL_COLUMNS}
    for at, node in enumerate(nodes):
        if at in counts or loop.trips % few or _elements_of(node) * few > MATMUL_COLUMNS:
            continue
        read = [i for i, other in enumerate(nodes) if any(a.buffer == node.dsts[0].buffer for a in _tiles(other))]
        if _in_psum(node, model) or (read and all(i in counts and _in_psum(nodes[i], model) for i in read)):
            counts[at] = few
    return counts


def _mergeable(node: Instruction, loop: Loop, model: CostModel) -> bool:
    """Tell whether ``node`` does the same to other elements of the same partitions in each iteration of ``loop``."""
    if node.op not in MERGED_OPS or node.mask or len(node.dsts) != 1 or node.engine is Engine.GPSIMD:
        return False
    for access in node.accesses:
        buffer = model.buffers[access.buffer]
        if access.indirect or any(term[0] == loop.id for term in access.start[buffer.partition_axis].terms):
            return False
    dst = node.dsts[0]
    private = loop.id in model.buffers[dst.buffer].scope
    return private or any(term[0] == loop.id for start in dst.start for term in start.terms)


def _tiles(node: Instruction) -> list[Access]:
    return [src for src in node.srcs if isinstance(src, Access)]


def _elements_of(node: Instruction) -> int:
    """Return the elements of a partition that ``node`` touches of its widest tile."""
    return max(prod(access.shape[1:]) for access in node.accesses)


def _in_psum(node: Instruction, model: CostModel) -> bool:
    return any(model.buffers[access.buffer].space is Space.PSUM for access in node.accesses)
