"""Define the arguments of a trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype (a name of :data:`acceld.nki.ir.operations.DTYPE_BYTES`) of a tensor argument."""

    shape: tuple[int, ...]
    dtype: str


Argument = TensorSpec | int | float | bool | str | tuple[int, ...] | None
"""A kernel's argument: a tensor by shape and dtype, or a value known while tracing."""
