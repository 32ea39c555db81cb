"""Make latencies of different hosts comparable: each is expressed as a ratio to a kernel that was timed on the same
host.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from acceld.cluster.host import HostFacts
from acceld.model import Evaluation, Profile, Source

_DIGITS = 9
"""Digits that a converted latency keeps, so that equal ratios from hosts with different clocks stay equal."""


def in_run(
    evaluation: Evaluation,
    facts: HostFacts,
    known_us: Mapping[str, float],
    canary: Evaluation | None,
    baseline_us: float,
) -> Evaluation:
    """Return an evaluation with its measured latency converted to the run's microseconds, and with the host's facts.

    ``known_us`` has the latencies of kernels in the run, by the kernel's hash. If the kernel was timed interleaved
    with one of them, its latency is that kernel's latency in the run divided by the measured speed-up. Otherwise the
    latency is scaled by the baseline's latency in the run (``baseline_us``) divided by the baseline's latency on this
    host (``canary``).
    """
    profile = evaluation.profile
    if profile is None:
        return evaluation
    profile = replace(profile, host=facts.name, instance_type=facts.instance_type, driver=facts.driver)
    run_us = _run_us(profile, known_us, canary, baseline_us)
    if run_us is None or not profile.latency_us:
        return replace(evaluation, profile=profile)
    factor = run_us / profile.latency_us
    details = {**profile.details, "host_latency_us": profile.latency_us}
    if "shapes" in details:
        details["shapes"] = [{**one, "latency_us": one["latency_us"] * factor} for one in details["shapes"]]
    scaled = replace(
        profile,
        latency_us=run_us,
        resolution_us=profile.resolution_us * factor,
        samples_us=tuple(sample * factor for sample in profile.samples_us),
        details=details,
    )
    return replace(
        evaluation,
        profile=scaled,
        percent_of_peak=None if evaluation.percent_of_peak is None else evaluation.percent_of_peak / factor,
        percent_of_attainable=(
            None if evaluation.percent_of_attainable is None else evaluation.percent_of_attainable / factor
        ),
    )


def _run_us(
    profile: Profile, known_us: Mapping[str, float], canary: Evaluation | None, baseline_us: float
) -> float | None:
    if profile.source is Source.SIMULATED or profile.latency_us is None:
        return None
    for pair in profile.details.get("paired", ()):
        if pair["against"] in known_us and pair["ratio"]:
            return _rounded(known_us[pair["against"]] / pair["ratio"])
    if canary is not None and canary.latency_us and baseline_us:
        return _rounded(profile.latency_us * baseline_us / canary.latency_us)
    return None


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
