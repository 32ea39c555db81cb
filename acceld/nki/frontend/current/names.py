"""Define the constants of ``nki.isa`` and the configuration objects of ``nki.compiler``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum


class ReduceCommand(Enum):
    """The commands to an engine's accumulators: ``nisa.reduce_cmd``."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class OobMode(Enum):
    """The ways in which a DMA treats an index outside of the tensor: ``nisa.oob_mode``."""

    error = 0
    skip = 1


class DgeMode(Enum):
    """The generators of DMA descriptors: ``nisa.dge_mode``."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class DmaEngine(IntEnum):
    """The engines that exchange tiles between cores: ``nisa.dma_engine``. The choice of engine changes no values."""

    dma = 1
    gpsimd_dma = 2


class MatmulPerfMode(Enum):
    """The performance modes of a matrix product: ``nisa.matmul_perf_mode``."""

    none = 0
    double_row = 1


class AddressRotation(Enum):
    """The settings by which a kernel allows or forbids the compiler to place tensors at other addresses."""

    AUTO = 0
    ENABLE = 1
    DISABLE = 2


@dataclass(frozen=True, slots=True)
class CompileConfig:
    """Options of the compiler for one kernel (NKI 0.7). They change no value and no predicted latency."""

    address_rotation: AddressRotation = AddressRotation.AUTO
    non_ssa_legalization: bool = False
    dead_code_elim: bool = False
    barrier_check: bool = False
    prefetch_auto: bool = False
    nki_alloc_fallback: bool = True


@dataclass(frozen=True, slots=True)
class SpecializationConfig:
    """Options of NKI's own tracer for one kernel (NKI 0.7). They have no effect here."""

    allow_nested_config_override: bool = False


for _one in (AddressRotation, CompileConfig, SpecializationConfig):
    _one.__module__ = "nki.compiler"
COMPILER: dict[str, object] = {one.__name__: one for one in (AddressRotation, CompileConfig, SpecializationConfig)}
"""Names of ``nki.compiler``, with their values."""
