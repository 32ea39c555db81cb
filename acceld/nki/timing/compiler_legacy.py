"""The compiler of ``neuronxcc.nki``: it places unplaced instructions, merges repeats, and manages SBUF itself."""

from __future__ import annotations

from math import prod

from acceld.nki.ir.program import Engine, Instruction
from acceld.nki.timing.cost import DMA_OPS, FREE_OPS, REGISTER_OPS, CostModel

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
