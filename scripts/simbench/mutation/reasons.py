"""Why a mutant that passes every trial, though not with the kernel's own bits, does no harm."""

from __future__ import annotations

from acceld.nki.program import Program
from scripts.simbench.kernels import Kernel
from scripts.simbench.mutation.mutants import Mutant


def reason(kernel: Kernel, program: Program, mutant: Mutant) -> str:
    """The reason; empty where there is none."""
    return ""
