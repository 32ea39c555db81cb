"""Compute figures of a profile by which rules rank their findings: busy engines, spills, reloads."""

from __future__ import annotations

from acceld.model import Profile


def busy_share(profile: Profile | None, engine: str) -> float:
    """Return the busy time of an engine as a share of the latency (0 to 1); 0 without a profile."""
    if profile is None or not profile.latency_us:
        return 0.0
    return sum(us for name, us in profile.engines_us.items() if engine in name.lower()) / profile.latency_us


def idle_share(profile: Profile) -> float:
    """Return the share of the latency in which the busiest engine is idle. More overlap of engines can save no more
    than that.
    """
    return max(0.0, 1.0 - max((busy_share(profile, name.lower()) for name in profile.engines_us), default=0.0))


def spilled(profile: Profile | None) -> bool:
    """Return True if values were moved to HBM and back because SBUF was full; False without a profile."""
    return profile is not None and profile.counters.get("spill_save_bytes", 0) > 0


def reloads(profile: Profile | None) -> bool:
    """Return True if more bytes are read from HBM than the kernel's loads ask for, because values did not stay on chip."""
    if profile is None:
        return False
    read, written = (profile.counters.get(name, 0) for name in ("hbm_read_bytes", "written_read_bytes"))
    return spilled(profile) or read > 1.5 * written > 0
