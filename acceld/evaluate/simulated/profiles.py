"""Convert the judge's record of a timeline to a Profile."""

from __future__ import annotations

from typing import Any

from acceld.model import Profile, Source

COUNTERS = (
    "hbm_read_bytes hbm_write_bytes sbuf_read_bytes sbuf_write_bytes psum_read_bytes psum_write_bytes spill_save_bytes "
    "spill_reload_bytes hardware_flops transpose_flops sbuf_peak_bytes_per_partition psum_peak_banks pe_passes "
    "written_read_bytes written_write_bytes"
).split()
"""Figures of a timeline that become counters of a profile, besides those in :data:`acceld.figures.DERIVED`."""
SMALL_ROW_BYTES = 512
"""Size in bytes of a DMA row below which an even smaller row takes no less time."""


def profile_from(raw: dict[str, Any], model: str) -> Profile:
    """Return the Profile made of a record of :func:`acceld.evaluate.simulated.simulator.profile`.

    ``model`` identifies the performance model with its calibration.
    """
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
        model=model,
        interval_percent=raw["prediction"]["interval"],
        engines_us=raw["engines"],
        counters=counters,
        bound=raw["bound"],
        notes=tuple(raw["warnings"]),
        details=raw,
    )
