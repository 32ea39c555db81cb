"""What candidates are run on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One core, GPU or simulator slot."""

    backend: str
    index: int
    chip: str
    name: str
    timing_group: str = ""
    """Devices of one group must not be timed at the same time (shared HBM, say)."""
