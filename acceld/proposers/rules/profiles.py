"""Compute the figures of a profile by which rules rank the places they find: busy engines, spills, reloads."""

from __future__ import annotations

from collections.abc import Collection

from acceld.model import Profile


def busy_share(profile: Profile | None, engine: str) -> float:
    """Return the busy time of an engine as a share of the latency (0 to 1); 0 without a profile."""
    if profile is None or not profile.latency_us:
        return 0.0
    return sum(us for name, us in profile.engines_us.items() if engine in name.lower()) / profile.latency_us


def path_share(profile: Profile | None, line: int) -> float:
    """Return the share of the latency (0 to 1) that a source line spends on the vector engine along the critical path;
    0 without a simulated profile.
    """
    steps = profile.details.get("critical_path", ()) if profile is not None else ()
    whole = sum(step["us"] for step in steps)
    own = sum(step["us"] for step in steps if step["line"] == line and step["engine"] == "vector")
    return own / whole if whole else 0.0


def line_share(profile: Profile | None, lines: Collection[int], engine: str) -> float:
    """Return the share of the latency (0 to 1) in which source lines keep an engine busy, as far as they are among the
    profile's hot spots; 0 without a simulated profile.
    """
    if profile is None or not profile.latency_us:
        return 0.0
    spots = profile.details.get("hot_spots", ())
    busy_us = sum(one["busy_us"] for one in spots if one["engine"] == engine and one["line"] in lines)
    return min(1.0, float(busy_us) / profile.latency_us)


def awaited_share(profile: Profile | None, lines: Collection[int], engine: str = "") -> float:
    """Return the share of the latency (0 to 1) in which the busiest engine waits for what source lines do on ``engine``,
    or on any engine if ``engine`` is empty; 0 without a simulated profile.
    """
    found = profile.details.get("binding") if profile is not None else None
    if not found or profile is None or not profile.latency_us:
        return 0.0
    waits = (one for one in found["waits"] if one["for_line"] in lines and engine in ("", one["for_engine"]))
    return float(sum(one["us"] for one in waits)) / profile.latency_us


def idle_share(profile: Profile) -> float:
    """Return the share of the latency (0 to 1) in which the busiest engine is idle. Better overlap of the engines can
    not save more than this.
    """
    return max(0.0, 1.0 - max((busy_share(profile, name.lower()) for name in profile.engines_us), default=0.0))


def hidden_share(profile: Profile, first: Collection[int], rest: Collection[int]) -> float | None:
    """Return the share of the latency that may be saved if software pipelining runs the lines ``first`` one iteration
    ahead of the lines ``rest``.

    Pipelining saves two kinds of waits of the busiest engine. Lines of ``rest`` no longer wait for ``first``. While a
    line of ``rest`` waits for another line of ``rest``, the engine can work on ``first``. Return None if the profile
    does not say for which lines the engine waits.
    """
    found = profile.details.get("binding")
    if not found or not profile.latency_us:
        return None
    waits = [one for one in found["waits"] if one["line"] in rest]
    ready = sum(one["us"] for one in waits if one["for_line"] in first)
    within = sum(one["us"] for one in waits if one["for_line"] in rest)
    spots = profile.details.get("hot_spots", ())
    work = sum(one["busy_us"] for one in spots if one["engine"] == found["engine"] and one["line"] in first)
    return float(ready + min(within, work)) / profile.latency_us


def spilled(profile: Profile | None) -> bool:
    """Return True if values were moved to HBM and back because SBUF was full; False without a profile."""
    return profile is not None and profile.counters.get("spill_save_bytes", 0) > 0


def reloads(profile: Profile | None) -> bool:
    """Return True if a kernel reads more bytes from HBM than its loads ask for, because values did not stay on the
    chip.
    """
    if profile is None:
        return False
    read, written = (profile.counters.get(name, 0) for name in ("hbm_read_bytes", "written_read_bytes"))
    return spilled(profile) or read > 1.5 * written > 0


def start_share(profile: Profile | None, lines: Collection[int], engine: str) -> float:
    """Return, as a share of the latency, how long ``lines`` keep an engine busy before the busiest engine starts; 0
    without a simulated profile.
    """
    found = profile.details.get("binding") if profile is not None else None
    if not found or profile is None or not profile.latency_us:
        return 0.0
    own = (one["us"] for one in found["start"] if one["engine"] == engine and one["line"] in lines)
    return float(sum(own)) / profile.latency_us
