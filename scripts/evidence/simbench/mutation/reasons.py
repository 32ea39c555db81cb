"""List why certain mutants are harmless, although they pass every trial with outputs that differ from the
kernel's.

A reason counts only if the errors agree: in no trial may an error of the mutant exceed 1.5 times the error of
the kernel itself in float32, or the larger multiple that the reason states.
"""

from __future__ import annotations

from collections.abc import Mapping

from scripts.evidence.simbench.mutation.results import Fate

NO_WORSE = 1.5
"""Largest error of a mutant that counts as no worse, as a multiple of the kernel's own error."""

_SHIFT = "softmax is the same whatever is subtracted from a whole row of logits"
_BEYOND = "columns beyond the edge are computed and never stored"
_NARROW = "the output is bfloat16, and the workload lets what leads to it be rounded to bfloat16 too"
_DECAY = "the decay is 1e-5 of a parameter: rounding it to 8 bits is less than half of the result's last bit"
REASONS: Mapping[tuple[str, str, str], str] = {
    ("adamw", "dtype_lowered", "declaration"): _DECAY,
    ("adamw", "dtype_lowered", "tensor_scalar"): _DECAY,
    ("bmm_softmax", "constant_changed", "tensor_scalar"): _SHIFT,
    ("bmm_softmax", "dtype_lowered", "declaration"): _SHIFT,
    ("gqa_full", "constant_changed", "tensor_scalar"): _SHIFT,
    ("rmsnorm_bf16", "dtype_lowered", "declaration"): _NARROW,
    ("rmsnorm_bf16", "dtype_lowered", "tensor_scalar"): _NARROW,
    ("rmsnorm_bf16", "dtype_lowered", "tensor_tensor"): _NARROW,
    ("transpose_matmul", "mask_edge", "matmul"): _BEYOND,
    ("transpose_matmul", "mask_removed", "matmul"): _BEYOND,
}
"""Reasons by workload, operator of the mutant, and operation at its line."""
_ALLOWED = {_NARROW: 2.5}
"""Larger multiples, for reasons about further roundings to the output's own dtype."""


def reason(workload: str, fate: Fate) -> str:
    """Return why a mutant is harmless, with its error. Empty if no reason is listed, or if the error is too
    large for it.
    """
    words = REASONS.get((workload, fate.operator, fate.operation))
    if words is None or fate.noise > _ALLOWED.get(words, NO_WORSE):
        return ""
    return f"{words} (errors at most {fate.noise:.2f} times the kernel's own)"
