"""Check rules of the current API that hold only on trn1: what its tool chain is reported to refuse there, and not on
later chips.

AWS does not document ``nki`` for trn1. Each rule here is a refusal that foxl-ai/kiln reports of nki 0.6.0 and
neuronx-cc 2.27 (SDK 2.32), with the tracer's text or the compiler's error number.
"""

from __future__ import annotations

from collections.abc import Iterator

from acceld.nki.ir.program import Access, Engine, Instruction, Loop, Role, Space
from acceld.nki.verify.instructions import InstructionCheck

REPORTED = "reported for nki on trn1, SDK 2.32"
_GPSIMD_LACKS = frozenset({"tensor_tensor", "tensor_scalar", "scalar_tensor_tensor"})
_TAKES_RUN_TIME_ADDRESSES = frozenset({"dma_copy", "dma_compute", "dma_transpose", "collective", "bitcast", "print"})


class CurrentOnTrn1(InstructionCheck):
    """Check an instruction of the current API against the rules for trn1. For other APIs and chips, nothing is
    reported.
    """

    def check(self, instruction: Instruction, around: tuple[Loop, ...]) -> None:
        """Check the rules of the instruction's operation, and of the loops ``around`` it."""
        if self.rules.legacy or self.rules.chip.generation > 2:
            return
        for rule, message, hint in (*self._operation(instruction), *self._at_run_time(instruction, around)):
            self._add(rule, instruction, f"{message} ({REPORTED})", hint)

    def _operation(self, instruction: Instruction) -> Iterator[tuple[str, str, str]]:
        op, engine = instruction.op, instruction.engine
        tiles = [src for src in instruction.srcs if isinstance(src, Access)]
        if op == "copy" and engine is Engine.SCALAR:
            yield "engine", "the scalar engine of trn1 has no tensor_copy", "use nisa.activation with op=nl.copy"
        elif op in _GPSIMD_LACKS and engine is Engine.GPSIMD:
            yield "engine", f"{op} on GpSimd does not compile (NCC_IXCG965)", "use the vector engine"
        elif op == "activation" and instruction.attr("func") == "copy" and isinstance(instruction.srcs[1], Access):
            yield (
                "operand_type",
                "a copy takes a number as bias only (NCC_IBVF043)",
                "use op=nl.identity, or tensor_scalar",
            )
        elif op == "register_store" and self._space(instruction.dsts[0]) is not Space.HBM:
            yield "address_space", "a register can not be stored to SBUF (NCC_IXCG832)", "keep the number in a tile"
        elif op == "match_replace8" and len(instruction.dsts) > 1:
            yield (
                "operand_type",
                "match_replace8 with dst_idx does not compile (NCC_INLA001)",
                "use nisa.nc_find_index8",
            )
        elif op == "dma_transpose" and tiles and (tiles[0].indirect or self._space(tiles[0]) is not Space.HBM):
            yield "chip", "dma_transpose takes plain rows in HBM only", "use nisa.nc_transpose"
        elif op == "collective":
            yield from self._collective(instruction)
        elif op == "matmul" and instruction.attr("transpose") and self._dtype(instruction.dsts[0]) != "float32":
            yield "dtype", "the dst of a transposing product must be float32", "declare dst as float32"

    def _collective(self, instruction: Instruction) -> Iterator[tuple[str, str, str]]:
        for access in instruction.accesses:
            buffer = self.report.buffer(access)
            if buffer.space is not Space.HBM:
                yield (
                    "address_space",
                    "a collective moves tensors in HBM only (NCC_IBIR428)",
                    "copy the tile to HBM first",
                )
            elif buffer.role in (Role.INPUT, Role.OUTPUT):
                yield (
                    "address_space",
                    "a collective neither reads the kernel's arguments nor writes its results",
                    "copy by way of a tensor of nl.private_hbm",
                )

    def _at_run_time(self, instruction: Instruction, around: tuple[Loop, ...]) -> Iterator[tuple[str, str, str]]:
        loops = {loop.id for loop in around if loop.at_run_time}
        if len(loops) > 1:
            yield "loop", "a device loop may not be inside another", "unroll one of the loops: for ... in range(...)"
        if instruction.op in _TAKES_RUN_TIME_ADDRESSES:
            return
        if any(_moves(access, loops) for access in instruction.accesses):
            yield (
                "run_time_index",
                f"{instruction.op} takes no address that is known at run time only; a DMA does (NCC_IBIR829, NCC_IBIR040)",
                "copy the tile by nisa.dma_copy first, or unroll the loop",
            )
        if instruction.op == "matmul" and not loops <= set(self.report.buffer(instruction.dsts[0]).scope):
            yield (
                "loop",
                "a product in a device loop writes a PSUM tile that is declared outside of the loop (NCC_IBIR092)",
                "declare the tile in the loop's body",
            )


def _moves(access: Access, loops: set[int]) -> bool:
    """Tell whether the position of an access is known only at run time: a register gives it, or the variable of one of
    ``loops`` does.
    """
    if any(one.register is not None for one in access.indirect):
        return True
    return any(loop in loops for start in access.start for loop, _ in start.terms)


__all__ = ["REPORTED", "CurrentOnTrn1"]
