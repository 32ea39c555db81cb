"""Define the constants of ``nki.isa``."""

from __future__ import annotations

from enum import Enum


class ReduceCommand(Enum):
    """Command for an instruction's reduction registers."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class OobMode(Enum):
    """Handling by a DMA of an index outside the tensor."""

    error = 0
    skip = 1


class DgeMode(Enum):
    """The builder of DMA descriptors."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class MatmulPerfMode(Enum):
    """Modes of the tensor engine."""

    none = 0
    double_row = 1
