"""Load the baseline kernels of a workload."""

from __future__ import annotations

from acceld.errors import WorkloadError
from acceld.kernel_files import load_kernel
from acceld.model import Kernel
from acceld.workloads import Workload

TARGETS = {"nki_legacy": "trn1", "nki": "trn2"}
"""A chip for each API, for callers that need only a kernel's results and not its latency."""


def baseline_kernel(found: Workload, api: str) -> Kernel:
    """Return the workload's baseline kernel for an API, together with the files that this kernel imports.

    Raise WorkloadError if the workload has no baseline for the API.
    """
    path = found.baselines.get(api)
    if path is None:
        known = ", ".join(sorted(found.baselines)) or "none"
        raise WorkloadError(
            f"workload {found.name} has no baseline for API {api}; it has baselines for: {known}",
            hint="Choose one with --api.",
        )
    return load_kernel(path, api=api, entry=found.entry or "", grid=found.grid, lnc=found.lnc)


def oracle_kernel(found: Workload) -> tuple[Kernel, str]:
    """Return the baseline kernel whose outputs stand in for a missing numpy reference, and the chip to trace it for.

    Raise WorkloadError if the workload has neither a reference nor an NKI baseline.
    """
    for api, chip in TARGETS.items():
        if api in found.baselines:
            return baseline_kernel(found, api), chip
    raise WorkloadError(
        f"workload {found.name} has neither a reference nor an NKI baseline to stand in for a reference",
        hint=f"Write {found.folder / 'reference.py'} with a function forward.",
    )
