"""The kernels that the tables are about: NKIBench's, out of a checkout, and acceld's own baselines."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from acceld.nki.frontend.tracing import Argument, TensorSpec, trace
from acceld.nki.ir.program import Program
from acceld.workloads import Workload, find_workloads
from acceld.workloads.discovery import workload

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "scripts" / "simbench" / "nkibench_trn1.csv"
BEST: Mapping[str, str] = {"mamba_optimized": "mamba", "rope_optimized": "rope_single_freq_apply"}
"""The best kernels that AccelOpt publishes, with the workload of each."""
NKIBENCH = tuple(
    "adamw add_rmsnorm_matmul bmm bmm_softmax gqa_full lora mamba matmul matmul_add_rmsnorm rmsnorm_matmul "
    "rope_single_freq_apply silu swiglu transpose_matmul".split()
)
CHIPS: Mapping[str, str] = {"nki_legacy": "trn1", "nki": "trn2"}
"""The chip that kernels of an API are tried for."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's text, and what it computes."""

    name: str
    source: str
    filename: str
    workload: Workload
    api: str = "nki_legacy"
    chip: str = ""
    """Empty: that of the API in :data:`CHIPS`."""

    @property
    def target(self) -> str:
        """The chip that it is traced for."""
        return self.chip or CHIPS[self.api]

    def program(self) -> Program:
        """The kernel traced at its workload's shapes. KernelFailure where it can not be."""
        return trace(
            self.source, self.arguments, filename=self.filename, api=self.api, chip=self.target,
            entry=self.workload.entry, grid=self.workload.grid,
        )  # fmt: skip

    def with_source(self, source: str) -> Kernel:
        """Another text for the same work."""
        return replace(self, source=source)

    @property
    def arguments(self) -> list[Argument]:
        """Return the arguments of the kernel."""
        return [
            a.value if a.value is not None else TensorSpec(a.kernel_shape or a.shape, a.dtype)
            for a in self.workload.arguments
        ]


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel, its program and what was measured of it."""

    name: str
    program: Program
    trace_s: float
    measured: Mapping[str, float]


def public(name: str, folder: Path) -> Kernel:
    """A baseline, or one of :data:`BEST`, of the AccelOpt checkout in ``folder``."""
    if name in BEST:
        path = folder / "samples" / "nki" / f"{name}.py"
    else:
        found = (folder / "NKIBench" / "kernels").glob(f"{name}_*.py")
        path = next(p for p in found if p.name[len(name) + 1].isupper())
    return Kernel(name, path.read_text(), path.name, workload(BEST.get(name, name)))


def own(name: str, api: str = "nki_legacy") -> Kernel:
    """acceld's baseline of a workload."""
    spec = workload(name)
    path = spec.baselines[api]
    return Kernel(name, path.read_text(), path.name, spec, api)


def own_kernels() -> Iterator[Kernel]:
    """Every NKI baseline and variant of acceld's workloads, those of NKIBench first."""
    names = [*NKIBENCH, *(name for name in find_workloads() if name not in NKIBENCH)]
    for spec in map(workload, names):
        for api in CHIPS:
            if api in spec.baselines:
                path = spec.baselines[api]
                yield Kernel(spec.name, path.read_text(), path.name, spec, api)
        for variant in spec.variants:
            if variant.api in CHIPS:
                yield Kernel(
                    f"{spec.name}:{variant.name}", variant.path.read_text(), variant.path.name, spec, variant.api
                )


def measured_figures(path: Path = MEASURED) -> dict[str, dict[str, float]]:
    """Measured figures by kernel."""
    with path.open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {row["kernel"]: {k: float(v) for k, v in row.items() if k != "kernel" and v} for row in rows}


def measured_case(name: str, folder: Path, measured: Mapping[str, Mapping[str, float]]) -> Case:
    """A public kernel, traced."""
    started = time.process_time()
    program = public(name, folder).program()
    return Case(name, program, time.process_time() - started, measured[name])
