"""Model the compiler of ``nki``, which runs instructions as the kernel writes them.

The compiler's only choice is the engine of an instruction that names no engine.
"""

from __future__ import annotations

from acceld.nki.ir.program import Engine, Instruction
from acceld.nki.timing.compiler_legacy import DEFAULT_ENGINES, is_slow
from acceld.nki.timing.cost import DMA_OPS, FREE_OPS, REGISTER_OPS, CostModel


def place(instruction: Instruction, model: CostModel) -> Engine:
    """Return the engine that runs ``instruction``: the engine that the instruction names, else the documented default.

    Copies run on the vector engine by default, which handles 16-bit data up to four times faster.
    """
    op = instruction.op
    if op in DMA_OPS:
        return Engine.DMA
    if op in FREE_OPS or op in REGISTER_OPS:
        return Engine.SYNC
    if instruction.engine is not Engine.UNKNOWN:
        return instruction.engine
    return Engine.GPSIMD if is_slow(instruction) else DEFAULT_ENGINES.get(op, Engine.VECTOR)
