"""Define the constants of ``nki.isa``, and the configuration objects of ``nki.compiler``."""

from __future__ import annotations

from dataclasses import dataclass
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


class AddressRotation(Enum):
    """Permission for the compiler to move tensors to other addresses."""

    AUTO = 0
    ENABLE = 1
    DISABLE = 2


@dataclass(frozen=True, slots=True)
class CompileConfig:
    """Options of the compiler for a kernel (NKI 0.7). They change no value and no predicted latency."""

    address_rotation: AddressRotation = AddressRotation.AUTO
    non_ssa_legalization: bool = False
    dead_code_elim: bool = False
    barrier_check: bool = False
    prefetch_auto: bool = False
    nki_alloc_fallback: bool = True


@dataclass(frozen=True, slots=True)
class SpecializationConfig:
    """Options of the tracer for a kernel (NKI 0.7)."""

    allow_nested_config_override: bool = False


for _one in (AddressRotation, CompileConfig, SpecializationConfig):
    _one.__module__ = "nki.compiler"
COMPILER: dict[str, object] = {one.__name__: one for one in (AddressRotation, CompileConfig, SpecializationConfig)}
"""Names of ``nki.compiler``."""
