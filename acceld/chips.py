"""Describe chips as data: clocks, widths, memories and rates of one NeuronCore, with units and sources.

Figures are from the vendor's documents unless a field names another source. Rates called ``practical`` are
those that transfers reach on the chip. Rates called ``wire`` are those that the links could carry at most. The
peaks that percentages refer to are in :mod:`acceld.roofline`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from acceld.errors import UsageError, nearest_of

API_CHIPS: Mapping[str, tuple[str, ...]] = MappingProxyType({"nki_legacy": ("trn1", "trn2"), "nki": ("trn2", "trn3")})
"""Chips for which AWS supports each API of NKI. The first chip of each API is its default."""
REPORTED_CHIPS: Mapping[str, tuple[str, ...]] = MappingProxyType({"nki": ("trn1",)})
"""Chips on which kernels of an API ran although AWS does not support the API there. No default is ever one of these chips.

foxl-ai/kiln ran some thirty kernels of nki 0.6.0 on trn1 (SDK 2.32, October 2026).
"""
CURRENT_API = "nki"
"""The API for new kernels. The API ``nki_legacy`` ends with the compilers that support it."""
NKI_VERSIONS = ("0.3", "0.4", "0.5", "0.6", "0.7")
"""Versions of the package ``nki`` whose rules are known, oldest first."""
NKI_DEFAULT = "0.6"
"""The version whose rules count where no package ``nki`` is installed, because most public kernels are written for it.
"""
TRACER_SINCE = "0.7"
"""The version from which Python itself runs a kernel's functions. Earlier versions parse the functions, as a subset of
Python (announcement of 16 October 2026).
"""

STATIONARY_COLUMNS = 128
"""Most elements in the free dimension of a matrix product's stationary operand (NKI's ISA reference, nc_matmul)."""
TENSOR_TRANSPOSE, VECTOR_TRANSPOSE = 128, 32
"""Edge, in elements, of the largest tile that the engine transposes (NKI's ISA reference, nc_transpose)."""
BN_STATS_ELEMENTS = 512
"""Most elements in the free dimension that bn_stats takes (NKI's ISA reference)."""
MAX8_ELEMENTS = (8, 16384)
"""Least and greatest number of elements in the free dimension that max8 and similar instructions take (NKI's ISA
reference).
"""
FREE_AXES = 4
"""Most axes of an engine's access pattern in addition to the partition axis (architecture guides)."""
LEGACY_RESERVED_SBUF_BYTES = 16 * 1024
"""Bytes at the end of each partition that the legacy compiler keeps for itself (direct allocation guide)."""


@dataclass(frozen=True, slots=True)
class ChipSpec:
    """Figures of one NeuronCore of a chip. Clocks are in GHz: cycles divided by the clock and by 1000 are
    microseconds.
    """

    name: str
    generation: int
    """2 is NeuronCore-v2 (trn1), 3 is v3 (trn2), 4 is v4 (trn3)."""
    cores_per_chip: int
    hbm_capacity_bytes: int
    """One core's share of the chip's HBM."""
    tensor_ghz: float
    vector_ghz: float
    scalar_ghz: float
    gpsimd_ghz: float
    base_ghz: float
    partitions: int
    product_row_bytes: int
    """Bytes of PSUM per partition that one matrix product may write.

    That is a PSUM bank. From NeuronCore-v4 on it is the whole PSUM, which holds 4096 float32 or 8192 bfloat16 columns
    (NKI's ISA reference, nc_matmul).
    """
    sbuf_bytes_per_partition: int
    psum_banks: int
    psum_bank_bytes: int
    """Bytes of a PSUM bank per partition. trn3 has the same banks, because its guide states the PSUM capacity of
    NeuronCore-v3.
    """
    dma_engines: int
    """Number of DMA engines of one core."""
    dma_practical_bytes_per_us: float
    """Bytes per microsecond of one DMA engine for long rows."""
    dma_wire_bytes_per_us: float
    """Bytes per microsecond of one DMA engine within one descriptor."""
    dma_descriptor_us: float
    """Microseconds that one DMA engine takes for each descriptor, in addition to the time for the descriptor's bytes.
    """
    dma_long_row_bytes_per_us: float
    """Bytes per microsecond of one DMA engine for the longest rows, at which the engine saturates."""
    tensor_ramp_us: float
    """Microseconds for which the tensor engine must be busy before it runs at its full rate; 0 if it does not throttle.
    """
    hbm_bytes_per_us: float
    """One core's share of HBM bandwidth as the profiler counts it, bytes per microsecond."""
    matmul_tflops: Mapping[str, float]
    """TFLOP/s of dense matrix products by dtype."""
    shared_vector_gpsimd_port: bool
    """True if the vector engine and GpSimd can not use SBUF at the same time."""
    fast_16bit_vector: bool
    """True if the vector engine runs 16-bit copies and tensor-scalars four times as fast, tensor-tensors twice as fast.
    """
    sources: tuple[str, ...]

    @property
    def dma_bytes_per_us(self) -> float:
        """Return the bytes that all DMA engines of the core together transfer in a microsecond, in practice."""
        return self.dma_engines * self.dma_practical_bytes_per_us

    @property
    def sbuf_bytes(self) -> int:
        """Return the size in bytes of the core's SBUF, over all partitions."""
        return self.partitions * self.sbuf_bytes_per_partition

    @property
    def moving_columns(self) -> int:
        """Return the most float32 elements in the free dimension of a matrix product's moving operand."""
        return self.product_row_bytes // 4

    @property
    def psum_bytes_per_partition(self) -> int:
        """Return the bytes of all PSUM banks of one partition."""
        return self.psum_banks * self.psum_bank_bytes


_ARCH = "AWS Neuron documentation: Trainium/Inferentia2, Trainium2 and Trainium3 architecture guides for NKI"
_DMA = "AWS Neuron documentation: DMA bandwidth guide (practical 17, 23 and 33 B/ns per engine)"
_SCHEMA = "AWS Neuron documentation: profile schema (base clock); peak_flops_bandwidth_ratio of profiles (HBM share)"


def _tflops(**rates: float) -> Mapping[str, float]:
    return MappingProxyType(rates)


CHIPS: Mapping[str, ChipSpec] = MappingProxyType(
    {
        "trn1": ChipSpec(
            name="trn1",
            generation=2,
            cores_per_chip=2,
            hbm_capacity_bytes=16 * 2**30,
            tensor_ghz=2.8,
            vector_ghz=1.12,
            scalar_ghz=1.4,
            gpsimd_ghz=1.4,
            base_ghz=1.4,
            partitions=128,
            product_row_bytes=2048,
            sbuf_bytes_per_partition=192 * 1024,
            psum_banks=8,
            psum_bank_bytes=2048,
            dma_engines=16,
            dma_practical_bytes_per_us=17_000.0,
            dma_wire_bytes_per_us=27_200.0,
            dma_descriptor_us=0.016,
            dma_long_row_bytes_per_us=17_000.0,
            tensor_ramp_us=0.0,
            hbm_bytes_per_us=410_000.0,
            matmul_tflops=_tflops(float32=22.9, tfloat32=91.75, bfloat16=91.75, float16=91.75),
            shared_vector_gpsimd_port=True,
            fast_16bit_vector=False,
            sources=(_ARCH, _DMA, _SCHEMA),
        ),
        "trn2": ChipSpec(
            name="trn2",
            generation=3,
            cores_per_chip=8,
            hbm_capacity_bytes=12 * 2**30,
            tensor_ghz=2.4,
            vector_ghz=0.96,
            scalar_ghz=1.2,
            gpsimd_ghz=1.2,
            base_ghz=1.2,
            partitions=128,
            product_row_bytes=2048,
            sbuf_bytes_per_partition=224 * 1024,
            psum_banks=8,
            psum_bank_bytes=2048,
            dma_engines=16,
            dma_practical_bytes_per_us=23_000.0,
            dma_wire_bytes_per_us=26_900.0,
            dma_descriptor_us=0.0087,
            dma_long_row_bytes_per_us=25_900.0,
            tensor_ramp_us=3.0,
            hbm_bytes_per_us=716_000.0,
            matmul_tflops=_tflops(float32=19.7, tfloat32=78.6, bfloat16=78.6, float16=78.6, float8_e4m3=157.0),
            shared_vector_gpsimd_port=False,
            fast_16bit_vector=True,
            sources=(_ARCH, _DMA, _SCHEMA),
        ),
        "trn3": ChipSpec(
            name="trn3",
            generation=4,
            cores_per_chip=8,
            hbm_capacity_bytes=18 * 2**30,
            tensor_ghz=2.4,
            vector_ghz=1.2,
            scalar_ghz=1.2,
            gpsimd_ghz=1.2,
            base_ghz=1.2,
            partitions=128,
            product_row_bytes=16 * 1024,
            sbuf_bytes_per_partition=256 * 1024,
            psum_banks=8,
            psum_bank_bytes=2048,
            dma_engines=16,
            dma_practical_bytes_per_us=33_000.0,
            dma_wire_bytes_per_us=38_400.0,
            dma_descriptor_us=0.0087,
            dma_long_row_bytes_per_us=34_100.0,
            tensor_ramp_us=3.0,
            hbm_bytes_per_us=1_200_000.0,
            matmul_tflops=_tflops(float32=19.7, tfloat32=78.6, bfloat16=78.6, float16=78.6, float8_e4m3=315.0),
            shared_vector_gpsimd_port=False,
            fast_16bit_vector=True,
            sources=(_ARCH, _DMA),
        ),
    }
)
"""Every chip the simulator knows."""

_GUIDE = "documented: DMA bandwidth guide"
_AS_TRN2 = "assumed: as on trn2, no figure is published"
DMA_SOURCES: Mapping[str, Mapping[str, str]] = {
    "trn1": {
        "dma_practical_bytes_per_us": _GUIDE,
        "dma_wire_bytes_per_us": "documented: architecture guide, 435 GB/s for 16 engines",
        "dma_descriptor_us": "derived: Autocomp's first gemm moves rows of 256 and 1024 B in 80.1 ns, two starts of 16 and 1280 B at 27.2 B/ns",
        "dma_long_row_bytes_per_us": _GUIDE + ", the practical rate",
    },
    "trn2": {
        "dma_practical_bytes_per_us": _GUIDE,
        "dma_wire_bytes_per_us": "fitted: rows of KDA's adamw that are multiples of 64 B and not of 512 B",
        "dma_descriptor_us": "fitted: the same rows",
        "dma_long_row_bytes_per_us": "derived: KDA's silu and adamw, 25.6 to 26.1 B/ns an engine while active",
    },
    "trn3": {
        "dma_practical_bytes_per_us": _GUIDE,
        "dma_wire_bytes_per_us": "documented: architecture guide, 614 GB/s for 16 engines",
        "dma_descriptor_us": _AS_TRN2,
        "dma_long_row_bytes_per_us": "assumed: trn2's share of the wire rate",
    },
}
"""The source of each DMA rate by chip: documented, derived from published figures, fitted, or assumed."""


def chips_of(api: str) -> tuple[str, ...]:
    """Return the chips that kernels of ``api`` run on: first those that AWS supports, then those that others reported."""
    return API_CHIPS[api] + REPORTED_CHIPS.get(api, ())


def chip_spec(name: str) -> ChipSpec:
    """Return the figures of the chip called ``name``. Raise UsageError for an unknown name."""
    spec = CHIPS.get(name)
    if spec is None:
        raise UsageError(f"no chip is called {name!r}", hint=nearest_of(name, CHIPS))
    return spec
