"""Define the records of a workload. All are frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

BASELINE_FILES: Mapping[str, str] = {
    "nki_legacy": "kernel_legacy.py",
    "nki": "kernel.py",
    "triton": "kernel_triton.py",
    "c": "kernel.c",
    "numpy": "kernel_numpy.py",
}
"""Usual file name of a baseline by API."""

DTYPE_BYTES: Mapping[str, int] = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}
"""Bytes per element of every dtype an argument or output may have."""

DISTRIBUTIONS: Mapping[str, str] = {
    "own": "as the workload declares",
    "scaled_up": "times 30",
    "scaled_down": "times 1e-3",
    "shifted": "plus 3",
    "integers": "small whole numbers, whose sums and products are exact",
    "row_scaled": "each row times its own power of two, 2^-6 to 2^6",
    "sparse": "nine of ten elements zero",
    "special": "a few signed zeros, smallest normal and large values, where the reference stays finite",
}
"""Input distributions a candidate is checked on, with their meaning."""


class Precision(StrEnum):
    """The arithmetic that a candidate may use if the workload's type is float32."""

    FP32_STRICT = "fp32_strict"
    """Every product and sum in float32."""
    SPLIT_OK = "split_ok"
    """An operand may be split into narrower parts that together carry float32 accuracy."""
    ANY_WITHIN_TOLERANCE = "any_within_tolerance"
    """Anything that passes the tolerance on every distribution."""


PRECISIONS: Mapping[Precision, str] = {
    Precision.FP32_STRICT: "every product and sum of float32 values stays in float32",
    Precision.SPLIT_OK: "a product of float32 values may be made of bfloat16 parts that together carry float32 accuracy",
    Precision.ANY_WITHIN_TOLERANCE: "any arithmetic that passes the tolerance on every distribution",
}
"""Arithmetic that each precision allows, in words."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of an array in the kernel's layout."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes that the array takes."""
        count = DTYPE_BYTES[self.dtype]
        for extent in self.shape:
            count *= extent
        return count


Arguments: TypeAlias = tuple[ArraySpec | float | int | bool, ...]
"""A kernel's arguments in their order: arrays and numbers."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The random distribution of an array's elements.

    ``normal`` has mean and std; ``uniform`` and ``integers`` have low and high. ``values`` gives each of ``values`` equally
    often, as the 0 and -1e9 of an additive mask. Two kinds are for indices.
    ``permutation`` gives distinct whole numbers below high. ``indptr`` gives 0, then the ends of parts that together
    have high elements. Each part has at least low elements, and at least as many as the same part of the argument
    ``over``.
    """

    kind: str = "normal"
    mean: float = 0.0
    std: float = 1.0
    low: float = 0.0
    high: float = 1.0
    absolute: bool = False
    """True if elements are never negative. Derived distributions keep that."""
    fixed: bool = False
    """True if derived distributions leave the array unchanged (an index, a mask)."""
    over: str = ""
    """For ``indptr``: the name of an earlier argument of the same kind."""
    values: tuple[float, ...] = ()
    """For ``values``: the numbers that are drawn. A number that is listed twice is drawn twice as often."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the kernel: an array, or a scalar with a ``value``."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    distribution: Distribution | None = None
    value: float | int | bool | None = None
    kernel_shape: tuple[int, ...] = ()
    """Shape in the kernel's layout, with the same elements in the same order as ``shape``."""
    axes: tuple[str, ...] = ()
    """Each extent of ``shape`` in the file's notation: a symbol, an expression or a number."""
    whole: bool = False
    """True if every block of rows of the outputs needs the whole argument."""

    def __post_init__(self) -> None:
        if (self.value is None) == (self.distribution is None):
            raise ValueError(f"argument {self.name} must be either an array or a scalar")

    @property
    def is_scalar(self) -> bool:
        """Tell whether the argument is a number and not an array."""
        return self.value is not None


@dataclass(frozen=True, slots=True)
class Output:
    """One result: its shape in the reference, and the shape in which the kernel returns it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kernel_shape: tuple[int, ...]
    axes: tuple[str, ...] = ()
    """Each extent of ``shape`` in the file's notation."""


@dataclass(frozen=True, slots=True)
class DeclaredWork:
    """The operator's work, whichever kernel does it: floating-point operations and the bytes that must be moved."""

    vector_flops: int
    matmul_flops: int
    hbm_bytes: int
    counted: bool = False
    """True if the operations were counted in the reference. Another algorithm may do with fewer operations."""


@dataclass(frozen=True, slots=True)
class DistributionState:
    """The state of a distribution: candidates are checked on it, or they are not, for the given ``reason``."""

    declared: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Metamorphic:
    """A relation between the outputs of two runs that every correct kernel keeps; see :mod:`acceld.workloads.checks`."""

    kind: str
    arguments: tuple[str, ...]
    axis: int = 0
    output_axis: int = 0
    power: int = 1


@dataclass(frozen=True, slots=True)
class Anchor:
    """A published or measured latency that is shown beside results. It is never mixed with simulated latencies."""

    what: str
    latency_us: float
    chip: str
    sdk: str
    citation: str
    api: str = ""


@dataclass(frozen=True, slots=True)
class Variant:
    """Another correct kernel of the workload, for comparisons. A variant is no baseline, and no search begins from it."""

    name: str
    api: str
    path: Path
    description: str


@dataclass(frozen=True, slots=True)
class WeightedShape:
    """Another shape that a kernel must support: values of the symbols, and a weight."""

    values: Mapping[str, int]
    weight: float = 1.0

    @property
    def text(self) -> str:
        """Return the values that this shape gives to the symbols, as text such as ``M=128, N=512``."""
        return shape_text(self.values)


def shape_text(values: Mapping[str, int]) -> str:
    """Return the values of symbols as text such as ``M=128, N=512``."""
    return ", ".join(f"{name}={extent}" for name, extent in values.items())


@dataclass(frozen=True, slots=True)
class Definition:
    """A public definition of flashinfer-bench that the workload is an instance of: the names of its axes, and which
    are free.
    """

    name: str
    op_type: str
    axes: Mapping[str, int]
    """Every axis with its extent in this workload."""
    free: frozenset[str]
    """Axes whose extent differs from workload to workload."""
    shapes: Mapping[str, tuple[str, ...]]
    """Axes of each array argument and output, by its name."""


@dataclass(frozen=True, slots=True)
class Workload:
    """An operator with fixed shapes and everything needed to evaluate a kernel for it."""

    name: str
    family: str
    description: str
    folder: Path
    arguments: tuple[Argument, ...]
    outputs: tuple[Output, ...]
    values: Mapping[str, int]
    work: DeclaredWork | None
    tolerance: float
    """Greatest relative L2 distance of an output from the reference, as published for the workload."""
    precision: Precision
    distributions: Mapping[str, DistributionState]
    baselines: Mapping[str, Path]
    variants: tuple[Variant, ...]
    anchors: tuple[Anchor, ...]
    tags: frozenset[str]
    metamorphic: tuple[Metamorphic, ...]
    reference: Path | None
    """File of the numpy reference; None if the baseline's own float64 execution takes its place."""
    hash: str
    """sha256 over workload.toml and the reference."""
    entry: str | None = None
    grid: tuple[int, ...] = ()
    lnc: int = 1
    chips: tuple[str, ...] = ()
    """Chips that the workload's kernels are for; empty means any chip of their API."""
    mutates: tuple[str, ...] = ()
    sample: Path | None = None
    """An .npz file with the arrays by argument name, used in place of drawn arrays."""
    reshaped: bool = False
    """True if the workload was loaded with other values of the symbols. Inputs are then drawn, in the declared layout.
    """
    hidden: tuple[Mapping[str, int], ...] = ()
    """Other values of the symbols: shapes on which a kernel must be correct, too, without being timed."""
    shapes: tuple[WeightedShape, ...] = ()
    """Other shapes that a kernel must support. A kernel is checked and timed on all shapes; its latency is their
    weighted geometric mean.
    """
    weight: float = 1.0
    """Weight of the workload's own shape in the mean over all shapes; only used with ``shapes``."""
    nan: bool = False
    """True if outputs must be NaN exactly where the reference's are, for inputs with NaN."""
    definition: Definition | None = None
    """The workload's definition in flashinfer-bench; None if there is none."""
    drawn: bool = False
    """True if inputs may be drawn from the arguments' distributions. ``get_inputs`` then only gives the published
    inputs.
    """
    rows: tuple[str, ...] = ()
    """Axes of every output along which the reference may be computed block by block."""

    @property
    def dtype(self) -> str:
        """Return the dtype of the first array argument."""
        return next((a.dtype for a in self.arguments if not a.is_scalar), self.outputs[0].dtype)

    @property
    def kernel_facts(self) -> tuple[tuple[int, ...] | int | None, ...]:
        """Return the shape of each array argument in the kernel's layout, and the value of each whole number; None for
        other scalars.
        """
        return tuple(one.value if isinstance(one.value, int) else one.kernel_shape or None for one in self.arguments)

    @property
    def kernel_dtypes(self) -> tuple[str, ...]:
        """Return the dtypes of the arguments; "" for a scalar."""
        return tuple(one.dtype if one.value is None else "" for one in self.arguments)

    @property
    def mutated(self) -> tuple[int, ...]:
        """Return the positions of the arguments that the kernel may change, counted among the arrays."""
        arrays = [argument.name for argument in self.arguments if not argument.is_scalar]
        return tuple(arrays.index(name) for name in self.mutates)

    def argument(self, name: str) -> Argument:
        """Return the argument called ``name``. Raise KeyError if there is no such argument."""
        for argument in self.arguments:
            if argument.name == name:
                return argument
        raise KeyError(name)

    def kernel_arguments(self) -> Arguments:
        """Return the arguments of the kernel: arrays in the kernel's layout, and scalars."""
        return tuple(a.value if a.value is not None else ArraySpec(a.kernel_shape, a.dtype) for a in self.arguments)
