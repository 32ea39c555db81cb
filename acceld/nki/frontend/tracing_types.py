"""Define the arguments that a kernel is traced with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument: its shape, and the name of its dtype (a key of
    :data:`acceld.nki.ir.operations.DTYPE_BYTES`).
    """

    shape: tuple[int, ...]
    dtype: str


Argument = TensorSpec | int | float | bool | str | tuple[int, ...] | None
"""A kernel's argument: a TensorSpec for a tensor, else the value itself."""
