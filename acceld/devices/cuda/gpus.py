"""List figures of GPUs from their datasheets, by acceld's names for the GPUs.

Rates are for dense matrices. If a GPU exists in several forms, the figures are of the SXM form. ``l2_bytes`` decides
how much is written to empty the cache. Percentages of peak use these figures. None of the figures is measured.
docs/gpu.md has the same figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from acceld.roofline import Peaks


@dataclass(frozen=True, slots=True)
class Gpu:
    """Datasheet figures of one kind of GPU. A ``capability`` of 90 is compute capability 9.0."""

    name: str
    words: tuple[str, ...]
    """Lower-case words that identify the GPU in the name that the driver reports for it."""
    capability: int
    multiprocessors: int
    l2_bytes: int
    shared_bytes: int
    """Greatest number of bytes of shared memory that one program (thread block) may use."""
    hbm_bytes_per_s: float
    matmul_tflops: Mapping[str, float]
    vector_tflops: float
    """Float32 rate outside of tensor cores, in TFLOP/s."""
    source: str

    def peaks(self) -> Peaks:
        """Return the datasheet's rates."""
        rates = {dtype: tflops * 1e12 for dtype, tflops in self.matmul_tflops.items()}
        return Peaks(self.hbm_bytes_per_s, MappingProxyType(rates), self.vector_tflops * 1e12, self.source)


def _rates(half: float, eighth: float | None, single: float) -> Mapping[str, float]:
    """Return the tensor-core rates by dtype: float16 and bfloat16 (``half``), float8 (``eighth``), float32 by
    TF32 (``single``).

    ``eighth`` is None if the GPU has no float8.
    """
    rates = {"float16": half, "bfloat16": half, "float32": single}
    if eighth is not None:
        rates |= {"float8_e4m3fn": eighth, "float8_e5m2": eighth}
    return MappingProxyType(rates)


_KIB, _MIB = 1 << 10, 1 << 20

GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        gpu.name: gpu
        for gpu in (
            Gpu(
                "h100",
                ("h100",),
                90,
                132,
                50 * _MIB,
                227 * _KIB,
                3.35e12,
                _rates(989.4, 1978.9, 494.7),
                66.9,
                "NVIDIA H100 datasheet and Hopper architecture paper, SXM5 80 GB: 3.35 TB/s, 989.4 TFLOP/s dense",
            ),
            Gpu(
                "h200",
                ("h200",),
                90,
                132,
                50 * _MIB,
                227 * _KIB,
                4.8e12,
                _rates(989.4, 1978.9, 494.7),
                66.9,
                "NVIDIA H200 datasheet, SXM5 141 GB: 4.8 TB/s, tensor cores of H100",
            ),
            Gpu(
                "a100",
                ("a100",),
                80,
                108,
                40 * _MIB,
                163 * _KIB,
                2.039e12,
                _rates(312.0, None, 156.0),
                19.5,
                "NVIDIA A100 datasheet, SXM4 80 GB: 2,039 GB/s, 312 TFLOP/s dense",
            ),
            Gpu(
                "b200",
                ("b200",),
                100,
                148,
                126 * _MIB,
                227 * _KIB,
                8.0e12,
                _rates(2250.0, 4500.0, 1125.0),
                75.0,
                "NVIDIA DGX B200 and HGX B200 datasheets, an eighth of the system: 8 TB/s, 2.25 PFLOP/s dense",
            ),
            Gpu(
                "l40s",
                ("l40s",),
                89,
                142,
                96 * _MIB,
                99 * _KIB,
                864e9,
                _rates(362.05, 733.0, 183.0),
                91.6,
                "NVIDIA L40S datasheet: 864 GB/s, 362.05 TFLOP/s dense",
            ),
            Gpu(
                "l4",
                (" l4",),
                89,
                58,
                48 * _MIB,
                99 * _KIB,
                300e9,
                _rates(121.0, 242.5, 60.0),
                30.3,
                "NVIDIA L4 datasheet: 300 GB/s, 121 TFLOP/s dense",
            ),
        )
    }
)
"""Every GPU whose figures acceld has, by name. ``acceld.targets.GPUS`` has the same names."""


def gpu_called(name: str) -> Gpu | None:
    """Return the GPU that the driver calls ``name``, such as ``NVIDIA H100 80GB HBM3``; None if acceld has no figures
    of that GPU.
    """
    padded = f"{name.lower()} "
    for gpu in sorted(GPUS.values(), key=lambda one: -len(one.words[0])):
        if any(f"{word} " in padded.replace("-", " ") or f"{word}" in padded.split() for word in gpu.words):
            return gpu
    return None


def figures(chip: str) -> list[str]:
    """Return a GPU's sizes and rates as lines of text."""
    gpu = GPUS[chip]
    rates = ", ".join(f"{dtype} {rate:g}" for dtype, rate in gpu.matmul_tflops.items())
    return [
        f"{gpu.multiprocessors} multiprocessors, compute capability {gpu.capability / 10:.1f}",
        f"shared memory of one program: at most {gpu.shared_bytes // _KIB} KiB; L2 cache: {gpu.l2_bytes // _MIB} MiB",
        f"HBM: {gpu.hbm_bytes_per_s / 1e9:,.0f} GB/s",
        f"tensor cores: {rates} TFLOP/s; float32 outside of them: {gpu.vector_tflops:g} TFLOP/s",
    ]
