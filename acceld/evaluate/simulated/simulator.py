"""The simulator as a backend: verify, time and run a Program, and the timeline's record as a Profile.

All that handles a Program runs in the judge child (:mod:`acceld.evaluate.simulated.simulation`), never in the daemon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from acceld.model import Profile, Source
from acceld.nki.errors import LegalityError
from acceld.nki.execute.interpreter import ExecuteOptions, execute
from acceld.nki.ir.program import Program
from acceld.nki.timing.calibration import Calibration, calibrated
from acceld.nki.timing.timeline import MOST_EVENTS, timeline
from acceld.nki.verify import verifier as nki_verify
from acceld.nki.verify.limits import rulebook

COUNTERS = (
    "hbm_read_bytes hbm_write_bytes sbuf_read_bytes sbuf_write_bytes psum_read_bytes psum_write_bytes spill_save_bytes "
    "spill_reload_bytes hardware_flops transpose_flops sbuf_peak_bytes_per_partition psum_peak_banks pe_passes "
    "written_read_bytes written_write_bytes"
).split()
"""Figures of a timeline that become a profile's counters; those of :data:`DERIVED` are added."""
DERIVED = {"instruction_count": "instructions", "dma_rows": "dma_descriptors", "short_dma_rows": "dma_descriptors"}
"""Counters that are sums over a figure of the timeline, with that figure."""
SMALL_ROW_BYTES = 512
"""DMA rows below this cost as much as rows of it."""


def verify(program: Program, *, strict: bool) -> None:
    """Check every rule of the chip and API. KernelFailure, with the line, for the first one broken."""
    findings = nki_verify.verify(program, rulebook(program.api, program.chip, strict))
    if findings:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        first = findings[0]
        raise LegalityError(first.message + more, rule=first.rule, line=first.line, hint=first.hint)


def profile(program: Program, *, exact: bool = False, calibration: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the program's timeline as JSON-able data; :func:`profile_from` reads it. MissingRule for an unpriced
    operation.

    ``exact`` unrolls as many executions as the limits allow; otherwise figures are extrapolated from a sample.
    ``calibration`` is this machine's for the program's chip and API.
    """
    fitted = Calibration.from_plain(calibration) if calibration else None
    params = calibrated(fitted, program.chip, program.api)
    return timeline(program, params, max_events=MOST_EVENTS if exact else None).to_json()


def profile_from(raw: dict[str, Any]) -> Profile:
    """Return the Profile of what :func:`profile` wrote."""
    counters = {name: float(raw[name]) for name in COUNTERS}
    counters["instruction_count"] = float(sum(raw["instructions"].values()))
    rows = {int(size): float(count) for size, count in raw["dma_descriptors"].items()}
    counters["dma_rows"] = sum(rows.values())
    counters["short_dma_rows"] = sum(count for size, count in rows.items() if size < SMALL_ROW_BYTES)
    return Profile(
        source=Source.SIMULATED,
        chip=raw["chip"],
        api=raw["api"],
        latency_us=raw["latency_us"],
        method=raw["model"],
        interval_percent=raw["prediction"]["interval"],
        engines_us=raw["engines"],
        counters=counters,
        bound=raw["bound"],
        notes=tuple(raw["warnings"]),
        details=raw,
    )


def run(
    program: Program,
    inputs: Sequence[NDArray[Any]],
    *,
    shuffle: int | None,
    float64: bool,
    max_bytes: int,
    turns: Mapping[int, Sequence[int]] | None = None,
    chip_functions: bool = False,
) -> list[NDArray[Any]]:
    """Execute the program on arrays in the kernel's layout, all of it or what ``turns`` says. KernelFailure where it fails."""
    options = ExecuteOptions(
        float64=float64,
        shuffle_affine=shuffle,
        max_bytes=max_bytes,
        check_transposes=True,
        turns=turns or {},
        chip_functions=chip_functions,
    )
    return execute(program, inputs, options)
