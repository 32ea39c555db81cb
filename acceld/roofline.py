"""Compute least times of a workload from its declared work, for one NeuronCore. There are three:

- **roofline**: the model of the AccelOpt paper, max(bytes / HBM peak, matmul FLOPs / matmul peak, vector FLOPs / vector
  peak), with the paper's peaks. Percentages of it compare with published figures.
- **attainable**: the same formula with rates that kernels have reached: the practical DMA rate of the core's sixteen
  engines, the matmul peak for the workload's dtype (float32 takes four passes), and one operation a lane and cycle on
  the vector and the scalar engine together. A kernel that splits float32 products into narrower ones may be faster.
- **floor**: the least time that physics allows. A kernel that is faster than the floor is suspect. The floor counts
  compulsory bytes at the wire rate of the DMA engines, multiplications in the fastest mode that the tolerance allows,
  and element-wise work on all engines at once, where each instruction does as many operations on an element as the ISA
  reference documents.

A time is None if the workload declares no work, or if the chip lacks a figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from acceld.chips import CHIPS, ChipSpec
from acceld.device import HOST

SPLIT_PASSES = 3
"""bfloat16 passes of a product whose operands are split in two so that the result keeps float32 accuracy."""

NARROW_TOLERANCE = 1e-3
"""Least relative tolerance that a matrix product of operands rounded to bfloat16 (about 2e-3 relative) could pass."""


EIGHT_BIT_TOLERANCE = 2e-2
"""Least relative tolerance that a matrix product of operands rounded to 8-bit floats (about 4e-2 relative) could pass.
"""


class Work(Protocol):
    """Work that a workload declares: floating-point operations, and the least number of bytes that must move.
    ``counted`` operations are those of the reference: another algorithm may need fewer.
    """

    @property
    def vector_flops(self) -> int: ...
    @property
    def matmul_flops(self) -> int: ...
    @property
    def hbm_bytes(self) -> int: ...
    @property
    def counted(self) -> bool: ...


class Assessed(Protocol):
    """Inputs of a least time, from a workload: its work, dtype, tolerance and precision policy (``precision``)."""

    @property
    def work(self) -> Work | None: ...
    @property
    def dtype(self) -> str: ...
    @property
    def precision(self) -> str: ...
    @property
    def tolerance(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Peaks:
    """Rates of one core in bytes or floating-point operations per second, and where they are from."""

    hbm_bytes_per_s: float
    matmul_flops_per_s: Mapping[str, float]
    """Rates of matrix products, by dtype of the operands."""
    vector_flops_per_s: float
    source: str


def _peaks(hbm: float, vector: float, source: str, **matmul: float) -> Peaks:
    return Peaks(hbm, MappingProxyType(matmul), vector, source)


PAPER_PEAKS: Mapping[str, Peaks] = {
    "trn1": _peaks(
        410 * 2**30,
        2 * 128 * 1.12e9,
        "AccelOpt, calculate_percentage_of_peak.py: 410 GiB/s, 23.75 TFLOP/s float32, 2 x 128 lanes x 1.12 GHz",
        float32=23.75e12,
        bfloat16=95e12,
        float16=95e12,
    ),
    "trn2": _peaks(
        640.0e9,
        550.0e9,
        "AccelOpt paper: 640 GB/s, 19.75 TFLOP/s float32, 550 GFLOP/s vector",
        float32=19.75e12,
        bfloat16=79e12,
        float16=79e12,
    ),
}
"""The paper's peaks. The rates of matrix products of narrow types are four times the rate of float32, as on the tensor
engine.
"""


def peak_source(chip: str) -> str:
    """Return where a chip's peak is from. Percentages of peaks from two sources can not be compared."""
    if chip in PAPER_PEAKS:
        return "the paper's peak"
    return "the peak measured here" if chip == HOST else "the datasheet's peak"


FLOAT32_PASSES = 4
"""Passes of a float32 matrix product through the tensor engine's array of 128 x 128."""


REACHED_BYTES_PER_S: Mapping[str, float] = {"trn1": 302e9}
"""Greatest published rate of one core, used if the rate of long rows is less.

AccelOpt's best silu moves 2 x 4096 x 7168 float32 in 0.798 ms; about 20 us of that are spent before and after the
transfers.
"""


def _attainable(chip: ChipSpec) -> Peaks:
    dense = 2 * chip.partitions * 128 * chip.tensor_ghz * 1e9
    long_rows = 1e6 * chip.dma_engines * chip.dma_long_row_bytes_per_us
    rows_of_eight_bits = round(chip.matmul_tflops.get("float8_e4m3", 0.0) / chip.matmul_tflops["bfloat16"])
    return _peaks(
        max(long_rows, REACHED_BYTES_PER_S.get(chip.name, 0.0)),
        chip.partitions * (chip.vector_ghz + chip.scalar_ghz) * 1e9,
        "; ".join(chip.sources),
        float32=dense / FLOAT32_PASSES,
        bfloat16=dense,
        float16=dense,
        **({"float8_e4m3": dense * rows_of_eight_bits} if rows_of_eight_bits else {}),
    )


ATTAINABLE_PEAKS: Mapping[str, Peaks] = {name: _attainable(chip) for name, chip in CHIPS.items()}
"""Rates kernels reach in practice: the DMA engines on their longest rows, or the rate of a published kernel if that is
more; the tensor engine's array at its clock.
"""

WIRE_BYTES_PER_S: Mapping[str, float] = {
    name: 1e6 * chip.dma_engines * chip.dma_wire_bytes_per_us for name, chip in CHIPS.items()
}
"""Theoretical rate of one core's DMA engines (AWS); no core can move data faster."""


def roofline_us(evaluated: Assessed, chip: str) -> float | None:
    """Return the paper's roofline time in microseconds; None if the work or a rate is not known."""
    return least_us(evaluated, PAPER_PEAKS.get(chip))


def percent_of_peak(evaluated: Assessed, latency_us: float, chip: str) -> float | None:
    """Return the paper's roofline time as a percentage of ``latency_us``; None if the work or a rate is not
    known.

    The percentage is 0-100 for a kernel that does the declared work as declared.
    """
    shortest_us = roofline_us(evaluated, chip)
    return None if shortest_us is None else 100 * shortest_us / latency_us


def attainable_us(evaluated: Assessed, chip: str) -> float | None:
    """Return the attainable time in microseconds; None if the work or a rate is not known."""
    return least_us(evaluated, ATTAINABLE_PEAKS.get(chip))


def percent_of_attainable(evaluated: Assessed, latency_us: float, chip: str) -> float | None:
    """Return the attainable time as a percentage of ``latency_us``; None if the work or a rate is not known."""
    shortest_us = attainable_us(evaluated, chip)
    return None if shortest_us is None else 100 * shortest_us / latency_us


@dataclass(frozen=True, slots=True)
class Floor:
    """Physical least time in microseconds of each kind of declared work, as if there were no other work."""

    transfers_us: float
    products_us: float
    elements_us: float
    counted: bool = False
    """True if the operations are those of the reference. A kernel with another algorithm may then take less time."""

    @property
    def least_us(self) -> float:
        """Return the physical least time of all the work in microseconds: the time of the kind of work that takes
        longest.
        """
        return max(self.transfers_us, self.products_us, self.elements_us)

    @property
    def certain_us(self) -> float:
        """Return the time in microseconds below which no kernel can be. If operations are counted, this is the time
        of the transfers alone.
        """
        return self.transfers_us if self.counted else self.least_us

    @property
    def of(self) -> str:
        """Return the kind of work that takes longest, as words."""
        shares = {"transfers": self.transfers_us, "products": self.products_us, "element-wise work": self.elements_us}
        return max(shares, key=lambda one: shares[one])


def floor_of(evaluated: Assessed, chip: str) -> Floor | None:
    """Return the physical least times of the declared work on a chip; None if the work or a rate is not known."""
    peaks, wire = ATTAINABLE_PEAKS.get(chip), WIRE_BYTES_PER_S.get(chip)
    if evaluated.work is None or peaks is None or wire is None:
        return None
    work, passes = evaluated.work, _fewest_passes(evaluated)
    fastest = _fastest_product(evaluated, peaks) / passes
    elementwise = _element_flops_per_s(CHIPS[chip], passes, narrow=evaluated.dtype != "float32")
    return Floor(
        1e6 * work.hbm_bytes / wire,
        1e6 * work.matmul_flops / fastest,
        1e6 * work.vector_flops / elementwise,
        work.counted,
    )


def floor_us(evaluated: Assessed, chip: str) -> float | None:
    """Return the physical least time in microseconds; None if the work or a rate is not known. A kernel that is
    faster is suspect even if its outputs are right.
    """
    floor = floor_of(evaluated, chip)
    return None if floor is None else floor.certain_us


SCALAR_OPERATIONS, VECTOR_OPERATIONS, TENSOR_OPERATIONS = 4, 3, 2
"""Operations on an element in one instruction (NKI's ISA reference). Scalar engine: scale, bias, function, sum
(``activation``). Vector engine and GpSimd: two operations and a sum (``tensor_scalar``, ``scalar_tensor_tensor``).
Tensor engine: a multiplication and an addition.
"""
NARROW_VECTOR_GAIN = 4
"""Greatest gain in the vector engine's rate on elements of two bytes."""


def _element_flops_per_s(chip: ChipSpec, passes: float, *, narrow: bool) -> float:
    """Return the most element-wise operations a second of one core: every engine is busy with one element a
    lane and cycle.

    On the second generation the vector engine and GpSimd can not work at the same time.
    """
    vector = chip.vector_ghz * (NARROW_VECTOR_GAIN if narrow else 1)
    beside = max(vector, chip.gpsimd_ghz) if chip.generation < 3 else vector + chip.gpsimd_ghz
    each = (
        SCALAR_OPERATIONS * chip.scalar_ghz + VECTOR_OPERATIONS * beside + TENSOR_OPERATIONS * chip.tensor_ghz / passes
    )
    return 1e9 * chip.partitions * each


def least_us(evaluated: Assessed, peaks: Peaks | None) -> float | None:
    """Return the least time in microseconds of the declared work at the rates ``peaks``; None if the work or a
    rate is not known.
    """
    work = evaluated.work
    if work is None or peaks is None:
        return None
    matmul = peaks.matmul_flops_per_s.get(evaluated.dtype)
    if matmul is None and work.matmul_flops:
        return None
    seconds = [work.hbm_bytes / peaks.hbm_bytes_per_s, work.vector_flops / peaks.vector_flops_per_s]
    if matmul is not None:
        seconds.append(work.matmul_flops / matmul)
    return 1e6 * max(seconds)


def _fastest_product(evaluated: Assessed, peaks: Peaks) -> float:
    """Return the matmul FLOPs per second for the narrowest operands that the workload has or its tolerance
    allows.
    """
    rates = peaks.matmul_flops_per_s
    eight_bits = evaluated.dtype.startswith("float8") or (
        evaluated.precision == "any_within_tolerance" and evaluated.tolerance >= EIGHT_BIT_TOLERANCE
    )
    return max(rate for dtype, rate in rates.items() if eight_bits or not dtype.startswith("float8"))


def _fewest_passes(evaluated: Assessed) -> float:
    """Return how many bfloat16 passes a matrix product needs at least to be as accurate as the workload demands."""
    if evaluated.dtype != "float32":
        return 1.0
    if evaluated.precision == "any_within_tolerance" and evaluated.tolerance >= NARROW_TOLERANCE:
        return 1.0
    return 4.0 if evaluated.precision == "fp32_strict" else float(SPLIT_PASSES)
